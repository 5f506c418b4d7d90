"""Evidence at write time: rows of another class that are similar to rows about to be stored."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.checks import UNKNOWN, as_count, as_number, check_known, check_type
from cfe_faiss.index.flat import IndexEvidenceIDMap2
from cfe_faiss.pairs import Pairs
from cfe_faiss.rows.metric import flipped, make_results, score_at
from cfe_faiss.search.query import UNSET, Effort, Query, Results, Rules
from cfe_faiss.search.tiles import slices
from cfe_faiss.store.contents import DOCUMENT, ID, LABEL, MISSING, Contents, Table, values_of
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
        compared with each other. A key that no row has, stored or new, is an error of the change.
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
    """Refusal of rows that are similar to rows of another class; nothing was stored."""

    @property
    def pairs(self) -> Pairs:
        """The similar pairs, best first.

        ``source`` is the id of a new row, ``target`` that of a stored or another new one. Two
        similar new rows are in two pairs.
        """
        pairs: Pairs = self.args[0]
        return pairs

    def __str__(self) -> str:
        pairs = self.pairs
        return (
            f"watch refused the batch: {len(set(pairs.source))} of its rows are similar to rows of "
            f"another class, the closest {pairs.source[0]!r} to {pairs.target[0]!r} "
            f"({float(pairs.similarity[0]):.4g}); nothing was stored, and the error's pairs hold them"
        )


def group_codes(table: Table, key: str, metadata: Sequence[Metadata] = ()) -> NDArray[np.int64]:
    """Return the number of the group of each row of a table, and of more rows by their metadata.

    Each row without a group has another negative number. ValueError if there are rows, and none has
    the key.
    """
    column = table.column(key)
    new_codes = column.dictionary.encode(values_of(metadata, key))
    codes = np.append(column.codes, new_codes).astype(np.int64)
    no_group = [code for code in map(column.dictionary.code, (MISSING, None)) if code is not None]
    is_missing = np.isin(codes, no_group)
    codes[is_missing] = -1 - np.flatnonzero(is_missing)
    rows = np.append(table.rows, np.arange(len(table.ids), len(codes)))
    if len(rows) and (key in (ID, LABEL, DOCUMENT) or is_missing[rows].all()):
        keys = dict.fromkeys(
            name for row in [*table.metadata[table.rows], *metadata] for name in row
        )
        check_known("group must be a key of the metadata of some row", key, keys)
    return codes


def evidence_against(
    contents: Contents,
    new: Table,
    X: NDArray[np.float32],
    replaced: NDArray[np.int64],
    watch: Watch,
) -> Results:
    """Return the closest rows of another class for each new row, stored or new: D, keys I.

    ``new`` are rows with vectors X. ``replaced`` are stored rows that they replace, which are no
    evidence. EvidenceError if the watch refuses the rows.
    """
    index = contents.index
    stored = contents.table
    is_coded = not index.keeps_vectors
    if is_coded and index.is_trained:
        X = index.sa_decode(index.sa_encode(X))
    labelled = np.flatnonzero(new.labels != UNKNOWN)
    searches = []
    if len(stored) > len(replaced):
        effort = Effort(exact=True)
        if index.has_lists and not watch.exact:
            effort = Effort(nprobe=contents.lists_at(_RECALL, watch.k))
        # The public search would normalise vectors of codes.
        search = partial(contents.evidence, mask=None)
        searches.append(partial(index.answer if is_coded else search, effort=effort))
    if len(labelled) > 1 or not searches:
        normalises = index.metric == "cosine" and is_coded
        batch = IndexEvidenceIDMap2(X.shape[1], "ip" if normalises else index.metric)
        batch.add_with_labels(X[labelled], new.labels[labelled], new.keys[labelled])
        searches.append(partial(batch.answer, effort=UNSET))
    codes = None
    if watch.group is not None:
        codes = group_codes(stored, watch.group, new.metadata.tolist())
    longer = stored.with_rows(new)
    has_rules = codes is not None or len(replaced) > 0
    k = min(watch.k, len(stored) + len(X))
    D, I = make_results(len(X), k)
    for part in slices(len(labelled), _QUERIES if has_rules else max(1, len(X))):
        rows = labelled[part]
        rules = _rules(longer.keys, len(stored.keys) + rows, replaced, codes) if has_rules else None
        query = Query(k, X=X[rows], labels=new.labels[rows], rules=rules)
        values, keys = map(np.hstack, zip(*(search(query) for search in searches), strict=True))
        order = np.lexsort((keys, -flipped(values, index.metric), keys < 0))[:, :k]
        D[rows] = np.take_along_axis(values, order, axis=1)
        I[rows] = np.take_along_axis(keys, order, axis=1)
    I[flipped(D, index.metric) < score_at(watch.threshold, index.metric)] = -1
    if watch.on == "refuse" and (I >= 0).any():
        rows, places = np.nonzero(I >= 0)
        best = np.argsort(-flipped(D[rows, places], index.metric), kind="stable")
        rows = rows[best]
        places = places[best]
        source: Any = new.ids[rows]
        target: Any = longer.ids[longer.keys.searchsorted(I[rows, places])]
        raise EvidenceError(Pairs(source, target, D[rows, places], metric=index.metric))
    return D, I


def _rules(
    keys: NDArray[np.int64],
    rows: NDArray[np.int64],
    replaced: NDArray[np.int64],
    codes: NDArray[np.int64] | None,
) -> Rules:
    """Return the rules that exclude replaced rows, and rows of the same group."""
    excluded = [keys[replaced]] * len(rows)
    if codes is not None:
        mates = {code: keys[codes == code] for code in set(codes[rows].tolist())}
        excluded = [np.append(excluded[0], mates[code]) for code in codes[rows].tolist()]
    return Rules(excluded_ids=excluded)
