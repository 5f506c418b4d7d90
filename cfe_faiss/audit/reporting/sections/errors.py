"""How often the model is right among the closest pairs."""

from cfe_faiss.audit.errors import error_rate_by_evidence
from cfe_faiss.audit.reporting.document import Column, Figure, Measure, Section, Table
from cfe_faiss.audit.reporting.drawings import Curve
from cfe_faiss.audit.reporting.formats import interval, share
from cfe_faiss.audit.reporting.inputs import Inputs
from cfe_faiss.audit.reporting.rows import rows_of

_POINTS = (10, 20, 50, 100, 200, 500, 1000)


def errors_section(inputs: Inputs) -> Section:
    """Return the accuracy within the closest pairs (paper, section "Verifying Prediction Errors")."""
    title = "Errors within the closest evidence"
    purpose = "Is the model wrong more often where like nodes are predicted differently?"
    if inputs.truth is None:
        return Section("errors", title, purpose, missing="No true classes are known, so errors cannot be counted.")
    frame = error_rate_by_evidence(inputs.finder, ks=_POINTS, confidence=inputs.settings.confidence)
    rows = [row for row in rows_of(frame) if row["accuracy"] is not None]
    if not rows:
        return Section(
            "errors", title, purpose, missing="None of the closest pairs has a node whose true class is known."
        )
    first, overall = rows[min(3, len(rows) - 1)], rows[0]["overall"]
    found = (
        f"Among the nodes of the {first['pairs']:,} closest pairs, {share(first['accuracy'])} of {first['nodes']:,} "
        f"predictions are right ({inputs.level} interval {interval(first['low'], first['high'], 'share')}); among all "
        f"{rows[0]['overall_nodes']:,} nodes with a known true class it is {share(overall)}."
    )
    table = Table(
        "errors_by_evidence",
        "Accuracy among the nodes of the closest pairs",
        "Each line takes more pairs than the one before, the closest first; compare its accuracy with that over all "
        "nodes in the last columns.",
        (
            Column("k", "Closest pairs asked for", "count"),
            Column("pairs", "Pairs there are", "count"),
            Column("nodes", "n with true class", "count"),
            Column("errors", "Errors", "count"),
            Column("accuracy", "Accuracy", "share", ("low", "high"), "nodes"),
            Column("overall", "Accuracy, all nodes", "share", None, "overall_nodes"),
            Column("overall_nodes", "n, all nodes", "count"),
        ),
        tuple(rows),
    )

    def column(name: str) -> tuple[float, ...]:
        return tuple(float(row[name]) for row in rows)

    curve = Curve(
        column("k"),
        column("accuracy"),
        column("low"),
        column("high"),
        float(overall or 0),
        "all nodes",
        "Closest pairs taken",
        "Accuracy",
    )
    figure = Figure(
        "errors_curve",
        f"Accuracy among the nodes of the closest pairs (dots) with its {inputs.level} band; dashed: accuracy over all "
        "nodes.",
        f"Curve of accuracy: {found}",
        curve,
    )
    return Section(
        "errors",
        title,
        purpose,
        headline=(
            f"Among the nodes of the {first['pairs']:,} closest pairs {share(first['accuracy'])} of {first['nodes']:,} "
            f"predictions are right, among all {share(overall)}."
        ),
        findings=(found,),
        tables=(table,),
        figures=(figure,),
        limits=(
            "Selection: the pairs are close and predicted differently. Where both nodes of a pair have the same true "
            "class, one prediction is wrong by construction; so a low accuracy says that the model's border runs "
            "through like nodes, not that likeness makes it err.",
            "The points of the curve contain each other, and the two nodes of a pair are not independent: read the "
            "band point by point, and as a guide.",
            "No conditions are set on these pairs: they are the closest of all.",
        ),
        measures=(
            Measure("overall_accuracy", None, "all nodes", float(overall or 0), int(rows[0]["overall_nodes"] or 0)),
        ),
    )
