"""Labels that the nearest rows contradict."""

from dataclasses import dataclass
from typing import Any, get_args

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
    check_known,
    check_shape,
)
from cfe_faiss.base.extras import pd
from cfe_faiss.base.values import as_values, distinct, group_numbers
from cfe_faiss.mining.miners import GroupedRows, Metric
from cfe_faiss.rows.metric import measure_of

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
    support: Ints
    evidence_measure: Doubles
    support_measure: Doubles
    metric: Metric

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
        columns: dict[str, Array] = {"row": rows}
        for name in ("given", "suggested", "score"):
            columns[name] = getattr(self, name)[rows]
        for name in ("evidence", "support"):
            columns[name] = getattr(self, name)[rows]
            columns[f"{name}_{measure_of(self.metric)}"] = getattr(self, f"{name}_measure")[rows]
        return pd.DataFrame(columns)


def label_errors(
    X: ArrayLike, y: Any, *, groups: Any = None, k: int = _NEIGHBOURS, metric: Metric = "l2"
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
    A vote weighs exp(-2 (r / r_k)^2) / sqrt(m). Here r and r_k are the distances of the voter and of the
    last one (of unit vectors with "cosine"), and m is the number of rows with the voter's label in
    other groups than the judged one: without m, large classes would win where classes meet, and by
    m alone small ones. Equal shares: the given label first, then in ascending order. The score is
    the normalised margin of C. Northcutt, L. Jiang and I. Chuang, "Confident learning", JAIR 2021,
    from these shares. The weights and k were chosen on other data than the benchmark reports.

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
    check_known("metric must be one of", metric, get_args(Metric))
    matrix = as_matrix("X", X)
    n = len(matrix)
    k = as_count("k", k)
    labels = as_values("y", y)
    check_shape("y", labels, (n,), "one label for each row")
    (all_groups,) = group_numbers(("groups", np.arange(n) if groups is None else groups, n))
    known = np.flatnonzero([label is not None for label in labels.tolist()])
    if not len(known):
        raise ValueError(f"y must hold a known label, got none in {n:,} rows")
    vectors = matrix[known]
    first, codes = distinct(labels[known])
    own_groups = np.unique(all_groups[known], return_inverse=True)[1]
    score, winners = _judge(vectors, codes, own_groups, min(k, len(known)), metric)
    ends = np.concatenate([winners, codes])
    D, I = _nearest_with_label(vectors, codes, own_groups, ends, metric)
    measure = np.where(I >= 0, D if metric == "l2" else 1 - D, np.nan).reshape(2, -1)
    rows = np.where(I >= 0, known[I], -1).reshape(2, -1)
    is_judged = ~np.isnan(score)
    rows[0, ~is_judged] = -1
    measure[0, ~is_judged] = np.nan
    suggested = labels[known][first][winners].astype(object)
    suggested[~is_judged] = None

    def of_all(values: Array, filler: Any) -> Array:
        """Return values of all rows, with a filler for unknown labels."""
        all_values = np.full(n, filler, values.dtype)
        all_values[known] = values
        return all_values

    return LabelErrors(
        given=labels,
        suggested=of_all(suggested, None).astype(labels.dtype if is_judged.sum() == n else object),
        score=of_all(score, np.nan),
        evidence=of_all(rows[0], -1),
        support=of_all(rows[1], -1),
        evidence_measure=of_all(measure[0], np.nan),
        support_measure=of_all(measure[1], np.nan),
        metric=metric,
    )


def _judge(
    vectors: Floats, codes: Ints, groups: Ints, k: int, metric: Metric
) -> tuple[Doubles, Ints]:
    """Return the score of each row, (n,), NaN without a vote, and the label with the most votes."""
    n = len(codes)
    width = int(codes.max()) + 1
    D, I = GroupedRows(vectors, groups, metric).nearest(vectors, groups, k)
    row, place = np.nonzero(I >= 0)
    voters = codes[I[row, place]]
    D = np.where(I >= 0, D, 0)
    r = D if metric == "l2" else np.sqrt(2 * D)
    last = r.max(axis=1)
    ratio = r[row, place] / np.where(last > 0, last, 1)[row]
    # Voters' labels are counted without the rows of the judged row's group.
    keys, counts = np.unique(groups * width + codes, return_counts=True)
    asked = groups[row] * width + voters
    found = np.minimum(np.searchsorted(keys, asked), len(keys) - 1)
    inside = np.where(keys[found] == asked, counts[found], 0)
    sizes = np.bincount(codes)[voters] - inside
    weights = np.exp(-_STEEPNESS * ratio**2) / np.sqrt(sizes)
    cells, cell_of = np.unique(row * width + voters, return_inverse=True)
    votes = np.bincount(cell_of, weights, len(cells))
    judged, label = np.divmod(cells, width)
    shares = (votes / np.bincount(judged, votes, n)[judged]).round(_DIGITS)
    is_given = label == codes[judged]
    given = np.bincount(judged, shares * is_given, n)
    others = np.zeros(n)
    np.maximum.at(others, judged, np.where(is_given, 0, shares))
    order = np.lexsort((label, ~is_given, -shares, judged))
    voted, start = np.unique(judged[order], return_index=True)
    winners = codes.copy()
    winners[voted] = label[order][start]
    score = np.full(n, np.nan)
    score[voted] = (1 + given - others)[voted] / 2
    return score, winners


def _nearest_with_label(
    vectors: Floats, codes: Ints, groups: Ints, wanted: Ints, metric: Metric
) -> tuple[Doubles, Ints]:
    """Return distance and row of the nearest row of another group with a wanted label.

    ``wanted``, (m n,), holds labels for the n rows, again and again. -1 if there is no such row.
    """
    D = np.full(len(wanted), np.inf)
    I = np.full(len(wanted), -1)
    for code in np.unique(wanted).tolist():
        members = np.flatnonzero(codes == code)
        places = np.flatnonzero(wanted == code)
        asked = places % len(codes)
        stored, numbers = np.unique(groups[members], return_inverse=True)
        place_of = np.full(int(groups.max()) + 1, len(stored))
        place_of[stored] = np.arange(len(stored))
        rows = GroupedRows(vectors[members], numbers, metric)
        distances, found = rows.nearest(vectors[asked], place_of[groups[asked]], 1)
        D[places] = distances[:, 0]
        I[places] = np.where(found[:, 0] >= 0, members[found[:, 0]], -1)
    return D, I
