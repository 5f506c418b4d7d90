"""Readers of matrices and graphs in plain files, and text that is safe in a spreadsheet."""

import re
import unicodedata
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from cfe_faiss.base.arrays import Array, Doubles

_DELIMITERS = {".csv": ",", ".txt": None}
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


def read_matrix(path: Path) -> Array:
    """Read a matrix, one row per node: .npy (memory-mapped), .csv or .txt with or without a header line.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If the suffix is another one, or the file does not hold numbers.
    """
    matrix: Array = _read(path, ".npy", ".csv", ".txt")
    return matrix


def read_graph(path: Path) -> Any:
    """Read a graph in a form that :func:`cfe_faiss.graph.as_graph` takes.

    An edge_index of shape (2, E) from .npy, one edge per line from .csv or .txt, a SciPy sparse matrix from .npz.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If the suffix is another one, or the file does not hold a graph.
    """
    graph = _read(path, ".npy", ".csv", ".txt", ".npz")
    if path.suffix not in _DELIMITERS:
        return graph
    if graph.shape[1] != 2:
        raise ValueError(f"{path} must hold two node numbers per line, got {graph.shape[1]} columns")
    # Above 2**53, float64 no longer separates neighbouring integers.
    wrong = ~((np.abs(graph) <= 2**53) & (graph == np.floor(graph)))
    if wrong.any():
        raise ValueError(f"{path} must hold whole numbers, got {graph[wrong][0]:g}")
    return graph.astype(np.int64).T


def _read(path: Path, *suffixes: str) -> Any:
    if path.suffix not in suffixes:
        raise ValueError(f"{path} must be a file of the kind {', '.join(suffixes[:-1])} or {suffixes[-1]}")
    if path.suffix in _DELIMITERS:
        return _read_text(path)
    try:
        if path.suffix == ".npy":
            return np.load(path, mmap_mode="r", allow_pickle=False)
        from scipy.sparse import load_npz

        return load_npz(path)
    except (ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        expected = "a NumPy array of numbers" if path.suffix == ".npy" else "a matrix that scipy.sparse.save_npz wrote"
        raise ValueError(f"{path} must be {expected}: {error}") from error


def _read_text(path: Path) -> Doubles:
    delimiter = _DELIMITERS[path.suffix]
    with path.open(encoding="utf-8-sig") as file, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="loadtxt: input contained no data")  # an error follows below
        try:
            if are_numbers(file.readline().partition("#")[0].split(delimiter)):
                file.seek(0)
            table = np.loadtxt(file, delimiter=delimiter, ndmin=2)
        except ValueError as error:
            raise ValueError(f"{path} must hold numbers, below one header line at most: {error}") from error
    if table.size == 0:
        raise ValueError(f"{path} must hold numbers, got none")
    return table


def are_numbers(fields: list[str]) -> bool:
    """Return whether every field of a line is a number, and there is one."""
    try:
        return len([float(field) for field in fields]) > 0
    except ValueError:
        return False
