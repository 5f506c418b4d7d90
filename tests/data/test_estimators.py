from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from numpy.testing import assert_array_equal
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from cfe_faiss import EvidenceFinder
from cfe_faiss.data.predict import predictions_of

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3))
Y = (X[:, 0] + X[:, 1] > 0).astype(int)
NAMES = ["a", "b", "c"]
FRAME = pd.DataFrame(X, columns=NAMES)
DATA = SimpleNamespace(x=X, feature_names=NAMES)


def test_fitted_on_a_matrix():
    model = LogisticRegression().fit(X, Y)
    for x in (X, torch.from_numpy(X), torch.from_numpy(X).to_sparse()):
        found = predictions_of(model, SimpleNamespace(x=x))
        assert_array_equal(found.labels, model.predict(X))
        assert_array_equal(found.scores, model.predict_proba(X))
        assert found.class_names is None
    with pytest.raises(ValueError, match=r"model .*got one fitted on 3"):
        predictions_of(model, SimpleNamespace(x=X[:, :2]))


@pytest.mark.parametrize("library", ["pandas", "polars", "mapping"])
def test_columns_of_features_by_name(library):
    table = {
        "town": np.array(["x", "y", "z"])[RNG.integers(0, 3, 60)],
        "age": RNG.integers(20, 60, 60),
    }
    frame = pd.DataFrame(table)
    encoder = make_column_transformer((OneHotEncoder(), ["town"]), (StandardScaler(), ["age"]))
    model = make_pipeline(encoder, LogisticRegression()).fit(
        frame, (table["town"] == "x") & (table["age"] > 30)
    )
    features = {"pandas": frame[::-1], "polars": pl.DataFrame(table), "mapping": table}[library]
    found = predictions_of(model, DATA, features)
    assert_array_equal(found.labels, model.predict(frame))
    assert len(set(found.labels)) == 2


def test_columns_that_nobody_has():
    model = LogisticRegression().fit(FRAME.assign(d=1.0, e=2.0), Y)
    with pytest.raises(ValueError, match=r"neither features nor data\.feature_names hold, d, e"):
        predictions_of(model, DATA)
    # one half here and the other half there is no table either
    with pytest.raises(ValueError, match="hold, d, e: give features"):
        predictions_of(model, DATA, {"d": np.ones(60), "e": np.ones(60)})
    with pytest.raises(ValueError, match="hold, a, b, c, d, e"):
        predictions_of(model, SimpleNamespace(x=X))


def test_classes_that_are_texts():
    texts = np.array(["no", "yes"])[Y]
    model = RandomForestClassifier(5, random_state=0).fit(X, texts)
    found = predictions_of(model, DATA)
    assert found.class_names == ("no", "yes")
    named = predictions_of(model, SimpleNamespace(x=X, class_names=["yes", "never", "no"]))
    assert_array_equal(named.labels, np.where(found.labels == 1, 0, 2))
    assert named.scores is not None
    assert found.scores is not None
    expected = np.stack([found.scores[:, 1], np.zeros(60), found.scores[:, 0]], axis=1)
    assert_array_equal(named.scores, expected)


def test_classes_with_gaps():
    model = LogisticRegression().fit(X, Y * 2 + 1)
    found = predictions_of(model, DATA)
    assert found.scores is not None
    assert_array_equal(found.labels, model.predict(X))
    assert_array_equal(found.scores[:, [1, 3]], model.predict_proba(X))
    assert_array_equal(found.scores[:, [0, 2]], 0)


def test_what_is_refused():
    with pytest.raises(NotFittedError):
        predictions_of(LogisticRegression(), DATA)
    with pytest.raises(TypeError, match="the model's output must be integers"):
        predictions_of(LinearRegression().fit(X, Y), DATA)
    with pytest.raises(ValueError, match=r"the model's output must be classes of shape \(60,\)"):
        predictions_of(DecisionTreeClassifier().fit(X, np.stack([Y, 1 - Y], axis=1)), DATA)


@pytest.mark.parametrize("classes", [[0.0, 1.0], [-1.0, 1.0], [2.0, 10.0], [0, 1], ["a", "b"]])
def test_classes_of_whole_floats_are_those_of_the_truth(classes):
    """A column that pandas reads as floats names the classes of a model as it names the truth."""
    truth = np.array(classes)[Y]
    model = DecisionTreeClassifier(max_depth=2).fit(FRAME, truth)
    by_model = EvidenceFinder.from_table(FRAME, model, truth=truth)
    by_array = EvidenceFinder.from_table(FRAME, model.predict(FRAME), truth=truth)
    assert by_model.class_names == by_array.class_names
    assert_array_equal(by_model.labels, by_array.labels)
    assert np.mean(by_model.labels == by_model.truth) == model.score(FRAME, truth)
    shares = pd.DataFrame(model.predict_proba(FRAME), columns=model.classes_)
    by_shares = EvidenceFinder.from_table(FRAME, shares, truth=truth)
    assert by_shares.class_names == by_array.class_names
    named = EvidenceFinder.from_table(FRAME, model, class_names=model.classes_, truth=truth)
    assert_array_equal(named.truth, by_array.truth)
