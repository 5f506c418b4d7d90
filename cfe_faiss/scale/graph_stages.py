"""From a list of edges on disk to the neighbours of each block of nodes: sorted in parts, then merged."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.disk import release
from cfe_faiss.scale.work import Work

EDGES_PER_BLOCK = 1 << 24
_EDGES_AT_ONCE = 1 << 20
_BYTES_OF_A_KEY = 64  # while a range of rows is merged: the keys of the runs, those left, targets, and sources


def edge_blocks(edges: NDArray[Any]) -> int:
    """Return into how many blocks an edge_index, (2, E), is cut."""
    return -(-int(edges.shape[1]) // EDGES_PER_BLOCK)


def sort_edges(work: Work, block: int) -> Mapping[str, Any]:
    """Write the edges of a block as numbers target * n + source, sorted, each once; both directions if undirected."""
    settings, edges = work.settings, work.inputs["edges"].array()
    n, count = settings.n, 0
    start, stop = block * EDGES_PER_BLOCK, min(edges.shape[1], (block + 1) * EDGES_PER_BLOCK)
    keys = np.empty((1 if settings.directed else 2) * (stop - start), np.int64)
    for first in range(start, stop, _EDGES_AT_ONCE):
        part = np.asarray(edges[:, first : min(first + _EDGES_AT_ONCE, stop)], np.int64)
        if part.size and not 0 <= part.min() <= part.max() < n:
            raise ValueError(f"edges must lie in 0..{n - 1}, got {part.min()} to {part.max()} in edges {first} and on")
        source, target = part[:, part[0] != part[1]]
        ends = [(source, target)] if settings.directed else [(source, target), (target, source)]
        for one, other in ends:
            keys[count : count + len(one)] = other * n + one
            count += len(one)
    release(edges)
    work.write("sort", block, keys=_sorted_once(keys[:count]))
    return {}


def merge_edges(work: Work, block: int, parts: int) -> Mapping[str, Any]:
    """Write the neighbours of a block of nodes, ascending, each once, as CSR."""
    n, (first, stop) = work.settings.n, work.settings.rows(block)
    runs = [work.read("sort", part, "keys") for part in range(parts)]
    most = max(1, work.memory // _BYTES_OF_A_KEY)
    indices = np.empty(_keys_between(runs, n, first, stop), np.int32)
    indptr, count = np.zeros(stop - first + 1, np.int64), 0
    for low, high in _row_ranges(runs, n, (first, stop), most):
        keys = np.empty(_keys_between(runs, n, low, high), np.int64)
        filled = 0
        for run in runs:
            a, b = np.searchsorted(run, [low * n, high * n])
            keys[filled : filled + b - a] = run[a:b]
            filled += b - a
            release(run)
        targets, sources = np.divmod(_sorted_once(keys), n)
        indptr[low - first + 1 : high - first + 1] = count + np.searchsorted(targets, np.arange(low + 1, high + 1))
        indices[count : count + len(sources)] = sources
        count += len(sources)
    work.write("graph", block, indptr=indptr, indices=indices[:count])
    return {"edges": count}


def _sorted_once(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return numbers in ascending order, each once; the array given is sorted in place."""
    keys.sort()
    new = np.empty(len(keys), np.bool_)
    new[:1] = True
    np.not_equal(keys[1:], keys[:-1], out=new[1:])
    return keys[new]


def _keys_between(runs: Sequence[NDArray[np.int64]], n: int, first: int, stop: int) -> int:
    """Return how many keys of the sorted runs belong to rows first to stop - 1."""
    return sum(int(np.diff(np.searchsorted(run, [first * n, stop * n]))[0]) for run in runs)


def _row_ranges(
    runs: Sequence[NDArray[np.int64]], n: int, rows: tuple[int, int], most: int
) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows of at most ``most`` keys each, or of one row, in order."""
    first, stop = rows
    if stop - first <= 1 or _keys_between(runs, n, first, stop) <= most:
        yield rows
        return
    middle = (first + stop) // 2
    yield from _row_ranges(runs, n, (first, middle), most)
    yield from _row_ranges(runs, n, (middle, stop), most)


def neighbors_of(work: Work, block: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return indptr, from 0 on, and indices of the neighbours of a block of nodes."""
    if "indptr" not in work.inputs:
        return work.read("graph", block, "indptr"), work.read("graph", block, "indices")
    first, stop = work.settings.rows(block)
    indptr = np.array(work.inputs["indptr"].array()[first : stop + 1], np.int64)
    indices = work.inputs["indices"].array()[indptr[0] : indptr[-1]]
    return indptr - indptr[0], np.ascontiguousarray(indices, np.int32)
