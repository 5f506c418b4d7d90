"""What the benchmarks share: where they ran, fair timing of two rivals, and JSON results."""

import json
import os
import platform
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import faiss
import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base import threads

Name = TypeVar("Name", bound=Hashable)
RESULTS = Path(__file__).parent / "results"
PACKAGES = (
    "cfe-faiss",
    "faiss-cpu",
    "langchain-community",
    "langchain-core",
    "numpy",
    "pyarrow",
    "scikit-learn",
    "scipy",
    "torch",
    "torch_geometric",
)


def environment() -> dict[str, Any]:
    """Return what a figure depends on: processor, threads and package versions; nothing that names the machine."""
    return {
        "processor": _processor(),
        "instruction_sets": _instruction_sets(),
        "CFE_SIMD": os.environ.get("CFE_SIMD"),
        "cores": os.cpu_count(),
        "threads": threads.num_threads(),
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


def result(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return content


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    head = list(head)
    lines = [head, ["---"] * len(head), *([str(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def folded(title: str, text: str) -> str:
    """Return a part of a page that opens at a click."""
    return f"<details>\n<summary>{title}</summary>\n\n{text}\n\n</details>"


def merged(parts: list[tuple[NDArray[np.float32], NDArray[np.int64]]]) -> Any:
    """Return the best D, I of several searches with inner products for the same queries."""
    if len(parts) == 1:
        return parts[0]
    D, I = (np.stack(arrays) for arrays in zip(*parts, strict=True))
    return faiss.merge_knn_results(D, I, keep_max=True)


def search_with_each(
    index: Any, xq: NDArray[np.float32], k: int, parameters: list[Any], nprobe: int
) -> Any:
    """Search an inverted file with each of several parameters after one coarse search; return what is best of all.

    The index's ``parallel_mode`` has to be 3: otherwise this takes one thread.
    """
    near, lists = index.quantizer.search(xq, nprobe)
    parts = []
    for params in parameters:
        D, I = np.empty((len(xq), k), np.float32), np.empty((len(xq), k), np.int64)
        pointers = (faiss.swig_ptr(array) for array in (lists, near, D, I))
        index.search_preassigned_c(len(xq), faiss.swig_ptr(xq), k, *pointers, False, params)
        parts.append((D, I))
    return merged(parts)


def paired_times(
    functions: Mapping[Name, Callable[[], object]],
    repeats: int,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[dict[Name, float], dict[Name, list[float]]]:
    """Time the functions in turns, after one untimed call each, and return the medians and all times in seconds.

    In turns, since the load of a shared machine drifts: all then see the same machine. Their ratio is meaningful
    even where a time alone is not.
    """
    for function in functions.values():
        function()
    times: dict[Name, list[float]] = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            start = clock()
            function()
            times[name].append(clock() - start)
    return {name: median(values) for name, values in times.items()}, times


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    """Return the name of the processor, with the numbers that tell its kind where the name does not."""
    told = _cpuinfo()
    name = told.get("model name") or platform.processor() or platform.machine()
    kind = ", ".join(
        f"{key.removeprefix('cpu ')} {told[key]}" for key in ("cpu family", "model") if key in told
    )
    return f"{name} ({kind})" if kind else name


def _instruction_sets() -> list[str]:
    flags = _cpuinfo().get("flags", _cpuinfo().get("Features", "")).split()
    return [
        name
        for name in ("avx2", "avx_vnni", "avx512f", "avx512_vnni", "asimd", "asimddp")
        if name in flags
    ]


def _cpuinfo() -> dict[str, str]:
    """Return what Linux tells of the first core."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().partition("\n\n")[0].splitlines() if path.exists() else []
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
