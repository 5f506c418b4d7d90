"""FAISS's functions as its compiled module has them.

What ``import faiss`` shows of them are methods written in Python: an interrupt may fall into these. A change of an
index is handed over to the core as a list of steps (function, arguments) with the bare functions, so that no line of
Python runs.
"""

import sys
from collections.abc import Callable
from typing import Any

import faiss

from cfe_faiss._native import FaissLists

Step = tuple[Callable[..., Any], tuple[Any, ...]]

_module = sys.modules[faiss.IndexIVF.__module__]
raw: Any = getattr(_module, "_" + _module.__name__.rpartition(".")[2])


def inverted_lists(ivf: Any) -> FaissLists:
    """Return the inverted lists of an index, for the core."""
    lists = (pointer_to(ivf.invlists),)
    return FaissLists(
        size=(raw.InvertedLists_list_size, lists),
        codes=(raw.InvertedLists_get_codes, lists),
        ids=(raw.InvertedLists_get_ids, lists),
        resize=(raw.InvertedLists_resize, lists),
        numbered=True,
    )


def pointer_to(proxy: Any) -> Any:
    """Return what SWIG's proxy of an object of FAISS wraps: a function that gets this takes a fifth of the time."""
    return proxy.this


def list_of(id_map: Any) -> FaissLists:
    """Return the rows of an ``IndexIDMap`` over an ``IndexFlat``, for the core: as one list."""
    ids = (id_map.id_map,)
    return FaissLists(
        size=(raw.Int64Vector_size, ids),
        codes=(raw.IndexFlat_get_xb, (faiss.downcast_index(id_map.index),)),
        ids=(raw.Int64Vector_data, ids),
        resize=None,
        numbered=False,
    )


def setting(owner: Any, name: str, value: Any) -> Step:
    """Return the step that sets an attribute of a Python object; it must have been set before."""
    attributes = owner.__dict__
    assert name in attributes, name  # a new name may take memory
    return attributes.__setitem__, (name, value)


def total(index: Any, n: int) -> Step:
    """Return the step that sets how many vectors an index holds."""
    return raw.Index_ntotal_set, (index, n)


def direct_map(ivf: Any, kind: int) -> Step:
    """Return the step that gives an inverted file another kind of map from ids to places, made anew."""
    return raw.IndexIVF_set_direct_map_type, (ivf, kind)
