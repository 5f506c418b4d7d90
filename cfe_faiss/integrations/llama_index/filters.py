"""LlamaIndex's metadata filters as conditions of a store."""

import operator
from collections.abc import Callable, Mapping
from typing import Any

from cfe_faiss.base.extras import extra

with extra("llama-index"):
    from llama_index.core.vector_stores.types import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters


def condition(filters: MetadataFilters, fields: Mapping[str, str]) -> dict[str, Any]:
    """Return filters, nested ones included, as a filter for a store.

    They have the meaning of LlamaIndex's ``SimpleVectorStore``, whose operators are Python's: a missing value or None
    matches ``NE``, ``NIN`` and ``IS_EMPTY`` only.

    Parameters
    ----------
    filters
        An empty list of filters matches everything.
    fields
        The store's names of the keys that are not metadata there.

    Raises
    ------
    ValueError
        If a value is of a type that an operator does not take; also while the store compares, where an operator
        does not take a value of the metadata.
    """
    parts = [
        condition(one, fields) if isinstance(one, MetadataFilters) else {fields.get(one.key, one.key): _predicate(one)}
        for one in filters.filters
    ]
    parts = [part for part in parts if part]
    if not parts:
        return {}
    if filters.condition == FilterCondition.OR:
        return {"$or": parts}
    if filters.condition == FilterCondition.NOT:  # none of them
        return {"$not": {"$or": parts}}
    return {"$and": parts}


def _predicate(one: MetadataFilter) -> Callable[[Any], bool]:
    """Return the function that tells whether a value under the filter's key matches."""
    kind = FilterOperator(one.operator)
    if kind == FilterOperator.IS_EMPTY:
        return lambda held: held is None or held in ("", [])
    types, matches = _OPERATORS[kind]
    if not isinstance(one.value, types):
        raise ValueError(f"{kind.name}, the filter on {one.key!r}, needs {_NAMES[types]}, got {one.value!r}")

    def predicate(held: Any) -> bool:
        if held is None:
            return kind in (FilterOperator.NE, FilterOperator.NIN)
        try:
            return bool(matches(held, one.value))
        except TypeError as error:
            raise ValueError(f"{kind.name}, the filter on {one.key!r}, does not take {held!r}: {error}") from error

    return predicate


def _has(held: Any, value: Any) -> bool:
    return value in held


def _text(held: Any) -> str:
    if not isinstance(held, str):
        raise TypeError("it is no text")
    return held


_VALUE, _SCALAR = (int, float, str, list), (int, float, str)
_NAMES: dict[Any, str] = {_VALUE: "a value", _SCALAR: "a number or a text", list: "a list", str: "a text"}
_OPERATORS: dict[FilterOperator, tuple[Any, Callable[[Any, Any], Any]]] = {
    FilterOperator.EQ: (_VALUE, operator.eq),
    FilterOperator.NE: (_VALUE, operator.ne),
    FilterOperator.GT: (_SCALAR, operator.gt),
    FilterOperator.GTE: (_SCALAR, operator.ge),
    FilterOperator.LT: (_SCALAR, operator.lt),
    FilterOperator.LTE: (_SCALAR, operator.le),
    FilterOperator.IN: (list, lambda held, value: held in value),
    FilterOperator.NIN: (list, lambda held, value: held not in value),
    FilterOperator.CONTAINS: (_SCALAR, _has),
    FilterOperator.ANY: (list, lambda held, value: any(_has(held, one) for one in value)),
    FilterOperator.ALL: (list, lambda held, value: all(_has(held, one) for one in value)),
    FilterOperator.TEXT_MATCH: (str, lambda held, value: value in _text(held)),
    FilterOperator.TEXT_MATCH_INSENSITIVE: (str, lambda held, value: value.lower() in _text(held).lower()),
}
"""Types of the filter's value, and the operator: a function of the stored value and the filter's."""
