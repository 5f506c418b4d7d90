"""Prediction errors among the nodes of the global evidence."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.audit.exchange import expected_if_exchanged, near_cells
from cfe_faiss.audit.intervals import wilson
from cfe_faiss.base.checks import UNKNOWN, as_count
from cfe_faiss.base.extras import extra
from cfe_faiss.finder import EvidenceFinder
from cfe_faiss.pairs import global_evidence

if TYPE_CHECKING:
    import pandas as pd


def error_rate_by_evidence(
    finder: EvidenceFinder,
    *,
    ks: Sequence[int] = (10, 20, 50, 100, 200, 500, 1000),
    exact: bool = True,
    per_node: bool = False,
    nprobe: int | None = None,
    confidence: float = 0.95,
    progress: bool = False,
) -> "pd.DataFrame":
    """Return the accuracy within the top-k global evidence, as a curve in k (paper, "Verifying Prediction Errors").

    Parameters
    ----------
    finder
        Knows the true classes; its searched nodes are compared.
    ks
        Points of the curve: numbers of pairs, each >= 1.
    exact, per_node, nprobe
        As in :func:`cfe_faiss.global_evidence`; ``per_node=True`` is the paper's Algorithm 3.
    confidence
        Of the band, in (0, 1).
    progress
        Whether to show a progress bar on standard error.

    Returns
    -------
    DataFrame
        One line per k, ascending:

        - ``k``, ``pairs``: pairs asked for, and pairs there are.
        - ``nodes``, ``errors``: distinct nodes of these pairs with a known true class, and how many of them are wrong.
        - ``accuracy``, ``low``, ``high``: share of right ones and its Wilson interval; NaN where there are no nodes.
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
      the same true class, at least one prediction is wrong by construction; so a low accuracy says that the model's
      border runs through like nodes, not that similarity makes it err. For a model that is always right it is 1.
    - Null hypothesis of ``expected``: within cells of 5 to 10 nodes that are near each other, errors do not depend on
      who is in a pair. 200 seeded random exchanges within the cells of a k-d tree give the mean and the range. Where
      the error rate does not change within a cell, the accuracy lies outside of the range in 2 to 6 % of 50 samples at
      95 % (``benchmarks/calibration_rates.py``).
    - The band takes nodes for independent, which the two of a pair are not: often one is right and the other wrong. In
      simulations (nominal 95 %) it holds the mean accuracy in 98 to 99.5 % of the trials if the true classes are drawn
      anew for the same predictions, and in 90 to 98.5 % if the model learns anew from other nodes, least often for many
      pairs (``benchmarks/coverage.py``). The points of the curve contain each other: read the band pointwise.

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
    with extra("audit"):
        import pandas as pd

    points = np.unique([as_count("ks", k) for k in ks]).astype(np.int64)
    if finder.truth is None:
        raise ValueError("finder must know true classes, got none: make it with truth= or data.y")
    index = finder.index
    known = index.members()
    truth = finder.truth[known.ids]
    judged = (truth != UNKNOWN) & (known.labels != UNKNOWN)
    right = truth == known.labels
    overall = float(right[judged].mean()) if judged.any() else np.nan

    most = int(points.max(initial=1))
    name = "Comparing" if progress else None
    pairs = global_evidence(index, most, exact=exact, per_node=per_node, nprobe=nprobe, progress=name)
    nodes, first = np.unique(np.stack([pairs.source, pairs.target], axis=1), return_index=True)
    places = np.searchsorted(known.ids, nodes)
    places, pair = places[judged[places]], first[judged[places]] // 2
    within = pair[:, None] < points
    count = within.sum(axis=0)
    known_truth = np.flatnonzero(judged)
    own = np.searchsorted(known_truth, places)

    def accuracy(order: NDArray[np.int64]) -> NDArray[np.float64]:
        hits = within.T.astype(np.float64) @ right[known_truth][order][own]
        shares: NDArray[np.float64] = np.divide(hits, count, out=np.full(len(points), np.nan), where=count > 0)
        return shares

    cells = near_cells(index.reconstruct_batch(known.ids[known_truth]))
    expected = expected_if_exchanged(cells, accuracy, confidence)
    hits = (within & right[places, None]).sum(axis=0)
    low, high = wilson(hits, count, confidence)
    overall_low, overall_high = wilson([right[judged].sum()], [judged.sum()], confidence)
    return pd.DataFrame(
        {
            "k": points,
            "pairs": np.minimum(points, len(pairs)),
            "nodes": count,
            "errors": count - hits,
            "accuracy": accuracy(np.arange(len(known_truth))),
            "low": low,
            "high": high,
            **dict(zip(("expected", "expected_low", "expected_high"), expected, strict=True)),
            "overall": overall,
            "overall_low": overall_low[0],
            "overall_high": overall_high[0],
            "overall_nodes": int(judged.sum()),
        }
    )
