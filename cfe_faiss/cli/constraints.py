"""Constraints on pairs from options."""

import argparse
from collections.abc import Iterable
from typing import Any

from cfe_faiss.attributes.constraints import Constraints
from cfe_faiss.attributes.table import Attributes
from cfe_faiss.base.checks import did_you_mean
from cfe_faiss.cli.case import class_names, number
from cfe_faiss.cli.parser import call

CONSTRAINTS = (
    *("exact", "antiexact", "caliper", "std_caliper", "permitted", "target"),
    *("max_changed", "min_hops", "no_common_neighbours", "ratio"),
)


def constraints(arguments: argparse.Namespace, attributes: Attributes, classes: list[str]) -> Constraints | None:
    """Return the constraints of the options; None without any."""
    found: Constraints = call(
        Constraints,
        arguments,
        caliper=dict(_numbers("--caliper", arguments.caliper, attributes)),
        std_caliper=dict(_numbers("--std-caliper", arguments.std_caliper, attributes)),
        permitted={
            name: _parse_permitted(name, text, attributes)
            for name, text in parse_named("--permitted", arguments.permitted, attributes)
        },
        target=class_names(classes, "--target", arguments.target),
        common_neighbors=not arguments.no_common_neighbours,
    )
    return found or None


def parse_named(option: str, texts: list[str] | None, attributes: Attributes) -> Iterable[tuple[str, str]]:
    """Yield name and rest of each "NAME=..."; a name may hold a "=", so the longest known name counts."""
    for text in texts or ():
        known = [name for name in attributes if text.startswith(f"{name}=")]
        if not known:
            some, hint = ", ".join(list(attributes)[:20]), did_you_mean(text.partition("=")[0], attributes)
            raise ValueError(f"{option} must be like NAME=VALUE, with a name of {some}; got {text!r}{hint}")
        name = max(known, key=len)
        yield name, text[len(name) + 1 :]


def _numbers(option: str, texts: list[str] | None, attributes: Attributes) -> Iterable[tuple[str, float]]:
    for name, text in parse_named(option, texts, attributes):
        yield name, number(option, name, text)


def _parse_permitted(name: str, text: str, attributes: Attributes) -> Any:
    """Return the range of "LOW:HIGH", of which one may be left out, or the values of "A,B,C"."""
    numeric = attributes[name].numbers is not None
    if numeric and ":" in text:
        low, _, high = text.partition(":")
        return number("--permitted", name, low or "-inf"), number("--permitted", name, high or "inf")
    values = [value.strip() for value in text.split(",")]
    return [number("--permitted", name, value) for value in values] if numeric else values
