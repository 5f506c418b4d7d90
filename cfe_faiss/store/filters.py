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

from cfe_faiss.base.checks import Ints
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
_ORDERED = (
    Kind.NUMBER,
    Kind.TEXT,
    Kind.DATETIME,
    Kind.ZONED,
    Kind.DATE,
    Kind.TIME,
    Kind.DURATION,
    Kind.BYTES,
)
_OPERATORS = ("$eq", "$ne", "$in", "$nin", "$gt", "$gte", "$lt", "$lte", "$exists", "$contains")
_ORDERINGS = {"$gt": operator.gt, "$gte": operator.ge, "$lt": operator.lt, "$lte": operator.le}


def mask_of(where: Any, table: Table, rows_of: Callable[[list[str]], Ints]) -> Mask | None:
    """Return whether a filter selects each row of a table, (n,) bool, or None for all.

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
    if where is None or (isinstance(where, Mapping) and not where):
        return None
    if isinstance(where, Mapping):
        check_depth(where)
        matching = _all_of("where", where, table)
        return matching & (table.labels != REMOVED) if table.removed else matching
    mask = np.zeros(len(table.keys), bool)
    if callable(where):
        mask[table.rows] = [
            bool(where(copy_metadata(metadata))) for metadata in table.metadata[table.rows]
        ]
        return mask
    if isinstance(where, str | bytes) or not isinstance(where, Iterable):
        raise TypeError(
            f"where must be a mapping of conditions, a mask, ids or a function of metadata, got "
            f"{where!r}"
        )
    values = as_list("where", where)
    shape = where.shape if isinstance(where, np.ndarray) else (len(values),)
    are_booleans = bool(values) and all(isinstance(value, bool | np.bool_) for value in values)
    if are_booleans or (isinstance(where, np.ndarray) and where.dtype == bool):
        if shape != (len(table),):
            raise ValueError(
                f"where must have shape ({len(table)},) as a mask, one value per row, got {shape}"
            )
        mask[table.rows] = values
        return mask
    for value in values:
        if not isinstance(value, str):
            raise TypeError(
                f"where must hold ids (texts) or, as a mask, booleans, got {value!r} of shape "
                f"{shape}"
            )
    rows = rows_of(values)
    mask[rows[rows >= 0]] = True
    return mask


def check_depth(where: Mapping[Any, Any]) -> None:
    """Raise ValueError if conditions are nested too deep for a recursive function."""
    level: list[Any] = [where]
    for _ in range(DEEPEST):
        inner = [part.values() if isinstance(part, Mapping) else part for part in level]
        level = [
            item for items in inner for item in items if isinstance(item, Mapping | list | tuple)
        ]
        if not level:
            return
    raise ValueError(f"where must be nested {DEEPEST} deep at most, got deeper conditions")


def _all_of(name: str, where: Any, table: Table) -> Mask:
    if not isinstance(where, Mapping):
        raise TypeError(f"where: {name} must have conditions as mappings, got {where!r}")
    masks = [_condition(key, value, table) for key, value in where.items()]
    return reduce(np.logical_and, masks) if masks else np.ones(len(table.keys), bool)


def _condition(key: Any, value: Any, table: Table) -> Mask:
    if not isinstance(key, str):
        raise TypeError(f"where must have texts as keys, got {key!r}")
    if key == "$not":
        return ~_all_of(key, value, table)
    if key in ("$and", "$or"):
        if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
            raise TypeError(f"where: {key} must have a list of conditions, got {value!r}")
        masks = [_all_of(key, condition, table) for condition in value]
        if not masks:
            raise ValueError(f"where: {key} must have one condition at least, got none")
        return reduce(np.logical_and if key == "$and" else np.logical_or, masks)
    if key.startswith("$") and key not in _FIELDS:
        operators = ", ".join(("$and", "$or", "$not", *_FIELDS))
        raise ValueError(
            f"where: unknown operator {key!r} where a key or one of {operators} was expected"
        )
    column = table.column(key)
    if callable(value):
        return _rows_with(column, column.used, lambda stored: value(deepcopy(stored)))
    if not isinstance(value, Mapping):
        several = hasattr(value, "__iter__") and not isinstance(
            value, str | bytes | bytearray | memoryview
        )
        value = {"$in" if several else "$eq": value}
    if not value:
        raise ValueError(f"where: {key!r} must have an operator, got an empty mapping")
    return reduce(
        np.logical_and, [_compare(key, name, operand, column) for name, operand in value.items()]
    )


# --- operators ------------------------------------------------------------------------------------


def _compare(key: str, name: Any, value: Any, column: Column) -> Mask:
    """Return the rows whose value satisfies an operator."""
    mask: Mask
    place = f"where: {key!r} {name}"
    if name in ("$eq", "$ne"):
        mask = _find_values(place, [value], column)
    elif name in ("$in", "$nin"):
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
            raise TypeError(f"{place} must have a list of values, got {value!r}")
        mask = _find_values(place, as_list(place, value), column)
    elif name == "$exists":
        if not isinstance(value, bool | np.bool_):
            raise TypeError(f"{place} must be True or False, got {value!r}")
        mask = (column.codes != 0) == bool(value)
    elif name == "$contains":
        mask = _find_contents(place, plain_value(place, value), column)
    elif name in _ORDERINGS:
        mask = _find_ordered(place, _ORDERINGS[name], plain_value(place, value), column)
    else:
        raise ValueError(
            f"where: unknown operator {name!r} of {key!r}; known are {', '.join(_OPERATORS)}"
        )
    return ~mask if name in ("$ne", "$nin") else mask


def _find_values(place: str, values: list[Any], column: Column) -> Mask:
    plain = [plain_value(place, value) for value in values]
    _check_kinds(place, {kind_of(value) for value in plain}, column)
    codes = [code for value in plain if (code := column.dictionary.code(value)) is not None]
    if None in plain:  # a missing key counts as None
        codes.append(0)
    has_value = np.zeros(len(column.dictionary.values), bool)
    has_value[codes] = True
    return column.codes == codes[0] if len(codes) == 1 else has_value.take(column.codes)


def _find_contents(place: str, element: Any, column: Column) -> Mask:
    kinds = {Kind.LIST, Kind.TEXT} if isinstance(element, str) else {Kind.LIST}
    _check_kinds(place, kinds, column)
    key = key_of(element)

    def contains(stored: Any) -> bool:
        return element in stored if isinstance(stored, str) else key in map(key_of, stored)

    return _rows_with(column, np.isin(column.dictionary.kinds, list(kinds)), contains)


def _find_ordered(
    place: str, compare: Callable[[Any, Any], Any], bound: Any, column: Column
) -> Mask:
    kind = kind_of(bound)
    if kind not in _ORDERED:
        raise TypeError(
            f"{place} must compare with a number, text, date, time, duration or bytes, got {bound!r}"
        )
    _check_kinds(place, {kind}, column)
    has_kind: Mask = column.dictionary.kinds == kind
    if kind != Kind.NUMBER:
        return _rows_with(column, has_kind, lambda stored: compare(stored, bound))
    numbers = column.dictionary.numbers
    has_kind &= (numbers == numbers) & (bound == bound)  # NaN is in no order
    numbers = numbers[has_kind]
    # NumPy rounds a large integer to a float; Python compares the two exactly.
    has_kind[has_kind] = compare(numbers if float_holds(bound) else numbers.astype(object), bound)
    return has_kind.take(column.codes)


def _rows_with(column: Column, candidates: Mask, accepts: Callable[[Any], Any]) -> Mask:
    """Return the rows whose value is among ``candidates``, (m,), and accepted.

    A missing value is None.
    """
    values = column.dictionary.values
    is_accepted = np.zeros(len(values), bool)
    for code in np.flatnonzero(candidates).tolist():
        is_accepted[code] = bool(accepts(values[code] if code else None))
    return is_accepted.take(column.codes)


def _check_kinds(place: str, asked: Set[int], column: Column) -> None:
    """Raise TypeError if a key has values, none of them of a kind that the filter compares with."""
    asked = asked - {Kind.NULL}
    stored = column.kinds - {Kind.NO_VALUE, Kind.NULL}
    if asked and stored and not asked & stored:
        hint = "; use $contains to ask for an element" if stored == {Kind.LIST} else ""
        asked_kinds, stored_kinds = (
            " or ".join(KINDS[kind] for kind in sorted(kinds)) for kinds in (asked, stored)
        )
        raise TypeError(
            f"{place} compares with {asked_kinds}, but the key holds {stored_kinds}{hint}"
        )
