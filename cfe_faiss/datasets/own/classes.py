"""Predicted and true classes, as numbers or texts, and probabilities of classes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.checks import UNKNOWN
from cfe_faiss.datasets.own.ids import Ids, aligned
from cfe_faiss.datasets.own.table import Column, Source, Table, as_numbers, as_texts, read_table

_ROUNDING = 0.01


@dataclass(frozen=True)
class Classes:
    """Classes of n nodes.

    Attributes
    ----------
    names
        Name of each class, as the files write it: in the order of the columns of probabilities, or ascending, those
        that are never predicted last.
    predicted
        Predicted class of each node, (n,) int32, a position in ``names``; probabilities, (n, C) float64; or None.
    y
        True class of each node, (n,) int64, a position in ``names``, -1 where not known; or None.
    """

    names: tuple[str, ...]
    predicted: NDArray[np.int32] | NDArray[np.float64] | None
    y: NDArray[np.int64] | None

    @property
    def labels(self) -> NDArray[np.int32]:
        """Predicted classes, (n,); of equal probabilities the first class."""
        assert self.predicted is not None
        classes = self.predicted if self.predicted.ndim == 1 else self.predicted.argmax(axis=1)
        return classes.astype(np.int32)


@dataclass(frozen=True)
class _Probabilities:
    names: tuple[str, ...]
    values: NDArray[np.float64]


def read_classes(predictions: Source | None, truth: Source | None, ids: Ids) -> Classes:
    """Read predictions and true classes, and give both one numbering.

    A file holds one class for each node, an integer or a text, or (predictions) a column of probabilities for each
    class, named by it; which column, where it has others, says the source. Rows belong to nodes by the column of the
    ids. In a file without a header, row i is node i, and a true class of -1 is not known.

    Raises
    ------
    OSError
        If a file cannot be read.
    ValueError
        If a file does not hold that, a node has no predicted class, or a true class has no column of probabilities.
    """
    predicted = None if predictions is None else _read(predictions, ids)
    if isinstance(predicted, list) and "" in predicted:
        missing, node = predicted.count(""), ids.names[predicted.index("")]
        assert predictions is not None
        raise ValueError(
            f"{predictions.path} must hold a class for every node, got none for {missing:,}, such as {str(node)!r}"
        )
    true = None if truth is None else _read(truth, ids, unknown=True)
    if isinstance(true, _Probabilities):
        assert truth is not None
        raise ValueError(f"{truth.path} must hold one class for each node, got columns {', '.join(true.names)}")
    if isinstance(predicted, _Probabilities):
        names = predicted.names
        strange = sorted(set(true or ()) - {*names, ""})
        if strange:
            assert truth is not None
            raise ValueError(
                f"{truth.path} must hold classes that are predicted ({', '.join(names)}), got {strange[0]!r}"
            )
        return Classes(names, predicted.values, _codes(true, names))
    # Those of the predictions come first, so that their numbers do not depend on what else is known.
    own = ordered_names(set(predicted or ()))
    names = own + ordered_names(set(true or ()) - {*own, ""})
    codes = _codes(predicted, names)
    return Classes(names, None if codes is None else codes.astype(np.int32), _codes(true, names))


def _codes(texts: list[str] | None, names: tuple[str, ...]) -> NDArray[np.int64] | None:
    if texts is None:
        return None
    places = {name: place for place, name in enumerate(names)} | {"": UNKNOWN}
    return np.array([places[text] for text in texts], np.int64)


def ordered_names(names: set[str]) -> tuple[str, ...]:
    """Return class names in ascending order, as numbers where all of them are whole numbers."""
    try:
        return tuple(sorted(names, key=int))
    except ValueError:
        return tuple(sorted(names))


def _read(source: Source, ids: Ids, *, unknown: bool = False) -> list[str] | _Probabilities:
    table = read_array(source) or read_table(source.path)
    names = source.columns or tuple(name for name in table.columns if not table.has_header or name != ids.column)
    columns = [table.column(name) for name in names]
    if not columns:
        raise ValueError(f"{source.path} must hold a column of classes, got {ids.column} only")
    if len(columns) > 1:
        return _probabilities(table, names, columns, ids)
    texts = _class_texts(table, names[0], columns[0])
    if unknown and not table.has_header:
        texts = ["" if text == "-1" else text for text in texts]
    return aligned(ids, table, texts)


def read_array(source: Source) -> Table | None:
    """Return what a .npy file holds as a table without a header, (n,) or (n, c); None for another file.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it is no such array, or columns are named.
    """
    path = source.path
    if path.suffix != ".npy":
        return None
    if source.columns:
        raise ValueError(f"{path} has no columns with names, got {', '.join(source.columns)}")
    try:
        array = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path} must be a NumPy array of numbers or texts: {error}") from error
    matrix = array[:, None] if array.ndim == 1 else array
    if matrix.ndim != 2 or not matrix.size:
        raise ValueError(f"{path} must have shape (n,) or (n, C), got {array.shape}")
    if matrix.dtype.kind not in "biufU":
        raise ValueError(f"{path} must be a NumPy array of numbers or texts, got dtype {array.dtype}")
    plain = matrix.astype(np.float64) if matrix.dtype.kind == "f" else matrix
    columns = {
        str(c): plain[:, c] if plain.dtype.kind in "iuf" else [str(v) for v in plain[:, c]]
        for c in range(plain.shape[1])
    }
    return Table(path, columns, False, None)


def _class_texts(table: Table, name: str, column: Column) -> list[str]:
    """Return classes as texts; whole numbers in one way, however they are written ("1", "1.0")."""
    numbers = as_numbers(column)
    if numbers is None:
        return as_texts(column)
    given = ~np.isnan(numbers)
    fractions = given & (numbers != np.floor(numbers))
    if fractions.any():
        row = int(np.argmax(fractions))
        raise ValueError(
            f"{table.path}, {table.place(row)}: {name} must be a class, an integer or a text, got {numbers[row]:g} "
            "(probabilities need a column for each class)"
        )
    return ["" if np.isnan(value) else str(int(value)) for value in numbers.tolist()]


def _probabilities(table: Table, names: tuple[str, ...], columns: list[Column], ids: Ids) -> _Probabilities:
    parsed = [as_numbers(column) for column in columns]
    texts = [name for name, column in zip(names, parsed, strict=True) if column is None]
    if texts:
        raise ValueError(
            f"{table.path} has several columns ({', '.join(names[:20])}): name that of the classes, as in "
            f"{table.path}:{texts[0]}, or those of the probabilities"
        )
    values = np.column_stack([column for column in parsed if column is not None])
    wrong = ~((values >= 0) & (values <= 1)).all(axis=1) | ~(np.abs(values.sum(axis=1) - 1) <= _ROUNDING)
    if wrong.any():
        row = int(np.argmax(wrong))
        some = ", ".join(f"{name} {value:g}" for name, value in zip(names[:8], values[row], strict=False))
        raise ValueError(
            f"{table.path}, {table.place(row)}: probabilities must lie in [0, 1] and sum to 1, got {some} "
            f"(for classes in one column: {table.path}:COLUMN)"
        )
    rows = ids.rows(table)
    ids.expect_all(table, rows)
    ordered = np.empty_like(values)
    ordered[rows] = values
    return _Probabilities(names, ordered)


def read_labels(source: Source, n: int | None = None, names: Sequence[str] = ()) -> tuple[NDArray[np.int64], list[str]]:
    """Read the class of each node where nodes and classes may have numbers already.

    Parameters
    ----------
    source
        As in :func:`read_classes`; row i is node i.
    n
        The number of nodes; by default that of the rows.
    names
        The names of the classes, where they are known.

    Returns
    -------
    labels
        (n,): integers as they are, -1 where nothing is given; positions of texts in ``names`` or, where there are none,
        among all texts in ascending order. Of probabilities, the class with the largest.
    names
        Those of the classes; empty where they are numbers only.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it does not hold that, or a text is not among ``names``.
    """
    table = read_array(source) or read_table(source.path)
    found = _read(source, Ids.of_rows(len(table) if n is None else n))
    if isinstance(found, _Probabilities):
        own = [] if _are_integers(found.names) else list(found.names)
        labels = found.values.argmax(axis=1)
        if not own or not names:
            return labels.astype(np.int64), list(names) or own
        found = [own[label] for label in labels]
    if _are_integers(found):
        return np.array([int(text or UNKNOWN) for text in found], np.int64), list(names)
    strange = sorted(set(found) - {*names, ""})
    if names and strange:
        raise ValueError(f"{source.path} must hold the classes {', '.join(names[:20])}, got {strange[0]!r}")
    known = tuple(names) or ordered_names(set(found) - {""})
    codes = _codes(found, known)
    assert codes is not None
    return codes, list(known)


def _are_integers(texts: Iterable[str]) -> bool:
    try:
        return all(-(2**62) < int(text or 0) < 2**62 for text in texts)
    except ValueError:
        return False
