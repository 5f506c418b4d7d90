"""A finder after a change: graph, vectors, predictions and a copy of the index."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from cfe_faiss.attributes.table import Attributes, attributes_of
from cfe_faiss.base.checks import (
    UNKNOWN,
    Array,
    Bools,
    Floats,
    Int32s,
    Ints,
    as_dense,
    as_matrix,
    is_sparse,
    to_host,
)
from cfe_faiss.base.values import as_row_ids, find_rows
from cfe_faiss.data.classes import Predictions, as_predictions, note_unknown
from cfe_faiss.data.predict import predictions_of
from cfe_faiss.files.format import clone_index
from cfe_faiss.finder.inputs import given_attributes, probabilities_of
from cfe_faiss.graph.csr import is_torch_sparse, parts_for_the_model
from cfe_faiss.graph.metapath import is_heterogeneous
from cfe_faiss.graph.updates import KSVectors, as_edges, features_of_nodes
from cfe_faiss.index.factory import check_ids_stay
from cfe_faiss.index.searching import EvidenceIndex
from cfe_faiss.rows.metric import as_rows

if TYPE_CHECKING:
    from cfe_faiss.finder.finder import EvidenceFinder

_PER_NODE = ("y", "train_mask", "val_mask", "test_mask")
"""Values of data that get unknown ones for new nodes."""


@dataclass(frozen=True, slots=True, eq=False)
class KSSource:
    """Source of the KS vectors of a finder.

    Attributes
    ----------
    x
        Features that the KS vectors use, (n, d). None if there is no graph, or after a change.
    columns
        Mask of the features of ``data`` that the KS vectors use; None if these are all.
    settings
        ``num_layers`` and ``alpha`` of the KS vectors.
    ks
        KS vectors with the layers that further changes need, which are made in copies; None before
        the first change.
    """

    x: Any = None
    columns: Bools | None = None
    settings: tuple[int, float] | None = None
    ks: KSVectors | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """Checked changes in row numbers.

    Attributes
    ----------
    before, n
        Number of rows before and after the change.
    ids
        The user's ids after the change, or None.
    added_edges, removed_edges
        Edges, each (2, m).
    changed, values
        Rows with new features, (r,), and the features, (r, d).
    added
        Features of new rows, (m, d).
    removed
        Rows that leave.
    weights
        Weights of ``added_edges``, or None.
    """

    before: int
    n: int
    ids: Array | None
    added_edges: Ints
    removed_edges: Ints
    changed: Ints
    values: Array
    added: Array
    removed: Ints
    weights: Any

    @property
    def is_empty(self) -> bool:
        """Whether nothing changes."""
        given = (self.added_edges, self.removed_edges, self.changed, self.removed)
        return self.n == self.before and self.weights is None and not any(map(np.size, given))

    def apply_to(self, X: Array) -> Array:
        """Return the rows of a matrix after the change; rows that leave are zero."""
        for part in (self.values, self.added):
            if X.dtype.kind in "biu" and not np.array_equal(part.astype(X.dtype), part):
                raise ValueError(
                    f"x and add_nodes must hold {X.dtype}, as the data does, got {part.dtype}"
                )
        result = np.concatenate([X, self.added.astype(X.dtype)])
        result[self.changed] = self.values
        result[self.removed] = 0
        return result


def updated(
    finder: EvidenceFinder, predictions: Any, features: Any, **changes: Any
) -> tuple[EvidenceFinder, Ints]:
    """Return the finder after a change, and the rows whose vector or class changed, ascending."""
    rows = _check(finder, **changes)
    if finder.row_index is not None and rows.n == rows.before:
        predictions = finder.in_order("predictions", predictions)
        features = finder.in_order("features", features)
    attributes = _attributes_after(finder, rows, features)
    source, graph, vectors, moved = _vectors_after(finder, rows)
    data = finder.data if rows.is_empty else _data_after(finder.data, rows, finder)
    predicted = _predict(finder, data, rows.n, predictions, features)
    labels = predicted.labels
    note_unknown("predicted class", labels != UNKNOWN)
    truth = finder.truth
    if truth is not None:
        truth = np.append(truth, np.full(rows.n - rows.before, UNKNOWN, np.int32))
    relabelled = np.flatnonzero(labels[: rows.before] != finder.labels)
    changed = np.setdiff1d(np.union1d(moved, relabelled), rows.removed)
    new = replace(
        finder,
        vectors=vectors,
        labels=labels,
        index=_index_after(finder, rows, vectors, labels, changed, has_moved=len(moved) > 0),
        graph=graph,
        attributes=attributes,
        truth=truth,
        ids=rows.ids,
        probabilities=probabilities_of(predicted),
        model=finder.model if predictions is None else None,
        data=data,
        source=source,
        row_index=finder.row_index if rows.n == rows.before else None,
    )
    return new, changed


def _check(  # noqa: PLR0913
    finder: EvidenceFinder,
    *,
    add_edges: Any,
    remove_edges: Any,
    x: Mapping[Any, Any] | None,
    add_nodes: Any,
    remove_nodes: Any,
    edge_weight: Any,
    ids: Any,
) -> _Rows:
    """Return the changes in row numbers."""
    if finder.scores is not None:
        raise ValueError(
            "updated is for a finder with classes, got one with scores: make a new finder"
        )
    if finder.noun in ("link", "graph"):
        raise ValueError(
            f"updated is for nodes and rows, got a finder of {finder.noun}s: make a new finder by "
            f"EvidenceFinder.from_{finder.noun}s"
        )
    has_graph = finder.graph is not None
    of_edges = {"add_edges": add_edges, "remove_edges": remove_edges, "edge_weight": edge_weight}
    for name, value in of_edges.items():
        if value is not None and not has_graph:
            raise ValueError(f"{name} is for a finder with a graph, got {finder!r}")
    if hasattr(finder.data, "columns") and (x is not None or add_nodes is not None):
        raise ValueError(
            "x and add_nodes must be left out for a table: make a new finder by from_table"
        )
    d = finder.vectors.shape[1] if finder.source.columns is None else len(finder.source.columns)
    added = np.empty((0, d), np.float32) if add_nodes is None else as_dense("add_nodes", add_nodes)
    as_matrix("add_nodes", added, d)
    before = len(finder.labels)
    n = before + len(added)
    row_ids = _ids_after(finder, ids, n)
    x = x or {}
    # Without a graph, rows that are not searched have no effect.
    find = finder.rows if has_graph else finder.searched
    changed = find("x", list(x))
    removed = np.unique(find("remove_nodes", remove_nodes))
    both = np.intersect1d(changed, removed)
    if len(both) or len(np.unique(changed)) < len(changed):
        names = finder.names(both)
        raise ValueError(
            f"x must name rows that stay, each once, got {list(x)} and remove_nodes {names}"
        )
    return _Rows(
        before,
        n,
        ids=row_ids,
        added_edges=_edges("add_edges", add_edges, row_ids, n),
        removed_edges=_edges("remove_edges", remove_edges, row_ids, n),
        changed=changed,
        values=features_of_nodes(x, d),
        added=added,
        removed=removed,
        weights=edge_weight,
    )


def _edges(name: str, given: Any, ids: Array | None, n: int) -> Ints:
    """Return edges of users' ids as edges of rows, (2, m)."""
    return find_rows(name, as_edges(name, given).ravel(), n, ids).reshape(2, -1)


def _ids_after(finder: EvidenceFinder, new: Any, n: int) -> Array | None:
    more = n - len(finder.labels)
    needs_ids = finder.ids is not None and more > 0
    if (new is not None) != needs_ids:
        needed = f"given for {more} new rows" if needs_ids else "left out, rows go by numbers"
        raise ValueError(f"ids must be {needed}, got {new!r}")
    return (
        as_row_ids("ids", [*finder.names(np.arange(n - more)), *new], n)
        if needs_ids
        else finder.ids
    )


def _attributes_after(finder: EvidenceFinder, rows: _Rows, features: Any) -> Attributes | None:
    if features is None:
        if finder.attributes is not None and (len(rows.changed) or rows.n > rows.before):
            raise ValueError(
                "features must hold the attributes of all rows after a change of x or new nodes, "
                "got None"
            )
        return finder.attributes
    attributes = attributes_of(given_attributes(features), rows.n)
    for name in finder.sensitive:
        attributes.known("sensitive", name)
    return attributes


def _vectors_after(finder: EvidenceFinder, rows: _Rows) -> tuple[KSSource, Any, Floats, Ints]:
    """Return source, graph and vectors after a change, and the rows of other vectors."""
    source = finder.source
    if rows.is_empty:
        return source, finder.graph, finder.vectors, rows.changed
    if finder.graph is None:
        stored = replace(
            rows,
            values=as_rows("x", rows.values, None, finder.metric),
            added=as_rows("add_nodes", rows.added, None, finder.metric),
        )
        vectors = stored.apply_to(finder.vectors)
        differs = (vectors[rows.changed] != finder.vectors[rows.changed]).any(axis=1)
        moved = np.append(np.sort(rows.changed[differs]), np.arange(rows.before, rows.n))
        return source, None, vectors, moved
    if source.settings is None:
        raise ValueError(
            "the finder must be made by from_data, so that the settings of its KS vectors are known"
        )
    if source.ks is None:
        ks = KSVectors(source.x, finder.graph, *source.settings, vectors=finder.vectors)
    else:
        ks = copy.deepcopy(source.ks)
    columns = slice(None) if source.columns is None else source.columns
    moved = ks.update(
        add_edges=rows.added_edges,
        remove_edges=rows.removed_edges,
        x=dict(zip(rows.changed.tolist(), rows.values[:, columns], strict=True)),
        add_nodes=rows.added[:, columns],
        remove_nodes=rows.removed,
        edge_weight=rows.weights,
    )
    return replace(source, x=None, ks=ks), ks.graph, ks.vectors, moved


def _index_after(
    finder: EvidenceFinder,
    rows: _Rows,
    vectors: Floats,
    labels: Int32s,
    changed: Ints,
    *,
    has_moved: bool,
) -> EvidenceIndex:
    """Return a changed copy of the index.

    Rows that it does not hold stay out; new ones are added, and if all rows with a class are
    searched, those that get a class. Rows without a class leave.
    """
    index = clone_index(finder.index)
    is_known = labels != UNKNOWN
    held = index.members().ids
    had_class = finder.labels != UNKNOWN
    new = np.arange(rows.before, rows.n)
    if len(held) == had_class.sum():
        new = np.append(np.flatnonzero(~had_class), new)
    new = np.setdiff1d(new[is_known[new]], rows.removed)
    leaving = np.intersect1d(np.append(rows.removed, np.flatnonzero(~is_known)), held)
    if len(leaving):
        check_ids_stay(index)
        index.remove_ids(leaving)
    stored = np.intersect1d(changed, index.members().ids)
    if has_moved:
        index.update_vectors(stored, vectors[stored], labels[stored])
    else:  # only classes change, so no row needs its list again
        index.relabel(labels[stored], stored)
    if len(new):
        index.add_with_labels(vectors[new], labels[new], ids=new)
    return index


# --- data and predictions -------------------------------------------------------------------------


def _predict(
    finder: EvidenceFinder, data: Any, n: int, predictions: Any, features: Any
) -> Predictions:
    """Return the given predictions, or the model's output for the data after a change."""
    names = finder.class_names
    if predictions is not None:
        predicted_classes = as_predictions(
            predictions, n, names, are_names=hasattr(data, "columns"), complete=False
        )
    elif finder.model is None or data is None:
        why = (
            "the finder has no model"
            if finder.model is None
            else "its data has values of edges or several node types"
        )
        raise ValueError(
            f"predictions must be given for all {n} rows after the change, since {why}, got None"
        )
    else:
        predicted_classes = predictions_of(
            finder.model, data, features, class_names=names, complete=False
        )
    if predicted_classes.class_names != names:
        raise ValueError(
            f"predictions must be of the classes {names}, got {predicted_classes.class_names}"
        )
    return predicted_classes


def _data_after(data: Any, rows: _Rows, finder: EvidenceFinder) -> Any:
    """Return a copy of the argument of the model after a change.

    None if the change of such data is unknown.
    """
    if isinstance(data, np.ndarray) or hasattr(data, "columns"):
        return rows.apply_to(data) if isinstance(data, np.ndarray) else data
    if not _is_plain(data):
        return None
    changed = copy.copy(data)
    changed.x = _like(data.x, rows.apply_to(np.asarray(to_host(data.x))))
    changed.edge_index = _like(
        data.edge_index, _edges_after(np.asarray(to_host(data.edge_index)), rows, finder)
    )
    for name in _PER_NODE:
        value = getattr(data, name, None)
        if value is not None and len(value) == rows.before < rows.n:
            values_before = np.asarray(to_host(value))
            unknown = {"b": False, "f": np.nan}.get(values_before.dtype.kind, UNKNOWN)
            more = np.full(
                (rows.n - rows.before, *values_before.shape[1:]), unknown, values_before.dtype
            )
            setattr(changed, name, _like(value, np.concatenate([values_before, more])))
    if hasattr(data, "num_nodes"):
        changed.num_nodes = rows.n
    if finder.class_names is not None:
        changed.class_names = list(finder.class_names)
    return changed


def _is_plain(data: Any) -> bool:
    """Return whether data is a graph of one node type with dense features and no weights."""
    parts = [getattr(data, name, None) for name in ("x", "edge_index")]
    if (
        data is None
        or is_heterogeneous(data)
        or getattr(data, "adj_t", None) is not None
        or parts_for_the_model(data)
    ):
        return False
    return all(
        part is not None and not is_sparse(part) and not is_torch_sparse(part) for part in parts
    )


def _like(value: Any, array: Array) -> Any:
    """Return an array as a tensor, if ``value`` is one, of the same type and device."""
    return value.new_tensor(array) if hasattr(value, "new_tensor") else array


def _edges_after(edges: Ints, rows: _Rows, finder: EvidenceFinder) -> Ints:
    """Return the edges for the model.

    If it has all edges in both directions, so has it new ones.
    """
    edges = edges.astype(np.int64)
    keys = edges[0] * rows.n + edges[1]
    back = edges[1] * rows.n + edges[0]
    added = rows.added_edges[0] * rows.n + rows.added_edges[1]
    removed = rows.removed_edges[0] * rows.n + rows.removed_edges[1]
    leaves = np.isin(keys, removed) | np.isin(edges, rows.removed).any(axis=0)
    if finder.graph is None or not finder.graph.directed:
        leaves |= np.isin(back, removed)
        if len(added) and np.array_equal(_ascending(keys), _ascending(back)):
            added = np.append(added, rows.added_edges[1] * rows.n + rows.added_edges[0])
    present = keys[np.isin(keys, added) & ~leaves]
    fresh = np.setdiff1d(added, present)
    return np.hstack([edges[:, ~leaves], np.stack(np.divmod(fresh, rows.n))])


def _ascending(keys: Ints) -> Ints:
    """Return the distinct keys, ascending; for many keys, sorting is faster than `np.unique`."""
    ordered = np.sort(keys)
    is_first = np.append(True, ordered[1:] != ordered[:-1])
    distinct: Ints = ordered[is_first[: len(ordered)]]
    return distinct
