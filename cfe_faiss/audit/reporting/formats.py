"""Numbers and texts as readers see them, and DataFrames as rows of plain values."""

import math
import re
import unicodedata
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from cfe_faiss.base.checks import is_missing

if TYPE_CHECKING:
    import pandas as pd

LONGEST = 120
"""Characters of a value that the page shows."""
MINUS = "\N{MINUS SIGN}"


def show(value: object, longest: int = LONGEST) -> str:
    r"""Return a text for the page: shortened in the middle, without invisible characters.

    Examples
    --------
    >>> show("a" * 100 + "b", 10)
    'aaaaa…aaaab (101 characters)'
    >>> show("tab\tnul\x00 \ufffe")
    'tab nul� �'
    """
    text = str(value)
    if len(text) > longest:
        tail = longest // 2
        text = f"{text[: longest - tail]}…{text[len(text) - tail :]} ({len(text):,} characters)"
    return visible(re.sub(r"[\t\n\r]", " ", text))


def with_article(noun: str) -> str:
    """Return a noun behind "a" or "an".

    Examples
    --------
    >>> with_article("applicant"), with_article("person"), with_article("user")
    ('an applicant', 'a person', 'a user')
    """
    return f"{'an' if re.match('(?!uni|use|eu)[aeiou]', noun, re.IGNORECASE) else 'a'} {noun}"


def visible(value: object) -> str:
    """Return a text without invisible characters; line ends stay."""
    return "".join(_show_character(character) for character in str(value))


def _show_character(character: str) -> str:
    if character == "\n":
        return character
    # XML 1.0 forbids control characters, lone surrogates, U+FFFE and U+FFFF; formatting characters can reverse a text.
    hidden = character in "\ufffe\uffff" or unicodedata.category(character) in ("Cc", "Cs", "Cf")
    return "\ufffd" if hidden else character


def group_name(attribute: object, value: object) -> str:
    """Return the name of a group, or of an intersection of groups.

    Examples
    --------
    >>> group_name("sex", "f"), group_name("sex & age", "f & 18-35")
    ('sex = f', 'sex = f, age = 18-35')
    """
    names, values = str(attribute).split(" & "), str(value).split(" & ")
    if len(names) != len(values):
        names, values = [str(attribute)], [str(value)]
    return ", ".join(f"{show(name)} = {show(one)}" for name, one in zip(names, values, strict=True))


def number(value: float | None, kind: str) -> str:
    """Return a number of a kind.

    Kinds: "count"; "share" in per cent; "score" and "signed" with three decimals; differences of shares in percentage
    "points", without a sign as a "gap"; "similarity" with six decimals, 1 only for equal vectors; "distance", 0 only
    for equal ones; "number" and "side" in the unit of an attribute; "p-value", and "q" with its sign of equality.

    Examples
    --------
    >>> [number(value, "share") for value in (0.1234, 0.99999, 1.0, 0.0004, float("nan"))]
    ['12.3%', '> 99.9%', '100%', '< 0.1%', 'not defined']
    >>> number(-0.5, "signed"), number(0.0412, "points"), number(0.0412, "gap")
    ('−0.500', '+4.1 points', '4.1 points')
    >>> [number(value, "similarity") for value in (0.75, 1 - 1e-12, 1.0)]
    ['0.750000', '> 0.999999', '1']
    >>> [number(value, "number") for value in (12500.0, 12440.25, 0.30710003, 0.00001234, -2)]
    ['12,500', '12,440', '0.3071', '0.00001234', '−2']
    >>> number(0.0312, "p-value"), number(1e-9, "q")
    ('0.031', 'q < 0.001')
    """
    if value is None or math.isnan(value):
        return "not defined"
    return _KINDS[kind](value).replace("-", MINUS)


def _share(value: float) -> str:
    if 0 < value < 0.0005:
        return "< 0.1%"
    if 0.9995 <= value < 1:
        return "> 99.9%"
    return f"{100 * value:.0f}%" if value in (0, 1) else f"{100 * value:.1f}%"


def _similarity(value: float) -> str:
    return "1" if value == 1 else f"{value:.6f}" if value < 0.9999995 else "> 0.999999"


def _format_in_unit(value: float) -> str:
    if not math.isfinite(value):
        return str(value)
    if value == round(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return np.format_float_positional(float(f"{value:.4g}"), trim="-")


_KINDS: dict[str, Callable[[float], str]] = {
    "count": "{:,.0f}".format,
    "share": _share,
    "score": "{:.3f}".format,
    "signed": "{:+.3f}".format,
    "points": lambda value: f"{100 * value:+.1f} points",
    "+points": lambda value: f"{100 * value:+.1f}",
    "gap": lambda value: f"{100 * value:.1f} points",
    "number": _format_in_unit,
    "side": _format_in_unit,
    "p-value": lambda value: "< 0.001" if value < 0.001 else f"{value:.3f}",
    "q": lambda value: "q < 0.001" if value < 0.001 else f"q = {value:.3f}",
    "similarity": _similarity,
    "distance": "{:,.4g}".format,
}


def show_value(value: Any, kind: str) -> str:
    """Return a value of a table as the page shows it."""
    if kind == "flag":
        return "unknown" if value is None else "yes" if value else "no"
    if kind in ("text", "long") or isinstance(value, str):
        return "" if value is None else show(value, 300 if kind == "long" else LONGEST)
    return "–" if is_undefined(value) else number(value, kind)


def interval(bounds: tuple[float | None, float | None], kind: str) -> str:
    """Return an interval; empty if there is none.

    Examples
    --------
    >>> interval((0.1, 0.25), "share"), interval((-0.02, 0.04), "points")
    ('10.0%–25.0%', '−2.0 to +4.0 points')
    """
    if is_undefined(bounds[0]) or is_undefined(bounds[1]):
        return ""
    low, high = (show_value(bound, kind) for bound in bounds)
    return f"{low.removesuffix(' points')} to {high}" if kind in ("signed", "points") else f"{low}–{high}"


def is_undefined(value: object) -> bool:
    """Return whether there is no number."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def join_words(words: Iterable[str], link: str = "and") -> str:
    """Return words as a sentence lists them.

    Examples
    --------
    >>> join_words(["a"]), join_words(["a", "b"], "or"), join_words(["a", "b", "c"])
    ('a', 'a or b', 'a, b and c')
    """
    names = list(words)
    return f"{', '.join(names[:-1])} {link} {names[-1]}" if len(names) > 1 else "".join(names)


def first_lines(text: str, most: int, others: str) -> str:
    r"""Return the first lines, and how many others there are.

    Examples
    --------
    >>> first_lines("a\nb\nc\n", 1, "are below.")
    'a\n2 more are below.'
    """
    lines = [line for line in text.split("\n") if line.strip()]
    left = len(lines) - most
    return "\n".join(lines if left <= 0 else [*lines[:most], f"{left:,} more {others}"])


def list_first(words: Iterable[str], most: int, separator: str = ", ") -> str:
    """Return the first words, and the number of the others.

    Examples
    --------
    >>> list_first("abcd", 2)
    'a, b and 2 more'
    """
    names = list(words)
    return separator.join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")


def plural(n: int, noun: str, nouns: str = "") -> str:
    """Return a count with its noun.

    Examples
    --------
    >>> plural(1, "pair"), plural(1200, "pair"), plural(2, "class", "classes")
    ('1 pair', '1,200 pairs', '2 classes')
    """
    return f"{n:,} {noun if n == 1 else nouns or noun + 's'}"


def rows_of(frame: "pd.DataFrame") -> list[dict[str, Any]]:
    """Return one mapping of plain Python values per line; None for missing values."""
    return [{str(name): to_python(value) for name, value in line.items()} for line in frame.to_dict("records")]


def to_python(value: Any) -> Any:
    """Return a scalar of NumPy or pandas as one of Python; None for missing values, NaN and infinity."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return None if is_missing(value) else str(value)
