"""Accuracy of a classifier, and its differences between the two values of a sensitive attribute."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from cfe_faiss.base.checks import UNKNOWN, Array, Bools, Int32s, as_array, as_labels
from cfe_faiss.base.extras import extra
from cfe_faiss.base.text import summary
from cfe_faiss.data.classes import check_names
from cfe_faiss.data.predict import predictions_of

with extra("gnn"):
    from scipy.special import softmax
    from sklearn.metrics import accuracy_score, f1_score, roc_auc_score


@dataclass(frozen=True)
class Evaluation:
    """Result of :func:`evaluate`. Measures that are undefined for these nodes are NaN."""

    n: int
    """Number of evaluated nodes. All measures refer to these."""
    accuracy: float
    """Share of correct predictions, in [0, 1]."""
    f1: float
    """Two classes: F1 of class 1.

    More: mean F1 of the classes that occur in the truth or in the predictions.
    """
    auc: float
    """Area under the ROC curve. More than two classes: mean over one-vs-rest curves."""
    group_sizes: tuple[int, ...]
    """Numbers of nodes whose sensitive attribute is 0, and 1; empty without such an attribute."""
    positive_group_sizes: tuple[int, ...]
    """Numbers of nodes of both groups whose true class is 1, for ``opportunity_difference``."""
    parity_difference: float
    """Statistical parity: ``|P(ŷ=1 | s=0) - P(ŷ=1 | s=1)|``, in [0, 1]."""
    opportunity_difference: float
    """Equal opportunity: ``|P(ŷ=1 | y=1, s=0) - P(ŷ=1 | y=1, s=1)|``, in [0, 1]."""

    __repr__ = summary


def evaluate(model: Any, data: Any, mask: Any = None, *, features: Any = None) -> Evaluation:
    """Compare the predictions of a model with the true classes.

    Parameters
    ----------
    model
        A model for :func:`cfe_faiss.models.predict`, a fitted scikit-learn estimator, or the
        predictions for every node: logits or probabilities, (n, C), or classes, (n,), as numbers or
        texts.
    data
        The graph, PyG ``Data`` with ``y``, and with ``sensitive`` (n,), 0 or 1, for the two
        differences; -1 is unknown.
    mask
        The nodes to evaluate, (n,) bool; default: ``data.test_mask``. Those without a true class
        are left out.
    features
        Attributes of the nodes, for estimators that were fitted on a DataFrame.

    Returns
    -------
    Evaluation
        ``auc`` is NaN for predictions without scores, or if a class in ``y`` has no node, or all
        nodes, in the mask. Both differences are NaN without a sensitive attribute, for more than
        two classes (none is favourable), and for a group without nodes.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, or the mask holds no node.

    Notes
    -----
    Statistical parity: Dwork et al., ITCS 2012. Equal opportunity: Hardt, Price & Srebro, NeurIPS
    2016. Both for class 1, as Dai & Wang (WSDM 2021) report them.

    Examples
    --------
    >>> from cfe_faiss.datasets import load
    >>> data = load("patients")
    >>> evaluation = evaluate(data.y, data)
    >>> evaluation.n, evaluation.accuracy, evaluation.group_sizes
    (142, 1.0, ())
    """
    n = len(data.y)
    given = as_array("mask", data.test_mask if mask is None else mask)
    if given.shape != (n,) or not np.isin(given, (0, 1)).all():
        raise ValueError(
            f"mask must be bool of shape ({n},), or 0 and 1, got {given.dtype} {given.shape}"
        )
    if not given.any():
        raise ValueError(f"mask must hold at least one node, got none of {n}")
    true = as_labels("data.y", data.y, n, unknown=True)
    nodes = np.flatnonzero(given.astype(np.bool_) & (true != UNKNOWN))
    if not len(nodes):
        raise ValueError("mask must hold a node with a true class, got none")
    predictions = predictions_of(model, data, features)
    check_names(predictions, data)
    scores = predictions.scores
    highest = int(max(true.max(), predictions.labels.max()))
    binary = (highest + 1 if scores is None else scores.shape[1]) <= 2
    truth = true[nodes]
    predicted = predictions.labels[nodes]
    groups: tuple[Bools, ...] = ()
    if getattr(data, "sensitive", None) is not None:
        sensitive = as_labels("data.sensitive", data.sensitive, n, unknown=True)[nodes]
        if sensitive.max() > 1:
            raise ValueError(f"data.sensitive must be 0 or 1, got {sensitive.max()}")
        groups = sensitive == 0, sensitive == 1
    positive = tuple(group & (truth == 1) for group in groups)
    return Evaluation(
        n=len(truth),
        accuracy=float(accuracy_score(truth, predicted)),
        f1=float(
            f1_score(truth, predicted, average="binary" if binary else "macro", zero_division=0)
        ),
        auc=math.nan if scores is None else _auc(truth, scores[nodes]),
        group_sizes=tuple(int(group.sum()) for group in groups),
        positive_group_sizes=tuple(int(group.sum()) for group in positive),
        parity_difference=_difference(predicted, groups) if binary else math.nan,
        opportunity_difference=_difference(predicted, positive) if binary else math.nan,
    )


def _difference(predicted: Int32s, groups: tuple[Bools, ...]) -> float:
    """Return the absolute difference of the two groups' shares of class 1."""
    if not groups or not all(group.any() for group in groups):
        return math.nan
    shares = [float((predicted[group] == 1).mean()) for group in groups]
    return abs(shares[0] - shares[1])


def _auc(truth: Int32s, scores: Array) -> float:
    """Return the mean area under the one-vs-rest curves; with two classes that of class 1."""
    scores = scores.astype(np.float64)
    are_shares = (scores >= 0).all() and np.allclose(scores.sum(axis=1), 1, atol=1e-4)
    # Nodes are ranked by differences of logits, so a single column of logits is not enough.
    shares = scores if are_shares else softmax(scores, axis=1)
    classes = (1,) if shares.shape[1] == 2 else range(shares.shape[1])
    areas = [
        float(roc_auc_score(truth == c, shares[:, c]))
        if 0 < (truth == c).sum() < len(truth)
        else math.nan
        for c in classes
    ]
    return float(np.mean(areas))
