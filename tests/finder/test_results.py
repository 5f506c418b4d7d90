import numpy as np
import pandas as pd
import pytest

from cfe_faiss.attributes.table import as_attributes
from cfe_faiss.finder.results import attribute_columns, class_columns, class_name

SIDES = {"source": np.array([0, 2]), "target": np.array([1, 0])}


def test_classes_by_name() -> None:
    classes = np.array([1, -1, 2], np.int32)
    columns = class_columns(SIDES, "true", classes, ("bad", "good"))
    assert {name: list(values) for name, values in columns.items()} == {
        "source_true": ["good", "class 2"],
        "target_true": [None, "good"],
    }


def test_classes_by_number() -> None:
    frame = pd.DataFrame(class_columns(SIDES, "true", np.array([1, -1, 2], np.int32), None))
    assert frame["source_true"].tolist() == [1, 2]
    assert frame["target_true"].isna().tolist() == [True, False]
    assert frame["target_true"][1] == 1


def test_attributes_of_both_sides() -> None:
    attributes = as_attributes({"town": ["x", None, "y"], "age": [20.0, 30.0, np.nan], "label": ["a", "b", "c"]})
    taken = class_columns(SIDES, "label", np.array([0, 1, 1], np.int32), None)
    columns = attribute_columns(SIDES, attributes, taken)
    assert list(columns) == [
        "source_town",
        "target_town",
        "source_age",
        "target_age",
        "source_label (attribute)",
        "target_label (attribute)",
    ]
    assert list(columns["source_town"]) == ["x", "y"]
    assert pd.isna(columns["target_town"][0])
    assert columns["target_town"][1] == "x"
    np.testing.assert_array_equal(columns["source_age"], [20, np.nan])
    assert list(columns["source_label (attribute)"]) == ["a", "c"]


@pytest.mark.parametrize(
    ("names", "label", "text"), [(("a", "b"), 1, "b"), (("a",), 1, "class 1"), (None, 0, "class 0")]
)
def test_names(names: tuple[str, ...] | None, label: int, text: str) -> None:
    assert class_name(names, label) == text
