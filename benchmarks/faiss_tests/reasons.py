"""Reasons for failures of FAISS's tests with evidence indexes."""

import re
from typing import Any

PASSES = "passes"
UNIT = "passes on unit vectors"
BOTH = "fails with stock FAISS"
LENGTHS = "needs vectors of other lengths"
REFUSED = "uses an operation that evidence indexes refuse, as documented"
CLASS = "requires exactly the stock class"
CRASH = "ends the process"
OTHER = "another difference"
UNEXPLAINED = "no reason known"
VERDICTS = (PASSES, UNIT, BOTH, LENGTHS, REFUSED, CLASS, CRASH, OTHER, UNEXPLAINED)

ABOUT = {
    UNIT: [
        "Evidence indexes normalise their vectors, and FAISS's helpers generate other lengths for these tests.",
        "If the helpers generate unit vectors, the tests pass.",
        "",
    ],
    LENGTHS: [
        "These tests create vectors of other lengths themselves, or depend on the lengths: they also fail with stock",
        "indexes that normalise their vectors. The error is from such stock indexes.",
        "",
    ],
    CRASH: [
        "These tests end the process, or do not return, with evidence indexes only.",
        "",
    ],
}

ERRORS: tuple[tuple[str, str, str], ...] = (
    (
        "reads vectors by position",
        REFUSED,
        "an exact index with ids of its own does not stand in for an `IndexFlatIP`, whose ids are positions",
    ),
    (
        r"index type <class .*> not supported",
        CLASS,
        "takes an index whose class is exactly FAISS's: `faiss.downcast_index(index)` is that, without a copy",
    ),
    (
        "ids must not be in the index yet",
        REFUSED,
        "an id is stored once: two indexes with the same ids are merged with `add_id`",
    ),
)
"""Pattern of an error, verdict, and reason."""

TESTS: dict[str, tuple[str, str]] = {}
"""Test without its module, verdict, and reason, found by inspection."""


def verdict(test: str, ours: Any, stock: Any, on_unit: Any, normalising: Any) -> tuple[str, str]:
    """Return the verdict on a test, and the reason.

    Outcomes: with evidence indexes; with stock indexes; and, if only the former fail, with evidence indexes on unit
    vectors, and with stock indexes that normalise.
    """
    if ours.state == "ok":
        return PASSES, ""
    if stock.state != "ok":
        return BOTH, f"{stock.state}: {_short(stock)}"
    known = TESTS.get(test.partition(".")[2])
    if known is not None:
        return known
    for pattern, kind, text in ERRORS:
        if re.search(pattern, ours.message):
            return kind, text
    if ours.state == "not finished":
        return CRASH, ", ".join(ours.made)
    if on_unit.state == "ok":
        return UNIT, ""
    if normalising.state != "ok":
        return LENGTHS, f"stock indexes that normalise: {_short(normalising)}"
    return UNEXPLAINED, f"{ours.state}: {_short(ours)}"


def _short(outcome: Any) -> str:
    lines = [line for line in outcome.message.splitlines() if line.strip()]
    return " ".join(lines)[:120]
