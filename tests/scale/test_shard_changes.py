"""Changes of an index in shards: the files and the open index together, with the results of one index in memory."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import faiss
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from numpy.typing import NDArray
from reference import clustered

import cfe_faiss as cfe
from cfe_faiss.scale import ShardedEvidenceIndex, write_shards

D, NLIST, CLASSES, SHARDS = 6, 12, 3, 3
X, LABELS = clustered(400, D, CLASSES)
TRAINED = cfe.IndexEvidenceIVF(D, NLIST)
TRAINED.train(X)
LISTS = TRAINED.quantizer.search(X, 1)[1][:, 0]
FIRST = np.flatnonzero(LISTS < 5)[:40]  # so that most lists are in no shard at first


def started(folder: Path) -> tuple[cfe.IndexEvidenceIVF, ShardedEvidenceIndex]:
    """Return an index in memory that holds the first vectors, and the same one in shards."""
    index = cfe.IndexEvidenceIVF(D, NLIST)
    index.train(X)
    index.add_with_labels(X[FIRST], LABELS[FIRST])
    write_shards(index, folder, SHARDS)
    return index, ShardedEvidenceIndex.open(folder)


@pytest.fixture
def both(tmp_path: Path) -> tuple[cfe.IndexEvidenceIVF, ShardedEvidenceIndex]:
    return started(tmp_path)


def results(index: Any) -> list[Any]:
    """Return what searches of every kind find."""
    known = index.members()
    found = [index.ntotal, known.ids, known.labels, index.reconstruct_batch(known.ids)]
    for how in ({"nprobe": 2}, {"nprobe": 5}, {"exact": True}, {"recall": 0.9}):
        if index.ntotal or "recall" not in how:
            found += index.search_members(k=4, **how)
            found += index.search_evidence(X[:20] + np.float32(0.01), LABELS[:20], 4, **how)
            found += index.search_evidence(X[:1], LABELS[:1], 4, **how)
    if index.ntotal:
        pairs = cfe.global_evidence(index, 15)
        found += [pairs.source, pairs.target, pairs.similarity, *index.search_certified(k=3, nprobe=4)]
    return [*found, *index.range_search_evidence(X[:9], LABELS[:9], 0.7), *index.search(X[:9], 3)]


def assert_same(index: Any, sharded: Any) -> None:
    for one, other in zip(results(sharded), results(index), strict=True):
        assert_array_equal(one, other)


def assert_tidy(folder: Path, sharded: ShardedEvidenceIndex) -> None:
    """Check that the folder holds ordinary index files of the shards, and nothing else."""
    paths = sorted(folder.glob("shard-*.index"))
    assert sorted(folder.iterdir()) == [*paths, folder / "shards.json"]
    assert len(paths) == len(sharded.shards)
    assert sum(faiss.read_index(str(path)).ntotal for path in paths) == sharded.ntotal
    for path in paths:
        cfe.verify_index(path)


# --- the same as in memory --------------------------------------------------------------------------------------------


class Change:
    """A change that is drawn, and done to both."""

    def __init__(self, data: st.DataObject) -> None:
        self._data = data

    def of(self, index: cfe.IndexEvidenceIVF, sharded: ShardedEvidenceIndex) -> None:
        names = ["add", "add_unknown", "add_blocks", "relabel", "relabel_all", "relabel_blocks", "remove", "remove_all"]
        getattr(self, self._data.draw(st.sampled_from(names)))(index, sharded)

    def some(self, lowest: int = 0) -> NDArray[np.int64]:
        return np.array(self._data.draw(st.lists(st.integers(0, len(X) - 1), min_size=lowest, max_size=12)), np.int64)

    def new_ids(self, index: cfe.IndexEvidenceIVF, count: int) -> NDArray[np.int64]:
        free = np.setdiff1d(np.arange(4 * len(X)), index.members().ids)
        return self._data.draw(st.permutations(free.tolist()).map(lambda ids: np.array(ids[:count], np.int64)))

    def stored(self, index: cfe.IndexEvidenceIVF) -> NDArray[np.int64]:
        ids = index.members().ids.tolist()
        chosen = st.lists(st.sampled_from(ids), unique=True, max_size=12) if ids else st.just([])
        return np.array(self._data.draw(chosen), np.int64)

    def labels(self, count: int) -> NDArray[np.int64]:
        return np.array(self._data.draw(st.lists(st.integers(-1, CLASSES), min_size=count, max_size=count)), np.int64)

    def add(self, index: cfe.IndexEvidenceIVF, sharded: ShardedEvidenceIndex) -> None:
        rows = self.some()
        ids = self.new_ids(index, len(rows))
        for one in (index, sharded):
            one.add_with_labels(X[rows], LABELS[rows], ids)

    def add_unknown(self, index: cfe.IndexEvidenceIVF, sharded: ShardedEvidenceIndex) -> None:
        rows = self.some()
        ids = self.new_ids(index, len(rows))
        for one in (index, sharded):
            one.add_with_ids(X[rows], ids)

    def add_blocks(self, index: cfe.IndexEvidenceIVF, sharded: ShardedEvidenceIndex) -> None:
        blocks: list[tuple[Any, ...]] = []
        ids = self.new_ids(index, 36)
        for number in range(self._data.draw(st.integers(0, 3))):
            rows = self.some()
            blocks.append((X[rows], LABELS[rows], ids[12 * number :][: len(rows)]))
        for block in blocks:
            index.add_with_labels(*block)
        sharded.add_blocks(iter(blocks))

    def relabel(self, index: cfe.IndexEvidenceIVF, sharded: ShardedEvidenceIndex) -> None:
        ids = self.stored(index)
        labels = self.labels(len(ids))
        for one in (index, sharded):
            one.relabel(labels, ids)

    def relabel_all(self, index: cfe.IndexEvidenceIVF, sharded: ShardedEvidenceIndex) -> None:
        labels = np.roll(index.members().labels, self._data.draw(st.integers(0, 3)))
        for one in (index, sharded):
            one.relabel(labels)

    def relabel_blocks(self, index: cfe.IndexEvidenceIVF, sharded: ShardedEvidenceIndex) -> None:
        blocks = []
        for _ in range(self._data.draw(st.integers(0, 3))):
            ids = self.stored(index)
            blocks.append((self.labels(len(ids)), ids))
        for block in blocks:
            index.relabel(*block)
        sharded.relabel_blocks(blocks)

    def remove(self, index: cfe.IndexEvidenceIVF, sharded: ShardedEvidenceIndex) -> None:
        ids = np.append(self.stored(index), 10**9)
        assert sharded.remove_ids(ids) == index.remove_ids(ids) == len(ids) - 1

    def remove_all(self, index: cfe.IndexEvidenceIVF, sharded: ShardedEvidenceIndex) -> None:
        everything = np.ones(index.ntotal, bool)
        assert sharded.remove_ids(everything) == index.remove_ids(everything)


@given(data=st.data())
@settings(max_examples=40, suppress_health_check=list(HealthCheck), deadline=None)
def test_any_changes_give_what_they_give_in_memory(data: st.DataObject) -> None:
    with TemporaryDirectory() as name:
        index, sharded = started(Path(name))
        for _ in range(data.draw(st.integers(1, 5))):
            Change(data).of(index, sharded)
            if data.draw(st.booleans()):
                sharded = ShardedEvidenceIndex.open(name)
        assert_same(index, sharded)
        assert_same(index, ShardedEvidenceIndex.open(name))
        assert_tidy(Path(name), sharded)
