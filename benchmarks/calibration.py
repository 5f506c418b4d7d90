"""How often do the direct tests raise a false alarm, and how often do they find a planted effect?

Measures ``audit.direct_effects`` through ``EvidenceFinder.from_vectors``, and writes results/calibration.json and the
page results/calibration.md. Runs resume: cells that have as many runs as wanted are passed over. Seeds start at 30,000;
nothing was tuned on them.

    CFE_DATA=... python benchmarks/calibration.py --runs 100
    python benchmarks/calibration.py --page          # the page alone, from the results
"""

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping
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
from common import RESULTS, folded, save
from numpy.typing import NDArray
from report import table

import cfe_faiss as cfe
from cfe_faiss import audit
from cfe_faiss.audit.direct_test import ScoreTest, question, verdict
from cfe_faiss.audit.groups import DEFAULT_BINS

NAME = "calibration"
PAGE = RESULTS / f"{NAME}.md"
FIRST_SEED = 30_000
BATCH = 20
NULL_MODEL = 2  # amounts and normal ranks of columns that are far from normal
K = 10  # neighbours of the situation test
ROUNDS = (40, 100, 200)
"""Everything gets so many runs before anything gets more."""
TESTS = ("direction", "situation")
CHANGE_TESTS = ("rates", *TESTS)
ALPHA, HIGHEST_LEVEL, HIGHEST_FAMILY = 0.05, 8.0, 6.0
PROMISE_RUNS = 80
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


def counts_of(part: Results, name: str, nothing: Results) -> Results:
    """Return the counts of a cell to go on with; new ones if they are missing or of an earlier null model."""
    if part.get(name, {}).get("null_model") != NULL_MODEL:
        part[name] = {"runs": 0, "null_model": NULL_MODEL, **nothing}
    counts: Results = part[name]
    return counts


def marked(title: str, counts: Results) -> str:
    """Return the title of a line with a mark if it was not measured with the null model and the code as they are."""
    return title if counts.get("null_model") == NULL_MODEL else f"{title} *"


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
    counts = counts_of(results["cells"], name, {test: {} for test in TESTS})
    todo = min(BATCH if cell.n < 10_000 else 2, runs - counts["runs"])
    for seed in range(FIRST_SEED + counts["runs"], FIRST_SEED + counts["runs"] + todo):
        for test, result in carriers_tested(people(name, cell, seed), cell.metric).items():
            for outcome in (
                verdict(result.statistic, result.p_value, ALPHA),
                *(["few"] if result.few else []),
            ):
                counts[test][outcome] = counts[test].get(outcome, 0) + 1
    counts["runs"] += max(0, todo)
    return todo > 0


def run_families(results: Results, kind: str, runs: int) -> bool:
    """Add one batch of reports on 30 values without any effect."""
    counts = counts_of(results["families"], kind, {"named": 0, "told": 0, "below": 0})
    todo = min(BATCH, runs - counts["runs"])
    for seed in range(FIRST_SEED + counts["runs"], FIRST_SEED + counts["runs"] + todo):
        X, decisions, attributes = many_values(kind, seed)
        found = tested(X, decisions, attributes).table
        counts["named"] += int(found["named"].any())
        counts["told"] += int(found["p"].notna().sum())
        counts["below"] += int((found["p"] <= ALPHA).sum())
    counts["runs"] += max(0, todo)
    return todo > 0


def run_change(name: str, change: Change, results: Results, runs: int) -> bool:
    """Add one batch of comparisons of two models; return whether any was lacking."""
    counts = counts_of(
        results["changes"], name, {"named": 0, **{test: {} for test in CHANGE_TESTS}}
    )
    todo = min(BATCH, runs - counts["runs"])
    for seed in range(FIRST_SEED + counts["runs"], FIRST_SEED + counts["runs"] + todo):
        drawn, after = two_models(name, change, seed)
        attribute = {"attribute": drawn.carries.astype(int)}
        finder = cfe.EvidenceFinder.from_vectors(drawn.X, drawn.decisions, features=attribute)
        compared = audit.compare_models(
            finder, {"v2": after}, pairs=1, sensitive=["attribute"], unfavourable=0
        )
        counts["named"] += bool(compared.table["named"].any())
        for test, outcome in outcomes(compared):
            counts[test][outcome] = counts[test].get(outcome, 0) + 1
    counts["runs"] += max(0, todo)
    return todo > 0


def run_costs(results: Results) -> None:
    """Time all tests of 30 values, and the share of the neighbours, pairs and basis that they share."""
    for n, d in ((3_000, 12), (30_000, 64)):
        X, decisions, attributes = many_values("independent", FIRST_SEED, n)
        if d != X.shape[1]:
            rng = np.random.default_rng(0)
            X = np.column_stack([X, rng.normal(size=(n, d - X.shape[1])) / 8])
        tested(
            X[:300], decisions[:300], {"attribute 0": attributes["attribute 0"][:300]}
        )  # imports
        clock, processor = time.perf_counter(), time.process_time()
        tested(X, decisions, attributes)
        results["costs"][f"{n:,} x {d}"] = [
            time.perf_counter() - clock,
            time.process_time() - processor,
        ]


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


def keeps(promised: float, measured: float, runs: int) -> bool:
    """Return whether a power in percent is not below the promised one by more than three Monte-Carlo errors.

    The promised power was measured, too, over ``PROMISE_RUNS`` other runs: the error is that of the difference of two
    shares, with their pooled variance.
    """
    pooled = (PROMISE_RUNS * promised + runs * measured) / (PROMISE_RUNS + runs) / 100
    return promised - measured <= 300 * float(
        np.sqrt(pooled * (1 - pooled) * (1 / PROMISE_RUNS + 1 / runs))
    )


def alarms(counts: Mapping[str, Any], test: str) -> float:
    of = counts[test]
    return percent(of.get("disadvantaged", 0) + of.get("advantaged", 0), counts["runs"])


def levels(results: Results, cells: Mapping[str, Cell], limits: bool = False) -> str:
    rows = []
    for name, cell in cells.items():
        counts = results["cells"].get(name, {"runs": 0})
        if cell.harm or cell.is_limit != limits or not counts["runs"]:
            continue
        highest = HIGHEST_LEVEL + 3 * error(HIGHEST_LEVEL, counts["runs"])
        shares = [alarms(counts, test) for test in TESTS]
        held = "" if limits else "yes" if max(shares) <= highest else "**no**"
        told = "/".join(str(counts[test].get("cannot tell", 0)) for test in TESTS)
        few = "/".join(str(counts[test].get("few", 0)) for test in TESTS)
        title = marked(cell.title, counts)
        rows.append(
            [
                title,
                counts["runs"],
                *(f"{s:.1f}" for s in shares),
                told,
                few,
                *([] if limits else [held]),
            ]
        )
    if not limits and rows:
        runs = sum(row[1] for row in rows)
        sums = [sum(row[1] * float(row[column]) for row in rows) / runs for column in (2, 3)]
        rows.append(["**all of these**", runs, *(f"**{s:.1f}**" for s in sums), "", "", ""])
    head = ["population", "runs", "direction, %", "situation, %", "cannot tell", "few"]
    return table(head if limits else [*head, f"at most {HIGHEST_LEVEL:g} % + 3 errors"], rows)


def powers(results: Results, cells: Mapping[str, Cell]) -> str:
    rows = []
    for name, cell in cells.items():
        counts = results["cells"].get(name, {"runs": 0})
        if not cell.harm or not counts["runs"]:
            continue
        runs = counts["runs"]
        shares = [percent(counts[test].get("disadvantaged", 0), runs) for test in TESTS]
        wrong = "/".join(str(counts[test].get("advantaged", 0)) for test in TESTS)
        told = "/".join(str(counts[test].get("cannot tell", 0)) for test in TESTS)
        floor, held = "", ""
        if cell.floor:
            floor = "/".join(f"{value:g}" for value in cell.floor)
            held = (
                "yes"
                if all(keeps(f, s, runs) for f, s in zip(cell.floor, shares, strict=True))
                else "**no**"
            )
        title = marked(cell.title, counts)
        rows.append([title, runs, *(f"{s:.0f}" for s in shares), wrong, told, floor, held])
    head = [
        "planted effect",
        "runs",
        "direction, %",
        "situation, %",
        "wrong side",
        "cannot tell",
        "promised",
        "held",
    ]
    return table(head, rows)


def changes(results: Results, null: bool) -> str:
    rows = []
    for name, change in CHANGES.items():
        counts = results["changes"].get(name, {"runs": 0})
        if bool(change.right) == null or not counts["runs"]:
            continue
        runs = counts["runs"]
        right = {test: percent(counts[test].get(change.right, 0), runs) for test in CHANGE_TESTS}
        shares = {test: alarms(counts, test) if null else right[test] for test in CHANGE_TESTS}
        cells = [f"{share:.1f}" if null else f"{share:.0f}" for share in shares.values()]
        if null and not change.rates:
            cells[0] = f"({cells[0]})"
        told = "/".join(str(counts[test].get("cannot tell", 0)) for test in CHANGE_TESTS)
        rows.append(
            [
                marked(change.title, counts),
                runs,
                *cells,
                f"{percent(counts['named'], runs):.1f}",
                told,
            ]
        )
    head = [
        "models" if null else "planted change",
        "runs",
        "rates, %",
        "direction, %",
        "situation, %",
    ]
    return table([*head, "names something, %", "cannot tell"], rows)


def families(results: Results) -> str:
    rows = []
    for kind, counts in results["families"].items():
        runs = counts["runs"]
        named = percent(counts["named"], runs)
        highest = HIGHEST_FAMILY + 3 * error(HIGHEST_FAMILY, runs)
        single = percent(counts["below"], counts["told"])
        rows.append([marked(kind, counts), runs, f"{named:.1f}", f"{single:.1f}", f"{counts['told'] / runs:.0f} of 60",
                     "yes" if named <= highest else "**no**"])  # fmt: skip
    head = [
        "attributes",
        "reports",
        "name something, %",
        "single tests p <= .05, %",
        "tests that can tell",
        "held",
    ]
    return table(head, rows)


def real(results: Results) -> str:
    rows = []
    for name, lines in results["real"].items():
        for harm in ("none", "flipped"):
            for model in ("boosting", "logistic"):
                of = [line for line in lines if (line["harm"], line["model"]) == (harm, model)]
                counts = {test: Counter(line[test] for line in of) for test in TESTS}
                alarms_too = harm == "none"
                found = [
                    f"{c['disadvantaged'] + alarms_too * c['advantaged']}" for c in counts.values()
                ]
                told = [f"{c['cannot tell']}" for c in counts.values()]
                rows.append([name, model, harm, len(of), *found, "/".join(told)])
    head = [
        "data",
        "model",
        "planted effect",
        "attributes",
        "direction: p <= .05",
        "situation: p <= .05",
        "cannot tell",
    ]
    return table(head, rows)


def costs(results: Results) -> str:
    rows = [
        [name, *(f"{seconds:.1f}" for seconds in both)] for name, both in results["costs"].items()
    ]
    return table(["people x dimensions", "seconds by the clock", "processor seconds"], rows)


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
        "Lines with * were measured with the null model before it knew normal ranks; the script measures "
        "them anew. Answers 1 to 5 in 3 columns have 1,000 runs, as their first 400 gave 8.5 % (direction test).",
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
        f"A promise is the power that the prototype of the tests had over {PROMISE_RUNS} runs on other people. It is "
        "held unless the power here is lower by more than three Monte-Carlo errors of the difference. Two cells were "
        "tried in pairs, prototype and product on the same 200 populations (seeds from 40,000 on). Score lowered by "
        ".15 sd, 10 % carry: the situation test of the prototype finds 188, that of the product 187, and they differ "
        "in one. Border flipped, 50 % carry: 198 and 198, the same ones.",
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
        "## Cost of all tests of 30 values",
        "Neighbours, pairs and the basis are computed once for all values. The clock also counts the time that other "
        "work on the machine takes; processor seconds do not.",
        costs(results),
        "Rates of groups have [their own page](calibration_rates.md).",
    ]
    return "\n\n".join(parts) + "\n"


def load_results() -> Results:
    path = RESULTS / f"{NAME}.json"
    results: Results = json.loads(path.read_text()) if path.exists() else {}
    return {**{part: {} for part in ("cells", "families", "changes", "real", "costs")}, **results}


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
    if not results["costs"]:
        run_costs(results)
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
