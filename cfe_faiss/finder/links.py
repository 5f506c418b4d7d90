"""Links of a graph as the rows of a finder: their ends, ids, vectors, attributes, and a rule.

The rule says that a link and its evidence share no end. It is a condition on a graph of links and
nodes, in which edges join every link with its two ends: two links share an end if and only if they
have a common neighbour there.
"""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from cfe_faiss.attributes.constraints import Constraints
from cfe_faiss.attributes.table import Attribute, Attributes, as_attributes, with_counts
from cfe_faiss.base.checks import (
    UNKNOWN,
    Array,
    Floats,
    Ints,
    as_array,
    check_distinct,
    check_shape,
    require,
)
from cfe_faiss.base.text import summary
from cfe_faiss.base.values import as_list, as_objects, find_rows, row_numbers
from cfe_faiss.graph import Graph, as_graph

_STEPS = 30
"""Steps that find the main axis of the differences of ends."""
_MOST_GROUPS = 10
"""Most values of a numeric attribute that are groups."""


def link_vectors(X: Floats, ends: Ints, *, directed: bool = False) -> Floats:
    """Return the vector of each link: the KS vectors of its two ends, joined.

    The cosine of two links is the mean of the similarities of their first and of their second ends.
    Without direction the ends are put in order along the main axis of the differences of all ends,
    which is their first principal direction about 0. So the vector does not depend on the order in
    which they are given, and ends are mostly compared with the more similar ends of other links.

    Parameters
    ----------
    X
        KS vectors of the nodes, (n, d) float32.
    ends
        Node numbers of the two ends of each link, (m, 2).
    directed
        Whether the order of the ends matters: sources are compared with sources.

    Returns
    -------
    ndarray
        (m, 2 d) float32, not normalised. O(m d) time.

    Examples
    --------
    >>> X = np.array([[1.0, 0.0], [0.0, 1.0]], np.float32)
    >>> link_vectors(X, np.array([[0, 1], [1, 0]]))
    array([[1., 0., 0., 1.],
           [1., 0., 0., 1.]], dtype=float32)
    >>> link_vectors(X, np.array([[0, 1], [1, 0]]), directed=True)
    array([[1., 0., 0., 1.],
           [0., 1., 1., 0.]], dtype=float32)
    """
    ordered = ends if directed else in_order(X, ends)
    return np.hstack([X[ordered[:, 0]], X[ordered[:, 1]]])


def in_order(X: Floats, ends: Ints) -> Ints:
    """Return the ends of each link in order along the main axis of their differences, (m, 2)."""
    differences = X[ends[:, 0]].astype(np.float64) - X[ends[:, 1]]
    axis = np.sqrt((differences**2).sum(axis=0))
    for _ in range(_STEPS):  # power iteration; a sign of a difference does not matter
        axis = differences.T @ (differences @ axis)
        axis /= np.linalg.norm(axis) or 1.0
    along = differences @ axis
    first_different = (differences != 0).argmax(axis=1)
    at_ties = differences[np.arange(len(ends)), first_different]
    is_turned = np.where(along == 0, at_ties, along) < 0
    return np.where(is_turned[:, None], ends[:, ::-1], ends)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Links:
    """Links between the nodes of a graph, each once: without direction (b, a) is (a, b), too.

    Attributes
    ----------
    ends
        Node numbers of the two ends of each link, (m, 2) int64: source and target if ``directed``.
    compared
        These ends in the order in which they are compared with the ends of other links, (m, 2).
    ids
        Id of each link as text, (m,): "a - b", or "a > b" if ``directed``.
    keys
        Text of each link that is the same for both orders of its ends, unless ``directed``, (m,).
    directed
        Whether the order of the ends matters.
    shared_ends
        Whether a link and its evidence may share an end.
    node_ids
        The user's id of every node, (n,); None if nodes go by their number.
    graph
        Links 0..m-1 and nodes m..m+n-1, with an edge between each link and either end.
    """

    ends: Ints
    compared: Ints
    ids: Array
    keys: Array
    directed: bool
    shared_ends: bool
    node_ids: Array | None
    graph: Graph

    __repr__ = summary

    @classmethod
    def of(
        cls, data: Any, links: Any, n: int, node_ids: Array | None, directed: bool, shared: bool
    ) -> Self:
        """Return checked links; see :meth:`cfe_faiss.EvidenceFinder.from_links`."""
        if links is None:
            label_index = getattr(data, "edge_label_index", None)
            require(label_index is not None, "links must be given, or data have edge_label_index")
            array = as_array("data.edge_label_index", label_index)
            check_shape("data.edge_label_index", array, (2, "m"), "two ends of each link")
            ends = _as_pairs("data.edge_label_index", array.T.tolist(), n, None)
        else:
            ends = _as_pairs("links", links, n, node_ids)
        ids = _texts(ends, n, node_ids, directed)
        loops = ids[ends[:, 0] == ends[:, 1]]
        require(not len(loops), f"links must join two different nodes, got {loops[:1].tolist()}")
        once = "links must hold each pair once"
        if not directed:
            once += (
                ", in one order, unless directed=True (remedy for negative samples of PyG: "
                "coalesce(edge_label_index.sort(dim=0).values, edge_label, reduce='max'))"
            )
        keys = ids if directed else _texts(np.sort(ends, axis=1), n, node_ids, directed)
        check_distinct(once, keys.tolist())
        joined = np.stack([np.repeat(np.arange(len(ends)), 2), len(ends) + ends.reshape(-1)])
        graph = as_graph(joined, len(ends) + n)
        return cls(ends, ends, ids, keys, directed, shared, node_ids, graph)

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return self.graph.num_nodes - len(self.ends)

    @property
    def compared_ids(self) -> Array:
        """The user's ids of ``compared``, (m, 2)."""
        return self.compared if self.node_ids is None else self.node_ids[self.compared]

    def rows(self, name: str, values: Any) -> Ints:
        """Return the number of each link, (m,): of pairs of node ids, of link ids, or of a mask.

        A pair of an undirected link may have either order.

        Raises
        ------
        TypeError, ValueError
            If a node or a link is unknown; the error names ``name``.
        """
        is_single = isinstance(values, str | bytes) or not hasattr(values, "__iter__")
        listed = [] if is_single else as_list(name, values)
        if not any(isinstance(value, tuple | list) for value in listed):
            return row_numbers(name, values, len(self), self.ids)
        pairs = _as_pairs(name, listed, self.num_nodes, self.node_ids)
        ends = pairs if self.directed else np.sort(pairs, axis=1)
        texts = _texts(ends, self.num_nodes, self.node_ids, self.directed)
        return find_rows(name, texts, len(self), self.keys)

    def constraints(self, where: Constraints | None) -> Constraints | None:
        """Return constraints on links as constraints on nodes of ``graph``.

        Raises
        ------
        ValueError
            For ``min_hops``.
        """
        if where is None and self.shared_ends:
            return None
        where = Constraints() if where is None else where
        if where.min_hops is not None:
            raise ValueError(
                f"where.min_hops must be left out for links, between which there are no hops, got "
                f"{where.min_hops}: links share no end unless shared_ends=True"
            )
        return replace(where, common_neighbors=where.common_neighbors and self.shared_ends)

    def attributes(
        self, nodes: Attributes | None, graph: Graph, groups: tuple[str, ...]
    ) -> tuple[Attributes, tuple[str, ...]]:
        """Return the attributes of the links, and which of them tell within from across.

        Parameters
        ----------
        nodes
            Attributes of all nodes, or None.
        graph
            Edges between the nodes.
        groups
            Names of attributes of nodes that are groups, with or without links between them.

        Raises
        ------
        ValueError
            If a name is unknown or taken, or an attribute has too many numbers for groups.
        """
        from scipy.sparse import csr_array

        edges = graph.undirected()
        degrees = np.diff(edges.indptr).astype(np.float64)
        of_nodes = with_counts({"degree": degrees}, nodes)
        between: dict[str, Any] = {}
        for name in (of_nodes.known("sensitive", name) for name in groups):
            group = of_nodes[name]
            if group.numbers is not None and len(group.values) > _MOST_GROUPS:
                raise ValueError(
                    f"sensitive must name groups, got {len(group.values):,} numbers in {name!r}: "
                    "cut them into texts such as '18-35' first"
                )
            codes = group.codes[self.ends]
            texts = np.where(codes[:, 0] == codes[:, 1], "within", "across").astype(object)
            texts[(codes == UNKNOWN).any(axis=1)] = None
            between[f"{name} between ends"] = texts
        ones = np.ones(edges.num_edges)
        near = csr_array((ones, edges.indices, edges.indptr), shape=(edges.num_nodes,) * 2)
        common: Any = near[self.ends[:, 0]].multiply(near[self.ends[:, 1]]).sum(axis=1)
        columns = {**between, "common neighbours": np.ravel(common)}
        sides = [of_nodes.take(end) for end in self.ends.T]
        for name in of_nodes:
            columns |= self._of_ends(sides[0][name], sides[1][name])
        return as_attributes(columns), tuple(between)

    def _of_ends(self, first: Attribute, second: Attribute) -> dict[str, Any]:
        """Return an attribute of both ends: of source and target, or without their order."""
        name = first.name
        if self.directed:
            return {f"{name} of source": first.array, f"{name} of target": second.array}
        if first.numbers is not None and second.numbers is not None:
            lower = np.minimum(first.numbers, second.numbers)
            higher = np.maximum(first.numbers, second.numbers)
            return {f"{name}, lower": lower, f"{name}, higher": higher}
        values = first.values
        if any(" & " in value for value in values):
            values = tuple(map(repr, values))
        codes = np.sort(np.stack([first.codes, second.codes], axis=1), axis=1).tolist()
        texts = [None if i == UNKNOWN else f"{values[i]} & {values[j]}" for i, j in codes]
        return {f"{name} of ends": as_objects(texts)}


def _texts(ends: Ints, n: int, node_ids: Array | None, directed: bool) -> Array:
    """Return links as texts, (m,); where an id of a node holds the sign, these ids are quoted."""
    sign = " > " if directed else " - "
    names = list(map(str, range(n) if node_ids is None else node_ids))
    if any(sign in name for name in names):
        names = list(map(repr, names))
    return as_objects(f"{names[a]}{sign}{names[b]}" for a, b in ends.tolist())


def _as_pairs(name: str, values: Any, n: int, node_ids: Array | None) -> Ints:
    """Return the node numbers of pairs of node ids, (m, 2)."""
    shape = getattr(values, "shape", None)
    if shape is not None and len(shape) == 2 and shape[0] == 2 != shape[1]:
        raise ValueError(
            f"{name} must have shape (m, 2), one pair of node ids for each link, got "
            f"{tuple(shape)}: transpose it (.T)"
        )
    pairs = as_list(name, values)
    require(pairs, f"{name} must hold at least one link, got none")
    for pair in pairs:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise ValueError(
                f"{name} must hold pairs of node ids, such as [(a, b), (a, c)], got {pair!r:.80}"
            )
    flat = [end for pair in pairs for end in pair]
    return find_rows(name, flat, n, node_ids).reshape(-1, 2)
