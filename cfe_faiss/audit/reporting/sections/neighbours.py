"""Measures of the closest pairs and of nearest neighbours."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.attributes.table import Attribute
from cfe_faiss.audit.groups import UNKNOWN_GROUP, Floats, Ints
from cfe_faiss.audit.neighbours import consistency, discrimination_scores, error_rate_by_evidence
from cfe_faiss.audit.reporting.document import (
    Column,
    Plot,
    Section,
    Table,
    group_name,
    low_high,
    plural,
    rows_of,
    show,
)
from cfe_faiss.audit.reporting.inputs import Inputs, Metric, Part
from cfe_faiss.audit.reporting.sections.groups import GROUP, QUARTERS
from cfe_faiss.audit.reporting.sections.pairs import find_pairs
from cfe_faiss.base.checks import UNKNOWN
from cfe_faiss.base.extras import pd

_POINTS = (10, 20, 50, 100, 200, 500, 1000)
GUIDE = 0.1
"""Austin's limit of a negligible standardised difference."""
_VALUES = 12
"""Values of a text that get a line, at most."""
_BALANCE = (
    *(
        "attribute",
        "value",
        "name",
        "mean_a_all",
        "mean_b_all",
        "mean_a_pairs",
        "mean_b_pairs",
        "smd_all",
    ),
    *("smd_pairs", "distance", "distance_all", "differing", "pairs"),
)


def balance_section(inputs: Inputs) -> Section:
    """Return standardised mean differences between the sides of the pairs, and the classes.

    Austin, "Balance diagnostics for comparing the distribution of baseline covariates between
    treatment groups in propensity-score matched samples", Statistics in Medicine 28 (2009): d is
    the difference of the means over sqrt((s_A^2 + s_B^2) / 2). As in MatchIt, both columns use the
    spread of all nodes, so that they compare.
    """
    found = inputs.once(find_pairs).found
    chosen = _classes(inputs)
    if not len(found):
        return Section(missing="no_pairs")
    if chosen is None:
        return Section(missing="no_class")
    first, name_a, name_b = chosen
    of_a = np.isin(inputs.labels, first)
    left = inputs.positions(found.source)
    right = inputs.positions(found.target)
    used = of_a[left] != of_a[right]
    sides = np.where(of_a[left], [left, right], [right, left])[:, used]
    values: dict[str, Any] = {
        "a": name_a,
        "b": name_b,
        "guide": GUIDE,
        "used": int(used.sum()),
        "left_out": int((~used).sum()),
    }
    if not used.any():
        return Section(values, missing="no_side")
    lines = [(one.name, *line) for one in inputs.attributes.values() for line in _lines(one)]
    frame = pd.DataFrame([_balance_row(*line, of_a, sides) for line in lines], columns=_BALANCE)
    apart = (
        frame[["smd_pairs", "smd_all"]].abs().fillna(0)
    )  # infinite for different means without a spread
    over, before = (apart > GUIDE).sum().tolist()
    values |= {"over": over, "before": before, "count": len(frame)}
    rows = rows_of(frame.loc[apart["smd_pairs"].sort_values(ascending=False, kind="stable").index])
    drawn = [row[key] for row in rows for key in ("distance", "distance_all")]
    plot = Plot.around([0.0, *drawn], (GUIDE,), before="distance_all")
    columns = (
        Column("name", "Attribute"),
        Column("mean_a_all", "A, all", "number"),
        Column("mean_b_all", "B, all", "number"),
        Column("mean_a_pairs", "A, pairs", "number"),
        Column("mean_b_pairs", "B, pairs", "number"),
        Column("smd_all", "SD, all", "signed"),
        Column("smd_pairs", "SD, pairs", "signed", n="pairs"),
        Column("distance", "Distance", "score", n="pairs", plot=plot),
    )
    return Section(values, [Table("balance", columns, rows)])


def _classes(inputs: Inputs) -> tuple[Sequence[int], str, str] | None:
    """Return the classes of side A, and the names of both sides.

    None with more than two classes and no favourable.
    """
    present = np.unique(inputs.labels).tolist()
    if len(present) == 2:
        favourable = [label for label in present if label in inputs.favourable]
        first = favourable[0] if len(favourable) == 1 else present[1]
        other = present[0] if first == present[1] else present[1]
        return [first], inputs.class_names[first], inputs.class_names[other]
    if not inputs.favourable:
        return None
    return inputs.favourable, " or ".join(inputs.favourable_names), "any other class"


def _lines(attribute: Attribute) -> Iterator[tuple[str, Floats]]:
    """Yield numbers, NaN if missing, or each common value of a text as 0 and 1."""
    if attribute.numbers is not None:
        yield "", attribute.numbers.astype(np.float64)
    else:
        sizes = np.bincount(attribute.codes[~attribute.missing], minlength=len(attribute.values))
        common = [int(code) for code in np.argsort(-sizes, kind="stable")[:_VALUES] if sizes[code]]
        for code in common:
            yield str(attribute.values[code]), (attribute.codes == code).astype(np.float64)
        others = ~np.isin(attribute.codes, [*common, UNKNOWN])
        if others.any():
            yield (
                plural(int(np.count_nonzero(sizes)) - len(common), "other value"),
                others.astype(np.float64),
            )
    if attribute.missing.any():
        yield UNKNOWN_GROUP, attribute.missing.astype(np.float64)


def _balance_row(
    attribute: str, value: str, numbers: Floats, of_a: NDArray[np.bool_], sides: Ints
) -> dict[str, Any]:
    """Return the means and differences of some numbers.

    ``sides`` has the rows of A and B of each pair, (2, p).
    """
    values = pd.DataFrame({"number": numbers})["number"].dropna()
    groups = values.groupby(of_a[values.index])
    # Austin's variance of zeros and ones is p (1 - p), the sample variance is that of other
    # numbers.
    variances = {
        side: group.var(ddof=0 if group.isin([0, 1]).all() else 1) for side, group in groups
    }
    spread = np.sqrt(sum(np.nan_to_num(variance) for variance in variances.values()) / 2)
    pairs = pd.DataFrame(dict(zip("ab", numbers[sides], strict=True))).dropna()
    all_means = groups.mean().reindex([True, False])
    row: dict[str, Any] = {
        "attribute": attribute,
        "value": value,
        "name": group_name(attribute, value) if value else show(attribute),
        "mean_a_all": all_means[True],
        "mean_b_all": all_means[False],
        "mean_a_pairs": pairs["a"].mean(),
        "mean_b_pairs": pairs["b"].mean(),
    }
    for side in ("all", "pairs"):
        change = row[f"mean_a_{side}"] - row[f"mean_b_{side}"]
        with np.errstate(divide="ignore"):
            row[f"smd_{side}"] = np.divide(change, spread) if change else change
    return {
        **row,
        "distance": abs(row["smd_pairs"]),
        "distance_all": abs(row["smd_all"]),
        "differing": (pairs["a"] != pairs["b"]).mean(),
        "pairs": len(pairs),
    }


def discrimination_section(inputs: Inputs) -> Section:
    """Return the discrimination scores (paper, section "Revealing Unfairness") as a description."""
    frame = discrimination_scores(
        inputs.finder,
        k=inputs.settings.k,
        sensitive=inputs.attributes_and_pairs,
        **inputs.options,
    )
    rows = [row | {"group": inputs.group(row)} for row in rows_of(frame)]
    columns = (
        Column("group", "Value"),
        Column("nodes", "n", "count"),
        Column("score", "Score", "score", n="nodes", plot=Plot(QUARTERS, expected="expected")),
        Column("expected", "Expected", "score", n="nodes"),
        Column("difference", "Difference", "signed", n="nodes"),
    )
    return Section(
        {"count": len(rows)}, tables=[Table("discrimination_scores", columns, rows, limit=30)]
    )


def consistency_section(inputs: Inputs) -> Section:
    """Return the share of people who are decided differently from their nearest neighbour."""
    frame = consistency(
        inputs.finder,
        columns=inputs.sensitive,
        confidence=inputs.settings.confidence,
        **inputs.options,
    )
    rows = [row | {"group": inputs.group(row)} for row in rows_of(frame)]
    if not rows[0]["nodes"]:
        return Section(missing="no_neighbours")
    plot = Plot(QUARTERS, expected="expected")
    columns = (
        GROUP,
        Column("nodes", "n", "count"),
        Column("closer", "Closer to another", "count"),
        Column("share", "Share", "share", interval=("low", "high"), n="nodes", plot=plot),
        Column("expected", "Expected", "share", interval=low_high("expected"), n="nodes"),
        Column("tied", "With ties", "count"),
    )
    return Section(rows[0], tables=[Table("consistency", columns, rows)], measured=rows)


def errors_section(inputs: Inputs) -> Section:
    """Return the accuracy within the closest pairs (paper, "Verifying Prediction Errors")."""
    frame = error_rate_by_evidence(inputs.finder, ks=_POINTS, confidence=inputs.settings.confidence)
    rows = [row for row in rows_of(frame) if row["accuracy"] is not None]
    if not rows:
        return Section(missing="no_truth_in_pairs")
    overall = rows[0] | {"feature": "all"}
    shown_row = rows[min(3, len(rows) - 1)]
    drawn = [row[key] for row in rows for key in ("low", "expected")]
    plot = Plot.around([*drawn, 1.0], (shown_row["overall"],), expected="expected")
    columns = (
        Column("pairs", "Closest pairs", "count"),
        Column("nodes", "n with true class", "count"),
        Column("errors", "Errors", "count"),
        Column("accuracy", "Right", "share", interval=("low", "high"), n="nodes", plot=plot),
        Column("expected", "Expected", "share", interval=low_high("expected"), n="nodes"),
    )
    return Section(
        shown_row, tables=[Table("errors_by_evidence", columns, rows)], measured=[overall]
    )


PARTS = (
    Part("balance", balance_section),
    Part("discrimination", discrimination_section),
    Part("consistency", consistency_section, metrics={"consistency": Metric("share", "nodes")}),
    Part(
        "errors",
        errors_section,
        ("truth",),
        metrics={"overall_accuracy": Metric("overall", "overall_nodes", ("truth",))},
    ),
)
