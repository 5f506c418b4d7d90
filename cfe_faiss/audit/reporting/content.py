"""From inputs to the content of a report."""

import hashlib
import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version

from tqdm import tqdm

from cfe_faiss.audit.reporting.conditions import OUTCOMES, Check, Condition, check_all
from cfe_faiss.audit.reporting.document import Section, Table, texts
from cfe_faiss.audit.reporting.formats import plural
from cfe_faiss.audit.reporting.inputs import COMMAND, Inputs, facts, scope

FORMAT = 2
"""The version of report.json, see schema.json."""


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a report.

    Attributes
    ----------
    title, date, version, id
        Its heading, its date (UTC), the version that made it, and a digest of all its numbers.
    level, confidence
        Confidence of the intervals, in words and as a number.
    facts
        Description of the audited data and model by name.
    scope
        Sentences of the first page on the audited data.
    sections
        In order.
    results
        One check for every condition and group.
    checks
        The checks as a table.
    """

    title: str
    date: str
    version: str
    id: str
    level: str
    confidence: float
    facts: dict[str, str]
    scope: tuple[str, ...]
    sections: tuple[Section, ...]
    results: tuple[Check, ...]
    checks: Table

    @property
    def named(self) -> tuple[str, ...]:
        """Sentences of the first page: findings."""
        return tuple(line for section in self.sections for line in section.named)

    @property
    def described(self) -> tuple[str, ...]:
        """Sentences of the first page: numbers without a test."""
        return tuple(line for section in self.sections for line in section.described)

    @property
    def undetermined(self) -> tuple[str, ...]:
        """Sentences of the first page: limits of the data, and sections that are missing."""
        lines = [line for section in self.sections for line in section.undetermined]
        missing: dict[str, list[str]] = {}
        for section in self.sections:
            if section.missing:
                missing.setdefault(section.missing, []).append(section.title)
        lines += [f"{', '.join(titles)}: {reason[:1].lower()}{reason[1:]}" for reason, titles in missing.items()]
        return tuple(lines)

    @property
    def models(self) -> tuple[Table, ...]:
        """Table of the first page, if models are compared."""
        return tuple(table for section in self.sections for table in section.tables if table.id == "models")

    @property
    def outcome(self) -> str:
        """Outcomes of the conditions in a sentence."""
        if not self.results:
            return "No conditions."
        counts = Counter(check.outcome for check in self.results)
        numbers = ", ".join(f"{counts[outcome]:,} {outcome}" for outcome in OUTCOMES)
        return f"{plural(len(self.results), 'check')}: {numbers}."


def collect(inputs: Inputs, conditions: Sequence[Condition], progress: bool) -> Content:
    """Run every audit."""
    sections = []
    # None: no bar if standard error is not a terminal.
    sought = texts()["sections"].items()
    names = [name for name, text in sought if not ("optional" in text and inputs.missing_need(name))]
    disable = None if progress else True
    with tqdm(names, "Auditing", disable=disable, file=sys.stderr, leave=False) as bar:
        for name in bar:
            bar.set_postfix_str(name.replace("_", " "))
            sections.append(make_section(inputs, name))
    measures = [measure for section in sections for measure in section.measures]
    results = check_all(conditions, measures, inputs.attributes_and_pairs)
    rows = [
        asdict(check) | {"condition": str(check.condition), "attribute": check.attribute or inputs.everyone}
        for check in sorted(results, key=lambda check: OUTCOMES.index(check.outcome))
    ]
    known = facts(inputs)
    # The command names output files: equal audits have equal ids in all folders.
    hashed = known | {COMMAND: ""}, [asdict(section) for section in sections]
    text = json.dumps(hashed, sort_keys=True, default=str)
    return Content(
        title=inputs.subject.title,
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        version=version("cfe-faiss"),
        id=hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16],
        level=inputs.words["level"],
        confidence=inputs.settings.confidence,
        facts=known,
        scope=scope(inputs),
        sections=tuple(sections),
        results=results,
        checks=inputs.table("conditions", rows),
    )


def make_section(inputs: Inputs, name: str) -> Section:
    """Return a section, made by its function in sections.toml; it says what is missing if a need is not met."""
    missing, make = inputs.missing_need(name), texts()["sections"][name].get("make")
    if missing or make is None:
        return inputs.section(name, missing=missing)
    module, _, function = make.partition(".")
    section: Section = getattr(import_module(f"cfe_faiss.audit.reporting.sections.{module}"), function)(inputs)
    return section
