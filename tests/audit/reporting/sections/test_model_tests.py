import numpy as np
import pytest
from audit_report_helpers import model, table_of

from cfe_faiss import audit


def section_of(audited, name):
    return next(part for part in audited.report.numbers["sections"] if part["id"] == name)


def test_pairs_that_differ_in_one_attribute(audited):
    rows = table_of(audited.report, "only_in", "only_in")["rows"]
    for name in ("member", "sex", "race"):
        test = audit.only_in(audited.finder, [name])
        first = next(row for row in rows if row["attribute"] == name)
        assert (first["pairs"], first["different"]) == (test.pairs, test.different)
        assert first["agreement"] == f"all but {name}"
    unknown = audited.people["sex"].isna().sum()
    assert (
        f"{unknown} nodes with a missing attribute could not be compared." in section_of(audited, "only_in")["findings"]
    )


@pytest.mark.parametrize("how", ["one node at a time", "all nodes at once"])
def test_flips_are_those_of_a_loop(audited, how):
    x, edges = audited.data.x, audited.data.edge_index
    before = model(x, edges).numpy()
    changed = np.zeros(len(x), bool)
    for node in range(len(x)):
        other = x.clone()
        rows = slice(None) if how == "all nodes at once" else node
        other[rows, 0] = 1 - other[rows, 0]
        changed[node] = model(other, edges).numpy()[node] != before[node]
    assert changed.any()
    rows = table_of(audited.report, "flip", "flip")["rows"]
    found = {(row["value"], row["flipped"]): row for row in rows if row["how"] == how and row["attribute"] == "member"}
    assert (found["all", "all"]["changed"], found["all", "all"]["nodes"]) == (changed.sum(), len(x))
    of_members = audited.people["member"].to_numpy() == 1
    assert found["1", "0"]["changed"] == changed[of_members].sum()


def test_what_the_model_does_not_read_cannot_be_flipped(audited):
    findings = section_of(audited, "flip")["findings"]
    assert "sex is not among the features that the model reads: it cannot be flipped." in findings


def test_situations_are_those_of_the_function(audited):
    rows = table_of(audited.report, "situation", "situation")["rows"]
    by_group = {(row["attribute"], row["group"]): row for row in rows}
    test = audit.situation_test(audited.finder, attribute="sex", protected="f", unfavourable=0)
    row = by_group["sex", "f"]
    assert (row["nodes"], row["unfavourable"], row["flagged"]) == (test.n_carriers, test.judged, test.flagged)
    for name, value in (("p", test.p_value), ("effect", test.effect), ("expected", test.expected)):
        assert row[name] == (None if np.isnan(value) else value)
    assert row["verdict"] == test.verdict
    assert {attribute for attribute, _ in by_group} == {"member", "sex", "race"}
