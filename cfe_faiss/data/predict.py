"""Predictions of any kind of model for the nodes of a graph or the rows of a matrix."""

import copy
import sys
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from cfe_faiss.attributes.table import as_attributes, attributes_of
from cfe_faiss.base.checks import Ints, as_array, as_dense, did_you_mean
from cfe_faiss.base.extras import pd
from cfe_faiss.data.classes import (
    Predictions,
    are_shares,
    as_predictions,
    class_names_of,
    known_classes,
    node_count,
)
from cfe_faiss.graph.metapath import nodes_of

_OUTPUT = "the model's output"
_GIVEN = "model (the predictions)"
_GRAPHS_PER_CALL = 256
_POSITIONS = "{}", "Column_{}", "f{}"
"""Names that CatBoost, LightGBM and XGBoost give to the columns of an array."""


def predict(
    model: Any, data: Any, features: Any = None, *, node_type: str | None = None, loader: Any = None
) -> Ints:
    """Return the class that ``model`` predicts for every node of ``data``.

    A module runs in evaluation mode and without gradients. The modes of its submodules, its
    gradients and the global random state do not change. A model that draws random numbers draws the
    same ones in every call.

    Parameters
    ----------
    model
        A ``torch.nn.Module`` or any other callable, called once by its signature:

        - ``model(data)`` if its first parameter is named ``data``, ``batch``, ``graph`` or ``g``,
          or is its only parameter (and not named like features, ``x`` for example);
        - ``model(x)`` if it has no parameter for edges;
        - ``model(x, edge_index)`` otherwise. ``edge_weight``, ``edge_attr`` and ``edge_type`` of
          ``data`` are passed by name. A model that takes no ``edge_attr`` is called without it; one
          that does not accept the other two is an error. Other parameters without a default are
          taken from ``data``; ``batch`` is 0 for all nodes of a single graph;
        - for ``HeteroData`` the same with ``x_dict``, ``edge_index_dict``, ``edge_attr_dict`` and
          so on, under any parameter names.

        It returns logits or probabilities of shape (n, C), C at least 2, one logit for two classes,
        (n, 1), which is positive for class 1, or classes of shape (n,), as a tensor or an array;
        for ``HeteroData`` the output of ``node_type``, or a dict with it. A function that wraps a
        module sets the mode of the module itself. ``model`` may also be a fitted scikit-learn
        estimator or ready predictions, see :func:`cfe_faiss.data.predict.predictions_of`.
    data
        The graph, PyG ``Data`` or ``HeteroData``, on the device of the model.
    features
        Attributes of the nodes, for estimators that were fitted on a DataFrame.
    node_type
        Node type to predict; for ``HeteroData`` only.
    loader
        Batches of the graph, as from PyG's ``NeighborLoader``: ``Data`` or ``HeteroData`` with the
        node numbers in ``data`` as ``n_id``, and ``batch_size`` seed nodes first. Every node must
        be a seed once, in any order (``input_nodes`` left out). See :doc:`/how_to/large_models`.

    Returns
    -------
    ndarray
        Classes, (n,) int64; for equal logits the smaller class.

    Raises
    ------
    TypeError
        If the model is not as described, or its output has several parts, or other values.
    ValueError
        If ``data`` has no ``x`` or edges, lacks a value that the model requires or has edge weights
        or types that it does not accept; if the output has another shape, NaN, a negative class, or
        one column of numbers in [0, 1] only; or if a batch has no ``n_id`` (``ClusterLoader``,
        ``GraphSAINTSampler``, ``RandomNodeLoader`` cut edges), or a node is no seed, or twice.

    Examples
    --------
    >>> from cfe_faiss.datasets import load
    >>> predict(lambda x, edge_index: x[:, :2], load("patients")).shape
    (569,)
    """
    return predictions_of(model, data, features, node_type=node_type, loader=loader).labels.astype(
        np.int64
    )


def predictions_of(  # noqa: PLR0913
    model: Any,
    data: Any,
    features: Any = None,
    *,
    class_names: Sequence[str] | None = None,
    node_type: str | None = None,
    loader: Any = None,
    unknown: Collection[Any] | None = None,
    complete: bool = True,
) -> Predictions:
    """Return the predictions of ``model`` for nodes of a graph, or rows of a matrix or frame.

    Parameters
    ----------
    model
        One of

        - a ``torch.nn.Module`` or another callable, called once: for a graph, see
          :func:`cfe_faiss.models.predict` for its arguments; for rows as ``model(data)``, a module
          with a float32 tensor, in evaluation mode and without gradients;
        - a fitted estimator, an object with ``predict`` (for a graph one that is not callable). If
          it was fitted on a DataFrame, its columns, see :func:`column_names`, come from the frame,
          from ``features``, or from ``data.x`` by ``data.feature_names``; otherwise it gets all
          columns;
        - ready predictions; see :func:`cfe_faiss.data.classes.as_predictions`.
    data
        PyG ``Data`` or any object with ``x``, (n, d), and for callables ``edge_index``, (2, E); or
        ``HeteroData``; a matrix, (n, d); or a pandas frame, whose classes are names.
    features
        Attributes of all nodes, as :func:`cfe_faiss.attributes.table.as_attributes` takes them; for
        estimators only.
    class_names
        Names of the classes of rows, if known; a graph has them in ``data.class_names``.
    node_type, loader
        Node type to predict, for ``HeteroData``; batches of a graph that is too large for one call.
        See :func:`cfe_faiss.models.predict`.
    unknown, complete
        For ready predictions, as in :func:`cfe_faiss.data.classes.as_predictions`.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, the estimator is not fitted, or was fitted on other
        columns.
    ImportError
        If ``model`` is a callable, ``data`` a graph, and torch is missing.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> from sklearn.linear_model import LogisticRegression
    >>> data = SimpleNamespace(x=[[0.0], [1.0], [2.0], [3.0]])
    >>> model = LogisticRegression().fit(data.x, ["low", "low", "high", "high"])
    >>> found = predictions_of(model, data)
    >>> found.labels, found.class_names, found.scores.shape
    (array([1, 1, 0, 0], dtype=int32), ('high', 'low'), (4, 2))
    >>> predictions_of(lambda X: X[:, 0] > 0, np.array([[1.0], [-1.0]])).labels
    array([1, 0], dtype=int32)
    """
    if isinstance(model, type):
        raise TypeError(
            f"model must be a model, got the class {model.__name__}: make one, and fit it"
        )
    is_table = hasattr(data, "iloc")
    is_graph = not is_table and not isinstance(data, np.ndarray)
    if is_graph:
        data_of_call = data
        data = nodes_of(data, node_type)
        class_names = class_names_of(data)
    if is_graph and callable(model):
        from cfe_faiss.data.call import call_by_batches, call_once

        if loader is not None:
            return call_by_batches(model, data_of_call, node_type, loader)
        return as_predictions(
            call_once(model, data_of_call, node_type), len(data.x), class_names, _OUTPUT
        )
    if loader is not None:
        raise ValueError(
            f"loader is for a model that is called with its batches, got {type(model).__name__}"
        )
    n = node_count(data) if is_graph else len(data)
    options: dict[str, Any] = {"are_names": is_table}
    if not is_model(model):
        return as_predictions(
            model, n, class_names, _GIVEN, unknown=unknown, complete=complete, **options
        )
    rows = _columns_for(model, data) if is_table else _input(model, data, features)
    if hasattr(model, "predict"):
        return _of_estimator(model, rows, n, class_names, **options)
    return as_predictions(_call_on_rows(model, rows), n, class_names, _OUTPUT, **options)


def outputs_of_links(model: Any, data: Any, ends: Ints) -> Any:
    """Return the outputs of ``model`` for links between nodes of a graph, for :func:`as_predictions`.

    Parameters
    ----------
    model
        Called once as :func:`predict` calls it, with ``edge_label_index``, (2, m), as a value of
        the data: ``model(x, edge_index, edge_label_index)`` or ``model(data)``. It returns logits
        or probabilities, (m, C), classes, (m,), or one logit for each link, (m,) or (m, 1). Ready
        predictions are returned unchanged.
    data
        PyG ``Data`` or a similar object.
    ends
        Node numbers, (m, 2).

    Raises
    ------
    TypeError, ValueError
        If the model takes no links, or its output is not as described.
    """
    if not _is_called(model):
        return model
    import torch

    from cfe_faiss.data.call import arguments, call_once

    with_links = copy.copy(data)
    device = getattr(data.x, "device", None)
    links = torch.as_tensor(ends.T.copy(), device=device)
    with_links.edge_label_index = links
    args, kwargs = arguments(model, with_links)
    if not any(value is with_links or value is links for value in (*args, *kwargs.values())):
        raise ValueError(
            "model must take edge_label_index, the links, got one that does not: hand in a function "
            "of data (lambda data: model(data.x, data.edge_index, data.edge_label_index))"
        )
    return _logits_in_column(call_once(model, with_links))


def outputs_of_graphs(model: Any, graphs: Sequence[Any]) -> Any:
    """Return the outputs of ``model`` for whole graphs, for :func:`as_predictions`.

    Parameters
    ----------
    model
        For PyG ``Data``, called as :func:`predict` calls it, with ``batch``, for batches of graphs:
        ``model(x, edge_index, batch)`` or ``model(data)``. For other graphs called once with their
        list. It returns logits or probabilities, (g, C), classes, (g,), or one logit for each
        graph, (g,) or (g, 1). Ready predictions are returned unchanged.
    graphs
        PyG ``Data`` with ``x``, or other graphs.

    Raises
    ------
    TypeError, ValueError
        If the output of the model is not as described, or PyG ``Data`` lack ``x``.
    """
    if not _is_called(model):
        return model
    if not all(hasattr(graph, "edge_index") for graph in graphs):
        return _logits_in_column(_call_on_rows(model, graphs))
    import torch
    from torch_geometric.loader import DataLoader

    from cfe_faiss.data.call import call_once, device_of

    outputs = []
    device = device_of(model)
    for batch in DataLoader(graphs, batch_size=_GRAPHS_PER_CALL):
        moved = batch if device is None else batch.to(device)
        outputs.append(torch.as_tensor(call_once(model, moved)))
    return _logits_in_column(torch.cat(outputs))


def _is_called(model: Any) -> bool:
    """Return whether a model is called, rather than being predictions; refuse estimators."""
    if model is None:
        raise ValueError("model or scores must be given, got None")
    if is_estimator(model):
        raise TypeError(
            f"model must be callable, or predictions, got {type(model).__name__}, which takes "
            "columns: hand in the result of its predict"
        )
    return callable(model)


def _logits_in_column(output: Any) -> Any:
    """Return an output with one logit for each link or graph, (n,), as (n, 1)."""
    if getattr(output, "ndim", 0) == 1 and as_array(_OUTPUT, output).dtype.kind == "f":
        return as_array(_OUTPUT, output)[:, None]
    return output


def _columns_for(model: Any, frame: "pd.DataFrame") -> Any:
    """Return the columns that a model asks for, in its order and types, else all columns.

    A module and an estimator that was fitted on an array get an array.
    """
    frame_columns = list(frame.columns)
    model_columns = columns_of(model, frame_columns)
    count = getattr(model, "n_features_in_", None)
    is_unnamed = count is not None and model_columns is None
    if is_unnamed and count != len(frame_columns):
        raise ValueError(
            f"model was fitted on {count} columns without names, got {len(frame_columns)} columns "
            f"({', '.join(frame_columns[:20])}): fit it on a frame, or leave columns out of frame"
        )
    columns = frame if model_columns is None else frame[model_columns]
    return columns.to_numpy() if is_unnamed or _is_module(model) else columns


def _is_module(model: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)


def _call_on_rows(model: Any, X: Any) -> Any:
    if not _is_module(model):
        return model(X)
    import torch

    from cfe_faiss.data.call import device_of, inference

    device = device_of(model) or torch.device("cpu")
    if X.dtype.kind not in "biuf":
        raise TypeError(
            "columns of a torch module must be numbers, got texts: leave them out, or pass a "
            "function"
        )
    with inference(model, device):
        return model(torch.as_tensor(X, dtype=torch.float32, device=device))


# --- columns of a model ---------------------------------------------------------------------------


def column_names(model: Any) -> list[str] | None:
    """Return the columns that a model was fitted on, in its order.

    None if it does not know their names.

    Libraries keep them in different places: ``feature_names_in_`` (scikit-learn, XGBoost),
    ``feature_names_`` (CatBoost), ``feature_name_`` and ``feature_name()`` (LightGBM),
    ``feature_names`` (boosters of XGBoost); a pipeline in its first step, and a search in its best
    estimator.
    """
    for place in (
        "feature_names_in_",
        "feature_names_",
        "feature_name_",
        "feature_name",
        "feature_names",
    ):
        names = _attribute(model, place)
        names = names() if callable(names) else names
        if names is not None and len(names):
            return [str(name) for name in names]
    steps = _attribute(model, "steps")
    parts = [
        _attribute(model, "best_estimator_"),
        _attribute(model, "estimator_"),
        steps[0][1] if steps else None,
    ]
    for part in parts:
        names = None if part is None else column_names(part)
        if names is not None:
            return names
    return None


def _attribute(model: Any, name: str) -> Any:
    """Return an attribute, None without it.

    Some are properties that raise if the model is not fitted.
    """
    try:
        return getattr(model, name, None)
    except Exception:  # the type depends on the library
        return None


def columns_of(
    model: Any, known: Sequence[str], where: str = "frame lacks", table: str = "a frame"
) -> list[str] | None:
    """Return the columns of a table that a model asks for, in its order; None if it knows no names.

    LightGBM writes blanks in names as underscores.

    Raises
    ------
    ValueError
        If the table lacks columns; the error names them, ``where`` says what was searched, and
        ``table`` what has to be given.
    """
    names = column_names(model)
    if names is None:
        return None
    written = {name.replace(" ", "_"): name for name in known} | {name: name for name in known}
    missing = [name for name in names if name not in written]
    if missing and any(names == [form.format(j) for j in range(len(names))] for form in _POSITIONS):
        return None
    if missing:
        raise ValueError(
            f"model was fitted on columns that {where}, {', '.join(missing[:8])}: give {table} "
            f"with all its columns{did_you_mean(missing[0], known)}"
        )
    return [written[name] for name in names]


# --- fitted estimators ----------------------------------------------------------------------------


def is_model(model: Any) -> bool:
    """Return whether a model can be called again, rather than being predictions."""
    return callable(model) or hasattr(model, "predict")


def is_estimator(model: Any) -> bool:
    """Return whether a model has the ``predict`` of scikit-learn and is not callable."""
    return hasattr(model, "predict") and not callable(model)


def _of_estimator(
    model: Any, X: Any, n: int, class_names: Sequence[str] | None, *, are_names: bool
) -> Predictions:
    """Return classes of ``predict``, with ``predict_proba`` if the model has it."""
    # of XGBoost or LightGBM, which predicts probabilities
    is_booster = type(model).__name__ == "Booster"
    predict = (
        model.inplace_predict if is_booster and hasattr(model, "inplace_predict") else model.predict
    )
    output = predict(X)
    if (
        is_booster
        and np.ndim(output) == 1
        and are_shares(np.asarray(output))
        and not np.isin(output, (0, 1)).all()
    ):
        output = np.column_stack([1 - np.asarray(output), output])
    if np.shape(output) == (n, 1) and not hasattr(output, "columns"):
        output = np.asarray(output).ravel()
    fitted = getattr(model, "classes_", None)
    options: dict[str, Any] = {"name": "model.classes_", "are_names": are_names, "unknown": ()}
    names = class_names
    if names is None and fitted is not None and np.ndim(fitted) == 1:
        have_names = as_predictions(fitted, len(fitted), **options).class_names is not None
        classes = known_classes("model.classes_", fitted, len(fitted), unknown=())[0].tolist()
        names = list(map(str, classes)) if have_names else None
    predicted = as_predictions(output, n, names, _OUTPUT, are_names=are_names)
    if predicted.scores is not None and not is_booster:
        raise ValueError(
            f"{_OUTPUT} must be classes of shape ({n},), got shape {predicted.scores.shape}"
        )
    if fitted is None or not hasattr(model, "predict_proba"):
        return predicted
    names = predicted.class_names
    places = as_predictions(np.asarray(fitted), len(fitted), names, **options).labels
    shares = np.asarray(model.predict_proba(X))
    scores = np.zeros((n, max(int(places.max()) + 1, len(names or ()))), shares.dtype)
    scores[:, places] = shares  # classes that the model does not know have no probability
    return Predictions(predicted.labels, scores, names)


def _input(model: Any, data: Any, features: Any) -> Any:
    """Return the input of a model: columns by name, or ``data.x``, or a matrix."""
    x = as_dense("data.x", getattr(data, "x", data))
    feature_columns = [] if features is None else list(as_attributes(features))
    data_columns = list(map(str, getattr(data, "feature_names", None) or ()))
    words = ("neither features nor data.feature_names hold", "features")
    model_columns = columns_of(model, [*data_columns, *feature_columns], *words)
    if model_columns is None:
        width = getattr(model, "n_features_in_", x.shape[1])
        if width != x.shape[1]:
            raise ValueError(
                f"model must be fitted on the columns of data.x, {x.shape[1]}, got one fitted on "
                f"{width}"
            )
        return x
    if set(model_columns) <= set(feature_columns):
        return _columns(features, model_columns, len(x))
    columns_of(model, data_columns, *words)  # refuses columns of both
    return pd.DataFrame(x, columns=data_columns)[model_columns]


def _columns(features: Any, names: list[str], n: int) -> Any:
    """Return columns with the dtypes of the frame, which encoders depend on, row i for node i."""
    kind = type(features).__module__.partition(".")[0]
    if kind == "pandas":
        return features.loc[np.arange(n), names]
    if kind == "polars":
        return features.select(names)
    return attributes_of(features, n).select(names).to_frame()
