"""Neighbours of the two nodes of a pair, as drawings show them."""

from dataclasses import dataclass

import numpy as np

from cfe_faiss.base.arrays import Bools, Int32s
from cfe_faiss.graph.csr import Graph


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Neighbours of one node of a pair.

    Attributes
    ----------
    degree, same
        Number of its neighbours, and of those with its label.
    drawn
        Its neighbours in a drawing, (m,) int32, sorted by label and number.
    shared
        Whether each of them is the other node or a neighbour of it, (m,).
    edges
        Pairs of positions in ``drawn`` that are connected.
    """

    degree: int
    same: int
    drawn: Int32s
    shared: Bools
    edges: tuple[tuple[int, int], ...]


def surroundings(graph: Graph, node: int, other: int, labels: Int32s, most: int) -> Surroundings:
    """Return at most ``most`` neighbours of a node: shared ones first, then by ascending number.

    Examples
    --------
    >>> from cfe_faiss.graph.csr import as_graph
    >>> graph = as_graph([[0, 0, 0, 1], [1, 2, 3, 3]])
    >>> surroundings(graph, 0, 1, np.zeros(4, np.int32), most=2).drawn
    array([1, 3], dtype=int32)
    """
    near = graph.neighbors(node)
    shared = np.isin(near, np.append(graph.neighbors(other), other))
    chosen = np.argsort(~shared, kind="stable")[:most]
    chosen = chosen[np.lexsort((near[chosen], labels[near[chosen]]))]
    drawn = near[chosen]
    connected = [np.flatnonzero(np.isin(drawn, graph.neighbors(int(v)))) for v in drawn]
    edges = tuple((i, int(j)) for i, others in enumerate(connected) for j in others if i < j)
    return Surroundings(
        len(near), int((labels[near] == labels[node]).sum()), drawn, shared[chosen], edges
    )
