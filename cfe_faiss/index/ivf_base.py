"""Methods that all inverted-file evidence indexes have; each class takes them into its body by name.

What :mod:`cfe_faiss.index.base` says of an index holds here, too. Besides, one has: ``theta``, ``weighted``,
``complete``, ``routing`` (see :class:`IndexEvidenceIVF`), ``_supplementary`` (centroids), ``_references``,
``_reference_starts``, ``_centroids``, ``_routes``, ``_cached_lists``; and what depends on the codec: ``_located()``,
``_train_codec(X)``, ``_screening()``, and ``_rearrange(order, X)``, which lets what is kept beside FAISS's lists follow
a change: storage row r will be what was row ``order[r]`` of the old rows followed by those of X.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import faiss
import numpy as np
from numpy.typing import ArrayLike, NDArray

from cfe_faiss._native import has_bytes
from cfe_faiss.checks import as_count, as_labels, as_number, as_unit_rows
from cfe_faiss.coarse.class_centroids import Routes
from cfe_faiss.coarse.partitions import assign, train_partitions
from cfe_faiss.lists import id_map as members
from cfe_faiss.lists import scan
from cfe_faiss.lists.layout import codes_of, fill, grown, sorted_order, stable_order
from cfe_faiss.lists.mapped import in_memory, is_mapped
from cfe_faiss.lists.read_write_lock import Gate
from cfe_faiss.lists.storage import Storage
from cfe_faiss.search import batch
from cfe_faiss.search import searcher as probing
from cfe_faiss.search.certify import certified
from cfe_faiss.search.exact import Results, padded, search_all
from cfe_faiss.search.grouping import Queries
from cfe_faiss.search.recall import nprobe_for

_NPROBE = 16
_ONE, _FLOAT32, _LABEL_TYPES = (1,), np.dtype(np.float32), (np.dtype(np.int64), np.dtype(np.int32))
_SHORTEST = 0.9
"""Length that a vector of a stock index may have been left with where a codec moved components into its range."""

# --- a new index ---------------------------------------------------------------------------------------------------


def as_nlist(nlist: int | str) -> int:
    """Return how many lists to begin with: none where it is left to ``train``."""
    if isinstance(nlist, str):
        if nlist != "auto":
            raise ValueError(f"nlist must be a number of lists or 'auto', got {nlist!r}")
        return 0
    return as_count("nlist", nlist)


def automatic_nlist(n: int) -> int:
    """Return how many lists suit n vectors."""
    return max(1, min(n, 4 * math.isqrt(n)))


def set_up(self: Any, partitions: int, *, theta: float, weighted: bool, complete: bool, routing: str) -> None:
    """Set what FAISS's constructor does not know of; the parameters are those of :class:`IndexEvidenceIVF`."""
    self.theta = as_number("theta", theta, 1e-3, math.pi / 2)
    self.weighted = bool(weighted)
    self.complete = bool(complete)
    if routing not in ("evidence", "nearest"):
        raise ValueError(f"routing must be 'evidence' or 'nearest', got {routing!r}")
    self.routing = routing
    self.nprobe = min(_NPROBE, self.nlist or _NPROBE)
    self.is_trained = False  # FAISS takes an index without lists as trained
    self.cp.spherical = True
    self._gate = Gate()
    self._supplementary = np.zeros((as_count("partitions", partitions) - 1, self.nlist, self.d), np.float32)
    self._empty_references()


def adopt(self: Any, ivf: Any, labels: NDArray[np.int32]) -> None:
    """Take over the lists of a stock index of the same kind and codec, code by code.

    ``labels``, (n,), are in ascending order of ids. Raises ValueError if an id is negative or occurs twice, or a vector
    is not of length 1.
    """
    self.nprobe = ivf.nprobe
    self._take_centroids(stock_centroids(ivf)[None])
    ids = members.new_ids(self.storage(), stock_ids(ivf), ivf.ntotal)
    lists = np.repeat(np.arange(self.nlist, dtype=np.int32), list_sizes(ivf))[None]
    copy = faiss.clone_index(in_memory(ivf))
    copy.set_direct_map_type(faiss.DirectMap.NoMap)
    self._stock.merge_from(self, copy, 0)
    self._regroup(lists, labels[np.argsort(np.argsort(ids))])
    row = self.storage().first_not_unit(_SHORTEST)
    if row >= 0:
        X, ids = self.storage().rows(np.array([row]))
        raise ValueError(
            f"the index must hold vectors of length 1 (normalise them before they are added), got one of length "
            f"{np.linalg.norm(X):g}, id {ids[0]}"
        )


def stock_centroids(ivf: Any) -> NDArray[np.float32]:
    """Return the centroids of a stock index, (nlist, d), normalised."""
    return as_unit_rows("ivf.quantizer", faiss.downcast_index(ivf.quantizer).reconstruct_n(0, ivf.nlist))


def stock_ids(ivf: Any) -> NDArray[np.int64]:
    """Return the ids of a stock index, list by list, (n,)."""
    filled = [(j, size) for j, size in enumerate(list_sizes(ivf).tolist()) if size]
    ids = [faiss.rev_swig_ptr(ivf.invlists.get_ids(j), size) for j, size in filled]
    return np.concatenate([np.empty(0, np.int64), *ids])


def sample(X: NDArray[np.float32], most: int, seed: int) -> NDArray[np.float32]:
    """Return X, or ``most`` of its rows if it has more."""
    return X if len(X) <= most else X[np.sort(np.random.default_rng(seed).choice(len(X), most, replace=False))]


def list_sizes(ivf: Any) -> NDArray[np.int64]:
    """Return how many vectors each list of a FAISS index holds, (nlist,)."""
    list_size = ivf.invlists.list_size
    return np.array([list_size(j) for j in range(ivf.nlist)], np.int64)


def nothing_to_train(self: Any, X: NDArray[np.float32]) -> None:
    """Train nothing: the codec has nothing to learn."""


def nothing_beside(self: Any, order: NDArray[np.int64], X: NDArray[np.float32] | None = None) -> None:
    """Do nothing: FAISS's lists hold all there is."""


def no_screening(self: Any) -> None:
    """Return None: what the lists hold is not screened by shorter codes."""


# --- what is stored ---------------------------------------------------------------------------------------------------


def partitions(self: Any) -> int:
    """Return how many partitions there are, the first (FAISS's own lists) included."""
    return len(self._supplementary) + 1


def centroids(self: Any) -> NDArray[np.float32]:
    """Return the centroids of all partitions, (partitions, nlist, d) float32; not to be written to."""
    if self._centroids is None:
        first = faiss.downcast_index(self.quantizer).reconstruct_n(0, self.nlist)
        self._centroids = np.concatenate([first[None], self._supplementary])
    known: NDArray[np.float32] = self._centroids
    return known


def located(self: Any) -> Storage:
    """Return where FAISS's lists lie, as if they held float32 vectors."""
    lists = self.invlists
    sizes = list_sizes(self) if self.ntotal else np.zeros(self.nlist, np.int64)
    addresses, id_addresses = np.zeros((2, self.nlist), np.int64)
    filled = np.flatnonzero(sizes)
    addresses[filled] = [int(address) for address in map(lists.get_codes, filled.tolist())]
    id_addresses[filled] = [int(address) for address in map(lists.get_ids, filled.tolist())]
    return Storage(
        d=self.d,
        starts=np.concatenate([[0], np.cumsum(sizes)]),
        addresses=addresses,
        id_addresses=id_addresses,
        labels=self._labels,
    )


def check_lists(self: Any) -> None:
    """Raise RuntimeError if FAISS's lists are not where this class left them, as after ``permute_invlists``."""
    left, found = self.storage(), self._located()
    if not (np.array_equal(left.starts, found.starts) and np.array_equal(left.id_addresses, found.id_addresses)):
        raise RuntimeError(
            "the inverted lists were changed by other means than the methods of this index, so that labels and "
            "vectors do not belong together any more; make the index anew by from_stock"
        )


def routes(self: Any) -> Routes:
    """Return where the evidence of each class lies; valid until the index changes."""
    if self._routes is None:
        self._routes = Routes.of(self.storage(), self._references.reshape(-1), self._reference_starts)
    known: Routes = self._routes
    return known


def lists_of_rows(self: Any) -> NDArray[np.int32]:
    """Return the list of each storage row in each partition, (partitions, n) int32."""
    self._check_lists()
    lists = np.empty((self.partitions, len(self._labels)), np.int32)
    numbers = np.arange(self.nlist, dtype=np.int32)
    sizes = np.diff(self._reference_starts).reshape(-1, self.nlist)
    lists[0] = np.repeat(numbers, np.diff(self.storage().starts))
    for i in range(1, self.partitions):
        lists[i, self._references[i - 1]] = np.repeat(numbers, sizes[i - 1])
    return lists


def regroup(self: Any, lists: NDArray[np.int32], labels: NDArray[np.int32]) -> None:
    """Sort each list by label, and refer to the rows anew; ``lists`` and ``labels`` are of the rows as they lie."""
    self._forget()
    self._labels = labels
    order = self.storage().sort_lists()
    _refer(self, lists[:, order], labels[order])


def _refer(self: Any, lists: NDArray[np.int32], labels: NDArray[np.int32]) -> None:
    """Take over labels of the rows as they lie, and refer to the rows from ``lists``."""
    self._labels = labels
    self._references = np.empty((len(lists) - 1, len(labels)), np.int32)
    for row, partition in zip(self._references, lists[1:], strict=True):
        row[:] = stable_order(partition)
    sizes = [np.bincount(partition, minlength=self.nlist) for partition in lists[1:]]
    self._reference_starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    self._forget()
    self.storage()  # keeps in mind where the lists are now, see _check_lists


def empty_references(self: Any) -> None:
    """Make the lists of the supplementary partitions empty."""
    self._references = np.empty((self.partitions - 1, 0), np.int32)
    self._reference_starts = np.zeros((self.partitions - 1) * self.nlist + 1, np.int64)


def forget(self: Any) -> None:
    """Forget what was worked out from the rows as they lay."""
    self._storage = self._members = self._routes = self._cached_lists = None


# --- changing it ------------------------------------------------------------------------------------------------------


def train(self: Any, x: ArrayLike) -> None:
    """Cluster training vectors into the index's partitions.

    Parameters
    ----------
    x
        Vectors, (n, d), n >= nlist; normalised in a copy. At most ``cp.max_points_per_centroid`` a list are used.

    Raises
    ------
    TypeError, ValueError
        If ``x`` is not as described, or the index holds vectors already.
    """
    X = as_unit_rows("x", x, self.d)
    if len(X) < self.nlist:
        raise ValueError(f"x must hold at least nlist = {self.nlist} training vectors, got {len(X)}")
    with self._gate.writing():
        if self.ntotal:
            raise ValueError(f"train must be called before vectors are added, got an index of {self.ntotal}")
        if self.nlist == 0:
            _make_lists(self, automatic_nlist(len(X)))
        self._take_centroids(
            train_partitions(X, self.nlist, self.partitions, self.cp, theta=self.theta, weighted=self.weighted)
        )
        self.is_trained = False
        self._train_codec(X)
        self.is_trained = True


def _make_lists(self: Any, nlist: int) -> None:
    lists = faiss.ArrayInvertedLists(nlist, self.code_size)
    self.nlist = nlist
    self._stock.replace_invlists(self, lists, True)
    lists.this.disown()
    self._supplementary = np.zeros((len(self._supplementary), nlist, self.d), np.float32)
    self._empty_references()
    self._forget()


def take_centroids(self: Any, centroids: NDArray[np.float32]) -> None:
    """Take over the centroids of all partitions, (partitions, nlist, d)."""
    self.quantizer.reset()
    self.quantizer.add(centroids[0])
    self.quantizer.is_trained = self.is_trained = True
    self._supplementary, self._centroids = centroids[1:], centroids


def insert(self: Any, X: NDArray[np.float32], labels: NDArray[np.int32], ids: NDArray[np.int64]) -> None:
    """Add vectors, after :mod:`cfe_faiss.index.base` has checked them."""
    if not self.is_trained:
        raise ValueError("the index must be trained before vectors are added: call train(x) first")
    if self.partitions > 1 and not self._supplementary.any() and self.centroids()[0].any():
        raise ValueError(
            "supplementary partitions must be trained, too: FAISS trained the first one only, from an index that "
            "holds this one; call train(x) of this one"
        )
    self._append(X, labels, ids, assign(X, self.centroids()))


def append(
    self: Any, X: NDArray[np.float32], labels: NDArray[np.int32], ids: NDArray[np.int64], lists: NDArray[np.int32]
) -> None:
    """Add vectors to the lists (partitions, n) that are theirs."""
    codes = codes_of(self, X, lists[0])
    starts = self.storage().starts
    lists, labels = np.concatenate([self._lists(), lists], axis=1), np.concatenate([self._labels, labels])
    order = sorted_order(lists[0], labels)
    now = np.append(0, np.cumsum(np.bincount(lists[0], minlength=self.nlist)))
    with self._without_direct_map():
        with grown(self.invlists, starts, now):
            self._rearrange(order, X)
        self.ntotal = len(order)
        _refer(self, lists[:, order], labels[order])
        storage = self.storage()
        addresses = storage.code_addresses if storage.code_size else storage.addresses
        fill(starts, now, order, addresses, codes)
        fill(starts, now, order, storage.id_addresses, ids[:, None].view(np.uint8))


@contextmanager
def without_direct_map(self: Any) -> Iterator[None]:
    """Drop FAISS's map from ids to places while places change, and make it anew afterwards."""
    kind = self.direct_map.type
    self._stock.set_direct_map_type(self, faiss.DirectMap.NoMap)
    try:
        yield
    finally:
        self._stock.set_direct_map_type(self, kind)


def relabel(self: Any, labels: NDArray[np.int32]) -> None:
    """Take over new labels of all storage rows."""
    with self._without_direct_map():
        self._regroup(self._lists(), labels)


def remove_ids(self: Any, x: Any) -> int:
    """Remove vectors, and return how many; as :meth:`IndexEvidenceFlat.remove_ids`."""
    with self._gate.writing(), self._without_direct_map():
        before, lists = self.members(), self._lists()
        removed = int(self._stock.remove_ids(self, x))
        self._forget()
        self._labels = members.unknown_labels(self.ntotal)
        rows = before.find(located(self).ids())
        self._rearrange(rows)
        by_row = np.empty(len(before.labels), np.int32)
        by_row[before.rows] = before.labels
        self._regroup(lists[:, rows], by_row[rows])
    return removed


def reset(self: Any) -> None:
    """Remove every vector; the index stays trained."""
    with self._gate.writing():
        self._stock.reset(self)
        self._rearrange(np.empty(0, np.int64))
        self._labels = np.empty(0, np.int32)
        self._empty_references()
        self._forget()


# --- searching it -----------------------------------------------------------------------------------------------------


def recall_nprobe(self: Any, recall: float, k: int = 10) -> int:
    """Return the smallest ``nprobe`` at which the evidence of all stored vectors has a wanted recall@k.

    It is measured on up to 2,000 stored vectors, which are searched exactly, and kept until the index changes: what
    ``search_members(k=k, recall=recall)`` searches with.

    Parameters
    ----------
    recall
        In (0, 1].
    k
        Results wanted for each vector, >= 1.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, or the index is empty.
    """
    effort, k = Effort.of(None, recall, False, None), as_count("k", k)
    with self._gate.reading():
        if self.storage().n == 0:
            raise ValueError("the index must hold vectors, got an empty one")
        lists: probing.Lists = self._all_lists()
        return lists.number if effort.recall is None else _calibrated(lists, k, effort.recall, lists.storage.n)


def _calibrated(lists: probing.Lists, k: int, recall: float, nq: int) -> int:
    together = lists.worth_grouping(nq, lists.number // 2)
    return nprobe_for(lists, min(k, lists.storage.n), recall, together=together)


def search_evidence(
    self: Any,
    xq: ArrayLike,
    labels_q: ArrayLike,
    k: int,
    nprobe: int | None = None,
    *,
    recall: float | None = None,
    exact: bool = False,
    memory: int | None = None,
    progress: str | None = None,
) -> Results:
    """Return the k most similar vectors of other classes than the queries'.

    Many queries are searched list by list: those that lie in one list are routed together. So a query may look into
    other lists among many than alone.

    Parameters
    ----------
    xq, labels_q, k, progress
        As in :meth:`IndexEvidenceFlat.search_evidence`.
    nprobe
        Lists looked into, of all partitions together; by default the index's own ``nprobe``. From partitions *
        nlist on the result is exact.
    recall
        In place of ``nprobe``: the recall@k wanted, in (0, 1]. The number of lists that reaches it is measured once for
        the index as it is, on up to 2,000 stored vectors that are searched exactly; 1 is exact.
    exact
        In place of ``nprobe``: whether to return the exact result.
    memory
        Bytes for copies of vectors, >= 1, where many queries are searched; by default 2 GiB. With less, the work is
        done in several passes. Results come on top of it.

    Returns
    -------
    D, I
        As in :meth:`IndexEvidenceFlat.search_evidence`. Unless the index was made with ``complete=False``, the
        search of a row goes on in further lists until the row is complete.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    if recall is None and not exact and memory is None:
        found = _at_once(self, xq, labels_q, k, nprobe)
        if found is not None:
            return found
    X = as_unit_rows("xq", xq, self.d)
    labels, k = as_labels("labels_q", labels_q, len(X)), as_count("k", k)
    effort = Effort.of(nprobe, recall, exact, memory)
    with self._gate.reading():
        return _of_vectors(self, X, labels, k, effort, None, progress)


def _at_once(self: Any, xq: Any, labels_q: Any, k: Any, nprobe: Any) -> Results | None:
    """Return the evidence of one query if it is handed in as it is searched, else None: nothing is refused here.

    This is :func:`search_evidence` without a copy, a conversion or an object that a single query can do without. They
    would take longer than to search a small index.
    """
    if not (
        type(xq) is type(labels_q) is np.ndarray
        and type(k) is int
        and (nprobe is None or type(nprobe) is int)
        and labels_q.shape == _ONE
        and labels_q.dtype in _LABEL_TYPES
        and xq.dtype == _FLOAT32
        and xq.flags.carray
    ):
        return None
    with self._gate.reading():
        kept: tuple[str, probing.Lists] | None = self._cached_lists
        if kept is None or kept[0] != self.routing:
            return None
        storage = kept[1].storage
        if xq.shape != (1, storage.d) or self.ntotal != storage.n:
            return None
        return kept[1].one(xq, labels_q.item(), k, self.nprobe if nprobe is None else nprobe, self.complete)


def search_members(
    self: Any,
    ids: ArrayLike | None = None,
    k: int = 10,
    nprobe: int | None = None,
    *,
    recall: float | None = None,
    exact: bool = False,
    memory: int | None = None,
    progress: str | None = None,
) -> Results:
    """Return the evidence of stored vectors, as :meth:`search_evidence` does.

    Parameters
    ----------
    ids
        Stored ids, (nq,); by default all of them in ascending order.
    k, nprobe, recall, exact, memory, progress
        As in :meth:`search_evidence`.

    Returns
    -------
    D, I
        As in :meth:`search_evidence`; rows of vectors with an unknown class are all padding.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, or an id is not in the index.
    """
    k, effort = as_count("k", k), Effort.of(nprobe, recall, exact, memory)
    with self._gate.reading():
        storage = self.storage()
        if ids is not None:
            queries = Queries.of_rows(storage, self.members().find(ids))
            return _searched(self, queries, k, effort, None, progress)
        nprobe, members = _nprobe(self, effort, k, storage.n), self.members()
        if nprobe >= self.partitions * self.nlist > 0 and not has_bytes():
            D, I = search_all(storage, k, progress=progress)  # in float32 it pays to multiply every pair once only
            return D.take(members.rows, axis=0), I.take(members.rows, axis=0)
        queries = Queries.of_rows(storage, members.rows, members.places)
        return _searched(self, queries, k, Effort(nprobe, None, False, effort.memory), None, progress)


def search_certified(
    self: Any,
    ids: ArrayLike | None = None,
    k: int = 10,
    nprobe: int | None = None,
    *,
    memory: int | None = None,
    progress: str | None = None,
) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.bool_]]:
    """Return the evidence of stored vectors, as :meth:`search_members` does, and which rows are provably exact.

    Parameters
    ----------
    ids, k, nprobe, memory, progress
        As in :meth:`search_members`.

    Returns
    -------
    D, I
        As from :meth:`search_members`.
    certified
        Whether no list that was left out can hold anything that belongs into the row, (nq,) bool. Rows that are exact
        without a proof are many, above all where vectors have many dimensions.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, or an id is not in the index.

    Notes
    -----
    A vector x of a list with centroid c is bounded by angles: angle(q, x) >= angle(q, c) - angle(x, c). Besides the
    search, this takes as long as to compare every query with every centroid.
    """
    k, effort = as_count("k", k), Effort.of(nprobe, None, False, memory)
    with self._gate.reading():
        storage = self.storage()
        queries = Queries.of_rows(storage, self.members().rows if ids is None else self.members().find(ids))
        D, I = _searched(self, queries, k, effort, None, progress)
        if storage.n == 0:
            return D, I, np.ones(len(D), bool)
        return D, I, certified(self._all_lists(), queries, self.nprobe if nprobe is None else nprobe, D, I)


def search_lists(
    self: Any,
    X: NDArray[np.float32],
    labels: NDArray[np.int32],
    k: int,
    nprobe: int | None,
    allowed: NDArray[np.bool_] | None,
    progress: str | None,
) -> Results:
    """Search after all arguments but ``nprobe`` were checked."""
    return _of_vectors(self, X, labels, k, Effort.of(nprobe, None, False, None), allowed, progress)


class Effort(NamedTuple):
    """How hard to search: in ``nprobe`` lists (None: the index's own number), for a recall, or exactly."""

    nprobe: int | None
    recall: float | None
    exact: bool
    memory: int

    @classmethod
    def of(cls, nprobe: int | None, recall: float | None, exact: bool, memory: int | None) -> "Effort":
        """Check the arguments of a search."""
        if (nprobe is not None) + (recall is not None) + bool(exact) > 1:
            raise ValueError(
                f"only one of nprobe, recall and exact may be given, got nprobe={nprobe}, recall={recall}, "
                f"exact={exact}"
            )
        if nprobe is not None:
            nprobe = as_count("nprobe", nprobe)
        if recall is not None:
            recall = as_number("recall", recall, math.nextafter(0, 1), 1)
            exact, recall = recall == 1, None if recall == 1 else recall
        return cls(nprobe, recall, bool(exact), batch.MEMORY if memory is None else as_count("memory", memory))


def _of_vectors(
    self: Any,
    X: NDArray[np.float32],
    labels: NDArray[np.int32],
    k: int,
    effort: Effort,
    allowed: NDArray[np.bool_] | None,
    progress: str | None,
) -> Results:
    if self.ntotal == 0 and self.storage().n == 0:  # and perhaps not trained
        return padded(*scan.empty_heaps(len(X), 0), k)
    return _searched(self, Queries.of_vectors(X, labels, self.centroids()[0]), k, effort, allowed, progress)


def _searched(
    self: Any,
    queries: Queries,
    k: int,
    effort: Effort,
    allowed: NDArray[np.bool_] | None,
    progress: str | None,
) -> Results:
    if self.storage().n == 0:
        return padded(*scan.empty_heaps(len(queries), 0), k)
    return probing.search(
        self._all_lists(),
        queries,
        k,
        _nprobe(self, effort, k, len(queries)),
        complete=self.complete,
        allowed=allowed,
        memory=effort.memory,
        progress=progress,
    )


def _nprobe(self: Any, effort: Effort, k: int, nq: int) -> int:
    """Return in how many lists to search for so many queries."""
    if effort.nprobe is not None or self.storage().n == 0:
        return effort.nprobe or 1
    if effort.recall is not None:
        return _calibrated(self._all_lists(), k, effort.recall, nq)
    return self.partitions * self.nlist if effort.exact else as_count("nprobe", self.nprobe)


def all_lists(self: Any) -> probing.Lists:
    """Return what a search needs of the index; valid until the index changes."""
    storage = self.storage()
    if self._cached_lists is None or self._cached_lists[0] != self.routing:
        routes = self.routes() if self.routing == "evidence" else None
        references = self._references.reshape(-1)
        lists = probing.Lists(
            storage,
            self.centroids(),
            references,
            self._reference_starts,
            routes,
            self._screening(),
            not is_mapped(self),
        )
        self._cached_lists = self.routing, lists
    known: probing.Lists = self._cached_lists[1]
    return known


# --- files ------------------------------------------------------------------------------------------------------------


def extras(self: Any) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the parameters and arrays that FAISS does not keep."""
    self._check_lists()
    parameters: dict[str, Any] = {
        "theta": self.theta,
        "weighted": self.weighted,
        "complete": self.complete,
        "routing": self.routing,
    }
    arrays: dict[str, NDArray[Any]] = {
        "labels": self._labels,
        "centroids": self._supplementary,
        "references": self._references,
        "reference_starts": self._reference_starts,
    }
    # So that a mapped index need not read every vector before its first answer.
    routed = self.routing == "evidence" and len(self._labels)
    arrays |= (self.routes() if routed else Routes.none(self.d)).arrays()
    return parameters, arrays


def restore(self: Any, parameters: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
    """Take over what :func:`extras` gave."""
    self.theta, self.weighted = parameters["theta"], parameters["weighted"]
    self.complete, self.routing = parameters["complete"], parameters["routing"]
    self._labels, self._gate = arrays["labels"], Gate()
    self._supplementary = arrays["centroids"]
    self._references = arrays["references"]
    self._reference_starts = arrays["reference_starts"]
    if len(arrays["route_means"]):
        self._routes = Routes.from_arrays(self.nlist, arrays)
