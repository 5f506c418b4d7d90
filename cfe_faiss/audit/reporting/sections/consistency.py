"""How often a person is closer to another class than to their own."""

from cfe_faiss.audit.fairness import consistency
from cfe_faiss.audit.reporting.document import Column, Measure, Section, Table
from cfe_faiss.audit.reporting.drawings import Plot
from cfe_faiss.audit.reporting.formats import group_name, interval, share
from cfe_faiss.audit.reporting.inputs import Inputs
from cfe_faiss.audit.reporting.rows import rows_of


def consistency_section(inputs: Inputs) -> Section:
    """Return the share of people who are decided differently from their nearest neighbour."""
    title, people = "Consistency", inputs.people
    purpose = f"How often is a {inputs.person} decided differently from the nearest neighbour?"
    frame = consistency(
        inputs.finder,
        columns=inputs.sensitive,
        intersections=inputs.crossed,
        bins=inputs.settings.bins,
        confidence=inputs.settings.confidence,
    )
    rows = rows_of(frame)
    for row in rows:
        row["group"] = f"all {people}" if row["feature"] == "all" else group_name(row["feature"], row["value"])
    whole = rows[0]
    if not whole["nodes"]:
        reason = f"No {inputs.person} has a neighbour with the same decision and one with another decision."
        return Section("consistency", title, purpose, missing=reason)
    found = (
        f"{share(whole['share'])} of {whole['nodes']:,} {people} are decided differently from their nearest neighbour "
        f"({inputs.level} interval {interval(whole['low'], whole['high'], 'share')}; expected if decisions were "
        f"exchanged among near neighbours: {share(whole['expected'])})."
    )
    table = Table(
        "consistency",
        f"{people.capitalize()} closer to one with another decision than to any with the same",
        "0 says that everyone is decided as the nearest neighbour is. Upright bar and “expected”: the share if "
        "decisions were exchanged among near neighbours.",
        (
            Column("group", "Group"),
            Column("nodes", "n", "count"),
            Column("closer", "Closer to another", "count"),
            Column(
                "share",
                "Share",
                "share",
                ("low", "high"),
                "nodes",
                Plot((0.0, 0.25, 0.5, 0.75, 1.0), expected="expected"),
            ),
            Column("expected", "Expected", "share", ("expected_low", "expected_high"), "nodes"),
            Column("tied", "With ties", "count"),
        ),
        tuple(rows),
    )
    return Section(
        "consistency",
        title,
        purpose,
        headline=found,
        tables=(table,),
        limits=(
            "One minus the consistency of Zemel et al. (2013) with one neighbour. A high share does not say which of "
            "the two decisions is wrong.",
            f"{people.capitalize()} share neighbours and are not independent: the intervals are rather too narrow.",
        ),
        measures=tuple(
            Measure.of(
                "consistency",
                None if row["feature"] == "all" else row["feature"],
                row["group"] if row["feature"] == "all" else row["value"],
                row,
                "share",
                "nodes",
            )
            for row in rows
        ),
    )
