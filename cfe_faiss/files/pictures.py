"""Matplotlib figures in files with a mark, by which this package recognises its own files."""

from io import BytesIO
from pathlib import Path
from typing import Any

from cfe_faiss.files.new_file import new_file
from cfe_faiss.files.outputs import MARK

_COMMENTS = {"png": "Software", "svg": "Title", "pdf": "Creator", "ps": "Creator", "eps": "Creator"}


def write_picture(figure: Any, path: Path, *, overwrite: bool) -> None:
    """Write a Matplotlib figure atomically, in the format of the suffix (PNG if there is none).

    Raises
    ------
    OSError
        If the file cannot be written.
    ValueError
        If Matplotlib does not know the format. If this package has not written the existing file, and ``overwrite`` is
        False. Formats without a comment field, such as JPEG, are never recognised.
    """
    kind = path.suffix[1:].lower() or "png"
    options = {"metadata": {_COMMENTS[kind]: MARK}} if kind in _COMMENTS else {}
    drawn = BytesIO()
    figure.savefig(drawn, format=kind, dpi=150, **options)
    with new_file(path, overwrite=overwrite) as file:
        file.write(drawn.getvalue())
