import faiss
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_array_equal
from reference import clustered, unit

import cfe_faiss as cfe
from cfe_faiss.rows.snapshot import stable_order


@given(
    hnp.arrays(
        np.int32, st.integers(0, 50), elements=st.sampled_from([-1, 0, 3, 65534, 65535, 2**31 - 2])
    )
)
def test_equal_keys_keep_their_order(keys: np.ndarray) -> None:
    assert_array_equal(stable_order(keys), np.argsort(keys, kind="stable"))


@pytest.mark.parametrize("codec", ["Flat", "SQ8", "SQfp16", "PQ4,RFlat"])
def test_lists_hold_what_stock_faiss_puts_there_sorted_by_label(codec: str) -> None:
    X, labels = clustered(700, 8, 4)
    rng = np.random.default_rng(0)
    ids, labels = rng.permutation(5000)[:700], rng.permutation(labels)
    index = cfe.index_factory(8, f"EvidenceIVF9,{codec}")
    index.train(X)
    stock = index.to_stock()
    stock.add_with_ids(unit(X), ids)
    for some in (slice(0, 1), slice(1, 300), slice(300, 300), slice(300, 303), slice(303, 700)):
        index.add_with_labels(X[some], labels[some], ids[some])
    by_id = dict(zip(ids.tolist(), labels.tolist(), strict=True))
    for j in range(9):
        lists = [one.invlists for one in (index, stock)]
        size = lists[1].list_size(j)
        assert lists[0].list_size(j) == size > 0
        found, expected = (faiss.rev_swig_ptr(one.get_ids(j), size) for one in lists)
        order = np.argsort([by_id[i] for i in expected.tolist()], kind="stable")
        assert_array_equal(found, expected[order])
        codes, expected_codes = (
            faiss.rev_swig_ptr(one.get_codes(j), size * index.code_size).reshape(size, -1)
            for one in lists
        )
        assert_array_equal(codes, expected_codes[order])
    assert index.ntotal == 700
