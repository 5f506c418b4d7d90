"""Users' names of rows and classes, and their numbers."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from cfe_faiss.base.arrays import Array, Int32s, Ints
from cfe_faiss.base.checks import check_distinct, check_known, did_you_mean, is_missing
from cfe_faiss.base.values import as_ids, as_list, as_nodes


def as_row_ids(argument: str, values: Any, n: int) -> Array:
    """Return the ids of n rows, (n,): int64 if all are integers, else texts as objects.

    Raises
    ------
    ValueError
        If there are not n ids, one is missing, or two rows have the same one.
    """
    listed = as_list(argument, values)
    if len(listed) != n:
        raise ValueError(f"{argument} must hold one id for each of {n:,} rows, got {len(listed):,}")
    missing = [row for row, value in enumerate(listed) if is_missing(value)]
    if missing:
        raise ValueError(f"{argument} must hold an id for every row, got none in row {missing[0]}")
    are_integers = all(isinstance(value, int) and not isinstance(value, bool) for value in listed)
    ids = np.array(listed, np.int64) if are_integers else np.array([*map(str, listed), None], object)[:-1]
    remedy = "where people have several rows, leave it out, and name them in person= of the direct tests"
    check_distinct(f"{argument} must hold each id once ({remedy})", ids.tolist())
    return ids


def row_numbers(argument: str, given: Any, ids: Array | None, n: int) -> Ints:
    """Return the row of each id, (m,); or the rows that a mask, (n,), selects.

    Raises
    ------
    TypeError, ValueError
        If an id is unknown, or a mask has another length.
    """
    is_scalar = not hasattr(given, "__len__") or getattr(given, "shape", None) == ()
    single = is_scalar or isinstance(given, str | bytes)
    values = [given] if single else as_list(argument, given)
    if values and all(isinstance(value, bool | np.bool_) for value in values):
        return as_nodes(argument, values, n)
    if ids is None:
        return as_ids(argument, values, n)
    places = {value: row for row, value in enumerate(ids.tolist())}
    keys = [_key(value, ids) for value in values]
    for key in keys:
        check_known(f"{argument} must name rows by their ids", key, places)
    return np.array([places[key] for key in keys], np.int64)


def class_numbers(argument: str, given: Any, names: Sequence[str] | None, count: int) -> Int32s:
    """Return the numbers of a class or of several, each once, (c,).

    A number or a truth value is the number of a class; if all class names are whole numbers or truth values, a name.

    Raises
    ------
    ValueError
        If there is no such class, or none is given.
    """
    known = [names[c] if names is not None and c < len(names) else f"class {c}" for c in range(count)]
    by_name = {text: c for c, text in reversed(list(enumerate(known)))}
    if names is None:
        by_name |= {str(c): c for c in range(count)}
    given = given.tolist() if hasattr(given, "tolist") else given
    several = hasattr(given, "__iter__") and not isinstance(given, str | bytes)
    are_values = bool(names) and all(
        name.removeprefix("-").isdecimal() or name in ("False", "True") for name in names or ()
    )
    found: dict[int, None] = {}
    for value in given if several else [given]:
        is_number = isinstance(value, int | np.integer | np.bool_) or (isinstance(value, float) and value.is_integer())
        number = by_name.get(str(value))
        if is_number and number is None:
            number = by_name.get(str(int(value)))
        if is_number and number is None and not are_values and 0 <= value < count:
            number = int(value)
        if number is None:
            hint = did_you_mean(str(value), known)
            raise ValueError(f"{argument} must be among the classes ({', '.join(known[:20])}), got {value!r}{hint}")
        found[number] = None
    if not found:
        raise ValueError(f"{argument} must hold one class at least, got none")
    return np.array(list(found), np.int32)


def _key(value: Any, ids: Array) -> Any:
    """Return an id in the type of the stored ids: "17" names the row 17, too."""
    if ids.dtype != np.int64:
        return str(value)
    try:
        return int(value)
    except ValueError:
        return value
