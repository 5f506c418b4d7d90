"""Decisions by group: rates, impact ratios, counts and errors."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from cfe_faiss.audit.group_rates import GroupMetrics, group_metrics
from cfe_faiss.audit.reporting.document import Column, Measure, Section, Table
from cfe_faiss.audit.reporting.drawings import Plot
from cfe_faiss.audit.reporting.formats import group_name, interval, listed, plural, points, shown
from cfe_faiss.audit.reporting.inputs import Inputs
from cfe_faiss.audit.reporting.rows import rows_of

_SHARES, _HALVES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0), (0.0, 0.5, 1.0)
_METRICS = {
    "selection_rate": ("rate", "count"),
    "impact_ratio": ("ratio", "count"),
    "selection_rate_difference": ("difference", "count"),
    "accuracy": ("accuracy", "judged"),
    "false_positive_rate": ("fpr", "negatives"),
    "false_negative_rate": ("fnr", "positives"),
}
_DRAWN = 80
_SEX = {"sex", "gender"}
_RACE = {"race", "ethnicity", "race/ethnicity", "race_ethnicity", "race ethnicity"}
_NO_GROUPS = "No sensitive attribute was named, so there are no groups."


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates of all groups: as a function returns them, as rows of tables, and the comparison of each attribute."""

    metrics: GroupMetrics
    rows: list[dict[str, Any]]
    comparisons: list[dict[str, Any]]

    @property
    def overall(self) -> float:
        """The rate of all people."""
        return float(self.rows[0]["rate"])

    def groups(self) -> list[dict[str, Any]]:
        """Return the lines of groups, without that of all people and those of people of unknown group."""
        return [row for row in self.rows if row["feature"] != "all" and not row["unknown"]]


def find_rates(inputs: Inputs) -> Rates | None:
    """Return the rates of all groups; None without sensitive attributes."""
    if not inputs.sensitive:
        return None
    metrics = group_metrics(
        y_true=inputs.truth,
        y_pred=inputs.labels,
        sensitive_features=inputs.attributes.select(inputs.sensitive),
        favourable=inputs.favourable,
        intersections=inputs.crossed,
        bins=inputs.sensitive_bins,
        class_names=inputs.class_names,
        confidence=inputs.settings.confidence,
    )
    table = metrics.table
    frame = table.assign(positives=table["TP"] + table["FN"], negatives=table["FP"] + table["TN"])
    rows = [_row(inputs, row) for row in rows_of(frame)]
    differences = {(row["class"], row["feature"], row["value"]): row["difference"] for row in rows}
    comparisons = rows_of(metrics.summary)
    for row in comparisons:
        difference = differences.get((row["class"], row["feature"], row["value"]))
        row["gap"] = None if difference is None else -difference
    return Rates(metrics, rows, comparisons)


def _row(inputs: Inputs, row: dict[str, Any]) -> dict[str, Any]:
    heading = "" if inputs.favourable is not None else f"{shown(row['class'])}: "
    whole = row["feature"] == "all"
    if row["reference"]:  # the group is compared with itself
        row |= dict.fromkeys(("ratio_low", "ratio_high", "difference_low", "difference_high"))
    return row | {
        "heading": heading + (f"all {inputs.people}" if whole else str(row["feature"])),
        "group": f"all {inputs.people}" if whole else group_name(row["feature"], row["value"]),
        "verdict": "reference" if row["reference"] else row["verdict"],
    }


def groups_section(inputs: Inputs, rates: Rates | None) -> Section:
    """Return the rates and the impact ratios of all groups, one chart each."""
    title = "Decisions by group"
    if rates is None:
        return Section("groups", title, "How often is each group selected?", missing=_NO_GROUPS, is_open=True)
    name = "each class" if inputs.favourable is None else f"“{shown(inputs.class_name(inputs.favourable))}”"
    groups = rates.groups()
    shares = Table(
        "rates",
        f"Share of each group that is decided {name}",
        f"Dots are shares, lines their {inputs.level} intervals, which hold for all groups of an attribute at once"
        + (f"; the dashed line is the share of all {inputs.people}." if inputs.favourable is not None else "."),
        (
            Column("heading", "Attribute"),
            Column("group", "Group"),
            Column("count", "n", "count"),
            Column(
                "rate",
                "Share",
                "share",
                ("rate_low", "rate_high"),
                "count",
                Plot(_SHARES, (rates.overall,) if inputs.favourable is not None else ()),
            ),
        ),
        tuple(groups),
        limit=_DRAWN,
        group="heading",
    )
    ratios = [row for row in groups if row["ratio"] is not None]
    bounds = [row[key] for row in ratios for key in ("ratio", "ratio_low", "ratio_high") if row[key] is not None]
    disparities = Table(
        "disparities",
        "Impact ratio of each group",
        "The share of a group divided by that of the reference: the group selected most often among those of at least "
        "30 cases. Smaller groups are listed, not ranked. Dashed lines: 1 (equal shares) and 0.8 (four fifths).",
        (
            Column("heading", "Attribute"),
            Column("group", "Group"),
            Column("count", "n", "count"),
            Column(
                "ratio",
                "Ratio",
                "score",
                ("ratio_low", "ratio_high"),
                "count",
                Plot.around([min(max(bound, 0.0), 1.6) for bound in bounds], (0.8, 1.0)),
            ),
            Column("difference", "Difference", "points", None, "count"),
            Column("verdict", "Verdict"),
        ),
        tuple(row | {"difference": None if row["reference"] else row["difference"]} for row in ratios),
        limit=_DRAWN,
        group="heading",
    )
    return Section(
        "groups",
        title,
        f"How often is {name} decided for each group, and how far apart are the groups?",
        undetermined=tuple(_undetermined(inputs, rates)),
        tables=(shares, disparities),
        limits=(inputs.worded(rates.metrics.limits[0]), inputs.worded(rates.metrics.limits[4])),
        measures=tuple(_measures(inputs, rates)) if inputs.favourable is not None else (),
        is_open=True,
    )


def counts_section(inputs: Inputs, rates: Rates | None) -> Section:
    """Return counts and bounds of every group, and the tables of New York's Local Law 144 (6 RCNY 5-301)."""
    title = "Counts of every group"
    purpose = "How many people are in each group, and what could unknown values change?"
    if rates is None:
        return Section("counts", title, inputs.worded(purpose), missing=_NO_GROUPS)
    unknown = any(row["unknown"] for row in rates.rows)
    possible = (
        Column("ratio_least", "Least possible ratio", "score", None, "count"),
        Column("ratio_most", "Largest possible ratio", "score", None, "count"),
    )
    table = Table(
        "counts",
        "Counts, shares and differences to the reference",
        f"Where an attribute is not known of some {inputs.people}, the last two columns are the least and the largest "
        "impact ratio there could be, however these were spread over the groups."
        if unknown
        else "A difference is the share of a group minus that of the reference.",
        (
            Column("heading", "Attribute"),
            Column("group", "Group"),
            Column("count", "n", "count"),
            Column("share", "Share of all", "share"),
            Column("selected", "Selected", "count"),
            Column("rate", "Share selected", "share", ("rate_low", "rate_high"), "count"),
            Column("difference", "Difference", "points", ("difference_low", "difference_high"), "count"),
            *(possible if unknown else ()),
        ),
        tuple(row for row in rates.rows if row["feature"] != "all"),
        limit=_DRAWN,
        group="heading",
    )
    return Section(
        "counts",
        title,
        purpose,
        headline=f"{plural(len(rates.groups()), 'group')} of {listed(map(shown, inputs.sensitive))}.",
        tables=(table, *_local_law_144(inputs, rates.metrics)),
        limits=tuple(map(inputs.worded, rates.metrics.limits)),
    )


def error_rates_section(inputs: Inputs, rates: Rates | None) -> Section:
    """Return errors by group, and how far equalised odds are missed."""
    title = "Errors by group and equalised odds"
    purpose = "Is the model wrong more often for one group than for another?"
    if rates is None:
        return Section("error_rates", title, purpose, missing=_NO_GROUPS)
    if inputs.truth is None:
        return Section("error_rates", title, purpose, missing="No true classes are known.")
    by_group = Table(
        "error_rates",
        "Errors by group",
        "The false positive rate is the share decided favourably among those whose true class is another; the false "
        "negative rate is the share not decided so among those whose true class is.",
        (
            Column("heading", "Attribute"),
            Column("group", "Group"),
            Column("judged", "n", "count"),
            Column("accuracy", "Right", "share", ("accuracy_low", "accuracy_high"), "judged"),
            Column("fpr", "False positive", "share", ("fpr_low", "fpr_high"), "negatives", Plot(_HALVES)),
            Column("fnr", "False negative", "share", ("fnr_low", "fnr_high"), "positives", Plot(_HALVES)),
        ),
        tuple(rates.groups()),
        limit=_DRAWN,
        group="heading",
    )
    keys = [f"{name}_difference" for name in ("tpr", "fpr", "equalised_odds")]
    odds = Table(
        "equalised_odds",
        "Equalised odds: largest differences between two groups",
        "Equalised odds hold where groups have equal true positive and equal false positive rates; the last column is "
        "the larger of both differences. Groups of fewer than 30 cases are left out.",
        (
            *([Column("class", "Class")] if inputs.favourable is None else []),
            Column("feature", "Attribute"),
            *(
                Column(key, name, "points", (f"{key}_low", f"{key}_high"))
                for key, name in zip(keys, ("True positive rate", "False positive rate", "Equalised odds"), strict=True)
            ),
        ),
        tuple(rates.comparisons),
    )
    largest = [row for row in rates.comparisons if row[keys[2]] is not None]
    worst = max(largest, key=lambda row: row[keys[2]], default=None)
    return Section(
        "error_rates",
        title,
        purpose,
        headline="No two groups can be compared." if worst is None else _odds(inputs, worst, keys[2]),
        tables=(odds, by_group),
        limits=("Errors are counted against the true classes on record. Where the record is biased, so are they.",),
        measures=tuple(
            Measure.of(keys[2], row["feature"], "largest gap", row | {"n": rates.rows[0]["judged"]}, keys[2], "n")
            for row in rates.comparisons
            if inputs.favourable is not None
        ),
    )


def _odds(inputs: Inputs, row: dict[str, Any], key: str) -> str:
    limits = interval(row[f"{key}_low"], row[f"{key}_high"], "points")
    return (
        f"The largest gap in true or false positive rates is {points(row[key])} ({inputs.level} interval {limits}), by "
        f"{shown(row['feature'])}."
    )


def _undetermined(inputs: Inputs, rates: Rates) -> Iterator[str]:
    small = [row for row in rates.groups() if not row["ranked"] and row["count"]]
    names = list(dict.fromkeys(f"{row['group']} ({row['count']:,})" for row in small))
    if names:
        more = f" and {len(names) - 6:,} more" if len(names) > 6 else ""
        yield f"Too small to be ranked: {'; '.join(names[:6])}{more}."
    weak = [row["feature"] for row in rates.comparisons if row["verdict"] == "cannot tell" and row["ranked"] > 1]
    if weak:
        yield (
            f"Impact ratios by {listed(dict.fromkeys(map(shown, weak)))}: none was found, but a ratio of 0.7 would be "
            "missed more often than not."
        )
    unknown = [(row["feature"], row["count"]) for row in rates.rows if row["unknown"] and " & " not in row["feature"]]
    for name, count in dict(unknown).items():
        yield f"{shown(name)} is not known for {inputs.count(count)}."


def _measures(inputs: Inputs, rates: Rates) -> Iterator[Measure]:
    for row in rates.rows:
        everything = row["feature"] == "all"
        for metric, (key, n) in _METRICS.items():
            if not row["unknown"] and not (everything and metric in ("impact_ratio", "selection_rate_difference")):
                attribute = None if everything else row["feature"]
                group = row["group"] if everything else row["value"]
                unranked = metric in ("impact_ratio", "selection_rate_difference") and not row["ranked"]
                measure = Measure.of(metric, attribute, group, row, key, n)
                yield replace(measure, unjudged="the group is not ranked") if unranked else measure


def _local_law_144(inputs: Inputs, metrics: GroupMetrics) -> list[Table]:
    sex = next((name for name in inputs.sensitive if name.strip().lower() in _SEX), None)
    race = next((name for name in inputs.sensitive if name.strip().lower() in _RACE), None)
    if sex is None or race is None or inputs.favourable is None:
        return []
    tables = []
    for part, frame in metrics.local_law_144(sex, race).items():
        names = [str(column) for column in frame.columns if column in ("category", "race", "sex")]
        tables.append(
            Table(
                f"local law 144: {part}",
                f"{part} categories, in the form of New York City's Local Law 144",
                "The impact ratio is the selection rate of a category divided by the largest. Categories below 2% of "
                "all are named and left out of the ratios, as the rules allow with the auditor's reasons; the last "
                "line counts those of unknown category.",
                (
                    *(Column(name, name.capitalize()) for name in names),
                    Column("applicants", "Number of applicants", "count"),
                    Column("selected", "Number selected", "count"),
                    Column("selection_rate", "Selection rate", "share", None, "applicants"),
                    Column("impact_ratio", "Impact ratio", "score", None, "applicants"),
                    Column("excluded", "Below 2% of all", "flag"),
                ),
                tuple(rows_of(frame)),
            )
        )
    return tables
