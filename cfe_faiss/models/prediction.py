"""The class that a model predicts for each node."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.checks import as_array, as_labels
from cfe_faiss.extras import extra
from cfe_faiss.models.rng import seeded

with extra("gnn"):
    import torch


def predict(model: Callable[..., Any], data: Any) -> NDArray[np.int64]:
    """Return the class that ``model`` predicts for every node of ``data``.

    A module runs in evaluation mode and without gradients, and is left as it was found: the mode of every part and the
    gradients, and with them the global random state. A model that draws random numbers draws the same in every call.

    Parameters
    ----------
    model
        A ``torch.nn.Module`` or any other callable, called once as ``model(data.x, data.edge_index)``. It returns
        logits or probabilities of shape (n, C), C at least 2, or integer classes of shape (n,), as a tensor or an
        array. A plain function that wraps a module must see to that module's mode itself.
    data
        The graph, PyG ``Data``, on the device of the model.

    Returns
    -------
    ndarray
        Classes, (n,) int64; of equal logits the smaller class.

    Raises
    ------
    TypeError
        If the model is not callable, or its output is not of numbers.
    ValueError
        If ``data`` has no ``x`` or ``edge_index``, or the output has another shape, NaN, or a negative class.

    Examples
    --------
    >>> from cfe_faiss.datasets import load
    >>> predict(lambda x, edge_index: x[:, :2], load("patients")).shape
    (569,)
    """
    return as_classes(outputs(model, data), len(data.x))


def outputs(model: Callable[..., Any], data: Any) -> NDArray[Any]:
    """Return what ``model`` says of every node of ``data``, as :func:`predict` asks it."""
    if not callable(model):
        raise TypeError(f"model must be callable as model(x, edge_index), got {type(model).__name__}")
    for name in ("x", "edge_index"):
        if getattr(data, name, None) is None:
            raise ValueError(f"data must have {name}, got {data!r}")
    with evaluating(model), torch.no_grad(), seeded(0, data.x.device):
        output = model(data.x, data.edge_index)
    if isinstance(output, torch.Tensor) and output.is_floating_point():
        output = output.float()  # NumPy knows no bfloat16.
    return as_array("the model's output", output)


def as_classes(values: NDArray[Any], n: int) -> NDArray[np.int64]:
    """Return the class of each of n nodes, from a model's output."""
    if values.shape == (n,) and values.dtype.kind in "iu":
        return as_labels("the model's output", values, n).astype(np.int64)
    if values.ndim != 2 or values.shape[0] != n or values.shape[1] < 2:
        raise ValueError(
            f"the model's output must be logits of shape ({n}, C) with C >= 2 or integer classes of shape ({n},), "
            f"got shape {values.shape}, dtype {values.dtype}"
        )
    if np.isnan(values).any():
        raise ValueError(
            f"the model's output must not be NaN, got NaN for node {int(np.isnan(values).any(1).argmax())}"
        )
    classes: NDArray[np.int64] = values.argmax(axis=1)
    return classes


@contextmanager
def evaluating(model: object) -> Iterator[None]:
    """Put a module into evaluation mode, and afterwards every part of it back into the mode that this part was in."""
    parts = list(model.modules()) if isinstance(model, torch.nn.Module) else []
    modes = [part.training for part in parts]
    try:
        for part in parts[:1]:
            part.eval()
        yield
    finally:
        for part, mode in zip(parts, modes, strict=True):
            part.training = mode
