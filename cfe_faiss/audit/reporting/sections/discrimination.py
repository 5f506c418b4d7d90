"""Discrimination scores: attributes whose values the evidence lacks more often than chance would give."""

from cfe_faiss.audit.discrimination import discrimination_scores
from cfe_faiss.audit.reporting.document import Column, Section, Table
from cfe_faiss.audit.reporting.drawings import Plot
from cfe_faiss.audit.reporting.formats import group_name, plural
from cfe_faiss.audit.reporting.inputs import Inputs
from cfe_faiss.audit.reporting.rows import rows_of


def discrimination_section(inputs: Inputs) -> Section:
    """Return the discrimination scores (paper, section "Revealing Unfairness") as a description."""
    frame = discrimination_scores(
        inputs.finder,
        k=inputs.settings.k,
        bins=inputs.settings.bins,
        intersections=inputs.crossed,
        sensitive=[*inputs.sensitive, *(" & ".join(names) for names in inputs.crossed)],
    )
    rows = [row | {"group": group_name(row["feature"], row["value"])} for row in rows_of(frame)]
    table = Table(
        "discrimination_scores",
        f"Discrimination score of each value, {plural(inputs.settings.k, 'nearest neighbour')} with another decision",
        f"The score is how often these neighbours of {inputs.people} with the value lack it. Upright bar and "
        "“expected”: the score if the value had nothing to do with decisions.",
        (
            Column("group", "Value"),
            Column("nodes", "n", "count"),
            Column(
                "score",
                "Score",
                "score",
                None,
                "nodes",
                Plot((0.0, 0.25, 0.5, 0.75, 1.0), expected="expected"),
            ),
            Column("expected", "Expected", "score", None, "nodes"),
            Column("difference", "Difference", "signed", None, "nodes"),
        ),
        tuple(rows),
        limit=30,
    )
    return Section(
        "discrimination",
        "Discrimination scores",
        "Do decisions and attributes change together among close neighbours?",
        headline=f"Scores of {plural(len(rows), 'attribute value')}: a description, not a test.",
        tables=(table,),
        limits=(
            "The score has no direction and is not a test: bias against one group need not raise it. The tests above "
            "are the place for findings.",
            "Where an attribute is part of the vectors, its scores fall below the expected ones by that alone.",
            "Numbers with more than ten values are cut into groups of about equal size.",
        ),
    )
