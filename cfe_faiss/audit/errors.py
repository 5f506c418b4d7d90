"""Prediction errors among the nodes of the global evidence."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from cfe_faiss.audit.intervals import expect_by_exchange, near_cells, share_columns, wilson
from cfe_faiss.audit.tables import Floats, Frame, Ints, data_frame, share
from cfe_faiss.base.checks import UNKNOWN, as_count
from cfe_faiss.finder import EvidenceFinder
from cfe_faiss.pairs import global_evidence


def error_rate_by_evidence(  # noqa: PLR0913
    finder: EvidenceFinder,
    *,
    ks: Sequence[int] = (10, 20, 50, 100, 200, 500, 1000),
    exact: bool | None = None,
    per_node: bool = False,
    nprobe: int | None = None,
    recall: float | None = None,
    memory: int | None = None,
    confidence: float = 0.95,
    progress: bool = False,
) -> Frame:
    """Return the accuracy within the top-k global evidence, as a curve in k (paper, "Verifying Prediction Errors").

    Parameters
    ----------
    finder
        Knows the true classes; its searched nodes are compared.
    ks
        Points of the curve: numbers of pairs, each >= 1.
    exact, per_node, nprobe, recall, memory
        As in :func:`cfe_faiss.global_evidence`; ``per_node=True`` is the paper's Algorithm 3.
    confidence
        Of the band, in (0, 1).
    progress
        Whether to show a progress bar on standard error.

    Returns
    -------
    DataFrame
        One line per k, ascending:

        - ``k``, ``pairs``: numbers of pairs requested and found.
        - ``nodes``, ``errors``: distinct nodes of these pairs with a known true class, and how many of them are wrong.
        - ``accuracy``, ``low``, ``high``: share of right ones and its Wilson interval; NaN without nodes.
        - ``expected``, ``expected_low``, ``expected_high``: mean accuracy of these nodes if errors are exchanged among
          near neighbours, and the range that holds ``confidence`` of such exchanges.
        - ``overall``, ``overall_low``, ``overall_high``, ``overall_nodes``: accuracy over all nodes of the index with a
          known true class, its Wilson interval, and their number.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Notes
    -----
    - Selection: the pairs are chosen for being close *and* predicted differently. Where the two nodes of a pair have
      the same true class, at least one prediction is wrong by construction. A low accuracy says that the model's
      border runs through similar nodes, not that similarity makes it err. For a model that is always right it is 1.
    - Null hypothesis of ``expected``: within cells of 5 to 10 nodes that are near each other, being in a pair does not
      change the error rate. 200 seeded random exchanges within the cells of a k-d tree give the mean and the range.
      Where the error rate does not change within a cell, the accuracy is outside of the range in 2 to 6 % of 50 samples
      at 95 % (``benchmarks/calibration_rates.py``).
    - The band treats nodes as independent, but the two nodes of a pair are not: often one is right and the other
      wrong. In simulations (nominal 95 %) it holds the mean accuracy in 98 to 99.5 % of the trials if the true classes
      are drawn again for the same predictions, and in 90 to 98.5 % if the model is trained on other nodes, least often
      for many pairs (``benchmarks/coverage.py``). The points of the curve are nested: read the band pointwise.

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
    points = np.unique([as_count("ks", k) for k in ks]).astype(np.int64)
    if finder.truth is None:
        raise ValueError("finder must know true classes, got none: make it with truth= or data.y")
    index, members = finder.index, finder.index.members()
    truth = finder.truth[members.ids]
    judged = np.flatnonzero((truth != UNKNOWN) & (members.labels != UNKNOWN))
    right = (truth == members.labels)[judged]

    most = int(points.max(initial=1))
    effort: dict[str, Any] = {"exact": exact, "nprobe": nprobe, "recall": recall, "memory": memory}
    pairs = global_evidence(index, most, per_node=per_node, progress=progress, **effort)
    nodes, first = np.unique(np.stack([pairs.source, pairs.target], axis=1), return_index=True)
    known = np.isin(nodes, members.ids[judged])
    # For each judged node of the evidence: its position among the judged ones, and whether it belongs to the top k.
    own = np.searchsorted(members.ids[judged], nodes[known])
    within = (first[known] // 2)[:, None] < points
    count = within.sum(axis=0)

    def accuracy(order: Ints) -> Floats:
        return share(within.T.astype(np.float64) @ right[order][own], count)

    cells = near_cells(index.reconstruct_batch(members.ids[judged]))
    expected = expect_by_exchange(cells, accuracy, confidence)
    hits = (within & right[own, None]).sum(axis=0)
    low, high = wilson(hits, count, confidence)
    columns = {"k": points, "pairs": np.minimum(points, len(pairs)), "nodes": count, "errors": count - hits}
    columns |= {"accuracy": share(hits, count), "low": low, "high": high}
    columns |= dict(zip(("expected", "expected_low", "expected_high"), expected, strict=True))
    overall = share_columns("overall", right.sum(), len(right), confidence)
    columns |= {name: float(bound) for name, bound in overall.items()} | {"overall_nodes": len(right)}
    return data_frame(columns)
