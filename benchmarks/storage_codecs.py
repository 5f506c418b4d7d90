"""What do the codecs of the inverted file cost and bring: memory, recall and speed, next to float32?

One index of each kind over the same vectors, with the same lists. Memory is that of fresh processes which open the
file, into memory or mapped, and answer queries one at a time: what they hold more than before. Recall@10 is that of
evidence against exact float32 search; of what an index returns the float32 similarities count, not those it computed
itself. Times are taken in turns with those of float32 lists at the same number of probed lists. The files have been
read before: what is measured is not the disk.

    CFE_DATA=... python benchmarks/storage_codecs.py [vectors]

With a number of vectors, only the synthetic graph of that size, and nothing is written.
"""

import ctypes
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import faiss
import numpy as np
from common import paired_times, save
from numpy.typing import NDArray

import cfe_faiss as cfe

N, D = 200_000, 128
K = 10
CODECS = ("Flat", "SQfp16", "SQ8", "PQ32,RFlat", "PQ16,RFlat")
PROBES = (8, 32, 128)
TIMED_PROBES = 32
QUERIES = 500
TOGETHER = 5000
REPEATS = 5


def resident() -> np.ndarray:
    """Return the bytes that this process holds for itself, and all, with pages of files that the system may take back.

    What the process has freed and keeps for later does not count.
    """
    ctypes.CDLL(None).malloc_trim(0)
    lines = Path("/proc/self/status").read_text().splitlines()
    held = {
        name: int(rest.split()[0])
        for name, _, rest in (line.partition(":") for line in lines)
        if name[:3] == "Rss"
    }
    return 1024 * np.array([held["RssAnon"], sum(held.values())])


def open_and_search(path: str, queries: str, mapped: bool) -> dict[str, Any]:
    """Open one file in this process and search it; the process does nothing else."""
    with np.load(queries) as arrays:
        X, labels = arrays["X"], arrays["labels"]
    faiss.omp_set_num_threads(1)
    tiny = cfe.index_factory(
        8, "EvidenceIVF2,Flat"
    )  # so that the memory of what is loaded once does not count
    tiny.train(np.eye(8))
    tiny.add_with_labels(np.eye(8), np.arange(8))
    tiny.search_evidence(np.eye(8)[:1], [0], 2, 1)
    before = resident()
    start = perf_counter()
    index = cfe.read_index(path, faiss.IO_FLAG_MMAP if mapped else 0)
    opened = perf_counter() - start
    after_opening = resident()
    times = []
    for q in range(len(X)):
        start = perf_counter()
        index.search_evidence(X[q : q + 1], labels[q : q + 1], K, TIMED_PROBES)
        times.append(perf_counter() - start)
    own, everything = ((resident() - before) / index.ntotal).tolist()
    return {
        "open_ms": 1e3 * opened,
        "bytes_after_opening": float(after_opening[1] - before[1]) / index.ntotal,
        "bytes_after_queries": everything,
        "own_bytes_after_queries": own,
        "p50_us": 1e6 * median(times),
    }


def memory(path: Path, queries: Path) -> dict[str, Any]:
    """Return what two processes find, one for each way to open a file."""
    found = {}
    for name, mapped in (("in memory", "0"), ("mapped", "1")):
        command = [sys.executable, __file__, "--open", str(path), str(queries), mapped]
        found[name] = json.loads(subprocess.check_output(command))
    return found


def recall(
    found: tuple[Any, Any], truth: tuple[Any, Any], xq: NDArray[np.float32], X: NDArray[np.float32]
) -> float:
    similarities = np.einsum("qkd,qd->qk", X[found[1]], xq)
    return cfe.metrics.recall(found[1], truth[1], similarities, truth[0] - 1e-6)


def alone(
    index: Any,
    X: NDArray[np.float32],
    labels: NDArray[np.int64],
    queries: NDArray[np.int64],
    nprobe: int,
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Search one by one: every codec is then routed and probed in the same way."""
    found = [index.search_evidence(X[q : q + 1], labels[q : q + 1], K, nprobe) for q in queries]
    D, I = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return D, I


def compare(
    name: str, X: NDArray[np.float32], labels: NDArray[np.int64], folder: Path
) -> dict[str, Any]:
    n, d = X.shape
    nlist = 4 * int(n**0.5)
    rng = np.random.default_rng(1)
    queries, many = (rng.choice(n, min(number, n), replace=False) for number in (QUERIES, TOGETHER))
    np.savez(folder / "queries.npz", X=X[queries], labels=labels[queries])
    flat = cfe.IndexEvidenceFlat(d)
    flat.add_with_labels(X, labels)
    truth = flat.search_evidence(X[queries], labels[queries], K)
    del flat
    indexes: dict[str, Any] = {}
    rows: dict[str, dict[str, Any]] = {}
    for codec in CODECS:
        start = perf_counter()
        index: Any = cfe.index_factory(d, f"EvidenceIVF{nlist},{codec}")
        index.cp.niter = 10
        index.train(X)
        index.add_with_labels(X, labels)
        built = perf_counter() - start
        path = folder / "a.index"
        cfe.write_index(index, path)
        recalls = {
            nprobe: recall(alone(index, X, labels, queries, nprobe), truth, X[queries], X)
            for nprobe in PROBES
        }
        rows[codec] = {
            "build_seconds": built,
            "file_bytes": path.stat().st_size / n,
            "recall": recalls,
            **memory(path, folder / "queries.npz"),
        }
        indexes[codec] = index
        print(
            f"{name:10} {codec:11} file {rows[codec]['file_bytes']:.0f} bytes a vector, in memory "
            f"{rows[codec]['in memory']['bytes_after_queries']:.0f}, mapped "
            f"{rows[codec]['mapped']['bytes_after_queries']:.0f} of which its own "
            f"{rows[codec]['mapped']['own_bytes_after_queries']:.0f}; recall@10 "
            + ", ".join(f"{value:.3f} at {nprobe}" for nprobe, value in recalls.items())
        )
    faiss.omp_set_num_threads(1)

    def one_by_one(index: Any) -> None:
        alone(index, X, labels, queries, TIMED_PROBES)

    def together(index: Any) -> None:
        index.search_evidence(X[many], labels[many], K, TIMED_PROBES)

    for kind, call, number in (("single", one_by_one, len(queries)), ("many", together, len(many))):
        tasks = {
            codec: lambda index=index, call=call: call(index) for codec, index in indexes.items()
        }
        times, _ = paired_times(tasks, REPEATS)
        for codec, seconds in times.items():
            rows[codec][kind] = {
                "us_per_query": 1e6 * seconds / number,
                "ratio": seconds / times["Flat"],
            }
            print(
                f"{name:10} {codec:11} {kind}: {1e6 * seconds / number:.1f} us, {seconds / times['Flat']:.2f}x Flat"
            )
    return {"graph": name, "nodes": n, "dimension": d, "nlist": nlist, "codecs": rows}


def main(n: int) -> None:
    import graphs
    from single_query import synthetic

    results, threads = [], faiss.omp_get_max_threads()
    data = {f"{n // 1000}k": lambda: synthetic(n, D)}
    if n == N:
        data = {"facebook": lambda: graphs.graph("facebook")[1:3], **data}
    with tempfile.TemporaryDirectory() as folder:
        for name, load in data.items():
            faiss.omp_set_num_threads(threads)
            results.append(compare(name, *load(), Path(folder)))
    settings = {"k": K, "timed_nprobe": TIMED_PROBES, "queries": QUERIES, "together": TOGETHER}
    if n == N:
        print(f"written to {save('storage_codecs', {**settings, 'graphs': results})}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--open"]:
        print(json.dumps(open_and_search(sys.argv[2], sys.argv[3], sys.argv[4] == "1")))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else N)
