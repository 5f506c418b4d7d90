"""Lists probed for a wanted recall: calibrated for each class of the queries, on a sample of its stored rows.

Stored rows that are searched in groups are calibrated on their own groups. Queries that are searched alone may be new:
a stored row is easier to find evidence for than they are, where it counts in the mean of its own list. So the rows of
the sample are left out of these means.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.checks import UNKNOWN, as_unit_rows
from cfe_faiss.coarse.class_centroids import Ranking, Routes
from cfe_faiss.derived import once
from cfe_faiss.lists.storage import Storage, lists_of
from cfe_faiss.search import batch, searcher
from cfe_faiss.search.engine import Calibration, Engine, Plan
from cfe_faiss.search.exact import Results
from cfe_faiss.search.grouping import Queries, small_groups
from cfe_faiss.search.searcher import InvertedLists

SAMPLE = 1000
"""Stored rows that are searched exactly to measure the recall of others, beside those for rare classes."""
LEAST_ROWS = 100
"""Stored rows of a class that is calibrated for itself; smaller classes are calibrated together."""
_OF_CLASS = 250  # rows of the sample for each class
_OF_ALL_CLASSES = 4000  # and for all of them, if there are many
_CLASS_SLACK = 0.01  # what the recall of one class may be below the one asked for
_CERTAIN = 2.6  # one-sided 99.5 % of a normal distribution
_DRAWN_AT_ONCE = 128  # rows: the lists that hold them are read in full
_READ_AT_ONCE = 1 << 14  # rows


@dataclass(frozen=True, eq=False)
class _Sample:
    """Random stored rows of each stratum: a class, or the small classes together.

    Attributes
    ----------
    rows, strata
        Storage rows, (s,) int64, and the stratum of each.
    sizes
        Stored rows of each stratum, (strata,) int64.
    labels
        Classes of each stratum.
    """

    rows: NDArray[np.int64]
    strata: NDArray[np.int64]
    sizes: NDArray[np.int64]
    labels: list[list[int]]

    @classmethod
    def of(cls, storage: Storage) -> "_Sample":
        """Draw rows in proportion to the classes, but at least some of each."""
        classes, counts = storage.class_counts
        parts = np.split(storage.by_label, np.cumsum(counts)[:-1])
        small = [number for number, count in enumerate(counts.tolist()) if count < LEAST_ROWS]
        numbers = [[number] for number in range(len(classes)) if number not in set(small)] + ([small] if small else [])
        members = [np.concatenate([parts[number] for number in some]) for some in numbers]
        least = min(_OF_CLASS, _OF_ALL_CLASSES // max(1, len(members)))
        rng = np.random.default_rng(0)
        wanted = [max(least, math.ceil(SAMPLE * len(some) / storage.n)) for some in members]
        drawn = [
            rng.choice(some, min(len(some), size), replace=False) for some, size in zip(members, wanted, strict=True)
        ]
        return cls(
            np.concatenate([np.empty(0, np.int64), *drawn]),
            np.repeat(np.arange(len(drawn)), [len(some) for some in drawn]),
            np.array([len(some) for some in members], np.int64),
            [classes[some].tolist() for some in numbers],
        )


def calibration(
    lists: InvertedLists, k: int, recall: float, *, batched: bool, allowed: NDArray[np.bool_] | None = None
) -> Calibration:
    """Return for each class the smallest number of lists that reaches a recall@k, with a lower confidence bound.

    That of the class may be 0.01 below ``recall``, that of the mean over all queries may not. A calibration for
    (k, recall, batched) among all rows is kept as long as ``lists`` is valid.
    """
    known = lists.calibrations if allowed is None else {}
    made = Plan(Engine.BATCHED if batched else Engine.SINGLE, lists.number, batch.MEMORY, allowed)
    return once(known, (k, recall, batched), lambda: _calibrated(lists, k, recall, made))


def _calibrated(lists: InvertedLists, k: int, recall: float, made: Plan) -> Calibration:
    sample, routes = _Sample.of(lists.storage), lists.routes
    rows = sample.rows
    if len(rows) == 0:
        return Calibration({}, lists.number, {})
    searches, clusters, tried = [rows], np.arange(len(rows)), lists
    if made.batched and routes is not None:
        searches, clusters = _groups(lists.storage, routes, rows)
    elif routes is not None:
        tried = _held_out(lists, routes, rows)
    places = np.argsort(np.concatenate(searches))[np.searchsorted(np.sort(np.concatenate(searches)), rows)]
    exact_by = Engine.SINGLE if lists.ranking is None else Engine.BATCHED
    exact = _search(lists, [rows], k, made._replace(engine=exact_by))

    @cache
    def measured(nprobe: int) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        D, I = _search(tried, searches, k, made._replace(nprobe=nprobe))
        means, errors = _means(_recalls((D[places], I[places]), exact), sample.strata, clusters)
        if made.batched:  # stored rows are all there are
            errors *= np.sqrt(1 - np.bincount(sample.strata) / sample.sizes)
        margin = _CERTAIN * errors
        of_mean = margin * np.sqrt(sample.sizes / sample.sizes.sum())
        return means, means >= recall + np.maximum(margin - _CLASS_SLACK, of_mean)

    def reaches(stratum: int, nprobe: int) -> bool:
        return bool(measured(nprobe)[1][stratum])

    found = Calibration({}, 1, {})
    for stratum, labels in enumerate(sample.labels):
        nprobe = _smallest(partial(reaches, stratum), lists.number)
        reached = 1.0 if nprobe >= lists.number else float(measured(nprobe)[0][stratum])
        found.nprobe.update(dict.fromkeys(labels, nprobe))
        found.recall.update(dict.fromkeys(labels, reached))
    return replace(found, other=found.most)


def _search(lists: InvertedLists, searches: list[NDArray[np.int64]], k: int, made: Plan) -> Results:
    complete, storage = made.nprobe < lists.number, lists.storage
    parts = [searcher.search(lists, Queries.of_rows(storage, rows), k, made, complete=complete) for rows in searches]
    D, I = (np.concatenate(column) for column in zip(*parts, strict=True))
    return D, I


def _recalls(found: Results, exact: Results) -> NDArray[np.float64]:
    """Return the recall of each row; what is as similar as the last exact result counts as found."""
    wanted = (exact[1] >= 0).sum(axis=1)
    last = np.where(exact[1] >= 0, exact[0], np.inf).min(axis=1)
    number = ((found[1] >= 0) & (found[0] >= last[:, None])).sum(axis=1)
    return np.where(wanted > 0, np.minimum(number, wanted) / np.maximum(wanted, 1), 1.0)


def _means(
    values: NDArray[np.float64], strata: NDArray[np.int64], clusters: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean of each stratum, and its standard error; values of one cluster are alike."""
    number = np.bincount(strata)
    means = np.bincount(strata, values) / number
    pairs, pair = np.unique(clusters * len(number) + strata, return_inverse=True)
    squares = np.bincount(pairs % len(number), np.bincount(pair, values - means[strata]) ** 2)
    count = np.bincount(pairs % len(number))
    return means, np.sqrt(squares * count / np.maximum(count - 1, 1)) / number


def _held_out(lists: InvertedLists, routes: Routes, rows: NDArray[np.int64]) -> InvertedLists:
    """Return the lists as they are for queries that are not stored, though the given rows are.

    A row counts in the mean that its own list is ranked by, where its class has a small share. There the class gets a
    mean of the list without the given rows of this class.
    """
    storage, places, number = lists.storage, lists.places, len(routes.means)
    members = np.concatenate([np.arange(storage.n), places.references])
    homes = np.repeat(np.arange(number), np.diff(places.starts))
    chosen = np.zeros(storage.n, np.bool_)
    chosen[rows] = True
    at = np.flatnonzero(chosen[members])
    at = at[~routes.has_centroids(storage.labels[members[at]], homes[at])]
    keys, key = np.unique(storage.labels[members[at]].astype(np.int64) * number + homes[at], return_inverse=True)
    labels, of = np.divmod(keys, number)
    sums = -_sums(storage, members[at], key, len(keys))
    touched, place = np.unique(of, return_inverse=True)
    whole = np.flatnonzero(np.isin(homes, touched) & (storage.labels[members] != UNKNOWN))
    sums += _sums(storage, members[whole], np.searchsorted(touched, homes[whole]), len(touched))[place]
    left = np.bincount(homes[whole], minlength=number)[of] - np.bincount(key, minlength=len(keys))
    with_means = np.concatenate([np.repeat(routes.labels, np.diff(routes.starts)), labels.astype(np.int32)])
    all_lists = np.concatenate([routes.class_lists, of])
    order = np.lexsort((all_lists, with_means))
    classes, counts = np.unique(with_means, return_counts=True)
    without = replace(
        routes,
        labels=classes,
        starts=np.append(0, np.cumsum(counts)).astype(np.int64),
        class_lists=all_lists[order],
        class_means=np.concatenate([routes.class_means, as_unit_rows("means", sums.astype(np.float32))])[order],
        class_filled=np.concatenate([routes.class_filled, left > 0])[order],
    )
    held = replace(lists, ranking=Ranking(storage, lists.references, lists.reference_starts, without))
    vars(held)["alone_by_blocks"] = lists.alone_by_blocks  # measured once
    return held


def _sums(storage: Storage, rows: NDArray[np.int64], groups: NDArray[np.int64], number: int) -> NDArray[np.float64]:
    """Return the sum of the rows of each group, (number, d)."""
    sums = np.zeros((number, storage.d))
    order = np.argsort(groups, kind="stable")
    for first in range(0, len(rows), _READ_AT_ONCE):
        some = order[first : first + _READ_AT_ONCE]
        begins = np.flatnonzero(np.diff(groups[some], prepend=-1))
        sums[groups[some[begins]]] += np.add.reduceat(storage.rows(rows[some])[0].astype(np.float64), begins)
    return sums


def _groups(
    storage: Storage, routes: Routes, drawn: NDArray[np.int64]
) -> tuple[list[NDArray[np.int64]], NDArray[np.int64]]:
    """Return the groups that some rows are searched in, as rows of several searches, and the group of each drawn row.

    Of the vectors of a list that are routed alike a search holds one group, since it would halve two of them anew.
    """
    of_list: Counter[tuple[int, int]] = Counter()  # how many groups of a list and a label
    numbers: dict[int, int] = {}  # of the groups, by their first row
    searches: list[list[NDArray[np.int64]]] = []
    clusters = []
    for key, rows in _groups_with(storage, routes, drawn):
        if int(rows[0]) not in numbers:
            if of_list[key] == len(searches):
                searches.append([])
            searches[of_list[key]].append(rows)
            of_list[key] += 1
        clusters.append(numbers.setdefault(int(rows[0]), len(numbers)))
    return [np.sort(np.concatenate(groups)) for groups in searches], np.array(clusters)


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
