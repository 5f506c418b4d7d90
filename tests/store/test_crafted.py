"""Directories of a store that somebody has made by hand, with right checksums: each is refused, and named."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from reference import output_of
from stores import filled

import cfe_faiss as cfe
from cfe_faiss.store import arrow

pytestmark = pytest.mark.usefixtures("without_sync")

N = 20
Edit = Callable[[dict[str, list[Any]]], None]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store") / "s"
    filled(N)[0].save(folder)
    return folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return shutil.copytree(whole, tmp_path / "s")


def rows_path(folder: Path) -> Path:
    return next(folder.glob("rows*"))


def edit_manifest(folder: Path, **changes: Any) -> None:
    manifest = json.loads((folder / "manifest.json").read_text()) | changes
    manifest["files"]["rows"] |= arrow._sums(rows_path(folder), "rows")
    (folder / "manifest.json").write_text(json.dumps(manifest))


def write_rows(
    folder: Path, columns: dict[str, Any], schema: pa.Schema | None = None, **how: Any
) -> None:
    """Write rows in place of those of a store, and make the checksum right."""
    kinds = schema or pq.read_schema(rows_path(folder))
    pq.write_table(
        pa.table(columns, schema=kinds), rows_path(folder), **({"use_dictionary": ["label"]} | how)
    )
    edit_manifest(folder)


def swapped_cells(columns: dict[str, list[Any]]) -> None:
    """Let one cell hold two mappings and the next two one mapping together, so that their number is right."""
    columns["metadata"][3] = '{"a":1},{"b":2}'
    columns["metadata"][4:6] = ['{"c":[{"d":3}', '{"e":4}]}']


def cell(text: str) -> Edit:
    return lambda columns: columns["metadata"].__setitem__(3, text)


def value(column: str, row: int, new: Any) -> Edit:
    return lambda columns: columns[column].__setitem__(row, new)


ROWS: dict[str, Edit] = {
    "metadata of other rows": swapped_cells,
    "two mappings in a cell": cell('{"a":1},{"b":2}'),
    "a list": cell("[1]"),
    "nothing": cell(""),
    "null in a cell": cell("null"),
    "not a number": cell('{"a":nan}'),
    "a date that is none": cell('{"a":{"$arrow:date":"2020-13-01"}}'),
    "a date that is a number": cell('{"a":{"$arrow:date":3}}'),
    "a decimal that is no number": cell('{"a":{"$arrow:decimal":"NaN"}}'),
    "a value of an unknown type": cell('{"a":{"$arrow:point":"1"}}'),
    "a duration that is too long": cell('{"a":{"$arrow:duration":1000000000000000000000}}'),
    "bytes that are none": cell('{"a":{"$arrow:bytes":"%"}}'),
    "infinity": cell('{"a":1e999}'),
    "half of a surrogate": cell('{"a":"\\ud800"}'),
    "deep": cell('{"a":' * 100_000 + "1" + "}" * 100_000),
    "deeper than metadata may be": cell('{"a":' * 70 + "1" + "}" * 70),
    "no metadata": value("metadata", 3, None),
    "no id": value("id", 3, None),
    "an id twice": value("id", 3, "doc-4"),
    "no key": value("key", 3, None),
    "a negative key": value("key", 0, -1),
    "no label": value("label", 3, None),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_that_are_not_as_they_are_written_are_refused(name: str, folder: Path) -> None:
    columns = pq.read_table(rows_path(folder)).to_pydict()
    ROWS[name](columns)
    write_rows(folder, columns)
    for mmap in (False, True):
        with pytest.raises(ValueError, match=rf"{folder} is damaged: rows-.*\.parquet"):
            cfe.EvidenceStore.load(folder, mmap=mmap)


@pytest.mark.parametrize("column", ["id", "document", "metadata"])
def test_numbers_in_place_of_texts_are_refused(column: str, folder: Path) -> None:
    columns = pq.read_table(rows_path(folder)).to_pydict() | {column: list(range(N))}
    schema = pq.read_schema(rows_path(folder))
    write_rows(
        folder, columns, schema.set(schema.get_field_index(column), pa.field(column, pa.int64()))
    )
    with pytest.raises(ValueError, match="has not the rows that it was written with"):
        cfe.EvidenceStore.load(folder)


@pytest.mark.parametrize(
    "change",
    [
        {"next_key": 2**63 - 1},
        {"next_key": 10**30},
        {"class_names": ["ham", "ham", "eggs"]},
        {"class_names": ["ham", "\ud800", "eggs"]},
        {"class_names": [True, False, True]},
    ],
)
def test_manifests_that_no_store_writes_are_refused(change: dict[str, Any], folder: Path) -> None:
    (name,) = change
    edit_manifest(folder, **change)
    with pytest.raises(ValueError, match=rf"{folder}.* is damaged: .*({name})"):
        cfe.EvidenceStore.load(folder)


def test_a_mapped_store_compares_its_index_with_its_rows(folder: Path) -> None:
    columns = pq.read_table(rows_path(folder)).to_pydict()
    columns["label"][3] = (columns["label"][3] + 2) % 4 - 1
    write_rows(folder, columns)
    for mmap in (False, True):
        with pytest.raises(ValueError, match="its index is not of the same rows"):
            cfe.EvidenceStore.load(folder, mmap=mmap)


def test_rows_in_another_order_are_refused(folder: Path) -> None:
    columns = pq.read_table(rows_path(folder)).to_pydict()
    write_rows(folder, {name: values[::-1] for name, values in columns.items()})
    for mmap in (False, True):
        with pytest.raises(ValueError, match="its index is not of the same rows"):
            cfe.EvidenceStore.load(folder, mmap=mmap)


def test_lists_in_metadata_are_copied_out_of_a_store_that_was_loaded(folder: Path) -> None:
    store = cfe.EvidenceStore.load(folder)
    before = store.get(["doc-0"]).metadata[0]["tags"].copy()
    store.get(["doc-0"]).metadata[0]["tags"].clear()
    assert store.get(["doc-0"]).metadata[0]["tags"] == before != []


LOADED = """
import sys
from pathlib import Path
import cfe_faiss as cfe

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

sound, *folders = sys.argv[1:]
cfe.EvidenceStore.load(sound)  # loads the libraries: they take 35 to 70 MB, which depends on the machine
for folder in folders:
    before = peak()
    try:
        cfe.EvidenceStore.load(folder)
    except ValueError as error:
        print(peak() - before, error)
"""


def loaded(sound: Path, *folders: Path) -> list[tuple[int, str]]:
    """Load a sound store and damaged ones in a new process; return of each damaged one its memory and its error."""
    lines = [line.partition(" ") for line in output_of(LOADED, sound, *folders).splitlines()]
    return [(int(memory), message) for memory, _, message in lines]


def test_a_pipe_does_not_hang(whole: Path, tmp_path: Path) -> None:
    names = ("manifest.json", "rows*", "index*")
    folders = [shutil.copytree(whole, tmp_path / f"{place}") for place in range(len(names))]
    for folder, name in zip(folders, names, strict=True):
        path = next(folder.glob(name))
        path.unlink()
        os.mkfifo(path)
    refused = loaded(whole, *folders)
    found = [str(folder) in message for folder, (_, message) in zip(folders, refused, strict=True)]
    assert found == [True] * 3


BOMBS: list[dict[str, Any]] = [
    {"use_dictionary": True},
    {"column_encoding": {"document": "DELTA_BYTE_ARRAY"}},
    {"compression": "zstd"},
]


def test_rows_that_unpack_to_a_thousand_times_their_size_are_refused(
    whole: Path, tmp_path: Path
) -> None:
    folders = [shutil.copytree(whole, tmp_path / f"{place}") for place in range(len(BOMBS))]
    columns = pq.read_table(rows_path(whole)).to_pydict() | {"document": ["x" * (5 << 20)] * N}
    for folder, how in zip(folders, BOMBS, strict=True):
        write_rows(folder, columns, **({"compression": "zstd"} | how))
        assert rows_path(folder).stat().st_size < 1 << 18
    refused = loaded(whole, *folders)
    assert len(refused) == len(BOMBS)
    for memory, message in refused:
        assert "unpack" in message
        assert memory < 16 << 20  # of 100 MB


def test_saved_rows_are_loaded_at_any_compression(tmp_path: Path) -> None:
    store = cfe.EvidenceStore(2)
    store.add(list("ab"), np.eye(2), documents=["x" * (34 << 20)] * 2)
    store.save(tmp_path / "s")
    assert cfe.EvidenceStore.load(tmp_path / "s").get(["b"]).documents == ["x" * (34 << 20)]
