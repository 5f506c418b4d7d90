"""Pairs of nodes that agree in everything but some attributes, and that the model classifies differently."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cfe_faiss.audit.common import Frame, Ints, TableResult, attributes_of, check_finder, data_frame, known_rows, stack
from cfe_faiss.audit.intervals import clustered_wilson
from cfe_faiss.base.checks import UNKNOWN, as_count, as_names
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
    _finder: EvidenceFinder
    _people: Frame
    """Nodes with a pair of different classes, by the set of nodes that agree, then by class: ``id``; ``change``, a
    number of the values that may differ; positions after the last node of the class and of the set."""

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
        return self._blocks(_BLOCK)

    def most_similar(self, limit: int = 100) -> OnlyInPairs:
        """Return the most similar pairs that are classified differently, at most ``limit`` of them.

        The similarity or distance is that of :meth:`EvidenceFinder.measure64`; equal ones are in the order of their
        nodes. Time grows with ``different``, memory with ``limit``.

        Raises
        ------
        TypeError, ValueError
            If ``limit`` is not an integer >= 1.
        """
        limit, finder = as_count("limit", limit), self._finder
        measure = measure_of(finder.metric)
        nearest = data_frame({"source": np.empty(0, np.int64), "target": np.empty(0, np.int64), measure: []})
        for source, target in self._blocks(max(_BLOCK // finder.vectors.shape[1], 1)):
            values = finder.measure64(source, target)
            if len(nearest) == limit:
                last = nearest[measure].iloc[-1]
                is_near = values <= last if measure == "distance" else values >= last
                source, target, values = source[is_near], target[is_near], values[is_near]
            both = stack([nearest, {"source": source, "target": target, measure: values}])
            order = both.sort_values([measure, "source", "target"], ascending=[measure == "distance", True, True])
            nearest = order.head(limit)
        nodes = {end: nearest[end].to_numpy(np.int64) for end in ("source", "target")}
        columns: dict[str, Any] = {end: finder.names(ids) for end, ids in nodes.items()}
        columns[measure] = nearest[measure].to_numpy(np.float64)
        columns |= {f"{end}_label": finder.labels[ids] for end, ids in nodes.items()}
        attributes = attributes_of(finder).select(self.names)
        values = {end: attributes.take(ids).to_frame() for end, ids in nodes.items()}
        columns |= {f"{end} {name}": values[end][name].to_numpy() for name in self.names for end in nodes}
        return OnlyInPairs(**nodes, total=self.different, table=data_frame(columns))

    def _blocks(self, size: int) -> Iterator[tuple[Ints, Ints]]:
        # The partners of a node are the nodes of its set in later classes: one range.
        ids, change, end_of_class, end_of_group = self._people.to_numpy(np.int64).T
        partners = end_of_group - end_of_class
        ends = np.cumsum(partners)
        begin = 0
        while begin < len(ends):
            done = ends[begin] - partners[begin]
            end = max(int(np.searchsorted(ends, done + size, side="right")), begin + 1)
            count = partners[begin:end]
            first = np.repeat(np.arange(begin, end), count)
            shift = end_of_class[begin:end] - (ends[begin:end] - count - done)
            second = np.arange(len(first)) + np.repeat(shift, count)
            differ = change[first] != change[second]
            v, u = ids[first[differ]], ids[second[differ]]
            if len(v):
                yield np.minimum(v, u), np.maximum(v, u)
            begin = end


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
    ids = known_rows(finder, None)
    attributes = attributes_of(finder).take(ids)
    changing = [attributes.known("names", name) for name in as_names("names", names)]
    if not changing:
        raise ValueError("names must hold one attribute at least, got none")
    codes = data_frame({name: attribute.codes for name, attribute in attributes.items()})
    codes = codes[(codes != UNKNOWN).all(axis=1)]
    rows = codes.index.to_numpy()
    people = data_frame({"id": ids[rows], "change": _numbers(codes[changing]), "label": finder.labels[ids[rows]]})
    people["group"] = _numbers(codes.drop(columns=changing))

    # Pairs that agree in the rest, minus pairs that agree in everything.
    equal = _count_pairs(people, ["group", "change"])
    counts = _count_pairs(people, ["group"])
    counts[["pairs", "different"]] -= equal.groupby(level="group")[["pairs", "different"]].sum()
    line = _line(f"all but {' and '.join(changing)}", counts, confidence)
    baseline = _line("all", equal, confidence)

    people = people[people["group"].map(counts["different"]) > 0].sort_values(["group", "label"], kind="stable")
    place = np.arange(1, len(people) + 1)
    for keys in (["group", "label"], ["group"]):
        people[f"end_of_{keys[-1]}"] = place + people.groupby(keys).cumcount(ascending=False)
    return OnlyIn(
        table=data_frame([line, baseline]),
        limits=_LIMITS,
        names=tuple(changing),
        confidence=confidence,
        nodes=len(rows),
        unknown=len(ids) - len(rows),
        **{name: line[name] for name in ("pairs", "different", "share", "low", "high")},
        baseline=baseline["share"],
        _finder=finder,
        _people=people[["id", "change", "end_of_label", "end_of_group"]],
    )


def _numbers(columns: Frame) -> Ints:
    """Return a number for each row, 0..m-1, the same for rows that are equal in all columns."""
    if not len(columns.columns):
        return np.zeros(len(columns), np.int64)
    return np.asarray(columns.groupby([*columns]).ngroup(), np.int64)


def _count_pairs(people: Frame, keys: list[str]) -> Frame:
    """Return for each set of people with equal keys its ``nodes``, its ``pairs`` and those in ``different`` classes."""
    nodes = people.groupby(keys).size()
    of_class = people.groupby([*keys, "label"]).size()
    pairs = nodes * (nodes - 1) // 2
    alike = (of_class * (of_class - 1) // 2).groupby(level=keys).sum()
    return data_frame({"nodes": nodes, "pairs": pairs, "different": pairs - alike})


def _line(agreement: str, sets: Frame, confidence: float) -> dict[str, Any]:
    sets = sets[sets["pairs"] > 0]
    nodes, pairs, different = map(int, sets[["nodes", "pairs", "different"]].sum())
    low, high = clustered_wilson(sets["different"], sets["pairs"], confidence)
    line = {"agreement": agreement, "groups": len(sets), "nodes": nodes, "pairs": pairs, "different": different}
    return line | {"share": different / pairs if pairs else np.nan, "low": low, "high": high}
