"""Query (the question), effort (how hard to search) and plan (the engine and its parameters)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeAlias, TypedDict

import numpy as np
from numpy.typing import ArrayLike

from cfe_faiss._native import Filter
from cfe_faiss.attributes.constraints import Constraints
from cfe_faiss.attributes.table import as_attributes
from cfe_faiss.base.checks import UNKNOWN, Array, Bools, Floats, Int32s, Ints, as_count, as_number
from cfe_faiss.base.values import as_ids, as_labels, as_lists, padded
from cfe_faiss.coarse.partitions import assign
from cfe_faiss.coarse.routes import NEIGHBORS
from cfe_faiss.rows.metric import PADDING, score_at
from cfe_faiss.rows.snapshot import Snapshot, lists_of
from cfe_faiss.search.conditions import Conditions, Side, make_conditions, selected

MEMORY = 1 << 31
"""Default memory for copies of vectors, in bytes."""

Engine = Literal["exact", "lists", "groups"]
Results = tuple[Floats, Ints]
Ranges = tuple[Ints, Floats, Ints]
Certified = tuple[Floats, Ints, Bools]
NO_VECTORS = np.empty((0, 0), np.float32)
NO_ROWS = np.empty(0, np.int64)
NO_BOOLS = np.empty(0, np.bool_)
_PAIRS = tuple, list
_FEW_LABELS = 64  # a set of Python finds these sooner than NumPy sorts them


class Effort(NamedTuple):
    """How hard to search. None stands for the setting of the index; see :meth:`with_defaults`.

    Attributes
    ----------
    nprobe, recall, exact
        Number of probed lists, recall@k in (0, 1), or exact search. At most one of them.
    memory
        Memory for copies of vectors, in bytes.
    complete
        Whether to probe further lists until a row holds min(k, eligible) results.
    routing
        Ranking of lists: "evidence" by their rows of other classes, or "nearest" by their
        centroids.
    k_factor
        Number of vectors scored per result after screening by codes.
    """

    nprobe: int | None = None
    recall: float | None = None
    exact: bool = False
    memory: int | None = None
    complete: bool | None = None
    routing: str | None = None
    k_factor: float | None = None

    @classmethod
    def of(
        cls, nprobe: Any = None, recall: Any = None, exact: bool = False, memory: Any = None
    ) -> Effort:
        """Check the arguments of a search. A recall of 1 means exact."""
        if nprobe is None and recall is None and memory is None and not exact:
            return UNSET
        if (nprobe is not None) + (recall is not None) + bool(exact) > 1:
            raise ValueError(
                f"only one of nprobe, recall and exact may be given, got nprobe={nprobe}, "
                f"recall={recall}, exact={exact}"
            )
        if nprobe is not None:
            nprobe = as_count("nprobe", nprobe)
        if recall is not None:
            recall = as_number("recall", recall, 0, 1, is_open=True)
        if recall == 1:
            exact = True
            recall = None
        return cls(
            nprobe, recall, bool(exact), None if memory is None else as_count("memory", memory)
        )

    def with_defaults(self, defaults: Effort) -> Effort:
        """Return the settings of an index, with the effort's lists, recall and memory."""
        if self is UNSET or defaults.routing is None:  # an index without lists is exact
            return defaults
        if self.nprobe is None and self.recall is None and not self.exact:
            return defaults._replace(memory=self.memory)
        return defaults._replace(
            nprobe=self.nprobe, recall=self.recall, exact=self.exact, memory=self.memory
        )

    @property
    def class_aware(self) -> bool:
        """Whether lists are ranked by their rows of other classes."""
        return self.routing == "evidence"


UNSET = Effort()


@dataclass(frozen=True, slots=True)
class Calibration:
    """Number of probed lists per query class that reaches a recall.

    Attributes
    ----------
    nprobe
        Number of lists of each stored class.
    other
        Number of lists for other classes.
    recall
        Measured recall of each stored class. Small classes share one value.
    """

    nprobe: dict[int, int]
    other: int
    recall: dict[int, float]

    @property
    def most(self) -> int:
        """The largest number of lists."""
        return max([self.other, *self.nprobe.values()])

    @property
    def least(self) -> int:
        """The smallest number of lists."""
        return min([self.other, *self.nprobe.values()])

    def look_up(self, labels: Int32s) -> Ints:
        """Return the number of lists for each label, (n,)."""
        classes, places = np.unique(labels, return_inverse=True)
        return np.array(
            [self.nprobe.get(label, self.other) for label in classes.tolist()], np.int64
        )[places]


class Plan(NamedTuple):
    """Engine of a search and its parameters.

    Attributes
    ----------
    engine
        "exact": all rows that a query may find. "lists": the lists of each query. "groups": the
        lists of groups of queries that are near each other.
    nprobe
        Number of probed lists.
    effort
        Remaining settings of the search.
    calibration
        Number of probed lists per class, if some classes need fewer than ``nprobe``.
    """

    engine: Engine
    nprobe: int
    effort: Effort
    calibration: Calibration | None = None


Neighbors: TypeAlias = Literal["other", "own", "any"]


class RowOptions(TypedDict, total=False):
    """Options of searches that say which rows a query may find.

    See :meth:`cfe_faiss.index.searching.EvidenceSearcher.search_evidence`.
    """

    sel: Any
    exclude: Any
    exclude_labels: Any
    within: tuple[float, float] | None
    neighbors: Neighbors


class OptionsWithoutRecall(RowOptions, total=False):
    """Options of ``search_evidence``, which has an argument ``recall``: reading it is quicker."""

    exact: bool
    memory: int | None
    progress: bool
    per_group: int | None


class SearchOptions(OptionsWithoutRecall, total=False):
    """Options of searches; see ``search_evidence``."""

    recall: float | None


class Rules(NamedTuple):
    """Rules that limit which rows a query may find. A stored query never finds itself.

    Attributes
    ----------
    neighbors
        Classes that a query may find: "other" than its own (evidence), its "own", or "any",
        including unknown.
    excluded_labels, excluded_ids
        Excluded classes and ids of each query: sequences, or (nq, m) integers, -1 for none.
    within
        Smallest and largest D of a result, for example to exclude near-duplicates; in bound rules,
        of its score.
    per_label
        Whether k results of each stored class are wanted, (nq, classes, k), instead of k results.
    per_group
        Maximum number of results of one class, for each query; None without a limit.
    """

    neighbors: Neighbors = "other"
    excluded_labels: Any = None
    excluded_ids: Any = None
    within: tuple[float, float] | None = None
    per_label: bool = False
    per_group: int | None = None

    @classmethod
    def of(cls, options: SearchOptions | RowOptions, name: str = "") -> Rules | None:
        """Check the rules among the options of a search; ``name`` is a prefix of their names.

        None if each has its default.
        """
        exclude = options.get("exclude")
        exclude_labels = options.get("exclude_labels")
        within = options.get("within")
        neighbors = options.get("neighbors", "other")
        per_group = options.get("per_group")
        if exclude is exclude_labels is within is per_group is None and neighbors == "other":
            return None
        if neighbors not in NEIGHBORS:
            raise ValueError(f"{name}neighbors must be 'other', 'own' or 'any', got {neighbors!r}")
        limit = None if per_group is None else as_count(f"{name}per_group", per_group)
        ends = None if within is None else _as_range(f"{name}within", within)
        return cls(neighbors, exclude_labels, exclude, ends, False, limit)

    @property
    def take_one_search(self) -> bool:
        """Whether one search applies all rules: none depends on the other results of a query."""
        return self.per_group is None

    @property
    def calibration_key(self) -> tuple[Any, ...]:
        """The part of the key of a calibration that depends on rules; a file holds none."""
        has_default = self.neighbors == "other" and self.within is None
        return () if has_default else (self.neighbors, self.within)

    def bind(self, snapshot: Snapshot, nq: int, name: str = "", rows: Ints = NO_ROWS) -> Rules:
        """Return rules with excluded classes and ids of ``nq`` queries as checked arrays.

        Queries that are the stored ``rows`` exclude themselves.
        """
        labels = self.excluded_labels
        ids = self.excluded_ids
        within = self.within
        if within is not None:
            low, high = within
            ends = score_at(low, snapshot.metric), score_at(high, snapshot.metric)
            within = min(ends), max(ends)
        if labels is not None:
            labels = _excluded_codes(f"{name}exclude_labels", labels, nq, snapshot)
        if ids is not None:
            values, lengths = as_lists(f"{name}exclude", ids, nq)
            ids = padded(as_ids(f"{name}exclude", values, lowest=UNKNOWN), lengths)
        if len(rows) and self.neighbors != "other":
            query_ids = snapshot.row_ids[rows][:, None]
            ids = query_ids if ids is None else np.column_stack([query_ids, ids])
        # `_replace` takes four times as long.
        return Rules(self.neighbors, labels, ids, within, self.per_label, self.per_group)

    def native(self, chosen: Any = None, allowed: Bools | None = None, *pairs: Any) -> Filter:
        """Return the bound rules of some queries, or of all (None), for the core.

        ``allowed``: mask of the rows; ``pairs``: values, limits and number of changes of conditions
        on pairs.
        """
        low, high = self.within or (-math.inf, math.inf)
        rules = self if chosen is None else self.subset(chosen)
        excluded = rules.excluded_labels, rules.excluded_ids
        return Filter(NEIGHBORS.index(self.neighbors), *excluded, low, high, allowed, *pairs)

    def subset(self, chosen: Any) -> Rules:
        """Return the bound rules of some queries."""
        labels, ids = (
            None if part is None else part[chosen]
            for part in (self.excluded_labels, self.excluded_ids)
        )
        return self._replace(excluded_labels=labels, excluded_ids=ids)


def _excluded_codes(name: str, labels: Any, nq: int, snapshot: Snapshot) -> Int32s:
    """Return the codes of the excluded labels of each query, (nq, m), checked."""
    values, lengths = as_lists(name, labels, nq)
    known = as_labels(name, values, len(values), unknown=True)
    codes = snapshot.encode(name, known)
    distinct = codes if len(codes) <= _FEW_LABELS else np.unique(codes)
    if not snapshot.known_codes.issuperset(distinct.tolist()):
        absent = [code not in snapshot.known_codes for code in codes.tolist()].index(True)
        label = known[absent : absent + 1].tolist()[0]
        raise ValueError(f"{name} must hold stored labels, got {label!r}")
    return padded(codes, lengths)


def _as_range(name: str, within: Any) -> tuple[float, float] | None:
    """Return the ends of a range, checked; None if it holds every number."""
    if not isinstance(within, _PAIRS) or len(within) != 2:
        raise TypeError(f"{name} must be two numbers, (low, high), got {within!r}")
    low = as_number(name, within[0], -math.inf, math.inf)
    high = as_number(name, within[1], -math.inf, math.inf)
    if low > high:
        raise ValueError(f"{name} must be (low, high) with low <= high, got {within!r}")
    return None if (low, high) == (-math.inf, math.inf) else (low, high)


# Not frozen: a frozen class takes as long to build as a small search.
@dataclass(slots=True, eq=False)
class Queries:
    """A query bound to a snapshot, as arrays with one entry per query.

    Attributes
    ----------
    snapshot
        Snapshot that is searched.
    labels
        Label of each query, (nq,) int32.
    k
        Number of results per query.
    X, rows
        Vectors, (nq, d), normalised for "cosine". If X is (0, 0), the queries are these rows of the
        snapshot, (nq,).
    order
        If the queries are all stored rows: a permutation, (nq,), that groups them by list.
    allowed
        Mask of the rows that may be results, (n,); None for all rows.
    conditions, side, usable
        Under constraints: the conditions on pairs, the data that they compare, and a mask of the
        queries that can meet them, (nq,).
    rules
        Bound rules of the queries; None for all rows of other classes.
    """

    snapshot: Snapshot
    labels: Int32s
    k: int = 0
    X: Floats = field(default_factory=lambda: NO_VECTORS)
    rows: Ints = field(default_factory=lambda: NO_ROWS)
    order: Ints | None = None
    allowed: Bools | None = None
    conditions: Conditions | None = None
    side: Side | None = None
    usable: Bools = field(default_factory=lambda: NO_BOOLS)
    rules: Rules | None = None

    @classmethod
    def of_rows(
        cls, snapshot: Snapshot, rows: Ints, k: int = 0, order: Ints | None = None
    ) -> Queries:
        """Return stored vectors as queries."""
        return cls(
            snapshot,
            snapshot.labels[rows],
            k,
            rows=np.ascontiguousarray(rows, np.int64),
            order=order,
        )

    @property
    def stored(self) -> bool:
        """Whether the queries are stored rows."""
        return bool(self.X.shape[1] == 0)

    @property
    def all_rows(self) -> bool:
        """Whether the queries are all stored rows, and every row may be found."""
        return self.order is not None and self.allowed is None

    @property
    def neighbors(self) -> str:
        """Which classes the queries may find."""
        return "other" if self.rules is None else self.rules.neighbors

    def filter(self, chosen: Any = None, *pairs: Any, masked: bool = True) -> Filter | None:
        """Return the rules of some queries, or of all, for the core; None for the default.

        ``masked``: with the mask of rows, if not only allowed rows are compared; ``pairs``: see
        :meth:`Rules.native`.
        """
        allowed = self.allowed if masked else None
        if self.rules is None and allowed is None and not pairs:
            return None
        return (self.rules or Rules()).native(chosen, allowed, *pairs)

    def candidates(self) -> Ints:
        """Return the rows that some query may find, by label if the policy depends on labels."""
        rows = np.arange(self.snapshot.n) if self.neighbors == "any" else self.snapshot.by_label
        return rows if self.allowed is None else rows[self.allowed[rows]]

    def fetch(self, chosen: Any) -> Floats:
        """Return the vectors of some queries, (m, d)."""
        return self.snapshot.rows(self.rows[chosen])[0] if self.stored else self.X[chosen]

    def own_lists(self, chosen: Ints) -> Ints:
        """Return the list in the first partition of each query, (m,); of new ones the nearest."""
        if self.stored:
            return lists_of(self.rows[chosen], self.snapshot.starts)
        lists: Ints = assign(self.X[chosen], self.snapshot.centroids[:1], self.snapshot.metric)[
            0
        ].astype(np.int64)
        return lists

    @property
    def in_order(self) -> Ints:
        """All query numbers, grouped by list if ``order`` is known."""
        return np.arange(len(self)) if self.order is None else self.order

    def allocate_results(self) -> Results:
        """Allocate D, I for the results.

        Pad the rows of queries of unknown label, which no engine writes.
        """
        shape = len(self), min(self.k, self.snapshot.n)
        D = np.empty(shape, np.float32)
        I = np.empty(shape, np.int64)
        unknown = self.labels == UNKNOWN
        D[unknown] = PADDING
        I[unknown] = -1
        return D, I

    def subset(self, chosen: Ints) -> Queries:
        """Return the queries with the given numbers."""
        changes: dict[str, Any] = (
            {"rows": self.rows[chosen]} if self.stored else {"X": self.X[chosen]}
        )
        if self.side is not None:
            changes |= {"side": self.side[chosen], "usable": self.usable[chosen]}
        rules = None if self.rules is None else self.rules.subset(chosen)
        return replace(self, labels=self.labels[chosen], order=None, rules=rules, **changes)

    def excluding(self, labels: Int32s) -> Queries:
        """Return the same queries with further excluded classes, (nq, m), -1 for none."""
        rules = self.rules or Rules()
        if rules.excluded_labels is not None:
            labels = np.column_stack([rules.excluded_labels, labels])
        excluded = np.ascontiguousarray(labels, np.int32)
        return replace(self, rules=rules._replace(excluded_labels=excluded))

    def among(self, rows: Bools) -> Queries:
        """Return the same queries for allowed rows within a mask, (n,)."""
        return replace(self, allowed=rows if self.allowed is None else rows & self.allowed)

    @property
    def uses(self) -> int | None:
        """Maximum number of times that constraints let a row be evidence; None without a limit."""
        return None if self.conditions is None else self.conditions.uses

    @property
    def missing(self) -> Mapping[str, int]:
        """Number of rows that constraints leave out for a missing value, by attribute."""
        return {} if self.conditions is None else self.conditions.missing

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, slots=True, eq=False)
class Query:
    """A query in the user's terms: vectors or ids, rules, and the number of results.

    A query holds no index and can be pickled. :meth:`bind` binds it to a snapshot.

    Attributes
    ----------
    k
        Number of results per query.
    threshold
        Lowest similarity, or largest squared distance, for a range search (instead of k).
    X, labels
        Vectors, (nq, d), normalised for "cosine", and their classes, (nq,), in the form of
        ``values.as_labels``.
    ids
        Stored ids, if X and labels are None; None for all ids, in ascending order.
    sel, targets
        Stored vectors and classes that may be evidence; see :class:`cfe_faiss.EvidenceParameters`.
    where, attributes, graph, queries
        Constraints, the node attributes and the graph that they use, and the attributes or ids of
        the queries.
    name
        Prefix of argument names in error messages.
    rules
        Rules for the rows that each query may find; by default, rows of other classes.
    """

    k: int = 0
    threshold: float | None = None
    X: Floats | None = None
    labels: Array | None = None
    ids: ArrayLike | None = None
    sel: Any = None
    targets: ArrayLike | None = None
    where: Constraints | None = None
    attributes: Any = None
    graph: Any = None
    queries: Any = None
    name: str = ""
    rules: Rules | None = None

    def bind(self, snapshot: Snapshot) -> Queries:
        """Bind the query to a snapshot.

        Raise the errors of invalid ids, selectors and constraints.
        """
        if self.X is not None and self.labels is not None:
            codes = snapshot.encode(f"{self.name}labels" if self.name else "labels_q", self.labels)
            bound = Queries(snapshot, codes, self.k, np.ascontiguousarray(self.X, np.float32))
        elif self.ids is not None:
            bound = Queries.of_rows(snapshot, snapshot.find(self.ids), self.k)
        else:
            members = snapshot.members
            bound = Queries.of_rows(snapshot, members.rows, self.k, members.places)
        if self.sel is not None or self.targets is not None:
            bound = bound.among(self._mask_allowed(snapshot))
        if self.rules is not None:
            bound.rules = self.rules.bind(snapshot, len(bound), self.name, bound.rows)
            if bound.rules.neighbors == "any":
                # Every row is of another class than one that no row has.
                bound.labels = np.full(len(bound), snapshot.absent_label, np.int32)
        return bound if self.where is None else self._add_conditions(bound, self.where)

    def _mask_allowed(self, snapshot: Snapshot) -> Bools:
        allowed = np.ones(snapshot.n, bool)
        if self.targets is not None:
            name = f"{self.name}targets"
            targets = as_labels(name, self.targets, np.size(self.targets))
            allowed &= np.isin(snapshot.labels, snapshot.encode(name, targets))
        if self.sel is not None:
            allowed &= selected(self.sel, snapshot, f"{self.name}sel")
        return allowed

    def _add_conditions(self, bound: Queries, where: Constraints) -> Queries:
        snapshot = bound.snapshot
        name = f"{self.name}queries"
        rows = bound.rows  # stored rows with the attributes of the queries
        table = None
        if not bound.stored and not where.compares:
            rows = np.zeros(len(bound) if snapshot.n else 0, np.int64)
        elif not bound.stored:
            if self.queries is None:
                raise ValueError(f"{name} must say who the queries are for {where!r}, got None")
            if np.ndim(self.queries) == 1 and not hasattr(self.queries, "columns"):
                rows = snapshot.find(self.queries, name=name)
            else:
                table = as_attributes(self.queries, name)
        if table is not None and where.needs_graph:
            raise ValueError(f"{name} must be stored ids for {where!r}, got a table")
        conditions, (side, usable) = make_conditions(
            where, snapshot, self.attributes, self.graph, table
        )
        if table is None:
            side = conditions.rows[rows]
            usable = conditions.usable[rows] if where.compares else np.ones(len(bound), bool)
        if len(usable) != len(bound):
            raise ValueError(
                f"{name} must describe {len(bound)} queries, one per row of x, got {len(usable)}"
            )
        return replace(bound, conditions=conditions, side=side, usable=usable)
