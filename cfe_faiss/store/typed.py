"""Values of metadata that JSON has no type for, as JSON: dates, times, durations, decimals and bytes."""

import base64
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np

PREFIX = "$arrow:"
"""Beginning of the only key of a mapping that stands for a typed value, which no key of metadata may have."""

_MICROSECOND = timedelta(microseconds=1)
_TYPES: dict[type, tuple[str, Callable[[Any], Any], Callable[[Any], Any]]] = {
    datetime: ("datetime", datetime.isoformat, datetime.fromisoformat),
    date: ("date", date.isoformat, date.fromisoformat),
    time: ("time", time.isoformat, time.fromisoformat),
    timedelta: ("duration", lambda value: value // _MICROSECOND, lambda count: timedelta(microseconds=count)),
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
    """Return a value as one of the types of this module, a text or None; unchanged if it is of another kind.

    Nanoseconds are rounded down to microseconds. A UUID becomes a text, a missing value (NaT, NA) None, and a scalar or
    array of Arrow its value or values.
    """
    for method in ("as_py", "to_pylist"):  # Arrow
        if hasattr(value, method):
            value = getattr(value, method)()
    if isinstance(value, np.datetime64 | np.timedelta64):
        value = value.astype(f"{'M' if isinstance(value, np.datetime64) else 'm'}8[us]").item()
    if isinstance(value, datetime | timedelta) and value != value:
        return None
    if hasattr(value, "to_pydatetime"):
        return value.to_pydatetime(warn=False)
    if hasattr(value, "to_pytimedelta"):
        return value.to_pytimedelta()
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
    """Return the value that a mapping of :func:`to_json` stands for: the ``object_hook`` of ``json.loads``."""
    if len(mapping) == 1:
        ((key, value),) = mapping.items()
        if key.startswith(PREFIX):
            try:
                return _READ[key](value)
            except (ArithmeticError, KeyError) as error:
                raise ValueError(f"metadata hold no value like {key}: {str(value)[:40]!r}") from error
    return mapping
