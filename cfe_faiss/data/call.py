"""Calls of a model, with arguments by its signature, without gradients and side effects.

Graphs and models that are too large for one call are called in batches.
"""

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Any

import numpy as np

from cfe_faiss.base.checks import UNKNOWN, Array, Ints, as_array, as_count
from cfe_faiss.base.extras import extra
from cfe_faiss.base.values import as_ids
from cfe_faiss.data import classes
from cfe_faiss.data.classes import Predictions
from cfe_faiss.graph.metapath import is_heterogeneous, nodes_of

with extra("gnn"):
    import torch

_EDGE_VALUES = ("edge_weight", "edge_attr", "edge_type")
_WHOLE = ("data", "batch", "graph", "g")
"""Names of a first parameter for the whole graph."""
_FEATURES = ("x", "input", "inputs", "features", "feature", "h", "X")
"""Names of a first parameter for features, also if it is the only parameter."""
_CUT = (
    "ClusterLoader, GraphSAINT and RandomNodeLoader cut edges, so that their batches do not give "
    "the predictions"
)
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def call(model: Callable[..., Any], data: Any) -> Any:
    """Return the result of one call of a model.

    See :func:`cfe_faiss.models.predict` for its arguments.

    Raises
    ------
    ValueError
        If ``data`` lacks a value that the model requires, or has edge weights or types that the
        model does not accept.
    """
    args, kwargs = arguments(model, data)
    return model(*args, **kwargs)


def arguments(model: Callable[..., Any], data: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments for a call of a model with ``Data`` or ``HeteroData``.

    Errors as for :func:`call`.
    """
    parameters = _parameters_of(model)
    positional = [
        one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
    ]
    names = {
        _plain(one.name): one.name
        for one in parameters
        if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
    }
    first, second = [*positional, None, None][:2]
    is_open = any(one.kind is one.VAR_POSITIONAL for one in parameters)
    if first is not None and "edge_index" not in names and not is_open:
        name = _plain(first.name)
        if name in _WHOLE or (second is None and name not in _FEATURES):
            return (data,), _find_required(parameters, {first.name}, data)
        if second is None or (
            second.default is not second.empty and not second.name.startswith(("edge", "adj"))
        ):
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
    """Return the parameters of a call of a model.

    ``*args`` if Python does not know its signature.
    """
    called: Any = model
    if isinstance(model, torch.nn.Module):
        # the wrapper of torch.compile hides the signature
        called = getattr(model, "_orig_mod", model).forward
    try:
        return list(inspect.signature(called).parameters.values())
    except (TypeError, ValueError):
        return [inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL)]


def _plain(name: str) -> str:
    return name.removesuffix("_dict")


def _value(data: Any, name: str) -> Any:
    """Return a value of the graph, for ``HeteroData`` by node or edge type.

    None if there is none.
    """
    if not is_heterogeneous(data):
        return getattr(data, name, None)
    by_type = data.collect(_plain(name), allow_empty=True)
    return by_type or (None if name.endswith("_dict") else getattr(data, name, None))


def _edges(data: Any, *, prefers_adj_t: bool) -> Any:
    """Return ``edge_index`` or ``adj_t``, as PyG's layers accept; by edge type if hetero."""
    edge_index = _value(data, "edge_index")
    adj_t = _value(data, "adj_t")
    if not is_heterogeneous(data):
        return adj_t if adj_t is not None and (prefers_adj_t or edge_index is None) else edge_index
    if not edge_index and not adj_t:
        raise ValueError(
            f"data must have edge_index or adj_t of some edge type, got {type(data).__name__} "
            f"without any"
        )
    return (adj_t or {}) | (edge_index or {})


def _edge_values(
    model: Any, parameters: list[inspect.Parameter], names: dict[str, str], data: Any
) -> dict[str, Any]:
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
                f"data has {name}{of_types}, which "
                f"{getattr(model, '__name__', None) or type(model).__name__} does not "
                f"take: hand in a model that does, a function of data that says what to do with it "
                f"(lambda data: model(data.x{suffix}, data.edge_index{suffix})), or data without it"
            )
        values[argument] = value
    return values


def _find_required(
    parameters: list[inspect.Parameter], given: set[str], data: Any
) -> dict[str, Any]:
    """Return the values for the other parameters without a default."""
    values = {}
    for one in parameters:
        if one.default is not one.empty or one.kind in _VARIADIC or one.name in given:
            continue
        value = _value(data, one.name)
        if value is None and one.name == "batch" and not is_heterogeneous(data):
            # all nodes of one graph
            value = torch.zeros(len(data.x), dtype=torch.int64, device=data.x.device)
        if value is None:
            raise ValueError(
                f"data must have {_plain(one.name)}, which the model requires, got "
                f"{type(data).__name__} without it"
            )
        values[one.name] = value
    return values


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Draw random numbers of CPU and ``device`` from ``seed``, and restore the state at the end."""
    seed = as_count("seed", seed, 0)
    gpus = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=gpus):
        # torch.manual_seed would also seed devices whose state is not restored.
        torch.default_generator.manual_seed(seed)
        for gpu in gpus:
            with torch.cuda.device(gpu):
                torch.cuda.manual_seed(seed)
        yield


# --- output of one call ---------------------------------------------------------------------------


def call_once(model: Callable[..., Any], data: Any, node_type: str | None = None) -> Any:
    """Return :func:`output_of` in evaluation mode, without gradients, and without side effects."""
    x = getattr(nodes_of(data, node_type), "x", None)
    with inference(model, x.device if isinstance(x, torch.Tensor) else torch.device("cpu")):
        return output_of(model, data, node_type)


def outputs(model: Callable[..., Any], data: Any) -> Array:
    """Return the numeric output of a callable, NaN included.

    It is called as by :func:`cfe_faiss.models.predict`.
    """
    output = call_once(model, data)
    if isinstance(output, torch.Tensor) and output.is_floating_point():
        output = output.float()  # NumPy has no bfloat16
    return as_array("the model's output", output)


def output_of(model: Callable[..., Any], data: Any, node_type: str | None = None) -> Any:
    """Return the output of a model for the nodes of ``data``, or of one node type, in one call.

    Raises
    ------
    TypeError
        If the output has several parts.
    ValueError
        If ``data`` lacks features, edges or another value that the model requires, has edge values
        that the model does not accept, or the output lacks the node type.
    """
    if getattr(nodes_of(data, node_type), "x", None) is None:
        of_type = "" if node_type is None else f" of node type {node_type!r}"
        raise ValueError(f"data must have x{of_type}, got {type(data).__name__}")
    is_typed = is_heterogeneous(data)
    if (
        not is_typed
        and getattr(data, "edge_index", None) is None
        and getattr(data, "adj_t", None) is None
    ):
        raise ValueError(f"data must have edge_index or adj_t, got {type(data).__name__}")
    output = call(model, data)
    if is_typed and isinstance(output, Mapping):
        if output.get(node_type) is None:
            types = ", ".join(repr(key) for key, value in output.items() if value is not None)
            raise ValueError(
                f"the model's output must have the node type {node_type!r}, got "
                f"{types or 'nothing'}"
            )
        output = output[node_type]
    _refuse_parts(output)
    return output


def device_of(model: Any) -> torch.device | None:
    """Return the device of a module's weights; None without weights."""
    tensors = (
        chain(model.parameters(), model.buffers()) if isinstance(model, torch.nn.Module) else ()
    )
    return next((tensor.device for tensor in tensors), None)


@contextmanager
def inference(model: Any, device: torch.device) -> Iterator[None]:
    """Set ``model`` to evaluation mode, disable gradients, and seed the random numbers with 0.

    At the end, restore the mode of every submodule and the random state of the CPU and of
    ``device``.

    Raises
    ------
    TypeError
        If the model is not callable, or a class.
    """
    if not callable(model):
        raise TypeError(
            f"model must be callable as model(x, edge_index), got {type(model).__name__}"
        )
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
    """Raise TypeError for an output of several parts, of which only the user knows the logits."""
    # dimensions of an output that is not that of one node
    least = 1 if isinstance(output, tuple) else 2
    if isinstance(output, Mapping):
        parts = [f"{key}={_kind(value)}" for key, value in output.items()]
    elif isinstance(output, tuple | list) and any(
        part is None or isinstance(part, Mapping) or getattr(part, "ndim", 0) >= least
        for part in output
    ):
        parts = [_kind(part) for part in output]
    elif dataclasses.is_dataclass(output) and not isinstance(output, type):
        parts = [
            f"{one.name}={_kind(getattr(output, one.name))}" for one in dataclasses.fields(output)
        ]
    elif hasattr(output, "logits"):
        parts = [f"logits={_kind(output.logits)}"]
    else:
        return
    raise TypeError(
        "the model's output must be logits of shape (n, C) or classes of shape (n,), as a tensor "
        f"or an array, got {type(output).__name__} of {', '.join(parts[:8])}: hand in a function "
        "that returns one of them (lambda data: model(data.x, data.edge_index)[0], for example)"
    )


def _kind(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return type(value).__name__ if shape is None else f"{type(value).__name__} {tuple(shape)}"


# --- batches --------------------------------------------------------------------------------------


def call_by_batches(
    model: Callable[..., Any], data: Any, node_type: str | None, loader: Iterable[Any]
) -> Predictions:
    """Return the class of every node of ``data``, from a call of ``model`` for each batch.

    Each batch is moved to the model's device. Memory: one batch, and 4 bytes per node for the
    classes.

    Raises
    ------
    TypeError, ValueError
        As for :func:`cfe_faiss.models.predict`.
    """
    if isinstance(loader, str) or not isinstance(loader, Iterable):
        raise TypeError(f"loader must yield batches of the graph, got {type(loader).__name__}")
    nodes = nodes_of(data, node_type)
    labels = np.full(classes.node_count(nodes), UNKNOWN, np.int32)
    may_be_shares = True
    names = classes.class_names_of(nodes)
    device = device_of(model)  # None: batches are not moved
    with inference(model, device or torch.device("cpu")):
        for number, batch in enumerate(loader):
            seeds, rows = _seeds(batch, number, node_type, len(labels))
            values, counts = np.unique(seeds, return_counts=True)
            again = values[(counts > 1) | (labels[values] != UNKNOWN)]
            if len(again):
                raise ValueError(f"loader must yield every node once, got node {again[0]} twice")
            output = output_of(model, batch if device is None else batch.to(device), node_type)
            batch_classes, has_shares = _classes(output, seeds, rows, names, number)
            labels[seeds] = batch_classes.labels
            names = batch_classes.class_names
            may_be_shares &= has_shares
    missing = np.flatnonzero(labels == UNKNOWN)
    if len(missing):
        raise ValueError(
            f"loader must yield every node once, got no batch with node {missing[0]} among its "
            f"first batch_size ({len(missing):,} of {len(labels):,} nodes are missing): leave "
            "input_nodes out, and drop_last"
        )
    if may_be_shares and len(labels):
        raise ValueError(
            "the model's output must be logits where there is one column, got numbers in [0, 1] "
            "only"
        )
    return Predictions(labels, None, names)


def _seeds(batch: Any, number: int, node_type: str | None, n: int) -> tuple[Ints, int]:
    """Return the seed nodes of a batch, which come first, and the number of all of its nodes."""
    nodes = nodes_of(batch, node_type)
    values = {name: getattr(nodes, name, None) for name in ("n_id", "batch_size")}
    lacking = " and ".join(name for name, value in values.items() if value is None)
    if lacking:
        raise ValueError(
            f"loader must yield batches with n_id and batch_size, as NeighborLoader does, got "
            f"{type(batch).__name__} "
            f"without {lacking} in batch {number}. {_CUT} that the whole graph gives"
        )
    ids = as_ids(f"n_id of batch {number}", values["n_id"], n)
    size = int(values["batch_size"])  # type: ignore[arg-type]
    if not 0 <= size <= len(ids):
        raise ValueError(
            f"batch_size of batch {number} must lie in 0..{len(ids)}, its nodes, got {size}"
        )
    return ids[:size], len(ids)


def _classes(
    output: Any, seeds: Ints, rows: int, names: tuple[str, ...] | None, number: int
) -> tuple[Predictions, bool]:
    """Return the class of each seed of a batch, from an output for all nodes or the seeds.

    The second value is whether the output is one column of numbers in [0, 1], which may be logits
    or probabilities.
    """
    name = f"the model's output for batch {number}"
    count = len(output) if hasattr(output, "__len__") else None
    if count not in (rows, len(seeds)):
        raise ValueError(
            f"{name} must be for its {rows} nodes, or for the {len(seeds)} first ones, got {count} "
            f"rows"
        )
    output = output[: len(seeds)]
    if isinstance(output, torch.Tensor):
        output = as_array(name, output.float() if output.is_floating_point() else output)
    if getattr(output, "ndim", 0) == 2 and output.dtype.kind == "f" and np.isnan(output).any():
        raise ValueError(
            f"{name} must not be NaN, got NaN for node {seeds[np.isnan(output).any(axis=1)][0]}"
        )
    has_shares = False
    if getattr(output, "shape", None) == (len(seeds), 1) and output.dtype.kind == "f":
        has_shares = classes.are_shares(output)
        output = classes.as_two_logits(output)
    predicted_classes = classes.as_predictions(output, len(seeds), names, name)
    if names is None and predicted_classes.class_names not in (None, classes.TRUTH_VALUES):
        raise ValueError(
            f"{name} must be numbers, got texts: give data class_names, which number them"
        )
    return predicted_classes, has_shares
