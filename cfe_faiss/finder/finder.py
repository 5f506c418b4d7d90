"""Counterfactual evidence of a graph, of vectors or of a stored index in one object."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any, Self, Unpack

import numpy as np
from numpy.typing import ArrayLike

from cfe_faiss.attributes.columns import Removed, leave_out
from cfe_faiss.attributes.constraints import Constraints
from cfe_faiss.attributes.table import Attributes, attributes_of
from cfe_faiss.base.checks import (
    UNKNOWN,
    Array,
    Doubles,
    Floats,
    Int32s,
    Ints,
    as_count,
    as_dense,
    as_names,
)
from cfe_faiss.base.extras import pd
from cfe_faiss.base.values import as_nodes, as_row_ids, in_row_order, row_numbers
from cfe_faiss.data.classes import (
    as_class_names,
    check_names,
    check_sides,
    class_name,
    class_numbers,
    node_count,
    note_classes,
    note_unknown,
    split_threshold,
    true_classes,
)
from cfe_faiss.data.columns import Reading, ReadingOptions
from cfe_faiss.data.predict import is_model, outputs_of_graphs, outputs_of_links, predictions_of
from cfe_faiss.data.read import as_table
from cfe_faiss.data.roles import Roles
from cfe_faiss.explorer import TITLE, read_marks, write_explorer
from cfe_faiss.finder import inputs
from cfe_faiss.finder.changes import KSSource, updated
from cfe_faiss.finder.links import Links, in_order, link_vectors
from cfe_faiss.finder.results import Case, LocalEvidence, PairEvidence, as_html, case_of
from cfe_faiss.graph import Graph, as_graph
from cfe_faiss.graph.csr import parts_for_the_model
from cfe_faiss.graph.ks import ks_vectors
from cfe_faiss.graph.whole import Graphs, as_graphs
from cfe_faiss.index.searching import EvidenceIndex, check_index
from cfe_faiss.pairs import global_evidence
from cfe_faiss.rows.metric import (
    Metric,
    as_metric,
    as_rows,
    measure_of,
    measure_pairs,
    threshold_of,
)
from cfe_faiss.search.query import Effort, Query
from cfe_faiss.search.tiles import slices

_ROWS_AT_ONCE = 256  # rows whose pairs are searched together
_LEAST_GAP = float(np.finfo(np.float64).tiny)
_RECALL = 0.99
"""Default recall of a search among more than ``EXACT_UP_TO`` nodes."""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class EvidenceFinder:
    """Counterfactual evidence of one data set under one model.

    Made by :meth:`from_data`, :meth:`from_table`, :meth:`from_vectors` or :meth:`from_index`; of
    links by :meth:`from_links`, of whole graphs by :meth:`from_graphs`.

    Attributes
    ----------
    vectors
        KS vector of every node, or its own vector as the metric of the index stores it, (n, d)
        float32.
    labels
        Predicted class of every node, (n,) int32.
    index
        Evidence index over the searched nodes, with their numbers as ids. Its metric is that of the
        finder.
    graph
        The neighbours of every node, with weights if the KS vectors use them; None without a graph.
    attributes
        Attributes of every node, row i of node i; or None.
    truth
        True class of every node, (n,) int32, -1 if unknown; or None.
    class_names
        Name of each class; None if classes have numbers only.
    removed
        Attributes left out of the KS vectors, their copies, and their remaining proxies; or None.
    model_only
        Values of edges in ``data``, such as "edge_weight", that only the model uses.
    ids
        The user's id of every row, (n,) int64 or objects (texts); None if rows go by their number.
    probabilities
        Probability of each class for every row, (n, C) float64; None if only classes are known.
    model
        The model that was called; None if predictions were given.
    data
        Argument of the model: PyG ``Data``, a pandas frame or a matrix; None if it is unknown.
    sensitive
        Names of the attributes that audits use as sensitive by default.
    files
        Files that :meth:`from_table` read. A report never replaces them.
    source
        Features and settings of the KS vectors, for :meth:`updated`.
    scores
        Score of every row, (n,) float64, in place of classes: then all labels are 0, and searches
        take ``min_gap``.
    weights
        Weight of every row, (n,) float64; None: equal weights. Audits refuse a finder with weights.
    scale
        Weights of the columns of a table whose distance counts standard deviations; else None.
    links, graphs
        Links, or whole graphs, that are its rows; None if rows are others.
    row_index
        Pandas index of its rows, by which masks, predictions and other values of rows that are of
        pandas are matched; None: 0..n-1.

    Examples
    --------
    >>> from cfe_faiss.datasets import load
    >>> from cfe_faiss.models import gcn, train
    >>> data = load("patients")
    >>> model = gcn(data)
    >>> report = train(model, data)
    >>> finder = EvidenceFinder.from_data(data, model)
    >>> frame = finder.local(nodes=[97], k=5).to_frame()
    >>> list(frame.columns)
    ['node', 'evidence', 'rank', 'similarity', 'node_label', 'evidence_label']
    >>> bool((frame["node_label"] != frame["evidence_label"]).all())
    True

    The similarity may leave attributes out. Copies of them leave, too; others that tell them are
    listed.

    >>> finder = EvidenceFinder.from_data(data, model, without=["mean radius"])
    >>> finder.removed.columns
    ('mean radius',)
    >>> finder.removed.proxies[0].column
    'mean area'
    """

    vectors: Floats
    labels: Int32s
    index: EvidenceIndex
    graph: Graph | None = None
    attributes: Attributes | None = None
    truth: Int32s | None = None
    class_names: tuple[str, ...] | None = None
    removed: Removed | None = None
    model_only: tuple[str, ...] = ()
    ids: Array | None = None
    probabilities: Doubles | None = None
    model: Any = None
    data: Any = None
    sensitive: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()
    source: KSSource = field(default_factory=KSSource)
    scores: Doubles | None = None
    weights: Doubles | None = None
    scale: Mapping[str, float] | None = None
    links: Links | None = None
    graphs: Graphs | None = None
    row_index: Any = None

    def __repr__(self) -> str:
        n, d = self.vectors.shape
        count = len(np.unique(self.labels[self.labels != UNKNOWN]))
        classes = f"{count} predicted {'class' if count == 1 else 'classes'}"
        if self.scores is not None:
            classes = f"scores from {self.scores.min():g} to {self.scores.max():g}"
        parts = [f"{n:,} {self.noun}s", f"d={d}", classes, repr(self.index)]
        if self.graph is not None:
            kinds = {
                "directed edges": self.graph.directed,
                "weighted edges": self.graph.weights is not None,
            }
            parts += (
                [kind for kind, there in kinds.items() if there]
                if self.graph.num_edges
                else ["no edges"]
            )
        parts += [f"{name} for the model only" for name in self.model_only]
        if self.attributes is not None:
            parts.append(f"{len(self.attributes)} attributes")
        if self.truth is not None:
            parts.append("true classes")
        if self.removed is not None:
            parts.append(f"without {self.removed!r}")
        return f"EvidenceFinder({', '.join(parts)})"

    def _repr_html_(self) -> str:
        classes = range(self.class_count)
        columns: dict[str, Any] = {"class": [self.class_name(c) for c in classes]}
        columns["predicted"] = [int((self.labels == c).sum()) for c in classes]
        if self.truth is not None:
            columns["true"] = [int((self.truth == c).sum()) for c in classes]
        if self.scores is not None:
            columns = {
                name: [getattr(np, name)(self.scores)] for name in ("min", "median", "mean", "max")
            }
        return as_html(repr(self), pd.DataFrame(columns))

    @property
    def noun(self) -> str:
        """Word for one row: "link", "graph", "node" of a graph, or "row"."""
        if self.links is not None:
            return "link"
        if self.graphs is not None:
            return "graph"
        return "row" if self.graph is None else "node"

    def names(self, rows: ArrayLike) -> Array:
        """Return the user's ids of rows, in the shape of ``rows``; without ids, the row numbers."""
        numbers = np.asarray(rows, np.int64)
        return numbers if self.ids is None else self.ids[numbers]

    def rows(self, argument: str, ids: Any) -> Ints:
        """Return the row number of each id, (m,); or the rows that a mask, (n,), selects.

        Ids of links are pairs of ids of nodes, or the texts of :meth:`names`.

        Raises
        ------
        TypeError, ValueError
            If an id is unknown; the error names ``argument``.
        """
        if self.links is not None:
            return self.links.rows(argument, ids)
        return row_numbers(argument, ids, len(self.labels), self.ids, self.row_index)

    def in_order(self, argument: str, values: Any) -> Any:
        """Return values of all rows that are of pandas in the order of rows, by their index.

        Other values are returned unchanged.

        Raises
        ------
        ValueError
            If they have another index than the rows; the error names ``argument``.
        """
        return in_row_order(argument, values, len(self.labels), self.row_index)

    def searched(self, argument: str, ids: Any) -> Ints:
        """Return the row numbers of ids as :meth:`rows` does.

        ValueError if one is not among the searched rows.
        """
        rows = self.rows(argument, ids)
        absent = ~np.isin(rows, self.index.members().ids)
        if absent.any():
            raise ValueError(
                f"{argument} must be in the index, got {self.names(rows[absent]).tolist()[0]!r}"
            )
        return rows

    def class_numbers(self, argument: str, classes: Any) -> Int32s:
        """Return the numbers of a class or of classes, by names or numbers, each once, (c,).

        If all class names are whole numbers, such as "1" and "2", or truth values, a number or
        truth value is a name.

        Raises
        ------
        ValueError
            If there is no such class; the error names ``argument``, lists the classes and suggests
            the nearest name.
        """
        return class_numbers(argument, classes, self.class_names, self.class_count)

    @property
    def class_count(self) -> int:
        """Number of classes that have a name, are predicted or are true."""
        known = [self.labels] if self.truth is None else [self.labels, self.truth]
        return max(
            len(self.class_names or ()), 1 + max(int(classes.max(initial=-1)) for classes in known)
        )

    def class_name(self, label: int) -> str:
        """Return the name of a class, or "class <label>" without a name."""
        return class_name(self.class_names, label)

    @property
    def metric(self) -> Metric:
        """Metric of the index: "cosine" for graphs, "l2" for tables."""
        return self.index.metric

    def measure64(self, v: ArrayLike, u: ArrayLike) -> Array:
        """Return the similarity, or with "l2" the distance, of pairs of rows in float64.

        See :func:`cfe_faiss.ks_similarity` for arguments and errors.
        """
        return measure_pairs(self.vectors, v, u, self.metric)

    @classmethod
    def from_data(  # noqa: PLR0913
        cls,
        data: Any,
        model: Any,
        *,
        features: Any = None,
        without: Iterable[str] = (),
        num_layers: int = 3,
        alpha: float = 0.5,
        directed: bool = False,
        edge_weight: ArrayLike | bool = False,
        index: str | EvidenceIndex | None = None,
        nodes: ArrayLike | None = None,
        sensitive: Sequence[str] = (),
        node_type: str | None = None,
        metapath: Sequence[tuple[str, ...]] | None = None,
        loader: Any = None,
        unknown: Collection[Any] | None = None,
        progress: bool = False,
    ) -> Self:
        """Predict, propagate and index.

        Parameters
        ----------
        data
            PyG ``Data`` (or another object with ``x`` and edges): features (n, d), dense or sparse,
            and ``edge_index``, (2, E), or ``adj_t``, see :func:`cfe_faiss.graph.as_graph`. There
            may be no edges. Optional: ``y``, (n,) integers, the true classes; ``class_names``, of
            true and predicted classes; ``node_ids``, (n,), the ids in results and arguments.
        model
            Called as ``model(x, edge_index)`` for logits (n, C) or classes (n,), see
            :func:`cfe_faiss.models.predict`. Or a fitted scikit-learn estimator; or predictions:
            classes, (n,), as numbers or texts, probabilities or logits, (n, C). See
            :func:`cfe_faiss.data.predict.predictions_of`.
        features
            Attributes of all nodes, as :func:`cfe_faiss.attributes.table.as_attributes` takes them:
            a DataFrame of pandas (its index holds the nodes) or polars, a mapping, a matrix. Texts
            of which 95 % are numbers are numbers. Default: ``attributes``, ``feature_names`` or
            ``sensitive`` of ``data``.
        without
            Names of attributes to leave out of the KS vectors: columns of ``data.x`` (by
            ``data.feature_names``), one-hot groups of them, or attributes of ``features`` that a
            column holds. Columns that go one to one with them leave, too; ``removed`` also names
            others that tell them. The model sees all of ``data.x``. Edges may reveal an attribute.
        num_layers, alpha, progress
            As in :func:`cfe_faiss.ks_vectors`.
        directed
            False: KS vectors use edges in both directions. True: a node's vector depends on the
            nodes whose edges point to it, as messages flow in PyG and in the model.
        edge_weight
            Weights of the edges in KS vectors. False: equal, as in the paper. ``model_only`` names
            weights that only the model sees. True: ``data.edge_weight``, or the values of
            ``adj_t``. An array, (E,): weights of ``data.edge_index``.
        index
            An empty index, or its description for :func:`cfe_faiss.index_factory`. Default: exact
            up to 100,000 nodes and ``EvidenceIVF<2 sqrt(n)>`` beyond. It is trained if necessary.
        nodes
            Numbers or mask, (n,), of the nodes to search among; default: all. The paper takes the
            test nodes: ``nodes=data.test_mask``. KS vectors always use the whole graph.
        sensitive
            Names of attributes that audits use as sensitive by default.
        node_type, metapath
            For ``HeteroData`` only: node type of the evidence (default: the start of the
            meta-path), and edge types that join its nodes, see :func:`cfe_faiss.metapath_graph`.
            Other arguments are about this type, but the model sees all of ``data``.
        loader
            Batches of the graph, such as PyG's ``NeighborLoader``, for the model.
        unknown
            As in :meth:`from_vectors`, in given predictions and in ``data.y``.

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described, or no column of ``data.x`` holds a ``without``.
        ImportError
            If ``model`` is a PyTorch model and torch is missing.
        """
        whole = data
        data, node_type = inputs.of_type(data, node_type, metapath, edge_weight is True)
        inputs.check_data(data)
        n = node_count(data)
        attributes = inputs.node_attributes(data, features, n)
        predicted = predictions_of(
            model,
            whole,
            features,
            node_type=node_type,
            loader=loader,
            unknown=unknown,
            complete=False,
        )
        check_names(predicted, data)
        truth, class_names = inputs.truth_of(data, predicted, unknown)
        note_classes(predicted.labels, truth, class_names)
        searched = as_nodes("nodes", nodes, n)
        graph = as_graph(data, n, edge_weight=edge_weight, directed=directed)
        names = as_names("without", without)
        x, columns, removed = leave_out(data, attributes, names) if names else (data.x, None, None)
        vectors = ks_vectors(x, graph, num_layers=num_layers, alpha=alpha, progress=progress)
        taken = (
            ("edge_weight", "values of edge_index", "values of adj_t")
            if edge_weight is True
            else ()
        )
        ids = getattr(data, "node_ids", None)
        return cls(
            vectors,
            predicted.labels,
            inputs.fill_index(index, vectors, predicted.labels, searched),
            graph,
            attributes,
            truth,
            class_names,
            removed,
            tuple(name for name in parts_for_the_model(data) if name not in taken),
            None if ids is None else as_row_ids("data.node_ids", ids, n),
            inputs.probabilities_of(predicted),
            model if is_model(model) else None,
            whole,
            _sensitive(sensitive, attributes),
            source=KSSource(x, columns, (num_layers, alpha)),
        )

    @classmethod
    def from_vectors(  # noqa: PLR0913
        cls,
        X: Any,
        model: Any = None,
        *,
        scores: Any = None,
        features: Any = None,
        truth: Any = None,
        ids: Any = None,
        sensitive: Sequence[str] = (),
        class_names: Sequence[str] | None = None,
        unknown: Collection[Any] | None = None,
        metric: Metric | int = "cosine",
        index: str | EvidenceIndex | None = None,
        nodes: ArrayLike | None = None,
    ) -> Self:
        """Index vectors, such as embeddings, and the classes that a model predicts for them.

        There is no graph: two vectors are compared by their cosine or another ``metric``, and
        constraints on the graph (``min_hops``, ``common_neighbors`` of
        :class:`cfe_faiss.Constraints`) are refused. The rest is as in :meth:`from_data`.

        Parameters
        ----------
        X
            Vectors, (n, d): array, tensor, frame or sparse matrix of finite real numbers. Not
            changed: with the cosine, ``vectors`` of the finder are unit rows. Other arguments that
            are of pandas belong to the rows of a pandas frame by its index, else to rows 0..n-1.
        model
            A fitted estimator with ``predict``, or a callable: called with ``X``. Or predictions,
            (n,), as numbers, texts or booleans, or probabilities or logits, (n, C). See
            :func:`cfe_faiss.data.predict.predictions_of`.
        scores
            In place of a model: a number for each row, (n,), such as a probability, price or
            rating.
        features
            Attributes of all rows, as in :meth:`from_data`. The similarity does not use them.
        truth
            True classes, (n,), in the words of the predicted ones or in others.
        ids
            The id of each row, (n,), integers or texts, each once; default: rows go by their
            number.
        sensitive
            Names of attributes that audits use as sensitive by default.
        class_names
            Names of the classes; default: predicted texts in ascending order, or "False" and "True"
            of booleans.
        unknown
            Values for an unknown predicted or true class, in addition to missing ones and blanks.
            Default: -1, unless 1 is the only other class. Rows without a predicted class are not
            searched.
        metric
            "cosine", for embeddings; "l2", the Euclidean distance, for numbers whose size matters;
            "ip", the inner product; or "tanimoto" for rows of 0 and 1, such as fingerprints of
            molecules. Results have a ``distance`` with "l2", else a ``similarity``.
        index, nodes
            As in :meth:`from_data`; ``nodes`` are row numbers or a mask. An index has this metric.

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described.

        Examples
        --------
        >>> X = [[1.0, 0.0], [0.9, 0.1], [0.8, 0.3], [0.0, 1.0]]
        >>> labels = ["spam", "ham", "spam", "ham"]
        >>> finder = EvidenceFinder.from_vectors(X, labels, features={"from": ["a", "b", "b", "a"]})
        >>> frame = finder.top_pairs(2).to_frame(attributes=True)
        >>> frame[["source", "target", "source_class", "target_from"]]
           source  target source_class target_from
        0       0       1         spam           b
        1       1       2          ham           b
        """
        dense = as_dense("X", X)
        metric = as_metric("metric", metric)
        vectors = as_rows("X", dense, None, metric)
        n = len(vectors)
        row_index = X.index if hasattr(X, "reset_index") else None
        if row_index is not None:  # a frame, whose rows other frames and columns belong to
            model = in_row_order("model", model, n, row_index)
            truth = in_row_order("truth", truth, n, row_index)
            features = in_row_order("features", features, n, row_index)
        scores = in_row_order("scores", scores, n, row_index)
        ids = in_row_order("ids", ids, n, row_index)
        if scores is not None:
            model = _classes_for_scores(model, truth, class_names, n)
            scores = inputs.as_scores(scores, n)
        elif model is None:
            raise ValueError("model or scores must be given, got None")
        predicted = predictions_of(
            model, dense, features, class_names=class_names, unknown=unknown, complete=False
        )
        attributes = (
            None if features is None else attributes_of(inputs.given_attributes(features), n)
        )
        searched = as_nodes("nodes", nodes, n, index=row_index)
        names = predicted.class_names
        if truth is not None:
            is_named = class_names is not None
            truth, names = true_classes(
                "truth", truth, predicted.labels, names, is_named=is_named, unknown=unknown
            )
        note_classes(predicted.labels, truth, names)
        return cls(
            vectors,
            predicted.labels,
            inputs.fill_index(index, vectors, predicted.labels, searched, metric),
            attributes=attributes,
            truth=truth,
            class_names=names,
            ids=None if ids is None else as_row_ids("ids", ids, n),
            probabilities=inputs.probabilities_of(predicted),
            model=model if is_model(model) else None,
            data=dense if is_model(model) else None,
            sensitive=_sensitive(sensitive, attributes),
            scores=scores,
            row_index=row_index,
        )

    @classmethod
    def from_table(  # noqa: PLR0913
        cls,
        frame: Any,
        model: Any = None,
        *,
        scores: str | None = None,
        threshold: str | None = None,
        truth: Any = None,
        id: Any = None,  # noqa: A002
        sensitive: Sequence[str] = (),
        without: Sequence[str] = (),
        ignore: Sequence[str] = (),
        weights: str | None = None,
        probabilities: Any = None,
        scale: Mapping[str, float] | None = None,
        encoder: Any = None,
        class_names: Sequence[str] | None = None,
        unknown: Collection[Any] | None = None,
        index: str | EvidenceIndex | None = None,
        nodes: Any = None,
        **reading: Unpack[ReadingOptions],
    ) -> Self:
        """Index the rows of a table, such as people, and the classes that a model predicts.

        Rows are compared by Euclidean distance, without a graph: numbers in standard deviations,
        two categories one apart, and so a missing value (of numbers the mean) and a known one.

        Parameters
        ----------
        frame
            Table of pandas, polars, PyArrow or another with their interface; mapping of columns; or
            path of a text (.csv, .tsv, .txt, also .gz or .bz2), .parquet or .xlsx file, read as
            pandas does, but ids as written. Where 95 % are numbers, other texts are an error.
        model
            Column of the predicted classes; these classes, (n,); or an estimator or callable,
            called with a frame of its columns, or of all without another role.
        scores, threshold
            In place of a model: column of a number for each row; a decision such as "score>=5" (or
            >, <=, <), with classes "score>=5" and "score<5". The column stays out of the vectors.
        truth
            Column of the true classes, or these, (n,), in words of the predicted ones or others.
        id
            Column of the ids, or the ids, (n,), each once; default: a pandas index but for 0..n-1.
        sensitive, without
            Columns that, with their copies, stay out of the vectors; audits take the first ones.
        ignore, weights
            Columns that are no attributes, either; column of the weight of each row, at least 0.
        probabilities
            Probability of each class: columns, or an array (n, C) in the order of the class names;
            of two classes the second is enough. Default: ``predict_proba`` of the model.
        scale
            Weights of columns in the distance: ``{"income": 2}`` counts its differences twice.
        encoder
            Makes other vectors of the columns: a callable, or a transformer of scikit-learn.
        class_names, unknown, index, nodes
            As in :meth:`from_vectors`; default names: ``classes_``. A mask has the frame's index.
        **reading
            How to read the table, such as ``decimal=","``: :class:`cfe_faiss.data.columns.Reading`.

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described, or has another pandas index than the frame.

        Warns
        -----
        InputWarning
            If a column looks like an id or an outcome, or a class is written in two ways; a model
            reads the truth; classes are unknown, or large and of the predicted or true ones only.

        Examples
        --------
        >>> import pandas as pd
        >>> people = pd.DataFrame({"person": ["ann", "ben", "cem"], "income": [30, 31, 50]})
        >>> people["sex"], people["loan"] = list("fmf"), ["no", "yes", "no"]
        >>> finder = EvidenceFinder.from_table(people, "loan", id="person", sensitive=["sex"])
        >>> finder.top_pairs(1).to_frame(attributes=True)[["source", "target", "target_sex"]]
          source target target_sex
        0    ann    ben          m
        """
        sensitive = as_names("sensitive", sensitive)
        without = as_names("without", without)
        for name, value in (("model", model), ("scores", scores), ("class_names", class_names)):
            if threshold is not None and value is not None:
                raise ValueError(f"{name} must be left out with threshold, got {value!r}")
        table = as_table(frame, Reading(**reading))
        if threshold is not None:
            table, model, class_names = split_threshold(table, threshold)
        elif scores is not None:
            values = table.values(table.known("scores", scores)).to_numpy()
            table = replace(table, cells=table.cells.drop(columns=[scores]))
            model = _classes_for_scores(model, truth, class_names, len(values))
        elif model is None:
            raise ValueError("model, scores or threshold must be given, got None")
        ignored = as_names("ignore", ignore)
        roles = Roles(
            id, truth, sensitive, without, ignored, weights, probabilities, class_names, unknown
        )
        parts = inputs.table_fields(table, model, roles, encoder, scale)
        n = len(parts["labels"])
        if scores is not None:
            parts |= {"scores": inputs.as_scores(values, n), "class_names": None}
        searched = as_nodes("nodes", nodes, n, parts["ids"], table.index)
        files = (Path(frame).resolve(),) if isinstance(frame, str | Path) else ()
        filled = inputs.fill_index(index, parts["vectors"], parts["labels"], searched, "l2")
        return cls(index=filled, files=files, row_index=table.index, **parts)

    @classmethod
    def from_index(
        cls,
        index: EvidenceIndex,
        *,
        features: Any = None,
        truth: Any = None,
        ids: Any = None,
        sensitive: Sequence[str] = (),
        class_names: Sequence[str] | None = None,
    ) -> Self:
        """Use a filled index, for example from a file, and facts about its rows.

        Parameters
        ----------
        index
            An evidence index of any metric, whose ids are row numbers and whose labels are
            predicted classes by number. Not copied.
        features, truth, ids, sensitive, class_names
            As in :meth:`from_vectors`, of rows 0..n-1, where n is their largest length; without
            any, the largest id of the index plus one. ``truth`` holds numbers, or with
            ``class_names`` texts.

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described, or the index holds an id beyond the rows.

        Examples
        --------
        >>> from cfe_faiss import IndexEvidenceIDMap2
        >>> index = IndexEvidenceIDMap2(2)
        >>> index.add_with_labels([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]], [0, 1, 0])
        >>> finder = EvidenceFinder.from_index(index, ids=["ann", "ben", "cem"])
        >>> finder.names(finder.local("ann", k=1).evidence)
        array([['ben']], dtype=object)
        """
        check_index(index)
        inputs.check_numbers(index)
        members = index.members()
        node_attributes = None if features is None else inputs.given_attributes(features)
        lengths = [len(values) for values in (truth, ids) if values is not None]
        lengths += [] if node_attributes is None else [int(node_attributes.ids.max(initial=-1)) + 1]
        n = max(lengths, default=int(members.ids.max(initial=-1)) + 1)
        if len(members.ids) and members.ids[-1] >= n:
            raise ValueError(f"index must hold row numbers below {n:,}, got {members.ids[-1]}")
        labels = np.full(n, UNKNOWN, np.int32)
        labels[members.ids] = members.labels
        vectors = np.zeros((n, index.d), np.float32)
        vectors[members.ids] = index.reconstruct_batch(members.ids)
        names = as_class_names(class_names)
        ids = in_row_order("ids", ids, n)
        if truth is not None:
            truth, names = true_classes("truth", truth, labels, names, is_named=True)
            note_unknown("true class", truth != UNKNOWN)
            check_sides(labels, truth, names)
        return cls(
            vectors,
            labels,
            index,
            attributes=node_attributes,
            truth=truth,
            class_names=names,
            ids=None if ids is None else as_row_ids("ids", ids, n),
            sensitive=_sensitive(sensitive, node_attributes),
        )

    @classmethod
    def from_links(  # noqa: PLR0913
        cls,
        data: Any,
        model: Any = None,
        links: Any = None,
        *,
        scores: Any = None,
        features: Any = None,
        without: Iterable[str] = (),
        truth: Any = None,
        sensitive: Sequence[str] = (),
        shared_ends: bool = False,
        class_names: Sequence[str] | None = None,
        unknown: Collection[Any] | None = None,
        num_layers: int = 3,
        alpha: float = 0.5,
        directed: bool = False,
        edge_weight: ArrayLike | bool = False,
        index: str | EvidenceIndex | None = None,
    ) -> Self:
        """Index links of a graph, and the classes or scores that a model predicts for them.

        The evidence of a link is another pair of nodes with similar ends and surroundings, decided
        otherwise, without a common end. Such searches are exact. See :doc:`/how_to/links`.

        Parameters
        ----------
        data
            PyG ``Data`` as in :meth:`from_data`, with the edges that the model reads.
        model
            Called as ``model(x, edge_index, edge_label_index)`` or ``model(data)`` for logits or
            classes of the links, (m, C), (m,) or (m, 1); or predictions.
        links
            Pairs of ids of nodes, (m, 2), each once and, unless ``directed``, in one order. Default:
            ``data.edge_label_index``, (2, m).
        scores
            In place of a model: a number for each link, (m,).
        features
            Attributes of all nodes, as in :meth:`from_data`; none may be called "degree". Links get
            those of both ends, the degrees too, and the number of common neighbours.
        sensitive
            Attributes of nodes that are groups. Links get "NAME between ends", "within" or "across",
            which audits use as sensitive by default.
        shared_ends
            Whether a link and its evidence may share an end.
        truth, class_names, unknown
            As in :meth:`from_vectors`, of the m links.
        without, num_layers, alpha, edge_weight, index
            As in :meth:`from_data`, of the KS vectors of the ends.
        directed
            Whether links have a direction: (a, b) is then another link than (b, a), sources are
            compared with sources, and KS vectors follow the direction of edges.

        Returns
        -------
        EvidenceFinder
            Rows are links, in their order. ``model`` and ``data`` are None: no audit varies the
            inputs of links.

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described, a node is unknown, or a link occurs twice.

        Examples
        --------
        >>> from types import SimpleNamespace
        >>> data = SimpleNamespace(
        ...     x=[[1.0, 0.0], [0.9, 0.1], [0.8, 0.3], [0.0, 1.0], [0.2, 1.0], [0.1, 0.8]],
        ...     edge_index=[[0, 1, 3, 4], [1, 2, 4, 5]],
        ...     node_ids=["ann", "ben", "cem", "dee", "eva", "fay"],
        ... )
        >>> links = [("ann", "dee"), ("ben", "eva"), ("ann", "fay"), ("cem", "dee")]
        >>> finder = EvidenceFinder.from_links(data, ["yes", "no", "no", "yes"], links)
        >>> finder.local([("ann", "dee")], k=2).to_frame()[["link", "evidence", "rank"]]
                link   evidence  rank
        0  ann - dee  ben - eva     1
        """
        inputs.check_data(data)
        n = node_count(data)
        node_ids = getattr(data, "node_ids", None)
        node_ids = None if node_ids is None else as_row_ids("data.node_ids", node_ids, n)
        graph = as_graph(data, n, edge_weight=edge_weight, directed=directed)
        rows = Links.of(data, links, n, node_ids, directed, shared_ends)
        if scores is None:
            model = outputs_of_links(model, data, rows.ends)
        nodes = inputs.node_attributes(data, features, n)
        names = as_names("without", without)
        x, _, removed = leave_out(data, nodes, names) if names else (data.x, None, None)
        vectors = ks_vectors(x, graph, num_layers=num_layers, alpha=alpha)
        if not directed:
            rows = replace(rows, compared=in_order(vectors, rows.ends))
        attributes, groups = rows.attributes(nodes, graph, as_names("sensitive", sensitive))
        finder = cls.from_vectors(
            link_vectors(vectors, rows.compared, directed=True),
            model,
            scores=scores,
            features=attributes,
            truth=truth,
            ids=rows.ids,
            sensitive=groups,
            class_names=class_names,
            unknown=unknown,
            index=index,
        )
        return replace(finder, links=rows, removed=removed)

    @classmethod
    def from_graphs(  # noqa: PLR0913
        cls,
        graphs: Any,
        model: Any = None,
        *,
        scores: Any = None,
        features: Any = None,
        truth: Any = None,
        ids: Any = None,
        sensitive: Sequence[str] = (),
        class_names: Sequence[str] | None = None,
        unknown: Collection[Any] | None = None,
        num_layers: int = 3,
        alpha: float = 0.5,
        directed: bool = False,
        index: str | EvidenceIndex | None = None,
    ) -> Self:
        """Index whole graphs, such as molecules, and the classes that a model predicts for them.

        A graph with features has the sum of the KS vectors of its nodes as vector; a graph without
        features the numbers of its WL colours of 0 to ``num_layers`` steps. Vectors are compared by
        their cosine. See :doc:`/how_to/graph_classification`.

        Parameters
        ----------
        graphs
            Sequence of PyG ``Data``, a PyG data set, or other graphs of
            :func:`cfe_faiss.graph.as_graph`, such as NetworkX graphs. All or none have features,
            ``x``, (n_i, d).
        model
            For PyG ``Data`` with ``x`` called as ``model(x, edge_index, batch)`` or ``model(data)``
            with batches of graphs, else with the list of all graphs; or predictions for the graphs.
        scores
            In place of a model: a number for each graph, (g,).
        features
            Attributes of the graphs, row i of graph i. The numbers of ``nodes`` and ``edges`` join
            them, whose names are taken.
        truth
            True classes, (g,). Default: ``y`` of the graphs, if each holds one integer.
        ids, sensitive, class_names, unknown, index
            As in :meth:`from_vectors`, of graphs.
        num_layers, alpha, directed
            Of the KS vectors, as in :meth:`from_data`.

        Returns
        -------
        EvidenceFinder
            Rows are graphs. ``model`` and ``data`` are None: no audit varies the inputs of graphs.

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described, a graph has no nodes, or some graphs have features
            and others not.

        Examples
        --------
        >>> import networkx as nx
        >>> graphs = [nx.path_graph(4), nx.star_graph(3), nx.cycle_graph(4), nx.path_graph(5)]
        >>> finder = EvidenceFinder.from_graphs(graphs, ["a", "a", "b", "b"])
        >>> finder.local([0], k=2).to_frame()[["graph", "evidence", "similarity"]].round(3)
           graph  evidence  similarity
        0      0         3       0.887
        1      0         2       0.474
        """
        listed, parts = as_graphs(graphs, directed=directed)
        rows = Graphs(parts, [getattr(one, "x", None) for one in listed], (num_layers, alpha))
        if scores is None:
            model = outputs_of_graphs(model, listed)
            truth = inputs.truth_of_graphs(listed) if truth is None else truth
        finder = cls.from_vectors(
            rows.vectors(),
            model,
            scores=scores,
            features=inputs.graph_attributes(parts, features),
            truth=truth,
            ids=ids,
            sensitive=sensitive,
            class_names=class_names,
            unknown=unknown,
            index=index,
        )
        return replace(finder, graphs=rows)

    def local(  # noqa: PLR0913
        self,
        nodes: ArrayLike | None = None,
        k: int = 10,
        *,
        recall: float | None = None,
        exact: bool | None = None,
        nprobe: int | None = None,
        memory: int | None = None,
        where: Constraints | None = None,
        min_gap: float | None = None,
        progress: bool = False,
    ) -> LocalEvidence:
        """Return the k most similar nodes that the model treats differently, for each of ``nodes``.

        Parameters
        ----------
        nodes
            Ids of rows, (nq,), or a mask, (n,); all among the searched ones. By default all
            searched rows.
        k
            Evidence wanted for each, >= 1.
        recall, exact, nprobe
            Effort of the search, at most one of them: a recall@k in (0, 1]; an exact search; or the
            number of lists to probe, if the index has lists. Default: exact up to 100,000 nodes, a
            recall of 0.99 beyond. The result states the effort, and in ``recall_by_class`` the
            measured recall of each class.
        memory
            Bytes for copies of vectors, as in ``search_evidence`` of the index.
        where
            :class:`cfe_faiss.Constraints` that a node and its evidence must meet. The search is
            exact then, and ``recall`` and ``nprobe`` must be left out. A row is short if no more
            evidence meets them.
        min_gap
            Required if the finder has scores: smallest difference of the scores of a node and its
            evidence, > 0. The search is exact, as with ``where``.
        progress
            Whether to show a progress bar on standard error.

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described.
        """
        members = self.index.members()
        ids = members.ids if nodes is None else self.searched("nodes", nodes)
        query = Query(
            as_count("k", k), ids=None if nodes is None else ids, **self._conditions(where, min_gap)
        )
        if query.where is not None:
            for name, value in (("recall", recall), ("nprobe", nprobe), ("exact", exact)):
                if value is not None and value is not True:
                    raise ValueError(
                        f"{name} must be left out with where and for links that share no end (such "
                        f"a search is exact), got {name}={value}"
                    )
            exact = True
        elif recall is None and nprobe is None and exact is None:
            is_small = len(members.ids) <= inputs.EXACT_UP_TO
            exact, recall = (True, None) if is_small else (False, _RECALL)
        effort = self.index.resolve_effort(Effort.of(nprobe, recall, bool(exact), memory))
        with self.index.holding() as snapshot:
            queries = query.bind(snapshot)
            D, I = self.index.answer_on(snapshot, queries, effort, progress)
        by_class: dict[int, float] | None = None
        if effort.exact:
            by_class = dict.fromkeys(
                np.unique(members.labels[members.labels != UNKNOWN]).tolist(), 1.0
            )
        elif recall is not None:
            by_class = self.index.recall_by_class(recall, k, queries=max(1, len(ids)))
        return LocalEvidence(
            ids,
            I,
            D,
            self.labels,
            recall=1.0 if effort.exact else effort.recall,
            nprobe=effort.nprobe,
            finder=self,
            missing=queries.missing,
            recall_by_class=by_class,
            metric=self.metric,
        )

    def top_pairs(  # noqa: PLR0913
        self,
        k: int = 100,
        *,
        exact: bool | None = None,
        per_node: bool = False,
        nprobe: int | None = None,
        recall: float | None = None,
        memory: int | None = None,
        where: Constraints | None = None,
        progress: bool = False,
    ) -> PairEvidence:
        """Return the k most similar pairs of nodes that the model treats differently.

        Parameters
        ----------
        k, exact, per_node, nprobe, recall, memory
            As in :func:`cfe_faiss.global_evidence`.
        where
            :class:`cfe_faiss.Constraints` that the pairs must meet.
        progress
            Whether to show a progress bar on standard error.

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described.
        """
        if self.scores is not None:
            raise ValueError("top_pairs is for classes: with scores use widest_pairs")
        pairs = global_evidence(
            self.index,
            k,
            exact=exact,
            per_node=per_node,
            nprobe=nprobe,
            recall=recall,
            memory=memory,
            progress=progress,
            **self._conditions(where),
        )
        return PairEvidence(
            pairs.source,
            pairs.target,
            pairs.similarity,
            self.labels,
            self,
            pairs.missing,
            self.metric,
        )

    def explore(  # noqa: PLR0913
        self,
        path: str | PathLike[str],
        k: int = 1000,
        *,
        where: Constraints | None = None,
        better: Mapping[str, Any] | None = None,
        unfavourable: Any = None,
        mask_ids: bool = False,
        title: str = TITLE,
        overwrite: bool = False,
    ) -> Path:
        """Write the k most similar pairs as one page to sort, filter, compare and mark them.

        Parameters
        ----------
        path
            The page to write; its name must end in ".html".
        k, where
            As in :meth:`top_pairs`.
        better, unfavourable
            As in :func:`cfe_faiss.audit.dominated`, both or none: the page can show the pairs alone
            whose refused side is at least as good in every column of ``better``.
        mask_ids
            Whether the page has row numbers in place of ids.
        title
            Heading of the page.
        overwrite
            Whether to replace a file that this package has not written.

        Returns
        -------
        Path
            The page. It holds the values of every row in a pair, and loads nothing.

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described.
        OSError
            If the page cannot be written.
        """
        options = {"better": better, "unfavourable": unfavourable, "mask_ids": mask_ids}
        return write_explorer(
            path,
            lambda: self.top_pairs(k, where=where).to_html(**options, title=title),
            self.files,
            overwrite=overwrite,
        )

    def reviewed(self, marks: Any) -> PairEvidence:
        """Return the pairs that a reader has marked in the explorer, with marks and notes.

        Parameters
        ----------
        marks
            The CSV file that the page has exported, or a frame with its columns.

        Returns
        -------
        PairEvidence
            In the order of the file; ``to_frame()`` has the columns ``mark`` and ``note``, and
            ``explore()`` goes on with the marks.

        Raises
        ------
        TypeError, ValueError
            If a column is missing, a mark is unknown, or a row does not belong to this data.
        """
        table = read_marks(marks, len(self.labels), self.names(np.arange(len(self.labels))))
        source, target = table[["source", "target"]].to_numpy(np.int64).T
        measures = self.measure64(source, target)
        return PairEvidence(
            source,
            target,
            (measures**2 if self.metric == "l2" else measures).astype(np.float32),
            self.labels,
            self,
            metric=self.metric,
            marks=table["mark"].tolist(),
            notes=table["note"].tolist(),
        )

    def case(self, id: Any, k: int = 5, *, where: Constraints | None = None) -> Case:  # noqa: A002
        """Return one page about a row: the k most similar rows treated differently, and why.

        Parameters
        ----------
        id
            Id of a searched row.
        k
            Rows to compare with, >= 1.
        where
            :class:`cfe_faiss.Constraints` that they must meet.

        Returns
        -------
        Case
            ``print(case)`` shows it as text, ``case.to_html()`` is a page to print.

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described.

        Examples
        --------
        >>> features = {"income": [30, 31, 50], "sex": ["f", "m", "f"]}
        >>> X = [[1, 0], [0.9, 0.1], [0, 1]]
        >>> finder = EvidenceFinder.from_vectors(X, ["no", "yes", "no"], features=features)
        >>> print(finder.case(0))
        0: decided 'no'
        <BLANKLINE>
                     0         1
        Decision    no       yes
        Similarity      0.993884
        sex          f       m *
        income      30      31 *
        <BLANKLINE>
        Right of 0: the most similar ones decided otherwise. * differs.
        <BLANKLINE>
        """
        return case_of(self, int(self.searched("id", [id])[0]), as_count("k", k), where)

    def updated(  # noqa: PLR0913
        self,
        *,
        predictions: Any = None,
        features: Any = None,
        add_edges: Any = None,
        remove_edges: Any = None,
        edge_weight: Any = None,
        x: Mapping[Any, Any] | None = None,
        add_nodes: Any = None,
        remove_nodes: Any = (),
        ids: Any = None,
    ) -> tuple[EvidenceFinder, Array]:
        """Return a finder with other edges, rows or predictions, and the ids that changed.

        An id changes with its vector or class.

        This finder does not change. Without ``predictions`` the model is called for the data after
        the change.

        Parameters
        ----------
        predictions
            Predictions for all rows after the change, in any form of :meth:`from_data`. ``model``
            is None then. Rows without a class are not searched; rows that get one are, if all with
            a class are.
        features
            Attributes of all rows after the change. Required if the finder has attributes and rows
            change or come.
        add_edges, remove_edges, edge_weight
            As in :meth:`cfe_faiss.KSVectors.update`, with ids of this finder.
        x
            New features of some rows, id to row, (d,); without a graph new vectors.
        add_nodes
            Features, or vectors, of new rows, (m, d). They follow the last row and are searched.
        remove_nodes
            Ids of rows that leave the graph and the index. Other rows keep their numbers.
        ids
            Ids of new rows, (m,), if the finder has ids.

        Returns
        -------
        finder
            The finder after the change, with a copy of the index: O(n d) time and memory. To change
            an index in place, use :class:`cfe_faiss.KSVectors` and ``index.update_vectors``.
        changed
            Ids of the rows whose vector or class changed, in the order of rows; new ones among
            them.

        Raises
        ------
        TypeError, ValueError
            If an argument is invalid, or predictions are required: there is no model, or its data
            has values of edges or several node types. A table allows ``predictions``, ``features``
            and ``remove_nodes`` only. A sharded index cannot be copied.

        Examples
        --------
        >>> finder = EvidenceFinder.from_vectors([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]], [0, 1, 1])
        >>> new, changed = finder.updated(x={2: [0.99, 0.01]}, predictions=[0, 1, 1])
        >>> changed
        array([2])
        >>> new.local([0], k=1).evidence, finder.local([0], k=1).evidence
        (array([[2]]), array([[1]]))
        """
        new, rows = updated(
            self,
            predictions,
            features,
            add_edges=add_edges,
            remove_edges=remove_edges,
            x=x,
            add_nodes=add_nodes,
            remove_nodes=remove_nodes,
            edge_weight=edge_weight,
            ids=ids,
        )
        return new, new.names(rows)

    def widest_pairs(
        self,
        k: int = 100,
        *,
        similarity: float | None = None,
        distance: float | None = None,
        where: Constraints | None = None,
    ) -> PairEvidence:
        """Return the k pairs of near rows with the largest difference of their scores.

        Parameters
        ----------
        k
            Number of pairs, >= 1.
        similarity, distance
            Smallest similarity of a pair or, for a finder with metric "l2" such as a table, its
            largest distance.
        where
            :class:`cfe_faiss.Constraints` that the pairs must meet.

        Returns
        -------
        PairEvidence
            Largest difference first; equal difference: smaller row numbers first. The search is
            exact. It compares every row with every other one.

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described, or the finder has no scores.
        """
        k = as_count("k", k)
        scores = self.scores
        if scores is None:
            raise ValueError("widest_pairs is for a finder with scores: with classes use top_pairs")
        argument = measure_of(self.metric)
        thresholds = {"similarity": similarity, "distance": distance}
        value = thresholds.pop(argument)
        if value is None or any(other is not None for other in thresholds.values()):
            raise ValueError(
                f"{argument} must be given, and {', '.join(thresholds)} left out, for metric "
                f"{self.metric!r}"
            )
        low = threshold_of(argument, value, self.metric)
        best: tuple[Any, Any, Any] = (
            np.empty(0, np.int64),
            np.empty(0, np.int64),
            np.empty(0, np.float32),
        )
        ids = self.index.members().ids
        gap = _LEAST_GAP
        for part in slices(len(ids), _ROWS_AT_ONCE):
            query = Query(threshold=low, ids=ids[part], **self._conditions(where, gap))
            lims, D, I = self.index.answer_range(query)
            new: tuple[Any, Any, Any] = np.repeat(ids[part], np.diff(lims)), I, D
            source, target, similarities = (
                np.append(a, b[new[0] < I]) for a, b in zip(best, new, strict=True)
            )
            gaps = abs(scores[source] - scores[target])
            order = np.lexsort((target, source, -gaps))[:k]
            best = source[order], target[order], similarities[order]
            if len(order) == k:
                gap = max(gap, float(gaps[order[-1]]))
        return PairEvidence(*best, self.labels, self, metric=self.metric)

    def _conditions(
        self, where: Constraints | None, min_gap: float | None = None
    ) -> dict[str, Any]:
        """Return constraints with numbers of classes, and their data, as arguments of a search."""
        if where is not None and not isinstance(where, Constraints):
            raise TypeError(f"where must be cfe_faiss.Constraints, got {type(where).__name__}")
        if (min_gap is None) != (self.scores is None):
            needed = (
                "left out for a finder without scores"
                if self.scores is None
                else "given for a finder with scores"
            )
            raise ValueError(f"min_gap must be {needed}, got {min_gap}")
        if min_gap is not None and self.scores is not None:
            conditions = self.conditions(where)
            where = conditions.get("where")
            return conditions | inputs.gap_conditions(where, min_gap, self.scores, self.attributes)
        if where is not None and where.target is not None:
            where = replace(where, target=self.class_numbers("target", where.target).tolist())
        return self.conditions(where)

    def conditions(self, where: Constraints | None = None) -> dict[str, Any]:
        """Return constraints and the rule of links, with their data, as arguments of a search.

        Without either an empty dict.
        """
        graph = self.graph
        if self.links is not None:
            where = self.links.constraints(where)
            graph = self.links.graph
        if where is None:
            return {}
        return {"where": where, "attributes": self.attributes, "graph": graph}


def _classes_for_scores(model: Any, truth: Any, class_names: Any, n: int) -> Int32s:
    """Return the one class of all rows of a finder with scores."""
    for name, value in (("model", model), ("truth", truth), ("class_names", class_names)):
        if value is not None:
            raise ValueError(f"{name} must be left out with scores, got {value!r}")
    return np.zeros(n, np.int32)


def _sensitive(names: Sequence[str], attributes: Attributes | None) -> tuple[str, ...]:
    sensitive_names = as_names("sensitive", names)
    if sensitive_names and attributes is None:
        raise ValueError(
            f"sensitive must name attributes, which features hold, got {sensitive_names[0]!r} without "
            f"features"
        )
    return (
        tuple(attributes.known("sensitive", name) for name in sensitive_names)
        if attributes is not None
        else ()
    )
