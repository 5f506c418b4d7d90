"""Evidence of several models on the same rows: which of it appears, disappears and stays."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.audit.tables import Bools, Ints
from cfe_faiss.finder import EvidenceFinder
from cfe_faiss.index.flat import IndexEvidenceFlat
from cfe_faiss.pairs import evidence_pairs

Models: TypeAlias = Mapping[str, NDArray[np.int32]]
"""Predicted class of every row, (n,), by the name of the model; the first one is the baseline."""


class Changes(NamedTuple):
    """Evidence of the baseline or of another model.

    Attributes
    ----------
    source, target
        Row numbers of both sides, (p,).
    similarity
        (p,) float32.
    before, after
        Whether it is evidence of the baseline, and of the other model, (p,); one of them at least.
    """

    source: Ints
    target: Ints
    similarity: NDArray[np.float32]
    before: Bools
    after: Bools

    @classmethod
    def none(cls) -> Self:
        """Return no evidence."""
        return cls(*(np.empty(0, dtype) for dtype in (np.int64, np.int64, np.float32, bool, bool)))

    def take(self, rows: Ints | Bools) -> "Changes":
        """Return some of them, given by position or by a mask."""
        sides = self.source[rows], self.target[rows]
        return Changes(*sides, self.similarity[rows], self.before[rows], self.after[rows])


def changes_of_neighbours(finder: EvidenceFinder, rows: Ints, models: Models, k: int) -> Iterator[tuple[str, Changes]]:
    """Yield for each other model the k nearest evidence of each row, under it and under the baseline.

    One exact index is relabelled for each model. The finder's own index is left alone: others may be searching it.
    """
    n, index = len(finder.labels), IndexEvidenceFlat(finder.vectors.shape[1])

    def search() -> tuple[Ints, NDArray[np.float32]]:
        D, I = index.search_stored(None, k)
        row, place = np.nonzero(I >= 0)
        return rows[row] * n + I[row, place], D[row, place]

    (_, baseline), *others = models.items()
    index.add_with_labels(finder.vectors[rows], baseline[rows], ids=rows)
    first = search()
    for name, labels in others:
        index.relabel(labels[rows], ids=rows)
        found = search()
        both = np.concatenate([first[0], found[0]])  # each of the two holds a key once
        union, position, count = np.unique(both, return_index=True, return_counts=True)
        before, similarity = position < len(first[0]), np.concatenate([first[1], found[1]])[position]
        yield name, Changes(*np.divmod(union, n), similarity, before, ~before | (count == 2))


def changes_above(
    finder: EvidenceFinder, rows: Ints, models: Models, threshold: float
) -> Iterator[tuple[str, Changes]]:
    """Yield for each other model, in blocks, the pairs of at least this similarity that it or the baseline separates.

    One search serves all models: its classes are the combinations of all their classes.
    """
    table = np.stack(list(models.values()))
    combined = np.unique(table[:, rows], axis=1, return_inverse=True)[1].ravel()
    index = IndexEvidenceFlat(finder.vectors.shape[1])
    index.add_with_labels(finder.vectors[rows], combined.astype(np.int32), ids=rows)
    for pairs in evidence_pairs(index, threshold):
        differ = table[:, pairs.source] != table[:, pairs.target]
        for name, after in list(zip(models, differ, strict=True))[1:]:
            block = Changes(pairs.source, pairs.target, pairs.similarity, differ[0], after)
            yield name, block.take(differ[0] | after)


def closest(blocks: list[Changes], most: int) -> Changes:
    """Return at most ``most`` changes: first evidence of one model only, each kind by descending similarity."""
    joined = Changes(*map(np.concatenate, zip(*blocks, strict=True)))
    rank = np.where(joined.before & joined.after, 3, 0) - joined.similarity  # a similarity is at least -1
    if len(rank) > most:
        near = np.flatnonzero(rank <= np.partition(rank, most - 1)[most - 1])
        joined, rank = joined.take(near), rank[near]
    return joined.take(np.lexsort((joined.target, joined.source, rank))[:most])
