"""KS vectors: one unit vector for a node and its neighbourhood.

The propagation defines the paper's KS score: inner products of KS vectors are KS scores.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike

from cfe_faiss import _native
from cfe_faiss.base import threads
from cfe_faiss.base.checks import (
    Array,
    Doubles,
    Floats,
    as_array,
    as_count,
    as_matrix,
    as_number,
    check_shape,
    is_sparse,
)
from cfe_faiss.base.disk import release, releasing, scratch
from cfe_faiss.base.values import as_ids
from cfe_faiss.graph import Graph, as_graph, native_graph

_PAIRS_PER_BLOCK = 1 << 14
_COSINE = 0  # number of the metric in the core
_VALUES_PER_TASK = 1 << 20


def ks_vectors(  # noqa: PLR0913
    x: Any,
    edge_index: Any,
    num_layers: int = 3,
    alpha: float = 0.5,
    *,
    edge_weight: ArrayLike | bool | None = None,
    directed: bool = False,
    out: Floats | None = None,
    workspace: str | os.PathLike[str] | None = None,
    memory: int = 1 << 30,
    progress: bool = False,
) -> Floats:
    """Return the KS vector of every node. The inner product of two rows is their KS score.

    With x^0 = ``x`` and, for l = 0..L-1 (L is ``num_layers``)::

        x^{l+1}_v = alpha x^l_v + (1 - alpha) / |N(v)| * sum_{u in N(v)} cos(x^l_v, x^l_u) x^l_u,

    row v is x^0_v + ... + x^L_v divided by its L2 norm (the paper's definition of the KS score).
    The cosine with a zero vector is 0. :doc:`/user_guide/graphs` extends the mean to weighted
    edges.

    Parameters
    ----------
    x
        Node features, shape (n, d): array, memory map, tensor or sparse matrix of real numbers.
    edge_index
        The graph: an edge_index, (2, E), or another form, see :func:`cfe_faiss.graph.as_graph`.
    num_layers
        Number L >= 0 of steps. Row v depends on the nodes at most L edges away.
    alpha
        Share in [0, 1] of a node's own vector in each step.
    edge_weight
        As in :func:`cfe_faiss.graph.as_graph`, but a :class:`cfe_faiss.graph.Graph` keeps its
        weights unless this is False.
    directed
        False: edges count in both directions. True: N(v) holds the sources of edges to v.
    out
        Array for the result: float32, (n, d), C-contiguous, writeable; it may be ``x``. Default: a
        new array.
    workspace
        A folder for work matrices of 8 * n * d bytes, read and written in blocks of rows, in place
        of memory. With ``x``, ``out`` and the graph as memory maps, all may be larger than memory.
    memory
        Bytes for the blocks in a ``workspace``. Each step reads a work matrix about 16 * n * d /
        ``memory`` times.
    progress
        Show a progress bar for each step on standard error, if that is a terminal.

    Returns
    -------
    ndarray
        ``out``: unit or zero rows, the same bits for any number of threads. O(L (E + n) d) time.
        Memory for two more (n, d) matrices; with a ``workspace`` ``memory`` + 32 * n bytes (44 * n
        with weights).

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, or a value of ``x`` is not finite in float32.
    OSError
        If the ``workspace`` does not exist or its disk is full.

    Examples
    --------
    >>> ks_vectors([[1.0, 0.0], [1.0, 1.0], [0.0, 2.0]], [[0], [1]], num_layers=1).round(3)
    array([[0.982, 0.187],
           [0.777, 0.629],
           [0.   , 1.   ]], dtype=float32)
    """
    num_layers = as_count("num_layers", num_layers, 0)
    alpha = as_number("alpha", alpha, 0.0, 1.0)
    features = _as_features(x)
    result = (
        np.empty(features.shape, dtype=np.float32)
        if out is None
        else _check_out(out, features.shape)
    )
    memory = as_count("memory", memory)
    graph = as_graph(edge_index, features.shape[0], edge_weight=edge_weight, directed=directed)

    work: AbstractContextManager[list[Floats]]
    if workspace is None:
        work = nullcontext([np.empty(features.shape, np.float32) for _ in range(2)])
    else:
        work = scratch(workspace, features.shape, 2)
    with work as (unit, new_unit):
        lengths = _unit_rows(features, unit, result)
        step = step_of(graph, features.shape[1], alpha, 0 if workspace is None else memory)
        free = releasing(graph.indices, graph.weights, unit, result, new_unit)
        for layer in range(num_layers):
            title = f"KS vectors, step {layer + 1} of {num_layers}" if progress else None
            new_lengths = np.empty_like(lengths)
            with threads.native_progress(title, graph.num_edges) as report:
                step(unit, lengths, result, new_unit, new_lengths, report, free)
            unit, new_unit = new_unit, unit
            lengths = new_lengths
    normalise(result)
    return result


def step_of(graph: Graph, d: int, alpha: float, memory: int = 0) -> Callable[..., None]:
    """Return the function that takes a step on a graph, for ``d`` features; see ``CsrGraph.step``.

    ``memory`` bounds blocks of matrices in files, 0 in memory.
    """
    count = threads.num_native_threads(2.0 * d * graph.num_edges)
    native = native_graph(graph)
    if not memory:
        return partial(native.step, alpha, count)
    n = graph.num_nodes
    # Three quarters of the memory are for a row, two sums (one in float64) and the neighbours of
    # each node.
    entry = 4 if graph.weights is None else 8
    height = max(memory * 3 // 4 // (16 * d + entry * graph.num_edges // n + 32), 1)
    width = max(memory // (16 * d), 1)

    def take(
        unit: Floats,
        lengths: Floats,
        aggregate: Floats,
        new_unit: Floats,
        new_lengths: Floats,
        progress: Callable[[int], None] | None = None,
        release: Callable[[], None] | None = None,
    ) -> None:
        for first in range(0, n, height):
            rows = slice(first, first + height)
            block = _native.BlockStep(native, first, unit[rows], count)
            for low in range(0, n, width):
                block.gather(unit[low : low + width], low, lengths, release)
            block.finish(
                alpha, lengths[rows], aggregate[rows], new_unit[rows], new_lengths[rows], release
            )
            if progress is not None:
                progress(int(graph.indptr[min(first + height, n)]))

    return take


def normalise(rows: Floats) -> Doubles:
    """Divide rows by their norms in place; return the norms."""
    norms = np.empty(len(rows))
    _native.normalise_rows(rows, norms, threads.num_threads(rows.size), releasing(rows))
    return norms


def relative_lengths(norms: Doubles, largest: float) -> Floats:
    """Return the norms of features divided by the largest one, (n,).

    KS vectors do not change if all features are scaled together, and no vector outgrows the longest
    initial one, so nothing overflows later.
    """
    return (norms / (largest or 1.0)).astype(np.float32)


@overload
def ks_similarity(
    X: Any, v: ArrayLike, u: ArrayLike, *, dtype: type[np.float32] = np.float32
) -> Floats: ...
@overload
def ks_similarity(X: Any, v: ArrayLike, u: ArrayLike, *, dtype: type[np.float64]) -> Doubles: ...
def ks_similarity(X: Any, v: ArrayLike, u: ArrayLike, *, dtype: Any = np.float32) -> Array:
    """Return the KS scores of pairs of nodes: inner products of KS vectors, as in a search.

    Parameters
    ----------
    X
        KS vectors of :func:`ks_vectors`, shape (n, d). Only the rows of ``v`` and ``u`` are read.
    v, u
        Node numbers in 0..n-1: integers, or arrays of shapes that broadcast against each other.
    dtype
        ``numpy.float32``: the inner products, with the arithmetic and the bits of a search.
        ``numpy.float64``: the cosines of the rows, to print a few pairs. A cosine is 1 only for
        rows that are equal bit for bit, and within (d + 10) 2**-52 of the exact cosine of the rows.
        :func:`cfe_faiss.base.text.similarity_error` bounds the error that the rounding of the rows
        adds.

    Returns
    -------
    ndarray
        Scores of the given ``dtype``, in the common shape of ``v`` and ``u``. A zero row has
        similarity 0 to every row.

    Raises
    ------
    TypeError
        If ``X`` does not hold real numbers, ``v`` or ``u`` not integers, or ``dtype`` is another
        type.
    ValueError
        If a node number is not in 0..n-1, the shapes do not broadcast, or a row of ``v`` or ``u``
        is not finite.

    Examples
    --------
    >>> X = np.array([[1.0, 0.0], [0.6, 0.8]], dtype=np.float32)
    >>> ks_similarity(X, 0, [0, 1])
    array([1. , 0.6], dtype=float32)
    """
    if dtype not in (np.float32, np.float64):
        raise TypeError(f"dtype must be numpy.float32 or numpy.float64, got {dtype!r}")
    return compare_rows(X, v, u, _products if dtype == np.float32 else _cosines, dtype)


def compare_rows(
    X: Any,
    v: ArrayLike,
    u: ArrayLike,
    function: Callable[[Floats, Floats], Array],
    dtype: Any = np.float64,
) -> Array:
    """Return a function of pairs of rows of X, in blocks.

    See :func:`ks_similarity` for arguments and errors.
    """
    matrix = as_array("X", X)
    check_shape("X", matrix, ("n", "d"))
    left = as_array("v", v)
    right = as_array("u", u)
    left = as_ids("v", left.ravel(), len(matrix)).reshape(left.shape)
    right = as_ids("u", right.ravel(), len(matrix)).reshape(right.shape)
    try:
        left, right = np.broadcast_arrays(left, right)
    except ValueError:
        raise ValueError(
            f"v and u must have shapes that broadcast, got {left.shape} and {right.shape}"
        ) from None
    scores = np.empty(left.size, dtype=dtype)
    for first in range(0, left.size, _PAIRS_PER_BLOCK):
        pairs = slice(first, first + _PAIRS_PER_BLOCK)
        x = as_matrix("X", matrix[left.flat[pairs]])
        scores[pairs] = function(x, as_matrix("X", matrix[right.flat[pairs]]))
    return scores.reshape(left.shape)


def _products(x: Floats, y: Floats) -> Floats:
    """Return the inner product of each row of x and of y with the arithmetic of a search."""
    pairs = np.arange(len(x))
    scores = np.empty(len(x), np.float32)
    _native.row_scores(_COSINE, x, y, pairs, pairs, scores)
    return scores


def _cosines(x: Floats, y: Floats) -> Doubles:
    """Return the cosine of rows of x and y as 1 - |x - y|**2 / 2 of unit rows.

    It has no cancellation near 1.
    """
    rows = np.stack([x, y]).astype(np.float64)
    lengths = np.linalg.norm(rows, axis=2, keepdims=True)
    unit = rows / np.where(lengths > 0, lengths, 1)
    cosines = 1 - ((unit[0] - unit[1]) ** 2).sum(axis=1) / 2
    cosines = np.where((x == y).all(axis=1), 1.0, np.clip(cosines, -1.0, np.nextafter(1.0, 0.0)))
    result: Doubles = np.where((lengths > 0).all(axis=(0, 2)), cosines, 0.0)
    return result


def _as_features(x: Any) -> Any:
    """Return ``x`` as an array or CSR matrix of shape (n, d).

    Its values are checked block by block, when read.
    """
    if is_sparse(x):
        if x.dtype.kind not in "biuf":
            raise TypeError(f"x must be a matrix of real numbers, got dtype {x.dtype}")
        features = x.tocsr()
    else:
        features = as_array("x", x.to_dense() if hasattr(x, "to_dense") else x)
    if features.ndim != 2 or 0 in features.shape:
        raise ValueError(f"x must have shape (n, d) with n, d >= 1, got {features.shape}")
    return features


def _check_out(out: Floats, shape: tuple[int, int]) -> Floats:
    if not isinstance(out, np.ndarray) or out.dtype != np.float32:
        raise TypeError(
            f"out must be a float32 array, got {getattr(out, 'dtype', type(out).__name__)}"
        )
    if out.shape != shape:
        raise ValueError(f"out must have the shape of x, {shape}, got {out.shape}")
    if not (out.flags.c_contiguous and out.flags.writeable):
        raise ValueError(f"out must be C-contiguous and writeable, got flags\n{out.flags}")
    return out


def _unit_rows(features: Any, unit: Floats, aggregate: Floats) -> Floats:
    """Fill ``unit`` with the rows divided by their norms and ``aggregate`` with x^0.

    Return the lengths of x^0.
    """
    norms = np.empty(len(unit), dtype=np.float64)
    step = max(_VALUES_PER_TASK // unit.shape[1], 1)
    blocks = [slice(first, first + step) for first in range(0, len(unit), step)]

    def normalise(rows: slice) -> None:
        with np.errstate(over="ignore"):
            unit[rows] = features[rows].toarray() if is_sparse(features) else features[rows]
        _native.normalise_rows(unit[rows], norms[rows], threads=1)
        release(unit, features)

    threads.run(normalise, blocks, work=unit.size)
    finite = np.isfinite(norms)
    if not finite.all():
        raise ValueError(
            f"x must be finite in float32, got NaN, infinity or beyond in row {np.argmin(finite)}"
        )
    lengths = relative_lengths(norms, norms.max())

    def scale(rows: slice) -> None:
        np.multiply(unit[rows], lengths[rows, None], out=aggregate[rows])
        release(unit, aggregate)

    threads.run(scale, blocks, work=unit.size)
    return lengths
