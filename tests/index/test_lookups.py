import faiss
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from reference import clustered, unit, with_rows

import cfe_faiss as cfe


@pytest.mark.parametrize(
    "factory",
    ["IDMap2,EvidenceFlat", "EvidenceIVF12,Flat", "EvidenceIVF12x2,SQ8", "EvidenceIVF12,PQ4,RFlat"],
)
def test_repeated_and_unknown_ids_are_looked_up(factory: str) -> None:
    X, labels = clustered(600, 8, 3)
    ids = np.random.default_rng(0).permutation(5000)[:600]
    index = with_rows(cfe.index_factory(8, factory), X, labels, ids)
    wanted = np.random.default_rng(1).choice(ids, 900)
    vectors = index.reconstruct_batch(ids)
    order = np.argsort(ids)
    expected = vectors[order[np.searchsorted(ids[order], wanted)]]
    assert_array_equal(index.reconstruct_batch(wanted), expected)
    I = index.search_stored(wanted, k=2)[1]
    first = index.search_stored(wanted[:1], k=2)
    same = wanted == wanted[0]
    assert same.sum() > 1
    assert (I[same] == first[1]).all()
    with index.holding() as snapshot:
        rows = snapshot.rows_of(np.array([*wanted, 5001, -1, -7]))
        assert_array_equal(snapshot.ids()[rows[:900]], wanted)
        assert_array_equal(rows[900:], -1)
    found = index.remove_ids(np.concatenate([wanted[:5], wanted[:5], [5001]]))
    assert found == len(set(wanted[:5].tolist()))


def test_changes_on_several_threads_are_those_of_one() -> None:
    n, rng = 60_000, np.random.default_rng(0)
    X, labels = rng.normal(size=(n, 64)).astype(np.float32), rng.integers(0, 7, n)
    files = []
    before = faiss.omp_get_max_threads()
    for number in (1, 2, 3):
        faiss.omp_set_num_threads(number)
        try:
            index = cfe.IndexEvidenceIVF(64, 30)
            index.take_centroids(unit(X[:30])[None])
            index.add_with_labels(X[: n // 2], labels[: n // 2])
            index.add_with_labels(X[n // 2 :], labels[n // 2 :])
            index.relabel((labels + 1) % 5)
            index.remove_ids(np.arange(0, n, 3))
            files.append(cfe.serialize_index(index))
        finally:
            faiss.omp_set_num_threads(before)
    assert_array_equal(files[1], files[0])
    assert_array_equal(files[2], files[0])
