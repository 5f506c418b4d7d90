"""Tests of the model, which ask it again or compare equal people; and other models, compared with it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from cfe_faiss.audit.exact_pairs import only_in
from cfe_faiss.audit.flipping import flip
from cfe_faiss.audit.reporting.document import Section
from cfe_faiss.audit.reporting.formats import rows_of, show, to_python
from cfe_faiss.audit.reporting.inputs import Inputs
from cfe_faiss.audit.reporting.sections.direct_effects import change_rows, find_changes, limit_lines

_Row = dict[str, Any]
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
    sentences = [_only_in(inputs, row) for row in rows]
    unknown = max(test.unknown for test in tests.values())
    return inputs.section(
        "only_in",
        {"first": sentences[0]},
        described=tuple(line for row, line in zip(rows, sentences, strict=True) if row["pairs"])[:3],
        findings=[inputs.say("only_in.unknown", unknown=unknown)] if unknown else (),
        tables={"only_in": rows},
        limits=dict.fromkeys(inputs.reword(limit) for test in tests.values() for limit in test.limits),
        measured=[row | {"place": "pairs"} for row in rows],
    )


def _only_in(inputs: Inputs, row: Mapping[str, Any]) -> str:
    if not row["pairs"]:
        return inputs.say("only_in.no_pair", row)
    compared = inputs.say("only_in.compared" if row["equal_pairs"] else "only_in.nothing", row)
    return inputs.say("only_in.pairs", row, compared=compared)


def flip_section(inputs: Inputs) -> Section:
    """Return the decisions that change when a sensitive attribute is flipped (paper, case study 2)."""
    rows: list[dict[str, Any]] = []
    limits: list[str] = []
    left_out: list[str] = []
    # Without a graph a decision depends on one row alone, so both ways are the same.
    ways = {"all at once": inputs.nodes}
    if inputs.has("graph"):
        count = len(inputs.nodes)
        chosen = np.linspace(0, count - 1, min(count, _FLIPPED_ALONE)).astype(np.int64)  # evenly spread
        ways = {"one at a time": inputs.nodes[chosen]} | ways
    for name in inputs.sensitive:
        columns = _columns(inputs.finder.data, name)
        count = len(columns or inputs.attributes[name].values)
        if columns is None or not 2 <= count <= _VALUES:
            reason = "flip.not_read" if columns is None else "flip.too_few" if count < 2 else "flip.too_many"
            left_out.append(inputs.say(reason, name=name, most=_VALUES))
            continue
        for how, nodes in ways.items():
            way: dict[str, Any] = {"nodes": inputs.finder.names(nodes), "at_once": how == "all at once"}
            test = flip(inputs.finder, name, columns=columns or None, confidence=inputs.settings.confidence, **way)
            lines = (line for line in rows_of(test.rates) if line["nodes"])
            texts = ((line, {key: _text(line[key]) for key in ("value", "flipped")}) for line in lines)
            rows += [line | {"attribute": name, "how": how} | names for line, names in texts]
            limits += test.limits
            if test.unknown:
                left_out.append(inputs.say("flip.unknown", name=name, unknown=test.unknown))
    if not rows:
        return inputs.section("flip", {"reasons": " ".join(left_out)}, missing="not_flipped")
    described = [_describe_flip(inputs, name, rows) for name in dict.fromkeys(row["attribute"] for row in rows)]
    return inputs.section(
        "flip",
        {"first": described[0], "alone": _FLIPPED_ALONE},
        described=tuple(described[:4]),
        findings=dict.fromkeys(left_out),
        tables={"flip": rows},
        limits=dict.fromkeys(map(inputs.reword, limits)),
        measured=[row | {"place": _direction(row)} for row in rows],
    )


def _columns(data: Any, name: str) -> Mapping[Any, str] | None:
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


def _describe_flip(inputs: Inputs, name: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Return how many decisions change when an attribute is flipped, into any of its other values."""
    lines = [row for row in rows if row["attribute"] == name]
    whole = [row for row in lines if row["value"] == "all"] or lines
    ways = [f" {row['how']}" if inputs.has("graph") else "" for row in whole]
    parts = [inputs.say("flip.part", row, how=how) for row, how in zip(whole, ways, strict=True)]
    return inputs.say("flip.changed", name=name, parts=", ".join(parts))


def _direction(line: Mapping[str, Any]) -> str:
    how: str = line["how"]
    return how if line["value"] == "all" else f"{how}, {line['value']} to {line['flipped']}"


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
    told, count = int(changes.table["p"].notna().sum()), len(changes.table)
    values = {"threshold": inputs.at_least(changes.threshold), "baseline": changes.baseline, "fdr": changes.fdr}
    values |= {"told": told, "count": count, "weak": told < count}
    tables = {
        "models": shown,
        "model_rates": rates,
        "model_directions": rows_of(changes.directions),
        "model_pairs": pairs,
    }
    return inputs.section(
        "models",
        values,
        tables={name: rows for name, rows in tables.items() if rows},
        named=limit_lines(inputs, _say_named(inputs, tests, values)),
        described=[inputs.say("models.described", row, **values) for row in models[1:]],
        limits=map(inputs.reword, changes.limits),
        measured=models,
    )


def _model(row: _Row) -> _Row:
    """Return the line of a model with the share decided favourably, and its place in conditions."""
    share, low, high = (row[f"unfavourable{end}"] for end in ("", "_low", "_high"))
    selected = {"selected": share, "selected_low": high, "selected_high": low}
    turned = {key: None if value is None else 1 - value for key, value in selected.items()}
    return row | turned | {"attribute": None, "place": row["model"]}


def _say_named(inputs: Inputs, tests: Sequence[_Row], values: Mapping[str, Any]) -> Iterator[str]:
    for row in (row for row in tests if row["named"]):
        key = "models.named_rates" if row["kind"] == "rates" else "models.named_direct"
        direction = "more" if row["verdict"] == "disadvantaged" else "less"
        more = {"direction": direction, "size": abs(row["effect"]), "test_name": row["test"]}
        if row["place"] == inputs.everyone:
            more["place"] = inputs.everyone.capitalize()
        yield inputs.say(key, row, **values, **more)
