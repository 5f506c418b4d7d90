"""The interface of every evidence index in this process: what a caller may use, whatever the kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cfe_faiss._native import Reading, Writing
from cfe_faiss.index.transaction import Transaction
from cfe_faiss.rows.snapshot import Members, Snapshot
from cfe_faiss.search.query import Effort, Queries, Query, Ranges, Results


@runtime_checkable
class EvidenceIndex(Protocol):
    """What :class:`cfe_faiss.IndexEvidenceFlat`, the inverted files and a sharded index have in common.

    ``isinstance(x, cfe_faiss.EvidenceIndex)`` checks that the names exist. To find out what an index can do, ask the
    attributes below.

    Attributes
    ----------
    d, ntotal, is_trained
        As in FAISS.
    has_lists
        Whether the index has lists: whether ``nprobe`` has an effect.
    stores_codes
        Whether FAISS's lists hold codes instead of vectors.
    k_factor
        Vectors that are scored for each result, where they are screened by their codes; None elsewhere.
    refusal
        Why the index cannot be changed; empty if it can.
    origins
        File that the index was first read from or written to, and the last one written.
    """

    d: int
    ntotal: int
    is_trained: bool
    has_lists: bool
    stores_codes: bool
    k_factor: float | None
    refusal: str
    origins: tuple[Path, ...]

    @property
    def choice(self) -> str | None:
        """Element type of the blocks, "float" or "byte", that :meth:`prepare` pinned; None before it."""

    @property
    def keeps_vectors(self) -> bool:
        """Whether the index has the vectors in float32."""

    # --- asking -----------------------------------------------------------------------------------------------------

    def search_evidence(  # noqa: PLR0913
        self,
        xq: ArrayLike,
        labels_q: ArrayLike,
        k: int,
        nprobe: int | None = None,
        *,
        recall: float | None = None,
        exact: bool = False,
        sel: Any = None,
        memory: int | None = None,
        progress: bool = False,
    ) -> Results:
        """Return D, I: the evidence of vectors with their predicted classes."""

    def search_stored(  # noqa: PLR0913
        self,
        ids: ArrayLike | None = None,
        k: int = 10,
        nprobe: int | None = None,
        *,
        recall: float | None = None,
        exact: bool = False,
        sel: Any = None,
        memory: int | None = None,
        progress: bool = False,
    ) -> Results:
        """Return D, I: the evidence of stored rows."""

    def range_search_evidence(self, xq: ArrayLike, labels_q: ArrayLike, threshold: float, *, sel: Any = None) -> Ranges:
        """Return lims, D, I: all evidence above a similarity."""

    def search(
        self, x: ArrayLike, k: int, *, params: Any = None, D: Any = None, I: Any = None, **stock: Any
    ) -> Results:
        """Return D, I: the nearest rows, or evidence with ``EvidenceParameters``."""

    def recall_by_class(self, recall: float, k: int = 10, *, queries: int | None = None) -> dict[int, float]:
        """Return the measured recall@k of each stored class."""

    def prepare(self, k: int = 10, recall: float | None = 0.95) -> None:
        """Do the first-use work of searches now, and keep its results for the index file."""

    def answer(self, query: Query, effort: Effort, progress: bool = False) -> Results:
        """Return D, I of a query."""

    def answer_on(self, snapshot: Snapshot, query: Query | Queries, effort: Effort, progress: bool = False) -> Results:
        """Return D, I of a query for whoever is inside of :meth:`reading`."""

    def as_effort(
        self, nprobe: int | None = None, recall: float | None = None, exact: bool = False, memory: int | None = None
    ) -> Effort:
        """Return the effort of a search with these arguments, checked."""

    def resolve_effort(self, effort: Effort) -> Effort:
        """Return an effort with what it leaves open taken from the index."""

    # --- rows -------------------------------------------------------------------------------------------------------

    def reading(self) -> Reading[Snapshot]:
        """Return a context manager that holds the read lock and returns the snapshot."""

    def storage(self) -> Snapshot:
        """Return the stored rows, read-only."""

    def members(self) -> Members:
        """Return the ids in ascending order, and the row and label of each."""

    def reconstruct_batch(self, key: ArrayLike, x: Any = None, **_: Any) -> NDArray[np.float32]:
        """Return the vectors of some ids, (n, d)."""

    # --- changes ----------------------------------------------------------------------------------------------------

    def changing(self) -> Writing[Transaction]:
        """Return a context manager that holds the write lock and returns a transaction."""

    def train(self, x: ArrayLike) -> None:
        """Learn the lists from vectors."""

    def add_with_labels(self, x: ArrayLike, labels: ArrayLike, ids: ArrayLike | None = None) -> None:
        """Add vectors with their predicted classes."""

    def relabel(self, labels: ArrayLike, ids: ArrayLike | None = None) -> None:
        """Replace the classes of rows."""

    def remove_ids(self, x: Any) -> int:
        """Remove rows, and return how many they were."""

    def reset(self) -> None:
        """Remove all rows."""

    # --- files ------------------------------------------------------------------------------------------------------

    def parts(self) -> tuple[Any, dict[str, Any], dict[str, NDArray[Any]]]:
        """Return FAISS's part, parameters and arrays of the index file."""
