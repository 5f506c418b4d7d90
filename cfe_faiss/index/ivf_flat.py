"""Inverted-file index for evidence search, with the paper's LocalCE-I as a preset."""

from __future__ import annotations

import math
from typing import Any, Literal, Self

import faiss
import numpy as np
from numpy.typing import ArrayLike

from cfe_faiss.base.checks import as_count
from cfe_faiss.index import ivf_base
from cfe_faiss.index.ivf_base import EvidenceIVFMixin
from cfe_faiss.rows import id_map
from cfe_faiss.rows.faiss_functions import flat_index
from cfe_faiss.rows.metric import Metric, as_metric, as_rows, faiss_metric


class IndexEvidenceIVF(EvidenceIVFMixin, faiss.IndexIVFFlat):  # type: ignore[misc]
    """Inverted-file index of counterfactual evidence.

    A subclass of ``faiss.IndexIVFFlat``: FAISS tools see a stock index over the first partition, with each vector
    stored once. Supplementary partitions store row numbers only. The memory is 4 * n * d bytes for vectors, 8 * n for
    ids and 4 * n per supplementary partition. Rows of a list are sorted by label. With one partition, a large
    :meth:`add_with_labels` or the first search adds blocks for screening: about (d + 36) * n bytes, or (4 * d + 9) * n
    if float blocks are faster; 2 GiB at most.

    Parameters
    ----------
    d
        Dimension of the vectors.
    nlist
        Number of lists (clusters) per partition. With ``"auto"`` it is 0 until :meth:`train` chooses 4 * sqrt(n) for
        n vectors.
    partitions
        Number of partitions, >= 1. All but the first are supplementary (paper, "Supplementary Partitioning").
    theta
        Angle of the caps in the weight of a vector (paper, "Weighted Clustering"), in radians, in (0, pi/2].
    weighted
        Whether the clustering of supplementary partitions uses these weights.
    complete
        Whether a search probes further lists until a row has min(k, eligible) results.
    metric
        As in :class:`IndexEvidenceFlat`. "ip" and "l2" have one partition.
    routing
        ``"evidence"`` ranks lists by the similarity of the query to their vectors of other classes; ``"nearest"`` ranks
        them by their centroids, as in the paper.

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

    def __init__(  # noqa: PLR0913
        self,
        d: int,
        nlist: int | Literal["auto"],
        partitions: int = 1,
        *,
        theta: float = math.pi / 3,
        weighted: bool = True,
        complete: bool = True,
        routing: str = "evidence",
        metric: Metric | int = "cosine",
    ) -> None:
        d, nlist, self._metric = as_count("d", d), ivf_base.as_nlist(nlist), as_metric("metric", metric)
        constant = faiss_metric(self._metric)
        super().__init__(flat_index(d, constant), d, nlist, constant)
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
        """Return an untrained index with the settings of the paper's LocalCE-I (Algorithm 2).

        A query probes one cluster: the cluster of the nearest centroid of all partitions. It is the optimal cluster of
        the optimal partition, since the weight increases with the angle. Rows may have fewer than k results.

        Parameters
        ----------
        d
            Dimension of the vectors.
        partitions, clusters, theta
            The paper's p, m and theta.
        weighted
            False selects the ablation "w/o WC": supplementary partitions without weights.
        supplementary
            False selects the ablation "w/o SP": the first partition only. It has no weights, as these come from the
            previous partition.
        """
        partitions = partitions if supplementary else 1
        index = cls(d, clusters, partitions, theta=theta, weighted=weighted, complete=False, routing="nearest")
        index.nprobe = 1
        index.cp.max_points_per_centroid = 1 << 30  # the paper clusters all vectors, not a sample
        return index

    @classmethod
    def from_stock(
        cls, ivf: Any, labels: ArrayLike, *, nprobe: int | None = None, metric: Metric | int | None = None
    ) -> Self:
        """Return an evidence index over the vectors, ids, centroids and lists of a stock ``faiss.IndexIVFFlat``.

        Parameters
        ----------
        ivf
            Trained stock index over inner products or squared distances; it is not changed.
        labels
            Predicted class of each of its vectors, (n,), in ascending order of their ids; -1 for "unknown".
        nprobe
            Number of lists to probe by default, >= 1; that of the stock index if left out.
        metric
            By default that of ``ivf``, "ip" or "l2". ``"cosine"`` normalises the vectors and the centroids.

        Raises
        ------
        TypeError, ValueError
            If an argument is invalid.
        """
        if not isinstance(ivf, faiss.IndexIVFFlat):
            raise TypeError(f"ivf must be a faiss.IndexIVFFlat, got {type(ivf).__name__}")
        if not ivf.is_trained:
            raise ValueError("ivf must be trained, got an untrained index")
        index = cls(ivf.d, ivf.nlist, metric=id_map.metric_of("ivf", ivf, metric))
        rows = as_rows("ivf's vectors", id_map.stock_contents(ivf)[0], index.d, index.metric)
        return index._adopt(ivf, labels, nprobe, rows.view(np.uint8), rows)

    def _construct(self, stock: Any) -> None:
        faiss.IndexIVFFlat.__init__(self, stock.quantizer, stock.d, stock.nlist, stock.metric_type)
