"""Similarity curve: counts against brute force, and rates that hold for rows of new groups."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import cosines, unit
from stores import filled

import cfe_faiss as cfe

METRICS = ["cosine", "l2", "ip"]


def data(seed: int, n: int = 150) -> tuple[Any, Any, Any]:
    """Return rows, of which some are copies, groups and classes; some groups are of two classes."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 6)).astype(np.float32)
    X[n // 2 : n // 2 + 5] = X[:5]
    return X, rng.integers(n // 3, size=n), rng.integers(3, size=n)


def scores(X: Any, metric: str) -> Any:
    if metric == "l2":
        rows = X.astype(np.float64)
        return -((rows[:, None] - rows[None]) ** 2).sum(axis=2)
    return cosines(unit(X), unit(X)) if metric == "cosine" else X.astype(np.float64) @ X.T


@given(seed=st.integers(0, 99), metric=st.sampled_from(METRICS), with_labels=st.booleans())
def test_counts_are_those_of_brute_force(seed: int, metric: Any, with_labels: bool) -> None:
    X, groups, labels = data(seed)
    curve = cfe.similarity_curve(X, groups, labels=labels if with_labels else None, metric=metric)
    wanted = scores(X, metric)
    wanted[groups[:, None] == groups] = -np.inf
    if with_labels:
        wanted[labels[:, None] == labels] = -np.inf
    sign = -1 if metric == "l2" else 1
    best = np.sort(wanted.max(axis=1))[::-1]
    assert np.abs(sign * curve.nearest - best).max() < 1e-4
    frame = curve.to_frame()
    for threshold, pairs, expected, rate, low, high in frame.to_numpy():
        margin = 1e-4
        assert (wanted > sign * threshold + margin).sum() / 2 <= pairs + 1e-9
        assert pairs <= (wanted > sign * threshold - margin).sum() / 2
        assert expected == pytest.approx(2 * pairs / len(X))
        assert rate == curve.rate(threshold)
        assert low <= rate <= high
    assert frame["rate"].is_monotonic_decreasing
    for rate in (0.2, 0.5):
        threshold = curve.threshold(rate)
        low, high = curve.interval(rate)
        assert curve.rate(threshold) <= rate
        assert sign * low <= sign * threshold <= sign * high + 1e-6
        closer = sign * curve.nearest >= sign * np.nextafter(
            np.float32(threshold), np.float32(-sign * np.inf)
        )
        assert closer.mean() > curve.rate(threshold)  # the next lower threshold lets one more in


@given(seed=st.integers(0, 30))
def test_a_sample_estimates_the_counts_of_all_rows(seed: int) -> None:
    X, groups, _ = data(seed, 1000)
    every = cfe.similarity_curve(X, groups)
    some = cfe.similarity_curve(X, groups, sample=300, seed=seed)
    assert len(some.nearest) == 300
    assert set(some.nearest.tolist()) <= set(every.nearest.tolist())
    middle = every.to_frame()["threshold"][10]
    assert some.rate(middle) == pytest.approx(every.rate(middle), abs=0.12)
    ours = np.interp(middle, some.thresholds, some.pairs)
    assert ours == pytest.approx(every.pairs[10], rel=0.5)


@pytest.mark.parametrize("metric", [*METRICS, "tanimoto"])
def test_samples_of_groups_with_several_classes(metric: Any) -> None:
    X, groups, labels = data(3, 900)
    if metric == "tanimoto":
        X = np.random.default_rng(0).random((900, 60)) < 0.4
    curve = cfe.similarity_curve(X, groups, labels=labels, metric=metric, sample=300)
    assert len(curve.nearest) == 300
    assert curve.rate(curve.threshold(0.9)) <= 0.9
    sign = -1 if metric == "l2" else 1
    for rate in (0.01, 0.5, 0.97):
        low, high = curve.interval(rate)
        assert sign * low <= sign * high


def test_rates_hold_for_rows_of_new_groups() -> None:
    rng = np.random.default_rng(0)
    realised: dict[float, list[float]] = {0.01: [], 0.05: []}
    for _ in range(60):
        centres = rng.normal(size=(400, 8))
        X = np.repeat(centres, 3, axis=0) + 0.1 * rng.normal(size=(1200, 8))
        groups = np.repeat(np.arange(400), 3)
        known = groups < 200
        curve = cfe.similarity_curve(X[known], groups[known])
        to_known = cosines(unit(X[known]), unit(X[~known])).max(axis=0)
        for rate, rates in realised.items():
            rates.append(float((to_known >= curve.threshold(rate)).mean()))
    for rate, rates in realised.items():
        error = np.std(rates) / len(rates) ** 0.5
        assert np.mean(rates) <= rate + 3 * error
        assert np.mean(rates) >= rate / 4


def test_copies_and_ties_are_on_the_safe_side() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(400, 8))
    X[:20] = X[20:40]  # a tenth of the rows has a copy in another group
    curve = cfe.similarity_curve(X, range(400))
    assert (curve.nearest == 1).sum() == 40
    with pytest.raises(ValueError, match="remove copies"):
        curve.threshold(0.05)
    assert curve.rate(curve.threshold(0.15)) <= 0.15
    groups = np.arange(400)
    groups[:20] = groups[20:40]
    assert cfe.similarity_curve(X, groups).threshold(0.05) < 1
    grid = np.sign(rng.normal(size=(500, 12)))  # few values of the similarity
    tied = cfe.similarity_curve(grid, range(500), metric="ip")
    for rate in (0.6, 0.9):
        assert tied.rate(tied.threshold(rate)) <= rate


def test_errors_name_the_remedy() -> None:
    X, groups, _ = data(0)
    curve = cfe.similarity_curve(X, groups)
    with pytest.raises(ValueError, match="give more groups"):
        curve.threshold(0.001)
    for wrong in (0, 1.2, None, "1 %"):
        with pytest.raises((TypeError, ValueError)):
            curve.threshold(wrong)  # type: ignore[arg-type]
        with pytest.raises((TypeError, ValueError)):
            curve.interval(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="groups"):
        cfe.similarity_curve(X, np.zeros(len(X)))
    with pytest.raises(ValueError, match="groups"):
        cfe.similarity_curve(X, groups[:-1])
    with pytest.raises(ValueError, match="classes"):
        cfe.similarity_curve(X, groups, labels=["a"] * len(X))
    with pytest.raises(ValueError, match="metric"):
        cfe.similarity_curve(X, groups, metric="hamming")  # type: ignore[arg-type]


@pytest.mark.parametrize("index", ["EvidenceFlat", "EvidenceIVF6,Flat"])
def test_curve_of_a_store_is_that_of_its_rows(index: str) -> None:
    store, _ = filled(300, index=index)
    store.update_metadata(store.ids[:200], [{"doc": i // 4} for i in range(200)])
    store.delete(store.ids[:9])
    rows = store.get()
    has_class = [label is not None for label in rows.labels]
    docs = [metadata.get("doc", id_) for metadata, id_ in zip(rows.metadata, rows.ids, strict=True)]
    chosen = np.flatnonzero(has_class)
    for group, units in ((None, rows.ids), ("doc", [f"{doc}" for doc in docs])):
        ours = store.similarity_curve(group)
        wanted = cfe.similarity_curve(
            rows.vectors[chosen],
            [units[i] for i in chosen],
            labels=[rows.labels[i] for i in chosen],
        )
        assert ours.nearest.tolist() == wanted.nearest.tolist()
        assert ours.units == wanted.units
        assert ours.pairs.tolist() == wanted.pairs.tolist()
        assert ours.threshold(0.1) == wanted.threshold(0.1)
        assert ours.interval(0.1) == wanted.interval(0.1)
    with pytest.raises(ValueError, match="group must be a key of the metadata of some row"):
        store.similarity_curve("dco")
    with pytest.raises(TypeError, match="group"):
        store.similarity_curve(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least"):
        cfe.EvidenceStore(4).similarity_curve()


def test_the_picture_shows_the_rates() -> None:
    pytest.importorskip("matplotlib")
    X, groups, _ = data(0, 600)
    for metric in METRICS:
        curve = cfe.similarity_curve(X, groups, metric=metric)  # type: ignore[arg-type]
        figure = curve.plot(rates=(0.05, 0.2))
        (axes,) = figure.axes
        points = [
            line.get_xydata()[0].tolist() for line in axes.lines if len(line.get_xdata()) == 1
        ]
        assert points == [[curve.threshold(rate), rate] for rate in (0.05, 0.2)]
