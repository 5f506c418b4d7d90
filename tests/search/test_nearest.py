from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from reference import PADDING, clustered, cosine, unit

import cfe_faiss as cfe
from cfe_faiss.search import exact
from cfe_faiss.search.exact import pad_results
from cfe_faiss.search.query import Queries, Rules


def searched(storage: Any, X: Any, k: int, allowed: Any = None, in_place: bool = False) -> Any:
    queries = replace(Queries.of_vectors(storage, X, np.zeros(len(X), np.int32), k), allowed=allowed)
    queries.rules = Rules("any")
    if in_place:
        return pad_results(*exact._scan_in_place(queries), k)
    return pad_results(*exact.scan_blocks(queries, exact.query_tiles(queries), None), k)


@pytest.mark.parametrize("description", ["EvidenceFlat", "EvidenceIVF7,Flat", "EvidenceIVF7x2,SQ8"])
@pytest.mark.parametrize("share", [None, 0.0, 0.05, 0.6, 1.0])
@pytest.mark.parametrize("nq", [1, 9])
def test_the_best_allowed_rows_are_found(
    description: str, share: float | None, nq: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exact, "TILE", 40 * nq)  # several tiles
    X, labels = clustered(500, 12, 3)
    X[7] = X[3]
    index = cfe.index_factory(12, description)
    if not index.is_trained:
        index.train(X)
    index.add_with_labels(X[:400], labels[:400], np.arange(400) * 3 % 401)
    index.add_with_ids(X[400:], np.arange(1000, 1100))  # rows without a class
    storage = index.storage()
    rows, ids = storage.rows(np.arange(storage.n))
    allowed = None if share is None else np.random.default_rng(0).random(500) < share
    queries = unit(clustered(500, 12, 3)[0][3 : 3 + nq])
    D, I = searched(storage, queries, 8, allowed)
    for one, other in zip((D, I), searched(storage, queries, 8, allowed, True), strict=True):
        assert_array_equal(one, other)
    chosen = np.ones(500, bool) if allowed is None else allowed
    for q in range(nq):
        scores = cosine(queries[q], rows)
        order = [i for i in np.lexsort((ids, -scores)) if chosen[i]][:8]
        assert_array_equal(I[q], [*ids[order], *[-1] * (8 - len(order))])
        assert_array_equal(D[q], [*scores[order], *[PADDING] * (8 - len(order))])


def test_more_than_there_are() -> None:
    index = cfe.IndexEvidenceIDMap2(4)
    assert searched(index.storage(), np.eye(2, 4, dtype=np.float32), 3)[1].tolist() == [[-1] * 3] * 2
    index.add_with_labels(np.eye(2, 4), [0, 1])
    D, I = searched(index.storage(), np.eye(1, 4, dtype=np.float32), 3)
    assert I.tolist() == [[0, 1, -1]]
    assert D.tolist() == [[1, 0, PADDING]]
