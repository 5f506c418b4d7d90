"""KS vectors: a node together with its neighbourhood, as one unit vector.

The propagation is the one that defines the paper's KS score; inner products of KS vectors are KS scores.
"""

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import scipy.sparse
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.extending import intrinsic
from numpy.typing import ArrayLike, NDArray

from cfe_faiss import parallel
from cfe_faiss.checks import as_array, as_count, as_ids, as_matrix, as_number
from cfe_faiss.dot import pair_similarities
from cfe_faiss.graph import as_graph, balanced_rows
from cfe_faiss.jit import fast_kernel

# Neighbours are summed in float32 in groups of this size and the groups in float64, so that the rounding error of a
# node with a million neighbours stays that of a node with a few hundred.
_GROUP = 256
# Rows of neighbours are asked for this far ahead: on random graphs the pass is bound by the latency of memory.
_AHEAD = 4
_CACHE_LINE = 16  # float32 values
_VALUES_PER_TASK = 1 << 20
_PAIRS_PER_BLOCK = 1 << 14


def ks_vectors(
    x: Any,
    edge_index: Any,
    num_layers: int = 3,
    alpha: float = 0.5,
    *,
    directed: bool = False,
    out: NDArray[np.float32] | None = None,
    progress: bool = False,
) -> NDArray[np.float32]:
    """Return the KS vector of every node: the inner product of two rows is the KS score of the two nodes.

    With x^0 = ``x`` and, for l = 0..L-1 (L is ``num_layers``),

        x^{l+1}_v = alpha x^l_v + (1 - alpha) / |N(v)| * sum_{u in N(v)} cos(x^l_v, x^l_u) x^l_u,

    row v is x^0_v + ... + x^L_v divided by its L2 norm (the paper's definition of the KS score). The cosine with a
    zero vector is 0; a node without neighbours gets x^{l+1}_v = alpha x^l_v; a zero row stays zero.

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
    directed
        False: edges count in both directions. True: N(v) holds the sources of the edges that point to v.
    out
        Where the result goes, for example a memory map: float32, shape (n, d), C-contiguous, writeable. It may be
        ``x`` itself. Default: a new array.
    progress
        Show a progress bar for each step on standard error, if that is a terminal.

    Returns
    -------
    ndarray
        ``out``: shape (n, d), float32, rows of unit length or zero. The same bits whatever the number of threads.
        Takes O(L (E + n) d) time, and memory for two more matrices of this shape.

    Raises
    ------
    TypeError
        If ``x`` does not hold real numbers, or ``edge_index`` integers.
    ValueError
        If a value of ``x`` is NaN, infinite or too large for float32, a node number is not in 0..n-1, the graph has
        no edge, or another argument is out of its range.

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
    graph = as_graph(edge_index, features.shape[0], directed=directed)

    blocks = _row_blocks(*features.shape)
    tasks = balanced_rows(graph.indptr)
    unit, norms = _unit_rows(features, blocks)
    # A plain array, since Numba compiles memory maps and other subclasses apart.
    aggregate = np.asarray(result)
    for first, stop in blocks:
        np.multiply(unit[first:stop], norms[first:stop, None], out=aggregate[first:stop])
    new_unit, new_norms = np.empty_like(unit), np.empty_like(norms)
    for layer in range(num_layers):
        title = f"KS vectors, step {layer + 1} of {num_layers}" if progress else None
        _run_step(tasks, title, graph.indptr, graph.indices, unit, norms, alpha, aggregate, new_unit, new_norms)
        unit, norms, new_unit, new_norms = new_unit, new_norms, unit, norms
    parallel.run(lambda rows: _normalise(aggregate[slice(*rows)], np.empty(rows[1] - rows[0])), blocks)
    return result


def ks_similarity(X: Any, v: ArrayLike, u: ArrayLike) -> NDArray[np.float32]:
    """Return the KS scores of pairs of nodes: the inner products of their KS vectors.

    Parameters
    ----------
    X
        KS vectors as :func:`ks_vectors` returns them, shape (n, d). Only the rows asked for are read.
    v, u
        Node numbers in 0..n-1: integers, or arrays of shapes that broadcast against each other.

    Returns
    -------
    ndarray
        float32, of the common shape of ``v`` and ``u``.

    Raises
    ------
    TypeError
        If ``X`` does not hold real numbers, or ``v`` or ``u`` integers.
    ValueError
        If a node number is not in 0..n-1, the shapes do not broadcast, or a row that is needed is not finite.

    Examples
    --------
    >>> X = np.array([[1.0, 0.0], [0.6, 0.8]], dtype=np.float32)
    >>> ks_similarity(X, 0, [0, 1])
    array([1. , 0.6], dtype=float32)
    """
    matrix = as_array("X", X)
    if matrix.ndim != 2:
        raise ValueError(f"X must have shape (n, d), got {matrix.shape}")
    left, right = _as_nodes("v", v, len(matrix)), _as_nodes("u", u, len(matrix))
    try:
        left, right = np.broadcast_arrays(left, right)
    except ValueError:
        raise ValueError(f"v and u must have shapes that broadcast, got {left.shape} and {right.shape}") from None
    scores = np.empty(left.size, dtype=np.float32)
    for first in range(0, left.size, _PAIRS_PER_BLOCK):
        pairs = slice(first, first + _PAIRS_PER_BLOCK)
        rows = as_matrix("X", matrix[left.flat[pairs]]), as_matrix("X", matrix[right.flat[pairs]])
        scores[pairs] = pair_similarities(*rows)
    return scores.reshape(left.shape)


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


def _row_blocks(n: int, d: int) -> list[tuple[int, int]]:
    step = max(_VALUES_PER_TASK // d, 1)
    return [(first, min(first + step, n)) for first in range(0, n, step)]


def _unit_rows(features: Any, blocks: list[tuple[int, int]]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the rows divided by their norms, and the norms divided by the largest of them.

    KS vectors do not change when all features are scaled together, and no vector grows beyond the longest one at the
    start; so nothing overflows later, however large the features are.
    """
    unit = np.empty(features.shape, dtype=np.float32)
    norms = np.empty(len(unit), dtype=np.float64)
    sparse: bool = scipy.sparse.issparse(features)

    def fill(rows: tuple[int, int]) -> None:
        block = slice(*rows)
        with np.errstate(over="ignore"):
            unit[block] = features[block].toarray() if sparse else features[block]
        _normalise(unit[block], norms[block])

    parallel.run(fill, blocks)
    finite = np.isfinite(norms)
    if not finite.all():
        raise ValueError(f"x must be finite in float32, got NaN, infinity or beyond in row {np.argmin(finite)}")
    return unit, (norms / (norms.max() or 1.0)).astype(np.float32)


def _run_step(tasks: list[tuple[int, int]], progress: str | None, *arguments: Any) -> None:
    parallel.run(lambda rows: _step(*rows, *arguments), tasks, progress=progress)


def _prefetch(typing_context: Any, matrix: Any, row: Any, column: Any) -> Any:
    """Ask for the cache line of one value to be loaded, without waiting for it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = signature.args[0]
        index = [
            context.cast(builder, a, t, types.intp) for a, t in zip(arguments[1:], signature.args[1:], strict=True)
        ]
        array = context.make_array(kind)(context, builder, arguments[0])
        place = cgutils.get_item_pointer(context, builder, kind, array, index, wraparound=False, boundscheck=False)
        number, pointer = ir.IntType(32), ir.IntType(8).as_pointer()
        function = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        prefetch = cgutils.get_or_insert_function(builder.module, function, "llvm.prefetch.p0")
        # LLVM's words for: to read, keep in all levels of the cache, data.
        flags = [ir.Constant(number, flag) for flag in (0, 3, 1)]
        builder.call(prefetch, [builder.bitcast(place, pointer), *flags])

    return types.void(matrix, row, column), generate


_request = cast(Callable[[NDArray[np.float32], int, int], None], intrinsic(_prefetch))


@fast_kernel
def _normalise(rows: NDArray[np.float32], norms: NDArray[np.float64]) -> None:
    """Divide each row by its norm in place; zero rows stay zero."""
    for v in range(rows.shape[0]):
        square = 0.0
        for i in range(rows.shape[1]):
            square += np.float64(rows[v, i]) * np.float64(rows[v, i])
        norms[v] = np.sqrt(square)
        scale = 1.0 / norms[v] if square > 0.0 else 0.0
        for i in range(rows.shape[1]):
            rows[v, i] = np.float32(rows[v, i] * scale)


@fast_kernel
def _step(
    first: int,
    stop: int,
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    unit: NDArray[np.float32],
    norms: NDArray[np.float32],
    alpha: float,
    aggregate: NDArray[np.float32],
    new_unit: NDArray[np.float32],
    new_norms: NDArray[np.float32],
) -> None:
    """One step for the nodes first..stop-1; x^l_u is ``norms[u] * unit[u]``, so a cosine is a plain inner product."""
    d = unit.shape[1]
    last = len(indices) - 1
    part = np.empty(d, dtype=np.float32)
    total = np.empty(d, dtype=np.float64)
    for v in range(first, stop):
        own = unit[v]
        total[:] = 0.0
        for start in range(indptr[v], indptr[v + 1], _GROUP):
            part[:] = 0.0
            for e in range(start, min(start + _GROUP, indptr[v + 1])):
                ahead = indices[min(e + _AHEAD, last)]
                for i in range(0, d, _CACHE_LINE):
                    _request(unit, ahead, i)
                other = unit[indices[e]]
                cosine = np.float32(0.0)
                for i in range(d):
                    cosine += own[i] * other[i]
                weight = cosine * norms[indices[e]]
                for i in range(d):
                    part[i] += weight * other[i]
            for i in range(d):
                total[i] += part[i]

        keep = alpha * norms[v]
        share = (1.0 - alpha) / max(indptr[v + 1] - indptr[v], 1)
        square = 0.0
        for i in range(d):
            total[i] = keep * own[i] + share * total[i]
            aggregate[v, i] += np.float32(total[i])
            square += total[i] * total[i]
        norm = np.sqrt(square)
        new_norms[v] = norm
        scale = 1.0 / norm if norm > 0.0 else 0.0
        for i in range(d):
            new_unit[v, i] = np.float32(total[i] * scale)
