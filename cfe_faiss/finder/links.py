"""Links of a graph as the rows of a finder: their ends, ids, vectors, attributes, and a rule.

The rule says that a link and its evidence share no end. It is a condition on a graph of links and
nodes, in which edges join every link with its two ends: two links share an end if and only if they
have a common neighbour there.
"""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from cfe_faiss.attributes.constraints import Constraints
from cfe_faiss.attributes.table import Attribute, Attributes
from cfe_faiss.base.checks import UNKNOWN, Array, Floats, Ints, as_array, check_shape
from cfe_faiss.base.values import as_ids, as_list, as_objects, find_rows, row_numbers
from cfe_faiss.graph import Graph, as_graph

_STEPS = 30
"""Steps that find the main axis of the differences of ends."""
_MOST_GROUPS = 10
"""Most values of a numeric attribute that are groups."""


def link_vectors(X: Floats, ends: Ints, *, directed: bool = False) -> Floats:
    """Return the vector of each link: the KS vectors of its two ends beside each other.

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
    ordered = ends if directed else _in_order(X, ends)
    return np.hstack([X[ordered[:, 0]], X[ordered[:, 1]]])


def _in_order(X: Floats, ends: Ints) -> Ints:
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
    """Links between the nodes of a graph, each pair (a, b) once.

    Without direction (b, a) is the same link as (a, b) in another row: their vectors are equal.

    Attributes
    ----------
    ends
        Node numbers of the two ends of each link, (m, 2) int64: source and target if ``directed``.
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
    directed: bool
    shared_ends: bool
    node_ids: Array | None
    graph: Graph

    @classmethod
    def of(
        cls,
        data: Any,
        links: Any,
        n: int,
        node_ids: Array | None,
        *,
        directed: bool,
        shared_ends: bool,
    ) -> Self:
        """Return checked links; see :meth:`cfe_faiss.EvidenceFinder.from_links`."""
        ends = _ends_of(data, n) if links is None else _as_pairs("links", links, n, node_ids)
        m = len(ends)
        names = np.arange(n) if node_ids is None else node_ids
        loops = ends[ends[:, 0] == ends[:, 1], 0]
        if len(loops):
            raise ValueError(
                f"links must join two different nodes, got one of {names[loops[0]]!r} with itself"
            )
        first = np.unique(_keys(ends, n), return_index=True)[1]
        if len(first) < m:
            again = names[ends[np.setdiff1d(np.arange(m), first)[0]]].tolist()
            raise ValueError(f"links must hold each pair once, got {again} again")
        joined = np.stack([np.repeat(np.arange(m), 2), m + ends.reshape(-1)])
        return cls(ends, directed, shared_ends, node_ids, as_graph(joined, m + n))

    def __len__(self) -> int:
        return len(self.ends)

    def __repr__(self) -> str:
        kind = "directed" if self.directed else "undirected"
        return f"Links({len(self):,} {kind} links of {self.num_nodes:,} nodes)"

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return self.graph.num_nodes - len(self.ends)

    def ids(self) -> Array:
        """Return the id of each link as text, (m,): "a - b", or "a > b" if ``directed``.

        Where an id of a node holds the sign, ids of nodes are quoted.
        """
        sign = " > " if self.directed else " - "
        texts = list(map(str, range(self.num_nodes) if self.node_ids is None else self.node_ids))
        if any(sign in text for text in texts):
            texts = list(map(repr, texts))
        return as_objects(f"{texts[a]}{sign}{texts[b]}" for a, b in self.ends.tolist())

    def rows(self, name: str, values: Any, ids: Array | None) -> Ints:
        """Return the number of each link, (m,): of pairs of node ids, of link ids, or of a mask.

        A pair of undirected links is that of this order, else that of the other order.

        Raises
        ------
        TypeError, ValueError
            If a node or a link is unknown; the error names ``name``.
        """
        is_single = isinstance(values, str | bytes) or not hasattr(values, "__iter__")
        listed = [] if is_single else as_list(name, values)
        if not any(isinstance(value, tuple | list) for value in listed):
            return row_numbers(name, values, len(self), ids)
        pairs = _as_pairs(name, listed, self.num_nodes, self.node_ids)
        keys = _keys(self.ends, self.num_nodes)
        row_of = dict(zip(keys.tolist(), range(len(keys)), strict=True))
        both = [_keys(order, self.num_nodes).tolist() for order in (pairs, pairs[:, ::-1])]
        rows = []
        for pair, key, turned in zip(listed, *both, strict=True):
            row = row_of.get(key)
            if row is None and not self.directed:
                row = row_of.get(turned)
            if row is None:
                raise ValueError(f"{name} must name links of the finder, got {tuple(pair)!r}")
            rows.append(row)
        return np.array(rows, np.int64)

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
        """Return the attributes of the links, and the names of those that tell within from across.

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
            If a name is unknown, or an attribute has too many numbers for groups.
        """
        nodes = Attributes({}, np.arange(self.num_nodes)) if nodes is None else nodes
        columns: dict[str, Any] = {}
        between = {}
        for name in (nodes.known("sensitive", group) for group in groups):
            _check_groups(nodes[name])
            codes = nodes[name].codes[self.ends]
            crosses = np.where((codes == UNKNOWN).any(axis=1), UNKNOWN, codes[:, 0] != codes[:, 1])
            between[f"{name} between ends"] = (crosses, ["within", "across"])
        neighbours = _adjacency(graph)
        degrees = np.diff(neighbours.indptr).astype(np.float64)
        known: dict[str, Any] = {"degree": degrees, **nodes}
        of_nodes = Attributes(known, np.arange(self.num_nodes))
        sides = [of_nodes.take(self.ends[:, side]) for side in (0, 1)]
        for name in of_nodes:
            columns |= self._of_ends(sides[0][name], sides[1][name])
        a, b = (neighbours[self.ends[:, side]] for side in (0, 1))
        shared = np.asarray(a.multiply(b).sum(axis=1), np.float64).reshape(-1)
        columns = {**between, "common neighbours": shared, **columns}
        return Attributes(columns, np.arange(len(self))), tuple(between)

    def _of_ends(self, first: Attribute, second: Attribute) -> dict[str, Any]:
        """Return an attribute of both ends: of source and target, or without their order."""
        name = first.name
        if self.directed:
            return {f"{name} of source": first, f"{name} of target": second}
        if first.numbers is not None and second.numbers is not None:
            lower = np.minimum(first.numbers, second.numbers)
            higher = np.maximum(first.numbers, second.numbers)
            return {f"{name}, lower": lower, f"{name}, higher": higher}
        codes = np.sort(np.stack([first.codes, second.codes], axis=1), axis=1).astype(np.int64)
        pairs, numbers = np.unique(codes, axis=0, return_inverse=True)
        known = np.flatnonzero(pairs[:, 0] != UNKNOWN)
        place_of = np.full(len(pairs), UNKNOWN)
        place_of[known] = np.arange(len(known))
        texts = [f"{first.values[i]} & {first.values[j]}" for i, j in pairs[known].tolist()]
        if len(set(texts)) < len(texts):  # values that hold " & "
            texts = [f"{first.values[i]!r} & {first.values[j]!r}" for i, j in pairs[known].tolist()]
        return {f"{name} of ends": (place_of[numbers.reshape(-1)], texts)}


def _check_groups(attribute: Attribute) -> None:
    count = len(attribute.values)
    if attribute.numbers is not None and count > _MOST_GROUPS:
        raise ValueError(
            f"sensitive must name groups of nodes, got {attribute.name!r} with {count:,} numbers: "
            "cut them into texts such as '18-35' first"
        )


def _adjacency(graph: Graph) -> Any:
    """Return edges in both directions as a SciPy matrix of ones, (n, n)."""
    from scipy.sparse import csr_array

    edges = graph.undirected()
    ones = np.ones(edges.num_edges, np.float32)
    return csr_array((ones, edges.indices, edges.indptr), shape=(edges.num_nodes,) * 2)


def _keys(ends: Ints, n: int) -> Ints:
    """Return one number for each pair of ends, (m,)."""
    keys: Ints = ends[:, 0] * n + ends[:, 1]
    return keys


def _ends_of(data: Any, n: int) -> Ints:
    """Return the ends of the links of ``data.edge_label_index``, (m, 2)."""
    given = getattr(data, "edge_label_index", None)
    if given is None:
        raise ValueError(
            f"links must be given, or data have edge_label_index, got {type(data).__name__} "
            f"without it"
        )
    name = "data.edge_label_index"
    pairs = as_array(name, given)
    check_shape(name, pairs, (2, "m"), "two ends of each link")
    return as_ids(name, pairs.T.reshape(-1), n).reshape(-1, 2)


def _as_pairs(name: str, values: Any, n: int, node_ids: Array | None) -> Ints:
    """Return the node numbers of pairs of node ids, (m, 2)."""
    shape = getattr(values, "shape", None)
    if shape is not None and len(shape) == 2 and shape[0] == 2 != shape[1]:
        raise ValueError(
            f"{name} must have shape (m, 2), one pair of node ids for each link, got "
            f"{tuple(shape)}: transpose it (.T)"
        )
    pairs = [list(pair) if isinstance(pair, tuple) else pair for pair in as_list(name, values)]
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != 2:
            raise ValueError(
                f"{name} must hold pairs of node ids, such as [(a, b), (a, c)], got {pair!r:.80}"
            )
    if not pairs:
        raise ValueError(f"{name} must hold at least one link, got none")
    flat = [end for pair in pairs for end in pair]
    return find_rows(name, flat, n, node_ids).reshape(-1, 2)
