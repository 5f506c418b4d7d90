import numpy as np
import pytest
from audit_report_helpers import model, rows_of

from cfe_faiss.audit.reporting.sections.variations import _without_each


@pytest.mark.parametrize("how", ["one at a time", "all at once"])
def test_flips_are_those_of_a_loop(audited, how):
    x, edges = audited.data.x, audited.data.edge_index
    before = model(x, edges).numpy()
    changed = np.zeros(len(x), bool)
    for node in range(len(x)):
        other = x.clone()
        rows = slice(None) if how == "all at once" else node
        other[rows, 0] = 1 - other[rows, 0]
        changed[node] = model(other, edges).numpy()[node] != before[node]
    assert changed.any()
    rows = rows_of(audited.report, "flip", "flip")
    found = {
        (row["value"], row["flipped"]): row
        for row in rows
        if row["how"] == how and row["attribute"] == "member"
    }
    assert (found["all", "all"]["changed"], found["all", "all"]["nodes"]) == (changed.sum(), len(x))
    of_members = audited.people["member"].to_numpy() == 1
    assert found["1", "0"]["changed"] == changed[of_members].sum()


@pytest.mark.parametrize(("n", "d"), [(60_000, 10), (6_000, 1_000)])
def test_columns_are_left_out_while_neighbours_and_fits_take_bounded_time(n, d):
    rng = np.random.default_rng(0)
    names = [f"c{i}" for i in range(d)]
    refused = rng.random(n) < 0.5
    X = rng.normal(size=(n, d))
    few, many = (len(_without_each(X[::step], names, refused[::step])) for step in (1, 60))
    assert 1 <= few < 10 <= many <= 40
