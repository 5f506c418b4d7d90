"""Blocks of bits: searches with a target recall keep their promise, and all others compare every row."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from numpy.typing import NDArray
from reference import assert_same_arrays, quick, unit, with_rows

import cfe_faiss as cfe
from cfe_faiss.search import derived as blocks_module
from cfe_faiss.search.derived import Derived, blocks_of

DIM, CLASSES, NLIST, K = 400, 3, 40, 10
METRICS = ("cosine", "ip", "l2")
Floats = NDArray[np.float32]


def data(seed: int, n: int, metric: str, d: int = DIM) -> tuple[Floats, NDArray[np.int64]]:
    """Return rows around centres, of several lengths and far from the origin unless compared by cosine."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(30, d))
    X = centres[rng.integers(0, 30, n)] + rng.normal(size=(n, d)) * rng.uniform(0.3, 1, (n, 1))
    if metric != "cosine":
        X *= rng.lognormal(sigma=0.2, size=(n, 1))
    if metric == "l2":
        X += 3
    return X.astype(np.float32), rng.integers(0, CLASSES, n)


def index_of(X: Floats, labels: Any, metric: Any, nlist: int = NLIST) -> Any:
    index = cfe.IndexEvidenceIVF(X.shape[1], nlist, metric=metric)
    return with_rows(quick(index), X, labels)


def flat_of(index: Any) -> Any:
    members = index.members()
    flat = cfe.IndexEvidenceIDMap2(index.d, metric=index.metric)
    flat.add_with_labels(index.reconstruct_batch(members.ids), members.labels, members.ids)
    return flat


def recall_of(index: Any, xq: Floats, labels: Any, **options: Any) -> NDArray[np.float64]:
    """Return the recall of each query searched by itself, against the exact answer."""
    rules = {name: value for name, value in options.items() if name != "recall"}
    D, I = flat_of(index).search_evidence(xq, labels, K, **rules)
    found = []
    for q in range(len(xq)):
        one = {
            name: value[q : q + 1] if name == "exclude" else value
            for name, value in options.items()
        }
        found.append(index.search_evidence(xq[q : q + 1], labels[q : q + 1], K, **one))
    own_D, own_I = (np.concatenate(parts) for parts in zip(*found, strict=True))
    for q in range(len(xq)):  # scores are those of the exact answer
        where = {row: place for place, row in enumerate(I[q].tolist())}
        for score, row in zip(own_D[q], own_I[q].tolist(), strict=True):
            if row in where and row >= 0:
                assert score == D[q, where[row]]
    wanted = (I >= 0).sum(axis=1)
    same = np.array(
        [len(set(a.tolist()) & set(b.tolist()) - {-1}) for a, b in zip(I, own_I, strict=True)]
    )
    return np.where(wanted > 0, same / np.maximum(wanted, 1), 1.0)


def reads_bits(index: Any) -> bool:
    return "bit" in Derived.of(index.storage()).kept


@pytest.mark.parametrize(
    ("metric", "d"), [*((metric, DIM) for metric in METRICS), ("cosine", 64), ("l2", 70)]
)
def test_recall_is_reached_for_each_class_after_changes_and_from_a_file(
    metric: str, d: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks_module, "_MANY_ROWS", 2900)
    X, labels = data(0, 3000, metric, d)
    index = index_of(X, labels, metric)
    new, labels_q = data(0, 3300, metric, d)
    new, labels_q = new[3000:], labels_q[3000:]  # around the same centres
    index.prepare(K, 0.95)
    assert reads_bits(index)

    def check(index: Any) -> None:
        reached = recall_of(index, new, labels_q, recall=0.95)
        assert reached.mean() >= 0.94
        for label in range(CLASSES):
            assert reached[labels_q == label].mean() >= 0.92

    check(index)
    cfe.write_index(index, str(tmp_path / "index"))
    again = cfe.read_index(str(tmp_path / "index"))
    assert reads_bits(again)
    for q in range(20):
        one = new[q : q + 1], labels_q[q : q + 1], K
        assert_same_arrays(
            again.search_evidence(*one, recall=0.95), index.search_evidence(*one, recall=0.95)
        )
    index.add_with_labels(X[:1] + np.float32(0.01), labels[:1])
    index.relabel((labels[7:8] + 1) % CLASSES, np.array([7]))
    index.remove_ids(np.array([20]))
    index.update_vectors(np.array([30]), X[40:41])
    carried = Derived.of(index.storage()).carried
    assert carried is not None
    assert "bit" in carried.blocks
    check(index)


@pytest.mark.parametrize("metric", METRICS)
def test_rules_hold_and_refused_rows_raise_no_threshold(metric: str) -> None:
    X, labels = data(1, 2000, metric)
    index = index_of(X, labels, metric, 25)
    xq, labels_q = X[:60] + np.float32(0.01), labels[:60]
    nearest = flat_of(index).search_evidence(xq, labels_q, 60)
    exclude = nearest[1][:, ::2]
    low, high = sorted(np.median(nearest[0], axis=0)[[8, 50]].tolist())
    options: dict[str, Any]
    for options in (
        {"exclude": exclude},
        {"within": (low, high)},
        {"neighbors": "any"},
        {"neighbors": "any", "exclude": exclude, "within": (low, high)},
        {"sel": np.arange(2000) % 3 == 0},
    ):
        reached = recall_of(index, xq, labels_q, recall=0.9, **options)
        assert reached.mean() >= 0.89
        D, I = index.search_evidence(
            xq[:1],
            labels_q[:1],
            K,
            recall=0.9,
            **{name: value[:1] if name == "exclude" else value for name, value in options.items()},
        )
        if "exclude" in options:
            assert not set(I[0].tolist()) & set(exclude[0].tolist())
        if "within" in options:
            assert ((D[I >= 0] >= np.float32(low)) & (D[I >= 0] <= np.float32(high))).all()


@pytest.mark.parametrize("metric", METRICS)
def test_a_query_of_a_batch_finds_what_it_finds_by_itself(metric: str) -> None:
    X, labels = data(5, 2000, metric)
    index = index_of(X, labels, metric)
    xq, of_queries = data(6, 50, metric)
    D, I = index.search_evidence(xq, of_queries, K, recall=0.9)
    assert reads_bits(index)
    for q in range(len(xq)):
        alone = index.search_evidence(xq[q : q + 1], of_queries[q : q + 1], K, recall=0.9)
        assert_array_equal(alone[0][0], D[q])
        assert_array_equal(alone[1][0], I[q])


@pytest.mark.parametrize("metric", METRICS)
def test_other_efforts_compare_every_row(metric: str, monkeypatch: pytest.MonkeyPatch) -> None:
    X, labels = data(2, 1500, metric)
    index = index_of(X, labels, metric, 20)
    index.search_evidence(X[:1], labels[:1], K, recall=0.9)
    assert reads_bits(index)
    exact = flat_of(index).search_evidence(X[:30], labels[:30], K)
    for q in range(30):
        one = X[q : q + 1], labels[q : q + 1], K
        everywhere = index.search_evidence(*one, 20), index.search_evidence(*one, exact=True)
        for found in everywhere:
            assert_same_arrays(found, (exact[0][q : q + 1], exact[1][q : q + 1]))
    _, I, certified = index.search_certified(np.arange(30), K)
    stored = index.search_stored(np.arange(30), K, exact=True)
    assert_array_equal(I[certified], stored[1][certified])
    twin = index_of(X, labels, metric, 20)
    monkeypatch.setattr(blocks_module, "_BITS", range(0))
    for q in range(30):
        one = X[q : q + 1], labels[q : q + 1], K
        assert_same_arrays(index.search_evidence(*one, 3), twin.search_evidence(*one, 3))


@pytest.mark.parametrize(
    ("d", "n", "pays"), [(63, 1300, False), (64, 1199, False), (64, 1200, True)]
)
def test_few_dimensions_have_bits_if_there_are_many_rows(
    d: int, n: int, pays: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks_module, "_MANY_ROWS", 1200)
    X, labels = data(5, n, "cosine", d)
    index = index_of(X, labels, "cosine", 20)
    index.search_evidence(X[:1], labels[:1], K, recall=0.9)
    assert reads_bits(index) == pays


def test_an_index_reads_bits_when_it_has_grown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks_module, "_MANY_ROWS", 1200)
    X, labels = data(5, 1200, "cosine", 64)
    index = index_of(X[:1199], labels[:1199], "cosine", 20)
    for reads in (False, True):
        index.search_evidence(X[:1], labels[:1], K, recall=0.9)
        assert reads_bits(index) == reads
        index.add_with_labels(X[1199:], labels[1199:])


@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 120),
    d=st.sampled_from([1, 15, 64, 65, 96, 130, 384, 1000]),
    metric=st.sampled_from(METRICS),
    kind=st.sampled_from(["normal", "grid", "equal", "lengths", "tiny", "large"]),
    k=st.sampled_from([1, 5, 60]),
)
@settings(max_examples=40)
def test_blocks_find_almost_all_of_what_is_best(
    seed: int, n: int, d: int, metric: Any, kind: str, k: int
) -> None:
    rng = np.random.default_rng(seed)
    draws: dict[str, Callable[[], Any]] = {
        "normal": lambda: rng.normal(size=(n, d)),
        "grid": lambda: rng.integers(-2, 3, (n, d)),
        "equal": lambda: np.tile(rng.normal(size=(1, d)), (n, 1)),
        "lengths": lambda: rng.normal(size=(n, d)) * rng.lognormal(sigma=2, size=(n, 1)),
        "tiny": lambda: 1e-15 * rng.normal(size=(n, d)),
        "large": lambda: 1e12 * rng.uniform(-1, 1, (n, d)),
    }
    X = draws[kind]().astype(np.float32)
    labels = rng.integers(0, 3, n)
    index = with_rows(cfe.IndexEvidenceIVF(d, min(n, 3), metric=metric), X, labels)
    snapshot = index.storage()
    k = min(k, snapshot.n)
    derived = Derived.of(snapshot)
    xq = unit(X[:20]) if metric == "cosine" else X[:20]
    codes = snapshot.encode("labels", labels[:20]).astype(np.int32)
    found = []
    for element in ("float", "bit"):
        blocks = blocks_of(snapshot, element)
        D, I = np.empty((len(xq), k), np.float32), np.empty((len(xq), k), np.int64)
        lists = np.arange(len(snapshot.starts) - 1)[None].repeat(len(xq), axis=0)
        blocks.search(xq, codes, np.arange(len(xq) + 1), lists, np.arange(len(xq)), D, I, None)
        found.append((D, I))
    (D, I), (own_D, own_I) = found
    assert derived.estimates == (d >= 96)
    assert_array_equal((own_I >= 0).sum(axis=1), (I >= 0).sum(axis=1))  # never short
    assert ((own_D <= D) | (I < 0)).all()
    lost = sum(
        len(set(best.tolist()) - set(ids.tolist())) for best, ids in zip(I, own_I, strict=True)
    )
    assert d < 96 or kind in ("grid", "equal") or lost <= 3 + 0.01 * I.size


def test_calibrations_of_files_from_before_estimates_are_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, labels = data(4, 800, "cosine")
    index = index_of(X, labels, "cosine", 10)
    index.prepare(K, 0.9)
    assert index._choice_in_file().endswith("/bit")
    monkeypatch.setattr(index, "_choice_in_file", lambda: "/".join(index._pinned))
    cfe.write_index(index, str(tmp_path / "index"))
    again = cfe.read_index(str(tmp_path / "index"))
    assert again.choice == index.choice
    assert not Derived.of(again.storage()).calibrations
