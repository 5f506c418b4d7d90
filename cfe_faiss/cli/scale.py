"""Jobs on disk: start, resume, status."""

import argparse
from typing import Any

import numpy as np

from cfe_faiss.cli.output import Columns, note, write
from cfe_faiss.cli.parser import call


def run_new(arguments: argparse.Namespace) -> None:
    """Make a job, and run it."""
    from cfe_faiss.scale import Job

    edges = tuple(arguments.csr) if arguments.csr else arguments.edges
    _run(call(Job, arguments, edges=edges, num_layers=arguments.layers), arguments)


def run_on(arguments: argparse.Namespace) -> None:
    """Continue a job."""
    from cfe_faiss.scale import Job

    _run(Job(arguments.directory), arguments)


def _run(job: Any, arguments: argparse.Namespace) -> None:
    try:
        call(job.run, arguments, progress=True)
    except RuntimeError as error:  # a task failed, or another process runs the job
        raise ValueError(str(error)) from error
    note(f"{job!r} is finished: evidence in {job.directory / 'evidence'}, index in {job.directory / 'index'}")


def show_status(arguments: argparse.Namespace) -> None:
    """Show the progress of each stage of a job."""
    from cfe_faiss.scale import Job

    stages = Job(arguments.directory).status()
    columns: Columns = {"stage": np.array([stage.name for stage in stages], object)}
    columns["finished"] = np.array([stage.finished for stage in stages])
    columns["of"] = np.array([stage.blocks for stage in stages])
    titles = {"bytes": "written", "peak_bytes": "peak memory", "seconds": "time", "cpu_seconds": "processors"}
    for field, title in {**titles, "seconds_left": "left"}.items():
        values: list[Any] = [getattr(stage, field) for stage in stages]
        values = [np.nan if value is None else value for value in values]
        if arguments.format is None:
            columns[title] = np.array([_size(value) if "bytes" in field else _time(value) for value in values], object)
        else:
            columns[field] = np.array(values)
    write(columns, arguments.format)


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
