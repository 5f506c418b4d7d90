"""Results of a finder: evidence and pairs as arrays and tables, and a page per row."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.metadata import version
from importlib.resources import files
from os import PathLike
from pathlib import Path
from string import Template
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from cfe_faiss.attributes.constraints import Constraints
from cfe_faiss.attributes.table import Attributes, size_of
from cfe_faiss.base.checks import UNKNOWN, Array, Bools, Doubles, Floats, Int32s, Ints, as_count
from cfe_faiss.base.extras import pd
from cfe_faiss.base.text import cell_text, format_measure
from cfe_faiss.explorer import TITLE, Explored, explorer_page, write_explorer
from cfe_faiss.pairs import missing_text, pairs_text
from cfe_faiss.plot import as_node, evidence_figure
from cfe_faiss.rows.metric import Metric, measure_of, measured

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from cfe_faiss.finder.finder import EvidenceFinder

_MOST_LINES = 40
_MOST_NAMES = 60
"""Most lines, and most names of attributes that agree, of one page."""
_PAIRS_IN_HTML = 5
_MOST_LETTERS = 32
"""Most letters of a cell."""


class _Measured:
    """Result with D, as FAISS returns it, whose readers see similarities or distances."""

    __slots__ = ()
    D: Floats
    metric: Metric
    finder: "EvidenceFinder | None"

    @property
    def measure(self) -> str:
        """Name of the column in frames: "similarity", or "distance" with metric "l2"."""
        return measure_of(self.metric)

    @property
    def similarity(self) -> Floats:
        """D, float32; AttributeError with metric "l2"."""
        return self._as_measure("similarity")

    @property
    def distance(self) -> Doubles:
        """Euclidean distance, float64, infinite for padding.

        AttributeError with other metrics than "l2".

        In a table without an encoder of the user, it counts standard deviations.
        """
        return self._as_measure("distance")

    def _as_measure(self, name: str) -> Array:
        if name != self.measure:
            raise AttributeError(
                f"a result with metric {self.metric!r} has no {name}, use {self.measure}"
            )
        return measured(self.D, self.metric)

    def _measure(self, v: Ints, u: Ints, D: Floats) -> Array:
        """Return the measure of pairs of rows: float64 cosines of known vectors, or from D."""
        if self.finder is None or self.metric != "cosine":
            return measured(D, self.metric)
        return self.finder.measure64(v, u)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class LocalEvidence(_Measured):
    """The evidence of some nodes, with its ``similarity`` or ``distance``.

    Attributes
    ----------
    nodes
        Row numbers of the nodes asked for, (nq,) int64.
    evidence, D
        Their evidence, (nq, k) int64, best first, and its D as FAISS returns it, (nq, k) float32:
        similarities, or squared distances. Short rows end in -1 and FAISS's padding.
    labels
        The predicted class of every node of the graph, (n,) int32.
    recall, nprobe
        Effort of the search: recall@k, 1 for an exact result; or the number of lists probed, with
        unknown recall. The other one is None.
    finder
        The finder that searched; it knows ids, classes and attributes. None for a result made by
        hand.
    missing
        Under constraints, by attribute: how many of the searched nodes were left out because their
        value is missing.
    recall_by_class
        Measured recall@k of each predicted class, on a sample of its searched nodes: see
        :meth:`cfe_faiss.IndexEvidenceIVF.recall_by_class`. 1 for exact searches, None with
        ``nprobe``.
    metric
        Metric of the finder.
    """

    nodes: Ints
    evidence: Ints
    D: Floats
    labels: Int32s
    recall: float | None
    nprobe: int | None
    finder: "EvidenceFinder | None" = None
    missing: Mapping[str, int] = field(default_factory=dict)
    recall_by_class: Mapping[int, float] | None = None
    metric: Metric = "cosine"

    def __repr__(self) -> str:
        nq, k = self.evidence.shape
        nodes = f"{nq:,} {self.noun}{'' if nq == 1 else 's'}"
        return f"LocalEvidence({nodes}, k={k}, {self._effort}{missing_text(self.missing)})"

    @property
    def noun(self) -> str:
        """Name of a row asked for in frames: "link", "graph", or "node" for all others."""
        noun = "node" if self.finder is None else self.finder.noun
        return "node" if noun == "row" else noun

    @property
    def _effort(self) -> str:
        if self.recall is None:
            return f"nprobe={self.nprobe}"
        return "exact" if self.recall == 1 else f"recall={self.recall}"

    def _repr_html_(self) -> str:
        return as_html(repr(self), self.to_frame())

    def plot(self, i: int = 0, rank: int = 1) -> "Figure":
        """Draw node ``i`` of ``nodes`` and its evidence of a rank, from 1.

        See :meth:`PairEvidence.plot`.
        """
        place = as_node("i", i, len(self.nodes))
        column = as_node("rank", as_count("rank", rank) - 1, self.evidence.shape[1])
        evidence = int(self.evidence[place, column])
        if evidence < 0:
            raise ValueError(f"rank must be one of the evidence of node {i}, got {rank}")
        return _plot(self, int(self.nodes[place]), evidence, self.measure64()[place, column])

    def measure64(self) -> Doubles:
        """Return the similarities or distances that frames show, (nq, k), NaN without evidence.

        With a finder, cosines are computed in float64: :func:`cfe_faiss.ks_similarity` defines
        them, :func:`cfe_faiss.base.text.similarity_error` bounds their error. The search has ranked
        by ``D``, which may differ in the last digits.
        """
        row, place = np.nonzero(self.evidence >= 0)
        measures = np.full(self.evidence.shape, np.nan)
        measures[row, place] = self._measure(
            self.nodes[row], self.evidence[row, place], self.D[row, place]
        )
        return measures

    def to_frame(self, *, attributes: bool = False) -> "pd.DataFrame":
        """Return one line per result: node, evidence, rank (from 1), similarity and both labels.

        With metric "l2", ``distance`` stands for ``similarity``. With scores the last two are
        node_score and evidence_score. ``node`` and ``evidence`` are the user's ids, if the finder
        has ids. Of links and whole graphs, "link" and "graph" stand for "node".

        Parameters
        ----------
        attributes
            Whether to add classes and attributes of both nodes, see :meth:`PairEvidence.to_frame`;
            here these columns begin with "node" and "evidence".

        Returns
        -------
        DataFrame
            The similarity or distance is that of :meth:`measure64`. O(rows * d) time.

        Raises
        ------
        ValueError
            If ``attributes`` are asked for, and neither attributes nor true classes are known.
        """
        row, place = np.nonzero(self.evidence >= 0)
        sides = {self.noun: self.nodes[row], "evidence": self.evidence[row, place]}
        columns = {"rank": place + 1, self.measure: self.measure64()[row, place]}
        return _frame(columns, sides, self.labels, self.finder, attributes)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class PairEvidence(_Measured):
    """The most similar pairs of nodes of different predicted classes, and their measure.

    That is the ``similarity`` or ``distance``.

    Attributes
    ----------
    source, target
        The nodes of each pair, (k,) int64, ``source < target``.
    D
        Their similarities or squared distances, as FAISS returns them, (k,) float32, best first.
    labels
        The predicted class of every node of the graph, (n,) int32.
    finder
        As in :class:`LocalEvidence`.
    missing, metric
        As in :class:`LocalEvidence`.
    marks, notes
        Marks and notes of a reader, (k,) texts, see :meth:`EvidenceFinder.reviewed`; else empty.
    """

    source: Ints
    target: Ints
    D: Floats
    labels: Int32s
    finder: "EvidenceFinder | None" = None
    missing: Mapping[str, int] = field(default_factory=dict)
    metric: Metric = "cosine"
    marks: Sequence[str] = ()
    notes: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.D)

    def __repr__(self) -> str:
        ends = [0, -1][: len(self)]
        values = self._measure(self.source[ends], self.target[ends], self.D[ends])
        lacking = ", ".join(
            f"{name} in {int(lacks.sum()):,}" for name, lacks in self.both_lack.items()
        )
        note = f", both sides lack {lacking}" if lacking else ""
        text = pairs_text(len(self), values, self.measure)
        return f"PairEvidence({text}{missing_text(self.missing)}{note})"

    def _repr_html_(self) -> str:
        frame = self.to_frame()
        if self.finder is None or self.finder.attributes is None:
            return as_html(repr(self), frame)
        ends = self.source[:_PAIRS_IN_HTML], self.target[:_PAIRS_IN_HTML]
        sides = [self.finder.attributes.take(rows) for rows in ends]
        texts = []
        for place, pair in enumerate(self.finder.attributes.differences(*ends)):
            parts = []
            for name, change in pair.items():
                values = [_short(cell_text(side[name].of(place))) for side in sides]
                size = "" if np.isnan(change) else f" ({change:+.2f} SD)"
                parts.append(f"{_short(name)} {', '.join(values)}{size}")
            texts.append("; ".join(parts) or "none")
        frame["differences"] = pd.Series(texts, dtype=object)
        return as_html(repr(self), frame, _PAIRS_IN_HTML)

    def plot(self, i: int = 0) -> "Figure":
        """Draw one pair: its neighbourhoods, of a graph, and the attributes that differ most.

        Parameters
        ----------
        i
            Its place, from 0.

        Returns
        -------
        matplotlib.figure.Figure
            As of :func:`cfe_faiss.plot.evidence_figure`.

        Raises
        ------
        TypeError, ValueError
            If there is no such pair, or no finder, no attributes or no classes are known.
        """
        place = as_node("i", i, len(self))
        return _plot(
            self, int(self.source[place]), int(self.target[place]), self.measure64()[place]
        )

    def explore(
        self, path: str | PathLike[str], *, overwrite: bool = False, **options: Any
    ) -> Path:
        """Write the explorer of these pairs, see :meth:`EvidenceFinder.explore`.

        Options as of :meth:`to_html`.
        """
        inputs = () if self.finder is None else self.finder.files
        page = functools.partial(self.to_html, **options)
        return write_explorer(path, page, inputs, overwrite=overwrite)

    def to_html(
        self,
        *,
        better: Mapping[str, Any] | None = None,
        unfavourable: Any = None,
        mask_ids: bool = False,
        title: str = TITLE,
    ) -> str:
        """Return the explorer of these pairs, see :meth:`EvidenceFinder.explore`."""
        finder = self.finder
        if finder is None:
            raise ValueError("explore needs pairs of a finder, which knows ids and attributes")
        if (better is None) != (unfavourable is None):
            raise ValueError("better and unfavourable must be given together")
        rows = np.arange(len(finder.labels))
        attributes = finder.attributes or Attributes({}, rows)
        left_out = self._left_out
        if finder.scores is not None:
            attributes = Attributes({"score": finder.scores, **attributes}, rows)
            left_out.add("score")
        refused = None
        if unfavourable is not None:
            refused = np.isin(self.labels, finder.class_numbers("unfavourable", unfavourable))
        explored = Explored(
            source=self.source,
            target=self.target,
            measure=self.measure,
            values=self.measure64(),
            ids=rows if mask_ids else finder.names(rows),
            attributes=attributes,
            labels=None if finder.scores is not None else self.labels,
            truth=finder.truth,
            class_names=[finder.class_name(label) for label in range(finder.class_count)],
            graph=finder.graph,
            noun=finder.noun,
            sensitive=finder.sensitive,
            left_out=left_out,
            marks=self.marks,
            notes=self.notes,
            better=better,
            refused=refused,
        )
        return explorer_page(explored, title)

    @property
    def _left_out(self) -> set[str]:
        """Names of the attributes that do not count in the similarity."""
        removed = None if self.finder is None else self.finder.removed
        return set() if removed is None else {*removed.attributes, *removed.columns}

    @property
    def both_lack(self) -> dict[str, Bools]:
        """Whether both sides of each pair lack an attribute, (k,), by attribute compared.

        Nothing says that they agree in it. Only attributes that both sides of a pair lack are
        listed.
        """
        finder = self.finder
        if finder is None or finder.attributes is None:
            return {}
        masks: dict[str, Bools] = {}
        for name, attribute in finder.attributes.items():
            unknown = finder.attributes.ids[attribute.missing]
            lacks = np.isin(self.source, unknown) & np.isin(self.target, unknown)
            if name not in self._left_out and lacks.any():
                masks[name] = lacks
        return masks

    def measure64(self) -> Doubles:
        """Return the similarities or distances, (k,), as :meth:`LocalEvidence.measure64` does."""
        return self._measure(self.source, self.target, self.D)

    def to_frame(self, *, attributes: bool = False) -> "pd.DataFrame":
        """Return one line per pair: source, target, similarity, source_label, target_label.

        With metric "l2", ``distance`` stands for ``similarity``. With scores the last two are
        source_score and target_score. ``source`` and ``target`` are the user's ids, if the finder
        has ids.

        Parameters
        ----------
        attributes
            Whether to add columns: ``source_class`` and ``target_class``, the names of the
            predicted classes, if there are names; ``source_true`` and ``target_true``, the true
            classes by name or number, missing if unknown; and for each attribute, such as "Age",
            ``source_Age`` and ``target_Age`` ("source_Age (attribute)" if another column has that
            name).

        Returns
        -------
        DataFrame
            The similarity or distance is that of :meth:`measure64`. O(rows * d) time.

        Raises
        ------
        ValueError
            If ``attributes`` are asked for, and neither attributes nor true classes are known.
        """
        sides = {"source": self.source, "target": self.target}
        columns: dict[str, Any] = {self.measure: self.measure64()}
        if len(self.marks):
            columns |= {"mark": self.marks, "note": self.notes}
        return _frame(columns, sides, self.labels, self.finder, attributes)


def _frame(
    columns: dict[str, Any],
    sides: dict[str, Ints],
    labels: Int32s,
    finder: "EvidenceFinder | None",
    attributes: bool,
) -> "pd.DataFrame":
    ids = sides if finder is None else {side: finder.names(nodes) for side, nodes in sides.items()}
    kind = "label"
    values: Array = labels
    if finder is not None and finder.scores is not None:
        kind = "score"
        values = finder.scores
    columns = {
        **ids,
        **columns,
        **{f"{side}_{kind}": values[nodes] for side, nodes in sides.items()},
    }
    if not attributes:
        return pd.DataFrame(columns)
    if finder is None or (finder.attributes is None and finder.truth is None):
        raise ValueError(
            "attributes=True needs a finder that knows attributes or true classes: give it features"
        )
    names = np.array([*map(finder.class_name, range(finder.class_count)), None], object)
    if finder.class_names is not None:
        columns |= {f"{side}_class": names[labels[nodes]] for side, nodes in sides.items()}
    if finder.truth is not None:
        truth: Any = names[finder.truth]
        if finder.class_names is None:
            truth = pd.Series(finder.truth, dtype="Int32").mask(finder.truth == UNKNOWN).array
        columns |= {f"{side}_true": truth[nodes] for side, nodes in sides.items()}
    if finder.attributes is not None:
        tables = {side: finder.attributes.take(nodes).to_frame() for side, nodes in sides.items()}
        used_names = set(columns)
        for name in finder.attributes:
            end = " (attribute)" if any(f"{side}_{name}" in used_names for side in sides) else ""
            columns |= {
                f"{side}_{name}{end}": table[name].to_numpy() for side, table in tables.items()
            }
    return pd.DataFrame(columns)


def _plot(result: "LocalEvidence | PairEvidence", v: int, u: int, value: float) -> "Figure":
    """Draw a pair of rows of a result, whose finder knows attributes and classes."""
    finder = result.finder
    if finder is None or finder.attributes is None or finder.scores is not None:
        raise ValueError("plot needs a result of a finder with classes and attributes")
    data = SimpleNamespace(
        graph=finder.graph,
        y=finder.truth,
        class_names=finder.class_names,
        node_ids=finder.ids,
        noun=finder.noun,
    )
    options: Any = {result.measure: float(value), "attributes": finder.attributes}
    return evidence_figure(data, v, u, result.labels, **options)


def as_html(title: str, frame: "pd.DataFrame", rows: int = 10) -> str:
    """Return a line of text and the first rows of a frame for a notebook, all texts escaped."""
    others = len(frame) - rows
    more = f"<p>{others:,} more rows</p>" if others > 0 else ""
    return f"<p>{escape(title)}</p>{frame.head(rows).to_html(index=False, border=0)}{more}"


def table_html(result: Any) -> str:
    """Return :func:`as_html` of a result with a ``table``."""
    return as_html(repr(result), result.table)


# --- the page about one row -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Case:
    """One row, such as a person, and the most similar rows decided otherwise.

    Made by :meth:`EvidenceFinder.case`.

    ``str()`` gives the page as text, :meth:`to_html` as HTML.

    Attributes
    ----------
    title
        Id and decision of the row.
    table
        A column for the row and for each of the others, most similar first, named by their ids.
        Lines: decision, true class and probability, if known, similarity or distance; then the
        attributes in which another row differs from it, marked by "*", the largest difference
        first.
    agreeing
        Value of each attribute that is the same for all.
    """

    title: str
    table: "pd.DataFrame"
    agreeing: dict[str, str]

    def __repr__(self) -> str:
        return f"Case({self.title}, {self.table.shape[1] - 1} decided otherwise)"

    def __str__(self) -> str:
        return "\n\n".join([self.title, self._shown.to_string(), *self._notes]) + "\n"

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>{escape(note)}</p>" for note in self._notes)
        return f"<h1>{escape(self.title)}</h1>{self._shown.to_html(border=0)}{notes}"

    def to_html(self) -> str:
        """Return the page as HTML, with every text escaped; it loads nothing and runs no script."""
        page = Template(files("cfe_faiss.finder").joinpath("case.html").read_text(encoding="utf-8"))
        return page.substitute(
            version=version("cfe-faiss"), title=escape(self.title), body=self._repr_html_()
        )

    @property
    def _shown(self) -> "pd.DataFrame":
        return self.table.head(_MOST_LINES).rename(index=_short, columns=_short).map(_short)

    @property
    def _notes(self) -> list[str]:
        """Sentences on what the table does not show."""
        if self.table.shape[1] == 1:
            return ["None is decided otherwise."]
        notes = [
            f"Right of {_short(self.table.columns[0])}: the most similar ones decided otherwise. * "
            f"differs."
        ]
        if len(self.table) > _MOST_LINES:
            notes.append(f"{len(self.table) - _MOST_LINES:,} more attributes differ less.")
        if self.agreeing:
            values = [f"{_short(name)} = {_short(value)}" for name, value in self.agreeing.items()]
            others = f" and {len(values) - _MOST_NAMES:,} more" if len(values) > _MOST_NAMES else ""
            notes.append(f"The same for all: {', '.join(values[:_MOST_NAMES])}{others}.")
        return notes


def case_of(finder: "EvidenceFinder", row: int, k: int, where: Constraints | None) -> Case:
    """Return the page of one row of a finder."""
    label = int(finder.labels[row])
    if label == UNKNOWN:
        raise ValueError(
            f"id must name a row with a predicted class, got {finder.names([row]).tolist()[0]!r} "
            f"without"
        )
    (evidence,) = finder.local(finder.names([row]), k, where=where).evidence
    rows = np.append([row], evidence[evidence >= 0])
    lines = [("Decision", _class_names(finder, finder.labels[rows]))]
    if finder.truth is not None:
        lines.append(("True class", _class_names(finder, finder.truth[rows])))
    if finder.probabilities is not None:
        shares = finder.probabilities[rows, label].tolist()
        lines.append(
            (f"Probability of {finder.class_name(label)}", [f"{share:.3f}" for share in shares])
        )
    values = finder.measure64(np.full(len(rows) - 1, row), rows[1:])
    measure = measure_of(finder.metric)
    lines.append(
        (measure.capitalize(), ["", *(format_measure(measure, value) for value in values)])
    )
    differing: list[tuple[float, str, list[str]]] = []
    agreeing: dict[str, str] = {}
    attributes = finder.attributes or Attributes({}, np.arange(len(finder.labels)))
    pairs = attributes.differences(np.full(len(rows) - 1, row), rows[1:])
    for name, attribute in attributes.take(rows).items():
        texts = [cell_text(attribute.of(i)) for i in range(len(rows))]
        differs = attribute.codes != attribute.codes[0]
        if differs.any():
            marked = [
                f"{value} *" if other else value
                for value, other in zip(texts, differs.tolist(), strict=True)
            ]
            differing.append((sum(size_of(pair.get(name, 0.0)) for pair in pairs), name, marked))
        else:
            agreeing[name] = texts[0]
    lines += [(name, marked) for _, name, marked in sorted(differing, key=lambda line: -line[0])]
    names = [cell_text(name) for name in finder.names(rows).tolist()]
    table = pd.DataFrame(
        [values for _, values in lines], [cell_text(name) for name, _ in lines], names
    )
    return Case(f"{names[0]}: decided {finder.class_name(label)!r}", table, agreeing)


def _class_names(finder: "EvidenceFinder", labels: Int32s) -> list[str]:
    return [
        "unknown" if label == UNKNOWN else cell_text(finder.class_name(label))
        for label in labels.tolist()
    ]


def _short(text: str) -> str:
    return text if len(text) <= _MOST_LETTERS else f"{text[: _MOST_LETTERS - 9]}…{text[-8:]}"
