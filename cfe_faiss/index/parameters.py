"""Evidence through FAISS's own ``search``: parameters, and a view that leaves one class out."""

from dataclasses import dataclass
from typing import Any

import faiss
import numpy as np
from numpy.typing import ArrayLike, NDArray

from cfe_faiss.attributes.constraints import Constraints
from cfe_faiss.attributes.table import as_attributes
from cfe_faiss.base.checks import as_array, as_labels
from cfe_faiss.base.text import summary
from cfe_faiss.index.selection import selected, selector_of
from cfe_faiss.index.state import State
from cfe_faiss.lists.id_map import Members
from cfe_faiss.lists.storage import Storage
from cfe_faiss.search.conditions import Conditions, with_queries
from cfe_faiss.search.constrained import Queries


@dataclass(frozen=True)
class EvidenceParameters:
    """What turns ``index.search(x, k, params=...)`` into a search for evidence.

    Attributes
    ----------
    labels
        Predicted class of each query, (nq,), or one class for all of them. It is left out of the query's results.
    nprobe
        Lists probed; by default the index's own ``nprobe``. The exact index has no lists.
    sel
        Only vectors that it selects are evidence: a ``faiss.IDSelector`` of any kind, by id; a mask, (ntotal,) of bool,
        of the stored vectors in ascending order of their ids (where ids are 0, 1, ... simply by id); or ids, (m,)
        integers, a set or range of them, or one. Ids that are not stored are passed over.
    targets
        Classes, (c,): only vectors of these are evidence. By default all known ones.
    where
        :class:`cfe_faiss.Constraints` that a query and its evidence must meet. The search is exact then, and
        ``nprobe`` must be left out.
    attributes, graph
        What the constraints are about, for every id of the index: see :func:`cfe_faiss.global_evidence`.
    queries
        Who the queries are, where constraints compare them with their evidence: stored ids, (nq,); or a table of their
        attributes, whose row i is query i (then there can be no constraints on the graph).

    Examples
    --------
    >>> import cfe_faiss as cfe
    >>> X = np.eye(4, dtype=np.float32) + 1
    >>> index = cfe.IndexEvidenceFlat(4)
    >>> index.add_with_labels(X, [0, 1, 1, 2])
    >>> D, I = index.search(X[:1], 3, params=cfe.EvidenceParameters(labels=0, sel=faiss.IDSelectorRange(2, 4)))
    >>> I
    array([[ 2,  3, -1]])
    >>> index.search(X[:1], 3, params=cfe.EvidenceParameters(labels=0, sel=[False, True, False, True]))[1]
    array([[ 1,  3, -1]])
    >>> params = cfe.EvidenceParameters(
    ...     labels=0,
    ...     where=cfe.Constraints(caliper={"age": 5}),
    ...     attributes={"age": [30, 34, 36, 33]},
    ...     queries={"age": [30]},
    ... )
    >>> index.search(X[:1], 3, params=params)[1]
    array([[ 1,  3, -1]])
    """

    labels: ArrayLike
    nprobe: int | None = None
    sel: Any = None
    targets: ArrayLike | None = None
    where: Constraints | None = None
    attributes: Any = None
    graph: Any = None
    queries: Any = None

    def __post_init__(self) -> None:
        if self.where is None:
            for name in ("attributes", "graph", "queries"):
                if getattr(self, name) is not None:
                    raise ValueError(f"params.{name} must be left out without params.where, as it has no effect then")
        elif self.nprobe is not None:
            raise ValueError(f"params.nprobe must be left out with params.where (it is exact), got {self.nprobe}")

    __repr__ = summary

    def labels_of(self, nq: int) -> NDArray[np.int32]:
        """Return the class of each of ``nq`` queries."""
        labels = as_array("params.labels", self.labels)
        return as_labels("params.labels", np.full(nq, labels) if labels.ndim == 0 else labels, nq)

    def allowed(self, state: State) -> NDArray[np.bool_] | None:
        """Return which storage rows may be evidence at all, (n,), or None where nothing is ruled out."""
        storage = state.storage
        if self.sel is None and self.targets is None:
            return None
        allowed = np.ones(storage.n, bool)
        if self.targets is not None:
            targets = as_array("params.targets", self.targets)
            allowed &= np.isin(storage.labels, as_labels("params.targets", targets, targets.size))
        if self.sel is not None:
            allowed &= selected(self.sel, state, "params.sel")
        return allowed

    def under(
        self, storage: Storage, members: Members, X: NDArray[np.float32], labels: NDArray[np.int32]
    ) -> tuple[Conditions, Queries]:
        """Return the constraints as conditions on the rows, and the queries: unit rows X, (nq, d), and labels."""
        where, nq = self.where, len(X)
        if where is None:
            raise ValueError("there are no constraints")
        if self.queries is None and where.compares:
            raise ValueError(f"params.queries must say who the queries are for {where!r}, got None")
        table = as_attributes(self.queries, "params.queries") if where.compares and not self._queries_are_ids else None
        if table is not None and where.needs_graph:
            raise ValueError(f"params.queries must be stored ids for {where!r}, got a table")
        made, (side, usable) = with_queries(where, storage.row_ids, storage.labels, self.attributes, self.graph, table)
        if not where.compares:
            side, usable = made.rows[np.zeros(nq if storage.n else 0, np.int64)], np.ones(nq, bool)
        elif table is None:
            rows = members.find(self.queries, name="params.queries")
            side, usable = made.rows[rows], made.usable[rows]
        if len(usable) != nq:
            raise ValueError(f"params.queries must describe {nq} queries, one per row of x, got {len(usable)}")
        return made, Queries(labels, side, usable, lambda some: X[some])

    @property
    def _queries_are_ids(self) -> bool:
        return np.ndim(self.queries) == 1 and not hasattr(self.queries, "columns")


class Excluding:
    """A view of an evidence index whose ``search`` leaves one class out; made by ``index.excluding(label)``.

    Everything but searching is the index's own. FAISS's C++ code would see the index without the exclusion, so it does
    not take a view.
    """

    def __init__(self, index: Any, label: int) -> None:
        self.index = index
        self.label = int(as_labels("label", np.asarray([label]), 1)[0])

    def __repr__(self) -> str:
        return f"{self.index!r}.excluding({self.label})"

    def search(
        self, x: ArrayLike, k: int, *, params: Any = None, D: Any = None, I: Any = None
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return the k nearest vectors of other classes, as ``faiss.Index.search``; ``params`` may be FAISS's own."""
        result: tuple[NDArray[np.float32], NDArray[np.int64]] = self.index.search(
            x, k, params=self._parameters(params), D=D, I=I
        )
        return result

    def range_search(self, x: ArrayLike, thresh: float, *, params: Any = None) -> Any:
        """Return all vectors of other classes with similarity >= ``thresh``: lims, D, I."""
        return self.index.range_search(x, thresh, params=self._parameters(params))

    def _parameters(self, params: Any) -> EvidenceParameters:
        nprobe = params.nprobe if isinstance(params, faiss.SearchParametersIVF) else None
        return EvidenceParameters(self.label, nprobe, None if params is None else selector_of(params))

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("index", "label"):
            super().__setattr__(name, value)
        else:
            setattr(self.index, name, value)

    def __getattr__(self, name: str) -> Any:
        if name in ("this", "index"):
            raise AttributeError(name)
        return getattr(self.index, name)
