"""Values of users, of any library, as labels, groups and ids.

Labels and groups are of three kinds: numbers, texts and booleans. 1, "1" and True are three values.
A missing value (None, NaN, NaT, the NA of pandas, a null of Arrow or polars, a masked entry of
NumPy) is an unknown label, and never a group or an id.
"""

from collections.abc import Iterable, Mapping, ValuesView
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from cfe_faiss.base.checks import (
    UNKNOWN,
    Array,
    Int32s,
    Ints,
    check_distinct,
    check_known,
    is_label,
    is_missing,
    to_host,
)
from cfe_faiss.base.extras import pd
from cfe_faiss.base.threads import derived

NOT_STORED = -2
"""Code of a label that is not in a table."""
MAX_CODES = np.iinfo(np.int32).max
"""Labels below it may be their own codes."""
_MAX_LABEL = np.iinfo(np.int64).max
# In the running top k, 2**63 - 1 means "no id yet".
_MAX_ID = _MAX_LABEL - 1
_LISTS = frozenset({list, tuple})
_FEW_NUMBERS = 32  # in fewer, Python finds the ends sooner than two reductions of NumPy
_PLAIN = frozenset({bool, int, str, type(None)})
_KINDS = {bool: "booleans", int: "integers", str: "texts"}
_KINDS_IN_WORDS = "integers, texts or booleans"
_WITHOUT_LABEL = ": leave it out, or store a vector without a label by add, or by relabel with -1"


# --- plain values ---------------------------------------------------------------------------------


def as_values(name: str, values: Any, *, floats: bool = True) -> Array:
    """Return values of a user as an array of integers (in int64), of booleans, or of objects.

    Objects are integers, floats that are no whole numbers, texts, booleans, and None for a missing
    value.

    Parameters
    ----------
    name
        Name of the argument in errors.
    values
        A sequence, set or range, an array, a tensor, or a column of pandas, polars or Arrow.
    floats
        Whether to take floats; otherwise only together with a missing value, where libraries make
        floats of integers. Whole numbers become integers.

    Raises
    ------
    TypeError
        If a value is of another kind; the error names it and its position.
    ValueError
        If sequences within ``values`` have different lengths.
    """
    array = _as_array(name, to_host(values))
    kind = array.dtype.kind
    if not array.size and kind in "Of":
        return array.astype(np.int64)
    if kind in "bi" or (kind == "u" and array.max(initial=0) <= _MAX_LABEL):
        return array if kind == "b" else array.astype(np.int64, copy=False)
    if kind == "f" and not floats and not np.isnan(array).any():
        raise TypeError(f"{name} must be integers, got dtype {array.dtype}")
    are_whole = kind == "f" and bool((np.floor(array) == array).all())
    if are_whole and float(abs(array).max()) < _MAX_LABEL:
        return array.astype(np.int64)
    if kind not in "ufOSTU":
        raise TypeError(f"{name} must be {_KINDS_IN_WORDS}, got dtype {array.dtype}")
    items = array.reshape(-1).tolist()
    if not set(map(type, items)) <= _PLAIN:
        items = [_plain_item(name, item, position) for position, item in enumerate(items)]
    return as_objects(items).reshape(array.shape)


def _as_array(name: str, values: Any) -> Array:
    """Return values as an array of unchanged types: NumPy turns numbers with texts into texts."""
    if isinstance(values, np.ma.MaskedArray) and values.mask.any():
        objects: Array = values.data.astype(object)
        objects[values.mask] = None
        return objects
    if isinstance(values, np.ndarray):
        return np.asarray(values)
    if not isinstance(values, list | tuple):
        if isinstance(values, AbstractSet | ValuesView):
            values = list(values)
        elif _has_nulls(values):  # as arrays, integers with nulls are floats
            values = as_list(name, values)
    if isinstance(values, list | tuple):
        types = set(map(type, values))
        row_types = [
            one for one in types if hasattr(one, "__len__") and not issubclass(one, str | bytes)
        ]
        is_nested = bool(row_types) and np.ndim(values[0]) > 0
        if not is_nested and (len(types) > 1 or not _is_exact(types, values)):
            return as_objects(values)
    try:
        return np.asarray(values)
    except ValueError as error:
        kind = type(values).__name__
        raise ValueError(f"{name} must be an array of values, got {kind}") from error
    except TypeError as error:  # a tensor of a type that NumPy does not have
        kind = type(values).__name__
        raise TypeError(f"{name} must be {_KINDS_IN_WORDS}, got {kind}: {error}") from error


def _has_nulls(values: Any) -> bool:
    """Return whether a column of Arrow, polars or pandas has nulls."""
    nulls = getattr(values, "null_count", 0)
    dtype = getattr(values, "dtype", None)
    if hasattr(values, "isna") and dtype is not None and not isinstance(dtype, np.dtype):
        nulls = values.isna().any()
    return bool(nulls() if callable(nulls) else nulls)


def _is_exact(types: set[type], values: list[Any] | tuple[Any, ...]) -> bool:
    """Return whether NumPy keeps the values of a sequence of one type."""
    (kind,) = types or (int,)
    if kind is int:
        return not values or -_MAX_LABEL <= min(values) <= max(values) <= _MAX_LABEL
    return kind in (bool, float) or issubclass(kind, np.number | np.bool_)


def as_objects(values: Iterable[Any]) -> Array:
    """Return values as an array of objects, (n,)."""
    return np.fromiter(values, object)


def _plain_item(name: str, value: Any, position: int) -> Any:
    if hasattr(value, "as_py"):  # a scalar of Arrow
        value = value.as_py()
    if value is np.ma.masked:
        return None
    if isinstance(value, np.datetime64 | np.timedelta64) and not np.isnat(value):
        _refuse_kind(name, value, position)
    if getattr(value, "shape", None) == ():  # a scalar of NumPy, or a tensor
        value = value.item()
    if type(value) in _PLAIN:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if hasattr(value, "__len__"):
        _refuse_kind(name, value, position)
    if is_missing(value):
        return None
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if not hasattr(type(value), "__index__"):
        _refuse_kind(name, value, position)
    return value.__index__()


def _refuse_kind(name: str, value: Any, position: int) -> NoReturn:
    where = f"got {type(value).__name__}: {value!r:.80} at position {position}"
    raise TypeError(f"{name} must be {_KINDS_IN_WORDS}, {where}")


def _without_names(values: Any) -> Any:
    """Return a DataFrame, which iterates over the names of its columns, as an array of its rows."""
    is_table = len(getattr(values, "shape", ())) == 2 and hasattr(values, "to_numpy")
    return values.to_numpy() if is_table else values


def as_list(name: str, values: Any) -> list[Any]:
    """Return a sequence, array, tensor, column, or rows of a table as a list of Python values."""
    if isinstance(values, str | bytes | Mapping) or not hasattr(values, "__iter__"):
        raise TypeError(
            f"{name} must be a sequence, got {type(values).__name__}: {str(values)[:60]!r}"
        )
    values = _without_names(to_host(values))
    for method in ("tolist", "to_pylist", "to_list"):  # NumPy and pandas, Arrow, polars
        if hasattr(values, method):
            return list(getattr(values, method)())
    return list(values)


# --- labels and their codes -----------------------------------------------------------------------


def as_labels(name: str, values: Any, n: int, *, unknown: bool = False) -> Array:
    """Return labels, (n,): int32 or int64 if all are integers, booleans, or objects.

    Unknown labels are missing values and -1. They become -1 among integers, else None.

    Raises
    ------
    TypeError
        If a label is neither an integer, nor a text, nor a boolean.
    ValueError
        If the shape is not (n,); if a label is unknown without ``unknown``, negative, above 2**63 -
        1, an empty text or a text that ends in a zero. The error names it and its position.
    """
    array = as_values(name, values, floats=unknown)
    if array.shape != (n,):
        raise ValueError(f"{name} must have shape ({n},), one label per vector, got {array.shape}")
    if array.dtype.kind == "O":
        array = _check_objects(name, array.tolist(), unknown)
    if array.dtype.kind != "i":
        return array
    lowest = UNKNOWN if unknown else 0
    ends = _ends(array)
    if n and ends[0] < lowest:
        where = f"got {ends[0]} at position {int(np.argmin(array))}"
        remedy = _WITHOUT_LABEL if ends[0] == UNKNOWN else ""
        raise ValueError(f"{name} must lie in {lowest}..2**63-1, {where}{remedy}")
    return array if n and ends[-1] >= MAX_CODES else array.astype(np.int32)


def _check_objects(name: str, labels: list[Any], unknown: bool) -> Array:
    types = set(map(type, labels))
    if None in labels and not unknown:
        position = labels.index(None)
        raise ValueError(
            f"{name} must hold a label for each vector, got None at position {position}"
            f"{_WITHOUT_LABEL}"
        )
    if types == {str} and "" not in labels and not any(text[-1] == "\0" for text in labels):
        return as_objects(labels)
    for position, label in enumerate(labels):
        where = f"got {label!r:.80} at position {position}"
        if type(label) is float:
            raise TypeError(f"{name} must be {_KINDS_IN_WORDS}, {where}")
        if type(label) is int and not (UNKNOWN if unknown else 0) <= label <= _MAX_LABEL:
            raise ValueError(f"{name} must lie in 0..2**63-1, {where}")
        if type(label) is str and label[-1:] in ("", "\0"):  # NumPy's texts end before zeros
            problem = "text that ends in a zero" if label else "empty text"
            raise ValueError(f"{name} must hold no {problem}, {where}")
    if types <= {int, type(None)}:
        return np.array([UNKNOWN if label is None else label for label in labels], np.int64)
    if types == {bool}:
        return np.array(labels, np.bool_)
    return as_objects(None if label == UNKNOWN else label for label in labels)


def as_classes(name: str, values: Any, *, unknown: bool = False) -> Array:
    """Return labels of one kind: integers, booleans, or texts as objects.

    With ``unknown`` also objects with None.

    Parameters
    ----------
    name
        Name of the argument in errors.
    values
        As in :func:`as_values`.
    unknown
        Whether values may be missing.

    Raises
    ------
    TypeError
        If a value is no label, or of another kind than the first; the error names both and their
        positions.
    ValueError
        If a value is missing, or above 2**63 - 1.
    """
    array = as_values(name, values, floats=False)
    if array.dtype.kind != "O" or not array.size:
        return array
    listed = array.tolist()
    if None in listed and not unknown:
        raise ValueError(
            f"{name} must hold a class for every node, got none for node {listed.index(None)}"
        )
    positions = [position for position, label in enumerate(listed) if label is not None]
    kinds = [_KINDS.get(type(listed[position])) for position in positions]
    for position, kind in zip(positions, kinds, strict=True):
        if kind is None or kind != kinds[0]:
            where = " and ".join(
                f"{listed[at]!r:.80} at position {at}" for at in sorted({positions[0], position})
            )
            raise TypeError(f"{name} must be {_KINDS_IN_WORDS}, all of one kind, got {where}")
    if None in listed or kinds[0] == "texts":
        return array
    if max(map(abs, listed)) > _MAX_LABEL:
        raise ValueError(f"{name} must lie in 0..2**63-1, got {max(listed, key=abs)}")
    return np.array(listed)


def _identity(label: Any) -> Any:
    """Return a key that only equal labels share: in Python, True equals 1."""
    return (bool, label) if type(label) is bool else label


def _identities(labels: Array) -> list[Any]:
    listed: list[Any] = labels.tolist()
    return list(map(_identity, listed)) if bool in set(map(type, listed)) else listed


def order_key(label: Any) -> tuple[bool, bool, Any]:
    """Return a key that puts labels in ascending order: booleans, numbers, texts."""
    return isinstance(label, str), type(label) is not bool, label


def order_of(labels: Array) -> Ints:
    """Return the positions of known labels in the order of :func:`order_key`."""
    if labels.dtype.kind != "O":
        return np.argsort(labels, kind="stable")
    keys = list(map(order_key, labels.tolist()))
    return np.array(sorted(range(len(keys)), key=keys.__getitem__), np.int64)


def distinct(labels: Array) -> tuple[Ints, Ints]:
    """Return the first position of each known label, and the number of each label, (n,).

    Labels are in ascending order.
    """
    if labels.dtype.kind != "O":
        _, first, numbers = np.unique(labels, return_index=True, return_inverse=True)
        return first, numbers.astype(np.int64)
    keys = _identities(labels)
    first_of = dict(zip(reversed(keys), range(len(keys) - 1, -1, -1), strict=True))
    positions = np.fromiter(first_of.values(), np.int64, len(first_of))
    positions = positions[order_of(labels[positions])]
    number_of = {keys[position]: number for number, position in enumerate(positions.tolist())}
    return positions, np.fromiter(map(number_of.__getitem__, keys), np.int64, len(keys))


def joined(parts: list[Array]) -> Array:
    """Return arrays of labels, one after the other; NumPy would turn True with integers into 1."""
    of_one_kind = len({part.dtype.kind for part in parts}) == 1
    return np.concatenate(parts if of_one_kind else [part.astype(object) for part in parts])


@dataclass(frozen=True, eq=False)
class LabelKeys:
    """Distinct labels in ascending order, (c,) int64 or objects, and their codes, (c,)."""

    keys: Array
    codes: Int32s

    @classmethod
    def of_codes(cls, codes: Int32s) -> "LabelKeys":
        """Return the table in which labels are their own codes."""
        return cls(codes.astype(np.int64), codes)

    @classmethod
    def of_names(cls, names: Array) -> "LabelKeys":
        """Return the table in which the code of a label is its position in ``names``."""
        order = order_of(names)
        return cls(names[order], order.astype(np.int32))

    @classmethod
    def union(cls, tables: list["LabelKeys"]) -> "LabelKeys | None":
        """Return the labels of all tables; ValueError if they disagree.

        None if there are no tables.
        """
        if not tables:
            return None
        keys = joined([table.keys for table in tables])
        codes = np.concatenate([table.codes for table in tables])
        first, number = distinct(keys)
        if (codes[first][number] != codes).any() or len(np.unique(codes)) != len(first):
            raise ValueError("its labels have different codes")
        return cls(keys[first], codes[first])

    @property
    def are_integers(self) -> bool:
        """Whether all labels are integers."""
        return self.keys.dtype.kind != "O"

    @derived
    def kinds(self) -> frozenset[type]:
        """Types of the labels."""
        keys = self.keys[:1] if self.are_integers else self.keys
        return frozenset(map(type, keys.tolist()))

    @derived
    def _code_of(self) -> dict[Any, int]:
        return dict(zip(_identities(self.keys), self.codes.tolist(), strict=True))

    def code_of(self, label: Any) -> int | None:
        """Return the code of one label, ``NOT_STORED`` without one.

        None if it is unknown or of another kind.
        """
        if type(label) not in self.kinds or label == UNKNOWN:
            return None
        if not self.are_integers:
            return self._code_of.get(_identity(label), NOT_STORED)
        place = int(self.keys.searchsorted(label))
        is_stored = place < len(self.keys) and self.keys[place] == label
        return int(self.codes[place]) if is_stored else NOT_STORED

    def find(self, name: str, labels: Array) -> Int32s:
        """Return the codes of labels: -1 for unknown, ``NOT_STORED`` for one without a code.

        Raises
        ------
        TypeError
            If a label is of a kind that no label of the table has.
        """
        if labels.dtype.kind == "b":
            first, numbers = distinct(labels)
            return self.find(name, labels[first].astype(object))[numbers]
        is_known = labels != (None if labels.dtype.kind == "O" else UNKNOWN)
        codes = np.where(is_known, NOT_STORED, UNKNOWN).astype(np.int32)
        if not len(self.keys) or not is_known.any():
            return codes
        self._check_kinds(name, labels, is_known)
        if self.are_integers and labels.dtype.kind == "i":
            places = np.minimum(np.searchsorted(self.keys, labels), len(self.keys) - 1)
            is_stored = (self.keys[places] == labels) & is_known
            codes[is_stored] = self.codes[places[is_stored]]
            return codes
        known_codes = (self._code_of.get(key, NOT_STORED) for key in _identities(labels[is_known]))
        codes[is_known] = np.fromiter(known_codes, np.int32)
        return codes

    def _check_kinds(self, name: str, labels: Array, is_known: Array) -> None:
        types = {int} if labels.dtype.kind == "i" else set(map(type, labels[is_known].tolist()))
        if types <= self.kinds:
            return
        listed = labels.tolist()
        is_wrong = [
            is_label and type(listed[at]) not in self.kinds
            for at, is_label in enumerate(is_known.tolist())
        ]
        position = is_wrong.index(True)
        kinds = " or ".join(words for kind, words in _KINDS.items() if kind in self.kinds)
        where = f"got {listed[position]!r:.80} at position {position}"
        raise TypeError(f"{name} must be {kinds}, as the labels of the index are, {where}")

    def with_labels(self, labels: Array) -> "LabelKeys":
        """Return the table with further labels, which get the next codes."""
        new = labels[distinct(labels)[0]]
        if not len(new):
            return self
        first = int(self.codes.max(initial=UNKNOWN)) + 1
        codes = np.arange(first, first + len(new))
        if not is_label(first + len(new) - 1):
            free = np.setdiff1d(np.arange(len(self.codes) + len(new)), self.codes)
            codes = free[: len(new)]
        new = new.astype(np.int64 if new.dtype.kind == "i" else object)
        keys = joined([self.keys, new]) if len(self.keys) else new
        order = order_of(keys)
        return LabelKeys(keys[order], np.concatenate([self.codes, codes])[order].astype(np.int32))

    def decode(self, codes: Int32s) -> Array:
        """Return the labels of codes, (n,): int64 with -1 for unknown; booleans if all are.

        Else objects with None.
        """
        order = np.argsort(self.codes)
        places = np.searchsorted(self.codes, codes, sorter=order)
        is_unknown = codes == UNKNOWN
        filler = np.array([UNKNOWN if self.are_integers else None], self.keys.dtype)
        places[is_unknown] = len(self.keys)
        labels: Array = np.concatenate([self.keys[order], filler])[places]
        return labels.astype(np.bool_) if self.kinds == {bool} and not is_unknown.any() else labels


# --- groups and ids -------------------------------------------------------------------------------


def group_numbers(*columns: tuple[str, Any, int]) -> list[Ints]:
    """Return groups as numbers from 0.

    Equal groups of all columns (name, groups, length) have equal numbers.

    Raises
    ------
    TypeError
        If a group is missing, or neither a number, nor a text, nor a boolean; the error names it
        and its position.
    ValueError
        If a column has not the shape (length,).
    """
    arrays = []
    for name, groups, n in columns:
        array = as_values(name, groups)
        if array.shape != (n,):
            raise ValueError(
                f"{name} must have shape ({n},), one group for each row, got {array.shape}"
            )
        if array.dtype.kind == "O" and None in array.tolist():
            where = f"got a missing group at position {array.tolist().index(None)}"
            raise TypeError(f"{name} must hold a group for each row, {where}")
        arrays.append(array)
    numbers = distinct(joined(arrays))[1]
    return np.split(numbers, np.cumsum([len(array) for array in arrays])[:-1])


def as_ids(name: str, values: Any, n: int | None = None, *, lowest: int = 0) -> Ints:
    """Return ids, shape (m,), int64; with ``n``, numbers of n nodes.

    Raises
    ------
    TypeError
        If the ids are not integers; the error names the first other one.
    ValueError
        If the array is not one-dimensional, or an id is below ``lowest`` (-1 is FAISS's padding) or
        above 2**63-2, or n-1.
    """
    array = as_integers(name, values)
    if array.ndim != 1:
        raise ValueError(f"{name} must have shape (n,), got {array.shape}")
    ends = _ends(array)
    if ends and (ends[0] < lowest or ends[1] > (_MAX_ID if n is None else n - 1)):
        limit = "2**63-2" if n is None else n - 1
        wrong = ends[0] if ends[0] < lowest else ends[1]
        raise ValueError(f"{name} must lie in 0..{limit}, got {wrong}")
    return np.ascontiguousarray(array, np.int64)


def _ends(numbers: Array) -> list[int]:
    """Return the smallest and the largest of some integers, (n,); nothing without numbers."""
    if len(numbers) > _FEW_NUMBERS:
        return [numbers.min(), numbers.max()]
    listed = numbers.tolist()
    return [min(listed), max(listed)] if listed else []


def as_integers(name: str, values: Any) -> Array:
    """Return integers of a user in int64, or as objects where it does not hold them.

    TypeError for other values.
    """
    array = as_values(name, values, floats=False)
    if array.dtype.kind == "b":
        raise TypeError(f"{name} must be integers, got dtype bool")
    if array.dtype.kind == "O":
        for position, value in enumerate(array.reshape(-1).tolist()):
            if type(value) is not int:
                raise TypeError(
                    f"{name} must be integers, got {value!r:.80} at position {position}"
                )
    return array


def in_row_order(name: str, values: Any, n: int, index: Any = None) -> Any:
    """Return a column or table of pandas in the order of n rows; return other values unchanged.

    Parameters
    ----------
    name
        Name of the argument in errors.
    values
        One value, or one line, for each row. Those of pandas belong to rows by their index, or if
        it has no label of a row, by position.
    index
        The pandas index of the rows; None: 0..n-1.

    Raises
    ------
    ValueError
        If the index has labels of rows and others, or not every row once.
    """
    if not hasattr(values, "reset_index"):
        return values
    index = pd.RangeIndex(n) if index is None else index
    is_of_row = values.index.isin(index)
    if is_of_row.any() and not values.index.equals(index):
        if len(values) != n or not is_of_row.all() or not values.index.is_unique:
            raise ValueError(
                f"{name} must have the pandas index of the {n:,} rows, got another one of "
                f"{len(values):,}: sort the rows alike, or pass arrays"
            )
        values = values.loc[index]
    return values.reset_index(drop=True)


def as_nodes(name: str, values: Any, n: int, ids: Array | None = None, index: Any = None) -> Ints:
    """Return distinct row numbers, ascending, from ids or a mask; all n for None.

    See :func:`row_numbers`.
    """
    return np.arange(n) if values is None else np.unique(row_numbers(name, values, n, ids, index))


def row_numbers(
    name: str, values: Any, n: int, ids: Array | None = None, index: Any = None
) -> Ints:
    """Return the row of each id, (m,), or the rows that a mask, (n,), selects.

    See :func:`find_rows`, and for a mask of pandas :func:`in_row_order`.

    A mask holds booleans, or in more than two rows 0 and 1 of any type.

    Raises
    ------
    TypeError, ValueError
        As for :func:`find_rows`; or if booleans have another shape.
    """
    is_single = (
        not hasattr(values, "__len__")
        or getattr(values, "shape", None) == ()
        or isinstance(values, str | bytes)
    )
    listed = [values] if is_single else as_list(name, values)
    if listed and isinstance(listed[0], list):
        raise ValueError(f"{name} must have shape (m,), got rows of values")
    are_booleans = bool(listed) and all(isinstance(value, bool | np.bool_) for value in listed)
    if are_booleans and len(listed) != n:
        raise ValueError(f"{name} must have shape ({n},) as a mask, got ({len(listed)},)")
    kinds = int | float | np.number | np.bool_
    are_bits = len(listed) == n > 2 and all(
        isinstance(value, kinds) and value in (0, 1) for value in listed
    )
    if are_booleans or are_bits:
        return np.flatnonzero(as_list(name, in_row_order(name, values, n, index)))
    return find_rows(name, listed, n, ids)


def find_rows(name: str, values: Any, n: int, ids: Array | None = None) -> Ints:
    """Return the row of each id, (m,); without ``ids`` of the rows, ids are row numbers.

    Raises
    ------
    TypeError
        If ids are integers, and a value is none.
    ValueError
        If an id is unknown.
    """
    if ids is None:
        return as_ids(name, values, n)
    are_integers = ids.dtype.kind == "i"
    keys = (
        as_integers(name, values).tolist()
        if are_integers
        else [str(value) for value in as_list(name, values)]
    )
    row_of = {value: row for row, value in enumerate(ids.tolist())}
    for key in keys:
        check_known(f"{name} must name rows by their ids", key, row_of)
    return np.array([row_of[key] for key in keys], np.int64)


def as_row_ids(name: str, values: Any, n: int) -> Array:
    """Return the ids of n rows, (n,): int64 if all are integers, else texts as objects.

    Raises
    ------
    ValueError
        If there are not n ids, one is missing, or two rows have the same one.
    """
    listed = as_list(name, values)
    if len(listed) != n:
        raise ValueError(f"{name} must hold one id for each of {n:,} rows, got {len(listed):,}")
    missing = [row for row, value in enumerate(listed) if is_missing(value)]
    if missing:
        raise ValueError(f"{name} must hold an id for every row, got none in row {missing[0]}")
    are_integers = all(isinstance(value, int) and not isinstance(value, bool) for value in listed)
    ids = np.array(listed, np.int64) if are_integers else as_objects(map(str, listed))
    remedy = "where people have several rows, leave it out, and name them in person= of audits"
    check_distinct(f"{name} must hold each id once ({remedy})", ids.tolist())
    return ids


def as_lists(name: str, values: Any, n: int) -> tuple[Any, Ints]:
    """Return the items of n sequences, or of rows of an array (n, m), and lengths, (n,).

    Raises
    ------
    TypeError
        If the values are not sequences.
    ValueError
        If there are not n of them.
    """
    if not isinstance(values, np.ndarray):
        values = _without_names(values)
    if isinstance(values, np.ndarray) and values.ndim == 2 and len(values) == n:
        lengths = np.empty(n, np.int64)
        lengths.fill(values.shape[1])  # `np.full` takes longer than all other checks of one query
        return values.reshape(-1), lengths
    expected = f"{name} must hold one sequence for each of {n} rows"
    if isinstance(values, str | bytes) or not hasattr(values, "__len__"):
        raise TypeError(f"{expected}, got {values!r}")
    if len(values) != n:
        raise ValueError(f"{expected}, got {len(values)}")
    if not set(map(type, values)) <= _LISTS:
        if {getattr(one, "dtype", None) for one in values} == {np.dtype(np.int64)}:
            return np.concatenate(values), np.array(list(map(len, values)))
        for one in values:
            if isinstance(one, str | bytes) or not hasattr(one, "__len__"):
                raise TypeError(f"{expected}, got {one!r} among them")
        values = [as_list(name, one) for one in values]
    return [item for one in values for item in one], np.array(list(map(len, values)), np.int64)


def padded(values: Array, lengths: Ints) -> Array:
    """Return sequences that follow one another as the rows of an array, (n, m), padded with -1."""
    if len(lengths) == 1:
        return values.reshape(1, -1)
    rows = np.full((len(lengths), int(lengths.max(initial=0))), -1, values.dtype)
    rows[np.arange(rows.shape[1]) < lengths[:, None]] = values
    return rows
