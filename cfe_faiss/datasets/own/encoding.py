"""Vectors from attributes: standardised numbers and one-hot texts."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.attributes.table import Attribute, Attributes
from cfe_faiss.base.checks import check_distinct

MOST_VALUES = 100
"""Largest number of different texts in a category; beyond it, a column holds names or remarks."""

MISSING = "(missing)"


@dataclass(frozen=True)
class Encoding:
    """Columns of encoded attributes.

    Attributes
    ----------
    x
        Columns for comparing nodes, (n, d) float32.
    x_raw
        The same columns in their own units, (n, d) float32: numbers (their mean, where missing), and 1 where a node has
        the value of a text, else 0.
    names
        Name of each column: that of the attribute, for a text "attribute=value".
    attributes
        Attribute that each column comes from.
    """

    x: NDArray[np.float32]
    x_raw: NDArray[np.float32]
    names: tuple[str, ...]
    attributes: tuple[str, ...]


def encode(attributes: Attributes, *, as_is: bool = False) -> Encoding:
    """Encode attributes so that each of them has the same weight.

    A number becomes one column, its z-score: its mean is taken off, and it is divided by its standard deviation. A text
    becomes one column for each of its c values: 1 or 0, less the value's share p, divided by the square root of the sum
    of all p (1 - p). So the columns of each attribute have mean 0 and a total variance of 1, however many values it
    has; an attribute with one value only becomes zeros. Means, shares and deviations are over all n nodes.

    A missing text is the value "(missing)". A missing number is the mean, and a further column "attribute=(missing)",
    encoded like a text, marks it.

    Parameters
    ----------
    attributes
        Attributes of all nodes.
    as_is
        Whether to keep numbers unscaled, and texts at 1 and 0.

    Returns
    -------
    Encoding
        O(n d) time and memory.

    Raises
    ------
    ValueError
        If an attribute has infinite numbers or more than 100 different texts, or two columns get one name.

    Examples
    --------
    >>> from cfe_faiss.attributes.table import as_attributes
    >>> encoding = encode(as_attributes({"sex": ["f", "m", "f", "m"], "age": [20, 40, 20, 40]}))
    >>> encoding.names
    ('sex=f', 'sex=m', 'age')
    >>> encoding.x.tolist()[0], encoding.x_raw.tolist()[0]
    ([0.7071067690849304, -0.7071067690849304, -1.0], [1.0, 0.0, 20.0])
    """
    blocks = [(attribute.name, *block) for attribute in attributes.values() for block in _blocks(attribute)]
    names = tuple(name for _, some, _ in blocks for name in some)
    check_distinct("attributes must give columns of different names", names)
    none = np.empty((len(attributes.ids), 0))
    raw = np.column_stack([none, *(values for *_, values in blocks)]).astype(np.float32)
    x = raw if as_is else np.column_stack([none, *(_scale(values) for *_, values in blocks)]).astype(np.float32)
    return Encoding(x, raw, names, tuple(owner for owner, some, _ in blocks for _ in some))


def _blocks(attribute: Attribute) -> Iterator[tuple[list[str], NDArray[np.float64]]]:
    """Yield names and values, (n, c), of columns that share one scale."""
    missing = attribute.missing
    if attribute.numbers is not None:
        numbers = attribute.numbers.astype(np.float64)
        if np.isinf(numbers).any():
            raise ValueError(f"attribute {attribute.name!r} must be finite, got an infinite number")
        mean = 0.0 if missing.all() else numbers[~missing].mean()
        yield [attribute.name], np.where(missing, mean, numbers)[:, None]
        if missing.any():
            yield [f"{attribute.name}={MISSING}"], missing.astype(np.float64)[:, None]
        return
    used = np.unique(attribute.codes)
    if len(used) > MOST_VALUES:
        raise ValueError(
            f"attribute {attribute.name!r} has {len(used):,} different texts, more than {MOST_VALUES}: "
            "that is no category (numbers need a decimal point)"
        )
    texts = [MISSING if code < 0 else str(attribute.values[code]) for code in used]
    yield [f"{attribute.name}={text}" for text in texts], (attribute.codes[:, None] == used).astype(np.float64)


def _scale(values: NDArray[np.float64]) -> NDArray[np.float64]:
    centred = values - values.mean(axis=0)
    deviation = np.sqrt((centred**2).mean(axis=0).sum())
    # Rounding errors of a constant are no difference.
    negligible = deviation <= 1e-12 * np.abs(values).max()
    scaled: NDArray[np.float64] = np.zeros_like(centred) if negligible else centred / deviation
    return scaled
