"""Evidence search over an inverted file whose vectors may stay on disk: short codes say which of them to look at."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, Self

import faiss
import numpy as np
from numpy.typing import ArrayLike, NDArray

from cfe_faiss.checks import as_count, as_labels, as_number
from cfe_faiss.coarse.class_centroids import Routes
from cfe_faiss.coarse.partitions import assign
from cfe_faiss.index import base as shared
from cfe_faiss.index import ivf_base as inverted
from cfe_faiss.lists.id_map import Members
from cfe_faiss.lists.read_write_lock import Gate
from cfe_faiss.lists.storage import Storage
from cfe_faiss.search import searcher as probing
from cfe_faiss.search.pq_codes import CODEWORDS, Screening

_BITS = 8
_MOST = 1e9


class IndexEvidenceIVFPQ(faiss.IndexIVFPQ):  # type: ignore[misc]
    """Inverted-file index of counterfactual evidence with product-quantizer codes before the vectors themselves.

    A genuine ``faiss.IndexIVFPQ``, whose lists hold M bytes a vector. Beside them stand the float32 vectors. A search
    ranks the vectors of the probed lists by their codes, and the best ``k_factor * k`` of them by the vectors, so that
    similarities are exact. Probing all lists (and so widening to all of them) passes the codes over and is exact.

    The codes save memory when the index is mapped from its file, ``cfe.read_index(path, faiss.IO_FLAG_MMAP)``: of the
    vectors only those that are looked at are read from there. In memory they are 4 * d bytes a vector all the same.

    Parameters
    ----------
    d, nlist, partitions, theta, weighted, complete, routing
        As in :class:`IndexEvidenceIVF`.
    M
        Bytes of a code; d must be a multiple of it.
    k_factor
        How many vectors are looked at for each result wanted, >= 1, as in ``faiss.IndexRefineFlat``; an attribute that
        can be set at any time.

    Examples
    --------
    >>> import numpy as np
    >>> import cfe_faiss as cfe
    >>> X = np.random.default_rng(0).normal(size=(500, 8)).astype(np.float32)
    >>> index = cfe.IndexEvidenceIVFPQ(8, nlist=20, M=4)
    >>> index.train(X)
    >>> index.add_with_labels(X, np.arange(500) % 3)
    >>> D, I = index.search_members([7], k=5)
    >>> index.code_size, bool((I % 3 != 7 % 3).all())
    (4, True)
    """

    theta: float = math.pi / 3
    weighted: bool = True
    complete: bool = True
    routing: str = "evidence"
    k_factor: float = 8.0
    _vectors: NDArray[np.float32] = np.empty((0, 0), np.float32)
    _routes: Routes | None = None
    _cached_lists: tuple[str, probing.Lists] | None = None
    _stock = faiss.IndexIVFPQ
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
        nlist: int | Literal["auto"],
        M: int,
        partitions: int = 1,
        *,
        k_factor: float = 8.0,
        theta: float = math.pi / 3,
        weighted: bool = True,
        complete: bool = True,
        routing: str = "evidence",
    ) -> None:
        d, nlist, M = as_count("d", d), inverted.as_nlist(nlist), as_count("M", M)
        if d % M:
            raise ValueError(f"M must divide d = {d}, got {M}")
        super().__init__(faiss.IndexFlatIP(d), d, nlist, M, _BITS, faiss.METRIC_INNER_PRODUCT)
        self.pq.cp.min_points_per_centroid = 1
        self.k_factor = _checked(k_factor)
        self._vectors = np.empty((0, d), np.float32)
        inverted.set_up(self, partitions, theta=theta, weighted=weighted, complete=complete, routing=routing)

    @classmethod
    def from_stock(cls, refine: Any, labels: ArrayLike) -> Self:
        """Return an evidence index over the codes, vectors, centroids and lists of a stock index.

        Parameters
        ----------
        refine
            Trained ``faiss.IndexRefine`` (``IndexRefineFlat``) of a ``faiss.IndexIVFPQ`` with 8-bit codes of residuals
            and a ``faiss.IndexFlat``, over inner products of vectors of length 1: codes alone do not tell the vectors.
            It stays as it is.
        labels
            Predicted class of each of its vectors, (n,); -1 for "unknown".

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described.
        """
        ivf, flat = _parts(refine)
        if ivf.metric_type != faiss.METRIC_INNER_PRODUCT or not ivf.is_trained:
            raise ValueError("refine must be a trained index over inner products (faiss.METRIC_INNER_PRODUCT)")
        nbits, by_residual = ivf.pq.nbits, ivf.by_residual
        if nbits != _BITS or not by_residual:
            raise ValueError(
                f"refine must have 8-bit codes of residuals, got nbits = {nbits}, by_residual = {by_residual}"
            )
        new_labels = as_labels("labels", labels, ivf.ntotal, unknown=True)
        index = cls(ivf.d, ivf.nlist, ivf.pq.M, k_factor=max(1.0, refine.k_factor))
        index.pq = ivf.pq
        ids = inverted.stock_ids(ivf)
        if not np.array_equal(np.sort(ids), np.arange(flat.ntotal)):
            raise ValueError(f"refine must have the ids 0..{flat.ntotal - 1}, each once")
        index._vectors = flat.reconstruct_n(0, flat.ntotal)[ids]
        inverted.adopt(index, ivf, new_labels)
        return index

    def __repr__(self) -> str:
        return (
            f"IndexEvidenceIVFPQ(d={self.d}, nlist={self.nlist}, M={self.pq.M}, partitions={self.partitions}, "
            f"k_factor={self.k_factor:g}, nprobe={self.nprobe}, ntotal={self.ntotal})"
        )

    # --- codes, and the vectors beside them -------------------------------------------------------------------------

    def _located(self) -> Storage:
        lists = inverted.located(self)
        addresses = self._vectors.ctypes.data + self._vectors.itemsize * self.d * lists.starts[:-1]
        return replace(lists, addresses=addresses, code_addresses=lists.addresses, code_size=self.code_size)

    def _rearrange(self, order: NDArray[np.int64], X: NDArray[np.float32] | None = None) -> None:
        old = self._vectors
        self._vectors = np.empty((len(order), self.d), np.float32)
        if X is None:
            np.take(old, order, axis=0, out=self._vectors)
            return
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        self._vectors[place[: len(old)]] = old
        self._vectors[place[len(old) :]] = X

    def _train_codec(self, X: NDArray[np.float32]) -> None:
        if len(X) < CODEWORDS:
            raise ValueError(f"x must hold at least {CODEWORDS} training vectors, got {len(X)}")
        X = inverted.sample(X, self.train_encoder_num_vectors(), self.cp.seed)
        lists = assign(X, self.centroids()[:1])[0].astype(np.int64)
        self.train_encoder(len(X), faiss.swig_ptr(X), faiss.swig_ptr(lists))

    def _screening(self) -> Screening:
        codewords = faiss.vector_to_array(self.pq.centroids).reshape(self.pq.M, CODEWORDS, self.pq.dsub)
        return Screening(
            np.ascontiguousarray(codewords.transpose(0, 2, 1)), self.centroids()[0], _checked(self.k_factor)
        )

    def _all_lists(self) -> probing.Lists:
        lists = inverted.all_lists(self)
        if lists.screening is not None and lists.screening.k_factor != self.k_factor:
            lists = replace(lists, screening=replace(lists.screening, k_factor=_checked(self.k_factor)))
            self._cached_lists = self.routing, lists
        return lists

    # --- as in every inverted file ----------------------------------------------------------------------------------

    partitions = property(inverted.partitions)
    centroids = inverted.centroids
    routes = inverted.routes
    train = inverted.train
    remove_ids = inverted.remove_ids
    reset = inverted.reset
    search_evidence = inverted.search_evidence
    search_certified = inverted.search_certified
    nprobe_for = inverted.recall_nprobe
    search_members = inverted.search_members
    _check_lists = inverted.check_lists
    _lists = inverted.lists_of_rows
    _regroup = inverted.regroup
    _empty_references = inverted.empty_references
    _forget = inverted.forget
    _take_centroids = inverted.take_centroids
    _insert = inverted.insert
    _append = inverted.append
    _without_direct_map = inverted.without_direct_map
    _relabel = inverted.relabel
    _search = inverted.search_lists

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
        parameters, arrays = inverted.extras(self)
        return parameters | {"k_factor": _checked(self.k_factor)}, arrays | {"vectors": self._vectors}

    def _restore(self, parameters: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        self.k_factor, self._vectors = parameters["k_factor"], arrays["vectors"]
        inverted.restore(self, parameters, arrays)


def _checked(k_factor: float) -> float:
    return as_number("k_factor", k_factor, 1, _MOST)


def _parts(refine: Any) -> tuple[Any, Any]:
    """Return the inverted file and the flat index of a stock index that refines the one by the other."""
    if isinstance(refine, faiss.IndexRefine):
        ivf, flat = faiss.downcast_index(refine.base_index), faiss.downcast_index(refine.refine_index)
        if isinstance(ivf, faiss.IndexIVFPQ) and isinstance(flat, faiss.IndexFlat):
            return ivf, flat
        raise TypeError(
            "refine must be a faiss.IndexRefine of an IndexIVFPQ by an IndexFlat, got one of an "
            f"{type(ivf).__name__} by an {type(flat).__name__}"
        )
    raise TypeError(f"refine must be a faiss.IndexRefine of an IndexIVFPQ, got {type(refine).__name__}")
