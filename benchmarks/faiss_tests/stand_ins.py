"""Replacement of the module ``faiss`` in FAISS's tests: some of its classes create evidence indexes.

Indexes are replaced in the tests themselves only: FAISS's own code, including ``faiss.contrib``, uses the stock
classes.
"""

import types
from collections.abc import Callable
from typing import Any

import faiss

import cfe_faiss as cfe

METRICS = faiss.METRIC_INNER_PRODUCT, faiss.METRIC_L2
KEPT = faiss.ScalarQuantizer.QT_8bit, faiss.ScalarQuantizer.QT_fp16


class Replaced(set[str]):
    """Names of the stock classes that the current test has replaced. ``report`` is called for each new name."""

    report: Callable[[str], None] | None = None

    def add(self, name: str) -> None:
        if name not in self and self.report is not None:
            self.report(name)
        super().add(name)


made = Replaced()


class StandIn(type):
    """Metaclass of classes that compare equal to a stock class, and create other objects when called."""

    _stock: Any
    _make: Callable[..., Any]

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls._make(*args, **kwargs)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls._stock)

    def __eq__(cls, other: object) -> bool:
        return other is cls._stock or super().__eq__(other)

    def __hash__(cls) -> int:
        return hash(cls._stock)


def module() -> types.ModuleType:
    """Return the replacement."""
    stand_in = types.ModuleType("faiss")
    stand_in.__getattr__ = lambda name: getattr(faiss, name)  # type: ignore[method-assign]
    for name, make in {
        "IndexFlatIP": lambda d: flat(d, faiss.METRIC_INNER_PRODUCT),
        "IndexFlatL2": lambda d: flat(d, faiss.METRIC_L2),
        "IndexFlat": flat,
        "IndexIDMap": lambda index: id_map(faiss.IndexIDMap, index),
        "IndexIDMap2": lambda index: id_map(faiss.IndexIDMap2, index),
        "IndexIVFFlat": ivf_flat,
        "IndexIVFScalarQuantizer": ivf_sq,
    }.items():
        stock = getattr(faiss, name)
        setattr(
            stand_in, name, StandIn(name, (stock,), {"_stock": stock, "_make": staticmethod(make)})
        )
    stand_in.index_factory = factory  # type: ignore[attr-defined]
    return stand_in


def flat(*args: Any) -> Any:
    metric = args[1] if len(args) > 1 else faiss.METRIC_L2
    if not args or metric not in METRICS:
        return faiss.IndexFlat(*args)
    made.add("IndexFlat")
    return cfe.IndexEvidenceFlat(args[0], metric=metric)


def id_map(stock: Any, index: Any) -> Any:
    """Return an exact evidence index with ids in place of an id map over one."""
    if isinstance(index, cfe.IndexEvidenceFlat):
        made.add("IndexIDMap")
        return cfe.IndexEvidenceIDMap2(index.d, metric=index.metric)
    return stock(index)


def ivf_flat(*args: Any) -> Any:
    metric = args[3] if len(args) > 3 else faiss.METRIC_L2
    if len(args) < 3 or metric not in METRICS or not _has_plain_quantizer(args[0]):
        return faiss.IndexIVFFlat(*args)
    made.add("IndexIVFFlat")
    return cfe.IndexEvidenceIVF(args[1], args[2], metric=metric)


def ivf_sq(*args: Any) -> Any:
    metric = args[4] if len(args) > 4 else faiss.METRIC_L2
    if (
        len(args) < 4
        or args[3] not in KEPT
        or metric not in METRICS
        or not _has_plain_quantizer(args[0])
    ):
        return faiss.IndexIVFScalarQuantizer(*args)
    made.add("IndexIVFScalarQuantizer")
    return cfe.IndexEvidenceIVFScalarQuantizer(*args[1:3], qtype=args[3], metric=metric)


def _has_plain_quantizer(quantizer: Any) -> bool:
    return isinstance(faiss.downcast_index(quantizer), faiss.IndexFlat | cfe.IndexEvidenceFlat)


def factory(*args: Any) -> Any:
    """Return the index of ``faiss.index_factory``, or an evidence index in place of one of the classes above."""
    index = faiss.index_factory(*args)
    kind, metric = type(index), index.metric_type
    if kind in (faiss.IndexFlat, faiss.IndexFlatIP, faiss.IndexFlatL2):
        return flat(index.d, metric)
    if kind in (faiss.IndexIDMap, faiss.IndexIDMap2) and isinstance(index.index, faiss.IndexFlat):
        return id_map(kind, flat(index.d, metric))
    if kind is faiss.IndexIVFFlat:
        made_one = ivf_flat(index.quantizer, index.d, index.nlist, metric)
    elif kind is faiss.IndexIVFScalarQuantizer:
        made_one = ivf_sq(index.quantizer, index.d, index.nlist, index.sq.qtype, metric)
    else:
        return index
    return index if type(made_one) is kind else made_one
