"""Fast path for one query without conversion: same results and same errors as the general path."""

from collections.abc import Callable
from typing import Any

import faiss
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from numpy.typing import NDArray
from reference import Stored, clustered, evidence, stored_vectors, with_rows

import cfe_faiss as cfe

K, NPROBE = 5, 3
LONG_WAY = {"memory": 1 << 31}  # the default value, which forces the general path


def filled(kind: str = "EvidenceIVF12,Flat") -> tuple[Any, NDArray[np.float32], NDArray[np.int64]]:
    X, labels = clustered(300, 9, 3)
    index = with_rows(cfe.index_factory(9, kind), X, labels)
    # computes the derived data of later searches
    index.search_evidence(X[:1], labels[:1], K, NPROBE)
    return index, X, labels


def assert_equal_results(found: Any, expected: Any) -> None:
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        assert_array_equal(one, other, strict=True)


@given(
    stored_vectors(least=12),
    st.sampled_from(["Flat", "Flat", "SQfp16", "SQ8"]),
    st.integers(2, 12),
    st.integers(1, 3),
    st.integers(1, 40),
    st.floats(0.5, 3),
)
def test_both_ways_lead_to_the_same_bits(
    stored: Stored, codec: str, nlist: int, partitions: int, nprobe: int, length: float
) -> None:
    index = cfe.index_factory(stored.X.shape[1], f"EvidenceIVF{nlist}x{partitions},{codec}")
    index.train(stored.X)
    index.add_with_labels(stored.X, stored.labels, stored.ids)
    for x, label in zip(stored.xq * np.float32(length), stored.labels_q, strict=True):
        asked = x[None], np.array([label]), stored.k, nprobe
        expected = index.search_evidence(*asked, **LONG_WAY)
        assert_equal_results(index.search_evidence(*asked), expected)
        if nprobe >= nlist * partitions and codec == "Flat":
            exact = evidence(stored._replace(xq=x[None], labels_q=np.array([label])))
            assert_equal_results(expected, exact)


@pytest.mark.parametrize(
    "form",
    [
        lambda x, label: (x.astype(np.float64), label),
        lambda x, label: (x.tolist(), label.tolist()),
        lambda x, label: (np.repeat(x, 2, axis=1)[:, ::2], label),
        lambda x, label: (
            np.frombuffer(x.tobytes(), np.float32).reshape(x.shape),
            label,
        ),  # read-only
        lambda x, label: (x.astype(">f4"), label),
        lambda x, label: (x.view(np.memmap), label),
        lambda x, label: (x, label.astype(np.int32)),
        lambda x, label: (x, label.astype(np.uint8)),
        lambda x, label: (x, np.array([0, int(label[0])])[1:]),
        lambda x, label: (np.vstack([x, x])[1:], label),
    ],
)
def test_any_form_of_a_query_will_do(form: Callable[..., Any]) -> None:
    index, X, labels = filled()
    expected = index.search_evidence(X[7:8], labels[7:8], K, NPROBE)
    x, label = form(X[7:8], labels[7:8])
    assert_equal_results(index.search_evidence(x, label, K, NPROBE), expected)
    assert_equal_results(index.search_evidence(x, label, np.int64(K), np.int16(NPROBE)), expected)


def test_large_numbers_are_no_error() -> None:
    index, X, labels = filled()
    D, I = index.search_evidence(X[:1], labels[:1], 400, 2**70)
    assert_array_equal(I[0] >= 0, np.arange(400) < (labels != labels[0]).sum())
    D, I = index.search_evidence(X[:1], np.array([2**31 - 2]), K, 12)
    assert I[0, 0] == 0
    assert D[0, 0] == pytest.approx(1)


def test_the_short_way_sees_every_change() -> None:
    index, X, labels = filled()
    asked = X[:1], labels[:1], K

    def best(**settings: Any) -> int:
        found = index.search_evidence(*asked, **settings)
        assert_equal_results(found, index.search_evidence(*asked, **settings, **LONG_WAY))
        return int(found[1][0, 0])

    other = (labels[0] + 1) % 3
    index.add_with_labels(X[:1], np.array([other]), np.array([1000]))
    assert best(nprobe=12) == 1000
    index.remove_ids(np.array([1000]))
    assert best(nprobe=12) != 1000
    index.relabel(np.array([other]), np.array([0]))
    assert best(nprobe=12) == 0
    for routing in ("nearest", "evidence"):
        index.routing = routing
        best(nprobe=1)
    for nprobe in (1, 2, 12):
        index.nprobe = nprobe
        assert_equal_results(index.search_evidence(*asked), index.search_evidence(*asked, nprobe))
    index.nprobe = 0
    with pytest.raises(ValueError, match="nprobe must be at least 1"):
        index.search_evidence(*asked)
    index.reset()
    assert_array_equal(index.search_evidence(*asked, nprobe=1)[1], np.full((1, K), -1))


def test_an_index_that_was_changed_by_other_means_is_refused() -> None:
    index, X, labels = filled()
    faiss.IndexIVFFlat.reset(index)
    with pytest.raises(RuntimeError, match="changed by a method that evidence"):
        index.search_evidence(X[:1], labels[:1], K, NPROBE)


def test_the_query_stays_as_it_is() -> None:
    index, X, labels = filled()
    x = 3 * X[:1]
    before = x.copy()
    D, I = index.search_evidence(x, labels[:1], K, NPROBE)
    assert_array_equal(x, before)
    D[:], I[:] = 0, 0  # the caller owns the results
    assert index.search_evidence(x, labels[:1], K, NPROBE)[0].max() > 0
