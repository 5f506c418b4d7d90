"""Evidence indexes beside the stock indexes that they derive from: the same operations, the same answers."""

from collections.abc import Callable
from typing import Any

import faiss
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from reference import assert_same_arrays

import cfe_faiss as cfe

D, NLIST = 8, 4
RNG = np.random.default_rng(3)
TRAINING = RNG.normal(size=(300, D)).astype(np.float32)
METRICS = {"ip": faiss.METRIC_INNER_PRODUCT, "l2": faiss.METRIC_L2}
KINDS = {
    "flat": "EvidenceFlat",
    "id map": "IDMap2,EvidenceFlat",
    "ivf": "EvidenceIVF4,Flat",
    "fp16": "EvidenceIVF4,SQfp16",
    "sq8": "EvidenceIVF4,SQ8",
}


class Both:
    """An evidence index and the stock index of its kind."""

    def __init__(self, kind: str, metric: str) -> None:
        self.kind, self.metric = kind, metric
        self.ours: Any = cfe.index_factory(D, KINDS[kind], metric)
        if kind == "flat":
            self.stock: Any = faiss.IndexFlat(D, METRICS[metric])
        elif kind == "id map":
            self.stock = faiss.IndexIDMap2(faiss.IndexFlat(D, METRICS[metric]))
        else:
            self.ours.train(TRAINING)
            self.stock = self.ours.to_stock()
            self.ours.nprobe = self.stock.nprobe = NLIST
        self.ids = np.empty(0, np.int64)
        self.random = np.random.default_rng(0)

    def rows(self, n: int) -> Any:
        return self.random.normal(size=(n, D)).astype(np.float32)

    # --- changes ---

    def add(self, n: int) -> None:
        x = self.rows(n)
        first = int(self.ids.max(initial=-1)) + 1
        self.ours.add_with_labels(x, self.random.integers(0, 3, n))
        ids = np.arange(first, first + n)
        if self.kind == "flat":
            self.stock.add(x)
        else:
            self.stock.add_with_ids(x, ids)
        self.ids = np.append(self.ids, ids)

    def add_with_ids(self, n: int) -> None:
        x = self.rows(n)
        ids = np.setdiff1d(self.random.choice(10**6, n, replace=False), self.ids)[:n].astype(
            np.int64
        )
        if self.kind == "flat":
            for index in (self.ours, self.stock):
                with pytest.raises(RuntimeError, match="add_with_ids"):
                    index.add_with_ids(x[: len(ids)], ids)
            return
        for index in (self.ours, self.stock):
            index.add_with_ids(x[: len(ids)], ids)
        self.ids = np.append(self.ids, ids)

    def remove(self, n: int) -> None:
        some = self.random.choice(self.ids, min(n, len(self.ids)), replace=False)
        some = np.append(some, 10**7)
        low, high = np.sort(self.random.choice(np.append(self.ids, 5), 2))
        selectors: list[Callable[[], Any]] = [
            lambda: some,
            lambda: faiss.IDSelectorBatch(some),
            lambda: faiss.IDSelectorArray(some),
            lambda: faiss.IDSelectorRange(int(low), int(high)),
            lambda: faiss.IDSelectorAnd(
                faiss.IDSelectorRange(0, int(high)), faiss.IDSelectorBatch(some)
            ),
        ]
        make = selectors[int(self.random.integers(len(selectors)))]
        assert self.ours.remove_ids(make()) == self.stock.remove_ids(make())
        left = self.ours.members().ids
        if self.kind == "flat":
            assert_array_equal(left, np.arange(self.stock.ntotal))
        self.ids = left

    def merge(self, n: int) -> None:
        other = Both(self.kind, self.metric)
        other.random = self.random
        other.add(n)
        offset = 0 if self.kind == "flat" else 2 * 10**6 + int(self.ids.max(initial=0))
        self.ours.merge_from(other.ours, offset)
        self.stock.merge_from(other.stock, offset)
        assert other.ours.ntotal == other.stock.ntotal == 0
        first = len(self.ids) if self.kind == "flat" else offset
        self.ids = np.append(self.ids, np.arange(first, first + n))

    def reset(self, n: int) -> None:
        self.ours.reset()
        self.stock.reset()
        self.ids = self.ids[:0]

    def permute(self, n: int) -> None:
        assert (
            hasattr(self.ours, "permute_entries")
            == hasattr(self.stock, "permute_entries")
            == (self.kind == "flat")
        )
        if self.kind == "flat":
            order = self.random.permutation(len(self.ids))
            self.ours.permute_entries(order)
            self.stock.permute_entries(order)

    def copy(self, n: int) -> None:
        self.ours = cfe.clone_index(self.ours)
        self.stock = faiss.clone_index(self.stock)

    # --- comparisons ---

    def compare(self) -> None:
        ours, stock = self.ours, self.stock
        wanted = (stock.ntotal, stock.d, stock.metric_type, stock.is_trained)
        assert (ours.ntotal, ours.d, ours.metric_type, ours.is_trained) == wanted
        xq = self.rows(6)
        sel = faiss.IDSelectorBatch(self.ids[::2])
        no_lists = self.kind in ("flat", "id map")
        # For "ip" the lists are those of the vectors in the augmented space, which FAISS's own quantizer does not know.
        nprobe = NLIST if self.metric == "ip" else 2
        params = (
            faiss.SearchParameters(sel=sel)
            if no_lists
            else faiss.SearchParametersIVF(sel=sel, nprobe=nprobe)
        )
        clone = faiss.clone_index(ours)
        assert type(clone) in (type(stock), faiss.IndexFlat)
        for options in ({}, {"params": params}):
            expected = stock.search(xq, 4, **options)
            for index in (ours, clone):
                close(index.search(xq, 4, **options), expected)
            threshold = (
                float(np.median(expected[0][expected[1] >= 0])) if (expected[1] >= 0).any() else 1.0
            )
            same_ranges(
                ours.range_search(xq, threshold, **options),
                stock.range_search(xq, threshold, **options),
            )
        out_D, out_I = np.empty((6, 4), np.float32), np.empty((6, 4), np.int64)
        found_D, found_I = ours.search(xq, 4, D=out_D, I=out_I)
        assert found_D is out_D
        assert found_I is out_I
        close(ours.search_and_reconstruct(xq, 3), stock.search_and_reconstruct(xq, 3))
        out = np.empty((6, 2), np.int64)
        assert ours.assign(xq, 2, out) is out
        assert_array_equal(out, stock.assign(xq, 2))
        assert ours.sa_code_size() == stock.sa_code_size()
        if self.kind != "id map":
            codes = ours.sa_encode(xq)
            assert_array_equal(codes, stock.sa_encode(xq))
            assert_array_equal(ours.sa_decode(codes), stock.sa_decode(codes))
        if no_lists:
            for one in self.ids[:5].tolist():
                assert_array_equal(ours.reconstruct(one), stock.reconstruct(one))
            assert_array_equal(ours.reconstruct_batch(self.ids), stock.reconstruct_batch(self.ids))
        elif len(self.ids):
            stock.make_direct_map() if is_range(self.ids) else stock.set_direct_map_type(
                faiss.DirectMap.Hashtable
            )
            found = ours.reconstruct(int(self.ids[0]))
            assert_array_equal(found, stock.reconstruct(int(self.ids[0])))
            stock.set_direct_map_type(faiss.DirectMap.NoMap)
        if is_range(self.ids) and len(self.ids):
            found = ours.reconstruct_n(0, len(self.ids))
            assert_array_equal(found, stock.reconstruct_n(0, len(self.ids)))
        with pytest.raises((RuntimeError, ValueError)):
            ours.reconstruct(10**8)


def is_range(ids: Any) -> bool:
    return np.array_equal(np.sort(ids), np.arange(len(ids)))


def close(found: Any, expected: Any) -> None:
    assert_array_equal(found[1], expected[1])
    for one, two in zip(found, expected, strict=True):
        assert_allclose(one, two, rtol=1e-5, atol=1e-5)


def same_ranges(found: Any, expected: Any) -> None:
    assert_array_equal(found[0], expected[0])
    for start, stop in zip(found[0][:-1], found[0][1:], strict=True):
        one, two = (np.argsort(part[2][start:stop], kind="stable") for part in (found, expected))
        assert_array_equal(found[2][start:stop][one], expected[2][start:stop][two])
        wanted = expected[1][start:stop][two]
        assert_allclose(found[1][start:stop][one], wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", KINDS)
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(
                [
                    "add",
                    "add",
                    "add_with_ids",
                    "remove",
                    "remove",
                    "merge",
                    "permute",
                    "copy",
                    "reset",
                ]
            ),
            st.integers(1, 25),
        ),
        min_size=1,
        max_size=7,
    )
)
def test_the_same_operations_give_the_same_answers(
    kind: str, metric: str, steps: list[tuple[str, int]]
) -> None:
    both = Both(kind, metric)
    both.add(30)
    both.compare()
    for name, n in steps:
        getattr(both, name)(n)
        both.compare()


@pytest.mark.parametrize(
    ("kind", "metric"),
    [("EvidenceIVF4,SQ8", "l2"), ("EvidenceIVF4x3,SQ8", "cosine"), ("EvidenceIVF4,Flat", "ip")],
)
def test_merged_vectors_stay_in_their_lists_as_in_faiss(kind: str, metric: str) -> None:
    # Components beyond the range of the codec move to its border, where another list may be nearer.
    X = 2 * RNG.normal(size=(400, D)).astype(np.float32)
    labels = RNG.integers(0, 3, len(X))
    index, other, whole = (cfe.index_factory(D, kind, metric) for _ in range(3))
    for one in (index, other, whole):
        one.train(TRAINING)
    whole.add_with_labels(X, labels)
    index.add_with_labels(X[:200], labels[:200])
    other.add_with_labels(X[200:], labels[200:])
    index.merge_from(other, 200)
    for number in range(NLIST):
        merged, added = (
            faiss.rev_swig_ptr(one.invlists.get_ids(number), one.invlists.list_size(number))
            for one in (index, whole)
        )
        assert_array_equal(np.sort(merged), np.sort(added))
    for nprobe in (1, None):
        results = [one.search_stored(k=5, nprobe=nprobe) for one in (index, whole)]
        assert_same_arrays(results[0], results[1])


# --- the exceptions, and what is refused ------------------------------------------------------------------------------


# --- product-quantizer codes are refined, as FAISS's own -------------------------------------------------------------


@pytest.mark.parametrize("metric", METRICS)
def test_plain_searches_of_codes_are_refined(metric: str) -> None:
    x = np.random.default_rng(0).normal(size=(3000, 32)).astype(np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    x[1000:] *= 2
    xq = x[:100]
    stock = faiss.index_factory(32, "IVF16,PQ8,RFlat", METRICS[metric])
    trained: Any = cfe.index_factory(32, "EvidenceIVF16,PQ8,RFlat", metric)
    base = faiss.downcast_index(stock.base_index)
    base.pq.cp.min_points_per_centroid = 1
    for one in (trained, stock):
        one.train(x)
        one.add(x)
        one.k_factor = 8
    trained.nprobe = base.nprobe = 16
    truth = faiss.knn(xq, x, 10, metric=METRICS[metric])[1]
    missed = [np.setdiff1d(truth + 10**4 * np.arange(100)[:, None], I + 10**4 * np.arange(100)[:, None]).size / 1000
              for I in (trained.search(xq, 10)[1], stock.search(xq, 10)[1])]  # fmt: skip
    assert missed[0] <= missed[1] + 0.01
    index = cfe.IndexEvidenceIVFPQ.from_stock(stock, np.arange(3000) % 3)
    close(index.search(xq, 10), stock.search(xq, 10))
    assert_array_equal(index.assign(xq, 3), stock.assign(xq, 3))
    assert_array_equal(index.sa_encode(xq), index.to_stock().sa_encode(xq))
    D, I, R = index.search_and_reconstruct(xq, 3)
    assert_array_equal(R[0], x[I[0]])
    assert_array_equal(index.search(xq, 10, D=(out := np.empty((100, 10), np.float32)))[0], out)
    sel = faiss.IDSelectorRange(500, 900)
    params = faiss.IndexRefineSearchParameters(
        k_factor=12, base_index_params=faiss.SearchParametersIVF(nprobe=3, sel=sel)
    )
    close(index.search(xq, 4, params=params), stock.search(xq, 4, params=params))
    threshold = float(np.median(D))
    lims, D_range, I_range = index.range_search(xq, threshold)
    exact = faiss.IndexFlat(32, METRICS[metric])
    exact.add(x)
    expected = exact.range_search(xq, threshold)
    assert len(I_range) > 0.97 * len(expected[2])
    assert (D_range < threshold).all() if metric == "l2" else (D_range > threshold).all()
    assert lims[-1] == len(I_range)
