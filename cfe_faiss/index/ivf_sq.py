"""Inverted file of 8-bit or float16 codes, with a quarter or half of the memory of float32 vectors."""

from __future__ import annotations

import math
from typing import Any, Literal, Self

import faiss
from numpy.typing import ArrayLike

from cfe_faiss.base.arrays import Bytes, Floats, Int32s, Ints
from cfe_faiss.base.checks import as_count
from cfe_faiss.index import ivf_base
from cfe_faiss.index.ivf_base import EvidenceIVFMixin
from cfe_faiss.rows import codecs
from cfe_faiss.rows.faiss_functions import Step, flat_index, swapping_numbers
from cfe_faiss.rows.id_map import metric_of
from cfe_faiss.rows.layout import stock_codes
from cfe_faiss.rows.metric import Metric, as_metric, faiss_metric

_CODECS = {faiss.ScalarQuantizer.QT_fp16: codecs.FP16, faiss.ScalarQuantizer.QT_8bit: codecs.SQ8}
_LARGEST_HALF = 65504
_NAMES = {faiss.ScalarQuantizer.QT_fp16: "QT_fp16", faiss.ScalarQuantizer.QT_8bit: "QT_8bit"}


class IndexEvidenceIVFScalarQuantizer(EvidenceIVFMixin, faiss.IndexIVFScalarQuantizer):  # type: ignore[misc]
    """Inverted-file index of counterfactual evidence with 1 or 2 bytes per vector component.

    A subclass of ``faiss.IndexIVFScalarQuantizer``. The index stores codes only. Its vectors are the decoded codes:
    similarities, ``reconstruct`` and queries by stored id all use them. Otherwise it works like
    :class:`IndexEvidenceIVF`.

    Parameters
    ----------
    d, nlist, partitions, theta, weighted, complete, routing, metric
        As in :class:`IndexEvidenceIVF`.
    qtype
        ``faiss.ScalarQuantizer.QT_8bit``, d bytes per vector: each component has 256 steps between its minimum and
        maximum in the training data. Or ``faiss.ScalarQuantizer.QT_fp16``, 2 d bytes per vector.

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
        d, nlist, self._metric = as_count("d", d), ivf_base.as_nlist(nlist), as_metric("metric", metric)
        if qtype not in _CODECS:
            raise ValueError(f"qtype must be QT_8bit or QT_fp16 of faiss.ScalarQuantizer, got {qtype!r}")
        # Codes without residuals decode independently of their list, so supplementary partitions can refer to them.
        constant = faiss_metric(self._metric)
        super().__init__(flat_index(d, constant), d, nlist, qtype, constant, False)
        self._set_up_lists(partitions, theta=theta, weighted=weighted, complete=complete, routing=routing)

    @classmethod
    def from_stock(
        cls, ivf: Any, labels: ArrayLike, *, nprobe: int | None = None, metric: Metric | int | None = None
    ) -> Self:
        """Return an evidence index over the codes, ids, centroids and lists of a stock index.

        Parameters
        ----------
        ivf
            Trained ``faiss.IndexIVFScalarQuantizer`` over inner products or squared distances, of type QT_8bit or
            QT_fp16, with ``by_residual`` False. It is not changed.
        labels
            Predicted class of each of its vectors, (n,), in ascending order of their ids; -1 for "unknown".
        nprobe
            Number of lists to probe by default, >= 1; that of the stock index if left out.
        metric
            By default that of ``ivf``, "ip" or "l2". ``"cosine"`` requires unit vectors up to the error of the codec.

        Raises
        ------
        TypeError, ValueError
            If an argument is invalid.
        """
        if not isinstance(ivf, faiss.IndexIVFScalarQuantizer):
            raise TypeError(f"ivf must be a faiss.IndexIVFScalarQuantizer, got {type(ivf).__name__}")
        chosen = metric_of("ivf", ivf, metric)
        if not ivf.is_trained:
            raise ValueError("ivf must be trained, got an untrained index")
        if ivf.sq.qtype not in _CODECS or ivf.by_residual:
            raise ValueError(
                f"ivf must be of type QT_8bit or QT_fp16 with by_residual False, got qtype {ivf.sq.qtype}, "
                f"by_residual {ivf.by_residual}"
            )
        index = cls(ivf.d, ivf.nlist, qtype=ivf.sq.qtype, metric=chosen)
        index.sq = ivf.sq
        return index._adopt(ivf, labels, nprobe, stock_codes(ivf)[0])

    def _settings(self) -> str:
        return f"partitions={self.partitions}, qtype={_NAMES[self.sq.qtype]}"

    def _construct(self, stock: Any) -> None:
        given = stock.d, stock.nlist, stock.sq.qtype, stock.metric_type, False
        faiss.IndexIVFScalarQuantizer.__init__(self, stock.quantizer, *given)
        self.sq = stock.sq

    # --- codes ------------------------------------------------------------------------------------------------------

    def _codec(self) -> tuple[int, Floats]:
        codec = _CODECS[self.sq.qtype]
        trained = faiss.vector_to_array(self.sq.trained)
        return codec, trained.reshape(2, -1) if codec == codecs.SQ8 else codecs.NO_LEVELS

    def _new_rows(self, codes: Bytes, X: Floats | None, ids: Ints, lists: Int32s) -> tuple[Any, Any, Any, Any]:
        if X is not None and self.sq.qtype == faiss.ScalarQuantizer.QT_fp16 and X.size and abs(X).max() > _LARGEST_HALF:
            raise ValueError(f"vectors must have components up to {_LARGEST_HALF} for QT_fp16, got {abs(X).max():g}")
        return super()._new_rows(codes, X, ids, lists)

    def _codec_training(self, X: Floats, centroids: Floats) -> list[Step]:
        aside = faiss.IndexScalarQuantizer(self.d, self.sq.qtype, faiss.METRIC_INNER_PRODUCT)
        aside.sq = self.sq
        aside.sq.train(ivf_base.sample(X, self.train_encoder_num_vectors(), self.cp.seed))
        return swapping_numbers(self.sq.trained, aside.sq.trained, aside)
