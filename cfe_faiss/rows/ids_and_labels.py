"""Ids and labels of stored vectors: checks of new ids, codes of labels; contents of stock indexes.

Labels below 2**31 - 1 are their own codes, until another label is added. Then a table holds the
code of each label. A code never changes while a row has it, so no row is rewritten.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import faiss
import numpy as np
from numpy.typing import ArrayLike

from cfe_faiss._native import FaissLists, Table
from cfe_faiss.base.checks import UNKNOWN, Array, Bytes, Floats, Int32s, Ints
from cfe_faiss.base.values import MAX_CODES, NOT_STORED, LabelKeys, as_ids, as_labels, order_key
from cfe_faiss.rows.faiss_functions import list_sizes
from cfe_faiss.rows.metric import FAISS_NAMES, OF_FAISS, Metric, as_metric
from cfe_faiss.rows.snapshot import Snapshot

_PANORAMA = "IndexIVFFlatPanorama", "ArrayInvertedListsPanorama"


def check_unchanged(ntotal: int, labels: int) -> None:
    """Raise RuntimeError if vectors were added or removed without their labels."""
    if ntotal != labels:
        raise RuntimeError(
            f"the index holds {ntotal} vectors and {labels} labels: it was changed by a method "
            f"that evidence "
            "indexes do not support; use add_with_labels, add, add_with_ids, remove_ids and reset"
        )


def new_ids(table: Table, lists: FaissLists, ids: ArrayLike | None, n: int) -> Ints:
    """Return n new ids, checked to be distinct and not in the index.

    Default: the ids after the largest stored id.
    """
    new = distinct_ids(ids, n, table.greatest_id(lists) + 1)
    first = table.first_stored(lists, new)
    if first >= 0:
        raise ValueError(f"ids must not be in the index yet, got {new[first]}, which is")
    return new


def distinct_ids(ids: ArrayLike | None, n: int, first: int) -> Ints:
    """Return n ids, checked to be distinct; by default ``first``, ``first`` + 1, ..."""
    if ids is None and first + n > np.iinfo(np.int64).max:
        raise ValueError(
            f"ids must be given, because no {n} ids are left after the largest one, {first - 1}"
        )
    new = np.arange(first, first + n) if ids is None else as_ids("ids", ids)
    if new.shape != (n,):
        raise ValueError(f"ids must have shape ({n},), one id per vector, got {new.shape}")
    if n > 1 and not (new[1:] > new[:-1]).all():
        ordered = np.sort(new)
        twice = ordered[1:] == ordered[:-1]
        if twice.any():
            raise ValueError(
                f"ids must be distinct, got {ordered[1:][np.argmax(twice)]} more than once"
            )
    return new


def unknown_labels(n: int) -> Int32s:
    """Return n "unknown" labels."""
    return np.full(n, UNKNOWN, np.int32)


def relabelled_rows(
    snapshot: Snapshot, labels: ArrayLike, ids: ArrayLike | None, encode: Callable[..., Int32s]
) -> tuple[Ints, Int32s]:
    """Return the rows of ``ids`` (by default all ids), ascending, and the new label of each.

    ``encode`` checks them.
    """
    rows = snapshot.members.rows if ids is None else snapshot.find(ids)
    order = np.argsort(rows, kind="stable")
    in_order = rows[order]
    repeated = int((in_order[1:] == in_order[:-1]).sum())
    if repeated:
        raise ValueError(f"ids must be distinct, got {repeated} of {len(rows)} repeated")
    return in_order, encode("labels", labels, len(rows), unknown=True)[order]


# --- stock indexes --------------------------------------------------------------------------------


def check_stock(index: Any) -> None:
    """Raise TypeError or ValueError unless :func:`stock_contents` supports the stock index."""
    index = faiss.downcast_index(index) if isinstance(index, faiss.Index) else index
    flat = isinstance(index, faiss.IndexFlat)
    with_ids = isinstance(index, faiss.IndexIDMap) and isinstance(
        faiss.downcast_index(index.index), faiss.IndexFlat
    )
    if not (flat or with_ids or isinstance(index, faiss.IndexIVFFlat) or _scalar(index)):
        raise TypeError(
            "otherIndex must be an evidence index, an IndexFlat, an IndexIVFFlat, an "
            "IndexIVFScalarQuantizer without "
            f"residuals or an IndexIDMap over IndexFlat, got {index!r}"
        )
    if isinstance(index, faiss.IndexIVF):
        check_lists(index)


def stock_contents(index: Any) -> tuple[Floats, Ints]:
    """Return copies of the vectors and ids of a stock index."""
    check_stock(index)
    index = faiss.downcast_index(index)
    if isinstance(index, faiss.IndexIVFFlat) or _scalar(index):
        codes, ids = stock_codes(index)
        return index.sq.decode(codes) if _scalar(index) else codes.view(np.float32), ids
    if isinstance(index, faiss.IndexFlat):
        return index.reconstruct_n(0, index.ntotal), np.arange(index.ntotal)
    X = faiss.downcast_index(index.index).reconstruct_n(0, index.ntotal)
    return X, faiss.vector_to_array(index.id_map)


def metric_of(name: str, stock: Any, metric: Any) -> Metric:
    """Return the metric of an index made of a stock index: the given one, or its own."""
    stock_metric = OF_FAISS.get(stock.metric_type)
    metric_name = stock_metric if metric is None else as_metric("metric", metric)
    if stock_metric is None or metric_name is None:
        raise ValueError(f"{name} must have metric {FAISS_NAMES}, got {stock.metric_type}")
    if metric_name not in (stock_metric, "cosine" if stock_metric == "ip" else stock_metric):
        raise ValueError(f"metric must fit that of {name}, {stock_metric!r}, got {metric!r}")
    return metric_name


def _scalar(index: Any) -> bool:
    """Return whether a stock index has codes that decode without their list.

    These are scalar-quantizer codes without residuals.
    """
    return isinstance(index, faiss.IndexIVFScalarQuantizer) and not index.by_residual


def codes_of(ivf: Any, X: Floats, lists: Int32s) -> Bytes:
    """Return the codes, (n, code_size), of vectors in their lists, (n,), of an inverted file."""
    if isinstance(ivf, faiss.IndexIVFFlat):
        return X.view(np.uint8)
    codes = np.empty((len(X), ivf.code_size), np.uint8)
    numbers = lists.astype(np.int64)
    ivf.encode_vectors(len(X), faiss.swig_ptr(X), faiss.swig_ptr(numbers), faiss.swig_ptr(codes))
    return codes


def check_lists(ivf: Any) -> None:
    """Raise TypeError or ValueError unless lists of a stock index hold one code per vector."""
    kinds = tuple(getattr(faiss, name) for name in _PANORAMA if hasattr(faiss, name))
    # FAISS 1.13 does not downcast such lists.
    if isinstance(faiss.downcast_index(ivf), kinds) or isinstance(
        faiss.downcast_InvertedLists(ivf.invlists), kinds
    ):
        raise TypeError(
            f"the stock index must have whole vectors in its lists, got {type(ivf).__name__}"
        )
    number = int(list_sizes(ivf).sum())
    if number != ivf.ntotal:
        raise ValueError(
            f"the {type(ivf).__name__} must have its {ivf.ntotal} vectors in its lists, got {number}"
        )


def stock_codes(ivf: Any) -> tuple[Bytes, Ints]:
    """Return copies of the codes, (n, code_size), and ids, (n,), of a stock index in list order."""
    check_lists(ivf)
    lists = ivf.invlists
    size = ivf.code_size
    filled = [(j, count) for j, count in enumerate(list_sizes(ivf).tolist()) if count]
    codes = [
        faiss.rev_swig_ptr(lists.get_codes(j), count * size).reshape(count, size)
        for j, count in filled
    ]
    ids = [faiss.rev_swig_ptr(lists.get_ids(j), count) for j, count in filled]
    return np.concatenate([np.empty((0, size), np.uint8), *codes]), np.concatenate(
        [np.empty(0, np.int64), *ids]
    )


def is_mapped(index: Any) -> bool:
    """Return whether the lists of an index are mapped from files.

    False for an index without lists.
    """
    return isinstance(index, faiss.IndexIVF) and isinstance(
        faiss.downcast_InvertedLists(index.invlists),
        faiss.OnDiskInvertedLists | faiss.HStackInvertedLists,
    )


# --- codes of labels ------------------------------------------------------------------------------

_KINDS = (int, str, bool)
"""Types of labels, by their numbers in files."""
_READERS: dict[int, Callable[[str], Any]] = {
    0: int,
    1: str,
    2: {"False": False, "True": True}.__getitem__,
}


class LabelEncoder:
    """Encodes labels of new rows.

    Attributes
    ----------
    table
        The table after all calls; None while all labels are their own codes.
    """

    def __init__(self, table: LabelKeys | None, stored: Callable[[], Int32s]) -> None:
        self.table = table
        self._stored = stored

    def __call__(self, name: str, values: Any, n: int, *, unknown: bool = False) -> Int32s:
        """Return the codes of labels, checked; new labels get new codes."""
        labels = as_labels(name, values, n, unknown=unknown)
        if self.table is None and labels.dtype == np.int32:
            return labels
        table = LabelKeys.of_codes(self._stored()) if self.table is None else self.table
        codes = table.find(name, labels)
        new = codes == NOT_STORED
        if new.any():
            table = table.with_labels(labels[new])
            codes = table.find(name, labels)
        self.table = table
        return codes


# --- files ----------------------------------------------------------------------------------------


def arrays_of(table: LabelKeys | None, stored: Callable[[], Int32s]) -> dict[str, Array]:
    """Return the arrays that a file holds: labels as bytes, and the code of each.

    Integers are int64. Other tables have the end of each label in the bytes, and its kind if some
    are no texts. Labels without rows are left out; one is kept at least, so that the labels remain
    of its kind.
    """
    if table is None:
        table = LabelKeys.of_codes(np.empty(0, np.int32))
    else:
        has_rows = np.isin(table.codes, stored())
        has_rows[: int(not has_rows.any() and not table.are_integers)] = True
        table = LabelKeys(table.keys[has_rows], table.codes[has_rows])
    ends = np.empty(0, np.int64)
    content = table.keys.tobytes()
    if not table.are_integers:
        parts = [str(label).encode(errors="surrogatepass") for label in table.keys.tolist()]
        ends = np.cumsum([len(part) for part in parts], dtype=np.int64)
        content = b"".join(parts)
    arrays: dict[str, Array] = {
        "label_keys": np.frombuffer(content, np.uint8),
        "label_ends": ends,
        "label_codes": table.codes,
    }
    if table.kinds - {str} and not table.are_integers:
        kinds = [_KINDS.index(type(label)) for label in table.keys.tolist()]
        arrays["label_kinds"] = np.array(kinds, np.uint8)
    return arrays


def table_from(arrays: Mapping[str, Array]) -> LabelKeys | None:
    """Return the table from the arrays of :func:`arrays_of`; ValueError if they are not valid."""
    codes = np.array(arrays.get("label_codes", ()), np.int32)
    if not len(codes):
        return None
    content = np.asarray(arrays["label_keys"]).tobytes()
    ends = arrays["label_ends"]
    values: Any
    if not len(ends):
        values = np.frombuffer(content, np.int64)
    else:
        starts = np.append(0, ends[:-1])
        if (starts > ends).any() or ends[-1] != len(content) or len(ends) != len(codes):
            raise ValueError("the texts of its labels do not fit")
        texts = (
            content[start:end].decode(errors="surrogatepass")
            for start, end in zip(starts, ends, strict=True)
        )
        kinds = arrays.get("label_kinds", np.ones_like(ends))
        try:
            values = [
                _READERS[kind](text) for kind, text in zip(kinds.tolist(), texts, strict=True)
            ]
        except KeyError as error:
            raise ValueError(f"its labels are of no known kind: {error}") from error
    try:
        keys = as_labels("its labels", values, len(codes))
    except (TypeError, ValueError) as error:
        raise ValueError(f"the texts of its labels do not fit: {error}") from error
    keys = keys.astype(np.int64 if keys.dtype.kind == "i" else object)
    if keys.dtype.kind == "O":
        is_ascending = all(one < two for one, two in pairwise(map(order_key, keys.tolist())))
    else:
        is_ascending = bool((keys[1:] > keys[:-1]).all())
    if (
        not is_ascending
        or len(np.unique(codes)) < len(codes)
        or codes.min() < 0
        or codes.max() >= MAX_CODES
    ):
        raise ValueError("its labels are not in order")
    return LabelKeys(keys, codes)
