"""Audits of a model by the evidence in an index file, and of predictions by their true classes."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from cfe_faiss import audit
from cfe_faiss.attributes.table import Attributes, as_attributes
from cfe_faiss.audit.groups import VALUES_AS_THEY_ARE, Bins
from cfe_faiss.cli.case import Case, Names, class_number, compare, read_case
from cfe_faiss.cli.output import announce, write, write_frame
from cfe_faiss.cli.parser import call
from cfe_faiss.cli.search import open_index
from cfe_faiss.datasets import load
from cfe_faiss.datasets.own.classes import read_labels
from cfe_faiss.files.format import read_index
from cfe_faiss.finder import EvidenceFinder
from cfe_faiss.index.protocol import EvidenceIndex
from cfe_faiss.pairs import global_evidence

_OF_SCORES = ("feature", "value", "score", "expected", "difference", "nodes")
_OF_GROUPS = ("class", "feature", "value", "count", "rate", "ratio", "ratio_low", "ratio_high", "verdict", "fpr", "fnr")


def run_discrimination(arguments: argparse.Namespace) -> None:
    """Write the discrimination score of every value."""
    _write_by_group(audit.discrimination_scores, arguments, _OF_SCORES)


def run_consistency(arguments: argparse.Namespace) -> None:
    """Write the share of nodes that are closer to another class than to their own."""
    _write_by_group(audit.consistency, arguments)


def _write_by_group(function: Callable[..., Any], arguments: argparse.Namespace, main: Sequence[str] = ()) -> None:
    """Write the table of an audit by groups."""
    index = open_index(arguments)
    known = arguments.dataset is not None or arguments.features is not None
    case = read_case(arguments, predict=False, encode=False) if known else None  # the nodes' attributes and ids
    groups: dict[str, Any] = {"intersections": arguments.cross}
    if case is not None and arguments.bins is not None:
        groups["bins"] = _bins(arguments.bins)
        _check_effect(groups["bins"], as_attributes(case.attributes), arguments)
    found = call(
        function,
        arguments,
        finder=EvidenceFinder.from_index(index, features=None if case is None else case.attributes),
        nodes=Names(case.ids if case is not None and arguments.id else None).find(arguments.nodes, index),
        progress=True,
        **groups,
    )
    write_frame(found, arguments.format, main)


def run_errors(arguments: argparse.Namespace) -> None:
    """Write the accuracy within the global evidence."""
    index = open_index(arguments)
    curve = call(
        audit.error_rate_by_evidence,
        arguments,
        finder=EvidenceFinder.from_index(index, truth=_truth(arguments, index)),
        ks=arguments.k,
        exact=not arguments.approximate,
        progress=True,
    )
    write_frame(curve, arguments.format)


def run_fine_tune(arguments: argparse.Namespace) -> None:
    """Train the model of a graph, continue with the evidence of its index, and write the changes."""
    index = read_index(arguments.index)
    if arguments.runs < 1:
        raise ValueError(f"--runs must be at least 1, got {arguments.runs}")
    case = read_case(arguments)
    pairs = global_evidence(index, arguments.k, per_node=arguments.per_node, progress=True)
    compare(index, case.labels)
    finder = replace(EvidenceFinder.from_index(index), model=case.model, data=case.data)
    tuned = call(audit.fine_tune, arguments, finder=finder, pairs=pairs, seeds=range(arguments.runs), progress=True)
    write_frame(tuned.summary if arguments.summary else tuned.runs, arguments.format)


def _truth(arguments: argparse.Namespace, index: EvidenceIndex) -> Any:
    """Return the true class of every node."""
    if arguments.dataset is not None:
        announce(arguments.dataset)
        return load(arguments.dataset, arguments.data_root).y
    if arguments.features is None:
        path, (y, names) = arguments.truth.path, read_labels(arguments.truth)
        if names:
            raise ValueError(f"{path} holds texts: --features and --predictions say which class is which")
        return y
    if arguments.predictions is None:
        raise ValueError("--features needs --predictions, which say which class is which")
    return Names.read(arguments, index).truth


def _check_effect(bins: Bins, attributes: Attributes, arguments: argparse.Namespace) -> None:
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


def _bins(texts: list[str]) -> Bins:
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


# --- predictions and true classes -------------------------------------------------------------------------------------


def run_evaluate(arguments: argparse.Namespace) -> None:
    """Write measures of all nodes that were asked for, or the metrics of groups."""
    if arguments.favourable is not None and arguments.sensitive is None:
        raise ValueError("--favourable has no effect without --sensitive")
    if arguments.features is not None and arguments.truth is None:
        raise ValueError("--features needs --truth")
    case = read_case(arguments, encode=False)
    nodes = case.nodes(arguments.nodes)
    if arguments.sensitive is None:
        _write_overall(case, nodes, arguments)
    else:
        _write_groups(case, nodes, arguments)


def _write_overall(case: Case, nodes: Any, arguments: argparse.Namespace) -> None:
    from cfe_faiss.models import evaluate

    y = np.asarray(case.data.y)
    known = nodes[y[nodes] >= 0]
    if not len(known):
        raise ValueError("--truth must hold the class of one of the nodes at least, got none")
    found = evaluate(case.predicted[known], SimpleNamespace(y=y[known]), np.ones(len(known), bool))
    measures = {"nodes": found.n, "accuracy": found.accuracy, "f1": found.f1, "auc": found.auc}
    write({name: np.array([value]) for name, value in measures.items()}, arguments.format)


def _write_groups(case: Case, nodes: Any, arguments: argparse.Namespace) -> None:
    names = list(case.data.class_names)
    favourable = arguments.favourable
    people = as_attributes(case.attributes).take(nodes)
    metrics = audit.group_metrics(
        y_true=np.asarray(case.data.y)[nodes],
        y_pred=case.labels[nodes],
        sensitive_features=people.select(people.known("--sensitive", name) for name in arguments.sensitive),
        favourable=None if favourable is None else names[class_number(names, "--favourable", favourable)],
        class_names=names,
        confidence=arguments.confidence,
    )
    write_frame(metrics.table, arguments.format, _OF_GROUPS)
