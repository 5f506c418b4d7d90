"""Rates of groups: selection rates, impact ratios, accuracy, error rates and equalised odds."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.attributes.classes import as_predictions
from cfe_faiss.attributes.table import Attribute, Attributes, as_attributes
from cfe_faiss.audit.bounds import rate_bounds, ratio_bounds
from cfe_faiss.audit.comparisons import compare_rates, largest_gap
from cfe_faiss.audit.features import class_name
from cfe_faiss.audit.groups import DEFAULT_BINS, Bins, groupings
from cfe_faiss.audit.intervals import normal_quantile, wilson
from cfe_faiss.base.checks import UNKNOWN, as_labels
from cfe_faiss.base.extras import extra
from cfe_faiss.finder.frames import table_html

if TYPE_CHECKING:
    import pandas as pd

_UNKNOWN = "unknown"
_BELOW_2_PERCENT = 0.02
_VERDICTS = ("below 0.8", "below 1", "cannot tell", "no finding")
"""The strongest first: what one group shows holds for its attribute."""

_LIMITS = (
    "Rates describe the decisions. They do not show why groups differ, nor whether a difference is justified.",
    "Intervals treat people as independent draws from a larger population. In a graph neighbours influence each "
    "other's predictions, and the intervals are rather too narrow.",
    "Intervals and tests hold for all groups of one attribute at once, so the group that is selected most often may be "
    "chosen from the data. Over several attributes and classes their p-values have to be adjusted.",
    "Groups of fewer than 30 people, and groups with fewer than 5 expected of either outcome, are listed but not "
    "ranked. They are neither the reference nor a finding, and their ratios have intervals for one group alone.",
    '"No finding" means that an impact ratio of 0.7 would have been found in at least half of such samples. Smaller '
    "differences may exist.",
    "The bounds hold whichever of the groups the unknown people belong to, not if they belong to a group of their own. "
    "Of an intersection a person is unknown if any of the attributes is missing, so its bounds may be too wide.",
    "Accuracy, error rates and equalised odds count the people with a true class only.",
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

        - ``class``, ``feature``, ``value``: the class that counts as selected, the attribute or intersection ("sex &
          race"; "all" for all people), and its value.
        - ``unknown``: whether this line counts the people whose attribute is missing. ``count``, ``share``: people in
          the group, and their share of all.
        - ``selected``, ``rate``, ``rate_low``, ``rate_high``: people selected, selection rate, its Wilson interval.
        - ``ranked``: whether the group has 30 people and 5 expected of either outcome. ``reference``: whether it is the
          ranked group selected most often; of all groups, where none is ranked.
        - ``ratio``, ``ratio_low``, ``ratio_high``: impact ratio, the rate divided by that of the reference, and
          Koopman's interval. ``difference``, ...: the rate minus that of the reference, and Newcombe's interval.
        - ``p``: p-value of "same rate as the reference", for all groups of the attribute at once. ``power``: chance to
          find an impact ratio of 0.7 in a group of this size.
        - ``verdict``: "below 0.8" or "below 1" where the whole interval of the ratio is below; otherwise "no finding",
          or "cannot tell" where ``power`` is below 0.5 or the group is not ranked. Empty for the reference.
        - ``rate_least``, ``rate_most``, ``ratio_least``, ``ratio_most``: rate and impact ratio that are possible,
          depending on the groups of the unknown people.
        - ``judged``: people with a true class. ``TP``, ``FP``, ``TN``, ``FN``: among them, with the class as positive.
        - ``accuracy``, ``fpr``, ``fnr``: share of judged people with the right class; FP / (FP + TN); FN / (FN + TP);
          each with its Wilson interval in ``_low`` and ``_high``.

        NaN where there are no cases. Intervals hold for all groups of an attribute at once.
    summary
        One line per class and attribute:

        - ``class``, ``feature``; ``groups``, ``ranked``: number of groups with people, and of ranked ones.
        - ``verdict``: the strongest verdict of a ranked group. ``p``, ``power``: their least p-value and power.
        - ``value``, ``count``, ``ratio``, ``ratio_low``, ``ratio_high``: the group with the least ratio of those with
          this verdict. ``reference``: the group that it is compared with.
        - ``tpr_difference``, ``fpr_difference``, ``equalised_odds_difference``: largest difference of true positive
          rates and of false positive rates between ranked groups, and the larger of both; ``equalised_odds_ratio``: the
          least ratio of either rate. Each has an interval in ``_low`` and ``_high``; NaN without true classes, or where
          fewer than two groups are ranked among the people of a true class.
    limits
        Limits of the numbers, in sentences.
    """

    names: tuple[str, ...]
    count: int
    classes: tuple[str, ...]
    confidence: float
    table: "pd.DataFrame"
    summary: "pd.DataFrame"
    limits: tuple[str, ...]
    _parts: Mapping[tuple[str, str], tuple[str, ...]]

    _repr_html_ = table_html

    def __repr__(self) -> str:
        features = list(dict.fromkeys(self.table["feature"]))[1:]
        return f"GroupMetrics({self.count:,} people, groups by {', '.join(features)})"

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
        5-301 (c)): pass ``score > median`` as ``y_pred``.

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
        excluded = (own["share"] < _BELOW_2_PERCENT).to_numpy()
        rates = own["rate"].to_numpy()
        largest = np.max(rates[~excluded & ~np.isnan(rates)], initial=0.0)
        figures = {
            "applicants": own["count"].to_numpy(),
            "selected": own["selected"].to_numpy(),
            "selection_rate": rates,
            "impact_ratio": np.where(excluded | (largest == 0), np.nan, rates / (largest or 1)),
            "excluded": excluded,
        }
        order = sorted(range(len(own)), key=lambda i: _law_order(parts[i]))
        known = pd.concat([pd.DataFrame(parts, columns=columns), pd.DataFrame(figures)], axis=1).iloc[order]
        unknown = table[(table["feature"] == feature) & table["unknown"]]
        count, selected = int(unknown["count"].sum()), int(unknown["selected"].sum())
        line: dict[str, list[Any]] = {column: ["Unknown"] for column in columns}
        line |= {
            "applicants": [count],
            "selected": [selected],
            "selection_rate": [selected / count if count else np.nan],
        }
        line |= {"impact_ratio": [np.nan], "excluded": [False]}
        return pd.concat([known, pd.DataFrame(line)], ignore_index=True)


def group_metrics(  # noqa: PLR0913
    *,
    y_true: Any = None,
    y_pred: Any,
    sensitive_features: Any,
    favourable: int | str | Sequence[int | str] | None = None,
    intersections: Sequence[Sequence[str]] | None = None,
    bins: Bins = DEFAULT_BINS,
    class_names: Sequence[str] | None = None,
    confidence: float = 0.95,
) -> GroupMetrics:
    """Return selection rates, impact ratios, error rates and equalised odds of groups and of their intersections.

    The arguments are those of fairlearn's ``MetricFrame``. Rows are matched by position.

    Parameters
    ----------
    y_true
        True classes, (n,): numbers, -1 or NaN where one is not known, or texts, None where one is not. Without them
        there are no accuracy, error rates and equalised odds.
    y_pred
        Predictions, (n,): class numbers or class names; or probabilities, (n, C).
    sensitive_features
        Attributes whose values are the groups: an array, list or Series (n,); a matrix (n, m), a mapping from names to
        arrays, or a DataFrame.
    favourable
        The class or classes that count as selected, together, by number or by name; by default each class in turn,
        against the rest.
    intersections
        Tuples of attributes whose combinations are groups, too; by default all attributes together, where there are
        several.
    bins
        Cuts of numbers into groups, as in :func:`cfe_faiss.audit.groups.groupings`.
    class_names
        Name of class 0, 1, ...; by default the classes are numbers, or all texts of ``y_pred`` and ``y_true``.
    confidence
        Of the intervals and verdicts, in (0, 1).

    Returns
    -------
    GroupMetrics
        ``table`` with one line per group, ``summary`` with one line per attribute.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, lengths or pandas indexes differ, or ``y_true`` and ``y_pred`` have no class
        name in common.

    Notes
    -----
    Selection rate and impact ratio are those of the Uniform Guidelines on Employee Selection Procedures (29 CFR
    § 1607.4 D, the "four-fifths rule") and of New York City's Local Law 144. Equalised odds: Hardt, Price & Srebro,
    NIPS 2016. Rates have Wilson's interval at the level confidence^(1/G) for G groups (Šidák). Ratios and differences
    have the intervals of Koopman (Biometrics 40, 1984) and Newcombe (Statistics in Medicine 17, 1998), with Tukey's
    studentized range in place of the normal quantile.

    Examples
    --------
    >>> sex = ["f"] * 100 + ["m"] * 100 + [None] * 10
    >>> decisions = ["granted"] * 20 + ["refused"] * 80 + ["granted"] * 50 + ["refused"] * 60
    >>> metrics = group_metrics(y_pred=decisions, sensitive_features={"sex": sex}, favourable="granted")
    >>> metrics.table[["value", "count", "selected", "verdict", "ratio", "ratio_high"]].round(2)
         value  count  selected    verdict  ratio  ratio_high
    0             210        70               NaN         NaN
    1        f    100        20  below 0.8    0.4        0.61
    2        m    100        50               1.0        1.00
    3  unknown     10         0               NaN         NaN
    """
    normal_quantile(confidence)  # checks it
    attributes = sensitive_attributes(sensitive_features)
    _check_indexes(y_true=y_true, y_pred=y_pred, sensitive_features=sensitive_features)
    classes = _classes(y_true, y_pred, class_names, len(attributes.ids))
    blocks = _blocks(favourable, classes)
    names = list(attributes)
    crossed = (
        [names] * (len(names) > 1)
        if intersections is None
        else [[attributes.known("intersections", name) for name in own] for own in intersections]
    )
    groups = groups_of(attributes, crossed, bins)
    parts = {
        (group.name, value): part for group in groups for value, part in zip(group.values, group.parts, strict=True)
    }
    with extra("audit"):
        import pandas as pd

    pairs = [(group, name, selected) for name, selected in blocks.items() for group in groups]
    tables = [_table(*pair, classes, confidence) for pair in pairs]
    lines = [_summary(table, confidence) for table in tables if table["feature"].iloc[0] != "all"]
    table, summary = pd.concat(tables, ignore_index=True), pd.DataFrame(lines)
    return GroupMetrics(tuple(names), len(attributes.ids), tuple(blocks), confidence, table, summary, _LIMITS, parts)


@dataclass(frozen=True, slots=True)
class Groups:
    """An attribute or an intersection: the group of each row, -1 where it is not known."""

    name: str
    values: list[str]
    parts: list[tuple[str, ...]]
    """The value of each attribute of an intersection."""
    codes: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Classes:
    """Predicted and true class of each row, -1 where not known, and the names of the classes."""

    labels: NDArray[np.int32]
    true: NDArray[np.int32]
    class_names: tuple[str, ...] | None


def groups_of(attributes: Attributes, crossed: list[list[str]], bins: Bins) -> list[Groups]:
    """Return all people as one group, then the groups of each attribute and of each intersection."""
    names = list(attributes)
    made = groupings(attributes, attributes.ids, names, bins, crossed)
    single = dict(zip(names, made, strict=False))
    groups = [Groups("all", [""], [()], np.zeros(len(attributes.ids), np.int64))]
    for group, own in zip(made, [[name] for name in names] + crossed, strict=True):
        unknown = np.logical_or.reduce([attributes[name].missing for name in own])
        members = np.bincount(group.codes[~unknown], minlength=len(group.values))
        # A group that only rows without a value belong to is the group of missing values.
        kept = (members > 0) | (np.bincount(group.codes, minlength=len(group.values)) == 0)
        numbers = np.where(kept, np.cumsum(kept) - 1, UNKNOWN)
        codes = np.where(unknown, UNKNOWN, numbers[group.codes])
        parts: list[tuple[str, ...]] = [(group.values[g],) for g in np.flatnonzero(kept)]
        if len(own) > 1:
            first = np.unique(codes[codes >= 0], return_index=True)[1]
            some = np.flatnonzero(codes >= 0)[first]
            parts = [tuple(single[name].values[single[name].codes[row]] for name in own) for row in some]
        groups.append(Groups(group.name, [group.values[g] for g in np.flatnonzero(kept)], parts, codes))
    return groups


def _table(
    group: Groups, name: str, selected_classes: NDArray[np.int32], classes: _Classes, confidence: float
) -> "pd.DataFrame":
    """Return the rates of all groups of an attribute where the selected classes, together called ``name``, count."""
    with extra("audit"):
        import pandas as pd

    g, whole = len(group.values), group.name == "all"
    places = np.where(group.codes == UNKNOWN, g, group.codes)

    def count(which: NDArray[np.bool_]) -> NDArray[np.int64]:
        return np.bincount(places[which], minlength=g + 1).astype(np.int64)

    positive, actual = np.isin(classes.labels, selected_classes), np.isin(classes.true, selected_classes)
    judged = classes.true != UNKNOWN
    counts, selected = count(np.ones(len(places), bool)), count(positive)
    tp, fp = count(judged & positive & actual), count(judged & positive & ~actual)
    tn, fn = count(judged & ~positive & ~actual), count(judged & ~positive & actual)
    unknown = np.arange(g + 1) == g
    each = confidence ** (1 / max(int((counts[:g] > 0).sum()), 1))
    columns: dict[str, Any] = {
        "class": name,
        "feature": group.name,
        "value": [*group.values, _UNKNOWN],
        "unknown": unknown,
        "count": counts,
        "share": counts / max(len(places), 1),
        "selected": selected,
        **with_interval("rate", selected, counts, each),
    }
    known = (selected[:g], counts[:g])
    compared = compare_rates(*known, confidence)
    spread = (int(selected[g]), int(counts[g]))
    eligible = compared["ranked"] if compared["ranked"].any() else known[1] > 0
    possible = [*rate_bounds(*known, *spread), *ratio_bounds(*known, *spread, eligible)]
    compared |= dict(zip(("rate_least", "rate_most", "ratio_least", "ratio_most"), possible, strict=True))
    for key, values in compared.items():
        nothing: Any = False if values.dtype == bool else "" if values.dtype == object else np.nan
        columns[key] = np.append(np.full_like(values, nothing) if whole else values, nothing)
    columns |= {"judged": count(judged), "TP": tp, "FP": fp, "TN": tn, "FN": fn}
    columns |= with_interval("accuracy", count(judged & (classes.labels == classes.true)), count(judged), each)
    columns |= with_interval("fpr", fp, fp + tn, each) | with_interval("fnr", fn, fn + tp, each)
    table = pd.DataFrame(columns)
    return table if counts[g] else table.iloc[:g]


def _summary(table: "pd.DataFrame", confidence: float) -> dict[str, Any]:
    """Return the line of an attribute: its verdict, the group with it, and equalised odds."""
    known = table[~table["unknown"] & (table["count"] > 0)]
    others = known[~known["reference"]]
    ranked = others[others["ranked"]]
    verdict = next((verdict for verdict in _VERDICTS if (ranked["verdict"] == verdict).any()), "cannot tell")
    lines = ranked[ranked["verdict"] == verdict] if len(ranked) else others
    line: dict[str, Any] = {
        **table[["class", "feature"]].iloc[0],
        "groups": len(known),
        "ranked": int(known["ranked"].sum()),
        "verdict": verdict,
        "p": ranked["p"].min(),
        "power": ranked["power"].min(),
        "reference": next(iter(known.loc[known["reference"], "value"]), ""),
    }
    shown = ["value", "count", "ratio", "ratio_low", "ratio_high"]
    line |= dict(lines.sort_values("ratio", kind="stable")[shown].iloc[0]) if len(lines) else dict.fromkeys(shown)
    tp, fp, tn, fn = (known[name].to_numpy() for name in ("TP", "FP", "TN", "FN"))
    tpr, fpr = (largest_gap(x, n, (1 + confidence) / 2) for x, n in ((tp, tp + fn), (fp, fp + tn)))
    for end in ("", "_low", "_high"):
        line |= {f"{name}_difference{end}": gap[f"difference{end}"] for name, gap in (("tpr", tpr), ("fpr", fpr))}
        line[f"equalised_odds_difference{end}"] = max(tpr[f"difference{end}"], fpr[f"difference{end}"])
        line[f"equalised_odds_ratio{end}"] = min(tpr[f"ratio{end}"], fpr[f"ratio{end}"])
    return line


def with_interval(
    name: str, successes: NDArray[np.int64], cases: NDArray[np.int64], confidence: float
) -> dict[str, NDArray[np.float64]]:
    """Return a share and its Wilson interval as columns: the name, with "_low" and with "_high"."""
    low, high = wilson(successes, cases, confidence)
    share = np.divide(successes, cases, out=np.full(len(cases), np.nan), where=cases > 0)
    return {name: share, f"{name}_low": low, f"{name}_high": high}


def _blocks(favourable: int | str | Sequence[int | str] | None, classes: _Classes) -> dict[str, NDArray[np.int32]]:
    """Return the classes that count as selected, by their name."""
    occurring = np.unique(np.concatenate([classes.labels, classes.true[classes.true != UNKNOWN]]))
    if favourable is None:
        return {class_name(classes, int(c)): np.array([c], np.int32) for c in occurring}
    given: list[Any] = [favourable] if np.ndim(favourable) == 0 else list(favourable)  # type: ignore[arg-type]
    names = list(classes.class_names or ())
    numbers = [names.index(c) if c in names else c for c in given]
    for c in numbers:
        if isinstance(c, str) or (c not in occurring and not 0 <= c < len(names)):
            known = ", ".join([*map(str, occurring), *names])
            raise ValueError(f"favourable must be among the classes ({known}), got {c!r}")
    selected = np.unique(as_labels("favourable", numbers, len(numbers)))
    if not len(selected):
        raise ValueError("favourable must hold one class at least, got none")
    return {" or ".join(class_name(classes, int(c)) for c in selected): selected}


def sensitive_attributes(values: Any) -> Attributes:
    """Return the sensitive features by name, row i that of place i."""
    if isinstance(values, Attributes) or hasattr(values, "columns"):
        features: Any = values
    elif hasattr(values, "to_frame"):
        features = values.to_frame("sensitive_feature_0" if values.name in (None, "") else str(values.name))
    elif isinstance(values, Mapping) or hasattr(values, "x"):
        features = values
    else:
        array = values if hasattr(values, "detach") else np.asarray(values)
        columns = [array] if array.ndim == 1 else list(array.T) if array.ndim == 2 else []
        features = {f"sensitive_feature_{j}": column for j, column in enumerate(columns)}
    attributes = as_attributes(_by_position(features), "sensitive_features")
    if not len(attributes):
        raise ValueError("sensitive_features must have shape (n,) or (n, m) and hold one attribute at least, got none")
    return attributes


def _by_position(values: Any) -> Any:
    """Return a pandas object with rows 0..n-1, and anything else as it is."""
    return values.reset_index(drop=True) if hasattr(values, "reset_index") else values


def _check_indexes(**arguments: Any) -> None:
    """Raise ValueError where pandas objects have different indexes, so that their rows are in different orders."""
    indexes = {name: values.index for name, values in arguments.items() if hasattr(values, "reset_index")}
    for name, index in indexes.items():
        first = next(iter(indexes))
        if not index.equals(indexes[first]):
            raise ValueError(f"{name} must have the same pandas index as {first}: sort the rows alike, or pass arrays")


def _classes(y_true: Any, y_pred: Any, class_names: Sequence[str] | None, n: int) -> _Classes:
    """Return predicted and true classes as numbers; texts without names are numbered in ascending order."""
    names = None if class_names is None else tuple(map(str, class_names))
    true = None if y_true is None else _column("y_true", y_true, n)
    if len(np.shape(y_pred)) == 2:
        predictions = as_predictions(_by_position(y_pred), n, names, "y_pred")
        labels, names = predictions.labels, predictions.class_names
    else:
        predicted = _column("y_pred", y_pred, n)
        if names is None and predicted.numbers is None:
            names = _common_names(predicted, true)
        labels = _numbered("y_pred", predicted, names)
        if (labels == UNKNOWN).any():
            raise ValueError(f"y_pred must hold a class for every row, got none for row {(labels == UNKNOWN).argmax()}")
    return _Classes(labels, np.full(n, UNKNOWN, np.int32) if true is None else _numbered("y_true", true, names), names)


def _column(name: str, values: Any, n: int) -> Attribute:
    """Return one class for each row, in the form of an attribute."""
    with extra("audit"):
        import pandas as pd

    if np.shape(values) != (n,):
        rows = f"({n},), one class for each row of sensitive_features"
        raise ValueError(f"{name} must have shape {rows}, got {np.shape(values)}")
    series = pd.Series(values.detach().cpu().numpy() if hasattr(values, "detach") else values).reset_index(drop=True)
    if series.dtype == bool:
        series = series.astype(np.int64)
    return as_attributes(series.to_frame(name), name)[name]


def _common_names(predicted: Attribute, true: Attribute | None) -> tuple[str, ...]:
    if true is None:
        return predicted.values
    if true.numbers is not None:
        raise ValueError("y_true and y_pred must both be class names or both be numbers, or come with class_names")
    if not set(predicted.values) & set(true.values):
        some = f"{', '.join(predicted.values[:8])}; {', '.join(true.values[:8])}"
        raise ValueError(f"y_pred and y_true must have class names in common, got {some}")
    return tuple(sorted({*predicted.values, *true.values}))


def _numbered(name: str, column: Attribute, names: tuple[str, ...] | None) -> NDArray[np.int32]:
    """Return class numbers, -1 where the class is missing."""
    if column.numbers is not None:
        numbers = np.nan_to_num(column.numbers, nan=UNKNOWN)
        fractions = numbers[numbers != np.round(numbers)]
        if len(fractions):
            raise ValueError(f"{name} must hold whole numbers or class names, got {fractions[0]}")
        return as_labels(name, numbers.astype(np.int64), len(numbers), unknown=True)
    known = list(names or ())
    for text in column.values:
        if text not in known:
            raise ValueError(f"{name} must be among the class names ({', '.join(known)}), got {text!r}")
    codes = np.array([*(known.index(text) for text in column.values), UNKNOWN], np.int32)
    return codes[column.codes]


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
