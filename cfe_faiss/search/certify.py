"""Certificates of exactness: a result row is exact if no list that was not probed can improve it.

Let q be a query, x a vector of norm at most B (1, or slightly more for decoded vectors) and c a
unit vector, with s = q·c and a = x·c. Cauchy-Schwarz on the components orthogonal to c gives

    q·x <= s a + sqrt(B^2 - s^2) sqrt(B^2 - a^2).

The bound rises in s up to s = a, and falls in a from a = s on. So the smallest a of a list gives a
bound for all vectors of the list. If that a is smaller than s, the bound is B^2.

For "ip" and "l2", let r be the largest distance of a vector of the list from its centroid c. Then
q·x <= q·c + |q| r, and |q - x| >= |q - c| - r.
"""

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.arrays import Bools, Doubles, Floats, Int32s, Ints
from cfe_faiss.base.checks import UNKNOWN
from cfe_faiss.base.threads import product, run
from cfe_faiss.rows import codecs
from cfe_faiss.rows.snapshot import Snapshot, lists_of
from cfe_faiss.search.derived import Derived
from cfe_faiss.search.lists import rank_lists, routed
from cfe_faiss.search.query import Plan, Queries
from cfe_faiss.search.tiles import slices

_ROWS = 1 << 12
_QUERIES = 1 << 9
_SEVERAL = -2  # marks a list that has several labels


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
        groups, probed = routed(derived.class_means, queries, plan.nprobe)
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
        own = (
            probed[cut]
            if probed is not None
            else rank_lists(derived, X, labels, plan.nprobe, plan.effort)
        )
        bounds: NDArray[np.floating]
        if snapshot.metric == "cosine":
            bounds = _bounds(product(X, snapshot.centroids[0].T), closeness, bound, snapshot.margin)
        else:
            bounds = _ball_bounds(X, snapshot, closeness)
        bounds[only[None] == labels[:, None]] = -np.inf
        if snapshot.pq is None:
            row, place = np.nonzero((own >= 0) & (own < bounds.shape[1]))
            bounds[row, own[row, place]] = -np.inf
        # A row that holds all eligible rows is exact. A full row must beat the bound of the lists
        # not probed.
        everything = wanted[chosen] < D.shape[1]
        highest = bounds.max(axis=1)
        if snapshot.metric == "cosine":
            highest[highest >= codecs.LEAST_OF_EQUAL] = (
                1  # the largest similarity, that of equal rows
            )
        result[chosen] = complete[chosen] & (everything | (highest < D[chosen, -1]))

    work = float(len(order)) * snapshot.centroids[0].size
    run(certify_some, slices(len(order), _QUERIES), work=work)
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
    if snapshot.metric == "ip":
        bounds = S + lengths * radii + rounding
    else:
        distances = np.sqrt(np.maximum(lengths**2 + of_lists**2 - 2 * S - rounding, 0))
        bounds = rounding - np.maximum(distances - radii, 0) ** 2
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
    for cut in slices(len(rows), _ROWS):
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

    _SEVERAL for several labels, UNKNOWN for none.
    """
    only = np.full(len(snapshot.centroids[0]), UNKNOWN, np.int32)
    rows = np.flatnonzero(snapshot.labels != UNKNOWN)
    lists, firsts = np.unique(lists_of(rows, snapshot.starts), return_index=True)
    smallest = snapshot.labels[rows[firsts]]
    largest = snapshot.labels[snapshot.starts[lists + 1] - 1]  # labels ascend within a list
    only[lists] = np.where(smallest == largest, smallest, _SEVERAL)
    return only
