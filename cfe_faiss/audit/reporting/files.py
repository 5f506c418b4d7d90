"""The files of a report: the page, JSON, JUnit XML, CSV and drawings, all of them or none."""

import csv
import io
import json
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from cfe_faiss.audit.reporting.content import FORMAT, Content
from cfe_faiss.audit.reporting.document import Case, Section, Side, Table
from cfe_faiss.audit.reporting.figures import standalone_chart, standalone_neighbourhood
from cfe_faiss.audit.reporting.formats import shown, undefined
from cfe_faiss.audit.reporting.page import page
from cfe_faiss.base.tables import csv_text
from cfe_faiss.files.new_file import new_file
from cfe_faiss.files.outputs import MARK, REPORT_COLUMNS, check_outputs


def report_files(path: Path) -> tuple[Path, ...]:
    """Return the files of a report, of which the first is its page."""
    return path, *(path.with_suffix(suffix) for suffix in (".json", ".xml", ".csv"))


def write_all(
    content: Content, path: Path, figures: Path | None, *, inputs: Sequence[Path] = (), overwrite: bool = False
) -> tuple[Path, ...]:
    """Write all files and return their names; where an error or Ctrl-C interrupts it, none of them has changed."""
    parts = (
        page(content),
        json.dumps(numbers(content), indent=1, allow_nan=False) + "\n",
        junit(content),
        long_table(content),
    )
    texts = dict(zip(report_files(path), parts, strict=True))
    if figures is not None:
        texts |= {figures / f"{name}.svg": text for name, text in _drawings(content).items()}
    check_outputs(texts, inputs, overwrite=overwrite)
    if figures is not None:
        figures.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        files = [stack.enter_context(new_file(target.resolve(), overwrite=overwrite)) for target in texts]
        for file, text in zip(files, texts.values(), strict=True):
            file.write(text.encode("utf-8", "replace"))
            # A full disk shows here, before the first file takes its name.
            file.flush()
            os.fsync(file.fileno())
    return tuple(texts)


def numbers(content: Content) -> dict[str, Any]:
    """Return the content of report.json, as schema.json describes it."""
    return {
        "format": "cfe-faiss report",
        "format_version": FORMAT,
        "id": content.id,
        "title": content.title,
        "date": content.date,
        "version": content.version,
        "confidence": content.confidence,
        "subject": dict(content.facts),
        **{name: list(getattr(content, name)) for name in ("scope", "named", "described", "undetermined")},
        "conditions": {"outcome": content.outcome, **_table(content.checks)},
        "sections": [_section(section) for section in content.sections],
    }


def junit(content: Content) -> str:
    """Return the conditions as a JUnit test suite: one test case for each condition and group.

    A check that cannot tell is skipped. Without conditions the only test case is one that is skipped, so that no
    program takes the suite for one that has passed.
    """
    counts = Counter(check.outcome for check in content.results)
    skipped = counts["cannot tell"] if content.results else 1
    numbers = {"tests": max(len(content.results), 1), "failures": counts["fail"], "errors": 0, "skipped": skipped}
    attributes = {"name": shown(content.title, 200)} | {name: str(count) for name, count in numbers.items()}
    suites = ET.Element("testsuites", attributes)
    suite = ET.SubElement(suites, "testsuite", attributes)
    if not content.results:
        case = ET.SubElement(suite, "testcase", {"classname": "conditions", "name": "no conditions"})
        ET.SubElement(case, "skipped", {"message": content.outcome})
    for check in content.results:
        name = {"classname": shown(check.condition, 200), "name": shown(check.name, 200)}
        case, found = ET.SubElement(suite, "testcase", name), shown(check, 500)
        if check.outcome == "cannot tell":
            ET.SubElement(case, "skipped", {"message": found})
        elif check.outcome == "fail":
            ET.SubElement(case, "failure", {"message": found, "type": "condition"}).text = found
    ET.indent(suites)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<!-- {MARK} -->\n' + ET.tostring(suites, encoding="unicode") + "\n"


def long_table(content: Content) -> str:
    """Return every number on a line of its own: where it stands, what it is called, its value, n and interval."""
    out = io.StringIO()
    writer = csv.DictWriter(out, REPORT_COLUMNS, lineterminator="\n")
    writer.writeheader()
    for section in ("conditions", content.checks), *((s.id, table) for s in content.sections for table in _tables(s)):
        writer.writerows(_lines(*section))
    return out.getvalue()


def _tables(section: Section) -> list[Table]:
    return [*section.tables, *(case.differences for case in section.cases)]


def _lines(section: str, table: Table) -> list[dict[str, Any]]:
    names = [column for column in table.columns if not column.is_value]
    lines = []
    for row in table.rows:
        name = " | ".join(str(row[column.key]) for column in names if row[column.key] not in (None, ""))
        for column in table.columns:
            value = row[column.key]
            if not column.is_value or value is None:
                continue
            line = {"section": section, "table": table.id, "name": name, "number": column.key, "value": value}
            if column.n is not None:
                line["n"] = row[column.n]
            if column.interval is not None:
                line["low"], line["high"] = (row[key] for key in column.interval)
            lines.append({key: _field(part) for key, part in line.items()})
    return lines


def _field(value: Any) -> Any:
    return csv_text(value) if isinstance(value, str) else "" if value is None else value


def _section(section: Section) -> dict[str, Any]:
    return {
        "id": section.id,
        "title": section.title,
        "missing": section.missing or None,
        "findings": list(section.findings),
        "limits": list(section.limits),
        "tables": [_table(table) for table in section.tables],
        "cases": [_case(case) for case in section.cases],
    }


def _table(table: Table) -> dict[str, Any]:
    return {
        "id": table.id,
        "caption": table.caption,
        "columns": [{"key": column.key, "title": column.title, "kind": column.kind} for column in table.columns],
        "rows": [_row(row) for row in table.rows],
    }


def _row(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: None if undefined(value) else value for key, value in row.items()}


def _case(case: Case) -> dict[str, Any]:
    return {
        "place": case.place,
        "similarity": case.similarity,
        "rank": case.rank,
        "sides": [_side(side) for side in case.sides],
        "differences": _table(case.differences),
        "agreement": case.agreement,
    }


def _side(side: Side) -> dict[str, Any]:
    near = () if side.neighbourhood is None else side.neighbourhood.neighbours
    return {
        "row": side.node,
        "name": side.name,
        "predicted": side.predicted,
        "true": side.true,
        "surroundings": side.surroundings,
        "neighbours": [asdict(neighbour) for neighbour in near],
    }


def _drawings(content: Content) -> dict[str, str]:
    found: dict[str, str] = {}
    for section in content.sections:
        for table in section.tables:
            for column in table.charts if table.rows else ():
                found[re.sub(r"\W+", "_", f"{table.id}_{column.key}")] = standalone_chart(table, column)
        for case in section.cases:
            for side, name in zip(case.sides, "ab", strict=True):
                if side.neighbourhood is not None:
                    title = f"{side.name} and its neighbours"
                    found[f"case_{case.place}_{name}"] = standalone_neighbourhood(side.neighbourhood, title)
    return found
