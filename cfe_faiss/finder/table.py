"""A table and a model as fields of a finder: vectors, classes, ids and attributes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from cfe_faiss.attributes.classes import Predictions, as_predictions
from cfe_faiss.attributes.columns import PROXY, Proxy, Removed, are_copies, association
from cfe_faiss.attributes.table import Attributes, as_attributes
from cfe_faiss.base.arrays import Array, Doubles, Int32s
from cfe_faiss.base.checks import check_distinct, did_you_mean, is_missing
from cfe_faiss.data.columns import Table
from cfe_faiss.data.encode import encode_table
from cfe_faiss.data.roles import Roles, check_categories, column_names
from cfe_faiss.datasets.own.classes import sort_names
from cfe_faiss.finder.inputs import is_model, probabilities_of
from cfe_faiss.finder.names import as_row_ids
from cfe_faiss.finder.suspicious import check_table
from cfe_faiss.rows.metric import as_rows

if TYPE_CHECKING:
    import pandas as pd


def table_fields(
    given: Table, model: Any, roles: Roles, encoder: Any, scale: Mapping[str, float] | None
) -> dict[str, Any]:
    """Return fields of a finder, made from a table; see :meth:`cfe_faiss.EvidenceFinder.from_table` for errors."""
    for argument in ("model", "id", "truth", "probabilities"):
        _check_index(argument, model if argument == "model" else getattr(roles, argument), given)
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
    asked = [given.known("feature_names_in_ of model", name) for name in getattr(model, "feature_names_in_", known)]
    data = given.model_frame(asked) if is_called else table[known]
    predicted = _predict(model, data, table, roles)
    labels, shares, names = predicted.labels, predicted.scores, predicted.class_names or ()
    truth = None
    if roles.truth is not None:
        true = class_texts("truth", _column(table, roles.truth), len(table))
        if roles.class_names is None:
            names = (*names, *sort_names(set(true) - {*names, ""}))
        truth = codes_of("truth", _by_name(true, names), names)
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


def _column(table: "pd.DataFrame", given: Any) -> Any:
    return table[given] if isinstance(given, str) else given


def predictions_of_table(model: Any, frame: "pd.DataFrame", class_names: Sequence[str] | None = None) -> Predictions:
    """Return the predictions of a model for the rows of a frame, with probabilities or without scores.

    Without ``class_names``, classes are numbered as in the model. An estimator that was fitted without column names
    gets an array, any other model the frame.
    """
    given: Any = frame
    if hasattr(model, "n_features_in_") and not hasattr(model, "feature_names_in_"):
        if model.n_features_in_ != frame.shape[1]:
            raise ValueError(
                f"model was fitted on {model.n_features_in_} columns without names, got {frame.shape[1]} columns "
                f"({', '.join(frame.columns[:20])}): fit it on a frame, or leave columns out of frame"
            )
        given = frame.to_numpy()
    argument = "the model's output"
    if not hasattr(model, "predict"):
        found = as_predictions(model(given), len(frame), None, argument)
        return _of_scores(argument, found, class_names)
    texts = class_texts(argument, model.predict(given), len(frame))
    if not hasattr(model, "classes_"):
        return _numbered(argument, texts, sort_names(set(texts)), None, class_names)
    own = class_texts("model.classes_", model.classes_, len(model.classes_))
    shares = np.asarray(model.predict_proba(given), np.float64) if hasattr(model, "predict_proba") else None
    return _numbered(argument, texts, own, shares, class_names)


def _predict(model: Any, data: "pd.DataFrame", table: "pd.DataFrame", roles: Roles) -> Predictions:
    """Return the predicted class of every row, and probabilities if they are known."""
    argument, names = "model (the predictions)", roles.class_names
    values = None if is_model(model) else _column(table, model)
    if values is None:
        found = predictions_of_table(model, data, names)
    elif np.ndim(values) == 2:
        found = _of_scores(argument, as_predictions(values, len(table), names, argument), names)
    else:
        texts = class_texts(argument, values, len(table))
        found = _numbered(argument, texts, sort_names(set(texts) - {""}), None, names)
    given, known = roles.probabilities, found.class_names or ()
    if given is None:
        return found
    columns = column_names(given)
    columns = list(known) if set(columns) == set(known) else columns
    return replace(found, scores=_as_probabilities(table[columns] if columns else given, len(table), known))


def _of_scores(argument: str, found: Predictions, class_names: Sequence[str] | None) -> Predictions:
    """Return :func:`_numbered` of predictions whose classes may have no names."""
    count = int(found.labels.max()) + 1 if found.scores is None else found.scores.shape[1]
    own = found.class_names or tuple(map(str, range(count)))
    texts = [own[label] for label in found.labels.tolist()]
    return _numbered(argument, texts, own, probabilities_of(found), class_names)


def _numbered(
    argument: str, texts: list[str], own: Sequence[str], shares: Doubles | None, class_names: Sequence[str] | None
) -> Predictions:
    """Return predictions in the numbering of class names, from texts and probabilities of the model's own classes."""
    names = tuple(own) if class_names is None else tuple(map(str, class_names))
    check_distinct("class_names must be distinct", names)
    if "" in texts:
        raise ValueError(f"model must predict a class for every row, got none for row {texts.index('')}")
    scores = None
    if shares is not None:  # classes that the model does not know have no probability
        scores = np.zeros((len(texts), len(names)))
        scores[:, codes_of("model.classes_", _by_name(own, names), names)] = shares
    return Predictions(codes_of(argument, _by_name(texts, names), names), scores, names)


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


def _by_name(texts: Sequence[str], names: tuple[str, ...]) -> list[str]:
    """Return classes by name, if they are the numbers 0..C-1 of the names, or truth values of two."""
    numbers = {str(c): name for c, name in enumerate(names)} | {"": ""}
    numbers |= {str(bool(c)): name for c, name in enumerate(names) if len(names) == 2}
    are_numbers = set(texts) <= set(numbers) and not set(texts) & set(names)
    return [numbers[text] for text in texts] if are_numbers else list(texts)


def _as_weights(values: Any) -> Doubles:
    weights = np.asarray(values, np.float64)
    if not (np.isfinite(weights) & (weights >= 0)).all():
        raise ValueError(f"weights must be finite and at least 0, got {values[~(weights >= 0)].tolist()[:5]}")
    return weights


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


def class_texts(argument: str, values: Any, n: int) -> list[str]:
    """Return classes, (n,), as texts, "" where missing; whole numbers in one way ("1" for 1 and 1.0).

    Raises
    ------
    ValueError
        If there are not n of them, or one is a fraction.
    """
    listed = np.asarray(values.tolist() if hasattr(values, "tolist") else list(values), object).reshape(-1)
    if len(listed) != n:
        raise ValueError(f"{argument} must hold a class for each of {n:,} rows, got {len(listed):,}")
    texts = []
    for row, value in enumerate(listed.tolist()):
        if isinstance(value, float) and value == value and not value.is_integer():
            raise ValueError(
                f"{argument} must hold classes, whole numbers or texts, got {value:g} in row {row}; scores of classes "
                "are for probabilities="
            )
        texts.append("" if is_missing(value) else str(int(value)) if isinstance(value, float) else str(value))
    return texts


def classes_of_table(argument: str, values: Any, n: int, names: Sequence[str]) -> Any:
    """Return predictions for the rows of a table, where numbers are names: classes (n,) as texts, others unchanged."""
    if np.ndim(values) != 1:
        return values
    texts = np.array(_by_name(class_texts(argument, values, n), tuple(names)), object)
    return type(values)(texts, index=values.index) if hasattr(values, "iloc") else texts


def codes_of(argument: str, texts: Sequence[str], names: Sequence[str]) -> Int32s:
    """Return the number of each class, -1 for "".

    Raises
    ------
    ValueError
        If a text is no class name.
    """
    places = {name: place for place, name in enumerate(names)} | {"": -1}
    for row, text in enumerate(texts):
        if text not in places:
            hint = did_you_mean(text, names)
            raise ValueError(f"{argument} must be among {', '.join(names[:20])}, got {text!r} in row {row}{hint}")
    return np.array([places[text] for text in texts], np.int32)
