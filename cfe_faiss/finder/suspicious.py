"""Warnings about probable mistakes in tables."""

import re
import warnings
from collections.abc import Iterator, Sequence

import numpy as np

from cfe_faiss.attributes.table import Attribute, Attributes
from cfe_faiss.base.arrays import Int32s
from cfe_faiss.base.checks import UNKNOWN, InputWarning

_FEWEST_ROWS = 20
_MOST_SENSITIVE = 20
_COMMA = re.compile(r"[-+]?\d*,\d+")
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
        *_missing(attributes),
        *(text for attribute in compared for text in _column(attribute)),
        *_outcomes(compared, "truth", truth, True),
        *_outcomes(compared, "predictions", labels, not called),
        *(text for name in sensitive for text in _sensitive(attributes[name])),
    ):
        warnings.warn(text, InputWarning, stacklevel=4)


def _missing(attributes: Attributes) -> Iterator[str]:
    counts = {name: int(attributes[name].missing.sum()) for name in attributes}
    some = [f"{name} {count:,}" for name, count in counts.items() if count]
    if some:
        yield f"missing values, which count as values of their own: {', '.join(some)} of {len(attributes.ids):,} rows"


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
    known = [str(value) for value in attribute.values] if attribute.numbers is None else []
    if known and any("," in text for text in known) and all(_COMMA.fullmatch(t) or t.isdecimal() for t in known):
        yield f"column {name!r} holds decimal commas and is read as texts: read it with decimal=',' (--decimal ,)"
    if len(attribute.codes) >= _FEWEST_ROWS and _are_ids(attribute):
        yield f"column {name!r} has another value in every row, as ids have: name it in id (--id {name})"


def _outcomes(compared: Sequence[Attribute], what: str, classes: Int32s | None, by_threshold: bool) -> Iterator[str]:
    for attribute in compared:
        if classes is not None and _determines(attribute, classes, by_threshold):
            yield (
                f"column {attribute.name!r} determines the {what}: if it is the outcome or made from it, name it in "
                f"truth, model or without (--truth, --predictions or --without {attribute.name})"
            )


def _are_ids(attribute: Attribute) -> bool:
    numbers = attribute.numbers
    if len(attribute.values) < len(attribute.codes) or numbers is None:
        return len(attribute.values) >= len(attribute.codes)
    whole = bool((numbers == np.floor(numbers)).all())
    return whole and (bool(_ID_NAME.search(attribute.name)) or float(numbers.max() - numbers.min()) == len(numbers) - 1)


def _determines(attribute: Attribute, classes: Int32s, by_threshold: bool) -> bool:
    """Return whether every value belongs to one class: few values, or many numbers that thresholds part."""
    both = (classes != UNKNOWN) & ~attribute.missing
    own, codes = classes[both], attribute.codes[both]
    count, values = len(np.unique(own)), len(np.unique(codes))
    if count < 2 or len(own) < _FEWEST_ROWS or np.unique(np.stack([codes, own]), axis=1).shape[1] > values:
        return False
    changes = int((np.diff(own[np.argsort(codes, kind="stable")]) != 0).sum())
    return 5 * values <= len(own) or (by_threshold and attribute.numbers is not None and changes == count - 1)
