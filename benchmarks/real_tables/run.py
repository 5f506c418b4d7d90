"""Audit real tables with one command each, and compare the reports' numbers with golden files.

    python -m benchmarks.real_tables.run                # all tables: compare, write the pages
    python -m benchmarks.real_tables.run hdma mroz      # some tables
    python -m benchmarks.real_tables.run hdma --accept "REASON"    # record why numbers changed

Tables come from packages of the package index (:mod:`benchmarks.real_tables.files`). A table has
one or two commands: the one that its auditor would type first, and, where that is refused or warns
of leaks, the one that its messages lead to. A difference from a golden file without ``--accept``
ends with exit status 1.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.real_tables import golden, page
from benchmarks.real_tables.files import CACHE, Table, fetch, parser_of, tables

LIMIT_SECONDS = 600


@dataclass(frozen=True)
class Outcome:
    """What a command of a table gave."""

    options: str
    status: int
    seconds: float
    messages: list[str]
    report: dict[str, Any] | None


def audit(file: Path, options: str) -> Outcome:
    """Run ``cfe-faiss audit`` with these options in a folder that holds the file."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(file, folder)
        program = [sys.executable, "-P", "-m", "cfe_faiss", "audit"]
        start = time.perf_counter()
        done = subprocess.run(
            [*program, *shlex.split(options), "--out", "report.html"],
            cwd=folder,
            env={**os.environ, "PYTHONUTF8": "1"},
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )
        seconds = time.perf_counter() - start
        path = Path(folder) / "report.json"
        report = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
    messages = [line for line in done.stderr.splitlines() if line.startswith("cfe-faiss: ")]
    if done.returncode not in (0, 1, 2) or (done.returncode == 2 and not messages):
        status = done.returncode
        raise RuntimeError(f"cfe-faiss audit {options}: exit status {status}\n{done.stderr}")
    return Outcome(options, done.returncode, seconds, messages, report)


def tries(table: Table, cache: Path = CACHE) -> list[Outcome]:
    """Run the one or two commands of a table."""
    file = fetch(table, cache)
    return [audit(file, options) for options in (table.first, table.command) if options]


def problems(outcomes: list[Outcome]) -> list[str]:
    """Return an auditor's complaints: a first try without a remedy, or no report at the end."""
    *earlier, last = outcomes
    found = [
        f"no message of the first try names an option: {outcome.options}"
        for outcome in earlier
        if not any(" --" in message or "(--" in message for message in outcome.messages)
    ]
    if last.report is None:
        found.append(f"no report: {last.messages[-1] if last.messages else last.status}")
    return found


def record(table: Table, outcomes: list[Outcome]) -> dict[str, Any]:
    """Return the golden numbers of a table's report, and the number of tries that it takes."""
    report = outcomes[-1].report
    numbers = {} if report is None else golden.numbers(report)
    return {"tries": len(outcomes), "notes": len(outcomes[-1].messages), **numbers}


def main(argv: list[str] | None = None) -> int:
    """Audit the tables, and return 1 if numbers changed or an auditor would complain."""
    known = tables()
    parser = parser_of(__doc__)
    parser.add_argument("--accept", metavar="REASON", help="record numbers, and why they changed")
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder of packages and tables")
    args = parser.parse_args(argv)
    failed = False
    for name in args.names or known:
        table = known[name]
        outcomes = tries(table, args.cache)
        complaints = problems(outcomes)
        new = record(table, outcomes)
        changes = list(golden.differences(golden.load(name) or {}, new))
        if changes and args.accept and not complaints:
            golden.accept(name, new, args.accept)
        failed = failed or bool(complaints) or (bool(changes) and not args.accept)
        state = "changed" if changes else "as recorded"
        print(f"{name}: {len(outcomes)} tries, {outcomes[-1].seconds:.0f} s, {state}", flush=True)
        for line in complaints + changes[:20]:
            print(f"    {line}", flush=True)
        if not complaints:
            page.write(table, outcomes[-1], outcomes[:-1])
    page.write_index(known)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
