"""Values of every library become the same labels, groups and ids; each error names the value and its position."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cfe_faiss import IndexEvidenceFlat
from cfe_faiss.base import values
from cfe_faiss.base.checks import as_array
from cfe_faiss.base.values import (
    NOT_STORED,
    LabelKeys,
    as_ids,
    as_labels,
    as_list,
    as_nodes,
    group_numbers,
)

KINDS = {
    "integers": st.integers(0, 2**63 - 1) | st.integers(0, 3),
    "texts": st.text(min_size=1, max_size=4).filter(lambda text: text[-1] != "\0"),
    "booleans": st.booleans(),
}


def columns(items):
    """Return known and missing values of one kind in the forms of all libraries."""
    known = [one for one in items if one is not None]
    forms = {
        "list": items,
        "tuple": tuple(items),
        "objects": np.array([*items, None], object)[:-1],
        "series of objects": pd.Series(items, dtype=object),
        "index": pd.Index(items, dtype=object),
        "categories": pd.Categorical(items, categories=list(dict.fromkeys(known))),
        "arrow": pa.array(items),
        "chunks": pa.chunked_array(
            [pa.array(items[:1], pa.array(items).type), pa.array(items[1:], pa.array(items).type)]
        ),
        "dictionary": pa.array(items).dictionary_encode(),
        "polars": pl.Series(items, strict=False),
        "scalars": [one if one is None else np.array([one])[0] for one in items],
        "arrow scalars": list(pa.array(items)),
    }
    kinds = {bool: "boolean", int: "Int64", str: "string"}
    if known:
        mask = [one is None for one in items]
        forms["masked array"] = np.ma.array(
            np.array([known[0] if one is None else one for one in items]), mask=mask
        )
        forms["masked entries"] = list(forms["masked array"])
        forms["nullable"] = pd.array(items, dtype=kinds[type(known[0])])
        forms["series of arrow"] = pd.Series(
            pd.array(items, dtype=pd.ArrowDtype(pa.array(items).type))
        )
    if known and len(known) == len(items):
        forms["array"] = np.array(items)
        forms["series"] = pd.Series(items)
        if not isinstance(items[0], str):
            forms["tensor"] = torch.tensor(items)
            forms["tensors"] = list(torch.tensor(items))
    return forms


def plain(labels):
    return [(type(one), one) for one in labels.tolist()]


@pytest.mark.parametrize("kind", KINDS)
@given(st.data())
def test_labels_of_every_library(kind, data):
    items = data.draw(st.lists(KINDS[kind] | st.none(), max_size=6))
    unknown = -1 if all(type(one) is int for one in items if one is not None) else None
    expected = [(type(one), one) for one in (unknown if one is None else one for one in items)]
    for form, given_values in columns(items).items():
        assert plain(as_labels("y", given_values, len(items), unknown=True)) == expected, form
    if None in items:
        for form, given_values in columns(items).items():
            message = f"y must hold a label.*None at position {items.index(None)}|y must lie in"
            with pytest.raises(ValueError, match=message):
                as_labels("y", given_values, len(items))
            message = f"g must hold a group.* missing .*at position {items.index(None)}"
            with pytest.raises(TypeError, match=message):
                group_numbers(("g", given_values, len(items)))
            assert form


def test_an_integer_column_with_missing_values_is_of_floats():
    series = pd.Series([3, None, 0])
    assert series.dtype == np.float64
    assert as_labels("y", series, 3, unknown=True).tolist() == [3, -1, 0]
    big = 2**53 + 1  # no float is
    cases = (pl.Series([big, None]), pa.array([big, None]), pd.array([big, None], dtype="Int64"))
    for given_values in cases:
        assert as_labels("y", given_values, 2, unknown=True).tolist() == [big, -1]
    assert (
        as_labels(
            "y", [pd.NA, pd.NaT, np.nan, None, np.datetime64("NaT"), -1], 6, unknown=True
        ).tolist()
        == [-1] * 6
    )


mixed = st.lists(st.one_of(*KINDS.values()), max_size=8)


@given(mixed, mixed)
def test_mixed_kinds_stay_apart(items, more):
    assert plain(as_labels("y", items, len(items))) == [(type(one), one) for one in items]
    first, second = group_numbers(
        ("g", items, len(items)), ("h", np.array([*more, None], object)[:-1], len(more))
    )
    keys = [(type(one), one) for one in items + more]
    numbers = [*first.tolist(), *second.tolist()]
    assert [[a == b for a in keys] for b in keys] == [[a == b for a in numbers] for b in numbers]
    assert set(numbers) == set(range(len(set(keys))))


def test_integers_of_all_widths_stay_apart():
    big = np.array([2**63, 2**64 - 1, 5], np.uint64)
    for other in (
        np.array([5, -1, 2**62]),
        [5, -1, 2**62],
        pd.Series([5, -1, 2**62]),
        np.array([5, 7, 2], np.int8),
    ):
        first, second = group_numbers(("g", big, 3), ("h", other, 3))
        assert second[0] == first[2]
        assert len({*first.tolist(), *second.tolist()}) == 5
    near = group_numbers(("g", [2**53, 2**53 + 1], 2), ("h", [2.0**53, 0.5], 2))
    assert near[0][0] == near[1][0] != near[0][1]
    assert len({*near[0].tolist(), *near[1].tolist()}) == 3


WRONG = [
    ([1.0, 2.0], TypeError, "y must be integers, got dtype float64"),
    (["a", 1.5], TypeError, "y must be integers, texts or booleans, got 1.5 at position 1"),
    (["a", object], TypeError, "y must be integers, texts or booleans, got type.* at position 1"),
    ([b"a", "b"], TypeError, "y must be .*got bytes: b'a' at position 0"),
    ([2, [1]], TypeError, r"y must be .*got list: \[1\] at position 1"),
    (np.array(["2020", "2021"], "M8[D]"), TypeError, "y must be .*got dtype datetime64"),
    ([0, pd.Timestamp(0)], TypeError, "y must be .*Timestamp.* at position 1"),
    (np.array([1j, 2]), TypeError, "y must be .*got dtype complex128"),
    (
        [2, -1],
        ValueError,
        "y must lie in 0..2\\*\\*63-1, got -1 at position 1.*by add, or by relabel",
    ),
    (np.array([2, 2**63], np.uint64), ValueError, "y .*got 9223372036854775808 at position 1"),
    ([2**70, "a"], ValueError, "y .*got 1180591620717411303424 at position 0"),
    ([1, 2, 3], ValueError, "y must have shape \\(2,\\), one label per vector, got \\(3,\\)"),
    ("ab", ValueError, "y must have shape"),
    ([[1], [2]], ValueError, "y must have shape"),
    ([[1], [2, 3]], ValueError, "y must be an array of values, got list"),
    (["a", ""], ValueError, "y must hold no empty text, got '' at position 1"),
    (["a\0", 1], ValueError, "y must hold no text that ends in a zero, got .* at position 0"),
    (["a", None], ValueError, "y must hold a label.*got None at position 1.*by add, or by relabel"),
]


@pytest.mark.parametrize(("given_values", "error", "message"), WRONG)
def test_wrong_labels_are_named(given_values, error, message):
    with pytest.raises(error, match=f"^{message}"):
        as_labels("y", given_values, 2)


# --- ids --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given_values",
    [
        [3, 0],
        (3, 0),
        np.array([3, 0], np.uint8),
        np.array([3, 0], object),
        [np.int8(3), np.uint64(0)],
        pd.Series([3, 0], index=[7, 8]),
        pd.Index([3, 0]),
        pd.array([3, 0], dtype="Int64"),
        pa.array([3, 0]),
        pa.chunked_array([[3], [0]]),
        pl.Series([3, 0]),
        torch.tensor([3, 0]),
        range(3, -1, -3),
        {3: "a", 0: "b"}.keys(),
    ],
    ids=lambda one: type(one).__name__,
)
def test_ids_of_every_library(given_values):
    ids = as_ids("ids", given_values)
    assert (ids.dtype, ids.tolist()) == (np.dtype(np.int64), [3, 0])
    assert as_nodes("nodes", given_values, 4).tolist() == [0, 3]


@pytest.mark.parametrize(
    ("given_values", "error", "message"),
    [
        ([[1]], ValueError, r"ids must have shape \(n,\), got \(1, 1\)"),
        (np.array([2**63], np.uint64), ValueError, "ids must lie in 0..2\\*\\*63-2"),
        ([0, 2**63 - 1], ValueError, r"ids must lie in 0..2\*\*63-2, got 9223372036854775807"),
        (np.array([2**63 - 1], np.uint64), ValueError, "ids must lie in"),
        ([-1], ValueError, r"ids must lie in 0..2\*\*63-2, got -1"),
        ([True], TypeError, "ids must be integers, got dtype bool"),
        ([1.0], TypeError, "ids must be integers, got dtype float64"),
        ([1, "2"], TypeError, "ids must be integers, got '2' at position 1"),
        ([1, None], TypeError, "ids must be integers, got None at position 1"),
        (pd.array([1, pd.NA], dtype="Int64"), TypeError, "ids .*got None at position 1"),
        ([1, True], TypeError, "ids must be integers, got True at position 1"),
        ("12", TypeError, "ids must be integers, got '12' at position 0"),
    ],
)
def test_wrong_ids_are_named(given_values, error, message):
    with pytest.raises(error, match=message):
        as_ids("ids", given_values)


def test_nodes_are_numbers_or_a_mask():
    assert as_nodes("nodes", None, 3).tolist() == [0, 1, 2]
    assert as_nodes("nodes", torch.tensor([True, False, True]), 3).tolist() == [0, 2]
    assert as_nodes("nodes", pd.Series([True, False, True]), 3).tolist() == [0, 2]
    for wrong in ([True], [[True, False, True]], [3], [-1]):
        with pytest.raises(ValueError, match="nodes must"):
            as_nodes("nodes", wrong, 3)
    for odd in ([0.5], ["a"], pd.array([True, pd.NA, True], dtype="boolean")):
        with pytest.raises(TypeError, match="nodes must"):
            as_nodes("nodes", odd, 3)


def test_masked_numbers_are_nan():
    masked = np.ma.array([[1, 2], [3, 4]], mask=[[0, 1], [0, 0]])
    assert str(as_array("X", masked).tolist()) == "[[1.0, nan], [3.0, 4.0]]"
    assert as_array("X", np.ma.array([1, 2])).tolist() == [1, 2]
    with pytest.raises(ValueError, match=r"x must be finite.*nan.* in row 0"):
        IndexEvidenceFlat(2).add_with_labels(masked, [0, 1])
    with pytest.raises(TypeError, match="nodes must be integers, got None at position 1"):
        as_nodes("nodes", masked[0], 3)


def test_lists_of_plain_values():
    for one in (
        np.array([1, 2]),
        torch.tensor([1, 2]),
        pa.array([1, 2]),
        pl.Series([1, 2]),
        pd.Index([1, 2]),
        (1, 2),
    ):
        assert as_list("x", one) == [1, 2]
    for wrong in ("ab", b"ab", {"a": 1}, 5):
        with pytest.raises(TypeError, match="x must be a sequence"):
            as_list("x", wrong)


# --- tables of labels -------------------------------------------------------------------------------------------------


@given(
    st.lists(st.one_of(*KINDS.values()), max_size=8),
    st.lists(st.one_of(*KINDS.values()), max_size=8),
)
def test_tables_find_labels(known, asked):
    labels = as_labels("y", known, len(known))
    table = LabelKeys(np.empty(0, np.int64), np.empty(0, np.int32)).with_labels(labels)
    code_of = {
        (type(one), one): code
        for one, code in zip(known, table.find("y", labels).tolist(), strict=True)
    }
    assert plain(table.decode(np.array(list(code_of.values()), np.int32))) == list(code_of)
    kinds = set(map(type, known))
    for label in asked:
        key = type(label), label
        wanted = code_of.get(key, NOT_STORED) if type(label) in kinds else None
        assert table.code_of(label) == wanted
        if known and wanted is None:
            with pytest.raises(TypeError, match=r"y must be .* at position 0"):
                table.find("y", as_labels("y", [label], 1))
        else:
            found = table.find("y", as_labels("y", [label], 1)).tolist()
            assert found == [code_of.get(key, NOT_STORED)]
    assert values.order_of(table.keys).tolist() == list(range(len(code_of)))


def test_no_ids_of_no_nodes():
    assert as_ids("nodes", [], 0).shape == (0,)
