"""Search for the fastest settings of an inverted file at a given recall."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from cfe_faiss import metrics
from cfe_faiss.base.arrays import Bools
from cfe_faiss.base.checks import as_count, as_number, as_unit_rows
from cfe_faiss.base.text import summary
from cfe_faiss.base.values import as_labels
from cfe_faiss.index.ivf_base import automatic_nlist
from cfe_faiss.index.ivf_flat import IndexEvidenceIVF
from cfe_faiss.search.query import Results
from cfe_faiss.search.recall import smallest

_FACTORS = (0.25, 0.5, 1.0, 2.0)
_PARTITIONS = (1, 2)
_REPEATS = 3


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting and its measurements on the sample.

    Attributes
    ----------
    nlist, partitions, nprobe
        Parameters of the index and of the search.
    recall
        Recall@k on the half of the vectors that chooses.
    unseen_recall
        Recall@k on the other half.
    seconds
        Time per vector of a search for all vectors, the shortest of three, in seconds.
    """

    nlist: int
    partitions: int
    nprobe: int
    recall: float
    unseen_recall: float
    seconds: float

    __repr__ = summary


@dataclass(frozen=True, slots=True)
class Tuning:
    """Result of :func:`tune`.

    Attributes
    ----------
    best
        The fastest setting that reaches the recall on the choosing half; the last one tried probes all lists.
    curve
        The Pareto curve: settings for which no other is both faster and better, by ascending recall.
    n
        Number of vectors in the sample.
    k, wanted
        The requested k and recall.
    """

    best: Setting
    curve: tuple[Setting, ...]
    n: int
    k: int
    wanted: float

    __repr__ = summary

    def build(self, X: ArrayLike, labels: ArrayLike, ids: ArrayLike | None = None) -> IndexEvidenceIVF:
        """Return an index of vectors, (n, d), with labels, (n,), in the best setting.

        For more vectors than in the sample, ``nlist`` grows as the square root of their number. ``nprobe`` is the
        smallest value that reaches the recall on a sample of the new index.
        """
        vectors = as_unit_rows("X", X)
        nlist = max(1, min(len(vectors), round(self.best.nlist * math.sqrt(len(vectors) / self.n))))
        index = IndexEvidenceIVF(vectors.shape[1], nlist, self.best.partitions)
        index.train(vectors)
        index.add_with_labels(vectors, labels, ids)
        index.nprobe = index.nprobe_for(self.wanted, self.k)
        return index


def tune(
    X: ArrayLike, labels: ArrayLike, k: int = 10, recall: float = 0.95, *, sample: int = 50_000, seed: int = 0
) -> Tuning:
    """Choose nlist, partitions and nprobe for the evidence of all vectors at a given recall.

    Indexes with 1/4, 1/2, 1 and 2 times the automatic number of lists, and one and two partitions, are built over a
    sample of the vectors. The evidence of every vector in the sample is searched exactly, and with increasing nprobe.
    One half of the vectors chooses the setting; the recall on the other half is unbiased.

    Parameters
    ----------
    X
        Vectors, (n, d), n >= 2.
    labels
        Predicted class of each, (n,): integers or texts.
    k
        Results per vector, >= 1.
    recall
        Required recall@k, in (0, 1].
    sample
        Largest size of the random sample, >= 2.
    seed
        Seed of the sample and of the halves, >= 0.

    Returns
    -------
    Tuning
        The best setting, the Pareto curve, and ``build(X, labels)`` for the index.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Notes
    -----
    Times, and so the choice, depend on the machine and its load; recalls do not. A setting takes one training, one
    addition and about ten searches for all vectors of the sample.

    Examples
    --------
    >>> import numpy as np
    >>> import cfe_faiss as cfe
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(20, 8))[rng.integers(0, 20, 1000)] + 0.2 * rng.normal(size=(1000, 8))
    >>> labels = rng.integers(0, 3, 1000)
    >>> tuning = cfe.tune(X, labels, k=5, recall=0.9)
    >>> tuning.best.recall >= 0.9
    True
    >>> tuning.build(X, labels).ntotal
    1000
    """
    vectors = as_unit_rows("X", X)
    if len(vectors) < 2:
        raise ValueError(f"X must hold at least 2 vectors, got {len(vectors)}")
    known = as_labels("labels", labels, len(vectors))
    k, wanted = as_count("k", k), as_number("recall", recall, math.nextafter(0, 1), 1)
    rng = np.random.default_rng(as_count("seed", seed, 0))
    if len(vectors) > as_count("sample", sample, 2):
        chosen = np.sort(rng.choice(len(vectors), sample, replace=False))
        vectors, known = vectors[chosen], known[chosen]
    first = rng.random(len(vectors)) < 0.5
    first[:2] = True, False
    settings: list[Setting] = []
    exact: Results | None = None
    for factor in _FACTORS:
        nlist = max(1, min(len(vectors), round(factor * automatic_nlist(len(vectors)))))
        for partitions in _PARTITIONS:
            index = IndexEvidenceIVF(vectors.shape[1], nlist, partitions)
            index.train(vectors)
            index.add_with_labels(vectors, known)
            if exact is None:
                exact = index.search_stored(None, k, exact=True)
            settings += _try_settings(index, k, wanted, exact, first)
    reaching = [setting for setting in settings if setting.recall >= wanted]
    return Tuning(min(reaching, key=lambda one: one.seconds), _pareto(settings), len(vectors), k, wanted)


def _try_settings(index: IndexEvidenceIVF, k: int, wanted: float, exact: Results, first: Bools) -> list[Setting]:
    """Try settings until the smallest nprobe that reaches the recall is known."""
    tried: list[Setting] = []

    def reaches(nprobe: int) -> bool:
        tried.append(_measure(index, k, nprobe, exact, first))
        return tried[-1].recall >= wanted

    nprobe = smallest(reaches, index.nlist * index.partitions)
    if nprobe not in [setting.nprobe for setting in tried]:  # all lists
        reaches(nprobe)
    return tried


def _measure(index: IndexEvidenceIVF, k: int, nprobe: int, exact: Results, first: Bools) -> Setting:
    times = []
    for _ in range(_REPEATS):
        start = time.perf_counter()
        D, I = index.search_stored(None, k, nprobe)
        times.append(time.perf_counter() - start)
    seen, unseen = (metrics.recall(I[half], exact[1][half], D[half], exact[0][half]) for half in (first, ~first))
    return Setting(index.nlist, index.partitions, nprobe, seen, unseen, min(times) / len(first))


def _pareto(settings: list[Setting]) -> tuple[Setting, ...]:
    """Return the settings of the Pareto curve, by ascending recall."""
    curve: list[Setting] = []
    for setting in sorted(settings, key=lambda one: (-one.recall, one.seconds)):
        if not curve or setting.seconds < curve[-1].seconds:
            curve.append(setting)
    return tuple(reversed(curve))
