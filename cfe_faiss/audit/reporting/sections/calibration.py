"""Calibration by group, and rates of groups at other thresholds, where probabilities are known."""

from typing import Any

import numpy as np

from cfe_faiss.audit.reporting.document import Column, Section, Table
from cfe_faiss.audit.reporting.drawings import Plot
from cfe_faiss.audit.reporting.formats import group_name, points, shown
from cfe_faiss.audit.reporting.inputs import Inputs
from cfe_faiss.audit.reporting.rows import rows_of
from cfe_faiss.audit.score_curves import calibration_curves, threshold_curves
from cfe_faiss.base.checks import UNKNOWN

_BINS, _THRESHOLDS = 5, (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


def calibration_section(inputs: Inputs) -> Section:
    """Return how far probabilities are right for each group, and the shares selected at other thresholds."""
    title = "Calibration and thresholds"
    purpose = "Do equal probabilities mean the same for each group, and what would other thresholds do?"
    probabilities = inputs.finder.probabilities
    reasons = {
        "No probabilities are known.": probabilities is None,
        "No sensitive attribute was named.": not inputs.sensitive,
        "No favourable class was named.": inputs.favourable is None,
    }
    missing = next((reason for reason, holds in reasons.items() if holds), "")
    if probabilities is None or inputs.favourable is None or missing:
        return Section("calibration", title, purpose, missing=missing)
    groups = inputs.attributes.select(inputs.sensitive)
    prob = probabilities[inputs.nodes, inputs.favourable].clip(0, 1)
    shared = {"y_prob": prob, "sensitive_features": groups, "bins": inputs.settings.bins}
    at = [_named(inputs, row) for row in rows_of(threshold_curves(**shared, thresholds=_THRESHOLDS))]
    tables = [_thresholds(inputs, at)]
    headline = f"At a threshold of 0.5 the shares of two groups differ by up to {points(_gap(at, 0.5)).lstrip('+')}."
    if inputs.truth is not None:
        right = np.where(inputs.truth == UNKNOWN, UNKNOWN, inputs.truth == inputs.favourable)
        curves = calibration_curves(**shared, y_true=right, n_bins=_BINS, confidence=inputs.settings.confidence)
        tables.insert(0, _calibration(inputs, [_named(inputs, row) for row in rows_of(curves)]))
    return Section(
        "calibration",
        title,
        purpose,
        headline=headline,
        tables=tuple(tables),
        limits=(
            "Probabilities are those that the model gives. Bins with few cases have wide intervals; each holds alone.",
            "Equal calibration and equal error rates exclude each other where groups differ in their true rates.",
        ),
    )


def _named(inputs: Inputs, row: dict[str, Any]) -> dict[str, Any]:
    whole = row["feature"] == "all"
    return row | {"group": f"all {inputs.people}" if whole else group_name(row["feature"], row["value"])}


def _calibration(inputs: Inputs, rows: list[dict[str, Any]]) -> Table:
    ends = [f"{i / _BINS:g} to {(i + 1) / _BINS:g}" for i in range(_BINS)]
    return Table(
        "calibration",
        "Share truly favourable, by group and probability",
        "Dot: the share on record with its interval; upright bar: the mean probability. A group is calibrated where "
        "both agree.",
        (
            Column("group", "Group"),
            Column("probability", "Probability"),
            Column("count", "n", "count"),
            Column("predicted", "Mean probability", "share", None, "count"),
            Column(
                "observed",
                "On record",
                "share",
                ("observed_low", "observed_high"),
                "count",
                Plot((0.0, 0.2, 0.4, 0.6, 0.8, 1.0), expected="predicted"),
            ),
        ),
        tuple(row | {"probability": ends[row["bin"]]} for row in rows),
        limit=40,
        group="group",
    )


def _thresholds(inputs: Inputs, rows: list[dict[str, Any]]) -> Table:
    """Return one line per group and one column per threshold."""
    groups: dict[str, dict[str, Any]] = {}
    for row in rows:
        cells = groups.setdefault(row["group"], {"group": row["group"], "count": row["count"]})
        cells[f"rate_{row['threshold']:g}"] = row["rate"]
    return Table(
        "thresholds",
        f"Share of each group decided “{shown(inputs.class_name(inputs.favourable or 0))}” at other thresholds",
        "The share of a group whose probability is at least the threshold.",
        (
            Column("group", "Group"),
            Column("count", "n", "count"),
            *(Column(f"rate_{t:g}", f"{t:g}", "share", None, "count") for t in _THRESHOLDS),
        ),
        tuple(groups.values()),
    )


def _gap(rows: list[dict[str, Any]], threshold: float) -> float:
    """Return the largest difference of shares between two groups of one attribute."""
    rates: dict[str, list[float]] = {}
    for row in rows:
        if row["threshold"] == threshold and row["rate"] is not None:
            rates.setdefault(row["feature"], []).append(row["rate"])
    return max(max(values) - min(values) for values in rates.values())
