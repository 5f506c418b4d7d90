"""Exact search under constraints: the tiles of :mod:`cfe_faiss.search.exact`, with impossible tiles skipped.

Rows are sorted by the values that the conditions compare, and cut into chunks. Most tiles (a chunk of queries against
a chunk of rows) are ruled out by the smallest and largest values of both chunks. In the other tiles, the products of
pairs that do not meet the conditions are set to minus infinity before the core reads them. Conditions are tested only
for products that reach the query's current k-th score, up to rounding. After the first tiles few products do.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from cfe_faiss.base.arrays import Array, Bools, Doubles, Floats, Int32s, Ints
from cfe_faiss.base.checks import UNKNOWN
from cfe_faiss.base.threads import num_threads, run
from cfe_faiss.rows.metric import make_results
from cfe_faiss.rows.snapshot import Snapshot
from cfe_faiss.search import exact
from cfe_faiss.search.conditions import Conditions, Side
from cfe_faiss.search.exact import Chunk, Found, Scan, Threshold, collect, slices
from cfe_faiss.search.query import Plan, Queries, Ranges, Results

_DENSE = 1 / 32
"""Above this share of products that reach their thresholds, conditions are tested for the whole tile."""
_SELECTIVE = 0.25
"""Rows are sorted by a number whose caliper leaves at most this share of the pairs; otherwise by label."""
_FEW = 64
"""Below this number of pairs, test pairs in the graph one by one; above it, compute a chunk's surroundings."""
_WIDEST = 16
"""Maximum height of a chunk of rows, in multiples of ``exact.CHUNK``, when there are few queries."""

Fetch = Callable[[Ints], tuple[Floats, Ints]]


@dataclass(frozen=True, slots=True)
class _Part:
    """A chunk of rows or queries in ascending order of label, with the data that conditions compare."""

    chunk: Chunk
    side: Side
    places: Ints


class _Parts:
    """Rows or queries, sorted so that most tiles can be ruled out, and cut into chunks.

    ``chosen`` selects the rows; ``fetch`` returns their vectors and ids.
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
    ) -> None:
        self._storage = storage
        self._conditions, self._labels, self._side, self._fetch = conditions, labels, side, fetch
        few = side[chosen]
        keys: list[Array] = [*few.differing, labels[chosen], *_sorting_number(conditions, few), few.groups]
        rows = chosen[np.lexsort(keys)]  # the last key is the primary key
        self.cuts = slices(len(rows), height)
        self.rows = rows[np.lexsort((labels[rows], np.arange(len(rows)) // height))]  # the core needs this order
        values = np.vstack([labels, side.groups, side.differing, side.numbers])[:, self.rows].astype(np.float64)
        starts = [cut.start for cut in self.cuts]
        self._low, self._high = (
            fold.reduceat(values, starts, axis=1) if starts else values for fold in (np.minimum, np.maximum)
        )

    def __len__(self) -> int:
        return len(self.cuts)

    def __getitem__(self, i: int) -> _Part:
        rows = self.rows[self.cuts[i]]
        X, ids = self._fetch(rows)
        return _Part(Chunk.of(self._storage, X, ids, self._labels[rows]), self._side[rows], rows)

    def met_by(self, others: "_Parts", i: int, first: int = 0) -> Ints:
        """Return the chunks, from ``first`` on, that may share a pair with chunk i of ``others``."""
        low, high = self._low[:, first:], self._high[:, first:]
        other_low, other_high = others._low[:, i, None], others._high[:, i, None]
        between = np.maximum(low - other_high, other_low - high)  # smallest distance of two values, if positive
        across = np.maximum(high - other_low, other_high - low)  # largest distance
        numbers = len(low) - len(self._conditions.limits)
        possible = (across[[0, *range(2, numbers)]] > 0).all(axis=0)  # labels, antiexact
        possible &= (between[1] <= 0) | (not self._conditions.grouped)
        for (least, most), near, far in zip(self._conditions.limits, between[numbers:], across[numbers:], strict=True):
            possible &= (near <= most) & (far >= least)
        return np.flatnonzero(possible) + first

    def one_group(self, i: int) -> bool:
        """Return whether all rows of chunk i belong to one group."""
        return bool(self._low[1, i] == self._high[1, i])


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
    """Return the chosen rows of known label, in chunks."""
    rows = np.flatnonzero(chosen & (storage.labels != UNKNOWN))
    height = height or _height(conditions)
    return _Parts(storage, conditions, storage.labels, conditions.rows, rows, storage.rows, height)


def _height(conditions: Conditions) -> int:
    return exact.CHUNK if conditions.surroundings is None else min(exact.CHUNK, conditions.surroundings.height)


# --- tiles ------------------------------------------------------------------------------------------------------------


class _Tiles:
    """Tiles of one chunk with other chunks."""

    def __init__(self, conditions: Conditions, x: _Part, *, one_group: bool, either: bool) -> None:
        self._conditions, self.x, self._one_group, self._either = conditions, x, one_group, either
        self._near: Any = None
        self._buffer = np.empty(max(exact.TILE, len(x.places)), np.float32)

    def with_part(self, y: _Part, one_group: bool, screens: list[Floats]) -> Floats:
        """Return the products with another chunk, with minus infinity for pairs that do not meet the conditions.

        The ``screens`` broadcast. A pair below all of them may keep its product.
        """
        S = exact.products(self.x.chunk, y.chunk, self._buffer)
        reached = np.greater_equal(S, screens[0])
        for screen in screens[1:]:
            reached |= screen <= S
        reached = reached.reshape(-1)
        one_group &= self._one_group
        if np.count_nonzero(reached) > _DENSE * reached.size:
            meets = self._conditions.meet(self.x.side[:, None], y.side, grouped=one_group, either=self._either)
            np.putmask(S, ~meets, -np.inf)
            self._rule_out_near(S, y)
        else:
            self._rule_out(S, y, np.flatnonzero(reached), one_group)
        return S

    def _rule_out(self, S: Floats, y: _Part, pairs: Ints, one_group: bool) -> None:
        """Test pairs, given as flat indices into S, one by one."""
        if not len(pairs):
            return
        row, column = np.divmod(pairs, S.shape[1])
        x_side, y_side = self.x.side[row], y.side[column]
        meets = self._conditions.meet(x_side, y_side, grouped=one_group, either=self._either)
        if self._conditions.surroundings is not None and meets.any():
            if self._near is None and np.count_nonzero(meets) < _FEW:
                meets[meets] = self._conditions.surroundings.hold(x_side.nodes[meets], y_side.nodes[meets])
            else:
                self._rule_out_near(S, y)
        S.reshape(-1)[pairs[~meets]] = -np.inf

    def _rule_out_near(self, S: Floats, y: _Part) -> None:
        if self._conditions.surroundings is not None:
            if self._near is None:
                self._near = self._conditions.surroundings(self.x.side.nodes).tocsc()
            near = self._near[:, y.side.nodes].tocoo()
            S[near.row, near.col] = -np.inf


def _screens(D: Floats, margin: float) -> Floats:
    """Return the thresholds of products that can change the results, best first."""
    screens: Floats = (D[:, -1].astype(np.float64) - margin).astype(np.float32)
    return screens


# --- the k best of each query -----------------------------------------------------------------------------------------


def search(queries: Queries, _: Plan, progress: str | None) -> Results:
    """Return the exact evidence D, I of queries under their conditions."""
    if queries.order is not None and queries.allowed is None and not _require_conditions(queries).directed:
        return _search_all(queries, progress)
    D, I = make_results(len(queries), min(queries.k, queries.snapshot.n))
    if not D.size:
        return D, I
    xs, ys = _cut_both(queries)

    def scan(i: int) -> None:
        tiles = _Tiles(_require_conditions(queries), xs[i], one_group=xs.one_group(i), either=False)
        x = tiles.x
        best_D, best_I = D[x.places], I[x.places]
        for j in ys.met_by(xs, i):
            y = ys[j]
            S = tiles.with_part(y, ys.one_group(j), [_screens(best_D, x.chunk.margin(y.chunk))[:, None]])
            exact.scan_tile(x.chunk, y.chunk, S, best_D, best_I)
        D[x.places], I[x.places] = best_D, best_I

    run(scan, range(len(xs)), work=exact.estimate_work(queries.snapshot, len(queries)), progress=progress)
    return D, I


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
    xs = _Parts(storage, conditions, queries.labels, side, asked, lambda some: (queries.fetch(some), some), height)
    evidence = conditions.evidence if allowed is None else conditions.evidence & allowed
    return xs, _cut_rows(storage, conditions, evidence, min(exact.TILE // height, _WIDEST * exact.CHUNK))


def _search_all(queries: Queries, progress: str | None) -> Results:
    """Return the exact evidence D, I of all rows under undirected conditions. Each pair is multiplied once."""
    conditions = _require_conditions(queries)
    parts = _cut_rows(queries.snapshot, conditions, conditions.usable)

    def tiles_of(i: int, best: exact.BestOfChunks) -> Iterator[tuple[int, exact.Tile]]:
        tiles = _Tiles(conditions, parts[i], one_group=parts.one_group(i), either=False)
        for j in parts.met_by(parts, i, i).tolist():
            part = parts[j]
            margin = tiles.x.chunk.margin(part.chunk)
            # Another thread may raise the scores meanwhile. Lower screens only let more products pass.
            screens = [_screens(best.scores(i), margin)[:, None], _screens(best.scores(j), margin)]
            S = tiles.with_part(part, parts.one_group(j), screens[: 1 + (i < j)])
            yield j, (tiles.x.chunk, part.chunk, S)

    return exact.search_both_ways(queries, parts.rows, parts.cuts, tiles_of, progress)


# --- all pairs at or above a threshold --------------------------------------------------------------------------------


def range_search(queries: Queries, threshold: float) -> Ranges:
    """Return lims (nq + 1,), D, I: the evidence of query q at or above the threshold is at lims[q]:lims[q + 1]."""
    return exact.find_ranges(queries, directed_scans(queries), threshold)


def directed_scans(queries: Queries) -> list[Scan]:
    """Return scans that together find the evidence at or above a threshold: query number, id and similarity."""
    if not queries.snapshot.n:
        return []
    xs, ys = _cut_both(queries)

    def of_chunk(i: int, threshold: Threshold) -> Iterator[Found]:
        tiles = _Tiles(_require_conditions(queries), xs[i], one_group=xs.one_group(i), either=False)
        for j in ys.met_by(xs, i):
            for found in _find_reaching(tiles, ys[j], ys.one_group(j), threshold):
                yield found[:3]

    return [partial(of_chunk, i) for i in range(len(xs))]


def pair_scans(storage: Snapshot, conditions: Conditions, allowed: Bools | None = None) -> list[Scan]:
    """Return scans that together find all pairs of (allowed) rows at or above a threshold, in either direction."""
    parts = _cut_rows(storage, conditions, conditions.usable if allowed is None else conditions.usable & allowed)

    def of_chunk(i: int, threshold: Threshold) -> Iterator[Found]:
        tiles = _Tiles(conditions, parts[i], one_group=parts.one_group(i), either=conditions.directed)
        for j in parts.met_by(parts, i, i):
            for source, target, scores, r, c in _find_reaching(tiles, parts[j], parts.one_group(j), threshold):
                once = np.flatnonzero((r < c) | (i < j))
                yield source[once], target[once], scores[once]

    return [partial(of_chunk, i) for i in range(len(parts))]


def estimate_pairs_work(storage: Snapshot, conditions: Conditions) -> float:
    """Estimate the number of multiplications of :func:`pair_scans`."""
    parts = _cut_rows(storage, conditions, conditions.usable)
    tiles = sum(len(parts.met_by(parts, i, i)) for i in range(len(parts)))
    return min(float(tiles) * exact.TILE, len(parts.rows) ** 2 / 2) * storage.d


def _find_reaching(
    tiles: _Tiles, y: _Part, one_group: bool, threshold: Threshold
) -> Iterator[tuple[Ints, Ints, Floats, Any, Any]]:
    """Yield the pairs of a tile at or above a threshold: both ids, similarities, and positions in the tile."""
    screen = np.array(float(np.float32(threshold())) - tiles.x.chunk.margin(y.chunk), np.float32)
    S = tiles.with_part(y, one_group, [screen])
    for r, c, scores in collect(tiles.x.chunk, y.chunk, S, threshold):
        yield tiles.x.chunk.ids[r], y.chunk.ids[c], scores.copy(), r, c
