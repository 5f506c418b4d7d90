"""Run FAISS's own Python tests with evidence indexes in place of stock ones, and name the cause of each failure.

    python benchmarks/faiss_tests/run.py CHECKOUT [--modules test_index ...] [--seconds 900]

CHECKOUT is a copy of FAISS's repository, preferably of the installed version. A test counts if it creates at least one
index that an evidence index of the same metric replaces (:mod:`stand_ins`), also if it then crashes or stalls. Of
tests that FAISS repeats for each instruction set, one counts.

Tests that fail also run with stock FAISS. Failures with evidence indexes only are classified by their error
(:mod:`reasons`). A failure without a reason is our error, and ends the script with status 1. The script writes
results/faiss_own_tests.md.
"""

import argparse
import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import faiss
import reasons
from child import REACHES

HERE = Path(__file__).parent
PAGE = HERE.parent / "results" / "faiss_own_tests.md"
SECONDS = 900


class Outcome(NamedTuple):
    """Outcome of a test: ok, failure, error, skipped, or not finished; its error, and the replaced classes."""

    state: str
    message: str = ""
    trace: str = ""
    made: tuple[str, ...] = ()


class Row(NamedTuple):
    """Verdict on a test that creates an evidence index, and its reason."""

    test: str
    verdict: str
    reason: str
    made: tuple[str, ...]


def run_module(
    checkout: Path, name: str, kind: str, wanted: list[str], seconds: float
) -> dict[str, Outcome]:
    """Run tests of a module (all for none). A crash or a stall of the process is the outcome of the current test."""
    outcomes: dict[str, Outcome] = {}
    left = list(wanted)
    while True:
        at, made, every = _run_until_it_stops(checkout, [name, kind, *left], outcomes, seconds)
        if at is None:
            return outcomes
        message = f"the process ended or took more than {seconds:g} s"
        outcomes[at] = Outcome("not finished", message, made=tuple(sorted(made)))
        left = [test for test in wanted or every if test not in outcomes]
        if not left:
            return outcomes


def _run_until_it_stops(
    checkout: Path, arguments: list[str], outcomes: dict[str, Outcome], seconds: float
) -> tuple[str | None, set[str], list[str]]:
    """Return the test that ended the process, if any, its replaced classes, and the names of all tests."""
    env = {
        **os.environ,
        "OMP_WAIT_POLICY": "PASSIVE",
    }  # the tests ask for more threads than there may be cores
    command = [sys.executable, str(HERE / "child.py"), str(checkout / "tests"), *arguments]
    at, made, every = None, set[str](), list[str]()
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=folder, env=env
        ) as process,
    ):
        for text in _lines(process, seconds):
            line = json.loads(text)
            if line["state"] == "finished":
                return None, set(), every
            if line["state"] == "found":
                every = line["tests"]
            elif line["state"] == "started":
                at, made = line["test"], set()
            elif line["state"] == "made":
                made.add(line["made"])
            else:
                outcomes[line["test"]] = Outcome(
                    line["state"], line["message"], line["trace"], tuple(line["made"])
                )
                at = None
        process.kill()
    return at, made, every


def _lines(process: Any, seconds: float) -> Any:
    """Yield the lines that a process prints, until it has been silent for some seconds."""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        rest, since = b"", time.monotonic()
        while time.monotonic() - since < seconds:
            if not selector.select(timeout=1):
                continue
            block = os.read(process.stdout.fileno(), 1 << 16)
            if not block:
                return
            *lines, rest = (rest + block).split(b"\n")
            yield from lines
            since = time.monotonic()


# --- verdicts ---------------------------------------------------------------------------------------------------------


def judge(checkout: Path, name: str, seconds: float) -> list[Row]:
    """Return a row for each test of a module that creates an evidence index."""
    ours = run_module(checkout, name, "ours", [], seconds)
    reached = {test: outcome for test, outcome in ours.items() if outcome.made}
    failed = [test for test, outcome in reached.items() if outcome.state != "ok"]
    stock = run_module(checkout, name, "stock", failed, seconds) if failed else {}
    return [
        Row(test, *reasons.verdict(test, outcome, stock.get(test)), outcome.made)
        for test, outcome in reached.items()
    ]


# --- the page ---------------------------------------------------------------------------------------------------------


def page(rows: list[Row], version: str, modules: list[str]) -> str:
    counts = Counter(row.verdict for row in rows)
    lines = [
        "# FAISS's own tests with evidence indexes",
        "",
        f"Written by `benchmarks/faiss_tests/run.py` with faiss-cpu {faiss.__version__} and tests of FAISS {version}.",
        "In FAISS's test modules `IndexFlat`, `IndexIVFFlat` and `IndexIVFScalarQuantizer` (8 bits, fp16) over inner",
        "products or squared distances create evidence indexes of the same metric, also by `index_factory`; FAISS's",
        "own code, including `faiss.contrib`, keeps its classes. A test counts if it creates at least one of them,",
        "also if it then crashes. Of tests that FAISS repeats for each instruction set, one counts.",
        "",
        f"Modules that were run: {', '.join(f'`{name}`' for name in modules)}.",
        "",
        "| outcome | tests |",
        "| --- | ---: |",
        *(f"| {verdict} | {counts[verdict]} |" for verdict in reasons.VERDICTS if counts[verdict]),
        f"| all | {len(rows)} |",
    ]
    for verdict in reasons.VERDICTS[1:]:
        chosen = sorted(row for row in rows if row.verdict == verdict)
        if chosen:
            lines += [
                "",
                f"## {verdict[0].upper()}{verdict[1:]}",
                "",
                *reasons.ABOUT.get(verdict, []),
            ]
            if any(row.reason for row in chosen):
                lines += ["| test | reason |", "| --- | --- |"]
                lines += [f"| `{row.test}` | {_cell(row.reason)} |" for row in chosen]
            else:
                lines += [f"- `{row.test}`" for row in chosen]
    passed = sorted(row.test for row in rows if row.verdict == reasons.PASSES)
    return "\n".join([*lines, "", "## Passes", "", *(f"- `{test}`" for test in passed), ""])


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("checkout", type=Path, help="a copy of FAISS's repository")
    parser.add_argument(
        "--modules", nargs="*", help="names of test modules; by default all that can make one"
    )
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help="time for a test (default: %(default)s)"
    )
    parser.add_argument(
        "--version", default="of the checkout", help="what to call the checkout on the page"
    )
    parser.add_argument("--output", type=Path, default=PAGE, help="where to write the page")
    given = parser.parse_args()
    checkout = given.checkout.resolve()
    files = sorted((checkout / "tests").glob("test_*.py"))
    if not files:
        parser.error(f"{checkout} must be a checkout of FAISS: it has no tests/test_*.py")
    names = given.modules or [file.stem for file in files if REACHES.search(file.read_text())]
    rows: list[Row] = []
    for name in names:
        found = judge(checkout, name, given.seconds)
        rows += found
        print(name, dict(Counter(row.verdict for row in found)), flush=True)
        for row in found:
            if row.verdict != reasons.PASSES:
                print(f"    {row.test}: {row.verdict}: {row.reason}", flush=True)
    given.output.write_text(page(rows, given.version, names))
    unexplained = [row for row in rows if row.verdict == reasons.UNEXPLAINED]
    for row in unexplained:
        print(f"no reason is known for {row.test}: {row.reason}")
    sys.exit(bool(unexplained))


if __name__ == "__main__":
    main()
