"""What a report of an error or of a timing should say about the machine and the packages."""

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import faiss
from threadpoolctl import threadpool_info

from cfe_faiss import _native

_DEPENDENCIES = (
    "faiss-cpu",
    "numpy",
    "scipy",
    "scikit-learn",
    "threadpoolctl",
    "nanobind-backend",
    "torch",
    "torch_geometric",
    "pandas",
    "matplotlib",
    "networkx",
    "pyarrow",
    "langchain-core",
    "llama-index-core",
    "haystack-ai",
)


def show_versions() -> None:
    """Print what matters for a report of an error or of a timing.

    That is: Python, the platform and the model of the processor; the version of this package and of those that it uses;
    the instruction set in use, those that this machine has, and what the environment variable ``CFE_SIMD`` asked for;
    and how many threads FAISS and each BLAS may use.
    """
    sections = {
        "System": _system(),
        "cfe_faiss": {"version": version("cfe-faiss"), **_instruction_sets()},
        "Dependencies": _dependencies(),
        "Threads": _threads(),
    }
    for title, fields in sections.items():
        width = max(map(len, fields))
        lines = [f"    {name:>{width}}: {field}" for name, field in fields.items()]
        sys.stdout.write("\n".join(["", title, *lines, ""]))


def _system() -> dict[str, str]:
    return {
        "python": " ".join(sys.version.split()),
        "executable": sys.executable,
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": f"{os.cpu_count()}",
    }


def _processor() -> str:
    """Return the model of the processor, or as much as the platform tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # not on Linux
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "Model"))]
    return models[0] if models else platform.processor() or platform.machine()


def _instruction_sets() -> dict[str, str]:
    return {
        "instruction set": _native.level(),
        "available": ", ".join(_native.available_levels()),
        "CFE_SIMD": os.environ.get("CFE_SIMD") or "not set",
    }


def _dependencies() -> dict[str, str]:
    found = {}
    for name in _DEPENDENCIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def _threads() -> dict[str, str]:
    threads = {"faiss": f"{faiss.omp_get_max_threads()}"}
    for library in threadpool_info():
        name = f"{library['internal_api']} ({Path(library['filepath']).name})"
        threads[name] = f"{library['num_threads']}"
    return threads
