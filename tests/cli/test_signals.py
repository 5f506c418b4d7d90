"""The command line in real processes: Ctrl-C at random moments, and streams that are closed."""

import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import cfe_faiss as cfe

RANDOM = random.Random(0)


def start(*arguments, **options):
    # A parent that ignores interrupts would pass that on.
    restore = lambda: signal.signal(signal.SIGINT, signal.default_int_handler)  # noqa: E731
    command = [sys.executable, "-m", "cfe_faiss", *map(str, arguments)]
    options |= {"stdout": -1, "stderr": -1, "text": True, "start_new_session": True}
    return subprocess.Popen(command, preexec_fn=restore, **options)


def assert_interrupted(process, wait):
    """Interrupt the group of a process, as a terminal does; return whether it was over before."""
    time.sleep(wait)
    os.killpg(process.pid, signal.SIGINT)
    _, shown = process.communicate(timeout=120)
    if process.returncode == 0:
        return True
    if "interrupted; complete: " in shown:  # a report prints what it has
        assert shown.startswith("interrupted; complete: ")
        shown = shown.splitlines(keepends=True)[-1]
    assert (process.returncode, shown) == (130, "cfe-faiss: interrupted\n")
    return False


@pytest.mark.parametrize("count", [4, pytest.param(100, marks=pytest.mark.slow)])
def test_an_interrupt_during_imports_is_one_line(count, folder):
    for _ in range(count):
        with start("info", folder / "flat.cfe") as process:
            assert_interrupted(process, RANDOM.uniform(0.1, 1))


@pytest.mark.parametrize("count", [1, pytest.param(60, marks=pytest.mark.slow)])
def test_an_interrupt_of_a_report_leaves_all_files_or_none(count, folder, tmp_path):
    graph = ("--features", folder / "x.csv", "--edges", folder / "e.npy")
    graph += ("--predictions", folder / "y.npy", "--pairs", 20, "--cases", 1)
    for number in range(count):
        place = tmp_path / str(number)
        place.mkdir()
        with start("audit", *graph, "--out", place / "r.html") as process:
            is_over = assert_interrupted(process, RANDOM.uniform(0.5, 6))
        assert len([*place.iterdir()]) in ((4,) if is_over else (0, 4))


@pytest.mark.parametrize("count", [1, pytest.param(30, marks=pytest.mark.slow)])
def test_an_interrupt_of_a_job_is_one_line_and_the_job_goes_on(count, tmp_path):
    rng = np.random.default_rng(0)
    arrays = {
        "features": rng.normal(size=(500, 4)),
        "edges": rng.integers(500, size=(2, 900)),
        "labels": LABELS,
    }
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    given = [part for name in arrays for part in (f"--{name}", tmp_path / f"{name}.npy")]
    for _ in range(count):
        with start("scale", "run", tmp_path / "job", *given, "-k", 3, "--workers", 2) as process:
            if assert_interrupted(process, RANDOM.uniform(1, 5)):
                break


def test_an_interrupt_of_an_evaluated_text_has_the_same_status(folder, tmp_path):
    """Python ends by the signal after such an interrupt, whoever catches it."""
    text = "import argparse\nargparse.ArgumentParser.parse_args = lambda *_: exec('raise KeyboardInterrupt')\n"
    (tmp_path / "sitecustomize.py").write_text(text)
    with start(
        "info", folder / "flat.cfe", env=os.environ | {"PYTHONPATH": str(tmp_path)}
    ) as process:
        assert process.communicate() == ("", "cfe-faiss: interrupted\n")
    assert process.returncode == 130


LABELS = np.random.default_rng(0).integers(2, size=500)
CLOSED = [">&-", "2>&-", ">&- 2>&-", "<&-", "<&- >&- 2>&-"]
COMMANDS = ["--help", "info {flat}", "global {flat} -k 3", "info nowhere", "build {out} {build}"]
SLOW = [
    pytest.param(command, closed, marks=pytest.mark.slow)
    for i, command in enumerate(COMMANDS)
    for j, closed in enumerate(CLOSED)
    if i != j
]


@pytest.mark.parametrize(("command", "closed"), [*zip(COMMANDS, CLOSED, strict=True), *SLOW])
def test_a_closed_stream_is_no_traceback(command, closed, folder, tmp_path):
    out = tmp_path / "out.cfe"
    build = f"--vectors {folder / 'x.npy'} --predictions {folder / 'y.npy'}"
    line = command.format(flat=folder / "flat.cfe", out=out, build=build)
    shell = f"{sys.executable} -m cfe_faiss {line} {closed}"
    done = subprocess.run(shell, shell=True, capture_output=True, text=True)
    expected = 2 if "nowhere" in command else 0
    assert done.returncode == expected
    assert len(done.stderr.splitlines()) == (expected > 0 and "2>" not in closed)
    if "build" in command:
        assert cfe.read_index(out).ntotal == len(np.load(folder / "x.npy"))


@pytest.mark.parametrize("command", ["--help", "local {flat} -k 50", "global {flat} -k 9 2>&1"])
def test_a_reader_that_leaves_early_is_no_traceback(command, folder):
    line = f"{sys.executable} -m cfe_faiss {command.format(flat=folder / 'flat.cfe')} | true"
    shell = f"{line}; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout in ("141\n", "0\n")
