"""A report on a model, from a data set or from own files."""

import argparse
import hashlib
import math
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cfe_faiss import audit
from cfe_faiss.attributes import Attributes, as_attributes
from cfe_faiss.audit.reporting.conditions import FEWEST_CASES
from cfe_faiss.audit.reporting.files import report_files
from cfe_faiss.cli import own
from cfe_faiss.cli.case import Case, class_number, left_out, read_case
from cfe_faiss.constraints import Constraints
from cfe_faiss.files.outputs import check_outputs
from cfe_faiss.finder import EvidenceFinder

_BLOCK = 1 << 20
_CONSTRAINTS = (
    "exact",
    "antiexact",
    "caliper",
    "std_caliper",
    "permitted",
    "target",
    "max_changed",
    "min_hops",
    "no_common_neighbours",
    "ratio",
)


def run_audit(arguments: argparse.Namespace) -> int:
    """Write a report; returns 1 where a required condition fails or, with --strict, cannot be judged; else 0."""
    if not arguments.require and (arguments.strict or arguments.min_cases is not None):
        raise ValueError(f"--{'strict' if arguments.strict else 'min-cases'} has no effect without --require")
    fewest = FEWEST_CASES if arguments.min_cases is None else arguments.min_cases
    conditions = [audit.Condition.parse(text, fewest) for text in arguments.require]
    # Before the work, not after it
    if arguments.out.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"--out must end in .html, got {arguments.out}")
    if not arguments.out.parent.is_dir():
        raise FileNotFoundError(f"{arguments.out.parent}: there is no such folder to write the report in")
    check_outputs(report_files(arguments.out), own.inputs(arguments), overwrite=arguments.overwrite)
    case = read_case(arguments, "edges")
    assert case.predicted is not None
    attributes = as_attributes(case.attributes)
    names = list(case.data.class_names)
    where = constraints(arguments, attributes, names)
    favourable = arguments.favourable
    nodes = case.nodes(arguments.nodes)
    finder = EvidenceFinder.from_data(
        case.data,
        case.predicted if case.model is None else case.model,
        features=attributes,
        without=left_out(case, arguments.without or ()),
        nodes=nodes,
        progress=True,
    )
    options = {} if arguments.bins is None else {"bins": arguments.bins}
    report = audit.report(
        finder,
        arguments.out,
        sensitive=arguments.sensitive,
        favourable=None if favourable is None else class_number(names, "--favourable", favourable),
        where=where,
        require=conditions,
        subject=_subject(arguments, case),
        k=arguments.k,
        pairs=arguments.pairs,
        cases=arguments.cases,
        confidence=arguments.confidence,
        figures=arguments.figures,
        overwrite=arguments.overwrite,
        **options,
    )
    for path in report.files:
        sys.stdout.write(f"{path}\n")
    for check in report.checks:
        sys.stdout.write(f"{check}\n")
    return 1 if report.outcome == "fail" or (arguments.strict and not report.passed) else 0


def _subject(arguments: argparse.Namespace, case: Case) -> audit.Subject:
    return audit.Subject(
        title=arguments.title,
        people=arguments.people,
        data=str(arguments.dataset or arguments.features),
        model=case.model_name or f"predictions of {arguments.predictions.path}",
        command=shlex.join(["cfe-faiss", *arguments.argv]),
        seed=arguments.seed,
        files={str(path): _sha256(path) for path in own.inputs(arguments) if path.is_file()},
    )


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def constraints(arguments: argparse.Namespace, attributes: Attributes, classes: list[str]) -> Constraints | None:
    """Return the conditions on pairs that the options give; None where there is none."""
    if not any(getattr(arguments, name) for name in _CONSTRAINTS):
        return None
    target = arguments.target
    return Constraints(
        exact=arguments.exact or (),
        antiexact=arguments.antiexact or (),
        caliper=dict(_numbers("--caliper", arguments.caliper, attributes)),
        std_caliper=dict(_numbers("--std-caliper", arguments.std_caliper, attributes)),
        permitted={
            name: _permitted(name, text, attributes)
            for name, text in _named("--permitted", arguments.permitted, attributes)
        },
        target=None if target is None else [class_number(classes, "--target", text) for text in target],
        max_changed=arguments.max_changed,
        min_hops=arguments.min_hops,
        common_neighbors=not arguments.no_common_neighbours,
        ratio=arguments.ratio,
    )


def _named(option: str, texts: list[str] | None, attributes: Attributes) -> Iterable[tuple[str, str]]:
    """Yield the name and the rest of each "NAME=..."; a name may hold a "=", so the longest known one is taken."""
    for text in texts or ():
        known = [name for name in attributes if text.startswith(f"{name}=")]
        if not known:
            some = ", ".join(list(attributes)[:20])
            raise ValueError(f"{option} must be like NAME=VALUE, with a name of {some}; got {text!r}")
        name = max(known, key=len)
        yield name, text[len(name) + 1 :]


def _numbers(option: str, texts: list[str] | None, attributes: Attributes) -> Iterable[tuple[str, float]]:
    for name, text in _named(option, texts, attributes):
        yield name, _number(option, name, text)


def _number(option: str, name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{option} must be a number for {name}, got {text!r}") from None


def _permitted(name: str, text: str, attributes: Attributes) -> Any:
    """Return the range that "LOW:HIGH" means, either of which may be left out, or the values of "A,B,C"."""
    numeric = attributes[name].numbers is not None
    if numeric and ":" in text:
        low, _, high = text.partition(":")
        return (
            _number("--permitted", name, low or str(-math.inf)),
            _number("--permitted", name, high or str(math.inf)),
        )
    values = [value.strip() for value in text.split(",")]
    return [_number("--permitted", name, value) for value in values] if numeric else values
