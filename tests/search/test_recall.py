"""Calibration of nprobe: its sample of stored vectors, and the recall that it reaches."""

import numpy as np
import pytest
from numpy.typing import NDArray
from reference import quick, with_rows

import cfe_faiss as cfe
from cfe_faiss.search import recall
from cfe_faiss.search.derived import Derived
from cfe_faiss.search.query import Effort, Results

Arrays = tuple[NDArray[np.float32], NDArray[np.int32]]


def made(X: NDArray[np.float32], labels: NDArray[np.int32], nlist: int) -> cfe.IndexEvidenceIVF:
    index = cfe.IndexEvidenceIVF(X.shape[1], nlist)
    index.cp.niter = 3
    return with_rows(index, X, labels)


def points(seed: int, n: int, d: int, classes: int) -> Arrays:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)).astype(np.float32), rng.integers(-1, classes, n).astype(np.int32)


def test_standard_errors_match_clusters() -> None:
    values = np.random.default_rng(0).random(400)
    error = values.std(ddof=1) / 20
    assert recall._standard_error(values, np.arange(400)) == pytest.approx(error)
    expected = pytest.approx(error)
    assert recall._standard_error(np.repeat(values, 3), np.repeat(np.arange(400), 3)) == expected
    assert recall._standard_error(np.ones(1), np.zeros(1, np.int64)) == 0


def test_a_held_out_row_does_not_count_in_the_mean_of_its_list() -> None:
    X, labels = points(3, 900, 6, 12)
    for index in (made(X, labels, 12), cfe.IndexEvidenceIVF(6, 12, 2)):
        if index.ntotal == 0:
            index.train(X)
            index.add_with_labels(X, labels.clip(0))
        storage = index.storage()
        routes, starts = Derived.of(storage).routes_for(), storage.list_starts
        rows = storage.by_label[::40]
        twin = recall._held_out(storage, rows)
        held = Derived.of(twin).routes_for()
        members = np.concatenate([np.arange(storage.n), storage.references])
        vectors = storage.rows(np.arange(storage.n))[0]
        checked = 0
        for j in range(storage.lists):
            own = members[starts[j] : starts[j + 1]]
            for label in np.unique(storage.labels[np.intersect1d(own, rows)]):
                if routes.has_centroids(np.array([label]), np.array([j]))[0]:
                    continue
                left = own[
                    (storage.labels[own] >= 0)
                    & ~(np.isin(own, rows) & (storage.labels[own] == label))
                ]
                mean = vectors[left].sum(axis=0)
                place = np.searchsorted(held.labels, label)
                entries = np.arange(held.starts[place], held.starts[place + 1])
                (entry,) = entries[held.class_lists[entries] == j]
                expected = mean / np.linalg.norm(mean)
                np.testing.assert_allclose(held.class_means[entry], expected, rtol=1e-3, atol=1e-4)
                checked += 1
        assert checked > 10
        assert len(held.class_lists) == len(routes.class_lists) + checked


def rare(seed: int, n: int) -> Arrays:
    """Return vectors around centres; one in a hundred has class 1."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(7).normal(size=(60, 32))
    X = centres[rng.integers(0, 60, n)] + 0.9 * rng.normal(size=(n, 32))
    return X.astype(np.float32), (rng.random(n) < 0.01).astype(np.int32)


def reached(found: Results, exact: Results, chosen: NDArray[np.bool_]) -> float:
    return cfe.metrics.recall(
        found[1][chosen], exact[1][chosen], found[0][chosen], exact[0][chosen]
    )


@pytest.fixture(scope="module")
def skewed() -> cfe.IndexEvidenceIVF:
    X, labels = rare(0, 12_000)
    return made(X, labels, 436)


@pytest.fixture(scope="module")
def exact_stored(skewed: cfe.IndexEvidenceIVF) -> Results:
    return skewed.search_stored(k=10, exact=True)


@pytest.fixture(scope="module")
def new(skewed: cfe.IndexEvidenceIVF) -> tuple[*Arrays, Results]:
    """Return new vectors with their classes and their exact results."""
    X, labels = rare(1, 60_000)
    X = np.concatenate([X[labels == 0][:4000], X[labels == 1]])
    labels = np.repeat([0, 1], (4000, (labels == 1).sum()))
    return X, labels, skewed.search_evidence(X, labels, 10, exact=True)


@pytest.mark.parametrize("wanted", [0.9, 0.95, 0.99])
def test_a_rare_class_has_the_recall_that_is_asked_for(
    skewed: cfe.IndexEvidenceIVF, exact_stored: Results, new: tuple[*Arrays, Results], wanted: float
) -> None:
    members, exact = skewed.members(), exact_stored
    few = members.ids[members.labels == 1]
    exact_few = skewed.search_stored(few, 10, exact=True)
    every = np.ones(len(members.ids), np.bool_)
    found = skewed.search_stored(k=10, recall=wanted)
    assert reached(found, exact, every) >= wanted
    assert reached(found, exact, members.labels == 1) >= wanted - 0.01
    answer = reached(skewed.search_stored(few, 10, recall=wanted), exact_few, every[: len(few)])
    assert answer >= wanted - 0.01
    X, labels, exact = new
    found = skewed.search_evidence(X, labels, 10, recall=wanted)
    for label in (0, 1):
        assert reached(found, exact, labels == label) >= wanted - 0.01
    assert reached(found, exact, labels == 0) >= wanted  # nearly all queries have this class
    for i in (0, 100, 4100):
        alone = skewed.search_evidence(
            X[i : i + 1], labels[i : i + 1].astype(np.int32), 10, recall=wanted
        )
        np.testing.assert_array_equal(alone[1][0], found[1][i])  # independent of the other queries


def test_recall_by_class_tells_what_was_measured(
    skewed: cfe.IndexEvidenceIVF, exact_stored: Results
) -> None:
    members, exact = skewed.members(), exact_stored
    found = skewed.search_stored(k=10, recall=0.95)
    of_all, of_few = skewed.recall_by_class(0.95), skewed.recall_by_class(0.95, queries=1)
    assert list(of_all) == [0, 1]
    # all of its rows are in the sample
    assert of_all[1] == pytest.approx(reached(found, exact, members.labels == 1))
    assert of_all[0] == pytest.approx(reached(found, exact, members.labels == 0), abs=0.02)
    assert of_few != of_all
    assert skewed.recall_by_class(1.0) == {0: 1.0, 1: 1.0}
    effort = Effort(recall=0.95).with_defaults(skewed.default_effort())
    calibration = recall.calibration(skewed.storage(), 10, effort, batched=True)
    assert skewed.nprobe_for(0.95) == max(calibration.nprobe.values())
    with pytest.raises(ValueError, match="recall"):
        skewed.recall_by_class(1.5)
    with pytest.raises(ValueError, match="queries"):
        skewed.recall_by_class(0.9, queries=0)


def test_a_calibration_is_the_same_again_and_ends_with_a_change() -> None:
    X, labels = rare(0, 3000)
    first, second = made(X, labels, 100), made(X, labels, 100)
    for queries in (None, 1):
        found = first.recall_by_class(0.9, queries=queries)
        assert found == second.recall_by_class(0.9, queries=queries)
    assert Derived.of(first.storage()).calibrations == Derived.of(second.storage()).calibrations
    first.relabel(1 - labels)
    assert list(Derived.of(first.storage()).calibrations) == []
    first.search_stored(k=10, recall=0.9)


def test_the_recall_is_kept_where_rows_are_not_completed() -> None:
    X, labels = rare(0, 6000)
    index = made(X, labels, 120)
    index.search_stored(k=10, recall=0.95)
    index.complete = False
    exact, found = index.search_stored(k=10, exact=True), index.search_stored(k=10, recall=0.95)
    for label in (0, 1):
        assert reached(found, exact, labels == label) >= 0.94


def test_a_calibration_is_of_one_k_factor() -> None:
    X, labels = rare(0, 3000)
    index = with_rows(quick(cfe.index_factory(32, "EvidenceIVF30,PQ4,RFlat")), X, labels)
    index.k_factor = 50
    many = index.nprobe_for(0.8)
    index.k_factor = 2
    few = index.nprobe_for(0.8)
    assert few > many
    index.k_factor = 50
    assert index.nprobe_for(0.8) == many


@pytest.mark.parametrize(
    "kind", ["EvidenceIVF60x2,Flat", "EvidenceIVF60,SQ8", "EvidenceIVF60,PQ8,RFlat"]
)
def test_every_kind_of_index_keeps_the_recall_of_each_class(kind: str) -> None:
    X, labels = rare(0, 8000)
    labels[:160] = np.where(labels[:160] == 0, 2, labels[:160])  # another class with two per cent
    index = quick(cfe.index_factory(32, kind))
    index.train(X[:4000])
    index.add_with_labels(X, labels)
    exact, found = index.search_stored(k=10, exact=True), index.search_stored(k=10, recall=0.95)
    for label in range(3):
        assert reached(found, exact, labels == label) >= 0.94
    assert reached(found, exact, labels >= 0) >= 0.95


def test_recall_is_kept_where_lists_are_long_and_differ() -> None:
    rng = np.random.default_rng(1)
    n, nlist = 40_000, 40
    # In half of all places few lists hold what is near, in the other half many.
    centres = rng.normal(size=(nlist, 16))
    spread = np.where(np.arange(nlist) % 2, 0.05, 1.0)
    place = rng.integers(0, nlist, n)
    X = (centres[place] + spread[place, None] * rng.normal(size=(n, 16))).astype(np.float32)
    index = made(X, rng.integers(0, 2, n).astype(np.int32), nlist)
    ids = np.arange(0, n, 2)
    D, I = index.search_stored(ids, 10, recall=0.9)
    best_D, best_I = index.search_stored(ids, 10, exact=True)
    assert 0.9 <= cfe.metrics.recall(I, best_I, D, best_D) < 0.95
