"""All tests that may name a finding and their sensitivity; flips, equal people and other models."""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from cfe_faiss.attributes.table import Attributes
from cfe_faiss.audit.attribute_pairs import only_in
from cfe_faiss.audit.direct_test import Samples, judge, pair_counts
from cfe_faiss.audit.effects import DirectEffects, effects_of
from cfe_faiss.audit.flipping import flip
from cfe_faiss.audit.groups import attributes_of, data_frame, groupings, known_rows, stack
from cfe_faiss.audit.model_comparison import BASELINE, ModelComparison, compare_models
from cfe_faiss.audit.reporting.document import (
    Column,
    Plot,
    Section,
    Table,
    group_name,
    low_high,
    number,
    rows_of,
    show,
    to_python,
)
from cfe_faiss.audit.reporting.inputs import Inputs
from cfe_faiss.audit.reporting.sections.groups import Rates, find_rates
from cfe_faiss.base.checks import as_dense
from cfe_faiss.data.encode import can_be_encoded, encode
from cfe_faiss.graph.ks import ks_vectors
from cfe_faiss.rows.metric import as_rows, is_distance, measure_of, measured

_RATIO = "impact ratio"
_TESTS = {"direction": "closest pairs", "situation": "nearest neighbours"}
"""Names of the direct tests on the page."""
_CHANGES = {
    "rates": "change of the rate",
    **{kind: f"change: {name}" for kind, name in _TESTS.items()},
}
"""Names of the tests of a change on the page."""
_FINDINGS = 4
_SCALINGS = 3
_LEFT_OUT = 40
"""Findings and attributes that are varied, at most."""
_WORK = 2.5e10
"""Most work of the choices together, see :func:`_without_each`: about 20 seconds on two cores."""
_ALPHA = 0.05
_Row = dict[str, Any]
_Answer = tuple[float, float, float]
"""Effect, p value and statistic of a test; NaN if the test cannot tell."""


def find_effects(inputs: Inputs) -> DirectEffects | None:
    """Run the direct tests, in one family with impact ratios and changes.

    None without groups or a favourable class.
    """
    if not inputs.sensitive or not inputs.unfavourable:
        return None
    comparisons = inputs.once(find_rates).comparisons
    others = {row["feature"]: np.nan if row["p"] is None else row["p"] for row in comparisons}
    samples = inputs.once(_samples)
    if changes := inputs.once(find_changes):
        others |= {change_key(row): row["p"] for row in changes.table.to_dict("records")}
    return effects_of(
        samples,
        groupings(
            attributes_of(inputs.finder),
            samples.rows,
            inputs.sensitive,
            with_missing=False,
            **inputs.options,
        ),
        inputs.settings.k,
        _ALPHA,
        others,
    )


def _samples(inputs: Inputs) -> Samples:
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
    if hasattr(inputs.finder.data, "columns"):  # numbers are names in a table
        models = {name: np.array(inputs.class_names)[labels] for name, labels in models.items()}
    found = inputs.finder.top_pairs(inputs.settings.pairs)
    nearest = 0.0 if is_distance(found.metric) else 1.0
    return compare_models(
        inputs.finder,
        models,
        k=inputs.settings.k,
        threshold=float(measured(found.D, found.metric)[-1]) if len(found) else nearest,
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
    kept: dict[tuple[str, ...], _Row] = {}
    for row in rows:
        key = row["attribute"], row["test"], row["value"] if row["values"] != 2 else ""
        if key not in kept or (row["statistic"] or 0) > (kept[key]["statistic"] or 0):
            kept[key] = row
    return list(kept.values())


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
        "test": _TESTS[row["test"]],
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
    known = row["p"] is not None
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
        "effect": row["gap"] if known else None,
        "detail": detail if known else "fewer than two groups are large enough to be ranked",
        "p": row["p"],
        "q": q if known else None,
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
    tests = data_frame([row for row in rows if row["test"] != _RATIO])
    told = tests.loc[tests["p"].notna(), "group"]
    decisive = re.compile(r"^[\d.,]+ (decisive \w+) are (fewer than)")
    without_count = tests["detail"].str.replace(r": [\d,]+$", "", regex=True)
    reasons = without_count.str.replace(decisive, r"\2 5 \1", regex=True).str.removesuffix(" 5")
    untold = tests.assign(other_told=tests["group"].isin(told), reason=reasons)[tests["p"].isna()]
    found = []
    for (other_told, reason), of_reason in untold.groupby(["other_told", "reason"], sort=False):
        names: list[str] = []
        for attribute, lines in of_reason.groupby("attribute", sort=False):
            groups = sorted(set(lines["group"]))
            shown = lines["values"].replace(2, 1).iloc[0]
            names += [show(attribute)] if len(groups) == shown else groups
        found.append({"other_told": other_told, "names": names, "reason": reason})
    return found


def sensitivity_section(inputs: Inputs) -> Section:
    """Return the p value of each named effect under other scalings, k, and attributes."""
    effects = inputs.once(find_effects)
    named = [] if effects is None else _find_named(effects)
    if not named:
        return Section({"findings": {}})
    encodings, columns_count = _encodings(inputs)
    if not encodings:
        return Section(missing="no_features")
    rows: list[_Row] = []
    for choice, tests in _choices(inputs, encodings, named):
        inputs.show_step(f"sensitivity, {len(rows) + 1} of {len(encodings) + 3} choices")
        row: _Row = {"choice": choice}
        for i, (finding, (effect, p, statistic)) in enumerate(zip(named, tests, strict=True)):
            holds = p <= _ALPHA and statistic * finding["statistic"] > 0
            row |= {f"effect_{i}": to_python(effect), f"p_{i}": to_python(p), f"holds_{i}": holds}
        rows.append(row)
    findings: dict[str, int] = {}
    columns = [Column("choice", "Choice")]
    for i, finding in enumerate(named):
        name = f"{group_name(finding['attribute'], finding['value'])}, {_TESTS[finding['test']]}"
        columns += [Column(f"effect_{i}", name, "points"), Column(f"p_{i}", "p", "p-value")]
        findings[name] = sum(bool(row[f"holds_{i}"]) for row in rows)
    values = {
        "findings": findings,
        "choices": len(rows),
        "alpha": _ALPHA,
        "left_out": len(encodings) - _SCALINGS,
        "columns": columns_count,
    }
    return Section(values, tables=[Table("sensitivity", tuple(columns), rows)])


def _find_named(effects: DirectEffects) -> list[_Row]:
    """Return the named tests of single attributes.

    Of each attribute the value with the smallest p value.
    """
    table = effects.table
    of_one = ~table["attribute"].str.contains(" & ", regex=False)
    findings = table[table["named"] & (table["same_as"] == "") & of_one].sort_values(
        "p", kind="stable"
    )
    harmful = findings["verdict"] == "disadvantaged"
    first = stack([findings[harmful], findings[~harmful]]).drop_duplicates(["attribute", "test"])
    return rows_of(first.head(_FINDINGS))


def _choices(
    inputs: Inputs, encodings: Mapping[str, NDArray[Any]], named: Sequence[_Row]
) -> Iterator[tuple[str, list[_Answer]]]:
    """Yield each choice with the named tests under it.

    Choices with the same vectors share neighbours and pairs.
    """
    k = inputs.settings.k
    reported = [(row["effect"], row["p"], row["statistic"]) for row in named]
    yield "as reported", reported
    samples = inputs.once(_samples)
    others = [max(1, k // 2), 2 * k]
    for near, tests in zip(others, _tests(inputs, samples, named, others), strict=True):
        yield f"k = {near}", tests
    for choice, X in encodings.items():
        graph = inputs.finder.graph
        vectors = (
            as_rows("X", X, None, inputs.finder.metric)
            if graph is None
            else ks_vectors(X.astype(np.float32), graph)
        )
        # The index of the finder keeps only its ids: nothing searches it.
        is_same = np.array_equal(vectors, inputs.finder.vectors)
        other = replace(samples, finder=replace(inputs.finder, vectors=vectors), by_people={})
        yield choice, reported if is_same else _tests(inputs, other, named, [k])[0]


def _tests(
    inputs: Inputs, samples: Samples, named: Sequence[_Row], neighbours: Sequence[int]
) -> list[list[_Answer]]:
    """Return the named tests for each number of neighbours.

    People of one set share their neighbours and pairs.
    """
    names = list(dict.fromkeys(row["attribute"] for row in named))
    known = groupings(
        attributes_of(samples.finder),
        samples.rows,
        names,
        inputs.settings.bins,
        with_missing=False,
    )
    groups = dict(zip(names, known, strict=True))
    depths: list[int] = []
    if any(row["test"] == "situation" for row in named):
        depths = sorted(neighbours, reverse=True)  # fewer neighbours are the first of more
    with_pairs = any(row["test"] == "direction" for row in named)
    found: dict[tuple[str, str], list[_Answer]] = {}
    for attribute, value in dict.fromkeys((row["attribute"], row["value"]) for row in named):
        people, codes = samples.of(groups[attribute])
        carries = codes == groups[attribute].values.index(value)
        contrasts = {k: people.situation_contrast(k) for k in depths}
        chance, tests = people.test(
            carries, [*contrasts.values(), *([people.evidence_contrast] if with_pairs else [])]
        )
        found[attribute, value] = [(test.effect, test.p_value, test.statistic) for test in tests]
        if with_pairs:
            effect = pair_counts(*people.pairs[:2], carries, chance, _ALPHA)["effect"]
            found[attribute, value][-1] = (effect, tests[-1].p_value, tests[-1].statistic)
    return [
        [
            found[row["attribute"], row["value"]][
                -1 if row["test"] == "direction" else depths.index(k)
            ]
            for row in named
        ]
        for k in neighbours
    ]


def _encodings(inputs: Inputs) -> tuple[dict[str, NDArray[Any]], int]:
    """Return other numbers to make vectors of, by choice, and the number of attributes.

    None if the numbers behind the vectors are unknown.
    """
    finder = inputs.finder
    refused = np.isin(finder.labels, inputs.unfavourable)
    x = getattr(finder.data, "x", None) if finder.graph is not None else finder.data
    removed = set() if finder.removed is None else set(finder.removed.columns)
    if hasattr(x, "columns") and finder.attributes is not None:
        return _encodings_of_table(finder.attributes, removed, finder.scale, refused)
    if x is None or not hasattr(x, "shape"):
        return {}, 0
    names = [str(name) for name in getattr(finder.data, "feature_names", None) or []]
    X = as_dense("x", x).astype(np.float64)
    if len(names) != X.shape[1]:
        if removed:
            return {}, 0
        names = []
    kept = [name not in removed for name in names]
    X = X[:, kept] if names else X
    spread = X.std(axis=0)
    standard = (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1)
    owners = [name.partition("=")[0] for name in names if name not in removed]
    scaled = {
        "scaling: none": X,
        "scaling: standard": standard,
        "scaling: rank": rankdata(X, axis=0) / len(X),
    }
    return scaled | _without_each(X, owners, refused), len(set(owners))


def _encodings_of_table(
    attributes: Attributes,
    removed: Collection[str],
    scale: Mapping[str, float] | None,
    refused: NDArray[np.bool_],
) -> tuple[dict[str, NDArray[Any]], int]:
    """Return vectors of a table under other scalings of its numbers, or without a column."""
    compared = [
        name for name in attributes if name not in removed and can_be_encoded(attributes[name])
    ]
    if not compared:
        return {}, 0
    columns = attributes.select(compared)
    ranks = {
        name: column if column.numbers is None else rankdata(column.numbers, nan_policy="omit")
        for name, column in columns.items()
    }
    standard = encode(columns, scale=scale)
    scaled = {
        "scaling: none": encode(columns, as_is=True).x,
        "scaling: standard": standard.x,
        "scaling: rank": encode(Attributes(ranks, columns.ids)).x,
    }
    return scaled | _without_each(standard.x, standard.attributes, refused), len(compared)


def _without_each(
    X: NDArray[Any], owners: Sequence[str], refused: NDArray[np.bool_]
) -> dict[str, NDArray[Any]]:
    """Return the numbers without the columns of each attribute.

    With too many attributes, only the attributes that correlate most with unfavourable decisions
    are left out in turn. A choice costs the fits of the null model, squared columns times rows, and
    all neighbours and pairs, columns times squared rows, of which a step takes a hundredth as long.
    Both take as long as with 150 more columns: those that the null model adds, and the choice among
    candidates. Measured with 31 and with 190 columns.
    """
    names = list(dict.fromkeys(owners))
    if len(names) < 2:
        return {}
    width = X.shape[1] + 150
    most = int(_WORK / (len(X) * width * (width + len(X) / 100))) - _SCALINGS
    most = max(1, min(_LEFT_OUT, most))
    if len(names) > most:
        centred = X - X.mean(axis=0)
        spread = np.sqrt((centred**2).sum(axis=0))
        strength = abs((refused - refused.mean()) @ centred) / np.where(spread > 0, spread, np.inf)
        by_name = {name: max(strength[np.array(owners) == name]) for name in names}
        strongest = sorted(names, key=lambda name: -by_name[name])[:most]
        names = [name for name in names if name in strongest]
    masks = {name: np.array([owner != name for owner in owners]) for name in names}
    return {f"without {show(name)}": X[:, mask] for name, mask in masks.items()}


_VALUES = 8
"""Values of an attribute that are flipped into, at most."""
_FLIPPED_ALONE = 1_000
"""Most people who are flipped one at a time: each may take a pass over the whole graph."""


def only_in_section(inputs: Inputs) -> Section:
    """Return pairs that differ in one sensitive attribute, and pairs that agree in all."""
    tests = {
        name: only_in(inputs.finder, [name], confidence=inputs.settings.confidence)
        for name in inputs.sensitive
    }
    rows = []
    for name, test in tests.items():
        line, equal = rows_of(test.table)
        rows.append(
            {"attribute": name, **line, "expected": equal["share"], "equal_pairs": equal["pairs"]}
        )
    plot = Plot((0.0, 0.5, 1.0), expected="expected")
    columns = (
        Column("attribute", "Attribute"),
        Column("pairs", "n pairs", "count"),
        Column("different", "Different decisions", "count"),
        Column("share", "Share", "share", interval=("low", "high"), n="pairs", plot=plot),
        Column("expected", "Expected", "share", n="equal_pairs"),
        Column("equal_pairs", "n pairs that agree in all", "count"),
    )
    return Section(
        {"rows": rows, "unknown": max(test.unknown for test in tests.values())},
        tables=[Table("only_in", columns, rows)],
        limits=list(dict.fromkeys(limit for test in tests.values() for limit in test.limits)),
        measured=[row | {"place": "pairs"} for row in rows],
    )


def flip_section(inputs: Inputs) -> Section:
    """Return the decisions that change when an attribute is flipped (paper, case study 2)."""
    rows: list[dict[str, Any]] = []
    limits: list[str] = []
    left_out: list[tuple[str, str, int]] = []
    # Without a graph a decision depends on one row alone, so both ways are the same.
    ways = {"all at once": inputs.nodes}
    if inputs.has("graph"):
        count = len(inputs.nodes)
        chosen = np.linspace(0, count - 1, min(count, _FLIPPED_ALONE)).astype(
            np.int64
        )  # evenly spread
        ways = {"one at a time": inputs.nodes[chosen]} | ways
    for name in inputs.sensitive:
        columns = _features_of(inputs.finder.data, name)
        count = len(columns or inputs.attributes[name].values)
        if columns is None:
            left_out.append(("not_read", name, count))
            continue
        if not 2 <= count <= _VALUES:
            left_out.append(("too_few" if count < 2 else "too_many", name, count))
            continue
        for how, nodes in ways.items():
            test = flip(
                inputs.finder,
                name,
                columns=columns or None,
                nodes=inputs.finder.names(nodes),
                at_once=how == "all at once",
                confidence=inputs.settings.confidence,
            )
            frame = test.rates[test.rates["nodes"] > 0].assign(attribute=name, how=how)
            frame[["value", "flipped"]] = frame[["value", "flipped"]].map(_text)
            rows += rows_of(frame)
            limits += test.limits
            if test.unknown:
                left_out.append(("unknown", name, test.unknown))
    values: dict[str, Any] = {"left_out": list(dict.fromkeys(left_out)), "most_values": _VALUES}
    if not rows:
        return Section(values, missing="not_flipped")
    plot = Plot.around([0.0, *(row[key] for row in rows for key in ("share", "high"))])
    table = (
        Column("attribute", "Attribute"),
        *((Column("how", "Changed"),) if inputs.has("graph") else ()),
        Column("value", "From"),
        Column("flipped", "To"),
        Column("nodes", "n", "count"),
        Column("changed", "Changed decisions", "count"),
        Column("share", "Share", "share", interval=("low", "high"), n="nodes", plot=plot),
    )
    of_attribute = {
        name: [row for row in rows if row["attribute"] == name] for name in inputs.sensitive
    }
    # The rows of flips into any other value, one for each way
    flips = [
        (name, [row for row in lines if row["value"] == "all"] or lines)
        for name, lines in of_attribute.items()
        if lines
    ]
    return Section(
        values | {"flips": flips, "most_alone": _FLIPPED_ALONE},
        tables=[Table("flip", table, rows)],
        limits=list(dict.fromkeys(limits)),
        measured=[row | {"place": _place_of_flip(row)} for row in rows],
    )


def _place_of_flip(row: _Row) -> str:
    if row["value"] == "all":
        return str(row["how"])
    return f"{row['how']}, {row['value']} to {row['flipped']}"


def _features_of(data: Any, name: str) -> Mapping[Any, str] | None:
    """Return the features of an attribute by its values.

    Empty for one feature of its name, None without features.
    """
    if hasattr(data, "iloc"):
        return {} if name in data.columns else None
    features = [str(feature) for feature in getattr(data, "feature_names", None) or []]
    if name in features or name in (getattr(data, "feature_attributes", None) or ()):
        return {}
    found = {
        feature.partition("=")[2]: feature for feature in features if feature.startswith(f"{name}=")
    }
    return found or None


def _text(value: Any) -> str:
    is_float = isinstance(value, float | np.floating)
    return np.format_float_positional(value, trim="-") if is_float else str(to_python(value))


def models_section(inputs: Inputs) -> Section:
    """Return the models side by side, and the changes from the first to each other one."""
    changes = inputs.once(find_changes)
    tests = inputs.once(change_rows)
    assert changes is not None
    models = [_model(row) for row in rows_of(changes.models)]
    shown = [models[0] | dict.fromkeys(("changed", "appears", "disappears", "stays")), *models[1:]]
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
        Table("models", side_by_side, shown),
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
        "findings": [row for row in tests if row["named"]],
    }
    return Section(
        values,
        tables=[table for table in tables if table.rows],
        limits=changes.limits,
        measured=models,
    )


def _model(row: dict[str, Any]) -> dict[str, Any]:
    """Return the line of a model with the share decided favourably, and its place in conditions."""
    share, low, high = (row[f"unfavourable{end}"] for end in ("", "_low", "_high"))
    selected = {"selected": share, "selected_low": high, "selected_high": low}
    turned = {key: None if value is None else 1 - value for key, value in selected.items()}
    return row | turned | {"attribute": None, "place": row["model"]}
