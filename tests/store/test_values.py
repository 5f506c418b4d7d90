from decimal import Decimal
from enum import StrEnum
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch

from cfe_faiss.store.values import (
    check_documents,
    check_ids,
    check_labels,
    check_metadata,
    copy_metadata,
)


class Colour(StrEnum):
    RED = "red"


def only(metadata: Any) -> Any:
    return check_metadata([metadata], ["a"])[0]


def test_json_values_are_stored() -> None:
    value = {
        "t": "ä",
        "i": 3,
        "big": 2**80,
        "f": 0.5,
        "b": True,
        "n": None,
        "l": [1, ["x", {"y": None}]],
        "m": {},
    }
    found = only(value)
    assert found == value
    assert found is not value
    assert found["l"] is not value["l"]
    assert only(None) == {}
    assert only(MappingProxyType({"a": (1, 2)})) == {"a": [1, 2]}
    found = only(
        {
            "i": np.int64(3),
            "f": np.float32(0.5),
            "t": np.str_("x"),
            "b": np.bool_(True),
            "e": Colour.RED,
        }
    )
    assert found == {"i": 3, "f": 0.5, "t": "x", "b": True, "e": "red"}
    assert [type(one) for one in found.values()] == [int, float, str, bool, str]


@pytest.mark.parametrize(
    ("metadata", "error", "message"),
    [
        ({"k": {1}}, TypeError, "metadata of 'a': 'k' must be a text, a number, .* got set: {1}"),
        ({"$arrow:date": 1}, ValueError, r"must have no key .*got '\$arrow:date'"),
        ({"k": Decimal("NaN")}, ValueError, "'k' must be finite .*got NaN"),
        ({"k": object}, TypeError, "'k' must be .* got type"),
        ({"k": {"l": [0, 1j]}}, TypeError, r"'k\.l\[1\]' must be .* got complex"),
        ({"k": 1 << 2000}, ValueError, "'k' must be below .*got an integer of 2001 bits"),
        ({3: "x"}, TypeError, "metadata of 'a': the key 3 must be a text, got int"),
        ({"k": {None: 1}}, TypeError, "metadata of 'a': 'k': the key None must be a text"),
        ({"k": "\ud800"}, ValueError, "metadata of 'a': 'k' must be valid Unicode"),
        ({"\ud800": 1}, ValueError, "metadata of 'a': the key '.ud800' must be valid Unicode"),
        ([("k", 1)], TypeError, "metadata of 'a' must be a mapping, got list"),
    ],
)
def test_errors_name_values_that_cannot_be_stored(
    metadata: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        only(metadata)


def test_nesting_has_an_end() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(ValueError, match="metadata of 'a': 'k' must be nested 64 deep at most"):
        only({"k": endless})


def test_classes() -> None:
    nan = float("nan")
    assert check_labels("labels", None, 2) == [None, None]
    found = check_labels("labels", [1, None, nan, np.int32(2), np.True_, -1, 3.0], 7)
    assert [(type(one), one) for one in found if one is not None] == [
        (int, 1),
        (int, 2),
        (bool, True),
        (int, 3),
    ]
    assert [place for place, one in enumerate(found) if one is None] == [1, 2, 5]
    assert check_labels("labels", np.array(["x", "y"]), 2) == ["x", "y"]
    assert check_labels("labels", torch.tensor([3, 4]), 2) == [3, 4]
    assert check_labels("labels", (one for one in "ab"), 2) == ["a", "b"]
    assert type(check_labels("label", [np.str_("x")], 1)[0]) is str
    for wrong in (b"x", 0.5, ["x"]):
        with pytest.raises(TypeError, match=r"labels must be .* at position 1"):
            check_labels("labels", ["x", wrong], 2)


def test_ids_and_documents() -> None:
    found = check_ids(np.array(["a", "ä"]))
    assert [(one, type(one)) for one in found] == [("a", str), ("ä", str)]
    assert type(check_ids([np.str_("a")])[0]) is str
    assert check_documents(np.array(["x", None], object), ["a", "b"]) == ["x", None]
    assert check_documents(None, ["a"]) == [None]


def test_copies_are_deep() -> None:
    value = {"a": [{"b": [1]}], "c": 1}
    found = copy_metadata(value)
    found["a"][0]["b"].append(2)
    assert value == {"a": [{"b": [1]}], "c": 1}
