"""At most some results of each class: a greedy pass over the whole ranking.

Random rules with a limit, and every kind of index, are compared in :mod:`test_random_operations`.
"""

from typing import Any

import numpy as np
import pytest
from float_model import Model, Rules
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from reference import assert_same_arrays, with_rows

import cfe_faiss as cfe


@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 120),
    classes=st.integers(1, 40),
    k=st.integers(1, 60),
    limit=st.integers(1, 5),
    neighbors=st.sampled_from(["other", "own", "any"]),
)
def test_results_are_those_of_a_greedy_pass(
    seed: int, n: int, classes: int, k: int, limit: int, neighbors: Any
) -> None:
    rng = np.random.default_rng(seed)
    X = rng.integers(-3, 4, (n, 2)).astype(np.float32)  # many ties
    y = np.minimum(rng.geometric(3 / classes, n) if classes > 3 else rng.integers(0, 3, n), classes)
    y = np.where(rng.random(n) < 0.1, -1, y)
    xq, labels_q = rng.integers(-3, 4, (7, 2)).astype(np.float32), rng.integers(0, classes + 1, 7)
    index = cfe.IndexEvidenceFlat(2, "l2")
    index.add(X)
    index.relabel(y)
    model = Model("l2")
    labels = [None if label < 0 else label for label in y.tolist()]
    model.put(list(range(n)), X, labels)
    exclude = [[int(rng.integers(0, n))] for _ in range(7)] if rng.random() < 0.5 else None
    rules = Rules(neighbors, exclude=exclude, per_group=limit)
    found = index.search_evidence(xq, labels_q, k, **rules.options())
    assert_same_arrays(found, model.search(xq, labels_q.tolist(), k, rules))
    one = [[exclude[0][0]]] if exclude is not None else None
    found = index.search_evidence(
        xq[:1], labels_q[:1], k, **Rules(neighbors, exclude=one, per_group=limit).options()
    )
    rules = Rules(neighbors, exclude=one, per_group=limit)
    assert_same_arrays(found, model.search(xq[:1], labels_q[:1].tolist(), k, rules))


@given(seed=st.integers(0, 2**32 - 1), limit=st.integers(1, 3))
def test_constraints_hold_within_the_limit(seed: int, limit: int) -> None:
    rng = np.random.default_rng(seed)
    n = 60
    X, y, age = rng.normal(size=(n, 3)).astype(np.float32), rng.integers(0, 9, n), np.arange(n) % 7
    index = with_rows(cfe.IndexEvidenceIDMap2(3), X, y)
    about: Any = {
        "where": cfe.Constraints(caliper={"age": 2}),
        "attributes": {"age": age},
        "queries": np.arange(9),
    }
    every = index.search(X[:9], n, params=cfe.EvidenceParameters(y[:9], **about))[1]
    params = cfe.EvidenceParameters(y[:9], **about, per_group=limit)
    found = index.search(X[:9], 20, params=params)[1]
    for row, ranking in zip(found, every, strict=True):
        counts = np.zeros(9, int)
        greedy = []
        for id_ in ranking[ranking >= 0]:
            counts[y[id_]] += 1
            greedy += [id_] if counts[y[id_]] <= limit else []
        greedy = greedy[:20]
        assert_array_equal(row, [*greedy, *[-1] * (20 - len(greedy))])


def test_lists_give_complete_rows_within_the_limit() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(3000, 8)).astype(np.float32), rng.integers(0, 300, 3000)
    index = with_rows(cfe.IndexEvidenceIVF(8, 50), X, y)
    exact = index.search_stored(np.arange(200), 20, per_group=1, exact=True)
    for effort in ({"nprobe": 2}, {"nprobe": 50}, {"recall": 0.9}, {}):
        D, I = index.search_stored(np.arange(200), 20, per_group=1, **effort)
        assert (I >= 0).all()
        assert (np.diff(D, axis=1) <= 0).all()
        labels = np.sort(y[I], axis=1)
        assert (labels[:, 1:] != labels[:, :-1]).all()
        if effort not in ({"nprobe": 2}, {}):
            assert_same_arrays((D, I), exact)


@pytest.mark.parametrize("description", [None, "EvidenceIVF4,Flat"])
def test_a_store_returns_so_many_chunks_of_a_document(description: str | None) -> None:
    rng = np.random.default_rng(1)
    X, document = rng.normal(size=(240, 6)).astype(np.float32), rng.integers(0, 40, 240)
    names = [f"document {number}" for number in document]
    names[7] = None  # type: ignore[call-overload]
    store = cfe.EvidenceStore(6, description)
    store.add([str(row) for row in range(240)], X, names)
    for where in (None, {"$label": {"$ne": "document 3"}}):
        ranking = store.search(X[0], 240, where)
        counts: dict[Any, int] = {}
        kept = []
        for id_, label in zip(ranking.ids, ranking.labels, strict=True):
            counts[label] = counts.get(label, 0) + 1
            if label is None or counts[label] <= 2:
                kept.append(id_)
        assert store.search(X[0], 10, where, per_group=2).ids == kept[:10]
        assert store.search(X[0], 10, where, per_group=2, offset=10).ids == kept[10:20]
        assert store.search(X[:3], 300, where, per_group=2)[0].ids == kept
    own = store.evidence("5", 20, per_group=1, exact=True)
    assert len(set(own.labels)) == len(own.labels) == 20
    assert names[5] not in own.labels


def test_wrong_limits_are_named() -> None:
    index = with_rows(cfe.IndexEvidenceFlat(2), np.eye(2), [0, 1])
    with pytest.raises(ValueError, match="per_group must be at least 1, got 0"):
        index.search_evidence(np.eye(2), [0, 1], 1, per_group=0)
    with pytest.raises(TypeError, match=r"params\.per_group must be an integer"):
        index.search(np.eye(2), 1, params=cfe.EvidenceParameters([0, 1], per_group=1.5))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"params\.per_group must be left out in a range search"):
        index.range_search(np.eye(2), 0.5, params=cfe.EvidenceParameters([0, 1], per_group=1))
    with pytest.raises(TypeError, match="per_group"):
        index.range_search_evidence(np.eye(2), [0, 1], 0.5, per_group=1)  # type: ignore[call-arg]
