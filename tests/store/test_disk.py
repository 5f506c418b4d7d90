import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_array_equal
from stores import INDEXES, filled, made

import cfe_faiss as cfe
from cfe_faiss.store import arrow

pytestmark = pytest.mark.usefixtures("without_sync")


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def assert_same(one: cfe.EvidenceStore, two: cfe.EvidenceStore) -> None:
    a, b = one.get(), two.get()
    assert (a.ids, a.labels, a.metadata, a.documents) == (b.ids, b.labels, b.metadata, b.documents)
    assert_array_equal(a.vectors, b.vectors)
    assert one.class_names == two.class_names
    for where in (None, {"lang": "de"}):
        for x in a.vectors[:3]:
            assert one.search(x, 5, where).ids == two.search(x, 5, where).ids
            assert one.evidence(x, 5, "ham", where).ids == two.evidence(x, 5, "ham", where).ids


@pytest.mark.parametrize("index", INDEXES)
def test_round_trip(index: str, tmp_path: Path) -> None:
    store, _ = filled(300, index=index)
    store.delete(where={"year": 2001})
    store.upsert(
        ["ü", "x"],
        np.ones((2, 8)),
        ["Käse", None],
        [{"ß": 'ö\n"[,', "big": 10**40, "f": 0.1 + 0.2}, {}],
    )
    store.save(tmp_path / "s")
    again = cfe.EvidenceStore.load(str(tmp_path / "s"))
    assert_same(store, again)
    assert type(again.index) is type(store.index)
    mapped = cfe.EvidenceStore.load(tmp_path / "s", mmap=True)
    assert_same(store, mapped)
    for one in (again, store):
        one.upsert(["new", "x"], np.eye(2, 8), ["ham", "ham"])
        one.delete(["doc-4"])
        one.relabel({"doc-3": "eggs"})
    assert_same(store, again)
    store.save(tmp_path / "s")
    assert_same(store, cfe.EvidenceStore.load(tmp_path / "s"))
    assert len(mapped.search(np.ones(8), 5)) == 5  # from the file that was replaced
    for change in (
        lambda: mapped.add(["n"], np.ones((1, 8))),
        lambda: mapped.upsert(["x"], np.ones((1, 8))),
        lambda: mapped.delete(["x"]),
        lambda: mapped.relabel({"x": "ham"}),
        lambda: mapped.update_metadata(["x"], [{"a": 1}]),
    ):
        with pytest.raises(RuntimeError, match="cannot be changed"):
            change()
    mapped.save(tmp_path / "t")
    assert_same(mapped, cfe.EvidenceStore.load(tmp_path / "t"))


def test_integer_classes_and_an_empty_store(tmp_path: Path) -> None:
    store = cfe.EvidenceStore(3, class_names=[4, 2])
    store.save(tmp_path)
    again = cfe.EvidenceStore.load(tmp_path)
    assert (len(again), again.class_names, again.d) == (0, (4, 2), 3)
    again.add(["a", "b"], np.eye(2, 3), [2, 7])
    again.delete(["a"])
    again.save(tmp_path)
    again = cfe.EvidenceStore.load(tmp_path)
    assert (again.get().labels, again.class_names) == ([7], (4, 2, 7))
    again.add(["c"], np.eye(1, 3))
    assert again.index.members().ids.tolist() == [1, 2]  # no key is used twice


def test_the_rows_can_be_read_by_others(tmp_path: Path) -> None:
    store, rows = filled(20)
    store.save(tmp_path / "s")
    found = sorted(re.sub("[0-9a-f]{16}", "*", name) for name in names_in(tmp_path / "s"))
    assert found == ["index-*.cfe", "manifest.json", "rows-*.parquet"]
    table = pq.read_table(next((tmp_path / "s").glob("*.parquet")))
    assert table["id"].to_pylist() == rows.ids
    assert [json.loads(one) for one in table["metadata"].to_pylist()] == rows.metadata


def test_a_store_takes_the_place_of_another_one_only(tmp_path: Path) -> None:
    store, _ = filled(20)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="must be a new or an empty directory or that of a store"):
        store.save(tmp_path)
    with pytest.raises(NotADirectoryError, match="is a file"):
        store.save(tmp_path / "notes.txt")
    assert names_in(tmp_path) == ["notes.txt"]
    store.save(tmp_path / "deep" / "s")
    assert len(cfe.EvidenceStore.load(tmp_path / "deep" / "s")) == 20
    (tmp_path / "deep" / "s" / "notes.txt").write_text("mine")
    store.save(tmp_path / "deep" / "s")
    assert len(names_in(tmp_path / "deep" / "s")) == 4
    with pytest.raises(FileNotFoundError, match="nowhere"):
        cfe.EvidenceStore.load(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"directory of a store: it has no manifest\.json"):
        cfe.EvidenceStore.load(tmp_path / "deep")


def edited(**changes: Any) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        manifest = json.loads((folder / "manifest.json").read_text())
        (folder / "manifest.json").write_text(json.dumps(manifest | changes))

    return edit


def flipped(pattern: str, place: int) -> Callable[[Path], None]:
    def flip(folder: Path) -> None:
        path = next(folder.glob(pattern))
        content = bytearray(path.read_bytes())
        content[place] ^= 0x40
        path.write_bytes(content)

    return flip


def cut(pattern: str) -> Callable[[Path], None]:
    return lambda folder: os.truncate(path := next(folder.glob(pattern)), path.stat().st_size - 5)


DAMAGE: dict[str, tuple[Callable[[Path], None], str]] = {
    "version": (edited(version=4), "has version 4, this cfe_faiss reads version 1 and 2 and 3"),
    "format": (edited(format="x"), "format must be one of 'cfe_faiss.EvidenceStore', got 'x'"),
    "files": (edited(files={}), r"files\.index is missing"),
    "outside": (
        edited(files={part: {"name": "../x", "size": 1, "crc32": 1} for part in ("index", "rows")}),
        r"files\.index\.name must be the name of an index file",
    ),
    "classes": (edited(class_names=["x"]), "a class or a key that the manifest does not know"),
    "no classes": (edited(class_names=["x", 3.5]), "class_names"),
    "rows": (edited(rows=19), "has not the rows that it was written with"),
    "next key": (edited(next_key=3), "a class or a key that the manifest does not know"),
    "d": (edited(d=9), "its index is of 20 vectors of 8 dimensions"),
    "no json": (
        lambda folder: (folder / "manifest.json").write_text("{") and None,
        r"manifest\.json is damaged",
    ),
    "manifest is a list": (
        lambda folder: (folder / "manifest.json").write_text("[]") and None,
        "must be a mapping",
    ),
    "rows flipped": (flipped("rows*", 200), "the checksum of rows-.* does not match"),
    "rows cut": (cut("rows*"), "the checksum of rows-.* does not match"),
    "rows missing": (lambda folder: next(folder.glob("rows*")).unlink(), "rows-.* is missing"),
    "index flipped": (flipped("index*", 300), "damaged: the checksum of its"),
    "index cut": (cut("index*"), "the checksum of index-.* does not match"),
    "index missing": (lambda folder: next(folder.glob("index*")).unlink(), "index-.* is missing"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_named(name: str, tmp_path: Path) -> None:
    store, _ = filled(20)
    store.save(tmp_path / "s")
    damage, message = DAMAGE[name]
    damage(tmp_path / "s")
    with pytest.raises(ValueError, match=message) as caught:
        cfe.EvidenceStore.load(tmp_path / "s")
    assert str(tmp_path / "s") in str(caught.value)


def test_an_index_of_another_store_is_noticed(tmp_path: Path) -> None:
    for name in ("a", "b"):
        filled(20, seed=len(name))[0].save(tmp_path / name)
    (index,), (other,) = (list((tmp_path / name).glob("index*")) for name in ("a", "b"))
    manifest = json.loads((tmp_path / "a" / "manifest.json").read_text())
    store = cfe.EvidenceStore.load(tmp_path / "b")
    store.relabel({"doc-0": "ham" if store.get(["doc-0"]).labels != ["ham"] else "spam"})
    cfe.write_index(store.index, other)
    index.write_bytes(other.read_bytes())
    with pytest.raises(ValueError, match=r"the checksum of index-.* does not match"):
        cfe.EvidenceStore.load(tmp_path / "a")
    manifest["files"]["index"] |= arrow._sums(index, "index")
    (tmp_path / "a" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match="its index is not of the same rows"):
        cfe.EvidenceStore.load(tmp_path / "a")


@pytest.mark.parametrize("step", ["write_file", "_write_rows", "new_file", "_sums"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_a_save_that_fails_leaves_the_old_store_and_nothing_else(
    step: str, error: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, _ = filled(20)
    store.save(tmp_path / "s")
    before = names_in(tmp_path / "s")
    store.delete(["doc-1"])

    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(arrow, step, fail)
    with pytest.raises(error):
        store.save(tmp_path / "s")
    monkeypatch.undo()
    assert names_in(tmp_path / "s") == before
    assert "doc-1" in cfe.EvidenceStore.load(tmp_path / "s")
    store.save(tmp_path / "s")
    assert "doc-1" not in cfe.EvidenceStore.load(tmp_path / "s")
    assert len(names_in(tmp_path / "s")) == 3


SAVER = """
import os, sys, numpy as np, cfe_faiss as cfe
import pyarrow as pa
pa.array([""])  # imports pandas, once for all writers
store = cfe.EvidenceStore(16)
store.add([str(i) for i in range(5000)], np.random.default_rng(0).normal(size=(5000, 16)), documents=["x" * 100] * 5000)
for _ in range(int(sys.argv[2])):
    pid = os.fork()
    while pid == 0:
        store.save(sys.argv[1])
        print(os.getpid(), flush=True)
    os.waitpid(pid, 0)
    print("killed", flush=True)
"""


def test_killed_writers_leave_a_store(tmp_path: Path) -> None:
    delays = (0.0, 0.004, 0.011, 0.023, 0.037)
    command = [sys.executable, "-c", SAVER, str(tmp_path / "s"), str(len(delays))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for delay in delays:
            writer = int(process.stdout.readline())
            time.sleep(delay)
            os.kill(writer, signal.SIGKILL)
            while process.stdout.readline() != "killed\n":
                pass
            assert len(cfe.EvidenceStore.load(tmp_path / "s")) == 5000
    other, _ = filled(10)
    other.save(tmp_path / "s")
    assert len(names_in(tmp_path / "s")) == 3  # files of killed writers are gone


def test_saving_and_loading_side_by_side(tmp_path: Path) -> None:
    stores = []
    for seed in range(2):
        store = cfe.EvidenceStore(8)
        made(50, seed=seed).put(store)
        store.relabel(None, [f"class {seed}"] * 50)
        stores.append(store)
    stores[0].save(tmp_path / "s")
    errors: list[BaseException] = []
    over = threading.Event()

    def save(store: cfe.EvidenceStore) -> None:
        try:
            for _ in range(8):
                store.save(tmp_path / "s")
        except BaseException as error:
            errors.append(error)

    def load() -> None:
        try:
            while not over.is_set():
                labels = set(cfe.EvidenceStore.load(tmp_path / "s").get().labels)
                assert labels in ({"class 0"}, {"class 1"})
        except BaseException as error:
            errors.append(error)

    writers = [threading.Thread(target=save, args=(store,)) for store in stores]
    reader = threading.Thread(target=load)
    for thread in (reader, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    over.set()
    reader.join()
    if errors:
        raise errors[0]
    assert len(names_in(tmp_path / "s")) == 3


def test_files_of_others_stay(tmp_path: Path) -> None:
    store, _ = filled(20)
    (tmp_path / "manifest.json").write_text('{"name": "my app"}')
    with pytest.raises(ValueError, match=r"manifest\.json is a file that cfe_faiss"):
        store.save(tmp_path)
    assert (tmp_path / "manifest.json").read_text() == '{"name": "my app"}'
    (tmp_path / "manifest.json").unlink()
    alike = tmp_path / f"rows-{'0' * 16}.parquet"
    pq.write_table(
        pq.ParquetFile(written_rows(store, tmp_path / "other")).read().replace_schema_metadata({}),
        alike,
    )
    with pytest.raises(ValueError, match="must be a new or an empty directory or that of a store"):
        store.save(tmp_path / "other" / "..")
    store.save(tmp_path, overwrite=True)
    store.save(tmp_path)
    assert alike.exists()


def written_rows(store: cfe.EvidenceStore, folder: Path) -> Path:
    store.save(folder)
    return next(folder.glob("rows*"))


@pytest.mark.parametrize("part", ["index", "rows"])
def test_parts_that_are_links_are_refused(part: str, tmp_path: Path) -> None:
    filled(20)[0].save(tmp_path / "s")
    path = next((tmp_path / "s").glob(f"{part}*"))
    path.symlink_to(path.rename(tmp_path / "elsewhere"))
    with pytest.raises(ValueError, match=rf"s/manifest\.json, {part}, must name no symbolic link"):
        cfe.EvidenceStore.load(tmp_path / "s")


@pytest.mark.parametrize("mmap", [False, True])
def test_rows_that_an_interrupted_change_left_in_the_index_are_removed(
    mmap: bool, tmp_path: Path
) -> None:
    """Up to version 0.2 an interrupted upsert could leave the old rows in the index, and they could be saved."""
    store, rows = filled(20)
    store.save(tmp_path / "s")
    expected = store.search(rows.vectors[3], 20).ids
    path = next((tmp_path / "s").glob("index*"))
    store.index.add_with_labels(rows.vectors[3:5], [0, 0])
    other = tmp_path / "other.cfe"
    cfe.write_index(store.index, other)
    path.write_bytes(other.read_bytes())
    manifest = json.loads((tmp_path / "s" / "manifest.json").read_text())
    manifest["files"]["index"] |= arrow._sums(path, "index")
    (tmp_path / "s" / "manifest.json").write_text(json.dumps(manifest))
    again = cfe.EvidenceStore.load(tmp_path / "s", mmap=mmap)
    assert (len(again), again.index.ntotal) == (20, 20)
    assert again.search(rows.vectors[3], 20).ids == expected
