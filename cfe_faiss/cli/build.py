"""Index files from data, and the demo."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np

from cfe_faiss.attributes.constraints import Constraints
from cfe_faiss.base.checks import Array, Int32s, as_count
from cfe_faiss.base.text import format_similarity
from cfe_faiss.cli.inputs import make_finder, read_inputs
from cfe_faiss.cli.output import announce, note
from cfe_faiss.cli.parser import (
    DATA_ROOT,
    DATASETS,
    FEATURES,
    MODEL,
    OWN_FILES,
    SEARCHED,
    TEXT_FORMAT,
    WITHOUT,
    Either,
    argument,
    command,
    flag,
    needing,
    output,
    value,
    with_default,
)
from cfe_faiss.data.classes import as_predictions, note_classes
from cfe_faiss.data.read import read_matrix
from cfe_faiss.data.roles import Ids
from cfe_faiss.datasets import NAMES, load
from cfe_faiss.datasets.own import read_classes, read_edges
from cfe_faiss.files.format import write_index
from cfe_faiss.files.outputs import check_outputs, write_picture
from cfe_faiss.finder import EvidenceFinder, empty_index
from cfe_faiss.finder.inputs import fill_index
from cfe_faiss.graph import as_graph
from cfe_faiss.graph.ks import ks_vectors
from cfe_faiss.index.ivf import IndexEvidenceIVF
from cfe_faiss.rows.metric import Metric

_FEATURES = 4
_WIDTH = 80
_GRAPH_INPUTS = "--dataset", "--edges", "--neighbours"
_TABLE_OPTIONS = (
    *("id", "neighbours", "truth", "split", "categorical", "missing", "as_is"),
    *("scale", "model", "nodes", "without"),
)
"""Options without effect on a matrix of vectors or features."""


@command(
    "demo",
    "from a data set to evidence, in one go",
    "Train a model on a data set, and show the most similar pairs of one true class that it puts "
    "in different classes.",
    argument(
        "--dataset",
        choices=NAMES,
        metavar="NAME",
        default="patients",
        help=f"{DATASETS}; default: %(default)s",
    ),
    DATA_ROOT,
    argument(
        "--nodes",
        choices=("test", "all"),
        default="test",
        help="searched nodes; default: %(default)s",
    ),
    with_default("--pairs", "N", 5, "number of pairs to show"),
    output("--out", "folder", "folder of the picture", default="demo-output", metavar="DIR"),
    with_default("--seed", "N", 0, "seed of the split, the model and its training"),
)
def run_demo(arguments: argparse.Namespace) -> None:
    """Train a GCN, and show the most similar pairs of one true class that it tells apart."""
    announce(arguments.dataset)
    from cfe_faiss.models import gcn, train  # takes seconds to import
    from cfe_faiss.plot import evidence_figure

    count = as_count("pairs", arguments.pairs)
    picture = arguments.out / "evidence.png"
    check_outputs([picture], overwrite=arguments.overwrite)
    data: Any = load(arguments.dataset, arguments.data_root, arguments.seed)
    arguments.out.mkdir(parents=True, exist_ok=True)
    model = gcn(data, seed=arguments.seed)
    report = train(model, data, seed=arguments.seed, progress=True)
    nodes = data.test_mask if arguments.nodes == "test" else None
    truth = {"true class": data.y}
    finder = EvidenceFinder.from_data(data, model, nodes=nodes, features=truth, progress=True)
    evidence = finder.top_pairs(count, where=Constraints(exact="true class"), progress=True)
    n, d = data.x.shape
    edges = as_graph(data.edge_index, n).num_edges // 2
    context = (
        f"Data set {data.name}: {n:,} nodes, {edges:,} edges, {d:,} features, "
        f"{len(data.class_names)} classes. A graph convolutional network learnt the classes from "
        f"{int(data.train_mask.sum()):,} training nodes; it is right for "
        f"{report.test_accuracy:.1%} of the {int(data.test_mask.sum()):,} test nodes."
    )
    kind = "test nodes" if arguments.nodes == "test" else "nodes"
    searched = f"{'' if arguments.nodes == 'test' else 'all '}{finder.index.ntotal:,} {kind}"
    sys.stdout.write(fill(context, _WIDTH) + "\n")
    if len(evidence) == 0:
        sys.stdout.write(
            f"\nIt puts {searched} of each true class in one class, so there is no "
            "counterfactual evidence among them.\n"
        )
        return
    pairs = f"{len(evidence):,} most similar pairs" if len(evidence) > 1 else "most similar pair"
    introduction = (
        f"Counterfactual evidence: among {searched}, the {pairs} of one true class that the "
        "network puts in different classes, so it is wrong about at least one of the two. "
        "Similarity compares features and neighbourhoods; 1 is the most."
    )
    if _has_units(data):
        introduction += " Below: the features that differ most, in their own units."
    sys.stdout.write("\n" + fill(introduction, _WIDTH) + "\n")
    cards = [_card(data, evidence, rank) for rank in range(len(evidence))]
    label, left, right = (
        max(map(len, column)) for column in zip(*chain.from_iterable(cards), strict=True)
    )
    for rows in cards:
        sys.stdout.write("\n")
        sys.stdout.writelines(f"{a:<{label}}   {b:>{left}}   {c:>{right}}\n" for a, b, c in rows)
    sys.stdout.flush()
    ends = int(evidence.source[0]), int(evidence.target[0])
    similarity = float(evidence.measure64()[0])
    figure = evidence_figure(data, *ends, evidence.labels, similarity=similarity, features=5)
    write_picture(figure, picture, overwrite=arguments.overwrite)
    sys.stdout.write(f"\nA picture of pair 1 and its neighbours: {picture}\n")


def _has_units(data: Any) -> bool:
    """Return whether features have units that a reader knows.

    Unscaled ``x`` has columns without names.
    """
    return data.x_raw is not data.x


def _card(data: Any, evidence: Any, rank: int) -> list[tuple[str, str, str]]:
    """Return the lines of a pair: name, value of the source, value of the target."""
    from cfe_faiss.plot import class_name, differing_features, format_value

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
    if _has_units(data):
        for row in differing_features(data, source, target, _FEATURES):
            rows.append((f"  {row.name}", format_value(row.source), format_value(row.target)))
    return rows


@command(
    "build",
    "build an index file",
    "Build an index from a data set, from a graph with predicted classes, or from vectors with "
    "predicted classes.",
    argument("out", metavar="OUT", type=Path, output="file", help="the index file to write"),
    Either(
        (
            argument(
                "--dataset",
                choices=NAMES,
                metavar="NAME",
                help=f"a known data set; a model is trained unless --predictions is given: "
                f"{DATASETS}",
            ),
            FEATURES,
            value("--vectors", "FILE", Path, "ready vectors: .npy, .csv or .txt"),
        ),
        required=True,
    ),
    *TEXT_FORMAT,
    DATA_ROOT,
    *MODEL,
    *needing((SEARCHED, WITHOUT), "--dataset", "--features"),
    argument(
        "--index",
        metavar="DESCRIPTION",
        help="EvidenceFlat (exact), EvidenceIVF<nlist>[x<partitions>] with ,Flat ,SQfp16 ,SQ8 or "
        ",PQ<M>,RFlat, or "
        "paper for the paper's LocalCE-I; default: exact up to 100,000 nodes, an inverted file "
        "beyond",
    ),
    value("--layers", "L", int, "steps of the KS vectors; default: 3", needs=_GRAPH_INPUTS),
    value(
        "--alpha",
        "A",
        float,
        "weight of a node's own vector in each step; default: 0.5",
        needs=_GRAPH_INPUTS,
    ),
    argument(
        "--directed",
        action="store_true",
        needs=_GRAPH_INPUTS,
        help="edges count in the given direction only",
    ),
    with_default("--seed", "N", 0, "seed of the split, the model, its training and the clustering"),
    OWN_FILES,
)
def run_build(arguments: argparse.Namespace) -> None:
    """Write an index file."""
    as_count("seed", arguments.seed, 0)
    steps = {"num_layers": arguments.layers, "alpha": arguments.alpha}
    settings: dict[str, Any] = {
        **{name: value for name, value in steps.items() if value is not None},
        "directed": arguments.directed,
        "progress": True,
    }
    metric: Metric = "cosine"
    if arguments.vectors or (arguments.features and arguments.features.suffix == ".npy"):
        vectors, labels = _read_matrix(arguments, settings)
        nodes = np.arange(len(vectors))
    else:
        inputs = read_inputs(arguments)
        nodes = inputs.nodes(arguments.nodes, arguments.reading)
        # The finder makes vectors; its index stays empty, since the seed of the clustering is an
        # option here.
        inputs = replace(inputs, model=None)
        options = {} if inputs.attributes is None else settings
        finder = make_finder(arguments, inputs, [], index="EvidenceFlat", **options)
        if arguments.dataset is None:
            _note_classes(finder.class_names or ())
        if finder.removed is not None:
            note(f"left out: {', '.join(finder.removed.columns)}")
            proxies = ", ".join(map(finder.removed.describe, finder.removed.proxies))
            if proxies:
                note(f"kept, though they partly tell what was left out: {proxies}")
        vectors = finder.vectors
        labels = finder.labels
        metric = finder.metric
    d = vectors.shape[1]
    kind = arguments.index
    if kind == "paper" and metric != "cosine":
        raise ValueError(
            "--index paper compares by cosine, and a table by distance: give --edges or "
            "--neighbours"
        )
    empty: Any = (
        IndexEvidenceIVF.paper(d) if kind == "paper" else empty_index(kind, len(nodes), d, metric)
    )
    if empty.has_lists:
        empty.cp.seed = arguments.seed
    index = fill_index(empty, vectors, labels, nodes, metric)
    write_index(index, arguments.out, overwrite=arguments.overwrite)
    classes = len(np.unique(index.members().labels))
    sys.stdout.write(f"{arguments.out}: {index!r}, {classes:,} classes\n")


def _read_matrix(arguments: argparse.Namespace, settings: dict[str, Any]) -> tuple[Array, Int32s]:
    """Return vectors, or KS vectors of a matrix and its edges; and predicted classes."""
    if arguments.predictions is None:
        raise ValueError(f"--{'vectors' if arguments.vectors else 'features'} needs --predictions")
    x = read_matrix(arguments.vectors or arguments.features, arguments.reading)
    if arguments.vectors and x.ndim != 2:
        raise ValueError(f"{arguments.vectors} must hold a matrix of shape (n, d), got {x.shape}")
    for name in _TABLE_OPTIONS:
        if getattr(arguments, name):
            raise ValueError(
                f"{flag(name)} has no effect with {arguments.features}, a matrix without names"
            )
    ids = Ids.of_rows(len(x))
    values = read_classes(arguments.predictions, ids)
    names = list(values.columns) if values.ndim == 2 else None
    title = str(arguments.predictions.path)
    predicted = as_predictions(
        values, len(x), names, title, unknown=arguments.unknown, complete=False
    )
    note_classes(predicted.labels, None, predicted.class_names)
    _note_classes(predicted.class_names or ())
    if arguments.vectors:
        return x, predicted.labels
    edges = (
        np.empty((2, 0), np.int64) if arguments.edges is None else read_edges(arguments.edges, ids)
    )
    return ks_vectors(x, edges, **settings), predicted.labels


def _note_classes(names: Sequence[str]) -> None:
    """Note the number of each class in the index, if it differs from the file."""
    if list(names) != [str(label) for label in range(len(names))]:
        note(f"classes: {', '.join(f'{label} is {name}' for label, name in enumerate(names))}")
