"""From a list of edges on disk to the neighbours of each block of nodes: sorted in parts, then merged."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.temporary import release
from cfe_faiss.graph.edges import as_weights
from cfe_faiss.scale.work import Work

EDGES_PER_BLOCK = 1 << 24
_EDGES_AT_ONCE = 1 << 20
_BYTES_OF_A_KEY = 64  # while a range of rows is merged: the keys of the runs, those left, targets, and sources
_BYTES_OF_A_WEIGHTED_KEY = 128  # the same with weights, their order, and sums for both directions


def edge_blocks(edges: NDArray[Any], weighted: bool) -> int:
    """Return into how many blocks an edge_index, (2, E), is cut."""
    return -(-int(edges.shape[1]) // _block_size(weighted))


def _block_size(weighted: bool) -> int:
    return EDGES_PER_BLOCK // 2 if weighted else EDGES_PER_BLOCK


def sort_edges(work: Work, block: int) -> Mapping[str, Any]:
    """Write the edges of a block as numbers, sorted: of an edge without weight target * n + source, each once.

    With weights a number is twice that, plus 1 in the direction that was not given; the weights stand beside them, and
    those of equal numbers ascend. If the graph is undirected, each edge is written in both directions.
    """
    settings, weighted = work.settings, is_weighted(work)
    start = block * _block_size(weighted)
    stop = min(work.inputs["edges"].array().shape[1], start + _block_size(weighted))
    size, count = (1 if settings.directed else 2) * (stop - start), 0
    keys, weights = np.empty(size, np.int64), np.empty(size if weighted else 0, np.float32)
    for (source, target), of_edges in _edges_of(work, start, stop):
        ends = [(source, target)] if settings.directed else [(source, target), (target, source)]
        for outgoing, (one, other) in enumerate(ends):
            here = slice(count, count + len(one))
            keys[here] = other * settings.n + one
            if of_edges is not None:
                keys[here] += keys[here] + outgoing
                weights[here] = of_edges
            count += len(one)
    if weighted:
        order = np.lexsort((weights[:count], keys[:count]))
        work.write("sort", block, keys=keys[order], weights=weights[order])
    else:
        work.write("sort", block, keys=_sorted_once(keys[:count]))
    return {}


def is_weighted(work: Work) -> bool:
    """Return whether the edges of a job have weights."""
    return "edge_weight" in work.inputs


def _edges_of(work: Work, start: int, stop: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32] | None]]:
    """Yield edges ``start`` to ``stop - 1``, (2, m), and their weights, some at a time, without self-loops."""
    n, edges, weights = work.settings.n, work.inputs["edges"].array(), None
    of_all = work.inputs["edge_weight"].array() if is_weighted(work) else None
    for first in range(start, stop, _EDGES_AT_ONCE):
        some = slice(first, min(first + _EDGES_AT_ONCE, stop))
        part = np.asarray(edges[:, some], np.int64)
        if part.size and not 0 <= part.min() <= part.max() < n:
            raise ValueError(f"edges must lie in 0..{n - 1}, got {part.min()} to {part.max()} in edges {first} and on")
        kept = part[0] != part[1]
        if of_all is not None:
            weights = as_weights("edge_weight", np.asarray(of_all[some]), part.shape[1], first)
            kept &= weights > 0
            weights = weights[kept]
        yield part[:, kept], weights
    release(edges)
    if of_all is not None:
        release(of_all)


def merge_edges(work: Work, block: int, parts: int) -> Mapping[str, Any]:
    """Write the neighbours of a block of nodes, ascending, each once, as CSR, and the weights beside them."""
    n, (first, stop), weighted = work.settings.n, work.settings.rows(block), is_weighted(work)
    runs = [work.read("sort", part, "keys") for part in range(parts)]
    of_runs = [work.read("sort", part, "weights") for part in range(parts)] if weighted else []
    of_row = 2 * n if weighted else n  # how many numbers belong to a row
    most = max(1, work.memory // (_BYTES_OF_A_WEIGHTED_KEY if weighted else _BYTES_OF_A_KEY))
    size = _keys_between(runs, of_row, first, stop)
    indices, weights = np.empty(size, np.int32), np.empty(size if weighted else 0, np.float32)
    indptr, count = np.zeros(stop - first + 1, np.int64), 0
    for low, high in _row_ranges(runs, of_row, (first, stop), most):
        ends = [np.searchsorted(run, [low * of_row, high * of_row]) for run in runs]
        keys = _between(runs, ends)
        if weighted:
            keys, summed = _summed(keys, _between(of_runs, ends), n)
            weights[count : count + len(keys)] = summed
        else:
            keys = _sorted_once(keys)
        targets, sources = np.divmod(keys, n)
        indptr[low - first + 1 : high - first + 1] = count + np.searchsorted(targets, np.arange(low + 1, high + 1))
        indices[count : count + len(sources)] = sources
        count += len(sources)
    beside = {"weights": weights[:count]} if weighted else {}
    work.write("graph", block, indptr=indptr, indices=indices[:count], **beside)
    return {"edges": count}


def _between(runs: Sequence[NDArray[Any]], ends: Sequence[NDArray[np.int64]]) -> NDArray[Any]:
    """Return items a to b - 1 of each mapped run, for its (a, b) in ``ends``, one run after the other."""
    joined = np.empty(sum(int(b - a) for a, b in ends), runs[0].dtype if runs else np.int64)
    filled = 0
    for run, (a, b) in zip(runs, ends, strict=True):
        joined[filled : filled + b - a] = run[a:b]
        filled += b - a
        release(run)
    return joined


def _summed(
    keys: NDArray[np.int64], weights: NDArray[np.float32], n: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the numbers target * n + source, ascending, each once, and one weight for each, as a graph in memory has.

    Those of repeated edges are summed in ascending order, and of both directions, where both are given, it is the mean.
    """
    order = np.lexsort((weights, keys))
    keys, weights = keys[order], weights[order]
    edges = keys >> 1
    new = _differ(edges)
    edges = edges[new]
    places = 2 * (np.cumsum(new) - 1) + (keys & 1)
    sums = np.bincount(places, weights, 2 * len(edges)).reshape(-1, 2)  # adds one after the other, in float64
    total = np.where((sums > 0).all(axis=1), sums.sum(axis=1) / 2, sums.sum(axis=1))
    with np.errstate(over="ignore"):
        summed = total.astype(np.float32)
    if not np.isfinite(summed).all():
        target, source = divmod(int(edges[np.argmax(~np.isfinite(summed))]), n)
        raise ValueError(
            f"edge_weight must be finite in float32 when the weights of repeated edges are summed, got more for the "
            f"edges between {source} and {target}"
        )
    return edges, summed


def _sorted_once(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return numbers in ascending order, each once; the array given is sorted in place."""
    keys.sort()
    return keys[_differ(keys)]


def _differ(keys: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which numbers differ from the one before them; the first one does."""
    new = np.ones(len(keys), np.bool_)
    np.not_equal(keys[1:], keys[:-1], out=new[1:])
    return new


def _keys_between(runs: Sequence[NDArray[np.int64]], of_row: int, first: int, stop: int) -> int:
    """Return how many keys of the sorted runs belong to rows first to stop - 1, of ``of_row`` numbers each."""
    return sum(int(np.diff(np.searchsorted(run, [first * of_row, stop * of_row]))[0]) for run in runs)


def _row_ranges(
    runs: Sequence[NDArray[np.int64]], of_row: int, rows: tuple[int, int], most: int
) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows of at most ``most`` keys each, or of one row, in order."""
    first, stop = rows
    if stop - first <= 1 or _keys_between(runs, of_row, first, stop) <= most:
        yield rows
        return
    middle = (first + stop) // 2
    yield from _row_ranges(runs, of_row, (first, middle), most)
    yield from _row_ranges(runs, of_row, (middle, stop), most)


def neighbors_of(work: Work, block: int) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32] | None]:
    """Return indptr, from 0 on, indices, and weights, if there are any, of the neighbours of a block of nodes."""
    if "indptr" not in work.inputs:
        weights = work.read("graph", block, "weights") if is_weighted(work) else None
        return work.read("graph", block, "indptr"), work.read("graph", block, "indices"), weights
    first, stop = work.settings.rows(block)
    indptr = np.array(work.inputs["indptr"].array()[first : stop + 1], np.int64)
    own = slice(indptr[0], indptr[-1])
    indices = np.ascontiguousarray(work.inputs["indices"].array()[own], np.int32)
    if not is_weighted(work):
        return indptr - indptr[0], indices, None
    weights = np.asarray(work.inputs["edge_weight"].array()[own])
    return indptr - indptr[0], indices, as_weights("edge_weight", weights, len(indices), int(indptr[0]))
