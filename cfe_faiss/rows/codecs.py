"""Codecs of the vectors in a list. The core reads codes in place, from FAISS's storage.

=========  ================  ============  =======================================================
codec      bytes per vector  FAISS's type  component i of a row with the codes c
=========  ================  ============  =======================================================
``FLAT``   4 d                             c[i], a float32
``FP16``   2 d               ``QT_fp16``   c[i], a float16
``SQ8``    d                 ``QT_8bit``   low[i] + (c[i] + 0.5) / 255 * spread[i], c[i] one byte
=========  ================  ============  =======================================================

``low`` and ``spread`` are the two rows of ``levels``, (2, d); the other codecs have no levels, (2,
0). The vectors of an index are its decoded rows. Every similarity is computed from decoded rows,
with the same bits in every engine.
"""

from typing import NamedTuple

import faiss
import numpy as np

from cfe_faiss.base.checks import Floats

FLAT = 0
FP16 = 1
SQ8 = 2

NO_LEVELS = np.empty((2, 0), np.float32)


class ScalarCodec(NamedTuple):
    """A scalar codec: the codec, FAISS's name of its type, its size, and its largest number.

    ``size`` is the number of bytes per component.
    """

    codec: int
    type_name: str
    size: int
    has_levels: bool
    largest: float

    @property
    def qtype(self) -> int:
        """Number of its type in ``faiss.ScalarQuantizer``."""
        return int(getattr(faiss.ScalarQuantizer, self.type_name))


SCALAR = {
    "SQ8": ScalarCodec(SQ8, "QT_8bit", 1, True, np.inf),
    "SQfp16": ScalarCodec(FP16, "QT_fp16", 2, False, 65504.0),
}
"""Scalar codecs by their names in descriptions of indexes."""
SCALAR_BY_TYPE = {scalar.qtype: scalar for scalar in SCALAR.values()}
TYPE_NAMES = " or ".join(scalar.type_name for scalar in SCALAR.values())

_HALF_ROUNDING = 2.0**-11  # relative rounding error of a component


def norm_bound(codec: int, levels: Floats, length: float = 1.0) -> float:
    """Bound the norm of a vector up to a length after encoding and decoding.

    ``SQ8``: a component outside the trained range is clipped to the nearest end of the range.
    Clipping makes it smaller if the range contains 0, and otherwise at most as large as that end.
    Rounding then adds at most spread / 510.
    """
    if codec == FLAT:
        return length
    if codec == FP16:  # below length 1 components may be rounded as subnormal numbers
        return length + 2 * _HALF_ROUNDING * max(1.0, length)
    low, spread = levels.astype(np.float64)
    ends = np.maximum(np.maximum(low, -(low + spread)), 0)
    return float((np.sqrt(length**2 + ends @ ends) + np.linalg.norm(spread) / 510) * (1 + 1e-5))


def screening_factor(codec: int, levels: Floats) -> float:
    """Bound the error of a screening product of decoded rows, relative to the bound for unit rows.

    Both rows may be longer than 1, and a product with 8-bit codes, x·low + sum of (x[i] spread[i] /
    255) (c[i] + 0.5), may have terms larger than their sum.
    """
    bound = norm_bound(codec, levels)
    return bound * max(bound, terms_bound(levels))


def terms_bound(levels: Floats) -> float:
    """Bound the norm of the terms of a screening product with 8-bit codes and a unit vector.

    0 for other codecs.
    """
    return 1.01 * float(np.linalg.norm(levels.astype(np.float64), axis=1).sum())


def screening_error(d: int) -> float:
    """Bound |fl(x·y) - similarity(x, y)| for unit rows of length d, summed in float32 in any order.

    The classical bound is d * 2**-24 for the sum of products (Higham, Accuracy and Stability of
    Numerical Algorithms, section 3.1); the rest covers the rounding of the similarity and of the
    norms. It does not cover the steps of a similarity near 1 and -1; see :data:`LEAST_OF_EQUAL`.
    """
    return (d + 16) * 2.0**-24


LEAST_OF_EQUAL = 1 - 11 * 2.0**-24
"""Least rounded product of a unit row with itself.

Equal rows with such a product have similarity 1, and products above
1 and below -1 are clamped, so a screening threshold for cosines must not exceed this number less
its margin; see
``native/kernels/similarity.h``."""
