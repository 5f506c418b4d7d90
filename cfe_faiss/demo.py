"""The demo: from a data set to its closest pairs that a trained model treats differently, for a person to read."""

import os
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from cfe_faiss.audit.features import class_name, differing_features, format_value
from cfe_faiss.checks import as_count
from cfe_faiss.finder import EvidenceFinder, PairEvidence
from cfe_faiss.graph import as_graph

if TYPE_CHECKING:
    from cfe_faiss.models import TrainingReport

_FEATURES = 4
_GAP = "   "


def run(
    dataset: str,
    root: str | os.PathLike[str] | None,
    *,
    pairs: int,
    nodes: str,
    folder: Path,
    seed: int,
    output: TextIO,
) -> None:
    """Train a GCN on a data set, and show the most similar pairs of nodes that it puts in different classes.

    Parameters
    ----------
    dataset, root, seed
        As in :func:`cfe_faiss.datasets.load`; the seed is also that of the model and its training.
    pairs
        How many pairs, >= 1.
    nodes
        Search among the "test" nodes or "all" nodes.
    folder
        Where the picture of the closest pair goes, ``evidence.png``; it is created where it does not exist.
    output
        Where the text goes. Progress goes to standard error.

    Raises
    ------
    ImportError
        If torch, PyG, pandas or Matplotlib is missing.
    OSError
        If a file of the data set is missing, or the picture cannot be written.
    TypeError, ValueError
        If an argument is not as described.
    """
    from cfe_faiss.datasets import load
    from cfe_faiss.models import gcn, train

    pairs = as_count("pairs", pairs)
    folder.mkdir(parents=True, exist_ok=True)
    data: Any = load(dataset, root, seed)
    model = gcn(data, seed=seed)
    report = train(model, data, seed=seed, progress=True)
    finder = EvidenceFinder.from_data(data, model, nodes=data.test_mask if nodes == "test" else None, progress=True)
    evidence = finder.top_pairs(pairs, progress=True)

    searched = f"{finder.index.ntotal:,} test nodes" if nodes == "test" else f"all {finder.index.ntotal:,} nodes"
    output.write(_context(data, report))
    if len(evidence) == 0:
        output.write(f"It puts {searched} in one class, so there is no counterfactual evidence among them.\n")
        return
    output.write(_introduction(data, searched, len(evidence)))
    output.write(_table(data, evidence))
    output.flush()
    picture = folder / "evidence.png"
    _draw(data, evidence, picture)
    output.write(f"\nA picture of pair 1, with its neighbours: {picture}\n")


def _context(data: Any, report: "TrainingReport") -> str:
    n, edges = len(data.x), as_graph(data.edge_index, len(data.x)).num_edges // 2
    tested = int(data.test_mask.sum())
    return (
        f"Data set {data.name}: {n:,} nodes, {edges:,} edges, {data.x.shape[1]:,} features, "
        f"{len(data.class_names)} classes.\n"
        f"A graph neural network (GCN) learnt the classes from the {int(data.train_mask.sum()):,} training nodes; "
        f"it is right for {report.test_accuracy:.1%} of the {tested:,} test nodes.\n"
    )


def _introduction(data: Any, searched: str, found: int) -> str:
    closest = f"the {found} pairs of nodes" if found > 1 else "the pair of nodes"
    units = "" if _in_own_units(data) else "\n"
    features = f"Below their classes: the {_FEATURES} features that differ most, in their own units.\n\n"
    return (
        f"\nAmong {searched}, {closest} most alike that it puts in different classes. Similarity compares features\n"
        f"and neighbourhoods: 1 is alike in both, 0 has nothing in common. {units or features}"
    )


def _in_own_units(data: Any) -> bool:
    """Whether the features say something to a reader: where ``x`` is not scaled, they are anonymous columns."""
    return data.x_raw is not data.x
