"""Text that is safe in a spreadsheet."""

import re
import unicodedata

_NUMBER = r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?"
_PLAIN = re.compile(f"{_NUMBER}( (to|-|–) {_NUMBER})?", re.IGNORECASE)
_FORMULA = tuple("=+-@＝＋－＠")
"""Characters that start a formula, full-width forms included."""


def csv_text(text: str) -> str:
    r"""Return a text that no spreadsheet takes for a formula, without control characters and lone surrogates.

    A text that starts like a formula gets an apostrophe (OWASP, "CSV injection"). Numbers and number ranges stay.

    Examples
    --------
    >>> csv_text("=1+1"), csv_text("-2+3+cmd|' /C calc'!A0"), csv_text("-2.5"), csv_text("-5 to 3"), csv_text("a\nb")
    ("'=1+1", "'-2+3+cmd|' /C calc'!A0", '-2.5', '-5 to 3', 'a b')
    """
    if not text.isprintable():
        text = "".join({"Cc": " ", "Cs": "\ufffd"}.get(unicodedata.category(one), one) for one in text)
    is_formula = text.lstrip().startswith(_FORMULA) and not _PLAIN.fullmatch(text)
    return f"'{text}" if is_formula else text
