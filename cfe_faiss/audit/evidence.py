"""Evidence, attributes and true classes that the audits take from a finder."""

from typing import Any

import numpy as np

from cfe_faiss.attributes.table import Attributes
from cfe_faiss.audit.tables import Ints
from cfe_faiss.base.checks import as_names
from cfe_faiss.finder import EvidenceFinder
from cfe_faiss.index.kinds import EvidenceIndex
from cfe_faiss.lists.id_map import Members
from cfe_faiss.search.exact import Results


def search_members(index: EvidenceIndex, ids: Ints | None, k: int, nprobe: int | None, progress: str | None) -> Results:
    """Return the evidence of stored vectors. An exact index has no lists and ignores ``nprobe``."""
    options: dict[str, Any] = {"nprobe": nprobe} if hasattr(index, "nlist") else {}
    return index.search_members(ids, k, progress=progress, **options)


def audited(finder: EvidenceFinder, nodes: Any) -> tuple[Members, Ints]:
    """Return the stored rows, and the positions among them of ``nodes``, each once; None means all rows."""
    members = finder.index.members()
    if nodes is None:
        return members, np.arange(len(members.ids))
    return members, np.searchsorted(members.ids, np.unique(finder.searched("nodes", nodes)))


def attributes_of(finder: EvidenceFinder) -> Attributes:
    """Return the attributes of all rows. ValueError if the finder has none."""
    if finder.attributes is None:
        raise ValueError("finder must know attributes, got none: make it with features=")
    return finder.attributes


def sensitive_of(finder: EvidenceFinder, sensitive: Any) -> tuple[str, ...]:
    """Return the names in ``sensitive``, each once; None means ``finder.sensitive``. TypeError for other input."""
    return finder.sensitive if sensitive is None else as_names("sensitive", sensitive)
