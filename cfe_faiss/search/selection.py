"""Which stored vectors a caller selects: by FAISS's selectors, by a mask or by ids."""

from collections.abc import Set as AbstractSet
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.checks import as_array
from cfe_faiss.rows.snapshot import Snapshot

_NATIVE = (
    faiss.IDSelectorAll,
    faiss.IDSelectorArray,
    faiss.IDSelectorBatch,
    faiss.IDSelectorBitmap,
    faiss.IDSelectorRange,
)
_COMBINED = faiss.IDSelectorAnd, faiss.IDSelectorNot, faiss.IDSelectorOr, faiss.IDSelectorXOr
_FEW = 64  # ids that each stored id is compared with; with more, the order of the stored ids is made, and kept


def selected(sel: Any, snapshot: Snapshot, name: str = "sel") -> NDArray[np.bool_]:
    """Return which rows are selected, (n,).

    Parameters
    ----------
    sel
        A ``faiss.IDSelector`` of any kind; a mask, (n,) booleans, of the stored vectors in ascending order of their
        ids; or ids: integers, (m,), a set or range of them, or one. Ids that are not stored are passed over.
    snapshot
        The index as it is.
    name
        What the caller calls ``sel``.

    Raises
    ------
    TypeError
        If ``sel`` is none of these.
    ValueError
        If a mask has not shape (n,), ids have not shape (m,), or a ``faiss.PyCallbackIDSelector`` would be asked for an
        id that it cannot take.
    """
    if isinstance(sel, faiss.IDSelector):
        return _by_selector(sel, snapshot.row_ids, name)
    values = _as_values(sel, name)
    if values.dtype.kind == "b":
        if values.shape != (snapshot.n,):
            raise ValueError(
                f"{name} must have shape ({snapshot.n},) as a mask, one for each stored vector in ascending order "
                f"of their ids, got {values.shape}"
            )
        return values[snapshot.members.places]
    if values.ndim != 1:
        raise ValueError(f"{name} must have shape (m,) as ids, got {values.shape}")
    return _by_ids(values, snapshot)


def calls_python(sel: Any) -> bool:
    """Return whether a selector may call Python: a callback, a combination with a callback, or an unknown kind."""
    if isinstance(sel, _COMBINED):
        kept = getattr(sel, "referenced_objects", [])
        parts = [one for part in kept for one in (part if isinstance(part, tuple) else (part,))]
        return not parts or any(map(calls_python, parts))
    return isinstance(sel, faiss.IDSelector) and not isinstance(sel, _NATIVE)


def accepted(sel: Any, ids: NDArray[np.int64], name: str) -> NDArray[np.int64]:
    """Return the ids that a selector accepts. It is asked from Python: in FAISS an exception would end the process."""
    if isinstance(sel, faiss.PyCallbackIDSelector) and ids.size and ids.max() >= 2**32:
        raise ValueError(f"{name}, a PyCallbackIDSelector, takes ids below 2**32, got an index with {ids.max()}")
    return ids[np.fromiter(map(sel.is_member, ids.tolist()), np.bool_, len(ids))]


def selector_of(params: Any) -> Any:
    """Return the selector of FAISS's search parameters, of its own class if FAISS keeps the Python object."""
    return getattr(params, "_sp_field_refs", {}).get("sel", params.sel)


def with_ids(params: Any, ids: NDArray[np.int64]) -> Any:
    """Return a copy of FAISS's search parameters that selects these ids."""
    cls = type(params)
    names = [name for name in dir(cls) if isinstance(getattr(cls, name), property) and name not in ("sel", "thisown")]
    values = {name: getattr(params, name) for name in names}
    given = {name: value for name, value in values.items() if value is not None}
    return cls(sel=faiss.IDSelectorBatch(ids), **given)


def _as_values(sel: Any, name: str) -> NDArray[Any]:
    """Return a mask or ids as an array; a single id as an array of one."""
    expected = f"{name} must be a faiss.IDSelector, a mask or ids"
    if isinstance(sel, bool | np.bool_ | str | bytes) or sel is None:
        raise TypeError(f"{expected}, got {sel!r}")
    if isinstance(sel, AbstractSet | range):
        sel = list(sel) if isinstance(sel, AbstractSet) else np.arange(sel.start, sel.stop, sel.step)
    try:
        values = as_array(name, sel)
    except TypeError as error:
        raise TypeError(f"{expected}, got {type(sel).__name__}: {error}") from error
    if values.dtype.kind == "f" and values.size:
        raise TypeError(f"{expected}, got numbers of type {values.dtype}")
    return values.reshape(1) if values.ndim == 0 else values


def _by_ids(wanted: NDArray[Any], snapshot: Snapshot) -> NDArray[np.bool_]:
    wanted = wanted[wanted <= np.iinfo(np.int64).max].astype(np.int64)  # greater ones are not stored
    if len(wanted) <= _FEW:
        return np.isin(snapshot.row_ids, wanted)
    members, chosen = snapshot.members, np.zeros(snapshot.n, bool)
    places = np.searchsorted(members.ids, wanted)
    within = places < len(members.ids)
    stored = places[within][members.ids[places[within]] == wanted[within]]
    chosen[members.rows[stored]] = True
    return chosen


def _by_selector(sel: Any, ids: NDArray[np.int64], name: str) -> NDArray[np.bool_]:
    if calls_python(sel):
        return np.isin(ids, accepted(sel, ids, name))
    # A selector answers for one id at a time in Python; a range search that reaches everything asks it in C++.
    everything = faiss.IndexIDMap(faiss.IndexFlatIP(1))
    everything.add_with_ids(np.zeros((len(ids), 1), np.float32), ids)
    _, _, found = everything.range_search(np.zeros((1, 1), np.float32), -1.0, params=faiss.SearchParameters(sel=sel))
    return np.isin(ids, found)
