"""How often do the direct tests raise a false alarm, and how often do they find a planted effect?

Measures ``audit.direct_effects`` through ``EvidenceFinder.from_vectors``, and writes results/calibration.json and the
page results/calibration.md. Runs resume: cells that have as many runs as wanted are passed over. Seeds start at 30,000;
nothing was tuned on them.

    CFE_DATA=... python benchmarks/calibration.py --runs 100
    python benchmarks/calibration.py --page          # the page alone, from the results
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from calibration_cells import (
    CELLS,
    CHANGES,
    LARGE,
    Cell,
    Change,
    People,
    many_values,
    people,
    two_models,
)
from calibration_tables import TABLES
from common import RESULTS, folded, save, table
from numpy.typing import NDArray

import cfe_faiss as cfe
from cfe_faiss import audit
from cfe_faiss.audit.direct_test import ScoreTest, question, verdict
from cfe_faiss.audit.groups import DEFAULT_BINS

NAME = "calibration"
PAGE = RESULTS / f"{NAME}.md"
FIRST_SEED = 30_000
BATCH = 20
K = 10  # neighbours of the situation test
ROUNDS = (40, 100, 200)
"""Everything gets so many runs before anything gets more."""
TESTS = ("direction", "situation")
CHANGE_TESTS = ("rates", *TESTS)
ALPHA, HIGHEST_LEVEL, HIGHEST_FAMILY = 0.05, 8.0, 6.0
MOST_PEOPLE = 6_000  # of a real table, drawn at random
KINDS = ("independent", "correlated", "rare")
Results = dict[str, Any]


def tested(X: Any, decisions: Any, attributes: Mapping[str, Any]) -> audit.DirectEffects:
    """Return what the product says: decision 0 is the unfavourable one."""
    finder = cfe.EvidenceFinder.from_vectors(X, decisions, features=attributes)
    return audit.direct_effects(finder, sensitive=list(attributes), unfavourable=0)


def outcomes(
    effects: audit.DirectEffects | audit.ModelComparison, value: str = "1"
) -> Iterator[tuple[str, str]]:
    """Yield test and outcome for the carriers of a value, each test taken alone."""
    rows = effects.table[effects.table["value"] == value]
    for row in rows.itertuples():
        if row.verdict == "cannot tell":
            yield row.test, "cannot tell"
        elif row.p <= ALPHA:
            yield row.test, "disadvantaged" if row.statistic > 0 else "advantaged"
        else:
            yield row.test, "no finding"
        if row.few:
            yield row.test, "few"


def batch(
    part: Results, name: str, nothing: Results, runs: int, size: int = BATCH
) -> Iterator[tuple[Results, int]]:
    """Yield the counts of a cell and the seed of each run of its next batch; nothing if no run is lacking."""
    counts = part.setdefault(name, {"runs": 0, **nothing})
    first = FIRST_SEED + counts["runs"]
    for seed in range(first, first + min(size, runs - counts["runs"])):
        yield counts, seed
        counts["runs"] += 1


def count(of: dict[str, int], outcome: str) -> None:
    of[outcome] = of.get(outcome, 0) + 1


def carriers_tested(drawn: People, metric: str) -> dict[str, ScoreTest]:
    """Return both tests of the carriers as `audit.direct_effects` makes them, without those of all others."""
    attribute = {"attribute": drawn.carries.astype(int)}
    finder = cfe.EvidenceFinder.from_vectors(
        drawn.X, drawn.decisions, features=attribute, metric=metric
    )
    sample, carries, _ = question(
        finder, "attribute", ("value", 1), 0, None, DEFAULT_BINS, drawn.persons
    )
    _, tests = sample.test(carries, [sample.evidence_contrast, sample.situation_contrast(K)])
    return dict(zip(TESTS, tests, strict=True))


def run_cell(name: str, cell: Cell, results: Results, runs: int) -> bool:
    """Add one batch of runs to a cell; return whether any was lacking."""
    lacking = False
    nothing = {test: {} for test in TESTS}
    size = BATCH if cell.n < 10_000 else 2
    for counts, seed in batch(results["cells"], name, nothing, runs, size):
        lacking = True
        for test, result in carriers_tested(people(name, cell, seed), cell.metric).items():
            count(counts[test], verdict(result.statistic, result.p_value, ALPHA))
            if result.few:
                count(counts[test], "few")
    return lacking


def run_families(results: Results, kind: str, runs: int) -> bool:
    """Add one batch of reports on 30 values without any effect."""
    lacking = False
    nothing = {"named": 0, "told": 0, "below": 0}
    for counts, seed in batch(results["families"], kind, nothing, runs):
        lacking = True
        found = tested(*many_values(kind, seed)).table
        counts["named"] += int(found["named"].any())
        counts["told"] += int(found["p"].notna().sum())
        counts["below"] += int((found["p"] <= ALPHA).sum())
    return lacking


def run_change(name: str, change: Change, results: Results, runs: int) -> bool:
    """Add one batch of comparisons of two models; return whether any was lacking."""
    lacking = False
    nothing: Results = {"named": 0, **{test: {} for test in CHANGE_TESTS}}
    for counts, seed in batch(results["changes"], name, nothing, runs):
        lacking = True
        drawn, after = two_models(name, change, seed)
        attribute = {"attribute": drawn.carries.astype(int)}
        finder = cfe.EvidenceFinder.from_vectors(drawn.X, drawn.decisions, features=attribute)
        compared = audit.compare_models(
            finder, {"v2": after}, pairs=1, sensitive=["attribute"], unfavourable=0
        )
        counts["named"] += bool(compared.table["named"].any())
        for test, outcome in outcomes(compared):
            count(counts[test], outcome)
    return lacking


def run_real(results: Results, name: str) -> None:
    """Hide each binary attribute of a data set from a freshly trained model in turn, and test it."""
    from cfe_faiss.datasets import load

    data = load(name)
    rows = np.random.default_rng(FIRST_SEED).permutation(len(data.x_raw))[:MOST_PEOPLE]
    x, y = data.x_raw.numpy().astype(np.float64)[rows], (data.y.numpy()[rows] == 1).astype(int)
    found_lines = []
    for j, attribute in enumerate(data.feature_names):
        values = np.unique(x[:, j])
        if len(values) != 2 or min(np.bincount((x[:, j] == values[1]).astype(int))) < 20:
            continue
        carries = x[:, j] == values[1]
        others = np.delete(x, j, axis=1)
        others = others[:, others.std(axis=0) > 0]
        others = (others - others.mean(axis=0)) / others.std(axis=0)
        for model in ("boosting", "logistic"):
            scores = predicted(model, others, y)
            border = carries & (np.abs(scores) <= np.quantile(np.abs(scores), 0.3))
            flipped = border & (np.random.default_rng([FIRST_SEED, j]).random(len(x)) < 0.3)
            for harm, decisions in (("none", scores > 0), ("flipped", (scores > 0) & ~flipped)):
                effects = tested(others, decisions.astype(int), {attribute: carries.astype(int)})
                found = {test: outcome for test, outcome in outcomes(effects) if outcome != "few"}
                found_lines.append({"attribute": attribute, "model": model, "harm": harm, **found})
    results["real"][name] = found_lines


def predicted(model: str, X: NDArray[np.float64], y: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return scores of a model for people that it was not fitted on."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_predict

    models = {
        "boosting": HistGradientBoostingClassifier(max_iter=60),
        "logistic": LogisticRegression(max_iter=1000),
    }
    scores: NDArray[np.float64] = cross_val_predict(models[model], X, y, method="decision_function")
    return scores


def percent(count: int, runs: int) -> float:
    return 100 * count / runs if runs else float("nan")


def error(share: float, runs: int) -> float:
    """Return the Monte-Carlo error of a share in percent."""
    return 100 * float(np.sqrt(share / 100 * (1 - share / 100) / runs)) if runs else float("nan")


def alarms(counts: Mapping[str, Any], test: str) -> float:
    of = counts[test]
    return percent(of.get("disadvantaged", 0) + of.get("advantaged", 0), counts["runs"])


def levels(results: Results, cells: Mapping[str, Cell], limits: bool = False) -> str:
    rows = []
    for name, cell in cells.items():
        counts = results["cells"].get(name, {"runs": 0})
        runs = counts["runs"]
        if cell.harm or cell.is_limit != limits or not runs:
            continue
        shares = [alarms(counts, test) for test in TESTS]
        row = [cell.title, runs, *(f"{share:.1f}" for share in shares)]
        row += [each(counts, "cannot tell"), each(counts, "few")]
        if not limits:
            highest = HIGHEST_LEVEL + 3 * error(HIGHEST_LEVEL, runs)
            row.append("yes" if max(shares) <= highest else "**no**")
        rows.append(row)
    if not limits and rows:
        runs = sum(row[1] for row in rows)
        sums = [sum(row[1] * float(row[column]) for row in rows) / runs for column in (2, 3)]
        rows.append(["**all of these**", runs, *(f"**{s:.1f}**" for s in sums), "", "", ""])
    head = ["population", "runs", "direction, %", "situation, %", "cannot tell", "few"]
    return table(head if limits else [*head, f"at most {HIGHEST_LEVEL:g} % + 3 errors"], rows)


def each(counts: Results, outcome: str, tests: Sequence[str] = TESTS) -> str:
    """Return how often each test had an outcome."""
    return "/".join(str(counts[test].get(outcome, 0)) for test in tests)


def powers(results: Results, cells: Mapping[str, Cell]) -> str:
    rows = []
    for name, cell in cells.items():
        counts = results["cells"].get(name, {"runs": 0})
        runs = counts["runs"]
        if cell.harm and runs:
            found = [percent(counts[test].get("disadvantaged", 0), runs) for test in TESTS]
            shares = [f"{share:.0f}" for share in found]
            wrong = each(counts, "advantaged")
            rows.append([cell.title, runs, *shares, wrong, each(counts, "cannot tell")])
    head = ["planted effect", "runs", "direction, %", "situation, %", "wrong side", "cannot tell"]
    return table(head, rows)


def changes(results: Results, null: bool) -> str:
    rows = []
    for name, change in CHANGES.items():
        counts = results["changes"].get(name, {"runs": 0})
        runs = counts["runs"]
        if bool(change.right) == null or not runs:
            continue
        cells = [
            f"{alarms(counts, test):.1f}"
            if null
            else f"{percent(counts[test].get(change.right, 0), runs):.0f}"
            for test in CHANGE_TESTS
        ]
        if null and not change.rates:
            cells[0] = f"({cells[0]})"
        named = f"{percent(counts['named'], runs):.1f}"
        told = each(counts, "cannot tell", CHANGE_TESTS)
        rows.append([change.title, runs, *cells, named, told])
    head = ["models" if null else "planted change", "runs", *(f"{t}, %" for t in CHANGE_TESTS)]
    return table([*head, "names something, %", "cannot tell"], rows)


def families(results: Results) -> str:
    rows = []
    for kind, counts in results["families"].items():
        runs = counts["runs"]
        named = percent(counts["named"], runs)
        highest = HIGHEST_FAMILY + 3 * error(HIGHEST_FAMILY, runs)
        single = percent(counts["below"], counts["told"])
        told = f"{counts['told'] / runs:.0f} of 60"
        held = "yes" if named <= highest else "**no**"
        rows.append([kind, runs, f"{named:.1f}", f"{single:.1f}", told, held])
    head = ["attributes", "reports", "name something, %", "single tests p <= .05, %"]
    return table([*head, "tests that can tell", "held"], rows)


def real(results: Results) -> str:
    rows = []
    for name, lines in results["real"].items():
        for harm, model in product(("none", "flipped"), ("boosting", "logistic")):
            of = [line for line in lines if (line["harm"], line["model"]) == (harm, model)]
            counts = {test: Counter(line[test] for line in of) for test in TESTS}
            sides = ("disadvantaged", "advantaged")[: 2 if harm == "none" else 1]
            found = [sum(own[side] for side in sides) for own in counts.values()]
            rows.append([name, model, harm, len(of), *found, each(counts, "cannot tell")])
    head = ["data", "model", "planted effect", "attributes"]
    return table([*head, *(f"{test}: p <= .05" for test in TESTS), "cannot tell"], rows)


def page(results: Results | None = None) -> str:
    """Return the page of these results, by default of those in the file."""
    results = load_results() if results is None else results
    runs = sorted(counts["runs"] for counts in results["cells"].values())
    parts = [
        "# Calibration of the audit's tests",
        "How often the direct tests of `cfe_faiss.audit` find an effect where there is none (level), and where one was "
        "planted (power), at a two-sided 5 %. Measured with `EvidenceFinder.from_vectors` and the tests that "
        "`audit.direct_effects` makes of one value; families, changes and real tables with the audits themselves. "
        f"Each line has its number of runs ({runs[0]} to {runs[-1]}). A share of 5 % has a Monte-Carlo error of 3.4 "
        "points over 40 runs, and of 2.2 points over 100; the bound of a line is then 21 and 16 %. So a line alone "
        "says little, and the line of all cells more. Seeds start at 30,000; nothing was tuned on them. n = 1,500 "
        "and d = 12 where nothing else is said. `python benchmarks/calibration.py --runs 400` goes on and writes this "
        "page.",
        "Answers 1 to 5 in 3 columns have 1,000 runs, as their first 400 gave 8.5 % (direction test).",
        "## Level: no effect, vectors compared by cosine",
        folded("Every cell", levels(results, CELLS | LARGE)),
        "## Level: no effect, tables compared by distance",
        "1,000 people. Columns are encoded as `from_table` does it: numbers in standard deviations, texts that differ "
        "one standard deviation apart. The attribute goes along with the columns that decide, and adds nothing.",
        folded("Every cell", levels(results, TABLES)),
        "## Limits: no effect, and yet a finding",
        "The attribute follows the decision more finely than the vectors and the number of people can teach. No test "
        "that knows the vectors only can tell this from an effect. *Not explained by the vectors* is true here, "
        "*caused by the attribute* would be false. The last line breaks another condition: people must be independent, "
        "or `person=` must say who repeats.",
        levels(results, CELLS, limits=True),
        "## Power: a planted effect, found on the right side",
        "Only findings on the right side count; the next column has those on the wrong one.",
        folded("Every cell", powers(results, CELLS)),
        "The same for tables, compared by distance: 30 % of the carriers near the border are refused.",
        folded("Every cell", powers(results, TABLES)),
        "## Many values: six attributes of five values, no effect",
        f"At most {HIGHEST_FAMILY:g} % of the reports, and three Monte-Carlo errors, may name anything.",
        families(results),
        "## Two models, the same direct effect: level of the tests of a change",
        "`audit.compare_models`, n = 1,000, d = 12. Tests of the carriers, each alone at 5 %, two-sided: exact McNemar "
        "test of the rate, and the score tests of the change of both contrasts. The next column is the share of "
        "comparisons that name anything after the correction. Each model decides by chance, unless said. Two learned "
        "models have different rates: their first number, in brackets, is power.",
        changes(results, null=True),
        "## Two models, a planted change of the direct effect: power",
        "The first model decides without the attribute, the second with it; in the last line it is the other way "
        "round. Only findings on the right side count, except in the column of the correction.",
        changes(results, null=False),
        "## Real tables",
        "Each binary attribute is hidden from a freshly trained model and from the vectors in turn. Predictions are "
        f"those for people that the model was not fitted on; at most {MOST_PEOPLE:,} people are drawn. The models do "
        "not see the attribute, but other columns may tell it more finely than the test can learn. The planted effect: "
        "30 % of the carriers near the border are refused. Only findings on the right side count there.",
        real(results),
        "Rates of groups have [their own page](calibration_rates.md).",
    ]
    return "\n\n".join(parts) + "\n"


def load_results() -> Results:
    path = RESULTS / f"{NAME}.json"
    results: Results = json.loads(path.read_text()) if path.exists() else {}
    return {**{part: {} for part in ("cells", "families", "changes", "real")}, **results}


def write(results: Results) -> Path:
    results.pop("environment", None)
    save(NAME, results)
    PAGE.write_text(page(results))
    return PAGE


def run_round(results: Results, runs: int, only: list[str] | None) -> None:
    """Bring every cell and every family to the number of runs, large cells to a tenth of it."""
    for name, cell in (CELLS | TABLES).items():
        if only is None or name in only:
            while run_cell(name, cell, results, runs):
                write(results)
    for name, change in CHANGES.items():
        if only is None or name in only:
            while run_change(name, change, results, runs):
                write(results)
    if only is not None:
        return
    for kind in KINDS:
        while run_families(results, kind, runs):
            write(results)
    for data in ("german", "bail"):
        if data not in results["real"]:
            run_real(results, data)
            write(results)
    for name, cell in LARGE.items():
        while run_cell(name, cell, results, runs // 10):
            write(results)
    print(f"{runs} runs each: {write(results)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--page", action="store_true", help="write the page from the results")
    parser.add_argument("--only", nargs="*", help="cells; by default all, and everything else")
    args = parser.parse_args()
    results = load_results()
    if not args.page:
        for runs in (*(number for number in ROUNDS if number < args.runs), args.runs):
            run_round(results, runs, args.only)
    write(results)


if __name__ == "__main__":
    main()
