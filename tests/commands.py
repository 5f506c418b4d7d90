"""What the tests of the command line share."""

import csv
import io
import json
import os
import pty
import subprocess
import sys
import termios
import threading
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TextIO

import numpy as np
import pytest
from reference import assert_same_arrays

import cfe_faiss as cfe
from cfe_faiss.cli import main

N, D = 300, 6


def command(*arguments: object, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cfe_faiss", *map(str, arguments)],
        text=True,
        timeout=120,
        check=False,
        **options,
    )


def records(text: str, style: str) -> list[dict[str, str]]:
    """Rows as texts, whichever way they were written."""
    if style == "json":
        return [{name: str(value) for name, value in row.items()} for row in json.loads(text)]
    if style == "csv":
        return list(csv.DictReader(io.StringIO(text)))
    header, *lines = text.splitlines()
    assert len({len(line) for line in (header, *lines)}) == 1
    return [dict(zip(header.split(), line.split(), strict=True)) for line in lines]


def assert_similarities(
    rows: list[dict[str, str]],
    style: str,
    index: cfe.IndexEvidenceIDMap2,
    v: np.ndarray,
    u: np.ndarray,
) -> None:
    """The similarities that were written are the cosines of the stored vectors, in float64."""
    left, right = (index.reconstruct_batch(ids).astype(np.float64) for ids in (v, u))
    expected = (left * right).sum(axis=1) / np.sqrt((left**2).sum(axis=1) * (right**2).sum(axis=1))
    found = column(rows, "similarity", float)
    np.testing.assert_allclose(found, expected, 0, 1e-6 if style == "table" else 1e-14)


def column(rows: list[dict[str, str]], name: str, dtype: type) -> np.ndarray:
    return np.array([row[name] for row in rows]).astype(dtype)


def assert_same(path: Path, index: cfe.IndexEvidenceIDMap2 | cfe.IndexEvidenceIVF) -> None:
    read = cfe.read_index(path)
    assert type(read) is type(index)
    np.testing.assert_array_equal(read.members().ids, index.members().ids)
    np.testing.assert_array_equal(read.members().labels, index.members().labels)
    assert_same_arrays(read.search_stored(None, 5), index.search_stored(None, 5))


def run_on_terminal(
    width: int, *arguments: object, output: TextIO | None = None, **environment: str
) -> tuple[str, int]:
    """Run a command in this process, and return what a real terminal of a width shows, and the exit status.

    The terminal is standard error and, unless ``output`` is given, standard output.
    """
    terminal, side = pty.openpty()
    termios.tcsetwinsize(side, (24, width))
    parts: list[bytes] = []
    reader = threading.Thread(target=lambda: parts.extend(iter(lambda: _read(terminal), b"")))
    reader.start()
    with ExitStack() as stack:
        screen = stack.enter_context(os.fdopen(side, "w", encoding="utf-8"))
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for name in ("COLUMNS", "LINES", "NO_COLOR"):
            patch.delenv(name, raising=False)
        for name, value in ({"TERM": "xterm"} | environment).items():
            patch.setenv(name, value)
        patch.setattr(sys, "__stdout__", screen)  # shutil.get_terminal_size asks it for the width
        stack.enter_context(redirect_stderr(screen))
        stack.enter_context(redirect_stdout(screen if output is None else output))
        status = main([str(argument) for argument in arguments])
    reader.join()
    os.close(terminal)
    return b"".join(parts).decode().replace("\r\n", "\n"), status


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # the other side is closed
        return b""
