"""Attributes of nodes: the same from every kind of table."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

from cfe_faiss.attributes.table import as_attributes, attributes_of


def tables():
    rows = {
        "sex": ["f", "m", None, "f"],
        "age": [20.0, 35.0, np.nan, 50.0],
        "married": [True, False, True, None],
    }
    return {
        "mapping": rows,
        "pandas": pd.DataFrame({**rows, "sex": pd.Categorical(rows["sex"])}),
        "polars": pl.DataFrame({**rows, "age": [20.0, 35.0, None, 50.0]}),
    }


@pytest.mark.parametrize("kind", ["mapping", "pandas", "polars"])
def test_every_table_gives_the_same(kind):
    found = as_attributes(tables()[kind])
    assert list(found) == ["sex", "age", "married"]
    assert found["sex"].values == ("f", "m")
    assert found["sex"].codes.tolist() == [0, 1, -1, 0]
    assert found["sex"].numbers is None
    assert found["age"].values == (20, 35, 50)
    assert found["age"].codes.tolist() == [0, 1, -1, 2]
    np.testing.assert_array_equal(found["age"].numbers, [20, 35, np.nan, 50])
    assert found["married"].values == ("False", "True")
    assert found["married"].codes.tolist() == [1, 0, 1, -1]
    assert found["age"].missing.tolist() == [False, False, True, False]
    assert found["sex"].of(2) is None
    assert found["sex"].of(1) == "m"
    assert as_attributes(found) is found
    flags = as_attributes({"flag": torch.tensor([True, False])})["flag"]
    assert flags.numbers.tolist() == [1, 0]


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("kind", ["mapping", "pandas", "polars", "arrow"])
def test_integers_that_floats_do_not_tell_apart_are_texts(kind, missing):
    numbers = [2**60, 2**60 + 1, 2**60, None if missing else -(2**60)]
    table = {
        "mapping": lambda: {"id": pd.array(numbers, "Int64") if missing else numbers},
        "pandas": lambda: pd.DataFrame({"id": pd.array(numbers, "Int64")}),
        "polars": lambda: pl.DataFrame({"id": numbers}),
        "arrow": lambda: pl.DataFrame({"id": numbers}).to_arrow(),
    }[kind]()
    column = as_attributes(table)["id"]
    assert column.numbers is None
    assert [column.of(row) for row in range(3)] == [str(number) for number in numbers[:3]]
    assert column.missing.tolist() == [False, False, False, missing]
    assert as_attributes({"id": [2**53, 0]})["id"].numbers.tolist() == [2**53, 0]


@pytest.mark.parametrize("values", [[1.5, 2.0, 3.0], [1, 2, 3], ["a", "b", "c"]])
def test_masked_values_are_missing(values):
    masked = np.ma.masked_array(values, mask=[False, True, False])
    column = as_attributes({"m": masked})["m"]
    assert column.missing.tolist() == [False, True, False]
    assert column.of(2) == values[2]


def test_complex_numbers_are_refused():
    with pytest.raises(TypeError, match=r"features\['c'\] must hold numbers.*got complex128"):
        as_attributes({"c": np.arange(3) * 1j})


def test_a_number_beside_the_same_text_is_refused():
    with pytest.raises(
        ValueError, match=r"features\['m'\] must hold numbers or texts, got 1 and '1'"
    ):
        as_attributes({"m": np.array([1, "1", "a"], object)})
    assert as_attributes({"m": np.array([1, "a", True], object)})["m"].values == ("1", "True", "a")


def test_data_of_pyg_with_a_sensitive_attribute():
    data = SimpleNamespace(
        x=torch.zeros(2, 2), x_raw=torch.tensor([[1.5, 2], [0.1, 2]]), feature_names=["a", "b"],
        sensitive=torch.tensor([1, 0]), sensitive_name="sex",
    )  # fmt: skip
    found = as_attributes(data)
    assert list(found) == ["a", "b", "sex"]
    assert found["a"].numbers.dtype == np.float32  # 0.1 is named so, and not 0.10000000149
    assert found["sex"].values == (0, 1)
    data.sensitive_name = "b"
    assert list(as_attributes(data)) == ["a", "b"]
    assert list(as_attributes(np.eye(2))) == ["feature 0", "feature 1"]


def test_rows_by_node_id():
    frame = pd.DataFrame({"age": [1, 2, 3]}, index=[7, 3, 5])
    found = as_attributes(frame)
    assert found.take(np.array([3, 7]))["age"].numbers.tolist() == [2, 1]
    assert found.take(np.array([3, 7])).ids.tolist() == [3, 7]
    assert as_attributes({"a": [1, 2]}).take(np.array([1]))["a"].numbers.tolist() == [2]
    cases = ((found, [3, 4]), (as_attributes({"a": [1, 2]}), [2]), (as_attributes({}), [0]))
    for table, ids in cases:
        with pytest.raises(ValueError, match=f"no row for {ids[-1]}"):
            table.take(np.array(ids))


def test_selection_and_names():
    found = as_attributes(tables()["mapping"])
    assert list(found.select(["age"])) == ["age"]
    assert repr(found) == "Attributes(4 nodes, 3 attributes: sex, age, married)"
    with pytest.raises(ValueError, match=r"columns .*got 'Sex'"):
        found.known("columns", "Sex")
    frame = found.to_frame()
    assert frame["sex"].isna().tolist() == [False, False, True, False]
    assert (frame.index.name, frame["age"].tolist()[:2]) == ("node", [20, 35])


@pytest.mark.parametrize(
    ("features", "error", "message"),
    [
        (3, TypeError, "got int"),
        ({"a": [1, 2], "b": [1]}, ValueError, "columns of one length, got 2 and 1 in 'b'"),
        ({"a": [[1, 2]]}, ValueError, r"must have shape \(n,\), got \(1, 2\)"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), ValueError, "got 'a' more than once"),
        (pd.DataFrame({"a": [1, 2]}, index=[0, 0]), ValueError, "got 0 again"),
        (pd.DataFrame({"a": [1]}, index=["x"]), TypeError, "the index of features must be"),
        (SimpleNamespace(x=np.eye(2), feature_names=["a"]), ValueError, "must hold 2 names"),
        (SimpleNamespace(x=np.eye(2), sensitive=[1]), ValueError, "sensitive must have shape"),
    ],
)
def test_what_is_wrong_is_named(features, error, message):
    with pytest.raises(error, match=message):
        as_attributes(features)


def test_attributes_of_all_nodes():
    frame = pd.DataFrame({"age": [30, 20]}, index=[1, 0])
    np.testing.assert_array_equal(attributes_of(frame, 2)["age"].numbers, [20, 30])
    with pytest.raises(ValueError, match=r"features must describe the nodes 0\.\.0, got 2 rows"):
        attributes_of(frame, 1)
    with pytest.raises(ValueError, match="the attributes must describe every node, got no row"):
        attributes_of(frame, 3)
