"""Training of node classifiers: epochs with early stopping, weights and checkpoints in files.

Also their accuracy, and its differences between the two values of a sensitive attribute.
"""

import hashlib
import math
import os
import pickle
import zipfile
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cfe_faiss.base.checks import (
    UNKNOWN,
    Array,
    Bools,
    Int32s,
    as_array,
    as_count,
    as_labels,
    as_number,
    check_type,
    to_host,
)
from cfe_faiss.base.extras import extra
from cfe_faiss.base.text import summary
from cfe_faiss.base.threads import native_progress
from cfe_faiss.data.call import arguments, call, seeded
from cfe_faiss.data.classes import check_names
from cfe_faiss.data.predict import predictions_of
from cfe_faiss.files.outputs import MARK, check_outputs, new_file

with extra("gnn"):
    import torch
    from scipy.special import softmax
    from sklearn.metrics import accuracy_score, f1_score, roc_auc_score
    from torch.nn.functional import cross_entropy, pad

_EPOCHS_PER_CHECKPOINT = 10
_SAFE_TORCH = (2, 10)
_MASKS = ("train_mask", "val_mask", "test_mask")
_PARTS = ("x", "edge_index", "y", *_MASKS)


@dataclass(frozen=True)
class TrainingReport:
    """Report of a training.

    Accuracies belong to the best weights, in [0, 1], and count nodes with a true class.

    NaN without such nodes.
    """

    epochs: int
    """Number of epochs."""
    best_epoch: int
    """Epoch, from 1, of the weights that the model has now."""
    val_loss: float
    """Validation loss of that epoch, the smallest of all."""
    train_accuracy: float
    val_accuracy: float
    test_accuracy: float

    __repr__ = summary


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
    """Train ``model`` in place with full batches: Adam on the cross-entropy of the training nodes.

    Training stops early if the loss of the validation nodes has not fallen for ``patience`` epochs.
    At the end, also after an interrupt, the model is in evaluation mode with the weights of the
    smallest validation loss.

    Parameters
    ----------
    model
        Called as ``model(x, edge_index)`` (or with more, see :func:`cfe_faiss.models.predict`), it
        returns logits of shape (n, C), with C larger than every class in ``y``.
    data
        The graph, PyG ``Data`` with ``x``, ``edge_index``, ``y`` (integers; -1 only among test and
        unused nodes), ``train_mask``, ``val_mask`` and ``test_mask``, on the device of the model.
    epochs
        Largest number of epochs, at least 1.
    lr, weight_decay
        Learning rate and L2 penalty of Adam, at least 0.
    patience
        Epochs without a better validation loss before training stops, at least 1.
    class_weights
        Whether each class has the same weight in the loss, instead of each node.
    seed
        Seed of dropout, at least 0. On the CPU, equal initial weights and seeds give equal results.
        The global random state does not change.
    progress
        Whether to show a progress bar on standard error, if that is a terminal.
    checkpoint
        A file for the state of training, written atomically every 10 epochs and at the end. If it
        exists, training resumes from it and ends (on the CPU) with the same weights and report as
        without an interruption; a completed training is not repeated. It holds tensors and numbers
        only.

    Returns
    -------
    TrainingReport
        Epochs, validation loss and accuracies.

    Raises
    ------
    TypeError
        If an argument is of the wrong kind.
    ValueError
        If a number is out of its range, ``data`` lacks a value, there is no training or validation
        node, the logits have another shape, the loss becomes NaN or infinite, or ``checkpoint`` is
        not a checkpoint of the same model, initial weights, graph and arguments.
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
    check(model, data)
    lr = as_number("lr", lr, 0, math.inf)
    weight_decay = as_number("weight_decay", weight_decay, 0, math.inf)
    weight = None
    if class_weights:  # inverse to the number of training nodes; 0 for a class without any
        counts = torch.bincount(data.y[data.train_mask], minlength=int(data.y.max()) + 1)
        present = counts > 0
        share = counts.sum() / (present.sum() * counts.clamp(min=1))
        weight = torch.where(present, share, 0)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr, weight_decay=weight_decay)

    def loss(mask: torch.Tensor) -> torch.Tensor:
        logits = logits_of(model, data)
        # The logits may have columns for classes that do not occur in y.
        padded = None if weight is None else pad(weight, (0, logits.shape[1] - len(weight)))
        return cross_entropy(logits[mask], data.y[mask], weight=padded)

    def step() -> None:
        optimizer.zero_grad()
        torch.autograd.backward(loss(data.train_mask))
        optimizer.step()

    settings = {"lr": lr, "weight_decay": weight_decay, "class_weights": bool(class_weights)}
    training = Training(
        model, data, [optimizer], step, lambda: float(loss(data.val_mask)), settings
    )
    return training.run(epochs, patience, seed, checkpoint, progress=progress)


def check(model: torch.nn.Module, data: Any) -> None:
    """Raise TypeError or ValueError unless ``model`` is a module and ``data`` its graph."""
    check_type("model must be a torch.nn.Module", model, torch.nn.Module)
    for name in _PARTS:
        if getattr(data, name, None) is None:
            raise ValueError(f"data must have {name}, got {data!r}")
    y = as_labels("data.y", data.y, len(data.x), unknown=True)
    for name in _MASKS[:2]:
        if not data[name].any():
            raise ValueError(f"{name} must hold at least one node, got none of {len(data.x)}")
        unknown = np.flatnonzero((y == UNKNOWN) & np.asarray(to_host(data[name]), bool))
        if len(unknown):
            raise ValueError(
                f"{name} must hold nodes with a true class only, got y = -1 for node {unknown[0]}"
            )
    arguments(model, data)


def logits_of(model: torch.nn.Module, data: Any) -> torch.Tensor:
    """Return the model's logits of every node, (n, C), two for one of class 1.

    ValueError for another shape.
    """
    logits = call(model, data)
    n = len(data.x)
    classes = int(data.y.max()) + 1
    if isinstance(logits, torch.Tensor) and logits.shape == (n, 1):
        logits = torch.cat([torch.zeros_like(logits), logits], dim=1)
    shape = tuple(logits.shape) if isinstance(logits, torch.Tensor) else type(logits).__name__
    if (
        not isinstance(logits, torch.Tensor)
        or len(shape) != 2
        or len(logits) != n
        or logits.shape[1] < classes
    ):
        raise ValueError(
            f"model must return logits of shape ({n}, C) with C >= {classes}, got {shape}"
        )
    return logits


@dataclass(frozen=True)
class Training:
    """A checked model and the function for one epoch.

    Attributes
    ----------
    model, data
        As in :func:`train`.
    optimizers
        Optimizers whose state belongs to the checkpoint.
    step
        Trains for one epoch. The model is in training mode.
    validate
        Returns the loss to minimise. The model is in evaluation mode, without gradients.
    settings
        Everything else that determines the result. Checkpoints with other settings are refused.
    """

    model: torch.nn.Module
    data: Any
    optimizers: Sequence[torch.optim.Optimizer]
    step: Callable[[], None]
    validate: Callable[[], float]
    settings: dict[str, Any]

    def run(
        self,
        epochs: int,
        patience: int,
        seed: int,
        checkpoint: str | os.PathLike[str] | None,
        *,
        progress: bool,
    ) -> TrainingReport:
        """Train the model in place, and leave it in evaluation mode with its best weights.

        See :func:`train`.
        """
        model = self.model
        device = self.data.x.device
        limits = {
            "epochs": as_count("epochs", epochs),
            "patience": as_count("patience", patience),
            "seed": seed,
        }
        file = (
            None
            if checkpoint is None
            else _Checkpoint(Path(checkpoint), self, self.settings | limits)
        )
        state = _State(0, 0, math.inf, deepcopy(model.state_dict()))
        title = "Training" if progress else None
        try:
            with seeded(seed, device), native_progress(title, epochs, "epoch") as report:
                if file is not None and file.path.exists():
                    state = file.resume()
                while not state.ends(epochs, patience):
                    state = self._next(state)
                    if file is not None and (
                        state.ends(epochs, patience) or state.epoch % _EPOCHS_PER_CHECKPOINT == 0
                    ):
                        file.write(state)
                    if report is not None:
                        report(state.epoch)
        finally:
            model.load_state_dict(state.best_weights)
            model.eval()
            for optimizer in self.optimizers:
                optimizer.zero_grad()
        with torch.no_grad(), seeded(seed, device):
            right = logits_of(model, self.data).argmax(dim=1) == self.data.y
        has_class = self.data.y >= 0
        accuracies = (float(right[self.data[name] & has_class].double().mean()) for name in _MASKS)
        return TrainingReport(state.epoch, state.best_epoch, state.best_loss, *accuracies)

    def _next(self, state: "_State") -> "_State":
        """Train for one epoch and return the new state."""
        epoch = state.epoch + 1
        self.model.train()
        self.step()
        self.model.eval()
        with torch.no_grad():
            loss = self.validate()
        if not math.isfinite(loss):
            raise ValueError(
                f"the validation loss is {loss} after epoch {epoch}: check x, or lower lr"
            )
        if loss < state.best_loss:
            return _State(epoch, epoch, loss, deepcopy(self.model.state_dict()))
        return replace(state, epoch=epoch)


@dataclass(frozen=True)
class _State:
    """State of a training after an epoch."""

    epoch: int
    best_epoch: int
    best_loss: float
    best_weights: dict[str, torch.Tensor]

    def ends(self, epochs: int, patience: int) -> bool:
        """Return whether this is the last epoch."""
        return self.epoch >= epochs or self.epoch - self.best_epoch >= patience


class _Checkpoint:
    """Checkpoint file of a training.

    Create it before the first step: the initial weights identify the training.
    """

    def __init__(self, path: Path, training: Training, settings: dict[str, Any]) -> None:
        self.path = path
        self._is_read = False
        self._training = training
        gpu = training.data.x.device
        self._gpus = [gpu] if gpu.type == "cuda" else []
        digest = hashlib.sha256()
        parts = (
            training.model.state_dict() | {name: training.data[name] for name in _PARTS} | settings
        )
        for name, value in parts.items():
            if isinstance(value, torch.Tensor):
                digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
                digest.update(
                    value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
                )
            else:
                digest.update(f"{name} {value!r}".encode())
        self._identity = digest.hexdigest()

    def write(self, state: _State) -> None:
        """Write everything that the next epoch depends on."""
        content = {
            "training": self._identity,
            "progress": vars(state),
            "weights": self._training.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self._training.optimizers],
            "random": [torch.get_rng_state(), *map(torch.cuda.get_rng_state, self._gpus)],
        }
        _write(self.path, content, overwrite=self._is_read)

    def resume(self) -> _State:
        """Load model, optimizers and random state, and return the state of the training."""
        content = _read(self.path)
        if content.get("training") != self._identity:
            raise ValueError(
                f"checkpoint {self.path} must come from the same training (model, first weights, "
                "graph and arguments), got that of another one: remove it, or name another file"
            )
        self._training.model.load_state_dict(content["weights"])
        for optimizer, state in zip(self._training.optimizers, content["optimizers"], strict=True):
            optimizer.load_state_dict(state)
        torch.set_rng_state(content["random"][0])
        for gpu, state in zip(self._gpus, content["random"][1:], strict=True):
            torch.cuda.set_rng_state(state, gpu)
        self._is_read = True
        return _State(**content["progress"])


def save(model: torch.nn.Module, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write the weights of ``model`` to a file atomically.

    Parameters
    ----------
    model
        Any module.
    path
        Path of the file. A file of this function is replaced.
    overwrite
        Whether to replace a file that this package has not written.

    Raises
    ------
    OSError
        If the file cannot be written.
    ValueError
        If the file is memory-mapped; or if this package has not written it, and ``overwrite`` is
        False.
    """
    check_outputs([Path(path)], overwrite=overwrite)
    _write(path, model.state_dict(), overwrite=overwrite)


def load(model: torch.nn.Module, path: str | os.PathLike[str]) -> None:
    """Read the weights of :func:`save` into a model of the same kind, on its device.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it is not such a file, or holds weights of another kind of model. The model does not
        change then.
    ImportError
        If torch is older than 2.10: such versions run code from files.
    """
    weights = _read(path)
    shapes = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    given_shapes = {name: tuple(getattr(value, "shape", ())) for name, value in weights.items()}
    if given_shapes != shapes:
        name, expected = next(iter(shapes.items() - given_shapes.items()), (None, None))
        detail = (
            f"{name} {given_shapes.get(name)}, expected {expected}"
            if name
            else f"also {sorted(given_shapes.keys() - shapes)}"
        )
        raise ValueError(
            f"{Path(path)} must hold the weights of a model of this kind, got {detail}"
        )
    model.load_state_dict(weights)


def _write(path: str | os.PathLike[str], content: Any, *, overwrite: bool) -> None:
    with new_file(Path(path), overwrite=overwrite) as file:
        torch.save(content, file)
        with zipfile.ZipFile(file, "a") as archive:
            archive.comment = MARK.encode()


def _read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a file of :func:`_write` onto the CPU, without running code from it.

    Earlier versions of torch run code despite ``weights_only=True``: CVE-2025-32434 and
    CVE-2026-24747.
    """
    if tuple(map(int, torch.__version__.split(".")[:2])) < _SAFE_TORCH:
        raise ImportError(
            f'torch {torch.__version__} loads files unsafely: pip install "cfe-faiss[gnn]"',
            name="torch",
        )
    with Path(path).open("rb") as file:
        try:
            content = torch.load(file, map_location="cpu", weights_only=True)
        except (
            pickle.UnpicklingError,
            RuntimeError,
            EOFError,
            KeyError,
            ValueError,
            OSError,
        ) as error:
            raise ValueError(
                f"{Path(path)} must be a file that this package saved: {error}"
            ) from error
    if not isinstance(content, dict):
        raise ValueError(
            f"{Path(path)} must be a file that this package saved, got {type(content).__name__}"
        )
    return content


# --- evaluation -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Evaluation:
    """Result of :func:`evaluate`. Measures that are undefined for these nodes are NaN."""

    n: int
    """Number of evaluated nodes. All measures refer to these."""
    accuracy: float
    """Share of correct predictions, in [0, 1]."""
    f1: float
    """Two classes: F1 of class 1.

    More: mean F1 of the classes that occur in the truth or in the predictions.
    """
    auc: float
    """Area under the ROC curve. More than two classes: mean over one-vs-rest curves."""
    group_sizes: tuple[int, ...]
    """Numbers of nodes whose sensitive attribute is 0, and 1; empty without such an attribute."""
    positive_group_sizes: tuple[int, ...]
    """Numbers of nodes of both groups whose true class is 1, for ``opportunity_difference``."""
    parity_difference: float
    """Statistical parity: ``|P(ŷ=1 | s=0) - P(ŷ=1 | s=1)|``, in [0, 1]."""
    opportunity_difference: float
    """Equal opportunity: ``|P(ŷ=1 | y=1, s=0) - P(ŷ=1 | y=1, s=1)|``, in [0, 1]."""

    __repr__ = summary


def evaluate(model: Any, data: Any, mask: Any = None, *, features: Any = None) -> Evaluation:
    """Compare the predictions of a model with the true classes.

    Parameters
    ----------
    model
        A model for :func:`cfe_faiss.models.predict`, a fitted scikit-learn estimator, or the
        predictions for every node: logits or probabilities, (n, C), or classes, (n,), as numbers or
        texts.
    data
        The graph, PyG ``Data`` with ``y``, and with ``sensitive`` (n,), 0 or 1, for the two
        differences; -1 is unknown.
    mask
        The nodes to evaluate, (n,) bool; default: ``data.test_mask``. Those without a true class
        are left out.
    features
        Attributes of the nodes, for estimators that were fitted on a DataFrame.

    Returns
    -------
    Evaluation
        ``auc`` is NaN for predictions without scores, or if a class in ``y`` has no node, or all
        nodes, in the mask. Both differences are NaN without a sensitive attribute, for more than
        two classes (none is favourable), and for a group without nodes.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, or the mask holds no node.

    Notes
    -----
    Statistical parity: Dwork et al., ITCS 2012. Equal opportunity: Hardt, Price & Srebro, NeurIPS
    2016. Both for class 1, as Dai & Wang (WSDM 2021) report them.

    Examples
    --------
    >>> from cfe_faiss.datasets import load
    >>> data = load("patients")
    >>> evaluation = evaluate(data.y, data)
    >>> evaluation.n, evaluation.accuracy, evaluation.group_sizes
    (142, 1.0, ())
    """
    n = len(data.y)
    mask_values = as_array("mask", data.test_mask if mask is None else mask)
    if mask_values.shape != (n,) or not np.isin(mask_values, (0, 1)).all():
        raise ValueError(
            f"mask must be bool of shape ({n},), or 0 and 1, got {mask_values.dtype} {mask_values.shape}"
        )
    if not mask_values.any():
        raise ValueError(f"mask must hold at least one node, got none of {n}")
    true = as_labels("data.y", data.y, n, unknown=True)
    nodes = np.flatnonzero(mask_values.astype(np.bool_) & (true != UNKNOWN))
    if not len(nodes):
        raise ValueError("mask must hold a node with a true class, got none")
    predictions = predictions_of(model, data, features)
    check_names(predictions, data)
    scores = predictions.scores
    highest = int(max(true.max(), predictions.labels.max()))
    binary = (highest + 1 if scores is None else scores.shape[1]) <= 2
    truth = true[nodes]
    predicted = predictions.labels[nodes]
    groups: tuple[Bools, ...] = ()
    if getattr(data, "sensitive", None) is not None:
        sensitive = as_labels("data.sensitive", data.sensitive, n, unknown=True)[nodes]
        if sensitive.max() > 1:
            raise ValueError(f"data.sensitive must be 0 or 1, got {sensitive.max()}")
        groups = sensitive == 0, sensitive == 1
    positive = tuple(group & (truth == 1) for group in groups)
    return Evaluation(
        n=len(truth),
        accuracy=float(accuracy_score(truth, predicted)),
        f1=float(
            f1_score(truth, predicted, average="binary" if binary else "macro", zero_division=0)
        ),
        auc=math.nan if scores is None else _auc(truth, scores[nodes]),
        group_sizes=tuple(int(group.sum()) for group in groups),
        positive_group_sizes=tuple(int(group.sum()) for group in positive),
        parity_difference=_difference(predicted, groups) if binary else math.nan,
        opportunity_difference=_difference(predicted, positive) if binary else math.nan,
    )


def _difference(predicted: Int32s, groups: tuple[Bools, ...]) -> float:
    """Return the absolute difference of the two groups' shares of class 1."""
    if not groups or not all(group.any() for group in groups):
        return math.nan
    shares = [float((predicted[group] == 1).mean()) for group in groups]
    return abs(shares[0] - shares[1])


def _auc(truth: Int32s, scores: Array) -> float:
    """Return the mean area under the one-vs-rest curves; with two classes that of class 1."""
    scores = scores.astype(np.float64)
    are_shares = (scores >= 0).all() and np.allclose(scores.sum(axis=1), 1, atol=1e-4)
    # Nodes are ranked by differences of logits, so a single column of logits is not enough.
    shares = scores if are_shares else softmax(scores, axis=1)
    classes = (1,) if shares.shape[1] == 2 else range(shares.shape[1])
    areas = [
        float(roc_auc_score(truth == c, shares[:, c]))
        if 0 < (truth == c).sum() < len(truth)
        else math.nan
        for c in classes
    ]
    return float(np.mean(areas))
