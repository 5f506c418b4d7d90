"""Form of a table, and the meaning of its columns: numbers, booleans, texts, missing cells."""

import codecs
import re
import shlex
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, time
from itertools import takewhile
from typing import Any, TypedDict

import numpy as np

from cfe_faiss.attributes.table import has_long_integers
from cfe_faiss.base.checks import Array, Bools, Doubles, InputNote, check_known, is_missing
from cfe_faiss.base.extras import pd
from cfe_faiss.base.threads import derived

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

    Examples
    --------
    >>> from cfe_faiss.data.read import as_table
    >>> as_table({"income": ["1,5", "?"]}, Reading(decimal=",", na=["?"])).numbers("income")
    array([1.5, nan])
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


# --- text files ---------------------------------------------------------------------------------


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


_MISSING = frozenset(
    {"", "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null", "-nan", "-NaN"}
).union(("#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "1.#IND", "1.#QNAN"))
"""Texts that pandas reads as missing."""
_BOOLEANS = {
    "True": True,
    "TRUE": True,
    "true": True,
    "False": False,
    "FALSE": False,
    "false": False,
}
_INDEX_NAME = re.compile(r"Unnamed: \d+(\.\d+)?")
_PARQUET_INDEX = "__index_level_"
_NUMERIC_SHARE = 0.95
"""Share of numbers among the known cells from which on a column is one of numbers."""
_PEOPLE_SHARE = 0.2
"""Share of rows that repeat an id from which on a column is likely to name people."""
_SHOWN = 5
_MARKS = (",", ".", "'", "’", " ", "\u00a0", "\u202f")
"""Marks of thousands that are recognised."""
_UNIT = re.compile(r"\s*([%$€£¥])\s*")
_PLAIN = r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
_GROUPED = r"[-+]?[1-9][0-9]{0,2}(?=([%s]))(?:\1[0-9]{2,3})*\1[0-9]{3}(?:[%s][0-9]*)?"
_NUMBER = re.compile(rf"{_PLAIN}|[-+]?[0-9]*,[0-9]+|{_GROUPED % (''.join(_MARKS), '.,')}")
_WIDE_FORMS = str.maketrans("０１２３４５６７８９．，＋－\N{MINUS SIGN}", "0123456789.,+--")
"""Full-width forms in numbers and the minus sign of typography, as Python writes them."""


# --- tables -------------------------------------------------------------------------------------


class Problems:
    """Problems of one table, which are reported at once, and notes for a table without problems."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.notes: list[str] = []

    @contextmanager
    def collect(self) -> Iterator[None]:
        """Record a ValueError in place of raising it."""
        try:
            yield
        except ValueError as error:
            self.texts += [] if str(error) in self.texts else [str(error)]

    def check(self) -> None:
        """Raise ValueError if there are problems; else give the notes."""
        if self.texts:
            numbered = [f"({number}) {text}" for number, text in enumerate(self.texts, 1)]
            several = "\n".join([f"{len(numbered)} problems:", *numbered])
            raise ValueError(several if len(numbered) > 1 else self.texts[0])
        while self.notes:
            note(self.notes.pop(0))


@dataclass(frozen=True)
class Table:
    """Table as read or given.

    Attributes
    ----------
    name
        Path of the file, or "frame".
    cells
        Pandas frame of rows 0..n-1 with distinct texts as names of columns: texts as written, of a
        text file, else typed columns.
    reading
        How to read cells.
    is_text
        Whether the cells come from a text file.
    has_header
        Whether the columns have names; the columns of a matrix have none.
    lines
        Line of each row in a text file, from 1; None if it is not known.
    index
        Index of a pandas frame that was given.
    problems
        Problems of the file.
    """

    name: str
    cells: "pd.DataFrame"
    reading: Reading = DEFAULT
    is_text: bool = False
    has_header: bool = True
    lines: Sequence[int] | None = None
    index: Any = None
    problems: Problems = field(default_factory=Problems)

    def __len__(self) -> int:
        return len(self.cells)

    @derived
    def columns(self) -> list[str]:
        """Names of the columns, without index columns that pandas has written."""
        names = [str(name) for name in self.cells]
        leading = takewhile(
            lambda name: _INDEX_NAME.fullmatch(name) and self._numbers_rows(name), names
        )
        index = [*leading, *(name for name in names if name.startswith(_PARQUET_INDEX))]
        if index:
            note(f"{self.name}: the index of a data frame is left out: {', '.join(index)}")
        return [name for name in names if name not in index]

    def _numbers_rows(self, name: str) -> bool:
        cells = self.cells[name]
        return cells.is_unique or bool((pd.to_numeric(cells, errors="coerce") % 1 == 0).all())

    def place(self, row: int) -> str:
        """Return the place of a row in the file."""
        return f"row {row + 1}" if self.lines is None else f"line {self.lines[row]}"

    def check(self, wrong: Any, text: Callable[[int], str]) -> None:
        """Raise ValueError with place and text of the first wrong row, if there is one."""
        rows = np.flatnonzero(wrong)
        if len(rows):
            raise ValueError(f"{self.name}, {self.place(int(rows[0]))}: {text(int(rows[0]))}")

    def known(self, argument: str, name: Any) -> str:
        """Return the name of a column; ValueError if there is none of this name."""
        check_known(
            f"{self.reading.shown(argument)} must name a column of {self.name}",
            str(name),
            self.cells.columns,
        )
        return str(name)

    def keys(self, name: str) -> list[str]:
        """Return the ids or join keys in a column, "" for a missing one."""
        return [_text(name, value) for value in self.cells[self.known("a column", name)].tolist()]

    def check_ids(self, name: str) -> list[str]:
        """Return the ids in a column, "" for a missing one; ValueError if an id is there twice."""
        texts = self.keys(self.known("id", name))
        first: dict[str, int] = {}
        firsts = np.array([first.setdefault(text, row) for row, text in enumerate(texts)])
        again = (firsts != np.arange(len(texts))) & (np.array(texts, object) != "")
        option_text = self.reading.shown("id")
        remedy = (
            f"{self.reading.remedy('ignore', name)} leaves it out, or {option_text} names another "
            "column"
        )
        if again.sum() >= _PEOPLE_SHARE * len(texts):
            options = self.reading.remedy("without", name), self.reading.remedy("person", name)
            remedy += (
                f"; if it names people with several rows, {' and '.join(options)} of an audit "
                "count people"
            )
        self.check(
            again,
            lambda row: (
                f"{name} {texts[row]!r} again, as in {self.place(firsts[row])}, but {option_text} "
                f"must hold each id once ({again.sum():,} rows repeat one): {remedy}"
            ),
        )
        return texts

    def ids(self, name: str) -> Any:
        """Return the ids in a column by :meth:`check_ids`: of a text file as written.

        ValueError if an id is missing.
        """
        keys = self.check_ids(name)
        self.check(
            [not key for key in keys],
            lambda row: (
                f"{name} must hold an id for every row, got none: write one, or leave it out"
            ),
        )
        return parse_ids(keys) if self.is_text else self.cells[name]

    def texts(self, name: str) -> list[str]:
        """Return the texts of a column, "" where missing; whole numbers without a decimal point."""
        keys = self.keys(name)
        if name in self.reading.keep_text:
            return keys
        missing = frozenset(self.reading.na) | (_MISSING if self.is_text else {""})
        return ["" if text in missing else text for text in keys]

    def numbers(self, name: str) -> Doubles | None:
        """Return the numbers of a column, (n,), NaN where missing; None for another column.

        See :meth:`values`.
        """
        values = self.values(name)
        return (
            values.to_numpy(np.float64, na_value=np.nan)
            if _is_numeric(values) and values.notna().any()
            else None
        )

    def values(self, name: str, *, strict: bool = True) -> "pd.Series[Any]":
        """Return a column as numbers, booleans or texts, NaN or None where missing.

        Raises
        ------
        ValueError
            If ``strict``, and nearly all cells are numbers, but not all; or marks in numbers have
            several meanings.
        """
        cells = self.cells[self.known("a column", name)]
        are_codes = name in (*self.reading.categorical, *self.reading.keep_text)
        is_plain = _is_numeric(cells) and not (are_codes or self.reading.na)
        if pd.api.types.is_bool_dtype(cells) or is_plain:
            return cells
        texts = pd.Series(self.texts(name), dtype=object)
        if isinstance(cells.dtype, pd.CategoricalDtype):
            return cells.where(texts != "")
        filled_texts = texts[texts != ""]
        if (
            self.is_text
            and len(filled_texts)
            and filled_texts.isin(list(_BOOLEANS)).all()
            and not are_codes
        ):
            return texts.map(_BOOLEANS).astype(bool if len(filled_texts) == len(texts) else object)
        numbers = (
            None
            if are_codes or not len(filled_texts)
            else self._as_numbers(name, filled_texts, strict)
        )
        if numbers is None:
            return texts.where(texts != "", None)
        if has_long_integers(numbers):
            numbers = numbers.convert_dtypes()  # missing ones do not make floats of them
        return numbers.reindex(texts.index)

    def classes(self, name: str) -> "pd.Series[Any]":
        """Return a column of classes as given, or of a text file as in :meth:`values`.

        NaN or None where missing.
        """
        if self.is_text:
            return self.values(name, strict=False)
        is_known: Bools = np.array([text != "" for text in self.texts(name)])
        return self.cells[name].where(is_known, None)

    def frame(self, names: Iterable[str], classes: Iterable[str] = ()) -> "pd.DataFrame":
        """Return columns as in :meth:`values`, or :meth:`classes`.

        Errors become problems of the table.
        """
        columns: dict[str, pd.Series[Any]] = {}
        errors: dict[str, list[_CellsError]] = {}
        for name in names:
            with self.problems.collect():
                try:
                    columns[name] = self.classes(name) if name in classes else self.values(name)
                except _CellsError as error:
                    errors.setdefault(error.marks, []).append(error)
        for group in errors.values():
            self.problems.texts.append(str(_CellsError.of(group)))
        self._note_missing(columns, classes)
        return pd.DataFrame(columns, index=self.cells.index)

    def _note_missing(self, columns: "dict[str, pd.Series[Any]]", classes: Iterable[str]) -> None:
        """Note the missing cells of each column; of classes only texts that are read as missing."""
        notes = []
        read_as_missing = []
        for name, column in columns.items():
            texts = [
                _text(name, value) for value in self.cells[name][column.isna().to_numpy()].tolist()
            ]
            words = Counter(filter(None, texts)).most_common(_SHOWN)
            parts = [f"{text!r} {number:,}" for text, number in words]
            others = 0 if name in classes else len(texts) - sum(number for _, number in words)
            if others:
                parts.append(f"others {others:,}" if words else f"{others:,}")
            if (
                words
                and column.dtype == object
                and not {text for text, _ in words} & set(self.reading.na)
            ):
                read_as_missing.append(name)
            notes += [f"{name} {', '.join(parts)}"] if parts else []
        remedy = ""
        if read_as_missing:
            keep_text = self.reading.remedy("keep_text", *read_as_missing)
            remedy = f"; {keep_text} reads texts as they stand"
        if notes:
            effect = " (a missing attribute counts as one standard deviation from a known one)"
            self.problems.notes.append(
                f"missing values{'' if self.reading.is_given else effect}: "
                f"{', '.join(notes)} of {len(self):,} rows of {self.name}{remedy}"
            )

    def _as_numbers(
        self, name: str, texts: "pd.Series[Any]", strict: bool
    ) -> "pd.Series[Any] | None":
        """Return the numbers in texts; None if they are none."""
        numbers = pd.to_numeric(texts, errors="coerce")
        point = self.reading.point
        if point == "." and numbers.notna().all():
            return numbers
        bare = texts.str.translate(_WIDE_FORMS).str.replace(_UNIT, "", regex=True)
        are_numbers = numbers.notna() | bare.str.fullmatch(_NUMBER)
        if are_numbers.mean() < _NUMERIC_SHARE:
            return None
        units = texts.str.extract(_UNIT)[0]
        parsed = _parse(bare, point, self.reading.thousands)
        kinds = set(units[are_numbers].dropna())
        one_unit = len(kinds) < 2 and not (kinds == {"%"} and units[are_numbers].isna().any())
        if one_unit and parsed.notna().all():
            if kinds:
                note(f"{self.name}: column {name!r} is read without its sign {kinds.pop()}")
            return parsed
        if not strict:
            return None
        wrong = texts[parsed.isna() if one_unit else units.isin(kinds)].drop_duplicates()
        first_wrong = wrong.head(_SHOWN)
        cells = ", ".join(
            f"{text!r} ({self.place(row)})"
            for row, text in zip(first_wrong.index.tolist(), first_wrong, strict=True)
        )
        others = f" and {len(wrong) - _SHOWN:,} other texts" if len(wrong) > _SHOWN else ""
        marks = self._marks(bare[are_numbers]) if one_unit else "them in one unit"
        words = texts[~are_numbers].unique()[:_SHOWN].tolist()
        raise _CellsError(self, {name: cells + others}, marks, words)

    def _marks(self, numbers: "pd.Series[Any]") -> str:
        """Return the remedy that names the marks in numbers, "" if the current or none fit."""
        if _parse(numbers, self.reading.point, self.reading.thousands).notna().all():
            return ""
        points = sorted(DECIMALS, key=lambda point: point != self.reading.point)
        marks = [(point, mark) for point in points for mark in (None, *_MARKS) if point != mark]
        for point, mark in marks:
            if _parse(numbers, point, mark).notna().all():
                given = (
                    [] if point == self.reading.point else [self.reading.remedy("decimal", point)]
                )
                given += [] if mark is None else [self.reading.remedy("thousands", mark)]
                meaning = "thousands" if mark else "decimals"
                return f"{' '.join(given)} if that is the mark of {meaning}"
        return ""


class _CellsError(ValueError):
    """Cells of columns of numbers that are no numbers."""

    def __init__(self, table: Table, cells: dict[str, str], marks: str, words: list[str]) -> None:
        """Keep cells, remedies that name marks in numbers, and texts without a number by column."""
        self.table = table
        self.cells = cells
        self.marks = marks
        self.words = words
        reading = table.reading
        columns = " and ".join(
            f"column {name!r} holds numbers, but {text}" for name, text in cells.items()
        )
        remedies = [
            *([marks] if marks else []),
            *([f"{reading.remedy('na', *words)} if they are missing"] if words else []),
            f"{reading.remedy('categorical', *cells)} if all are codes of categories",
        ]
        super().__init__(
            f"{table.name}: {columns} cannot be read as one: give {', or '.join(remedies)}"
        )

    @classmethod
    def of(cls, errors: "Sequence[_CellsError]") -> "_CellsError":
        """Return the error of several columns that have the same remedy."""
        cells = {name: text for error in errors for name, text in error.cells.items()}
        words = dict.fromkeys(word for error in errors for word in error.words)
        return cls(errors[0].table, cells, errors[0].marks, list(words))


def parse_ids(texts: Sequence[str | None]) -> Array:
    """Return integers if every text is the usual form of one, so that ids look the same.

    Else texts as objects.
    """
    try:
        numbers = np.array(texts, np.int64)
    except (TypeError, ValueError, OverflowError):
        return np.array(texts, object)
    return numbers if numbers.astype(str).tolist() == texts else np.array(texts, object)


def note(text: str) -> None:
    """Tell the user a fact about the input."""
    warnings.warn(text, InputNote, stacklevel=5)


def _parse(texts: "pd.Series[Any]", point: str, mark: str | None) -> "pd.Series[Any]":
    """Return the numbers that texts are with these marks.

    NaN for others, and for those with another likely meaning.
    """
    is_plain = texts.str.fullmatch(_PLAIN.replace(r"\.", re.escape(point)))
    plain = texts.str.replace(point, ".", regex=False)
    if point == ",":
        grouped = {
            other: texts.str.fullmatch(_GROUPED % (re.escape(other), "#")) for other in DECIMALS
        }
        has_comma = texts.str.contains(",", regex=False)
        if grouped[","][has_comma].all():
            is_plain &= ~has_comma
        is_plain |= texts.str.fullmatch(_PLAIN) & ~grouped["."] & (mark != ".")
    if mark is not None:
        is_grouped = texts.str.fullmatch(_GROUPED % (re.escape(mark), re.escape(point)))
        plain = (
            texts.where(is_plain | is_grouped, "")
            .str.replace(mark, "", regex=False)
            .str.replace(point, ".", regex=False)
        )
        is_plain |= is_grouped
    return pd.to_numeric(plain.where(is_plain, None))


def _is_numeric(values: "pd.Series[Any]") -> bool:
    types = pd.api.types
    return types.is_numeric_dtype(values) and not (
        types.is_bool_dtype(values) or types.is_complex_dtype(values)
    )


def _text(name: str, value: Any) -> str:
    """Return a cell as text: whole numbers without a point, midnight as a date."""
    if isinstance(value, str):
        return value.strip()
    if isinstance(
        value, list | tuple | dict | set | np.ndarray | bytes | complex | np.complexfloating
    ):
        raise ValueError(
            f"column {name!r} must hold numbers, texts, booleans or dates, got "
            f"{type(value).__name__}"
        )
    if is_missing(value):
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, datetime) and value.time() == time():
        return value.date().isoformat()
    return str(value).strip()
