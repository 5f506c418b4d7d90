"""The closest pairs with different decisions, and the files of the first of them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.audit.family import DirectEffects
from cfe_faiss.audit.reporting.document import Case, Column, Section, Side, Table
from cfe_faiss.audit.reporting.drawings import STYLES, Neighbour, Neighbourhood
from cfe_faiss.audit.reporting.formats import group_name, listed, plural, shown, similarity
from cfe_faiss.audit.reporting.inputs import Inputs
from cfe_faiss.base.checks import UNKNOWN
from cfe_faiss.graph import Graph
from cfe_faiss.pairs import evidence_pairs

_SHOWN, _NAMES = 15, 6
_NEIGHBOURS = 12
_COUNTED = 1_000_000
"""Pairs that are counted for a rank at most."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """The pairs that a report shows.

    Attributes
    ----------
    source, target
        Nodes, (p,) int64, most similar first.
    similarity
        In float64, (p,).
    ranked_by
        Their similarities in float32, by which the search ranks them, (p,).
    differing
        For each pair the names of the attributes in which the two differ; missing values of both are alike.
    total
        Pairs of audited nodes with different predicted classes, whatever the constraints.
    missing
        For each attribute of the constraints the nodes that are in no pair, as it is missing there.
    """

    source: NDArray[np.int64]
    target: NDArray[np.int64]
    similarity: NDArray[np.float64]
    ranked_by: NDArray[np.float32]
    differing: tuple[tuple[str, ...], ...]
    total: int
    missing: Mapping[str, int]

    def __len__(self) -> int:
        return len(self.similarity)


def find_pairs(inputs: Inputs) -> Pairs:
    """Return the closest pairs under the user's constraints; exact."""
    found = inputs.finder.top_pairs(inputs.settings.pairs, where=inputs.settings.where)
    left, right = inputs.places(found.source), inputs.places(found.target)
    codes = {name: inputs.attributes[name].codes for name in inputs.attributes}
    table = {name: column[left] != column[right] for name, column in codes.items()}
    differing = tuple(tuple(name for name in table if table[name][pair]) for pair in range(len(found)))
    sizes = np.bincount(inputs.labels[inputs.labels != UNKNOWN]).astype(np.int64)
    total = int(sizes.sum() ** 2 - (sizes**2).sum()) // 2
    return Pairs(
        found.source, found.target, found.similarity64(), found.similarity, differing, total, dict(found.missing or {})
    )


def strongest_section(inputs: Inputs, pairs: Pairs, effects: DirectEffects | None) -> Section:
    """Return the closest pair, side by side: one that shows a finding where there is one."""
    title = "The strongest case"
    purpose = f"Which two {inputs.people} are most similar and yet decided differently?"
    if not len(pairs):
        return Section("strongest_case", title, purpose, missing=_none(inputs), is_open=True)
    place, why = _strongest(inputs, pairs, effects)
    source, target = int(pairs.source[place]), int(pairs.target[place])
    return Section(
        "strongest_case",
        title,
        purpose,
        findings=(
            f"A ({inputs.node_name(source)}) was decided “{shown(_predicted(inputs, source))}”, B "
            f"({inputs.node_name(target)}) “{shown(_predicted(inputs, target))}”. Their similarity is "
            f"{similarity(float(pairs.similarity[place]))} of at most 1. {_agreement(inputs, pairs, place)} {why}",
        ),
        tables=(replace(_differences(inputs, place, pairs.differing[place], source, target), id="strongest_case"),),
        limits=("A case is an example, not a rate: it was chosen because it is extreme.",),
        is_open=True,
    )


def _strongest(inputs: Inputs, pairs: Pairs, effects: DirectEffects | None) -> tuple[int, str]:
    """Return the place of the first pair whose unfavourable side alone carries a value named at a disadvantage."""
    closest = f"No other two {inputs.people} with different decisions are closer."
    if effects is None:
        return 0, closest
    worse = effects.table[effects.table["verdict"] == "disadvantaged"]
    named = {(line["attribute"], str(line["value"])) for line in worse.to_dict("records")}
    for place in range(len(pairs)):
        refused, other = int(pairs.source[place]), int(pairs.target[place])
        if inputs.finder.labels[refused] not in inputs.unfavourable:
            refused, other = other, refused
        for attribute in (inputs.attributes[name] for name in inputs.sensitive):
            mine, theirs = (_text(attribute.of(int(row))) for row in inputs.places(np.array([refused, other])))
            if mine != theirs and (attribute.name, mine) in named:
                found = f"{group_name(attribute.name, mine)} and {group_name(attribute.name, theirs)}"
                return place, f"It is the closest pair of {found} that points the way of the findings."
    return 0, closest


def pairs_section(inputs: Inputs, pairs: Pairs) -> Section:
    """Return the table of the closest pairs."""
    count, people = len(pairs), inputs.people
    title = "Closest pairs with different decisions"
    purpose = f"Which {people} are most similar and yet decided differently?"
    if not count:
        return Section("pairs", title, purpose, missing=_none(inputs))
    known = inputs.truth is not None
    columns = [
        Column("place", "Place", "count"),
        Column("node_a", "A"),
        Column("node_b", "B"),
        Column("similarity", "Similarity", "similarity"),
        Column("predicted_a", "Decision for A"),
        Column("predicted_b", "Decision for B"),
        *([Column("true_a", "True class of A"), Column("true_b", "True class of B")] if known else []),
        Column("attributes_differing", "Attributes that differ", "count"),
        Column("which", "Which", "long"),
    ]
    table = Table(
        "closest_pairs",
        f"The closest {plural(count, 'pair')} of {people} with different decisions",
        "One pair a line, the most similar first; similarity is at most 1.",
        tuple(columns),
        tuple(_row(inputs, pairs, place) for place in range(count)),
        limit=_SHOWN,
        notes=tuple(_conditions(inputs, pairs.missing)),
    )
    equal = sum(not names for names in pairs.differing)
    rest = "vectors" if inputs.finder.graph is None else "connections"
    findings = [
        f"Of {pairs.total:,} pairs with different decisions, the {count:,} closest are listed. Their similarity runs "
        f"from {similarity(float(pairs.similarity[0]))} down to {similarity(float(pairs.similarity[-1]))}.",
        f"In {equal:,} of these {count:,} pairs the two agree in all {len(inputs.attributes):,} attributes: only their "
        f"{rest} differ.",
    ]
    if inputs.sensitive:
        findings.append(
            f"In {_only_sensitive(inputs, pairs):,} of these {count:,} pairs the two differ in nothing but "
            f"{listed(map(shown, inputs.sensitive)).replace(' and ', ' or ')}."
        )
    averaged = "" if inputs.finder.graph is None else ", averaged with those of neighbours"
    return Section(
        "pairs",
        title,
        purpose,
        headline=findings[0],
        findings=tuple(findings),
        tables=(table,),
        limits=(
            "These pairs were chosen because they are close and decided differently. They show where the model's "
            f"border runs, not how often it treats similar {people} differently.",
            f"Similarity is the cosine of two vectors{averaged}. An attribute outside these vectors has no part in it.",
        ),
    )


def cases_section(inputs: Inputs, pairs: Pairs) -> Section:
    """Return the files of the closest pairs, with a picture of both neighbourhoods where there is a graph."""
    title, purpose = "Case files", "What do the closest pairs look like, one by one?"
    count = min(inputs.settings.cases, len(pairs))
    if not count:
        return Section("cases", title, purpose, missing=_none(inputs))
    graph = None if inputs.finder.graph is None else inputs.finder.graph.undirected()
    ranks = _ranks(inputs, pairs, count)
    drawn = "" if graph is None else f" Up to {_NEIGHBOURS} neighbours of each are drawn."
    return Section(
        "cases",
        title,
        purpose,
        headline=f"The {count} closest pairs, attribute by attribute.",
        findings=(
            "The last column is B minus A, in standard deviations of the attribute. All pairs were compared, or ruled "
            f"out by a bound: none is missing.{drawn}",
        ),
        cases=tuple(_case(inputs, pairs, graph, place, ranks[place]) for place in range(count)),
    )


def _none(inputs: Inputs) -> str:
    return f"No two {inputs.people} with different decisions meet the conditions."


def _agreement(inputs: Inputs, pairs: Pairs, place: int) -> str:
    count = len(inputs.attributes)
    agreeing = count - len(pairs.differing[place])
    return f"They agree in {'all' if agreeing == count else f'{agreeing:,} of'} {plural(count, 'attribute')}."


def _row(inputs: Inputs, pairs: Pairs, place: int) -> dict[str, Any]:
    row: dict[str, Any] = {"place": place + 1}
    for side, nodes in (("a", pairs.source), ("b", pairs.target)):
        node = int(nodes[place])
        row[f"node_{side}"] = inputs.node_name(node)
        row[f"predicted_{side}"] = _predicted(inputs, node)
        row[f"true_{side}"] = _true(inputs, node)
    return row | {
        "similarity": float(pairs.similarity[place]),
        "attributes_differing": len(pairs.differing[place]),
        "differing": ", ".join(pairs.differing[place]) or "none",
        "which": _some(pairs.differing[place]),
    }


def _some(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _NAMES:,} more" if len(names) > _NAMES else ""
    return f"{', '.join(map(shown, names[:_NAMES])) or 'none'}{more}"


def _predicted(inputs: Inputs, node: int) -> str:
    return inputs.class_name(int(inputs.finder.labels[node]))


def _true(inputs: Inputs, node: int) -> str | None:
    if inputs.truth is None:
        return None
    label = int(inputs.truth[inputs.places(np.array([node]))[0]])
    return None if label == UNKNOWN else inputs.class_name(label)


def _conditions(inputs: Inputs, missing: Mapping[str, int]) -> list[str]:
    if not inputs.settings.where:
        return [
            "No conditions were set on the pairs. All pairs were compared, or ruled out by a bound: none is missing."
        ]
    set_by_user = "; ".join(shown(condition, 200) for condition in inputs.settings.where.describe())
    sentences = [f"Conditions set on the pairs: {set_by_user}. The list is exact and complete under them."]
    for name, count in missing.items():
        sentences.append(f"{inputs.count(count)} without a known {shown(name)} can be in no pair.")
    return sentences


def _only_sensitive(inputs: Inputs, pairs: Pairs) -> int:
    sensitive = set(inputs.sensitive)
    return sum(bool(names) and sensitive.issuperset(names) for names in pairs.differing)


def _ranks(inputs: Inputs, pairs: Pairs, count: int) -> list[str]:
    """Return in words the rank of each of the first pairs among all pairs; pairs of equal similarity share a rank."""
    shown_pairs = pairs.ranked_by[:count]
    above, equal, counted = np.zeros(count, np.int64), np.zeros(count, np.int64), 0
    for some in evidence_pairs(inputs.finder.index, float(shown_pairs[-1])):
        above += (some.similarity[:, None] > shown_pairs).sum(axis=0)
        equal += (some.similarity[:, None] == shown_pairs).sum(axis=0)
        counted += len(some)
        if counted > _COUNTED:
            return [
                f"not counted: more than {_COUNTED:,} of {pairs.total:,} pairs are as close as the last of these"
            ] * count
    return [
        f"{first + 1:,} of {pairs.total:,} pairs"
        + (f", together with {plural(int(ties) - 1, 'other')} that the search cannot tell from it" if ties > 1 else "")
        for first, ties in zip(above.tolist(), equal.tolist(), strict=True)
    ]


def _case(inputs: Inputs, pairs: Pairs, graph: Graph | None, place: int, rank: str) -> Case:
    source, target = int(pairs.source[place]), int(pairs.target[place])
    style: dict[int, int] = {}
    if graph is not None:
        drawn = [source, target], _drawn(inputs, graph, source, target), _drawn(inputs, graph, target, source)
        classes = np.unique(inputs.finder.labels[np.concatenate(drawn)]).tolist()
        # The same class looks the same in every case, unless there are more classes than looks.
        style = {label: label if len(inputs.class_names) <= STYLES else i for i, label in enumerate(classes)}
    return Case(
        place + 1,
        similarity(float(pairs.similarity[place])),
        rank,
        (_side(inputs, graph, source, target, style), _side(inputs, graph, target, source, style)),
        _differences(inputs, place, pairs.differing[place], source, target),
        _agreement(inputs, pairs, place),
        tuple((look, inputs.class_name(label)) for label, look in style.items()),
    )


def _differences(inputs: Inputs, place: int, names: tuple[str, ...], source: int, target: int) -> Table:
    """Return decisions, true classes and differing attributes of a pair, side by side."""
    left, right = (int(row) for row in inputs.places(np.array([source, target])))
    rows: list[dict[str, Any]] = []
    for name in names:
        attribute = inputs.attributes[name]
        row: dict[str, Any] = {"attribute": name, "a": _unit(attribute.of(left)), "b": _unit(attribute.of(right))}
        row["difference"] = None
        if attribute.numbers is not None:
            numbers = attribute.numbers.astype(np.float64)
            spread = float(np.nanstd(numbers))
            change = float(numbers[right] - numbers[left])
            row["difference"] = change / spread if spread > 0 and not np.isnan(change) else None
        rows.append(row)
    rows.sort(key=lambda row: -abs(float(row["difference"] or 0)))
    head: list[dict[str, Any]] = [
        {"attribute": "Decision", "a": _predicted(inputs, source), "b": _predicted(inputs, target)}
    ]
    if inputs.truth is not None:
        a, b = (_true(inputs, node) or "not known" for node in (source, target))
        head.append({"attribute": "True class", "a": a, "b": b})
    return Table(
        f"case_{place + 1}",
        "Decisions, and attributes in which the two differ",
        "",
        (
            Column("attribute", "Attribute"),
            Column("a", f"A: {inputs.node_name(source)}", "side"),
            Column("b", f"B: {inputs.node_name(target)}", "side"),
            Column("difference", "B \N{MINUS SIGN} A (SD)", "signed"),
        ),
        (*(row | {"difference": None, "named": True} for row in head), *rows),
        limit=14,
    )


def _unit(value: Any) -> Any:
    if value is None:
        return "missing"
    return value if isinstance(value, str) else float(value)


def _text(value: Any) -> str:
    """Return a value as groups name it."""
    whole = isinstance(value, float) and value.is_integer()
    return str(int(value)) if whole else str(value)


def _shared(graph: Graph, node: int, other: int) -> NDArray[np.bool_]:
    """Return which neighbours of a node are the other one or its neighbours, too."""
    return np.isin(graph.neighbors(node), np.append(graph.neighbors(other), other))


def _drawn(inputs: Inputs, graph: Graph, node: int, other: int) -> NDArray[np.int32]:
    """Return the neighbours that are drawn: those that both have before others, one class after the other."""
    near = graph.neighbors(node)
    drawn = near[np.argsort(~_shared(graph, node, other), kind="stable")][:_NEIGHBOURS]
    return drawn[np.lexsort((drawn, inputs.finder.labels[drawn]))]


def _side(inputs: Inputs, graph: Graph | None, node: int, other: int, style: Mapping[int, int]) -> Side:
    described = node, inputs.node_name(node), _predicted(inputs, node), _true(inputs, node)
    if graph is None:
        return Side(*described, "", None)
    labels, near = inputs.finder.labels, graph.neighbors(node)
    drawn = _drawn(inputs, graph, node, other)
    edges = tuple(
        (i, int(j))
        for i, v in enumerate(drawn)
        for j in np.flatnonzero(np.isin(drawn, graph.neighbors(int(v))))
        if i < j
    )
    both = set(near[_shared(graph, node, other)].tolist())
    neighbourhood = Neighbourhood(
        inputs.node_name(node),
        style[int(labels[node])],
        tuple(Neighbour(inputs.node_name(int(v)), style[int(labels[v])], int(v) in both) for v in drawn),
        edges,
    )
    same = int((labels[near] == labels[node]).sum())
    surroundings = (
        f"{plural(len(near), 'neighbour')}, {same:,} with the same decision" if len(near) else "no neighbours"
    )
    return Side(*described, surroundings, neighbourhood)
