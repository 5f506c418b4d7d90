"""What a benchmark knows of an index that was built: how to ask it for one node, or for many."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FIRST_NPROBE = 8
Results = tuple[NDArray[np.float32], NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class Searcher:
    """How to search, and the range of the one parameter that trades recall for time.

    Attributes
    ----------
    one
        ``one(query, setting)``: D, I of one node, (1, K).
    on
        ``on(queries)``: prepares a search of many nodes, and returns what runs it: ``run(setting)`` gives D, I (q, K).
    smallest, largest
        Of the setting: nprobe or efSearch; both 1 where there is nothing to set.
    first
        The setting to begin with.
    whole
        Whether a search of all nodes is another algorithm than that of some, so that only all of them can be timed.
    """

    one: Callable[[int, int], Results]
    on: Callable[[NDArray[np.int64]], Callable[[int], Results]]
    smallest: int
    largest: int
    first: int = 1
    whole: bool = False
