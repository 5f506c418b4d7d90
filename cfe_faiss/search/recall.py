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
from cfe_faiss.coarse.class_centroids import Routes
from cfe_faiss.rows.snapshot import Snapshot, lists_of
from cfe_faiss.search import grouped, single
from cfe_faiss.search.conditions import Bools, Ints
from cfe_faiss.search.derived import Derived
from cfe_faiss.search.grouping import small_groups
from cfe_faiss.search.query import MEMORY, Calibration, Effort, Plan, Queries, Results

SAMPLE = 1000
"""Stored rows that are searched exactly to measure the recall of others, beside those for rare classes."""
LEAST_ROWS = 100
"""Stored rows of a class that is calibrated for itself; smaller classes are calibrated together."""
_OF_CLASS = 250  # rows of the sample for each class
_OF_ALL_CLASSES = 4000  # and for all of them, if there are many
_CLASS_SLACK = 0.01  # what the recall of one class may be below the one asked for
_CERTAIN = 2.6  # one-sided 99.5 % of a normal distribution
_DRAWN_AT_ONCE = 128  # rows: the lists that hold them are read in full
_Search = Callable[[list[Ints], int], Results]  # of snapshot rows in several searches, in so many lists


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
    rows: Ints
    size: int
    share: float


def _strata(snapshot: Snapshot) -> list[_Stratum]:
    """Draw rows in proportion to the classes, but at least some of each."""
    classes, counts = snapshot.class_counts
    parts = np.split(snapshot.by_label, np.cumsum(counts)[:-1])
    small = np.flatnonzero(counts < LEAST_ROWS).tolist()
    numbers = [[number] for number in np.flatnonzero(counts >= LEAST_ROWS).tolist()] + ([small] if small else [])
    least = min(_OF_CLASS, _OF_ALL_CLASSES // max(1, len(numbers)))
    rng = np.random.default_rng(0)
    strata = []
    for some in numbers:
        members = np.concatenate([parts[number] for number in some])
        wanted = max(least, math.ceil(SAMPLE * len(members) / snapshot.n))
        rows = rng.choice(members, min(len(members), wanted), replace=False)
        strata.append(_Stratum(classes[some].tolist(), rows, len(members), len(members) / int(counts.sum())))
    return strata


def calibration(
    snapshot: Snapshot, k: int, effort: Effort, *, batched: bool, allowed: Bools | None = None
) -> Calibration:
    """Return for each class the smallest number of lists that reaches the effort's recall@k, with a confidence bound.

    The bound of the class may be 0.01 below the recall, that of the mean over all queries may not. A calibration among
    all rows is kept with the snapshot.
    """
    derived = Derived.of(snapshot)
    known = derived.calibrations if allowed is None else {}
    plan = Plan(grouped.search if batched else single.search, snapshot.lists, effort._replace(memory=MEMORY))
    key = derived.calibration_key(k, effort, batched=batched)
    return once(known, key, lambda: _calibrate(snapshot, k, plan, allowed))


def _calibrate(snapshot: Snapshot, k: int, plan: Plan, allowed: Bools | None) -> Calibration:
    strata = _strata(snapshot)
    if not strata:
        return Calibration({}, snapshot.lists, {})
    rows = np.concatenate([stratum.rows for stratum in strata])
    batched, aware = plan.engine is grouped.search, plan.effort.class_aware
    tried = _held_out(snapshot, rows) if aware and not batched else snapshot

    def search(searches: list[Ints], nprobe: int) -> Results:
        queries = [replace(Queries.of_rows(tried, some, k), allowed=allowed) for some in searches]
        parts = [plan.engine(some, plan._replace(nprobe=nprobe), None) for some in queries]
        D, I = (np.concatenate(column) for column in zip(*parts, strict=True))
        return D, I

    exact = plan._replace(engine=grouped.search if aware else single.search)
    D, I = exact.engine(replace(Queries.of_rows(snapshot, rows, k), allowed=allowed), exact, None)
    found, last = Calibration({}, 1, {}), 0
    for stratum in strata:
        first, last = last, last + len(stratum.rows)
        own = D[first:last], I[first:last]
        nprobe, reached = _measured(snapshot, stratum, own, plan, search)
        found.nprobe.update(dict.fromkeys(stratum.labels, nprobe))
        found.recall.update(dict.fromkeys(stratum.labels, reached))
    return replace(found, other=found.most)


def _measured(snapshot: Snapshot, stratum: _Stratum, exact: Results, plan: Plan, search: _Search) -> tuple[int, float]:
    """Return the smallest number of lists that is enough for a stratum, and the recall of the sample with it."""
    searches, clusters, recall = [stratum.rows], np.arange(len(stratum.rows)), plan.effort.recall or 1.0
    batched = plan.engine is grouped.search
    if batched:
        searches, clusters = _groups(snapshot, Derived.of(snapshot).class_means, stratum.rows)
    searched = np.concatenate(searches)
    places = np.argsort(searched)[np.searchsorted(np.sort(searched), stratum.rows)]
    reached = {snapshot.lists: 1.0}

    def reaches(nprobe: int) -> bool:
        D, I = search(searches, nprobe)
        values = _recalls((D[places], I[places]), exact)
        margin = _CERTAIN * _standard_error(values, clusters)
        if batched:  # the stored rows are all queries that there are
            margin *= math.sqrt(1 - len(values) / stratum.size)
        reached[nprobe] = float(values.mean())
        return reached[nprobe] >= recall + max(margin - _CLASS_SLACK, margin * math.sqrt(stratum.share))

    nprobe = _smallest(reaches, snapshot.lists)
    return nprobe, reached[nprobe]


def _recalls(found: Results, exact: Results) -> NDArray[np.float64]:
    """Return the recall of each row; what is as similar as the last exact result counts as found."""
    wanted = (exact[1] >= 0).sum(axis=1)
    last = np.where(exact[1] >= 0, exact[0], np.inf).min(axis=1)
    number = ((found[1] >= 0) & (found[0] >= last[:, None])).sum(axis=1)
    return np.where(wanted > 0, np.minimum(number, wanted) / np.maximum(wanted, 1), 1.0)


def _standard_error(values: NDArray[np.float64], clusters: Ints) -> float:
    """Return the standard error of the mean of values; those of one cluster are alike."""
    sums = np.bincount(np.unique(clusters, return_inverse=True)[1], values - values.mean())
    return math.sqrt(len(sums) / max(1, len(sums) - 1) * float(sums @ sums)) / len(values)


def _held_out(snapshot: Snapshot, rows: Ints) -> Snapshot:
    """Return the snapshot with class means as they are for queries that are not stored, though the given rows are.

    A row counts in the mean that its own list is ranked by, where its class has a small share. There the class gets a
    mean of the list without the given rows of this class.
    """
    derived, list_starts = Derived.of(snapshot), snapshot.list_starts
    means_of_all = derived.class_means
    members = np.concatenate([np.arange(snapshot.n), snapshot.references])
    held = np.isin(np.arange(snapshot.n), rows)
    homes = lists_of(np.flatnonzero(held[members]), list_starts)
    labels = snapshot.labels[members[held[members]]]
    small = ~means_of_all.has_centroids(labels, homes)
    pairs = np.unique(np.stack([labels[small], homes[small]]), axis=1)
    means, filled = np.zeros((len(pairs[0]), snapshot.d), np.float32), np.zeros(len(pairs[0]), np.bool_)
    for number, (label, home) in enumerate(pairs.T.tolist()):
        own = members[list_starts[home] : list_starts[home + 1]]
        classes = snapshot.labels[own]
        left = own[(classes != UNKNOWN) & ~(held[own] & (classes == label))]
        means[number], filled[number] = snapshot.rows(left)[0].sum(axis=0), len(left) > 0
    starts, means = np.arange(len(means) + 1), as_unit_rows("means", means)
    more = replace(
        means_of_all,
        labels=pairs[0].astype(np.int32),
        starts=starts,
        class_lists=pairs[1].astype(np.int64),
        class_means=means,
        class_filled=filled,
    )
    merged = Routes.merged([means_of_all, more], np.zeros(len(means_of_all.means), np.intp))
    return derived.with_class_means(replace(merged, nlist=means_of_all.nlist))


def _groups(snapshot: Snapshot, routes: Routes, drawn: Ints) -> tuple[list[Ints], Ints]:
    """Return the groups that some rows are searched in, as rows of several searches, and the group of each drawn row.

    Of the vectors of a list that are routed alike a search holds one group, since it would halve two of them anew.
    """
    of_list: Counter[tuple[int, int]] = Counter()  # how many groups of a list and a label
    numbers: dict[int, int] = {}  # of the groups, by their first row
    searches: list[list[Ints]] = []
    clusters = []
    for key, rows in _groups_with(snapshot, routes, drawn):
        if int(rows[0]) not in numbers:
            if of_list[key] == len(searches):
                searches.append([])
            searches[of_list[key]].append(rows)
            of_list[key] += 1
        clusters.append(numbers.setdefault(int(rows[0]), len(numbers)))
    return [np.sort(np.concatenate(groups)) for groups in searches], np.array(clusters)


def _groups_with(snapshot: Snapshot, routes: Routes, drawn: Ints) -> Iterator[tuple[tuple[int, int], Ints]]:
    """Yield, for each of some rows, the list and the label of its group, and the rows of this group."""
    for first in range(0, len(drawn), _DRAWN_AT_ONCE):
        some = drawn[first : first + _DRAWN_AT_ONCE]
        homes = lists_of(some, snapshot.starts)
        rows = np.concatenate([np.arange(snapshot.starts[j], snapshot.starts[j + 1]) for j in np.unique(homes)])
        groups = small_groups(Queries.of_rows(snapshot, rows), routes)
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
