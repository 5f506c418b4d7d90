"""One step of the KS propagation: in memory, or by blocks of rows of matrices that lie in files."""

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from cfe_faiss import parallel
from cfe_faiss.disk import release
from cfe_faiss.graph import Graph, balanced_rows, offsets
from cfe_faiss.jit import fast_kernel, kernel

# Neighbours are summed in float32 in groups of this size and the groups in float64, so that the rounding error of a
# node with a million neighbours stays that of a node with a few hundred.
_GROUP = 256
# Rows of neighbours are asked for this far ahead: on random graphs the pass is bound by the latency of memory.
_AHEAD = 4
_CACHE_LINE = 16  # float32 values
_VALUES_PER_TASK = 1 << 20


def row_blocks(n: int, d: int) -> list[tuple[int, int]]:
    """Cut the rows of an (n, d) matrix into ranges (first, stop) for :func:`cfe_faiss.parallel.run`."""
    step = max(_VALUES_PER_TASK // d, 1)
    return [(first, min(first + step, n)) for first in range(0, n, step)]


def step_in_memory(
    graph: Graph,
    unit: NDArray[np.float32],
    norms: NDArray[np.float32],
    alpha: float,
    aggregate: NDArray[np.float32],
    new_unit: NDArray[np.float32],
    title: str | None,
) -> NDArray[np.float32]:
    """Fill ``new_unit``, add to ``aggregate``, and return the new norms."""
    # Plain arrays, since Numba compiles memory maps and other subclasses apart.
    indptr, indices, aggregate = np.asarray(graph.indptr), np.asarray(graph.indices), np.asarray(aggregate)
    new_norms = np.empty_like(norms)

    def step(nodes: tuple[int, int]) -> None:
        first, stop = nodes
        own = slice(first, stop)
        bounds, sums = indptr[first : stop + 1], _zeros(stop - first, unit.shape[1])
        _gather(bounds, bounds[:-1], bounds[1:], indices, 0, unit, norms, unit[own], *sums)
        _finish(bounds, alpha, unit[own], norms[own], sums[1], aggregate[own], new_unit[own], new_norms[own])
        release(graph.indices, aggregate)

    parallel.run(step, balanced_rows(indptr), work=2.0 * unit.shape[1] * len(indices), progress=title)
    return new_norms


def step_by_blocks(
    graph: Graph,
    unit: NDArray[np.float32],
    norms: NDArray[np.float32],
    alpha: float,
    aggregate: NDArray[np.float32],
    new_unit: NDArray[np.float32],
    title: str | None,
    memory: int,
) -> NDArray[np.float32]:
    """Do what ``step_in_memory`` does, with about ``memory`` bytes of the matrices in memory at a time.

    The sums of a block of nodes stay in memory while the rows of all nodes pass by in blocks, ascending as the
    neighbours do: so every sum is taken in the same order, and comes out the same to the last bit.
    """
    n, d = unit.shape
    indptr, indices = np.asarray(graph.indptr), np.asarray(graph.indices)
    new_norms = np.empty_like(norms)
    # Of a node its row, two sums (one in float64) and its neighbours: three quarters of the memory are for these.
    height = min(max(3 * memory // 4 // (16 * d + 4 * len(indices) // n + 32), 1), n)
    width = min(max(memory // 4 // (4 * d), 1), n)
    all_own, all_others = np.empty((height, d), np.float32), np.empty((width, d), np.float32)

    for first in range(0, n, height):
        stop = min(first + height, n)
        own, sums = all_own[: stop - first], _zeros(stop - first, d)
        own[:] = unit[first:stop]
        bounds = indptr[first : stop + 1]
        begin, end = bounds[:-1].copy(), bounds[1:].copy()
        for low in range(0, n, width):
            high = min(low + width, n)
            others = all_others[: high - low]
            others[:] = unit[low:high]
            release(unit)
            _find(high, indices, begin, bounds[1:], end)
            bar = None if title is None else f"{title}: nodes up to {stop} of {n}, neighbours up to {high} of {n}"
            _gather_block(bounds, begin, end, indices, low, others, norms, own, sums, bar)
            begin[:] = end
        release(graph.indices)
        rows = slice(first, stop)
        _finish_block(bounds, alpha, own, norms[rows], sums[1], aggregate[rows], new_unit[rows], new_norms[rows])
    return new_norms


def _gather_block(
    bounds: NDArray[np.int64],
    begin: NDArray[np.int64],
    end: NDArray[np.int64],
    indices: NDArray[np.int32],
    low: int,
    others: NDArray[np.float32],
    norms: NDArray[np.float32],
    own: NDArray[np.float32],
    sums: tuple[NDArray[np.float32], NDArray[np.float64]],
    title: str | None,
) -> None:
    def gather(rows: tuple[int, int]) -> None:
        first, stop = rows
        at = slice(first, stop)
        _gather(
            bounds[first : stop + 1], begin[at], end[at], indices, low, others, norms, own[at], sums[0][at], sums[1][at]
        )

    lengths = end - begin
    work = 2.0 * own.shape[1] * int(lengths.sum())
    parallel.run(gather, balanced_rows(offsets(lengths)), work=work, progress=title)


def _finish_block(bounds: NDArray[np.int64], alpha: float, *by_row: NDArray[Any]) -> None:
    def finish(rows: tuple[int, int]) -> None:
        first, stop = rows
        _finish(bounds[first : stop + 1], alpha, *(np.asarray(array[first:stop]) for array in by_row))
        release(*by_row)

    parallel.run(finish, row_blocks(*by_row[0].shape), work=by_row[0].size)


def _zeros(n: int, d: int) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    return np.zeros((n, d), dtype=np.float32), np.zeros((n, d), dtype=np.float64)


def _prefetch(typing_context: Any, matrix: Any, row: Any, column: Any) -> Any:
    """Ask for the cache line of one value to be loaded, without waiting for it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = signature.args[0]
        index = [
            context.cast(builder, a, t, types.intp) for a, t in zip(arguments[1:], signature.args[1:], strict=True)
        ]
        array = context.make_array(kind)(context, builder, arguments[0])
        place = cgutils.get_item_pointer(context, builder, kind, array, index, wraparound=False, boundscheck=False)
        number, pointer = ir.IntType(32), ir.IntType(8).as_pointer()
        function = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        prefetch = cgutils.get_or_insert_function(builder.module, function, "llvm.prefetch.p0")
        # LLVM's words for: to read, keep in all levels of the cache, data.
        flags = [ir.Constant(number, flag) for flag in (0, 3, 1)]
        builder.call(prefetch, [builder.bitcast(place, pointer), *flags])

    return types.void(matrix, row, column), generate


_request = cast(Callable[[NDArray[np.float32], int, int], None], intrinsic(_prefetch))


@fast_kernel
def normalise(rows: NDArray[np.float32], norms: NDArray[np.float64]) -> None:
    """Divide each row by its norm in place; zero rows stay zero."""
    for v in range(rows.shape[0]):
        square = 0.0
        for i in range(rows.shape[1]):
            square += np.float64(rows[v, i]) * np.float64(rows[v, i])
        norms[v] = np.sqrt(square)
        scale = 1.0 / norms[v] if square > 0.0 else 0.0
        for i in range(rows.shape[1]):
            rows[v, i] = np.float32(rows[v, i] * scale)


@kernel
def _find(
    high: int,
    indices: NDArray[np.int32],
    begin: NDArray[np.int64],
    stop: NDArray[np.int64],
    end: NDArray[np.int64],
) -> None:
    """Set end[v] to the place of the first neighbour of v that is at least ``high``."""
    for v in range(len(begin)):
        low, top = begin[v], stop[v]
        while low < top:
            middle = (low + top) // 2
            if indices[middle] < high:
                low = middle + 1
            else:
                top = middle
        end[v] = low


@fast_kernel
def _gather(
    indptr: NDArray[np.int64],
    begin: NDArray[np.int64],
    end: NDArray[np.int64],
    indices: NDArray[np.int32],
    low: int,
    others: NDArray[np.float32],
    norms: NDArray[np.float32],
    own: NDArray[np.float32],
    part: NDArray[np.float32],
    total: NDArray[np.float64],
) -> None:
    """Add cos(x_v, x_u) x_u to ``total`` for some nodes v, and for u their neighbours in begin[v]..end[v]-1.

    x_u is ``norms[u] * others[u - low]``, of unit rows, so a cosine is a plain inner product. What belongs to a group
    of neighbours that goes on after end[v] waits in ``part``.
    """
    d = own.shape[1]
    last = len(indices) - 1
    for v in range(len(own)):
        row, group = own[v], part[v]
        first = begin[v]
        while first < end[v]:
            whole = min(first + _GROUP - (first - indptr[v]) % _GROUP, indptr[v + 1])
            stop = min(whole, end[v])
            for e in range(first, stop):
                ahead = indices[min(e + _AHEAD, last)] - low
                for i in range(0, d, _CACHE_LINE):
                    _request(others, ahead, i)
                other = others[indices[e] - low]
                cosine = np.float32(0.0)
                for i in range(d):
                    cosine += row[i] * other[i]
                weight = cosine * norms[indices[e]]
                for i in range(d):
                    group[i] += weight * other[i]
            first = stop
            if stop == whole:
                for i in range(d):
                    total[v, i] += group[i]
                    group[i] = 0.0


@fast_kernel
def _finish(
    indptr: NDArray[np.int64],
    alpha: float,
    own: NDArray[np.float32],
    norms: NDArray[np.float32],
    total: NDArray[np.float64],
    aggregate: NDArray[np.float32],
    new_unit: NDArray[np.float32],
    new_norms: NDArray[np.float32],
) -> None:
    """Make the new rows of some nodes from the sums over their neighbours, and add them to ``aggregate``."""
    d = own.shape[1]
    for v in range(len(own)):
        keep = alpha * norms[v]
        share = (1.0 - alpha) / max(indptr[v + 1] - indptr[v], 1)
        square = 0.0
        for i in range(d):
            new = keep * own[v, i] + share * total[v, i]
            total[v, i] = new
            aggregate[v, i] += np.float32(new)
            square += new * new
        norm = np.sqrt(square)
        new_norms[v] = norm
        scale = 1.0 / norm if norm > 0.0 else 0.0
        for i in range(d):
            new_unit[v, i] = np.float32(total[v, i] * scale)
