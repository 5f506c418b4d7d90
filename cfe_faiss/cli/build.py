"""Index files from data, and the demo."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.attributes.columns import Removed, leave_out
from cfe_faiss.attributes.table import as_attributes
from cfe_faiss.base.checks import as_count, as_labels
from cfe_faiss.base.tables import read_matrix
from cfe_faiss.cli.case import Case, find_left_out, read_case, refuse, table_finder
from cfe_faiss.cli.output import announce, note
from cfe_faiss.cli.parser import call
from cfe_faiss.datasets.own import Ids
from cfe_faiss.datasets.own.classes import read_labels
from cfe_faiss.datasets.own.graph import read_edges
from cfe_faiss.datasets.own.table import is_table
from cfe_faiss.files.format import write_index
from cfe_faiss.finder import empty_index
from cfe_faiss.finder.inputs import fill_index
from cfe_faiss.graph.ks import ks_vectors
from cfe_faiss.index.ivf_flat import IndexEvidenceIVF
from cfe_faiss.index.protocol import EvidenceIndex

# Options of each source of "build", with their defaults; other options would have no effect.
_OF_TABLES = ("id", "neighbours", "truth", "split", "categorical", "missing", "as_is", "model", "nodes", "without")


def run_demo(arguments: argparse.Namespace) -> None:
    """Show the most similar pairs of a data set."""
    from cfe_faiss import demo

    announce(arguments.dataset)
    call(demo.run, arguments, output=sys.stdout)


def run_build(arguments: argparse.Namespace) -> None:
    """Write an index file."""
    _check_target(arguments.out)
    as_count("seed", arguments.seed, 0)
    if arguments.vectors or (arguments.features and not is_table(arguments.features)):
        index = _from_matrix(arguments)
    else:
        index = _from_case(arguments)
    write_index(index, arguments.out, overwrite=arguments.overwrite)
    classes = len(np.unique(index.members().labels))
    sys.stdout.write(f"{arguments.out}: {index!r}, {classes:,} classes\n")


def _check_target(path: Path) -> None:
    """Raise before the work if the index file could not be written."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: OUT must be a file")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path.parent}: there is no such folder to write OUT in")


def _from_case(arguments: argparse.Namespace) -> EvidenceIndex:
    """Return an index of a data set, or of a table of attributes."""
    case = read_case(arguments)
    nodes = case.nodes(arguments.nodes)
    if arguments.dataset is None:
        _tell_classes(case.data.class_names)
        if case.data.edge_index is None:
            finder = table_finder(arguments, case, nodes)
            _tell_removed(finder.removed)
            return _build_index(arguments, finder.vectors, finder.labels, nodes)
    vectors = _ks_vectors(arguments, _features(arguments, case), case.data.edge_index)
    return _build_index(arguments, vectors, case.labels, nodes)


def _features(arguments: argparse.Namespace, case: Case) -> Any:
    """Return the features without the attributes of --without; note their copies and proxies."""
    names = find_left_out(case, arguments.without or ())
    if not names:
        return case.data.x
    x, removed = leave_out(case.data, as_attributes(case.attributes), names)
    _tell_removed(removed)
    return x


def _tell_removed(removed: Removed | None) -> None:
    if removed is None:
        return
    note(f"left out: {', '.join(removed.columns)}")
    if removed.proxies:
        note(f"kept, though they partly tell what was left out: {', '.join(map(str, removed.proxies))}")


def _from_matrix(arguments: argparse.Namespace) -> EvidenceIndex:
    """Return an index of vectors, or of a matrix of features and their edges."""
    if arguments.predictions is None:
        raise ValueError(f"--{'vectors' if arguments.vectors else 'features'} needs --predictions")
    x = read_matrix(arguments.vectors or arguments.features)
    if arguments.vectors and x.ndim != 2:
        raise ValueError(f"{arguments.vectors} must hold a matrix of shape (n, d), got {x.shape}")
    refuse(arguments, _OF_TABLES, f"with {arguments.features}, a matrix: a table has a header")
    labels, names = read_labels(arguments.predictions, len(x))
    _tell_classes(names)
    if not arguments.vectors:
        edges = np.empty((2, 0), np.int64)
        if arguments.edges is not None:
            edges = read_edges(arguments.edges, Ids.of_rows(len(x)))
        x = _ks_vectors(arguments, x, edges)
    return _build_index(arguments, x, as_labels("predictions", labels, len(x)), np.arange(len(x)))


def _tell_classes(names: Sequence[str]) -> None:
    """Note the number of each class in the index, if it differs from the file."""
    if list(names) != [str(label) for label in range(len(names))]:
        note(f"classes: {', '.join(f'{label} is {name}' for label, name in enumerate(names))}")


def _ks_vectors(arguments: argparse.Namespace, x: Any, graph: Any) -> NDArray[np.float32]:
    steps = {"num_layers": arguments.layers, "alpha": arguments.alpha}
    given: dict[str, Any] = {name: value for name, value in steps.items() if value is not None}
    return ks_vectors(x, graph, **given, directed=arguments.directed, progress=True)


def _build_index(
    arguments: argparse.Namespace, vectors: NDArray[Any], labels: NDArray[np.int32], nodes: NDArray[np.int64]
) -> EvidenceIndex:
    d = vectors.shape[1]
    kind = arguments.index
    index: Any = IndexEvidenceIVF.paper(d) if kind == "paper" else empty_index(kind, len(nodes), d)
    if index.has_lists:
        index.cp.seed = arguments.seed
    return fill_index(index, vectors, labels, nodes)
