"""Fields of the documents' ``meta``: their types, ranges and distinct values."""

import json
from collections.abc import Iterable
from typing import Any

_TYPES = {bool: "boolean", int: "int", float: "float"}

_Meta = dict[str, Any]


def field_types(metas: Iterable[_Meta]) -> dict[str, dict[str, str]]:
    """Return ``{"type": ...}`` for each key: Haystack's keyword, int, float or boolean, by the last value."""
    values = {key: value for meta in metas for key, value in meta.items() if value is not None}
    return {key: {"type": _TYPES.get(type(value), "keyword")} for key, value in values.items()}


def value_range(metas: Iterable[_Meta], field: str) -> dict[str, Any]:
    """Return the least and the greatest value under a key, None without values or for values without an order."""
    values = [value for value in _values(metas, field) if isinstance(value, int | float | str)]
    try:
        return {"min": min(values, default=None), "max": max(values, default=None)}
    except TypeError:
        return {"min": None, "max": None}


def different_values(metas: Iterable[_Meta], field: str) -> list[Any]:
    """Return the distinct values under a key, ordered by their texts; 1, 1.0, "1" and True are four values."""
    found = {
        (type(value).__name__, json.dumps(value, sort_keys=True, default=repr)): value
        for value in _values(metas, field)
    }
    return [found[key] for key in sorted(found, key=lambda key: (str(found[key]), key[0]))]


def key_of(field: str) -> str:
    """Return the key of ``meta`` that a field names; the prefix ``meta.`` is optional in Haystack."""
    return field.removeprefix("meta.")


def _values(metas: Iterable[_Meta], field: str) -> list[Any]:
    key = key_of(field)
    return [meta[key] for meta in metas if meta.get(key) is not None]
