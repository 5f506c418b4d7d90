"""Ranking: the lists of each of many queries, by what :mod:`cfe_faiss.coarse.class_centroids` keeps of them.

Means of lists are kept in columns, 16 side by side, so that eight queries meet them in one pass over the dimensions;
what they score stays in cache until the best are chosen.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.jit import kernel
from cfe_faiss.lists.codecs import float_pointer, label_pointer
from cfe_faiss.search import meet, select
from cfe_faiss.search.meet import LANES

_AT_ONCE = 8  # queries that meet a block of columns together

MOST = 1 / 2
"""Where this share of all lists has an entry of a label, one mean for each list takes less than to leave out some."""

NOWHERE = np.float32(-2)
"""Score of a list without a member to go to: below every cosine."""

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Labels = NDArray[np.int32]
Flags = NDArray[np.bool_]


class Columns(NamedTuple):
    """Means of lists, and means without one label, in blocks of 16.

    Attributes
    ----------
    means
        (blocks, d, 16) float32.
    lists, filled
        The list that each column is of, -1 for none, (blocks, 16) int64; and whether it holds anything, (blocks, 16).
    labels, starts
        The blocks of ``labels[i]`` are ``starts[i]:starts[i + 1]``, (c,) int32 and (c + 1,) int64. The blocks before
        these are of all lists with all labels, in their order.
    whole
        Whether the blocks of a label are of all lists, too, (c,) bool.
    """

    means: Floats
    lists: Ints
    filled: Flags
    labels: Labels
    starts: Ints
    whole: Flags

    @classmethod
    def of(
        cls,
        means: Floats,
        filled: Flags,
        labels: Labels,
        starts: Ints,
        entry_lists: Ints,
        entry_means: Floats,
        entry_filled: Flags,
    ) -> "Columns":
        """Put means side by side; the arrays are those of :class:`cfe_faiss.coarse.class_centroids.Routes`."""
        everything = np.arange(len(means))
        whole = np.diff(starts) >= MOST * len(means)
        parts = [_blocks(means, everything, filled)]
        for i in range(len(labels)):
            entries = slice(starts[i], starts[i + 1])
            lists, own, own_filled = entry_lists[entries], entry_means[entries], entry_filled[entries]
            if whole[i]:
                own_lists, (own, own_filled) = lists, (means.copy(), filled.copy())
                own[own_lists], own_filled[own_lists] = entry_means[entries], entry_filled[entries]
                lists = everything
            parts.append(_blocks(own, lists, own_filled))
        sizes = [len(blocks) for blocks, _, _ in parts]
        blocks, lists, has = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        return cls(blocks, lists, has, labels, np.cumsum(sizes), whole)

    @property
    def width(self) -> int:
        """As many scores as a query has: the number of lists, and up to a multiple of 16."""
        return int(LANES * self.starts[0])


def _blocks(means: Floats, lists: Ints, filled: Flags) -> tuple[Floats, Ints, Flags]:
    """Return means, (m, d), of lists, (m,), as blocks; what is added to whole blocks is of no list."""
    number, d = -(-len(means) // LANES), means.shape[1]
    rows = np.zeros((number * LANES, d), np.float32)
    of_lists, of_filled = np.full(number * LANES, -1), np.zeros(number * LANES, bool)
    rows[: len(means)], of_lists[: len(means)], of_filled[: len(means)] = means, lists, filled
    columns = np.ascontiguousarray(rows.reshape(number, LANES, d).transpose(0, 2, 1))
    return columns, of_lists.reshape(number, LANES), of_filled.reshape(number, LANES)


@kernel
def rank(X: Floats, labels_q: Labels, columns: Columns, best: Ints) -> None:
    """Write the nearest lists of each query, (nq, nprobe), nearest first, -1 for none; nprobe <= lists.

    Queries are in the order of their labels. Time: nq x lists x d, and for choosing nq x lists.
    """
    nprobe, total = best.shape[1], LANES * columns.starts[0]
    S, out = np.empty((_AT_ONCE, total), np.float32), np.empty(LANES, np.float32)
    counting, memory = nprobe <= select.LARGEST_K, select.room(_AT_ONCE, total, nprobe)
    done = np.zeros(_AT_ONCE, np.bool_)
    for first in range(0, X.shape[0], _AT_ONCE):
        last = min(first + _AT_ONCE, X.shape[0])
        _score(X[first:last], labels_q[first:last], columns, S, out)
        if counting:
            select.best(S[: last - first], best[first:last], done, memory)
        for r in range(last - first):
            if done[r]:
                continue
            order = np.argsort(-S[r], kind="mergesort")
            for place in range(nprobe):
                best[first + r, place] = order[place] if S[r, order[place]] > NOWHERE else -1


@kernel
def all_scores(X: Floats, labels_q: Labels, columns: Columns, S: Floats) -> None:
    """Write how near each query is to each list, (nq, width), -inf where nothing is; queries as for :func:`rank`."""
    out = np.empty(LANES, np.float32)
    for first in range(0, X.shape[0], _AT_ONCE):
        last = min(first + _AT_ONCE, X.shape[0])
        _score(X[first:last], labels_q[first:last], columns, S[first:last], out)


@kernel
def _score(X: Floats, labels_q: Labels, columns: Columns, S: Floats, out: Floats) -> None:
    """Write the scores of one to eight queries; ``out`` is room for 16 numbers."""
    nq, first, number = X.shape[0], 0, columns.starts[0]
    if labels_q[0] != labels_q[nq - 1] or not _is_whole(columns, _place(columns, labels_q[0])):
        _multiply(X, 0, nq, columns, 0, number, S)
    while first < nq:
        last = first + 1
        while last < nq and labels_q[last] == labels_q[first]:
            last += 1
        i = _place(columns, labels_q[first])
        if _is_whole(columns, i):
            _multiply(X, first, last, columns, columns.starts[i], number, S)
        elif i >= 0:
            for q in range(first, last):
                _leave_out(X, q, columns, i, S, out)
        first = last


@kernel
def _place(columns: Columns, label: int) -> int:
    """Return the place of a label that has columns of its own, else -1."""
    i = int(np.searchsorted(columns.labels, label))
    return i if i < columns.labels.shape[0] and columns.labels[i] == label else -1


@kernel
def _is_whole(columns: Columns, i: int) -> bool:
    return bool(i >= 0 and columns.whole[i])


@kernel
def _leave_out(X: Floats, q: int, columns: Columns, i: int, S: Floats, out: Floats) -> None:
    """Write what query q scores where the label in place i has columns."""
    d, means = X.shape[1], columns.means.ctypes.data
    x = label_pointer(X.ctypes.data + 4 * d * q)
    for b in range(columns.starts[i], columns.starts[i + 1]):
        meet.products_1(x, label_pointer(means + 4 * LANES * d * b), d, out.ctypes, 0)
        for lane in range(LANES):
            if columns.lists[b, lane] >= 0:
                S[q, columns.lists[b, lane]] = out[lane] if columns.filled[b, lane] else -np.inf


@kernel
def _multiply(X: Floats, first: int, last: int, columns: Columns, start: int, blocks: int, S: Floats) -> None:
    """Write what the queries ``first:last`` score in as many blocks from ``start`` on."""
    d, width, means = X.shape[1], S.shape[1], columns.means.ctypes.data
    together = last - first == _AT_ONCE
    for q in range(first, first + 1 if together else last):
        x = label_pointer(X.ctypes.data + 4 * d * q)
        for b in range(blocks):
            block = label_pointer(means + 4 * LANES * d * (start + b))
            scores = float_pointer(S.ctypes.data + 4 * (width * q + LANES * b))
            if together:
                meet.products_8(x, block, d, scores, width)
            else:
                meet.products_1(x, block, d, scores, width)
    filled = columns.filled[start : start + blocks].reshape(-1)
    for q in range(first, last):
        for j in range(width):
            S[q, j] = S[q, j] if filled[j] else -np.inf
