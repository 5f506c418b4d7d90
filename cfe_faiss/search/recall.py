"""How many lists to probe for a wanted recall: measured on a sample of the stored vectors."""

from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from cfe_faiss import metrics
from cfe_faiss.checks import UNKNOWN
from cfe_faiss.coarse.class_centroids import Routes
from cfe_faiss.derived import once
from cfe_faiss.lists.storage import Storage, lists_of
from cfe_faiss.search import batch, searcher
from cfe_faiss.search.engine import Engine, Plan
from cfe_faiss.search.exact import Results
from cfe_faiss.search.grouping import Queries, small_groups
from cfe_faiss.search.searcher import InvertedLists

SAMPLE = 2000
"""Stored vectors that are searched exactly to measure the recall of others."""
_DRAWN_AT_ONCE = 128  # rows: the lists that hold them are read in full
_FOLDS = 20
_CERTAIN = 1.64  # one-sided 95 % of a normal distribution


def nprobe_for(
    lists: InvertedLists, k: int, recall: float, *, batched: bool, allowed: NDArray[np.bool_] | None = None
) -> int:
    """Return the smallest number of lists that reaches a recall@k with 95 % confidence, on a sample.

    The sample holds about 2,000 stored vectors: where queries are searched in groups, random groups.
    What is found for (k, recall, batched) among all rows is kept as long as ``lists`` is valid.
    """
    known = lists.calibrations if allowed is None else {}
    return once(known, (k, recall, batched), lambda: _measured(lists, k, recall, batched, allowed))


def _measured(lists: InvertedLists, k: int, recall: float, batched: bool, allowed: NDArray[np.bool_] | None) -> int:
    routes = lists.routes if batched else None
    sample = _vectors(lists.storage) if routes is None else _groups(lists.storage, routes)
    if not sample:
        return lists.number
    engine = Engine.BATCHED if batched else Engine.SINGLE

    def search(nprobe: int) -> Results:
        made = Plan(engine, nprobe, batch.MEMORY, allowed)
        complete = nprobe < lists.number
        parts = [searcher.search(lists, queries, k, made, complete=complete) for queries in sample]
        D, I = (np.concatenate(column) for column in zip(*parts, strict=True))
        return D, I

    exact = search(lists.number)

    def reaches(nprobe: int) -> bool:
        return _lower_bound(search(nprobe), exact) >= recall

    return _smallest(reaches, lists.number)


def _vectors(storage: Storage) -> list[Queries]:
    """Return random stored vectors."""
    rows = _drawn(storage, SAMPLE // 4)
    return [Queries.of_rows(storage, rows)] if len(rows) else []


def _drawn(storage: Storage, most: int) -> NDArray[np.int64]:
    """Return ``most`` random rows, or all in random order, without those of unknown label."""
    rows = np.random.default_rng(0).choice(storage.n, min(most, storage.n), replace=False)
    known: NDArray[np.int64] = rows[storage.labels[rows] != UNKNOWN]
    return known


def _groups(storage: Storage, routes: Routes) -> list[Queries]:
    """Return random groups of stored vectors, made of all vectors of their lists, in several searches.

    Of the vectors of a list that are routed alike a search holds one group, since it would halve two of them anew.
    """
    drawn, count = _drawn(storage, SAMPLE), 0
    chosen: set[int] = set()  # the first row of each group
    of_list: Counter[tuple[int, int]] = Counter()  # how many groups of a list and a label
    searches: list[list[NDArray[np.int64]]] = []
    for key, rows in _groups_with(storage, routes, drawn):
        if count >= SAMPLE:
            break
        if int(rows[0]) not in chosen:
            chosen.add(int(rows[0]))
            count += len(rows)
            if of_list[key] == len(searches):
                searches.append([])
            searches[of_list[key]].append(rows)
            of_list[key] += 1
    return [Queries.of_rows(storage, np.sort(np.concatenate(groups))) for groups in searches]


def _groups_with(
    storage: Storage, routes: Routes, drawn: NDArray[np.int64]
) -> Iterator[tuple[tuple[int, int], NDArray[np.int64]]]:
    """Yield, for each of some rows, the list and the label of its group, and the rows of this group."""
    for first in range(0, len(drawn), _DRAWN_AT_ONCE):
        some = drawn[first : first + _DRAWN_AT_ONCE]
        homes = lists_of(some, storage.starts)
        rows = np.concatenate([np.arange(storage.starts[j], storage.starts[j + 1]) for j in np.unique(homes)])
        groups = small_groups(Queries.of_rows(storage, rows), routes)
        rows = rows[groups.order]
        by_row = np.argsort(rows)
        places = by_row[np.searchsorted(rows, some, sorter=by_row)]
        numbers = np.searchsorted(groups.starts, places, side="right") - 1
        for home, number in zip(homes.tolist(), numbers.tolist(), strict=True):
            yield (home, int(groups.labels[number])), rows[groups.starts[number] : groups.starts[number + 1]]


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
