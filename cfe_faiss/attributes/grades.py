"""Ranks of values whose better end is known, and pairs whose refused side is at least as good."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from cfe_faiss.attributes.table import Attributes
from cfe_faiss.base.checks import Bools, Doubles, Ints
from cfe_faiss.base.text import value_name


def grades_of(attributes: Attributes, better: Mapping[str, Any]) -> Doubles:
    """Return the rank of each row by column of ``better``, (c, n), NaN where missing.

    Larger ranks are better values.
    """
    if not isinstance(better, Mapping) or not better:
        raise ValueError(
            f"better must map columns to 'high', 'low' or values from worst to best, got {better!r}"
        )
    return np.stack([_grades(attributes, name, end) for name, end in better.items()])


def _grades(attributes: Attributes, name: Any, end: Any) -> Doubles:
    attribute = attributes[attributes.known("better", name)]
    values = [value_name(value) for value in attribute.values]  # in ascending order
    listed = values
    if not isinstance(end, str):
        listed = [value_name(value) for value in end]
    elif end not in ("high", "low"):
        raise ValueError(
            f"better[{name!r}] must be 'high', 'low' or values from worst to best, got {end!r}"
        )
    elif attribute.numbers is None:
        shown = ", ".join(values[:20])
        raise ValueError(
            f"better[{name!r}] must list the values from worst to best ({shown}), got {end!r}"
        )
    elif end == "low":
        listed = values[::-1]
    grade = {value: float(rank) for rank, value in enumerate(listed)}
    for value in values:
        if value not in grade:
            raise ValueError(
                f"better[{name!r}] must list all values from worst to best, got none for {value!r}"
            )
    return np.array([*(grade[value] for value in values), np.nan])[attribute.codes]


def are_dominated(grades: Doubles, refused: Bools, source: Ints, target: Ints) -> Bools:
    """Return whether the refused side of each pair is at least as good in every column.

    Parameters
    ----------
    grades
        (columns, n), see :func:`grades_of`.
    refused
        Whether each row was refused, (n,).
    source, target
        Rows of each pair. A pair of two refused or two granted rows is not one.
    """
    worse = np.where(refused[source], source, target)
    other = np.where(refused[source], target, source)
    is_mixed = refused[worse] & ~refused[other]
    result: Bools = is_mixed & (grades[:, worse] >= grades[:, other]).all(axis=0)
    return result
