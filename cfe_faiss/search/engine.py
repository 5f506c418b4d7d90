"""By which engine a search goes, and with what; :mod:`cfe_faiss.search.plan` decides it."""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Engine(Enum):
    """What searches."""

    SINGLE = "each query is ranked, and its lists are scanned, alone"
    BATCHED = "groups of near queries are ranked by their mean, and scanned list by list"
    PAIRS = "each pair of stored rows is multiplied once"


@dataclass(frozen=True, slots=True)
class Calibration:
    """Lists probed for the queries of each class, so that a recall is reached.

    Attributes
    ----------
    nprobe
        Number of lists of each stored class.
    other
        Number of lists for other classes.
    recall
        Recall of each stored class that was measured; small classes have that of all of them together.
    """

    nprobe: dict[int, int]
    other: int
    recall: dict[int, float]

    @property
    def most(self) -> int:
        """The largest number of lists."""
        return max([self.other, *self.nprobe.values()])

    @property
    def least(self) -> int:
        """The smallest number of lists."""
        return min([self.other, *self.nprobe.values()])

    def of(self, labels: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return the number of lists for each of some labels."""
        classes, places = np.unique(labels, return_inverse=True)
        return np.array([self.nprobe.get(label, self.other) for label in classes.tolist()], np.int64)[places]


class Plan(NamedTuple):
    """Engine of a search, lists probed, bytes for copies of vectors, and which rows are allowed, (n,).

    With a calibration, queries of different classes may probe fewer lists than ``nprobe``.
    """

    engine: Engine
    nprobe: int
    memory: int
    allowed: NDArray[np.bool_] | None = None
    calibration: Calibration | None = None

    @property
    def batched(self) -> bool:
        """Whether queries are searched in groups."""
        return self.engine is Engine.BATCHED
