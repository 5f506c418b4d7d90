"""Individual fairness in one number: how often a node is closer to another class than to its own."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from cfe_faiss.audit.evidence import attributes_of, audited, search_members
from cfe_faiss.audit.groups import DEFAULT_BINS, Bins, Grouping, groupings
from cfe_faiss.audit.intervals import wilson
from cfe_faiss.checks import UNKNOWN
from cfe_faiss.extras import extra
from cfe_faiss.finder import EvidenceFinder
from cfe_faiss.index.kinds import EvidenceIndex
from cfe_faiss.index.parameters import EvidenceParameters
from cfe_faiss.lists.id_map import Members

if TYPE_CHECKING:
    import pandas as pd

_TIES_AT_FIRST = 16
_NEVER = 1e-9  # a probability that no figure here would show
_RESULTS_AT_ONCE = 1 << 24


def consistency(  # noqa: PLR0913
    finder: EvidenceFinder,
    *,
    nodes: Any = None,
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
    finder
        Its searched nodes are compared.
    nodes
        Ids of the nodes to judge, (n,), or a mask; by default all searched nodes. Repeated ones count once.
    columns, bins, intersections
        Groups of nodes, as in :func:`cfe_faiss.audit.discrimination_scores`. A finder without attributes, or an empty
        list of columns, gives the line of all nodes only.
    nprobe
        Lists that an ``IndexEvidenceIVF`` probes for each node, in both searches; by default its own ``nprobe``;
        partitions * nlist makes them exact. Exact indexes compare all vectors.
    confidence
        Of the interval, in (0, 1).
    progress
        Whether to show a progress bar on standard error.

    Returns
    -------
    DataFrame
        One line for all nodes (``feature`` "all"), then one per group:

        - ``feature``, ``value``: the attribute and its value or bin.
        - ``share``, ``low``, ``high``: the share and its Wilson interval; NaN where
          there are no nodes.
        - ``expected``: what the share would be if classes had nothing to do with likeness, see below. In small classes
          it is large by their size alone.
        - ``difference``: share - expected; below 0 like nodes are treated alike more than by chance.
        - ``nodes``, ``closer``: how many nodes were judged, and of how many the evidence is (strictly) closer.
        - ``tied``: how many of them have several nearest nodes, of equal similarity, as copies have.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Notes
    -----
    Let n nodes have a known class, n_c of them that of node v, and let t nodes be nearest to v, with equal similarity.
    Evidence is closer only if all t are of other classes. If classes were shuffled over the nodes, this would happen
    with probability C(n - n_c, t) / C(n - 1, t): none of t nodes, drawn without replacement from the n - 1 others, is
    one of v's class (hypergeometric distribution). ``expected`` is the mean of it over the nodes. Without ties t = 1,
    and it is the share of other classes among all other nodes. Where t nodes are tied, the probability falls like its
    t-th power: attributes of few values come out as consistent by that alone.

    A node without evidence or alone in its class cannot be judged and is left out. Nodes share neighbours, so they are
    not independent, as Wilson's interval takes them to be. For classes shuffled over the nodes it holds ``expected`` in
    84 to 92 % of the trials (nominal 95) where two classes are of one size and there are no ties, else mostly in 97 to
    100 %: ``benchmarks/coverage.py``.

    The nearest node of the same class comes from the same index, one search for each class among that class only, with
    the same arithmetic as evidence: equal similarities are equal in the last bit, and count as not closer. On an exact
    index the cost is that of an exact search of all evidence and, for each class, of n_c**2 * d multiplications. Nodes
    with ties are searched again, equal vectors of a class once, for four times as many neighbours each time, until t is
    known or the probability is below 1e-9.

    Examples
    --------
    >>> import cfe_faiss as cfe
    >>> X = [[1, 0], [0.9, 0.1], [0, 1], [0.1, 0.9], [0.2, 0.9]]
    >>> finder = cfe.EvidenceFinder.from_vectors(X, [0, 0, 1, 1, 0])
    >>> consistency(finder)[["feature", "share", "nodes", "closer"]]
      feature  share  nodes  closer
    0     all    0.4      5       2
    """
    with extra("audit"):
        import pandas as pd

    index = finder.index
    known, places = audited(finder, nodes)
    whole = Grouping("all", [""], np.zeros(len(known.ids), np.int64))
    groups = [whole]
    if finder.attributes is not None or columns or intersections:
        groups += groupings(attributes_of(finder), known.ids, columns, bins, intersections)
    name = "Searching" if progress else None
    D, I = search_members(index, None if nodes is None else known.ids[places], 2, nprobe, name)
    same = _nearest_of_same_class(index, known, places, nprobe)
    judged = (I[:, 0] >= 0) & ~np.isnan(same[:, 0])
    places, D, same = places[judged], D[judged], same[judged]
    closer = D[:, 0] > same[:, 0]
    nearest = np.maximum(D[:, 0], same[:, 0])
    several = (D[:, 0] == same[:, 0]) | (D[:, -1] == nearest) | (same[:, 1] == nearest)
    chance = _Chance(known.labels)
    ties = np.ones(len(places), np.int64)
    ties[several] = _count_ties(index, known, places[several], nearest[several], chance, nprobe)
    expected = chance.closer(ties, known.labels[places])
    frames = []
    for group in groups:
        own = group.codes[places]
        count, hits, by_chance, tied = (
            np.bincount(own, weights, len(group.values))
            for weights in (None, closer.astype(np.float64), expected, several.astype(np.float64))
        )
        low, high = wilson(hits, count, confidence)
        some = np.where(count > 0, count, np.nan)
        frames.append(
            pd.DataFrame(
                {
                    "feature": group.name,
                    "value": group.values,
                    "share": hits / some,
                    "low": low,
                    "high": high,
                    "expected": by_chance / some,
                    "difference": (hits - by_chance) / some,
                    "nodes": count,
                    "closer": hits.astype(np.int64),
                    "tied": tied.astype(np.int64),
                }
            )
        )
    return pd.concat(frames, ignore_index=True)


def _nearest_of_same_class(
    index: EvidenceIndex, known: Members, places: NDArray[np.int64], nprobe: int | None
) -> NDArray[np.float32]:
    """Return the two largest similarities of each node to others of its class, (n, 2); NaN where there is none."""
    nearest = np.full((len(places), 2), np.nan, np.float32)
    labels = known.labels[places]
    for label in np.unique(labels[labels != UNKNOWN]).tolist():
        rows = np.flatnonzero(labels == label)
        ids = known.ids[places[rows]]
        only = EvidenceParameters(labels=_absent(known), targets=[label], nprobe=nprobe)
        D, I = index.search(index.reconstruct_batch(ids), 3, params=only)
        # A node finds itself, too, unless three of its like come before it.
        others = (ids[:, None] != I) & (I >= 0)
        order = np.argsort(~others, axis=1, kind="stable")[:, :2]
        found = np.where(others, D, np.float32(np.nan))
        nearest[rows] = np.take_along_axis(found, order, axis=1)
    return nearest


def _absent(known: Members) -> int:
    """Return a class that no vector has: all others are evidence of it."""
    return int(known.labels.max(initial=0)) + 1


class _Chance:
    """How probable it is that no node of a tie set is of a node's own class, if classes are shuffled over the nodes."""

    def __init__(self, labels: NDArray[np.int32]) -> None:
        self.sizes = np.bincount(labels[labels != UNKNOWN])
        self.n = int(self.sizes.sum())

    def closer(self, ties: NDArray[np.int64], labels: NDArray[np.int32]) -> NDArray[np.float64]:
        """Return C(n - n_c, t) / C(n - 1, t) of nodes of these classes with t nearest nodes each."""
        others = (self.n - self.sizes[labels]).astype(np.float64)
        possible = ties <= others
        t = np.where(possible, ties, 0)
        log = gammaln(others + 1) - gammaln(others - t + 1) - gammaln(self.n) + gammaln(self.n - t)
        probability: NDArray[np.float64] = np.where(possible, np.exp(log), 0.0)
        return probability


def _count_ties(
    index: EvidenceIndex,
    known: Members,
    places: NDArray[np.int64],
    nearest: NDArray[np.float32],
    chance: _Chance,
    nprobe: int | None,
) -> NDArray[np.int64]:
    """Return how many other nodes are as similar to each node as the nearest one is; fewer where that is enough.

    Equal vectors of one class have equally many, so that one of them is searched.
    """
    ids, labels = known.ids[places], known.labels[places]
    X = index.reconstruct_batch(ids)
    keys = np.column_stack([X.view(np.int32), labels, nearest.view(np.int32)])
    _, first, of_each = np.unique(_as_one(keys), return_index=True, return_inverse=True)
    everything = EvidenceParameters(labels=_absent(known), nprobe=nprobe)
    ties = np.ones(len(first), np.int64)
    left, k = np.arange(len(first)), _TIES_AT_FIRST
    while len(left):
        unknown = []
        for rows in np.array_split(left, 1 + len(left) * k // _RESULTS_AT_ONCE):
            own = first[rows]
            D, I = index.search(X[own], k, params=everything)
            as_near = (nearest[own, None] <= D) & (I >= 0)
            ties[rows] = np.maximum((as_near & (ids[own, None] != I)).sum(axis=1), 1)
            decided = ~as_near[:, -1] | (chance.closer(ties[rows], labels[own]) < _NEVER)
            unknown.append(rows[~decided])
        left, k = np.concatenate(unknown), 4 * k
    return ties[of_each]


def _as_one(rows: NDArray[np.int32]) -> NDArray[np.void]:
    """Return each row as one value, which can be compared as a whole."""
    whole: NDArray[np.void] = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.shape[1] * 4)))[:, 0]
    return whole
