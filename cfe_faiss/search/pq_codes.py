"""Screening by product-quantizer codes: asymmetric distance computation, then exact similarities of the best.

A code says for each of M parts of a vector's residual (what is left of it without its list's centroid) which of 256
codewords is nearest. The inner product of a query with a stored vector is then nearly the query's product with the
centroid plus M numbers from a table that is made once for the query (H. Jégou, M. Douze, C. Schmid: "Product
Quantization for Nearest Neighbor Search", IEEE TPAMI 2011, section 4). Codes decide only which vectors are looked at:
what comes back has the similarity of the stored vectors themselves.
"""

import math
from dataclasses import dataclass

import numpy as np
from numba import carray
from numpy.typing import NDArray

from cfe_faiss.checks import UNKNOWN
from cfe_faiss.dot import similarity
from cfe_faiss.jit import kernel
from cfe_faiss.lists import scan
from cfe_faiss.lists.codecs import byte_pointer, float_pointer, int_pointer
from cfe_faiss.lists.scan import eligible_ranges, list_of, offer, worse
from cfe_faiss.lists.storage import Storage

CODEWORDS = 256

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Labels = NDArray[np.int32]


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
        How many vectors are looked at for each result wanted, >= 1.
    """

    codewords: Floats
    centroids: Floats
    k_factor: float

    def probe(
        self,
        storage: Storage,
        X: Floats,
        labels: Labels,
        lists: Ints,
        references: Labels,
        reference_starts: Ints,
        allowed: NDArray[np.bool_],
        D: Floats,
        I: Ints,
    ) -> None:
        """Offer the best rows of ``lists[q]`` to the heap of each query; arguments as of ``scan.scan_lists``."""
        kept = min(storage.n, math.ceil(self.k_factor * D.shape[1]))
        scan_codes(
            X,
            labels,
            lists,
            storage.starts,
            storage.addresses,
            storage.id_addresses,
            storage.code_addresses,
            storage.labels,
            references,
            reference_starts,
            allowed,
            self.codewords,
            self.centroids,
            kept,
            D,
            I,
        )


# --- kernels ----------------------------------------------------------------------------------------------------------


@kernel
def _products(x: Floats, codewords: Floats, table: Floats) -> None:
    """Write the inner product of each part of x with each of its codewords, (M, 256)."""
    width = codewords.shape[1]
    for m in range(codewords.shape[0]):
        table[m] = 0
        for i in range(width):
            component = x[m * width + i]
            for c in range(CODEWORDS):
                table[m, c] += component * codewords[m, i, c]


@kernel
def _looked_up(table: Floats, address: int) -> np.float32:
    """Return the sum of what a code says to look up; its order is fixed, so that equal codes have equal sums."""
    M = table.shape[0]
    code = carray(byte_pointer(address), (M,))
    a, b, c, d = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
    whole = M - M % 4
    for m in range(0, whole, 4):
        a += table[m, code[m]]
        b += table[m + 1, code[m + 1]]
        c += table[m + 2, code[m + 2]]
        d += table[m + 3, code[m + 3]]
    for m in range(whole, M):
        a += table[m, code[m]]
    return np.float32((a + b) + (c + d))


@kernel
def _sift_down(S: Floats, I: Ints, R: Ints) -> None:
    """Restore the heap after its first place, the worst, was replaced."""
    s, i, r = S[0], I[0], R[0]
    place, size = 0, S.shape[0]
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and worse(S[child + 1], I[child + 1], S[child], I[child]):
            child += 1
        if not worse(S[child], I[child], s, i):
            break
        S[place], I[place], R[place] = S[child], I[child], R[child]
        place = child
    S[place], I[place], R[place] = s, i, r


@kernel
def _keep(S: Floats, I: Ints, R: Ints, s: np.float32, i: np.int64, row: np.int64, once: bool) -> None:
    if not worse(S[0], I[0], s, i):
        return
    if once:
        for place in range(I.shape[0]):
            if I[place] == i:
                return
    S[0], I[0], R[0] = s, i, row
    _sift_down(S, I, R)


@kernel
def scan_codes(
    xq: Floats,
    labels_q: Labels,
    lists: Ints,
    starts: Ints,
    addresses: Ints,
    id_addresses: Ints,
    code_addresses: Ints,
    labels: Labels,
    references: Labels,
    reference_starts: Ints,
    allowed: NDArray[np.bool_],
    codewords: Floats,
    centroids: Floats,
    kept: int,
    D: Floats,
    I: Ints,
) -> None:
    """Offer to the heap of each query q the ``kept`` eligible rows of ``lists[q]`` that are best by their codes.

    Lists, references and ``allowed`` are as in ``scan.scan_lists``. Among rows of equal codes smaller ids are kept.
    """
    nlist, d, M = starts.shape[0] - 1, xq.shape[1], codewords.shape[0]
    once = reference_starts.shape[0] > 1
    everything = allowed.shape[0] == 0
    table, to_centroids = np.empty((M, CODEWORDS), np.float32), np.empty(nlist, np.float32)
    S, J, R = np.empty(kept, np.float32), np.empty(kept, np.int64), np.empty(kept, np.int64)
    for q in range(xq.shape[0]):
        label = labels_q[q]
        if label == UNKNOWN:
            continue
        _products(xq[q], codewords, table)
        to_centroids[:] = np.nan  # not known yet
        S[:], J[:], R[:] = scan.PADDING, scan.NO_ID, -1
        for t in range(lists.shape[1]):
            j = lists[q, t]
            if j < 0:
                continue
            if j < nlist:
                first, last = starts[j], starts[j + 1]
                if first == last:
                    continue
                if np.isnan(to_centroids[j]):
                    to_centroids[j] = similarity(xq[q], centroids[j])
                ids = carray(int_pointer(id_addresses[j]), (last - first,))
                a, b, c, e = eligible_ranges(label, labels[first:last])
                for low, high in ((a, b), (c, e)):
                    for i in range(low, high):
                        if everything or allowed[first + i]:
                            s = np.float32(to_centroids[j] + _looked_up(table, code_addresses[j] + M * i))
                            if s >= S[0]:
                                _keep(S, J, R, s, ids[i], first + i, once)
            else:
                for place in range(reference_starts[j - nlist], reference_starts[j - nlist + 1]):
                    row = references[place]
                    if labels[row] == label or labels[row] == UNKNOWN or not (everything or allowed[row]):
                        continue
                    home = list_of(row, starts)
                    i = row - starts[home]
                    if np.isnan(to_centroids[home]):
                        to_centroids[home] = similarity(xq[q], centroids[home])
                    s = np.float32(to_centroids[home] + _looked_up(table, code_addresses[home] + M * i))
                    if s >= S[0]:
                        _keep(S, J, R, s, carray(int_pointer(id_addresses[home]), (i + 1,))[i], np.int64(row), once)
        for place in range(kept):
            if R[place] >= 0:
                home = list_of(R[place], starts)
                y = carray(float_pointer(addresses[home] + 4 * d * (R[place] - starts[home])), (d,))
                offer(D[q], I[q], similarity(xq[q], y), J[place])
