"""One call of a model for its output: in evaluation mode, without gradients, and leaving no trace."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from cfe_faiss.base.extras import extra
from cfe_faiss.graph.node_types import is_heterogeneous, nodes_of
from cfe_faiss.models.call import call
from cfe_faiss.models.hetero import call_hetero
from cfe_faiss.models.rng import seeded

with extra("gnn"):
    import torch


def output_of(model: Callable[..., Any], data: Any, node_type: str | None = None) -> Any:
    """Return what a model gives for the nodes of ``data``, or of one of its node types, in one call.

    Raises
    ------
    TypeError
        If the model gives several things, or one that holds the logits with others.
    ValueError
        If ``data`` lacks features, edges or what else the model requires, has values of edges that it does not take, or
        the model gives nothing for the node type.
    """
    if getattr(nodes_of(data, node_type), "x", None) is None:
        of_type = "" if node_type is None else f" of node type {node_type!r}"
        raise ValueError(f"data must have x{of_type}, got {type(data).__name__}")
    if is_heterogeneous(data):
        output = call_hetero(model, data)
        if isinstance(output, Mapping):
            output = _of_type(output, node_type)
    else:
        if getattr(data, "edge_index", None) is None and getattr(data, "adj_t", None) is None:
            raise ValueError(f"data must have edge_index or adj_t, got {type(data).__name__}")
        output = call(model, data)
    _refuse_parts(output)
    return output


@contextmanager
def inference(model: Any, device: torch.device) -> Iterator[None]:
    """Let ``model`` be called inside in evaluation mode, without gradients and with random numbers from seed 0.

    Afterwards the mode of every part and the random state of the CPU and of ``device`` are as they were found.

    Raises
    ------
    TypeError
        If it cannot be called, or is a class.
    """
    if not callable(model):
        raise TypeError(f"model must be callable as model(x, edge_index), got {type(model).__name__}")
    if isinstance(model, type):
        raise TypeError(f"model must be a model, got the class {model.__name__}")
    with _evaluating(model), torch.no_grad(), seeded(0, device):
        yield


def _of_type(output: Mapping[Any, Any], node_type: str | None) -> Any:
    if output.get(node_type) is None:
        some = ", ".join(repr(key) for key, value in output.items() if value is not None)
        raise ValueError(f"the model's output must have the node type {node_type!r}, got {some or 'nothing'}")
    return output[node_type]


def _refuse_parts(output: Any) -> None:
    """Raise TypeError for what holds several things: which of them are the logits is for the user to say."""
    if isinstance(output, Mapping):
        parts = [f"{key}={_kind(value)}" for key, value in output.items()]
    elif isinstance(output, tuple | list) and any(_is_whole(part, isinstance(output, tuple)) for part in output):
        parts = [_kind(part) for part in output]
    elif dataclasses.is_dataclass(output) and not isinstance(output, type):
        parts = [f"{one.name}={_kind(getattr(output, one.name))}" for one in dataclasses.fields(output)]
    elif hasattr(output, "logits"):
        parts = [f"logits={_kind(output.logits)}"]
    else:
        return
    raise TypeError(
        f"the model's output must be logits of shape (n, C) or classes of shape (n,), as a tensor or an array, got "
        f"{type(output).__name__} of {', '.join(parts[:8])}: hand in a function that returns one of them "
        f"(lambda data: model(data.x, data.edge_index)[0], for example)"
    )


def _is_whole(part: Any, of_tuple: bool) -> bool:
    """Return whether a part is an output of its own, and not a class or a row of numbers of a list."""
    return part is None or isinstance(part, Mapping) or getattr(part, "ndim", 0) >= (1 if of_tuple else 2)


def _kind(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return type(value).__name__ if shape is None else f"{type(value).__name__} {tuple(shape)}"


@contextmanager
def _evaluating(model: object) -> Iterator[None]:
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
