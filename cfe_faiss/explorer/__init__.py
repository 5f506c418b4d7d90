"""Explorer of pairs: one page to sort, filter and mark them, and the way back of the marks."""

import base64
import json
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from cfe_faiss.attributes.grades import are_dominated, grades_of
from cfe_faiss.attributes.table import Attributes
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
_GROUPS = 30
"""Values of an attribute that are groups, at most."""
_NEIGHBOURS = 12
"""Neighbours of a node that are drawn, at most."""
_LETTERS = 5_000
"""Letters of a text, at most."""


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
    sensitive: Sequence[str] = ()
    left_out: Collection[str] = ()
    marks: Sequence[str] = ()
    notes: Sequence[str] = ()
    better: Mapping[str, Any] | None = None
    refused: Bools | None = None


def check_explorer(
    path: str | PathLike[str], inputs: Sequence[Path] = (), *, overwrite: bool
) -> Path:
    """Return the path of a page, before the work for it.

    Raises
    ------
    OSError
        If its folder does not exist, or it is a folder.
    ValueError
        If the name does not end in ".html", or the file is one of the inputs, or foreign.
    """
    target = as_page("path", path)
    check_outputs([target], inputs, overwrite=overwrite)
    return target


def write_explorer(
    path: str | PathLike[str], page: str, inputs: Sequence[Path] = (), *, overwrite: bool
) -> Path:
    """Write the page, and return its path. Errors as of :func:`check_explorer`."""
    target = check_explorer(path, inputs, overwrite=overwrite)
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
        measure=explored.measure,
        better=cell_text(", ".join(ends)),
        classes=[(name, name) for name in content["classes"] if explored.labels is not None],
        columns=[*enumerate(content["columns"])],
        groups=list(_groups(explored, content)),
        marks=[(mark, mark) for mark in MARKS],
    )


def _groups(explored: Explored, content: Mapping[str, Any]) -> Iterator[tuple[str, list[Any]]]:
    """Yield the values of each attribute that has few of them, sensitive attributes first."""
    names = list(explored.attributes)
    for name in sorted(names, key=lambda name: name not in explored.sensitive):
        column = names.index(name)
        values = sorted({value for value in content["values"][column] if value is not None})
        if len(values) <= _GROUPS:
            yield content["columns"][column], [(f"{column}={value}", value) for value in values]


def _content(explored: Explored) -> dict[str, Any]:
    """Return what the script reads: rows of the pairs, their values, and the pairs."""
    rows = np.unique(np.concatenate([explored.source, explored.target]))
    near, others = _neighbourhoods(explored, rows)
    everybody = np.append(rows, others)
    known = explored.attributes.take(rows)
    place_of = {name: place for place, name in enumerate(known)}
    is_better = np.zeros(len(explored.source), bool)
    if explored.better is not None and explored.refused is not None:
        grades = np.full((len(explored.better), len(explored.ids)), np.nan)
        grades[:, explored.attributes.ids] = grades_of(explored.attributes, explored.better)
        is_better = are_dominated(grades, explored.refused, explored.source, explored.target)
    is_distance = explored.measure == "distance"
    differences = explored.attributes.differences(explored.source, explored.target)
    pairs = [
        {
            "source": source,
            "target": target,
            "measure": value,
            "shown": f"{value:#.5g}".rstrip(".") if is_distance else format_similarity(value),
            "better": bool(is_better[place]),
            "near": near[place] if near else [],
            "mark": explored.marks[place] if explored.marks else "",
            "note": cell_text(explored.notes[place]) if explored.notes else "",
            "differences": [
                [place_of[name], None if np.isnan(change) else float(f"{change:.2g}")]
                for name, change in differences[place].items()
            ],
        }
        for place, (source, target, value) in enumerate(
            zip(
                rows.searchsorted(explored.source).tolist(),
                rows.searchsorted(explored.target).tolist(),
                explored.values.tolist(),
                strict=True,
            )
        )
    ]
    return {
        "measure": explored.measure,
        "classes": [cell_text(name) for name in explored.class_names],
        "rows": everybody.tolist(),
        "ids": [_cell(name) for name in explored.ids[everybody].tolist()],
        "labels": None if explored.labels is None else explored.labels[everybody].tolist(),
        "truth": None if explored.truth is None else explored.truth[rows].tolist(),
        "columns": [cell_text(name) for name in known],
        "left_out": [place_of[name] for name in known if name in explored.left_out],
        "values": [
            [_cell(attribute.of(row)) for row in range(len(rows))] for attribute in known.values()
        ],
        "pairs": pairs,
        "mark_names": MARKS,
        "formula_starts": "".join(FORMULA_STARTS),
        "plain_number": PLAIN_NUMBER.pattern,
        "csv_columns": [*_COLUMNS, explored.measure, "mark", "note"],
    }


def _cell(value: Any) -> str | None:
    """Return a value as one line of text, None if missing."""
    if value is None:
        return None
    if isinstance(value, float | np.floating):
        return format_value(float(value))
    text = " ".join(str(value).split())
    return cell_text(text if len(text) <= _LETTERS else f"{text[:_LETTERS]}…")


def _neighbourhoods(explored: Explored, rows: Ints) -> tuple[list[Any], Ints]:
    """Return the neighbours of both sides of each pair, and the rows among them in no pair.

    A side is its number of neighbours, how many of them have its class, the place of each drawn
    one among all rows of the page, whether the other side has it, too.
    """
    if explored.graph is None or explored.labels is None:
        return [], np.empty(0, np.int64)
    graph = explored.graph.undirected()
    sides = [
        [surroundings(graph, *ends, explored.labels, _NEIGHBOURS) for ends in ((v, u), (u, v))]
        for v, u in zip(explored.source.tolist(), explored.target.tolist(), strict=True)
    ]
    drawn = [one.drawn for pair in sides for one in pair]
    others = np.setdiff1d(np.concatenate([*drawn, rows[:0]]), rows)
    place_of = {row: place for place, row in enumerate(np.append(rows, others).tolist())}
    near = [
        [
            [
                one.degree,
                one.same,
                [place_of[row] for row in one.drawn.tolist()],
                one.shared.astype(int).tolist(),
            ]
            for one in pair
        ]
        for pair in sides
    ]
    return near, others


# --- marks ----------------------------------------------------------------------------------------


def read_marks(marks: Any, n: int, ids: Array | None = None) -> "pd.DataFrame":
    """Return the marks of a page: ``source`` and ``target`` (row numbers), ``mark``, ``note``.

    Parameters
    ----------
    marks
        The CSV file that the page has exported, or a frame with its columns.
    n
        Number of rows of the data.
    ids
        Ids of the rows, (n,). Ids of the marks must agree with them, unless they are masked.

    Raises
    ------
    TypeError, ValueError
        If a column is missing, a mark is unknown, or a row does not belong to the data.
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
