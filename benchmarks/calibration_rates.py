"""Level, power and coverage of the group rates, measured on the product's own functions.

Every cell draws the counts of G groups ``RUNS`` times and asks `compare_rates` and `largest_gap`, which
`audit.group_metrics` calls.

- Level: equal rates. Share of samples in which some group is found below 1; and, with one group at 0.8 of the others,
  below 0.8. Wanted: at most 5.9 % at two groups, about 5 % at more.
- Coverage: share of samples in which the intervals of all ranked groups hold the true ratios, differences and rates at
  once; and in which the interval of equalised odds holds the true difference. Wanted: about 95 % at least.
- Power: one group at 0.7 of the others. Share of samples with a finding, beside the power that the product states.

    python benchmarks/calibration_rates.py [--runs 2000]
"""

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np
from common import save
from numpy.typing import NDArray

from cfe_faiss.audit.comparisons import compare_rates, largest_gap
from cfe_faiss.audit.intervals import wilson

SIZES = {
    "2 x 30": [30] * 2,
    "2 x 100": [100] * 2,
    "2 x 500": [500] * 2,
    "100 and 1,000": [100, 1000],
    "5 x 30": [30] * 5,
    "5 x 100": [100] * 5,
    "5 x 500": [500] * 5,
    "30, 100, 300, 1,000": [30, 100, 300, 1000],
    "2,000, 100, 50": [2000, 100, 50],
    "10 x 50": [50] * 10,
    "10 x 200": [200] * 10,
    "30 to 1,000, ten": [30, 30, 50, 50, 100, 100, 200, 300, 500, 1000],
}
RATES = (0.1, 0.5, 0.9)
POWER_RATES = (0.3, 0.6)


def draws(sizes: list[int], rates: NDArray[np.float64], runs: int, seed: int) -> Iterator[NDArray[np.int64]]:
    rng = np.random.default_rng([seed, len(sizes), sum(sizes), int(1000 * rates.sum())])
    yield from rng.binomial(sizes, rates, (runs, len(sizes))).astype(np.int64)


def rates_cell(sizes: list[int], rates: NDArray[np.float64], runs: int, seed: int = 0) -> dict[str, float]:
    """Return how often something is found, and how often all intervals of a sample hold the truth."""
    cases = np.array(sizes, np.int64)
    found = dict.fromkeys(
        ("below_1", "below_0.8", "cannot_tell", "ratios", "differences", "rates", "power", "asked"), 0.0
    )
    for x in draws(sizes, rates, runs, seed):
        got = compare_rates(x, cases, 0.95)
        others = got["ranked"] & ~got["reference"]
        low, high = wilson(x, cases, 0.95 ** (1 / len(sizes)))
        found["rates"] += bool(((low <= rates) & (rates <= high)).all())
        if not others.any():
            continue
        found["asked"] += 1
        verdicts = set(got["verdict"][others])
        found["below_1"] += bool(verdicts & {"below 1", "below 0.8"})
        found["below_0.8"] += "below 0.8" in verdicts
        found["cannot_tell"] += not verdicts & {"below 1", "below 0.8"} and "cannot tell" in verdicts
        best = int(np.flatnonzero(got["reference"])[0])
        for name, true in (("ratio", rates / rates[best]), ("difference", rates - rates[best])):
            held = (got[f"{name}_low"] <= true + 1e-12) & (true - 1e-12 <= got[f"{name}_high"])
            found[f"{name}s"] += bool(held[others].all())
        found["power"] += float(got["power"][others].min())
    asked = found.pop("asked")
    held = found.pop("rates") / runs
    return {"asked": asked / runs, "rates": held} | {name: value / max(asked, 1) for name, value in found.items()}


def level(runs: int) -> list[dict[str, Any]]:
    rows = []
    for name, sizes in SIZES.items():
        for rate in RATES:
            rates = np.full(len(sizes), rate)
            row = {"sizes": name, "groups": len(sizes), "rate": rate, **rates_cell(sizes, rates, runs)}
            rates[np.argsort(sizes)[len(sizes) // 2]] *= 0.8
            row["false_below_0.8"] = rates_cell(sizes, rates, runs, 1)["below_0.8"]
            rows.append(row)
            print(row)
    return rows


def power(runs: int) -> list[dict[str, Any]]:
    rows = []
    for rate in POWER_RATES:
        for groups in (2, 5, 10):
            for size in (100, 200, 500):
                rates = np.full(groups, rate)
                rates[0] *= 0.7
                row = {"groups": groups, "size": size, "rate": rate, **rates_cell([size] * groups, rates, runs, 2)}
                rows.append(row)
                print(row)
    return rows


def odds(runs: int) -> list[dict[str, Any]]:
    """Return how often the interval of equalised odds holds the largest difference and the least ratio."""
    rows = []
    for name, sizes in SIZES.items():
        for tpr, fpr, gap in ((0.8, 0.2, 0.0), (0.8, 0.2, 0.1), (0.6, 0.4, 0.2), (0.9, 0.1, 0.05)):
            true = {"tpr": np.full(len(sizes), tpr), "fpr": np.full(len(sizes), fpr)}
            true["tpr"][-1] -= gap
            true["fpr"][-1] += gap / 2
            cases = np.array(sizes, np.int64)
            counts = {key: draws(sizes, rates, runs, 3 + len(key)) for key, rates in true.items()}
            held = np.zeros(3)
            asked = 0
            for t, f in zip(counts["tpr"], counts["fpr"], strict=True):
                gaps = [largest_gap(x, cases, 0.975) for x in (t, f)]
                if np.isnan([part["difference"] for part in gaps]).any():
                    continue
                asked += 1
                difference = [max(part[f"difference{end}"] for part in gaps) for end in ("_low", "_high")]
                ratio = [min(part[f"ratio{end}"] for part in gaps) for end in ("_low", "_high")]
                # Groups that are too small to be ranked have the same rates as ranked ones.
                exact = max(float(np.ptp(rates)) for rates in true.values())
                least = min(float(rates.min() / rates.max()) for rates in true.values())
                held += [
                    difference[0] <= exact + 1e-12 and exact - 1e-12 <= difference[1],
                    ratio[0] <= least + 1e-12 and least - 1e-12 <= ratio[1],
                    difference[0] > 0,
                ]
            if asked:
                shares = dict(zip(("difference", "ratio", "found"), (held / asked).tolist(), strict=True))
                rows.append({"sizes": name, "tpr": tpr, "fpr": fpr, "gap": gap, "asked": asked / runs, **shares})
                print(rows[-1])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2000)
    runs = parser.parse_args().runs
    result = {"runs": runs, "level": level(runs), "power": power(runs), "odds": odds(runs)}
    print(f"written to {save('calibration_rates', result)}")


if __name__ == "__main__":
    main()
