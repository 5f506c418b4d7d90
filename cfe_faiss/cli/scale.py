"""Jobs on disk: start, resume, status."""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from cfe_faiss.cli.output import note, write
from cfe_faiss.cli.parser import (
    FORMAT,
    Either,
    Group,
    argument,
    command,
    commands_of,
    given,
    value,
    with_default,
)

_COMMANDS = commands_of(
    "scale",
    "evidence of graphs that are larger than memory",
    "From features, edges and predicted classes on disk to the evidence of all nodes, in a folder, "
    "stage by stage.",
)
_FOLDER = value("directory", "DIRECTORY", Path, "folder of the job")
_WORKERS = Group(
    "workers",
    (
        argument(
            "--executor",
            choices=("local", "ray"),
            default="local",
            help="where tasks run; default: %(default)s",
        ),
        value("--workers", "N", int, "tasks at once; default: one for each core"),
        argument(
            "--memory",
            metavar="SIZE",
            default="8GB",
            help="memory of all tasks on a machine; default: %(default)s",
        ),
        argument(
            "--address",
            metavar="URL",
            help="address of a Ray cluster; default: a new one on this machine",
        ),
    ),
)


@command(
    "run",
    "make a job, and run it",
    "Make a job in a folder, and run it.",
    argument(
        "directory", metavar="DIRECTORY", type=Path, output="folder", help="folder of the job"
    ),
    Group(
        "inputs, .npy or .parquet",
        (
            value("--features", "FILE", Path, "features of the nodes, (n, d)", required=True),
            value("--edge-weight", "FILE", Path, "weights of the edges, (E,); default: none"),
            Either(
                (
                    value("--edges", "FILE", Path, "an edge_index, (2, E)"),
                    argument(
                        "--csr",
                        metavar=("INDPTR", "INDICES"),
                        type=Path,
                        nargs=2,
                        help="a graph in sparse rows",
                    ),
                ),
                required=True,
            ),
            argument(
                "--directed", action="store_true", help="edges count in the given direction only"
            ),
            value("--labels", "FILE", Path, "predicted classes, (n,)", required=True),
        ),
    ),
    Group(
        "settings",
        (
            with_default("-k", "K", 10, "evidence for each node"),
            Either(
                (
                    value("--recall", "R", float, "recall@k; default: 0.95"),
                    argument("--exact", action="store_true", help="exact results"),
                )
            ),
            with_default("--layers", "L", 3, "steps of the KS vectors"),
            with_default("--alpha", "A", 0.5, "weight of a node's own vector in each step"),
            value("--nlist", "N", int, "lists of the index; default: 4 * sqrt(n)"),
            with_default("--pairs", "N", 1000, "number of most similar pairs"),
            value("--threshold", "R", float, "write all pairs of at least this similarity"),
            value("--block-rows", "N", int, "nodes in a block; default: by vectors and edges"),
            value(
                "--shards",
                "N",
                int,
                "shards of the index; default: one for 131,072 nodes, at most 256",
            ),
        ),
    ),
    _WORKERS,
    commands=_COMMANDS,
)
def run_new(arguments: argparse.Namespace) -> None:
    """Make a job, and run it."""
    from cfe_faiss.scale import Job

    job = Job(
        arguments.directory,
        arguments.features,
        tuple(arguments.csr) if arguments.csr else arguments.edges,
        arguments.labels,
        num_layers=arguments.layers,
        alpha=arguments.alpha,
        **given(arguments, "k", "recall", "exact", "directed", "edge_weight", "nlist", "pairs"),
        **given(arguments, "threshold", "block_rows", "shards", "overwrite"),
    )
    _run(job, arguments)


@command(
    "resume",
    "continue a job",
    "Do the remaining tasks of a job.",
    _FOLDER,
    _WORKERS,
    commands=_COMMANDS,
)
def run_on(arguments: argparse.Namespace) -> None:
    """Continue a job."""
    from cfe_faiss.scale import Job

    _run(Job(arguments.directory), arguments)


def _run(job: Any, arguments: argparse.Namespace) -> None:
    try:
        job.run(
            arguments.executor,
            workers=arguments.workers,
            memory=arguments.memory,
            address=arguments.address,
            progress=True,
        )
    except RuntimeError as error:  # a task failed, or another process runs the job
        raise ValueError(str(error)) from error
    note(
        f"{job!r} is finished: evidence in {job.directory / 'evidence'}, index in "
        f"{job.directory / 'index'}"
    )


@command(
    "status",
    "progress of a job",
    "Show the progress of each stage of a job.",
    _FOLDER,
    FORMAT,
    commands=_COMMANDS,
)
def show_status(arguments: argparse.Namespace) -> None:
    """Show the progress of each stage of a job."""
    from cfe_faiss.scale import Job

    stages = Job(arguments.directory).status()
    columns: dict[str, Any] = {
        "stage": [stage.name for stage in stages],
        "finished": [stage.finished for stage in stages],
        "of": [stage.blocks for stage in stages],
    }
    titles = {
        "bytes": "written",
        "peak_bytes": "peak memory",
        "seconds": "time",
        "cpu_seconds": "processors",
        "seconds_left": "left",
    }
    for field, title in titles.items():
        values = [getattr(stage, field) for stage in stages]
        values = [np.nan if value is None else value for value in values]
        if arguments.format is None:
            columns[title] = [
                tqdm.format_sizeof(value, "B", 1024) if "bytes" in field else _time(value)
                for value in values
            ]
        else:
            columns[field] = values
    write(columns, arguments.format)


def _time(seconds: float) -> str:
    if np.isnan(seconds):
        return "unknown"
    if seconds < 60:
        return f"{seconds:.1f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min"
