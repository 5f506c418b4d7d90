"""FAISS's own methods on an evidence index: parameters, views, and FAISS's outputs."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

import faiss
import numpy as np
from numpy.typing import ArrayLike

from cfe_faiss.attributes.constraints import Constraints
from cfe_faiss.base.checks import Array, Floats, as_array
from cfe_faiss.base.text import summary
from cfe_faiss.base.values import as_labels
from cfe_faiss.rows.faiss_functions import is_same
from cfe_faiss.search.conditions import selector_of
from cfe_faiss.search.query import Effort, Neighbors, Query, Rules, SearchOptions

T = TypeVar("T", bound=Array)

_NUMERIC_TYPES = {faiss.Float32: np.float32, faiss.Float16: np.float16, faiss.Int8: np.int8}


@dataclass(frozen=True)
class EvidenceParameters:
    """Parameters that turn ``index.search(x, k, params=...)`` into a search for evidence.

    Attributes
    ----------
    labels
        Predicted class of each query, (nq,), or one class for all queries. The results exclude it.
    nprobe
        Number of lists to probe; by default the ``nprobe`` of the index. Not for an index without
        lists, with ``where`` or in a range search.
    sel
        Vectors that may be evidence: a ``faiss.IDSelector`` of any kind, by id; a mask, (ntotal,)
        of bool, of the stored vectors in ascending order of their ids; or ids, (m,) integers, a
        set, a range or a single id. Ids that are not stored are ignored.
    targets
        Classes, (c,), whose vectors may be evidence. By default all known classes.
    where
        :class:`cfe_faiss.Constraints` that a query and its evidence must meet. Such a search is
        exact.
    attributes, graph
        Attributes and graph that the constraints use, for every id of the index: see
        :func:`cfe_faiss.global_evidence`.
    queries
        Queries as stored ids, (nq,), or as a table of their attributes, whose row i is query i, for
        constraints that compare them with their evidence. Constraints on the graph need ids.
    recall, exact, memory
        As in ``search_evidence``. Not in a range search, except ``exact``; no ``recall`` with
        ``where``.
    exclude, exclude_labels, within, neighbors, per_group
        As in ``search_evidence``: rules for the rows that each query may find. ``per_group`` not in
        a range search.

    Examples
    --------
    >>> import cfe_faiss as cfe
    >>> X = np.eye(4, dtype=np.float32) + 1
    >>> index = cfe.IndexEvidenceFlat(4)
    >>> index.add_with_labels(X, [0, 1, 1, 2])
    >>> params = cfe.EvidenceParameters(labels=0, sel=faiss.IDSelectorRange(2, 4))
    >>> index.search(X[:1], 3, params=params)[1]
    array([[ 2,  3, -1]])
    >>> params = cfe.EvidenceParameters(labels=0, sel=[False, True, False, True])
    >>> index.search(X[:1], 3, params=params)[1]
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
    recall: float | None = None
    exact: bool = False
    memory: int | None = None
    exclude: Any = None
    exclude_labels: Any = None
    within: tuple[float, float] | None = None
    neighbors: Neighbors = "other"
    per_group: int | None = None

    def __post_init__(self) -> None:
        if self.where is None:
            for name in ("attributes", "graph", "queries"):
                if getattr(self, name) is not None:
                    raise ValueError(
                        f"params.{name} must be left out without params.where, as it has no effect "
                        f"then"
                    )
        else:
            self._refuse(("nprobe", "recall"), "with params.where (it is exact)")

    __repr__ = summary

    def check_range(self) -> None:
        """Raise ValueError if an option has no effect in a range search."""
        self._refuse(("nprobe", "recall", "memory"), "in a range search (it is exact)")
        self._refuse(("per_group",), "in a range search, which returns all rows")

    def _refuse(self, names: tuple[str, ...], where: str) -> None:
        for name in names:
            if getattr(self, name) is not None:
                raise ValueError(
                    f"params.{name} must be left out {where}, got {getattr(self, name)}"
                )

    def query(self, X: Floats, **many: Any) -> Query:
        """Return the query about unit vectors, (nq, d); ``many`` is k or threshold."""
        label_values = [self.labels] * len(X) if np.ndim(self.labels) == 0 else self.labels
        labels = as_labels("params.labels", label_values, len(X), unknown=self.neighbors == "any")
        shared_options = {
            name: getattr(self, name)
            for name in ("sel", "targets", "where", "attributes", "graph", "queries")
        }
        return Query(
            X=X, labels=labels, name="params.", rules=self._rules, **shared_options, **many
        )

    @property
    def _rules(self) -> Rules | None:
        options: SearchOptions = {
            "exclude": self.exclude,
            "exclude_labels": self.exclude_labels,
            "within": self.within,
            "neighbors": self.neighbors,
            "per_group": self.per_group,
        }
        return Rules.of(options, "params.")

    @property
    def plain(self) -> bool:
        """Whether only labels and the number of lists, or a recall, are given."""
        rows = (
            self.sel is None and self.targets is None and self.where is None and self._rules is None
        )
        return (
            rows
            and not self.exact
            and self.memory is None
            and (self.recall is None or self.nprobe is None)
        )

    @property
    def effort(self) -> Effort:
        """How hard to search."""
        return Effort.of(self.nprobe, self.recall, self.exact, self.memory)


class Excluding:
    """A view of an evidence index whose ``search`` leaves one class out.

    Made by ``index.excluding(label)``.

    Everything but searching is the index's own. FAISS's C++ code would see the index without the
    exclusion, so it does not take a view.
    """

    def __init__(self, index: Any, label: int | str) -> None:
        self.index = index
        self.label = as_labels("label", [label], 1).tolist()[0]

    def __repr__(self) -> str:
        return f"{self.index!r}.excluding({self.label})"

    def search(
        self, x: ArrayLike, k: int, *, params: Any = None, D: Any = None, I: Any = None
    ) -> Any:
        """Return the k nearest vectors of other classes, as ``faiss.Index.search``.

        ``params`` may be FAISS's own.
        """
        return self.index.search(x, k, params=self._parameters(params), D=D, I=I)

    def range_search(self, x: ArrayLike, thresh: float, *, params: Any = None) -> Any:
        """Return all vectors of other classes nearer than ``thresh``, as FAISS: lims, D, I."""
        return self.index.range_search(
            x, thresh, params=replace(self._parameters(params), nprobe=None)
        )

    def _parameters(self, params: Any) -> EvidenceParameters:
        # FAISS passes over it, too
        in_lists = self.index.has_lists and isinstance(params, faiss.SearchParametersIVF)
        nprobe = params.nprobe if in_lists else None
        return EvidenceParameters(
            self.label, nprobe, None if params is None else selector_of(params)
        )

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("index", "label"):
            super().__setattr__(name, value)
        else:
            setattr(self.index, name, value)

    def __getattr__(self, name: str) -> Any:
        if name in ("this", "index"):
            raise AttributeError(name)
        return getattr(self.index, name)


# --- FAISS's methods and their arguments ----------------------------------------------------------


def lock_method(name: str) -> Callable[..., Any]:
    """Return FAISS's method ``name`` as a method that holds the read lock."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if "params" in kwargs:
            kwargs["params"] = self.without_callbacks(kwargs["params"])
        with self._lock.reading():
            self._check_mapped()
            return getattr(self._stock, name)(self, *args, **kwargs)

    of_faiss = getattr(faiss.IndexIVFFlat, name)
    method.__name__ = name
    method.__qualname__ = name
    method.__doc__ = of_faiss.__doc__
    return method


def part_of(params: Any, name: str) -> Any:
    """Return the parameters inside of others, as the object given, if FAISS keeps it."""
    part = getattr(params, name)
    parts = (
        *getattr(params, "_sp_field_refs", {}).values(),
        *getattr(params, "referenced_objects", ()),
    )
    return next((one for one in parts if part is not None and is_same(one, part)), part)


def as_numeric(x: Any, numeric_type: int) -> Any:
    """Round vectors to FAISS's ``numeric_type``, as FAISS's methods do."""
    if numeric_type not in _NUMERIC_TYPES:
        raise ValueError(
            f"numeric_type must be Float32, Float16 or Int8 of faiss, got {numeric_type!r}"
        )
    if numeric_type == faiss.Float32:
        return x
    return as_array("x", x).astype(_NUMERIC_TYPES[numeric_type])


def written(name: str, result: T, out: Any) -> T:
    """Write a result into the caller's array or tensor ``out``, if given, and return it."""
    if out is None:
        return result
    target = out.numpy() if _is_tensor(out) else out
    if (
        not isinstance(target, np.ndarray)
        or target.shape != result.shape
        or target.dtype != result.dtype
    ):
        raise ValueError(
            f"{name} must be a {result.dtype} array of shape {result.shape}, got {out!r}"
        )
    target[:] = result
    return cast(T, out)


def hand_out(x: Any, results: Iterable[Any], **out: Any) -> tuple[Any, ...]:
    """Return results for queries ``x``, written into the caller's arrays or tensors if given.

    ``out`` are these arrays by name, None for a new one. Results are tensors if ``x`` is one and
    ``faiss.contrib.torch_utils`` is in use, which patches FAISS's classes.
    """
    filled = [written(*each) for each in zip(out, results, out.values(), strict=True)]
    if not _is_tensor(x) or not hasattr(faiss.Index, "search_numpy"):
        return tuple(filled)
    import torch

    return tuple(
        torch.from_numpy(result) if isinstance(result, np.ndarray) else result for result in filled
    )


def _is_tensor(x: Any) -> bool:
    return hasattr(x, "detach")
