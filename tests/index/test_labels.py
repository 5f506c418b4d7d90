"""Labels of every kind: searches find what they find with small integers, and labels come back as they were.

Labels are texts, large integers, booleans, or several of these.
"""

import pickle
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import polars as pl
import pytest
from numpy.testing import assert_array_equal
from reference import assert_same_arrays, clustered

import cfe_faiss as cfe
from cfe_faiss.base.values import order_key, order_of
from cfe_faiss.scale import ShardedEvidenceIndex, write_shards

pd: Any = pytest.importorskip("pandas")
pa: Any = pytest.importorskip("pyarrow")

KINDS = [
    "IDMap2,EvidenceFlat",
    *(f"EvidenceIVF6{kind}" for kind in (",Flat", "x2,Flat", ",SQ8", ",PQ1,RFlat")),
]
NAMES: dict[str, list[Any]] = {
    "texts": ["zebra", "apple", "Äpfel", "中", "b"],  # not in the order in which they come
    "large": [2**63 - 1, 5, 2**40, 2**31 - 1, 0],
    "later": [0, 3, 2**31 - 2, 2**31 - 1, 2**62],  # small ones come first
    "mixed": ["1", 1, True, False, "True"],
}

DIM, N = 4, 90
X, NUMBERS = clustered(N, DIM, 5)
XQ, NUMBERS_Q = clustered(12, DIM, 6, seed=1)


def trained(kind: str) -> Any:
    index: Any = cfe.index_factory(DIM, kind)
    if not index.is_trained:
        index.train(clustered(300, DIM, 5)[0])
    return index


def named(names: list[Any], numbers: Any) -> list[Any]:
    """Return the labels of numbers; number 5 is a label that no row has."""
    absent = "absent" if isinstance(names[0], str) else 2**61
    return [None if number < 0 else (*names, absent)[number] for number in numbers]


def typed(labels: Any) -> list[tuple[type, Any]]:
    """Return labels with their types: True equals 1."""
    return [(type(label), label) for label in labels.tolist()]


def ranks(names: list[Any]) -> Any:
    """Return the place of each label in ascending order."""
    return np.argsort(order_of(np.array([*names, None], object)[:-1]))


def both(kind: str, names: list[Any]) -> tuple[Any, Any]:
    """Return an index with labels, and one with numbers in the order of the labels, after the same changes."""
    index, other = trained(kind), trained(kind)
    rank = ranks(names)
    numbers = np.append(np.sort(NUMBERS[: N // 2]), NUMBERS[N // 2 :])
    for part in (slice(0, N // 2), slice(N // 2, N - 5)):
        index.add_with_labels(X[part], named(names, numbers[part]))
        other.add_with_labels(X[part], rank[numbers[part]])
    index.add(X[N - 5 :])
    other.add(X[N - 5 :])
    ids = np.arange(0, N, 7)
    index.relabel(named(names, [-1, *NUMBERS[ids[1:]]]), ids)
    other.relabel([-1, *rank[NUMBERS[ids[1:]]]], ids)
    for one in (index, other):
        one.remove_ids(np.arange(3, N, 11))
    return index, other


def assert_same(index: Any, other: Any, names: list[Any]) -> None:
    ordered = sorted(names, key=order_key)
    asked, numbers = named(names, NUMBERS_Q), np.append(ranks(names), 7)[NUMBERS_Q]
    of_texts = isinstance(names[0], str)
    unknown = None if of_texts else -1
    labels = other.members().labels
    expected = [unknown if label < 0 else ordered[label] for label in labels]
    assert typed(index.members().labels) == [(type(label), label) for label in expected]
    assert typed(index.label_names) == [(type(label), label) for label in ordered]
    assert_array_equal(other.label_names, np.arange(5))
    efforts: list[dict[str, Any]] = [{"exact": True}, {}]
    if index.has_lists:
        efforts += [{"nprobe": 2}, {"recall": 0.9}]
    for how in efforts:
        pairs = [
            (one.search_evidence(XQ, y, 6, **how), one.search_stored(k=6, **how))
            for one, y in ((index, asked), (other, numbers))
        ]
        assert_array_equal(pairs[0][0][1], pairs[1][0][1])
        assert_array_equal(pairs[0][1][1], pairs[1][1][1])
    for q in range(6):  # one by one, as arrays that the core takes
        one = np.array(asked[q : q + 1])  # of one kind, even if labels are mixed
        found = index.search_evidence(XQ[q : q + 1], one, 3)[1]
        assert_array_equal(found, other.search_evidence(XQ[q : q + 1], numbers[q : q + 1], 3)[1])
    answer = index.search_per_label(XQ, asked, 2)[1]
    assert_array_equal(answer, other.search_per_label(XQ, numbers, 2)[1])
    excluded = [[ordered[0]], [None, ordered[1]], *([[]] * 10)]
    found = index.search_evidence(
        XQ, asked, 6, exclude_labels=excluded, neighbors="any", exact=True
    )
    codes = [[0], [-1, 1], *([[]] * 10)]
    best = other.search_evidence(XQ, numbers, 6, exclude_labels=codes, neighbors="any", exact=True)
    assert_array_equal(found[1], best[1])
    params = [
        cfe.EvidenceParameters(y, targets=targets)
        for y, targets in ((asked, ordered[1:3]), (numbers, [1, 2]))
    ]
    answer = index.search(XQ, 4, params=params[0])[1]
    assert_array_equal(answer, other.search(XQ, 4, params=params[1])[1])
    answer = index.excluding(ordered[2]).search(XQ, 4)[1]
    assert_array_equal(answer, other.excluding(2).search(XQ, 4)[1])
    targets = [
        cfe.global_evidence(one, 5, where=cfe.Constraints(target=y)).target
        for one, y in ((index, ordered[3]), (other, 3))
    ]
    assert_array_equal(*targets)
    assert index.class_index(ordered[1]).ntotal == (labels == 1).sum()
    assert index.recall_by_class(0.9, 3).keys() == set(ordered)


# By default, texts in each kind of index, and other labels in some.
CHANGED = [
    pytest.param(name, kind, marks=[] if name == "texts" or i % 3 == j else [pytest.mark.slow])
    for j, name in enumerate(NAMES)
    for i, kind in enumerate(KINDS)
]


@pytest.mark.parametrize(("name", "kind"), CHANGED)
def test_labels_change_no_result(name: str, kind: str, tmp_path: Path) -> None:
    names = NAMES[name]
    index, other = both(kind, names)
    assert_same(index, other, names)
    cfe.write_index(index, tmp_path / "one.index")
    cfe.verify_index(tmp_path / "one.index")
    for copy in (
        pickle.loads(pickle.dumps(index)),
        cfe.clone_index(index),
        cfe.deserialize_index(cfe.serialize_index(index)),
        cfe.read_index(tmp_path / "one.index"),
        cfe.read_index(tmp_path / "one.index", faiss.IO_FLAG_MMAP),
    ):
        assert_same(copy, other, names)
    merged = trained(kind)
    first = [names[4], names[0], *names]
    merged.add_with_labels(X[: len(first)], first, 1000 + np.arange(len(first)))
    merged.merge_from(index)
    ids, labels = other.members().ids, other.members().labels
    assert merged.members().ids.tolist() == [*ids, *range(1000, 1000 + len(first))]
    ordered, unknown = sorted(names, key=order_key), None if isinstance(names[0], str) else -1
    expected = [unknown if label < 0 else ordered[label] for label in labels]
    assert merged.members().labels.tolist() == [*expected, *first]
    merged.reset()
    merged.add_with_labels(X[:1], [3])
    assert merged.label_names.tolist() == [3]


@pytest.mark.parametrize("names", NAMES.values(), ids=NAMES)
def test_shards_keep_labels(names: list[Any], tmp_path: Path) -> None:
    index, other = both("EvidenceIVF6,Flat", names)
    write_shards(index, tmp_path / "shards", 3)
    sharded: Any = ShardedEvidenceIndex.open(tmp_path / "shards")
    assert_same(sharded, other, names)
    new = "new" if isinstance(names[0], str) else 2**50
    changed = index.members().ids[[3, 5]]
    for one in (index, sharded):
        one.relabel([new, names[0]], changed)
    for one in (sharded, ShardedEvidenceIndex.open(tmp_path / "shards")):
        assert one.members().labels.tolist() == index.members().labels.tolist()
        assert one.label_names.tolist() == index.label_names.tolist()


@pytest.mark.parametrize("names", NAMES.values(), ids=NAMES)
def test_a_stock_index_takes_labels(names: list[Any]) -> None:
    ivf = faiss.IndexIVFFlat(faiss.IndexFlatIP(DIM), DIM, 4, faiss.METRIC_INNER_PRODUCT)
    ivf.train(X)
    ivf.add(X)
    index: Any = cfe.IndexEvidenceIVF.from_stock(ivf, named(names, NUMBERS))
    assert index.members().labels.tolist() == named(names, NUMBERS)


def test_a_wrong_kind_of_label_changes_nothing() -> None:
    for index, wrong, message in (
        (
            both("IDMap2,EvidenceFlat", NAMES["texts"])[0],
            [7],
            "texts, as the labels of the index are, got 7",
        ),
        (
            both("EvidenceIVF6,Flat", NAMES["large"])[0],
            ["a"],
            "integers, as the labels of the index are, got 'a'",
        ),
    ):
        before, keys = index.members().labels.tolist(), index.label_keys
        with pytest.raises(TypeError, match=f"^labels must be {message}"):
            index.add_with_labels(X[:1], wrong)
        with pytest.raises(TypeError, match=f"^labels must be {message}"):
            index.relabel(wrong, [1])
        with pytest.raises(TypeError, match=f"^labels_q must be {message}"):
            index.search_evidence(XQ[:1], wrong, 2)
        new, absent = (["x"], ["y"]) if wrong == [7] else ([77], [2**59])
        with pytest.raises(ValueError, match="ids must not be in the index yet"):
            index.add_with_labels(X[:1], new, [1])
        with pytest.raises(ValueError, match="exclude_labels must hold stored labels, got"):
            index.search_stored([1], exclude_labels=[absent])
        assert index.members().labels.tolist() == before
        assert index.label_keys is keys


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("left", ["unknown", "none"])
def test_labels_remain_texts_without_a_row_that_has_one(kind: str, left: str) -> None:
    index = trained(kind)
    index.add_with_labels(X[:9], ["b", "a", "c"] * 3)
    index.relabel([None] * 9) if left == "unknown" else index.remove_ids(range(9))
    for one in (index, cfe.clone_index(index), pickle.loads(pickle.dumps(index))):
        assert one.members().labels.tolist() == ([None] * 9 if left == "unknown" else [])
        assert one.label_names.tolist() == []
        with pytest.raises(TypeError, match=r"labels .*got 7"):
            one.add_with_labels(X[:1], [7])
        one.add_with_labels(X[:1], ["d"])
        assert one.label_names.tolist() == ["d"]


def test_texts_that_numpy_would_cut_are_refused() -> None:
    with pytest.raises(ValueError, match="labels must hold no text that ends in a zero"):
        trained("IDMap2,EvidenceFlat").add_with_labels(X[:2], ["a", "a\0"])
    with pytest.raises(ValueError, match=r"labels must hold no empty text, got .* at position 1"):
        trained("IDMap2,EvidenceFlat").add_with_labels(X[:2], ["a", ""])


@pytest.mark.parametrize("kind", KINDS[:2])
def test_booleans_are_arrays_of_booleans(kind: str) -> None:
    index = trained(kind)
    labels = NUMBERS > 0
    index.add_with_labels(X, labels)
    read_again = cfe.deserialize_index(cfe.serialize_index(index))
    for one in (index, read_again, pickle.loads(pickle.dumps(index)), cfe.clone_index(index)):
        assert one.label_names.dtype == one.members().labels.dtype == np.bool_
        assert_array_equal(one.members().labels, labels)
        found = one.search_evidence(XQ, NUMBERS_Q > 0, 4, exact=True)[1]
        assert (labels[found] != (NUMBERS_Q > 0)[:, None]).all()
    index.relabel([None, False], [0, 1])
    assert index.members().labels[:2].tolist() == [None, False]
    assert index.recall_by_class(0.9).keys() == {False, True}
    for wrong in ([1], np.array([1]), ["True"]):
        with pytest.raises(TypeError, match="labels must be booleans, as the labels of the index"):
            index.relabel(wrong, [0])
        with pytest.raises(TypeError, match="labels_q must be booleans, as the labels"):
            index.search_evidence(XQ[:1], wrong, 2)
    with pytest.raises(TypeError, match=r"labels_q .*got True"):
        both(kind, NAMES["large"])[1].search_evidence(XQ[:1], np.array([True]), 2)


# --- libraries --------------------------------------------------------------------------------------------------------


def exact(labels: Any, **options: Any) -> cfe.IndexEvidenceIDMap2:
    index = cfe.IndexEvidenceIDMap2(DIM)
    index.add_with_labels(X[: len(labels)], labels, **options)
    return index


def test_a_set_and_a_range_are_ids() -> None:
    index = exact(NUMBERS[:24], ids=range(24))
    assert index.remove_ids({3, 4, 99}) == 2
    assert_array_equal(index.search_stored(range(3), 2)[1], index.search_stored([0, 1, 2], 2)[1])


def test_memory_of_texts_follows_their_bytes(tmp_path: Path) -> None:
    labels = [f"label {i}" for i in range(23)] + ["x" * 4_000_000]  # in fixed width: 400 MB
    tracemalloc.start()
    index = exact(labels)
    cfe.write_index(index, tmp_path / "one.index")
    found = cfe.read_index(tmp_path / "one.index")
    assert found.label_names.tolist() == sorted(labels)
    answer = found.search_evidence(X[:2], labels[:2], 3)[1]
    assert_array_equal(answer, index.search_evidence(X[:2], labels[:2], 3)[1])
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 60_000_000


def test_unused_labels_are_not_written() -> None:
    index = exact(["a", "b", "c"])
    index.relabel(["unused" * 1000, "b", "c"])
    index.relabel(["b", "b", "c"])
    file = cfe.serialize_index(index)
    assert b"unused" not in file.tobytes()
    again = cfe.deserialize_index(file)
    assert again.label_keys.keys.tolist() == ["b", "c"]
    assert again.members().labels.tolist() == ["b", "b", "c"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_label_that_no_row_has_is_another_one_than_every_code_in_use(kind: str) -> None:
    index = trained(kind)
    index.add_with_labels(X, np.where(NUMBERS == 4, 2**31 - 2, NUMBERS))  # the largest code
    for _ in range(2):
        found = index.search_evidence(X[:9], [77] * 9, N, exact=True)[1]
        assert_array_equal(np.sort(found), np.tile(np.arange(N), (9, 1)))
        index.relabel([2**62], [0])  # from here on, labels have a table


def changed(form: Callable[[list[int]], Any]) -> list[Any]:
    """Return what calls answer whose ids are in one form."""
    index = exact(NUMBERS[:24], ids=form(list(range(100, 124))))
    ids = form([101, 103, 107])
    answers = [
        index.search_stored(ids, 3)[1],
        index.search_evidence(X[:1], NUMBERS[:1], 3, sel=ids)[1],
        index.search_evidence(X[:2], NUMBERS[:2], 3, exclude=[ids, form([105])])[1],
        index.reconstruct_batch(ids),
    ]
    index.relabel(form([5, 5, 5]), ids)
    index.update_vectors(ids, X[:3])
    answers += [index.members().labels, index.reconstruct_batch(ids)]
    index.remove_ids(ids)
    return [*answers, index.members().ids]


@pytest.mark.parametrize("form", [np.array, pd.Series, pl.Series, pa.array, tuple])
def test_ids_and_labels_of_every_library(form: Any) -> None:
    assert_same_arrays(changed(form), changed(list))


def test_missing_texts_of_pandas_are_unknown_labels() -> None:
    index = exact(pd.Series(["a", "b", "c"], dtype="string"))
    index.relabel(pd.Series(["b", None, pd.NA], dtype="string"))
    assert index.members().labels.tolist() == ["b", None, None]
    with pytest.raises(ValueError, match="labels must hold a label for each vector, got None"):
        exact(pd.Series(["a", pd.NA], dtype="string"))
