"""The picture of one pair."""

import argparse
import sys
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.extras import extra
from cfe_faiss.cli.case import Case, compare, read_case, train_model
from cfe_faiss.cli.search import similarity64
from cfe_faiss.files.format import read_index
from cfe_faiss.files.pictures import write_picture
from cfe_faiss.index.protocol import EvidenceIndex
from cfe_faiss.pairs import global_evidence


def run_plot(arguments: argparse.Namespace) -> None:
    """Write the picture of a pair."""
    if len(arguments.node) not in (0, 2):
        raise ValueError(
            f"NODE must be given twice, or not at all for the most similar pair, got {len(arguments.node)}"
        )
    index = read_index(arguments.index)
    own = arguments.features is not None
    case = read_case(arguments, predict=own or bool(arguments.predictions or arguments.model))
    if case.data.edge_index is None:  # a table without a graph
        case = replace(case, data=replace(case.data, edge_index=np.empty((2, 0), np.int64)))
    labels = _labels(case, index, arguments)
    source, target = _pair(arguments.node, case, index)
    similarity = float(similarity64(index, np.array([source]), np.array([target]))[0])
    with extra("plot"):
        from cfe_faiss.plot import evidence_figure

    figure = evidence_figure(
        case.data,
        source,
        target,
        labels,
        similarity=similarity,
        max_neighbors=arguments.max_neighbours,
        features=arguments.rows,
    )
    write_picture(figure, arguments.out, overwrite=arguments.overwrite)
    names = case.ids.names
    sys.stdout.write(f"{arguments.out}: nodes {names[source]} and {names[target]}\n")


def _labels(case: Case, index: EvidenceIndex, arguments: argparse.Namespace) -> NDArray[Any]:
    """Return the predicted class of every node: neighbours of a pair may be nodes that the index does not hold."""
    members = index.members()
    n = len(case.ids)
    if case.predicted is not None:
        compare(index, case.labels)
        return case.labels
    if len(members.ids) == n and members.ids[-1] == n - 1:
        return members.labels
    _, predicted = train_model("gcn", case.data, arguments.seed)
    compare(index, predicted)
    return predicted


def _pair(texts: list[str], case: Case, index: EvidenceIndex) -> tuple[int, int]:
    if not texts:
        best = global_evidence(index, 1)
        if not len(best):
            raise ValueError("INDEX must hold nodes of two classes, got one class only")
        return int(best.source[0]), int(best.target[0])
    found = case.ids.find(texts)
    for text, node in zip(texts, found.tolist(), strict=True):
        if node < 0:
            raise ValueError(f"NODE must be a node of the graph, got {text!r}")
    return int(found[0]), int(found[1])
