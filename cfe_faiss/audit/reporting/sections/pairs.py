"""The closest pairs with different decisions: their table, files of the first, and their balance in each attribute."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.attributes.table import Attribute
from cfe_faiss.audit.dominated import count_pairs, dominated, grades_of, learned_directions
from cfe_faiss.audit.reporting.document import (
    STYLES,
    Case,
    Column,
    Neighbour,
    Neighbourhood,
    Numbers,
    Plot,
    Side,
    Table,
)
from cfe_faiss.audit.reporting.formats import group_name, list_first, number, plural, show
from cfe_faiss.audit.reporting.inputs import Inputs
from cfe_faiss.audit.reporting.sections.direct_effects import find_effects
from cfe_faiss.audit.tables import Floats
from cfe_faiss.base.checks import UNKNOWN
from cfe_faiss.finder import PairEvidence
from cfe_faiss.graph.csr import Graph
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
GUIDE = 0.1
"""Austin's limit of a negligible standardised difference."""
_VALUES = 12
"""Values of a text that get a line, at most."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """The pairs of a report.

    Attributes
    ----------
    found
        The nodes, (p,), most similar first, and D, by which the search ranks them.
    measure
        Similarity or distance, (p,).
    differing
        For each pair the names of the attributes in which the two differ; two missing values are equal.
    total
        Pairs of audited nodes with different predicted classes, under any constraints.
    """

    found: PairEvidence
    measure: NDArray[np.float64]
    differing: tuple[tuple[str, ...], ...]
    total: int

    def __len__(self) -> int:
        return len(self.measure)

    def nodes(self, place: int) -> tuple[int, int]:
        """Return the two nodes of a pair."""
        return int(self.found.source[place]), int(self.found.target[place])


def find_pairs(inputs: Inputs) -> Pairs:
    """Return the closest pairs under the user's constraints; exact."""
    return _as_pairs(inputs, inputs.finder.top_pairs(inputs.settings.pairs, where=inputs.settings.where))


def _as_pairs(inputs: Inputs, found: PairEvidence) -> Pairs:
    left, right = inputs.positions(found.source), inputs.positions(found.target)
    codes = {name: inputs.attributes[name].codes for name in inputs.attributes}
    table = {name: column[left] != column[right] for name, column in codes.items()}
    differing = tuple(tuple(name for name in table if table[name][pair]) for pair in range(len(found)))
    sizes = np.bincount(inputs.labels[inputs.labels != UNKNOWN]).astype(np.int64)
    total = int(sizes.sum() ** 2 - (sizes**2).sum()) // 2
    return Pairs(found, found.measure64(), differing, total)


def strongest_section(inputs: Inputs) -> Numbers:
    """Return the closest pair, side by side: a pair that shows a finding if there is one."""
    pairs = inputs.once(find_pairs)
    if not len(pairs):
        return Numbers(missing="no_pairs")
    known = _places_without_lack(inputs, pairs)
    if not len(known):
        return Numbers(missing="lacking")
    skipped = int(known[0])
    better = inputs.once(find_directions)
    is_better = False
    if better:
        dominated_pairs, dominated_places = _find_dominated(inputs, pairs, known, better)
        is_better = len(dominated_places) > 0
        if is_better:
            pairs = dominated_pairs
            known = dominated_places
    place, mine, theirs = _strongest(inputs, pairs, known)
    values = _row(inputs, pairs, place) | {
        "skipped": skipped,
        "is_better": is_better,
        "better": [f"{show(name)} ({end if isinstance(end, str) else 'as listed'})" for name, end in better.items()],
        "is_estimated": inputs.settings.better is None,
        **_count_dominated(inputs, better),
        "agreement": _agreement(inputs, pairs, place),
        "mine": mine,
        "theirs": theirs,
    }
    return Numbers(values, tables=[_differences(inputs, pairs, place, "strongest_case")])


def _places_without_lack(inputs: Inputs, pairs: Pairs) -> NDArray[np.int64]:
    """Return the places of the pairs in which not both lack an attribute, unless everybody lacks it."""
    lack = np.zeros(len(pairs), bool)
    for name, both_lack in pairs.found.both_lack.items():
        if not inputs.attributes[name].missing.all():
            lack |= both_lack
    return np.flatnonzero(~lack)


def _find_dominated(
    inputs: Inputs, pairs: Pairs, places: NDArray[np.int64], better: Mapping[str, Any]
) -> tuple[Pairs, NDArray[np.int64]]:
    """Return pairs, and the places among them whose refused side is at least as good in each of these columns.

    If none of the closest pairs is so, the nearest such pairs are searched, unless conditions are set on the pairs.
    """
    dominated_places = places[_are_dominated(inputs, pairs, better)[places]]
    if len(dominated_places) or inputs.settings.where is not None:
        return pairs, dominated_places
    unfavourable = [inputs.class_names[label] for label in inputs.unfavourable]
    result = dominated(inputs.finder, unfavourable=unfavourable, better=better, k=inputs.settings.pairs)
    pairs = _as_pairs(inputs, result.pairs)
    return pairs, _places_without_lack(inputs, pairs)


def find_directions(inputs: Inputs) -> Mapping[str, Any]:
    """Return the better end of each column whose direction is known: named by the user, or learned from decisions."""
    if not inputs.unfavourable:
        return {}
    if inputs.settings.better is not None:
        return inputs.settings.better
    refused = np.isin(inputs.labels, inputs.unfavourable)
    return learned_directions(inputs.finder, inputs.nodes, refused)


def _count_dominated(inputs: Inputs, better: Mapping[str, Any]) -> dict[str, int]:
    """Return how many pairs there are whose refused side is at least as good, and of how many refused people."""
    if not better:
        return {}
    grades = grades_of(inputs.attributes, better)
    is_known = ~np.isnan(grades).any(axis=0)
    is_refused = np.isin(inputs.labels, inputs.unfavourable)
    count, refused = count_pairs(grades[:, is_known & is_refused], grades[:, is_known & ~is_refused])
    return {"dominated": count, "refused": refused, "judged": int((is_known & is_refused).sum())}


def _are_dominated(inputs: Inputs, pairs: Pairs, better: Mapping[str, Any]) -> NDArray[np.bool_]:
    """Return the pairs whose refused side is at least as good in each of these columns, (p,)."""
    grades = grades_of(inputs.attributes, better)
    source = pairs.found.source
    target = pairs.found.target
    is_refused = np.isin(inputs.finder.labels[source], inputs.unfavourable)
    is_granted = ~np.isin(inputs.finder.labels[target], inputs.unfavourable)
    refused = inputs.positions(np.where(is_refused, source, target))
    granted = inputs.positions(np.where(is_refused, target, source))
    is_between = is_refused == is_granted  # one side refused, the other granted
    is_good = (grades[:, refused] >= grades[:, granted]).all(axis=0)
    return np.asarray(is_between & is_good)


def _strongest(inputs: Inputs, pairs: Pairs, places: NDArray[np.int64]) -> tuple[int, str, str]:
    """Return the place, among some, of the pair that shows a finding, and the groups of its sides.

    It is the first whose unfavourable side alone carries a value named at a disadvantage. Without
    one it is the first pair, and the groups are empty.
    """
    effects = inputs.once(find_effects)
    worse = [] if effects is None else effects.table[effects.table["verdict"] == "disadvantaged"].to_dict("records")
    named = {(line["attribute"], str(line["value"])) for line in worse}
    for place in places.tolist() if named else ():
        refused, other = pairs.nodes(place)
        if inputs.finder.labels[refused] not in inputs.unfavourable:
            refused, other = other, refused
        for attribute in inputs.groups.values():
            mine, theirs = (attribute.of(int(row)) for row in inputs.positions(np.array([refused, other])))
            if mine != theirs is not None and (attribute.name, mine) in named:
                return place, group_name(attribute.name, mine), group_name(attribute.name, theirs)
    return int(places[0]), "", ""


def pairs_section(inputs: Inputs) -> Numbers:
    """Return the table of the closest pairs."""
    pairs, conditions = inputs.once(find_pairs), inputs.settings.where
    if not len(pairs):
        return Numbers(missing="no_pairs")
    values = {
        "count": len(pairs),
        "total": pairs.total,
        "most": float(pairs.measure[0]),
        "least": float(pairs.measure[-1]),
        "both_lack": {name: int(lacks.sum()) for name, lacks in pairs.found.both_lack.items()},
        "attributes": len(inputs.attributes),
        "equal": sum(not names for names in pairs.differing),
        "only_sensitive": sum(bool(names) and set(inputs.sensitive).issuperset(names) for names in pairs.differing),
        "conditions": [show(text, 200) for text in conditions.describe()] if conditions else [],
        "missing": pairs.found.missing,
    }
    measure = pairs.found.measure
    true_classes = (Column("true_a", "True class of A"), Column("true_b", "True class of B"))
    columns = (
        Column("place", "Place", "count"),
        Column("node_a", "A"),
        Column("node_b", "B"),
        Column(measure, measure.capitalize(), measure),
        *(Column("predicted_a", "Decision for A"), Column("predicted_b", "Decision for B")),
        *(true_classes if inputs.has("truth") else ()),
        Column("attributes_differing", "Attributes that differ", "count"),
        Column("which", "Which", "long"),
    )
    rows = [_row(inputs, pairs, place) for place in range(len(pairs))]
    return Numbers(values, tables=[Table("closest_pairs", columns, rows, limit=15)])


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
        pairs.found.measure: float(pairs.measure[place]),
        "attributes_differing": len(names),
        "differing": ", ".join(names) or "none",
        "which": list_first(map(show, names), _NAMES) or "none",
    }


def cases_section(inputs: Inputs) -> Numbers:
    """Return the files of the closest pairs, with a picture of both neighbourhoods if there is a graph."""
    pairs = inputs.once(find_pairs)
    count = min(inputs.settings.cases, len(pairs))
    if not count:
        return Numbers(missing="no_pairs")
    graph = None if inputs.finder.graph is None else inputs.finder.graph.undirected()
    cases = [_case(inputs, pairs, graph, place, rank) for place, rank in enumerate(_ranks(inputs, pairs, count))]
    return Numbers({"count": count, "drawn": _NEIGHBOURS}, cases=cases)


def _ranks(inputs: Inputs, pairs: Pairs, count: int) -> list[str]:
    """Return in words the rank of each of the first pairs among all pairs; pairs that are as near share a rank."""
    first = pairs.found.D[:count]
    last = float(first[-1])
    is_distance = pairs.found.metric == "l2"
    above, equal, counted = np.zeros(count, np.int64), np.zeros(count, np.int64), 0
    for some in evidence_pairs(inputs.finder.index, last):
        D = some.similarity[:, None]
        above += (first > D if is_distance else first < D).sum(axis=0)
        equal += (first == D).sum(axis=0)
        counted += len(some)
        if counted > _COUNTED:
            text = f"not counted: more than {_COUNTED:,} of {pairs.total:,} pairs"
            return [f"{text} are as close as the last of these"] * count
    return [_rank(rank, ties, pairs.total) for rank, ties in zip(above.tolist(), equal.tolist(), strict=True)]


def _rank(above: int, ties: int, total: int) -> str:
    rank = f"{above + 1:,} of {total:,} pairs"
    if ties <= 1:
        return rank
    return f"{rank}, together with {plural(ties - 1, 'other')} that the search cannot tell from it"


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
        counts = f"{plural(one.degree, 'neighbour')}, {one.same:,} with the same decision"
        counts = counts if one.degree else "no neighbours"
        sides[i] = replace(sides[i], surroundings=counts, neighbourhood=_drawing(inputs, nodes[i], one, styles))
    return Case(
        place + 1,
        number(row["similarity"], "similarity") if "similarity" in row else None,
        number(row["distance"], "distance") if "distance" in row else None,
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
    return f"They agree in {words} {plural(count, 'attribute')}."


def _differences(inputs: Inputs, pairs: Pairs, place: int, name: str) -> Table:
    """Return decisions, true classes and differing attributes of a pair, side by side."""
    rows = [_difference(inputs, inputs.attributes[name], pairs.nodes(place)) for name in pairs.differing[place]]
    rows.sort(key=lambda row: -abs(row["difference"] or 0))
    names = _row(inputs, pairs, place)
    titles = {"Decision": "predicted", "True class": "true"} if inputs.has("truth") else {"Decision": "predicted"}
    head = [
        {"attribute": title, "a": names[f"{key}_a"] or "unknown", "b": names[f"{key}_b"] or "unknown"}
        | {"difference": None, "named": True}
        for title, key in titles.items()
    ]
    columns = (
        Column("attribute", "Attribute"),
        Column("a", f"A: {show(names['node_a'])}", "side"),
        Column("b", f"B: {show(names['node_b'])}", "side"),
        Column("difference", "B − A (SD)", "signed"),
    )
    return Table(name, columns, [*head, *rows], limit=14)


def _difference(inputs: Inputs, attribute: Attribute, nodes: tuple[int, int]) -> dict[str, Any]:
    """Return the two values of an attribute, and their difference in standard deviations of a number."""
    rows = inputs.positions(np.array(nodes))
    a, b = (attribute.of(int(row)) for row in rows)
    difference = None
    if attribute.numbers is not None and None not in (a, b):
        numbers = attribute.numbers.astype(np.float64)
        spread, change = float(np.nanstd(numbers)), float(numbers[rows[1]] - numbers[rows[0]])
        difference = change / spread if spread > 0 else None
    cells = ["unknown" if value is None else value if isinstance(value, str) else float(value) for value in (a, b)]
    return {"attribute": attribute.name, "a": cells[0], "b": cells[1], "difference": difference}


# --- balance ----------------------------------------------------------------------------------------------------------


def balance_section(inputs: Inputs) -> Numbers:
    """Return standardised mean differences between the two sides of the pairs, and between the classes.

    Austin, "Balance diagnostics for comparing the distribution of baseline covariates between treatment groups in
    propensity-score matched samples", Statistics in Medicine 28 (2009): d is the difference of the means over
    sqrt((s_A^2 + s_B^2) / 2). As in MatchIt, both columns use the spread of all nodes, so that they compare.
    """
    pairs, chosen = inputs.once(find_pairs), _classes(inputs)
    if not len(pairs):
        return Numbers(missing="no_pairs")
    if chosen is None:
        return Numbers(missing="no_class")
    first, name_a, name_b = chosen
    of_a = np.isin(inputs.labels, first)
    left, right = inputs.positions(pairs.found.source), inputs.positions(pairs.found.target)
    used = of_a[left] != of_a[right]
    sides = np.where(of_a[left], [left, right], [right, left])[:, used]
    values: dict[str, Any] = {"a": name_a, "b": name_b, "guide": GUIDE}
    values |= {"used": int(used.sum()), "left_out": int((~used).sum())}
    if not used.any():
        return Numbers(values, missing="no_side")
    lines = (line for name in inputs.attributes for line in _lines(inputs.attributes[name]))
    rows = [_balance_row(*line, of_a, sides) for line in lines]
    rows.sort(key=lambda row: -_apart(row, "pairs"))
    over, before = (sum(_apart(row, side) > GUIDE for row in rows) for side in ("pairs", "all"))
    values |= {"over": over, "before": before, "count": len(rows)}
    drawn = [row[key] for row in rows for key in ("distance", "distance_all")]
    plot = Plot.around([0.0, *drawn], (GUIDE,), before="distance_all")
    columns = (
        Column("name", "Attribute"),
        Column("mean_a_all", "A, all", "number"),
        Column("mean_b_all", "B, all", "number"),
        Column("mean_a_pairs", "A, pairs", "number"),
        Column("mean_b_pairs", "B, pairs", "number"),
        Column("smd_all", "SD, all", "signed"),
        Column("smd_pairs", "SD, pairs", "signed", n="pairs"),
        Column("distance", "Distance", "score", n="pairs", plot=plot),
    )
    return Numbers(values, tables=[Table("balance", columns, rows)])


def _classes(inputs: Inputs) -> tuple[Sequence[int], str, str] | None:
    """Return the classes of side A, and the names of both sides; None with more than two classes and no favourable."""
    present = np.unique(inputs.labels[inputs.labels >= 0]).tolist()
    if len(present) == 2:
        favourable = [label for label in present if label in inputs.favourable]
        first = favourable[0] if len(favourable) == 1 else present[1]
        other = present[0] if first == present[1] else present[1]
        return [first], inputs.class_names[first], inputs.class_names[other]
    if not inputs.favourable:
        return None
    return inputs.favourable, " or ".join(inputs.favourable_names), "any other class"


def _lines(attribute: Attribute) -> Iterator[tuple[str, str, Floats]]:
    """Yield a number, or each common value of a text as 0 and 1: attribute, value, and numbers, NaN if missing."""
    if attribute.numbers is not None:
        yield attribute.name, "", attribute.numbers.astype(np.float64)
    else:
        sizes = np.bincount(attribute.codes[~attribute.missing], minlength=len(attribute.values))
        common = [int(code) for code in np.argsort(-sizes, kind="stable")[:_VALUES] if sizes[code]]
        for code in common:
            yield attribute.name, str(attribute.values[code]), (attribute.codes == code).astype(np.float64)
        others = ~np.isin(attribute.codes, common) & ~attribute.missing
        if others.any():
            name = f"{np.count_nonzero(sizes) - len(common):,} other values"
            yield attribute.name, name, others.astype(np.float64)
    if attribute.missing.any():
        yield attribute.name, "missing", attribute.missing.astype(np.float64)


def _balance_row(
    attribute: str, value: str, numbers: Floats, of_a: NDArray[np.bool_], sides: NDArray[np.int64]
) -> dict[str, Any]:
    """Return the means and differences of some numbers; ``sides`` has the rows of A and B of each pair, (2, p)."""
    all_a, all_b = (side[~np.isnan(side)] for side in (numbers[of_a], numbers[~of_a]))
    spread = float(np.sqrt((_variance(all_a) + _variance(all_b)) / 2))
    both = ~np.isnan(numbers[sides]).any(axis=0)
    pair_a, pair_b = numbers[sides][:, both]
    means = {"a_all": _mean(all_a), "b_all": _mean(all_b), "a_pairs": _mean(pair_a), "b_pairs": _mean(pair_b)}
    smd_all = _standardise(means["a_all"], means["b_all"], spread)
    smd_pairs = _standardise(means["a_pairs"], means["b_pairs"], spread)
    return {
        "attribute": attribute,
        "value": value,
        "name": group_name(attribute, value) if value else show(attribute),
        **{f"mean_{side}": mean for side, mean in means.items()},
        "smd_all": smd_all,
        "smd_pairs": smd_pairs,
        "distance": None if smd_pairs is None else abs(smd_pairs),
        "distance_all": None if smd_all is None else abs(smd_all),
        "differing": _mean((pair_a != pair_b).astype(np.float64)),
        "pairs": int(both.sum()),
    }


def _apart(row: dict[str, Any], side: str) -> float:
    """Return the absolute standardised difference; infinite for different means without a spread, 0 without means."""
    a, b, difference = row[f"mean_a_{side}"], row[f"mean_b_{side}"], row[f"smd_{side}"]
    return 0.0 if a is None or b is None else np.inf if difference is None else abs(difference)


def _mean(numbers: Floats) -> float | None:
    return float(numbers.mean()) if len(numbers) else None


def _variance(numbers: Floats) -> float:
    """Return p (1 - p) for zeros and ones, as Austin does, and the sample variance for other numbers."""
    if len(numbers) < 2:
        return 0.0
    return float(numbers.var(ddof=0 if ((numbers == 0) | (numbers == 1)).all() else 1))


def _standardise(a: float | None, b: float | None, spread: float) -> float | None:
    if a is None or b is None:
        return None
    return 0.0 if a == b else (a - b) / spread if spread > 0 else None
