"""Models of several libraries are called with their columns, whatever the order of the table."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from numpy.testing import assert_array_equal
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, IsolationForest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import cfe_faiss as cfe
from cfe_faiss import audit
from cfe_faiss.data.predict import columns_of, predictions_of

RNG = np.random.default_rng(0)
N = 200
PEOPLE = pd.DataFrame(
    {
        "my income": RNG.normal(40, 12, N),
        "debt": RNG.gamma(2, 6, N),
        "job": pd.Categorical(RNG.choice(["cook", "smith", "clerk"], N)),
        "age": RNG.integers(18, 80, N),
    }
)
PAID = np.where(PEOPLE["my income"] - PEOPLE["debt"] > 22, "yes", "no")
COLUMNS = ["my income", "debt", "job"]
NUMBERS = ["my income", "debt", "age"]
X = PEOPLE[COLUMNS]


class Named(ClassifierMixin, BaseEstimator):
    """A classifier that reads columns by position, and keeps their names in one attribute."""

    def __init__(self, place="feature_names_in_"):
        self.place = place

    def fit(self, X, y):
        setattr(self, self.place, list(X.columns))
        self.classes_ = np.unique(y)
        return self

    def predict(self, X):
        X = np.asarray(X)
        return np.where((X[:, 0] - X[:, 1]).astype(float) > 22, "yes", "no")


def lightgbm(boost=False):
    library = pytest.importorskip("lightgbm")
    model = library.LGBMClassifier(n_estimators=20, min_child_samples=5, verbose=-1, n_jobs=1)
    model.fit(X, PAID)
    return model.booster_ if boost else model


def xgboost(boost=False):
    library = pytest.importorskip("xgboost")
    model = library.XGBClassifier(n_estimators=20, enable_categorical=True, n_jobs=1).fit(
        X, PAID == "yes"
    )
    return model.get_booster() if boost else model


def catboost(labels=PAID):
    library = pytest.importorskip("catboost")
    options = {"iterations": 20, "verbose": 0, "allow_writing_files": False, "thread_count": 1}
    return library.CatBoostClassifier(cat_features=["job"], **options).fit(X, labels)


def pipeline():
    encoder = make_column_transformer(
        (OneHotEncoder(), ["job"]), (StandardScaler(), ["my income", "debt"])
    )
    return make_pipeline(encoder, LogisticRegression())


MODELS = {
    **{
        place: lambda place=place: Named(place).fit(X, PAID)
        for place in ("feature_names_", "feature_name_")
    },
    "CatBoost": catboost,
    "LightGBM": lightgbm,
    "XGBoost": xgboost,
    "pipeline": lambda: pipeline().fit(X, PAID),
    "search": lambda: GridSearchCV(
        Named("feature_names_"), {"place": ["feature_names_"]}, cv=2
    ).fit(X, PAID),
    "boosting": lambda: HistGradientBoostingClassifier(categorical_features="from_dtype").fit(
        X, PAID
    ),
}


@pytest.mark.parametrize("kind", MODELS)
def test_a_model_gets_its_columns_in_its_order_with_their_types(kind):
    model = MODELS[kind]()
    expected = [str(value) for value in model.predict(X)]
    assert len(set(expected)) == 2
    table = PEOPLE[["age", "job", "debt", "my income"]]
    finder = cfe.EvidenceFinder.from_table(table, model)
    assert [finder.class_name(label) for label in finder.labels] == expected
    if hasattr(model, "predict_proba"):
        assert_array_equal(finder.probabilities, model.predict_proba(X))
    flip = audit.flip(finder, "job").to_frame()
    first = flip.iloc[0]
    person = X.copy()
    person.loc[first["node"], "job"] = first["flipped"]
    after = str(model.predict(person)[first["node"]])
    assert finder.class_name(first["after"]) == after
    with pytest.raises(ValueError, match="model was fitted on columns that frame lacks, debt"):
        cfe.EvidenceFinder.from_table(table.drop(columns="debt"), model)
    data = SimpleNamespace(x=table["my income"].to_numpy()[:, None])
    found = predictions_of(model, data, table)
    assert_array_equal(found.labels == 1, np.isin(expected, ["yes", "1"]))


@pytest.mark.parametrize("booster", [lightgbm, xgboost])
def test_boosters(booster):
    expected = booster().predict(X)
    finder = cfe.EvidenceFinder.from_table(
        PEOPLE[["age", "job", "debt", "my income"]], booster(boost=True)
    )
    assert_array_equal(finder.labels == 1, np.isin(expected.astype(str), ["yes", "1"]))
    assert finder.probabilities is not None
    np.testing.assert_allclose(finder.probabilities[:, 1] > 0.5, finder.labels == 1)


@pytest.mark.parametrize(
    "labels", [PAID == "yes", np.array(["a", "b", "c"])[PEOPLE["age"] % 3], PAID == "no"]
)
def test_kinds_of_classes_of_catboost(labels):
    model, table = catboost(labels), PEOPLE[["age", "job", "debt", "my income"]]
    finder = cfe.EvidenceFinder.from_table(table, model, truth=labels)
    assert finder.class_names == tuple(map(str, np.unique(labels)))
    expected = [str(value) for value in model.predict(X).ravel()]
    assert [finder.class_name(label) for label in finder.labels] == expected


def test_models_without_names_get_an_array():
    values = PEOPLE[NUMBERS].to_numpy()
    models = [LogisticRegression().fit(values, PAID)]
    for name in ("lightgbm", "catboost", "xgboost"):
        library = pytest.importorskip(name)
        options = {"verbose": -1} if name == "lightgbm" else {"verbose": 0}
        kind = {
            "lightgbm": "LGBMClassifier",
            "catboost": "CatBoostClassifier",
            "xgboost": "XGBClassifier",
        }[name]
        more = {"allow_writing_files": False} if name == "catboost" else {}
        labels = PAID == "yes" if name == "xgboost" else PAID
        models.append(
            getattr(library, kind)(n_estimators=10, **{} if name == "xgboost" else options, **more)
        )
        models[-1].fit(values, labels)
    for model in models:
        finder = cfe.EvidenceFinder.from_table(PEOPLE[NUMBERS], model)
        found = [finder.class_name(label) for label in finder.labels]
        assert found == [str(v) for v in model.predict(values)]
        assert columns_of(model, NUMBERS) is None


def test_modules_and_functions():
    module = torch.nn.Linear(2, 2)
    module.feature_names_in_ = ["debt", "age"]
    with torch.no_grad():
        expected = module(torch.tensor(PEOPLE[["debt", "age"]].to_numpy(np.float32))).argmax(dim=1)
    for table in (PEOPLE, PEOPLE[PEOPLE.columns[::-1]]):
        assert_array_equal(cfe.EvidenceFinder.from_table(table, module).labels, expected)
        finder = cfe.EvidenceFinder.from_table(table, lambda frame: frame["age"] > 40)
        assert_array_equal(finder.labels, PEOPLE["age"] > 40)
    numbers = PEOPLE[["debt", "age"]]
    found = cfe.EvidenceFinder.from_table(numbers, torch.nn.Sequential(module)).labels
    assert_array_equal(found, expected)
    with pytest.raises(TypeError, match="columns of a torch module must be numbers"):
        cfe.EvidenceFinder.from_table(PEOPLE, torch.nn.Sequential(module))


def test_other_tables_and_ways_in(tmp_path):
    model = Named("feature_names_").fit(PEOPLE[NUMBERS], PAID)
    expected = model.predict(PEOPLE[NUMBERS])
    table = PEOPLE[["age", "debt", "my income"]]
    table.to_csv(tmp_path / "t.csv", index=False)
    for given in (table, pl.from_pandas(table), tmp_path / "t.csv"):
        finder = cfe.EvidenceFinder.from_table(given, model)
        assert [finder.class_name(label) for label in finder.labels] == expected.tolist()
    found = cfe.EvidenceFinder.from_vectors(table.to_numpy(), model, features=table)
    assert [found.class_name(label) for label in found.labels] == expected.tolist()
    data = SimpleNamespace(
        x=table.to_numpy(), feature_names=list(table), edge_index=np.empty((2, 0), int)
    )
    graph = cfe.EvidenceFinder.from_data(data, model)
    assert [graph.class_name(label) for label in graph.labels] == expected.tolist()


def test_a_model_that_reads_truth_or_ids_is_named():
    table = PEOPLE[NUMBERS].assign(person=np.arange(N), paid=(PAID == "yes").astype(int))
    for columns, role in ((["debt", "paid"], "paid"), (["person", "debt"], "person")):
        model = LogisticRegression(max_iter=1000).fit(table[columns], PAID)
        with pytest.warns(cfe.InputWarning, match=f"model reads '{role}'"):
            cfe.EvidenceFinder.from_table(
                table, model, id="person", truth="paid", class_names=["no", "yes"]
            )


def test_outliers_are_minus_one():
    model = IsolationForest(n_estimators=10, random_state=0).fit(PEOPLE[["debt", "age"]])
    finder = cfe.EvidenceFinder.from_table(PEOPLE, model)
    assert finder.class_names == ("-1", "1")
    assert_array_equal(2 * finder.labels - 1, model.predict(PEOPLE[["debt", "age"]]))
