"""A report on a model, from a data set or from own files."""

import argparse
import dataclasses
import hashlib
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss import audit
from cfe_faiss.attributes.constraints import Constraints
from cfe_faiss.audit.model_comparison import BASELINE
from cfe_faiss.audit.reporting.conditions import FEWEST_CASES
from cfe_faiss.audit.reporting.files import report_files
from cfe_faiss.cli.case import Case, class_names, inputs_of, make_finder, number, read_case
from cfe_faiss.cli.constraints import constraints, parse_named
from cfe_faiss.cli.parser import call
from cfe_faiss.datasets.own.classes import read_classes, read_labels
from cfe_faiss.files.new_file import new_file
from cfe_faiss.files.outputs import check_outputs
from cfe_faiss.finder import EvidenceFinder


def run_audit(arguments: argparse.Namespace) -> int:
    """Write a report; return 1 if a required condition fails or, with --strict, cannot be judged; else 0."""
    fewest = FEWEST_CASES if arguments.min_cases is None else arguments.min_cases
    conditions = [audit.Condition.parse(text, fewest) for text in arguments.require]
    # Before the work, not after it
    if arguments.out.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"--out must end in .html, got {arguments.out}")
    check_outputs(report_files(arguments.out), inputs_of(arguments), overwrite=arguments.overwrite)
    case = read_case(arguments)
    attributes = case.attributes
    names = list(case.data.class_names)
    favourable = class_names(names, "--favourable", arguments.favourable)
    if favourable is None and arguments.threshold is not None:
        favourable = [names[1]]
    compare = _others(arguments, case)
    finder, where = _finder(arguments, case)
    if arguments.mask_ids:
        finder = dataclasses.replace(finder, ids=None)
    cuts = {
        name: [number("--cut", name, part) for part in text.split(",")]
        for name, text in parse_named("--cut", arguments.cut, attributes)
    }
    better = {
        name: text if text in ("high", "low") else text.split(",")
        for name, text in parse_named("--better", arguments.better, attributes)
    }
    report = call(
        audit.report,
        arguments,
        finder=finder,
        path=arguments.out,
        reference=dict(parse_named("--reference", arguments.reference, attributes)) or None,
        better=better or None,
        skip=arguments.skip or (),
        favourable=favourable,
        truth_favourable=class_names(names, "--truth-favourable", arguments.truth_favourable),
        where=where,
        compare=compare or None,
        require=conditions,
        subject=_subject(arguments, case),
        **({"bins": cuts} if cuts else {}),
    )
    for path in report.files:
        sys.stdout.write(f"{path}\n")
    for check in report.checks:
        sys.stdout.write(f"{check}\n")
    outcome = {"pass": "passed", "fail": "failed"}.get(report.outcome, report.outcome)
    deciding = next((str(check) for check in report.checks if check.outcome == report.outcome), "")
    sys.stdout.write(f"{outcome}{deciding.removeprefix(report.outcome)}\n")
    return 1 if report.outcome == "fail" or (arguments.strict and not report.passed) else 0


def run_case(arguments: argparse.Namespace) -> None:
    """Write the page about one node."""
    case = read_case(arguments)
    found = case.ids.known("NODE", [arguments.node])
    finder, where = _finder(arguments, case)
    page = finder.case(finder.names(found)[0], arguments.k, where=where)
    if arguments.out is None:
        sys.stdout.write(str(page))
        return
    with new_file(arguments.out, overwrite=arguments.overwrite) as file:
        file.write(page.to_html().encode("utf-8", "replace"))
    sys.stdout.write(f"{arguments.out}\n")


def _finder(arguments: argparse.Namespace, case: Case) -> tuple[EvidenceFinder, Constraints | None]:
    """Return the finder of a case, and the constraints of the options."""
    where = constraints(arguments, case.attributes, list(case.data.class_names))
    options = {} if case.data.edge_index is None else {"progress": True}
    return make_finder(arguments, case, case.nodes(arguments.nodes, arguments.reading), **options), where


def _others(arguments: argparse.Namespace, case: Case) -> dict[str, NDArray[Any]]:
    """Return the predictions of --compare by the name of the model: class numbers of a data set, else class names."""
    found: dict[str, NDArray[Any]] = {}
    for place, source in enumerate(arguments.compare, 2):
        name = source.name or f"v{place}"
        if name in found or name == BASELINE:
            raise ValueError(f"--compare must name each model once, got {name!r} again")
        if arguments.dataset is not None:
            found[name] = read_labels(source, len(case.ids), case.data.class_names)[0]
        else:
            classes = read_classes(source, None, case.ids, arguments.unknown)
            found[name] = np.array([*classes.names, None], object)[classes.labels]
    return found


def _subject(arguments: argparse.Namespace, case: Case) -> audit.Subject:
    return audit.Subject(
        title=arguments.title or "",
        people=arguments.people or "",
        data=str(arguments.dataset or arguments.features),
        model=_model(arguments, case),
        command=shlex.join(["cfe-faiss", *arguments.argv]),
        seed=arguments.seed,
        files={str(path): _sha256(path) for path in inputs_of(arguments) if path.is_file()},
    )


def _model(arguments: argparse.Namespace, case: Case) -> str:
    """Return the name of the model in the report."""
    if case.model is not None:
        return arguments.model or "gcn"
    if arguments.threshold is not None:
        return f"threshold {arguments.threshold}"
    return f"predictions of {arguments.predictions.path}"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
