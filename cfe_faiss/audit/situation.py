"""Situation testing: a node beside its nearest nodes of the protected group and of the rest."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cfe_faiss.attributes import Attribute, as_attributes
from cfe_faiss.audit.intervals import benjamini_hochberg, newcombe, wilson
from cfe_faiss.checks import as_count, as_ids, as_labels, as_number
from cfe_faiss.extras import extra
from cfe_faiss.finder import EvidenceFinder
from cfe_faiss.index.flat import IndexEvidenceFlat
from cfe_faiss.index.parameters import EvidenceParameters

if TYPE_CHECKING:
    import pandas as pd

_REST, _PROTECTED, _NEITHER = 0, 1, 2
_GROUPS = ("rest", "protected")

_LIMITS = (
    "Neighbours are nodes with similar vectors. What the vectors do not hold cannot make them alike. Where they hold "
    "the attribute itself or what stands for it, the neighbours of the other group are further away: compare the mean "
    "similarities, and make the vectors without it.",
    "The classes are those that the model predicts, and in a graph those of neighbours are not independent draws: "
    "intervals and p values of single nodes take them as such.",
    "Neighbourhoods overlap, so that nodes are flagged together: the interval of the share takes them as independent "
    "and is too narrow, and Benjamini and Hochberg's procedure allows for positive dependence only.",
    "Few neighbours settle little: a share of the nodes is flagged by chance alone, which is what `expected` says.",
    "A node that is not flagged is not shown to be treated fairly.",
)


@dataclass(frozen=True, slots=True, repr=False)
class SituationTest:
    """Nodes beside their like of both groups; made by :func:`situation_test`.

    Attributes
    ----------
    attribute, protected, unfavourable
        The attribute, its values that make the protected group, and the classes that count as unfavourable.
    k, threshold, fdr, confidence
        As given.
    unknown
        How many searched nodes have no value of the attribute: they are neither judged nor neighbours.
    table
        One line per judged node:

        - ``node``, ``group`` ("protected" or "rest"), ``label``: its predicted class.
        - ``n_protected``, ``unfavourable_protected``, ``n_rest``, ``unfavourable_rest``: its nearest nodes of either
          group, and how many of them are classified unfavourably.
        - ``difference``, ``low``, ``high``: their share among the protected minus that among the rest, and Newcombe's
          interval; NaN where a group has no other node.
        - ``p``, ``q``: of Fisher's exact test, two-sided, and adjusted by Benjamini and Hochberg over the lines.
        - ``similarity_protected``, ``similarity_rest``: mean KS of these nodes.
        - ``tied``: whether more nodes are as similar as the last of them in either group; those of smaller number were
          taken.
        - ``flagged``: classified unfavourably, and the share in its own group is larger by the threshold at least.
    summary
        One line for each group that was judged: ``group``, ``nodes``, ``unfavourable`` (classified so, with a defined
        difference), ``flagged``, ``share`` (flagged among unfavourable), ``low``, ``high`` (Wilson's interval),
        ``expected`` (the share if in each neighbourhood the classes had nothing to do with the groups),
        ``significant`` (nodes with q <= fdr to the disadvantage of their own group), ``mean_difference``,
        ``similarity_protected``, ``similarity_rest``.
    limits
        What the numbers cannot say.
    """

    attribute: str
    protected: tuple[Any, ...]
    unfavourable: tuple[int, ...]
    k: int
    threshold: float
    fdr: float
    confidence: float
    unknown: int
    table: "pd.DataFrame"
    summary: "pd.DataFrame"
    limits: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.table)

    def __repr__(self) -> str:
        flagged = int(self.summary["flagged"].sum())
        return f"SituationTest({self.attribute}, k={self.k}: {flagged:,} of {len(self):,} nodes flagged)"


def situation_test(  # noqa: PLR0913
    finder: EvidenceFinder,
    attribute: str,
    k: int = 10,
    *,
    protected: Any,
    unfavourable: int | Sequence[int],
    nodes: str | ArrayLike = "protected",
    threshold: float = 0.1,
    fdr: float = 0.05,
    confidence: float = 0.95,
    features: Any = None,
    progress: bool = False,
) -> SituationTest:
    """Compare for each node its k nearest nodes of the protected group with its k nearest of the rest.

    Luong, Ruggieri & Turini, "k-NN as an implementation of situation testing for discrimination discovery and
    prevention", KDD 2011: a node that is classified unfavourably is flagged where the share of such nodes among its
    nearest of its own group exceeds that among its nearest of the other group by a threshold.

    Parameters
    ----------
    finder
        Its searched nodes are judged, and are the neighbours; by KS, found exactly.
    attribute
        Name of the attribute.
    k
        Neighbours in each group, >= 1; fewer where a group has fewer. The node itself is left out.
    protected
        The value of the attribute that makes the protected group, or several; everyone else with a value is the rest.
    unfavourable
        The class that counts as unfavourable, or several.
    nodes
        "protected", "all", or ids of the nodes to judge.
    threshold
        Smallest difference of shares that flags a node, in [0, 1].
    fdr
        False discovery rate of ``significant``, in [0, 1].
    confidence
        Of the intervals, in (0, 1).
    features
        Where the finder knows no attributes: anything that :func:`cfe_faiss.attributes.as_attributes` takes.
    progress
        Whether to show a progress bar on standard error.

    Returns
    -------
    SituationTest
        With a table of the nodes and a summary.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Notes
    -----
    Differences: :func:`cfe_faiss.audit.newcombe`. The test is Fisher's exact one, as the counts are small;
    ``expected`` comes from the same hypergeometric distribution. Two exact searches of all judged nodes:
    O(nodes * n * d).

    Examples
    --------
    >>> import cfe_faiss as cfe
    >>> X = np.array([[1, 0], [1, 0.1], [1, 0.2], [1, 0.3]], np.float32)
    >>> index = cfe.IndexEvidenceFlat(2)
    >>> index.add_with_labels(X, [0, 0, 1, 1])
    >>> finder = cfe.EvidenceFinder(X, np.array([0, 0, 1, 1], np.int32), index)
    >>> test = situation_test(finder, "sex", 1, protected="f", unfavourable=0, features={"sex": list("ffmm")})
    >>> test.table[["node", "unfavourable_protected", "unfavourable_rest", "difference", "flagged"]]
       node  unfavourable_protected  unfavourable_rest  difference  flagged
    0     0                       1                  0         1.0     True
    1     1                       1                  0         1.0     True
    """
    k = as_count("k", k)
    threshold, fdr = as_number("threshold", threshold, 0, 1), as_number("fdr", fdr, 0, 1)
    ids = finder.index.members().ids
    described = finder.attributes if features is None else as_attributes(features)
    if described is None:
        raise ValueError("features must be given where the finder knows no attributes, got None")
    own = described.select([described.known("attribute", attribute)]).take(ids)[str(attribute)]
    values = _values(own, protected)
    group = np.where(own.missing, _NEITHER, np.isin(own.codes, values)).astype(np.int32)
    for code, name in enumerate(_GROUPS):
        if not (group == code).any():
            raise ValueError(
                f"attribute must put a searched node in each group, got none in the {name} of {attribute!r}"
            )
    judged = _judged(nodes, ids, group)
    bad = _unfavourable(unfavourable, finder.labels)
    compared = group != _NEITHER
    index = IndexEvidenceFlat(finder.vectors.shape[1])
    index.add_with_labels(finder.vectors[ids[compared]], group[compared], ids=ids[compared])
    found = [_nearest(index, finder.vectors, ids[judged], code, k, progress) for code in (_REST, _PROTECTED)]
    table = _table(finder.labels, ids[judged], group[judged], found, bad, threshold, confidence)
    summary = _summary(table, bad, threshold, fdr, confidence)
    names = tuple(own.values[code] for code in values)
    unknown = int((~compared).sum())
    return SituationTest(
        own.name, names, tuple(bad.tolist()), k, threshold, fdr, confidence, unknown, table, summary, _LIMITS
    )


@dataclass(frozen=True, slots=True)
class _Nearest:
    """The nearest nodes of one group: ids, (nq, k), -1 where there are no more, and their similarities."""

    ids: NDArray[np.int64]
    similarity: NDArray[np.float32]
    tied: NDArray[np.bool_]


def _nearest(
    index: IndexEvidenceFlat, vectors: NDArray[np.float32], nodes: NDArray[np.int64], code: int, k: int, progress: bool
) -> _Nearest:
    only = EvidenceParameters(labels=_NEITHER, targets=[code])
    D, I = index.search(vectors[nodes], k + 2, params=only)
    # A node finds itself in its own group: it goes to the end. One more than k tells whether the last place is shared.
    order = np.argsort(nodes[:, None] == I, axis=1, kind="stable")[:, : k + 1]
    D, I = np.take_along_axis(D, order, axis=1), np.take_along_axis(I, order, axis=1)
    I = np.where(nodes[:, None] == I, -1, I)
    tied = (I[:, k] >= 0) & (D[:, k] == D[:, k - 1])
    return _Nearest(I[:, :k], D[:, :k], tied)


def _table(
    labels: NDArray[np.int32],
    nodes: NDArray[np.int64],
    group: NDArray[np.int32],
    found: list[_Nearest],
    bad: NDArray[np.int32],
    threshold: float,
    confidence: float,
) -> "pd.DataFrame":
    with extra("audit"):
        import pandas as pd

    is_bad = np.isin(labels, bad)
    n = [(near.ids >= 0).sum(axis=1) for near in found]
    x = [(is_bad[near.ids] & (near.ids >= 0)).sum(axis=1) for near in found]
    similarity = [
        np.divide(
            np.where(near.ids >= 0, near.similarity, 0).sum(axis=1, dtype=np.float64),
            count,
            out=np.full(len(nodes), np.nan),
            where=count > 0,
        )
        for near, count in zip(found, n, strict=True)
    ]
    some = (n[_PROTECTED] > 0) & (n[_REST] > 0)
    share = [np.divide(a, m, out=np.full(len(nodes), np.nan), where=m > 0) for a, m in zip(x, n, strict=True)]
    low, high = newcombe(x[_PROTECTED], n[_PROTECTED], x[_REST], n[_REST], confidence)
    counts = np.stack([x[_PROTECTED], n[_PROTECTED], x[_REST], n[_REST]], axis=1)
    tables, which = np.unique(counts, axis=0, return_inverse=True)
    p = np.array([_fisher(*row) for row in tables.tolist()])[which.reshape(-1)] if len(nodes) else np.empty(0)
    p = np.where(some, p, np.nan)
    difference = share[_PROTECTED] - share[_REST]
    against_own = np.where(group == _PROTECTED, difference, -difference)
    return pd.DataFrame(
        {
            "node": nodes,
            "group": np.array(_GROUPS)[group],
            "label": labels[nodes],
            "n_protected": n[_PROTECTED],
            "unfavourable_protected": x[_PROTECTED],
            "n_rest": n[_REST],
            "unfavourable_rest": x[_REST],
            "difference": difference,
            "low": low,
            "high": high,
            "p": p,
            "q": benjamini_hochberg(p),
            "similarity_protected": similarity[_PROTECTED],
            "similarity_rest": similarity[_REST],
            "tied": found[0].tied | found[1].tied,
            "flagged": is_bad[nodes] & (against_own >= threshold - _ROUNDING),
        }
    )


_ROUNDING = 1e-12
"""Differences of shares that are equal to the threshold but for rounding count as equal."""


def _summary(
    table: "pd.DataFrame", bad: NDArray[np.int32], threshold: float, fdr: float, confidence: float
) -> "pd.DataFrame":
    with extra("audit"):
        import pandas as pd

    lines = []
    for code in (_PROTECTED, _REST):
        own = table[table["group"] == _GROUPS[code]]
        if not len(own):
            continue
        sign = 1 if code == _PROTECTED else -1
        poor = own[np.isin(own["label"], bad) & own["difference"].notna()]
        low, high = wilson([poor["flagged"].sum()], [len(poor)], confidence)
        lines.append(
            {
                "group": _GROUPS[code],
                "nodes": len(own),
                "unfavourable": len(poor),
                "flagged": int(poor["flagged"].sum()),
                "share": poor["flagged"].mean() if len(poor) else np.nan,
                "low": low[0],
                "high": high[0],
                "expected": _expected(poor, sign, threshold),
                "significant": int(((own["q"] <= fdr) & (sign * own["difference"] > 0)).sum()),
                "mean_difference": own["difference"].mean(),
                "similarity_protected": own["similarity_protected"].mean(),
                "similarity_rest": own["similarity_rest"].mean(),
            }
        )
    return pd.DataFrame(lines)


def _expected(table: "pd.DataFrame", sign: int, threshold: float) -> float:
    """Return the share of the nodes that would be flagged if classes were dealt to both groups alike."""
    # Loaded here, because it takes a third of a second, which every command would wait for.
    from scipy.stats import hypergeom

    if not len(table):
        return np.nan
    names = ["n_protected", "n_rest"] if sign > 0 else ["n_rest", "n_protected"]
    bad = table["unfavourable_protected"] + table["unfavourable_rest"]
    counts = np.stack([table[names[0]], table[names[1]], bad], axis=1)
    cases, number = np.unique(counts, axis=0, return_counts=True)
    chances = []
    for own, other, total in cases.tolist():
        x = np.arange(max(0, total - other), min(own, total) + 1)
        reached = x / own - (total - x) / other >= threshold - _ROUNDING
        chances.append(hypergeom.pmf(x[reached], own + other, total, own).sum())
    return float(np.average(chances, weights=number))


def _fisher(x1: int, n1: int, x0: int, n0: int) -> float:
    from scipy.stats import fisher_exact

    return float(fisher_exact(np.array([[x1, n1 - x1], [x0, n0 - x0]]))[1])


def _values(attribute: Attribute, protected: Any) -> NDArray[np.int64]:
    """Return the positions among the attribute's values of those that are protected."""
    several = isinstance(protected, list | tuple | set | frozenset | np.ndarray)
    wanted = list(protected) if several else [protected]
    known = list(attribute.values)
    for value in wanted:
        if value not in known:
            some = ", ".join(map(str, known[:20]))
            raise ValueError(f"protected must be among the values of {attribute.name!r} ({some}), got {value!r}")
    if not wanted:
        raise ValueError("protected must hold one value at least, got none")
    return np.unique([known.index(value) for value in wanted]).astype(np.int64)


def _judged(nodes: str | ArrayLike, ids: NDArray[np.int64], group: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return the places among the searched nodes of those to judge: they have a value of the attribute."""
    if isinstance(nodes, str):
        if nodes not in ("protected", "all"):
            raise ValueError(f"nodes must be 'protected', 'all' or ids, got {nodes!r}")
        return np.flatnonzero(group == _PROTECTED if nodes == "protected" else group != _NEITHER)
    wanted = np.unique(as_ids("nodes", nodes))
    places = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
    absent = ids[places] != wanted
    if absent.any():
        raise ValueError(f"nodes must be among the searched nodes, got {wanted[absent][0]}")
    nameless = group[places] == _NEITHER
    if nameless.any():
        raise ValueError(f"nodes must have a value of the attribute, got {wanted[nameless][0]}, which has none")
    return places


def _unfavourable(unfavourable: int | Sequence[int], labels: NDArray[np.int32]) -> NDArray[np.int32]:
    given = np.unique(np.asarray(unfavourable).reshape(-1))
    bad = np.unique(as_labels("unfavourable", given, len(given)))
    if not len(bad) or not np.isin(bad, labels).all():
        some = ", ".join(map(str, np.unique(labels)[:20]))
        raise ValueError(f"unfavourable must be among the predicted classes ({some}), got {unfavourable!r}")
    return bad
