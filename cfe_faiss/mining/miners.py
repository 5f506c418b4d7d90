"""Nearest rows of other groups: hard negatives, leaks, Tomek links, trust scores, neighbours."""

import math
from itertools import chain
from typing import Any, get_args

import numpy as np
from numpy.typing import ArrayLike

from cfe_faiss.base.checks import (
    Bools,
    Doubles,
    Floats,
    Ints,
    as_count,
    as_matrix,
    as_number,
    as_unit_rows,
    check_known,
)
from cfe_faiss.base.values import as_ids, as_list, group_numbers
from cfe_faiss.explorer import settled_pairs
from cfe_faiss.index.flat import IndexEvidenceFlat
from cfe_faiss.pairs import Pairs, evidence_pairs
from cfe_faiss.rows.metric import PADDING, BoundedMetric, as_rows, lengths, threshold_of
from cfe_faiss.search.query import NO_ROWS
from cfe_faiss.search.tiles import slices

_MOST_BITS = 40
"""Binary logarithm of the largest length of rows that are not scaled."""
_SPARE = 2
"""Candidates beyond k that are scored for each query."""
_PAIRS = 1 << 14
"""Positive pairs that are scored at once."""
_BLOCK = 1 << 22
"""Numbers per block of candidates: 32 MiB."""
_MOST_PAIRS = 1 << 24
_NO_DIVISION_BY_ZERO = 1e-12
"""Added to the distance to the predicted class in a trust score, as in the authors' code."""


def hard_negatives(  # noqa: PLR0913
    anchors: ArrayLike,
    corpus: ArrayLike,
    positives: Any,
    k: int,
    range_min: int = 0,
    range_max: int | None = None,
    max_score: float | None = None,
    relative_margin: float | None = None,
    *,
    min_score: float | None = None,
    absolute_margin: float | None = None,
    reviewed: Any = None,
) -> tuple[Floats, Ints]:
    """Return the rows of a corpus that are most similar to each anchor without being its positives.

    Parameters
    ----------
    anchors, corpus
        Vectors, (n, d) and (m, d); normalised in copies. If the anchors equal the corpus, row by
        row, they are its rows, and no row is a negative or a positive of itself.
    positives
        Rows of the corpus that belong to each anchor: (n,) integers, or n sequences of integers. Or
        a tuple ``(anchor_groups, corpus_groups)`` of n and m groups: all corpus rows of an anchor's
        group are its positives.
    k
        Number of negatives per anchor, >= 1.
    range_min
        Number of most similar candidates to skip, >= 0.
    range_max
        Number of candidates, > range_min; by default range_min + k + (largest number of listed
        positives), or range_min + 10 k + that number with a margin or ``max_score``.
    max_score, min_score
        Largest and least similarity of a negative.
    relative_margin, absolute_margin
        A negative's similarity is at most ``s - relative_margin * |s|`` and
        ``s - absolute_margin``, where s is the similarity of the anchor's least similar positive.
    reviewed
        Marks of an explorer of the corpus, as :meth:`cfe_faiss.EvidenceFinder.reviewed` takes them,
        for anchors that equal the corpus: pairs marked as label error or explained are no
        negatives.

    Returns
    -------
    D, I
        Cosine similarities (n, k) float32 and corpus rows (n, k) int64, best first; equal
        similarity: smaller row first. Rows with fewer negatives are padded with id -1 and FAISS's
        padding value.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Notes
    -----
    Options and results are as in ``mine_hard_negatives`` of sentence-transformers with
    ``sampling_strategy="top"``.

    Examples
    --------
    >>> from cfe_faiss import mining
    >>> D, I = mining.hard_negatives([[1, 0.1]], [[1, 0], [0.9, 0.3], [0, 1]], positives=[0], k=1)
    >>> I
    array([[1]])
    """
    C = as_unit_rows("corpus", corpus)
    A = as_unit_rows("anchors", anchors, C.shape[1])
    k = as_count("k", k)
    range_min = as_count("range_min", range_min, 0)
    has_margin = relative_margin is not None or absolute_margin is not None
    itself = _itself(A, C)
    # listed pairs of positives
    anchors = NO_ROWS
    rows = NO_ROWS
    if isinstance(positives, tuple):
        if len(positives) != 2:
            raise ValueError(
                f"positives must be (anchor_groups, corpus_groups), got a tuple of {len(positives)}"
            )
        anchor_groups, row_groups = group_numbers(
            ("anchor_groups", positives[0], len(A)), ("corpus_groups", positives[1], len(C))
        )
    else:
        anchor_groups = np.ones(len(A), np.int64)
        row_groups = np.zeros(len(C), np.int64)
        anchors, rows = _listed_pairs(positives, len(A), len(C))
        others = np.flatnonzero((anchors != rows) | (itself is None))
        anchors = anchors[others]
        rows = rows[others]
    most = int(np.bincount(anchors).max(initial=0))
    if range_max is None:
        range_max = range_min + (10 * k if has_margin or max_score is not None else k) + most
    if as_count("range_max", range_max) <= range_min:
        raise ValueError(f"range_max must be above range_min, got {range_max} <= {range_min}")
    highest = np.full((len(A), 1), _limit("max_score", max_score, np.inf))
    if has_margin:
        scores = _lowest_scores(A, C, anchors, rows)
        if isinstance(positives, tuple):
            scores = _lowest_scores_in_groups(A, C, anchor_groups, row_groups, itself)
        has = np.isfinite(scores)  # without positives there is no margin
        relative = _limit("relative_margin", relative_margin, -np.inf) * np.abs(scores[has])
        margin = np.fmax(relative, _limit("absolute_margin", absolute_margin, -np.inf))
        highest[has] = np.minimum(highest[has], (scores[has] - margin)[:, None])
    lowest = _limit("min_score", min_score, -np.inf)
    if reviewed is not None:
        if itself is None:
            raise ValueError("reviewed must be left out for anchors that are not the corpus")
        settled = settled_pairs(reviewed, len(C))
        anchors = np.concatenate([anchors, *settled.T])
        rows = np.concatenate([rows, *settled.T[::-1]])
        most = int(np.bincount(anchors).max(initial=0))
    S, I = _index_of(C, row_groups).search_evidence(
        A, anchor_groups, range_max + most, exclude=itself
    )
    pairs = np.arange(len(I))[:, None] * len(C) + I
    S[np.isin(pairs, anchors * len(C) + rows) | (I < 0)] = -np.inf
    S[(highest < S) | (lowest > S)] = -np.inf
    order = np.argsort(-S, axis=1, kind="stable")[:, range_min:range_max][:, :k]
    width = (0, 0), (0, k - order.shape[1])
    D = np.pad(np.take_along_axis(S, order, axis=1), width, constant_values=-np.inf)
    negatives = np.pad(np.take_along_axis(I, order, axis=1), width, constant_values=-1)
    missing = np.isneginf(D)
    D[missing] = PADDING
    negatives[missing] = -1
    return D, negatives


def _limit(name: str, value: float | None, default: float) -> float:
    return default if value is None else as_number(name, value, -np.inf, np.inf)


def _listed_pairs(positives: Any, n: int, m: int) -> tuple[Ints, Ints]:
    """Return the anchor and the corpus row of each listed positive."""
    lists = [
        list(rows) if hasattr(rows, "__iter__") else [rows]
        for rows in as_list("positives", positives)
    ]
    if len(lists) != n:
        raise ValueError(f"positives must have one entry for each of {n} anchors, got {len(lists)}")
    anchors = np.repeat(np.arange(n), [len(rows) for rows in lists])
    return anchors, as_ids("positives", list(chain.from_iterable(lists)), m)


def _lowest_scores(A: Floats, C: Floats, anchors: Ints, rows: Ints) -> Doubles:
    """Return the least similarity of each anchor to its listed positives, (n,).

    Infinity without one.
    """
    lowest = np.full(len(A), np.inf, np.float32)
    for part in slices(len(rows), _PAIRS):
        scores = np.einsum("ij,ij->i", A[anchors[part]], C[rows[part]], dtype=np.float64)
        np.minimum.at(lowest, anchors[part], scores.astype(np.float32))
    return lowest.astype(np.float64)


def _lowest_scores_in_groups(
    A: Floats, C: Floats, anchor_groups: Ints, row_groups: Ints, itself: Ints | None
) -> Doubles:
    """Return the least similarity of each anchor to the other rows of its group, (n,).

    Infinity without one.
    """
    lowest = np.full(len(A), np.inf, np.float32)
    order = np.argsort(row_groups, kind="stable")
    bounds = np.searchsorted(row_groups[order], np.arange(anchor_groups.max(initial=-1) + 2))
    for group in np.unique(anchor_groups).tolist():
        anchors = np.flatnonzero(anchor_groups == group)
        rows = order[bounds[group] : bounds[group + 1]]
        scores = A[anchors].astype(np.float64) @ C[rows].T.astype(np.float64)
        if itself is not None:
            scores[anchors[:, None] == rows] = np.inf
        lowest[anchors] = scores.min(axis=1, initial=np.inf)
    return lowest.astype(np.float64)


def near_duplicates(
    X: ArrayLike,
    groups: Any,
    threshold: float,
    *,
    metric: BoundedMetric = "cosine",
    reviewed: Any = None,
) -> Pairs:
    """Return all pairs of rows of different groups that are at least as near as ``threshold``.

    With splits of a data set as groups the pairs are leaks; with labels as groups they are
    conflicts of labels.

    Parameters
    ----------
    X
        Vectors, (n, d); normalised in a copy with "cosine".
    groups
        Group of each row, (n,): numbers, texts or booleans. 1, "1" and True are three groups; a
        missing one is an error.
    threshold
        Least similarity, in [-1, 1]; with "l2" the largest Euclidean distance, >= 0. At 1 and 0 the
        pairs are equal rows.
    metric
        "cosine" for the cosine similarity, "l2" for the Euclidean distance, "tanimoto" for the
        Tanimoto similarity of rows of 0 and 1.
    reviewed
        Marks of an explorer of these rows, as :meth:`cfe_faiss.EvidenceFinder.reviewed` takes them:
        pairs marked as label error or explained are left out.

    Returns
    -------
    Pairs
        Best first; ``source`` and ``target`` are rows of X. With "l2" its ``similarity`` is the
        squared distance. 20 bytes a pair.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, or there are more than 2**24 pairs:
        :func:`cfe_faiss.evidence_pairs` yields them in blocks.

    Examples
    --------
    >>> from cfe_faiss import mining
    >>> X = [[1, 0], [0.6, 0.8], [0, 1], [0.99, 0.1]]
    >>> pairs = mining.near_duplicates(X, ["train", "train", "test", "test"], threshold=0.9)
    >>> pairs.source, pairs.target
    (array([0]), array([3]))
    """
    vectors = as_rows("X", X, None, metric)
    (codes,) = group_numbers(("groups", groups, len(vectors)))
    pairs = pairs_within(vectors, codes, threshold, metric)
    if reviewed is None:
        return pairs
    settled = np.sort(settled_pairs(reviewed, len(vectors)), axis=1) @ [len(vectors), 1]
    is_open = ~np.isin(pairs.source * len(vectors) + pairs.target, settled)
    similarity = pairs.similarity[is_open]
    return Pairs(pairs.source[is_open], pairs.target[is_open], similarity, metric=metric)


def pairs_within(
    vectors: Floats, codes: Ints, threshold: float, metric: BoundedMetric, where: Any = None
) -> Pairs:
    """Return all pairs of rows with different codes at a threshold, best first."""
    check_known("metric must be one of", metric, get_args(BoundedMetric))
    least = threshold_of("threshold", threshold, metric)
    index = _index_of(vectors, codes, metric)
    blocks = evidence_pairs(index, least, block=_MOST_PAIRS, where=where)
    pairs = next(blocks, Pairs(NO_ROWS, NO_ROWS, np.empty(0, np.float32), metric=metric))
    if next(blocks, None) is not None:
        raise ValueError(
            f"threshold must be one of nearer rows, got {threshold:g} with over {_MOST_PAIRS:,} pairs"
        )
    return pairs


def nearest_enemies(X: ArrayLike, y: Any, *, metric: BoundedMetric = "l2") -> tuple[Doubles, Ints]:
    """Return the nearest row of another class for each row.

    Parameters
    ----------
    X
        Vectors, (n, d). With "cosine" they are normalised in a copy.
    y
        Class of each row, (n,), as ``groups`` of :func:`near_duplicates`.
    metric
        "l2" for the Euclidean distance, "cosine" for 1 - cosine similarity, "tanimoto" for 1 -
        Tanimoto similarity of rows of 0 and 1.

    Returns
    -------
    D, I
        Distance to the nearest enemy, (n,) float64, and its row, (n,) int64; ties: smaller row.
        Infinity and -1 if all rows are of one class.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Examples
    --------
    >>> from cfe_faiss import mining
    >>> mining.nearest_enemies([[0], [1], [3], [7]], ["a", "a", "b", "b"])
    (array([3., 2., 2., 6.]), array([2, 2, 1, 1]))
    """
    rows = _grouped(X, y, metric)
    D, I = rows.nearest(rows.X, rows.groups, 1)
    return D[:, 0], I[:, 0]


def tomek_links(X: ArrayLike, y: Any, *, metric: BoundedMetric = "l2") -> Ints:
    """Return the Tomek links: pairs of different classes, each the nearest row of the other.

    Parameters
    ----------
    X, y, metric
        As in :func:`nearest_enemies`.

    Returns
    -------
    links
        Pairs of rows, (m, 2) int64, the smaller row first, in ascending order.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Notes
    -----
    Of several rows at the same distance, the smallest row is the nearest one. Otherwise the links
    are as in ``imblearn.under_sampling.TomekLinks``. I. Tomek, "Two modifications of CNN", IEEE
    Trans. Systems, Man and Cybernetics, 1976.

    Examples
    --------
    >>> from cfe_faiss import mining
    >>> mining.tomek_links([[0], [1], [3], [3.5], [7]], ["a", "a", "b", "a", "b"])
    array([[2, 3]])
    """
    rows = _grouped(X, y, metric)
    enemies = rows.nearest(rows.X, rows.groups, 1)[1][:, 0]
    first = np.flatnonzero(enemies > np.arange(len(enemies)))
    first = first[enemies[enemies[first]] == first]
    links: Ints = np.column_stack([first, enemies[first]])
    ends = links.ravel()
    nearest = rows.nearest(rows.X[ends], None, 1, ends[:, None])[1].reshape(-1, 2)
    return np.asarray(links[(nearest == links[:, ::-1]).all(axis=1)])


def trust_scores(
    X: ArrayLike, y: Any, Xq: ArrayLike, y_pred: Any, *, metric: BoundedMetric = "l2"
) -> Doubles:
    """Return the trust score of each prediction; the data contradict predictions with low scores.

    It is the distance to the nearest row of another class than the predicted one, divided by the
    distance to the nearest row of the predicted class (plus 1e-12). If ``Xq`` equals ``X``, row by
    row, the queries are the training rows, and each row is compared with the other rows only,
    not with itself.

    Parameters
    ----------
    X, y, metric
        Training rows and their true classes, as in :func:`nearest_enemies`.
    Xq
        Queries, (nq, d).
    y_pred
        Predicted class of each query, (nq,); each is a class of ``y``.

    Returns
    -------
    scores
        Trust scores, (nq,) float64, >= 0. Infinity if no (other) row is of another class, 0 if none
        is of the predicted class.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Notes
    -----
    H. Jiang, B. Kim, M. Guan and M. Gupta, "To trust or not to trust a classifier", NeurIPS 2018,
    with all rows (alpha = 0). The authors' code takes the second nearest row of each class instead
    of the nearest.

    Examples
    --------
    >>> from cfe_faiss import mining
    >>> X = [[0], [1], [3], [7]]
    >>> mining.trust_scores(X, ["a", "a", "b", "b"], [[2], [1.5]], ["a", "b"]).round(2)
    array([1.  , 0.33])
    """
    vectors = as_matrix("X", X)
    queries = as_matrix("Xq", Xq, vectors.shape[1])
    codes, predicted = group_numbers(("y", y, len(vectors)), ("y_pred", y_pred, len(queries)))
    itself = _itself(queries, vectors)
    own_distance = np.empty(len(queries))
    for number in np.unique(predicted).tolist():
        rows_of_class = np.flatnonzero(predicted == number)
        members = np.flatnonzero(codes == number)
        if not len(members):
            wrong = as_list("y_pred", y_pred)[rows_of_class[0]]
            raise ValueError(
                f"y_pred must hold classes of y, got {wrong!r} at position {rows_of_class[0]}"
            )
        place_of = np.full(len(codes), -1)
        place_of[members] = np.arange(len(members))
        places = None if itself is None else place_of[rows_of_class][:, None]
        of_class = GroupedRows(vectors[members], None, metric)
        own_distance[rows_of_class] = of_class.nearest(queries[rows_of_class], None, 1, places)[0][
            :, 0
        ]
    other = GroupedRows(vectors, codes, metric).nearest(queries, predicted, 1, itself)[0][:, 0]
    scores = np.zeros(len(queries))
    is_near = np.isfinite(own_distance)
    scores[is_near] = other[is_near] / (own_distance[is_near] + _NO_DIVISION_BY_ZERO)
    return scores


def batch_balanced_neighbors(
    X: ArrayLike, batches: Any, k: int, *, metric: BoundedMetric = "l2"
) -> tuple[Doubles, Ints]:
    """Return the k nearest rows of each batch for each row.

    Parameters
    ----------
    X, metric
        As in :func:`nearest_enemies`.
    batches
        Batch of each row, (n,), as ``groups`` of :func:`near_duplicates`.
    k
        Neighbours in each batch, >= 1. Each batch has at least k rows. In its own batch, a row is
        its own neighbour.

    Returns
    -------
    D, I
        Distances (n, batches * k) float64, ascending, and rows (n, batches * k) int64; ties:
        smaller row first.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Notes
    -----
    The graph of K. Polanski et al., "BBKNN: fast batch alignment of single cell transcriptomes",
    Bioinformatics 2020, for ``umap.umap_.fuzzy_simplicial_set``.

    Examples
    --------
    >>> from cfe_faiss import mining
    >>> D, I = mining.batch_balanced_neighbors([[0], [1], [3], [7]], ["a", "a", "b", "b"], k=1)
    >>> I
    array([[0, 2],
           [1, 2],
           [2, 1],
           [3, 1]])
    """
    vectors = _at_least_one(as_matrix("X", X))
    k = as_count("k", k)
    (codes,) = group_numbers(("batches", batches, len(vectors)))
    distances = []
    results = []
    for batch in range(codes.max(initial=-1) + 1):
        members = np.flatnonzero(codes == batch)
        if len(members) < k:
            raise ValueError(
                f"k must be at most the number of rows of each batch, got {k} where one has "
                f"{len(members)}"
            )
        D, I = GroupedRows(vectors[members], None, metric).nearest(vectors, None, k)
        distances.append(D)
        results.append(members[I])
    D = np.hstack(distances)
    I = np.hstack(results)
    order = np.lexsort((I, D))
    return np.take_along_axis(D, order, axis=1), np.take_along_axis(I, order, axis=1)


class GroupedRows:
    """Rows with groups. It finds the nearest rows of other groups, exactly.

    An index rounds squared distances to float32. Candidates are scored in float64, and a query gets
    more of them until no other row can be as near. Long rows are scaled to a length that the index
    takes.
    """

    def __init__(self, X: Floats, groups: Ints | None, metric: BoundedMetric) -> None:
        check_known("metric must be one of", metric, get_args(BoundedMetric))
        self.X = _at_least_one(as_matrix("X", X))
        self.metric = metric
        self.groups = np.zeros(len(self.X), np.int64) if groups is None else groups
        longest = float(lengths(self.X).max()) if metric == "l2" else 1.0
        self.scale = np.float32(2.0 ** -max(0, math.frexp(longest)[1] - _MOST_BITS))
        self.index = _index_of(self.X * self.scale, self.groups, self.metric)

    def nearest(
        self, queries: Floats, groups_q: Ints | None, k: int, exclude: Ints | None = None
    ) -> tuple[Doubles, Ints]:
        """Return distances and rows, (nq, k), for queries of some groups.

        ``groups_q`` is None for queries outside of all groups.

        ``exclude``, (nq, 1), is a row that the query must not find, -1 for none. Missing rows have
        distance infinity and row -1.
        """
        outside = np.full(len(queries), self.groups.max() + 1) if groups_q is None else groups_q
        if self.metric != "l2":
            S, I = self.index.search_evidence(queries, outside, k, exclude=exclude)
            return np.where(I < 0, np.inf, np.clip(1 - S.astype(np.float64), 0, 2)), I
        D = np.full((len(queries), k), np.inf)
        I = np.full((len(queries), k), -1)
        todo = np.arange(len(queries))
        depth = k + _SPARE
        while len(todo):
            size = max(1, _BLOCK // (depth * self.X.shape[1]))
            is_complete = np.zeros(len(queries), np.bool_)
            for part in (todo[cut] for cut in slices(len(todo), size)):
                left_out = None if exclude is None else exclude[part]
                D[part], I[part], is_complete[part] = self._screen(
                    queries[part], outside[part], k, depth, left_out
                )
            todo = todo[~is_complete[todo]]
            depth *= 4
        return np.sqrt(D), I

    def _screen(
        self, queries: Floats, groups: Ints, k: int, depth: int, exclude: Ints | None
    ) -> tuple[Doubles, Ints, Bools]:
        """Score ``depth`` candidates of each query.

        Return squared distances, rows, and whether they are complete.
        """
        rounded, I = self.index.search_evidence(
            queries * self.scale, groups, depth, exclude=exclude
        )
        differences = self.X[I].astype(np.float64) - queries[:, None]
        D = np.where(I < 0, np.inf, np.einsum("ijk,ijk->ij", differences, differences))
        order = np.lexsort((I, D))[:, :k]
        sorted_scores = np.take_along_axis(D, order, axis=1)
        # All other rows are farther, but for rounding and, where rows were scaled, underflow.
        farther = rounded[:, -1] * (1 - 2.0**-22) - self.X.shape[1] * 2.0**-120
        beyond = farther > sorted_scores[:, -1] * float(self.scale) ** 2
        return sorted_scores, np.take_along_axis(I, order, axis=1), (I[:, -1] < 0) | beyond


def _grouped(X: ArrayLike, y: Any, metric: BoundedMetric) -> GroupedRows:
    vectors = as_matrix("X", X)
    (groups,) = group_numbers(("y", y, len(vectors)))
    return GroupedRows(vectors, groups, metric)


def _index_of(X: Any, labels: Ints, metric: BoundedMetric = "cosine") -> IndexEvidenceFlat:
    index = IndexEvidenceFlat(X.shape[1], metric)
    index.add_with_labels(X, labels)
    return index


def _itself(queries: Floats, rows: Floats) -> Ints | None:
    """Return the row that each query leaves out, (nq, 1), if the queries are the rows.

    Else None.
    """
    return np.arange(len(rows))[:, None] if np.array_equal(queries, rows) else None


def _at_least_one(X: Floats) -> Floats:
    if not len(X):
        raise ValueError(f"X must have at least one row, got shape {X.shape}")
    return X
