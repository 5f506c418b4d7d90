"""Rows, attributes and names that the audits take from a finder, and tables of results."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cfe_faiss.attributes.table import Attributes, as_attributes
from cfe_faiss.base.checks import UNKNOWN, as_names
from cfe_faiss.base.extras import extra
from cfe_faiss.base.text import summary
from cfe_faiss.data.classes import check_in_common, in_words_of_decision
from cfe_faiss.finder import EvidenceFinder
from cfe_faiss.finder.results import table_html

if TYPE_CHECKING:
    import pandas as pd


Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
Frame: TypeAlias = "pd.DataFrame"


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class TableResult:
    """Result of an audit: a table, and the limits of its numbers in sentences."""

    table: Frame
    limits: tuple[str, ...] = ()

    __repr__ = summary
    _repr_html_ = table_html

    def __len__(self) -> int:
        return len(self.table)

    def to_frame(self) -> Frame:
        """Return a copy of the table."""
        return self.table.copy()


def data_frame(data: Any, columns: Iterable[str] | None = None) -> Frame:
    """Return a DataFrame of columns or of rows. ImportError names the extra if pandas is missing."""
    with extra("audit"):
        import pandas as pd
    return pd.DataFrame(data, columns=None if columns is None else [*columns])


def stack(blocks: Iterable[Any], columns: Iterable[str] = ()) -> Frame:
    """Return one DataFrame of blocks of columns, or of DataFrames, in order; without blocks an empty one."""
    frames = [data_frame(block) for block in blocks]
    if not frames:
        return data_frame([], columns)
    with extra("audit"):
        import pandas as pd
    return pd.concat(frames, ignore_index=True)


def share(part: ArrayLike, whole: ArrayLike) -> Floats:
    """Return ``part / whole``; NaN where ``whole`` is 0. Both have the same shape, or broadcast."""
    a, b = np.broadcast_arrays(part, whole)
    shares: Floats = np.divide(a, b, out=np.full(b.shape, np.nan), where=b > 0)
    return shares


def check_finder(finder: Any) -> None:
    """Raise TypeError for another object than a finder, such as an index; ValueError for one with weights of rows."""
    if not isinstance(finder, EvidenceFinder):
        hint = "; make one by EvidenceFinder.from_index(index, ...)" if hasattr(finder, "search_evidence") else ""
        raise TypeError(f"finder must be an EvidenceFinder, got {type(finder).__name__}{hint}")
    if finder.weights is not None:
        raise ValueError(
            "finder must have no weights of rows, as every row counts once in an audit: make it without weights= "
            "(ignore= leaves the column out)"
        )


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


def persons_of(finder: EvidenceFinder, person: Any) -> Ints:
    """Return the number of the person of every row, (n,): equal for rows of one person.

    ``person`` is the name of an attribute, or one value per row; None: every row is a person, and so is a row without a
    value.

    Raises
    ------
    ValueError
        If there is no such attribute, or another number of values than rows.
    """
    rows = np.arange(len(finder.labels))
    if isinstance(person, str):
        attributes = attributes_of(finder)
        name = attributes.known("person", person)
        person = attributes.select([name]).to_frame()[name].reindex(rows)
    return person_numbers(person, len(rows))


def person_numbers(person: Any, n: int) -> Ints:
    """Return a number for each distinct value of ``person``, (n,); rows without a value, or all for None, differ."""
    rows = np.arange(n)
    if person is None:
        return rows
    codes = as_attributes({"person": person}, "person")["person"].codes
    if len(codes) != n:
        raise ValueError(f"person must hold one value for each of {n:,} rows, got {len(codes):,}")
    return np.where(codes == UNKNOWN, n + rows, codes)


def attributes_of(finder: EvidenceFinder) -> Attributes:
    """Return the attributes of all rows. ValueError if the finder has none."""
    if finder.attributes is None:
        raise ValueError("finder must know attributes, got none: make it with features=")
    return finder.attributes


def sensitive_of(finder: EvidenceFinder, sensitive: Any) -> tuple[str, ...]:
    """Return the names in ``sensitive``, each once; None means ``finder.sensitive``. TypeError for other input."""
    return finder.sensitive if sensitive is None else as_names("sensitive", sensitive)
