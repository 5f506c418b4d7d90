"""The demo: train a model, and print the most similar nodes of one class that it tells apart."""

import os
from itertools import chain
from pathlib import Path
from textwrap import fill
from typing import Any, TextIO

from cfe_faiss.attributes.constraints import Constraints
from cfe_faiss.base.checks import as_count
from cfe_faiss.base.text import format_similarity
from cfe_faiss.files.outputs import check_outputs, write_picture
from cfe_faiss.finder import EvidenceFinder, PairEvidence
from cfe_faiss.graph import as_graph
from cfe_faiss.plot import class_name, differing_features, format_value

_FEATURES = 4
_WIDTH = 80


def run(  # noqa: PLR0913
    dataset: str,
    data_root: str | os.PathLike[str] | None = None,
    *,
    pairs: int,
    nodes: str,
    out: Path,
    overwrite: bool = False,
    seed: int,
    output: TextIO,
) -> None:
    """Train a GCN, and print the most similar pairs of one true class that it tells apart.

    Parameters
    ----------
    dataset, data_root, seed
        As in :func:`cfe_faiss.datasets.load` (``root``). The seed also belongs to the model and its
        training.
    pairs
        Number of pairs, >= 1.
    nodes
        Search among the "test" nodes or "all" nodes.
    out
        Folder for the picture of the closest pair, ``evidence.png``; created if missing.
    overwrite
        Whether to replace a picture with this name that this package has not written.
    output
        Stream for the text. Progress goes to standard error.

    Raises
    ------
    ImportError
        If torch, PyG, pandas or Matplotlib is missing.
    OSError
        If a file of the data set is missing, or the picture cannot be written.
    TypeError, ValueError
        If an argument is not as described; or if a foreign file has this name, and ``overwrite`` is
        False.
    """
    from cfe_faiss.datasets import load
    from cfe_faiss.models import gcn, train
    from cfe_faiss.plot import evidence_figure

    pairs = as_count("pairs", pairs)
    picture = out / "evidence.png"
    check_outputs([picture], overwrite=overwrite)
    data: Any = load(dataset, data_root, seed)
    out.mkdir(parents=True, exist_ok=True)
    model = gcn(data, seed=seed)
    report = train(model, data, seed=seed, progress=True)
    finder = EvidenceFinder.from_data(
        data,
        model,
        nodes=data.test_mask if nodes == "test" else None,
        features={"true class": data.y},
        progress=True,
    )
    evidence = finder.top_pairs(pairs, where=Constraints(exact="true class"), progress=True)

    searched = (
        f"{finder.index.ntotal:,} test nodes"
        if nodes == "test"
        else f"all {finder.index.ntotal:,} nodes"
    )
    output.write(fill(_context(data, report.test_accuracy), _WIDTH) + "\n")
    if len(evidence) == 0:
        output.write(
            f"\nIt puts {searched} of each true class in one class, so there is no "
            f"counterfactual evidence among them.\n"
        )
        return
    output.write("\n" + fill(_introduction(data, searched, len(evidence)), _WIDTH) + "\n")
    cards = [_rows(data, evidence, rank) for rank in range(len(evidence))]
    label, left, right = (
        max(map(len, column)) for column in zip(*chain.from_iterable(cards), strict=True)
    )
    for rows in cards:
        output.write("\n")
        output.writelines(f"{a:<{label}}   {b:>{left}}   {c:>{right}}\n" for a, b, c in rows)
    output.flush()
    ends = int(evidence.source[0]), int(evidence.target[0])
    figure = evidence_figure(
        data, *ends, evidence.labels, similarity=float(evidence.measure64()[0]), features=5
    )
    write_picture(figure, picture, overwrite=overwrite)
    output.write(f"\nA picture of pair 1 and its neighbours: {picture}\n")


def _context(data: Any, test_accuracy: float) -> str:
    n, d = data.x.shape
    edges = as_graph(data.edge_index, n).num_edges // 2
    return (
        f"Data set {data.name}: {n:,} nodes, {edges:,} edges, {d:,} features, "
        f"{len(data.class_names)} classes. "
        f"A graph convolutional network learnt the classes from {int(data.train_mask.sum()):,} "
        f"training nodes; "
        f"it is right for {test_accuracy:.1%} of the {int(data.test_mask.sum()):,} test nodes."
    )


def _introduction(data: Any, searched: str, count: int) -> str:
    pairs = f"{count:,} most similar pairs" if count > 1 else "most similar pair"
    features = (
        " Below: the features that differ most, in their own units." if _in_own_units(data) else ""
    )
    return (
        f"Counterfactual evidence: among {searched}, the {pairs} of one true class that the "
        f"network puts in different classes, so it is wrong about at least one of the two. "
        f"Similarity compares features and neighbourhoods; 1 is the most.{features}"
    )


def _in_own_units(data: Any) -> bool:
    """Return whether features have units that a reader knows.

    Unscaled ``x`` has columns without names.
    """
    return data.x_raw is not data.x


def _rows(data: Any, evidence: PairEvidence, rank: int) -> list[tuple[str, str, str]]:
    source = int(evidence.source[rank])
    target = int(evidence.target[rank])
    similarity = format_similarity(float(evidence.measure64()[rank]))
    rows = [(f"Pair {rank + 1}, similarity {similarity}", f"node {source}", f"node {target}")]
    for name, labels in (("predicted class", evidence.labels), ("true class", data.y)):
        rows.append(
            (
                f"  {name}",
                class_name(data, int(labels[source])),
                class_name(data, int(labels[target])),
            )
        )
    if _in_own_units(data):
        for row in differing_features(data, source, target, _FEATURES):
            rows.append((f"  {row.name}", format_value(row.source), format_value(row.target)))
    return rows
