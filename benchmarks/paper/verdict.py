"""The rule by which a claim of the paper holds, holds in part, or does not.

A claim is broken down into cases: one graph (and setting) each, with one number per seed and a bound. A case *passes*
when the 95 % t-interval of the mean over the seeds lies on the claim's side of the bound, *fails* when it lies on the
other side, and is *undecided* when the bound lies within. The claim *holds* when all its cases pass, *holds in part*
when some do, *does not hold* when none does and some fail, and is *undecided* when all are. The column "cases" says
how many pass, fail or are undecided, since five seeds that leave a case undecided do not refute it. Three kinds of
claim are named and not counted among those that hold: a claim that follows from a definition *holds by definition*; a
claim whose cases are all on synthetic graphs gets its verdict *on synthetic graphs only*; a claim that no public data
can test is *not checked*. In the other claims, cases on synthetic graphs are shown and do not count.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

from scipy.stats import t

SHAPE = "synthetic, of its shape"
"""Source of a graph whose cases are shown and do not count."""


@dataclass(frozen=True)
class Case:
    """One number per seed, and the bound that the claim puts on their mean: above it, at least it or at most it."""

    name: str
    values: Sequence[float | None]
    above: float | None = None
    least: float | None = None
    most: float | None = None
    source: str = ""

    @property
    def counted(self) -> bool:
        return self.source != SHAPE

    def __post_init__(self) -> None:
        if [self.above, self.least, self.most].count(None) != 2:
            raise ValueError(
                f"a case must have one bound, got {self.above}, {self.least} and {self.most}"
            )

    def known(self) -> list[float]:
        return [float(value) for value in self.values if value is not None and math.isfinite(value)]

    def interval(self) -> tuple[float, float]:
        """Return the 95 % t-interval of the mean; of a single number nothing is known, and it spans everything."""
        values = self.known()
        if len(values) < 2:
            return -math.inf, math.inf
        half = float(t.ppf(0.975, len(values) - 1)) * stdev(values) / math.sqrt(len(values))
        return mean(values) - half, mean(values) + half

    def outcome(self) -> str:
        low, high = self.interval()
        if self.above is not None:
            passes, fails = low > self.above, high <= self.above
        elif self.least is not None:
            passes, fails = low >= self.least, high < self.least
        else:
            passes, fails = high <= (self.most or 0), low > (self.most or 0)
        return "passes" if passes else "fails" if fails else "undecided"

    def row(self) -> dict[str, str]:
        bounds = {">": self.above, ">=": self.least, "<=": self.most}
        return {
            "case": self.name,
            "mean ± standard deviation": spread(self.known()),
            "bound": next(f"{sign} {v:g}" for sign, v in bounds.items() if v is not None),
            "outcome": self.outcome() + ("" if self.counted else " (not counted)"),
        }


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, its place there, the measured quantity, and whether it is true by definition."""

    text: str
    where: str
    measured: str
    cases: Sequence[Case]
    note: str = ""
    by_definition: bool = False

    def verdict(self) -> str:
        if self.by_definition:
            return "holds by definition"
        counted = [case for case in self.cases if case.counted]
        if not self.cases:
            return "not checked"
        outcomes = {case.outcome() for case in counted or self.cases}
        return _word(outcomes) + ("" if counted else " on synthetic graphs only")


def _word(outcomes: set[str]) -> str:
    if "passes" in outcomes:
        return "holds" if len(outcomes) == 1 else "holds in part"
    return "does not hold" if "fails" in outcomes else "undecided"


def tally(cases: Sequence[Case]) -> str:
    """Count the outcomes of the counted cases, or of all cases if none is counted."""
    counted = [case for case in cases if case.counted]
    outcomes = [case.outcome() for case in counted or cases]
    return ", ".join(
        f"{outcomes.count(word)} {word}"
        for word in ("passes", "fails", "undecided")
        if word in outcomes
    )


def spread(values: Sequence[float], digits: int = 3) -> str:
    """Return mean ± standard deviation of numbers, and how many they are; in more digits where all are small."""
    if not values:
        return "none"
    if max(map(abs, values)) < 0.05:
        digits += 2
    deviation = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{mean(values):.{digits}f}{deviation} (n = {len(values)})"


def minus(first: Sequence[float | None], second: Sequence[float | None]) -> list[float | None]:
    """Return the differences seed by seed, None where a seed has no number."""
    return [None if a is None or b is None else a - b for a, b in zip(first, second, strict=True)]


def cell(values: Sequence[float | None], digits: int = 3) -> str:
    """Return mean ± standard deviation for a table whose caption says how many numbers they are of."""
    numbers = [float(value) for value in values if value is not None and math.isfinite(value)]
    if not numbers:
        return "-"
    return f"{mean(numbers):.{digits}f}" + (
        f" ± {stdev(numbers):.{digits}f}" if len(numbers) > 1 else ""
    )


def markdown(rows: Sequence[Mapping[str, object]]) -> str:
    """Return a table of rows, whose keys are the heads of the columns."""
    if not rows:
        return ""
    head = list(rows[0])
    lines = [head, ["---"] * len(head), *([str(entry) for entry in row.values()] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def graphs(result: Mapping[str, Any]) -> dict[str, str]:
    """Return the graphs of a result, and where each comes from."""
    return {row["graph"]: row["source"] for row in result["rows"]}


def rows_of(result: Mapping[str, Any], **wanted: Any) -> list[dict[str, Any]]:
    """Return the rows of a result with these values, one per seed."""
    return [row for row in result["rows"] if all(row[key] == wanted[key] for key in wanted)]
