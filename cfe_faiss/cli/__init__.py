"""The command ``cfe-faiss``: index files from data, evidence and audits from index files."""

import argparse
import os
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from cfe_faiss.cli.case import check_files
from cfe_faiss.cli.parser import check_effects, parser
from cfe_faiss.datasets.own.table import text_format
from cfe_faiss.finder import InputWarning


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv
        The arguments; default: ``sys.argv[1:]``.

    Returns
    -------
    int
        The exit status: 0; 1 if a condition that audit requires fails; 2 after an error; 130 after Ctrl-C; 141 if the
        reader of the output has gone.
    """
    try:
        arguments = parser().parse_args(argv)
        arguments.argv = sys.argv[1:] if argv is None else list(argv)
        arguments.format = next((name for name in ("json", "csv") if getattr(arguments, name)), None)
        check_files(arguments)
        check_effects(arguments)
        status = _run(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _discard_output()
        return 141
    except (ValueError, TypeError, OSError, ImportError, MemoryError) as error:
        _discard_output()
        sys.stderr.write(f"cfe-faiss: error: {_one_line(error)}\n")
        return 2
    return status or 0


def _run(arguments: argparse.Namespace) -> Any:
    """Run a command with the format of its text files; input warnings become lines on standard error."""
    module, _, function = arguments.run.rpartition(".")
    run = getattr(import_module(f"cfe_faiss.cli.{module}"), function)
    with warnings.catch_warnings(), text_format(arguments.encoding, arguments.decimal):
        warnings.simplefilter("always", InputWarning)
        warnings.showwarning = _show_warning
        return run(arguments)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    sys.stderr.write(f"cfe-faiss: warning: {' '.join(str(message).split())}\n")


def _discard_output() -> None:
    """Drop output that cannot be written; the interpreter would report it at its end."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _one_line(error: BaseException) -> str:
    text = str(error)
    if isinstance(error, OSError) and error.strerror and error.filename:
        text = f"{error.filename}: {error.strerror}"
    return " ".join(text.split()) or type(error).__name__
