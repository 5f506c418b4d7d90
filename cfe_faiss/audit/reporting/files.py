"""The files of a report: the page, JSON, JUnit XML, CSV and drawings, written all together or not at all."""

import base64
import csv
import hashlib
import io
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from cfe_faiss.audit.reporting import figures
from cfe_faiss.audit.reporting.content import FORMAT, Content
from cfe_faiss.audit.reporting.document import Table
from cfe_faiss.audit.reporting.formats import is_undefined, show
from cfe_faiss.base.extras import extra
from cfe_faiss.base.tables import csv_text
from cfe_faiss.files.new_file import new_file
from cfe_faiss.files.outputs import MARK, REPORT_COLUMNS, check_outputs

with extra("audit"):
    from markupsafe import Markup


def report_files(path: Path) -> tuple[Path, ...]:
    """Return the files of a report; the first is its page."""
    return path, *(path.with_suffix(suffix) for suffix in (".json", ".xml", ".csv"))


def write_all(
    content: Content, path: Path, folder: Path | None, *, inputs: Sequence[Path] = (), overwrite: bool = False
) -> tuple[Path, ...]:
    """Write all files and return their names; after an error or Ctrl-C none of them has changed."""
    as_json = json.dumps(numbers(content), indent=1, allow_nan=False) + "\n"
    parts = page(content), as_json, junit(content), long_table(content)
    texts = dict(zip(report_files(path), parts, strict=True))
    if folder is not None:
        texts |= {folder / f"{name}.svg": text for name, text in _drawings(content)}
    check_outputs(texts, inputs, overwrite=overwrite)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        opened = [stack.enter_context(new_file(target.resolve(), overwrite=overwrite)) for target in texts]
        for file, text in zip(opened, texts.values(), strict=True):
            file.write(text.encode("utf-8", "replace"))
            # A full disk shows here, before the first file takes its name.
            file.flush()
            os.fsync(file.fileno())
    return tuple(texts)


def page(content: Content) -> str:
    """Return the page. Every text in it is escaped, and browsers are told to run no script and no other style."""
    style = figures.template("figure.css") + figures.template("report.css")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    html = figures.environment().get_template("report.html.j2")
    return html.render(report=content, policy=policy, style=Markup(style))


def numbers(content: Content) -> dict[str, Any]:
    """Return the content of report.json, as schema.json describes it."""
    return {
        "format": "cfe-faiss report",
        "format_version": FORMAT,
        **{name: getattr(content, name) for name in ("id", "title", "date", "version", "confidence")},
        "subject": content.facts,
        **{name: [*getattr(content, name)] for name in ("scope", "named", "described", "undetermined")},
        "conditions": {"outcome": content.outcome, **_plain(content.checks)},
        "sections": [_plain(section) | {"missing": section.missing or None} for section in content.sections],
    }


def _plain(value: Any) -> Any:
    """Return a record of the report as JSON has it: the fields that its class names in ``in_files``."""
    if hasattr(value, "in_files"):
        return {name: _plain(getattr(value, name)) for name in value.in_files}
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(part) for part in value]
    return None if is_undefined(value) else value


def junit(content: Content) -> str:
    """Return the conditions as a JUnit test suite: one test case for each condition and group.

    A check that cannot tell is skipped. Without conditions there is one test case, which is skipped, so that the suite
    has not passed.
    """
    counts = Counter(check.outcome for check in content.results)
    skipped = counts["cannot tell"] if content.results else 1
    totals = {"tests": max(len(content.results), 1), "failures": counts["fail"], "errors": 0, "skipped": skipped}
    attributes = {"name": show(content.title, 200)} | {name: str(count) for name, count in totals.items()}
    suites = ET.Element("testsuites", attributes)
    suite = ET.SubElement(suites, "testsuite", attributes)
    if not content.results:
        case = ET.SubElement(suite, "testcase", {"classname": "conditions", "name": "no conditions"})
        ET.SubElement(case, "skipped", {"message": content.outcome})
    for check in content.results:
        name = {"classname": show(check.condition, 200), "name": show(check.name, 200)}
        case, message = ET.SubElement(suite, "testcase", name), {"message": show(check, 500)}
        if check.outcome == "cannot tell":
            ET.SubElement(case, "skipped", message)
        elif check.outcome == "fail":
            ET.SubElement(case, "failure", message | {"type": "condition"}).text = message["message"]
    ET.indent(suites)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<!-- {MARK} -->\n' + ET.tostring(suites, encoding="unicode") + "\n"


def long_table(content: Content) -> str:
    """Return a CSV file with a line for every number: section, table, name, value, n and interval."""
    out = io.StringIO()
    writer = csv.DictWriter(out, REPORT_COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(_lines("conditions", content.checks))
    for section in content.sections:
        for table in (*section.tables, *(case.differences for case in section.cases)):
            writer.writerows(_lines(section.id, table))
    return out.getvalue()


def _lines(section: str, table: Table) -> Iterator[dict[str, Any]]:
    names = [column.key for column in table.columns if not column.is_value]
    for row in table.rows:
        name = " | ".join(str(row[key]) for key in names if row[key] not in (None, ""))
        for column in table.columns:
            value = row[column.key]
            if not column.is_value or value is None:
                continue
            line = {"section": section, "table": table.id, "name": name, "number": column.key, "value": value}
            if column.n is not None:
                line["n"] = row[column.n]
            if column.interval is not None:
                line["low"], line["high"] = column.bounds(row)
            yield {key: csv_text(part) if isinstance(part, str) else part for key, part in line.items()}


def _drawings(content: Content) -> Iterator[tuple[str, str]]:
    for section in content.sections:
        for table in section.tables:
            for column in table.charts if table.rows else ():
                yield re.sub(r"\W+", "_", f"{table.id}_{column.key}"), figures.standalone_chart(table, column)
        for case in section.cases:
            for side, letter in zip(case.sides, "ab", strict=True):
                if side.neighbourhood is not None:
                    title = f"{side.name} and its neighbours"
                    drawing = figures.neighbourhood(side.neighbourhood, title)
                    yield f"case_{case.place}_{letter}", figures.as_file(drawing)
