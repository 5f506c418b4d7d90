import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from reference import Stored, clustered, quick, stored_vectors, with_rows

import cfe_faiss as cfe


@given(
    stored_vectors(least=12, lowest_label=-1),
    st.integers(2, 10),
    st.integers(1, 3),
    st.integers(1, 6),
    st.booleans(),
)
def test_certified_rows_are_exact(
    stored: Stored, nlist: int, partitions: int, nprobe: int, complete: bool
) -> None:
    index = cfe.IndexEvidenceIVF(stored.X.shape[1], nlist, partitions, complete=complete)
    index.train(stored.X)
    index.add_with_ids(stored.X, stored.ids)
    index.relabel(stored.labels, stored.ids)
    D, I, certified = index.search_certified(None, stored.k, nprobe)
    exact_D, _ = index.search_stored(None, stored.k, exact=True)
    assert_array_equal(D[certified], exact_D[certified])
    assert certified[
        (exact_D == D).all(axis=1) & (stored.labels[np.argsort(stored.ids)] == -1)
    ].all()
    assert_array_equal(I, index.search_stored(None, stored.k, nprobe)[1])


@pytest.mark.parametrize(
    "make", ["EvidenceIVF40,Flat", "EvidenceIVF40,SQ8", "EvidenceIVF40,PQ3,RFlat"]
)
def test_many_rows_are_certified_in_few_dimensions_and_more_with_more_lists(make: str) -> None:
    X, labels = clustered(4000, 3, 3)
    index = with_rows(quick(cfe.index_factory(3, make)), X, labels)
    exact_D, _ = index.search_stored(None, 5, exact=True)
    shares = []
    for nprobe in (4, 12, 40):
        D, _, certified = index.search_certified(None, 5, nprobe)
        assert_array_equal(D[certified], exact_D[certified])
        shares.append(certified.mean())
    assert shares[-1] == 1
    if "PQ" not in make:  # screening by codes does not score every vector of a probed list
        assert 0.1 < shares[0] < shares[1]
    some, _, certified = index.search_certified([3, 99], 5, 40)
    assert some.shape == (2, 5)
    assert certified.all()
