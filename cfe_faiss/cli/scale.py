"""Commands to start, resume and show jobs over a folder."""

import argparse
import inspect
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.cli import options as shared
from cfe_faiss.cli.output import note, write


def add(commands: Any) -> None:
    """Add the command ``scale``, with its own commands."""
    text = (
        "From features, edges and predicted classes on disk to the evidence of all nodes, in a folder, stage by stage."
    )
    scale = commands.add_parser("scale", help="evidence of graphs that are larger than memory", description=text)
    steps = scale.add_subparsers(dest="step", metavar="COMMAND", required=True)
    run = steps.add_parser("run", help="make a job, and run it", description="Make a job in a folder, and run it.")
    run.add_argument("directory", type=Path, metavar="DIR", help="folder of the job")
    shared.add_overwrite(run, "directory")
    _add_inputs(run)
    _add_settings(run)
    _add_workers(run)
    run.set_defaults(run=run_new)
    resume = steps.add_parser("resume", help="go on with a job", description="Do what is left to do of a job.")
    resume.add_argument("directory", type=Path, metavar="DIR", help="folder of the job")
    _add_workers(resume)
    resume.set_defaults(run=run_on)
    status = steps.add_parser("status", help="how far a job is", description="Show how far each stage of a job is.")
    status.add_argument("directory", type=Path, metavar="DIR", help="folder of the job")
    shared.add_format(status, csv=True)
    status.set_defaults(run=show_status)


def _add_inputs(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("inputs, .npy or .parquet")
    group.add_argument("--features", required=True, type=Path, metavar="FILE", help="of the nodes, (n, d)")
    edges = group.add_mutually_exclusive_group(required=True)
    edges.add_argument("--edges", type=Path, metavar="FILE", help="an edge_index, (2, E)")
    edges.add_argument("--csr", nargs=2, type=Path, metavar=("INDPTR", "INDICES"), help="a graph in sparse rows")
    group.add_argument("--edge-weight", type=Path, metavar="FILE", help="weights of the edges, (E,); default: none")
    group.add_argument("--labels", required=True, type=Path, metavar="FILE", help="predicted classes, (n,)")
    group.add_argument("--directed", action="store_true", help="an edge counts in its own direction only")


def _add_settings(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what is computed")
    group.add_argument("-k", type=int, default=10, help="evidence for each node; default: 10")
    wanted = group.add_mutually_exclusive_group()
    wanted.add_argument("--recall", type=float, help="recall@k wanted; default: 0.95")
    wanted.add_argument("--exact", action="store_true", help="exact results")
    group.add_argument("--layers", type=int, default=3, metavar="L", help="steps of the KS vectors; default: 3")
    group.add_argument("--alpha", type=float, default=0.5, help="share of a node's own vector; default: 0.5")
    group.add_argument("--nlist", type=int, help="lists of the index; default: 4 * sqrt(n)")
    group.add_argument("--pairs", type=int, default=1000, metavar="N", help="most similar pairs; default: 1000")
    group.add_argument("--threshold", type=float, help="similarity from which on all pairs are written")
    group.add_argument("--block-rows", type=int, metavar="N", help="nodes in a block; default: by vectors and edges")
    group.add_argument(
        "--shards", type=int, metavar="N", help="of the index; default: one for 131,072 nodes, at most 256"
    )


def _add_workers(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("workers")
    group.add_argument("--executor", choices=("local", "ray"), default="local", help="default: local")
    group.add_argument("--workers", type=int, metavar="N", help="tasks at once; default: one for each core")
    group.add_argument("--memory", default="8GB", help="what tasks of a machine may take together; default: 8GB")
    group.add_argument("--address", help="of a Ray cluster; default: a new one on this machine")


def run_new(arguments: argparse.Namespace) -> None:
    """Create a job, and run it."""
    from cfe_faiss.scale import Job

    names = set(inspect.signature(Job).parameters) - {"edges", "num_layers"}
    options = {name: value for name, value in vars(arguments).items() if name in names}
    edges = tuple(arguments.csr) if arguments.csr else arguments.edges
    _run(Job(edges=edges, num_layers=arguments.layers, **options), arguments)


def run_on(arguments: argparse.Namespace) -> None:
    """Resume a job."""
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
    except RuntimeError as error:  # of a task, or since another process runs the job
        raise ValueError(str(error)) from error
    note(f"{job!r} is finished: evidence in {job.directory / 'evidence'}, index in {job.directory / 'index'}")


def show_status(arguments: argparse.Namespace) -> None:
    """Show the progress of each stage of a job."""
    from cfe_faiss.scale import Job

    stages = Job(arguments.directory).status()
    left = [np.nan if stage.seconds_left is None else stage.seconds_left for stage in stages]
    columns = {
        "stage": np.array([stage.name for stage in stages], object),
        "finished": np.array([stage.finished for stage in stages]),
        "of": np.array([stage.blocks for stage in stages]),
        "bytes": np.array([stage.bytes for stage in stages]),
        "peak_bytes": np.array([stage.peak_bytes for stage in stages]),
        "seconds": np.array([stage.seconds for stage in stages]),
        "cpu_seconds": np.array([stage.cpu_seconds for stage in stages]),
        "seconds_left": np.array(left),
    }
    if arguments.format is None:
        columns = _readable(columns)
    write(columns, arguments.format)


def _readable(columns: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the columns as texts with units. Times are sums over the tasks of a stage."""
    sizes = {name: [_size(value) for value in columns[name].tolist()] for name in ("bytes", "peak_bytes")}
    times = {
        name: [_time(value) for value in columns[name].tolist()] for name in ("seconds", "cpu_seconds", "seconds_left")
    }
    shown: dict[str, list[str]] = {
        "written": sizes["bytes"],
        "peak memory": sizes["peak_bytes"],
        "time": times["seconds"],
        "processors": times["cpu_seconds"],
        "left": times["seconds_left"],
    }
    texts = {name: np.array(values, object) for name, values in shown.items()}
    return {name: columns[name] for name in ("stage", "finished", "of")} | texts


def _size(value: int) -> str:
    units = ("bytes", "KB", "MB", "GB", "TB")
    power = min(max(0, int(value).bit_length() - 1) // 10, len(units) - 1)
    return f"{value} bytes" if power == 0 else f"{value / 1024**power:.1f} {units[power]}"


def _time(seconds: float) -> str:
    if np.isnan(seconds):
        return "not known"
    if seconds < 60:
        return f"{seconds:.1f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min"
