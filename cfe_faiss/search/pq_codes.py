"""Screening by product-quantizer codes: asymmetric distance computation, then exact similarities of the best.

A code says for each of M parts of a vector's residual (what is left of it without its list's centroid) which of 256
codewords is nearest. The inner product of a query with a stored vector is then nearly the query's product with the
centroid plus M numbers from a table that is made once for the query (H. Jégou, M. Douze, C. Schmid: "Product
Quantization for Nearest Neighbor Search", IEEE TPAMI 2011, section 4). Codes decide only which vectors are scored:
what comes back has the similarity of the stored vectors themselves.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cfe_faiss._native import PqCodes
from cfe_faiss.base.derived import derived

CODEWORDS = 256


@dataclass(frozen=True)
class Screening:
    """What screening needs besides the codes themselves, which ``Storage`` locates.

    Attributes
    ----------
    codewords
        Of each part, (M, d / M, 256): component by component.
    centroids
        Of FAISS's own lists, (nlist, d); residuals are taken from them.
    k_factor
        How many vectors are scored for each result wanted, >= 1.
    """

    codewords: NDArray[np.float32]
    centroids: NDArray[np.float32]
    k_factor: float

    @derived
    def codes(self) -> PqCodes:
        """What the core compares codes with."""
        return PqCodes(np.ascontiguousarray(self.codewords), np.ascontiguousarray(self.centroids))

    def kept(self, width: int, most: int) -> int:
        """Return how many of the best by their codes are scored for ``width`` results, ``most`` of them at most."""
        return min(most, math.ceil(self.k_factor * width))
