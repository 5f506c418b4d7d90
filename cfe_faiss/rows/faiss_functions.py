"""FAISS's functions without their Python wrappers.

``import faiss`` exposes methods written in Python, which an interrupt can stop halfway. A change of
an index is a list of steps (function, arguments) with the compiled functions. The core runs it
without Python code in between.
"""

import ctypes
import sys
from collections.abc import Callable, Sequence
from itertools import repeat
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

import faiss
import numpy as np

from cfe_faiss._native import FaissLists, call_steps, take_at_fork
from cfe_faiss.base.checks import Bytes, Floats, Ints

Step = tuple[Callable[..., Any], tuple[Any, ...]]

SUPPORTED = "faiss-cpu>=1.13,<1.16"
_NAMES = """
    DirectMap_add_single_id Float32Vector_swap IndexFlatCodes_code_size_get IndexFlatCodes_codes_get
    IndexFlatCodes_codes_set IndexFlatCodes_permute_entries IndexFlat_get_xb
    IndexIDMap2_add_with_ids IndexIDMap2_construct_rev_map IndexIVFInterface_nprobe_get
    IndexIVF_replace_invlists IndexIVF_set_direct_map_type Index_add Index_is_trained_set
    Index_ntotal_get Index_ntotal_set Index_remove_ids Index_reset Int64Vector_data
    Int64Vector_resize Int64Vector_size Int64Vector_swap InvertedLists_get_codes
    InvertedLists_get_ids InvertedLists_list_size InvertedLists_resize Level1Quantizer_nlist_set
    MaybeOwnedVectorUInt8_resize UInt8Vector_swap
"""


def compiled_functions(names: Sequence[str]) -> Any:
    """Return a namespace of functions of FAISS's compiled module.

    Raise ImportError if one is missing.
    """
    module = sys.modules[faiss.IndexIVF.__module__]
    compiled: Any = getattr(module, "_" + module.__name__.rpartition(".")[2], None)
    missing = [name for name in names if not hasattr(compiled, name)]
    if missing:
        raise ImportError(
            f"cfe_faiss needs {missing[0]} of FAISS's compiled module, which FAISS "
            f"{faiss.__version__} does not have: install {SUPPORTED}"
        )
    return SimpleNamespace(**{name: getattr(compiled, name) for name in (*names, "__file__")})


raw = compiled_functions(_NAMES.split())


# FAISS's functions, which `cfe_faiss.register` replaces in `faiss`.
clone_stock = faiss.clone_index
read_stock = faiss.read_index
write_stock = faiss.write_index
stock_factory = faiss.index_factory


def stock_bytes(index: Any) -> Bytes:
    """Return the bytes of a stock index, or of FAISS's part of an evidence index."""
    writer = faiss.VectorIOWriter()
    write_stock(index, writer)
    data: Bytes = faiss.vector_to_array(writer.data)
    return data


def stock_from(data: Bytes) -> Any:
    """Return the stock index of the bytes of :func:`stock_bytes`."""
    reader = faiss.VectorIOReader()
    faiss.copy_array_to_vector(data, reader.data)
    return read_stock(reader)


def interrupt_lock() -> int:
    """Return the address of the lock that FAISS holds while it asks Python for interrupts.

    0 if FAISS hides it.
    """
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
    return FaissLists(
        size=size, codes=codes, ids=ids, resize=(raw.InvertedLists_resize, lists), numbered=True
    )


pointer_to = attrgetter("this")
"""Returns the pointer inside SWIG's proxy of a FAISS object.

Calls with it take a fifth of the time.
"""


def is_same(one: Any, other: Any) -> bool:
    """Return whether two Python objects stand for the same object of FAISS."""
    return int(pointer_to(one)) == int(pointer_to(other))


get_nprobe = raw.IndexIVFInterface_nprobe_get
get_ntotal = raw.Index_ntotal_get
get_list_functions = (
    raw.InvertedLists_list_size,
    raw.InvertedLists_get_codes,
    raw.InvertedLists_get_ids,
)


def list_of(flat: Any, ids: Any) -> FaissLists:
    """Return the rows of an ``IndexFlat`` with their ids as one list, for the core."""
    size = (raw.Int64Vector_size, (ids,))
    codes = (raw.IndexFlat_get_xb, (flat,))
    return FaissLists(
        size=size, codes=codes, ids=(raw.Int64Vector_data, (ids,)), resize=None, numbered=False
    )


def setting(owner: Any, name: str, value: Any) -> Step:
    """Return the step that sets an existing attribute of a Python object."""
    attributes = owner.__dict__
    assert name in attributes, name  # a new name could allocate memory and fail
    return attributes.__setitem__, (name, value)


def total(index: Any, n: int) -> Step:
    """Return the step that sets ``ntotal`` of an index."""
    return raw.Index_ntotal_set, (index, n)


def list_sizes(ivf: Any) -> Ints:
    """Return the number of vectors in each list of a FAISS index, (nlist,)."""
    nlist = ivf.nlist
    return np.fromiter(
        map(get_list_functions[0], repeat(pointer_to(ivf.invlists)), range(nlist)), np.int64, nlist
    )


def emptying(index: Any) -> list[Step]:
    """Return the step that removes all vectors of an index."""
    return [(raw.Index_reset, (index,))]


def filling(index: Any, X: Floats) -> list[Step]:
    """Return the steps that replace the vectors of an index."""
    return [*emptying(index), (raw.Index_add, (index, len(X), faiss.swig_ptr(X)))]


def trained(*indexes: Any) -> list[Step]:
    """Return the steps that mark indexes as trained."""
    return [(raw.Index_is_trained_set, (index, True)) for index in indexes]


def using_lists(ivf: Any, lists: Any) -> list[Step]:
    """Return the steps that give an inverted file the lists of another owner."""
    return [
        (raw.Level1Quantizer_nlist_set, (ivf, lists.nlist)),
        (raw.IndexIVF_replace_invlists, (ivf, lists, False)),
    ]


def replacing_lists(ivf: Any, lists: Any) -> list[Step]:
    """Return the steps that give an inverted file other lists.

    Its attribute ``_lists`` keeps them alive.
    """
    return [*using_lists(ivf, lists), setting(ivf, "_lists", lists)]


def swapping_numbers(one: Any, two: Any, owner: Any) -> list[Step]:
    """Return the steps that swap two vectors of floats.

    ``owner``, an index, is kept alive until then.
    """
    return [(raw.Float32Vector_swap, (one, two)), total(owner, 0)]


def swapping_vectors(flat: Any, fresh: Any) -> list[Step]:
    """Return the steps that exchange the vectors of two ``IndexFlat``, which own them."""
    sizes = flat.codes.size(), fresh.codes.size()
    return [
        (raw.UInt8Vector_swap, (flat.codes.owned_data, fresh.codes.owned_data)),
        # The wrapper caches size and address; this resize updates them and moves no data.
        (raw.MaybeOwnedVectorUInt8_resize, (flat.codes, sizes[1])),
        (raw.MaybeOwnedVectorUInt8_resize, (fresh.codes, sizes[0])),
        total(flat, fresh.ntotal),
        total(fresh, flat.ntotal),
    ]


def mapping(direct: Any, ids: list[int]) -> list[Step]:
    """Return the steps that reserve space for ids in a direct map."""
    return [(raw.DirectMap_add_single_id, (direct, i, 0, 0)) for i in ids]


def resizing(vector: Any, n: int) -> Step:
    """Return the step that resizes a vector of 64-bit integers."""
    return raw.Int64Vector_resize, (vector, n)


def direct_map(ivf: Any, kind: int) -> Step:
    """Return the step that sets the type of the direct map of an inverted file and rebuilds it."""
    return raw.IndexIVF_set_direct_map_type, (ivf, kind)


# --- the exact indexes: an IndexFlat, given by its pointer, and the ids of its rows ---------------


def flat_index(d: int, metric_type: int) -> Any:
    """Return a new ``IndexFlatL2`` or ``IndexFlatIP``, or ``IndexFlat`` of another metric."""
    classes = {faiss.METRIC_L2: faiss.IndexFlatL2, faiss.METRIC_INNER_PRODUCT: faiss.IndexFlatIP}
    return classes[metric_type](d) if metric_type in classes else faiss.IndexFlat(d, metric_type)


def take_vectors(flat: Any, source: Any) -> None:
    """Move the vectors of an ``IndexFlat`` into an empty one.

    Mapped vectors stay where they are.
    """
    if source.codes.is_owned:
        call_steps(swapping_vectors(flat, source), [])
    else:
        raw.IndexFlatCodes_codes_set(flat, source.codes)
        flat.ntotal = source.ntotal


def take_ids(id_map: Any, ids: Any) -> None:
    """Swap the ids of a filled ``IndexIDMap2`` with the ids in a vector of FAISS."""
    raw.Int64Vector_swap(id_map.id_map, ids)
    id_map.ntotal = id_map.id_map.size()
    id_map.construct_rev_map()


def numbers(n: int) -> Any:
    """Return 0, 1, ..., n - 1 in a vector of FAISS."""
    vector = faiss.Int64Vector()
    faiss.copy_array_to_vector(np.arange(n), vector)
    return vector


def address_of(flat: Any) -> int:
    """Return the address of the vectors of an ``IndexFlat``; 0 if there are none."""
    return int(raw.IndexFlat_get_xb(flat) or 0)


def adding(flat: Any, ids: Any, X: Floats) -> list[Step]:
    """Return the steps that add vectors to an ``IndexFlat``, and room for their ids."""
    n = len(X)
    return [(raw.Index_add, (flat, n, faiss.swig_ptr(X))), resizing(ids, ids.size() + n)]


def adding_with_ids(id_map: Any, X: Floats, ids: Ints) -> list[Step]:
    """Return the step that adds vectors to an ``IndexIDMap2``."""
    return [
        (raw.IndexIDMap2_add_with_ids, (id_map, len(X), faiss.swig_ptr(X), faiss.swig_ptr(ids)))
    ]


def truncating(flat: Any, ids: Any, n: int) -> list[Step]:
    """Return the steps that truncate an ``IndexFlat`` and its ids to n rows.

    The number of ids must not grow.
    """
    codes = raw.IndexFlatCodes_codes_get(flat)
    size = raw.IndexFlatCodes_code_size_get(flat)
    return [(raw.MaybeOwnedVectorUInt8_resize, (codes, n * size)), resizing(ids, n), total(flat, n)]


def truncating_map(id_map: Any, n: int) -> list[Step]:
    """Return the steps after :func:`truncating` for the ``IndexIDMap2`` over it."""
    return [total(id_map, n), (raw.IndexIDMap2_construct_rev_map, (id_map,))]


def removing(flat: Any, ids: Any, rows: Ints) -> list[Step]:
    """Return the steps that remove rows of an ``IndexFlat`` and renumber the others."""
    n = ids.size()
    removed = np.zeros(n, bool)
    removed[rows] = True
    selector = faiss.IDSelectorBitmap(np.packbits(removed, bitorder="little"))
    new_ids = numbers(n - len(rows))
    return [(raw.Index_remove_ids, (flat, selector)), (raw.Int64Vector_swap, (ids, new_ids))]


def permuting(flat: Any, order: Ints) -> list[Step]:
    """Return the step that puts the rows of an ``IndexFlat`` in order."""
    return [(raw.IndexFlatCodes_permute_entries, (flat, faiss.swig_ptr(order)))]
