"""Output of the commands: tables, CSV, JSON, notes."""

import csv
import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.tables import csv_text
from cfe_faiss.base.text import format_similarity
from cfe_faiss.cli.terminal import print_table

if TYPE_CHECKING:
    import pandas as pd

Columns: TypeAlias = dict[str, NDArray[Any]]

_ROWS_AT_ONCE = 1 << 16
_ROWS_ON_A_TERMINAL = 1_000


def note(text: str) -> None:
    """Write a note about the result to standard error."""
    sys.stderr.write(f"cfe-faiss: note: {text}\n")


def announce(dataset: str) -> None:
    """Say on a terminal that a data set is loaded: importing PyTorch takes seconds."""
    if sys.stderr.isatty():
        sys.stderr.write(f"Loading {dataset} ...\n")


def describe(fields: dict[str, Any]) -> str:
    """Return facts about an index file as text, one to a line."""
    lines = {name: value for name, value in fields.items() if name != "classes"}
    lines |= {f"class {label}": count for label, count in fields["classes"].items()}
    width = max(len(name) for name in lines)
    return "".join(f"{name:<{width}}  {value}\n" for name, value in lines.items())


def write(columns: Columns, style: str | None) -> None:
    """Write columns of numbers or texts as a table, or as "csv" or "json", a block of rows at a time.

    A table on a terminal fits its width, and ends after 1,000 rows.
    """
    if style == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(map(csv_text, columns))
        writer.writerows(_rows(columns, _csv_fields))
    elif style == "json":
        separator = "[\n"
        for row in _rows(columns, _json_values):
            sys.stdout.write(f"{separator}  {json.dumps(dict(zip(columns, row, strict=True)))}")
            separator = ",\n"
        sys.stdout.write("[]\n" if separator == "[\n" else "\n]\n")
    elif sys.stdout.isatty():
        n = len(next(iter(columns.values())))
        some = {name: values[:_ROWS_ON_A_TERMINAL] for name, values in columns.items()}
        fields = {name: _show(name, values) for name, values in some.items()}
        print_table(fields, numeric={name for name, values in some.items() if values.dtype.kind in "iuf"})
        if n > _ROWS_ON_A_TERMINAL:
            note(f"the first {_ROWS_ON_A_TERMINAL:,} of {n:,} rows; --csv or --json writes all of them")
    else:
        _write_aligned(columns)


def write_frame(frame: "pd.DataFrame", style: str | None, main: Sequence[str] = ()) -> None:
    """Write a DataFrame as :func:`write` does; on a terminal only its ``main`` columns, if there are any."""
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


def _write_aligned(columns: Columns) -> None:
    widths = [_width(name, values) for name, values in columns.items()]
    sys.stdout.write(_align(tuple(columns), widths))
    sys.stdout.writelines(_align(row, widths) for row in _rows(columns, _show))


def _rows(columns: Columns, fields: Callable[[str, NDArray[Any]], list[Any]]) -> Iterator[tuple[Any, ...]]:
    """Yield rows of fields, made by a function of name and values for a block of rows at a time."""
    for start in range(0, len(next(iter(columns.values()))), _ROWS_AT_ONCE):
        blocks = (fields(name, values[start : start + _ROWS_AT_ONCE]) for name, values in columns.items())
        yield from zip(*blocks, strict=True)


def _texts(values: NDArray[Any]) -> list[str]:
    if values.dtype.kind == "O":
        return ["" if _is_missing(value) else str(value) for value in values.tolist()]
    # NumPy writes a float32 with the fewest digits that identify it.
    return [str(text) for text in values.astype(str).tolist()]


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _show(name: str, values: NDArray[Any]) -> list[str]:
    """Return the fields of a table for people."""
    if name == "similarity":
        return [format_similarity(value) for value in values]
    if values.dtype.kind == "f":
        return [f"{value:.4f}" for value in values.tolist()]
    return [_printable(text) for text in _texts(values)]


def _printable(text: str) -> str:
    """Escape characters that would move the cursor of a terminal or break a line of a table."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _csv_fields(_: str, values: NDArray[Any]) -> list[str]:
    texts = _texts(values)
    return list(map(csv_text, texts)) if values.dtype.kind == "O" else texts


def _json_values(_: str, values: NDArray[Any]) -> list[Any]:
    if values.dtype.kind == "O":
        plain = (value if isinstance(value, int) else str(value) for value in values.tolist())
        return [None if _is_missing(value) else text for value, text in zip(values.tolist(), plain, strict=True)]
    if values.dtype.kind == "f":
        return [number if math.isfinite(number) else None for number in map(float, _texts(values))]
    listed: list[Any] = values.tolist()
    return listed


def _width(name: str, values: NDArray[Any]) -> int:
    extremes = values.dtype.kind in "iuf" and name != "similarity" and len(values)
    # The extremes of numbers are the longest; NaN is short.
    some = np.array([np.nanmin(values), np.nanmax(values)]) if extremes and not np.isnan(values).all() else values
    return max(len(text) for text in (name, *_show(name, some)))


def _align(row: tuple[str, ...], widths: list[int]) -> str:
    return "  ".join(f"{field:>{width}}" for field, width in zip(row, widths, strict=True)) + "\n"
