from typing import Any

import numpy as np
import pandas as pd
import pytest
from reference import with_rows

import cfe_faiss as cfe
from cfe_faiss.base.text import cell_text
from cfe_faiss.data.classes import class_name
from cfe_faiss.finder import PairEvidence


def frame_of(**options: Any) -> pd.DataFrame:
    """Return the frame of the pairs (0, 1) and (2, 0)."""
    labels = np.array([0, 1, 1], np.int32)
    index = with_rows(cfe.IndexEvidenceIDMap2(2), np.eye(3)[:, :2], labels)
    finder = cfe.EvidenceFinder.from_index(index, **options)
    pairs = PairEvidence(np.array([0, 2]), np.array([1, 0]), np.float32([0, 0]), labels, finder)
    return pairs.to_frame(attributes=True)


@pytest.mark.filterwarnings("ignore:no true class:cfe_faiss.InputWarning")
@pytest.mark.filterwarnings("ignore:class .* never among:cfe_faiss.InputWarning")
def test_classes_by_name() -> None:
    frame = frame_of(truth=[1, -1, 2], class_names=["bad", "good", "best"])
    assert frame["source_true"].tolist() == ["good", "best"]
    assert frame["target_true"].isna().tolist() == [True, False]
    assert frame["target_true"][1] == "good"
    assert frame["source_class"].tolist() == ["bad", "good"]


@pytest.mark.filterwarnings("ignore:no true class:cfe_faiss.InputWarning")
@pytest.mark.filterwarnings("ignore:class .* never among:cfe_faiss.InputWarning")
def test_classes_by_number() -> None:
    frame = frame_of(truth=[1, -1, 2])
    assert frame["source_true"].tolist() == [1, 2]
    assert frame["target_true"].isna().tolist() == [True, False]
    assert frame["target_true"][1] == 1
    assert "source_class" not in frame


def test_attributes_of_both_sides() -> None:
    people = {"town": ["x", None, "y"], "age": [20.0, 30.0, np.nan], "label": ["a", "b", "c"]}
    frame = frame_of(features=people)
    assert list(frame.columns[5:]) == [
        "source_town",
        "target_town",
        "source_age",
        "target_age",
        "source_label (attribute)",
        "target_label (attribute)",
    ]
    assert list(frame["source_town"]) == ["x", "y"]
    assert pd.isna(frame["target_town"][0])
    assert frame["target_town"][1] == "x"
    np.testing.assert_array_equal(frame["source_age"], [20, np.nan])
    assert list(frame["source_label (attribute)"]) == ["a", "c"]


@pytest.mark.parametrize(
    ("names", "label", "text"), [(("a", "b"), 1, "b"), (("a",), 1, "class 1"), (None, 0, "class 0")]
)
def test_names(names: tuple[str, ...] | None, label: int, text: str) -> None:
    assert class_name(names, label) == text


def test_amounts_keep_all_digits_before_the_point() -> None:
    shown = [
        cell_text(value) for value in (1234567.25, -3e7, 0.1234567, np.float64("nan"), 12, None)
    ]
    assert shown == ["1234567", "-30000000", "0.123457", "nan", "12", "missing"]
