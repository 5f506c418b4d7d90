"""A node and its counterfactual evidence, each with an explanation of its own, side by side."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.audit.features import as_node, feature_matrix, feature_names
from cfe_faiss.base.checks import as_array, as_count
from cfe_faiss.base.extras import extra
from cfe_faiss.finder import EvidenceFinder, LocalEvidence
from cfe_faiss.integrations.pyg.algorithm import attribute_differences

with extra("gnn"):
    import pandas as pd
    from torch_geometric.explain import Explainer, Explanation

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class ExplainedEvidence:
    """What an explainer says of a node and of its evidence; made by :func:`explain_beside`.

    Attributes
    ----------
    found
        The evidence of the one node, as the finder gives it.
    explanations
        PyG's explanation of the node, then one of each node of its evidence, best first.
    data
        The graph.
    """

    found: LocalEvidence
    explanations: tuple[Explanation, ...]
    data: Any

    def __repr__(self) -> str:
        masks = [name for name in ("node_mask", "edge_mask") if self.explanations[0].get(name) is not None]
        return f"ExplainedEvidence(node {self.nodes[0]}, {len(self.nodes) - 1} evidence, {' and '.join(masks)})"

    @property
    def nodes(self) -> NDArray[np.int64]:
        """The node, then its evidence, (1 + k,) int64."""
        evidence = self.found.evidence[0]
        return np.concatenate([self.found.nodes, evidence[evidence >= 0]])

    def feature_importance(self) -> NDArray[np.float64]:
        """Return the importance of each feature for each of ``nodes``, (1 + k, d), 1 for a node's most important one.

        It is the sum of the explanation's ``node_mask`` over all nodes, as in PyG's ``visualize_feature_importance``,
        divided by the largest.

        Raises
        ------
        ValueError
            If the explainer was not asked for masks of features (``node_mask_type="attributes"`` or
            ``"common_attributes"``).
        """
        masks = [as_array("node_mask", self._mask(one, "node_mask")) for one in self.explanations]
        d = feature_matrix(self.data).shape[1]
        if masks[0].shape[1] != d:
            raise ValueError(f"node_mask must have a column for each of {d} features, got shape {masks[0].shape}")
        sums = np.array([mask.sum(axis=0, dtype=np.float64) for mask in masks])
        return _of_largest(sums)

    def edge_importance(self) -> NDArray[np.float64]:
        """Return the importance of each edge for each of ``nodes``, (1 + k, E), 1 for a node's most important one.

        It is 0 for edges from which the model reads nothing for that node.

        Raises
        ------
        ValueError
            If the explainer was not asked for masks of edges (``edge_mask_type="object"``).
        """
        return _of_largest(np.array([as_array("edge_mask", self._mask(one, "edge_mask")) for one in self.explanations]))

    def features(self, top: int = 10) -> pd.DataFrame:
        """Return what the explanations say of features, and where node and evidence differ in them.

        Parameters
        ----------
        top
            For each node of the evidence, the features among the ``top`` most important ones for the node or for that
            evidence; at least 1.

        Returns
        -------
        DataFrame
            ``node``, ``evidence``, ``feature``, ``node_importance`` and ``evidence_importance``, see
            :meth:`feature_importance`; ``shared``, whether it is among the ``top`` for both; ``node_value`` and
            ``evidence_value``, in the features' own units where ``data`` has them (``x_raw``); ``difference``, evidence
            minus node in standard deviations of ``data.x`` over all nodes. For each evidence by descending
            ``node_importance``.

            A feature that matters for both, and in which they do not differ, is no reason for their different classes.
        """
        importance, top = self.feature_importance(), as_count("top", top)
        raw, x = feature_matrix(self.data), np.asarray(as_array("data.x", self.data.x), np.float32)
        names = np.array(feature_names(self.data, x.shape[1]), dtype=object)
        node, evidence = int(self.nodes[0]), self.nodes[1:]
        differences = attribute_differences(x, node, evidence)
        best = [_best(row, top) for row in importance]
        frames = []
        for place, other in enumerate(evidence, start=1):
            columns = _union(best[0], best[place], importance[0])
            frames.append(
                {
                    "node": np.full(len(columns), node),
                    "evidence": np.full(len(columns), other),
                    "feature": names[columns],
                    "node_importance": importance[0, columns],
                    "evidence_importance": importance[place, columns],
                    "shared": np.isin(columns, best[0]) & np.isin(columns, best[place]),
                    "node_value": raw[node, columns],
                    "evidence_value": raw[other, columns],
                    "difference": differences[place - 1, columns],
                }
            )
        return _joined(frames)

    def edges(self, top: int = 10) -> pd.DataFrame:
        """Return what the explanations say of edges.

        Parameters
        ----------
        top
            For each node of the evidence, the edges among the ``top`` most important ones for the node or for that
            evidence; at least 1.

        Returns
        -------
        DataFrame
            ``node``, ``evidence``, ``edge`` (its place in ``edge_index``), ``source``, ``target``, ``node_importance``
            and ``evidence_importance``, see :meth:`edge_importance`; ``shared``, whether the model reads from it for
            both. For each evidence by descending ``node_importance``.
        """
        importance, top = self.edge_importance(), as_count("top", top)
        ends = as_array("data.edge_index", self.data.edge_index)
        best = [_best(row, top) for row in importance]
        frames = []
        for place, other in enumerate(self.nodes[1:], start=1):
            edges = _union(best[0], best[place], importance[0])
            frames.append(
                {
                    "node": np.full(len(edges), self.nodes[0]),
                    "evidence": np.full(len(edges), other),
                    "edge": edges,
                    "source": ends[0, edges],
                    "target": ends[1, edges],
                    "node_importance": importance[0, edges],
                    "evidence_importance": importance[place, edges],
                    "shared": (importance[0, edges] > 0) & (importance[place, edges] > 0),
                }
            )
        return _joined(frames)

    def to_frame(self, top: int = 10) -> pd.DataFrame:
        """Return one line for each node of the evidence: how alike the explanations are, and what they leave open.

        Parameters
        ----------
        top
            How many features count as important, at least 1.

        Returns
        -------
        DataFrame
            The columns of :meth:`cfe_faiss.finder.LocalEvidence.to_frame`, and where there are masks of features:
            ``shared_features``, how many of the ``top`` features of the node are among those of the evidence, too;
            ``explained_difference``, the share of the squared difference of both (in standard deviations) that lies in
            the ``top`` features of the node, NaN where they do not differ. If the explanation told node and evidence
            apart, it would be near 1; features picked at random have ``top / d`` in the mean. Where there are masks of
            edges: ``shared_edges``, from how many edges the model reads for both.
        """
        frame = self.found.to_frame()
        top = as_count("top", top)
        node, evidence = int(self.nodes[0]), self.nodes[1:]
        squares = attribute_differences(np.asarray(as_array("data.x", self.data.x), np.float32), node, evidence) ** 2
        mask = self.explanations[0].get("node_mask")
        if mask is not None and mask.shape[1] == len(squares.T):
            best = [_best(row, top) for row in self.feature_importance()]
            frame["shared_features"] = [len(np.intersect1d(best[0], other)) for other in best[1:]]
            with np.errstate(invalid="ignore"):
                frame["explained_difference"] = squares[:, best[0]].sum(axis=1) / squares.sum(axis=1)
        if self.explanations[0].get("edge_mask") is not None:
            read = self.edge_importance() > 0
            frame["shared_edges"] = (read[1:] & read[0]).sum(axis=1)
        return frame

    def figure(self, top: int = 10) -> "Figure":
        """Draw the importance of features for the node and its evidence, and beside it their values.

        Parameters
        ----------
        top
            The features that are most important for the node, so many of them at most, at least 1.

        Returns
        -------
        matplotlib.figure.Figure
            Not bound to a window or backend; write it with ``figure.savefig("explained.png")``. Where there are masks
            of edges, a second row shows the neighbours of each node, with lines as wide as their edges are important.

        Raises
        ------
        ValueError
            If there are no masks of features.
        """
        from cfe_faiss.integrations.pyg.figure import draw

        return draw(self, as_count("top", top))

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
    """Explain a node and its evidence with one of PyG's explainers.

    An explanation as of ``GNNExplainer`` says which features and edges matter for one prediction. The evidence is
    almost the same node, treated differently. Side by side they show whether what is said to matter also tells the two
    apart.

    Parameters
    ----------
    explainer
        PyG's ``Explainer``, with ``GNNExplainer`` or another algorithm, that explains the predictions of a model.
    finder
        Made of the same graph and the same model.
    data
        The graph, PyG ``Data``. Used where present: ``feature_names``, ``x_raw``, ``class_names``, ``node_ids``.
    node
        Among the finder's searched nodes.
    k
        Evidence wanted, at least 1; all of them are explained.
    call_with
        What else the model takes by name, as the explainer is called: ``{"edge_weight": data.edge_weight}``.

    Returns
    -------
    ExplainedEvidence
        It takes 1 + k runs of the explainer. An algorithm that draws random numbers, as ``GNNExplainer`` does, draws
        others in each: call ``torch.manual_seed`` before to have the same again.

    Raises
    ------
    TypeError
        If an argument is of the wrong kind.
    ValueError
        If the node has no evidence, is not among the searched ones, the graph has another number of nodes than the
        finder, or the model predicts another class than the finder holds for one of the nodes.

    Examples
    --------
    >>> from torch_geometric.explain import Explainer, GNNExplainer
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
    ...     model_config={"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"},
    ... )
    >>> explained = explain_beside(explainer, EvidenceFinder.from_data(data, model), data, node=97, k=2)
    >>> list(explained.to_frame().columns)[-3:]
    ['shared_features', 'explained_difference', 'shared_edges']
    """
    if not isinstance(explainer, Explainer):
        raise TypeError(f"explainer must be an Explainer of PyG, got {type(explainer).__name__}")
    if not isinstance(finder, EvidenceFinder):
        raise TypeError(f"finder must be an EvidenceFinder, got {type(finder).__name__}")
    n = len(data.x)
    if n != len(finder.labels):
        raise ValueError(f"data must have the finder's {len(finder.labels)} nodes, got {n}")
    node = as_node("node", node, n)
    found = finder.local([node], k)
    evidence = found.evidence[0][found.evidence[0] >= 0]
    if len(evidence) == 0:
        raise ValueError(f"node must have evidence, got {node}: all searched nodes are predicted its class")
    explanations = []
    for one in [node, *evidence.tolist()]:
        explanation = explainer(data.x, data.edge_index, index=one, **(call_with or {}))
        predicted = int(explanation.target[one])
        if predicted != finder.labels[one]:
            raise ValueError(
                f"finder must hold the classes that the explainer's model predicts, got class {finder.labels[one]} for "
                f"node {one}, for which the model predicts {predicted}"
            )
        explanations.append(explanation)
    return ExplainedEvidence(found, tuple(explanations), data)


def _of_largest(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return each row divided by its largest value; a row of zeros as it is."""
    largest = rows.max(axis=1, keepdims=True, initial=0)
    return rows / np.where(largest > 0, largest, 1)


def _best(row: NDArray[np.float64], top: int) -> NDArray[np.int64]:
    """Return the places of the largest values, at most ``top`` and none that is 0; of equal ones the first."""
    order = np.argsort(-row, kind="stable")[:top]
    return order[row[order] > 0]


def _union(one: NDArray[np.int64], other: NDArray[np.int64], importance: NDArray[np.float64]) -> NDArray[np.int64]:
    both = np.union1d(one, other)
    return both[np.argsort(-importance[both], kind="stable")]


def _joined(tables: list[dict[str, NDArray[Any]]]) -> pd.DataFrame:
    return pd.DataFrame({name: np.concatenate([table[name] for table in tables]) for name in tables[0]})
