"""Sections that change one thing: the choices behind findings, and attributes of people."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.stats import rankdata

from cfe_faiss.attributes.table import Attributes
from cfe_faiss.audit.attribute_pairs import only_in
from cfe_faiss.audit.direct_test import Samples
from cfe_faiss.audit.effects import DirectEffects
from cfe_faiss.audit.flipping import flip
from cfe_faiss.audit.groups import attributes_of_finder, groupings, stack
from cfe_faiss.audit.reporting.document import (
    Column,
    Plot,
    Section,
    Table,
    group_name,
    rows_of,
    show,
    to_python,
)
from cfe_faiss.audit.reporting.inputs import Inputs, Metric, Part
from cfe_faiss.audit.reporting.sections.groups import ALPHA, HALVES
from cfe_faiss.audit.reporting.sections.model_tests import TESTS, find_effects, find_samples
from cfe_faiss.base.checks import Array, Bools, as_dense
from cfe_faiss.data.encode import can_be_encoded, encode
from cfe_faiss.graph.ks import ks_vectors
from cfe_faiss.rows.metric import as_rows

_Row = dict[str, Any]
_FINDINGS = 4
"""Findings that are varied, at most."""
_SCALINGS = 3
"""Choices that scale the numbers; the others leave an attribute out."""
_LEFT_OUT = 40
"""Attributes that are left out in turn, at most."""
_WORK = 2.5e10
"""Most work of the choices together, see :func:`_without_each`: about 20 seconds on two cores."""
_VALUES = 8
"""Values of an attribute that are flipped into, at most."""
_FLIPPED_ALONE = 1_000
"""Most people who are flipped one at a time: each may take a pass over the whole graph."""
_Answer = tuple[float, float, float]
"""Effect, p value and statistic of a test; NaN if the test cannot tell."""


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
            holds = p <= ALPHA and statistic * finding["statistic"] > 0
            row |= {f"effect_{i}": to_python(effect), f"p_{i}": to_python(p), f"holds_{i}": holds}
        rows.append(row)
    findings: dict[str, int] = {}
    columns = [Column("choice", "Choice")]
    for i, finding in enumerate(named):
        name = f"{group_name(finding['attribute'], finding['value'])}, {TESTS[finding['test']]}"
        columns += [Column(f"effect_{i}", name, "points"), Column(f"p_{i}", "p", "p-value")]
        findings[name] = sum(bool(row[f"holds_{i}"]) for row in rows)
    values = {
        "findings": findings,
        "choices": len(rows),
        "alpha": ALPHA,
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
    inputs: Inputs, encodings: Mapping[str, Array], named: Sequence[_Row]
) -> Iterator[tuple[str, list[_Answer]]]:
    """Yield each choice with the named tests under it.

    Choices with the same vectors share neighbours and pairs.
    """
    k = inputs.settings.k
    reported = [(row["effect"], row["p"], row["statistic"]) for row in named]
    yield "as reported", reported
    samples = inputs.once(find_samples)
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
    value_groups = groupings(
        attributes_of_finder(samples.finder),
        samples.rows,
        names,
        inputs.settings.bins,
        with_missing=False,
    )
    groups = dict(zip(names, value_groups, strict=True))
    depths: list[int] = []
    if any(row["test"] == "situation" for row in named):
        depths = sorted(neighbours, reverse=True)  # fewer neighbours are the first of more
    with_pairs = any(row["test"] == "direction" for row in named)
    answers: dict[tuple[str, str], list[_Answer]] = {}
    for attribute, value in dict.fromkeys((row["attribute"], row["value"]) for row in named):
        people, codes = samples.of(groups[attribute])
        carries = codes == groups[attribute].values.index(value)
        contrasts = {k: people.situation_contrast(k) for k in depths}
        chance, tests = people.test(
            carries, [*contrasts.values(), *([people.evidence_contrast] if with_pairs else [])]
        )
        answers[attribute, value] = [(test.effect, test.p_value, test.statistic) for test in tests]
        if with_pairs:
            effect = people.pair_counts(carries, chance, ALPHA)["effect"]
            answers[attribute, value][-1] = (effect, tests[-1].p_value, tests[-1].statistic)
    return [
        [
            answers[row["attribute"], row["value"]][
                -1 if row["test"] == "direction" else depths.index(k)
            ]
            for row in named
        ]
        for k in neighbours
    ]


def _encodings(inputs: Inputs) -> tuple[dict[str, Array], int]:
    """Return other numbers to make vectors of, by choice, and the number of attributes.

    No choice, and 0, if the numbers behind the vectors are unknown.
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
    is_compared = [name not in removed for name in names]
    X = X[:, is_compared] if names else X
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
    refused: Bools,
) -> tuple[dict[str, Array], int]:
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


def _without_each(X: Array, owners: Sequence[str], refused: Bools) -> dict[str, Array]:
    """Return the numbers without the columns of each attribute.

    With too many attributes, only the attributes that correlate most with unfavourable decisions
    are left out in turn. A choice costs the fits of the null model, squared columns times rows, and
    all neighbours and pairs, columns times squared rows, of which a step takes a hundredth as long.
    Both take as long as with 150 more columns: the null model adds some, as does the choice among
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
    plot = Plot(HALVES, expected="expected")
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
        # evenly spread
        chosen = np.linspace(0, count - 1, min(count, _FLIPPED_ALONE)).astype(np.int64)
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
        measured=[
            row
            | {
                "place": row["how"]
                + ("" if row["value"] == "all" else f", {row['value']} to {row['flipped']}")
            }
            for row in rows
        ],
    )


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


PARTS = (
    Part("sensitivity", sensitivity_section),
    Part(
        "flip",
        flip_section,
        ("model", "sensitive"),
        metrics={"flipped": Metric("share", "nodes", ("model", "sensitive"))},
    ),
    Part(
        "only_in",
        only_in_section,
        ("sensitive",),
        metrics={"only_in": Metric("share", "pairs", ("sensitive",))},
    ),
)
