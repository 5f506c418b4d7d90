"""The closest pairs with different decisions and their balance; measures of nearest neighbours."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cfe_faiss.attributes.table import Attribute, are_dominated, grades_of
from cfe_faiss.audit.attribute_pairs import count_dominated, dominated, learned_directions
from cfe_faiss.audit.groups import UNKNOWN_GROUP, Floats, Ints
from cfe_faiss.audit.neighbours import consistency, discrimination_scores, error_rate_by_evidence
from cfe_faiss.audit.reporting.document import (
    STYLES,
    CaseFile,
    Column,
    Neighbour,
    Plot,
    Row,
    Section,
    Side,
    Table,
    group_name,
    list_first,
    low_high,
    number,
    plural,
    rows_of,
    show,
    to_python,
)
from cfe_faiss.audit.reporting.inputs import Inputs, Metric, Part
from cfe_faiss.audit.reporting.sections.groups import GROUP, QUARTERS
from cfe_faiss.audit.reporting.sections.model_tests import find_effects
from cfe_faiss.base.checks import UNKNOWN, Bools
from cfe_faiss.base.extras import pd
from cfe_faiss.finder import PairEvidence
from cfe_faiss.graph.csr import Surroundings, surroundings
from cfe_faiss.pairs import evidence_pairs
from cfe_faiss.rows.metric import is_distance

_NAMES = 6
"""Names of attributes in one cell, at most."""
_NEIGHBOURS = 12
"""Neighbours of a node that are drawn, at most."""
_SIDE = "node", "predicted", "true"
"""What a row of the table of pairs says about each side."""
_COUNTED = 1_000_000
"""Pairs that are counted for a rank, at most."""
_POINTS = (10, 20, 50, 100, 200, 500, 1000)
GUIDE = 0.1
"""Austin's limit of a negligible standardised difference."""
_VALUES = 12
"""Values of a text that get a line, at most."""
_BALANCE = (
    *(
        "attribute",
        "value",
        "name",
        "mean_a_all",
        "mean_b_all",
        "mean_a_pairs",
        "mean_b_pairs",
        "smd_all",
    ),
    *("smd_pairs", "distance", "distance_all", "differing", "pairs"),
)


@dataclass(frozen=True, slots=True)
class Pairs:
    """The pairs of a report.

    Attributes
    ----------
    found
        The nodes, (p,), most similar first.
    differing
        For each pair the names of the attributes in which the two differ; two missing values are
        equal.
    rows
        The lines of their table.
    """

    found: PairEvidence
    differing: Sequence[Sequence[str]]
    rows: Sequence[Row]

    def nodes(self, place: int) -> tuple[int, int]:
        """Return the two nodes of a pair."""
        return int(self.found.source[place]), int(self.found.target[place])


def find_pairs(inputs: Inputs) -> Pairs:
    """Return the closest pairs under the user's constraints; exact."""
    return _as_pairs(
        inputs, inputs.finder.top_pairs(inputs.settings.pairs, where=inputs.settings.where)
    )


def explorer_of(inputs: Inputs) -> str:
    """Return the page that explores the closest pairs."""
    unfavourable = [inputs.class_names[label] for label in inputs.unfavourable]
    return inputs.once(find_pairs).found.to_html(
        better=inputs.settings.better,
        unfavourable=None if inputs.settings.better is None else unfavourable,
        title=inputs.subject.title,
    )


def _as_pairs(inputs: Inputs, found: PairEvidence) -> Pairs:
    left = inputs.positions(found.source)
    right = inputs.positions(found.target)
    differ = {name: one.codes[left] != one.codes[right] for name, one in inputs.attributes.items()}
    names_on_page = {name: show(name) for name in differ}
    differing = [[name for name in differ if differ[name][place]] for place in range(len(found))]
    class_names = np.array([*inputs.class_names, None], object)
    columns: dict[str, Any] = {"place": np.arange(1, len(found) + 1)}
    for side, nodes, positions in (("a", found.source, left), ("b", found.target, right)):
        columns[f"node_{side}"] = [show(name) for name in inputs.finder.names(nodes).tolist()]
        columns[f"predicted_{side}"] = class_names[inputs.finder.labels[nodes]]
        columns[f"true_{side}"] = (
            None if inputs.truth is None else class_names[inputs.truth[positions]]
        )
    columns |= {
        found.measure: found.measure64(),
        "attributes_differing": [len(names) for names in differing],
        "differing": [", ".join(names) or "none" for names in differing],
        "which": [
            list_first(map(names_on_page.__getitem__, names), _NAMES) or "none"
            for names in differing
        ],
    }
    return Pairs(found, differing, rows_of(pd.DataFrame(columns)))


def _count_pairs(inputs: Inputs) -> int:
    """Return the number of pairs of audited nodes with different predicted classes."""
    sizes = np.bincount(inputs.labels).astype(np.int64)
    return int(sizes.sum() ** 2 - (sizes**2).sum()) // 2


def strongest_section(inputs: Inputs) -> Section:
    """Return the closest pair, side by side: a pair that shows a finding if there is one."""
    pairs = inputs.once(find_pairs)
    if not pairs.rows:
        return Section(missing="no_pairs")
    places = _places_without_lack(inputs, pairs)
    if not len(places):
        return Section(missing="lacking")
    better = find_directions(inputs)
    values: dict[str, Any] = {
        "skipped": int(places[0]),
        "is_better": False,
        "better": [
            f"{show(name)} ({end if isinstance(end, str) else 'as listed'})"
            for name, end in better.items()
        ],
        "is_estimated": inputs.settings.better is None,
    }
    if better:
        grades = grades_of(inputs.attributes, better)
        refused = np.isin(inputs.labels, inputs.unfavourable)
        counts = count_dominated(grades, refused)
        values |= dict(zip(("dominated", "refused", "judged"), counts, strict=True))
        dominated_pairs, dominated_places = _find_dominated(
            inputs, pairs, places, better, grades, refused
        )
        if len(dominated_places):
            values["is_better"] = True
            pairs = dominated_pairs
            places = dominated_places
    place, mine, theirs = _strongest(inputs, pairs, places)
    values |= {
        **pairs.rows[place],
        "agreement": _agreement(inputs, pairs, place),
        "attributes": len(inputs.attributes),
        "mine": mine,
        "theirs": theirs,
    }
    return Section(values, [_differences(inputs, pairs, place, "strongest_case")])


def _places_without_lack(inputs: Inputs, pairs: Pairs) -> Ints:
    """Return the places of the pairs of which one side at least has each attribute.

    Attributes that everybody lacks do not count.
    """
    lack = np.zeros(len(pairs.rows), bool)
    for name, both_lack in pairs.found.both_lack.items():
        if not inputs.attributes[name].missing.all():
            lack |= both_lack
    return np.flatnonzero(~lack)


def _find_dominated(
    inputs: Inputs,
    pairs: Pairs,
    places: Ints,
    better: Mapping[str, Any],
    grades: Floats,
    refused: Bools,
) -> tuple[Pairs, Ints]:
    """Return pairs, and the places of those whose refused side is at least as good.

    If none of the closest pairs is so, the nearest such pairs are searched, unless conditions are
    set on the pairs.
    """
    source = inputs.positions(pairs.found.source)
    target = inputs.positions(pairs.found.target)
    dominated_places = places[are_dominated(grades, refused, source, target)[places]]
    if len(dominated_places) or inputs.settings.where is not None:
        return pairs, dominated_places
    unfavourable = [inputs.class_names[label] for label in inputs.unfavourable]
    result = dominated(
        inputs.finder, unfavourable=unfavourable, better=better, k=inputs.settings.pairs
    )
    pairs = _as_pairs(inputs, result.pairs)
    return pairs, _places_without_lack(inputs, pairs)


def find_directions(inputs: Inputs) -> Mapping[str, Any]:
    """Return the better end of each column whose direction is known: named or learned."""
    if not inputs.unfavourable:
        return {}
    if inputs.settings.better is not None:
        return inputs.settings.better
    return learned_directions(
        inputs.finder, inputs.nodes, np.isin(inputs.labels, inputs.unfavourable)
    )


def _strongest(inputs: Inputs, pairs: Pairs, places: Ints) -> tuple[int, str, str]:
    """Return the place, among some, of the pair that shows a finding, and the groups of its sides.

    It is the first whose unfavourable side alone carries a value named at a disadvantage. Without
    one it is the first pair, and the groups are empty.
    """
    effects = inputs.once(find_effects)
    if effects is not None:
        worse = effects.table[effects.table["verdict"] == "disadvantaged"]
        named = set(zip(worse["attribute"], worse["value"], strict=True))
        for place in map(int, places):
            refused, other = pairs.nodes(place)
            if inputs.finder.labels[refused] not in inputs.unfavourable:
                refused, other = other, refused
            rows = inputs.positions(np.array([refused, other])).tolist()
            for name, attribute in inputs.groups.items():
                mine, theirs = map(attribute.of, rows)
                if mine != theirs is not None and (name, mine) in named:
                    return place, group_name(name, mine), group_name(name, theirs)
    return int(places[0]), "", ""


def pairs_section(inputs: Inputs) -> Section:
    """Return the table of the closest pairs."""
    pairs = inputs.once(find_pairs)
    conditions = inputs.settings.where
    if not pairs.rows:
        return Section(missing="no_pairs")
    measure = pairs.found.measure
    values = {
        "count": len(pairs.rows),
        "total": _count_pairs(inputs),
        "most": pairs.rows[0][measure],
        "least": pairs.rows[-1][measure],
        "both_lack": {name: int(lacks.sum()) for name, lacks in pairs.found.both_lack.items()},
        "attributes": len(inputs.attributes),
        "equal": sum(not names for names in pairs.differing),
        "only_sensitive": sum(
            bool(names) and set(inputs.sensitive).issuperset(names) for names in pairs.differing
        ),
        "conditions": [show(text, 200) for text in conditions.describe()] if conditions else [],
        "missing": pairs.found.missing,
    }
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
    return Section(values, [Table("closest_pairs", columns, pairs.rows, limit=15)])


def cases_section(inputs: Inputs) -> Section:
    """Return the files of the closest pairs, for a graph with a picture of neighbourhoods."""
    pairs = inputs.once(find_pairs)
    count = min(inputs.settings.cases, len(pairs.rows))
    if not count:
        return Section(missing="no_pairs")
    cases = [
        _case(inputs, pairs, place, rank) for place, rank in enumerate(_ranks(inputs, pairs, count))
    ]
    return Section({"count": count, "drawn": _NEIGHBOURS}, cases=cases)


def _ranks(inputs: Inputs, pairs: Pairs, count: int) -> list[str]:
    """Return in words the rank of each of the first pairs among all pairs.

    Pairs that are as near share a rank.
    """
    first = pairs.found.D[:count]
    total = f"{_count_pairs(inputs):,} pairs"
    nearer = np.zeros(count, np.int64)
    equal = np.zeros(count, np.int64)
    counted = 0
    finder = inputs.finder
    for block in evidence_pairs(finder.index, float(first[-1]), **finder.conditions()):
        D = block.similarity[:, None]
        nearer += (first > D if is_distance(pairs.found.metric) else first < D).sum(axis=0)
        equal += (first == D).sum(axis=0)
        counted += len(block)
        if counted > _COUNTED:
            text = (
                f"not counted: more than {_COUNTED:,} of {total} are as close as the last of these"
            )
            return [text] * count
    return [
        f"{rank + 1:,} of {total}"
        + (
            f", together with {plural(ties - 1, 'other')} that the search cannot tell from it"
            if ties > 1
            else ""
        )
        for rank, ties in zip(nearer.tolist(), equal.tolist(), strict=True)
    ]


def _case(inputs: Inputs, pairs: Pairs, place: int, rank: str) -> CaseFile:
    row = pairs.rows[place]
    nodes = pairs.nodes(place)
    labels = inputs.finder.labels
    a, b = (
        Side(node, *(row[f"{key}_{side}"] for key in _SIDE))
        for node, side in zip(nodes, "ab", strict=True)
    )
    styles: dict[int, int] = {}
    if inputs.finder.graph is not None:
        graph = inputs.finder.graph.undirected()
        near_a, near_b = (
            surroundings(graph, *pair, labels, _NEIGHBOURS) for pair in (nodes, nodes[::-1])
        )
        classes = np.unique(labels[np.concatenate([nodes, near_a.drawn, near_b.drawn])]).tolist()
        # The same class looks the same in every case, unless there are more classes than looks.
        styles = {
            label: label if len(inputs.class_names) <= STYLES else i
            for i, label in enumerate(classes)
        }
        a = _with_neighbours(inputs, a, near_a, styles)
        b = _with_neighbours(inputs, b, near_b, styles)
    return CaseFile(
        place + 1,
        number(row["similarity"], "similarity") if "similarity" in row else None,
        number(row["distance"], "distance") if "distance" in row else None,
        rank,
        (a, b),
        _differences(inputs, pairs, place, f"case_{place + 1}"),
        _agreement(inputs, pairs, place),
        tuple((look, inputs.class_names[label]) for label, look in styles.items()),
    )


def _with_neighbours(
    inputs: Inputs, side: Side, near: Surroundings, styles: Mapping[int, int]
) -> Side:
    """Return a side with its neighbours, in words and as drawn."""
    counts = f"{plural(near.degree, 'neighbour')}, {_count(near.same)} with the same decision"
    labels = inputs.finder.labels
    names = map(show, inputs.finder.names(near.drawn).tolist())
    looks = [styles[label] for label in labels[near.drawn].tolist()]
    return replace(
        side,
        surroundings=counts if near.degree else "no neighbours",
        style=styles[int(labels[side.row])],
        neighbours=tuple(map(Neighbour, names, looks, near.shared.tolist())),
        edges=near.edges,
    )


def _count(n: int) -> str:
    return f"{n:,}" if n else "none"


def _agreement(inputs: Inputs, pairs: Pairs, place: int) -> str:
    count = len(inputs.attributes)
    agreeing = count - len(pairs.differing[place])
    if not count:
        return "No attributes are known."
    words = "all" if agreeing == count > 1 else f"{_count(agreeing)} of"
    return f"They agree in {words} {plural(count, 'attribute')}."


def _differences(inputs: Inputs, pairs: Pairs, place: int, name: str) -> Table:
    """Return decisions, true classes and differing attributes of a pair, side by side."""
    row = pairs.rows[place]
    places = inputs.positions(np.array(pairs.nodes(place)))
    further = [
        _difference(inputs.attributes[name], *places.tolist()) for name in pairs.differing[place]
    ]
    further.sort(key=lambda line: -abs(line["difference"] or 0))
    titles = (
        {"Decision": "predicted", "True class": "true"}
        if inputs.has("truth")
        else {"Decision": "predicted"}
    )
    head = [
        {"attribute": title, "a": row[f"{key}_a"] or "unknown", "b": row[f"{key}_b"] or "unknown"}
        | {"difference": None, "named": True}
        for title, key in titles.items()
    ]
    columns = (
        Column("attribute", "Attribute"),
        Column("a", f"A: {show(row['node_a'])}", "side"),
        Column("b", f"B: {show(row['node_b'])}", "side"),
        Column("difference", "B − A (SD)", "signed"),
    )
    return Table(name, columns, [*head, *further], limit=14)


def _difference(attribute: Attribute, a: int, b: int) -> dict[str, Any]:
    """Return an attribute of two rows, and the difference of numbers in standard deviations."""
    difference = to_python(attribute.deviations(a, b)[()])
    values = [to_python(attribute.of(row)) for row in (a, b)]
    cells = ["unknown" if value is None else value for value in values]
    return {"attribute": attribute.name, "a": cells[0], "b": cells[1], "difference": difference}


# --- balance, and measures of nearest neighbours --------------------------------------------------


def balance_section(inputs: Inputs) -> Section:
    """Return standardised mean differences between the sides of the pairs, and the classes.

    Austin, "Balance diagnostics for comparing the distribution of baseline covariates between
    treatment groups in propensity-score matched samples", Statistics in Medicine 28 (2009): d is
    the difference of the means over sqrt((s_A^2 + s_B^2) / 2). As in MatchIt, both columns use the
    spread of all nodes, so that they compare.
    """
    found = inputs.once(find_pairs).found
    chosen = _classes(inputs)
    if not len(found):
        return Section(missing="no_pairs")
    if chosen is None:
        return Section(missing="no_class")
    first, name_a, name_b = chosen
    of_a = np.isin(inputs.labels, first)
    left = inputs.positions(found.source)
    right = inputs.positions(found.target)
    used = of_a[left] != of_a[right]
    sides = np.where(of_a[left], [left, right], [right, left])[:, used]
    values: dict[str, Any] = {
        "a": name_a,
        "b": name_b,
        "guide": GUIDE,
        "used": int(used.sum()),
        "left_out": int((~used).sum()),
    }
    if not used.any():
        return Section(values, missing="no_side")
    lines = [(one.name, *line) for one in inputs.attributes.values() for line in _lines(one)]
    frame = pd.DataFrame([_balance_row(*line, of_a, sides) for line in lines], columns=_BALANCE)
    # infinite for different means without a spread
    apart = frame[["smd_pairs", "smd_all"]].abs().fillna(0)
    over, before = (apart > GUIDE).sum().tolist()
    values |= {"over": over, "before": before, "count": len(frame)}
    rows = rows_of(frame.loc[apart["smd_pairs"].sort_values(ascending=False, kind="stable").index])
    plotted_numbers = [row[key] for row in rows for key in ("distance", "distance_all")]
    plot = Plot.around([0.0, *plotted_numbers], (GUIDE,), before="distance_all")
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
    return Section(values, [Table("balance", columns, rows)])


def _classes(inputs: Inputs) -> tuple[Sequence[int], str, str] | None:
    """Return the classes of side A, and the names of both sides.

    None with more than two classes and no favourable.
    """
    present = np.unique(inputs.labels).tolist()
    if len(present) == 2:
        favourable = [label for label in present if label in inputs.favourable]
        first = favourable[0] if len(favourable) == 1 else present[1]
        other = present[0] if first == present[1] else present[1]
        return [first], inputs.class_names[first], inputs.class_names[other]
    if not inputs.favourable:
        return None
    return inputs.favourable, " or ".join(inputs.favourable_names), "any other class"


def _lines(attribute: Attribute) -> Iterator[tuple[str, Floats]]:
    """Yield numbers, NaN if missing, or each common value of a text as 0 and 1."""
    if attribute.numbers is not None:
        yield "", attribute.numbers.astype(np.float64)
    else:
        sizes = np.bincount(attribute.codes[~attribute.missing], minlength=len(attribute.values))
        common = [int(code) for code in np.argsort(-sizes, kind="stable")[:_VALUES] if sizes[code]]
        for code in common:
            yield str(attribute.values[code]), (attribute.codes == code).astype(np.float64)
        others = ~np.isin(attribute.codes, [*common, UNKNOWN])
        if others.any():
            yield (
                plural(int(np.count_nonzero(sizes)) - len(common), "other value"),
                others.astype(np.float64),
            )
    if attribute.missing.any():
        yield UNKNOWN_GROUP, attribute.missing.astype(np.float64)


def _balance_row(
    attribute: str, value: str, numbers: Floats, of_a: Bools, sides: Ints
) -> dict[str, Any]:
    """Return the means and differences of some numbers.

    ``sides`` has the rows of A and B of each pair, (2, p).
    """
    values = pd.DataFrame({"number": numbers})["number"].dropna()
    groups = values.groupby(of_a[values.index])
    # Austin's variance of zeros and ones is p (1 - p), the sample variance is that of other
    # numbers.
    variances = {
        side: group.var(ddof=0 if group.isin([0, 1]).all() else 1) for side, group in groups
    }
    spread = np.sqrt(sum(np.nan_to_num(variance) for variance in variances.values()) / 2)
    pairs = pd.DataFrame(dict(zip("ab", numbers[sides], strict=True))).dropna()
    all_means = groups.mean().reindex([True, False])
    row: dict[str, Any] = {
        "attribute": attribute,
        "value": value,
        "name": group_name(attribute, value) if value else show(attribute),
        "mean_a_all": all_means[True],
        "mean_b_all": all_means[False],
        "mean_a_pairs": pairs["a"].mean(),
        "mean_b_pairs": pairs["b"].mean(),
    }
    for side in ("all", "pairs"):
        change = row[f"mean_a_{side}"] - row[f"mean_b_{side}"]
        with np.errstate(divide="ignore"):
            row[f"smd_{side}"] = np.divide(change, spread) if change else change
    return {
        **row,
        "distance": abs(row["smd_pairs"]),
        "distance_all": abs(row["smd_all"]),
        "differing": (pairs["a"] != pairs["b"]).mean(),
        "pairs": len(pairs),
    }


def discrimination_section(inputs: Inputs) -> Section:
    """Return the discrimination scores (paper, section "Revealing Unfairness") as a description."""
    frame = discrimination_scores(
        inputs.finder, k=inputs.settings.k, sensitive=inputs.attributes_and_pairs, **inputs.options
    )
    rows = [row | {"group": inputs.group(row)} for row in rows_of(frame)]
    columns = (
        Column("group", "Value"),
        Column("nodes", "n", "count"),
        Column("score", "Score", "score", n="nodes", plot=Plot(QUARTERS, expected="expected")),
        Column("expected", "Expected", "score", n="nodes"),
        Column("difference", "Difference", "signed", n="nodes"),
    )
    return Section(
        {"count": len(rows)}, tables=[Table("discrimination_scores", columns, rows, limit=30)]
    )


def consistency_section(inputs: Inputs) -> Section:
    """Return the share of people who are decided differently from their nearest neighbour."""
    frame = consistency(
        inputs.finder,
        columns=inputs.sensitive,
        confidence=inputs.settings.confidence,
        **inputs.options,
    )
    rows = [row | {"group": inputs.group(row)} for row in rows_of(frame)]
    if not rows[0]["nodes"]:
        return Section(missing="no_neighbours")
    plot = Plot(QUARTERS, expected="expected")
    columns = (
        GROUP,
        Column("nodes", "n", "count"),
        Column("closer", "Closer to another", "count"),
        Column("share", "Share", "share", interval=("low", "high"), n="nodes", plot=plot),
        Column("expected", "Expected", "share", interval=low_high("expected"), n="nodes"),
        Column("tied", "With ties", "count"),
    )
    return Section(rows[0], tables=[Table("consistency", columns, rows)], measured=rows)


def errors_section(inputs: Inputs) -> Section:
    """Return the accuracy within the closest pairs (paper, "Verifying Prediction Errors")."""
    frame = error_rate_by_evidence(inputs.finder, ks=_POINTS, confidence=inputs.settings.confidence)
    rows = [row for row in rows_of(frame) if row["accuracy"] is not None]
    if not rows:
        return Section(missing="no_truth_in_pairs")
    overall = rows[0] | {"feature": "all"}
    shown_row = rows[min(3, len(rows) - 1)]
    plotted_numbers = [row[key] for row in rows for key in ("low", "expected")]
    plot = Plot.around([*plotted_numbers, 1.0], (shown_row["overall"],), expected="expected")
    columns = (
        Column("pairs", "Closest pairs", "count"),
        Column("nodes", "n with true class", "count"),
        Column("errors", "Errors", "count"),
        Column("accuracy", "Right", "share", interval=("low", "high"), n="nodes", plot=plot),
        Column("expected", "Expected", "share", interval=low_high("expected"), n="nodes"),
    )
    return Section(
        shown_row, tables=[Table("errors_by_evidence", columns, rows)], measured=[overall]
    )


PARTS = (
    Part("strongest_case", strongest_section, is_open=True),
    Part("pairs", pairs_section),
    Part("cases", cases_section),
    Part("balance", balance_section),
    Part("discrimination", discrimination_section),
    Part("consistency", consistency_section, metrics={"consistency": Metric("share", "nodes")}),
    Part(
        "errors",
        errors_section,
        ("truth",),
        metrics={"overall_accuracy": Metric("overall", "overall_nodes", ("truth",))},
    ),
)
