from audit_report_helpers import table_of

from cfe_faiss import audit


def test_shares_are_those_of_the_function(audited):
    crossed = [("member", "sex"), ("member", "race"), ("sex", "race")]
    shares = audit.consistency(
        audited.finder, columns=["member", "sex", "race"], intersections=crossed
    )
    rows = table_of(audited.report, "consistency", "consistency")["rows"]
    assert rows[0]["group"] == "all nodes"
    for name in ("share", "low", "high", "expected", "nodes", "closer", "tied"):
        expected = [None if value != value else value for value in shares[name].tolist()]
        assert [row[name] for row in rows] == expected
