"""Which element type is faster, float or byte: the measurements behind ``cfe_faiss.search.derived``.

All rows are searched in blocks of floats and of bytes, and single queries read stored vectors and byte blocks, in few
lists and in many: in turns, on several data sets for each dimension, at each instruction set with byte products. The
rule of an instruction set is the dimension from which on bytes are faster in the geometric mean over the data sets; for
single queries, from which on they take at most 0.9 of the time, as they need memory beside the vectors.

Single queries with a target recall are also searched in bytes and in bits, with equal lists.

    python benchmarks/block_elements.py          # writes results/block_elements.json and prints the rule
    python benchmarks/block_elements.py --bits   # bits against bytes: results/block_bits.json
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from common import result, save, table
from numpy.typing import NDArray

import cfe_faiss as cfe
from cfe_faiss import _native
from cfe_faiss.base.threads import use_threads
from cfe_faiss.search import derived
from cfe_faiss.search.derived import Choice, Derived
from cfe_faiss.search.query import Calibration

TITLE = "Element types of blocks"

DIMENSIONS = 4, 8, 12, 18, 24, 32, 48, 64, 96, 128, 256, 768
ROWS, NLIST, CLASSES, K = 8000, 90, 6, 10
BIT_SHAPES = (  # dimensions and rows
    *((d, ROWS) for d in (128, 192, 256, 384, 512, 768)),
    *((64, n) for n in (30_000, 100_000, 300_000)),
)
FEW, MANY = 8, 60
WORTH_MEMORY = 0.9
SINGLES, REPEATS = 200, 9


def clusters(rng: np.random.Generator, d: int, n: int = ROWS) -> NDArray[np.float32]:
    """Return rows around 60 centres."""
    centres = rng.normal(size=(60, d))
    return (centres[rng.integers(0, 60, n)] + 0.7 * rng.normal(size=(n, d))).astype(np.float32)


def low_rank(rng: np.random.Generator, d: int, n: int = ROWS) -> NDArray[np.float32]:
    """Return rows near a subspace of 8 dimensions, as KS vectors are."""
    basis = rng.normal(size=(8, d))
    return (rng.normal(size=(n, 8)) @ basis + 0.2 * rng.normal(size=(n, d))).astype(np.float32)


def sparse(rng: np.random.Generator, d: int, n: int = ROWS) -> NDArray[np.float32]:
    """Return rows with a few large numbers, as tables and bags of words have them."""
    return (rng.exponential(size=(n, d)) * (rng.random((n, d)) < 0.2) + 1e-3).astype(np.float32)


DATA = {"clusters": clusters, "low rank": low_rank, "sparse": sparse}


def in_turns(first: Callable[[], object], second: Callable[[], object]) -> float:
    """Return the processor time of the second function, as a share of the first's: the least of some runs of each."""
    least = [float("inf")] * 2
    for _ in range(REPEATS):
        for place, run in enumerate((first, second)):
            start = time.process_time()
            run()
            least[place] = min(least[place], time.process_time() - start)
    return least[1] / least[0]


def measure(name: str, d: int) -> dict[str, Any]:
    """Return the times with bytes, as shares of those with floats, for one data set."""
    rng = np.random.default_rng(d)
    X, labels = DATA[name](rng, d), rng.integers(0, CLASSES, ROWS)
    indexes = []
    for choice in (Choice("float", "float"), Choice("byte", "byte")):
        index = cfe.IndexEvidenceIVF(d, NLIST)
        index.cp.niter = 4
        index.train(X)
        index.add_with_labels(X, labels)
        Derived.of(index.storage()).pin(choice)
        index.search_stored(k=K, nprobe=FEW)
        indexes.append(index)

    def batch(index: Any) -> Callable[[], object]:
        return lambda: index.search_stored(k=K, nprobe=FEW)

    def single(index: Any, nprobe: int) -> Callable[[], object]:
        return lambda: [
            index.search_evidence(X[q : q + 1], labels[q : q + 1], K, nprobe)
            for q in range(SINGLES)
        ]

    floats, of_bytes = indexes
    return {
        "data": name,
        "d": d,
        "batch": in_turns(batch(floats), batch(of_bytes)),
        "single_few": in_turns(single(floats, FEW), single(of_bytes, FEW)),
        "single_many": in_turns(single(floats, MANY), single(of_bytes, MANY)),
    }


def measure_bits(name: str, d: int, n: int) -> dict[str, Any]:
    """Return the times of single queries with bits, as shares of those with bytes, for one data set."""
    derived._BITS = range(1, 1 << 12)  # in every dimension
    derived._MANY_ROWS = 0
    rng = np.random.default_rng(d)
    X, labels = DATA[name](rng, d, n), rng.integers(0, CLASSES, n)
    index = cfe.IndexEvidenceIVF(d, round(NLIST * (n / ROWS) ** 0.5))
    index.cp.niter = 4
    index.train(X)
    index.add_with_labels(X, labels)
    calibrations = Derived.of(index.storage()).calibrations

    def single(**effort: Any) -> Callable[[], object]:
        return lambda: [
            index.search_evidence(X[q : q + 1], labels[q : q + 1], K, **effort)
            for q in range(SINGLES)
        ]

    found: dict[str, Any] = {"data": name, "d": d, "rows": n}
    for key, nprobe in (("single_few", FEW), ("single_many", MANY)):
        recall = nprobe / n  # names the calibration
        calibrations[K, recall, False, index.complete, "evidence", None] = Calibration(
            {}, nprobe, {}
        )
        found[key] = in_turns(single(nprobe=nprobe), single(recall=recall))
    return found


def mean_of(rows: list[dict[str, Any]], key: str, d: int, n: int = ROWS) -> float:
    """Return the geometric mean over the data sets of a dimension and a number of rows."""
    chosen = [row[key] for row in rows if (row["d"], row.get("rows", ROWS)) == (d, n)]
    return float(np.exp(np.mean(np.log(chosen))))


def fit(rows: list[dict[str, Any]], key: str, limit: float) -> int:
    """Return the dimension from which on an element pays: all larger ones have means below the limit."""
    dimensions = sorted({row["d"] for row in rows if row.get("rows", ROWS) == ROWS})
    slower = [d for d in dimensions if mean_of(rows, key, d) > limit]
    return min((d for d in dimensions if d > max(slower, default=0)), default=1 << 30)


def measure_level(*, bits: bool) -> None:
    """Print the measurements at the instruction set of this process."""
    use_threads(1)
    if bits:
        print(json.dumps([measure_bits(name, *shape) for shape in BIT_SHAPES for name in DATA]))
    else:
        print(json.dumps([measure(name, d) for d in DIMENSIONS for name in DATA]))


def block_bits() -> str:
    content = result("block_bits")
    rows = [
        (
            level,
            d,
            f"{n:,}",
            *(f"{mean_of(found['measurements'], kind, d, n):.2f}" for kind in kinds),
        )
        for level, found in content["levels"].items()
        for kinds in [("single_few", "single_many")]
        for d, n in sorted({(row["d"], row.get("rows", ROWS)) for row in found["measurements"]})
    ]
    return (
        f"The time of one query with a target recall in bits, as a share of its time in bytes, with {content['few']} "
        f"and with {content['many']} of sqrt(n) lists: geometric means over the "
        f"data sets (`python benchmarks/block_elements.py --bits`, {content['environment']['processor']}). Searches "
        f"read bits from {derived._BITS_OF_FEW_ROWS} dimensions on, with {derived._MANY_ROWS:,} rows and more from "
        f"{derived._BITS.start} on.\n\n"
        + table(("instruction set", "dimensions", "rows", "few lists", "many lists"), rows)
    )


def page(content: dict[str, Any]) -> str:
    rows = []
    for level, measured in content["levels"].items():
        rule = measured["rule"]
        rows.append((level, *(rule[kind] for kind in ("batch", "single_few", "single_many"))))
    return (
        "The number of dimensions from which on blocks of bytes are faster than floats, by instruction set: in the "
        "geometric mean over several data sets for all rows; for single queries, from which on they take at most 0.9 "
        "of the time, as they need memory beside the vectors.\n\n"
        + table(
            ("instruction set", "all rows", "one query, few lists", "one query, many lists"), rows
        )
        + "\n\n"
        + block_bits()
    )


def main() -> None:
    """Measure each instruction set in a process of its own, and save the measurements and the rule."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--here", action="store_true", help="measure in this process and print the result"
    )
    parser.add_argument("--bits", action="store_true", help="measure bits against bytes")
    args = parser.parse_args()
    if args.here:
        measure_level(bits=args.bits)
        return
    limits = {"batch": 1.0, "single_few": WORTH_MEMORY, "single_many": WORTH_MEMORY}
    if args.bits:
        limits = {"single_few": 1.0, "single_many": 1.0}
    levels = {}
    for level in (name for name in _native.available_levels() if name != "generic"):
        run = [sys.executable, __file__, "--here", *(["--bits"] if args.bits else [])]
        printed = subprocess.run(
            run, env=os.environ | {"CFE_SIMD": level}, capture_output=True, check=True
        ).stdout
        rows = json.loads(printed)
        rule = {key: fit(rows, key, limit) for key, limit in limits.items()}
        levels[level] = {"rule": rule, "measurements": rows}
        print(level, rule)
    result = {"rows": ROWS, "nlist": NLIST, "few": FEW, "many": MANY, "levels": levels}
    save("block_bits" if args.bits else "block_elements", result)


if __name__ == "__main__":
    main()
