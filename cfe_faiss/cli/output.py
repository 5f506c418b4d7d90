"""Output of the commands: tables, CSV and JSON by pandas, and notes."""

import json
import shutil
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from cfe_faiss.base.checks import is_missing
from cfe_faiss.base.extras import pd
from cfe_faiss.base.text import csv_text, format_measure

_ROWS_AT_ONCE = 1 << 16
_ROWS_ON_A_TERMINAL = 1_000
_LONGEST_TEXT = 60


def note(text: str) -> None:
    """Write a note about the result to standard error."""
    sys.stderr.write(f"cfe-faiss: note: {text}\n")


def announce(dataset: str) -> None:
    """Say on a terminal that a data set is loaded: importing PyTorch takes seconds."""
    if sys.stderr.isatty():
        sys.stderr.write(f"Loading {dataset} ...\n")


def write(columns: Mapping[str, Any], style: str | None) -> None:
    """Write columns of numbers or texts, (n,) each, as a table, or as "csv" or "json".

    A table on a terminal fits its width, and ends after 1,000 rows.

    Raises
    ------
    ImportError
        If pandas is missing.
    """
    frame = pd.DataFrame(columns)
    if style == "csv":
        for name in frame:
            if frame[name].dtype.kind == "O":
                frame[name] = [
                    "" if is_missing(value) else csv_text(str(value)) for value in frame[name]
                ]
        frame.rename(columns=csv_text).to_csv(
            sys.stdout, index=False, na_rep="nan", chunksize=_ROWS_AT_ONCE
        )
    elif style == "json":
        separator = "[\n"
        for start in range(0, len(frame), _ROWS_AT_ONCE):
            rows = (
                frame.iloc[start : start + _ROWS_AT_ONCE]
                .replace([np.inf, -np.inf], np.nan)
                .astype(object)
            )
            for row in rows.where(rows.notna(), None).to_dict("records"):
                sys.stdout.write(f"{separator}  {json.dumps(row, default=str)}")
                separator = ",\n"
        sys.stdout.write("[]\n" if frame.empty else "\n]\n")
    else:
        is_terminal = sys.stdout.isatty()
        printed_frame = frame.head(_ROWS_ON_A_TERMINAL) if is_terminal else frame
        sys.stdout.write(
            _table(printed_frame, shutil.get_terminal_size().columns if is_terminal else None)
            + "\n"
        )
        if len(printed_frame) < len(frame):
            note(
                f"the first {len(printed_frame):,} of {len(frame):,} rows; --csv or --json writes "
                "all of them"
            )


def _table(frame: Any, width: int | None) -> str:
    """Return a table as text, its columns below each other if they are wider than the terminal."""
    if frame.empty:
        return "  ".join(frame.columns)
    texts = frame.astype(object)
    for name, values in frame.items():
        texts[name] = [_text(name, value, width) for value in values.to_numpy()]
    # Cells of a terminal take time to count, characters do not.
    with pd.option_context("display.unicode.east_asian_width", width is not None):
        text: str = texts.to_string(index=False, line_width=width)
    return text


def _text(name: Any, value: Any, width: int | None) -> str:
    """Return a field of a table, with control characters escaped."""
    if name in ("similarity", "distance"):
        return format_measure(name, value)
    if isinstance(value, float | np.floating):
        return f"{value:.4f}"
    text = "" if is_missing(value) else str(value)
    if not text.isprintable():
        text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return text if width is None or len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 1]}…"
