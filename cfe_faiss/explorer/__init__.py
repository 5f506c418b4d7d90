"""Explorer of pairs: one page to sort, filter and mark them, and the way back of the marks."""

import base64
import json
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from cfe_faiss.attributes.table import Attributes, are_dominated, grades_of
from cfe_faiss.base.checks import Array, Bools, Doubles, Int32s, Ints, check_known
from cfe_faiss.base.extras import extra, pd
from cfe_faiss.base.text import FORMULA_STARTS, PLAIN_NUMBER, cell_text, csv_text, format_similarity
from cfe_faiss.base.values import as_ids
from cfe_faiss.data.columns import Reading
from cfe_faiss.data.read import as_table
from cfe_faiss.files.outputs import as_page, check_outputs, new_file, page_policy
from cfe_faiss.graph.csr import Graph, surroundings
from cfe_faiss.plot import format_value

TITLE = "Pairs with different decisions"
"""Heading of a page about decisions."""
MARKS = ("relevant", "label error", "explained")
"""Marks of a pair; "" is a note without a mark."""
SETTLED = ("label error", "explained")
"""Marks of pairs that miners leave out."""
_SIDES = ("source", "target")
_COLUMNS = ("source_row", "target_row", *_SIDES, "source_class", "target_class")
# At most: values of an attribute that are groups, neighbours of a node, letters of a text.
_GROUPS = 30
_NEIGHBOURS = 12
_LETTERS = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Explored:
    """Pairs of a page, and facts about the rows that they consist of.

    Attributes
    ----------
    source, target
        Rows of each pair, (k,), best first.
    measure, values
        "similarity" or "distance", and its value for each pair, (k,) float64.
    ids
        The user's id of each row, (n,); row numbers if they are masked.
    attributes
        Attributes of all rows.
    labels, truth
        Predicted and true class of each row, (n,), -1 if unknown; None without classes.
    class_names
        Name of each class.
    graph
        Graph whose neighbourhoods the page shows.
    noun
        Word for one row.
    sensitive
        Names of attributes that stand first among the groups.
    left_out
        Names of attributes that do not count in the measure.
    marks, notes
        Marks and notes of a reader, (k,) texts; empty for none.
    better
        Better end of columns, as in :func:`cfe_faiss.audit.dominated`.
    refused
        Whether each row counts as refused, (n,); needed with ``better``.
    """

    source: Ints
    target: Ints
    measure: str
    values: Doubles
    ids: Array
    attributes: Attributes
    labels: Int32s | None
    truth: Int32s | None = None
    class_names: Sequence[str] = ()
    graph: Graph | None = None
    noun: str = "row"
    sensitive: Sequence[str] = ()
    left_out: Collection[str] = ()
    marks: Sequence[str] = ()
    notes: Sequence[str] = ()
    better: Mapping[str, Any] | None = None
    refused: Bools | None = None


def write_explorer(
    path: str | PathLike[str],
    make_page: Callable[[], str],
    inputs: Sequence[Path] = (),
    *,
    overwrite: bool,
) -> Path:
    """Check the path, make the page, write it, and return its path.

    Raises what :func:`as_page`, :func:`check_outputs` and :func:`new_file` raise.
    """
    target = as_page("path", path)
    check_outputs([target], inputs, overwrite=overwrite)
    page = make_page()
    with new_file(target, overwrite=overwrite) as file:
        file.write(page.encode("utf-8"))
    return target


def explorer_page(explored: Explored, title: str) -> str:
    """Return the page. Its policy permits one script, by hash, and no network."""
    with extra("audit"):
        from jinja2 import Environment, StrictUndefined
        from markupsafe import Markup

    page, style, script = (
        files("cfe_faiss.explorer").joinpath(name).read_text(encoding="utf-8")
        for name in ("page.html.j2", "page.css", "page.js")
    )
    content = _content(explored)
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    ends = [
        f"{name} ({end if isinstance(end, str) else 'as listed'})"
        for name, end in (explored.better or {}).items()
    ]
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return environment.from_string(page).render(
        policy=page_policy(style, script),
        style=Markup(style),
        script=Markup(script),
        # Base64 of compressed text has no character that ends a script.
        data=base64.b64encode(zlib.compress(text.encode())).decode(),
        title=cell_text(title),
        version=version("cfe-faiss"),
        count=len(explored.source),
        noun=explored.noun,
        measure=explored.measure,
        better=cell_text(", ".join(ends)),
        classes=[] if explored.labels is None else list(map(cell_text, explored.class_names)),
        columns=content["columns"],
        groups=list(_groups(explored, content)),
        marks=MARKS,
    )


def _groups(explored: Explored, content: Mapping[str, Any]) -> Iterator[tuple[str, list[Any]]]:
    """Yield the values of each attribute that has few of them, sensitive attributes first."""
    names = list(explored.attributes)
    rows = [row["values"] for row in content["rows"].values() if "values" in row]
    for name in sorted(names, key=lambda name: name not in explored.sensitive):
        column = names.index(name)
        values = sorted({row[column] for row in rows if row[column] is not None})
        if len(values) <= _GROUPS:
            yield content["columns"][column], [(f"{column}={value}", value) for value in values]


def _content(explored: Explored) -> dict[str, Any]:
    """Return what the script reads: the pairs, and their rows and neighbours by row number."""
    near = _neighbours(explored)
    rows = np.unique(np.concatenate([explored.source, explored.target]))
    drawn_rows = {row for pair in near for side in pair for row, _ in side["drawn"]}
    facts = {row: _identity(explored, row) for row in drawn_rows.union(rows.tolist())}
    row_attributes = explored.attributes.take(rows)
    for place, row in enumerate(rows.tolist()):
        facts[row]["values"] = [_cell(attribute.of(place)) for attribute in row_attributes.values()]
    place_of = {name: place for place, name in enumerate(row_attributes)}
    is_better = np.zeros(len(explored.source), bool)
    if explored.better is not None and explored.refused is not None:
        grades = np.full((len(explored.better), len(explored.ids)), np.nan)
        grades[:, explored.attributes.ids] = grades_of(explored.attributes, explored.better)
        is_better = are_dominated(grades, explored.refused, explored.source, explored.target)
    is_distance = explored.measure == "distance"
    differences = explored.attributes.differences(explored.source, explored.target)
    pairs = [
        {
            "source": int(explored.source[place]),
            "target": int(explored.target[place]),
            "measure": value,
            "shown": f"{value:#.5g}".rstrip(".") if is_distance else format_similarity(value),
            "better": bool(is_better[place]),
            "near": near[place],
            "mark": explored.marks[place] if explored.marks else "",
            "note": cell_text(explored.notes[place]) if explored.notes else "",
            "differences": [
                [place_of[name], None if np.isnan(change) else float(f"{change:.2g}")]
                for name, change in differences[place].items()
            ],
        }
        for place, value in enumerate(explored.values.tolist())
    ]
    return {
        "measure": explored.measure,
        "rows": facts,
        "columns": [cell_text(name) for name in row_attributes],
        "left_out": [place_of[name] for name in row_attributes if name in explored.left_out],
        "pairs": pairs,
        "mark_names": MARKS,
        "formula_starts": "".join(FORMULA_STARTS),
        "plain_number": PLAIN_NUMBER.pattern,
        "csv_columns": [*_COLUMNS, explored.measure, "mark", "note"],
    }


def _identity(explored: Explored, row: int) -> dict[str, Any]:
    """Return id and classes of a row; "" where there are none."""
    facts = {"id": _cell(explored.ids[row]) or "unknown", "decision": "", "truth": ""}
    for name, labels in (("decision", explored.labels), ("truth", explored.truth)):
        if labels is not None:
            is_known = 0 <= labels[row] < len(explored.class_names)
            facts[name] = cell_text(explored.class_names[labels[row]]) if is_known else "unknown"
    return facts


def _cell(value: Any) -> str | None:
    """Return a value as one line of text, None if missing."""
    if value is None:
        return None
    if isinstance(value, float | np.floating):
        return format_value(float(value))
    text = " ".join(str(value).split())
    return cell_text(text if len(text) <= _LETTERS else f"{text[:_LETTERS]}…")


def _neighbours(explored: Explored) -> list[list[dict[str, Any]]]:
    """Return how many neighbours each side of a pair has, how many of its class, and some of them.

    Each drawn one has its row, and whether the other side has it, too.
    """
    if explored.graph is None or explored.labels is None:
        return [[]] * len(explored.source)
    graph = explored.graph.undirected()
    pairs: list[list[dict[str, Any]]] = []
    for ends in np.stack([explored.source, explored.target], axis=1).tolist():
        pairs.append([])
        for node, other in (ends, ends[::-1]):
            near = surroundings(graph, node, other, explored.labels, _NEIGHBOURS)
            drawn_neighbours = np.stack([near.drawn, near.shared], axis=1).tolist()
            pairs[-1].append({"count": near.degree, "same": near.same, "drawn": drawn_neighbours})
    return pairs


# --- marks ----------------------------------------------------------------------------------------


def read_marks(marks: Any, n: int, ids: Array | None = None) -> "pd.DataFrame":
    """Return the marks of a page: ``source`` and ``target`` (row numbers), ``mark``, ``note``.

    ``marks`` is the CSV file that the page has exported, or a frame with its columns, about n rows.
    Its ids must agree with ``ids``, (n,), unless they are masked. TypeError or ValueError if a
    column is missing, a mark is unknown, or a row does not belong to the data.
    """
    reading = Reading(keep_text=("mark", "note", *_SIDES))
    cells = as_table(marks, reading).cells
    for name in ("source_row", "target_row", "mark"):
        if name not in cells:
            raise ValueError(f"marks lack the column {name!r}, got ({', '.join(map(str, cells))})")
    texts = cells.reindex(columns=["mark", "note", *_SIDES]).astype(object)
    texts = texts.mask(texts.isna(), "").astype(str)
    for mark in set(texts["mark"]) - {""}:
        check_known("marks must be", mark, MARKS)
    rows = {
        side: as_ids(name, pd.to_numeric(cells[name], errors="coerce").to_numpy(), n)
        for side, name in zip(_SIDES, _COLUMNS, strict=False)
    }
    for side in _SIDES:
        if ids is None:
            break
        names = [csv_text(_cell(name) or "") for name in ids[rows[side]].tolist()]
        is_other = (texts[side] != names) & (texts[side] != rows[side].astype(str))
        if (is_other & (texts[side] != "")).any():
            place = int(is_other.argmax())
            raise ValueError(
                f"marks must be of this data: row {rows[side][place]} is {names[place]!r}, got "
                f"{texts[side][place]!r}"
            )
    return pd.DataFrame({**rows, "mark": texts["mark"], "note": texts["note"]})


def settled_pairs(reviewed: Any, n: int) -> Ints:
    """Return the pairs of rows, (m, 2), that a reader has marked as label error or explained."""
    marks = read_marks(reviewed, n)
    pairs: Ints = marks.loc[marks["mark"].isin(SETTLED), list(_SIDES)].to_numpy(np.int64)
    return pairs
