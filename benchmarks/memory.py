"""How many bytes a vector does an index in use take, against those of commit 2deb883?

A process reads each file into memory, searches single queries and all nodes (the exact index: 2,000), with one thread;
what it then holds for itself beyond what it held before, freed memory given back, counts. It has done the same once
before, and dropped the index, so that code and what is made once in a process do not count. The numbers of commit
2deb883 are in results/memory_2deb883.json, made by this script with that package installed (``--name``). Wanted: no
more.

    CFE_DATA=... python benchmarks/memory.py
"""

import argparse
import gc
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from common import RESULTS, save
from numpy.typing import NDArray
from storage_codecs import resident

import cfe_faiss as cfe

K, NPROBE, QUERIES, EXACT = 10, 16, 500, 2000
CODECS = ("Flat", "SQfp16", "SQ8", "PQ32,RFlat")
N, D = 200_000, 128
BEFORE = "memory_2deb883"


def in_use(path: str, queries: str) -> dict[str, float]:
    """Open one file in this process, which does nothing else, and use it, twice; tell the second time."""
    with np.load(queries) as arrays:
        X, labels = arrays["X"], arrays["labels"]
    faiss.omp_set_num_threads(1)
    use(cfe.read_index(path), X, labels)
    gc.collect()
    before = resident()
    index = cfe.read_index(path)
    opened = resident()
    single(index, X, labels)
    after_single = resident()
    all_nodes(index)
    everything = resident()
    steps = {"opened": opened, "after single queries": after_single, "after all nodes": everything}
    return {name: float(held[0] - before[0]) / index.ntotal for name, held in steps.items()}


def single(index: Any, X: NDArray[np.float32], labels: NDArray[np.int64]) -> None:
    effort = {"nprobe": min(NPROBE, index.nlist)} if hasattr(index, "nlist") else {}
    for i in range(len(X)):
        index.search_evidence(X[i : i + 1], labels[i : i + 1], min(K, index.ntotal), **effort)


def all_nodes(index: Any) -> None:
    if hasattr(index, "nlist"):
        index.search_stored(k=min(K, index.ntotal), nprobe=min(NPROBE, index.nlist))
    else:
        index.search_stored(np.arange(min(EXACT, index.ntotal)), min(K, index.ntotal))


def use(index: Any, X: NDArray[np.float32], labels: NDArray[np.int64]) -> None:
    single(index, X, labels)
    all_nodes(index)


def measure(
    name: str, X: NDArray[np.float32], labels: NDArray[np.int64], folder: Path
) -> dict[str, Any]:
    n, d = X.shape
    rows = np.random.default_rng(1).permutation(n)[:QUERIES]
    np.savez(folder / "queries.npz", X=X[rows], labels=labels[rows])
    nlist = 4 * int(n**0.5)
    found = {}
    codecs = [codec for codec in CODECS if not codec.startswith("PQ") or d % 32 == 0]
    for factory in ("EvidenceFlat", *(f"EvidenceIVF{nlist},{codec}" for codec in codecs)):
        index: Any = cfe.index_factory(d, factory)
        if not index.is_trained:
            index.cp.niter = 10
            index.train(X)
        index.add_with_labels(X, labels)
        cfe.write_index(index, folder / "index")
        del index
        command = [
            sys.executable,
            __file__,
            "--in-use",
            str(folder / "index"),
            str(folder / "queries.npz"),
        ]
        found[factory] = json.loads(subprocess.check_output(command))
        print(f"{name} {factory}: {found[factory]}", flush=True)
    return {"graph": name, "nodes": n, "dimension": d, "bytes_per_vector": found}


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--name", default="memory", help=f"of the result; {BEFORE} with that package installed"
    )
    args = parser.parse_args(argv)
    import graphs
    from single_query import synthetic

    data = {name: graphs.graph(name)[1:3] for name in ("bail", "facebook")}
    data["200k"] = synthetic(N, D)
    with tempfile.TemporaryDirectory() as folder:
        results = [measure(name, X, labels, Path(folder)) for name, (X, labels) in data.items()]
    print(f"written to {save(args.name, {'nprobe': NPROBE, 'graphs': results})}")
    if args.name != BEFORE and (RESULTS / f"{BEFORE}.json").exists():
        print(json.dumps(against(results), indent=1))


def against(results: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Return the bytes of every index in use as a multiple of what commit 2deb883 took."""
    content = json.loads((RESULTS / f"{BEFORE}.json").read_text())
    before = {graph["graph"]: graph["bytes_per_vector"] for graph in content["graphs"]}
    return {
        graph["graph"]: {
            factory: bytes_["after all nodes"] / before[graph["graph"]][factory]["after all nodes"]
            for factory, bytes_ in graph["bytes_per_vector"].items()
        }
        for graph in results
    }


if __name__ == "__main__":
    if sys.argv[1:2] == ["--in-use"]:
        print(json.dumps(in_use(sys.argv[2], sys.argv[3])))
    else:
        main()
