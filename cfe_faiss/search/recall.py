"""Calibration of nprobe for a target recall, and certificates of exactness.

Calibration is per query class, on a sample of stored rows. A row is certified if no list that was
not probed can improve it.

For grouped search, stored rows are calibrated in the groups in which they are searched. Single
queries may be new vectors. A stored row that counts in the mean of its list is easier to find
evidence for than a new vector. So these means are computed without the sampled rows.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.checks import SEVERAL, UNKNOWN, Array, Bools, Doubles, Floats, Int32s, Ints
from cfe_faiss.base.threads import derived, once, product, run
from cfe_faiss.coarse.routes import Routes, ranking_mean
from cfe_faiss.rows import codecs
from cfe_faiss.rows.metric import is_distance
from cfe_faiss.rows.snapshot import Snapshot, lists_of
from cfe_faiss.search import lists
from cfe_faiss.search.derived import Derived
from cfe_faiss.search.query import MEMORY, Calibration, Effort, Plan, Queries, Results, Rules
from cfe_faiss.search.tiles import slices

SAMPLE = 1000
"""Rows in the sample, which is searched exactly, without those of rare classes."""
LEAST_ROWS = 100
"""Minimum number of stored rows of a class that is calibrated separately.

Smaller classes share a calibration.
"""
_SAMPLED_PER_CLASS = 250  # minimum number of sampled rows per class
_SAMPLED_OF_CLASSES = 4000  # limit for the sum of these minima over all classes
CLASS_SLACK = 0.01
"""Tolerated shortfall of a class's lower bound below the target recall."""
_CERTAIN = 2.6  # one-sided 99.5 % quantile of the normal distribution
_DRAWN_AT_ONCE = 128  # rows per batch; all rows of their lists are read
_ROWS_AT_ONCE = 1 << 12
_QUERIES_AT_ONCE = 1 << 9
Calibrations = dict[tuple[Any, ...], Calibration]
"""Calibrations by :meth:`Derived.calibration_key`."""


@dataclass(frozen=True, eq=False)
class _Stratum:
    """Random sample of the stored rows of one class, or of all small classes together.

    Attributes
    ----------
    labels
        The class, or the small classes.
    rows
        Storage rows, (s,) int64.
    size, share
        Number of stored rows in the stratum, and its share of the rows of all strata.
    """

    labels: list[int]
    rows: Ints
    size: int
    share: float


def _strata(snapshot: Snapshot) -> list[_Stratum]:
    """Draw rows in proportion to class sizes, with a minimum per class."""
    classes, counts = snapshot.class_counts
    parts = np.split(snapshot.by_label, np.cumsum(counts)[:-1])
    small = np.flatnonzero(counts < LEAST_ROWS).tolist()
    numbers = [[number] for number in np.flatnonzero(counts >= LEAST_ROWS).tolist()]
    numbers += [small] if small else []
    least = min(_SAMPLED_PER_CLASS, _SAMPLED_OF_CLASSES // max(1, len(numbers)))
    rng = np.random.default_rng(0)
    strata = []
    for positions in numbers:
        members = np.concatenate([parts[number] for number in positions])
        wanted = max(least, math.ceil(SAMPLE * len(members) / snapshot.n))
        rows = rng.choice(members, min(len(members), wanted), replace=False)
        strata.append(
            _Stratum(
                classes[positions].tolist(), rows, len(members), len(members) / int(counts.sum())
            )
        )
    return strata


def calibration(
    snapshot: Snapshot,
    k: int,
    effort: Effort,
    *,
    batched: bool,
    allowed: Bools | None = None,
    rules: Rules | None = None,
) -> Calibration:
    """Return by class the smallest nprobe whose lower bound of recall@k is sufficient.

    The bound of a class may be 0.01 below the target; the bound of the mean over all queries may
    not. A calibration over all rows is kept with the snapshot. Of bound ``rules``, the range of
    scores and the classes that queries may find count.
    """
    known = Derived.of(snapshot).calibrations if allowed is None else {}
    plan = Plan("groups" if batched else "lists", snapshot.lists, effort._replace(memory=MEMORY))
    counting = Rules() if rules is None else Rules(rules.neighbors, within=rules.within)
    key = Derived.calibration_key(k, effort, batched=batched) + counting.calibration_key
    return once(known, key, lambda: _Calibrator(snapshot, k, plan, allowed, counting).calibrate())


def calibration_arrays(calibrations: Calibrations, effort: Effort) -> dict[str, Array]:
    """Return the calibrations for the settings of an index, as arrays for its file.

    A row of "calibrations", (m, 4) float64, holds k, recall, whether queries are searched in
    groups, and the number of lists for other classes. "calibration_classes", (c, 3) float64, holds
    class, number of lists and measured recall.
    """
    settings = Derived.calibration_key(1, effort, batched=False)[3:]
    known = {key[:3]: found for key, found in calibrations.items() if key[3:] == settings}
    classes = [
        (label, found.nprobe[label], found.recall[label])
        for found in known.values()
        for label in found.nprobe
    ]
    return {
        "calibrations": np.array(
            [(*key, found.other) for key, found in known.items()], np.float64
        ).reshape(-1, 4),
        "calibration_starts": np.cumsum(
            [0, *(len(found.nprobe) for found in known.values())], dtype=np.int64
        ),
        "calibration_classes": np.array(classes, np.float64).reshape(-1, 3),
    }


def calibrations_from(arrays: Mapping[str, Array], effort: Effort) -> Calibrations:
    """Return calibrations from :func:`calibration_arrays`, for the settings of the index."""
    result = {}
    starts = arrays["calibration_starts"].tolist()
    classes = arrays["calibration_classes"].tolist()
    for number, (k, recall, batched, other) in enumerate(arrays["calibrations"].tolist()):
        entries = [
            (int(label), int(nprobe), reached)
            for label, nprobe, reached in classes[slice(*starts[number:][:2])]
        ]
        key = Derived.calibration_key(int(k), effort._replace(recall=recall), batched=bool(batched))
        result[key] = Calibration(
            {x[0]: x[1] for x in entries}, int(other), {x[0]: x[2] for x in entries}
        )
    return result


@dataclass(frozen=True, eq=False)
class _Calibrator:
    """Searches of sampled rows with a number of lists, and without skipping any."""

    snapshot: Snapshot
    k: int
    plan: Plan
    allowed: Bools | None
    rules: Rules

    @property
    def batched(self) -> bool:
        return self.plan.engine == "groups"

    @derived
    def tried(self) -> Snapshot:
        """Snapshot that takes the sampled rows for new vectors, if they are ranked one by one."""
        if self.batched or not self.plan.effort.class_aware:
            return self.snapshot
        rows = np.concatenate([stratum.rows for stratum in _strata(self.snapshot)])
        return _held_out(self.snapshot, rows, self.rules.neighbors)

    def queries(self, snapshot: Snapshot, rows: Ints) -> Queries:
        """Return sampled rows as queries under the rules."""
        queries = Queries.of_rows(snapshot, rows, self.k)
        queries.allowed = self.allowed
        if self.rules != Rules():
            queries.rules = self.rules
        if self.rules.neighbors == "any":
            queries.rules = self.rules._replace(excluded_ids=snapshot.row_ids[rows][:, None])
            queries.labels = np.full(len(rows), snapshot.absent_label, np.int32)
        return queries

    def search(self, searches: list[Ints], nprobe: int) -> Results:
        """Return D, I of the rows of several searches, one after the other."""
        plan = self.plan._replace(nprobe=nprobe)
        parts = [lists.search(self.queries(self.tried, rows), plan, None) for rows in searches]
        D, I = (np.concatenate(column) for column in zip(*parts, strict=True))
        return D, I

    def calibrate(self) -> Calibration:
        """Return the calibration, measured for one stratum after the other."""
        strata = _strata(self.snapshot)
        if not strata:
            return Calibration({}, self.snapshot.lists, {})
        rows = np.concatenate([stratum.rows for stratum in strata])
        plan = self.plan._replace(engine="groups" if self.plan.effort.class_aware else "lists")
        D, I = lists.search(self.queries(self.snapshot, rows), plan, None)  # in all lists
        found = Calibration({}, 1, {})
        last = 0
        for stratum in strata:
            first = last
            last = last + len(stratum.rows)
            nprobe, reached = self.measure(stratum, (D[first:last], I[first:last]))
            found.nprobe.update(dict.fromkeys(stratum.labels, nprobe))
            found.recall.update(dict.fromkeys(stratum.labels, reached))
        return replace(found, other=found.most)

    def measure(self, stratum: _Stratum, exact: Results) -> tuple[int, float]:
        """Return the smallest sufficient nprobe of a stratum, and the sample's recall with it."""
        searches = [stratum.rows]
        clusters = np.arange(len(stratum.rows))
        if self.batched:
            routes = Derived.of(self.snapshot).routes_for(self.rules.neighbors)
            searches, clusters = _groups(self.snapshot, routes, stratum.rows, self.rules.neighbors)
        searched = np.concatenate(searches)
        places = np.argsort(searched)[np.searchsorted(np.sort(searched), stratum.rows)]
        target = self.plan.effort.recall or 1.0
        reached = {self.snapshot.lists: 1.0}

        def reaches(nprobe: int) -> bool:
            D, I = self.search(searches, nprobe)
            values = _recalls((D[places], I[places]), exact)
            margin = _CERTAIN * _standard_error(values, clusters)
            if self.batched:  # finite population: the stored rows are all possible queries
                margin *= math.sqrt(1 - len(values) / stratum.size)
            reached[nprobe] = float(values.mean())
            return reached[nprobe] >= target + max(
                margin - CLASS_SLACK, margin * math.sqrt(stratum.share)
            )

        nprobe = smallest(reaches, self.snapshot.lists)
        return nprobe, reached[nprobe]


def _recalls(found: Results, exact: Results) -> Doubles:
    """Return the recall of each row.

    A result as similar as the last exact result counts as correct.
    """
    wanted = (exact[1] >= 0).sum(axis=1)
    last = np.where(exact[1] >= 0, exact[0], np.inf).min(axis=1)
    number = ((found[1] >= 0) & (found[0] >= last[:, None])).sum(axis=1)
    return np.where(wanted > 0, np.minimum(number, wanted) / np.maximum(wanted, 1), 1.0)


def _standard_error(values: Doubles, clusters: Ints) -> float:
    """Return the standard error of the mean of values that are correlated within clusters."""
    sums = np.bincount(np.unique(clusters, return_inverse=True)[1], values - values.mean())
    return math.sqrt(len(sums) / max(1, len(sums) - 1) * float(sums @ sums)) / len(values)


def _held_out(snapshot: Snapshot, rows: Ints, neighbors: str = "other") -> Snapshot:
    """Return the snapshot with means of lists that treat the given rows as new vectors.

    A row of a class with a small share in its list counts in the mean by which this list is ranked.
    Such a pair of list and class gets a mean without the given rows of the class. For queries that
    may find any class, each list of a given row gets a mean without these rows.
    """
    of_snapshot = Derived.of(snapshot)
    list_starts = snapshot.list_starts
    routes = of_snapshot.routes_for(neighbors)
    members = np.concatenate([np.arange(snapshot.n), snapshot.references])
    held = np.isin(np.arange(snapshot.n), rows)
    homes = lists_of(np.flatnonzero(held[members]), list_starts)
    labels = snapshot.labels[members[held[members]]]
    if neighbors == "any":
        labels = np.full(len(homes), SEVERAL, np.int32)
    small = ~routes.has_centroids(labels, homes)
    pairs = np.unique(np.stack([labels[small], homes[small]]), axis=1)
    means = np.zeros((len(pairs[0]), snapshot.ranking_length), np.float32)
    filled = np.zeros(len(pairs[0]), np.bool_)
    has_unknown = routes is not of_snapshot.routes_for()
    for number, (label, home) in enumerate(pairs.T.tolist()):
        in_list = members[list_starts[home] : list_starts[home + 1]]
        classes = snapshot.labels[in_list]
        counts = (classes != UNKNOWN) | has_unknown
        left = in_list[counts & ~(held[in_list] & ((classes == label) | (label == SEVERAL)))]
        means[number] = ranking_mean(snapshot, snapshot.rows(left)[0])
        filled[number] = len(left) > 0
    if neighbors == "any":
        all_means = routes.means.copy()
        all_filled = routes.filled.copy()
        all_means[pairs[1]] = means
        all_filled[pairs[1]] = filled
        return of_snapshot.with_routes(
            neighbors, replace(routes, means=all_means, filled=all_filled)
        )
    more = replace(
        routes,
        labels=pairs[0].astype(np.int32),
        starts=np.arange(len(means) + 1),
        class_lists=pairs[1].astype(np.int64),
        class_means=means,
        class_filled=filled,
    )
    owners = np.zeros(len(routes.means), np.intp)
    merged = Routes.merged([routes, more], owners, routes.second_level)
    return of_snapshot.with_routes(neighbors, replace(merged, nlist=routes.nlist))


def _groups(
    snapshot: Snapshot, routes: Routes, drawn: Ints, neighbors: str = "other"
) -> tuple[list[Ints], Ints]:
    """Return the groups with the drawn rows, by search, and the group of each drawn row.

    A search has at most one group of each pair of list and label, because it would halve two groups
    differently.
    """
    of_list: Counter[tuple[int, int]] = Counter()  # number of groups per list and label
    numbers: dict[int, int] = {}  # group number by first row
    searches: list[list[Ints]] = []
    clusters = []
    for cut in slices(len(drawn), _DRAWN_AT_ONCE):
        homes = lists_of(drawn[cut], snapshot.starts)
        rows = np.concatenate(
            [np.arange(snapshot.starts[j], snapshot.starts[j + 1]) for j in np.unique(homes)]
        )
        queries = Queries.of_rows(snapshot, rows)
        if neighbors == "any":
            queries.labels = np.full(len(rows), snapshot.absent_label, np.int32)
        groups = lists.routed(routes, queries, 0)[0]
        rows = rows[groups.order]
        by_row = np.argsort(rows)
        places = by_row[np.searchsorted(rows, drawn[cut], sorter=by_row)]
        of_drawn = np.searchsorted(groups.starts, places, side="right") - 1
        for home, number in zip(homes.tolist(), of_drawn.tolist(), strict=True):
            members = rows[groups.starts[number] : groups.starts[number + 1]]
            first = int(members[0])
            if first not in numbers:
                key = home, int(groups.labels[number])
                if of_list[key] == len(searches):
                    searches.append([])
                searches[of_list[key]].append(members)
                of_list[key] += 1
            clusters.append(numbers.setdefault(first, len(numbers)))
    return [np.sort(np.concatenate(parts)) for parts in searches], np.array(clusters)


def smallest(reaches: Callable[[int], bool], most: int) -> int:
    """Return the smallest number up to ``most`` that reaches the target, within 1/8.

    The recall must not fall as the number grows.
    """
    low = 0
    high = 1
    while high < most and not reaches(high):
        low = high
        high = min(2 * high, most)
    while high - low > max(1, high // 8):
        middle = (low + high) // 2
        if reaches(middle):
            high = middle
        else:
            low = middle
    return high


# --- certificates ---------------------------------------------------------------------------------

# Let q be a query, x a vector of norm at most B (1, or slightly more for decoded vectors) and c a
# unit vector, with s = q·c and a = x·c. Cauchy-Schwarz on the components orthogonal to c gives
#
#     q·x <= s a + sqrt(B^2 - s^2) sqrt(B^2 - a^2).
#
# The bound rises in s up to s = a, and falls in a from a = s on. So the smallest a of a list gives
# a bound for all vectors of the list. If that a is smaller than s, the bound is B^2.
#
# For "ip" and "l2", let r be the largest distance of a vector of the list from its centroid c. Then
# q·x <= q·c + |q| r, and |q - x| >= |q - c| - r.


def certify(queries: Queries, plan: Plan, D: Floats, I: Ints) -> Bools:
    """Return a mask, (nq,) bool, of the queries whose result row from the probed lists is exact.

    O(nq * nlist * d) time.
    """
    snapshot = queries.snapshot
    derived = Derived.of(queries.snapshot)
    result = np.full(len(queries), plan.nprobe >= snapshot.lists)
    if plan.nprobe >= snapshot.lists:
        return result
    if plan.engine == "groups":
        groups, probed = lists.routed(derived.routes_for(), queries, plan.nprobe)
        order = groups.order
        probed = np.repeat(probed, np.diff(groups.starts), axis=0)
    else:
        order = np.flatnonzero(queries.labels != UNKNOWN)
        probed = None
    # for balls, minus the radius
    closeness = _closeness(snapshot, queries.allowed)
    only = _only_labels(snapshot)
    bound = codecs.norm_bound(snapshot.codec, snapshot.levels)
    wanted = np.minimum(snapshot.eligible(queries.labels, queries.allowed), D.shape[1])
    complete = (I >= 0).sum(axis=1) >= wanted

    def certify_some(cut: slice) -> None:
        chosen = order[cut]
        X = queries.fetch(chosen)
        labels = queries.labels[chosen]
        probed_lists = (
            probed[cut]
            if probed is not None
            else lists.rank_lists(derived, X, labels, plan.nprobe, plan.effort)
        )
        bounds: NDArray[np.floating]
        if snapshot.metric == "cosine":
            bounds = _bounds(product(X, snapshot.centroids[0].T), closeness, bound, snapshot.margin)
        else:
            bounds = _ball_bounds(X, snapshot, closeness)
        bounds[only[None] == labels[:, None]] = -np.inf
        if snapshot.pq is None:
            row, place = np.nonzero((probed_lists >= 0) & (probed_lists < bounds.shape[1]))
            bounds[row, probed_lists[row, place]] = -np.inf
        # A row that holds all eligible rows is exact. A full row must beat the bound of the lists
        # not probed.
        everything = wanted[chosen] < D.shape[1]
        highest = bounds.max(axis=1)
        if snapshot.metric == "cosine":
            # the largest similarity, that of equal rows
            highest[highest >= codecs.LEAST_OF_EQUAL] = 1
        result[chosen] = complete[chosen] & (everything | (highest < D[chosen, -1]))

    work = float(len(order)) * snapshot.centroids[0].size
    run(certify_some, slices(len(order), _QUERIES_AT_ONCE), work=work)
    result[queries.labels == UNKNOWN] = True  # no evidence exists, so an empty row is exact
    return result


def _bounds(S: Floats, closeness: Doubles, length: float, margin: float) -> Doubles:
    """Bound the similarity of queries with the vectors of lists, (nq, nlist).

    S is queries times centroids.
    """
    s = np.clip(S.astype(np.float64) + margin, -length, length)
    a = np.clip(closeness - margin, -length, length)[None]
    apart = s * a + np.sqrt(length**2 - s**2) * np.sqrt(length**2 - a**2)
    return np.maximum(np.where(a <= s, length**2, apart) + margin, -1)


def _ball_bounds(X: Floats, snapshot: Snapshot, closeness: Doubles) -> Floats:
    """Bound the scores of queries with the vectors of lists, (nq, nlist), rounded up.

    -inf for empty lists.
    """
    queries = X.astype(np.float64)
    centroids = snapshot.centroids[0].astype(np.float64)
    lengths = np.linalg.norm(queries, axis=1)[:, None]
    of_lists = np.linalg.norm(centroids, axis=1)
    empty = np.isinf(closeness)
    radii = np.where(empty, 0, -closeness)
    # Products and norms of d terms in float64 err by less than this share of the squared lengths.
    rounding = (snapshot.d + 64) * 2.0**-52 * (lengths + of_lists + radii) ** 2
    S = product(queries, centroids.T)
    if is_distance(snapshot.metric):
        distances = np.sqrt(np.maximum(lengths**2 + of_lists**2 - 2 * S - rounding, 0))
        bounds = rounding - np.maximum(distances - radii, 0) ** 2
    else:
        bounds = S + lengths * radii + rounding
    bounds[:, empty] = -np.inf
    rounded_up: Floats = np.nextafter(bounds.astype(np.float32), np.float32(np.inf))
    return rounded_up


def _closeness(snapshot: Snapshot, allowed: Bools | None) -> Doubles:
    """Return each list's smallest product of an (allowed) row of known label with its centroid.

    Inf if none.

    For "ip" and "l2", return minus the largest distance instead.
    """
    centroids = snapshot.centroids[0]
    usable = snapshot.labels != UNKNOWN
    if allowed is not None:
        usable &= allowed
    closeness = np.full(len(centroids), np.inf)
    rows = np.flatnonzero(usable)
    homes = lists_of(rows, snapshot.starts)
    for cut in slices(len(rows), _ROWS_AT_ONCE):
        X = snapshot.rows(rows[cut])[0]
        of_rows = centroids[homes[cut]]
        if snapshot.metric == "cosine":
            products = (X * of_rows).sum(axis=1)
        else:
            products = -np.linalg.norm(X.astype(np.float64) - of_rows, axis=1) * (1 + 1e-9)
        starts = np.flatnonzero(np.diff(homes[cut], prepend=-1))  # rows of a list are a run
        lists = homes[cut][starts]
        closeness[lists] = np.minimum(closeness[lists], np.minimum.reduceat(products, starts))
    return closeness


def _only_labels(snapshot: Snapshot) -> Int32s:
    """Return the only known label of each list, (nlist,).

    SEVERAL for several labels, UNKNOWN for none.
    """
    only = np.full(len(snapshot.centroids[0]), UNKNOWN, np.int32)
    rows = np.flatnonzero(snapshot.labels != UNKNOWN)
    lists, firsts = np.unique(lists_of(rows, snapshot.starts), return_index=True)
    smallest = snapshot.labels[rows[firsts]]
    largest = snapshot.labels[snapshot.starts[lists + 1] - 1]  # labels ascend within a list
    only[lists] = np.where(smallest == largest, smallest, SEVERAL)
    return only
