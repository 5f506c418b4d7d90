"""A table and a model as fields of a finder: vectors, classes, ids and attributes."""

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from cfe_faiss.attributes.columns import PROXY, Proxy, Removed, are_copies, association
from cfe_faiss.attributes.table import Attributes, as_attributes
from cfe_faiss.base.arrays import Array, Doubles
from cfe_faiss.base.checks import InputWarning
from cfe_faiss.base.values import as_row_ids
from cfe_faiss.data.classes import Predictions, Threshold, note_classes, true_classes
from cfe_faiss.data.columns import Table
from cfe_faiss.data.encode import encode_table
from cfe_faiss.data.predict import columns_of, is_model, predictions_of
from cfe_faiss.data.roles import Roles, check_categories, column_names
from cfe_faiss.finder.inputs import probabilities_of
from cfe_faiss.finder.suspicious import check_table
from cfe_faiss.rows.metric import as_rows

if TYPE_CHECKING:
    import pandas as pd


def table_fields(
    given: Table, model: Any, roles: Roles, encoder: Any, scale: Mapping[str, float] | None
) -> dict[str, Any]:
    """Return fields of a finder, made from a table; see :meth:`cfe_faiss.EvidenceFinder.from_table` for errors."""
    values_of_rows = {"model": model, "id": roles.id, "truth": roles.truth, "probabilities": roles.probabilities}
    for argument, values in values_of_rows.items():
        _check_index(argument, values, given)
    known = roles.attributes(given, model)
    classes = [name for name in (roles.truth, model) if isinstance(name, str)]
    others = [*classes, *column_names(roles.probabilities), *column_names(roles.weights)]
    table = given.frame(dict.fromkeys(name for name in (*known, *others) if name in given.cells), classes)
    ids = None
    with given.problems.collect():
        ids = _row_ids(given, roles.id)
    if encoder is None:
        check_categories(given, table, [name for name in known if name in table], (*roles.sensitive, *roles.without))
    given.problems.check()
    if not known:
        raise ValueError(f"frame must have columns beside id, truth and predictions, got {', '.join(given.columns)}")
    attributes = as_attributes(table[known], "frame")
    sensitive = roles.sensitive
    removed = _find_removed(attributes, [*sensitive, *roles.without])
    left_out = removed.columns if removed else ()
    is_called = is_model(model)
    asked = columns_of(model, [str(name) for name in given.cells]) if is_called else None
    used = [name for name in (roles.id, roles.truth) if isinstance(name, str)] + column_names(roles.probabilities)
    read = [name for name in asked or () if name in used]
    if read:
        text = f"model reads {', '.join(map(repr, read))}, which id, truth or probabilities name: fit it without"
        warnings.warn(text, InputWarning, stacklevel=3)
    data = given.model_frame(known if asked is None else asked) if is_called else table[known]
    given.problems.check()
    predicted = _predict(model, data, table, roles)
    labels, names = predicted.labels, predicted.class_names
    truth = None
    if roles.truth is not None:
        options: dict[str, Any] = {"are_names": True, "is_named": roles.class_names is not None}
        true_values = _column(table, roles.truth)
        truth, names = true_classes("truth", true_values, labels, names, unknown=roles.unknown, **options)
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
        "weights": None if roles.weights is None else _as_weights(table[roles.weights]),
        "scale": None if encoder is not None else dict(scale or {}),
    }


def _row_ids(table: Table, given: Any) -> Array | None:
    """Return the ids of the rows: in a column, given ones, or the pandas index; None if there are none."""
    if isinstance(given, str):
        table.check_ids(given)
    if given is not None:
        return as_row_ids("id", table.ids(given) if isinstance(given, str) else given, len(table))
    index = table.index
    has_ids = index is not None and type(index).__name__ != "RangeIndex" and index.is_unique
    return as_row_ids("the index of frame", index, len(table)) if has_ids else None


def _check_index(argument: str, values: Any, table: Table) -> None:
    """Raise ValueError if the pandas index of values says that their rows are in another order than in the table."""
    import pandas as pd

    if isinstance(values, pd.Series | pd.DataFrame):
        index = pd.RangeIndex(len(values)) if table.index is None else table.index
        if not values.index.equals(index) and values.index.isin(index).any():
            raise ValueError(f"{argument} must have the pandas index of frame: sort the rows alike, or pass arrays")


def split_scores(table: Table, name: str) -> tuple[Table, Array]:
    """Return a table without its column of scores, and the scores."""
    scores = table.values(table.known("scores", name))
    return replace(table, cells=table.cells.drop(columns=[name])), scores.to_numpy()


def split_threshold(table: Table, text: str) -> tuple[Table, Array, tuple[str, str]]:
    """Return a table without the column of a threshold, the decisions and their names."""
    threshold = Threshold.parse(text, table.reading)
    decisions = threshold.classes(table)
    return replace(table, cells=table.cells.drop(columns=[threshold.column])), decisions, threshold.names


def _column(table: "pd.DataFrame", given: Any) -> Any:
    values = table[given] if isinstance(given, str) else given
    return values.reset_index(drop=True) if hasattr(values, "reset_index") else values


def _predict(model: Any, data: "pd.DataFrame", table: "pd.DataFrame", roles: Roles) -> Predictions:
    """Return the predicted class of every row, and probabilities if they are known."""
    given_model = model if is_model(model) else _column(table, model)
    options: dict[str, Any] = {"class_names": roles.class_names, "unknown": roles.unknown}
    found = predictions_of(given_model, data, complete=False, **options)
    given, known = roles.probabilities, found.class_names or ()
    if given is None:
        return found
    columns = column_names(given)
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


def _as_numbers(argument: str, values: Any) -> Doubles:
    try:
        return np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{argument} must hold numbers: {error}") from error


def _as_weights(values: Any) -> Doubles:
    weights = _as_numbers("weights", values)
    wrong = ~(np.isfinite(weights) & (weights >= 0))
    if wrong.any():
        raise ValueError(f"weights must be finite and at least 0, got {weights[wrong].tolist()[:5]}")
    return weights


def _as_probabilities(values: Any, n: int, names: tuple[str, ...]) -> Doubles:
    array = _as_numbers("probabilities", values)
    array = array.reshape(n, -1) if array.size % n == 0 else np.empty((0, 0))
    if array.shape[1] == 1 and len(names) == 2:
        array = np.column_stack([1 - array, array])
    wrong = array.shape != (n, len(names)) or not ((array >= 0) & (array <= 1)).all()
    if wrong or np.abs(array.sum(axis=1) - 1).max() > 1e-3:
        raise ValueError(
            f"probabilities must have a column for each class ({', '.join(names[:20])}), or of two classes one for "
            f"{names[-1]!r}, in [0, 1] and with rows of sum 1, got shape {np.shape(values)}"
        )
    return array
