"""Warnings about probable mistakes in tables."""

import re
import warnings
from collections.abc import Iterable, Sequence

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
    texts = []
    first_of: dict[str, str] = {}
    for name in class_names:
        first = first_of.setdefault(" ".join(name.split()).casefold(), name)
        if first != name:
            texts.append(f"classes {first!r} and {name!r} differ in blanks or case only: write both in the same way")
    compared = [attribute for name, attribute in attributes.items() if name not in left_out]
    for name in [attribute.name for attribute in compared if _are_ids(attribute)]:
        texts.append(f"column {name!r} has another value in every row, as ids have: name it in id (--id {name})")
    for what, classes, by_threshold in (("truth", truth, True), ("predictions", labels, not called)):
        for name, known in ({} if classes is None else leaks(compared, classes, by_threshold)).items():
            how = f", as it is known for {_either(known, class_names)} only" if known else ""
            texts.append(
                f"column {name!r} determines the {what}{how}: if it is the outcome, made from it or known only after "
                f"it, name it in truth, model or without (--truth, --predictions or --without {name})"
            )
    selective = [] if labels is None or truth is None else selective_classes(labels, truth != UNKNOWN)
    if selective:
        decisions = _either(selective, class_names)
        texts.append(
            f"the truth is known for the decision {decisions} only: audits give no accuracy and no error rates"
        )
    for name in sensitive:
        values = attributes[name].values
        if attributes[name].numbers is None and len(values) > _MOST_SENSITIVE:
            texts.append(
                f"sensitive attribute {name!r} has {len(values):,} values, such as {values[0]!r}: put them into at "
                f"most {_MOST_SENSITIVE} groups first (a date into years or ages)"
            )
    for text in texts:
        warnings.warn(text, InputWarning, stacklevel=4)


def _either(labels: Iterable[int], names: Sequence[str]) -> str:
    return " or ".join(repr(names[label]) for label in labels)


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
    if len(attribute) < _FEWEST_ROWS or len(attribute.values) < len(attribute):
        return False
    if numbers is None:
        return True
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
