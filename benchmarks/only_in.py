"""How long do all pairs take that differ in one attribute only, at any size?

1,569,960 nodes with 20 categorical attributes of 2 to 6 values, drawn so that many nodes agree; given as a pandas frame
of categories. Wanted: under 60 s. All pairs are listed as well, and the 1,000 most similar ones found by vectors.

    python benchmarks/only_in.py
"""

import resource
import time

import numpy as np
import pandas as pd
from common import save

import cfe_faiss as cfe
from cfe_faiss import audit
from cfe_faiss.attributes.table import as_attributes

N, ATTRIBUTES, KINDS, D, SHOWN = 1_569_960, 20, 400_000, 32, 1000


def people() -> tuple[pd.DataFrame, np.ndarray]:
    """Return attributes and classes: most nodes are copies of a kind, some with one attribute changed."""
    rng = np.random.default_rng(0)
    values = rng.integers(2, 7, ATTRIBUTES)
    codes = rng.integers(0, values, (KINDS, ATTRIBUTES))[rng.integers(0, KINDS, N)]
    changed = rng.random(N) < 0.5
    column = rng.integers(0, ATTRIBUTES, N)
    codes[changed, column[changed]] = rng.integers(0, values[column[changed]])
    frame = pd.DataFrame(
        {
            f"a{j}": pd.Categorical.from_codes(
                codes[:, j], [f"value {v}" for v in range(values[j])]
            )
            for j in range(ATTRIBUTES)
        }
    )
    return frame, (codes.sum(axis=1) + rng.integers(0, 3, N)) % 2


def main() -> None:
    frame, predicted = people()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = {}
    start = time.perf_counter()
    attributes = as_attributes(frame)
    for name in attributes:
        attributes[name]
    seconds["attributes"] = time.perf_counter() - start
    vectors = np.random.default_rng(1).standard_normal((N, D), np.float32)
    index = cfe.index_factory(D, "IDMap2,EvidenceFlat")
    index.add_with_labels(vectors, predicted)
    finder = cfe.EvidenceFinder(vectors, predicted.astype(np.int32), index, attributes=attributes)
    start = time.perf_counter()
    found = audit.only_in(finder, ["a0"])
    seconds["counted, attributes included"] = seconds["attributes"] + time.perf_counter() - start
    listed = sum(len(source) for source, _ in found.blocks())
    seconds["all pairs listed, too"] = seconds["attributes"] + time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(found.table.to_string())
    start = time.perf_counter()
    shown = found.most_similar(SHOWN)
    seconds[f"{SHOWN} most similar"] = time.perf_counter() - start
    for name, taken in seconds.items():
        print(f"{name}: {taken:.1f} s")
    print(
        f"{listed:,} pairs listed, {(peak - before) / 1024:.0f} MiB beyond the data at most; {shown!r}"
    )
    result = {
        "n": N,
        "attributes": ATTRIBUTES,
        "pairs": found.pairs,
        "different": found.different,
        "listed": listed,
        "seconds": seconds,
        "peak_mib_beyond_data": (peak - before) / 1024,
    }
    print(f"written to {save('only_in', result)}")


if __name__ == "__main__":
    main()
