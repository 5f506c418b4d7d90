"""A table and a model as fields of a finder: vectors, classes, ids and attributes."""

import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cfe_faiss.attributes.columns import PROXY, Proxy, Removed, are_copies, association
from cfe_faiss.attributes.table import Attributes, as_attributes
from cfe_faiss.base.arrays import Array, Doubles
from cfe_faiss.base.checks import InputWarning, check_distinct, check_known
from cfe_faiss.base.extras import extra
from cfe_faiss.base.values import as_row_ids
from cfe_faiss.data.classes import Predictions, Threshold, as_predictions, note_classes, true_classes
from cfe_faiss.data.encode import encode_table
from cfe_faiss.data.predict import columns_of, is_model, predictions_of_table
from cfe_faiss.datasets.own.table import as_numbers, read_table
from cfe_faiss.finder.inputs import probabilities_of
from cfe_faiss.finder.suspicious import check_table
from cfe_faiss.rows.metric import as_rows

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Roles:
    """Arguments of :meth:`cfe_faiss.EvidenceFinder.from_table` that give columns a role, and the class names."""

    id: Any
    truth: Any
    sensitive: tuple[str, ...]
    without: tuple[str, ...]
    probabilities: Any
    class_names: Sequence[str] | None
    unknown: Collection[Any] | None = None


def table_fields(
    frame: Any, model: Any, roles: Roles, encoder: Any, scale: Mapping[str, float] | None
) -> dict[str, Any]:
    """Return fields of a finder, made from a table; see :meth:`cfe_faiss.EvidenceFinder.from_table` for errors."""
    table, index = as_frame(frame, roles.id)
    for argument in ("model", "id", "truth", "probabilities"):
        _check_index(argument, model if argument == "model" else getattr(roles, argument), frame)
    for argument, name in (("id", roles.id), ("truth", roles.truth), ("model", model)):
        if isinstance(name, str):
            check_column(argument, name, table)
    used = [name for name in (roles.id, roles.truth, model) if isinstance(name, str)]
    used += _column_names(roles.probabilities)
    known = [name for name in table.columns if name not in used]
    if not known:
        raise ValueError(f"frame must have columns beside id, truth and predictions, got {', '.join(table.columns)}")
    attributes = as_attributes(table[known], "frame")
    sensitive = tuple(attributes.known("sensitive", name) for name in roles.sensitive)
    removed = _find_removed(attributes, [*sensitive, *(attributes.known("without", name) for name in roles.without)])
    left_out = removed.columns if removed else ()
    ids = index if roles.id is None else as_row_ids("id", _column(table, roles.id), len(table))
    is_called = is_model(model)
    asked = columns_of(model, list(table.columns)) if is_called else None
    read = [name for name in asked or () if name in used]
    if read:
        text = f"model reads {', '.join(map(repr, read))}, which id, truth or probabilities name: fit it without"
        warnings.warn(text, InputWarning, stacklevel=3)
    data = table[known if asked is None else asked]
    predicted = _predict(model, data, table, roles)
    labels, names = predicted.labels, predicted.class_names
    truth = None
    if roles.truth is not None:
        options: dict[str, Any] = {"are_names": True, "is_named": roles.class_names is not None}
        given = _column(table, roles.truth)
        truth, names = true_classes("truth", given, labels, names, unknown=roles.unknown, **options)
    note_classes(labels, truth, names)
    names, shares = names or (), probabilities_of(predicted)
    compared = [name for name in known if name not in left_out]
    encoded = encode_table(attributes.select(compared), table[compared], encoder, scale, left_out)
    vectors = as_rows("the encoded columns of frame", encoded, None, "l2")
    check_table(attributes, labels, truth, names, sensitive=sensitive, left_out=left_out, called=is_called)
    if shares is not None:  # classes that are never predicted have no probability
        shares = np.pad(shares, ((0, 0), (0, len(names) - shares.shape[1])))
    return {
        "vectors": vectors,
        "labels": labels,
        "attributes": attributes,
        "truth": truth,
        "class_names": names,
        "removed": removed,
        "ids": ids,
        "probabilities": shares,
        "model": model if is_called else None,
        "data": data,
        "sensitive": sensitive,
        "scale": None if encoder is not None else dict(scale or {}),
    }


def as_frame(frame: Any, id_column: Any = None) -> "tuple[pd.DataFrame, Array | None]":
    """Return a table with rows 0..n-1 and texts as column names, and the index of a pandas frame if it holds ids.

    Ids in a file stay as written: "007" is no number.

    Raises
    ------
    TypeError, ValueError
        If it is no table, has no rows, or two columns have one name.
    """
    with extra("audit"):
        import pandas as pd

    kind = type(frame).__module__.partition(".")[0]
    index = None
    if isinstance(frame, str | Path):
        read = read_table(Path(frame))
        table = pd.DataFrame({name: _plain(column, name == id_column) for name, column in read.columns.items()})
    elif isinstance(frame, Attributes):
        table = frame.to_frame().reset_index(drop=True)
    elif isinstance(frame, pd.DataFrame):
        table = frame.reset_index(drop=True)
        if not isinstance(frame.index, pd.RangeIndex) and frame.index.is_unique:
            index = as_row_ids("the index of frame", frame.index, len(frame))
    elif kind in ("polars", "pyarrow") and hasattr(frame, "to_pandas"):
        table = frame.to_pandas()
    else:
        raise TypeError(
            f"frame must be a table of pandas, polars or PyArrow, or the path of one, got {type(frame).__name__}"
        )
    table.columns = [str(name) for name in table.columns]
    check_distinct("frame must have distinct column names", list(table.columns))
    if not len(table):
        raise ValueError("frame must have rows, got none")
    return table, index


def _check_index(argument: str, values: Any, frame: Any) -> None:
    """Raise ValueError if the pandas index of values says that their rows are in another order than in frame."""
    import pandas as pd

    if isinstance(values, pd.Series | pd.DataFrame):
        index = frame.index if isinstance(frame, pd.DataFrame) else pd.RangeIndex(len(values))
        if not values.index.equals(index) and values.index.isin(index).any():
            raise ValueError(f"{argument} must have the pandas index of frame: sort the rows alike, or pass arrays")


def split_scores(frame: Any, name: str, id_column: Any) -> tuple[Any, Array, Array | None]:
    """Return a table without its column of scores, the scores, and the ids in its index, or None."""
    table, index = as_frame(frame, id_column)
    check_column("scores", name, table)
    return table.drop(columns=[name]), table[name].to_numpy(), index


def split_threshold(frame: Any, text: str, id_column: Any) -> tuple[Any, Array, tuple[str, str], Array | None]:
    """Return a table without the column of a threshold, the decisions and their names, and the ids in its index."""
    table, index = as_frame(frame, id_column)
    threshold = Threshold.parse(text, list(table.columns))
    try:
        scores = table[threshold.column].to_numpy(np.float64, na_value=np.nan)
    except (TypeError, ValueError):
        raise ValueError(f"threshold must be of a column of numbers, got {threshold.column!r}") from None
    return table.drop(columns=[threshold.column]), threshold.classes(scores), threshold.names, index


def _plain(column: Any, are_ids: bool) -> Any:
    """Return a column of a file as integers, floats or truth values if it holds such, as pandas does, else as texts."""
    numbers = as_numbers(column)
    if are_ids and isinstance(column, list) and numbers is not None and [f"{x:.0f}" for x in numbers] != column:
        numbers = None
    if numbers is not None:
        return numbers.astype(np.int64) if np.isfinite(numbers).all() and (numbers % 1 == 0).all() else numbers
    if any(column) and {text.lower() for text in column} <= {"true", "false", ""}:
        return np.array([text.lower() == "true" if text else None for text in column])
    return np.array([text or None for text in column], object)


def check_column(argument: str, name: Any, table: "pd.DataFrame") -> str:
    """Return the name of a column; ValueError if there is none of this name."""
    check_known(f"{argument} must name a column of frame", name, list(table.columns))
    return str(name)


def _column(table: "pd.DataFrame", given: Any) -> Any:
    values = table[given] if isinstance(given, str) else given
    return values.reset_index(drop=True) if hasattr(values, "reset_index") else values


def _column_names(given: Any) -> list[str]:
    several = isinstance(given, list | tuple) and all(isinstance(name, str) for name in given)
    return [given] if isinstance(given, str) else list(given) if several else []


def _predict(model: Any, data: "pd.DataFrame", table: "pd.DataFrame", roles: Roles) -> Predictions:
    """Return the predicted class of every row, and probabilities if they are known."""
    if is_model(model):
        found = predictions_of_table(model, data, roles.class_names)
    else:
        options: dict[str, Any] = {"are_names": True, "unknown": roles.unknown, "complete": False}
        values = _column(table, model)
        found = as_predictions(values, len(table), roles.class_names, "model (the predictions)", **options)
    given, known = roles.probabilities, found.class_names or ()
    if given is None:
        return found
    columns = [check_column("probabilities", name, table) for name in _column_names(given)]
    columns = list(known) if set(columns) == set(known) else columns
    return replace(found, scores=_as_probabilities(table[columns] if columns else given, len(table), known))


def _find_removed(attributes: Attributes, given: Iterable[str]) -> Removed | None:
    """Return the columns left out of the vectors, the given ones and their copies; None without names."""
    names = tuple(dict.fromkeys(given))
    if not names:
        return None
    others = [name for name in attributes if name not in names]
    pairs = [(other, name) for name in names for other in others]
    copies = tuple(Proxy(*pair, 1.0) for pair in pairs if are_copies(*(attributes[name] for name in pair)))
    left_out = tuple(dict.fromkeys([*names, *(copy.column for copy in copies)]))
    strengths = [
        Proxy(other, name, association(attributes[name], attributes[other]))
        for other, name in pairs
        if other not in left_out
    ]
    found = sorted(strengths, key=lambda proxy: -proxy.strength)
    return Removed(names, left_out, copies, tuple(proxy for proxy in found if proxy.strength >= PROXY))


def _as_probabilities(values: Any, n: int, names: tuple[str, ...]) -> Doubles:
    array = np.asarray(values, np.float64).reshape(n, -1) if np.size(values) % n == 0 else np.empty((0, 0))
    if array.shape[1] == 1 and len(names) == 2:
        array = np.column_stack([1 - array, array])
    wrong = array.shape != (n, len(names)) or not ((array >= 0) & (array <= 1)).all()
    if wrong or np.abs(array.sum(axis=1) - 1).max() > 1e-3:
        raise ValueError(
            f"probabilities must have a column for each class ({', '.join(names[:20])}), or of two classes one for "
            f"{names[-1]!r}, in [0, 1] and with rows of sum 1, got shape {np.shape(values)}"
        )
    return array
