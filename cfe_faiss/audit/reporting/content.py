"""From inputs to everything that a report holds."""

import hashlib
import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from typing import Any

from tqdm import tqdm

from cfe_faiss.audit.reporting.conditions import OUTCOMES, Check, Condition, check_all
from cfe_faiss.audit.reporting.document import Column, Section, Table
from cfe_faiss.audit.reporting.formats import plural
from cfe_faiss.audit.reporting.inputs import Inputs
from cfe_faiss.audit.reporting.sections.balance import balance_section
from cfe_faiss.audit.reporting.sections.calibration import calibration_section
from cfe_faiss.audit.reporting.sections.consistency import consistency_section
from cfe_faiss.audit.reporting.sections.direct_effects import effects_section, find_effects
from cfe_faiss.audit.reporting.sections.discrimination import discrimination_section
from cfe_faiss.audit.reporting.sections.errors import errors_section
from cfe_faiss.audit.reporting.sections.groups import (
    counts_section,
    error_rates_section,
    find_rates,
    groups_section,
)
from cfe_faiss.audit.reporting.sections.method import method_section, subject_section
from cfe_faiss.audit.reporting.sections.model_tests import flip_section, only_in_section
from cfe_faiss.audit.reporting.sections.pairs import cases_section, find_pairs, pairs_section, strongest_section
from cfe_faiss.audit.reporting.sections.sensitivity import sensitivity_section
from cfe_faiss.audit.reporting.subject import BLANKS, Subject, facts, scope, title_of

FORMAT = 2
"""The version of report.json, see schema.json."""


@dataclass(frozen=True, slots=True)
class Content:
    """A whole report, before it is written.

    Attributes
    ----------
    title, date, version, id
        Its heading, when it was made (UTC), by which version, and a digest of all its numbers.
    level, confidence
        Of the intervals, in words and as a number.
    facts, blanks
        Description of the audited data and model, and lines that people fill in.
    scope, named, described, undetermined
        Sentences of the first page: what was audited; findings; numbers without a test; what the data cannot tell.
    sections
        In order.
    results
        One for every condition and group.
    outcome, checks
        Outcomes of the conditions, as a sentence and as a table.
    """

    title: str
    date: str
    version: str
    id: str
    level: str
    confidence: float
    facts: tuple[tuple[str, str], ...]
    blanks: tuple[str, ...]
    scope: tuple[str, ...]
    named: tuple[str, ...]
    described: tuple[str, ...]
    undetermined: tuple[str, ...]
    sections: tuple[Section, ...]
    results: tuple[Check, ...]
    outcome: str
    checks: Table


def collect(inputs: Inputs, subject: Subject, conditions: Sequence[Condition], progress: bool) -> Content:
    """Run every audit."""
    sections = _sections(inputs, progress)
    measures = [measure for section in sections for measure in section.measures]
    crossed = [" & ".join(names) for names in inputs.crossed]
    results = check_all(conditions, measures, [*inputs.sensitive, *crossed])
    known = tuple(facts(inputs, subject))
    # The command names output files: equal audits have equal ids wherever they are written.
    numbers = [pair for pair in known if pair[0] != "Command to rerun"]
    hashed = json.dumps([numbers, [asdict(section) for section in sections]], sort_keys=True, default=str)
    return Content(
        title=title_of(inputs, subject),
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        version=version("cfe-faiss"),
        id=hashlib.sha256(hashed.encode("utf-8", "replace")).hexdigest()[:16],
        level=inputs.level,
        confidence=inputs.settings.confidence,
        facts=known,
        blanks=BLANKS,
        scope=tuple(scope(inputs, subject)),
        named=tuple(line for section in sections for line in section.named),
        described=tuple(line for section in sections for line in section.described),
        undetermined=_undetermined(sections),
        sections=sections,
        results=results,
        outcome=_outcome(results),
        checks=_checks(inputs, results),
    )


def _sections(inputs: Inputs, progress: bool) -> tuple[Section, ...]:
    pairs, rates = cache(lambda: find_pairs(inputs)), cache(lambda: find_rates(inputs))
    effects = cache(lambda: find_effects(inputs, rates()))
    steps: list[tuple[str, Callable[[], Section]]] = [
        ("strongest case", lambda: strongest_section(inputs, pairs(), effects())),
        ("groups", lambda: groups_section(inputs, rates())),
        ("direct effects", lambda: effects_section(inputs, effects(), rates())),
        ("counts", lambda: counts_section(inputs, rates())),
        ("error rates", lambda: error_rates_section(inputs, rates())),
        ("calibration", lambda: calibration_section(inputs)),
        ("sensitivity", lambda: sensitivity_section(inputs, effects())),
        ("flip test", lambda: flip_section(inputs)),
        ("pairs in one attribute", lambda: only_in_section(inputs)),
        ("closest pairs", lambda: pairs_section(inputs, pairs())),
        ("case files", lambda: cases_section(inputs, pairs())),
        ("balance", lambda: balance_section(inputs, pairs())),
        ("discrimination", lambda: discrimination_section(inputs)),
        ("consistency", lambda: consistency_section(inputs)),
        ("errors", lambda: errors_section(inputs)),
        ("method", lambda: method_section(inputs)),
        ("subject", lambda: subject_section(inputs)),
    ]
    sections = []
    # None: no bar where standard error is not a terminal.
    with tqdm(steps, "Auditing", disable=None if progress else True, file=sys.stderr, leave=False) as bar:
        for name, step in bar:
            bar.set_postfix_str(name)
            sections.append(step())
    return tuple(sections)


def _undetermined(sections: Sequence[Section]) -> tuple[str, ...]:
    lines = [line for section in sections for line in section.undetermined]
    missing: dict[str, list[str]] = {}
    for section in sections:
        if section.missing:
            missing.setdefault(section.missing, []).append(section.title)
    lines += [f"{', '.join(titles)}: {reason[:1].lower()}{reason[1:]}" for reason, titles in missing.items()]
    return tuple(lines)


def _outcome(results: Sequence[Check]) -> str:
    if not results:
        return "No conditions."
    counts = Counter(check.outcome for check in results)
    return f"{plural(len(results), 'check')}: {', '.join(f'{counts[outcome]:,} {outcome}' for outcome in OUTCOMES)}."


def _checks(inputs: Inputs, results: Sequence[Check]) -> Table:
    rows: list[dict[str, Any]] = [
        {
            "condition": str(check.condition),
            "attribute": check.attribute or f"all {inputs.people}",
            "group": check.group,
            "value": check.value,
            "low": check.low,
            "high": check.high,
            "n": check.n,
            "outcome": check.outcome,
            "reason": check.reason,
        }
        for check in sorted(results, key=lambda check: OUTCOMES.index(check.outcome))
    ]
    return Table(
        "conditions",
        "Conditions and their outcomes",
        "A condition fails where the whole interval of the number lies beyond the bound, and passes where all of it "
        "keeps the bound. Otherwise the data cannot tell.",
        (
            Column("condition", "Condition"),
            Column("attribute", "Attribute"),
            Column("group", "Group"),
            Column("value", "Value", "score", ("low", "high"), "n"),
            Column("n", "n", "count"),
            Column("outcome", "Outcome"),
            Column("reason", "Reason"),
        ),
        tuple(rows),
        limit=200,
    )
