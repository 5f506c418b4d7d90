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

# --- coarse ranking ---

class ClassCentroids:
    """Means of lists, and of lists without the members of one class: what lists are ranked by.

    How near a list is to a query has the same bits at every instruction set, and whether the query comes alone or with
    others; of equals the list with the smallest number comes first.

    Parameters
    ----------
    means, filled, labels, starts, lists, class_means, class_filled
        Arrays of :class:`cfe_faiss.coarse.class_centroids.Routes`, in their order there.
    cluster_means, cluster_starts, cluster_lists
        Those of its second-level clusters; none where there are few lists.

    Raises
    ------
    ValueError
        If the arguments do not fit each other.
    """

    def __init__(
        self,
        means: NDArray[np.float32],
        filled: NDArray[np.bool_],
        labels: NDArray[np.int32],
        starts: NDArray[np.int64],
        lists: NDArray[np.int64],
        class_means: NDArray[np.float32],
        class_filled: NDArray[np.bool_],
        cluster_means: NDArray[np.float32],
        cluster_starts: NDArray[np.int64],
        cluster_lists: NDArray[np.int64],
    ) -> None: ...
    def __len__(self) -> int: ...
    def rank(self, X: NDArray[np.float32], labels: NDArray[np.int32], found: NDArray[np.int64], threads: int) -> None:
        """Write the nearest lists of each row of X to ``found``, (nq, nprobe), nearest first, -1 for none."""

    def rank_all(
        self, X: NDArray[np.float32], labels: NDArray[np.int32], found: NDArray[np.int64], threads: int
    ) -> None:
        """Write which of the first lists hold anything to ``found``, (nq, lists), nearest first, then -1."""

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

# --- queries that are searched alone ---

class Searcher:
    """The lists of all partitions, searched for queries that are each ranked alone; exact for the lists looked into.

    Parameters
    ----------
    rows
        Rows in float32; they lie in the lists of the first partition.
    references, reference_starts
        The lists of the other partitions: numbers of rows, one list after the other, and where each list begins and,
        last, their end, (lists + 1,).
    centroids
        What lists are ranked by.
    margin
        Bound of the error of a product of float32.

    Raises
    ------
    ValueError
        If the arguments do not fit each other.
    """

    def __init__(
        self,
        rows: Rows,
        references: NDArray[np.int32],
        reference_starts: NDArray[np.int64],
        centroids: ClassCentroids,
        margin: float,
    ) -> None: ...
    def search_single(
        self,
        xq: NDArray[np.float32],
        label: int,
        nprobe: int,
        complete: bool,
        D: NDArray[np.float32],
        I: NDArray[np.int64],
    ) -> bool:
        """Write D and I, (1, k), of a query as it was handed in, (1, d); False where it is to be refused.

        With ``complete``, the search goes on in four times as many lists until the row holds min(k, eligible) results.
        """

    def search(
        self,
        X: NDArray[np.float32],
        labels: NDArray[np.int32],
        nprobe: int,
        complete: bool,
        allowed: NDArray[np.bool_],
        D: NDArray[np.float32],
        I: NDArray[np.int64],
        threads: int,
        progress: Callable[[int], None] | None,
    ) -> None:
        """Write D and I, (nq, k), of unit queries; a query with an unknown label finds nothing.

        ``allowed`` is empty or says of each row whether it may be found, (n,).
        """

# --- k-means ---

def nearest_centroids(
    X: NDArray[np.float32],
    centroids: NDArray[np.float32],
    similarities: NDArray[np.float32],
    nearest: NDArray[np.int32],
    threads: int,
) -> None:
    """Write the largest similarity of each unit row of X with one of the unit centroids, and which has it, (n,) both.

    Of equals the first is taken. The result is the same for any number of threads.
    """

def move_centroids(
    X: NDArray[np.float32],
    weights: NDArray[np.float32],
    centroids: NDArray[np.float32],
    iterations: int,
    threads: int,
) -> float:
    """Move unit centroids, in place, to the normalised weighted means of the rows of X that are nearest to them.

    It is done up to so many times, until no row goes to another centroid; one without rows gets half of those of the
    heaviest. Returns the sum of the similarities of the rows and the centroids before the last.
    """
