"""Probabilities by group: calibration, and rates at every threshold."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cfe_faiss.audit.group_rates import groups_of, sensitive_attributes
from cfe_faiss.audit.groups import DEFAULT_BINS, Bins, Floats, Frame, Grouping, share, stack
from cfe_faiss.audit.intervals import share_columns
from cfe_faiss.base.checks import as_array, as_count


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
        known = (group.codes >= 0) & ~np.isnan(truth)
        cells = group.codes[known] * n_bins + places[known]
        size = len(group.values) * n_bins
        count = np.bincount(cells, minlength=size)
        right, total = (np.bincount(cells, values[known], size) for values in (truth, prob))
        some = np.flatnonzero(count)
        blocks.append(
            {
                "feature": group.name,
                "value": [group.values[cell // n_bins] for cell in some],
                "bin": some % n_bins,
                "count": count[some],
                "predicted": total[some] / count[some],
                **share_columns("observed", right[some], count[some], confidence),
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
            own = group.codes == code
            parts = {"rate": own, "tpr": own & (truth == 1), "fpr": own & (truth == 0)}
            blocks.append(
                {
                    "feature": group.name,
                    "value": value,
                    "threshold": points,
                    "count": int(own.sum()),
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
