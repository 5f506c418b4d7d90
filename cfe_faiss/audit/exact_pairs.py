"""Pairs of nodes that agree in everything but some attributes, and that the model classifies differently."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.attributes.table import Attributes
from cfe_faiss.audit.evidence import attributes_of, check_finder, known_rows
from cfe_faiss.audit.intervals import clustered_wilson
from cfe_faiss.audit.tables import Floats, Ints, TableResult, data_frame
from cfe_faiss.base.checks import as_count, as_names
from cfe_faiss.finder import EvidenceFinder
from cfe_faiss.rows.metric import measure_of

_LIMITS = (
    "A pair that differs in these attributes only and is classified differently may still owe "
    "it to its neighbours in the graph: compare the share with that of the pairs that agree in "
    "all attributes.",
    "Only attributes that were given are compared. Numbers agree when they are equal, in every digit.",
    "No such pair among the nodes does not show that the attributes have no effect: there may "
    "be few nodes that agree in all others. The number of pairs says how many there are.",
    "The interval treats the sets of nodes that agree as independent, and nodes of one set as "
    "not. It holds its level for many sets; where a few large ones hold most pairs it is too "
    "narrow (82 % instead of 95 % in simulations).",
)
"""Questions that the numbers cannot answer."""

_BLOCK = 2**20
"""Pairs made at a time."""


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class OnlyInPairs(TableResult):
    """The most similar pairs of :class:`OnlyIn`.

    Attributes
    ----------
    source, target
        Row numbers of each pair, (k,) int64, ``source < target``.
    total
        Number of all pairs that are classified differently: these are the first ``len(self)`` of them.
    table
        One line per pair, most similar first: ``source`` and ``target`` (the user's ids, if the finder has some),
        ``similarity`` (of a table ``distance``), ``source_label``, ``target_label``, and for each of the attributes
        "source <name>" and "target <name>".
    """

    source: Ints
    target: Ints
    total: int

    def __repr__(self) -> str:
        return f"OnlyInPairs({len(self):,} of {self.total:,} pairs)"


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class OnlyIn(TableResult):
    """Pairs of nodes that differ only in some attributes; made by :func:`only_in`.

    Attributes
    ----------
    names
        The attributes in which the nodes of a pair may differ, and do in one at least.
    nodes, unknown
        Numbers of nodes that were compared, and that were left out because one of their attributes is missing.
    pairs, different
        Numbers of pairs, and of pairs that are classified differently.
    share, low, high
        Different pairs among all pairs, and its interval at ``confidence``; NaN without pairs.
    baseline
        The share among the pairs that agree in all attributes, the null of ``share``: there the attributes cannot have
        made the difference. NaN without such pairs.
    table
        Line 0 for these pairs, line 1 for the pairs that agree in all attributes, whose share is the baseline:

        - ``agreement``: "all but <names>" and "all".
        - ``groups``, ``nodes``: sets of nodes that agree and contain a pair, and the nodes in them.
        - ``pairs``, ``different``, ``share``, ``low``, ``high``: as above.
    limits
        Limits of the numbers, in sentences.
    """

    names: tuple[str, ...]
    confidence: float
    nodes: int
    unknown: int
    pairs: int
    different: int
    share: float
    low: float
    high: float
    baseline: float
    _different: "_DifferentPairs"

    def __repr__(self) -> str:
        different, pairs = self.table[["different", "pairs"]].iloc[1]
        return (
            f"OnlyIn({', '.join(self.names)}: {self.different:,} of {self.pairs:,} pairs classified differently; "
            f"{different:,} of {pairs:,} pairs that agree in all)"
        )

    def blocks(self) -> Iterator[tuple[Ints, Ints]]:
        """Yield all pairs that are classified differently, each once, in blocks.

        Yields
        ------
        source, target
            Nodes, (m,) int64, ``source < target``, m about a million at most, or the size of the largest group.
        """
        return self._different.blocks(_BLOCK)

    def most_similar(self, limit: int = 100) -> OnlyInPairs:
        """Return the most similar pairs that are classified differently, at most ``limit`` of them.

        The similarity or distance is that of :meth:`EvidenceFinder.measure64`; equal ones are in the order of their
        nodes. Time grows with ``different``, memory with ``limit``.

        Raises
        ------
        TypeError, ValueError
            If ``limit`` is not an integer >= 1.
        """
        found = self._different
        source, target, values = found.best(as_count("limit", limit))
        ends = {"source": source, "target": target}
        columns: dict[str, Any] = {end: found.finder.names(ids) for end, ids in ends.items()}
        rows = {end: found.attributes.rows(ids) for end, ids in ends.items()}
        columns[measure_of(found.finder.metric)] = values
        columns |= {f"{end}_label": found.labels[own] for end, own in rows.items()}
        for name in self.names:
            values = np.array([*found.attributes[name].values, None], dtype=object)
            columns |= {f"{end} {name}": values[found.attributes[name].codes[own]] for end, own in rows.items()}
        table, total = data_frame(columns), self.different
        return OnlyInPairs(source=source, target=target, total=total, table=table)


@dataclass(frozen=True, slots=True)
class _DifferentPairs:
    """Pairs of different classes as ranges: nodes sorted by the set of nodes that agree, then by class.

    Attributes
    ----------
    ids, changing
        Id of each node, (n,), and its combination of values of the attributes that may differ, as a number.
    end_of_class, end_of_group
        Position after the last node of the same class, and after the last node of the same set, (n,).
    """

    ids: Ints
    changing: Ints
    end_of_class: Ints
    end_of_group: Ints
    attributes: Attributes
    labels: NDArray[np.int32]
    finder: EvidenceFinder

    def blocks(self, size: int) -> Iterator[tuple[Ints, Ints]]:
        # The partners of a node are the nodes of its set in later classes: one range.
        partners = self.end_of_group - self.end_of_class
        ends = np.cumsum(partners)
        begin = 0
        while begin < len(ends):
            done = ends[begin] - partners[begin]
            end = max(int(np.searchsorted(ends, done + size, side="right")), begin + 1)
            count = partners[begin:end]
            first = np.repeat(np.arange(begin, end), count)
            shift = self.end_of_class[begin:end] - (ends[begin:end] - count - done)
            second = np.arange(len(first)) + np.repeat(shift, count)
            differ = self.changing[first] != self.changing[second]
            v, u = self.ids[first[differ]], self.ids[second[differ]]
            if len(v):
                yield np.minimum(v, u), np.maximum(v, u)
            begin = end

    def best(self, limit: int) -> tuple[Ints, Ints, Floats]:
        """Return the nearest pairs, at most ``limit``, and their similarities or distances."""
        sign = 1 if self.finder.metric == "l2" else -1
        best = (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))
        for source, target in self.blocks(max(_BLOCK // self.finder.vectors.shape[1], 1)):
            away = sign * self.finder.measure64(source, target)
            near = away <= (best[2][-1] if len(best[2]) == limit else np.inf)
            block = source[near], target[near], away[near]
            source, target, away = (np.concatenate(two) for two in zip(best, block, strict=True))
            order = np.lexsort((target, source, away))[:limit]
            best = source[order], target[order], away[order]
        return *best[:2], sign * best[2]


def only_in(finder: EvidenceFinder, names: Sequence[str], *, confidence: float = 0.95) -> OnlyIn:
    """Return all pairs of nodes that differ in these attributes only, and how many of them are classified differently.

    The simplest question of a discrimination audit (direct discrimination: equal in everything but the protected
    attribute), answered exactly for all pairs at once, by grouping.

    Parameters
    ----------
    finder
        Knows attributes; its searched nodes with a predicted class are compared.
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

    Numbers are compared exactly. An attribute that no two nodes share (a name, an exact income) leaves no pairs: round
    it, or leave it out of the attributes.

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
    check_finder(finder)
    attributes, ids = attributes_of(finder), known_rows(finder, None)
    attributes = attributes if len(ids) == len(attributes.ids) else attributes.take(ids)
    labels = finder.labels[ids]
    changing = [attributes.known("names", name) for name in as_names("names", names)]
    if not changing:
        raise ValueError("names must hold one attribute at least, got none")
    rows = np.flatnonzero(~np.any([attribute.missing for attribute in attributes.values()], axis=0))
    rest = _combine((attributes[name].codes[rows] for name in attributes if name not in changing), len(rows))
    change = _combine((attributes[name].codes[rows] for name in changing), len(rows))
    label = labels[rows].astype(np.int64)

    # Pairs that agree in the rest, minus pairs that agree in everything.
    whole = _combine((rest, change), len(rows))
    all_pairs, all_different = _pair_counts(rest, label)
    equal_pairs, equal_different = _pair_counts(whole, label)
    pairs = all_pairs - _sum_by_group(equal_pairs, whole, rest)
    different = all_different - _sum_by_group(equal_different, whole, rest)
    line = _line(f"all but {' and '.join(changing)}", np.bincount(rest), pairs, different, confidence)
    baseline = _line("all", np.bincount(whole), equal_pairs, equal_different, confidence)

    involved = np.flatnonzero(different[rest] > 0)
    order = involved[np.lexsort((rows[involved], label[involved], rest[involved]))]
    ends = _run_ends(rest[order], label[order]), _run_ends(rest[order])
    found = _DifferentPairs(attributes.ids[rows[order]], change[order], *ends, attributes, labels, finder)
    return OnlyIn(
        table=data_frame([line, baseline]),
        limits=_LIMITS,
        names=tuple(changing),
        confidence=confidence,
        nodes=len(rows),
        unknown=len(labels) - len(rows),
        **{name: line[name] for name in ("pairs", "different", "share", "low", "high")},
        baseline=baseline["share"],
        _different=found,
    )


def _pair_counts(group: Ints, label: Ints) -> tuple[Ints, Ints]:
    """Return for each group the numbers of all pairs of its nodes and of pairs in different classes."""
    pairs, cells = _choose(np.bincount(group)), _combine((group, label), len(group))
    return pairs, pairs - _sum_by_group(_choose(np.bincount(cells)), cells, group)


def _sum_by_group(counts: Ints, parts: Ints, groups: Ints) -> Ints:
    """Return the sum of the counts of the parts of each group; ``parts`` and ``groups`` of the same rows, (n,)."""
    group_of_part = np.zeros(len(counts), np.int64)
    group_of_part[parts] = groups
    sums = np.zeros(int(groups.max(initial=-1)) + 1, np.int64)
    np.add.at(sums, group_of_part, counts)
    return sums


def _line(agreement: str, sizes: Ints, pairs: Ints, different: Ints, confidence: float) -> dict[str, Any]:
    some, total, count = pairs > 0, int(pairs.sum()), int(different.sum())
    low, high = clustered_wilson(different[some], pairs[some], confidence)
    line = {"agreement": agreement, "groups": int(some.sum()), "nodes": int(sizes[some].sum()), "pairs": total}
    return line | {"different": count, "share": count / total if total else np.nan, "low": low, "high": high}


def _run_ends(*keys: Ints) -> Ints:
    """Return for each position the end of its run of equal keys, (n,)."""
    n = len(keys[0])
    last = np.any([np.append(key[1:] != key[:-1], True) for key in keys], axis=0)
    ends = np.flatnonzero(last[:n]) + 1
    return np.repeat(ends, np.diff(ends, prepend=0))


def _combine(columns: Iterable[NDArray[Any]], n: int) -> Ints:
    """Return a number for each row, 0..m-1, the same for rows that are equal in all columns of numbers."""
    frame = data_frame(dict(enumerate(columns)))
    if not len(frame.columns):
        return np.zeros(n, np.int64)
    return np.asarray(frame.groupby([*frame]).ngroup(), np.int64)


def _choose(sizes: NDArray[Any]) -> Ints:
    """Return the number of pairs in sets of these sizes."""
    pairs: Ints = sizes.astype(np.int64) * (sizes - 1) // 2
    return pairs
