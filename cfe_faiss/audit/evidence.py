"""Rows, attributes and names that the audits take from a finder, and results without the query itself."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.attributes.table import Attributes
from cfe_faiss.audit.tables import Ints
from cfe_faiss.base.checks import UNKNOWN, as_names
from cfe_faiss.data.classes import check_in_common, in_words_of_decision
from cfe_faiss.finder import EvidenceFinder


def check_finder(finder: Any) -> None:
    """Raise TypeError for another object than a finder, such as an index."""
    if not isinstance(finder, EvidenceFinder):
        hint = "; make one by EvidenceFinder.from_index(index, ...)" if hasattr(finder, "search_evidence") else ""
        raise TypeError(f"finder must be an EvidenceFinder, got {type(finder).__name__}{hint}")


def drop_self(D: NDArray[np.float32], I: Ints, ids: Ints) -> tuple[NDArray[np.float32], Ints]:
    """Return k of k + 1 results: without the query itself, or without the last where it is not found."""
    order = np.argsort(ids[:, None] == I, axis=1, kind="stable")[:, :-1]
    return np.take_along_axis(D, order, axis=1), np.take_along_axis(I, order, axis=1)


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


def with_truth(finder: EvidenceFinder, favourable: Sequence[int], truth_favourable: Any) -> EvidenceFinder:
    """Return a finder whose true classes are in the words of the decision.

    Raises
    ------
    ValueError
        If they have words of their own, and ``truth_favourable`` does not say which of them agree with ``favourable``.
    """
    labels, truth = finder.labels, finder.truth
    if truth_favourable is not None and (truth is None or not len(favourable)):
        lacking = "truth" if truth is None else "favourable"
        raise ValueError(f"truth_favourable must come with {lacking}, got {truth_favourable!r} without")
    if truth is None:
        return finder
    if truth_favourable is None:
        check_in_common("truth", labels, truth, finder.class_names)
        return finder
    wanted = finder.class_numbers("truth_favourable", truth_favourable)
    chosen = np.array(favourable, np.int32)
    return replace(finder, truth=in_words_of_decision(labels, truth, chosen, wanted, finder.class_count))


def attributes_of(finder: EvidenceFinder) -> Attributes:
    """Return the attributes of all rows. ValueError if the finder has none."""
    if finder.attributes is None:
        raise ValueError("finder must know attributes, got none: make it with features=")
    return finder.attributes


def sensitive_of(finder: EvidenceFinder, sensitive: Any) -> tuple[str, ...]:
    """Return the names in ``sensitive``, each once; None means ``finder.sensitive``. TypeError for other input."""
    return finder.sensitive if sensitive is None else as_names("sensitive", sensitive)
