"""KS vectors: a node together with its neighbourhood, as one unit vector.

The propagation is the one that defines the paper's KS score; inner products of KS vectors are KS scores.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, overload

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray
from tqdm import tqdm

from cfe_faiss import _native
from cfe_faiss.base import threads
from cfe_faiss.base.checks import as_array, as_count, as_ids, as_matrix, as_number
from cfe_faiss.base.temporary import is_mapped, release, scratch
from cfe_faiss.graph import Graph, as_graph, native_graph

_PAIRS_PER_BLOCK = 1 << 14
_VALUES_PER_TASK = 1 << 20


def ks_vectors(  # noqa: PLR0913
    x: Any,
    edge_index: Any,
    num_layers: int = 3,
    alpha: float = 0.5,
    *,
    edge_weight: ArrayLike | bool | None = None,
    directed: bool = False,
    out: NDArray[np.float32] | None = None,
    workspace: str | os.PathLike[str] | None = None,
    memory: int = 1 << 30,
    progress: bool = False,
) -> NDArray[np.float32]:
    """Return the KS vector of every node: the inner product of two rows is the KS score of the two nodes.

    With x^0 = ``x`` and, for l = 0..L-1 (L is ``num_layers``)::

        x^{l+1}_v = alpha x^l_v + (1 - alpha) / |N(v)| * sum_{u in N(v)} cos(x^l_v, x^l_u) x^l_u,

    row v is x^0_v + ... + x^L_v divided by its L2 norm (the paper's definition of the KS score). The cosine with a
    zero vector is 0. :doc:`/user_guide/graphs` has the mean weighted by edges, which the paper does not have.

    Parameters
    ----------
    x
        Node features, shape (n, d): array, memory map, tensor or sparse matrix of real numbers.
    edge_index
        The graph: an edge_index of shape (2, E) or anything else that :func:`cfe_faiss.graph.as_graph` takes.
    num_layers
        Number L >= 0 of steps; row v depends on the nodes at most L edges away.
    alpha
        Share in [0, 1] of a node's own vector in each step.
    edge_weight
        None or False: no weights. True: those that the graph holds. An array, (E,): those of the edges of an
        edge_index. A :class:`cfe_faiss.graph.Graph` that was made with weights has them, unless False is said.
    directed
        False: edges count in both directions. True: N(v) holds the sources of the edges that point to v.
    out
        Where the result goes: float32, (n, d), C-contiguous, writeable; it may be ``x``. Default: a new array.
    workspace
        A folder for work matrices of 8 * n * d bytes, read and written by blocks of rows, so that they may be larger
        than memory, with ``x``, ``out`` and the graph as memory maps. Default: all is done in memory.
    memory
        Bytes for the blocks in a ``workspace``. Each step reads a work matrix about 16 * n * d / ``memory`` times.
    progress
        Show a progress bar for each step on standard error, if that is a terminal.

    Returns
    -------
    ndarray
        ``out``: rows of unit length or zero, the same bits whatever the number of threads. O(L (E + n) d) time. Memory
        for two more such matrices; with a ``workspace`` ``memory`` + 32 * n bytes (44 * n with weights).

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, or a value of ``x`` is NaN, infinite or too large for float32.
    OSError
        If the ``workspace`` does not exist, or has no room.

    Examples
    --------
    Nodes 0 and 1 move towards each other; node 2 has no neighbour.

    >>> ks_vectors([[1.0, 0.0], [1.0, 1.0], [0.0, 2.0]], [[0], [1]], num_layers=1).round(3)
    array([[0.982, 0.187],
           [0.777, 0.629],
           [0.   , 1.   ]], dtype=float32)
    """
    num_layers = as_count("num_layers", num_layers, 0)
    alpha = as_number("alpha", alpha, 0.0, 1.0)
    features = _as_features(x)
    result = np.empty(features.shape, dtype=np.float32) if out is None else _check_out(out, features.shape)
    memory = as_count("memory", memory)
    graph = as_graph(edge_index, features.shape[0], edge_weight=edge_weight, directed=directed)

    with _work_matrices(features.shape, workspace) as (unit, new_unit):
        lengths = _unit_rows(features, unit, result)
        propagation = Propagation(graph, features.shape[1], alpha, None if workspace is None else memory)
        for layer in range(num_layers):
            title = f"KS vectors, step {layer + 1} of {num_layers}" if progress else None
            lengths = propagation.step(unit, lengths, result, new_unit, title)
            unit, new_unit = new_unit, unit
    _normalise_rows(result)
    return result


@overload
def ks_similarity(
    X: Any, v: ArrayLike, u: ArrayLike, *, dtype: type[np.float32] = np.float32
) -> NDArray[np.float32]: ...
@overload
def ks_similarity(X: Any, v: ArrayLike, u: ArrayLike, *, dtype: type[np.float64]) -> NDArray[np.float64]: ...
def ks_similarity(X: Any, v: ArrayLike, u: ArrayLike, *, dtype: Any = np.float32) -> NDArray[Any]:
    """Return the KS scores of pairs of nodes: the inner products of their KS vectors.

    Parameters
    ----------
    X
        KS vectors as :func:`ks_vectors` returns them, shape (n, d). Only the rows asked for are read.
    v, u
        Node numbers in 0..n-1: integers, or arrays of shapes that broadcast against each other.
    dtype
        ``numpy.float32``: the inner products, with the arithmetic (and so the bits) of a search. ``numpy.float64``: the
        cosines of the rows, for the few pairs that are shown. These are 1 only for rows that are equal bit for bit, and
        within (d + 10) 2**-52 of the exact cosine of the rows; how much the rows' own rounding leaves of that says
        :func:`cfe_faiss.base.text.similarity_error`.

    Returns
    -------
    ndarray
        Of ``dtype`` and of the common shape of ``v`` and ``u``. A zero row has similarity 0 to every row.

    Raises
    ------
    TypeError
        If ``X`` does not hold real numbers, ``v`` or ``u`` integers, or ``dtype`` is another one.
    ValueError
        If a node number is not in 0..n-1, the shapes do not broadcast, or a row that is needed is not finite.

    Examples
    --------
    >>> X = np.array([[1.0, 0.0], [0.6, 0.8]], dtype=np.float32)
    >>> ks_similarity(X, 0, [0, 1])
    array([1. , 0.6], dtype=float32)
    """
    if dtype not in (np.float32, np.float64):
        raise TypeError(f"dtype must be numpy.float32 or numpy.float64, got {dtype!r}")
    matrix = as_array("X", X)
    if matrix.ndim != 2:
        raise ValueError(f"X must have shape (n, d), got {matrix.shape}")
    left, right = _as_nodes("v", v, len(matrix)), _as_nodes("u", u, len(matrix))
    try:
        left, right = np.broadcast_arrays(left, right)
    except ValueError:
        raise ValueError(f"v and u must have shapes that broadcast, got {left.shape} and {right.shape}") from None
    scores = np.empty(left.size, dtype=dtype)
    for first in range(0, left.size, _PAIRS_PER_BLOCK):
        pairs = slice(first, first + _PAIRS_PER_BLOCK)
        rows = as_matrix("X", matrix[left.flat[pairs]]), as_matrix("X", matrix[right.flat[pairs]])
        if dtype == np.float32:
            _native.pair_similarities(*rows, scores[pairs])
        else:
            scores[pairs] = _cosines(*rows)
    return scores.reshape(left.shape)


def _cosines(x: NDArray[np.float32], y: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the cosine of each row of x and of y: 1 - |x - y|**2 / 2 of unit rows, which cancels nothing near 1."""
    units, lengths = [], []
    for rows in (x.astype(np.float64), y.astype(np.float64)):
        length = np.linalg.norm(rows, axis=1)
        units.append(rows / np.where(length > 0, length, 1)[:, None])
        lengths.append(length)
    cosines = 1 - ((units[0] - units[1]) ** 2).sum(axis=1) / 2
    cosines = np.where((x == y).all(axis=1), 1.0, np.clip(cosines, -1.0, np.nextafter(1.0, 0.0)))
    some: NDArray[np.float64] = np.where((lengths[0] > 0) & (lengths[1] > 0), cosines, 0.0)
    return some


def _as_nodes(name: str, values: ArrayLike, n: int) -> NDArray[np.int64]:
    array = as_array(name, values)
    nodes = as_ids(name, array.ravel()).reshape(array.shape)
    if nodes.size and nodes.max() >= n:
        raise ValueError(f"{name} must lie in 0..{n - 1}, got {nodes.max()}")
    return nodes


def _as_features(x: Any) -> Any:
    """Return ``x`` as an array or CSR matrix of shape (n, d); its values are checked where they are read."""
    sparse: bool = scipy.sparse.issparse(x)
    if sparse:
        if x.dtype.kind not in "biuf":
            raise TypeError(f"x must be a matrix of real numbers, got dtype {x.dtype}")
        features = x.tocsr()
    else:
        features = as_array("x", x.to_dense() if hasattr(x, "to_dense") else x)
    if features.ndim != 2 or 0 in features.shape:
        raise ValueError(f"x must have shape (n, d) with n, d >= 1, got {features.shape}")
    return features


def _check_out(out: NDArray[np.float32], shape: tuple[int, int]) -> NDArray[np.float32]:
    if not isinstance(out, np.ndarray) or out.dtype != np.float32:
        raise TypeError(f"out must be a float32 array, got {getattr(out, 'dtype', type(out).__name__)}")
    if out.shape != shape:
        raise ValueError(f"out must have the shape of x, {shape}, got {out.shape}")
    if not (out.flags.c_contiguous and out.flags.writeable):
        raise ValueError(f"out must be C-contiguous and writeable, got flags\n{out.flags}")
    return out


def _work_matrices(
    shape: tuple[int, int], workspace: str | os.PathLike[str] | None
) -> AbstractContextManager[list[NDArray[np.float32]]]:
    if workspace is None:
        return nullcontext([np.empty(shape, dtype=np.float32) for _ in range(2)])
    return scratch(workspace, shape, 2)


def _unit_rows(features: Any, unit: NDArray[np.float32], aggregate: NDArray[np.float32]) -> NDArray[np.float32]:
    """Fill ``unit`` with the rows divided by their norms, ``aggregate`` with x^0; return the norms of x^0.

    Norms are those of the rows divided by the largest of them: KS vectors do not change when all features are scaled
    together, and no vector grows beyond the longest one at the start; so nothing overflows later.
    """
    norms = np.empty(len(unit), dtype=np.float64)
    blocks = row_blocks(*unit.shape)
    sparse: bool = scipy.sparse.issparse(features)

    def fill(rows: tuple[int, int]) -> None:
        block = slice(*rows)
        with np.errstate(over="ignore"):
            unit[block] = features[block].toarray() if sparse else features[block]
        _native.normalise_rows(unit[block], norms[block], threads=1)
        release(unit, features)

    threads.run(fill, blocks, work=unit.size)
    finite = np.isfinite(norms)
    if not finite.all():
        raise ValueError(f"x must be finite in float32, got NaN, infinity or beyond in row {np.argmin(finite)}")
    lengths = (norms / (norms.max() or 1.0)).astype(np.float32)

    def scale(rows: tuple[int, int]) -> None:
        block = slice(*rows)
        np.multiply(unit[block], lengths[block, None], out=aggregate[block])
        release(unit, aggregate)

    threads.run(scale, blocks, work=unit.size)
    return lengths


def _normalise_rows(matrix: NDArray[np.float32]) -> None:
    norms = np.empty(len(matrix))
    _native.normalise_rows(matrix, norms, threads.num_threads(matrix.size), releasing(matrix))


class Propagation:
    """The steps of one propagation on a graph.

    Parameters
    ----------
    graph
        Its arrays may be memory maps; they must not change meanwhile.
    d
        Number of features.
    alpha
        Share of a node's own vector.
    memory
        How many bytes blocks of the matrices may take, where these lie in files. None: all is done in memory.
    """

    def __init__(self, graph: Graph, d: int, alpha: float, memory: int | None = None) -> None:
        self._graph = graph
        count = threads.num_native_threads(2.0 * d * graph.num_edges)
        self._steps = _native.Propagation(native_graph(graph), alpha, memory or 0, count)

    def step(
        self,
        unit: NDArray[np.float32],
        lengths: NDArray[np.float32],
        aggregate: NDArray[np.float32],
        new_unit: NDArray[np.float32],
        title: str | None = None,
    ) -> NDArray[np.float32]:
        """Fill ``new_unit``, add to ``aggregate``, and return the new lengths: the same bits however it is done.

        With a ``title``, a progress bar of this name is shown on standard error, if that is a terminal.
        """
        new_lengths = np.empty_like(lengths)
        disable = True if title is None else None
        with tqdm(total=self._graph.num_edges, desc=title, disable=disable, leave=False, unit_scale=True) as bar:
            self._steps.step(
                unit,
                lengths,
                aggregate,
                new_unit,
                new_lengths,
                progress=None if bar.disable else lambda done: bar.update(done - bar.n),
                release=releasing(self._graph.indices, self._graph.weights, unit, aggregate, new_unit),
            )
        return new_lengths


def releasing(*arrays: NDArray[np.generic] | None) -> Callable[[], None] | None:
    """Return a function that releases the pages of the memory-mapped arrays; None without any."""
    mapped = [array for array in arrays if array is not None and is_mapped(array)]
    return (lambda: release(*mapped)) if mapped else None


def row_blocks(n: int, d: int) -> list[tuple[int, int]]:
    """Cut the rows of an (n, d) matrix into ranges (first, stop) for :func:`cfe_faiss.base.threads.run`."""
    step = max(_VALUES_PER_TASK // d, 1)
    return [(first, min(first + step, n)) for first in range(0, n, step)]
