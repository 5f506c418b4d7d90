"""Evidence as an algorithm for PyG's ``Explainer``."""

import logging
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.attributes.constraints import Constraints
from cfe_faiss.base.checks import as_count, as_matrix
from cfe_faiss.base.extras import extra
from cfe_faiss.finder import EvidenceFinder

with extra("gnn"):
    import torch
    from torch_geometric.explain import Explanation
    from torch_geometric.explain.algorithm import ExplainerAlgorithm
    from torch_geometric.explain.config import ExplanationType, MaskType, ModelMode, ModelTaskLevel


class EvidenceExplainer(ExplainerAlgorithm):
    """A node's counterfactual evidence, as an algorithm for ``torch_geometric.explain.Explainer``.

    The explanation of a node v carries ``evidence``, (k,) int64, the most similar nodes that the model treats
    differently (fewer than k if no more exist), ``similarity``, (k,) float32, and their predicted classes,
    ``evidence_label``, (k,) int64. The values of its ``node_mask`` are in [0, 1]:

    - ``node_mask_type="attributes"``, (n, d): row v holds the difference between v and its evidence in each attribute,
      in standard deviations over all nodes, averaged over the evidence, and scaled to 1 for the largest; all other rows
      are 0.
    - ``"common_attributes"``, (1, d): that row alone.
    - ``"object"``, (n, 1): 1 for v, the similarity for its evidence (0 for a negative one), 0 for all other nodes.

    The mask describes v and its evidence. An attribute in which they differ need not be one that the model uses. To
    compare the two, see :func:`explain_beside`. There is no ``edge_mask``.

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
        If an argument is not as described. When it explains: if the index is not one of the finder's searched nodes,
        the graph has another number of nodes than the finder, or the model predicts another class for the node.

    Examples
    --------
    >>> from torch_geometric.explain import Explainer
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
    ...     model_config={"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"},
    ... )
    >>> explanation = explainer(data.x, data.edge_index, index=97)
    >>> explanation.evidence.shape, explanation.node_mask.shape
    (torch.Size([3]), torch.Size([569, 30]))
    """

    def __init__(self, finder: EvidenceFinder, k: int = 5, where: Constraints | None = None) -> None:
        super().__init__()
        self.finder = check_finder(finder)
        self.k = as_count("k", k)
        self.where = where

    def __repr__(self) -> str:
        return f"EvidenceExplainer({self.finder!r}, k={self.k})"

    def supports(self) -> bool:
        """Return whether the settings ask for masks of nodes that explain the predictions of a node classifier."""
        reasons = {
            "explains a model's predictions only": self.explainer_config.explanation_type == ExplanationType.model,
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
        explanation = Explanation(node_mask=None if mask is None else torch.from_numpy(mask).to(x.device))
        explanation.evidence = torch.from_numpy(evidence)
        explanation.similarity = torch.from_numpy(similarity)
        explanation.evidence_label = torch.from_numpy(self.finder.labels[evidence].astype(np.int64))
        return explanation

    def _node(self, index: int | torch.Tensor | None, target: torch.Tensor, n: int) -> int:
        nodes = [] if index is None else torch.as_tensor(index).view(-1).tolist()
        if len(nodes) != 1:
            raise ValueError(f"index must be one node, got {'None' if index is None else len(nodes)}")
        if n != len(self.finder.labels):
            raise ValueError(f"x must have a row for each of the finder's {len(self.finder.labels)} nodes, got {n}")
        check_class(self.finder, int(nodes[0]), target)
        return int(nodes[0])

    def _mask(
        self, x: NDArray[np.float32], node: int, evidence: NDArray[np.int64], similarity: NDArray[np.float32]
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


def check_finder(finder: Any) -> EvidenceFinder:
    """Return a finder; TypeError for another object."""
    if not isinstance(finder, EvidenceFinder):
        raise TypeError(f"finder must be an EvidenceFinder, got {type(finder).__name__}")
    return finder


def check_class(finder: EvidenceFinder, node: int, target: torch.Tensor) -> None:
    """Raise ValueError if the model predicts another class for a node than the finder holds."""
    known, predicted = int(finder.labels[node]), int(target[node])
    if known != predicted:
        raise ValueError(
            f"finder must hold the classes that the model predicts, got class {known} for node {node}, for which the "
            f"model predicts {predicted}"
        )


def attribute_differences(x: NDArray[np.float32], node: int, evidence: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return evidence minus node, in standard deviations of each column, (k, d); 0 in a constant column."""
    spread = x.std(axis=0, dtype=np.float64)
    differences: NDArray[np.float64] = x[evidence].astype(np.float64) - x[node]
    differences /= np.where(spread > 0, spread, 1)
    return differences
