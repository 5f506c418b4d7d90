"""Evidence at write time: rows of another class that are similar to rows about to be stored."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.checks import UNKNOWN, as_count, as_number, check_known, check_type
from cfe_faiss.base.values import padded
from cfe_faiss.index.flat import IndexEvidenceIDMap2
from cfe_faiss.pairs import Pairs
from cfe_faiss.rows.metric import flipped, make_results
from cfe_faiss.search.query import UNSET, Effort, Query, Results, Rules
from cfe_faiss.search.tiles import slices
from cfe_faiss.store.contents import MISSING, Contents, Table, values_of
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
        Whether the search is exact, with every index. Else an index with lists is searched in as
        many lists as a recall of 0.99 needs, measured when a tenth of the rows has changed.
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
        The similar pairs, best first: ``source`` is the id of a new row, ``target`` that of a stored
        or another new one. Two similar new rows are in two pairs.
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


def group_codes(table: Table, key: str, metadata: Sequence[Metadata] = ()) -> NDArray[np.int64]:
    """Return the number of the group of each row of a table, and of more rows by their metadata.

    Each row without a group has another negative number.
    """
    column = table.column(key)
    new_codes = column.dictionary.encode(values_of(metadata, key))
    codes = np.append(column.codes, new_codes).astype(np.int64)
    no_group = [code for code in map(column.dictionary.code, (MISSING, None)) if code is not None]
    is_missing = np.isin(codes, no_group)
    codes[is_missing] = -1 - np.flatnonzero(is_missing)
    return codes


class Guard:
    """Search for evidence against new rows, before they are stored.

    Attributes
    ----------
    contents, X, watch
        Contents of the store, vectors of the new rows, (n, d), and how to search.
    replaced
        Stored rows that the new ones replace, which are no evidence.
    least
        Lowest score that counts.
    k
        Number of results for each row.
    D, I
        Results, (n, k). In I, new rows have their future keys.
    """

    def __init__(
        self,
        contents: Contents,
        X: NDArray[np.float32],
        watch: Watch,
        replaced: NDArray[np.int64],
        least: np.float32,
    ) -> None:
        self.contents = contents
        self.X = X
        self.watch = watch
        self.replaced = replaced
        self.least = least
        self.k = min(watch.k, len(contents.table) + len(X))
        self.D, self.I = make_results(len(X), self.k)

    def check(self, after: Table) -> None:
        """Search, given the table with the new rows at its end; refuse them by EvidenceError."""
        contents = self.contents
        index = contents.index
        X = self.X
        first = len(after.keys) - len(X)
        labels = after.labels[first:]
        if not index.keeps_vectors and index.is_trained:  # compare the vectors of the codes
            X = index.sa_decode(index.sa_encode(X))
        known = np.flatnonzero(labels != UNKNOWN)
        batch = None
        if len(known) > 1:
            is_coded = index.metric == "cosine" and not index.keeps_vectors
            batch = IndexEvidenceIDMap2(X.shape[1], "ip" if is_coded else index.metric)
            batch.add_with_labels(X[known], labels[known], after.keys[first + known])
        codes = None
        if self.watch.group is not None:
            metadata = after.metadata[first:].tolist()
            codes = group_codes(contents.table, self.watch.group, metadata)
        has_rules = codes is not None or len(self.replaced) > 0
        for part in slices(len(known), _QUERIES if has_rules else len(X)):
            rows = known[part]
            rules = self._rules(after, first + rows, codes) if has_rules else None
            query = Query(self.k, X=X[rows], labels=labels[rows], rules=rules)
            found = [] if batch is None else [batch.answer(query, UNSET)]
            if len(contents.table) > len(self.replaced):
                found.append(self._search_stored(query))
            if found:
                self._keep(rows, found)
        if self.watch.on == "refuse" and (self.I >= 0).any():
            raise self._refusal(after)

    def _rules(
        self, after: Table, rows: NDArray[np.int64], codes: NDArray[np.int64] | None
    ) -> Rules:
        """Return the rules that exclude replaced rows, and rows of the same group."""
        excluded = [after.keys[self.replaced]] * len(rows)
        if codes is not None:
            mates = {code: after.keys[codes == code] for code in set(codes[rows].tolist())}
            excluded = [np.append(excluded[0], mates[code]) for code in codes[rows].tolist()]
        lengths = np.array(list(map(len, excluded)))
        return Rules(excluded_ids=padded(np.concatenate(excluded), lengths))

    def _search_stored(self, query: Query) -> Results:
        index = self.contents.index
        effort = UNSET
        if index.has_lists and self.watch.exact:
            effort = Effort(exact=True)
        elif index.has_lists:
            effort = Effort(nprobe=self.contents.lists_at(_RECALL, self.watch.k))
        if not index.keeps_vectors:  # the public search would normalise vectors of codes
            return cast(Results, index.answer(query, effort))
        return cast(Results, self.contents.evidence(query, None, effort))

    def _keep(self, rows: NDArray[np.int64], found: list[Results]) -> None:
        """Keep the best results of some rows, of one search or two."""
        metric = self.contents.index.metric
        D, keys = found[0]
        scores = flipped(D, metric)
        if len(found) > 1:
            scores = np.hstack([scores, flipped(found[1][0], metric)])
            keys = np.hstack([keys, found[1][1]])
            order = np.lexsort((keys, -scores, keys < 0))[:, : self.k]
            scores = np.take_along_axis(scores, order, axis=1)
            keys = np.take_along_axis(keys, order, axis=1)
        columns = slice(keys.shape[1])
        self.D[rows, columns] = flipped(scores, metric)
        self.I[rows, columns] = np.where(scores < self.least, -1, keys)

    def _refusal(self, after: Table) -> EvidenceError:
        metric = self.contents.index.metric
        rows, places = np.nonzero(self.I >= 0)
        similarity = self.D[rows, places]
        order = np.argsort(-flipped(similarity, metric), kind="stable")
        source: Any = after.ids[len(after.keys) - len(self.X) + rows[order]]
        target: Any = after.ids[after.keys.searchsorted(self.I[rows, places][order])]
        pairs = Pairs(source, target, similarity[order], metric=metric)
        return EvidenceError(
            f"watch refused the batch: {len(np.unique(rows))} of {len(self.X)} rows are similar to "
            f"rows of another class (threshold {float(self.watch.threshold):g}), the closest "
            f"{source[0]!r} to {target[0]!r} ({float(pairs.similarity[0]):.4g}); nothing was "
            f"stored, and the error's pairs hold them all",
            pairs,
        )
