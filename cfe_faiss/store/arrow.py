"""Border of a store to Arrow: tables of users, and directories of atomic versions.

Layout of the directory::

    manifest.json            format, version, d, class names, the next key, and names and checksums
    of the other files index-<version>.cfe      the evidence index, as cfe_faiss.write_index writes
    it; its ids are the keys rows-<version>.parquet   the rows in order: key, id, label (class
    number, -1 for none), document, metadata (JSON)

The files of a new version have new names. They are complete and synced before their manifest
replaces the old one, and the files of the old version are removed afterwards. So the manifest names
complete files even if a writer is killed.
"""

import contextlib
import json
import math
import os
import re
import secrets
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import faiss
import numpy as np

from cfe_faiss.base.checks import UNKNOWN, Array, check_distinct, require
from cfe_faiss.base.disk import checksum, open_regular
from cfe_faiss.base.extras import extra
from cfe_faiss.files.format import read_index, write_file
from cfe_faiss.files.forms import ANY_LIST, CHECKSUM, integer, text
from cfe_faiss.files.outputs import (
    MARK,
    Record,
    check_not_mapped,
    check_owner,
    is_of_version,
    is_one_of,
    new_file,
    new_version,
    path_within,
)
from cfe_faiss.index.flat import with_ids
from cfe_faiss.store.contents import Classes, Contents, Kind, Table, key_of, kind_of
from cfe_faiss.store.values import (
    DEEPEST,
    PREFIX,
    Metadata,
    Rows,
    check_labels,
    check_metadata,
    from_json,
    speaks_arrow,
    to_json,
)

with extra("store"):
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

_MANIFEST = "manifest.json"
_VERSIONS = (1, 2, 3)
"""Version 2 added values without a JSON type, version 3 booleans and several kinds of classes.

3 is written.
"""
_INDEX = r"index-[0-9a-f]{16}\.cfe"
_ROWS_FILE = r"rows-[0-9a-f]{16}\.parquet"
_FILES = rf"{_INDEX}|{_ROWS_FILE}"
_TRAILER = 24  # bytes at the end of an index file
_ATTEMPTS = 5
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")
_LARGEST_KEY = 1 << 62  # room for more rows than memory holds
_ROWS = 1 << 10  # rows unpacked between two checks of their size
# limit of unpacked rows: bytes, or times the size of their file
_LEAST_UNPACKED = 1 << 26
_MOST_TIMES = 500
_NUMBER = integer(0, _LARGEST_KEY)
_FORM = {
    **dict.fromkeys(("d", "rows", "next_key"), _NUMBER),
    "class_names": ANY_LIST,
    "files": {
        "index": {
            "name": text(_INDEX, "the name of an index file"),
            "size": _NUMBER,
            "crc32": CHECKSUM,
        },
        "rows": {
            "name": text(_ROWS_FILE, "the name of a file of rows"),
            "size": _NUMBER,
            "crc32": CHECKSUM,
        },
    },
}
_RECORD = Record(_MANIFEST, "cfe_faiss.EvidenceStore", dict.fromkeys(_VERSIONS, _FORM))
_SCHEMA = pa.schema(
    {
        "key": pa.int64(),
        "id": pa.large_string(),
        "label": pa.int32(),
        "document": pa.large_string(),
        "metadata": pa.large_string(),
    }
)


def _damage(folder: Path, fault: str) -> ValueError:
    return ValueError(f"{folder} is damaged: {fault}")


def write(
    path: str | os.PathLike[str], contents: Contents, *, overwrite: bool, origins: Iterable[Path]
) -> None:
    """Write a store into a directory, in place of a store that is there.

    ``overwrite`` and ``origins`` (directories) have the meaning of
    :func:`cfe_faiss.files.outputs.check_outputs`.
    """
    folder = Path(path).resolve()
    _check_target(folder, path, overwrite=overwrite)
    folder.mkdir(parents=True, exist_ok=True)
    if not is_one_of(folder, origins):
        check_not_mapped(folder.iterdir())
    with new_version(
        folder, _FILES, lambda: {file["name"] for file in _read_manifest(folder)["files"].values()}
    ):
        token = secrets.token_hex(8)
        names = {"index": f"index-{token}.cfe", "rows": f"rows-{token}.parquet"}
        write_file(contents.index, folder / names["index"], like=folder / _MANIFEST)
        _write_rows(contents.table, folder / names["rows"])
        files = {part: {"name": name, **_sums(folder / name, part)} for part, name in names.items()}
        manifest = {
            "d": int(contents.index.d),
            "rows": len(contents.table),
            "class_names": list(contents.table.classes.names),
            "next_key": contents.next_key,
            "files": files,
        }
        _RECORD.write(folder, _VERSIONS[-1], manifest)


def read(path: str | os.PathLike[str], mmap: bool) -> tuple[Any, Table, int]:
    """Return the index, the rows and the next key of a store written by :func:`write`."""
    folder = Path(path)
    for attempt in range(_ATTEMPTS):
        manifest = _read_manifest(folder)
        try:
            return _read_parts(folder, manifest, mmap)
        except FileNotFoundError as error:  # perhaps a new version has replaced this one
            if attempt == _ATTEMPTS - 1 or _read_manifest(folder) == manifest:
                raise _damage(folder, f"{Path(error.filename).name} is missing") from error
    raise AssertionError


def _read_parts(folder: Path, manifest: dict[str, Any], mmap: bool) -> tuple[Any, Table, int]:
    paths = {}
    for part, file in manifest["files"].items():
        paths[part] = path_within(folder, file["name"], f"{folder / _MANIFEST}, {part},")
        if {"name": file["name"], **_sums(paths[part], part)} != file:
            raise _damage(folder, f"the checksum of {file['name']} does not match")
    # An earlier version had one class for positions and for ids that stay.
    index: Any = with_ids(read_index(paths["index"], faiss.IO_FLAG_MMAP if mmap else 0))
    # checked first: it bounds the number of rows
    if index.d != manifest["d"] or index.ntotal < manifest["rows"]:
        raise _damage(folder, f"its index is of {index.ntotal} vectors of {index.d} dimensions")
    table = _read_rows(folder, paths["rows"], manifest)
    members = index.members()
    stored = np.isin(members.ids, table.keys)
    are_equal = np.array_equal(members.ids[stored], table.keys)
    if not (are_equal and np.array_equal(members.labels[stored], table.labels)):
        raise _damage(folder, "its index is not of the same rows")
    if not stored.all():  # an earlier version left rows of an interrupted change in the index
        index = with_ids(read_index(paths["index"]))
        index.remove_ids(members.ids[~stored])
    return index, table, manifest["next_key"]


# --- rows -----------------------------------------------------------------------------------------


def _write_rows(table: Table, path: Path) -> None:
    names = dict(
        zip(_SCHEMA.names, ("keys", "ids", "labels", "documents", "metadata"), strict=True)
    )
    columns = {column: getattr(table, name)[table.rows] for column, name in names.items()}
    columns["metadata"] = _encode(columns["metadata"].tolist())
    rows = pa.table(columns, schema=_SCHEMA.with_metadata({"generator": MARK}))
    for how in ({"compression": "zstd", "compression_level": 1}, {"compression": "none"}):
        with new_file(path, overwrite=True, like=path.parent / _MANIFEST) as file:
            pq.write_table(rows, file, use_dictionary=["label"], **how)
        if rows.nbytes <= _most_unpacked(path.stat().st_size):  # else a reader refuses the file
            break


def _most_unpacked(size: int) -> int:
    """Return the number of bytes that the rows of a file of ``size`` bytes may take in memory."""
    return max(_LEAST_UNPACKED, _MOST_TIMES * size)


def _encode(metadata: list[Any]) -> list[str]:
    """Return the JSON of each mapping.

    One call for all of them takes a fifth of the time of one call each.
    """
    if not metadata:
        return []
    border = secrets.token_hex(16)
    together: list[Any] = [border] * (2 * len(metadata) - 1)
    together[::2] = metadata
    return _ENCODER.encode(together)[1:-1].split(f',"{border}",')


_ENCODER = json.JSONEncoder(
    ensure_ascii=False, check_circular=False, separators=(",", ":"), default=to_json
)
_CONSTANTS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def _read_rows(folder: Path, path: Path, manifest: dict[str, Any]) -> Table:
    with open_regular(path) as file:
        content = file.read()
    try:
        rows = _unpack(content, manifest["rows"])
        keys, labels = (rows[name].to_numpy() for name in ("key", "label"))
        ids, documents, encoded = (
            rows[name].to_pylist() for name in ("id", "document", "metadata")
        )
        check_distinct("ids must be distinct", ids)
        metadata = _decode(encoded, ids)
    except (pa.ArrowException, OSError, RecursionError, TypeError, ValueError) as error:
        raise _damage(folder, f"{path.name} cannot be read: {error}") from error
    classes = Classes(tuple(manifest["class_names"]))
    for values, first, last in (
        (labels, UNKNOWN, len(classes.names)),
        (keys, 0, manifest["next_key"]),
    ):
        if len(rows) and not first <= values.min() <= values.max() < last:
            raise _damage(
                folder, f"{path.name} has a class or a key that the manifest does not know"
            )
    return Table.of(classes, keys.copy(), labels.copy(), ids, metadata, documents)


def _unpack(content: bytes, n: int) -> Any:
    """Return the n rows in the bytes of a Parquet file.

    ValueError for a file that :func:`_write_rows` cannot write.

    Rows are unpacked in batches, so that the memory used stays in proportion to the size of the
    file.
    """
    # Arrow reads Python file objects from its own threads
    file = pq.ParquetFile(pa.BufferReader(content))
    most = _most_unpacked(len(content))
    about = file.metadata
    require(
        about.num_rows == n and file.schema_arrow.equals(_SCHEMA),
        "it has not the rows that it was written with",
    )
    groups = [about.row_group(number) for number in range(about.num_row_groups)]
    columns = [group.column(place) for group in groups for place in range(len(_SCHEMA))]
    size = sum(column.total_uncompressed_size for column in columns)
    # With a dictionary, a short file can repeat a long text in many rows.
    coded = {
        kind for column in columns if column.path_in_schema != "label" for kind in column.encodings
    }
    require(
        size <= most and coded <= {"PLAIN", "RLE"},
        f"it unpacks to {size} bytes, coded as {sorted(coded)}; {most} are the most",
    )
    batches = []
    size = 0
    for batch in file.iter_batches(_ROWS):
        batches.append(batch)
        size += batch.nbytes
        require(size <= most, f"its {len(content)} bytes unpack to more than {most}")
    rows = pa.Table.from_batches(batches, file.schema_arrow)
    require(
        not any(rows[name].null_count for name in ("key", "id", "label", "metadata")),
        "a row has no key, id, label or metadata",
    )
    return rows


def _decode(encoded: list[str], ids: list[str]) -> list[Any]:
    """Return the mapping in each text; ValueError unless :func:`_encode` writes the same texts."""
    together = "[" + ",".join(encoded) + "]"  # one document takes a third less time than many
    hook = from_json if f'{{"{PREFIX}' in together else None
    metadata: list[Any] = json.loads(
        together, object_hook=hook, parse_constant=_CONSTANTS.__getitem__
    )
    require(
        len(metadata) == len(encoded)
        and set(map(type, metadata)) <= {dict}
        and _encode(metadata) == encoded,
        "its metadata are not one mapping in each row",
    )
    nested = [
        row for row, text in enumerate(encoded) if text.count("{") + text.count("[") > DEEPEST
    ]
    check_metadata([metadata[row] for row in nested], [ids[row] for row in nested])
    return metadata


# --- the manifest ---------------------------------------------------------------------------------


def _read_manifest(folder: Path) -> dict[str, Any]:
    if not folder.exists():
        raise FileNotFoundError(f"there is no store at {folder}")
    if not os.path.lexists(folder / _MANIFEST):
        raise ValueError(f"{folder} is not the directory of a store: it has no {_MANIFEST}")
    manifest = _RECORD.read(folder)
    try:
        names = check_labels("class_names", manifest["class_names"], len(manifest["class_names"]))
        check_distinct("class_names must be distinct", list(map(key_of, names)))
    except (TypeError, ValueError) as error:
        raise _damage(folder, f"{_MANIFEST}: {error}") from error
    if None in names:
        raise _damage(folder, f"class_names of {_MANIFEST} must be texts, integers or booleans")
    return manifest


def _sums(path: Path, part: str) -> dict[str, int]:
    """Return the size of a file and its CRC-32.

    For an index, the CRC-32 covers its end, which holds all checksums.
    """
    with open_regular(path) as file:
        size = file.seek(0, os.SEEK_END)
        return {
            "size": size,
            "crc32": checksum(file, max(0, size - _TRAILER) if part == "index" else 0),
        }


def _check_target(folder: Path, path: Any, *, overwrite: bool) -> None:
    """Raise an error unless a folder holds a store, or files of a killed writer only."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise NotADirectoryError(f"{path} is a file, a store is saved into a directory")
    manifest = folder / _MANIFEST
    check_owner(manifest, overwrite=overwrite)
    are_files = all(is_of_version(path, _FILES) for path in folder.iterdir())
    if not (overwrite or manifest.exists() or are_files):
        raise ValueError(
            f"{path} must be a new or an empty directory or that of a store, got one with other "
            "files; overwrite=True adds the store to them"
        )


# --- tables of users ------------------------------------------------------------------------------


def matrix(name: str, values: Any) -> Array:
    """Return the vectors of an Arrow column of lists, (n, d)."""
    column = pa.chunked_array(values)
    kind = column.type
    if pa.types.is_fixed_size_list(kind):
        lengths = [kind.list_size]
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        lengths = sorted(pc.unique(pc.list_value_length(column).drop_null()).to_pylist())
    elif len(column):
        raise TypeError(f"{name} must be a column of lists of numbers, got {kind}")
    else:  # a column without rows may have any type
        return np.empty((0, 0), np.float32)
    if column.null_count:
        raise ValueError(
            f"{name} must hold a vector in every row, got none in {column.null_count} of "
            f"{len(column)}"
        )
    if len(lengths) > 1:
        raise ValueError(
            f"{name} must hold vectors of one length, got {', '.join(map(str, lengths[:8]))}"
        )
    flat = pc.list_flatten(column)
    if flat.null_count:
        raise ValueError(f"{name} must hold numbers, got null among them")
    array: Array = flat.to_numpy().reshape(len(column), *(lengths or [0]))
    return array


def rows_of(
    table: Any, id_name: str, vector_name: str, label_name: str, document_name: str
) -> tuple[Any, Any, Any, list[Metadata], Any]:
    """Return ids, vectors, labels, metadata and documents from columns of a table."""
    if not speaks_arrow(table):
        raise TypeError(
            "table must be one of pyarrow, pandas, polars or any other that has "
            f"__arrow_c_stream__, got {type(table).__name__}"
        )
    columns = pa.table(table)
    names = columns.column_names
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise ValueError(f"table must have columns of different names, got {repeated!r} twice")
    fields = (id_name, vector_name, label_name, document_name)
    for name in fields:
        if name not in names and name not in ("label", "document"):
            raise ValueError(f"table must have a column {name!r}, got {', '.join(names)}")
    labels = columns[label_name] if label_name in names else None
    documents = columns[document_name] if document_name in names else None
    # pandas stores integers as floats if one is missing
    if labels is not None and pa.types.is_floating(labels.type):
        with contextlib.suppress(pa.ArrowInvalid):
            labels = labels.cast(pa.int64())
    keys = [name for name in names if name not in fields and not _PANDAS_INDEX.fullmatch(name)]
    try:
        rows = columns.select(keys).to_pylist()
    except OverflowError as error:
        raise ValueError(
            f"table must hold dates that Python has, of the years 1 to 9999: {error}"
        ) from error
    metadata = [{key: value for key, value in row.items() if value is not None} for row in rows]
    return columns[id_name], matrix(vector_name, columns[vector_name]), labels, metadata, documents


def to_arrow(rows: Rows, class_names: Sequence[Any]) -> Any:
    """Return rows as a ``pyarrow.Table``.

    ``class_names`` are all classes: they decide the type of their column.
    """
    if not _are_of_one_kind(rows.labels):
        raise TypeError(
            f"labels must be of one kind in a table, got {class_names!r:.80}; give all rows labels "
            "of one kind by relabel"
        )
    names = class_names if _are_of_one_kind(class_names) else ()
    labels = _array([*names, *rows.labels])[len(names) :]
    columns = {
        "id": pa.array(rows.ids, pa.string()),
        "vector": pa.FixedSizeListArray.from_arrays(
            pa.array(rows.vectors.reshape(-1)), rows.vectors.shape[1]
        ),
        "label": labels if class_names else labels.cast(pa.int64()),
        "document": pa.array(rows.documents, pa.large_string()),
    }
    for key in dict.fromkeys(chain.from_iterable(rows.metadata)):
        name = key
        while name in columns:
            name = f"{name} (metadata)"
        columns[name] = _array([mapping.get(key) for mapping in rows.metadata])
    return pa.table(columns)


def _array(values: list[Any]) -> Any:
    """Return values as one Arrow array, or as JSON texts if no Arrow type holds them all."""
    if _are_of_one_kind(values):
        # of Arrow, or of Python for NaN among decimals
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            return pa.array(values)
    return pa.array(
        [
            None if value is None else json.dumps(value, ensure_ascii=False, default=to_json)
            for value in values
        ]
    )


def _are_of_one_kind(values: Iterable[Any]) -> bool:
    """Return whether values, and those at each place in them, are of one kind.

    Arrow may cut others without an error.

    It takes a datetime for a date, a text for bytes, and drops time zones. No type of Arrow holds
    the zone of a time.
    """
    present = [value for value in values if value is not None]
    kinds = set(map(kind_of, present))
    if kinds == {Kind.LIST}:
        return _are_of_one_kind(chain.from_iterable(present))
    if kinds == {Kind.MAPPING}:
        keys = set(chain.from_iterable(present))
        return all(_are_of_one_kind(mapping.get(key) for mapping in present) for key in keys)
    return len(kinds) < 2 and (
        kinds != {Kind.TIME} or all(value.tzinfo is None for value in present)
    )
