"""How many planted label errors are among the most suspicious rows, ours and peers'?

The score of ``mining.label_errors`` was chosen on the first data sets (``CHOSEN_ON``), by the candidates below, and
is reported on others. A first choice, without HDMA among the former, divided votes by the size of the class; it was
poor on HDMA, which was a set of the report then and changed sides with the table of arrests.

Errors are planted at random, from some classes into others, or where classes meet. Precision at k is the share of
planted errors among the k most suspicious rows, for k planted errors. Labels that were wrong before count as right, so
1 is out of reach on real tables.

    pip install cleanlab
    CFE_DATA=... python benchmarks/label_errors.py

The tables are those of ``python -m benchmarks.real_tables.files adult arrests german hdma``.
"""

import os
import sys
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))  # for benchmarks.real_tables

import numpy as np
import pandas as pd
from common import folded, percent, save, table
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import cross_val_predict
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler

from benchmarks.real_tables.files import fetch, tables
from cfe_faiss import mining
from cfe_faiss.attributes.table import as_attributes
from cfe_faiss.data.encode import encode
from cfe_faiss.datasets import load
from cfe_faiss.graph.ks import ks_vectors
from cfe_faiss.mining.miners import GroupedRows

TITLE = "Wrong labels"

Data = tuple[NDArray[Any], NDArray[np.int64]]
MOST_ROWS = 4_000
RATES = (0.05, 0.2)
SEEDS = 2
NEIGHBOURS = (20, 50, 100)
COPIES = 4
"""Rows of one person in the test of groups."""


# --- data ------------------------------------------------------------------------------------------


def some(X: NDArray[Any], y: NDArray[Any]) -> Data:
    rows = np.random.default_rng(0).permutation(len(y))[:MOST_ROWS]
    return np.asarray(X, np.float32)[rows], pd.factorize(y, sort=True)[0][rows]


def of_sklearn(loader: Callable[..., Any]) -> Data:
    X, y = loader(return_X_y=True)
    return some(StandardScaler().fit_transform(X), y)


def of_graph(name: str) -> Data:
    data = load(name, os.environ.get("CFE_DATA", "data"), 0)
    vectors = ks_vectors(data.x.numpy(), data.edge_index.numpy())
    return some(
        vectors / np.linalg.norm(vectors, axis=1, keepdims=True).clip(1e-12), data.y.numpy()
    )


def of_table(frame: pd.DataFrame, label: str) -> Data:
    y = frame.pop(label)
    return some(encode(as_attributes(frame)).x, y.to_numpy())


def public(name: str, label: str) -> Data:
    table = tables()[name]
    return of_table(pd.read_csv(fetch(table), na_values="?", **table.read), label)


def bail() -> Data:
    folder = Path(os.environ.get("CFE_DATA", "data"))
    return of_table(pd.read_csv(folder / "nifty/bail/bail.csv"), "RECID")


def mixture(d: int, classes: int, spread: float, seed: int) -> Data:
    rng = np.random.default_rng(seed)
    centres = spread * rng.normal(size=(3 * classes, d))
    cluster = rng.integers(0, len(centres), 2_000)
    return some(centres[cluster] + rng.normal(size=(2_000, d)), cluster % classes)


CHOSEN_ON: dict[str, Callable[[], Data]] = {
    "breast cancer": lambda: of_sklearn(load_breast_cancer),
    "Bail, table": bail,
    "Facebook, KS vectors": lambda: of_graph("facebook"),
    "HDMA mortgages, table": lambda: public("hdma", "deny"),
    "mixture, 10 dimensions": lambda: mixture(10, 5, 1.0, 0),
    "mixture, 3 dimensions": lambda: mixture(3, 3, 2.0, 1),
}
REPORTED_ON: dict[str, Callable[[], Data]] = {
    "digits": lambda: some(*load_digits(return_X_y=True)),
    "wine": lambda: of_sklearn(load_wine),
    "Adult, table": lambda: public("adult", "15"),
    "German credit, table": lambda: public("german", "21"),
    "arrests, table": lambda: public("arrests", "released"),
    "Cora, KS vectors": lambda: of_graph("cora"),
    "mixture, 20 dimensions": lambda: mixture(20, 8, 0.8, 5),
}


# --- planted errors ------------------------------------------------------------------------------------------


def uniform(X: NDArray[Any], y: NDArray[Any], rate: float, rng: np.random.Generator) -> Any:
    """Return labels of which some are another one, each equally likely."""
    wrong = rng.choice(len(y), round(rate * len(y)), replace=False)
    labels = y.copy()
    labels[wrong] = (y[wrong] + rng.integers(1, y.max() + 1, len(wrong))) % (y.max() + 1)
    return labels


def by_class(X: NDArray[Any], y: NDArray[Any], rate: float, rng: np.random.Generator) -> Any:
    """Return labels that change at a rate of their class, at most 0.4, and always into the same other class."""
    classes = y.max() + 1
    cycle = rng.permutation(classes)
    successor = np.empty(classes, np.int64)
    successor[cycle] = np.roll(cycle, 1)
    rates = np.minimum(rng.dirichlet(np.ones(classes)) * classes * rate, 0.4)
    return np.where(rng.random(len(y)) < rates[y], successor[y], y)


def where_classes_meet(
    X: NDArray[Any], y: NDArray[Any], rate: float, rng: np.random.Generator
) -> Any:
    """Return labels that change into the nearest other class, likelier where it is near."""
    D, I = mining.nearest_enemies(X, y)
    chance = np.exp(-D / np.median(D))
    wrong = rng.choice(len(y), round(rate * len(y)), replace=False, p=chance / chance.sum())
    labels = y.copy()
    labels[wrong] = y[I[wrong]]
    return labels


NOISE = {"uniform": uniform, "by class": by_class, "where classes meet": where_classes_meet}


# --- scores: low is suspicious --------------------------------------------------------------------


def candidates(X: NDArray[Any], labels: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Return the scores that ours was chosen from."""
    n = len(labels)
    rows = np.arange(n)
    sizes = np.bincount(labels)
    D, I = GroupedRows(X, rows, "l2").nearest(X, rows, min(max(NEIGHBOURS), n // 3))
    scores = {}

    def margin(weights: NDArray[Any]) -> NDArray[Any]:
        votes = np.zeros((n, len(sizes)))
        np.add.at(votes, (rows[:, None], labels[I[:, : weights.shape[1]]]), weights)
        votes /= votes.sum(axis=1, keepdims=True)
        given = votes[rows, labels].copy()
        votes[rows, labels] = -1
        return given - votes.max(axis=1)

    for k in NEIGHBOURS:
        k = min(k, I.shape[1])
        near = np.exp(-2 * (D[:, :k] / np.maximum(D[:, k - 1 : k], 1e-30)) ** 2)
        voters = labels[I[:, :k]]
        scores[f"share of the votes, k={k}"] = margin(np.ones((n, k)))
        scores[f"nearer votes count more, k={k}"] = margin(near)
        scores[f"divided by the size of the class, k={k}"] = margin(near / sizes[voters])
        ours = margin(near / np.sqrt(sizes[voters]))
        scores[f"divided by the root of the size, k={k}"] = ours
        trusted = near / np.sqrt(sizes[voters]) * (1 + ours[I[:, :k]]) + 1e-12
        scores[f"so, and by the scores of the voters, k={k}"] = margin(trusted)
    scores["trust score"] = mining.trust_scores(X, labels, X, labels)
    return scores


KNN = "cleanlab, kNN probabilities"
LOGISTIC = "cleanlab, logistic regression"


def probabilities(X: NDArray[Any], labels: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Return out-of-sample probabilities, as cleanlab takes them: 5 folds."""
    models = {
        KNN: KNeighborsClassifier(10),
        LOGISTIC: LogisticRegression(max_iter=300),
    }
    scaled = StandardScaler().fit_transform(X)
    return {
        name: cross_val_predict(
            model, X if name == KNN else scaled, labels, cv=5, method="predict_proba"
        )
        for name, model in models.items()
    }


def scores_of(X: NDArray[Any], labels: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Return the scores of ours and the peers, and where it is a choice, the better one of each peer."""
    from cleanlab.rank import get_label_quality_scores

    n = len(labels)
    rows = np.arange(n)
    I = GroupedRows(X, rows, "l2").nearest(X, rows, 10)[1]
    scores = {
        "ours": mining.label_errors(X, labels).score,
        "share of 10 neighbours": (labels[I] == labels[:, None]).mean(axis=1),
        "trust score": mining.trust_scores(X, labels, X, labels),
    }
    for name, shares in probabilities(X, labels).items():
        for method in ("self_confidence", "normalized_margin"):
            scores[f"{name}: {method}"] = get_label_quality_scores(labels, shares, method=method)
    return scores


def precision(score: NDArray[Any], wrong: NDArray[np.bool_]) -> float:
    """Return precision at k for k planted errors; ties are in random order."""
    order = np.lexsort((np.random.default_rng(0).random(len(score)), score))
    return float(wrong[order[: wrong.sum()]].mean())


def measured(
    sets: dict[str, Callable[[], Data]],
    make: Callable[[NDArray[Any], NDArray[Any]], dict[str, NDArray[Any]]],
    seeds: int,
) -> list[dict[str, Any]]:
    rows = []
    for name, read in sets.items():
        X, y = read()
        for kind, noise in NOISE.items():
            for rate in RATES:
                for seed in range(seeds):
                    labels = noise(X, y, rate, np.random.default_rng(seed))
                    wrong = labels != y
                    for score, values in make(X, labels).items():
                        rows.append(
                            {
                                "set": name,
                                "noise": kind,
                                "rate": rate,
                                "score": score,
                                "precision": precision(values, wrong),
                                "average precision": average_precision_score(wrong, -values),
                            }
                        )
        print(name, X.shape, f"{y.max() + 1} classes", flush=True)
    return rows


def flagged() -> list[dict[str, Any]]:
    """Return how many rows are below 0.5 of ours, and how many cleanlab finds, with precision and recall."""
    from cleanlab.filter import find_label_issues

    rows = []
    for name, read in REPORTED_ON.items():
        X, y = read()
        labels = uniform(X, y, RATES[0], np.random.default_rng(0))
        wrong = labels != y
        issues = {
            peer: find_label_issues(labels, shares)
            for peer, shares in probabilities(X, labels).items()
        }
        found = mining.label_errors(X, labels)
        clean = mining.label_errors(X, y)
        for limit in (0.5, 0.25, 0.1):
            issues[f"ours, below {limit}"] = found.score < limit
        for way, suspects in issues.items():
            right = int((suspects & wrong).sum())
            rows.append(
                {
                    "set": name,
                    "rows": len(y),
                    "planted": int(wrong.sum()),
                    "way": way,
                    "found": int(suspects.sum()),
                    "right": right,
                    "suggested": float((found.suggested == y)[suspects & wrong].mean())
                    if right and way.startswith("ours")
                    else None,
                    "without planted": int((clean.score < float(way.split()[-1])).sum())
                    if way.startswith("ours")
                    else None,
                }
            )
    return rows


def people() -> list[dict[str, Any]]:
    """Return precision at k where each person has several nearly equal rows with one label, with groups and without."""
    rows = []
    for name in ("digits", "wine", "mixture, 20 dimensions"):
        X, y = REPORTED_ON[name]()
        for seed in range(SEEDS):
            rng = np.random.default_rng(seed)
            labels = np.repeat(uniform(X, y, RATES[0], rng), COPIES)
            noise = 0.05 * X.std(axis=0) * rng.normal(size=(len(labels), X.shape[1]))
            copies = (np.repeat(X, COPIES, axis=0) + noise).astype(np.float32)
            person = np.repeat(np.arange(len(y)), COPIES)
            wrong = labels != np.repeat(y, COPIES)
            for way, groups in (("with groups", person), ("without groups", None)):
                score = mining.label_errors(copies, labels, groups=groups).score
                rows.append(
                    {"set": name, "way": way, "seed": seed, "precision": precision(score, wrong)}
                )
    return rows


def mean(rows: list[dict[str, Any]], *keys: str) -> list[dict[str, Any]]:
    values = ["precision", "average precision"]
    frame = pd.DataFrame(rows)
    return frame.groupby([*keys], sort=False)[values].mean().reset_index().to_dict("records")


def decimals(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def pivoted(rows: list[dict[str, Any]], line: str, columns: tuple[str, ...]) -> str:
    """Return a table of precisions: a line for each value of one field, a column for each value of the others.

    The best of each column is bold.
    """
    cells: dict[str, dict[str, float]] = {}
    for row in rows:
        column = ", ".join(percent(row[name]) if name == "rate" else row[name] for name in columns)
        cells.setdefault(column, {})[row[line]] = row["precision"]
    best = {column: max(values.values()) for column, values in cells.items()}
    names = dict.fromkeys(row[line] for row in rows)
    body = [
        (
            name,
            *(
                f"**{values[name]:.3f}**"
                if values[name] == best[column]
                else decimals(values[name])
                for column, values in cells.items()
            ),
        )
        for name in names
    ]
    return table((line, *cells), body)


def page(content: dict[str, Any]) -> str:
    sets = content["sets"]
    precision_of: dict[str, dict[str, float]] = {}
    for row in sets:
        precision_of.setdefault(row["set"], {})[row["score"]] = row["precision"]
    lost = []
    for name, values in precision_of.items():
        winner = max(values, key=values.__getitem__)
        if winner != "ours":
            lost.append(f"{name} ({winner}, {values[winner]:.3f} against {values['ours']:.3f})")
    losses_text = f"**Another score is better on** {'; '.join(lost)}." if lost else ""
    chosen = sorted(content["candidates"], key=lambda row: -row["precision"])
    flagged = [
        (
            row["set"],
            row["way"],
            f"{row['planted']:,} of {row['rows']:,}",
            f"{row['found']:,}",
            f"{row['right']:,}",
            percent(row["suggested"]),
            "-" if row["without planted"] is None else f"{row['without planted']:,}",
        )
        for row in content["flagged"]
    ]
    people: dict[str, dict[str, list[float]]] = {}
    for row in content["people"]:
        people.setdefault(row["set"], {}).setdefault(row["way"], []).append(row["precision"])
    grouped = [
        (name, *(f"{sum(values) / len(values):.3f}" for values in ways.values()))
        for name, ways in people.items()
    ]
    return (
        "Labels are made wrong in data sets, and rows are put in the order of suspicion. The number is the precision "
        "at k for k planted errors: the share of planted errors among the k most suspicious rows. Labels that were "
        "wrong before count as right. Means over three kinds of errors (any other class; some classes into others, at "
        "different rates; into the next class where classes meet), 5 and 20 % of the labels, and two seeds. "
        f"cleanlab {content['cleanlab']} gets out-of-sample probabilities of 10 nearest neighbours and of a logistic "
        "regression, 5 folds.\n\n"
        + pivoted(sets, "score", ("set",))
        + f"\n\n{losses_text}\n\nBy kind and share of the errors, over all seven sets:\n\n"
        + pivoted(content["noise"], "score", ("noise", "rate"))
        + "\n\n## How many are wrong?\n\nOf 5 % planted errors of any class: rows below a score, and the rows that "
        "cleanlab's `find_label_issues` names. The last column is the number of rows below the score where nothing is "
        "planted: classes overlap in tables, so a score below 0.5 alone is no proof. The default, 0.25, was set by "
        "this table.\n\n"
        + table(
            (
                "set",
                "way",
                "planted",
                "named",
                "of them planted",
                "true label suggested",
                "named without planted errors",
            ),
            flagged,
        )
        + "\n\n## Groups\n\nEach row four times with a little noise, all four with one label, which is wrong for 5 % "
        "of the groups. Rows of one group support each other unless `groups=` keeps them apart:\n\n"
        + table(("set", *next(iter(people.values()))), grouped)
        + "\n\n## How the score was chosen\n\nOn other data: "
        + ", ".join(content["chosen on"])
        + ". Nearer votes count more, and each is divided by the root of the size of its class, k=50. A first choice "
        "divided by the size itself, on these sets without the table of mortgages, where it was poor: that table was "
        "one of the report then, and changed sides with the table of arrests. So the other six sets of the report "
        "were seen once before the final choice, and arrests was not.\n\n"
        + folded(
            "All candidates",
            table(
                ("candidate", "precision at k", "average precision"),
                [
                    (row["score"], decimals(row["precision"]), decimals(row["average precision"]))
                    for row in chosen
                ],
            ),
        )
    )


def main() -> None:
    warnings.simplefilter("ignore")  # of logistic regressions that have not converged
    chosen = measured(CHOSEN_ON, candidates, 1)
    reported = measured(REPORTED_ON, scores_of, SEEDS)
    result = {
        "candidates": mean(chosen, "score"),
        "sets": mean(reported, "set", "score"),
        "noise": mean(reported, "noise", "rate", "score"),
        "all": mean(reported, "score"),
        "flagged": flagged(),
        "people": people(),
        "chosen on": list(CHOSEN_ON),
        "cleanlab": version("cleanlab"),
    }
    save("label_errors", result)
    for row in result["all"]:
        print(row)


if __name__ == "__main__":
    main()
