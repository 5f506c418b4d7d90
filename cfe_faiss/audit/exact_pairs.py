"""Pairs of nodes that agree in everything but some attributes, and that the model classifies differently."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.attributes.table import Attributes
from cfe_faiss.audit.evidence import attributes_of
from cfe_faiss.audit.intervals import clustered_wilson
from cfe_faiss.base.checks import as_count
from cfe_faiss.base.extras import extra
from cfe_faiss.finder import EvidenceFinder
from cfe_faiss.finder.frames import table_html

if TYPE_CHECKING:
    import pandas as pd

_Ids: TypeAlias = NDArray[np.int64]

_MOST_KEYS = 2**62
_BLOCK = 2**20
"""Pairs made at a time."""

_LIMITS = (
    "A pair that differs in these attributes only and is classified differently may still owe it to its neighbours in "
    "the graph: compare the share with that of the pairs that agree in all attributes.",
    "Only attributes that were given are compared. Numbers agree when they are equal, in every digit.",
    "No such pair among the nodes does not show that the attributes have no effect: there may be few nodes that agree "
    "in all others. The number of pairs says how many there are.",
    "The interval treats the sets of nodes that agree as independent, and nodes of one set as not. It holds its level "
    "for many sets; where a few large ones hold most pairs it is too narrow (82 % instead of 95 % in simulations).",
)


@dataclass(frozen=True, slots=True, repr=False)
class OnlyInPairs:
    """The most similar pairs of :class:`OnlyIn`.

    Attributes
    ----------
    source, target
        Row numbers of each pair, (k,) int64, ``source < target``.
    similarity
        Their KS, (k,) float64, descending.
    total
        How many pairs there are in all: these are the first ``len(self)`` of them.
    table
        One line per pair: ``source`` and ``target`` (the user's ids, where the finder has some), ``similarity``,
        ``source_label``, ``target_label``, and for each of the attributes "source <name>" and "target <name>".
    """

    source: _Ids
    target: _Ids
    similarity: NDArray[np.float64]
    total: int
    table: "pd.DataFrame"

    def __len__(self) -> int:
        return len(self.source)

    def __repr__(self) -> str:
        return f"OnlyInPairs({len(self):,} of {self.total:,} pairs)"

    def to_frame(self) -> "pd.DataFrame":
        """Return the table."""
        return self.table


@dataclass(frozen=True, slots=True, repr=False)
class OnlyIn:
    """Pairs of nodes that differ only in some attributes; made by :func:`only_in`.

    Attributes
    ----------
    names
        The attributes in which the nodes of a pair may differ, and do in one at least.
    nodes, unknown
        How many nodes were compared, and how many were left out because an attribute of theirs is missing.
    pairs, different
        How many pairs there are, and how many of them are classified differently.
    share, low, high
        Different pairs among all pairs, and its interval at ``confidence``; NaN without pairs.
    baseline
        The share among the pairs that agree in all attributes, the null of ``share``: the attributes cannot have made
        the difference there.
    table
        Line 0 for these pairs, line 1 for the pairs that agree in all attributes, whose share is what to compare with:

        - ``agreement``: "all but <names>" and "all".
        - ``groups``, ``nodes``: sets of nodes that agree so and hold a pair, and the nodes in them.
        - ``pairs``, ``different``, ``share``, ``low``, ``high``: as above.
    limits
        What the numbers cannot say.
    """

    names: tuple[str, ...]
    confidence: float
    nodes: int
    unknown: int
    table: "pd.DataFrame"
    limits: tuple[str, ...]
    _found: "_Found"

    @property
    def pairs(self) -> int:
        """Pairs that differ in these attributes only."""
        return int(self.table["pairs"].iloc[0])

    @property
    def different(self) -> int:
        """Those that are classified differently."""
        return int(self.table["different"].iloc[0])

    @property
    def share(self) -> float:
        """Different pairs among the pairs."""
        return float(self.table["share"].iloc[0])

    @property
    def low(self) -> float:
        """Lower bound of the share."""
        return float(self.table["low"].iloc[0])

    @property
    def high(self) -> float:
        """Upper bound of the share."""
        return float(self.table["high"].iloc[0])

    @property
    def baseline(self) -> float:
        """Different pairs among the pairs that agree in all attributes; NaN without such pairs."""
        return float(self.table["share"].iloc[1])

    _repr_html_ = table_html

    def __repr__(self) -> str:
        names = ", ".join(self.names)
        alike, same = self.table[["different", "pairs"]].iloc[1]
        return (
            f"OnlyIn({names}: {self.different:,} of {self.pairs:,} pairs classified differently; {alike:,} of {same:,} "
            f"pairs that agree in all)"
        )

    def blocks(self) -> Iterator[tuple[_Ids, _Ids]]:
        """Yield all pairs that are classified differently, each once, in blocks.

        Yields
        ------
        source, target
            Nodes, (m,) int64, ``source < target``, m about a million at most, or the size of the largest group.
        """
        return self._found.blocks(_BLOCK)

    def most_similar(self, limit: int = 100) -> OnlyInPairs:
        """Return the most similar pairs that are classified differently, at most ``limit`` of them.

        The similarity is KS, from the finder's vectors in float64; equal ones are in the order of their nodes. Time
        grows with ``different``, memory with ``limit``.

        Raises
        ------
        TypeError, ValueError
            If ``limit`` is not an integer >= 1.
        """
        limit = as_count("limit", limit)
        source, target, similarity = self._found.best(limit)
        return OnlyInPairs(source, target, similarity, self.different, self._table_of(source, target, similarity))

    def _table_of(self, source: _Ids, target: _Ids, similarity: NDArray[np.float64]) -> "pd.DataFrame":
        with extra("audit"):
            import pandas as pd

        found = self._found
        names = found.finder.names
        columns: dict[str, Any] = {"source": names(source), "target": names(target), "similarity": similarity}
        ends = {"source": found.attributes.rows(source), "target": found.attributes.rows(target)}
        for end, rows in ends.items():
            columns[f"{end}_label"] = found.labels[rows]
        for name in self.names:
            values = np.array([*found.attributes[name].values, None], dtype=object)
            for end, rows in ends.items():
                columns[f"{end} {name}"] = values[found.attributes[name].codes[rows]]
        return pd.DataFrame(columns)


@dataclass(frozen=True, slots=True)
class _Found:
    """What the pairs are made from: nodes in the order of their group and class."""

    ids: _Ids
    changing: _Ids
    """Values of the attributes that may differ, one number for each combination."""
    end_of_class: _Ids
    end_of_group: _Ids
    attributes: Attributes
    labels: NDArray[np.int32]
    finder: EvidenceFinder

    def blocks(self, size: int) -> Iterator[tuple[_Ids, _Ids]]:
        # The partners of a node are the nodes of its group in later classes: they stand in one range.
        partners = self.end_of_group - self.end_of_class
        ends = np.cumsum(partners)
        begin = 0
        while begin < len(ends):
            done = ends[begin] - partners[begin]
            end = max(int(np.searchsorted(ends, done + size, side="right")), begin + 1)
            count = partners[begin:end]
            first = np.repeat(np.arange(begin, end), count)
            second = np.arange(len(first)) + np.repeat(
                self.end_of_class[begin:end] - (ends[begin:end] - count - done), count
            )
            differ = self.changing[first] != self.changing[second]
            v, u = self.ids[first[differ]], self.ids[second[differ]]
            if len(v):
                yield np.minimum(v, u), np.maximum(v, u)
            begin = end

    def best(self, limit: int) -> tuple[_Ids, _Ids, NDArray[np.float64]]:
        best = (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))
        for source, target in self.blocks(max(_BLOCK // self.finder.vectors.shape[1], 1)):
            similarity = self.finder.similarity64(source, target)
            if len(best[0]) == limit:
                kept = similarity >= best[2][-1]
                source, target, similarity = source[kept], target[kept], similarity[kept]
            source, target, similarity = (
                np.concatenate(two) for two in zip(best, (source, target, similarity), strict=True)
            )
            order = np.lexsort((target, source, -similarity))[:limit]
            best = source[order], target[order], similarity[order]
        return best


def only_in(finder: EvidenceFinder, names: Sequence[str], *, confidence: float = 0.95) -> OnlyIn:
    """Return all pairs of nodes that differ in these attributes only, and how many of them are classified differently.

    The plainest question of a discrimination audit (direct discrimination: like in everything but the protected
    attribute), answered for all pairs at once, exactly, by grouping.

    Parameters
    ----------
    finder
        Knows attributes; its searched nodes are compared.
    names
        Attributes in which the two nodes may differ; they differ in one of them at least, and in no other attribute.
    confidence
        Of the intervals, in (0, 1).

    Returns
    -------
    OnlyIn
        The counts, also of the pairs that agree in all attributes; the pairs by :meth:`OnlyIn.blocks` and
        :meth:`OnlyIn.most_similar`.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Notes
    -----
    Nodes with a missing value in any attribute can neither agree nor differ: they are left out and counted in
    ``unknown``.

    Numbers are compared as they are. An attribute that no two nodes share (a name, an exact income) leaves no pairs;
    round it, or leave it out of the attributes.

    The interval is Wilson's for clustered cases, over the sets of nodes that agree: pairs of one set share nodes and
    are not independent, pairs of different sets share none.

    Time O(n log n) for each attribute, memory O(n) and the attributes' codes: the number of pairs does not matter.

    Examples
    --------
    >>> people = {"sex": ["f", "m", "f", "m"], "job": ["cook", "cook", "smith", "smith"]}
    >>> finder = EvidenceFinder.from_vectors([[1, 0], [1, 0.1], [0, 1], [0, 1]], [0, 1, 1, 1], features=people)
    >>> found = only_in(finder, ["sex"])
    >>> found
    OnlyIn(sex: 1 of 2 pairs classified differently; 0 of 0 pairs that agree in all)
    >>> found.most_similar().table.drop(columns="similarity")
       source  target  source_label  target_label source sex target sex
    0       0       1             0             1          f          m
    """
    attributes, labels = _compared(finder)
    if isinstance(names, str):
        raise TypeError(f"names must be a sequence of names, got {names!r}")
    changing = list(dict.fromkeys(attributes.known("names", name) for name in names))
    if not changing:
        raise ValueError("names must hold one attribute at least, got none")
    missing = np.zeros(len(labels), bool)
    for attribute in attributes.values():
        missing |= attribute.missing
    rows = np.flatnonzero(~missing)
    rest = _combined((attributes[name].codes[rows] for name in attributes if name not in changing), len(rows))
    change = _combined((attributes[name].codes[rows] for name in changing), len(rows))
    label = labels[rows].astype(np.int64)
    groups = _Groups(rest, change, label)
    table = _table(groups, " and ".join(changing), confidence)
    found = _found(groups, attributes, labels, finder, rows)
    return OnlyIn(tuple(changing), confidence, len(rows), len(labels) - len(rows), table, _LIMITS, found)


class _Groups:
    """Counts of pairs in each set of nodes that agree in the rest, and of nodes that agree in everything."""

    def __init__(self, rest: _Ids, change: _Ids, label: _Ids) -> None:
        self.rest, self.change, self.label = rest, change, label
        whole = _combined((rest, change), len(rest))
        self.sizes = np.bincount(rest)
        self.whole_sizes = np.bincount(whole)
        group_of_whole = np.zeros(len(self.whole_sizes), np.int64)
        group_of_whole[whole] = rest
        same_class = self._pairs_of((rest, label), rest, len(self.sizes))
        whole_same_class = self._pairs_of((whole, label), whole, len(self.whole_sizes))
        self.whole_pairs = _choose(self.whole_sizes)
        self.whole_different = self.whole_pairs - whole_same_class
        equal = np.zeros(len(self.sizes), np.int64)
        np.add.at(equal, group_of_whole, self.whole_pairs)
        equal_different = np.zeros(len(self.sizes), np.int64)
        np.add.at(equal_different, group_of_whole, self.whole_different)
        self.pairs = _choose(self.sizes) - equal
        self.different = _choose(self.sizes) - same_class - equal_different

    @staticmethod
    def _pairs_of(keys: tuple[_Ids, _Ids], group: _Ids, count: int) -> _Ids:
        """Return for each group the number of pairs of its nodes that agree in the keys."""
        cells = _combined(keys, len(group))
        sizes = np.bincount(cells)
        owner = np.zeros(len(sizes), np.int64)
        owner[cells] = group
        pairs = np.zeros(count, np.int64)
        np.add.at(pairs, owner, _choose(sizes))
        return pairs


def _table(groups: _Groups, names: str, confidence: float) -> "pd.DataFrame":
    with extra("audit"):
        import pandas as pd

    lines = []
    for agreement, sizes, pairs, different in (
        (f"all but {names}", groups.sizes, groups.pairs, groups.different),
        ("all", groups.whole_sizes, groups.whole_pairs, groups.whole_different),
    ):
        some, total = pairs > 0, int(pairs.sum())
        low, high = clustered_wilson(different[some], pairs[some], confidence)
        lines.append(
            {
                "agreement": agreement,
                "groups": int(some.sum()),
                "nodes": int(sizes[some].sum()),
                "pairs": total,
                "different": int(different.sum()),
                "share": int(different.sum()) / total if total else np.nan,
                "low": low,
                "high": high,
            }
        )
    return pd.DataFrame(lines)


def _found(
    groups: _Groups, attributes: Attributes, labels: NDArray[np.int32], finder: EvidenceFinder, rows: _Ids
) -> _Found:
    wanted = np.flatnonzero(groups.different[groups.rest] > 0)
    order = wanted[np.lexsort((rows[wanted], groups.label[wanted], groups.rest[wanted]))]
    group, label = groups.rest[order], groups.label[order]
    last_of_group = np.append(group[1:] != group[:-1], True)
    last_of_class = last_of_group | np.append(label[1:] != label[:-1], True)
    ends = []
    for last in (last_of_class, last_of_group):
        place = np.flatnonzero(last[: len(order)]) + 1
        ends.append(np.repeat(place, np.diff(place, prepend=0)))
    ids = attributes.ids[rows[order]]
    return _Found(ids, groups.change[order], ends[0], ends[1], attributes, labels, finder)


def _compared(finder: EvidenceFinder) -> tuple[Attributes, NDArray[np.int32]]:
    """Return attributes and predicted classes of the searched nodes."""
    known = attributes_of(finder)
    ids = finder.index.members().ids
    return known if len(ids) == len(known.ids) else known.take(ids), finder.labels[ids]


def _combined(columns: Iterable[NDArray[Any]], n: int) -> _Ids:
    """Return a number for each row, 0..m-1, the same for rows that are equal in all columns of numbers >= 0."""
    keys, most = np.zeros(n, np.int64), 1
    for column in columns:
        size = int(column.max(initial=0)) + 1
        if most * size > _MOST_KEYS:
            keys = _renumbered(keys)
            most = int(keys.max(initial=0)) + 1
        keys = keys * size + column
        most *= size
    return _renumbered(keys)


def _renumbered(keys: _Ids) -> _Ids:
    numbers: _Ids = np.unique(keys, return_inverse=True)[1]
    return numbers


def _choose(sizes: NDArray[Any]) -> _Ids:
    """Return the number of pairs of so many nodes."""
    pairs: _Ids = sizes.astype(np.int64) * (sizes - 1) // 2
    return pairs
