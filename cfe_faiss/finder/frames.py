"""Columns of a table of pairs: classes and attributes of both nodes."""

from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from cfe_faiss.attributes.table import Attributes
from cfe_faiss.base.arrays import Array, Int32s, Ints
from cfe_faiss.base.checks import UNKNOWN
from cfe_faiss.base.extras import extra

if TYPE_CHECKING:
    import pandas as pd

_Sides: TypeAlias = Mapping[str, Ints]
"""Nodes of each row, (m,), by side: "source" and "target", say."""


def class_columns(sides: _Sides, suffix: str, classes: Int32s, names: tuple[str, ...] | None) -> "_Columns":
    """Return a column of classes for each side, "source_true" for the suffix "true".

    ``classes`` has the class of every node, (n,). Columns hold names, or numbers if ``names`` is None. An unknown class
    (-1) is None, or missing.
    """
    with extra("audit"):
        import pandas as pd

    columns: _Columns = {}
    for side, nodes in sides.items():
        found = classes[nodes]
        if names is None:
            columns[f"{side}_{suffix}"] = pd.Series(found, dtype="Int32").mask(found == UNKNOWN).array
        else:
            texts = [None if label == UNKNOWN else class_name(names, label) for label in found.tolist()]
            columns[f"{side}_{suffix}"] = np.array([*texts, None], object)[:-1]
    return columns


def attribute_columns(sides: _Sides, attributes: Attributes, taken: "_Columns") -> "_Columns":
    """Return two columns for each attribute, "source_Age" and "target_Age".

    A name that is ``taken`` becomes "source_label (attribute)".
    """
    frames = {side: attributes.take(nodes).to_frame() for side, nodes in sides.items()}
    columns: _Columns = {}
    for name in attributes:
        is_taken = any(f"{side}_{name}" in taken for side in sides)
        for side, frame in frames.items():
            columns[f"{side}_{name}{' (attribute)' if is_taken else ''}"] = frame[name].to_numpy()
    return columns


def as_html(title: str, frame: "pd.DataFrame", rows: int = 10) -> str:
    """Return a line of text and the first rows of a frame for a notebook, all texts escaped."""
    more = f"<p>{len(frame) - rows:,} more rows</p>" if len(frame) > rows else ""
    return f"<p>{escape(title)}</p>{frame.head(rows).to_html(index=False, border=0)}{more}"


def table_html(result: Any) -> str:
    """Return :func:`as_html` of a result with a ``table``."""
    return as_html(repr(result), result.table)


def class_name(names: tuple[str, ...] | None, label: int) -> str:
    """Return the name of a class, or "class <label>" without names."""
    return f"class {label}" if names is None or not 0 <= label < len(names) else names[label]


_Columns: TypeAlias = "dict[str, pd.api.extensions.ExtensionArray | Array]"
