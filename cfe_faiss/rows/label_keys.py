"""Codes of the labels of new rows, and the table of labels and codes in files.

Labels below 2**31 - 1 are their own codes, until another label is added. Then a table holds the
code of each label. A code never changes while a row has it, so no row is rewritten.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from cfe_faiss.base.checks import Array, Int32s
from cfe_faiss.base.values import MAX_CODES, NOT_STORED, LabelKeys, as_labels, order_key

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
    given: Any
    if not len(ends):
        given = np.frombuffer(content, np.int64)
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
            given = [_READERS[kind](text) for kind, text in zip(kinds.tolist(), texts, strict=True)]
        except KeyError as error:
            raise ValueError(f"its labels are of no known kind: {error}") from error
    try:
        keys = as_labels("its labels", given, len(codes))
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
