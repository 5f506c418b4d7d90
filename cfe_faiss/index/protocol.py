"""Interface of all evidence indexes: callers use only this, and do not ask for an index's kind."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from numpy.typing import ArrayLike

from cfe_faiss._native import Reading, Writing
from cfe_faiss.base.checks import Array, Floats
from cfe_faiss.index.searching import EvidenceSearcher
from cfe_faiss.rows.snapshot import Members, Snapshot
from cfe_faiss.search.query import Effort, Queries, Query, Results

if TYPE_CHECKING:
    from cfe_faiss.index.base import Transaction


@runtime_checkable
class EvidenceIndex(EvidenceSearcher, Protocol):
    """Interface of :class:`cfe_faiss.IndexEvidenceFlat`, the inverted files and a sharded index.

    ``isinstance(x, cfe_faiss.EvidenceIndex)`` checks that the names exist. To find out what an
    index can do, ask the attributes below.

    Attributes
    ----------
    ntotal, is_trained
        As in FAISS.
    has_lists
        Whether the index has lists: whether ``nprobe`` has an effect.
    stores_codes
        Whether FAISS's lists hold codes instead of vectors.
    k_factor
        Vectors that are scored for each result, where they are screened by their codes; None
        elsewhere.
    refusal
        Why the index is read-only; empty if it is not. Then :meth:`changing` and all changes raise
        RuntimeError; :meth:`relabel` of a sharded index works.
    origins
        File that the index was first read from or written to, and the last one written.
    """

    ntotal: int
    is_trained: bool
    has_lists: bool
    stores_codes: bool
    k_factor: float | None
    refusal: str
    origins: tuple[Path, ...]

    @property
    def choice(self) -> str | None:
        """Element type of the blocks, "float" or "byte", that :meth:`prepare` pinned.

        None before it.
        """

    @property
    def keeps_vectors(self) -> bool:
        """Whether the index has the vectors in float32."""

    # --- searching --------------------------------------------------------------------------------

    def search(
        self,
        x: ArrayLike,
        k: int,
        *,
        params: Any = None,
        D: Any = None,
        I: Any = None,
        **stock: Any,
    ) -> Results:
        """Return D, I: the nearest rows, or evidence with ``EvidenceParameters``."""

    def prepare(self, k: int = 10, recall: float | None = 0.95) -> None:
        """Do the first-use work of searches now, and keep its results for the index file."""

    def answer_on(
        self, snapshot: Snapshot, query: Query | Queries, effort: Effort, progress: bool = False
    ) -> Results:
        """Return D, I of a query, perhaps bound to the snapshot, inside of :meth:`holding`."""

    def resolve_effort(self, effort: Effort) -> Effort:
        """Return an effort with its open fields set to the defaults of the index."""

    # --- rows -------------------------------------------------------------------------------------

    def holding(self) -> Reading[Snapshot]:
        """Return a context manager that holds the read lock and returns the snapshot.

        No code of users runs inside.
        """

    def storage(self) -> Snapshot:
        """Return the stored rows, read-only, without a lock."""

    def members(self) -> Members:
        """Return the ids in ascending order, and the row and label of each."""

    def reconstruct_batch(self, key: ArrayLike, x: Any = None, **_: Any) -> Floats:
        """Return the vectors of some ids, (n, d)."""

    # --- changes ----------------------------------------------------------------------------------

    def changing(self) -> Writing[Transaction]:
        """Return a context manager that holds the write lock and returns a transaction."""

    def train(self, x: ArrayLike) -> None:
        """Learn the lists from vectors."""

    def add_with_labels(
        self, x: ArrayLike, labels: ArrayLike, ids: ArrayLike | None = None
    ) -> None:
        """Add vectors with their predicted classes."""

    def relabel(self, labels: ArrayLike, ids: ArrayLike | None = None) -> None:
        """Replace the classes of rows."""

    def update_vectors(self, ids: ArrayLike, x: ArrayLike, labels: ArrayLike | None = None) -> None:
        """Replace the vectors, and with ``labels`` the classes, of rows."""

    def drift(self) -> float:
        """Return the share of rows that fit another list better than their list."""

    def remove_ids(self, x: Any) -> int:
        """Remove rows, and return how many they were."""

    def reset(self) -> None:
        """Remove all rows."""

    # --- files ------------------------------------------------------------------------------------

    def parts(self) -> tuple[Any, dict[str, Any], dict[str, Array]]:
        """Return FAISS's part, parameters and arrays of the index file."""


def check_index(index: Any) -> None:
    """Raise TypeError unless an object is an evidence index."""
    if not hasattr(type(index), "answer_on"):
        hint = "; give its evidence" if hasattr(index, "evidence") else ""
        raise TypeError(f"index must be an evidence index, got {type(index).__name__}{hint}")
