"""The closest pairs of nodes that the model treats differently, and the files of the first of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.audit.reporting.document import Case, Column, Section, Side, Table
from cfe_faiss.audit.reporting.drawings import STYLES, Neighbour, Neighbourhood
from cfe_faiss.audit.reporting.formats import listed, plural, shown
from cfe_faiss.audit.reporting.inputs import Inputs
from cfe_faiss.checks import UNKNOWN
from cfe_faiss.digits import format_similarity
from cfe_faiss.graph import Graph, as_graph
from cfe_faiss.pairs import evidence_pairs

_SHOWN = 25
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


def pairs_section(inputs: Inputs, pairs: Pairs) -> Section:
    """Return the table of the closest pairs."""
    unlike = len(pairs)
    title = "Closest pairs that are treated differently"
    purpose = "Which pairs are most alike in their attributes and connections, and yet get different predictions?"
    if not unlike:
        reason = "No two of the audited nodes with different predictions meet the conditions."
        return Section("pairs", title, purpose, missing=reason)
    known = inputs.truth is not None
    columns = [
        Column("place", "Place", "count"),
        Column("node_a", "Node A"),
        Column("node_b", "Node B"),
        Column("similarity", "Similarity", "similarity"),
        Column("predicted_a", "Predicted for A"),
        Column("predicted_b", "Predicted for B"),
        *([Column("true_a", "True class of A"), Column("true_b", "True class of B")] if known else []),
        Column("attributes_differing", "Attributes that differ", "count"),
        Column("differing", "Which", "long"),
    ]
    rows = tuple(_row(inputs, pairs, place) for place in range(unlike))
    table = Table(
        "closest_pairs",
        f"The closest {plural(unlike, 'pair')} of differently predicted nodes",
        "Each line is one pair: the smaller the place, the more alike the two nodes are; similarity is at most 1.",
        tuple(columns),
        rows,
        limit=_SHOWN,
        notes=tuple(_conditions(inputs, pairs.missing)),
    )
    equal = sum(not names for names in pairs.differing)
    findings = [
        f"Of {pairs.total:,} pairs of audited nodes with different predictions, the {unlike:,} closest are listed; "
        f"their similarity runs from {_similarity_text(pairs.similarity[0])} down to "
        f"{_similarity_text(pairs.similarity[-1])}.",
        f"In {equal:,} of these {unlike:,} pairs the two nodes agree in all {len(inputs.attributes):,} attributes: "
        f"there only their {'vectors' if inputs.finder.graph is None else 'connections'} differ.",
    ]
    only = _only_sensitive(inputs, pairs)
    if inputs.sensitive:
        findings.append(
            f"In {only:,} of these {unlike:,} pairs the two differ in nothing but "
            f"{listed(map(shown, inputs.sensitive)).replace(' and ', ' or ')}."
        )
    return Section(
        "pairs",
        title,
        purpose,
        findings=tuple(findings),
        tables=(table,),
        limits=(
            "Selection: these pairs were chosen because they are close and predicted differently. They show where the "
            "model's border runs, not how often it treats like nodes differently.",
            _similarity_limit(inputs),
        ),
    )


def cases_section(inputs: Inputs, pairs: Pairs) -> Section:
    """Return the files of the closest pairs, each with a picture of both neighbourhoods."""
    title = "Case files"
    purpose = "What do the closest pairs look like, one by one?"
    count = min(inputs.settings.cases, len(pairs))
    if not count:
        return Section("cases", title, purpose, missing="There are no pairs, see the section before.")
    graph = _graph(inputs)
    ranks = _ranks(inputs, pairs, count)
    return Section(
        "cases",
        title,
        purpose,
        findings=(
            f"The files of the {count} closest pairs follow. Each shows the two nodes with up to {_NEIGHBOURS} of "
            "their neighbours, and the attributes in which they differ in their own units.",
        ),
        cases=tuple(_case(inputs, pairs, graph, place, ranks[place]) for place in range(count)),
        limits=(
            "A case is an example, not a rate: how common such pairs are stands in the sections before and after.",
        ),
    )


def _similarity_limit(inputs: Inputs) -> str:
    of_graph = "attribute vectors that were averaged with those of neighbours. An attribute outside these vectors"
    without = "the two vectors. An attribute outside the vectors"
    return f"Similarity is the cosine of {without if inputs.finder.graph is None else of_graph} plays no part in it."


def _graph(inputs: Inputs) -> Graph:
    """Return the graph that pictures show, edges counting in both directions; vectors may come without any."""
    if inputs.finder.graph is not None:
        return inputs.finder.graph.undirected()
    return as_graph(np.empty((2, 0), np.int64), len(inputs.finder.labels))


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
    }


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
        sentences.append(
            f"{plural(count, 'node')} without a known {shown(name)} can be in no pair under these conditions."
        )
    return sentences


def _similarity_text(similarity: np.float64) -> str:
    return format_similarity(float(similarity))


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


def _case(inputs: Inputs, pairs: Pairs, graph: Graph, place: int, rank: str) -> Case:
    source, target = int(pairs.source[place]), int(pairs.target[place])
    drawn = _drawn(inputs, graph, source, target), _drawn(inputs, graph, target, source)
    classes = np.unique(inputs.finder.labels[np.concatenate([[source, target], *drawn])]).tolist()
    # The same class looks the same in every case, unless there are more classes than looks.
    style = {label: label if len(inputs.class_names) <= STYLES else i for i, label in enumerate(classes)}
    sides = (
        _side(inputs, graph, source, target, drawn[0], style),
        _side(inputs, graph, target, source, drawn[1], style),
    )
    agreeing, count = len(inputs.attributes) - len(pairs.differing[place]), len(inputs.attributes)
    return Case(
        place + 1,
        _similarity_text(pairs.similarity[place]),
        rank,
        True,
        "yes: all pairs were compared, or ruled out by a bound, so that no closer one was missed",
        sides,
        _differences(inputs, place, pairs.differing[place], source, target),
        f"The two nodes agree in {'all' if agreeing == count else f'{agreeing:,} of'} {plural(count, 'attribute')}.",
        tuple((style[label], inputs.class_name(label)) for label in classes),
    )


def _differences(inputs: Inputs, place: int, names: tuple[str, ...], source: int, target: int) -> Table:
    left, right = inputs.places(np.array([source, target]))
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
    return Table(
        f"case_{place + 1}",
        "Attributes in which the two nodes differ",
        "The last column is B minus A in standard deviations of the attribute over the audited nodes; it stays empty "
        "for texts.",
        (
            Column("attribute", "Attribute"),
            Column("a", f"A: node {inputs.node_name(source)}", "number"),
            Column("b", f"B: node {inputs.node_name(target)}", "number"),
            Column("difference", "Difference (SD)", "signed"),
        ),
        tuple(rows),
        limit=20,
    )


def _unit(value: Any) -> Any:
    if value is None:
        return "missing"
    return value if isinstance(value, str) else float(value)


def _shared(graph: Graph, node: int, other: int) -> NDArray[np.bool_]:
    """Return which neighbours of a node are the other one or its neighbours, too."""
    return np.isin(graph.neighbors(node), np.append(graph.neighbors(other), other))


def _drawn(inputs: Inputs, graph: Graph, node: int, other: int) -> NDArray[np.int32]:
    """Return the neighbours that are drawn: those that both have before others, one class after the other."""
    near = graph.neighbors(node)
    drawn = near[np.argsort(~_shared(graph, node, other), kind="stable")][:_NEIGHBOURS]
    return drawn[np.lexsort((drawn, inputs.finder.labels[drawn]))]


def _side(
    inputs: Inputs, graph: Graph, node: int, other: int, drawn: NDArray[np.int32], style: Mapping[int, int]
) -> Side:
    labels, near = inputs.finder.labels, graph.neighbors(node)
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
        f"{plural(len(near), 'neighbour')}, {same:,} of them predicted alike" if len(near) else "no neighbours"
    )
    if len(near) > len(drawn):
        surroundings += f" ({len(drawn)} are drawn)"
    return Side(node, _predicted(inputs, node), _true(inputs, node), surroundings, neighbourhood)
