from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfe_faiss.audit.groups import groupings

PEOPLE = pd.DataFrame(
    {
        "sex": ["f", "m", None, "f"],
        "age": [20.0, 35.0, 50.0, np.nan],
        "member": [True, False, True, True],
        "city": pd.Categorical(["B", "A", "A", "B"], categories=["B", "A", "C"]),
    },
    index=[7, 3, 10**15, 0],
)
IDS = np.array([0, 3, 7, 10**15])


def members(group):
    """Return the nodes of each value."""
    return {
        value: np.flatnonzero(group.codes == code).tolist()
        for code, value in enumerate(group.values)
    }


def test_every_kind_of_column():
    found = {group.name: members(group) for group in groupings(PEOPLE, IDS)}
    assert found == {
        "sex": {"f": [0, 2], "m": [1], "unknown": [3]},
        "age": {"20": [2], "35": [1], "50": [3], "unknown": [0]},
        "member": {"False": [1], "True": [0, 2, 3]},
        "city": {"A": [1, 3], "B": [0, 2]},
    }


def test_nullable_columns():
    frame = pd.DataFrame(
        {"a": pd.array([1, None, 2], "Int64"), "b": pd.array([True, None, False], "boolean")}
    )
    a, b = groupings(frame, np.arange(3))
    assert members(a) == {"1": [0], "2": [2], "unknown": [1]}
    assert members(b) == {"False": [2], "True": [0], "unknown": [1]}
    (group,) = groupings({"a": ["unknown", None, "x"]}, np.arange(3))
    assert members(group) == {"unknown": [0, 1], "x": [2]}


def test_rows_that_are_not_asked_for_shape_the_groups_only():
    age = groupings(PEOPLE, np.array([3]), ["age"], bins={"age": 2})[0]
    assert members(age) == {"20-35": [0], "50": [], "unknown": []}


@pytest.mark.parametrize(
    ("edges", "expected"),
    [
        ([30], {"<= 30": [0, 1, 2], "> 30": [3, 4, 5]}),
        ([0, 30], {"< 0": [0], "0-30": [1, 2], "> 30": [3, 4, 5]}),
        ([0, 30, 40.5], {"< 0": [0], "0-30": [1, 2], "30-40.5": [3, 4], "> 40.5": [5]}),
        ([-5, 0], {"< -5": [], "-5 to 0": [0, 1], "> 0": [2, 3, 4, 5]}),
    ],
)
def test_edges(edges, expected):
    frame = pd.DataFrame({"time": [-5, 0, 30, 31, 40.5, 99]})
    assert members(groupings(frame, np.arange(6), bins={"time": edges})[0]) == expected


@given(
    numbers=st.lists(st.integers(-30, 30) | st.floats(-1, 1, width=32), min_size=1, max_size=80),
    count=st.integers(1, 7),
)
def test_quantile_bins_part_the_numbers_in_order(numbers, count):
    group = groupings(pd.DataFrame({"a": numbers}), np.arange(len(numbers)), bins={"a": count})[0]
    assert 1 <= len(group.values) <= count
    assert len(set(group.values)) == len(group.values)
    parts = [np.array(numbers)[group.codes == code] for code in range(len(group.values))]
    assert all(len(part) for part in parts)
    assert all(low.max() < high.min() for low, high in pairwise(parts))
    # No bin holds more than its share, but for the copies of its largest value.
    assert all((part < part.max()).sum() <= len(numbers) / count for part in parts)


@given(numbers=st.lists(st.sampled_from([0, 1, 2.5, 30, 1e20, 0.1]), min_size=1))
def test_few_values_stand_for_themselves(numbers):
    group = groupings(pd.DataFrame({"a": numbers}), np.arange(len(numbers)))[0]
    np.testing.assert_array_equal([float(group.values[code]) for code in group.codes], numbers)


def test_many_values_are_cut_into_quartiles_or_as_asked():
    frame = pd.DataFrame({"a": np.arange(40), "b": np.arange(40) / 1000})
    a, b = groupings(frame, np.arange(40))
    assert a.values == ["0-9", "10-19", "20-29", "30-39"]
    assert b.values == ["0-0.009", "0.01-0.019", "0.02-0.029", "0.03-0.039"]
    assert [len(group.values) for group in groupings(frame, np.arange(40), bins=8)] == [8, 8]
    assert [len(group.values) for group in groupings(frame, np.arange(40), bins={"a": 2})] == [2, 4]


def test_names_that_rounding_would_make_equal_are_told_apart():
    frame = pd.DataFrame({"a": 0.5 + np.arange(40) / 1e9})
    group = groupings(frame, np.arange(40))[0]
    assert len(set(group.values)) == 4
    frame = pd.DataFrame({"wage": 1000.125 * np.arange(1, 41) * 100})
    (group,) = groupings(frame, np.arange(40))
    assert (group.values[0], group.values[-1]) == ("100012-1000125", "3100388-4000500")


def test_intersections_are_the_combinations_that_occur():
    (group,) = groupings(PEOPLE, IDS, [], intersections=[("sex", "member", "city")])
    assert group.name == "sex & member & city"
    expected = {"f & True & B": [0, 2], "m & False & A": [1], "unknown & True & A": [3]}
    assert members(group) == expected


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"features": SimpleNamespace(x=[[1.0]])}, ValueError, "must describe every node, got"),
        (
            {"features": SimpleNamespace(x=[[1.0]], sensitive=[1, 2])},
            ValueError,
            "features.sensitive",
        ),
        ({"columns": ["agee"]}, ValueError, "columns must name attributes .*, got 'agee'"),
        ({"intersections": [("sex", "agee")]}, ValueError, "intersections .*got 'agee'"),
        ({"intersections": [("sex",)]}, ValueError, "intersections must name two attributes"),
        ({"bins": {"agee": 2}}, ValueError, "bins must name attributes .*, got 'agee'"),
        ({"bins": {"sex": 2}}, TypeError, "bins must be of columns of numbers, got 'sex'"),
        ({"bins": {"age": [3, 2]}}, ValueError, r"bins\['age'\] must be a number of bins"),
        ({"bins": {"age": []}}, ValueError, r"bins\['age'\] must be"),
        ({"bins": {"age": 0}}, ValueError, r"bins\['age'\] must be at least 1"),
        ({"bins": {"age": "ab"}}, TypeError, r"bins\['age'\] must be an array of real numbers"),
        ({"bins": 0}, ValueError, "bins must be at least 1"),
        ({"bins": 2.5}, TypeError, "bins must be an integer"),
    ],
)
def test_faults(change, error, message):
    with pytest.raises(error, match=message):
        groupings(**({"features": PEOPLE, "ids": IDS} | change))
