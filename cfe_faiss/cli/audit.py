"""A report on a model, and the page about one node, from a data set or from own files."""

import argparse
import dataclasses
import hashlib
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np

from cfe_faiss.attributes.constraints import Constraints
from cfe_faiss.attributes.table import Attributes
from cfe_faiss.cli.inputs import (
    Inputs,
    by_name,
    class_names,
    constraints,
    inputs_of,
    make_finder,
    number,
    read_inputs,
)
from cfe_faiss.cli.output import note
from cfe_faiss.cli.parser import (
    CONSTRAINTS,
    DATA,
    OWN_FILES,
    WITHOUT,
    Either,
    Group,
    argument,
    command,
    given,
    output,
    several,
    source,
    value,
    with_default,
)
from cfe_faiss.data.classes import as_predictions
from cfe_faiss.datasets.own import read_classes
from cfe_faiss.explorer import TITLE
from cfe_faiss.files.outputs import check_outputs, new_file
from cfe_faiss.finder import EvidenceFinder

_SEED = with_default("--seed", "N", 0, "seed of the split, the model and its training")
_BETTER = several(
    "--better",
    "NAME=END",
    "better end of a column: high, low, or its values from worst to best, A,B,C",
)
_MASK_IDS = argument(
    "--mask-ids", action="store_true", needs=("--id",), help="row numbers in place of --id"
)
_MASK_PEOPLE = dataclasses.replace(
    _MASK_IDS,
    needs=("--id", "--person"),
    settings=_MASK_IDS.settings | {"help": "numbers in place of --id and --person"},
)


@command(
    "audit",
    "a report on a model",
    "Audit a model, and write the findings as one HTML page, with the numbers beside it as .json, "
    ".csv and .xml (JUnit). Exit status 0: written, and no --require fails; 1: written, and one "
    "fails (with --strict: or the data cannot tell); 2: an error.",
    *DATA,
    with_default("--confidence", "C", 0.95, "confidence of the intervals, in (0, 1)"),
    with_default("--seed", "N", 0, "seed of the split, the model, its training and the intervals"),
    OWN_FILES,
    Group(
        "analysis",
        (
            several("--sensitive", "NAME", "attributes that define groups"),
            several(
                "--favourable",
                "CLASS",
                "the class that counts as selected, or several together; default: each in turn",
                default=[],
            ),
            several(
                "--truth-favourable",
                "CLASS",
                "the true classes that agree with --favourable, if the truth has words of its "
                "own, such as repaid",
                default=[],
                needs=("--truth",),
            ),
            WITHOUT,
            several(
                "--reference",
                "NAME=VALUE",
                "group that the others are compared with; default: the largest",
            ),
            _BETTER,
            argument(
                "--person",
                metavar="NAME",
                help="attribute that says whose each row is; tests and intervals count people",
            ),
            several(
                "--skip",
                "SECTION",
                "sections to leave out, such as sensitivity, which takes the most time",
            ),
            with_default("-k", "K", 10, "evidence for each node"),
            with_default("--pairs", "N", 1000, "number of most similar pairs"),
            with_default("--cases", "N", 10, "number of pairs shown as case files"),
            Either(
                (
                    value("--bins", "N", int, "quantile bins of numbers; default: 4"),
                    several("--cut", "NAME=AT,AT", "cut points of a number, such as age=25,65"),
                )
            ),
            source(
                "--compare",
                "[NAME=]FILE[:COLUMN]",
                default=[],
                help="predictions of another model, as in --predictions, to compare with v1, the "
                "audited one; may be "
                "repeated; default names: v2, v3, ...",
            ),
            argument(
                "--require",
                metavar="CONDITION",
                action="append",
                default=[],
                help='such as "impact_ratio>=0.8", "impact_ratio[sex]>=0.8" or '
                '"evidence_pairs<=v1"; may be repeated',
            ),
            value(
                "--min-cases",
                "N",
                int,
                "--require judges no group of fewer cases; default: 30",
                needs=("--require",),
            ),
            argument(
                "--strict",
                action="store_true",
                needs=("--require",),
                help="--require also fails if the data cannot tell",
            ),
        ),
    ),
    Group("conditions on pairs", CONSTRAINTS),
    Group(
        "output files",
        (
            output("--out", "page", "the page", default="report.html"),
            output("--figures", "folder", "folder for the figures as files", metavar="DIR"),
            output(
                "--explorer",
                "page",
                "a page to sort, filter and mark the most similar pairs, which the report links to",
            ),
            argument("--title", metavar="TEXT", help="title of the page"),
            _MASK_PEOPLE,
            argument(
                "--people",
                metavar="NOUN",
                help='plural noun for the rows on the page, such as "applicants"',
            ),
        ),
    ),
)
def run_audit(arguments: argparse.Namespace) -> int:
    """Write a report; return 1 if a condition fails or, with --strict, cannot be judged; else 0."""
    from cfe_faiss import audit  # takes seconds to import
    from cfe_faiss.audit.reporting.files import report_files

    fewest = {} if arguments.min_cases is None else {"min_cases": arguments.min_cases}
    conditions = [audit.Condition.parse(text, **fewest) for text in arguments.require]
    # Before the work, not after it
    check_outputs(report_files(arguments.out), inputs_of(arguments), overwrite=arguments.overwrite)
    inputs = read_inputs(arguments)
    finder, attributes, where = _finder(arguments, inputs)
    names = finder.class_names or ()
    favourable = class_names(names, "--favourable", arguments.favourable)
    if favourable is None and arguments.threshold is not None:
        favourable = [names[1]]
    bins = given(arguments, "bins")
    cuts = by_name("--cut", arguments.cut, attributes)
    if cuts:
        bins["bins"] = {
            name: [number("--cut", name, part) for part in text.split(",")]
            for name, text in cuts.items()
        }
    report = audit.report(
        _masked(finder, arguments.person) if arguments.mask_ids else finder,
        arguments.out,
        **given(arguments, "sensitive", "k", "pairs", "cases", "confidence", "person", "skip"),
        **given(arguments, "figures", "explorer", "overwrite"),
        reference=by_name("--reference", arguments.reference, attributes) or None,
        better=_better(arguments, attributes),
        favourable=favourable,
        truth_favourable=class_names(names, "--truth-favourable", arguments.truth_favourable),
        compare=_other_models(arguments, inputs, finder) or None,
        require=conditions,
        subject=audit.Subject(
            title=arguments.title or "",
            people=arguments.people or "",
            data=str(arguments.dataset or arguments.features),
            model=_model_name(arguments, inputs),
            command=shlex.join(["cfe-faiss", *arguments.argv]),
            seed=arguments.seed,
            files={str(path): _sha256(path) for path in inputs_of(arguments) if path.is_file()},
        ),
        where=where,
        **bins,
    )
    if favourable is None:
        note(
            "the page has no tests, as no favourable class is named: --favourable CLASS names one "
            f"of {', '.join(names)}"
        )
    sys.stdout.writelines(f"{line}\n" for line in (*report.files, *report.checks))
    outcome = {"pass": "passed", "fail": "failed"}.get(report.outcome, report.outcome)
    deciding = next((str(check) for check in report.checks if check.outcome == report.outcome), "")
    sys.stdout.write(f"{outcome}{deciding.removeprefix(report.outcome)}\n")
    return 1 if report.outcome == "fail" or (arguments.strict and not report.passed) else 0


@command(
    "case",
    "one page about one node",
    "Show a node and the most similar nodes that the model puts in other classes: what differs, "
    "and what is the same.",
    argument("node", metavar="NODE", help="its id or number"),
    *DATA,
    with_default("-k", "K", 5, "nodes to compare with"),
    _SEED,
    output("--out", "page", "an HTML page to print, in place of text"),
    OWN_FILES,
    WITHOUT,
    Group("conditions on pairs", CONSTRAINTS),
)
def run_case(arguments: argparse.Namespace) -> None:
    """Write the page about one node."""
    inputs = read_inputs(arguments)
    rows = inputs.ids.known("NODE", [arguments.node])
    finder, _, where = _finder(arguments, inputs)
    page = finder.case(finder.names(rows)[0], arguments.k, where=where)
    if arguments.out is None:
        sys.stdout.write(str(page))
        return
    with new_file(arguments.out, overwrite=arguments.overwrite) as file:
        file.write(page.to_html().encode("utf-8", "replace"))
    sys.stdout.write(f"{arguments.out}\n")


@command(
    "explore",
    "a page to sort, filter and mark pairs",
    "Write the most similar pairs that the model puts in different classes as one HTML page, to "
    "sort, filter, compare side by side and mark. It loads nothing, and holds personal data.",
    *DATA,
    with_default("-k", "K", 1000, "number of pairs"),
    _SEED,
    output("--out", "page", "the page", default="pairs.html"),
    argument("--title", metavar="TEXT", default=TITLE, help="title of the page"),
    _MASK_IDS,
    several("--sensitive", "NAME", "left out of the comparison, and first among the filters"),
    several(
        "--unfavourable",
        "CLASS",
        "the class that counts as refused, or several together",
        needs=("--better",),
    ),
    dataclasses.replace(_BETTER, needs=("--unfavourable",)),
    OWN_FILES,
    WITHOUT,
    Group("conditions on pairs", CONSTRAINTS),
)
def run_explore(arguments: argparse.Namespace) -> None:
    """Write the explorer of pairs."""
    finder, attributes, where = _finder(arguments, read_inputs(arguments))
    page = finder.explore(
        arguments.out,
        arguments.k,
        where=where,
        better=_better(arguments, attributes),
        unfavourable=class_names(
            finder.class_names or (), "--unfavourable", arguments.unfavourable
        ),
        mask_ids=arguments.mask_ids,
        title=arguments.title,
        overwrite=arguments.overwrite,
    )
    sys.stdout.write(f"{page}\n")


def _masked(finder: EvidenceFinder, person: str | None) -> EvidenceFinder:
    """Return the finder with numbers in place of ids of rows and of people."""
    attributes = finder.attributes
    if person is not None and attributes is not None and person in attributes:
        count = len(attributes[person].values)
        numbers = [f"{number:0{len(str(count))}}" for number in range(count)]
        columns = {**attributes, person: (attributes[person].codes, numbers)}
        attributes = Attributes(columns, attributes.ids)
    return dataclasses.replace(finder, ids=None, attributes=attributes)


def _better(arguments: argparse.Namespace, attributes: Attributes) -> dict[str, Any] | None:
    """Return the better ends of --better by column; None without any."""
    ends = by_name("--better", arguments.better, attributes)
    return {
        name: text if text in ("high", "low") else text.split(",") for name, text in ends.items()
    } or None


def _finder(
    arguments: argparse.Namespace, inputs: Inputs
) -> tuple[EvidenceFinder, Attributes, Constraints | None]:
    """Return the finder over the searched nodes, its attributes, and constraints."""
    options = {} if inputs.attributes is None else {"progress": True}
    nodes = inputs.nodes(arguments.nodes, arguments.reading)
    finder = make_finder(arguments, inputs, nodes, **options)
    attributes = finder.attributes or Attributes({}, np.arange(0))
    return finder, attributes, constraints(arguments, attributes, finder.class_names or ())


def _other_models(
    arguments: argparse.Namespace, inputs: Inputs, finder: EvidenceFinder
) -> dict[str, Any]:
    """Return the predictions of --compare by the name of the model."""
    from cfe_faiss.audit.model_comparison import BASELINE

    models: dict[str, Any] = {}
    for place, file in enumerate(arguments.compare, 2):
        name = file.name or f"v{place}"
        if name in models or name == BASELINE:
            raise ValueError(f"--compare must name each model once, got {name!r} again")
        models[name] = values = read_classes(file, inputs.ids, complete=True)
        if arguments.dataset is None:  # numbers are names of classes
            names = finder.class_names or ()
            labels = as_predictions(
                values,
                len(values),
                names,
                f"compare[{name!r}]",
                are_names=True,
                unknown=arguments.unknown,
                complete=False,
            ).labels
            models[name] = np.array([*names, None], object)[labels]
    return models


def _model_name(arguments: argparse.Namespace, inputs: Inputs) -> str:
    if inputs.model is not None:
        return arguments.model or "gcn"
    if arguments.threshold is not None:
        return f"threshold {arguments.threshold}"
    return f"predictions of {arguments.predictions.path}"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
