"""Immutable data derived from the stored rows. Every change replaces it as a whole.

A reader takes such an object once, inside the index's lock, and uses nothing else. The object keeps what is derived
later; threads that need the same value wait for the first one to make it.
"""

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.derived import derived, once
from cfe_faiss.coarse.class_centroids import Ranking, Routes
from cfe_faiss.lists import id_map
from cfe_faiss.lists.id_map import Members
from cfe_faiss.lists.storage import Storage
from cfe_faiss.search.pq_codes import Screening
from cfe_faiss.search.searcher import InvertedLists
from cfe_faiss.search.taken_over import Before, TakenOver


@dataclass(frozen=True, eq=False)
class State:
    """An index as it is between two changes.

    Attributes
    ----------
    storage
        Where the rows lie, and their labels.
    """

    storage: Storage

    @derived
    def members(self) -> Members:
        """The ids in ascending order, and the storage row and label of each."""
        return id_map.of(self.storage)


@dataclass(frozen=True, eq=False)
class ListsState(State):
    """An inverted file as it is between two changes.

    Attributes
    ----------
    centroids
        Of all partitions, (partitions, nlist, d).
    references, reference_starts
        Storage rows in the lists of the other partitions, one list after the other, and where each of those begins.
    screening
        For screening vectors by their codes; None where vectors have none.
    in_memory
        Whether the rows are in memory, not mapped from a file.
    is_trained
        Whether the index was trained.
    from_file
        What routes queries to the evidence of their class, if the index came with it.
    before
        What is taken over from before the last changes. The searcher has it, too, and lets it go once it has made
        blocks of its own, so that the old ones are freed.
    """

    centroids: NDArray[np.float32]
    references: NDArray[np.int32]
    reference_starts: NDArray[np.int64]
    screening: Screening | None
    in_memory: bool
    is_trained: bool
    from_file: Routes | None = None
    before: Before = field(default_factory=Before)
    searchers: dict[str, InvertedLists] = field(default_factory=dict)

    @derived
    def ranking(self) -> Ranking:
        """What lists are ranked by for the evidence of a class."""
        before = self.before.taken_over
        taken_over = (None, None) if before is None else (before.centroids, before.changed)
        return Ranking(self.storage, self.references, self.reference_starts, self.from_file, *taken_over)

    @property
    def routes(self) -> Routes:
        """Where the evidence of each class lies."""
        return self.ranking.routes

    def taken_over(self, lists: NDArray[np.int64]) -> TakenOver | None:
        """Return what an index takes over after some of its lists have changed, or None."""
        searcher = self.searchers.get("evidence")
        if searcher is not None:
            return searcher.taken_over(lists)
        before = self.before.taken_over
        return None if before is None else before.after(lists)

    def searcher(self, routing: str, k_factor: float | None = None) -> InvertedLists:
        """Return what searches the lists; it is kept, with all that it works out.

        ``k_factor`` says how many vectors are scored for each result, where they are screened by their codes.
        """
        kept = once(self.searchers, routing, lambda: self._new_searcher(routing))
        if kept.screening is not None and k_factor is not None and kept.screening.k_factor != k_factor:
            screening = replace(kept.screening, k_factor=k_factor)
            self.searchers[routing] = kept = replace(kept, screening=screening, calibrations={})
        return kept

    def _new_searcher(self, routing: str) -> InvertedLists:
        return InvertedLists(
            self.storage,
            self.centroids,
            self.references,
            self.reference_starts,
            self.ranking if routing == "evidence" else None,
            self.screening,
            self.in_memory,
            before=self.before if routing == "evidence" else Before(),
        )
