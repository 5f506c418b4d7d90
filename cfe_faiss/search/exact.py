"""Exact search: blocked matrix products over rows sorted by label, so that skipping a class is free.

Rows and queries are sorted by label and cut into chunks. In a tile (a chunk of queries against a chunk of rows) the
rows of a query's own class are one run of columns, which is skipped. A tile of a single class is not multiplied.
"""

import math
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from cfe_faiss import _native
from cfe_faiss._native import Filter
from cfe_faiss.base.arrays import Array, Floats, Int32s, Ints
from cfe_faiss.base.threads import num_threads, product, run
from cfe_faiss.rows.metric import PADDING, make_results
from cfe_faiss.rows.snapshot import Snapshot
from cfe_faiss.search.derived import Derived
from cfe_faiss.search.query import Plan, Queries, Ranges, Results

CHUNK = 768
TILE = CHUNK * CHUNK
_FEW = 4
"""Up to this number of queries, scan the rows in place; above it, use matrix products."""
_BUFFER = 1 << 18
_COPIED = 1 << 28  # bytes of rows that are copied once in order, if they are read several times

Found = tuple[Ints, Ints, Floats]
Threshold = Callable[[], float]
Scan = Callable[[Threshold], Iterator[Found]]
"""Iterates over the pairs at or above a threshold, in parts. The threshold may rise, so it is read before each part."""
Select = Callable[[list[Found], int], Found]
NOTHING: Found = (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32))


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows or queries in ascending order of label, as a side of a tile.

    Attributes
    ----------
    storage
        Snapshot that is searched.
    X, ids, labels
        Vectors (n, d), ids (n,) and labels (n,).
    rows, columns, longest
        See :meth:`cfe_faiss.rows.snapshot.Snapshot.tile_sides`.
    filter, neighbors
        As queries: their rules for the core, and which classes they may find.
    """

    storage: Snapshot
    X: Floats
    ids: Ints
    labels: Int32s
    rows: Floats
    columns: Floats
    longest: float
    filter: Filter | None = None
    neighbors: str = "other"

    @classmethod
    def of(cls, storage: Snapshot, X: Floats, ids: Ints, labels: Int32s) -> "Chunk":
        """Return the chunk of these vectors."""
        return cls(storage, X, ids, labels, *storage.tile_sides(X))

    def asking(self, queries: Queries, some: Ints, *pairs: Array) -> "Chunk":
        """Return the chunk with the rules of these queries, and the values that the core compares."""
        return replace(self, filter=queries.filter(some, *pairs), neighbors=queries.neighbors)

    def margin(self, other: "Chunk") -> float:
        """Bound the error of the scores of the two chunks in :func:`products`."""
        return self.storage.tile_margin(self.longest, other.longest)

    def excludes(self, other: "Chunk") -> bool:
        """Return whether the labels of the two chunks rule out every pair."""
        if self.neighbors == "own":
            return bool(self.labels[-1] < other.labels[0] or other.labels[-1] < self.labels[0])
        return self.neighbors == "other" and bool(
            self.labels[0] == self.labels[-1] == other.labels[0] == other.labels[-1]
        )


Tile = tuple[Chunk, Chunk, Floats]
"""Two chunks, and the scores of their pairs."""
Tiles = Callable[[], Iterator[Tile]]
"""Yields the tiles of a block of queries or rows."""


def make_chunk(storage: Snapshot, rows: Ints) -> Chunk:
    """Return the chunk of some rows, which must be in ascending order of label."""
    X, ids = storage.rows(rows)
    return Chunk.of(storage, X, ids, storage.labels[rows])


def make_chunks(storage: Snapshot, rows: Ints, passes: int) -> Callable[[slice], Chunk]:
    """Return a function that returns the chunk of a slice of rows, which are read in so many passes."""
    if passes > 1 and 4 * len(rows) * storage.d <= _COPIED and not (np.diff(rows) == 1).all():
        (X, ids), labels = storage.copied(rows), storage.labels[rows]
        return lambda cut: Chunk.of(storage, X[cut], ids[cut], labels[cut])
    return lambda cut: make_chunk(storage, rows[cut])


def slices(n: int, size: int) -> list[slice]:
    """Return slices that cut n items into runs of ``size``; the last run may be shorter."""
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def estimate_work(storage: Snapshot, nq: int) -> float:
    """Return the number of multiplications to compare ``nq`` queries with all rows."""
    return float(nq) * storage.n * storage.d


def products(x: Chunk, y: Chunk, buffer: Floats | None = None) -> Floats:
    """Compute the float32 scores of the rows of two chunks, (len(x.X), len(y.X)), in a buffer."""
    if buffer is None:
        return product(x.rows, y.columns.T)
    S = buffer[: len(x.X) * len(y.X)].reshape(len(x.X), len(y.X))
    return product(x.rows, y.columns.T, S)


def scan_tile(x: Chunk, y: Chunk, S: Floats, D: Floats, I: Ints) -> None:
    """Update the results D, I of the rows of x with the eligible rows of y; S holds their scores."""
    _native.scan_tile(
        x.storage.native.metric, S, x.X, x.labels, y.X, y.labels, y.ids, D, I, x.margin(y), x.filter, y.filter
    )


def query_tiles(queries: Queries) -> list[tuple[Ints, Tiles]]:
    """Return blocks of queries, and a function that yields the tiles of each block against all allowed rows."""
    storage, labels, xq, rows = queries.snapshot, queries.labels, queries.fetch(slice(None)), queries.candidates()
    order = np.argsort(labels, kind="stable")
    blocks = [order[cut] for cut in slices(len(order), height_of_blocks(queries))]
    chunk, of_rows = make_chunks(storage, rows, len(blocks)), storage.labels[rows]

    def tiles(block: Ints) -> Iterator[Tile]:
        x = Chunk.of(storage, xq[block], block, labels[block]).asking(queries, block)
        first, stop = 0, len(rows)
        if queries.neighbors == "own":  # the rows of the classes in a block are a run
            first = int(of_rows.searchsorted(x.labels[0]))
            stop = int(of_rows.searchsorted(x.labels[-1], side="right"))
        cuts = slices(stop - first, TILE // len(block))
        return _evidence_tiles(x, (chunk(slice(first + cut.start, first + cut.stop)) for cut in cuts))

    return [(block, partial(tiles, block)) for block in blocks]


def height_of_blocks(queries: Queries) -> int:
    """Return the number of queries in a block: some work for each thread, and a chunk at most."""
    nq = len(queries)
    return max(1, min(CHUNK, -(-nq // num_threads(estimate_work(queries.snapshot, nq)))))


def _evidence_tiles(x: Chunk, others: Iterable[Chunk]) -> Iterator[Tile]:
    """Yield the tiles of a chunk with others, in one buffer, unless all their rows have the same label."""
    buffer = np.empty(max(TILE, len(x.X)), np.float32)
    for y in others:
        if not x.excludes(y):
            yield x, y, products(x, y, buffer)


def scan_blocks(queries: Queries, blocks: list[tuple[Ints, Tiles]], progress: str | None) -> Results:
    """Return the best D, I of queries in the tiles of each block of them."""
    D, I = make_results(len(queries), min(queries.k, queries.snapshot.n))

    def scan(block: tuple[Ints, Tiles]) -> None:
        numbers, tiles = block
        found = D[numbers], I[numbers]
        for x, y, S in tiles():
            scan_tile(x, y, S, *found)
        D[numbers], I[numbers] = found

    run(scan, blocks, work=estimate_work(queries.snapshot, len(queries)), progress=progress)
    return D, I


def search(queries: Queries, _: Plan, progress: str | None) -> Results:
    """Return the exact D, I of the queries: of a few by scanning the rows in place, of others by matrix products."""
    if len(queries) <= _FEW:
        return _scan_in_place(queries)
    if queries.order is not None and queries.allowed is None:
        return _search_stored(queries, progress)
    return scan_blocks(queries, query_tiles(queries), progress)


def _scan_in_place(queries: Queries) -> Results:
    snapshot, (D, I) = queries.snapshot, make_results(len(queries), min(queries.k, queries.snapshot.n))
    X, lists = queries.fetch(slice(None)), np.tile(np.arange(len(snapshot.starts) - 1), (len(queries), 1))
    mask = np.empty(0, bool) if queries.allowed is None else queries.allowed
    scan = Derived.of(snapshot).scan
    scan.scan(X, queries.labels, lists, mask, snapshot.margin, D, I, queries.filter())
    return D, I


def _search_stored(queries: Queries, progress: str | None) -> Results:
    """Return the exact evidence D, I of all stored vectors: each unordered pair is multiplied once."""
    rows, places = queries.candidates(), queries.in_order
    cuts = slices(len(rows), CHUNK)
    some = make_chunks(queries.snapshot, rows, len(cuts))

    def chunk(cut: slice) -> Chunk:
        return some(cut).asking(queries, places[rows[cut]])

    return search_both_ways(queries, rows, cuts, partial(_tiles_from, chunk, cuts), progress)


class BestOfChunks:
    """The k best results D, I of every row, cut into chunks. Threads update two chunks at a time."""

    def __init__(self, D: Floats, I: Ints, cuts: list[slice]) -> None:
        self._results = [(D[cut], I[cut]) for cut in cuts]
        self._locks = [threading.Lock() for _ in cuts]

    def take(self, S: Floats, one: tuple[int, Chunk], other: tuple[int, Chunk]) -> None:
        """Update the results of both chunks, i <= j, with the products S."""
        (i, x), (j, y) = one, other
        if i == j:
            with self._locks[i]:
                scan_tile(x, y, S, *self._results[i])
            return
        metric, sides = x.storage.native.metric, ((x.X, x.labels, x.ids), (y.X, y.labels, y.ids))
        with self._locks[i], self._locks[j]:
            _native.scan_tile_both(
                metric, S, *sides[0], *sides[1], *self._results[i], *self._results[j], x.margin(y), x.filter, y.filter
            )


def _tiles_from(chunk: Callable[[slice], Chunk], cuts: list[slice], i: int) -> Iterator[tuple[int, Tile]]:
    """Yield j and the tile, for the tiles of chunk i with itself and all later chunks."""
    x = chunk(cuts[i])
    buffer = np.empty(TILE, np.float32)
    for j in range(i, len(cuts)):
        y = chunk(cuts[j])
        if not x.excludes(y):
            yield j, (x, y, products(x, y, buffer))


def search_both_ways(
    queries: Queries,
    rows: Ints,
    cuts: list[slice],
    tiles: Callable[[int], Iterator[tuple[int, Tile]]],
    progress: str | None,
) -> Results:
    """Return the best D, I of all stored vectors as queries, in tiles that count for the rows of both chunks.

    ``cuts`` cut ``rows`` into chunks. ``tiles`` yields the tiles of chunk i with itself and later chunks.
    """
    storage, width = queries.snapshot, min(queries.k, queries.snapshot.n)
    D, I = make_results(len(rows), width)
    best = BestOfChunks(D, I, cuts)

    def scan(i: int) -> None:
        for j, (x, y, S) in tiles(i):
            best.take(S, (i, x), (j, y))

    run(scan, range(len(cuts)), work=estimate_work(storage, storage.n), progress=progress)
    all_D, all_I = make_results(storage.n, width)
    all_D[rows], all_I[rows] = D, I
    return all_D.take(queries.rows, axis=0), all_I.take(queries.rows, axis=0)


def pad_results(D: Floats, I: Ints, k: int) -> Results:
    """Return D, I widened to k columns with FAISS's padding."""
    nq, width = D.shape
    if width == k:
        return D, I
    wide_D, wide_I = np.full((nq, k), PADDING, np.float32), np.full((nq, k), -1, np.int64)
    wide_D[:, :width], wide_I[:, :width] = D, I
    return wide_D, wide_I


def collect(x: Chunk, y: Chunk, S: Floats, threshold: Threshold) -> Iterator[tuple[Int32s, Int32s, Floats]]:
    """Yield rows, columns and similarities of a tile's pairs at or above the threshold, in bounded parts."""
    size = max(_BUFFER, S.shape[1])
    rows, columns, scores = np.empty(size, np.int32), np.empty(size, np.int32), np.empty(size, np.float32)
    row = 0
    while row < len(S):
        metric, sides, ruled = x.storage.native.metric, (x.X, x.labels, y.X, y.labels), (y.ids, x.filter, y.filter)
        wanted = np.float32(threshold())
        count, row = _native.collect_tile(metric, S, *sides, wanted, x.margin(y), row, rows, columns, scores, *ruled)
        if count:
            yield rows[:count], columns[:count], scores[:count]


def scans_of(blocks: Iterable[Tiles]) -> list[Scan]:
    """Return scans of the tiles of each block: ids in the first chunk, ids in the second, similarities."""

    def of_block(tiles: Tiles, threshold: Threshold) -> Iterator[Found]:
        for x, y, S in tiles():
            for rows, columns, scores in collect(x, y, S, threshold):
                yield x.ids[rows], y.ids[columns], scores.copy()

    return [partial(of_block, tiles) for tiles in blocks]


def scans_of_pairs(number: int, tiles: Callable[[int], Iterator[tuple[int, Tile]]]) -> list[Scan]:
    """Return scans of the tiles of each chunk with itself and later chunks, which find each pair once."""

    def of_chunk(i: int, threshold: Threshold) -> Iterator[Found]:
        for j, (x, y, S) in tiles(i):
            for r, c, scores in collect(x, y, S, threshold):
                once = np.flatnonzero((r < c) | (i < j))
                yield x.ids[r[once]], y.ids[c[once]], scores[once]

    return [partial(of_chunk, i) for i in range(number)]


def range_search(queries: Queries, threshold: float) -> Ranges:
    """Return lims (nq + 1,), D, I: the evidence of query q at or above the threshold is at lims[q]:lims[q + 1]."""
    return find_ranges(queries, scans_of(tiles for _, tiles in query_tiles(queries)), threshold)


def find_ranges(queries: Queries, scans: list[Scan], threshold: float) -> Ranges:
    """Return lims, D, I of a range search from scans that yield the query number, id and similarity of each result."""
    found = [NOTHING]
    work = estimate_work(queries.snapshot, len(queries))
    run(lambda find: found.extend(find(lambda: threshold)), scans, work=work)
    query, ids, scores = (np.concatenate(parts) for parts in zip(*found, strict=True))
    order = np.lexsort((ids, -scores, query))
    lims = np.searchsorted(query, np.arange(len(queries) + 1), sorter=order).astype(np.int64)
    return lims, scores[order], ids[order]


def all_pairs(storage: Snapshot, rows: Ints | None = None) -> list[Scan]:
    """Return scans that together find all evidence pairs at or above a threshold, one scan per chunk of rows.

    ``rows`` are in ascending order of label; None for all rows of known label.
    """
    rows = storage.by_label if rows is None else rows
    cuts = slices(len(rows), CHUNK)
    return scans_of_pairs(len(cuts), partial(_tiles_from, make_chunks(storage, rows, len(cuts)), cuts))


def pairs_between(storage: Snapshot, rows: Ints, others: Ints) -> list[Scan]:
    """Return scans that together find all evidence pairs of ``rows`` with ``others``, at or above a threshold.

    Both arrays of rows are in ascending order of label.
    """

    def tiles(cut: slice) -> Iterator[Tile]:
        x = make_chunk(storage, rows[cut])
        return _evidence_tiles(x, (make_chunk(storage, others[other]) for other in slices(len(others), CHUNK)))

    return scans_of(partial(tiles, cut) for cut in slices(len(rows), CHUNK))


def select_directed(found: list[Found], k: int) -> Found:
    """Return the k best pairs. Ties: smaller first id, then smaller second id."""
    first, second, scores = (np.concatenate(parts) for parts in zip(*found, strict=True))
    if len(scores) > 2 * k:
        near = np.flatnonzero(scores >= -np.partition(-scores, k - 1)[k - 1])
        first, second, scores = first[near], second[near], scores[near]
    order = np.lexsort((second, first, -scores))[:k]
    return first[order], second[order], scores[order]


def select_best(found: list[Found], k: int) -> Found:
    """Return the k best pairs, each unordered pair once, smaller id first. Ties: smaller ids first.

    No unordered pair may occur more than twice.
    """
    ordered = [(np.minimum(source, target), np.maximum(source, target), scores) for source, target, scores in found]
    low, high, scores = select_directed(ordered, 2 * k)
    first = np.ones(len(scores), bool)
    first[1:] = (low[1:] != low[:-1]) | (high[1:] != high[:-1])
    keep = np.flatnonzero(first)[:k]
    return low[keep], high[keep], scores[keep]


def run_until_full(
    pending: list[Iterator[Found]], size: int, work: float = math.inf
) -> tuple[Found, list[Iterator[Found]]]:
    """Run scans until they have found ``size`` pairs. Return the pairs, best first, and the unfinished scans."""
    found = [NOTHING]
    over = np.zeros(len(pending), bool)
    count = 0

    def go_on(place: int) -> None:
        nonlocal count
        while count < size:
            pairs = next(pending[place], None)
            if pairs is None:
                over[place] = True
                return
            found.append(pairs)
            count += len(pairs[2])  # a race between threads adds at most a few more pairs

    run(go_on, range(len(pending)), work=work)
    pairs = select_best(found, max(1, sum(len(part[2]) for part in found)))
    return pairs, [pending[place] for place in np.flatnonzero(~over)]


def find_best(
    scans: list[Scan],
    k: int,
    best: Found = NOTHING,
    *,
    floor: float = float(PADDING),
    work: float = math.inf,
    progress: str | None = None,
    select: Select = select_best,
) -> Found:
    """Return the k best pairs of ``best`` and of the pairs that scans find at or above ``floor``.

    ``select`` is :func:`select_best`, by default, or :func:`select_directed`.
    """
    lock = threading.Lock()
    waiting: list[Found] = []

    def threshold() -> float:
        return max(floor, float(best[2][-1])) if len(best[2]) == k else floor

    def merge() -> None:
        nonlocal best
        best = select([best, *waiting], k)
        waiting.clear()

    def take(find: Scan) -> None:
        for found in find(threshold):
            pairs = select([found], k) if len(found[2]) > k else found
            with lock:
                waiting.append(pairs)
                if sum(len(part[2]) for part in waiting) >= k:  # sort each pair only a few times
                    merge()

    run(take, scans, work=work, progress=progress)
    merge()
    return best
