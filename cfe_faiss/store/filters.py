"""Filters: the rows that ``where=`` selects.

A filter is a mapping of conditions, all of which must hold::

    {"lang": "de"}                                equal
    {"lang": ["de", "en"]}                        one of
    {"year": {"$gte": 2020, "$lt": 2024}}         operators
    {"$or": [{"lang": "de"}, {"$not": {"topic": "sports"}}]}
    {"lang": lambda lang: lang != "de"}           a function of the value, None for a missing one

or a mask, ids, or a function of a row's metadata.
"""

import operator
from collections.abc import Callable, Iterable, Mapping, Set
from copy import deepcopy
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.values import as_list
from cfe_faiss.store.contents import (
    DOCUMENT,
    ID,
    KINDS,
    LABEL,
    REMOVED,
    Column,
    Kind,
    Mask,
    Table,
    float_holds,
    key_of,
    kind_of,
)
from cfe_faiss.store.values import DEEPEST, copy_metadata, plain_value

_FIELDS = (ID, LABEL, DOCUMENT)
_ORDERED = (Kind.NUMBER, Kind.TEXT, Kind.DATETIME, Kind.ZONED, Kind.DATE, Kind.TIME, Kind.DURATION, Kind.BYTES)
_OPERATORS = ("$eq", "$ne", "$in", "$nin", "$gt", "$gte", "$lt", "$lte", "$exists", "$contains")
_ORDERINGS = {"$gt": operator.gt, "$gte": operator.ge, "$lt": operator.lt, "$lte": operator.le}


def mask_of(where: Any, table: Table, rows_of: Callable[[list[str]], NDArray[np.int64]]) -> Mask | None:
    """Return whether a filter selects each row of a table's arrays, (n,) bool, or None for all rows.

    Parameters
    ----------
    where
        The filter of a user.
    table
        The rows.
    rows_of
        Returns the row of each id, -1 for an unknown one.

    Raises
    ------
    TypeError, ValueError
        If it is no filter, or compares values of different kinds; the message names the problem.
    """
    if where is None:
        return None
    if isinstance(where, Mapping):
        if not where:
            return None
        check_depth(where)
        found = _all_of(where, table)
        return found & (table.labels != REMOVED) if table.removed else found
    mask = np.zeros(len(table.keys), bool)
    if callable(where):
        mask[table.rows] = [bool(where(copy_metadata(one))) for one in table.metadata[table.rows]]
    else:
        _choose(where, mask, table, rows_of)
    return mask


def check_depth(where: Mapping[Any, Any]) -> None:
    """Raise ValueError if conditions are nested too deep for a recursive function."""
    level: list[Any] = [where]
    for _ in range(DEEPEST):
        inner = [one.values() if isinstance(one, Mapping) else one for one in level]
        level = [item for items in inner for item in items if isinstance(item, Mapping | list | tuple)]
        if not level:
            return
    raise ValueError(f"where must be nested {DEEPEST} deep at most, got deeper conditions")


def _choose(where: Any, mask: Mask, table: Table, rows_of: Callable[[list[str]], NDArray[np.int64]]) -> None:
    """Set ``mask`` for the rows that a sequence of booleans or ids selects."""
    if isinstance(where, str | bytes) or not isinstance(where, Iterable):
        raise TypeError(f"where must be a mapping of conditions, a mask, ids or a function of metadata, got {where!r}")
    values = as_list("where", where)
    shape = where.shape if isinstance(where, np.ndarray) else (len(values),)
    are_booleans = bool(values) and all(isinstance(one, bool | np.bool_) for one in values)
    if are_booleans or (isinstance(where, np.ndarray) and where.dtype == bool):
        if shape != (len(table),):
            raise ValueError(f"where must have shape ({len(table)},) as a mask, one value per row, got {shape}")
        mask[table.rows] = values
        return
    wrong = next((one for one in values if not isinstance(one, str)), None)
    if wrong is not None:
        raise TypeError(f"where must hold ids (texts) or, as a mask, booleans, got {wrong!r} of shape {shape}")
    rows = rows_of(values)
    mask[rows[rows >= 0]] = True


def _all_of(where: Mapping[Any, Any], table: Table) -> Mask:
    masks = [_condition(key, value, table) for key, value in where.items()]
    return reduce(np.logical_and, masks) if masks else np.ones(len(table.keys), bool)


def _condition(key: Any, value: Any, table: Table) -> Mask:
    if not isinstance(key, str):
        raise TypeError(f"where must have texts as keys, got {key!r}")
    if key in ("$and", "$or"):
        if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
            raise TypeError(f"where: {key} must have a list of conditions, got {value!r}")
        masks = [_all_of(_as_mapping(key, one), table) for one in value]
        if not masks:
            raise ValueError(f"where: {key} must have one condition at least, got none")
        return reduce(np.logical_and if key == "$and" else np.logical_or, masks)
    if key == "$not":
        return ~_all_of(_as_mapping(key, value), table)
    if key.startswith("$") and key not in _FIELDS:
        known = ", ".join(("$and", "$or", "$not", *_FIELDS))
        raise ValueError(f"where: unknown operator {key!r} where a key or one of {known} was expected")
    column = table.column(key)
    if isinstance(value, Mapping):
        if not value:
            raise ValueError(f"where: {key!r} must have an operator, got an empty mapping")
        return reduce(np.logical_and, [_compare(key, name, one, column) for name, one in value.items()])
    if callable(value):
        values = column.dictionary.values
        codes = (code for code in _codes(column.used) if value(deepcopy(values[code]) if code else None))
        return _rows_with(column, codes)
    several = hasattr(value, "__iter__") and not isinstance(value, str | bytes | bytearray | memoryview)
    return _compare(key, "$in" if several else "$eq", value, column)


def _as_mapping(key: str, value: Any) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise TypeError(f"where: {key} must have conditions as mappings, got {value!r}")
    return value


# --- operators --------------------------------------------------------------------------------------------------------


def _compare(key: str, name: Any, value: Any, column: Column) -> Mask:
    """Return the rows whose value satisfies an operator."""
    said = f"where: {key!r} {name}"
    if name in ("$eq", "$ne"):
        found = _find_values(said, [value], column)
    elif name in ("$in", "$nin"):
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
            raise TypeError(f"{said} must have a list of values, got {value!r}")
        found = _find_values(said, as_list(said, value), column)
    elif name == "$exists":
        if not isinstance(value, bool | np.bool_):
            raise TypeError(f"{said} must be True or False, got {value!r}")
        found = (column.codes != 0) == bool(value)
    elif name == "$contains":
        found = _find_contents(said, plain_value(said, value), column)
    elif name in _ORDERINGS:
        found = _find_ordered(said, _ORDERINGS[name], plain_value(said, value), column)
    else:
        raise ValueError(f"where: unknown operator {name!r} of {key!r}; known are {', '.join(_OPERATORS)}")
    return ~found if name in ("$ne", "$nin") else found


def _find_values(said: str, values: list[Any], column: Column) -> Mask:
    plain = [plain_value(said, value) for value in values]
    _check_kinds(said, {kind_of(value) for value in plain}, column)
    codes = [code for value in plain if (code := column.dictionary.code(value)) is not None]
    if None in plain:  # a missing key counts as None
        codes.append(0)
    return column.codes == codes[0] if len(codes) == 1 else _rows_with(column, codes)


def _find_contents(said: str, wanted: Any, column: Column) -> Mask:
    key, kinds, values = key_of(wanted), {Kind.LIST}, column.dictionary.values
    if isinstance(wanted, str):
        kinds.add(Kind.TEXT)
    _check_kinds(said, kinds, column)

    def contains(held: Any) -> bool:
        return wanted in held if isinstance(held, str) else key in map(key_of, held)

    chosen = np.isin(column.dictionary.kinds, list(kinds))
    return _rows_with(column, (code for code in _codes(chosen) if contains(values[code])))


def _find_ordered(said: str, compare: Callable[[Any, Any], Any], bound: Any, column: Column) -> Mask:
    kind, dictionary = kind_of(bound), column.dictionary
    if kind not in _ORDERED:
        raise TypeError(f"{said} must compare with a number, text, date, time, duration or bytes, got {bound!r}")
    _check_kinds(said, {kind}, column)
    chosen: Mask = dictionary.kinds == kind
    if kind != Kind.NUMBER:
        return _rows_with(column, (code for code in _codes(chosen) if compare(dictionary.values[code], bound)))
    chosen &= (dictionary.numbers == dictionary.numbers) & (bound == bound)  # NaN is in no order
    numbers = dictionary.numbers[chosen]
    # NumPy rounds a large integer to a float; Python compares the two exactly.
    chosen[chosen] = compare(numbers if float_holds(bound) else numbers.astype(object), bound)
    return chosen[column.codes]


def _codes(chosen: Mask) -> Any:
    return np.flatnonzero(chosen).tolist()


def _rows_with(column: Column, codes: Iterable[int]) -> Mask:
    """Return the rows that hold one of the values with these numbers."""
    chosen = np.zeros(len(column.dictionary.values), bool)
    chosen[list(codes)] = True
    return chosen[column.codes]


def _check_kinds(said: str, asked: Set[int], column: Column) -> None:
    """Raise TypeError if a key has values, none of them of a kind that the filter compares with."""
    asked = asked - {Kind.NULL}
    held = column.kinds - {Kind.NO_VALUE, Kind.NULL}
    if asked and held and not asked & held:
        hint = "; use $contains to ask for an element" if held == {Kind.LIST} else ""
        raise TypeError(f"{said} compares with {_name_kinds(asked)}, but the key holds {_name_kinds(held)}{hint}")


def _name_kinds(kinds: Iterable[int]) -> str:
    return " or ".join(KINDS[kind] for kind in sorted(kinds))
