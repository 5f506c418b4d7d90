"""Calling a model of a heterogeneous graph, with what it takes of the graph by node and edge types."""

import inspect
from collections.abc import Callable
from typing import Any

from cfe_faiss.models.call import FEATURES, WHOLE, model_name, parameters_of

_EDGE_VALUES = ("edge_weight", "edge_attr")


def call_hetero(model: Callable[..., Any], data: Any) -> Any:
    """Return what one call of a model with ``HeteroData`` gives; see :func:`cfe_faiss.models.predict` for how.

    Raises
    ------
    ValueError
        If the model requires what ``data`` does not have, or ``data`` has values of edges that it does not take.
    """
    parameters = parameters_of(model)
    positional = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    is_open = any(one.kind is one.VAR_POSITIONAL for one in parameters)
    first, second = [*positional, None, None][:2]
    takes_edges = is_open or (second is not None and _is_edges(second))
    if first is not None and not is_open:
        plain = first.name.removesuffix("_dict")
        if plain in WHOLE or (second is None and plain not in FEATURES):
            return model(data, **_required(parameters, {first.name}, data))
    if not takes_edges:
        return model(data.x_dict, **_required(parameters, {one.name for one in positional[:1]}, data))
    values = _edge_values(model, parameters, data)
    given = {one.name for one in positional[:2]} | set(values)
    return model(data.x_dict, _edges(data), **values, **_required(parameters, given, data))


def _is_edges(second: inspect.Parameter) -> bool:
    return second.default is second.empty or second.name.startswith(("edge", "adj"))


def _edges(data: Any) -> dict[tuple[str, str, str], Any]:
    """Return the edges of each type; PyG's layers take ``adj_t`` in the place of ``edge_index``."""
    found: dict[tuple[str, str, str], Any] = {
        **data.collect("adj_t", allow_empty=True),
        **data.collect("edge_index", allow_empty=True),
    }
    if not found:
        raise ValueError(f"data must have edge_index or adj_t of some edge type, got {type(data).__name__} without any")
    return found


def _edge_values(model: Any, parameters: list[inspect.Parameter], data: Any) -> dict[str, Any]:
    names = {one.name for one in parameters}
    takes_any = any(one.kind is one.VAR_KEYWORD for one in parameters)
    values = {}
    for name in _EDGE_VALUES:
        found = data.collect(name, allow_empty=True)
        if not found:
            continue
        given = next((one for one in (f"{name}_dict", name) if one in names), f"{name}_dict" if takes_any else None)
        if given is None:
            raise ValueError(
                f"data has {name} for {', '.join(map(str, found))}, which {model_name(model)} does not take: hand in a "
                f"model that does, a function of data that says what to do with it "
                f"(lambda data: model(data.x_dict, data.edge_index_dict)), or data without it"
            )
        values[given] = found
    return values


def _required(parameters: list[inspect.Parameter], given: set[str], data: Any) -> dict[str, Any]:
    """Return what else the model requires: by node and edge types, or of the graph as a whole."""
    values = {}
    for one in parameters:
        if one.default is not one.empty or one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD) or one.name in given:
            continue
        plain = one.name.removesuffix("_dict")
        value = data.collect(plain, allow_empty=True) or (getattr(data, plain, None) if plain == one.name else None)
        if value is None:
            raise ValueError(f"data must have {plain}, which the model requires, got {type(data).__name__} without it")
        values[one.name] = value
    return values
