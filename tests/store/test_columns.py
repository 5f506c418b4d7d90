"""Columns of different values, and conditions that are functions of a value."""

from typing import Any

import numpy as np
import pytest

import cfe_faiss as cfe
from cfe_faiss.store.columns import MISSING, Column

VALUES = ["a", 1, None, MISSING, ["x"], {"k": 1}, "a", 1.0, True]


def test_a_predicate_is_asked_once_for_each_value_in_use() -> None:
    column = Column.of(VALUES)
    asked: list[Any] = []

    def predicate(value: Any) -> bool:
        asked.append(value)
        return value in ("a", None)

    expected = np.array([True, False, True, True, False, False, True, False, False])
    np.testing.assert_array_equal(column.matching(predicate), expected)
    assert [repr(value) for value in asked] == ["None", "'a'", "1", "None", "['x']", "{'k': 1}", "True"]

    asked.clear()
    keep = np.array([value != "a" for value in VALUES])
    rest = column.kept(keep)
    assert rest is not None
    np.testing.assert_array_equal(rest.matching(predicate), expected[keep])
    assert "a" not in asked  # no row has it any more


def test_functions_of_a_value_as_conditions_of_a_store() -> None:
    store = cfe.EvidenceStore(2)
    metadata = [{"year": 2020, "from": {"name": "A"}}, {"year": 2021}, {"from": {"name": "B"}}]
    store.add(["a", "b", "c"], np.eye(3, 2) + 1, ["x", "y", None], metadata, ["text", None, "more"])
    found = {
        "b": {"year": lambda year: year == 2021},
        "bc": {"$not": {"year": lambda year: year == 2020}},
        "c": {"from.name": lambda name: name == "B", "year": lambda year: year is None},
        "ab": {"$label": lambda label: label is not None},
        "ac": {"$or": [{"$document": lambda text: text == "text"}, {"$id": lambda id_: id_ == "c"}]},
    }
    for ids, where in found.items():
        assert store.get(where=where).ids == list(ids)

    def fails(year: Any) -> bool:
        raise KeyError(year)

    for ask in (store.count, lambda where: store.delete(where=where), lambda where: store.search([1, 1], 3, where)):
        with pytest.raises(KeyError):
            ask({"year": fails})
    assert len(store) == 3
