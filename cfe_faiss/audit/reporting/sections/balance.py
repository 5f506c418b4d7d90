"""Differences of the classes in each attribute, among all people and within the closest pairs."""

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.attributes.table import Attribute
from cfe_faiss.audit.reporting.document import Section
from cfe_faiss.audit.reporting.formats import group_name, show
from cfe_faiss.audit.reporting.inputs import Inputs
from cfe_faiss.audit.reporting.sections.pairs import find_pairs

GUIDE = 0.1
"""Austin's limit of a negligible standardised difference."""
_VALUES = 12
"""Values of a text that get a line, at most."""
_Floats: TypeAlias = NDArray[np.float64]


def balance_section(inputs: Inputs) -> Section:
    """Return standardised mean differences between the two sides of the pairs, and between the classes.

    Austin, "Balance diagnostics for comparing the distribution of baseline covariates between treatment groups in
    propensity-score matched samples", Statistics in Medicine 28 (2009): d is the difference of the means over
    sqrt((s_A^2 + s_B^2) / 2). As in MatchIt, both columns use the spread of all nodes, so that they compare.
    """
    pairs, chosen = inputs.once(find_pairs), _classes(inputs)
    if not len(pairs):
        return inputs.section("balance", missing="no_pairs")
    if chosen is None:
        return inputs.section("balance", missing="no_class")
    first, name_a, name_b = chosen
    of_a = inputs.labels == first
    left, right = inputs.positions(pairs.found.source), inputs.positions(pairs.found.target)
    used = of_a[left] != of_a[right]
    sides = np.where(of_a[left], [left, right], [right, left])[:, used]
    values: dict[str, Any] = {"a": name_a, "b": name_b, "guide": GUIDE}
    values |= {"used": int(used.sum()), "left_out": int((~used).sum())}
    if not used.any():
        return inputs.section("balance", values, missing="no_side")
    lines = (line for name in inputs.attributes for line in _lines(inputs.attributes[name]))
    rows = [_row(*line, of_a, sides) for line in lines]
    rows.sort(key=lambda row: -row["distance"])
    over, before = (sum((row[key] or 0) > GUIDE for row in rows) for key in ("distance", "distance_all"))
    values |= {"over": over, "before": before, "count": len(rows)}
    return inputs.section("balance", values, tables={"balance": rows})


def _classes(inputs: Inputs) -> tuple[int, str, str] | None:
    """Return the class of side A, and the names of both sides; None with more than two classes and no favourable."""
    present = np.unique(inputs.labels[inputs.labels >= 0])
    if len(present) == 2:
        first = int(present[1]) if inputs.favourable is None or inputs.favourable not in present else inputs.favourable
        other = int(present[present != first][0])
        return first, inputs.class_names[first], inputs.class_names[other]
    if inputs.favourable is None:
        return None
    return inputs.favourable, inputs.class_names[inputs.favourable], "any other class"


def _lines(attribute: Attribute) -> Iterator[tuple[str, str, _Floats]]:
    """Yield a number, or each common value of a text as 0 and 1: attribute, value, and numbers, NaN if missing."""
    if attribute.numbers is not None:
        yield attribute.name, "", attribute.numbers.astype(np.float64)
    else:
        sizes = np.bincount(attribute.codes[~attribute.missing], minlength=len(attribute.values))
        common = [int(code) for code in np.argsort(-sizes, kind="stable")[:_VALUES] if sizes[code]]
        for code in common:
            yield attribute.name, str(attribute.values[code]), (attribute.codes == code).astype(np.float64)
        others = ~np.isin(attribute.codes, common) & ~attribute.missing
        if others.any():
            name = f"{np.count_nonzero(sizes) - len(common):,} other values"
            yield attribute.name, name, others.astype(np.float64)
    if attribute.missing.any():
        yield attribute.name, "missing", attribute.missing.astype(np.float64)


def _row(
    attribute: str, value: str, numbers: _Floats, of_a: NDArray[np.bool_], sides: NDArray[np.int64]
) -> dict[str, Any]:
    """Return the means and differences of some numbers; ``sides`` has the rows of A and B of each pair, (2, p)."""
    all_a, all_b = (side[~np.isnan(side)] for side in (numbers[of_a], numbers[~of_a]))
    spread = float(np.sqrt((_variance(all_a) + _variance(all_b)) / 2))
    both = ~np.isnan(numbers[sides]).any(axis=0)
    pair_a, pair_b = numbers[sides][:, both]
    means = {"a_all": _mean(all_a), "b_all": _mean(all_b), "a_pairs": _mean(pair_a), "b_pairs": _mean(pair_b)}
    smd_all = _standardise(means["a_all"], means["b_all"], spread)
    smd_pairs = _standardise(means["a_pairs"], means["b_pairs"], spread)
    return {
        "attribute": attribute,
        "value": value,
        "name": group_name(attribute, value) if value else show(attribute),
        **{f"mean_{side}": mean for side, mean in means.items()},
        "smd_all": smd_all,
        "smd_pairs": smd_pairs,
        "distance": abs(smd_pairs or 0.0),
        "distance_all": None if smd_all is None else abs(smd_all),
        "differing": _mean((pair_a != pair_b).astype(np.float64)),
        "pairs": int(both.sum()),
    }


def _mean(numbers: _Floats) -> float | None:
    return float(numbers.mean()) if len(numbers) else None


def _variance(numbers: _Floats) -> float:
    """Return p (1 - p) for zeros and ones, as Austin does, and the sample variance for other numbers."""
    if len(numbers) < 2:
        return 0.0
    return float(numbers.var(ddof=0 if ((numbers == 0) | (numbers == 1)).all() else 1))


def _standardise(a: float | None, b: float | None, spread: float) -> float | None:
    if a is None or b is None:
        return None
    return 0.0 if a == b else (a - b) / spread if spread > 0 else None
