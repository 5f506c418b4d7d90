"""What the documents of a store have in their ``meta``: fields and their types, ranges, different values."""

import json
from collections.abc import Iterable
from typing import Any

_TYPES = {bool: "boolean", int: "int", float: "float"}

_Meta = dict[str, Any]


def field_types(metas: Iterable[_Meta]) -> dict[str, dict[str, str]]:
    """Return ``{"type": ...}`` for each key: Haystack's keyword, int, float or boolean, as the last value is."""
    types: dict[str, str] = {}
    for meta in metas:
        types.update({key: _TYPES.get(type(value), "keyword") for key, value in meta.items() if value is not None})
    return {key: {"type": name} for key, name in types.items()}


def value_range(metas: Iterable[_Meta], field: str) -> dict[str, Any]:
    """Return the least and the greatest value under a key, None where there is none or they cannot be ordered."""
    values = [value for value in _values(metas, field) if isinstance(value, int | float | str)]
    try:
        return {"min": min(values, default=None), "max": max(values, default=None)}
    except TypeError:
        return {"min": None, "max": None}


def different_values(metas: Iterable[_Meta], field: str) -> list[Any]:
    """Return the different values under a key, ordered by how they are written; 1, 1.0, "1" and True are four."""
    found = {(type(value).__name__, json.dumps(value, sort_keys=True)): value for value in _values(metas, field)}
    return [found[key] for key in sorted(found, key=lambda key: (str(found[key]), key[0]))]


def key_of(field: str) -> str:
    """Return the key of ``meta`` that a field means; Haystack lets ``meta.`` be left out."""
    return field.removeprefix("meta.")


def _values(metas: Iterable[_Meta], field: str) -> list[Any]:
    key = key_of(field)
    return [meta[key] for meta in metas if meta.get(key) is not None]
