"""Maximal marginal relevance: results that are near the query and far from each other."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.checks import as_count, as_number


def marginal_relevance(
    similarity: NDArray[np.floating[Any]], X: NDArray[np.float32], k: int, lambda_mult: float
) -> list[int]:
    """Return the places of k rows by maximal marginal relevance (Carbonell & Goldstein 1998).

    The first is the most similar to the query; each further one maximises ``lambda_mult`` times its similarity to the
    query minus ``1 - lambda_mult`` times its similarity to the nearest of those chosen before. Of equals the first
    row is chosen.

    Parameters
    ----------
    similarity
        Of each row to the query, (n,).
    X
        Unit rows, (n, d).
    k
        How many rows; fewer come back where there are fewer.
    lambda_mult
        0 for the greatest diversity to 1 for similarity alone.

    Raises
    ------
    TypeError, ValueError
        If ``k`` is no positive integer or ``lambda_mult`` is not between 0 and 1.

    Examples
    --------
    >>> X = np.array([[1, 0], [0.96, 0.28], [0.8, -0.6]], np.float32)
    >>> marginal_relevance(np.array([0.99, 0.98, 0.79]), X, k=2, lambda_mult=0.4)
    [0, 2]
    """
    k = min(as_count("k", k), len(X))
    weight = as_number("lambda_mult", lambda_mult, 0.0, 1.0)
    if k == 0:
        return []
    left = np.ones(len(X), bool)
    redundancy = np.full(len(X), -np.inf)
    chosen = [int(np.argmax(similarity))]
    while len(chosen) < k:
        left[chosen[-1]] = False
        np.maximum(redundancy, X @ X[chosen[-1]], out=redundancy)
        relevance = weight * similarity - (1.0 - weight) * redundancy
        chosen.append(int(np.argmax(np.where(left, relevance, -np.inf))))
    return chosen
