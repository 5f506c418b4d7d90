import warnings
from contextlib import nullcontext
from html import escape

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import cfe_faiss as cfe
from cfe_faiss import audit
from cfe_faiss.attributes.table import as_attributes
from cfe_faiss.base.checks import InputNote
from cfe_faiss.data.encode import encode

FEATURES = ["income", "job", "sex"]


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(0)
    n = 200
    frame = pd.DataFrame(
        {
            "person": [f"p{i}" for i in range(n)],
            "income": rng.gamma(10, 4, n).round(1),
            "job": rng.choice(["cook", "smith", "clerk"], n),
            "sex": rng.choice(["f", "m"], n),
        }
    )
    paid = frame["income"] - 8 * (frame["sex"] == "f") + rng.normal(0, 4, n) > 32
    return frame.assign(paid=np.where(paid, "yes", "no"))


@pytest.fixture(scope="module")
def model(people):
    columns = make_column_transformer(
        (OneHotEncoder(), ["job", "sex"]), (StandardScaler(), ["income"])
    )
    return make_pipeline(columns, LogisticRegression()).fit(people[FEATURES], people["paid"])


@pytest.fixture(scope="module")
def finder(people, model):
    return cfe.EvidenceFinder.from_table(
        people, model, truth="paid", id="person", sensitive=["sex"]
    )


def test_a_model_and_a_frame_become_a_finder(people, model, finder):
    assert finder.class_names == ("no", "yes")
    names = np.array(finder.class_names)
    assert names[finder.labels].tolist() == model.predict(people[FEATURES]).tolist()
    assert finder.truth is not None
    assert names[finder.truth].tolist() == people["paid"].tolist()
    np.testing.assert_array_equal(finder.probabilities, model.predict_proba(people[FEATURES]))
    assert finder.names([3, 0]).tolist() == ["p3", "p0"]
    assert finder.rows("nodes", ["p3", "p0"]).tolist() == [3, 0]
    assert finder.attributes is not None
    assert list(finder.attributes) == FEATURES
    assert finder.sensitive == ("sex",)
    assert finder.model is model
    assert finder.graph is None
    # The vectors hold income and job, and nothing of the sex.
    np.testing.assert_array_equal(
        finder.vectors, encode(as_attributes(people[["income", "job"]])).x
    )


def test_results_and_arguments_are_in_the_users_words(people, finder):
    frame = finder.local(["p5", "p2"], k=1).to_frame(attributes=True)
    assert frame["node"].tolist() == ["p5", "p2"]
    by_id = people.set_index("person")
    assert frame["evidence_income"].tolist() == by_id.loc[frame["evidence"], "income"].tolist()
    pairs = finder.top_pairs(3).to_frame(attributes=True)
    assert set(pairs["source_class"]) <= {"yes", "no"}
    assert set(pairs["source"]) <= set(people["person"])
    found = audit.only_in(finder, ["sex"]).most_similar(1).table
    assert found["source"].isin(people["person"]).all()
    with pytest.raises(
        ValueError, match=r"nodes must name rows by their ids .*, got 'P5'; did you mean 'p5'\?"
    ):
        finder.local("P5")


def test_notebooks_show_tables(finder):
    question = {"attribute": "sex", "unfavourable": "no"}
    audits = (
        audit.flip(finder, "sex"),
        audit.only_in(finder, ["sex"]),
        audit.group_metrics(
            y_pred=finder.labels, sensitive_features=finder.attributes.to_frame()[["sex"]]
        ),
        audit.situation_test(finder, protected="f", **question),
        audit.direction_test(finder, value="f", **question),
        audit.direct_effects(finder, unfavourable="no"),
    )
    for shown in (finder, finder.local(["p5"], k=2), finder.top_pairs(30), *audits):
        text = shown._repr_html_()
        assert text.startswith(f"<p>{escape(repr(shown))}</p><table")
    pairs = finder.top_pairs(30)._repr_html_()
    assert "25 more rows" in pairs
    assert "<td>sex m, f; income 33.2, 33.1 (-0.01 SD)</td>" in pairs


def test_a_flip_calls_the_model_on_the_table(people, model, finder):
    test = audit.flip(finder, "sex", by=["job"])
    other = people[FEATURES].assign(sex=people["sex"].map({"f": "m", "m": "f"}))
    changed = model.predict(people[FEATURES]) != model.predict(other)
    assert changed.any()
    assert test.changed_nodes.tolist() == sorted(people["person"][changed])
    assert test.hops == 0
    some = audit.flip(finder, "job", nodes=["p3"]).to_frame()
    assert some["node"].tolist() == ["p3", "p3"]
    assert set(some["flipped"]) == {"cook", "smith", "clerk"} - {people["job"][3]}
    with pytest.raises(ValueError, match="did you mean 'sex'"):
        audit.flip(finder, "Sex")
    with pytest.raises(ValueError, match="columns must not be given for a table"):
        audit.flip(finder, "sex", columns={"f": "sex"})


def test_forms_of_predictions(people, model):
    table = people.drop(columns=["person", "paid"])
    plain = people["paid"].to_numpy()
    numbers = (people["paid"] == "yes").astype(int)
    named = cfe.EvidenceFinder.from_table(
        table, numbers, class_names=["refused", "granted"], truth=numbers
    )
    assert named.class_names == ("refused", "granted")
    np.testing.assert_array_equal(named.labels, numbers)
    np.testing.assert_array_equal(named.truth, numbers)
    signs = cfe.EvidenceFinder.from_table(table, 2 * numbers - 1)
    assert signs.class_names == ("-1", "1")
    assert signs.class_numbers("favourable", 1).tolist() == [1]
    assert signs.class_numbers("favourable", [-1, 1]).tolist() == [0, 1]
    called = cfe.EvidenceFinder.from_table(table, lambda frame: (frame["income"] > 30).to_numpy())
    np.testing.assert_array_equal(called.labels, table["income"] > 30)
    shares = np.linspace(0, 1, len(table))
    scored = cfe.EvidenceFinder.from_table(table.assign(p=shares), plain, probabilities="p")
    assert scored.attributes is not None
    assert "p" not in scored.attributes
    np.testing.assert_allclose(scored.probabilities, np.column_stack([1 - shares, shares]))


def test_an_encoder_of_ones_own(people):
    fitted = StandardScaler().fit(people[["income"]])
    for encoder in (StandardScaler(), fitted, lambda frame: frame[["income"]].to_numpy()):
        finder = cfe.EvidenceFinder.from_table(people[["income", "paid"]], "paid", encoder=encoder)
        assert finder.vectors.shape == (len(people), 1)
    both = make_column_transformer((OneHotEncoder(), ["sex"])).fit(people[["sex"]])
    with pytest.raises(
        ValueError, match="encoder must not use columns of sensitive or without, got 'sex'"
    ):
        cfe.EvidenceFinder.from_table(people, "paid", id="person", encoder=both, sensitive=["sex"])


def test_the_index_of_a_frame_holds_ids(people):
    part = people[people["income"] > 30].drop(columns="person")
    finder = cfe.EvidenceFinder.from_table(part, "paid", nodes=part.index[:40])
    assert finder.names([0, 1]).tolist() == part.index[:2].tolist()
    assert finder.index.ntotal == 40
    assert cfe.EvidenceFinder.from_table(people.drop(columns="person"), "paid").ids is None


BAD = [
    ({"model": "payd"}, r"model must name a column of frame .*'payd'; did you mean 'paid'\?"),
    ({"id": "Person"}, "did you mean 'person'"),
    ({"truth": "Paid"}, "did you mean 'paid'"),
    ({"sensitive": ["Sex"]}, "did you mean 'sex'"),
    ({"without": ["jobs"]}, "did you mean 'job'"),
    ({"id": "job"}, "id must hold each id once"),
    ({"id": None}, "'person' has 200 different texts, more than 100"),
    ({"without": ["income", "job", "sex"]}, "got none beside income, job, sex"),
    ({"model": [0, 1]}, r"must be classes of shape \(200,\), got shape \(2,\)"),
    ({"model": [0.5] * 200}, "scores of classes are for probabilities="),
    ({"probabilities": [0.1, 0.2]}, "probabilities must have a column for each class"),
    ({"class_names": ["a", "b"]}, r"model .*class names \(a, b\), got"),
    ({"frame": 3}, "frame must be a table"),
    ({"frame": {"income": [1, 2], "sex": ["f"]}}, "columns of one length.*'income': 2, 'sex': 1"),
    ({"frame": {"a": pd.Series([1, 2]), "b": pd.Series([1])}}, "columns of one length.*'b': 1"),
    ({"model": LogisticRegression}, "model must be a model, got the class LogisticRegression: "),
    ({"encoder": 3}, "encoder must be a scikit-learn transformer"),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_bad_arguments_are_named(people, change, message):
    with pytest.raises((ValueError, TypeError), match=message):
        cfe.EvidenceFinder.from_table(
            **({"frame": people, "model": "paid", "id": "person"} | change)
        )


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (
            np.arange(200) * 1j,
            "column 'c' must hold numbers, texts, booleans or dates, got complex",
        ),
        (pd.Series([1j, 2] * 100, dtype=object), "column 'c' must hold numbers.*got complex"),
        (np.where(np.arange(200) == 7, np.inf, 1), r"column 'c' must .*got inf in row 7 .*None"),
        (np.where(np.arange(200) > 6, -1e308, 1), r"column 'c' .*got -1e\+308 in row 7 .*unit"),
        (pd.Categorical(np.arange(200)), "column 'c' has 200 .*make it a number .codes"),
    ],
)
def test_bad_columns_are_named(people, column, message):
    with pytest.raises(ValueError, match=message):
        cfe.EvidenceFinder.from_table(people.assign(c=column), "paid", id="person")


@pytest.mark.parametrize("cell", ["１２.５", "12.5", "\N{MINUS SIGN}12.5", "+12.5", "－１２．５"])
def test_numbers_may_have_full_width_digits_and_the_minus_of_typography(people, cell, tmp_path):
    table = people.assign(income=people["income"].astype(str))
    table.loc[3, "income"] = cell
    table.to_csv(tmp_path / "t.csv", index=False)
    finder = cfe.EvidenceFinder.from_table(tmp_path / "t.csv", "paid", id="person")
    expected = people["income"].to_numpy().copy()
    expected[3] = -12.5 if cell[0] in "\N{MINUS SIGN}－" else 12.5
    np.testing.assert_array_equal(finder.attributes["income"].numbers, expected)
    table.loc[3, "income"] = "\N{ARABIC-INDIC DIGIT ONE}"  # no number to pandas
    table.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(ValueError, match=r"t.csv: column 'income' holds numbers, but .*line 5"):
        cfe.EvidenceFinder.from_table(tmp_path / "t.csv", "paid", id="person")


def test_a_missing_id_of_a_file_has_its_line(people, tmp_path):
    table = people.assign(person=people["person"].mask(people.index == 7))
    table.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(ValueError, match=r"t.csv, line 9: person .*id for every row, got none"):
        cfe.EvidenceFinder.from_table(tmp_path / "t.csv", "paid", id="person")


def test_a_model_of_more_columns_is_refused(people):
    unnamed = LogisticRegression().fit(people[["income"]].to_numpy(), people["paid"])
    with pytest.raises(ValueError, match="model was fitted on 1 columns without names, got 2"):
        cfe.EvidenceFinder.from_table(people[["income", "job"]], unnamed)


@pytest.mark.parametrize(("numbered", "names"), [(False, ["yes", "no"]), (True, ["no", "yes"])])
def test_class_names_may_have_another_order_or_stand_for_numbers(people, numbered, names):
    numbers = people[["income"]].assign(age=np.arange(200) % 5)
    paid = (people["paid"] == "yes").astype(int)
    model = LogisticRegression().fit(numbers, paid if numbered else people["paid"])
    expected = dict(zip(("no", "yes"), model.predict_proba(numbers).T, strict=True))
    finder = cfe.EvidenceFinder.from_table(numbers, model, class_names=names)
    for _ in range(2):
        assert finder.probabilities is not None
        np.testing.assert_array_equal(finder.probabilities.T, [expected[name] for name in names])
        np.testing.assert_array_equal(finder.labels, finder.probabilities.argmax(axis=1))
        finder.updated(features=numbers.assign(city="here"))
    flips = audit.flip(finder, "age")
    np.testing.assert_array_equal(flips.before, finder.labels[flips.node])


def suspicions(frame, **options):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        cfe.EvidenceFinder.from_table(frame, **options)
    assert all(issubclass(warning.category, cfe.InputWarning) for warning in caught)
    return [str(warning.message) for warning in caught]


def test_suspicious_columns_are_named_with_the_remedy(people):
    bare = people.drop(columns="person")
    assert suspicions(bare, model="paid") == []
    (text,) = suspicions(bare.assign(nr=np.arange(1, 201)), model="paid")
    assert "column 'nr' has another value in every row" in text
    assert "--id nr" in text
    (text,) = suspicions(people.assign(nr=np.arange(1, 201)), model="paid", id="person")
    assert "ignore=['nr'] (--ignore nr)" in text
    remarks = pd.DataFrame(
        {"age": np.arange(40) % 7, "note": [f"said {word} and left" for word in range(40)]}
    )
    (text,) = suspicions(remarks, model=np.arange(40) % 2)
    assert "ignore=['note'] (--ignore note)" in text
    (text,) = suspicions(bare.assign(place=np.arange(1, 201)), model="paid")
    assert "column 'place' has another value in every row" in text
    (text,) = suspicions(
        bare.assign(copy=people["paid"].map({"yes": "settled", "no": "open"})), model="paid"
    )
    assert "column 'copy' determines the predictions" in text
    noisy = np.where(np.arange(200) % 10 == 0, "no", people["paid"])
    (text,) = suspicions(bare.assign(copy=people["paid"]), model=noisy, truth="paid")
    assert "column 'copy' determines the truth" in text
    mixed = np.where(np.arange(200) % 7 == 0, people["paid"].str.upper() + " ", people["paid"])
    assert any("differ in blanks or case only" in text for text in suspicions(bare, model=mixed))
    born = pd.Timestamp("1960-01-01") + pd.to_timedelta(np.arange(200) % 30, unit="D")
    (text,) = suspicions(bare.assign(born=born), model="paid", sensitive=["born"])
    assert "sensitive attribute 'born' has 30 values" in text


@pytest.mark.filterwarnings("ignore::cfe_faiss.InputWarning")
@pytest.mark.parametrize("kind", ["string", "object"])
def test_missing_values_of_pandas_are_missing(people, kind):
    holes = np.arange(200) % 4 == 0
    table = people.assign(
        truth=people["paid"].astype(kind).mask(holes, pd.NA), job=people["job"].mask(holes, pd.NA)
    )
    finder = cfe.EvidenceFinder.from_table(
        table, "paid", truth="truth", id="person", sensitive=["sex"]
    )
    assert finder.truth is not None
    np.testing.assert_array_equal(finder.truth == -1, holes)
    assert finder.attributes is not None
    np.testing.assert_array_equal(finder.attributes["job"].missing, holes)
    plain = cfe.EvidenceFinder.from_table(table, "paid", id="person", without=["truth"])
    assert plain.vectors.shape[1] == 7
    decided = cfe.EvidenceFinder.from_table(table, "truth", id="person")
    np.testing.assert_array_equal(decided.labels == -1, holes)
    assert decided.index.ntotal == 150
    with pytest.raises(ValueError, match="id must hold an id for every row, got none in row 0"):
        cfe.EvidenceFinder.from_table(
            table, "paid", id=table["person"].astype(kind).mask(holes, pd.NA)
        )


def test_rows_of_other_columns_must_be_in_the_order_of_the_frame(people):
    table, paid = people.drop(columns=["person", "paid"]), people["paid"]
    shuffled = people.sample(frac=1, random_state=0)
    for argument in ("model", "truth", "probabilities"):
        given = {"model": paid, argument: shuffled["paid"]}
        with pytest.raises(ValueError, match=f"{argument} must have the pandas index of frame"):
            cfe.EvidenceFinder.from_table(table, **given)
    with pytest.raises(ValueError, match="model must have the pandas index of frame"):
        cfe.EvidenceFinder.from_table(shuffled.drop(columns=["person", "paid"]), paid)
    by_name = table.set_index(people["person"])
    assert cfe.EvidenceFinder.from_table(by_name, paid).names([3]).tolist() == ["p3"]


@pytest.mark.filterwarnings("ignore:class .* never among the others:cfe_faiss.InputWarning")
def test_truth_values_are_class_names(people):
    table = people.drop(columns=["person", "paid"])
    finder = cfe.EvidenceFinder.from_table(table, [True] * 200, truth=people["paid"] == "yes")
    assert finder.class_names == ("False", "True")
    for value in (True, np.True_, "True"):
        assert finder.class_numbers("favourable", value).tolist() == [1]
    assert finder.class_numbers("favourable", pd.Series([False, True])).tolist() == [0, 1]
    with pytest.raises(ValueError, match="class_names must be distinct"):
        cfe.EvidenceFinder.from_table(table, people["paid"] == "yes", class_names=["a", "a"])


@pytest.mark.filterwarnings("ignore::cfe_faiss.InputWarning")
def test_columns_of_one_value_and_the_type_of_numbers_change_nothing(people):
    table = people.drop(columns=["person", "paid"]).assign(age=np.arange(200) % 7)
    one = cfe.EvidenceFinder.from_table(table, people["paid"], sensitive=["sex"])
    for other in (
        table.assign(country="here"),
        table.assign(country=None),
        table.astype({"age": np.float32}),
    ):
        found = cfe.EvidenceFinder.from_table(other, people["paid"], sensitive=["sex"])
        np.testing.assert_array_equal(found.vectors, one.vectors)
    alone = cfe.EvidenceFinder.from_table(pd.DataFrame({"country": ["here"] * 4}), [0, 1, 0, 1])
    assert alone.vectors.shape == (4, 1)


@pytest.mark.filterwarnings("ignore::cfe_faiss.InputWarning")
@pytest.mark.parametrize("kind", ["csv", "parquet", "csv with gaps"])
def test_truth_values_of_a_file_are_those_of_a_frame(people, kind, tmp_path):
    table = people.drop(columns=["person", "paid"]).assign(member=np.arange(200) % 3 == 0)
    paid = table["income"] + 10 * table["member"] > 42
    columns = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["member"]), (StandardScaler(), ["income"])
    )
    model = make_pipeline(columns, LogisticRegression()).fit(table, paid)
    if kind == "csv with gaps":
        table["member"] = table["member"].astype(object).mask(np.arange(200) % 10 == 0, None)
    table["paid"] = paid
    path = tmp_path / f"people.{kind.split()[0]}"
    _ = table.to_parquet(path) if kind == "parquet" else table.to_csv(path, index=False)
    one, other = (
        cfe.EvidenceFinder.from_table(t, model, truth="paid", sensitive=["sex"])
        for t in (table, path)
    )
    assert other.class_names == one.class_names == ("False", "True")
    for name in ("labels", "truth", "probabilities", "vectors"):
        np.testing.assert_array_equal(getattr(other, name), getattr(one, name))


def leaky(n=300):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"income": rng.normal(size=n), "debt": rng.normal(size=n)})
    frame["loan"] = np.where(frame["income"] - frame["debt"] + rng.normal(size=n) > 0, "yes", "no")
    return frame


@pytest.mark.parametrize("leak", ["outcome", "date", "almost", "number"])
def test_a_leak_is_named_also_where_values_are_missing(leak):
    """A missing value counts as a value, and few exceptions do not hide a leak."""
    rng, frame = np.random.default_rng(1), leaky()
    granted = frame["loan"] == "yes"
    columns = {
        "outcome": np.where(granted, np.where(rng.random(300) < 0.9, "repaid", "defaulted"), None),
        "date": np.where(
            granted, rng.integers(1, 10**6, 300), np.nan
        ),  # known for granted loans only
        "almost": np.where(rng.random(300) < 0.003, "b", np.where(granted, "a", "b")),
        "number": np.where(granted, 1.0, 0.0),
    }
    frame[leak] = columns[leak]
    missing = int(frame[leak].isna().sum())
    note = pytest.warns(InputNote, match=f"missing values .*: {leak} {missing} of 300 rows")
    determines = pytest.warns(cfe.InputWarning, match=f"'{leak}' determines the predictions")
    with note if missing else nullcontext(), determines:
        cfe.EvidenceFinder.from_table(frame, "loan")


@pytest.mark.filterwarnings("default::cfe_faiss.InputWarning")
def test_a_column_that_decisions_follow_in_part_is_no_leak(recwarn):
    rng, frame = np.random.default_rng(1), leaky()
    granted = frame["loan"] == "yes"
    frame["school"] = np.where(rng.random(300) < np.where(granted, 0.9, 0.1), "high", "low")
    frame["rare"] = np.where(rng.random(300) < 0.02, "x", "y")
    frame["seldom"] = np.where(rng.random(300) < 0.05, 1.0, np.nan)
    cfe.EvidenceFinder.from_table(frame, "loan")
    assert not [warning for warning in recwarn if "determines" in str(warning.message)]


@pytest.mark.filterwarnings("ignore:no true class:cfe_faiss.InputWarning")
def test_truth_that_one_decision_shows_is_named():
    frame = leaky()
    repaid = np.where(np.random.default_rng(2).random(300) < 0.9, "yes", "no")
    frame["repaid"] = np.where(frame["loan"] == "no", None, repaid)
    with pytest.warns(cfe.InputWarning, match="truth is known for the decision 'yes' only"):
        cfe.EvidenceFinder.from_table(frame, "loan", truth="repaid")


def test_a_column_of_texts_is_offered_as_ids_only_where_there_are_none(people):
    texts = people.assign(note=[f"remark {row}" for row in range(len(people))])
    with pytest.raises(ValueError, match="note") as with_ids:
        cfe.EvidenceFinder.from_table(texts, "paid", id="person")
    with pytest.raises(ValueError, match="note") as without_ids:
        cfe.EvidenceFinder.from_table(texts.drop(columns="person"), "paid")
    assert "id=" not in str(with_ids.value)
    assert "id=" in str(without_ids.value)
