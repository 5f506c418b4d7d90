"""Kernels of the similarity join (see ``join``): a walk down a tree of boxes, over sketches of 16 floats.

A sketch fills one or two vector registers, which a compiler does not see by itself: the two innermost steps are
written for vectors of 16 floats by hand, as in :mod:`cfe_faiss.dot`.
"""

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from cfe_faiss.checks import UNKNOWN
from cfe_faiss.dot import similarity
from cfe_faiss.jit import fast_kernel, kernel

COARSE = 16
"""Length of a coarse sketch, and how many floats a vector holds."""

_FLOAT, _INT = ir.FloatType(), ir.IntType(64)
_VECTOR = ir.VectorType(_FLOAT, COARSE)
_ANY = ir.Constant(_VECTOR, ir.Undefined)
_POINTER = types.CPointer(types.float32)

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Labels = NDArray[np.int32]


def _load(builder: Any, pointer: Any) -> Any:
    return builder.load(builder.bitcast(pointer, _VECTOR.as_pointer()), align=4)


def _larger(builder: Any, x: Any, y: Any) -> Any:
    return builder.select(builder.fcmp_ordered(">", x, y), x, y)


def _shuffled(builder: Any, x: Any, lanes: list[int]) -> Any:
    return builder.shuffle_vector(x, _ANY, ir.Constant(ir.VectorType(ir.IntType(32), COARSE), lanes))


def _fold(builder: Any, x: Any, combine: Any) -> Any:
    """Combine the lanes of a vector into one number."""
    width = COARSE
    while width > 1:
        width //= 2
        x = combine(x, _shuffled(builder, x, [(lane + width) % COARSE for lane in range(COARSE)]))
    return builder.extract_element(x, ir.IntType(32)(0))


def _gap_of(typingctx: Any, low: Any, high: Any, other_low: Any, other_high: Any) -> Any:
    """Return the squared distance of two boxes: the sum over axes of max(0, low - other_high, other_low - high)**2."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        low, high, other_low, other_high = (_load(builder, pointer) for pointer in args)
        apart = _larger(builder, builder.fsub(low, other_high), builder.fsub(other_low, high))
        apart = _larger(builder, apart, ir.Constant(_VECTOR, [0.0] * COARSE))
        return _fold(builder, builder.fmul(apart, apart), builder.fadd)

    return types.float32(_POINTER, _POINTER, _POINTER, _POINTER), generate


def _products_of(typingctx: Any, z: Any, columns: Any, stride: Any, count: Any, scores: Any) -> Any:
    """Write the inner products of a sketch with ``count`` columns of a (16, stride) array, and return the largest.

    Columns are taken 16 at a time, so those up to the next multiple of 16 are multiplied, too.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        z, columns, stride, count, scores = args
        coordinates = []
        for k in range(COARSE):
            value = builder.insert_element(_ANY, builder.load(builder.gep(z, [_INT(k)])), ir.IntType(32)(0))
            coordinates.append(_shuffled(builder, value, [0] * COARSE))
        before = builder.block
        head, body, end = (builder.append_basic_block() for _ in range(3))
        builder.branch(head)

        builder.position_at_end(head)
        c, largest = builder.phi(_INT), builder.phi(_VECTOR)
        builder.cbranch(builder.icmp_signed("<", c, count), body, end)

        builder.position_at_end(body)
        place, sums = builder.gep(columns, [c]), []
        for k, coordinate in enumerate(coordinates):
            product = builder.fmul(coordinate, _load(builder, place), flags=("contract",))
            place = builder.gep(place, [stride])
            if k < 4:  # four sums side by side, as each waits for its last addition
                sums.append(product)
            else:
                sums[k % 4] = builder.fadd(sums[k % 4], product, flags=("contract",))
        total = builder.fadd(builder.fadd(sums[0], sums[1]), builder.fadd(sums[2], sums[3]))
        builder.store(total, builder.bitcast(builder.gep(scores, [c]), _VECTOR.as_pointer()), align=4)
        next_largest, next_c = _larger(builder, total, largest), builder.add(c, _INT(COARSE))
        builder.branch(head)
        c.add_incoming(_INT(0), before)
        c.add_incoming(next_c, body)
        largest.add_incoming(ir.Constant(_VECTOR, [float("-inf")] * COARSE), before)
        largest.add_incoming(next_largest, body)

        builder.position_at_end(end)
        return _fold(builder, largest, lambda x, y: _larger(builder, x, y))

    return types.float32(_POINTER, _POINTER, types.int64, types.int64, _POINTER), generate


_gap = intrinsic(_gap_of)
_products = intrinsic(_products_of)


@fast_kernel
def _fine_product(x: Floats, y: Floats) -> np.float32:
    total = np.float32(0)
    for k in range(x.shape[0]):
        total += x[k] * y[k]
    return total


@kernel
def _close_rows(rows: Ints, Z: Floats, low: Floats, high: Floats, limit: float, close: Ints) -> int:
    """Write those of the rows whose sketches are within the limit of a box, and return how many they are."""
    count = 0
    for row in rows:
        close[count] = row
        count += _gap(Z[row].ctypes, Z[row].ctypes, low.ctypes, high.ctypes) <= limit
    return count


@kernel
def _box(rows: Ints, Z: Floats, low: Floats, high: Floats) -> None:
    low[:], high[:] = Z[rows[0]], Z[rows[0]]
    for row in rows[1:]:
        for k in range(COARSE):
            low[k], high[k] = min(low[k], Z[row, k]), max(high[k], Z[row, k])


@kernel
def walk(
    i: int,
    starts: Ints,
    labels: Labels,
    coarse: Floats,
    fine: Floats,
    low: Floats,
    high: Floats,
    node_labels: Labels,
    screen: np.float32,
    limit: float,
    stack: Ints,
    depths: Ints,
    top: int,
    near: Ints,
    counts: Ints,
    found: Ints,
    seen: Ints,
) -> tuple[int, int]:
    """Walk down the tree from where the last call stopped, and write the pairs of block i that reach the screen.

    ``stack[:top]`` are the nodes to visit, at ``depths``. ``near[e]``, of which ``counts[e]``, are the rows of block i
    within the limit of the box of the node at depth e (1 for the root) on the way down; at depth 0 they are all.

    Returns
    -------
    count, top
        How many pairs were written to ``found``, (2, ...), and how many nodes are left; none: the walk is over.
    """
    number = starts.shape[0] - 1
    me = number - 1 + i
    size = near.shape[1] + 1  # the sizes of two blocks differ by one at most
    close = np.empty(size + 1, np.int64)
    padded = (size + COARSE - 1) // COARSE * COARSE  # what is left over of other columns cannot but look good
    columns, scores = np.zeros((COARSE, padded), np.float32), np.empty(padded, np.float32)
    tight_low, tight_high = np.empty(COARSE, np.float32), np.empty(COARSE, np.float32)
    count = 0
    while top > 0:
        node, depth = stack[top - 1], depths[top - 1]
        if node >= number - 1 and count + size * size > found.shape[1]:
            return count, top
        top -= 1
        last = node
        while last < number - 1:
            last = 2 * last + 2
        if last < me or (node_labels[me] != UNKNOWN and node_labels[node] == node_labels[me]):
            continue
        if _gap(low[me].ctypes, high[me].ctypes, low[node].ctypes, high[node].ctypes) > limit:
            continue
        seen[0] += counts[depth - 1]
        rows = near[depth - 1, : counts[depth - 1]]
        counts[depth] = _close_rows(rows, coarse, low[node], high[node], limit, close)
        near[depth, : counts[depth]] = close[: counts[depth]]
        if counts[depth] == 0:
            continue
        if node < number - 1:
            stack[top], stack[top + 1] = 2 * node + 2, 2 * node + 1
            depths[top], depths[top + 1] = depth + 1, depth + 1
            top += 2
            continue
        rows = near[depth, : counts[depth]]
        first, stop = starts[node - number + 1], starts[node - number + 2]
        _box(rows, coarse, tight_low, tight_high)
        seen[0] += stop - first
        width = _close_rows(np.arange(first, stop), coarse, tight_low, tight_high, limit, close)
        for c in range(width):
            for k in range(COARSE):
                columns[k, c] = coarse[close[c], k]
        seen[1] += rows.shape[0] * width
        for row in rows:
            if _products(coarse[row].ctypes, columns.ctypes, padded, width, scores.ctypes) < screen:
                continue
            for c in range(width):
                other = close[c]
                if scores[c] < screen or labels[row] == labels[other] or (node == me and other <= row):
                    continue
                seen[2] += 1
                norms = coarse[row, COARSE - 1] * coarse[other, COARSE - 1]
                if scores[c] - norms + _fine_product(fine[row], fine[other]) >= screen:
                    found[0, count], found[1, count] = row, other
                    count += 1
                    seen[3] += 1
    return count, top


@kernel
def similarities(X: Floats, Y: Floats, first: Ints, second: Ints) -> Floats:
    """Return the similarity of each X[first[p]] with Y[second[p]]."""
    result = np.empty(first.shape[0], np.float32)
    for p in range(first.shape[0]):
        result[p] = similarity(X[first[p]], Y[second[p]])
    return result
