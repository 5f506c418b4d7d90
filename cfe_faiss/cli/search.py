"""Evidence and facts from an index file, and the picture of a pair."""

import argparse
import json
import sys
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.checks import UNKNOWN, as_count
from cfe_faiss.base.extras import extra
from cfe_faiss.cli.case import Case, Names, compare, read_case, train_model
from cfe_faiss.cli.constraints import CONSTRAINTS, constraints
from cfe_faiss.cli.output import Columns, describe, note, write
from cfe_faiss.cli.parser import call
from cfe_faiss.data.classes import class_numbers
from cfe_faiss.datasets.own.graph import OwnFiles, read_attributes
from cfe_faiss.files.format import read_header, read_index
from cfe_faiss.files.pictures import write_picture
from cfe_faiss.index.protocol import EvidenceIndex
from cfe_faiss.pairs import global_evidence
from cfe_faiss.rows.metric import measure_of, measure_pairs, measured
from cfe_faiss.search.query import Effort, Query
from cfe_faiss.search.tiles import slices

_PAIRS_AT_ONCE = 1 << 16


def run_local(arguments: argparse.Namespace) -> None:
    """Write the evidence of some nodes."""
    index = open_index(arguments)
    names = Names.read(arguments, index)
    known = index.members()
    # Without ids the search multiplies every pair once.
    asked = names.find(arguments.nodes, index, arguments.reading)
    nodes = known.ids if asked is None else asked
    known.find(nodes, name="nodes")
    conditions = _conditions(arguments, names)
    if conditions and (arguments.recall is not None or arguments.nprobe is not None):
        raise ValueError("--recall and --nprobe have no effect with constraints: such a search is exact")
    effort = Effort.of(arguments.nprobe, arguments.recall, exact=bool(conditions))
    D, I = index.answer(Query(as_count("k", arguments.k), ids=asked, **conditions), effort, progress=True)
    row, place = np.nonzero(I >= 0)
    short = int((I[:, -1] < 0).sum())
    if short:
        note(f"fewer than {arguments.k} found for {short:,} of {len(nodes):,} nodes")
    sides = {"node": nodes[row], "evidence": I[row, place]}
    write(_columns(index, names, sides, D[row, place], rank=place + 1), arguments.format)


def run_global(arguments: argparse.Namespace) -> None:
    """Write the most similar pairs."""
    index = open_index(arguments)
    names = Names.read(arguments, index)
    conditions = _conditions(arguments, names)
    exact = not arguments.approximate
    pairs = call(global_evidence, arguments, index=index, exact=exact, progress=True, **conditions)
    if len(pairs) < arguments.k:
        note(f"fewer than {arguments.k} found: {len(pairs)}")
    sides = {"source": pairs.source, "target": pairs.target}
    write(_columns(index, names, sides, pairs.similarity), arguments.format)


def _columns(
    index: EvidenceIndex,
    names: Names,
    sides: dict[str, NDArray[np.int64]],
    found: NDArray[np.float32],
    **others: NDArray[Any],
) -> Columns:
    """Return ids, other columns, similarities or distances, and classes of the two sides of pairs."""
    ids = {side: names.nodes(nodes) for side, nodes in sides.items()}
    known = index.members()
    places = {side: np.searchsorted(known.ids, nodes) for side, nodes in sides.items()}
    labels = {f"{side}_label": names.labels(known.labels[own]) for side, own in places.items()}
    source, target = sides.values()
    return {**ids, **others, measure_of(index.metric): _measure(index, source, target, found), **labels}


def _conditions(arguments: argparse.Namespace, names: Names) -> dict[str, Any]:
    """Return the constraints of the options, and the attributes that they use; nothing without constraints."""
    given = [getattr(arguments, name) for name in CONSTRAINTS]
    if all(value is None or value is False for value in given):
        return {}
    attributes = read_attributes(OwnFiles(arguments.features, arguments.id, reading=arguments.reading))
    where = constraints(arguments, attributes, list(names.classes))
    if where is not None and where.target is not None:
        where = replace(
            where, target=class_numbers("--target", where.target, names.classes, len(names.classes)).tolist()
        )
    return {"where": where, "attributes": attributes}


def open_index(arguments: argparse.Namespace) -> EvidenceIndex:
    """Return the index of the options; ValueError if ``--nprobe`` is given and has no effect on it."""
    index = read_index(arguments.index)
    if arguments.nprobe is not None and not index.has_lists:
        raise ValueError("--nprobe has no effect with an exact index, which has no lists")
    return index


def _measure(
    index: EvidenceIndex, v: NDArray[np.int64], u: NDArray[np.int64], found: NDArray[np.float32]
) -> NDArray[Any]:
    """Return cosines in float64, if the index holds vectors and not codes of them; other measures as found."""
    if not index.keeps_vectors or index.metric != "cosine":
        return measured(found, index.metric)
    parts = [_measure64(index, v[pairs], u[pairs]) for pairs in slices(len(v), _PAIRS_AT_ONCE)]
    return np.concatenate(parts or [np.empty(0)])


def _measure64(index: EvidenceIndex, v: NDArray[np.int64], u: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the similarity or distance of pairs of stored vectors in float64."""
    ids, places = np.unique(np.stack([v, u]), return_inverse=True)
    left, right = places.reshape(2, -1)
    return measure_pairs(index.reconstruct_batch(ids), left, right, index.metric)


def run_info(arguments: argparse.Namespace) -> None:
    """Write facts about an index file."""
    index = read_index(arguments.index)
    header = read_header(arguments.index)
    classes, counts = np.unique(index.members().labels, return_counts=True)
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
        names = ("nlist", "partitions", "nprobe", "complete", "routing", "weighted", "theta")
        fields |= {name: getattr(index, name) for name in names}
    fields["classes"] = {
        "unknown" if label == UNKNOWN else str(label): count
        for label, count in zip(classes.tolist(), counts.tolist(), strict=True)
    }
    sys.stdout.write(json.dumps(fields, indent=2) + "\n" if arguments.format == "json" else describe(fields))


# --- a picture --------------------------------------------------------------------------------------------------------


def run_plot(arguments: argparse.Namespace) -> None:
    """Write the picture of a pair."""
    if len(arguments.node) not in (0, 2):
        raise ValueError(f"NODE must be given twice, or never for the most similar pair, got {len(arguments.node)}")
    index = read_index(arguments.index)
    own = arguments.features is not None
    case = read_case(arguments, predict=own or bool(arguments.predictions or arguments.model))
    if case.data.edge_index is None:  # a table without a graph
        case = replace(case, data=replace(case.data, edge_index=np.empty((2, 0), np.int64)))
    labels = _all_labels(case, index, arguments)
    source, target = _pair(arguments.node, case, index)
    value = float(_measure64(index, np.array([source]), np.array([target]))[0])
    with extra("plot"):
        from cfe_faiss.plot import evidence_figure

    figure = evidence_figure(
        case.data,
        source,
        target,
        labels,
        **{measure_of(index.metric): value},
        max_neighbors=arguments.max_neighbours,
        features=arguments.rows,
    )
    write_picture(figure, arguments.out, overwrite=arguments.overwrite)
    names = case.ids.names
    sys.stdout.write(f"{arguments.out}: nodes {names[source]} and {names[target]}\n")


def _all_labels(case: Case, index: EvidenceIndex, arguments: argparse.Namespace) -> NDArray[Any]:
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
    found = case.ids.known("NODE", texts)
    return int(found[0]), int(found[1])
