"""Names of classes and their codes, of predicted and true classes in any form.

A class is an integer, a text or a boolean; the classes of one column are of one kind. Missing
values, blanks and -1 are unknown classes. -1 is a class where 1 is the only other one, or where a
class has this name.
"""

import operator
import re
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cfe_faiss.base.checks import (
    UNKNOWN,
    Array,
    Bools,
    Int32s,
    OneSidedClassWarning,
    UnknownClassWarning,
    as_array,
    as_labels,
    check_distinct,
    did_you_mean,
)
from cfe_faiss.base.text import value_name
from cfe_faiss.base.values import as_classes, as_ids, as_list, as_values, distinct
from cfe_faiss.data.columns import Table

TRUTH_VALUES = "False", "True"
"""Names of the classes of boolean predictions, whose numbers are 0 and 1."""
_SIGNS = "-1", "1"
_LARGE_SHARE = 0.25
"""A class of this share of one side that never occurs on the other is named."""
_FEWEST_ROWS = 20
"""Rows from which on the classes of both sides are compared, if they are numbers."""
_REMEDY = (
    "write both in the same words, or name the favourable true classes in truth_favourable "
    "(--truth-favourable)"
)
_COMPARISONS = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}
_OPPOSITES = {">=": "<", "<=": ">", ">": "<=", "<": ">="}
_THRESHOLD = re.compile(r"\s*(.+?)\s*(>=|<=|>|<)\s*([-+]?[\d.]+(?:[eE][-+]?\d+)?)\s*")


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Predictions:
    """Predictions of a model for n nodes.

    Attributes
    ----------
    labels
        The class of each node, (n,) int32; -1 if it is unknown.
    scores
        Probabilities or logits, (n, C), column c for class c; None if only classes are known.
    class_names
        Name of each class; None if classes have numbers only.
    """

    labels: Int32s
    scores: Array | None
    class_names: tuple[str, ...] | None

    def __repr__(self) -> str:
        scores = "no scores" if self.scores is None else f"scores {self.scores.shape}"
        count = len(np.unique(self.labels))
        noun = "class" if count == 1 else "classes"
        return f"Predictions({len(self.labels):,} nodes, {count} {noun}, {scores})"


# --- names and codes ------------------------------------------------------------------------------


def class_name(names: Sequence[str] | None, label: int) -> str:
    """Return the name of a class, or "class <label>" without a name."""
    return names[label] if names is not None and 0 <= label < len(names) else f"class {label}"


def sort_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return class names in ascending order, as numbers if all of them are whole numbers."""
    listed = sorted(set(names))
    try:
        return tuple(sorted(listed, key=int))
    except ValueError:
        return tuple(listed)


def _are_values(names: Iterable[str] | None) -> bool:
    """Return whether all class names are whole numbers or truth values.

    Such a value is then a name.
    """
    return all(name.removeprefix("-").isdecimal() or name in TRUTH_VALUES for name in names or ())


def _codes(names: Sequence[str]) -> dict[str, int]:
    return {name: code for code, name in enumerate(names)}


def _code_of(value: Any, codes: Mapping[str, int], *, by_number: bool) -> int | None:
    """Return the code of a class, given by its name or, with ``by_number``, by its number.

    None for no class.
    """
    is_value = isinstance(value, bool | np.bool_ | int | np.integer)
    texts = [str(value)]
    if is_value and value in (0, 1) and codes.keys() <= {"0", "1", *TRUTH_VALUES}:
        texts += [str(int(value)), str(bool(value))]
    for text in texts:
        if text in codes:
            return codes[text]
    if is_value and by_number and not _are_values(codes) and 0 <= value < len(codes):
        return int(value)
    return None


def class_numbers(argument: str, given: Any, names: Sequence[str] | None, count: int) -> Int32s:
    """Return the numbers of a class or of several, each once, (c,).

    A number or a truth value is the number of a class; if all class names are whole numbers or
    truth values, a name.

    Raises
    ------
    ValueError
        If there is no such class, or none is given.
    """
    all_names = [class_name(names, c) for c in range(count)]
    code_of_name = _codes(all_names)
    code_of_number = _codes([str(c) for c in range(count)]) if names is None else {}
    given = given.tolist() if hasattr(given, "tolist") else given
    several = hasattr(given, "__iter__") and not isinstance(given, str | bytes)
    codes: dict[int, None] = {}
    for value in given if several else [given]:
        whole = int(value) if isinstance(value, float) and value.is_integer() else value
        code = _code_of(whole, code_of_name, by_number=True)
        code = code_of_number.get(str(whole)) if code is None else code
        if code is None:
            hint = did_you_mean(str(value), all_names)
            raise ValueError(
                f"{argument} must be among the classes ({', '.join(all_names[:20])}), got "
                f"{value!r}{hint}"
            )
        codes[code] = None
    if not codes:
        raise ValueError(f"{argument} must hold one class at least, got none")
    return np.array(list(codes), np.int32)


def known_classes(
    name: str,
    values: Any,
    n: int,
    names: tuple[str, ...] | None = None,
    unknown: Collection[Any] | None = None,
    *,
    are_names: bool = True,
) -> tuple[Array, Bools]:
    """Return the class of each row, (n,), and whether it is known.

    See :func:`cfe_faiss.base.values.as_classes`.

    Parameters
    ----------
    name
        Name of the argument in errors.
    values
        Integers, texts or booleans; floats that are whole numbers stand for integers.
    n
        Number of rows.
    names
        Class names that are known already.
    unknown
        Values that stand for an unknown class. Default: -1, unless it is a class name or 1 is the
        only other class.
    are_names
        Whether integers are names of classes, and not their numbers.

    Raises
    ------
    TypeError, ValueError
        If a value is no class, the classes are of several kinds, or there are not n of them.
    """
    if isinstance(next(iter(values), None) if hasattr(values, "__iter__") else None, bytes):
        values = [value.decode() if isinstance(value, bytes) else value for value in values]
    array = as_values(name, values)
    if array.shape != (n,):
        raise ValueError(
            f"{name} must be classes of shape ({n},), got shape {array.shape}: one for each row"
        )
    fractions = (
        [value for value in array.tolist() if type(value) is float]
        if array.dtype.kind == "O"
        else []
    )
    if fractions:
        raise TypeError(
            f"{name} must be integers, texts or booleans, got {fractions[0]:g}: scores of classes "
            "are for probabilities=, a threshold of a score for threshold="
        )
    array = as_classes(name, array, unknown=True)
    if array.dtype.kind == "b":
        return array, np.ones(n, np.bool_)
    listed = array.tolist()
    texts = ["" if value is None else str(value).strip() for value in listed]
    absent = set(map(value_name, as_list("unknown", [UNKNOWN] if unknown is None else unknown)))
    occurring = set(texts) - {""}
    if are_names or any(type(value) is str for value in listed):
        is_class = "-1" in (names or ()) or {*occurring, *(names or ())} <= set(_SIGNS)
    else:
        is_class = occurring == set(_SIGNS) and names in (None, _SIGNS)
    if unknown is None and is_class:  # -1 is a name, or 1 is the only other class
        absent = set()
    return array, np.array([text != "" and text not in absent for text in texts], np.bool_)


def _encode(
    name: str, array: Array, is_known: Bools, names: Sequence[str], *, by_number: bool, extend: bool
) -> tuple[Int32s, tuple[str, ...]]:
    """Return the code of each class, -1 where unknown, and the names; ``extend`` adds new ones."""
    known = array[is_known]
    first, numbers = distinct(known)
    code_of_name = _codes(names)
    code_of = {
        value: _code_of(value, code_of_name, by_number=by_number) for value in known[first].tolist()
    }
    unnamed = [value for value, code in code_of.items() if code is None]
    if unnamed and not extend:
        row = next(row for row in np.flatnonzero(is_known).tolist() if array[row] == unnamed[0])
        hint = did_you_mean(str(unnamed[0]), names)
        expected = f"{name} must be among the class names ({', '.join(names[:20])})"
        raise ValueError(f"{expected}, got {array[row]!r} for node {row}{hint}")
    names = (*names, *sort_names(map(str, unnamed)))
    code_of_name = _codes(names)
    code_of |= {value: code_of_name[str(value)] for value in unnamed}
    codes = np.full(len(array), UNKNOWN, np.int32)
    codes[is_known] = np.array(list(code_of.values()), np.int32)[numbers]
    return codes, names


# --- predictions ----------------------------------------------------------------------------------


def class_names_of(data: Any) -> tuple[str, ...] | None:
    """Return ``data.class_names``, or None without names."""
    names = getattr(data, "class_names", None)
    return None if names is None or len(names) == 0 else as_class_names(names)


def as_class_names(names: Any) -> tuple[str, ...] | None:
    """Return names of classes as texts: those of whole numbers without a point; None for None.

    Raises
    ------
    TypeError
        If ``names`` is no sequence, or a single text.
    ValueError
        If a name occurs twice.
    """
    if names is None:
        return None
    texts = tuple(map(value_name, as_list("class_names", names)))
    check_distinct("class_names must be distinct", texts)
    return texts


def node_count(data: Any) -> int:
    """Return the number of nodes with features, or without features of those with true classes."""
    rows = data.y if getattr(data, "x", None) is None else data.x
    # sparse matrices have no length
    return int(rows.shape[0]) if hasattr(rows, "shape") else len(rows)


def check_names(predictions: Predictions, data: Any) -> None:
    """Raise ValueError if texts are predicted, and ``data.y`` holds numbers without class names."""
    names = predictions.class_names
    has_numbers = getattr(data, "y", None) is not None and class_names_of(data) is None
    if names is not None and not _are_values(names) and has_numbers:
        raise ValueError(
            "data must have class_names, the text of each class of data.y: the model predicts "
            f"{', '.join(names[:8])}"
        )


def as_predictions(
    values: Any,
    n: int,
    class_names: Sequence[str] | None = None,
    name: str = "predictions",
    *,
    are_names: bool = False,
    unknown: Collection[Any] | None = None,
    complete: bool = True,
) -> Predictions:
    """Return predictions for n nodes in one form.

    Parameters
    ----------
    values
        One of

        - classes, (n,), of one kind: integers; texts, which are ``class_names`` (without these, the
          texts in ascending order become classes 0, 1, ...); or booleans, which are the texts
          "False" and "True", or with other ``class_names`` classes 0 and 1;
        - probabilities or logits, (n, C), C at least 2; the first of the largest values gives the
          class;
        - one logit for two classes, (n, 1): class 1 if it is positive, else class 0;

        as an array, a tensor, lists, or a column or DataFrame of pandas or polars. The index of a
        pandas object holds node ids 0..n-1, in any order. The columns of a DataFrame are classes:
        0..C-1 or all of ``class_names``, in any order; without ``class_names``, other columns are
        classes 0, 1, ... in column order.
    n
        Number of nodes.
    class_names
        Names of the classes, if known.
    name
        Name of the argument in errors.
    are_names
        Whether integers are names, as in a table; else they are the numbers of classes, but for -1
        and 1.
    unknown
        As in :func:`known_classes`.
    complete
        Whether every node must have a class.

    Raises
    ------
    TypeError
        If the values have another type, fractions of shape (n,) for example, or classes are of
        several kinds.
    ValueError
        If the shape is wrong, a class is missing, a score NaN, a class negative, or a text not a
        class name.

    Examples
    --------
    >>> as_predictions([[0.2, 0.8], [0.7, 0.3]], 2).labels
    array([1, 0], dtype=int32)
    >>> found = as_predictions(["no", "yes", "no"], 3)
    >>> found.labels, found.class_names
    (array([0, 1, 0], dtype=int32), ('no', 'yes'))
    """
    names = as_class_names(class_names)
    given, columns = _in_order(values, n, name)
    try:
        are_classes = columns is None and np.ndim(given) == 1
    except ValueError:  # rows of different lengths
        are_classes = False
    if are_classes:
        array, is_known = known_classes(name, given, n, names, unknown, are_names=are_names)
        if complete and not is_known.all():
            row = int(np.argmin(is_known))
            raise ValueError(
                f"{name} must hold a class for every node, got none for node {row} ({array[row]!r})"
            )
        return _of_classes(name, array, is_known, names, are_names)
    array = as_array(name, given)
    if array.shape == (n, 1) and array.dtype.kind == "f":
        if are_shares(array):
            raise ValueError(
                f"{name} must be logits where there is one column, got numbers in [0, 1] only: "
                f"return the probabilities of both classes, of shape ({n}, 2)"
            )
        array = as_two_logits(array)
    if array.ndim != 2 or array.shape[0] != n or array.shape[1] < 2:
        raise ValueError(
            f"{name} must be logits or probabilities of shape ({n}, C) with C >= 2 or classes of "
            f"shape ({n},), got shape {array.shape}, dtype {array.dtype}"
        )
    if columns is not None:
        array = array[:, _order_of(columns, names, name)]
    if np.isnan(array).any():
        raise ValueError(
            f"{name} must not be NaN, got NaN for node {int(np.isnan(array).any(axis=1).argmax())}"
        )
    if names is None and are_names:
        names = as_class_names(range(array.shape[1]) if columns is None else columns)
    return Predictions(array.argmax(axis=1).astype(np.int32), array, names)


def _of_classes(
    name: str, array: Array, is_known: Bools, names: tuple[str, ...] | None, are_names: bool
) -> Predictions:
    """Return predictions in the numbering of ``names``, or of the classes in ascending order."""
    known = array[is_known]
    are_integers = array.dtype.kind != "b" and type(next(iter(known.tolist()), 0)) is int
    if are_integers and not are_names and not (UNKNOWN in known and names in (None, _SIGNS)):
        numbers = np.where(is_known, array, UNKNOWN).astype(np.int64)
        lowest = known[known < 0]
        if len(lowest):
            raise ValueError(f"{name} must lie in 0..2**31-2, got {lowest[0]}")
        return Predictions(as_labels(name, numbers, len(array), unknown=True), None, names)
    if names is None and array.dtype.kind == "b":
        names = TRUTH_VALUES
    if names is None:
        names = sort_names(map(str, set(known.tolist())))
    labels, names = _encode(name, array, is_known, names, by_number=True, extend=False)
    return Predictions(labels, None, names)


def are_shares(scores: Array) -> bool:
    """Return whether all numbers are in [0, 1], as probabilities are."""
    return bool(((scores >= 0) & (scores <= 1)).all())


def as_two_logits(scores: Array) -> Array:
    """Return the logits of two classes, (n, 2), whose difference is the one logit, (n, 1)."""
    return np.hstack([np.zeros_like(scores), scores])


def _in_order(values: Any, n: int, name: str) -> tuple[Any, list[Any] | None]:
    """Return classes or scores, row i for node i, and the names of columns if there are several."""
    kind = type(values).__module__.partition(".")[0]
    columns = (
        list(values.columns)
        if kind in ("pandas", "polars") and hasattr(values, "columns")
        else None
    )
    if kind == "pandas" and hasattr(values, "index"):
        nodes = as_ids(f"the index of {name}", values.index.to_numpy())
        if len(nodes) != n or not np.array_equal(np.sort(nodes), np.arange(n)):
            raise ValueError(
                f"the index of {name} must hold the nodes 0..{n - 1}, each once, got {len(nodes)} "
                f"rows"
            )
        values = values.iloc[np.argsort(nodes)]
    if columns is None:
        return values, None
    if len(columns) == 1:
        return values[columns[0]], None
    try:
        return np.asarray(values, np.float64), columns
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be a frame of probabilities or logits: {error}") from error


def _order_of(columns: list[Any], names: tuple[str, ...] | None, name: str) -> list[int]:
    """Return the column of each class."""
    texts = list(map(value_name, columns))
    numbers = [str(number) for number in range(len(texts))]
    classes = texts if names is None else list(names)
    if sorted(texts) == sorted(numbers):
        classes = numbers
    if sorted(texts) != sorted(classes):
        raise ValueError(
            f"{name} must have the class names as columns ({', '.join(classes)}), got "
            f"{', '.join(texts)}"
        )
    return [texts.index(text) for text in classes]


# --- true classes, and both sides -----------------------------------------------------------------


def true_classes(
    name: str,
    values: Any,
    labels: Int32s,
    names: tuple[str, ...] | None,
    *,
    are_names: bool = False,
    is_named: bool = False,
    unknown: Collection[Any] | None = None,
) -> tuple[Int32s, tuple[str, ...] | None]:
    """Return true classes in the numbering of predicted ones, or -1, and all class names.

    Parameters
    ----------
    name, values, are_names, unknown
        As in :func:`as_predictions`.
    labels, names
        Predicted classes, (n,), and their names; None if these are numbers. True classes in other
        words follow them.
    is_named
        Whether the user gave the names: then numbers 0, 1, ... stand for them, and all true classes
        or none are names.

    Raises
    ------
    TypeError, ValueError
        As for :func:`as_predictions`.
    """
    given, columns = _in_order(values, len(labels), name)
    if columns is not None:
        raise ValueError(
            f"{name} must hold one class for each node, got columns {', '.join(map(str, columns))}"
        )
    absent = [UNKNOWN] if names is None and unknown is None else unknown
    is_coded = not are_names and (is_named or names is None)
    array, is_known = known_classes(name, given, len(labels), names, absent, are_names=not is_coded)
    known = set(array[is_known].tolist())
    are_texts = any(type(value) is str for value in known)
    if names is None and are_texts:
        names = tuple(str(code) for code in range(int(labels.max(initial=0)) + 1))
    by_number = is_named or names is None or names == TRUTH_VALUES
    if by_number and not are_names and not are_texts and UNKNOWN not in known:
        numbers = np.where(is_known, array, UNKNOWN).astype(np.int64)
        truth = as_labels(name, numbers, len(labels), unknown=True)
    else:
        names = names or ()
        codes = _codes(names)
        in_common = any(_code_of(value, codes, by_number=by_number) is not None for value in known)
        extend = not (is_named and in_common)
        truth, names = _encode(name, array, is_known, names, by_number=by_number, extend=extend)
    return truth, names


def note_classes(labels: Int32s, truth: Int32s | None, names: Sequence[str] | None) -> None:
    """Warn of rows without a predicted or a true class, and of large classes of one side only."""
    note_unknown("predicted class", labels != UNKNOWN)
    if truth is not None:
        note_unknown("true class", truth != UNKNOWN)
        check_sides(labels, truth, names)


def check_in_common(name: str, labels: Int32s, truth: Int32s, names: Sequence[str] | None) -> None:
    """Raise ValueError if no true class is a predicted one, so that accuracy has no meaning."""
    predicted = set(labels.tolist()) - {UNKNOWN}
    true = set(truth.tolist()) - {UNKNOWN}
    is_judged = len(truth) >= _FEWEST_ROWS or not _are_values(names)
    if is_judged and predicted and true and not predicted & true:
        sides = (sorted(codes)[:5] for codes in (predicted, true))
        shown = (
            ", ".join(str(c) if names is None else class_name(names, c) for c in codes)
            for codes in sides
        )
        raise ValueError(
            f"predictions and {name} must have a class in common, got {' and '.join(shown)}: "
            f"{_REMEDY}"
        )


def note_unknown(what: str, is_known: Bools) -> None:
    """Warn of unknown classes, if there are any: how many, of how many rows."""
    count = int((~is_known).sum())
    if count:
        rows = f"{count:,} of {len(is_known):,} rows"
        warnings.warn(
            f"no {what} for {rows}, where it is missing, blank or -1",
            UnknownClassWarning,
            stacklevel=4,
        )


def check_sides(labels: Int32s, truth: Int32s, names: Sequence[str] | None) -> None:
    """Warn of classes of a quarter of one side that never occur on the other.

    The sides are the predictions and the true classes.
    """
    both = (labels != UNKNOWN) & (truth != UNKNOWN)
    predicted = Counter(labels[both].tolist())
    true = Counter(truth[both].tolist())
    classes = []
    for side, counts, other in (
        ("predicted", predicted, set(truth.tolist())),
        ("true", true, set(labels.tolist())),
    ):
        total = counts.total()
        has_words = not _are_values(names) and counts.keys().isdisjoint(other)
        is_judged = total >= _FEWEST_ROWS or has_words
        for code in sorted(counts.keys() - other) if is_judged else ():
            share = counts[code] / total
            if share >= _LARGE_SHARE:
                name = str(code) if names is None else class_name(names, code)
                classes.append(f"class {name!r} is {share:.0%} of the {side} classes")
    if classes:
        text = (
            f"{', '.join(classes)}{',' * (len(classes) > 1)} and never among the others: {_REMEDY}"
        )
        warnings.warn(text, OneSidedClassWarning, stacklevel=4)


def in_words_of_decision(
    labels: Int32s, truth: Int32s, favourable: Int32s, truth_favourable: Int32s, count: int
) -> Int32s:
    """Return true classes as predicted ones, for truth with different names.

    A true class that agrees with the prediction in being favourable becomes the predicted class,
    another one the first class of the other side.

    Parameters
    ----------
    labels, truth
        Predicted and true classes, (n,); -1 where unknown.
    favourable, truth_favourable
        The predicted and the true classes that are favourable.
    count
        Number of classes.
    """
    is_favourable = np.isin(truth, truth_favourable)
    predicted = np.unique(labels[labels != UNKNOWN])
    others = np.setdiff1d(np.arange(count), favourable)
    unfavourable = [*np.setdiff1d(predicted, favourable), *others][:1]
    agree = (np.isin(labels, favourable) == is_favourable) & (labels != UNKNOWN)
    opposite = np.where(is_favourable, favourable[0], unfavourable[0] if unfavourable else UNKNOWN)
    translated = np.where(agree, labels, opposite)
    return np.where(truth == UNKNOWN, UNKNOWN, translated).astype(np.int32)


# --- a threshold of a score as decision -----------------------------------------------------------


def split_threshold(table: Table, text: str) -> tuple[Table, Array, tuple[str, str]]:
    """Return a table without the column of a threshold such as "score>=5", decisions and names.

    The condition as text is the favourable class, the second name. Decisions, (n,), are names as
    objects; None for a missing number.

    Raises
    ------
    ValueError
        If the text is another one, or the table has no such column of numbers.
    """
    parts = _THRESHOLD.fullmatch(text)
    option_text = table.reading.shown("threshold")
    if parts is None:
        raise ValueError(
            f"{option_text} must be like 'score>=5', a column, >=, >, <= or <, a number; got {text!r}"
        )
    column, comparison, limit = parts.groups()
    scores = table.numbers(table.known("threshold", column))
    if scores is None:
        raise ValueError(f"{option_text} must be of a column of numbers, got {column!r}")
    names = column + _OPPOSITES[comparison] + limit, column + comparison + limit
    is_favourable = _COMPARISONS[comparison](scores, float(limit))
    codes = np.where(np.isnan(scores), UNKNOWN, is_favourable)
    others = replace(table, cells=table.cells.drop(columns=[column]))
    return others, np.array([*names, None], object)[codes], names
