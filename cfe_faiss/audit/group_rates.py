"""How a model treats groups: selection rates, impact ratios, accuracy, false positive and false negative rates."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cfe_faiss.attributes import Attributes, as_attributes
from cfe_faiss.audit.bounds import rate_bounds, ratio_bounds
from cfe_faiss.audit.features import class_name
from cfe_faiss.audit.groups import DEFAULT_BINS, Bins, groupings
from cfe_faiss.audit.intervals import newcombe, normal_quantile, risk_ratio, wilson
from cfe_faiss.checks import UNKNOWN, as_array, as_ids, as_labels, as_number
from cfe_faiss.classes import as_predictions, class_names_of
from cfe_faiss.extras import extra

if TYPE_CHECKING:
    import pandas as pd

_UNKNOWN = "unknown"
_BELOW_2_PERCENT = 0.02

_LIMITS = (
    "Rates describe what the model says of these nodes. They do not show why, nor whether a difference is justified.",
    "Intervals treat nodes as independent draws from a larger population. In a graph neighbours influence each other's "
    "predictions, so that intervals are rather too narrow.",
    "The most selected group is chosen by the same figures that it is then compared with: of several groups, one is "
    "ahead by chance, and the ratios of the others are rather too low. Their intervals do not allow for that.",
    "Each interval holds its level by itself. Of many groups, some lie outside theirs by chance.",
    "Small groups are shown, but are not what others are compared with, as long as there is a larger one.",
    "The bounds hold whichever of the groups the unknown nodes belong to, not if they belong to a group of their own. "
    "Of an intersection they take a node as unknown if any of its attributes is missing, and may be wider than they "
    "need be.",
    "Accuracy, FPR and FNR count the nodes with a true class only, and are as right as these classes.",
)

# The categories of the EEO-1 report (component 1), in its order.
_SEXES = (r"\b(male|men|man|m)\b", r"\b(female|women|woman|f)\b")
_RACES = (
    r"\b(hispanic|latino|latina|latinx)\b",
    r"\bwhite\b",
    r"\b(black|african)\b",
    r"\b(hawaiian|pacific)\b",
    r"\basian\b",
    r"\b(native american|american indian|alaska)\b",
    r"\b(two or more|multiracial)\b",
)


@dataclass(frozen=True, slots=True, repr=False)
class GroupMetrics:
    """How groups are treated; made by :func:`group_metrics`.

    Attributes
    ----------
    names
        The attributes.
    nodes
        How many nodes were counted.
    classes
        Names of the classes that count as selected, one block of the table for each.
    confidence, small
        As given.
    table
        One line per class and group:

        - ``class``, ``feature``, ``value``: the class that counts as selected, the attribute or intersection ("sex &
          race"; "all" for all nodes), and its value.
        - ``nodes``, ``share_of_nodes``, ``small``: nodes in the group, their share of all nodes, and whether that is
          below the limit for small groups. ``unknown``: whether this line counts the nodes whose attribute is missing.
        - ``selected``, ``rate``, ``rate_low``, ``rate_high``: nodes selected, selection rate, its Wilson interval.
        - ``reference``: whether this is the most selected group.
        - ``ratio``, ``ratio_low``, ``ratio_high``: impact ratio, the rate divided by that of the most selected group,
          and Koopman's interval.
        - ``ratio_least``, ``ratio_most``: what the impact ratio could be, depending on the groups of the unknown nodes;
          equal to the ratio where none is unknown. ``rate_least``, ``rate_most``: the same for the rate.
        - ``difference``, ``difference_low``, ``difference_high``: the rate minus that of the most selected group, and
          Newcombe's interval.
        - ``judged``: nodes with a true class. ``TP``, ``FP``, ``TN``, ``FN``: among them, with the class as positive.
        - ``accuracy``, ``fpr``, ``fnr``: share of judged nodes with the right class; FP / (FP + TN); FN / (FN + TP);
          each with its Wilson interval in ``_low`` and ``_high``.

        NaN where there are no cases.
    limits
        What the numbers cannot say.
    """

    names: tuple[str, ...]
    nodes: int
    classes: tuple[str, ...]
    confidence: float
    small: float
    table: "pd.DataFrame"
    limits: tuple[str, ...]
    _parts: Mapping[tuple[str, str], tuple[str, ...]]

    def __repr__(self) -> str:
        features = list(dict.fromkeys(self.table["feature"]))[1:]
        return f"GroupMetrics({self.nodes:,} nodes, groups by {', '.join(features)})"

    def worst(self) -> "pd.DataFrame":
        """Return the least impact ratio for each class and attribute.

        Columns are ``class``, ``feature``, ``value``, ``nodes``, ``small``, ``ratio``, ``ratio_low``, ``ratio_high``,
        ``ratio_least``; an attribute none of whose ratios is defined has no line.
        """
        table = self.table[self.table["ratio"].notna() & (self.table["feature"] != "all")]
        rows = table.groupby(["class", "feature"], sort=False)["ratio"].idxmin()
        columns = ["class", "feature", "value", "nodes", "small", "ratio", "ratio_low", "ratio_high", "ratio_least"]
        return table.loc[rows, columns].reset_index(drop=True)

    def local_law_144(self, sex: str, race: str, favourable: str | None = None) -> dict[str, "pd.DataFrame"]:
        """Return the tables of a bias audit as New York City's Local Law 144 asks for them.

        Rules of the Department of Consumer and Worker Protection, 6 RCNY § 5-301 (b): selection rate and impact ratio
        by sex, by race/ethnicity and by their intersection, in this order, the number of applicants (§ 5-303), and the
        number of those whose category is unknown. § 5-301 (d) allows to leave categories below 2 % of the data out of
        the impact ratios; they are shown with their rate and without a ratio, ``excluded``. The rules ask for the
        auditor's reasons in that case.

        Parameters
        ----------
        sex, race
            Names of the two attributes.
        favourable
            Name of the class that counts as selected; needed where the table has several.

        Returns
        -------
        dict of DataFrame
            "Sex", "Race/Ethnicity" and "Intersectional". Columns: ``category`` (in the last ``race`` and ``sex``
            instead), ``applicants``, ``selected``, ``selection_rate``, ``impact_ratio``, ``excluded``. Categories of
            the EEO-1 report come in its order, others after them. The last line counts the unknown.

        Raises
        ------
        ValueError
            If the attributes or their intersection are not in the table, or the class is not or not unique.

        Notes
        -----
        A tool that gives scores is judged by its scoring rate, the share with a score above the median of the sample (§
        5-301 (c)): pass ``score > median`` as the predictions.

        What the law asks for beyond these tables (whose data, which dates, an independent auditor, publication) is not
        here, and the ratios say nothing about compliance with it.
        """
        table = self._block(favourable)
        crossed = [name for name in (f"{sex} & {race}", f"{race} & {sex}") if (table["feature"] == name).any()]
        for name in (sex, race):
            if not (table["feature"] == name).any():
                raise ValueError(
                    f"sex and race must name attributes of the table ({', '.join(self.names)}), got {name!r}"
                )
        if not crossed:
            raise ValueError(f"the table must hold the intersection of {sex!r} and {race!r}: see intersections")
        columns = ("sex", "race") if crossed[0].startswith(f"{sex} & ") else ("race", "sex")
        both = self._law_table(table, crossed[0], columns)
        return {
            "Sex": self._law_table(table, sex, ("sex",)).rename(columns={"sex": "category"}),
            "Race/Ethnicity": self._law_table(table, race, ("race",)).rename(columns={"race": "category"}),
            "Intersectional": both[["race", "sex", *both.columns[2:]]],
        }

    def _block(self, favourable: str | None) -> "pd.DataFrame":
        if favourable is None and len(self.classes) > 1:
            raise ValueError(f"favourable must name one of the classes ({', '.join(self.classes)}), got None")
        chosen = self.classes[0] if favourable is None else str(favourable)
        if chosen not in self.classes:
            raise ValueError(f"favourable must be one of {', '.join(self.classes)}, got {favourable!r}")
        return self.table[self.table["class"] == chosen]

    def _law_table(self, table: "pd.DataFrame", feature: str, columns: tuple[str, ...]) -> "pd.DataFrame":
        with extra("audit"):
            import pandas as pd

        own = table[(table["feature"] == feature) & ~table["unknown"]]
        parts = [dict(zip(columns, self._parts[feature, value], strict=True)) for value in own["value"]]
        excluded = (own["share_of_nodes"] < _BELOW_2_PERCENT).to_numpy()
        rates = own["rate"].to_numpy()
        largest = np.max(rates[~excluded & ~np.isnan(rates)], initial=0.0)
        figures = {
            "applicants": own["nodes"].to_numpy(),
            "selected": own["selected"].to_numpy(),
            "selection_rate": rates,
            "impact_ratio": np.where(excluded | (largest == 0), np.nan, rates / (largest or 1)),
            "excluded": excluded,
        }
        order = sorted(range(len(own)), key=lambda i: _law_order(parts[i]))
        known = pd.concat([pd.DataFrame(parts, columns=columns), pd.DataFrame(figures)], axis=1).iloc[order]
        unknown = table[(table["feature"] == feature) & table["unknown"]]
        count, selected = int(unknown["nodes"].sum()), int(unknown["selected"].sum())
        line: dict[str, list[Any]] = {column: ["Unknown"] for column in columns}
        line |= {
            "applicants": [count],
            "selected": [selected],
            "selection_rate": [selected / count if count else np.nan],
        }
        line |= {"impact_ratio": [np.nan], "excluded": [False]}
        return pd.concat([known, pd.DataFrame(line)], ignore_index=True)


def group_metrics(  # noqa: PLR0913
    data: Any,
    predicted: Any,
    names: Sequence[str],
    *,
    truth: Any = None,
    favourable: int | str | Sequence[int | str] | None = None,
    nodes: ArrayLike | None = None,
    intersections: Sequence[Sequence[str]] | None = None,
    bins: Bins = DEFAULT_BINS,
    small: float = 0.02,
    class_names: Sequence[str] | None = None,
    confidence: float = 0.95,
) -> GroupMetrics:
    """Return selection rates, impact ratios and error rates of groups of nodes and of their intersections.

    Parameters
    ----------
    data
        Attributes of n nodes, anything that :func:`cfe_faiss.attributes.as_attributes` takes.
    predicted
        Predictions for the rows of the attributes, see :func:`cfe_faiss.classes.as_predictions`: classes or texts (n,),
        or probabilities (n, C).
    names
        Attributes whose values are the groups.
    truth
        True classes, (n,): numbers, -1 where one is not known, or texts, None where one is not. Without them there are
        no accuracy, FPR and FNR.
    favourable
        The class or classes that count as selected, together, by number or by name; by default each class in turn,
        against the rest.
    nodes
        The nodes to count, as ids or as a mask of shape (n,); by default all.
    intersections
        Tuples of names whose combinations are groups, too; by default all names together, where there are several.
    bins
        How numbers are cut into groups, as in :func:`cfe_faiss.audit.discrimination_scores`.
    small
        Groups with a smaller share of the nodes are flagged, and no other group is compared with them as long as there
        is a larger one; in [0, 1].
    class_names
        Names of the classes; by default those of ``data``, where it has any.
    confidence
        Of the intervals, in (0, 1).

    Returns
    -------
    GroupMetrics
        With the table, and views of it.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Notes
    -----
    Selection rate and impact ratio are those of the Uniform Guidelines on Employee Selection Procedures (29 CFR
    § 1607.4 D, the "four-fifths rule") and of New York City's Local Law 144. FPR and FNR are those of equalised odds
    (Hardt, Price & Srebro, NIPS 2016). Intervals: :func:`cfe_faiss.audit.wilson`, :func:`cfe_faiss.audit.risk_ratio`,
    :func:`cfe_faiss.audit.newcombe`.

    Examples
    --------
    >>> people = {"sex": ["f", "f", "f", "m", "m", None]}
    >>> metrics = group_metrics(people, [1, 0, 0, 1, 1, 0], ["sex"], favourable=1)
    >>> metrics.table[["feature", "value", "nodes", "selected", "ratio", "ratio_least", "ratio_most"]].round(2)
      feature    value  nodes  selected  ratio  ratio_least  ratio_most
    0     all               6         3    NaN          NaN         NaN
    1     sex        f      3         1   0.33         0.25         0.5
    2     sex        m      2         2   1.00         1.00         1.0
    3     sex  unknown      1         0    NaN          NaN         NaN
    """
    normal_quantile(confidence)  # checks it
    small = as_number("small", small, 0, 1)
    attributes = as_attributes(data, "data")
    n = len(attributes.ids)
    known_names = class_names_of(data) if class_names is None else class_names
    predictions = as_predictions(predicted, n, known_names, "predicted")
    labels = predictions.labels
    true = _true_classes(truth, n, predictions.class_names)
    rows = _rows(attributes, nodes)
    blocks = _blocks(favourable, labels, true, predictions.class_names)
    wanted = _names(attributes, names)
    crossed = (
        [wanted] * (len(wanted) > 1) if intersections is None else [_names(attributes, own) for own in intersections]
    )
    groups = [_everyone(n), *_groups(attributes, wanted, crossed, bins)]
    parts = {
        (group.name, value): part for group in groups for value, part in zip(group.values, group.parts, strict=True)
    }
    with extra("audit"):
        import pandas as pd

    audited = _Audited(rows, labels[rows], true[rows])
    tables = [
        _table(group, name, classes, audited, small, confidence) for name, classes in blocks.items() for group in groups
    ]
    table = pd.concat(tables, ignore_index=True)
    return GroupMetrics(tuple(wanted), len(rows), tuple(blocks), confidence, small, table, _LIMITS, parts)


@dataclass(frozen=True, slots=True)
class _Group:
    """An attribute or an intersection: the group of each row, -1 where it is not known."""

    name: str
    values: list[str]
    parts: list[tuple[str, ...]]
    """The value of each attribute of an intersection."""
    codes: NDArray[np.int64]


def _everyone(n: int) -> _Group:
    return _Group("all", [""], [()], np.zeros(n, np.int64))


def _groups(attributes: Attributes, names: list[str], crossed: list[list[str]], bins: Bins) -> list[_Group]:
    needed = list(dict.fromkeys([*names, *(name for own in crossed for name in own)]))
    made = groupings(attributes, attributes.ids, needed, bins, crossed)
    single = {group.name: group for group in made[: len(needed)]}
    missing = {name: attributes[name].missing for name in needed}
    groups = []
    for group, own in zip(made, [[name] for name in needed] + crossed, strict=True):
        if len(own) == 1 and own[0] not in names:
            continue
        unknown = np.logical_or.reduce([missing[name] for name in own])
        members = np.bincount(group.codes[~unknown], minlength=len(group.values))
        # What only nodes without a value are in is the group of missing values.
        kept = (members > 0) | (np.bincount(group.codes, minlength=len(group.values)) == 0)
        numbers = np.where(kept, np.cumsum(kept) - 1, UNKNOWN)
        codes = np.where(unknown, UNKNOWN, numbers[group.codes])
        parts: list[tuple[str, ...]] = [(group.values[g],) for g in np.flatnonzero(kept)]
        if len(own) > 1:
            first = np.unique(codes[codes >= 0], return_index=True)[1]
            some = np.flatnonzero(codes >= 0)[first]
            parts = [tuple(single[name].values[single[name].codes[row]] for name in own) for row in some]
        groups.append(_Group(group.name, [group.values[g] for g in np.flatnonzero(kept)], parts, codes))
    return groups


@dataclass(frozen=True)
class _Audited:
    """The audited nodes: their rows among the attributes, predicted and true classes, -1 where not known."""

    rows: NDArray[np.int64]
    labels: NDArray[np.int32]
    true: NDArray[np.int32]


def _table(
    group: _Group, name: str, classes: NDArray[np.int32], audited: _Audited, small: float, confidence: float
) -> "pd.DataFrame":
    """Return what is counted of a group where ``classes``, together called ``name``, count as selected."""
    with extra("audit"):
        import pandas as pd

    rows, labels, true = audited.rows, audited.labels, audited.true
    codes = group.codes[rows]
    g = len(group.values)
    some_unknown = bool((codes == UNKNOWN).any())
    places = np.where(codes == UNKNOWN, g, codes)

    def count(which: NDArray[np.bool_]) -> NDArray[np.int64]:
        return np.bincount(places[which], minlength=g + 1).astype(np.int64)

    positive, actual, judged = np.isin(labels, classes), np.isin(true, classes), true != UNKNOWN
    nodes, selected = count(np.ones(len(rows), bool)), count(positive)
    tp, fp = count(judged & positive & actual), count(judged & positive & ~actual)
    tn, fn = count(judged & ~positive & ~actual), count(judged & ~positive & actual)
    right = count(judged & (labels == true))
    share_of_nodes = nodes / max(len(rows), 1)
    unknown = np.arange(g + 1) == g
    is_small = (share_of_nodes < small) & ~unknown
    compared = (nodes > 0) & ~unknown & ~is_small
    compared = compared if compared.any() else (nodes > 0) & ~unknown
    rate = np.divide(selected, nodes, out=np.full(g + 1, np.nan), where=nodes > 0)
    columns: dict[str, Any] = {
        "class": name,
        "feature": group.name,
        "value": [*group.values, _UNKNOWN],
        "unknown": unknown,
        "nodes": nodes,
        "share_of_nodes": share_of_nodes,
        "small": is_small,
        "selected": selected,
        **_with_interval("rate", selected, nodes, confidence),
        **_against_most_selected(
            selected, nodes, rate, compared if group.name != "all" else compared & False, confidence
        ),
    }
    bounds: dict[str, NDArray[np.float64]] = {key: np.full(g + 1, np.nan) for key in _BOUNDS}
    if group.name != "all":
        known = selected[:g], nodes[:g], int(selected[g]), int(nodes[g])
        found = [*rate_bounds(*known), *ratio_bounds(*known, compared[:g])]
        for key, values in zip(_BOUNDS, found, strict=True):
            bounds[key][:g] = values
    columns |= bounds | {"judged": count(judged), "TP": tp, "FP": fp, "TN": tn, "FN": fn}
    columns |= _with_interval("accuracy", right, count(judged), confidence)
    columns |= _with_interval("fpr", fp, fp + tn, confidence) | _with_interval("fnr", fn, fn + tp, confidence)
    table = pd.DataFrame(columns)
    return table if some_unknown else table.iloc[:g]


_BOUNDS = ("rate_least", "rate_most", "ratio_least", "ratio_most")


def _against_most_selected(
    selected: NDArray[np.int64],
    nodes: NDArray[np.int64],
    rate: NDArray[np.float64],
    compared: NDArray[np.bool_],
    confidence: float,
) -> dict[str, NDArray[Any]]:
    names = ("ratio", "ratio_low", "ratio_high", "difference", "difference_low", "difference_high")
    columns = {name: np.full(len(nodes), np.nan) for name in names}
    reference = np.zeros(len(nodes), bool)
    if compared.any():
        best = int(np.argmax(np.where(compared, rate, -1)))
        reference[best] = True
        known = np.arange(len(nodes)) < len(nodes) - 1
        columns["ratio"] = np.divide(rate, rate[best], out=np.full(len(nodes), np.nan), where=known & (rate[best] > 0))
        columns["difference"] = np.where(known, rate - rate[best], np.nan)
        for name, interval in (("ratio", risk_ratio), ("difference", newcombe)):
            low, high = interval(selected, nodes, selected[best], nodes[best], confidence)
            # The group itself is no second sample.
            low[best] = high[best] = columns[name][best]
            columns[f"{name}_low"], columns[f"{name}_high"] = (
                np.where(known, low, np.nan),
                np.where(known, high, np.nan),
            )
    return {"reference": reference, **columns}


def _with_interval(
    name: str, successes: NDArray[np.int64], cases: NDArray[np.int64], confidence: float
) -> dict[str, NDArray[np.float64]]:
    low, high = wilson(successes, cases, confidence)
    share = np.divide(successes, cases, out=np.full(len(cases), np.nan), where=cases > 0)
    return {name: share, f"{name}_low": low, f"{name}_high": high}


def _blocks(
    favourable: int | str | Sequence[int | str] | None,
    labels: NDArray[np.int32],
    true: NDArray[np.int32],
    names: Sequence[str] | None,
) -> dict[str, NDArray[np.int32]]:
    """Return the classes that count as selected, by their name."""
    occurring = np.unique(np.concatenate([labels, true[true != UNKNOWN]]))
    named = _Named(names)
    if favourable is None:
        return {class_name(named, int(c)): np.array([c], np.int32) for c in occurring}
    given: list[Any] = [favourable] if np.ndim(favourable) == 0 else list(favourable)  # type: ignore[arg-type]
    named_classes = list(names or ())
    numbers = [named_classes.index(c) if c in named_classes else c for c in given]
    for c in numbers:
        if isinstance(c, str) or (c not in occurring and not 0 <= c < len(named_classes)):
            known = ", ".join([*map(str, occurring), *named_classes])
            raise ValueError(f"favourable must be among the classes ({known}), got {c!r}")
    classes = np.unique(as_labels("favourable", numbers, len(numbers)))
    if not len(classes):
        raise ValueError("favourable must hold one class at least, got none")
    return {" or ".join(class_name(named, int(c)) for c in classes): classes}


@dataclass(frozen=True, slots=True)
class _Named:
    class_names: Sequence[str] | None


def _true_classes(truth: Any, n: int, names: Sequence[str] | None) -> NDArray[np.int32]:
    if truth is None:
        return np.full(n, UNKNOWN, np.int32)
    given = truth if hasattr(truth, "detach") else np.asarray(truth)
    if hasattr(given, "detach") or given.dtype.kind in "biuf":
        return as_labels("truth", given, n, unknown=True)
    column = as_attributes({"truth": np.asarray(truth, dtype=object)})["truth"]
    known = list(names or ())
    for text in column.values:
        if text not in known:
            raise ValueError(f"truth must be among the class names ({', '.join(known)}), got {text!r}")
    if len(column.codes) != n:
        raise ValueError(f"truth must have shape ({n},), got {column.codes.shape}")
    codes = np.array([*(known.index(text) for text in column.values), UNKNOWN], np.int32)
    return codes[column.codes]


def _names(attributes: Attributes, names: Sequence[str]) -> list[str]:
    if isinstance(names, str):
        raise TypeError(f"names must be a sequence of names, got {names!r}")
    if not len(names):
        raise ValueError("names must hold one attribute at least, got none")
    return list(dict.fromkeys(attributes.known("names", name) for name in names))


def _rows(attributes: Attributes, nodes: ArrayLike | None) -> NDArray[np.int64]:
    n = len(attributes.ids)
    if nodes is None:
        return np.arange(n)
    array = as_array("nodes", nodes)
    if array.dtype != bool:
        return attributes.rows(np.unique(as_ids("nodes", array)))
    if array.shape != (n,):
        raise ValueError(f"nodes must have shape ({n},) as a mask, got {array.shape}")
    return np.flatnonzero(array)


def _eeo_1(category: str, patterns: tuple[str, ...]) -> int:
    """Return the place of a category in the EEO-1 report; what is not in it comes after."""
    text = re.sub(r"\bno[nt][ -]hispanic( or latino)?", "", category.lower())
    return next((place for place, pattern in enumerate(patterns) if re.search(pattern, text)), len(patterns))


def _law_order(part: dict[str, str]) -> tuple[Any, ...]:
    """Return what the law's lines are sorted by: Hispanic people by sex, then all others by sex and race."""
    sex, race = part.get("sex"), part.get("race")
    sex_place = -1 if sex is None else _eeo_1(sex, _SEXES)
    race_place = -1 if race is None else _eeo_1(race, _RACES)
    return (race_place > 0, sex_place, race_place, sex or "", race or "")
