"""Predicted and true classes, as numbers or texts, and probabilities of classes."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.checks import UNKNOWN
from cfe_faiss.data.classes import Predictions, as_predictions, note_classes, true_classes
from cfe_faiss.data.columns import Table
from cfe_faiss.data.roles import Ids, Source

_ROUNDING = 0.01
_Probabilities: TypeAlias = tuple[tuple[str, ...], NDArray[np.float64]]
"""Names of C classes, and the probability of each class for n nodes, (n, C)."""


@dataclass(frozen=True)
class Classes:
    """Classes of n nodes.

    Attributes
    ----------
    names
        Name of each class as the files write it: in the order of the columns of probabilities, or ascending, classes
        that are never predicted last.
    predicted
        Predicted class of each node, (n,) int32, a position in ``names``, -1 if unknown; probabilities, (n, C)
        float64; or None.
    y
        True class of each node, (n,) int64, a position in ``names``, -1 if unknown; or None.
    """

    names: tuple[str, ...]
    predicted: NDArray[Any] | None
    y: NDArray[np.int64] | None

    @property
    def labels(self) -> NDArray[np.int32]:
        """Predicted classes, (n,)."""
        assert self.predicted is not None
        return labels_of(self.predicted)


def labels_of(predicted: NDArray[Any]) -> NDArray[np.int32]:
    """Return predicted classes, (n,), from classes or probabilities; of equal probabilities the first class."""
    return (predicted if predicted.ndim == 1 else predicted.argmax(axis=1)).astype(np.int32)


def read_classes(
    predictions: Source | None,
    truth: Source | None,
    ids: Ids,
    unknown: Collection[str] | None = None,
    decisions: Predictions | None = None,
) -> Classes:
    """Read predictions and true classes, and give both one numbering.

    A file holds one class for each node, an integer or a text, or (predictions) a column of probabilities for each
    class, named by it. The source names the column if there are several. Nodes are found by the column of the ids; all
    of them must have a row in the predictions. In a file without a header, row i is node i. Classes are unknown where
    they are missing, blank, one of ``unknown`` or by default -1, see :func:`cfe_faiss.data.classes.known_classes`.
    ``decisions`` are in place of predictions.

    Raises
    ------
    OSError
        If a file cannot be read.
    ValueError
        If a file has another content, or true classes are partly those of columns of probabilities.
    """
    found = decisions or Predictions(np.full(len(ids), UNKNOWN, np.int32), None, ())
    is_named = False
    if predictions is not None:
        values = _read(predictions, ids, complete=True)
        is_named = isinstance(values, tuple)
        found = _predictions(values, len(ids), None, str(predictions.path), are_names=True, unknown=unknown)
    names, y = found.class_names, None
    if truth is not None:
        given, path = _read(truth, ids), str(truth.path)
        if isinstance(given, tuple):
            raise ValueError(f"{path} must hold one class for each node, got columns {', '.join(given[0])}")
        options: dict[str, Any] = {"are_names": True, "is_named": is_named, "unknown": unknown}
        y, names = true_classes(path, given, found.labels, names, **options)
    predicted = found.labels if found.scores is None else found.scores
    is_unknown = predictions is None and decisions is None
    if not is_unknown:
        note_classes(found.labels, y, names)
    return Classes(names or (), None if is_unknown else predicted, None if y is None else y.astype(np.int64))


def read_labels(
    source: Source, n: int | None = None, names: Sequence[str] = (), unknown: Collection[str] | None = None
) -> tuple[NDArray[np.int32], list[str]]:
    """Read the class of each node if nodes, and maybe classes, have numbers.

    Parameters
    ----------
    source, unknown
        As in :func:`read_classes`; row i is node i.
    n
        Number of nodes; default: the number of rows.
    names
        Names of the classes, if they are known.

    Returns
    -------
    labels
        (n,): integers unchanged, -1 where unknown; positions of texts in ``names`` or, without names, among all texts
        in ascending order. Of probabilities, the class with the largest.
    names
        Names of the classes; empty if they are numbers only.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it has another content, or a text is not among ``names``.
    """
    values = _read(source, None if n is None else Ids.of_rows(n))
    count = len(values[1] if isinstance(values, tuple) else values)
    found = _predictions(values, count, names or None, str(source.path), unknown=unknown)
    note_classes(found.labels, None, names)
    return found.labels, list(found.class_names or ())


def _predictions(
    values: list[Any] | _Probabilities,
    n: int,
    names: Sequence[str] | None,
    path: str,
    *,
    unknown: Collection[str] | None,
    are_names: bool = False,
) -> Predictions:
    if not isinstance(values, tuple):
        return as_predictions(values, n, names, path, are_names=are_names, unknown=unknown, complete=False)
    columns, shares = values
    labels = labels_of(shares)
    if names is not None:
        return as_predictions([columns[label] for label in labels], n, names, path)
    are_numbers = not are_names and list(columns) == [str(label) for label in range(len(columns))]
    return Predictions(labels, shares, None if are_numbers else columns)


def _read(source: Source, ids: Ids | None, *, complete: bool = False) -> list[Any] | _Probabilities:
    table, names = source.read(None if ids is None else ids.column)
    ids = Ids.of_rows(len(table)) if ids is None else ids
    if not names:
        raise ValueError(f"{source.path} must hold a column of classes, got {ids.column} only")
    if len(names) > 1:
        return _probabilities(table, names, ids)
    aligned = np.full(len(ids), None, object)
    aligned[ids.all_rows(table) if complete else ids.rows(table)] = _values(table, names[0])
    return aligned.tolist()


def _values(table: Table, name: str) -> list[Any]:
    """Return classes as texts, or as integers if all are whole numbers, however they are written ("1", "1.0")."""
    texts = table.texts(name)
    numbers = table.numbers(name, strict=False)
    if numbers is None:
        return list(texts)
    table.check(
        np.isinf(numbers) | (~np.isnan(numbers) & (numbers != np.floor(numbers))),
        lambda row: (
            f"{name} must be a class, an integer or a text, got {numbers[row]:g} "
            "(probabilities need a column for each class)"
        ),
    )
    missing = np.isnan(numbers)
    return [None if missing[row] else _whole(text, numbers[row]) for row, text in enumerate(texts)]


def _whole(text: str, number: float) -> int:
    try:
        return int(text)  # exact: a float holds 53 bits
    except ValueError:
        return int(number)


def _probabilities(table: Table, names: tuple[str, ...], ids: Ids) -> _Probabilities:
    parsed = [table.numbers(name, strict=False) for name in names]
    texts = [name for name, column in zip(names, parsed, strict=True) if column is None]
    if texts:
        raise ValueError(
            f"{table.name} has several columns ({', '.join(names[:20])}): name that of the classes, as in "
            f"{table.name}:{texts[0]}, or those of the probabilities"
        )
    values = np.column_stack([column for column in parsed if column is not None])
    table.check(
        ~((values >= 0) & (values <= 1)).all(axis=1) | ~(np.abs(values.sum(axis=1) - 1) <= _ROUNDING),
        lambda row: (
            "probabilities must lie in [0, 1] and sum to 1, got "
            + ", ".join(f"{name} {value:g}" for name, value in zip(names[:8], values[row], strict=False))
            + f" (for classes in one column: {table.name}:COLUMN)"
        ),
    )
    ordered = np.empty_like(values)
    ordered[ids.all_rows(table)] = values
    return names, ordered
