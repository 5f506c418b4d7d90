from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_array_equal

import cfe_faiss as cfe
from cfe_faiss.attributes.columns import Proxy, Removed, are_copies, association, leave_out, proxies
from cfe_faiss.attributes.table import as_attributes
from cfe_faiss.datasets import load

N = 400
RNG = np.random.default_rng(0)
NOISE = RNG.normal(size=N)
AGE = RNG.integers(18, 80, N).astype(float)
KIND = RNG.integers(0, 4, N)
FEMALE = RNG.integers(0, 2, N)


def table(**columns):
    return SimpleNamespace(x=np.stack(list(columns.values()), axis=1), feature_names=list(columns))


def strength(one, other):
    attributes = as_attributes({"one": one, "other": other})
    return association(attributes["one"], attributes["other"])


def removed(data, *without, **attributes):
    return leave_out(data, as_attributes(attributes) if attributes else None, without)[2]


# --- association: by hand ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (AGE, 3 - AGE / 7),
        (AGE, np.exp(AGE)),
        (NOISE, -(NOISE**3)),
        (KIND, np.array([2, 0, 3, 1])[KIND]),
        (np.array(list("abcd"))[KIND], np.array([0.3, 0.1, 0.9, 0.5])[KIND]),
        (np.array(list("abcd"))[KIND], np.array(["w", "z", "y", "x"])[KIND]),
        (np.array(["m", "f"])[FEMALE], FEMALE),
        # one determines the other
        (KIND == 2, KIND),
        (AGE >= 65, AGE),
        (np.array(["young", "old"])[(AGE >= 65).astype(int)], AGE),
    ],
)
def test_what_holds_the_same_is_1(one, other):
    assert strength(one, other) == pytest.approx(1)
    assert strength(other, one) == pytest.approx(1)


def test_two_values_each_give_phi():
    single = np.where(RNG.random(N) < 0.8, FEMALE, 1 - FEMALE)
    (a, b), (c, d) = np.histogram2d(FEMALE, single, bins=2)[0]
    phi = abs(a * d - b * c) / np.sqrt((a + b) * (c + d) * (a + c) * (b + d))
    # adjusted for two groups
    expected = np.sqrt(1 - (1 - phi**2) * (N - 1) / (N - 2))
    assert 0.5 < expected < 0.7
    texts = np.array(["m", "f"])[FEMALE], np.array(["no", "yes"])[single]
    for one, other in ((texts[0], texts[1]), (texts[0], single), (FEMALE == 1, texts[1])):
        assert strength(one, other) == pytest.approx(expected)
    # between numbers, the correlation itself, which nothing was chosen for
    assert strength(FEMALE, single) == pytest.approx(phi)


def test_a_number_by_groups_is_the_correlation_ratio():
    values = KIND**2 + NOISE
    means = np.array([values[kind == KIND].mean() for kind in range(4)])
    share = ((means[KIND] - values.mean()) ** 2).sum() / ((values - values.mean()) ** 2).sum()
    expected = np.sqrt(1 - (1 - share) * (N - 1) / (N - 4))
    assert strength(values, np.array(list("abcd"))[KIND]) == pytest.approx(expected)


def test_missing_values_are_left_out():
    some = AGE.copy()
    some[::3] = np.nan
    assert strength(some, np.where(np.isnan(some), 0, 2 * AGE)) == pytest.approx(1)
    assert strength(np.full(N, np.nan), AGE) == 0


def test_constants_and_few_rows_tell_nothing():
    assert strength(AGE, np.ones(N)) == 0
    assert strength(["a"] * N, AGE) == 0
    assert strength([1.0, 2.0], [3.0, 4.0]) == 0
    assert strength(["a", "b", "c"], ["x", "y", "z"]) == 0


@given(st.integers(0, 10**6), st.sampled_from([30, 100, 1000]))
def test_noise_is_no_proxy(seed, n):
    rng = np.random.default_rng(seed)
    columns = {
        "normal": rng.normal(size=n),
        "many": rng.integers(0, n // 2, n),
        "few": rng.integers(0, 3, n),
        "two": rng.integers(0, 2, n),
        "rare": rng.random(n) < 0.05,
    }
    for kind in (rng.normal(size=n), rng.integers(0, 2, n), rng.integers(0, 5, n).astype(str)):
        for values in columns.values():
            assert strength(kind, values) < 0.8 if n == 30 else strength(kind, values) < 0.5


@given(
    hnp.arrays(np.int64, 60, elements=st.integers(0, 5)),
    hnp.arrays(np.int64, 60, elements=st.integers(0, 3)),
    st.permutations(range(6)),
)
def test_renaming_and_order_change_nothing(one, other, names):
    texts = np.array(list("abcdef"))
    found = strength(texts[one], texts[other])
    assert 0 <= found <= 1
    assert strength(texts[np.array(names)[one]], texts[other]) == pytest.approx(found)
    assert strength(texts[other], texts[one]) == found
    assert strength(texts[one][::-1], texts[other][::-1]) == pytest.approx(found)


GROUPS = np.arange(N) % 4
ABCD = np.array(list("abcd"))[GROUPS]
SEX = np.array(["f", None, "m", "x"], object)[GROUPS]
MEASURED = NOISE[GROUPS]
"""One number for each group, as the rate of poverty of a place."""


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (ABCD, np.array(list("wxyz"))[GROUPS], True),
        (ABCD, np.array(list("wxyy"))[GROUPS], False),
        (ABCD, GROUPS, True),  # codes
        (ABCD, np.array([10, 30, 20, 40])[GROUPS], True),
        (ABCD, (GROUPS - GROUPS.mean()) / GROUPS.std(), True),
        (ABCD, MEASURED, False),
        (SEX, np.array(list("1234"))[GROUPS], True),
        (SEX, np.array(["1", "2", "3", None], object)[GROUPS], True),
        (np.array(["f", None, "f", "m"], object)[GROUPS], np.array(list("1223"))[GROUPS], False),
        (FEMALE, np.where(FEMALE, 0.3, 0.7), True),
        (AGE, 2020 - AGE, True),
        (AGE, np.exp(AGE / 10), True),
        (AGE, AGE // 10, False),
        (ABCD, np.array([1, 2, 3, np.inf])[GROUPS], False),
        (ABCD, np.array([1, 2, 3, np.nan])[GROUPS], True),
        (NOISE, RNG.normal(size=N), False),  # no value of either occurs twice
        (NOISE, np.where(np.arange(N) == 3, np.nan, NOISE), False),
        (np.arange(N).astype(str), NOISE, False),
        ([f"p{i // 2}" for i in range(N)], NOISE[np.arange(N) // 2], False),  # two rows a person
        (["a"] * N, ["b"] * N, False),
    ],
)
def test_copies_go_one_to_one(one, other, expected):
    attributes = as_attributes({"one": list(one), "other": list(other)})
    pair = attributes["one"], attributes["other"]
    assert are_copies(*pair) == are_copies(*reversed(pair)) == expected


# --- columns that are left out ----------------------------------------------------------------------------------------


def one_hot(name, codes, values, separator="_"):
    return {
        f"{name}{separator}{value}": (codes == code).astype(float)
        for code, value in enumerate(values)
    }


@pytest.mark.parametrize("separator", ["_", "=", ":", ".", " ", "["])
def test_one_hot_groups(separator):
    data = table(**one_hot("kind", KIND, "abcd", separator), age=AGE)
    expected = tuple(data.feature_names[:4])
    assert removed(data, "kind") == Removed(("kind",), expected, (), ())
    assert repr(removed(data, "age")) == "Removed(age: 1 column)"
    # the others of the group tell which one it is, but not the other way round
    by_column = removed(data, expected[0])
    assert by_column.columns == expected[:1]
    assert by_column.proxies == (Proxy("kind", expected[0], 1.0),)


def test_nested_columns_are_one_attribute():
    data = table(balance_geq_0=AGE >= 30, balance_geq_200=AGE >= 60, noise=NOISE)
    assert removed(data, "balance").columns == ("balance_geq_0", "balance_geq_200")


def test_columns_that_only_begin_equally_are_separate():
    data = table(has_car=FEMALE, has_boat=NOISE > 0, year_a=AGE, year_b=NOISE)
    assert removed(data, "has_car").columns == ("has_car",)
    for name in ("has", "year"):
        message = rf"without must name .*has_car, has_boat, .*got '{name}'"
        with pytest.raises(ValueError, match=message):
            leave_out(data, None, [name])


def test_feature_attributes_say_which_columns_belong_together():
    data = table(a=AGE, b=np.isnan(AGE), c=NOISE)
    data.feature_attributes = ["age", "age", "noise"]
    assert removed(data, "age").columns == ("a", "b")
    data.feature_attributes = ["age"]
    with pytest.raises(ValueError, match=r"data\.feature_attributes must hold 3 names, .*got 1"):
        leave_out(data, None, ["age"])


def test_copies_leave_with_the_attribute_and_proxies_are_named():
    height = 180 - 13 * FEMALE + 6 * NOISE
    data = table(age=AGE, months=12 * AGE + 6, female=FEMALE, male=1 - FEMALE, height=height)
    assert removed(data, "age").columns == ("age", "months")
    found = removed(data, "female")
    assert found.columns == ("female", "male")
    assert found.copies == (Proxy("male", "female", 1.0),)
    assert [proxy.column for proxy in found.proxies] == ["height"]
    assert 0.6 < found.proxies[0].strength < 0.9
    assert repr(found) == (
        f"Removed(female: 2 columns; copies: male (1.00); proxies kept: height ({found.proxies[0].strength:.2f}))"
    )
    both = removed(data, "female", "height")
    assert both.columns == ("female", "male", "height")
    assert both.proxies == ()
    assert both.copies == found.copies


def test_attributes_that_columns_hold_under_another_name():
    sex = np.array(["m", "f"])[FEMALE]
    data = table(age=AGE, gender=2 * FEMALE - 1, **one_hot("type", KIND, "abcd"))
    found = removed(data, "sex", sex=sex)
    assert found.columns == ("gender",)
    assert found.copies == (Proxy("gender", "sex", 1.0),)
    expected = tuple(data.feature_names[2:])
    assert removed(data, "letter", letter=np.array(list("wxyz"))[KIND]).columns == expected
    with pytest.raises(ValueError, match=r"got 'town', which no column equals: none comes near it"):
        leave_out(data, as_attributes({"town": RNG.integers(0, 3, N).astype(str)}), ["town"])
    almost = np.where(RNG.random(N) < 0.1, 1 - FEMALE, FEMALE)
    with pytest.raises(ValueError, match="got 'almost', which no column equals: the nearest"):
        leave_out(data, as_attributes({"almost": almost}), ["almost"])


@pytest.mark.parametrize(
    ("without", "error", "message"),
    [
        ("age", TypeError, "without must be a sequence of names, got 'age'"),
        (None, TypeError, "without must be a sequence of names, got None"),
        (["ages"], ValueError, "without .*got 'ages'"),
        (["age", "noise"], ValueError, "without .*got age, noise"),
    ],
)
def test_faults_are_named(without, error, message):
    with pytest.raises(error, match=message):
        leave_out(table(age=AGE, noise=NOISE), None, without)


# --- proxies of any attribute -----------------------------------------------------------------------------------------


def test_proxies_of_an_attribute_outside_of_x():
    data = table(female=FEMALE, height=180 - 13 * FEMALE + 6 * NOISE, age=AGE)
    found = proxies(data, "sex", {"sex": np.array(["m", "f"])[FEMALE]})
    assert [proxy.column for proxy in found] == ["female", "height"]
    assert found[0].strength == 1
    assert [proxy.column for proxy in proxies(data, "female")] == ["height"]
    with pytest.raises(ValueError, match=r"attribute must name attributes or columns .*got 'x'"):
        proxies(data, "x")


# --- real graphs, and the vectors -------------------------------------------------------------------------------------


def test_german(data_root):
    data = load("german", data_root)
    wanted = [("Single", 0.74)]
    assert [(proxy.column, round(proxy.strength, 2)) for proxy in proxies(data, "Gender")] == wanted
    finder = cfe.EvidenceFinder.from_data(
        data, data.y, without=["Gender", "CheckingAccountBalance"]
    )
    assert finder.removed is not None
    expected = ("Gender", "CheckingAccountBalance_geq_0", "CheckingAccountBalance_geq_200")
    assert finder.removed.columns == expected
    assert [proxy.column for proxy in finder.removed.proxies] == ["Single"]
    assert (
        "without Removed(Gender, CheckingAccountBalance: 3 columns; proxies kept: Single for Gender (0.74))"
        in repr(finder)
    )
    keep = [name not in finder.removed.columns for name in data.feature_names]
    assert_array_equal(finder.vectors, cfe.ks_vectors(data.x[:, keep], data.edge_index))


@given(st.integers(0, 10**6), st.sets(st.integers(0, 4), min_size=1, max_size=3))
def test_vectors_match_data_without_the_columns(seed, out):
    rng = np.random.default_rng(seed)
    data = SimpleNamespace(
        x=rng.normal(size=(40, 5)).astype(np.float32),
        edge_index=rng.integers(0, 40, (2, 80)),
        feature_names=list("abcde"),
    )
    finder = cfe.EvidenceFinder.from_data(
        data, rng.integers(0, 2, 40), without=["abcde"[column] for column in out]
    )
    assert finder.removed is not None
    keep = [name not in finder.removed.columns for name in data.feature_names]
    assert {"abcde"[column] for column in out} <= set(finder.removed.columns)
    assert_array_equal(finder.vectors, cfe.ks_vectors(data.x[:, keep], data.edge_index))
    # of the nodes' attributes none is lost
    assert finder.attributes is not None
    assert list(finder.attributes) == data.feature_names
