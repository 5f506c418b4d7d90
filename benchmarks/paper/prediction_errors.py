"""Figure 6: accuracy within the top-k global evidence against overall accuracy.

V_test of each graph, GCN, the paper's Algorithm 3. Beside it two controls of the same numbers of pairs: random pairs of
nodes with different predicted classes, and the most similar pairs of nodes with the same predicted class.
"""

from typing import Any

import faiss
import numpy as np
from figures import finish, lines, panels
from setting import (
    TITLES,
    Bench,
    flat_index,
    titled,
    trained,
    vectors,
)
from verdict import Case, Claim, cell, graphs, markdown, rows_of

import cfe_faiss as cfe
from cfe_faiss import audit

NAME = "prediction_errors"
GRAPHS = ("cora", "pubmed", "facebook", "bail", "german")
KS = (10, 20, 50, 100, 200, 400, 800, 1200)
FIRST = 50


def measure(bench: Bench) -> dict[str, Any]:
    keys = [(name,) for name in bench.few(GRAPHS, 1)]
    return {"ks": KS, "rows": bench.parts(NAME, keys, {"ks": KS}, one)}


def one(bench: Bench, name: str, seed: int) -> dict[str, Any]:
    model = trained(bench, name, "gcn", seed)
    finder = cfe.EvidenceFinder.from_index(flat_index(bench, name, model), truth=model.data.y)
    curve = audit.error_rate_by_evidence(finder, ks=KS, per_node=True)
    right = model.labels == model.data.y.numpy()
    reached = [int(pairs) == k for pairs, k in zip(curve["pairs"], KS, strict=True)]
    curves = {
        "accuracy": map(float, curve["accuracy"]),
        "random": random_pairs(model, right, seed),
        "close": close_pairs(bench, name, model, right),
    }
    return {
        "graph": name,
        "source": model.source,
        "seed": seed,
        "overall": float(right[model.test].mean()),
        "overall_nodes": len(model.test),
        "nodes": [int(n) for n in curve["nodes"]],
        "same_truth": same_truth(bench, name, model),
        **{
            key: [value if there else None for value, there in zip(values, reached, strict=True)]
            for key, values in curves.items()
        },
    }


def random_pairs(model: Any, right: Any, seed: int) -> list[float]:
    """Return the accuracy within k random pairs of different predicted classes."""
    rng, nodes = np.random.default_rng(seed), model.test
    pairs = rng.choice(nodes, (40 * max(KS), 2))
    pairs = pairs[model.labels[pairs[:, 0]] != model.labels[pairs[:, 1]]]
    return [float(right[np.unique(pairs[:k])].mean()) for k in KS]


def close_pairs(bench: Bench, name: str, model: Any, right: Any) -> list[float]:
    """Return the accuracy within the k most similar pairs of the same predicted class (each node's best)."""
    X, nodes = vectors(bench, name), model.test
    found = []
    for label in np.unique(model.labels[nodes]):
        own = nodes[model.labels[nodes] == label]
        if len(own) > 1:
            D, I = faiss.knn(X[own], X[own], 2, metric=faiss.METRIC_INNER_PRODUCT)
            other = np.where(
                I[:, 0] == np.arange(len(own)), I[:, 1], I[:, 0]
            )  # of equal vectors either may come first
            ends = np.sort(np.stack([own, own[other]], axis=1), axis=1)
            kept = np.unique(ends, axis=0, return_index=True)[1]
            found.append(np.column_stack([D[kept, 1], ends[kept]]))
    every = np.concatenate(found)
    pairs = every[np.argsort(-every[:, 0], kind="stable")][:, 1:].astype(np.int64)
    return [float(right[np.unique(pairs[:k])].mean()) for k in KS]


def same_truth(bench: Bench, name: str, model: Any) -> list[float]:
    """Return the share of the top-k pairs whose nodes have the same true class: one of the two is wrong there."""
    pairs = cfe.global_evidence(flat_index(bench, name, model), max(KS), per_node=True)
    y = model.data.y.numpy()
    alike = y[pairs.source] == y[pairs.target]
    return [float(alike[:k].mean()) for k in KS]


def last(row: dict[str, Any]) -> int:
    """Return the place of the largest k for which there are k pairs."""
    return max((i for i, value in enumerate(row["accuracy"]) if value is not None), default=0)


def table(result: dict[str, Any]) -> str:
    rows = []
    for graph, source in graphs(result).items():
        own = rows_of(result, graph=graph)
        for i, k in enumerate(result["ks"]):
            there = [row for row in own if row["accuracy"][i] is not None]
            if not there:
                continue
            shares = {
                "accuracy within": "accuracy",
                "within random pairs": "random",
                "within close pairs of one class": "close",
                "pairs of one true class": "same_truth",
            }
            row = {
                "graph": TITLES[graph],
                "from": source,
                "k": f"{k:,}",
                "seeds": len(there),
                "nodes": cell([row["nodes"][i] for row in there], 0),
                **{title: cell([row[key][i] for row in there]) for title, key in shares.items()},
                "overall": cell([row["overall"] for row in own]),
            }
            rows.append(row)
    text = "Mean ± standard deviation over the seeds that have k pairs; overall accuracy is over all seeds."
    return f"{text}\n\n{markdown(rows)}"


def draw(result: dict[str, Any]) -> Any:
    names = graphs(result)
    figure, axes = panels([titled(graph, source) for graph, source in names.items()])
    words = {
        "accuracy": "global evidence",
        "random": "random pairs",
        "close": "close pairs of one class",
    }
    for one_axes, graph in zip(axes, names, strict=True):
        own = rows_of(result, graph=graph)
        lines(
            one_axes, result["ks"], {word: [row[key] for row in own] for key, word in words.items()}
        )
        overall = float(np.mean([row["overall"] for row in own]))
        one_axes.axhline(overall, color="#D55E00", linestyle="--", label="all test nodes")
    return finish(figure, axes, "k", "accuracy")


def claims(result: dict[str, Any]) -> list[Claim]:
    at = list(result["ks"]).index(FIRST)
    lower, rising, by_chance = [], [], []
    for graph, source in graphs(result).items():
        own = rows_of(result, graph=graph)
        enough = [row for row in own if row["accuracy"][at] is not None]
        title = f"{TITLES[graph]}, k = {FIRST}"
        falls = [row["overall"] - row["accuracy"][at] for row in enough]
        rises = [
            row["accuracy"][last(row)] - row["accuracy"][at] for row in enough if last(row) > at
        ]
        harder = [row["random"][at] - row["accuracy"][at] for row in enough]
        lower.append(Case(title, falls, above=0, source=source))
        largest = f"{TITLES[graph]}, largest k against k = {FIRST}"
        rising.append(Case(largest, rises, above=0, source=source))
        by_chance.append(Case(title, harder, above=0, source=source))
    return [
        Claim(
            "Accuracy within the top-k global evidence is significantly lower than overall for small k.",
            "Figure 6",
            "overall accuracy - accuracy within",
            lower,
            "Selection: the pairs are chosen for being close and predicted differently. Where both nodes have the same "
            "true class, one of the two is wrong by construction, which bounds the accuracy from above.",
        ),
        Claim(
            "With increasing k it approaches the overall accuracy.",
            "Figure 6",
            "accuracy within the largest k for which there are k pairs - accuracy at the first k",
            rising,
        ),
        Claim(
            "(Our control) The nodes of global evidence are harder than those of random pairs of different classes.",
            "-",
            "accuracy within random pairs - accuracy within the evidence",
            by_chance,
        ),
    ]
