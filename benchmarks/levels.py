"""How long does a search of all nodes take at each instruction set of the core?

``CFE_SIMD`` chooses it, so each level is a process of its own; processes take turns, on one thread, at the settings
that engine_short.json found for ours. Results have the same bits at every level. Wanted: AVX2 at most 2.5 times as
long as AVX-512 with VNNI. Against peers: ``CFE_SIMD=avx2 python -m benchmarks.engine.run ...``.

    CFE_DATA=... python benchmarks/levels.py
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

LEVELS = ("avx512", "avx2", "generic", "neon")
GRAPHS = ("bail", "facebook")
K = 10
ROUNDS, REPEATS = 5, 5
WANTED = 2.5


def child(path: str, settings: list[tuple[int, int]]) -> list[dict[str, Any]]:
    """Return the least seconds of all nodes at each setting, (nlist, nprobe), and a digest of the results."""
    import faiss

    import cfe_faiss as cfe

    faiss.omp_set_num_threads(1)
    with np.load(path) as file:
        X, labels = file["X"], file["labels"]
    found = []
    for nlist, nprobe in settings:
        index = cfe.IndexEvidenceIVF(X.shape[1], nlist)
        index.train(X)
        index.add_with_labels(X, labels)
        times, digest = [], ""
        for _ in range(REPEATS + 1):
            start = time.perf_counter()
            D, I = index.search_stored(k=K, nprobe=nprobe)
            times.append(time.perf_counter() - start)
            digest = hashlib.sha256(D.tobytes() + I.tobytes()).hexdigest()[:16]
        found.append(
            {"nlist": nlist, "nprobe": nprobe, "seconds": min(times[1:]), "digest": digest}
        )
    return found


def run(level: str, path: Path, settings: list[tuple[int, int]]) -> list[dict[str, Any]] | str:
    """Return what a process at a level finds, or why it cannot."""
    command = [sys.executable, __file__, "--child", str(path), json.dumps(settings)]
    done = subprocess.run(
        command, env={**os.environ, "CFE_SIMD": level}, capture_output=True, text=True
    )
    if done.returncode:
        return done.stderr.strip().splitlines()[-1]
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def compare(path: Path, settings: list[tuple[int, int]], rounds: int) -> dict[str, Any]:
    """Run all levels that there are in turns; return medians by level, for one setting after the other."""
    runs: dict[str, list[Any]] = {level: [] for level in LEVELS}
    left_out: dict[str, str] = {}
    for _ in range(rounds):
        for level in LEVELS:
            if level not in left_out:
                found = run(level, path, settings)
                if isinstance(found, str):
                    left_out[level] = found
                else:
                    runs[level].append(found)
    kept = {level: rows for level, rows in runs.items() if level not in left_out}
    results = []
    for i, (nlist, nprobe) in enumerate(settings):
        seconds = {
            level: median(rows[i]["seconds"] for rows in all_) for level, all_ in kept.items()
        }
        digests = {rows[i]["digest"] for all_ in kept.values() for rows in all_}
        fastest = next(iter(seconds.values()), None)
        ratios = {level: value / fastest for level, value in seconds.items()} if fastest else {}
        row = {
            "nlist": nlist,
            "nprobe": nprobe,
            "seconds": seconds,
            "ratio": ratios,
            "same_bits": len(digests) == 1,
        }
        results.append(row)
    return {"settings": results, "left_out": left_out}


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    args = parser.parse_args(argv)
    import graphs
    from common import save
    from where_time_goes import settings

    results = []
    with tempfile.TemporaryDirectory() as folder:
        for name in GRAPHS:
            graph = graphs.graph(name)
            path = Path(folder) / f"{name}.npz"
            np.savez(path, X=graph.X, labels=graph.labels)
            found = {"graph": name, **compare(path, settings(name), args.rounds)}
            print(found, flush=True)
            results.append(found)
    print(f"written to {save('levels', {'wanted': WANTED, 'graphs': results})}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(child(sys.argv[2], json.loads(sys.argv[3]))))
    else:
        main()
