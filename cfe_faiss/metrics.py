"""How good a result is: the paper's average similarity, and recall that counts ties as found."""

import numpy as np
from numpy.typing import ArrayLike

from cfe_faiss.base.checks import as_array
from cfe_faiss.rows.metric import PADDING, Metric, as_metric, is_distance


def average_similarity(D: ArrayLike) -> float:
    """Return the average similarity AS (paper, "Evaluation Metrics"): mean of sum(KS) / k.

    Parameters
    ----------
    D
        Similarities of a search, (n, k). Padding counts as 0, as the paper divides by k however
        many were found.

    Raises
    ------
    TypeError, ValueError
        If D is not a non-empty two-dimensional array of numbers.

    Examples
    --------
    >>> average_similarity([[1.0, 0.5], [0.7, -3.4028235e38]])
    0.55
    """
    similarities = as_array("D", D).astype(np.float64)
    if similarities.ndim != 2 or similarities.size == 0:
        raise ValueError(f"D must have shape (n, k) with n, k >= 1, got {similarities.shape}")
    return float(np.where(similarities <= PADDING, 0.0, similarities).mean())


def recall(
    I: ArrayLike,
    I_exact: ArrayLike,
    D: ArrayLike,
    D_exact: ArrayLike,
    metric: Metric | int = "cosine",
) -> float:
    """Return the share of the exact results that a search found.

    A tie with the last exact result counts as found.

    Parameters
    ----------
    I, D
        Ids and similarities of the search, (n, k).
    I_exact, D_exact
        Ids and similarities of the exact search, (n, k).
    metric
        Metric of the index; for "l2", D are squared distances, the smallest first.

    Returns
    -------
    float
        Found / wanted over all rows, in [0, 1]; 1 when nothing was wanted. An id counts once in a
        row.

    Raises
    ------
    TypeError, ValueError
        If the four arrays are not of one shape (n, k).

    Examples
    --------
    >>> recall([[3, 5]], [[3, 4]], [[0.9, 0.8]], [[0.9, 0.8]])
    1.0
    >>> recall([[3, 5]], [[3, 4]], [[0.9, 0.7]], [[0.9, 0.8]])
    0.5
    >>> recall([[3, 5]], [[3, 4]], [[0.9, 1.1]], [[0.9, 1]], metric="l2")
    0.5
    """
    ids = as_array("I", I)
    exact_ids = as_array("I_exact", I_exact)
    similarities = as_array("D", D)
    exact_similarities = as_array("D_exact", D_exact)
    for name, array in (
        ("I_exact", exact_ids),
        ("D", similarities),
        ("D_exact", exact_similarities),
    ):
        if array.shape != ids.shape or ids.ndim != 2:
            raise ValueError(
                f"{name} must have the shape of I, (n, k), got {array.shape} and {ids.shape}"
            )
    if is_distance(as_metric("metric", metric)):
        similarities = 0 - similarities
        exact_similarities = 0 - exact_similarities
    wanted = (exact_ids >= 0).sum(axis=1)
    last = np.where(exact_ids >= 0, exact_similarities, np.inf).min(axis=1, initial=np.inf)
    order = np.argsort(ids, axis=1, kind="stable")
    ordered = np.take_along_axis(ids, order, axis=1)
    reaches = np.take_along_axis(similarities, order, axis=1) >= last[:, None]
    listed = np.zeros(ids.shape, bool)
    for column in range(exact_ids.shape[1]):
        listed |= ordered == exact_ids[:, column, None]
    again = np.zeros(ids.shape, bool)
    again[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
    found = ((ordered >= 0) & (reaches | listed) & ~again).sum(axis=1)
    total = int(wanted.sum())
    return float(np.minimum(found, wanted).sum() / total) if total else 1.0
