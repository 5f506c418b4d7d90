"""The command ``cfe-faiss``: from data to an index file, and from an index file to evidence and what it says."""

import argparse
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from cfe_faiss.cli.own import check_files
from cfe_faiss.cli.parser import parser
from cfe_faiss.datasets.own.table import text_format
from cfe_faiss.finder import InputWarning


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv
        The arguments; by default those of the process.

    Returns
    -------
    int
        The exit status: 0; 1 where a condition that audit requires does not hold; 2 after an error, 130 after Ctrl-C,
        141 when the reader of the output has gone.
    """
    try:
        arguments = parser().parse_args(argv)
        arguments.argv = sys.argv[1:] if argv is None else list(argv)
        check_files(arguments)
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


def _run(arguments: argparse.Namespace) -> int | None:
    """Run a command: text files have the format that it names, and input warnings are lines on standard error."""
    encoding, decimal = getattr(arguments, "encoding", None), getattr(arguments, "decimal", None)
    if (encoding or decimal) and arguments.features is None:
        raise ValueError(f"--{'encoding' if encoding else 'decimal'} has no effect without --features")
    with warnings.catch_warnings(), text_format(encoding, decimal):
        warnings.simplefilter("always", InputWarning)
        shown = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *place: Any, **options: Any) -> None:
            if issubclass(category, InputWarning):
                sys.stderr.write(f"cfe-faiss: warning: {' '.join(str(message).split())}\n")
            else:
                shown(message, category, *place, **options)

        warnings.showwarning = show
        status: int | None = arguments.run(arguments)
        return status


def _discard_output() -> None:
    """Drop output that nobody can take any more, or the interpreter would complain about it when it ends."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _one_line(error: BaseException) -> str:
    text = str(error)
    if isinstance(error, OSError) and error.strerror and error.filename:
        text = f"{error.filename}: {error.strerror}"
    return " ".join(text.split()) or type(error).__name__
