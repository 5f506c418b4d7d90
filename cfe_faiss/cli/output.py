"""What the commands write: tables, CSV, JSON, notes."""

import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.tables import csv_text
from cfe_faiss.base.text import format_similarity

if TYPE_CHECKING:
    import pandas as pd

Columns: TypeAlias = dict[str, NDArray[Any]]

_ROWS_AT_ONCE = 1 << 16
_ROWS_ON_A_TERMINAL = 1_000


def note(text: str) -> None:
    """Tell the reader something about the result, on standard error."""
    sys.stderr.write(f"cfe-faiss: note: {text}\n")


def announce(dataset: str) -> None:
    """Say what takes a while."""
    # PyTorch alone takes seconds to load; where nobody watches, nothing is said.
    if sys.stderr.isatty():
        sys.stderr.write(f"Loading {dataset} ...\n")


def described(fields: dict[str, Any]) -> str:
    """Return what is known of an index file, one field to a line."""
    classes = {f"class {label}": count for label, count in fields["classes"].items()}
    lines = {name: value for name, value in fields.items() if name != "classes"} | classes
    width = max(len(name) for name in lines)
    return "".join(f"{name:<{width}}  {value}\n" for name, value in lines.items())


def write(columns: Columns, style: str | None) -> None:
    """Write columns of numbers or texts as a table, or as "csv" or "json", a block of rows at a time.

    A table on a terminal fits its width, and ends after 1,000 rows.
    """
    if style == "csv":
        sys.stdout.write(",".join(_csv_texts(list(columns))) + "\n")
        sys.stdout.writelines(",".join(row) + "\n" for row in _rows(columns, _csv_fields))
    elif style == "json":
        _write_json(columns)
    elif sys.stdout.isatty():
        _write_on_terminal(columns)
    else:
        _write_aligned(columns)


def write_frame(frame: "pd.DataFrame", style: str | None, main: Sequence[str] = ()) -> None:
    """Write a DataFrame as :func:`write` does; on a terminal only its ``main`` columns, where there are any."""
    names = list(frame.columns)
    if main and style is None and sys.stdout.isatty():
        names = [name for name in main if name in names]
        if len(names) < len(frame.columns):
            note(f"{len(names)} of {len(frame.columns)} columns; --csv or --json writes all of them")
    write({str(name): _values(frame[name]) for name in names}, style)


def _values(series: "pd.Series[Any]") -> NDArray[Any]:
    plain = isinstance(series.dtype, np.dtype) and series.dtype.kind in "iufb"
    values: NDArray[Any] = series.to_numpy() if plain else series.astype(object).where(series.notna(), None).to_numpy()
    return values


def _write_json(columns: Columns) -> None:
    separator = "[\n"
    for row in _rows(columns, _json_fields):
        fields = ", ".join(f"{json.dumps(name)}: {value}" for name, value in zip(columns, row, strict=True))
        sys.stdout.write(f"{separator}  {{{fields}}}")
        separator = ",\n"
    sys.stdout.write("[]\n" if separator == "[\n" else "\n]\n")


def _write_on_terminal(columns: Columns) -> None:
    # Loaded only here: it takes as long as everything else of a short search.
    from cfe_faiss.cli.terminal import print_table

    n = len(next(iter(columns.values())))
    shown = {name: values[:_ROWS_ON_A_TERMINAL] for name, values in columns.items()}
    fields = {name: _shown(name, values) for name, values in shown.items()}
    print_table(fields, numeric={name for name, values in shown.items() if values.dtype.kind in "iuf"})
    if n > _ROWS_ON_A_TERMINAL:
        note(f"the first {_ROWS_ON_A_TERMINAL:,} of {n:,} rows; --csv or --json writes all of them")


def _write_aligned(columns: Columns) -> None:
    widths = [_width(name, values) for name, values in columns.items()]
    sys.stdout.write(_aligned(tuple(columns), widths))
    n = len(next(iter(columns.values())))
    for start in range(0, n, _ROWS_AT_ONCE):
        block = (_shown(name, values[start : start + _ROWS_AT_ONCE]) for name, values in columns.items())
        sys.stdout.writelines(_aligned(row, widths) for row in zip(*block, strict=True))


def _rows(columns: Columns, fields: Callable[[NDArray[Any]], list[str]]) -> Iterator[tuple[str, ...]]:
    n = len(next(iter(columns.values())))
    for start in range(0, n, _ROWS_AT_ONCE):
        blocks = (fields(values[start : start + _ROWS_AT_ONCE]) for values in columns.values())
        yield from zip(*blocks, strict=True)


def _texts(values: NDArray[Any]) -> list[str]:
    if values.dtype.kind == "O":
        return ["" if _is_missing(value) else str(value) for value in values.tolist()]
    # Of a float32 the fewest digits that tell it from its neighbours.
    return [str(text) for text in values.astype(str).tolist()]


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _shown(name: str, values: NDArray[Any]) -> list[str]:
    """Return what a table for people holds."""
    if name == "similarity":
        return [format_similarity(value) for value in values]
    if values.dtype.kind == "f":
        return [f"{value:.4f}" for value in values.tolist()]
    return [_printable(text) for text in _texts(values)]


def _printable(text: str) -> str:
    """Return a text without what would move the cursor of a terminal or break a line of a table."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _csv_fields(values: NDArray[Any]) -> list[str]:
    return _csv_texts(_texts(values)) if values.dtype.kind == "O" else _texts(values)


def _csv_texts(texts: list[str]) -> list[str]:
    # RFC 4180: a field with a comma or a quote in it is quoted, and its quotes are doubled.
    texts = list(map(csv_text, texts))
    return ['"' + text.replace('"', '""') + '"' if set(text) & set(',"\r\n') else text for text in texts]


def _json_fields(values: NDArray[Any]) -> list[str]:
    if values.dtype.kind == "O":
        return [_json_text(value) for value in values.tolist()]
    if values.dtype.kind == "b":
        return [str(value).lower() for value in values.tolist()]
    # Numbers as CSV has them are JSON, too, but for those that are none.
    finite = np.isfinite(values)
    return [text if number else "null" for text, number in zip(_texts(values), finite.tolist(), strict=True)]


def _json_text(value: Any) -> str:
    return "null" if _is_missing(value) else json.dumps(value if isinstance(value, int) else str(value))


def _width(name: str, values: NDArray[Any]) -> int:
    extremes = values.dtype.kind in "iuf" and name != "similarity" and len(values)
    # Of numbers the extremes are the longest; NaN is short.
    some = np.array([np.nanmin(values), np.nanmax(values)]) if extremes and not np.isnan(values).all() else values
    return max(len(text) for text in (name, *_shown(name, some)))


def _aligned(row: tuple[str, ...], widths: list[int]) -> str:
    return "  ".join(f"{field:>{width}}" for field, width in zip(row, widths, strict=True)) + "\n"
