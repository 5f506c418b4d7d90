"""Sample reports that together hold every section, outcome and rare sentence, compared with recorded ones.

A report may change only on purpose: record it anew by ``python tests/audit/reporting/test_golden.py [NAME ...]`` and
read the difference. Date, version, versions of packages and the digest of all these are left out.
"""

import io
import json
import math
import re
import sys
import tempfile
import warnings
from html import unescape
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from audit_report_helpers import SCHEMA

import cfe_faiss as cfe
from cfe_faiss import audit

FOLDER = Path(__file__).with_name("golden")
HOSTILE = "</script><img src=x onerror=alert(1)>"
Sample = tuple[cfe.EvidenceFinder, dict[str, Any]]
SAMPLES = {}


def sample(build):
    SAMPLES[build.__name__] = build
    return build


def graph_model(x, edge_index):
    import torch

    score = x[:, 1] + 0.3 * x[:, 0]
    near = torch.zeros_like(score).index_add(0, edge_index[1], score[edge_index[0]])
    return (score + 0.1 * near > 0.2).long()


@sample
def graph():
    """A model on a graph, hostile and long names, unknown values, one flip in turn and all at once."""
    import torch
    from torch_geometric.data import Data

    rng, n = np.random.default_rng(0), 120
    x = np.column_stack(
        [rng.integers(0, 2, n), rng.normal(size=n), rng.integers(18, 80, n) / 40]
    ).astype(np.float32)
    edges = rng.integers(0, n, (2, 2 * n))
    edges = edges[:, edges[0] != edges[1]]
    people = pd.DataFrame({"member": x[:, 0], f"age {HOSTILE}": x[:, 2]})
    people["sex"] = np.array(["f", "m", None], dtype=object)[rng.choice(3, n, p=[0.45, 0.5, 0.05])]
    people.loc[:1, "sex"] = ["x" * 10_000, HOSTILE]
    data = Data(
        x=torch.from_numpy(x),
        edge_index=torch.from_numpy(np.concatenate([edges, edges[::-1]], axis=1)),
    )
    data.y = torch.from_numpy(rng.integers(-1, 2, n))
    data.feature_names = ["member", "income", "age"]
    data.class_names = [f"refused {HOSTILE}", "granted"]
    data.name = f"people {HOSTILE}"
    data.node_ids = np.array([f"{HOSTILE}{i}" for i in range(n)], dtype=object)
    finder = cfe.EvidenceFinder.from_data(data, graph_model, features=people)
    subject = audit.Subject(
        command="cfe-faiss audit --out report.html", seed=3, files={"people.csv": "0" * 64}
    )
    require = [
        *(
            "impact_ratio[member]>=1.5",
            "accuracy>=0.1",
            "false_positive_rate<=0.9",
            "flipped<=0.05",
            "only_in<=1",
        ),
        *("overall_accuracy>=0", "consistency<=0.2", "equalised_odds_difference[member]<=0.2"),
    ]
    options = {"favourable": "granted", "subject": subject, "require": require}
    return finder, {"sensitive": ["member", "sex"]} | options


def applicants(n):
    """Return a table, and the probabilities of a model that reads the attribute beside the income."""
    rng = np.random.default_rng(1)
    table = pd.DataFrame(
        {
            "income": rng.normal(size=n),
            "debt": rng.normal(size=n),
            "job": rng.choice(["cook", "nurse", "smith"], n),
            "sex": rng.choice(["f", "m"], n),
            "race": np.array(["Asian", "White", "Two or more races", None], dtype=object)[
                rng.choice(4, n, p=[0.4, 0.56, 0.01, 0.03])
            ],
        }
    )
    score = table["income"] - 0.4 * table["debt"] - 1.2 * (table["sex"] == "f")
    score += 0.4 * rng.normal(size=n)
    table["repaid"] = np.where(score + rng.normal(size=n) > -0.4, "yes", "no")
    table["id"] = [f"p{i}" for i in range(n)]
    share = 1 / (
        1 + np.exp(-2 * (table["income"] - 0.4 * table["debt"] - 1.2 * (table["sex"] == "f") + 0.6))
    )
    return table, share.to_numpy()


@sample
def table():
    """A table with truth, probabilities, left-out columns, findings, their sensitivity, and a law's categories."""
    table, share = applicants(420)
    finder = cfe.EvidenceFinder.from_table(
        table,
        np.column_stack([1 - share, share]),
        class_names=["no", "yes"],
        truth="repaid",
        id="id",
        sensitive=["sex", "race"],
        without=["sex", "race"],
    )
    require = [
        "impact_ratio[sex]>=0.8",
        "selection_rate>=0.2",
        "selection_rate_difference[race]>=-0.5",
        "only_in<=0",
    ]
    subject = audit.Subject(people="applicants", title="Loans")
    return finder, {"favourable": "yes", "subject": subject, "require": require}


@sample
def granted_only():
    """Truth that one decision shows, a reference and better ends named by the user, and a section left out."""
    table, _ = applicants(420)
    score = table["income"] - 0.4 * table["debt"] - 0.5 * (table["sex"] == "f")
    table["loan"] = np.where(score > 0, "yes", "no")
    table["repaid"] = np.where(table["loan"] == "yes", table["repaid"], None)
    finder = cfe.EvidenceFinder.from_table(
        table, "loan", truth="repaid", id="id", sensitive=["sex", "race"]
    )
    require = ["impact_ratio[sex]>=0.8", "impact_ratio[race]>=0.5"]
    options = {"favourable": "yes", "require": require, "reference": {"race": "Asian"}}
    better = {"income": "high", "debt": "low"}
    return finder, options | {"better": better, "skip": ["sensitivity"]}


@sample
def models():
    """Other models, of which one harms a group and one changes rates; conditions that name a model."""
    rng, n = np.random.default_rng(3), 420
    table, _ = applicants(n)
    X = rng.normal(size=(n, 4))
    sex = table["sex"].to_numpy()
    noise = 0.2 * rng.normal(size=n)
    fair = np.where(X[:, 0] + noise > 0, "granted", "refused")
    harmful = np.where(X[:, 0] + noise > np.where(sex == "f", 0.7, 0), "granted", "refused")
    generous = np.where(X[:, 0] + noise > -0.6, "granted", "refused")
    truth = np.where(X[:, 0] > 0.1, "granted", "refused")
    people = {"sex": sex, "town": rng.choice(["a", "b", "c"], n)}
    finder = cfe.EvidenceFinder.from_vectors(
        X, fair, features=people, truth=truth, sensitive=["sex", "town"]
    )
    require = [
        "evidence_pairs<=v1",
        "changed_share<=0.2",
        audit.Condition("evidence_pairs", at_most=1e6, min_cases=1),
    ]
    compare = {"harmful": harmful, "generous": generous}
    return finder, {"favourable": "granted", "compare": compare, "require": require, "k": 5}


@sample
def many_findings():
    """More findings than the first page lists, pairs under constraints, numbers in bins, a high confidence."""
    rng, n = np.random.default_rng(5), 600
    X = rng.normal(size=(n, 3))
    people = {name: rng.choice(["a", "b"], n) for name in ("sex", "race", "faith", "origin")}
    people["age"] = rng.integers(20, 70, n).astype(float)
    people["age"][:7] = np.nan
    harm = sum((people[name] == "a").astype(float) for name in ("sex", "race", "faith", "origin"))
    labels = np.where(
        X[:, 0] - 0.8 * harm + 1.6 + 0.1 * rng.normal(size=n) > 0, "granted", "refused"
    )
    data = SimpleNamespace(
        x=X.astype(np.float32), edge_index=np.zeros((2, 0), int), feature_names=["a", "b", "c"]
    )
    finder = cfe.EvidenceFinder.from_data(data, (labels == "granted").astype(int), features=people)
    where = cfe.Constraints(exact=["sex"], caliper={"age": 20})
    sensitive = ["sex", "race", "faith", "origin"]
    options = {"favourable": 1, "where": where, "bins": {"age": [30, 45]}}
    options |= {"confidence": 0.99, "sensitive": sensitive}
    return finder, options


@sample
def each_class():
    """Three classes and no favourable one; small and rare groups; predictions alone; other models."""
    rng, n = np.random.default_rng(2), 90
    labels = rng.integers(0, 3, n)
    people = {"sex": rng.choice(["f", "m"], n), "town": np.repeat(["a", "b", "c"], [60, 25, 5])}
    truth = np.where(rng.random(n) < 0.6, labels, rng.integers(0, 3, n))
    vectors = rng.normal(size=(n, 3))
    finder = cfe.EvidenceFinder.from_vectors(
        vectors, labels, features=people, truth=truth, sensitive=["sex", "town"]
    )
    require = ["consistency[sex]<=0.9", "only_in<=0.9"]
    return finder, {"compare": {"v2": np.roll(labels, 1)}, "require": require}


@sample
def three_classes():
    """Three classes and a favourable one, few people, equal vectors, a directed graph with weights."""
    rng, n = np.random.default_rng(4), 72
    x = rng.integers(0, 2, (n, 3)).astype(np.float32)
    data = SimpleNamespace(
        x=x, edge_index=rng.integers(0, n, (2, n)), class_names=["none", "part", "whole"]
    )
    data.y, data.edge_weight = np.full(n, -1), rng.random(n)
    people = {
        "sex": rng.choice(["f", "m"], n),
        "name": [f"n{i}" for i in range(n)],
        "wage": rng.gamma(2, 900, n),
    }
    labels = rng.integers(0, 3, n)
    finder = cfe.EvidenceFinder.from_data(
        data, labels, features=people, directed=True, edge_weight=True
    )
    require = ["impact_ratio>=0.8"]
    require += ["selection_rate[sex & wage]>=0.1", "impact_ratio[sex & wage]>=0.1"]
    options = {"favourable": "whole", "require": require, "bins": 2}
    return finder, {"sensitive": ["sex", "wage"]} | options


@sample
def flips():
    """A model of a table that reads some attributes, with one value or too many to flip; equal people."""
    rng, n = np.random.default_rng(6), 80
    table = pd.DataFrame(
        {
            "income": rng.integers(1, 3, n),
            "sex": np.array(["f", "m", None], dtype=object)[rng.choice(3, n, p=[0.5, 0.4, 0.1])],
            "job": "cook",
            "town": [f"t{i % 9}" for i in range(n)],
        }
    )

    def model(frame):
        return (frame["income"] + (frame["sex"] == "m") > 2).to_numpy()

    finder = cfe.EvidenceFinder.from_table(table, model, sensitive=["sex", "job", "town"])
    require = ["flipped[sex]<=0.1", "only_in[sex]<=0.1"]
    return finder, {"favourable": True, "require": require, "bins": 2}


@sample
def unflippable():
    """A model that reads no sensitive attribute; pairs that differ in it alone, and none that agree in all."""
    rng, n = np.random.default_rng(7), 40
    X = rng.normal(size=(n, 2))
    features = {"sex": ["f", "m"] * (n // 2), "city": [f"c{i // 2}" for i in range(n)]}
    finder = cfe.EvidenceFinder.from_vectors(
        X, lambda rows: (rows[:, 0] > 0).astype(int), features=features
    )
    return finder, {"sensitive": ["sex"], "favourable": 1, "pairs": 3, "cases": 1}


@sample
def no_side():
    """No close pair has a side of the favourable class, and no true class is known within the pairs."""
    rng = np.random.default_rng(8)
    X = np.concatenate([np.repeat(rng.normal(size=(1, 3)), 66, axis=0), rng.normal(size=(10, 3))])
    labels, truth = np.array([0, 1] * 33 + [2] * 10), np.array([-1] * 66 + [2] * 10)
    features = {"age": rng.integers(20, 30, 76)}
    finder = cfe.EvidenceFinder.from_vectors(X, labels, features=features, truth=truth)
    return finder, {"favourable": 2}


@sample
def ties():
    """More equal pairs than are counted, without attributes."""
    labels = np.repeat([0, 1], 1001)
    return cfe.EvidenceFinder.from_vectors(np.ones((2002, 2)), labels), {"pairs": 2, "cases": 2}


@sample
def nothing():
    """A graph of three classes about which nothing else is known."""
    data = SimpleNamespace(
        x=np.eye(6, dtype=np.float32) + 0.1, edge_index=[[0, 1, 2, 3], [1, 2, 3, 4]]
    )
    return cfe.EvidenceFinder.from_data(data, [0, 1, 0, 1, 2, 2]), {}


@sample
def one_class():
    """Everyone has the same, favourable class."""
    features = {"sex": ["f", "m"] * 3}
    finder = cfe.EvidenceFinder.from_vectors(
        np.eye(6), [1] * 6, class_names=["no", "yes"], features=features
    )
    require = ["impact_ratio>=0.8", "only_in[sex]<=0.1", "consistency<=0.5"]
    options = {"favourable": "yes", "require": require, "compare": {"v2": ["no", "yes"] * 3}}
    return finder, {"sensitive": ["sex"]} | options


def text_of(page):
    """Return the texts of a page: a line for each block, cells of tables after a bar, mere drawings left out."""
    body = re.sub(r"<style\b.*?</style>", "", page, flags=re.DOTALL)
    body = re.sub(r"\n", " ", body)
    body = re.sub(
        r"<(?:/?(?:p|li|h\d|tr|table|section|dl|dd|figure|article|main)|br)\b[^>]*>", "\n", body
    )
    body = re.sub(r"<(?:td|th|dd|text|span)\b[^>]*>", "|", body)
    texts = unescape(re.sub(r"<[^>]+>", "", body))
    return "".join(f"{line.strip()}\n" for line in texts.split("\n") if line.strip(" |"))


def plain(text, numbers):
    """Return a text without date, version and digest."""
    for name in ("date", "id"):
        text = text.replace(numbers[name], f"<{name}>")
    text = text.replace(f"cfe-faiss {numbers['version']}", "cfe-faiss <version>")
    return text.replace(numbers["subject"]["Versions"], "<versions>")


def files_of(name):
    """Return the normalised files of a sample by their ending."""
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore", cfe.InputWarning)
        finder, options = SAMPLES[name]()
        path = Path(folder, "report.html")
        report = audit.report(finder, path, **{"pairs": 8, "cases": 2, "progress": False} | options)
        page, _, junit, lines = (file.read_text(encoding="utf-8") for file in report.files)
    numbers = report.numbers
    SCHEMA.validate(numbers)
    frame = pd.read_csv(io.StringIO(lines), dtype={"name": str, "value": float, "n": float})
    frame["characters"] = frame["name"].str.len().fillna(0)
    sums = frame.groupby(["section", "table", "number"], sort=False)[
        ["characters", "value", "n", "low", "high"]
    ]
    text = sums.agg(["count", "sum"]).to_csv(float_format="%.7g")
    rows = json.dumps(shorten(numbers), indent=1, ensure_ascii=False).replace(
        '"version": "', '"version": "cfe-faiss '
    )
    texts = {"json": fold(rows) + "\n", "txt": text_of(page) + junit, "csv": text}
    return {ending: plain(text, numbers) for ending, text in texts.items()}


def fold(text):
    """Return JSON in which a row of a table takes one line, and a row that occurred before the number of that row."""
    places = {}

    def replace(match):
        row = re.sub(r"\n\s*", " ", match[0])
        place = places.setdefault(row, len(places))
        return row if len(row) < 300 or place == len(places) - 1 else f'"row {place}"'

    return re.sub(r"\{[^{}]*\}", replace, text)


def shorten(value):
    """Return a value with long texts cut and numbers rounded to 7 digits."""
    if isinstance(value, dict):
        return {name: shorten(part) for name, part in value.items()}
    if isinstance(value, list):
        return [shorten(part) for part in value]
    if isinstance(value, str) and len(value) > 2000:
        return f"{value[:60]} ({len(value)})"
    if isinstance(value, str) and re.fullmatch(r"-?\d+\.\d+(e-?\d+)?", value):
        return f"{float(value):.7g}"
    return float(f"{value:.7g}") if isinstance(value, float) else value


def same(one, other):
    """Return whether two lines are equal up to the last digits of their numbers."""
    number = re.compile(r"-?\d+\.\d+(?:e-?\d+)?|-?\d+e-?\d+")
    if one == other:
        return True
    pairs = zip(number.findall(one), number.findall(other), strict=False)
    return number.sub("#", one) == number.sub("#", other) and all(
        math.isclose(float(a), float(b), rel_tol=2e-6, abs_tol=1e-9) for a, b in pairs
    )


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_is_as_recorded(name):
    for ending, text in files_of(name).items():
        recorded = (FOLDER / f"{name}.{ending}").read_text(encoding="utf-8").splitlines()
        lines = text.splitlines()
        changed = [pair for pair in zip(recorded, lines, strict=False) if not same(*pair)]
        assert not changed, f"{name}.{ending}"
        assert len(lines) == len(recorded), f"{name}.{ending}"


if __name__ == "__main__":
    for name in sys.argv[1:] or SAMPLES:
        for ending, text in files_of(name).items():
            (FOLDER / f"{name}.{ending}").write_text(text, encoding="utf-8")
