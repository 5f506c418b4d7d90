"""Evidence at write time: rows of another class that are similar to rows about to be stored."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.checks import UNKNOWN, as_count, as_number, check_known, check_type
from cfe_faiss.base.values import padded
from cfe_faiss.curve import Mates
from cfe_faiss.index.flat import IndexEvidenceFlat
from cfe_faiss.pairs import Pairs
from cfe_faiss.rows.metric import PADDING, flipped, make_results
from cfe_faiss.search.query import UNSET, Effort, Query, Results, Rules
from cfe_faiss.search.tiles import slices
from cfe_faiss.store.contents import MISSING, REMOVED, Contents, Table, values_of
from cfe_faiss.store.values import Hits, Metadata

_RECALL = 0.99
_QUERIES = 256
"""Rows with excluded ids that are searched at once."""


@dataclass(frozen=True, slots=True)
class Watch:
    """Search for evidence against rows that are about to be stored.

    Parameters
    ----------
    threshold
        Least similarity, or for metric "l2" largest squared distance, that counts: for example
        ``curve.threshold(0.01)`` of :func:`cfe_faiss.similarity_curve`.
    k
        Largest number of rows found for each new row, >= 1.
    on
        "report": store the rows, and return what was found. "refuse": raise an
        :class:`EvidenceError` and store nothing, if anything was found.
    exact
        Whether the search is exact, with every index. Else an index with lists is searched at
        recall 0.99.
    group
        Key of the metadata that names the document of a row. Rows with the same value are not
        compared with each other.
    tell
        Function that is called with the report, a list of :class:`Hits`, after the rows are stored:
        for frameworks, whose methods return something else.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Examples
    --------
    >>> import cfe_faiss as cfe
    >>> from cfe_faiss.store import Watch
    >>> store = cfe.EvidenceStore(2)
    >>> store.add(["a", "b"], [[1, 0], [0, 1]], ["spam", "ham"])
    >>> (found,) = store.add(["c"], [[0.8, 0.6]], ["ham"], watch=Watch(threshold=0.7))
    >>> found.ids, found.similarity.round(2).tolist()
    (['a'], [0.800000011920929])
    """

    threshold: float
    k: int = 10
    on: Literal["report", "refuse"] = "report"
    exact: bool = False
    group: str | None = None
    tell: Callable[[list[Hits]], object] | None = None

    def __post_init__(self) -> None:
        as_number("threshold", self.threshold, -np.inf, np.inf)
        as_count("k", self.k)
        check_known("on must be", self.on, ("report", "refuse"))
        check_type("group must be a key of the metadata or None", self.group, str | None)
        if self.tell is not None and not callable(self.tell):
            raise TypeError(f"tell must be a function of a list of Hits, got {self.tell!r}")


class EvidenceError(ValueError):
    """Refusal of rows that are similar to rows of another class; nothing was stored.

    Attributes
    ----------
    pairs
        The similar pairs, with ids, as from :meth:`cfe_faiss.EvidenceStore.pairs`: of two stored or
        new rows the earlier one is the source.
    """

    def __init__(self, message: str, pairs: Pairs) -> None:
        super().__init__(message)
        self.pairs = pairs

    def __reduce__(self) -> Any:
        return type(self), (str(self), self.pairs)


def as_watch(value: Any) -> Watch | None:
    """Return ``watch=`` of a store: a watch, or a threshold, or None."""
    if value is None or isinstance(value, Watch):
        return value
    return Watch(value)


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows about to be stored, at least one.

    Attributes
    ----------
    ids, X, labels, metadata
        Ids, vectors as stored, (n, d), class numbers, (n,), and metadata.
    replaced
        Stored rows that they replace, which are no evidence.
    """

    ids: list[str]
    X: NDArray[np.float32]
    labels: NDArray[np.int32]
    metadata: list[Metadata]
    replaced: NDArray[np.int64]


def search_batch(contents: Contents, batch: Batch, watch: Watch, least: np.float32) -> Results:
    """Return D and I, (n, k): the evidence of each row among stored rows and the batch.

    In I, new rows have the keys that they are going to have. ``least`` is the lowest score.
    """
    D, I = make_results(len(batch.ids), watch.k)
    known = np.flatnonzero(batch.labels != UNKNOWN)
    if not len(known):
        return D, I
    batch = replace(batch, X=_vectors_as_stored(contents, batch.X))
    groups = _groups_of(contents, batch, watch.group)
    parts = [
        _search_stored(contents, batch, watch, known, groups),
        _search_each_other(contents, batch, watch, known, groups),
    ]
    scores = np.hstack([flipped(part[0], contents.index.metric) for part in parts])
    keys = np.hstack([part[1] for part in parts])
    is_far = (keys < 0) | (scores < least)
    order = np.lexsort((keys, -scores, is_far))[:, : watch.k]
    is_far = np.take_along_axis(is_far, order, axis=1)
    scores = np.take_along_axis(scores, order, axis=1)
    width = order.shape[1]
    D[known, :width] = np.where(is_far, PADDING, flipped(scores, contents.index.metric))
    I[known, :width] = np.where(is_far, -1, np.take_along_axis(keys, order, axis=1))
    return D, I


def group_codes(table: Table, key: str, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of the group of some rows, (m,), a negative one of its own without a group."""
    column = table.column(key)
    codes = column.codes[rows].astype(np.int64)
    no_group = [code for code in map(column.dictionary.code, (MISSING, None)) if code is not None]
    is_missing = np.isin(codes, no_group)
    codes[is_missing] = -1 - np.flatnonzero(is_missing)
    return codes


def _groups_of(contents: Contents, batch: Batch, key: str | None) -> NDArray[np.int64] | None:
    """Return the number of the group of each new row in the column of the stored rows.

    A negative one of its own for a row without a group. None without a key.
    """
    if key is None:
        return None
    values = values_of(batch.metadata, key)
    groups = contents.table.column(key).dictionary.encode(values).astype(np.int64)
    is_missing = np.array([value is MISSING or value is None for value in values])
    groups[is_missing] = -1 - np.flatnonzero(is_missing)
    return groups


def _search_stored(
    contents: Contents,
    batch: Batch,
    watch: Watch,
    known: NDArray[np.int64],
    groups: NDArray[np.int64] | None,
) -> Results:
    table = contents.table
    k = min(watch.k, len(table) - len(batch.replaced))
    if k < 1:
        return make_results(len(known), 1)
    effort = UNSET
    if contents.index.has_lists:
        effort = Effort(exact=True) if watch.exact else Effort(recall=_RECALL)
    if groups is None and not len(batch.replaced):
        query = Query(k, X=batch.X[known], labels=batch.labels[known])
        return _evidence(contents, query, effort)
    column = None if watch.group is None else table.column(watch.group)
    D, I = make_results(len(known), k)
    for part in slices(len(known), _QUERIES):
        rows = known[part]
        excluded = [batch.replaced] * len(rows)
        if column is not None and groups is not None:
            stored = np.where(table.labels == REMOVED, -1, column.codes)
            mates = {
                group: np.flatnonzero(stored == group) if group >= 0 else rows[:0]
                for group in set(groups[rows].tolist())
            }
            excluded = [
                np.concatenate([batch.replaced, mates[group]]) for group in groups[rows].tolist()
            ]
        sizes = np.array([len(places) for places in excluded])
        rules = Rules(excluded_ids=padded(table.keys[np.concatenate(excluded)], sizes))
        query = Query(k, X=batch.X[rows], labels=batch.labels[rows], rules=rules)
        D[part], I[part] = _evidence(contents, query, effort)
    return D, I


def _evidence(contents: Contents, query: Query, effort: Effort) -> Results:
    results: Results
    if contents.index.keeps_vectors:
        results = contents.evidence(query, None, effort)
    else:  # the public search would normalise what the codes hold
        results = contents.index.answer(query, effort)
    return results


def _vectors_as_stored(contents: Contents, X: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return what the index is going to hold of unit vectors: they, or what their codes hold."""
    index = contents.index
    if index.keeps_vectors or not index.is_trained:
        return X
    coded: NDArray[np.float32] = index.sa_decode(index.sa_encode(X))
    return coded


def _search_each_other(
    contents: Contents,
    batch: Batch,
    watch: Watch,
    known: NDArray[np.int64],
    groups: NDArray[np.int64] | None,
) -> Results:
    if len(known) < 2:
        return make_results(len(known), 1)
    labels = batch.labels[known]
    metric = contents.index.metric
    if metric == "cosine" and not contents.index.keeps_vectors:
        metric = "ip"  # codes hold vectors of nearly unit length, which must not change
    index = IndexEvidenceFlat(batch.X.shape[1], metric)
    index.add_with_labels(batch.X[known], labels)
    k = min(watch.k, len(known) - 1)
    positions = np.arange(len(known))
    if groups is None:
        D, I = index.search_stored(None, k)
    else:
        D, I = make_results(len(known), k)
        mates = Mates(positions, labels, groups[known])
        for part in slices(len(known), _QUERIES):
            query = Query(k, ids=positions[part], rules=mates.rules(positions[part]))
            D[part], I[part] = index.answer(query, UNSET)
    return D, np.where(I < 0, -1, contents.next_key + known[I])


def refusal(contents: Contents, batch: Batch, watch: Watch, found: Results) -> EvidenceError:
    """Return the error that names the evidence against a batch."""
    D, I = found
    is_found = I >= 0
    rows = np.nonzero(is_found)[0]
    ends = np.sort(np.column_stack([I[is_found], contents.next_key + rows]), axis=1)
    scores = flipped(D[is_found], contents.index.metric)
    ends, first = np.unique(ends, axis=0, return_index=True)
    order = np.lexsort((ends[:, 1], ends[:, 0], -scores[first]))
    names = np.empty(ends.shape, object)
    is_new = ends >= contents.next_key
    names[is_new] = np.array(batch.ids, object)[ends[is_new] - contents.next_key]
    names[~is_new] = contents.table.ids[contents.table.keys.searchsorted(ends[~is_new])]
    metric = contents.index.metric
    source, target = names[order].T
    pairs = Pairs(source, target, flipped(scores[first][order], metric), metric=metric)
    return EvidenceError(
        f"watch refused the batch: {len(np.unique(rows))} of {len(batch.ids)} rows are similar to "
        f"rows of another class (threshold {float(watch.threshold):g}), the closest {source[0]!r} and "
        f"{target[0]!r} ({float(pairs.similarity[0]):.4g}); nothing was stored, and the error's "
        f"pairs hold them all",
        pairs,
    )
