from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import false_discovery_control
from simulated_people import REFUSED, finder_of, simulated

import cfe_faiss as cfe
from cfe_faiss import audit
from cfe_faiss.audit import adjusted_p_values


@given(p=st.lists(st.floats(0, 1), min_size=1, max_size=40))
def test_adjusted_p_values_are_scipys_and_pass_over_nan(p):
    np.testing.assert_array_equal(adjusted_p_values(p), false_discovery_control(p))
    with_gaps = adjusted_p_values([np.nan, *p, np.nan])
    np.testing.assert_array_equal(with_gaps[1:-1], adjusted_p_values(p))
    assert np.isnan(with_gaps[[0, -1]]).all()


def test_p_values_must_be_chances():
    for wrong in ([1.5], [[0.5]], [-0.1]):
        with pytest.raises(ValueError, match="p must have shape"):
            adjusted_p_values(wrong)
    assert adjusted_p_values([]).shape == (0,)


@pytest.fixture(scope="module")
def finder():
    people = simulated(1, 800, harm=0.6)
    rng = np.random.default_rng(0)
    town = rng.choice(np.array(["a", "b", "c", None], dtype=object), 800, p=[0.5, 0.3, 0.01, 0.19])
    return finder_of(people, town=town, age=rng.integers(18, 90, 800))


@pytest.fixture(scope="module")
def effects(finder):
    return audit.direct_effects(
        finder,
        sensitive=["sex", "town"],
        unfavourable=REFUSED,
        intersections=[("sex", "age")],
        bins={"age": [40]},
        others={"rates of sex": 0.001, "rates of town": np.nan},
    )


def test_all_values_and_intersections_are_tested_twice(effects):
    table = effects.to_frame()
    tested = table[["attribute", "value"]].drop_duplicates().itertuples(index=False, name=None)
    crossed = ["f & <= 40", "f & > 40", "m & <= 40", "m & > 40"]
    assert set(tested) == {
        *(("sex", value) for value in "fm"),
        *(("town", value) for value in "abc"),
        *(("sex & age", value) for value in crossed),
    }
    tests = table.groupby(["attribute", "value"])["test"].apply(sorted)
    assert tests.map(tuple).unique().tolist() == [("direction", "situation")]
    in_towns = table[table["attribute"] == "town"]["n_carriers"].sum() // 2
    assert effects.unknown == {"sex": 0, "town": 800 - in_towns, "sex & age": 0}
    assert effects.n == 800


def test_lines_are_those_of_the_single_tests(finder, effects):
    for row in effects.table.itertuples():
        if row.attribute == "sex & age":
            continue
        one: Any
        if row.test == "direction":
            one = audit.direction_test(
                finder, attribute=row.attribute, value=row.value, unfavourable=REFUSED
            )
            np.testing.assert_equal((row.against, row.in_favour), (one.against, one.in_favour))
        else:
            one = audit.situation_test(
                finder, attribute=row.attribute, protected=row.value, unfavourable=REFUSED
            )
        assert (row.n_carriers, row.reason) == (one.n_carriers, one.reason)
        np.testing.assert_allclose(
            (row.p, row.statistic, row.effect, row.n_effective),
            (one.p_value, one.statistic, one.effect, one.n_effective),
            rtol=1e-6,  # sums of two contrasts at once, or of one
        )


def test_one_family_over_what_can_tell_and_other_p_values(effects):
    table = effects.table
    rare = table[table["value"] == "c"]
    assert (rare["verdict"] == "cannot tell").all()
    assert rare[["p", "q"]].isna().all(axis=None)
    told = table[table["verdict"] != "cannot tell"]
    q = false_discovery_control([*told["p"], 0.001])
    np.testing.assert_allclose(told["q"], q[:-1])
    assert effects.others["rates of sex"] == pytest.approx(q[-1])
    assert np.isnan(effects.others["rates of town"])
    assert (table["named"] == (table["q"] <= 0.05)).all()
    assert (table["named"] == table["verdict"].isin(["disadvantaged", "advantaged"])).all()
    assert (table["gamma"].notna() == table["named"] & (table["test"] == "direction")).all()
    verdicts = table[table["attribute"] == "sex"].set_index(["value", "test"])["verdict"]
    assert (verdicts["f"] == "disadvantaged").all()
    assert (verdicts["m"] == "advantaged").all()
    assert not table[table["attribute"] == "town"]["named"].any()
    found = repr(effects)
    assert found == f"DirectEffects(18 tests, {len(told)} can tell, {table['named'].sum()} named)"


def test_the_finders_sensitive_attributes_are_the_default(finder):
    with pytest.raises(ValueError, match="sensitive must name attributes"):
        audit.direct_effects(finder, unfavourable=REFUSED)
    people = simulated(1, 200)
    named = cfe.EvidenceFinder.from_vectors(
        people["X"], people["labels"], features={"sex": people["carries"]}, sensitive=["sex"]
    )
    effects = audit.direct_effects(named, unfavourable=REFUSED, nodes=np.arange(150))
    assert effects.table["attribute"].unique().tolist() == ["sex"]
    assert effects.n == 150


def test_errors(finder):
    for changes, error, message in (
        ({"sensitive": "sex"}, TypeError, "sensitive must be a sequence"),
        ({"sensitive": ["town", "sx"]}, ValueError, "did you mean 'sex'"),
        ({"unfavourable": "granted"}, ValueError, "unfavourable must be among the classes"),
        ({"fdr": 1.5}, ValueError, "fdr must lie"),
        ({"k": 0}, ValueError, "k must be at least 1"),
        ({"others": {"rates": 2.0}}, ValueError, r"others\['rates'\] must lie in \[0, 1\]"),
        ({"intersections": [("sex",)]}, ValueError, "intersections must name two"),
    ):
        with pytest.raises(error, match=message):
            audit.direct_effects(
                finder, **{"sensitive": ["sex"], "unfavourable": REFUSED} | changes
            )


def test_the_order_of_rows_does_not_matter_among_equal_vectors():
    rng = np.random.default_rng(0)
    n = 400
    skills = rng.integers(0, 3, (n, 4)).astype(np.float32)
    people = {"sex": rng.choice(["f", "m"], n), "town": rng.choice(["x", "y", "z"], n)}
    refused = skills.sum(axis=1) + rng.normal(size=n) + (people["sex"] == "f") > 4
    other = skills.sum(axis=1) + rng.normal(size=n) > 4
    found = []
    for order in (np.arange(n), rng.permutation(n), np.argsort(people["sex"])):
        features = {name: values[order] for name, values in people.items()}
        finder = cfe.EvidenceFinder.from_vectors(
            skills[order], refused[order].astype(int), features=features, sensitive=["sex", "town"]
        )
        effects = audit.direct_effects(finder, unfavourable=1).table
        changes = audit.compare_models(
            finder, {"v2": other[order].astype(int)}, unfavourable=1
        ).table
        found.append([table.to_csv(index=False) for table in (effects, changes)])
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize(
    ("planted", "findings"),
    [
        ([("race", "black")], {("race", "black")}),
        ([("race", "black"), ("sex", "f")], {("race", "black"), ("sex", "f")}),
        ([("race & sex", "black & f")], {("race & sex", "black & f")}),
        ([], set()),
    ],
)
def test_one_cause_is_one_finding(planted, findings):
    """Mirror images, unions and parts of the same people are folded into the finding that explains them."""
    n, rng = 2000, np.random.default_rng(0)
    X = rng.normal(size=(n, 4))
    race = rng.choice(["black", "white", "asian", "other"], n, p=[0.3, 0.4, 0.2, 0.1])
    sex = rng.choice(["f", "m"], n)
    region = np.where(rng.random(n) < np.where(race == "black", 0.95, 0.2), "south", "north")
    people = {"race": race, "sex": sex, "region": region}
    people["race & sex"] = np.char.add(np.char.add(race, " & "), sex)
    score = X[:, 0] + 0.3 * rng.normal(size=n)
    for attribute, value in planted:
        score -= (0.9 if "&" in attribute else 0.6) * (people[attribute] == value)
    features = {name: people[name] for name in ("race", "sex", "region")}
    finder = cfe.EvidenceFinder.from_vectors(X, (score > 0).astype(int), features=features)
    crossed = [("race", "sex"), ("race", "region")]
    effects = audit.direct_effects(
        finder, sensitive=[*features], unfavourable=0, intersections=crossed
    )
    named = effects.table[effects.table["named"]]
    stand = named[named["same_as"] == ""]
    assert {*zip(stand["attribute"], stand["value"], strict=True)} == findings
    if planted:
        assert len(named) > 4 * len(stand)
        expected = {f"{attribute} = {value}" for attribute, value in findings}
        assert set(named["same_as"]) - {""} <= expected
