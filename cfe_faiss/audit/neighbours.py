"""Measures of nodes by evidence: discrimination scores, consistency, accuracy near pairs."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from cfe_faiss.audit.groups import (
    DEFAULT_BINS,
    Bins,
    Floats,
    Frame,
    Grouping,
    Ints,
    attributes_of_finder,
    canonical_order,
    check_finder,
    group_means,
    groupings,
    sensitive_of,
    share,
    stack,
    with_truth,
)
from cfe_faiss.audit.intervals import clustered_wilson, share_columns, wilson
from cfe_faiss.base.checks import UNKNOWN, Int32s, as_count, check_known
from cfe_faiss.base.extras import pd
from cfe_faiss.base.threads import single_threaded_blas
from cfe_faiss.finder import EvidenceFinder
from cfe_faiss.pairs import global_evidence
from cfe_faiss.rows.metric import flipped
from cfe_faiss.rows.snapshot import Members
from cfe_faiss.search.query import Effort, Query, Rules

_MOST_TIES = 16
_SMALLEST_CELL = 5
_AXES = 16
_DRAWS = 200
_SEED = 0
_EXPECTED = ("expected", "expected_low", "expected_high")
_COLUMNS = (
    "feature",
    "value",
    "sensitive",
    "score",
    "expected",
    "difference",
    "class_expected",
    "nodes",
    "evidence",
)


def discrimination_scores(  # noqa: PLR0913
    finder: EvidenceFinder,
    *,
    nodes: Any = None,
    k: int = 10,
    columns: Sequence[str] | None = None,
    bins: Bins = DEFAULT_BINS,
    intersections: Sequence[Sequence[str]] = (),
    sensitive: Sequence[str] | None = None,
    nprobe: int | None = None,
    recall: float | None = None,
    exact: bool = False,
    memory: int | None = None,
    progress: bool = False,
) -> Frame:
    """Return the discrimination score DS of every value of every attribute.

    The score of a value is the mean, over the nodes that have it, of the share of their top-k
    evidence that lacks it (paper, section "Revealing Unfairness"). Scores are descriptive;
    :func:`direct_effects` has the tests.

    Parameters
    ----------
    finder
        Evidence comes from all its searched nodes; its attributes are scored.
    nodes
        Ids of the nodes to score, (n,), or a mask; default: all. Repeated ones count once.
    k
        Evidence per node, >= 1; the paper takes 10.
    columns, intersections
        Attributes to score, default: all; tuples of columns whose combined values are scored, too.
    bins
        Number of quantile bins of numbers with more than 10 values, or by column this number or
        the edges: Table 2 has ``bins={"TIME": [0, 30], "SCHOOL": [8, 13]}``.
    sensitive
        Columns or intersections ("sex & race") to list first; default: ``finder.sensitive``.
    nprobe, recall, exact, memory
        Effort, see :meth:`cfe_faiss.IndexEvidenceIVF.search_evidence`; default: the index's own.
    progress
        Whether to show a progress bar on standard error.

    Returns
    -------
    DataFrame
        One line per value; values of sensitive attributes first, then the largest difference first:

        - ``feature``, ``value``, ``sensitive``: attribute, value or bin, and if it is sensitive.
        - ``score``: in [0, 1]; NaN where no node has the value.
        - ``expected``: (n - m) / (n - 1), where m of n nodes have the value: the mean score if the
          attribute were shuffled over the nodes.
        - ``difference``: score minus ``expected``.
        - ``class_expected``: the score of random evidence among all nodes of other classes.
        - ``nodes``, ``evidence``: numbers of nodes and of pairs.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Examples
    --------
    >>> import cfe_faiss as cfe
    >>> people = {"sex": ["f", "m", "f", "m"], "city": ["A", "A", "B", "B"]}
    >>> X = [[1, 0], [0.9, 0.1], [0, 1], [0.1, 0.9]]
    >>> finder = cfe.EvidenceFinder.from_vectors(X, [0, 1, 0, 1], features=people)
    >>> scores = discrimination_scores(finder, k=1)
    >>> scores[["feature", "value", "score", "expected", "difference", "nodes"]].round(2)
      feature value  score  expected  difference  nodes
    0     sex     f    1.0      0.67        0.33      2
    1     sex     m    1.0      0.67        0.33      2
    2    city     A    0.0      0.67       -0.67      2
    3    city     B    0.0      0.67       -0.67      2
    """
    check_finder(finder)
    k = as_count("k", k)
    effort = Effort.of(nprobe, recall, exact, memory)
    groups = groupings(
        attributes_of_finder(finder), finder.index.members().ids, columns, bins, intersections
    )
    marked = sensitive_of(finder, sensitive)
    for name in () if sensitive is None else marked:
        check_known(
            "sensitive must name attributes that are scored", name, [group.name for group in groups]
        )
    members, places, _, I = _find_evidence(finder, nodes, k, effort, progress)
    scored = I[:, 0] >= 0
    places = places[scored]
    is_evidence = I[scored] >= 0
    evidence = np.searchsorted(members.ids, np.where(is_evidence, I[scored], 0))
    has_class = members.labels != UNKNOWN
    counts = is_evidence.sum(axis=1)
    n = int(has_class.sum())
    blocks = []
    for group in groups:
        group_of_place = group.codes[places]
        size = len(group.values)
        lacking = ((group.codes[evidence] != group_of_place[:, None]) & is_evidence).sum(
            axis=1
        ) / counts
        holders = np.bincount(group.codes[has_class], minlength=size)
        cases = np.bincount(group_of_place, minlength=size)
        score = group_means(lacking, group_of_place, size)
        expected = np.where(cases > 0, (n - holders) / max(n - 1, 1), np.nan)
        by_class = group_means(_share_without(group, members.labels)[places], group_of_place, size)
        blocks.append(
            {
                "feature": group.name,
                "value": group.values,
                "sensitive": group.name in marked,
                "score": score,
                "expected": expected,
                "difference": score - expected,
                "class_expected": by_class,
                "nodes": cases,
                "evidence": np.bincount(group_of_place, counts, size).astype(np.int64),
            }
        )
    return stack(blocks, _COLUMNS).sort_values(
        ["sensitive", "difference"], ascending=False, kind="stable", ignore_index=True
    )


def _share_without(group: Grouping, labels: Int32s) -> Floats:
    """Return for each node the share of other values among nodes of other classes."""
    classes, codes = np.unique(labels, return_inverse=True)
    table = np.zeros((len(group.values), len(classes)))
    np.add.at(table, (group.codes, codes), labels != UNKNOWN)
    eligible = table.sum() - table.sum(axis=0)
    same = np.nan_to_num(share(table.sum(axis=1, keepdims=True) - table, eligible), nan=1)
    return 1 - same[group.codes, codes]


def consistency(  # noqa: PLR0913
    finder: EvidenceFinder,
    *,
    nodes: Any = None,
    columns: Sequence[str] | None = None,
    bins: Bins = DEFAULT_BINS,
    intersections: Sequence[Sequence[str]] = (),
    nprobe: int | None = None,
    recall: float | None = None,
    exact: bool = False,
    memory: int | None = None,
    confidence: float = 0.95,
    progress: bool = False,
) -> Frame:
    """Return the share of nodes that are closer to their evidence than to their own class.

    The share of a group counts the nodes that the model treats differently from their most similar
    node: 0 is consistent. It is one minus the consistency of Zemel et al. (ICML 2013) with one
    neighbour, for predicted classes and with KS as the similarity; see :doc:`/user_guide/audit`.

    Parameters
    ----------
    finder
        Its searched nodes are compared.
    nodes
        Ids of the nodes to judge, (n,), or a mask; default: all. Repeated ones count once.
    columns, bins, intersections
        Groups of nodes, as in :func:`cfe_faiss.audit.discrimination_scores`. A finder without
        attributes, or an empty list of columns, gives the line of all nodes only.
    nprobe, recall, exact, memory
        Effort, see :meth:`cfe_faiss.IndexEvidenceIVF.search_evidence`; default: the index's own.
    confidence
        Of the intervals, in (0, 1).
    progress
        Whether to show a progress bar on standard error.

    Returns
    -------
    DataFrame
        One line for all nodes (``feature`` "all"), then one per group:

        - ``feature``, ``value``: the attribute and its value or bin.
        - ``share``, ``low``, ``high``: share and interval, for all groups of the attribute at once;
          NaN without nodes.
        - ``expected``, ``expected_low``, ``expected_high``: mean share if classes are exchanged
          among near neighbours, and the range that holds ``confidence`` of such exchanges. A share
          below the range is no finding.
        - ``difference``: share - expected.
        - ``nodes``, ``closer``: judged nodes, and those whose evidence is (strictly) closer.
        - ``tied``: nodes with several equally near nearest nodes, such as copies.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Notes
    -----
    A node without evidence or alone in its class is left out. Of equally near nodes, 16 count in
    the expectation and in the clusters of the interval: with more copies than that, the interval is
    too narrow. Two exact searches of all nodes, and n_c**2 * d multiplications for each class of
    n_c nodes.

    Examples
    --------
    >>> import cfe_faiss as cfe
    >>> X = [[1, 0], [0.9, 0.1], [0, 1], [0.1, 0.9], [0.2, 0.9]]
    >>> finder = cfe.EvidenceFinder.from_vectors(X, [0, 0, 1, 1, 0])
    >>> consistency(finder)[["feature", "share", "nodes", "closer"]]
      feature  share  nodes  closer
    0     all    0.4      5       2
    """
    check_finder(finder)
    index = finder.index
    effort = Effort.of(nprobe, recall, exact, memory)
    members, places, D, I = _find_evidence(finder, nodes, 1, effort, progress)
    groups = [Grouping.of_all(len(members.ids))]
    if finder.attributes is not None or columns or intersections:
        groups += groupings(attributes_of_finder(finder), members.ids, columns, bins, intersections)
    query_ids = None if nodes is None else members.ids[places]
    own_class = Query(1, ids=query_ids, rules=Rules(neighbors="own"), **finder.conditions())
    own_D, own_I = index.answer(own_class, effort)
    judged = (I[:, 0] >= 0) & (own_I[:, 0] >= 0)
    places = places[judged]
    nearest = flipped(D[judged, 0], index.metric)
    same = flipped(own_D[judged, 0], index.metric)
    closer = (nearest > same).astype(np.float64)
    row, neighbour = _nearest_of_all(finder, members, places, np.maximum(nearest, same), effort)
    tied = np.bincount(row, minlength=len(places)) > 1
    # Nodes that are connected by nearest neighbours are one cluster of the interval.
    graph = coo_array((np.ones(len(row), bool), (places[row], neighbour)), (len(members.ids),) * 2)
    cluster = connected_components(graph, directed=False)[1][places]
    known_class = np.flatnonzero(members.labels != UNKNOWN)
    vectors = index.reconstruct_batch(members.ids[known_class])
    order = canonical_order(vectors, members.labels[known_class])
    known_class = known_class[order]
    cells = near_cells(vectors[order])

    def shares(order: Ints) -> Floats:
        labels = members.labels.copy()
        labels[known_class] = labels[known_class][order]
        is_same = np.bincount(row, labels[neighbour] == labels[places[row]], len(places)) > 0
        return np.concatenate(
            [group_means(~is_same, group.codes[places], len(group.values)) for group in groups]
        )

    lines = [(group, value) for group in groups for value in range(len(group.values))]
    expected = (
        expect_by_exchange(cells, shares, confidence).T
        if len(places)
        else np.full((len(lines), 3), np.nan)
    )
    rows = []
    for (group, value), by_exchange in zip(lines, expected, strict=True):
        is_member = group.codes[places] == value
        hits, cases = (
            np.bincount(cluster[is_member], weights) for weights in (closer[is_member], None)
        )
        mean = float(closer[is_member].mean()) if is_member.any() else np.nan
        low, high = clustered_wilson(hits, cases, 1 - (1 - confidence) / len(group.values))
        rows.append(
            {
                "feature": group.name,
                "value": group.values[value],
                "share": mean,
                "low": low,
                "high": high,
                **dict(zip(_EXPECTED, by_exchange, strict=True)),
                "difference": mean - by_exchange[0],
                "nodes": int(is_member.sum()),
                "closer": int(hits.sum()),
                "tied": int(tied[is_member].sum()),
            }
        )
    return pd.DataFrame(rows)


def _find_evidence(
    finder: EvidenceFinder, nodes: Any, k: int, effort: Effort, progress: bool
) -> tuple[Members, Ints, NDArray[np.float32], Ints]:
    """Return the stored rows, the positions of ``nodes`` among them, and their k evidences."""
    members = finder.index.members()
    if nodes is None:
        ids = None
        places = np.arange(len(members.ids))
    else:
        ids = np.unique(finder.searched("nodes", nodes))
        places = np.searchsorted(members.ids, ids)
    query = Query(k, ids=ids, **finder.conditions())
    return members, places, *finder.index.answer(query, effort, progress)


def _nearest_of_all(
    finder: EvidenceFinder,
    members: Members,
    places: Ints,
    nearest: NDArray[np.float32],
    effort: Effort,
) -> tuple[Ints, Ints]:
    """Return pairs of a position in ``places`` and a nearest member, up to 16 for each."""
    ids = members.ids[places]
    absent = np.full(len(ids), members.labels.max(initial=0) + 1, np.int32)  # excludes no vector
    conditions = finder.conditions()
    if conditions:
        conditions["queries"] = ids
    index = finder.index
    query = Query(_MOST_TIES + 1, X=index.reconstruct_batch(ids), labels=absent, **conditions)
    D, I = index.answer(query, effort)
    is_nearest = nearest[:, None] <= flipped(D, index.metric)
    row, column = np.nonzero(is_nearest & (I >= 0) & (ids[:, None] != I))
    return row, np.searchsorted(members.ids, I[row, column])


def error_rate_by_evidence(  # noqa: PLR0913
    finder: EvidenceFinder,
    *,
    ks: Sequence[int] = (10, 20, 50, 100, 200, 500, 1000),
    exact: bool | None = None,
    per_node: bool = False,
    nprobe: int | None = None,
    recall: float | None = None,
    memory: int | None = None,
    favourable: Any = None,
    truth_favourable: Any = None,
    confidence: float = 0.95,
    progress: bool = False,
) -> Frame:
    """Return the accuracy within the top-k global evidence (paper, "Verifying Prediction Errors").

    Parameters
    ----------
    finder
        Knows the true classes; its searched nodes are compared.
    ks
        Points of the curve: numbers of pairs, each >= 1.
    exact, per_node, nprobe, recall, memory
        As in :func:`cfe_faiss.global_evidence`; ``per_node=True`` is the paper's Algorithm 3.
    favourable, truth_favourable
        Predicted and true classes that agree, if the truth has different names.
    confidence, progress
        Of the band, in (0, 1); whether to show a progress bar on standard error.

    Returns
    -------
    DataFrame
        One line per k, ascending:

        - ``k``, ``pairs``: numbers of pairs requested and found.
        - ``nodes``, ``errors``: distinct nodes of these pairs with known truth; wrong ones of them.
        - ``accuracy``, ``low``, ``high``: share of right ones, Wilson interval; NaN without nodes.
        - ``expected``, ``expected_low``, ``expected_high``: mean accuracy of these nodes if errors
          are exchanged among near neighbours, and the range that holds ``confidence`` of such
          exchanges.
        - ``overall``, ``overall_low``, ``overall_high``, ``overall_nodes``: accuracy over all nodes
          of the index with a known true class, its Wilson interval, and their number.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Notes
    -----
    - Selection: the pairs are chosen for being close *and* predicted differently. Of two nodes with
      the same true class, at least one prediction is wrong by construction. A low accuracy says
      that the model's border runs through similar nodes, not that similarity makes it err.
    - Null hypothesis of ``expected``: within cells of 5 to 10 nodes that are near each other, being
      in a pair does not change the error rate. 200 seeded random exchanges within these cells give
      mean and range. Without such a change the accuracy is outside of the range in 2 to 6 % of 50
      samples at 95 % (``benchmarks/calibration_rates.py``).
    - The band treats nodes as independent, but of a pair often one is right and the other wrong. In
      simulations (nominal 95 %) it holds the mean accuracy in 98 to 99.5 % of the trials if true
      classes are drawn again for the same predictions, and in 90 to 98.5 % if the model is trained
      on other nodes (``benchmarks/coverage.py``). Points are nested: read the band pointwise.

    Examples
    --------
    >>> import cfe_faiss as cfe
    >>> X = [[1, 0], [0.9, 0.1], [0, 1], [0.2, 0.9]]
    >>> finder = cfe.EvidenceFinder.from_vectors(X, [0, 1, 0, 0], truth=[0, 0, 0, 0])
    >>> error_rate_by_evidence(finder, ks=[1, 2])[["k", "nodes", "errors", "accuracy", "overall"]]
       k  nodes  errors  accuracy  overall
    0  1      2       1  0.500000     0.75
    1  2      3       1  0.666667     0.75
    """
    check_finder(finder)
    points = np.unique([as_count("ks", k) for k in ks]).astype(np.int64)
    if finder.truth is None:
        raise ValueError("finder must know true classes, got none: make it with truth= or data.y")
    chosen = () if favourable is None else finder.class_numbers("favourable", favourable).tolist()
    if truth_favourable is not None or finder.class_names is not None:
        finder = with_truth(finder, chosen, truth_favourable)
    assert finder.truth is not None
    index = finder.index
    members = finder.index.members()
    truth = finder.truth[members.ids]
    judged = np.flatnonzero((truth != UNKNOWN) & (members.labels != UNKNOWN))
    right = (truth == members.labels)[judged]

    pairs = global_evidence(
        index,
        int(points.max(initial=1)),
        exact=exact,
        per_node=per_node,
        nprobe=nprobe,
        recall=recall,
        memory=memory,
        progress=progress,
        **finder.conditions(),
    )
    nodes, first = np.unique(np.stack([pairs.source, pairs.target], axis=1), return_index=True)
    is_judged = np.isin(nodes, members.ids[judged])
    # For each judged node of the evidence: its position among the judged ones, and whether it
    # belongs to the top k.
    judged_places = np.searchsorted(members.ids[judged], nodes[is_judged])
    within = (first[is_judged] // 2)[:, None] < points
    count = within.sum(axis=0)

    def accuracy(order: Ints) -> Floats:
        return share(within.T.astype(np.float64) @ right[order][judged_places], count)

    vectors = index.reconstruct_batch(members.ids[judged])
    order = canonical_order(vectors, right)
    place = np.argsort(order)
    expected = expect_by_exchange(
        near_cells(vectors[order]), lambda drawn: accuracy(order[drawn][place]), confidence
    )
    hits = (within & right[judged_places, None]).sum(axis=0)
    low, high = wilson(hits, count, confidence)
    overall = share_columns("overall", right.sum(), len(right), confidence)
    return pd.DataFrame(
        {
            "k": points,
            "pairs": np.minimum(points, len(pairs)),
            "nodes": count,
            "errors": count - hits,
            "accuracy": share(hits, count),
            "low": low,
            "high": high,
            **dict(zip(_EXPECTED, expected, strict=True)),
            **{name: float(bound) for name, bound in overall.items()},
            "overall_nodes": len(right),
        }
    )


# --- exchange among near people, the null model of measures of neighbours -------------------------


def near_cells(vectors: NDArray[np.float32]) -> Ints:
    """Return the cell of each row, (n,): 5 to 10 rows that are near each other.

    Leaves of a k-d tree over the first principal components: every split halves the axis of the
    largest spread.
    """
    from sklearn.neighbors import KDTree
    from sklearn.utils.extmath import randomized_svd

    cells = np.zeros(len(vectors), np.int64)
    if len(vectors) < 2 * _SMALLEST_CELL:
        return cells
    centred = vectors - vectors.mean(axis=0)
    # the last bits, and so the cells, would depend on the number of threads
    with single_threaded_blas():
        axes = randomized_svd(centred, min(_AXES, *vectors.shape), random_state=_SEED)[2]
        projected = centred @ axes.T
    _, order, nodes, _ = KDTree(projected, leaf_size=_SMALLEST_CELL).get_arrays()
    for number, leaf in enumerate(nodes[nodes["is_leaf"] == 1]):
        cells[order[leaf["idx_start"] : leaf["idx_end"]]] = number
    return cells


def exchanges(cells: Ints) -> Iterator[Ints]:
    """Yield 200 random orders of the rows, random within each cell.

    The same orders in each call.
    """
    rng = np.random.default_rng(_SEED)
    by_cell = np.argsort(cells, kind="stable")
    for _ in range(_DRAWS):
        order = np.empty(len(cells), np.int64)
        order[by_cell] = np.lexsort((rng.random(len(cells)), cells))
        yield order


def expect_by_exchange(cells: Ints, measure: Callable[[Ints], Floats], confidence: float) -> Floats:
    """Return the mean of a measure over all exchanges, and the range of most of them, (3, m).

    Parameters
    ----------
    cells
        As :func:`near_cells` returns them, (n,).
    measure
        Called with an order of the rows, (n,); returns (m,) numbers.
    confidence
        In (0, 1).
    """
    measures = np.array([measure(order) for order in exchanges(cells)])
    low, high = np.quantile(measures, [(1 - confidence) / 2, (1 + confidence) / 2], axis=0)
    return np.array([measures.mean(axis=0), low, high])
