"""A graph that changes, and its KS vectors.

New neighbour lists follow the lists that they replace in one array.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from cfe_faiss import _native
from cfe_faiss.base import threads
from cfe_faiss.base.checks import (
    Array,
    Bools,
    Doubles,
    Floats,
    Int32s,
    Ints,
    as_array,
    as_count,
    as_dense,
    as_matrix,
    as_number,
    check_shape,
    to_host,
)
from cfe_faiss.base.values import as_ids, as_nodes
from cfe_faiss.graph.csr import Graph, as_graph, as_weights
from cfe_faiss.graph.ks import normalise, relative_lengths

# --- the graph ------------------------------------------------------------------------------------

_SPARE = 8  # arrays that must grow get room for this fraction of their entries more

Write: TypeAlias = tuple[Array, Ints, Array]
"""An array, row numbers, and the new values of these rows."""


@dataclass(frozen=True, slots=True, eq=False)
class _Lists:
    """Neighbour lists of all nodes.

    Entries are also numbers, "keys": node * number of nodes + neighbour.

    Attributes
    ----------
    starts, sizes
        Place of the first entry and number of entries of each list, (capacity,).
    indices, weights
        Neighbours, and weights or None, with room for more entries.
    num_places, num_edges
        Number of entries in the arrays, replaced ones included, and of entries of all lists.
    """

    starts: Ints
    sizes: Ints
    indices: Int32s
    weights: Floats | None
    num_places: int
    num_edges: int

    @classmethod
    def of(cls, indptr: Ints, indices: Int32s, weights: Floats | None, room: int) -> Self:
        """Return the lists of a graph as copies with room for more entries."""
        count = len(indices)
        capacity = count + max(room, count // _SPARE)
        indices = grow(indices, capacity)
        weights = None if weights is None else grow(weights, capacity)
        return cls(indptr[:-1].copy(), np.diff(indptr), indices, weights, count, count)

    def arrays(self, nodes: Ints) -> tuple[Ints, Int32s, Floats | None]:
        """Return offsets, neighbours and weights of the lists of some nodes, in their order."""
        arrays = self.starts, self.sizes, self.indices, self.weights
        indptr, indices, weights = _native.gather_lists(*arrays, nodes)
        return indptr.view(np.int64), indices, None if self.weights is None else weights

    def entries(self, nodes: Ints, n: int) -> tuple[Ints, Floats | None]:
        """Return the entries of some of n nodes as keys, and their weights."""
        indptr, indices, weights = self.arrays(nodes)
        return np.repeat(nodes * n, np.diff(indptr)) + indices, weights

    def keys(self, nodes: Ints, n: int) -> Ints:
        """Return the entries of some of n nodes as keys."""
        return self.entries(nodes, n)[0]

    def changed(
        self, n: int, removed: Ints, added: Ints, weights: Floats | None
    ) -> tuple[Self, Ints, list[Write]]:
        """Return lists of n nodes after a change, the nodes whose lists differ, and the writes.

        ``removed`` and ``added`` are ascending keys; ``removed`` apply first.
        """
        lists = replace(self, starts=grow(self.starts, n), sizes=grow(self.sizes, n))
        nodes = np.unique(np.concatenate([removed, added]) // n)
        before, old_weights = lists.entries(nodes, n)
        stays = ~_contains(removed, before)
        is_new = ~_contains(before[stays], added)
        if weights is not None and not is_new.all():
            target, source = divmod(int(added[np.argmin(is_new)]), n)
            edge = f"({source}, {target})"
            raise ValueError(
                f"add_edges must hold new edges of a graph with weights, got {edge}: remove it "
                f"first"
            )
        differing = np.unique(np.concatenate([removed, added[is_new]]) // n)
        keys, order = np.unique(np.concatenate([before[stays], added]), return_index=True)
        if weights is not None and old_weights is not None:
            weights = np.concatenate([old_weights[stays], weights])[order]
        if self.num_places + len(keys) > len(self.indices):
            lists = self.of(*lists.arrays(np.arange(n)), room=len(keys))
        places = slice(lists.num_places, lists.num_places + len(keys))
        lists.indices[places] = keys % n
        if lists.weights is not None:
            lists.weights[places] = weights
        bounds = np.searchsorted(keys, np.append(nodes, n) * n)
        starts = places.start + bounds[:-1]
        writes = [(lists.starts, nodes, starts), (lists.sizes, nodes, np.diff(bounds))]
        num_edges = self.num_edges + len(keys) - len(before)
        return replace(lists, num_places=places.stop, num_edges=num_edges), differing, writes


@dataclass(frozen=True, slots=True, eq=False)
class ChangingGraph:
    """The neighbours of every node, and the nodes that it is a neighbour of.

    A change gives a new graph that shares the arrays of the old one. The new graph is right once
    the writes of the change are done, and the old one again when they are undone.
    """

    num_nodes: int
    is_directed: bool
    incoming: _Lists
    outgoing: _Lists

    @classmethod
    def of(cls, graph: Graph) -> Self:
        """Return a copy of a graph."""
        n = graph.num_nodes
        incoming = _Lists.of(graph.indptr, graph.indices, graph.weights, 0)
        outgoing = incoming
        if graph.directed:
            keys = _reversed(incoming.keys(np.arange(n), n), n)
            indptr = np.searchsorted(keys, np.arange(n + 1) * n)
            outgoing = _Lists.of(indptr, (keys % n).astype(np.int32), None, 0)
        return cls(n, graph.directed, incoming, outgoing)

    @property
    def is_weighted(self) -> bool:
        """Whether edges have weights."""
        return self.incoming.weights is not None

    @property
    def num_edges(self) -> int:
        """Number of entries of all neighbour lists."""
        return self.incoming.num_edges

    def graph(self) -> Graph:
        """Return the current graph. O(number of edges)."""
        return Graph(*self.incoming.arrays(np.arange(self.num_nodes)), self.is_directed)

    def part(self, nodes: Ints) -> _native.CsrGraph:
        """Return the current neighbour lists of some nodes, for steps of a propagation."""
        indptr, indices, weights = self.incoming.arrays(nodes)
        num_threads = threads.num_threads(len(indices))
        return _native.CsrGraph(
            indptr, indices, num_threads, weights, nodes=nodes, num_nodes=self.num_nodes
        )

    def changed(
        self, n: int, removed_nodes: Ints, removed: Ints, added: Ints, weights: Floats | None
    ) -> tuple[Self, Ints, list[Write]]:
        """Return the graph after a change, the nodes with other neighbours, and the writes.

        Parameters
        ----------
        n
            Number of nodes after the change.
        removed_nodes, removed, added
            Nodes whose edges are removed, and edges, sources above targets, (2, m). Removals apply
            first.
        weights
            Weights of ``added``, (m,), or None. Edges of weight 0 are left out.

        Raises
        ------
        ValueError
            If an edge to remove does not exist, or one to add exists in a graph with weights.
        """
        removed_keys = self._removed_keys(n, removed_nodes, removed)
        added_keys, weights = self._added_keys(n, added, weights)
        incoming, differing, writes = self.incoming.changed(n, removed_keys, added_keys, weights)
        outgoing = incoming
        if self.is_directed:
            reversed_keys = _reversed(removed_keys, n), _reversed(added_keys, n)
            outgoing, _, more_writes = self.outgoing.changed(n, *reversed_keys, None)
            writes += more_writes
        return replace(self, num_nodes=n, incoming=incoming, outgoing=outgoing), differing, writes

    def _removed_keys(self, n: int, nodes: Ints, edges: Ints) -> Ints:
        """Return the keys of removed edges and of all edges of removed nodes, ascending."""
        if nodes.size + edges.size == 0:
            return nodes
        sources, targets = edges
        keys = [targets * n + sources]
        exists = _contains(self.incoming.keys(np.unique(targets), n), keys[0])
        if not exists.all():
            source, target = edges[:, np.argmin(exists)]
            raise ValueError(f"remove_edges must hold edges of the graph, got ({source}, {target})")
        if not self.is_directed:
            keys.append(sources * n + targets)
        keys += [self.incoming.keys(nodes, n), _reversed(self.outgoing.keys(nodes, n), n)]
        return np.unique(np.concatenate(keys))

    def _added_keys(
        self, n: int, edges: Ints, weights: Floats | None
    ) -> tuple[Ints, Floats | None]:
        """Return keys of added edges, ascending, and their weights, merged as in a new graph."""
        if edges.size == 0:
            return edges[0], np.empty(0, np.float32) if self.is_weighted else None
        nodes, ends = np.unique(edges, return_inverse=True)
        ends = ends.reshape(2, -1)
        graph = as_graph(ends, len(nodes), edge_weight=weights, directed=self.is_directed)
        keys = np.repeat(nodes * n, np.diff(graph.indptr)) + nodes[graph.indices]
        return keys, graph.weights

    def reach(
        self, nodes: Ints, later: Ints, hops: int, most: float, *, outgoing: bool
    ) -> list[Ints] | None:
        """Return the nodes up to 0, 1, ..., ``hops`` hops away, or one hop fewer from ``later``.

        A hop leads from a node to its neighbours, or with ``outgoing`` to the nodes that it is a
        neighbour of. Return None if the nodes before the last hop have more than ``most``
        neighbours together.
        """
        lists = self.outgoing if outgoing else self.incoming
        reached = np.zeros(self.num_nodes, bool)
        reached[nodes] = True
        regions = [np.flatnonzero(reached)]
        new_nodes = regions[0]
        for hop in range(hops):
            if lists.sizes[regions[-1]].sum() > most:
                return None
            before = reached.copy()
            reached[lists.arrays(new_nodes)[1]] = True
            if hop == 0:
                reached[later] = True
            regions.append(np.flatnonzero(reached))
            new_nodes = np.flatnonzero(reached > before)
        return regions


def grow(array: Array, n: int) -> Array:
    """Return an array of at least n rows, with the same first rows and zeros after them."""
    if len(array) >= n:
        return array
    grown = np.zeros((n + n // _SPARE, *array.shape[1:]), array.dtype)
    grown[: len(array)] = array
    return grown


def _contains(ascending: Ints, values: Ints) -> Bools:
    """Return whether each value is among ascending natural numbers."""
    is_there: Bools = np.append(ascending, -1)[np.searchsorted(ascending, values)] == values
    return is_there


def _reversed(keys: Ints, n: int) -> Ints:
    """Return the keys of reversed entries, ascending."""
    nodes, neighbors = np.divmod(keys, n)
    return np.sort(neighbors * n + nodes)


# --- KS vectors -----------------------------------------------------------------------------------

_FULL = 0.75  # share of the work of all rows above which all are computed


@dataclass(frozen=True, slots=True, eq=False)
class _State:
    """Features and vectors of one version.

    Attributes
    ----------
    n
        Number of nodes, removed ones included.
    graph
        Their neighbours.
    largest
        The largest norm of a feature row, by which all lengths are divided.
    norms, removed
        Norm of each node's features, and whether the node was removed, (capacity,).
    units, lengths
        For each stored layer the unit rows, (capacity, d), and the lengths, (capacity,), of x^l;
        layer 0 first.
    vectors
        The KS vectors, (capacity, d).
    undo
        The old values of rows that an unfinished update has replaced.
    """

    n: int
    graph: ChangingGraph
    largest: float
    norms: Doubles
    removed: Bools
    units: tuple[Floats, ...]
    lengths: tuple[Floats, ...]
    vectors: Floats
    undo: list[Write] = field(default_factory=list)


class KSVectors:
    """KS vectors of a graph whose edges, features and nodes change.

    :meth:`update` computes only the vectors that can have changed. They equal the result of
    :func:`cfe_faiss.ks_vectors` for the new graph, bit for bit.

    Parameters
    ----------
    x, edge_index, num_layers, alpha, edge_weight, directed
        As in :func:`cfe_faiss.ks_vectors`.
    store_layers
        Whether to keep the rows of every step: ``num_layers`` + 1 matrices of 4 * n * d bytes.
        False: two matrices. An update then reads the surroundings of ``2 * num_layers`` hops
        instead of ``num_layers``.
    vectors
        The KS vectors for these arguments, (n, d), if they are known. If layers are stored, the
        first update computes all of them.

    Raises
    ------
    TypeError, ValueError
        As :func:`cfe_faiss.ks_vectors` does.

    Notes
    -----
    Each step is taken for the nodes at most ``num_layers`` hops from a change. All rows change if
    the largest norm of a feature row changes, since lengths are divided by it. An update needs
    temporary memory for these rows. One thread at a time may use an object.

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

    def __init__(  # noqa: PLR0913
        self,
        x: Any,
        edge_index: Any,
        num_layers: int = 3,
        alpha: float = 0.5,
        *,
        edge_weight: ArrayLike | bool | None = None,
        directed: bool = False,
        store_layers: bool = True,
        vectors: ArrayLike | None = None,
    ) -> None:
        self._num_layers = as_count("num_layers", num_layers, 0)
        self._alpha = as_number("alpha", alpha, 0.0, 1.0)
        self._stores_layers = bool(store_layers)
        features = as_matrix("x", as_dense("x", x))
        n, d = features.shape
        if n == 0:
            raise ValueError(f"x must have shape (n, d) with n, d >= 1, got {features.shape}")
        graph = as_graph(edge_index, n, edge_weight=edge_weight, directed=directed)
        unit = features.copy()
        norms = normalise(unit)
        largest = float(norms.max())
        vectors_of_layers = (
            np.empty((0, d), np.float32)
            if vectors is None
            else as_matrix("vectors", vectors, d).copy()
        )
        if vectors is not None:
            check_shape("vectors", vectors_of_layers, (n, d))
        lengths = (relative_lengths(norms, largest),)
        state = _State(
            n,
            ChangingGraph.of(graph),
            largest,
            norms,
            np.zeros(n, bool),
            (unit,),
            lengths,
            vectors_of_layers,
        )
        self._state = self._compute_all(state) if vectors is None else state

    def __getstate__(self) -> dict[str, Any]:
        self._settle()
        return vars(self)

    @property
    def vectors(self) -> Floats:
        """KS vectors, (n, d) float32, one row per node; zero for removed nodes.

        A read-only view: updates change it.
        """
        state = self._settle()
        view = state.vectors[: state.n]
        view.flags.writeable = False
        return view

    @property
    def graph(self) -> Graph:
        """The current graph; removed nodes are in it, without edges. O(number of edges)."""
        return self._settle().graph.graph()

    @property
    def removed(self) -> Ints:
        """The ids of removed nodes, ascending."""
        state = self._settle()
        return np.flatnonzero(state.removed[: state.n])

    def __len__(self) -> int:
        return self._settle().n

    def __repr__(self) -> str:
        n, d = self.vectors.shape
        return (
            f"KSVectors({n:,} nodes, d={d}, num_layers={self._num_layers}, alpha={self._alpha:g})"
        )

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

        A refused update changes nothing. The parts of an update apply in the order: remove edges
        and nodes, add nodes, add edges.

        Parameters
        ----------
        add_edges, remove_edges
            Edges, sources above targets, (2, m). Without weights, edges that exist may be added
            again.
        x
            New features of some nodes: id to row, (d,).
        add_nodes
            Features of new nodes, (m, d). Their ids follow the largest id so far.
        remove_nodes
            Ids of nodes that leave with all their edges. Other nodes keep their ids. The ids of
            removed nodes are never used again, and their vectors are zero.
        edge_weight
            Weights of ``add_edges``, (m,), if the graph has weights. To change a weight, remove and
            add the edge.

        Returns
        -------
        ndarray
            Ids of the nodes whose vectors have changed, ascending, (c,) int64. New nodes are among
            them, removed nodes are not.

        Raises
        ------
        TypeError, ValueError
            If a node or an edge to remove does not exist, a weighted edge exists already, an array
            has another shape, or a value is NaN or infinite.
        """
        state = self._settle()
        before = state.n
        d = state.vectors.shape[1]
        is_removed = state.removed[:before]
        leaving = as_nodes("remove_nodes", [] if remove_nodes is None else remove_nodes, before)
        removed_nodes = _nodes("remove_nodes", leaving, is_removed)
        removed = _edges("remove_edges", remove_edges, is_removed)
        fresh = np.empty((0, d), np.float32)
        if add_nodes is not None:
            fresh = as_matrix("add_nodes", as_dense("add_nodes", add_nodes), d)
        n = before + len(fresh)
        is_removed = np.concatenate([is_removed, np.zeros(n - before, bool)])
        is_removed[removed_nodes] = True
        changed = _nodes("x", list(x or ()), is_removed[:before])
        new_features = features_of_nodes(x or {}, d)
        added = _edges("add_edges", add_edges, is_removed)
        weights = None
        is_weighted = state.graph.is_weighted
        if (edge_weight is not None) != (is_weighted and added.size > 0):
            needed = "None without add_edges" if is_weighted else "None for a graph without weights"
            if edge_weight is None:
                needed = "given for add_edges of a graph with weights"
            raise ValueError(f"edge_weight must be {needed}, got {edge_weight!r}")
        if edge_weight is not None:
            weights = np.ascontiguousarray(as_weights("edge_weight", edge_weight, added.shape[1]))
        ids = np.concatenate([removed_nodes, changed, np.arange(before, n)])
        values = np.concatenate(
            [np.zeros((len(removed_nodes), d), np.float32), new_features, fresh]
        ).astype(np.float32)
        order = np.argsort(ids)
        changed_graph = state.graph.changed(n, removed_nodes, removed, added, weights)
        self._state, differing = self._compute(
            state, *changed_graph, removed_nodes, ids[order], values[order]
        )
        return differing

    def _settle(self) -> _State:
        """Return the current state.

        Undo an update that was interrupted first; repeating this does no harm.
        """
        state = self._state
        for array, rows, values in reversed(state.undo):
            array[rows] = values
        state.undo.clear()
        return state

    def _write(self, array: Array, rows: Ints, values: Array) -> None:
        """Replace rows of an array of the next state, so that :meth:`_settle` can undo it."""
        self._state.undo.append((array, rows, array[rows]))
        array[rows] = values

    def _compute(
        self,
        state: _State,
        graph: ChangingGraph,
        linked: Ints,
        writes: list[Write],
        removed_nodes: Ints,
        rows: Ints,
        unit: Floats,
    ) -> tuple[_State, Ints]:
        """Return the state after a change and the ids whose vectors differ.

        Until it is set, it can be undone. ``rows`` are the ascending nodes that get new features,
        in a copy, ``unit``.
        """
        n = graph.num_nodes
        norms = normalise(unit)
        # Arrays that are long enough are shared.
        grown_norms, removed, vectors = (
            grow(array, n) for array in (state.norms, state.removed, state.vectors)
        )
        units, lengths = (
            tuple(grow(array, n) for array in arrays) for arrays in (state.units, state.lengths)
        )
        largest = _largest(state, rows, norms)
        new = _State(n, graph, largest, grown_norms, removed, units, lengths, vectors)
        for write in writes:
            self._write(*write)
        self._write(new.norms, rows, norms)
        self._write(new.removed, removed_nodes, np.ones(len(removed_nodes), bool))
        self._write(new.units[0], rows, unit)
        plan = None
        is_complete = not self._stores_layers or len(state.units) >= self._num_layers
        if new.largest == state.largest and is_complete:
            self._write(new.lengths[0], rows, relative_lengths(norms, new.largest))
            plan = self._plan(graph, rows, linked)
        if plan is None:
            region = np.arange(n)
            new = self._compute_all(new)
            before = state.vectors
            after = new.vectors
        else:
            region = plan[-1][0]
            before, after = self._compute_some(new, plan)
        old = int(np.searchsorted(region, state.n))
        differs = np.ones(len(region), bool)
        differs[:old] = (before[:old] != after[:old]).any(axis=1)
        differs[np.searchsorted(region, removed_nodes)] = False
        # NumPy has two 64-bit integer types; this one prints without dtype.
        return new, region[differs].view(np.int64)

    def _plan(
        self, graph: ChangingGraph, rows: Ints, linked: Ints
    ) -> list[tuple[Ints, _native.CsrGraph]] | None:
        """Return the rows that each layer is computed for, ascending, and their lists.

        None if all rows are better.

        ``rows`` have new features and ``linked`` new neighbours.
        """
        count = self._num_layers
        most = _FULL * graph.num_edges
        if (reached := graph.reach(rows, linked, count, most, outgoing=True)) is None:
            return None
        region = reached[-1]
        plan = [(region, graph.part(region))] * (count + 1)
        if not self._stores_layers:
            if (
                reached := graph.reach(region, region[:0], count - 1, most, outgoing=False)
            ) is None:
                return None
            regions = [reached[count - max(layer, 1)] for layer in range(count)]
            plan = [*((nodes, graph.part(nodes)) for nodes in regions), plan[-1]]
        work = sum(part.num_edges for _, part in plan[1:])
        return None if work > most * count else plan

    def _step(
        self, graph: _native.CsrGraph, unit: Floats, lengths: Floats, sums: Floats
    ) -> tuple[Floats, Floats]:
        """Return the unit rows and lengths of the next layer of nodes, and add it to ``sums``."""
        new_unit = np.empty_like(sums)
        new_lengths = np.empty(len(sums), np.float32)
        count = threads.num_native_threads(2.0 * sums.shape[1] * graph.num_edges)
        graph.step(self._alpha, count, unit, lengths, sums, new_unit, new_lengths)
        return new_unit, new_lengths

    def _compute_some(
        self, state: _State, plan: list[tuple[Ints, _native.CsrGraph]]
    ) -> tuple[Floats, Floats]:
        """Write the vectors of some rows, and their rows of the stored layers.

        Return the vectors before and after.
        """
        n = state.n
        unit = state.units[0]
        lengths = state.lengths[0]
        rows = plan[0][0]
        sums = unit[rows] * lengths[rows, None]
        for layer, (of_step, graph) in enumerate(plan[1:], 1):
            if len(of_step) < len(rows):
                sums = sums[np.searchsorted(rows, of_step)]
            rows = of_step
            new_unit, new_lengths = self._step(graph, unit[:n], lengths[:n], sums)
            if layer == self._num_layers:
                break
            if self._stores_layers:
                unit = state.units[layer]
                lengths = state.lengths[layer]
                self._write(unit, rows, new_unit)
                self._write(lengths, rows, new_lengths)
            else:  # the next step reads these rows only, so memory of other rows stays unused
                unit = np.empty((n, unit.shape[1]), np.float32)
                lengths = np.empty(n, np.float32)
                unit[rows] = new_unit
                lengths[rows] = new_lengths
        normalise(sums)
        self._write(state.vectors, rows, sums)
        return self._state.undo[-1][2], sums

    def _compute_all(self, state: _State) -> _State:
        """Return a state with all vectors and layers computed, from the rows of layer 0."""
        unit = state.units[0][: state.n]
        lengths = relative_lengths(state.norms[: state.n], state.largest)
        units = [state.units[0]]
        all_lengths = [lengths]
        vectors = unit * lengths[:, None]
        graph = state.graph.part(np.arange(state.n))
        for layer in range(1, self._num_layers + 1):
            unit, lengths = self._step(graph, unit, lengths, vectors)
            if self._stores_layers and layer < self._num_layers:
                units.append(unit)
                all_lengths.append(lengths)
        normalise(vectors)
        return replace(state, units=tuple(units), lengths=tuple(all_lengths), vectors=vectors)


def _largest(state: _State, rows: Ints, norms: Doubles) -> float:
    """Return the largest norm after a change of some rows."""
    old = rows[rows < state.n]
    if state.norms[old].max(initial=0) < state.largest:
        return max(state.largest, float(norms.max(initial=0)))
    unchanged = np.delete(state.norms[: state.n], old)
    return float(max(unchanged.max(initial=0), norms.max(initial=0)))


def features_of_nodes(x: Mapping[Any, Any], d: int) -> Array:
    """Return the features that a mapping holds for r nodes as rows, (r, d), finite in float32."""
    rows = [row if type(row) is np.ndarray else as_dense("x", row) for row in x.values()]
    for node, row in zip(x, rows, strict=True):
        if row.shape != (d,):
            raise ValueError(f"x must have rows of shape ({d},), got {row.shape} for node {node!r}")
    values = np.concatenate(rows).reshape(-1, d) if rows else np.empty((0, d), np.float32)
    as_matrix("x", values, d)  # refuses NaN, also where the vectors do not use the column
    return values


def _nodes(name: str, values: Any, removed: Bools) -> Ints:
    """Return node numbers; ValueError if a node does not exist or was removed."""
    nodes = as_ids(name, values, len(removed))
    was_removed = removed[nodes]
    if was_removed.any():
        raise ValueError(
            f"{name} must name nodes of the graph, got {nodes[was_removed][0]}, which was removed"
        )
    return nodes


def as_edges(name: str, edges: Any) -> Array:
    """Return edges, sources above targets, as an array of any type, (2, m); none for None."""
    array = np.empty((2, 0), np.int64) if edges is None else np.asarray(to_host(edges))
    check_shape(name, array, (2, "m"))
    return array


def _edges(name: str, edges: Any, removed: Bools) -> Ints:
    """Return edges of nodes that exist, sources above targets, (2, m); none for None."""
    array = as_edges(name, None if edges is None else as_array(name, edges))
    return _nodes(name, array.ravel(), removed).reshape(2, -1)
