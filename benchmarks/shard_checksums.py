"""What the checksum of each list costs: opening shards, the first searches, and later ones, with and without it.

Without: the same files as version 0.2 wrote them, which have no checksum for each list. Files are in the page cache.
Each figure is the median of several openings; they take turns.

    python benchmarks/shard_checksums.py [n] [d]
"""

import json
import shutil
import statistics
import struct
import sys
import tempfile
import time
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from common import save

import cfe_faiss as cfe
from cfe_faiss.scale import ShardedEvidenceIndex, write_shards

TURNS, SHARDS, NPROBE = 9, 8, 16
TRAILER = struct.Struct("<QQI4s")


def without_checksums(path: Path) -> None:
    """Make an index file one of version 2."""
    content = path.read_bytes()
    start, length, _, magic = TRAILER.unpack(content[-TRAILER.size :])
    header = json.loads(content[start : start + length]) | {"version": 2}
    header["sections"] = [
        section for section in header["sections"] if section["name"] != "list_checksums"
    ]
    encoded = json.dumps(header).encode()
    path.write_bytes(
        content[:start] + encoded + TRAILER.pack(start, len(encoded), zlib.crc32(encoded), magic)
    )


def without(folder: Path, target: Path) -> Path:
    shutil.copytree(folder, target)
    manifest = json.loads((target / "shards.json").read_text()) | {"version": 1}
    for shard in manifest["shards"]:
        without_checksums(target / shard["file"])
        shard["size"] = (target / shard["file"]).stat().st_size
    (target / "shards.json").write_text(json.dumps(manifest))
    return target


def seconds(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def turn(folder: Path, X: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    found = {}
    start = time.perf_counter()
    index = ShardedEvidenceIndex.open(folder)
    found["open"] = time.perf_counter() - start

    def single(place: int) -> Callable[[], Any]:
        return lambda: index.search_evidence(
            X[place : place + 1], labels[place : place + 1], 10, nprobe=NPROBE
        )

    found["first query"] = seconds(single(0))
    found["the next 100 queries"] = sum(seconds(single(place)) for place in range(1, 101))
    found["a query whose lists were read"] = statistics.median(
        seconds(single(0)) for _ in range(50)
    )
    found["all rows, after them"] = seconds(lambda: index.search_stored(k=10, nprobe=NPROBE))
    fresh = ShardedEvidenceIndex.open(folder)
    found["all rows, first search"] = seconds(lambda: fresh.search_stored(k=10, nprobe=NPROBE))
    return found


def main(n: int, d: int) -> None:
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((200, d), np.float32)
    X = centers[rng.integers(0, 200, n)] + rng.standard_normal((n, d), np.float32)
    labels = rng.integers(0, 5, n)
    index = cfe.IndexEvidenceIVF(d, "auto")
    index.train(X)
    index.add_with_labels(X, labels)
    times: dict[str, dict[str, list[float]]] = {"with": {}, "without": {}}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "with"
        write = {"with": seconds(lambda: write_shards(index, folder, SHARDS))}
        folders = {"with": folder, "without": without(folder, Path(place) / "without")}
        for number in range(TURNS):
            for name in sorted(folders, reverse=bool(number % 2)):
                for what, took in turn(folders[name], X, labels).items():
                    times[name].setdefault(what, []).append(took)
        checking = seconds(lambda: ShardedEvidenceIndex.open(folder).to_stock())
    medians = {
        name: {what: statistics.median(took) for what, took in kinds.items()}
        for name, kinds in times.items()
    }
    ratios = {what: medians["with"][what] / medians["without"][what] for what in medians["with"]}
    result = {
        "n": n,
        "d": d,
        "nlist": index.nlist,
        "shards": SHARDS,
        "nprobe": NPROBE,
        "write": write,
        "copy": checking,
    }
    result |= {"seconds": medians, "ratio": ratios}
    print(json.dumps(result, indent=2))
    print(f"written to {save('shard_checksums', result)}")


if __name__ == "__main__":
    arguments = [int(argument) for argument in sys.argv[1:]]
    main(*(arguments + [200_000, 128][len(arguments) :]))
