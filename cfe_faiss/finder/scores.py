"""Scores of rows, such as probabilities, prices or ratings, in place of classes."""

from dataclasses import replace
from typing import Any

import numpy as np

from cfe_faiss.attributes.constraints import Constraints
from cfe_faiss.attributes.table import Attributes
from cfe_faiss.base.arrays import Array, Doubles
from cfe_faiss.base.checks import as_array, as_number
from cfe_faiss.finder.table import as_frame, check_column
from cfe_faiss.search.query import Rules


def as_scores(values: Any, n: int) -> Doubles:
    """Return the scores of n rows, (n,); ValueError if one is missing or infinite."""
    array = as_array("scores", values).astype(np.float64)
    if array.shape != (n,):
        raise ValueError(f"scores must have shape ({n},), one per row, got {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"scores must be finite, got {array[~np.isfinite(array)][0]}")
    return array


def split_scores(frame: Any, name: str) -> tuple[Any, Array, Array | None]:
    """Return a table without its column of scores, the scores, and the ids in its index, or None."""
    table, index = as_frame(frame)
    check_column("scores", name, table)
    return table.drop(columns=[name]), table[name].to_numpy(), index


def gap_conditions(
    where: Constraints | None, min_gap: float, scores: Doubles, attributes: Attributes | None
) -> dict[str, Any]:
    """Return the arguments of a search for rows of any class whose scores differ by at least ``min_gap``."""
    gap, name = as_number("min_gap", min_gap, 0.0, np.inf), "score"
    if gap == 0:
        raise ValueError("min_gap must be above 0, got 0")
    known = {} if attributes is None else dict(attributes)
    while name in known:
        name += "_"
    where = Constraints() if where is None else where
    most = None if where.max_changed is None else where.max_changed + 1  # scores always differ
    where = replace(where, caliper={**where.caliper, name: -gap}, max_changed=most)
    table = Attributes({**known, name: scores}, np.arange(len(scores)))
    return {"where": where, "attributes": table, "rules": Rules(neighbors="any")}
