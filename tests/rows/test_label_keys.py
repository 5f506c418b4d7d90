"""Labels are integers up to 2**63 - 1 or texts; each keeps its code, and tables survive files."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from cfe_faiss.base.values import NOT_STORED, LabelKeys
from cfe_faiss.rows.label_keys import LabelEncoder, arrays_of, table_from

numbers = st.one_of(st.integers(0, 5), st.integers(2**31 - 3, 2**31 + 3), st.integers(2**63 - 4, 2**63 - 1))
texts = st.text(st.characters(exclude_characters="\0"), min_size=1, max_size=4)


def no_rows() -> Any:
    return np.empty(0, np.int32)


@given(st.one_of(st.lists(st.lists(st.none() | numbers)), st.lists(st.lists(st.none() | texts))))
def test_each_label_keeps_its_code(parts: list[list[Any]]) -> None:
    encoder, known = LabelEncoder(None, lambda: np.array(sorted(known.values()), np.int32)), {}
    for part in parts:
        before = dict(known)
        codes = encoder("labels", part, len(part), unknown=True).tolist()
        known |= {label: code for label, code in zip(part, codes, strict=True) if label is not None}
        assert [-1 if label is None else known[label] for label in part] == codes
        assert before.items() <= known.items()
    assert len(set(known.values())) == len(known)
    table = encoder.table
    if table is None:
        assert all(label == code for label, code in known.items())
        return
    restored = table_from(arrays_of(table, lambda: table.codes))
    assert restored is not None
    for one in (table, restored, LabelKeys.union([table, restored])):
        assert one is not None
        assert one.decode(np.array([*known.values(), -1], np.int32)).tolist() == [*known, None if one.are_texts else -1]


def test_a_full_range_of_codes_has_gaps() -> None:
    table = LabelKeys.of_codes(np.array([0, 2, 2**31 - 2], np.int32)).with_labels(np.array([2**40, 2**41]))
    assert_array_equal(table.find("y", np.array([2**41, 2, 2**31 - 2, 2**40, 7])), [3, 2, 2**31 - 2, 1, NOT_STORED])


WRONG: list[tuple[Any, str]] = [
    ([1.5, 2.0], "y must be integers or texts, got dtype float64"),
    (["a", 1], "y must be integers or texts, got 'a' among them"),
    ([True, None], "y must be integers or texts, got True among them"),
    ([-1, 2], "y must lie in 0..2\\*\\*63-1, got -1"),
    (np.array([2**63, 2], np.uint64), "y must lie in 0..2\\*\\*63-1, got 9223372036854775808"),
    ([None, 2**70], "y must lie in 0..2\\*\\*63-1, got 1180591620717411303424"),
    ([1, 2, 3], "y must have shape \\(2,\\), one label per vector, got \\(3,\\)"),
    (["a", ""], "y must hold no empty text, got one"),
    (["a", None], "y must hold a label for each vector, got None"),
    ([[1], [2, 3]], "y must be an array of labels, got list"),
]


@pytest.mark.parametrize(("values", "message"), WRONG)
def test_wrong_labels_are_named(values: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{message}$"):
        as_labels("y", values, 2)


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
]


@pytest.mark.parametrize("change", DAMAGED)
def test_a_damaged_table_is_refused(change: dict[str, Any]) -> None:
    table = LabelKeys(np.array(["a", "b", "c"]), np.array([0, 1, 2], np.int32))
    arrays = arrays_of(table, lambda: table.codes[:2])  # no row has the last label
    assert table_from(arrays) is not None
    with pytest.raises(ValueError, match=r"labels|decode"):
        table_from(arrays | change)
