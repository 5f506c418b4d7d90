"""Named findings under other choices of the auditor: scaling, number of neighbours, attributes left out."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from cfe_faiss.attributes.table import Attributes
from cfe_faiss.audit.family import DirectEffects, direct_effects
from cfe_faiss.audit.reporting.document import Column, Section, Table
from cfe_faiss.audit.reporting.formats import group_name, shown
from cfe_faiss.audit.reporting.inputs import Inputs
from cfe_faiss.audit.reporting.rows import rows_of
from cfe_faiss.audit.reporting.sections.direct_effects import TESTS
from cfe_faiss.base.checks import as_dense
from cfe_faiss.finder import EvidenceFinder
from cfe_faiss.graph.ks import ks_vectors

_FINDINGS, _LEFT_OUT = 4, 40
"""Findings and attributes that are varied, at most."""
_LEVEL = 0.05


@dataclass(frozen=True, slots=True)
class _Features:
    """Numbers behind the vectors, (n, d), and the attribute of each column; empty where columns have no names."""

    X: NDArray[np.float64]
    attributes: tuple[str, ...]


def sensitivity_section(inputs: Inputs, effects: DirectEffects | None) -> Section:
    """Return the p value of each named direct effect under other scalings, other k, and fewer attributes."""
    title = "Sensitivity of the findings"
    purpose = "Do the named findings depend on scaling, on k, or on a single attribute?"
    named = [] if effects is None else _named(effects)
    if effects is None or not named:
        nothing = "No direct effect is named, so there is nothing to vary."
        return Section("sensitivity", title, purpose, headline=nothing)
    features = _features(inputs.finder)
    if features is None:
        return Section("sensitivity", title, purpose, missing="The features behind the vectors are not known.")
    rows = []
    for choice, finder, k in _choices(inputs, features):
        found = direct_effects(
            finder,
            sensitive=list(dict.fromkeys(row["attribute"] for row in named)),
            unfavourable=inputs.unfavourable,
            bins=inputs.settings.bins,
            k=k,
        )
        by_test = {(row["attribute"], row["value"], row["test"]): row for row in rows_of(found.table)}
        rows.append({"choice": choice} | _held(named, by_test))
    names = [f"{group_name(row['attribute'], row['value'])}, {TESTS[row['test']]}" for row in named]
    held = [sum(bool(row[f"holds_{i}"]) for row in rows) for i in range(len(named))]
    table = Table(
        "sensitivity",
        "Each named finding under other choices",
        f"Effect and its p value, not adjusted. A finding holds where p ≤ {_LEVEL:g} in the same direction.",
        (
            Column("choice", "Choice"),
            *(
                column
                for i, name in enumerate(names)
                for column in (Column(f"effect_{i}", name, "points"), Column(f"p_{i}", "p", "p-value"))
            ),
        ),
        tuple(rows),
    )
    return Section(
        "sensitivity",
        title,
        purpose,
        headline="; ".join(f"{name} holds in {count} of {len(rows)}" for name, count in zip(names, held, strict=True))
        + " choices.",
        tables=(table,),
        limits=(
            "A finding that holds under few choices says more about the choice than about the decisions.",
            "The model and its decisions stay as they are: only the similarity changes.",
        ),
    )


def _named(effects: DirectEffects) -> list[dict[str, Any]]:
    """Return the named tests of single attributes; of each attribute the value with the smallest p value."""
    rows = [row for row in rows_of(effects.table) if row["named"] and " & " not in row["attribute"]]
    rows.sort(key=lambda row: (row["verdict"] != "disadvantaged", row["p"]))
    first: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        first.setdefault((row["attribute"], row["test"]), row)
    return list(first.values())[:_FINDINGS]


def _held(named: list[dict[str, Any]], by_test: dict[tuple[Any, ...], dict[str, Any]]) -> dict[str, Any]:
    cells: dict[str, Any] = {}
    for i, row in enumerate(named):
        again = by_test.get((row["attribute"], row["value"], row["test"]), {"effect": None, "p": None, "statistic": 0})
        same = again["p"] is not None and again["statistic"] * row["statistic"] > 0
        cells |= {f"effect_{i}": again["effect"], f"p_{i}": again["p"], f"holds_{i}": same and again["p"] <= _LEVEL}
    return cells


def _choices(inputs: Inputs, features: _Features) -> Iterator[tuple[str, EvidenceFinder, int]]:
    finder, k, X = inputs.finder, inputs.settings.k, features.X
    yield "as reported", finder, k
    for other in (max(1, k // 2), 2 * k):
        yield f"k = {other}", finder, other
    centred = X - X.mean(axis=0)
    spread = X.std(axis=0)
    scaled = {"none": X, "standard": centred / np.where(spread > 0, spread, 1), "rank": rankdata(X, axis=0) / len(X)}
    for name, numbers in scaled.items():
        yield f"scaling: {name}", _with_features(finder, numbers), k
    for attribute in list(dict.fromkeys(features.attributes))[:_LEFT_OUT]:
        kept = [name != attribute for name in features.attributes]
        if any(kept):
            yield f"without {shown(attribute)}", _with_features(finder, X[:, kept]), k


def _of_table(attributes: Attributes, left_out: Collection[str]) -> _Features | None:
    """Return numbers as they are, missing ones as the mean, and a column of 0 and 1 for each value of a text."""
    columns: list[NDArray[np.float64]] = []
    names: list[str] = []
    for name in attributes:
        attribute = attributes[name]
        if name in left_out or (attribute.missing.all() and attribute.numbers is not None):
            continue
        if attribute.numbers is not None:
            numbers = attribute.numbers.astype(np.float64)
            own = [np.where(attribute.missing, np.nanmean(numbers), numbers)]
        else:
            own = [(attribute.codes == code).astype(np.float64) for code in range(len(attribute.values))]
        columns += own
        names += [name] * len(own)
    return _Features(np.column_stack(columns), tuple(names)) if columns else None


def _with_features(finder: EvidenceFinder, X: NDArray[np.float64]) -> EvidenceFinder:
    """Return the finder with the vectors of other numbers; its index, whose ids stay, is not searched."""
    if finder.graph is not None:
        return replace(finder, vectors=ks_vectors(X.astype(np.float32), finder.graph))
    lengths = np.linalg.norm(X, axis=1, keepdims=True)
    return replace(finder, vectors=np.ascontiguousarray(X / np.where(lengths > 0, lengths, 1), np.float32))


def _features(finder: EvidenceFinder) -> _Features | None:
    """Return the numbers that the vectors are made of, without the columns that were left out."""
    x = getattr(finder.data, "x", None) if finder.graph is not None else finder.data
    if hasattr(x, "columns") and finder.attributes is not None:
        return _of_table(finder.attributes, () if finder.removed is None else finder.removed.attributes)
    if x is None or not hasattr(x, "shape"):
        return None
    names = [str(name) for name in getattr(finder.data, "feature_names", None) or []]
    removed = set() if finder.removed is None else set(finder.removed.columns)
    X = as_dense("x", x).astype(np.float64)
    if len(names) != X.shape[1]:
        return _Features(X, ()) if not removed else None
    kept = [name not in removed for name in names]
    return _Features(X[:, kept], tuple(name.partition("=")[0] for name, keep in zip(names, kept, strict=True) if keep))
