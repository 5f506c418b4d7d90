"""One line about a result or another record: what an interpreter shows of it."""

from dataclasses import fields
from typing import Any

import numpy as np

_LONGEST = 60


def summary(record: Any) -> str:
    """Return a dataclass object as text: arrays and tables by their size, floats to four digits, the rest as it is.

    It is the ``__repr__`` of the dataclasses that hold arrays, tables or measured numbers.

    Examples
    --------
    >>> from cfe_faiss.graph import as_graph
    >>> as_graph([[0, 1], [1, 2]])
    Graph(indptr=int64 (4,), indices=int32 (4,), weights=None, directed=False)
    """
    parts = (f"{field.name}={_short(getattr(record, field.name))}" for field in fields(record))
    return f"{type(record).__name__}({', '.join(parts)})"


def _short(value: Any) -> str:
    if hasattr(value, "columns") and hasattr(value, "shape"):
        return f"table of {value.shape[0]:,} lines"
    if isinstance(value, float | np.floating):
        return f"{value:.4g}"
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}" if value.shape else str(value)
    text = repr(value)
    return f"{type(value).__name__} of {len(value):,}" if len(text) > _LONGEST and hasattr(value, "__len__") else text
