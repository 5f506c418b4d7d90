from functools import partial

import numpy as np
import pytest
from simulated_people import GRANTED, REFUSED, finder_of, simulated

from cfe_faiss import audit

situation = partial(audit.situation_test, attribute="sex", protected="f", unfavourable=REFUSED)


@pytest.mark.parametrize("k", [1, 4, 40])
def test_the_table_is_that_of_brute_force(k):
    rng = np.random.default_rng(k)
    n = 90
    people = {
        "X": rng.standard_normal((n, 5)),
        "labels": rng.integers(0, 3, n).astype(np.int32),
        "carries": rng.random(n) < 0.5,
    }
    sex = rng.choice(np.array(["f", "m", "d", None], dtype=object), n, p=[0.35, 0.4, 0.1, 0.15])
    nodes = np.flatnonzero(rng.random(n) < 0.8)
    finder = finder_of(people, given=sex)
    values = {"protected": ["f", "d"], "unfavourable": [0, 2]}
    options = {"k": k, "nodes": nodes, "threshold": 0.2}
    test = audit.situation_test(finder, attribute="given", **values, **options)
    groups = {
        "protected": [v for v in nodes if sex[v] in ("f", "d")],
        "rest": [v for v in nodes if sex[v] == "m"],
    }
    assert test.unknown == sum(sex[v] is None for v in nodes)
    assert test.table["node"].tolist() == groups["protected"]
    assert len(test) == test.n_carriers == len(groups["protected"])
    ks = finder.vectors.astype(np.float64) @ finder.vectors.T.astype(np.float64)
    for row in test.table.itertuples():
        shares = {}
        for name, members in groups.items():
            near = sorted((v for v in members if v != row.node), key=lambda v: -ks[row.node, v])[:k]
            assert getattr(row, f"n_{name}") == len(near)
            bad = sum(finder.labels[v] != 1 for v in near)
            assert getattr(row, f"unfavourable_{name}") == bad
            found = getattr(row, f"similarity_{name}")
            assert found == pytest.approx(ks[row.node, near].mean(), abs=1e-6)
            shares[name] = bad / len(near)
        assert row.difference == pytest.approx(shares["protected"] - shares["rest"])
        assert row.flagged == (finder.labels[row.node] != 1 and row.difference > 0.2 - 1e-9)
    assert test.flagged == test.table["flagged"].sum()
    assert test.judged == (test.table["label"] != 1).sum()
    assert test.share_carriers == pytest.approx((people["labels"][groups["protected"]] != 1).mean())
    assert test.share_others == pytest.approx((people["labels"][groups["rest"]] != 1).mean())


@pytest.mark.parametrize("tracks", [pytest.param(0.0, marks=pytest.mark.slow), 2.0])
def test_planted_bias_is_found_and_none_is_not(tracks):
    verdicts = {0.0: [], 0.3: []}
    for harm, found in verdicts.items():
        for seed in range(5):
            finder = finder_of(simulated(seed, tracks=tracks, harm=harm))
            found.append(situation(finder).verdict)
    assert verdicts[0.0].count("no finding") >= 4
    assert verdicts[0.3].count("disadvantaged") >= 4


def test_a_table_of_categories_sorted_by_the_attribute_raises_no_alarm():
    """Many people are alike: ties that go by place in the table would compare each group with itself."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(6):
        answers = rng.integers(0, 3, (1000, 4))
        X = np.concatenate([np.eye(3)[column] for column in answers.T], axis=1)
        carries = rng.random(1000) < 0.5
        labels = np.where(answers[:, 0] + rng.random(1000) > 1.2, GRANTED, REFUSED)
        finder = finder_of(
            {"X": X, "carries": carries, "labels": labels}, np.argsort(carries, kind="stable")
        )
        for of in ("situation", "direction"):
            test = (
                situation(finder)
                if of == "situation"
                else audit.direction_test(finder, attribute="sex", value="f", unfavourable=REFUSED)
            )
            found.append(test.verdict)
    assert found.count("no finding") >= 11


def test_people_flagged_without_bias_are_expected():
    people = simulated(3, tracks=2.0)
    test = situation(finder_of(people))
    assert test.verdict == "no finding"
    assert test.flagged / test.judged > 0.5, (
        "carriers score lower, so that they are flagged without bias"
    )
    assert test.expected == pytest.approx(test.flagged / test.judged, abs=0.1)
    biased = situation(finder_of(simulated(3, harm=0.6)))
    assert biased.flagged / biased.judged > biased.expected + 0.1
    assert biased.effect == pytest.approx(0.6 * 0.3 * 0.6, abs=0.05)


def test_groups_of_one_and_people_alike():
    people = {
        "X": np.array([[1, 0], [1, 0], [1, 0], [1, 0], [0, 1]]),
        "carries": np.array([True, True, True, True, False]),
        "labels": np.array([0, 1, 0, 1, 0]),
    }
    test = audit.situation_test(
        finder_of(people), attribute="sex", protected="m", unfavourable=0, k=1
    )
    assert test.table["n_protected"].tolist() == [0]
    assert test.table[["difference", "similarity_protected"]].isna().all(axis=None)
    assert (test.judged, test.flagged, test.verdict) == (0, 0, "cannot tell")
    assert np.isnan(test.expected)
    expected = "SituationTest(sex = m: cannot tell, fewer than 20 people carry the value: 1)"
    assert repr(test) == expected


def test_errors():
    finder = finder_of(simulated(9, 100))
    given = {"attribute": "sex", "protected": "f", "unfavourable": REFUSED}
    for changes, message in (
        ({"attribute": "age"}, "must name attributes"),
        ({"protected": "x"}, "protected must be among the values of 'sex'"),
        ({"protected": []}, "protected must hold one value"),
        ({"unfavourable": 2}, "unfavourable must be among"),
        ({"nodes": [300]}, "nodes must"),
        ({"threshold": 2}, "threshold must lie"),
        ({"alpha": -1}, "alpha must lie"),
        ({"k": 0}, "k must be at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            audit.situation_test(finder, **given | changes)
