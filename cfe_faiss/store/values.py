"""Values of a store: rows and hits, checks, and values of metadata as JSON."""

import base64
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import chain, filterfalse
from numbers import Integral
from typing import Any
from uuid import UUID

import numpy as np

from cfe_faiss.base.checks import UNKNOWN, Floats
from cfe_faiss.base.text import summary
from cfe_faiss.base.values import as_list, as_values

Label = str | int | None
"""A predicted class: a text, an integer or a boolean; None for a row that is not classified."""
Metadata = dict[str, Any]
DEEPEST = 64
"""Depth of nested lists and mappings that metadata may have."""
_PLAIN = frozenset({str, int, float, bool, type(None)})


@dataclass(frozen=True, slots=True)
class Hit:
    """One row found by a search.

    Attributes
    ----------
    id, similarity
        Id of the row, and its cosine similarity to the query, in [-1, 1]; for a store with metric
        "ip" or "l2" the inner product, or the squared distance.
    label
        Predicted class; None if the row is not classified.
    metadata, document
        Copies of the row's metadata and text.
    """

    id: str
    similarity: float
    label: Label
    metadata: Metadata
    document: str | None


@dataclass(frozen=True, slots=True)
class Hits:
    """The m rows found for one query, best first.

    Rows of equal similarity keep the order in which they were added.

    Attributes
    ----------
    ids
        Ids of the rows, m texts.
    similarity
        Cosine similarities to the query, (m,) float32, descending; for metric "l2" squared
        distances, ascending.
    labels
        Predicted classes; None for a row that is not classified.
    metadata, documents
        Copies of metadata and texts. A row without a text has None.
    vectors
        Stored vectors, (m, d) float32, if the search was asked for them.

    Notes
    -----
    ``len`` is m; iteration yields a :class:`Hit` for each row.
    """

    ids: list[str]
    similarity: Floats
    labels: list[Label]
    metadata: list[Metadata]
    documents: list[str | None]
    vectors: Floats | None = None

    __repr__ = summary

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[Hit]:
        rows = zip(
            self.ids,
            self.similarity.tolist(),
            self.labels,
            self.metadata,
            self.documents,
            strict=True,
        )
        return (Hit(*row) for row in rows)


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a store.

    Attributes
    ----------
    ids
        Ids of the rows, n texts.
    vectors
        Unit vectors, (n, d) float32, as stored in the index.
    labels
        Predicted classes; None for a row that is not classified.
    metadata, documents
        Copies of metadata and texts. A row without a text has None.
    """

    ids: list[str]
    vectors: Floats
    labels: list[Label]
    metadata: list[Metadata]
    documents: list[str | None]

    __repr__ = summary

    def __len__(self) -> int:
        return len(self.ids)


PREFIX = "$arrow:"
"""Beginning of the only key of a mapping for a typed value; no metadata may have it."""

_MICROSECOND = timedelta(microseconds=1)
_TYPES: dict[type, tuple[str, Callable[[Any], Any], Callable[[Any], Any]]] = {
    datetime: ("datetime", datetime.isoformat, datetime.fromisoformat),
    date: ("date", date.isoformat, date.fromisoformat),
    time: ("time", time.isoformat, time.fromisoformat),
    timedelta: (
        "duration",
        lambda value: value // _MICROSECOND,
        lambda count: timedelta(microseconds=count),
    ),
    Decimal: ("decimal", str, lambda text: _as_finite(Decimal(text))),
    bytes: (
        "bytes",
        lambda value: base64.b64encode(value).decode(),
        lambda text: base64.b64decode(text, validate=True),
    ),
}
_READ = {PREFIX + name: read for name, _, read in _TYPES.values()}
TYPED = frozenset(_TYPES) - {Decimal}
"""Types whose values are all valid; a decimal may be infinite."""


def _as_finite(value: Decimal) -> Decimal:
    if not value.is_finite():
        raise ValueError(f"decimals must be finite, got {value}")
    return value


def as_typed(value: Any) -> Any:
    """Return a value as one of the types of this module, a text or None.

    Unchanged if it is of another kind.

    Nanoseconds are rounded down to microseconds. A UUID becomes a text, a missing value (NaT, NA)
    None, and a scalar or array of Arrow its value or values.
    """
    for method in ("as_py", "to_pylist"):  # Arrow
        if hasattr(value, method):
            value = getattr(value, method)()
    # of pandas, which itself would round to the nearest microsecond
    if hasattr(value, "to_timedelta64"):
        value = value.to_timedelta64()
    if isinstance(value, np.datetime64 | np.timedelta64):
        value = value.astype(f"{'M' if isinstance(value, np.datetime64) else 'm'}8[us]").item()
    if isinstance(value, datetime | timedelta) and value != value:
        return None
    if hasattr(value, "to_pydatetime"):
        return value.to_pydatetime(warn=False)
    if type(value).__name__ == "NAType":  # of pandas
        return None
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    return str(value) if isinstance(value, UUID) else value


def to_json(value: Any) -> dict[str, Any]:
    """Return a typed value as a mapping of JSON values: the ``default`` of ``json.dumps``."""
    name, write, _ = _TYPES[type(value)]
    return {PREFIX + name: write(value)}


def from_json(mapping: dict[str, Any]) -> Any:
    """Return the value of a mapping of :func:`to_json`: ``object_hook`` of ``json.loads``."""
    if len(mapping) == 1:
        ((key, value),) = mapping.items()
        if key.startswith(PREFIX):
            try:
                return _READ[key](value)
            except (ArithmeticError, KeyError) as error:
                raise ValueError(
                    f"metadata hold no value like {key}: {str(value)[:40]!r}"
                ) from error
    return mapping


def speaks_arrow(values: Any) -> bool:
    """Return whether an object exports its data by Arrow's C interface."""
    return hasattr(values, "__arrow_c_array__") or hasattr(values, "__arrow_c_stream__")


def check_ids(ids: Any) -> list[str]:
    """Return ids as texts; TypeError for another type, ValueError for invalid Unicode."""
    listed = as_list("ids", ids)
    return listed if _are_plain(listed) else [_text(id_, f"id {id_!r:.80}") for id_ in listed]


def check_labels(name: str, labels: Any, n: int) -> list[Label]:
    """Return n predicted classes as texts, integers, booleans, or None if unknown."""
    labels_of_rows = _one_each(name, "predicted classes, one for each row", labels, n)
    listed: list[Any] = as_values(name, labels_of_rows).tolist()
    if _are_plain(listed):
        return listed
    for position, label in enumerate(listed):
        if type(label) is float:
            raise TypeError(
                f"{name} must be texts, integers or booleans, got {label} at position {position}"
            )
        if type(label) is str:
            _text(label, f"{name} {label!r:.80} at position {position}")
    return [None if label == UNKNOWN else label for label in listed]


def check_documents(documents: Any, ids: list[str]) -> list[str | None]:
    """Return n texts, or None for a row without one."""
    listed = _one_each("documents", "texts, one for each id", documents, len(ids))
    if _are_plain(listed):
        return listed
    return [
        None if text is None else _text(text, f"the document of {id_!r}")
        for text, id_ in zip(listed, ids, strict=True)
    ]


def check_metadata(metadata: Any, ids: list[str]) -> list[Metadata]:
    """Return copies of n mappings of JSON values, dates, times, decimals and bytes."""
    listed = _one_each("metadata", "mappings, one for each id", metadata, len(ids))
    if _are_valid(listed):
        return [mapping.copy() for mapping in listed]
    return [
        {} if mapping is None else _mapping(mapping, (f"metadata of {id_!r}",))
        for mapping, id_ in zip(listed, ids, strict=True)
    ]


def _one_each(name: str, kind: str, values: Any, n: int) -> list[Any]:
    listed = [None] * n if values is None else as_list(name, values)
    if len(listed) != n:
        raise ValueError(f"{name} must hold {n} {kind}, got {len(listed)}")
    return listed


def copy_metadata(metadata: Metadata) -> Metadata:
    """Return a deep copy of stored metadata."""
    copy = metadata.copy()
    for key, value in metadata.items():
        if type(value) in (list, dict):
            copy[key] = _copy_value(value)
    return copy


def _copy_value(value: Any) -> Any:
    if type(value) is list:
        return [_copy_value(item) for item in value]
    return copy_metadata(value) if type(value) is dict else value


def plain_value(name: str, value: Any) -> Any:
    """Return the value that a filter compares with, as metadata would hold it.

    Errors call it ``name``.
    """
    return _value(value, (name,))


# --- the usual case, checked for all rows at once -------------------------------------------------


def _are_plain(texts: list[Any]) -> bool:
    """Return whether all values are texts of valid Unicode."""
    return set(map(type, texts)) == {str} and _are_unicode(texts)


def _are_unicode(texts: Iterable[str]) -> bool:
    try:
        "".join(filterfalse(str.isascii, texts)).encode()
    except UnicodeEncodeError:
        return False
    return True


def _are_valid(metadata: list[Any]) -> bool:
    """Return whether all are dicts of valid plain values, which need no deep copy."""
    if set(map(type, metadata)) != {dict}:
        return False
    keys = set(chain.from_iterable(metadata))
    values = list(chain.from_iterable(map(dict.values, metadata)))
    if not (set(map(type, keys)) <= {str} and set(map(type, values)) <= _PLAIN | TYPED):
        return False
    if any(key.startswith(PREFIX) for key in keys):
        return False
    texts = [value for value in values if type(value) is str]
    numbers = (value for value in values if type(value) in (int, float))
    try:
        return all(map(math.isfinite, numbers)) and _are_unicode(keys) and _are_unicode(texts)
    except OverflowError:  # an integer that is larger than any float
        return False


# --- one value at a time, to copy it or to name the error -----------------------------------------


def _mapping(metadata: Any, where: tuple[Any, ...]) -> Metadata:
    if not isinstance(metadata, Mapping):
        raise TypeError(f"{_name_place(*where)} must be a mapping, got {type(metadata).__name__}")
    result: Metadata = {}
    for key, value in metadata.items():
        plain = (
            key
            if type(key) is str and key.isascii()
            else _text(key, f"{_name_place(*where)}: the key {key!r}")
        )
        if plain.startswith(PREFIX):
            raise ValueError(
                f"{_name_place(*where)} must have no key that begins with {PREFIX!r}, got {key!r}"
            )
        result[plain] = _value(value, (*where, plain))
    return result


def _value(value: Any, where: tuple[Any, ...]) -> Any:
    plain = as_typed(value)
    plain = plain.item() if isinstance(plain, np.generic) else plain
    if plain is None or type(plain) is bool or type(plain) in TYPED:
        return plain
    if isinstance(plain, str):
        return _text(plain, *where)
    if isinstance(plain, Integral):
        bits = int(plain).bit_length()
        if bits > 1024:
            raise ValueError(
                f"{_name_place(*where)} must be below 2**1024, got an integer of {bits} bits"
            )
        return int(plain)
    if isinstance(plain, float):
        # one object, which equals itself in columns
        return math.nan if math.isnan(plain) else float(plain)
    if isinstance(plain, Decimal):
        if not plain.is_finite():
            raise ValueError(
                f"{_name_place(*where)} must be finite as a decimal, got {plain}; use a float or "
                f"None"
            )
        return Decimal(plain)
    if len(where) > DEEPEST:
        raise ValueError(f"{_name_place(*where[:2])} must be nested {DEEPEST} deep at most")
    if isinstance(plain, Mapping):
        return _mapping(plain, where)
    if isinstance(plain, list | tuple | np.ndarray):
        return [_value(item, (*where, i)) for i, item in enumerate(plain)]
    raise TypeError(
        f"{_name_place(*where)} must be a text, a number, True, False, None, a date, a time, a "
        f"duration, bytes, or a list or mapping of these, got {type(value).__name__}: "
        f"{str(value)[:60]}"
    )


def _text(text: Any, *where: Any) -> str:
    """Return a text as ``str``; TypeError for another type, ValueError for invalid Unicode."""
    if not isinstance(text, str):
        got = f"{type(text).__name__}: {text!r:.60}"
        raise TypeError(f"{_name_place(*where)} must be a text, got {got}; str() makes one")
    try:
        if not text.isascii():
            text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{_name_place(*where)} must be valid Unicode, got {error.object[error.start]!r}"
        ) from error
    return str.__str__(text)


def _name_place(first: Any, *path: Any) -> str:
    """Return the place of a value in metadata, as in ``metadata of 'a': 'k.l[1]'``."""
    if not path:
        return str(first)
    text = str(path[0]) + "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}" for part in path[1:]
    )
    return f"{first}: {text!r}"
