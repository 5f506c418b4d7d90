"""FairGNN (Dai & Wang, WSDM 2021): a node classifier that hides a sensitive attribute which few nodes disclose."""

from typing import Any

import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy
from torch_geometric.nn.models import GCN, GraphSAGE

from cfe_faiss.data.call import seeded
from cfe_faiss.models import loop
from cfe_faiss.models.gnn import OnMatrix
from cfe_faiss.models.loop import TrainingReport


class FairGNN(torch.nn.Module):
    """The networks of FairGNN; as a module it is their classifier, on the nodes' representations by a GCN.

    The estimator of the attribute is a GraphSAGE, not the article's GCN, which averages a node with its neighbours: on
    Bail, where edges say nothing of the attribute (52% join equal ones), a GCN that 200 nodes disclose it to is right
    for 55% of all nodes.
    """

    def __init__(self, d: int, classes: int, hidden: int = 16, layers: int = 2) -> None:
        super().__init__()
        gcn = GCN(d, hidden, layers, dropout=0.5, normalize=False)
        self.backbone = OnMatrix(gcn, normalised=True)
        self.estimator = OnMatrix(GraphSAGE(d, hidden, layers, out_channels=1, dropout=0.5))
        self.classifier = torch.nn.Linear(hidden, classes)
        self.adversary = torch.nn.Linear(hidden, 1)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        """Return logits of the classes, (n, number of classes)."""
        logits: torch.Tensor = self.classifier(self.backbone(x, edge_index))
        return logits


def fairgnn(data: Any, seed: int = 0) -> FairGNN:
    """Return an untrained FairGNN for a graph."""
    with seeded(seed, torch.device("cpu")):
        return FairGNN(data.x.shape[1], int(data.y.max()) + 1)


def train_fair(
    model: FairGNN,
    data: Any,
    *,
    known: int = 200,
    alpha: float = 8.0,
    epochs: int = 120,
    seed: int = 0,
) -> TrainingReport:
    """Train a FairGNN in place: to be right, and to keep what it says free of the sensitive attribute.

    The estimator learns the attribute from ``known`` training nodes that disclose it, and estimates it for all others.
    Classifier and estimator together make ``L_C + L_E + alpha * L_R - beta * L_A`` small, in turn with the adversary,
    which makes L_A small:

    - L_C: cross-entropy of the training nodes' classes;
    - L_E: cross-entropy of the disclosed attributes under the estimator;
    - L_R: absolute covariance, over all nodes, of attribute and predicted probability; for more than two classes its
      mean over the classes, which is the same for two;
    - L_A: cross-entropy of all nodes' attribute under the adversary, which sees the nodes' representations.

    In L_R and L_A the attribute is the disclosed one where there is one and else the estimated probability, as a
    constant: the estimator is not to err for the others' sake. Training stops early, and ends with the best weights, by
    the loss ``L_C + alpha * L_R`` of the validation nodes, also with the estimated attribute.
    """
    beta, settings = 0.1, {"lr": 0.02, "weight_decay": 5e-4}
    training_nodes = np.flatnonzero(data.train_mask)
    disclosed = torch.zeros(len(data.x), dtype=torch.bool)
    disclosed[np.random.default_rng(seed).choice(training_nodes, known, replace=False)] = True
    values = data.sensitive[disclosed].to(data.x.dtype)
    adversary = torch.optim.Adam(model.adversary.parameters(), **settings)
    others = (model.backbone, model.classifier, model.estimator)
    networks = torch.optim.Adam([p for part in others for p in part.parameters()], **settings)

    def attribute(guess: torch.Tensor) -> torch.Tensor:
        shares = guess.detach().sigmoid()
        shares[disclosed] = values
        return shares

    def step() -> None:
        h = model.backbone(data.x, data.edge_index)
        logits = model.classifier(h)
        guess = model.estimator(data.x, data.edge_index)[:, 0]
        sensitive = attribute(guess)
        l_c = cross_entropy(logits[data.train_mask], data.y[data.train_mask])
        l_e = binary_cross_entropy_with_logits(guess[disclosed], values)
        l_a = binary_cross_entropy_with_logits(model.adversary(h)[:, 0], sensitive)
        networks.zero_grad()
        torch.autograd.backward(l_c + l_e + alpha * _covariance(logits, sensitive) - beta * l_a)
        networks.step()
        adversary.zero_grad()
        l_a = binary_cross_entropy_with_logits(model.adversary(h.detach())[:, 0], sensitive)
        torch.autograd.backward(l_a)
        adversary.step()

    def validate() -> float:
        logits = loop.logits_of(model, data)
        sensitive = attribute(model.estimator(data.x, data.edge_index)[:, 0])
        l_c = cross_entropy(logits[data.val_mask], data.y[data.val_mask])
        return float(l_c + alpha * _covariance(logits[data.val_mask], sensitive[data.val_mask]))

    training = loop.Training(model, data, [networks, adversary], step, validate, {})
    return training.run(epochs, 50, seed, None, progress=False)


def _covariance(logits: torch.Tensor, sensitive: torch.Tensor) -> torch.Tensor:
    """Return L_R: the absolute covariance of attribute and probability, averaged over the classes."""
    shares = logits.softmax(dim=1)
    products = (sensitive - sensitive.mean())[:, None] * (shares - shares.mean(dim=0))
    return products.mean(dim=0).abs().mean()
