"""The experiments of the paper: their quick forms run and say what they should, and the verdicts follow the rule."""

import importlib.util
import io
import json
import re
import runpy
import shutil
import sys
import warnings
from contextlib import redirect_stdout
from pathlib import Path

import pytest

import cfe_faiss as cfe

PAPER = Path(__file__).parents[2] / "benchmarks" / "paper"
EXPERIMENTS = [
    "effectiveness",
    "generality",
    "efficiency",
    "scalability",
    "complexity",
    "unfairness",
]
EXPERIMENTS += ["prediction_errors", "fine_tuning", "case_study"]


def run(folder, *arguments):
    """Run experiments in this process, which has loaded torch and PyG once, and return what they print."""
    before = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as output:
        patch.chdir(folder)
        patch.syspath_prepend(PAPER)
        patch.setenv("CFE_DATA", str(folder / "no graphs here"))
        patch.setattr(sys, "argv", ["run.py", "--quick", "--folder", str(folder), *arguments])
        with warnings.catch_warnings():  # a quickly trained model predicts few classes
            warnings.simplefilter("ignore", cfe.InputWarning)
            runpy.run_path(str(PAPER / "run.py"), run_name="__main__")
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(PAPER)):
            del sys.modules[name]
    return output.getvalue()


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """Run the first experiment, without any file of a real graph."""
    folder = tmp_path_factory.mktemp("paper")
    run(folder, "--only", "effectiveness")
    return folder


@pytest.fixture(scope="module")
def every(tmp_path_factory):
    """Run every experiment, without any file of a real graph."""
    folder = tmp_path_factory.mktemp("paper")
    run(folder, "--amazon")
    return folder


def result(folder, name):
    return json.loads((folder / "results" / f"{name}.json").read_text())


def module(name):
    spec = importlib.util.spec_from_file_location(f"paper_{name}", PAPER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = loaded  # dataclasses look their module up
    spec.loader.exec_module(loaded)
    return loaded


def assert_written(folder, name):
    """Check the JSON result, the table and the figure of the quick form of an experiment."""
    content = result(folder, name)
    assert content["quick"] is True
    assert {row["source"] for row in content["rows"]} == {"tiny and made up"}
    assert len({row["seed"] for row in content["rows"]}) == 2
    assert (folder / "results" / f"{name}.md").read_text().count("|") > 10
    figure = folder / "figures" / f"{'figure_1' if name == 'case_study' else name}.png"
    assert figure.read_bytes()[:4] == b"\x89PNG"
    assert figure.stat().st_size < 150_000


def test_quick_form_writes_json_table_figure_and_page(quick):
    assert_written(quick, "effectiveness")
    page = (quick / "README.md").read_text()
    assert "tiny made-up graphs: it shows that the scripts run" in page
    assert str(Path(__file__).parents[2]) not in page


@pytest.mark.slow
def test_every_quick_form_is_written_with_verdicts(every):
    for name in EXPERIMENTS:
        assert_written(every, name)
    page = (every / "README.md").read_text()
    assert page.count("Measured: ") >= 25
    assert page.count("Measured: ") == page.count("<details><summary>Cases: ")


def test_page_is_that_of_the_results(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(PAPER)
    for folder in ("results", "figures"):
        shutil.copytree(PAPER / folder, tmp_path / folder)
    assert module("report").write_page(tmp_path).read_text() == (PAPER / "README.md").read_text()


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ([[1.0, 1.1, 0.9]], "holds"),
        ([[1.0, 1.1, 0.9], [-1.0, -1.1, -0.9]], "holds in part"),
        ([[-1.0, -1.1, -0.9]], "does not hold"),
        ([[0.1, 3.0, -1.0]], "undecided"),  # the mean is above the bound, its interval is not
        ([[5.0]], "undecided"),  # one seed tells nothing
        ([[0.1, 3.0, -1.0], [-1.0, -1.1, -0.9]], "does not hold"),
        ([[0.1, 3.0, -1.0], [1.0, 1.1, 0.9]], "holds in part"),
    ],
)
def test_verdict(groups, expected):
    verdict = module("verdict")
    for bound in ("above", "least"):
        cases = [verdict.Case("a case", values, **{bound: 0}) for values in groups]
        assert verdict.Claim("", "", "", cases).verdict() == expected
    flipped = [verdict.Case("a case", [-v for v in values], most=0) for values in groups]
    assert verdict.Claim("", "", "", flipped).verdict() == expected


def test_readme_counts_the_claims_as_the_page_does():
    page, readme = (
        " ".join(path.read_text().split())
        for path in (PAPER / "README.md", PAPER.parents[1] / "README.md")
    )
    counts = dict(
        re.findall(
            r"(holds[a-z ]*|does not hold): (\d+)",
            re.findall(r"The paper's claims: ([^.]*)", page)[0],
        )
    )
    synthetic = sum(
        int(count) for words, count in counts.items() if words.endswith("on synthetic graphs only")
    )
    assert (
        f"{counts['holds']} hold on public data, {counts['holds in part']} hold in part and "
        f"{counts['does not hold']} do not hold; {counts['holds by definition']} more hold by definition, and "
        f"{synthetic} could be tested on"
    ) in readme
