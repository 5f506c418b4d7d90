"""Evidence and facts from an index file, and the picture of a pair."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cfe_faiss.base.checks import UNKNOWN, Array, Doubles, Floats, Int32s, Ints, as_count
from cfe_faiss.base.extras import extra
from cfe_faiss.cli.inputs import Inputs, as_file, constraints, own_files, read_inputs, train_model
from cfe_faiss.cli.output import note, write
from cfe_faiss.cli.parser import (
    CONSTRAINTS,
    DATA_ROOT,
    DATASETS,
    FEATURES,
    FORMAT,
    INDEX,
    JSON,
    MODEL,
    OF_INDEX,
    OWN_FILES,
    TEXT_FORMAT,
    Either,
    argument,
    command,
    output,
    several,
    value,
    with_default,
)
from cfe_faiss.data.classes import as_predictions, class_numbers
from cfe_faiss.data.columns import Reading
from cfe_faiss.data.predict import predictions_of
from cfe_faiss.datasets import NAMES
from cfe_faiss.datasets.own import OwnTable, attributes_of_files, read_columns, read_nodes
from cfe_faiss.files.format import read_header, read_index
from cfe_faiss.files.outputs import write_picture
from cfe_faiss.index.searching import EvidenceIndex
from cfe_faiss.pairs import global_evidence
from cfe_faiss.rows.metric import measure_of, measure_pairs, measured
from cfe_faiss.search.query import Effort, Query, Rules
from cfe_faiss.search.tiles import slices

_PAIRS_AT_ONCE = 1 << 16
_NPROBE = value("--nprobe", "N", int, "lists of an inverted file to probe for each node")


@dataclass(frozen=True)
class Names:
    """The users' names of nodes and classes, from the files of an index; None without files."""

    own_table: OwnTable | None
    classes: tuple[str, ...] = ()

    @classmethod
    def read(cls, arguments: argparse.Namespace, index: EvidenceIndex) -> "Names":
        """Read the names of an index.

        Raises
        ------
        ValueError
            If the index holds another number of nodes or other classes than the files.
        """
        if arguments.features is None:
            return cls(None)
        names = (arguments.id, arguments.predictions, arguments.threshold)
        if all(name is None for name in names):
            raise ValueError(
                "--features needs --id, --predictions or --threshold: it names nodes or classes"
            )
        option = "--predictions" if arguments.threshold is None else "--threshold"
        own_table = read_columns(own_files(arguments))
        own_table.table.problems.check()
        members = index.members()
        n = len(own_table.ids)
        if len(members.ids) and members.ids[-1] >= n:
            raise ValueError(
                f"{arguments.features} must be what the index was built from, got {n:,} rows and "
                f"node {members.ids[-1]} in the index"
            )
        if own_table.predicted is None:
            return cls(own_table)
        predicted = as_predictions(
            own_table.predicted,
            n,
            own_table.class_names,
            option,
            are_names=True,
            unknown=arguments.unknown,
            complete=False,
        )
        other = int((predicted.labels[members.ids] != members.labels).sum())
        if other:
            raise ValueError(
                f"{option} must be what the index was built from, got another class for "
                f"{other:,} of {len(members.ids):,} nodes"
            )
        return cls(own_table, predicted.class_names or ())

    def nodes(self, numbers: Ints) -> Array:
        """Return the names of nodes, or their numbers."""
        return numbers if self.own_table is None else self.own_table.ids.names[numbers]

    def labels(self, labels: Int32s) -> Array:
        """Return the names of classes, or their numbers."""
        return np.array(self.classes, object)[labels] if self.classes else labels

    def find(
        self, texts: Sequence[str] | None, index: EvidenceIndex, reading: Reading
    ) -> Ints | None:
        """Return the numbers of the nodes of --nodes, names or a file; None for the whole index."""
        if texts is None:
            return None
        source = as_file(texts, reading)
        members = index.members()
        if self.own_table is None:
            if source is not None:
                return read_nodes(source, None, int(members.ids.max(initial=-1)) + 1)
            try:
                return np.array([int(text) for text in texts], np.int64)
            except (ValueError, OverflowError) as error:
                raise ValueError(
                    f"--nodes must be node numbers or a file, got {' '.join(texts)}"
                ) from error
        ids = self.own_table.ids
        nodes = ids.known("--nodes", texts) if source is None else read_nodes(source, ids)
        absent = ~np.isin(nodes, members.ids)
        if absent.any():
            name = str(ids.names[nodes[absent][0]])
            raise ValueError(
                f"--nodes must be in the index, which holds {index.ntotal:,} of {len(ids):,} "
                f"nodes; got {name!r}, which is not"
            )
        return nodes


@command(
    "local",
    "evidence of some nodes",
    "For each node, the most similar nodes that the model puts in another class.",
    INDEX,
    several(
        "--nodes",
        "NODE",
        "ids or numbers of nodes, or a file of them or with a mask; default: all nodes of the "
        "index",
    ),
    with_default("-k", "K", 10, "evidence for each node"),
    _NPROBE,
    value(
        "--recall", "R", float, "in place of --nprobe: the share of the evidence to find, in (0, 1]"
    ),
    argument("--per-group", metavar="M", type=int, help="most results of one class for each node"),
    FORMAT,
    *OF_INDEX,
)
def run_local(arguments: argparse.Namespace) -> None:
    """Write the evidence of some nodes."""
    index = open_index(arguments)
    names = Names.read(arguments, index)
    members = index.members()
    # Without ids the search multiplies every pair once.
    query_ids = names.find(arguments.nodes, index, arguments.reading)
    nodes = members.ids if query_ids is None else query_ids
    members.find(nodes, name="nodes")
    conditions = _conditions(arguments, names)
    if conditions and (arguments.recall is not None or arguments.nprobe is not None):
        raise ValueError(
            "--recall and --nprobe have no effect with constraints: such a search is exact"
        )
    effort = Effort.of(arguments.nprobe, arguments.recall, exact=bool(conditions))
    limit = arguments.per_group
    rules = None if limit is None else Rules(per_group=as_count("--per-group", limit))
    query = Query(as_count("k", arguments.k), ids=query_ids, rules=rules, **conditions)
    D, I = index.answer(query, effort, progress=True)
    row, place = np.nonzero(I >= 0)
    short = int((I[:, -1] < 0).sum())
    if short:
        note(f"fewer than {arguments.k} found for {short:,} of {len(nodes):,} nodes")
    sides = {"node": nodes[row], "evidence": I[row, place]}
    _write(arguments, index, names, sides, D[row, place], rank=place + 1)


@command(
    "global",
    "evidence in the whole graph",
    "The most similar pairs of nodes that the model puts in different classes.",
    INDEX,
    with_default("-k", "K", 100, "number of pairs"),
    argument(
        "--per-node",
        action="store_true",
        help="each node contributes its best evidence only (the paper's Algorithm 3)",
    ),
    argument(
        "--approximate", action="store_true", help="search the index instead of comparing all pairs"
    ),
    replace(_NPROBE, needs=("--approximate",)),
    FORMAT,
    *OF_INDEX,
)
def run_global(arguments: argparse.Namespace) -> None:
    """Write the most similar pairs."""
    index = open_index(arguments)
    names = Names.read(arguments, index)
    conditions = _conditions(arguments, names)
    exact = not arguments.approximate
    pairs = global_evidence(
        index,
        arguments.k,
        exact=exact,
        per_node=arguments.per_node,
        nprobe=arguments.nprobe,
        progress=True,
        **conditions,
    )
    if len(pairs) < arguments.k:
        note(f"fewer than {arguments.k} found: {len(pairs)}")
    sides = {"source": pairs.source, "target": pairs.target}
    _write(arguments, index, names, sides, pairs.similarity)


def open_index(arguments: argparse.Namespace) -> EvidenceIndex:
    """Return the index of the options; ValueError for ``--nprobe`` without lists."""
    index = read_index(arguments.index)
    if arguments.nprobe is not None and not index.has_lists:
        raise ValueError("--nprobe has no effect with an exact index, which has no lists")
    return index


def _conditions(arguments: argparse.Namespace, names: Names) -> dict[str, Any]:
    """Return the constraints of the options and their attributes; nothing without constraints."""
    is_given = any(option.is_given(arguments) for option in CONSTRAINTS)
    if names.own_table is None or not is_given:
        return {}
    attributes = attributes_of_files(names.own_table, own_files(arguments), any_texts=True)
    where = constraints(arguments, attributes, names.classes)
    if where is not None and where.target is not None:
        target = class_numbers("--target", where.target, names.classes, len(names.classes))
        where = replace(where, target=target.tolist())
    return {"where": where, "attributes": attributes}


def _write(
    arguments: argparse.Namespace,
    index: EvidenceIndex,
    names: Names,
    sides: dict[str, Ints],
    D: Floats,
    **others: Array,
) -> None:
    """Write ids of the two sides of pairs, other columns, similarities or distances, and classes.

    Cosines are in float64, if the index holds vectors and not codes of them; other measures as they
    were found.
    """
    source, target = sides.values()
    values = measured(D, index.metric)
    if index.keeps_vectors and index.metric == "cosine":
        parts = [
            _measure64(index, source[pairs], target[pairs])
            for pairs in slices(len(source), _PAIRS_AT_ONCE)
        ]
        values = np.concatenate(parts or [np.empty(0)])
    members = index.members()
    columns = {
        **{side: names.nodes(nodes) for side, nodes in sides.items()},
        **others,
        measure_of(index.metric): values,
    }
    for side, nodes in sides.items():
        columns[f"{side}_label"] = names.labels(members.labels[np.searchsorted(members.ids, nodes)])
    write(columns, arguments.format)


def _measure64(index: EvidenceIndex, v: Ints, u: Ints) -> Doubles:
    """Return the similarity or distance of pairs of stored vectors in float64."""
    ids, places = np.unique(np.stack([v, u]), return_inverse=True)
    left, right = places.reshape(2, -1)
    return measure_pairs(index.reconstruct_batch(ids), left, right, index.metric)


@command(
    "info",
    "the content of an index file",
    "Kind, size, settings and classes of an index file.",
    INDEX,
    JSON,
)
def run_info(arguments: argparse.Namespace) -> None:
    """Write facts about an index file."""
    index = read_index(arguments.index)
    header = read_header(arguments.index)
    labels, counts = np.unique(index.members().labels, return_counts=True)
    names = ["unknown" if label == UNKNOWN else str(label) for label in labels.tolist()]
    classes = dict(zip(names, counts.tolist(), strict=True))
    fields: dict[str, Any] = {
        "file": str(arguments.index),
        "bytes": arguments.index.stat().st_size,
        "version": header["version"],
        "kind": header["kind"],
        "ntotal": index.ntotal,
        "d": index.d,
        "metric": index.metric,
    }
    if index.has_lists:
        settings = ("nlist", "partitions", "nprobe", "complete", "routing", "weighted", "theta")
        fields |= {name: getattr(index, name) for name in settings}
    if arguments.format == "json":
        sys.stdout.write(json.dumps({**fields, "classes": classes}, indent=2) + "\n")
        return
    fields |= {f"class {name}": count for name, count in classes.items()}
    width = max(map(len, fields))
    sys.stdout.writelines(f"{name:<{width}}  {value}\n" for name, value in fields.items())


# --- a picture ------------------------------------------------------------------------------------


@command(
    "plot",
    "a picture of one pair",
    "Draw two similar nodes that the model puts in different classes, with their neighbourhoods "
    "and the features in which they differ. By default the most similar pair of the index.",
    INDEX,
    argument("node", metavar="NODE", nargs="*", help="two nodes, by id or number"),
    output("--out", "picture", "the picture", default="evidence.png"),
    Either(
        (
            argument(
                "--dataset",
                choices=NAMES,
                metavar="NAME",
                help=f"the data set that the index was built from: {DATASETS}",
            ),
            FEATURES,
        ),
        required=True,
    ),
    *TEXT_FORMAT,
    DATA_ROOT,
    *MODEL,
    with_default("--max-neighbours", "N", 12, "neighbours drawn of each node"),
    with_default("--rows", "N", 8, "largest number of features shown"),
    with_default("--seed", "N", 0, "seed of the split, the model and its training, as in build"),
    OWN_FILES,
)
def run_plot(arguments: argparse.Namespace) -> None:
    """Write the picture of a pair."""
    if len(arguments.node) not in (0, 2):
        raise ValueError(
            f"NODE must be given twice, or never for the most similar pair, got "
            f"{len(arguments.node)}"
        )
    index = read_index(arguments.index)
    is_predicted = bool(arguments.features or arguments.predictions or arguments.model)
    inputs = read_inputs(arguments, predict=is_predicted, graph=True)
    data = inputs.data
    if data.edge_index is None:  # a table without a graph
        data = replace(data, edge_index=np.empty((2, 0), np.int64))
    labels = _all_labels(inputs, index, arguments)
    if arguments.node:
        source, target = inputs.ids.known("NODE", arguments.node).tolist()
    else:
        best = global_evidence(index, 1)
        if not len(best):
            raise ValueError("INDEX must hold nodes of two classes, got one class only")
        source = int(best.source[0])
        target = int(best.target[0])
    value = float(_measure64(index, np.array([source]), np.array([target]))[0])
    measures: dict[str, Any] = {measure_of(index.metric): value}
    with extra("plot"):
        from cfe_faiss.plot import evidence_figure

    figure = evidence_figure(
        data,
        source,
        target,
        labels,
        **measures,
        max_neighbors=arguments.max_neighbours,
        features=arguments.rows,
    )
    write_picture(figure, arguments.out, overwrite=arguments.overwrite)
    names = inputs.ids.names
    sys.stdout.write(f"{arguments.out}: nodes {names[source]} and {names[target]}\n")


def _all_labels(inputs: Inputs, index: EvidenceIndex, arguments: argparse.Namespace) -> Array:
    """Return the predicted class of every node, as neighbours may be nodes outside of the index.

    Raises
    ------
    ValueError
        If the index holds other nodes.
    """
    members = index.members()
    n = len(inputs.ids)
    if inputs.predicted is not None:
        labels: Array = predictions_of(inputs.predicted, inputs.data, complete=False).labels
    elif len(members.ids) == n and members.ids[-1] == n - 1:
        return members.labels
    else:
        _, labels = train_model("gcn", inputs.data, arguments.seed)
    if len(members.ids) and members.ids[-1] >= n:
        raise ValueError(f"INDEX must be of the graph's {n:,} nodes, got node {members.ids[-1]}")
    other = int((labels[members.ids] != members.labels).sum())
    if other:
        note(
            f"the model predicts another class than the index says for {other:,} of "
            f"{len(members.ids):,} nodes: was the index built with another --model or --seed?"
        )
    return labels
