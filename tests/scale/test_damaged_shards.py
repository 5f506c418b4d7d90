"""Shards with damaged vectors or ids: a list is compared with its checksum when it is first read, and not before."""

import importlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
from index_files import as_version
from numpy.testing import assert_array_equal
from reference import assert_same_arrays, clustered, with_rows

import cfe_faiss as cfe
from cfe_faiss.scale import ShardedEvidenceIndex, write_shards

pytestmark = pytest.mark.usefixtures("without_sync")

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
N, D, NLIST, CLASSES = 900, 8, 30, 3
X, LABELS = clustered(N, D, CLASSES)
ALL = faiss.SearchParametersIVF(nprobe=NLIST)


@pytest.fixture(scope="module")
def index() -> cfe.IndexEvidenceIVF:
    return with_rows(cfe.IndexEvidenceIVF(D, NLIST), X, LABELS)


@pytest.fixture(scope="module")
def whole(index: cfe.IndexEvidenceIVF, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shards")
    write_shards(index, folder, 3)
    return folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return shutil.copytree(whole, tmp_path / "shards")


def damage(path: Path, number: int = 0) -> int:
    """Change a byte of a list that holds vectors: of its first vector, or with ``number`` 1 of its first id."""
    stock = faiss.read_index(str(path))
    lists = stock.invlists
    filled = next(j for j in range(lists.nlist) if lists.list_size(j))
    size = lists.list_size(filled)
    wanted = [
        faiss.rev_swig_ptr(lists.get_codes(filled), 4 * D * size),
        faiss.rev_swig_ptr(lists.get_ids(filled), size),
    ]
    content = bytearray(path.read_bytes())
    content[content.index(wanted[number].tobytes())] ^= 0x40
    path.write_bytes(content)
    return filled


READS: dict[str, Callable[[Any], Any]] = {
    "one query": lambda ix: ix.search_evidence(X[:1], LABELS[:1], 3, nprobe=NLIST),
    "queries": lambda ix: ix.search_evidence(X[:300], LABELS[:300], 3, nprobe=NLIST - 1),
    "stored rows": lambda ix: ix.search_stored(k=3, nprobe=NLIST),
    "exact": lambda ix: ix.search_stored(k=3, exact=True),
    "selected": lambda ix: ix.search_stored(k=3, nprobe=NLIST, sel=np.arange(N)),
    "at a recall": lambda ix: ix.search_stored(k=3, recall=0.9),
    "certified": lambda ix: ix.search_certified(k=3, nprobe=NLIST),
    "range": lambda ix: ix.range_search_evidence(X[:5], LABELS[:5], 0.1),
    "pairs": lambda ix: cfe.global_evidence(ix, 9),
    "a shard": lambda ix: ix.search_shard(0, 3, NLIST),
    "FAISS's search": lambda ix: ix.search(X[:5], 3, params=ALL),
    "FAISS's range search": lambda ix: ix.range_search(X[:5], 0.1, params=ALL),
    "FAISS's reconstruction": lambda ix: ix.search_and_reconstruct(X[:5], 3, params=ALL),
    "FAISS's codes": lambda ix: ix.search_and_return_codes(X[:5], 3),
    "reconstruction": lambda ix: ix.reconstruct_n(),
    "a copy": lambda ix: ix.to_stock(),
    "the index of a class": lambda ix: ix.class_index(0),
    "a clone": lambda ix: cfe.clone_index(ix.shards[0]),
    "bytes": lambda ix: cfe.serialize_index(ix),
    "centroids of classes": lambda ix: cfe.serialize_index(ix.shards[0]),
    "a direct map": lambda ix: ix.make_direct_map(),
}


@pytest.mark.parametrize("part", [0, 1], ids=["vectors", "ids"])
def test_every_read_of_a_damaged_list_is_an_error(part: int, folder: Path) -> None:
    path = sorted(folder.glob("*.index"))[0]
    number = damage(path, part)
    for name, read in READS.items():
        opened = ShardedEvidenceIndex.open(folder)  # a list is checked at its first read only
        message = rf"{path.name} is damaged: the checksum of its list {number} does"
        with pytest.raises(ValueError, match=message):
            pytest.fail(f"{name}: {read(opened)}")


def test_a_damaged_id_is_noticed_before_a_change(folder: Path) -> None:
    path = sorted(folder.glob("*.index"))[1]
    damage(path, 1)
    before = {one.name: one.read_bytes() for one in folder.iterdir()}
    with pytest.raises(ValueError, match=path.name):
        ShardedEvidenceIndex.open(folder).relabel([1], [7])
    assert {one.name: one.read_bytes() for one in folder.iterdir()} == before


def test_lists_that_are_not_read_are_not_checked(folder: Path, index: cfe.IndexEvidenceIVF) -> None:
    path = sorted(folder.glob("*.index"))[0]
    number = damage(path)
    opened = ShardedEvidenceIndex.open(folder)
    centroids = index.centroids()[0]
    far = centroids[np.argsort(centroids @ centroids[number])[:3]].copy()
    assert_same_arrays(opened.search(far, 3), index.search(far, 3))
    found = opened.search_evidence(far, [0, 1, 2], 2, nprobe=1)
    assert_array_equal(found[1], index.search_evidence(far, [0, 1, 2], 2, nprobe=1)[1])
    assert_array_equal(opened.members().ids, np.arange(N))
    with pytest.raises(ValueError, match="the checksum of its list"):
        opened.search(
            centroids[number : number + 1].copy(), 3, params=faiss.SearchParametersIVF(nprobe=1)
        )


def test_shards_of_version_0_2_are_read_and_said_not_to_be_checked(
    folder: Path, index: cfe.IndexEvidenceIVF
) -> None:
    for path in folder.glob("*.index"):
        as_version(path, 2)
    manifest = json.loads((folder / "shards.json").read_text()) | {"version": 1}
    for shard in manifest["shards"]:
        shard["size"] = (folder / shard["file"]).stat().st_size
    (folder / "shards.json").write_text(json.dumps(manifest))
    message = r"3 shards in .* are not checked when they are read: shard-.*write_shards"
    with pytest.warns(UserWarning, match=message):
        old = ShardedEvidenceIndex.open(folder)
    assert_same_arrays(old.search_stored(k=3), index.search_stored(k=3))
    write_shards(old, folder, 3)
    path = sorted(folder.glob("*.index"))[2]
    damage(path)
    with pytest.raises(ValueError, match=path.name):
        ShardedEvidenceIndex.open(folder).search_stored(k=3)


@pytest.mark.parametrize("count", [30, pytest.param(60, marks=pytest.mark.slow)])
def test_a_sample_of_damaged_files_gives_no_other_result(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sample is the same each time; ``benchmarks/fuzz_shards.py`` has the others."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    counts = importlib.import_module("fuzz_shards").fuzz(count, 1)
    assert sum(counts.values()) == count
    assert not any("WRONG" in name for name in counts), counts
