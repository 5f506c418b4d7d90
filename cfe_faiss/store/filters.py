"""What ``where=`` says: which rows of a table a search may find.

A filter is a mapping of conditions, all of which must hold::

    {"lang": "de"}                                equal
    {"lang": ["de", "en"]}                        one of
    {"year": {"$gte": 2020, "$lt": 2024}}         operators
    {"$or": [{"lang": "de"}, {"$not": {"topic": "sports"}}]}
    {"lang": lambda lang: lang != "de"}           a function of the value, None where it is missing

or a mask, ids, or a function of the metadata of a row.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.store.columns import KINDS, LIST, NO_VALUE, NULL, NUMBER, TEXT, Column, float_holds, key_of, kind_of
from cfe_faiss.store.table import DOCUMENT, ID, LABEL, Table
from cfe_faiss.store.values import copied, plain_value

Mask = NDArray[np.bool_]
_FIELDS = (ID, LABEL, DOCUMENT)


def mask_of(where: Any, table: Table, rows_of: Callable[[list[str]], NDArray[np.int64]]) -> Mask | None:
    """Return which rows of a table a filter selects, (n,) bool, or None for all of them.

    Parameters
    ----------
    where
        What users hand in.
    table
        The rows.
    rows_of
        Returns the row of each id, -1 for an unknown one.

    Raises
    ------
    TypeError, ValueError
        If it is no filter, or compares what cannot be compared; the message names what is wrong.
    """
    if where is None:
        return None
    if isinstance(where, Mapping):
        return _all_of(where, table) if where else None
    if callable(where):
        return np.fromiter((bool(where(copied(one))) for one in table.metadata), np.bool_, len(table))
    return _chosen(where, table, rows_of)


def _chosen(where: Any, table: Table, rows_of: Callable[[list[str]], NDArray[np.int64]]) -> Mask:
    if isinstance(where, str | bytes) or not isinstance(where, Iterable):
        raise TypeError(f"where must be a mapping of conditions, a mask, ids or a function of metadata, got {where!r}")
    for method in ("to_pylist", "to_list", "tolist"):
        if hasattr(where, method) and not isinstance(where, np.ndarray):
            where = getattr(where, method)()
            break
    array = where if isinstance(where, np.ndarray) else np.array(list(where), object)
    listed = array.tolist()
    if array.dtype == bool or (listed and all(isinstance(one, bool | np.bool_) for one in listed)):
        if array.shape != (len(table),):
            raise ValueError(f"where must have shape ({len(table)},) as a mask, one value per row, got {array.shape}")
        return array.astype(bool)
    wrong = next((one for one in listed if not isinstance(one, str)), None)
    if array.ndim != 1 or wrong is not None:
        raise TypeError(f"where must hold ids (texts) or, as a mask, booleans, got {wrong!r} of shape {array.shape}")
    mask = np.zeros(len(table) + 1, bool)
    mask[rows_of(listed)] = True  # an unknown id is -1, the place that is cut off
    return mask[:-1]


def _all_of(where: Mapping[Any, Any], table: Table) -> Mask:
    masks = [_condition(key, value, table) for key, value in where.items()]
    return _combined(np.logical_and, masks, table) if masks else np.ones(len(table), bool)


def _combined(function: Any, masks: list[Mask], table: Table) -> Mask:
    result = masks[0].copy()
    for mask in masks[1:]:
        function(result, mask, out=result)
    return result


def _condition(key: Any, value: Any, table: Table) -> Mask:
    if not isinstance(key, str):
        raise TypeError(f"where must have texts as keys, got {key!r}")
    if key in ("$and", "$or"):
        if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
            raise TypeError(f"where: {key} must have a list of conditions, got {value!r}")
        masks = [_all_of(_as_mapping(key, one), table) for one in value]
        if not masks:
            raise ValueError(f"where: {key} must have one condition at least, got none")
        return _combined(np.logical_and if key == "$and" else np.logical_or, masks, table)
    if key == "$not":
        return ~_all_of(_as_mapping(key, value), table)
    if key.startswith("$") and key not in _FIELDS:
        known = ", ".join(("$and", "$or", "$not", *_FIELDS))
        raise ValueError(f"where: unknown operator {key!r} where a key or one of {known} was expected")
    column = table.column(key)
    if isinstance(value, Mapping):
        if not value:
            raise ValueError(f"where: {key!r} must have an operator, got an empty mapping")
        return _combined(np.logical_and, [_compared(key, name, one, column) for name, one in value.items()], table)
    if callable(value):
        return column.matching(value)
    if isinstance(value, list | tuple | set | frozenset | np.ndarray):
        return _compared(key, "$in", value, column)
    return _compared(key, "$eq", value, column)


def _as_mapping(key: str, value: Any) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise TypeError(f"where: {key} must have conditions as mappings, got {value!r}")
    return value


# --- operators --------------------------------------------------------------------------------------------------------


def _compared(key: str, operator: Any, value: Any, column: Column) -> Mask:
    found = _OPERATORS.get(operator) if isinstance(operator, str) else None
    if found is None:
        raise ValueError(f"where: unknown operator {operator!r} of {key!r}; known are {', '.join(_OPERATORS)}")
    return found(f"where: {key!r} {operator}", value, column)


def _equal(name: str, value: Any, column: Column) -> Mask:
    return _among(name, [value], column)


def _not_equal(name: str, value: Any, column: Column) -> Mask:
    return ~_among(name, [value], column)


def _in(name: str, value: Any, column: Column) -> Mask:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise TypeError(f"{name} must have a list of values, got {value!r}")
    return _among(name, value.tolist() if isinstance(value, np.ndarray) else list(value), column)


def _not_in(name: str, value: Any, column: Column) -> Mask:
    return ~_in(name, value, column)


def _among(name: str, values: list[Any], column: Column) -> Mask:
    plain = [plain_value(name, value) for value in values]
    _check_kinds(name, {kind_of(value) for value in plain}, column)
    codes = [code for value in plain if (code := column.dictionary.code(value)) is not None]
    if None in plain:  # a key that is missing is as one that says None
        codes.append(0)
    if len(codes) == 1:
        found: Mask = column.codes == codes[0]
        return found
    chosen = np.zeros(len(column.dictionary.values), bool)
    chosen[codes] = True
    return column.where(chosen)


def _exists(name: str, value: Any, column: Column) -> Mask:
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False, got {value!r}")
    found: Mask = (column.codes != 0) == bool(value)
    return found


def _contains(name: str, value: Any, column: Column) -> Mask:
    wanted = plain_value(name, value)
    in_text, key = isinstance(wanted, str), key_of(wanted)
    _check_kinds(name, {LIST, TEXT} if in_text else {LIST}, column)
    chosen = np.zeros(len(column.dictionary.values), bool)
    kinds = column.dictionary.kinds
    for code in np.flatnonzero((kinds == LIST) | ((kinds == TEXT) & in_text)).tolist():
        held = column.dictionary.values[code]
        if kinds[code] == TEXT:
            chosen[code] = wanted in held
        else:
            chosen[code] = any(key_of(item) == key for item in held)
    return column.where(chosen)


def _ordering(compare: Callable[[Any, Any], Any]) -> Callable[[str, Any, Column], Mask]:
    def ordered(name: str, value: Any, column: Column) -> Mask:
        bound = plain_value(name, value)
        kind = kind_of(bound)
        if kind not in (NUMBER, TEXT):
            raise TypeError(f"{name} must compare with a number or a text, got {value!r}")
        _check_kinds(name, {kind}, column)
        dictionary = column.dictionary
        right = dictionary.kinds == kind
        chosen = np.zeros(len(right), bool)
        if kind == TEXT:
            for code in np.flatnonzero(right).tolist():
                chosen[code] = compare(dictionary.values[code], bound)
        else:
            numbers = dictionary.numbers[right]
            # NumPy would round a large integer; Python compares it with a float as it is.
            chosen[right] = compare(numbers if float_holds(bound) else numbers.astype(object), bound)
        return column.where(chosen)

    return ordered


def _check_kinds(name: str, asked: set[int], column: Column) -> None:
    """Raise TypeError where a key has values, and none of them is of a kind that is asked for."""
    asked = asked - {NULL}
    held = column.kinds - {NO_VALUE, NULL}
    if asked and held and not asked & held:
        hint = "; use $contains to ask for an element" if held == {LIST} else ""
        raise TypeError(f"{name} compares with {_kinds(asked)}, but the key holds {_kinds(held)}{hint}")


def _kinds(kinds: Iterable[int]) -> str:
    return " or ".join(KINDS[kind] for kind in sorted(kinds))


_OPERATORS: dict[str, Callable[[str, Any, Column], Mask]] = {
    "$eq": _equal,
    "$ne": _not_equal,
    "$in": _in,
    "$nin": _not_in,
    "$gt": _ordering(lambda held, bound: held > bound),
    "$gte": _ordering(lambda held, bound: held >= bound),
    "$lt": _ordering(lambda held, bound: held < bound),
    "$lte": _ordering(lambda held, bound: held <= bound),
    "$exists": _exists,
    "$contains": _contains,
}
