"""Form of a text table: encoding, lines and separator, from options and content."""

import codecs
import re
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

SEPARATORS = (";", "\t", "|", ",", "^", "~")
"""Where two separate equally well, the earlier one does: a comma may be a decimal mark."""
DECIMALS = (".", ",")

_SAMPLE_LINES = 1_000
_BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_QUOTED = re.compile(rf'(^|[{re.escape("".join(SEPARATORS))}]) *"[^"]*(?:""[^"]*)*"', re.MULTILINE)
_CHANGES = {
    "na": "None in place of {}",
    "categorical": "pandas categories for {}",
    "decimal": "numbers with a point in place of {}",
    "thousands": "numbers without {}",
}
"""Remedies for columns in memory, by the argument that tables have."""
_INNER_LINE = "\0"
"""Stands for the end of a line within quotes."""


class ContentError(ValueError):
    """A file of the expected kind that is not read; the message follows its path."""


class ReadingOptions(TypedDict, total=False):
    """Arguments of :class:`Reading`."""

    encoding: str | None
    separator: str | None
    header: str | None
    decimal: str | None
    thousands: str | None
    na: Sequence[str]
    keep_text: Sequence[str]
    categorical: Sequence[str]


@dataclass(frozen=True)
class Reading:
    """How to read tables, beyond what their content says.

    Attributes
    ----------
    encoding
        Encoding of text files. Default: UTF-8, or what the byte order mark says.
    separator
        Character between two fields. Default: the one that divides the lines in the same way.
    header
        "first": the first line of the table has the names of the columns; "none": it is a row, and
        the columns are called "1", "2", ... Default: the first line, unless it holds numbers only.
    decimal, thousands
        Marks in numbers. Default: "." and none.
    na
        Texts that stand for a missing value, in addition to the texts of pandas.
    keep_text
        Columns that are read as they stand: texts, of which none is missing but the empty one.
    categorical
        Columns of numbers that are codes.
    are_options
        Whether errors name options of the command line, and not arguments.
    is_given
        Whether the columns are attributes in memory, for which there are no such arguments.
    """

    encoding: str | None = None
    separator: str | None = None
    header: str | None = None
    decimal: str | None = None
    thousands: str | None = None
    na: Sequence[str] = ()
    keep_text: Sequence[str] = ()
    categorical: Sequence[str] = ()
    are_options: bool = False
    is_given: bool = False

    def __post_init__(self) -> None:
        if self.header not in (None, "first", "none"):
            raise ValueError(f"header must be first or none, got {self.header!r}")
        if self.decimal not in (None, *DECIMALS):
            raise ValueError(f"decimal must be '.' or ',', got {self.decimal!r}")
        if self.thousands is not None and (
            len(self.thousands) != 1 or self.thousands in f"{self.point}+-0123456789"
        ):
            raise ValueError(
                f"thousands must be a mark other than that of decimals, got {self.thousands!r}"
            )
        if self.separator is not None and len(self.separator) != 1:
            raise ValueError(f"separator must be one character, got {self.separator!r}")
        if self.encoding is not None:
            try:
                codecs.lookup(self.encoding)
            except LookupError:
                raise ValueError(
                    f"encoding must be one that Python knows, such as latin-1, got "
                    f"{self.encoding!r}"
                ) from None

    @property
    def point(self) -> str:
        """The decimal mark."""
        return self.decimal or "."

    def shown(self, argument: str) -> str:
        """Return the name of an argument as the user writes it."""
        return (
            f"--{argument.replace('_', '-')}"
            if self.are_options and argument.isidentifier()
            else argument
        )

    def remedy(self, argument: str, *values: str) -> str:
        """Return an argument with values as the user writes it."""
        if self.is_given:
            return _CHANGES[argument].format(", ".join(map(repr, values)))
        if self.are_options:
            return f"{self.shown(argument)} {shlex.join(values)}"
        several = argument not in (
            "id",
            "encoding",
            "separator",
            "header",
            "decimal",
            "thousands",
            "missing",
            "person",
        )
        return f"{argument}={list(values)!r}" if several else f"{argument}={values[0]!r}"


DEFAULT = Reading()


def decode(data: bytes, reading: Reading) -> str:
    r"""Return the text of a file, with "\n" at the ends of lines.

    Raises
    ------
    ContentError
        If it has another encoding.
    """
    by_mark = (name for mark, name in _BYTE_ORDER_MARKS.items() if data.startswith(mark))
    encoding = next(by_mark, None) or reading.encoding or "utf-8"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        name = encoding.upper().removesuffix("-SIG")
        remedy = f"{reading.remedy('encoding', 'latin-1')} reads a file of Western Europe"
        raise ContentError(
            f"must be {name}, got byte 0x{data[error.start]:02x} in line {line}; {remedy}"
        ) from error
    if "\0" in text:
        raise ContentError(
            f"must be a text file, got bytes of value 0; {reading.remedy('encoding', 'utf-16')} "
            f"may read it"
        )
    return text.replace("\r\n", "\n").replace("\r", "\n")


def split_lines(text: str) -> tuple[list[int], list[str]]:
    """Return the number of each line, from 1, and the line with its quoted fields emptied.

    Lines at the end that are empty are left out.
    """
    if '"' in text:
        text = _QUOTED.sub(
            lambda found: found[1] + '"' + _INNER_LINE * found[0].count("\n", len(found[1])), text
        )
    lines = text.rstrip("\n ").split("\n")
    numbers = []
    number = 1
    for line in lines:
        numbers.append(number)
        number += 1 + line.count(_INNER_LINE)
    return numbers, lines


def find_separator(lines: Sequence[str], decimal: str) -> str | None:
    """Return the character that divides most lines into one number of fields.

    None if none divides half of them.
    """
    sample = [line for line in lines[:_SAMPLE_LINES] if line.strip()]
    shares = {}
    for separator in SEPARATORS:
        counts = Counter(line.count(separator) for line in sample)
        del counts[0]
        shares[separator] = max(counts.values(), default=0) / len(sample)
    if (
        decimal == ","
        and max(share for separator, share in shares.items() if separator != ",") >= 0.5
    ):
        shares[","] = 0
    best = max(SEPARATORS, key=shares.__getitem__)
    return best if shares[best] >= 0.5 else None
