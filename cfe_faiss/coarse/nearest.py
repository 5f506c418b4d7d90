"""The nearest centroid of each of many vectors, exactly: by matrix products, or by bytes.

Bytes are several times as fast where a centroid that is near is known beforehand, as most others never come near it.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import numpy as np
from numpy.typing import NDArray

from cfe_faiss import _native
from cfe_faiss.jit import fast_kernel, kernel
from cfe_faiss.lists.codecs import FLAT, NO_LEVELS
from cfe_faiss.lists.scan import screening_error
from cfe_faiss.parallel import num_threads, run, single_threaded_blas
from cfe_faiss.search import meet, panels, sweep

_ROWS, _CENTROIDS = 256, 1024  # of a tile: 1 MiB of products, which stay in a core's own cache
_FEW = 1 << 25  # multiplications: BLAS would take as long to be kept to one thread
_FEW_CENTROIDS, _AT_ONCE = 32, 4
_WORTH_BYTES = 32  # dimensions; in fewer of them products cost less than to round
_WORTH_PANELS = 96  # centroids; with fewer of them, in any dimension, products cost less than what bytes leave open
_WORTH_GUESSING = 512  # centroids; among fewer of them products cost less than a guess
_ONE_OF = 32  # centroids takes part in a guess

Floats = NDArray[np.float32]
Labels = NDArray[np.int32]


def nearest(X: Floats, centroids: Floats, guess: Labels | None = None) -> tuple[Floats, Labels]:
    """Return the cosine with, and the number of, the nearest centroid of each vector; of equals the first.

    Parameters
    ----------
    X, centroids
        Unit rows (or zero), (n, d) and (nlist, d), nlist >= 1.
    guess
        Numbers of centroids that are probably near, (n,), if known: as those that were nearest before the centroids
        moved. With them it takes less time.

    Returns
    -------
    Cosines, (n,) float32, and numbers, (n,) int32.
    """
    n, d = X.shape
    centroids = np.ascontiguousarray(centroids)  # panels refer to its rows by address
    cosines, numbers = np.full(n, -np.inf, np.float32), np.zeros(n, np.int32)
    in_bytes = meet.HAS_BYTES and d >= _WORTH_BYTES and len(centroids) >= _WORTH_PANELS
    if in_bytes and guess is None and len(centroids) >= _WORTH_GUESSING:
        guess = nearest(X, centroids[::_ONE_OF])[1] * np.int32(_ONE_OF)
    packed = _packed(centroids) if in_bytes and guess is not None else None

    def tile(rows: slice) -> None:
        if guess is not None and packed is not None:
            cosines[rows], numbers[rows] = _improved(X[rows], centroids, packed, guess[rows])
        else:
            _multiply(X[rows], centroids, cosines[rows], numbers[rows])

    work = float(X.size) * len(centroids)
    if work < _FEW and packed is None:
        _multiply_few(X, centroids, cosines, numbers)
        return cosines, numbers
    number = num_threads(work) * -(-n // (_ROWS * num_threads(work)))  # as many for each thread
    size = max(1, -(-n // max(1, number)))
    with blas_for(work):
        run(tile, [slice(first, first + size) for first in range(0, n, size)], work=work)
    return cosines, numbers


@contextmanager
def blas_for(work: float) -> Iterator[None]:
    """Keep BLAS to one thread for so many multiplications, or for several times so many, if it is to do them."""
    with single_threaded_blas() if work >= _FEW else nullcontext():
        yield


def _multiply(X: Floats, centroids: Floats, cosines: Floats, numbers: Labels) -> None:
    products = np.empty((min(_CENTROIDS, len(centroids)), len(X)), np.float32)
    for first in range(0, len(centroids), _CENTROIDS):
        some = centroids[first : first + _CENTROIDS]
        tile = products[: len(some)]
        np.matmul(some, X.T, out=tile)
        _keep_greatest(tile, first, cosines, numbers)


@kernel
def _keep_greatest(tile: Floats, first: int, greatest: Floats, numbers: Labels) -> None:
    """Keep the greatest of each column of what was kept and a tile, whose rows are numbered from ``first`` on."""
    for c in range(tile.shape[0]):
        for r in range(greatest.shape[0]):  # no branches: in vector registers
            greater = tile[c, r] > greatest[r]
            greatest[r] = tile[c, r] if greater else greatest[r]
            numbers[r] = first + c if greater else numbers[r]


@fast_kernel
def _multiply_few(X: Floats, centroids: Floats, cosines: Floats, numbers: Labels) -> None:
    n, d = X.shape
    padded = -(-d // _AT_ONCE) * _AT_ONCE
    columns, c = np.zeros((padded, _ROWS), np.float32), np.zeros(padded, np.float32)
    tile = np.empty((_FEW_CENTROIDS, _ROWS), np.float32)
    for row in range(0, n, _ROWS):
        rows = min(_ROWS, n - row)
        columns[:d, :rows] = X[row : row + rows].T
        for first in range(0, centroids.shape[0], _FEW_CENTROIDS):
            count = min(_FEW_CENTROIDS, centroids.shape[0] - first)
            tile[:] = 0
            for j in range(count):
                c[:d] = centroids[first + j]
                for i in range(0, padded, _AT_ONCE):
                    c0, c1, c2, c3 = c[i], c[i + 1], c[i + 2], c[i + 3]
                    for r in range(_ROWS):
                        x0, x1, x2, x3 = columns[i, r], columns[i + 1, r], columns[i + 2, r], columns[i + 3, r]
                        tile[j, r] += c0 * x0 + c1 * x1 + c2 * x2 + c3 * x3
            _keep_greatest(tile[:count], first, cosines[row : row + rows], numbers[row : row + rows])


Packed = tuple[Floats, NDArray[np.int32], NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]


def _packed(centroids: Floats) -> Packed:
    """Return the centroids as one list of panels, the arguments of :func:`sweep.scan_groups`."""
    nlist, d = centroids.shape
    rows, borders, mean = np.arange(nlist), np.array([0, nlist]), np.empty((1, d), np.float32)
    packed = mean, *panels.room_for(-(-nlist // meet.LANES), d, True)
    panels.pack(
        panels.centre(centroids, borders, mean),
        rows,
        np.zeros(nlist, np.int32),
        centroids.ctypes.data + centroids.itemsize * d * rows,
        rows,
        True,
        panels.words_of(d, True),
        0.0,
        borders,
        0,
        *packed[1:],
    )
    return packed


def _improved(X: Floats, centroids: Floats, packed: Packed, guess: Labels) -> tuple[Floats, Labels]:
    D, I = np.empty((len(X), 1), np.float32), guess.astype(np.int64)[:, None]
    _native.pair_similarities(X, centroids[guess], D[:, 0])
    sweep.scan_groups(
        X,
        X,
        panels.words_of(X.shape[1], True),
        0.0,
        True,
        np.ones(len(X), np.int32),  # another label than that of all centroids
        np.array([0, len(X)]),
        np.zeros((1, 1), np.int64),
        np.array([0, len(packed[1])]),
        *packed,
        FLAT,
        NO_LEVELS,
        screening_error(X.shape[1]),
        False,
        D,
        I,
    )
    return D[:, 0], I[:, 0].astype(np.int32)
