import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from cfe_faiss import audit
from cfe_faiss.audit.intervals import independent_share_of_links, newcombe, risk_ratio

RACE = ["x", "x", "y", "y", "y", "x", "x", "y", None, "x"]
PEOPLE = pd.DataFrame({"sex": ["f"] * 5 + ["m"] * 4 + [None], "race": RACE})
PREDICTED = [1, 0, 0, 0, 1, 1, 1, 0, 1, 0]
TRUTH = [1, 1, 0, 0, 0, 1, 0, 0, 1, -1]


def measured(y_pred, sensitive_features, **options):
    return audit.group_metrics(y_pred=y_pred, sensitive_features=sensitive_features, **options)


def line(metrics, feature, value, label="class 1"):
    table = metrics.table
    found = table[
        (table["class"] == label) & (table["feature"] == feature) & (table["value"] == value)
    ]
    assert len(found) == 1
    return found.iloc[0]


def test_hand_made_values():
    options = {"favourable": 1, "reference": {"sex": "m"}}
    metrics = measured(PREDICTED, PEOPLE, y_true=TRUTH, **options)
    f, m = line(metrics, "sex", "f"), line(metrics, "sex", "m")
    assert (f["count"], f["selected"], f["rate"]) == (5, 2, 0.4)
    assert (m["count"], m["selected"], m["rate"]) == (4, 3, 0.75)
    assert (f["reference"], m["reference"]) == (False, True)
    assert f["ratio"] == pytest.approx(0.4 / 0.75)
    assert f["difference"] == pytest.approx(-0.35)
    low, high = newcombe(2, 5, 3, 4)
    assert f[["difference_low", "difference_high"]].tolist() == [low, high]
    low, high = risk_ratio(2, 5, 3, 4)
    assert f[["ratio_low", "ratio_high"]].tolist() == [low, high]
    assert m[["ratio", "ratio_low", "ratio_high"]].tolist() == [1, 1, 1]
    assert f["verdict"] == "cannot tell"
    unknown = line(metrics, "sex", "unknown")
    assert unknown[["count", "selected", "judged"]].tolist() == [1, 0, 0]
    assert np.isnan(unknown["ratio"])
    # The unknown one, not selected, may be a woman: 2 of 6; or a man: 3 of 5.
    assert f[["ratio_least", "ratio_most"]].tolist() == pytest.approx([(2 / 6) / 0.75, 0.4 / 0.6])
    assert line(metrics, "sex & race", "unknown")["count"] == 2
    assert line(metrics, "sex & race", "f & x")[["count", "selected"]].tolist() == [2, 1]
    everyone = line(metrics, "all", "")
    assert everyone[["count", "selected", "judged"]].tolist() == [10, 5, 9]
    assert np.isnan(everyone["ratio"])
    assert repr(metrics) == "GroupMetrics(10 people, groups by sex, race, sex & race)"


@given(data=st.data(), n=st.integers(2, 60), classes=st.integers(2, 4))
def test_equal_to_independent_code(data, n, classes):
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    sex = rng.choice(np.array(["f", "m", "d", None], dtype=object), n)
    predicted, truth = rng.integers(0, classes, n), rng.integers(-1, classes, n)
    people = pl.DataFrame({"sex": pl.Series(sex.tolist(), dtype=pl.String)})
    table = measured(predicted, people, y_true=truth).table
    lines = {
        (found["class"], found["value"]): found
        for found in table[table["feature"] == "sex"].to_dict("records")
    }
    for label in np.union1d(predicted, truth[truth >= 0]):
        rates = {}
        for value in sorted({v for v in sex if v is not None}):
            own = sex == value
            found = lines[f"class {label}", value]
            positive, actual = predicted[own] == label, truth[own] == label
            judged = truth[own] >= 0
            expected = [
                own.sum(),
                positive.sum(),
                (judged & positive & actual).sum(),
                (judged & positive & ~actual).sum(),
                (judged & ~positive & ~actual).sum(),
                (judged & ~positive & actual).sum(),
            ]
            names = ("count", "selected", "TP", "FP", "TN", "FN")
            assert [found[name] for name in names] == expected
            negatives, positives = (judged & ~actual).sum(), actual.sum()
            fpr = (judged & positive & ~actual).sum() / negatives if negatives else np.nan
            fnr = (~positive & actual).sum() / positives if positives else np.nan
            accuracy = (predicted[own] == truth[own])[judged].mean() if judged.any() else np.nan
            answer = [found[name] for name in ("rate", "fpr", "fnr", "accuracy")]
            assert_allclose(answer, [positive.mean(), fpr, fnr, accuracy])
            assert not found["rate_low"] > found["rate"]
            assert not found["fnr_high"] < found["fnr"]
            rates[value] = positive.mean()
        reference = next(
            (value for value in rates if lines[f"class {label}", value]["reference"]), None
        )
        if reference is not None and rates[reference] > 0:
            for value, rate in rates.items():
                found = lines[f"class {label}", value]
                assert found["ratio"] == pytest.approx(rate / rates[reference])
                assert found["ratio_low"] <= found["ratio"] <= found["ratio_high"]
                assert found["ratio_least"] <= found["ratio"] + 1e-9
                assert found["ratio"] <= found["ratio_most"] + 1e-9


def counts(*groups, **options):
    """Return the metrics of groups of (value, people, selected)."""
    group = [value for value, count, _ in groups for _ in range(count)]
    decisions = [int(place < selected) for _, count, selected in groups for place in range(count)]
    features = {"group": np.array(group, dtype=object)}
    return measured(decisions, features, favourable=1, **options)


def test_small_groups_are_listed_and_not_ranked():
    metrics = counts(("a", 60, 30), ("b", 400, 160), ("c", 29, 29), ("d", 30, 0))
    c = line(metrics, "group", "c")
    expected = (False, False, "cannot tell", 2.5)
    assert (c["ranked"], c["reference"], c["verdict"], c["ratio"]) == expected
    assert line(metrics, "group", "b")["reference"]
    assert line(metrics, "group", "a")["verdict"] in ("no finding", "cannot tell")
    assert line(metrics, "group", "d")["verdict"] == "below 0.8"
    # 30 people, but only 3 of them expected to be selected
    rare = counts(("a", 900, 90), ("b", 900, 91), ("c", 30, 9))
    assert line(rare, "group", "c")[["ranked", "reference"]].tolist() == [False, False]
    assert rare.summary[["groups", "ranked", "reference"]].values.tolist() == [[3, 2, "b"]]
    none = counts(("a", 20, 10), ("b", 10, 6))
    assert none.table["ranked"].sum() == 0
    assert line(none, "group", "a")["reference"]
    assert none.summary[["ranked", "verdict", "value"]].values.tolist() == [[0, "cannot tell", "a"]]
    assert np.isnan(none.summary[["p", "power"]].to_numpy(dtype=float)).all()


@pytest.mark.parametrize(
    ("groups", "verdict"),
    [
        ([("a", 500, 300), ("b", 500, 210)], "below 0.8"),
        ([("a", 500, 300), ("b", 500, 260)], "below 1"),
        ([("a", 500, 300), ("b", 500, 290)], "no finding"),
        ([("a", 100, 30), ("b", 100, 28)], "cannot tell"),
        # ten groups, the least of which is below by chance: no finding at 2.3 standard errors
        (
            [("a", 300, 165), ("b", 300, 137), *((f"g{i}", 300, 150) for i in range(8))],
            "no finding",
        ),
    ],
)
def test_verdicts(groups, verdict):
    metrics = counts(*groups)
    found = metrics.summary.iloc[0]
    assert found["verdict"] == verdict == line(metrics, "group", "b")["verdict"]
    assert (found["value"], found["reference"]) == ("b", "a")
    assert line(metrics, "group", "a")["verdict"] == ""
    assert (found["p"] < 0.05) == verdict.startswith("below")
    assert (found["power"] < 0.5) == (verdict == "cannot tell")


def test_the_attribute_has_the_strongest_verdict_of_its_groups():
    metrics = counts(("a", 1000, 600), ("b", 1000, 450), ("c", 31, 22), ("d", 31, 12))
    expected = ["", "below 1", "cannot tell", "cannot tell"]
    assert [line(metrics, "group", value)["verdict"] for value in "abcd"] == expected
    found = metrics.summary.iloc[0]
    expected = ("below 1", "b", "a", 4)
    assert (found["verdict"], found["value"], found["reference"], found["ranked"]) == expected


def test_a_large_group_at_a_disadvantage_is_the_group_of_the_summary():
    metrics = counts(("f", 600, 120), ("m", 500, 250))
    assert line(metrics, "group", "m")["verdict"] == "above 1.25"
    found, m = metrics.summary.iloc[0], line(metrics, "group", "m")
    expected = ["below 0.8", "f", "m", 600]
    assert found[["verdict", "value", "reference", "count"]].tolist() == expected
    assert found["ratio"] == pytest.approx(0.4)
    wanted = pytest.approx([1 / m["ratio_high"], 1 / m["ratio_low"]])
    assert found[["ratio_low", "ratio_high"]].tolist() == wanted
    assert found["difference"] == pytest.approx(-0.3)


def test_the_summary_takes_the_side_that_is_selected_less_often():
    """Also where the interval at a high confidence holds 1, while p is small."""
    metrics = counts(("f", 300, 120), ("m", 250, 130), confidence=0.999)
    assert line(metrics, "group", "m")["verdict"] in ("no finding", "cannot tell")
    found = metrics.summary.iloc[0]
    assert found[["value", "reference"]].tolist() == ["f", "m"]
    assert found["p"] < 0.05
    assert found["ratio"] == pytest.approx(0.4 / 0.52)


def test_the_user_names_the_reference():
    groups = ("a", 300, 150), ("b", 500, 160), ("c", 20, 10)
    assert line(counts(*groups), "group", "b")["reference"]
    metrics = counts(*groups, reference={"group": "a"})
    assert line(metrics, "group", "a")["reference"]
    assert line(metrics, "group", "b")["verdict"] == "below 0.8"
    unranked = counts(*groups, reference={"group": "c"})
    assert unranked.summary["verdict"].tolist() == ["cannot tell"]
    for reference in ({"group": "x"}, {"sex": "a"}, "a"):
        with pytest.raises((TypeError, ValueError), match="reference"):
            counts(*groups, reference=reference)


def test_classes_by_name_and_together():
    given = [0, 1, 2, 2], {"g": [0, 0, 1, 1]}
    names = ["bad", "good", "better"]
    metrics = measured(*given, class_names=names, favourable=["good", 2])
    assert metrics.classes == ("good or better",)
    assert metrics.table["selected"].tolist() == [3, 1, 2]
    each = measured(*given, class_names=names)
    assert each.summary["class"].tolist() == list(each.classes) == names
    assert each.table["TP"].sum() == 0
    assert each.table["accuracy"].isna().all()


def test_truth_may_have_other_words_than_decisions():
    decisions = ["refused", "standard", "prime", "refused", "prime"]
    outcomes = ["repaid", "repaid", "defaulted", "defaulted", None]
    options = {"favourable": ["prime", "standard"], "truth_favourable": "repaid"}
    found = measured(decisions, {"g": list("aabba")}, y_true=outcomes, **options).table.iloc[0]
    assert found[["TP", "FP", "TN", "FN", "judged"]].tolist() == [1, 1, 1, 1, 4]
    assert found["accuracy"] == 0.5


NUMBERS = np.array([0, 1, 1, 1])
TEXTS = ["no", "yes", "yes", "yes"]
OUTCOMES = ["no", "no", None, "yes"]


@pytest.mark.parametrize(
    ("y_pred", "y_true"),
    [
        (TEXTS, OUTCOMES),
        (pd.Series(TEXTS, index=[3, 1, 2, 7]), pd.Series(OUTCOMES, index=[3, 1, 2, 7])),
        (pd.Categorical(TEXTS), np.array(OUTCOMES, object)),
        (NUMBERS == 1, [0, 0, np.nan, 1]),
        (pl.Series(NUMBERS), pl.Series([0, 0, None, 1])),
        (torch.tensor(NUMBERS), torch.tensor([0, 0, -1, 1])),
        ([[0.9, 0.1], [0.2, 0.8], [0.3, 0.7], [0.1, 0.9]], [0, 0, -1, 1]),
        (pd.DataFrame({"no": [0.9, 0.2, 0.3, 0.1], "yes": [0.1, 0.8, 0.7, 0.9]}), OUTCOMES),
    ],
)
def test_classes_in_every_form(y_pred, y_true):
    groups, options = [0, 0, 1, 1], {"favourable": 1, "class_names": ["no", "yes"]}
    expected = measured(NUMBERS, groups, y_true=[0, 0, -1, 1], **options)
    found = measured(y_pred, groups, y_true=y_true, **options)
    pd.testing.assert_frame_equal(found.table, expected.table)
    assert found.table["judged"].tolist() == [3, 2, 1]


@pytest.mark.parametrize(
    ("features", "names"),
    [
        (["f", "m", "m"], ["sensitive_feature_0"]),
        (np.array(["f", "m", "m"]), ["sensitive_feature_0"]),
        (pd.Series(["f", "m", "m"]), ["sensitive_feature_0"]),
        (pd.Series(["f", "m", "m"], index=[7, 5, 6], name="sex"), ["sex"]),
        (pl.Series("sex", ["f", "m", "m"]), ["sex"]),
        ({"sex": ["f", "m", "m"]}, ["sex"]),
        ([["f", "x"], ["m", "x"], ["m", "y"]], ["sensitive_feature_0", "sensitive_feature_1"]),
        (
            pd.DataFrame({"sex": ["f", "m", "m"], "race": ["x", "x", "y"]}, index=[3, 1, 2]),
            ["sex", "race"],
        ),
        (pl.DataFrame({"sex": ["f", "m", "m"], "race": ["x", "x", "y"]}), ["sex", "race"]),
    ],
)
def test_sensitive_features_in_every_form(features, names):
    metrics = audit.group_metrics(y_pred=[1, 0, 1], sensitive_features=features, favourable=1)
    assert metrics.names == tuple(names)
    own = metrics.table[metrics.table["feature"] == names[0]]
    assert own[["value", "count", "selected"]].values.tolist() == [["f", 1, 1], ["m", 2, 1]]


def test_equalised_odds_are_those_of_fairlearn():
    rng = np.random.default_rng(5)
    sex = rng.choice(["f", "m", "d"], 900)
    truth, predicted = rng.integers(0, 2, 900), rng.integers(0, 2, 900)
    found = measured(predicted, sex, y_true=truth, favourable=1).summary.iloc[0]
    by_class = [
        [predicted[(sex == value) & (truth == known)].mean() for value in np.unique(sex)]
        for known in (1, 0)
    ]
    # fairlearn.metrics.equalized_odds_difference and _ratio with their defaults
    difference = max(np.ptp(group_rates) for group_rates in by_class)
    ratio = min(min(group_rates) / max(group_rates) for group_rates in by_class)
    assert found["equalised_odds_difference"] == pytest.approx(difference)
    assert found["equalised_odds_ratio"] == pytest.approx(ratio)
    for name in (
        "tpr_difference",
        "fpr_difference",
        "equalised_odds_difference",
        "equalised_odds_ratio",
    ):
        assert found[f"{name}_low"] <= found[name] <= found[f"{name}_high"]
    without = measured(predicted, sex, favourable=1).summary
    assert without.filter(like="equalised").isna().all(axis=None)


def test_three_attributes_and_chosen_intersections():
    rng = np.random.default_rng(0)
    table = {name: rng.integers(0, 2, 200) for name in "abc"}
    predicted = rng.integers(0, 2, 200)
    metrics = measured(predicted, table, favourable=1)
    assert list(dict.fromkeys(metrics.table["feature"])) == ["all", "a", "b", "c", "a & b & c"]
    assert metrics.summary["feature"].tolist() == ["a", "b", "c", "a & b & c"]
    chosen = measured(predicted, table, intersections=[("b", "c")], favourable=1)
    assert list(dict.fromkeys(chosen.table["feature"])) == ["all", "a", "b", "c", "b & c"]
    assert chosen.table[chosen.table["feature"] == "b & c"]["count"].sum() == 200


def test_tables_of_local_law_144():
    rng = np.random.default_rng(1)
    n = 400
    sex = np.where(np.arange(n) % 2 == 0, "Female", "Male").astype(object)
    race = rng.choice(np.array(["White", "Asian", "Hispanic or Latino"], dtype=object), n)
    race[:4], race[4:8] = "Native American or Alaska Native", None
    predicted = rng.integers(0, 2, n)
    people = {"race": race, "sex": sex}
    metrics = measured(predicted, people, favourable=1)
    tables = metrics.local_law_144("sex", "race")
    assert list(tables) == ["Sex", "Race/Ethnicity", "Intersectional"]
    assert tables["Sex"]["category"].tolist() == ["Male", "Female", "Unknown"]
    order = ["Hispanic or Latino", "White", "Asian", "Native American or Alaska Native", "Unknown"]
    races = tables["Race/Ethnicity"]
    assert races["category"].tolist() == order
    assert races["excluded"].tolist() == [False, False, False, True, False]
    assert races["applicants"].tolist() == [*((race == value).sum() for value in order[:-1]), 4]
    rates = {value: predicted[race == value].mean() for value in order[:3]}
    assert_allclose(races["impact_ratio"][:3], [rates[v] / max(rates.values()) for v in order[:3]])
    assert races["impact_ratio"][3:].isna().all()
    both = tables["Intersectional"]
    assert both.columns[:2].tolist() == ["race", "sex"]
    crossed = both["race"] + ", " + both["sex"]
    names = ["Hispanic or Latino, Male", "Hispanic or Latino, Female", "White, Male", "Asian, Male"]
    assert crossed.tolist()[:4] == names
    assert both["applicants"].sum() == n
    with pytest.raises(ValueError, match="sex and race must name attributes of the table"):
        metrics.local_law_144("gender", "race")
    each = measured(predicted, people)
    with pytest.raises(ValueError, match="favourable must name one of the classes"):
        each.local_law_144("sex", "race")
    expected = tables["Sex"]
    pd.testing.assert_frame_equal(each.local_law_144("sex", "race", "class 1")["Sex"], expected)
    alone = measured(predicted, people, intersections=[])
    with pytest.raises(ValueError, match="must hold the intersection"):
        alone.local_law_144("sex", "race", "class 1")


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"favourable": 2}, ValueError, r"favourable must be among the classes \(0, 1\), got 2"),
        ({"favourable": "good"}, ValueError, "favourable must be among the classes"),
        ({"favourable": []}, ValueError, "favourable must hold one"),
        ({"y_pred": [0, 1, 1]}, ValueError, r"y_pred must be classes of shape \(2,\)"),
        ({"y_pred": [0.5, 1]}, TypeError, "y_pred must be integers, texts or booleans, got 0.5"),
        ({"y_pred": [None, "a"]}, ValueError, "y_pred .*got none for node 0"),
        ({"y_true": [0, 1, 1]}, ValueError, r"y_true must be classes of shape \(2,\)"),
        ({"y_true": ["a", "b"]}, ValueError, "y_true .*got 0, 1 and a, b"),
        ({"y_true": [0, 1], "y_pred": ["a", "b"]}, ValueError, "y_true must have a class"),
        ({"y_true": ["yes", "no"], "y_pred": ["a", "b"]}, ValueError, "in .*got a, b and no, yes"),
        (
            {"y_true": ["b", "c"], "y_pred": ["a", "b"], "truth_favourable": "c"},
            ValueError,
            "favourable",
        ),
        ({"y_pred": ["a", "b"], "class_names": ["a", "c"]}, ValueError, "y_pred .*got 'b'"),
        (
            {"y_pred": pd.Series([0, 1], index=[1, 0]), "sensitive_features": pd.Series([0, 1])},
            ValueError,
            "same pandas",
        ),
        ({"sensitive_features": 3}, ValueError, r"sensitive_features must have shape \(n,\)"),
        ({"intersections": [["g", "h"]]}, ValueError, "intersections must name attributes"),
        ({"intersections": [["g"]]}, ValueError, "two attributes or more"),
        ({"confidence": 1}, ValueError, "confidence must lie"),
        ({"class_names": ["a", "a"]}, ValueError, "class_names must be distinct"),
    ],
)
def test_what_is_refused(options, error, words):
    with pytest.raises(error, match=words):
        audit.group_metrics(**{"y_pred": [0, 1], "sensitive_features": {"g": [0, 1]}} | options)
    with pytest.raises(TypeError, match="positional"):
        audit.group_metrics([0, 1], [0, 1])


@pytest.mark.parametrize("kind", ["category", "str", "int"])
def test_a_number_is_a_name_where_all_names_are_numbers(kind):
    y_pred = pd.Series([1, 1, 2, 1]).astype(kind)
    metrics = audit.group_metrics(
        y_pred=y_pred, sensitive_features={"g": list("aabb")}, favourable=1
    )
    assert metrics.table["selected"].tolist() == [3, 2, 1]


@pytest.mark.parametrize("favourable", [True, "True", {"True"}, pd.Series([True])])
def test_truth_values_of_texts_are_names(favourable):
    for names in (None, ["True", "False"]):
        predicted, options = ["True", "True", "False", "True"], {"class_names": names}
        table = measured(predicted, {"g": list("aabb")}, favourable=favourable, **options).table
        assert table["selected"][0] == 3
    with pytest.raises(ValueError, match="favourable must be among the classes"):
        measured(["True", "True"], {"g": list("aa")}, favourable=False)


def test_names_of_groups_tell_them_apart():
    features = {"a": ["x", "x & y", "x & y"], "b": ["y & z", "z", "z"]}
    table = audit.group_metrics(y_pred=[0, 1, 1], sensitive_features=features).table
    expected = ["'x' & 'y & z'", "'x & y' & 'z'"]
    assert table.loc[table["feature"] == "a & b", "value"].tolist()[:2] == expected
    for names, words in (
        (["all"], "must not be called 'all'"),
        (["a", "b", "a & b"], "got 'a & b' more than once"),
    ):
        features = {name: ["x", "y"] for name in names}
        crossed = [names[:2]] if len(names) > 1 else []
        with pytest.raises(ValueError, match=words):
            audit.group_metrics(y_pred=[0, 1], sensitive_features=features, intersections=crossed)


@pytest.mark.parametrize("rare", [0, 1])
def test_equalised_odds_need_both_true_classes(rare):
    rng = np.random.default_rng(0)
    sex, truth = rng.choice(["f", "m"], 400), np.where(np.arange(400) < 6, rare, 1 - rare)
    summary = measured(rng.integers(0, 2, 400), {"sex": sex}, y_true=truth, favourable=1).summary
    known, lacking = ("fpr", "tpr") if rare else ("tpr", "fpr")
    assert summary[f"{known}_difference"][0] >= 0
    assert summary[f"{lacking}_difference"].isna().all()
    assert summary.filter(like="equalised_odds").isna().all(axis=None)


def test_truth_that_only_one_decision_shows_gives_no_error_rates():
    rng = np.random.default_rng(0)
    sex, granted = rng.choice(["f", "m"], 600), rng.random(600) < 0.5
    repaid = rng.random(600) < np.where(sex == "f", 0.9, 0.7)
    truth = np.where(granted, repaid.astype(int), -1)
    truth[np.flatnonzero(~granted)[0]] = 0  # an exception does not make errors known
    features = {"sex": sex}
    metrics = audit.group_metrics(
        y_true=truth, y_pred=granted.astype(int), sensitive_features=features, favourable=1
    )
    assert metrics.table[["accuracy", "fpr", "fnr"]].isna().all(axis=None)
    assert np.isnan(metrics.summary["equalised_odds_difference"]).all()
    f = line(metrics, "sex", "f")
    assert f["precision"] == pytest.approx(repaid[(sex == "f") & granted].mean())
    truth[~granted] = repaid[~granted]
    known = audit.group_metrics(
        y_true=truth, y_pred=granted.astype(int), sensitive_features=features, favourable=1
    )
    assert known.table[["precision", "accuracy", "fpr", "fnr"]].notna().all(axis=None)


def dyadic_share(outcomes, ends):
    """The share of independent links by a loop over all pairs of links."""
    residuals = outcomes - outcomes.mean()
    variance = 0.0
    for i, first in enumerate(ends.tolist()):
        for j, second in enumerate(ends.tolist()):
            if {*first} & {*second}:
                variance += residuals[i] * residuals[j]
    independent = float((residuals**2).sum())
    return independent / max(variance, independent)


def test_links_that_share_an_end_count_less():
    rng = np.random.default_rng(0)
    ends = rng.permutation([(a, b) for a in range(12) for b in range(a + 1, 12)])
    outcomes = ends.min(axis=1) + rng.normal(size=len(ends)) > 3
    groups = np.zeros(len(ends), np.int64)
    found = independent_share_of_links(groups, outcomes, ends, 2)
    assert found[0] == pytest.approx(dyadic_share(outcomes, ends))
    assert found[0] < 0.5
    disjoint = np.arange(2 * len(ends)).reshape(-1, 2)
    assert independent_share_of_links(groups, outcomes, disjoint, 1) == pytest.approx([1])
    # Links of one node with one outcome are one case.
    star = np.stack([np.zeros(20, np.int64), np.arange(1, 21)], axis=1)
    same = np.ones(20, bool)
    assert independent_share_of_links(groups[:20], same, star, 1) == pytest.approx([1 / 20])


def test_rates_of_links_have_wider_intervals():
    rng = np.random.default_rng(1)
    ends = rng.integers(0, 40, (600, 2))
    ends = ends[ends[:, 0] != ends[:, 1]]
    popular = rng.normal(size=40)
    decisions = popular[ends].sum(axis=1) > 0
    sides = np.where(ends[:, 0] % 2 == ends[:, 1] % 2, "within", "across")
    given = {"y_pred": decisions, "sensitive_features": {"sides": sides}, "favourable": 1}
    plain = audit.group_metrics(**given).table
    with_ends = audit.group_metrics(**given, ends=ends).table
    assert with_ends["rate"].equals(plain["rate"])
    width = with_ends["rate_high"] - with_ends["rate_low"]
    assert (width > plain["rate_high"] - plain["rate_low"]).all()
    names = np.array([f"node {number}" for number in range(40)])
    for ends_given, error in [(ends[:, :1], ValueError), (names[ends], TypeError)]:
        with pytest.raises(error, match="ends"):
            audit.group_metrics(**given, ends=ends_given)
    with pytest.raises(ValueError, match="person"):
        audit.group_metrics(**given, ends=ends, person=np.arange(len(ends)))
