import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from reference import PADDING, cosines, unit
from stored_rows import StoredRows, filter_of

from cfe_faiss import _native
from cfe_faiss.rows.metric import make_results


@given(
    st.sampled_from([(1, 1), (3, 1), (4, 2), (7, 2), (13, 1)]),
    st.integers(1, 60),
    st.integers(1, 70),
    st.integers(1, 4),
    st.booleans(),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_the_best_by_their_codes_are_scored(
    shape: tuple[int, int], n: int, kept: int, nlist: int, filtered: bool, referred: bool, seed: int
) -> None:
    """Coarse codewords give exact sums and many ties, which the smaller id wins."""
    rng = np.random.default_rng(seed)
    M, width = shape
    d, k = M * width, min(5, n)
    kept = max(kept, k)
    sizes = np.bincount(rng.integers(0, nlist, n), minlength=nlist)
    homes = np.repeat(np.arange(nlist), sizes)
    labels = np.concatenate([np.sort(rng.integers(-1, 3, size)) for size in sizes]).astype(np.int32)
    X, ids = unit(rng.normal(size=(n, d))), rng.permutation(1000)[:n].astype(np.int64)
    coded = rng.integers(0, 3, (n, M)).astype(np.uint8)
    codewords = rng.integers(-2, 3, (M, width, 256)).astype(np.float32)
    centroids = rng.integers(-1, 2, (nlist, d)).astype(np.float32)
    xq, labels_q = rng.integers(-2, 3, (4, d)).astype(np.float32), np.array([-1, 0, 1, 9], np.int32)
    allowed = rng.random(n) < 0.5 if filtered else np.empty(0, bool)
    # One additional list of references holds every row, so that each row occurs twice.
    references = rng.permutation(n).astype(np.int32) if referred else np.empty(0, np.int32)
    reference_starts = np.array([0, n] if referred else [0], np.int64)
    lists = np.tile(np.arange(nlist + referred), (4, 1)).astype(np.int64)
    D, I = make_results(4, k)
    stored = StoredRows(X, labels, d=d, ids=ids, sizes=sizes, pq_codes=coded)
    pq = _native.PqCodes(codewords, centroids)
    stored.scan(references, reference_starts).scan_codes(
        pq, xq, labels_q, lists, min(kept, n), D, I, filter_of(allowed)
    )
    tables = np.einsum("qmw,mwc->qmc", xq.reshape(4, M, width), codewords)
    sums = np.array([[table[np.arange(M), code].sum() for code in coded] for table in tables])
    screened = sums + (xq @ centroids.T)[:, homes]
    S = cosines(xq, X)
    for q in range(4):
        eligible = np.flatnonzero(
            (labels != -1) & (labels != labels_q[q]) & (allowed if filtered else True)
        )
        if labels_q[q] == -1:
            eligible = eligible[:0]
        looked_at = eligible[np.lexsort((ids[eligible], -screened[q, eligible]))][:kept]
        best = looked_at[np.lexsort((ids[looked_at], -S[q, looked_at]))][:k]
        assert_array_equal(I[q], np.append(ids[best], np.full(k - len(best), -1)))
        assert_array_equal(D[q], np.append(S[q, best], np.full(k - len(best), PADDING, np.float32)))
