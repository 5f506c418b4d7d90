"""Loads the compiled core, before everything else: it may be missing, or refuse what ``CFE_SIMD`` asks for."""

import sys
from pathlib import Path


def _load_core() -> None:
    """Import ``cfe_faiss._native``.

    The handler of the command line's errors lies behind this import, so here is what it would do: one line, status 2.

    Raises
    ------
    ImportError
        If the core is missing, or ``CFE_SIMD`` names what this machine cannot run.
    """
    try:
        _import_core()
    except ImportError as error:
        if not _is_command_line():
            raise
        sys.stderr.write(f"cfe-faiss: error: {error}\n")
        raise SystemExit(2) from None


def _import_core() -> None:
    try:
        import cfe_faiss._native  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "cfe_faiss._native":
            raise
        text = "the compiled core of cfe_faiss is missing: install the package, from a clone by `pip install .`"
        raise ImportError(text, name=error.name) from None


def _is_command_line() -> bool:
    command = sys.argv[0] if sys.argv else ""
    # While Python looks for the module of -m, which imports this package, the command is "-m" itself.
    return Path(command).stem == "cfe-faiss" or (command == "-m" and "cfe_faiss" in sys.orig_argv)


_load_core()
