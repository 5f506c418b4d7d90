from dataclasses import astuple

import numpy as np
import pytest
from numpy.typing import NDArray

import cfe_faiss as cfe


def mixture(n: int, seed: int = 0) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(40, 16))
    centre = rng.integers(0, 40, n)
    X = centres[centre] + 0.6 * rng.normal(size=(n, 16))
    return X.astype(np.float32), np.where(rng.random(n) < 0.7, centre % 4, rng.integers(0, 4, n))


@pytest.fixture(scope="module")
def tuning() -> cfe.Tuning:
    return cfe.tune(*mixture(6000), k=10, recall=0.9, sample=3000)


def test_the_best_setting_reaches_the_recall_also_where_it_was_not_chosen(tuning: cfe.Tuning) -> None:
    assert tuning.best.recall >= 0.9
    assert abs(tuning.best.unseen_recall - tuning.best.recall) < 0.03
    assert tuning.n == 3000


def test_the_recall_of_a_setting_is_that_of_a_search(tuning: cfe.Tuning) -> None:
    rng = np.random.default_rng(0)
    X, labels = mixture(6000)
    chosen = np.sort(rng.choice(6000, 3000, replace=False))
    index = cfe.IndexEvidenceIVF(16, tuning.best.nlist, tuning.best.partitions)
    index.train(X[chosen])
    index.add_with_labels(X[chosen], labels[chosen])
    D, I = index.search_stored(None, 10, tuning.best.nprobe)
    exact_D, exact_I = index.search_stored(None, 10, exact=True)
    both = (tuning.best.recall + tuning.best.unseen_recall) / 2
    assert cfe.metrics.recall(I, exact_I, D, exact_D) == pytest.approx(both, abs=0.003)


def test_the_curve_rises_in_recall_and_in_time(tuning: cfe.Tuning) -> None:
    recalls, times = (np.array(column) for column in zip(*[astuple(one)[3::2] for one in tuning.curve], strict=True))
    assert len(recalls) >= 2
    assert (np.diff(recalls) > 0).all()
    assert (np.diff(times) > 0).all()


def test_the_index_built_keeps_the_promise_on_more_vectors_than_were_tried(tuning: cfe.Tuning) -> None:
    X, labels = mixture(6000)
    index = tuning.build(X, labels)
    D, I = index.search_stored(None, 10)
    exact_D, exact_I = index.search_stored(None, 10, exact=True)
    assert cfe.metrics.recall(I, exact_I, D, exact_D) >= 0.9
    assert index.nlist == round(tuning.best.nlist * 2**0.5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"X": np.eye(1, 3), "labels": [0]}, "X must hold at least 2 vectors, got 1"),
        ({"recall": 0}, r"recall must lie in \\[.*, 1\\], got 0"),
        ({"k": 0}, "k must be at least 1, got 0"),
        ({"sample": 1}, "sample must be at least 2, got 1"),
        ({"labels": [0]}, r"labels must have shape \\(3,\\), one label per vector, got \\(1,\\)"),
    ],
)
def test_errors_name_the_argument(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("\\\\", "\\")):
        cfe.tune(**{"X": np.eye(3), "labels": [0, 1, 1], **arguments})


def test_two_vectors_are_enough() -> None:
    assert cfe.tune(np.eye(2), [0, 1], k=1).best.recall == 1
    assert cfe.tune(np.eye(2), ["a", "b"], k=1).build(np.eye(2), ["a", "b"]).label_names.tolist() == ["a", "b"]
