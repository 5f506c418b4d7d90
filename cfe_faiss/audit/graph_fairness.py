"""Are similar nodes given similar outputs: InFoRM's individual bias, GUIDE's group disparity, REDRESS's NDCG@k."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray

from cfe_faiss.attributes.table import as_attributes
from cfe_faiss.audit.intervals import bootstrap_mean, normal_quantile
from cfe_faiss.base.checks import UNKNOWN, as_array, as_count
from cfe_faiss.base.extras import extra
from cfe_faiss.base.text import summary
from cfe_faiss.finder import EvidenceFinder
from cfe_faiss.index.flat import IndexEvidenceFlat

if TYPE_CHECKING:
    import pandas as pd

_Csr: TypeAlias = scipy.sparse.csr_array
_Floats: TypeAlias = NDArray[np.float64]

_ROWS = 512
"""Nodes ranked at a time."""

_SIMILARITY = (
    "The figure depends on the similarity as much as on the model: pairs that it does not hold are not compared.",
    "It depends on the scale of the outputs: compare logits with logits, and probabilities with probabilities.",
)
_INTERVAL = (
    "The interval allows for pairs that share a node, not for outputs that depend on each other through the graph. It "
    "is a normal one, for many nodes.",
)


@dataclass(frozen=True, slots=True, repr=False)
class IndividualBias:
    """How much the outputs of similar nodes differ; made by :func:`individual_bias`.

    Attributes
    ----------
    bias
        InFoRM's overall bias, Tr(Yᵀ L_S Y): the sum over pairs of similarity times squared distance of the outputs.
    per_weight, low, high
        ``bias`` / ``weight``, the mean squared distance weighted by similarity, and its interval; NaN without pairs.
    expected
        Mean squared distance of any two nodes' outputs: what ``per_weight`` would be if similarity did not matter.
    nodes, pairs, weight
        Nodes, unordered pairs of nodes with a similarity above 0, and the sum of their similarities.
    limits
        What the numbers cannot say.
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


@dataclass(frozen=True, slots=True, repr=False)
class GroupDisparity:
    """How differently groups fare in :class:`IndividualBias`; made by :func:`group_disparity`.

    Attributes
    ----------
    disparity
        Largest ratio of two groups' bias, at least 1; 1 is equal treatment.
    gdif
        GUIDE's sum of this ratio over all pairs of groups; of two groups the same as ``disparity``.
    table
        One line per group: ``group``, ``nodes``, ``pairs`` (ordered pairs of a node of the group and a similar node of
        any group), ``bias`` (mean over these of similarity times squared distance), ``low``, ``high``.
    unknown
        Nodes without a group: they count as neighbours only.
    limits
        What the numbers cannot say.
    """

    disparity: float
    gdif: float
    table: pd.DataFrame
    unknown: int
    limits: tuple[str, ...]

    __repr__ = summary


@dataclass(frozen=True, slots=True, repr=False)
class RankingNDCG:
    """Whether outputs rank a node's like as the input does; made by :func:`ranking_ndcg`.

    Attributes
    ----------
    mean, low, high
        Mean NDCG@k over the judged nodes, in [0, 1], 1 is the same ranking; and its interval.
    expected
        The mean if the outputs ranked at random.
    per_node
        NDCG@k of each node, (n,); NaN where no node is similar to it at all.
    judged, k
        Nodes with an NDCG, and how many neighbours were ranked.
    limits
        What the numbers cannot say.
    """

    mean: float
    low: float
    high: float
    expected: float
    per_node: _Floats
    judged: int
    k: int
    limits: tuple[str, ...]

    __repr__ = summary


def similarity_graph(source: Any, k: int = 10, *, progress: bool = False) -> _Csr:
    """Return similarities of nodes as a symmetric sparse matrix without a diagonal.

    Parameters
    ----------
    source
        A finder: two of its searched nodes are similar where one is among the k nearest of the other by KS, found
        exactly, and negative KS is left out. Or a matrix (n, n), sparse or not, symmetric and of numbers >= 0, whose
        diagonal is dropped.
    k
        Neighbours of each node of a finder, >= 1; without effect on a matrix.
    progress
        Whether to show a progress bar on standard error.

    Returns
    -------
    scipy.sparse.csr_array
        (n, n) float64; n counts all nodes of the graph, also those that are not searched.

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
    if isinstance(source, EvidenceFinder):
        return _nearest_by_ks(source, k, progress)
    given: Any = source if scipy.sparse.issparse(source) else as_array("similarity", source)
    matrix: _Csr = scipy.sparse.csr_array(given, dtype=np.float64, copy=True)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"similarity must have shape (n, n), got {matrix.shape}")
    matrix.sum_duplicates()
    if not (np.isfinite(matrix.data).all() and (matrix.data >= 0).all()):
        raise ValueError("similarity must hold finite numbers >= 0")
    rounding = 1e-6 * float(matrix.data.max(initial=0))
    if abs(matrix - matrix.T).max() > rounding:
        raise ValueError("similarity must be symmetric, got a pair with two similarities")
    return _without_diagonal(matrix)


def individual_bias(
    Y: ArrayLike, similarity: Any, *, k: int = 10, confidence: float = 0.95, progress: bool = False
) -> IndividualBias:
    """Return how much the outputs of similar nodes differ.

    Kang, He, Maciejewski & Tong, "InFoRM: individual fairness on graph mining", KDD 2020: Bias(Y, S) = Tr(Yᵀ L_S Y),
    with the Laplacian L_S = D_S - S. It equals the sum over unordered pairs of S_ij ||Y_i - Y_j||²: each pair counts
    once, and a node's similarity to itself not at all.

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
    The sum grows with the number of pairs and with their similarities; ``per_weight`` does not, and may be compared
    between graphs. Its interval allows for pairs that share a node (Aronow, Samii & Assenova, "Cluster-robust variance
    estimation for dyadic data", Political Analysis 23, 2015). O(pairs * C) time.

    Examples
    --------
    >>> bias = individual_bias([[0.0], [1.0], [3.0]], [[1, 1, 0], [1, 1, 0.5], [0, 0.5, 1]])
    >>> bias.bias, bias.pairs, bias.weight, bias.per_weight
    (3.0, 2, 1.5, 2.0)
    """
    z = normal_quantile(confidence)
    outputs, graph = _outputs_and_graph(Y, similarity, k, progress)
    i, j, weight, distance = _pairs(outputs, graph)
    once = i < j
    total, bias = float(weight[once].sum()), float((weight * distance)[once].sum())
    mean = bias / total if total > 0 else np.nan
    # What each node's pairs add; a pair belongs to both of its nodes and is taken out once.
    residual = weight * (distance - mean)
    variance = (np.bincount(i, residual, len(outputs)) ** 2).sum() - (residual[once] ** 2).sum()
    low, high = _normal_interval(mean, variance, total, z)
    n = len(outputs)
    expected = 2 * float(outputs.var(axis=0).sum()) * n / (n - 1) if n > 1 else np.nan
    return IndividualBias(bias, mean, low, high, expected, n, int(once.sum()), total, _SIMILARITY + _INTERVAL)


def group_disparity(
    Y: ArrayLike, similarity: Any, groups: Any, *, k: int = 10, confidence: float = 0.95, progress: bool = False
) -> GroupDisparity:
    """Return how much more the outputs of similar nodes differ in one group than in another.

    Song, Dong, Liu & Li, "GUIDE: group equality informed individual fairness in graph neural networks", KDD 2022: a
    group's bias U_p = Tr(Yᵀ L_p Y) / m_p, where L_p counts a pair within the group twice and a pair with one node in it
    once, and m_p is the number of pairs counted so. It is the mean of S_ij ||Y_i - Y_j||² over the ordered pairs of a
    node i of the group and a node j similar to it. GDIF is the sum over pairs of groups of max(U_p / U_q, U_q / U_p).
    A node's similarity to itself is no pair and does not count in m_p.

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
    Groups without pairs have no bias, NaN, and are left out of the ratios; of a bias of 0 and one above it the ratio is
    infinite. O(pairs * C) time.

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
    with extra("audit"):
        import pandas as pd

    z = normal_quantile(confidence)
    outputs, graph = _outputs_and_graph(Y, similarity, k, progress)
    group = as_attributes({"groups": groups})["groups"]
    if len(group.codes) != len(outputs):
        raise ValueError(f"groups must have shape ({len(outputs)},), got {len(group.codes)} values")
    if len(group.values) < 2:
        raise ValueError(f"groups must hold two groups at least, got {len(group.values)}")
    i, j, weight, distance = _pairs(outputs, graph)
    lines = []
    for code, value in enumerate(group.values):
        own = group.codes[i] == code
        count, cost = int(own.sum()), (weight * distance)[own]
        mean = float(cost.mean()) if count else np.nan
        a, b, residual = i[own], j[own], cost - mean
        both = group.codes[b] == code
        # A pair within the group is there in both directions, which are one and the same.
        at_node = np.bincount(a, residual, len(outputs)) + np.bincount(b, residual, len(outputs))
        variance = (at_node**2).sum() - (residual[~both] ** 2).sum() - 2 * (residual[both] ** 2).sum()
        low, high = _normal_interval(mean, variance, count, z)
        nodes = int((group.codes == code).sum())
        lines.append({"group": value, "nodes": nodes, "pairs": count, "bias": mean, "low": low, "high": high})
    table = pd.DataFrame(lines)
    ratios = [_ratio(p, q) for place, p in enumerate(table["bias"]) for q in table["bias"].iloc[:place]]
    known = [ratio for ratio in ratios if not np.isnan(ratio)]
    disparity, gdif = (max(known), sum(known)) if known else (np.nan, np.nan)
    unknown = int((group.codes == UNKNOWN).sum())
    limits = (
        *_SIMILARITY,
        "The largest of several ratios is above 1 by chance alone: compare the intervals of the groups.",
        *_INTERVAL,
    )
    return GroupDisparity(float(disparity), float(gdif), table, unknown, limits)


def ranking_ndcg(Y: ArrayLike, similarity: Any, k: int = 10, *, confidence: float = 0.95) -> RankingNDCG:
    """Return how well the outputs rank each node's like, against the ranking by similarity.

    Dong, Kang, Tong & Li, "Individual fairness for graph neural networks: a ranking based approach" (REDRESS), KDD
    2021: for each node the others are ranked by the cosine of their outputs; NDCG@k judges the first k by their
    similarity to the node, gain 2^s - 1, discount log2(place + 1), divided by that of the ranking by similarity.

    Parameters
    ----------
    Y
        Outputs, (n, C).
    similarity
        A finder: KS of all its searched nodes. Or a matrix as in :func:`similarity_graph`; what it does not hold is 0.
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
    Nodes with equal outputs are equal in rank: an order among them would be arbitrary, so the DCG is its mean over all
    orders (McSherry & Najork, "Computing information retrieval performance measures efficiently in the presence of tied
    scores", ECIR 2008). A model with few distinct outputs would else be judged by the order of the nodes. The node
    itself is not ranked. Negative similarities count as 0.

    O(n**2 * (C + log k)) time, in blocks of rows; with a finder also n**2 * d multiplications.

    Examples
    --------
    >>> S = [[0, 1, 0.5], [1, 0, 0.2], [0.5, 0.2, 0]]
    >>> ranking_ndcg([[1, 0], [1, 0.1], [0, 1]], S, k=1).per_node.round(2)
    array([1.  , 1.  , 0.36])
    """
    k = as_count("k", k)
    normal_quantile(confidence)  # checks it
    if isinstance(similarity, EvidenceFinder):
        n, nodes = len(similarity.labels), similarity.index.members().ids
        blocks = _gains_of_vectors(similarity.vectors[nodes])
    else:
        graph = similarity_graph(similarity)
        n, nodes = graph.shape[0], np.arange(graph.shape[0])
        blocks = _gains_of_matrix(graph)
    outputs = _as_outputs(Y, n)[nodes]
    length = np.linalg.norm(outputs, axis=1, keepdims=True)
    distinct, kind = np.unique(outputs / np.where(length > 0, length, 1), axis=0, return_inverse=True)
    kind = kind.reshape(-1)
    found, by_chance = np.full(len(nodes), np.nan), np.full(len(nodes), np.nan)
    discounts = np.concatenate([[0], np.cumsum(1 / np.log2(np.arange(2, min(k, max(len(nodes) - 1, 0)) + 2)))])
    for begin, gains in blocks:
        rows = slice(begin, begin + gains.shape[0])
        best = -np.partition(-gains, min(k, gains.shape[1]) - 1, axis=1)[:, :k]
        ideal = -np.sort(-best, axis=1)[:, : len(discounts) - 1] @ np.diff(discounts)
        reached = _dcg(distinct, kind, rows, gains, discounts)
        chance = gains.sum(axis=1) / max(len(nodes) - 1, 1) * discounts[-1]
        some = ideal > 0
        found[rows] = np.divide(reached, ideal, out=np.full(len(ideal), np.nan), where=some)
        by_chance[rows] = np.divide(chance, ideal, out=np.full(len(ideal), np.nan), where=some)
    judged = ~np.isnan(found)
    found = np.where(judged, np.clip(found, 0, 1), np.nan)
    per_node = np.full(n, np.nan)
    per_node[nodes] = found
    mean = float(found[judged].mean()) if judged.any() else np.nan
    expected = float(by_chance[judged].mean()) if judged.any() else np.nan
    low, high = bootstrap_mean(found[judged], confidence)
    limits = (
        "A high NDCG says that the outputs keep the order of the most similar nodes, not that their differences are "
        "small or just.",
        "The gain of a similarity between 0 and 1 hardly tells 0.99 from 0.9: compare the figure with `expected`.",
        "The interval takes nodes as independent; they share neighbours, so it is rather too narrow.",
    )
    return RankingNDCG(mean, low, high, expected, per_node, int(judged.sum()), k, limits)


def _dcg(distinct: _Floats, kind: NDArray[np.int64], rows: slice, gains: _Floats, discounts: _Floats) -> _Floats:
    """Return the DCG@k of the ranking by output for a block of nodes, its mean over all orders of equal outputs."""
    k, m, own = len(discounts) - 1, len(distinct), kind[rows]
    block = np.arange(len(own))
    one_hot = scipy.sparse.csr_array((np.ones(len(kind)), (np.arange(len(kind)), kind)), shape=(len(kind), m))
    total: _Floats = np.asarray(gains @ one_hot)
    count = np.repeat(np.bincount(kind, minlength=m)[None].astype(np.float64), len(own), axis=0)
    count[block, own] -= 1
    cosine = distinct[own] @ distinct.T
    cosine[block, own] = np.inf  # equal outputs come first, whatever rounding makes of them
    width = min(k + 1, m)
    first = np.argpartition(-cosine, width - 1, axis=1)[:, :width]
    value = np.take_along_axis(cosine, first, axis=1)
    last = value.min(axis=1)
    equal = value[:, :, None] == value[:, None, :]
    before = value[:, :, None] < value[:, None, :]
    some_count = np.take_along_axis(count, first, axis=1)
    tied = np.einsum("bjl,bl->bj", equal, some_count)
    gain = np.einsum("bjl,bl->bj", equal, np.take_along_axis(total, first, axis=1))
    start = np.einsum("bjl,bl->bj", before, some_count)
    # Those equal to the last may stand outside of the first few.
    at_last = cosine == last[:, None]
    is_last = value == last[:, None]
    tied = np.where(is_last, np.einsum("bm,bm->b", at_last, count)[:, None], tied)
    gain = np.where(is_last, np.einsum("bm,bm->b", at_last, total)[:, None], gain)
    earlier = np.tril(np.ones((width, width), bool), -1)
    leads = ~(equal & earlier).any(axis=2) & (tied > 0)
    begin = np.minimum(start, k).astype(np.int64)
    end = np.minimum(start + tied, k).astype(np.int64)
    share = (discounts[end] - discounts[begin]) / np.where(tied > 0, tied, 1)
    result: _Floats = np.where(leads, gain * share, 0).sum(axis=1)
    return result


def _gains_of_vectors(vectors: NDArray[np.float32]) -> Iterator[tuple[int, _Floats]]:
    for begin in range(0, len(vectors), _ROWS):
        ks = np.clip(vectors[begin : begin + _ROWS] @ vectors.T, 0, 1).astype(np.float64)
        ks[np.arange(len(ks)), begin + np.arange(len(ks))] = 0
        yield begin, np.exp2(ks) - 1


def _gains_of_matrix(graph: _Csr) -> Iterator[tuple[int, _Floats]]:
    gains = graph.copy()
    gains.data = np.exp2(gains.data) - 1
    for begin in range(0, graph.shape[0], _ROWS):
        yield begin, gains[begin : begin + _ROWS].toarray()


def _nearest_by_ks(finder: EvidenceFinder, k: int, progress: bool) -> _Csr:
    ids, n = finder.index.members().ids, len(finder.labels)
    index = IndexEvidenceFlat(finder.vectors.shape[1])
    index.add_with_labels(finder.vectors[ids], np.zeros(len(ids), np.int32), ids=ids)
    ones = np.ones(len(ids), np.int32)
    name = "Searching" if progress else None
    D, I = index.search_evidence(finder.vectors[ids], ones, k + 1, progress=name)
    D, I = np.asarray(D), np.asarray(I)
    found = (I >= 0) & (ids[:, None] != I)
    # A node finds itself; where k + 1 others come before it, all of them are as close as can be.
    found &= np.cumsum(found, axis=1) <= k
    row, column = np.nonzero(found)
    weight = np.maximum(D[row, column].astype(np.float64), 0)
    one_way = scipy.sparse.csr_array((weight, (ids[row], I[row, column])), shape=(n, n))
    return _without_diagonal(scipy.sparse.csr_array(one_way.maximum(one_way.T)))


def _without_diagonal(matrix: _Csr) -> _Csr:
    coo = matrix.tocoo()
    kept = (coo.row != coo.col) & (coo.data != 0)
    return scipy.sparse.csr_array((coo.data[kept], (coo.row[kept], coo.col[kept])), shape=matrix.shape)


def _outputs_and_graph(Y: ArrayLike, similarity: Any, k: int, progress: bool) -> tuple[_Floats, _Csr]:
    graph = similarity_graph(similarity, k, progress=progress)
    return _as_outputs(Y, graph.shape[0]), graph


def _as_outputs(Y: ArrayLike, n: int) -> _Floats:
    outputs = as_array("Y", Y).astype(np.float64)
    if outputs.ndim != 2 or outputs.shape[0] != n or not np.isfinite(outputs).all():
        raise ValueError(f"Y must have shape ({n}, C) and be finite, got {outputs.shape}")
    return outputs


def _pairs(outputs: _Floats, graph: _Csr) -> tuple[NDArray[Any], NDArray[Any], _Floats, _Floats]:
    """Return all ordered pairs, their similarity, and the squared distance of their outputs."""
    coo = graph.tocoo()
    distance = np.zeros(len(coo.data))
    for column in outputs.T:
        distance += (column[coo.row] - column[coo.col]) ** 2
    return coo.row, coo.col, coo.data, distance


def _normal_interval(mean: float, variance: float, total: float, z: float) -> tuple[float, float]:
    if np.isnan(mean):
        return np.nan, np.nan
    half = z * np.sqrt(max(variance, 0)) / total
    return float(max(mean - half, 0)), float(mean + half)


def _ratio(p: float, q: float) -> float:
    if np.isnan(p) or np.isnan(q):
        return np.nan
    low, high = sorted((p, q))
    return high / low if low > 0 else np.inf if high > 0 else 1.0
