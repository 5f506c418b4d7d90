"""Labels that the nearest rows contradict."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cfe_faiss.base.checks import (
    Array,
    Doubles,
    Floats,
    Ints,
    as_count,
    as_matrix,
    as_number,
    check_shape,
)
from cfe_faiss.base.extras import pd
from cfe_faiss.base.values import as_values, distinct, group_numbers
from cfe_faiss.mining.miners import GroupedRows
from cfe_faiss.rows.metric import BoundedMetric, measure_of

SUSPICIOUS = 0.25
"""Scores below it: another label leads the given one by more than half of the votes."""
_NEIGHBOURS = 50
_STEEPNESS = 2.0
"""Weights of votes fall to exp(-2) at the last neighbour."""
_DIGITS = 12
"""Decimal digits of shares of votes. Sums in another order differ beyond them."""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class LabelErrors:
    """Scores of labels, and the rows that they rest on.

    Attributes
    ----------
    given, suggested
        Given label of each row, (n,), and the label with the most votes. None where it is unknown.
    score
        (1 + share of the votes for the given label - largest share of another one) / 2, (n,)
        float64 in [0, 1]; NaN for an unknown label, or if no other group has a row with a label.
    evidence, support
        Nearest row of another group with the suggested and with the given label, (n,) int64; -1 if
        there is none.
    evidence_measure, support_measure
        Similarity or distance of these rows, (n,) float64; NaN without one.
    metric
        "l2": they are distances; else similarities.
    """

    given: Array
    suggested: Array
    score: Doubles
    evidence: Ints
    evidence_measure: Doubles
    support: Ints
    support_measure: Doubles
    metric: BoundedMetric

    def __repr__(self) -> str:
        return f"LabelErrors({len(self.score):,} rows, {len(self.rows()):,} below {SUSPICIOUS})"

    def rows(self, below: float = SUSPICIOUS) -> Ints:
        """Return the rows with a score below a number in [0, 1], lowest first; ties: smaller row.

        Below 0.5, another label has more votes than the given one; below 0.25, which is the
        default, it leads by more than half of the votes.
        """
        order = np.argsort(self.score, kind="stable")
        return order[self.score[order] < as_number("below", below, 0.0, 1.0)]

    def to_frame(self, below: float | None = None) -> "pd.DataFrame":
        """Return one line per row, lowest score first; with ``below``, of the :meth:`rows` only.

        Columns: row, given, suggested, score, and the evidence and the support with their
        ``_similarity`` or, with metric "l2", ``_distance``.
        """
        rows = np.argsort(self.score, kind="stable") if below is None else self.rows(below)
        names = ["given", "suggested", "score"]
        names += ["evidence", "evidence_measure", "support", "support_measure"]
        frame = pd.DataFrame({name: getattr(self, name)[rows] for name in names})
        frame.insert(0, "row", rows)
        return frame.rename(columns=lambda name: name.replace("measure", measure_of(self.metric)))


def label_errors(
    X: ArrayLike, y: Any, *, groups: Any = None, k: int = _NEIGHBOURS, metric: BoundedMetric = "l2"
) -> LabelErrors:
    """Score the label of each row by the labels of the nearest rows of other groups.

    Each of the k nearest rows votes for its label. No row, and no row of its group, has a part in
    its own judgement.

    Parameters
    ----------
    X
        Vectors, (n, d). With "cosine" they are normalised in a copy.
    y
        Label of each row, (n,): numbers, texts or booleans. 1, "1" and True are three labels. A row
        with a missing one (None, NaN, NA) neither votes nor is judged.
    groups
        Group of each row, (n,), as in :func:`near_duplicates`: rows of one person, document or
        patient. By default each row is its own group, and a copy of a row votes on it.
    k
        Number of rows that vote, >= 1; fewer if fewer are known.
    metric
        "l2" for the Euclidean distance, "cosine" for the cosine similarity, "tanimoto" for the
        Tanimoto similarity of rows of 0 and 1.

    Returns
    -------
    LabelErrors
        Scores, suggested labels and evidence. O(n^2 d) time.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Notes
    -----
    A vote weighs exp(-2 (r / r_k)^2) / sqrt(m). Here r and r_k are the distances of the voter and
    of the last one (with similarities the roots of 1 - similarity), and m is the number of rows
    with the voter's label in other groups than the judged one: without m, large classes would win
    where classes meet, and by m alone small ones. Equal shares: the given label first, then in
    ascending order. The score is the normalised margin of C. Northcutt, L. Jiang and I. Chuang,
    "Confident learning", JAIR 2021, from these shares. The weights and k were chosen on other data
    than the benchmark reports.

    Examples
    --------
    >>> from cfe_faiss import mining
    >>> X = [[0.0], [0.1], [0.2], [0.3], [5.0], [5.1], [5.2], [5.3]]
    >>> found = mining.label_errors(X, ["a", "b", "a", "a", "b", "b", "b", "b"], k=3)
    >>> found
    LabelErrors(8 rows, 1 below 0.25)
    >>> found.to_frame(below=0.5)[["row", "given", "suggested", "score", "evidence", "support"]]
       row given suggested  score  evidence  support
    0    1     b         a    0.0         0        4
    """
    matrix = as_matrix("X", X)
    n = len(matrix)
    k = as_count("k", k)
    labels = as_values("y", y)
    check_shape("y", labels, (n,), "one label for each row")
    (groups_of,) = group_numbers(("groups", np.arange(n) if groups is None else groups, n))
    labelled_rows = np.flatnonzero([label is not None for label in labels.tolist()])
    if not len(labelled_rows):
        raise ValueError(f"y must hold a known label, got none in {n:,} rows")
    first, numbers = distinct(labels[labelled_rows])
    codes = np.full(n, -1)
    codes[labelled_rows] = numbers
    rows = GroupedRows(matrix[labelled_rows], groups_of[labelled_rows], metric)
    D, I = rows.nearest(matrix, groups_of, min(k, len(labelled_rows)))
    score, best = _judge(D**2 if metric == "l2" else D, I, codes, groups_of)
    suggested = np.array([*labels[labelled_rows][first].tolist(), None], object)[best]
    evidence = _nearest_of_label(matrix, codes, groups_of, best, metric)
    support = _nearest_of_label(matrix, codes, groups_of, codes, metric)
    suggested = suggested.astype(labels.dtype if best.min() >= 0 else object)
    return LabelErrors(labels, suggested, score, *evidence, *support, metric)


def _judge(squares: Doubles, I: Ints, codes: Ints, groups: Ints) -> tuple[Doubles, Ints]:
    """Return the score of each row, (n,), and the label with the most votes; NaN and -1 without.

    ``squares`` and ``I`` are squared distances and places among the rows with a known label.
    """
    from scipy.sparse import csr_array  # would slow down the start of every command

    labelled_rows = np.flatnonzero(codes >= 0)
    width = int(codes.max()) + 1
    row, place = np.nonzero(I >= 0)
    voters = codes[labelled_rows[I[row, place]]]
    last = np.where(I >= 0, squares, 0).max(axis=1)
    ratios = squares[row, place] / np.where(last > 0, last, 1)[row]
    # Voters' labels are counted without the rows of the judged row's group.
    keys, counts = np.unique((groups * width + codes)[labelled_rows], return_counts=True)
    wanted_keys = groups[row] * width + voters
    places = np.minimum(np.searchsorted(keys, wanted_keys), len(keys) - 1)
    inside = np.where(keys[places] == wanted_keys, counts[places], 0)
    weights = np.exp(-_STEEPNESS * ratios) / np.sqrt(
        np.bincount(codes[labelled_rows])[voters] - inside
    )
    votes = csr_array((weights, (row, voters)), shape=(len(codes), width))
    totals: Doubles = votes.sum(axis=1)
    votes.data = (votes.data / np.repeat(totals, np.diff(votes.indptr))).round(_DIGITS)
    is_given = csr_array(
        (np.ones(len(labelled_rows)), (labelled_rows, codes[labelled_rows])), shape=votes.shape
    )
    votes_for_label = votes.multiply(is_given)
    others = (votes - votes_for_label).tocsr()
    lead = votes_for_label.sum(axis=1) - others.max(axis=1).toarray().ravel()
    best = np.where(lead >= 0, codes, others.argmax(axis=1).ravel())
    is_judged = (totals > 0) & (codes >= 0)
    return np.where(is_judged, (1 + lead) / 2, np.nan), np.where(is_judged, best, -1)


def _nearest_of_label(
    X: Floats, codes: Ints, groups: Ints, wanted: Ints, metric: BoundedMetric
) -> tuple[Ints, Doubles]:
    """Return the nearest row of another group with a wanted label, and its measure; else -1."""
    rows = np.full(len(codes), -1)
    D = np.full(len(codes), np.nan)
    for code in np.unique(wanted[wanted >= 0]).tolist():
        members = np.flatnonzero(codes == code)
        queries_of_label = np.flatnonzero(wanted == code)
        stored = GroupedRows(X[members], groups[members], metric)
        distances, places = stored.nearest(X[queries_of_label], groups[queries_of_label], 1)
        has_one = places[:, 0] >= 0
        rows[queries_of_label[has_one]] = members[places[has_one, 0]]
        D[queries_of_label[has_one]] = distances[has_one, 0]
    return rows, D if metric == "l2" else 1 - D
