"""Imports of optional dependencies, with an error that names the extra; and versions of all.

``pd`` is pandas, which is loaded at its first use.
"""

import os
import platform
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import faiss
from threadpoolctl import threadpool_info

from cfe_faiss import _native

__all__ = ["extra", "find_version", "pd", "show_versions"]

_NOT_IN_USE = re.compile(r"extra == .(test|docs|dev|benchmarks)|^cfe-faiss")


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Wrap the imports that need the extra ``name`` ("gnn", "plot", ...).

    Raises
    ------
    ImportError
        If a module is missing; the message has the ``pip install`` command.
    """
    try:
        with warnings.catch_warnings():
            # PyG applies torch.jit.script to its classes at import, which newer torch deprecates.
            warnings.filterwarnings(
                "ignore", message="`torch.jit.script` is deprecated", category=DeprecationWarning
            )
            yield
    except ModuleNotFoundError as error:
        module = (error.name or "a module").partition(".")[0]
        raise ImportError(
            f'{module} is missing: pip install "cfe-faiss[{name}]"', name=module
        ) from error


class _LoadedAtFirstUse(ModuleType):
    """Module of the extra "audit", which has the attributes of the module with its name."""

    def __getattr__(self, name: str) -> Any:
        with extra("audit"):
            module = import_module(self.__name__)
        vars(self)[name] = getattr(module, name)
        return vars(self)[name]


if TYPE_CHECKING:
    import pandas as pd
else:
    pd = _LoadedAtFirstUse("pandas")


# --- versions -------------------------------------------------------------------------------------


def show_versions() -> None:
    """Print what a report of an error or of a timing needs.

    Python, the platform and the processor model; the versions of this package and of its
    dependencies; the instruction set in use, the available ones, and the environment variable
    ``CFE_SIMD``; and the number of threads of FAISS and of each BLAS.
    """
    threads = {"faiss": faiss.omp_get_max_threads()}
    for library in threadpool_info():
        threads[f"{library['internal_api']} ({Path(library['filepath']).name})"] = library[
            "num_threads"
        ]
    sections: dict[str, dict[str, Any]] = {
        "System": {
            "python": " ".join(sys.version.split()),
            "executable": sys.executable,
            "platform": platform.platform(),
            "processor": _processor(),
            "cores": os.cpu_count(),
        },
        "cfe_faiss": {
            "version": version("cfe-faiss"),
            "instruction set": _native.level(),
            "available": ", ".join(_native.available_levels()),
            "CFE_SIMD": os.environ.get("CFE_SIMD") or "not set",
        },
        "Dependencies": {name: find_version(name) or "not installed" for name in _dependencies()},
        "Threads": threads,
    }
    for title, fields in sections.items():
        width = max(map(len, fields))
        lines = [f"    {name:>{width}}: {field}" for name, field in fields.items()]
        sys.stdout.write("\n".join(["", title, *lines, ""]))


def _processor() -> str:
    """Return the model of the processor, or the most precise name that the platform gives."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # not on Linux
        lines = []
    models = [
        line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "Model"))
    ]
    return models[0] if models else platform.processor() or platform.machine()


def _dependencies() -> list[str]:
    """Return the names of the dependencies of the package and of its extras for users."""
    used = [
        requirement
        for requirement in requires("cfe-faiss") or ()
        if not _NOT_IN_USE.search(requirement)
    ]
    return list(dict.fromkeys(re.split(r"[^\w.-]", requirement)[0] for requirement in used))


def find_version(name: str) -> str:
    """Return the version of a package; empty if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
