"""The compiled core (``native/``). Arrays are C-contiguous and of the type given here: nothing is converted."""

from collections.abc import Callable

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

# --- blocks ---

def has_bytes() -> bool:
    """Return whether blocks may hold bytes: not with plain SSE2."""

class Blocks:
    """The rows of lists in blocks of 16, dimension-major; valid while the rows are.

    A row of unknown label is left out, and so is one that is not finite, as a damaged file may hold.

    Parameters
    ----------
    rows
        The rows; the first lists are theirs.
    element
        What the numbers of blocks are: "float", or "byte", with bounds of what rounding to bytes changes.
    rounding_error
        Bounds the error of a float32 product of two rows, or of a row and a unit vector, summed in any order.
    references, reference_starts
        Rows in the lists that follow those of ``rows``, one list after the other, and where each of these begins and,
        last, their end; the latter may be empty.
    wanted
        Lists whose rows are put into blocks, (lists,), or (0,) for all; a search finds the others empty.
    allowed
        Rows that are put into blocks, (n,), or (0,) for all.
    rotation, prefix
        Orthonormal directions, (d, d), to which rows of bytes are rotated, or none, (0, d); and how many dimensions are
        looked at, then, before the length of the others: a multiple of 4.
    threads
        How many threads may be used to make the blocks.

    Raises
    ------
    ValueError
        If the arguments do not fit each other, or bytes are not offered.
    """

    def __init__(
        self,
        rows: Rows,
        element: str,
        rounding_error: float,
        references: NDArray[np.int32],
        reference_starts: NDArray[np.int64],
        wanted: NDArray[np.bool_],
        allowed: NDArray[np.bool_],
        rotation: NDArray[np.float32],
        prefix: int,
        threads: int,
    ) -> None: ...
    def __len__(self) -> int:
        """Return how many rows are in the blocks."""

    @property
    def lists(self) -> int:
        """How many lists there are."""

    @property
    def memory(self) -> int:
        """How many bytes the blocks take."""

    @property
    def element(self) -> str:
        """What the numbers of blocks are, "float" or "byte"."""

    @property
    def rotated(self) -> bool:
        """Whether rows were rotated."""

    def search(
        self,
        X: NDArray[np.float32],
        labels: NDArray[np.int32],
        starts: NDArray[np.int64],
        lists: NDArray[np.int64],
        order: NDArray[np.int64],
        D: NDArray[np.float32],
        I: NDArray[np.int64],
        *,
        deduplicate: bool = False,
        resume: bool = False,
        threads: int = 1,
        progress: Callable[[int], object] | None = None,
    ) -> None:
        """Write the best rows of other labels in the lists of each query's group.

        Parameters
        ----------
        X, labels
            Unit queries in the order of their groups, (nq, d), and their labels, (nq,).
        starts
            First query of each group and, last, nq: (groups + 1,).
        lists
            Lists that each group looks into, (groups, nprobe), -1 for none.
        order
            The row of D and I of each query, (nq,): each a different one.
        D, I
            Similarities and ids, (.., k), best first, of equals the smallest id; places that stay empty hold the least
            float and id -1.
        deduplicate
            Whether a row may be in several of the lists.
        resume
            Whether D and I hold what was found before, in other lists, and is to be kept if it is among the best.
        threads, progress
            How many threads may be used; and what is called with how many parts are done.

        Raises
        ------
        ValueError
            If the arguments do not fit each other.
        """
