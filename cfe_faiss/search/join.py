"""Similarity join: find every pair at or above a threshold without comparing all pairs.

**Bound.** Let the columns of P be orthonormal directions. A vector x has the coordinates a(x) = P'x
and a residual of norm r(x) = |x - P a(x)|. Cauchy-Schwarz gives x·y <= a(x)·a(y) + r(x) r(y). So
the sketch z(x) = (a(x), r(x)) satisfies x·y <= z(x)·z(y) and |z(x)| = |x|. If P holds the leading
principal directions of the data, the bound is tight after a few coordinates. There are two
sketches: a coarse sketch for every comparison, and a fine sketch of the next coordinates, which
replaces r(x) r(y) by a smaller bound for the pairs that pass.

**Blocks.** z(x)·z(y) >= t requires |z(x) - z(y)|**2 <= 2 (M - t), where M is the largest |z|**2. A
k-d tree over the coarse sketches excludes whole boxes, then rows, before any multiplication.

**Rounding.** All rounding errors are bounded on the safe side. Coordinates and norms are computed
in float64 and rounded once. r(x) is computed from |x|**2 - |a|**2 plus a bound on the error of that
difference (in ``_sketches``). Let u = 2**-24. Rounding the sketches to float32 changes z(x)·z(y) by
at most 2 u M. Float32 sums of its w products add w u M (in any order), replacing r(x) r(y) adds 3 u
M, and the rounding of ``similarity`` adds u M. The total is below (w + 16) u M, which is
``screening_error(w)`` times M. ``_GAP_ROUNDING`` bounds the error of a squared distance. The core
scores each pair that passes (``native/kernels/similarity.h``), so the result has the same bits as a
comparison of all pairs.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np

from cfe_faiss._native import BlockJoin, JoinTree, row_scores
from cfe_faiss.base.checks import UNKNOWN, Array, Doubles, Floats, Int32s, Ints
from cfe_faiss.base.threads import derived, product, run
from cfe_faiss.rows.codecs import LEAST_OF_EQUAL, screening_error
from cfe_faiss.rows.snapshot import Snapshot
from cfe_faiss.search.exact import Found, Scan, Threshold, all_pairs
from cfe_faiss.search.tiles import slices

COARSE = 16
"""Length of a coarse sketch."""

BYTES_PER_ROW = 280
"""Memory of the sketches of a row, its label and its number, in bytes."""


_GAP_ROUNDING = (COARSE + 8) * 2.0**-24
"""Bound of the error of a squared distance between coarse sketches in float32, as a share of it."""
_DIRECTIONS = 64  # principal directions in both sketches together
_SAMPLE = 1 << 13
_POWER_STEPS = 6
_BLOCK = 256  # maximum number of rows in a block
_BUFFER = 1 << 18  # maximum number of pairs per kernel call
_FLOATS = 1 << 23  # maximum number of floats per thread while projecting rows or scoring pairs

# Measured cost of each step, in multiplications of a large matrix product, to within a factor of 2.
_ROW_TEST = 110
_COARSE_PAIR = 10
_FINE_PAIR = 220
_SCORED_PAIR = 4000


@dataclass(frozen=True)
class JoinBlocks:
    """JoinBlocks of nearby rows: all rows of known label, ordered along a tree.

    The blocks are the leaves of a complete binary tree. Its nodes are numbered as in a heap: the
    children of node i are 2i + 1 and 2i + 2, and the last ``number`` nodes are the blocks in order.
    "Row i" is the i-th row in that order.

    Attributes
    ----------
    snapshot
        Snapshot that holds the vectors.
    rows
        Snapshot row of each row, (n,) int64.
    labels
        Label of each row, (n,) int32.
    coarse, fine
        Sketches, (n, 16) and (n, at most 50) float32. Coarse: the leading coordinates and the norm
        of the residual. Fine: the next coordinates and the norm of the remaining residual.
    largest
        The largest squared norm of a sketch.
    starts
        First row of each block, followed by n: (number + 1,) int64.
    low, high
        Box around each node's coarse sketches, (2 * number - 1, 16) float32.
    node_labels
        Label of all rows below each node, or ``UNKNOWN`` for several labels: (2 * number - 1,)
        int32.
    """

    snapshot: Snapshot
    rows: Ints
    labels: Int32s
    coarse: Floats
    fine: Floats
    largest: float
    starts: Ints
    low: Floats
    high: Floats
    node_labels: Int32s

    @derived
    def _tree(self) -> JoinTree:
        return JoinTree(
            self.starts, self.labels, self.coarse, self.fine, self.low, self.high, self.node_labels
        )

    @property
    def number(self) -> int:
        """Number of blocks."""
        return len(self.starts) - 1

    def neighbours(self) -> list[Scan]:
        """Return scans of the pairs within two sibling blocks: few pairs, some of the best."""
        wide = np.append(self.starts[:-1:2], len(self.rows))
        by_label = np.lexsort((self.labels, np.repeat(np.arange(len(wide) - 1), np.diff(wide))))
        return [
            scan
            for a, b in pairwise(wide)
            for scan in all_pairs(self.snapshot, self.rows[by_label[a:b]])
        ]

    def scans(self, others: "JoinBlocks | None" = None, floor: float = -math.inf) -> list[Scan]:
        """Return scans of each block with itself and later blocks, or with ``others``.

        ``others`` must have the same snapshot, and sketches along the same directions. JoinBlocks
        without a pair at or above ``floor`` with ``others`` are skipped.
        """
        return [
            partial(self._pairs_of_block, others or self, i)
            for i in self._blocks_near(others, floor)
        ]

    def cost(self, threshold: float, others: "JoinBlocks | None" = None) -> float:
        """Estimate the time of all :meth:`scans`, in multiplications, from a sample of blocks."""
        near = self._blocks_near(others, threshold)
        step = min(128, -(-len(near) // 4))
        sample = near[step // 2 :: max(1, step)]
        counts = np.zeros((len(sample), 4), np.int64)

        def count(place: int) -> None:
            for _ in self._candidates(
                others or self, sample[place], lambda: threshold, counts[place]
            ):
                pass

        run(count, range(len(sample)))
        prices = np.array([_ROW_TEST, _COARSE_PAIR, _FINE_PAIR, _SCORED_PAIR], float)
        return float(counts.sum(axis=0) @ prices) * len(near) / max(1, len(sample))

    def _blocks_near(self, others: "JoinBlocks | None", threshold: float) -> Sequence[int]:
        """Return the blocks that may have pairs up to a threshold with rows of another tree."""
        if others is None:
            return range(self.number)
        low, high = (box[self.number - 1 :].astype(np.float64) for box in (self.low, self.high))
        apart = np.maximum(0, np.maximum(low - others.high[0], others.low[0] - high))
        near = np.einsum("ij,ij->i", apart, apart) <= self._screens(others, threshold)[1]
        if others.node_labels[0] != UNKNOWN:
            near &= self.node_labels[self.number - 1 :] != others.node_labels[0]
        numbers: list[int] = np.flatnonzero(near).tolist()
        return numbers

    def _candidates(
        self, others: "JoinBlocks", i: int, threshold: Threshold, counts: Ints
    ) -> Iterator[tuple[float, Ints, Ints]]:
        """Yield threshold and rows of the pairs of block i that may reach it, in parts.

        ``seen`` counts the tested rows, and the pairs compared by coarse sketches, by fine
        sketches, and scored.
        """
        join = BlockJoin(self._tree, i, others._tree)
        pairs = np.empty((2, max(_BUFFER, join.least_room)), np.int64)
        while not join.done:
            least_score = threshold()
            count = join.find(*self._screens(others, least_score), pairs)
            counts[:] = join.counts
            if count:
                yield least_score, pairs[0, :count], pairs[1, :count]

    def _screens(self, others: "JoinBlocks", threshold: float) -> tuple[np.float32, float]:
        """Return the smallest inner product and the largest distance of sketches that pass."""
        largest = max(self.largest, others.largest)
        margin = screening_error(COARSE + self.fine.shape[1]) * max(1.0, largest)
        if threshold <= -1:
            threshold = -largest
        elif threshold <= 1:
            threshold = min(threshold, LEAST_OF_EQUAL)
        return np.float32(threshold - margin), 2 * (largest - threshold + margin) * (
            1 + _GAP_ROUNDING
        )

    def _pairs_of_block(
        self, others: "JoinBlocks", i: int, threshold: Threshold
    ) -> Iterator[Found]:
        counts = np.zeros(4, np.int64)
        start, stop = self.starts[i : i + 2]
        for least_score, first, second in self._candidates(others, i, threshold, counts):
            X, ids = self.snapshot.rows(self.rows[start:stop])
            for part in slices(len(first), max(_BLOCK, _FLOATS // self.snapshot.d)):
                rows_of_others, places = np.unique(second[part], return_inverse=True)
                Y, other_ids = others.snapshot.rows(others.rows[rows_of_others])
                block_rows = first[part] - start
                scores = np.empty(len(block_rows), np.float32)
                row_scores(self.snapshot.native.metric, X, Y, block_rows, places, scores)
                good = np.flatnonzero(scores >= least_score)
                if len(good):
                    yield ids[block_rows[good]], other_ids[places[good]], scores[good]


def join_blocks_of(snapshot: Snapshot) -> JoinBlocks | None:
    """Return the blocks of a snapshot; None if it has fewer than 2 rows of known label.

    Rows that are not finite (from a damaged file) are left out, because their similarities reach no
    threshold.
    """
    rows = np.sort(snapshot.by_label)
    if len(rows) < 2:
        return None
    blocks = join_blocks_along(snapshot, rows, directions_of(snapshot, rows))
    return None if blocks is None or len(blocks.rows) < 2 else blocks


def join_blocks_along(snapshot: Snapshot, rows: Ints, directions: Doubles) -> JoinBlocks | None:
    """Return the blocks of rows of known label, with sketches along the given directions.

    None if no row is finite.
    """
    coarse, fine, norms = _sketches(snapshot, rows, directions)
    finite = np.isfinite(norms)
    if not finite.any():
        return None
    if not finite.all():
        rows = rows[finite]
        coarse = coarse[finite]
        fine = fine[finite]
        norms = norms[finite]
    levels = max(0, int(np.ceil(np.log2(len(rows) / _BLOCK))))
    order = _split(coarse, levels)
    coarse = coarse[order]
    fine = fine[order]
    rows = rows[order]
    labels = snapshot.labels[rows]
    starts = _starts(len(rows), levels)
    low = _fold(np.minimum, coarse, starts)
    high = _fold(np.maximum, coarse, starts)
    lowest = _fold(np.minimum, labels, starts)
    highest = _fold(np.maximum, labels, starts)
    node_labels = np.where(lowest == highest, lowest, UNKNOWN).astype(np.int32)
    return JoinBlocks(
        snapshot, rows, labels, coarse, fine, float(norms.max()), starts, low, high, node_labels
    )


# --- sketches -------------------------------------------------------------------------------------


def directions_of(snapshot: Snapshot, rows: Ints) -> Doubles:
    """Return the leading principal directions (of the second moment) of some rows, (d, at most 64).

    They come from orthogonal iteration over a sample, and need not be exact: the bound holds for
    any orthonormal directions.
    """
    rng = np.random.default_rng(0)
    size = min(len(rows), _SAMPLE, max(_BLOCK, 2 * _FLOATS // snapshot.d))
    sample = snapshot.rows(np.sort(rng.choice(rows, size, replace=False)))[0].astype(np.float64)
    sample = sample[np.isfinite(sample).all(axis=1)]
    directions = rng.standard_normal((snapshot.d, min(snapshot.d, _DIRECTIONS)))
    for _ in range(_POWER_STEPS):
        directions = np.linalg.qr(product(sample.T, product(sample, directions)))[0]
    projected = product(sample, directions)
    principal: Doubles = directions @ np.linalg.eigh(product(projected.T, projected))[1][:, ::-1]
    return principal


def _sketches(
    snapshot: Snapshot, rows: Ints, directions: Doubles
) -> tuple[Floats, Floats, Doubles]:
    """Return coarse and fine sketches of rows, and squared norms of the coarse ones."""
    leading = min(COARSE - 1, directions.shape[1])
    coarse = np.zeros((len(rows), COARSE), np.float32)
    fine = np.empty((len(rows), directions.shape[1] - leading + 1), np.float32)
    norms = np.empty(len(rows))

    # Bound of the error of |x|**2 - |a(x)|**2 in float64, as a share of |x|**2. The error of a sum
    # of d products is at most d * 2**-53 (Higham, section 3.1). Directions from a QR factorisation
    # are orthonormal to a small multiple of 2**-53. The factor 8 is a safety factor.
    rounding = 8 * (snapshot.d + _DIRECTIONS) * 2.0**-53

    def left(squares: Doubles, coordinates: Doubles) -> Doubles:
        difference = squares - np.einsum("ij,ij->i", coordinates, coordinates)
        root: Doubles = np.sqrt(np.maximum(difference, 0) + rounding * squares)
        return root

    def project(part: slice) -> None:
        X = snapshot.rows(rows[part])[0].astype(np.float64)
        squares = np.einsum("ij,ij->i", X, X)
        coordinates = product(X, directions)
        coarse[part, :leading] = coordinates[:, :leading]
        coarse[part, -1] = left(squares, coordinates[:, :leading])
        fine[part, :-1] = coordinates[:, leading:]
        fine[part, -1] = left(squares, coordinates)
        norms[part] = np.einsum("ij,ij->i", coarse[part], coarse[part], dtype=np.float64)

    with np.errstate(invalid="ignore", over="ignore"):
        run(
            project,
            slices(len(rows), max(1, _FLOATS // 4 // snapshot.d)),
            work=float(fine.size) * snapshot.d,
        )
    return coarse, fine, norms


# --- the tree -------------------------------------------------------------------------------------


def _starts(n: int, level: int) -> Ints:
    """Return the first row of each node of a level, followed by n."""
    starts: Ints = n * np.arange(2**level + 1, dtype=np.int64) // 2**level
    return starts


def _split(Z: Floats, levels: int) -> Ints:
    """Return an order of the rows of Z in which each tree node is one run.

    Nodes are halved along the widest axis.
    """
    order = np.arange(len(Z))
    for level in range(levels):
        starts = _starts(len(Z), level + 1)

        def halve(i: int, starts: Ints = starts) -> None:
            first, middle, last = starts[2 * i : 2 * i + 3]
            rows = order[first:last]
            widest = int(Z[rows[:: max(1, len(rows) // 512)]].var(axis=0).argmax())
            order[first:last] = rows[np.argpartition(Z[rows, widest], middle - first)]

        run(halve, range(2**level), work=float(Z.size))
    return order


def _fold(fold: np.ufunc, values: Array, starts: Ints) -> Array:
    """Return the fold (minimum or maximum) of the values below each node of the tree."""
    number = len(starts) - 1
    nodes = np.empty((2 * number - 1, *values.shape[1:]), values.dtype)
    nodes[number - 1 :] = fold.reduceat(values, starts[:-1], axis=0)
    width = number // 2
    while width:
        children = nodes[2 * width - 1 : 4 * width - 1]
        nodes[width - 1 : 2 * width - 1] = fold(children[::2], children[1::2])
        width //= 2
    return nodes
