from audit_report_helpers import table_of

from cfe_faiss import audit


def test_scores_are_those_of_the_function(audited):
    crossed = [("member", "sex"), ("member", "race"), ("sex", "race")]
    sensitive = ["member", "sex", "race", *map(" & ".join, crossed)]
    scores = audit.discrimination_scores(audited.finder, k=10, intersections=crossed, sensitive=sensitive)
    rows = table_of(audited.report, "discrimination", "discrimination_scores")["rows"]
    assert [(row["feature"], row["value"]) for row in rows] == list(
        zip(scores["feature"], scores["value"], strict=True)
    )
    for name in ("score", "expected", "difference_low", "nodes", "sensitive"):
        assert [row[name] for row in rows] == scores[name].tolist()


def test_what_exceeds_chance_is_counted(audited):
    section = next(part for part in audited.report.numbers["sections"] if part["id"] == "discrimination")
    rows = section["tables"][0]["rows"]
    above = sum(row["difference_low"] is not None and row["difference_low"] > 0 for row in rows)
    said = section["findings"][0]
    assert said.startswith(f"Of {len(rows)} attribute values, {f'{above} have' if above else 'none has'}")
