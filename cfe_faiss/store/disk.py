"""A store as a directory that changes from one version to the next in one moment.

Layout::

    manifest.json            format, version, d, class names, the next key, and the names and checksums of the others
    index-<version>.cfe      the evidence index, as cfe_faiss.write_index writes it; its ids are the keys
    rows-<version>.parquet   the rows in order: key, id, label (class number, -1 for none), document, metadata (JSON)

The files of a new version have names of their own, and are complete and synced before the manifest that names them
takes the place of the old one; then those of the old version are removed. Whoever is killed leaves a directory whose
manifest names complete files.
"""

import contextlib
import json
import os
import re
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import faiss
import numpy as np

from cfe_faiss.base.checks import UNKNOWN
from cfe_faiss.base.extras import extra
from cfe_faiss.files.checksum import checksum
from cfe_faiss.files.format import read_index, write_index
from cfe_faiss.files.lock import alone_in
from cfe_faiss.files.new_file import new_file
from cfe_faiss.files.outputs import MARK, check_not_mapped, check_owner, is_one_of, is_ours, path_within
from cfe_faiss.files.regular import open_regular
from cfe_faiss.store.contents import Contents
from cfe_faiss.store.growing import objects
from cfe_faiss.store.table import Table
from cfe_faiss.store.values import DEEPEST, are_flat, check_distinct, checked_labels, checked_metadata

_MANIFEST = "manifest.json"
_FORMAT = "cfe_faiss.EvidenceStore"
_VERSION = 1
_FILES = re.compile(r"(index-[0-9a-f]{16}\.cfe|rows-[0-9a-f]{16}\.parquet)")
_TEMPORARY = re.compile(rf"\.{_FILES.pattern}\.[0-9a-f]{{16}}\.tmp")  # of killed writers, where files need a name
_TRAILER = 24  # bytes at the end of an index file
_ATTEMPTS = 5
_LARGEST_KEY = 1 << 62  # room for more rows than memory holds
_ROWS = 1 << 10  # unpacked before their size is checked
_UNPACKED = 1 << 26, 500  # bytes that rows may take in memory: so many, or so many times those of their file


class _DamageError(ValueError):
    """What is wrong with a directory, without its name."""


def write(path: str | os.PathLike[str], contents: Contents, *, overwrite: bool, origins: Iterable[Path]) -> None:
    """Write a store into a directory, in place of one that is there.

    ``overwrite`` and ``origins`` (directories) are those of :func:`cfe_faiss.files.outputs.check_outputs`.
    """
    with extra("store"):
        import pyarrow.parquet  # noqa: F401
    folder = Path(path).resolve()
    _check_target(folder, path, overwrite=overwrite)
    folder.mkdir(parents=True, exist_ok=True)
    if not is_one_of(folder, origins):
        check_not_mapped(folder.iterdir())
    with alone_in(folder):
        old = {entry.name for entry in folder.iterdir() if _is_part(entry)} | _named_files(folder)
        version = secrets.token_hex(8)
        names = {"index": f"index-{version}.cfe", "rows": f"rows-{version}.parquet"}
        try:
            write_index(contents.index, folder / names["index"])
            _write_rows(contents.table, folder / names["rows"])
            with new_file(folder / _MANIFEST, overwrite=True) as file:
                file.write(json.dumps(_manifest(folder, names, contents), indent=1).encode())
        except BaseException:
            if _named_files(folder) != set(names.values()):  # else the error came once all was done
                _remove(folder, set(names.values()))
            raise
        _remove(folder, old)


def _manifest(folder: Path, names: dict[str, str], contents: Contents) -> dict[str, Any]:
    return {
        "format": _FORMAT,
        "version": _VERSION,
        "d": contents.d,
        "rows": len(contents.table),
        "class_names": list(contents.table.class_names),
        "next_key": contents.next_key,
        "files": {part: {"name": name, **_sums(folder / name, part)} for part, name in names.items()},
    }


def read(path: str | os.PathLike[str], mmap: bool) -> tuple[Any, Table, int]:
    """Return the index, the rows and the next key of a store that :func:`write` wrote."""
    with extra("store"):
        import pyarrow.parquet  # noqa: F401
    folder = Path(path)
    for attempt in range(_ATTEMPTS):
        manifest = _read_manifest(folder)
        try:
            with _naming(folder):
                return _read_parts(folder, manifest, mmap)
        except FileNotFoundError as error:  # perhaps another version has taken its place since
            if attempt == _ATTEMPTS - 1 or _read_manifest(folder) == manifest:
                raise ValueError(f"{folder} is damaged: {Path(error.filename).name} is missing") from error
    raise AssertionError


def _read_parts(folder: Path, manifest: dict[str, Any], mmap: bool) -> tuple[Any, Table, int]:
    paths = {}
    for part, file in manifest["files"].items():
        paths[part] = path_within(folder, file["name"], f"{folder / _MANIFEST}, {part},")
        if {"name": file["name"], **_sums(paths[part], part)} != file:
            raise _DamageError(f"the checksum of {file['name']} does not match")
    index: Any = read_index(paths["index"], faiss.IO_FLAG_MMAP if mmap else 0)
    if index.d != manifest["d"] or index.ntotal < manifest["rows"]:  # so the rows are not more than the files can hold
        raise _DamageError(f"its index is of {index.ntotal} vectors of {index.d} dimensions")
    table = _read_rows(paths["rows"], manifest)
    members = index.members()
    # Rows that an interrupted change has left in the index are not in the table.
    here = table.rows_of(members.ids) >= 0
    if not (here.sum() == len(table) and np.array_equal(members.labels[here], table.labels)):
        raise _DamageError("its index is not of the same rows")
    return index, table, manifest["next_key"]


# --- rows -------------------------------------------------------------------------------------------------------------


def _write_rows(table: Table, path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = pa.table(
        {
            "key": table.keys,
            "id": pa.array(table.ids.tolist(), pa.large_string()),
            "label": table.labels,
            "document": pa.array(table.documents.tolist(), pa.large_string()),
            "metadata": pa.array(_encoded(table.metadata.tolist()), pa.large_string()),
        },
        metadata={"generator": MARK},
    )
    for how in ({"compression": "zstd", "compression_level": 1}, {"compression": "none"}):
        with new_file(path, overwrite=True) as file:
            pq.write_table(rows, file, use_dictionary=["label"], **how)
        if rows.nbytes <= _most_unpacked(path.stat().st_size):  # else a reader would refuse it
            return


def _most_unpacked(size: int) -> int:
    """Return how many bytes the rows in a file of ``size`` bytes may take in memory."""
    least, times = _UNPACKED
    return max(least, times * size)


def _encoded(metadata: list[Any]) -> list[str]:
    """Return the JSON of each mapping. One call for all of them takes a fifth of the time of a call for each."""
    if not metadata:
        return []
    border = secrets.token_hex(16)
    together: list[Any] = [border] * (2 * len(metadata) - 1)
    together[::2] = metadata
    return _ENCODER.encode(together)[1:-1].split(f',"{border}",')


_ENCODER = json.JSONEncoder(ensure_ascii=False, check_circular=False, allow_nan=False, separators=(",", ":"))


def _read_rows(path: Path, manifest: dict[str, Any]) -> Table:
    import pyarrow as pa

    with open_regular(path) as file:
        content = file.read()
    try:
        rows = _unpacked(content, manifest["rows"])
        keys, labels = (rows[name].to_numpy() for name in ("key", "label"))
        ids, documents, encoded = (rows[name].to_pylist() for name in ("id", "document", "metadata"))
        check_distinct(ids)
        metadata = _decoded(encoded, ids)
    except (pa.ArrowException, OSError, RecursionError, TypeError, ValueError) as error:
        raise _DamageError(f"{path.name} cannot be read: {error}") from error
    names = tuple(manifest["class_names"])
    known = len(names), manifest["next_key"]
    if len(rows) and not (
        UNKNOWN <= labels.min() <= labels.max() < known[0] and 0 <= keys.min() <= keys.max() < known[1]
    ):
        raise _DamageError(f"{path.name} has a class or a key that the manifest does not know")
    if (keys[1:] <= keys[:-1]).any():
        raise _DamageError(f"the keys of {path.name} are not in order")
    return Table(
        names,
        keys,
        objects(ids),
        labels.astype(np.int32),
        objects(metadata),
        objects(documents),
        is_flat=are_flat(metadata),
    )


def _unpacked(content: bytes, n: int) -> Any:
    """Return the n rows in the bytes of a Parquet file; ValueError if :func:`_write_rows` does not write such a file.

    Rows are unpacked some at a time, so that memory stays in proportion to the file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = pq.ParquetFile(pa.BufferReader(content))  # Arrow reads a file object of Python from its own threads
    most = _most_unpacked(len(content))
    _check_footer(file, n, most)
    batches, size = [], 0
    for batch in file.iter_batches(_ROWS):
        batches.append(batch)
        size += batch.nbytes
        if size > most:
            raise ValueError(f"its {len(content)} bytes unpack to more than {most}")
    rows = pa.Table.from_batches(batches, file.schema_arrow)
    if any(rows[name].null_count for name in ("key", "id", "label", "metadata")):
        raise ValueError("a row has no key, id, label or metadata")
    return rows


def _check_footer(file: Any, n: int, most: int) -> None:
    """Raise ValueError unless a Parquet file has n rows of the right columns, which unpack to ``most`` bytes."""
    import pyarrow as pa

    text, about = pa.large_string(), file.metadata
    wanted = pa.schema({"key": pa.int64(), "id": text, "label": pa.int32(), "document": text, "metadata": text})
    if about.num_rows != n or not file.schema_arrow.equals(wanted):
        raise ValueError("it has not the rows that it was written with")
    groups = [about.row_group(number) for number in range(about.num_row_groups)]
    columns = [group.column(place) for group in groups for place in range(len(wanted))]
    size = sum(column.total_uncompressed_size for column in columns)
    # With a dictionary, a short file says a long text in many rows.
    coded = {kind for column in columns if column.path_in_schema != "label" for kind in column.encodings}
    if size > most or not coded <= {"PLAIN", "RLE"}:
        raise ValueError(f"it unpacks to {size} bytes, coded as {sorted(coded)}; {most} are the most")


def _decoded(encoded: list[str], ids: list[str]) -> list[Any]:
    """Return the mapping in each text; ValueError unless :func:`_encoded` makes these texts of them."""
    metadata: list[Any] = json.loads("[" + ",".join(encoded) + "]")  # one document of many is parsed a third faster
    if len(metadata) != len(encoded) or set(map(type, metadata)) - {dict} or _encoded(metadata) != encoded:
        raise ValueError("its metadata are not one mapping in each row")
    nested = [row for row, one in enumerate(encoded) if one.count("{") + one.count("[") > DEEPEST]
    checked_metadata([metadata[row] for row in nested], [ids[row] for row in nested])
    return metadata


# --- the manifest -----------------------------------------------------------------------------------------------------


def _read_manifest(folder: Path) -> dict[str, Any]:
    if not folder.exists():
        raise FileNotFoundError(f"there is no store at {folder}")
    source = folder / _MANIFEST
    if not source.is_file():
        raise ValueError(f"{folder} is not the directory of a store: it has no {_MANIFEST}")
    with _naming(folder):
        try:
            manifest = json.loads(source.read_bytes())
        except (ValueError, RecursionError) as error:
            raise _DamageError(f"{_MANIFEST} is not JSON: {error}") from error
        if not isinstance(manifest, dict) or manifest.get("format") != _FORMAT:
            raise _DamageError(f"{_MANIFEST} does not name the format {_FORMAT}")
        version = manifest.get("version")
        if version != _VERSION:
            raise ValueError(f"{folder} has format version {version}, this cfe_faiss reads version {_VERSION}")
        _check(manifest)
    return manifest


def _check(manifest: dict[str, Any]) -> None:
    """Raise an error unless the manifest says what it should, in the types that it should."""
    files, names = manifest.get("files"), manifest.get("class_names")
    numbers = [manifest.get(key) for key in ("d", "rows", "next_key")]
    right = all(type(number) is int and 0 <= number <= _LARGEST_KEY for number in numbers)
    right = right and isinstance(names, list) and _are_classes(names) and isinstance(files, dict)
    for part in ("index", "rows"):
        file = files.get(part) if isinstance(files, dict) else None
        right = right and isinstance(file, dict) and isinstance(file.get("name"), str)
        right = right and isinstance(file, dict) and bool(_FILES.fullmatch(file["name"]))
        right = right and isinstance(file, dict) and type(file.get("size")) is type(file.get("crc32")) is int
    if not right:
        raise _DamageError(f"{_MANIFEST} does not say what it should")


def _are_classes(names: list[Any]) -> bool:
    """Return whether names are those of different classes, all texts or all integers."""
    try:
        known = Table().with_classes(checked_labels("class_names", names, len(names))).class_names
    except (TypeError, ValueError):
        return False
    return list(known) == names and bool not in set(map(type, names))


@contextlib.contextmanager
def _naming(folder: Path) -> Iterator[None]:
    try:
        yield
    except _DamageError as error:
        raise ValueError(f"{folder} is damaged: {error}") from error


def _sums(path: Path, part: str) -> dict[str, int]:
    """Return the size of a file and its CRC-32; of an index that of its end, where the checksum of all checksums is."""
    with open_regular(path) as file:
        size = file.seek(0, os.SEEK_END)
        return {"size": size, "crc32": checksum(file, max(0, size - _TRAILER) if part == "index" else 0)}


def _is_part(path: Path) -> bool:
    """Return whether a file belongs to a version of a store, or was left by a killed writer."""
    return bool(_TEMPORARY.fullmatch(path.name) or (_FILES.fullmatch(path.name) and is_ours(path)))


def _check_target(folder: Path, path: Any, *, overwrite: bool) -> None:
    """Raise an error unless a folder holds a store, or nothing but files that a killed writer left of its first one."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise NotADirectoryError(f"{path} is a file, a store is saved into a directory")
    manifest = folder / _MANIFEST
    check_owner(manifest, overwrite=overwrite)
    if not (overwrite or manifest.exists() or all(map(_is_part, folder.iterdir()))):
        raise ValueError(
            f"{path} must be a new or an empty directory or that of a store, got one with other files; "
            "overwrite=True adds the store to them"
        )


def _named_files(folder: Path) -> set[str]:
    with contextlib.suppress(OSError, ValueError):
        return {file["name"] for file in _read_manifest(folder)["files"].values()}
    return set()


def _remove(folder: Path, names: set[str]) -> None:
    for name in names:
        with contextlib.suppress(OSError):
            (folder / name).unlink()
