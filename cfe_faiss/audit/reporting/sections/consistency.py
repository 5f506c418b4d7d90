"""How often a node is closer to another class than to its own."""

from cfe_faiss.audit.fairness import consistency
from cfe_faiss.audit.reporting.document import Column, Measure, Section, Table
from cfe_faiss.audit.reporting.formats import interval, share
from cfe_faiss.audit.reporting.inputs import Inputs
from cfe_faiss.audit.reporting.rows import rows_of


def consistency_section(inputs: Inputs) -> Section:
    """Return the share of nodes that are treated differently from the node most like them."""
    title = "Consistency"
    purpose = "How often is a node predicted differently from the node that is most like it?"
    frame = consistency(
        inputs.finder,
        columns=inputs.sensitive,
        intersections=inputs.crossed,
        bins=inputs.settings.bins,
        confidence=inputs.settings.confidence,
    )
    rows = rows_of(frame)
    whole = rows[0]
    if not whole["nodes"]:
        reason = "No node has both a node of its own class and one of another class to compare it with."
        return Section("consistency", title, purpose, missing=reason)
    found = (
        f"{share(whole['share'])} of {whole['nodes']:,} nodes are predicted differently from the node most like them "
        f"({inputs.level} interval {interval(whole['low'], whole['high'], 'share')}); if predictions had nothing to do "
        f"with likeness it would be {share(whole['expected'])}."
    )
    table = Table(
        "consistency",
        "Nodes that are closer to a differently predicted node than to any node predicted alike",
        "A share of 0 means that every node is predicted as the node most like it is; the column by chance says what "
        "predictions made blindly would give.",
        (
            Column("feature", "Attribute"),
            Column("value", "Group"),
            Column("nodes", "n", "count"),
            Column("closer", "Closer to another class", "count"),
            Column("share", "Share", "share", ("low", "high"), "nodes"),
            Column("expected", "By chance", "share", None, "nodes"),
            Column("tied", "n with ties", "count"),
        ),
        tuple({**row, "feature": "all nodes" if row["feature"] == "all" else row["feature"]} for row in rows),
    )
    measures = tuple(
        Measure.of("consistency", None, "all nodes", row, "share", "nodes")
        if row["feature"] == "all"
        else Measure.of("consistency", row["feature"], row["value"], row, "share", "nodes")
        for row in rows
    )
    return Section(
        "consistency",
        title,
        purpose,
        headline=(
            f"{share(whole['share'])} of {whole['nodes']:,} nodes are predicted differently from the node most like "
            f"them (by chance {share(whole['expected'])})."
        ),
        findings=(found,),
        tables=(table,),
        limits=(
            "It is one minus the consistency of Zemel et al. (2013) with one neighbour. A high share says that "
            "predictions change among like nodes, not which of the two predictions is wrong.",
            "Nodes share neighbours, so they are not independent: the intervals are rather too narrow.",
        ),
        measures=measures,
    )
