"""Checked arguments of a finder: graph, classes, scores, index, and fields of a table."""

import math
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cfe_faiss.attributes.columns import PROXY, Proxy, Removed, are_copies, association
from cfe_faiss.attributes.constraints import Constraints
from cfe_faiss.attributes.table import Attributes, as_attributes, attributes_of, with_counts
from cfe_faiss.base.checks import (
    UNKNOWN,
    Array,
    Doubles,
    Floats,
    InputWarning,
    Int32s,
    Ints,
    as_array,
    as_count,
    as_number,
    check_shape,
    check_type,
    to_host,
)
from cfe_faiss.base.extras import pd
from cfe_faiss.base.values import as_row_ids
from cfe_faiss.data.classes import Predictions, class_names_of, note_classes, true_classes
from cfe_faiss.data.columns import Reading, Table
from cfe_faiss.data.encode import encode_table
from cfe_faiss.data.predict import columns_of, is_model, predictions_of
from cfe_faiss.data.roles import Roles, check_table, named_columns
from cfe_faiss.graph import Graph
from cfe_faiss.graph.metapath import as_node_type, is_heterogeneous, metapath_graph
from cfe_faiss.index.factory import check_ids_stay, factory_with_ids
from cfe_faiss.index.searching import EvidenceIndex
from cfe_faiss.rows.metric import Metric, as_metric, as_rows, takes_lists
from cfe_faiss.search.query import Rules

_ATTRIBUTES = ("attributes", "feature_names", "sensitive")
"""Values of ``data`` that hold attributes of nodes."""
_ROUNDING = 1e-3
_NEARLY = 0.1
EXACT_UP_TO = 100_000
"""Largest number of nodes that is searched exactly by default."""


def probabilities_of(predicted: Predictions) -> Doubles | None:
    """Return the scores if they are probabilities: rows in [0, 1] with sum 1.

    None for logits and classes.

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
            f"rows of predictions have sums up to {error:.2g} from 1, so they are taken for "
            "scores, not probabilities"
        )
        warnings.warn(text, InputWarning, stacklevel=3)
    return scores if error <= _ROUNDING else None


def of_type(
    data: Any, node_type: str | None, metapath: Any, weighted: bool
) -> tuple[Any, str | None]:
    """Return the graph of one node type along a meta-path, and that type.

    Of a graph with one type ``data``, None.
    """
    if not is_heterogeneous(data):
        for name, value in (("node_type", node_type), ("metapath", metapath)):
            if value is not None:
                raise ValueError(
                    f"{name} is for HeteroData, got {name}={value!r} for {type(data).__name__}"
                )
        return data, None
    if node_type is not None:
        as_node_type("node_type", data, node_type)
    if metapath is None:
        raise ValueError(
            "metapath must say how the nodes of HeteroData are joined, a list of edge types, got "
            "None"
        )
    graph = metapath_graph(data, metapath, weighted=weighted)
    start: str = metapath[0][0]
    if node_type not in (None, start):
        raise ValueError(
            f"metapath must start and end at node_type={node_type!r}, got one of {start!r}"
        )
    return graph, start


def check_data(data: Any) -> None:
    """Raise ValueError unless ``data`` is a graph with features."""
    if getattr(data, "x", None) is None:
        raise ValueError(f"data must have x, got {type(data).__name__}")
    if getattr(data, "edge_index", None) is None and getattr(data, "adj_t", None) is None:
        raise ValueError(
            f"data must have edge_index or adj_t, got {type(data).__name__}: an edge_index of "
            f"shape (2, 0) says that "
            "there are no edges, and vectors without a graph are for EvidenceFinder.from_vectors"
        )


def fill_index(
    index: str | EvidenceIndex | None,
    vectors: Floats,
    labels: Int32s,
    nodes: Ints,
    metric: Metric = "cosine",
) -> EvidenceIndex:
    """Return an index of some vectors, with their numbers as ids.

    Those without a predicted class are left out.
    """
    nodes = nodes[labels[nodes] != UNKNOWN]
    built = empty_index(index, len(nodes), vectors.shape[1], metric)
    if not built.is_trained:
        built.train(vectors[nodes])
    built.add_with_labels(vectors[nodes], labels[nodes], ids=nodes)
    return built


def node_attributes(data: Any, features: Any, n: int) -> Attributes | None:
    """Return the attributes of n nodes: ``features``, or attributes in ``data``; or None."""
    if features is not None:
        return attributes_of(given_attributes(features), n)
    if any(getattr(data, name, None) is not None for name in _ATTRIBUTES):
        return attributes_of(data, n, "data")
    return None


def graph_attributes(graphs: Sequence[Graph], features: Any) -> Attributes:
    """Return the attributes of graphs, and their numbers of nodes and edges."""
    nodes = np.array([float(graph.num_nodes) for graph in graphs])
    edges = np.array([graph.num_edges / (1 if graph.directed else 2) for graph in graphs])
    further_attributes = (
        None if features is None else attributes_of(given_attributes(features), len(graphs))
    )
    return with_counts({"nodes": nodes, "edges": edges}, further_attributes)


def truth_of_graphs(graphs: Sequence[Any]) -> Ints | None:
    """Return the classes in ``y`` of graphs, (g,), if each holds one integer; else None."""
    values = [np.asarray(to_host(getattr(graph, "y", None))) for graph in graphs]
    if any(value.size != 1 or value.dtype.kind not in "iu" for value in values):
        return None
    return np.array([value.item() for value in values], np.int64)


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
        text = (
            "data.y holds floats, which are no true classes: make it integers, data.y.long(), if "
            "they are meant so"
        )
        warnings.warn(text, InputWarning, stacklevel=3)
    if values.ndim != 1 or is_float:
        return None, predicted.class_names
    return true_classes(
        "data.y",
        y if np.ndim(y) == 1 else values,
        predicted.labels,
        predicted.class_names,
        is_named=class_names_of(data) is not None,
        unknown=unknown,
    )


def empty_index(
    index: str | EvidenceIndex | None, n: int, d: int, metric: Metric | int = "cosine"
) -> EvidenceIndex:
    """Return an empty index for n vectors of length d, from an index, text, or (None) n."""
    if index is None:
        as_count("the number of nodes", n)
        is_exact = n <= EXACT_UP_TO or not takes_lists(as_metric("metric", metric))
        index = "EvidenceFlat" if is_exact else f"EvidenceIVF{2 * math.isqrt(n)},Flat"
    if isinstance(index, str):
        return factory_with_ids(d, index, metric)
    check_type("index must be an evidence index or its description", index, EvidenceIndex)
    if index.ntotal or index.d != d:
        raise ValueError(f"index must be empty and of {d} dimensions, got {index!r}")
    if index.metric != as_metric("metric", metric):
        raise ValueError(
            f"index must have metric {metric!r}, by which its finder compares, got {index!r}"
        )
    check_ids_stay(index)
    return index


def check_numbers(index: EvidenceIndex) -> None:
    """Raise TypeError unless the labels of an index are integers, as classes of a finder."""
    names = index.label_names
    if names.dtype.kind != "i":
        remedy = "give it integers by relabel, and the finder their names by class_names="
        raise TypeError(
            f"index must have integers as labels in a finder, got {names.tolist()[0]!r}; {remedy}"
        )


def as_scores(values: Any, n: int) -> Doubles:
    """Return the scores of n rows, (n,); ValueError if one is missing or infinite."""
    array = as_array("scores", values).astype(np.float64)
    check_shape("scores", array, (n,), "one per row")
    is_finite = np.isfinite(array)
    if not is_finite.all():
        row = int(np.argmin(is_finite))
        raise ValueError(
            f"scores must be finite, got {array[row]} in row {row} (from 0), as in "
            f"{n - is_finite.sum():,} of {n:,} rows: leave rows without a score out"
        )
    return array


def gap_conditions(
    where: Constraints | None, min_gap: float, scores: Doubles, attributes: Attributes | None
) -> dict[str, Any]:
    """Return arguments of a search for rows whose scores differ by at least ``min_gap``."""
    gap = as_number("min_gap", min_gap, 0.0, np.inf)
    name = "score"
    if gap == 0:
        raise ValueError("min_gap must be above 0, got 0")
    known = {} if attributes is None else dict(attributes)
    while name in known:
        name += "_"
    where = Constraints() if where is None else where
    if where.target is not None:
        raise ValueError(
            f"target must be left out with scores, which have no classes, got {where.target}"
        )
    most = None if where.max_changed is None else where.max_changed + 1  # scores always differ
    where = replace(where, caliper={**where.caliper, name: -gap}, max_changed=most)
    table = Attributes({**known, name: scores}, np.arange(len(scores)))
    return {"where": where, "attributes": table, "rules": Rules(neighbors="any")}


def given_attributes(features: Any) -> Attributes:
    """Return attributes in any form of ``as_attributes``, read as columns of a table.

    Raises
    ------
    TypeError, ValueError
        As for ``as_attributes``, or if nearly all cells of a column are numbers, but not all.
    """
    attributes = as_attributes(features)
    is_ready = attributes is getattr(features, "attributes", features)
    if is_ready:
        return attributes
    columns = features.items() if isinstance(features, pd.DataFrame | Mapping) else ()
    categories = [
        str(name)
        for name, column in columns
        if isinstance(getattr(column, "dtype", None), pd.CategoricalDtype)
    ]
    reading = Reading(categorical=categories, is_given=True)
    table = Table("features", attributes.to_frame().reset_index(drop=True), reading)
    frame = table.frame(table.columns)
    table.problems.check()
    return as_attributes(frame.set_index(attributes.ids))


# --- a table --------------------------------------------------------------------------------------


def table_fields(
    given: Table, model: Any, roles: Roles, encoder: Any, scale: Mapping[str, float] | None
) -> dict[str, Any]:
    """Return fields of a finder, made from a table.

    See :meth:`cfe_faiss.EvidenceFinder.from_table` for errors.
    """
    index = pd.RangeIndex(len(given)) if given.index is None else given.index
    values_of_rows = {
        "model": model,
        "id": roles.id,
        "truth": roles.truth,
        "probabilities": roles.probabilities,
    }
    for argument, values in values_of_rows.items():
        is_indexed = isinstance(values, pd.Series | pd.DataFrame) and not values.index.equals(index)
        # rows are in another order than in the table
        if is_indexed and values.index.isin(index).any():
            raise ValueError(
                f"{argument} must have the pandas index of frame: sort the rows alike, or pass "
                f"arrays"
            )
    ids = None
    with given.problems.collect():
        ids = _row_ids(given, roles.id)
    names, table = roles.read(given, model, any_texts=encoder is not None)
    given.problems.check()
    if not names:
        raise ValueError(
            f"frame must have columns beside id, truth and predictions, got "
            f"{', '.join(given.columns)}"
        )
    attributes = as_attributes(table[names], "frame")
    sensitive = roles.sensitive
    removed = _find_removed(attributes, [*sensitive, *roles.without])
    left_out = removed.columns if removed else ()
    is_called = is_model(model)
    columns_of_model = columns_of(model, [str(name) for name in given.cells]) if is_called else None
    columns_of_roles = [name for name in (roles.id, roles.truth) if isinstance(name, str)]
    columns_of_roles += named_columns(roles.probabilities)
    leaked = [name for name in columns_of_model or () if name in columns_of_roles]
    if leaked:
        text = (
            f"model reads {', '.join(map(repr, leaked))}, which id, truth or probabilities name: "
            "fit it without"
        )
        warnings.warn(text, InputWarning, stacklevel=3)
    data = table[names]
    if is_called:  # columns as given, or as pandas reads them from a text file
        asked_columns = names if columns_of_model is None else columns_of_model
        columns = {
            name: given.values(name) if given.is_text else given.cells[name]
            for name in asked_columns
        }
        data = pd.DataFrame(columns, index=given.cells.index)
    given.problems.check()
    predictions = _predict(model, data, table, roles)
    labels = predictions.labels
    class_names = predictions.class_names
    truth = None
    if roles.truth is not None:
        truth, class_names = true_classes(
            "truth",
            _column(table, roles.truth),
            labels,
            class_names,
            are_names=True,
            is_named=roles.class_names is not None,
            unknown=roles.unknown,
        )
    note_classes(labels, truth, class_names)
    class_names = class_names or ()
    shares = probabilities_of(predictions)
    compared = [name for name in names if name not in left_out]
    encoded = encode_table(attributes.select(compared), table[compared], encoder, scale, left_out)
    vectors = as_rows("the encoded columns of frame", encoded, None, "l2")
    check_table(
        attributes,
        labels,
        truth,
        class_names,
        sensitive=sensitive,
        left_out=left_out,
        called=is_called,
        identified=roles.id is not None,
    )
    if shares is not None:  # classes that are never predicted have no probability
        shares = np.pad(shares, ((0, 0), (0, len(class_names) - shares.shape[1])))
    return {
        "vectors": vectors,
        "labels": labels,
        "attributes": attributes,
        "truth": truth,
        "class_names": class_names,
        "removed": removed,
        "ids": ids,
        "probabilities": shares,
        "model": model if is_called else None,
        "data": data,
        "sensitive": sensitive,
        "weights": None if roles.weights is None else _as_weights(table[roles.weights]),
        "scale": None if encoder is not None else dict(scale or {}),
    }


def _row_ids(table: Table, given: Any) -> Array | None:
    """Return the ids of the rows: in a column, given ones, or the pandas index.

    None if there are none.
    """
    if given is not None:
        return as_row_ids("id", table.ids(given) if isinstance(given, str) else given, len(table))
    index = table.index
    has_ids = index is not None and type(index).__name__ != "RangeIndex" and index.is_unique
    return as_row_ids("the index of frame", index, len(table)) if has_ids else None


def _column(table: "pd.DataFrame", given: Any) -> Any:
    values = table[given] if isinstance(given, str) else given
    return values.reset_index(drop=True) if hasattr(values, "reset_index") else values


def _predict(model: Any, data: "pd.DataFrame", table: "pd.DataFrame", roles: Roles) -> Predictions:
    """Return the predicted class of every row, and probabilities if they are known."""
    predicted_classes = predictions_of(
        model if is_model(model) else _column(table, model),
        data,
        complete=False,
        class_names=roles.class_names,
        unknown=roles.unknown,
    )
    if roles.probabilities is None:
        return predicted_classes
    classes = predicted_classes.class_names or ()
    columns = named_columns(roles.probabilities)
    columns = list(classes) if set(columns) == set(classes) else columns
    values = table[columns] if columns else roles.probabilities
    return replace(predicted_classes, scores=_as_probabilities(values, len(table), classes))


def _find_removed(attributes: Attributes, given: Iterable[str]) -> Removed | None:
    """Return the columns left out of the vectors, the given ones and their copies.

    None without names.
    """
    names = tuple(dict.fromkeys(given))
    if not names:
        return None
    others = [name for name in attributes if name not in names]
    pairs = [(other, name) for name in names for other in others]
    copies = tuple(
        Proxy(*pair, 1.0) for pair in pairs if are_copies(*(attributes[name] for name in pair))
    )
    left_out = tuple(dict.fromkeys([*names, *(copy.column for copy in copies)]))
    strengths = [
        Proxy(other, name, association(attributes[name], attributes[other]))
        for other, name in pairs
        if other not in left_out
    ]
    proxies = sorted(strengths, key=lambda proxy: -proxy.strength)
    return Removed(
        names, left_out, copies, tuple(proxy for proxy in proxies if proxy.strength >= PROXY)
    )


def _as_numbers(argument: str, values: Any) -> Doubles:
    try:
        return np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{argument} must hold numbers: {error}") from error


def _as_weights(values: Any) -> Doubles:
    weights = _as_numbers("weights", values)
    wrong = ~(np.isfinite(weights) & (weights >= 0))
    if wrong.any():
        raise ValueError(
            f"weights must be finite and at least 0, got {weights[wrong].tolist()[:5]}"
        )
    return weights


def _as_probabilities(values: Any, n: int, names: tuple[str, ...]) -> Doubles:
    array = _as_numbers("probabilities", values)
    array = array.reshape(n, -1) if array.size % n == 0 else np.empty((0, 0))
    if array.shape[1] == 1 and len(names) == 2:
        array = np.column_stack([1 - array, array])
    wrong = array.shape != (n, len(names)) or not ((array >= 0) & (array <= 1)).all()
    if wrong or np.abs(array.sum(axis=1) - 1).max() > 1e-3:
        raise ValueError(
            f"probabilities must have a column for each class ({', '.join(names[:20])}), or of two "
            f"classes one for "
            f"{names[-1]!r}, in [0, 1] and with rows of sum 1, got shape {np.shape(values)}"
        )
    return array
