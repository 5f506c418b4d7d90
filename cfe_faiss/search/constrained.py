"""Exact search under constraints: the tiles of :mod:`cfe_faiss.search.exact`, with impossible tiles skipped.

Rows are sorted by the values that the conditions compare, and cut into chunks. Most tiles (a chunk of queries against
a chunk of rows) are ruled out by the smallest and largest values of both chunks. In the other tiles, the core compares
the values of pairs whose products reach the query's current k-th score. Pairs too near in the graph score minus infinity.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from cfe_faiss.base.arrays import Array, Bools, Doubles, Floats, Int32s, Ints
from cfe_faiss.base.checks import UNKNOWN
from cfe_faiss.base.threads import num_threads
from cfe_faiss.rows.snapshot import Snapshot
from cfe_faiss.search import exact
from cfe_faiss.search.conditions import Conditions, Side
from cfe_faiss.search.exact import Chunk, Scan, slices
from cfe_faiss.search.query import Plan, Queries, Ranges, Results, Rules

_SELECTIVE = 0.25
"""Rows are sorted by a number whose caliper leaves at most this share of the pairs; otherwise by label."""
_WIDEST = 16
"""Maximum height of a chunk of rows, in multiples of ``exact.CHUNK``, when there are few queries."""

Fetch = Callable[[Ints], tuple[Floats, Ints]]


@dataclass(frozen=True, slots=True)
class _Part:
    """A chunk of rows or queries in ascending order of label, with the data that conditions compare."""

    chunk: Chunk
    nodes: Ints


class _Parts:
    """Rows or queries, sorted so that most tiles can be ruled out, and cut into chunks.

    ``chosen`` selects the rows; ``fetch`` returns their vectors and ids. ``queries`` are the rows, if they ask.
    """

    def __init__(
        self,
        storage: Snapshot,
        conditions: Conditions,
        labels: Int32s,
        side: Side,
        chosen: Ints,
        fetch: Fetch,
        height: int,
        queries: Queries | None = None,
    ) -> None:
        self._storage, self._queries = storage, queries
        self._conditions, self._labels, self._side, self._fetch = conditions, labels, side, fetch
        few = side[chosen]
        keys: list[Array] = [*few.differing, labels[chosen], *_sorting_number(conditions, few), few.groups]
        rows = chosen[np.lexsort(keys)]  # the last key is the primary key
        self.cuts = slices(len(rows), height)
        self.rows = rows[np.lexsort((labels[rows], np.arange(len(rows)) // height))]  # the core needs this order
        self._values, self._limits = conditions.values(side), conditions.all_limits
        values = np.column_stack([labels, self._values[:, : len(self._limits)]])[self.rows].T.astype(np.float64)
        starts = [cut.start for cut in self.cuts]
        self._low, self._high = (
            fold.reduceat(values, starts, axis=1) if starts else values for fold in (np.minimum, np.maximum)
        )

    def __len__(self) -> int:
        return len(self.cuts)

    def part(self, i: int, either: int = 0) -> _Part:
        """Return chunk i; ``either`` 1 or -1: as a side of pairs of which one node may be evidence is enough."""
        rows, limits = self.rows[self.cuts[i]], self._limits
        (X, ids), values = self._fetch(rows), self._values[rows]
        if either:  # the core compares the distance of e and -e
            values, limits = (
                np.column_stack([either * self._side.evidence[rows], values]),
                np.vstack([(1, np.inf), limits]),
            )
        chunk, pairs = (
            Chunk.of(self._storage, X, ids, self._labels[rows]),
            (values, limits, self._conditions.max_changed or 0),
        )
        if self._queries is not None:
            chunk = chunk.asking(self._queries, rows, *pairs)
        else:
            chunk = replace(chunk, filter=Rules().native(len(rows), slice(None), *pairs))
        return _Part(chunk, self._side.nodes[rows])

    def met_by(self, others: "_Parts", i: int, first: int = 0) -> Ints:
        """Return the chunks, from ``first`` on, that may share a pair with chunk i of ``others``."""
        low, high = self._low[:, first:], self._high[:, first:]
        other_low, other_high = others._low[:, i, None], others._high[:, i, None]
        between = np.maximum(low - other_high, other_low - high)  # smallest distance of two values, if positive
        across = np.maximum(high - other_low, other_high - low)  # largest distance
        neighbors = "other" if others._queries is None else others._queries.neighbors
        possible = across[0] > 0 if neighbors == "other" else (between[0] <= 0) | (neighbors == "any")
        for (least, most), near, far in zip(self._limits, between[1:], across[1:], strict=True):
            possible &= (near <= most) & (far >= least)
        return np.flatnonzero(possible) + first


def _sorting_number(conditions: Conditions, side: Side) -> list[Doubles]:
    """Return the numbers whose caliper leaves the fewest pairs, if at most ``_SELECTIVE`` of them."""
    best, share = [], _SELECTIVE
    for (_, most), numbers in zip(conditions.limits, side.numbers, strict=True):
        if most < np.inf and len(numbers):
            ordered = np.sort(numbers)
            ends = np.searchsorted(ordered, ordered + most, side="right")
            left = 2 * float((ends - np.arange(len(ordered))).mean()) / len(ordered)
            if left < share:
                best, share = [numbers], left
    return best


def _cut_rows(storage: Snapshot, conditions: Conditions, chosen: Bools, height: int = 0) -> _Parts:
    """Return the chosen rows, in chunks."""
    rows = np.flatnonzero(chosen)
    height = height or _height(conditions)
    return _Parts(storage, conditions, storage.labels, conditions.rows, rows, storage.rows, height)


def _height(conditions: Conditions) -> int:
    return exact.CHUNK if conditions.surroundings is None else min(exact.CHUNK, conditions.surroundings.height)


# --- tiles ------------------------------------------------------------------------------------------------------------


def _tiles(conditions: Conditions, x: _Part, others: Iterable[_Part]) -> Iterator[exact.Tile]:
    """Yield the tiles of a chunk with others; minus infinity is the score of pairs that are too near in the graph."""
    buffer, surroundings = np.empty(max(exact.TILE, len(x.nodes)), np.float32), conditions.surroundings
    near: Any = None if surroundings is None else surroundings(x.nodes).tocsc()
    for y in others:
        S = exact.products(x.chunk, y.chunk, buffer)
        if near is not None:
            some = near[:, y.nodes].tocoo()
            S[some.row, some.col] = -np.inf
        yield x.chunk, y.chunk, S


# --- the k best of each query -----------------------------------------------------------------------------------------


def search(queries: Queries, _: Plan, progress: str | None) -> Results:
    """Return the exact evidence D, I of queries under their conditions."""
    if (
        queries.order is not None
        and queries.allowed is None
        and queries.rules is None
        and not _require_conditions(queries).directed
    ):
        return _search_all(queries, progress)
    return exact.scan_blocks(queries, _query_tiles(queries), progress)


def _require_conditions(queries: Queries) -> Conditions:
    assert queries.conditions is not None  # the engine is for queries under conditions
    return queries.conditions


def _cut_both(queries: Queries) -> tuple[_Parts, _Parts]:
    """Return the queries and the rows that may be their evidence, in chunks."""
    storage, conditions, allowed = queries.snapshot, _require_conditions(queries), queries.allowed
    side, asked = queries.side, np.flatnonzero(queries.usable)
    assert side is not None
    spread = -(-len(asked) // num_threads(exact.estimate_work(storage, len(asked))))
    height = max(1, min(_height(conditions), spread))
    xs = _Parts(
        storage, conditions, queries.labels, side, asked, lambda some: (queries.fetch(some), some), height, queries
    )
    evidence = conditions.evidence.copy() if allowed is None else conditions.evidence & allowed
    if queries.neighbors != "any":
        evidence &= storage.labels != UNKNOWN
    return xs, _cut_rows(storage, conditions, evidence, min(exact.TILE // height, _WIDEST * exact.CHUNK))


def _query_tiles(queries: Queries) -> list[tuple[Ints, exact.Tiles]]:
    """Return blocks of queries that can meet the conditions, and functions that yield their tiles."""
    if not queries.snapshot.n:
        return []
    xs, ys = _cut_both(queries)

    def tiles(i: int) -> Iterator[exact.Tile]:
        return _tiles(_require_conditions(queries), xs.part(i), map(ys.part, ys.met_by(xs, i).tolist()))

    return [(xs.rows[cut], partial(tiles, i)) for i, cut in enumerate(xs.cuts)]


def _tiles_from(
    parts: _Parts, conditions: Conditions, i: int, *, either: bool = False
) -> Iterator[tuple[int, exact.Tile]]:
    """Yield j and the tile, for the tiles of chunk i with itself and later chunks."""
    others = parts.met_by(parts, i, i).tolist()
    ys = (parts.part(j, -int(either)) for j in others)
    return zip(others, _tiles(conditions, parts.part(i, int(either)), ys), strict=True)


def _search_all(queries: Queries, progress: str | None) -> Results:
    """Return the exact evidence D, I of all rows under undirected conditions. Each pair is multiplied once."""
    conditions = _require_conditions(queries)
    parts = _cut_rows(queries.snapshot, conditions, conditions.usable & (queries.snapshot.labels != UNKNOWN))
    return exact.search_both_ways(queries, parts.rows, parts.cuts, partial(_tiles_from, parts, conditions), progress)


# --- all pairs at or above a threshold --------------------------------------------------------------------------------


def range_search(queries: Queries, threshold: float) -> Ranges:
    """Return lims (nq + 1,), D, I: the evidence of query q at or above the threshold is at lims[q]:lims[q + 1]."""
    return exact.find_ranges(queries, directed_scans(queries), threshold)


def directed_scans(queries: Queries) -> list[Scan]:
    """Return scans that together find the evidence at or above a threshold: query number, id and similarity."""
    return exact.scans_of(tiles for _, tiles in _query_tiles(queries))


def pair_scans(storage: Snapshot, conditions: Conditions, allowed: Bools | None = None) -> list[Scan]:
    """Return scans that together find all pairs of (allowed) rows at or above a threshold, in either direction."""
    usable = conditions.usable & (storage.labels != UNKNOWN)
    parts = _cut_rows(storage, conditions, usable if allowed is None else usable & allowed)
    return exact.scans_of_pairs(len(parts), partial(_tiles_from, parts, conditions, either=conditions.directed))


def estimate_pairs_work(storage: Snapshot, conditions: Conditions) -> float:
    """Estimate the number of multiplications of :func:`pair_scans`."""
    parts = _cut_rows(storage, conditions, conditions.usable & (storage.labels != UNKNOWN))
    tiles = sum(len(parts.met_by(parts, i, i)) for i in range(len(parts)))
    return min(float(tiles) * exact.TILE, len(parts.rows) ** 2 / 2) * storage.d
