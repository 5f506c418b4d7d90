"""Changes of a finder: graph, vectors, predictions and index change all at once or not at all."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from cfe_faiss.attributes.table import Attributes, attributes_of
from cfe_faiss.base.arrays import Array, Bools, Floats, Int32s, Ints
from cfe_faiss.base.checks import UNKNOWN, as_dense, as_matrix, is_sparse, to_host
from cfe_faiss.base.values import as_row_ids, find_rows
from cfe_faiss.data.classes import Predictions, as_predictions
from cfe_faiss.data.predict import predictions_of, predictions_of_rows, predictions_of_table
from cfe_faiss.finder.inputs import probabilities_of
from cfe_faiss.graph.edges import is_torch_sparse, parts_for_the_model
from cfe_faiss.graph.metapath import is_heterogeneous
from cfe_faiss.graph.updates import KSVectors, as_edges, features_of_nodes
from cfe_faiss.index.factory import check_ids_stay
from cfe_faiss.rows.faiss_functions import Step
from cfe_faiss.rows.metric import as_rows

if TYPE_CHECKING:
    from cfe_faiss.finder.finder import EvidenceFinder

_PER_NODE = ("y", "train_mask", "val_mask", "test_mask")  # values of data that get unknown ones for new nodes


@dataclass(slots=True, eq=False)
class Source:
    """Source of the KS vectors of a finder. The finder and the copies in its results share it.

    Attributes
    ----------
    x
        Features that the KS vectors use, (n, d). None if there is no graph.
    columns
        Mask of the features of ``data`` that the KS vectors use; None if these are all.
    settings
        ``num_layers`` and ``alpha`` of the KS vectors.
    ks
        KS vectors that an update changes; None before the first one.
    labels
        Predicted classes since the last update; None before the first one. Finders of other versions have others.
    """

    x: Any = None
    columns: Bools | None = None
    settings: tuple[int, float] | None = None
    ks: KSVectors | None = None
    labels: Int32s | None = None


@dataclass(slots=True)
class Changes:
    """Arguments of :meth:`cfe_faiss.EvidenceFinder.update` that change rows or edges, as given."""

    add_edges: Any = None
    remove_edges: Any = None
    x: Mapping[Any, Any] | None = None
    add_nodes: Any = None
    remove_nodes: Any = ()
    edge_weight: Any = None
    ids: Any = None


@dataclass(slots=True)
class _Rows:
    """Checked changes in row numbers.

    Attributes
    ----------
    before, n
        Number of rows before and after the change.
    ids
        The user's ids after the change, or None.
    edges
        ``add_edges`` and ``remove_edges``, each (2, m).
    changed, values
        Rows with new features, (r,), and the features, (r, d).
    added
        Features of new rows, (m, d).
    removed
        Rows that leave.
    """

    before: int
    n: int
    ids: Array | None
    edges: tuple[Ints, Ints]
    changed: Ints
    values: Array
    added: Array
    removed: Ints
    weights: Any = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing changes."""
        given = (*self.edges, self.changed, self.removed)
        return self.n == self.before and self.weights is None and not any(map(np.size, given))

    def apply_to(self, X: Array) -> Array:
        """Return the rows of a matrix after the change; rows that leave are zero."""
        for part in (self.values, self.added):
            if X.dtype.kind in "biu" and not np.array_equal(part.astype(X.dtype), part):
                raise ValueError(f"x and add_nodes must hold {X.dtype}, as the data does, got {part.dtype}")
        result = np.concatenate([X, self.added.astype(X.dtype)])
        result[self.changed] = self.values
        result[self.removed] = 0
        return result


def update(finder: EvidenceFinder, changes: Changes, predictions: Any, features: Any) -> Ints:
    """Change a finder in place and return the rows whose vector or class changed, ascending."""
    rows = _check(finder, changes)
    if len(rows.removed):
        check_ids_stay(finder.index)
    attributes = _attributes_after(finder, rows, features)
    graph, vectors, moved, steps = _vectors_after(finder, rows)
    data = finder.data if rows.is_empty else data_after(finder.data, rows, finder)
    found = _predict(finder, data, rows.n, predictions, features)
    truth = finder.truth
    if truth is not None:
        truth = np.append(truth, np.full(rows.n - rows.before, UNKNOWN, np.int32))
    values = {
        "vectors": vectors,
        "labels": found.labels,
        "graph": graph,
        "attributes": attributes,
        "truth": truth,
        "ids": rows.ids,
        "probabilities": probabilities_of(found),
        "model": finder.model if predictions is None else None,
        "data": data,
    }
    relabelled = np.flatnonzero(found.labels[: rows.before] != finder.labels)
    changed = np.setdiff1d(np.union1d(moved, relabelled), rows.removed)
    # `object.__setattr__` is compiled: the steps run without Python code in between, and none of them can fail.
    steps += [(object.__setattr__, (finder.source, "labels", found.labels))]
    steps += [(object.__setattr__, (finder, name, value)) for name, value in values.items()]
    kept = replace(finder)  # the old arrays outlive the steps
    with finder.index.changing() as transaction:
        stored, gone = (
            some[transaction.snapshot.rows_of(some) >= 0] for some in (changed[changed < rows.before], rows.removed)
        )
        ids = np.append(stored, np.arange(rows.before, rows.n))
        codes, more = transaction.encode(found.labels[ids], len(ids))
        if len(moved) or len(gone):
            X = as_rows("vectors", vectors[ids], None, finder.metric)
            transaction.replace(np.append(stored, gone), X, codes, ids, [*more, *steps])
        else:  # only classes change, so no row needs its list again
            order = np.argsort(places := transaction.snapshot.rows_of(ids))
            transaction.relabel(places[order], codes[order], [*more, *steps])
    del kept
    return changed


def _check(finder: EvidenceFinder, changes: Changes) -> _Rows:
    """Return the changes in row numbers."""
    if finder.scores is not None:
        raise ValueError("update is for a finder with classes, got one with scores: make a new finder")
    has_graph, before = finder.graph is not None, len(finder.labels)
    if not has_graph:
        for name in ("add_edges", "remove_edges", "edge_weight"):
            if getattr(changes, name) is not None:
                raise ValueError(f"{name} is for a finder with a graph, got {finder!r}")
    if hasattr(finder.data, "columns") and (changes.x is not None or changes.add_nodes is not None):
        raise ValueError("x and add_nodes must be left out for a table: make a new finder by from_table")
    d = finder.vectors.shape[1]
    if has_graph and finder.source.columns is not None:
        d = len(finder.source.columns)
    added = np.empty((0, d), np.float32) if changes.add_nodes is None else as_dense("add_nodes", changes.add_nodes)
    as_matrix("add_nodes", added, d)
    n, x = before + len(added), changes.x or {}
    find = finder.rows if has_graph else finder.searched  # without a graph, other rows have no effect
    ids = _ids_after(finder, changes.ids, n)
    changed, removed = (
        np.empty(0, np.int64) if hasattr(given, "__len__") and not len(given) else find(name, given)
        for name, given in (("x", list(x)), ("remove_nodes", changes.remove_nodes))
    )
    both = np.intersect1d(changed, removed)
    if len(both) or len(np.unique(changed)) < len(changed):
        raise ValueError(f"x must name rows that stay, each once, got {list(x)} and remove_nodes {finder.names(both)}")
    edges = _edges("add_edges", changes.add_edges, ids, n), _edges("remove_edges", changes.remove_edges, ids, n)
    values = features_of_nodes(x, d)
    return _Rows(before, n, ids, edges, changed, values, added, np.unique(removed), changes.edge_weight)


def _edges(name: str, given: Any, ids: Array | None, n: int) -> Ints:
    """Return edges of users' ids as edges of rows, (2, m)."""
    edges = as_edges(name, given)
    return find_rows(name, edges.ravel(), n, ids).reshape(2, -1) if edges.size else edges.astype(np.int64)


def _ids_after(finder: EvidenceFinder, new: Any, n: int) -> Array | None:
    more = n - len(finder.labels)
    if (new is not None) != (finder.ids is not None and more > 0):
        needed = f"given for {more} new rows" if finder.ids is not None and more else "left out, rows go by numbers"
        raise ValueError(f"ids must be {needed}, got {new!r}")
    return finder.ids if finder.ids is None or new is None else as_row_ids("ids", [*finder.ids, *new], n)


def _attributes_after(finder: EvidenceFinder, rows: _Rows, features: Any) -> Attributes | None:
    if features is None:
        if finder.attributes is not None and (len(rows.changed) or rows.n > rows.before):
            raise ValueError("features must hold the attributes of all rows after a change of x or new nodes, got None")
        return finder.attributes
    attributes = attributes_of(features, rows.n)
    for name in finder.sensitive:
        attributes.known("sensitive", name)
    return attributes


def _vectors_after(finder: EvidenceFinder, rows: _Rows) -> tuple[Any, Floats, Ints, list[Step]]:
    """Return graph and vectors after a change, the rows whose vectors differ, and the steps that complete it."""
    if rows.is_empty:
        return finder.graph, finder.vectors, rows.changed, []
    if finder.graph is None:
        values = as_rows("x", rows.values, None, finder.metric)
        added = as_rows("add_nodes", rows.added, None, finder.metric)
        vectors = replace(rows, values=values, added=added).apply_to(finder.vectors)
        new = np.arange(rows.before, rows.n)
        differs = (vectors[rows.changed] != finder.vectors[rows.changed]).any(axis=1)
        return None, vectors, np.append(np.sort(rows.changed[differs]), new), []
    columns = slice(None) if finder.source.columns is None else finder.source.columns
    prepared = _ks_of(finder).prepare(
        add_edges=rows.edges[0],
        remove_edges=rows.edges[1],
        x=dict(zip(rows.changed.tolist(), rows.values[:, columns], strict=True)),
        add_nodes=rows.added[:, columns],
        remove_nodes=rows.removed,
        edge_weight=rows.weights,
    )
    return prepared.graph, prepared.vectors.copy(), prepared.changed, [prepared.complete]


def _ks_of(finder: EvidenceFinder) -> KSVectors:
    """Return the KS vectors of a finder, made at its first update."""
    source = finder.source
    if source.ks is None:
        if source.settings is None:
            raise ValueError("the finder must be made by from_data, so that the settings of its KS vectors are known")
        source.ks = KSVectors(source.x, finder.graph, *source.settings, vectors=finder.vectors)
        source.x = None  # the object has a copy
    return source.ks


# --- data and predictions ---------------------------------------------------------------------------------------------


def _predict(finder: EvidenceFinder, data: Any, n: int, predictions: Any, features: Any) -> Predictions:
    """Return the given predictions, or the output of the finder's model for the data after a change."""
    model, names, is_table = finder.model, finder.class_names, hasattr(data, "columns")
    if predictions is not None:
        found = as_predictions(predictions, n, names, are_names=is_table)
    elif model is None or data is None:
        why = "the finder has no model" if model is None else "its data has values of edges or several node types"
        raise ValueError(f"predictions must be given for all {n} rows after the change, since {why}, got None")
    elif is_table:
        found = predictions_of_table(model, data, names)
    elif getattr(data, "x", None) is None:
        found = predictions_of_rows(model, data, names, features)
    else:
        found = predictions_of(model, data, features)
    if found.class_names != names:
        raise ValueError(f"predictions must be of the classes {names}, got {found.class_names}")
    return found


def data_after(data: Any, rows: _Rows, finder: EvidenceFinder) -> Any:
    """Return a copy of the argument of the model after a change; None if the change of such data is unknown."""
    if isinstance(data, np.ndarray) or hasattr(data, "columns"):
        return rows.apply_to(data) if isinstance(data, np.ndarray) else data
    if not _is_plain(data):
        return None
    changed = copy.copy(data)
    changed.x = _like(data.x, rows.apply_to(np.asarray(to_host(data.x))))
    changed.edge_index = _like(data.edge_index, _edges_after(np.asarray(to_host(data.edge_index)), rows, finder))
    for name in _PER_NODE:
        value = getattr(data, name, None)
        if value is not None and len(value) == rows.before < rows.n:
            known = np.asarray(to_host(value))
            unknown = {"b": False, "f": np.nan}.get(known.dtype.kind, UNKNOWN)
            more = np.full((rows.n - rows.before, *known.shape[1:]), unknown, known.dtype)
            setattr(changed, name, _like(value, np.concatenate([known, more])))
    if hasattr(data, "num_nodes"):
        changed.num_nodes = rows.n
    if finder.class_names is not None:
        changed.class_names = list(finder.class_names)
    return changed


def _is_plain(data: Any) -> bool:
    """Return whether data is a graph of one node type with dense features and an edge_index without values."""
    parts = [getattr(data, name, None) for name in ("x", "edge_index")]
    if data is None or is_heterogeneous(data) or getattr(data, "adj_t", None) is not None or parts_for_the_model(data):
        return False
    return all(part is not None and not is_sparse(part) and not is_torch_sparse(part) for part in parts)


def _like(value: Any, array: Array) -> Any:
    """Return an array as a tensor, if ``value`` is one, of the same type and device."""
    return value.new_tensor(array) if hasattr(value, "new_tensor") else array


def _edges_after(edges: Ints, rows: _Rows, finder: EvidenceFinder) -> Ints:
    """Return the edges for the model. If it has all edges in both directions, so has it new ones."""
    (added, removed), edges = rows.edges, edges.astype(np.int64)
    keys = edges[0] * rows.n + edges[1]
    back = edges[1] * rows.n + edges[0]
    is_directed = finder.graph is not None and finder.graph.directed
    if not is_directed:
        removed = np.hstack([removed, removed[::-1]])
        if bool(np.isin(back, keys).all()):
            added = np.hstack([added, added[::-1]])
    leaves = np.isin(keys, removed[0] * rows.n + removed[1]) | np.isin(edges, rows.removed).any(axis=0)
    fresh = np.setdiff1d(added[0] * rows.n + added[1], keys[~leaves])
    return np.hstack([edges[:, ~leaves], np.stack(np.divmod(fresh, rows.n))])
