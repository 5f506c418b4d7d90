"""Finders that compare by distance or inner product."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from reference import with_rows

import cfe_faiss as cfe
from cfe_faiss import EvidenceFinder, audit


def scattered(n=300, d=4, seed=0):
    """Return rows with many equal ones, of lognormal lengths, and their classes."""
    rng = np.random.default_rng(seed)
    X = (rng.normal(size=(n, d)) * rng.lognormal(0, 1, (n, 1))).astype(np.float32).round(1)
    X[n // 2 :] = X[rng.integers(0, n // 2, n - n // 2)]
    return X, rng.integers(0, 3, n)


def brute_force(X, labels, metric):
    """Return the distance, or minus the inner product, of each pair of different classes; else infinity."""
    x = X.astype(np.float64)
    away = np.sqrt(((x[:, None] - x) ** 2).sum(axis=2)) if metric == "l2" else -(x @ x.T)
    return np.where(labels[:, None] == labels, np.inf, away)


@pytest.mark.parametrize("index", [None, "EvidenceIVF8,Flat"])
@pytest.mark.parametrize("metric", ["l2", "ip"])
def test_results_equal_brute_force(metric, index):
    X, labels = scattered()
    finder = EvidenceFinder.from_vectors(X, labels, metric=metric, index=index)
    away, sign = brute_force(X, labels, metric), 1 if metric == "l2" else -1
    name = "distance" if metric == "l2" else "similarity"
    found = finder.local(k=5, exact=True)
    assert_allclose(sign * getattr(found, name), np.sort(away, axis=1)[:, :5], rtol=1e-6, atol=1e-6)
    frame = found.to_frame()
    expected = away[frame["node"], frame["evidence"]]
    assert_allclose(sign * frame[name], expected, rtol=1e-7, atol=1e-12)
    for _, part in frame.groupby("node"):
        assert (sign * part[name]).is_monotonic_increasing
    pairs = finder.top_pairs(200)
    best = np.sort(away[np.triu_indices(len(X), 1)])[:200]
    assert_allclose(sign * pairs.to_frame()[name], best, rtol=1e-6, atol=1e-12)
    equal = (X[pairs.source] == X[pairs.target]).all(axis=1)
    if metric == "l2":
        assert_array_equal(pairs.distance == 0, equal)
        assert_array_equal((pairs.distance**2).astype(np.float32), pairs.D)
    with pytest.raises(AttributeError, match=f"use {name}"):
        getattr(pairs, {"distance": "similarity", "similarity": "distance"}[name])
    assert name in repr(pairs)


@pytest.mark.parametrize("metric", ["cosine", "ip", "l2"])
def test_a_finder_takes_an_index_of_any_metric(metric):
    X, labels = scattered()
    index = with_rows(cfe.IndexEvidenceIDMap2(4, metric=metric), X, labels.astype(np.int32))
    finder = EvidenceFinder.from_index(index)
    expected = EvidenceFinder.from_vectors(X, labels, metric=metric)
    found = finder.top_pairs(50).to_frame()
    pd.testing.assert_frame_equal(found, expected.top_pairs(50).to_frame())
    empty = cfe.IndexEvidenceIDMap2(4, metric="l2" if metric == "cosine" else "cosine")
    with pytest.raises(ValueError, match=f"index must have metric '{metric}'"):
        EvidenceFinder.from_vectors(X, labels, metric=metric, index=empty)


def test_an_update_keeps_the_metric():
    X, labels = scattered(40)
    finder = EvidenceFinder.from_vectors(X, labels, metric="l2")
    row = np.float32([30, 1, 2, 3])
    finder, _ = finder.updated(
        x={3: row}, add_nodes=[row], predictions=[*labels, (labels[3] + 1) % 3]
    )
    first = finder.top_pairs(1000).to_frame().query("source == 3 and target == 40")
    assert first["distance"].tolist() == [0]
    assert_array_equal(finder.vectors[40], row)


def test_thresholds_are_in_the_unit_that_is_shown():
    X, _ = scattered(120)
    scores = np.random.default_rng(1).normal(size=120)
    near = EvidenceFinder.from_vectors(X, scores=scores, metric="l2")
    away = brute_force(X, np.arange(120), "l2")
    limit = float(np.unique(away)[300])  # the distance of a pair
    found = near.widest_pairs(10**4, distance=limit).to_frame()
    assert len(found) == int((away[np.triu_indices(120, 1)] <= limit).sum())
    assert found["distance"].max() == pytest.approx(limit, rel=1e-7)
    for wrong in ({"similarity": 0.5}, {}, {"distance": 1, "similarity": 0.5}, {"distance": -1}):
        with pytest.raises(ValueError, match="distance must"):
            near.widest_pairs(5, **wrong)
    with pytest.raises(ValueError, match="similarity must be given"):
        EvidenceFinder.from_vectors(X, scores=scores).widest_pairs(5, distance=0.5)

    labels = (scores > 0).astype(int)
    finder = EvidenceFinder.from_vectors(X, labels, metric="l2")
    last = finder.top_pairs(30).distance[-1]
    compared = audit.compare_models(finder, {"v2": 1 - labels}, threshold=float(last))
    assert compared.pairs["distance"].max() == pytest.approx(last)
    assert len(compared.pairs) >= 30


def test_the_page_of_a_row_has_the_distance():
    people = pd.DataFrame({"income": [10.0, 20, 40], "loan": ["no", "yes", "yes"]})
    finder = EvidenceFinder.from_table(people, "loan")
    deviation = people["income"].std(ddof=0)
    expected = ["", f"{10 / deviation:.5g}", f"{30 / deviation:.5g}"]
    assert finder.case(0).table.loc["Distance"].tolist() == expected


# --- audits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shift", [0, 1000])
def test_audits_depend_on_distances_only(shift):
    """A distance does not change if all rows move; a cosine does."""
    rng = np.random.default_rng(3)
    X = rng.integers(-3000, 3000, (240, 3)) / 1024  # exact in float32 after the shift
    people = {"sex": rng.choice(["f", "m"], 240), "age": rng.integers(20, 60, 240)}
    labels = (X[:, 0] + (people["sex"] == "f") + rng.normal(0, 0.5, 240) > 0).astype(int)
    still, moved = (
        EvidenceFinder.from_vectors(x, labels, features=people, metric="l2") for x in (X, X + shift)
    )
    question = {"attribute": "sex", "unfavourable": 0}
    for measure in (
        lambda finder: audit.consistency(finder)[["feature", "value", "share", "tied"]],
        audit.discrimination_scores,
        lambda finder: audit.situation_test(finder, protected="f", **question).table,
        lambda finder: audit.direction_test(finder, value="f", **question).pairs,
        lambda finder: audit.only_in(finder, ["sex"]).most_similar(20).table,
        lambda finder: pd.DataFrame(audit.similarity_graph(finder, 4).toarray()),
        lambda finder: pd.DataFrame(audit.ranking_ndcg(np.eye(2)[labels], finder).per_node),
        lambda finder: audit.error_rate_by_evidence(
            EvidenceFinder.from_index(finder.index, truth=np.roll(labels, 1)), ks=[10, 40]
        )[["k", "accuracy"]],
    ):
        pd.testing.assert_frame_equal(measure(still), measure(moved))


def test_the_nearest_of_each_class_decide_the_consistency():
    X, labels = scattered(80)
    finder = EvidenceFinder.from_vectors(X, labels, metric="l2")
    x = X.astype(np.float64)
    away = ((x[:, None] - x) ** 2).sum(axis=2)
    np.fill_diagonal(away, np.inf)
    same = np.where(labels[:, None] == labels, away, np.inf).min(axis=1)
    other = np.where(labels[:, None] != labels, away, np.inf).min(axis=1)
    assert audit.consistency(finder)["closer"].tolist() == [int((other < same).sum())]


@pytest.mark.filterwarnings("ignore:column 'income' determines")
def test_amounts_without_a_direct_effect_are_not_accused():
    """The decision is a threshold of one column that goes along with the attribute."""
    accused = 0
    for seed in range(4):
        rng = np.random.default_rng(seed)
        people = pd.DataFrame({"income": rng.normal(size=1000)})
        people["sex"] = np.where(
            rng.random(1000) < 1 / (1 + np.exp(-1.2 * people["income"])), "m", "f"
        )
        people["loan"] = np.where(people["income"] > 1.2, "yes", "no")
        finder = EvidenceFinder.from_table(people, "loan", sensitive=["sex"])
        accused += audit.direct_effects(finder, unfavourable="no").table["named"].any()
    assert accused <= 1


# --- missing values on both sides -------------------------------------------------------------------------------------


def with_missing(n=300):
    """Return a table in which the closest pairs of different decisions lack the income or the job on both sides."""
    rng = np.random.default_rng(2)
    people = pd.DataFrame({"income": rng.normal(40, 12, n), "age": rng.integers(20, 60, n) * 1.0})
    people["job"], people["sex"] = rng.choice(["cook", "smith"], n), rng.choice(["f", "m"], n)
    people["loan"] = np.where(people["income"] + 6 * (people["sex"] == "m") > 44, "yes", "no")
    for rows, column in ((slice(0, 6), "income"), (slice(6, 10), "job")):
        people.loc[people.index[rows], column] = np.nan
        people.loc[people.index[rows], "age"] = 40.0
    people.loc[:9, "loan"] = ["yes", "no"] * 5
    people.loc[6:9, "income"] = 40.0
    return people


@pytest.mark.filterwarnings("ignore:missing values")
def test_pairs_that_lack_a_column_on_both_sides_are_counted_and_never_the_strongest(tmp_path):
    people = with_missing()
    finder = EvidenceFinder.from_table(people, "loan", sensitive=["sex"])
    pairs = finder.top_pairs(40)
    lacks = people.isna().to_numpy()
    both = lacks[pairs.source] & lacks[pairs.target]
    expected = {name: both[:, j] for j, name in enumerate(people) if both[:, j].any()}
    assert set(expected) == {"income", "job"}
    assert pairs.both_lack.keys() == expected.keys()
    for name, mask in expected.items():
        assert_array_equal(pairs.both_lack[name], mask)
        assert f"{name} in {mask.sum()}" in repr(pairs)
    assert both[0].any()

    report = audit.report(finder, tmp_path / "r.html", favourable="yes", pairs=40, progress=False)
    sections = {section["id"]: section for section in report.numbers["sections"]}
    findings = " ".join(sections["pairs"]["findings"])
    for name, mask in expected.items():
        assert f"In {mask.sum()} of these 40 pairs the two both lack {name}" in findings
    rows = sections["pairs"]["tables"][0]["rows"]
    strongest = sections["strongest_case"]["findings"][0]
    places = [
        row["place"] - 1
        for row in rows
        if f"A ({row['node_a']})" in strongest and f"B ({row['node_b']})" in strongest
    ]
    assert len(places) == 1
    assert not both[places[0]].any()


# --- columns that leave with an attribute -----------------------------------------------------------------------------


def test_copies_leave_and_proxies_stay_by_name():
    rng = np.random.default_rng(4)
    place = rng.integers(0, 30, 400)
    people = pd.DataFrame({"zip": [f"z{i}" for i in place], "poverty": rng.random(30)[place]})
    people["region"] = np.array(["north", "south"])[place % 2]
    people["code"] = place + 10_000
    people["income"], people["loan"] = rng.normal(size=400), rng.choice(["yes", "no"], 400)
    finder = EvidenceFinder.from_table(people, "loan", without=["zip"])
    removed = finder.removed
    assert removed is not None
    assert removed.columns == ("zip", "code")
    assert [copy.column for copy in removed.copies] == ["code"]
    expected = {"poverty": 1, "region": 1}
    assert {proxy.column: round(proxy.strength, 2) for proxy in removed.proxies} == expected
    assert finder.vectors.shape[1] == 4  # poverty, two regions, income
    assert finder.attributes is not None
    assert list(finder.attributes) == ["zip", "poverty", "region", "code", "income"]


def test_a_copy_of_a_sensitive_attribute_stays_out_of_every_section(tmp_path):
    rng = np.random.default_rng(5)
    people = pd.DataFrame({"income": rng.normal(40, 12, 400), "sex": rng.choice(["f", "m"], 400)})
    people["gender"] = people["sex"].map({"f": "Female", "m": "Male"})
    people["loan"] = np.where(people["income"] - 8 * (people["sex"] == "f") > 38, "yes", "no")
    finder = EvidenceFinder.from_table(people, "loan", sensitive=["sex"])
    report = audit.report(finder, tmp_path / "r.html", favourable="yes", progress=False)
    sections = {section["id"]: section for section in report.numbers["sections"]}
    rows = sections["sensitivity"]["tables"][0]["rows"]
    assert "as reported" in [row["choice"] for row in rows]
    assert all(row["p_0"] is not None and row["p_0"] < 0.05 for row in rows)
    found = "gender"
    assert found in (tmp_path / "r.html").read_text().split("Left out of the comparison")[1][:200]
