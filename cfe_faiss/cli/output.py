"""Output of the commands: tables, CSV, JSON, notes."""

import csv
import json
import math
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.text import csv_text, format_measure

Columns: TypeAlias = dict[str, NDArray[Any]]

_ROWS_AT_ONCE = 1 << 16
_ROWS_ON_A_TERMINAL = 1_000
_GAP = 2
_MEASURES = "similarity", "distance"
_NARROWEST_TEXT = 6
_LONGEST_TEXT = 60


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
    if name in _MEASURES:
        return [format_measure(name, value) for value in values]
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
    extremes = values.dtype.kind in "iuf" and name not in _MEASURES and len(values)
    # The extremes of numbers are the longest; NaN is short.
    some = np.array([np.nanmin(values), np.nanmax(values)]) if extremes and not np.isnan(values).all() else values
    return max(len(text) for text in (name, *_show(name, some)))


def _align(row: tuple[str, ...], widths: list[int]) -> str:
    return "  ".join(f"{field:>{width}}" for field, width in zip(row, widths, strict=True)) + "\n"


# --- tables that fit the width of a terminal --------------------------------------------------------------------------


def print_table(columns: Mapping[str, Sequence[str]], *, numeric: Set[str], width: int | None = None) -> None:
    """Print a table on standard output.

    Texts are shortened to 60 characters and folded on a narrow terminal; the words of a header stand below each other.
    If that does not fit, each row becomes a block of lines, one for each column.

    Parameters
    ----------
    columns
        Fields by column, of one length.
    numeric
        Columns that are aligned to the right and never folded.
    width
        Characters of a line; default: the width of the terminal.
    """
    width = shutil.get_terminal_size().columns if width is None else width
    fields = {name: [_short(text) for text in texts] for name, texts in columns.items()}
    widths = _widths(fields, numeric, width)
    lines = _blocks(fields, width) if widths is None else _lines(fields, numeric, widths)
    sys.stdout.writelines(f"{line.rstrip()}\n" for line in lines)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 1]}…"


def _cells(text: str) -> int:
    """Return the number of cells that a text takes: two for a wide character, none for a combining one."""
    if text.isascii():
        return len(text)
    return sum(1 + (unicodedata.east_asian_width(c) in "WF") for c in text if not unicodedata.combining(c))


def _widths(fields: Mapping[str, Sequence[str]], numeric: Set[str], width: int) -> list[int] | None:
    """Return widths of columns that fit, the widest columns narrowed first; None if none fit."""
    widths, least = [], []
    for name, texts in fields.items():
        widest = max(map(_cells, texts), default=0)
        widths.append(max(widest, len(name)))
        body = widest if name in numeric else min(widest, _NARROWEST_TEXT)
        least.append(max(body, *map(len, name.split("_")), 1))
    for _ in range(sum(widths) + _GAP * (len(widths) - 1) - width):
        wider = [column for column in range(len(widths)) if widths[column] > least[column]]
        if not wider:
            return None
        widths[max(wider, key=widths.__getitem__)] -= 1
    return widths


def _lines(fields: Mapping[str, Sequence[str]], numeric: Set[str], widths: Sequence[int]) -> Iterator[str]:
    header = [textwrap.wrap(name.replace("_", " "), width) for name, width in zip(fields, widths, strict=True)]
    rule = [["─" * width] for width in widths]
    body = ([_fold(*cell) for cell in zip(row, widths, strict=True)] for row in zip(*fields.values(), strict=True))
    for row in (header, rule, *body):
        for line in range(max(map(len, row))):
            parts = [cell[line] if line < len(cell) else "" for cell in row]
            blanks = [" " * (width - _cells(part)) for part, width in zip(parts, widths, strict=True)]
            aligned = zip(fields, blanks, parts, strict=True)
            yield (" " * _GAP).join(blank + part if name in numeric else part + blank for name, blank, part in aligned)


def _fold(text: str, width: int) -> list[str]:
    lines = [""]
    for character in text:
        if _cells(lines[-1] + character) > width:
            lines.append("")
        lines[-1] += character
    return lines


def _blocks(fields: Mapping[str, Sequence[str]], width: int) -> Iterator[str]:
    indent = max(map(len, fields)) + _GAP
    for number, row in enumerate(zip(*fields.values(), strict=True), 1):
        yield f"─ {number} ".ljust(width, "─")
        for name, field in zip(fields, row, strict=True):
            for line, part in enumerate(_fold(field, max(width - indent, 1))):
                yield f"{'' if line else name:<{indent}}{part}"
