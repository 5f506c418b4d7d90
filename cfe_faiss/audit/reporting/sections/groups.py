"""What the model predicts for each group: selection rates, impact ratios, errors."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cfe_faiss.audit.group_rates import GroupMetrics, group_metrics
from cfe_faiss.audit.reporting.document import Column, Measure, Section, Table
from cfe_faiss.audit.reporting.formats import interval, plural, score, share, shown
from cfe_faiss.audit.reporting.inputs import Inputs
from cfe_faiss.audit.reporting.rows import rows_of

if TYPE_CHECKING:
    import pandas as pd

_SELECTION = (
    Column("value", "Group"),
    Column("count", "n", "count"),
    Column("share", "Share of all", "share"),
    Column("selected", "Selected", "count"),
    Column("rate", "Selection rate", "share", ("rate_low", "rate_high"), "count"),
    Column("ratio", "Impact ratio", "score", ("ratio_low", "ratio_high"), "count"),
    Column("difference", "Difference", "signed", ("difference_low", "difference_high"), "count"),
    Column("verdict", "Impact ratio is"),
    Column("p", "p", "p-value", None, "count"),
)
_BOUNDS = (
    Column("ratio_least", "Least possible ratio", "score", None, "count"),
    Column("ratio_most", "Largest possible ratio", "score", None, "count"),
)
_ERRORS = (
    Column("value", "Group"),
    Column("judged", "n with true class", "count"),
    Column("accuracy", "Accuracy", "share", ("accuracy_low", "accuracy_high"), "judged"),
    Column("negatives", "n truly other", "count"),
    Column("fpr", "False positive rate", "share", ("fpr_low", "fpr_high"), "negatives"),
    Column("positives", "n truly so", "count"),
    Column("fnr", "False negative rate", "share", ("fnr_low", "fnr_high"), "positives"),
)
_METRICS = {
    "selection_rate": ("rate", "count"),
    "impact_ratio": ("ratio", "count"),
    "selection_rate_difference": ("difference", "count"),
    "accuracy": ("accuracy", "judged"),
    "false_positive_rate": ("fpr", "negatives"),
    "false_negative_rate": ("fnr", "positives"),
}
_TABLES, _SENTENCES = 24, 12
"""Tables and sentences of each kind that the page shows, at most."""
_SEX = {"sex", "gender"}
_RACE = {"race", "ethnicity", "race/ethnicity", "race_ethnicity", "race ethnicity"}


def groups_section(inputs: Inputs) -> Section:
    """Return selection rates, impact ratios and errors of every group, in the order of New York's Local Law 144."""
    title = "Predictions by group"
    purpose = "How often is each class predicted for each group, and how often is that wrong?"
    if inputs.favourable is not None:
        purpose = (
            f"How often is the favourable class, {shown(inputs.class_name(inputs.favourable))}, predicted for each "
            "group, and how often is that wrong?"
        )
    if not inputs.sensitive:
        return Section("groups", title, purpose, missing="No sensitive attribute was named, so there are no groups.")
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
    frame = metrics.table.assign(
        positives=metrics.table["TP"] + metrics.table["FN"], negatives=metrics.table["FP"] + metrics.table["TN"]
    )
    overall = [_overall(frame, name) for name in metrics.classes]
    least = _least_ratios(metrics, inputs)
    tables = [*_local_law_144(inputs, metrics)]
    tables += [table for name in metrics.classes for table in _tables(inputs, frame, name)]
    hidden = len(tables) - _TABLES
    more = [f"{plural(hidden, 'more table')} like these stand in the CSV and JSON files beside this page."]
    return Section(
        "groups",
        title,
        purpose,
        headline=_headline(overall[0], least, metrics, inputs) if inputs.favourable is not None else "",
        findings=(*overall[:_SENTENCES], *least[:_SENTENCES], *_unranked(frame), *(more if hidden > 0 else ())),
        tables=(*tables[:_TABLES], *(replace(table, limit=0) for table in tables[_TABLES:])),
        limits=tuple(metrics.limits),
        measures=_measures(frame) if inputs.favourable is not None else (),
    )


def _tables(inputs: Inputs, frame: "pd.DataFrame", name: str) -> list[Table]:
    """Return for every attribute and intersection a table of selection, and one of errors where these are known."""
    of_class = frame[frame["class"] == name]
    tables = []
    for feature in dict.fromkeys(of_class["feature"]):
        if feature == "all":
            continue
        lines = of_class[of_class["feature"].isin(["all", feature])]
        rows = [_shown(row) for row in rows_of(lines)]
        unknown = sum(int(row["count"] or 0) for row in rows if row["unknown"])
        key = f"{feature}, {name}" if inputs.favourable is None else feature
        tables.append(
            Table(
                f"selection: {key}",
                f"{shown(feature)}: how often {shown(name)} is predicted.",
                f"Selected means predicted {shown(name)}. The impact ratio is a group's selection rate divided by that "
                "of the group selected most often; 1 means equal rates. The difference is one rate minus the other.",
                _SELECTION + (_BOUNDS if unknown else ()),
                tuple(rows),
                notes=(_unknown_note(unknown),) if unknown else (),
            )
        )
        if inputs.truth is not None:
            tables.append(
                Table(
                    f"errors: {key}",
                    f"{shown(feature)}: errors in predicting {shown(name)}.",
                    f"The false positive rate is the share predicted {shown(name)} among nodes whose true class is "
                    "another; the false negative rate the share not predicted so among those that truly are.",
                    _ERRORS,
                    tuple(rows),
                )
            )
    return tables


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """Return a line for readers: of the group that others are compared with, an interval of its ratio says nothing."""
    if row["reference"]:
        row |= dict.fromkeys(("ratio_low", "ratio_high", "difference_low", "difference_high"))
    return row | {"value": "all nodes" if row["feature"] == "all" else row["value"]}


def _local_law_144(inputs: Inputs, metrics: GroupMetrics) -> list[Table]:
    """Return the tables of New York's Local Law 144 (6 RCNY 5-301) where sex and race are among the attributes."""
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
                f"{part} categories, in the form of New York City's Local Law 144.",
                "The impact ratio is the selection rate of a category divided by that of the category selected most "
                "often. Categories below 2% of all are named and left out of the ratios, as the rules allow with the "
                "auditor's reasons; the last line counts those of unknown category.",
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


def _overall(frame: "pd.DataFrame", name: str) -> str:
    line = frame[(frame["class"] == name) & (frame["feature"] == "all")].iloc[0]
    text = f"{shown(name)} is predicted for {share(float(line['rate']))} of {plural(int(line['count']), 'node')}"
    if line["judged"]:
        right = share(float(line["accuracy"]))
        text += f"; {right} of {int(line['judged']):,} predictions with a known true class are right"
    return f"{text[:1].upper()}{text[1:]}."


def _least_ratios(metrics: GroupMetrics, inputs: Inputs) -> list[str]:
    found = []
    for line in rows_of(metrics.summary):
        of_class = "" if inputs.favourable is not None else f" for {shown(line['class'])}"
        limits = interval(line["ratio_low"], line["ratio_high"], "score")
        text = f"Impact ratio{of_class} by {shown(line['feature'])}: {line['verdict']}"
        if line["ratio"] is not None:
            text += f"; {score(line['ratio'])} for the group {shown(line['value'])} "
            text += f"(n = {line['count']:,}; {inputs.level} interval {limits})"
        found.append(f"{text}.")
    return found


def _headline(overall: str, least: list[str], metrics: GroupMetrics, inputs: Inputs) -> str:
    """Return the sentences for the summary: all nodes, each attribute, and the intersection with the least ratio."""
    known = list(zip(rows_of(metrics.summary), least, strict=True))
    alone = [sentence for row, sentence in known if row["feature"] in inputs.sensitive]
    crossed = [
        (row["ratio"], sentence)
        for row, sentence in known
        if row["feature"] not in inputs.sensitive and row["ratio"] is not None
    ]
    return " ".join([overall, *alone, *([min(crossed)[1]] if crossed else [])])


def _unranked(frame: "pd.DataFrame") -> list[str]:
    first = frame[frame["class"] == frame["class"].iloc[0]]
    small = first[~first["ranked"] & ~first["unknown"] & (first["feature"] != "all") & (first["count"] > 0)]
    if not len(small):
        return []
    some = [f"{shown(line['value'])} ({int(line['count']):,})" for line in small.head(8).to_dict("records")]
    more = f" and {len(small) - 8:,} more" if len(small) > 8 else ""
    return [f"Groups that are too small to be ranked: {', '.join(some)}{more}."]


def _unknown_note(unknown: int) -> str:
    return (
        f"For {plural(unknown, 'node')} the attribute is not known. The last two columns are the least and the largest "
        "impact ratio there could be, however these nodes were spread over the groups."
    )


def _measures(frame: "pd.DataFrame") -> tuple[Measure, ...]:
    measures = []
    for line in map(_shown, rows_of(frame[~frame["unknown"]])):
        everything = line["feature"] == "all"
        for metric, (key, n) in _METRICS.items():
            against_reference = metric in ("impact_ratio", "selection_rate_difference")
            if not (everything and against_reference):
                measure = Measure.of(metric, None if everything else line["feature"], line["value"], line, key, n)
                unranked = against_reference and not line["ranked"]
                measures.append(replace(measure, unjudged="the group is not ranked" if unranked else ""))
    return tuple(measures)
