"""Lists probed for a wanted recall: calibrated for each class of the queries, on a sample of its stored rows.

Stored rows that are searched in groups are calibrated on their own groups. Queries that are searched alone may be new:
a stored row is easier to find evidence for than they are, where it counts in the mean of its own list. So the rows of
the sample are left out of these means.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.checks import UNKNOWN, as_unit_rows
from cfe_faiss.base.derived import once
from cfe_faiss.coarse.class_centroids import Ranking, Routes
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
_Search = Callable[[list[NDArray[np.int64]], int], Results]  # of storage rows in several searches, in so many lists


@dataclass(frozen=True, eq=False)
class _Stratum:
    """Random stored rows of a class, or of the small classes together.

    Attributes
    ----------
    labels
        The class, or the small classes.
    rows
        Storage rows, (s,) int64.
    size, share
        Number of all stored rows of the stratum, and their share of those of all strata.
    """

    labels: list[int]
    rows: NDArray[np.int64]
    size: int
    share: float


def _strata(storage: Storage) -> list[_Stratum]:
    """Draw rows in proportion to the classes, but at least some of each."""
    classes, counts = storage.class_counts
    parts = np.split(storage.by_label, np.cumsum(counts)[:-1])
    small = np.flatnonzero(counts < LEAST_ROWS).tolist()
    numbers = [[number] for number in np.flatnonzero(counts >= LEAST_ROWS).tolist()] + ([small] if small else [])
    least = min(_OF_CLASS, _OF_ALL_CLASSES // max(1, len(numbers)))
    rng = np.random.default_rng(0)
    strata = []
    for some in numbers:
        members = np.concatenate([parts[number] for number in some])
        wanted = max(least, math.ceil(SAMPLE * len(members) / storage.n))
        rows = rng.choice(members, min(len(members), wanted), replace=False)
        strata.append(_Stratum(classes[some].tolist(), rows, len(members), len(members) / int(counts.sum())))
    return strata


def calibration(
    lists: InvertedLists,
    k: int,
    recall: float,
    *,
    batched: bool,
    complete: bool = True,
    allowed: NDArray[np.bool_] | None = None,
) -> Calibration:
    """Return for each class the smallest number of lists that reaches a recall@k, with a lower confidence bound.

    That of the class may be 0.01 below ``recall``, that of the mean over all queries may not. A calibration for
    (k, recall, batched, complete) among all rows is kept as long as ``lists`` is valid.
    """
    known = lists.calibrations if allowed is None else {}
    made = Plan(Engine.BATCHED if batched else Engine.SINGLE, lists.number, batch.MEMORY, allowed)
    return once(known, (k, recall, batched, complete), lambda: _calibrated(lists, k, recall, made, complete))


def _calibrated(lists: InvertedLists, k: int, recall: float, made: Plan, complete: bool) -> Calibration:
    strata, routes = _strata(lists.storage), lists.routes
    if not strata:
        return Calibration({}, lists.number, {})
    rows = np.concatenate([stratum.rows for stratum in strata])
    tried = lists if made.batched or routes is None else _held_out(lists, routes, rows)

    def search(searches: list[NDArray[np.int64]], nprobe: int) -> Results:
        each, plan = [Queries.of_rows(lists.storage, some) for some in searches], made._replace(nprobe=nprobe)
        parts = [searcher.search(tried, queries, k, plan, complete=complete) for queries in each]
        D, I = (np.concatenate(column) for column in zip(*parts, strict=True))
        return D, I

    exact_by = made._replace(engine=Engine.SINGLE if routes is None else Engine.BATCHED)
    D, I = searcher.search(lists, Queries.of_rows(lists.storage, rows), k, exact_by, complete=complete)
    found, last = Calibration({}, 1, {}), 0
    for stratum in strata:
        first, last = last, last + len(stratum.rows)
        own = D[first:last], I[first:last]
        nprobe, reached = _measured(lists, stratum, own, recall, search, made.batched)
        found.nprobe.update(dict.fromkeys(stratum.labels, nprobe))
        found.recall.update(dict.fromkeys(stratum.labels, reached))
    return replace(found, other=found.most)


def _measured(
    lists: InvertedLists, stratum: _Stratum, exact: Results, recall: float, search: _Search, batched: bool
) -> tuple[int, float]:
    """Return the smallest number of lists that is enough for a stratum, and the recall of the sample with it."""
    searches, clusters = [stratum.rows], np.arange(len(stratum.rows))
    if batched and lists.routes is not None:
        searches, clusters = _groups(lists.storage, lists.routes, stratum.rows)
    searched = np.concatenate(searches)
    places = np.argsort(searched)[np.searchsorted(np.sort(searched), stratum.rows)]
    reached = {lists.number: 1.0}

    def reaches(nprobe: int) -> bool:
        D, I = search(searches, nprobe)
        values = _recalls((D[places], I[places]), exact)
        margin = _CERTAIN * _standard_error(values, clusters)
        if batched:  # the stored rows are all queries that there are
            margin *= math.sqrt(1 - len(values) / stratum.size)
        reached[nprobe] = float(values.mean())
        return reached[nprobe] >= recall + max(margin - _CLASS_SLACK, margin * math.sqrt(stratum.share))

    nprobe = _smallest(reaches, lists.number)
    return nprobe, reached[nprobe]


def _recalls(found: Results, exact: Results) -> NDArray[np.float64]:
    """Return the recall of each row; what is as similar as the last exact result counts as found."""
    wanted = (exact[1] >= 0).sum(axis=1)
    last = np.where(exact[1] >= 0, exact[0], np.inf).min(axis=1)
    number = ((found[1] >= 0) & (found[0] >= last[:, None])).sum(axis=1)
    return np.where(wanted > 0, np.minimum(number, wanted) / np.maximum(wanted, 1), 1.0)


def _standard_error(values: NDArray[np.float64], clusters: NDArray[np.int64]) -> float:
    """Return the standard error of the mean of values; those of one cluster are alike."""
    sums = np.bincount(np.unique(clusters, return_inverse=True)[1], values - values.mean())
    return math.sqrt(len(sums) / max(1, len(sums) - 1) * float(sums @ sums)) / len(values)


def _held_out(lists: InvertedLists, routes: Routes, rows: NDArray[np.int64]) -> InvertedLists:
    """Return the lists as they are for queries that are not stored, though the given rows are.

    A row counts in the mean that its own list is ranked by, where its class has a small share. There the class gets a
    mean of the list without the given rows of this class.
    """
    storage, places = lists.storage, lists.places
    members = np.concatenate([np.arange(storage.n), places.references])
    held = np.isin(np.arange(storage.n), rows)
    homes = lists_of(np.flatnonzero(held[members]), places.starts)
    labels = storage.labels[members[held[members]]]
    small = ~routes.has_centroids(labels, homes)
    pairs = np.unique(np.stack([labels[small], homes[small]]), axis=1)
    means, filled = np.zeros((len(pairs[0]), storage.d), np.float32), np.zeros(len(pairs[0]), np.bool_)
    for number, (label, home) in enumerate(pairs.T.tolist()):
        own = members[places.starts[home] : places.starts[home + 1]]
        classes = storage.labels[own]
        left = own[(classes != UNKNOWN) & ~(held[own] & (classes == label))]
        means[number], filled[number] = storage.rows(left)[0].sum(axis=0), len(left) > 0
    starts, means = np.arange(len(means) + 1), as_unit_rows("means", means)
    more = replace(
        routes,
        labels=pairs[0].astype(np.int32),
        starts=starts,
        class_lists=pairs[1].astype(np.int64),
        class_means=means,
        class_filled=filled,
    )
    merged = Routes.merged([routes, more], np.zeros(len(routes.means), np.intp))
    ranking = Ranking(storage, lists.references, lists.reference_starts, replace(merged, nlist=routes.nlist))
    found = replace(lists, ranking=ranking)
    vars(found)["alone_by_blocks"] = lists.alone_by_blocks  # measured once
    return found


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
