"""All tests that may name a finding, as one family: direct effects of the sensitive attributes, and impact ratios."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from cfe_faiss.audit.family import DirectEffects, direct_effects
from cfe_faiss.audit.reporting.document import Column, Section, Table
from cfe_faiss.audit.reporting.formats import group_name, interval, p_value, points, score, shown
from cfe_faiss.audit.reporting.inputs import Inputs
from cfe_faiss.audit.reporting.rows import rows_of
from cfe_faiss.audit.reporting.sections.groups import Rates

_LINES = 6
"""Sentences of one kind on the first page, at most."""
_PAIRS, _NEAREST, _RATIO = "closest pairs", "nearest neighbours", "impact ratio"
TESTS = {"direction": _PAIRS, "situation": _NEAREST}
"""Names of the direct tests on the page."""
_NOT_CAUSED = "“Not explained by the vectors” does not mean “caused by”: what the vectors lack may explain it."


def find_effects(inputs: Inputs, rates: Rates | None) -> DirectEffects | None:
    """Run the direct tests; the impact ratios belong to their family. None without groups or a favourable class."""
    if rates is None or inputs.favourable is None or not inputs.unfavourable:
        return None
    return direct_effects(
        inputs.finder,
        sensitive=inputs.sensitive,
        unfavourable=inputs.unfavourable,
        intersections=inputs.crossed,
        bins=inputs.settings.bins,
        k=inputs.settings.k,
        others={row["feature"]: float("nan") if row["p"] is None else row["p"] for row in rates.comparisons},
    )


def effects_section(inputs: Inputs, effects: DirectEffects | None, rates: Rates | None) -> Section:
    """Return one table of all tests, and a sentence for each finding that survives the correction."""
    title = "All tests"
    purpose = "Do groups differ, and do decisions depend on an attribute beyond what the vectors explain?"
    if effects is None or rates is None:
        reason = "No sensitive attribute was named." if rates is None else "No favourable class was named."
        return Section("tests", title, purpose, missing=reason, is_open=True)
    rows = [_ratio_row(inputs, row, effects) for row in rates.comparisons]
    values = effects.table.groupby("attribute")["value"].nunique()
    direct = [_row(inputs, row | {"values": int(values[row["attribute"]])}) for row in rows_of(effects.table)]
    rows += _one_side(direct)
    told = sum(row["p"] is not None for row in [*rates.comparisons, *direct])
    named = [row for row in rows if row["named"]]
    table = Table(
        "all_tests",
        f"All {len(rates.comparisons) + len(direct):,} tests of this report",
        f"Bold: {len(named):,} that survive the correction. An effect of +5 points: of 100 {inputs.people} of the "
        f"group, 5 more are decided unfavourably than the vectors explain, or than in the reference group. q is p "
        f"adjusted for all {told:,} tests that can tell (Benjamini and Hochberg); a finding needs q ≤ {effects.fdr:g}. "
        "Of an attribute with two values the one at a disadvantage is shown; the other is its mirror image.",
        (
            Column("group", "Group"),
            Column("test", "Test"),
            Column("n_carriers", "n", "count"),
            Column("effect", "Effect", "points", n="n_carriers"),
            Column("detail", "Detail", "long"),
            Column("p", "p", "p-value", n="n_carriers"),
            Column("q", "q", "p-value", n="n_carriers"),
            Column("n_effective", "Decisive", "number"),
            Column("verdict", "Verdict"),
        ),
        tuple(sorted(rows, key=lambda row: (not row["named"], row["p"] is None))),
    )
    unexplained = list(_unexplained(inputs, named))
    sentences = [*_unequal(inputs, rates, effects), *unexplained]
    q = [row["q"] for row in direct if row["q"] is not None]
    smallest = f"; the smallest q is {min(q):.2f}" if q else ""
    nothing = (
        f"{'Beyond what the vectors explain, no' if sentences else 'No'} group is named: of {len(direct):,} direct "
        f"tests {len(q):,} can tell, and none survives the correction{smallest}. That is no proof of absence."
    )
    return Section(
        "tests",
        title,
        purpose,
        named=tuple(_first(sentences)),
        described=(_NOT_CAUSED if unexplained else nothing,),
        undetermined=tuple(_first(_untold(rows))),
        tables=(table,),
        limits=(
            f"“{_NEAREST.capitalize()}” compares each decision with those of the {effects.k} nearest {inputs.people} "
            f"of any group. “{_PAIRS.capitalize()}” counts which side of the closest pairs with different decisions "
            "carries the value; Γ* is the strength of a hidden difference, as odds, at which the finding disappears. "
            "“Decisive” is the effective number of cases behind a test: below 10 its p value is rough, below 5 the "
            "test cannot tell.",
            *map(inputs.worded, effects.limits),
        ),
        is_open=True,
    )


def _one_side(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows with one of two values of an attribute, the one at a disadvantage."""
    kept: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in rows:
        key = row["attribute"], row["test"], row["value"] if row["values"] != 2 else ""
        if key not in kept or (row["statistic"] or 0) > (kept[key]["statistic"] or 0):
            kept[key] = row
    return list(kept.values())


def _row(inputs: Inputs, row: dict[str, Any]) -> dict[str, Any]:
    of_pairs, detail = row["test"] == "direction", inputs.worded(row["reason"] or "")
    if of_pairs and not detail:
        detail = (
            f"{row['against']:,.0f} pairs against, {row['in_favour']:,.0f} for; {row['expected']:.0f} expected against"
        )
        detail += "" if row["gamma"] is None else f"; Γ* {row['gamma']:.2f}"
    return row | {
        "group": group_name(row["attribute"], row["value"]),
        "test": TESTS[row["test"]],
        "detail": detail,
        "effect": None if row["p"] is None else row["effect"],
        "n_effective": None if row["n_effective"] is None else round(row["n_effective"], 1),
    }


def _ratio_row(inputs: Inputs, row: dict[str, Any], effects: DirectEffects) -> dict[str, Any]:
    """Return the test of an impact ratio as a row; positive effects are to the disadvantage of the group."""
    q = effects.others[row["feature"]]
    known, named = row["p"] is not None, q <= effects.fdr
    reference = group_name(row["feature"], row["reference"])
    detail = "" if row["ratio"] is None else f"ratio {score(row['ratio'])}, against {reference}"
    return {
        "attribute": row["feature"],
        "value": row["value"],
        "group": group_name(row["feature"], row["value"]),
        "test": _RATIO,
        "n_carriers": row["count"],
        "effect": row["gap"] if known else None,
        "detail": detail if known else "fewer than two groups are large enough to be ranked",
        "p": row["p"],
        "q": q if known else None,
        "n_effective": None,
        "verdict": row["verdict"] if named or row["verdict"] == "cannot tell" else "no finding",
        "named": named,
    }


def _unequal(inputs: Inputs, rates: Rates, effects: DirectEffects) -> Iterator[str]:
    for row in rates.comparisons:
        q = effects.others[row["feature"]]
        if q <= effects.fdr:
            below = "below four fifths" if row["verdict"] == "below 0.8" else "below 1"
            yield (
                f"{group_name(row['feature'], row['value'])}: {inputs.people} of this group (n = {row['count']:,}) are "
                f"selected less often than those with {group_name(row['feature'], row['reference'])}. The impact ratio "
                f"is {score(row['ratio'])}, {below} ({inputs.level} interval "
                f"{interval(row['ratio_low'], row['ratio_high'], 'score')}; q {_equals(q)})."
            )


def _unexplained(inputs: Inputs, named: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Return a sentence for each named group."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in named:
        if row["test"] != _RATIO:
            groups.setdefault((row["group"], row["verdict"]), []).append(row)
    for (group, verdict), rows in groups.items():
        first = rows[0]
        tests = "; ".join(
            f"{row['test']}: {points(abs(row['effect'])).lstrip('+')}, q {_equals(row['q'])}" for row in rows
        )
        direction = "more" if verdict == "disadvantaged" else "less"
        yield (
            f"{group}: {inputs.people} of this group (n = {first['n_carriers']:,}) are decided unfavourably "
            f"{direction} often than the vectors explain ({tests})."
        )


def _untold(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Return for each reason the groups that the direct tests cannot tell of; an attribute where it is all of them."""
    reasons: dict[str, dict[str, set[str]]] = {}
    for row in rows:
        if row["p"] is None and row["test"] != _RATIO:
            reason = re.sub(r"^[\d.,]+ (decisive \w+) are (fewer than)", r"\2 5 \1", row["detail"]).removesuffix(" 5")
            reasons.setdefault(reason, {}).setdefault(row["attribute"], set()).add(row["group"])
    values = {row["attribute"]: 1 if row.get("values") == 2 else row.get("values") for row in rows}
    for reason, groups in reasons.items():
        names = []
        for attribute, found in groups.items():
            whole = len(found) == values[attribute]
            names += [f"{shown(attribute)}"] if whole else sorted(found)
        more = f" and {len(names) - _LINES:,} more" if len(names) > _LINES else ""
        yield f"Direct effects of {'; '.join(names[:_LINES])}{more}: {reason}."


def _first(sentences: Iterable[str]) -> list[str]:
    lines = list(sentences)
    left = len(lines) - _LINES
    return lines if left <= 0 else [*lines[:_LINES], f"{left:,} more are in the table of all tests."]


def _equals(q: float) -> str:
    text = p_value(q)
    return text if text.startswith("<") else f"= {text}"
