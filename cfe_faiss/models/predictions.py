"""Predictions of any kind of model for the nodes of a graph or the rows of a matrix."""

import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from cfe_faiss.attributes.classes import Predictions, as_predictions, class_names_of, node_count
from cfe_faiss.attributes.table import as_attributes, attributes_of
from cfe_faiss.base.arrays import Array, Ints
from cfe_faiss.base.checks import as_dense
from cfe_faiss.base.extras import extra
from cfe_faiss.graph.metapath import nodes_of


def predict(model: Any, data: Any, features: Any = None, *, node_type: str | None = None, loader: Any = None) -> Ints:
    """Return the class that ``model`` predicts for every node of ``data``.

    A module runs in evaluation mode and without gradients. The modes of its submodules, its gradients and the global
    random state do not change. A model that draws random numbers draws the same ones in every call.

    Parameters
    ----------
    model
        A ``torch.nn.Module`` or any other callable, called once with the arguments of its signature:

        - ``model(data)`` if its first parameter is named ``data``, ``batch``, ``graph`` or ``g``, or is its only
          parameter (and not named like features, ``x`` for example);
        - ``model(x)`` if it has no parameter for edges;
        - ``model(x, edge_index)`` otherwise. ``edge_weight``, ``edge_attr`` and ``edge_type`` of ``data`` are passed by
          name. A model that takes no ``edge_attr`` is called without it; the other two are never ignored: an error is
          raised if the model does not accept them. Other parameters without a default are taken from ``data``;
          ``batch`` is 0 for all nodes of a single graph;
        - for ``HeteroData`` the same with ``x_dict``, ``edge_index_dict``, ``edge_attr_dict`` and so on, under any
          parameter names.

        It returns logits or probabilities of shape (n, C), C at least 2, one logit for two classes, (n, 1), which is
        positive for class 1, or classes of shape (n,), as a tensor or an array; for ``HeteroData`` the output of
        ``node_type``, or a dict with it. A function that wraps a module sets the mode of the module itself. ``model``
        may also be a fitted scikit-learn estimator or ready predictions, see
        :func:`cfe_faiss.models.predictions.predictions_of`.
    data
        The graph, PyG ``Data`` or ``HeteroData``, on the device of the model.
    features
        Attributes of the nodes, for estimators that were fitted on a DataFrame.
    node_type
        Node type to predict; for ``HeteroData`` only.
    loader
        Batches of the graph, as from PyG's ``NeighborLoader``: ``Data`` or ``HeteroData`` with the node numbers in
        ``data`` as ``n_id``, and ``batch_size`` seed nodes first. Every node must be a seed once, in any order
        (``input_nodes`` left out). See :doc:`/how_to/large_models` for loaders, exact predictions and estimates.

    Returns
    -------
    ndarray
        Classes, (n,) int64; for equal logits the smaller class.

    Raises
    ------
    TypeError
        If the model is not as described, or its output is neither numbers nor texts, or has several parts.
    ValueError
        If ``data`` has no ``x`` or edges, lacks a value that the model requires or has edge weights or types that it
        does not accept; if the output has another shape, NaN, a negative class, or one column of numbers in [0, 1]
        only; or if the batches are not as described: one has no ``n_id`` (as from ``ClusterLoader``,
        ``GraphSAINTSampler`` and ``RandomNodeLoader``, whose batches lack edges), or a node is not a seed, or twice.

    Examples
    --------
    >>> from cfe_faiss.datasets import load
    >>> predict(lambda x, edge_index: x[:, :2], load("patients")).shape
    (569,)
    """
    return predictions_of(model, data, features, node_type=node_type, loader=loader).labels.astype(np.int64)


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
        from cfe_faiss.models.batches import call_by_batches
        from cfe_faiss.models.call import call_once

        if loader is not None:
            return call_by_batches(model, data, node_type, loader)
        output = call_once(model, data, node_type)
        return as_predictions(output, len(nodes.x), class_names_of(nodes), "the model's output")
    if loader is not None:
        raise ValueError(f"loader is for a model that is called with its batches, got {type(model).__name__}")
    if is_estimator(model):
        return predictions_of_estimator(model, nodes, features)
    return as_predictions(model, node_count(nodes), class_names_of(nodes), "model (the predictions)")


def predictions_of_rows(
    model: Any, X: Array, class_names: Sequence[str] | None = None, features: Any = None
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


def _call_on_rows(model: Any, X: Array) -> Any:
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(model, torch.nn.Module):
        return model(X)
    from cfe_faiss.models.call import device_of, inference

    device = device_of(model) or torch.device("cpu")
    with inference(model, device):
        return model(torch.as_tensor(X, dtype=torch.float32, device=device))


# --- fitted estimators of scikit-learn --------------------------------------------------------------------------------


def is_estimator(model: Any) -> bool:
    """Return whether a model has the ``predict`` of scikit-learn and is not callable."""
    return hasattr(model, "predict") and not callable(model)


def predictions_of_estimator(model: Any, data: Any, features: Any = None) -> Predictions:
    """Return a fitted estimator's predictions for every node; see :func:`predictions_of`."""
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
