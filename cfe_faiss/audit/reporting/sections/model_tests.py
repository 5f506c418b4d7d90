"""Tests of the model: attributes flipped, and pairs that differ in one attribute only."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.audit.exact_pairs import only_in
from cfe_faiss.audit.flipping import flip
from cfe_faiss.audit.reporting.document import Column, Measure, Section, Table
from cfe_faiss.audit.reporting.drawings import Plot
from cfe_faiss.audit.reporting.formats import interval, plural, share, shown
from cfe_faiss.audit.reporting.inputs import Inputs
from cfe_faiss.audit.reporting.rows import plain, rows_of

_VALUES = 8
"""Values of an attribute that are flipped into, at most."""
_FLIPPED_ALONE = 1_000
"""People who are flipped one at a time, at most: each may take a pass of the model over the whole graph."""
_NO_ATTRIBUTE = "No sensitive attribute was named."


def only_in_section(inputs: Inputs) -> Section:
    """Return for each sensitive attribute the pairs that agree in all others, beside those that agree in all."""
    title = "Pairs that differ in a sensitive attribute only"
    purpose = "Are there pairs that agree in every other attribute, and yet have different decisions?"
    if not inputs.sensitive:
        return Section("only_in", title, purpose, missing=_NO_ATTRIBUTE)
    tests = {name: only_in(inputs.finder, [name], confidence=inputs.settings.confidence) for name in inputs.sensitive}
    rows = []
    for name, test in tests.items():
        line, equal = rows_of(test.table)
        rows.append({"attribute": name, **line, "expected": equal["share"], "equal_pairs": equal["pairs"]})
    table = Table(
        "only_in",
        "Pairs that agree in everything but one attribute",
        "Upright bar and “expected”: the share among pairs that agree in all attributes, with which the share of the "
        "line is compared.",
        (
            Column("attribute", "Attribute"),
            Column("pairs", "n pairs", "count"),
            Column("different", "Different decisions", "count"),
            Column("share", "Share", "share", ("low", "high"), "pairs", Plot((0.0, 0.5, 1.0), expected="expected")),
            Column("expected", "Expected", "share", None, "equal_pairs"),
            Column("equal_pairs", "n pairs that agree in all", "count"),
        ),
        tuple(rows),
    )
    findings = [_only_in(inputs, row) for row in rows]
    unknown = max(test.unknown for test in tests.values())
    return Section(
        "only_in",
        title,
        purpose,
        headline=findings[0],
        described=tuple(line for row, line in zip(rows, findings, strict=True) if row["pairs"])[:3],
        findings=(*([f"{inputs.count(unknown)} with a missing attribute could not be compared."] if unknown else []),),
        tables=(table,),
        limits=tuple(dict.fromkeys(inputs.worded(limit) for test in tests.values() for limit in test.limits)),
        measures=tuple(Measure.of("only_in", row["attribute"], "pairs", row, "share", "pairs") for row in rows),
    )


def _only_in(inputs: Inputs, row: Mapping[str, Any]) -> str:
    name = shown(row["attribute"])
    if not row["pairs"]:
        return f"No two {inputs.people} agree in every attribute but {name}."
    expected = (
        f"{share(row['expected'])} of {plural(row['equal_pairs'], 'pair')} that agree in all attributes"
        if row["equal_pairs"]
        else "no pair agrees in all attributes, so there is nothing to compare it with"
    )
    return (
        f"Of {plural(row['pairs'], 'pair')} that agree in every attribute but {name}, {share(row['share'])} have "
        f"different decisions ({inputs.level} interval {interval(row['low'], row['high'], 'share')}; expected: "
        f"{expected})."
    )


def flip_section(inputs: Inputs) -> Section:
    """Return the decisions that change when a sensitive attribute is flipped (paper, case study 2)."""
    title = "Flip test"
    purpose = f"Does a decision change when nothing but one attribute of the {inputs.person} is changed?"
    if inputs.model is None:
        reason = "No model was given that could be asked again, only its predictions."
        return Section("flip", title, purpose, missing=reason)
    if not inputs.sensitive:
        return Section("flip", title, purpose, missing=_NO_ATTRIBUTE)
    rows: list[dict[str, Any]] = []
    limits: list[str] = []
    left_out: list[str] = []
    for name in inputs.sensitive:
        columns = _columns(inputs.data, name)
        if columns is None:
            left_out.append(f"{shown(name)} is not among the features that the model reads: it cannot be flipped.")
            continue
        if len(columns or inputs.attributes[name].values) > _VALUES:
            left_out.append(f"{shown(name)} has more than {_VALUES} values and is not flipped.")
            continue
        # Without a graph nobody's decision depends on others, so both ways are the same.
        ways = {"all at once": inputs.nodes}
        if inputs.finder.graph is not None:
            ways = {"one at a time": _spread(inputs.nodes, _FLIPPED_ALONE)} | ways
        for how, nodes in ways.items():
            test = flip(
                inputs.finder,
                name,
                columns=columns or None,
                nodes=inputs.finder.names(nodes),
                at_once=how == "all at once",
                confidence=inputs.settings.confidence,
            )
            rows += [_flip_row(name, how, line) for line in rows_of(test.rates) if line["nodes"]]
            limits += test.limits
            if test.unknown:
                left_out.append(f"{inputs.count(test.unknown)} without a known {shown(name)} could not be flipped.")
    if not rows:
        return Section("flip", title, purpose, missing=" ".join(left_out))
    table = Table(
        "flip",
        "Decisions that change when one attribute is changed",
        "Everything else is left as it is. A flip has no level that chance would give: it is a count.",
        (
            Column("attribute", "Attribute"),
            *([Column("how", "Changed")] if inputs.finder.graph is not None else []),
            Column("value", "From"),
            Column("flipped", "To"),
            Column("nodes", "n", "count"),
            Column("changed", "Changed decisions", "count"),
            Column(
                "share",
                "Share",
                "share",
                ("low", "high"),
                "nodes",
                Plot.around([0.0, *(row[key] for row in rows for key in ("share", "high"))]),
            ),
        ),
        tuple(rows),
    )
    described = [_flipped(inputs, name, rows) for name in dict.fromkeys(row["attribute"] for row in rows)]
    return Section(
        "flip",
        title,
        purpose,
        headline=described[0],
        described=tuple(described[:4]),
        findings=tuple(dict.fromkeys(left_out)),
        tables=(table,),
        limits=(
            *dict.fromkeys(map(inputs.worded, limits)),
            *(
                [f"One at a time, at most {_FLIPPED_ALONE:,} {inputs.people} are flipped, spread evenly over all."]
                if inputs.finder.graph is not None
                else []
            ),
        ),
        measures=tuple(Measure.of("flipped", row["attribute"], _direction(row), row, "share", "nodes") for row in rows),
    )


def _flip_row(name: str, how: str, line: dict[str, Any]) -> dict[str, Any]:
    return line | {"attribute": name, "how": how} | {key: _text(line[key]) for key in ("value", "flipped")}


def _columns(data: Any, name: str) -> Mapping[Any, str] | None:
    """Return the features that hold an attribute: none for one of its own name, None where there are none."""
    if hasattr(data, "iloc"):
        return {} if name in data.columns else None
    features = [str(feature) for feature in getattr(data, "feature_names", None) or []]
    if name in features or name in (getattr(data, "feature_attributes", None) or ()):
        return {}
    found = {feature.partition("=")[2]: feature for feature in features if feature.startswith(f"{name}=")}
    return found or None


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float | np.floating) else str(plain(value))


def _flipped(inputs: Inputs, name: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Return how many decisions change when an attribute is flipped, into any of its other values."""
    lines = [row for row in rows if row["attribute"] == name]
    whole = [row for row in lines if row["value"] == "all"] or lines
    parts = [
        f"{row['changed']:,} of {row['nodes']:,} decisions ({share(row['share'])}; {inputs.level} interval "
        f"{interval(row['low'], row['high'], 'share')})" + (f" {row['how']}" if inputs.finder.graph is not None else "")
        for row in whole
    ]
    return f"Flipping {shown(name)} changes {', '.join(parts)}."


def _direction(line: Mapping[str, Any]) -> str:
    return line["how"] if line["value"] == "all" else f"{line['how']}, {line['value']} to {line['flipped']}"


def _spread(nodes: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return at most so many of the nodes, evenly spread."""
    return nodes if len(nodes) <= count else nodes[np.linspace(0, len(nodes) - 1, count).astype(np.int64)]
