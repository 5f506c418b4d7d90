"""Forms of JSON values: each says what a value must be.

Errors name the field, the expectation and the value.
"""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

LARGEST = 1 << 62
"""Largest number of rows, bytes or vectors in a file."""


@dataclass(frozen=True, slots=True)
class Field:
    """Value of a field.

    Attributes
    ----------
    expectation
        Description of a valid value, for errors.
    accepts
        Return whether a value is as expected.
    """

    expectation: str
    accepts: Callable[[Any], bool]


Form = Field | dict[str, Any] | list[Any]
"""Form of a value: a field, a list of one form, or a mapping by names ("?" for optional)."""


def integer(low: int, high: int = LARGEST) -> Field:
    """Return the field of an integer in a range."""
    return Field(
        f"an integer from {low} to {high}",
        lambda value: type(value) is int and low <= value <= high,
    )


def number(low: float, high: float = LARGEST) -> Field:
    """Return the field of a finite number in a range."""
    expectation = f"a number from {low:g} to {high:g}"
    return Field(expectation, lambda value: type(value) in (int, float) and low <= value <= high)


def text(pattern: str, expectation: str) -> Field:
    """Return the field of a text that a regular expression matches as a whole."""
    return Field(
        expectation, lambda value: type(value) is str and re.fullmatch(pattern, value) is not None
    )


def one_of(choices: Collection[Any]) -> Field:
    """Return the field of a value that has one of these values and its type."""
    typed_choices = [(type(choice), choice) for choice in choices]
    return Field(
        f"one of {', '.join(map(repr, choices))}",
        lambda value: (type(value), value) in typed_choices,
    )


def optional(field: Field) -> Field:
    """Return a field that may also be null."""
    return Field(
        f"{field.expectation}, or null", lambda value: value is None or field.accepts(value)
    )


NATURAL = integer(0)
CHECKSUM = integer(0, (1 << 32) - 1)
BOOLEAN = one_of([False, True])
ANY_LIST = Field("a list", lambda value: isinstance(value, list))
ANY_MAPPING = Field("a mapping", lambda value: isinstance(value, dict))


def check(value: Any, form: Form, name: str = "") -> None:
    """Raise ValueError that names the field if a value has not this form."""
    if isinstance(form, Field):
        if not form.accepts(value):
            raise ValueError(
                f"{name or 'the content'} must be {form.expectation}, got {value!r:.80}"
            )
    elif isinstance(form, list):
        check(value, ANY_LIST, name)
        for place, part in enumerate(value):
            check(part, form[0], f"{name}[{place}]")
    else:
        check(value, ANY_MAPPING, name)
        start = f"{name}." if name else ""
        missing = next(
            (field for field in form if field not in value and not field.endswith("?")), None
        )
        if missing is not None:
            raise ValueError(f"{start}{missing} is missing")
        for field, part in value.items():
            inner = form.get(field, form.get(f"{field}?"))
            if inner is None:
                raise ValueError(f"{start}{field:.80} is unknown")
            check(part, inner, f"{start}{field}")
