"""Neighbour lists of a graph that changes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.graph import Graph

_SPAN = 1 << 32  # above every node number
# Later lists are merged into the graph when they have more entries than the larger of these: a fixed number, and a
# multiple of the square root of the number of edges. Then copying later lists costs about as much as merging them.
_LEAST_ENTRIES, _MERGE_FACTOR = 1 << 14, 16

Ints = NDArray[np.int64]
_T = TypeVar("_T", bound=np.generic)


class Links(NamedTuple):
    """Entries of neighbour lists: the node, its neighbour, and the weight of each, (m,)."""

    nodes: NDArray[np.signedinteger]
    neighbors: NDArray[np.signedinteger]
    weights: NDArray[np.float32] | None = None

    @classmethod
    def of(cls, keys: Ints) -> Links:
        """Return the entries with the given keys, without weights."""
        return cls(keys // _SPAN, keys % _SPAN)

    def reversed(self) -> Links:
        """Return the entries in the lists of the neighbours, without weights."""
        return Links(self.neighbors, self.nodes)

    @property
    def keys(self) -> Ints:
        """A number for each entry, ascending by node and neighbour, (m,)."""
        keys: Ints = np.asarray(self.nodes, np.int64) * _SPAN + self.neighbors
        return keys


class Lists(NamedTuple):
    """Neighbour lists of some ascending nodes: node ``nodes[i]`` has ``indices[indptr[i]:indptr[i + 1]]``."""

    nodes: Ints
    indptr: Ints
    indices: NDArray[np.int32]
    weights: NDArray[np.float32] | None

    @property
    def links(self) -> Links:
        """All entries."""
        return Links(np.repeat(self.nodes, np.diff(self.indptr)), self.indices, self.weights)

    def entries(self, places: Ints) -> tuple[Ints, Ints]:
        """Return the length of the lists at some places, (m,), and the places of their entries."""
        first = self.indptr[places]
        counts = self.indptr[places + 1] - first
        ends = np.cumsum(counts)
        return counts, np.repeat(first - ends + counts, counts) + np.arange(counts.sum())


@dataclass(frozen=True, slots=True, eq=False)
class Adjacency:
    """Neighbours of every node: the lists of a graph, some of them replaced by later lists. It never changes itself.

    Attributes
    ----------
    graph
        The graph before the latest changes.
    num_nodes
        Number of nodes. Nodes that ``graph`` lacks have a later list, or no neighbours.
    later
        The lists of nodes that have changed.
    """

    graph: Graph
    num_nodes: int
    later: Lists

    @classmethod
    def of(cls, graph: Graph) -> Adjacency:
        """Return the neighbours in a graph."""
        no_weights = None if graph.weights is None else graph.weights[:0]
        none = Lists(np.empty(0, np.int64), np.zeros(1, np.int64), graph.indices[:0], no_weights)
        return cls(graph, graph.num_nodes, none)

    def count(self, nodes: Ints) -> int:
        """Return about how many neighbours some nodes have: those before the latest changes."""
        old, indptr = nodes[nodes < self.graph.num_nodes], self.graph.indptr
        return int((indptr[old + 1] - indptr[old]).sum())

    def take(self, nodes: Ints) -> Lists:
        """Return the lists of some nodes, ascending, in O(length of the lists) time."""
        graph, later = self.graph, self.later
        is_later = among(nodes, later.nodes)
        is_old = ~is_later & (nodes < graph.num_nodes)
        base = Lists(nodes, graph.indptr, graph.indices, graph.weights)
        counts = np.zeros(len(nodes), np.int64)
        counts[is_old], entries = base.entries(nodes[is_old])
        counts[is_later], later_entries = later.entries(np.searchsorted(later.nodes, nodes[is_later]))
        indptr = np.concatenate([[0], np.cumsum(counts)])
        if not is_later.any():
            weights = None if graph.weights is None else graph.weights[entries]
            return Lists(nodes, indptr, graph.indices[entries], weights)
        from_later = np.repeat(is_later, counts)

        def merge(old: NDArray[_T], new: NDArray[_T]) -> NDArray[_T]:
            merged = np.empty(indptr[-1], old.dtype)
            merged[~from_later], merged[from_later] = old[entries], new[later_entries]
            return merged

        weights = None
        if graph.weights is not None and later.weights is not None:
            weights = merge(graph.weights, later.weights)
        return Lists(nodes, indptr, merge(graph.indices, later.indices), weights)

    def holds(self, links: Links) -> NDArray[np.bool_]:
        """Return whether each entry exists, (m,)."""
        return among(links.keys, self.take(np.unique(links.nodes)).links.keys)

    def replace(self, removed: Links, added: Links, num_nodes: int) -> Adjacency:
        """Return the lists after a change. Removed entries exist; with weights, added ones do not."""
        nodes = np.union1d(removed.nodes, added.nodes)
        others = self.later.nodes[~among(self.later.nodes, nodes)]
        entries = self.count(nodes) + self.count(others) + len(added.nodes)
        if entries > max(_LEAST_ENTRIES, _MERGE_FACTOR * math.isqrt(self.graph.num_edges)):
            return Adjacency.of(_changed(self.to_graph(), num_nodes, nodes, removed, added))
        before = self.take(nodes).links
        old = before.keys
        kept = ~among(old, np.sort(removed.keys))
        fresh = ~among(added.keys, old[kept])
        parts = [(before, kept), (added, fresh)]
        if len(others):
            others_links = self.take(others).links
            parts.append((others_links, np.ones(len(others_links.nodes), bool)))
        return Adjacency(self.graph, num_nodes, _sorted(np.union1d(nodes, others), parts))

    def to_graph(self) -> Graph:
        """Return all neighbours as a graph; O(number of edges)."""
        graph, later = self.graph, self.later
        if not len(later.nodes) and self.num_nodes == graph.num_nodes:
            return graph
        counts = np.zeros(self.num_nodes, np.int64)
        counts[: graph.num_nodes] = np.diff(graph.indptr)
        counts[later.nodes] = np.diff(later.indptr)
        # Runs of lists of the graph, with a later list after each.
        places = np.minimum(later.nodes, graph.num_nodes)
        first = graph.indptr[np.concatenate([[0], np.minimum(places + 1, graph.num_nodes)])].tolist()
        stop = [*graph.indptr[places].tolist(), graph.num_edges]
        cuts = later.indptr.tolist()

        def join(old: NDArray[_T], new: NDArray[_T]) -> NDArray[_T]:
            pieces = [old[first[0] : stop[0]]]
            for i in range(len(places)):
                pieces += [new[cuts[i] : cuts[i + 1]], old[first[i + 1] : stop[i + 1]]]
            return np.concatenate(pieces)

        weights = None
        if graph.weights is not None and later.weights is not None:
            weights = join(graph.weights, later.weights)
        indptr = np.concatenate([[0], np.cumsum(counts)])
        return Graph(indptr, join(graph.indices, later.indices), weights, graph.directed)

    def transposed(self) -> Adjacency:
        """Return the nodes that each node is a neighbour of, without weights: itself if the graph is undirected."""
        graph = self.to_graph()
        if not graph.directed:
            return self
        order = np.argsort(graph.indices, kind="stable")
        indptr = np.concatenate([[0], np.cumsum(np.bincount(graph.indices, minlength=graph.num_nodes))])
        owners = np.repeat(np.arange(graph.num_nodes, dtype=np.int32), np.diff(graph.indptr))
        return Adjacency.of(Graph(indptr, owners[order], None, True))

    def reach(self, first: Ints, later: Ints, hops: int, most: float = math.inf) -> Ints:
        """Return the nodes at most ``hops`` steps away from ``first``, or one step fewer from ``later``, ascending.

        Return all nodes if those before the last step have more than ``most`` neighbours together: it takes less time
        than to read these.
        """
        found = np.zeros(self.num_nodes, bool)
        found[first] = True
        new = np.flatnonzero(found)
        for hop in range(hops):
            if self.count(np.flatnonzero(found)) > most:
                return np.arange(self.num_nodes)
            near = np.zeros(self.num_nodes, bool)
            near[self.take(new).indices.astype(np.intp)] = True  # NumPy takes six times as long with int32
            near[later if hop == 0 else later[:0]] = True
            new = np.flatnonzero(near & ~found)
            found |= near
        return np.flatnonzero(found)


def among(values: Ints, ascending: Ints) -> NDArray[np.bool_]:
    """Return whether each value is among others, which ascend, (m,). Faster here than ``numpy.isin``."""
    if not len(ascending):
        return np.zeros(len(values), bool)
    places = np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)
    found: NDArray[np.bool_] = ascending[places] == values
    return found


def _changed(graph: Graph, num_nodes: int, nodes: Ints, removed: Links, added: Links) -> Graph:
    """Return a graph after a change of the lists of some nodes; O(number of edges)."""
    indptr = np.append(graph.indptr, np.full(num_nodes - graph.num_nodes, graph.num_edges))
    counts, entries = Lists(nodes, indptr, graph.indices, graph.weights).entries(nodes)
    keys = Links(np.repeat(nodes, counts), graph.indices[entries]).keys
    gone = np.sort(entries[np.searchsorted(keys, removed.keys)])
    kept = np.ones(graph.num_edges, bool)
    kept[gone] = False
    fresh = np.flatnonzero(~among(added.keys, keys[kept[entries]]))
    fresh = fresh[np.argsort(added.keys[fresh])]  # reversed entries do not ascend
    owners = added.nodes[fresh]
    # Places among the entries of the changed lists, then in the graph, then among what is kept.
    places = np.searchsorted(keys, added.keys[fresh])
    places += (indptr[nodes] - np.cumsum(counts) + counts)[np.searchsorted(nodes, owners)]
    places -= np.searchsorted(gone, places)

    def change(old: NDArray[_T], new: NDArray[_T]) -> NDArray[_T]:
        return np.insert(old[kept], places, new[fresh].astype(old.dtype)) if len(places) else old[kept]

    lengths = np.diff(indptr) - np.bincount(removed.nodes, minlength=num_nodes)
    lengths += np.bincount(owners, minlength=num_nodes)
    weights = None
    if graph.weights is not None:
        weights = graph.weights[kept] if added.weights is None else change(graph.weights, added.weights)
    indices = change(graph.indices, np.asarray(added.neighbors))
    return Graph(np.concatenate([[0], np.cumsum(lengths)]), indices, weights, graph.directed)


def _sorted(nodes: Ints, parts: list[tuple[Links, NDArray[np.bool_]]]) -> Lists:
    """Return the lists of nodes, ascending, from the chosen entries of several sources."""
    keys = np.concatenate([links.keys[chosen] for links, chosen in parts])
    order = np.argsort(keys, kind="stable")  # it merges the parts, which ascend
    keys = keys[order]
    weights = [links.weights[chosen] for links, chosen in parts if links.weights is not None]
    indptr = np.searchsorted(keys, np.concatenate([nodes, nodes[-1:] + 1]) * _SPAN)
    indices = (keys % _SPAN).astype(np.int32)
    return Lists(nodes, indptr, indices, np.concatenate(weights)[order] if weights else None)
