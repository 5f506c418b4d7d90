"""Other models, compared with the audited one: evidence, changes of class, of rates and of direct effects."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cfe_faiss.audit.reporting.document import Section
from cfe_faiss.audit.reporting.formats import rows_of, show
from cfe_faiss.audit.reporting.inputs import Inputs
from cfe_faiss.audit.reporting.sections.direct_effects import change_rows, find_changes, limit_lines

_Row = dict[str, Any]


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
    told = sum(row["p"] is not None for row in tests)
    values = {"threshold": changes.threshold, "baseline": changes.baseline, "fdr": changes.fdr}
    values |= {"told": told, "count": len(tests), "weak": told < len(tests)}
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
