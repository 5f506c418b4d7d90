"""Each label keeps its code, and tables of labels survive files."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from cfe_faiss.base.values import NOT_STORED, LabelKeys
from cfe_faiss.rows.ids_and_labels import LabelEncoder, arrays_of, table_from

numbers = st.one_of(
    st.integers(0, 5), st.integers(2**31 - 3, 2**31 + 3), st.integers(2**63 - 4, 2**63 - 1)
)
texts = st.text(st.characters(exclude_characters="\0"), min_size=1, max_size=4)


def no_rows() -> Any:
    return np.empty(0, np.int32)


@given(
    st.lists(st.lists(st.none() | numbers))
    | st.lists(st.lists(st.none() | texts | numbers | st.booleans()))
)
def test_each_label_keeps_its_code(parts: list[list[Any]]) -> None:
    first = next((part for part in parts if set(part) - {None}), [])
    kinds = {type(label) for label in first if label is not None}
    known: dict[Any, int] = {}
    encoder = LabelEncoder(None, lambda: np.array(sorted(known.values()), np.int32))
    for part in parts:
        before = dict(known)
        given_labels = [label for label in part if label is None or type(label) in kinds]
        codes = encoder("labels", given_labels, len(given_labels), unknown=True).tolist()
        keys = [(type(label), label) for label in given_labels]
        known |= {key: code for key, code in zip(keys, codes, strict=True) if key[1] is not None}
        assert [-1 if key[1] is None else known[key] for key in keys] == codes
        assert before.items() <= known.items()
    assert len(set(known.values())) == len(known)
    table = encoder.table
    if table is None:
        assert all(label == code for (_, label), code in known.items())
        return
    restored = table_from(arrays_of(table, lambda: table.codes))
    assert restored is not None
    for one in (table, restored, LabelKeys.union([table, restored])):
        assert one is not None
        *labels, unknown = one.decode(np.array([*known.values(), -1], np.int32)).tolist()
        assert [(type(label), label) for label in labels] == list(known)
        assert unknown == (-1 if one.are_integers else None)


def test_a_full_range_of_codes_has_gaps() -> None:
    table = LabelKeys.of_codes(np.array([0, 2, 2**31 - 2], np.int32)).with_labels(
        np.array([2**40, 2**41])
    )
    expected = [3, 2, 2**31 - 2, 1, NOT_STORED]
    assert_array_equal(table.find("y", np.array([2**41, 2, 2**31 - 2, 2**40, 7])), expected)


def test_labels_are_of_one_kind() -> None:
    encoder = LabelEncoder(None, no_rows)
    encoder("y", ["a"], 1)
    with pytest.raises(TypeError, match="y must be texts, as the labels of the index are, got 3"):
        encoder("y", [3], 1)


DAMAGED: list[dict[str, Any]] = [
    {"label_codes": np.array([0, 0], np.int32)},
    {"label_codes": np.array([0, -1], np.int32)},
    {"label_keys": np.frombuffer(b"ba", np.uint8)},
    {"label_keys": np.frombuffer(b"\xff\xfe", np.uint8)},
    {"label_ends": np.array([2, 1])},
    {"label_ends": np.array([1, 3])},
    {"label_ends": np.array([0, 2])},
    {"label_kinds": np.array([1, 3], np.uint8)},
    {"label_kinds": np.array([0, 1], np.uint8)},
    {"label_kinds": np.array([1, 2], np.uint8)},
    {"label_kinds": np.array([1], np.uint8)},
]


@pytest.mark.parametrize("change", DAMAGED)
def test_a_damaged_table_is_refused(change: dict[str, Any]) -> None:
    table = LabelKeys(np.array(["a", "b", "c"], object), np.array([0, 1, 2], np.int32))
    arrays = arrays_of(table, lambda: table.codes[:2])  # no row has the last label
    found = table_from(arrays)
    assert found is not None
    assert found.keys.tolist() == ["a", "b"]
    assert "label_kinds" not in arrays  # as in files of version 6
    with pytest.raises(ValueError, match=r"labels|decode|literal|zip"):
        table_from(arrays | change)
