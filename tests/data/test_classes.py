from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from cfe_faiss.data.classes import Predictions, as_predictions, check_names, class_names_of, node_count

CLASSES = [2, 0, 1, 2]
TEXTS = ["c", "a", "b", "c"]
SHARES = np.array([[0.1, 0.2, 0.7], [0.8, 0.1, 0.1], [0.2, 0.6, 0.2], [0.0, 0.4, 0.6]])


@pytest.mark.parametrize(
    "values",
    [
        CLASSES,
        np.array(CLASSES, np.uint8),
        np.array(CLASSES, object),
        torch.tensor(CLASSES),
        pd.Series(CLASSES),
        pd.Series(CLASSES, dtype="Int64"),
        pd.array(CLASSES, dtype="Int64"),
        pd.Categorical(CLASSES),
        pd.Index(CLASSES),
        pd.Series(CLASSES[::-1], index=[3, 2, 1, 0]),
        pd.DataFrame({"predicted": CLASSES}),
        pl.Series(CLASSES),
        pl.DataFrame({"predicted": CLASSES}),
    ],
    ids=str,
)
def test_class_numbers(values: Any) -> None:
    found = as_predictions(values, 4)
    assert_array_equal(found.labels, CLASSES)
    assert found.labels.dtype == np.int32
    assert (found.scores, found.class_names) == (None, None)


@pytest.mark.parametrize(
    "values",
    [
        TEXTS,
        np.array(TEXTS),
        np.array(TEXTS, np.dtypes.StringDType()),
        np.array(TEXTS, "S1"),
        np.array(TEXTS, object),
        pd.Series(TEXTS),
        pd.Series(TEXTS, dtype="category"),
        pd.array(TEXTS, dtype="string"),
        pd.Categorical(TEXTS),
        [text.encode() for text in TEXTS],
        pd.Series(TEXTS[::-1], index=[3, 2, 1, 0]),
        pd.DataFrame({"predicted": TEXTS}),
        pl.Series(TEXTS),
        pl.Series(TEXTS, dtype=pl.Categorical),
    ],
    ids=str,
)
def test_texts(values: Any) -> None:
    found = as_predictions(values, 4)
    assert_array_equal(found.labels, CLASSES)
    assert found.class_names == ("a", "b", "c")
    by_name = as_predictions(values, 4, ["b", "d", "c", "a"])
    assert_array_equal(by_name.labels, [2, 3, 0, 2])
    assert by_name.class_names == ("b", "d", "c", "a")


@pytest.mark.parametrize(
    "values",
    [
        SHARES,
        SHARES.tolist(),
        np.log(SHARES + 1e-9),
        torch.tensor(SHARES, dtype=torch.bfloat16),
        torch.tensor(SHARES, requires_grad=True),
        pd.DataFrame(SHARES),
        pd.DataFrame(SHARES, columns=["a", "b", "c"]),
        pd.DataFrame(SHARES[::-1], index=[3, 2, 1, 0]),
        pd.DataFrame(SHARES, columns=["a", "b", "c"])[["b", "c", "a"]],
        pd.DataFrame(SHARES[:, [1, 0, 2]], columns=["1", "0", "2"]),
        pd.DataFrame(SHARES, dtype="Float64"),
        pl.DataFrame(SHARES, schema=["a", "b", "c"]).select("c", "a", "b"),
    ],
    ids=str,
)
def test_probabilities_and_logits(values: Any) -> None:
    found = as_predictions(values, 4, ["a", "b", "c"])
    assert_array_equal(found.labels, CLASSES)
    assert found.scores is not None
    assert found.scores.shape == (4, 3)
    assert_array_equal(found.scores.argmax(axis=1), CLASSES)
    assert found.class_names == ("a", "b", "c")


def test_columns_without_class_names_are_classes_in_their_order() -> None:
    found = as_predictions(pd.DataFrame(SHARES, columns=["z", "y", "x"]), 4)
    assert_array_equal(found.labels, CLASSES)
    assert found.class_names is None


def test_equal_scores_give_the_first_class() -> None:
    assert_array_equal(as_predictions(np.ones((2, 3)), 2).labels, [0, 0])


@given(st.lists(st.sampled_from(["x", "yy", "ä", "1"]), min_size=1))
def test_texts_come_back(texts: list[str]) -> None:
    found = as_predictions(texts, len(texts))
    assert found.class_names is not None
    assert [found.class_names[label] for label in found.labels] == texts
    assert list(found.class_names) == sorted(set(texts))


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ([0, 1], ValueError, r"p must be classes of shape \(4,\), got shape \(2,\)"),
        (TEXTS[:2], ValueError, r"got shape \(2,\)"),
        (SHARES[:2], ValueError, r"logits or probabilities of shape \(4, C\) .* got shape \(2, 3\)"),
        (SHARES[:, :1], ValueError, r"p must be logits where there is one column, got numbers in \[0, 1\] only"),
        ([0.1, 0.2, 0.3, 0.4], TypeError, "p must be integers.*got 0.1"),
        ([0, 1, -1, 2], ValueError, "p must hold a class for every node, got none for node 2"),
        (["a", None, "b", "a"], ValueError, "p must hold a class for every node, got none for node 1"),
        (["a", float("nan"), 2, "a"], TypeError, "p must be .* got 'a' at position 0 and 2 at position 2"),
        (["a", " ", "b", "a"], ValueError, "p must hold a class for every node, got none for node 1"),
        (["a", "b", 1.5, "a"], TypeError, r"p must be integers, texts or booleans, got 1\.5"),
        ([True, 1, 0, 0], TypeError, "p must be .* got True at position 0 and 1 at position 1"),
        (["1", "0", 1, 0], TypeError, "p must be .* got '1' at position 0 and 1 at position 2"),
        (np.array([0, 1, 1, False], object), TypeError, "p must be .* got 0 at position 0 and False at position 3"),
        (["a", "b", ("c",), "a"], ValueError, "p must be a rectangular array"),
        (pd.Series([0, 1, None, 2]), ValueError, "p must hold a class for every node, got none for node 2"),
        (pd.Series(["a", None, "b", "a"]), ValueError, "p must hold a class for every node, got none for node 1"),
        (pd.array([0, 1, None, 2], dtype="Int64"), ValueError, "p must hold a class .* got none for node 2"),
        (pd.array(["a", None, "b", "a"], dtype="string"), ValueError, "p must hold a class .* got none for node 1"),
        (pd.Categorical(["a", None, "b", "a"]), ValueError, "p must hold a class .* got none for node 1"),
        (pl.Series([0, 1, 2, None]), ValueError, "p must hold a class for every node, got none for node 3"),
        (np.where(SHARES > 0.75, np.nan, SHARES), ValueError, "p must not be NaN, got NaN for node 1"),
        (pd.Series(CLASSES, index=[1, 2, 3, 4]), ValueError, r"the index of p must hold the nodes 0\.\.3, each once"),
        (pd.Series(CLASSES, index=[0, 1, 1, 3]), ValueError, r"the index of p must hold the nodes 0\.\.3, each once"),
        (pd.Series(CLASSES, index=list("wxyz")), TypeError, "the index of p must be integers"),
        (pd.DataFrame({"a": TEXTS, "b": TEXTS}), TypeError, "p must be a frame of probabilities or logits"),
        (pl.DataFrame({"a": TEXTS, "b": TEXTS}), TypeError, "p must be a frame of probabilities or logits"),
        (None, TypeError, "p must be an array of real numbers"),
        ("abcd", TypeError, "p must be an array of real numbers"),
        ([2**70] * 4, ValueError, r"p must lie in 0\.\.2\*\*63-1, got 11805916207"),
        ([[1, 2], [3]], ValueError, "p must be a rectangular array"),
    ],
)
def test_faults_are_named(values: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        as_predictions(values, 4, name="p")


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor, pd.Series, pd.array, pl.Series])
def test_booleans_have_names(kind: Any) -> None:
    values = kind([True, False, True, True])
    found = as_predictions(values, 4)
    assert_array_equal(found.labels, [1, 0, 1, 1])
    assert found.class_names == ("False", "True")
    assert_array_equal(as_predictions(values, 4, ["True", "False"]).labels, [0, 1, 0, 0])
    assert_array_equal(as_predictions(values, 4, ["no", "yes"]).labels, [1, 0, 1, 1])


def test_names_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match=r"p must be among the class names \(a, b\), got 'c' for node 0"):
        as_predictions(TEXTS, 4, ["a", "b"], "p")
    frame = pd.DataFrame(SHARES, columns=["a", "b", "z"])
    with pytest.raises(ValueError, match=r"p must have the class names as columns \(a, b, c\), got a, b, z"):
        as_predictions(frame, 4, ["a", "b", "c"], "p")


def test_texts_need_the_names_of_true_classes() -> None:
    texts, numbers = as_predictions(TEXTS, 4), as_predictions(CLASSES, 4)
    check_names(texts, SimpleNamespace(x=SHARES))
    check_names(texts, SimpleNamespace(y=CLASSES, class_names=["a", "b", "c"]))
    check_names(numbers, SimpleNamespace(y=CLASSES))
    with pytest.raises(ValueError, match=r"data must have class_names, .*: the model predicts a, b, c"):
        check_names(texts, SimpleNamespace(y=CLASSES))


def test_small_things() -> None:
    assert class_names_of(SimpleNamespace(class_names=["a", 1])) == ("a", "1")
    assert class_names_of(SimpleNamespace(class_names=np.array(["a", "b"]))) == ("a", "b")
    assert class_names_of(None) is None
    assert class_names_of(SimpleNamespace(class_names=[])) is None
    assert node_count(SimpleNamespace(x=[1, 2])) == 2
    assert node_count(SimpleNamespace(y=[1, 2, 3])) == 3
    assert repr(as_predictions(SHARES, 4)) == "Predictions(4 nodes, 3 classes, scores (4, 3))"
    assert repr(Predictions(np.zeros(2, np.int32), None, None)) == "Predictions(2 nodes, 1 class, no scores)"
