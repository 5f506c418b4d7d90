"""Results of a finder, evidence of nodes and pairs, as arrays and as tables."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from cfe_faiss.attributes.table import Attributes
from cfe_faiss.base.arrays import Array, Doubles, Floats, Int32s, Ints
from cfe_faiss.base.checks import UNKNOWN
from cfe_faiss.base.extras import extra
from cfe_faiss.data.classes import class_name
from cfe_faiss.pairs import missing_text, pairs_text

if TYPE_CHECKING:
    import pandas as pd

    from cfe_faiss.finder.finder import EvidenceFinder

_Sides: TypeAlias = Mapping[str, Ints]
"""Nodes of each row, (m,), by side: "source" and "target", say."""
_Columns: TypeAlias = "dict[str, pd.api.extensions.ExtensionArray | Array]"


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class LocalEvidence:
    """The evidence of some nodes.

    Attributes
    ----------
    nodes
        Row numbers of the nodes asked for, (nq,) int64.
    evidence, similarity
        Their evidence, (nq, k) int64, and its KS, (nq, k) float32, best first;
        short rows end in -1 and FAISS's padding.
    labels
        The predicted class of every node of the graph, (n,) int32.
    recall, nprobe
        Effort of the search: recall@k, 1 for an exact result; or the number of lists probed, with unknown recall. The
        other one is None.
    finder
        The finder that searched; it knows ids, classes and attributes. None for a result made by hand.
    missing
        Under constraints, by attribute: how many of the searched nodes were left out because their value is missing.
    recall_by_class
        Measured recall@k of each predicted class, on a sample of its searched nodes: see
        :meth:`cfe_faiss.IndexEvidenceIVF.recall_by_class`. 1 for exact searches, None with ``nprobe``.
    """

    nodes: Ints
    evidence: Ints
    similarity: Floats
    labels: Int32s
    recall: float | None
    nprobe: int | None
    finder: "EvidenceFinder | None" = None
    missing: Mapping[str, int] = field(default_factory=dict)
    recall_by_class: Mapping[int, float] | None = None

    def __repr__(self) -> str:
        nq, k = self.evidence.shape
        how = (
            f"nprobe={self.nprobe}" if self.recall is None else "exact" if self.recall == 1 else f"recall={self.recall}"
        )
        return f"LocalEvidence({nq:,} {'node' if nq == 1 else 'nodes'}, k={k}, {how}{missing_text(self.missing)})"

    def _repr_html_(self) -> str:
        return as_html(repr(self), self.to_frame())

    def similarity64(self) -> Doubles:
        """Return the similarities in float64, (nq, k), NaN without evidence.

        :func:`cfe_faiss.ks_similarity` defines them, :func:`cfe_faiss.base.text.similarity_error` bounds their error.
        The search has ranked by ``similarity``, which may differ in the last digits.

        Raises
        ------
        ValueError
            If the result was made without a finder.
        """
        row, place = np.nonzero(self.evidence >= 0)
        found = np.full(self.evidence.shape, np.nan)
        found[row, place] = _require_finder(self.finder).similarity64(self.nodes[row], self.evidence[row, place])
        return found

    def to_frame(self, *, attributes: bool = False) -> "pd.DataFrame":
        """Return one line per result: node, evidence, rank (from 1), similarity, node_label, evidence_label.

        With scores the last two are node_score and evidence_score. ``node`` and ``evidence`` are the user's ids, if the
        finder has ids.

        Parameters
        ----------
        attributes
            Whether to add classes and attributes of both nodes, see :meth:`PairEvidence.to_frame`; here these columns
            begin with "node" and "evidence".

        Returns
        -------
        DataFrame
            With a finder, the similarity is that of :meth:`similarity64`. O(rows * d) time.

        Raises
        ------
        ValueError
            If ``attributes`` are asked for, and neither attributes nor true classes are known.
        """
        row, place = np.nonzero(self.evidence >= 0)
        sides = {"node": self.nodes[row], "evidence": self.evidence[row, place]}
        similarity = self.similarity if self.finder is None else self.similarity64()
        columns = {"rank": place + 1, "similarity": similarity[row, place]}
        return _frame(columns, sides, self.labels, self.finder, attributes)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class PairEvidence:
    """The most similar pairs of nodes with different predicted classes, best first.

    Attributes
    ----------
    source, target
        The nodes of each pair, (k,) int64, ``source < target``.
    similarity
        Their KS, (k,) float32, descending.
    labels
        The predicted class of every node of the graph, (n,) int32.
    finder
        As in :class:`LocalEvidence`.
    missing
        As in :class:`LocalEvidence`.
    """

    source: Ints
    target: Ints
    similarity: Floats
    labels: Int32s
    finder: "EvidenceFinder | None" = None
    missing: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.similarity)

    def __repr__(self) -> str:
        ends = [0, -1][: len(self)]
        similarity: Array = self.similarity[ends]
        if self.finder is not None:
            similarity = self.finder.similarity64(self.source[ends], self.target[ends])
        return f"PairEvidence({pairs_text(len(self), similarity)}{missing_text(self.missing)})"

    def _repr_html_(self) -> str:
        return as_html(repr(self), self.to_frame())

    def similarity64(self) -> Doubles:
        """Return the similarities in float64, (k,), as :meth:`LocalEvidence.similarity64` does."""
        return _require_finder(self.finder).similarity64(self.source, self.target)

    def to_frame(self, *, attributes: bool = False) -> "pd.DataFrame":
        """Return one line per pair: source, target, similarity, source_label, target_label.

        With scores the last two are source_score and target_score. ``source`` and ``target`` are the user's ids, if the
        finder has ids.

        Parameters
        ----------
        attributes
            Whether to add columns: ``source_class`` and ``target_class``, the names of the predicted classes, if there
            are names; ``source_true`` and ``target_true``, the true classes by name or number, missing if unknown; and
            for each attribute, such as "Age", ``source_Age`` and ``target_Age`` ("source_Age (attribute)" if another
            column has that name).

        Returns
        -------
        DataFrame
            With a finder, the similarity is that of :meth:`similarity64`. O(rows * d) time.

        Raises
        ------
        ValueError
            If ``attributes`` are asked for, and neither attributes nor true classes are known.
        """
        sides = {"source": self.source, "target": self.target}
        similarity = self.similarity if self.finder is None else self.similarity64()
        return _frame({"similarity": similarity}, sides, self.labels, self.finder, attributes)


def _require_finder(finder: "EvidenceFinder | None") -> "EvidenceFinder":
    if finder is None:
        raise ValueError("the result must have a finder, which holds the vectors, got None")
    return finder


def _frame(
    columns: dict[str, Any], sides: dict[str, Ints], labels: Int32s, finder: "EvidenceFinder | None", attributes: bool
) -> "pd.DataFrame":
    with extra("audit"):
        import pandas as pd

    ids = {side: nodes if finder is None else finder.names(nodes) for side, nodes in sides.items()}
    scores = None if finder is None else finder.scores
    values, kind = (labels, "label") if scores is None else (scores, "score")
    columns = {**ids, **columns, **{f"{side}_{kind}": values[nodes] for side, nodes in sides.items()}}
    if attributes:
        if finder is None or (finder.attributes is None and finder.truth is None):
            raise ValueError("attributes=True needs a finder that knows attributes or true classes: give it features")
        if finder.class_names is not None:
            columns |= class_columns(sides, "class", labels, finder.class_names)
        if finder.truth is not None:
            columns |= class_columns(sides, "true", finder.truth, finder.class_names)
        if finder.attributes is not None:
            columns |= attribute_columns(sides, finder.attributes, columns)
    return pd.DataFrame(columns)


# --- columns and texts ------------------------------------------------------------------------------------------------


def class_columns(sides: _Sides, suffix: str, classes: Int32s, names: tuple[str, ...] | None) -> "_Columns":
    """Return a column of classes for each side, "source_true" for the suffix "true".

    ``classes`` has the class of every node, (n,). Columns hold names, or numbers if ``names`` is None. An unknown class
    (-1) is None, or missing.
    """
    with extra("audit"):
        import pandas as pd

    columns: _Columns = {}
    for side, nodes in sides.items():
        found = classes[nodes]
        if names is None:
            columns[f"{side}_{suffix}"] = pd.Series(found, dtype="Int32").mask(found == UNKNOWN).array
        else:
            texts = [None if label == UNKNOWN else class_name(names, label) for label in found.tolist()]
            columns[f"{side}_{suffix}"] = np.array([*texts, None], object)[:-1]
    return columns


def attribute_columns(sides: _Sides, attributes: Attributes, taken: "_Columns") -> "_Columns":
    """Return two columns for each attribute, "source_Age" and "target_Age".

    A name that is ``taken`` becomes "source_label (attribute)".
    """
    frames = {side: attributes.take(nodes).to_frame() for side, nodes in sides.items()}
    columns: _Columns = {}
    for name in attributes:
        is_taken = any(f"{side}_{name}" in taken for side in sides)
        for side, frame in frames.items():
            columns[f"{side}_{name}{' (attribute)' if is_taken else ''}"] = frame[name].to_numpy()
    return columns


def as_html(title: str, frame: "pd.DataFrame", rows: int = 10) -> str:
    """Return a line of text and the first rows of a frame for a notebook, all texts escaped."""
    more = f"<p>{len(frame) - rows:,} more rows</p>" if len(frame) > rows else ""
    return f"<p>{escape(title)}</p>{frame.head(rows).to_html(index=False, border=0)}{more}"


def table_html(result: Any) -> str:
    """Return :func:`as_html` of a result with a ``table``."""
    return as_html(repr(result), result.table)
