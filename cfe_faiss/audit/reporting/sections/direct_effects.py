"""All tests that may name a finding, as one family, and the named findings under other choices."""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from cfe_faiss.attributes.table import Attributes
from cfe_faiss.audit.common import attributes_of, known_rows
from cfe_faiss.audit.direct_test import Samples, judge, pair_counts
from cfe_faiss.audit.effects import DirectEffects, direct_effects
from cfe_faiss.audit.groups import groupings
from cfe_faiss.audit.model_comparison import BASELINE, ModelComparison, compare_models
from cfe_faiss.audit.reporting.document import Column, Section, Table, group_name, number, rows_of, show, to_python
from cfe_faiss.audit.reporting.inputs import Inputs
from cfe_faiss.audit.reporting.sections.groups import Rates, find_rates
from cfe_faiss.base.checks import as_dense
from cfe_faiss.data.encode import can_be_encoded, encode
from cfe_faiss.finder import EvidenceFinder
from cfe_faiss.graph.ks import ks_vectors
from cfe_faiss.rows.metric import as_rows, measured

_RATIO = "impact ratio"
_TESTS = {"direction": "closest pairs", "situation": "nearest neighbours"}
"""Names of the direct tests on the page."""
_CHANGES = {"rates": "change of the rate", **{kind: f"change: {name}" for kind, name in _TESTS.items()}}
"""Names of the tests of a change on the page."""
_FINDINGS, _LEFT_OUT = 4, 40
"""Findings and attributes that are varied, at most."""
_WORK = 1e9
"""Rows times squared columns of all attributes that are left out in turn, at most (one at least): about 20 seconds."""
_ALPHA = 0.05
_Row = dict[str, Any]
_Answer = tuple[float, float, float]
"""Effect, p value and statistic of a test; NaN if the test cannot tell."""


def find_effects(inputs: Inputs) -> DirectEffects | None:
    """Run the direct tests, in one family with impact ratios and changes. None without groups or a favourable class."""
    if not inputs.sensitive or not inputs.unfavourable:
        return None
    comparisons = inputs.once(find_rates).comparisons
    others = {row["feature"]: np.nan if row["p"] is None else row["p"] for row in comparisons}
    if changes := inputs.once(find_changes):
        others |= {change_key(row): row["p"] for row in changes.table.to_dict("records")}
    tested: dict[str, Any] = {
        "sensitive": inputs.sensitive,
        "unfavourable": [inputs.class_names[label] for label in inputs.unfavourable],
        "k": inputs.settings.k,
    }
    return direct_effects(inputs.finder, others=others, person=inputs.persons, **tested, **inputs.options)


def find_changes(inputs: Inputs) -> ModelComparison | None:
    """Compare the models on pairs as near as the closest pairs. None without other models."""
    if inputs.models is None:
        return None
    tested: dict[str, Any] = {}
    if inputs.unfavourable:
        others = [name for label, name in enumerate(inputs.class_names) if label not in inputs.favourable]
        tested = {"unfavourable": others, "sensitive": inputs.sensitive, **inputs.options}
    models = {name: labels for name, labels in inputs.models.items() if name != BASELINE}
    if hasattr(inputs.finder.data, "columns"):  # numbers are names in a table
        models = {name: np.array(inputs.class_names)[labels] for name, labels in models.items()}
    found = inputs.finder.top_pairs(inputs.settings.pairs)
    nearest = 0.0 if found.metric == "l2" else 1.0
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
    """Return the tests of changes, adjusted over all tests of the report, as rows of the table of all tests."""
    changes, effects = inputs.once(find_changes), inputs.once(find_effects)
    rows = [] if changes is None else rows_of(changes.table)
    sizes = Counter((row["model"], row["attribute"], row["test"]) for row in rows)
    for row in rows:
        if effects is not None and row["p"] is not None:
            judge(row, effects.others[change_key(row)], effects.fdr)
        kind, place = row["test"], inputs.group({"feature": row["attribute"], "value": row["value"]})
        row["values"] = 0 if kind == "rates" else sizes[row["model"], row["attribute"], kind]
        worse, better = number(row["worse"], "count"), number(row["better"], "count")
        moved = f"{worse} to an unfavourable decision, {better} from one"
        row["detail"] = row["reason"] or (moved if kind == "rates" else "")
        model = show(row["model"])
        row |= {"group": f"{model}: {place}", "attribute": f"{model}: {row['attribute']}", "place": place}
        row |= {"n_carriers": row["n"], "change": row["effect"]}
        row |= {"effect": None if row["p"] is None else row["effect"], "n_effective": round(row["n_effective"], 1)}
        row |= {"kind": kind, "test": _CHANGES[kind]}
    return _keep_one_side(rows)


def all_tests_section(inputs: Inputs) -> Section:
    """Return one table of all tests, and the findings that survive the correction."""
    effects, rates = inputs.once(find_effects), inputs.once(find_rates)
    assert effects is not None
    sizes = effects.table.groupby("attribute")["value"].nunique()
    direct = [_direct_row(inputs, row | {"values": int(sizes[row["attribute"]])}) for row in rows_of(effects.table)]
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
    """Return the test of an impact ratio as a row; positive effects are to the disadvantage of the group."""
    q = effects.others[row["feature"]]
    known, named = row["p"] is not None, q <= effects.fdr
    reference = group_name(row["feature"], row["reference"])
    detail = "" if row["ratio"] is None else f"ratio {number(row['ratio'], 'score')}, against {reference}"
    verdict = "cannot tell" if row["verdict"] == "cannot tell" else "no finding"
    if named:  # at a confidence above 95 % its interval may hold 1
        verdict = row["verdict"] if row["verdict"].startswith("below") else "below 1"
    return {
        "attribute": row["feature"],
        "value": row["value"],
        "group": show(row["feature"]) if row["value"] is None else group_name(row["feature"], row["value"]),
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
            names = {"group": inputs.group(row), "reference_group": group_name(row["feature"], row["reference"])}
            below = "below four fifths" if row["verdict"] == "below 0.8" else "below 1"
            yield row | names | {"below": below, "q": effects.others[row["feature"]]}


def _unexplained(named: Sequence[_Row]) -> list[_Row]:
    """Return each group that direct tests name, with these tests."""
    groups: dict[tuple[str, str], list[_Row]] = defaultdict(list)
    for row in named:
        if row["test"] != _RATIO:
            groups[row["group"], row["verdict"]].append(row)
    return [
        tests[0] | {"tests": tests, "direction": "unfavourably" if verdict == "disadvantaged" else "favourably"}
        for (_, verdict), tests in groups.items()
    ]


def _untold(rows: Sequence[_Row]) -> list[_Row]:
    """Return by reason the groups that the direct tests cannot tell; an attribute for all its groups."""
    reasons: dict[tuple[bool, str], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    told = {row["group"] for row in rows if row["p"] is not None and row["test"] != _RATIO}
    for row in rows:
        if row["p"] is None and row["test"] != _RATIO:
            reason = re.sub(r"^[\d.,]+ (decisive \w+) are (fewer than)", r"\2 5 \1", row["detail"]).removesuffix(" 5")
            reasons[row["group"] in told, reason][row["attribute"]].add(row["group"])
    values = {row["attribute"]: 1 if row.get("values") == 2 else row.get("values") for row in rows}
    found = []
    for (other_told, reason), groups in reasons.items():
        names: list[str] = []
        for attribute, of_attribute in groups.items():
            names += [show(attribute)] if len(of_attribute) == values[attribute] else sorted(of_attribute)
        found.append({"other_told": other_told, "names": names, "reason": reason})
    return found


def sensitivity_section(inputs: Inputs) -> Section:
    """Return the p value of each named direct effect under other scalings, other k, and fewer attributes."""
    effects = inputs.once(find_effects)
    named = [] if effects is None else _find_named(effects)
    if not named:
        return Section({"findings": {}})
    encodings = _encodings(inputs)
    if not encodings:
        return Section(missing="no_features")
    rows = [{"choice": choice} | _judge_answers(named, tests) for choice, tests in _choices(inputs, encodings, named)]
    findings: dict[str, int] = {}
    columns = [Column("choice", "Choice")]
    for i, finding in enumerate(named):
        name = f"{group_name(finding['attribute'], finding['value'])}, {_TESTS[finding['test']]}"
        columns += [Column(f"effect_{i}", name, "points"), Column(f"p_{i}", "p", "p-value")]
        findings[name] = sum(bool(row[f"holds_{i}"]) for row in rows)
    values = {"findings": findings, "choices": len(rows), "alpha": _ALPHA}
    return Section(values, tables=[Table("sensitivity", tuple(columns), rows)])


def _find_named(effects: DirectEffects) -> list[_Row]:
    """Return the named tests of single attributes; of each attribute the value with the smallest p value."""
    findings = effects.table[effects.table["named"] & (effects.table["same_as"] == "")]
    rows = [row for row in rows_of(findings) if " & " not in row["attribute"]]
    rows.sort(key=lambda row: (row["verdict"] != "disadvantaged", row["p"]))
    first: dict[tuple[str, str], _Row] = {}
    for row in rows:
        first.setdefault((row["attribute"], row["test"]), row)
    return list(first.values())[:_FINDINGS]


def _judge_answers(named: Sequence[_Row], answers: Sequence[_Answer]) -> _Row:
    """Return the cells of one choice: effect, p value, and whether each finding holds."""
    cells: _Row = {}
    for i, (row, (effect, p, statistic)) in enumerate(zip(named, answers, strict=True)):
        holds = p <= _ALPHA and statistic * row["statistic"] > 0
        cells |= {f"effect_{i}": to_python(effect), f"p_{i}": to_python(p), f"holds_{i}": holds}
    return cells


def _choices(
    inputs: Inputs, encodings: Mapping[str, NDArray[Any]], named: Sequence[_Row]
) -> Iterator[tuple[str, list[_Answer]]]:
    """Yield each choice with the named tests under it. Choices with the same vectors share neighbours and pairs."""
    k = inputs.settings.k
    reported = [(row["effect"], row["p"], row["statistic"]) for row in named]
    yield "as reported", reported
    others = [max(1, k // 2), 2 * k]
    for other, tests in zip(others, _tests(inputs, inputs.finder, named, others), strict=True):
        yield f"k = {other}", tests
    for choice, X in encodings.items():
        finder = _replace_vectors(inputs.finder, X)
        is_same = np.array_equal(finder.vectors, inputs.finder.vectors)
        yield choice, reported if is_same else _tests(inputs, finder, named, [k])[0]


def _tests(
    inputs: Inputs, finder: EvidenceFinder, named: Sequence[_Row], neighbours: Sequence[int]
) -> list[list[_Answer]]:
    """Return the named tests for each number of neighbours. People of one set share their neighbours and pairs."""
    rows = known_rows(finder, None)
    attributes = list(dict.fromkeys(row["attribute"] for row in named))
    known = groupings(attributes_of(finder), rows, attributes, inputs.settings.bins, with_missing=False)
    groups = {group.name: group for group in known}
    samples = Samples(finder, rows, np.array(inputs.unfavourable, np.int32), inputs.persons)
    with_pairs = any(row["test"] == "direction" for row in named)
    found: dict[tuple[str, str], list[_Answer]] = {}
    for attribute, value in dict.fromkeys((row["attribute"], row["value"]) for row in named):
        people, codes = samples.of(groups[attribute])
        carries = codes == groups[attribute].values.index(value)
        contrasts = [people.situation_contrast(k) for k in neighbours]
        chance, tests = people.test(carries, [*contrasts, *([people.evidence_contrast] if with_pairs else [])])
        found[attribute, value] = [(test.effect, test.p_value, test.statistic) for test in tests]
        if with_pairs:
            effect = pair_counts(*people.pairs[:2], carries, chance, _ALPHA)["effect"]
            found[attribute, value][-1] = (effect, tests[-1].p_value, tests[-1].statistic)
    return [
        [found[row["attribute"], row["value"]][-1 if row["test"] == "direction" else i] for row in named]
        for i in range(len(neighbours))
    ]


def _replace_vectors(finder: EvidenceFinder, X: NDArray[Any]) -> EvidenceFinder:
    """Return the finder with the vectors of other numbers. Its index keeps only its ids: nothing searches it."""
    if finder.graph is not None:
        return replace(finder, vectors=ks_vectors(X.astype(np.float32), finder.graph))
    return replace(finder, vectors=as_rows("X", X, None, finder.metric))


def _encodings(inputs: Inputs) -> dict[str, NDArray[Any]]:
    """Return other numbers to make vectors of, by choice; none if the numbers behind the vectors are unknown."""
    finder = inputs.finder
    refused = np.isin(finder.labels, inputs.unfavourable)
    x = getattr(finder.data, "x", None) if finder.graph is not None else finder.data
    removed = set() if finder.removed is None else set(finder.removed.columns)
    if hasattr(x, "columns") and finder.attributes is not None:
        return _encodings_of_table(finder.attributes, removed, finder.scale, refused)
    if x is None or not hasattr(x, "shape"):
        return {}
    names = [str(name) for name in getattr(finder.data, "feature_names", None) or []]
    X = as_dense("x", x).astype(np.float64)
    if len(names) != X.shape[1]:
        if removed:
            return {}
        names = []
    kept = [name not in removed for name in names]
    X = X[:, kept] if names else X
    spread = X.std(axis=0)
    standard = (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1)
    owners = [name.partition("=")[0] for name in names if name not in removed]
    scaled = {"scaling: none": X, "scaling: standard": standard, "scaling: rank": rankdata(X, axis=0) / len(X)}
    return scaled | _without_each(X, owners, refused)


def _encodings_of_table(
    attributes: Attributes, removed: Collection[str], scale: Mapping[str, float] | None, refused: NDArray[np.bool_]
) -> dict[str, NDArray[Any]]:
    """Return the vectors of a table under other scalings of its numbers, and without each column."""
    compared = [name for name in attributes if name not in removed and can_be_encoded(attributes[name])]
    if not compared:
        return {}
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
    return scaled | _without_each(standard.x, standard.attributes, refused)


def _without_each(X: NDArray[Any], owners: Sequence[str], refused: NDArray[np.bool_]) -> dict[str, NDArray[Any]]:
    """Return the numbers without the columns of each attribute.

    If there are too many, it leaves out those that go along most with unfavourable decisions.
    """
    names = list(dict.fromkeys(owners))
    if len(names) < 2:
        return {}
    n, d = X.shape
    most = max(1, min(_LEFT_OUT, int(_WORK / (n * d * d))))
    if len(names) > most:
        centred = X - X.mean(axis=0)
        spread = np.sqrt((centred**2).sum(axis=0))
        strength = abs((refused - refused.mean()) @ centred) / np.where(spread > 0, spread, np.inf)
        by_name = {name: max(strength[np.array(owners) == name]) for name in names}
        strongest = sorted(names, key=lambda name: -by_name[name])[:most]
        names = [name for name in names if name in strongest]
    masks = {name: np.array([owner != name for owner in owners]) for name in names}
    return {f"without {show(name)}": X[:, mask] for name, mask in masks.items()}
