"""Conditions of the user on the numbers of a report, with outcomes that a program can act on."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, Self, TypeAlias

import numpy as np

from cfe_faiss.audit.reporting.document import Measure, Row, join_words
from cfe_faiss.audit.reporting.inputs import Inputs, Need
from cfe_faiss.base.checks import as_count, as_number, check_known

Outcome: TypeAlias = Literal["fail", "cannot tell", "pass"]
"""Outcome of a condition for one group."""

OUTCOMES: tuple[Outcome, ...] = ("fail", "cannot tell", "pass")
"""All outcomes, the worst first."""

FEWEST_CASES = 30
"""Groups of fewer cases are not judged, unless the user says otherwise."""


@dataclass(frozen=True, slots=True)
class Metric:
    """Metric of a condition.

    Attributes
    ----------
    text
        The number in words.
    section, key, n
        The section that measures it, and the keys of the number and of its cases in
        ``Numbers.measured``.
    needs
        Requirements, see :meth:`Inputs.has`.
    is_ranked
        Whether it is defined for groups that can be ranked only.
    is_count
        Whether it is a whole number.
    """

    text: str
    section: str
    key: str
    n: str
    needs: tuple[Need, ...] = ()
    is_ranked: bool = False
    is_count: bool = False


_GROUPS: tuple[Need, ...] = ("favourable", "sensitive")
_ERRORS: tuple[Need, ...] = (*_GROUPS, "truth")

METRICS: dict[str, Metric] = {
    "selection_rate": Metric(
        "share of a group that is predicted the favourable class",
        section="groups",
        key="rate",
        n="count",
        needs=_GROUPS,
    ),
    "impact_ratio": Metric(
        "selection rate of a group over that of the reference group, the largest",
        section="groups",
        key="ratio",
        n="count",
        needs=_GROUPS,
        is_ranked=True,
    ),
    "selection_rate_difference": Metric(
        "selection rate of a group minus that of the reference group, the largest",
        section="groups",
        key="difference",
        n="count",
        needs=_GROUPS,
        is_ranked=True,
    ),
    "accuracy": Metric(
        "share of right predictions in a group",
        section="groups",
        key="accuracy",
        n="judged",
        needs=_ERRORS,
    ),
    "false_positive_rate": Metric(
        "false positive rate of a group",
        section="groups",
        key="fpr",
        n="negatives",
        needs=_ERRORS,
    ),
    "false_negative_rate": Metric(
        "false negative rate of a group",
        section="groups",
        key="fnr",
        n="positives",
        needs=_ERRORS,
    ),
    "overall_accuracy": Metric(
        "share of right predictions over all nodes",
        section="errors",
        key="overall",
        n="overall_nodes",
        needs=("truth",),
    ),
    "consistency": Metric(
        "share of nodes that are decided differently from their nearest neighbour",
        section="consistency",
        key="share",
        n="nodes",
    ),
    "equalised_odds_difference": Metric(
        "largest difference of true or of false positive rates between two groups",
        section="error_rates",
        key="equalised_odds_difference",
        n="judged",
        needs=_ERRORS,
    ),
    "only_in": Metric(
        "share, among pairs that differ in an attribute only, that is predicted differently",
        section="only_in",
        key="share",
        n="pairs",
        needs=("sensitive",),
    ),
    "flipped": Metric(
        "share of predictions that change when an attribute is flipped",
        section="flip",
        key="share",
        n="nodes",
        needs=("model", "sensitive"),
    ),
    "evidence_pairs": Metric(
        "number of pairs as similar as the closest pairs of v1 that a model separates",
        section="models",
        key="evidence",
        n="n",
        needs=("models",),
        is_count=True,
    ),
    "changed_share": Metric(
        "share of nodes that a model puts in another class than v1",
        section="models",
        key="changed_share",
        n="n",
        needs=("models",),
    ),
}
"""The metrics that conditions can be about."""

_TRUTH = "true classes (data.y)"
_TEXT = re.compile(r"\s*(?P<metric>\w+)\s*(?:\[(?P<attribute>.+)\])?\s*(?P<sign>>=|<=)\s*(?P<bound>\S.*?)\s*")
_OF_MODELS = {name for name, metric in METRICS.items() if metric.section == "models"}
"""Metrics with a number for each model."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on a number of the report.

    A condition has one of three outcomes for each group:

    - "fail": the whole interval of the number is beyond a bound.
    - "pass": the whole interval keeps the bounds. A number without an interval (a count of flips, say) decides alone.
    - "cannot tell": the interval holds a bound; or the number is not defined; or the group has fewer than ``min_cases``
      cases or is not ranked; or there is no such group.

    Intervals of rates, impact ratios and errors hold for all groups of an attribute at once, see
    :func:`cfe_faiss.audit.group_metrics`.

    Parameters
    ----------
    metric
        One of :data:`METRICS`.
    attribute
        The sensitive attribute, or the intersection ("sex & race"), whose groups it is about. None: all of them, and
        all people together.
    at_least, at_most
        Bounds of the number, both included; one of them at least. For metrics of compared models also the name of a
        model, whose number is the bound.
    min_cases
        Groups of fewer cases are not judged, >= 1.

    Raises
    ------
    TypeError, ValueError
        If the metric is unknown, a bound is not a number, none is given, or they contradict each other.

    Examples
    --------
    >>> Condition("impact_ratio", "sex", at_least=0.8)
    Condition(metric='impact_ratio', attribute='sex', at_least=0.8, at_most=None, min_cases=30)
    >>> str(Condition.parse("impact_ratio[sex & race] >= 0.8")), str(Condition.parse("evidence_pairs<=v1"))
    ('impact_ratio[sex & race] >= 0.8', 'evidence_pairs <= v1')
    """

    metric: str
    attribute: str | None = None
    at_least: float | str | None = None
    at_most: float | str | None = None
    min_cases: int = FEWEST_CASES

    def __post_init__(self) -> None:
        check_known("metric must be one of", self.metric, METRICS)
        if self.at_least is self.at_most is None:
            raise ValueError(f"a condition on {self.metric} must have at_least or at_most, got neither")
        numbers = [
            as_number(name, value, -math.inf, math.inf)
            for name, value in self._bounds()
            if value is not None and not (isinstance(value, str) and self.metric in _OF_MODELS)
        ]
        if len(numbers) == 2 and numbers[0] > numbers[1]:
            raise ValueError(f"at_least must be at most at_most, got {numbers[0]} and {numbers[1]}")
        as_count("min_cases", self.min_cases)

    def __str__(self) -> str:
        name = self.metric + ("" if self.attribute is None else f"[{self.attribute}]")
        signs = {"at_least": ">=", "at_most": "<="}
        parts = []
        for bound, value in self._bounds():
            if value is None:
                continue
            shown = value if isinstance(value, str) else np.format_float_positional(float(value), trim="-")
            parts.append(f"{name} {signs[bound]} {shown}")
        return " and ".join(parts)

    @classmethod
    def parse(cls, text: str, min_cases: int = FEWEST_CASES) -> Self:
        """Return the condition that a text such as ``"impact_ratio[sex]>=0.8"`` describes.

        Raises
        ------
        ValueError
            If the text is not of this form.
        """
        match, number = _TEXT.fullmatch(text), math.nan
        with suppress(ValueError):
            number = float(match["bound"]) if match else math.nan
        if match is None or not (math.isfinite(number) or match["metric"] in _OF_MODELS):
            raise ValueError(f"a condition must read like impact_ratio>=0.8 or impact_ratio[sex]>=0.8, got {text!r}")
        bound = number if math.isfinite(number) else match["bound"]
        name = match["attribute"].strip() if match["attribute"] else None
        if match["sign"] == ">=":
            return cls(match["metric"], name, at_least=bound, min_cases=min_cases)
        return cls(match["metric"], name, at_most=bound, min_cases=min_cases)

    def _bounds(self) -> tuple[tuple[str, float | str | None], tuple[str, float | str | None]]:
        return ("at_least", self.at_least), ("at_most", self.at_most)

    @property
    def models(self) -> list[str]:
        """Names of models that are bounds."""
        return [value for _, value in self._bounds() if isinstance(value, str)]

    def judge(self, low: float, high: float, models: Mapping[str, float] = MappingProxyType({})) -> Outcome:
        """Return the outcome for a number with the interval [low, high], given the numbers of the models."""
        least, most = (models[value] if isinstance(value, str) else value for _, value in self._bounds())
        least, most = -math.inf if least is None else least, math.inf if most is None else most
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
        bounds = "" if self.low is None or self.high is None else f", interval {self.low:.4f} to {self.high:.4f}"
        reason = f"; {self.reason}" if self.reason else ""
        return f"{self.outcome}: {self.condition}, {self.name}: {value} (n = {self.n:,}{bounds}){reason}"

    @property
    def name(self) -> str:
        """The attribute and its group."""
        return f"{self.attribute} = {self.group}" if self.attribute else self.group


def overall(checks: Sequence[Check]) -> Outcome | Literal["no conditions"]:
    """Return the worst outcome of all checks; "no conditions" without any."""
    found = {check.outcome for check in checks}
    return next((outcome for outcome in OUTCOMES if outcome in found), "no conditions")


def as_conditions(require: str | Condition | Sequence[str | Condition]) -> tuple[Condition, ...]:
    """Return the conditions that texts or objects describe.

    Raises
    ------
    TypeError, ValueError
        If one of them is neither a text nor a :class:`Condition`, or a text cannot be read.
    """
    given = [require] if isinstance(require, str | Condition) else require
    for one in given:
        if not isinstance(one, str | Condition):
            raise TypeError(f"require must hold texts or Condition objects, got {type(one).__name__}")
    return tuple(Condition.parse(one) if isinstance(one, str) else one for one in given)


def check_all(
    conditions: Sequence[Condition], measures: Sequence[Measure], sensitive: Sequence[str]
) -> tuple[Check, ...]:
    """Return one check for each condition and group. A condition without a group gets one check, too."""
    checks: list[Check] = []
    for condition in conditions:
        nothing = Measure(condition.metric, condition.attribute, "no group", math.nan, 0, unjudged="no such group")
        attributes = {None, *sensitive} if condition.attribute is None else {condition.attribute}
        of_metric = (measure for measure in measures if measure.metric == condition.metric)
        about = [measure for measure in of_metric if measure.attribute in attributes] or [nothing]
        bounds = {measure.group: measure.value for measure in about}
        checks += [_check(condition, measure, bounds) for measure in about if measure.group not in condition.models]
    return tuple(checks)


def measures_of(section: str, rows: Iterable[Row], inputs: Inputs) -> Iterator[Measure]:
    """Yield the numbers in the rows of a section that conditions can be about."""
    metrics = {
        name: metric
        for name, metric in METRICS.items()
        if metric.section == section and ("favourable" not in metric.needs or inputs.has("favourable"))
    }
    for row in rows:
        attribute, group = inputs.place_of(row)
        for name, metric in metrics.items():
            key = metric.key
            if metric.is_ranked and attribute is None:
                continue
            bounds = (f"{key}_low", f"{key}_high") if f"{key}_low" in row else ("low", "high")
            low, high = (row.get(bound) for bound in bounds)
            value = math.nan if row[key] is None else float(row[key])
            unjudged = "the group is not ranked" if metric.is_ranked and not row["ranked"] else ""
            yield Measure(name, attribute, group, value, row[metric.n], low, high, unjudged)


def check_conditions(conditions: Sequence[Condition], inputs: Inputs) -> None:
    """Raise ValueError if a condition is about something that a report of these inputs does not measure."""
    known = inputs.attributes_and_pairs
    for condition in conditions:
        if condition.attribute is not None:
            check_known("require must be about sensitive attributes or two of them crossed", condition.attribute, known)
        section = METRICS[condition.metric].section
        if section in inputs.settings.skip:
            raise ValueError(f"skip must not name {section!r}, which measures {condition.metric}, a condition")
        needs = (need for need in METRICS[condition.metric].needs if not inputs.has(need))
        lacking = [_TRUTH if need == "truth" else need for need in needs]
        if lacking:
            raise ValueError(f"a condition on {condition.metric} must come with {join_words(lacking)}, got none")
        for name in condition.models:
            check_known("require must name models that are compared", name, inputs.models or ())


def _check(condition: Condition, measure: Measure, models: Mapping[str, float]) -> Check:
    value = None if math.isnan(measure.value) else measure.value
    outcome: Outcome = "cannot tell"
    reason = measure.unjudged
    if not reason and measure.n < condition.min_cases:
        reason = f"fewer than {condition.min_cases:,} cases"
    elif not reason and value is None:
        reason = "the number is not defined"
    elif not reason:
        low, high = ((measure.value if bound is None else bound) for bound in (measure.low, measure.high))
        outcome = condition.judge(low, high, models)
        reason = "the interval holds a bound" if outcome == "cannot tell" else ""
    bounds = (measure.low, measure.high)
    return Check(condition, measure.attribute, measure.group, value, measure.n, *bounds, outcome, reason)
