"""Tables as users keep them: CSV and Parquet, with the line of each row for what has to be said about it."""

import codecs
import csv
import gzip
import io
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime, time
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.checks import did_you_mean
from cfe_faiss.base.extras import extra

Column: TypeAlias = list[str] | NDArray[Any]
"""Texts, "" where missing; or, from Parquet, numbers: (n,) int64 or float64, NaN where missing."""

SUFFIXES = (".csv", ".csv.gz", ".tsv", ".parquet", ".xlsx", ".txt")

_MISSING_NUMBERS = frozenset(("", "NA", "N/A", "NaN", "nan", "NULL", "null"))
_DELIMITERS = (",", ";", "\t")


@dataclass(frozen=True)
class TextFormat:
    """Encoding of text files, and decimal mark of their numbers, "." or ","."""

    encoding: str = "utf-8-sig"
    decimal: str = "."


_PLAIN = TextFormat()
_FORMAT: ContextVar[TextFormat] = ContextVar("text_format", default=_PLAIN)


@contextmanager
def text_format(encoding: str | None, decimal: str | None) -> Iterator[None]:
    """Read text files inside with this encoding and decimal mark; None: UTF-8 and "."."""
    try:
        name = "utf-8-sig" if encoding is None or codecs.lookup(encoding).name == "utf-8" else encoding
    except LookupError:
        raise ValueError(f"encoding must be one that Python knows, such as latin-1, got {encoding!r}") from None
    token = _FORMAT.set(TextFormat(name, decimal or "."))
    try:
        yield
    finally:
        _FORMAT.reset(token)


@dataclass(frozen=True)
class Source:
    """A file, and which of its columns are meant; none: those that are left when the file is known."""

    path: Path
    columns: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "Source":
        """Return what ``FILE``, ``FILE:COLUMN``, ``FILE:COLUMN,COLUMN`` mean; an existing file is taken by its name."""
        name, colon, columns = text.rpartition(":")
        if not colon or Path(text).exists():
            return cls(Path(text))
        return cls(Path(name), tuple(columns.split(",")))


@dataclass(frozen=True)
class Table:
    """Columns of one length.

    Attributes
    ----------
    path
        The file.
    columns
        By name; "1", "2", ... where the file has no header.
    has_header
        Whether the names are the file's own.
    lines
        Line of each row in a text file, from 1, (n,); None for Parquet.
    """

    path: Path
    columns: dict[str, Column]
    has_header: bool
    lines: NDArray[np.int64] | None

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def place(self, row: int) -> str:
        """Return where a row stands in the file."""
        return f"row {row + 1}" if self.lines is None else f"line {self.lines[row]}"

    def column(self, name: str) -> Column:
        """Return a column.

        Raises
        ------
        ValueError
            If there is no such column.
        """
        if name not in self.columns:
            some, hint = ", ".join(list(self.columns)[:20]), did_you_mean(name, self.columns)
            raise ValueError(f"{self.path} has no column {name!r}; it has {some}{hint}")
        return self.columns[name]


def kind(path: Path) -> str:
    """Return the suffix of a table, in lower case: one of ``SUFFIXES``, or another."""
    suffix = path.suffix.lower()
    return path.with_suffix("").suffix.lower() + suffix if suffix == ".gz" else suffix


def is_table(path: Path) -> bool:
    """Return whether a file holds attributes below a header, and not a matrix of numbers; reads its first line only.

    Raises
    ------
    OSError
        If the file cannot be read.
    """
    suffix = kind(path)
    if suffix not in (".csv", ".csv.gz", ".tsv"):
        return suffix in (".parquet", ".xlsx")
    with gzip.open(path) if suffix.endswith(".gz") else path.open("rb") as file:
        line = file.readline().decode(_FORMAT.get().encoding, errors="replace")
    return not all(_is_number(field) for field in line.split(_delimiter(line)))


def read_table(path: Path, *, empty: bool = False) -> Table:
    """Read a table.

    ``.csv``, ``.csv.gz`` and ``.tsv``: UTF-8 with or without a byte order mark (:func:`text_format` says otherwise),
    fields separated by commas, semicolons or tabs (whichever the first line has most of), quoted as RFC 4180 says; the
    first line is the header unless it holds numbers only. ``.txt``: fields separated by white space, no header; lines
    that begin with "#" are left out. ``.parquet``: columns of numbers, texts or booleans. ``.xlsx``: the first sheet,
    whose first row is the header. White space around a field does not count. Below the header there may be no row
    where ``empty`` says so.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it is of another kind or encoding, holds no row, a line has more or fewer fields than the first, a line
        before the last is empty, or two columns have one name or one has none.
    ImportError
        If PyArrow is missing, for Parquet; or openpyxl, for Excel.
    """
    suffix = kind(path)
    if suffix not in SUFFIXES:
        raise ValueError(f"{path} must be a file of the kind {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}")
    if suffix == ".parquet":
        return _read_parquet(path, empty=empty)
    if suffix == ".xlsx":
        return _read_excel(path, empty=empty)
    rows, lines = _fields(path, _text(path, suffix), whitespace=suffix == ".txt")
    if not rows:
        raise ValueError(f"{path} must hold a table, got an empty file")
    has_header = suffix != ".txt" and not all(_is_number(field) for field in rows[0])
    names = rows[0] if has_header else [str(1 + column) for column in range(len(rows[0]))]
    body, lines = (rows[1:], lines[1:]) if has_header else (rows, lines)
    _check_names(path, names)
    if not body and not empty:
        raise ValueError(f"{path} must hold a row below its header, got none")
    fields = zip(*body, strict=True) if body else ((),) * len(names)
    columns: dict[str, Column] = {name: _with_points(list(texts)) for name, texts in zip(names, fields, strict=True)}
    return Table(path, columns, has_header, np.array(lines, np.int64))


def _with_points(texts: list[str]) -> list[str]:
    """Return a column of numbers with decimal points, where the format has commas; any other column as it is."""
    if _FORMAT.get().decimal == ".":
        return texts
    points = [text.replace(",", ".") for text in texts]
    return texts if as_numbers(points) is None else points


def _text(path: Path, suffix: str) -> str:
    data = path.read_bytes()
    if suffix.endswith(".gz"):
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError) as error:
            raise ValueError(f"{path} must be compressed by gzip: {error}") from error
    encoding = _FORMAT.get().encoding
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        name = "UTF-8" if encoding == "utf-8-sig" else encoding
        raise ValueError(
            f"{path} must be {name}, got byte 0x{data[error.start]:02x} in line {line} (--encoding names another)"
        ) from error


def _fields(path: Path, text: str, *, whitespace: bool) -> tuple[list[list[str]], list[int]]:
    """Return the fields of each line that is not empty, and the number of the line."""
    rows: list[list[str]] = []
    lines: list[int] = []
    gap = 0
    if whitespace:
        reader: Any = (None if line.startswith("#") else line.split() for line in text.splitlines())
    else:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter(text), strict=True)
    end = 0
    try:
        for fields in reader:
            start, end = end + 1, end + 1 if whitespace else reader.line_num
            if fields is None:
                continue
            if not fields:
                gap = gap or start
                continue
            if gap:
                raise ValueError(f"{path}, line {gap}: the line is empty")
            if rows and len(fields) != len(rows[0]):
                raise ValueError(f"{path}, line {start}: {len(fields)} fields, where line 1 has {len(rows[0])}")
            rows.append([field.strip() for field in fields])
            lines.append(start)
    except csv.Error as error:
        raise ValueError(f"{path}, line {end + 1}: {error}") from error
    return rows, lines


def _delimiter(text: str) -> str:
    header = text.partition("\n")[0].rstrip("\r")
    counts = [len(next(csv.reader([header], delimiter=delimiter), [])) for delimiter in _DELIMITERS]
    return _DELIMITERS[counts.index(max(counts))]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _check_names(path: Path, names: Sequence[str]) -> None:
    seen: set[str] = set()
    for place, name in enumerate(names):
        if not name:
            raise ValueError(f"{path}: column {place + 1} has no name (is it an index that was written along?)")
        if name in seen:
            raise ValueError(f"{path}: two columns have the name {name!r}")
        seen.add(name)


def _read_parquet(path: Path, *, empty: bool) -> Table:
    with extra("audit"):
        import pyarrow as pa
        import pyarrow.parquet as pq

    with pa.OSFile(str(path)) as file:  # a file object of Python would be read by threads of Arrow
        try:
            table: Any = pq.ParquetFile(file).read()
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"{path} must be a Parquet file: {error}") from error
    if not table.num_columns or not (table.num_rows or empty):
        raise ValueError(f"{path} must hold a table, got {table.num_rows} rows of {table.num_columns} columns")
    _check_names(path, table.column_names)
    columns = {name: _of_arrow(path, name, table.column(name)) for name in table.column_names}
    return Table(path, columns, True, None)


def _read_excel(path: Path, *, empty: bool) -> Table:
    with extra("audit"):
        import openpyxl  # noqa: F401 - pandas reads with it
        import pandas as pd

    try:
        sheet = pd.read_excel(path, header=None, dtype=object).dropna(how="all")
    except (zipfile.BadZipFile, KeyError, ValueError) as error:
        raise ValueError(f"{path} must be an Excel file: {error}") from error
    if len(sheet) < 1 + (not empty):
        raise ValueError(f"{path} must hold a header and a row below it, got {len(sheet)} rows")
    fields = [[_cell(value) for value in sheet.iloc[:, column].tolist()] for column in range(sheet.shape[1])]
    names = [texts[0] for texts in fields]
    _check_names(path, names)
    return Table(path, {name: texts[1:] for name, texts in zip(names, fields, strict=True)}, True, None)


def _cell(value: Any) -> str:
    """Return a cell of Excel as text: whole numbers without a point, midnight as a date."""
    if value is None or value != value:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, datetime) and value.time() == time():
        return value.date().isoformat()
    return str(value).strip()


def _of_arrow(path: Path, name: str, column: Any) -> Column:
    import pyarrow as pa

    of = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_integer(of) and not column.null_count:
        whole: NDArray[Any] = column.cast(of).to_numpy()
        return whole
    if pa.types.is_integer(of) or pa.types.is_floating(of) or pa.types.is_decimal(of):
        numbers: NDArray[Any] = column.cast(pa.float64()).to_numpy()
        return numbers
    if pa.types.is_boolean(of) or pa.types.is_string(of) or pa.types.is_large_string(of) or pa.types.is_string_view(of):
        texts: list[str] = [
            "" if value is None else str(value).strip() for value in column.cast(pa.string()).to_pylist()
        ]
        return texts
    raise ValueError(f"{path}: column {name!r} must hold numbers, texts or booleans, got {column.type}")


def as_numbers(column: Column) -> NDArray[np.float64] | None:
    """Return the numbers that a column holds, (n,), NaN where missing; None where it holds texts.

    In a column of numbers these stand for a missing one: an empty field, NA, N/A, NaN, nan, NULL and null. A column
    without any number holds texts.
    """
    if isinstance(column, np.ndarray):
        return column.astype(np.float64)
    try:
        numbers = [np.nan if text in _MISSING_NUMBERS else float(text) for text in column]
    except ValueError:
        return None
    array = np.array(numbers, np.float64)
    # Python reads "1_000", which no other program writes for a number.
    return None if np.isnan(array).all() or any("_" in text for text in column) else array


def as_texts(column: Column) -> list[str]:
    """Return the texts of a column, "" where missing; whole numbers without a decimal point."""
    if isinstance(column, list):
        return column
    if column.dtype.kind == "f":
        return ["" if np.isnan(v) else str(int(v)) if v.is_integer() else repr(v) for v in column.tolist()]
    return [str(value) for value in column.tolist()]
