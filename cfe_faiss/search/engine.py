"""By which engine a search goes, and with what; :mod:`cfe_faiss.search.plan` decides it."""

from enum import Enum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Engine(Enum):
    """What searches."""

    SINGLE = "each query is ranked, and its lists are scanned, alone"
    BATCHED = "groups of near queries are ranked by their mean, and scanned list by list"
    PAIRS = "each pair of stored rows is multiplied once"


class Plan(NamedTuple):
    """What a search does: the engine, lists probed, bytes for copies of vectors, and which rows are allowed, (n,)."""

    engine: Engine
    nprobe: int
    memory: int
    allowed: NDArray[np.bool_] | None = None

    @property
    def batched(self) -> bool:
        """Whether queries are searched in groups."""
        return self.engine is Engine.BATCHED
