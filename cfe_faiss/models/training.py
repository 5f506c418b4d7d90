"""Training of a node classifier on one graph."""

import math
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from tqdm import tqdm

from cfe_faiss.checks import as_count, as_number
from cfe_faiss.extras import extra
from cfe_faiss.models.rng import seeded

with extra("gnn"):
    import torch
    from torch.nn.functional import cross_entropy


@dataclass(frozen=True)
class TrainingReport:
    """How a training went; the accuracies are those of the best weights, in [0, 1], NaN for a mask without nodes."""

    epochs: int
    """Epochs run."""
    best_epoch: int
    """The epoch, from 1, whose weights the model has now."""
    val_loss: float
    """The validation loss of that epoch, the smallest of all."""
    train_accuracy: float
    val_accuracy: float
    test_accuracy: float


def train(
    model: torch.nn.Module,
    data: Any,
    *,
    epochs: int = 200,
    lr: float = 0.01,
    weight_decay: float = 5e-4,
    patience: int = 50,
    class_weights: bool = False,
    seed: int = 0,
    progress: bool = False,
) -> TrainingReport:
    """Train ``model`` in place on the whole graph at once: Adam on the cross-entropy of the training nodes.

    Training stops early when the loss of the validation nodes has not fallen for ``patience`` epochs. The model ends in
    evaluation mode with the weights of the epoch where that loss was smallest, also when it is interrupted.

    Parameters
    ----------
    model
        Called as ``model(x, edge_index)``, it returns logits of shape (n, C), with C larger than every class in ``y``.
    data
        The graph, PyG ``Data`` with ``x``, ``edge_index``, ``y``, ``train_mask``, ``val_mask`` and ``test_mask``, on
        the device of the model.
    epochs
        At most so many, at least 1.
    lr, weight_decay
        Learning rate and L2 penalty of Adam, at least 0.
    patience
        Epochs without a better validation loss before training stops, at least 1.
    class_weights
        Whether every class counts alike in the loss, however few its training nodes are, instead of every node.
    seed
        Of what is random in training (dropout), at least 0. On the CPU, the same first weights and the same seed give
        the same result. The global random state stays as it is.
    progress
        Whether to show a progress bar on standard error; it is quiet when that is not a terminal.

    Returns
    -------
    TrainingReport
        What came out.

    Raises
    ------
    TypeError
        If an argument is of the wrong kind.
    ValueError
        If a number is out of its range, ``data`` lacks something, no node is there to train or validate on, the logits
        have another shape, or the loss becomes NaN or infinite.

    Examples
    --------
    >>> from cfe_faiss.datasets import load
    >>> from cfe_faiss.models import gcn
    >>> data = load("patients")
    >>> report = train(gcn(data), data, epochs=50)
    >>> report.epochs, report.test_accuracy > 0.9
    (50, True)
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    for name in ("x", "edge_index", "y", "train_mask", "val_mask", "test_mask"):
        if getattr(data, name, None) is None:
            raise ValueError(f"data must have {name}, got {data!r}")
    for name in ("train_mask", "val_mask"):
        if not data[name].any():
            raise ValueError(f"{name} must hold at least one node, got none of {len(data.x)}")
    lr = as_number("lr", lr, 0, math.inf)
    weight_decay = as_number("weight_decay", weight_decay, 0, math.inf)
    rounds = range(1, as_count("epochs", epochs) + 1)
    patience = as_count("patience", patience)
    weight = _class_weights(data) if class_weights else None
    optimizer = torch.optim.Adam(model.parameters(), lr=lr, weight_decay=weight_decay)

    best_loss, best_epoch, best_weights = math.inf, 0, deepcopy(model.state_dict())
    bar = tqdm(rounds, desc="Training", unit="epoch", leave=False, disable=None if progress else True)
    try:
        with seeded(seed, data.x.device), bar:
            for epoch in bar:
                model.train()
                optimizer.zero_grad()
                loss = _loss(_logits(model, data), data, data.train_mask, weight)
                torch.autograd.backward(loss)
                optimizer.step()
                model.eval()
                with torch.no_grad():
                    val_loss = float(_loss(_logits(model, data), data, data.val_mask, weight))
                if not math.isfinite(val_loss):
                    raise ValueError(
                        f"the validation loss is {val_loss} after epoch {epoch}: check x, or lower lr ({lr:g})"
                    )
                if val_loss < best_loss:
                    best_loss, best_epoch, best_weights = val_loss, epoch, deepcopy(model.state_dict())
                elif epoch - best_epoch >= patience:
                    break
    finally:
        model.load_state_dict(best_weights)
        model.eval()
        optimizer.zero_grad()
    with torch.no_grad(), seeded(seed, data.x.device):
        right = _logits(model, data).argmax(dim=1) == data.y
    accuracies = (float(right[data[name]].double().mean()) for name in ("train_mask", "val_mask", "test_mask"))
    return TrainingReport(epoch, best_epoch, best_loss, *accuracies)


def _logits(model: torch.nn.Module, data: Any) -> torch.Tensor:
    logits = model(data.x, data.edge_index)
    classes = int(data.y.max()) + 1
    if (
        not isinstance(logits, torch.Tensor)
        or logits.ndim != 2
        or len(logits) != len(data.x)
        or logits.shape[1] < classes
    ):
        got = tuple(logits.shape) if isinstance(logits, torch.Tensor) else type(logits).__name__
        raise ValueError(f"model must return logits of shape ({len(data.x)}, C) with C >= {classes}, got {got}")
    return logits


def _loss(logits: torch.Tensor, data: Any, mask: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
    if weight is None:
        return cross_entropy(logits[mask], data.y[mask])
    # A class may be absent from the logits' last columns, never the other way round.
    padded = torch.nn.functional.pad(weight, (0, logits.shape[1] - len(weight)))
    return cross_entropy(logits[mask], data.y[mask], weight=padded)


def _class_weights(data: Any) -> torch.Tensor:
    """Return a weight per class, inverse to its number of training nodes; 0 for a class that has none there."""
    counts = torch.bincount(data.y[data.train_mask], minlength=int(data.y.max()) + 1)
    present = counts > 0
    weight = counts.sum() / (present.sum() * counts.clamp(min=1))
    return torch.where(present, weight, 0)
