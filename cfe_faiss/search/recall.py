"""How many lists to probe for a wanted recall: measured on a sample of the stored vectors."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from cfe_faiss import metrics
from cfe_faiss.checks import UNKNOWN
from cfe_faiss.search import batch, searcher
from cfe_faiss.search.engine import Engine, Plan
from cfe_faiss.search.exact import Results
from cfe_faiss.search.grouping import Queries
from cfe_faiss.search.searcher import InvertedLists

SAMPLE = 2000
"""Stored vectors that are searched exactly to measure the recall of others."""
_FOLDS = 20
_CERTAIN = 1.64  # one-sided 95 % of a normal distribution


def nprobe_for(
    lists: InvertedLists, k: int, recall: float, *, batched: bool, allowed: NDArray[np.bool_] | None = None
) -> int:
    """Return the smallest number of lists that reaches a recall@k with 95 % confidence, on a sample.

    The sample holds up to 2,000 stored vectors, in whole lists where queries are searched in groups, list by list.
    What is found for (k, recall, batched) among all rows is kept as long as ``lists`` is valid.
    """
    known = lists.calibrations if allowed is None else {}
    key = (k, recall, batched)
    if key not in known:
        queries = _sample(lists, batched)
        if len(queries) == 0:
            return lists.number
        engine = Engine.BATCHED if batched else Engine.SINGLE

        def search(nprobe: int) -> Results:
            made = Plan(engine, nprobe, batch.MEMORY, allowed)
            return searcher.search(lists, queries, k, made, complete=nprobe < lists.number)

        exact = search(lists.number)

        def reaches(nprobe: int) -> bool:
            return _lower_bound(search(nprobe), exact) >= recall

        known[key] = _smallest(reaches, lists.number)
    return known[key]


def _sample(lists: InvertedLists, batched: bool) -> Queries:
    storage, rng = lists.storage, np.random.default_rng(0)
    if batched:
        order = rng.permutation(len(storage.starts) - 1)
        enough = int(np.searchsorted(np.cumsum(np.diff(storage.starts)[order]), SAMPLE)) + 1
        rows = np.concatenate([np.arange(storage.starts[j], storage.starts[j + 1]) for j in order[:enough]])
    else:
        rows = rng.choice(storage.n, min(SAMPLE // 4, storage.n), replace=False)
    return Queries.of_rows(storage, rows[storage.labels[rows] != UNKNOWN])


def _lower_bound(found: Results, exact: Results) -> float:
    """Return the recall less its standard error times 1.64, over folds of neighbouring rows: those are alike."""
    folds = np.array_split(np.arange(len(found[0])), min(_FOLDS, len(found[0])))
    each = [metrics.recall(found[1][fold], exact[1][fold], found[0][fold], exact[0][fold]) for fold in folds]
    return float(np.mean(each) - _CERTAIN * np.std(each) / np.sqrt(len(each)))


def _smallest(reaches: Callable[[int], bool], most: int) -> int:
    """Return the smallest number up to ``most`` that reaches, to within an eighth, taking more as never worse."""
    low, high = 0, 1
    while high < most and not reaches(high):
        low, high = high, min(2 * high, most)
    while high - low > max(1, high // 8):
        middle = (low + high) // 2
        if reaches(middle):
            high = middle
        else:
            low = middle
    return high
