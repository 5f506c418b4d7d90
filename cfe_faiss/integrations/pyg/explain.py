"""Evidence for PyG's ``Explainer``, and explanations of a node and its evidence."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.attributes.constraints import Constraints
from cfe_faiss.attributes.table import feature_names
from cfe_faiss.base.checks import as_array, as_count, as_matrix, check_type
from cfe_faiss.base.extras import extra
from cfe_faiss.finder import EvidenceFinder, LocalEvidence
from cfe_faiss.plot import as_node, feature_matrix

with extra("gnn"):
    import pandas as pd
    import torch
    from torch_geometric.explain import Explainer, Explanation
    from torch_geometric.explain.algorithm import ExplainerAlgorithm
    from torch_geometric.explain.config import ExplanationType, MaskType, ModelMode, ModelTaskLevel

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class EvidenceExplainer(ExplainerAlgorithm):
    """A node's counterfactual evidence, as an algorithm for ``torch_geometric.explain.Explainer``.

    The explanation of a node v carries ``evidence``, (k,) int64, the most similar nodes that the
    model treats differently (fewer than k if no more exist), ``similarity``, (k,) float32, and
    their predicted classes, ``evidence_label``, (k,) int64. The values of its ``node_mask`` are in
    [0, 1]:

    - ``node_mask_type="attributes"``, (n, d): row v holds the difference between v and its evidence
      in each attribute, in standard deviations over all nodes, averaged over the evidence, and
      scaled to 1 for the largest; all other rows are 0.
    - ``"common_attributes"``, (1, d): that row alone.
    - ``"object"``, (n, 1): 1 for v, the similarity for its evidence (0 for a negative one), 0 for
      all other nodes.

    The mask describes v and its evidence. An attribute in which they differ need not be one that
    the model uses. To compare the two, see :func:`explain_beside`. There is no ``edge_mask``.

    Parameters
    ----------
    finder
        Finder over the same graph and the same model.
    k
        Number of evidence nodes, >= 1.
    where
        :class:`cfe_faiss.Constraints` that a node and its evidence must meet.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described. When it explains: if the index is not one of the
        finder's searched nodes, the graph has another number of nodes than the finder, or the model
        predicts another class for the node.

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
        _check_nodes(finder)
        self.finder = finder
        self.k = as_count("k", k)
        self.where = where

    def __repr__(self) -> str:
        return f"EvidenceExplainer({self.finder!r}, k={self.k})"

    def supports(self) -> bool:
        """Return whether the settings ask for node masks of a classifier of nodes."""
        reasons = {
            "explains a model's predictions only": self.explainer_config.explanation_type
            == ExplanationType.model,
            "explains classes of nodes only": self.model_config.task_level == ModelTaskLevel.node
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
        """Return the explanation of one node; called by ``Explainer``."""
        features = as_matrix("x", x)
        node = self._node(index, target, len(features))
        found = self.finder.local([node], self.k, where=self.where)
        evidence = found.evidence[0][found.evidence[0] >= 0]
        similarity = found.similarity[0][: len(evidence)]
        mask = self._mask(features, node, evidence, similarity)
        explanation = Explanation(
            node_mask=None if mask is None else torch.from_numpy(mask).to(x.device)
        )
        explanation.evidence = torch.from_numpy(evidence)
        explanation.similarity = torch.from_numpy(similarity)
        explanation.evidence_label = torch.from_numpy(self.finder.labels[evidence].astype(np.int64))
        return explanation

    def _node(self, index: int | torch.Tensor | None, target: torch.Tensor, n: int) -> int:
        nodes = [] if index is None else torch.as_tensor(index).view(-1).tolist()
        if len(nodes) != 1:
            raise ValueError(
                f"index must be one node, got {'None' if index is None else len(nodes)}"
            )
        if n != len(self.finder.labels):
            raise ValueError(
                f"x must have a row for each of the finder's {len(self.finder.labels)} nodes, got "
                f"{n}"
            )
        check_class(self.finder, int(nodes[0]), target)
        return int(nodes[0])

    def _mask(
        self,
        x: NDArray[np.float32],
        node: int,
        evidence: NDArray[np.int64],
        similarity: NDArray[np.float32],
    ) -> NDArray[np.float32] | None:
        kind = self.explainer_config.node_mask_type
        if kind == MaskType.object:
            mask = np.zeros((len(x), 1), np.float32)
            mask[evidence, 0] = np.maximum(similarity, 0)
            mask[node] = 1
            return mask
        differences = attribute_differences(x, node, evidence)
        row = np.abs(differences).mean(axis=0) if len(evidence) else np.zeros(x.shape[1])
        row = row / (row.max(initial=0) or 1)
        if kind == MaskType.common_attributes:
            return row[None].astype(np.float32)
        mask = np.zeros(x.shape, np.float32)
        mask[node] = row
        return mask


def _check_nodes(finder: Any) -> None:
    """Raise an error unless ``finder`` is a finder whose rows are no links and no graphs."""
    check_type("finder must be an EvidenceFinder", finder, EvidenceFinder)
    if finder.unit != "rows":
        raise ValueError(
            f"finder must be of nodes (EvidenceFinder.from_data), whose features an explainer masks, "
            f"got one of {finder.unit}: finder.case(id) compares their attributes"
        )


def check_class(finder: EvidenceFinder, node: int, target: torch.Tensor) -> None:
    """Raise ValueError if the model predicts another class for a node than the finder holds."""
    known = int(finder.labels[node])
    predicted = int(target[node])
    if known != predicted:
        raise ValueError(
            f"finder must hold the classes that the model predicts, got class {known} for node "
            f"{node}, for which the model predicts {predicted}"
        )


def attribute_differences(
    x: NDArray[np.float32], node: int, evidence: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return evidence minus node, in standard deviations of each column, (k, d).

    0 in a constant column.
    """
    spread = x.std(axis=0, dtype=np.float64)
    differences: NDArray[np.float64] = x[evidence].astype(np.float64) - x[node]
    differences /= np.where(spread > 0, spread, 1)
    return differences


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class ExplainedEvidence:
    """Explanations of a node and of its evidence; made by :func:`explain_beside`.

    Attributes
    ----------
    found
        The evidence of the node, from the finder.
    explanations
        PyG's explanation of the node, then of each node of its evidence, best first.
    data
        The graph.
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
        nodes = f"node {self.nodes[0]}, {len(self.nodes) - 1} evidence"
        return f"ExplainedEvidence({nodes}, {' and '.join(masks)})"

    @property
    def nodes(self) -> NDArray[np.int64]:
        """The node, then its evidence, (1 + k,) int64."""
        evidence = self.found.evidence[0]
        return np.concatenate([self.found.nodes, evidence[evidence >= 0]])

    def feature_importance(self) -> NDArray[np.float64]:
        """Return the importance of each feature for each of ``nodes``, (1 + k, d).

        It is the sum of the explanation's ``node_mask`` over all nodes, as in PyG's
        ``visualize_feature_importance``, divided by the largest sum of the node.

        Raises
        ------
        ValueError
            If the explainer was not asked for masks of features (``node_mask_type="attributes"`` or
            ``"common_attributes"``).
        """
        masks = [as_array("node_mask", self._mask(one, "node_mask")) for one in self.explanations]
        d = feature_matrix(self.data).shape[1]
        if masks[0].shape[1] != d:
            raise ValueError(
                f"node_mask must have a column for each of {d} features, got shape {masks[0].shape}"
            )
        sums = np.array([mask.sum(axis=0, dtype=np.float64) for mask in masks])
        return _of_largest(sums)

    def edge_importance(self) -> NDArray[np.float64]:
        """Return the importance of edges for ``nodes``, (1 + k, E), over the largest of the node.

        It is 0 for edges that the model does not read for that node.

        Raises
        ------
        ValueError
            If the explainer was not asked for masks of edges (``edge_mask_type="object"``).
        """
        return _of_largest(
            np.array(
                [as_array("edge_mask", self._mask(one, "edge_mask")) for one in self.explanations]
            )
        )

    def features(self, top: int = 10) -> pd.DataFrame:
        """Return the importance of features for node and evidence, and how these differ.

        Parameters
        ----------
        top
            For each node of the evidence, the features among the ``top`` most important ones for
            the node or for that evidence; at least 1.

        Returns
        -------
        DataFrame
            ``node``, ``evidence``, ``feature``, ``node_importance`` and ``evidence_importance``,
            see :meth:`feature_importance`; ``shared``, whether it is among the ``top`` for both;
            ``node_value`` and ``evidence_value``, in original units if ``data`` has them
            (``x_raw``); ``difference``, evidence minus node in standard deviations of ``data.x``
            over all nodes. For each evidence by descending ``node_importance``.

            A feature that is important for both, and equal for both, does not explain their
            different classes.
        """
        raw = feature_matrix(self.data)
        names = np.array(feature_names(self.data, raw.shape[1]), dtype=object)
        node = int(self.nodes[0])
        evidence = self.nodes[1:]
        differences = self._differences()

        def columns(
            importance: NDArray[np.float64], place: int, chosen: NDArray[np.int64]
        ) -> dict[str, Any]:
            both = [np.isin(chosen, _best(importance[one], top)) for one in (0, place)]
            return {
                "feature": names[chosen],
                **_importances(importance, place, chosen),
                "shared": both[0] & both[1],
                "node_value": raw[node, chosen],
                "evidence_value": raw[evidence[place - 1], chosen],
                "difference": differences[place - 1, chosen],
            }

        return self._frame(self.feature_importance(), as_count("top", top), columns)

    def edges(self, top: int = 10) -> pd.DataFrame:
        """Return the importance of edges for node and evidence.

        Parameters
        ----------
        top
            For each node of the evidence, the edges among the ``top`` most important ones for the
            node or for that evidence; at least 1.

        Returns
        -------
        DataFrame
            ``node``, ``evidence``, ``edge`` (its position in ``edge_index``), ``source``,
            ``target``, ``node_importance`` and ``evidence_importance``, see
            :meth:`edge_importance`; ``shared``, whether the model reads the edge for both. For each
            evidence by descending ``node_importance``.
        """
        ends = as_array("data.edge_index", self.data.edge_index)

        def columns(
            importance: NDArray[np.float64], place: int, chosen: NDArray[np.int64]
        ) -> dict[str, Any]:
            return {
                "edge": chosen,
                "source": ends[0, chosen],
                "target": ends[1, chosen],
                **_importances(importance, place, chosen),
                "shared": (importance[[0, place]][:, chosen] > 0).all(axis=0),
            }

        return self._frame(self.edge_importance(), as_count("top", top), columns)

    def _frame(
        self, importance: NDArray[np.float64], top: int, columns: Callable[..., dict[str, Any]]
    ) -> pd.DataFrame:
        """Return the columns of the ``top`` features or edges of the node or an evidence."""
        tables = []
        for place, other in enumerate(self.nodes[1:], start=1):
            chosen = np.union1d(_best(importance[0], top), _best(importance[place], top))
            chosen = chosen[np.argsort(-importance[0, chosen], kind="stable")]
            ends = {
                name: np.full(len(chosen), one)
                for name, one in (("node", self.nodes[0]), ("evidence", other))
            }
            tables.append(pd.DataFrame(ends | columns(importance, place, chosen)))
        return pd.concat(tables, ignore_index=True)

    def to_frame(self, top: int = 10) -> pd.DataFrame:
        """Return a row per node of the evidence: similarity of explanations, and what is left.

        Parameters
        ----------
        top
            Number of features that count as important, >= 1.

        Returns
        -------
        DataFrame
            The columns of :meth:`cfe_faiss.finder.LocalEvidence.to_frame`. With masks of features
            also ``shared_features``, the number of features among the ``top`` of both node and
            evidence; and ``explained_difference``, the share of their squared difference (in
            standard deviations) that the ``top`` features of the node hold, NaN if they are equal.
            An explanation that distinguishes node and evidence has a share near 1; features chosen
            at random have ``top / d`` on average. With masks of edges also ``shared_edges``, the
            number of edges that the model reads for both.
        """
        frame = self.found.to_frame()
        top = as_count("top", top)
        squares = self._differences() ** 2
        mask = self.explanations[0].get("node_mask")
        if mask is not None and mask.shape[1] == len(squares.T):
            best = [_best(row, top) for row in self.feature_importance()]
            frame["shared_features"] = [len(np.intersect1d(best[0], other)) for other in best[1:]]
            with np.errstate(invalid="ignore"):
                shares = squares[:, best[0]].sum(axis=1) / squares.sum(axis=1)
            frame["explained_difference"] = shares
        if self.explanations[0].get("edge_mask") is not None:
            read = self.edge_importance() > 0
            frame["shared_edges"] = (read[1:] & read[0]).sum(axis=1)
        return frame

    def figure(self, top: int = 10) -> "Figure":
        """Draw the importance of features for the node and its evidence, with their values.

        Parameters
        ----------
        top
            Number of the most important features of the node to draw, >= 1.

        Returns
        -------
        matplotlib.figure.Figure
            Not bound to a window or backend; write it with ``figure.savefig("explained.png")``.
            With masks of edges, a second row shows the neighbours of each node; the width of a line
            is the importance of its edge.

        Raises
        ------
        ValueError
            If there are no masks of features.
        """
        from cfe_faiss.integrations.pyg.figure import draw

        return draw(self, as_count("top", top))

    def _differences(self) -> NDArray[np.float64]:
        x = np.asarray(as_array("data.x", self.data.x), np.float32)
        return attribute_differences(x, int(self.nodes[0]), self.nodes[1:])

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

    An explanation, for example of ``GNNExplainer``, names the features and edges that matter for
    one prediction. The evidence is a very similar node that is treated differently. The comparison
    shows whether the features named also distinguish the two.

    Parameters
    ----------
    explainer
        PyG's ``Explainer`` of the predictions of a model, with ``GNNExplainer`` or the like.
    finder
        Finder over the same graph and the same model.
    data
        PyG ``Data``. Used if present: ``feature_names``, ``x_raw``, ``class_names``, ``node_ids``.
    node
        Among the finder's searched nodes.
    k
        Number of evidence nodes, >= 1; all of them are explained.
    call_with
        Further keyword arguments for the explainer, and so for the model:
        ``{"edge_weight": data.edge_weight}``.

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
        If the node has no evidence, is not among the searched ones, the graph has another number of
        nodes than the finder, or the model predicts another class than the finder holds for one of
        the nodes.

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
    n = len(data.x)
    _check_nodes(finder)
    if n != len(finder.labels):
        raise ValueError(f"data must have the finder's {len(finder.labels)} nodes, got {n}")
    node = as_node("node", node, n)
    found = finder.local([node], k)
    evidence = found.evidence[0][found.evidence[0] >= 0]
    if len(evidence) == 0:
        raise ValueError(
            f"node must have evidence, got {node}: all searched nodes are predicted its class"
        )
    explanations = []
    for one in [node, *evidence.tolist()]:
        explanation = explainer(data.x, data.edge_index, index=one, **(call_with or {}))
        check_class(finder, one, explanation.target)
        explanations.append(explanation)
    return ExplainedEvidence(found, tuple(explanations), data)


def _of_largest(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return each row divided by its largest value; a row of zeros stays zero."""
    largest = rows.max(axis=1, keepdims=True, initial=0)
    return rows / np.where(largest > 0, largest, 1)


def _best(row: NDArray[np.float64], top: int) -> NDArray[np.int64]:
    """Return the positions of the ``top`` largest values, without zeros.

    Of equal values the first.
    """
    order = np.argsort(-row, kind="stable")[:top]
    return order[row[order] > 0]


def _importances(
    importance: NDArray[np.float64], place: int, chosen: NDArray[np.int64]
) -> dict[str, Any]:
    return {
        "node_importance": importance[0, chosen],
        "evidence_importance": importance[place, chosen],
    }
