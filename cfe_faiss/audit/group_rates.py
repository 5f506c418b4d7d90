"""Rates of groups: selection, impact ratios, accuracy, errors, equalised odds, and curves."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cfe_faiss.attributes.table import Attributes, as_attributes
from cfe_faiss.audit.groups import (
    DEFAULT_BINS,
    UNKNOWN_GROUP,
    Bins,
    Floats,
    Frame,
    Grouping,
    Ints,
    TableResult,
    groupings,
    person_numbers,
    share,
    stack,
)
from cfe_faiss.audit.intervals import (
    compare_rates,
    independent_share,
    independent_share_of_links,
    largest_gap,
    normal_quantile,
    rate_bounds,
    ratio_bounds,
    share_columns,
)
from cfe_faiss.base.checks import (
    UNKNOWN,
    Int32s,
    as_array,
    as_count,
    check_known,
    check_shape,
    to_host,
)
from cfe_faiss.base.extras import pd
from cfe_faiss.data.classes import (
    as_predictions,
    check_in_common,
    check_sides,
    class_name,
    class_numbers,
    in_words_of_decision,
    true_classes,
)
from cfe_faiss.data.roles import selective_classes

LIMIT_OF_GRAPHS = (
    "In a graph neighbours influence each other's predictions, and the intervals are rather too "
    "narrow."
)
LIMIT_OF_UNKNOWN = (
    "The bounds hold whichever of the groups the unknown people belong to, not if they belong "
    "to a group of their own. Of an intersection a person is unknown if any of the attributes "
    "is missing, so its bounds may be too wide."
)
LIMIT_OF_TRUTH = "Accuracy, error rates and equalised odds count the people with a true class only."
LIMIT_OF_RATES = (
    "Rates describe the decisions. They do not show why groups differ, nor whether a difference is "
    "justified."
)
LIMIT_OF_POWER = (
    'The verdict "no finding" means that an impact ratio of 0.7 would have been found in at least '
    "half of such samples. Smaller differences may exist."
)
_LIMIT_OF_LINKS = "Intervals treat links with a common end as dependent, and all others as not."
_LIMITS = (
    LIMIT_OF_RATES,
    "Intervals treat people as independent draws from a larger population.",
    "Intervals and tests hold for all groups of one attribute at once. Over several attributes "
    "and classes their p-values have to be adjusted.",
    "Groups of fewer than 30 people, and groups with fewer than 5 expected of either outcome, "
    "are listed but not ranked. They are neither the reference nor a finding, and their ratios "
    "have intervals for one group alone.",
    LIMIT_OF_POWER,
    LIMIT_OF_GRAPHS,
    LIMIT_OF_UNKNOWN,
    LIMIT_OF_TRUTH,
)
"""Questions that the numbers cannot answer."""

_BELOW_2_PERCENT = 0.02
_TURNED = {"above 1.25": "below 0.8", "above 1": "below 1"}
"""Verdict of the reference, compared with the group that has the verdict."""
_VERDICTS = ("below 0.8", "below 1", "cannot tell", "no finding")
"""The strongest first: an attribute has the strongest verdict of its groups."""

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


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class GroupMetrics(TableResult):
    """Rates of groups; made by :func:`group_metrics`.

    Attributes
    ----------
    names
        The attributes.
    count
        Number of people.
    classes
        Names of the classes that count as selected, one block of the tables for each.
    confidence
        As given.
    table
        One line per class and group:

        - ``class``, ``feature``, ``value``: the class that counts as selected, the attribute or
          intersection ("sex & race"; "all" for all people), and its value.
        - ``unknown``: whether this line counts the people whose attribute is missing. ``count``,
          ``share``: people in the group, and their share of all.
        - ``selected``, ``rate``, ``rate_low``, ``rate_high``: people selected, selection rate, its
          Wilson interval.
        - ``ranked``: whether the group has 30 people and 5 expected of either outcome.
          ``reference``: whether it is the reference: the largest ranked group unless another is
          named; of all groups, where none is ranked.
        - ``ratio``, ``ratio_low``, ``ratio_high``: impact ratio, the rate divided by that of the
          reference, and Koopman's interval. ``difference``, ...: the rate minus that of the
          reference, and Newcombe's interval.
        - ``p``: p-value of "same rate as the reference", for all groups of the attribute at once.
          ``power``: chance to find an impact ratio of 0.7 in a group of this size.
        - ``verdict``: "below 0.8", "below 1", "above 1" or "above 1.25" where the whole interval of
          the ratio is; otherwise "no finding", or "cannot tell" where ``power`` is below 0.5, or
          the group or the reference is not ranked. Empty for the reference.
        - ``rate_least``, ``rate_most``, ``ratio_least``, ``ratio_most``: rate and impact ratio that
          are possible, depending on the groups of the unknown people.
        - ``judged``: people with a true class. ``TP``, ``FP``, ``TN``, ``FN``: among them, with the
          class as positive.
        - ``precision``, ``accuracy``, ``fpr``, ``fnr``: TP / (TP + FP); share of judged people with
          the right class; FP / (FP + TN); FN / (FN + TP); each with its Wilson interval in ``_low``
          and ``_high``. The last three are NaN where the true class is known of one decision only,
          such as repayment of granted loans.

        NaN without cases. Intervals hold for all groups of an attribute at once.
    summary
        One line per class and attribute:

        - ``class``, ``feature``; ``groups``, ``ranked``: number of groups with people, and of
          ranked ones.
        - ``verdict``: the strongest verdict of a ranked group. ``p``, ``power``: their least
          p-value and power.
        - ``value``, ``count``, ``ratio``, ``ratio_low``, ``ratio_high``, ``difference``: of the
          comparisons with this verdict the one with the least ratio (without a group below 1, with
          the least p), from the side of the group selected less often, which may be the reference
          of ``table``. ``reference``: the other group.
        - ``tpr_difference``, ``fpr_difference``, ``equalised_odds_difference``: largest difference
          of true positive rates and of false positive rates between ranked groups, and the larger
          of both; ``equalised_odds_ratio``: the least ratio of either rate. Each has an interval in
          ``_low`` and ``_high``; NaN without true classes, or where fewer than two groups are
          ranked among the people of a true class.
    limits
        Limits of the numbers, in sentences.
    """

    names: tuple[str, ...]
    count: int
    classes: tuple[str, ...]
    confidence: float
    summary: Frame
    _parts: Mapping[tuple[str, str], tuple[str, ...]]

    def __repr__(self) -> str:
        features = list(dict.fromkeys(self.table["feature"]))[1:]
        return f"GroupMetrics({self.count:,} people, groups by {', '.join(features)})"

    def local_law_144(self, sex: str, race: str, favourable: str | None = None) -> dict[str, Frame]:
        """Return the tables of a bias audit as New York City's Local Law 144 asks for them.

        Rules of the Department of Consumer and Worker Protection, 6 RCNY § 5-301 (b): selection
        rate and impact ratio by sex, by race/ethnicity and by their intersection, in this order,
        the number of applicants (§ 5-303), and the number of those whose category is unknown. §
        5-301 (d) allows to leave categories below 2 % of the data out of the impact ratios; they
        are shown with their rate and without a ratio, ``excluded``. The rules ask for the auditor's
        reasons in that case.

        Parameters
        ----------
        sex, race
            Names of the two attributes.
        favourable
            Name of the class that counts as selected; needed where the table has several.

        Returns
        -------
        dict of DataFrame
            "Sex", "Race/Ethnicity" and "Intersectional". Columns: ``category`` (in the last
            ``race`` and ``sex`` instead), ``applicants``, ``selected``, ``selection_rate``,
            ``impact_ratio``, ``excluded``. Categories of the EEO-1 report come in its order, others
            after them. The last line counts the unknown.

        Raises
        ------
        ValueError
            If the attributes or their intersection are not in the table, or the class is not or not
            unique.

        Notes
        -----
        A tool that gives scores is judged by its scoring rate, the share with a score above the
        median of the sample (§ 5-301 (c)): pass ``score > median`` as ``y_pred``.

        The law asks for more than these tables: whose data, which dates, an independent auditor,
        publication. The ratios do not show compliance with it.
        """
        if favourable is None and len(self.classes) > 1:
            raise ValueError(
                f"favourable must name one of the classes ({', '.join(self.classes)}), got None"
            )
        selected = self.classes[0] if favourable is None else str(favourable)
        if selected not in self.classes:
            raise ValueError(
                f"favourable must be one of {', '.join(self.classes)}, got {favourable!r}"
            )
        table = self.table[self.table["class"] == selected]
        for name in (sex, race):
            check_known("sex and race must name attributes of the table", name, self.names)
        crossed = {f"{sex} & {race}": ("sex", "race"), f"{race} & {sex}": ("race", "sex")}
        both = next((name for name in crossed if name in set(table["feature"])), None)
        if both is None:
            raise ValueError(
                f"the table must hold the intersection of {sex!r} and {race!r}: see intersections"
            )
        return {
            "Sex": self._law_table(table, sex, ("sex",)),
            "Race/Ethnicity": self._law_table(table, race, ("race",)),
            "Intersectional": self._law_table(table, both, crossed[both]),
        }

    def _law_table(self, table: Frame, feature: str, columns: tuple[str, ...]) -> Frame:
        """Return the lines of one attribute or of the intersection, in the order of the law."""
        rates = table[table["feature"] == feature]
        unknown = rates[rates["unknown"]]
        known_groups = rates[~rates["unknown"]]
        compared = known_groups["share"] >= _BELOW_2_PERCENT
        largest = known_groups["rate"][compared].max()
        lines: list[dict[str, Any]] = [
            dict(zip(columns, self._parts[feature, value], strict=True))
            | {"applicants": count, "selected": selected, "selection_rate": rate}
            | {
                "impact_ratio": rate / largest if is_compared and largest > 0 else np.nan,
                "excluded": not is_compared,
            }
            for value, count, selected, rate, is_compared in zip(
                *(known_groups[name] for name in ("value", "count", "selected", "rate")),
                compared,
                strict=True,
            )
        ]
        count = int(unknown["count"].sum())
        selected = int(unknown["selected"].sum())
        last: dict[str, Any] = dict.fromkeys(columns, "Unknown") | {
            "applicants": count,
            "selected": selected,
            "selection_rate": selected / count if count else np.nan,
            "impact_ratio": np.nan,
            "excluded": False,
        }
        names = ("race", "sex") if len(columns) > 1 else columns
        frame = pd.DataFrame(
            [*sorted(lines, key=_law_order), last], columns=[*names, *list(last)[len(columns) :]]
        )
        return frame if len(columns) > 1 else frame.rename(columns={columns[0]: "category"})


def group_metrics(  # noqa: PLR0913
    *,
    y_true: Any = None,
    y_pred: Any,
    sensitive_features: Any,
    favourable: int | str | Sequence[int | str] | None = None,
    truth_favourable: int | str | Sequence[int | str] | None = None,
    intersections: Sequence[Sequence[str]] | None = None,
    bins: Bins = DEFAULT_BINS,
    class_names: Sequence[str] | None = None,
    unknown: Collection[Any] | None = None,
    confidence: float = 0.95,
    reference: Mapping[str, Any] | None = None,
    person: Any = None,
    ends: ArrayLike | None = None,
) -> GroupMetrics:
    """Return selection rates, impact ratios, error rates and equalised odds of groups.

    The arguments are named as in fairlearn's ``MetricFrame``. Rows are matched by position.

    Parameters
    ----------
    y_true
        True classes, (n,), in the words of ``y_pred`` or in others; None: no error rates.
    y_pred
        Predictions, (n,): class numbers or class names; or probabilities, (n, C).
    sensitive_features
        Attributes: an array (n,), a matrix (n, m), a mapping from names to arrays, a frame.
    favourable, truth_favourable
        Classes that count as selected, together, by name or number; by default each in turn,
        against the rest. True classes that agree, if the truth has different names ("repaid").
    intersections
        Tuples of attributes whose combinations are groups, too; default: all together, if several.
    bins, confidence, class_names, unknown
        As in :func:`cfe_faiss.audit.groups.groupings`; level of intervals in (0, 1); as in
        :meth:`cfe_faiss.EvidenceFinder.from_vectors`.
    reference
        By attribute (or "sex & race"): the group to compare with. Default: the largest ranked one.
    person
        Person of each row, (n,); rows without a value, and by default all, are different people.
    ends
        Nodes at both ends, (n, 2), if rows are links. Rows with one person or end are dependent.

    Returns
    -------
    GroupMetrics
        ``table`` with one line per group, ``summary`` with one line per attribute.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, or lengths or pandas indexes differ.

    Notes
    -----
    Selection rate and impact ratio: Uniform Guidelines on Employee Selection Procedures (29 CFR §
    1607.4 D, the "four-fifths rule") and New York City's Local Law 144. Equalised odds: Hardt et
    al., NIPS 2016. Rates: Wilson's interval at the level confidence^(1/G) for G groups (Šidák).
    Ratios and differences: Koopman (Biometrics 40, 1984) and Newcombe (Statistics in Medicine 17,
    1998), with Tukey's studentized range in place of the normal quantile. Rates near 0 or 1 of
    small groups are within them less often: at 98 %, all of 20, ten of 30 people, in 77 %.

    Examples
    --------
    >>> sex = ["f"] * 100 + ["m"] * 100 + [None] * 10
    >>> decisions = ["granted"] * 20 + ["refused"] * 80 + ["granted"] * 50 + ["refused"] * 60
    >>> metrics = group_metrics(y_pred=decisions, sensitive_features=sex, favourable="granted")
    >>> metrics.table[["value", "count", "selected", "verdict", "ratio", "ratio_high"]].round(2)
         value  count  selected    verdict  ratio  ratio_high
    0             210        70               NaN         NaN
    1        f    100        20  below 0.8    0.4        0.61
    2        m    100        50               1.0        1.00
    3  unknown     10         0               NaN         NaN
    """
    normal_quantile(confidence)  # checks it
    attributes = sensitive_attributes(sensitive_features)
    _check_indexes(
        y_true=y_true, y_pred=y_pred, sensitive_features=sensitive_features, person=person
    )
    n = len(attributes.ids)
    persons = person_numbers(_drop_index(person), n)
    nodes = None if ends is None else _as_ends(ends, n, person)
    predicted = as_predictions(_drop_index(y_pred), n, class_names, "y_pred", unknown=unknown)
    labels = predicted.labels
    words = predicted.class_names
    true = np.full(n, UNKNOWN, np.int32)
    is_named = class_names is not None
    if y_true is not None:
        true, words = true_classes(
            "y_true", _drop_index(y_true), labels, words, is_named=is_named, unknown=unknown
        )
    blocks = _blocks(favourable, labels, true, words)
    if truth_favourable is None:
        check_in_common("y_true", labels, true, words)
        if not is_named:
            check_sides(labels, true, words)
    elif len(blocks) != 1:
        raise ValueError(
            "favourable must name the predicted classes that agree with truth_favourable, got None"
        )
    else:
        count = (
            1 + int(max(labels.max(initial=0), true.max(initial=0)))
            if words is None
            else len(words)
        )
        wanted = class_numbers("truth_favourable", truth_favourable, words, count)
        true = in_words_of_decision(labels, true, next(iter(blocks.values())), wanted, count)
    names = list(attributes)
    crossed = (
        [names] * (len(names) > 1)
        if intersections is None
        else [[attributes.known("intersections", name) for name in own] for own in intersections]
    )
    groups = groups_of(attributes, crossed, bins)
    references = _references(reference, groups)
    rates = [
        _table(group, *block, labels, true, persons, nodes, confidence, references.get(group.name))
        for block in blocks.items()
        for group in groups
    ]
    tables = [table for table, _ in rates]
    summaries = [
        _summary(*parts, confidence) for parts in rates if parts[0]["feature"].iloc[0] != "all"
    ]
    return GroupMetrics(
        table=stack(tables),
        limits=_LIMITS if ends is None else (LIMIT_OF_RATES, _LIMIT_OF_LINKS, *_LIMITS[2:]),
        names=tuple(names),
        count=n,
        classes=tuple(blocks),
        confidence=confidence,
        summary=pd.DataFrame(summaries),
        _parts={
            (group.name, value): part
            for group in groups
            for value, part in zip(group.values, group.parts, strict=True)
        },
    )


def groups_of(
    attributes: Attributes, crossed: Sequence[Sequence[str]], bins: Bins
) -> list[Grouping]:
    """Return all people as one group, then the groups of each attribute and of each intersection.

    -1: not known.
    """
    ids = attributes.ids
    return [
        Grouping.of_all(len(ids)),
        *groupings(attributes, ids, None, bins, crossed, with_missing=False),
    ]


def _table(  # noqa: PLR0913
    group: Grouping,
    name: str,
    selected_classes: Int32s,
    labels: Int32s,
    true: Int32s,
    persons: Ints,
    ends: Ints | None,
    confidence: float,
    reference: str | None,
) -> tuple[Frame, tuple[Floats, Floats]]:
    """Return the rates of all groups of an attribute for some selected classes.

    Also the share of independent cases among the people of the class, and among all others, by
    line.
    """
    g = len(group.values)
    whole = group.name == "all"
    places = np.where(group.codes == UNKNOWN, g, group.codes)
    positive = np.isin(labels, selected_classes)
    actual = np.isin(true, selected_classes)
    judged = true != UNKNOWN
    is_selective = bool(selective_classes(positive.astype(np.int32), judged))
    masks = {
        "count": np.ones(len(places), bool),
        "selected": positive,
        "judged": judged,
        "TP": judged & positive & actual,
        "FP": judged & positive & ~actual,
        "TN": judged & ~positive & ~actual,
        "FN": judged & ~positive & actual,
        "right": judged & (labels == true),
    }
    n = {
        key: np.bincount(places[mask], minlength=g + 1).astype(np.int64)
        for key, mask in masks.items()
    }
    cases = {
        "count": masks["count"],
        "judged": judged,
        "selected": judged & positive,
        "true": judged & actual,
        "false": judged & ~actual,
    }
    outcomes = {
        "count": positive,
        "judged": masks["right"],
        "selected": masks["TP"],
        "true": masks["FN"],
        "false": masks["FP"],
    }
    parts = {
        key: independent_share(places[mask], persons[mask], g + 1)
        if ends is None
        else independent_share_of_links(places[mask], outcomes[key][mask], ends[mask], g + 1)
        for key, mask in cases.items()
    }
    each = confidence ** (1 / max(int((n["count"][:g] > 0).sum()), 1))
    columns: dict[str, Any] = {
        "class": name,
        "feature": group.name,
        "value": [*group.values, UNKNOWN_GROUP],
        "unknown": np.arange(g + 1) == g,
        "count": n["count"],
        "share": n["count"] / max(len(places), 1),
        "selected": n["selected"],
        **share_columns("rate", n["selected"], n["count"], each, parts["count"]),
    }
    # All people together are compared with nobody.
    known = np.where(whole, 0, n["selected"][:g]), np.where(whole, 0, n["count"][:g])
    spread = int(n["selected"][g]), int(n["count"][g])
    chosen = None if reference is None else group.values.index(reference)
    independent = parts["count"][:g]
    compared = compare_rates(known[0] * independent, known[1] * independent, confidence, chosen)
    place = int(compared["reference"].argmax()) if g else 0
    possible = [*rate_bounds(*known, *spread), *ratio_bounds(*known, *spread, place)]
    compared |= dict(
        zip(("rate_least", "rate_most", "ratio_least", "ratio_most"), possible, strict=True)
    )
    for key, values in compared.items():
        nothing: Any = {"b": False, "O": ""}.get(values.dtype.kind, np.nan)
        columns[key] = np.append(np.full_like(values, nothing) if whole else values, nothing)
    counted = 0 if is_selective else 1  # errors of the other decision are unknown
    negatives = counted * (n["FP"] + n["TN"])
    positives = counted * (n["FN"] + n["TP"])
    table = pd.DataFrame(
        {
            **columns,
            **{key: n[key] for key in ("judged", "TP", "FP", "TN", "FN")},
            **share_columns("precision", n["TP"], n["TP"] + n["FP"], each, parts["selected"]),
            **share_columns("accuracy", n["right"], counted * n["judged"], each, parts["judged"]),
            **share_columns("fpr", n["FP"], negatives, each, parts["false"]),
            **share_columns("fnr", n["FN"], positives, each, parts["true"]),
        }
    )
    return (table if n["count"][g] else table.iloc[:g]), (parts["true"], parts["false"])


def _summary(table: Frame, independent: tuple[Floats, Floats], confidence: float) -> dict[str, Any]:
    """Return the line of an attribute: its verdict, the group with it, and equalised odds."""
    known_groups = table[~table["unknown"] & (table["count"] > 0)]
    others = known_groups[~known_groups["reference"]]
    ranked = others[others["ranked"]]
    compared = (ranked if len(ranked) else others).assign(
        verdict=lambda table: table["verdict"].replace(_TURNED)
    )
    verdict = next(
        (verdict for verdict in _VERDICTS if (compared["verdict"] == verdict).any()), "cannot tell"
    )
    reference = known_groups[known_groups["reference"]]
    shown_columns = ["value", "count", "ratio", "ratio_low", "ratio_high", "difference"]
    line: dict[str, Any] = {
        **table[["class", "feature"]].iloc[0],
        "groups": len(known_groups),
        "ranked": int(known_groups["ranked"].sum()),
        "verdict": verdict,
        "p": ranked["p"].min(),
        "power": ranked["power"].min(),
        "reference": next(iter(reference["value"]), ""),
        **dict.fromkeys(shown_columns),
    }
    lines = compared[compared["verdict"] == verdict]
    if len(lines):
        distance = np.minimum(lines["ratio"], 1 / lines["ratio"])
        keys = ["distance"] if verdict.startswith("below") else ["p", "distance"]
        shown_line = (
            lines.assign(distance=distance).sort_values(keys, kind="stable").iloc[0].to_dict()
        )
        line |= {name: shown_line[name] for name in shown_columns}
        if shown_line["ratio"] > 1:  # the reference is the group that is selected less often
            line |= {
                "value": line["reference"],
                "reference": line["value"],
                **turned(shown_line, shown_columns),
                "count": reference["count"].iloc[0],
            }
    of_true, of_false = (part[known_groups.index] for part in independent)
    if table["accuracy"].isna().all():  # errors are unknown
        of_true = np.zeros(len(known_groups))
        of_false = of_true
    tp, fn = (known_groups[name].to_numpy() * of_true for name in ("TP", "FN"))
    fp, tn = (known_groups[name].to_numpy() * of_false for name in ("FP", "TN"))
    tpr, fpr = (largest_gap(x, n, (1 + confidence) / 2) for x, n in ((tp, tp + fn), (fp, fp + tn)))
    for end in ("", "_low", "_high"):
        gaps = (tpr[f"difference{end}"], fpr[f"difference{end}"])
        line |= {
            f"tpr_difference{end}": gaps[0],
            f"fpr_difference{end}": gaps[1],
            f"equalised_odds_difference{end}": float(np.maximum(*gaps)),
            f"equalised_odds_ratio{end}": float(np.minimum(tpr[f"ratio{end}"], fpr[f"ratio{end}"])),
        }
    return line


def turned(line: Mapping[Any, Any], names: Collection[str]) -> dict[str, float]:
    """Return numbers of the reference, compared with a group of :attr:`GroupMetrics.table`."""
    ends = {"": "", "_low": "_high", "_high": "_low"}
    with np.errstate(divide="ignore"):
        numbers = {
            f"ratio{end}": 1 / np.float64(line[f"ratio{other}"]) for end, other in ends.items()
        }
    numbers |= {f"difference{end}": -line[f"difference{other}"] for end, other in ends.items()}
    return {name: number for name, number in numbers.items() if name in names}


def _references(reference: Mapping[str, Any] | None, groups: Sequence[Grouping]) -> dict[str, str]:
    """Return the name of the reference group of each attribute that has one."""
    if reference is None:
        return {}
    if not isinstance(reference, Mapping):
        raise TypeError(f"reference must map attributes to the values of groups, got {reference!r}")
    by_name = {group.name: group for group in groups}
    for attribute, value in reference.items():
        check_known("reference must name attributes or intersections", str(attribute), by_name)
        check_known(
            f"reference[{attribute!r}] must be a group", str(value), by_name[str(attribute)].values
        )
    return {str(attribute): str(value) for attribute, value in reference.items()}


def _blocks(
    favourable: int | str | Sequence[int | str] | None,
    labels: Int32s,
    true: Int32s,
    words: tuple[str, ...] | None,
) -> dict[str, Int32s]:
    """Return the classes that count as selected, by their name."""
    occurring = np.unique(np.concatenate([labels, true[true != UNKNOWN]]))
    if favourable is None:
        return {class_name(words, int(c)): np.array([c], np.int32) for c in occurring}
    names = words or tuple(map(str, occurring))
    selected = np.sort(class_numbers("favourable", favourable, names, len(names)))
    if words is None:
        selected = occurring[selected]
    return {" or ".join(class_name(words, int(c)) for c in selected): selected}


def sensitive_attributes(values: Any) -> Attributes:
    """Return the sensitive features by name, row i that of place i."""
    features: Any = values
    if hasattr(values, "to_frame") and hasattr(values, "name"):
        features = values.to_frame(
            "sensitive_feature_0" if values.name in (None, "") else str(values.name)
        )
    elif not (isinstance(values, Mapping) or hasattr(values, "columns") or hasattr(values, "x")):
        array = np.asanyarray(to_host(values))  # a masked array keeps its mask
        columns = array.T if array.ndim == 2 else [array][: array.ndim]
        features = {f"sensitive_feature_{j}": column for j, column in enumerate(columns)}
    attributes = as_attributes(_drop_index(features), "sensitive_features")
    if not len(attributes):
        raise ValueError(
            "sensitive_features must have shape (n,) or (n, m) and hold one attribute at least, "
            "got none"
        )
    return attributes


def _as_ends(ends: ArrayLike, n: int, person: Any) -> Ints:
    """Return the numbers of the nodes at both ends of each link, (n, 2)."""
    if person is not None:
        raise ValueError("person must be left out with ends, which say which rows are dependent")
    array = as_array("ends", ends)
    check_shape("ends", array, (n, 2), "two nodes of each link")
    if array.dtype.kind not in "iu":
        raise TypeError(f"ends must hold integers, got {array.dtype}")
    return np.unique(array, return_inverse=True)[1].reshape(n, 2)


def _drop_index(values: Any) -> Any:
    """Return a pandas object with rows 0..n-1; return other objects unchanged."""
    return values.reset_index(drop=True) if hasattr(values, "reset_index") else values


def _check_indexes(**arguments: Any) -> None:
    """Raise ValueError if pandas objects have different indexes, and so perhaps other rows."""
    indexes = {
        name: values.index for name, values in arguments.items() if hasattr(values, "reset_index")
    }
    for name, index in indexes.items():
        first = next(iter(indexes))
        if not index.equals(indexes[first]):
            raise ValueError(
                f"{name} must have the same pandas index as {first}: sort the rows alike, or pass "
                f"arrays"
            )


def _eeo_1(category: str, patterns: tuple[str, ...]) -> int:
    """Return the position of a category in the EEO-1 report; other categories come after."""
    text = re.sub(r"\bno[nt][ -]hispanic( or latino)?", "", category.lower())
    return next(
        (place for place, pattern in enumerate(patterns) if re.search(pattern, text)), len(patterns)
    )


def _law_order(part: dict[str, str]) -> tuple[Any, ...]:
    """Return the key that sorts a line of the law's tables: Hispanic people by sex first."""
    sex = part.get("sex")
    race = part.get("race")
    sex_place = -1 if sex is None else _eeo_1(sex, _SEXES)
    race_place = -1 if race is None else _eeo_1(race, _RACES)
    return (race_place > 0, sex_place, race_place, sex or "", race or "")


# --- probabilities: calibration, and rates at every threshold -------------------------------------


def calibration_curves(
    *,
    y_true: ArrayLike,
    y_prob: ArrayLike,
    sensitive_features: Any,
    n_bins: int = 10,
    bins: Bins = DEFAULT_BINS,
    confidence: float = 0.95,
) -> Frame:
    """Return the share of truly favourable people by group and bin of probabilities.

    Parameters
    ----------
    y_true
        Whether the favourable outcome is true, (n,): 1 or 0; -1 or NaN where it is not known.
    y_prob
        Probability of the favourable outcome, (n,), in [0, 1].
    sensitive_features, bins
        Groups, as in :func:`cfe_faiss.audit.group_metrics`.
    n_bins
        Bins of equal width, as in ``sklearn.calibration.calibration_curve``.
    confidence
        Of each interval alone, in (0, 1).

    Returns
    -------
    DataFrame
        One line per group and bin with people in it: ``feature``, ``value``; ``bin``, from 0;
        ``count``, people whose outcome is known; ``predicted``, their mean probability;
        ``observed``, ``observed_low``, ``observed_high``: the share with the favourable outcome and
        its Wilson interval. The first lines (``feature`` "all") are of everyone.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Examples
    --------
    >>> sex = ["f"] * 4 + ["m"] * 4
    >>> curves = calibration_curves(
    ...     y_true=[0, 0, 1, 1, 0, 1, 1, 1],
    ...     y_prob=[0.2, 0.2, 0.7, 0.8] * 2,
    ...     sensitive_features={"sex": sex},
    ...     n_bins=2,
    ... )
    >>> curves[["feature", "value", "bin", "count", "predicted", "observed"]].tail(4).round(2)
      feature value  bin  count  predicted  observed
    2     sex     f    0      2       0.20       0.0
    3     sex     f    1      2       0.75       1.0
    4     sex     m    0      2       0.20       0.5
    5     sex     m    1      2       0.75       1.0
    """
    n_bins = as_count("n_bins", n_bins)
    groups, prob, truth = _inputs(sensitive_features, bins, y_prob, y_true)
    places = np.searchsorted(np.linspace(0, 1, n_bins + 1)[1:-1], prob)
    blocks: list[dict[str, Any]] = []
    for group in groups:
        is_judged = (group.codes >= 0) & ~np.isnan(truth)
        cells = group.codes[is_judged] * n_bins + places[is_judged]
        size = len(group.values) * n_bins
        count = np.bincount(cells, minlength=size)
        right, total = (np.bincount(cells, values[is_judged], size) for values in (truth, prob))
        filled_bins = np.flatnonzero(count)
        blocks.append(
            {
                "feature": group.name,
                "value": [group.values[cell // n_bins] for cell in filled_bins],
                "bin": filled_bins % n_bins,
                "count": count[filled_bins],
                "predicted": total[filled_bins] / count[filled_bins],
                **share_columns("observed", right[filled_bins], count[filled_bins], confidence),
            }
        )
    return stack(blocks)


def threshold_curves(
    *,
    y_prob: ArrayLike,
    sensitive_features: Any,
    y_true: ArrayLike | None = None,
    thresholds: Sequence[float] | None = None,
    bins: Bins = DEFAULT_BINS,
) -> Frame:
    """Return selection and error rates of each group at every threshold of the probability.

    Parameters
    ----------
    y_prob, sensitive_features, bins
        As in :func:`calibration_curves`.
    y_true
        As in :func:`calibration_curves`; without it there are no error rates.
    thresholds
        Least probability of those selected; by default 0, 0.05, ..., 1.

    Returns
    -------
    DataFrame
        One line per group and threshold: ``feature``, ``value``, ``threshold``, ``count``, ``rate``
        (selection rate), ``tpr`` and ``fpr`` (true and false positive rate; NaN without cases). The
        first lines are of all people (``feature`` "all").

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Examples
    --------
    >>> curves = threshold_curves(
    ...     y_prob=[0.2, 0.6, 0.4, 0.9],
    ...     sensitive_features={"sex": ["f", "f", "m", "m"]},
    ...     thresholds=[0.5, 0.8],
    ... )
    >>> curves.loc[curves["feature"] == "sex", ["value", "threshold", "rate"]]
      value  threshold  rate
    2     f        0.5   0.5
    3     f        0.8   0.0
    4     m        0.5   0.5
    5     m        0.8   0.5
    """
    points = (
        np.arange(21) / 20
        if thresholds is None
        else as_array("thresholds", thresholds).astype(np.float64)
    )
    groups, prob, truth = _inputs(sensitive_features, bins, y_prob, y_true)
    selected = prob[:, None] >= points
    blocks = []
    for group in groups:
        for code, value in enumerate(group.values):
            is_member = group.codes == code
            of_truth = {"tpr": is_member & (truth == 1), "fpr": is_member & (truth == 0)}
            parts = {"rate": is_member, **of_truth}
            blocks.append(
                {
                    "feature": group.name,
                    "value": value,
                    "threshold": points,
                    "count": int(is_member.sum()),
                    **{
                        name: share(selected[part].sum(axis=0), part.sum())
                        for name, part in parts.items()
                    },
                }
            )
    return stack(blocks)


def _inputs(
    sensitive_features: Any, bins: Bins, y_prob: ArrayLike, y_true: ArrayLike | None
) -> tuple[list[Grouping], Floats, Floats]:
    """Return the groups, probabilities, and outcomes: 1, 0, or NaN if not known."""
    groups = groups_of(sensitive_attributes(sensitive_features), [], bins)
    n = len(groups[0].codes)
    prob = as_array("y_prob", y_prob).astype(np.float64)
    if prob.shape != (n,) or not ((prob >= 0) & (prob <= 1)).all():
        raise ValueError(
            f"y_prob must have shape ({n},) and lie in 0..1, got {prob.shape}, {prob.ravel()[:8]}"
        )
    truth = np.full(n, np.nan) if y_true is None else as_array("y_true", y_true).astype(np.float64)
    truth = np.where(truth == -1, np.nan, truth)
    if truth.shape != (n,) or not np.isin(truth[~np.isnan(truth)], (0, 1)).all():
        expected = f"have shape ({n},) and hold 0, 1, or -1 if unknown"
        raise ValueError(f"y_true must {expected}, got {truth.shape}, {truth[:8]}")
    return groups, prob, truth
