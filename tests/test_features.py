from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cfe_faiss.attributes.table import feature_names
from cfe_faiss.plot import class_name, differing_features, format_value

PEOPLE = SimpleNamespace(
    x=[[0.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.5, 1.0, 0.0]],
    x_raw=[[20.0, 0.0, 7.0], [60.0, 1.0, 7.0], [40.0, 1.0, 7.0]],
    feature_names=["age", "employed", "always seven"],
)


def test_values_are_in_their_own_units():
    rows = differing_features(PEOPLE, 0, 1)
    expected = [("age", 20, 60), ("employed", 0, 1)]
    assert [(row.name, row.source, row.target) for row in rows] == expected
    rows = differing_features(SimpleNamespace(x=PEOPLE.x, x_raw=None), 1, 2)
    assert [(row.name, row.source, row.target) for row in rows] == [("feature 0", 1.0, 0.5)]
    assert differing_features(PEOPLE, 1, 1) == []


@given(
    x=arrays(
        np.float32, st.tuples(st.integers(2, 6), st.integers(1, 6)), elements=st.integers(-50, 50)
    ),
    count=st.integers(1, 8),
)
def test_against_plain_numpy(x, count):
    rows = differing_features(SimpleNamespace(x=x), 0, 1, count)
    spread = x.astype(float).std(axis=0)
    expected = np.divide(x[1] - x[0], spread, out=np.zeros(len(spread)), where=spread > 0)
    assert len(rows) == min(count, np.count_nonzero(x[0] != x[1]))
    found = [abs(row.difference) for row in rows]
    np.testing.assert_allclose(found, np.sort(np.abs(expected))[::-1][: len(rows)])
    for row in rows:
        column = int(row.name.removeprefix("feature "))
        assert (row.source, row.target) == (x[0, column], x[1, column])
        assert row.difference == pytest.approx(expected[column])
    turned = differing_features(SimpleNamespace(x=x), 1, 0, count)
    wanted = [(row.source, row.target, row.difference) for row in rows]
    assert [(row.target, row.source, -row.difference) for row in turned] == wanted


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0.0, "0"),
        (-3.0, "-3"),
        (12500.0, "12,500"),
        (0.30710003, "0.3071"),
        (-1001.25, "-1,001"),
        (2e12, "2e+12"),
        (1e-7, "1e-07"),
        (999.96, "1,000"),
        (85.63, "85.63"),
    ],
)
def test_format_value(value, written):
    assert format_value(value) == written


def test_names():
    assert feature_names(PEOPLE, 3) == ["age", "employed", "always seven"]
    assert class_name(SimpleNamespace(class_names=["no", "yes"]), 1) == "yes"
    assert class_name(SimpleNamespace(class_names=["no", "yes"]), 2) == "class 2"
    assert class_name(SimpleNamespace(), -1) == "class -1"


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"source": 3}, ValueError, r"source must lie in 0\.\.2, got 3"),
        ({"target": -1}, ValueError, "target must be at least 0, got -1"),
        ({"target": 1.0}, TypeError, "target must be an integer"),
        ({"count": 0}, ValueError, "count must be at least 1, got 0"),
        ({"data": SimpleNamespace(x=[1.0, 2.0])}, ValueError, r"data\.x must have shape"),
        ({"data": SimpleNamespace(x=[[1.0], [np.nan]])}, ValueError, r"data\.x must be finite"),
        ({"data": SimpleNamespace(x=[[1.0]], x_raw=[["a"]])}, TypeError, r"data\.x_raw must"),
        ({"data": SimpleNamespace(x=PEOPLE.x, feature_names=["a"])}, ValueError, "got 1"),
    ],
)
def test_faults(change, error, message):
    with pytest.raises(error, match=message):
        differing_features(**({"data": PEOPLE, "source": 0, "target": 1} | change))
