"""KS vectors of a graph that changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cfe_faiss import _native
from cfe_faiss.base import threads
from cfe_faiss.base.checks import as_array, as_count, as_dense, as_ids, as_matrix, as_number
from cfe_faiss.graph import Graph, as_graph
from cfe_faiss.graph.adjacency import Adjacency, Ints, Links, among
from cfe_faiss.graph.edges import as_weights
from cfe_faiss.graph.ks import Propagation

_SPARE = 8  # matrices that must grow get room for this fraction of their rows more
_FULL = 0.75  # share of the work of all rows above which all are computed
_READING = 15  # reading a neighbour from a list that is gathered takes as long as this number of its dimensions

Floats = NDArray[np.float32]
_NO_LINKS = Links(np.empty(0, np.int64), np.empty(0, np.int64))
_NO_CHANGES = dict.fromkeys(("add_edges", "remove_edges", "x", "add_nodes", "remove_nodes", "edge_weight"))


@dataclass(frozen=True, slots=True, eq=False)
class _State:
    """Graph, features and vectors of one version.

    Attributes
    ----------
    incoming, outgoing
        N(v) of each node, and the nodes whose lists hold it.
    largest
        The largest norm of a feature row, by which all lengths are divided.
    norms, removed
        Norm of each node's features, and whether the node was removed, (capacity,).
    units, lengths
        For each stored layer the unit rows, (capacity, d), and the lengths, (capacity,), of x^l; layer 0 first.
    vectors
        The KS vectors, (capacity, d).
    undo
        Rows that an unfinished update has replaced: the array, the row numbers and the old values.
    """

    incoming: Adjacency
    outgoing: Adjacency
    largest: float
    norms: NDArray[np.float64]
    removed: NDArray[np.bool_]
    units: tuple[Floats, ...]
    lengths: tuple[Floats, ...]
    vectors: Floats
    undo: tuple[tuple[NDArray[Any], Ints, NDArray[Any]], ...] = ()

    @property
    def n(self) -> int:
        """Number of nodes, removed ones included."""
        return self.incoming.num_nodes


class _Change(NamedTuple):
    """A checked change: new features of some nodes, ascending, and entries of neighbour lists, both ways."""

    num_nodes: int
    removed_nodes: Ints
    rows: Ints
    features: Floats
    removed: Links
    added: Links


class PreparedUpdate(NamedTuple):
    """Update of a :class:`KSVectors` that is computed and not yet complete.

    Attributes
    ----------
    changed
        Ids of the nodes whose vectors differ, as :meth:`KSVectors.update` returns them.
    vectors
        The KS vectors after the update, (n, d) float32, until the object is used again.
    graph
        The graph after the update.
    complete
        A function and its arguments. The call completes the update; it neither fails nor runs Python code.
    """

    changed: Ints
    vectors: Floats
    graph: Graph
    complete: tuple[Any, tuple[Any, ...]]


class KSVectors:
    """KS vectors of a graph whose edges, features and nodes change.

    :meth:`update` computes only the vectors that can have changed. They equal the result of
    :func:`cfe_faiss.ks_vectors` for the new graph, bit for bit.

    Parameters
    ----------
    x, edge_index, num_layers, alpha, edge_weight, directed
        As in :func:`cfe_faiss.ks_vectors`.
    store_layers
        Whether to keep the rows of every step: ``num_layers`` + 1 matrices of 4 * n * d bytes. False: two matrices.
        An update then reads the surroundings of ``2 * num_layers`` hops instead of ``num_layers``.

    Raises
    ------
    TypeError, ValueError
        As :func:`cfe_faiss.ks_vectors` does.

    Notes
    -----
    An update of rows R costs what ``num_layers`` steps cost for the nodes of R and their edges. R are the nodes at most
    ``num_layers`` hops from a change. All rows change if the largest norm of a feature row changes, since lengths are
    divided by it. An update needs temporary memory for R and their neighbours. One thread at a time may use an object.

    Examples
    --------
    >>> ks = KSVectors([[1.0, 0.0], [1.0, 1.0], [0.0, 2.0]], [[0], [1]], num_layers=1)
    >>> ks.update(add_edges=[[1], [2]])
    array([1, 2])
    >>> ks.vectors.round(3)
    array([[0.982, 0.187],
           [0.671, 0.742],
           [0.105, 0.994]], dtype=float32)
    """

    def __init__(
        self,
        x: Any,
        edge_index: Any,
        num_layers: int = 3,
        alpha: float = 0.5,
        *,
        edge_weight: ArrayLike | bool | None = None,
        directed: bool = False,
        store_layers: bool = True,
    ) -> None:
        self._num_layers = as_count("num_layers", num_layers, 0)
        self._alpha = as_number("alpha", alpha, 0.0, 1.0)
        self._stores_layers = bool(store_layers)
        features = as_matrix("x", as_dense("x", x))
        n, d = features.shape
        if n == 0:
            raise ValueError(f"x must have shape (n, d) with n, d >= 1, got {features.shape}")
        graph = as_graph(edge_index, n, edge_weight=edge_weight, directed=directed)
        adjacency = Adjacency.of(graph)
        # All features are zero at first, then x replaces them.
        rows, zeros = np.zeros((2, n, d), np.float32), np.zeros(n, np.float32)
        norms, removed = np.zeros(n), np.zeros(n, bool)
        self._state = _State(
            adjacency, adjacency.transposed(), 0.0, norms, removed, (rows[0],), (zeros,), vectors=rows[1]
        )
        self._change(self._state, _Change(n, _NO_LINKS.nodes, np.arange(n), features, _NO_LINKS, _NO_LINKS))

    @property
    def vectors(self) -> Floats:
        """KS vectors, (n, d) float32, one row per node; zero for removed nodes. A read-only view: updates change it."""
        state = self._settle()
        view = state.vectors[: state.n]
        view.flags.writeable = False
        return view

    @property
    def graph(self) -> Graph:
        """The current graph; removed nodes are in it, without edges. O(number of edges) after a change."""
        incoming = self._settle().incoming
        return incoming.to_graph()

    @property
    def removed(self) -> Ints:
        """The ids of removed nodes, ascending."""
        state = self._settle()
        return np.flatnonzero(state.removed[: state.n])

    def __len__(self) -> int:
        return self._settle().n

    def __repr__(self) -> str:
        n, d = self.vectors.shape
        return f"KSVectors({n:,} nodes, d={d}, num_layers={self._num_layers}, alpha={self._alpha:g})"

    def update(
        self,
        *,
        add_edges: Any = None,
        remove_edges: Any = None,
        x: Mapping[int, ArrayLike] | None = None,
        add_nodes: Any = None,
        remove_nodes: ArrayLike | None = None,
        edge_weight: ArrayLike | None = None,
    ) -> Ints:
        """Change the graph or the features, and compute the vectors that this can change.

        A refused update changes nothing. The parts of an update apply in the order: remove edges and nodes, add nodes,
        add edges.

        Parameters
        ----------
        add_edges, remove_edges
            Edges, sources above targets, (2, m). Without weights, edges that exist may be added again.
        x
            New features of some nodes: id to row, (d,).
        add_nodes
            Features of new nodes, (m, d). Their ids follow the largest id so far.
        remove_nodes
            Ids of nodes that leave with all their edges. Other nodes keep their ids. The ids of removed nodes are
            never used again, and their vectors are zero.
        edge_weight
            Weights of ``add_edges``, (m,), if the graph has weights. To change a weight, remove and add the edge.

        Returns
        -------
        ndarray
            Ids of the nodes whose vectors differ from those before, ascending, (c,) int64. New nodes are among them,
            removed nodes are not.

        Raises
        ------
        TypeError, ValueError
            If a node or an edge to remove does not exist, a weighted edge exists already, an array has another shape,
            or a value is NaN or infinite.
        """
        state = self._settle()
        change = _check(state, add_edges, remove_edges, x, add_nodes, remove_nodes, edge_weight)
        return self._change(state, change)

    def prepare(self, **changes: Any) -> PreparedUpdate:
        """Compute the :meth:`update` with these arguments. Unless it is completed, the next use undoes it."""
        state = self._settle()
        new, changed = self._compute(state, _check(state, **{**_NO_CHANGES, **changes}))
        complete = self.__dict__.__setitem__, ("_state", new)
        return PreparedUpdate(changed, new.vectors[: new.n], new.incoming.to_graph(), complete)

    def _settle(self) -> _State:
        """Return the current state. Undo an update that was interrupted first; repeating this does no harm."""
        state = self._state
        if state.undo:
            for array, rows, values in state.undo:
                array[rows] = values
            self._state = state = replace(state, undo=())
        return state

    def _write(self, array: NDArray[Any], rows: Ints, values: NDArray[Any]) -> None:
        """Replace rows of an array of the next state, so that :meth:`_settle` can undo it."""
        state = self._state
        self._state = replace(state, undo=(*state.undo, (array, rows, array[rows])))
        array[rows] = values

    def _change(self, state: _State, change: _Change) -> Ints:
        """Apply a change and return the ids whose vectors differ."""
        self._state, changed = self._compute(state, change)
        return changed

    def _compute(self, state: _State, change: _Change) -> tuple[_State, Ints]:
        """Return the state after a change and the ids whose vectors differ. Until it is set, it can be undone."""
        n, rows = change.num_nodes, change.rows
        unit, norms = change.features.copy(), np.empty(len(rows))
        _native.normalise_rows(unit, norms, 1)
        new = _next_state(state, change, _largest(state, rows, norms))
        self._write(new.norms, rows, norms)
        self._write(new.removed, change.removed_nodes, np.ones(len(change.removed_nodes), bool))
        self._write(new.units[0], rows, unit)
        region = np.arange(n)
        if new.largest == state.largest:
            linked = np.union1d(change.removed.nodes, change.added.nodes)
            region = new.outgoing.reach(rows, linked, self._num_layers, _FULL * new.incoming.graph.num_edges)
            self._write(new.lengths[0], rows, _divide(norms, new.largest))
        steps = self._rows_of_steps(new, region)
        if steps is None:
            region, new = np.arange(n), self._compute_all(new)
            before, after = state.vectors, new.vectors
        else:
            before = self._compute_some(new, region, steps)
            after = new.vectors[region]
        old = int(np.searchsorted(region, state.n))
        differs = np.ones(len(region), bool)
        differs[:old] = (before[:old] != after[:old]).any(axis=1)
        if len(change.removed_nodes):
            differs &= ~among(region, change.removed_nodes)
        return new, region[differs]

    def _rows_of_steps(self, state: _State, region: Ints) -> list[Ints] | None:
        """Return the rows that each step computes, for the vectors of a region; None if it is better to compute all."""
        steps, all_edges = [region] * self._num_layers, state.incoming.graph.num_edges
        of_lists = _READING / state.vectors.shape[1]

        def is_large() -> bool:
            edges = [state.incoming.count(rows) for rows in steps]
            read = sum(edges[:1] if self._stores_layers else edges)
            return bool(sum(edges) + of_lists * read > _FULL * self._num_layers * all_edges)

        if len(region) == state.n or is_large():
            return None
        if self._stores_layers:
            return steps
        for layer in reversed(range(self._num_layers - 1)):
            steps[layer] = state.incoming.reach(steps[layer + 1], region[:0], 1, _FULL * all_edges)
        return None if is_large() else steps

    def _compute_some(self, state: _State, region: Ints, steps: list[Ints]) -> Floats:
        """Write the vectors of a region, and its rows of the stored layers; return the vectors before."""
        n, unit, lengths = state.n, state.units[0], state.lengths[0]
        rows = steps[0] if steps else region
        aggregate = unit[rows] * lengths[rows, None]
        lists = state.incoming.take(rows)
        for layer, of_step in enumerate(steps, 1):
            if len(of_step) < len(rows):
                aggregate = aggregate[among(rows, of_step)]
                rows, lists = of_step, state.incoming.take(of_step)
            new_unit, new_lengths = np.empty_like(aggregate), np.empty(len(rows), np.float32)
            count = threads.num_native_threads(2.0 * unit.shape[1] * len(lists.indices))
            graph = _native.CsrGraph(rows, lists.indptr, lists.indices, n, count, lists.weights)
            step = _native.Propagation(graph, self._alpha, 0, count)
            step.step(unit[:n], lengths[:n], aggregate, new_unit, new_lengths)
            if layer == self._num_layers:
                break
            if self._stores_layers:
                unit, lengths = state.units[layer], state.lengths[layer]
                self._write(unit, rows, new_unit)
                self._write(lengths, rows, new_lengths)
            else:  # the next step reads these rows only, so the memory pages of other rows stay unused
                unit, lengths = np.empty((n, unit.shape[1]), np.float32), np.empty(n, np.float32)
                unit[rows], lengths[rows] = new_unit, new_lengths
        _native.normalise_rows(aggregate, np.empty(len(aggregate)), threads.num_threads(aggregate.size))
        self._write(state.vectors, region, aggregate)
        before: Floats = self._state.undo[-1][2]
        return before

    def _compute_all(self, state: _State) -> _State:
        """Return a state with all vectors and layers computed, from the rows of layer 0."""
        n, incoming = state.n, Adjacency.of(state.incoming.to_graph())
        state = replace(state, incoming=incoming, outgoing=state.outgoing if incoming.graph.directed else incoming)
        unit, lengths = state.units[0][:n], _divide(state.norms[:n], state.largest)
        units, all_lengths = [state.units[0]], [lengths]
        vectors = unit * lengths[:, None]
        propagation = Propagation(state.incoming.graph, unit.shape[1], self._alpha)
        for layer in range(1, self._num_layers + 1):
            new_unit = np.empty_like(unit)
            lengths = propagation.step(unit, lengths, vectors, new_unit)
            unit = new_unit
            if layer < self._num_layers and self._stores_layers:
                units.append(unit)
                all_lengths.append(lengths)
        _native.normalise_rows(vectors, np.empty(n), threads.num_threads(vectors.size))
        return replace(state, units=tuple(units), lengths=tuple(all_lengths), vectors=vectors)


def _next_state(state: _State, change: _Change, largest: float) -> _State:
    """Return the state after a change, before its rows are written. Arrays that are long enough are shared."""
    n, incoming, outgoing = change.num_nodes, state.incoming, state.outgoing
    if change.removed.nodes.size or change.added.nodes.size or n > state.n:
        is_directed = incoming.graph.directed
        incoming = incoming.replace(change.removed, change.added, n)
        outgoing = outgoing.replace(change.removed.reversed(), change.added.reversed(), n) if is_directed else incoming
    units, lengths = (tuple(_grow(array, n) for array in arrays) for arrays in (state.units, state.lengths))
    norms, removed, vectors = (_grow(array, n) for array in (state.norms, state.removed, state.vectors))
    return _State(incoming, outgoing, largest, norms, removed, units, lengths, vectors)


def _divide(norms: NDArray[np.float64], largest: float) -> Floats:
    return (norms / (largest or 1.0)).astype(np.float32)


def _grow(array: NDArray[Any], n: int) -> NDArray[Any]:
    """Return an array of at least n rows, with the same first rows and zeros after them."""
    if len(array) >= n:
        return array
    grown = np.zeros((n + n // _SPARE if len(array) else n, *array.shape[1:]), array.dtype)
    grown[: len(array)] = array
    return grown


def _largest(state: _State, rows: Ints, norms: NDArray[np.float64]) -> float:
    """Return the largest norm after a change of some rows."""
    old = rows[rows < state.n]
    if state.n and state.norms[old].max(initial=0) < state.largest:
        return max(state.largest, float(norms.max(initial=0)))
    unchanged = np.delete(state.norms[: state.n], old)
    return float(max(unchanged.max(initial=0), norms.max(initial=0)))


def _check(
    state: _State, add_edges: Any, remove_edges: Any, x: Any, add_nodes: Any, remove_nodes: Any, edge_weight: Any
) -> _Change:
    """Check the arguments of an update and return the change."""
    d, before = state.vectors.shape[1], state.n
    removed_nodes = np.unique(
        _nodes("remove_nodes", [] if remove_nodes is None else remove_nodes, state.removed[:before])
    )
    gone = state.removed[:before].copy()
    gone[removed_nodes] = True
    fresh = np.empty((0, d), np.float32)
    if add_nodes is not None:
        fresh = as_matrix("add_nodes", as_dense("add_nodes", add_nodes), d)
    changed = _nodes("x", list(x or ()), gone)
    n = before + len(fresh)
    ids = np.concatenate([removed_nodes, changed, np.arange(before, n)])
    given = as_matrix("x", features_of_nodes(x or {}, d), d)
    values = np.concatenate([np.zeros((len(removed_nodes), d), np.float32), given, fresh])
    order = np.argsort(ids)
    removed = _removed_links(state, _edges("remove_edges", remove_edges, state.removed[:before]), removed_nodes)
    is_gone = np.concatenate([gone, np.zeros(len(fresh), bool)])
    added = _added_links(state, _edges("add_edges", add_edges, is_gone), edge_weight, removed)
    return _Change(n, removed_nodes, ids[order], values[order], removed, added)


def features_of_nodes(x: Mapping[Any, Any], d: int) -> NDArray[Any]:
    """Return the features, (d,), that a mapping holds for each of r nodes as rows, (r, d), finite in float32."""
    rows = [as_dense("x", row) for row in x.values()]
    for node, row in zip(x, rows, strict=True):
        if row.shape != (d,):
            raise ValueError(f"x must have rows of shape ({d},), got {row.shape} for node {node!r}")
    values = np.stack(rows) if rows else np.empty((0, d), np.float32)
    as_matrix("x", values, d)  # refuses NaN, also where the vectors do not use the column
    return values


def _nodes(name: str, values: Any, removed: NDArray[np.bool_]) -> Ints:
    """Return node numbers; ValueError if a node does not exist or was removed."""
    nodes = as_ids(name, values, len(removed))
    if removed[nodes].any():
        raise ValueError(f"{name} must name nodes of the graph, got {nodes[removed[nodes]][0]}, which was removed")
    return nodes


def _edges(name: str, edges: Any, removed: NDArray[np.bool_]) -> Ints:
    """Return edges, sources above targets, (2, m)."""
    array = as_array(name, np.empty((2, 0), np.int64) if edges is None else edges)
    if array.ndim != 2 or len(array) != 2:
        raise ValueError(f"{name} must have shape (2, m), got {array.shape}")
    return _nodes(name, array.ravel(), removed).reshape(2, -1)


def _removed_links(state: _State, edges: Ints, nodes: Ints) -> Links:
    """Return the entries of edges to remove, and of all edges of removed nodes, each once."""
    given = Links(edges[1], edges[0])
    missing = ~state.incoming.holds(given)
    if missing.any():
        raise ValueError(f"remove_edges must hold edges of the graph, got {tuple(edges[:, missing][:, 0].tolist())}")
    own, others = state.incoming.take(nodes).links, state.outgoing.take(nodes).links.reversed()
    parts = [given, own, others] if state.incoming.graph.directed else [given, given.reversed(), own, others]
    return Links.of(np.unique(np.concatenate([links.keys for links in parts])))


def _added_links(state: _State, edges: Ints, edge_weight: Any, removed: Links) -> Links:
    """Return the entries of edges to add. Loops are dropped and repeated edges merged, as in a new graph."""
    is_weighted, is_directed = state.incoming.graph.weights is not None, state.incoming.graph.directed
    if (edge_weight is not None) != (is_weighted and edges.shape[1] > 0):
        where = "without add_edges" if is_weighted else "for a graph without weights"
        needed = "given for add_edges of a graph with weights" if edge_weight is None else f"None {where}"
        raise ValueError(f"edge_weight must be {needed}, got {edge_weight!r}")
    if not edges.shape[1]:
        return _NO_LINKS
    nodes, local = np.unique(edges, return_inverse=True)
    weights = as_weights("edge_weight", edge_weight, edges.shape[1]) if is_weighted else None
    graph = as_graph(local.reshape(2, -1), len(nodes), edge_weight=weights, directed=is_directed)
    added = Links(np.repeat(nodes, np.diff(graph.indptr)), nodes[graph.indices], graph.weights if is_weighted else None)
    if is_weighted:
        again = state.incoming.holds(added) & ~among(added.keys, removed.keys)
        if again.any():
            edge = int(added.neighbors[again][0]), int(added.nodes[again][0])
            raise ValueError(f"add_edges must hold new edges of a graph with weights, got {edge}: remove it first")
    return added
