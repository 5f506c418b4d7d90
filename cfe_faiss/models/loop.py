"""The epochs of a training: early stopping, the best weights, and going on after an interruption."""

import math
import os
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tqdm import tqdm

from cfe_faiss.base.checks import as_count
from cfe_faiss.base.extras import extra
from cfe_faiss.base.text import summary
from cfe_faiss.models import checkpoint as files
from cfe_faiss.models.call import arguments, call
from cfe_faiss.models.rng import random_state, seeded, set_random_state

with extra("gnn"):
    import torch

_EPOCHS_PER_CHECKPOINT = 10


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

    __repr__ = summary


def check(model: torch.nn.Module, data: Any) -> None:
    """Raise TypeError or ValueError where ``model`` is no module, or ``data`` not a graph to train it on."""
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    for name in ("x", "edge_index", "y", "train_mask", "val_mask", "test_mask"):
        if getattr(data, name, None) is None:
            raise ValueError(f"data must have {name}, got {data!r}")
    for name in ("train_mask", "val_mask"):
        if not data[name].any():
            raise ValueError(f"{name} must hold at least one node, got none of {len(data.x)}")
    arguments(model, data)


@dataclass(frozen=True)
class Training:
    """A checked model, and how one epoch trains it.

    Attributes
    ----------
    model, data
        As in :func:`cfe_faiss.models.train`.
    optimizers
        Whose state belongs into the checkpoint.
    step
        Trains for one epoch; the model is in training mode.
    validate
        Returns the loss to make small; the model is in evaluation mode, and there are no gradients.
    settings
        All that the result follows from, beside the schedule: a checkpoint made with other settings is refused.
    """

    model: torch.nn.Module
    data: Any
    optimizers: Sequence[torch.optim.Optimizer]
    step: Callable[[], None]
    validate: Callable[[], float]
    settings: dict[str, Any]


@dataclass(frozen=True)
class Schedule:
    """How long a training goes on, and what is kept and shown of it; as in :func:`cfe_faiss.models.train`."""

    epochs: int
    patience: int
    seed: int
    progress: bool
    checkpoint: str | os.PathLike[str] | None


def run(training: Training, schedule: Schedule) -> TrainingReport:
    """Train a model in place, and leave it in evaluation mode with its best weights."""
    model, data, seed = training.model, training.data, schedule.seed
    epochs, patience = as_count("epochs", schedule.epochs), as_count("patience", schedule.patience)
    settings = {**training.settings, "epochs": epochs, "patience": patience, "seed": seed}
    file = None if schedule.checkpoint is None else _Checkpoint(schedule.checkpoint, training, settings)
    now = _Progress(0, 0, math.inf, deepcopy(model.state_dict()))
    try:
        with seeded(seed, data.x.device):
            if file is not None and file.path.exists():
                now = file.resume()
            ended = now.epoch - now.best_epoch >= patience
            for epoch in _shown(range(now.epoch + 1, 1 + (now.epoch if ended else epochs)), epochs, schedule.progress):
                model.train()
                training.step()
                model.eval()
                with torch.no_grad():
                    loss = training.validate()
                if not math.isfinite(loss):
                    raise ValueError(f"the validation loss is {loss} after epoch {epoch}: check x, or lower lr")
                if loss < now.best_loss:
                    now = _Progress(epoch, epoch, loss, deepcopy(model.state_dict()))
                now = replace(now, epoch=epoch)
                ended = epoch == epochs or epoch - now.best_epoch >= patience
                if file is not None and (ended or epoch % _EPOCHS_PER_CHECKPOINT == 0):
                    file.keep(now)
                if ended:
                    break
    finally:
        model.load_state_dict(now.best_weights)
        model.eval()
        for optimizer in training.optimizers:
            optimizer.zero_grad()
    return _report(model, data, now, seed)


@dataclass(frozen=True)
class _Progress:
    """Where a training stands after an epoch."""

    epoch: int
    best_epoch: int
    best_loss: float
    best_weights: dict[str, torch.Tensor]


class _Checkpoint:
    """The file that a training goes on from; to be made before the training's first step."""

    def __init__(self, path: str | os.PathLike[str], training: Training, settings: dict[str, Any]) -> None:
        self.path, self._is_read = Path(path), False
        self._model = training.model
        self._optimizers = training.optimizers
        self._device = training.data.x.device
        self._training = files.fingerprint(training.model, training.data, settings)

    def keep(self, now: _Progress) -> None:
        """Write all that the next epoch depends on."""
        content = {
            "training": self._training,
            "progress": vars(now),
            "weights": self._model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self._optimizers],
            "random": random_state(self._device),
        }
        files.write(self.path, content, overwrite=self._is_read)

    def resume(self) -> _Progress:
        """Bring model, optimizers and random numbers to where the file has them."""
        content = files.read(self.path)
        if content.get("training") != self._training:
            raise ValueError(
                f"checkpoint {self.path} must come from the same training (model, first weights, graph and arguments), "
                "got that of another one: remove it, or name another file"
            )
        self._model.load_state_dict(content["weights"])
        for optimizer, state in zip(self._optimizers, content["optimizers"], strict=True):
            optimizer.load_state_dict(state)
        set_random_state(self._device, content["random"])
        self._is_read = True
        return _Progress(**content["progress"])


def _shown(rounds: range, epochs: int, progress: bool) -> Iterable[int]:
    quiet = None if progress else True
    return tqdm(
        rounds, desc="Training", unit="epoch", leave=False, initial=rounds.start - 1, total=epochs, disable=quiet
    )


def _report(model: torch.nn.Module, data: Any, now: _Progress, seed: int) -> TrainingReport:
    with torch.no_grad(), seeded(seed, data.x.device):
        right = logits_of(model, data).argmax(dim=1) == data.y
    accuracies = (float(right[data[name]].double().mean()) for name in ("train_mask", "val_mask", "test_mask"))
    return TrainingReport(now.epoch, now.best_epoch, now.best_loss, *accuracies)


def logits_of(model: torch.nn.Module, data: Any) -> torch.Tensor:
    """Return the model's logits of every node, (n, C); ValueError where they are of another shape."""
    logits = call(model, data)
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
