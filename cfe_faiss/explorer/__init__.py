"""Explorer of pairs: one page to sort, filter and mark them, and the way back of the marks."""

import base64
import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
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
from cfe_faiss.base.text import FORMULA_STARTS, PLAIN_NUMBER, cell_text, csv_text, format_measure
from cfe_faiss.base.values import as_ids
from cfe_faiss.data.columns import Reading
from cfe_faiss.data.read import as_table
from cfe_faiss.files.outputs import check_outputs, new_file
from cfe_faiss.graph.csr import Graph, surroundings
from cfe_faiss.plot import format_value

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
class Facts:
    """Facts about the rows that pairs consist of.

    Attributes
    ----------
    ids
        The user's id of each row, (n,); row numbers if they are masked.
    labels, truth
        Predicted and true class of each row, (n,), -1 if unknown; None without classes.
    class_names
        Name of each class.
    attributes
        Attributes of all rows.
    graph
        Graph whose neighbourhoods the page shows.
    sensitive
        Names of attributes that stand first among the groups.
    files
        Files that the page never replaces.
    """

    ids: Array
    labels: Int32s | None
    truth: Int32s | None = None
    class_names: Sequence[str] = ()
    attributes: Attributes
    graph: Graph | None = None
    sensitive: Sequence[str] = ()
    files: Sequence[Path] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """Pairs of a page.

    Attributes
    ----------
    source, target
        Rows of each pair, (k,), best first.
    measure, values
        "similarity" or "distance", and its value for each pair, (k,) float64.
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
    marks: Sequence[str] = ()
    notes: Sequence[str] = ()
    better: Mapping[str, Any] | None = None
    refused: Bools | None = None


def write_explorer(
    path: str | PathLike[str], facts: Facts, shown: Shown, *, title: str, overwrite: bool
) -> Path:
    """Write the page, and return its path.

    Raises
    ------
    OSError
        If it cannot be written.
    ValueError
        If the name does not end in ".html", or the file is an input or foreign.
    """
    target = Path(path)
    if target.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"path must end in .html, got {str(path)!r}")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"path must lie in a folder that exists, got {str(path)!r}")
    check_outputs([target], facts.files, overwrite=overwrite)
    page = explorer_page(facts, shown, title)
    with new_file(target, overwrite=overwrite) as file:
        file.write(page.encode("utf-8"))
    return target


def explorer_page(facts: Facts, shown: Shown, title: str) -> str:
    """Return the page. Browsers are told to run its own script only, and to load nothing."""
    with extra("audit"):
        from jinja2 import Environment, StrictUndefined
        from markupsafe import Markup

    folder = files("cfe_faiss.explorer")
    parts = {
        name: folder.joinpath(f"page.{name}").read_text(encoding="utf-8")
        for name in ("css", "js", "html.j2")
    }
    digests = {
        name: base64.b64encode(hashlib.sha256(parts[name].encode()).digest()).decode()
        for name in ("css", "js")
    }
    content = _content(facts, shown)
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # Base64 of compressed text has no character that ends a script.
    packed = base64.b64encode(zlib.compress(text.encode())).decode()
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return environment.from_string(parts["html.j2"]).render(
        policy=(
            f"default-src 'none'; script-src 'sha256-{digests['js']}'; "
            f"style-src 'sha256-{digests['css']}'; img-src data:; base-uri 'none'; "
            "form-action 'none'"
        ),
        style=Markup(parts["css"]),
        script=Markup(parts["js"]),
        data=packed,
        title=cell_text(title),
        version=version("cfe-faiss"),
        count=len(shown.source),
        measure=shown.measure,
        better=_better_text(shown.better),
        classes=[(name, name) for name in content["classes"] if facts.labels is not None],
        columns=[*enumerate(content["columns"])],
        groups=list(_groups(facts, content)),
        marks=[(mark, mark) for mark in MARKS],
    )


def _groups(facts: Facts, content: Mapping[str, Any]) -> Iterator[tuple[str, list[Any]]]:
    """Yield the values of each attribute that has few of them, sensitive attributes first."""
    names = list(facts.attributes)
    for name in sorted(names, key=lambda name: name not in facts.sensitive):
        column = names.index(name)
        values = sorted({value for value in content["values"][column] if value is not None})
        if len(values) <= _GROUPS:
            yield content["columns"][column], [(f"{column}={value}", value) for value in values]


def _better_text(better: Mapping[str, Any] | None) -> str:
    ends = (
        f"{name} ({end if isinstance(end, str) else 'as listed'})"
        for name, end in (better or {}).items()
    )
    return cell_text(", ".join(ends))


def _content(facts: Facts, shown: Shown) -> dict[str, Any]:
    """Return what the script reads: rows of the pairs, their values, and the pairs."""
    rows = np.unique(np.concatenate([shown.source, shown.target]))
    near, others = _neighbourhoods(facts, shown, rows)
    known = facts.attributes.take(rows)
    place_of = {name: place for place, name in enumerate(known)}
    differences = [
        [[place_of[name], _rounded(change)] for name, change in pair.items()]
        for pair in facts.attributes.differences(shown.source, shown.target)
    ]
    is_better = np.zeros(len(shown.source), bool)
    if shown.better is not None and shown.refused is not None:
        grades = np.full((len(shown.better), len(facts.ids)), np.nan)
        grades[:, facts.attributes.ids] = grades_of(facts.attributes, shown.better)
        is_better = are_dominated(grades, shown.refused, shown.source, shown.target)
    everybody = np.append(rows, others)
    places = {name: rows.searchsorted(getattr(shown, name)).tolist() for name in _SIDES}
    return {
        "measure": shown.measure,
        "classes": [cell_text(name) for name in facts.class_names],
        "rows": everybody.tolist(),
        "ids": [_cell(name) for name in facts.ids[everybody].tolist()],
        "labels": _classes(facts.labels, everybody),
        "truth": _classes(facts.truth, rows),
        "columns": [cell_text(name) for name in known],
        "values": [
            [_cell(attribute.of(row)) for row in range(len(rows))] for attribute in known.values()
        ],
        **places,
        "values_shown": [format_measure(shown.measure, value) for value in shown.values],
        "measures": shown.values.tolist(),
        "differences": differences,
        "better": is_better.tolist(),
        "near": near,
        "marks": list(shown.marks),
        "notes": [cell_text(note) for note in shown.notes],
        "mark_names": MARKS,
        "formula_starts": "".join(FORMULA_STARTS),
        "plain_number": PLAIN_NUMBER.pattern,
        "csv_columns": [*_COLUMNS, shown.measure, "mark", "note"],
    }


def _classes(labels: Int32s | None, rows: Ints) -> list[int] | None:
    return None if labels is None else labels[rows].tolist()


def _cell(value: Any) -> str | None:
    """Return a value as one line of text, None if missing."""
    if value is None:
        return None
    if isinstance(value, float | np.floating):
        return format_value(float(value))
    text = " ".join(str(value).split())
    return cell_text(text if len(text) <= _LETTERS else f"{text[:_LETTERS]}…")


def _rounded(change: float) -> float | None:
    return None if np.isnan(change) else float(f"{change:.2g}")


def _neighbourhoods(facts: Facts, shown: Shown, rows: Ints) -> tuple[list[Any], Ints]:
    """Return the neighbours of both sides of each pair, and those that are in no pair.

    A side is its number of neighbours, how many of them have its class, the place of each drawn
    one among all rows of the page, whether the other side has it, too.
    """
    if facts.graph is None or facts.labels is None:
        return [], np.empty(0, np.int64)
    graph = facts.graph.undirected()
    sides = [
        [surroundings(graph, *ends, facts.labels, _NEIGHBOURS) for ends in ((v, u), (u, v))]
        for v, u in zip(shown.source.tolist(), shown.target.tolist(), strict=True)
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
        Ids of the rows, (n,), with which those of the marks must agree, unless they are masked.

    Raises
    ------
    TypeError, ValueError
        If a column is missing, a mark is unknown, or a row does not belong to the data.
    """
    reading = Reading(keep_text=("mark", "note", *_SIDES))
    cells = as_table(marks, reading).cells
    for name in ("source_row", "target_row", "mark"):
        check_known("marks must have the columns", name, list(cells))
    texts = cells.reindex(columns=["mark", "note", *_SIDES]).fillna("").astype(str)
    for mark in texts["mark"].unique():
        check_known("marks must be", mark, ["", *MARKS])
    rows = {side: as_ids(f"{side}_row", cells[f"{side}_row"].to_numpy(), n) for side in _SIDES}
    for side, numbers in rows.items():
        if ids is None:
            break
        for given, row in zip(texts[side], numbers.tolist(), strict=True):
            named = csv_text(_cell(ids[row]) or "")
            if given not in ("", named, str(row)):
                raise ValueError(
                    f"marks must be of this data: row {row} is {named!r}, got {given!r}"
                )
    return pd.DataFrame({**rows, "mark": texts["mark"], "note": texts["note"]})


def settled_pairs(reviewed: Any, n: int) -> Ints:
    """Return the pairs of rows, (m, 2), that a reader has marked as label error or explained."""
    marks = read_marks(reviewed, n)
    pairs: Ints = marks.loc[marks["mark"].isin(SETTLED), list(_SIDES)].to_numpy(np.int64)
    return pairs
