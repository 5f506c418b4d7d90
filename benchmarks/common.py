"""What the benchmarks share: where they ran, fair timing of two rivals, and JSON results."""

import json
import os
import platform
import time
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

from cfe_faiss import parallel

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("cfe-faiss", "faiss-cpu", "numba", "numpy", "scikit-learn", "scipy", "torch", "torch_geometric")


def environment() -> dict[str, Any]:
    """Return what a figure depends on: processor, threads and package versions; nothing that names the machine."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": parallel.num_threads(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": {name: found for name in PACKAGES if (found := _version(name))},
    }


def save(name: str, result: Mapping[str, Any]) -> Path:
    """Write ``result`` and the environment to results/``name``.json and return that path."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"environment": environment(), **result}, indent=2) + "\n")
    return path


def paired_times(
    functions: Mapping[str, Callable[[], object]], repeats: int
) -> tuple[dict[str, float], dict[str, list[float]]]:
    """Time the functions in turns, after one untimed call each, and return the medians and all times in seconds.

    In turns, since the load of a shared machine drifts: all then see the same machine. Their ratio is meaningful
    even where a time alone is not.
    """
    for function in functions.values():
        function()
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            times[name].append(time.perf_counter() - start)
    return {name: median(values) for name, values in times.items()}, times


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
