"""Tables that fit the width of a terminal."""

import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Iterator, Mapping, Sequence, Set

_GAP = 2
_NARROWEST_TEXT = 6
_LONGEST_TEXT = 60


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
