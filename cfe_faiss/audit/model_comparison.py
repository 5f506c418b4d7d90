"""Models compared on the same people: evidence, classes, rates of groups and direct effects."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any, TypeAlias

import numpy as np

from cfe_faiss.audit.direct_test import Sample, Samples, ScoreTest, judge
from cfe_faiss.audit.effects import adjusted_p_values
from cfe_faiss.audit.groups import (
    DEFAULT_BINS,
    Bins,
    Frame,
    Grouping,
    Ints,
    TableResult,
    attributes_of_finder,
    check_finder,
    groupings,
    known_rows,
    persons_of,
    sensitive_of,
    stack,
    with_truth,
)
from cfe_faiss.audit.intervals import (
    independent_share,
    normal_quantile,
    paired_difference,
    share_columns,
)
from cfe_faiss.base.checks import UNKNOWN, Array, Floats, Int32s, as_count, as_number, check_type
from cfe_faiss.base.extras import pd
from cfe_faiss.data.classes import as_predictions, note_unknown
from cfe_faiss.finder import EvidenceFinder
from cfe_faiss.index.flat import IndexEvidenceIDMap2
from cfe_faiss.pairs import evidence_pairs
from cfe_faiss.rows.metric import is_distance, measure_of, measured, threshold_of

_LIMITS = (
    "A change of evidence shows where decisions moved. It does not show which model is right.",
    "The test of a group's rate asks whether more people moved one way than the other. People "
    "are taken as independent, and both models as fixed before the data: compare models on "
    "people that neither was fitted on.",
    "A change of a direct effect says that decisions of the two models go along with the value "
    "in different degree, beyond what the vectors explain. It does not say why, and it holds "
    "for large samples only.",
    "Two models with the same direct effect show no change. The tests of one model are the place "
    "to see it.",
    '"No finding" is no proof that nothing changed.',
)
"""Questions that the numbers cannot answer."""

Models: TypeAlias = Mapping[str, Int32s]
"""Predicted class of every row, (n,), by the name of the model; the first one is the baseline."""
BASELINE = "v1"
"""Name of the finder's own model."""
_COLUMNS = (
    *(
        "model",
        "attribute",
        "value",
        "test",
        "n",
        "before",
        "after",
        "worse",
        "better",
        "effect",
        "low",
        "high",
    ),
    *("statistic", "p", "q", "n_effective", "few", "verdict", "reason", "named"),
)
_COUNTS = "evidence", "appears", "disappears", "stays", "equal_before", "equal_after"
LEAST_MOVED = 6
"""Fewest people who moved for which an exact p value can reach .05."""
_Line = dict[str, Any]
_Columns = dict[str, Any]


def changes_of_neighbours(
    finder: EvidenceFinder, rows: Ints, models: Models, k: int
) -> Iterator[tuple[str, Frame]]:
    """Yield the k nearest evidence of each row under each other model and the baseline.

    One line per pair: ``source``, ``target``; ``away``, the squared distance or minus the
    similarity; ``before``, ``after``, whether it is evidence of the baseline and of the other
    model.

    One exact index is relabelled for each model. The finder's own index is left alone: others may
    be searching it.
    """
    index = IndexEvidenceIDMap2(finder.vectors.shape[1], metric=finder.metric)

    def search() -> Frame:
        D, I = index.search_stored(None, k)
        row, place = np.nonzero(I >= 0)
        return _evidence(finder, rows[row], I[row, place], D[row, place])

    (_, baseline), *others = models.items()
    index.add_with_labels(finder.vectors[rows], baseline[rows], ids=rows)
    first = search()
    for name, labels in others:
        index.relabel(labels[rows], ids=rows)
        both = first.merge(
            search(), "outer", ["source", "target"], suffixes=("", "_after"), indicator=True
        )
        before = both["_merge"] != "right_only"
        after = both["_merge"] != "left_only"
        away = both["away"].fillna(both["away_after"])
        yield name, both[["source", "target"]].assign(away=away, before=before, after=after)


def changes_above(
    finder: EvidenceFinder, rows: Ints, models: Models, threshold: float
) -> Iterator[tuple[str, Frame]]:
    """Yield for each other model the pairs that it or the baseline separates, in blocks.

    One search serves all models: its classes are the combinations of all their classes.
    """
    table = np.stack(list(models.values()))
    combined = np.unique(table[:, rows], axis=1, return_inverse=True)[1].ravel()
    index = IndexEvidenceIDMap2(finder.vectors.shape[1], metric=finder.metric)
    index.add_with_labels(finder.vectors[rows], combined.astype(np.int32), ids=rows)
    for pairs in evidence_pairs(index, threshold):
        before, *others = table[:, pairs.source] != table[:, pairs.target]
        block = _evidence(finder, pairs.source, pairs.target, pairs.similarity).assign(
            before=before
        )
        for name, after in zip(list(models)[1:], others, strict=True):
            yield name, block.assign(after=after)[before | after]


def _evidence(finder: EvidenceFinder, source: Ints, target: Ints, D: Floats) -> Frame:
    return pd.DataFrame(
        {"source": source, "target": target, "away": D if is_distance(finder.metric) else -D}
    )


def paired_test(worse: int, better: int) -> ScoreTest:
    """Return McNemar's exact test of "as many people moved one way as the other".

    Positive: more of them ``worse``.
    """
    from scipy.stats import binom

    moved = worse + better
    if moved < LEAST_MOVED:
        return ScoreTest(
            n_effective=moved, reason=f"{moved} people who moved are fewer than {LEAST_MOVED}"
        )
    p = min(1.0, 2 * float(binom.cdf(min(worse, better), moved, 0.5)))
    return ScoreTest(statistic=(worse - better) / math.sqrt(moved), p_value=p, n_effective=moved)


def change_of_rates(
    models: Models,
    rows: Ints,
    bad: Int32s,
    groups: Sequence[Grouping],
    persons: Ints,
    confidence: float,
) -> Iterator[_Line]:
    """Yield the change of the rate of each group, with its test, for each model but the first.

    ``persons`` has the person of each row. The test counts people, by the way in which most of
    their rows moved.
    """
    was, *others = (np.isin(labels[rows], bad) for labels in models.values())
    for (name, now), group in product(zip(list(models)[1:], others, strict=True), groups):
        columns = {"before": was, "after": now, "worse": now & ~was, "better": was & ~now}
        people = pd.DataFrame({"code": group.codes, "person": persons, "n": 1} | columns)[
            group.codes != UNKNOWN
        ]
        counts = people.groupby("code")[["n", *columns]].sum()
        ways = people.groupby(["code", "person"])[["worse", "better"]].sum()
        worse = (ways["worse"] > ways["better"]).groupby(level="code").sum()
        better = (ways["worse"] < ways["better"]).groupby(level="code").sum()
        part = independent_share(people["code"], people["person"], len(group.values))[counts.index]
        each = confidence ** (1 / max(len(counts), 1))
        independent = counts[["worse", "better", "n"]].mul(part, axis=0)
        low, high = paired_difference(
            independent["worse"], independent["better"], independent["n"], each
        )
        for place, (code, line) in enumerate(counts.to_dict("index").items()):
            test = paired_test(int(worse[code]), int(better[code]))
            line |= {key: line[key] / line["n"] for key in ("before", "after")}
            yield {
                **_line(name, group, code, "rates", test),
                **line,
                "effect": line["after"] - line["before"],
                "low": low[place],
                "high": high[place],
                "few": False,
            }


def change_of_effects(
    samples: Samples, models: Models, groups: Sequence[Grouping], k: int
) -> Iterator[_Line]:
    """Yield the changes of the direct effects of each value.

    People with the same known values share a null model.
    """
    for name, labels in list(models.items())[1:]:
        decided: dict[int, Sample] = {}
        for group in groups:
            people, codes = samples.of(group)
            refused = np.isin(labels[people.rows], samples.unfavourable)
            # The same people with their neighbours
            changed = replace(people, unfavourable=refused, before=people.unfavourable)
            after = decided.setdefault(id(people), changed)
            situation = after.situation_contrast(k) - people.situation_contrast(k)
            direction = after.evidence_contrast - people.evidence_contrast
            for code, carries, _, tests in after.test_each(codes, [situation, direction]):
                for test, found in zip(("situation", "direction"), tests, strict=True):
                    yield _line(name, group, code, test, found) | {
                        "n": int(carries.sum()),
                        "few": found.few,
                    }


def _line(model: str, group: Grouping, code: int, name: str, test: ScoreTest) -> _Line:
    place = {
        "model": model,
        "attribute": group.name,
        "value": group.values[code],
        "test": name,
        "p": test.p_value,
    }
    return asdict(test) | place


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class ModelComparison(TableResult):
    """Models compared with the finder's own; made by :func:`compare_models`.

    Attributes
    ----------
    table
        Tests, one line per model, group and test; empty without unfavourable classes:

        - ``model``; ``attribute``, ``value``: the group ("all": everyone); ``test``: "rates",
          "situation" or "direction". ``n``: people in the group.
        - ``before``, ``after``: share decided unfavourably by the baseline and by the model;
          ``worse``, ``better``: people whom only the model, or only the baseline, decides
          unfavourably. Of "rates" only.
        - ``effect``: ``after`` - ``before``, with an interval ``low``, ``high`` for all groups of
          the attribute at once; or the change of a direct effect. Positive: to the disadvantage of
          the group.
        - ``statistic``, ``p``, ``n_effective``, ``few``: as in :func:`direct_effects`; of "rates"
          McNemar's z, the exact p value and the number of people who moved. ``q``: p adjusted over
          the table.
        - ``verdict``: "disadvantaged" or "advantaged" by the change, "no finding", "cannot tell"
          and its ``reason``. ``named``: whether it is one of the first two.
    models
        One line per model, the baseline first: ``n`` people; ``evidence``, and how much of it
        ``appears``, ``disappears`` and ``stays`` against the baseline; ``equal_before``,
        ``equal_after``: of ``appears`` and ``disappears``, the pairs that the baseline, or the
        model, treats equally; ``changed``, ``changed_share``: people in another class;
        ``unfavourable`` and ``accuracy`` with intervals, NaN where not known.
    pairs
        The closest evidence of each model, that which changed first: ``model``, ``source``,
        ``target``, ``similarity`` (of a table ``distance``), ``change`` ("appears", "disappears",
        "stays"), ``equal`` (name of the model that treats both equally, or ""), and classes of both
        sides: ``source_before``, ``source_after``, ``target_before``,
        ...
    people
        Everyone who changed class: ``model``, ``node``, ``before``, ``after``.
    directions
        Their number by direction: ``model``, ``before``, ``after``, ``count``, ``share`` of all
        people.
    baseline, unfavourable, threshold, k, fdr
        As given; the unfavourable classes by name.
    limits
        Limits of the numbers, in sentences.
    """

    models: Frame
    pairs: Frame
    people: Frame
    directions: Frame
    baseline: str
    unfavourable: tuple[str, ...]
    threshold: float | None
    k: int
    fdr: float

    def __repr__(self) -> str:
        names = ", ".join(self.models["model"])
        return (
            f"ModelComparison({names}: {len(self)} tests, {int(self.table['named'].sum())} named)"
        )


def compare_models(  # noqa: PLR0913
    finder: EvidenceFinder,
    predictions: Mapping[str, Any],
    *,
    k: int = 10,
    threshold: float | None = None,
    pairs: int = 1000,
    unfavourable: Any = None,
    truth_favourable: Any = None,
    sensitive: Sequence[str] | None = None,
    intersections: Sequence[Sequence[str]] = (),
    bins: Bins = DEFAULT_BINS,
    fdr: float = 0.05,
    confidence: float = 0.95,
    baseline: str = BASELINE,
    person: Any = None,
) -> ModelComparison:
    """Compare other models with the finder's model on the same people.

    Evidence, classes, rates and direct effects are compared.

    Parameters
    ----------
    finder
        Its model is the baseline, its searched rows are compared. It does not change.
    predictions
        By the name of each other model: its predictions for all rows, classes (n,) or probabilities
        (n, C). Rows to which a model gives no class are left out, of all models.
    k
        Evidence for each person, and neighbours of the situation test, >= 1.
    threshold
        If given, evidence is every pair of at least this similarity, or of a table of at most this
        distance, instead of the k nearest.
    pairs
        Lines of ``pairs`` for each model, >= 1. Counts are of all.
    unfavourable
        Classes that count as unfavourable. None: no tests.
    truth_favourable
        The true classes that agree with the other classes, if the truth has different names.
    sensitive, intersections, bins, fdr
        As in :func:`direct_effects`, for the tests. No attributes: everyone is one group.
    confidence
        Of the intervals, in (0, 1).
    baseline
        Name of the finder's model.
    person
        As in :func:`direction_test`: tests and intervals count people, numbers and shares count
        rows. A person moved as most of the rows that moved.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Notes
    -----
    Rates: McNemar's test [1]_, exact. Direct effects: the score test of :func:`direct_effects` on
    the difference of the contrasts of both models, given the logits of both. Searches are exact:
    O(n^2 d) for each model.

    References
    ----------
    .. [1] McNemar, Psychometrika 12, 1947; exact by the binomial distribution, see Fagerland,
       Lydersen and Laake, BMC Medical Research Methodology 13, 2013.

    Examples
    --------
    >>> X = [[1.0, 0.0], [0.9, 0.1], [0.8, 0.3]]
    >>> finder = EvidenceFinder.from_vectors(X, ["no", "yes", "yes"])
    >>> comparison = compare_models(finder, {"v2": ["no", "no", "yes"]}, k=1)
    >>> comparison.directions[["before", "after", "count"]]
      before after  count
    0    yes    no      1
    """
    check_finder(finder)
    k = as_count("k", k)
    pairs = as_count("pairs", pairs)
    fdr = as_number("fdr", fdr, 0, 1)
    _ = normal_quantile(confidence)
    models = as_models(finder, predictions, "predictions", baseline)
    searched = known_rows(finder, None)
    is_compared = np.all([labels[searched] != UNKNOWN for labels in models.values()], axis=0)
    note_unknown("predicted class of another model", is_compared)
    rows = searched[is_compared]
    if not len(rows):
        raise ValueError(
            "finder must search among rows with a predicted class of every model, got none"
        )
    if unfavourable is None and (sensitive is not None or len(intersections)):
        raise ValueError("unfavourable must be given with sensitive and intersections, got None")
    bad = None if unfavourable is None else finder.class_numbers("unfavourable", unfavourable)
    favourable = [] if bad is None else np.setdiff1d(finder.labels[rows], bad).tolist()
    finder = with_truth(finder, favourable, truth_favourable)
    persons = persons_of(finder, person)
    lines: list[_Line] = []
    if bad is not None:
        names = sensitive_of(finder, sensitive)
        groups: list[Grouping] = []
        if names or len(intersections):
            groups = groupings(
                attributes_of_finder(finder), rows, names, bins, intersections, with_missing=False
            )
        samples = Samples(finder, rows, bad, persons, list(models.values())[1:])
        lines += change_of_rates(
            models, rows, bad, [Grouping.of_all(len(rows)), *groups], persons[rows], confidence
        )
        lines += change_of_effects(samples, models, groups, k)
    for line, q in zip(
        lines, adjusted_p_values([line["p"] for line in lines]).tolist(), strict=True
    ):
        judge(line, q, fdr)
    if threshold is None:
        found = changes_of_neighbours(finder, rows, models, k)
    else:
        found = changes_above(
            finder, rows, models, threshold_of("threshold", threshold, finder.metric)
        )
    pairs_of, counts = _collect(found, models, pairs)
    changed = []
    for name, after in models.items():
        moved = rows[finder.labels[rows] != after[rows]]
        before_and_after = {
            "before": _class_names(finder, finder.labels[moved]),
            "after": _class_names(finder, after[moved]),
        }
        changed.append({"model": name, "node": finder.names(moved)} | before_and_after)
    people = stack(changed)
    directions = (
        people.groupby(["model", "before", "after"], sort=False).size().reset_index(name="count")
    )
    return ModelComparison(
        table=pd.DataFrame(lines, columns=_COLUMNS),
        limits=_LIMITS,
        models=pd.DataFrame(
            [
                counts[name] | _summary(finder, models, name, rows, bad, confidence)
                for name in models
            ]
        ),
        pairs=stack([_pairs(finder, models, name, pairs_of[name]) for name in list(models)[1:]]),
        people=people,
        directions=directions.assign(share=directions["count"] / len(rows)),
        baseline=baseline,
        unfavourable=() if bad is None else tuple(finder.class_name(int(label)) for label in bad),
        threshold=threshold,
        k=k,
        fdr=fdr,
    )


def as_models(
    finder: EvidenceFinder, predictions: Any, argument: str, baseline: str = BASELINE
) -> Models:
    """Return the classes that each model predicts for all rows, the baseline first.

    Raises
    ------
    TypeError, ValueError
        If predictions or their names are not as :func:`compare_models` describes them; the error
        names ``argument``.
    """
    check_type(f"{argument} must map names of models to predictions", predictions, Mapping)
    if not predictions:
        raise ValueError(f"{argument} must hold another model at least, got none")
    models = {_model_name("baseline", baseline): finder.labels}
    count = finder.class_count
    for name, values in predictions.items():
        if _model_name(f"names in {argument}", name) in models:
            raise ValueError(
                f"{argument} must name each model once, got {name!r}, which is the finder's own"
            )
        title = f"{argument}[{name!r}]"
        classes = as_predictions(
            finder.in_order(title, values),
            len(finder.labels),
            finder.class_names,
            title,
            are_names=hasattr(finder.data, "columns"),
            complete=False,
        )
        if classes.class_names is not None and finder.class_names is None:
            raise ValueError(f"{title} must be numbers of classes, as in the finder, got texts")
        if classes.labels.max(initial=0) >= count:
            raise ValueError(
                f"{title} must hold classes 0 to {count - 1}, got {classes.labels.max()}"
            )
        models[name] = classes.labels
    return models


def _model_name(argument: str, name: Any) -> str:
    """Return the name of a model.

    A number would be taken for a bound in the conditions of a report.
    """
    check_type(f"{argument} must be texts", name, str)
    try:
        float(name)
    except ValueError:
        if name.strip():
            return str(name)
    raise ValueError(f"{argument} must be neither empty nor numbers, got {name!r}")


def _collect(
    found: Iterable[tuple[str, Frame]], models: Models, most: int
) -> tuple[dict[str, Frame], dict[str, _Line]]:
    """Return the closest changes of each model, and the numbers of all of them.

    Evidence of one model only comes first.
    """
    first = next(iter(models))
    none = {
        "source": np.int64,
        "target": np.int64,
        "away": np.float32,
        "before": bool,
        "after": bool,
    }
    closest = dict.fromkeys(
        models, pd.DataFrame({column: np.empty(0, dtype) for column, dtype in none.items()})
    )
    counts: dict[str, _Line] = {
        name: {"model": name} | dict.fromkeys(_COUNTS, 0) for name in models
    }
    for name, changes in found:
        source = changes["source"]
        target = changes["target"]
        before = changes["before"]
        after = changes["after"]
        equal = [labels[source] == labels[target] for labels in (models[first], models[name])]
        appears = after & ~before
        disappears = before & ~after
        masks = (
            after,
            appears,
            disappears,
            after & before,
            appears & equal[0],
            disappears & equal[1],
        )
        for key, mask in zip(_COUNTS, masks, strict=True):
            counts[name][key] += int(mask.sum())
        both = stack([closest[name], changes])
        order = both.assign(stays=both["before"] & both["after"]).sort_values(
            ["stays", "away", "source", "target"]
        )
        closest[name] = both.loc[order.index[:most]]
    evidence = max(line["stays"] + line["disappears"] for line in counts.values())
    counts[first] |= {"evidence": evidence, "stays": evidence}
    return closest, counts


def _pairs(finder: EvidenceFinder, models: Models, name: str, changes: Frame) -> _Columns:
    """Return the columns of the changes of a model."""
    first, before = next(iter(models.items()))
    after = models[name]
    sides = {side: changes[side].to_numpy() for side in ("source", "target")}
    columns: _Columns = {"model": name} | {side: finder.names(rows) for side, rows in sides.items()}
    is_after = changes["after"].to_numpy()
    equal = [labels[sides["source"]] == labels[sides["target"]] for labels in (before, after)]
    columns |= {
        measure_of(finder.metric): measured(changes["away"].to_numpy(), finder.metric)
        if is_distance(finder.metric)
        else finder.measure64(*sides.values()),
        "change": np.select(
            [changes["before"] & is_after, is_after], ["stays", "appears"], "disappears"
        ),
        "equal": np.select(equal, [first, name], ""),
    }
    for side, rows in sides.items():
        columns[f"{side}_before"] = _class_names(finder, before[rows])
        columns[f"{side}_after"] = _class_names(finder, after[rows])
    return columns


def _class_names(finder: EvidenceFinder, labels: Int32s) -> Array:
    return np.array(
        [*(finder.class_name(label) for label in range(finder.class_count)), None], object
    )[labels]


def _summary(
    finder: EvidenceFinder,
    models: Models,
    name: str,
    rows: Ints,
    bad: Int32s | None,
    confidence: float,
) -> _Columns:
    """Return the people in another class than before, and shares of decisions and right ones."""
    classes = models[name][rows]
    n = len(rows)
    truth = np.full(n, UNKNOWN) if finder.truth is None else finder.truth[rows]
    changed = int((classes != next(iter(models.values()))[rows]).sum())
    judged = int((truth != UNKNOWN).sum())
    columns: _Columns = {"n": n, "changed": changed, "changed_share": changed / n, "judged": judged}
    refused = (0, 0) if bad is None else (int(np.isin(classes, bad).sum()), n)
    for key, (hits, cases) in {
        "unfavourable": refused,
        "accuracy": (int((classes == truth).sum()), judged),
    }.items():
        columns |= {
            column: float(value)
            for column, value in share_columns(key, hits, cases, confidence).items()
        }
    return columns
