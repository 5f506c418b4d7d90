"""Records that somebody has edited: each is read as it is, or is a ValueError that names the file."""

import json
import math
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from reference import with_rows
from stores import filled

import cfe_faiss as cfe
from cfe_faiss.scale import Job, ShardedEvidenceIndex, write_shards

pytest.importorskip("pyarrow")  # of stores and jobs
pytestmark = pytest.mark.usefixtures("without_sync")

N, D = 60, 4
RNG = np.random.default_rng(0)
X, LABELS, EDGES = (
    RNG.normal(size=(N, D)).astype(np.float32),
    RNG.integers(2, size=N),
    RNG.integers(N, size=(2, 90)),
)


def use_job(folder: Path) -> None:
    job = Job(folder)
    job.status()
    assert "Job" in repr(job)
    for read in (job.evidence, job.index, job.vectors):
        with pytest.raises(RuntimeError, match="has not finished"):
            list(read())  # type: ignore[call-overload]


FOLDERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "store": ("manifest.json", cfe.EvidenceStore.load),
    "shards": ("shards.json", ShardedEvidenceIndex.open),
    "job": ("job.json", use_job),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    filled(10)[0].save(folder / "store")
    index = with_rows(cfe.IndexEvidenceIVF(D, 4), X, LABELS)
    write_shards(index, folder / "shards", 2)
    Job(folder / "job", features=X, edges=EDGES, labels=LABELS, k=2, threshold=0.5)
    for kind, (_, use) in FOLDERS.items():
        use(folder / kind)
    return folder


def paths_in(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the places of all values in a record."""
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [path, *(place for name, part in inner for place in paths_in(part, (*path, name)))]


REMOVED = object()
VALUES = st.one_of(
    st.just(REMOVED),
    st.sampled_from(
        [
            None,
            True,
            False,
            0,
            1,
            -1,
            2,
            1 << 31,
            1 << 62,
            1 << 63,
            10**400,
            0.5,
            1e308,
            math.nan,
            math.inf,
        ]
    ),
    st.sampled_from(
        ["", "x", "../x", "/etc/passwd", "\0", "\ud800", [], {}, [[]], [None], {"": 1}]
    ),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
)


def edited(record: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Return a record with another value at a place."""
    if not path:
        return value
    first, *others = path
    changed: Any = record.copy()
    if value is REMOVED and not others:
        del changed[first]
    else:
        changed[first] = edited(record[first], tuple(others), value)
    return changed


def write(path: Path, record: Any) -> None:
    """Write a record; a list of shards with the checksum that it ought to have."""
    if path.name == "shards.json" and isinstance(record, dict) and "crc32" in record:
        record = record | {"crc32": None}
        record["crc32"] = zlib.crc32(json.dumps(record, sort_keys=True).encode())
    path.write_text(json.dumps(record))


@pytest.mark.parametrize("kind", FOLDERS)
@given(place=st.integers(0, 10_000), value=VALUES)
@example(place=0, value=[])
@example(place=0, value=3)
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_an_edited_record_is_read_or_named(kind: str, whole: Path, place: int, value: Any) -> None:
    name, use = FOLDERS[kind]
    path = whole / kind / name
    before = path.read_bytes()
    record = json.loads(before)
    paths = paths_in(record)
    where = paths[place % len(paths)]
    if not where and value is REMOVED:
        return
    try:
        write(path, edited(record, where, value))
        use(path.parent)
    except ValueError as error:
        assert str(path.parent) in str(error)  # noqa: PT017
    finally:
        path.write_bytes(before)


@pytest.mark.parametrize("kind", FOLDERS)
def test_each_field_of_a_record_is_needed_and_named(kind: str, whole: Path) -> None:
    name, use = FOLDERS[kind]
    path = whole / kind / name
    before = path.read_bytes()
    record = json.loads(before)
    for where in paths_in(record)[1:]:
        if where == ("crc32",) or isinstance(where[-1], int):
            continue
        for value in (REMOVED, [True], "\0"):
            write(path, edited(record, where, value))
            if where[0] == "class_names" and value == [True]:
                continue
            with pytest.raises(ValueError, match=rf"{name} (is damaged|must)") as caught:
                use(path.parent)
            assert str(where[-1]) in str(caught.value)
    path.write_bytes(before)
    use(path.parent)


@pytest.mark.parametrize("kind", FOLDERS)
def test_links_and_long_files_are_refused(kind: str, whole: Path, tmp_path: Path) -> None:
    name, use = FOLDERS[kind]
    folder = shutil.copytree(whole / kind, tmp_path / kind)
    (folder / name).rename(tmp_path / "elsewhere.json")
    (folder / name).symlink_to(tmp_path / "elsewhere.json")
    with pytest.raises(ValueError, match=rf"symbolic link, got '{name}'"):
        use(folder)
    (folder / name).unlink()
    with (folder / name).open("wb") as file:
        file.truncate(1 << 40)  # without blocks on disk
    with pytest.raises(ValueError, match=rf"{name} is damaged"):
        use(folder)


def test_the_index_of_a_job_is_not_followed_through_a_link(whole: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(whole / "job", tmp_path / "job")
    (folder / "index").symlink_to(whole / "shards")
    with pytest.raises(ValueError, match="symbolic link, got 'index'"):
        ShardedEvidenceIndex.open(folder)


def test_a_store_is_not_written_through_a_link(whole: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(whole / "store", tmp_path / "store")
    (folder / "manifest.json").unlink()
    victim = shutil.copy(whole / "store" / "manifest.json", tmp_path / "victim.json")
    (folder / "manifest.json").symlink_to(victim)
    names = sorted(folder.iterdir())
    with pytest.raises(ValueError, match="symbolic link"):
        filled(5)[0].save(folder, overwrite=True)
    assert sorted(folder.iterdir()) == names
    assert victim.read_bytes() == (whole / "store" / "manifest.json").read_bytes()


def test_what_cannot_be_read_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"settings\.num_layers must be an integer"):
        Job(tmp_path, features=X, edges=EDGES, labels=LABELS, num_layers=10**6)
    assert not (tmp_path / "job.json").exists()
