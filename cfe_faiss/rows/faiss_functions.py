"""FAISS's functions without their Python wrappers.

``import faiss`` exposes methods written in Python, which an interrupt can stop halfway. A change of an index is a list
of steps (function, arguments) with the compiled functions. The core runs it without Python code in between.
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
    """Return the inverted lists of an index as an object of the core."""
    lists = (pointer_to(ivf.invlists),)
    return FaissLists(
        size=(raw.InvertedLists_list_size, lists),
        codes=(raw.InvertedLists_get_codes, lists),
        ids=(raw.InvertedLists_get_ids, lists),
        resize=(raw.InvertedLists_resize, lists),
        numbered=True,
    )


def pointer_to(proxy: Any) -> Any:
    """Return the pointer inside SWIG's proxy of a FAISS object; calls with it take a fifth of the time."""
    return proxy.this


def list_of(id_map: Any) -> FaissLists:
    """Return the rows of an ``IndexIDMap`` over an ``IndexFlat`` as one list, for the core."""
    ids = (id_map.id_map,)
    return FaissLists(
        size=(raw.Int64Vector_size, ids),
        codes=(raw.IndexFlat_get_xb, (faiss.downcast_index(id_map.index),)),
        ids=(raw.Int64Vector_data, ids),
        resize=None,
        numbered=False,
    )


def setting(owner: Any, name: str, value: Any) -> Step:
    """Return the step that sets an existing attribute of a Python object."""
    attributes = owner.__dict__
    assert name in attributes, name  # a new name could allocate memory and fail
    return attributes.__setitem__, (name, value)


def total(index: Any, n: int) -> Step:
    """Return the step that sets ``ntotal`` of an index."""
    return raw.Index_ntotal_set, (index, n)


def direct_map(ivf: Any, kind: int) -> Step:
    """Return the step that sets the type of the direct map of an inverted file and rebuilds it."""
    return raw.IndexIVF_set_direct_map_type, (ivf, kind)
