"""Evidence search over an inverted file: one index for our default and, as a preset, for the paper's LocalCE-I."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

import faiss
import numpy as np
from numpy.typing import ArrayLike, NDArray

from cfe_faiss.checks import as_count, as_labels, as_number, as_unit_rows
from cfe_faiss.index import exact, members, probing, scan, shared
from cfe_faiss.index.gate import Gate
from cfe_faiss.index.members import Members
from cfe_faiss.index.routing import Routes
from cfe_faiss.index.storage import Storage
from cfe_faiss.partition import assign, train_partitions


class IndexEvidenceIVF(faiss.IndexIVFFlat):  # type: ignore[misc]
    """Inverted-file index of counterfactual evidence over inner products of unit vectors.

    A genuine ``faiss.IndexIVFFlat``: to every FAISS tool it is a stock index over the first partition, each vector
    stored once. Supplementary partitions hold row numbers only, so the memory is 4 * n * d bytes for the vectors, 8 * n
    for their ids and 4 * n for every further partition. Rows of a list are kept sorted by label.

    Parameters
    ----------
    d
        Length of the vectors.
    nlist
        Lists (clusters) in a partition.
    partitions
        How many partitions, >= 1; all after the first are supplementary (paper, "Supplementary Partitioning").
    theta
        Angle in radians of the caps behind the weight of a vector (paper, "Weighted Clustering"), in (0, pi/2].
    weighted
        Whether supplementary partitions are clustered with those weights.
    complete
        Whether a search widens, list by list, until a row holds min(k, eligible) results.
    routing
        ``"evidence"`` sends a query to the lists whose members of other classes are near; ``"nearest"`` to the lists
        that are near as a whole, as the paper does.

    Examples
    --------
    >>> import numpy as np
    >>> import cfe_faiss as cfe
    >>> X = np.random.default_rng(0).normal(size=(500, 8)).astype(np.float32)
    >>> labels = np.arange(500) % 3
    >>> index = cfe.IndexEvidenceIVF(8, nlist=20)
    >>> index.train(X)
    >>> index.add_with_labels(X, labels)
    >>> D, I = index.search_members([7], k=5, nprobe=20)
    >>> I.shape, bool((labels[I] != labels[7]).all())
    ((1, 5), True)
    """

    theta: float = math.pi / 3
    weighted: bool = True
    complete: bool = True
    routing: str = "evidence"
    _routes: Routes | None = None
    _cached_lists: tuple[str, probing.Lists] | None = None
    _stock = faiss.IndexIVFFlat
    _gate: Gate = Gate()  # each index gets its own; FAISS wants the name to be known
    _unchecked: Callable[[], None] | None = None  # what is left to check of a file, once rows are used
    _centroids: NDArray[np.float32] | None = None
    _supplementary: NDArray[np.float32] = np.empty((0, 0, 0), np.float32)
    _references: NDArray[np.int32] = np.empty((0, 0), np.int32)
    _reference_starts: NDArray[np.int64] = np.zeros(1, np.int64)
    _labels: NDArray[np.int32] = np.empty(0, np.int32)
    _storage: Storage | None = None
    _members: Members | None = None

    def __init__(
        self,
        d: int,
        nlist: int,
        partitions: int = 1,
        *,
        theta: float = math.pi / 3,
        weighted: bool = True,
        complete: bool = True,
        routing: str = "evidence",
    ) -> None:
        d, nlist, partitions = as_count("d", d), as_count("nlist", nlist), as_count("partitions", partitions)
        super().__init__(faiss.IndexFlatIP(d), d, nlist, faiss.METRIC_INNER_PRODUCT)
        self.theta = as_number("theta", theta, 1e-3, math.pi / 2)
        self.weighted = bool(weighted)
        self.complete = bool(complete)
        if routing not in ("evidence", "nearest"):
            raise ValueError(f"routing must be 'evidence' or 'nearest', got {routing!r}")
        self.routing = routing
        self.nprobe = min(16, nlist)
        self.cp.spherical = True
        self._gate = Gate()
        self._supplementary = np.zeros((partitions - 1, nlist, d), np.float32)
        self._empty_references()

    @classmethod
    def paper(
        cls,
        d: int,
        partitions: int = 50,
        clusters: int = 10,
        theta: float = math.pi / 3,
        weighted: bool = True,
        supplementary: bool = True,
    ) -> Self:
        """Return an index set up as the paper's LocalCE-I (Algorithm 2), untrained.

        A query looks into one cluster only, that of the nearest centroid among all partitions, which is the optimal
        cluster of its optimal partition (the weight rises with the angle). Rows may come back short.

        Parameters
        ----------
        d
            Length of the vectors.
        partitions, clusters, theta
            The paper's p, m and theta.
        weighted
            False is the ablation "w/o WC": supplementary partitions without weights.
        supplementary
            False is the ablation "w/o SP": the first partition only. As weights come from the partition before, the
            only partition has none.
        """
        index = cls(
            d,
            clusters,
            partitions if supplementary else 1,
            theta=theta,
            weighted=weighted,
            complete=False,
            routing="nearest",
        )
        index.nprobe = 1
        index.cp.max_points_per_centroid = 1 << 30  # the paper clusters all vectors, not a sample
        return index

    @classmethod
    def from_stock(cls, ivf: Any, labels: ArrayLike) -> Self:
        """Return an evidence index over the vectors, ids, centroids and lists of a stock ``faiss.IndexIVFFlat``.

        Parameters
        ----------
        ivf
            Trained stock index over inner products; it stays as it is.
        labels
            Predicted class of each of its vectors, (n,), in ascending order of their ids; -1 for "unknown".

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described.
        """
        if not isinstance(ivf, faiss.IndexIVFFlat):
            raise TypeError(f"ivf must be a faiss.IndexIVFFlat, got {type(ivf).__name__}")
        if ivf.metric_type != faiss.METRIC_INNER_PRODUCT or not ivf.is_trained:
            raise ValueError("ivf must be a trained index over inner products (faiss.METRIC_INNER_PRODUCT)")
        X, _, ids = members.contents(ivf)
        new_labels = as_labels("labels", labels, len(X), unknown=True)
        index = cls(ivf.d, ivf.nlist)
        index.nprobe = ivf.nprobe
        centroids = faiss.downcast_index(ivf.quantizer).reconstruct_n(0, ivf.nlist)
        index._take_centroids(as_unit_rows("ivf.quantizer", centroids)[None])
        sizes = [ivf.invlists.list_size(j) for j in range(ivf.nlist)]
        lists = np.repeat(np.arange(ivf.nlist, dtype=np.int32), sizes)[None]
        order = np.argsort(ids, kind="stable")
        checked = members.new_ids(index.storage(), ids[order], len(ids))
        index._append(as_unit_rows("ivf", X[order]), new_labels, checked, lists[:, order])
        return index

    def __repr__(self) -> str:
        return (
            f"IndexEvidenceIVF(d={self.d}, nlist={self.nlist}, partitions={self.partitions}, nprobe={self.nprobe}, "
            f"ntotal={self.ntotal})"
        )

    # --- what is stored ---------------------------------------------------------------------------------------------

    @property
    def partitions(self) -> int:
        """Number of partitions, the first (FAISS's own lists) included."""
        return len(self._supplementary) + 1

    def centroids(self) -> NDArray[np.float32]:
        """Return the centroids of all partitions, (partitions, nlist, d) float32; not to be written to."""
        if self._centroids is None:
            first = faiss.downcast_index(self.quantizer).reconstruct_n(0, self.nlist)
            self._centroids = np.concatenate([first[None], self._supplementary])
        return self._centroids

    def _located(self) -> Storage:
        lists, numbers = self.invlists, range(self.nlist)
        sizes = np.array([lists.list_size(j) for j in numbers], np.int64)
        return Storage(
            d=self.d,
            starts=np.concatenate([[0], np.cumsum(sizes)]),
            addresses=np.array([int(lists.get_codes(j)) if sizes[j] else 0 for j in numbers], np.int64),
            id_addresses=np.array([int(lists.get_ids(j)) if sizes[j] else 0 for j in numbers], np.int64),
            labels=self._labels,
        )

    def _check_lists(self) -> None:
        """Raise RuntimeError if FAISS's lists are not where this class left them, as after ``permute_invlists``."""
        left, found = self.storage(), self._located()
        if not (np.array_equal(left.starts, found.starts) and np.array_equal(left.id_addresses, found.id_addresses)):
            raise RuntimeError(
                "the inverted lists were changed by other means than the methods of this index, so that labels and "
                "vectors do not belong together any more; make the index anew by IndexEvidenceIVF.from_stock"
            )

    def routes(self) -> Routes:
        """Return where the evidence of each class lies; valid until the index changes."""
        if self._routes is None:
            self._routes = Routes.of(self.storage(), self._references.reshape(-1), self._reference_starts)
        return self._routes

    def _lists(self) -> NDArray[np.int32]:
        """Return the list of each storage row in each partition, (partitions, n) int32."""
        self._check_lists()
        lists = np.empty((self.partitions, len(self._labels)), np.int32)
        numbers = np.arange(self.nlist, dtype=np.int32)
        sizes = np.diff(self._reference_starts).reshape(-1, self.nlist)
        lists[0] = np.repeat(numbers, np.diff(self.storage().starts))
        for i in range(1, self.partitions):
            lists[i, self._references[i - 1]] = np.repeat(numbers, sizes[i - 1])
        return lists

    def _regroup(self, lists: NDArray[np.int32], labels: NDArray[np.int32]) -> None:
        """Sort each list by label, and refer to the rows anew; ``lists`` and ``labels`` are of the rows as they lie."""
        self._forget()
        self._labels = labels
        order = self.storage().sort_lists()
        self._labels = labels[order]
        lists = lists[:, order]
        self._references = np.argsort(lists[1:], axis=1, kind="stable").astype(np.int32)
        sizes = [np.bincount(partition, minlength=self.nlist) for partition in lists[1:]]
        self._reference_starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self._forget()
        self.storage()  # keeps in mind where the lists are now, see _check_lists

    def _empty_references(self) -> None:
        self._references = np.empty((self.partitions - 1, 0), np.int32)
        self._reference_starts = np.zeros((self.partitions - 1) * self.nlist + 1, np.int64)

    def _forget(self) -> None:
        self._storage = self._members = self._routes = self._cached_lists = None

    # --- changing it ------------------------------------------------------------------------------------------------

    def train(self, x: ArrayLike) -> None:
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
            self._take_centroids(
                train_partitions(X, self.nlist, self.partitions, self.cp, theta=self.theta, weighted=self.weighted)
            )

    def _take_centroids(self, centroids: NDArray[np.float32]) -> None:
        self.quantizer.reset()
        self.quantizer.add(centroids[0])
        self.quantizer.is_trained = self.is_trained = True
        self._supplementary, self._centroids = centroids[1:], centroids

    def _insert(self, X: NDArray[np.float32], labels: NDArray[np.int32], ids: NDArray[np.int64]) -> None:
        if not self.is_trained:
            raise ValueError("the index must be trained before vectors are added: call train(x) first")
        if self.partitions > 1 and not self._supplementary.any() and self.centroids()[0].any():
            raise ValueError(
                "supplementary partitions must be trained, too: FAISS trained the first one only, from an index that "
                "holds this one; call train(x) of this one"
            )
        self._append(X, labels, ids, assign(X, self.centroids()))

    def _append(
        self, X: NDArray[np.float32], labels: NDArray[np.int32], ids: NDArray[np.int64], lists: NDArray[np.int32]
    ) -> None:
        """Add vectors to the lists (partitions, n) that are theirs."""
        first = lists[0].astype(np.int64)
        all_lists = np.concatenate([self._lists(), lists], axis=1)
        as_they_will_lie = np.argsort(all_lists[0], kind="stable")
        with self._without_direct_map():
            super().add_core(len(X), faiss.swig_ptr(X), faiss.swig_ptr(ids), faiss.swig_ptr(first))
            self._regroup(all_lists[:, as_they_will_lie], np.concatenate([self._labels, labels])[as_they_will_lie])

    @contextmanager
    def _without_direct_map(self) -> Iterator[None]:
        """Drop FAISS's map from ids to places while places change, and make it anew afterwards."""
        kind = self.direct_map.type
        super().set_direct_map_type(faiss.DirectMap.NoMap)
        try:
            yield
        finally:
            super().set_direct_map_type(kind)

    def _relabel(self, labels: NDArray[np.int32]) -> None:
        with self._without_direct_map():
            self._regroup(self._lists(), labels)

    def remove_ids(self, x: Any) -> int:
        """Remove vectors, and return how many; as :meth:`IndexEvidenceFlat.remove_ids`."""
        with self._gate.writing(), self._without_direct_map():
            before, lists = self.members(), self._lists()
            removed = int(super().remove_ids(x))
            self._forget()
            self._labels = members.unknown_labels(self.ntotal)
            rows = before.find(self.storage().ids())
            by_row = np.empty(len(before.labels), np.int32)
            by_row[before.rows] = before.labels
            self._regroup(lists[:, rows], by_row[rows])
        return removed

    def reset(self) -> None:
        """Remove every vector; the index stays trained."""
        with self._gate.writing():
            super().reset()
            self._labels = np.empty(0, np.int32)
            self._empty_references()
            self._forget()

    # --- searching it -----------------------------------------------------------------------------------------------

    def search_evidence(
        self,
        xq: ArrayLike,
        labels_q: ArrayLike,
        k: int,
        nprobe: int | None = None,
        *,
        progress: str | None = None,
    ) -> exact.Results:
        """Return the k most similar vectors of other classes in the ``nprobe`` lists nearest to each query.

        Parameters
        ----------
        xq, labels_q, k, progress
            As in :meth:`IndexEvidenceFlat.search_evidence`.
        nprobe
            Lists looked into, of all partitions together; by default the index's own ``nprobe``. From partitions *
            nlist on the result is exact.

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
        X = as_unit_rows("xq", xq, self.d)
        labels, k = as_labels("labels_q", labels_q, len(X)), as_count("k", k)
        with self._gate.reading():
            return self._search(X, labels, k, nprobe, None, progress)

    def search_members(
        self,
        ids: ArrayLike | None = None,
        k: int = 10,
        nprobe: int | None = None,
        *,
        progress: str | None = None,
    ) -> exact.Results:
        """Return the evidence of stored vectors, as :meth:`search_evidence` does.

        Parameters
        ----------
        ids
            Stored ids, (nq,); by default all of them in ascending order.
        k, nprobe, progress
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
        k = as_count("k", k)
        with self._gate.reading():
            storage = self.storage()
            rows = self.members().rows if ids is None else self.members().find(ids)
            in_order = np.argsort(rows, kind="stable")
            X, labels = storage.rows(rows[in_order])[0], storage.labels[rows[in_order]]
            D, I = self._search(X, labels, k, nprobe, None, progress)
        back = np.argsort(in_order, kind="stable")
        return D[back], I[back]

    def _search(
        self,
        X: NDArray[np.float32],
        labels: NDArray[np.int32],
        k: int,
        nprobe: int | None,
        allowed: NDArray[np.bool_] | None,
        progress: str | None,
    ) -> exact.Results:
        nprobe = as_count("nprobe", self.nprobe if nprobe is None else nprobe)
        if self.storage().n == 0:
            return exact.padded(*scan.empty_heaps(len(X), 0), k)
        return probing.search(
            self._all_lists(), X, labels, k, nprobe, complete=self.complete, allowed=allowed, progress=progress
        )

    def _all_lists(self) -> probing.Lists:
        storage = self.storage()
        if self._cached_lists is None or self._cached_lists[0] != self.routing:
            routes = self.routes() if self.routing == "evidence" else None
            references = self._references.reshape(-1)
            lists = probing.Lists(storage, self.centroids(), references, self._reference_starts, routes)
            self._cached_lists = self.routing, lists
        return self._cached_lists[1]

    # --- as in every evidence index ---------------------------------------------------------------------------------

    storage = shared.storage
    members = shared.stored_members
    add_with_labels = shared.add_with_labels
    add_with_ids = shared.add_with_ids
    add = shared.add
    relabel = shared.relabel
    merge_from = shared.merge_from
    search = shared.search
    range_search = shared.range_search
    range_search_evidence = shared.range_search_evidence
    excluding = shared.excluding
    reconstruct = shared.reconstruct
    reconstruct_n = shared.reconstruct_n
    reconstruct_batch = shared.reconstruct_batch
    to_stock = shared.to_stock
    __getstate__ = shared.getstate
    __setstate__ = shared.setstate
    class_index = shared.class_index
    add_sa_codes = shared.refused("add_sa_codes", "decode with sa_decode and use add_with_labels")
    add_core = shared.refused("add_core", "use add_with_labels")
    update_vectors = shared.refused("update_vectors", "use remove_ids, then add_with_labels")
    replace_invlists = shared.refused("replace_invlists", "use from_stock")

    # --- files ------------------------------------------------------------------------------------------------------

    def _extras(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
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

    def _restore(self, parameters: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        self.theta, self.weighted = parameters["theta"], parameters["weighted"]
        self.complete, self.routing = parameters["complete"], parameters["routing"]
        self._labels, self._gate = arrays["labels"], Gate()
        self._supplementary = arrays["centroids"]
        self._references = arrays["references"]
        self._reference_starts = arrays["reference_starts"]
        if len(arrays["route_means"]):
            self._routes = Routes.from_arrays(self.nlist, arrays)
