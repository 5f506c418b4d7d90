"""Index files from data, and the demo."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.checks import as_count
from cfe_faiss.cli.case import make_finder, read_case, refuse
from cfe_faiss.cli.output import announce, note
from cfe_faiss.cli.parser import call
from cfe_faiss.data.read import is_table, read_matrix
from cfe_faiss.data.roles import Ids
from cfe_faiss.datasets.own.classes import read_labels
from cfe_faiss.datasets.own.graph import read_edges
from cfe_faiss.files.format import write_index
from cfe_faiss.finder import empty_index
from cfe_faiss.finder.inputs import fill_index
from cfe_faiss.graph.ks import ks_vectors
from cfe_faiss.index.ivf import IndexEvidenceIVF
from cfe_faiss.index.protocol import EvidenceIndex
from cfe_faiss.rows.metric import Metric

# Options of each source of "build", with their defaults; other options would have no effect.
_OF_TABLES = (
    *("id", "neighbours", "truth", "split", "categorical", "missing", "as_is"),
    *("scale", "model", "nodes", "without"),
)


def run_demo(arguments: argparse.Namespace) -> None:
    """Show the most similar pairs of a data set."""
    from cfe_faiss import demo

    announce(arguments.dataset)
    call(demo.run, arguments, output=sys.stdout)


def run_build(arguments: argparse.Namespace) -> None:
    """Write an index file."""
    as_count("seed", arguments.seed, 0)
    if arguments.vectors or (arguments.features and not is_table(arguments.features, arguments.reading)):
        index = _from_matrix(arguments)
    else:
        index = _from_case(arguments)
    write_index(index, arguments.out, overwrite=arguments.overwrite)
    classes = len(np.unique(index.members().labels))
    sys.stdout.write(f"{arguments.out}: {index!r}, {classes:,} classes\n")


def _from_case(arguments: argparse.Namespace) -> EvidenceIndex:
    """Return an index of a data set, or of a table of attributes."""
    case = read_case(arguments)
    nodes = case.nodes(arguments.nodes, arguments.reading)
    if arguments.dataset is None:
        _tell_classes(case.data.class_names)
    # The finder makes vectors; its index stays empty, since the seed of the clustering is an option here.
    settings = _ks_settings(arguments) if case.data.edge_index is not None else {}
    finder = make_finder(arguments, replace(case, model=None), [], index="EvidenceFlat", **settings)
    if finder.removed is not None:
        note(f"left out: {', '.join(finder.removed.columns)}")
        kept = ", ".join(map(finder.removed.describe, finder.removed.proxies))
        if kept:
            note(f"kept, though they partly tell what was left out: {kept}")
    return _build_index(arguments, finder.vectors, finder.labels, nodes, finder.metric)


def _from_matrix(arguments: argparse.Namespace) -> EvidenceIndex:
    """Return an index of vectors, or of a matrix of features and their edges."""
    if arguments.predictions is None:
        raise ValueError(f"--{'vectors' if arguments.vectors else 'features'} needs --predictions")
    x = read_matrix(arguments.vectors or arguments.features, arguments.reading)
    if arguments.vectors and x.ndim != 2:
        raise ValueError(f"{arguments.vectors} must hold a matrix of shape (n, d), got {x.shape}")
    refuse(arguments, _OF_TABLES, f"with {arguments.features}, a matrix: a table has a header")
    labels, names = read_labels(arguments.predictions, len(x), unknown=arguments.unknown)
    _tell_classes(names)
    if not arguments.vectors:
        edges = np.empty((2, 0), np.int64)
        if arguments.edges is not None:
            edges = read_edges(arguments.edges, Ids.of_rows(len(x)))
        x = ks_vectors(x, edges, **_ks_settings(arguments))
    return _build_index(arguments, x, labels, np.arange(len(x)))


def _tell_classes(names: Sequence[str]) -> None:
    """Note the number of each class in the index, if it differs from the file."""
    if list(names) != [str(label) for label in range(len(names))]:
        note(f"classes: {', '.join(f'{label} is {name}' for label, name in enumerate(names))}")


def _ks_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    steps = {"num_layers": arguments.layers, "alpha": arguments.alpha}
    given = {name: value for name, value in steps.items() if value is not None}
    return {**given, "directed": arguments.directed, "progress": True}


def _build_index(
    arguments: argparse.Namespace,
    vectors: NDArray[Any],
    labels: NDArray[np.int32],
    nodes: NDArray[np.int64],
    metric: Metric = "cosine",
) -> EvidenceIndex:
    d = vectors.shape[1]
    kind = arguments.index
    if kind == "paper" and metric != "cosine":
        raise ValueError("--index paper compares by cosine, and a table by distance: give --edges or --neighbours")
    index: Any = IndexEvidenceIVF.paper(d) if kind == "paper" else empty_index(kind, len(nodes), d, metric)
    if index.has_lists:
        index.cp.seed = arguments.seed
    return fill_index(index, vectors, labels, nodes, metric)
