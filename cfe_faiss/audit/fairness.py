"""Individual fairness in one number: how often a node is closer to another class than to its own."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cfe_faiss.audit.evidence import audited, search_members
from cfe_faiss.audit.groups import DEFAULT_BINS, Bins, Grouping, groupings
from cfe_faiss.audit.intervals import wilson
from cfe_faiss.checks import UNKNOWN
from cfe_faiss.extras import extra
from cfe_faiss.index.kinds import EvidenceIndex
from cfe_faiss.index.parameters import EvidenceParameters
from cfe_faiss.lists.id_map import Members

if TYPE_CHECKING:
    import pandas as pd


def consistency(
    index: EvidenceIndex,
    nodes: ArrayLike | None = None,
    features: Any = None,
    *,
    columns: Sequence[str] | None = None,
    bins: Bins = DEFAULT_BINS,
    intersections: Sequence[Sequence[str]] = (),
    nprobe: int | None = None,
    confidence: float = 0.95,
    progress: bool = False,
) -> "pd.DataFrame":
    """Return the share of nodes whose nearest evidence is closer than their nearest node of the same class, per group.

    Individual fairness asks that like nodes be treated alike (Dwork, Hardt, Pitassi, Reingold & Zemel, ITCS 2012). The
    share counts the nodes that the model treats differently from the node most like them: 0 is consistent. It is one
    minus the consistency of Zemel, Wu, Swersky, Pitassi & Dwork (ICML 2013) with one neighbour, for predicted classes
    and with KS as the likeness.

    Parameters
    ----------
    index
        Evidence index of either kind; its labels are the predictions.
    nodes
        Ids of the nodes to judge, (n,); None for all of the index. Repeated ones count once.
    features, columns, bins, intersections
        What the groups are, as in :func:`cfe_faiss.audit.discrimination_scores`; without ``features`` only the line of
        all nodes is returned.
    nprobe
        Lists that an ``IndexEvidenceIVF`` looks into for each node, in both searches; by default its own ``nprobe``;
        partitions * nlist makes them exact. Exact indexes look at everything.
    confidence
        Of the interval, in (0, 1).
    progress
        Whether to show a progress bar on standard error.

    Returns
    -------
    DataFrame
        One line for all nodes (``feature`` "all"), then one per group:

        - ``feature``, ``value``: the attribute and its value or bin.
        - ``share``, ``low``, ``high``: the share and its Wilson interval, see :func:`cfe_faiss.audit.wilson`; NaN where
          there are no nodes.
        - ``expected``: what the share would be if classes had nothing to do with likeness: the mean over the nodes of
          the share of other classes among all other nodes. In small classes it is large by their size alone.
        - ``nodes``, ``closer``: how many nodes were judged, and of how many the evidence is (strictly) closer.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Notes
    -----
    A node without evidence or alone in its class cannot be judged and is left out. Nodes share neighbours, so they are
    not independent, and the interval is rather too narrow.

    The nearest node of the same class comes from the same index, one search for each class among that class only, with
    the same arithmetic as evidence: equal similarities are equal in the last bit, and count as not closer. On an exact
    index the cost is that of an exact search of all evidence and, for each class, of n_c**2 * d multiplications.

    Examples
    --------
    >>> import cfe_faiss as cfe
    >>> index = cfe.IndexEvidenceFlat(2)
    >>> X = np.array([[1, 0], [0.9, 0.1], [0, 1], [0.1, 0.9], [0.2, 0.9]], np.float32)
    >>> index.add_with_labels(X, [0, 0, 1, 1, 0])
    >>> consistency(index)[["feature", "share", "nodes", "closer"]]
      feature  share  nodes  closer
    0     all    0.4      5       2
    """
    with extra("gnn"):
        import pandas as pd

    known, places = audited(index, nodes)
    whole = Grouping("all", [""], np.zeros(len(known.ids), np.int64))
    groups = [whole]
    if features is not None:
        groups += groupings(features, known.ids, columns, bins, intersections)
    name = "Searching" if progress else None
    D, I = search_members(index, None if nodes is None else known.ids[places], 1, nprobe, name)
    same = _nearest_of_the_same_class(index, known, places, nprobe)
    judged = (I[:, 0] >= 0) & ~np.isnan(same)
    places, closer = places[judged], D[judged, 0] > same[judged]
    expected = _share_of_other_classes(known.labels)[places]
    frames = []
    for group in groups:
        own = group.codes[places]
        count, hits, by_chance = (
            np.bincount(own, weights, len(group.values)) for weights in (None, closer.astype(np.float64), expected)
        )
        low, high = wilson(hits, count, confidence)
        some = np.maximum(count, 1)
        frames.append(
            pd.DataFrame(
                {
                    "feature": group.name,
                    "value": group.values,
                    "share": np.where(count > 0, hits / some, np.nan),
                    "low": low,
                    "high": high,
                    "expected": np.where(count > 0, by_chance / some, np.nan),
                    "nodes": count,
                    "closer": hits.astype(np.int64),
                }
            )
        )
    return pd.concat(frames, ignore_index=True)


def _nearest_of_the_same_class(
    index: EvidenceIndex, known: Members, places: NDArray[np.int64], nprobe: int | None
) -> NDArray[np.float32]:
    """Return for each node its largest similarity to another node of its class; NaN where there is none."""
    nearest = np.full(len(places), np.nan, np.float32)
    labels = known.labels[places]
    # As evidence of a class that no vector has, where only the nodes' own class is wanted.
    absent = int(known.labels.max(initial=0)) + 1
    for label in np.unique(labels[labels != UNKNOWN]).tolist():
        rows = np.flatnonzero(labels == label)
        ids = known.ids[places[rows]]
        only = EvidenceParameters(labels=absent, targets=[label], nprobe=nprobe)
        D, I = index.search(index.reconstruct_batch(ids), 2, params=only)
        # A node finds itself, too; where two of its like come before it, both are as close as can be.
        column = np.where(I[:, 0] == ids, 1, 0)[:, None]
        found = np.take_along_axis(I, column, axis=1)[:, 0] >= 0
        nearest[rows[found]] = np.take_along_axis(D, column, axis=1)[found, 0]
    return nearest


def _share_of_other_classes(labels: NDArray[np.int32]) -> NDArray[np.float64]:
    """Return for each node the share, among all other nodes with a known class, of those in another class."""
    classes, codes = np.unique(labels, return_inverse=True)
    sizes = np.bincount(codes[labels != UNKNOWN], minlength=len(classes))
    total = int(sizes.sum())
    share: NDArray[np.float64] = (total - sizes[codes]) / max(total - 1, 1)
    return share
