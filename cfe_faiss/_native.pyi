"""The compiled core (``native/``). Arrays are C-contiguous and of the type given here: nothing is converted."""

import numpy as np
from numpy.typing import NDArray

# --- instruction sets ---

def level() -> str:
    """Return the instruction set in use: "generic", "avx2", "avx512" or "neon"."""

def available_levels() -> list[str]:
    """Return the instruction sets that this machine can run, from the plainest to the best."""

# --- similarity ---

def pair_similarities(X: NDArray[np.float32], Y: NDArray[np.float32], result: NDArray[np.float32]) -> None:
    """Write the similarity of each row of X with the same row of Y, (n, d) both, to ``result``, (n,)."""

# --- rows ---

class Rows:
    """The rows of an index where FAISS keeps them; valid while the index lives and until it changes.

    Row r is place ``r - starts[j]`` of the list j with ``starts[j] <= r < starts[j + 1]``.

    Parameters
    ----------
    d
        Length of a vector.
    codec, levels
        How vectors are kept, see :mod:`cfe_faiss.lists.codecs`; levels flat, (2 * d,) or (0,).
    starts
        First row of each list and, last, the number of rows, (nlist + 1,).
    code_addresses, id_addresses
        Where FAISS keeps the codes and ids of each list, (nlist,): the one place where addresses are handed over.
    labels
        Label of each row, ascending within a list, (n,).

    Raises
    ------
    ValueError
        If the arguments do not fit each other.
    """

    def __init__(
        self,
        d: int,
        codec: int,
        levels: NDArray[np.float32],
        starts: NDArray[np.int64],
        code_addresses: NDArray[np.uint64],
        id_addresses: NDArray[np.uint64],
        labels: NDArray[np.int32],
    ) -> None: ...
    def __len__(self) -> int: ...

# --- running top-k ---

def sort_heaps(D: NDArray[np.float32], I: NDArray[np.int64]) -> None:
    """Turn each row's heap, (nq, k), into FAISS's order in place: best first, then padding with id -1."""

def push(
    D: NDArray[np.float32],
    I: NDArray[np.int64],
    scores: NDArray[np.float32],
    ids: NDArray[np.int64],
    deduplicate: bool = False,
) -> None:
    """Take candidates, (nq, m), into each row's heap, (nq, k), where they belong; with ``deduplicate`` each id once."""
