"""One step of the KS propagation: in memory, or by blocks of rows of matrices that lie in files."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from cfe_faiss import _native, parallel
from cfe_faiss.disk import is_mapped, release
from cfe_faiss.graph import Graph, native_graph

_VALUES_PER_TASK = 1 << 20


def row_blocks(n: int, d: int) -> list[tuple[int, int]]:
    """Cut the rows of an (n, d) matrix into ranges (first, stop) for :func:`cfe_faiss.parallel.run`."""
    step = max(_VALUES_PER_TASK // d, 1)
    return [(first, min(first + step, n)) for first in range(0, n, step)]


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
        threads = parallel.num_native_threads(2.0 * d * graph.num_edges)
        self._steps = _native.Propagation(native_graph(graph), alpha, memory or 0, threads)

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
    """Return what gives back the memory that those of the arrays take that are memory maps; None without any."""
    mapped = [array for array in arrays if array is not None and is_mapped(array)]
    return (lambda: release(*mapped)) if mapped else None
