"""Documents with string ids, predicted classes, metadata and texts over an evidence index."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from cfe_faiss._native import ReadWriteLock
from cfe_faiss.attributes.table import as_attributes
from cfe_faiss.base.checks import (
    UNKNOWN,
    Floats,
    Int32s,
    Ints,
    as_array,
    as_count,
    check_distinct,
    check_shape,
    check_type,
)
from cfe_faiss.base.extras import pd
from cfe_faiss.base.values import as_list, as_lists, padded
from cfe_faiss.curve import SimilarityCurve, curve_of
from cfe_faiss.explorer import Explored, explorer_page, write_explorer
from cfe_faiss.index.factory import check_ids_stay, factory_with_ids
from cfe_faiss.index.searching import EvidenceIndex
from cfe_faiss.pairs import DuplicateGroup, Pairs, duplicate_groups, evidence_pairs, global_evidence
from cfe_faiss.rows.ids_and_labels import unknown_labels
from cfe_faiss.rows.metric import (
    Metric,
    as_rows,
    as_threshold,
    flipped,
    measure_of,
    measured,
    score_at,
)
from cfe_faiss.search.query import Effort, Neighbors, Query, Rules
from cfe_faiss.store.contents import Classes, Contents, Mask, Table
from cfe_faiss.store.filters import mask_of
from cfe_faiss.store.values import (
    Hits,
    Label,
    Rows,
    check_documents,
    check_ids,
    check_labels,
    check_metadata,
    copy_metadata,
    speaks_arrow,
)
from cfe_faiss.store.watch import Watch, evidence_against, group_codes


class EvidenceStore:
    """Documents with string ids, predicted classes, metadata and texts over an evidence index.

    It finds the documents most similar to a vector, and the *counterfactual evidence* of a
    document: the most similar documents that the classifier puts in another class. Similarity is
    the cosine: vectors are L2-normalised on the way in. Filters are exact, however few rows they
    select.

    Any number of threads may search while one changes the store. Every change is atomic, even if it
    is interrupted or memory runs out; readers see the rows before it or after it.

    Parameters
    ----------
    d
        Length of the vectors.
    index
        Index that searches them: None for the exact :class:`cfe_faiss.IndexEvidenceIDMap2`; a
        description for :func:`cfe_faiss.index_factory`; or an empty evidence index, trained or not,
        which the store takes as its own. An index with lists is trained by :meth:`train`, or by the
        first rows added, at least 39 for each list.
    class_names
        Known classes, texts, integers or booleans, in the order of their numbers. New classes, of
        the same kind, follow as rows bring them.
    metric
        ``"cosine"`` (the default), ``"ip"``, ``"l2"`` or ``"tanimoto"``, as in
        :class:`cfe_faiss.IndexEvidenceFlat`. With ``"ip"`` and ``"l2"``, ``similarity`` is the
        inner product, or the squared distance, ascending, and so are thresholds.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Examples
    --------
    >>> import cfe_faiss as cfe
    >>> store = cfe.EvidenceStore(2)
    >>> store.add(
    ...     ["a", "b", "c", "d"],
    ...     [[1.0, 0.0], [0.8, 0.6], [0.6, 0.8], [0.0, 1.0]],
    ...     labels=["spam", "ham", "spam", None],
    ...     metadata=[{"lang": "de"}, {"lang": "en"}, {"lang": "de"}, {"lang": "en"}],
    ... )
    >>> store.search([1.0, 0.1], k=2).ids
    ['a', 'b']
    >>> store.evidence("a", k=2).ids
    ['b']
    >>> store.evidence("d", k=2, label="ham", where={"lang": "de"}).ids
    ['c', 'a']
    """

    def __init__(
        self,
        d: int,
        index: EvidenceIndex | str | None = None,
        class_names: Any = (),
        metric: Metric | int | None = None,
    ) -> None:
        d = as_count("d", d)
        if index is None or isinstance(index, str):
            index = factory_with_ids(
                d, index or "EvidenceFlat", "cosine" if metric is None else metric
            )
        elif metric is not None:
            raise ValueError(
                f"metric must be left out with an index, which has its own, got {metric!r}"
            )
        if not isinstance(index, EvidenceIndex):
            raise TypeError(
                f"index must be an evidence index, a description of one or None, got {index!r}"
            )
        check_ids_stay(index)
        if index.d != d or index.ntotal:
            raise ValueError(
                f"index must be an empty evidence index of {d} dimensions, got {index!r}"
            )
        names = as_list("class_names", class_names)
        names = check_labels("class_names", names, len(names))
        self._set_up(Contents(index, Table(Classes().extend(names)), 0))

    def _set_up(self, contents: Contents) -> None:
        self._lock = ReadWriteLock()
        self._contents = contents
        # directories that it was first read from or saved to, and last saved to
        self._origins: tuple[Path, ...] = ()

    def __getstate__(self) -> tuple[Any, ...]:
        with self._lock.reading():
            contents = self._contents
            return contents.index, contents.table.only(contents.table.rows), contents.next_key

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._set_up(Contents(*state))

    def __copy__(self) -> Self:
        return deepcopy(self)  # a copy with the same index would change it without its own rows

    # --- what is stored ---------------------------------------------------------------------------

    @property
    def d(self) -> int:
        """Length of the vectors."""
        return int(self._contents.index.d)

    @property
    def metric(self) -> Metric:
        """How vectors are compared, see :class:`cfe_faiss.IndexEvidenceFlat`."""
        metric: Metric = self._contents.index.metric
        return metric

    @property
    def index(self) -> Any:
        """The evidence index.

        Read and configure it (``nprobe``), but change it through the store only.
        """
        return self._contents.index

    @property
    def ids(self) -> list[str]:
        """The ids of all rows, in the order in which they were added."""
        with self._lock.reading():
            table = self._contents.table
            ids: list[str] = table.ids[table.rows].tolist()
            return ids

    @property
    def class_names(self) -> tuple[str | int, ...]:
        """The known classes, in the order of their numbers."""
        return self._contents.table.classes.names

    def __len__(self) -> int:
        return len(self._contents.table)

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(self.ids)

    def __contains__(self, id_: object) -> bool:
        if not isinstance(id_, str):
            return False
        with self._lock.reading():
            return bool(self._contents.rows_of([id_])[0] >= 0)

    def __repr__(self) -> str:
        return (
            f"EvidenceStore(d={self.d}, rows={len(self):,}, classes={len(self.class_names)}, "
            f"index={self._contents.index!r})"
        )

    def _mask(self, where: Any) -> Mask | None:
        return mask_of(where, self._contents.table, self._contents.rows_of)

    def _select(self, ids: Any, where: Any, *, skip_missing: bool) -> Ints:
        """Return the rows of some ids, or the rows that a filter selects."""
        if ids is None:
            mask = self._mask(where)
            return self._contents.table.rows if mask is None else np.flatnonzero(mask)
        if not skip_missing:
            return self._contents.known_rows_of(check_ids(ids))
        rows = self._contents.rows_of(check_ids(ids))
        return rows[rows >= 0]

    # --- changing it ------------------------------------------------------------------------------

    def train(self, vectors: Any) -> None:
        """Cluster vectors into the lists of an index that has lists, before rows are added.

        Parameters
        ----------
        vectors
            Vectors distributed like the rows, (n, d): at least one for each list, better 39 or
            more.

        Raises
        ------
        TypeError, ValueError
            If the vectors are not as described, or the store holds rows already.
        """
        X = self._as_vectors(vectors)
        with self._lock.writing():
            self._contents.index.train(X)

    def add(
        self,
        ids: Any,
        vectors: Any,
        labels: Any = None,
        metadata: Any = None,
        documents: Any = None,
        *,
        watch: Watch | float | None = None,
    ) -> list[Hits] | None:
        """Add rows whose ids are new.

        Parameters
        ----------
        ids
            n distinct texts.
        vectors
            Vectors, (n, d): an array, a tensor, lists, or a column of lists of Arrow, polars or
            pandas. For metric "cosine" they are L2-normalised in a copy; a vector of zeros stays
            zero and has similarity 0 to everything.
        labels
            Predicted class of each row, texts, integers or booleans; None (or -1) for a row that is
            not classified yet, or in place of all labels. :meth:`search` finds rows without a
            class, but they are never evidence.
        metadata
            A mapping for each row, or None. Keys are texts; none begins with ``$arrow:``. Values
            are texts, numbers, decimals, True, False, None, dates, times, datetimes and durations
            (to microseconds), bytes, and lists and mappings of these. Tuples and arrays are stored
            as lists, scalars of NumPy and Arrow as Python values, a UUID as a text. NaN equals NaN
            in filters, and is not less or greater than any number.
        documents
            Text of each row, or None.
        watch
            Search for evidence against the new rows: a :class:`~cfe_faiss.store.Watch`, or the
            threshold of one that reports. It compares them with the stored rows, and with each
            other.

        Returns
        -------
        list of Hits or None
            With ``watch``: for each new row the closest rows of another class at or above the
            threshold, best first. Rows without a class have none.

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described; the message names the id, and for metadata the key.
            If an id is stored already, or the index needs more rows to be trained. Nothing is added
            then.
        cfe_faiss.store.EvidenceError
            If ``watch`` refuses the rows. Nothing is added then.
        RuntimeError
            If the store was loaded with ``mmap=True``.
        """
        return self._put(ids, vectors, labels, metadata, documents, watch, replace=False)

    def upsert(
        self,
        ids: Any,
        vectors: Any,
        labels: Any = None,
        metadata: Any = None,
        documents: Any = None,
        *,
        watch: Watch | float | None = None,
    ) -> list[Hits] | None:
        """Add rows.

        A row whose id is stored replaces the old row completely, and moves to the end of
        :attr:`ids`.

        Parameters, result and errors as in :meth:`add`, but ids may be stored. For ``watch``, old
        rows that are replaced are no evidence.
        """
        return self._put(ids, vectors, labels, metadata, documents, watch, replace=True)

    def _put(
        self,
        ids: Any,
        vectors: Any,
        labels: Any,
        metadata: Any,
        documents: Any,
        watch: Watch | float | None,
        *,
        replace: bool,
    ) -> list[Hits] | None:
        if watch is not None:
            watch = watch if isinstance(watch, Watch) else Watch(watch)
            page = self._page(watch.k, 0, watch.threshold)
        names = check_ids(ids)
        check_distinct("ids must be distinct", names)
        X = self._as_vectors(vectors)
        check_shape("vectors", X, (len(names), self.d), "one for each id")
        classes = check_labels("labels", labels, len(names))
        metadata = check_metadata(metadata, names)
        documents = check_documents(documents, names)
        with self._lock.writing():
            old = self._contents.rows_of(names)
            stored = old >= 0
            if not replace and stored.any():
                raise ValueError(
                    f"ids must not be in the store yet, got {names[int(np.argmax(stored))]!r}, "
                    f"which is"
                )
            new = self._contents.new_rows(names, classes, metadata, documents)
            if watch is not None:
                evidence = evidence_against(self._contents, new, X, old[stored], watch)
            if names:
                self._contents.insert(new, X, old[stored])
            if watch is None:
                return None
            report = self._hits(*evidence, page, False)
        if watch.tell is not None:
            watch.tell(report)
        return report

    def delete(self, ids: Any = None, *, where: Any = None) -> int:
        """Remove rows; return their number.

        Parameters
        ----------
        ids
            Ids of the rows; unknown ids are ignored.
        where
            In place of ids: a filter, see :meth:`search`.

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described, or both or none are given; nothing is removed then.
        RuntimeError
            If the store was loaded with ``mmap=True``.
        """
        if (ids is None) == (where is None):
            raise TypeError("delete takes either ids or where")
        with self._lock.writing():
            rows = np.unique(self._select(ids, where, skip_missing=True))
            if len(rows):
                self._contents.remove(rows)
        return len(rows)

    def relabel(self, ids: Any, labels: Any = None) -> None:
        """Give rows new classes, such as the predictions of another model. Vectors stay unchanged.

        Parameters
        ----------
        ids
            Distinct ids of rows; None for all of them, in the order of :attr:`ids`. Or a mapping
            from ids to classes.
        labels
            New class of each row, None for "not classified"; left out if ``ids`` is a mapping.

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described, or an id is not stored; nothing is changed then.
        RuntimeError
            If the store was loaded with ``mmap=True``.

        Examples
        --------
        >>> import cfe_faiss as cfe
        >>> store = cfe.EvidenceStore(2)
        >>> store.add(["a", "b"], [[1, 0], [1, 1]], ["spam", "spam"])
        >>> store.relabel({"b": "ham"})
        >>> store.evidence("a", k=1).labels
        ['ham']
        """
        if isinstance(ids, Mapping):
            if labels is not None:
                raise TypeError(
                    "labels must be left out where ids is a mapping from ids to classes"
                )
            labels = list(ids.values())
            ids = list(ids)
        with self._lock.writing():
            rows = self._distinct_rows(ids)
            classes = check_labels("labels", labels, len(rows))
            if len(rows):
                self._contents.relabel(rows, classes)

    def update_metadata(self, ids: Any, metadata: Any) -> None:
        """Set entries of rows' metadata. Other keys, vectors, classes and texts stay unchanged.

        Parameters
        ----------
        ids
            Distinct ids of rows; None for all of them, in the order of :attr:`ids`.
        metadata
            A mapping for each row, as in :meth:`add`: its values replace the old values of the same
            keys.

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described, or an id is not stored; nothing is changed then.
        RuntimeError
            If the store was loaded with ``mmap=True``.

        Examples
        --------
        >>> import cfe_faiss as cfe
        >>> store = cfe.EvidenceStore(2)
        >>> store.add(["a"], [[1, 0]], metadata=[{"lang": "de", "year": 2021}])
        >>> store.update_metadata(["a"], [{"year": 2022, "checked": True}])
        >>> store.get(["a"]).metadata
        [{'lang': 'de', 'year': 2022, 'checked': True}]
        """
        with self._lock.writing():
            rows = self._distinct_rows(ids)
            table = self._contents.table
            new = check_metadata(metadata, table.ids[rows].tolist())
            if len(rows):
                old = table.metadata[rows].tolist()
                merged = [before | changes for before, changes in zip(old, new, strict=True)]
                self._contents.describe(rows, merged)

    def _distinct_rows(self, ids: Any) -> Ints:
        """Return the rows of distinct ids, of all rows for None.

        UnknownIdError names an unknown id.
        """
        if ids is None:
            return self._contents.table.rows
        names = check_ids(ids)
        check_distinct("ids must be distinct", names)
        return self._contents.known_rows_of(names)

    # --- searching it -----------------------------------------------------------------------------

    def search(
        self,
        xq: Any,
        k: int = 10,
        where: Any = None,
        *,
        threshold: float | None = None,
        offset: int = 0,
        per_group: int | None = None,
        with_vectors: bool = False,
    ) -> Any:
        """Return the k rows most similar to each query, of any class.

        Parameters
        ----------
        xq
            A query, (d,), or several, (nq, d).
        k
            Number of rows for each query, >= 1.
        where
            Which rows may be found. One of

            - a mapping of conditions that must all hold: ``{"lang": "de"}`` (equal),
              ``{"lang": ["de", "en"]}`` (one of), or operators,
              ``{"year": {"$gte": 2020, "$lt": 2024}}``: ``$eq``, ``$ne``, ``$in``, ``$nin``,
              ``$gt``, ``$gte``, ``$lt``, ``$lte``, ``$exists`` (True or False) and ``$contains``
              (an element of a list, a part of a text). In place of operators, a function of the
              value, which is called once for all equal ones (1 and 1.0, or one instant in two time
              zones). ``{"$and": [...]}``, ``{"$or": [...]}`` and ``{"$not": {...}}`` combine
              mappings. A key is a key of the metadata ("a.b" is b in the mapping a), or ``"$id"``,
              ``"$label"`` (the predicted class), ``"$document"`` (the text);
            - a mask, (n,) booleans in the order of :attr:`ids`;
            - a sequence of ids; unknown ids select nothing;
            - a function of the metadata of a row, which returns whether the row may be found. It is
              called for each row and must not use the store.

            A missing key counts as None.
        threshold
            Least similarity of the rows returned, in [-1, 1], or for metric "l2" the largest
            squared distance; None for no limit.
        offset
            Number of best rows to skip, >= 0: ``offset=k`` returns the second page of k rows.
        per_group
            Maximum number of rows of one class, >= 1, such as chunks of one document where classes
            are documents; None for no limit. Rows without a class are not limited.
        with_vectors
            Whether to return the vectors, too.

        Returns
        -------
        Hits or list of Hits
            Rows found, best first; equal similarity: in the order in which they were added. A list
            if ``xq`` has two dimensions. Fewer than k rows if the filter or the threshold leave
            fewer.

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described. The message names an unknown operator, or a
            comparison of values of different kinds (a text with numbers).

        Notes
        -----
        With a filter or ``per_group`` the search is exact, for every kind of index, and compares the
        selected rows: O(nq * n * d) at most, up to k / ``per_group`` + 1 times. Without one it is
        the index's own search: exact for the exact index, with ``store.index.nprobe`` lists for
        others. It is exact, too, where these hold fewer than k rows, or where row k + 1 is as
        similar as row k.
        """
        page = self._page(k, offset, threshold)
        X, single = self._queries("xq", xq)
        rules = Rules.of({"neighbors": "any", "per_group": per_group})
        with self._lock.reading():
            D, I = self._contents.search(X, self._most(page), self._mask(where), rules)
            hits = self._hits(D, I, page, with_vectors)
        return hits[0] if single else hits

    def evidence(  # noqa: PLR0913
        self,
        id_or_vector: Any,
        k: int = 10,
        label: Any = None,
        where: Any = None,
        *,
        threshold: float | None = None,
        offset: int = 0,
        nprobe: int | None = None,
        recall: float | None = None,
        exact: bool = False,
        memory: int | None = None,
        exclude: Any = None,
        within: tuple[float, float] | None = None,
        neighbors: Neighbors = "other",
        per_group: int | None = None,
        with_vectors: bool = False,
    ) -> Any:
        """Return the k most similar rows that the classifier puts in another class.

        Parameters
        ----------
        id_or_vector
            A stored id or several, whose vectors and classes are used; or a vector, (d,), or
            several, (nq, d).
        k
            Number of rows for each query, >= 1.
        label
            Predicted class of the query, or of each query, (nq,). Needed for vectors and for rows
            that are not classified; for other rows it replaces their stored class.
        where, threshold, offset, per_group, with_vectors
            As in :meth:`search`.
        nprobe, recall, exact, memory
            Effort of the search, see :meth:`cfe_faiss.IndexEvidenceIVF.search_evidence`; by default
            ``store.index.nprobe`` lists. Filtered searches are exact, so ``nprobe`` must be left
            out with ``where``.
        exclude
            Ids that must not be found: a sequence for one query, or a sequence for each of several
            queries. Ids that are not stored are ignored.
        within
            Smallest and largest similarity of a result.
        neighbors
            Classes of the rows that may be found: "other" than the query's, its "own", or "any" (no
            label is needed).

        Returns
        -------
        Hits or list of Hits
            As in :meth:`search`; all rows have a class, and another one than the query. A list for
            several queries.

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described; if an id is not stored, a class is needed and
            missing, or not known: the message names the known ones.

        Notes
        -----
        With a filter exact, for every kind of index. Without one the index's own
        ``search_evidence``: exact for the exact index, with ``store.index.nprobe`` lists for
        others.
        """
        names = _as_ids(id_or_vector)
        page = self._page(k, offset, threshold)
        effort = Effort.of(nprobe, recall, exact, memory)
        if where is not None and nprobe is not None:
            raise ValueError(
                f"nprobe must be left out with where (such a search is exact), got nprobe={nprobe}"
            )
        own_keys = own_classes = None
        if names is None:
            X, single = self._queries("id_or_vector", id_or_vector)
        else:
            single = isinstance(id_or_vector, str)
        with self._lock.reading():
            table = self._contents.table
            if names is not None:
                rows = self._contents.known_rows_of(names)
                own_keys = table.keys[rows]
                own_classes = table.labels[rows]
                X = self._contents.vectors_of(own_keys)
            labels = self._labels_of(len(X), own_classes, label, single, neighbors)
            excluded = None
            if exclude is not None:
                values, lengths = as_lists("exclude", [exclude] if single else exclude, len(X))
                rows = self._contents.rows_of(check_ids(list(values)))
                keys = np.where(rows < 0, -1, table.keys[rows]) if len(rows) else rows
                excluded = padded(keys, lengths)
            # a row could find itself
            if own_keys is not None and (label is not None or neighbors != "other"):
                excluded = (
                    own_keys[:, None] if excluded is None else np.column_stack([own_keys, excluded])
                )
            rules = Rules.of(
                {
                    "exclude": excluded,
                    "within": within,
                    "neighbors": neighbors,
                    "per_group": per_group,
                }
            )
            query = Query(self._most(page), X=X, labels=labels, rules=rules)
            D, I = self._contents.evidence(query, self._mask(where), effort)
            hits = self._hits(D, I, page, with_vectors)
        return hits[0] if single else hits

    def _labels_of(
        self, n: int, own_classes: Int32s | None, label: Any, single: bool, neighbors: str
    ) -> Int32s:
        """Return the class number of n queries: that of ``label``, or else its own.

        Unknown for any class.
        """
        if neighbors == "any":
            if label is not None:
                raise ValueError(
                    f"label must be left out with neighbors='any', where it has no effect, got "
                    f"{label!r}"
                )
            return unknown_labels(n)
        labels = own_classes
        if labels is None or label is not None:
            labels = self._contents.table.classes.numbers(_given_labels(label, n, single))
        if own_classes is not None:
            labels = np.where(labels == UNKNOWN, own_classes, labels)
        if UNKNOWN in labels.tolist():
            name = "a vector" if own_classes is None else "an id that is not classified"
            raise ValueError(
                f"label must be given for {name}: the predicted class that evidence differs from"
            )
        return labels

    def _as_vectors(self, values: Any) -> Floats:
        """Return n vectors, (n, d), as the index stores them: a matrix, or a column of a table."""
        is_column = len(getattr(values, "shape", (0,))) == 1 and not isinstance(values, np.ndarray)
        if is_column and speaks_arrow(values):
            from cfe_faiss.store.arrow import matrix

            values = matrix("vectors", values)
        elif isinstance(values, np.ndarray) and values.dtype == object and values.ndim == 1:
            values = list(values)
        is_listed = isinstance(values, list | tuple | np.ndarray)
        if is_listed and not len(values) and not np.shape(values)[-1]:
            values = np.empty((0, self.d), np.float32)
        return as_rows("vectors", values, self.d, self.metric)

    def _queries(self, name: str, xq: Any) -> tuple[Floats, bool]:
        array = as_array(name, xq)
        single = array.ndim == 1
        return as_rows(name, array[None] if single else array, self.d, self.metric), single

    def _page(self, k: Any, offset: Any, threshold: float | None) -> tuple[int, int, np.float32]:
        """Return the number of hits and of hits to skip before them, and their least score."""
        least = np.float32(-np.inf)
        if threshold is not None:
            number = as_threshold("threshold", threshold, self.metric)
            least = np.float32(score_at(number, self.metric))
        return as_count("k", k), as_count("offset", offset, 0), least

    def _most(self, page: tuple[int, int, np.float32]) -> int:
        """Return the number of rows to search for, at most the number of stored rows."""
        return max(1, min(page[0] + page[1], len(self)))

    def _hits(
        self, D: Floats, I: Ints, page: tuple[int, int, np.float32], with_vectors: bool
    ) -> list[Hits]:
        _, offset, least = page
        I = np.where(least > flipped(D, self.metric), -1, I)
        hits = []
        for similarity, keys in zip(D[:, offset:], I[:, offset:], strict=True):
            n = len(keys) if len(keys) and keys[-1] >= 0 else int((keys >= 0).sum())
            ids, *columns = self._columns(
                self._contents.table.keys.searchsorted(keys[:n]), with_vectors
            )
            hits.append(Hits(ids, similarity[:n], *columns))
        return hits

    def _columns(self, rows: Ints, with_vectors: bool) -> tuple[Any, ...]:
        """Return ids, classes, metadata, documents and perhaps vectors of some rows."""
        table = self._contents.table
        names = table.classes.names
        return (
            table.ids[rows].tolist(),
            [
                None if number == UNKNOWN else names[number]
                for number in table.labels[rows].tolist()
            ],
            list(map(copy_metadata, table.metadata[rows])),
            table.documents[rows].tolist(),
            self._contents.vectors_of(table.keys[rows]) if with_vectors else None,
        )

    def pairs(self, threshold: float, *, block: int = 1 << 20) -> Iterator[Pairs]:
        """Yield all pairs of rows of different classes from the similarity ``threshold`` on.

        Parameters
        ----------
        threshold
            Least similarity, in [-1, 1]; for metric "l2" the largest squared distance.
        block
            Largest number of pairs yielded at once, >= 1.

        Returns
        -------
        Iterator of Pairs
            As from :func:`cfe_faiss.evidence_pairs`; ``source`` and ``target`` are arrays of the
            store's ids. Each unordered pair occurs once.

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described.
        RuntimeError
            While iterating, if the store has changed.

        Examples
        --------
        >>> import cfe_faiss as cfe
        >>> store = cfe.EvidenceStore(2)
        >>> store.add(["a", "b", "c"], [[1, 0], [0.8, 0.6], [0, 1]], ["spam", "ham", "spam"])
        >>> for pairs in store.pairs(threshold=0.7):
        ...     print(pairs.source, pairs.target, pairs.similarity.round(2))
        ['a'] ['b'] [0.8]
        """
        return map(self._name_pairs, evidence_pairs(self._contents.index, threshold, block=block))

    def explore(
        self,
        path: str | os.PathLike[str],
        k: int = 1000,
        *,
        mask_ids: bool = False,
        title: str = "Pairs of different classes",
        overwrite: bool = False,
    ) -> Path:
        """Write the k most similar pairs of rows of different classes as one page.

        It sorts, filters and marks pairs, and compares metadata and, word by word, texts; see
        :meth:`cfe_faiss.EvidenceFinder.explore`.

        Parameters
        ----------
        path
            The page to write; its name must end in ".html".
        k
            Number of pairs, >= 1.
        mask_ids
            Whether the page has places in :attr:`ids` in place of ids.
        title, overwrite
            Heading of the page; whether to replace a file that this package has not written.

        Returns
        -------
        Path
            The page. It holds the metadata of every row in a pair, and loads nothing.

        Raises
        ------
        ImportError
            If pandas or Jinja is missing, with the ``pip install`` that installs it.
        TypeError, ValueError
            If an argument is not as described.
        OSError
            If the page cannot be written.
        """
        page = functools.partial(self._explorer, k, title, mask_ids=mask_ids)
        return write_explorer(path, page, overwrite=overwrite)

    def _explorer(self, k: int, title: str, *, mask_ids: bool) -> str:
        with self._lock.reading():
            table = self._contents.table
            pairs = global_evidence(self._contents.index, k)
            ids, _, metadata, documents, _ = self._columns(table.rows, False)
            labels = table.labels[table.rows]
            source, target = (
                table.rows.searchsorted(table.keys.searchsorted(ends))
                for ends in (pairs.source, pairs.target)
            )
        cells = pd.DataFrame(metadata).rename(columns={"document": "document (metadata)"})
        if any(document is not None for document in documents):
            cells["document"] = documents
        explored = Explored(
            source=source,
            target=target,
            measure=measure_of(pairs.metric),
            values=measured(pairs.similarity, pairs.metric).astype(np.float64),
            ids=np.arange(len(ids)) if mask_ids else np.array(ids, object),
            attributes=as_attributes(cells, "metadata"),
            labels=labels,
            class_names=list(map(str, table.classes.names)),
        )
        return explorer_page(explored, title)

    def _name_pairs(self, pairs: Pairs) -> Pairs:
        """Return pairs with ids in place of keys."""
        with self._lock.reading():
            return self._with_ids(pairs)

    def _with_ids(self, pairs: Pairs) -> Pairs:
        table = self._contents.table
        source: Any = table.ids[table.keys.searchsorted(pairs.source)]
        target: Any = table.ids[table.keys.searchsorted(pairs.target)]
        return replace(pairs, source=source, target=target)

    def top_pairs(self, k: int, *, recall: float | None = None) -> Pairs:
        """Return the k most similar pairs of rows of different classes.

        Parameters
        ----------
        k
            Number of pairs, >= 1. Fewer are returned if the store has fewer.
        recall
            Target recall of the search of each row, in (0, 1]; None for the exact pairs.

        Returns
        -------
        Pairs
            As from :func:`cfe_faiss.global_evidence`; ``source`` and ``target`` are arrays of the
            store's ids.

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described.

        Examples
        --------
        >>> import cfe_faiss as cfe
        >>> store = cfe.EvidenceStore(2)
        >>> store.add(["a", "b", "c"], [[1, 0], [0.8, 0.6], [0, 1]], ["spam", "ham", "spam"])
        >>> pairs = store.top_pairs(k=1)
        >>> pairs.source, pairs.target, pairs.similarity.round(2)
        (array(['a'], dtype=object), array(['b'], dtype=object), array([0.8], dtype=float32))
        """
        with self._lock.reading():
            return self._with_ids(global_evidence(self._contents.index, k, recall=recall))

    def groups(self, threshold: float) -> list[DuplicateGroup]:
        """Return groups of near duplicates, of any class, by complete linkage.

        All rows of a group are as similar to each other as the threshold demands. Starting with
        single rows, the two groups with the largest least similarity become one, as long as that is
        possible.

        Parameters
        ----------
        threshold
            Least similarity, in [-1, 1]; for metric "l2" the largest squared distance.

        Returns
        -------
        list of DuplicateGroup
            Groups of at least two rows, the largest first. No row is in two groups.

        Raises
        ------
        TypeError, ValueError
            If ``threshold`` is not as described, or leaves more pairs or linked rows than memory is
            meant to hold.

        Notes
        -----
        O(n**2 * d) time at most, and memory for the pairs at the threshold, and for the matrix of
        distances of the rows that these link: at most 8,192.

        Examples
        --------
        >>> import cfe_faiss as cfe
        >>> store = cfe.EvidenceStore(2)
        >>> store.add(["a", "b", "c", "d"], [[1, 0], [0.9, 0.1], [0, 1], [0.9, 0.2]])
        >>> for group in store.groups(threshold=0.97):
        ...     print(group.ids, group.representative, round(group.similarity, 3))
        ['a', 'b', 'd'] b 0.976
        """
        with self._lock.reading():
            table = self._contents.table
            ids = table.ids[table.rows]
            vectors = self._contents.vectors_of(table.keys[table.rows])
        return duplicate_groups(ids, vectors, self.metric, threshold)

    def similarity_curve(
        self, group: str | None = None, *, sample: int = 10_000, seed: int = 0
    ) -> SimilarityCurve:
        """Return how often unrelated rows of different classes are similar, for each threshold.

        Its ``threshold(rate)`` is a threshold for ``watch=`` and :meth:`pairs`.

        Parameters
        ----------
        group
            Key of the metadata that names the document, patient or user of a row: rows with the
            same value are not compared with each other, and depend on each other. A row without the
            key stands for itself, as all rows do by default.
        sample, seed
            As in :func:`cfe_faiss.similarity_curve`.

        Returns
        -------
        SimilarityCurve
            As from :func:`cfe_faiss.similarity_curve` of the rows with a class.

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described, or the rows are of less than two classes.

        Examples
        --------
        >>> import numpy as np
        >>> import cfe_faiss as cfe
        >>> store = cfe.EvidenceStore(16)
        >>> X = np.random.default_rng(0).normal(size=(1000, 16))
        >>> store.add(map(str, range(1000)), X, ["spam", "ham"] * 500)
        >>> round(store.similarity_curve().threshold(rate=0.01), 3)
        0.833
        """
        check_type("group must be a key of the metadata or None", group, str | None)
        with self._lock.reading():
            table = self._contents.table
            rows = np.flatnonzero(table.labels >= 0)
            units = rows if group is None else group_codes(table, group)[rows]
            keys = table.keys[rows]
            return curve_of(self._contents.index, keys, table.labels[rows], units, sample, seed)

    # --- reading it -------------------------------------------------------------------------------

    def get(self, ids: Any = None, *, where: Any = None, skip_missing: bool = False) -> Rows:
        """Return stored rows.

        Parameters
        ----------
        ids
            Ids of the rows, in the order wanted; None for all rows, in the order of :attr:`ids`.
        where
            In place of ids: a filter, see :meth:`search`.
        skip_missing
            Whether to leave out unknown ids instead of raising an error.

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described, or an id is not stored.
        """
        if ids is not None and where is not None:
            raise TypeError("get takes either ids or where")
        with self._lock.reading():
            rows = self._select(ids, where, skip_missing=skip_missing)
            names, labels, metadata, documents, vectors = self._columns(rows, True)
        return Rows(names, vectors, labels, metadata, documents)

    def count(self, where: Any = None) -> int:
        """Return the number of rows that a filter selects (see :meth:`search`).

        Of all rows by default.
        """
        with self._lock.reading():
            mask = self._mask(where)
            return len(self) if mask is None else int(np.count_nonzero(mask))

    # --- tables -----------------------------------------------------------------------------------

    @classmethod
    def from_arrow(
        cls,
        table: Any,
        *,
        index: EvidenceIndex | str | None = None,
        id: str = "id",  # noqa: A002 - the name of a field
        vector: str = "vector",
        label: str = "label",
        document: str = "document",
    ) -> Self:
        """Return a store of the rows of a table.

        Parameters
        ----------
        table
            A table of pyarrow, pandas, polars, DuckDB or any other library with
            ``__arrow_c_stream__``.
        index
            As in :class:`EvidenceStore`.
        id, vector, label, document
            Names of the columns with ids (texts), vectors (lists of numbers), predicted classes
            (texts or integers) and texts. The latter two may be missing under their default names.
            All other columns are metadata, without nulls; the index of a pandas table is left out,
            unless it has a name.

        Raises
        ------
        ImportError
            If pyarrow is missing, with the ``pip install`` that installs it.
        TypeError, ValueError
            If the table lacks these columns, or holds values that cannot be stored, such as an id
            that is no text.
        """
        from cfe_faiss.store import arrow

        rows = arrow.rows_of(table, id, vector, label, document)
        store = cls(rows[1].shape[1], index)
        store.add(*rows)
        return store

    def upsert_table(
        self,
        table: Any,
        *,
        id: str = "id",  # noqa: A002 - the name of a field
        vector: str = "vector",
        label: str = "label",
        document: str = "document",
    ) -> None:
        """Add the rows of a table, in place of stored rows with the same ids.

        Parameters and errors as in :meth:`from_arrow`; nothing is changed after an error.
        """
        from cfe_faiss.store import arrow

        self.upsert(*arrow.rows_of(table, id, vector, label, document))

    def to_arrow(self) -> Any:
        """Return all rows as a ``pyarrow.Table``.

        Its columns are id, vector (unit vectors, a fixed-size list of float32), label, document and
        one for each key of the metadata. A key with the name of another column is called "label
        (metadata)"; a missing value is null. Values of metadata that no Arrow type holds together
        are written as JSON.

        Raises
        ------
        TypeError
            If labels are of several kinds, such as 1 and "1".
        ImportError
            If pyarrow is missing, with the ``pip install`` that installs it.
        """
        from cfe_faiss.store import arrow

        return arrow.to_arrow(self.get(), self.class_names)

    def to_pandas(self) -> Any:
        """Return all rows as a pandas DataFrame, with the columns of :meth:`to_arrow`."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """Return all rows as a polars DataFrame, with the columns of :meth:`to_arrow`."""
        import polars as pl

        return pl.from_arrow(self.to_arrow())

    # --- files ------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the store into a directory: index, rows as Parquet, manifest with checksums.

        The directory changes from the old store to the new one atomically, after all files are
        written and synced. A killed writer leaves the old store. A store that was loaded with
        ``mmap=True`` from the directory keeps the old files until it is released.

        Parameters
        ----------
        path
            A new or empty directory, or that of a store, which is replaced.
        overwrite
            Whether to write into a directory of other files. Only a ``manifest.json`` among them is
            replaced.

        Raises
        ------
        ImportError
            If pyarrow is missing, with the ``pip install`` that installs it.
        OSError
            If it cannot be written.
        ValueError
            If the directory holds other files, and ``overwrite`` is False; or if its store is
            mapped by an object that was not loaded from it.
        """
        from cfe_faiss.store import arrow

        with self._lock.reading():
            arrow.write(path, self._contents, overwrite=overwrite, origins=self._origins)
            self._origins = (*self._origins[:1], Path(path).resolve())

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, mmap: bool = False) -> Self:
        """Read a store written by :meth:`save`.

        Parameters
        ----------
        path
            Directory of the store.
        mmap
            Whether to leave the vectors in their file, which the system reads on demand. Such a
            store cannot be changed, and its vectors are not checked.

        Raises
        ------
        FileNotFoundError
            If there is no such directory.
        ImportError
            If pyarrow is missing, with the ``pip install`` that installs it.
        ValueError
            If it is not the directory of a store, is damaged, or is of another format version.
        """
        from cfe_faiss.store import arrow

        store = cls.__new__(cls)
        store._set_up(Contents(*arrow.read(path, mmap)))
        store._origins = (Path(path).resolve(),)
        return store


def _as_ids(values: Any) -> list[str] | None:
    """Return one text or a sequence of texts as ids, None for other values."""
    if isinstance(values, str):
        return [values]
    if not isinstance(values, Iterable) or getattr(values, "shape", None) == ():
        return None
    first = next(iter(values), None)
    is_text = isinstance(getattr(first, "as_py", lambda: first)(), str)
    return check_ids(values) if is_text else None


def _given_labels(label: Any, n: int, single: bool) -> list[Label]:
    if isinstance(label, str) or not hasattr(label, "__iter__"):
        return check_labels("label", [label], 1) * n
    if single:
        raise TypeError(f"label must be one class for one query, got {label!r}")
    return check_labels("label", label, n)
