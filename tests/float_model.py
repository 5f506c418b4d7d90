"""A model of an evidence index in plain NumPy, with one dictionary of rows and brute force for every search."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from reference import PADDING, cosine, similarity, squared_distance, tanimoto

Rows = NDArray[np.float32]
Results = tuple[NDArray[np.float32], NDArray[np.int64]]


@dataclass
class Rules:
    """Rules of a search, one entry for each query where there are several."""

    neighbors: str = "other"
    sel: Any = None  # ids, or a mask of the rows in ascending order of their ids
    exclude: list[list[int]] | None = None
    exclude_labels: list[list[Any]] | None = None
    within: tuple[float, float] | None = None
    per_group: int | None = None
    sel_form: Callable[[Any], Any] = np.asarray

    def options(self) -> dict[str, Any]:
        """Return the rules as keywords of a search."""
        rules = {name: value for name, value in vars(self).items() if value is not None}
        sel_form = rules.pop("sel_form")
        if self.sel is not None:
            rules["sel"] = sel_form(self.sel)
        if self.neighbors == "other":
            del rules["neighbors"]
        return rules


@dataclass
class Model:
    """Rows by id: the vector as it is stored, and the label or None.

    Attributes
    ----------
    metric
        "cosine", "ip", "l2" or "tanimoto".
    positional
        Whether ids are positions: rows that follow a removed row get smaller ids.
    """

    metric: str
    positional: bool = False
    rows: dict[int, tuple[Rows, Any]] = field(default_factory=dict)

    @property
    def ids(self) -> list[int]:
        return sorted(self.rows)

    def next_ids(self, number: int) -> list[int]:
        first = max(self.rows, default=-1) + 1
        return list(range(first, first + number))

    def put(self, ids: list[int], X: Rows, labels: list[Any]) -> None:
        self.rows.update({id_: (x, label) for id_, x, label in zip(ids, X, labels, strict=True)})

    def relabel(self, ids: list[int], labels: list[Any]) -> None:
        self.put(ids, np.array([self.rows[id_][0] for id_ in ids]), labels)

    def replace(self, ids: list[int], X: Rows, labels: list[Any] | None) -> None:
        self.put(ids, X, [self.rows[id_][1] for id_ in ids] if labels is None else labels)

    def remove(self, ids: list[int]) -> int:
        before = len(self.rows)
        left = [(id_, row) for id_, row in sorted(self.rows.items()) if id_ not in set(ids)]
        self.rows = {
            place if self.positional else id_: row for place, (id_, row) in enumerate(left)
        }
        return before - len(left)

    def vectors(self, ids: list[int]) -> Rows:
        return np.array([self.rows[id_][0] for id_ in ids], np.float32)

    def labels(self, ids: list[int]) -> list[Any]:
        return [self.rows[id_][1] for id_ in ids]

    def classes(self) -> list[Any]:
        return sorted({label for _, label in self.rows.values() if label is not None})

    def scores(self, xq: Rows) -> NDArray[np.float32]:
        """Return the scores of queries with all rows, (nq, n), in ascending order of ids: larger is nearer."""
        X = self.vectors(self.ids)
        if not len(X) or not len(xq):
            return np.empty((len(xq), len(X)), np.float32)
        if self.metric == "l2":
            return np.asarray(0 - squared_distance(xq[:, None], X[None]))
        functions = {"cosine": cosine, "ip": similarity, "tanimoto": tanimoto}
        return np.asarray(functions[self.metric](xq[:, None], X[None]))

    def eligible(
        self, scores: NDArray[np.float32], labels: list[Any], asked: list[int | None], rules: Rules
    ) -> NDArray[np.bool_]:
        """Return whether each query, with a label and its own id or None, may find each row, (nq, n)."""
        ids = np.array(self.ids, np.int64)
        of_rows = np.array([*self.labels(self.ids), None], object)[:-1]
        known = np.array([label is not None for label in of_rows], bool)
        found = np.ones(scores.shape, bool)
        for q, label in enumerate(labels):
            same = np.array([label is not None and other == label for other in of_rows], bool)
            if rules.neighbors == "own":
                found[q] &= same
            elif rules.neighbors == "other":
                found[q] &= known & ~same & (label is not None)
            found[q] &= ids != (-1 if asked[q] is None else asked[q])
            if rules.sel is not None:
                is_mask = isinstance(rules.sel, np.ndarray)
                found[q] &= rules.sel if is_mask else np.isin(ids, rules.sel)
            if rules.exclude is not None:
                found[q] &= ~np.isin(ids, rules.exclude[q])
            if rules.exclude_labels is not None:
                found[q] &= np.array(
                    [other is None or other not in rules.exclude_labels[q] for other in of_rows],
                    bool,
                )
        if rules.within is not None:
            low, high = np.clip(rules.within, -3.4e38, 3.4e38).astype(np.float32)
            D = self.as_results(scores)
            found &= (low <= D) & (high >= D)
        return found

    def as_results(self, scores: Any) -> Any:
        """Return D from scores."""
        return 0 - scores if self.metric == "l2" else scores

    def search(
        self,
        xq: Rows,
        labels: list[Any],
        k: int,
        rules: Rules,
        asked: list[int | None] | None = None,
    ) -> Results:
        scores, ids = self.scores(xq), np.array(self.ids, np.int64)
        eligible = self.eligible(scores, labels, asked or [None] * len(xq), rules)
        D, I = np.full((len(xq), k), PADDING, np.float32), np.full((len(xq), k), -1, np.int64)
        for q in range(len(xq)):
            rows = np.flatnonzero(eligible[q])
            rows = rows[np.lexsort((ids[rows], -scores[q, rows]))]
            rows = self.limited(rows, rules.per_group)[:k]
            D[q, : len(rows)], I[q, : len(rows)] = scores[q, rows], ids[rows]
        return self.as_results(D), I

    def limited(self, ranking: NDArray[np.int64], per_group: int | None) -> NDArray[np.int64]:
        """Return the rows of a ranking that a greedy pass keeps, with so many of each known class."""
        if per_group is None:
            return ranking
        labels = self.labels(self.ids)
        counts: dict[Any, int] = {}
        chosen = []
        for row in ranking.tolist():
            label = labels[row]
            counts[label] = counts.get(label, 0) + 1
            if label is None or counts[label] <= per_group:
                chosen.append(row)
        return np.array(chosen, np.int64)

    def pairs(self) -> list[tuple[np.float32, int, int]]:
        """Return score, smaller id and larger id of all pairs of different known labels, best first."""
        ids, labels = self.ids, self.labels(self.ids)
        scores = self.scores(self.vectors(ids)) if ids else np.empty((0, 0), np.float32)
        pairs = [
            (scores[i, j], ids[i], ids[j])
            for i in range(len(ids))
            for j in range(i + 1, len(ids))
            if labels[i] is not None and labels[j] is not None and labels[i] != labels[j]
        ]
        return sorted(pairs, key=lambda pair: (-pair[0], pair[1], pair[2]))
