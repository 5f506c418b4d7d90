"""All tests that may name a finding, of one model and of the changes to other models."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from cfe_faiss.audit.direct_test import Samples, judge
from cfe_faiss.audit.effects import DirectEffects, effects_of
from cfe_faiss.audit.groups import attributes_of_finder, groupings, known_rows
from cfe_faiss.audit.model_comparison import BASELINE, ModelComparison, compare_models
from cfe_faiss.audit.reporting.document import (
    Column,
    Section,
    Table,
    group_name,
    low_high,
    number,
    rows_of,
    show,
)
from cfe_faiss.audit.reporting.inputs import Inputs, Metric, Part
from cfe_faiss.audit.reporting.sections.groups import ALPHA, Rates, find_rates
from cfe_faiss.base.extras import pd
from cfe_faiss.rows.metric import is_distance, measure_of, measured

_RATIO = "impact ratio"
TESTS = {"direction": "closest pairs", "situation": "nearest neighbours"}
"""Names of the direct tests on the page."""
_CHANGES = {
    "rates": "change of the rate",
    **{kind: f"change: {name}" for kind, name in TESTS.items()},
}
"""Names of the tests of a change on the page."""
_Row = dict[str, Any]


def find_effects(inputs: Inputs) -> DirectEffects | None:
    """Run the direct tests, in one family with impact ratios and changes.

    None without groups or a favourable class.
    """
    if not inputs.sensitive or not inputs.unfavourable:
        return None
    comparisons = inputs.once(find_rates).comparisons
    others = {row["feature"]: np.nan if row["p"] is None else row["p"] for row in comparisons}
    samples = inputs.once(find_samples)
    if changes := inputs.once(find_changes):
        others |= {change_key(row): row["p"] for row in changes.table.to_dict("records")}
    return effects_of(
        samples,
        groupings(
            attributes_of_finder(inputs.finder),
            samples.rows,
            inputs.sensitive,
            with_missing=False,
            **inputs.options,
        ),
        inputs.settings.k,
        ALPHA,
        others,
    )


def find_samples(inputs: Inputs) -> Samples:
    """Return the samples of the direct tests as reported."""
    return Samples(
        inputs.finder,
        known_rows(inputs.finder, None),
        np.array(inputs.unfavourable, np.int32),
        inputs.persons,
    )


def find_changes(inputs: Inputs) -> ModelComparison | None:
    """Compare the models on pairs as near as the closest pairs. None without other models."""
    if inputs.models is None:
        return None
    tested: dict[str, Any] = {}
    if inputs.unfavourable:
        others = [
            name for label, name in enumerate(inputs.class_names) if label not in inputs.favourable
        ]
        tested = {"unfavourable": others, "sensitive": inputs.sensitive, **inputs.options}
    models = {name: labels for name, labels in inputs.models.items() if name != BASELINE}
    if inputs.finder.class_names is not None:  # numbers are names in a table, -1 may be one
        names = np.array([*inputs.class_names, None], object)
        models = {name: names[labels] for name, labels in models.items()}
    closest_pairs = inputs.finder.top_pairs(inputs.settings.pairs)
    nearest = 0.0 if is_distance(closest_pairs.metric) else 1.0
    return compare_models(
        inputs.finder,
        models,
        k=inputs.settings.k,
        threshold=float(measured(closest_pairs.D, closest_pairs.metric)[-1])
        if len(closest_pairs)
        else nearest,
        pairs=inputs.settings.pairs,
        confidence=inputs.settings.confidence,
        person=inputs.persons,
        **tested,
    )


def change_key(row: Mapping[Any, Any]) -> str:
    """Return the name of a test of a change in the family of all tests."""
    return repr([row[name] for name in ("model", "test", "attribute", "value")])


def change_rows(inputs: Inputs) -> list[_Row]:
    """Return the tests of changes as rows of the table of all tests, adjusted over these."""
    changes = inputs.once(find_changes)
    effects = inputs.once(find_effects)
    rows = [] if changes is None else rows_of(changes.table)
    sizes = Counter((row["model"], row["attribute"], row["test"]) for row in rows)
    for row in rows:
        if effects is not None and row["p"] is not None:
            judge(row, effects.others[change_key(row)], effects.fdr)
        model = show(row["model"])
        kind = row["test"]
        is_known = row["p"] is not None
        place = inputs.group({"feature": row["attribute"], "value": row["value"]})
        moved = (
            f"{row['worse']:,.0f} to an unfavourable decision, {row['better']:,.0f} from one"
            if kind == "rates"
            else ""
        )
        row |= {
            "values": 0 if kind == "rates" else sizes[row["model"], row["attribute"], kind],
            "detail": row["reason"] or moved,
            "group": f"{model}: {place}",
            "attribute": f"{model}: {row['attribute']}",
            "place": place,
            "n_carriers": row["n"],
            "change": row["effect"],
            "effect": row["effect"] if is_known else None,
            "n_effective": round(row["n_effective"], 1),
            "kind": kind,
            "test": _CHANGES[kind],
        }
    return _keep_one_side(rows)


def all_tests_section(inputs: Inputs) -> Section:
    """Return one table of all tests, and the findings that survive the correction."""
    effects = inputs.once(find_effects)
    rates = inputs.once(find_rates)
    assert effects is not None
    sizes = effects.table.groupby("attribute")["value"].nunique()
    direct = [
        _direct_row(inputs, row | {"values": int(sizes[row["attribute"]])})
        for row in rows_of(effects.table)
    ]
    rows = [*(_ratio_row(row, effects) for row in rates.comparisons), *_keep_one_side(direct)]
    changes = inputs.once(change_rows)
    named = [row for row in rows if row["named"]]
    q = [row["q"] for row in direct if row["q"] is not None]
    values = {
        "unequal": list(_unequal(inputs, rates, effects)),
        "unexplained": _unexplained(named),
        "untold": _untold(rows),
        "direct": len(direct),
        "direct_told": len(q),
        "smallest_q": min(q, default=None),
        "baseline": None if inputs.models is None else show(next(iter(inputs.models))),
        "count": len(effects.others) + len(direct),
        "told": len(q) + int(np.isfinite(list(effects.others.values())).sum()),
        "named_count": len(named) + sum(row["named"] for row in changes),
        "changes": bool(changes),
        "fdr": effects.fdr,
        "k": effects.k,
        "has_gamma": inputs.finder.links is None,
    }
    ordered = sorted([*rows, *changes], key=lambda row: (not row["named"], row["p"] is None))
    return Section(values, tables=[Table("all_tests", _ALL_TESTS, ordered)], limits=effects.limits)


_ALL_TESTS = (
    Column("group", "Group"),
    Column("test", "Test"),
    Column("n_carriers", "n", "count"),
    Column("effect", "Effect", "points", n="n_carriers"),
    Column("detail", "Detail", "long"),
    Column("p", "p", "p-value", n="n_carriers"),
    Column("q", "q", "p-value", n="n_carriers"),
    Column("n_effective", "Decisive", "number"),
    Column("verdict", "Verdict"),
)


def _keep_one_side(rows: Sequence[_Row]) -> list[_Row]:
    """Return the rows; of an attribute with two values only the value at a disadvantage."""
    row_of_pair: dict[tuple[str, ...], _Row] = {}
    for row in rows:
        key = row["attribute"], row["test"], row["value"] if row["values"] != 2 else ""
        if key not in row_of_pair or (row["statistic"] or 0) > (row_of_pair[key]["statistic"] or 0):
            row_of_pair[key] = row
    return list(row_of_pair.values())


def _direct_row(inputs: Inputs, row: _Row) -> _Row:
    detail = inputs.reword(row["reason"] or "")
    if row["same_as"]:
        detail = f"explained by {row['same_as']}"
    elif row["test"] == "direction" and not detail:
        keys = ("against", "in_favour", "expected")
        against, in_favour, expected = (number(row[key], "count") for key in keys)
        gamma = "" if row["gamma"] is None else f"; Γ* {row['gamma']:.2f}"
        detail = f"{against} pairs against, {in_favour} for; {expected} expected against{gamma}"
    return row | {
        "group": group_name(row["attribute"], row["value"]),
        "test": TESTS[row["test"]],
        "detail": detail,
        "effect": None if row["p"] is None else row["effect"],
        "n_effective": None if row["n_effective"] is None else round(row["n_effective"], 1),
        "named": row["named"] and not row["same_as"],
    }


def _ratio_row(row: _Row, effects: DirectEffects) -> _Row:
    """Return the test of an impact ratio as a row.

    Positive effects are to the disadvantage of the group.
    """
    q = effects.others[row["feature"]]
    can_tell = row["p"] is not None
    named = q <= effects.fdr
    reference = group_name(row["feature"], row["reference"])
    detail = (
        ""
        if row["ratio"] is None
        else f"ratio {number(row['ratio'], 'score')}, against {reference}"
    )
    verdict = "cannot tell" if row["verdict"] == "cannot tell" else "no finding"
    if named:  # at a confidence above 95 % its interval may hold 1
        verdict = row["verdict"] if row["verdict"].startswith("below") else "below 1"
    return {
        "attribute": row["feature"],
        "value": row["value"],
        "group": show(row["feature"])
        if row["value"] is None
        else group_name(row["feature"], row["value"]),
        "test": _RATIO,
        "n_carriers": row["count"],
        "effect": row["gap"] if can_tell else None,
        "detail": detail if can_tell else "fewer than two groups are large enough to be ranked",
        "p": row["p"],
        "q": q if can_tell else None,
        "n_effective": None,
        "verdict": verdict,
        "named": named,
    }


def _unequal(inputs: Inputs, rates: Rates, effects: DirectEffects) -> Iterator[_Row]:
    """Yield the named impact ratios; of an intersection only where neither attribute has one."""
    named = {name for name, q in effects.others.items() if q <= effects.fdr}
    crossed = {" & ".join(pair): pair for pair in inputs.crossed}
    for row in rates.comparisons:
        if row["feature"] in named and named.isdisjoint(crossed.get(row["feature"], ())):
            names = {
                "group": inputs.group(row),
                "reference_group": group_name(row["feature"], row["reference"]),
            }
            below = "below four fifths" if row["verdict"] == "below 0.8" else "below 1"
            yield row | names | {"below": below, "q": effects.others[row["feature"]]}


def _unexplained(named: Sequence[_Row]) -> list[_Row]:
    """Return each group that direct tests name, with these tests."""
    groups: dict[tuple[str, str], list[_Row]] = defaultdict(list)
    for row in named:
        if row["test"] != _RATIO:
            groups[row["group"], row["verdict"]].append(row)
    return [
        tests[0]
        | {
            "tests": tests,
            "direction": "unfavourably" if verdict == "disadvantaged" else "favourably",
        }
        for (_, verdict), tests in groups.items()
    ]


def _untold(rows: Sequence[_Row]) -> list[_Row]:
    """Return by reason the groups that the direct tests cannot tell.

    An attribute for all its groups.
    """
    tests = pd.DataFrame([row for row in rows if row["test"] != _RATIO])
    tested = tests.loc[tests["p"].notna(), "group"]
    decisive = re.compile(r"^[\d.,]+ (decisive \w+) are (fewer than)")
    without_count = tests["detail"].str.replace(r": [\d,]+$", "", regex=True)
    reasons = without_count.str.replace(decisive, r"\2 5 \1", regex=True).str.removesuffix(" 5")
    untold = tests.assign(other_told=tests["group"].isin(tested), reason=reasons)[tests["p"].isna()]
    found = []
    for (other_told, reason), of_reason in untold.groupby(["other_told", "reason"], sort=False):
        names: list[str] = []
        for attribute, lines in of_reason.groupby("attribute", sort=False):
            groups = sorted(set(lines["group"]))
            shown = lines["values"].replace(2, 1).iloc[0]
            names += [show(attribute)] if len(groups) == shown else groups
        found.append({"other_told": other_told, "names": names, "reason": reason})
    return found


def models_section(inputs: Inputs) -> Section:
    """Return the models side by side, and the changes from the first to each other one."""
    changes = inputs.once(find_changes)
    tests = inputs.once(change_rows)
    assert changes is not None
    models = rows_of(changes.models)
    for row in models:
        for end, other_end in (("", ""), ("_low", "_high"), ("_high", "_low")):
            share = row[f"unfavourable{other_end}"]
            row[f"selected{end}"] = None if share is None else 1 - share
        row |= {"attribute": None, "place": row["model"]}
    model_rows = [
        models[0] | dict.fromkeys(("changed", "appears", "disappears", "stays")),
        *models[1:],
    ]
    rates = [row | {"heading": show(row["model"])} for row in tests if row["kind"] == "rates"]
    pairs = [row for row in rows_of(changes.pairs) if row["change"] != "stays"]
    for row in pairs:
        row |= {
            f"decided_{at}": f"{row[f'source_{at}']} and {row[f'target_{at}']}"
            for at in ("before", "after")
        }
    baseline = show(changes.baseline)
    measure = measure_of(inputs.finder.metric)
    favourable = f"Decided {inputs.words['favourable_class']}"
    selected = Column("selected", favourable, "share", low_high("selected"), "n")
    right = Column("accuracy", "Right", "share", low_high("accuracy"), "judged")
    side_by_side = (
        Column("model", "Model"),
        *((selected,) if inputs.has("favourable") else ()),
        *((right,) if inputs.has("truth") else ()),
        Column("changed", "Another class", "count"),
        Column("evidence", "Separated pairs", "count", n="n"),
        Column("appears", "Appear", "count"),
        Column("disappears", "Disappear", "count"),
        Column("stays", "Stay", "count"),
    )
    of_rates = (
        Column("heading", "Model"),
        Column("place", "Group"),
        Column("n", "n", "count"),
        Column("before", baseline, "share", n="n"),
        Column("after", "Other model", "share", n="n"),
        Column("change", "Change", "points", interval=("low", "high"), n="n"),
        Column("worse", "Worse", "count"),
        Column("better", "Better", "count"),
        Column("q", "q", "p-value", n="n"),
        Column("verdict", "Verdict"),
    )
    of_directions = (
        Column("model", "Model"),
        Column("before", f"By {baseline}"),
        Column("after", "By the model"),
        Column("count", "n", "count"),
        Column("share", "Share", "share"),
    )
    of_pairs = (
        Column("model", "Model"),
        Column("source", "A"),
        Column("target", "B"),
        Column(measure, measure.capitalize(), measure),
        Column("change", "Change"),
        Column("decided_before", f"A and B by {baseline}", "long"),
        Column("decided_after", "A and B by the model", "long"),
    )
    tables = [
        Table("models", side_by_side, model_rows),
        Table("model_rates", of_rates, rates, limit=80, group="heading"),
        Table("model_directions", of_directions, rows_of(changes.directions)),
        Table("model_pairs", of_pairs, pairs, limit=15),
    ]
    values = {
        "threshold": changes.threshold,
        "baseline": changes.baseline,
        "fdr": changes.fdr,
        "told": int(changes.table["p"].notna().sum()),
        "count": len(changes.table),
        "others": models[1:],
        "left_out": len(inputs.nodes) - models[0]["n"],
        "findings": [row for row in tests if row["named"]],
    }
    return Section(
        values,
        tables=[table for table in tables if table.rows],
        limits=changes.limits,
        measured=models,
    )


PARTS = (
    Part("tests", all_tests_section, ("sensitive", "favourable", "unfavourable"), is_open=True),
    Part(
        "models",
        models_section,
        ("models",),
        is_open=True,
        is_optional=True,
        metrics={
            "evidence_pairs": Metric("evidence", "n", ("models",), is_count=True),
            "changed_share": Metric("changed_share", "n", ("models",)),
        },
    ),
)
