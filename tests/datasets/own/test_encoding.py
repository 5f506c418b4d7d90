import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfe_faiss.attributes.table import as_attributes
from cfe_faiss.datasets.own.encoding import encode


def test_by_hand() -> None:
    encoding = encode(as_attributes({"n": [1.0, 3.0, np.nan, 2.0], "t": ["b", "a", None, "a"], "c": [5, 5, 5, 5]}))
    assert encoding.names == ("n", "n=(missing)", "t=(missing)", "t=a", "t=b", "c")
    assert encoding.attributes == ("n", "n", "t", "t", "t", "c")
    expected = [[1, 0, 0, 0, 1, 5], [3, 0, 0, 1, 0, 5], [2, 1, 1, 0, 0, 5], [2, 0, 0, 1, 0, 5]]
    np.testing.assert_array_equal(encoding.x_raw, expected)
    of_text = np.array([[-0.25, -0.5, 0.75], [-0.25, 0.5, -0.25], [0.75, -0.5, -0.25], [-0.25, 0.5, -0.25]])
    np.testing.assert_allclose(encoding.x[:, 2:5], of_text / np.sqrt(3 / 16 + 1 / 4 + 3 / 16), rtol=1e-6)
    np.testing.assert_allclose(encoding.x[:, 0], np.array([-1, 1, 0, 0]) / np.sqrt(0.5), rtol=1e-6)
    np.testing.assert_allclose(encoding.x[:, 1], np.array([-1, -1, 3, -1]) / np.sqrt(3), rtol=1e-6)
    np.testing.assert_array_equal(encoding.x[:, 5], 0)


def test_as_is() -> None:
    encoding = encode(as_attributes({"n": [1.0, 3.0], "t": ["b", "a"]}), as_is=True)
    np.testing.assert_array_equal(encoding.x, [[1, 0, 1], [3, 1, 0]])
    np.testing.assert_array_equal(encoding.x, encoding.x_raw)


@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.sampled_from(["a", "b", "c", None])), min_size=2, max_size=30))
def test_each_attribute_has_weight_1(rows: list[tuple[float, str | None]]) -> None:
    attributes = as_attributes({"n": [row[0] for row in rows], "t": [row[1] for row in rows]})
    encoding = encode(attributes)
    of = np.array(encoding.attributes)
    for name, attribute in attributes.items():
        columns = encoding.x[:, of == name].astype(np.float64)
        varies = len(set(attribute.codes.tolist())) > 1
        if name == "t" or np.ptp(columns) > 0:
            np.testing.assert_allclose(columns.var(axis=0).sum(), float(varies), atol=1e-5)
            np.testing.assert_allclose(columns.mean(axis=0), 0, atol=1e-5)


def test_errors() -> None:
    with pytest.raises(ValueError, match="attribute 'n' must be finite"):
        encode(as_attributes({"n": [1.0, np.inf]}))
    with pytest.raises(ValueError, match="attribute 't' has 101 different texts, more than 100"):
        encode(as_attributes({"t": [f"v{i}" for i in range(101)]}))
    with pytest.raises(ValueError, match="got 'a=b' more than once"):
        encode(as_attributes({"a": ["b", "c"], "a=b": [1, 2]}))
