"""Import of the compiled core, and checks of the installation, before all other modules."""

import re
import sys
import warnings
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

# NumPy imports it at the first call of np.unique. A fork at that moment would leave the child
# waiting for the import.
import numpy.ma  # noqa: F401

from cfe_faiss.base.interrupts import is_command_line

_STUB = Path(__file__).parents[1] / "_native.pyi"
_FAISS = re.compile(r"(faiss(?:[-_][cg]pu\w*)?)-\d.*\.(?:dist|egg)-info")


def load_core() -> None:
    """Import ``cfe_faiss._native``.

    The error handler of the command line imports this package, so errors of the command are
    reported here: one line, exit status 2.

    Raises
    ------
    ImportError
        If the core is missing or compiled from another version, or this machine cannot run the
        level in ``CFE_SIMD``.
    """
    try:
        check_interface(getattr(import_module("cfe_faiss._native"), "INTERFACE", ""), _STUB)
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "cfe_faiss._native":
            error = ImportError(
                "the compiled core of cfe_faiss is missing: install the package, from a clone by "
                "`pip install .`",
                name=error.name,
            )
        if not is_command_line():
            raise error from None
        sys.stderr.write(f"cfe-faiss: error: {error}\n")
        raise SystemExit(2) from None


def check_interface(compiled: str, stub: Path) -> None:
    """Raise ImportError if the compiled core does not fit its description, ``_native.pyi``.

    Such a core may take other arguments, or return other results, without an error.
    """
    if stub.exists() and sha256(stub.read_bytes()).hexdigest() != compiled:
        raise ImportError(
            "the compiled core of cfe_faiss is of another version than its Python code: install "
            "the package again, from a clone by `pip install .`",
            name="cfe_faiss._native",
        )


def warn_of_two_faiss() -> None:
    """Warn if two distributions of FAISS have overwritten files of each other."""
    spec = find_spec("faiss")
    folder = (
        Path(spec.origin).parents[1] if spec is not None and spec.origin is not None else Path()
    )
    matches = [_FAISS.fullmatch(path.name) for path in folder.iterdir()]
    names = sorted(match[1].replace("_", "-") for match in matches if match)
    if len(names) > 1:
        text = (
            f"{' and '.join(names)} are installed over each other in {folder}, so FAISS may crash "
            "or load the wrong library. Remove all and install one again: pip uninstall -y "
            f"{' '.join(names)}; pip install {names[-1]}"
        )
        warnings.warn(text, RuntimeWarning, stacklevel=2)


load_core()
warn_of_two_faiss()
