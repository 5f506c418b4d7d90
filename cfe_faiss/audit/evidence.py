"""Evidence, attributes and true classes that the audits take from a finder."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.attributes.table import Attributes
from cfe_faiss.base.checks import as_names
from cfe_faiss.finder import EvidenceFinder
from cfe_faiss.index.kinds import EvidenceIndex
from cfe_faiss.lists.snapshot import Members
from cfe_faiss.search.query import Effort, Query, Results


def search_members(
    index: EvidenceIndex, ids: NDArray[np.int64] | None, k: int, nprobe: int | None, progress: str | None
) -> Results:
    """Return the evidence of stored vectors; ``nprobe`` means nothing to an exact index."""
    return index.answer(Query(k, ids=ids), Effort.of(nprobe), progress)


def audited(finder: EvidenceFinder, nodes: Any) -> tuple[Members, NDArray[np.int64]]:
    """Return the members of the finder's index, and the places among them of the nodes, each once; None: of all."""
    known = finder.index.members()
    if nodes is None:
        return known, np.arange(len(known.ids))
    return known, np.searchsorted(known.ids, np.unique(finder.searched("nodes", nodes)))


def attributes_of(finder: EvidenceFinder) -> Attributes:
    """Return the attributes of all rows; ValueError where the finder knows none."""
    if finder.attributes is None:
        raise ValueError("finder must know attributes, got none: make it with features=")
    return finder.attributes


def sensitive_of(finder: EvidenceFinder, sensitive: Any) -> tuple[str, ...]:
    """Return the names that ``sensitive`` gives, each once; None: those of the finder.

    Raises
    ------
    TypeError
        If they are no sequence of names.
    """
    return finder.sensitive if sensitive is None else as_names("sensitive", sensitive)
