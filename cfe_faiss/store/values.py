"""Checks of what is stored: ids, predicted classes, metadata and texts; copies out, or an error that names the row."""

import math
from collections.abc import Iterable, Mapping
from itertools import chain, filterfalse
from numbers import Integral, Real
from typing import Any

import numpy as np

from cfe_faiss.base.checks import as_array
from cfe_faiss.store.results import Label, Metadata

DEEPEST = 64
"""Lists and mappings inside of each other that metadata may have."""


def listed(name: str, values: Any) -> list[Any]:
    """Return a sequence, array, tensor, or column of a table as a list of Python's own values."""
    if isinstance(values, str | bytes | Mapping) or not hasattr(values, "__iter__"):
        raise TypeError(f"{name} must be a sequence, got {type(values).__name__}: {str(values)[:60]!r}")
    if hasattr(values, "detach"):
        values = as_array(name, values)
    for method in ("tolist", "to_pylist", "to_list"):  # of NumPy and pandas, of Arrow, of polars
        if hasattr(values, method):
            found: list[Any] = getattr(values, method)()
            return found
    return list(values)


def checked_ids(ids: Any) -> list[str]:
    """Return ids as texts; TypeError if one is something else, ValueError if one is no valid Unicode."""
    if isinstance(ids, str):
        raise TypeError(f"ids must be a sequence of texts, got one text: {ids!r}")
    found = listed("ids", ids)
    if _are_plain(found):
        return found
    for i, value in enumerate(found):
        if type(value) is not str:
            if not isinstance(value, str):
                raise TypeError(f"ids must be texts, got {type(value).__name__}: {value!r} at place {i}; use str(id)")
            found[i] = str(value)
        _check_text(value, "id {!r}", value)
    return found


def check_distinct(ids: list[str]) -> None:
    """Raise ValueError that names an id that occurs twice."""
    if len(set(ids)) == len(ids):
        return
    seen: set[str] = set()
    for one in ids:
        if one in seen:
            raise ValueError(f"ids must be distinct, got {one!r} more than once")
        seen.add(one)


def checked_labels(name: str, labels: Any, n: int) -> list[Label]:
    """Return predicted classes as texts, or as ints, or None where there is none (None or NaN); all of one kind."""
    if labels is None:
        return [None] * n
    found = listed(name, labels)
    if len(found) != n:
        raise ValueError(f"{name} must hold {n} predicted classes, one for each row, got {len(found)}")
    if set(map(type, found)) == {int} or _are_plain(found):
        return found
    return [as_class(name, value) for value in found]


def as_class(name: str, value: Any) -> Label:
    """Return one predicted class as a text, an int, or None."""
    kind = type(value)
    if value is None or kind is int:
        return value  # type: ignore[no-any-return]
    if isinstance(value, str):
        _check_text(value, "{} {!r}", name, value)
        return str(value)
    if isinstance(value, Integral | np.bool_):
        return int(value)
    if isinstance(value, Real) and math.isnan(value):
        return None
    raise TypeError(f"{name} must be texts, integers or None, got {kind.__name__}: {value!r}")


def checked_documents(documents: Any, ids: list[str]) -> list[str | None]:
    """Return n texts, or None where there is none."""
    if documents is None:
        return [None] * len(ids)
    found = listed("documents", documents)
    if len(found) != len(ids):
        raise ValueError(f"documents must hold {len(ids)} texts, one for each id, got {len(found)}")
    if _are_plain(found):
        return found
    for i, text in enumerate(found):
        if text is not None:
            if not isinstance(text, str):
                raise TypeError(f"documents must hold texts or None, got {type(text).__name__} for {ids[i]!r}")
            _check_text(text, "the document of {!r}", ids[i])
    return found


def checked_metadata(metadata: Any, ids: list[str]) -> list[Metadata]:
    """Return copies of n mappings from keys to what JSON can say."""
    if metadata is None:
        return [{} for _ in ids]
    if isinstance(metadata, Mapping):
        raise TypeError("metadata must be a sequence of mappings, one for each id, got one mapping")
    found = listed("metadata", metadata)
    if len(found) != len(ids):
        raise ValueError(f"metadata must hold {len(ids)} mappings, one for each id, got {len(found)}")
    if _are_right(found):
        return [one.copy() for one in found]
    return [_checked_mapping(one, id_) for one, id_ in zip(found, ids, strict=True)]


def copied(metadata: Metadata) -> Metadata:
    """Return a copy of stored metadata, also of the lists and mappings in it."""
    return {key: value if type(value) in _PLAIN else _copied(value) for key, value in metadata.items()}


def _copied(value: Any) -> Any:
    if type(value) is list:
        return [_copied(item) for item in value]
    if type(value) is dict:
        return copied(value)
    return value


def _are_plain(texts: list[Any]) -> bool:
    """Return whether all are texts as they should be, as most are, which is quickly told of all at once."""
    return set(map(type, texts)) == {str} and _are_unicode(texts)


def _are_unicode(texts: Iterable[str]) -> bool:
    try:
        for text in filterfalse(str.isascii, texts):
            text.encode()
    except UnicodeEncodeError:
        return False
    return True


def are_flat(metadata: list[Metadata]) -> bool:
    """Return whether all values are plain, so that a shallow copy is as good as a deep one."""
    return set(map(type, chain.from_iterable(map(dict.values, metadata)))) <= _PLAIN


def _are_right(metadata: list[Any]) -> bool:
    """Return whether all are dicts of plain values as they should be, as most are."""
    if set(map(type, metadata)) != {dict} or not are_flat(metadata):
        return False
    keys, values = set(chain.from_iterable(metadata)), list(chain.from_iterable(map(dict.values, metadata)))
    if not (set(map(type, keys)) <= {str} and _are_unicode(keys)):
        return False
    try:
        finite = all(map(math.isfinite, (value for value in values if type(value) is not str and value is not None)))
    except OverflowError:  # an integer that is larger than any float
        return False
    return finite and _are_unicode(value for value in values if type(value) is str)


_PLAIN = frozenset({str, int, float, bool, type(None)})


def _checked_mapping(metadata: Any, id_: str) -> Metadata:
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping):
        raise TypeError(f"metadata of {id_!r} must be a mapping, got {type(metadata).__name__}")
    return _mapping(metadata, (f"metadata of {id_!r}",))


def _mapping(metadata: Mapping[Any, Any], where: tuple[Any, ...]) -> Metadata:
    result: Metadata = {}
    for key, value in metadata.items():
        if type(key) is not str:
            if not isinstance(key, str):
                raise TypeError(f"{_named(where)} must have texts as keys, got {type(key).__name__}: {key!r}")
            key = str(key)
        _check_text(key, "{}: the key {!r}", where, key)
        result[key] = _value(value, (*where, key))
    return result


def _value(value: Any, where: tuple[Any, ...]) -> Any:
    kind = type(value)
    if kind is str:
        _check_text(value, "{}", where)
        return value
    if value is None or kind is bool:
        return value
    if kind is int or kind is float:
        return _number(value, where)
    if len(where) > DEEPEST:
        raise ValueError(f"{_named(where[:2])} must be nested {DEEPEST} deep at most")
    if isinstance(value, Mapping):
        return _mapping(value, where)
    if kind is list or kind is tuple:
        return [_value(item, (*where, i)) for i, item in enumerate(value)]
    if isinstance(value, np.generic):
        plain = value.item()
        if not isinstance(plain, np.generic) and type(plain) in _PLAIN:
            return _value(plain, where)
    elif isinstance(value, str):
        return _value(str.__str__(value), where)
    elif isinstance(value, Integral):
        return _number(int(value), where)
    elif isinstance(value, float):
        return _number(float(value), where)
    raise TypeError(
        f"{_named(where)} must be a text, a number, True, False, None, or a list or mapping of these, "
        f"got {kind.__name__}: {str(value)[:60]}"
    )


def _number(value: Any, where: tuple[Any, ...]) -> Any:
    try:
        finite = math.isfinite(value)
    except OverflowError:
        raise ValueError(
            f"{_named(where)} must be below 2**1024, got an integer of {value.bit_length()} bits"
        ) from None
    if not finite:
        raise ValueError(f"{_named(where)} must be a finite number, got {value}; None stands for a missing one")
    return value


def _check_text(text: str, name: str, *parts: Any) -> None:
    """Raise ValueError if a text cannot be written as UTF-8; ``name`` and what is put into it say which text."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            named = name.format(*(_named(part) if isinstance(part, tuple) else part for part in parts))
            raise ValueError(f"{named} must be valid Unicode, got {error.object[error.start]!r}") from error


def _named(where: tuple[Any, ...]) -> str:
    first, *path = where
    if not path:
        return str(first)
    text = str(path[0]) + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path[1:])
    return f"{first}: {text!r}"


def plain_value(name: str, value: Any) -> Any:
    """Return what a filter compares with, as metadata would hold it; the error calls it ``name``."""
    return _value(value, (name,))
