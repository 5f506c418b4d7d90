"""How a search goes, decided once and in one place: by which engine, and in how many lists.

Whether queries are searched in groups depends on numbers only, never on a measured time: a group probes other lists
than its queries would alone, and the same call is to give the same results on every machine. What blocks hold, floats
or bytes, changes the time alone, and is measured (:mod:`cfe_faiss.search.element`).
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cfe_faiss import _native
from cfe_faiss.base.checks import as_count, as_number
from cfe_faiss.search import batch, recall
from cfe_faiss.search.engine import Calibration, Engine, Plan
from cfe_faiss.search.searcher import InvertedLists

_QUERIES_PER_LIST = 4
_FEW = 2000  # queries; to search them exactly takes about as long as to calibrate
_PASSES = 8  # of a query over all rows take about as long as to make blocks of them


class SearchArguments(NamedTuple):
    """How hard to search: in ``nprobe`` lists (None: the index's own number), for a recall, or exactly.

    And among which storage rows, (n,): None for all; and whether the search of a row goes on until it is complete.
    """

    nprobe: int | None
    recall: float | None
    exact: bool
    memory: int
    allowed: NDArray[np.bool_] | None = None
    complete: bool = True

    @classmethod
    def of(cls, nprobe: int | None, recall: float | None, exact: bool, memory: int | None) -> "SearchArguments":
        """Check the arguments of a search."""
        if (nprobe is not None) + (recall is not None) + bool(exact) > 1:
            raise ValueError(
                f"only one of nprobe, recall and exact may be given, got nprobe={nprobe}, recall={recall}, "
                f"exact={exact}"
            )
        if nprobe is not None:
            nprobe = as_count("nprobe", nprobe)
        if recall is not None:
            recall = as_number("recall", recall, math.nextafter(0, 1), 1)
            exact, recall = recall == 1, None if recall == 1 else recall
        return cls(nprobe, recall, bool(exact), batch.MEMORY if memory is None else as_count("memory", memory))

    def among(self, allowed: NDArray[np.bool_] | None) -> "SearchArguments":
        """Return the same among some storage rows."""
        return self._replace(allowed=allowed)


def plan(
    lists: InvertedLists,
    nq: int,
    k: int,
    arguments: SearchArguments,
    nprobe: int,
    *,
    all_rows: bool = False,
    stored: bool = True,
) -> Plan:
    """Decide how to search for the k best of each of ``nq`` queries.

    Parameters
    ----------
    lists
        Of an index that is not empty.
    arguments, nprobe
        What the caller wants; and the index's own number of lists, where that says nothing.
    all_rows, stored
        Whether the queries are all stored rows, or stored rows at all.
    """
    found = None if arguments.recall is None else calibration_for(lists, nq, k, arguments, stored=stored)
    wanted = _nprobe(lists, arguments, nprobe) if found is None else found.most
    if found is not None and found.least >= lists.number:
        found = None
    # Where blocks hold floats, what a processor without byte products has, a matrix product serves both of a pair.
    all_pairs = all_rows and arguments.allowed is None and found is None and wanted >= lists.number
    if all_pairs and lists.ranking is not None and not _native.has_bytes():
        return Plan(Engine.PAIRS, wanted, arguments.memory)
    batched = is_batched(lists, nq, wanted) and (found is None or in_groups(lists, nq, stored))
    engine = Engine.BATCHED if batched else Engine.SINGLE
    return Plan(engine, wanted, arguments.memory, arguments.allowed, found)


def _nprobe(lists: InvertedLists, arguments: SearchArguments, nprobe: int) -> int:
    if arguments.exact or arguments.recall is not None:
        return lists.number
    return nprobe if arguments.nprobe is None else arguments.nprobe


def calibration_for(
    lists: InvertedLists, nq: int, k: int, arguments: SearchArguments, *, stored: bool = True
) -> Calibration | None:
    """Return how many lists so many queries have to probe for the wanted recall@k; None for all lists."""
    if arguments.recall is None or (arguments.allowed is not None and nq <= _FEW):
        return None  # what is allowed may never be asked for again, and to measure takes longer
    k, batched = min(k, lists.storage.n), in_groups(lists, nq, stored)
    return recall.calibration(
        lists, k, arguments.recall, batched=batched, complete=arguments.complete, allowed=arguments.allowed
    )


def in_groups(lists: InvertedLists, nq: int, stored: bool) -> bool:
    """Return whether so many queries are calibrated in groups.

    The groups of new queries may be wider than those of stored rows that recall is measured on.
    """
    return stored and is_batched(lists, nq, lists.number // 2)


def known_nprobe(lists: InvertedLists, k: int, wanted: float, label: int, *, complete: bool = True) -> int | None:
    """Return the number of lists that a single query has to probe for a recall@k, if it was measured before."""
    found = lists.calibrations.get((min(k, lists.storage.n), wanted, False, complete))
    return None if found is None else found.nprobe.get(label, found.other)


def is_batched(lists: InvertedLists, nq: int, nprobe: int) -> bool:
    """Return whether so many queries are searched in groups, list by list."""
    everything = nprobe >= lists.number
    if lists.ranking is None or (lists.screening is not None and not everything):
        return False
    # The mean of a few queries says less of each of them than they do themselves; where all lists are probed, it
    # decides nothing.
    enough = everything or nq >= _QUERIES_PER_LIST * lists.centroids.shape[1]
    return enough and nq * lists.scanned(nprobe) >= _PASSES * lists.storage.n
