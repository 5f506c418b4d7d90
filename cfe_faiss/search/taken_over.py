"""What an index that has changed takes over from before: what was made of lists that are as they were."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cfe_faiss._native import Blocks, ClassCentroids
from cfe_faiss.search.element import Element

_WORTH = 1 / 8  # of all lists may have changed; from then on, to make all anew takes little more


@dataclass(frozen=True, eq=False)
class TakenOver:
    """What was made of the lists of an index with one partition, and which of them have changed since.

    Attributes
    ----------
    element, alone_by_blocks
        What blocks for many queries hold, and whether single queries are searched in blocks, if that was found out.
    blocks, not_in_blocks
        Blocks of bytes of all lists, which serve single queries, if there were any, and which lists have changed since
        these were made, (nlist,).
    centroids, changed
        What lists are ranked by, if it was made, and which lists have changed since then, (nlist,).
    """

    element: Element | None
    alone_by_blocks: bool | None
    blocks: Blocks | None
    not_in_blocks: NDArray[np.bool_]
    centroids: ClassCentroids | None
    changed: NDArray[np.bool_]

    def after(self, lists: NDArray[np.int64]) -> "TakenOver | None":
        """Return what is left of it after some lists have changed; None where too many have."""
        not_in_blocks, changed = self.not_in_blocks.copy(), self.changed.copy()
        not_in_blocks[lists] = changed[lists] = True
        most = _WORTH * len(changed)
        blocks = self.blocks if np.count_nonzero(not_in_blocks) <= most else None
        centroids = self.centroids
        if centroids is not None and centroids.changed + np.count_nonzero(changed) > most:
            centroids = None
        if blocks is None and centroids is None:
            return None
        return replace(self, blocks=blocks, not_in_blocks=not_in_blocks, centroids=centroids, changed=changed)


@dataclass(slots=True, eq=False)
class Before:
    """What a state and its searcher have of the time before the last changes, until it is let go."""

    taken_over: TakenOver | None = None

    def let_go(self) -> None:
        """Free it, as all that was taken over has been made anew."""
        self.taken_over = None
