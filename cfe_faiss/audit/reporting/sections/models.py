"""Tests of the model, which ask it again or compare equal people; and other models, compared with it."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from cfe_faiss.audit.exact_pairs import only_in
from cfe_faiss.audit.flipping import flip
from cfe_faiss.audit.reporting.document import Column, Plot, Section, Table, low_high, rows_of, show, to_python
from cfe_faiss.audit.reporting.inputs import Inputs
from cfe_faiss.audit.reporting.sections.direct_effects import change_rows, find_changes
from cfe_faiss.rows.metric import measure_of

_VALUES = 8
"""Values of an attribute that are flipped into, at most."""
_FLIPPED_ALONE = 1_000
"""People who are flipped one at a time, at most: each may take a pass of the model over the whole graph."""


def only_in_section(inputs: Inputs) -> Section:
    """Return the pairs that differ in one sensitive attribute alone, compared with pairs that agree in all."""
    tests = {name: only_in(inputs.finder, [name], confidence=inputs.settings.confidence) for name in inputs.sensitive}
    rows = []
    for name, test in tests.items():
        line, equal = rows_of(test.table)
        rows.append({"attribute": name, **line, "expected": equal["share"], "equal_pairs": equal["pairs"]})
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
    """Return the decisions that change when a sensitive attribute is flipped (paper, case study 2)."""
    rows: list[dict[str, Any]] = []
    measured: list[dict[str, Any]] = []
    limits: list[str] = []
    left_out: list[tuple[str, str, int]] = []
    # Without a graph a decision depends on one row alone, so both ways are the same.
    ways = {"all at once": inputs.nodes}
    if inputs.has("graph"):
        count = len(inputs.nodes)
        chosen = np.linspace(0, count - 1, min(count, _FLIPPED_ALONE)).astype(np.int64)  # evenly spread
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
            way: dict[str, Any] = {"nodes": inputs.finder.names(nodes), "at_once": how == "all at once"}
            test = flip(inputs.finder, name, columns=columns or None, confidence=inputs.settings.confidence, **way)
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
    of_attribute = {name: [row for row in rows if row["attribute"] == name] for name in inputs.sensitive}
    # The rows of flips into any other value, one for each way
    flips = [
        (name, [row for row in lines if row["value"] == "all"] or lines)
        for name, lines in of_attribute.items()
        if lines
    ]
    for row in rows:
        direction = "" if row["value"] == "all" else f", {row['value']} to {row['flipped']}"
        measured.append(row | {"place": f"{row['how']}{direction}"})
    return Section(
        values | {"flips": flips, "most_alone": _FLIPPED_ALONE},
        tables=[Table("flip", table, rows)],
        limits=list(dict.fromkeys(limits)),
        measured=measured,
    )


def _features_of(data: Any, name: str) -> Mapping[Any, str] | None:
    """Return the features of an attribute by its values; empty for one feature of its name, None without features."""
    if hasattr(data, "iloc"):
        return {} if name in data.columns else None
    features = [str(feature) for feature in getattr(data, "feature_names", None) or []]
    if name in features or name in (getattr(data, "feature_attributes", None) or ()):
        return {}
    found = {feature.partition("=")[2]: feature for feature in features if feature.startswith(f"{name}=")}
    return found or None


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float | np.floating) else str(to_python(value))


def models_section(inputs: Inputs) -> Section:
    """Return the models side by side, and the changes from the first to each other one."""
    changes, tests = inputs.once(find_changes), inputs.once(change_rows)
    assert changes is not None
    models = [_model(row) for row in rows_of(changes.models)]
    shown = [models[0] | dict.fromkeys(("changed", "appears", "disappears", "stays")), *models[1:]]
    rates = [row | {"heading": show(row["model"])} for row in tests if row["kind"] == "rates"]
    pairs = [row for row in rows_of(changes.pairs) if row["change"] != "stays"]
    for row in pairs:
        row |= {f"decided_{at}": f"{row[f'source_{at}']} and {row[f'target_{at}']}" for at in ("before", "after")}
    baseline, measure = show(changes.baseline), measure_of(inputs.finder.metric)
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
