import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfe_faiss.coarse.partitions import (
    cap_weight,
    log_overlap_ratio,
    node_weights,
    overlap_ratio,
    weight_table,
)

THETA = math.pi / 3
DEGREES = (5, 10, 20, 30, 45, 60)
# Dimension, and overlaps of caps of pi/3 at these angles, see test_constants_are_those_of_another_integral
TABLE = """
3 0.95189257079 0.903815806028 0.8078801278 0.712459113463 0.570975148723 0.432693791878
18 0.905112879724 0.811188098711 0.630007256001 0.463714385351 0.25593456836 0.111083960159
128 0.771034549736 0.559631334293 0.238909875209 0.0726710725186 0.00518578888143 7.93818985076e-5
500 0.570850756113 0.255838182238 0.0217679027734 4.68588592175e-4 4.96648008192e-8 1.28474301239e-14
1433 0.338968069691 0.0552418543313 1.08397428202e-4 3.58309999564e-9 3.51179370309e-20 1.05307143293e-38
"""
OVERLAP = {int(d): overlaps for d, *overlaps in np.loadtxt(TABLE.splitlines())}
# Logarithms of the overlap for d, theta, phi
EDGES = {
    (10_000, THETA, 2.0): -8270.45686976,
    (1433, 0.3, 0.55): -1281.69308858,
    (5, 1.5, 2.9): -4.58434497086,
    (4, 0.01, 0.013): -1.81820507811,
}
dimensions = st.sampled_from([2, 3, 4, 5, 18, 128, 1433, 10_000])
thetas = st.floats(0.05, math.pi / 2)


def reference(phi: float, d: int, theta: float) -> mp.mpf:
    """The overlap as Li and Lee & Kim write it: an integral over incomplete beta functions, in 30 digits."""
    with mp.workdps(30):
        phi, theta = mp.mpf(phi), mp.mpf(theta)

        def share(s):  # of the unit sphere in R^(d-1), first coordinate >= s
            if abs(s) >= 1:
                return mp.mpf(s < 0)
            half = mp.betainc(mp.mpf(d - 2) / 2, mp.mpf(1) / 2, 0, 1 - s * s, regularized=True) / 2
            return half if s >= 0 else 1 - half

        def ring(t):
            # near 1: the error that quad aims for is absolute
            return (mp.sin(t) / mp.sin(theta)) ** (d - 2)

        def covered(t):
            return ring(t) * share(
                (mp.cos(theta) - mp.cos(t) * mp.cos(phi)) / (mp.sin(t) * mp.sin(phi))
            )

        kink = abs(theta - phi)
        steps = [theta * (1 - mp.mpf(2) ** k / d) for k in range(int(math.log2(d)), 0, -1)]
        # where share is 1/2
        half = mp.acos(min(mp.cos(theta) / mp.cos(phi), 1)) if phi < theta else theta
        points = sorted({mp.mpf(0), kink, half, theta, *steps})
        total = mp.quad(ring, points)
        whole = mp.quad(ring, [p for p in points if p <= kink]) if theta > phi else 0
        return (whole + mp.quad(covered, [p for p in points if p >= kink])) / total


@pytest.mark.slow
@pytest.mark.parametrize("d", OVERLAP)
def test_constants_are_those_of_another_integral(d):
    for degrees, written in zip(DEGREES, OVERLAP[d], strict=True):
        expected = pytest.approx(written, rel=1e-11, abs=0)
        assert float(reference(math.radians(degrees), d, THETA)) == expected


@pytest.mark.slow
@pytest.mark.parametrize(("d", "theta", "phi"), EDGES)
def test_logarithms_are_those_of_another_integral(d, theta, phi):
    assert float(mp.log(reference(phi, d, theta))) == pytest.approx(EDGES[d, theta, phi], rel=1e-11)


@pytest.mark.parametrize("d", OVERLAP)
def test_high_precision(d):
    phi, expected = np.radians(DEGREES), np.array(OVERLAP[d])
    assert overlap_ratio(phi, d) == pytest.approx(expected, rel=1e-9, abs=0)
    assert cap_weight(phi, d) == pytest.approx(1 - expected, abs=1e-12)


@pytest.mark.parametrize(("d", "theta", "phi"), EDGES)
def test_high_precision_at_the_edges(d, theta, phi):
    assert log_overlap_ratio(phi, d, theta) == pytest.approx(EDGES[d, theta, phi], rel=1e-9)


def test_logarithm_goes_on_where_the_ratio_underflows():
    logs = log_overlap_ratio(np.radians([90, 110, 119, 120]), 10_000)
    assert np.isfinite(logs[:3]).all()
    assert (np.diff(logs[:3]) < -1000).all()
    assert logs[3] == -np.inf


@given(phi=st.floats(0, math.pi), theta=thetas)
def test_arcs(phi, theta):
    assert cap_weight(phi, 2, theta) == pytest.approx(min(phi / (2 * theta), 1), abs=1e-12)


@given(phi=st.floats(0, math.pi), d=dimensions)
def test_half_spheres(phi, d):
    assert cap_weight(phi, d, math.pi / 2) == pytest.approx(phi / math.pi, abs=1e-12)


@given(share=st.floats(0.001, 0.999), theta=st.floats(0.05, 1.55))
def test_lens_on_the_ordinary_sphere(share, theta):
    phi = share * 2 * theta
    with mp.workdps(30):  # the closed form loses half the digits where the caps barely touch
        cos, sin = mp.cos(theta), mp.sin(theta)
        side = mp.acos(cos * (1 - mp.cos(phi)) / (mp.sin(phi) * sin))
        lens = 2 * (mp.pi - mp.acos((mp.cos(phi) - cos**2) / sin**2) - 2 * cos * side)
        cap = 2 * mp.pi * (1 - cos)
    assert overlap_ratio(phi, 3, theta) == pytest.approx(float(lens / cap), rel=1e-9)


@given(phi=st.lists(st.floats(0, math.pi), min_size=1, max_size=40), d=dimensions, theta=thetas)
def test_weights_rise_from_zero_to_one(phi, d, theta):
    weights = cap_weight(np.sort(phi), d, theta)
    assert ((weights >= 0) & (weights <= 1)).all()
    assert (np.diff(weights) >= -1e-12).all()
    assert cap_weight(0.0, d, theta) == 0
    assert (weights[np.sort(phi) >= 2 * theta] == 1).all()


@given(phi=st.floats(0, math.pi), theta=thetas, d=st.integers(2, 500))
def test_weights_rise_with_the_dimension(phi, theta, d):
    assert cap_weight(phi, d + 1, theta) >= cap_weight(phi, d, theta) - 1e-7


def test_shapes_and_dtype():
    phi = np.linspace(0, 3, 12, dtype=np.float32)
    assert cap_weight(phi.reshape(3, 4), 7).shape == (3, 4)
    assert cap_weight(phi, 7).dtype == np.float64
    assert cap_weight(0.5, 7).shape == ()
    assert cap_weight([], 7).shape == (0,)
    found = cap_weight(phi, 7)
    np.testing.assert_allclose(found, [cap_weight(float(p), 7) for p in phi], rtol=0, atol=1e-15)
    assert cap_weight(np.arccos(np.float32(-1)), 7) == 1  # float32's pi is above pi


@given(
    d=dimensions, theta=st.one_of(st.just(THETA), st.just(1.5707), thetas), seed=st.integers(0, 99)
)
def test_table_is_within_a_millionth(d, theta, seed):
    angles, weights = weight_table(d, theta)
    rng = np.random.default_rng(seed)
    end = angles[-1]
    phi = np.concatenate([rng.uniform(0, end, 500), end * (1 - rng.uniform(0, 0.05, 500) ** 2)])
    between = np.interp(phi, angles, weights)
    np.testing.assert_allclose(between, cap_weight(phi, d, theta), rtol=0, atol=1e-6)
    assert weights[0] == 0
    assert weights[-1] == 1
    assert (np.diff(between[np.argsort(phi)]) >= 0).all()


def test_table_is_made_once_and_cannot_be_changed():
    table = weight_table(18, 1.0)
    assert weight_table(np.int64(18), np.float64(1.0)) is table
    with pytest.raises(ValueError, match="read-only"):
        table[1][0] = 1


@settings(deadline=None)
@given(cosines=st.lists(st.floats(-1.5, 1.5, width=32), max_size=50), d=dimensions, theta=thetas)
def test_node_weights(cosines, d, theta):
    weights = node_weights(np.array(cosines, dtype=np.float32), d, theta)
    exact = cap_weight(np.arccos(np.clip(np.array(cosines, dtype=np.float64), -1, 1)), d, theta)
    np.testing.assert_allclose(weights, exact, rtol=0, atol=1e-6)
    assert weights.dtype == np.float64
    assert ((weights >= 0) & (weights <= 1)).all()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        *(
            (lambda t=t: cap_weight(0.1, 3, t), ValueError, "theta must")
            for t in (0, 1.58, math.nan)
        ),
        *((lambda t=t: node_weights([1], 3, t), ValueError, "theta must") for t in (-1, math.nan)),
        *(
            (lambda phi=phi: cap_weight([0.1, phi], 3), ValueError, r"phi must lie in \[0, pi\]")
            for phi in (-0.1, 3.2, math.nan, math.inf)
        ),
        (lambda: cap_weight(0.1, 1), ValueError, "d must be at least 2, got 1"),
        (lambda: node_weights([1.0], 1), ValueError, "d must be at least 2, got 1"),
        (lambda: node_weights([1.0], 2.5), TypeError, "d must be an integer"),
        (lambda: cap_weight(0.1, 3, "wide"), TypeError, "theta must be a number"),
        (lambda: cap_weight(["a"], 3), TypeError, "phi must be an array of real numbers"),
        (lambda: node_weights([0.5, math.nan], 3), ValueError, "cosines .*got NaN at position 1"),
    ],
)
def test_faults_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()
