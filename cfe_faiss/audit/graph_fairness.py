"""Similar outputs for similar nodes: InFoRM's bias, GUIDE's disparity, REDRESS's NDCG@k."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike

from cfe_faiss.attributes.table import as_attributes
from cfe_faiss.audit.groups import Floats, Ints, TableResult, check_finder, share
from cfe_faiss.audit.intervals import bootstrap_mean, normal_quantile
from cfe_faiss.base.checks import UNKNOWN, Array, as_array, as_count, check_shape
from cfe_faiss.base.extras import pd
from cfe_faiss.base.text import summary
from cfe_faiss.finder import EvidenceFinder
from cfe_faiss.index.flat import IndexEvidenceIDMap2
from cfe_faiss.rows.metric import Metric, is_distance

_BIAS_LIMITS = (
    "The figure depends on the similarity as much as on the model: pairs that it does not hold are "
    "not compared.",
    "It depends on the scale of the outputs: compare logits with logits, and probabilities with "
    "probabilities.",
    "The interval allows for pairs that share a node, not for outputs that depend on each other"
    " through the graph. It is a normal one, for many nodes.",
)
_DISPARITY_LIMITS = (
    *_BIAS_LIMITS[:2],
    "The largest of several ratios is above 1 by chance alone: compare the intervals of the "
    "groups.",
    *_BIAS_LIMITS[2:],
)
_NDCG_LIMITS = (
    "A high NDCG says that the outputs keep the order of the most similar nodes, not that their"
    " differences are small or just.",
    "The gain of a similarity between 0 and 1 hardly tells 0.99 from 0.9: compare the figure with "
    "`expected`.",
    "The interval takes nodes as independent; they share neighbours, so it is rather too narrow.",
)

_Csr: TypeAlias = scipy.sparse.csr_array

_ROWS = 512
"""Nodes ranked at a time."""


@dataclass(frozen=True, slots=True, repr=False)
class IndividualBias:
    """Differences between the outputs of similar nodes; made by :func:`individual_bias`.

    Attributes
    ----------
    bias
        InFoRM's overall bias, Tr(Yᵀ L_S Y): the sum over pairs of similarity times squared distance
        of the outputs.
    per_weight, low, high
        ``bias`` / ``weight``, the mean squared distance weighted by similarity, and its interval;
        NaN without pairs.
    expected
        Mean squared distance of any two nodes' outputs: what ``per_weight`` would be if similarity
        did not matter.
    nodes, pairs, weight
        Nodes, unordered pairs of nodes with a similarity above 0, and the sum of their
        similarities.
    limits
        Limits of the numbers, in sentences.
    """

    bias: float
    per_weight: float
    low: float
    high: float
    expected: float
    nodes: int
    pairs: int
    weight: float
    limits: tuple[str, ...]

    __repr__ = summary


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class GroupDisparity(TableResult):
    """Differences between groups in :class:`IndividualBias`; made by :func:`group_disparity`.

    Attributes
    ----------
    disparity
        Largest ratio of two groups' bias, at least 1; 1 is equal treatment.
    gdif
        GUIDE's sum of this ratio over all pairs of groups; of two groups the same as ``disparity``.
    table
        One line per group: ``group``, ``nodes``, ``pairs`` (ordered pairs of a node of the group
        and a similar node of any group), ``bias`` (mean over these of similarity times squared
        distance), ``low``, ``high``.
    unknown
        Nodes without a group: they count as neighbours only.
    limits
        Limits of the numbers, in sentences.
    """

    disparity: float
    gdif: float
    unknown: int


@dataclass(frozen=True, slots=True, repr=False)
class RankingNDCG:
    """Agreement of the ranking by output with the ranking by input; made by :func:`ranking_ndcg`.

    Attributes
    ----------
    mean, low, high
        Mean NDCG@k over the judged nodes, in [0, 1], 1 is the same ranking; and its interval.
    expected
        The mean if the outputs ranked at random.
    per_node
        NDCG@k of each node, (n,); NaN if no node is similar to it.
    judged, k
        Numbers of nodes with an NDCG, and of ranked neighbours.
    limits
        Limits of the numbers, in sentences.
    """

    mean: float
    low: float
    high: float
    expected: float
    per_node: Floats
    judged: int
    k: int
    limits: tuple[str, ...]

    __repr__ = summary


def similarity_graph(source: Any, k: int = 10, *, progress: bool = False) -> _Csr:
    """Return similarities of nodes as a symmetric sparse matrix without a diagonal.

    Parameters
    ----------
    source
        A finder: two of its searched nodes are similar where one is among the k nearest of the
        other, found exactly. The similarity is KS, and negative KS is left out; of a table it is
        exp(-distance**2 / 2). Or a matrix (n, n), sparse or not, symmetric and of numbers >= 0,
        whose diagonal is dropped.
    k
        Neighbours of each node of a finder, >= 1; without effect on a matrix.
    progress
        Whether to show a progress bar on standard error.

    Returns
    -------
    scipy.sparse.csr_array
        (n, n) float64; n counts all nodes of the graph, searched or not.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Examples
    --------
    >>> similarity_graph([[1, 0.5], [0.5, 1]]).toarray()
    array([[0. , 0.5],
           [0.5, 0. ]])
    """
    k = as_count("k", k)
    if hasattr(source, "search_evidence"):
        check_finder(source)
    if isinstance(source, EvidenceFinder):
        return _nearest(source, k, progress)
    similarities: Any = source if scipy.sparse.issparse(source) else as_array("similarity", source)
    matrix: _Csr = scipy.sparse.csr_array(similarities, dtype=np.float64, copy=True)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"similarity must have shape (n, n), got {matrix.shape}")
    matrix.sum_duplicates()
    if not (np.isfinite(matrix.data).all() and (matrix.data >= 0).all()):
        raise ValueError("similarity must hold finite numbers >= 0")
    rounding = 1e-6 * float(matrix.data.max(initial=0))
    if abs(matrix - matrix.T).max() > rounding:
        raise ValueError("similarity must be symmetric, got a pair with two similarities")
    return _drop_diagonal(matrix)


def individual_bias(
    Y: ArrayLike, similarity: Any, *, k: int = 10, confidence: float = 0.95, progress: bool = False
) -> IndividualBias:
    """Return how much the outputs of similar nodes differ.

    Kang, He, Maciejewski & Tong, "InFoRM: individual fairness on graph mining", KDD 2020: Bias(Y,
    S) = Tr(Yᵀ L_S Y), with the Laplacian L_S = D_S - S. It equals the sum over unordered pairs of
    S_ij ||Y_i - Y_j||²: each pair counts once, and a node's similarity to itself not at all.

    Parameters
    ----------
    Y
        Outputs, (n, C): probabilities, logits or embeddings.
    similarity, k, progress
        A finder or a matrix, see :func:`similarity_graph`.
    confidence
        Of the interval, in (0, 1).

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Notes
    -----
    The sum grows with the number of pairs and with their similarities; ``per_weight`` does not, and
    may be compared between graphs. Its interval allows for pairs that share a node (Aronow, Samii &
    Assenova, "Cluster-robust variance estimation for dyadic data", Political Analysis 23, 2015).
    O(pairs * C) time.

    Examples
    --------
    >>> bias = individual_bias([[0.0], [1.0], [3.0]], [[1, 1, 0], [1, 1, 0.5], [0, 0.5, 1]])
    >>> bias.bias, bias.pairs, bias.weight, bias.per_weight
    (3.0, 2, 1.5, 2.0)
    """
    z = normal_quantile(confidence)
    n, (i, j, weight, distance) = _pairs(Y, similarity, k, progress)
    once = i < j
    total = float(weight[once].sum())
    bias = float((weight * distance)[once].sum())
    mean = bias / total if total > 0 else np.nan
    # Sum of the residuals at each node. A pair counts at both of its nodes, so its square is
    # subtracted once.
    residual = weight * (distance - mean)
    variance = (np.bincount(i, residual, n) ** 2).sum() - (residual[once] ** 2).sum()
    low, high = _normal_interval(mean, variance, total, z)
    expected = 2 * float(_as_outputs(Y, n).var(axis=0).sum()) * n / (n - 1) if n > 1 else np.nan
    return IndividualBias(bias, mean, low, high, expected, n, int(once.sum()), total, _BIAS_LIMITS)


def group_disparity(
    Y: ArrayLike,
    similarity: Any,
    groups: Any,
    *,
    k: int = 10,
    confidence: float = 0.95,
    progress: bool = False,
) -> GroupDisparity:
    """Return how much more the outputs of similar nodes differ in one group than in another.

    Song, Dong, Liu & Li, "GUIDE: group equality informed individual fairness in graph neural
    networks", KDD 2022: a group's bias U_p = Tr(Yᵀ L_p Y) / m_p, where L_p counts a pair within the
    group twice and a pair with one node in it once, and m_p is the number of pairs counted so. It
    is the mean of S_ij ||Y_i - Y_j||² over the ordered pairs of a node i of the group and a node j
    similar to it. GDIF is the sum over pairs of groups of max(U_p / U_q, U_q / U_p). A node's
    similarity to itself is no pair and does not count in m_p.

    Parameters
    ----------
    Y, similarity, k, confidence, progress
        As in :func:`individual_bias`.
    groups
        Group of each node, (n,), numbers or texts; NaN or None where it is not known.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, or there are not two groups.

    Notes
    -----
    Groups without pairs have no bias, NaN, and are left out of the ratios; of a bias of 0 and one
    above it the ratio is infinite. O(pairs * C) time.

    Examples
    --------
    >>> S = [[0, 1, 0], [1, 0, 1], [0, 1, 0]]
    >>> found = group_disparity([[0.0], [1.0], [3.0]], S, ["a", "a", "b"])
    >>> found.table[["group", "nodes", "pairs", "bias"]]
      group  nodes  pairs  bias
    0     a      2      3   2.0
    1     b      1      1   4.0
    >>> found.disparity
    2.0
    """
    z = normal_quantile(confidence)
    n, (i, j, weight, distance) = _pairs(Y, similarity, k, progress)
    group = as_attributes({"groups": groups})["groups"]
    check_shape("groups", group.codes, (n,))
    if len(group.values) < 2:
        raise ValueError(f"groups must hold two groups at least, got {len(group.values)}")
    lines = []
    for code, value in enumerate(group.values):
        is_member = group.codes[i] == code
        count = int(is_member.sum())
        cost = (weight * distance)[is_member]
        mean = float(cost.mean()) if count else np.nan
        neighbours = j[is_member]
        residual = cost - mean
        both = group.codes[neighbours] == code
        # A pair within the group appears in both directions, which are the same pair.
        at_node = np.bincount(i[is_member], residual, n) + np.bincount(neighbours, residual, n)
        variance = (
            (at_node**2).sum() - (residual[~both] ** 2).sum() - 2 * (residual[both] ** 2).sum()
        )
        low, high = _normal_interval(mean, variance, count, z)
        nodes = int((group.codes == code).sum())
        lines.append(
            {"group": value, "nodes": nodes, "pairs": count, "bias": mean, "low": low, "high": high}
        )
    table = pd.DataFrame(lines)
    biases = np.sort(table["bias"].dropna())
    first, second = np.triu_indices(len(biases), 1)
    smaller = biases[first]
    larger = biases[second]
    ratios = np.divide(larger, smaller, out=np.where(larger > 0, np.inf, 1.0), where=smaller > 0)
    return GroupDisparity(
        disparity=float(ratios.max()) if len(ratios) else np.nan,
        gdif=float(ratios.sum()) if len(ratios) else np.nan,
        table=table,
        unknown=int((group.codes == UNKNOWN).sum()),
        limits=_DISPARITY_LIMITS,
    )


def ranking_ndcg(
    Y: ArrayLike, similarity: Any, k: int = 10, *, confidence: float = 0.95
) -> RankingNDCG:
    """Return how well the outputs rank the nodes that are similar to each node.

    Dong, Kang, Tong & Li, "Individual fairness for graph neural networks: a ranking based approach"
    (REDRESS), KDD 2021: for each node the others are ranked by the cosine of their outputs; NDCG@k
    judges the first k by their similarity to the node, gain 2^s - 1, discount log2(place + 1),
    divided by that of the ranking by similarity.

    Parameters
    ----------
    Y
        Outputs, (n, C).
    similarity
        A finder: the similarities of all its searched nodes. Or a matrix as in
        :func:`similarity_graph`; missing pairs are 0.
    k
        Nodes ranked, >= 1.
    confidence
        Of the interval, in (0, 1).

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Notes
    -----
    Nodes with equal outputs are tied. The DCG is its mean over all orders of tied nodes (McSherry &
    Najork, "Computing information retrieval performance measures efficiently in the presence of
    tied scores", ECIR 2008). Otherwise the order of the nodes would decide about a model with few
    distinct outputs. The node itself is not ranked. Negative similarities count as 0.

    O(n**2 * C) time, in blocks of rows, and O(t log t) for the t nodes tied with the k-th; with a
    finder also n**2 * d multiplications.

    Examples
    --------
    >>> S = [[0, 1, 0.5], [1, 0, 0.2], [0.5, 0.2, 0]]
    >>> ranking_ndcg([[1, 0], [1, 0.1], [0, 1]], S, k=1).per_node.round(2)
    array([1.  , 1.  , 0.36])
    """
    k = as_count("k", k)
    normal_quantile(confidence)  # checks it
    n, nodes, similarities = _similarity_rows(similarity)
    outputs = _as_outputs(Y, n)[nodes]
    length = np.linalg.norm(outputs, axis=1, keepdims=True)
    # Nodes with equal outputs get the same cosines, bit by bit, so that they tie.
    distinct, kind = np.unique(
        outputs / np.where(length > 0, length, 1), axis=0, return_inverse=True
    )
    kind = kind.reshape(-1)
    others = len(nodes) - 1
    discounts = 1 / np.log2(np.arange(2, min(k, max(others, 0)) + 2))
    ndcg, by_chance = np.full((2, n), np.nan)
    for begin in range(0, len(nodes), _ROWS):
        rows = slice(begin, min(begin + _ROWS, len(nodes)))
        diagonal = np.arange(rows.stop - begin), np.arange(begin, rows.stop)
        gains = np.exp2(similarities(rows)) - 1
        cosine = distinct[kind[rows]] @ distinct.T
        cosine[diagonal[0], kind[rows]] = np.inf  # equal outputs come first, in spite of rounding
        ranking = cosine[:, kind]
        # a node is not ranked itself
        gains[diagonal] = 0
        ranking[diagonal] = -np.inf
        ideal = _dcg(gains, gains, discounts)
        ndcg[nodes[rows]] = share(_dcg(ranking, gains, discounts), ideal)
        by_chance[nodes[rows]] = share(gains.sum(axis=1) / max(others, 1) * discounts.sum(), ideal)
    judged = ~np.isnan(ndcg)
    ndcg = ndcg.clip(0, 1)
    mean, expected = (
        float(values[judged].mean()) if judged.any() else np.nan for values in (ndcg, by_chance)
    )
    # equal scores stay equal in spite of rounding
    low, high = bootstrap_mean(ndcg[judged].round(12), confidence)
    return RankingNDCG(mean, low, high, expected, ndcg, int(judged.sum()), k, _NDCG_LIMITS)


def _similarity_rows(similarity: Any) -> tuple[int, Ints, Callable[[slice], Floats]]:
    """Return the number of nodes, the ranked nodes, and a function for their similarities."""
    if isinstance(similarity, EvidenceFinder):
        nodes = similarity.index.members().ids
        vectors = similarity.vectors[nodes]
        squares = (vectors.astype(np.float64) ** 2).sum(axis=1)

        def similarities(rows: slice) -> Floats:
            D = vectors[rows].astype(np.float64) @ vectors.T
            if similarity.metric == "l2":
                D = squares[rows, None] + squares - 2 * D
            return _similarities(D, similarity.metric)

        return len(similarity.labels), nodes, similarities
    graph = similarity_graph(similarity)
    return graph.shape[0], np.arange(graph.shape[0]), lambda rows: graph[rows].toarray()


def _dcg(scores: Floats, gains: Floats, discounts: Floats) -> Floats:
    """Return the DCG of each row for the ranking by score, (m,), the mean over ties."""
    from scipy.stats import rankdata

    k = len(discounts)
    dcg = np.zeros(len(scores))
    sums = np.append(0, np.cumsum(discounts))
    for row, score in enumerate(scores if k else ()):
        # more than k, if others tie with the k-th
        first = np.flatnonzero(score >= np.partition(score, -k)[-k])
        best, worst = (
            rankdata(-score[first], method).astype(np.int64) for method in ("min", "max")
        )
        discount = (sums[np.minimum(worst, k)] - sums[best - 1]) / (worst - best + 1)
        dcg[row] = gains[row, first] @ discount
    return dcg


def _similarities(D: Array, metric: Metric) -> Floats:
    """Return numbers >= 0 that are larger for nearer nodes, from D as FAISS returns it."""
    values = D.astype(np.float64)
    return np.exp(-values.clip(0) / 2) if is_distance(metric) else values.clip(0)


def _nearest(finder: EvidenceFinder, k: int, progress: bool) -> _Csr:
    ids = finder.index.members().ids
    n = len(finder.labels)
    index = IndexEvidenceIDMap2(finder.vectors.shape[1], metric=finder.metric)
    index.add_with_labels(finder.vectors[ids], np.zeros(len(ids), np.int32), ids=ids)
    D, I = index.search_stored(None, k, neighbors="any", progress=progress)
    row, column = np.nonzero(I >= 0)
    weight = _similarities(D[row, column], finder.metric)
    one_way = scipy.sparse.csr_array((weight, (ids[row], I[row, column])), shape=(n, n))
    return _drop_diagonal(scipy.sparse.csr_array(one_way.maximum(one_way.T)))


def _drop_diagonal(matrix: _Csr) -> _Csr:
    coo = matrix.tocoo()
    is_edge = (coo.row != coo.col) & (coo.data != 0)
    return scipy.sparse.csr_array(
        (coo.data[is_edge], (coo.row[is_edge], coo.col[is_edge])), shape=matrix.shape
    )


def _as_outputs(Y: ArrayLike, n: int) -> Floats:
    outputs = as_array("Y", Y).astype(np.float64)
    if outputs.ndim != 2 or outputs.shape[0] != n or not np.isfinite(outputs).all():
        raise ValueError(f"Y must have shape ({n}, C) and be finite, got {outputs.shape}")
    return outputs


def _pairs(
    Y: ArrayLike, similarity: Any, k: int, progress: bool
) -> tuple[int, tuple[Array, Array, Floats, Floats]]:
    """Return the number of nodes, and all ordered pairs with similarity and distance."""
    coo = similarity_graph(similarity, k, progress=progress).tocoo()
    distance = np.zeros(len(coo.data))
    for column in _as_outputs(Y, coo.shape[0]).T:  # one column at a time: the pairs may be many
        distance += (column[coo.row] - column[coo.col]) ** 2
    return coo.shape[0], (coo.row, coo.col, coo.data, distance)


def _normal_interval(mean: float, variance: float, total: float, z: float) -> tuple[float, float]:
    if np.isnan(mean):
        return np.nan, np.nan
    half = z * np.sqrt(max(variance, 0)) / total
    return float(max(mean - half, 0)), float(mean + half)
