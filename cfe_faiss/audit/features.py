"""Features in which two nodes differ, in the units of the features, and names for readers."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.attributes.table import feature_names
from cfe_faiss.base.checks import as_count, as_matrix
from cfe_faiss.data import classes


@dataclass(frozen=True)
class FeatureDifference:
    """One feature of two nodes.

    Parameters
    ----------
    name
        Name of the feature.
    source, target
        Its values, unscaled.
    difference
        (target - source) / standard deviation of the feature over all nodes.
    """

    name: str
    source: float
    target: float
    difference: float


def differing_features(
    data: Any, source: int, target: int, count: int | None = None
) -> list[FeatureDifference]:
    """Return the features in which two nodes differ, the largest difference first.

    Differences are compared in standard deviations of the feature over all nodes; equal ones keep
    the features' order.

    Parameters
    ----------
    data
        PyG ``Data`` or any object with ``x`` of shape (n, d); with ``x_raw``, (n, d), the values
        are read from there; with ``feature_names``, d names, these name the features.
    source, target
        Nodes, 0..n-1.
    count
        Largest number of features to return; default: all that differ.

    Returns
    -------
    list of FeatureDifference
        Empty for two nodes with the same features. O(n) time for each feature that differs.

    Raises
    ------
    TypeError
        If the features are not numbers, or a node or ``count`` is not an integer.
    ValueError
        If the shapes do not fit, a feature is NaN or infinite, a node is out of range, or ``count``
        < 1.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> data = SimpleNamespace(x=[[20, 1], [40, 1], [60, 0]], feature_names=["age", "employed"])
    >>> [row.name for row in differing_features(data, 0, 1)]
    ['age']
    >>> differing_features(data, 1, 2, count=1)
    [FeatureDifference(name='employed', source=1.0, target=0.0, difference=-2.1213203435596424)]
    """
    values = feature_matrix(data)
    names = feature_names(data, values.shape[1])
    source = as_node("source", source, len(values))
    target = as_node("target", target, len(values))
    limit = None if count is None else as_count("count", count)
    change = values[target].astype(np.float64) - values[source]
    columns = np.flatnonzero(change)
    change = change[columns]
    # column by column, so that a large matrix is never copied to float64
    change /= np.array([values[:, column].std(dtype=np.float64) for column in columns])
    order = np.argsort(-np.abs(change), kind="stable")[:limit]
    return [
        FeatureDifference(names[c], float(values[source, c]), float(values[target, c]), float(z))
        for c, z in zip(columns[order], change[order], strict=True)
    ]


def feature_matrix(data: Any) -> NDArray[np.float32]:
    """Return the unscaled features, (n, d), float32: ``data.x_raw``, or ``data.x`` without it.

    Raises
    ------
    TypeError
        If they are not numbers.
    ValueError
        If they are not a matrix or not finite.
    """
    raw = getattr(data, "x_raw", None)
    return as_matrix("data.x", data.x) if raw is None else as_matrix("data.x_raw", raw)


def class_name(data: Any, label: int) -> str:
    """Return ``data.class_names[label]``, or "class <label>" where it has none for it.

    Examples
    --------
    >>> class_name(None, 3)
    'class 3'
    """
    return str(classes.class_name(getattr(data, "class_names", None), label))


def node_name(data: Any, node: int) -> str:
    """Return ``data.node_ids[node]``, or the node's number where its user has given no ids.

    Examples
    --------
    >>> node_name(None, 3)
    '3'
    """
    ids = getattr(data, "node_ids", None)
    return str(node if ids is None else ids[node])


def format_value(value: float) -> str:
    """Return a feature's value for a reader: whole numbers in full, others to four digits.

    Examples
    --------
    >>> format_value(12500.0), format_value(0.30710003), format_value(1001.25)
    ('12,500', '0.3071', '1,001')
    """
    whole = value == round(value) or abs(value) >= 1e3
    return f"{value:,.0f}" if whole and abs(value) < 1e9 else f"{value:,.4g}"


def as_node(name: str, value: Any, n: int) -> int:
    """Return ``value`` as the number of one of n nodes.

    Raises
    ------
    TypeError
        If it is not an integer.
    ValueError
        If it is not in 0..n-1.
    """
    node = as_count(name, value, 0)
    if node >= n:
        raise ValueError(f"{name} must lie in 0..{n - 1}, got {node}")
    return node
