import faiss
import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba.extending import intrinsic
from numpy.testing import assert_allclose, assert_array_equal
from reference import unit

from cfe_faiss.dot import similarity
from cfe_faiss.lists import codecs as codes
from cfe_faiss.lists import scan

CODECS = {codes.FP16: faiss.ScalarQuantizer.QT_fp16, codes.SQ8: faiss.ScalarQuantizer.QT_8bit}


def quantizer(codec: int, X: np.ndarray) -> tuple[faiss.ScalarQuantizer, np.ndarray]:
    made = faiss.ScalarQuantizer(X.shape[1], CODECS[codec])
    made.train(X)
    levels = faiss.vector_to_array(made.trained)
    return made, levels.reshape(2, -1) if codec == codes.SQ8 else codes.NO_LEVELS


def decoded(codec: int, levels: np.ndarray, coded: np.ndarray, d: int) -> np.ndarray:
    X = np.empty((len(coded), d), np.float32)
    for row, x in zip(coded, X, strict=True):
        codes.decode(codec, levels, row.ctypes.data, x)
    return X


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("d", [1, 3, 7, 8, 16, 20, 33, 128])
def test_rows_decode_to_what_faiss_decodes(codec: int, d: int) -> None:
    X = np.random.default_rng(d).normal(size=(300, d)).astype(np.float32) * np.float32(0.3) + np.float32(0.1)
    made, levels = quantizer(codec, X[:100])
    coded = made.compute_codes(X)
    assert codes.row_size(codec, d) == coded.shape[1]
    expected = made.decode(coded)
    assert_allclose(decoded(codec, levels, coded, d), expected, atol=1e-6)
    # FAISS without these instructions rounds a multiple of 8 components twice, as it does here for other lengths.
    if d % 8 or codec == codes.FP16 or "AVX2" in faiss.get_compile_options():
        assert_array_equal(decoded(codec, levels, coded, d), expected)


@pytest.mark.parametrize("converts", [False, codes._CONVERTS])
def test_every_finite_half_is_read_as_it_is(converts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codes, "_CONVERTS", converts)
    load = intrinsic(codes._load_half)

    @numba.njit
    def read(halves: np.ndarray, out: np.ndarray) -> None:
        for i in range(len(out)):
            out[i] = load(halves.ctypes, i)

    halves = np.arange(1 << 16).astype(np.uint16)
    halves = halves[np.isfinite(halves.view(np.float16))]
    out = np.empty(len(halves), np.float32)
    read(halves, out)
    assert_array_equal(out.view(np.uint32), halves.view(np.float16).astype(np.float32).view(np.uint32))


@given(
    st.sampled_from([codes.FLAT, *CODECS]), st.integers(1, 150), st.integers(0, 2**32 - 1), st.sampled_from([0, 0.3, 5])
)
def test_screening_keeps_within_its_bound(codec: int, d: int, seed: int, shift: float) -> None:
    """Also for rows outside of what the codec was trained for, and for queries that are decoded rows themselves."""
    rng = np.random.default_rng(seed)
    X = unit(rng.normal(size=(12, d)) + shift)
    levels, coded, Y = codes.NO_LEVELS, X, X
    if codec != codes.FLAT:
        made, levels = quantizer(codec, X[:6])
        coded = made.compute_codes(X)
        Y = decoded(codec, levels, coded, d)
    assert np.linalg.norm(Y.astype(np.float64), axis=1).max() <= codes.norm_bound(codec, levels) + 1e-6
    slack = scan.screening_error(d) * codes.screening_factor(codec, levels)
    weights, buffer = np.empty(d, np.float32), np.empty(d, np.float32)
    for x in (*X[:3], *Y[:3]):
        offset = codes.weigh(codec, levels, x, weights)
        for row, y in zip(coded, Y, strict=True):
            exact = codes.score(codec, levels, x, row.ctypes.data, buffer)
            assert exact == similarity(x, y)
            assert abs(float(codes.screen(codec, weights, offset, row.ctypes.data)) - float(exact)) <= slack
            assert abs(float(x @ y) - float(exact)) <= slack


def test_bounds_of_unit_rows_are_those_of_float32() -> None:
    assert codes.norm_bound(codes.FLAT, codes.NO_LEVELS) == codes.screening_factor(codes.FLAT, codes.NO_LEVELS) == 1
