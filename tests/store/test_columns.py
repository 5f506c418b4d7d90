"""Conditions that are functions of a value, and arrays that grow."""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import cfe_faiss as cfe
from cfe_faiss.store.contents import append

VALUES = ["a", 1, None, ..., ["x"], {"k": 1}, "a", 1.0, True]


def test_a_predicate_is_asked_once_for_each_value_in_use() -> None:
    store = cfe.EvidenceStore(2)
    ids = [str(i) for i in range(len(VALUES))]
    store.add(
        ids,
        np.ones((len(VALUES), 2)),
        metadata=[{} if one is ... else {"m": one} for one in VALUES],
    )
    asked: list[Any] = []

    def predicate(value: Any) -> bool:
        asked.append(value)
        return value in ("a", None)

    assert store.get(where={"m": predicate}).ids == ["0", "2", "3", "6"]
    assert sorted(map(repr, asked)) == ["'a'", "1", "None", "None", "True", "['x']", "{'k': 1}"]

    asked.clear()
    store.delete(["0", "6"])
    assert store.get(where={"m": predicate}).ids == ["2", "3"]
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
        "ac": {
            "$or": [{"$document": lambda text: text == "text"}, {"$id": lambda id_: id_ == "c"}]
        },
    }
    for ids, where in found.items():
        assert store.get(where=where).ids == list(ids)

    def fails(year: Any) -> bool:
        raise KeyError(year)

    for ask in (
        store.count,
        lambda where: store.delete(where=where),
        lambda where: store.search([1, 1], 3, where),
    ):
        with pytest.raises(KeyError):
            ask({"year": fails})
    assert len(store) == 3


def test_an_array_that_grows_leaves_earlier_versions_unchanged() -> None:
    versions = [np.arange(3)]
    for i in range(200):
        versions.append(append(versions[-1], np.arange(i % 4)))
    expected = np.arange(3)
    for i, version in enumerate(versions[1:]):
        expected = np.concatenate([expected, np.arange(i % 4)])
        assert_array_equal(version, expected)
        assert len(version) == len(versions[i]) + i % 4
        assert_array_equal(version[: len(versions[i])], versions[i])
    assert_array_equal(versions[0], np.arange(3))


def test_views_of_other_arrays_are_not_written_over() -> None:
    whole = np.arange(10)
    for part in (whole[2:5], whole[::-1][:3], whole[::2][:3]):
        kept = part.copy()
        assert_array_equal(append(part, np.array([7])), [*kept, 7])
    assert_array_equal(whole, np.arange(10))
