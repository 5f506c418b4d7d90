"""Search in an inverted file: route each query to a few lists, scan them, and go on while a row is incomplete."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.index import scan
from cfe_faiss.index.exact import Results, padded
from cfe_faiss.index.routing import FEW, Routes, nearest_lists
from cfe_faiss.index.storage import Storage
from cfe_faiss.parallel import num_threads, run

_CHUNK = 256
_EVERYTHING = np.empty(0, bool)


@dataclass(frozen=True)
class Lists:
    """The lists of all partitions; valid while the index lives and until it changes.

    Attributes
    ----------
    storage
        The rows, in the lists of the first partition.
    centroids
        Of all partitions, (partitions, nlist, d).
    references
        Storage rows in the lists of the other partitions, one list after the other, ((partitions - 1) * n,) int32.
    reference_starts
        Where each of those lists begins and, last, their end, ((partitions - 1) * nlist + 1,) int64.
    routes
        For routing to the evidence of a query's class; None for routing to the nearest centroids.
    """

    storage: Storage
    centroids: NDArray[np.float32]
    references: NDArray[np.int32]
    reference_starts: NDArray[np.int64]
    routes: Routes | None

    @property
    def number(self) -> int:
        """How many lists there are in all partitions together."""
        return len(self.centroids) * len(self.centroids[0])

    def probe(
        self, X: NDArray[np.float32], labels: NDArray[np.int32], width: int, nprobe: int, allowed: NDArray[np.bool_]
    ) -> Results:
        """Return D, I of unit queries from the ``nprobe`` lists that each is routed to, (nq, width)."""
        if self.routes is None:
            lists = nearest_lists(X, self.centroids, nprobe)
        else:
            lists = self.routes.lists(X, labels, nprobe)
        D, I = scan.empty_heaps(len(X), width)
        storage = self.storage
        scan.scan_lists(
            X,
            labels,
            lists,
            storage.starts,
            storage.addresses,
            storage.id_addresses,
            storage.labels,
            self.references,
            self.reference_starts,
            allowed,
            D,
            I,
            scan.screening_error(storage.d),
        )
        scan.sort_heaps(D, I)
        return D, I


def search(
    lists: Lists,
    X: NDArray[np.float32],
    labels: NDArray[np.int32],
    k: int,
    nprobe: int,
    *,
    complete: bool,
    allowed: NDArray[np.bool_] | None,
    progress: str | None,
) -> Results:
    """Search unit queries, (nq, d), with labels, (nq,), among the allowed storage rows, (n,), of which there are some.

    With ``complete``, the search of a row goes on in four times as many lists until it holds min(k, eligible) results.
    """
    width = min(k, lists.storage.n)
    mask = _EVERYTHING if allowed is None else allowed
    if 0 < len(X) <= FEW:
        D, I = lists.probe(X, labels, width, nprobe, mask)
        if not complete or I[:, -1].min() >= 0:
            return padded(D, I, k)
    D, I = scan.empty_heaps(len(X), width)
    pending = np.arange(len(X))
    while len(pending):
        _probe_side_by_side(lists, X, labels, nprobe, mask, pending, D, I, progress)
        # After all lists there is nothing more to find: a damaged vector in a mapped file (NaN) never is.
        widen = complete and nprobe < lists.number
        pending = _incomplete(lists.storage, labels, allowed, pending, I) if widen else pending[:0]
        nprobe *= 4
    return padded(D, I, k)


def _probe_side_by_side(
    lists: Lists,
    X: NDArray[np.float32],
    labels: NDArray[np.int32],
    nprobe: int,
    mask: NDArray[np.bool_],
    queries: NDArray[np.int64],
    D: NDArray[np.float32],
    I: NDArray[np.int64],
    progress: str | None,
) -> None:
    """Search the lists that some of the queries are routed to, in chunks on all threads, and write their D and I."""

    def probe(cut: slice) -> None:
        chosen = queries[cut]
        D[chosen], I[chosen] = lists.probe(X[chosen], labels[chosen], D.shape[1], nprobe, mask)

    scanned = min(nprobe, lists.number) * lists.storage.n / lists.centroids.shape[1]
    work = float(len(queries)) * lists.storage.d * (lists.number + scanned)
    size = max(1, min(_CHUNK, -(-len(queries) // num_threads(work))))
    cuts = [slice(start, start + size) for start in range(0, len(queries), size)]
    run(probe, cuts, work=work, progress=progress)


def _incomplete(
    storage: Storage,
    labels: NDArray[np.int32],
    allowed: NDArray[np.bool_] | None,
    queries: NDArray[np.int64],
    I: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Return those of the queries whose rows of I hold less than there is."""
    queries = queries[I[queries, -1] < 0]
    if len(queries) == 0:
        return queries
    wanted = np.minimum(storage.eligible(labels[queries], allowed), I.shape[1])
    short: NDArray[np.bool_] = (I[queries] >= 0).sum(axis=1) < wanted
    return queries[short]
