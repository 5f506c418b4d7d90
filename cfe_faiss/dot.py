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
_EXACT = ("contract",)  # a fused product is the same number: it is exact without, too


def _dot(widened: bool) -> Any:
    """Return an intrinsic that sums x[i] * y[i] for i < d: exact products of float32, in float64 sums.

    With ``widened``, the numbers of x are in float64 already: one row against many is converted once.
    """

    def dot(typingctx: Any, x: Any, y: Any, d: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            x, y, d = args
            before = builder.block
            head, body, rest, tail_head, tail_body, end = (builder.append_basic_block() for _ in range(6))

            def product(i: Any, wide: bool) -> Any:
                factors = []
                for row in (x, y):
                    place = builder.gep(row, [i])
                    kind = _DOUBLES if wide else ir.DoubleType()
                    if widened and row is x:
                        place = builder.bitcast(place, kind.as_pointer())
                        factors.append(builder.load(place, align=8))
                        continue
                    if wide:
                        place = builder.bitcast(place, _FLOATS.as_pointer())
                    factors.append(builder.fpext(builder.load(place, align=4), kind))
                return builder.fmul(*factors, flags=_EXACT)

            builder.branch(head)
            builder.position_at_end(head)
            i, low, high = builder.phi(_INT), builder.phi(_DOUBLES), builder.phi(_DOUBLES)
            after = builder.add(i, _INT(2 * _LANES))
            builder.cbranch(builder.icmp_signed("<=", after, d), body, rest)

            builder.position_at_end(body)
            next_low = builder.fadd(low, product(i, wide=True), flags=_EXACT)
            next_high = builder.fadd(high, product(builder.add(i, _INT(_LANES)), wide=True), flags=_EXACT)
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
            next_total = builder.fadd(total, product(j, wide=False), flags=_EXACT)
            next_j = builder.add(j, _INT(1))
            builder.branch(tail_head)
            for phi, first, following in ((j, i, next_j), (total, sums[0], next_total)):
                phi.add_incoming(first, rest)
                phi.add_incoming(following, tail_body)

            builder.position_at_end(end)
            return total

        of_x = types.CPointer(types.float64 if widened else types.float32)
        return types.float64(of_x, types.CPointer(types.float32), types.int64), generate

    return intrinsic(dot)


sum_of_products, sum_of_wide_products = _dot(False), _dot(True)


@kernel
def similarity(x: NDArray[np.float32], y: NDArray[np.float32]) -> np.float32:
    """Return the inner product of two contiguous float32 rows: symmetric, and the same bits wherever it is computed."""
    return np.float32(sum_of_products(x.ctypes, y.ctypes, x.shape[0]))


@kernel
def as_unit_row(x: NDArray[np.float32], unit: NDArray[np.float32]) -> bool:
    """Write what :func:`cfe_faiss.checks.as_unit_rows` makes of a row, and return whether it is finite."""
    norm = np.float64(np.sqrt(sum_of_products(x.ctypes, x.ctypes, x.shape[0])))
    if norm > 0 and abs(norm - 1) > 3e-7:
        for i in range(x.shape[0]):
            unit[i] = np.float32(x[i] / norm)
    else:
        for i in range(x.shape[0]):
            unit[i] = x[i]
    return bool(np.isfinite(norm))
