"""Why a test of FAISS's fails with evidence indexes."""

import re
from typing import Any

PASSES = "passes"
UNIT = "passes where its data are unit vectors"
BOTH = "fails with stock FAISS, too"
LENGTHS = "needs vectors of other lengths than 1"
REFUSED = "asks for what evidence indexes refuse, as documented"
CLASS = "asks for exactly the stock class"
OTHER = "another difference"
UNEXPLAINED = "no reason known"
VERDICTS = (PASSES, UNIT, BOTH, LENGTHS, REFUSED, CLASS, OTHER, UNEXPLAINED)

ABOUT = {
    UNIT: [
        "Evidence indexes normalise what they are given, and FAISS's helpers give these tests longer and shorter ones.",
        "Where the helpers make unit vectors, the tests pass.",
        "",
    ],
    LENGTHS: [
        "These tests make vectors of other lengths themselves, or turn on the lengths: they fail with stock indexes,",
        "too, where these normalise what they are given. The error is that of such stock indexes.",
        "",
    ],
}

ERRORS: tuple[tuple[str, str, str], ...] = (
    (
        "add does not make sense with IndexIDMap",
        REFUSED,
        "the exact index is an id map, and FAISS's C++ code cannot add to one without ids: so FAISS can neither train "
        "it as a coarse quantizer nor fill it from a wrapper",
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
    (
        r"has no attribute 'permute_entries'",
        REFUSED,
        "the exact index is an `IndexIDMap2`, which has no `permute_entries`; its rows are in order of their classes",
    ),
)
"""An error of ours, the verdict, and what there is to say of it."""

TESTS: dict[str, tuple[str, str]] = {}
"""A test without its module, the verdict, and the reason, which somebody has looked for."""


def verdict(test: str, ours: Any, stock: Any, on_unit: Any, normalising: Any) -> tuple[str, str]:
    """Return the verdict on a test, and the reason.

    Outcomes: with evidence indexes; with stock ones; and, where only the former fail, with evidence indexes on unit
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
    if on_unit.state == "ok":
        return UNIT, ""
    if normalising.state != "ok":
        return LENGTHS, f"stock indexes that normalise: {_short(normalising)}"
    return UNEXPLAINED, f"{ours.state}: {_short(ours)}"


def _short(outcome: Any) -> str:
    lines = [line for line in outcome.message.splitlines() if line.strip()]
    return " ".join(lines)[:120]
