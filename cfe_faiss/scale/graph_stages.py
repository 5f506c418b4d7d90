"""From a list of edges on disk to the neighbours of each block of nodes: sorted in parts, then merged."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.disk import release
from cfe_faiss.scale.work import Work

EDGES_PER_BLOCK = 1 << 24
_EDGES_AT_ONCE = 1 << 20


def edge_blocks(edges: NDArray[Any]) -> int:
    """Return into how many blocks an edge_index, (2, E), is cut."""
    return -(-int(edges.shape[1]) // EDGES_PER_BLOCK)


def sort_edges(work: Work, block: int) -> Mapping[str, Any]:
    """Write the edges of a block as numbers target * n + source, sorted, each once; both directions if undirected."""
    settings, edges = work.settings, work.inputs["edges"].array()
    n, keys = settings.n, []
    stop = min(edges.shape[1], (block + 1) * EDGES_PER_BLOCK)
    for first in range(block * EDGES_PER_BLOCK, stop, _EDGES_AT_ONCE):
        part = np.asarray(edges[:, first : min(first + _EDGES_AT_ONCE, stop)], np.int64)
        if part.size and not 0 <= part.min() <= part.max() < n:
            raise ValueError(f"edges must lie in 0..{n - 1}, got {part.min()} to {part.max()} in edges {first} and on")
        source, target = part[:, part[0] != part[1]]
        keys.append(target * n + source)
        if not settings.directed:
            keys.append(source * n + target)
    release(edges)
    work.write("sort", block, keys=np.unique(np.concatenate([np.empty(0, np.int64), *keys])))
    return {}


def merge_edges(work: Work, block: int, parts: int) -> Mapping[str, Any]:
    """Write the neighbours of a block of nodes, ascending, each once, as CSR."""
    settings = work.settings
    first, stop = settings.rows(block)
    keys = [np.empty(0, np.int64)]
    for part in range(parts):
        of_part = work.read("sort", part, "keys")
        low, high = np.searchsorted(of_part, [first * settings.n, stop * settings.n])
        keys.append(np.array(of_part[low:high]))
        release(of_part)
    merged = np.unique(np.concatenate(keys))
    targets, sources = np.divmod(merged, settings.n)
    indptr = np.searchsorted(targets, np.arange(first, stop + 1)).astype(np.int64)
    work.write("graph", block, indptr=indptr, indices=sources.astype(np.int32))
    return {"edges": len(merged)}


def neighbors_of(work: Work, block: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return indptr, from 0 on, and indices of the neighbours of a block of nodes."""
    if "indptr" not in work.inputs:
        return work.read("graph", block, "indptr"), work.read("graph", block, "indices")
    first, stop = work.settings.rows(block)
    indptr = np.array(work.inputs["indptr"].array()[first : stop + 1], np.int64)
    indices = work.inputs["indices"].array()[indptr[0] : indptr[-1]]
    return indptr - indptr[0], np.ascontiguousarray(indices, np.int32)
