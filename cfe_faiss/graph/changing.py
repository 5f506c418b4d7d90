"""A graph that changes: new neighbour lists follow the lists that they replace in one array."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self, TypeAlias

import numpy as np

from cfe_faiss import _native
from cfe_faiss.base import threads
from cfe_faiss.base.checks import Array, Bools, Floats, Int32s, Ints
from cfe_faiss.graph.csr import Graph, as_graph

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
    found: Bools = np.append(ascending, -1)[np.searchsorted(ascending, values)] == values
    return found


def _reversed(keys: Ints, n: int) -> Ints:
    """Return the keys of reversed entries, ascending."""
    nodes, neighbors = np.divmod(keys, n)
    return np.sort(neighbors * n + nodes)
