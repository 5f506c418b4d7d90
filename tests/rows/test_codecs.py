import faiss
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from reference import cosine, similarity, unit
from stored_rows import StoredRows

from cfe_faiss.rows import codecs
from cfe_faiss.rows.metric import make_results

CODECS = {codecs.FP16: faiss.ScalarQuantizer.QT_fp16, codecs.SQ8: faiss.ScalarQuantizer.QT_8bit}


def quantizer(codec: int, X: np.ndarray) -> tuple[faiss.ScalarQuantizer, np.ndarray]:
    made = faiss.ScalarQuantizer(X.shape[1], CODECS[codec])
    made.train(X)
    levels = faiss.vector_to_array(made.trained)
    return made, levels.reshape(2, -1) if codec == codecs.SQ8 else codecs.NO_LEVELS


def decoded(codec: int, levels: np.ndarray, coded: np.ndarray, d: int) -> np.ndarray:
    X, ids = np.empty((len(coded), d), np.float32), np.empty(len(coded), np.int64)
    stored = StoredRows(coded, np.zeros(len(coded), np.int32), d=d, codec=codec, levels=levels)
    stored.rows.gather(np.arange(len(coded)), X, ids)
    assert_array_equal(ids, np.arange(len(coded)))
    return X


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("d", [1, 3, 7, 8, 16, 20, 33, 128])
def test_rows_decode_to_what_faiss_decodes(codec: int, d: int) -> None:
    X = np.random.default_rng(d).normal(size=(300, d)).astype(np.float32) * np.float32(
        0.3
    ) + np.float32(0.1)
    made, levels = quantizer(codec, X[:100])
    coded = made.compute_codes(X)
    expected = made.decode(coded)
    assert_allclose(decoded(codec, levels, coded, d), expected, atol=1e-6)
    # FAISS without these instructions rounds a multiple of 8 components twice, as it does here for other lengths; of
    # these, FAISS 1.13 rounds once.
    rounds_once = tuple(map(int, faiss.__version__.split(".")[:2])) < (1, 14)
    same_bits = not rounds_once if d % 8 else "AVX2" in faiss.get_compile_options()
    if codec == codecs.FP16 or same_bits:
        assert_array_equal(decoded(codec, levels, coded, d), expected)


@pytest.mark.parametrize("d", [1, 5, 15, 16, 21, 40])
def test_every_half_is_read_as_it_is(d: int) -> None:
    halves = np.resize(np.arange(1 << 16).astype(np.uint16), (-(-(1 << 16) // d), d))
    X = decoded(codecs.FP16, codecs.NO_LEVELS, halves.view(np.uint8), d)
    expected = halves.view(np.float16)
    assert_array_equal(np.isnan(X), np.isnan(expected))
    known = ~np.isnan(expected)
    assert_array_equal(X[known].view(np.uint32), expected[known].astype(np.float32).view(np.uint32))


@given(
    st.sampled_from([codecs.FLAT, *CODECS]),
    st.integers(1, 150),
    st.integers(0, 2**32 - 1),
    st.sampled_from([0, 0.3, 5]),
)
def test_screening_keeps_within_its_bound(codec: int, d: int, seed: int, shift: float) -> None:
    """Also holds for rows outside the trained range of the codec, and for decoded rows as queries."""
    rng = np.random.default_rng(seed)
    X = unit(
        np.repeat(rng.normal(size=(6, d)), 2, axis=0) + 1e-6 * rng.normal(size=(12, d)) + shift
    )
    levels, coded, Y = codecs.NO_LEVELS, X, X
    if codec != codecs.FLAT:
        made, levels = quantizer(codec, X[:6])
        coded = made.compute_codes(X)
        Y = decoded(codec, levels, coded, d)
    found = np.linalg.norm(Y.astype(np.float64), axis=1).max()
    assert found <= codecs.norm_bound(codec, levels) + 1e-6
    margin = codecs.screening_error(d) * codecs.screening_factor(codec, levels)
    for x in (*X[:3], *Y[:3]):
        scores = similarity(x, Y).astype(np.float64)
        assert all(abs(float(x @ y) - score) <= margin for y, score in zip(Y, scores, strict=True))
    # These rows are equal up to rounding, so a screening error would lose results.
    n, k = len(X), 3
    stored = StoredRows(coded, np.zeros(n, np.int32), d=d, codec=codec, levels=levels)
    queries = np.concatenate([X[:3], Y[:3]])
    D, I = make_results(len(queries), k)
    lists, labels = np.zeros((len(queries), 1), np.int64), np.ones(len(queries), np.int32)
    stored.scan().scan(queries, labels, lists, margin, D, I)
    for q, x in enumerate(queries):
        scores = cosine(x, Y)
        best = np.lexsort((np.arange(n), -scores))[:k]
        assert_array_equal(I[q], best)
        assert_array_equal(D[q], scores[best])


def test_bounds_of_unit_rows_match_float32() -> None:
    assert (
        codecs.norm_bound(codecs.FLAT, codecs.NO_LEVELS)
        == codecs.screening_factor(codecs.FLAT, codecs.NO_LEVELS)
        == 1
    )
