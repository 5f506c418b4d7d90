from audit_report_helpers import table_of

from cfe_faiss import audit


def test_the_curve_is_that_of_the_function(audited):
    curve = audit.error_rate_by_evidence(audited.finder)
    rows = table_of(audited.report, "errors", "errors_by_evidence")["rows"]
    for name in ("k", "pairs", "nodes", "errors", "accuracy", "low", "high", "overall"):
        assert [row[name] for row in rows] == curve[name].tolist()


def test_the_accuracy_of_all_nodes_is_a_measure(audited):
    (check,) = [
        check for check in audited.report.checks if check.condition.metric == "overall_accuracy"
    ]
    right = audited.finder.labels == audited.data.y.numpy()
    assert (check.value, check.n, check.group) == (right.mean(), len(right), "all nodes")
