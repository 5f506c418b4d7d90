"""Predicted classes of the nodes of a graph."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.attributes.classes import Predictions, as_predictions, class_names_of
from cfe_faiss.base.checks import as_array
from cfe_faiss.base.extras import extra
from cfe_faiss.graph.node_types import nodes_of
from cfe_faiss.models.batches import call_by_batches
from cfe_faiss.models.inference import inference, output_of
from cfe_faiss.models.predictions import predictions_of

with extra("gnn"):
    import torch


def predict(
    model: Any, data: Any, features: Any = None, *, node_type: str | None = None, loader: Any = None
) -> NDArray[np.int64]:
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


def call_model(model: Callable[..., Any], data: Any, node_type: str | None = None, loader: Any = None) -> Predictions:
    """Return the predictions of a callable, called as by :func:`predict`; with batches without scores."""
    if loader is not None:
        return call_by_batches(model, data, node_type, loader)
    nodes = nodes_of(data, node_type)
    output = _output(model, data, node_type)
    return as_predictions(output, len(nodes.x), class_names_of(nodes), "the model's output")


def outputs(model: Callable[..., Any], data: Any) -> NDArray[Any]:
    """Return the numeric output of a callable, NaN included, called as by :func:`predict`."""
    output = _output(model, data)
    if isinstance(output, torch.Tensor) and output.is_floating_point():
        output = output.float()  # NumPy has no bfloat16
    return as_array("the model's output", output)


def _output(model: Callable[..., Any], data: Any, node_type: str | None = None) -> Any:
    x = getattr(nodes_of(data, node_type), "x", None)
    with inference(model, x.device if isinstance(x, torch.Tensor) else torch.device("cpu")):
        return output_of(model, data, node_type)
