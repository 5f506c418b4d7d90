"""Level, power and coverage of the group rates and of the nulls of other audits, on the product's own functions.

Rates draw the counts of G groups. Samples of a cell are computed together from the parts of `compare_rates` and
`largest_gap`, which `audit.group_metrics` calls; the first samples are compared with these functions themselves.

- Level: equal rates. Share of samples in which some group is found to differ from the largest; and, with one group at
  0.8 of the others, below 0.8 (or the others above 1.25). Wanted: at most 5.9 % at two groups, about 5 % at more.
- Coverage: share of samples in which no interval of a ranked group misses the true ratio, difference or rate; and in
  which the interval of equalised odds holds the true difference. Wanted: about 95 % at least.
- Power: one group at 0.7 of the others. Share of samples with a finding, beside the power that the product states.

Neighbours draw classes, or errors, that depend on place only, and ask `audit.consistency` and
`audit.error_rate_by_evidence` whether the number lies within its range. Wanted: 95 %.

    python benchmarks/calibration_rates.py [--runs 2000] [--neighbour-runs 200] [--parts level power odds neighbours]

writes results/calibration_rates.json and results/calibration_rates.md.
"""

import argparse
import json
from collections.abc import Callable, Iterable, Iterator
from itertools import product
from typing import Any

import numpy as np
from common import RESULTS, environment, folded, percent, save, table
from numpy.typing import NDArray
from scipy.special import ndtr

import cfe_faiss as cfe
from cfe_faiss.audit import consistency, error_rate_by_evidence
from cfe_faiss.audit.intervals import (
    compare_rates,
    critical_value,
    is_ranked,
    largest_gap,
    newcombe,
    power_of_ratio,
    risk_ratio,
    wilson,
)

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


def draws(
    sizes: list[int], rates: NDArray[np.float64], runs: int, seed: int
) -> Iterator[NDArray[np.int64]]:
    rng = np.random.default_rng([seed, len(sizes), sum(sizes), int(1000 * rates.sum())])
    yield from rng.binomial(sizes, rates, (runs, len(sizes))).astype(np.int64)


def rates_cell(
    sizes: list[int], rates: NDArray[np.float64], runs: int, seed: int = 0
) -> dict[str, float]:
    """Return how often something is found, and how often no interval of a sample misses the truth."""
    cases = np.array(sizes, np.int64)
    x = np.array(list(draws(sizes, rates, runs, seed)))
    ranked = np.array([is_ranked(own, cases) for own in x])
    compared = np.where(ranked.any(axis=1, keepdims=True), ranked, True)
    # The largest group; of equally large groups the one selected most often.
    best = np.argmax(np.where(compared, cases + x / cases / 2, -1), axis=1)
    others = ranked & (np.arange(len(sizes)) != best[:, None])
    low, high = wilson(x, np.broadcast_to(cases, x.shape), 0.95 ** (1 / len(sizes)))
    held = {"rates": ((low <= rates) & (rates <= high)).all(axis=1)}
    held |= {name: np.ones(runs, bool) for name in ("ratios", "differences")}
    verdicts, power = np.full(x.shape, "", dtype=object), np.zeros(runs)
    for groups in np.unique(compared.sum(axis=1)):
        own = np.flatnonzero(compared.sum(axis=1) == groups)
        critical, top = critical_value(int(groups)), best[own]
        each = float(2 * ndtr(critical) - 1)
        counts = x[own], cases, x[own, top][:, None], cases[top][:, None]
        for name, interval, true in (
            ("ratios", risk_ratio, rates / rates[top][:, None]),
            ("differences", newcombe, rates - rates[top][:, None]),
        ):
            low, high = interval(*counts, each)
            right = (low <= true + 1e-12) & (true - 1e-12 <= high)
            held[name][own] = (right | ~others[own]).all(axis=1)
            if name == "ratios":
                conditions = [high < 0.8, low > 1.25, high < 1, low > 1]
                verdicts[own] = np.select(
                    conditions, ["below 0.8", "above 1.25", "below 1", "above 1"], ""
                )
        overall = (x * ranked)[own].sum(axis=1) / np.maximum((cases * ranked)[own].sum(axis=1), 1)
        for run, rate in zip(own, overall, strict=True):
            if others[run].any():
                reference = int(ranked[run, : best[run]].sum())
                found = power_of_ratio(rate, cases[ranked[run]], reference)
                power[run] = np.delete(found, reference).min()
    verdicts[~others] = ""
    is_found = (verdicts != "").any(axis=1)
    _check(x, cases, verdicts, others, power)
    power = np.where(others.any(axis=1), power, 0)
    return {
        "ranked": float(others.any(axis=1).mean()),
        "differs": float(is_found.mean()),
        "below_0.8": float(np.isin(verdicts, ("below 0.8", "above 1.25")).any(axis=1).mean()),
        "cannot_tell": float((~is_found & (power < 0.5)).mean()),
        "power": float(power.mean()),
        **{name: float(own.mean()) for name, own in held.items()},
    }


def _check(
    x: NDArray[np.int64], cases: NDArray[np.int64], verdicts: Any, others: Any, power: Any
) -> None:
    """Compare the first samples, which are computed together here, with what the audit says of each."""
    for own, verdict, compared, least in zip(x[:20], verdicts, others, power, strict=False):
        found = compare_rates(own, cases, 0.95)
        assert [
            v if v.startswith(("below", "above")) else "" for v in found["verdict"]
        ] == verdict.tolist()
        assert not compared.any() or np.isclose(np.nanmin(found["power"]), least)


def level(cell: tuple[str, float, int]) -> dict[str, Any]:
    name, rate, runs = cell
    sizes = SIZES[name]
    rates = np.full(len(sizes), rate)
    row = {"sizes": name, "groups": len(sizes), "rate": rate, **rates_cell(sizes, rates, runs)}
    rates[np.argsort(sizes)[len(sizes) // 2]] *= 0.8
    return row | {"false_below_0.8": rates_cell(sizes, rates, runs, 1)["below_0.8"]}


def power(cell: tuple[float, int, int, int]) -> dict[str, Any]:
    rate, groups, size, runs = cell
    rates = np.full(groups, rate)
    stated = rates_cell([size] * groups, rates, runs, 2)["power"]
    rates[0] *= 0.7
    found = rates_cell([size] * groups, rates, runs, 2)
    return {"groups": groups, "size": size, "rate": rate, "stated": stated, **found}


def odds(cell: tuple[str, tuple[float, float, float], int]) -> dict[str, Any]:
    """Return how often the intervals of equalised odds hold the largest difference and the least ratio."""
    name, (tpr, fpr, gap), runs = cell
    sizes = SIZES[name]
    true = [np.full(len(sizes), tpr), np.full(len(sizes), fpr)]
    true[0][-1] -= gap
    true[1][-1] += gap / 2
    exact = max(float(np.ptp(rates)) for rates in true)
    least = min(float(rates.min() / rates.max()) for rates in true)
    cases = np.array(sizes, np.int64)
    held, ranked = np.array([1.0, 1.0, 0.0]) * runs, 0
    drawn = [np.array(list(draws(sizes, rates, runs, 3 + part))) for part, rates in enumerate(true)]
    patterns = np.array([[is_ranked(x, cases) for x in part] for part in drawn])
    keys = patterns.transpose(1, 0, 2).reshape(runs, -1)
    for key in np.unique(keys, axis=0):
        if key.reshape(2, -1).sum(axis=1).min() < 2:
            continue  # no interval, which therefore misses nothing
        own = np.flatnonzero((keys == key).all(axis=1))
        ranked += len(own)
        gaps = [
            _gaps(part[own], cases, which)
            for part, which in zip(drawn, key.reshape(2, -1), strict=True)
        ]
        low, high = (np.maximum(gaps[0][end], gaps[1][end]) for end in (0, 1))
        ratio_low, ratio_high = (np.minimum(gaps[0][end], gaps[1][end]) for end in (2, 3))
        expected = largest_gap(drawn[0][own[0]], cases, 0.975)
        assert np.isclose(expected["difference_low"], gaps[0][0][0])
        assert np.isclose(expected["ratio_low"], gaps[0][2][0])
        within = (low <= exact + 1e-12) & (exact - 1e-12 <= high)
        right = (ratio_low <= least + 1e-12) & (least - 1e-12 <= ratio_high)
        held += [(within - 1.0).sum(), (right - 1.0).sum(), (low > 0).sum()]
    shares = dict(zip(("difference", "ratio", "found"), (held / runs).tolist(), strict=True))
    return {"sizes": name, "tpr": tpr, "fpr": fpr, "gap": gap, "ranked": ranked / runs, **shares}


def _gaps(
    x: NDArray[np.int64], cases: NDArray[np.int64], ranked: NDArray[np.bool_]
) -> list[NDArray[np.float64]]:
    """Return the bounds of the largest difference and of the least ratio of each sample, as `largest_gap` does."""
    x, n = x[:, ranked], cases[ranked]
    each = float(2 * ndtr(critical_value(len(n), 0.975)) - 1)
    a, b = np.nonzero(~np.eye(len(n), dtype=bool))
    low, high = newcombe(x[:, a], n[a], x[:, b], n[b], each)
    ratio_low, ratio_high = risk_ratio(x[:, a], n[a], x[:, b], n[b], each)
    bounds = [np.maximum(low.max(axis=1), 0), high.max(axis=1)]
    return [*bounds, ratio_low.min(axis=1), np.minimum(ratio_high.min(axis=1), 1)]


PLACES: dict[str, Callable[[NDArray[np.float64], np.random.Generator], NDArray[np.float64]]] = {
    "0.5 everywhere": lambda X, rng: np.full(len(X), 0.5),
    "0.1 everywhere": lambda X, rng: np.full(len(X), 0.1),
    "0.38 to 0.62, slowly": lambda X, rng: 1 / (1 + np.exp(-0.5 * np.clip(X[:, 0], -1, 1))),
    "0.1 to 0.9, in 20 clusters": lambda X, rng: rng.uniform(0.1, 0.9, 20)[X[:, -1].astype(int)],
    "0 to 1, steep": lambda X, rng: 1 / (1 + np.exp(-3 * X[:, 0])),
    "0 or 1, a border": lambda X, rng: (X[:, 0] > 0).astype(float),
}
"""Probability of class 1, or of an error, by place."""


def neighbours(cell: tuple[str, int, int, int]) -> dict[str, Any]:
    """Return how often consistency, and the accuracy within the evidence, lie within their range."""
    place, n, d, runs = cell
    outside = dict.fromkeys(("share_below", "share_above", "accuracy_below", "accuracy_above"), 0)
    sums = dict.fromkeys(("share", "expected", "held", "accuracy", "expected_accuracy"), 0.0)
    for run in range(runs):
        rng = np.random.default_rng([5, run, n, d])
        cluster = rng.integers(0, 20, n)
        X = rng.normal(size=(n, d))
        if "clusters" in place:
            X = rng.normal(size=(20, d))[cluster] + 0.05 * X
        X *= np.sqrt(d) / np.linalg.norm(X, axis=1, keepdims=True)
        chance = PLACES[place](np.column_stack([X, cluster]), rng)
        drawn = (rng.random(n) < chance).astype(np.int64)
        row = consistency(cfe.EvidenceFinder.from_vectors(X, drawn)).iloc[0]
        outside["share_below"] += row["share"] < row["expected_low"]
        outside["share_above"] += row["share"] > row["expected_high"]
        predicted = (X[:, 1] > 0).astype(np.int64)
        finder = cfe.EvidenceFinder.from_vectors(X, predicted, truth=predicted ^ drawn)
        curve = error_rate_by_evidence(finder, ks=[n // 10]).iloc[0]
        outside["accuracy_below"] += curve["accuracy"] < curve["expected_low"]
        outside["accuracy_above"] += curve["accuracy"] > curve["expected_high"]
        sums["share"] += row["share"]
        sums["expected"] += row["expected"]
        sums["accuracy"] += curve["accuracy"]
        sums["expected_accuracy"] += curve["expected"]
        # The mean share given the places, where neighbours have about the same probability.
        sums["held"] += row["low"] <= np.mean(2 * chance * (1 - chance)) <= row["high"]
    shares = {name: value / runs for name, value in (outside | sums).items()}
    return {"place": place, "nodes": n, "dimension": d, "runs": runs, **shares}


def page(result: dict[str, Any]) -> str:
    """Return the page of the results."""
    levels, powers, gaps = result["level"], result["power"], result["odds"]
    worst = {
        groups: max(row["differs"] for row in levels if row["groups"] == groups)
        for groups in sorted({row["groups"] for row in levels})
    }
    summary = ", ".join(f"{percent(share)} at {groups} groups" for groups, share in worst.items())
    error = 300 * (0.05 * 0.95 / result["runs"]) ** 0.5
    held = percent(min(row["ratios"] for row in levels + powers))
    parts = [
        "# Rates of groups, and nulls of neighbours: level, power, coverage",
        "Written by `python benchmarks/calibration_rates.py` with the functions that the audits call, at 95 %. "
        f"{result['runs']:,} samples a cell of rates: a share of 5 % has 3 Monte-Carlo errors of {error:.1f} points.",
        f"**In short.** Equal groups, some group found to differ from the largest, the worst cell: {summary}. "
        f"Below 0.8 where a group is at 0.8: at most {percent(max(row['false_below_0.8'] for row in levels))}. All "
        f"intervals of the impact ratios hold at once in at least {held} of samples, "
        f"the interval of equalised odds in at least {percent(min(row['difference'] for row in gaps))}.",
        "## Equal groups",
        "Share of samples with a finding, and with all intervals right. *Cannot tell*: no finding, and a power below "
        "50 % for a ratio of 0.7, or no two groups that can be ranked.",
        every_cell(
            levels,
            {"people": "sizes", "rate": "rate"},
            {
                "differs": "differs",
                "below 0.8 at 0.8": "false_below_0.8",
                "cannot tell": "cannot_tell",
                **{name: name for name in ("ratios", "differences", "rates")},
            },
        ),
        "## One group at 0.7 of the others",
        "*Stated* is the mean of the column `power` where the groups are equal, as they are taken to be by who finds "
        "nothing; wanted: the share that is found.",
        every_cell(
            powers,
            {"groups": "groups", "people each": "size", "rate": "rate"},
            {
                "found": "differs",
                "stated": "stated",
                "below 0.8": "below_0.8",
                "cannot tell": "cannot_tell",
                "ratios hold": "ratios",
            },
        ),
        "## Equalised odds",
        "The last group has a lower true positive rate by the gap, and a higher false positive rate by half of it. The "
        "sizes count people of each true class. *Found*: the interval of the difference lies above 0.",
        every_cell(
            gaps,
            {"people": "sizes", "TPR": "tpr", "FPR": "fpr", "gap": "gap"},
            {
                "ranked": "ranked",
                "difference holds": "difference",
                "ratio holds": "ratio",
                "found": "found",
            },
        ),
        "## Consistency, and accuracy within the evidence",
        "Classes (or errors, for the accuracy within the n/10 closest pairs) are drawn with a probability that depends "
        "on place. Counted is how often the number lies below or above the range of exchanges among near neighbours; "
        "wanted: 2.5 % each, where neighbours have about the same probability. Where it changes within a "
        "neighbourhood (last three lines of each dimension), the share lies below: classes follow the vectors more "
        "finely than the cells do. *Holds*: the interval of the share holds its mean, given the probabilities.",
        every_cell(
            result["neighbours"],
            {"probability": "place", "nodes": "nodes", "d": "dimension", "samples": "runs"},
            {
                "share": "share",
                "expected": "expected",
                "below": "share_below",
                "above": "share_above",
                "holds": "held",
                "accuracy": "accuracy",
                "accuracy expected": "expected_accuracy",
                "accuracy below": "accuracy_below",
                "accuracy above": "accuracy_above",
            },
        ),
    ]
    return "\n\n".join(parts) + "\n"


def every_cell(rows: list[dict[str, Any]], names: dict[str, str], shares: dict[str, str]) -> str:
    """Return the table of all cells: what they are, and shares in percent, by the heads of their columns."""
    lines = [
        [*(row[name] for name in names.values()), *(percent(row[name]) for name in shares.values())]
        for row in rows
    ]
    return folded("Every cell", table([*names, *shares], lines))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--neighbour-runs", type=int, default=200)
    parser.add_argument(
        "--parts", nargs="+", default=list(PARTS), choices=PARTS, help="the others stay as they are"
    )
    given = parser.parse_args()
    gaps = ((0.8, 0.2, 0.0), (0.8, 0.2, 0.1), (0.6, 0.4, 0.2))
    cells: dict[str, Iterable[tuple[Any, ...]]] = {
        "level": product(SIZES, RATES, [given.runs]),
        "power": product(POWER_RATES, (2, 5, 10), (100, 200, 500), [given.runs]),
        "odds": product(SIZES, gaps, [given.runs]),
        "neighbours": (
            (place, n, d, given.neighbour_runs)
            for n, d in ((300, 3), (300, 12))
            for place in PLACES
        ),
    }
    before = RESULTS / "calibration_rates.json"
    result = json.loads(before.read_text()) if before.exists() else {}
    result["runs"] = given.runs
    for part in given.parts:
        result[part] = [PARTS[part](cell) for cell in cells[part]]
        print(
            f"{part}: written to {save('calibration_rates', result | {'environment': environment()})}"
        )
    if result.keys() >= PARTS.keys():
        (RESULTS / "calibration_rates.md").write_text(page(result))


PARTS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "level": level,
    "power": power,
    "odds": odds,
    "neighbours": neighbours,
}


if __name__ == "__main__":
    main()
