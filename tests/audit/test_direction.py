from functools import partial

import numpy as np
import pytest
from simulated_people import GRANTED, REFUSED, finder_of, simulated

import cfe_faiss as cfe
from cfe_faiss import audit

direction = partial(audit.direction_test, attribute="sex", value="f", unfavourable=REFUSED)


def greedy_pairs(X, refused, number):
    """Return the most similar pairs with different decisions, each person once, by comparing all."""
    U, F = np.flatnonzero(refused), np.flatnonzero(~refused)
    order = np.argsort(-(X[U] @ X[F].T), axis=None)
    used = set()
    pairs = []
    for a, b in zip(*np.unravel_index(order, (len(U), len(F))), strict=True):
        i, j = int(U[a]), int(F[b])
        if not used & {i, j}:
            used |= {i, j}
            pairs.append((i, j))
        if len(pairs) == number:
            break
    return pairs


def test_pairs_are_the_closest_with_different_decisions_each_person_once():
    people = simulated(0, 300)
    finder = finder_of(people)
    test = direction(finder)
    expected = greedy_pairs(
        finder.vectors.astype(np.float64), people["labels"] == REFUSED, 300 // 5
    )
    assert list(zip(test.pairs["unfavourable"], test.pairs["favourable"], strict=True)) == expected
    carries = people["carries"]
    first, second = np.array(expected).T
    assert test.against == (carries[first] & ~carries[second]).sum()
    assert test.in_favour == (~carries[first] & carries[second]).sum()
    assert (test.pairs["unfavourable_carries"] == carries[first]).all()
    assert (test.n_carriers, test.n_others, test.unknown) == (carries.sum(), (~carries).sum(), 0)


@pytest.mark.parametrize("tracks", [pytest.param(0.0, marks=pytest.mark.slow), 2.0])
def test_planted_bias_is_found_and_none_is_not(tracks):
    verdicts = {0.0: [], 0.5: []}
    for harm, found in verdicts.items():
        for seed in range(5):
            finder = finder_of(simulated(seed, tracks=tracks, harm=harm))
            found.append(direction(finder).verdict)
    assert verdicts[0.0].count("no finding") >= 4
    assert verdicts[0.5].count("disadvantaged") >= 4


def test_the_other_group_is_advantaged_with_the_same_strength():
    finder = finder_of(simulated(7, harm=0.6))
    f, m = (
        audit.direction_test(finder, attribute="sex", value=v, unfavourable=REFUSED) for v in "fm"
    )
    assert (f.verdict, m.verdict) == ("disadvantaged", "advantaged")
    assert m.p_value == pytest.approx(f.p_value, rel=1e-3)
    assert m.gamma == pytest.approx(f.gamma, rel=1e-3)
    assert f.gamma > 1
    assert repr(f) == f"DirectionTest(sex = f: disadvantaged, p={f.p_value:.2g})"


def test_unknown_values_are_left_out_before_anything_else():
    people = simulated(5, 600)
    sex = np.where(people["carries"], "f", "m").astype(object)
    sex[::7] = None
    known = np.flatnonzero(sex != None)  # noqa: E711
    finder = finder_of(people, answer=sex)
    test = audit.direction_test(finder, attribute="answer", value="f", unfavourable=REFUSED)
    alone = direction(finder_of(people, known))
    assert test.unknown == 600 - len(known)
    assert test.statistic == alone.statistic
    among = direction(finder, nodes=known)
    assert among.statistic == alone.statistic


def test_it_cannot_tell():
    people = simulated(8, 400)
    few = np.arange(400) < 19
    rng = np.random.default_rng(0)
    one_refused = {"labels": np.where(np.arange(400) == 7, REFUSED, GRANTED)}
    with_sex = {"X": np.column_stack([people["X"], people["carries"]])}
    alike = "all decisions are alike"
    for changes, features, options, reason in (
        ({}, few, {}, "fewer than 20 people carry the value: 19"),
        ({}, ~few, {}, "fewer than 20 people do not carry the value: 19"),
        ({}, people["carries"], {"unfavourable": [REFUSED, GRANTED]}, alike),
        (one_refused, people["carries"], {}, ""),
        (
            {"X": rng.standard_normal((400, 41))},
            people["carries"],
            {},
            "41 dimensions are more than a tenth of 400",
        ),
        ({"X": np.ones((400, 3))}, people["carries"], {}, "all vectors are alike"),
        (with_sex, people["carries"], {}, "decisive carriers"),
    ):
        finder = finder_of(people | changes, few=features.astype(int))
        options = {"attribute": "few", "value": 1, "unfavourable": REFUSED} | options
        test = audit.direction_test(finder, **options)
        assert test.verdict == "cannot tell"
        assert reason in test.reason
        if "fewer than" in reason:
            assert np.isnan([test.p_value, test.statistic, test.gamma, test.expected]).all()
            assert repr(test) == f"DirectionTest(few = 1: cannot tell, {test.reason})"
        if changes is one_refused or reason == alike:
            assert len(test.pairs) == (reason != alike)


def test_errors():
    finder = finder_of(simulated(9, 100))
    given = {"attribute": "sex", "value": "f", "unfavourable": REFUSED}
    for changes, message in (
        ({"attribute": "Sex"}, "must name attributes .*did you mean 'sex'"),
        ({"value": "F"}, "value must be among the values of 'sex' .*did you mean 'f'"),
        ({"value": []}, "value must hold one value at least"),
        ({"unfavourable": 7}, "unfavourable must be among the classes"),
        ({"unfavourable": []}, "unfavourable must hold one class"),
        ({"nodes": [100]}, "nodes must"),
        ({"alpha": 2}, "alpha must lie"),
    ):
        with pytest.raises(ValueError, match=message):
            audit.direction_test(finder, **given | changes)
    bare = cfe.EvidenceFinder.from_vectors(np.eye(4), [0, 1, 0, 1])
    with pytest.raises(ValueError, match="finder must know attributes"):
        audit.direction_test(bare, **given)
