"""Replacement of the module ``faiss`` in FAISS's tests: some of its classes create evidence indexes.

Only indexes over inner products are replaced, because evidence indexes have no other metric, and only in the tests
themselves: FAISS's own code, including ``faiss.contrib``, uses the stock classes.
"""

import types
from collections.abc import Callable
from typing import Any

import faiss
import numpy as np

import cfe_faiss as cfe

IP = faiss.METRIC_INNER_PRODUCT


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


def module(kind: str) -> types.ModuleType:
    """Return the replacement: with evidence indexes ("ours"), or with stock indexes of unit vectors ("unit")."""
    classes = EVIDENCE if kind == "ours" else UNIT
    stand_in = types.ModuleType("faiss")
    stand_in.__getattr__ = lambda name: getattr(faiss, name)  # type: ignore[method-assign]
    for name, make in {
        "IndexFlatIP": lambda d: flat(classes, d, IP),
        "IndexFlat": lambda *args: flat(classes, *args),
        "IndexIDMap": lambda index: id_map(classes, faiss.IndexIDMap, index),
        "IndexIDMap2": lambda index: id_map(classes, faiss.IndexIDMap2, index),
        "IndexIVFFlat": lambda *args: ivf_flat(classes, *args),
        "IndexIVFScalarQuantizer": lambda *args: ivf_sq(classes, *args),
        "IndexIVFPQ": lambda *args: ivf_pq(classes, *args),
    }.items():
        stock = getattr(faiss, name)
        setattr(stand_in, name, StandIn(name, (stock,), {"_stock": stock, "_make": staticmethod(make)}))
    stand_in.index_factory = lambda *args: factory(classes, *args)  # type: ignore[attr-defined]
    return stand_in


# --- evidence indexes -------------------------------------------------------------------------------------------------


EVIDENCE: dict[str, Callable[..., Any]] = {
    "flat": cfe.IndexEvidenceFlat,
    "ivf": lambda d, nlist: cfe.IndexEvidenceIVF(d, nlist),
    "sq": lambda d, nlist, qtype: cfe.IndexEvidenceIVFScalarQuantizer(d, nlist, qtype=qtype),
    "pq": lambda d, nlist, M: cfe.IndexEvidenceIVFPQ(d, nlist, M),
}


# --- stock indexes of unit vectors ------------------------------------------------------------------------------------


def _unit(x: Any) -> Any:
    x = np.array(x, np.float32, order="C")
    faiss.normalize_L2(x)
    return x


def _of_unit_vectors(stock: Any) -> Any:
    """Return a stock class whose methods normalise their vectors."""

    def on_unit(name: str) -> Any:
        method = getattr(stock, name)
        return lambda self, x, *args, **kwargs: method(self, _unit(x), *args, **kwargs)

    names = [name for name in ("train", "add", "add_with_ids", "search", "range_search") if hasattr(stock, name)]
    return type(f"Unit{stock.__name__}", (stock,), {name: on_unit(name) for name in names})


_Flat, _IVF, _SQ, _PQ = (
    _of_unit_vectors(stock)
    for stock in (faiss.IndexFlatIP, faiss.IndexIVFFlat, faiss.IndexIVFScalarQuantizer, faiss.IndexIVFPQ)
)


def _spherical(cls: Any, d: int, nlist: int, *args: Any) -> Any:
    index = cls(faiss.IndexFlatIP(d), d, nlist, *args)
    index.cp.spherical = True
    return index


UNIT: dict[str, Callable[..., Any]] = {
    "flat": _Flat,
    "ivf": lambda d, nlist: _spherical(_IVF, d, nlist, IP),
    "sq": lambda d, nlist, qtype: _spherical(_SQ, d, nlist, qtype, IP, False),
    "pq": lambda d, nlist, M: _spherical(_PQ, d, nlist, M, 8, IP),
}


# --- the classes and functions of FAISS that make them ----------------------------------------------------------------


def flat(classes: dict[str, Any], *args: Any) -> Any:
    if len(args) == 2 and args[1] == IP:
        made.add("IndexFlatIP")
        return classes["flat"](args[0])
    return faiss.IndexFlat(*args)


def id_map(classes: dict[str, Any], stock: Any, index: Any) -> Any:
    """Return an exact evidence index unchanged, because it takes ids itself."""
    if isinstance(index, cfe.IndexEvidenceFlat):
        made.add("IndexIDMap")
        return index
    return stock(index)


def ivf_flat(classes: dict[str, Any], *args: Any) -> Any:
    if len(args) >= 4 and args[3] == IP:
        made.add("IndexIVFFlat")
        return classes["ivf"](args[1], args[2])
    return faiss.IndexIVFFlat(*args)


def ivf_sq(classes: dict[str, Any], *args: Any) -> Any:
    kept = faiss.ScalarQuantizer.QT_8bit, faiss.ScalarQuantizer.QT_fp16
    if len(args) >= 5 and args[4] == IP and args[3] in kept:
        made.add("IndexIVFScalarQuantizer")
        return classes["sq"](*args[1:4])
    return faiss.IndexIVFScalarQuantizer(*args)


def ivf_pq(classes: dict[str, Any], *args: Any) -> Any:
    if len(args) >= 6 and args[4] == 8 and args[5] == IP:
        made.add("IndexIVFPQ")
        return classes["pq"](*args[1:4])
    return faiss.IndexIVFPQ(*args)


def factory(classes: dict[str, Any], *args: Any) -> Any:
    """Return the index of ``faiss.index_factory``, or an evidence index in place of one of the classes above."""
    index = faiss.index_factory(*args)
    if index.metric_type != IP:
        return index
    kind = type(index)
    if kind in (faiss.IndexFlat, faiss.IndexFlatIP):
        return flat(classes, index.d, IP)
    if kind in (faiss.IndexIDMap, faiss.IndexIDMap2) and isinstance(index.index, faiss.IndexFlat):
        return id_map(classes, kind, flat(classes, index.d, IP))
    if not isinstance(index, faiss.IndexIVF) or not isinstance(faiss.downcast_index(index.quantizer), faiss.IndexFlat):
        return index
    if kind is faiss.IndexIVFFlat:
        return ivf_flat(classes, None, index.d, index.nlist, IP)
    if kind is faiss.IndexIVFScalarQuantizer:
        sq = ivf_sq(classes, None, index.d, index.nlist, index.sq.qtype, IP)
        return sq if type(sq) is not kind else index
    if kind is faiss.IndexIVFPQ and index.pq.nbits == 8:
        return ivf_pq(classes, None, index.d, index.nlist, index.pq.M, 8, IP)
    return index
