"""Columns of values, each different value kept once: what filters compare."""

import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.derived import derived
from cfe_faiss.store.growing import appended
from cfe_faiss.store.results import Metadata

MISSING: Any = type("Missing", (), {"__repr__": lambda _: "no value"})()
"""What stands for a key that a row does not have."""

NO_VALUE, NULL, BOOLEAN, NUMBER, TEXT, LIST, MAPPING = range(7)
KINDS = ("no value", "None", "True and False", "numbers", "texts", "lists", "mappings")
_KIND_OF = {bool: BOOLEAN, int: NUMBER, float: NUMBER, str: TEXT, list: LIST, dict: MAPPING}
_KIND_OF |= {type(None): NULL, type(MISSING): NO_VALUE}
_THEIR_OWN_KEYS = frozenset({str, int, float, type(None), type(MISSING)})


def kind_of(value: Any) -> int:
    """Return which of ``KINDS`` a value is of."""
    return _KIND_OF[type(value)]


class Values:
    """Different values, numbered as they came; it grows, and never forgets one.

    Columns share it. What they do not know of, as where a change has failed, does no harm.

    Attributes
    ----------
    values
        The value of each number; 0 is always ``MISSING``.
    """

    def __init__(self) -> None:
        self.values: list[Any] = [MISSING]
        self._codes: dict[Any, int] = {MISSING: 0}
        self._kinds: NDArray[np.uint8] = np.zeros(1, np.uint8)
        self._numbers: NDArray[Any] = np.full(1, math.nan)

    def encode(self, values: Sequence[Any]) -> NDArray[np.int32]:
        """Return the number of each value, (n,); values that are new get one."""
        keys = list(values) if set(map(type, values)) <= _THEIR_OWN_KEYS else [key_of(value) for value in values]
        by_key = dict(zip(reversed(keys), reversed(values), strict=True))  # the first of equal ones is kept
        new = [key for key in dict.fromkeys(keys) if key not in self._codes]
        codes = dict(zip(new, range(len(self.values), len(self.values) + len(new)), strict=True))
        self.values.extend([by_key[key] for key in new])
        self._codes.update(codes)  # last, and of values that are all there
        return np.fromiter(map(self._codes.__getitem__, keys), np.int32, len(keys))

    def code(self, value: Any) -> int | None:
        """Return the number of a value, or None if it is not here."""
        return self._codes.get(key_of(value))

    @property
    def kinds(self) -> NDArray[np.uint8]:
        """Which of ``KINDS`` each value is of, (m,) uint8."""
        known = self._kinds
        if len(known) < len(self.values):
            more = np.array(list(map(kind_of, self.values[len(known) :])), np.uint8)
            self._kinds = known = appended(known, more)
        return known

    @property
    def numbers(self) -> NDArray[Any]:
        """The values that are numbers, others as NaN: float64, or objects where float64 does not hold one exactly."""
        known = self._numbers
        if len(known) < len(self.values):
            plain = [value if kind_of(value) == NUMBER else math.nan for value in self.values[len(known) :]]
            more = np.array(plain, np.float64 if all(map(float_holds, plain)) else object)
            self._numbers = known = np.concatenate([known, more])
        return known


def float_holds(number: float) -> bool:
    """Return whether float64 holds a number as it is: every float, and integers up to 2**53."""
    return type(number) is float or -(1 << 53) <= number <= 1 << 53


def key_of(value: Any) -> Any:
    """Return what stands for a value among equal ones: True is not 1, and a list can be looked up."""
    kind = type(value)
    if kind in _THEIR_OWN_KEYS:
        return value
    return (kind, value) if kind is bool else (kind, _canonical(value))


def _canonical(value: Any) -> Any:
    """Return a list or mapping as what is equal and hashed where the values are equal, whatever order keys have."""
    if type(value) is list:
        return tuple(key_of(item) for item in value)
    return frozenset((key, key_of(item)) for key, item in value.items())


@dataclass(frozen=True, eq=False)
class Column:
    """The value of each row under one key.

    Attributes
    ----------
    codes
        The number of each row's value, (n,) int32.
    dictionary
        The values; shared with the columns that this one was made from.
    """

    codes: NDArray[np.int32]
    dictionary: Values

    @classmethod
    def of(cls, values: Sequence[Any]) -> "Column":
        """Return the column of some values."""
        dictionary = Values()
        return cls(dictionary.encode(values), dictionary)

    def with_rows(self, values: Sequence[Any]) -> "Column":
        """Return this column with more rows at its end."""
        return Column(appended(self.codes, self.dictionary.encode(values)), self.dictionary)

    def kept(self, keep: NDArray[np.bool_]) -> "Column | None":
        """Return this column with some of its rows, (n,) bool; None if it held too much that nobody has any more."""
        codes = self.codes[keep]
        return Column(codes, self.dictionary) if len(self.dictionary.values) <= 2 * len(codes) + 1024 else None

    @derived
    def used(self) -> NDArray[np.bool_]:
        """Which of the values some row has, (m,) bool."""
        used = np.zeros(len(self.dictionary.values), bool)
        used[self.codes] = True
        return used

    @derived
    def kinds(self) -> frozenset[int]:
        """The kinds of values that rows have."""
        return frozenset(self.dictionary.kinds[: len(self.used)][self.used].tolist())

    def matching(self, predicate: Callable[[Any], Any]) -> NDArray[np.bool_]:
        """Return which rows have a value of which ``predicate`` is true, (n,) bool; it is asked once for each value.

        A missing value is None. What it raises goes through.
        """
        chosen = np.zeros(len(self.used), bool)
        for code in np.flatnonzero(self.used).tolist():
            chosen[code] = bool(predicate(deepcopy(self.dictionary.values[code]) if code else None))
        return self.where(chosen)

    def where(self, chosen: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which rows have one of the chosen values, (m,) bool."""
        return chosen[self.codes]


def values_of(metadata: Sequence[Metadata], key: str) -> list[Any]:
    """Return the value of a key in each mapping; "a.b" is b in the mapping a, where no key is called so."""
    if "." not in key:
        return [one.get(key, MISSING) for one in metadata]
    return [_at(one, key) for one in metadata]


def _at(metadata: Metadata, key: str) -> Any:
    if key in metadata:
        return metadata[key]
    value: Any = metadata
    for part in key.split("."):
        if type(value) is not dict or part not in value:
            return MISSING
        value = value[part]
    return value
