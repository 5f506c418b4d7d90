"""Differences of the classes in each attribute, among all people and within the closest pairs."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.attributes.table import Attribute
from cfe_faiss.audit.reporting.document import Column, Section, Table
from cfe_faiss.audit.reporting.drawings import Plot
from cfe_faiss.audit.reporting.formats import group_name, plural, shown
from cfe_faiss.audit.reporting.inputs import Inputs
from cfe_faiss.audit.reporting.sections.pairs import Pairs

GUIDE = 0.1
"""Austin's limit of a negligible standardised difference."""
_VALUES = 12


@dataclass(frozen=True, slots=True)
class _Line:
    """One line of the table: a number, or one value of a text as 0 and 1, of every node; NaN where missing."""

    attribute: str
    value: str
    numbers: NDArray[np.float64]


def balance_section(inputs: Inputs, pairs: Pairs) -> Section:
    """Return standardised mean differences between the two sides of the pairs, and those between the classes.

    Austin, "Balance diagnostics for comparing the distribution of baseline covariates between treatment groups in
    propensity-score matched samples", Statistics in Medicine 28 (2009): d is the difference of the means over
    sqrt((s_A^2 + s_B^2) / 2). As in MatchIt, the spread is that of all nodes in both columns, so that these compare.
    """
    title = "Balance of the pairs"
    purpose = "Are the two sides of the closest pairs alike on average, or does one attribute still separate them?"
    if not len(pairs):
        return Section("balance", title, purpose, missing="There are no pairs.")
    chosen = _classes(inputs)
    if chosen is None:
        return Section("balance", title, purpose, missing="There are more than two classes, and none is favourable.")
    first, name_a, name_b = chosen
    of_a = inputs.labels == first
    left, right = inputs.places(pairs.source), inputs.places(pairs.target)
    used = of_a[left] != of_a[right]
    side_a, side_b = np.where(of_a[left], left, right)[used], np.where(of_a[left], right, left)[used]
    a, b = shown(name_a), shown(name_b)
    if not used.any():
        return Section("balance", title, purpose, missing=f"No pair has one side decided {a}.")
    rows = [_row(line, of_a, side_a, side_b) for name in inputs.attributes for line in _lines(inputs.attributes[name])]
    rows.sort(key=lambda row: -row["distance"])
    over, before = (sum((row[key] or 0) > GUIDE for row in rows) for key in ("distance", "distance_all"))
    count = int(used.sum())
    table = Table(
        "balance",
        f"Means of {inputs.people} decided {a} (A) and {b} (B): all, and within {plural(count, 'pair')}",
        "Dots: absolute difference within the pairs, in standard deviations; squares: among all. The dashed line is "
        f"at {GUIDE}. Of a text, the mean is the share that has the value.",
        (
            Column("name", "Attribute"),
            Column("mean_a_all", "A, all", "number"),
            Column("mean_b_all", "B, all", "number"),
            Column("mean_a_pairs", "A, pairs", "number"),
            Column("mean_b_pairs", "B, pairs", "number"),
            Column("smd_all", "SD, all", "signed"),
            Column("smd_pairs", "SD, pairs", "signed", n="pairs"),
            Column(
                "distance",
                "Distance",
                "score",
                n="pairs",
                plot=Plot.around(
                    [0.0, *(row[key] for row in rows for key in ("distance", "distance_all"))],
                    (GUIDE,),
                    before="distance_all",
                ),
            ),
        ),
        tuple(rows),
    )
    return Section(
        "balance",
        title,
        purpose,
        headline=f"{over} of {plural(len(rows), 'difference')} within the pairs exceed {GUIDE} standard deviations; "
        f"among all {inputs.people} {before} do.",
        tables=(table,),
        limits=(
            f"{GUIDE} is a convention (Austin 2009). The pairs were made for closeness, not for balance: a difference "
            "that remains may come from the attribute itself or from what goes along with it.",
            f"A {inputs.person} can be in several pairs and then counts several times.",
            *(
                [f"{plural(int((~used).sum()), 'pair')} without a side decided {a} are left out."]
                if not used.all()
                else []
            ),
        ),
    )


def _classes(inputs: Inputs) -> tuple[int, str, str] | None:
    """Return the class of side A, and what the two sides are called."""
    present = np.unique(inputs.labels[inputs.labels >= 0])
    if len(present) == 2:
        first = int(present[1]) if inputs.favourable is None or inputs.favourable not in present else inputs.favourable
        other = int(present[present != first][0])
        return first, inputs.class_name(first), inputs.class_name(other)
    if inputs.favourable is None:
        return None
    return inputs.favourable, inputs.class_name(inputs.favourable), "any other class"


def _lines(attribute: Attribute) -> list[_Line]:
    if attribute.numbers is not None:
        lines = [_Line(attribute.name, "", attribute.numbers.astype(np.float64))]
        if attribute.missing.any():
            lines.append(_Line(attribute.name, "missing", attribute.missing.astype(np.float64)))
        return lines
    sizes = np.bincount(attribute.codes[~attribute.missing], minlength=len(attribute.values))
    order = np.argsort(-sizes, kind="stable")
    common = [int(code) for code in order[:_VALUES] if sizes[code]]
    lines = [_Line(attribute.name, str(attribute.values[c]), (attribute.codes == c).astype(np.float64)) for c in common]
    others = ~np.isin(attribute.codes, common) & ~attribute.missing
    if others.any():
        lines.append(
            _Line(attribute.name, f"{np.count_nonzero(sizes) - len(common):,} other values", others.astype(np.float64))
        )
    if attribute.missing.any():
        lines.append(_Line(attribute.name, "missing", attribute.missing.astype(np.float64)))
    return lines


def _row(line: _Line, of_a: NDArray[np.bool_], side_a: NDArray[np.int64], side_b: NDArray[np.int64]) -> dict[str, Any]:
    all_a, all_b = _known(line.numbers[of_a]), _known(line.numbers[~of_a])
    spread = np.sqrt((_variance(all_a) + _variance(all_b)) / 2)
    both = ~(np.isnan(line.numbers[side_a]) | np.isnan(line.numbers[side_b]))
    pair_a, pair_b = line.numbers[side_a][both], line.numbers[side_b][both]
    smd_all = _standardised(_mean(all_a), _mean(all_b), spread)
    smd_pairs = _standardised(_mean(pair_a), _mean(pair_b), spread)
    return {
        "attribute": line.attribute,
        "value": line.value,
        "name": group_name(line.attribute, line.value) if line.value else shown(line.attribute),
        "mean_a_all": _mean(all_a),
        "mean_b_all": _mean(all_b),
        "smd_all": smd_all,
        "mean_a_pairs": _mean(pair_a),
        "mean_b_pairs": _mean(pair_b),
        "smd_pairs": smd_pairs,
        "distance": abs(smd_pairs or 0.0),
        "distance_all": None if smd_all is None else abs(smd_all),
        "differing": _mean((pair_a != pair_b).astype(np.float64)),
        "pairs": int(both.sum()),
    }


def _known(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    return numbers[~np.isnan(numbers)]


def _mean(numbers: NDArray[np.float64]) -> float | None:
    return float(numbers.mean()) if len(numbers) else None


def _variance(numbers: NDArray[np.float64]) -> float:
    """Return p (1 - p) for two values, as Austin does, and the sample variance for more."""
    if len(numbers) < 2:
        return 0.0
    return float(numbers.var(ddof=0 if ((numbers == 0) | (numbers == 1)).all() else 1))


def _standardised(a: float | None, b: float | None, spread: float) -> float | None:
    if a is None or b is None:
        return None
    if a == b:
        return 0.0
    return (a - b) / float(spread) if spread > 0 else None
