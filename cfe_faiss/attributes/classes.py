"""Predicted classes from numbers, texts, probabilities or logits, in arrays or frames."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.checks import as_array, as_labels, check_distinct
from cfe_faiss.base.values import as_classes, as_ids

TRUTH_VALUES = "False", "True"
"""Names of the classes of boolean predictions, whose numbers are 0 and 1."""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Predictions:
    """Predictions of a model for n nodes.

    Attributes
    ----------
    labels
        The class of each node, (n,) int32.
    scores
        Probabilities or logits, (n, C), column c for class c; None if only classes are known.
    class_names
        Name of each class; None if classes have numbers only.
    """

    labels: NDArray[np.int32]
    scores: NDArray[Any] | None
    class_names: tuple[str, ...] | None

    def __repr__(self) -> str:
        scores = "no scores" if self.scores is None else f"scores {self.scores.shape}"
        count = len(np.unique(self.labels))
        return f"Predictions({len(self.labels):,} nodes, {count} {'class' if count == 1 else 'classes'}, {scores})"


def class_names_of(data: Any) -> tuple[str, ...] | None:
    """Return ``data.class_names``, or None without names."""
    names = getattr(data, "class_names", None)
    return None if names is None or len(names) == 0 else tuple(map(str, names))


def node_count(data: Any) -> int:
    """Return the number of nodes with features, or without features of those with true classes."""
    rows = data.y if getattr(data, "x", None) is None else data.x
    return int(rows.shape[0]) if hasattr(rows, "shape") else len(rows)  # sparse matrices have no length


def check_names(predictions: Predictions, data: Any) -> None:
    """Raise ValueError if texts are predicted, and ``data.y`` holds numbers without class names."""
    names = predictions.class_names
    if names not in (None, TRUTH_VALUES) and class_names_of(data) is None and getattr(data, "y", None) is not None:
        some = ", ".join(names[:8])
        raise ValueError(f"data must have class_names, the text of each class of data.y: the model predicts {some}")


def as_predictions(
    values: Any, n: int, class_names: Sequence[str] | None = None, name: str = "predictions"
) -> Predictions:
    """Return predictions for n nodes in one form.

    Parameters
    ----------
    values
        One of

        - classes, (n,), of one kind: integers; texts, which are ``class_names`` (without these, the texts in
          ascending order become classes 0, 1, ...); or booleans, which are the texts "False" and "True", or with
          other ``class_names`` classes 0 and 1;
        - probabilities or logits, (n, C), C at least 2; the first of the largest values gives the class;
        - one logit for two classes, (n, 1): class 1 if it is positive, else class 0;

        as an array, a tensor, lists, or a column or DataFrame of pandas or polars. The index of a pandas object holds
        node ids 0..n-1, in any order. The columns of a DataFrame are classes: 0..C-1 or all of ``class_names``, in any
        order; without ``class_names``, other columns are classes 0, 1, ... in column order.
    n
        Number of nodes.
    class_names
        Names of the classes, if known.
    name
        Name of the argument in errors.

    Raises
    ------
    TypeError
        If the values have another type, floats of shape (n,) for example, or classes are of several kinds.
    ValueError
        If the shape is wrong, a value is missing or NaN, a class negative, or a text not a class name.

    Examples
    --------
    >>> as_predictions([[0.2, 0.8], [0.7, 0.3]], 2).labels
    array([1, 0], dtype=int32)
    >>> found = as_predictions(["no", "yes", "no"], 3)
    >>> found.labels, found.class_names
    (array([0, 1, 0], dtype=int32), ('no', 'yes'))
    """
    names = None if class_names is None else tuple(map(str, class_names))
    check_distinct("class_names must be distinct", names or ())
    array, columns = classes_or_scores(values, n, name)
    if array.shape == (n, 1) and array.dtype.kind == "f":
        if are_shares(array):
            raise ValueError(
                f"{name} must be logits where there is one column, got numbers in [0, 1] only: return the "
                f"probabilities of both classes, of shape ({n}, 2)"
            )
        array = as_two_logits(array)
    if array.shape != (n,) and (array.ndim != 2 or array.shape[0] != n or array.shape[1] < 2):
        raise ValueError(
            f"{name} must be logits or probabilities of shape ({n}, C) with C >= 2 or classes of shape ({n},), "
            f"got shape {array.shape}, dtype {array.dtype}"
        )
    if array.ndim == 1 and array.dtype.kind == "b" and set(TRUTH_VALUES) <= set(names or TRUTH_VALUES):
        return _of_texts(array.astype(str), names or TRUTH_VALUES, name)
    if array.ndim == 1 and array.dtype.kind != "O":
        return Predictions(as_labels(name, array, n), None, names)
    if array.ndim == 1:
        return _of_texts(array, names, name)
    if columns is not None:
        array = array[:, _order_of(columns, names, name)]
    if np.isnan(array).any():
        raise ValueError(f"{name} must not be NaN, got NaN for node {int(np.isnan(array).any(axis=1).argmax())}")
    return Predictions(array.argmax(axis=1).astype(np.int32), array, names)


def are_shares(scores: NDArray[Any]) -> bool:
    """Return whether all numbers lie in [0, 1], as probabilities do."""
    return bool(((scores >= 0) & (scores <= 1)).all())


def as_two_logits(scores: NDArray[Any]) -> NDArray[Any]:
    """Return the logits of two classes, (n, 2), whose difference is the one logit, (n, 1)."""
    return np.hstack([np.zeros_like(scores), scores])


def classes_or_scores(values: Any, n: int, name: str) -> tuple[NDArray[Any], list[Any] | None]:
    """Return classes of :func:`as_classes` or scores, row i for node i, and the column names if there are any."""
    kind = type(values).__module__.partition(".")[0]
    columns = list(values.columns) if kind in ("pandas", "polars") and hasattr(values, "columns") else None
    if kind == "pandas" and hasattr(values, "index"):
        values = values.iloc[_order(values.index.to_numpy(), n, name)]
    if columns is not None:
        if len(columns) > 1:
            return as_array(name, _as_floats(values, kind, name)), columns
        values = values[columns[0]]
    try:
        are_classes = np.ndim(values) == 1
    except ValueError:  # rows of different lengths
        are_classes = False
    if not are_classes:
        return as_array(name, values), None
    if isinstance(next(iter(values), None), bytes):
        values = [value.decode() if isinstance(value, bytes) else value for value in values]
    return as_classes(name, values), None


def _as_floats(frame: Any, kind: str, name: str) -> NDArray[np.float64]:
    try:
        floats: NDArray[np.float64] = (
            frame.to_numpy(dtype=np.float64, na_value=np.nan) if kind == "pandas" else frame.cast(float).to_numpy()
        )
    except Exception as error:  # the type depends on the library
        raise TypeError(f"{name} must be a frame of probabilities or logits: {error}") from error
    return floats


def _order(index: NDArray[Any], n: int, name: str) -> NDArray[np.int64]:
    """Return the row of each node, given the node of each row."""
    nodes = as_ids(f"the index of {name}", index)
    if len(nodes) != n or not np.array_equal(np.sort(nodes), np.arange(n)):
        raise ValueError(f"the index of {name} must hold the nodes 0..{n - 1}, each once, got {len(nodes)} rows")
    return np.argsort(nodes)


def _of_texts(array: NDArray[Any], names: tuple[str, ...] | None, name: str) -> Predictions:
    texts = array.tolist()
    known = tuple(sorted(set(texts))) if names is None else names
    codes = {text: code for code, text in reversed(list(enumerate(known)))}
    for node, text in enumerate(texts):
        if text not in codes:
            raise ValueError(f"{name} must be among the class names ({', '.join(known)}), got {text!r} for node {node}")
    return Predictions(np.array([codes[text] for text in texts], np.int32), None, known)


def _order_of(columns: list[Any], names: tuple[str, ...] | None, name: str) -> list[int]:
    """Return the column of each class."""
    texts = [str(column) for column in columns]
    numbers = [str(number) for number in range(len(texts))]
    classes = numbers if sorted(texts) == sorted(numbers) else texts if names is None else list(names)
    if sorted(texts) != sorted(classes):
        raise ValueError(f"{name} must have the class names as columns ({', '.join(classes)}), got {', '.join(texts)}")
    return [texts.index(text) for text in classes]
