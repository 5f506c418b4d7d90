from dataclasses import replace

import faiss
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from reference import Stored, assert_same_arrays, clustered, evidence, stored_vectors, with_rows

import cfe_faiss as cfe


def indexes(stored: Stored) -> list[cfe.IndexEvidenceIDMap2 | cfe.IndexEvidenceIVF]:
    flat = cfe.IndexEvidenceIDMap2(stored.X.shape[1])
    ivf = cfe.IndexEvidenceIVF(stored.X.shape[1], 4, 2)
    ivf.train(stored.X)
    for index in (flat, ivf):
        index.add_with_ids(stored.X, stored.ids)
        index.relabel(stored.labels, stored.ids)
    return [flat, ivf]


@given(
    stored_vectors(least=4, lowest_label=-1),
    st.booleans(),
    st.booleans(),
    st.floats(-1, 1, width=32),
)
def test_selectors_and_targets_combine_with_the_exclusion(
    stored: Stored, deny: bool, target: bool, threshold: float
) -> None:
    listed = faiss.IDSelectorBatch(stored.ids[::2])
    keep = np.arange(len(stored.ids)) % 2 == 0
    if deny:
        listed, keep = faiss.IDSelectorNot(listed), ~keep
    targets = [0, 2] if target else None
    labels = np.where(keep & (np.isin(stored.labels, [0, 2]) | (not target)), stored.labels, -1)
    expected_D, expected_I = evidence(stored._replace(labels=labels))
    all_D, all_I = evidence(stored._replace(labels=labels, k=len(stored.X)))
    reaches = (all_I >= 0) & (all_D > np.float32(threshold))  # as in FAISS
    for index in indexes(stored):
        params = cfe.EvidenceParameters(
            stored.labels_q, 8 if index.has_lists else None, listed, targets
        )
        expected = (expected_D, expected_I)
        assert_same_arrays(index.search(stored.xq, stored.k, params=params), expected)
        with pytest.raises(ValueError, match=r"params\.nprobe must be left out in a range search"):
            index.range_search(stored.xq, threshold, params=replace(params, nprobe=8))
        lims, _, I = index.range_search(stored.xq, threshold, params=replace(params, nprobe=None))
        assert_array_equal(np.diff(lims), reaches.sum(axis=1))
        assert_array_equal(I, all_I[reaches])


@given(stored_vectors(least=12), st.integers(1, 3))
def test_rows_stay_complete_under_a_selector(stored: Stored, nprobe: int) -> None:
    first = faiss.IDSelectorBatch(stored.ids[:3])
    labels = np.where(np.arange(len(stored.ids)) < 3, stored.labels, -1)
    expected = evidence(stored._replace(labels=labels))[1]
    for index in indexes(stored):
        params = cfe.EvidenceParameters(stored.labels_q, nprobe if index.has_lists else None, first)
        assert_array_equal(index.search(stored.xq, stored.k, params=params)[1] >= 0, expected >= 0)


def test_one_label_serves_all_queries_and_outputs_are_filled() -> None:
    X, labels = clustered(100, 6, 3)
    for index in indexes(Stored(X, labels, np.arange(100), X, labels, 5)):
        D, I = np.empty((7, 5), np.float32), np.empty((7, 5), np.int64)
        found = index.search(X[:7], 5, params=cfe.EvidenceParameters(1, exact=True), D=D, I=I)
        assert found[0] is D
        assert found[1] is I
        assert_array_equal(I, index.search_evidence(X[:7], [1] * 7, 5)[1])


class TestExcluding:
    def test_leaves_the_class_out_for_code_that_knows_no_classes(self) -> None:
        X, labels = clustered(200, 6, 3)
        for index in indexes(Stored(X, labels, np.arange(200), X, labels, 5)):
            view = index.excluding(2)
            expected = index.search_evidence(X[:9], [2] * 9, 5)
            assert_array_equal(view.search(X[:9], 5)[1], expected[1])
            lims, D, _ = view.range_search(X[:9], 0.5)
            assert_array_equal(D, index.range_search_evidence(X[:9], [2] * 9, 0.5)[1])
            assert len(lims) == 10
            sel = faiss.IDSelectorRange(0, 100)
            params = faiss.SearchParameters(sel=sel)
            if isinstance(index, cfe.IndexEvidenceIVF):
                params = faiss.SearchParametersIVF(sel=sel, nprobe=1)
            I = view.search(X[:9], 5, params=params)[1]
            assert (I < 100).all()
            assert (labels[I] != 2).all()
            assert (view.d, view.ntotal) == (6, 200)
            assert_array_equal(view.reconstruct(3), index.reconstruct(3))
            assert repr(view) == f"{index!r}.excluding(2)"

    def test_settings_match_the_index(self) -> None:
        X, labels = clustered(200, 6, 3)
        ivf = indexes(Stored(X, labels, np.arange(200), X, labels, 5))[1]
        view = ivf.excluding(2)
        view.nprobe = 3
        assert ivf.nprobe == view.nprobe == 3
        with pytest.raises(AttributeError):
            view.unheard_of = 1

    def test_cpp_code_does_not_take_a_view(self) -> None:
        index = cfe.IndexEvidenceIDMap2(2)
        with pytest.raises((TypeError, AttributeError)):
            faiss.IndexShards(2).add_shard(index.excluding(0))


@pytest.mark.parametrize(
    ("params", "error", "message"),
    [
        ({"labels": [0, 1]}, ValueError, r"params.labels must have shape \(1,\).*got \(2,\)"),
        ({"labels": -1}, ValueError, "params.labels must lie in"),
        ({"labels": 0.5}, TypeError, "params.labels must be integers"),
        ({"labels": 0, "sel": "all"}, TypeError, "params.sel .*got 'all'"),
        ({"labels": 0, "targets": [-1]}, ValueError, "params.targets must lie in"),
    ],
)
def test_bad_parameters_are_named(
    params: dict[str, object], error: type[Exception], message: str
) -> None:
    index = with_rows(cfe.IndexEvidenceIDMap2(2), np.eye(2), [0, 1])
    with pytest.raises(error, match=message):
        index.search(np.eye(2)[:1], 1, params=cfe.EvidenceParameters(**params))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"D must be a float32 array of shape \(1, 1\)"):
        index.search(
            np.eye(2)[:1], 1, params=cfe.EvidenceParameters(0), D=np.empty((1, 2), np.float32)
        )
