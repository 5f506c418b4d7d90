"""Every kind of index finds what brute force finds among the rows that it keeps, and refuses the same arguments."""

from random import Random
from typing import Any, NamedTuple

import faiss
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from reference import (
    PADDING,
    Stored,
    assert_same_arrays,
    cosines,
    evidence_of_rows,
    evidence_of_units,
    kept_rows,
    stored_vectors,
    unit,
)

import cfe_faiss as cfe

CODECS = {"ivf": "Flat", "fp16": "SQfp16", "sq8": "SQ8", "pq": "PQ{M},RFlat"}
KINDS = ["flat", *CODECS]


class Filled(NamedTuple):
    """An index, its rows as it keeps them with queries, and its number of lists."""

    index: Any
    stored: Stored
    lists: int

    def options(self, nprobe: int | None = None) -> dict[str, int]:
        return {"nprobe": nprobe or self.lists} if self.lists else {}


def empty(kind: str, X: Any, nlist: int, partitions: int, M: int = 1) -> Any:
    d = X.shape[1]
    if kind == "flat":
        return cfe.IndexEvidenceIDMap2(d)
    codec = CODECS[kind].format(M=M)
    index = cfe.index_factory(d, f"EvidenceIVF{nlist}x{partitions},{codec}")
    if kind == "pq":
        index.pq.cp.niter = 3
        index.k_factor = 1
        X = np.tile(X, (-(-256 // len(X)), 1))
    elif kind != "ivf":
        X = X[:nlist]  # the other vectors may be outside the codec's range
    index.train(X)
    return index


@st.composite
def filled(draw: st.DrawFn, kind: str, lowest_label: int = -1) -> Filled:
    least = 0 if kind == "flat" else 12
    stored = draw(stored_vectors(least=least, lowest_label=lowest_label))
    nlist, partitions, d = draw(st.integers(1, 12)), draw(st.integers(1, 3)), stored.X.shape[1]
    index = empty(kind, stored.X, nlist, partitions, draw(st.sampled_from([1, d])))
    half = len(stored.X) // 2
    known = np.maximum(stored.labels, 0)
    index.add_with_labels(stored.X[:half], known[:half], stored.ids[:half])
    index.add_with_ids(stored.X[half:], stored.ids[half:])
    index.relabel(stored.labels, stored.ids)
    rows = unit(stored.X)
    if kind in ("fp16", "sq8"):
        rows = kept_rows(index, rows)
    return Filled(index, stored._replace(X=rows), 0 if kind == "flat" else nlist * partitions)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data(), threshold=st.floats(-1, 1, width=32))
def test_probing_everything_equals_brute_force(
    kind: str, data: st.DataObject, threshold: float
) -> None:
    case = data.draw(filled(kind))
    index, stored, options = case.index, case.stored, case.options()
    D, I = index.search_evidence(stored.xq, stored.labels_q, stored.k, **options)
    assert_same_arrays((D, I), evidence_of_rows(stored))
    assert (D.dtype, I.dtype) == (np.float32, np.int64)
    lims, D, I = index.range_search_evidence(stored.xq, stored.labels_q, threshold)
    all_D, all_I = evidence_of_rows(stored._replace(k=max(1, len(stored.X))))
    reaches = (all_I >= 0) & (all_D >= np.float32(threshold))
    assert_array_equal(lims, np.concatenate([[0], np.cumsum(reaches.sum(axis=1))]))
    assert_same_arrays((D, I), (all_D[reaches], all_I[reaches]))
    assert_array_equal(index.reconstruct_batch(stored.ids), stored.X)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_stored_vectors_search_with_the_rows_that_are_kept(kind: str, data: st.DataObject) -> None:
    case = data.draw(filled(kind))
    index, stored, _ = case
    ascending = np.argsort(stored.ids)
    labels = stored.labels[ascending]
    expected_D, expected_I = evidence_of_units(
        stored._replace(xq=stored.X[ascending], labels_q=np.where(labels < 0, -2, labels))
    )
    expected_D[labels < 0], expected_I[labels < 0] = PADDING, -1
    found = index.search_stored(k=stored.k, **case.options())
    assert_same_arrays(found, (expected_D, expected_I))
    found = index.search_stored(stored.ids[ascending[::-2]], stored.k, **case.options())
    assert_same_arrays(found, (expected_D[::-1][::2], expected_I[::-1][::2]))


@pytest.mark.parametrize("kind", CODECS)
@given(data=st.data(), nprobe=st.integers(1, 5))
def test_any_probing_gives_complete_rows_of_true_evidence(
    kind: str, data: st.DataObject, nprobe: int
) -> None:
    index, stored, _ = data.draw(filled(kind))
    D, I = index.search_evidence(stored.xq, stored.labels_q, stored.k, nprobe)
    expected_D, expected_I = evidence_of_rows(stored)
    assert_array_equal(I >= 0, expected_I >= 0)
    assert (expected_D >= D).all()
    S = cosines(unit(stored.xq), stored.X)
    place = {i: r for r, i in enumerate(stored.ids.tolist())}
    for q in range(len(I)):
        rows = [place[i] for i in I[q].tolist() if i >= 0]
        assert len(set(rows)) == len(rows)
        assert not np.isin(stored.labels[rows], [-1, stored.labels_q[q]]).any()
        assert_array_equal(D[q, : len(rows)], S[q, rows])


@pytest.mark.parametrize("kind", ["flat", "ivf"])
@given(data=st.data(), nprobe=st.integers(1, 3))
def test_the_order_of_rows_does_not_matter(kind: str, data: st.DataObject, nprobe: int) -> None:
    case = data.draw(filled(kind, lowest_label=0))
    index, stored, _ = case
    order = np.argsort(stored.ids)
    options = case.options(nprobe)
    X, labels = stored.X[order], stored.labels[order]
    other = cfe.clone_index(index)
    other.reset()
    other.add_with_labels(X, labels, stored.ids[order])
    expected = index.search_evidence(X, labels, stored.k, **options)
    for one in (index, other):
        assert_same_arrays(one.search_stored(k=stored.k, **options), expected)
        assert_same_arrays(one.search_evidence(X, labels, stored.k, **options), expected)


@pytest.mark.parametrize("kind", ["flat", "ivf"])
@given(data=st.data(), random=st.randoms(use_true_random=False))
def test_removing_equals_never_having_added(kind: str, data: st.DataObject, random: Random) -> None:
    case = data.draw(filled(kind))
    index, stored, _ = case
    removed = np.array([random.random() < 0.5 for _ in stored.ids], bool)
    absent = stored.ids.max(initial=0) + 1
    assert index.remove_ids(np.append(stored.ids[removed], absent)) == removed.sum()
    left = stored._replace(
        X=stored.X[~removed], labels=stored.labels[~removed], ids=stored.ids[~removed]
    )
    found = index.search_evidence(stored.xq, stored.labels_q, stored.k, **case.options())
    assert_same_arrays(found, evidence_of_rows(left))
    selected = left.ids[::2]
    assert index.remove_ids(faiss.IDSelectorBatch(selected)) == len(selected)
    assert_array_equal(index.members().ids, np.sort(left.ids[1::2]))


ROW, ROWS = np.zeros((1, 4)), np.zeros((2, 4))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("method", "arguments", "error", "message"),
    [
        (
            "search_evidence",
            (np.zeros((2, 5)), [0, 0], 1),
            ValueError,
            r"xq .*\(n, 4\), got \(2, 5\)",
        ),
        ("search_evidence", (np.zeros(4), [0], 1), ValueError, r"xq .*got \(4,\)"),
        ("search_evidence", ([[0, 0, 0, np.nan]], [0], 1), ValueError, "xq .*finite.*row 0"),
        ("search_evidence", ([["a"] * 4], [0], 1), TypeError, "xq .*real numbers"),
        ("search_evidence", (ROWS, [0], 1), ValueError, r"labels_q .*\(2,\).*got \(1,\)"),
        ("search_evidence", (ROW, [-1], 1), ValueError, "labels_q .*got -1"),
        (
            "search_evidence",
            (ROW, np.array([2**63], np.uint64), 1),
            ValueError,
            "labels_q .*got 9223",
        ),
        ("search_evidence", (ROW, [0.5], 1), TypeError, "labels_q .*integers"),
        ("search_evidence", (ROW, [0], 0), ValueError, "k .*got 0"),
        ("search_evidence", (ROW, [0], 1.5), TypeError, "k .*got 1.5"),
        ("search_evidence", (ROW, [0], 1, 0), ValueError, "nprobe .*got"),
        ("search_stored", ([99], 1), ValueError, "ids .*got 99"),
        ("search_stored", ([-1], 1), ValueError, "ids .*got -1"),
        ("range_search_evidence", (ROW, [0], np.nan), ValueError, "threshold .*nan"),
        ("add_with_labels", (ROW, [0], [1]), ValueError, "ids must not be in .*got 1"),
        ("add_with_labels", (ROWS, [0, 0], [7, 7]), ValueError, "distinct, got 7"),
        ("add_with_labels", (ROWS, [0, 0], [7]), ValueError, r"ids .*\(2,\).*got \(1,\)"),
        ("relabel", ([0], [99]), ValueError, "ids must be in the index, got 99"),
        ("relabel", ([0, 0], [1, 1]), ValueError, "ids must be distinct"),
        ("train", (np.eye(4),), ValueError, "train must be called before"),
    ],
)
def test_bad_input_is_named_and_changes_nothing(
    kind: str, method: str, arguments: Any, error: type[Exception], message: str
) -> None:
    if (kind, method) == ("flat", "train"):
        return  # there is nothing to train
    index = empty(kind, np.eye(4), 2, 1)
    index.add_with_labels(np.eye(4), [0, 0, 1, 1])
    before = index.search_stored(k=4)
    with pytest.raises(error, match=message):
        getattr(index, method)(*arguments)
    assert index.ntotal == 4
    assert_same_arrays(before, index.search_stored(k=4))


@pytest.mark.parametrize("kind", CODECS)
def test_a_label_in_a_list_is_as_one_in_an_array(kind: str) -> None:
    index = empty(kind, np.eye(4), 2, 1)
    index.add_with_labels(np.eye(4), [0, 0, 1, 1])
    x = np.eye(4, dtype=np.float32)[:1]
    expected = index.search_evidence(x, np.array([0]), 2, recall=0.9)
    assert_same_arrays(index.search_evidence(x, [0], 2, recall=0.9), expected)


@pytest.mark.parametrize("kind", CODECS)
def test_an_index_is_trained_before_it_is_filled(kind: str) -> None:
    nlist = 2 if kind == "pq" else 5
    index = cfe.index_factory(4, f"EvidenceIVF{nlist},{CODECS[kind].format(M=2)}")
    with pytest.raises(ValueError, match=r"nlist = 5 .* got 4|256 training vectors, got 4"):
        index.train(np.eye(4))
    assert not index.is_trained
    for fill in (index.add, lambda X: index.add_with_labels(X, [0] * 4)):
        with pytest.raises(ValueError, match="must be trained"):
            fill(np.eye(4))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: cfe.IndexEvidenceIDMap2(0), "d must be at least 1, got 0"),
        (lambda: cfe.IndexEvidenceIVF(4, 0), "nlist must be at least 1, got 0"),
        (lambda: cfe.IndexEvidenceIVF(4, "many"), "nlist .*'auto', got 'many'"),
        (lambda: cfe.IndexEvidenceIVF(4, 5, 0), "partitions .*got 0"),
        (lambda: cfe.IndexEvidenceIVF(4, 5, theta=2.0), "theta must lie in"),
        (lambda: cfe.IndexEvidenceIVFPQ(10, 4, 3), "M must divide d = 10, got 3"),
        (lambda: cfe.IndexEvidenceIVFPQ(10, 4, 0), "M must be at least 1, got 0"),
        (lambda: cfe.IndexEvidenceIVFPQ(10, 4, 2, k_factor=0.5), "k_factor .*got 0.5"),
        *(
            (
                lambda q=q: cfe.IndexEvidenceIVFScalarQuantizer(4, 2, qtype=q),
                "qtype must be QT_8bit",
            )
            for q in (faiss.ScalarQuantizer.QT_4bit, "SQ8", None)
        ),
    ],
)
def test_constructors_name_what_they_do_not_take(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
