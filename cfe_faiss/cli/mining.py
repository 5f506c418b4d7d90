"""Gates on data: labels that are probably wrong, and rows that leak from one group into another."""

import argparse
import dataclasses
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cfe_faiss import mining
from cfe_faiss.base.checks import Array, InputWarning, as_count, as_number
from cfe_faiss.base.extras import extra, pd
from cfe_faiss.cli.inputs import Inputs, make_finder, read_inputs
from cfe_faiss.cli.output import note, write, write_csv
from cfe_faiss.cli.parser import (
    FEATURES,
    OWN_FILES,
    SPLIT,
    TEXT_FORMAT,
    TRUTH,
    WITHOUT,
    Argument,
    Group,
    Member,
    argument,
    command,
    source,
    with_default,
)
from cfe_faiss.datasets.own import read_classes
from cfe_faiss.files.outputs import LEAK_COLUMNS, draw, new_files
from cfe_faiss.finder import EvidenceFinder
from cfe_faiss.mining.labels import SUSPICIOUS
from cfe_faiss.mining.miners import Metric
from cfe_faiss.rows.metric import measure_of, measured, threshold_of

_SHOWN = 10
_TABLE = dataclasses.replace(FEATURES, settings={**FEATURES.settings, "required": True})
_COMPARED: list[Member] = [
    *TEXT_FORMAT,
    with_default("--allow", "N", 0, "number of findings that pass"),
    Group(
        "own files",
        [member for member in OWN_FILES.members if member not in (TRUTH, SPLIT)],
        "As for audit. With --edges or --neighbours rows are compared with their neighbourhoods, "
        "by similarity; else by distance, in standard deviations.",
    ),
    WITHOUT,
]


def _output(option: str, kind: str, path: str) -> Argument:
    settings: dict[str, Any] = {"metavar": "FILE", "type": Path, "default": Path(path)}
    return argument(option, output=kind, help=f"the {kind}; default: %(default)s", **settings)


@command(
    "labels",
    "labels that are probably wrong",
    "Judge the label of each row by the labels of the rows that are most like it, and write all "
    "rows, the most suspicious ones first. Exit status 0: at most --allow labels have a score below "
    "--below; 1: more; 2: an error.",
    _TABLE,
    source("--labels", dest="predictions", required=True, help="label of every row"),
    source(
        "--groups",
        help="person, document or patient of every row: rows of one do not judge each other",
    ),
    with_default("--below", "SCORE", SUSPICIOUS, "score, in [0, 1], below which a label is wrong"),
    *_COMPARED,
    _output("--out", "table", "labels.csv"),
    _output("--picture", "picture", "labels.png"),
)
def run_labels(arguments: argparse.Namespace) -> int:
    """Write the scores of labels; return 1 if more are low than allowed, else 0."""
    below = as_number("--below", arguments.below, 0.0, 1.0)
    inputs, finder, metric = _read(arguments)
    groups = None
    if arguments.groups is not None:
        groups = read_classes(arguments.groups, inputs.ids, complete=True).to_numpy()
        lacking = inputs.ids.names[pd.isna(groups)]
        if len(lacking):
            raise ValueError(f"--groups must hold a group for each row, got none for {lacking[0]}")
    labels = _class_names(finder)[finder.labels]
    found = mining.label_errors(finder.vectors, labels, groups=groups, metric=metric)
    frame = found.to_frame()
    names = np.array([*finder.names(np.arange(len(labels))).tolist(), None], object)
    for column in ("row", "evidence", "support"):
        frame[column] = names[frame[column]]
    wrong = found.rows(below)
    kinds = [f"{found.given[row]} → {found.suggested[row]}" for row in wrong.tolist()]
    known = found.score[~np.isnan(found.score)]
    if not len(known):
        raise ValueError(
            "--labels must be known in two groups at least (in two rows without --groups), "
            "got one: no row can be judged"
        )
    if len(known) < len(labels):
        count = f"{len(labels) - len(known):,} of {len(labels):,} rows"
        note(f"not judged: {count}, which have no label, or no other group has one")
    text = f"{len(wrong):,} of {len(known):,} labels have a score below {below:g}"
    return _write(arguments, frame, known, kinds, "score", text, below)


@command(
    "leaks",
    "rows that are alike in different groups",
    "Find rows of different splits, patients or documents that are equal or nearly so, and write "
    "the pairs, nearest first. Exit status 0: at most --allow pairs; 1: more; 2: an error.",
    _TABLE,
    source(
        "--groups",
        dest="predictions",
        required=True,
        help="split, patient or document of every row: pairs are of two different ones",
    ),
    argument(
        "--threshold",
        dest="least",
        metavar="T",
        type=float,
        help="largest distance of a pair, in standard deviations, or with --edges and --neighbours "
        "its least similarity; default: equal rows",
    ),
    *_COMPARED,
    _output("--out", "table", "leaks.csv"),
    _output("--picture", "picture", "leaks.png"),
)
def run_leaks(arguments: argparse.Namespace) -> int:
    """Write the pairs of rows of different groups; return 1 if there are more than allowed."""
    inputs, finder, metric = _read(arguments)
    least = arguments.least
    if least is None:
        least = 0.0 if metric == "l2" else 1.0
    threshold_of("--threshold", least, metric)
    known = np.flatnonzero(finder.labels >= 0)
    if len(known) < len(inputs.ids):
        note(f"left out: {len(inputs.ids) - len(known):,} rows without a group")
    if finder.class_count < 2:
        raise ValueError(f"--groups must be at least two, got {finder.class_name(0)!r} only")
    vectors = finder.vectors[known]
    pairs = mining.near_duplicates(vectors, finder.labels[known], least, metric=metric)
    ends = [known[pairs.source], known[pairs.target]]
    groups = [_class_names(finder)[finder.labels[rows]] for rows in ends]
    columns = [*map(finder.names, ends), *groups]
    values = measured(pairs.similarity, metric)
    measure = measure_of(metric)
    frame = pd.DataFrame({**dict(zip(LEAK_COLUMNS, columns, strict=True)), measure: values})
    kinds = [" and ".join(sorted(pair)) for pair in zip(*groups, strict=True)]
    rows = len(np.unique(np.concatenate(ends)))
    noun = "pair" if len(pairs) == 1 else "pairs"
    limit = f"{measure} at {'most' if metric == 'l2' else 'least'} {least:g}"
    text = f"{len(pairs):,} {noun} of {rows:,} rows in different groups, {limit}"
    return _write(arguments, frame, values, kinds, measure, text)


def _read(arguments: argparse.Namespace) -> tuple[Inputs, EvidenceFinder, Metric]:
    """Return inputs, a finder over all rows, and the metric of its vectors."""
    as_count("--allow", arguments.allow, 0)
    inputs = read_inputs(arguments)
    if inputs.predicted is not None and np.all(pd.isna(inputs.predicted)):
        raise ValueError(f"{arguments.predictions.option} must hold a known value, got none")
    with warnings.catch_warnings():
        # Rows without a label or group get a note in these words.
        warnings.filterwarnings("ignore", "no predicted class", InputWarning)
        finder = make_finder(arguments, inputs, np.arange(len(inputs.ids)))
    return inputs, finder, "l2" if finder.metric == "l2" else "cosine"


def _class_names(finder: EvidenceFinder) -> Array:
    """Return the name of each class, and None for the class -1."""
    return np.array([*map(finder.class_name, range(finder.class_count)), None], object)


def _write(
    arguments: argparse.Namespace,
    frame: "pd.DataFrame",
    values: Array,
    kinds: Sequence[str],
    measure: str,
    text: str,
    limit: float | None = None,
) -> int:
    """Write table and picture, show the first rows, and return 1 for more than are allowed."""
    with extra("plot"):
        from cfe_faiss.plot import findings_figure

    picture = draw(findings_figure(values, kinds, measure, text, limit), arguments.picture)
    paths = [arguments.out, arguments.picture]
    with new_files(paths, overwrite=arguments.overwrite) as (table_file, picture_file):
        write_csv(frame, table_file)
        picture_file.write(picture)
    shown = frame.head(min(len(kinds), _SHOWN))
    if len(kinds) > len(shown):
        note(f"the first {len(shown)} of {len(kinds):,}; {arguments.out} has all of them")
    write({str(name): column for name, column in shown.items()}, None)
    fails = len(kinds) > arguments.allow
    outcome = f"{'failed' if fails else 'passed'}: {text}; {arguments.allow:,} allowed"
    sys.stdout.write(f"{arguments.out}\n{arguments.picture}\n{outcome}\n")
    return int(fails)
