"""Predictions of any kind of model for the nodes of a graph or the rows of a matrix."""

import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from numpy.typing import NDArray

from cfe_faiss.attributes.classes import Predictions, as_predictions, class_names_of, node_count
from cfe_faiss.graph.node_types import nodes_of
from cfe_faiss.models.estimators import is_estimator, predictions_of_estimator


def predictions_of(
    model: Any, data: Any, features: Any = None, *, node_type: str | None = None, loader: Any = None
) -> Predictions:
    """Return the predictions of ``model`` for every node of ``data``.

    Parameters
    ----------
    model
        One of

        - a ``torch.nn.Module`` or another callable, called once; see :func:`cfe_faiss.models.predict` for its
          arguments;
        - a fitted scikit-learn estimator (an object with ``predict`` that is not callable). If it was fitted on a
          DataFrame, its columns (``feature_names_in_``) come from ``features``, or from ``data.x`` by
          ``data.feature_names``; otherwise it gets ``data.x``;
        - ready predictions; see :func:`cfe_faiss.attributes.classes.as_predictions`. Texts are ``data.class_names``.
    data
        PyG ``Data`` or any object with ``x``, (n, d), and for callables ``edge_index``, (2, E); or ``HeteroData``.
    features
        Attributes of all nodes, as :func:`cfe_faiss.attributes.table.as_attributes` takes them; for estimators only.
    node_type, loader
        Node type to predict, for ``HeteroData``; batches of a graph that is too large for one call. See
        :func:`cfe_faiss.models.predict`.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, the estimator is not fitted, or was fitted on other columns.
    ImportError
        If ``model`` is a callable and torch is missing.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> from sklearn.linear_model import LogisticRegression
    >>> data = SimpleNamespace(x=[[0.0], [1.0], [2.0], [3.0]])
    >>> model = LogisticRegression().fit(data.x, ["low", "low", "high", "high"])
    >>> found = predictions_of(model, data)
    >>> found.labels, found.class_names, found.scores.shape
    (array([1, 1, 0, 0], dtype=int32), ('high', 'low'), (4, 2))
    """
    nodes = nodes_of(data, node_type)
    if callable(model):
        from cfe_faiss.models.prediction import call_model

        return call_model(model, data, node_type, loader)
    if loader is not None:
        raise ValueError(f"loader is for a model that is called with its batches, got {type(model).__name__}")
    if is_estimator(model):
        return predictions_of_estimator(model, nodes, features)
    return as_predictions(model, node_count(nodes), class_names_of(nodes), "model (the predictions)")


def predictions_of_rows(
    model: Any, X: NDArray[Any], class_names: Sequence[str] | None = None, features: Any = None
) -> Predictions:
    """Return the predictions of ``model`` for every row of a matrix, without a graph.

    Parameters
    ----------
    model
        A fitted estimator, as in :func:`predictions_of`; another callable, called once as ``model(X)``, a
        ``torch.nn.Module`` with a float32 tensor, in evaluation mode and without gradients; or ready predictions, see
        :func:`cfe_faiss.attributes.classes.as_predictions`.
    X
        The rows, (n, d).
    class_names
        Names of the classes, if known.
    features
        Attributes of all rows, for an estimator that was fitted on a DataFrame.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, or the estimator was fitted on other columns.

    Examples
    --------
    >>> import numpy as np
    >>> predictions_of_rows(lambda X: X[:, 0] > 0, np.array([[1.0], [-1.0]])).labels
    array([1, 0], dtype=int32)
    """
    if hasattr(model, "predict"):
        return predictions_of_estimator(model, SimpleNamespace(x=X, class_names=class_names), features)
    if callable(model):
        return as_predictions(_call_on_rows(model, X), len(X), class_names, "the model's output")
    return as_predictions(model, len(X), class_names, "model (the predictions)")


def _call_on_rows(model: Any, X: NDArray[Any]) -> Any:
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(model, torch.nn.Module):
        return model(X)
    from cfe_faiss.models.inference import device_of, inference

    device = device_of(model) or torch.device("cpu")
    with inference(model, device):
        return model(torch.as_tensor(X, dtype=torch.float32, device=device))
