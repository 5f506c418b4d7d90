"""Calls of a model: its arguments, taken from the graph by the model's signature, and torch's random numbers."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from cfe_faiss.base.checks import as_count
from cfe_faiss.base.extras import extra
from cfe_faiss.graph.metapath import is_heterogeneous

with extra("gnn"):
    import torch

_EDGE_VALUES = ("edge_weight", "edge_attr", "edge_type")
_WHOLE = ("data", "batch", "graph", "g")
"""Names of a first parameter for the whole graph."""
_FEATURES = ("x", "input", "inputs", "features", "feature", "h", "X")
"""Names of a first parameter for features, also if it is the only parameter."""
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def call(model: Callable[..., Any], data: Any) -> Any:
    """Return the result of one call of a model; see :func:`cfe_faiss.models.predict` for its arguments.

    Raises
    ------
    ValueError
        If ``data`` lacks a value that the model requires, or has edge weights or types that the model does not accept.
    """
    args, kwargs = arguments(model, data)
    return model(*args, **kwargs)


def arguments(model: Callable[..., Any], data: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments for a call of a model with ``Data`` or ``HeteroData``; errors as for :func:`call`."""
    parameters = _parameters_of(model)
    positional = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    names = {
        _plain(one.name): one.name for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
    }
    first, second = [*positional, None, None][:2]
    is_open = any(one.kind is one.VAR_POSITIONAL for one in parameters)
    if first is not None and "edge_index" not in names and not is_open:
        name = _plain(first.name)
        if name in _WHOLE or (second is None and name not in _FEATURES):
            return (data,), _find_required(parameters, {first.name}, data)
        if second is None or (second.default is not second.empty and not second.name.startswith(("edge", "adj"))):
            return (_value(data, "x"),), _find_required(parameters, {first.name}, data)
    edges = _edges(data, prefers_adj_t=any(one.name.startswith("adj") for one in positional[:2]))
    values = _edge_values(model, parameters, names, data)
    if "batch" in names and not is_heterogeneous(data) and getattr(data, "batch", None) is not None:
        values["batch"] = data.batch
    if first is not None and _plain(first.name) == "edge_index" and "x" in names:
        values |= {names["x"]: _value(data, "x"), names["edge_index"]: edges}
        return (), values | _find_required(parameters, set(values), data)
    given = {one.name for one in positional[:2]} | set(values)
    return (_value(data, "x"), edges), values | _find_required(parameters, given, data)


def _parameters_of(model: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters of a call of a model; ``*args`` if Python does not know its signature."""
    called: Any = model
    if isinstance(model, torch.nn.Module):
        called = getattr(model, "_orig_mod", model).forward  # the wrapper of torch.compile hides the signature
    try:
        return list(inspect.signature(called).parameters.values())
    except (TypeError, ValueError):
        return [inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL)]


def _plain(name: str) -> str:
    return name.removesuffix("_dict")


def _value(data: Any, name: str) -> Any:
    """Return a value of the graph, for ``HeteroData`` by node or edge type; None if there is none."""
    if not is_heterogeneous(data):
        return getattr(data, name, None)
    by_type = data.collect(_plain(name), allow_empty=True)
    return by_type or (None if name.endswith("_dict") else getattr(data, name, None))


def _edges(data: Any, *, prefers_adj_t: bool) -> Any:
    """Return ``edge_index`` or ``adj_t``, both of which PyG's layers accept; for ``HeteroData`` one by edge type."""
    edge_index, adj_t = _value(data, "edge_index"), _value(data, "adj_t")
    if not is_heterogeneous(data):
        return adj_t if adj_t is not None and (prefers_adj_t or edge_index is None) else edge_index
    if not edge_index and not adj_t:
        raise ValueError(f"data must have edge_index or adj_t of some edge type, got {type(data).__name__} without any")
    return (adj_t or {}) | (edge_index or {})


def _edge_values(model: Any, parameters: list[inspect.Parameter], names: dict[str, str], data: Any) -> dict[str, Any]:
    suffix = "_dict" if is_heterogeneous(data) else ""
    accepts_any = any(one.kind is one.VAR_KEYWORD for one in parameters)
    values = {}
    for name in _EDGE_VALUES[: 2 if suffix else None]:
        value = _value(data, name)
        if value is None:
            continue
        argument = names.get(name, name + suffix if accepts_any else None)
        # PyG's networks accept both arguments, and ignore the one that their layers do not support.
        if argument is None or not getattr(model, f"supports_{name}", True):
            if name == "edge_attr":  # features of edges, which most models do not use
                continue
            of_types = f" for {', '.join(map(str, value))}" if suffix else ""
            raise ValueError(
                f"data has {name}{of_types}, which {getattr(model, '__name__', None) or type(model).__name__} does not "
                f"take: hand in a model that does, a function of data that says what to do with it "
                f"(lambda data: model(data.x{suffix}, data.edge_index{suffix})), or data without it"
            )
        values[argument] = value
    return values


def _find_required(parameters: list[inspect.Parameter], given: set[str], data: Any) -> dict[str, Any]:
    """Return the values for the other parameters without a default."""
    values = {}
    for one in parameters:
        if one.default is not one.empty or one.kind in _VARIADIC or one.name in given:
            continue
        value = _value(data, one.name)
        if value is None and one.name == "batch" and not is_heterogeneous(data):
            value = torch.zeros(len(data.x), dtype=torch.int64, device=data.x.device)  # all nodes of one graph
        if value is None:
            text = f"data must have {_plain(one.name)}, which the model requires, got {type(data).__name__} without it"
            raise ValueError(text)
        values[one.name] = value
    return values


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Draw random numbers of the CPU and of ``device`` from ``seed``, and restore the previous state at the end."""
    seed = as_count("seed", seed, 0)
    gpus = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=gpus):
        # torch.manual_seed would also seed devices whose state is not restored.
        torch.default_generator.manual_seed(seed)
        for gpu in gpus:
            with torch.cuda.device(gpu):
                torch.cuda.manual_seed(seed)
        yield
