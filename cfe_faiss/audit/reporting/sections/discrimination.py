"""Attributes whose values the evidence lacks more often than chance would give."""

from typing import Any

from cfe_faiss.audit.discrimination import discrimination_scores
from cfe_faiss.audit.reporting.document import Column, Figure, Measure, Section, Table
from cfe_faiss.audit.reporting.drawings import Dot, DotPlot
from cfe_faiss.audit.reporting.formats import plural, score, shown, signed
from cfe_faiss.audit.reporting.inputs import Inputs
from cfe_faiss.audit.reporting.rows import rows_of

_DRAWN = 30


def discrimination_section(inputs: Inputs) -> Section:
    """Return the discrimination scores (paper, section "Revealing Unfairness") beside what chance would give."""
    frame = discrimination_scores(
        inputs.finder,
        k=inputs.settings.k,
        bins=inputs.settings.bins,
        intersections=inputs.crossed,
        sensitive=[*inputs.sensitive, *(" & ".join(names) for names in inputs.crossed)],
        confidence=inputs.settings.confidence,
    )
    rows = rows_of(frame)
    exceeding = [row for row in rows if _number(row["difference_low"]) > 0]
    table = Table(
        "discrimination_scores",
        f"Discrimination scores of every value, {plural(inputs.settings.k, 'nearest evidence node')} per node",
        "The score is how often the differently predicted look-alikes of nodes with this value lack the value; above "
        "chance (difference and its interval above 0) the prediction tends to change together with the value.",
        (
            Column("feature", "Attribute"),
            Column("value", "Value"),
            Column("sensitive", "Sensitive", "flag"),
            Column("nodes", "n", "count"),
            Column("score", "Score", "score", ("low", "high"), "nodes"),
            Column("expected", "By chance", "score", None, "nodes"),
            Column("difference", "Score minus chance", "signed", ("difference_low", "difference_high"), "nodes"),
        ),
        tuple(rows),
        notes=("Numbers with more than ten values are cut into groups of about equal size.",),
    )
    return Section(
        "discrimination",
        "Attributes that exceed chance",
        "Do predictions change together with an attribute, among nodes that are otherwise alike?",
        headline=f"{len(exceeding):,} of {plural(len(rows), 'attribute value')} have scores above chance.",
        findings=_findings(inputs, rows, exceeding),
        tables=(table,),
        figures=_figures(inputs, rows, exceeding),
        limits=(
            "Selection: look-alikes are chosen for being similar. Where an attribute is part of the vectors that "
            "similarity is computed from, its scores fall below chance by that alone; compare values and models with "
            "each other then. To test one attribute, build the vectors without it.",
            "A score above chance is no proof of a cause: the attribute may stand for something that goes along with "
            "it.",
            f"Intervals hold with {inputs.level} confidence for each line alone. Among {plural(len(rows), 'line')} "
            f"about {len(rows) * (1 - inputs.settings.confidence) / 2:.0f} lie above chance by accident.",
        ),
        measures=_measures(rows),
    )


def _headline(rows: list[dict[str, Any]], exceeding: list[dict[str, Any]]) -> str:
    if not exceeding:
        return f"Of {plural(len(rows), 'attribute value')}, none has a discrimination score wholly above chance."
    first = exceeding[0]
    return (
        f"Of {plural(len(rows), 'attribute value')}, {len(exceeding):,} have a discrimination score above chance, "
        f"their whole interval included; most of all {_label(first)}: {score(_number(first['score']))} against "
        f"{score(_number(first['expected']))} by chance, n = {first['nodes']:,}."
    )


def _findings(inputs: Inputs, rows: list[dict[str, Any]], exceeding: list[dict[str, Any]]) -> tuple[str, ...]:
    findings = [_headline(rows, exceeding)]
    sensitive = [row for row in rows if row["sensitive"]]
    if sensitive:
        above = [row for row in sensitive if row in exceeding]
        named = ", ".join(
            f"{_label(row)} ({signed(_number(row['difference']))}, n = {row['nodes']:,})" for row in above[:6]
        )
        findings.append(
            f"Of {plural(len(sensitive), 'value')} of sensitive attributes, {len(above):,} exceed chance"
            + (f": {named}." if named else ".")
        )
    return tuple(findings)


def _figures(inputs: Inputs, rows: list[dict[str, Any]], exceeding: list[dict[str, Any]]) -> tuple[Figure, ...]:
    """Draw the sensitive values first, then those that differ most from chance, up or down."""
    known = [row for row in rows if row["score"] is not None]
    rest = sorted((row for row in known if not row["sensitive"]), key=lambda row: -_number(row["difference"]))
    drawn = ([row for row in known if row["sensitive"]] + rest)[:_DRAWN]
    if not drawn:
        return ()
    dots = tuple(
        Dot(_label(row), _number(row["score"]), _number(row["low"]), _number(row["high"]), _number(row["expected"]))
        for row in drawn
    )
    left_out = f" The {len(drawn)} first of {len(known)} are drawn." if len(drawn) < len(known) else ""
    return (
        Figure(
            "discrimination_plot",
            f"Score (dot), its {inputs.level} interval (line) and what chance would give (upright bar); sensitive "
            f"attributes first, then the others, most above chance first.{left_out}",
            f"Dot plot of discrimination scores: {len(exceeding)} of {len(rows)} values have their whole interval "
            "above chance.",
            DotPlot(dots, "Discrimination score"),
        ),
    )


def _measures(rows: list[dict[str, Any]]) -> tuple[Measure, ...]:
    return tuple(Measure.of("excess", row["feature"], row["value"], row, "difference", "nodes") for row in rows)


def _label(row: dict[str, Any]) -> str:
    return f"{shown(row['feature'], 40)}: {shown(row['value'], 40)}"


def _number(value: Any) -> float:
    return float("nan") if value is None else float(value)
