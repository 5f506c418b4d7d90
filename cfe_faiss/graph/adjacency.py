"""Neighbour lists of a graph that changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.graph import Graph

_SPAN = 1 << 32  # above every node number
_FEW_ROWS = 1024
_SHARE = 8  # replaced rows are merged into the graph above this fraction of its nodes, so a merge costs O(1) per row

Ints = NDArray[np.int64]


class Lists(NamedTuple):
    """Neighbours of some nodes in compressed rows, as in :class:`cfe_faiss.graph.Graph`."""

    indptr: Ints
    indices: NDArray[np.int32]
    weights: NDArray[np.float32] | None

    @property
    def owners(self) -> Ints:
        """The position of the node that each entry belongs to, (num_entries,)."""
        return np.repeat(np.arange(len(self.indptr) - 1), np.diff(self.indptr))


class Links(NamedTuple):
    """Entries of neighbour lists: the node, its neighbour, and the weight of each, (m,)."""

    nodes: Ints
    neighbors: Ints
    weights: NDArray[np.float32] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Adjacency:
    """Neighbours of every node: those of a graph, unless a row replaces them. It never changes itself.

    Attributes
    ----------
    graph
        The graph before the latest changes.
    num_nodes
        Number of nodes; nodes that ``graph`` lacks have the neighbours of their row, or none.
    rows
        New neighbours, ascending, and weights of the nodes that changed.
    """

    graph: Graph
    num_nodes: int
    rows: Mapping[int, tuple[NDArray[np.int32], NDArray[np.float32] | None]] = field(default_factory=dict)

    @property
    def num_edges(self) -> int:
        """Number of entries of the graph before the latest changes."""
        return self.graph.num_edges

    def count(self, nodes: Ints) -> int:
        """Return about the number of neighbours of some nodes: as before the latest changes."""
        old, indptr = nodes[nodes < self.graph.num_nodes], self.graph.indptr
        return int((indptr[old + 1] - indptr[old]).sum())

    def take(self, nodes: Ints) -> Lists:
        """Return the neighbours of some nodes, in O(their number) time."""
        graph, rows = self.graph, self.rows
        is_replaced = np.isin(nodes, np.fromiter(rows, np.int64, len(rows))) if rows else np.zeros(len(nodes), bool)
        is_old = ~is_replaced & (nodes < graph.num_nodes)
        first, counts = np.zeros(len(nodes), np.int64), np.zeros(len(nodes), np.int64)
        first[is_old], stop = graph.indptr[nodes[is_old]], graph.indptr[nodes[is_old] + 1]
        counts[is_old] = stop - first[is_old]
        places = np.flatnonzero(is_replaced)
        replaced = [rows[node] for node in nodes[places].tolist()]
        counts[places] = [len(neighbors) for neighbors, _ in replaced]
        indptr = np.concatenate([[0], np.cumsum(counts)])
        # Entry i of the result is entry i + shift of the graph. Entries of replaced rows are overwritten below.
        shift = np.repeat(np.where(is_old, first - indptr[:-1], -indptr[:-1]), counts)
        entries = np.arange(indptr[-1]) + shift
        entries[np.repeat(is_replaced, counts)] = 0
        indices = graph.indices[entries] if graph.num_edges else np.empty(len(entries), np.int32)
        weights = None
        if graph.weights is not None:
            weights = graph.weights[entries] if graph.num_edges else np.empty(len(entries), np.float32)
        for place, (neighbors, own) in zip(places.tolist(), replaced, strict=True):
            some = slice(indptr[place], indptr[place + 1])
            indices[some] = neighbors
            if weights is not None:
                weights[some] = own
        return Lists(indptr, indices, weights)

    def holds(self, links: Links) -> NDArray[np.bool_]:
        """Return whether each entry is in the neighbour list of its node, (m,)."""
        nodes = np.unique(links.nodes)
        lists = self.take(nodes)
        return is_among(links, Links(nodes[lists.owners], lists.indices))

    def replace(self, removed: Links, added: Links, num_nodes: int) -> Adjacency:
        """Return the neighbour lists after a change. Removed entries exist; with weights, added ones do not."""
        grown = Adjacency(self.graph, num_nodes, self.rows)
        nodes = np.unique(np.concatenate([removed.nodes, added.nodes]))
        before = grown.take(nodes)
        old, new = _keys_of(before), _keys(nodes, added)
        kept = ~np.isin(old, _keys(nodes, removed))
        fresh = ~np.isin(new, old[kept])
        keys = np.concatenate([old[kept], new[fresh]])
        order = np.argsort(keys)
        neighbors = (keys[order] % _SPAN).astype(np.int32)
        weights = None
        if before.weights is not None and added.weights is not None:
            weights = np.concatenate([before.weights[kept], added.weights[fresh]])[order]
        cuts = np.searchsorted(keys[order], np.arange(len(nodes) + 1) * _SPAN).tolist()
        parts = [slice(first, stop) for first, stop in pairwise(cuts)]
        rows = {**self.rows} | {
            node: (neighbors[part], None if weights is None else weights[part])
            for node, part in zip(nodes.tolist(), parts, strict=True)
        }
        changed = Adjacency(self.graph, num_nodes, rows)
        if len(rows) <= max(_FEW_ROWS, num_nodes // _SHARE):
            return changed
        return Adjacency(changed.to_graph(directed=self.graph.directed), num_nodes)

    def to_graph(self, *, directed: bool) -> Graph:
        """Return all neighbours as a graph; O(number of edges)."""
        if not self.rows and self.num_nodes == self.graph.num_nodes:
            return self.graph
        return Graph(*self.take(np.arange(self.num_nodes)), directed)

    def transposed(self) -> Adjacency:
        """Return the nodes that each node is a neighbour of, without weights: itself if the graph is undirected."""
        if not self.graph.directed:
            return self
        lists = self.take(np.arange(self.num_nodes))
        order = np.argsort(lists.indices, kind="stable")
        counts = np.bincount(lists.indices, minlength=self.num_nodes)
        indptr = np.concatenate([[0], np.cumsum(counts)])
        return Adjacency(Graph(indptr, lists.owners[order].astype(np.int32), None, True), self.num_nodes)

    def reach(self, first: Ints, later: Ints, hops: int) -> Ints:
        """Return the nodes at most ``hops`` steps away from ``first``, or one step fewer from ``later``, ascending."""
        found = np.zeros(self.num_nodes, bool)
        found[first], new = True, first
        for hop in range(hops):
            near = np.zeros(self.num_nodes, bool)
            near[self.take(new).indices] = True
            near[later if hop == 0 else later[:0]] = True
            new = np.flatnonzero(near & ~found)
            found |= near
        return np.flatnonzero(found)


def is_among(links: Links, others: Links) -> NDArray[np.bool_]:
    """Return whether each entry is one of the others, (m,)."""
    return np.isin(links.nodes * _SPAN + links.neighbors, others.nodes * _SPAN + others.neighbors)


def _keys(nodes: Ints, links: Links) -> Ints:
    """Return a number for each entry, ascending by node and neighbour. ``nodes`` are ascending and have all nodes."""
    keys: Ints = np.searchsorted(nodes, links.nodes) * _SPAN + links.neighbors
    return keys


def _keys_of(lists: Lists) -> Ints:
    return lists.owners * _SPAN + lists.indices
