"""How long does the report of a table take: mixed columns, drawn at random, and a public table.

    python benchmarks/audit_report.py
    python benchmarks/audit_report.py --tables mixed

``cfe-faiss audit`` runs in a process of its own, from the CSV to the written report; the time of
the processors is that of all threads. The mixed table has numbers, skewed amounts, counts,
categories, missing cells, two sensitive attributes with direct effects on the decision, and a
truth, so every section of the report has work, and sensitivity has findings to vary. The public
table is ``credit_card`` of :mod:`benchmarks.real_tables`. Wanted: 90 s for 30,000 rows of 100
columns on two cores.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[1]))
from common import save, table

from benchmarks.real_tables.files import CACHE, fetch, tables

TITLE = "Time of the report of an audit"

ROWS, COLUMNS = 30_000, 100
WANTED = 90.0
MIXED = (
    "--features mixed.csv --predictions mixed.csv:decision --truth mixed.csv:truth "
    "--favourable granted --sensitive sex race"
)


def mixed(n: int, columns: int, seed: int = 0) -> pd.DataFrame:
    """Return a table of n rows whose last columns are sex, race, decision and truth."""
    rng = np.random.default_rng(seed)
    common = rng.standard_normal((n, 5))
    table: dict[str, Any] = {}
    for j in range(columns - 4):
        z = 0.4 * common @ rng.normal(size=5) + rng.standard_normal(n)
        kind = j % 10
        if kind < 4:
            table[f"number {j}"] = z.round(3)
        elif kind == 4:
            table[f"amount {j}"] = (1000 * np.exp(z)).round()
        elif kind == 5:
            table[f"count {j}"] = np.maximum(0, (2 * z).round())
        elif kind < 8:
            table[f"category {j}"] = np.array(list("abcdef"))[
                np.clip(z + 2, 0, kind - 2).astype(int)
            ]
        elif kind == 8:
            table[f"number {j}"] = np.where(rng.random(n) < 0.1, np.nan, z.round(2))
        else:
            answers = np.where(z > 0, "yes", "no").astype(object)
            table[f"answer {j}"] = np.where(rng.random(n) < 0.05, None, answers)
    sex = rng.choice(["f", "m"], n)
    race = rng.choice(["a", "b", "c"], n, p=[0.6, 0.3, 0.1])
    score = common @ [1, 0.5, 0.5, 0, 0] + 0.3 * (sex == "m") + 0.3 * (race == "a")
    score += rng.standard_normal(n)
    table |= {"sex": sex, "race": race, "decision": np.where(score > 0, "granted", "refused")}
    repaid = score + rng.standard_normal(n) > 0
    return pd.DataFrame(table | {"truth": np.where(repaid, "granted", "refused")})


def audit(folder: Path, options: str) -> dict[str, Any]:
    """Return the seconds of a report, of the clock and of the processors, and what it varied."""
    program = [sys.executable, "-P", "-m", "cfe_faiss", "audit", *shlex.split(options)]
    start, before = time.perf_counter(), os.times()
    subprocess.run([*program, "--out", "r.html"], cwd=folder, check=True, capture_output=True)
    seconds, after = time.perf_counter() - start, os.times()
    processors = sum(after[2:4]) - sum(before[2:4])
    sections = json.loads((folder / "r.json").read_text())["sections"]
    (varied,) = (section for section in sections if section["id"] == "sensitivity")
    choices = sum(len(table["rows"]) for table in varied["tables"])
    return {"seconds": seconds, "processors": processors, "choices": choices}


def measure(name: str, rows: int = ROWS, columns: int = COLUMNS) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name_of_folder:
        folder = Path(name_of_folder)
        if name == "mixed":
            frame = mixed(rows, columns)
            frame.to_csv(folder / "mixed.csv", index=False)
            options = MIXED
        else:
            table = tables()[name]
            frame = pd.read_csv(fetch(table, CACHE))
            (folder / table.file).write_bytes(fetch(table, CACHE).read_bytes())
            options = table.command
        n, d = frame.shape
        return {"table": name, "rows": n, "columns": d, **audit(folder, options)}


def page(content: dict[str, Any]) -> str:
    rows = [
        (
            run["table"],
            f"{run['rows']:,} x {run['columns']}",
            f"{run['seconds']:.0f} s",
            f"{run['processors']:.0f} s",
            run["choices"],
        )
        for run in content["runs"]
    ]
    return (
        "`cfe-faiss audit` from the CSV to the written report: a table of numbers, skewed amounts, counts, categories "
        "and missing cells with two sensitive attributes and a truth, drawn at random, and the public table of "
        f"credit cards. Wanted: {content['wanted']:.0f} s for 30,000 rows of 100 columns on two cores. On a busy "
        "machine the clock says little, and the time of all processors more: "
        f"{content['load']:.0f} processes waited for the cores at the end of this run. Choices are those of the "
        "sensitivity of the findings.\n\n"
        + table(("table", "size", "clock", "processors", "choices"), rows)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", nargs="+", default=["mixed", "credit_card"])
    runs = []
    for name in parser.parse_args().tables:
        runs.append(measure(name))
        print(json.dumps(runs[-1]), flush=True)
        save("audit_report", {"wanted": WANTED, "load": os.getloadavg()[0], "runs": runs})


if __name__ == "__main__":
    main()
