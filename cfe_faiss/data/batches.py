"""Predictions in batches, for graphs and models that are too large for one call."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from cfe_faiss.base.arrays import Int32s, Ints
from cfe_faiss.base.checks import UNKNOWN, as_array
from cfe_faiss.base.extras import extra
from cfe_faiss.base.values import as_ids
from cfe_faiss.data import classes
from cfe_faiss.data.call import device_of, inference, output_of
from cfe_faiss.data.classes import Predictions
from cfe_faiss.graph.metapath import nodes_of

with extra("gnn"):
    import torch

_CUT = "ClusterLoader, GraphSAINT and RandomNodeLoader cut edges, so that their batches do not give the predictions"


def call_by_batches(model: Callable[..., Any], data: Any, node_type: str | None, loader: Iterable[Any]) -> Predictions:
    """Return the class of every node of ``data``, without scores, from a call of ``model`` for each batch.

    Each batch is moved to the model's device. Memory: one batch, and 4 bytes per node for the classes.

    Raises
    ------
    TypeError, ValueError
        As for :func:`cfe_faiss.models.predict`.
    """
    if isinstance(loader, str) or not isinstance(loader, Iterable):
        raise TypeError(f"loader must yield batches of the graph, got {type(loader).__name__}")
    nodes = nodes_of(data, node_type)
    labels = np.full(classes.node_count(nodes), UNKNOWN, np.int32)
    may_be_shares = True
    names = classes.class_names_of(nodes)
    device = device_of(model)  # None: batches are not moved
    with inference(model, device or torch.device("cpu")):
        for number, batch in enumerate(loader):
            seeds, rows = _seeds(batch, number, node_type, len(labels))
            _refuse_repeats(seeds, labels)
            output = output_of(model, batch if device is None else batch.to(device), node_type)
            found, has_shares = _classes(output, seeds, rows, names, number)
            labels[seeds] = found.labels
            names = found.class_names
            may_be_shares &= has_shares
    missing = np.flatnonzero(labels == UNKNOWN)
    if len(missing):
        raise ValueError(
            f"loader must yield every node once, got no batch with node {missing[0]} among its first batch_size "
            f"({len(missing):,} of {len(labels):,} nodes are missing): leave input_nodes out, and drop_last"
        )
    if may_be_shares and len(labels):
        raise ValueError("the model's output must be logits where there is one column, got numbers in [0, 1] only")
    return Predictions(labels, None, names)


def _seeds(batch: Any, number: int, node_type: str | None, n: int) -> tuple[Ints, int]:
    """Return the seed nodes of a batch, which come first, and the number of all of its nodes."""
    nodes = nodes_of(batch, node_type)
    values = {name: getattr(nodes, name, None) for name in ("n_id", "batch_size")}
    lacking = " and ".join(name for name, value in values.items() if value is None)
    if lacking:
        raise ValueError(
            f"loader must yield batches with n_id and batch_size, as NeighborLoader does, got {type(batch).__name__} "
            f"without {lacking} in batch {number}. {_CUT} that the whole graph gives"
        )
    ids = as_ids(f"n_id of batch {number}", values["n_id"], n)
    size = int(values["batch_size"])  # type: ignore[arg-type]
    if not 0 <= size <= len(ids):
        raise ValueError(f"batch_size of batch {number} must lie in 0..{len(ids)}, its nodes, got {size}")
    return ids[:size], len(ids)


def _refuse_repeats(seeds: Ints, labels: Int32s) -> None:
    values, counts = np.unique(seeds, return_counts=True)
    again = values[(counts > 1) | (labels[values] != UNKNOWN)]
    if len(again):
        raise ValueError(f"loader must yield every node once, got node {again[0]} twice")


def _classes(
    output: Any, seeds: Ints, rows: int, names: tuple[str, ...] | None, number: int
) -> tuple[Predictions, bool]:
    """Return the class of each seed of a batch, from an output for all nodes of the batch or for the seeds only.

    The second value is whether the output is one column of numbers in [0, 1], which may be logits or probabilities.
    """
    name = f"the model's output for batch {number}"
    count = len(output) if hasattr(output, "__len__") else None
    if count not in (rows, len(seeds)):
        raise ValueError(f"{name} must be for its {rows} nodes, or for the {len(seeds)} first ones, got {count} rows")
    output = output[: len(seeds)]
    if isinstance(output, torch.Tensor):
        output = as_array(name, output.float() if output.is_floating_point() else output)
    if getattr(output, "ndim", 0) == 2 and output.dtype.kind == "f" and np.isnan(output).any():
        raise ValueError(f"{name} must not be NaN, got NaN for node {seeds[np.isnan(output).any(axis=1)][0]}")
    has_shares = False
    if getattr(output, "shape", None) == (len(seeds), 1) and output.dtype.kind == "f":
        has_shares = classes.are_shares(output)
        output = classes.as_two_logits(output)
    found = classes.as_predictions(output, len(seeds), names, name)
    if names is None and found.class_names not in (None, classes.TRUTH_VALUES):
        raise ValueError(f"{name} must be numbers, got texts: give data class_names, which number them")
    return found, has_shares
