"""Simulated people for the direct tests: decisions that follow the vectors, and the attribute if it harms."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import cfe_faiss as cfe

REFUSED, GRANTED = 0, 1


def score_of(X: NDArray[Any]) -> NDArray[np.float64]:
    """Return a mildly nonlinear score with 40 % below 0 and standard deviation 1."""
    score = X @ np.arange(1.0, X.shape[1] + 1)[::-1] / X.shape[1] + 0.5 * X[:, 0] * X[:, 1]
    centred: NDArray[np.float64] = (score - np.quantile(score, 0.4)) / score.std()
    return centred


def simulated(
    seed: int, n: int = 1200, *, share: float = 0.5, tracks: float = 0.0, harm: float = 0.0
) -> dict[str, NDArray[Any]]:
    """Return vectors X, who carries the value, and decisions.

    ``tracks``: by how much the attribute follows the score (carriers score lower). ``harm``: share of the carriers near
    the border who are refused for it.
    """
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 6)) * np.arange(1, 7) ** -0.5
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    score = score_of(X)
    carries = rng.random(n) < 1 / (1 + np.exp(tracks * score - np.log(share / (1 - share))))
    labels = np.where(score > 0, GRANTED, REFUSED)
    border = carries & (np.abs(score) <= np.quantile(np.abs(score), 0.3))
    labels[border & (rng.random(n) < harm)] = REFUSED
    return {"X": X, "carries": carries, "labels": labels}


def finder_of(
    people: dict[str, NDArray[Any]], order: Any = slice(None), **more: Any
) -> cfe.EvidenceFinder:
    sex = np.where(people["carries"], "f", "m")[order]
    features = {"sex": sex, **{name: np.asarray(values)[order] for name, values in more.items()}}
    return cfe.EvidenceFinder.from_vectors(
        people["X"][order], people["labels"][order], features=features
    )
