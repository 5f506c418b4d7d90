"""Stages of a job: from features and edges to KS vectors, shards of an index, evidence and pairs.

Edges are sorted in parts, and merged into the neighbours of each block of nodes. Each step of the
propagation reads the files of the step before.

For the most similar pairs, the rows of the index are divided into groups of neighbouring lists.
Each group has a tree in files. All trees have sketches along the same directions, so that any two
can be joined (:mod:`cfe_faiss.search.join`). A task joins one group with itself and with half of
the other groups, and needs few sketches. If the evidence of the nodes holds k pairs, the worst of
the k best is a lower bound for the similarity of every result.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path

import numpy as np

from cfe_faiss import _native
from cfe_faiss.base import threads
from cfe_faiss.base.checks import (
    UNKNOWN,
    Array,
    Bools,
    Floats,
    Int32s,
    Ints,
    as_labels,
    as_unit_rows,
)
from cfe_faiss.base.disk import release
from cfe_faiss.base.extras import extra
from cfe_faiss.coarse.partitions import nearest_numbers, spherical_kmeans, training_rows
from cfe_faiss.files.format import write_index
from cfe_faiss.graph.csr import as_weights
from cfe_faiss.graph.ks import normalise, relative_lengths
from cfe_faiss.index.ivf import IndexEvidenceIVF
from cfe_faiss.rows.metric import PADDING
from cfe_faiss.rows.snapshot import Snapshot
from cfe_faiss.scale.job_files import Input, Settings, Task
from cfe_faiss.scale.sharded import (
    INDEX,
    MANIFEST,
    ShardedEvidenceIndex,
    owners_of,
    shard_of,
    write_manifest,
)
from cfe_faiss.scale.tasks import Stage
from cfe_faiss.search.exact import (
    NOTHING,
    Found,
    Scan,
    Threshold,
    all_pairs,
    find_best,
    run_until_full,
    scans_of,
)
from cfe_faiss.search.join import JoinBlocks, directions_of, join_blocks_along
from cfe_faiss.search.tiles import slices, tiles_between

# --- stages of the graph --------------------------------------------------------------------------

EDGES_PER_BLOCK = 1 << 24
_EDGES_AT_ONCE = 1 << 20
# peak memory per key of a merge: keys of the runs, remaining keys, targets, sources
_BYTES_OF_A_KEY = 64
_BYTES_OF_A_WEIGHTED_KEY = 128  # the same with weights, their order, and sums for both directions

Keys = Ints
Weights = Floats


def graph_stages(settings: Settings, inputs: Mapping[str, Input]) -> list[Stage]:
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


def edge_blocks(edges: Array, weighted: bool) -> int:
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


def _read_ranges(runs: Sequence[Array], ends: Sequence[Keys]) -> Array:
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


def _mark_new(keys: Keys) -> Bools:
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


def neighbors_of(task: Task) -> tuple[Ints, Int32s, Weights | None]:
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
    native = _native.BlockStep(graph, 0, units, count)
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


# --- stages of the index --------------------------------------------------------------------------

_NODES = 1 << 17  # nodes of one part of a table
GROUP_ROWS = 1 << 17
"""Largest number of rows in a group.

A resumed job needs the same value, so it depends on no memory or workers.
"""
_SAMPLE = 1 << 16
"""Smallest number of rows from which directions are computed, if there are as many."""
_PAIR_BYTES = 200  # per pair, while pairs are sorted and written
_PAIRS = 1 << 20  # largest number of pairs in one write
_EVIDENCE = ("node", "evidence", "similarity")
_PAIR = ("source", "target", "similarity")
_ARRAYS = tuple(
    field.name for field in fields(JoinBlocks) if field.name not in ("snapshot", "largest")
)


def index_stages(settings: Settings) -> list[Stage]:
    """Return the stages from KS vectors to evidence."""
    return [
        Stage("train", 1, train, ("vectors",)),
        Stage("assign", settings.blocks, assign, ("vectors", "train")),
        Stage("place", 1, place, ("train", "assign")),
        Stage("shard", settings.shards, shard, ("vectors", "train", "assign", "place")),
        Stage("join", 1, join, ("shard", "place")),
        Stage("tune", 1, tune, ("shard", "join")),
        Stage("evidence", settings.shards, evidence, ("shard", "join", "tune")),
    ]


def pair_stages(settings: Settings) -> list[Stage]:
    """Return the stages from evidence to pairs."""
    if not settings.pairs and settings.threshold is None:
        return []
    groups = -(-settings.n // GROUP_ROWS)
    index = ("shard", "join")
    evidence = ("evidence",) if settings.pairs else ()
    reads = ("groups", "sketch", *index)
    of_pairs = [
        Stage("groups", 1, partial(cut_into_groups, groups=groups), (*index, *evidence)),
        Stage("sketch", groups, partial(sketch, groups=groups), ("groups", *index)),
    ]
    if settings.pairs:
        of_pairs.append(Stage("pairs", groups, partial(pairs, groups=groups), reads))
        of_pairs.append(Stage("top", 1, partial(top, groups=groups), ("pairs",)))
    if settings.threshold is not None:
        run = partial(above, groups=groups, threshold=settings.threshold)
        of_pairs.append(Stage("above", groups, run, reads))
    return of_pairs


def train(task: Task) -> None:
    """Write the centroids of all lists that ``IndexEvidenceIVF.train`` computes."""
    settings = task.settings
    cp = IndexEvidenceIVF(settings.d, settings.nlist).cp
    sample = training_rows(settings.n, settings.nlist, cp, cp.seed)
    X = _vectors_of(task, np.arange(settings.n) if sample is None else sample.astype(np.int64))
    task.write(
        centroids=spherical_kmeans(X, settings.nlist, np.ones(len(X), np.float32), cp, cp.seed)
    )


def assign(task: Task) -> None:
    """Write the list of each vector of a block."""
    centroids = np.asarray(task.read("train", 0, "centroids"))
    task.write(lists=nearest_numbers(_vectors(task, task.block), centroids))


def place(task: Task) -> None:
    """Write the shard of each list.

    The last shards have none if fewer lists than shards hold vectors.
    """
    settings = task.settings
    sizes = np.zeros(settings.nlist, np.int64)
    for lists in task.read_blocks("assign", "lists"):
        sizes += np.bincount(lists, minlength=settings.nlist)
    shards = min(settings.shards, int(np.count_nonzero(sizes)))
    owners = owners_of(np.asarray(task.read("train", 0, "centroids")), sizes, shards)
    task.write(owners=owners.astype(np.int32))


def shard(task: Task) -> None:
    """Write the index file of a shard."""
    owners = task.read("place", 0, "owners")
    parts = []
    for block, lists in enumerate(task.read_blocks("assign", "lists")):
        rows = np.flatnonzero(owners[lists] == task.block)
        parts.append((rows + task.settings.rows(block)[0], lists[rows]))
    ids, lists = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    if not len(ids):
        return
    labels = as_labels(
        "labels", np.asarray(task.inputs["labels"].array()[ids]), len(ids), unknown=True
    )
    centroids = np.array(task.read("train", 0, "centroids"))[None]
    index = shard_of(centroids, lists, _vectors_of(task, ids), labels, ids)
    write_index(index, task.new(_shard_path(task.folder, task.block)), overwrite=True)


def _shard_path(folder: Path, number: int) -> Path:
    return folder / INDEX / f"shard-{number:06d}.index"


def join(task: Task) -> None:
    """Write the list of shards."""
    shards = int(task.read("place", 0, "owners").max()) + 1
    path = task.new(task.folder / INDEX / MANIFEST)
    write_manifest(path.parent, [_shard_path(task.folder, number) for number in range(shards)])


def tune(task: Task) -> None:
    """Write the nprobe for the job's recall."""
    index = open_index(task)
    recall = task.settings.recall
    task.write(
        nprobe=np.array(
            [index.nlist if recall is None else index.nprobe_for(recall, task.settings.k)]
        )
    )


def evidence(task: Task) -> None:
    """Write the evidence of the vectors of a shard, as a search for all vectors has it."""
    index = open_index(task)
    k = task.settings.k
    results = np.empty(0, np.int64), np.empty((0, k), np.float32), np.empty((0, k), np.int64)
    if task.block < len(index.shards):
        nprobe = int(task.read("tune", 0, "nprobe")[0])
        results = index.search_shard(task.block, k, nprobe, memory=task.memory // 2)
    task.write_table(evidence_table(*results))


def evidence_table(ids: Ints, D: Floats, I: Ints) -> Iterator[dict[str, Array]]:
    """Yield the evidence of nodes by ascending node, without padding: (n,), D and I."""
    order = np.argsort(ids, kind="stable")
    for first in range(0, max(len(order), 1), _NODES):
        part = order[first : first + _NODES]
        row, rank = np.nonzero(I[part] >= 0)
        yield {
            "node": ids[part[row]],
            "evidence": I[part[row], rank],
            "rank": (rank + 1).astype(np.int32),
            "similarity": D[part[row], rank],
        }


def _vectors(task: Task, block: int) -> Floats:
    """Return the KS vectors of a block, as an index stores them."""
    stored = task.read("vectors", block, "X")
    X = as_unit_rows("X", stored)
    release(stored)
    return X


def _vectors_of(task: Task, rows: Ints) -> Floats:
    """Return the KS vectors of some nodes in their order; reads each block once."""
    X = np.empty((len(rows), task.settings.d), np.float32)
    blocks = rows // task.settings.block_rows
    order = np.argsort(blocks, kind="stable")
    borders = np.searchsorted(blocks[order], np.arange(task.settings.blocks + 1))
    for block in range(task.settings.blocks):
        places = order[borders[block] : borders[block + 1]]
        if len(places):
            X[places] = _vectors(task, block)[rows[places] - task.settings.rows(block)[0]]
    return X


# --- the index of a job ---------------------------------------------------------------------------


def open_index(task: Task) -> ShardedEvidenceIndex:
    """Return the current index of a job, opened once for all tasks of a worker."""
    status = (task.folder / INDEX / MANIFEST).stat()
    return _open(task.folder / INDEX, status.st_ino, status.st_mtime_ns)


@lru_cache(maxsize=1)
def _open(folder: Path, *_: int) -> ShardedEvidenceIndex:
    return ShardedEvidenceIndex.open(folder)


# --- trees ----------------------------------------------------------------------------------------


def cut_into_groups(task: Task, groups: int) -> None:
    """Write the order of the lists by groups, directions, and a bound for the best pairs."""
    index = open_index(task)
    snapshot = index.storage()
    sizes = np.diff(snapshot.starts)
    owners = owners_of(index.centroids()[0], sizes, min(groups, int(np.count_nonzero(sizes))))
    rows = np.arange(0, snapshot.n, max(1, snapshot.n // _SAMPLE))
    directions = directions_of(snapshot, rows[snapshot.labels[rows] != UNKNOWN])
    best = (
        _best_in(task, "evidence", task.settings.shards, _EVIDENCE)[2]
        if task.settings.pairs
        else np.empty(0)
    )
    floor = best[-1] if len(best) == task.settings.pairs > 0 else -math.inf
    task.write(
        lists=np.argsort(owners, kind="stable"), directions=directions, floor=np.array([floor])
    )


def _best_in(task: Task, stage: str, files: int, columns: tuple[str, str, str]) -> Found:
    """Return the most similar pairs in the tables of a stage."""
    paths = [task.path(stage, number, "parquet") for number in range(files)]
    return find_best([partial(pairs_in, path, columns) for path in paths], task.settings.pairs)


def pairs_in(path: Path, columns: tuple[str, str, str], threshold: Threshold) -> Iterator[Found]:
    """Yield the pairs of a file at or above a threshold: two ids and a similarity."""
    with extra("store"):
        import pyarrow.parquet as pq
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(columns=list(columns)):
            source, target, similarity = (batch.column(name).to_numpy() for name in columns)
            places = np.flatnonzero(similarity >= threshold())
            yield source[places], target[places], similarity[places]


def sketch(task: Task, groups: int) -> None:
    """Write the tree of a group."""
    snapshot = open_index(task).storage()
    borders = snapshot.n * task.block // groups, snapshot.n * (task.block + 1) // groups
    rows = _rows_between(snapshot, task.read("groups", 0, "lists"), *borders)
    rows = rows[snapshot.labels[rows] != UNKNOWN]
    blocks = (
        join_blocks_along(snapshot, rows, np.asarray(task.read("groups", 0, "directions")))
        if len(rows)
        else None
    )
    if blocks is None:
        task.write(rows=rows[:0])
        return
    task.write(
        largest=np.array([blocks.largest]), **{name: getattr(blocks, name) for name in _ARRAYS}
    )


def _rows_between(snapshot: Snapshot, lists: Ints, first: int, stop: int) -> Ints:
    """Return the rows at positions ``first`` to ``stop - 1`` of ``lists``, ascending."""
    sizes = np.diff(snapshot.starts)[lists]
    ends = np.cumsum(sizes)
    shifts = snapshot.starts[lists] - (ends - sizes)
    counts = np.diff(np.clip(ends, first, stop), prepend=first)
    return np.sort(np.arange(first, stop) + np.repeat(shifts, counts))


# --- pairs of groups ------------------------------------------------------------------------------


def _joins(task: Task, groups: int) -> Iterator[tuple[JoinBlocks, JoinBlocks | None]]:
    """Yield the group of a task with None, for itself, and with each of its partners.

    Trees are mapped from files.
    """
    snapshot = open_index(task).storage()
    blocks = _read(task, snapshot, task.block)
    if blocks is None:
        return
    yield blocks, None
    for partner in partners_of(task.block, groups):
        others = _read(task, snapshot, partner)
        if others is not None:
            yield blocks, others
            release(*(getattr(others, name) for name in _ARRAYS))


def partners_of(number: int, groups: int) -> list[int]:
    """Return the groups that a task joins with its own.

    Each two groups are joined once, and tasks do equal work.
    """
    last = groups // 2 if groups % 2 or number < groups // 2 else groups // 2 - 1
    return [(number + step) % groups for step in range(1, last + 1)]


def _read(task: Task, snapshot: Snapshot, number: int) -> JoinBlocks | None:
    """Return the tree of a group, mapped; None if the group has no rows."""
    if not len(task.read("sketch", number, "rows")):
        return None
    arrays = {name: task.read("sketch", number, name) for name in _ARRAYS}
    return JoinBlocks(snapshot, largest=float(task.read("sketch", number, "largest")[0]), **arrays)


def _scans(blocks: JoinBlocks, others: JoinBlocks | None, threshold: float) -> list[Scan]:
    """Return scans for pairs at or above a threshold: joins or full comparisons, by estimated cost.

    Without ``others``, the pairs are within the blocks.
    """
    rows = len(blocks.rows)
    pairs_to_compare = rows * (rows / 2 if others is None else len(others.rows))
    if blocks.cost(threshold, others) <= pairs_to_compare * blocks.snapshot.d:
        return blocks.scans(others, threshold)
    if others is None:
        return all_pairs(blocks.snapshot, _by_label(blocks))
    return scans_of(tiles_between(blocks.snapshot, _by_label(blocks), _by_label(others)))


def _by_label(blocks: JoinBlocks) -> Ints:
    return blocks.rows[np.argsort(blocks.labels, kind="stable")]


# --- pairs ----------------------------------------------------------------------------------------


def pairs(task: Task, groups: int) -> None:
    """Write the candidates for the best pairs from the joins of a group."""
    k = task.settings.pairs
    floor = float(task.read("groups", 0, "floor")[0])
    best = NOTHING
    for blocks, others in _joins(task, groups):
        if others is None and floor == -math.inf:  # no lower bound is known
            best = find_best(blocks.neighbours(), k)
            floor = float(PADDING)
        least = max(floor, float(best[2][-1])) if len(best[2]) == k else floor
        best = find_best(_scans(blocks, others, least), k, best, floor=least)
    _write(task, [best])


def top(task: Task, groups: int) -> None:
    """Write the most similar pairs of all nodes, exactly."""
    _write(task, [_best_in(task, "pairs", groups, _PAIR)])


def above(task: Task, groups: int, threshold: float) -> None:
    """Write all pairs at or above the threshold from the joins of a group."""
    _write(task, _pairs_above(task, groups, float(np.float32(threshold))))


def _pairs_above(task: Task, groups: int, threshold: float) -> Iterator[Found]:
    """Yield all pairs of the joins of a group in parts."""
    size = max(1, min(_PAIRS, task.memory // _PAIR_BYTES))
    for blocks, others in _joins(task, groups):
        pending = [find(lambda: threshold) for find in _scans(blocks, others, threshold)]
        while pending:
            best, pending = run_until_full(pending, size)
            for part in slices(len(best[2]), size):
                yield best[0][part], best[1][part], best[2][part]


def _write(task: Task, pairs_found: Iterable[Found]) -> None:
    parts = chain([NOTHING], pairs_found)  # an empty part tells the types if there is no other
    task.write_table(dict(zip(_PAIR, part, strict=True)) for part in parts)
