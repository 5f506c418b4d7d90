"""Rows, attributes and names that the audits take from a finder, and results without the query itself."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.attributes.table import Attributes
from cfe_faiss.audit.tables import Ints
from cfe_faiss.base.checks import UNKNOWN, as_names
from cfe_faiss.finder import EvidenceFinder


def check_finder(finder: Any) -> None:
    """Raise TypeError for another object than a finder, such as an index."""
    if not isinstance(finder, EvidenceFinder):
        hint = "; make one by EvidenceFinder.from_index(index, ...)" if hasattr(finder, "search_evidence") else ""
        raise TypeError(f"finder must be an EvidenceFinder, got {type(finder).__name__}{hint}")


def canonical_order(vectors: NDArray[np.float32], *keys: NDArray[Any]) -> Ints:
    """Return an order of rows, (n,), that depends on their set: by the bytes of vectors, then by the keys, (n,)."""
    as_bytes = np.ascontiguousarray(vectors).view(f"V{vectors.shape[1] * vectors.itemsize}").ravel()
    distinct, place = np.unique(as_bytes, return_inverse=True)
    order: Ints = np.lexsort((*reversed(keys), place)) if len(distinct) < len(vectors) else np.argsort(place)
    return order


def known_rows(finder: EvidenceFinder, nodes: Any) -> Ints:
    """Return the searched rows with a predicted class, ascending; restricted to ``nodes``, if given."""
    rows = finder.index.members().ids if nodes is None else np.unique(finder.searched("nodes", nodes))
    known: Ints = rows[finder.labels[rows] != UNKNOWN]
    return known


def attributes_of(finder: EvidenceFinder) -> Attributes:
    """Return the attributes of all rows. ValueError if the finder has none."""
    if finder.attributes is None:
        raise ValueError("finder must know attributes, got none: make it with features=")
    return finder.attributes


def sensitive_of(finder: EvidenceFinder, sensitive: Any) -> tuple[str, ...]:
    """Return the names in ``sensitive``, each once; None means ``finder.sensitive``. TypeError for other input."""
    return finder.sensitive if sensitive is None else as_names("sensitive", sensitive)
