"""Rows and pairs that a search may find: selectors of rows, and constraints on pairs, as arrays."""

from dataclasses import dataclass
from typing import Any, Self

import faiss
import numpy as np

from cfe_faiss.attributes.constraints import Constraints, Permitted
from cfe_faiss.attributes.table import Attribute, Attributes, as_attributes
from cfe_faiss.base.checks import UNKNOWN, Array, Bools, Doubles, Int32s, Ints, check_type
from cfe_faiss.base.values import as_integers, as_labels, as_values
from cfe_faiss.graph import Graph, as_graph
from cfe_faiss.rows.snapshot import Snapshot

_SELECTORS = (
    faiss.IDSelectorAll,
    faiss.IDSelectorArray,
    faiss.IDSelectorBatch,
    faiss.IDSelectorBitmap,
    faiss.IDSelectorRange,
)
_COMBINATIONS = faiss.IDSelectorAnd, faiss.IDSelectorNot, faiss.IDSelectorOr, faiss.IDSelectorXOr
Limits = tuple[float, float]
"""Smallest and largest permitted distance of two numbers."""

_SOURCES = 1 << 8  # nodes whose surroundings are computed together when pairs are tested one by one
_FAR = 3  # hops; surroundings within fewer hops are small
_SURROUNDINGS = 1 << 26
"""Maximum number of entries of the surroundings of a tile's queries, from ``_FAR`` hops on."""


@dataclass(frozen=True, slots=True)
class Side:
    """Node data that the conditions compare: a row per node, or per pair for one side.

    Attributes
    ----------
    values
        Values that are compared, (n, columns) float64: a number that is equal for nodes that agree
        in all attributes of ``exact``, if there are some; codes of the attributes of ``antiexact``;
        values of the attributes that have calipers; if ``max_changed`` is given, codes of all
        attributes, where each missing value has a distinct code.
    evidence
        Whether a node may be the evidence of a pair, (n,) bool.
    nodes
        Node numbers in the graph, (n,) int64.
    """

    values: Doubles
    evidence: Bools
    nodes: Ints

    def __getitem__(self, rows: Any) -> Self:
        """Select nodes."""
        return type(self)(self.values[rows], self.evidence[rows], self.nodes[rows])


@dataclass(frozen=True, eq=False)
class Surroundings:
    """Pairs of nodes that are too near to each other in a graph.

    Attributes
    ----------
    adjacency
        Adjacency of the graph: a sparse array (n, n) of bool.
    hops
        Nodes within this number of hops are too near. 0: nodes with a common neighbour are, at any
        distance.
    """

    adjacency: Any
    hops: int

    @classmethod
    def of(cls, graph: Graph, where: Constraints) -> Self:
        """Return the surroundings that the constraints define on a graph."""
        from scipy.sparse import csr_array

        graph = graph.undirected()
        ones = np.ones(graph.num_edges, bool)
        shape = (graph.num_nodes, graph.num_nodes)
        adjacency = csr_array((ones, graph.indices, graph.indptr), shape=shape)
        hops = (where.min_hops or 1) - 1
        # Within one hop or with a common neighbour means within two hops.
        return cls(adjacency, hops if where.common_neighbors or not hops else max(hops, 2))

    @property
    def height(self) -> int:
        """Maximum number of nodes per call."""
        return max(1, _SURROUNDINGS // self.adjacency.shape[0]) if self.hops >= _FAR else 1 << 30

    def __call__(self, nodes: Ints) -> Any:
        """Return the nodes too near to each given node: sparse, (len(nodes), n).

        A node may be near itself.
        """
        near = self.adjacency[nodes]
        if not self.hops:
            return near @ self.adjacency
        for _ in range(self.hops - 1):
            near = near + near @ self.adjacency
        return near

    def hold(self, source: Ints, target: Ints) -> Bools:
        """Return a mask of the pairs, (p,) each, whose nodes are not too near to each other."""
        result = np.ones(len(source), bool)
        sources, places = np.unique(source, return_inverse=True)
        order = np.argsort(places, kind="stable")
        step = min(_SOURCES, self.height)
        for first in range(0, len(sources), step):
            pairs = order[slice(*np.searchsorted(places, [first, first + step], sorter=order))]
            near = self(sources[first : first + step]).tocoo()
            n = self.adjacency.shape[0]
            excluded_pairs = near.row.astype(np.int64) * n + near.col
            result[pairs] = ~np.isin((places[pairs] - first) * n + target[pairs], excluded_pairs)
        return result


@dataclass(frozen=True)
class Conditions:
    """Constraints on pairs of index rows, or of queries and index rows.

    Attributes
    ----------
    rows
        The rows of the index.
    usable
        Rows that may be in a pair, (n,) bool: rows without a missing value.
    limits
        Smallest and largest permitted distance of the values in the leading columns of
        ``Side.values``, (m, 2) float64.
    grouped
        Whether the first column stands for the attributes of ``exact``.
    max_changed
        Maximum number of the other columns that may differ; None for no limit.
    surroundings
        Nodes that are too near to each other in the graph; None without such a constraint.
    uses
        Maximum number of pairs per node; None for no limit.
    missing
        Number of index nodes left out for a missing value, by attribute.
    """

    rows: Side
    usable: Bools
    limits: Doubles
    grouped: bool
    max_changed: int | None
    surroundings: Surroundings | None
    uses: int | None
    missing: dict[str, int]

    @property
    def evidence(self) -> Bools:
        """Rows that may be evidence, (n,) bool."""
        return self.usable & self.rows.evidence

    @property
    def directed(self) -> bool:
        """Whether the conditions depend on which node of a pair is the evidence."""
        return not self.rows.evidence.all()

    def allow(self, source: Ints, target: Ints) -> Bools:
        """Return a mask of the pairs of rows, (p,), that are allowed in a direction."""
        rows = self.rows
        limits = self.limits
        allowed: Bools = (
            self.usable[source]
            & self.usable[target]
            & (rows.evidence[source] | rows.evidence[target])
        )
        apart = abs(rows.values[source] - rows.values[target])
        compared = apart[:, : len(limits)]
        codes = apart[:, len(limits) :]
        allowed &= ((limits[:, 0] <= compared) & (compared <= limits[:, 1])).all(axis=1)
        allowed &= (codes != 0).sum(axis=1) <= (self.max_changed or 0)
        if self.surroundings is not None:
            allowed[allowed] = self.surroundings.hold(
                rows.nodes[source[allowed]], rows.nodes[target[allowed]]
            )
        return allowed


def make_conditions(
    where: Constraints,
    snapshot: Snapshot,
    attributes: Any = None,
    graph: Any = None,
    queries: Any = None,
) -> tuple[Conditions, tuple[Side, Bools]]:
    """Return constraints as conditions on rows, and side and mask of usable new queries.

    Parameters
    ----------
    where
        The constraints.
    snapshot
        The rows.
    attributes
        Attributes of every node, in a form that :func:`cfe_faiss.attributes.table.as_attributes`
        accepts.
    graph
        Graph in a form that :func:`cfe_faiss.graph.as_graph` accepts; its nodes are the ids.
    queries
        Attributes of queries that are not stored, in a form that ``as_attributes`` accepts: row i
        is query i.

    Raises
    ------
    TypeError, ValueError
        If ``where`` does not fit the attributes or the graph, or they do not fit the ids.
    """
    check_type("where must be cfe_faiss.Constraints", where, Constraints)
    ids = snapshot.row_ids
    n = snapshot.n
    table = _table(where, ids, attributes, queries)
    total = n if table is None else len(table.ids)
    named = {} if table is None else {name: table[name] for name in where.named()}
    limits = _limits(where, named, n)
    evidence = np.ones(total, bool)
    for name, values in where.permitted.items():
        evidence &= _mask_permitted(named[name], values)
    if where.target is not None:
        evidence[:n] &= _mask_target(where.target, snapshot)
    usable = np.ones(total, bool)
    for name in where.compared():
        usable &= ~named[name].missing
    compared: list[tuple[Any, Limits]] = []  # columns, and limits of their differences
    if where.exact:
        compared.append((_groups([named[name] for name in where.exact], total), (0.0, 0.0)))
    compared += [(named[name].codes, (1.0, np.inf)) for name in where.antiexact]
    compared += [(named[name].numbers, limit) for name, limit in limits.items()]
    columns = [column for column, _ in compared] + _all_codes(where, table, total)
    values = np.array(columns, np.float64).reshape(len(columns), total).T.copy()
    side = Side(values, evidence, np.concatenate([ids, np.full(total - n, UNKNOWN)]))
    of_index = Conditions(
        rows=side[:n],
        usable=usable[:n],
        limits=np.array([limit for _, limit in compared], np.float64).reshape(-1, 2),
        grouped=bool(where.exact),
        max_changed=where.max_changed,
        surroundings=_surroundings(where, ids, graph),
        uses=where.uses,
        missing={
            name: int(count)
            for name, column in named.items()
            if (count := column.missing[:n].sum())
        },
    )
    return of_index, (side[n:], usable[n:])


# --- attributes -----------------------------------------------------------------------------------


def _table(where: Constraints, ids: Ints, attributes: Any, queries: Any) -> Attributes | None:
    """Return the attributes of the rows, followed by the queries'.

    None if no condition uses attributes.
    """
    if not where.named() and where.max_changed is None:
        return None
    if attributes is None:
        raise ValueError(f"attributes must be given for {where!r}, got None")
    table = as_attributes(attributes, "attributes")
    for name, argument in where.named().items():
        table.known(f"where.{argument}", name)
    named = table if where.max_changed is not None else table.select(where.named())
    rows = named.take(ids)
    return (
        rows if queries is None else rows.followed_by(as_attributes(queries, "queries"), "queries")
    )


def _limits(where: Constraints, named: dict[str, Attribute], n: int) -> dict[str, Limits]:
    """Return the limits of each attribute with a caliper.

    Standard deviations are over the first n nodes.
    """
    limits: dict[str, Limits] = {}
    for argument in ("caliper", "std_caliper"):
        for name, limit in getattr(where, argument).items():
            numbers = named[name].numbers
            if numbers is None:
                raise TypeError(
                    f"where.{argument} must name numeric attributes, got {name!r}, whose values "
                    f"are texts"
                )
            if np.isinf(numbers).any():
                raise ValueError(
                    f"where.{argument} must name attributes of finite numbers, got an infinite "
                    f"{name!r}"
                )
            unit = 1.0 if argument == "caliper" else _deviation(name, numbers[:n])
            limits[name] = _narrow(name, limits.get(name, (0.0, np.inf)), limit * unit)
    return limits


def _narrow(name: str, limits: Limits, limit: float) -> Limits:
    least, most = (
        (max(limits[0], -limit), limits[1]) if limit < 0 else (limits[0], min(limits[1], limit))
    )
    if least > most:
        raise ValueError(
            f"where.caliper and where.std_caliper contradict each other for {name!r}: at least "
            f"{least:g} and at most {most:g} apart"
        )
    return least, most


def _deviation(name: str, numbers: Array) -> float:
    values = numbers[~np.isnan(numbers)].astype(np.float64)
    deviation = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    if not (values != values[:1]).any():
        raise ValueError(
            f"where.std_caliper must name attributes that vary, got {name!r}, which does not"
        )
    return deviation


def _all_codes(where: Constraints, table: Attributes | None, total: int) -> list[Array]:
    """Return the codes of all attributes, (n,) each, if their number of changes is limited."""
    if where.max_changed is None or table is None:
        return []
    most = len(table) - len(where.exact)
    if where.max_changed >= most:
        raise ValueError(
            f"where.max_changed must be below {most}, the number of attributes (without those of "
            f"exact), or it has no effect, got {where.max_changed}"
        )
    distinct = -1 - np.arange(total)
    return [np.where(table[name].codes == UNKNOWN, distinct, table[name].codes) for name in table]


def _groups(columns: list[Attribute], total: int) -> Int32s:
    """Return a group number per node, equal for nodes that agree in all columns."""
    groups = np.zeros(total, np.int64)
    for column in columns:
        _, groups = np.unique(groups * (len(column.values) + 1) + column.codes, return_inverse=True)
    return groups.astype(np.int32)


def _mask_permitted(column: Attribute, values: Permitted) -> Bools:
    argument = f"where.permitted[{column.name!r}]"
    if isinstance(values, tuple):
        if column.numbers is None:
            raise TypeError(
                f"{argument} must be a list of texts, as the attribute has, got the range "
                f"{values!r}"
            )
        return (column.numbers >= values[0]) & (column.numbers <= values[1])
    if column.numbers is None:
        permitted = {str(value) for value in values}
        unknown = sorted(permitted - set(column.values))
        if unknown:
            shown = ", ".join(column.values[:20])
            raise ValueError(
                f"{argument} must hold values of the attribute ({shown}), got {unknown[0]!r}"
            )
        is_permitted = np.array([value in permitted for value in column.values] + [False])
        return is_permitted[column.codes]
    for value in values:
        if isinstance(value, str) or not hasattr(type(value), "__float__"):
            raise TypeError(f"{argument} must hold numbers, as the attribute has, got {value!r}")
    return np.isin(
        column.numbers, np.array([float(value) for value in values]).astype(column.numbers.dtype)
    )


def _mask_target(target: Any, snapshot: Snapshot) -> Bools:
    """Return a mask of the rows of the given classes, (n,)."""
    codes = snapshot.encode("where.target", as_labels("where.target", list(target), len(target)))
    absent = ~np.isin(codes, snapshot.class_counts[0])
    if absent.any():
        names = ", ".join(map(str, snapshot.label_names[:20].tolist()))
        wrong = target[int(np.argmax(absent))]
        raise ValueError(
            f"where.target must be predicted classes of nodes in the index ({names}), got {wrong!r}"
        )
    return np.isin(snapshot.labels, codes)


def _surroundings(where: Constraints, ids: Ints, graph: Any) -> Surroundings | None:
    if not where.needs_graph:
        return None
    if graph is None:
        raise ValueError(f"graph must be given for {where!r}, got None")
    surroundings = as_graph(graph)
    least = int(ids.max(initial=0)) + 1
    if surroundings.num_nodes < least and not hasattr(graph, "edge_index"):
        surroundings = as_graph(
            graph, least
        )  # an edge_index does not show trailing nodes without edges
    if surroundings.num_nodes < least:
        raise ValueError(
            f"graph must have the nodes of the index, got {surroundings.num_nodes} nodes and the id "
            f"{least - 1}"
        )
    return Surroundings.of(surroundings, where)


# --- selectors ------------------------------------------------------------------------------------


def selected(sel: Any, snapshot: Snapshot, name: str = "sel") -> Bools:
    """Return a mask of the selected rows, (n,) bool.

    Parameters
    ----------
    sel
        A ``faiss.IDSelector`` of any kind; a mask, (n,) bool, of the stored vectors in ascending
        order of id; or ids: integers (m,), a set, a range, or a single integer. Ids that are not
        stored are ignored.
    snapshot
        Snapshot of the index.
    name
        Name of ``sel`` in error messages.

    Raises
    ------
    TypeError
        If ``sel`` has another type.
    ValueError
        If the shape of a mask is not (n,), the shape of ids is not (m,), or the index has an id
        that a ``faiss.PyCallbackIDSelector`` cannot represent.
    """
    if isinstance(sel, faiss.IDSelector):
        return _by_selector(sel, snapshot.row_ids, name)
    values = _as_values(sel, name)
    if values.dtype.kind == "b":
        if values.shape != (snapshot.n,):
            raise ValueError(
                f"{name} must have shape ({snapshot.n},) as a mask, one for each stored vector in "
                f"ascending order of their ids, got {values.shape}"
            )
        return values[snapshot.members.places]
    if values.ndim != 1:
        raise ValueError(f"{name} must have shape (m,) as ids, got {values.shape}")
    is_selected = np.zeros(snapshot.n, np.bool_)
    rows = snapshot.rows_of(_as_ids(values))
    is_selected[rows[rows >= 0]] = True
    return is_selected


def selected_rows(sel: Any, snapshot: Snapshot, name: str = "sel") -> Ints:
    """Return the selected rows in ascending order; arguments and errors as in :func:`selected`."""
    if not isinstance(sel, faiss.IDSelector):
        values = _as_values(sel, name)
        if values.dtype.kind != "b" and values.ndim == 1:
            rows: Ints = np.sort(snapshot.rows_of(_as_ids(values)))
            is_new: Bools = np.append(True, rows[1:] != rows[:-1])[: len(rows)]
            return rows[(rows >= 0) & is_new]
    return np.flatnonzero(selected(sel, snapshot, name))


def calls_python(sel: Any) -> bool:
    """Return whether a selector may call Python: a callback, or a kind not known."""
    if isinstance(sel, _COMBINATIONS):
        references = getattr(sel, "referenced_objects", [])
        parts = [
            one for part in references for one in (part if isinstance(part, tuple) else (part,))
        ]
        return not parts or any(map(calls_python, parts))
    return isinstance(sel, faiss.IDSelector) and not isinstance(sel, _SELECTORS)


def accepted(sel: Any, ids: Ints, name: str) -> Ints:
    """Return the ids that a selector accepts, by calls from Python.

    An exception inside FAISS would end the process.
    """
    if isinstance(sel, faiss.PyCallbackIDSelector) and ids.size and ids.max() >= 2**32:
        raise ValueError(
            f"{name}, a PyCallbackIDSelector, takes ids below 2**32, got an index with {ids.max()}"
        )
    return ids[np.fromiter(map(sel.is_member, ids.tolist()), np.bool_, len(ids))]


def selector_of(params: Any) -> Any:
    """Return the selector of FAISS's parameters, as the original object if FAISS keeps it."""
    return getattr(params, "_sp_field_refs", {}).get("sel", params.sel)


def with_ids(params: Any, ids: Ints) -> Any:
    """Return a copy of FAISS search parameters that selects the given ids."""
    cls = type(params)
    names = [
        name
        for name in dir(cls)
        if isinstance(getattr(cls, name), property) and name not in ("sel", "thisown")
    ]
    values = {name: getattr(params, name) for name in names}
    fields = {name: value for name, value in values.items() if value is not None}
    return cls(sel=faiss.IDSelectorBatch(ids), **fields)


def _as_values(sel: Any, name: str) -> Array:
    """Return a mask or ids as an array. A single id becomes an array of one element."""
    expected = f"{name} must be a faiss.IDSelector, a mask or ids"
    if isinstance(sel, bool | np.bool_ | str | bytes) or sel is None:
        raise TypeError(f"{expected}, got {sel!r}")
    try:
        values = as_values(name, sel, floats=False)
        if values.dtype.kind != "b":
            values = as_integers(name, values)
        if values.dtype.kind == "O" and max(values.flat) >= 1 << 64:
            raise TypeError(f"{name} must be below 2**64, got {max(values.flat)}")
    except TypeError as error:
        raise TypeError(f"{expected}, got {type(sel).__name__}: {error}") from error
    return values.reshape(1) if values.ndim == 0 else values


def _as_ids(values: Array) -> Ints:
    return values[values <= np.iinfo(np.int64).max].astype(np.int64)  # larger ids cannot be stored


def _by_selector(sel: Any, ids: Ints, name: str) -> Bools:
    if calls_python(sel):
        return np.isin(ids, accepted(sel, ids, name))
    # In Python a selector tests one id per call. A range search over all ids tests them in C++.
    everything = faiss.IndexIDMap(faiss.IndexFlatIP(1))
    everything.add_with_ids(np.zeros((len(ids), 1), np.float32), ids)
    _, _, selected_ids = everything.range_search(
        np.zeros((1, 1), np.float32), -1.0, params=faiss.SearchParameters(sel=sel)
    )
    return np.isin(ids, selected_ids)
