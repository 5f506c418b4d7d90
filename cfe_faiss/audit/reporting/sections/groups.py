"""Decisions by group: rates, impact ratios, counts, errors and calibration; consistency."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from cfe_faiss.audit.group_rates import GroupMetrics, group_metrics
from cfe_faiss.audit.neighbours import consistency, discrimination_scores, error_rate_by_evidence
from cfe_faiss.audit.reporting.document import Section, Table
from cfe_faiss.audit.reporting.formats import join_words, list_first, rows_of, show
from cfe_faiss.audit.reporting.inputs import Inputs
from cfe_faiss.audit.score_curves import calibration_curves, threshold_curves
from cfe_faiss.base.checks import UNKNOWN

_SEX = {"sex", "gender"}
_RACE = {"race", "ethnicity", "race/ethnicity", "race_ethnicity", "race ethnicity"}
_BINS, _THRESHOLDS = 5, (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
_POINTS = (10, 20, 50, 100, 200, 500, 1000)
_ALPHA = 0.05
_SMALL = 6
"""Small groups that the first page names, at most."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates of all groups: the function's result, its rows and comparisons, and the rows of known groups."""

    metrics: GroupMetrics
    rows: list[dict[str, Any]]
    comparisons: list[dict[str, Any]]
    groups: list[dict[str, Any]]


def find_rates(inputs: Inputs) -> Rates:
    """Return the rates of all groups of the sensitive attributes."""
    metrics = group_metrics(
        y_true=inputs.truth,
        y_pred=inputs.labels,
        sensitive_features=inputs.groups,
        favourable=None if inputs.favourable is None else inputs.class_names[inputs.favourable],
        class_names=inputs.class_names,
        confidence=inputs.settings.confidence,
        intersections=inputs.crossed,
    )
    table = metrics.table
    frame = table.assign(positives=table["TP"] + table["FN"], negatives=table["FP"] + table["TN"])
    rows = [_row(inputs, row) for row in rows_of(frame)]
    known = [row for row in rows if not row["unknown"]]
    differences = {(row["class"], row["feature"], row["value"]): row["difference"] for row in known}
    comparisons = rows_of(metrics.summary)
    for row in comparisons:
        difference = differences.get((row["class"], row["feature"], row["value"]))
        row["gap"] = None if difference is None else -difference
    return Rates(metrics, rows, comparisons, [row for row in known if row["feature"] != "all"])


def _row(inputs: Inputs, row: dict[str, Any]) -> dict[str, Any]:
    heading = "" if inputs.has("favourable") else f"{show(row['class'])}: "
    heading += inputs.everyone if row["feature"] == "all" else str(row["feature"])
    if row["reference"]:  # the group is compared with itself
        row |= dict.fromkeys(("ratio_low", "ratio_high", "difference_low", "difference_high"))
    verdict = "reference" if row["reference"] else row["verdict"]
    return row | {"heading": heading, "group": inputs.group(row), "verdict": verdict}


def groups_section(inputs: Inputs) -> Section:
    """Return the rates and the impact ratios of all groups, one chart each."""
    rates, single = inputs.once(find_rates), inputs.has("favourable")
    dashed = f"; the dashed line is the share of {inputs.everyone}" if single else ""
    values: dict[str, Any] = {"dashed": dashed, "overall": rates.rows[0]["rate"] if single else None}
    ratios = [row for row in rates.groups if row["ratio"] is not None]
    ranked = [row | {"difference": None if row["reference"] else row["difference"]} for row in ratios]
    small = [row for row in rates.groups if not row["ranked"] and row["count"]]
    untold = [row for row in rates.comparisons if row["verdict"] == "cannot tell" and row["ranked"] > 1]
    weak = [row["feature"] for row in untold if row["p"] > _ALPHA]  # a finding needs no confidence above 95 %
    unknown = {row["feature"]: row for row in rates.rows if row["unknown"] and " & " not in row["feature"]}
    values |= {
        "small": list_first(dict.fromkeys(f"{row['group']} ({row['count']:,})" for row in small), _SMALL, "; "),
        "weak": join_words(dict.fromkeys(map(show, weak))),
        "unknown": unknown.values(),
    }
    return inputs.section(
        "groups",
        values,
        tables={"rates": rates.groups, "disparities": ranked},
        limits=[inputs.reword(rates.metrics.limits[number]) for number in (0, 4)],
        measured=[row for row in rates.rows if not row["unknown"]],
    )


def counts_section(inputs: Inputs) -> Section:
    """Return counts and bounds of every group, and the tables of New York's Local Law 144 (6 RCNY 5-301)."""
    rates = inputs.once(find_rates)
    unknown = any(row["unknown"] for row in rates.rows)
    reading = inputs.say("counts.unknown" if unknown else "counts.difference")
    rows = [row for row in rates.rows if row["feature"] != "all"]
    table = inputs.table("counts", rows, {"unknown": unknown, "reading": reading})
    return inputs.section(
        "counts",
        {"groups": len(rates.groups), "names": join_words(map(show, inputs.sensitive))},
        tables=(table, *_local_law_144(inputs, rates.metrics)),
        limits=map(inputs.reword, rates.metrics.limits),
    )


def _local_law_144(inputs: Inputs, metrics: GroupMetrics) -> Iterator[Table]:
    sex, race = (
        next((name for name in inputs.sensitive if name.strip().lower() in known), None) for known in (_SEX, _RACE)
    )
    if sex is not None and race is not None and inputs.has("favourable"):
        for part, frame in metrics.local_law_144(sex, race).items():
            values = {"part": part, "category": "category" in frame.columns}
            yield inputs.table("local_law_144", rows_of(frame), values)


def error_rates_section(inputs: Inputs) -> Section:
    """Return errors by group, and the deviation from equalised odds."""
    rates, key = inputs.once(find_rates), "equalised_odds_difference"
    known = [row for row in rates.comparisons if row[key] is not None]
    found = inputs.say("error_rates.none")
    if known:
        row = max(known, key=lambda row: row[key])
        found = inputs.say("error_rates.gap", row, gap=row[key], low=row[f"{key}_low"], high=row[f"{key}_high"])
    judged = {"place": "largest gap", "judged": rates.rows[0]["judged"]}
    return inputs.section(
        "error_rates",
        {"found": found},
        tables={"equalised_odds": rates.comparisons, "error_rates": rates.groups},
        measured=[row | judged | {"attribute": row["feature"]} for row in rates.comparisons],
    )


def calibration_section(inputs: Inputs) -> Section:
    """Return the calibration of the probabilities by group, and the shares selected at other thresholds."""
    probabilities = inputs.finder.probabilities
    assert probabilities is not None
    shared: dict[str, Any] = {
        "y_prob": probabilities[inputs.nodes, inputs.favourable].clip(0, 1),
        "sensitive_features": inputs.groups,
    }
    lines: dict[str, dict[str, Any]] = {}
    shares: dict[str, list[float]] = {}
    for row in rows_of(threshold_curves(**shared, thresholds=_THRESHOLDS)):
        line = lines.setdefault(inputs.group(row), {"group": inputs.group(row), "count": row["count"]})
        line[f"rate_{row['threshold']:g}"] = row["rate"]
        if row["threshold"] == 0.5 and row["rate"] is not None:
            shares.setdefault(row["feature"], []).append(row["rate"])
    tables: dict[str, Any] = {}
    if inputs.truth is not None:
        right = np.where(inputs.truth == UNKNOWN, UNKNOWN, inputs.truth == inputs.favourable)
        curves = calibration_curves(**shared, y_true=right, n_bins=_BINS, confidence=inputs.settings.confidence)
        ends = [f"{i / _BINS:g} to {(i + 1) / _BINS:g}" for i in range(_BINS)]
        rows = [row | {"group": inputs.group(row), "probability": ends[row["bin"]]} for row in rows_of(curves)]
        tables["calibration"] = rows
    gap = max(max(values) - min(values) for values in shares.values())
    return inputs.section("calibration", {"gap": gap}, tables=tables | {"thresholds": lines.values()})


def discrimination_section(inputs: Inputs) -> Section:
    """Return the discrimination scores (paper, section "Revealing Unfairness") as a description."""
    names, k = inputs.attributes_and_pairs, inputs.settings.k
    frame = discrimination_scores(inputs.finder, k=k, sensitive=names, **inputs.options)
    rows = [row | {"group": inputs.group(row)} for row in rows_of(frame)]
    return inputs.section("discrimination", {"count": len(rows)}, tables={"discrimination_scores": rows})


def consistency_section(inputs: Inputs) -> Section:
    """Return the share of people who are decided differently from their nearest neighbour."""
    confidence = inputs.settings.confidence
    frame = consistency(inputs.finder, columns=inputs.sensitive, confidence=confidence, **inputs.options)
    rows = [row | {"group": inputs.group(row)} for row in rows_of(frame)]
    if not rows[0]["nodes"]:
        return inputs.section("consistency", missing="no_neighbours")
    return inputs.section("consistency", rows[0], tables={"consistency": rows}, measured=rows)


def errors_section(inputs: Inputs) -> Section:
    """Return the accuracy within the closest pairs (paper, section "Verifying Prediction Errors")."""
    frame = error_rate_by_evidence(inputs.finder, ks=_POINTS, confidence=inputs.settings.confidence)
    rows = [row for row in rows_of(frame) if row["accuracy"] is not None]
    if not rows:
        return inputs.section("errors", missing="no_truth_in_pairs")
    overall, shown_row = rows[0] | {"feature": "all"}, rows[min(3, len(rows) - 1)]
    return inputs.section("errors", shown_row, tables={"errors_by_evidence": rows}, measured=[overall])
