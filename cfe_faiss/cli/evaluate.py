"""How good predictions are, in all and by group."""

import argparse
from types import SimpleNamespace
from typing import Any

import numpy as np

from cfe_faiss import audit
from cfe_faiss.attributes.table import as_attributes
from cfe_faiss.cli.case import Case, class_number, read_case
from cfe_faiss.cli.output import write, write_frame

_MAIN = ("class", "feature", "value", "count", "rate", "ratio", "ratio_low", "ratio_high", "verdict", "fpr", "fnr")


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
    assert case.predicted is not None
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
        favourable=None if favourable is None else class_number(names, "--favourable", favourable),
        class_names=names,
        confidence=arguments.confidence,
    )
    write_frame(metrics.table, arguments.format, _MAIN)
