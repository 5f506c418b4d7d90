"""The command ``cfe-faiss``: index files from data, evidence and audits from index files."""

import argparse
import os
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from cfe_faiss.base.checks import InputNote, InputWarning, OneSidedClassWarning
from cfe_faiss.base.interrupts import LINE, STATUS, Interrupts, ignore_interrupts
from cfe_faiss.cli import audit, build, mining, scale, search  # noqa: F401 - declare commands
from cfe_faiss.cli.inputs import check_files
from cfe_faiss.cli.parser import PARSER, check_effects, in_words_of_options, set_reading


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv
        The arguments; default: ``sys.argv[1:]``.

    Returns
    -------
    int
        The exit status: 0; 1 if a condition that audit requires fails, or labels or leaks find more
        than they allow; 2 after an error; 130 after Ctrl-C; 141 if the reader of the output has
        gone.
    """
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:  # closed: else the next file would get its number
            setattr(sys, name, open(os.devnull, "w" if descriptor else "r"))  # noqa: PTH123, SIM115
    arguments = None
    try:
        Interrupts.raises = True
        arguments = _parse(argv)
        status = _run(arguments) or 0
        sys.stdout.flush()
        Interrupts.raises = False
    except BaseException as error:
        Interrupts.raises = False
        status = _status_of(error, arguments)
    finally:
        ignore_interrupts()
    return status


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    try:
        arguments = PARSER.parse_args(argv)
    except SystemExit:  # after --help or --version
        sys.stdout.flush()
        raise
    arguments.argv = sys.argv[1:] if argv is None else list(argv)
    check_files(arguments)
    check_effects(arguments)
    set_reading(arguments)
    return arguments


def _status_of(error: BaseException, arguments: argparse.Namespace | None) -> int:
    """Report an error in one line, and return the exit status; raise unexpected errors again."""
    if Interrupts.raised or isinstance(error, KeyboardInterrupt):
        _end_output(LINE)
        return STATUS
    if isinstance(error, BrokenPipeError):
        _end_output()
        return 141
    if not isinstance(error, ValueError | TypeError | OSError | ImportError | MemoryError):
        raise error
    text = str(error)
    if isinstance(error, OSError) and error.strerror and error.filename:
        text = f"{error.filename}: {error.strerror}"
    text = in_words_of_options(" ".join(text.split()), arguments) or type(error).__name__
    _end_output(f"cfe-faiss: error: {text}\n")
    return 2


def _run(arguments: argparse.Namespace) -> Any:
    """Run a command; input warnings become lines on standard error."""
    printed_lines: set[str] = set()  # several files of a call may give equal lines

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        kind = "note" if isinstance(message, InputNote) else "warning"
        line = f"cfe-faiss: {kind}: {' '.join(str(message).split())}\n"
        if line not in printed_lines:
            sys.stderr.write(line)
        printed_lines.add(line)

    with warnings.catch_warnings():
        warnings.simplefilter("always", InputWarning)
        if getattr(arguments, "truth_favourable", None):
            warnings.simplefilter("ignore", OneSidedClassWarning)
        warnings.showwarning = show
        return arguments.run(arguments)


def _end_output(line: str = "") -> None:
    """Write the last line on standard error, and drop output that cannot be written."""
    with suppress(OSError):  # nobody reads it
        sys.stderr.write(line)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
