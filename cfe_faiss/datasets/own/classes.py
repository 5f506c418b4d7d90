"""Predicted and true classes, as numbers or texts, and probabilities of classes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.checks import UNKNOWN, check_known
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
        Predicted class of each node, (n,) int32, a position in ``names``; probabilities, (n, C) float64; or None.
    y
        True class of each node, (n,) int64, a position in ``names``, -1 if unknown; or None.
    """

    names: tuple[str, ...]
    predicted: NDArray[np.int32] | NDArray[np.float64] | None
    y: NDArray[np.int64] | None

    @property
    def labels(self) -> NDArray[np.int32]:
        """Predicted classes, (n,)."""
        assert self.predicted is not None
        return labels_of(self.predicted)


def labels_of(predicted: NDArray[Any]) -> NDArray[np.int32]:
    """Return predicted classes, (n,), from classes or probabilities; of equal probabilities the first class."""
    return (predicted if predicted.ndim == 1 else predicted.argmax(axis=1)).astype(np.int32)


def read_classes(predictions: Source | None, truth: Source | None, ids: Ids) -> Classes:
    """Read predictions and true classes, and give both one numbering.

    A file holds one class for each node, an integer or a text, or (predictions) a column of probabilities for each
    class, named by it. The source names the column if there are several. Nodes are found by the column of the ids. In a
    file without a header, row i is node i, and a true class of -1 is unknown.

    Raises
    ------
    OSError
        If a file cannot be read.
    ValueError
        If a file has another content, a node has no predicted class, or a true class has no column of probabilities.
    """
    predicted = None if predictions is None else _read(predictions, ids)
    true, origin = None if truth is None else _read(truth, ids, unknown=True), truth and truth.path
    if isinstance(predicted, list) and "" in predicted:
        missing, node = predicted.count(""), ids.names[predicted.index("")]
        raise ValueError(
            f"{predictions and predictions.path} must hold a class for every node, got none for {missing:,}, "
            f"such as {str(node)!r}"
        )
    if isinstance(true, tuple):
        raise ValueError(f"{origin} must hold one class for each node, got columns {', '.join(true[0])}")
    given = set(true or ()) - {""}
    if isinstance(predicted, tuple):
        names, shares = predicted
        for text in sorted(given):
            check_known(f"{origin} must hold classes that are predicted", text, names)
        return Classes(names, shares, None if true is None else _codes(true, names))
    # Predicted classes come first, so that their numbers do not depend on the true ones.
    first = sort_names(set(predicted or ()))
    names = first + sort_names(given - {*first})
    labels = None if predicted is None else _codes(predicted, names).astype(np.int32)
    return Classes(names, labels, None if true is None else _codes(true, names))


def _codes(texts: Iterable[str], names: Sequence[str]) -> NDArray[np.int64]:
    places = {name: place for place, name in enumerate(names)} | {"": UNKNOWN}
    return np.array([places[text] for text in texts], np.int64)


def sort_names(names: set[str]) -> tuple[str, ...]:
    """Return class names in ascending order, as numbers if all of them are whole numbers."""
    try:
        return tuple(sorted(names, key=int))
    except ValueError:
        return tuple(sorted(names))


def _read(source: Source, ids: Ids | None, *, unknown: bool = False) -> list[str] | _Probabilities:
    table, names = source.read(None if ids is None else ids.column)
    ids = Ids.of_rows(len(table)) if ids is None else ids
    if not names:
        raise ValueError(f"{source.path} must hold a column of classes, got {ids.column} only")
    if len(names) > 1:
        return _probabilities(table, names, ids)
    texts = _class_texts(table, names[0])
    if unknown and not table.has_header:
        texts = ["" if text == "-1" else text for text in texts]
    return ids.align(table, texts)


def _class_texts(table: Table, name: str) -> list[str]:
    """Return classes as texts; whole numbers in one form, however they are written ("1", "1.0")."""
    texts = table.texts(name)
    numbers = table.numbers(name, strict=False)
    if numbers is None:
        return texts
    table.check(
        np.isinf(numbers) | (~np.isnan(numbers) & (numbers != np.floor(numbers))),
        lambda row: (
            f"{name} must be a class, an integer or a text, got {numbers[row]:g} "
            "(probabilities need a column for each class)"
        ),
    )
    return ["" if missing else _whole_number(text) for missing, text in zip(np.isnan(numbers), texts, strict=True)]


def _whole_number(text: str) -> str:
    try:
        return str(int(text))  # exact: a float holds 53 bits
    except ValueError:
        return str(int(float(text)))


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


def read_labels(source: Source, n: int | None = None, names: Sequence[str] = ()) -> tuple[NDArray[np.int64], list[str]]:
    """Read the class of each node if nodes, and maybe classes, have numbers.

    Parameters
    ----------
    source
        As in :func:`read_classes`; row i is node i.
    n
        Number of nodes; default: the number of rows.
    names
        Names of the classes, if they are known.

    Returns
    -------
    labels
        (n,): integers unchanged, -1 where missing; positions of texts in ``names`` or, without names, among all texts
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
    found = _read(source, None if n is None else Ids.of_rows(n))
    if isinstance(found, tuple):
        columns, labels = found[0], found[1].argmax(axis=1)
        if _are_integers(columns) or not names:
            return labels.astype(np.int64), list(names) or ([] if _are_integers(columns) else list(columns))
        found = [columns[label] for label in labels]
    if _are_integers(found):
        return np.array([int(text or UNKNOWN) for text in found], np.int64), list(names)
    known = tuple(names) or sort_names(set(found) - {""})
    for text in sorted(set(found) - {""}):
        check_known(f"{source.path} must hold the classes", text, known)
    return _codes(found, known), list(known)


def _are_integers(texts: Iterable[str]) -> bool:
    try:
        return all(-(2**62) < int(text or 0) < 2**62 for text in texts)
    except ValueError:
        return False
