"""What is asked of an index (the query), how hard it is searched (the effort), and how that is done (the plan)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cfe_faiss.attributes.constraints import Constraints
from cfe_faiss.attributes.table import as_attributes
from cfe_faiss.base.checks import UNKNOWN, as_array, as_count, as_labels, as_number
from cfe_faiss.coarse.partitions import assign
from cfe_faiss.rows.snapshot import Snapshot, lists_of
from cfe_faiss.rows.topk import PADDING
from cfe_faiss.search.conditions import Bools, Conditions, Ints, Side, conditions, with_queries
from cfe_faiss.search.selection import selected

MEMORY = 1 << 31
"""Bytes for copies of vectors, unless the caller says otherwise."""

Floats = NDArray[np.float32]
Results = tuple[Floats, NDArray[np.int64]]
NO_VECTORS, NO_ROWS = np.empty((0, 0), np.float32), np.empty(0, np.int64)
NO_BOOLS = np.empty(0, np.bool_)


class Effort(NamedTuple):
    """How hard to search. None: what the index says; see :meth:`over`.

    Attributes
    ----------
    nprobe, recall, exact
        In so many lists; for a recall@k in (0, 1); or exactly: one of them at most.
    memory
        Bytes for copies of vectors.
    complete
        Whether to go on in further lists until a row holds min(k, eligible) results.
    routing
        What lists are ranked by: "evidence", their members of other classes, or "nearest", their centroids.
    k_factor
        How many vectors are scored for each result, where they are screened by their codes.
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
        cls, nprobe: Any = None, recall: Any = None, exact: bool = False, memory: Any = None, **further: Any
    ) -> Effort:
        """Check the arguments of a search; a recall of 1 is exact."""
        if nprobe is None and recall is None and memory is None and not exact and not further:
            return NOT_SAID
        if (nprobe is not None) + (recall is not None) + bool(exact) > 1:
            raise ValueError(
                f"only one of nprobe, recall and exact may be given, got nprobe={nprobe}, recall={recall}, "
                f"exact={exact}"
            )
        if nprobe is not None:
            nprobe = as_count("nprobe", nprobe)
        if recall is not None:
            recall = as_number("recall", recall, math.nextafter(0, 1), 1)
            exact, recall = recall == 1, None if recall == 1 else recall
        return cls(nprobe, recall, bool(exact), None if memory is None else as_count("memory", memory), **further)

    def over(self, own: Effort) -> Effort:
        """Return the same, with what it leaves open taken from an index's own settings."""
        if self is NOT_SAID or own.routing is None:
            return own
        nprobe, recall, exact, memory, complete, routing, k_factor = self
        return own._replace(
            nprobe=own.nprobe if nprobe is None and recall is None and not exact else nprobe,
            recall=recall,
            exact=exact or (own.exact and nprobe is None and recall is None),
            memory=memory,
            complete=own.complete if complete is None else complete,
            routing=routing or own.routing,
            k_factor=k_factor or own.k_factor,
        )

    @property
    def class_aware(self) -> bool:
        """Whether lists are ranked by their members of other classes."""
        return self.routing == "evidence"


NOT_SAID = Effort()


@dataclass(frozen=True, slots=True)
class Calibration:
    """Lists probed for the queries of each class, so that a recall is reached.

    Attributes
    ----------
    nprobe
        Number of lists of each stored class.
    other
        Number of lists for other classes.
    recall
        Recall of each stored class that was measured; small classes have that of all of them together.
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

    def of(self, labels: NDArray[np.int32]) -> Ints:
        """Return the number of lists for each of some labels."""
        classes, places = np.unique(labels, return_inverse=True)
        return np.array([self.nprobe.get(label, self.other) for label in classes.tolist()], np.int64)[places]


class Plan(NamedTuple):
    """How a search goes.

    Attributes
    ----------
    engine
        What searches: a function of the queries, the plan, and what to call a progress bar.
    nprobe
        In how many lists.
    effort
        What else is said of how hard to search.
    calibration
        Lists probed by class, where queries of different classes may probe fewer lists than ``nprobe``.
    """

    engine: Callable[[Queries, Plan, str | None], Results]
    nprobe: int
    effort: Effort
    calibration: Calibration | None = None


class Rules(NamedTuple):
    """Which rows may answer a query, beside those that all queries may find.

    Attributes
    ----------
    among
        "other" classes than the query's (evidence), its "own" one, or "any", also of unknown class.
    but_labels, but_ids
        Further classes, and ids, that a query may not find: (nq, m) integers, -1 for none.
    below
        Largest similarity wanted, such as leaves near-duplicates out.
    """

    among: Literal["other", "own", "any"] = "other"
    but_labels: Ints | None = None
    but_ids: Ints | None = None
    below: float | None = None


@dataclass(slots=True, eq=False)  # not frozen: that would take as long as to search a small index
class Queries:
    """A query bound to a snapshot: arrays, of one entry for each of nq queries.

    Attributes
    ----------
    snapshot
        Whose rows answer.
    labels
        Label of each, (nq,) int32.
    k
        Results wanted for each.
    X, rows
        Unit vectors, (nq, d), or, where these are (0, 0), rows of the snapshot, (nq,).
    order
        Where the queries are all stored rows: an order, (nq,), in which those of a list follow each other.
    allowed
        Which rows may answer, (n,); None for all.
    conditions, side, usable
        Under constraints: what each pair must meet, what is compared of each query, and whether it can be met, (nq,).
    """

    snapshot: Snapshot
    labels: NDArray[np.int32]
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
    def of_rows(cls, snapshot: Snapshot, rows: Ints, k: int = 0, order: Ints | None = None) -> Queries:
        """Return stored vectors as queries."""
        return cls(snapshot, snapshot.labels[rows], k, rows=np.ascontiguousarray(rows, np.int64), order=order)

    @classmethod
    def of_vectors(cls, snapshot: Snapshot, X: Floats, labels: NDArray[np.int32], k: int = 0) -> Queries:
        """Return any unit vectors as queries."""
        return cls(snapshot, labels, k, X=np.ascontiguousarray(X, np.float32))

    @property
    def stored(self) -> bool:
        """Whether the queries are stored rows."""
        return bool(self.X.shape[1] == 0)

    def fetch(self, some: Any) -> Floats:
        """Return the vectors of some queries, (m, d)."""
        return self.snapshot.rows(self.rows[some])[0] if self.stored else self.X[some]

    def homes(self, some: Ints) -> Ints:
        """Return the list of the first partition that each of some queries lies in or is nearest to, (m,)."""
        if self.stored:
            return lists_of(self.rows[some], self.snapshot.starts)
        homes: Ints = assign(self.X[some], self.snapshot.centroids[:1])[0].astype(np.int64)
        return homes

    @property
    def in_order(self) -> Ints:
        """All queries: those of a list one after the other, where this is known."""
        return np.arange(len(self)) if self.order is None else self.order

    def places(self) -> Results:
        """Return D, I for what is found; only rows of queries with an unknown label are written, as no search does."""
        shape = len(self), min(self.k, self.snapshot.n)
        D, I = np.empty(shape, np.float32), np.empty(shape, np.int64)
        unknown = self.labels == UNKNOWN
        D[unknown], I[unknown] = PADDING, -1
        return D, I

    def subset(self, chosen: Ints) -> Queries:
        """Return some of the queries, by number."""
        some = {"rows": self.rows[chosen]} if self.stored else {"X": self.X[chosen]}
        return replace(self, labels=self.labels[chosen], order=None, **some)

    def among(self, allowed: Bools | None) -> Queries:
        """Return the same, answered by some rows only."""
        return replace(self, allowed=allowed)

    @property
    def missing(self) -> Mapping[str, int]:
        """Under constraints, by attribute: how many rows are left out because their value is missing."""
        return {} if self.conditions is None else self.conditions.missing

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, slots=True, eq=False)
class Query:
    """What is asked, in the user's terms: for which vectors, what may be evidence, and how much of it.

    It knows no index, may be pickled, and is bound to a snapshot by :meth:`on`.

    Attributes
    ----------
    k
        Results wanted for each, or
    threshold
        in place of k: the lowest similarity wanted.
    X, labels
        Unit vectors, (nq, d), and their classes, (nq,); or, in place of them,
    ids
        stored ids; None for all, in ascending order.
    sel, targets
        Which stored vectors may be evidence, and of which classes; see :class:`cfe_faiss.EvidenceParameters`.
    where, attributes, graph, queries
        Constraints, what they are about, and who the queries are.
    name
        What the arguments are called in errors is preceded by.
    rules
        Which of the stored vectors each query may find; by default those of other classes.
    """

    k: int = 0
    threshold: float | None = None
    X: Floats | None = None
    labels: NDArray[np.int32] | None = None
    ids: ArrayLike | None = None
    sel: Any = None
    targets: ArrayLike | None = None
    where: Constraints | None = None
    attributes: Any = None
    graph: Any = None
    queries: Any = None
    name: str = ""
    rules: Rules | None = None

    def on(self, snapshot: Snapshot) -> Queries:
        """Return the question on a snapshot; errors are those of wrong ids, selectors and constraints."""
        if self.X is None or self.labels is None:
            members = snapshot.members
            every = self.ids is None
            rows = members.rows if every else members.find(self.ids)  # type: ignore[arg-type]
            bound = Queries.of_rows(snapshot, rows, self.k, members.places if every else None)
        else:
            bound = Queries.of_vectors(snapshot, self.X, self.labels, self.k)
        if self.sel is not None or self.targets is not None:
            bound = bound.among(self._allowed(snapshot))
        bound.rules = self.rules
        return bound if self.where is None else self._under(bound, self.where)

    def _allowed(self, snapshot: Snapshot) -> Bools:
        allowed = np.ones(snapshot.n, bool)
        if self.targets is not None:
            name = f"{self.name}targets"
            targets = as_array(name, self.targets)
            allowed &= np.isin(snapshot.labels, as_labels(name, targets, targets.size))
        if self.sel is not None:
            allowed &= selected(self.sel, snapshot, f"{self.name}sel")
        return allowed

    def _under(self, bound: Queries, where: Constraints) -> Queries:
        snapshot, nq, name = bound.snapshot, len(bound), f"{self.name}queries"
        ids, labels, about = snapshot.row_ids, snapshot.labels, (self.attributes, self.graph)
        if bound.stored:
            made = conditions(where, ids, labels, *about)
            return replace(bound, conditions=made, side=made.rows[bound.rows], usable=made.usable[bound.rows])
        if self.queries is None and where.compares:
            raise ValueError(f"{name} must say who the queries are for {where!r}, got None")
        are_ids = np.ndim(self.queries) == 1 and not hasattr(self.queries, "columns")
        table = as_attributes(self.queries, name) if where.compares and not are_ids else None
        if table is not None and where.needs_graph:
            raise ValueError(f"{name} must be stored ids for {where!r}, got a table")
        made, (side, usable) = with_queries(where, ids, labels, *about, table)
        if not where.compares:
            side, usable = made.rows[np.zeros(nq if snapshot.n else 0, np.int64)], np.ones(nq, bool)
        elif table is None:
            rows = snapshot.members.find(self.queries, name=name)
            side, usable = made.rows[rows], made.usable[rows]
        if len(usable) != nq:
            raise ValueError(f"{name} must describe {nq} queries, one per row of x, got {len(usable)}")
        return replace(bound, conditions=made, side=side, usable=usable)
