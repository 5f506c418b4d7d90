from audit_report_helpers import table_of

from cfe_faiss import audit


def test_scores_are_those_of_the_function(audited):
    crossed = [("member", "sex"), ("member", "race"), ("sex", "race")]
    sensitive = ["member", "sex", "race", *map(" & ".join, crossed)]
    scores = audit.discrimination_scores(
        audited.finder, k=10, intersections=crossed, sensitive=sensitive
    )
    rows = table_of(audited.report, "discrimination", "discrimination_scores")["rows"]
    assert [(row["feature"], row["value"]) for row in rows] == list(
        zip(scores["feature"], scores["value"], strict=True)
    )
    for name in ("score", "expected", "difference", "nodes", "sensitive"):
        assert [row[name] for row in rows] == scores[name].tolist()


def test_the_score_is_a_description_and_never_a_headline(audited):
    numbers = audited.report.numbers
    assert not [line for line in [*numbers["named"], *numbers["described"]] if "score" in line]
    section = next(part for part in numbers["sections"] if part["id"] == "discrimination")
    assert any("not a test" in limit for limit in section["limits"])
