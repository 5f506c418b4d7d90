"""Texts for readers: numbers, summaries of records, and cells that are no formulas."""

import math
import re
import unicodedata
from dataclasses import fields
from typing import Any

import numpy as np

_VECTOR_ERROR = 2.0**-22
"""Bound on the error of a KS vector.

The largest measured error on the paper's graphs is 1.6e-7 (L = 3).
"""

_PLACES_OF_FLOAT32 = 6
_BEYOND_COSINES = 1.001
_LONGEST = 60
_NUMBER = r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?"
PLAIN_NUMBER = re.compile(f"{_NUMBER}( (to|-|–) {_NUMBER})?", re.IGNORECASE)
"""A number, or a range of numbers, which is no formula."""
FORMULA_STARTS = tuple("=+-@＝＋－＠")
"""Characters that start a formula, full-width forms included."""


def similarity_error(similarity: float) -> float:
    """Return a bound on the rounding error of :func:`cfe_faiss.ks_similarity` in float64.

    Vectors are float32 and within e = 2**-22 of the exact ones (measured: at most 1.6e-7 on German,
    Bail, Cora, Facebook and the patients, with the default ``num_layers``). For unit vectors at
    distance r, 1 - s = r**2 / 2. Two errors of e change r by at most 2 e, and so s by at most 2 e r
    + 2 e**2. Similarities of closer vectors have more significant digits.

    Parameters
    ----------
    similarity
        In [-1, 1].

    Examples
    --------
    >>> similarity_error(0.5) < 5e-7, similarity_error(0.9999999) < 5e-10
    (True, True)
    """
    distance = math.sqrt(max(0.0, 2 - 2 * similarity))
    return 2 * _VECTOR_ERROR * (distance + _VECTOR_ERROR)


def format_similarity(similarity: float) -> str:
    """Return a similarity as text with its significant decimals.

    Parameters
    ----------
    similarity
        A float64 of :func:`cfe_faiss.ks_similarity`, which is 1 for equal vectors only; or a
        float32 of a search, which has six significant decimals and may be 1 for different vectors.

    Returns
    -------
    str
        "1" only for a float64 of 1. Values that would round to 1 are truncated; a float32 in this
        range is "> 0.999999". NaN (no similarity) is "". An inner product beyond 1 has six
        significant digits.

    Examples
    --------
    >>> format_similarity(1.0), format_similarity(0.99999987), format_similarity(0.75)
    ('1', '0.999999870', '0.750000')
    >>> format_similarity(1 - 1e-16), format_similarity(np.float32(1))
    ('0.999999999999', '> 0.999999')
    """
    if math.isnan(similarity):
        return ""
    if abs(similarity) > _BEYOND_COSINES:
        return f"{float(similarity):.6g}"
    single = isinstance(similarity, np.float32)
    value = float(similarity)
    if value == 1 and not single:
        return "1"
    places = _PLACES_OF_FLOAT32 if single else math.floor(-math.log10(2 * similarity_error(value)))
    text = f"{value:.{places}f}"
    if float(text) < 1:
        return text
    below = "0." + "9" * places
    return f"> {below}" if single else below


def format_measure(measure: str, value: float) -> str:
    """Return a similarity as :func:`format_similarity` does, or a distance: "0" if equal.

    Examples
    --------
    >>> format_measure("distance", 0.0), format_measure("distance", 1.23456789)
    ('0', '1.2346')
    >>> format_measure("similarity", 0.75)
    '0.750000'
    """
    if measure == "similarity" or math.isnan(value):
        return format_similarity(value)
    return f"{value:.5g}"


def summary(record: Any) -> str:
    """Return a dataclass object as text: arrays by size, floats with four digits.

    It is the ``__repr__`` of the dataclasses that hold arrays, tables or measured numbers.

    Examples
    --------
    >>> from cfe_faiss.graph import as_graph
    >>> as_graph([[0, 1], [1, 2]])
    Graph(indptr=int64 (4,), indices=int32 (4,), weights=None, directed=False)
    """
    parts = (f"{field.name}={_short(getattr(record, field.name))}" for field in fields(record))
    return f"{type(record).__name__}({', '.join(parts)})"


def _short(value: Any) -> str:
    if hasattr(value, "columns") and hasattr(value, "shape"):
        return f"table of {value.shape[0]:,} lines"
    if isinstance(value, float | np.floating):
        return f"{value:.4g}"
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return (
            f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}"
            if value.shape
            else str(value)
        )
    text = repr(value)
    return (
        f"{type(value).__name__} of {len(value):,}"
        if len(text) > _LONGEST and hasattr(value, "__len__")
        else text
    )


def cell_text(value: Any) -> str:
    r"""Return a value without characters that move the cursor of a terminal or reverse a line.

    Examples
    --------
    >>> cell_text(0.1234567), cell_text(1234567.25), cell_text(None), cell_text("a\tb")
    ('0.123457', '1234567', 'unknown', 'a�b')
    """
    if value is None:
        return "unknown"
    if isinstance(value, float | np.floating):
        value = f"{value:.6g}" if abs(float(value)) < 1e6 else f"{value:.0f}"
    text = str(value)
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text
    )


def csv_text(text: str) -> str:
    r"""Return a text that no spreadsheet takes for a formula, without control characters.

    A text that starts like a formula gets an apostrophe (OWASP, "CSV injection"). Numbers and
    number ranges stay.

    Examples
    --------
    >>> csv_text("=1+1"), csv_text("-2+3+cmd|' /C calc'!A0")
    ("'=1+1", "'-2+3+cmd|' /C calc'!A0")
    >>> csv_text("-2.5"), csv_text("-5 to 3"), csv_text("a\nb")
    ('-2.5', '-5 to 3', 'a b')
    """
    if not text.isprintable():
        text = "".join(
            {"Cc": " ", "Cs": "\ufffd"}.get(unicodedata.category(one), one) for one in text
        )
    is_formula = text.lstrip().startswith(FORMULA_STARTS) and not PLAIN_NUMBER.fullmatch(text)
    return f"'{text}" if is_formula else text


def value_name(value: Any) -> str:
    """Return the name of a value in groups: a whole number without a point, others as Python."""
    is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    is_whole = is_number and abs(value) < 1e15 and value == round(float(value))
    return f"{value + 0:.0f}" if is_whole else str(value)
