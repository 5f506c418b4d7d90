"""CF-GNNExplainer: which edges to delete so that a GNN changes its prediction for one node.

Lucic, ter Hoeve, Tolomei, de Rijke & Silvestri, "CF-GNNExplainer: counterfactual explanations for graph neural
networks", AISTATS 2022, section 4 and algorithm 1. Each undirected edge of the node's neighbourhood has a parameter p;
the edge stays while sigmoid(p) >= 1/2. Gradients go through the sigmoid, the prediction is checked with the binary
edges, and the smallest set that changes it is kept. Of the two terms of the loss, that of the prediction rules until
the prediction changes, and that of the distance (edges deleted) from then on; each step is scaled so that the most
influential edge moves by the learning rate. This departs from the article, which adds the terms up with a weight
between them that would have to be tuned for each graph; the sum was not tried here.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import nll_loss
from torch_geometric.nn.conv.gcn_conv import gcn_norm

EPOCHS, RATE, MOMENTUM = 200, 0.1, 0.9


@dataclass(frozen=True)
class Neighbourhood:
    """What an L-layer GNN with GCN's normalisation sees from one node, as a graph of its own.

    Attributes
    ----------
    nodes
        Numbers in the whole graph, (m,); the node itself is at ``center``.
    edge_index
        (2, e), both directions; all edges of all nodes within L steps, so that their degrees are right.
    pair
        For each directed edge the number of its undirected edge among those that may be deleted (both ends within L
        steps), -1 for the others; (e,).
    """

    nodes: torch.Tensor
    center: int
    edge_index: torch.Tensor
    pair: torch.Tensor


def neighbourhood(edge_index: torch.Tensor, n: int, node: int, layers: int) -> Neighbourhood:
    source, target = edge_index
    near = torch.zeros(n, dtype=torch.bool)
    near[node] = True
    for _ in range(layers):
        near[source[near[target]]] = True
    kept = near[source] | near[target]
    edges = edge_index[:, kept]
    nodes, flat = torch.unique(
        torch.cat([edges.flatten(), torch.tensor([node])]), return_inverse=True
    )
    local = flat[:-1].view(2, -1)
    inner = near[edges].all(dim=0) & (edges[0] != edges[1])
    low, high = edges.min(dim=0).values, edges.max(dim=0).values
    pair = torch.full((edges.shape[1],), -1)
    pair[inner] = torch.unique(low[inner] * n + high[inner], return_inverse=True)[1]
    return Neighbourhood(nodes, int(flat[-1]), local, pair)


def explain(
    model: Any, data: Any, node: int, layers: int = 2, epochs: int = EPOCHS
) -> NDArray[np.int64] | None:
    """Return the undirected edges to delete, (count, 2) node numbers, or None if no deletion was found.

    ``model`` is of :func:`cfe_faiss.models.gcn`: its ``network`` takes GCN's normalised edges and their weights.
    """
    around = neighbourhood(data.edge_index, len(data.x), node, layers)
    x, count = data.x[around.nodes], int(around.pair.max()) + 1 if len(around.pair) else 0
    if count <= 0:
        return None
    fixed = around.pair < 0

    def log_probabilities(keep: torch.Tensor) -> torch.Tensor:
        weight = torch.where(fixed, torch.ones(()), keep[around.pair.clamp(min=0)])
        edges, normalised = gcn_norm(around.edge_index, weight, len(x))
        return model.network(x, edges, normalised)[around.center].log_softmax(dim=0)

    p = torch.nn.Parameter(torch.ones(count))
    optimizer = torch.optim.SGD([p], lr=RATE, momentum=MOMENTUM, nesterov=True)
    with torch.no_grad():
        before = log_probabilities(torch.ones(count)).argmax()
    best: torch.Tensor | None = None
    for _ in range(epochs):
        with torch.no_grad():
            deleted = p < 0
            changed = log_probabilities((~deleted).float()).argmax() != before
        if changed and (best is None or deleted.sum() < best.sum()):
            best = deleted.clone()
        optimizer.zero_grad()
        soft = p.sigmoid()
        loss = (
            (1 - soft).sum() if changed else -nll_loss(log_probabilities(soft)[None], before[None])
        )
        loss.backward()
        p.grad /= p.grad.abs().max().clamp(min=1e-12)
        optimizer.step()
    if best is None:
        return None
    first = best[around.pair.clamp(min=0)] & ~fixed & (around.edge_index[0] < around.edge_index[1])
    return around.nodes[around.edge_index[:, first]].T.numpy().astype(np.int64)


def without(edge_index: torch.Tensor, n: int, deleted: NDArray[np.int64]) -> torch.Tensor:
    """Return the edges without some undirected ones, in both directions."""
    low, high = edge_index.min(dim=0).values, edge_index.max(dim=0).values
    gone = torch.from_numpy(deleted.min(axis=1) * n + deleted.max(axis=1))
    return edge_index[:, ~torch.isin(low * n + high, gone)]
