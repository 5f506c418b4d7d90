"""Checked arguments of a finder: graph, attributes, true classes, scores and index."""

import math
import warnings
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import numpy as np

from cfe_faiss.attributes.constraints import Constraints
from cfe_faiss.attributes.table import Attributes
from cfe_faiss.base.arrays import Doubles, Floats, Int32s, Ints
from cfe_faiss.base.checks import UNKNOWN, InputWarning, as_array, as_count, as_number, to_host
from cfe_faiss.data.classes import Predictions, class_names_of, true_classes
from cfe_faiss.graph.metapath import as_node_type, is_heterogeneous, metapath_graph
from cfe_faiss.index.factory import check_ids_stay, factory_with_ids
from cfe_faiss.index.protocol import EvidenceIndex
from cfe_faiss.rows.metric import Metric, as_metric
from cfe_faiss.search.query import Rules

_ROUNDING = 1e-3
_NEARLY = 0.1
EXACT_UP_TO = 100_000
"""Largest number of nodes that is searched exactly by default."""


def probabilities_of(predicted: Predictions) -> Doubles | None:
    """Return the scores if they are probabilities: rows in [0, 1] with sum 1; None for logits and classes.

    Warns
    -----
    InputWarning
        If numbers in [0, 1] have nearly these sums.
    """
    if predicted.scores is None:
        return None
    scores = as_array("scores", predicted.scores).astype(np.float64)
    error = np.abs(scores.sum(axis=1) - 1).max(initial=0) if (scores >= 0).all() else np.inf
    if _ROUNDING < error < _NEARLY:
        text = (
            f"rows of predictions have sums up to {error:.2g} from 1, so they are taken for scores, not probabilities"
        )
        warnings.warn(text, InputWarning, stacklevel=3)
    return scores if error <= _ROUNDING else None


def of_type(data: Any, node_type: str | None, metapath: Any, weighted: bool) -> tuple[Any, str | None]:
    """Return the graph of one node type along a meta-path, and that type; of a graph with one type ``data``, None."""
    if not is_heterogeneous(data):
        for name, value in (("node_type", node_type), ("metapath", metapath)):
            if value is not None:
                raise ValueError(f"{name} is for HeteroData, got {name}={value!r} for {type(data).__name__}")
        return data, None
    if node_type is not None:
        as_node_type("node_type", data, node_type)
    if metapath is None:
        raise ValueError("metapath must say how the nodes of HeteroData are joined, a list of edge types, got None")
    graph = metapath_graph(data, metapath, weighted=weighted)
    start: str = metapath[0][0]
    if node_type not in (None, start):
        raise ValueError(f"metapath must start and end at node_type={node_type!r}, got one of {start!r}")
    return graph, start


def check_data(data: Any) -> None:
    """Raise ValueError unless ``data`` is a graph with features."""
    if getattr(data, "x", None) is None:
        raise ValueError(f"data must have x, got {type(data).__name__}")
    if getattr(data, "edge_index", None) is None and getattr(data, "adj_t", None) is None:
        raise ValueError(
            f"data must have edge_index or adj_t, got {type(data).__name__}: an edge_index of shape (2, 0) says that "
            "there are no edges, and vectors without a graph are for EvidenceFinder.from_vectors"
        )


def fill_index(
    index: str | EvidenceIndex | None, vectors: Floats, labels: Int32s, nodes: Ints, metric: Metric = "cosine"
) -> EvidenceIndex:
    """Return an index of some vectors, with their numbers as ids; those without a predicted class are left out."""
    nodes = nodes[labels[nodes] != UNKNOWN]
    built = empty_index(index, len(nodes), vectors.shape[1], metric)
    if not built.is_trained:
        built.train(vectors[nodes])
    built.add_with_labels(vectors[nodes], labels[nodes], ids=nodes)
    return built


def truth_of(
    data: Any, predicted: Predictions, unknown: Collection[Any] | None = None
) -> tuple[Int32s | None, tuple[str, ...] | None]:
    """Return the true classes if ``data.y`` holds one for each node, and the names of all classes.

    Several classes of a node and targets of a regression are no true classes.

    Warns
    -----
    InputWarning
        If it holds whole numbers below 100 as floats.
    """
    y = getattr(data, "y", None)
    if y is None:
        return None, predicted.class_names
    values = np.asarray(to_host(y))
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    is_float = values.dtype.kind == "f"
    if values.ndim == 1 and is_float and np.isin(values, np.arange(100)).all():
        text = "data.y holds floats, which are no true classes: make it integers, data.y.long(), if they are meant so"
        warnings.warn(text, InputWarning, stacklevel=3)
    if values.ndim != 1 or is_float:
        return None, predicted.class_names
    options: dict[str, Any] = {"is_named": class_names_of(data) is not None, "unknown": unknown}
    values = y if np.ndim(y) == 1 else values
    return true_classes("data.y", values, predicted.labels, predicted.class_names, **options)


def empty_index(index: str | EvidenceIndex | None, n: int, d: int, metric: Metric | int = "cosine") -> EvidenceIndex:
    """Return an empty index for n vectors of length d, from an index, a description or (None) the default rule."""
    if index is None:
        as_count("the number of nodes", n)
        index = "EvidenceFlat" if n <= EXACT_UP_TO else f"EvidenceIVF{2 * math.isqrt(n)},Flat"
    if isinstance(index, str):
        return factory_with_ids(d, index, metric)
    if not isinstance(index, EvidenceIndex):
        raise TypeError(f"index must be an evidence index or its description, got {type(index).__name__}")
    if index.ntotal or index.d != d:
        raise ValueError(f"index must be empty and of {d} dimensions, got {index!r}")
    if index.metric != as_metric("metric", metric):
        raise ValueError(f"index must have metric {metric!r}, by which its finder compares, got {index!r}")
    check_ids_stay(index)
    return index


def check_numbers(index: EvidenceIndex) -> None:
    """Raise TypeError unless the labels of an index are integers, as the classes of a finder are."""
    names = index.label_names
    if names.dtype.kind != "i":
        remedy = "give it integers by relabel, and the finder their names by class_names="
        raise TypeError(f"index must have integers as labels in a finder, got {names.tolist()[0]!r}; {remedy}")


def as_scores(values: Any, n: int) -> Doubles:
    """Return the scores of n rows, (n,); ValueError if one is missing or infinite."""
    array = as_array("scores", values).astype(np.float64)
    if array.shape != (n,):
        raise ValueError(f"scores must have shape ({n},), one per row, got {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"scores must be finite, got {array[~np.isfinite(array)][0]}")
    return array


def gap_conditions(
    where: Constraints | None, min_gap: float, scores: Doubles, attributes: Attributes | None
) -> dict[str, Any]:
    """Return the arguments of a search for rows of any class whose scores differ by at least ``min_gap``."""
    gap = as_number("min_gap", min_gap, 0.0, np.inf)
    name = "score"
    if gap == 0:
        raise ValueError("min_gap must be above 0, got 0")
    known = {} if attributes is None else dict(attributes)
    while name in known:
        name += "_"
    where = Constraints() if where is None else where
    if where.target is not None:
        raise ValueError(f"target must be left out with scores, which have no classes, got {where.target}")
    most = None if where.max_changed is None else where.max_changed + 1  # scores always differ
    where = replace(where, caliper={**where.caliper, name: -gap}, max_changed=most)
    table = Attributes({**known, name: scores}, np.arange(len(scores)))
    return {"where": where, "attributes": table, "rules": Rules(neighbors="any")}
