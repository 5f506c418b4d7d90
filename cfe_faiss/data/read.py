"""Tables of users from files (text, Excel, Parquet, NumPy) and from other libraries.

A path means what pandas reads from it, with two rules: ids and join keys are texts, and a column of
which 95 % are numbers is a column of numbers, whose other cells are errors. All problems of a table
are reported at once.
"""

import bz2
import codecs
import gzip
import io
import lzma
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from cfe_faiss.attributes.table import exact_integers
from cfe_faiss.base.checks import Array, Doubles, is_missing
from cfe_faiss.base.disk import open_regular
from cfe_faiss.base.extras import extra, pd
from cfe_faiss.data.columns import (
    DEFAULT,
    ContentError,
    Reading,
    Table,
    decode,
    find_separator,
    note,
    split_lines,
)

_OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_COMPRESSED = (*_OPENERS, ".zip")
SUFFIXES = (
    ".csv",
    ".tsv",
    ".tab",
    ".psv",
    ".txt",
    ".dat",
    ".data",
    *_COMPRESSED,
    ".parquet",
    ".xlsx",
)

MOST_CELLS = 1 << 28
"""Most cells of a Parquet file, or of a group of its rows in a job: 2 GiB of numbers."""
MOST_BYTES = 1 << 31
"""Most bytes of a table without compression."""
ALWAYS_EXPANDED = 1 << 26
"""Bytes that every compressed table may expand to."""

_HEADLESS = (".txt", ".dat", ".data")
"""Suffixes of text files without a header if white space separates their fields."""
_SEPARATOR_LINE = re.compile(r'"?sep=(.)"?', re.IGNORECASE)
_MOST_TITLES = 20
_SHOWN = 5
_HEAD = 1 << 16
_SAMPLE = 1_000
_OLD_OFFICE = bytes.fromhex("d0cf11e0a1b11ae1")
_EXCEL_ROWS = 1 << 20
_BINARY = re.compile(rb"[\0-\x08\x0e-\x1a\x1c-\x1f]")
_ORANGE_TYPES = frozenset({"c", "d", "s", "m", "continuous", "discrete", "string"})
_ORANGE_ROLES = frozenset({"", "class", "c", "meta", "m", "ignore", "i", "weight", "w"})
_OTHER_LANGUAGES = ("{", "[", "<", "@")
"""First characters of JSON, XML and ARFF."""
_MOST_EXPANSION = 200
"""Largest expansion of a compressed table; only tables made to fill memory have more."""
_PART = 1 << 20


def as_table(frame: Any, reading: Reading) -> Table:
    """Return a table: of pandas, polars, Arrow or their interface, a mapping, or a path.

    Raises
    ------
    TypeError, ValueError
        If it is no table, has no rows, or two columns have one name.
    """
    if isinstance(frame, str | Path):
        return read_table(Path(frame), reading)
    if isinstance(frame, Table):
        return frame
    if isinstance(frame, pd.DataFrame | Mapping):
        columns = frame.items() if isinstance(frame, Mapping) else ()
        sizes = {
            str(name): len(column)
            for name, column in columns
            if hasattr(column, "__len__") and not isinstance(column, str)
        }
        if len(set(sizes.values())) > 1:
            raise ValueError(f"frame must map names to columns of one length, got lengths {sizes}")
        cells = pd.DataFrame(frame)
    elif hasattr(frame, "to_pandas"):
        cells = frame.to_pandas()
        cells = exact_integers(cells, frame.to_arrow() if hasattr(frame, "to_arrow") else frame)
    elif hasattr(frame, "__arrow_c_stream__"):
        import pyarrow as pa

        table = pa.table(frame)
        cells = exact_integers(table.to_pandas(), table)
    else:
        raise TypeError(
            "frame must be a table of pandas, polars or PyArrow, a mapping of columns, or the path "
            f"of a file, got {type(frame).__name__}"
        )
    if not len(cells):
        raise ValueError("frame must have rows, got none")
    cells = cells.reset_index(drop=True)
    cells.columns = _number_doubles("frame", [str(column) for column in cells.columns])
    index = frame.index if isinstance(frame, pd.DataFrame) else None
    return Table("frame", cells, reading, index=index)


def read_table(path: Path, reading: Reading = DEFAULT, *, empty: bool = False) -> Table:
    """Read a table.

    Text files, also compressed by gzip, bzip2 or xz or in a zip archive: the separator, lines above
    the header, and whether there is a header are found from the content, where ``reading`` does not
    say it. ``.txt``, ``.dat`` and ``.data`` may hold fields separated by white space, without a
    header; lines that begin with "#" are comments. A text file of any other suffix is read if a
    separator divides its lines in the same way. ``.parquet``: columns of numbers, texts, booleans,
    dates or times. ``.xlsx``: the first sheet. ``.npy``: (n,) or (n, c) numbers or texts, no
    header. ``empty`` allows a header without rows.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it is no regular file, of another kind or encoding, damaged, or expands beyond measure.
    ImportError
        If pandas is missing; PyArrow, for Parquet; or openpyxl, for Excel.
    """
    suffix = path.suffix.lower()
    if suffix == ".npy":
        return _read_array(path, reading)
    if suffix == ".parquet":
        return _read_parquet(path, reading, empty)
    if suffix == ".xlsx":
        with _damaged(path, "an Excel file"), open_regular(path) as file:
            grid = _read_excel(file)
        counts = np.full(len(grid), grid.shape[1])
        return _with_names(Table(str(path), grid, reading), counts, empty, headless=False)
    inner = path.with_suffix("") if suffix in _COMPRESSED else path
    text = _text_of(path, reading)
    return _read_text(str(path), text, reading, empty, headless=inner.suffix.lower() in _HEADLESS)


@contextmanager
def _damaged(path: Path, expected: str) -> Iterator[None]:
    """Turn every error about the content of a file into a ValueError that names the file."""
    try:
        yield
    except Exception as error:  # the libraries raise errors of many types for damaged files
        if (
            isinstance(error, MemoryError | ImportError)
            or getattr(error, "errno", None) is not None
        ):
            raise
        text = str(error) or type(error).__name__
        raise ValueError(
            f"{path} {text}"
            if isinstance(error, ContentError)
            else f"{path} must be {expected}: {text}"
        ) from error


def _check_size(size: int, file_size: int) -> None:
    if size > MOST_BYTES or size > max(ALWAYS_EXPANDED, _MOST_EXPANSION * file_size):
        raise ContentError(f"must not expand beyond measure, got {size:,} bytes from {file_size:,}")


def _text_of(path: Path, reading: Reading) -> str:
    """Return the content of a text file, of a known suffix or with a table in it."""
    suffix = path.suffix.lower()
    with _damaged(path, "a table"), open_regular(path) as file:
        if suffix in SUFFIXES:
            return decode(_expanded(file, suffix), reading)
        head = file.read(_HEAD)
        is_utf16 = head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        is_text = is_utf16 or reading.encoding is not None or _BINARY.search(head) is None
        text = decode(head + file.read(), reading) if is_text else ""
    lines = split_lines(text)[1]
    separator = find_separator(lines, reading.point) if any(map(str.strip, lines)) else None
    has_fields = reading.separator is not None or separator is not None
    if text.lstrip().startswith(_OTHER_LANGUAGES) or not has_fields:
        raise ValueError(
            f"{path} must be a file of the kind {', '.join(SUFFIXES)} or .npy, or a text file with "
            "a separator between its fields"
        )
    return text


def _expanded(file: Any, suffix: str) -> bytes:
    """Return the content of a text file, without compression."""
    data: bytes = file.read()
    if suffix == ".zip":
        with zipfile.ZipFile(file) as archive:
            members = [
                member
                for member in archive.infolist()
                if not member.is_dir() and "__MACOSX" not in member.filename
            ]
            if len(members) != 1:
                raise ContentError(f"must hold one file, got {len(members)}")
            _check_size(members[0].file_size, len(data))
            return archive.read(members[0])
    if suffix not in _OPENERS:
        return data
    parts = []
    size = 0
    with _OPENERS[suffix](io.BytesIO(data)) as expanded:
        while part := expanded.read(_PART):
            parts.append(part)
            size += len(part)
            _check_size(size, len(data))
    return b"".join(parts)


def _read_excel(file: Any) -> "pd.DataFrame":
    """Return the cells of the first sheet that are not empty rows or columns, None where empty."""
    with extra("audit"):
        import openpyxl
    if file.read(len(_OLD_OFFICE)) == _OLD_OFFICE:
        raise ContentError(
            "is encrypted or an old .xls: save it without a password, as .xlsx or .csv"
        )
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
    _check_size(
        sum(member.file_size for member in members), sum(member.compress_size for member in members)
    )
    with closing(openpyxl.load_workbook(file, read_only=True, data_only=True)) as book:
        sheet = book.worksheets[0]
        if len(book.worksheets) > 1:
            note(
                f"{file.name}: the first of {len(book.worksheets)} sheets is read, {sheet.title!r}"
            )
        sheet.reset_dimensions()  # the size that a file states may be wrong
        rows = []
        for number, row in enumerate(sheet.iter_rows(values_only=True)):
            if number >= _EXCEL_ROWS:
                raise ContentError(f"must have {_EXCEL_ROWS:,} rows at most, as Excel, got more")
            if any(cell is not None for cell in row):
                rows.append(row)
    # Rows end at their last cell; cells that have only a format are empty.
    columns = [column for column in zip_longest(*rows) if any(cell is not None for cell in column)]
    return pd.DataFrame(
        {place: pd.Series(column, dtype=object) for place, column in enumerate(columns)}
    )


def _read_text(name: str, text: str, reading: Reading, empty: bool, *, headless: bool) -> Table:
    if headless:
        text = re.sub(r"(?m)^#.*", "", text)
    numbers, lines = split_lines(text)
    stated = _SEPARATOR_LINE.fullmatch(text.partition("\n")[0].strip())
    if stated:
        text = text.partition("\n")[2]
        numbers = numbers[1:]
        lines = lines[1:]
    if not any(map(str.strip, lines)):
        raise ValueError(f"{name} must hold a table, got an empty file")
    separator: str | None = reading.separator or (
        stated[1] if stated else find_separator(lines, reading.point)
    )
    if headless and not stated:
        are_even = len({len(line.split()) for line in lines if line.strip()}) == 1
        has_blanks = separator in (None, " ") or (separator == "\t" and are_even)
        separator = None if has_blanks else separator
    elif separator is None:
        separator = ","
    counts = np.array(
        [len(line.split()) if separator is None else line.count(separator) + 1 for line in lines]
    )
    if counts.max() > 1:  # in a single column, an empty line is a missing value
        filled = [place for place, line in enumerate(lines) if line.strip(" ")]
        counts = counts[filled]
        numbers = [numbers[place] for place in filled]
    width = Counter(counts.tolist()).most_common(1)[0][0]
    try:
        grid = pd.read_csv(
            io.StringIO(text.rstrip("\n ")),
            sep=r"\s+" if separator is None else separator,
            header=None,
            names=list(range(min(counts.max(), 2 * width + 8))),
            dtype=object,
            na_filter=False,
            skipinitialspace=True,
            skip_blank_lines=counts.max() > 1,
            on_bad_lines="skip",
        )
    except pd.errors.ParserError as error:
        raise ValueError(
            f"{name} must be a table: {error} (is a quotation mark missing?)"
        ) from error
    table = Table(
        name, grid, reading, is_text=True, lines=numbers if len(grid) == len(counts) else None
    )
    return _with_names(table, counts, empty, headless=separator is None)


def _has_numbers_below(grid: "pd.DataFrame") -> bool:
    """Return whether a column of numbers has a text at its top."""
    columns = (pd.to_numeric(grid[place].head(_SAMPLE), errors="coerce").notna() for place in grid)
    return any(
        not are_numbers.iloc[0] and are_numbers.iloc[1:].mean() > 0.5 for are_numbers in columns
    )


def _with_names(table: Table, counts: Array, empty: bool, *, headless: bool) -> Table:
    """Return a table of the rows below the header, with names, from all lines.

    Parameters
    ----------
    table
        Cells of all lines, by number of the column.
    counts
        Number of fields in each line.
    empty
        Whether there may be no row.
    headless
        Whether there is no header.
    """
    header = table.reading.header or (
        "none" if headless and not _has_numbers_below(table.cells) else None
    )
    cells: Array = table.cells.to_numpy(object)
    filled = (cells != "") & pd.notna(cells)
    grid = table.cells.loc[:, filled.any(axis=0)]
    values = cells[:, filled.any(axis=0)]
    width = grid.shape[1]
    first = _first_line(grid, filled.sum(axis=1), counts, may_have_names=header != "none")
    top = ["" if is_missing(cell) else str(cell).strip() for cell in grid.iloc[first]]
    are_numbered = table.is_text and width > 2 and top == [str(place) for place in range(width)]
    has_header = header == "first" or (header is None and (are_numbered or not _are_numbers(top)))
    start = first + has_header
    expected = (
        Counter(counts[start:].tolist()).most_common(1)[0][0]
        if start < len(counts)
        else counts[first]
    )
    has_row_names = (
        has_header and table.is_text and counts[first] == width - 1 and expected == width
    )
    if has_row_names:
        top = ["", *top[:-1]]
    with table.problems.collect():
        _check_counts(table, counts, start, expected)
    rows = np.arange(start, len(grid))
    if has_header:
        repeated = (values[start:] == values[first]).all(axis=1)
        if _has_numbers_below(grid.iloc[[first, *rows[~repeated]]]):
            _note_lines(table, rows[repeated], "repeat the header")
            rows = rows[~repeated]
        with table.problems.collect():
            _check_header(table, grid.iloc[rows], top, first)
        if table.is_text and _are_orange(values[rows[:2]]):
            _note_lines(table, rows[:2], "hold types and roles of columns, as Orange writes them,")
            rows = rows[2:]
    if width > 1:
        is_filled = filled[rows].any(axis=1)
        _note_lines(table, rows[~is_filled], "are empty")
        rows = rows[is_filled]
    if not len(rows) and not empty:
        raise ValueError(f"{table.name} must hold a row below its header, got none")
    if first:
        _note_lines(table, np.arange(first), "stand above the header")
    body = grid.iloc[rows].reset_index(drop=True)
    names = top if has_header else [str(1 + place) for place in range(width)]
    unnamed = [f"Unnamed: {place}" for place in range(width)]
    body.columns = _number_doubles(
        table.name, [name or other for name, other in zip(names, unnamed, strict=True)]
    )
    lines = None if table.lines is None else [table.lines[row] for row in rows.tolist()]
    return replace(
        table, cells=body, has_header=has_header or table.reading.header == "none", lines=lines
    )


def _are_orange(lines: Array) -> bool:
    """Return whether two lines are types and roles of columns, as in a file of Orange."""
    if len(lines) < 2 or lines.shape[1] < 2:
        return False
    types, roles = (set(line.tolist()) for line in lines)
    return types <= _ORANGE_TYPES and "" in roles and roles <= _ORANGE_ROLES


def _first_line(grid: "pd.DataFrame", filled: Array, counts: Array, *, may_have_names: bool) -> int:
    """Return the number of title lines above the table, if the next line looks like a header.

    A single field above three columns or more is a title, too.
    """
    width = grid.shape[1]
    first = 0
    while first < min(_MOST_TITLES, len(grid) - 1) and (
        counts[first] < width or filled[first] <= 1 < width
    ):
        first += 1
    if counts[0] == 1 and width > 2 and first:
        return first
    names = [cell for cell in grid.iloc[first].tolist() if isinstance(cell, str) and cell]
    looks_like_header = len(names) >= width - 1 and not any(_are_numbers([name]) for name in names)
    starts_blank = grid.iloc[0, 0] in (None, "")
    return first if may_have_names and looks_like_header and not starts_blank else 0


def _check_counts(table: Table, counts: Array, start: int, expected: int) -> None:
    """Raise ValueError if a line has another number of fields than the others."""
    wrong = start + np.flatnonzero(counts[start:] != expected)
    if start and counts[start - 1] > expected + 1:
        wrong = np.append(start - 1, wrong)
    if len(wrong):
        line_list = ", ".join(f"{table.place(line)} has {counts[line]}" for line in wrong[:_SHOWN])
        others = f" and {len(wrong) - _SHOWN:,} more lines differ" if len(wrong) > _SHOWN else ""
        raise ValueError(
            f"{table.name}: most lines have {expected} fields, but {line_list}{others} (a text that "
            "holds the separator needs quotation marks; another separator is named as in "
            f"{table.reading.remedy('separator', ';')})"
        )


def _check_header(table: Table, body: "pd.DataFrame", names: Sequence[str], first: int) -> None:
    """Raise ValueError if the names of the columns may be a row."""
    if table.reading.header is not None:
        return
    sample = body.head(_SAMPLE)
    numbers = [name for name in names if _are_numbers([name])]
    are_counted = len(numbers) > 1 and {float(b) - float(a) for a, b in pairwise(numbers)} == {1.0}
    places = dict(zip(names, sample, strict=True))
    shares = {
        name: pd.to_numeric(sample[places[name]], errors="coerce").notna().mean()
        for name in numbers
    }
    values = [name for name in numbers if shares[name] > 0.5 and not are_counted]
    occurs = (sample.to_numpy(object) == np.array(names, object)).any(axis=0)
    texts = [
        name
        for name, is_value in zip(names, occurs, strict=True)
        if is_value and name and name not in numbers
    ]
    suspects = values + (texts if len(texts) > 1 or len(texts) == len(names) else [])
    if len(numbers) == len(names):  # names that pandas gives to unnamed columns, or a row
        suspects = numbers
    if suspects:
        cell_list = ", ".join(map(repr, suspects[:_SHOWN]))
        none, as_names = (table.reading.remedy("header", value) for value in ("none", "first"))
        raise ValueError(
            f"{table.name}, {table.place(first)}: the header looks like a row ({cell_list}); {none} "
            f"reads it as a row, {as_names} as names"
        )


def _note_lines(table: Table, rows: Array, text: str) -> None:
    if len(rows):
        note(
            f"{table.name}: lines that {text} are left out: {len(rows):,}, such as "
            f"{table.place(int(rows[0]))}"
        )


def _number_doubles(name: str, names: Sequence[str]) -> list[str]:
    """Return names of columns; equal ones are numbered as pandas does, "a", "a.1", with a note."""
    distinct: dict[str, None] = {}
    for text in names:
        number = 0
        numbered = text
        while numbered in distinct or (number and numbered in names):
            number += 1
            numbered = f"{text}.{number}"
        distinct[numbered] = None
    doubles = [numbered for numbered, text in zip(distinct, names, strict=True) if numbered != text]
    if doubles:
        note(
            f"{name}: several columns have one name; the later ones are called "
            f"{', '.join(doubles[:_SHOWN])}"
        )
    return list(distinct)


def _are_numbers(fields: Sequence[str]) -> bool:
    """Return whether every field of a line is a number, with any decimal mark, and there is one."""
    try:
        return len([float(field.replace(",", ".")) for field in fields]) > 0
    except ValueError:
        return False


def _read_array(path: Path, reading: Reading) -> Table:
    with _damaged(path, "a NumPy array of numbers or texts"), open_regular(path) as file:
        array = np.load(file, allow_pickle=False)
    matrix = array[:, None] if array.ndim == 1 else array
    if matrix.ndim != 2 or not matrix.size:
        raise ValueError(f"{path} must have shape (n,) or (n, C), got {array.shape}")
    if matrix.dtype.kind not in "biufU":
        raise ValueError(
            f"{path} must be a NumPy array of numbers or texts, got dtype {array.dtype}"
        )
    plain = matrix.astype(np.float64) if matrix.dtype.kind == "f" else matrix
    return Table(
        str(path),
        pd.DataFrame({str(c): v for c, v in enumerate(plain.T)}),
        reading,
        has_header=False,
    )


@contextmanager
def open_parquet(path: Path) -> Iterator[Any]:
    """Open a Parquet file, whose texts are read as codes, as a ``pyarrow.parquet.ParquetFile``.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it is no regular file, damaged, or a group of its rows expands beyond measure.
    """
    with extra("store"):
        import pyarrow as pa
        import pyarrow.parquet as pq

    open_regular(path).close()
    with pa.OSFile(str(path)) as source:  # Arrow would read a file of Python in its own threads
        with _damaged(path, "a Parquet file"):
            schema = pq.read_schema(source)
            texts = [
                name
                for name, kind in zip(schema.names, schema.types, strict=True)
                if _is_text(kind)
            ]
            file = pq.ParquetFile(source, read_dictionary=texts)
            for group in map(file.metadata.row_group, range(file.metadata.num_row_groups)):
                cells = sum(group.column(column).num_values for column in range(group.num_columns))
                _check_parquet(max(cells, group.num_rows), group.total_byte_size)
        yield file


def _check_parquet(cells: int, size: int) -> None:
    if cells > MOST_CELLS or size > MOST_BYTES:
        raise ContentError(
            f"must have {MOST_CELLS:,} cells and {MOST_BYTES:,} bytes at most, got {cells:,} and "
            f"{size:,}"
        )


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _read_parquet(path: Path, reading: Reading, empty: bool) -> Table:
    with extra("audit"):
        import pandas  # noqa: F401, ICN001 - for an error that names the extra
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

    types = pa.types
    with open_parquet(path) as file, _damaged(path, "a Parquet file"):
        schema = pq.read_schema(str(path))
        for name, kind in zip(schema.names, schema.types, strict=True):
            value = kind.value_type if types.is_dictionary(kind) else kind
            is_plain = (
                types.is_primitive(value)
                or types.is_decimal(value)
                or types.is_null(value)
                or _is_text(value)
            )
            if not is_plain or types.is_duration(value) or types.is_interval(value):
                raise ContentError(
                    f"column {name!r} must hold numbers, texts, booleans or dates, got {kind}"
                )
        _check_parquet(file.metadata.num_rows * max(1, file.metadata.num_columns), 0)
        columns = file.read()
        coded = [
            chunk
            for column in columns.columns
            for chunk in column.chunks
            if types.is_dictionary(column.type)
        ]
        sizes = (
            pc.sum(pc.binary_length(chunk.dictionary.cast(pa.string())).take(chunk.indices))
            for chunk in coded
        )
        _check_parquet(0, sum(size.as_py() or 0 for size in sizes))
        names = _number_doubles(str(path), columns.column_names)
        frame = columns.rename_columns(names).to_pandas(ignore_metadata=True)
        frame = exact_integers(frame, columns)
    if not len(names) or not (len(frame) or empty):
        raise ValueError(f"{path} must hold a table, got {len(frame)} rows of {len(names)} columns")
    texts = [name for name, kind in zip(names, schema.types, strict=True) if _is_text(kind)]
    return Table(str(path), frame.astype(dict.fromkeys(texts, object)), reading)


# --- matrices and graphs --------------------------------------------------------------------------


def read_matrix(path: Path, reading: Reading = DEFAULT) -> Array:
    """Read a matrix, a row per node: .npy (memory-mapped), .csv or .txt, perhaps with header.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If the suffix is another one, or the file does not hold numbers.
    """
    _check_suffix(path, (".npy", ".csv", ".txt"))
    return _load(path) if path.suffix == ".npy" else _numbers(path, reading)


def read_graph(path: Path, reading: Reading = DEFAULT) -> Any:
    """Read a graph in a form that :func:`cfe_faiss.graph.as_graph` takes.

    An edge_index of shape (2, E) from .npy, one edge per line from .csv or .txt, a SciPy sparse
    matrix from .npz.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If the suffix is another one, or the file does not hold a graph.
    """
    _check_suffix(path, (".npy", ".csv", ".txt", ".npz"))
    if path.suffix == ".npy":
        return _load(path)
    if path.suffix == ".npz":
        from scipy.sparse import load_npz

        with (
            _damaged(path, "a matrix that scipy.sparse.save_npz wrote"),
            open_regular(path) as file,
        ):
            return load_npz(file)
    graph = _numbers(path, reading)
    if graph.shape[1] != 2:
        raise ValueError(
            f"{path} must hold two node numbers per line, got {graph.shape[1]} columns"
        )
    # Above 2**53, float64 no longer separates neighbouring integers.
    wrong = ~((np.abs(graph) <= 2**53) & (graph == np.floor(graph)))
    if wrong.any():
        raise ValueError(f"{path} must hold whole numbers, got {graph[wrong][0]:g}")
    return graph.astype(np.int64).T


def _check_suffix(path: Path, suffixes: Sequence[str]) -> None:
    if path.suffix.lower() not in suffixes:
        raise ValueError(
            f"{path} must be a file of the kind {', '.join(suffixes[:-1])} or {suffixes[-1]}"
        )


def _load(path: Path) -> Array:
    open_regular(path).close()
    with _damaged(path, "a NumPy array of numbers"):
        array: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    return array


def _numbers(path: Path, reading: Reading) -> Doubles:
    """Return the numbers of a text file, (rows, columns)."""
    table = read_table(path, reading)
    values = table.frame(table.columns)
    table.problems.check()
    texts = [name for name in values if values[name].dtype == object and values[name].notna().any()]
    if texts:
        raise ValueError(
            f"{path} must hold numbers, below one header line at most, got texts in column "
            f"{texts[0]}"
        )
    return values.to_numpy(np.float64, na_value=np.nan)
