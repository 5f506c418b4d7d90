"""FairGNN: a node classifier that hides a sensitive attribute which few nodes disclose."""

import math
import os
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.checks import as_array, as_count, as_labels, as_number
from cfe_faiss.base.extras import extra
from cfe_faiss.data.call import seeded
from cfe_faiss.models import loop
from cfe_faiss.models.gnn import OnMatrix
from cfe_faiss.models.loop import TrainingReport

with extra("gnn"):
    import torch
    from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy
    from torch_geometric.nn.models import GCN, GraphSAGE


class FairGNN(torch.nn.Module):
    """The networks of FairGNN (Dai & Wang, WSDM 2021); as a module it is their classifier.

    Attributes
    ----------
    backbone
        A GCN: the nodes' representations h, (n, hidden).
    classifier
        Linear: logits of the classes from h.
    estimator
        A GraphSAGE or GCN: the logit of the sensitive attribute from features and graph.
    adversary
        Linear: the logit of the sensitive attribute from h.
    """

    def __init__(
        self, backbone: OnMatrix, estimator: OnMatrix, hidden: int, num_classes: int
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.estimator = estimator
        self.classifier = torch.nn.Linear(hidden, num_classes)
        self.adversary = torch.nn.Linear(hidden, 1)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        """Return logits of the classes, (n, number of classes)."""
        logits: torch.Tensor = self.classifier(self.backbone(x, edge_index))
        return logits


def fairgnn(
    data: Any,
    hidden: int = 16,
    num_layers: int = 2,
    dropout: float = 0.5,
    seed: int = 0,
    *,
    estimator: str = "sage",
) -> FairGNN:
    """Return an untrained FairGNN (Dai & Wang, WSDM 2021) with GCN as its backbone, for :func:`train_fair`, on the CPU.

    Parameters
    ----------
    data, hidden, num_layers, dropout, seed
        As for :func:`cfe_faiss.models.gcn`.
    estimator
        What estimates the sensitive attribute: "gcn", as in the paper, for graphs whose edges join nodes of the same
        attribute; or "sage", which does not average a node with its neighbours. On Bail, where edges say nothing of the
        attribute (52% join equal ones), a GCN that 200 nodes disclose it to is right for 55% of all nodes.

    Returns
    -------
    FairGNN
        Called as ``model(x, edge_index)``, it returns logits, (n, number of classes) float32.

    Raises
    ------
    TypeError, ValueError
        If an argument is of the wrong kind or out of its range.
    """
    if estimator not in ("gcn", "sage"):
        raise ValueError(f"estimator must be gcn or sage, got {estimator!r}")
    hidden, num_layers = as_count("hidden", hidden), as_count("num_layers", num_layers)
    dropout = as_number("dropout", dropout, 0, 1)
    d, num_classes = data.x.shape[1], int(data.y.max()) + 1
    of_attribute = {"num_layers": num_layers, "out_channels": 1, "dropout": dropout}
    with seeded(seed, torch.device("cpu")):
        backbone = OnMatrix(
            GCN(d, hidden, num_layers, dropout=dropout, normalize=False), normalised=True
        )
        if estimator == "gcn":
            guesses = OnMatrix(GCN(d, hidden, **of_attribute, normalize=False), normalised=True)
        else:
            guesses = OnMatrix(GraphSAGE(d, hidden, **of_attribute))
        return FairGNN(backbone, guesses, hidden, num_classes)


def train_fair(  # noqa: PLR0913
    model: FairGNN,
    data: Any,
    *,
    known: Any = 200,
    alpha: float = 8.0,
    beta: float = 0.1,
    epochs: int = 120,
    lr: float = 0.02,
    weight_decay: float = 5e-4,
    patience: int = 50,
    seed: int = 0,
    progress: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
) -> TrainingReport:
    """Train a FairGNN in place: to be right, and to keep what it says free of the sensitive attribute.

    The estimator learns the attribute from the few nodes that disclose it, and estimates it for all others. Classifier
    and estimator together make ``L_C + L_E + alpha * L_R - beta * L_A`` small, in turn with the adversary, which makes
    L_A small (Dai & Wang, WSDM 2021):

    - L_C: cross-entropy of the training nodes' classes;
    - L_E: cross-entropy of the disclosed attributes under the estimator;
    - L_R: absolute covariance, over all nodes, of attribute and predicted probability; for more than two classes its
      mean over the classes, which is the same for two;
    - L_A: cross-entropy of all nodes' attribute under the adversary, which sees the nodes' representations.

    In L_R and L_A the attribute is the disclosed one where there is one and else the estimated probability, as a
    constant: the estimator is not to err for the others' sake. Training stops early, and ends with the best weights, as
    in :func:`cfe_faiss.models.train`, by the loss ``L_C + alpha * L_R`` of the validation nodes, also with the
    estimated attribute. No attribute is read that was not disclosed.

    Parameters
    ----------
    model
        From :func:`fairgnn`.
    data
        As for :func:`cfe_faiss.models.train`, with ``sensitive``, (n,), 0 or 1.
    known
        The nodes that disclose their attribute: a mask, (n,) bool, or how many training nodes, at least 1, drawn at
        random from the seed.
    alpha, beta
        Weights of covariance and adversary, at least 0. More alpha: less parity difference, less accuracy.
    epochs, lr, weight_decay, patience, seed, progress, checkpoint
        As for :func:`cfe_faiss.models.train`.

    Returns
    -------
    TrainingReport
        What came out; ``val_loss`` is the loss by which training stopped.

    Raises
    ------
    TypeError, ValueError, OSError
        As :func:`cfe_faiss.models.train`, and where ``model`` is no FairGNN, ``known`` is not as described or holds no
        node, or a disclosed attribute is not 0 or 1.
    """
    if not isinstance(model, FairGNN):
        raise TypeError(f"model must be a FairGNN, got {type(model).__name__}")
    loop.check(model, data)
    alpha, beta = as_number("alpha", alpha, 0, math.inf), as_number("beta", beta, 0, math.inf)
    lr, weight_decay = (
        as_number("lr", lr, 0, math.inf),
        as_number("weight_decay", weight_decay, 0, math.inf),
    )
    disclosed = _disclosed(data, known, seed)
    adversary = torch.optim.Adam(model.adversary.parameters(), lr=lr, weight_decay=weight_decay)
    others = [
        *model.backbone.parameters(),
        *model.classifier.parameters(),
        *model.estimator.parameters(),
    ]
    networks = torch.optim.Adam(others, lr=lr, weight_decay=weight_decay)

    def step() -> None:
        h = model.backbone(data.x, data.edge_index)
        logits = model.classifier(h)
        guess = model.estimator(data.x, data.edge_index)[:, 0]
        sensitive = _sensitive(guess, disclosed)
        l_c = cross_entropy(logits[data.train_mask], data.y[data.train_mask])
        l_e = binary_cross_entropy_with_logits(guess[disclosed.mask], disclosed.values)
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
        sensitive = _sensitive(model.estimator(data.x, data.edge_index)[:, 0], disclosed)
        l_c = cross_entropy(logits[data.val_mask], data.y[data.val_mask])
        return float(l_c + alpha * _covariance(logits[data.val_mask], sensitive[data.val_mask]))

    settings = {
        "lr": lr,
        "weight_decay": weight_decay,
        "alpha": alpha,
        "beta": beta,
        **disclosed._asdict(),
    }
    training = loop.Training(model, data, [networks, adversary], step, validate, settings)
    return training.run(epochs, patience, seed, checkpoint, progress=progress)


class _Disclosed(NamedTuple):
    mask: torch.Tensor
    """(n,) bool"""
    values: torch.Tensor
    """Those nodes' sensitive attribute, float32, 0 or 1."""


def _disclosed(data: Any, known: Any, seed: int) -> _Disclosed:
    n = len(data.x)
    if getattr(data, "sensitive", None) is None:
        raise ValueError(f"data must have sensitive, got {data!r}")
    mask = _drawn(data, known, seed) if np.ndim(known) == 0 else as_array("known", known)
    if mask.dtype != np.bool_ or mask.shape != (n,):
        raise ValueError(
            f"known must be a number or bool of shape ({n},), got {mask.dtype} {mask.shape}"
        )
    if not mask.any():
        raise ValueError(f"known must hold at least one node, got none of {n}")
    values = as_labels("data.sensitive", data.sensitive, n)[mask]
    if values.max() > 1:
        raise ValueError(f"data.sensitive must be 0 or 1, got {values.max()}")
    device = data.x.device
    return _Disclosed(
        torch.tensor(mask, device=device), torch.tensor(values, dtype=data.x.dtype, device=device)
    )


def _drawn(data: Any, known: Any, seed: int) -> NDArray[np.bool_]:
    nodes = np.flatnonzero(as_array("train_mask", data.train_mask))
    count = as_count("known", known)
    if count > len(nodes):
        raise ValueError(
            f"known must be at most the number of training nodes, {len(nodes)}, got {count}"
        )
    mask = np.zeros(len(data.x), dtype=np.bool_)
    mask[np.random.default_rng(as_count("seed", seed, 0)).choice(nodes, count, replace=False)] = (
        True
    )
    return mask


def _sensitive(guess: torch.Tensor, disclosed: _Disclosed) -> torch.Tensor:
    """Return the share of attribute 1 for every node: what was disclosed, else the estimate, as a constant."""
    sensitive = guess.detach().sigmoid()
    sensitive[disclosed.mask] = disclosed.values
    return sensitive


def _covariance(logits: torch.Tensor, sensitive: torch.Tensor) -> torch.Tensor:
    """Return L_R: the absolute covariance of attribute and probability, averaged over the classes."""
    shares = logits.softmax(dim=1)
    products = (sensitive - sensitive.mean())[:, None] * (shares - shares.mean(dim=0))
    return products.mean(dim=0).abs().mean()
