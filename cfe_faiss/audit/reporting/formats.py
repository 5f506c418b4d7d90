"""Numbers and texts as readers see them."""

import math
import unicodedata
from collections.abc import Iterable
from typing import Any

LONGEST = 120
"""Characters of a value that the page shows."""


def shown(value: object, longest: int = LONGEST) -> str:
    r"""Return a text that can be shown: a long one is cut in the middle, and no invisible character stays in it.

    Examples
    --------
    >>> shown("a" * 100 + "b", 10)
    'aaaaa…aaaab (101 characters)'
    >>> shown("tab\tnul\x00 \ufffe")
    'tab nul� �'
    """
    text = str(value)
    if len(text) > longest:
        tail = longest // 2
        text = f"{text[: longest - tail]}…{text[len(text) - tail :]} ({len(text):,} characters)"
    return "".join(_visible(character) for character in text)


def _visible(character: str) -> str:
    if character in "\t\n\r":
        return " "
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
    return ", ".join(f"{shown(name)} = {shown(one)}" for name, one in zip(names, values, strict=True))


def count(value: float) -> str:
    """Return a count with its thousands parted."""
    return f"{value:,.0f}"


def share(value: float | None) -> str:
    """Return a share in per cent.

    Examples
    --------
    >>> share(0.1234), share(0.99999), share(1.0), share(0.0004), share(float("nan"))
    ('12.3%', '> 99.9%', '100%', '< 0.1%', 'not defined')
    """
    if value is None or math.isnan(value):
        return "not defined"
    if 0 < value < 0.0005:
        return "< 0.1%"
    if 0.9995 <= value < 1:
        return "> 99.9%"
    return f"{100 * value:.0f}%" if value in (0, 1) else f"{100 * value:.1f}%".replace("-", "\N{MINUS SIGN}")


def score(value: float | None) -> str:
    """Return a number between 0 and 1, or a ratio, with three decimals."""
    return "not defined" if value is None or math.isnan(value) else f"{value:.3f}".replace("-", "\N{MINUS SIGN}")


def signed(value: float | None) -> str:
    """Return a difference with its sign and three decimals.

    Examples
    --------
    >>> signed(0.0312), signed(-0.5)
    ('+0.031', '−0.500')
    """
    return "not defined" if value is None or math.isnan(value) else f"{value:+.3f}".replace("-", "\N{MINUS SIGN}")


def points(value: float | None) -> str:
    """Return a difference of shares in percentage points.

    Examples
    --------
    >>> points(0.0412), points(-0.5)
    ('+4.1 points', '−50.0 points')
    """
    if value is None or math.isnan(value):
        return "not defined"
    return f"{100 * value:+.1f} points".replace("-", "\N{MINUS SIGN}")


def similarity(value: float) -> str:
    """Return a similarity with six decimals; 1 only for equal vectors.

    Examples
    --------
    >>> similarity(0.75), similarity(1 - 1e-12), similarity(1.0)
    ('0.750000', '> 0.999999', '1')
    """
    if value == 1:
        return "1"
    return f"{value:.6f}" if value < 0.9999995 else "> 0.999999"


def number(value: float | None) -> str:
    """Return a value in its own unit: whole numbers in full, others to four digits.

    Examples
    --------
    >>> number(12500.0), number(0.30710003), number(-2)
    ('12,500', '0.3071', '−2')
    """
    if value is None or math.isnan(value):
        return "not defined"
    whole = value == round(value) if math.isfinite(value) else False
    text = f"{value:,.0f}" if whole and abs(value) < 1e12 else f"{value:,.4g}"
    return text.replace("-", "\N{MINUS SIGN}")


def p_value(value: float | None) -> str:
    """Return a p-value, without digits that say nothing.

    Examples
    --------
    >>> p_value(0.0312), p_value(1e-9)
    ('0.031', '< 0.001')
    """
    if value is None or math.isnan(value):
        return "not defined"
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def written(value: Any, kind: str) -> str:
    """Return a value of a table as the page shows it."""
    if kind == "flag":
        return "yes" if value else "no" if value is not None else "not known"
    if kind not in ("text", "long") and undefined(value):
        return "–"
    if kind in ("text", "long") or isinstance(value, str):
        return "" if value is None else shown(value, 300 if kind == "long" else LONGEST)
    return _KINDS[kind](value)


def interval(low: float | None, high: float | None, kind: str) -> str:
    """Return an interval; empty where there is none."""
    if undefined(low) or undefined(high):
        return ""
    if kind in ("signed", "points"):
        return f"{written(low, kind).removesuffix(' points')} to {written(high, kind)}"
    return f"{written(low, kind)}–{written(high, kind)}"


def undefined(value: object) -> bool:
    """Return whether there is no number."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def listed(words: Iterable[str]) -> str:
    """Return words as a sentence lists them.

    Examples
    --------
    >>> listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"])
    ('a', 'a and b', 'a, b and c')
    """
    *some, last = words
    return f"{', '.join(some)} and {last}" if some else last


def plural(n: int, noun: str, nouns: str = "") -> str:
    """Return a count with its noun.

    Examples
    --------
    >>> plural(1, "pair"), plural(1200, "pair"), plural(2, "class", "classes")
    ('1 pair', '1,200 pairs', '2 classes')
    """
    return f"{n:,} {noun if n == 1 else nouns or noun + 's'}"


_KINDS = {
    "count": count,
    "share": share,
    "score": score,
    "signed": signed,
    "points": points,
    "number": number,
    "side": number,
    "p-value": p_value,
    "similarity": similarity,
}
