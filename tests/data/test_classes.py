import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from sklearn.linear_model import LogisticRegression

import cfe_faiss as cfe
from cfe_faiss import audit
from cfe_faiss.cli import main
from cfe_faiss.cli.inputs import make_finder, read_inputs
from cfe_faiss.cli.parser import PARSER, set_reading
from cfe_faiss.data.classes import (
    as_predictions,
    check_names,
)

CLASSES = [2, 0, 1, 2]
TEXTS = ["c", "a", "b", "c"]
SHARES = np.array([[0.1, 0.2, 0.7], [0.8, 0.1, 0.1], [0.2, 0.6, 0.2], [0.0, 0.4, 0.6]])


@pytest.mark.parametrize(
    "values",
    [
        CLASSES,
        np.array(CLASSES, np.uint8),
        np.array(CLASSES, object),
        torch.tensor(CLASSES),
        pd.Series(CLASSES),
        pd.Series(CLASSES, dtype="Int64"),
        pd.array(CLASSES, dtype="Int64"),
        pd.Categorical(CLASSES),
        pd.Index(CLASSES),
        pd.Series(CLASSES[::-1], index=[3, 2, 1, 0]),
        pd.DataFrame({"predicted": CLASSES}),
        pl.Series(CLASSES),
        pl.DataFrame({"predicted": CLASSES}),
    ],
    ids=str,
)
def test_class_numbers(values):
    found = as_predictions(values, 4)
    assert_array_equal(found.labels, CLASSES)
    assert found.labels.dtype == np.int32
    assert (found.scores, found.class_names) == (None, None)
    assert repr(found) == "Predictions(4 nodes, 3 classes, no scores)"


@pytest.mark.parametrize(
    "values",
    [
        TEXTS,
        np.array(TEXTS),
        np.array(TEXTS, np.dtypes.StringDType()),
        np.array(TEXTS, "S1"),
        np.array(TEXTS, object),
        pd.Series(TEXTS),
        pd.Series(TEXTS, dtype="category"),
        pd.array(TEXTS, dtype="string"),
        pd.Categorical(TEXTS),
        [text.encode() for text in TEXTS],
        pd.Series(TEXTS[::-1], index=[3, 2, 1, 0]),
        pd.DataFrame({"predicted": TEXTS}),
        pl.Series(TEXTS),
        pl.Series(TEXTS, dtype=pl.Categorical),
    ],
    ids=str,
)
def test_texts(values):
    found = as_predictions(values, 4)
    assert_array_equal(found.labels, CLASSES)
    assert found.class_names == ("a", "b", "c")
    by_name = as_predictions(values, 4, ["b", "d", "c", "a"])
    assert_array_equal(by_name.labels, [2, 3, 0, 2])
    assert by_name.class_names == ("b", "d", "c", "a")


@pytest.mark.parametrize(
    "values",
    [
        SHARES,
        SHARES.tolist(),
        np.log(SHARES + 1e-9),
        torch.tensor(SHARES, dtype=torch.bfloat16),
        torch.tensor(SHARES, requires_grad=True),
        pd.DataFrame(SHARES),
        pd.DataFrame(SHARES, columns=["a", "b", "c"]),
        pd.DataFrame(SHARES[::-1], index=[3, 2, 1, 0]),
        pd.DataFrame(SHARES, columns=["a", "b", "c"])[["b", "c", "a"]],
        pd.DataFrame(SHARES[:, [1, 0, 2]], columns=["1", "0", "2"]),
        pd.DataFrame(SHARES, dtype="Float64"),
        pl.DataFrame(SHARES, schema=["a", "b", "c"]).select("c", "a", "b"),
    ],
    ids=str,
)
def test_probabilities_and_logits(values):
    found = as_predictions(values, 4, ["a", "b", "c"])
    assert_array_equal(found.labels, CLASSES)
    assert found.scores is not None
    assert found.scores.shape == (4, 3)
    assert_array_equal(found.scores.argmax(axis=1), CLASSES)
    assert found.class_names == ("a", "b", "c")


@given(st.lists(st.sampled_from(["x", "yy", "ä", "1"]), min_size=1))
def test_texts_come_back(texts):
    found = as_predictions(texts, len(texts))
    assert found.class_names is not None
    assert [found.class_names[label] for label in found.labels] == texts
    assert list(found.class_names) == sorted(set(texts))


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ([0, 1], ValueError, r"p must be classes of shape \(4,\), got shape \(2,\)"),
        (TEXTS[:2], ValueError, r"got shape \(2,\)"),
        (SHARES[:2], ValueError, r"logits or probabilities of shape \(4, C\) .* got shape \(2"),
        (SHARES[:, :1], ValueError, r"p .*got numbers in \[0, 1\] only"),
        ([0.1, 0.2, 0.3, 0.4], TypeError, "p must be integers.*got 0.1"),
        ([0, 1, -1, 2], ValueError, "p must hold a class for every node, got none for node 2"),
        (["a", None, "b", "a"], ValueError, "p .*got none for node 1"),
        (["a", float("nan"), 2, "a"], TypeError, "p must be .* got 'a' at position 0 and 2"),
        (["a", " ", "b", "a"], ValueError, "p .*got none for node 1"),
        (["a", "b", 1.5, "a"], TypeError, r"p must be integers, texts or booleans, got 1\.5"),
        ([True, 1, 0, 0], TypeError, "p must be .* got True at position 0 and 1 at position 1"),
        (["1", "0", 1, 0], TypeError, "p must be .* got '1' at position 0 and 1 at position 2"),
        (np.array([0, 1, 1, False], object), TypeError, "0 at position 0 and False at position 3"),
        (["a", "b", ("c",), "a"], ValueError, "p must be a rectangular array"),
        (pd.Series([0, 1, None, 2]), ValueError, "p .*got none for node 2"),
        (pd.Series(["a", None, "b", "a"]), ValueError, "p .*got none for node 1"),
        (pd.array([0, 1, None, 2], dtype="Int64"), ValueError, "p must hold a class .* got none"),
        (pd.array(["a", None, "b", "a"], dtype="string"), ValueError, "p must hold a class .* got"),
        (pd.Categorical(["a", None, "b", "a"]), ValueError, "p must hold a class .* got none"),
        (pl.Series([0, 1, 2, None]), ValueError, "p .*got none for node 3"),
        (np.ma.array([0, 1, 2, 0], mask=[0, 0, 0, 1]), ValueError, "p .*got none for node 3"),
        (np.ma.array(TEXTS, mask=[0, 1, 0, 0]), ValueError, "p .*got none for node 1"),
        (np.ma.array(SHARES, mask=SHARES > 0.75), ValueError, "p .*got NaN for node 1"),
        (np.where(SHARES > 0.75, np.nan, SHARES), ValueError, "p .*got NaN for node 1"),
        (pd.Series(CLASSES, index=[1, 2, 3, 4]), ValueError, "the index of p must hold the nodes"),
        (pd.Series(CLASSES, index=[0, 1, 1, 3]), ValueError, "the index of p must hold the nodes"),
        (pd.Series(CLASSES, index=list("wxyz")), TypeError, "the index of p must be integers"),
        (pd.DataFrame({"a": TEXTS, "b": TEXTS}), TypeError, "p must be a frame of probabilities"),
        (pl.DataFrame({"a": TEXTS, "b": TEXTS}), TypeError, "p must be a frame of probabilities"),
        (None, TypeError, "p must be an array of real numbers"),
        ("abcd", TypeError, "p must be an array of real numbers"),
        ([2**70] * 4, ValueError, r"p must lie in 0\.\.2\*\*63-1, got 11805916207"),
        ([[1, 2], [3]], ValueError, "p must be a rectangular array"),
    ],
)
def test_faults_are_named(values, error, message):
    with pytest.raises(error, match=message):
        as_predictions(values, 4, name="p")


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor, pd.Series, pd.array, pl.Series])
def test_booleans_have_names(kind):
    values = kind([True, False, True, True])
    found = as_predictions(values, 4)
    assert_array_equal(found.labels, [1, 0, 1, 1])
    assert found.class_names == ("False", "True")
    assert_array_equal(as_predictions(values, 4, ["True", "False"]).labels, [0, 1, 0, 0])
    assert_array_equal(as_predictions(values, 4, ["no", "yes"]).labels, [1, 0, 1, 1])


def test_names_that_do_not_fit():
    with pytest.raises(ValueError, match=r"p .*got 'c' for node 0"):
        as_predictions(TEXTS, 4, ["a", "b"], "p")
    frame = pd.DataFrame(SHARES, columns=["a", "b", "z"])
    with pytest.raises(ValueError, match=r"p .*got a, b, z"):
        as_predictions(frame, 4, ["a", "b", "c"], "p")


def test_texts_need_the_names_of_true_classes():
    texts, numbers = as_predictions(TEXTS, 4), as_predictions(CLASSES, 4)
    check_names(texts, SimpleNamespace(x=SHARES))
    check_names(texts, SimpleNamespace(y=CLASSES, class_names=["a", "b", "c"]))
    check_names(numbers, SimpleNamespace(y=CLASSES))
    message = r"data must have class_names, .*: the model predicts a, b"
    with pytest.raises(ValueError, match=message):
        check_names(texts, SimpleNamespace(y=CLASSES))


# --- both sides, in every way in --------------------------------------------------------------------------------------

N = 60
X = np.random.default_rng(0).normal(size=(N, 3))
HALF = np.arange(N) % 2


def warned(run):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", cfe.InputWarning)
        result = run()
    return result, [str(one.message) for one in caught]


def table_of(**columns):
    return pd.DataFrame({"a": X[:, 0], "b": X[:, 1], **columns})


def from_frame(decisions, truth, tmp_path, **options):
    return cfe.EvidenceFinder.from_table(table_of(d=decisions, t=truth), "d", truth="t", **options)


def from_arrays(decisions, truth, tmp_path, **options):
    return cfe.EvidenceFinder.from_vectors(X, decisions, truth=truth, **options)


def from_path(decisions, truth, tmp_path, **options):
    table_of(d=decisions, t=truth).to_csv(tmp_path / "t.csv", index=False)
    return cfe.EvidenceFinder.from_table(tmp_path / "t.csv", "d", truth="t", **options)


def from_graph(decisions, truth, tmp_path, **options):
    data = SimpleNamespace(x=X, edge_index=np.empty((2, 0), int), y=np.array(truth), **options)
    return cfe.EvidenceFinder.from_data(data, decisions)


def from_files(decisions, truth, tmp_path, unknown=None):
    path = tmp_path / "t.csv"
    table_of(d=decisions, t=truth).to_csv(path, index=False)
    words = ["audit", "--features", str(path), "--predictions", f"{path}:d", "--truth", f"{path}:t"]
    arguments = PARSER.parse_args(
        [*words, *(("--unknown", *map(str, unknown)) if unknown is not None else ())]
    )
    arguments.argv = words
    set_reading(arguments)
    return make_finder(arguments, read_inputs(arguments), np.arange(N))


WAYS = [from_frame, from_arrays, from_path, from_graph, from_files]


def texts_of(finder, codes):
    names = finder.class_names or [str(code) for code in range(finder.class_count)]
    return [None if code < 0 else names[code] for code in codes.tolist()]


@pytest.mark.parametrize("way", WAYS)
def test_minus_one_is_unknown_beside_other_classes(way, tmp_path):
    truth = np.where(np.arange(N) % 5 == 0, -1, HALF)
    finder, notes = warned(lambda: way(HALF, truth, tmp_path))
    assert texts_of(finder, finder.truth) == [None if value < 0 else str(value) for value in truth]
    assert texts_of(finder, finder.labels) == list(map(str, HALF))
    assert [note for note in notes if "no true class for 12 of 60 rows" in note]
    decisions = np.where(np.arange(N) % 6 == 0, -1, HALF)
    finder, notes = warned(lambda: way(decisions, HALF, tmp_path))
    expected = [None if value < 0 else str(value) for value in decisions]
    assert texts_of(finder, finder.labels) == expected
    assert [note for note in notes if "no predicted class for 10 of 60 rows" in note]
    assert finder.index.ntotal == 50
    assert (finder.labels[finder.local(k=2).evidence] >= 0).all()


@pytest.mark.parametrize("way", WAYS)
def test_minus_one_is_a_class_beside_one_only(way, tmp_path):
    signs = 2 * HALF - 1
    for truth in (signs, np.ones(N, int), np.roll(signs, 1)):
        finder, notes = warned(lambda truth=truth: way(signs, truth, tmp_path))
        assert finder.class_names == ("-1", "1")
        assert texts_of(finder, finder.labels) == list(map(str, signs))
        assert texts_of(finder, finder.truth) == list(map(str, truth))
        assert not [note for note in notes if "no true class" in note or "no predicted" in note]
    unlabelled = np.where(np.arange(N) % 4, 1, -1)
    finder, _ = warned(lambda: way(HALF, unlabelled, tmp_path))
    assert texts_of(finder, finder.truth) == [None if value < 0 else "1" for value in unlabelled]


def test_a_single_text_is_no_list_of_values():
    decisions = np.array(["no", "yes"])[HALF]
    for unknown in ("no", b"no", 0):
        with pytest.raises(TypeError, match="unknown must be a sequence"):
            cfe.EvidenceFinder.from_table(table_of(), decisions, unknown=unknown)
        with pytest.raises(TypeError, match="unknown must be a sequence"):
            audit.group_metrics(y_pred=decisions, sensitive_features=HALF, unknown=unknown)
    with pytest.raises(TypeError, match="class_names must be a sequence"):
        cfe.EvidenceFinder.from_table(table_of(), HALF, class_names="ny")


@pytest.mark.parametrize("way", [from_frame, from_arrays, from_path, from_files])
def test_unknown_decides(way, tmp_path):
    codes = np.arange(N) % 3 - 1
    texts = np.array(["low", "mid", "high"])[np.arange(N) % 3]
    finder, notes = warned(lambda: way(texts, texts, tmp_path, unknown=["mid"]))
    assert finder.class_names == ("high", "low")
    assert (finder.labels == -1).sum() == 20
    assert len([note for note in notes if "20 of 60 rows" in note]) >= 1
    if way is not from_files:  # options are texts
        numbers = np.where(HALF, 9.0, np.arange(N) % 3)
        finder, _ = warned(lambda: way(numbers, numbers, tmp_path, unknown=[9.0]))
        assert (finder.labels == -1).sum() == (finder.truth == -1).sum() == 30
    if way is not from_arrays:
        finder, notes = warned(lambda: way(codes, codes, tmp_path, unknown=[""]))
        assert finder.class_names == ("-1", "0", "1")
        assert not notes


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("blank", [None, "", "  ", np.nan])
def test_blanks_are_unknown(way, blank, tmp_path):
    texts = np.array(["no", "yes"], object)[HALF]
    truth = texts.copy()
    truth[:6] = blank
    options = {"class_names": ["no", "yes"]} if way is from_graph else {}
    finder, notes = warned(lambda: way(texts, truth, tmp_path, **options))
    assert texts_of(finder, finder.truth) == [None] * 6 + texts[6:].tolist()
    assert [note for note in notes if "no true class for 6 of 60 rows" in note]


@pytest.mark.parametrize("way", WAYS)
def test_classes_of_one_side_only_are_named(way, tmp_path):
    _, notes = warned(lambda: way(HALF + 1, HALF, tmp_path))
    assert [note for note in notes if "class '2' is 50% of the predicted classes" in note]
    assert [note for note in notes if "class '0' is 50% of the true classes" in note]
    rare = np.where(np.arange(N) < 10, 2, HALF)
    _, notes = warned(lambda: way(HALF, rare, tmp_path))
    assert not notes


@pytest.mark.parametrize("way", [from_frame, from_arrays, from_path, from_files])
@pytest.mark.parametrize("decisions", [HALF, np.array(["no", "yes"])[HALF], HALF == 1])
@pytest.mark.parametrize("outcomes", [np.array(["bad", "good"])[HALF], HALF + 5, HALF == 1])
def test_truth_may_have_words_of_its_own(way, decisions, outcomes, tmp_path):
    finder, _ = warned(lambda: way(decisions, outcomes, tmp_path))
    assert finder.truth is not None
    first, second = (finder.class_name(code).removeprefix("class ") for code in finder.truth[:2])
    is_shared = {str(outcomes[0]), str(outcomes[1])} & {str(decisions[0]), str(decisions[1])}
    words = {str(value) for value in outcomes}
    both = {str(decisions.dtype.kind), str(outcomes.dtype.kind)} == {"b", "i"} and not is_shared
    assert {first, second} == words or both
    assert len({first, second}) == 2


def test_kinds_stay_apart():
    table = table_of()
    for mixed in ([1, "1"] * 30, [True, 1] * 30, ["yes", 0] * 30):
        with pytest.raises(TypeError, match="all of one kind"):
            cfe.EvidenceFinder.from_table(table, mixed)
    finder = cfe.EvidenceFinder.from_table(table, HALF * 9 + 1.0)
    assert finder.class_names == ("1", "10")
    finder = cfe.EvidenceFinder.from_table(table, HALF == 1, truth=HALF)
    assert finder.class_names == ("False", "True")
    assert_array_equal(finder.truth, HALF)
    finder, _ = warned(
        lambda: cfe.EvidenceFinder.from_table(table, HALF == 1, truth=np.arange(N) % 3)
    )
    assert finder.class_names == ("False", "True", "2")
    assert_array_equal(finder.truth, np.arange(N) % 3)


def test_a_threshold_decides(tmp_path):
    scores = np.arange(N, dtype=float)
    scores[7] = np.nan
    table = table_of(score=scores)
    table.to_csv(tmp_path / "t.csv", index=False)
    for source in (table, tmp_path / "t.csv"):
        cases = (("score>=5", ("score<5", "score>=5")), ("score <= 5", ("score>5", "score<=5")))
        for text, names in cases:
            finder, notes = warned(
                lambda source=source, text=text: cfe.EvidenceFinder.from_table(
                    source, threshold=text
                )
            )
            assert finder.class_names == names
            expected = [0, 1, -1] if ">" in names[1] else [1, 1, -1]
            assert finder.labels[[4, 5, 7]].tolist() == expected
            assert list(finder.attributes) == ["a", "b"]
            assert [note for note in notes if "no predicted class for 1 of 60" in note]
    cases = (("score5", "like 'score>=5'"), ("scor>5", "did you mean 'score'"), ("a>=x", "like"))
    for text, message in cases:
        with pytest.raises(ValueError, match=message):
            cfe.EvidenceFinder.from_table(table, threshold=text)
    with pytest.raises(ValueError, match="model must be left out with threshold"):
        cfe.EvidenceFinder.from_table(table, "a", threshold="score>5")


def test_masks_of_any_type():
    mask = np.arange(N) >= 40
    rows = np.flatnonzero(mask)
    forms = [mask, mask.tolist(), *(mask.astype(kind) for kind in (np.uint8, int, float, object))]
    forms += [pd.Series(mask), pd.Series(mask.astype(int)).sample(frac=1, random_state=0)]
    forms += [pd.Series(mask, index=np.arange(N) + 100)]  # no label of a row: by position
    forms += [pd.array(mask, dtype="boolean"), pl.Series(mask)]
    forms += [torch.tensor(mask), torch.tensor(mask).to(torch.uint8), torch.tensor(mask).float()]
    table = table_of(d=HALF, id=[f"p{i}" for i in range(N)])
    graph = SimpleNamespace(x=X, edge_index=np.empty((2, 0), int))
    everyone = cfe.EvidenceFinder.from_table(table, "d", id="id")
    for form in forms:
        for finder in (
            cfe.EvidenceFinder.from_table(table, "d", id="id", nodes=form),
            cfe.EvidenceFinder.from_vectors(X, HALF, nodes=form),
            cfe.EvidenceFinder.from_data(graph, HALF, nodes=form),
        ):
            assert_array_equal(finder.index.members().ids, rows)
        assert_array_equal(everyone.local(form, k=1).nodes, rows)
        assert audit.consistency(everyone, nodes=form).iloc[0]["nodes"] == 20
    with pytest.raises(ValueError, match=r"nodes must have shape \(60,\) as a mask, got \(59,\)"):
        everyone.local(mask[:-1])
    with pytest.raises(
        ValueError, match=r"nodes must have the pandas index of the 60 rows.*arrays"
    ):
        everyone.local(pd.Series(mask, index=np.arange(N) + 5))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("way", ["table", "vectors", "table with ids"])
def test_columns_of_pandas_belong_to_rows_by_their_index(way, seed):
    """Any order of the rows of a column gives the result of the frame's own order."""
    rng = np.random.default_rng(seed)
    frame = table_of(d=HALF, e=rng.permutation(HALF), p=rng.permutation(np.repeat(range(20), 3)))
    frame = frame.sample(frac=1, random_state=seed)
    if seed == 2:
        frame = frame.set_axis([f"r{row}" for row in range(N)])
    other = frame.sample(frac=1, random_state=seed + 1)
    columns, sensitive = frame[["a", "b"]], {"sensitive": ["a"], "unfavourable": 1}

    def results(given):
        if way == "vectors":
            options = {
                "features": given[["a"]],
                "ids": given.index.astype(str).to_series(given.index),
            }
            nodes = given["a"] > 0
            finder = cfe.EvidenceFinder.from_vectors(columns, given["d"], nodes=nodes, **options)
        else:
            ids = {"id": frame.index.astype(str)[::-1]} if way == "table with ids" else {}
            finder = cfe.EvidenceFinder.from_table(columns, frame["d"], nodes=given["a"] > 0, **ids)
        updated, changed = finder.updated(predictions=given["e"])
        compared = audit.compare_models(finder, {"v2": given["e"]}, person=given["p"], **sensitive)
        local = finder.local(given["a"] > 0.5, k=2)
        return [
            *(finder.index.members().ids, finder.labels, finder.names(range(N)), updated.labels),
            *(changed, *(repr(one.to_dict()) for one in (compared.models, compared.table))),
            local.to_frame(),
        ]

    for mine, theirs in zip(results(frame), results(other), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    expected = np.flatnonzero(frame["a"] > 0)
    assert_array_equal(results(other)[0], expected)
    assert_array_equal(results(other)[1], frame["d"])
    assert_array_equal(results(other)[3], frame["e"])


def test_ids_that_are_no_integers_are_errors():
    numbered = cfe.EvidenceFinder.from_table(table_of(d=HALF, id=np.arange(N) + 100), "d", id="id")
    plain = cfe.EvidenceFinder.from_vectors(X, HALF)
    assert numbered.rows("nodes", [101, 100]).tolist() == [1, 0]
    for finder, first in ((numbered, 101), (plain, 1)):
        for wrong in ([first + 0.5], [float(first)], [str(first)], [True, first], [None]):
            with pytest.raises((TypeError, ValueError), match="nodes must"):
                finder.local(wrong)


@pytest.mark.parametrize("way", [from_frame, from_path])
def test_texts_for_missing_values_are_unknown_classes(way, tmp_path):
    texts = np.array(["no", "?", "yes"])[np.arange(N) % 3]
    finder, notes = warned(lambda: way(texts, texts, tmp_path, na=["?"]))
    assert finder.class_names == ("no", "yes")
    assert (finder.labels == -1).sum() == (finder.truth == -1).sum() == 20
    assert [note for note in notes if "'?' 20" in note]


def test_a_model_may_read_ignored_columns(tmp_path):
    table = table_of()
    model = LogisticRegression().fit(table[["b", "a"]], HALF)
    table.to_csv(tmp_path / "t.csv", index=False)
    for frame in (table, tmp_path / "t.csv"):
        finder = cfe.EvidenceFinder.from_table(frame, model, ignore=["b"])
        assert list(finder.attributes or ()) == ["a"]
        assert finder.labels.tolist() == model.predict(table[["b", "a"]]).tolist()


def test_unknown_classes_of_an_index_are_those_of_its_files(tmp_path, capsys):
    path, index = tmp_path / "t.csv", str(tmp_path / "t.index")
    texts = np.array(["?", "no", "yes"])[np.arange(N) % 3]
    table_of(d=texts).to_csv(path, index=False)
    files = ["--features", str(path), "--predictions", f"{path}:d", "--unknown", "?"]
    assert main(["build", index, *files]) == 0
    assert main(["local", index, *files, "--nodes", "1", "-k", "1", "--csv"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith(",no,yes")
