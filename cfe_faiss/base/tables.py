"""Plain tables in files: matrices and graphs of users, and texts that are safe in a spreadsheet."""

import re
import unicodedata
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

_DELIMITERS = {".csv": ",", ".txt": None}
_NUMBER = r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?"
_PLAIN = re.compile(f"{_NUMBER}( (to|-|–) {_NUMBER})?", re.IGNORECASE)
_FORMULA = tuple("=+-@＝＋－＠")
"""Signs that start a formula, also in their full width."""


def csv_text(text: str) -> str:
    r"""Return a text that no spreadsheet takes for a formula, without control characters and lone surrogates.

    OWASP, "CSV injection": a text that starts as a formula does gets an apostrophe. Numbers and ranges of numbers stay.

    Examples
    --------
    >>> csv_text("=1+1"), csv_text("-2+3+cmd|' /C calc'!A0"), csv_text("-2.5"), csv_text("-5 to 3"), csv_text("a\nb")
    ("'=1+1", "'-2+3+cmd|' /C calc'!A0", '-2.5', '-5 to 3', 'a b')
    """
    if not text.isprintable():
        text = "".join({"Cc": " ", "Cs": "\ufffd"}.get(unicodedata.category(one), one) for one in text)
    is_formula = text.lstrip().startswith(_FORMULA) and not _PLAIN.fullmatch(text)
    return f"'{text}" if is_formula else text


def read_matrix(path: Path) -> NDArray[Any]:
    """Read a matrix, one row per node: .npy (mapped into memory, not read), .csv or .txt with a header or without.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it is of another kind, or does not hold numbers.
    """
    _check_suffix(path, ".npy", ".csv", ".txt")
    return _read_npy(path) if path.suffix == ".npy" else _read_text(path)


def read_graph(path: Path) -> Any:
    """Read a graph that :func:`cfe_faiss.graph.as_graph` takes.

    An edge_index of shape (2, E) from .npy, one edge per line from .csv or .txt, a SciPy sparse matrix from .npz.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it is of another kind, or does not hold a graph.
    """
    _check_suffix(path, ".npy", ".csv", ".txt", ".npz")
    if path.suffix == ".npz":
        return _read_npz(path)
    if path.suffix == ".npy":
        return _read_npy(path)
    pairs = _read_text(path)
    if pairs.shape[1] != 2:
        raise ValueError(f"{path} must hold two node numbers per line, got {pairs.shape[1]} columns")
    return _whole(path, pairs).T


def _check_suffix(path: Path, *known: str) -> None:
    if path.suffix not in known:
        raise ValueError(f"{path} must be a file of the kind {', '.join(known[:-1])} or {known[-1]}")


def _read_npy(path: Path) -> NDArray[Any]:
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path} must be a NumPy array of numbers: {error}") from error
    return array


def _read_npz(path: Path) -> Any:
    try:
        return scipy.sparse.load_npz(path)
    except (ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} must be a matrix that scipy.sparse.save_npz wrote: {error}") from error


def _read_text(path: Path) -> NDArray[np.float64]:
    delimiter = _DELIMITERS[path.suffix]
    with path.open(encoding="utf-8-sig") as file, warnings.catch_warnings():
        # An empty file gets an error of ours instead.
        warnings.filterwarnings("ignore", message="loadtxt: input contained no data")
        try:
            if _are_numbers(file.readline().partition("#")[0].split(delimiter)):
                file.seek(0)
            table = np.loadtxt(file, delimiter=delimiter, ndmin=2)
        except ValueError as error:
            raise ValueError(f"{path} must hold numbers, below one header line at most: {error}") from error
    if table.size == 0:
        raise ValueError(f"{path} must hold numbers, got none")
    return table


def _are_numbers(fields: list[str]) -> bool:
    try:
        return len([float(field) for field in fields]) > 0
    except ValueError:
        return False


def _whole(path: Path, table: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return numbers that were written as integers, or like them ("3.0")."""
    # Beyond 2**53 a float no longer tells neighbouring integers apart.
    wrong = ~((np.abs(table) <= 2**53) & (table == np.floor(table)))
    if wrong.any():
        raise ValueError(f"{path} must hold whole numbers, got {table[wrong][0]:g}")
    return table.astype(np.int64)
