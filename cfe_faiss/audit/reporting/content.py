"""From inputs to everything that a report holds."""

import hashlib
import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from tqdm import tqdm

from cfe_faiss.audit.reporting.conditions import OUTCOMES, Check, Condition, check_all
from cfe_faiss.audit.reporting.document import Column, Section, Table
from cfe_faiss.audit.reporting.formats import plural
from cfe_faiss.audit.reporting.inputs import Inputs
from cfe_faiss.audit.reporting.sections.balance import balance_section
from cfe_faiss.audit.reporting.sections.consistency import consistency_section
from cfe_faiss.audit.reporting.sections.discrimination import discrimination_section
from cfe_faiss.audit.reporting.sections.errors import errors_section
from cfe_faiss.audit.reporting.sections.groups import groups_section
from cfe_faiss.audit.reporting.sections.method import method_section
from cfe_faiss.audit.reporting.sections.model_tests import flip_section, only_in_section, situation_section
from cfe_faiss.audit.reporting.sections.pairs import Pairs, cases_section, find_pairs, pairs_section
from cfe_faiss.audit.reporting.subject import BLANKS, Subject, facts, title_of

FORMAT = 1
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
        What was audited, and what is to be filled in.
    summary
        Sentences with the most important numbers.
    sections
        In order.
    results
        One for every condition and group.
    outcome, checks
        What came of the conditions, as a sentence and as a table.
    """

    title: str
    date: str
    version: str
    id: str
    level: str
    confidence: float
    facts: tuple[tuple[str, str], ...]
    blanks: tuple[str, ...]
    summary: tuple[str, ...]
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
    headlines = [section.headline for section in sections if section.headline]
    summary = headlines if sections[0].headline else [f"Nodes audited: {len(inputs.nodes):,}.", *headlines]
    left_out = [section.title.lower() for section in sections if section.missing]
    if left_out:
        summary.append(f"Without numbers, for the reasons given there: {', '.join(left_out)}.")
    known = tuple(facts(inputs, subject))
    hashed = json.dumps([known, [asdict(section) for section in sections]], sort_keys=True, default=str)
    return Content(
        title=title_of(inputs, subject),
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        version=version("cfe-faiss"),
        id=hashlib.sha256(hashed.encode("utf-8", "replace")).hexdigest()[:16],
        level=inputs.level,
        confidence=inputs.settings.confidence,
        facts=known,
        blanks=BLANKS,
        summary=tuple(summary),
        sections=sections,
        results=results,
        outcome=_outcome(results),
        checks=_checks(results),
    )


def _sections(inputs: Inputs, progress: bool) -> tuple[Section, ...]:
    pairs: list[Pairs] = []

    def closest() -> Pairs:
        if not pairs:
            pairs.append(find_pairs(inputs))
        return pairs[0]

    steps: list[tuple[str, Callable[[], Section]]] = [
        ("groups", lambda: groups_section(inputs)),
        ("discrimination", lambda: discrimination_section(inputs)),
        ("consistency", lambda: consistency_section(inputs)),
        ("closest pairs", lambda: pairs_section(inputs, closest())),
        ("case files", lambda: cases_section(inputs, closest())),
        ("balance", lambda: balance_section(inputs, closest())),
        ("errors", lambda: errors_section(inputs)),
        ("flip test", lambda: flip_section(inputs)),
        ("situation test", lambda: situation_section(inputs)),
        ("pairs in one attribute", lambda: only_in_section(inputs)),
        ("method", lambda: method_section(inputs)),
    ]
    sections = []
    # None: no bar where standard error is not a terminal.
    with tqdm(steps, "Auditing", disable=None if progress else True, file=sys.stderr, leave=False) as bar:
        for name, step in bar:
            bar.set_postfix_str(name)
            sections.append(step())
    return tuple(sections)


def _outcome(results: Sequence[Check]) -> str:
    if not results:
        return "No conditions."
    counts = Counter(check.outcome for check in results)
    return f"{plural(len(results), 'check')}: {', '.join(f'{counts[outcome]:,} {outcome}' for outcome in OUTCOMES)}."


def _checks(results: Sequence[Check]) -> Table:
    rows: list[dict[str, Any]] = [
        {
            "condition": str(check.condition),
            "attribute": check.attribute or "all nodes",
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
        "Conditions and what came of them",
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
