"""Training of a node classifier on one graph."""

import math
import os
from typing import Any

from cfe_faiss.base.checks import as_number
from cfe_faiss.base.extras import extra
from cfe_faiss.models import loop
from cfe_faiss.models.loop import TrainingReport

with extra("gnn"):
    import torch
    from torch.nn.functional import cross_entropy


def train(  # noqa: PLR0913
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
    checkpoint: str | os.PathLike[str] | None = None,
) -> TrainingReport:
    """Train ``model`` in place on the whole graph at once: Adam on the cross-entropy of the training nodes.

    Training stops early when the loss of the validation nodes has not fallen for ``patience`` epochs. The model ends in
    evaluation mode with the weights of the epoch where that loss was smallest, also when it is interrupted.

    Parameters
    ----------
    model
        Called as ``model(x, edge_index)`` (or with more, see :func:`cfe_faiss.models.predict`), it returns logits of
        shape (n, C), with C larger than every class in ``y``.
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
    checkpoint
        A file that the state of training is written to every 10 epochs and at the end, all of it or none. Where it
        exists, training goes on from it, and ends (on the CPU) with the same weights and report as if it had never been
        interrupted; a training that had ended is not run again. It holds tensors and numbers only.

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
        have another shape, the loss becomes NaN or infinite, or ``checkpoint`` is no checkpoint, or that of another
        model, other first weights, another graph or other arguments.
    OSError
        If the checkpoint cannot be read or written.

    Examples
    --------
    >>> from cfe_faiss.datasets import load
    >>> from cfe_faiss.models import gcn
    >>> data = load("patients")
    >>> report = train(gcn(data), data, epochs=50)
    >>> report.epochs, report.test_accuracy > 0.9
    (50, True)
    """
    loop.check(model, data)
    lr = as_number("lr", lr, 0, math.inf)
    weight_decay = as_number("weight_decay", weight_decay, 0, math.inf)
    weight = _class_weights(data) if class_weights else None
    optimizer = torch.optim.Adam(model.parameters(), lr=lr, weight_decay=weight_decay)

    def step() -> None:
        optimizer.zero_grad()
        torch.autograd.backward(_loss(loop.logits_of(model, data), data, data.train_mask, weight))
        optimizer.step()

    def validate() -> float:
        return float(_loss(loop.logits_of(model, data), data, data.val_mask, weight))

    settings = {"lr": lr, "weight_decay": weight_decay, "class_weights": bool(class_weights)}
    training = loop.Training(model, data, [optimizer], step, validate, settings)
    return loop.run(training, loop.Schedule(epochs, patience, seed, progress, checkpoint))


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
