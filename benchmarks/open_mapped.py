"""How fast does a mapped index open, how much memory does it take, and how soon does it answer?

An inverted file and an exact index over clustered random vectors are written once; each figure is then taken in a
fresh process, which imports the package, opens the file and searches. The files have been read before: what is
measured is not the disk. Wanted of the inverted file: open in under 50 ms and 100 MB.

    python benchmarks/open_mapped.py [vectors]
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from common import save

D = 128
NLIST = 4096
CLASSES = 10
K = 10
PROCESSES = 5
WARM = 50


def vectors(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return unit vectors around 10,000 centres, and classes that mostly follow the centres."""
    centres = np.random.default_rng(0).normal(size=(10_000, D)).astype(np.float32)
    rng = np.random.default_rng(seed)
    centre = rng.integers(0, len(centres), n)
    X = centres[centre] + 0.7 * rng.standard_normal((n, D), np.float32)
    labels = np.where(rng.random(n) < 0.9, centre % CLASSES, rng.integers(0, CLASSES, n))
    return X, labels


def write(folder: Path, n: int) -> dict[str, Path]:
    import cfe_faiss as cfe

    X, labels = vectors(n, 1)
    nlist = min(NLIST, n // 40)
    ivf, flat = cfe.IndexEvidenceIVF(D, nlist), cfe.IndexEvidenceFlat(D)
    ivf.cp.niter = 4
    ivf.train(X[: 40 * nlist])
    paths = {"ivf": folder / "ivf.index", "flat": folder / "flat.index"}
    for name, index in (("ivf", ivf), ("flat", flat)):
        index.add_with_labels(X, labels)
        cfe.write_index(index, paths[name])
        index.reset()
    return paths


def resident_mb() -> float:
    import resource

    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6


def open_and_search(path: str) -> dict[str, Any]:
    """Open one file in this process and search it; the process does nothing else."""
    import faiss

    import cfe_faiss as cfe

    xq, labels = vectors(WARM, 2)
    before = resident_mb()
    start = time.perf_counter()
    index = cfe.read_index(path, faiss.IO_FLAG_MMAP)
    opened = time.perf_counter() - start
    after = resident_mb()

    times = []
    for q in range(WARM):
        start = time.perf_counter()
        index.search_evidence(xq[q : q + 1], labels[q : q + 1], K)
        times.append(time.perf_counter() - start)
    return {
        "open_ms": 1e3 * opened,
        "resident_mb_before": before,
        "resident_mb_opening": after - before,
        "first_query_ms": 1e3 * times[0],
        "warm_query_ms": 1e3 * median(times[1:]),
        "resident_mb_after_queries": resident_mb() - before,
    }


def main(n: int) -> None:
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, path in write(Path(folder), n).items():
            found = [
                json.loads(subprocess.check_output([sys.executable, __file__, "--open", path]))
                for _ in range(PROCESSES + 1)
            ][1:]  # the first one warms the page cache
            medians = {key: median(run[key] for run in found) for key in found[0]}
            print(name, {key: round(value, 2) for key, value in medians.items()})
            results[name] = {
                "file_mb": path.stat().st_size / 1e6,
                "median": medians,
                "processes": found,
            }
    print(
        f"written to {save('open_mapped', {'n': n, 'd': D, 'nlist': NLIST, 'k': K, 'indexes': results})}"
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--open"]:
        print(json.dumps(open_and_search(sys.argv[2])))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
