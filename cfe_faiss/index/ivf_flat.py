"""Evidence search over an inverted file: one index for our default and, as a preset, for the paper's LocalCE-I."""

from __future__ import annotations

import math
from typing import Any, Literal, Self

import faiss
import numpy as np
from numpy.typing import ArrayLike

from cfe_faiss.base.checks import as_count, as_labels, as_unit_rows
from cfe_faiss.index import ivf_base
from cfe_faiss.index.ivf_base import EvidenceIVFMixin
from cfe_faiss.index.transaction import Transaction
from cfe_faiss.rows import id_map
from cfe_faiss.rows.layout import list_sizes


class IndexEvidenceIVF(EvidenceIVFMixin, faiss.IndexIVFFlat):  # type: ignore[misc]
    """Inverted-file index of counterfactual evidence over inner products of unit vectors.

    A genuine ``faiss.IndexIVFFlat``: to every FAISS tool it is a stock index over the first partition, each vector
    stored once. Supplementary partitions hold row numbers only, so the memory is 4 * n * d bytes for the vectors, 8 * n
    for their ids and 4 * n for every further partition. Rows of a list are kept sorted by label. The first search adds
    blocks, in which vectors are screened: about (d + 36) * n bytes, or (4 * d + 9) * n where floats are faster, with
    one partition and up to 2 GiB.

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
    >>> D, I = index.search_stored([7], k=5, nprobe=20)
    >>> I.shape, bool((labels[I] != labels[7]).all())
    ((1, 5), True)
    """

    _stock = faiss.IndexIVFFlat

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
        d, nlist = as_count("d", d), ivf_base.as_nlist(nlist)
        super().__init__(faiss.IndexFlatIP(d), d, nlist, faiss.METRIC_INNER_PRODUCT)
        self._set_up_lists(partitions, theta=theta, weighted=weighted, complete=complete, routing=routing)

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

        A query probes one cluster only, that of the nearest centroid among all partitions, which is the optimal
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
        X, ids = id_map.stock_contents(ivf)
        new_labels = as_labels("labels", labels, len(X), unknown=True)
        index = cls(ivf.d, ivf.nlist)
        index.nprobe = ivf.nprobe
        index.take_centroids(ivf_base.stock_centroids(ivf)[None])
        lists = np.repeat(np.arange(ivf.nlist, dtype=np.int32), list_sizes(ivf))[None]
        order = np.argsort(ids, kind="stable")
        units = as_unit_rows("ivf", X[order])
        Transaction(index).append(units.view(np.uint8), new_labels, ids[order], lists[:, order])
        return index

    def __repr__(self) -> str:
        return (
            f"IndexEvidenceIVF(d={self.d}, nlist={self.nlist}, partitions={self.partitions}, nprobe={self.nprobe}, "
            f"ntotal={self.ntotal})"
        )
