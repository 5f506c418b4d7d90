"""Gates on data: labels that are probably wrong, and rows that leak from one group into another."""

import argparse
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cfe_faiss import mining
from cfe_faiss.base.checks import Array, LeakWarning, UnknownClassWarning, as_count, as_number
from cfe_faiss.base.extras import pd
from cfe_faiss.cli.inputs import Inputs, make_finder, read_inputs
from cfe_faiss.cli.output import note, write
from cfe_faiss.cli.parser import (
    FEATURES,
    FORMAT,
    OWN_FILES,
    TEXT_FORMAT,
    Either,
    Member,
    argument,
    command,
    source,
    with_default,
)
from cfe_faiss.datasets.own import read_classes
from cfe_faiss.files.outputs import write_picture
from cfe_faiss.finder import EvidenceFinder
from cfe_faiss.mining.labels import SUSPICIOUS
from cfe_faiss.plot import histogram_figure
from cfe_faiss.rows.metric import measure_of, measured, threshold_of

_WITHOUT_ROLE = ("--truth", "--split")
_OWN_FILES = [each for each in OWN_FILES.members if getattr(each, "name", "") not in _WITHOUT_ROLE]
_COMMON: list[Member] = [
    Either([FEATURES], required=True),
    *TEXT_FORMAT,
    FORMAT,
    argument("--picture", type=Path, metavar="FILE", output="picture", help="a histogram"),
    with_default("--allow", "N", 0, "number of rows of the result that pass"),
    replace(OWN_FILES, members=_OWN_FILES),
]


@command(
    "labels",
    "labels that are probably wrong",
    "Judge the label of each row by the labels of the rows that are most like it, and show the "
    "rows with a score below --below, the most suspicious ones first. Exit status 0: at most "
    "--allow rows; 1: more; 2: an error.",
    source("--labels", dest="predictions", required=True, help="label of every row"),
    source(
        "--groups",
        dest="compare",
        default=[],
        help="person, document or patient of every row: rows of one do not judge each other",
    ),
    with_default("--below", "SCORE", SUSPICIOUS, "score, in [0, 1], below which a label is wrong"),
    *_COMMON,
)
def run_labels(arguments: argparse.Namespace) -> int:
    """Write the rows with low scores; return 1 if they are more than allowed, else 0."""
    below = as_number("--below", arguments.below, 0.0, 1.0)
    inputs, finder, names = _read(arguments)
    groups = None
    if len(arguments.compare) > 1:
        raise ValueError("--groups must be given once, got it again")
    for each in arguments.compare:
        groups = read_classes(each, inputs.ids, complete=True).to_numpy()
        lacking = inputs.ids.names[pd.isna(groups)]
        if len(lacking):
            raise ValueError(f"--groups must hold a group for each row, got none for {lacking[0]}")
    metric: Any = finder.metric
    judged_labels = mining.label_errors(
        finder.vectors, names[finder.labels], groups=groups, metric=metric
    )
    scores = judged_labels.score[~np.isnan(judged_labels.score)]
    if not len(scores):
        raise ValueError(
            "--labels must be known in two groups at least (in two rows without --groups), "
            "got one: no row can be judged"
        )
    frame = judged_labels.to_frame(below)
    ids = np.array([*finder.names(np.arange(len(judged_labels.score))).tolist(), None], object)
    for column in ("row", "evidence", "support"):
        frame[column] = ids[frame[column]]
    text = f"labels with a score below {below:g}: {len(frame):,} of {len(scores):,}"
    return _write(arguments, frame, scores, "score", text)


@command(
    "leaks",
    "rows that are alike in different groups",
    "Find rows of different splits, patients or documents that are equal or nearly so, and show "
    "the pairs, nearest first. Exit status 0: at most --allow pairs; 1: more; 2: an error.",
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
    *_COMMON,
)
def run_leaks(arguments: argparse.Namespace) -> int:
    """Write the pairs of rows of different groups; return 1 if there are more than allowed."""
    _, finder, names = _read(arguments)
    metric: Any = finder.metric
    equal = 0.0 if metric == "l2" else 1.0
    least = equal if arguments.least is None else arguments.least
    threshold_of("--threshold", least, metric)
    labelled = np.flatnonzero(finder.labels >= 0)
    pairs = mining.near_duplicates(
        finder.vectors[labelled], finder.labels[labelled], least, metric=metric
    )
    frame = pd.DataFrame()
    for side, rows in (("source", labelled[pairs.source]), ("target", labelled[pairs.target])):
        frame[side] = finder.names(rows)
        frame[f"{side}_group"] = names[finder.labels[rows]]
    measure = measure_of(metric)
    frame[measure] = measured(pairs.similarity, metric)
    text = f"pairs at {measure} {least:g} or nearer: {len(pairs):,}, of {len(labelled):,} rows"
    return _write(arguments, frame, frame[measure], measure, text)


def _read(arguments: argparse.Namespace) -> tuple[Inputs, EvidenceFinder, Array]:
    """Return inputs, a finder over all rows, and the names of its classes, the last one None."""
    as_count("--allow", arguments.allow, 0)
    option = arguments.predictions.option
    with warnings.catch_warnings(record=True) as messages:
        inputs = read_inputs(arguments)
        if inputs.predicted is not None and np.all(pd.isna(inputs.predicted)):
            raise ValueError(f"{option} must hold a known value, got none")
        finder = make_finder(arguments, inputs, np.arange(len(inputs.ids)))
    values = np.unique(finder.labels[finder.labels >= 0]).tolist()
    if len(values) < 2:
        raise ValueError(
            f"{option} must hold two values at least, got {finder.class_name(values[0])!r} only"
        )
    lacking = int((finder.labels < 0).sum())
    if lacking:
        note(f"{lacking:,} of {len(inputs.ids):,} rows are left out, without a value of {option}")
    for message in (each.message for each in messages):
        if isinstance(message, LeakWarning):
            name = message.column
            note(f"column {name!r} determines {option}: if it is made from it, add --ignore {name}")
        elif not isinstance(message, UnknownClassWarning):
            warnings.warn(message, stacklevel=1)
    return inputs, finder, np.array([*map(finder.class_name, range(finder.class_count)), None])


def _write(arguments: argparse.Namespace, frame: Any, values: Any, measure: str, text: str) -> int:
    """Write the picture and the findings; return 1 if they are more than allowed, else 0."""
    if arguments.picture is not None:
        figure = histogram_figure(values, measure, text)
        write_picture(figure, arguments.picture, overwrite=arguments.overwrite)
    write(frame, arguments.format)
    fails = len(frame) > arguments.allow
    note(f"{'failed' if fails else 'passed'}: {text}; {arguments.allow:,} allowed")
    return int(fails)
