"""The compiled core (``native/``). Arrays are C-contiguous and of the type given here: nothing is converted."""

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Generic, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")
_Step = tuple[Callable[..., Any], tuple[Any, ...]]

INTERFACE: str
"""SHA-256 of this file when the core was compiled, in hexadecimal digits."""

# --- instruction sets ---

def level() -> str:
    """Return the instruction set in use: "generic", "avx2", "avx512" or "neon"."""

def available_levels() -> list[str]:
    """Return the instruction sets that this machine can run, from the plainest to the best."""

# --- checks and norms ---

def first_not_finite(X: NDArray[np.float32]) -> int:
    """Return the first row of X, (n, d), that is not finite, or -1."""

def unit_rows(X: NDArray[np.float32], unit: NDArray[np.float32]) -> int:
    """Write the rows of X, (n, d), divided by their norms to ``unit``; zero and unit rows keep their bits.

    It ends at the first row that is not finite, and returns that one, or -1.
    """

def normalise_rows(
    rows: NDArray[np.float32],
    norms: NDArray[np.float64],
    threads: int,
    release: Callable[[], object] | None = None,
) -> None:
    """Divide each row by its norm in place; zero rows stay zero. Write the norms, (n,): not finite where a row is not.

    ``release`` is called after each task of the calling thread: it gives back the memory that memory maps take.
    """

# --- graph ---

class CsrGraph:
    """A view of a graph's arrays, which it checks and keeps alive; they must not change.

    Parameters
    ----------
    indptr, indices
        The neighbours of v are ``indices[indptr[v]:indptr[v + 1]]``: ascending, without v itself.
    threads
        How many threads check them.
    weights
        Weight of each edge in ``indices``: positive and finite.
    release
        Called after each task of the calling thread: it gives back the memory that memory maps take.
    nodes, first, num_nodes
        The numbers of the nodes in a graph with ``num_nodes`` nodes; for None ``first``, ``first`` + 1, ... By default,
        the nodes are all of the graph.

    Raises
    ------
    ValueError
        If the arrays do not describe a graph.
    """

    def __init__(
        self,
        indptr: NDArray[np.int64],
        indices: NDArray[np.int32],
        threads: int,
        weights: NDArray[np.float32] | None = None,
        release: Callable[[], object] | None = None,
        nodes: NDArray[np.int64] | None = None,
        first: int = 0,
        num_nodes: int | None = None,
    ) -> None: ...
    @property
    def num_edges(self) -> int: ...
    def step(
        self,
        alpha: float,
        threads: int,
        unit: NDArray[np.float32],
        lengths: NDArray[np.float32],
        aggregate: NDArray[np.float32],
        new_unit: NDArray[np.float32],
        new_lengths: NDArray[np.float32],
        progress: Callable[[int], object] | None = None,
        release: Callable[[], object] | None = None,
    ) -> None:
        """Take a step of the KS propagation; ``alpha`` is the share of a node's own vector.

        It leads from unit rows, (n, d), and lengths, (n,), of all nodes to new ones of the nodes, and adds their
        vectors to ``aggregate``. The number of threads does not change the results. ``progress`` is told how many
        entries of the indices have been read; ``release`` is called after each task of the calling thread.

        Raises
        ------
        ValueError
            If the shapes do not fit the graph, or ``new_unit`` is ``unit``.
        """

def gather_lists(
    starts: NDArray[np.int64],
    sizes: NDArray[np.int64],
    indices: NDArray[np.int32],
    weights: NDArray[np.float32] | None,
    nodes: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
    """Return indptr, indices and weights of the lists of some nodes; no weights for None.

    The list of node v has ``sizes[v]`` entries from ``starts[v]`` on.
    """

# --- propagation ---

class BlockStep:
    """A step of some nodes, to which the rows of all nodes come in blocks: the same bits as all at once.

    Parameters
    ----------
    graph, first
        The graph of the nodes, and the first of them.
    own
        Unit rows of the nodes, (m, d); copied.
    threads
        Number of threads; it does not change the results.
    """

    def __init__(
        self, graph: CsrGraph, first: int, own: NDArray[np.float32], threads: int
    ) -> None: ...
    def gather(
        self,
        rows: NDArray[np.float32],
        low: int,
        lengths: NDArray[np.float32],
        release: Callable[[], object] | None = None,
    ) -> None:
        """Take the unit rows of the nodes ``low``, ``low`` + 1, ..., which follow the previous block.

        ``lengths`` has the length of every node's vector, (num_nodes,). ValueError if another block is next.
        """

    def finish(
        self,
        alpha: float,
        lengths: NDArray[np.float32],
        aggregate: NDArray[np.float32],
        new_unit: NDArray[np.float32],
        new_lengths: NDArray[np.float32],
        release: Callable[[], object] | None = None,
    ) -> None:
        """Write the nodes' new unit rows, (m, d), and lengths, (m,), and add their vectors to ``aggregate``, (m, d).

        ``lengths`` are the nodes' own before the step, (m,). ValueError if blocks are missing.
        """

# --- rows ---

class ListChecks:
    """Checksums of the lists in a mapped file, each compared when the list is read for the first time.

    Parameters
    ----------
    source
        Name of the file in error messages.
    sums
        CRC-32 of the codes and of the ids of each list, flat, (2 * nlist,); (0,) where none are known.
    """

    def __init__(self, source: str, sums: NDArray[np.uint32]) -> None: ...

class Rows:
    """The rows of an index where FAISS keeps them; valid while the index lives and until it changes.

    Row r is place ``r - starts[j]`` of the list j with ``starts[j] <= r < starts[j + 1]``. See :meth:`Table.rows`.
    """

    def __len__(self) -> int: ...
    @property
    def metric(self) -> int:
        """Number of the metric, see :mod:`cfe_faiss.rows.metric`."""

    def labels(self) -> NDArray[np.int32]:
        """Return the label of each row, (n,); not to be written to."""

    def starts(self) -> NDArray[np.int64]:
        """Return the first row of each list and, last, the number of rows, (nlist + 1,); not to be written to."""

    def gather(
        self, rows: NDArray[np.int64], X: NDArray[np.float32], ids: NDArray[np.int64]
    ) -> None:
        """Write vectors, decoded, and ids of some rows, (m,), to ``X``, (m, d), and ``ids``, (m,).

        Raises
        ------
        IndexError
            If there is no such row.
        """

    def copy_ids(self, ids: NDArray[np.int64]) -> None:
        """Write the ids of all rows, (n,)."""

    def check_by(self, parts: Sequence[ListChecks], owners: NDArray[np.int64]) -> None:
        """Let ``parts[owners[j]]`` check list j, (nlist,), when it is read; ValueError names a list that is damaged."""

    def check_lists(self, lists: NDArray[np.int64] | None = None) -> None:
        """Check some lists now, or all; numbers below 0 are passed over."""

    def check_ids(self) -> None:
        """Check the ids of all lists now."""

    def checksums(self) -> NDArray[np.uint32]:
        """Return the CRC-32 of the codes and of the ids of each list, flat, (2 * nlist,)."""

    def view(self, first: int, stop: int) -> tuple[NDArray[np.float32], NDArray[np.int64]] | None:
        """Return views of the vectors and ids of rows ``first:stop``; None if no view is possible.

        It can be for float32 rows of one list, at addresses that NumPy takes.
        """

class PqCodes:
    """A product quantizer: codewords of each part, (M, d / M, 256), component by component; centroids, (nlist, d)."""

    def __init__(self, codewords: NDArray[np.float32], centroids: NDArray[np.float32]) -> None: ...

class Filter:
    """Predicate of a search: the rows that each query may find.

    Parameters
    ----------
    policy
        0: rows of known labels other than the query's; 1: of its own label; 2: all, also of unknown label.
    excluded_labels, excluded_ids
        Excluded labels and ids of each query, (nq, any) both, -1 for none; None for no exclusions.
    low, high
        Smallest and largest score of a result.
    allowed
        Rows of the index that may be found, (n,) bool; None for all. Not in tiles.
    values, limits, most_changed
        Numbers of each query, (nq, c) float64, compared with those of rows: the first columns must differ within
        ``limits``, (.., 2) float64, and at most ``most_changed`` of the others may differ. For tiles only.
    """

    def __init__(
        self,
        policy: int,
        excluded_labels: NDArray[np.int32] | None,
        excluded_ids: NDArray[np.int64] | None,
        low: float,
        high: float,
        allowed: NDArray[np.bool_] | None = None,
        values: NDArray[np.float64] | None = None,
        limits: NDArray[np.float64] | None = None,
        most_changed: int = 0,
    ) -> None: ...

class ListScan:
    """The lists of all partitions of an index.

    List j < nlist is FAISS's own list j; list nlist + g is the g-th list of references, to rows, of the supplementary
    partitions, ``references[reference_starts[g]:reference_starts[g + 1]]``.

    Raises
    ------
    ValueError
        If the references do not fit the rows or each other.
    """

    def __init__(
        self, rows: Rows, references: NDArray[np.int32], reference_starts: NDArray[np.int64]
    ) -> None: ...
    def scan(
        self,
        X: NDArray[np.float32],
        labels: NDArray[np.int32],
        lists: NDArray[np.int64],
        margin: float,
        D: NDArray[np.float32],
        I: NDArray[np.int64],
        rules: Filter | None = None,
    ) -> None:
        """Write the best of the eligible rows of the lists ``lists[q]``, -1 for none, for each query q.

        A row that is reached through several lists is found once. ``margin`` bounds the error of a float32 product of
        a row and a query.
        """

    def scan_codes(
        self,
        pq: PqCodes,
        X: NDArray[np.float32],
        labels: NDArray[np.int32],
        lists: NDArray[np.int64],
        kept: int,
        D: NDArray[np.float32],
        I: NDArray[np.int64],
        rules: Filter | None = None,
    ) -> None:
        """Write the best of those ``kept`` rows that are best by their codes; of equal codes smaller ids are kept."""

    def centroids(
        self,
        starts: NDArray[np.int64],
        labels: NDArray[np.int32],
        means: NDArray[np.float32],
        class_means: NDArray[np.float32],
        center: NDArray[np.float32],
        policy: int,
        threads: int,
    ) -> None:
        """Write the mean of each list, and that of each (list, class) centroid.

        The latter is of the rows that queries of the class may find by the policy of :class:`Filter`: of the other
        classes, or of the class. Rows with a known label count; with policy 2, all rows. List j has centroids of the
        distinct classes ``labels[starts[j]:starts[j + 1]]``. Means, (lists, length) and (labels, length), are zeros
        before; see :attr:`cfe_faiss.rows.snapshot.Snapshot.ranking_length`. ``center``, (d,), is subtracted from rows;
        (0,) for cosine, whose means are normalised.
        """

# --- exact search ---

def scan_tile(
    metric: int,
    S: NDArray[np.float32],
    X: NDArray[np.float32],
    labels_x: NDArray[np.int32],
    ids_x: NDArray[np.int64],
    Y: NDArray[np.float32],
    labels_y: NDArray[np.int32],
    ids_y: NDArray[np.int64],
    margin: float,
    rules_x: Filter | None,
    rules_y: Filter | None,
    D_x: NDArray[np.float32],
    I_x: NDArray[np.int64],
    D_y: NDArray[np.float32] | None = None,
    I_y: NDArray[np.int64] | None = None,
) -> None:
    """Add the eligible rows of Y to the results of the rows of X, and the rows of X to those of Y if there are any.

    S, (nq, n), holds the scores to within ``margin``. Labels are sorted. D and I hold earlier results, best first, or
    padding.
    """

def collect_tile(
    metric: int,
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
    ids_y: NDArray[np.int64] | None = None,
    rules: Filter | None = None,
    rules_y: Filter | None = None,
) -> tuple[int, int]:
    """Write out every eligible pair of a tile with a score >= ``threshold``, from row ``first`` on.

    Returns
    -------
    count, next
        How many pairs were written, and the row to go on with: a row is begun only if all of it would fit.
    """

# --- the similarity join ---

class JoinTree:
    """Blocks of rows and the tree above them, with the fields of :class:`cfe_faiss.search.join.JoinBlocks`.

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
    """The search for the pairs of one block with the rows of another tree, some at a time.

    Where ``others`` is ``tree`` itself: with the rows of the block and of all later ones.
    """

    def __init__(self, tree: JoinTree, block: int, others: JoinTree) -> None: ...
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
        """Write more pairs of rows, one of each tree, to ``found``, (2, any), and return how many.

        The inner product of their sketches reaches ``product``, their squared distance is at most ``distance``; both
        may change from call to call.
        """

def row_scores(
    metric: int,
    X: NDArray[np.float32],
    Y: NDArray[np.float32],
    first: NDArray[np.int64],
    second: NDArray[np.int64],
    result: NDArray[np.float32],
) -> None:
    """Write the score of each X[first[p]] with Y[second[p]] to ``result``."""

# --- coarse ranking ---

class ClassCentroids:
    """Means of lists, and of lists without the rows of one class, by which lists are ranked.

    How near a list is to a query has the same bits at every instruction set, and whether the query comes alone or with
    others; of equals the list with the smallest number comes first.

    Parameters
    ----------
    means, filled, labels, starts, lists, class_means, class_filled
        Arrays of :class:`cfe_faiss.coarse.routes.Routes`, in their order there.
    cluster_means, cluster_starts, cluster_lists
        Means and lists of the second-level clusters; none if there are few lists.
    metric, center
        Number of the metric, and the vector that is subtracted from queries, (d,); (0,) for cosine.

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
        metric: int,
        center: NDArray[np.float32],
    ) -> None: ...
    def __len__(self) -> int: ...
    @property
    def changed(self) -> int:
        """Number of lists that changed after the blocks were made; their means are kept separately."""

    def with_changes(
        self, rows: Rows, lists: NDArray[np.int64], small_share: float
    ) -> ClassCentroids:
        """Return the centroids after some lists have changed. The other centroids are shared.

        There must be one partition and no second-level clusters. Classes with a share of more than ``small_share`` in a
        list get a separate mean there.
        """

    def rank(
        self,
        X: NDArray[np.float32],
        labels: NDArray[np.int32],
        found: NDArray[np.int64],
        threads: int,
    ) -> None:
        """Write the nearest lists of each row of X to ``found``, (nq, nprobe), nearest first, -1 for none."""

# --- queries that are searched one by one or in groups ---

class Searcher:
    """The lists of all partitions, searched for queries one by one or in groups; exact for the lists probed.

    Parameters
    ----------
    lists
        The rows.
    centroids
        Means that lists are ranked by.
    margin
        Bound of the error of a screening product of a row, in float32.
    blocks
        The rows of all lists in blocks, or None: searches among all rows compare with these.
    changed
        Lists that changed after the blocks were made, (lists,), or empty: their rows are read from the lists.

    Raises
    ------
    ValueError
        If the arguments do not fit each other.
    """

    def __init__(
        self,
        lists: ListScan,
        centroids: ClassCentroids,
        margin: float,
        blocks: Blocks | None,
        changed: NDArray[np.bool_],
    ) -> None: ...
    def search(
        self,
        X: NDArray[np.float32],
        labels: NDArray[np.int32],
        nprobe: int,
        complete: bool,
        D: NDArray[np.float32],
        I: NDArray[np.int64],
        rules: Filter | None = None,
    ) -> None:
        """Write D and I, (nq, k), of unit queries; one with an unknown label finds nothing, unless it may find any."""

    def search_groups(
        self,
        X: NDArray[np.float32],
        rows: NDArray[np.int64],
        labels: NDArray[np.int32],
        order: NDArray[np.int64],
        starts: NDArray[np.int64],
        group_labels: NDArray[np.int32],
        tasks: NDArray[np.int64],
        nprobe: int,
        D: NDArray[np.float32],
        I: NDArray[np.int64],
        rules: Filter | None = None,
        *,
        threads: int = 1,
        progress: Callable[[int], object] | None = None,
    ) -> None:
        """Write the best rows of other labels in the lists that are nearest to the mean of each query's small group.

        Groups are halved until they are small. The searcher must have blocks.

        Parameters
        ----------
        X, rows
            Unit queries, (nq, d), and no row, (0,); or, of queries that are stored rows, their numbers, (nq,), and no
            vector, (0, ..).
        labels
            Label of each query, (nq,).
        order, starts, group_labels
            Numbers of queries, each at most once, in groups of one list each: group g is
            ``order[starts[g]:starts[g + 1]]``, and lists are ranked for it by ``group_labels[g]``.
        tasks
            The first group of each run of groups that a thread takes at a time and, last, the number of groups.
        nprobe
            Lists that each small group probes; of all lists of the first partition, if that is no less than all
            lists there are.
        D, I
            Similarities and ids, (nq, k), as :meth:`Blocks.search` writes them, to the row of each query.
        threads, progress
            How many threads may be used; and what is called with how many tasks are done.

        Raises
        ------
        ValueError
            If the arguments do not fit each other.
        """

    def route_groups(
        self,
        X: NDArray[np.float32],
        rows: NDArray[np.int64],
        labels: NDArray[np.int32],
        order: NDArray[np.int64],
        starts: NDArray[np.int64],
        group_labels: NDArray[np.int32],
        tasks: NDArray[np.int64],
        nprobe: int,
        threads: int,
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
        """Return order, starts and labels of the small groups that :meth:`search_groups` makes, and the lists of each.

        Lists are flat, (groups * nprobe,), nearest first, -1 for none. ``nprobe`` may be 0.
        """

def is_single(xq: object, labels_q: object, k: object, d: int) -> bool:
    """Return whether a query needs no conversion: see :meth:`SingleSearch.search`."""

class SingleSearch:
    """Searches an index for one query at a time, inside of its lock, until somebody has entered that for writing.

    The caller holds the lock when it makes one.
    """

    def __init__(self, lock: ReadWriteLock, searcher: Searcher) -> None: ...
    def search(
        self,
        xq: object,
        labels_q: object,
        k: object,
        nprobe: object,
        complete: bool,
        ntotal: int,
        rules: Filter | None = None,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]] | None:
        """Return D and I, (1, k), of a query of any length, or None: nothing is refused here.

        With ``complete``, the search goes on in four times as many lists until the row holds min(k, eligible) results.

        None where ``xq`` is not a float32 array (1, d) in C order, ``labels_q`` not one int32 or int64, k and nprobe
        not positive ints, k larger than the index, ``ntotal`` not as many as its rows, the query not finite or its
        label none; and once the index has changed.
        """

# --- blocks ---

def has_bytes() -> bool:
    """Return whether blocks may hold bytes: not with plain SSE2."""

class Blocks:
    """The rows of lists in blocks of 16, dimension-major; valid while the rows are.

    A row that is not finite, as a damaged file may hold, is left out.

    Parameters
    ----------
    rows
        The rows; the first lists are theirs.
    element
        Element type of the blocks: "float"; "byte" with error bounds; or "bit", whose searches find the best rows with
        high probability.
    rounding_error
        Bounds the error of a float32 product of two rows, or of a row and a unit vector, summed in any order.
    references, reference_starts
        Rows of the lists that follow the lists of ``rows``, and offsets of these lists, (lists + 1,), which may be
        empty.
    center
        A vector near the mean of the rows, (d,), for squared distances by bytes or bits; else (0,).
    wanted
        Lists whose rows are put into blocks, (lists,), or (0,) for all; a search finds the others empty.
    allowed
        Rows that are put into blocks, (n,), or (0,) for all.
    rotation, prefix
        Orthonormal directions, (d, d), to which rows of bytes are rotated, or none, (0, d); and how many dimensions are
        compared first then, before the length of the others tells enough: a multiple of 4.
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
        center: NDArray[np.float32],
        wanted: NDArray[np.bool_],
        allowed: NDArray[np.bool_],
        rotation: NDArray[np.float32],
        prefix: int,
        threads: int,
    ) -> None: ...
    @property
    def memory(self) -> int:
        """How many bytes the blocks take."""

    @property
    def element(self) -> str:
        """Which of "float", "byte" and "bit" the blocks hold."""

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
        rules: Filter | None = None,
        *,
        resume: bool = False,
    ) -> None:
        """Write the best rows of other labels in the lists of each query's group.

        Parameters
        ----------
        X, labels
            Unit queries in the order of their groups, (nq, d), and their labels, (nq,).
        starts
            First query of each group and, last, nq: (groups + 1,).
        lists
            Lists that each group probes, (groups, nprobe), -1 for none.
        order
            The row of D and I of each query, (nq,): each a different one.
        D, I
            Similarities and ids, (.., k), best first, of equals the smallest id; places that stay empty hold the least
            float and id -1.
        resume
            Whether D and I hold earlier results, of other lists, which are kept if they are among the best.

        Raises
        ------
        ValueError
            If the arguments do not fit each other.
        """

# --- k-means ---

def nearest_centroids(
    X: NDArray[np.float32],
    centroids: NDArray[np.float32],
    similarities: NDArray[np.float32],
    nearest: NDArray[np.int32],
    threads: int,
    distances: bool = False,
) -> None:
    """Write which of the unit centroids has the largest similarity with each unit row of X, of equals the first, (n,).

    That similarity is written, too, if there is room for it, (n,); none where that is (0,). The result is the same for
    any number of threads. With ``distances``, the nearest centroid is that at the least distance, and minus its square
    is written; rows and centroids have lengths up to 1/2.
    """

def move_centroids(
    X: NDArray[np.float32],
    weights: NDArray[np.float32],
    centroids: NDArray[np.float32],
    iterations: int,
    total_wanted: bool,
    threads: int,
    distances: bool = False,
) -> float:
    """Move unit centroids, in place, to the normalised weighted means of the rows of X that are nearest to them.

    Iterates until no row changes its centroid, up to ``iterations`` times. A centroid without rows gets half of the
    heaviest one's. Returns the sum of the similarities of the rows and the centroids before the last move, or 0 unless
    ``total_wanted``. ``distances``: as in :func:`nearest_centroids`; centroids then move to weighted means.
    """

# --- letting searches and changes into an index ---

def take_at_fork(address: int) -> None:
    """Make forks take the lock (``std::mutex``) of another library, so that it is free in the child."""

def before_fork() -> None:
    """Wait for commits that have begun, and keep new ones from beginning."""

def after_fork_in_parent() -> None:
    """Let commits go on."""

def after_fork_in_child() -> None:
    """Let commits go on, and open all locks: the threads that held them are no more."""

class Unforked:
    """A section for ``with``, which a fork waits for; it must be short, and wait for nothing but the GIL."""

    def __enter__(self) -> None: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

class Reading(Generic[T]):
    """Token that holds the read lock in ``with``; a deleted token leaves the lock."""

    def __enter__(self) -> T: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

class Writing(Generic[T]):
    """Token that holds the write lock in ``with``; see :class:`Reading`."""

    def __enter__(self) -> T: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

class ReadWriteLock:
    """Any number of readers at once, or one writer; a reader waits for one writer at most.

    A thread that reads may enter for reading once more, even if a writer waits. RuntimeError where a thread would wait
    for itself. A thread that waits can be interrupted; an exception between any two lines leaves the lock as it should
    be. In the child of a fork the lock is open.
    """

    @overload
    def reading(self, make: None = None) -> Reading[None]: ...
    @overload
    def reading(self, make: Callable[[], T]) -> Reading[T]:
        """Return a context manager that holds the read lock; its value is ``make()``, called inside the lock."""

    @overload
    def writing(self, make: None = None) -> Writing[None]: ...
    @overload
    def writing(self, make: Callable[[], T]) -> Writing[T]:
        """Return a context manager that holds the write lock; its value is ``make()``, called inside the lock."""

# --- changing an index ---

class FaissLists:
    """FAISS's lists, as the core reaches them: functions of FAISS's compiled module, with their first arguments.

    Parameters
    ----------
    size, codes, ids
        Functions that return the number of rows of a list, and pointers to their codes and ids.
    resize
        Function that resizes a list; None if the steps of a change do that.
    numbered
        Whether the functions take the number of a list, or there is only one.
    """

    def __init__(
        self, size: _Step, codes: _Step, ids: _Step, resize: _Step | None, numbered: bool
    ) -> None: ...

class Change:
    """A change of the rows of a :class:`Table`, for :func:`commit`."""

    def lists(self) -> NDArray[np.int64]:
        """Return the lists that change."""

class Table:
    """Data of an index per row, in addition to FAISS's lists: labels, supplementary partitions, exact vectors.

    Only :func:`commit` changes it, while nobody reads. Rows are numbered list by list.

    Parameters
    ----------
    sizes
        Rows in each list, (nlist,).
    further
        Supplementary partitions.
    d
        Length of the vectors kept in addition to the codes in FAISS's lists; 0 for none.
    code_size
        Bytes of a code in FAISS's lists.
    labels, vectors
        Labels (n,) and vectors (n, d) of the rows; referenced, not copied. None if there are no rows.
    references
        Rows of the lists of the supplementary partitions, (further * n,), and where each list begins and, last, their
        end, (further * nlist + 1,); kept, not copied.
    """

    def __init__(
        self,
        sizes: NDArray[np.int64],
        further: int,
        d: int,
        code_size: int,
        labels: NDArray[np.int32] | None,
        vectors: NDArray[np.float32] | None,
        references: tuple[NDArray[np.int32], NDArray[np.int64]] | None,
    ) -> None: ...
    def __len__(self) -> int: ...
    def rows(
        self,
        lists: FaissLists,
        d: int,
        codec: int,
        levels: NDArray[np.float32],
        metric: int,
        sorted: bool = True,  # noqa: A002 - as in the core
    ) -> Rows:
        """Return the rows in FAISS's lists; valid until the table changes.

        With vectors in addition to FAISS's lists, these hold product-quantizer codes.

        Parameters
        ----------
        lists
            FAISS's lists.
        d
            Length of a vector.
        codec, levels
            How vectors are kept, see :mod:`cfe_faiss.rows.codecs`; levels flat, (2 * d,) or (0,).
        metric
            Number of the metric, see :mod:`cfe_faiss.rows.metric`.
        sorted
            Whether labels ascend within each list. Those of a single list may have any order.

        Raises
        ------
        ValueError
            If the arguments do not fit each other.
        """

    def references(self) -> tuple[NDArray[np.int32], NDArray[np.int64]] | None:
        """Return the rows in the lists of the supplementary partitions, and where each of these begins."""

    def vectors(self) -> NDArray[np.float32]:
        """Return the additional vectors, flat."""

    def is_as_left(self, lists: FaissLists, change: Change = ...) -> bool:
        """Return whether FAISS's lists, or the ones that change, are still at their recorded addresses."""

    def greatest_id(self, lists: FaissLists) -> int:
        """Return the largest stored id, or -1. O(n) at first and after its removal, else O(1)."""

    def first_stored(self, lists: FaissLists, ids: NDArray[np.int64]) -> int:
        """Return the number of the first of these ids that a row has, or -1."""

    def rows_of(self, lists: FaissLists, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the row of each id, (m,), or -1. Maps all ids at first, then reads the lists that hold the ids."""

    def relabelling(
        self,
        rows: NDArray[np.int64],
        labels: NDArray[np.int32],
        sorted: bool = True,  # noqa: A002 - as in the core
    ) -> Change:
        """Return the change that gives rows, (m,), strictly ascending, new labels, and sorts lists if ``sorted``."""

    def replacement(
        self,
        rows: NDArray[np.int64],
        lists: NDArray[np.int32],
        labels: NDArray[np.int32],
        sorted: bool = True,  # noqa: A002 - as in the core
    ) -> Change:
        """Return the change that removes distinct rows, (r,), and inserts rows with these labels into lists, (m,).

        If lists are ``sorted`` by label, new rows follow the rows of their label. Else there is one list: new row i
        takes the place of row i, and further new rows follow the last row.
        """

def commit(
    table: Table,
    change: Change,
    lists: FaissLists,
    codes: NDArray[np.uint8] | None,
    ids: NDArray[np.int64] | None,
    homes: NDArray[np.int32] | None,
    vectors: NDArray[np.float32] | None,
    before: list[_Step],
    undo: list[_Step],
    after: list[_Step],
    threads: int,
) -> None:
    """Apply a change, as a whole or (where this raises) not at all. No line of Python runs, no signal is handled.

    Parameters
    ----------
    table, change, lists
        What changes, how, and where FAISS keeps it.
    codes, ids, homes, vectors
        Of new rows: codes (m, code_size), ids (m,), their lists in supplementary partitions (m, further), and vectors
        (m, d); None if there are none.
    before, undo
        Functions and arguments: calls that come first and may fail, and calls that undo them.
    after
        Last calls. They must not allocate.
    threads
        Largest number of threads that move rows.
    """

def call_steps(steps: list[_Step], undo: list[_Step]) -> None:
    """Call functions one after the other, as :func:`commit` does; if one fails, all of ``undo``."""
