"""Stages from edges and features on disk to KS vectors.

Edges are sorted in parts, and merged into the neighbours of each block of nodes. Each step of the
propagation reads the files of the step before.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss import _native
from cfe_faiss.base import threads
from cfe_faiss.base.temporary import release
from cfe_faiss.graph.csr import as_weights
from cfe_faiss.graph.ks import normalise, relative_lengths
from cfe_faiss.scale.job_files import Input, Settings, Task
from cfe_faiss.scale.tasks import Stage

EDGES_PER_BLOCK = 1 << 24
_EDGES_AT_ONCE = 1 << 20
_BYTES_OF_A_KEY = (
    64  # peak memory per key of a merge: keys of the runs, remaining keys, targets, sources
)
_BYTES_OF_A_WEIGHTED_KEY = 128  # the same with weights, their order, and sums for both directions

Keys = NDArray[np.int64]
Weights = NDArray[np.float32]


def stages(settings: Settings, inputs: Mapping[str, Input]) -> list[Stage]:
    """Return the stages from edges and features to KS vectors."""
    graph: list[Stage] = []
    if "edges" in inputs:
        parts = edge_blocks(inputs["edges"].array(), "edge_weight" in inputs)
        graph = [
            Stage("sort", parts, sort_edges),
            Stage("graph", settings.blocks, partial(merge_edges, parts=parts), ("sort",)),
        ]
    last = settings.num_layers
    reads = [stage.name for stage in graph[1:]]
    steps = [Stage("step-0", settings.blocks, unit)]
    for layer in range(1, last + 1):
        name = "vectors" if layer == last else f"step-{layer}"
        run = partial(step, layer=layer)
        steps.append(Stage(name, settings.blocks, run, (*reads, f"step-{layer - 1}")))
    if last == 0:
        steps.append(Stage("vectors", settings.blocks, no_step, ("step-0",)))
    return graph + steps


# --- edges ----------------------------------------------------------------------------------------


def edge_blocks(edges: NDArray[Any], weighted: bool) -> int:
    """Return the number of blocks of an edge_index, (2, E)."""
    return -(-int(edges.shape[1]) // _block_size(weighted))


def _block_size(weighted: bool) -> int:
    return EDGES_PER_BLOCK // 2 if weighted else EDGES_PER_BLOCK


def sort_edges(task: Task) -> None:
    """Write the edges of a block as sorted keys, target * n + source, each once.

    With weights, a key is twice that number, plus 1 for the opposite direction of an undirected
    edge. Weights are a second array, and ascend for equal keys. Each edge of an undirected graph is
    written in both directions.
    """
    settings = task.settings
    weighted = is_weighted(task)
    start = task.block * _block_size(weighted)
    stop = min(task.inputs["edges"].array().shape[1], start + _block_size(weighted))
    size = (1 if settings.directed else 2) * (stop - start)
    count = 0
    keys = np.empty(size, np.int64)
    weights = np.empty(size if weighted else 0, np.float32)
    for (source, target), of_edges in _read_edges(task, start, stop):
        ends = [(source, target)] if settings.directed else [(source, target), (target, source)]
        for outgoing, (source_ids, target_ids) in enumerate(ends):
            here = slice(count, count + len(source_ids))
            keys[here] = target_ids * settings.n + source_ids
            if of_edges is not None:
                keys[here] += keys[here] + outgoing
                weights[here] = of_edges
            count += len(source_ids)
    if weighted:
        order = np.lexsort((weights[:count], keys[:count]))
        task.write(keys=keys[order], weights=weights[order])
    else:
        task.write(keys=_sort_once(keys[:count]))


def is_weighted(task: Task) -> bool:
    """Return whether the edges of a job have weights."""
    return "edge_weight" in task.inputs


def _read_edges(task: Task, start: int, stop: int) -> Iterator[tuple[Keys, Weights | None]]:
    """Yield edges ``start`` to ``stop - 1``, (2, m), with weights, without self-loops."""
    n = task.settings.n
    edges = task.inputs["edges"].array()
    weights = None
    of_all = task.inputs["edge_weight"].array() if is_weighted(task) else None
    for first in range(start, stop, _EDGES_AT_ONCE):
        part_of_edges = slice(first, min(first + _EDGES_AT_ONCE, stop))
        part = np.asarray(edges[:, part_of_edges], np.int64)
        if part.size and not 0 <= part.min() <= part.max() < n:
            raise ValueError(
                f"edges must lie in 0..{n - 1}, got {part.min()} to {part.max()} in edges {first} "
                f"and on"
            )
        is_edge = part[0] != part[1]
        if of_all is not None:
            weights = as_weights(
                "edge_weight", np.asarray(of_all[part_of_edges]), part.shape[1], first
            )
            is_edge &= weights > 0
            weights = weights[is_edge]
        yield part[:, is_edge], weights
    release(edges, of_all)


def merge_edges(task: Task, parts: int) -> None:
    """Write the neighbours of a block of nodes, ascending and each once, with weights."""
    n = task.settings.n
    first, stop = task.settings.rows(task.block)
    weighted = is_weighted(task)
    runs = [task.read("sort", part, "keys") for part in range(parts)]
    of_runs = [task.read("sort", part, "weights") for part in range(parts)] if weighted else []
    of_row = 2 * n if weighted else n  # keys per row
    most = max(1, task.memory // (_BYTES_OF_A_WEIGHTED_KEY if weighted else _BYTES_OF_A_KEY))
    begins = np.zeros(stop - first + 1, np.int64)  # number of keys before each row
    for run in runs:
        begins += np.searchsorted(run, np.arange(first, stop + 1) * of_row)
    size = int(begins[-1] - begins[0])
    indices = np.empty(size, np.int32)
    weights = np.empty(size if weighted else 0, np.float32)
    indptr = np.zeros(stop - first + 1, np.int64)
    count = 0
    for low, high in _row_ranges(begins, most):
        ends = [
            np.searchsorted(run, [(first + low) * of_row, (first + high) * of_row]) for run in runs
        ]
        keys = _read_ranges(runs, ends)
        if weighted:
            keys, summed = _sum_repeats(keys, _read_ranges(of_runs, ends), n)
            weights[count : count + len(keys)] = summed
        else:
            keys = _sort_once(keys)
        targets, sources = np.divmod(keys, n)
        indptr[low + 1 : high + 1] = count + np.searchsorted(
            targets, first + np.arange(low + 1, high + 1)
        )
        indices[count : count + len(sources)] = sources
        count += len(sources)
    beside = {"weights": weights[:count]} if weighted else {}
    task.write(indptr=indptr, indices=indices[:count], **beside)


def _read_ranges(runs: Sequence[NDArray[Any]], ends: Sequence[Keys]) -> NDArray[Any]:
    """Return items a to b - 1 of each mapped run, for its (a, b) in ``ends``."""
    parts = [run[a:b] for run, (a, b) in zip(runs, ends, strict=True)]
    joined = np.concatenate(parts) if parts else np.empty(0, np.int64)
    release(*runs)
    return joined


def _sum_repeats(keys: Keys, weights: Weights, n: int) -> tuple[Keys, Weights]:
    """Return the edges as ascending keys, each once, and their weights, as ``as_graph``.

    The key of an edge is target * n + source.

    Weights of repeated edges are summed in ascending order. If both directions are given, the
    weight is their mean.
    """
    order = np.lexsort((weights, keys))
    keys = keys[order]
    weights = weights[order]
    edges = keys >> 1
    new = _mark_new(edges)
    edges = edges[new]
    places = 2 * (np.cumsum(new) - 1) + (keys & 1)
    sums = np.bincount(places, weights, 2 * len(edges)).reshape(-1, 2)  # sequential sums in float64
    total = np.where((sums > 0).all(axis=1), sums.sum(axis=1) / 2, sums.sum(axis=1))
    with np.errstate(over="ignore"):
        summed = total.astype(np.float32)
    if not np.isfinite(summed).all():
        target, source = divmod(int(edges[np.argmax(~np.isfinite(summed))]), n)
        raise ValueError(
            "edge_weight must be finite in float32 when the weights of repeated edges are summed, "
            f"got more for the edges between {source} and {target}"
        )
    return edges, summed


def _sort_once(keys: Keys) -> Keys:
    """Sort keys in place; return them without repeats."""
    keys.sort()
    return keys[_mark_new(keys)]


def _mark_new(keys: Keys) -> NDArray[np.bool_]:
    """Return which keys differ from the key before; the first one does."""
    new = np.ones(len(keys), np.bool_)
    np.not_equal(keys[1:], keys[:-1], out=new[1:])
    return new


def _row_ranges(begins: Keys, most: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows in order, each of at most ``most`` keys or of one row.

    ``begins`` counts the keys before.
    """
    low = 0
    while low < len(begins) - 1:
        high = max(low + 1, int(np.searchsorted(begins, begins[low] + most, "right")) - 1)
        yield low, high
        low = high


def neighbors_of(task: Task) -> tuple[NDArray[np.int64], NDArray[np.int32], Weights | None]:
    """Return indptr from 0, indices and weights of the neighbours of the task's nodes."""
    if "indptr" not in task.inputs:
        names = ("indptr", "indices", "weights") if is_weighted(task) else ("indptr", "indices")
        indptr, indices, *of_edges = (task.read("graph", task.block, name) for name in names)
        return indptr, indices, of_edges[0] if of_edges else None
    first, stop = task.settings.rows(task.block)
    indptr = np.array(task.inputs["indptr"].array()[first : stop + 1], np.int64)
    entries = slice(indptr[0], indptr[-1])
    indices = np.ascontiguousarray(task.inputs["indices"].array()[entries], np.int32)
    if not is_weighted(task):
        return indptr - indptr[0], indices, None
    weights = np.asarray(task.inputs["edge_weight"].array()[entries])
    return (
        indptr - indptr[0],
        indices,
        as_weights("edge_weight", weights, len(indices), int(indptr[0])),
    )


# --- vectors --------------------------------------------------------------------------------------


def unit(task: Task) -> None:
    """Write the normalised features of a block, and their norms."""
    first, stop = task.settings.rows(task.block)
    features = task.inputs["features"].array()
    with np.errstate(over="ignore"):
        X = np.array(features[first:stop], np.float32, order="C")
    release(features)
    norms = normalise(X)
    finite = np.isfinite(norms)
    if not finite.all():
        row = first + np.argmin(finite)
        raise ValueError(
            f"features must be finite in float32, got NaN, infinity or beyond in row {row}"
        )
    task.write(unit=X, norms=norms)


def step(task: Task, layer: int) -> None:
    """Write the next vectors of a block, and their sum so far.

    After the last step, the normalised sum only.
    """
    settings = task.settings
    before = f"step-{layer - 1}"
    first, stop = settings.rows(task.block)
    lengths = _read_lengths(task, layer - 1)
    units = np.array(task.read(before, task.block, "unit"))
    indptr, indices, weights = neighbors_of(task)
    count = threads.num_threads()
    graph = _native.CsrGraph(indptr, indices, count, weights, first=first, num_nodes=settings.n)
    native = _native.BlockStep(graph, units, count)
    for other, rows in enumerate(task.read_blocks(before, "unit")):
        native.gather(rows, settings.rows(other)[0], lengths)
        release(rows)
    sums = _read_sums(task, layer - 1, units, lengths[first:stop])
    new_lengths = np.empty(len(units), np.float32)
    native.finish(settings.alpha, lengths[first:stop], sums, units, new_lengths)
    if layer < settings.num_layers:
        task.write(unit=units, lengths=new_lengths, sums=sums)
    else:
        _write_vectors(task, sums)


def no_step(task: Task) -> None:
    """Write the vectors of a block without any step."""
    first, stop = task.settings.rows(task.block)
    units = task.read("step-0", task.block, "unit")
    _write_vectors(task, _read_sums(task, 0, units, _read_lengths(task, 0)[first:stop]))


def _read_lengths(task: Task, layer: int) -> Weights:
    """Return the lengths of all vectors after a step, (n,).

    Of the features, relative to the longest.
    """
    if layer > 0:
        return np.concatenate([*task.read_blocks(f"step-{layer}", "lengths")])
    norms = np.concatenate([*task.read_blocks("step-0", "norms")])
    return relative_lengths(norms, norms.max())


def _read_sums(task: Task, layer: int, unit_rows: Weights, lengths: Weights) -> Weights:
    if layer > 0:
        return np.array(task.read(f"step-{layer}", task.block, "sums"))
    return np.multiply(unit_rows, lengths[:, None])


def _write_vectors(task: Task, sums: Weights) -> None:
    normalise(sums)
    task.write(X=sums)
