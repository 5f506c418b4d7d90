"""All tests that may name a finding, as one family, and the named findings under other choices."""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from cfe_faiss.attributes.table import Attributes
from cfe_faiss.audit.direct_test import judge, pair_counts
from cfe_faiss.audit.effects import DirectEffects, direct_effects
from cfe_faiss.audit.evidence import attributes_of, known_rows, persons_of
from cfe_faiss.audit.groups import groupings
from cfe_faiss.audit.model_comparison import ModelComparison, compare_models
from cfe_faiss.audit.reporting.document import Column, Section
from cfe_faiss.audit.reporting.formats import group_name, list_first, rows_of, show, to_python
from cfe_faiss.audit.reporting.inputs import Inputs
from cfe_faiss.audit.reporting.sections.groups import Rates, find_rates
from cfe_faiss.audit.sample import Samples
from cfe_faiss.base.checks import as_dense
from cfe_faiss.base.threads import single_threaded_blas
from cfe_faiss.data.encode import can_be_encoded, encode
from cfe_faiss.finder import EvidenceFinder
from cfe_faiss.graph.ks import ks_vectors
from cfe_faiss.rows.metric import as_rows, measured

_LINES = 6
"""Sentences of one kind on the first page, at most."""
_RATIO = "impact ratio"
_TESTS = {"direction": "closest pairs", "situation": "nearest neighbours"}
"""Names of the direct tests on the page."""
_FINDINGS, _LEFT_OUT = 4, 40
"""Findings and attributes that are varied, at most."""
_ALPHA = 0.05
_Row = dict[str, Any]
"""Numbers behind the vectors, (n, d), and the attribute of each column; empty if columns have no names."""
_Answer = tuple[float, float, float]
"""Effect, p value and statistic of a test; NaN if the test cannot tell."""


def find_effects(inputs: Inputs) -> DirectEffects | None:
    """Run the direct tests, in one family with impact ratios and changes. None without groups or a favourable class."""
    if inputs.missing_need("tests"):
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
    return direct_effects(inputs.finder, others=others, **tested, **inputs.options)


def find_changes(inputs: Inputs) -> ModelComparison | None:
    """Compare the models on pairs as near as the closest pairs. None without other models."""
    if inputs.models is None:
        return None
    tested: dict[str, Any] = {}
    if inputs.unfavourable:
        others = [name for label, name in enumerate(inputs.class_names) if label != inputs.favourable]
        tested = {"unfavourable": others, "sensitive": inputs.sensitive, **inputs.options}
    first, *named = inputs.models
    models = {name: inputs.models[name] for name in named}
    if hasattr(inputs.finder.data, "columns"):  # numbers are names in a table
        models = {name: np.array(inputs.class_names)[labels] for name, labels in models.items()}
    found = inputs.finder.top_pairs(inputs.settings.pairs)
    nearness = measured(found.D[-1:], found.metric)
    threshold = float(nearness[0]) if len(nearness) else 0.0
    return compare_models(
        inputs.finder,
        models,
        k=inputs.settings.k,
        threshold=min(threshold, 1.0) if found.metric == "cosine" else threshold,  # rounding may exceed 1
        pairs=inputs.settings.pairs,
        confidence=inputs.settings.confidence,
        baseline=first,
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
        row["detail"] = row["reason"] or (inputs.say("models.moved", row) if kind == "rates" else "")
        model = show(row["model"])
        row |= {"group": f"{model}: {place}", "attribute": f"{model}: {row['attribute']}", "place": place}
        row |= {"n_carriers": row["n"], "change": row["effect"]}
        row |= {"effect": None if row["p"] is None else row["effect"], "n_effective": round(row["n_effective"], 1)}
        row |= {"kind": kind, "test": inputs.say(f"models.{kind}")}
    return _keep_one_side(rows)


def effects_section(inputs: Inputs) -> Section:
    """Return one table of all tests, and a sentence for each finding that survives the correction."""
    effects, rates = inputs.once(find_effects), inputs.once(find_rates)
    assert effects is not None
    sizes = effects.table.groupby("attribute")["value"].nunique()
    direct = [_direct_row(inputs, row | {"values": int(sizes[row["attribute"]])}) for row in rows_of(effects.table)]
    rows = [*(_ratio_row(inputs, row, effects) for row in rates.comparisons), *_keep_one_side(direct)]
    changes = inputs.once(change_rows)
    named = [row for row in rows if row["named"]]
    q = [row["q"] for row in direct if row["q"] is not None]
    unexplained = list(_say_unexplained(inputs, named))
    sentences = [*_say_unequal(inputs, rates, effects), *unexplained]
    values = {"count": len(effects.others) + len(direct), "fdr": effects.fdr, "k": effects.k}
    values |= {"named": len(named) + sum(row["named"] for row in changes), "changes": bool(changes)}
    values["told"] = len(q) + int(np.isfinite(list(effects.others.values())).sum())
    smallest = f"; the smallest q is {min(q):.2f}" if q else ""
    key = "tests.nothing_else" if sentences else "tests.nothing"
    of = "" if inputs.models is None else f" of {show(next(iter(inputs.models)))}"
    nothing = inputs.say(key, direct=len(direct), told=len(q), smallest=smallest, of=of)
    return inputs.section(
        "tests",
        values,
        named=limit_lines(inputs, sentences),
        described=(inputs.say("tests.not_caused") if unexplained else nothing,),
        undetermined=limit_lines(inputs, _say_untold(inputs, rows)),
        tables={"all_tests": sorted([*rows, *changes], key=lambda row: (not row["named"], row["p"] is None))},
        limits=map(inputs.reword, effects.limits),
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
    if row["test"] == "direction" and not detail:
        gamma = "" if row["gamma"] is None else f"; Γ* {row['gamma']:.2f}"
        detail = inputs.say("tests.counts", row, gamma=gamma)
    return row | {
        "group": group_name(row["attribute"], row["value"]),
        "test": _TESTS[row["test"]],
        "detail": detail,
        "effect": None if row["p"] is None else row["effect"],
        "n_effective": None if row["n_effective"] is None else round(row["n_effective"], 1),
    }


def _ratio_row(inputs: Inputs, row: _Row, effects: DirectEffects) -> _Row:
    """Return the test of an impact ratio as a row; positive effects are to the disadvantage of the group."""
    q = effects.others[row["feature"]]
    known, named = row["p"] is not None, q <= effects.fdr
    detail = "" if row["ratio"] is None else inputs.say("tests.ratio", row, reference_group=_reference(row))
    return {
        "attribute": row["feature"],
        "value": row["value"],
        "group": show(row["feature"]) if row["value"] is None else group_name(row["feature"], row["value"]),
        "test": _RATIO,
        "n_carriers": row["count"],
        "effect": row["gap"] if known else None,
        "detail": detail if known else inputs.say("tests.not_ranked"),
        "p": row["p"],
        "q": q if known else None,
        "n_effective": None,
        "verdict": _below(row) if named else "cannot tell" if row["verdict"] == "cannot tell" else "no finding",
        "named": named,
    }


def _below(row: _Row) -> str:
    """Return the verdict of a named impact ratio. At a confidence above 95 % its interval may hold 1."""
    return row["verdict"] if row["verdict"].startswith("below") else "below 1"


def _reference(row: _Row) -> str:
    return group_name(row["feature"], row["reference"])


def _say_unequal(inputs: Inputs, rates: Rates, effects: DirectEffects) -> Iterator[str]:
    for row in rates.comparisons:
        q = effects.others[row["feature"]]
        if q <= effects.fdr:
            below = "below four fifths" if _below(row) == "below 0.8" else "below 1"
            names = {"group": inputs.group(row), "reference_group": _reference(row)}
            yield inputs.say("tests.unequal", row | names, below=below, q=q)


def _say_unexplained(inputs: Inputs, named: Sequence[_Row]) -> Iterator[str]:
    """Yield a sentence for each named group."""
    groups: dict[tuple[str, str], list[_Row]] = defaultdict(list)
    for row in named:
        if row["test"] != _RATIO:
            groups[row["group"], row["verdict"]].append(row)
    for (_, verdict), rows in groups.items():
        tests = "; ".join(inputs.say("tests.test", row, size=abs(row["effect"])) for row in rows)
        direction = "more" if verdict == "disadvantaged" else "less"
        yield inputs.say("tests.unexplained", rows[0], tests=tests, direction=direction)


def _say_untold(inputs: Inputs, rows: Sequence[_Row]) -> Iterator[str]:
    """Yield for each reason the groups without an answer of the direct tests; the attribute if it is all its groups."""
    reasons: dict[tuple[str, str], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    told = {row["group"] for row in rows if row["p"] is not None and row["test"] != _RATIO}
    for row in rows:
        if row["p"] is None and row["test"] != _RATIO:
            reason = re.sub(r"^[\d.,]+ (decisive \w+) are (fewer than)", r"\2 5 \1", row["detail"]).removesuffix(" 5")
            which = "One of two direct tests" if row["group"] in told else "Direct effects"
            reasons[which, reason][row["attribute"]].add(row["group"])
    values = {row["attribute"]: 1 if row.get("values") == 2 else row.get("values") for row in rows}
    for (which, reason), groups in reasons.items():
        names: list[str] = []
        for attribute, found in groups.items():
            names += [show(attribute)] if len(found) == values[attribute] else sorted(found)
        yield inputs.say("tests.untold", which=which, names=list_first(names, _LINES, "; "), reason=reason)


def limit_lines(inputs: Inputs, sentences: Iterable[str]) -> tuple[str, ...]:
    """Return the first sentences for the first page, and how many more there are."""
    lines = list(sentences)
    left = len(lines) - _LINES
    return tuple(lines if left <= 0 else [*lines[:_LINES], inputs.say("tests.more", left=left)])


def sensitivity_section(inputs: Inputs) -> Section:
    """Return the p value of each named direct effect under other scalings, other k, and fewer attributes."""
    effects = inputs.once(find_effects)
    named = [] if effects is None else _find_named(effects)
    if not named:
        return inputs.section("sensitivity", {"found": inputs.say("sensitivity.nothing"), "named": False})
    encodings = _encodings(inputs.finder)
    if not encodings:
        return inputs.section("sensitivity", missing="features")
    rows = [{"choice": choice} | _judge_answers(named, tests) for choice, tests in _choices(inputs, encodings, named)]
    holds: list[str] = []
    columns: list[Column] = []
    for i, finding in enumerate(named):
        name = f"{group_name(finding['attribute'], finding['value'])}, {_TESTS[finding['test']]}"
        columns += [Column(f"effect_{i}", name, "points"), Column(f"p_{i}", "p", "p-value")]
        held = sum(bool(row[f"holds_{i}"]) for row in rows)
        holds.append(inputs.say("sensitivity.holds", name=name, held=held, choices=len(rows)))
    table = inputs.table("sensitivity", rows, {"alpha": _ALPHA}, columns)
    return inputs.section("sensitivity", {"found": "; ".join(holds) + " choices.", "named": True}, tables=[table])


def _find_named(effects: DirectEffects) -> list[_Row]:
    """Return the named tests of single attributes; of each attribute the value with the smallest p value."""
    rows = [row for row in rows_of(effects.table) if row["named"] and " & " not in row["attribute"]]
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


@single_threaded_blas()  # many small matrices: waiting for threads would take longer
def _tests(
    inputs: Inputs, finder: EvidenceFinder, named: Sequence[_Row], neighbours: Sequence[int]
) -> list[list[_Answer]]:
    """Return the named tests for each number of neighbours. People of one set share their neighbours and pairs."""
    rows = known_rows(finder, None)
    attributes = list(dict.fromkeys(row["attribute"] for row in named))
    known = groupings(attributes_of(finder), rows, attributes, inputs.settings.bins, with_missing=False)
    groups = {group.name: group for group in known}
    samples = Samples(finder, rows, np.array(inputs.unfavourable, np.int32), persons_of(finder, None))
    with_pairs = any(row["test"] == "direction" for row in named)
    found: dict[tuple[str, str], list[_Answer]] = {}
    for attribute, value in dict.fromkeys((row["attribute"], row["value"]) for row in named):
        people, codes = samples.of(groups[attribute])
        carries = codes == groups[attribute].values.index(value)
        contrasts = [people.situation_contrast(k) for k in neighbours]
        chance, tests = people.test(carries, [*contrasts, *([people.evidence_contrast] if with_pairs else [])])
        found[attribute, value] = [(test.effect, test.p_value, test.statistic) for test in tests]
        if with_pairs:
            effect = pair_counts(*people.pairs[:2], carries, chance, _ALPHA).effect
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


def _encodings(finder: EvidenceFinder) -> dict[str, NDArray[Any]]:
    """Return other numbers to make vectors of, by choice; none if the numbers behind the vectors are unknown."""
    x = getattr(finder.data, "x", None) if finder.graph is not None else finder.data
    removed = set() if finder.removed is None else set(finder.removed.columns)
    if hasattr(x, "columns") and finder.attributes is not None:
        return _encodings_of_table(finder.attributes, removed, finder.scale)
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
    return scaled | _without_each(X, owners)


def _encodings_of_table(
    attributes: Attributes, removed: Collection[str], scale: Mapping[str, float] | None
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
    return scaled | _without_each(standard.x, standard.attributes)


def _without_each(X: NDArray[Any], owners: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Return the numbers without the columns of each attribute, of some attributes at most."""
    names = list(dict.fromkeys(owners))
    masks = {name: np.array([owner != name for owner in owners]) for name in names[:_LEFT_OUT]}
    return {f"without {show(name)}": X[:, mask] for name, mask in masks.items() if len(names) > 1}
