"""How often do the intervals of the model tests hold the truth, at nominal 95 %?

Ratios (Koopman) and differences (Newcombe) of two shares: exact, by enumeration of all outcomes. Shares of clustered
cases (``only_in``): simulated, clusters drawn from a beta distribution with the given correlation within a cluster.
Wanted: 93 % at least; where many cases are in few clusters and the share is small, no interval from the data can know,
and the figure says how far off it is.

    python benchmarks/interval_coverage.py
"""

from itertools import product
from typing import Any

import numpy as np
from common import percent, save, table
from scipy.stats import binom

from cfe_faiss.audit.intervals import clustered_wilson, newcombe, risk_ratio

TITLE = "Intervals of the tests of a model"

CASES = ((10, 10), (30, 30), (30, 300), (300, 30), (300, 300))
SHARES = ((0.02, 0.05), (0.1, 0.1), (0.1, 0.3), (0.4, 0.5), (0.5, 0.5), (0.8, 0.9))
CLUSTERS = (10, 30, 300, 3000)
SIZES = {"of 1 to 3": (1, 2, 3), "of 1 to 50, most small": (1, 1, 1, 3, 6, 50)}
RUNS = 1000


def enumerated(n1: int, n0: int, p1: float, p0: float) -> dict[str, float]:
    x1, x0 = np.meshgrid(np.arange(n1 + 1), np.arange(n0 + 1), indexing="ij")
    chance = binom.pmf(x1, n1, p1) * binom.pmf(x0, n0, p0)
    covered = {}
    for name, truth, interval in (
        ("ratio", p1 / p0, risk_ratio),
        ("difference", p1 - p0, newcombe),
    ):
        low, high = interval(x1, n1, x0, n0)
        covered[name] = float(chance[(low <= truth) & (truth <= high)].sum())
    return covered


def simulated(clusters: int, sizes: tuple[int, ...], share: float, correlation: float) -> float:
    rng = np.random.default_rng(0)
    scale = (1 - correlation) / correlation
    held = 0
    for _ in range(RUNS):
        n = rng.choice(sizes, clusters)
        low, high = clustered_wilson(
            rng.binomial(n, rng.beta(share * scale, (1 - share) * scale, clusters)), n
        )
        held += low <= share <= high
    return held / RUNS


def page(content: dict[str, Any]) -> str:
    titles = {
        "ratio": "ratio of shares (Koopman)",
        "difference": "difference of shares (Newcombe)",
    }
    held: dict[str, list[float]] = {
        title: [row[name] for row in content["two_shares"]] for name, title in titles.items()
    }
    for row in content["clustered"]:
        title = f"share in {row['clusters']:,} clusters {row['sizes']}"
        held.setdefault(title, []).append(row["held"])
    rows = [
        (title, len(shares), percent(min(shares)), percent(max(shares)))
        for title, shares in held.items()
    ]
    return (
        "How often 95 % intervals hold the truth: of two shares by enumeration, of clustered cases (`only_in`) in "
        f"{content['runs']:,} simulated samples each. Wanted: 93 % at least. Where a sixth of the clusters hold four "
        "fifths of the cases, no interval made from few of them does.\n\n"
        + table(("interval", "settings", "least", "most"), rows)
    )


def main() -> None:
    two = [
        {"n1": n1, "n0": n0, "p1": p1, "p0": p0, **enumerated(n1, n0, p1, p0)}
        for n1, n0 in CASES
        for p1, p0 in SHARES
    ]
    clustered = [
        {
            "clusters": clusters,
            "sizes": title,
            "share": share,
            "correlation": correlation,
            "held": simulated(clusters, SIZES[title], share, correlation),
        }
        for clusters, title, share, correlation in product(
            CLUSTERS, SIZES, (0.02, 0.1, 0.5), (0.05, 0.5)
        )
    ]
    found = {"runs": RUNS, "two_shares": two, "clustered": clustered}
    print(f"written to {save('interval_coverage', found)}")


if __name__ == "__main__":
    main()
