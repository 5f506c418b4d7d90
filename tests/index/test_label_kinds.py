"""Labels of every kind come back as what they were, from every entry, copy, file and shard of an index."""

import pickle
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from reference import assert_same_arrays, clustered

import cfe_faiss as cfe
from cfe_faiss.scale import ShardedEvidenceIndex, write_shards

pd: Any = pytest.importorskip("pandas")
pa: Any = pytest.importorskip("pyarrow")
torch: Any = pytest.importorskip("torch")

DIM, N = 4, 24
X, NUMBERS = clustered(N, DIM, 3)
SETS: dict[str, list[Any]] = {
    "booleans": [False, True],
    "numbers": [0, 1, 7],
    "mixed": [True, 0, 1, "0", "1", "True"],
}


def index_of(kind: str, labels: Any, **options: Any) -> Any:
    index: Any = cfe.index_factory(DIM, kind)
    if not index.is_trained:
        index.train(X)
    index.add_with_labels(X[: len(labels)], labels, **options)
    return index


def typed(labels: Any) -> list[tuple[type, Any]]:
    return [(type(one), one) for one in labels.tolist()]


@pytest.mark.parametrize("kind", ["IDMap2,EvidenceFlat", "EvidenceIVF3,Flat"])
@pytest.mark.parametrize("names", SETS.values(), ids=SETS)
def test_labels_come_back_as_they_were(kind: str, names: list[Any], tmp_path: Path) -> None:
    labels = [names[number % len(names)] for number in range(N)]
    index = index_of(kind, labels)
    numbered = index_of(
        kind,
        [names.index(one) if names is not SETS["mixed"] else i % 6 for i, one in enumerate(labels)],
    )
    cfe.write_index(index, tmp_path / "one.index")
    cfe.verify_index(tmp_path / "one.index")
    copies = [
        index,
        pickle.loads(pickle.dumps(index)),
        cfe.clone_index(index),
        cfe.read_index(tmp_path / "one.index"),
        cfe.read_index(tmp_path / "one.index", faiss.IO_FLAG_MMAP),
    ]
    if not kind.endswith("EvidenceFlat"):
        write_shards(index, tmp_path / "shards", 2)
        copies.append(ShardedEvidenceIndex.open(tmp_path / "shards"))
    for one in copies:
        assert typed(one.members().labels) == [(type(label), label) for label in labels]
        assert typed(one.label_names) == [(type(label), label) for label in names]
        for row in range(6):
            found = one.search_evidence(X[row : row + 1], labels[row : row + 1], 4, exact=True)
            expected = numbered.search_evidence(X[row : row + 1], [row % len(names)], 4, exact=True)
            assert_array_equal(found[1], expected[1])
            single = np.array(labels[row : row + 1])
            assert_array_equal(one.search_evidence(X[row : row + 1], single, 4)[0].shape, (1, 4))
        chosen = one.search(
            X[:3], 4, params=cfe.EvidenceParameters(labels[:3], targets=[names[1]], exact=True)
        )[1]
        assert {type(labels[i]) for i in chosen.ravel() if i >= 0} <= {type(names[1])}
        pairs = cfe.global_evidence(one, 3, where=cfe.Constraints(target=names[0]))
        assert all(
            labels[i] is names[0] or labels[j] is names[0]
            for i, j in zip(pairs.source, pairs.target, strict=True)
        )


def test_booleans_are_arrays_of_booleans() -> None:
    index = index_of("IDMap2,EvidenceFlat", NUMBERS > 0)
    assert index.label_names.dtype == index.members().labels.dtype == np.bool_
    assert_array_equal(index.members().labels, NUMBERS > 0)
    index.relabel([None, False], [0, 1])
    assert index.members().labels[:2].tolist() == [None, False]
    assert index.recall_by_class(0.9) == {False: 1.0, True: 1.0}
    for wrong in ([1], np.array([1]), ["True"]):
        with pytest.raises(TypeError, match="labels must be booleans, as the labels of the index"):
            index.relabel(wrong, [0])
        with pytest.raises(TypeError, match="labels_q must be booleans, as the labels"):
            index.search_evidence(X[:1], wrong, 2)
    with pytest.raises(TypeError, match=r"labels_q .*got True"):
        index_of("IDMap2,EvidenceFlat", NUMBERS).search_evidence(X[:1], np.array([True]), 2)


@given(st.lists(st.sampled_from([None, 1, 2, 3]), min_size=N, max_size=N))
def test_labels_of_every_library(labels: list[Any]) -> None:
    expected = [-1 if label is None else label for label in labels]
    for values in (
        pd.Series(labels, dtype="Int64"),
        pd.Series(labels, dtype=float),
        pd.Categorical(labels),
        pa.array(labels, pa.int64()),
        pl.Series(labels),
        np.array([*labels, None], object)[:-1],
    ):
        index = index_of("IDMap2,EvidenceFlat", [1] * N)
        index.relabel(values)
        assert index.members().labels.tolist() == expected


def changed(forms: Callable[[list[int]], Any]) -> list[Any]:
    """Return what calls answer whose ids are in one form."""
    index = index_of("IDMap2,EvidenceFlat", NUMBERS, ids=forms(list(range(100, 100 + N))))
    ids = forms([101, 103, 107])
    found = [
        index.search_stored(ids, 3)[1],
        index.search_evidence(X[:1], NUMBERS[:1], 3, sel=ids)[1],
        index.search_evidence(X[:2], NUMBERS[:2], 3, exclude=[ids, forms([105])])[1],
        index.reconstruct_batch(ids),
    ]
    index.relabel([5, 5, 5], ids)
    index.update_vectors(ids, X[:3])
    found += [index.members().labels, index.reconstruct_batch(ids)]
    index.remove_ids(ids)
    return [*found, index.members().ids]


@pytest.mark.parametrize(
    "form",
    [
        np.array,
        pd.Series,
        pd.Index,
        pl.Series,
        pa.array,
        torch.tensor,
        tuple,
        lambda x: pd.array(x, dtype="Int64"),
    ],
)
def test_ids_of_every_library(form: Any) -> None:
    assert_same_arrays(changed(form), changed(list))


def test_a_set_and_a_range_are_ids() -> None:
    index = index_of("IDMap2,EvidenceFlat", NUMBERS, ids=range(N))
    assert index.remove_ids({3, 4, 99}) == 2
    assert_array_equal(index.search_stored(range(3), 2)[1], index.search_stored([0, 1, 2], 2)[1])


# --- memory -----------------------------------------------------------------------------------------------------------


def test_memory_of_texts_follows_their_bytes(tmp_path: Path) -> None:
    labels = [f"label {i}" for i in range(N - 1)] + ["x" * 4_000_000]  # in fixed width: 400 MB
    tracemalloc.start()
    index = index_of("IDMap2,EvidenceFlat", labels)
    cfe.write_index(index, tmp_path / "one.index")
    found = cfe.read_index(tmp_path / "one.index")
    assert found.label_names.tolist() == sorted(labels)
    answer = found.search_evidence(X[:2], labels[:2], 3)[1]
    assert_array_equal(answer, index.search_evidence(X[:2], labels[:2], 3)[1])
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 60_000_000


def test_unused_labels_are_not_written() -> None:
    index = index_of("IDMap2,EvidenceFlat", ["a", "b", "c"])
    index.relabel(["unused" * 1000, "b", "c"])
    index.relabel(["b", "b", "c"])
    file = cfe.serialize_index(index)
    assert b"unused" not in file.tobytes()
    again = cfe.deserialize_index(file)
    assert again.label_keys.keys.tolist() == ["b", "c"]
    assert again.members().labels.tolist() == ["b", "b", "c"]
