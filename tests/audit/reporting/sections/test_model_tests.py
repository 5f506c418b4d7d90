import numpy as np
import pytest
from audit_report_helpers import inputs_of, model, recorded, rows_of, section_of

import cfe_faiss as cfe
from cfe_faiss import audit
from cfe_faiss.audit.reporting.sections.variations import _without_each


def test_pairs_that_differ_in_one_attribute(audited):
    rows = rows_of(audited.report, "only_in", "only_in")
    for name in ("member", "sex", "race"):
        test = audit.only_in(audited.finder, [name])
        first = next(row for row in rows if row["attribute"] == name)
        assert (first["pairs"], first["different"]) == (test.pairs, test.different)
        assert first["agreement"] == f"all but {name}"
        assert first["equal_pairs"] == int(test.table["pairs"].iloc[1])
    unknown = audited.people["sex"].isna().sum()
    assert (
        f"{unknown} nodes with an unknown attribute could not be compared."
        in recorded(audited.report, "only_in")["findings"]
    )


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


def test_the_share_of_equal_pairs_stands_beside_that_of_pairs_in_one_attribute():
    rng = np.random.default_rng(0)
    people = {"sex": rng.choice(["f", "m"], 200), "job": rng.choice(["a", "b", "c"], 200)}
    labels = (rng.random(200) < np.where(people["sex"] == "f", 0.3, 0.6)).astype(int)
    finder = cfe.EvidenceFinder.from_vectors(
        rng.normal(size=(200, 3)), labels, features=people, sensitive=["sex"]
    )
    inputs = inputs_of(finder, None, 1, k=3, pairs=5, cases=2)
    found = section_of(inputs, "only_in")
    (row,) = found.tables[0].rows
    by_job = [
        labels[(people["job"] == job) & (people["sex"] == sex)] for job in "abc" for sex in "fm"
    ]
    pairs = sum(len(one) * (len(one) - 1) // 2 for one in by_job)
    assert (row["equal_pairs"], row["expected"]) == (pairs, pytest.approx(row["expected"]))
    assert (
        f"expected: {100 * row['expected']:.1f}% of {pairs:,} pairs that agree in all attributes"
        in found.headline
    )
    assert found.described == (found.headline,)


@pytest.mark.parametrize(("n", "d"), [(60_000, 10), (6_000, 1_000)])
def test_columns_are_left_out_while_neighbours_and_fits_take_bounded_time(n, d):
    rng = np.random.default_rng(0)
    names = [f"c{i}" for i in range(d)]
    refused = rng.random(n) < 0.5
    X = rng.normal(size=(n, d))
    few, many = (len(_without_each(X[::step], names, refused[::step])) for step in (1, 60))
    assert 1 <= few < 10 <= many <= 40
