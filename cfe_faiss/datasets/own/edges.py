"""The graph: an edge list in terms of the users' ids, or the nearest neighbours of each row of a table."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.checks import as_count
from cfe_faiss.base.tables import read_graph
from cfe_faiss.datasets.own.ids import Ids
from cfe_faiss.datasets.own.table import Source, read_table


def read_edges(source: Source, ids: Ids) -> Any:
    """Read a graph.

    Where nodes have ids: two columns of ids, of ``.csv`` or ``.parquet`` with a header or ``.txt`` without one; which
    ones, where there are more, says the source. Where they go by their number, also all that
    :func:`cfe_faiss.base.tables.read_graph` reads.

    Returns
    -------
    ndarray or scipy.sparse matrix
        The edges, (2, E) int64, or the adjacency matrix of an .npz file. E is 0 where a file holds a header only.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it does not hold that, or names an unknown node.
    """
    path = source.path
    if path.suffix in (".npy", ".npz"):
        if ids.column is not None or source.columns:
            raise ValueError(f"{path} must be .csv, .parquet or .txt where nodes have ids or columns are named")
        return read_graph(path)
    if path.suffix == ".txt" and ids.column is None and not source.columns:
        return read_graph(path)
    table = read_table(path, empty=True)
    names = source.columns or tuple(table.columns)
    if len(names) != 2:
        raise ValueError(
            f"{path} must hold two columns of nodes, got {len(names)} ({', '.join(names[:20])}); "
            f"to name two: {path}:COLUMN,COLUMN"
        )
    for name in names if table.has_header else ():
        if ids.find([name])[0] >= 0:
            raise ValueError(f"{path} must begin with a header, the names of its columns, got node {name!r} there")
    return np.stack([ids.known(table, name) for name in names])


def nearest_neighbours(x: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    """Join each row to its k nearest others by Euclidean distance; the graph is the union, as that of the patients.

    Returns
    -------
    ndarray
        (2, n k) int64. O(n^2 d) time at worst, for many columns.

    Raises
    ------
    TypeError, ValueError
        If k is not in 1..n-1.
    """
    k = as_count("neighbours", k)
    if k >= len(x):
        raise ValueError(f"neighbours must be less than the number of nodes, {len(x):,}, got {k}")
    from sklearn.neighbors import kneighbors_graph  # takes a second, which a search need not wait for

    graph = kneighbors_graph(x, k).tocoo()
    return np.stack([graph.row, graph.col]).astype(np.int64)
