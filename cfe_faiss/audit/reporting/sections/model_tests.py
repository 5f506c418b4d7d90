"""Tests of the model: pairs that differ in one attribute only, attributes flipped, groups compared among neighbours."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.attributes import Attribute
from cfe_faiss.audit.exact_pairs import only_in
from cfe_faiss.audit.flipping import flip
from cfe_faiss.audit.reporting.document import Column, Measure, Section, Table
from cfe_faiss.audit.reporting.formats import interval, plural, share, shown
from cfe_faiss.audit.reporting.inputs import Inputs
from cfe_faiss.audit.reporting.rows import plain, rows_of
from cfe_faiss.audit.situation import situation_test

_GROUPS = 8
"""Values of an attribute that are compared, or flipped into, at most."""
_FLIPPED_ALONE = 1_000
"""Nodes that are flipped one at a time, at most: each may take a pass of the model over the whole graph."""


def only_in_section(inputs: Inputs) -> Section:
    """Return for each sensitive attribute the pairs that agree in all others."""
    title = "Pairs that differ in a sensitive attribute only"
    purpose = "Are there nodes that agree in every other attribute, and yet are predicted differently?"
    if not inputs.sensitive:
        return Section("only_in", title, purpose, missing="No sensitive attribute was named.")
    rows: list[dict[str, Any]] = []
    findings: list[str] = []
    left_out: list[str] = []
    measures: list[Measure] = []
    limits: list[str] = []
    for name in inputs.sensitive:
        test = only_in(inputs.finder, [name], confidence=inputs.settings.confidence)
        rows += [{"attribute": name, **row} for row in rows_of(test.table)]
        rate = float(test.share)
        findings.append(_only_in(name, test.pairs, test.different, rate))
        if test.unknown:
            left_out.append(f"{plural(test.unknown, 'node')} with a missing attribute could not be compared.")
        low, high = float(test.low), float(test.high)
        measures.append(Measure("only_in", name, "pairs", rate, int(test.pairs), low, high))
        limits += test.limits
    table = Table(
        "only_in",
        "Pairs of nodes that agree in everything but one attribute",
        "For each attribute, compare the share of pairs predicted differently with that of pairs that agree in "
        "everything, where only the connections can make the difference.",
        (
            Column("attribute", "Attribute"),
            Column("agreement", "The two agree in"),
            Column("groups", "Sets of such nodes", "count"),
            Column("nodes", "Nodes in them", "count"),
            Column("pairs", "n pairs", "count"),
            Column("different", "Predicted differently", "count"),
            Column("share", "Share", "share", ("low", "high"), "pairs"),
        ),
        tuple(rows),
    )
    return Section(
        "only_in",
        title,
        purpose,
        headline=" ".join(findings[:3]),
        findings=(*findings, *dict.fromkeys(left_out)),
        tables=(table,),
        limits=tuple(dict.fromkeys(limits)),
        measures=tuple(measures),
    )


def flip_section(inputs: Inputs) -> Section:
    """Return which predictions change when a sensitive attribute is flipped (paper, case study 2)."""
    title = "Flip test"
    purpose = "Does a prediction change when nothing but one attribute of the node is changed?"
    if inputs.model is None:
        reason = "No model was given that could be asked again, only its predictions."
        return Section("flip", title, purpose, missing=reason)
    if not inputs.sensitive:
        return Section("flip", title, purpose, missing="No sensitive attribute was named.")
    rows: list[dict[str, Any]] = []
    findings: list[str] = []
    measures: list[Measure] = []
    limits: list[str] = []
    left_out: list[str] = []
    for name in inputs.sensitive:
        columns = _columns(inputs.data, name)
        if columns is None:
            left_out.append(f"{shown(name)} is not among the features that the model reads: it cannot be flipped.")
            continue
        if len(columns or inputs.attributes[name].values) > _GROUPS:
            left_out.append(f"{shown(name)} has more than {_GROUPS} values and is not flipped.")
            continue
        for at_once, nodes in ((False, _spread(inputs.nodes, _FLIPPED_ALONE)), (True, inputs.nodes)):
            test = flip(
                inputs.finder,
                name,
                columns=columns or None,
                nodes=inputs.finder.names(nodes),
                at_once=at_once,
                confidence=inputs.settings.confidence,
            )
            how = "all nodes at once" if at_once else "one node at a time"
            lines = [line for line in rows_of(test.rates) if line["nodes"]]
            lines = [line | {key: _text(line[key]) for key in ("value", "flipped")} for line in lines]
            rows += [{**line, "attribute": name, "how": how} for line in lines]
            findings += [_flipped(inputs, name, how, line) for line in lines[:1]]
            measures += [Measure.of("flipped", name, _direction(how, line), line, "share", "nodes") for line in lines]
            limits += test.limits
            if test.unknown:
                left_out.append(f"{plural(test.unknown, 'node')} without a known {shown(name)} could not be flipped.")
    if not rows:
        return Section("flip", title, purpose, missing=" ".join(left_out))
    table = Table(
        "flip",
        "Predictions that change when one attribute is changed",
        "Each line counts the nodes whose value was changed, everything else left as it was, and for how many of them "
        "the prediction changed: the value of one node alone, or those of all nodes of the graph together.",
        (
            Column("attribute", "Attribute"),
            Column("how", "Changed"),
            Column("value", "From"),
            Column("flipped", "To"),
            Column("nodes", "n", "count"),
            Column("changed", "Predictions changed", "count"),
            Column("share", "Share", "share", ("low", "high"), "nodes"),
        ),
        tuple(rows),
    )
    return Section(
        "flip",
        title,
        purpose,
        headline=" ".join(findings[:4]),
        findings=(*findings, *left_out),
        tables=(table,),
        limits=(
            *dict.fromkeys(limits),
            f"One node at a time, at most {_FLIPPED_ALONE:,} nodes are flipped, spread evenly over the audited ones.",
        ),
        measures=tuple(measures),
    )


def situation_section(inputs: Inputs) -> Section:
    """Return the situation test of each value of each sensitive attribute (Luong, Ruggieri & Turini 2011)."""
    title = "Situation test"
    purpose = "Are nodes of one group predicted unfavourably where their nearest neighbours of other groups are not?"
    if not inputs.sensitive:
        return Section("situation", title, purpose, missing="No sensitive attribute was named.")
    unfavourable = _unfavourable(inputs)
    if unfavourable is None:
        reason = "No class was named as the favourable one, so none is known to be unfavourable."
        return Section("situation", title, purpose, missing=reason)
    rows: list[dict[str, Any]] = []
    findings: list[str] = []
    measures: list[Measure] = []
    limits: list[str] = []
    left_out: list[str] = []
    for name in inputs.sensitive:
        attribute = inputs.attributes[name]
        if len(attribute.values) > _GROUPS:
            left_out.append(f"{shown(name)} has more than {_GROUPS} values; no group of it was named for this test.")
            continue
        for value in _values(attribute):
            test = situation_test(
                inputs.finder,
                attribute=name,
                protected=value,
                unfavourable=unfavourable,
                k=inputs.settings.k,
                alpha=1 - inputs.settings.confidence,
            )
            rows.append(
                {
                    "attribute": name,
                    "group": _text(value),
                    "nodes": test.n_carriers,
                    "unfavourable": test.judged,
                    "flagged": test.flagged,
                    "share": test.flagged / test.judged if test.judged else None,
                    "expected": plain(test.expected),
                    "effect": plain(test.effect),
                    "p": plain(test.p_value),
                    "verdict": test.verdict,
                }
            )
            findings.append(_situation(rows[-1]))
            measures.append(Measure.of("situation", name, _text(value), rows[-1], "share", "unfavourable"))
            limits += test.limits
    if not rows:
        return Section("situation", title, purpose, missing=" ".join(left_out))
    k = inputs.settings.k
    table = Table(
        "situation",
        f"Situation test with the {k} nearest nodes of the group and the {k} nearest of the others",
        "Flagged are nodes predicted unfavourably whose neighbours in their own group are predicted so more often than "
        "those of other groups, by the test's threshold. The verdict is that of a test whose p value is not adjusted "
        "for the number of groups.",
        (
            Column("attribute", "Attribute"),
            Column("group", "Group"),
            Column("nodes", "n", "count"),
            Column("unfavourable", "n predicted unfavourably", "count"),
            Column("flagged", "Flagged", "count"),
            Column("share", "Flagged of unfavourable", "share", None, "unfavourable"),
            Column("expected", "Expected from the vectors", "share", None, "unfavourable"),
            Column("effect", "Difference not explained by the vectors", "signed", None, "nodes"),
            Column("p", "p", "p-value"),
            Column("verdict", "Verdict"),
        ),
        tuple(rows),
    )
    return Section(
        "situation",
        title,
        purpose,
        findings=(*findings, *left_out),
        tables=(table,),
        limits=tuple(dict.fromkeys(limits)),
        measures=tuple(measures),
    )


def _only_in(name: str, pairs: int, different: int, rate: float) -> str:
    if not pairs:
        return f"No two nodes agree in every attribute but {shown(name)}."
    return (
        f"Of {plural(pairs, 'pair')} of nodes that agree in every attribute but {shown(name)}, {different:,} "
        f"({share(rate)}) are predicted differently."
    )


def _situation(row: Mapping[str, Any]) -> str:
    group = f"{shown(row['attribute'])} = {shown(row['group'])}"
    p = "" if row["p"] is None else f" (p = {row['p']:.2g}, not adjusted)"
    return (
        f"{group}: {row['verdict']}{p}. Of {plural(row['unfavourable'], 'node')} predicted unfavourably "
        f"{row['flagged']:,} have neighbours of other groups that are predicted so clearly less often."
    )


def _columns(data: Any, name: str) -> Mapping[Any, str] | None:
    """Return the features that hold an attribute: none for one of its own name, None where there are none."""
    if hasattr(data, "iloc"):
        return {} if name in data.columns else None
    features = [str(feature) for feature in getattr(data, "feature_names", None) or []]
    if name in features or name in (getattr(data, "feature_attributes", None) or ()):
        return {}
    found = {feature.partition("=")[2]: feature for feature in features if feature.startswith(f"{name}=")}
    return found or None


def _unfavourable(inputs: Inputs) -> list[str] | None:
    if inputs.favourable is None:
        return None
    others = [int(label) for label in np.unique(inputs.labels) if label >= 0 and label != inputs.favourable]
    return [inputs.finder.class_name(label) for label in others] or None


def _values(attribute: Attribute) -> list[Any]:
    """Return the values that some node has."""
    return [attribute.values[code] for code in np.unique(attribute.codes[attribute.codes >= 0])]


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float | np.floating) else str(value)


def _flipped(inputs: Inputs, name: str, how: str, line: Mapping[str, Any]) -> str:
    return (
        f"Flipping {shown(name)}, {how}, changes {line['changed']:,} of {line['nodes']:,} predictions "
        f"({share(line['share'])}; {inputs.level} interval {interval(line['low'], line['high'], 'share')})."
    )


def _direction(how: str, line: Mapping[str, Any]) -> str:
    return how if line["value"] == "all" else f"{how}, {line['value']} to {line['flipped']}"


def _spread(nodes: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return at most so many of the nodes, evenly spread."""
    return nodes if len(nodes) <= count else nodes[np.linspace(0, len(nodes) - 1, count).astype(np.int64)]
