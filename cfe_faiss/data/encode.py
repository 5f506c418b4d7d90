"""Vectors of a table: numbers in standard deviations, and categories one of these apart."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cfe_faiss.attributes.table import Attribute, Attributes
from cfe_faiss.base.checks import (
    Array,
    Floats,
    as_dense,
    as_number,
    check_distinct,
    check_known,
    check_type,
)
from cfe_faiss.base.extras import pd

MOST_VALUES = 100
"""Largest number of different texts in a category; beyond it, a column holds names or remarks."""

MISSING = "(missing)"
_LARGEST = 1e150
"""Largest size of a number in a column; squares of such numbers have a finite sum."""

_BLOCK = 1 << 23
"""Numbers of the columns that are scaled at once: 64 MiB."""
_HALF_APART = math.sqrt(0.5)
"""Entry of a category in its column: then two rows of different categories have distance 1."""


@dataclass(frozen=True)
class Encoding:
    """Columns of encoded attributes.

    Attributes
    ----------
    x
        Columns for comparing rows by distance, (n, d) float32.
    x_raw
        The same columns in their own units, (n, d) float32: numbers (their mean, where missing),
        and 1 where a row has the value of a text, else 0.
    names
        Name of each column: that of the attribute, for a text "attribute=value".
    attributes
        Attribute that each column comes from.
    """

    x: Floats
    x_raw: Floats
    names: tuple[str, ...]
    attributes: tuple[str, ...]


def encode(
    attributes: Attributes, *, scale: Mapping[str, float] | None = None, as_is: bool = False
) -> Encoding:
    """Encode attributes so that the distance of two rows counts standard deviations.

    A number becomes one column in standard deviations from its mean, over the rows that have it. A
    missing number is the mean, and a further column "attribute=(missing)" marks it by 1. A text
    becomes one column for each of its values, so that two rows of different values have distance 1;
    a missing text is one more value. So two rows that differ in one attribute have a distance of 1
    if it is a text or missing in one of them, however rare that is, and else of their difference in
    standard deviations.

    Parameters
    ----------
    attributes
        Attributes of all rows.
    scale
        Weights of attributes, numbers above 0, which multiply differences. Default: 1.
    as_is
        Whether to keep numbers in their own units.

    Returns
    -------
    Encoding
        O(n d) time and memory.

    Raises
    ------
    TypeError, ValueError
        If an attribute has infinite numbers or more than 100 different texts, two columns get one
        name, or ``scale`` does not hold weights of attributes.

    Examples
    --------
    >>> from cfe_faiss.attributes.table import as_attributes
    >>> people = as_attributes({"age": [20, 40, np.nan, 30], "sex": ["f", "m", "f", "m"]})
    >>> encoding = encode(people, scale={"age": 2})
    >>> encoding.names
    ('age', 'age=(missing)', 'sex=f', 'sex=m')
    >>> encoding.x[:2].round(2)
    array([[-2.45,  0.  ,  0.71,  0.  ],
           [ 2.45,  0.  ,  0.  ,  0.71]], dtype=float32)
    """
    weights = _weights(scale, attributes)
    names: list[str] = []
    owners: list[str] = []
    scaled = [np.empty((len(attributes.ids), 0), np.float32)]
    raw = [*scaled]
    scales = _scales(attributes)
    for attribute in attributes.values():
        for name, values, distances in _columns(attribute, scales.get(attribute.name), as_is):
            names.append(name)
            owners.append(attribute.name)
            raw.append(values.astype(np.float32)[:, None])
            scaled.append((distances * weights.get(attribute.name, 1)).astype(np.float32)[:, None])
    check_distinct("attributes must give columns of different names", names)
    return Encoding(np.hstack(scaled), np.hstack(raw), tuple(names), tuple(owners))


def encode_table(
    attributes: Attributes,
    frame: "pd.DataFrame",
    encoder: Any = None,
    scale: Mapping[str, float] | None = None,
    left_out: Sequence[str] = (),
) -> Floats:
    """Return the vectors of a table, (n, d) float32, by :func:`encode` or a user's encoder.

    Columns of :func:`encode` in which all rows are equal are left out.

    Parameters
    ----------
    attributes, frame
        The columns that vectors are made of, in both forms. An encoder gets the frame.
    encoder
        A scikit-learn transformer, which is fitted here unless it is fitted already; or a callable.
    scale
        As in :func:`encode`.
    left_out
        Columns that are not in the vectors, for errors.

    Raises
    ------
    TypeError, ValueError
        If no column is left, or encoder or scale are not as described.
    """
    if not len(attributes):
        raise ValueError(
            "frame must have columns that vectors are made of, got none beside "
            f"{', '.join(left_out)}, which sensitive and without leave out, with their copies"
        )
    if encoder is None:
        x = encode(attributes, scale=scale).x
        varies = (x != x[:1]).any(axis=0)
        return x[:, varies] if varies.any() else x
    if scale is not None:
        raise ValueError("scale must be left out with encoder, which scales columns itself")
    encoder_columns = getattr(encoder, "feature_names_in_", list(frame.columns))
    for name in encoder_columns:
        if name in left_out:
            raise ValueError(f"encoder must not use columns of sensitive or without, got {name!r}")
        check_known("encoder must name a column of frame", name, list(frame.columns))
    return as_dense("the encoder's output", _transform(encoder)(frame[list(encoder_columns)]))


def _weights(scale: Mapping[str, float] | None, attributes: Attributes) -> dict[str, float]:
    """Return the checked weights of attributes."""
    if scale is None:
        return {}
    check_type("scale must map names of columns to weights", scale, Mapping)
    weights = {}
    for name, weight in scale.items():
        check_known("scale must name columns that vectors are made of", name, attributes)
        weights[name] = as_number(f"scale[{name!r}]", weight, 0.0, math.inf)
        if weight == 0:
            raise ValueError(
                f"scale[{name!r}] must be above 0, got 0: without leaves a column out of the "
                f"vectors"
            )
    return weights


def _scales(attributes: Attributes) -> dict[str, tuple[float, float]]:
    """Return the mean and standard deviation of each attribute of numbers, by its name."""
    from sklearn.preprocessing import StandardScaler  # takes a second to import

    numbers = {name: one.numbers for name, one in attributes.items() if one.numbers is not None}
    scales: dict[str, tuple[float, float]] = {}
    width = max(1, _BLOCK // max(1, len(attributes.ids)))
    for start in range(0, len(numbers), width):
        names = list(numbers)[start : start + width]
        rows = np.array([numbers[name] for name in names], np.float64)
        too_large = np.argwhere(np.abs(rows) > _LARGEST)
        if len(too_large):
            column, row = too_large[0]
            raise ValueError(
                f"column {names[column]!r} must hold finite numbers up to {_LARGEST:g}, got "
                f"{rows[column, row]:g} in row {row} (from 0): give None where it is not known, or "
                "a larger unit"
            )
        rows[np.isnan(rows).all(axis=1)] = 0
        scaler = StandardScaler().fit(rows.T)  # skips missing numbers
        scales |= zip(names, zip(scaler.mean_, scaler.scale_, strict=True), strict=True)
    return scales


def _columns(
    attribute: Attribute, scale: tuple[float, float] | None, as_is: bool
) -> Iterator[tuple[str, Array, Array]]:
    """Yield name, values, (n,), and values in units of distance of an attribute's columns.

    ``scale``: mean and standard deviation of its numbers.
    """
    name = attribute.name
    if attribute.numbers is not None and scale is not None:
        mean, deviation = scale
        numbers = attribute.numbers.astype(np.float64)
        missing = np.isnan(numbers)
        filled = np.where(missing, mean, numbers)
        yield name, filled, filled if as_is else (filled - mean) / deviation
        if missing.any():
            yield f"{name}={MISSING}", missing, missing
        return
    if not can_be_encoded(attribute):
        raise ValueError(
            f"column {name!r} has {len(attribute.values):,} different texts, more than "
            f"{MOST_VALUES}, which is no category: name it in id or without, or make it a number "
            "(codes of a category, too, if they are amounts)"
        )
    for code in np.unique(attribute.codes).tolist():
        text = MISSING if code < 0 else attribute.values[code]
        has_value = attribute.codes == code
        yield f"{name}={text}", has_value, has_value * _HALF_APART


def can_be_encoded(attribute: Attribute) -> bool:
    """Return whether an attribute holds numbers, or at most ``MOST_VALUES`` texts."""
    return attribute.numbers is not None or len(attribute.values) <= MOST_VALUES


def _transform(encoder: Any) -> Any:
    """Return the function of an encoder: itself, or fit (if it is not fitted) and transform."""
    if not hasattr(encoder, "transform"):
        if not callable(encoder):
            raise TypeError(
                f"encoder must be a scikit-learn transformer or a callable, got "
                f"{type(encoder).__name__}"
            )
        return encoder
    from sklearn.base import clone
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    try:
        check_is_fitted(encoder)
    except NotFittedError:
        return clone(encoder).fit_transform
    return encoder.transform
