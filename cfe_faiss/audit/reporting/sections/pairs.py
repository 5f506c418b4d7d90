"""The closest pairs with different decisions, and the files of the first of them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.attributes.table import Attribute
from cfe_faiss.audit.reporting.document import STYLES, Case, Neighbour, Neighbourhood, Section, Side, Table
from cfe_faiss.audit.reporting.formats import group_name, join_words, list_first, number, show
from cfe_faiss.audit.reporting.inputs import Inputs
from cfe_faiss.audit.reporting.sections.direct_effects import find_effects
from cfe_faiss.base.checks import UNKNOWN
from cfe_faiss.finder import PairEvidence
from cfe_faiss.graph import Graph
from cfe_faiss.graph.surroundings import Surroundings, surroundings
from cfe_faiss.pairs import evidence_pairs

_NAMES = 6
"""Names of attributes in one cell, at most."""
_NEIGHBOURS = 12
"""Neighbours of a node that are drawn, at most."""
_SIDE = "node", "predicted", "true"
"""What a row of the table of pairs says about each side."""
_COUNTED = 1_000_000
"""Pairs that are counted for a rank, at most."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """The pairs of a report.

    Attributes
    ----------
    found
        The nodes, (p,), most similar first, and their similarities in float32, by which the search ranks them.
    similarity
        In float64, (p,).
    differing
        For each pair the names of the attributes in which the two differ; two missing values are equal.
    total
        Pairs of audited nodes with different predicted classes, under any constraints.
    """

    found: PairEvidence
    similarity: NDArray[np.float64]
    differing: tuple[tuple[str, ...], ...]
    total: int

    def __len__(self) -> int:
        return len(self.similarity)

    def nodes(self, place: int) -> tuple[int, int]:
        """Return the two nodes of a pair."""
        return int(self.found.source[place]), int(self.found.target[place])


def find_pairs(inputs: Inputs) -> Pairs:
    """Return the closest pairs under the user's constraints; exact."""
    found = inputs.finder.top_pairs(inputs.settings.pairs, where=inputs.settings.where)
    left, right = inputs.positions(found.source), inputs.positions(found.target)
    codes = {name: inputs.attributes[name].codes for name in inputs.attributes}
    table = {name: column[left] != column[right] for name, column in codes.items()}
    differing = tuple(tuple(name for name in table if table[name][pair]) for pair in range(len(found)))
    sizes = np.bincount(inputs.labels[inputs.labels != UNKNOWN]).astype(np.int64)
    total = int(sizes.sum() ** 2 - (sizes**2).sum()) // 2
    return Pairs(found, found.similarity64(), differing, total)


def strongest_section(inputs: Inputs) -> Section:
    """Return the closest pair, side by side: a pair that shows a finding if there is one."""
    pairs = inputs.once(find_pairs)
    if not len(pairs):
        return inputs.section("strongest_case", missing="no_pairs")
    place, why = _strongest(inputs, pairs)
    values = _row(inputs, pairs, place) | {"agreement": _agreement(inputs, pairs, place), "why": why}
    table = _differences(inputs, pairs, place, "strongest_case")
    return inputs.section("strongest_case", values, tables=(table,))


def _strongest(inputs: Inputs, pairs: Pairs) -> tuple[int, str]:
    """Return the first pair whose unfavourable side alone carries a value named at a disadvantage, and the reason."""
    effects = inputs.once(find_effects)
    worse = [] if effects is None else effects.table[effects.table["verdict"] == "disadvantaged"].to_dict("records")
    named = {(line["attribute"], str(line["value"])) for line in worse}
    for place in range(len(pairs) if named else 0):
        refused, other = pairs.nodes(place)
        if inputs.finder.labels[refused] not in inputs.unfavourable:
            refused, other = other, refused
        for attribute in (inputs.attributes[name] for name in inputs.sensitive):
            mine, theirs = (_group_value(attribute, int(row)) for row in inputs.positions(np.array([refused, other])))
            if mine != theirs and (attribute.name, mine) in named:
                groups = {"mine": group_name(attribute.name, mine), "theirs": group_name(attribute.name, theirs)}
                return place, inputs.say("strongest_case.finding", groups)
    return 0, inputs.say("strongest_case.closest")


def _group_value(attribute: Attribute, row: int) -> str:
    """Return a value as groups name it."""
    value = attribute.of(row)
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def pairs_section(inputs: Inputs) -> Section:
    """Return the table of the closest pairs."""
    pairs, conditions = inputs.once(find_pairs), inputs.settings.where
    if not len(pairs):
        return inputs.section("pairs", missing="no_pairs")
    sensitive = set(inputs.sensitive)
    missing = (inputs.say("pairs.missing", name=name, count=count) for name, count in pairs.found.missing.items())
    values = {
        "count": len(pairs),
        "total": pairs.total,
        "most": float(pairs.similarity[0]),
        "least": float(pairs.similarity[-1]),
        "attributes": len(inputs.attributes),
        "equal": sum(not names for names in pairs.differing),
        "only_sensitive": sum(bool(names) and sensitive.issuperset(names) for names in pairs.differing),
        "names": join_words(map(show, inputs.sensitive)).replace(" and ", " or ") if sensitive else "",
        "conditions": "; ".join(show(text, 200) for text in conditions.describe()) if conditions else "",
        "missing": "".join(f" {sentence}" for sentence in missing),
    }
    values["summary"] = inputs.say("pairs.summary", values)
    rows = (_row(inputs, pairs, place) for place in range(len(pairs)))
    return inputs.section("pairs", values, tables={"closest_pairs": rows})


def _row(inputs: Inputs, pairs: Pairs, place: int) -> dict[str, Any]:
    row: dict[str, Any] = {"place": place + 1}
    for side, node in zip("ab", pairs.nodes(place), strict=True):
        label, position = int(inputs.finder.labels[node]), inputs.positions(np.array([node]))[0]
        true = UNKNOWN if inputs.truth is None else int(inputs.truth[position])
        row[f"node_{side}"] = inputs.node_name(node)
        row[f"predicted_{side}"] = inputs.class_names[label]
        row[f"true_{side}"] = None if true == UNKNOWN else inputs.class_names[true]
    names = pairs.differing[place]
    return row | {
        "similarity": float(pairs.similarity[place]),
        "attributes_differing": len(names),
        "differing": ", ".join(names) or "none",
        "which": list_first(map(show, names), _NAMES) or "none",
    }


def cases_section(inputs: Inputs) -> Section:
    """Return the files of the closest pairs, with a picture of both neighbourhoods if there is a graph."""
    pairs = inputs.once(find_pairs)
    count = min(inputs.settings.cases, len(pairs))
    if not count:
        return inputs.section("cases", missing="no_pairs")
    graph = None if inputs.finder.graph is None else inputs.finder.graph.undirected()
    cases = tuple(_case(inputs, pairs, graph, place, rank) for place, rank in enumerate(_ranks(inputs, pairs, count)))
    return inputs.section("cases", {"count": count, "drawn": _NEIGHBOURS}, cases=cases)


def _ranks(inputs: Inputs, pairs: Pairs, count: int) -> list[str]:
    """Return in words the rank of each of the first pairs among all pairs; pairs of equal similarity share a rank."""
    first = pairs.found.similarity[:count]
    above, equal, counted = np.zeros(count, np.int64), np.zeros(count, np.int64), 0
    for some in evidence_pairs(inputs.finder.index, float(first[-1])):
        above += (some.similarity[:, None] > first).sum(axis=0)
        equal += (some.similarity[:, None] == first).sum(axis=0)
        counted += len(some)
        if counted > _COUNTED:
            return [inputs.say("cases.not_counted", counted=_COUNTED, total=pairs.total)] * count
    return [
        inputs.say("cases.tied" if ties > 1 else "cases.rank", rank=rank + 1, total=pairs.total, ties=ties - 1)
        for rank, ties in zip(above.tolist(), equal.tolist(), strict=True)
    ]


def _case(inputs: Inputs, pairs: Pairs, graph: Graph | None, place: int, rank: str) -> Case:
    labels, nodes = inputs.finder.labels, pairs.nodes(place)
    a, b = nodes
    near: list[Surroundings] = []
    if graph is not None:
        near = [surroundings(graph, *pair, labels, _NEIGHBOURS) for pair in ((a, b), (b, a))]
    classes = np.unique(labels[np.concatenate([[a, b], *(one.drawn for one in near)])]).tolist() if near else []
    # The same class looks the same in every case, unless there are more classes than looks.
    styles = {label: label if len(inputs.class_names) <= STYLES else i for i, label in enumerate(classes)}
    row = _row(inputs, pairs, place)
    sides = [Side(node, *(row[f"{key}_{side}"] for key in _SIDE)) for node, side in zip(nodes, "ab", strict=True)]
    for i, one in enumerate(near):
        counts = inputs.say("cases.neighbours", degree=one.degree, same=one.same) if one.degree else "no neighbours"
        sides[i] = replace(sides[i], surroundings=counts, neighbourhood=_drawing(inputs, nodes[i], one, styles))
    return Case(
        place + 1,
        number(row["similarity"], "similarity"),
        rank,
        (sides[0], sides[1]),
        _differences(inputs, pairs, place, f"case_{place + 1}"),
        _agreement(inputs, pairs, place),
        tuple((look, inputs.class_names[label]) for label, look in styles.items()),
    )


def _drawing(inputs: Inputs, node: int, near: Surroundings, styles: Mapping[int, int]) -> Neighbourhood:
    labels = inputs.finder.labels
    drawn = zip(near.drawn.tolist(), near.shared.tolist(), strict=True)
    neighbours = tuple(Neighbour(inputs.node_name(v), styles[int(labels[v])], shared) for v, shared in drawn)
    return Neighbourhood(styles[int(labels[node])], neighbours, near.edges)


def _agreement(inputs: Inputs, pairs: Pairs, place: int) -> str:
    count = len(inputs.attributes)
    agreeing = count - len(pairs.differing[place])
    words = "all" if agreeing == count else f"{agreeing:,} of"
    return inputs.say("pairs.agreement", agreeing=words, attributes=count)


def _differences(inputs: Inputs, pairs: Pairs, place: int, name: str) -> Table:
    """Return decisions, true classes and differing attributes of a pair, side by side."""
    rows = [_difference(inputs, inputs.attributes[name], pairs.nodes(place)) for name in pairs.differing[place]]
    rows.sort(key=lambda row: -abs(row["difference"] or 0))
    names = _row(inputs, pairs, place)
    titles = {"Decision": "predicted", "True class": "true"} if inputs.has("truth") else {"Decision": "predicted"}
    head = [
        {"attribute": title, "a": names[f"{key}_a"] or "not known", "b": names[f"{key}_b"] or "not known"}
        | {"difference": None, "named": True}
        for title, key in titles.items()
    ]
    return inputs.table("case", [*head, *rows], names | {"id": name})


def _difference(inputs: Inputs, attribute: Attribute, nodes: tuple[int, int]) -> dict[str, Any]:
    """Return the two values of an attribute, and their difference in standard deviations of a number."""
    rows = inputs.positions(np.array(nodes))
    a, b = (attribute.of(int(row)) for row in rows)
    difference = None
    if attribute.numbers is not None and None not in (a, b):
        numbers = attribute.numbers.astype(np.float64)
        spread, change = float(np.nanstd(numbers)), float(numbers[rows[1]] - numbers[rows[0]])
        difference = change / spread if spread > 0 else None
    cells = ["missing" if value is None else value if isinstance(value, str) else float(value) for value in (a, b)]
    return {"attribute": attribute.name, "a": cells[0], "b": cells[1], "difference": difference}
