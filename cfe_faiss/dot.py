"""The inner product that decides: float64 sums of float32 products, in an order that is written down.

A compiler may not reorder a sum of floats by itself, and where it is allowed to, the order depends on where the code
stands. So the order is fixed here, by hand, in vectors: 16 partial sums, then a tree, then what is left at the end.
"""

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from cfe_faiss.jit import kernel

_LANES = 8
_FLOATS = ir.VectorType(ir.FloatType(), _LANES)
_DOUBLES = ir.VectorType(ir.DoubleType(), _LANES)
_INT = ir.IntType(64)


def _dot(typingctx: Any, x: Any, y: Any, d: Any) -> Any:
    """Sum x[i] * y[i] for i < d, exactly rounded products, float64 sums (a product of two float32 is exact there)."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        x, y, d = args
        before = builder.block
        head, body, rest, tail_head, tail_body, end = (builder.append_basic_block() for _ in range(6))

        def product(i: Any, wide: bool) -> Any:
            factors = []
            for row in (x, y):
                place = builder.gep(row, [i])
                if wide:
                    place = builder.bitcast(place, _FLOATS.as_pointer())
                kind = _DOUBLES if wide else ir.DoubleType()
                factors.append(builder.fpext(builder.load(place, align=4), kind))
            return builder.fmul(*factors)

        builder.branch(head)
        builder.position_at_end(head)
        i, low, high = builder.phi(_INT), builder.phi(_DOUBLES), builder.phi(_DOUBLES)
        after = builder.add(i, _INT(2 * _LANES))
        builder.cbranch(builder.icmp_signed("<=", after, d), body, rest)

        builder.position_at_end(body)
        next_low = builder.fadd(low, product(i, wide=True))
        next_high = builder.fadd(high, product(builder.add(i, _INT(_LANES)), wide=True))
        builder.branch(head)
        for phi, first, following in (
            (i, _INT(0), after),
            (low, _DOUBLES([0.0] * _LANES), next_low),
            (high, _DOUBLES([0.0] * _LANES), next_high),
        ):
            phi.add_incoming(first, before)
            phi.add_incoming(following, body)

        builder.position_at_end(rest)
        both = builder.fadd(low, high)
        sums = [builder.extract_element(both, ir.IntType(32)(lane)) for lane in range(_LANES)]
        while len(sums) > 1:
            sums = [builder.fadd(a, b) for a, b in zip(sums[::2], sums[1::2], strict=True)]
        builder.branch(tail_head)

        builder.position_at_end(tail_head)
        j, total = builder.phi(_INT), builder.phi(ir.DoubleType())
        builder.cbranch(builder.icmp_signed("<", j, d), tail_body, end)

        builder.position_at_end(tail_body)
        next_total = builder.fadd(total, product(j, wide=False))
        next_j = builder.add(j, _INT(1))
        builder.branch(tail_head)
        for phi, first, following in ((j, i, next_j), (total, sums[0], next_total)):
            phi.add_incoming(first, rest)
            phi.add_incoming(following, tail_body)

        builder.position_at_end(end)
        return total

    pointer = types.CPointer(types.float32)
    return types.float64(pointer, pointer, types.int64), generate


sum_of_products = intrinsic(_dot)


@kernel
def similarity(x: NDArray[np.float32], y: NDArray[np.float32]) -> np.float32:
    """Return the inner product of two contiguous float32 rows: symmetric, and the same bits wherever it is computed."""
    return np.float32(sum_of_products(x.ctypes, y.ctypes, x.shape[0]))


@kernel
def pair_similarities(X: NDArray[np.float32], Y: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the similarity of each row of X with the same row of Y."""
    result = np.empty(X.shape[0], np.float32)
    for i in range(X.shape[0]):
        result[i] = similarity(X[i], Y[i])
    return result
