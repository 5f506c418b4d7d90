"""Inverted files for evidence search: float32 vectors, scalar and product codes."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, Self

import faiss
import numpy as np
from numpy.typing import ArrayLike

from cfe_faiss._native import PqCodes, row_scores
from cfe_faiss.base.checks import Bytes, Floats, Int32s, Ints, as_count, as_number, check_type
from cfe_faiss.coarse.partitions import assign
from cfe_faiss.index import ivf_base
from cfe_faiss.index.base import Arrays
from cfe_faiss.index.ivf_base import EvidenceIVFMixin
from cfe_faiss.index.parameters import hand_out, part_of
from cfe_faiss.rows import codecs
from cfe_faiss.rows.faiss_functions import Step, swapping_numbers
from cfe_faiss.rows.ids_and_labels import metric_of, stock_codes, stock_contents
from cfe_faiss.rows.metric import METRICS, PADDING, Metric, as_rows, flipped, is_distance
from cfe_faiss.rows.snapshot import Snapshot
from cfe_faiss.search.query import Effort

_BITS = 8
CODEWORDS = 256
_MOST = 1e9
_BLOCK = 1 << 24  # numbers in vectors that are compared at once


class IndexEvidenceIVF(EvidenceIVFMixin, faiss.IndexIVFFlat):  # type: ignore[misc]
    """Inverted-file index of counterfactual evidence.

    A subclass of ``faiss.IndexIVFFlat``: FAISS tools see a stock index over the first partition,
    with each vector stored once. Supplementary partitions store row numbers only. The memory is 4 *
    n * d bytes for vectors, 8 * n for ids and 4 * n per supplementary partition. Rows of a list are
    sorted by label. With one partition, a large :meth:`add_with_labels` or the first search adds
    blocks for screening: about (d + 36) * n bytes, or (4 * d + 9) * n if float blocks are faster; 2
    GiB at most.

    Parameters
    ----------
    d
        Dimension of the vectors.
    nlist
        Number of lists (clusters) per partition. With ``"auto"`` it is 0 until :meth:`train`
        chooses 4 * sqrt(n) for n vectors.
    partitions
        Number of partitions, >= 1. All but the first are supplementary (paper, "Supplementary
        Partitioning").
    theta
        Angle of the caps in the weight of a vector (paper, "Weighted Clustering"), in radians, in
        (0, pi/2].
    weighted
        Whether the clustering of supplementary partitions uses these weights.
    complete
        Whether a search probes further lists until a row has min(k, eligible) results.
    metric
        As in :class:`IndexEvidenceFlat`. "ip" and "l2" have one partition.
    routing
        ``"evidence"`` ranks lists by the similarity of the query to their vectors of other classes;
        ``"nearest"`` ranks them by their centroids, as in the paper.

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
        quantizer, d, nlist, constant = self._checked_sizes(d, nlist, metric)
        super().__init__(quantizer, d, nlist, constant)
        self._set_up_lists(
            partitions, theta=theta, weighted=weighted, complete=complete, routing=routing
        )

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

        A query probes one cluster: the cluster of the nearest centroid of all partitions. It is the
        optimal cluster of the optimal partition, since the weight increases with the angle. Rows
        may have fewer than k results.

        Parameters
        ----------
        d
            Dimension of the vectors.
        partitions, clusters, theta
            The paper's p, m and theta.
        weighted
            False selects the ablation "w/o WC": supplementary partitions without weights.
        supplementary
            False selects the ablation "w/o SP": the first partition only. It has no weights, as
            these come from the previous partition.
        """
        partitions = partitions if supplementary else 1
        index = cls(
            d,
            clusters,
            partitions,
            theta=theta,
            weighted=weighted,
            complete=False,
            routing="nearest",
        )
        index.nprobe = 1
        index.cp.max_points_per_centroid = 1 << 30  # the paper clusters all vectors, not a sample
        return index

    @classmethod
    def from_stock(
        cls,
        ivf: Any,
        labels: ArrayLike,
        *,
        nprobe: int | None = None,
        metric: Metric | int | None = None,
    ) -> Self:
        """Return an evidence index over the contents of a stock ``faiss.IndexIVFFlat``.

        Parameters
        ----------
        ivf
            Trained stock index over inner products or squared distances; it is not changed.
        labels
            Predicted class of each of its vectors, (n,), in ascending order of their ids; -1 for
            "unknown".
        nprobe
            Number of lists to probe by default, >= 1; that of the stock index if left out.
        metric
            By default that of ``ivf``, "ip" or "l2". ``"cosine"`` normalises the vectors and the
            centroids.

        Raises
        ------
        TypeError, ValueError
            If an argument is invalid.
        """
        check_type("ivf must be a faiss.IndexIVFFlat", ivf, faiss.IndexIVFFlat)
        if not ivf.is_trained:
            raise ValueError("ivf must be trained, got an untrained index")
        index = cls(ivf.d, ivf.nlist, metric=metric_of("ivf", ivf, metric))
        rows = as_rows("ivf's vectors", stock_contents(ivf)[0], index.d, index.metric)
        return index._adopt(ivf, labels, nprobe, rows.view(np.uint8), rows)

    def _construct(self, stock: Any) -> None:
        faiss.IndexIVFFlat.__init__(self, stock.quantizer, stock.d, stock.nlist, stock.metric_type)


class IndexEvidenceIVFScalarQuantizer(
    EvidenceIVFMixin,
    faiss.IndexIVFScalarQuantizer,  # type: ignore[misc]
):
    """Inverted-file index of counterfactual evidence with 1 or 2 bytes per vector component.

    A subclass of ``faiss.IndexIVFScalarQuantizer``. The index stores codes only. Its vectors are
    the decoded codes: similarities, ``reconstruct`` and queries by stored id all use them.
    Otherwise it works like :class:`IndexEvidenceIVF`.

    Parameters
    ----------
    d, nlist, partitions, theta, weighted, complete, routing, metric
        As in :class:`IndexEvidenceIVF`.
    qtype
        ``faiss.ScalarQuantizer.QT_8bit``, d bytes per vector: each component has 256 steps between
        its minimum and maximum in the training data. Or ``faiss.ScalarQuantizer.QT_fp16``, 2 d
        bytes per vector.

    Examples
    --------
    >>> import numpy as np
    >>> import cfe_faiss as cfe
    >>> X = np.random.default_rng(0).normal(size=(500, 8)).astype(np.float32)
    >>> index = cfe.IndexEvidenceIVFScalarQuantizer(8, nlist=20)
    >>> index.train(X)
    >>> index.add_with_labels(X, np.arange(500) % 3)
    >>> D, I = index.search_stored([7], k=5)
    >>> index.code_size, bool((I % 3 != 7 % 3).all())
    (8, True)
    """

    _stock = faiss.IndexIVFScalarQuantizer

    stores_codes: bool = True

    def __init__(  # noqa: PLR0913
        self,
        d: int,
        nlist: int | Literal["auto"],
        partitions: int = 1,
        *,
        qtype: int = faiss.ScalarQuantizer.QT_8bit,
        theta: float = math.pi / 3,
        weighted: bool = True,
        complete: bool = True,
        routing: str = "evidence",
        metric: Metric | int = "cosine",
    ) -> None:
        quantizer, d, nlist, constant = self._checked_sizes(d, nlist, metric)
        if qtype not in codecs.SCALAR_BY_TYPE:
            raise ValueError(
                f"qtype must be {codecs.TYPE_NAMES} of faiss.ScalarQuantizer, got {qtype!r}"
            )
        # Codes without residuals decode independently of their list, so supplementary partitions
        # can refer to them.
        super().__init__(quantizer, d, nlist, qtype, constant, False)
        self._set_up_lists(
            partitions, theta=theta, weighted=weighted, complete=complete, routing=routing
        )

    @classmethod
    def from_stock(
        cls,
        ivf: Any,
        labels: ArrayLike,
        *,
        nprobe: int | None = None,
        metric: Metric | int | None = None,
    ) -> Self:
        """Return an evidence index over the codes, ids, centroids and lists of a stock index.

        Parameters
        ----------
        ivf
            Trained ``faiss.IndexIVFScalarQuantizer`` over inner products or squared distances, of
            type QT_8bit or QT_fp16, with ``by_residual`` False. It is not changed.
        labels
            Predicted class of each of its vectors, (n,), in ascending order of their ids; -1 for
            "unknown".
        nprobe
            Number of lists to probe by default, >= 1; that of the stock index if left out.
        metric
            By default that of ``ivf``, "ip" or "l2". ``"cosine"`` requires unit vectors up to the
            error of the codec.

        Raises
        ------
        TypeError, ValueError
            If an argument is invalid.
        """
        check_type(
            "ivf must be a faiss.IndexIVFScalarQuantizer", ivf, faiss.IndexIVFScalarQuantizer
        )
        metric_name = metric_of("ivf", ivf, metric)
        if not ivf.is_trained:
            raise ValueError("ivf must be trained, got an untrained index")
        if ivf.sq.qtype not in codecs.SCALAR_BY_TYPE or ivf.by_residual:
            raise ValueError(
                f"ivf must be of type {codecs.TYPE_NAMES} with by_residual False, got qtype "
                f"{ivf.sq.qtype}, by_residual {ivf.by_residual}"
            )
        index = cls(ivf.d, ivf.nlist, qtype=ivf.sq.qtype, metric=metric_name)
        index.sq = ivf.sq
        return index._adopt(ivf, labels, nprobe, stock_codes(ivf)[0])

    @property
    def _scalar(self) -> codecs.ScalarCodec:
        return codecs.SCALAR_BY_TYPE[self.sq.qtype]

    def _settings(self) -> str:
        return f"partitions={self.partitions}, qtype={self._scalar.type_name}"

    def _construct(self, stock: Any) -> None:
        settings = stock.d, stock.nlist, stock.sq.qtype, stock.metric_type, False
        faiss.IndexIVFScalarQuantizer.__init__(self, stock.quantizer, *settings)
        self.sq = stock.sq

    # --- codes ------------------------------------------------------------------------------------

    def _codec(self) -> tuple[int, Floats]:
        if not self._scalar.has_levels:
            return self._scalar.codec, codecs.NO_LEVELS
        return self._scalar.codec, faiss.vector_to_array(self.sq.trained).reshape(2, -1)

    def _new_rows(
        self, codes: Bytes, X: Floats | None, ids: Ints, lists: Int32s
    ) -> tuple[Any, Any, Any, Any]:
        scalar = self._scalar
        if scalar.largest < np.inf and X is not None and X.size and abs(X).max() > scalar.largest:
            raise ValueError(
                f"vectors must have components up to {scalar.largest:.0f} for {scalar.type_name}, "
                f"got {abs(X).max():g}"
            )
        return super()._new_rows(codes, X, ids, lists)

    def _codec_training(self, X: Floats, centroids: Floats) -> list[Step]:
        aside = faiss.IndexScalarQuantizer(self.d, self.sq.qtype, faiss.METRIC_INNER_PRODUCT)
        aside.sq = self.sq
        aside.sq.train(ivf_base.sample(X, self.train_encoder_num_vectors(), self.cp.seed))
        return swapping_numbers(self.sq.trained, aside.sq.trained, aside)


class IndexEvidenceIVFPQ(EvidenceIVFMixin, faiss.IndexIVFPQ):  # type: ignore[misc]
    """Inverted-file index of evidence with product-quantizer codes and exact re-ranking.

    A subclass of ``faiss.IndexIVFPQ``, whose lists store M bytes per vector. The index also stores
    the float32 vectors. A search, also a plain ``search``, ranks the vectors of the probed lists by
    their codes and re-ranks the best ``k_factor * k`` by the vectors, as ``faiss.IndexRefineFlat``
    does, so similarities are exact. A plain ``range_search`` compares the vectors whose codes are
    within a wider threshold: ``k_factor`` times as far for "l2", and the threshold divided by
    ``k_factor`` else. A search for evidence in all lists, including a widened search, ignores the
    codes and is exact.

    The codes save memory if the index is mapped from its file,
    ``cfe.read_index(path, faiss.IO_FLAG_MMAP)``: only scored vectors are read. An index in memory
    also holds all vectors, 4 * d bytes each.

    Parameters
    ----------
    d, nlist, partitions, theta, weighted, complete, routing, metric
        As in :class:`IndexEvidenceIVF`.
    M
        Bytes per code; must divide d.
    k_factor
        Number of vectors scored per result, >= 1, as in ``faiss.IndexRefineFlat``. The attribute
        can be set at any time.

    Examples
    --------
    >>> import numpy as np
    >>> import cfe_faiss as cfe
    >>> X = np.random.default_rng(0).normal(size=(500, 8)).astype(np.float32)
    >>> index = cfe.IndexEvidenceIVFPQ(8, nlist=20, M=4)
    >>> index.train(X)
    >>> index.add_with_labels(X, np.arange(500) % 3)
    >>> D, I = index.search_stored([7], k=5)
    >>> index.code_size, bool((I % 3 != 7 % 3).all())
    (4, True)
    """

    _stock = faiss.IndexIVFPQ
    k_factor: float = 8.0
    stores_codes: bool = True
    _keeps_beside: bool = True

    def __init__(  # noqa: PLR0913
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
        metric: Metric | int = "cosine",
    ) -> None:
        quantizer, d, nlist, constant = self._checked_sizes(d, nlist, metric)
        M = as_count("M", M)
        if d % M:
            raise ValueError(f"M must divide d = {d}, got {M}")
        super().__init__(quantizer, d, nlist, M, _BITS, constant)
        self.pq.cp.min_points_per_centroid = 1
        self.k_factor = _checked(k_factor)
        self._set_up_lists(
            partitions, theta=theta, weighted=weighted, complete=complete, routing=routing
        )

    @classmethod
    def from_stock(
        cls,
        refine: Any,
        labels: ArrayLike,
        *,
        nprobe: int | None = None,
        metric: Metric | int | None = None,
    ) -> Self:
        """Return an evidence index over the codes, vectors, centroids and lists of a stock index.

        Parameters
        ----------
        refine
            Trained ``faiss.IndexRefine`` (``IndexRefineFlat``) of a ``faiss.IndexIVFPQ`` with 8-bit
            codes of residuals and a ``faiss.IndexFlat``, over inner products or squared distances.
            The flat part is required, as codes cannot be decoded exactly. The stock index is not
            changed.
        labels
            Predicted class of each of its vectors, (n,); -1 for "unknown".
        nprobe
            Number of lists to probe by default, >= 1; that of the stock index if left out.
        metric
            By default that of ``refine``, "ip" or "l2". ``"cosine"`` requires unit vectors.

        Raises
        ------
        TypeError, ValueError
            If an argument is invalid.
        """
        ivf, flat = _parts(refine)
        metric_name = metric_of("refine", ivf, metric)
        if not ivf.is_trained:
            raise ValueError("refine must be trained, got an untrained index")
        nbits = ivf.pq.nbits
        by_residual = ivf.by_residual
        if nbits != _BITS or not by_residual:
            raise ValueError(
                f"refine must have 8-bit codes of residuals, got nbits = {nbits}, by_residual = "
                f"{by_residual}"
            )
        index = cls(
            ivf.d, ivf.nlist, ivf.pq.M, k_factor=max(1.0, refine.k_factor), metric=metric_name
        )
        index.pq = ivf.pq
        codes, ids = stock_codes(ivf)
        if not np.array_equal(np.sort(ids), np.arange(flat.ntotal)):
            raise ValueError(f"refine must have the ids 0..{flat.ntotal - 1}, each once")
        return index._adopt(ivf, labels, nprobe, codes, flat.reconstruct_n(0, flat.ntotal)[ids])

    def _settings(self) -> str:
        return f"M={self.pq.M}, partitions={self.partitions}, k_factor={self.k_factor:g}"

    # --- codes and vectors ------------------------------------------------------------------------

    def _codec_training(self, X: Floats, centroids: Floats) -> list[Step]:
        if len(X) < CODEWORDS:
            raise ValueError(f"x must hold at least {CODEWORDS} training vectors, got {len(X)}")
        X = ivf_base.sample(X, self.train_encoder_num_vectors(), self.cp.seed)
        lists = assign(X, centroids[:1], self.metric)[0]
        aside = faiss.IndexPQ(self.d, self.pq.M, _BITS)
        aside.pq = self.pq
        aside.pq.train(X - centroids[0][lists])
        return swapping_numbers(self.pq.centroids, aside.pq.centroids, aside)

    def _pq_codes(self) -> PqCodes:
        codewords = faiss.vector_to_array(self.pq.centroids).reshape(
            self.pq.M, CODEWORDS, self.pq.dsub
        )
        centroids = np.ascontiguousarray(self._all_centroids()[0])
        return PqCodes(np.ascontiguousarray(codewords.transpose(0, 2, 1)), centroids)

    def default_effort(self) -> Effort:
        """Return the default effort of the index."""
        return super().default_effort()._replace(k_factor=_checked(self.k_factor))

    # --- FAISS's searches, refined ----------------------------------------------------------------

    def _of_stock(
        self,
        name: str,
        about: tuple[Any, ...],
        params: Any,
        further: dict[str, Any],
        refine: Any = None,
    ) -> Any:
        x, limit = about
        k_factor = _checked(self.k_factor)
        if isinstance(params, faiss.IndexRefineSearchParameters):
            k_factor = params.k_factor
            params = part_of(params, "base_index_params")
        if name == "range_search":
            widened = is_distance(self.metric) == (limit > 0)
            radius = limit * k_factor if widened else limit / k_factor
            return super()._of_stock(
                name, (x, radius), params, further, partial(self._refine_range, limit)
            )
        k = as_count("k", limit)
        out = {part: further.pop(part) for part in ("D", "I", "R") if part in further}
        refine = partial(self._refine, k, "R" in out)
        results = super()._of_stock(
            "search", (x, max(k, int(k * k_factor))), params, further, refine
        )
        return hand_out(x, results, **out)

    def _refine(
        self, k: int, reconstruct: bool, snapshot: Snapshot, x: Any, candidates: Any
    ) -> tuple[Any, ...]:
        """Return D and I of the k best candidates of each query, and their vectors if asked."""
        I = np.asarray(candidates[1])
        query, place = np.nonzero(I >= 0)
        scores = np.full(I.shape, PADDING, np.float32)
        scores[query, place] = self._scores(snapshot, x, query, I[query, place])
        order = np.lexsort((I, -scores))[:, :k]
        I = np.take_along_axis(I, order, axis=1)
        D = flipped(np.take_along_axis(scores, order, axis=1), self.metric)
        if not reconstruct:
            return D, I
        vectors = np.full((*I.shape, self.d), np.nan, np.float32)
        vectors[I >= 0] = snapshot.copied(snapshot.find(I[I >= 0]))[0]
        return D, I, vectors

    def _refine_range(
        self, threshold: float, snapshot: Snapshot, x: Any, candidates: Any
    ) -> tuple[Any, ...]:
        """Return lims, D and I of the candidates that are within a threshold by their vectors."""
        lims, _, I = (np.asarray(part) for part in candidates)
        starts = lims.astype(np.int64)
        query = np.repeat(np.arange(len(starts) - 1), starts[1:] - starts[:-1])
        scores = self._scores(snapshot, x, query, I)
        D = flipped(scores, self.metric)
        limit = np.float32(threshold)
        is_within = limit > D if is_distance(self.metric) else limit < D
        lims = np.append(0, np.cumsum(is_within))[starts].astype(lims.dtype)
        return hand_out(x, (lims, D[is_within], I[is_within]), lims=None, D=None, I=None)

    def _scores(self, snapshot: Snapshot, x: Any, query: Ints, ids: Ints) -> Floats:
        """Return the score of each pair of a query and a stored vector as FAISS compares them."""
        X = np.ascontiguousarray(x, np.float32)
        rows = snapshot.find(ids)
        # FAISS does not normalise queries.
        metric = METRICS.index(self.metric if is_distance(self.metric) else "ip")
        scores = np.empty(len(ids), np.float32)
        size = max(1, _BLOCK // self.d)
        for start in range(0, len(ids), size):
            block = slice(start, start + size)
            Y = snapshot.copied(rows[block])[0]
            row_scores(
                metric, X, Y, np.ascontiguousarray(query[block]), np.arange(len(Y)), scores[block]
            )
        return scores

    def assign(self, x: Any, k: int, labels: Any = None) -> Any:
        """Return the ids of the k nearest vectors, (nq, k)."""
        return self.search(x, k, I=labels)[1]

    def add_sa_codes(self, *_: Any, **__: Any) -> None:
        """Not supported: codes cannot be decoded exactly; use add_with_labels."""
        raise self._refused(
            "add_sa_codes",
            "codes do not tell the vectors, which are kept, too; use add_with_labels",
        )

    # --- files ------------------------------------------------------------------------------------

    def parts(self) -> tuple[Any, dict[str, Any], Arrays]:
        """Return the stock index, the parameters and the arrays of the index file."""
        stock, parameters, arrays = super().parts()
        vectors = self._table.vectors().reshape(-1, self.d)
        return (
            stock,
            parameters | {"k_factor": _checked(self.k_factor)},
            arrays | {"vectors": vectors},
        )

    def _construct(self, stock: Any) -> None:
        faiss.IndexIVFPQ.__init__(
            self, stock.quantizer, stock.d, stock.nlist, stock.pq.M, _BITS, stock.metric_type
        )
        self.pq = stock.pq
        self.precompute_table()

    def restore(
        self,
        stock: Any,
        parameters: dict[str, Any],
        arrays: Arrays,
        check: Callable[[], None] | None = None,
    ) -> None:
        """Take over a stock index, and restore the parameters and arrays of :meth:`parts`."""
        self.k_factor = parameters["k_factor"]
        super().restore(stock, parameters, arrays, check)


def _checked(k_factor: float) -> float:
    return as_number("k_factor", k_factor, 1, _MOST)


def _parts(refine: Any) -> tuple[Any, Any]:
    """Return the inverted file and the flat index of a stock ``IndexRefine``."""
    if isinstance(refine, faiss.IndexRefine):
        ivf = faiss.downcast_index(refine.base_index)
        flat = faiss.downcast_index(refine.refine_index)
        if isinstance(ivf, faiss.IndexIVFPQ) and isinstance(flat, faiss.IndexFlat):
            return ivf, flat
        raise TypeError(
            "refine must be a faiss.IndexRefine of an IndexIVFPQ by an IndexFlat, got one of an "
            f"{type(ivf).__name__} by an {type(flat).__name__}"
        )
    raise TypeError(
        f"refine must be a faiss.IndexRefine of an IndexIVFPQ, got {type(refine).__name__}"
    )
