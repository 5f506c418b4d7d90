"""Conditions of the user on the numbers of a report, with outcomes that a program can act on."""

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, Self, TypeAlias

import numpy as np

from cfe_faiss.audit.reporting.document import Row, join_words
from cfe_faiss.audit.reporting.inputs import Inputs, Metric
from cfe_faiss.audit.reporting.sections import METRICS, SECTION_OF
from cfe_faiss.base.checks import as_count, as_number, check_known, check_type

Outcome: TypeAlias = Literal["fail", "cannot tell", "pass"]
"""Outcome of a condition for one group."""

OUTCOMES: tuple[Outcome, ...] = ("fail", "cannot tell", "pass")
"""All outcomes, the worst first."""

FEWEST_CASES = 30
"""Groups of fewer cases are not judged, unless the user says otherwise."""


_TRUTH = "true classes (data.y)"
_SIGNS = {"at_least": ">=", "at_most": "<="}
_TEXT = re.compile(
    r"\s*(?P<metric>\w+)\s*(?:\[(?P<attribute>.+)\])?\s*(?P<sign>>=|<=)\s*(?P<bound>\S.*?)\s*"
)
_MODEL_METRICS = {name for name, section in SECTION_OF.items() if section == "models"}
"""Metrics with a number for each model."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on a number of the report.

    A condition has one of three outcomes for each group:

    - "fail": the whole interval of the number is beyond a bound.
    - "pass": the whole interval keeps the bounds. A number without an interval (a count of flips,
      say) decides alone.
    - "cannot tell": the interval holds a bound; or the number is not defined; or the group has
      fewer than ``min_cases`` cases or is not ranked; or there is no such group.

    Intervals of rates, impact ratios and errors hold for all groups of an attribute at once, see
    :func:`cfe_faiss.audit.group_metrics`.

    Parameters
    ----------
    metric
        One of :data:`METRICS`.
    attribute
        The sensitive attribute, or the intersection ("sex & race"), whose groups it is about. None:
        all of them, and all people together.
    at_least, at_most
        Bounds of the number, both included; one of them at least. For metrics of compared models
        also the name of a model, whose number is the bound.
    min_cases
        Groups of fewer cases are not judged, >= 1.

    Raises
    ------
    TypeError, ValueError
        If the metric is unknown, a bound is not a number, none is given, or they contradict each
        other.

    Examples
    --------
    >>> Condition("impact_ratio", "sex", at_least=0.8)
    Condition(metric='impact_ratio', attribute='sex', at_least=0.8, at_most=None, min_cases=30)
    >>> texts = ("impact_ratio[sex & race] >= 0.8", "evidence_pairs<=v1")
    >>> [str(Condition.parse(text)) for text in texts]
    ['impact_ratio[sex & race] >= 0.8', 'evidence_pairs <= v1']
    """

    metric: str
    attribute: str | None = None
    at_least: float | str | None = None
    at_most: float | str | None = None
    min_cases: int = FEWEST_CASES

    def __post_init__(self) -> None:
        check_known("metric must be one of", self.metric, METRICS)
        if not self._bounds():
            raise ValueError(
                f"a condition on {self.metric} must have at_least or at_most, got neither"
            )
        numbers = [
            as_number(name, value, -math.inf, math.inf)
            for name, value in self._bounds()
            if not (isinstance(value, str) and self.metric in _MODEL_METRICS)
        ]
        if len(numbers) == 2 and numbers[0] > numbers[1]:
            raise ValueError(f"at_least must be at most at_most, got {numbers[0]} and {numbers[1]}")
        as_count("min_cases", self.min_cases)

    def __str__(self) -> str:
        name = self.metric + ("" if self.attribute is None else f"[{self.attribute}]")
        parts = []
        for bound, value in self._bounds():
            value_text = (
                value
                if isinstance(value, str)
                else np.format_float_positional(float(value), trim="-")
            )
            parts.append(f"{name} {_SIGNS[bound]} {value_text}")
        return " and ".join(parts)

    @classmethod
    def parse(cls, text: str, min_cases: int = FEWEST_CASES) -> Self:
        """Return the condition that a text such as ``"impact_ratio[sex]>=0.8"`` describes.

        Raises
        ------
        ValueError
            If the text is not of this form.
        """
        match = _TEXT.fullmatch(text)
        number = math.nan
        with suppress(ValueError):
            number = float(match["bound"]) if match else math.nan
        if match is None or not (math.isfinite(number) or match["metric"] in _MODEL_METRICS):
            raise ValueError(
                f"a condition must read like impact_ratio>=0.8 or impact_ratio[sex]>=0.8, got "
                f"{text!r}"
            )
        bound = number if math.isfinite(number) else match["bound"]
        name = match["attribute"].strip() if match["attribute"] else None
        bounds = {argument: bound for argument, sign in _SIGNS.items() if sign == match["sign"]}
        return cls(match["metric"], name, min_cases=min_cases, **bounds)

    def _bounds(self) -> list[tuple[str, float | str]]:
        bounds = ("at_least", self.at_least), ("at_most", self.at_most)
        return [(name, value) for name, value in bounds if value is not None]

    @property
    def models(self) -> list[str]:
        """Names of models that are bounds."""
        return [value for _, value in self._bounds() if isinstance(value, str)]

    def judge(
        self, low: float, high: float, models: Mapping[str, float] = MappingProxyType({})
    ) -> Outcome:
        """Return the outcome for a number with the interval [low, high]."""
        bounds = {
            name: models[value] if isinstance(value, str) else value
            for name, value in self._bounds()
        }
        least = bounds.get("at_least", -math.inf)
        most = bounds.get("at_most", math.inf)
        if high < least or low > most:
            return "fail"
        return "pass" if least <= low and high <= most else "cannot tell"


@dataclass(frozen=True, slots=True)
class Check:
    """Outcome of a condition for one group.

    Attributes
    ----------
    condition, attribute, group
        The condition and the group it was checked for; ``attribute`` is None for all people.
    value, n, low, high
        The number, its number of cases, and its interval; None if there is none.
    outcome
        "pass", "fail" or "cannot tell", see :class:`Condition`.
    reason
        Why the outcome is "cannot tell"; empty otherwise.
    """

    condition: Condition
    attribute: str | None
    group: str
    value: float | None
    n: int
    low: float | None
    high: float | None
    outcome: Outcome
    reason: str = ""

    def __str__(self) -> str:
        places = 0 if METRICS[self.condition.metric].is_count else 4
        value = "not defined" if self.value is None else f"{self.value:,.{places}f}"
        bounds = (
            ""
            if self.low is None or self.high is None
            else f", interval {self.low:.4f} to {self.high:.4f}"
        )
        reason = f"; {self.reason}" if self.reason else ""
        return (
            f"{self.outcome}: {self.condition}, {self.name}: {value} "
            f"(n = {self.n:,}{bounds}){reason}"
        )

    @property
    def name(self) -> str:
        """The attribute and its group."""
        return f"{self.attribute} = {self.group}" if self.attribute else self.group


def as_conditions(require: str | Condition | Sequence[str | Condition]) -> tuple[Condition, ...]:
    """Return the conditions that texts or objects describe.

    Raises
    ------
    TypeError, ValueError
        If one of them is neither a text nor a :class:`Condition`, or a text cannot be read.
    """
    requirements = [require] if isinstance(require, str | Condition) else require
    for one in requirements:
        check_type("require must hold texts or Condition objects", one, str | Condition)
    return tuple(Condition.parse(one) if isinstance(one, str) else one for one in requirements)


def check_all(
    conditions: Sequence[Condition], measured: Mapping[str, Sequence[Row]], sensitive: Sequence[str]
) -> tuple[Check, ...]:
    """Return one check for each condition and group.

    A condition without a group gets one check, too.

    ``measured`` has the rows of each section: numbers, ``attribute`` (None: everyone) and
    ``place``.
    """
    checks: list[Check] = []
    for condition in conditions:
        metric = METRICS[condition.metric]
        attributes = {None, *sensitive} if condition.attribute is None else {condition.attribute}
        if metric.is_ranked:
            attributes -= {None}
        rows = [
            row
            for row in measured.get(SECTION_OF[condition.metric], ())
            if row["attribute"] in attributes
        ]
        models = {row["place"]: row[metric.key] for row in rows}
        checks += [
            _check(condition, metric, row, models)
            for row in rows
            if row["place"] not in condition.models
        ]
        if not rows:
            checks.append(
                Check(
                    condition,
                    condition.attribute,
                    group="no group",
                    value=None,
                    n=0,
                    low=None,
                    high=None,
                    outcome="cannot tell",
                    reason="no such group",
                )
            )
    return tuple(checks)


def check_conditions(conditions: Sequence[Condition], inputs: Inputs) -> None:
    """Raise ValueError if a report of these inputs cannot measure a condition."""
    for condition in conditions:
        if condition.attribute is not None:
            check_known(
                "require must be about sensitive attributes or two of them crossed",
                condition.attribute,
                inputs.attributes_and_pairs,
            )
        section = SECTION_OF[condition.metric]
        if section in inputs.settings.skip:
            raise ValueError(
                f"skip must not name {section!r}, which measures {condition.metric}, a condition"
            )
        needs = (need for need in METRICS[condition.metric].needs if not inputs.has(need))
        lacking = [_TRUTH if need == "truth" else need for need in needs]
        if lacking:
            raise ValueError(
                f"a condition on {condition.metric} must come with {join_words(lacking)}, got none"
            )
        for name in condition.models:
            check_known("require must name models that are compared", name, inputs.models or ())


def _check(condition: Condition, metric: Metric, row: Row, models: Mapping[str, float]) -> Check:
    value = row[metric.key]
    n = row[metric.n]
    bounds = (
        ("low", "high")
        if f"{metric.key}_low" not in row
        else (f"{metric.key}_low", f"{metric.key}_high")
    )
    low, high = (row.get(bound) for bound in bounds)
    outcome: Outcome = "cannot tell"
    reason = ""
    if metric.is_ranked and not row["ranked"]:
        reason = "the group is not ranked"
    elif n < condition.min_cases:
        reason = f"fewer than {condition.min_cases:,} cases"
    elif value is None:
        reason = "the number is not defined"
    else:
        outcome = condition.judge(
            value if low is None else low, value if high is None else high, models
        )
        reason = "the interval holds a bound" if outcome == "cannot tell" else ""
    number = None if value is None else float(value)
    return Check(condition, row["attribute"], row["place"], number, n, low, high, outcome, reason)
