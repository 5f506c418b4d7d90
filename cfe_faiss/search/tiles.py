"""Tiles of exact search: chunks of queries and rows, so that most tiles are skipped.

Rows and queries are sorted by label and cut into chunks. In a tile (a chunk of queries against a
chunk of rows) the rows of a query's own class are one run of columns, which is skipped. A tile of a
single class is not multiplied.

Under conditions on pairs, rows are sorted by the values that the conditions compare. The smallest
and largest values of two chunks rule out most tiles. In the others, the core compares the values of
pairs whose products reach the query's current k-th score. Pairs too near in the graph have products
of minus infinity.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from cfe_faiss._native import Filter
from cfe_faiss.base.checks import UNKNOWN, Array, Bools, Doubles, Floats, Int32s, Ints
from cfe_faiss.base.threads import num_threads, product
from cfe_faiss.rows.metric import score_products
from cfe_faiss.rows.snapshot import Snapshot
from cfe_faiss.search.conditions import Conditions
from cfe_faiss.search.query import Queries

CHUNK = 768
TILE = CHUNK * CHUNK
_COPIED = 1 << 28  # bytes of rows that are copied once in order, if they are read several times
_SELECTIVE = 0.25
"""Rows are sorted by a number whose caliper leaves at most this share of the pairs.

Otherwise by label.
"""
_WIDEST = 16
"""Most multiples of ``CHUNK`` in a chunk of rows under conditions, for few queries."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows or queries in ascending order of label, as a side of a tile.

    Attributes
    ----------
    snapshot
        Snapshot that is searched.
    X, ids, labels
        Vectors (n, d), ids (n,) and labels (n,).
    rows, columns, longest
        See :meth:`cfe_faiss.rows.snapshot.Snapshot.tile_sides`.
    start
        Position of the first row, or query, in the order of all chunks.
    filter, neighbors
        As queries: their rules for the core, and which classes they may find.
    nodes
        Under conditions: node numbers in the graph, (n,).
    """

    snapshot: Snapshot
    X: Floats
    ids: Ints
    labels: Int32s
    rows: Floats
    columns: Floats
    longest: float
    start: int = 0
    filter: Filter | None = None
    neighbors: str = "other"
    nodes: Ints | None = None

    @classmethod
    def of(
        cls, snapshot: Snapshot, vectors: tuple[Floats, Ints], labels: Int32s, *further: Any
    ) -> "Chunk":
        """Return the chunk of these vectors and ids.

        ``further``: start, filter, neighbors and nodes.
        """
        X, ids = vectors
        return cls(snapshot, X, ids, labels, *snapshot.tile_sides(X), *further)

    def margin(self, other: "Chunk") -> float:
        """Bound the error of the scores of the two chunks in :func:`_multiply`."""
        return self.snapshot.tile_margin(self.longest, other.longest)

    def excludes(self, other: "Chunk") -> bool:
        """Return whether the labels of the two chunks rule out every pair."""
        first = self.labels[0]
        last = self.labels[-1]
        other_first = other.labels[0]
        other_last = other.labels[-1]
        if self.neighbors == "own":
            return bool(last < other_first or other_last < first)
        return self.neighbors == "other" and bool(first == last == other_first == other_last)


Tile = tuple[Chunk, Chunk, Floats]
"""Two chunks, and the scores of their pairs."""
Tiles = Callable[[], Iterator[Tile]]
"""Yields the tiles of a block of queries or rows."""


class PairTiles(NamedTuple):
    """Tiles of rows with each other: each pair once, but twice within a chunk.

    Attributes
    ----------
    rows
        The rows, in the order of their chunks.
    cuts
        Slice of ``rows`` of each chunk.
    blocks
        Tiles of each chunk with itself and later chunks.
    """

    rows: Ints
    cuts: list[slice]
    blocks: list[Tiles]


def slices(n: int, size: int) -> list[slice]:
    """Return slices that cut n items into runs of ``size``; the last run may be shorter."""
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def estimate_work(snapshot: Snapshot, nq: int) -> float:
    """Return the number of multiplications to compare ``nq`` queries with all rows."""
    return float(nq) * snapshot.n * snapshot.d


def of_queries(queries: Queries) -> list[tuple[Ints, Tiles]]:
    """Return blocks of queries, and functions that yield their tiles with possible rows."""
    if not queries.snapshot.n:
        return []
    return (
        _queries_by_label(queries)
        if queries.conditions is None
        else _queries_by_conditions(queries)
    )


def of_all_rows(queries: Queries) -> PairTiles:
    """Return the tiles of all stored rows as queries; conditions must not be directed."""
    if queries.conditions is None:
        return pairs_by_label(queries.snapshot, queries.candidates(), queries)
    return pairs_by_conditions(queries.snapshot, queries.conditions)


def _multiply(x: Chunk, others: Iterable[Chunk], near: Any = None) -> Iterator[Tile]:
    """Yield the tiles of a chunk with others, in one buffer.

    ``near``: pairs that must not be found, as csc.
    """
    buffer = np.empty(max(TILE, len(x.X)), np.float32)
    for y in others:
        S = buffer[: len(x.X) * len(y.X)].reshape(len(x.X), len(y.X))
        product(x.rows, y.columns.T, S)
        score_products(S, x.X, y.X, x.snapshot.metric)
        if near is not None:
            excluded = near[:, y.nodes].tocoo()
            S[excluded.row, excluded.col] = -np.inf
        yield x, y, S


def _block_height(queries: Queries, nq: int) -> int:
    """Return the number of queries in a block: some work for each thread, and a chunk at most."""
    return max(1, min(CHUNK, -(-nq // num_threads(estimate_work(queries.snapshot, nq)))))


# --- by label -------------------------------------------------------------------------------------


def _reader(snapshot: Snapshot, rows: Ints, passes: int) -> Callable[[slice], tuple[Floats, Ints]]:
    """Return a reader of vectors and ids of a slice of rows, which are read ``passes`` times."""
    if passes > 1 and 4 * len(rows) * snapshot.d <= _COPIED and not (np.diff(rows) == 1).all():
        X, ids = snapshot.copied(rows)
        return lambda cut: (X[cut], ids[cut])
    return lambda cut: snapshot.rows(rows[cut])


def _queries_by_label(queries: Queries) -> list[tuple[Ints, Tiles]]:
    snapshot = queries.snapshot
    rows = queries.candidates()
    labels = queries.labels
    xq = queries.fetch(slice(None))
    row_labels = snapshot.labels[rows]
    order = np.argsort(labels, kind="stable")
    blocks = [order[cut] for cut in slices(len(order), _block_height(queries, len(queries)))]
    read = _reader(snapshot, rows, len(blocks))

    def tiles(block: Ints) -> Iterator[Tile]:
        x = Chunk.of(
            snapshot,
            (xq[block], block),
            labels[block],
            0,
            queries.filter(block, masked=False),
            queries.neighbors,
        )
        first = 0
        stop = len(rows)
        if queries.neighbors == "own":  # the rows of the classes in a block are a run
            first = int(row_labels.searchsorted(x.labels[0]))
            stop = int(row_labels.searchsorted(x.labels[-1], side="right"))
        cuts = (
            slice(first + cut.start, first + cut.stop)
            for cut in slices(stop - first, TILE // len(block))
        )
        ys = (Chunk.of(snapshot, read(cut), row_labels[cut]) for cut in cuts)
        return _multiply(x, (y for y in ys if not x.excludes(y)))

    return [(block, partial(tiles, block)) for block in blocks]


def pairs_by_label(snapshot: Snapshot, rows: Ints, queries: Queries | None = None) -> PairTiles:
    """Return the tiles of rows, in ascending order of label, with each other.

    ``queries`` are all stored rows.
    """
    cuts = slices(len(rows), CHUNK)
    labels = snapshot.labels[rows]
    read = _reader(snapshot, rows, len(cuts))

    def chunk(cut: slice) -> Chunk:
        if queries is None:
            return Chunk.of(snapshot, read(cut), labels[cut], cut.start)
        rules = queries.filter(queries.in_order[rows[cut]], masked=False)
        return Chunk.of(snapshot, read(cut), labels[cut], cut.start, rules, queries.neighbors)

    def tiles(i: int) -> Iterator[Tile]:
        x = chunk(cuts[i])
        return _multiply(x, (y for y in map(chunk, cuts[i:]) if not x.excludes(y)))

    return PairTiles(rows, cuts, [partial(tiles, i) for i in range(len(cuts))])


def tiles_between(snapshot: Snapshot, rows: Ints, others: Ints) -> list[Tiles]:
    """Return the tiles of ``rows`` with ``others``, both by label, in chunks of ``rows``."""

    def chunk(part: Ints) -> Chunk:
        return Chunk.of(snapshot, snapshot.rows(part), snapshot.labels[part])

    def tiles(cut: slice) -> Iterator[Tile]:
        x = chunk(rows[cut])
        ys = (chunk(others[other]) for other in slices(len(others), CHUNK))
        return _multiply(x, (y for y in ys if not x.excludes(y)))

    return [partial(tiles, cut) for cut in slices(len(rows), CHUNK)]


# --- by the values that conditions compare --------------------------------------------------------


class _SortedChunks:
    """Rows under conditions, in chunks and in an order that rules out most tiles.

    ``usable`` is a mask of the rows, or of the queries if these are given.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        conditions: Conditions,
        usable: Bools,
        height: int = 0,
        queries: Queries | None = None,
    ) -> None:
        self.snapshot = snapshot
        self.conditions = conditions
        self.queries = queries
        self.side = conditions.rows if queries is None or queries.side is None else queries.side
        self.labels = snapshot.labels if queries is None else queries.labels
        height = height or _height(conditions)
        chosen = np.flatnonzero(usable)
        limits = conditions.limits
        compared = self.side.values[:, : len(limits)]
        columns = compared[chosen].T
        keys: list[Array] = [*columns[limits[:, 1] == np.inf], self.labels[chosen]]
        keys += [*_sorting_number(conditions, columns), *columns[: conditions.grouped]]
        rows = chosen[np.lexsort(keys)]  # the last key is the primary key
        # the core needs this order
        self.rows = rows[np.lexsort((self.labels[rows], np.arange(len(rows)) // height))]
        self.cuts = slices(len(rows), height)
        ranges = np.column_stack([self.labels, compared])[self.rows].T.astype(np.float64)
        starts = [cut.start for cut in self.cuts]
        self._low = np.minimum.reduceat(ranges, starts, axis=1) if starts else ranges
        self._high = np.maximum.reduceat(ranges, starts, axis=1) if starts else ranges

    def __len__(self) -> int:
        return len(self.cuts)

    def chunk(self, i: int, direction: int = 0) -> Chunk:
        """Return chunk i; with a ``direction``, one node of a pair need be possible evidence."""
        rows = self.rows[self.cuts[i]]
        values = self.side.values[rows]
        limits = self.conditions.limits
        # a pair may be found unless neither node may be evidence: then e and -e are 0 apart
        if direction:
            values = np.column_stack([direction * self.side.evidence[rows], values])
            limits = np.vstack([(1, np.inf), limits])
        asking = self.queries or Queries.of_rows(self.snapshot, rows)
        vectors = (
            self.snapshot.rows(rows) if self.queries is None else (self.queries.fetch(rows), rows)
        )
        chosen = slice(None) if self.queries is None else rows
        rules = asking.filter(
            chosen, values, limits, self.conditions.max_changed or 0, masked=False
        )
        of_chunk = self.cuts[i].start, rules, asking.neighbors, self.side.nodes[rows]
        return Chunk.of(self.snapshot, vectors, self.labels[rows], *of_chunk)

    def met_by(self, others: "_SortedChunks", i: int, first: int = 0) -> list[int]:
        """Return the chunks from ``first`` on that may have a pair with a chunk of ``others``."""
        low = self._low[:, first:]
        high = self._high[:, first:]
        other_low = others._low[:, i, None]
        other_high = others._high[:, i, None]
        # smallest distance of two values, if positive
        between = np.maximum(low - other_high, other_low - high)
        across = np.maximum(high - other_low, other_high - low)  # largest distance
        neighbors = "other" if others.queries is None else others.queries.neighbors
        possible = {
            "other": across[0] > 0,
            "own": between[0] <= 0,
            "any": np.ones(len(low[0]), bool),
        }[neighbors]
        for (least, most), near, far in zip(
            self.conditions.limits, between[1:], across[1:], strict=True
        ):
            possible &= (near <= most) & (far >= least)
        numbers: list[int] = (np.flatnonzero(possible) + first).tolist()
        return numbers

    def tiles(self, i: int, others: Iterable[Chunk], direction: int = 0) -> Iterator[Tile]:
        """Yield the tiles of chunk i with other chunks."""
        x = self.chunk(i, direction)
        surroundings = self.conditions.surroundings
        near: Any = (
            None
            if surroundings is None
            else surroundings(self.side.nodes[self.rows[self.cuts[i]]]).tocsc()
        )
        return _multiply(x, others, near)


def _sorting_number(conditions: Conditions, columns: Doubles) -> list[Doubles]:
    """Return the numbers whose caliper leaves the fewest pairs, if these are few enough."""
    best = []
    share = _SELECTIVE
    for (_, most), numbers in list(zip(conditions.limits, columns, strict=True))[
        conditions.grouped :
    ]:
        if most < np.inf and len(numbers):
            ordered = np.sort(numbers)
            ends = np.searchsorted(ordered, ordered + most, side="right")
            share_left = 2 * float((ends - np.arange(len(ordered))).mean()) / len(ordered)
            if share_left < share:
                best = [numbers]
                share = share_left
    return best


def _height(conditions: Conditions) -> int:
    return CHUNK if conditions.surroundings is None else min(CHUNK, conditions.surroundings.height)


def _queries_by_conditions(queries: Queries) -> list[tuple[Ints, Tiles]]:
    snapshot = queries.snapshot
    conditions = queries.conditions
    assert conditions is not None  # checked by the caller
    height = min(_height(conditions), _block_height(queries, int(np.count_nonzero(queries.usable))))
    evidence = (
        conditions.evidence if queries.allowed is None else conditions.evidence & queries.allowed
    )
    if queries.neighbors != "any":
        evidence = evidence & (snapshot.labels != UNKNOWN)
    xs = _SortedChunks(snapshot, conditions, queries.usable, height, queries)
    ys = _SortedChunks(snapshot, conditions, evidence, min(TILE // height, _WIDEST * CHUNK))

    def tiles(i: int) -> Iterator[Tile]:
        return xs.tiles(i, map(ys.chunk, ys.met_by(xs, i)))

    return [(xs.rows[cut], partial(tiles, i)) for i, cut in enumerate(xs.cuts)]


def pairs_by_conditions(
    snapshot: Snapshot, conditions: Conditions, allowed: Bools | None = None
) -> PairTiles:
    """Return the tiles of rows with each other whose pairs may meet the conditions."""
    usable = conditions.usable & (snapshot.labels != UNKNOWN)
    chunks = _SortedChunks(snapshot, conditions, usable if allowed is None else usable & allowed)
    direction = int(conditions.directed)

    def tiles(i: int) -> Iterator[Tile]:
        later = (chunks.chunk(j, -direction) for j in chunks.met_by(chunks, i, i))
        return chunks.tiles(i, later, direction)

    return PairTiles(chunks.rows, chunks.cuts, [partial(tiles, i) for i in range(len(chunks))])


def estimate_pairs_work(snapshot: Snapshot, conditions: Conditions) -> float:
    """Estimate the number of multiplications of the pairs of :func:`pairs_by_conditions`."""
    usable = conditions.usable & (snapshot.labels != UNKNOWN)
    chunks = _SortedChunks(snapshot, conditions, usable)
    tiles = sum(len(chunks.met_by(chunks, i, i)) for i in range(len(chunks)))
    return min(float(tiles) * TILE, len(chunks.rows) ** 2 / 2) * snapshot.d
