"""New labels of an index in shards: the files and the open index together, with the results of one index in memory."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import faiss
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from sharded_indexes import CLASSES, NLIST, SHARDS, D, X, assert_same, assert_tidy, started

import cfe_faiss as cfe
from cfe_faiss.scale import ShardedEvidenceIndex, write_shards

pytestmark = pytest.mark.usefixtures("without_sync")


@pytest.fixture
def both(tmp_path: Path) -> tuple[cfe.IndexEvidenceIVF, ShardedEvidenceIndex]:
    return started(tmp_path)


# --- the same as in memory --------------------------------------------------------------------------------------------


@given(data=st.data())
@settings(suppress_health_check=list(HealthCheck), deadline=None)
def test_relabelling_equals_the_same_in_memory(data: st.DataObject) -> None:
    with TemporaryDirectory() as name:
        index, sharded = started(Path(name))
        stored = index.members().ids.tolist()
        for _ in range(data.draw(st.integers(1, 4))):
            ids = data.draw(st.none() | st.lists(st.sampled_from(stored), unique=True, max_size=12))
            count = len(stored) if ids is None else len(ids)
            labels = data.draw(st.lists(st.integers(-1, CLASSES), min_size=count, max_size=count))
            for one in (index, sharded):
                one.relabel(np.array(labels, int), ids)
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
    assert {path.name for path in tmp_path.glob("*.index")} == now
    assert_same(index, sharded)


def test_a_map_of_ids_and_nprobe_stay(both: Any) -> None:
    index, sharded = both
    for one in (index, sharded):
        one.make_direct_map()
        one.nprobe = 7
        one.relabel([1] * 9, np.arange(9))
    assert_same(index, sharded)
    for i in (0, 3):
        assert_array_equal(faiss.IndexIVF.reconstruct(sharded, i), index.reconstruct(i))
    assert sharded.nprobe == 7


def test_changed_shards_are_split_again(both: Any, tmp_path: Path) -> None:
    index, sharded = both
    write_shards(sharded, tmp_path, 5)
    assert_same(index, ShardedEvidenceIndex.open(tmp_path))
    labels = (index.members().labels + 1) % CLASSES
    for one in (index, sharded):  # which has three shards open
        one.relabel(labels)
    assert len(sharded.shards) == 5
    assert_same(index, sharded)


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "ids"),
    [([1], [10**6]), ([1, 1], [3, 3]), ([1], [1, 2]), ([-2], [3]), ([0.5], [3]), ([1], [-3])],
)
def test_relabellings_are_refused_as_in_memory(
    labels: Any, ids: Any, both: Any, tmp_path: Path
) -> None:
    index, sharded = both
    before = sorted(tmp_path.iterdir())
    with pytest.raises((TypeError, ValueError)) as expected:
        index.relabel(labels, ids)
    with pytest.raises(type(expected.value)) as error:
        sharded.relabel(labels, ids)
    assert str(error.value) == str(expected.value)
    assert sorted(tmp_path.iterdir()) == before
    assert_same(index, sharded)


def test_other_changes_name_the_job(both: Any, tmp_path: Path) -> None:
    index, sharded = both
    before = sorted(tmp_path.iterdir())
    other = cfe.IndexEvidenceIVF(D, 4)
    for change in (
        lambda: sharded.add_with_labels(X[:1], [0]),
        lambda: sharded.add_with_ids(X[:1], [900]),
        lambda: sharded.add(X[:1]),
        lambda: sharded.update_vectors([0], X[:1]),
        lambda: sharded.remove_ids([0]),
        lambda: sharded.train(X),
        lambda: sharded.merge_from(other),
        sharded.reset,
    ):
        with pytest.raises(RuntimeError, match="Job"):
            change()
    assert sorted(tmp_path.iterdir()) == before
    assert_same(index, sharded)


def test_a_folder_that_holds_another_index_is_left_alone(both: Any, tmp_path: Path) -> None:
    _, sharded = both
    other = cfe.IndexEvidenceIVF(D, NLIST)
    other.train(X[::-1] + np.float32(0.1))
    other.add_with_labels(X, np.arange(len(X)) % 2)
    write_shards(other, tmp_path / "other", 2)
    for path in sorted((tmp_path / "other").iterdir(), reverse=True):
        path.replace(tmp_path / path.name)  # as another process might
    with pytest.raises(RuntimeError, match="another index"):
        sharded.relabel([1], [0])
    assert_same(other, ShardedEvidenceIndex.open(tmp_path))
    (tmp_path / "shards.json").unlink()
    left = sorted(tmp_path.iterdir())
    with pytest.raises(FileNotFoundError):
        sharded.relabel([1], [0])
    assert sorted(tmp_path.iterdir()) == left
