"""Decisions by group: rates, impact ratios, counts, errors and calibration."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from cfe_faiss.audit.group_rates import (
    LIMIT_OF_GRAPHS,
    LIMIT_OF_POWER,
    LIMIT_OF_RATES,
    LIMIT_OF_TRUTH,
    LIMIT_OF_UNKNOWN,
    GroupMetrics,
    calibration_curves,
    group_metrics,
    threshold_curves,
    turned,
)
from cfe_faiss.audit.groups import Frame
from cfe_faiss.audit.reporting.document import (
    Column,
    Plot,
    Section,
    Table,
    low_high,
    rows_of,
    show,
    to_python,
)
from cfe_faiss.audit.reporting.inputs import Inputs, Metric, Need, Part
from cfe_faiss.base.checks import UNKNOWN, Int32s, Ints

_COMPARED = [f"{name}{end}" for name in ("ratio", "difference") for end in ("", "_low", "_high")]
_SEX = {"sex", "gender"}
_RACE = {"race", "ethnicity", "race/ethnicity", "race_ethnicity", "race ethnicity"}
_BINS = 5
_THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
ALPHA = 0.05
"""Level of tests."""
_HEADING = Column("heading", "Attribute")
GROUP = Column("group", "Group")
_COUNT = Column("count", "n", "count")
_FIFTHS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
QUARTERS = (0.0, 0.25, 0.5, 0.75, 1.0)
HALVES = (0.0, 0.5, 1.0)
"""Ticks of charts of shares."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates of all groups: the function's result, its comparisons, and the rows of groups."""

    metrics: GroupMetrics
    rows: list[dict[str, Any]]
    comparisons: list[dict[str, Any]]
    groups: list[dict[str, Any]]


def find_rates(inputs: Inputs) -> Rates:
    """Return the rates of all groups of the sensitive attributes."""
    metrics = _metrics(inputs, inputs.nodes, inputs.labels, inputs.truth)
    table = metrics.table
    rows = _rows(
        inputs,
        table.assign(positives=table["TP"] + table["FN"], negatives=table["FP"] + table["TN"]),
    )
    groups = [row for row in rows if not row["unknown"] and row["feature"] != "all"]
    comparisons = rows_of(metrics.summary.assign(gap=-metrics.summary["difference"].astype(float)))
    return Rates(metrics, rows, comparisons, groups)


def _metrics(inputs: Inputs, rows: Ints, classes: Int32s, truth: Int32s | None) -> GroupMetrics:
    """Return the rates of groups of rows of the finder, given classes and true classes."""
    links = inputs.finder.links
    return group_metrics(
        y_true=truth,
        y_pred=classes,
        sensitive_features=inputs.groups.take(rows),
        favourable=inputs.favourable_names or None,
        class_names=inputs.class_names,
        confidence=inputs.settings.confidence,
        intersections=inputs.crossed,
        reference=inputs.settings.reference,
        person=inputs.persons[rows] if links is None else None,
        ends=None if links is None else links.ends[rows],
    )


def _rows(inputs: Inputs, table: Frame) -> list[dict[str, Any]]:
    rows = []
    for row in rows_of(table):
        heading = "" if inputs.has("favourable") else f"{show(row['class'])}: "
        heading += inputs.everyone if row["feature"] == "all" else str(row["feature"])
        if row["reference"]:  # the group is compared with itself
            row |= dict.fromkeys(("ratio_low", "ratio_high", "difference_low", "difference_high"))
            row["verdict"] = "reference"
        rows.append(row | {"heading": heading, "group": inputs.group(row)})
    return rows


def groups_section(inputs: Inputs) -> Section:
    """Return the rates and the impact ratios of all groups, one chart each."""
    rates = inputs.once(find_rates)
    small = [row for row in rates.groups if not row["ranked"] and row["count"]]
    weak = [
        row["feature"]
        for row in rates.comparisons
        # A finding needs no confidence above 95 %.
        if row["verdict"] == "cannot tell" and row["ranked"] > 1 and row["p"] > ALPHA
    ]
    unknown = {
        row["feature"]: row for row in rates.rows if row["unknown"] and " & " not in row["feature"]
    }
    values = {
        "small": list(dict.fromkeys(f"{row['group']} ({row['count']:,})" for row in small)),
        "weak": list(dict.fromkeys(map(show, weak))),
        "unknown": list(unknown.values()),
    }
    plot = Plot(_FIFTHS, (rates.rows[0]["rate"],) if inputs.has("favourable") else ())
    rate = Column("rate", "Share", "share", interval=low_high("rate"), n="count", plot=plot)
    shares = Table(
        "rates", (_HEADING, GROUP, _COUNT, rate), rates.groups, limit=80, group="heading"
    )
    disparities = _disparities_table(rates)
    is_unfound = any(row["verdict"] == "no finding" for row in disparities.rows)
    return Section(
        values,
        tables=[shares, disparities],
        limits=[LIMIT_OF_RATES, *([LIMIT_OF_POWER] if is_unfound else [])],
        measured=_measured(rates),
    )


def _measured(rates: Rates) -> list[dict[str, Any]]:
    """Return the rows that conditions can be about.

    A reference at a disadvantage is compared with the group selected most often, so that conditions
    fail for it, too.
    """
    table = rates.metrics.table
    others = table[table["ranked"] & ~table["reference"] & (table["ratio"] > 1)]
    highest = others.sort_values("ratio").drop_duplicates(["class", "feature"], keep="last")
    compared = {
        (line["class"], line["feature"]): {
            key: to_python(number) for key, number in turned(line, _COMPARED).items()
        }
        for line in highest.to_dict("records")
    }
    return [
        row
        | (
            compared.get((row["class"], row["feature"]), {})
            if row["reference"] and row["ranked"]
            else {}
        )
        for row in rates.rows
        if not row["unknown"]
    ]


def _disparities_table(rates: Rates) -> Table:
    # The ratio to a reference of which nobody is selected is infinite, and not defined in files.
    rows = [
        row | {"difference": None if row["reference"] else row["difference"]}
        for row in rates.groups
        if row["ratio"] is not None or row["verdict"].startswith("above")
    ]
    plotted_numbers = [row[key] for row in rows for key in ("ratio", "ratio_low", "ratio_high")]
    within = [min(max(number, 0.0), 1.6) for number in plotted_numbers if number is not None]
    plot = Plot.around(within, (0.8, 1.0))
    columns = (
        _HEADING,
        GROUP,
        _COUNT,
        Column("ratio", "Ratio", "score", interval=low_high("ratio"), n="count", plot=plot),
        Column("difference", "Difference", "points", n="count"),
        Column("verdict", "Verdict"),
    )
    return Table("disparities", columns, rows, limit=80, group="heading")


def counts_section(inputs: Inputs) -> Section:
    """Return counts and bounds of groups, and the tables of New York's Local Law 144."""
    rates = inputs.once(find_rates)
    unknown = any(row["unknown"] for row in rates.rows)
    bounds = (
        Column("ratio_least", "Least possible ratio", "score", n="count"),
        Column("ratio_most", "Largest possible ratio", "score", n="count"),
    )
    columns = (
        _HEADING,
        GROUP,
        _COUNT,
        Column("share", "Share of all", "share"),
        Column("selected", "Selected", "count"),
        Column("rate", "Share selected", "share", interval=low_high("rate"), n="count"),
        Column("difference", "Difference", "points", interval=low_high("difference"), n="count"),
        *(bounds if unknown else ()),
    )
    rows = [row for row in rates.rows if row["feature"] != "all"]
    applies = {
        LIMIT_OF_POWER: False,  # of a verdict, which these tables leave out
        LIMIT_OF_GRAPHS: inputs.has("graph"),
        LIMIT_OF_UNKNOWN: unknown,
        LIMIT_OF_TRUTH: inputs.has("truth"),
    }
    return Section(
        {"groups": len({row["group"] for row in rates.groups}), "unknown": unknown},
        tables=[
            Table("counts", columns, rows, limit=80, group="heading"),
            *_local_law_144(inputs, rates.metrics),
        ],
        limits=[limit for limit in rates.metrics.limits if applies.get(limit, True)],
    )


def _local_law_144(inputs: Inputs, metrics: GroupMetrics) -> list[Table]:
    sex = next((name for name in inputs.sensitive if name.strip().lower() in _SEX), None)
    race = next((name for name in inputs.sensitive if name.strip().lower() in _RACE), None)
    if sex is None or race is None or not inputs.has("favourable"):
        return []
    names = {"category": "Category", "race": "Race", "sex": "Sex"}
    columns = (
        Column("applicants", "Number of applicants", "count"),
        Column("selected", "Number selected", "count"),
        Column("selection_rate", "Selection rate", "share", n="applicants"),
        Column("impact_ratio", "Impact ratio", "score", n="applicants"),
        Column("excluded", "Below 2% of all", "flag"),
    )
    tables = []
    for part, frame in metrics.local_law_144(sex, race).items():
        of_part = (Column(key, title) for key, title in names.items() if key in frame.columns)
        tables.append(Table(f"local law 144: {part}", (*of_part, *columns), rows_of(frame)))
    return tables


def error_rates_section(inputs: Inputs) -> Section:
    """Return errors by group, and the deviation from equalised odds."""
    rates = inputs.once(find_rates)
    key = "equalised_odds_difference"
    defined_rows = [row for row in rates.comparisons if row[key] is not None]
    values = {}
    if defined_rows:
        row = max(defined_rows, key=lambda row: row[key])
        values = {
            "feature": row["feature"],
            "gap": row[key],
            "low": row[f"{key}_low"],
            "high": row[f"{key}_high"],
        }
    differences = {
        "tpr_difference": "True positive rate",
        "fpr_difference": "False positive rate",
        key: "Equalised odds",
    }
    of_odds = (
        *(() if inputs.has("favourable") else (Column("class", "Class"),)),
        Column("feature", "Attribute"),
        *(
            Column(name, title, "points", interval=low_high(name))
            for name, title in differences.items()
        ),
    )
    plot = Plot(HALVES)
    of_groups = (
        _HEADING,
        GROUP,
        Column("judged", "n", "count"),
        Column("accuracy", "Right", "share", interval=low_high("accuracy"), n="judged"),
        Column(
            "fpr", "False positive", "share", interval=low_high("fpr"), n="negatives", plot=plot
        ),
        Column(
            "fnr", "False negative", "share", interval=low_high("fnr"), n="positives", plot=plot
        ),
    )
    judged = {"place": "largest gap", "judged": rates.rows[0]["judged"]}
    return Section(
        values,
        tables=[
            Table("equalised_odds", of_odds, rates.comparisons),
            Table("error_rates", of_groups, rates.groups, limit=80, group="heading"),
        ],
        measured=[row | judged | {"attribute": row["feature"]} for row in rates.comparisons],
    )


def outcomes_section(inputs: Inputs) -> Section:
    """Return the true classes among people with the decision that alone shows them, by group."""
    truth = inputs.finder.truth
    assert truth is not None
    rows = inputs.nodes[truth[inputs.nodes] != UNKNOWN]
    table = _metrics(inputs, rows, truth[rows], None).table
    rates = _rows(inputs, table[~table["unknown"] & (table["feature"] != "all")])
    share = Column(
        "rate", "Share", "share", interval=low_high("rate"), n="count", plot=Plot(_FIFTHS)
    )
    columns = (_HEADING, GROUP, _COUNT, share, Column("verdict", "Verdict"))
    return Section(tables=[Table("outcomes", columns, rates, limit=80, group="heading")])


def calibration_section(inputs: Inputs) -> Section:
    """Return the calibration of probabilities by group, and the shares at other thresholds."""
    probabilities = inputs.finder.probabilities
    assert probabilities is not None
    shared: dict[str, Any] = {
        "y_prob": probabilities[inputs.nodes][:, list(inputs.favourable)].sum(axis=1).clip(0, 1),
        "sensitive_features": inputs.groups,
    }
    curves = threshold_curves(**shared, thresholds=_THRESHOLDS)
    rates = curves.set_index(["feature", "value", "count", "threshold"])["rate"].unstack(sort=False)
    at_half = rates[0.5].groupby(level="feature")
    gap = float((at_half.max() - at_half.min()).max())
    rows = [
        {
            "group": inputs.group(row),
            **{key: row[key] for key in ("count", *rates.add_prefix("rate_"))},
        }
        for row in rows_of(rates.add_prefix("rate_").reset_index())
    ]
    of_thresholds = (
        Column(f"rate_{value:g}", f"{value:g}", "share", n="count") for value in _THRESHOLDS
    )
    tables = [Table("thresholds", (GROUP, _COUNT, *of_thresholds), rows)]
    if inputs.truth is not None:
        right = np.where(inputs.truth == UNKNOWN, UNKNOWN, np.isin(inputs.truth, inputs.favourable))
        curves = calibration_curves(
            **shared, y_true=right, n_bins=_BINS, confidence=inputs.settings.confidence
        )
        ends = [f"{i / _BINS:g} to {(i + 1) / _BINS:g}" for i in range(_BINS)]
        rows = [
            row | {"group": inputs.group(row), "probability": ends[row["bin"]]}
            for row in rows_of(curves)
        ]
        plot = Plot(_FIFTHS, expected="predicted")
        columns = (
            GROUP,
            Column("probability", "Probability"),
            _COUNT,
            Column("predicted", "Mean probability", "share", n="count"),
            Column(
                "observed",
                "On record",
                "share",
                interval=low_high("observed"),
                n="count",
                plot=plot,
            ),
        )
        tables = [Table("calibration", columns, rows, limit=40, group="group"), *tables]
    return Section({"gap": gap}, tables=tables)


_NEEDS_OF_GROUPS: tuple[Need, ...] = ("favourable", "sensitive")
_NEEDS_OF_ERRORS: tuple[Need, ...] = (*_NEEDS_OF_GROUPS, "truth")

PARTS = (
    Part(
        "groups",
        groups_section,
        ("sensitive",),
        is_open=True,
        metrics={
            "selection_rate": Metric("rate", "count", _NEEDS_OF_GROUPS),
            "impact_ratio": Metric("ratio", "count", _NEEDS_OF_GROUPS, is_ranked=True),
            "selection_rate_difference": Metric(
                "difference", "count", _NEEDS_OF_GROUPS, is_ranked=True
            ),
            "accuracy": Metric("accuracy", "judged", _NEEDS_OF_ERRORS),
            "false_positive_rate": Metric("fpr", "negatives", _NEEDS_OF_ERRORS),
            "false_negative_rate": Metric("fnr", "positives", _NEEDS_OF_ERRORS),
        },
    ),
    Part("counts", counts_section, ("sensitive",)),
    Part(
        "error_rates",
        error_rates_section,
        ("sensitive", "truth"),
        metrics={
            "equalised_odds_difference": Metric(
                "equalised_odds_difference", "judged", _NEEDS_OF_ERRORS
            )
        },
    ),
    Part("outcomes", outcomes_section, ("sensitive", "selective"), is_open=True, is_optional=True),
    Part("calibration", calibration_section, ("probabilities", "sensitive", "favourable")),
)
