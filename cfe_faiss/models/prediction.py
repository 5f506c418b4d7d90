"""The class that a model predicts for each node."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.attributes.classes import Predictions, as_predictions, class_names_of, node_count
from cfe_faiss.base.checks import as_array
from cfe_faiss.base.extras import extra
from cfe_faiss.graph.node_types import nodes_of
from cfe_faiss.models.batches import called_by_batches
from cfe_faiss.models.estimators import is_estimator, predictions_of_estimator
from cfe_faiss.models.inference import inference, output_of

with extra("gnn"):
    import torch


def predict(
    model: Any, data: Any, features: Any = None, *, node_type: str | None = None, loader: Any = None
) -> NDArray[np.int64]:
    """Return the class that ``model`` predicts for every node of ``data``.

    A module runs in evaluation mode and without gradients, and is left as it was found: the mode of every part and the
    gradients, and with them the global random state. A model that draws random numbers draws the same in every call.

    Parameters
    ----------
    model
        A ``torch.nn.Module`` or any other callable, called once with what its signature asks for:

        - ``model(data)``, where its first parameter is called ``data``, ``batch``, ``graph`` or ``g``, or is the only
          one (and not called ``x`` or the like);
        - ``model(x)``, where it takes no edges;
        - ``model(x, edge_index)`` otherwise. Then ``edge_weight``, ``edge_attr`` and ``edge_type``, where ``data`` has
          them, are handed over by name, or refused where the model does not take them: they are never ignored. So are
          other parameters without a default, which ``data`` must have, and ``batch``, which is 0 for all nodes of a
          single graph;
        - for ``HeteroData`` the same with ``x_dict``, ``edge_index_dict``, ``edge_attr_dict`` and so on, whatever the
          model calls them.

        It returns logits or probabilities of shape (n, C), C at least 2, or classes of shape (n,), as a tensor or an
        array; for ``HeteroData`` those of ``node_type``, or a dict that has them. A plain function that wraps a module
        must see to that module's mode itself. Or a fitted scikit-learn estimator, or the predictions themselves, see
        :func:`cfe_faiss.models.predictions.predictions_of`.
    data
        The graph, PyG ``Data`` or ``HeteroData``, on the device of the model.
    features
        Attributes of the nodes, for estimators that were fitted on a DataFrame.
    node_type
        The node type whose classes are asked for; for ``HeteroData``, and for it only.
    loader
        Batches of the graph, such as PyG's ``NeighborLoader`` yields: ``Data`` or ``HeteroData`` whose first
        ``batch_size`` nodes are those that the batch is for, and whose ``n_id`` are the nodes' numbers in ``data``. All
        batches together must be for every node, and for each once, in any order (``input_nodes`` left out). See
        :doc:`/how_to/large_models` for loaders, exact predictions and estimates.

    Returns
    -------
    ndarray
        Classes, (n,) int64; of equal logits the smaller class.

    Raises
    ------
    TypeError
        If the model is not as described, or its output is not of numbers or texts, or several things.
    ValueError
        If ``data`` has no ``x`` or edges, lacks what the model requires or has values of edges that it does not take,
        the output has another shape, NaN, or a negative class, or the batches are not as described: one has no
        ``n_id`` (as from ``ClusterLoader``, ``GraphSAINTSampler`` and ``RandomNodeLoader``, whose batches lack edges),
        or no batch is for a node, or two are.

    Examples
    --------
    >>> from cfe_faiss.datasets import load
    >>> predict(lambda x, edge_index: x[:, :2], load("patients")).shape
    (569,)
    """
    return predictions(model, data, features, node_type, loader).labels.astype(np.int64)


def predictions(
    model: Any, data: Any, features: Any = None, node_type: str | None = None, loader: Any = None
) -> Predictions:
    """Return what ``model`` predicts, see :func:`cfe_faiss.models.predictions.predictions_of`."""
    nodes = nodes_of(data, node_type)
    if callable(model):
        return called(model, data, node_type, loader)
    if loader is not None:
        raise ValueError(f"loader is for a model that is called with its batches, got {type(model).__name__}")
    if is_estimator(model):
        return predictions_of_estimator(model, nodes, features)
    return as_predictions(model, node_count(nodes), class_names_of(nodes), "model (the predictions)")


def called(model: Callable[..., Any], data: Any, node_type: str | None = None, loader: Any = None) -> Predictions:
    """Return what a callable predicts, as :func:`predict` calls it; by batches without scores."""
    if loader is not None:
        return called_by_batches(model, data, node_type, loader)
    nodes = nodes_of(data, node_type)
    output = _output(model, data, node_type)
    return as_predictions(output, len(nodes.x), class_names_of(nodes), "the model's output")


def outputs(model: Callable[..., Any], data: Any) -> NDArray[Any]:
    """Return the numbers that a callable returns, NaN included, as :func:`predict` calls it."""
    output = _output(model, data)
    if isinstance(output, torch.Tensor) and output.is_floating_point():
        output = output.float()  # NumPy knows no bfloat16
    return as_array("the model's output", output)


def _output(model: Callable[..., Any], data: Any, node_type: str | None = None) -> Any:
    x = getattr(nodes_of(data, node_type), "x", None)
    with inference(model, x.device if isinstance(x, torch.Tensor) else torch.device("cpu")):
        return output_of(model, data, node_type)
