"""Warnings about probable mistakes in tables."""

import re
import warnings
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from cfe_faiss.attributes.table import Attribute, Attributes
from cfe_faiss.base.arrays import Bools, Int32s
from cfe_faiss.base.checks import UNKNOWN, InputWarning

_FEWEST_ROWS = 20
_MOST_SENSITIVE = 20
_EXCEPTIONS = 0.02
"""Rows that differ from the class of their value, relative to the rows beside the largest class, of a leak."""
_KNOWN = 0.1
_HARDLY_KNOWN = 0.01
"""Shares of rows of a class for which a column is known."""
_ID_NAME = re.compile(r"(?:^|[_\W])(?:id|ids|uuid|key|index|nr|no|number)$|(?<=[a-z])(?:Id|ID)$", re.IGNORECASE)


def check_table(
    attributes: Attributes,
    labels: Int32s | None,
    truth: Int32s | None,
    class_names: Sequence[str],
    *,
    sensitive: Sequence[str] = (),
    left_out: Sequence[str] = (),
    called: bool = False,
) -> None:
    """Warn of suspicious columns and classes.

    Parameters
    ----------
    attributes
        All columns that are neither ids nor classes, row i of label i.
    labels, truth
        Predicted and true class of each row, positions in ``class_names``, -1 where unknown; or None.
    class_names
        Names of the classes.
    sensitive, left_out
        Names of sensitive attributes, and of attributes that the vectors leave out.
    called
        Whether a model was called: a threshold of one of its columns may then be its decision.

    Warns
    -----
    InputWarning
        One warning for each suspicion.
    """
    compared = [attributes[name] for name in attributes if name not in left_out]
    for text in (
        *_classes(class_names),
        *(text for attribute in compared for text in _column(attribute)),
        *_outcomes(compared, "truth", truth, class_names, True),
        *_outcomes(compared, "predictions", labels, class_names, not called),
        *_selective_truth(labels, truth, class_names),
        *(text for name in sensitive for text in _sensitive(attributes[name])),
    ):
        warnings.warn(text, InputWarning, stacklevel=4)


def _classes(names: Sequence[str]) -> Iterator[str]:
    seen: dict[str, str] = {}
    for name in names:
        first = seen.setdefault(" ".join(name.split()).casefold(), name)
        if first != name:
            yield f"classes {first!r} and {name!r} differ in blanks or case only: write both in the same way"


def _sensitive(attribute: Attribute) -> Iterator[str]:
    count = len(np.unique(attribute.codes[attribute.codes >= 0]))
    if attribute.numbers is None and count > _MOST_SENSITIVE:
        yield (
            f"sensitive attribute {attribute.name!r} has {count:,} values, such as {attribute.values[0]!r}: put them "
            f"into at most {_MOST_SENSITIVE} groups first (a date into years or ages)"
        )


def _column(attribute: Attribute) -> Iterator[str]:
    name = attribute.name
    if len(attribute.codes) >= _FEWEST_ROWS and _are_ids(attribute):
        yield f"column {name!r} has another value in every row, as ids have: name it in id (--id {name})"


def _outcomes(
    compared: Sequence[Attribute], what: str, classes: Int32s | None, names: Sequence[str], by_threshold: bool
) -> Iterator[str]:
    if classes is None:
        return
    for name, known in leaks(compared, classes, by_threshold).items():
        how = f", as it is known for {' or '.join(repr(names[label]) for label in known)} only" if known else ""
        yield (
            f"column {name!r} determines the {what}{how}: if it is the outcome, made from it or known only after it, "
            f"name it in truth, model or without (--truth, --predictions or --without {name})"
        )


def _selective_truth(labels: Int32s | None, truth: Int32s | None, names: Sequence[str]) -> Iterator[str]:
    if labels is None or truth is None:
        return
    known = selective_classes(labels, truth != UNKNOWN)
    if known:
        decisions = " or ".join(repr(names[label]) for label in known)
        yield f"the truth is known for the decision {decisions} only: audits give no accuracy and no error rates"


def leaks(compared: Iterable[Attribute], classes: Int32s, by_threshold: bool) -> dict[str, list[int]]:
    """Return the columns that determine the classes, and the classes that alone are known to each of them.

    Parameters
    ----------
    compared
        Columns that may be leaks.
    classes
        Class of each row, (n,), -1 where unknown.
    by_threshold
        Whether a number with many values counts that a threshold parts.
    """
    columns = {}
    for attribute in compared:
        known = selective_classes(classes, ~attribute.missing)
        if known or _determines(attribute, classes, by_threshold):
            columns[attribute.name] = known
    return columns


def selective_classes(labels: Int32s, is_known: Bools) -> list[int]:
    """Return the classes for which something is known, if it is hardly ever known for the others; else none.

    So it is where only the decision shows the truth: who repays is known of granted loans. Errors
    cannot be counted then.

    Parameters
    ----------
    labels
        Class of each row, (n,), -1 where unknown.
    is_known
        Whether it is known for each row, (n,). A class counts as known from a tenth of its rows on, and as unknown up
        to a hundredth.
    """
    if is_known.all() or len(labels) < _FEWEST_ROWS:
        return []
    classes = np.unique(labels[labels != UNKNOWN])
    shares = np.array([is_known[labels == label].mean() for label in classes])
    often = shares >= _KNOWN
    is_selective = often.any() and not often.all() and bool((shares[~often] <= _HARDLY_KNOWN).all())
    known: list[int] = classes[often].tolist()
    return known if is_selective else []


def _are_ids(attribute: Attribute) -> bool:
    numbers = attribute.numbers
    if len(attribute.values) < len(attribute.codes) or numbers is None:
        return len(attribute.values) >= len(attribute.codes)
    whole = bool((numbers == np.floor(numbers)).all())
    return whole and (bool(_ID_NAME.search(attribute.name)) or float(numbers.max() - numbers.min()) == len(numbers) - 1)


def _determines(attribute: Attribute, classes: Int32s, by_threshold: bool) -> bool:
    """Return whether nearly every value belongs to one class: few values, or many numbers that thresholds part.

    A missing value counts as a value.
    """
    known = classes != UNKNOWN
    labels = classes[known]
    codes = attribute.codes[known]
    if len(labels) < _FEWEST_ROWS:
        return False
    width = int(labels.max()) + 1
    cells = np.bincount((codes - UNKNOWN) * np.int64(width) + labels, minlength=(len(attribute.values) + 1) * width)
    counts = cells.reshape(-1, width)  # rows of each value, the missing one first, and of each class
    of_class = counts.sum(axis=0)
    values = np.count_nonzero(counts.any(axis=1))
    class_count = np.count_nonzero(of_class)
    exceptions = len(labels) - counts.max(axis=1).sum()
    if class_count < 2 or exceptions > _EXCEPTIONS * (len(labels) - of_class.max()):
        return False
    if 5 * values <= len(labels):
        return True
    changes = int((np.diff(labels[np.argsort(codes, kind="stable")]) != 0).sum())
    return by_threshold and attribute.numbers is not None and changes == class_count - 1
