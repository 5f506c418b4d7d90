import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.decomposition import PCA

import cfe_faiss as cfe
from cfe_faiss.attributes.table import as_attributes
from cfe_faiss.data.encode import encode


def distances(columns, **options):
    x = encode(as_attributes(columns), **options).x.astype(np.float64)
    return np.sqrt(((x[:, None] - x) ** 2).sum(axis=2))


def test_by_hand():
    encoding = encode(
        as_attributes({"n": [1.0, 3.0, np.nan, 2.0], "t": ["b", "a", None, "a"], "c": [5, 5, 5, 5]})
    )
    assert encoding.names == ("n", "n=(missing)", "t=(missing)", "t=a", "t=b", "c")
    assert encoding.attributes == ("n", "n", "t", "t", "t", "c")
    expected = [[1, 0, 0, 0, 1, 5], [3, 0, 0, 1, 0, 5], [2, 1, 1, 0, 0, 5], [2, 0, 0, 1, 0, 5]]
    assert_array_equal(encoding.x_raw, expected)
    assert_allclose(encoding.x[:, 0], np.array([-1, 1, 0, 0]) / np.sqrt(2 / 3), rtol=1e-6)
    assert_array_equal(encoding.x[:, 1], [0, 0, 1, 0])
    assert_allclose(encoding.x[:, 2:5], np.array(expected)[:, 2:5] * math.sqrt(0.5), rtol=1e-6)
    assert_array_equal(encoding.x[:, 5], 0)


@pytest.mark.parametrize("count", [1, 3, 30])
def test_a_missing_value_is_one_deviation_away_however_rare(count):
    values = np.random.default_rng(0).normal(50, 9, 60)
    values[-1] = values[:-count][:-1].mean() if count < 59 else 50
    known = values[:-count].copy()
    known[-1] = np.delete(known, -1).mean()  # stands at the mean
    found = distances({"n": np.append(known, np.full(count, np.nan))})
    assert found[len(known) - 1, -1] == pytest.approx(1, abs=1e-6)
    answer = found[0, -1]
    assert answer == pytest.approx(np.hypot((known[0] - known.mean()) / known.std(), 1), rel=1e-6)
    assert found[-count, -1] == 0


@given(
    st.lists(
        st.tuples(st.sampled_from("abcd"), st.sampled_from(["x", None])), min_size=2, max_size=12
    )
)
def test_categories_count_as_one_deviation_each(rows):
    first, second = zip(*rows, strict=True)
    differing = [[(a[0] != b[0]) + (a[1] != b[1]) for b in rows] for a in rows]
    assert_allclose(distances({"f": list(first), "s": list(second)}), np.sqrt(differing), atol=1e-6)


def test_weights_multiply_the_distance():
    columns = {"n": [1.0, 2, 4, 9, np.nan], "t": ["a", "b", "a", "b", "a"]}
    plain, text = distances({"n": columns["n"]}), distances({"t": columns["t"]})
    expected = np.hypot(3 * plain, 0.5 * text)
    assert_allclose(distances(columns, scale={"n": 3, "t": 0.5}), expected, rtol=1e-5, atol=1e-6)


def test_errors():
    with pytest.raises(ValueError, match="column 'n' must hold finite numbers"):
        encode(as_attributes({"n": [1.0, np.inf]}))
    with pytest.raises(ValueError, match="column 't' has 101 different texts, more than 100"):
        encode(as_attributes({"t": [f"v{i}" for i in range(101)]}))
    with pytest.raises(ValueError, match="got 'a=b' more than once"):
        encode(as_attributes({"a": ["b", "c"], "a=b": [1, 2]}))
    for scale, error in (
        ({"income": 1}, "did you mean 'incomes'"),
        ({"incomes": 0}, "scale\\['incomes'\\] must be above 0"),
        ({"incomes": -1}, "scale\\['incomes'\\] must lie in"),
        ({"incomes": np.nan}, "scale\\['incomes'\\] must lie in"),
    ):
        with pytest.raises(ValueError, match=error):
            encode(as_attributes({"incomes": [1.0, 2]}), scale=scale)
    with pytest.raises(TypeError, match="scale must map names of columns to weights"):
        encode(as_attributes({"incomes": [1.0, 2]}), scale=[2.0])


def test_scale_and_encoder_of_a_table():
    frame = pd.DataFrame({"a": [1.0, 2, 5, 9], "b": [3.0, 1, 4, 1], "loan": list("yynn")})
    weighted = cfe.EvidenceFinder.from_table(frame, "loan", scale={"a": 2})
    plain = cfe.EvidenceFinder.from_table(frame, "loan")
    assert_array_equal(weighted.vectors, plain.vectors * np.float32([2, 1]))
    own = cfe.EvidenceFinder.from_table(frame, "loan", encoder=PCA(1))
    assert own.vectors.shape == (4, 1)
    assert own.top_pairs(1).to_frame().columns[2] == "distance"
    with pytest.raises(ValueError, match="scale must be left out with encoder"):
        cfe.EvidenceFinder.from_table(frame, "loan", encoder=PCA(1), scale={"a": 2})
    with pytest.raises(ValueError, match="scale must name columns that vectors are made of"):
        cfe.EvidenceFinder.from_table(frame, "loan", without=["a"], scale={"a": 2})


@given(st.integers(1, 400), st.integers(1, 12), st.integers(0, 99))
def test_a_column_does_not_depend_on_the_others(n, d, seed):
    rng = np.random.default_rng(seed)
    columns = {f"c{j}": rng.lognormal(size=n) * 10.0 ** (j - 5) for j in range(d)}
    columns["constant"] = np.full(n, 3.7)
    together = encode(as_attributes(columns))
    for j, (name, column) in enumerate(columns.items()):
        alone = encode(as_attributes({name: column}))
        np.testing.assert_array_equal(together.x[:, [j]], alone.x)
        if name != "constant":
            deviations = (column - column.mean()) / (column.std() or 1)
            np.testing.assert_allclose(alone.x[:, 0], deviations, rtol=1e-5, atol=1e-6)
