"""Selection of stored vectors by a FAISS selector, a mask or ids."""

from typing import Any

import faiss
import numpy as np

from cfe_faiss.base.arrays import Array, Bools, Ints
from cfe_faiss.base.values import as_integers, as_values
from cfe_faiss.rows.snapshot import Snapshot

_NATIVE = (
    faiss.IDSelectorAll,
    faiss.IDSelectorArray,
    faiss.IDSelectorBatch,
    faiss.IDSelectorBitmap,
    faiss.IDSelectorRange,
)
_COMBINED = faiss.IDSelectorAnd, faiss.IDSelectorNot, faiss.IDSelectorOr, faiss.IDSelectorXOr


def selected(sel: Any, snapshot: Snapshot, name: str = "sel") -> Bools:
    """Return a mask of the selected rows, (n,) bool.

    Parameters
    ----------
    sel
        A ``faiss.IDSelector`` of any kind; a mask, (n,) bool, of the stored vectors in ascending
        order of id; or ids: integers (m,), a set, a range, or a single integer. Ids that are not
        stored are ignored.
    snapshot
        Snapshot of the index.
    name
        Name of ``sel`` in error messages.

    Raises
    ------
    TypeError
        If ``sel`` has another type.
    ValueError
        If the shape of a mask is not (n,), the shape of ids is not (m,), or the index has an id
        that a ``faiss.PyCallbackIDSelector`` cannot represent.
    """
    if isinstance(sel, faiss.IDSelector):
        return _by_selector(sel, snapshot.row_ids, name)
    values = _as_values(sel, name)
    if values.dtype.kind == "b":
        if values.shape != (snapshot.n,):
            raise ValueError(
                f"{name} must have shape ({snapshot.n},) as a mask, one for each stored vector in "
                f"ascending order "
                f"of their ids, got {values.shape}"
            )
        return values[snapshot.members.places]
    if values.ndim != 1:
        raise ValueError(f"{name} must have shape (m,) as ids, got {values.shape}")
    chosen = np.zeros(snapshot.n, np.bool_)
    rows = snapshot.rows_of(_as_ids(values))
    chosen[rows[rows >= 0]] = True
    return chosen


def selected_rows(sel: Any, snapshot: Snapshot, name: str = "sel") -> Ints:
    """Return the selected rows in ascending order; arguments and errors as in :func:`selected`."""
    if not isinstance(sel, faiss.IDSelector):
        values = _as_values(sel, name)
        if values.dtype.kind != "b" and values.ndim == 1:
            rows: Ints = np.sort(snapshot.rows_of(_as_ids(values)))
            is_new: Bools = np.append(True, rows[1:] != rows[:-1])[: len(rows)]
            return rows[(rows >= 0) & is_new]
    return np.flatnonzero(selected(sel, snapshot, name))


def calls_python(sel: Any) -> bool:
    """Return whether a selector may call Python: a callback, or a kind not known."""
    if isinstance(sel, _COMBINED):
        kept = getattr(sel, "referenced_objects", [])
        parts = [one for part in kept for one in (part if isinstance(part, tuple) else (part,))]
        return not parts or any(map(calls_python, parts))
    return isinstance(sel, faiss.IDSelector) and not isinstance(sel, _NATIVE)


def accepted(sel: Any, ids: Ints, name: str) -> Ints:
    """Return the ids that a selector accepts, by calls from Python.

    An exception inside FAISS would end the process.
    """
    if isinstance(sel, faiss.PyCallbackIDSelector) and ids.size and ids.max() >= 2**32:
        raise ValueError(
            f"{name}, a PyCallbackIDSelector, takes ids below 2**32, got an index with {ids.max()}"
        )
    return ids[np.fromiter(map(sel.is_member, ids.tolist()), np.bool_, len(ids))]


def selector_of(params: Any) -> Any:
    """Return the selector of FAISS's parameters, as the original object if FAISS keeps it."""
    return getattr(params, "_sp_field_refs", {}).get("sel", params.sel)


def with_ids(params: Any, ids: Ints) -> Any:
    """Return a copy of FAISS search parameters that selects the given ids."""
    cls = type(params)
    names = [
        name
        for name in dir(cls)
        if isinstance(getattr(cls, name), property) and name not in ("sel", "thisown")
    ]
    values = {name: getattr(params, name) for name in names}
    given = {name: value for name, value in values.items() if value is not None}
    return cls(sel=faiss.IDSelectorBatch(ids), **given)


def _as_values(sel: Any, name: str) -> Array:
    """Return a mask or ids as an array. A single id becomes an array of one element."""
    expected = f"{name} must be a faiss.IDSelector, a mask or ids"
    if isinstance(sel, bool | np.bool_ | str | bytes) or sel is None:
        raise TypeError(f"{expected}, got {sel!r}")
    try:
        values = as_values(name, sel, floats=False)
        if values.dtype.kind != "b":
            values = as_integers(name, values)
        if values.dtype.kind == "O" and max(values.flat) >= 1 << 64:
            raise TypeError(f"{name} must be below 2**64, got {max(values.flat)}")
    except TypeError as error:
        raise TypeError(f"{expected}, got {type(sel).__name__}: {error}") from error
    return values.reshape(1) if values.ndim == 0 else values


def _as_ids(values: Array) -> Ints:
    return values[values <= np.iinfo(np.int64).max].astype(np.int64)  # larger ids cannot be stored


def _by_selector(sel: Any, ids: Ints, name: str) -> Bools:
    if calls_python(sel):
        return np.isin(ids, accepted(sel, ids, name))
    # In Python a selector tests one id per call. A range search over all ids tests them in C++.
    everything = faiss.IndexIDMap(faiss.IndexFlatIP(1))
    everything.add_with_ids(np.zeros((len(ids), 1), np.float32), ids)
    _, _, found = everything.range_search(
        np.zeros((1, 1), np.float32), -1.0, params=faiss.SearchParameters(sel=sel)
    )
    return np.isin(ids, found)
