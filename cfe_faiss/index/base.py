"""Methods that both evidence indexes have, word for word; each class takes them into its body by name.

An index has: ``_located()`` (where its rows lie now), ``_storage``, ``_members``, ``_unchecked``, ``_labels``,
``_gate``, ``_stock`` (the FAISS class it is), ``_insert(X, labels, ids)``, ``_relabel(labels)`` (of all storage rows),
``_search(X, labels, k, nprobe, allowed, progress)``, ``_extras()`` and ``_restore(parameters, arrays)``.
"""

from typing import Any

import faiss
import numpy as np
from numpy.typing import ArrayLike, NDArray

from cfe_faiss.checks import as_count, as_ids, as_labels, as_number, as_unit_rows
from cfe_faiss.index.parameters import EvidenceParameters, Excluding
from cfe_faiss.lists import codecs as codes
from cfe_faiss.lists import id_map as members
from cfe_faiss.lists.mapped import in_memory
from cfe_faiss.lists.storage import Storage
from cfe_faiss.search import exact
from cfe_faiss.search.exact import Results

Ranges = tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.int64]]


# --- what is stored ---------------------------------------------------------------------------------------------------


def storage(self: Any) -> Storage:
    """Return where the vectors lie; valid until the index changes."""
    members.check_unchanged(self.ntotal, self._labels)
    if self._unchecked:
        self._unchecked()
        self._unchecked = None
    if self._storage is None:
        self._storage = self._located()
    located: Storage = self._storage
    return located


def stored_members(self: Any) -> members.Members:
    """Return the ids in ascending order, and the storage row and label of each."""
    if self._members is None:
        self._members = members.of(self.storage())
    known: members.Members = self._members
    return known


# --- changing an index ------------------------------------------------------------------------------------------------


def add_with_labels(self: Any, x: ArrayLike, labels: ArrayLike, ids: ArrayLike | None = None) -> None:
    """Add vectors with the classes that the model predicts for them.

    Parameters
    ----------
    x
        Vectors, (n, d); L2-normalised on the way in, in a copy. A zero vector stays zero.
    labels
        Predicted class of each, (n,) integers >= 0.
    ids
        Id of each, (n,) distinct integers >= 0 that are not in the index yet; by default ntotal, ntotal + 1, ...

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, or the index is not trained; nothing is added then.
    """
    X = as_unit_rows("x", x, self.d)
    new_labels = as_labels("labels", labels, len(X))
    with self._gate.writing():
        self._insert(X, new_labels, members.new_ids(self.storage(), ids, len(X)))


def add_with_ids(self: Any, x: ArrayLike, ids: ArrayLike) -> None:
    """Add vectors whose class is not known (yet): they are stored, but are no evidence until relabelled.

    Parameters and errors are those of :meth:`add_with_labels`.
    """
    X = as_unit_rows("x", x, self.d)
    with self._gate.writing():
        self._insert(X, members.unknown_labels(len(X)), members.new_ids(self.storage(), ids, len(X)))


def add(self: Any, x: ArrayLike) -> None:
    """Add vectors whose class is not known (yet), with ids ntotal, ntotal + 1, ...; see :meth:`add_with_ids`."""
    X = as_unit_rows("x", x, self.d)
    with self._gate.writing():
        self._insert(X, members.unknown_labels(len(X)), members.new_ids(self.storage(), None, len(X)))


def relabel(self: Any, labels: ArrayLike, ids: ArrayLike | None = None) -> None:
    """Give stored vectors new classes, as for another model over the same vectors; nothing is clustered again.

    Parameters
    ----------
    labels
        New classes, one for each of ``ids``: (n,) integers >= 0, or -1 for "unknown".
    ids
        Stored ids, (n,); by default all of them, in ascending order.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described; nothing is changed then.
    """
    with self._gate.writing():
        self._relabel(members.relabelled(self.storage(), self.members(), labels, ids))


def merge_from(self: Any, otherIndex: Any, add_id: int = 0) -> None:
    """Move all vectors of another index into this one; the other is empty afterwards.

    Parameters
    ----------
    otherIndex
        An evidence index (labels come along) or a stock index with inverted lists or an id map (labels are unknown),
        over vectors of the same length.
    add_id
        Added to the ids that come. They must not be in this index yet.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described; nothing is moved then.
    """
    if otherIndex is self or getattr(otherIndex, "d", None) != self.d:
        raise ValueError(f"otherIndex must be another index of {self.d} dimensions, got {otherIndex!r}")
    if hasattr(otherIndex, "_gate"):
        with otherIndex._gate.writing():  # refuses now, not after the vectors were taken over
            pass
    X, labels, ids = members.contents(otherIndex)
    shifted = as_ids("ids", ids + as_count("add_id", add_id, 0))
    with self._gate.writing():
        # Decoded and coded once more, a row keeps its code; normalised in between it might not.
        rows = X if _same_codec(self, otherIndex) else as_unit_rows("x", X, self.d)
        self._insert(rows, labels, members.new_ids(self.storage(), shifted, len(X)))
    otherIndex.reset()


def _same_codec(self: Any, other: Any) -> bool:
    if not hasattr(other, "storage"):
        return False
    one, two = self.storage(), other.storage()
    return bool(one.codec == two.codec != codes.FLAT and np.array_equal(one.levels, two.levels))


# --- searching it -----------------------------------------------------------------------------------------------------


def range_search_evidence(self: Any, xq: ArrayLike, labels_q: ArrayLike, threshold: float) -> Ranges:
    """Return all evidence with similarity >= ``threshold``, wherever in the index it is.

    Parameters
    ----------
    xq, labels_q
        Query vectors, (nq, d), normalised in a copy, and their predicted classes, (nq,).
    threshold
        Lowest similarity wanted.

    Returns
    -------
    lims, D, I
        As FAISS's ``range_search``: the results of query q are ``D[lims[q]:lims[q + 1]]`` and the same of I, best
        first; equal similarity: smaller id first.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    X = as_unit_rows("xq", xq, self.d)
    labels = as_labels("labels_q", labels_q, len(X))
    number = as_number("threshold", threshold, -np.inf, np.inf)
    with self._gate.reading():
        return exact.range_search(self.storage(), X, labels, number)


def search(
    self: Any, x: ArrayLike, k: int, *, params: Any = None, D: Any = None, I: Any = None, **stock: Any
) -> Results:
    """Return the k nearest vectors, as ``faiss.Index.search``; with ``EvidenceParameters`` the k best evidences.

    Parameters
    ----------
    x
        Queries, (nq, d). For evidence they are normalised in a copy.
    k
        Results wanted for each, >= 1.
    params
        :class:`cfe_faiss.EvidenceParameters` for evidence; FAISS's own parameters, or None, for a plain search.
    D, I
        Arrays to write the results into, (nq, k) float32 and int64.

    Returns
    -------
    D, I
        Similarities and ids, best first.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    if not isinstance(params, EvidenceParameters):
        with self._gate.reading():
            found: Results = self._stock.search(self, x, k, params=params, D=D, I=I, **stock)
            return found
    X = as_unit_rows("x", x, self.d)
    labels = params.labels_of(len(X))
    k = as_count("k", k)
    with self._gate.reading():
        found = self._search(X, labels, k, params.nprobe, params.allowed(self.storage()), None)
    return _written("D", found[0], D), _written("I", found[1], I)


def range_search(self: Any, x: ArrayLike, thresh: float, *, params: Any = None, **stock: Any) -> Ranges:
    """Return all vectors above a similarity, as ``faiss.Index.range_search``; with ``EvidenceParameters`` all evidence.

    As in FAISS, a plain search returns similarities > ``thresh``, in no order; evidence comes as from
    :meth:`range_search_evidence`, with similarity >= ``thresh`` and best first.
    """
    if not isinstance(params, EvidenceParameters):
        with self._gate.reading():
            found: Ranges = self._stock.range_search(self, x, thresh, params=params, **stock)
            return found
    X = as_unit_rows("x", x, self.d)
    labels = params.labels_of(len(X))
    number = as_number("thresh", thresh, -np.inf, np.inf)
    with self._gate.reading():
        return exact.range_search(self.storage(), X, labels, number, allowed=params.allowed(self.storage()))


def _written(name: str, result: NDArray[Any], out: NDArray[Any] | None) -> NDArray[Any]:
    if out is None:
        return result
    if not isinstance(out, np.ndarray) or out.shape != result.shape or out.dtype != result.dtype:
        raise ValueError(f"{name} must be a {result.dtype} array of shape {result.shape}, got {out!r}")
    out[:] = result
    return out


def excluding(self: Any, label: int) -> Excluding:
    """Return a view whose ``search(x, k)`` leaves the class ``label`` out, for code that knows nothing of classes."""
    return Excluding(self, label)


# --- reading vectors back ---------------------------------------------------------------------------------------------


def reconstruct_batch(self: Any, key: ArrayLike, x: Any = None, **_: Any) -> NDArray[np.float32]:
    """Return the stored vectors with the ids ``key``, (n, d) float32."""
    with self._gate.reading():
        X = self.storage().rows(self.members().find(key, name="key"))[0]
        return _written("x", np.array(X), x)


def reconstruct(self: Any, key: int, x: Any = None, **_: Any) -> NDArray[np.float32]:
    """Return the stored vector with the id ``key``, (d,) float32."""
    return _written("x", reconstruct_batch(self, [as_count("key", key, 0)])[0], x)


def reconstruct_n(self: Any, n0: int = 0, ni: int = -1, x: Any = None, **_: Any) -> NDArray[np.float32]:
    """Return the stored vectors with the ids n0, n0 + 1, ..., n0 + ni - 1 (to the last vector by default)."""
    n0, ni = as_count("n0", n0, 0), as_count("ni", ni, -1)
    return _written("x", reconstruct_batch(self, np.arange(n0, self.ntotal if ni == -1 else n0 + ni)), x)


# --- copies -----------------------------------------------------------------------------------------------------------


def to_stock(self: Any) -> Any:
    """Return the plain FAISS index that this is, a copy without labels and supplementary partitions."""
    with self._gate.reading():
        return faiss.deserialize_index(faiss.serialize_index(in_memory(self)))


def class_index(self: Any, label: int) -> Any:
    """Return a plain FAISS index of the same kind over the vectors of one class, with their ids: a copy.

    Parameters
    ----------
    label
        Class, >= 0. A class that no vector has gives an empty index.

    Raises
    ------
    TypeError, ValueError
        If ``label`` is not as described.
    """
    wanted = as_labels("label", np.asarray([label]), 1)[0]
    stock = to_stock(self)
    with self._gate.reading():
        storage = self.storage()
        others = storage.ids()[storage.labels != wanted]
    stock.remove_ids(others)
    return stock


def getstate(self: Any) -> dict[str, Any]:
    """Return what ``pickle`` and ``copy`` keep: FAISS's bytes and what stock FAISS does not know."""
    with self._gate.reading():
        self.storage()  # an index in a file is checked before it is copied
        parameters, arrays = self._extras()
        return {"this": faiss.serialize_index(in_memory(self)).tobytes(), "parameters": parameters, "arrays": arrays}


def setstate(self: Any, state: dict[str, Any]) -> None:
    """Take over what :func:`getstate` gave."""
    self.this = faiss.deserialize_index(np.frombuffer(state["this"], np.uint8)).this
    self._restore(state["parameters"], {name: array.copy() for name, array in state["arrays"].items()})
    self.storage()  # keeps in mind where the lists are


def refused(name: str, instead: str) -> Any:
    """Return a method that says why it cannot be used here."""

    def method(self: Any, *_: Any, **__: Any) -> None:
        raise NotImplementedError(f"{type(self).__name__}.{name} would lose labels: {instead}")

    method.__name__ = name
    method.__doc__ = f"Not supported, as it would lose labels: {instead}."
    return method
