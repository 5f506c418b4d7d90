"""Import of the compiled core, and checks of the installation, before any other module is imported."""

import sys
import warnings
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

FAISS_DISTRIBUTIONS = ("faiss-cpu", "faiss-gpu", "faiss-gpu-cu11", "faiss-gpu-cu12", "faiss-gpu-cuvs", "faiss")
"""Distributions that install the module ``faiss``; the last one is that of conda and of builds from source."""


def load_core() -> None:
    """Import ``cfe_faiss._native``.

    The error handler of the command line imports this package, so errors of the command are reported here: one line,
    exit status 2.

    Raises
    ------
    ImportError
        If the core is missing, or this machine cannot run the level in ``CFE_SIMD``.
    """
    try:
        import cfe_faiss._native  # noqa: F401
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "cfe_faiss._native":
            text = "the compiled core of cfe_faiss is missing: install the package, from a clone by `pip install .`"
            error = ImportError(text, name=error.name)
        if not _is_command_line():
            raise error from None
        sys.stderr.write(f"cfe-faiss: error: {error}\n")
        raise SystemExit(2) from None


def _is_command_line() -> bool:
    command = sys.argv[0] if sys.argv else ""
    # While Python looks for the module of -m, which imports this package, the command is "-m" itself.
    return Path(command).stem == "cfe-faiss" or (command == "-m" and "cfe_faiss" in sys.orig_argv)


def warn_of_two_faiss() -> None:
    """Warn if two distributions of FAISS share a folder: the second overwrote files of the first."""
    by_folder: dict[str, list[str]] = {}
    for name in FAISS_DISTRIBUTIONS:
        try:
            by_folder.setdefault(str(distribution(name).locate_file("faiss")), []).append(name)
        except PackageNotFoundError:
            continue
    for folder, names in by_folder.items():
        if len(names) > 1:
            text = (
                f"{' and '.join(names)} are installed over each other in {folder}, so FAISS may crash or use the wrong "
                f"library. Remove all of them and install one again: pip uninstall -y {' '.join(names)}; "
                f"pip install {names[-1]}"
            )
            warnings.warn(text, ImportWarning, stacklevel=2)


load_core()
warn_of_two_faiss()
