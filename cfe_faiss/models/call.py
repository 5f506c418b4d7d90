"""Calling a model with what it takes of a graph, and with all the values of the edges or not at all."""

import inspect
from collections.abc import Callable
from typing import Any

from cfe_faiss.base.extras import extra

with extra("gnn"):
    import torch

_EDGE_VALUES = ("edge_weight", "edge_attr", "edge_type")
WHOLE = ("data", "batch", "graph", "g")
"""Names of a first parameter that takes the whole graph."""
FEATURES = ("x", "input", "inputs", "features", "feature", "h", "X")
"""Names of a first parameter that takes features, also where it is the only one."""


def call(model: Callable[..., Any], data: Any) -> Any:
    """Return what one call of a model gives; see :func:`cfe_faiss.models.predict` for how it is called.

    Raises
    ------
    ValueError
        If the model requires what ``data`` does not have, or ``data`` has values of edges that it does not take.
    """
    args, kwargs = arguments(model, data)
    return model(*args, **kwargs)


def arguments(model: Callable[..., Any], data: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return what a model is called with; errors as of :func:`call`."""
    parameters = parameters_of(model)
    named = [one for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    positional = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    required = [one.name for one in parameters if one.default is one.empty and one.kind not in _VARIADIC]
    names = {one.name for one in named}
    is_open = any(one.kind is one.VAR_POSITIONAL for one in parameters)
    if positional and "edge_index" not in names and not is_open:
        first, second = positional[0], positional[1] if len(positional) > 1 else None
        if first.name in WHOLE or (second is None and first.name not in FEATURES):
            return (data,), _required(required[1:], data)
        if second is None or (second.default is not second.empty and not second.name.startswith(("edge", "adj"))):
            return (data.x,), _required(required[1:], data)
    edges = _edges(data, wants_adj_t=any(one.name.startswith("adj") for one in positional[:2]))
    takes_any = any(one.kind is one.VAR_KEYWORD for one in parameters)
    values = _edge_values(model, data, lambda name: takes_any or name in names)
    if "batch" in names and getattr(data, "batch", None) is not None:
        values["batch"] = data.batch
    if positional and positional[0].name == "edge_index" and "x" in names:
        given: tuple[Any, ...] = ()
        values |= {"x": data.x, "edge_index": edges}
        rest = [name for name in required if name not in values]
    else:
        given = (data.x, edges)
        taken = {one.name for one in positional[:2]}
        rest = [name for name in required if name not in values and name not in taken]
    return given, values | _required(rest, data)


_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def parameters_of(model: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters of a call of a model; where Python cannot say, those of any function."""
    called: Any = model
    if isinstance(model, torch.nn.Module):
        called = getattr(model, "_orig_mod", model).forward  # what torch.compile wraps says more than its wrapper
    try:
        return list(inspect.signature(called).parameters.values())
    except (TypeError, ValueError):
        return [inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL)]


def _edges(data: Any, *, wants_adj_t: bool) -> Any:
    """Return ``edge_index``, or ``adj_t`` where a model wants it or there is nothing else: PyG's layers take both."""
    edge_index, adj_t = getattr(data, "edge_index", None), getattr(data, "adj_t", None)
    return adj_t if adj_t is not None and (wants_adj_t or edge_index is None) else edge_index


def _edge_values(model: Any, data: Any, takes: Callable[[str], bool]) -> dict[str, Any]:
    values = {}
    for name in _EDGE_VALUES:
        value = getattr(data, name, None)
        if value is None:
            continue
        # PyG's own networks take both arguments, and drop the one that their layers do not support.
        if not takes(name) or not getattr(model, f"supports_{name}", True):
            raise ValueError(
                f"data has {name}, which {model_name(model)} does not take: hand in a model that does, a function of "
                f"data that says what to do with it (lambda data: model(data.x, data.edge_index)), or data without it"
            )
        values[name] = value
    return values


def _required(names: list[str], data: Any) -> dict[str, Any]:
    values = {name: getattr(data, name, None) for name in names}
    if "batch" in values and values["batch"] is None:
        values["batch"] = torch.zeros(len(data.x), dtype=torch.int64, device=data.x.device)  # all nodes of one graph
    for name, value in values.items():
        if value is None:
            raise ValueError(f"data must have {name}, which the model requires, got {type(data).__name__}")
    return values


def model_name(model: Any) -> str:
    """Return what errors call a model: the name of a function, or of its class."""
    return getattr(model, "__name__", None) or type(model).__name__
