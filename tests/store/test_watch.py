"""Evidence at write time: equal to the pairs of the store afterwards, or the store is as before."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stores import INDEXES, filled, made

import cfe_faiss as cfe
from cfe_faiss.store import EvidenceError, Watch

MANY = 1000
Found = dict[frozenset[str], float]


def pairs_of(store: cfe.EvidenceStore, threshold: float) -> Found:
    return {
        frozenset(ends): similarity
        for block in store.pairs(threshold)
        for *ends, similarity in zip(
            block.source, block.target, block.similarity.tolist(), strict=True
        )
    }


def reported(ids: list[str], report: Any) -> Found:
    assert len(report) == len(ids)
    return {
        frozenset([id_, hit.id]): hit.similarity
        for id_, hits in zip(ids, report, strict=True)
        for hit in hits
    }


def contents_of(store: cfe.EvidenceStore) -> Any:
    rows = store.get()
    return rows.ids, rows.vectors.tolist(), rows.labels, rows.metadata, store.class_names


@pytest.mark.parametrize("index", INDEXES)
@given(
    seed=st.integers(0, 99),
    threshold=st.floats(0.2, 1.0),
    size=st.integers(1, 40),
    replaced=st.integers(0, 20),
)
def test_exact_watch_reports_the_pairs_of_the_store(
    index: str, seed: int, threshold: float, size: int, replaced: int
) -> None:
    store, old = filled(260, index=index, seed=seed)
    new = made(size, seed=seed)  # the first rows of another number: many are copies of stored ones
    ids = [*old.ids[: min(replaced, size)], *(f"new-{i}" for i in range(min(replaced, size), size))]
    labels = [("toast" if i % 5 == 4 else label) for i, label in enumerate(new.labels)]
    watch = Watch(threshold, MANY, exact=True)
    report = store.upsert(ids, new.vectors, labels, watch=watch)
    wanted = {ends: s for ends, s in pairs_of(store, threshold).items() if ends & set(ids)}
    assert reported(ids, report) == wanted
    for hits in report or []:
        assert (np.diff(hits.similarity) <= 0).all()
        assert [store.get([id_]).labels[0] for id_ in hits.ids] == hits.labels


@pytest.mark.parametrize("metric", ["l2", "ip"])
def test_watch_of_other_metrics(metric: Any) -> None:
    X = made(80).vectors * 3
    labels = ["a", "b"] * 40
    store = cfe.EvidenceStore(8, metric=metric)
    store.add(map(str, range(60)), X[:60], labels[:60])
    threshold = 20.0
    ids = [str(i) for i in range(60, 80)]
    report = store.add(ids, X[60:], labels[60:], watch=Watch(threshold, MANY))
    wanted = {ends: s for ends, s in pairs_of(store, threshold).items() if ends & set(ids)}
    assert wanted
    assert reported(ids, report) == wanted


def test_k_closest_rows_and_a_plain_threshold() -> None:
    store, _ = filled(200)
    twin, _ = filled(200)
    new = made(9, seed=3)
    ids = [f"new-{i}" for i in range(9)]
    every = store.add(ids, new.vectors, new.labels, watch=Watch(0.3, MANY))
    best = twin.add(ids, new.vectors, new.labels, watch=0.3)
    assert [hits.ids[:10] for hits in every or []] == [hits.ids for hits in best or []]
    assert [
        len(hits) for hits, label in zip(every or [], new.labels, strict=True) if not label
    ] == [0 for label in new.labels if not label]
    assert store.add([], np.empty((0, 8)), watch=0.3) == []
    assert twin.add(["x"], new.vectors[:1]) is None


@pytest.mark.parametrize("index", INDEXES)
@given(seed=st.integers(0, 99), threshold=st.floats(0.5, 1.0), size=st.integers(1, 30))
def test_refusal_changes_nothing(index: str, seed: int, threshold: float, size: int) -> None:
    store, old = filled(260, index=index, seed=seed)
    before = contents_of(store)
    new = made(size, seed=seed + 1)
    ids = [*old.ids[: size // 3], *(f"new-{i}" for i in range(size - size // 3))]
    put: dict[str, Any] = {"ids": ids, "vectors": new.vectors, "labels": new.labels}
    twin, _ = filled(260, index=index, seed=seed)
    twin.upsert(**put)
    wanted = {ends: s for ends, s in pairs_of(twin, threshold).items() if ends & set(ids)}
    watch = Watch(threshold, MANY, "refuse", exact=True)
    if not wanted:
        assert not any(map(len, store.upsert(**put, watch=watch) or []))
        assert contents_of(store) == contents_of(twin)
        return
    with pytest.raises(EvidenceError) as refused:
        store.upsert(**put, watch=watch)
    assert contents_of(store) == before
    found = refused.value.pairs
    ends = map(frozenset, zip(found.source, found.target, strict=True))
    assert dict(zip(ends, found.similarity.tolist(), strict=True)) == wanted
    assert set(found.source) <= set(ids)
    assert (np.diff(found.similarity) <= 0).all()
    copy = pickle.loads(pickle.dumps(refused.value))
    assert str(copy) == str(refused.value)
    assert copy.pairs.source.tolist() == found.source.tolist()


def test_an_old_version_and_chunks_of_the_document_are_no_evidence() -> None:
    store = cfe.EvidenceStore(2)
    page = [{"doc": "d1"}, {"doc": "d1"}, {"doc": "d2"}, {}]
    X = [[1, 0], [0.99, 0.1], [0.98, 0.2], [0.97, 0.2]]
    store.add(["a", "b", "c", "e"], X, ["yes", "no", "no", "no"], page)
    # The old version of "a" had another class than the new one, and is equal to it.
    (found,) = store.upsert(["a"], [[1, 0]], ["no"], [{"doc": "d1"}], watch=0.9) or []
    assert found.ids == []
    store.upsert(["a"], [[1, 0]], ["yes"], [{"doc": "d1"}])
    watch = Watch(0.9, group="doc")
    (found,) = store.upsert(["a"], [[1, 0]], ["yes"], [{"doc": "d1"}], watch=watch) or []
    assert found.ids == ["c", "e"]  # not "b", of the same document
    new = [{"doc": "d3"}, {"doc": "d3"}, None, None, {"doc": "d2"}]
    labels = ["yes", "no", "yes", "no", "yes"]
    ids = ["p", "q", "r", "s", "t"]
    report = store.add(ids, [[0, 1]] * 5, labels, new, watch=Watch(0.99, group="doc"))
    found_ids = [set(hits.ids) for hits in report or []]
    assert found_ids == [{"s"}, {"r", "t"}, {"q", "s"}, {"p", "r", "t"}, {"q", "s"}]


@given(seed=st.integers(0, 50), by_group=st.booleans())
def test_groups_of_a_watch_against_brute_force(seed: int, by_group: bool) -> None:
    rng = np.random.default_rng(seed)
    X = made(90, seed=seed).vectors
    labels = rng.choice(["a", "b", "c"], 90).tolist()
    docs = rng.integers(12, size=90)
    metadata = [{"doc": int(doc)} if doc else {} for doc in docs]
    ids = [f"{i}" for i in range(90)]
    store = cfe.EvidenceStore(8)
    store.add(ids[:50], X[:50], labels[:50], metadata[:50])
    store.delete(ids[:5])
    watch = Watch(0.5, MANY, group="doc" if by_group else None)
    report = store.add(ids[50:], X[50:], labels[50:], metadata[50:], watch=watch)
    doc_of = dict(zip(ids, docs.tolist(), strict=True))
    wanted = {}
    for ends, similarity in pairs_of(store, 0.5).items():
        first, second = ends
        same = by_group and doc_of[first] == doc_of[second] > 0
        if ends & set(ids[50:]) and not same:
            wanted[ends] = similarity
    assert reported(ids[50:], report) == wanted


def test_a_loaded_store_watches(tmp_path: Path) -> None:
    store, _ = filled(150, index="EvidenceIVF6,Flat")
    store.save(tmp_path / "store")
    new = made(20, seed=8)
    ids = [f"new-{i}" for i in range(20)]
    watch = Watch(0.6, MANY, exact=True)
    loaded = cfe.EvidenceStore.load(tmp_path / "store")
    report = loaded.add(ids, new.vectors, new.labels, watch=watch)
    assert reported(ids, report) == reported(
        ids, store.add(ids, new.vectors, new.labels, watch=watch)
    )
    mapped = cfe.EvidenceStore.load(tmp_path / "store", mmap=True)
    with pytest.raises(RuntimeError):
        mapped.add(ids, new.vectors, new.labels, watch=watch)


def test_lists_are_searched_at_recall() -> None:
    store, _ = filled(3000, index="EvidenceIVF40,Flat")
    exact, _ = filled(3000)
    new = made(300, seed=1)
    ids = [f"new-{i}" for i in range(300)]
    report = store.add(ids, new.vectors, new.labels, watch=Watch(-1, 10))
    best = exact.add(ids, new.vectors, new.labels, watch=Watch(-1, 10))
    shares = [
        len(set(a.ids) & set(b.ids)) / 10
        for a, b in zip(report or [], best or [], strict=True)
        if len(b)
    ]
    assert np.mean(shares) >= 0.985


def test_errors_and_the_function_that_is_told() -> None:
    store, _ = filled(50)
    before = contents_of(store)
    for wrong in ("0.9", None, float("nan")):
        with pytest.raises((TypeError, ValueError)):
            Watch(wrong)  # type: ignore[arg-type]
    for options in ({"k": 0}, {"on": "warn"}, {"group": 3}, {"tell": 3}):
        with pytest.raises((TypeError, ValueError)):
            Watch(0.9, **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="threshold"):
        store.add(["x"], np.ones((1, 8)), ["ham"], watch=1.5)
    with pytest.raises(TypeError):
        store.add(["x"], np.ones((1, 8)), ["ham"], watch="high")  # type: ignore[arg-type]
    assert contents_of(store) == before
    told: list[Any] = []
    report = store.add(["x"], np.ones((1, 8)), ["ham"], watch=Watch(-1.0, tell=told.append))
    assert told == [report]


@pytest.mark.parametrize("stored", [True, False])
def test_a_misspelt_group_is_refused_and_stores_nothing(stored: bool) -> None:
    store = cfe.EvidenceStore(2)
    if stored:
        store.add(["a"], [[1, 0]], ["spam"], [{"doc": 1, "lang": {"code": "de"}}])
    new: Any = (["b"], [[1, 0.1]], ["ham"], [{"doc": 2}])
    with pytest.raises(ValueError, match=r"group must be a key .*got 'dco'; did you mean 'doc'"):
        store.add(*new, watch=Watch(0.5, group="dco"))
    assert len(store) == int(stored)
    with pytest.raises(ValueError, match="group must be a key of the metadata of some row"):
        store.add(["b"], [[1, 0.1]], ["ham"], watch=Watch(0.5, group="lang.cod"))
    store.add([], np.empty((0, 2)), [], watch=Watch(0.5, group="doc"))
    (found,) = store.add(*new, watch=Watch(0.5, group="doc"))
    assert found.ids == ["a"] * stored
    if stored:  # a key of a mapping in the metadata, or of the stored rows alone, is a key
        store.add(["c"], [[1, 0.2]], ["ham"], watch=Watch(0.5, group="lang.code"))
        with pytest.raises(ValueError, match=r"group must be a key .*did you mean 'doc'"):
            store.similarity_curve("dco")
        for name in ("$id", "$label"):  # columns of filters, of which no two rows to compare agree
            with pytest.raises(ValueError, match="group must be a key of the metadata"):
                store.add(["d"], [[1, 0.3]], ["ham"], watch=Watch(0.5, group=name))
