"""Codecs: how the vectors of a list are kept, and kernels that read them where FAISS keeps them.

=========  ==================  ==============================================================================
codec      bytes a vector      component i of a row with the codes c
=========  ==================  ==============================================================================
``FLAT``   4 d                 c[i], a float32
``FP16``   2 d                 c[i], a float16 (FAISS's ``QT_fp16``)
``SQ8``    d                   low[i] + (c[i] + 0.5) / 255 * spread[i], c[i] one byte (FAISS's ``QT_8bit``)
=========  ==================  ==============================================================================

``low`` and ``spread`` are the two rows of ``levels``, (2, d); the other codecs have no levels, (2, 0). What a row
decodes to is what the index holds: every similarity is that of decoded rows, with the same bits whichever way a row was
reached.
"""

import platform
from typing import Any

import numba
import numpy as np
from llvmlite import binding, ir  # type: ignore[import-untyped]
from numba import carray, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from cfe_faiss.dot import similarity
from cfe_faiss.jit import kernel

FLAT, FP16, SQ8 = 0, 1, 2

NO_LEVELS = np.empty((2, 0), np.float32)

Floats = NDArray[np.float32]

_HALF_ROUNDING = 2.0**-11  # of a component, as a share of it
# Where FAISS decodes 8 components at once, it rounds once (fused multiply-add), else twice.
_AT_ONCE = 8


def row_size(codec: int, d: int) -> int:
    """Return how many bytes a vector takes."""
    return {FLAT: 4 * d, FP16: 2 * d, SQ8: d}[codec]


def norm_bound(codec: int, levels: Floats) -> float:
    """Bound the norm of what a unit vector decodes to.

    ``SQ8``: a component outside of what the codec was trained for is moved to the nearest end of the range, which makes
    it smaller where the range holds 0, and else at most as large as that end; then it is rounded by spread / 510.
    """
    if codec == FLAT:
        return 1.0
    if codec == FP16:
        return 1.0 + 2 * _HALF_ROUNDING
    low, spread = levels.astype(np.float64)
    ends = np.maximum(np.maximum(low, -(low + spread)), 0)
    return float((np.sqrt(1 + ends @ ends) + np.linalg.norm(spread) / 510) * (1 + 1e-5))


def screening_factor(codec: int, levels: Floats) -> float:
    """Bound the error of a screening product of decoded rows, in units of that of unit rows.

    Both rows may be longer than 1, and a product with 8-bit codes, x·low + sum of (x[i] spread[i] / 255) (c[i] + 0.5),
    may have terms that are larger than itself.
    """
    bound = norm_bound(codec, levels)
    terms = 1.01 * float(np.linalg.norm(levels, axis=1).sum())
    return bound * max(bound, terms)


def _pointer_to(element: Any) -> Any:
    """Return an intrinsic that turns an address, int64, into a pointer to ``element``."""

    def pointer(typingctx: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.inttoptr(args[0], context.get_value_type(types.CPointer(element)))

        return types.CPointer(element)(types.int64), generate

    return intrinsic(pointer)


float_pointer = _pointer_to(types.float32)
double_pointer = _pointer_to(types.float64)
int_pointer = _pointer_to(types.int64)
label_pointer = _pointer_to(types.int32)
bool_pointer = _pointer_to(types.boolean)
byte_pointer = _pointer_to(types.uint8)
_half_pointer = _pointer_to(types.uint16)


def _converts_halves() -> bool:
    """Whether code is compiled for a processor that converts float16; elsewhere LLVM would call what is not there."""
    if numba.config.CPU_NAME is not None or numba.config.CPU_FEATURES is not None:
        return False
    features = binding.get_host_cpu_features()
    return bool(features.get("f16c")) or platform.machine() in ("arm64", "aarch64")


_CONVERTS = _converts_halves()


def _load_half(typingctx: Any, row: Any, i: Any) -> Any:
    """Return an intrinsic that gives element i of a row of float16 as float32; its row is a pointer to uint16."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place, single, integer = builder.gep(*args[:1], args[1:]), ir.FloatType(), ir.IntType(32)
        if _CONVERTS:
            half = builder.load(builder.bitcast(place, ir.HalfType().as_pointer()), align=2)
            return builder.fpext(half, single)
        # The fields of a float16, put where those of a float32 are; its exponent is too small by 112 then.
        bits = builder.zext(builder.load(place, align=2), integer)
        magnitude = builder.shl(builder.and_(bits, integer(0x7FFF)), integer(13))
        scaled = builder.fmul(builder.bitcast(magnitude, single), single(2.0**112))
        sign = builder.shl(builder.and_(bits, integer(0x8000)), integer(16))
        return builder.bitcast(builder.or_(builder.bitcast(scaled, integer), sign), single)

    return types.float32(types.CPointer(types.uint16), types.int64), generate


_half = intrinsic(_load_half)


def _fused(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
    """Return an intrinsic for a * b + c, rounded once."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fma(*args)

    return types.float32(types.float32, types.float32, types.float32), generate


_fma = intrinsic(_fused)


@kernel
def _decode_byte(code: np.uint8, low: np.float32, spread: np.float32, fused: bool) -> np.float32:
    share = (np.float32(code) + np.float32(0.5)) / np.float32(255)
    return np.float32(_fma(share, spread, low)) if fused else np.float32(low + np.float32(share * spread))


@kernel
def decode(codec: int, levels: Floats, address: int, x: Floats) -> None:
    """Decode the row at ``address`` into x."""
    d = x.shape[0]
    if codec == FLAT:
        row = carray(float_pointer(address), (d,))
        for i in range(d):
            x[i] = row[i]
    elif codec == FP16:
        halves = _half_pointer(address)
        for i in range(d):
            x[i] = _half(halves, i)
    else:
        codes = carray(byte_pointer(address), (d,))
        for i in range(d):
            x[i] = _decode_byte(codes[i], levels[0, i], levels[1, i], d % _AT_ONCE == 0)


@kernel
def score(codec: int, levels: Floats, x: Floats, address: int, buffer: Floats) -> np.float32:
    """Return the similarity of x and the row at ``address``; ``buffer``, (d,), is written over."""
    if codec == FLAT:
        return similarity(x, carray(float_pointer(address), (x.shape[0],)))
    decode(codec, levels, address, buffer)
    return similarity(x, buffer)
