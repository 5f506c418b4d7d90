"""Columns of metadata, compared by filters. Each distinct value is stored once; a column holds one number per row."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import IntEnum
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.derived import derived
from cfe_faiss.store.values import Metadata

T = TypeVar("T", bound=np.generic)

GONE = -2
"""Label of a removed row, which stays in the arrays of a table until they are compacted."""
MISSING: Any = type("Missing", (), {"__repr__": lambda _: "no value"})()
"""Value of a key that a row does not have."""

Kind = IntEnum(
    "Kind", "NO_VALUE NULL BOOLEAN NUMBER TEXT LIST MAPPING DATETIME ZONED DATE TIME DURATION BYTES", start=0
)
"""Kinds of values, in the order of ``KINDS``."""
KINDS: tuple[str, ...] = ("no value", "None", "True and False", "numbers", "texts", "lists", "mappings", "datetimes")
KINDS += ("datetimes with a time zone", "dates", "times", "durations", "bytes")
ORDERED = (Kind.NUMBER, Kind.TEXT, Kind.DATETIME, Kind.ZONED, Kind.DATE, Kind.TIME, Kind.DURATION, Kind.BYTES)
_KIND_OF = {type(MISSING): Kind.NO_VALUE, type(None): Kind.NULL, bool: Kind.BOOLEAN, list: Kind.LIST}
_KIND_OF |= dict.fromkeys((int, float, Decimal), Kind.NUMBER) | {str: Kind.TEXT, dict: Kind.MAPPING}
_KIND_OF |= {datetime: Kind.DATETIME, date: Kind.DATE, time: Kind.TIME, timedelta: Kind.DURATION, bytes: Kind.BYTES}
_OWN_KEYS = frozenset(_KIND_OF) - {bool, list, dict}


def kind_of(value: Any) -> Kind:
    """Return the kind of a value."""
    kind = _KIND_OF[type(value)]
    return Kind.ZONED if kind is Kind.DATETIME and value.tzinfo is not None else kind


def key_of(value: Any) -> Any:
    """Return a hashable key, equal for equal values only: True differs from 1, the order of a mapping is ignored."""
    kind = type(value)
    if kind is list:
        return kind, tuple(map(key_of, value))
    if kind is dict:
        return kind, frozenset((key, key_of(item)) for key, item in value.items())
    return (kind, value) if kind is bool else value


def float_holds(number: float) -> bool:
    """Return whether float64 represents a number exactly: any float, and integers up to 2**53; no decimal."""
    return type(number) is float or (type(number) is int and -(1 << 53) <= number <= 1 << 53)


class Values:
    """Distinct values, numbered in the order of their first occurrence. It only grows.

    Columns share it. Values of a failed change stay in it unused.

    Attributes
    ----------
    values
        The value of each number; number 0 is always ``MISSING``.
    """

    def __init__(self) -> None:
        self.values: list[Any] = [MISSING]
        self._codes: dict[Any, int] = {MISSING: 0}
        self._kinds: NDArray[np.uint8] = np.zeros(1, np.uint8)
        self._numbers: NDArray[Any] = np.full(1, math.nan)

    def encode(self, values: Sequence[Any]) -> NDArray[np.int32]:
        """Return the number of each value, (n,). A new value gets the next number."""
        keys = values if set(map(type, values)) <= _OWN_KEYS else list(map(key_of, values))
        for key, value in zip(keys, values, strict=True):
            if key not in self._codes:
                self.values.append(value)
                self._codes[key] = len(self.values) - 1
        return np.fromiter(map(self._codes.__getitem__, keys), np.int32, len(keys))

    def code(self, value: Any) -> int | None:
        """Return the number of a value, or None if the value is unknown."""
        return self._codes.get(key_of(value))

    @property
    def kinds(self) -> NDArray[np.uint8]:
        """Kind of each value, as a position in ``KINDS``, (m,)."""
        new = self.values[len(self._kinds) :]
        if new:
            self._kinds = append(self._kinds, np.array(list(map(kind_of, new)), np.uint8))
        return self._kinds

    @property
    def numbers(self) -> NDArray[Any]:
        """Numbers as float64, or as objects if float64 does not represent them all; NaN for other values, (m,)."""
        new = [value if kind_of(value) is Kind.NUMBER else math.nan for value in self.values[len(self._numbers) :]]
        if new:
            exact = all(map(float_holds, new))
            self._numbers = np.concatenate([self._numbers, np.array(new, np.float64 if exact else object)])
        return self._numbers


@dataclass(frozen=True, eq=False)
class Column:
    """The values of all rows under one key.

    Attributes
    ----------
    codes
        Number of each row's value, (n,) int32.
    dictionary
        The values, shared with earlier versions of the column.
    labels
        Class number of each row, (n,) int32; ``GONE`` marks removed rows.
    """

    codes: NDArray[np.int32]
    dictionary: Values
    labels: NDArray[np.int32]

    @derived
    def used(self) -> NDArray[np.bool_]:
        """Whether any row has the value, (m,)."""
        used = np.zeros(len(self.dictionary.values), bool)
        used[self.codes[self.labels != GONE]] = True
        return used

    @derived
    def kinds(self) -> frozenset[int]:
        """Kinds of the values in use."""
        return frozenset(self.dictionary.kinds[: len(self.used)][self.used].tolist())


def values_of(metadata: Sequence[Metadata], key: str) -> list[Any]:
    """Return the value of a key in each mapping. "a.b" is b in the mapping a, unless a key has that name."""
    if "." not in key:
        return [one.get(key, MISSING) for one in metadata]
    return [_value_at(one, key) for one in metadata]


def _value_at(metadata: Metadata, key: str) -> Any:
    if key in metadata:
        return metadata[key]
    value: Any = metadata
    for part in key.split("."):
        if type(value) is not dict or part not in value:
            return MISSING
        value = value[part]
    return value


def append(array: NDArray[T], more: NDArray[T]) -> NDArray[T]:
    """Return ``array`` followed by ``more``, (n + m,): a view of a larger array with spare room. Amortised O(m).

    Views share their memory, so append only to the newest of them. After a failed change the next one overwrites the
    spare room, which no view shows.
    """
    n, m = len(array), len(more)
    room: Any = array.base
    shares = isinstance(room, np.ndarray) and room.dtype == array.dtype and room.strides == array.strides
    if not shares or room.ctypes.data != array.ctypes.data or len(room) < n + m:
        room = np.empty(n + m + (n + m) // 2 if n else m, array.dtype)
        room[:n] = array
    room[n : n + m] = more
    view: NDArray[T] = room[: n + m]
    return view


def objects(values: Sequence[Any]) -> NDArray[np.object_]:
    """Return a sequence as an array of objects, (n,)."""
    array = np.empty(len(values), object)
    array[:] = values
    return array
