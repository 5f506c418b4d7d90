"""Evidence for PyG's ``Explainer``, and explanations of a row and its evidence."""

import copy
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cfe_faiss.attributes.constraints import Constraints
from cfe_faiss.attributes.table import feature_names
from cfe_faiss.base.checks import Doubles, Floats, Ints, as_array, as_count, as_matrix, check_type
from cfe_faiss.base.extras import extra
from cfe_faiss.finder import EvidenceFinder, LocalEvidence
from cfe_faiss.graph import as_graph
from cfe_faiss.graph.ks import ks_similarity
from cfe_faiss.graph.whole import Graphs
from cfe_faiss.plot import feature_matrix

with extra("gnn"):
    import pandas as pd
    import torch
    from torch_geometric.explain import Explainer, Explanation
    from torch_geometric.explain.algorithm import ExplainerAlgorithm
    from torch_geometric.explain.config import ExplanationType, MaskType, ModelMode, ModelTaskLevel

    from cfe_faiss.data.call import arguments

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_LEVELS = {"link": ModelTaskLevel.edge, "graph": ModelTaskLevel.graph}
"""PyG's name for the task of a finder; else that of nodes."""
_ROUNDING = 1e-6  # of 1 - similarity of nodes with equal surroundings


class EvidenceExplainer(ExplainerAlgorithm):
    """Counterfactual evidence as an algorithm for ``torch_geometric.explain.Explainer``.

    It explains a node, a link (``task_level="edge"``) or a whole graph (``task_level="graph"``),
    according to its finder. The explanation carries ``evidence``, (k,) int64, the row numbers of
    the most similar nodes, links or graphs that the model treats differently (fewer than k if no
    more exist), ``similarity``, (k,) float32, and their predicted classes, ``evidence_label``, (k,)
    int64; of links also their ends, ``evidence_ends``, (2, k) int64.

    Its ``node_mask`` compares nodes with *counterparts* in the evidence: a node with the evidence
    itself; both ends of a link with those ends that the finder compares them with; each node of a
    graph with the node of the other graph that has the most similar KS vector. Its values are in
    [0, 1]:

    - ``node_mask_type="attributes"``, (n, d): the rows of these nodes hold the differences from
      their counterparts in each attribute, in standard deviations over all nodes (of all graphs),
      averaged over the evidence, and scaled to 1 for the largest; all other rows are 0.
    - ``"common_attributes"``, (1, d): the sum of these rows, scaled to 1 for the largest.
    - ``"object"``, (n, 1). Of nodes and links: 1 for the node or both ends, the similarity for the
      evidence or its ends (0 for a negative one), 0 for all other nodes. Of a graph: 1 minus the
      similarity of KS vectors of each node and its counterpart, averaged over the evidence, so 0
      where the graphs agree.

    The mask describes the row and its evidence. An attribute in which they differ need not be one
    that the model uses. To compare the two, see :func:`explain_beside`. There is no ``edge_mask``.

    Parameters
    ----------
    finder
        Finder over the same graph, or graphs, and the same model.
    k
        Number of evidence nodes, links or graphs, >= 1.
    where
        :class:`cfe_faiss.Constraints` that a row and its evidence must meet.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described. When it explains: if the index is not one of the
        finder's searched rows, the graph has another number of nodes than the finder, or the model
        predicts another class for the row.

    Notes
    -----
    The explainer is called as PyG's others: for a node as ``explainer(x, edge_index, index=97)``;
    for a link with ``edge_label_index``, (2, m), and the position in it as ``index`` (left out for
    one link); for a graph with its nodes, or with a batch of graphs, ``batch``, and the position in
    it as ``index``. A graph is recognised by its features and edges.

    Examples
    --------
    >>> from torch_geometric.explain import Explainer, ModelConfig
    >>> from torch_geometric.nn.models import GCN
    >>> from cfe_faiss.datasets import load
    >>> from cfe_faiss.models import train
    >>> data, model = load("patients"), GCN(30, 16, 2, 2)
    >>> report = train(model, data, epochs=20)
    >>> explainer = Explainer(
    ...     model,
    ...     EvidenceExplainer(EvidenceFinder.from_data(data, model), k=3),
    ...     explanation_type="model",
    ...     node_mask_type="attributes",
    ...     model_config=ModelConfig("multiclass_classification", "node", "raw"),
    ... )
    >>> explanation = explainer(data.x, data.edge_index, index=97)
    >>> explanation.evidence.shape, explanation.node_mask.shape
    (torch.Size([3]), torch.Size([569, 30]))
    """

    def __init__(
        self, finder: EvidenceFinder, k: int = 5, where: Constraints | None = None
    ) -> None:
        super().__init__()
        _check_finder(finder)
        self.finder = finder
        self.k = as_count("k", k)
        self.where = where

    def __repr__(self) -> str:
        return f"EvidenceExplainer({self.finder!r}, k={self.k})"

    def supports(self) -> bool:
        """Return whether the settings ask for node masks of a classifier of the finder's rows."""
        level = _LEVELS.get(self.finder.noun, ModelTaskLevel.node)
        reasons = {
            "explains a model's predictions only": self.explainer_config.explanation_type
            == ExplanationType.model,
            f"explains classes of {level.value}s only": self.model_config.task_level == level
            and self.model_config.mode != ModelMode.regression,
            "has no masks of edges": self.explainer_config.edge_mask_type is None,
        }
        for reason, is_met in reasons.items():
            if not is_met:
                logging.error("'%s' %s", type(self).__name__, reason)
        return all(reasons.values())

    def forward(
        self,
        model: torch.nn.Module,
        x: torch.Tensor,
        edge_index: torch.Tensor,
        *,
        target: torch.Tensor,
        index: int | torch.Tensor | None = None,
        **kwargs: Any,
    ) -> Explanation:
        """Return the explanation of one node, link or graph; called by ``Explainer``."""
        finder = self.finder
        features = as_matrix("x", x)
        place = self._place(index, target)
        row, nodes = self._row(features, edge_index, place, kwargs)
        check_class(finder, row, target.reshape(-1)[place])
        nearest_evidence = finder.local(finder.names([row]), self.k, where=self.where)
        evidence = nearest_evidence.evidence[0][nearest_evidence.evidence[0] >= 0]
        similarity = nearest_evidence.similarity[0][: len(evidence)]
        mask = torch.from_numpy(self._mask(features, row, nodes, evidence, similarity))
        explanation = Explanation(node_mask=mask.to(x.device))
        explanation.evidence = torch.from_numpy(evidence)
        explanation.similarity = torch.from_numpy(similarity)
        explanation.evidence_label = torch.from_numpy(finder.labels[evidence].astype(np.int64))
        if finder.links is not None:
            explanation.evidence_ends = torch.from_numpy(finder.links.ends[evidence].T)
        return explanation

    def _place(self, index: int | torch.Tensor | None, target: torch.Tensor) -> int:
        """Return the position of the row to explain in the output of the model."""
        places = torch.arange(target.numel()) if index is None else torch.as_tensor(index).view(-1)
        if len(places) != 1:
            number = "None" if index is None else len(places)
            raise ValueError(f"index must be one {self.finder.noun}, got {number}")
        return int(places)

    def _row(
        self, x: Floats, edge_index: Any, place: int, kwargs: Mapping[str, Any]
    ) -> tuple[int, Ints]:
        """Return the row of the finder to explain, and its nodes as rows of ``x``."""
        finder = self.finder
        if finder.graphs is not None:
            batch = kwargs.get("batch")
            graph_of = np.zeros(len(x), int) if batch is None else as_array("batch", batch)
            nodes = np.flatnonzero(graph_of == place)
            edges = as_array("edge_index", edge_index)
            edges = nodes.searchsorted(edges[:, graph_of[edges[0]] == place])
            graph = as_graph(edges, len(nodes), directed=finder.graphs.parts[0].directed)
            row = finder.graphs.row_of(x[nodes], graph)
            if row < 0:
                raise ValueError(f"x and edge_index must be a graph of {finder!r}, got another one")
            return row, nodes
        _check_node_count("x must have a row for each of", finder, len(x))
        if finder.links is None:
            return place, np.array([place])
        if "edge_label_index" not in kwargs:
            raise ValueError("edge_label_index must be given, as for the model, got None")
        ends = as_array("edge_label_index", kwargs["edge_label_index"]).reshape(2, -1)[:, place]
        ids = finder.links.node_ids
        pair = tuple((ends if ids is None else ids[ends]).tolist())
        row = int(finder.searched("edge_label_index", [pair])[0])
        return row, finder.links.compared[row]

    def _mask(self, x: Floats, row: int, nodes: Ints, evidence: Ints, similarity: Floats) -> Floats:
        """Return the mask of the settings, which PyG demands to be of nodes or of edges."""
        kind = self.explainer_config.node_mask_type
        graphs = self.finder.graphs
        mask = np.zeros((len(x), 1 if kind == MaskType.object else x.shape[1]), np.float32)
        if len(evidence) == 0:
            mask[nodes] = kind == MaskType.object and graphs is None
            return mask[:1] if kind == MaskType.common_attributes else mask
        if graphs is None:
            links = self.finder.links
            places = evidence[:, None] if links is None else links.compared[evidence]
            counterparts = x[places]
            nodes_of_all = x
            if kind == MaskType.object:
                np.maximum.at(mask[:, 0], places, np.maximum(similarity, 0)[:, None])
                mask[nodes] = 1
                return mask
        else:
            pairs = [_counterparts(graphs, row, other) for other in evidence.tolist()]
            counterparts = np.array([features for features, _ in pairs])
            nodes_of_all = np.vstack([graphs.x(i) for i in range(len(graphs.parts))])
            if kind == MaskType.object:
                gaps = 1 - np.mean([similarities for _, similarities in pairs], axis=0)
                mask[nodes, 0] = np.where(gaps > _ROUNDING, gaps.clip(0, 1), 0)
                return mask
        rows = np.abs(in_deviations(counterparts - x[nodes], nodes_of_all)).mean(axis=0)
        if kind == MaskType.common_attributes:
            return _of_largest(rows.sum(axis=0, keepdims=True)).astype(np.float32)
        mask[nodes] = rows / (rows.max() or 1)
        return mask


def _check_finder(finder: Any) -> None:
    """Raise an error unless ``finder`` is a finder whose rows have features that a model reads."""
    check_type("finder must be an EvidenceFinder", finder, EvidenceFinder)
    if finder.graphs is not None and finder.graphs.features[0] is None:
        raise ValueError("finder must be of graphs with features x, which masks need, got none")


def _check_node_count(expectation: str, finder: EvidenceFinder, n: int) -> None:
    expected = len(finder.labels) if finder.links is None else finder.links.num_nodes
    if n != expected:
        raise ValueError(f"{expectation} the finder's {expected} nodes, got {n}")


def check_class(finder: EvidenceFinder, row: int, target: Any) -> None:
    """Raise ValueError if the model predicts another class for a row than the finder holds."""
    expected = int(finder.labels[row])
    predicted = int(target)
    if expected != predicted:
        raise ValueError(
            f"finder must hold the classes that the model predicts, got class {expected} for "
            f"{finder.noun} {finder.names(row)}, for which the model predicts {predicted}"
        )


def _counterparts(graphs: Graphs, i: int, j: int) -> tuple[Floats, Doubles]:
    """Return features of the node of graph j most similar to each node of graph i, (n_i, d).

    Also the similarity of their KS vectors, (n_i,).
    """
    X = graphs.ks_vectors(i)
    Y = graphs.ks_vectors(j)
    near = (X @ Y.T).argmax(axis=1)
    pairs = np.arange(len(X)), len(X) + near
    return graphs.x(j)[near], ks_similarity(np.vstack([X, Y]), *pairs, dtype=np.float64)


def in_deviations(differences: Any, x: Floats) -> Doubles:
    """Return differences, (..., d), in standard deviations of each column of x; 0 for a constant."""
    spread = x.std(axis=0, dtype=np.float64)
    scaled: Doubles = differences.astype(np.float64) / np.where(spread > 0, spread, 1)
    return scaled


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class ExplainedEvidence:
    """Explanations of a node, link or graph and of its evidence; made by :func:`explain_beside`.

    Attributes
    ----------
    found
        The evidence of the row, from the finder.
    explanations
        PyG's explanation of the row, then of each row of its evidence, best first.
    data
        The graph, or the whole graphs.
    """

    found: LocalEvidence
    explanations: tuple[Explanation, ...]
    data: Any

    def __repr__(self) -> str:
        masks = [
            name
            for name in ("node_mask", "edge_mask")
            if self.explanations[0].get(name) is not None
        ]
        row = f"{self.found.noun} {self._name(0)}, {len(self.nodes) - 1} evidence"
        return f"ExplainedEvidence({row}, {' and '.join(masks)})"

    @property
    def nodes(self) -> Ints:
        """Row numbers of the node, link or graph, then of its evidence, (1 + k,) int64."""
        evidence = self.found.evidence[0]
        return np.concatenate([self.found.nodes, evidence[evidence >= 0]])

    @property
    def finder(self) -> EvidenceFinder:
        """Finder that has found the evidence."""
        finder: Any = self.found.finder
        return finder

    def values(self, *, raw: bool = False) -> tuple[Doubles, Floats]:
        """Return the features of each of ``nodes``, (1 + k, s, d), and of all nodes, (n, d).

        s is 1 for nodes, and for graphs, which have the means over their nodes; it is 2 for links:
        their ends, in the order in which these are compared. ``raw`` values are in original units.
        """
        matrices = [
            feature_matrix(data) if raw else as_matrix("data.x", data.x) for data in self.graphs
        ]
        nodes = self.nodes
        if self.finder.graphs is not None:
            means = [matrices[i].mean(axis=0, dtype=np.float64) for i in nodes.tolist()]
            return np.array(means)[:, None], np.vstack(matrices)
        links = self.finder.links
        places = nodes[:, None] if links is None else links.compared[nodes]
        return matrices[0][places].astype(np.float64), matrices[0]

    def deviations(self) -> Doubles:
        """Return the features in standard deviations from the mean of all nodes, (1 + k, s, d)."""
        values, x = self.values()
        return in_deviations(values - x.mean(axis=0, dtype=np.float64), x)

    @property
    def graphs(self) -> list[Any]:
        """The graph, or the whole graphs."""
        return [self.data] if self.finder.graphs is None else list(self.data)

    def _name(self, place: int) -> Any:
        return self.finder.names(self.nodes[[place]]).tolist()[0]

    def feature_importance(self) -> Doubles:
        """Return the importance of each feature for each of ``nodes``, (1 + k, d).

        It is the sum of the explanation's ``node_mask`` over all nodes, as in PyG's
        ``visualize_feature_importance``, divided by the largest sum of the row.

        Raises
        ------
        ValueError
            If the explainer was not asked for masks of features (``node_mask_type="attributes"`` or
            ``"common_attributes"``).
        """
        masks = [as_array("node_mask", self._mask(one, "node_mask")) for one in self.explanations]
        d = feature_matrix(self.graphs[0]).shape[1]
        if masks[0].shape[1] != d:
            raise ValueError(
                f"node_mask must have a column for each of {d} features, got shape {masks[0].shape}"
            )
        sums = np.array([mask.sum(axis=0, dtype=np.float64) for mask in masks])
        return _of_largest(sums)

    def edge_importance(self) -> Doubles:
        """Return the importance of edges for ``nodes``, (1 + k, E), over the largest of the row.

        It is 0 for edges that the model does not read for that row.

        Raises
        ------
        ValueError
            If the explainer was not asked for masks of edges (``edge_mask_type="object"``), or rows
            are whole graphs, which have no edge in common.
        """
        if self.finder.graphs is not None:
            raise ValueError(
                "edges must be of one graph, got graphs: explanations hold their masks"
            )
        return _of_largest(
            np.array(
                [as_array("edge_mask", self._mask(one, "edge_mask")) for one in self.explanations]
            )
        )

    def features(self, top: int = 10) -> pd.DataFrame:
        """Return the importance of features for a row and its evidence, and how these differ.

        Parameters
        ----------
        top
            For each row of the evidence, the features among the ``top`` most important ones for
            the row or for that evidence; at least 1.

        Returns
        -------
        DataFrame
            ``node`` (or "link", "graph", so below), ``evidence``, ``feature``, ``node_importance``
            and ``evidence_importance``, see :meth:`feature_importance`; ``shared``, whether it is
            among the ``top`` for both; ``node_value`` and ``evidence_value``, in original units if
            ``data`` has them (``x_raw``), of graphs the means over their nodes; ``difference``,
            evidence minus node in standard deviations of ``data.x`` over all nodes. For each
            evidence by descending ``node_importance``. Of links a line for either end, with its id
            in ``end`` and that of the end of the evidence in ``evidence_end``.

            A feature that is important for both, and equal for both, does not explain their
            different classes.
        """
        raw = self.values(raw=True)[0]
        names = np.array(feature_names(self.graphs[0], raw.shape[2]), dtype=object)
        noun = self.found.noun
        differences = self._differences()
        links = self.finder.links

        def columns(importance: Doubles, place: int, chosen: Ints) -> dict[str, Any]:
            both = [np.isin(chosen, _best(importance[one], top)) for one in (0, place)]
            features = np.repeat(chosen, raw.shape[1])
            sides = np.tile(np.arange(raw.shape[1]), len(chosen))
            ends = {}
            if links is not None:
                end, evidence_end = links.compared_ids[self.nodes[[0, place]]][:, sides]
                ends = {"end": end, "evidence_end": evidence_end}
            return {
                **ends,
                "feature": names[features],
                **_importances(noun, importance, place, features),
                "shared": np.repeat(both[0] & both[1], raw.shape[1]),
                f"{noun}_value": raw[0, sides, features],
                "evidence_value": raw[place, sides, features],
                "difference": differences[place - 1, sides, features],
            }

        return self._frame(self.feature_importance(), as_count("top", top), columns)

    def edges(self, top: int = 10) -> pd.DataFrame:
        """Return the importance of edges for a row and its evidence.

        Parameters
        ----------
        top
            For each row of the evidence, the edges among the ``top`` most important ones for the
            row or for that evidence; at least 1.

        Returns
        -------
        DataFrame
            ``node`` (or "link", so below), ``evidence``, ``edge`` (its position in ``edge_index``), ``source``,
            ``target``, ``node_importance`` and ``evidence_importance``, see
            :meth:`edge_importance`; ``shared``, whether the model reads the edge for both. For each
            evidence by descending ``node_importance``.
        """
        importance_of_edges = self.edge_importance()
        ends = as_array("data.edge_index", self.data.edge_index)

        def columns(importance: Doubles, place: int, chosen: Ints) -> dict[str, Any]:
            return {
                "edge": chosen,
                "source": ends[0, chosen],
                "target": ends[1, chosen],
                **_importances(self.found.noun, importance, place, chosen),
                "shared": (importance[[0, place]][:, chosen] > 0).all(axis=0),
            }

        return self._frame(importance_of_edges, as_count("top", top), columns)

    def _frame(
        self, importance: Doubles, top: int, columns: Callable[..., dict[str, Any]]
    ) -> pd.DataFrame:
        """Return the columns of the ``top`` features or edges of the row or an evidence."""
        tables = []
        for place in range(1, len(self.nodes)):
            chosen = np.union1d(_best(importance[0], top), _best(importance[place], top))
            chosen = chosen[np.argsort(-importance[0, chosen], kind="stable")]
            rows = {self.found.noun: self._name(0), "evidence": self._name(place)}
            tables.append(pd.DataFrame(rows | columns(importance, place, chosen)))
        return pd.concat(tables, ignore_index=True)

    def to_frame(self, top: int = 10) -> pd.DataFrame:
        """Return a line per row of the evidence: similarity of explanations, and what is left.

        Parameters
        ----------
        top
            Number of features that count as important, >= 1.

        Returns
        -------
        DataFrame
            The columns of :meth:`cfe_faiss.finder.LocalEvidence.to_frame`. With masks of features
            also ``shared_features``, the number of features among the ``top`` of both row and
            evidence; and ``explained_difference``, the share of their squared difference (in
            standard deviations, of links summed over both ends) that the ``top`` features of the
            row hold, NaN if they are equal. An explanation that distinguishes row and evidence has
            a share near 1; features chosen at random have ``top / d`` on average. With masks of
            edges of one graph also ``shared_edges``, the number of edges that the model reads for
            both.
        """
        frame = self.found.to_frame()
        top = as_count("top", top)
        squares = (self._differences() ** 2).sum(axis=1)
        mask = self.explanations[0].get("node_mask")
        if mask is not None and mask.shape[1] == len(squares.T):
            best = [_best(row, top) for row in self.feature_importance()]
            frame["shared_features"] = [len(np.intersect1d(best[0], other)) for other in best[1:]]
            with np.errstate(invalid="ignore"):
                shares = squares[:, best[0]].sum(axis=1) / squares.sum(axis=1)
            frame["explained_difference"] = shares
        has_edges = self.explanations[0].get("edge_mask") is not None
        if has_edges and self.finder.graphs is None:
            read = self.edge_importance() > 0
            frame["shared_edges"] = (read[1:] & read[0]).sum(axis=1)
        return frame

    def figure(self, top: int = 10) -> "Figure":
        """Draw the importance of features for the row and its evidence, with their values.

        Parameters
        ----------
        top
            Number of the most important features of the row to draw, >= 1.

        Returns
        -------
        matplotlib.figure.Figure
            Not bound to a window or backend; write it with ``figure.savefig("explained.png")``.
            With masks of edges, a second row shows the neighbours of each node, or of both ends of
            a link, or the most important edges of a graph; the width of a line is the importance of
            its edge.

        Raises
        ------
        ValueError
            If there are no masks of features.
        """
        from cfe_faiss.integrations.pyg.figure import draw

        return draw(self, as_count("top", top))

    def _differences(self) -> Doubles:
        deviations = self.deviations()
        return deviations[1:] - deviations[0]

    def _mask(self, explanation: Explanation, name: str) -> Any:
        mask = explanation.get(name)
        if mask is None:
            raise ValueError(f"the explanations must have {name}: set {name}_type of the Explainer")
        return mask


def explain_beside(
    explainer: Explainer,
    finder: EvidenceFinder,
    data: Any,
    node: int,
    k: int = 3,
    *,
    call_with: Mapping[str, Any] | None = None,
) -> ExplainedEvidence:
    """Explain a node, link or whole graph, and its evidence, with one of PyG's explainers.

    An explanation, for example of ``GNNExplainer``, names the features and edges that matter for
    one prediction. The evidence is a very similar node that is treated differently. The comparison
    shows whether the features named also distinguish the two.

    Parameters
    ----------
    explainer
        PyG's ``Explainer`` of the predictions of a model, with ``GNNExplainer`` or the like; for
        links with ``task_level="edge"``, called with ``edge_label_index``, (2, 1), for each link.
    finder
        Finder over the same graph, or graphs, and the same model.
    data
        PyG ``Data``; for whole graphs their sequence, in the order of the finder. Used if present:
        ``feature_names``, ``x_raw``, ``class_names``, ``node_ids``.
    node
        Id of one of the finder's searched rows: a node, a link (a pair of ids, say) or a graph.
    k
        Number of rows of evidence, >= 1; all of them are explained.
    call_with
        Further keyword arguments of the model. What it requires, and edge weights, are of ``data``.

    Returns
    -------
    ExplainedEvidence
        From 1 + k runs of the explainer. ``GNNExplainer`` and others draw random numbers: call
        ``torch.manual_seed`` before for reproducible results.

    Raises
    ------
    TypeError
        If an argument is of the wrong kind.
    ValueError
        If the row has no evidence or is not searched, the graph has another number of nodes than the
        finder, or the model predicts another class than the finder holds for one of the rows.

    Examples
    --------
    >>> from torch_geometric.explain import Explainer, GNNExplainer, ModelConfig
    >>> from torch_geometric.nn.models import GCN
    >>> from cfe_faiss.datasets import load
    >>> from cfe_faiss.models import train
    >>> data, model = load("patients"), GCN(30, 16, 2, 2)
    >>> report = train(model, data, epochs=20)
    >>> explainer = Explainer(
    ...     model,
    ...     GNNExplainer(epochs=5),
    ...     explanation_type="model",
    ...     node_mask_type="attributes",
    ...     edge_mask_type="object",
    ...     model_config=ModelConfig("multiclass_classification", "node", "raw"),
    ... )
    >>> finder = EvidenceFinder.from_data(data, model)
    >>> explained = explain_beside(explainer, finder, data, node=97, k=2)
    >>> list(explained.to_frame().columns)[-3:]
    ['shared_features', 'explained_difference', 'shared_edges']
    """
    check_type("explainer must be an Explainer of PyG", explainer, Explainer)
    _check_finder(finder)
    if finder.graphs is None:
        _check_node_count("data must have", finder, len(data.x))
    elif len(data) != len(finder.labels):
        raise ValueError(f"data must be the finder's {len(finder.labels)} graphs, got {len(data)}")
    row = int(finder.searched("node", [node])[0])
    found = finder.local(finder.names([row]), k)
    evidence = found.evidence[0][found.evidence[0] >= 0]
    if len(evidence) == 0:
        raise ValueError(
            f"node must have evidence, got {node}: all searched {finder.noun}s are predicted its "
            f"class"
        )
    options = dict(call_with or {})
    explanations = []
    for one in [row, *evidence.tolist()]:
        inputs = copy.copy(data if finder.graphs is None else data[one])
        if finder.links is not None:
            ends = torch.as_tensor(finder.links.ends[[one]].T, device=data.x.device)
            inputs.edge_label_index = ends
        for name, value in options.items():
            setattr(inputs, name, value)
        index = one if finder.noun in ("node", "row") else 0
        values = arguments(explainer.model, inputs)[1] | options
        explanation = explainer(inputs.x, inputs.edge_index, index=index, **values)
        check_class(finder, one, explanation.target.reshape(-1)[index])
        explanations.append(explanation)
    return ExplainedEvidence(found, tuple(explanations), data)


def _of_largest(rows: Doubles) -> Doubles:
    """Return each row divided by its largest value; a row of zeros stays zero."""
    largest = rows.max(axis=1, keepdims=True, initial=0)
    return rows / np.where(largest > 0, largest, 1)


def _best(row: Doubles, top: int) -> Ints:
    """Return the positions of the ``top`` largest values, without zeros.

    Of equal values the first.
    """
    order = np.argsort(-row, kind="stable")[:top]
    return order[row[order] > 0]


def _importances(noun: str, importance: Doubles, place: int, chosen: Ints) -> dict[str, Any]:
    return {
        f"{noun}_importance": importance[0, chosen],
        "evidence_importance": importance[place, chosen],
    }
