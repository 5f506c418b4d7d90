"""How often the model is right among the closest pairs."""

from cfe_faiss.audit.errors import error_rate_by_evidence
from cfe_faiss.audit.reporting.document import Column, Measure, Section, Table
from cfe_faiss.audit.reporting.drawings import Plot
from cfe_faiss.audit.reporting.formats import interval, share
from cfe_faiss.audit.reporting.inputs import Inputs
from cfe_faiss.audit.reporting.rows import rows_of

_POINTS = (10, 20, 50, 100, 200, 500, 1000)


def errors_section(inputs: Inputs) -> Section:
    """Return the accuracy within the closest pairs (paper, section "Verifying Prediction Errors")."""
    title = "Errors within the closest pairs"
    purpose = "Is the model wrong more often where close neighbours are decided differently?"
    if inputs.truth is None:
        return Section("errors", title, purpose, missing="No true classes are known.")
    frame = error_rate_by_evidence(inputs.finder, ks=_POINTS, confidence=inputs.settings.confidence)
    rows = [row for row in rows_of(frame) if row["accuracy"] is not None]
    if not rows:
        return Section("errors", title, purpose, missing="No true class is known within the closest pairs.")
    first, overall = rows[min(3, len(rows) - 1)], rows[0]["overall"]
    found = (
        f"Within the {first['pairs']:,} closest pairs {share(first['accuracy'])} of {first['nodes']:,} decisions are "
        f"right ({inputs.level} interval {interval(first['low'], first['high'], 'share')}; expected if errors were "
        f"exchanged among near neighbours: {share(first['expected'])}; all: {share(overall)})."
    )
    ends = [row[key] for row in rows for key in ("low", "expected")]
    scale = Plot.around([*ends, 1.0], (float(overall or 0),), expected="expected")
    table = Table(
        "errors_by_evidence",
        "Share of right decisions within the closest pairs",
        f"Each line takes more pairs than the one before, the closest first. Dashed line: the share over all "
        f"{rows[0]['overall_nodes']:,} {inputs.people} with a known true class. Upright bar and “expected”: the share "
        "if errors were exchanged among near neighbours.",
        (
            Column("pairs", "Closest pairs", "count"),
            Column("nodes", "n with true class", "count"),
            Column("errors", "Errors", "count"),
            Column("accuracy", "Right", "share", ("low", "high"), "nodes", scale),
            Column("expected", "Expected", "share", ("expected_low", "expected_high"), "nodes"),
        ),
        tuple(rows),
    )
    return Section(
        "errors",
        title,
        purpose,
        headline=found,
        tables=(table,),
        limits=(
            "The pairs are close and decided differently. Where both sides have the same true class, one decision is "
            "wrong by construction: a low share says that the model's border runs through close neighbours, not that "
            "closeness makes it err.",
            "Each line contains the one above, and the two sides of a pair are not independent: read the intervals as "
            "a guide.",
        ),
        measures=(
            Measure(
                "overall_accuracy",
                None,
                f"all {inputs.people}",
                float(overall or 0),
                int(rows[0]["overall_nodes"] or 0),
                rows[0]["overall_low"],
                rows[0]["overall_high"],
            ),
        ),
    )
