"""People with several rows: tests and intervals count people, not rows."""

import re

import numpy as np
import pandas as pd
import pytest
from simulated_people import REFUSED, simulated

import cfe_faiss as cfe
from cfe_faiss import audit
from cfe_faiss.audit.direct_test import question
from cfe_faiss.audit.groups import DEFAULT_BINS

N = 260


def repeated(seed, *, moves=0.0, harm=0.0, times=2):
    """Return a finder in which every person has some rows, and the person of each row."""
    people = simulated(seed, N, harm=harm)
    rng = np.random.default_rng(seed)
    person = rng.permutation(np.repeat(np.arange(N), times))
    X = people["X"][person] + moves * rng.standard_normal((times * N, 6))
    features = {
        "sex": np.where(people["carries"], "f", "m")[person],
        "person": np.char.add("p", person.astype(str)),
    }
    return cfe.EvidenceFinder.from_vectors(X, people["labels"][person], features=features), person


def statistics_of(finder, person):
    effects = audit.direct_effects(
        finder, sensitive=["sex"], unfavourable=REFUSED, person=person
    ).table
    return effects.loc[effects["value"] == "f", "statistic"].to_numpy()


@pytest.mark.parametrize("moves", [0.0, 0.02])
def test_statistics_of_repeated_people_have_variance_1(moves):
    counted, by_rows = [], []
    for seed in range(12):
        finder, person = repeated(seed, moves=moves)
        counted.append(statistics_of(finder, person))
        by_rows.append(statistics_of(finder, None))
    assert np.nanmean(np.square(counted)) < 1.5
    assert np.nanmean(np.square(by_rows)) > 1.5, "rows of one person are no independent draws"


def test_people_are_counted_and_never_compared_with_themselves():
    finder, person = repeated(0, moves=0.02, harm=0.5, times=3)
    sample, _, fields = question(finder, "sex", ("value", "f"), REFUSED, None, DEFAULT_BINS, person)
    assert fields["n_carriers"] + fields["n_others"] == N
    whose = person[sample.rows]
    assert (whose[sample.neighbours(10)] != whose[:, None]).all()
    in_pairs = whose[np.concatenate(sample.pairs[:2])]
    assert len(np.unique(in_pairs)) == len(in_pairs) > 2 * N // 8, (
        "each person is in one pair at most"
    )
    test = audit.situation_test(
        finder, attribute="sex", protected="f", unfavourable=REFUSED, person=person
    )
    assert (test.table["n_protected"] == 10).all()


def test_a_report_calls_rows_rows_and_persons_people(tmp_path):
    finder, _ = repeated(0, moves=0.02, harm=0.6)
    options = {"favourable": 1 - REFUSED, "sensitive": ["sex"], "pairs": 5, "cases": 1}
    numbers = audit.report(
        finder, tmp_path / "r.html", person="person", progress=False, **options
    ).numbers
    assert f"Audited: the decisions about {2 * N} rows." in numbers["scope"][0]
    pattern = r"sex = f: people of this group \(n = \d+\)"
    assert any(re.search(pattern, line) for line in numbers["named"])


def test_a_person_is_named_by_an_attribute_or_one_value_per_row():
    finder, person = repeated(1, moves=0.02)
    tests = [
        audit.direction_test(finder, attribute="sex", value="f", unfavourable=REFUSED, person=whose)
        for whose in (person, "person", pd.Series(person).astype(str))
    ]
    assert len({(test.statistic, test.n_carriers) for test in tests}) == 1
    singles = [
        audit.direction_test(finder, attribute="sex", value="f", unfavourable=REFUSED, person=whose)
        for whose in (None, np.arange(2 * N), np.full(2 * N, None))
    ]
    assert len({test.statistic for test in singles}) == 1, "a row without a value is a person"
    with pytest.raises(ValueError, match="person must hold one value for each of 520 rows, got 3"):
        audit.direct_effects(finder, sensitive=["sex"], unfavourable=REFUSED, person=[1, 2, 3])
    with pytest.raises(ValueError, match="person must name attributes"):
        audit.direct_effects(finder, sensitive=["sex"], unfavourable=REFUSED, person="persn")


def test_rates_of_people_who_repeat_have_the_intervals_of_single_people():
    rng = np.random.default_rng(0)
    sex = rng.choice(["f", "m", "d"], 300)
    predicted = rng.integers(0, 2, 300)
    true = rng.integers(0, 2, 300)
    once = audit.group_metrics(
        y_true=true, y_pred=predicted, sensitive_features={"sex": sex}, favourable=1
    )
    rows = rng.permutation(np.repeat(np.arange(300), 3))
    given = {"y_true": true[rows], "y_pred": predicted[rows], "favourable": 1}
    given["sensitive_features"] = {"sex": sex[rows]}
    thrice = audit.group_metrics(**given, person=rows)
    counts = {"count", "selected", "judged", "TP", "FP", "TN", "FN"}
    for name in ("table", "summary"):
        first, second = getattr(once, name), getattr(thrice, name)
        compared = [column for column in first if column not in counts]
        pd.testing.assert_frame_equal(first[compared], second[compared], check_dtype=False)
    assert (thrice.table["count"] == 3 * once.table["count"]).all()
    narrow = audit.group_metrics(**given).table
    assert (narrow["rate_high"] < thrice.table["rate_high"]).all()
    with pytest.raises(ValueError, match="person must hold one value for each of 900 rows"):
        audit.group_metrics(**given, person=rows[:5])


def test_models_are_compared_by_people():
    people, n = simulated(3, N), 2 * N
    labels = people["labels"]
    harmed = np.where(people["carries"] & (np.arange(N) % 3 == 0), REFUSED, labels)
    sex = np.where(people["carries"], "f", "m")
    once = cfe.EvidenceFinder.from_vectors(people["X"], labels, features={"sex": sex})
    twice = cfe.EvidenceFinder.from_vectors(
        np.tile(people["X"], (2, 1)), np.tile(labels, 2), features={"sex": np.tile(sex, 2)}
    )
    options = {"unfavourable": REFUSED, "sensitive": ["sex"], "k": 3}
    single = audit.compare_models(once, {"v2": harmed}, **options).table
    by_people = audit.compare_models(
        twice, {"v2": np.tile(harmed, 2)}, person=np.arange(n) % N, **options
    ).table
    by_rows = audit.compare_models(twice, {"v2": np.tile(harmed, 2)}, **options).table
    rates = [table[table["test"] == "rates"] for table in (single, by_people, by_rows)]
    for column in ("p", "low", "high", "effect", "n_effective"):
        np.testing.assert_allclose(rates[1][column], rates[0][column])
    assert (rates[1]["n"] == 2 * rates[0]["n"]).all()
    found = rates[2].loc[rates[2]["value"] == "f", "p"].item()
    assert found < rates[1].loc[rates[1]["value"] == "f", "p"].item()
    assert (by_people.loc[by_people["test"] == "direction", "n_effective"] < N).all()


def test_a_person_moves_as_most_rows_do():
    X = np.arange(90, dtype=float)[:, None] + 1
    labels = np.array(["no", "yes", "yes"] * 30)
    # of three rows of a person one moves up, two move down
    other = np.array(["yes", "no", "no"] * 30)
    finder = cfe.EvidenceFinder.from_vectors(X, labels)
    person = np.repeat(np.arange(30), 3)
    (line,) = audit.compare_models(
        finder, {"v2": other}, unfavourable="no", sensitive=[], person=person
    ).table.to_dict("records")
    assert (line["n"], line["worse"], line["better"], line["n_effective"]) == (90, 60, 30, 30)
    assert line["p"] == pytest.approx(2 * 0.5**30)
    with pytest.raises(ValueError, match="person"):
        audit.compare_models(finder, {"v2": other}, unfavourable="no", person=[1, 2])
