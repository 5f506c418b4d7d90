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
from sharded_indexes import CLASSES, FIRST, LABELS, LISTS, NLIST, SHARDS, D, X, assert_same, assert_tidy, started

import cfe_faiss as cfe
from cfe_faiss.scale import ShardedEvidenceIndex, write_shards

pytestmark = pytest.mark.usefixtures("without_sync")


@pytest.fixture
def both(tmp_path: Path) -> tuple[cfe.IndexEvidenceIVF, ShardedEvidenceIndex]:
    return started(tmp_path)


# --- the same as in memory --------------------------------------------------------------------------------------------


class Change:
    """A change that is drawn, and done to both."""

    def __init__(self, data: st.DataObject) -> None:
        self._data = data

    def of(self, index: cfe.IndexEvidenceIVF, sharded: ShardedEvidenceIndex) -> None:
        names = [
            "add",
            "add_unknown",
            "add_blocks",
            "relabel",
            "relabel_all",
            "relabel_blocks",
            "update",
            "remove",
            "remove_all",
        ]
        getattr(self, self._data.draw(st.sampled_from(names)))(index, sharded)

    def some(self, lowest: int = 0) -> NDArray[np.int64]:
        return np.array(self._data.draw(st.lists(st.integers(0, len(X) - 1), min_size=lowest, max_size=12)), np.int64)

    def new_ids(self, index: cfe.IndexEvidenceIVF, count: int) -> NDArray[np.int64]:
        free = np.setdiff1d(np.arange(4 * len(X)), index.members().ids)
        return np.random.default_rng(self._data.draw(st.integers(0, 2**32 - 1))).permutation(free)[:count]

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

    def update(self, index: cfe.IndexEvidenceIVF, sharded: ShardedEvidenceIndex) -> None:
        ids = self.stored(index)
        rows = np.array(
            self._data.draw(st.lists(st.integers(0, len(X) - 1), min_size=len(ids), max_size=len(ids))), int
        )
        labels = self.labels(len(ids)) if self._data.draw(st.booleans()) else None
        for one in (index, sharded):
            one.update_vectors(ids, X[rows], labels)

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
@settings(suppress_health_check=list(HealthCheck), deadline=None)
def test_changes_equal_the_same_changes_in_memory(data: st.DataObject) -> None:
    with TemporaryDirectory() as name:
        index, sharded = started(Path(name))
        for _ in range(data.draw(st.integers(1, 5))):
            Change(data).of(index, sharded)
            if data.draw(st.booleans()):
                sharded = ShardedEvidenceIndex.open(name)
        assert_same(index, sharded, ShardedEvidenceIndex.open(name))
        assert_tidy(Path(name), sharded)


def test_only_shards_that_change_are_written(both: Any, tmp_path: Path) -> None:
    index, sharded = both
    before = {path.name for path in tmp_path.glob("*.index")}
    in_shards = [shard.members().ids for shard in sharded.shards]
    for one in (index, sharded):
        one.relabel([7], in_shards[1][:1])
    now = {path.name for path in tmp_path.glob("*.index")}
    assert len(before & now) == SHARDS - 1
    sharded.relabel(index.members().labels)  # no change
    assert sharded.remove_ids([10**9]) == 0
    sharded.add_blocks([])
    sharded.add_with_labels(X[:0], LABELS[:0])
    assert {path.name for path in tmp_path.glob("*.index")} == now
    assert_same(index, sharded)


@pytest.mark.parametrize("routing", ["evidence", "nearest"])
def test_a_list_that_no_shard_held_is_filled(routing: str, tmp_path: Path) -> None:
    index = cfe.IndexEvidenceIVF(D, NLIST, routing=routing)
    index.train(X)
    index.add_with_labels(X[FIRST], LABELS[FIRST])
    write_shards(index, tmp_path, SHARDS)
    sharded = ShardedEvidenceIndex.open(tmp_path)
    empty = np.flatnonzero(LISTS.max() == LISTS)
    assert not np.isin(LISTS[empty], LISTS[FIRST]).any()
    for one in (index, sharded):
        one.add_with_labels(X[empty], np.full(len(empty), 9))
    assert_same(index, sharded, ShardedEvidenceIndex.open(tmp_path))


def test_an_index_that_was_emptied_is_filled_evenly(both: Any) -> None:
    index, sharded = both
    for one in (index, sharded):
        one.remove_ids(np.arange(10**4))
        one.add_with_labels(X, LABELS)
    assert_same(index, sharded)
    assert min(shard.ntotal for shard in sharded.shards) > len(X) / SHARDS / 3


def test_unknown_classes_a_map_of_ids_and_nprobe_stay(both: Any) -> None:
    index, sharded = both
    for one in (index, sharded):
        one.make_direct_map()
        one.nprobe = 7
        one.add(X[:30])
        one.relabel(LABELS[:9], np.arange(len(FIRST), len(FIRST) + 9))
    assert_same(index, sharded)
    for i in (0, len(FIRST) + 3):
        assert_array_equal(faiss.IndexIVF.reconstruct(sharded, i), index.reconstruct(i))
    assert sharded.nprobe == 7


def test_changed_shards_are_split_again(both: Any, tmp_path: Path) -> None:
    index, sharded = both
    for one in (index, sharded):
        one.add_with_labels(X, LABELS)
    write_shards(sharded, tmp_path, 5)
    assert_same(index, ShardedEvidenceIndex.open(tmp_path))
    labels = (index.members().labels + 1) % CLASSES
    for one in (index, sharded):  # which has three shards open
        one.relabel(labels)
    assert len(sharded.shards) == 5
    assert_same(index, sharded)


def test_lists_with_clusters_of_their_own_are_routed_as_in_memory(tmp_path: Path) -> None:
    many, labels = clustered(2600, 4, 3)
    index = cfe.IndexEvidenceIVF(4, 2100)
    index.cp.niter = 1
    index.train(many)
    index.add_with_labels(many[:1500], labels[:1500])
    write_shards(index, tmp_path, 2)
    sharded = ShardedEvidenceIndex.open(tmp_path)
    for one in (index, sharded):
        one.add_with_labels(many[1500:], labels[1500:])
        one.remove_ids(np.arange(0, 900, 7))
    for how in ({"nprobe": 3}, {"recall": 0.95}):
        for found, expected in zip(sharded.search_stored(k=3, **how), index.search_stored(k=3, **how), strict=True):
            assert_array_equal(found, expected)


# --- what is refused --------------------------------------------------------------------------------------------------

BAD_ADDITIONS = {
    "shape of x": ((X[:2, :3], LABELS[:2]), ValueError),
    "not finite": ((np.full((1, D), np.nan), [0]), ValueError),
    "labels": ((X[:2], LABELS[:3]), ValueError),
    "negative label": ((X[:1], [-1]), ValueError),
    "type of labels": ((X[:1], [0.5]), TypeError),
    "number of ids": ((X[:2], LABELS[:2], [900]), ValueError),
    "ids twice": ((X[:2], LABELS[:2], [900, 900]), ValueError),
    "negative id": ((X[:1], LABELS[:1], [-4]), ValueError),
    "stored id": ((X[:2], LABELS[:2], [900, 7]), ValueError),
}


@pytest.mark.parametrize("name", BAD_ADDITIONS)
def test_additions_are_refused_as_in_memory(name: str, both: Any, tmp_path: Path) -> None:
    (index, sharded), (arguments, kind) = both, BAD_ADDITIONS[name]
    before = sorted(tmp_path.iterdir())
    with pytest.raises(kind) as expected:
        index.add_with_labels(*arguments)
    for refused in (
        lambda: sharded.add_with_labels(*arguments),
        lambda: sharded.add_blocks([(X[:3], LABELS[:3], [901, 902, 903]), arguments]),
    ):
        with pytest.raises(kind) as error:
            refused()
        assert str(error.value) == str(expected.value)
        assert sorted(tmp_path.iterdir()) == before
    assert name == "stored id" or error.value.__notes__ == ["in block 1 of blocks, counted from 0"]
    assert_same(index, sharded)


@pytest.mark.parametrize(
    ("labels", "ids"), [([1], [10**6]), ([1, 1], [3, 3]), ([1], [1, 2]), ([-2], [3]), ([0.5], [3]), ([1], [-3])]
)
def test_relabellings_are_refused_as_in_memory(labels: Any, ids: Any, both: Any, tmp_path: Path) -> None:
    index, sharded = both
    before = sorted(tmp_path.iterdir())
    with pytest.raises((TypeError, ValueError)) as expected:
        index.relabel(labels, ids)
    for refused in (
        lambda: sharded.relabel(labels, ids),
        lambda: sharded.relabel_blocks([([0, 1], [5, 6]), (labels, ids)]),
    ):
        with pytest.raises(type(expected.value)) as error:
            refused()
        assert str(error.value) == str(expected.value)
    assert error.value.__notes__ == ["in block 1 of blocks, counted from 0"]
    assert sorted(tmp_path.iterdir()) == before
    assert_same(index, sharded)


def test_blocks_are_refused_that_are_none(both: Any) -> None:
    index, sharded = both
    for blocks, message in (
        (3, "blocks must be an iterable of .*, got int"),
        ((X, LABELS), "blocks must be tuples .*, got ndarray"),
        ([(X,)], "blocks must be tuples .*, got 1 values"),
    ):
        for change in (sharded.add_blocks, sharded.relabel_blocks):
            with pytest.raises(TypeError, match=message):
                change(blocks)
    with pytest.raises(ValueError, match="ids must be distinct, got 901 more than once"):
        sharded.add_blocks([(X[:1], LABELS[:1], [901])] * 2)
    with pytest.raises(ValueError, match="labels must have shape"):
        sharded.relabel(LABELS[:3])
    with pytest.raises(TypeError, match=r"x must be a faiss\.IDSelector, a mask or ids"):
        sharded.remove_ids("7")
    assert_same(index, sharded)


def test_a_folder_that_holds_another_index_is_left_alone(both: Any, tmp_path: Path) -> None:
    _, sharded = both
    other = cfe.IndexEvidenceIVF(D, NLIST)
    other.train(X[::-1] + np.float32(0.1))
    other.add_with_labels(X, LABELS)
    write_shards(other, tmp_path / "other", 2)
    for path in sorted((tmp_path / "other").iterdir(), reverse=True):
        path.replace(tmp_path / path.name)  # as another process might
    with pytest.raises(RuntimeError, match="are those of another index now; open them again"):
        sharded.add(X[:1])
    assert_same(other, ShardedEvidenceIndex.open(tmp_path))
    (tmp_path / "shards.json").unlink()
    left = sorted(tmp_path.iterdir())
    with pytest.raises(FileNotFoundError):
        sharded.add(X[:1])
    assert sorted(tmp_path.iterdir()) == left


def test_a_generator_or_a_selector_that_uses_the_index(both: Any) -> None:
    _, sharded = both
    before, n = sharded.members().ids, sharded.ntotal

    def blocks() -> Any:
        sharded.reconstruct(int(before[0]))
        sharded.remove_ids(before[:1])
        yield X[:1], LABELS[:1]

    with pytest.raises(RuntimeError, match="cannot be changed while the same thread reads or changes it"):
        sharded.add_blocks(blocks())
    assert sharded.ntotal == n
    first = faiss.PyCallbackIDSelector(lambda i: bool((sharded.reconstruct(i) >= -2).all()) and i == before[0])
    assert sharded.remove_ids(first) == 1
