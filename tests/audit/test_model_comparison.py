import re
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest
from simulated_people import GRANTED, REFUSED, finder_of, score_of, simulated

import cfe_faiss as cfe
from cfe_faiss import audit
from cfe_faiss.audit.model_comparison import paired_test

COUNTS = ["evidence", "appears", "disappears", "stays", "equal_before", "equal_after"]


@pytest.fixture(scope="module")
def versions():
    """A finder of people, and other decisions about them."""
    people, other = simulated(1, 300), simulated(1, 300, harm=0.5)["labels"]
    finder = cfe.EvidenceFinder.from_vectors(
        people["X"],
        people["labels"],
        features={"sex": people["carries"].astype(int)},
        truth=other,
        class_names=["no", "yes"],
        ids=[f"c{i}" for i in range(300)],
        sensitive=["sex"],
    )
    return finder, other


def listed(result):
    return set(zip(result.source.tolist(), result.target.tolist(), strict=True))


@pytest.mark.parametrize("by", ["rank", "similarity"])
def test_evidence_that_appears_disappears_and_stays(versions, by):
    finder, v2 = versions
    other = cfe.EvidenceFinder.from_vectors(finder.vectors, v2)
    if by == "rank":
        options = {"k": 5}
        before, after = (
            {(v, u) for v, near in enumerate(one.local(k=5).evidence.tolist()) for u in near}
            for one in (finder, other)
        )
    else:
        options = {"threshold": float(finder.top_pairs(300).similarity[-1])}
        before, after = (
            set().union(*map(listed, cfe.evidence_pairs(one.index, options["threshold"])))
            for one in (finder, other)
        )
    found = audit.compare_models(finder, {"v2": v2}, pairs=10**6, **options)
    first, second = found.models.to_dict("records")
    assert (first["evidence"], second["evidence"]) == (len(before), len(after))
    assert len(before ^ after) > 0
    changes = {"appears": after - before, "disappears": before - after, "stays": before & after}
    for change, expected in changes.items():
        pairs = found.pairs[found.pairs["change"] == change]
        sides = (pairs[side].str.removeprefix("c").astype(int) for side in ("source", "target"))
        assert set(zip(*sides, strict=True)) == expected
        assert second[change] == len(pairs) == len(expected)
    accuracy = [(labels == finder.truth).mean() for labels in (finder.labels, v2)]
    assert found.models["accuracy"].tolist() == accuracy
    assert repr(found) == "ModelComparison(v1, v2: 0 tests, 0 named)"


def test_rates_and_people_that_change(versions):
    finder, v2 = versions
    found = audit.compare_models(finder, {"v2": v2}, unfavourable=0)
    rates = found.table[found.table["test"] == "rates"].set_index(["attribute", "value"])
    sex = np.asarray(finder.attributes["sex"].numbers)
    for (attribute, value), row in rates.iterrows():
        group = np.ones(300, bool) if attribute == "all" else sex == int(value)
        was, now = finder.labels[group] == 0, v2[group] == 0
        assert (row["n"], row["before"], row["after"]) == (group.sum(), was.mean(), now.mean())
        worse, better = int((now & ~was).sum()), int((was & ~now).sum())
        assert (row["worse"], row["better"]) == (worse, better)
        if worse + better >= 6:
            assert row["p"] == pytest.approx(binomtest(worse, worse + better).pvalue)
        assert row["low"] <= row["effect"] <= row["high"]
    changed = np.flatnonzero(finder.labels != v2)
    assert sorted(found.people["node"]) == sorted(f"c{i}" for i in changed)
    assert len(changed) == found.models["changed"][1] == found.directions["count"].sum()
    person = found.people.iloc[0]
    row = int(person["node"].removeprefix("c"))
    names = (finder.class_name(finder.labels[row]), finder.class_name(v2[row]))
    assert (person["before"], person["after"]) == names


@st.composite
def models(draw):
    n, seed = draw(st.integers(2, 25)), draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    X = rng.integers(-2, 3, (n, 3)).astype(np.float32)  # copies, ties and zero rows
    return X, [rng.integers(0, 3, n) for _ in range(3)]


@given(problem=models(), k=st.integers(1, 30), threshold=st.one_of(st.none(), st.floats(-1, 1)))
def test_what_appears_disappears_and_stays_is_the_union(problem, k, threshold):
    X, (v1, *others) = problem
    v1[-1] = 2  # all classes are known
    finder = cfe.EvidenceFinder.from_vectors(X, v1)
    given_models = {f"v{i}": labels for i, labels in enumerate(others, 2)}
    found = audit.compare_models(finder, given_models, k=k, threshold=threshold, pairs=10**6)
    assert found.models["model"].tolist() == ["v1", "v2", "v3"]
    first = found.models.iloc[0]
    for name, labels in given_models.items():
        row = found.models.set_index("model").loc[name]
        assert row["appears"] + row["stays"] == row["evidence"]
        assert row["disappears"] + row["stays"] == first["evidence"]
        own = found.pairs[found.pairs["model"] == name]
        assert len(own) == row["appears"] + row["disappears"] + row["stays"]
        assert not own.duplicated(["source", "target"]).any()
        for pair in own.itertuples():
            equal = [classes[pair.source] == classes[pair.target] for classes in (v1, labels)]
            assert pair.equal == ("v1" if equal[0] else name if equal[1] else "")
            assert not (equal[0] and equal[1])
            assert not (pair.change == "stays" and pair.equal)
        if threshold is not None:
            assert (row["equal_before"], row["equal_after"]) == (row["appears"], row["disappears"])


def test_the_finder_stays_as_it_was_also_after_an_error():
    people = simulated(1, 200)
    index = cfe.IndexEvidenceIVF(6, 8)
    finder = cfe.EvidenceFinder.from_vectors(people["X"], people["labels"], index=index)
    other = 1 - people["labels"]
    before = finder.labels.copy(), finder.index.members(), finder.local(k=4)
    with index.holding() as first:
        pass
    audit.compare_models(finder, {"v2": other})
    with pytest.raises(ValueError, match=r"predictions\['v3'\] must hold classes 0 to 1, got 7"):
        audit.compare_models(finder, {"v2": other, "v3": np.full(200, 7)})
    np.testing.assert_array_equal(finder.labels, before[0])
    np.testing.assert_array_equal(finder.index.members().labels, before[1].labels)
    np.testing.assert_array_equal(finder.local(k=4).evidence, before[2].evidence)
    with index.holding() as last:
        assert last is first, "the index was never changed"


@given(worse=st.integers(0, 60), better=st.integers(0, 60))
def test_mcnemar_is_the_binomial_test(worse, better):
    test = paired_test(worse, better)
    assert test.n_effective == worse + better
    if worse + better < 6:
        assert "fewer than 6" in test.reason
        assert np.isnan(test.p_value)
    else:
        assert test.p_value == pytest.approx(binomtest(worse, worse + better).pvalue)
        assert np.sign(test.statistic) == np.sign(worse - better)


def test_a_model_that_harms_a_group_is_named():
    harmed, clean = simulated(3, 1000, harm=0.6), simulated(3, 1000)
    finder = finder_of(clean)
    found = audit.compare_models(
        finder, {"v2": harmed["labels"]}, sensitive=["sex"], unfavourable=REFUSED
    )
    verdicts = found.table.set_index(["attribute", "value", "test"])["verdict"].sort_index()
    assert (verdicts.loc["sex", "f"] == "disadvantaged").all()
    assert verdicts.loc["sex", "m", "rates"] == "cannot tell", "no man is decided otherwise"
    assert verdicts.loc["sex", "m", "situation"] == "advantaged"
    options = {"sensitive": ["sex"], "unfavourable": REFUSED, "baseline": "new"}
    back = audit.compare_models(finder_of(harmed), {"v2": clean["labels"]}, **options)
    assert (
        back.table.set_index(["value", "test"])["verdict"].sort_index().loc["f"] == "advantaged"
    ).all()
    assert back.models["model"].tolist() == ["new", "v2"]


def test_two_models_with_the_same_rule_show_no_change():
    people = simulated(5, 1000, tracks=2.0)
    score, rng = score_of(people["X"]), np.random.default_rng(0)
    v1, v2 = (np.where(score + rng.normal(size=1000) / 3 > 0, GRANTED, REFUSED) for _ in range(2))
    found = audit.compare_models(
        finder_of(people | {"labels": v1}), {"v2": v2}, sensitive=["sex"], unfavourable=REFUSED
    ).table
    assert (found["verdict"] == "no finding").all()
    assert len(found) == 1 + 2 * 3


def test_equal_models_cannot_tell():
    people = simulated(2, 300)
    finder = finder_of(people)
    found = audit.compare_models(
        finder, {"v2": people["labels"]}, sensitive=["sex"], unfavourable=REFUSED
    )
    assert set(found.table["verdict"]) == {"cannot tell"}
    assert found.table[["p", "q"]].isna().all(axis=None)
    assert found.models[COUNTS[1:3]].to_numpy().sum() == 0
    assert len(found.people) == len(found.directions) == 0


def test_one_class_too_few_people_and_missing_values_cannot_tell():
    people = simulated(4, 300)
    town = np.where(np.arange(300) < 50, "a", None)
    finder = finder_of(people, town=town)
    one_class = np.full(300, GRANTED)
    found = audit.compare_models(
        finder, {"v2": one_class}, sensitive=["sex", "town"], unfavourable=REFUSED
    ).table
    direct = found[found["test"] != "rates"]
    assert (direct["verdict"] == "cannot tell").all()
    assert "all decisions are alike" in set(direct["reason"])
    assert found[(found["attribute"] == "town") & (found["test"] == "rates")]["n"].tolist() == [50]


def test_errors():
    people = simulated(1, 60)
    finder, labels = finder_of(people), people["labels"]
    named = cfe.EvidenceFinder.from_vectors(people["X"], np.where(labels == 1, "yes", "no"))
    wrong = labels.astype(float)
    wrong[3] = 0.5
    for own, models, options, error, message in (
        (finder, [labels], {}, TypeError, "predictions .*got list"),
        (finder, {}, {}, ValueError, "predictions must hold another model at least, got none"),
        (finder, {"v1": labels}, {}, ValueError, "predictions must name each model once, got 'v1'"),
        (finder, {"new": labels}, {"baseline": "new"}, ValueError, "predictions must"),
        (finder, {2: labels}, {}, TypeError, "names in predictions must be texts, got int"),
        (finder, {"2.0": labels}, {}, ValueError, "names in predictions must be neither empty nor"),
        (finder, {" ": labels}, {}, ValueError, "names in predictions must be neither empty"),
        (finder, {"v2": labels[:50]}, {}, ValueError, r"predictions\['v2'\] .*got shape \(50,\)"),
        (finder, {"v2": wrong}, {}, TypeError, r"predictions\['v2'\] must be integers.*got 0.5"),
        (finder, {"v2": np.full((60, 2), np.nan)}, {}, ValueError, r"predictions\['v2'\]"),
        (finder, {"v2": [None] * 60}, {}, ValueError, "a predicted class of every model, got none"),
        (finder, {"v2": labels + 1}, {}, ValueError, r"predictions\['v2'\] .*got 2"),
        (finder, {"v2": labels - 2}, {}, ValueError, r"predictions\['v2'\]"),
        (finder, {"v2": ["a"] * 60}, {}, ValueError, r"predictions\['v2'\] must be numbers"),
        (named, {"v2": ["maybe"] * 60}, {}, ValueError, r"predictions\['v2'\] must be among"),
        (finder, {"v2": labels}, {"k": 0}, ValueError, "k must be at least 1"),
        (finder, {"v2": labels}, {"pairs": 0}, ValueError, "pairs must be at least 1"),
        (finder, {"v2": labels}, {"threshold": 2}, ValueError, "threshold must lie"),
        (finder, {"v2": labels}, {"fdr": 2}, ValueError, "fdr must lie"),
        (finder, {"v2": labels}, {"confidence": 1}, ValueError, "confidence must lie strictly"),
        (finder, {"v2": labels}, {"sensitive": ["sex"]}, ValueError, "unfavourable must be given"),
        (
            finder,
            {"v2": labels},
            {"sensitive": ["sx"], "unfavourable": 0},
            ValueError,
            "mean 'sex'",
        ),
        (finder, {"v2": labels}, {"unfavourable": "bad"}, ValueError, "unfavourable must be among"),
        (
            named,
            {"v2": labels},
            {"unfavourable": 0, "sensitive": ["sex"]},
            ValueError,
            "finder must",
        ),
    ):
        with pytest.raises(error, match=message), warnings.catch_warnings(action="ignore"):
            audit.compare_models(own, models, **options)


@pytest.mark.filterwarnings("ignore:no predicted class:cfe_faiss.InputWarning")
@pytest.mark.parametrize("threshold", [None, 0.2])
@pytest.mark.parametrize("way", ["numbers", "texts", "table"])
def test_rows_without_a_class_in_a_model_are_left_out(way, threshold, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 3))
    names = np.array([0, 1, None] if way == "numbers" else ["no", "yes", None], object)
    v1, v2, v3 = rng.integers(0, 2, (3, 90))
    v1[:6], v2[3:10], v3[10:12] = -1, -1, -1
    is_known = np.arange(90) >= 12

    def compared(*models, **options):
        own, *others = (names[labels] for labels in models)
        features = {"sex": np.arange(90) % 3 // 2}
        if way == "table":
            finder = cfe.EvidenceFinder.from_table(
                {**dict(zip("abc", X.T, strict=True)), **features},
                own,
                sensitive=["sex"],
                **options,
            )
            threshold_option = {"threshold": None if threshold is None else 1.0}
        else:
            options |= {"features": features, "sensitive": ["sex"]}
            finder = cfe.EvidenceFinder.from_vectors(X, own, **options)
            threshold_option = {"threshold": threshold}
        given_models = dict(zip(("v2", "v3"), others, strict=True))
        bad = names[0]
        if threshold is None:
            page = tmp_path / "r.html"
            options = {"favourable": names[1], "compare": given_models, "overwrite": True}
            assert audit.report(finder, page, **options).outcome
            left_out = re.findall(
                r"(\d+) \w+ without a class by one of the models", page.read_text()
            )
            assert sum(map(int, left_out)) == len(finder.index.members().ids) - 78
        found = audit.compare_models(finder, given_models, unfavourable=bad, **threshold_option)
        return [repr(one.to_dict()) for one in (found.models, found.table, found.pairs)]

    with pytest.warns(cfe.InputWarning, match="class of another model for 6 of 84 rows"):
        partly = compared(v1, v2, v3)
    filled = (np.where(labels < 0, 1, labels) for labels in (v1, v2, v3))
    assert partly == compared(*filled, nodes=is_known)


@pytest.mark.parametrize(
    "as_given", [np.asarray, list, lambda v: v.astype(float), lambda v: pd.Series(v)[::-1]]
)
def test_numbers_are_names_where_the_classes_of_a_table_are_numbers(as_given):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"income": rng.normal(size=90), "sex": rng.choice(["f", "m"], 90)})
    decisions = np.arange(90) % 3 + 1
    finder = cfe.EvidenceFinder.from_table(table, decisions, sensitive=["sex"])
    other = {"v2": as_given(np.minimum(decisions, 2))}
    expected = [{"model": "v2", "before": "3", "after": "2", "count": 30, "share": 1 / 3}]
    assert audit.compare_models(finder, other).directions.to_dict("records") == expected
