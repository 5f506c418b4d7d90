"""One call of a model for its output: in evaluation mode, without gradients, and without side effects."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Any

from cfe_faiss.base.arrays import Array
from cfe_faiss.base.checks import as_array
from cfe_faiss.base.extras import extra
from cfe_faiss.graph.metapath import is_heterogeneous, nodes_of
from cfe_faiss.models.call import call, seeded

with extra("gnn"):
    import torch


def call_once(model: Callable[..., Any], data: Any, node_type: str | None = None) -> Any:
    """Return :func:`output_of` in evaluation mode, without gradients, and without side effects."""
    x = getattr(nodes_of(data, node_type), "x", None)
    with inference(model, x.device if isinstance(x, torch.Tensor) else torch.device("cpu")):
        return output_of(model, data, node_type)


def outputs(model: Callable[..., Any], data: Any) -> Array:
    """Return the numeric output of a callable, NaN included, called as by :func:`cfe_faiss.models.predict`."""
    output = call_once(model, data)
    if isinstance(output, torch.Tensor) and output.is_floating_point():
        output = output.float()  # NumPy has no bfloat16
    return as_array("the model's output", output)


def output_of(model: Callable[..., Any], data: Any, node_type: str | None = None) -> Any:
    """Return the output of a model for the nodes of ``data``, or of one of its node types, in one call.

    Raises
    ------
    TypeError
        If the output has several parts.
    ValueError
        If ``data`` lacks features, edges or another value that the model requires, has edge values that the model does
        not accept, or the output lacks the node type.
    """
    if getattr(nodes_of(data, node_type), "x", None) is None:
        of_type = "" if node_type is None else f" of node type {node_type!r}"
        raise ValueError(f"data must have x{of_type}, got {type(data).__name__}")
    is_typed = is_heterogeneous(data)
    if not is_typed and getattr(data, "edge_index", None) is None and getattr(data, "adj_t", None) is None:
        raise ValueError(f"data must have edge_index or adj_t, got {type(data).__name__}")
    output = call(model, data)
    if is_typed and isinstance(output, Mapping):
        if output.get(node_type) is None:
            some = ", ".join(repr(key) for key, value in output.items() if value is not None)
            raise ValueError(f"the model's output must have the node type {node_type!r}, got {some or 'nothing'}")
        output = output[node_type]
    _refuse_parts(output)
    return output


def device_of(model: Any) -> torch.device | None:
    """Return the device of a module's weights; None without weights."""
    tensors = chain(model.parameters(), model.buffers()) if isinstance(model, torch.nn.Module) else ()
    return next((tensor.device for tensor in tensors), None)


@contextmanager
def inference(model: Any, device: torch.device) -> Iterator[None]:
    """Set ``model`` to evaluation mode, disable gradients, and seed the random numbers with 0.

    At the end, restore the mode of every submodule and the random state of the CPU and of ``device``.

    Raises
    ------
    TypeError
        If the model is not callable, or a class.
    """
    if not callable(model):
        raise TypeError(f"model must be callable as model(x, edge_index), got {type(model).__name__}")
    if isinstance(model, type):
        raise TypeError(f"model must be a model, got the class {model.__name__}")
    modules = list(model.modules()) if isinstance(model, torch.nn.Module) else []
    modes = [module.training for module in modules]
    try:
        for module in modules[:1]:
            module.eval()
        with torch.no_grad(), seeded(0, device):
            yield
    finally:
        for module, mode in zip(modules, modes, strict=True):
            module.training = mode


def _refuse_parts(output: Any) -> None:
    """Raise TypeError for an output with several parts: only the user knows which one holds the logits."""
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
    """Return whether a part is a complete output, and not the class or the numbers of one node."""
    return part is None or isinstance(part, Mapping) or getattr(part, "ndim", 0) >= (1 if of_tuple else 2)


def _kind(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return type(value).__name__ if shape is None else f"{type(value).__name__} {tuple(shape)}"
