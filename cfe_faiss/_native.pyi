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
        pq_code_addresses: NDArray[np.uint64],
        pq_code_size: int,
    ) -> None: ...
    def __len__(self) -> int: ...
    def gather(self, rows: NDArray[np.int64], X: NDArray[np.float32], ids: NDArray[np.int64]) -> None:
        """Write vectors, decoded, and ids of some rows, (m,), to ``X``, (m, d), and ``ids``, (m,).

        Raises
        ------
        IndexError
            If there is no such row.
        """

    def copy_ids(self, ids: NDArray[np.int64]) -> None:
        """Write the ids of all rows, (n,)."""

    def view(self, first: int, stop: int) -> tuple[NDArray[np.float32], NDArray[np.int64]] | None:
        """Return vectors and ids of rows ``first:stop`` where they lie; None if that cannot be.

        It can be for float32 rows of one list, at addresses that NumPy takes.
        """

class PqCodes:
    """A product quantizer: codewords of each part, (M, d / M, 256), component by component; centroids, (nlist, d)."""

    def __init__(self, codewords: NDArray[np.float32], centroids: NDArray[np.float32]) -> None: ...

class ListScan:
    """The lists of all partitions of an index.

    List j < nlist is FAISS's own list j; list nlist + g is the g-th list of references, to rows, of the supplementary
    partitions, ``references[reference_starts[g]:reference_starts[g + 1]]``.

    Raises
    ------
    ValueError
        If the references do not fit the rows or each other.
    """

    def __init__(self, rows: Rows, references: NDArray[np.int32], reference_starts: NDArray[np.int64]) -> None: ...
    def scan(
        self,
        X: NDArray[np.float32],
        labels: NDArray[np.int32],
        lists: NDArray[np.int64],
        allowed: NDArray[np.bool_],
        margin: float,
        D: NDArray[np.float32],
        I: NDArray[np.int64],
    ) -> None:
        """Push the eligible rows of the lists ``lists[q]``, -1 for none, to the heap of each query q.

        A row that is reached through several lists enters a heap once. ``allowed`` is empty, or says of each row
        whether it may be evidence. ``margin`` bounds the error of a float32 product of a row and a query.
        """

    def scan_codes(
        self,
        pq: PqCodes,
        X: NDArray[np.float32],
        labels: NDArray[np.int32],
        lists: NDArray[np.int64],
        allowed: NDArray[np.bool_],
        kept: int,
        D: NDArray[np.float32],
        I: NDArray[np.int64],
    ) -> None:
        """Push those ``kept`` of these rows that are best by their codes; among equal codes smaller ids are kept."""

    def centroids(
        self,
        entries: NDArray[np.int64],
        entry_starts: NDArray[np.int64],
        entry_labels: NDArray[np.int32],
        means: NDArray[np.float32],
        entry_means: NDArray[np.float32],
        threads: int,
    ) -> None:
        """Write the normalised mean of each list, and of each (list, class) centroid that of the other classes.

        Members with a known label count. Entry e is of the class ``entry_labels[e]``; those of list j are
        ``entries[entry_starts[j]:entry_starts[j + 1]]``, each of another class. Means, (lists, d) and (entries, d), are
        zeros before.
        """

# --- exact search ---

def scan_tile(
    S: NDArray[np.float32],
    X: NDArray[np.float32],
    labels_x: NDArray[np.int32],
    Y: NDArray[np.float32],
    labels_y: NDArray[np.int32],
    ids_y: NDArray[np.int64],
    D: NDArray[np.float32],
    I: NDArray[np.int64],
    margin: float,
) -> None:
    """Push the eligible rows of Y to the heaps of the rows of X; S = X @ Y.T screens, to within ``margin``.

    Labels are sorted.
    """

def scan_tile_both(
    S: NDArray[np.float32],
    X: NDArray[np.float32],
    labels_x: NDArray[np.int32],
    ids_x: NDArray[np.int64],
    Y: NDArray[np.float32],
    labels_y: NDArray[np.int32],
    ids_y: NDArray[np.int64],
    D_x: NDArray[np.float32],
    I_x: NDArray[np.int64],
    D_y: NDArray[np.float32],
    I_y: NDArray[np.int64],
    margin: float,
) -> None:
    """Push the rows of Y to the heaps of X and the rows of X to the heaps of Y: each pair is scored once."""

def collect_tile(
    S: NDArray[np.float32],
    X: NDArray[np.float32],
    labels_x: NDArray[np.int32],
    Y: NDArray[np.float32],
    labels_y: NDArray[np.int32],
    threshold: float | np.float32,
    margin: float,
    first: int,
    rows: NDArray[np.int32],
    columns: NDArray[np.int32],
    scores: NDArray[np.float32],
) -> tuple[int, int]:
    """Write out every eligible pair of a tile with similarity >= ``threshold``, from row ``first`` on.

    Returns
    -------
    count, next
        How many pairs were written, and the row to go on with: a row is begun only if all of it would fit.
    """

# --- the similarity join ---

class JoinTree:
    """Blocks of rows and the tree above them; arguments are those of :class:`cfe_faiss.search.join.Blocks`.

    Raises
    ------
    ValueError
        If they do not fit each other.
    """

    def __init__(
        self,
        starts: NDArray[np.int64],
        labels: NDArray[np.int32],
        coarse: NDArray[np.float32],
        fine: NDArray[np.float32],
        low: NDArray[np.float32],
        high: NDArray[np.float32],
        node_labels: NDArray[np.int32],
    ) -> None: ...

class BlockJoin:
    """The search for the pairs of one block with itself and all later ones, some at a time."""

    def __init__(self, tree: JoinTree, block: int) -> None: ...
    @property
    def done(self) -> bool:
        """Whether all pairs were found."""

    @property
    def least_room(self) -> int:
        """For how many pairs there has to be room."""

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """How many rows were tested, and how many pairs met the coarse sketches, the fine sketches and the end."""

    def find(self, product: float | np.float32, distance: float, found: NDArray[np.int64]) -> int:
        """Write more pairs of rows to ``found``, (2, any), and return how many.

        The inner product of their sketches reaches ``product``, their squared distance is at most ``distance``; both
        may change from call to call.
        """

def row_similarities(
    X: NDArray[np.float32],
    Y: NDArray[np.float32],
    first: NDArray[np.int64],
    second: NDArray[np.int64],
    result: NDArray[np.float32],
) -> None:
    """Write the similarity of each X[first[p]] with Y[second[p]] to ``result``."""

# --- running top-k ---

def sort_heaps(D: NDArray[np.float32], I: NDArray[np.int64]) -> None:
    """Turn each row's heap, (nq, k), into FAISS's order in place: best first, then padding with id -1."""

def write_sorted(
    D: NDArray[np.float32],
    I: NDArray[np.int64],
    order: NDArray[np.int64],
    found_D: NDArray[np.float32],
    found_I: NDArray[np.int64],
) -> None:
    """Sort each row's heap q, as :func:`sort_heaps` does, and write it to the row ``order[q]`` of what was found."""

def push(
    D: NDArray[np.float32],
    I: NDArray[np.int64],
    scores: NDArray[np.float32],
    ids: NDArray[np.int64],
    deduplicate: bool = False,
) -> None:
    """Take candidates, (nq, m), into each row's heap, (nq, k), where they belong; with ``deduplicate`` each id once."""
