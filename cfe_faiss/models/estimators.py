"""Predictions of fitted scikit-learn estimators from the features of the nodes."""

from typing import Any

import numpy as np

from cfe_faiss.attributes.classes import Predictions, as_predictions, class_names_of
from cfe_faiss.attributes.table import as_attributes, attributes_of
from cfe_faiss.base.checks import as_dense
from cfe_faiss.base.extras import extra


def is_estimator(model: Any) -> bool:
    """Return whether a model has the ``predict`` of scikit-learn and is not callable."""
    return hasattr(model, "predict") and not callable(model)


def predictions_of_estimator(model: Any, data: Any, features: Any = None) -> Predictions:
    """Return a fitted estimator's predictions for every node; see :func:`.predictions.predictions_of`."""
    X, n = _input(model, data, features), len(data.x)
    found = as_predictions(model.predict(X), n, class_names_of(data), "the model's output")
    if found.scores is not None:
        raise ValueError(f"the model's output must be classes of shape ({n},), got shape {found.scores.shape}")
    if not hasattr(model, "predict_proba"):
        return found
    places = as_predictions(np.asarray(model.classes_), len(model.classes_), found.class_names, "model.classes_").labels
    shares = np.asarray(model.predict_proba(X))
    scores = np.zeros((n, max(int(places.max()) + 1, len(found.class_names or ()))), shares.dtype)
    scores[:, places] = shares
    return Predictions(found.labels, scores, found.class_names)


def _input(model: Any, data: Any, features: Any) -> Any:
    """Return the input of an estimator: columns of ``features`` or of ``data.x`` by name, or ``data.x``."""
    x = as_dense("data.x", data.x)
    if not hasattr(model, "feature_names_in_"):
        width = getattr(model, "n_features_in_", x.shape[1])
        if width != x.shape[1]:
            raise ValueError(f"model must be fitted on the columns of data.x, {x.shape[1]}, got one fitted on {width}")
        return x
    names = [str(name) for name in model.feature_names_in_]
    given = [] if features is None else list(as_attributes(features))
    if set(names) <= set(given):
        return _columns(features, names, len(x))
    known = list(map(str, getattr(data, "feature_names", None) or ()))
    if not set(names) <= set(known):
        lacking = [name for name in names if name not in {*given, *known}]
        missing = lacking or [name for name in names if name not in known]
        raise ValueError(
            f"model was fitted on columns that neither features nor data.feature_names hold, {', '.join(missing[:8])}: "
            "give features with all its columns"
        )
    with extra("audit"):
        import pandas as pd

    return pd.DataFrame(x, columns=known)[names]


def _columns(features: Any, names: list[str], n: int) -> Any:
    """Return columns with the dtypes of the frame, which encoders depend on, row i for node i."""
    kind = type(features).__module__.partition(".")[0]
    if kind == "pandas":
        return features.loc[np.arange(n), names]
    if kind == "polars":
        return features.select(names)
    return attributes_of(features, n).select(names).to_frame()
