"""FAISS's functions without their Python wrappers.

``import faiss`` exposes methods written in Python, which an interrupt can stop halfway. A change of an index is a list
of steps (function, arguments) with the compiled functions. The core runs it without Python code in between.
"""

import ctypes
import sys
from collections.abc import Callable
from itertools import repeat
from operator import attrgetter
from typing import Any

import faiss
import numpy as np

from cfe_faiss._native import FaissLists, take_at_fork
from cfe_faiss.base.arrays import Floats, Ints

Step = tuple[Callable[..., Any], tuple[Any, ...]]

_module = sys.modules[faiss.IndexIVF.__module__]
raw: Any = getattr(_module, "_" + _module.__name__.rpartition(".")[2])


def interrupt_lock() -> int:
    """Return the address of the lock that FAISS holds while it asks Python for interrupts; 0 if FAISS hides it."""
    try:
        lock = ctypes.c_char.in_dll(ctypes.CDLL(raw.__file__), "_ZN5faiss17InterruptCallback4lockE")
    except (OSError, ValueError):
        return 0
    return ctypes.addressof(lock)


# A child made while a thread of the parent held it would wait for it in its next search.
take_at_fork(interrupt_lock())


def inverted_lists(ivf: Any) -> FaissLists:
    """Return the inverted lists of an index as an object of the core."""
    lists = (pointer_to(ivf.invlists),)
    size, codes, ids = ((function, lists) for function in get_list_functions)
    return FaissLists(size=size, codes=codes, ids=ids, resize=(raw.InvertedLists_resize, lists), numbered=True)


pointer_to = attrgetter("this")
"""Returns the pointer inside SWIG's proxy of a FAISS object; calls with it take a fifth of the time."""

get_nprobe, get_ntotal = raw.IndexIVFInterface_nprobe_get, raw.Index_ntotal_get
get_list_functions = raw.InvertedLists_list_size, raw.InvertedLists_get_codes, raw.InvertedLists_get_ids


def list_of(flat: Any, ids: Any) -> FaissLists:
    """Return the rows of an ``IndexFlat``, with their ids in a vector of FAISS, as one list, for the core."""
    size, codes = (raw.Int64Vector_size, (ids,)), (raw.IndexFlat_get_xb, (flat,))
    return FaissLists(size=size, codes=codes, ids=(raw.Int64Vector_data, (ids,)), resize=None, numbered=False)


def setting(owner: Any, name: str, value: Any) -> Step:
    """Return the step that sets an existing attribute of a Python object."""
    attributes = owner.__dict__
    assert name in attributes, name  # a new name could allocate memory and fail
    return attributes.__setitem__, (name, value)


def total(index: Any, n: int) -> Step:
    """Return the step that sets ``ntotal`` of an index."""
    return raw.Index_ntotal_set, (index, n)


def adopt(stock: Any, target: Any) -> Any:
    """Make a Python object a proxy of an index, which both objects then own, and return it."""
    target.this = pointer_to(stock)
    return target


def list_sizes(ivf: Any) -> Ints:
    """Return the number of vectors in each list of a FAISS index, (nlist,)."""
    nlist = ivf.nlist
    return np.fromiter(map(get_list_functions[0], repeat(pointer_to(ivf.invlists)), range(nlist)), np.int64, nlist)


def emptying(index: Any) -> list[Step]:
    """Return the step that removes all vectors of an index."""
    return [(raw.Index_reset, (index,))]


def filling(index: Any, X: Floats) -> list[Step]:
    """Return the steps that replace the vectors of an index."""
    return [*emptying(index), (raw.Index_add, (index, len(X), faiss.swig_ptr(X)))]


def trained(*indexes: Any) -> list[Step]:
    """Return the steps that mark indexes as trained."""
    return [(raw.Index_is_trained_set, (index, True)) for index in indexes]


def replacing_lists(ivf: Any, lists: Any) -> list[Step]:
    """Return the steps that give an inverted file other lists, which it then owns."""
    return [
        (raw.Level1Quantizer_nlist_set, (ivf, lists.nlist)),
        (pointer_to(lists).disown, ()),
        (raw.IndexIVF_replace_invlists, (ivf, lists, True)),
    ]


def swapping_numbers(one: Any, two: Any, owner: Any) -> list[Step]:
    """Return the steps that swap two vectors of floats; ``owner``, an index, is kept alive until then."""
    return [(raw.Float32Vector_swap, (one, two)), total(owner, 0)]


def swapping_vectors(flat: Any, fresh: Any) -> list[Step]:
    """Return the steps that move the vectors of an ``IndexFlat`` to another."""
    return [
        (raw.UInt8Vector_swap, (flat.codes.owned_data, fresh.codes.owned_data)),
        # The wrapper caches size and address; this resize updates them and moves no data.
        (raw.MaybeOwnedVectorUInt8_resize, (flat.codes, fresh.codes.size())),
        total(flat, fresh.ntotal),
        total(fresh, 0),  # keeps `fresh` alive until this step
    ]


def free(index: Any) -> None:
    """Free an index that no Python object owns."""
    raw.delete_Index(index)


def mapping(direct: Any, ids: list[int]) -> list[Step]:
    """Return the steps that reserve space for ids in a direct map."""
    return [(raw.DirectMap_add_single_id, (direct, i, 0, 0)) for i in ids]


def resizing(vector: Any, n: int) -> Step:
    """Return the step that resizes a vector of 64-bit integers."""
    return raw.Int64Vector_resize, (vector, n)


def direct_map(ivf: Any, kind: int) -> Step:
    """Return the step that sets the type of the direct map of an inverted file and rebuilds it."""
    return raw.IndexIVF_set_direct_map_type, (ivf, kind)


# --- the exact index: an IndexFlat, with or without an id map over it -------------------------------------------------


VirtualMethods: Any = type(
    "VirtualMethods",
    (),
    {"__module__": faiss.Index.__module__}
    | {
        name: method
        for name, method in vars(faiss.Index).items()
        if getattr(method, "__module__", "") == faiss.Index.__module__ and not name.startswith("__")
    },
)
"""FAISS's compiled methods of ``faiss.Index``, which accept any index: those of subclasses accept their class only."""


def flat_index(d: int, metric_type: int) -> Any:
    """Return a new ``IndexFlatL2`` or ``IndexFlatIP``."""
    return faiss.IndexFlatL2(d) if metric_type == faiss.METRIC_L2 else faiss.IndexFlatIP(d)


def flat_parts(index: Any) -> tuple[Any, Any]:
    """Return the ``IndexFlat`` of an index, and the ``IndexIDMap`` over it or None; both keep FAISS's objects alive."""
    stock = adopt(index, faiss.downcast_index(index))
    if isinstance(stock, faiss.IndexIDMap):
        return faiss.downcast_index(stock.index), stock
    return stock, None


def stored_ids(index: Any) -> Ints | None:
    """Return the ids in the id map of an index; None if it has none."""
    id_map = flat_parts(index)[1]
    ids: Ints | None = None if id_map is None else faiss.vector_to_array(id_map.id_map)
    return ids


def unwrap(index: Any, order: Ints) -> bool:
    """Put the rows of an ``IndexIDMap`` in order and make the index its ``IndexFlat``, unless the rows are mapped."""
    flat, id_map = flat_parts(index)
    if not flat.codes.is_owned:
        return False
    flat.permute_entries(order)
    id_map.own_fields = False
    flat.this.acquire()
    adopt(flat, index)
    return True


def id_map_over(flat: Any, ids: Any) -> Any:
    """Return a new ``IndexIDMap2`` over a filled ``IndexFlat``, which must outlive it."""
    id_map = faiss.IndexIDMap2(flat_index(flat.d, flat.metric_type))
    id_map.index = flat
    raw.Int64Vector_resize(id_map.id_map, ids.size())
    id_map.ntotal = ids.size()
    faiss.copy_array_to_vector(faiss.vector_to_array(ids), id_map.id_map)
    id_map.construct_rev_map()
    return id_map


def numbers(n: int) -> Any:
    """Return 0, 1, ..., n - 1 in a vector of FAISS."""
    vector = faiss.Int64Vector()
    faiss.copy_array_to_vector(np.arange(n), vector)
    return vector


def address_of(flat: Any) -> int:
    """Return the address of the vectors of an ``IndexFlat``; 0 if there are none."""
    return int(raw.IndexFlat_get_xb(flat.this) or 0)


def adding(flat: Any, ids: Any, X: Floats) -> list[Step]:
    """Return the steps that add vectors to an ``IndexFlat``, and room for their ids."""
    n = len(X)
    return [(raw.Index_add, (flat, n, faiss.swig_ptr(X))), resizing(ids, ids.size() + n)]


def adding_with_ids(id_map: Any, X: Floats, ids: Ints) -> list[Step]:
    """Return the step that adds vectors to an ``IndexIDMap2``."""
    return [(raw.IndexIDMap2_add_with_ids, (id_map, len(X), faiss.swig_ptr(X), faiss.swig_ptr(ids)))]


def truncating(flat: Any, ids: Any, id_map: Any, n: int) -> list[Step]:
    """Return the steps that truncate an ``IndexFlat`` and its ids to n rows; the number of ids must not grow."""
    steps = [(raw.MaybeOwnedVectorUInt8_resize, (flat.codes, n * flat.code_size)), resizing(ids, n), total(flat, n)]
    return steps if id_map is None else [*steps, total(id_map, n), (raw.IndexIDMap2_construct_rev_map, (id_map,))]


def permuting(flat: Any, order: Ints) -> list[Step]:
    """Return the step that puts the rows of an ``IndexFlat`` in order."""
    return [(raw.IndexFlatCodes_permute_entries, (flat, faiss.swig_ptr(order)))]


# --- constructors -----------------------------------------------------------------------------------------------------


_KEEP_IDS = (faiss.IndexIDMap, faiss.IndexPreTransform, faiss.IndexReplicas, faiss.IndexShards)
_guarded: set[type] = set()


def check_constructors(check: Callable[[type, Any], None]) -> None:
    """Make the constructors of FAISS's indexes that read other indexes by position call ``check(class, argument)``.

    FAISS's C++ code would take ids for positions, or abort the process.
    """

    def checked(cls: type, construct: Callable[..., None]) -> Callable[..., None]:
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            for argument in args:
                check(cls, argument)
            construct(self, *args, **kwargs)

        return __init__

    for cls in vars(faiss).values():
        if not isinstance(cls, type) or not issubclass(cls, faiss.Index) or issubclass(cls, _KEEP_IDS):
            continue
        if cls not in _guarded and "__init__" in vars(cls):
            _guarded.add(cls)
            cls.__init__ = checked(cls, cls.__init__)  # type: ignore[misc]
