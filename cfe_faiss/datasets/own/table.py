"""Tables of users: CSV, Excel, Parquet and NumPy files, with the place of each row for errors, and ids of nodes."""

import codecs
import csv
import gzip
import io
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import datetime, time
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.checks import UNKNOWN, check_known, did_you_mean, is_missing
from cfe_faiss.base.extras import extra
from cfe_faiss.base.tables import are_numbers

Column: TypeAlias = list[str] | NDArray[Any]
"""Texts, "" where missing; or, from Parquet and NumPy, numbers: (n,) int64 or float64, NaN where missing."""

SUFFIXES = (".csv", ".csv.gz", ".tsv", ".parquet", ".xlsx", ".txt")

_MISSING_NUMBERS = frozenset(("", "NA", "N/A", "NaN", "nan", "NULL", "null"))
_DELIMITERS = (",", ";", "\t")
_THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}(\.\d{3})+(,\d*)?")
_FORMAT: ContextVar[tuple[str, str]] = ContextVar("text_format", default=("utf-8-sig", "."))
"""Encoding and decimal mark of text files."""


@contextmanager
def text_format(encoding: str | None, decimal: str | None) -> Iterator[None]:
    """Read text files inside with this encoding and decimal mark; None: UTF-8 and "."."""
    try:
        name = "utf-8-sig" if encoding is None or codecs.lookup(encoding).name == "utf-8" else encoding
    except LookupError:
        raise ValueError(f"encoding must be one that Python knows, such as latin-1, got {encoding!r}") from None
    token = _FORMAT.set((name, decimal or "."))
    try:
        yield
    finally:
        _FORMAT.reset(token)


@dataclass(frozen=True)
class Table:
    """Columns of one length.

    Attributes
    ----------
    path
        The file.
    columns
        By name; "1", "2", ... without a header.
    has_header
        Whether the file has column names.
    lines
        Line of each row in a text file, from 1, (n,); None for other files.
    """

    path: Path
    columns: dict[str, Column]
    has_header: bool
    lines: NDArray[np.int64] | None

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def place(self, row: int) -> str:
        """Return the place of a row in the file."""
        return f"row {row + 1}" if self.lines is None else f"line {self.lines[row]}"

    def check(self, wrong: Any, text: Callable[[int], str]) -> None:
        """Raise ValueError with place and text of the first wrong row, if there is one."""
        rows = np.flatnonzero(wrong)
        if len(rows):
            raise ValueError(f"{self.path}, {self.place(int(rows[0]))}: {text(int(rows[0]))}")

    def column(self, name: str) -> Column:
        """Return a column.

        Raises
        ------
        ValueError
            If there is no such column.
        """
        check_known(f"a column must be one of {self.path}", name, self.columns)
        return self.columns[name]


@dataclass(frozen=True)
class Source:
    """A file and the names of its columns to read, without names all columns but the ids; and maybe its own name."""

    path: Path
    columns: tuple[str, ...] = ()
    name: str = ""

    @classmethod
    def parse(cls, text: str) -> "Source":
        """Return the source of ``FILE``, ``FILE:COLUMN`` or ``FILE:A,B``; an existing file of this name comes first."""
        name, colon, columns = text.rpartition(":")
        if not colon or Path(text).exists():
            return cls(Path(text))
        return cls(Path(name), tuple(columns.split(",")))

    @classmethod
    def parse_named(cls, text: str) -> "Source":
        """Return the source of ``NAME=FILE`` or ``FILE``, each as in :meth:`parse`."""
        name, sign, rest = text.partition("=")
        return replace(cls.parse(rest), name=name) if sign and not Path(text).exists() else cls.parse(text)

    def read(self, id: str | None = None, *, empty: bool = False) -> tuple[Table, tuple[str, ...]]:  # noqa: A002
        """Return the table, see :func:`read_table`, and the names of its columns, without that of the ids."""
        if self.path.suffix == ".npy" and self.columns:
            raise ValueError(f"{self.path} has no columns with names, got {', '.join(self.columns)}")
        table = read_table(self.path, empty=empty)
        names = tuple(name for name in table.columns if not table.has_header or name != id)
        return table, self.columns or names


@dataclass(frozen=True)
class Ids:
    """Names of n nodes; node v has the name ``names[v]``.

    Attributes
    ----------
    names
        (n,), distinct: int64 if all are written as integers, else texts (object).
    column
        The column of the names, in every file; None if nodes go by their number.
    """

    names: NDArray[Any]
    column: str | None = None
    _numbers: dict[str, int] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.names)

    @classmethod
    def of_rows(cls, n: int) -> "Ids":
        """Return the names of nodes that go by their number."""
        return cls(np.arange(n))

    @classmethod
    def of_column(cls, table: Table, name: str | None) -> "Ids":
        """Return the names in a column of a table; None: the row numbers.

        Raises
        ------
        ValueError
            If there is no such column, a row has no name, or two rows have the same name.
        """
        if name is None:
            return cls.of_rows(len(table))
        texts = as_texts(table.column(name))
        numbers: dict[str, int] = {}
        first = np.array([numbers.setdefault(text, row) for row, text in enumerate(texts)])
        table.check([not text for text in texts], lambda row: f"no {name}")
        again = first != np.arange(len(texts))
        table.check(again, lambda row: f"{name} {texts[row]!r} again, as in {table.place(first[row])}")
        return cls(_as_integers(texts), name, numbers)

    def find(self, texts: Iterable[str]) -> NDArray[np.int64]:
        """Return the number of each name, (m,); -1 for unknown ones."""
        if self.column is None:
            return np.array([_row_number(text, len(self.names)) for text in texts], np.int64)
        return np.array([self._numbers.get(text, UNKNOWN) for text in texts], np.int64)

    def known(self, argument: str, texts: Sequence[str]) -> NDArray[np.int64]:
        """Return the number of each name, (m,); ValueError names an unknown one, and ``argument`` its origin."""
        found = self.find(texts)
        if (found < 0).any():
            wrong = texts[int(np.argmax(found < 0))]
            hint = did_you_mean(wrong, map(str, self.names.tolist()))
            raise ValueError(f"{argument} must be the id or the number of a node, got {wrong!r}{hint}")
        return found

    def rows(self, table: Table) -> NDArray[np.int64]:
        """Return the node of each row of a table, (rows,), each at most once.

        Nodes are found by the column of the names. If nodes go by their number, or the file has no header, row i is
        node i.

        Raises
        ------
        ValueError
            If a name is unknown, missing or occurs twice, or there is no such column, or another number of rows.
        """
        if self.column is None or not table.has_header:
            if len(table) != len(self):
                raise ValueError(f"{table.path} must hold a row for each of {len(self):,} nodes, got {len(table):,}")
            return np.arange(len(self))
        found = self.nodes_of(table, self.column)
        _, first, places = np.unique(found, return_index=True, return_inverse=True)
        table.check(
            first[places] != np.arange(len(found)),
            lambda row: (
                f"{self.column} {str(self.names[found[row]])!r} again, as in {table.place(int(first[places][row]))}"
            ),
        )
        return found

    def nodes_of(self, table: Table, column: str) -> NDArray[np.int64]:
        """Return the node of each field of a column, (rows,).

        Raises
        ------
        ValueError
            If there is no such column, or a name is missing or unknown.
        """
        texts = as_texts(table.column(column))
        found = self.find(texts)
        expected = f"in 0..{len(self) - 1}" if self.column is None else f"the {self.column} of a node"
        table.check(
            found < 0,
            lambda row: f"{column} must be {expected}, got {repr(texts[row]) if texts[row] else 'none'}",
        )
        return found

    def all_rows(self, table: Table) -> NDArray[np.int64]:
        """Return :meth:`rows`; ValueError unless each node has its row."""
        rows = self.rows(table)
        absent = np.setdiff1d(np.arange(len(self)), rows)
        if len(absent):
            raise ValueError(
                f"{table.path} must hold every node, got no row for {len(absent):,} of {len(self):,}, "
                f"such as {self.column} {str(self.names[absent[0]])!r}"
            )
        return rows

    def align(self, table: Table, column: Column) -> list[str]:
        """Return the texts of a column by node, "" for nodes without a row."""
        texts = np.full(len(self), "", object)
        texts[self.rows(table)] = as_texts(column)
        return list(texts)


def _row_number(text: str, n: int) -> int:
    """Return a number in 0..n-1 written as an integer, or like one ("3.0"); -1 for another text."""
    whole, _, rest = text.partition(".")
    number = int(whole) if whole.isdecimal() and len(whole) < 19 and not rest.strip("0") else UNKNOWN
    return number if number < n else UNKNOWN


def _as_integers(texts: list[str]) -> NDArray[Any]:
    """Return integers if every text is the usual form of one, so that ids look the same; else texts."""
    try:
        numbers = np.array([int(text) for text in texts], np.int64)
    except (ValueError, OverflowError):
        return np.array(texts, object)
    same = all(str(number) == text for number, text in zip(numbers.tolist(), texts, strict=True))
    return numbers if same else np.array(texts, object)


def kind(path: Path) -> str:
    """Return the suffix of a table in lower case: one of ``SUFFIXES``, or another."""
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
    encoding = _FORMAT.get()[0]
    with (gzip.open if suffix.endswith(".gz") else open)(path, "rt", encoding=encoding, errors="replace") as file:
        line = file.readline()
    return not _holds_numbers(line.split(_delimiter(line)))


def read_table(path: Path, *, empty: bool = False) -> Table:
    """Read a table.

    ``.csv``, ``.csv.gz`` and ``.tsv``: UTF-8 with or without a byte order mark (:func:`text_format` says otherwise),
    fields separated by commas, semicolons or tabs (the most frequent one in the first line), quoted as in RFC 4180; the
    first line is the header unless it holds numbers only. ``.txt``: fields separated by white space, no header; lines
    that begin with "#" are comments. ``.parquet``: columns of numbers, texts, booleans, dates or times. ``.xlsx``: the
    first sheet, whose first row is the header. ``.npy``: (n,) or (n, c) numbers or texts, no header. White space around
    a field is removed. Dates become texts as in ISO 8601. ``empty`` allows a header without rows.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it is of another kind or encoding, holds no row, a line has more or fewer fields than the first, a line
        before the last is empty, or a column has no name or the name of another.
    ImportError
        If PyArrow is missing, for Parquet; or openpyxl, for Excel.
    """
    suffix = kind(path)
    if suffix == ".npy":
        return _read_array(path)
    if suffix not in SUFFIXES:
        raise ValueError(f"{path} must be a file of the kind {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}")
    if suffix == ".parquet":
        return _read_parquet(path, empty=empty)
    if suffix == ".xlsx":
        return _read_excel(path, empty=empty)
    rows, lines = _fields(path, _text(path, suffix), whitespace=suffix == ".txt")
    if not rows:
        raise ValueError(f"{path} must hold a table, got an empty file")
    has_header = suffix != ".txt" and not _holds_numbers(rows[0])
    names = rows[0] if has_header else [str(1 + column) for column in range(len(rows[0]))]
    body, lines = (rows[1:], lines[1:]) if has_header else (rows, lines)
    _check_names(path, names)
    if not body and not empty:
        raise ValueError(f"{path} must hold a row below its header, got none")
    fields = zip(*body, strict=True) if body else ((),) * len(names)
    table = Table(path, dict(zip(names, map(list, fields), strict=True)), has_header, np.array(lines, np.int64))
    return table if _FORMAT.get()[1] == "." else _with_points(table)


def _holds_numbers(fields: Iterable[str]) -> bool:
    mark = _FORMAT.get()[1]
    return are_numbers([field.replace(mark, ".") for field in fields])


def _with_points(table: Table) -> Table:
    """Return a table with decimal points instead of commas in columns of numbers; ValueError for "1.500"."""
    columns = dict(table.columns)
    for name, texts in table.columns.items():
        points = [text.replace(",", ".") for text in as_texts(texts)]
        if as_numbers(points) is None:
            continue
        for row, text in enumerate(as_texts(texts)):
            if _THOUSANDS.fullmatch(text):
                raise ValueError(
                    f"{table.path}, {table.place(row)}: {name} must have no mark of thousands, got {text!r}"
                )
        columns[name] = points
    return replace(table, columns=columns)


def _text(path: Path, suffix: str) -> str:
    data = path.read_bytes()
    if suffix.endswith(".gz"):
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError) as error:
            raise ValueError(f"{path} must be compressed by gzip: {error}") from error
    encoding = _FORMAT.get()[0]
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        name = "UTF-8" if encoding == "utf-8-sig" else encoding
        raise ValueError(
            f"{path} must be {name}, got byte 0x{data[error.start]:02x} in line {line} (--encoding names another)"
        ) from error


def _fields(path: Path, text: str, *, whitespace: bool) -> tuple[list[list[str]], list[int]]:
    """Return the fields and the number of each line that is not empty."""
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
            rows.append([text.strip() for text in fields])
            lines.append(start)
    except csv.Error as error:
        raise ValueError(f"{path}, line {end + 1}: {error}") from error
    return rows, lines


def _delimiter(text: str) -> str:
    """Return what separates most fields in the first line; a decimal comma only if nothing else separates any."""
    header = re.split(r"[\r\n]", text, maxsplit=1)[0]
    counts = {delimiter: len(next(csv.reader([header], delimiter=delimiter), [])) for delimiter in _DELIMITERS}
    if _FORMAT.get()[1] == "," and max(counts[";"], counts["\t"]) > 1:
        counts[","] = 0
    return max(counts, key=counts.__getitem__)


def _check_names(path: Path, names: Sequence[str]) -> None:
    if "" in names:
        raise ValueError(f"{path}: column {names.index('') + 1} has no name (is it the index of a data frame?)")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"{path}: two columns have the name {twice[0]!r}")


def _read_array(path: Path) -> Table:
    try:
        array = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path} must be a NumPy array of numbers or texts: {error}") from error
    matrix = array[:, None] if array.ndim == 1 else array
    if matrix.ndim != 2 or not matrix.size:
        raise ValueError(f"{path} must have shape (n,) or (n, C), got {array.shape}")
    if matrix.dtype.kind not in "biufU":
        raise ValueError(f"{path} must be a NumPy array of numbers or texts, got dtype {array.dtype}")
    plain = matrix.astype(np.float64) if matrix.dtype.kind == "f" else matrix
    numeric = plain.dtype.kind in "iuf"
    columns: dict[str, Column] = {str(c): v if numeric else [str(text) for text in v] for c, v in enumerate(plain.T)}
    return Table(path, columns, False, None)


def _read_parquet(path: Path, *, empty: bool) -> Table:
    with extra("audit"):
        import pyarrow as pa
        import pyarrow.parquet as pq

    with pa.OSFile(str(path)) as file:  # Arrow would read a file object of Python in its own threads
        try:
            table: Any = pq.ParquetFile(file).read()
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"{path} must be a Parquet file: {error}") from error
    if not table.num_columns or not (table.num_rows or empty):
        raise ValueError(f"{path} must hold a table, got {table.num_rows} rows of {table.num_columns} columns")
    _check_names(path, table.column_names)
    columns = {name: _of_arrow(path, name, table.column(name)) for name in table.column_names}
    return Table(path, columns, True, None)


def _of_arrow(path: Path, name: str, column: Any) -> Column:
    import pyarrow as pa

    types = pa.types
    of = column.type.value_type if types.is_dictionary(column.type) else column.type
    if types.is_integer(of) or types.is_floating(of) or types.is_decimal(of):
        kind = of if types.is_integer(of) and not column.null_count else "float64"
        numbers: NDArray[Any] = column.cast(kind).to_numpy()
        return numbers
    if types.is_timestamp(of):  # Python has no nanoseconds
        of = pa.timestamp("us", of.tz)
    if types.is_boolean(of) or types.is_string(of) or types.is_large_string(of) or types.is_string_view(of):
        of = pa.string()
    elif not types.is_temporal(of) or types.is_duration(of) or types.is_interval(of):
        raise ValueError(f"{path}: column {name!r} must hold numbers, texts, booleans or dates, got {column.type}")
    return [_cell(value) for value in column.cast(of, safe=False).to_pylist()]


def _read_excel(path: Path, *, empty: bool) -> Table:
    with extra("audit"):
        import openpyxl

    try:
        with closing(openpyxl.load_workbook(path, read_only=True, data_only=True)) as book:
            sheet = [[_cell(value) for value in row] for row in book.worksheets[0].iter_rows(values_only=True)]
    except (zipfile.BadZipFile, KeyError, ValueError) as error:
        raise ValueError(f"{path} must be an Excel file: {error}") from error
    rows = [row for row in sheet if any(row)]
    if len(rows) < 1 + (not empty):
        raise ValueError(f"{path} must hold a header and a row below it, got {len(rows)} rows")
    # Rows end at their last cell; cells that have only a format are empty.
    columns = [column for column in zip_longest(*rows, fillvalue="") if any(column)]
    _check_names(path, [name for name, *_ in columns])
    return Table(path, {name: texts for name, *texts in columns}, True, None)


def _cell(value: Any) -> str:
    """Return a value as text: whole numbers without a point, midnight as a date."""
    if is_missing(value):
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, datetime) and value.time() == time():
        return value.date().isoformat()
    return str(value).strip()


def as_numbers(column: Column) -> NDArray[np.float64] | None:
    """Return the numbers of a column, (n,), NaN where missing; None for a column of texts.

    An empty field, NA, N/A, NaN, nan, NULL and null are missing numbers. A column without any number holds texts.
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
