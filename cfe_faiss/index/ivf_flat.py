"""Evidence search over an inverted file: one index for our default and, as a preset, for the paper's LocalCE-I."""

import math
from collections.abc import Callable
from typing import Any, Literal, Self

import faiss
import numpy as np
from numpy.typing import ArrayLike, NDArray

from cfe_faiss.checks import as_count, as_labels, as_unit_rows
from cfe_faiss.coarse.class_centroids import Routes
from cfe_faiss.index import base as shared
from cfe_faiss.index import ivf_base as inverted
from cfe_faiss.lists import id_map as members
from cfe_faiss.lists.id_map import Members
from cfe_faiss.lists.read_write_lock import Gate
from cfe_faiss.lists.storage import Storage
from cfe_faiss.search import searcher as probing


class IndexEvidenceIVF(faiss.IndexIVFFlat):  # type: ignore[misc]
    """Inverted-file index of counterfactual evidence over inner products of unit vectors.

    A genuine ``faiss.IndexIVFFlat``: to every FAISS tool it is a stock index over the first partition, each vector
    stored once. Supplementary partitions hold row numbers only, so the memory is 4 * n * d bytes for the vectors, 8 * n
    for their ids and 4 * n for every further partition. Rows of a list are kept sorted by label. The first search adds
    about (d + 36) * n bytes, in which vectors are screened: with one partition, up to 2 GiB, and where the processor
    multiplies bytes.

    Parameters
    ----------
    d
        Length of the vectors.
    nlist
        Lists (clusters) in a partition. ``"auto"`` leaves it to :meth:`train`, which makes 4 * sqrt(n) of n vectors;
        until then it is 0.
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
        nlist: int | Literal["auto"],
        partitions: int = 1,
        *,
        theta: float = math.pi / 3,
        weighted: bool = True,
        complete: bool = True,
        routing: str = "evidence",
    ) -> None:
        d, nlist = as_count("d", d), inverted.as_nlist(nlist)
        super().__init__(faiss.IndexFlatIP(d), d, nlist, faiss.METRIC_INNER_PRODUCT)
        inverted.set_up(self, partitions, theta=theta, weighted=weighted, complete=complete, routing=routing)

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
        index._take_centroids(inverted.stock_centroids(ivf)[None])
        lists = np.repeat(np.arange(ivf.nlist, dtype=np.int32), inverted.list_sizes(ivf))[None]
        order = np.argsort(ids, kind="stable")
        checked = members.new_ids(index.storage(), ids[order], len(ids))
        index._append(as_unit_rows("ivf", X[order]), new_labels, checked, lists[:, order])
        return index

    def __repr__(self) -> str:
        return (
            f"IndexEvidenceIVF(d={self.d}, nlist={self.nlist}, partitions={self.partitions}, nprobe={self.nprobe}, "
            f"ntotal={self.ntotal})"
        )

    # --- as in every inverted file ---------------------------------------------------------------------------------

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
    _located = inverted.located
    _train_codec = inverted.nothing_to_train
    _rearrange = inverted.nothing_beside
    _screening = inverted.no_screening
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
    _all_lists = inverted.all_lists
    _extras = inverted.extras
    _restore = inverted.restore

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
