"""Models compared on the same people: evidence, classes, rates of groups and direct effects."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.attributes.classes import as_predictions
from cfe_faiss.audit import direct_test
from cfe_faiss.audit.change_tests import change_of_effects, change_of_rates
from cfe_faiss.audit.evidence import attributes_of, known_rows, sensitive_of
from cfe_faiss.audit.evidence_changes import Changes, Models, changes_above, changes_of_neighbours, closest
from cfe_faiss.audit.family import adjusted_p_values
from cfe_faiss.audit.groups import DEFAULT_BINS, Bins, Grouping, groupings
from cfe_faiss.audit.intervals import normal_quantile, share_columns
from cfe_faiss.audit.sample import Samples
from cfe_faiss.audit.tables import Frame, Ints, TableResult, data_frame, limits_of, stack
from cfe_faiss.base.checks import UNKNOWN, as_count, as_number
from cfe_faiss.finder import EvidenceFinder

BASELINE = "v1"
"""Name of the finder's own model."""
_COLUMNS = (
    *("model", "attribute", "value", "test", "n", "before", "after", "worse", "better", "effect", "low", "high"),
    *("statistic", "p", "q", "n_effective", "few", "verdict", "reason", "named"),
)
_COUNTS = "evidence", "appears", "disappears", "stays", "equal_before", "equal_after"
_Columns = dict[str, Any]


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class ModelComparison(TableResult):
    """Models compared with the finder's own; made by :func:`compare_models`.

    Attributes
    ----------
    table
        Tests, one line per model, group and test; empty without unfavourable classes:

        - ``model``; ``attribute``, ``value``: the group ("all": everyone); ``test``: "rates", "situation" or
          "direction". ``n``: people in the group.
        - ``before``, ``after``: share decided unfavourably by the baseline and by the model; ``worse``, ``better``:
          people whom only the model, or only the baseline, decides unfavourably. Of "rates" only.
        - ``effect``: ``after`` - ``before``, with an interval ``low``, ``high`` for all groups of the attribute at
          once; or the change of a direct effect. Positive: to the disadvantage of the group.
        - ``statistic``, ``p``, ``n_effective``, ``few``: as in :func:`direct_effects`; of "rates" McNemar's z, the
          exact p value and the number of people who moved. ``q``: p adjusted over the table.
        - ``verdict``: "disadvantaged" or "advantaged" by the change, "no finding", "cannot tell" and its ``reason``.
          ``named``: whether it is one of the first two.
    models
        One line per model, the baseline first: ``n`` people; ``evidence``, and how much of it ``appears``,
        ``disappears`` and ``stays`` against the baseline; ``equal_before``, ``equal_after``: of ``appears`` and
        ``disappears``, the pairs that the baseline, or the model, treats equally; ``changed``, ``changed_share``:
        people in another class; ``unfavourable`` and ``accuracy`` with intervals, NaN where not known.
    pairs
        The closest evidence of each model, that which changed first: ``model``, ``source``, ``target``,
        ``similarity``, ``change`` ("appears", "disappears", "stays"), ``equal`` (name of the model that treats both
        equally, or ""), and classes of both sides: ``source_before``, ``source_after``, ``target_before``, ...
    people
        Everyone who changed class: ``model``, ``node``, ``before``, ``after``.
    directions
        Their number by direction: ``model``, ``before``, ``after``, ``count``, ``share`` of all people.
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
        return f"ModelComparison({names}: {len(self)} tests, {int(self.table['named'].sum())} named)"


def compare_models(  # noqa: PLR0913
    finder: EvidenceFinder,
    predictions: Mapping[str, Any],
    *,
    k: int = 10,
    threshold: float | None = None,
    pairs: int = 1000,
    unfavourable: Any = None,
    sensitive: Sequence[str] | None = None,
    intersections: Sequence[Sequence[str]] = (),
    bins: Bins = DEFAULT_BINS,
    fdr: float = 0.05,
    confidence: float = 0.95,
    baseline: str = BASELINE,
) -> ModelComparison:
    """Compare other models with the finder's own, on the same people: evidence, classes, rates and direct effects.

    Parameters
    ----------
    finder
        Its model is the baseline, its searched rows are compared. It does not change.
    predictions
        By the name of each other model: its predictions for all rows, classes (n,) or probabilities (n, C).
    k
        Evidence for each person, and neighbours of the situation test, >= 1.
    threshold
        If given, evidence is every pair of at least this similarity, in [-1, 1], instead of the k nearest.
    pairs
        Lines of ``pairs`` for each model, >= 1. Counts are of all.
    unfavourable
        Classes that count as unfavourable. None: no tests.
    sensitive, intersections, bins, fdr
        As in :func:`direct_effects`, for the tests. No attributes: everyone is one group.
    confidence
        Of the intervals, in (0, 1).
    baseline
        Name of the finder's model.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Notes
    -----
    Rates: McNemar's test [1]_, exact. Direct effects: the score test of :func:`direct_effects` on the difference of the
    contrasts of both models, given the logits of both. Searches are exact: O(n^2 d) for each model.

    References
    ----------
    .. [1] McNemar, Psychometrika 12, 1947; exact by the binomial distribution, see Fagerland, Lydersen and Laake, BMC
       Medical Research Methodology 13, 2013.

    Examples
    --------
    >>> finder = EvidenceFinder.from_vectors([[1.0, 0.0], [0.9, 0.1], [0.8, 0.3]], ["no", "yes", "yes"])
    >>> compare_models(finder, {"v2": ["no", "no", "yes"]}, k=1).directions[["before", "after", "count"]]
      before after  count
    0    yes    no      1
    """
    k, pairs = as_count("k", k), as_count("pairs", pairs)
    fdr, _ = as_number("fdr", fdr, 0, 1), normal_quantile(confidence)
    models = as_models(finder, predictions, "predictions", baseline)
    rows = known_rows(finder, None)
    if not len(rows):
        raise ValueError("finder must search among rows with a predicted class, got none")
    if unfavourable is None and (sensitive is not None or len(intersections)):
        raise ValueError("unfavourable must be given with sensitive and intersections, got None")
    bad = None if unfavourable is None else finder.class_numbers("unfavourable", unfavourable)
    lines: list[_Columns] = []
    if bad is not None:
        names = sensitive_of(finder, sensitive)
        groups: list[Grouping] = []
        if names or len(intersections):
            groups = groupings(attributes_of(finder), rows, names, bins, intersections, with_missing=False)
        lines += change_of_rates(models, rows, bad, [Grouping.of_all(len(rows)), *groups], confidence)
        lines += change_of_effects(Samples(finder, rows, bad), models, groups, k)
    for line, q in zip(lines, adjusted_p_values([line["p"] for line in lines]).tolist(), strict=True):
        direct_test.judge(line, q, fdr)
    if threshold is None:
        found = changes_of_neighbours(finder, rows, models, k)
    else:
        found = changes_above(finder, rows, models, as_number("threshold", threshold, -1, 1))
    kept, counts = _collect(found, models, pairs)
    people = stack([_moved(finder, models, name, rows) for name in models])
    directions = people.groupby(["model", "before", "after"], sort=False).size().reset_index(name="count")
    return ModelComparison(
        table=data_frame(lines, _COLUMNS),
        limits=limits_of("compare_models"),
        models=data_frame([counts[name] | _summary(finder, models, name, rows, bad, confidence) for name in models]),
        pairs=stack([_pairs(finder, models, name, kept.get(name)) for name in list(models)[1:]]),
        people=people,
        directions=directions.assign(share=directions["count"] / len(rows)),
        baseline=baseline,
        unfavourable=() if bad is None else tuple(finder.class_name(int(label)) for label in bad),
        threshold=threshold,
        k=k,
        fdr=fdr,
    )


def as_models(finder: EvidenceFinder, predictions: Any, argument: str, baseline: str = BASELINE) -> Models:
    """Return the classes that each model predicts for all rows, the baseline first.

    Raises
    ------
    TypeError, ValueError
        If predictions or their names are not as :func:`compare_models` describes them; the error names ``argument``.
    """
    if not isinstance(predictions, Mapping):
        raise TypeError(f"{argument} must map names of models to predictions, got {type(predictions).__name__}")
    if not predictions:
        raise ValueError(f"{argument} must hold another model at least, got none")
    models, count = {_model_name("baseline", baseline): finder.labels}, finder.class_count
    for name, values in predictions.items():
        if _model_name(f"names in {argument}", name) in models:
            raise ValueError(f"{argument} must name each model once, got {name!r}, which is the finder's own")
        title = f"{argument}[{name!r}]"
        given = as_predictions(values, len(finder.labels), finder.class_names, title)
        if given.class_names is not None and finder.class_names is None:
            raise ValueError(f"{title} must be numbers of classes, as in the finder, got texts")
        if given.labels.max(initial=0) >= count:
            raise ValueError(f"{title} must hold classes 0 to {count - 1}, got {given.labels.max()}")
        models[name] = given.labels
    return models


def _model_name(argument: str, name: Any) -> str:
    """Return the name of a model. A number would be taken for a bound in the conditions of a report."""
    if not isinstance(name, str):
        raise TypeError(f"{argument} must be texts, got {type(name).__name__}")
    try:
        float(name)
    except ValueError:
        if name.strip():
            return name
    raise ValueError(f"{argument} must be neither empty nor numbers, got {name!r}")


def _collect(
    found: Iterable[tuple[str, Changes]], models: Models, most: int
) -> tuple[dict[str, Changes], dict[str, _Columns]]:
    """Return the closest changes of each model, and the numbers of all of them."""
    first, kept = next(iter(models)), dict[str, Changes]()
    counts: dict[str, _Columns] = {name: {"model": name} | dict.fromkeys(_COUNTS, 0) for name in models}
    for name, own in found:
        appears, disappears = own.after & ~own.before, own.before & ~own.after
        equal = [labels[own.source] == labels[own.target] for labels in (models[first], models[name])]
        masks = own.after, appears, disappears, own.after & own.before, appears & equal[0], disappears & equal[1]
        for key, mask in zip(_COUNTS, masks, strict=True):
            counts[name][key] += int(mask.sum())
        kept[name] = closest([kept[name], own] if name in kept else [own], most)
    evidence = max(own["stays"] + own["disappears"] for own in counts.values())
    counts[first] |= {"evidence": evidence, "stays": evidence}
    return kept, counts


def _pairs(finder: EvidenceFinder, models: Models, name: str, own: Changes | None) -> _Columns:
    """Return the columns of the changes of a model; None: without lines."""
    first, before = next(iter(models.items()))
    own, after = own or Changes.none(), models[name]
    sides = {"source": own.source, "target": own.target}
    columns: _Columns = {"model": name} | {side: finder.names(rows) for side, rows in sides.items()}
    columns["similarity"] = finder.similarity64(own.source, own.target)
    columns["change"] = np.select([own.before & own.after, own.after], ["stays", "appears"], "disappears")
    equal = [labels[own.source] == labels[own.target] for labels in (before, after)]
    columns["equal"] = np.select(equal, [first, name], "")
    for side, rows in sides.items():
        columns[f"{side}_before"] = _class_names(finder, before[rows])
        columns[f"{side}_after"] = _class_names(finder, after[rows])
    return columns


def _moved(finder: EvidenceFinder, models: Models, name: str, rows: Ints) -> _Columns:
    """Return the columns of the people whom a model puts in another class than the first."""
    before, after = next(iter(models.values())), models[name]
    moved = rows[before[rows] != after[rows]]
    columns: _Columns = {"model": name, "node": finder.names(moved)}
    return columns | {"before": _class_names(finder, before[moved]), "after": _class_names(finder, after[moved])}


def _class_names(finder: EvidenceFinder, labels: NDArray[np.int32]) -> NDArray[Any]:
    return np.array([*(finder.class_name(label) for label in range(finder.class_count)), None], object)[labels]


def _summary(
    finder: EvidenceFinder, models: Models, name: str, rows: Ints, bad: NDArray[np.int32] | None, confidence: float
) -> _Columns:
    """Return the people in another class than by the first model, and the shares decided unfavourably and right."""
    own, n = models[name][rows], len(rows)
    truth = np.full(n, UNKNOWN) if finder.truth is None else finder.truth[rows]
    changed, judged = int((own != next(iter(models.values()))[rows]).sum()), int((truth != UNKNOWN).sum())
    columns: _Columns = {"n": n, "changed": changed, "changed_share": changed / n, "judged": judged}
    refused = (0, 0) if bad is None else (int(np.isin(own, bad).sum()), n)
    for key, (hits, cases) in {"unfavourable": refused, "accuracy": (int((own == truth).sum()), judged)}.items():
        columns |= {column: float(value) for column, value in share_columns(key, hits, cases, confidence).items()}
    return columns
