"""Labels as users give them, integers or texts, and the codes that stand for them in the rows of an index.

Labels below 2**31 - 1 are their own codes, until a text or a larger label is added. Then a table holds the code of each
label. A code never changes while a row has it, so no row is rewritten.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from cfe_faiss.base.arrays import Array, Int32s
from cfe_faiss.base.checks import UNKNOWN, is_label, to_host

NOT_STORED = -2
"""Code of a label that is not in the table."""
_MOST = np.iinfo(np.int64).max
_MOST_CODES = np.iinfo(np.int32).max


def as_labels(name: str, values: Any, n: int, *, unknown: bool = False) -> Array:
    """Return labels, (n,): int32 if all are codes, else int64 or texts. With ``unknown`` also -1, for None "" in texts.

    Raises
    ------
    TypeError
        If the labels are neither integers nor texts.
    ValueError
        If the shape is not (n,), or a label is negative, above 2**63 - 1 or an empty text.
    """
    array = _as_array(name, values)
    if array.shape != (n,):
        raise ValueError(f"{name} must have shape ({n},), one label per vector, got {array.shape}")
    if array.dtype.kind == "U":
        if not unknown and n and (array == "").any():
            raise ValueError(f"{name} must hold a label for each vector, got None")
        return array
    if array.dtype.kind not in "biu" and n:
        raise TypeError(f"{name} must be integers or texts, got dtype {array.dtype}")
    lowest = UNKNOWN if unknown else 0
    # A NumPy reduction takes 1 us, too long for a single query.
    least, most = (lowest, lowest) if n == 0 else 2 * array.tolist() if n == 1 else (array.min(), array.max())
    if not lowest <= least <= most <= _MOST:
        raise ValueError(f"{name} must lie in {lowest}..2**63-1, got {least if least < lowest else most}")
    return array.astype(np.int32 if most < _MOST_CODES else np.int64)


def _as_array(name: str, values: Any) -> Array:
    """Return labels as an array of numbers or texts, with -1 or "" for None."""
    values = to_host(values)
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{name} must be an array of labels, got {type(values).__name__}") from error
    if array.dtype.kind == "T":
        array = array.astype(np.str_)
    elif array.dtype.kind == "U" and array is not values:  # NumPy makes texts of the numbers in a list
        array = np.asarray(values, object)
    if array.dtype.kind == "O":
        return _of_objects(name, array)
    if array.dtype.kind == "U" and (array == "").any():
        raise ValueError(f"{name} must hold no empty text, got one")
    return array


def _of_objects(name: str, array: Array) -> Array:
    missing = getattr(sys.modules.get("pandas"), "NA", None)
    items = [None if one is missing else one for one in array.reshape(-1).tolist()]
    known = [one for one in items if one is not None]
    if known and all(isinstance(one, str) for one in known):
        wrong = next((one for one in known if one[-1:] in ("", "\0")), None)  # NumPy's texts end before zeros
        if wrong is not None:
            raise ValueError(f"{name} must hold no {'text that ends in a zero' if wrong else 'empty text'}, got one")
        return np.array(["" if one is None else one for one in items], np.str_).reshape(array.shape)
    for one in known:
        if isinstance(one, bool | str) or not hasattr(type(one), "__index__"):
            raise TypeError(f"{name} must be integers or texts, got {one!r} among them")
        if abs(int(one)) > _MOST:
            raise ValueError(f"{name} must lie in 0..2**63-1, got {one}")
    return np.array([UNKNOWN if one is None else int(one) for one in items], np.int64).reshape(array.shape)


class LabelKeys(NamedTuple):
    """The labels of an index, ascending, (c,) int64 or texts, and the code of each, (c,) int32."""

    keys: Array
    codes: Int32s

    @classmethod
    def of_codes(cls, codes: Int32s) -> LabelKeys:
        """Return the table in which labels are their own codes."""
        return cls(codes.astype(np.int64), codes)

    @classmethod
    def union(cls, tables: list[LabelKeys]) -> LabelKeys | None:
        """Return the labels of all tables; ValueError if they disagree. None if there are no tables."""
        if not tables:
            return None
        keys, codes = (np.concatenate(parts) for parts in zip(*tables, strict=True))
        keys, first, number = np.unique(keys, return_index=True, return_inverse=True)
        if (codes[first][number] != codes).any() or len(np.unique(codes)) != len(keys):
            raise ValueError("its labels have different codes")
        return cls(keys, codes[first])

    @property
    def are_texts(self) -> bool:
        """Whether the labels are texts."""
        return bool(self.keys.dtype.kind == "U")

    def find(self, name: str, labels: Array) -> Int32s:
        """Return the codes of labels of :func:`as_labels`: -1 for unknown, ``NOT_STORED`` for one without a code."""
        texts = labels.dtype.kind == "U"
        codes = np.full(len(labels), NOT_STORED, np.int32)
        codes[labels == ("" if texts else UNKNOWN)] = UNKNOWN
        if len(self.keys) and (codes == NOT_STORED).any():
            if texts != self.are_texts:
                kind = "texts" if self.are_texts else "integers"
                raise TypeError(f"{name} must be {kind}, as the labels of the index are, got {labels.tolist()[0]!r}")
            places = np.minimum(np.searchsorted(self.keys, labels), len(self.keys) - 1)
            found = (self.keys[places] == labels) & (codes == NOT_STORED)
            codes[found] = self.codes[places[found]]
        return codes

    def with_labels(self, labels: Array) -> LabelKeys:
        """Return the table with further labels, which get the next codes."""
        new = np.unique(labels)
        if not len(new):
            return self
        first = int(self.codes.max(initial=UNKNOWN)) + 1
        codes = np.arange(first, first + len(new))
        if not is_label(first + len(new) - 1):
            free = np.setdiff1d(np.arange(len(self.codes) + len(new)), self.codes)
            codes = free[: len(new)]
        if not len(self.keys):
            return LabelKeys(new, codes.astype(np.int32))
        keys, codes = np.concatenate([self.keys, new]), np.concatenate([self.codes, codes])
        order = np.argsort(keys, kind="stable")
        return LabelKeys(keys[order], codes[order].astype(np.int32))

    def decode(self, codes: Int32s) -> Array:
        """Return the labels of codes, (n,): int64, or objects if they are texts; -1 or None for unknown."""
        order = np.argsort(self.codes)
        places = np.searchsorted(self.codes, codes, sorter=order)
        labels = np.append(self.keys[order], self.keys[:1]).astype(object if self.are_texts else np.int64)[places]
        labels[codes == UNKNOWN] = None if self.are_texts else UNKNOWN
        return labels


class LabelEncoder:
    """Encodes labels of new rows.

    Attributes
    ----------
    table
        The table after all calls; None while all labels are their own codes.
    """

    def __init__(self, table: LabelKeys | None, stored: Callable[[], Int32s]) -> None:
        self.table, self._stored = table, stored

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


# --- files ------------------------------------------------------------------------------------------------------------


def arrays_of(table: LabelKeys | None, stored: Callable[[], Int32s]) -> dict[str, Array]:
    """Return the arrays that a file holds: keys as bytes, the end of each text (none for integers), and the codes.

    Labels without rows are left out; of texts one is kept at least, so that the labels remain texts.
    """
    if table is None:
        table = LabelKeys.of_codes(np.empty(0, np.int32))
    else:
        has_rows = np.isin(table.codes, stored())
        has_rows[: int(table.are_texts and not has_rows.any())] = True
        table = LabelKeys(table.keys[has_rows], table.codes[has_rows])
    ends, content = np.empty(0, np.int64), table.keys.tobytes()
    if table.are_texts:
        texts = [text.encode(errors="surrogatepass") for text in table.keys.tolist()]
        ends, content = np.cumsum([len(text) for text in texts], dtype=np.int64), b"".join(texts)
    return {"label_keys": np.frombuffer(content, np.uint8), "label_ends": ends, "label_codes": table.codes}


def table_from(arrays: Mapping[str, Array]) -> LabelKeys | None:
    """Return the table from the arrays of :func:`arrays_of`; ValueError if they are not valid."""
    codes = np.array(arrays.get("label_codes", ()), np.int32)
    if not len(codes):
        return None
    content, ends = np.asarray(arrays["label_keys"]).tobytes(), arrays["label_ends"]
    keys: Array
    if len(ends):
        starts = np.append(0, ends[:-1])
        if (starts > ends).any() or ends[-1] != len(content) or len(ends) != len(codes):
            raise ValueError("the texts of its labels do not fit")
        keys = np.array(
            [content[a:b].decode(errors="surrogatepass") for a, b in zip(starts.tolist(), ends.tolist(), strict=True)],
            np.str_,
        )
    else:
        keys = np.frombuffer(content, np.int64)
    distinct = len(np.unique(codes)) == len(codes) == len(keys) and (keys[1:] > keys[:-1]).all()
    if not distinct or codes.min() < 0 or codes.max() >= _MOST_CODES or keys[0] == ("" if len(ends) else UNKNOWN):
        raise ValueError("its labels are not in order")
    return LabelKeys(keys, codes)
