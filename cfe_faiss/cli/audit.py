"""Audits of a model by the evidence in an index file."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cfe_faiss import audit
from cfe_faiss.attributes.table import Attributes, as_attributes
from cfe_faiss.audit.groups import VALUES_AS_THEY_ARE
from cfe_faiss.cli.case import Case, compare, read_case
from cfe_faiss.cli.output import announce, write_frame
from cfe_faiss.cli.own import Names, check_labels
from cfe_faiss.cli.search import check_nprobe
from cfe_faiss.datasets import load
from cfe_faiss.datasets.own.classes import read_classes, read_labels
from cfe_faiss.datasets.own.graph import read_ids
from cfe_faiss.files.format import read_index
from cfe_faiss.finder import EvidenceFinder
from cfe_faiss.index.protocol import EvidenceIndex
from cfe_faiss.pairs import global_evidence

if TYPE_CHECKING:
    from cfe_faiss.audit.groups import Bins


_MAIN = ("feature", "value", "score", "expected", "difference", "nodes")


def run_discrimination(arguments: argparse.Namespace) -> None:
    """Write the discrimination score of every value."""
    options = {"k": arguments.k, "sensitive": arguments.sensitive or ()}
    _write_by_group(audit.discrimination_scores, arguments, options, _MAIN)


def run_consistency(arguments: argparse.Namespace) -> None:
    """Write the share of nodes that are closer to another class than to their own."""
    _write_by_group(audit.consistency, arguments, {"confidence": arguments.confidence})


def _write_by_group(
    function: Callable[..., Any], arguments: argparse.Namespace, options: dict[str, Any], main: Sequence[str] = ()
) -> None:
    """Write the table of an audit by groups."""
    index = read_index(arguments.index)
    check_nprobe(index, arguments.nprobe)
    case = _read_known(arguments)
    found = function(
        EvidenceFinder.from_index(index, features=None if case is None else case.attributes),
        nodes=Names(case.ids if case is not None and arguments.id else None).find(arguments.nodes, index),
        **({} if case is None else _groups(arguments, as_attributes(case.attributes))),
        **options,
        nprobe=arguments.nprobe,
        progress=True,
    )
    write_frame(found, arguments.format, main)


def run_errors(arguments: argparse.Namespace) -> None:
    """Write the accuracy within the global evidence."""
    index = read_index(arguments.index)
    check_nprobe(index, arguments.nprobe)
    curve = audit.error_rate_by_evidence(
        EvidenceFinder.from_index(index, truth=_truth(arguments, index)),
        ks=arguments.k,
        exact=not arguments.approximate,
        per_node=arguments.per_node,
        nprobe=arguments.nprobe,
        confidence=arguments.confidence,
        progress=True,
    )
    write_frame(curve, arguments.format)


def run_fine_tune(arguments: argparse.Namespace) -> None:
    """Train the model of a graph, continue with the evidence of its index, and write the changes."""
    index = read_index(arguments.index)
    if arguments.runs < 1:
        raise ValueError(f"--runs must be at least 1, got {arguments.runs}")
    arguments.model = arguments.model or "gcn"
    case = read_case(arguments)
    pairs = global_evidence(index, arguments.k, per_node=arguments.per_node, progress=True)
    compare(index, case.labels)
    tuned = audit.fine_tune(
        replace(EvidenceFinder.from_index(index), model=case.model, data=case.data),
        pairs=pairs,
        seeds=range(arguments.runs),
        epochs=arguments.epochs,
        lr=arguments.lr,
        confidence=arguments.confidence,
        progress=True,
    )
    write_frame(tuned.summary if arguments.summary else tuned.runs, arguments.format)


def _truth(arguments: argparse.Namespace, index: EvidenceIndex) -> Any:
    """Return the true class of every node."""
    if arguments.dataset is not None:
        announce(arguments.dataset)
        return load(arguments.dataset, arguments.data_root).y
    if arguments.features is None:
        y, names = read_labels(arguments.truth)
        if names:
            raise ValueError(
                f"{arguments.truth.path} holds texts: --features and --predictions say which class is which"
            )
        return y
    if arguments.predictions is None:
        raise ValueError("--features needs --predictions, which say which class is which")
    ids = read_ids(arguments.features, arguments.id)
    classes = read_classes(arguments.predictions, arguments.truth, ids)
    check_labels(index, classes.labels)
    return classes.y


def _read_known(arguments: argparse.Namespace) -> Case | None:
    """Return the nodes' attributes and ids; None without a data set and a table."""
    if arguments.dataset is None and arguments.features is None:
        return None
    return read_case(arguments, predict=False, encode=False)


def _groups(arguments: argparse.Namespace, attributes: Attributes) -> dict[str, Any]:
    chosen: dict[str, Any] = {"columns": arguments.columns, "intersections": arguments.cross}
    if arguments.bins is None:
        return chosen
    bins = _bins(arguments.bins)
    _check_effect(bins, attributes, arguments)
    return chosen | {"bins": bins}


def _check_effect(bins: "Bins", attributes: Attributes, arguments: argparse.Namespace) -> None:
    """Raise ValueError if no chosen column has the bins."""
    asked = list(attributes) if arguments.columns is None else [*arguments.columns]
    asked += [name for names in arguments.cross for name in names]
    if isinstance(bins, Mapping):
        for name in bins:
            if name in attributes and name not in asked:
                raise ValueError(f"--bins has no effect on {name!r}, which --columns and --cross leave out")
        return
    numeric = [attributes[name] for name in asked if name in attributes and attributes[name].numbers is not None]
    if all(len(attribute.values) <= VALUES_AS_THEY_ARE for attribute in numeric):
        raise ValueError(f"--bins has no effect: no column has more than {VALUES_AS_THEY_ARE} different numbers")


def _bins(texts: list[str]) -> "Bins":
    """Return the bins of "4", "TIME=0,30" (edges) or "AGE=5" (number of bins)."""
    try:
        if len(texts) == 1 and "=" not in texts[0]:
            return int(texts[0])
        named = [text.rsplit("=", 1) for text in texts]
        return {name: _edges(text) if "," in text else int(text) for name, text in named}
    except ValueError as error:
        raise ValueError(f"--bins must be a number, or like TIME=0,30 or AGE=5, got {' '.join(texts)}") from error


def _edges(text: str) -> list[float]:
    return [float(edge) for edge in text.split(",") if edge]
