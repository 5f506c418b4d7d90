"""Shards of lists, opened as one index: the same results, to the last bit, as from the index that was split."""

import copy
import gc
import json
import os
import pickle
import shutil
import zlib
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from reference import assert_same_arrays, clustered, with_rows
from sharded_indexes import assert_same

import cfe_faiss as cfe
from cfe_faiss.scale import ShardedEvidenceIndex, write_shards
from cfe_faiss.scale import sharded as sharded_files
from cfe_faiss.scale.sharded import owners_of

pytestmark = pytest.mark.usefixtures("without_sync")

N, D, NLIST, CLASSES, SHARDS = 3000, 16, 60, 3, 4
X, LABELS = clustered(N, D, CLASSES)
IDS = np.random.default_rng(1).permutation(10**6)[:N].astype(np.int64)


@pytest.fixture(scope="module")
def index() -> cfe.IndexEvidenceIVF:
    return with_rows(cfe.IndexEvidenceIVF(D, NLIST), X, LABELS, IDS)


@pytest.fixture(scope="module")
def folder(index: cfe.IndexEvidenceIVF, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("shards")
    write_shards(index, place, SHARDS)
    return place


@pytest.fixture(scope="module")
def sharded(folder: Path) -> ShardedEvidenceIndex:
    return ShardedEvidenceIndex.open(folder)


@pytest.mark.parametrize("metric", ["cosine", "ip", "l2"])
def test_shards_give_the_results_of_the_index(metric: Any, tmp_path: Path) -> None:
    index: Any = with_rows(cfe.IndexEvidenceIVF(D, NLIST, metric=metric), X, LABELS, IDS)
    write_shards(index, tmp_path, SHARDS)
    sharded = ShardedEvidenceIndex.open(tmp_path)
    assert sharded.metric == metric
    assert_same(index, sharded, X=X, labels=LABELS)
    for one in (index, sharded):
        one.relabel((LABELS + 1) % 2)
    assert_same(index, sharded, ShardedEvidenceIndex.open(tmp_path), X=X, labels=LABELS)


def test_shards_have_their_centroids_in_common(folder: Path, tmp_path: Path) -> None:
    opened = ShardedEvidenceIndex.open(shutil.copytree(folder, tmp_path / "shards"))
    assert len({int(shard.quantizer.this) for shard in opened.shards}) == 1
    assert len({id(shard.centroids()) for shard in opened.shards}) == 1
    shard = opened.shards[1]
    expected = shard.search(X[:9], 3, params=faiss.SearchParametersIVF(nprobe=NLIST))
    assert (expected[1] >= 0).all()
    opened.relabel([0, 1], opened.members().ids[:2])
    assert len({int(shard.quantizer.this) for shard in opened.shards}) == 1
    del opened
    gc.collect()
    found = shard.search(X[:9], 3, params=faiss.SearchParametersIVF(nprobe=NLIST))
    assert_same_arrays(found, expected)
    cfe.write_index(shard, tmp_path / "shard.index")
    copied = cfe.read_index(tmp_path / "shard.index")
    assert_array_equal(copied.centroids(), shard.centroids())


@pytest.mark.parametrize("nprobe", [2, NLIST])
def test_shards_together_give_the_evidence_of_all(
    index: cfe.IndexEvidenceIVF, sharded: ShardedEvidenceIndex, nprobe: int
) -> None:
    parts = [sharded.search_shard(number, 6, nprobe) for number in range(SHARDS)]
    ids, D_found, I_found = (np.concatenate(part) for part in zip(*parts, strict=True))
    order = np.argsort(ids)
    assert_same_arrays((D_found[order], I_found[order]), index.search_stored(k=6, nprobe=nprobe))


def test_a_shard_is_an_ordinary_file(folder: Path, sharded: ShardedEvidenceIndex) -> None:
    sizes = [shard.ntotal for shard in sharded.shards]
    assert sum(sizes) == N
    assert max(sizes) < 1.5 * N / SHARDS
    for path, size in zip(sorted(folder.glob("*.index")), sizes, strict=True):
        assert type(cfe.read_index(path)) is cfe.IndexEvidenceIVF
        assert faiss.read_index(str(path)).ntotal == size
        cfe.verify_index(path)


def test_an_index_in_shards_is_written_into_one_file_and_pickled_as_a_path(
    index: cfe.IndexEvidenceIVF, sharded: ShardedEvidenceIndex, tmp_path: Path
) -> None:
    cfe.write_index(sharded, tmp_path / "one.index")
    one = cfe.read_index(tmp_path / "one.index")
    assert type(one) is cfe.IndexEvidenceIVF
    assert_same_arrays(one.search_stored(k=5, nprobe=3), index.search_stored(k=5, nprobe=3))
    other = ShardedEvidenceIndex.open(sharded.shards[0].origins[0].parent)
    other.nprobe = 3
    for again in (pickle.loads(pickle.dumps(other)), copy.copy(other), copy.deepcopy(other)):
        assert (
            repr(again)
            == f"ShardedEvidenceIndex(d={D}, nlist={NLIST}, shards={SHARDS}, nprobe=3, ntotal={N})"
        )


def test_shards_are_replaced_at_once(index: cfe.IndexEvidenceIVF, tmp_path: Path) -> None:
    write_shards(index, tmp_path, 2)
    old = ShardedEvidenceIndex.open(tmp_path)
    write_shards(index, tmp_path, 3)
    assert len(list(tmp_path.glob("*.index"))) == 3
    for one in (old, ShardedEvidenceIndex.open(tmp_path)):  # the old files are mapped still
        assert_same_arrays(one.search_stored(k=5, nprobe=3), index.search_stored(k=5, nprobe=3))


def test_a_write_that_fails_leaves_the_old_shards_and_no_others(
    index: cfe.IndexEvidenceIVF, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_shards(index, tmp_path, 2)
    before = sorted(tmp_path.iterdir())
    write = sharded_files.write_file

    def fails_later(one: cfe.IndexEvidenceIVF, path: Path, **how: Any) -> None:
        write(one, path, **how)
        if "0001" in path.name:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(sharded_files, "write_file", fails_later)
    with pytest.raises(OSError, match="No space left"):
        write_shards(index, tmp_path, 3)
    assert sorted(tmp_path.iterdir()) == before
    assert ShardedEvidenceIndex.open(tmp_path).ntotal == N


def signed(content: dict[str, Any]) -> str:
    """Return a list of shards with the checksum that it ought to have."""
    content = content | {"crc32": None}
    return json.dumps(content | {"crc32": zlib.crc32(json.dumps(content, sort_keys=True).encode())})


def test_errors_name_the_fault_of_the_files(index: cfe.IndexEvidenceIVF, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ShardedEvidenceIndex.open(tmp_path)
    write_shards(index, tmp_path, 2)
    first, second = sorted(tmp_path.glob("*.index"))
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    with pytest.raises(ValueError, match=rf"{first.name} is not the shard that was written"):
        ShardedEvidenceIndex.open(tmp_path)
    first.unlink()
    with pytest.raises(FileNotFoundError):
        ShardedEvidenceIndex.open(tmp_path)
    first.write_bytes(content)
    manifest = tmp_path / "shards.json"
    known = json.loads(manifest.read_text())
    for changed, message in (
        ("{", r"shards\.json is damaged"),
        ("[" * 100_000, r"shards\.json is damaged"),
        (json.dumps(known | {"version": 3}), "has version 3, this cfe_faiss reads version 1 and 2"),
        (json.dumps(known | {"shards": known["shards"][:1]}), r"checksum of shards\.json"),
        (signed(known | {"shards": []}), "names no shard"),
        (signed(known | {"parameters": {}}), r"parameters\.d is missing"),
        (
            signed(known | {"parameters": known["parameters"] | {"nprobe": 3}}),
            "nprobe is 16 .*and 3",
        ),
        (signed(known | {"shards": known["shards"][:1] * 2}), "lies in several shards"),
    ):
        manifest.write_text(changed)
        with pytest.raises(ValueError, match=message):
            ShardedEvidenceIndex.open(tmp_path)


@pytest.mark.parametrize("name", ["shards.json", "*.index"])
def test_a_pipe_in_place_of_a_file_is_refused(
    index: cfe.IndexEvidenceIVF, tmp_path: Path, name: str
) -> None:
    write_shards(index, tmp_path, 2)
    path = next(tmp_path.glob(name))
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ValueError, match=path.name):
        ShardedEvidenceIndex.open(tmp_path)


def test_arguments_are_checked(
    index: cfe.IndexEvidenceIVF, sharded: ShardedEvidenceIndex, tmp_path: Path
) -> None:
    with pytest.raises(TypeError, match="made by open"):
        ShardedEvidenceIndex(D, NLIST)
    with pytest.raises(TypeError, match="index must be an IndexEvidenceIVF"):
        write_shards(cfe.IndexEvidenceIDMap2(D), tmp_path, 2)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="one partition, got 2"):
        write_shards(cfe.IndexEvidenceIVF(D, 4, 2), tmp_path, 2)
    with pytest.raises(ValueError, match=r"shards .*got 1000"):
        write_shards(index, tmp_path, 1000)
    with pytest.raises(ValueError, match="number must be below 4"):
        sharded.search_shard(4, 5, 3)


@given(
    sizes=st.lists(st.integers(0, 50), min_size=2, max_size=30).filter(
        lambda sizes: sum(map(bool, sizes)) >= 2
    ),
    data=st.data(),
)
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_each_shard_gets_lists_that_hold_vectors(sizes: list[int], data: st.DataObject) -> None:
    shards = data.draw(st.integers(1, sum(map(bool, sizes))))
    rng = np.random.default_rng(len(sizes))
    centroids = rng.normal(size=(len(sizes), 5)).astype(np.float32)
    owners = owners_of(centroids, np.array(sizes), shards)
    held = np.bincount(owners, weights=sizes, minlength=shards)
    assert (held > 0).all()
    assert len(held) == shards


@pytest.mark.parametrize("name", ["../a", "/a", "link", 3])
def test_the_list_of_shards_names_files_of_its_folder_only(name: object, tmp_path: Path) -> None:
    index = cfe.IndexEvidenceIVF(4, 4)
    X = np.eye(4, dtype=np.float32)
    index.train(X)
    index.add_with_labels(X, np.arange(4))
    write_shards(index, tmp_path / "s", 2)
    manifest = json.loads((tmp_path / "s" / "shards.json").read_text())
    (tmp_path / "s" / "link").symlink_to(manifest["shards"][1]["file"])
    manifest["shards"][1]["file"] = name
    (tmp_path / "s" / "shards.json").write_text(signed(manifest))
    with pytest.raises(ValueError, match=r"s/shards\.json is damaged: shards\[1\]\.file"):
        ShardedEvidenceIndex.open(tmp_path / "s")


def test_shards_of_others_stay(tmp_path: Path) -> None:
    index = cfe.IndexEvidenceIVF(4, 4)
    X = np.eye(4, dtype=np.float32)
    index.train(X)
    index.add_with_labels(X, np.arange(4))
    alike = tmp_path / "shard-00000000-0000.index"
    write_shards(index, tmp_path, 2)
    alike.write_text("mine")
    write_shards(index, tmp_path, 3)
    assert alike.read_text() == "mine"


@pytest.mark.skipif(
    not Path("/proc/self/fd").exists(), reason="this system does not list open files"
)
def test_an_open_shard_takes_one_descriptor(
    index: cfe.IndexEvidenceIVF, sharded: ShardedEvidenceIndex
) -> None:
    before = len([*Path("/proc/self/fd").iterdir()])
    again = ShardedEvidenceIndex.open(sharded.shards[0].origins[0].parent)
    assert_same_arrays(again.search_stored(k=5, nprobe=3), index.search_stored(k=5, nprobe=3))
    assert len([*Path("/proc/self/fd").iterdir()]) <= before + SHARDS
