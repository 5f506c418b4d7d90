import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_array_equal
from reference import cosine, cosines, unit
from stores import INDEXES, filled, made, nearest

import cfe_faiss as cfe
from cfe_faiss.rows.snapshot import UnknownIdError
from cfe_faiss.store import Hit, Hits, Rows


def small() -> cfe.EvidenceStore:
    store = cfe.EvidenceStore(2)
    store.add(
        ["a", "b", "c", "d"],
        [[2.0, 0.0], [0.8, 0.6], [0.6, 0.8], [0.0, 1.0]],
        labels=["spam", "ham", "spam", None],
        metadata=[{"lang": "de", "tags": ["x"]}, {"lang": "en"}, {"lang": "de"}, None],
        documents=["one", None, "three", "four"],
    )
    return store


def test_stored_rows_come_back() -> None:
    store = small()
    assert (len(store), list(store), store.ids) == (4, ["a", "b", "c", "d"], ["a", "b", "c", "d"])
    assert "a" in store
    assert "e" not in store
    assert 7 not in store
    assert (store.d, store.class_names, store.index.ntotal) == (2, ("spam", "ham"), 4)
    expected = "EvidenceStore(d=2, rows=4, classes=2, index=IndexEvidenceIDMap2(d=2, ntotal=4))"
    assert repr(store) == expected
    rows = store.get(["d", "a"])
    assert isinstance(rows, Rows)
    assert (rows.ids, rows.labels, len(rows)) == (["d", "a"], [None, "spam"], 2)
    assert (rows.metadata, rows.documents) == ([{}, {"lang": "de", "tags": ["x"]}], ["four", "one"])
    assert_array_equal(rows.vectors, np.array([[0, 1], [1, 0]], np.float32))


def test_stored_rows_are_copies() -> None:
    store = cfe.EvidenceStore(2)
    vectors = np.array([[3.0, 4.0]], np.float32)
    metadata = [{"tags": ["x"], "at": {"k": 1}, "n": 1}]
    store.add(["a"], vectors, ["x"], metadata)
    vectors[:], metadata[0]["n"] = 0, 2
    metadata[0]["tags"].append("y")  # type: ignore[attr-defined]
    for found in (store.get(["a"]), store.search([1, 1], 1), store.get(["a"])):
        assert found.metadata == [{"tags": ["x"], "at": {"k": 1}, "n": 1}]
        found.metadata[0]["tags"].append("z")
        found.metadata[0]["at"]["k"] = found.metadata[0]["n"] = 5


def test_search_finds_all_rows_and_evidence_rows_with_another_class() -> None:
    store = small()
    found = store.search([0, 5], 10)
    assert isinstance(found, Hits)
    expected = (["d", "c", "b", "a"], [None, "spam", "ham", "spam"], 4)
    assert (found.ids, found.labels, len(found)) == expected
    assert found.similarity.dtype == np.float32
    assert found.vectors is None
    assert next(iter(found)) == Hit("d", 1.0, None, {}, "four")
    assert store.evidence("a").ids == ["b"]
    assert store.evidence("b").ids == ["c", "a"]
    assert store.evidence([0, 1], label="ham").ids == ["c", "a"]
    assert store.evidence([0, 1], label="spam").ids == ["b"]
    assert store.evidence("d", label="spam").ids == ["b"]


def test_a_row_that_is_given_another_class_does_not_find_itself() -> None:
    store = small()
    assert store.evidence("a", label="ham").ids == ["c"]
    assert store.evidence(["a", "c", "b"], 1, label="ham")[0].ids == ["c"]
    expected = [["c"], ["c", "a"]]
    assert [found.ids for found in store.evidence(["a", "b"], 5, label=["ham", None])] == expected


def test_several_queries() -> None:
    store, rows = filled()
    cases = (rows.vectors[:5], torch.from_numpy(rows.vectors[:5]), rows.vectors[:5].tolist())
    for queries in cases:
        found = store.search(queries, 3, with_vectors=True)
        for one, x in zip(found, rows.vectors, strict=False):
            alone = store.search(x, 3, with_vectors=True)
            assert one.ids == alone.ids
            assert_array_equal(one.vectors, alone.vectors)
            assert_array_equal(one.vectors, store.get(one.ids).vectors)
    classified = [i for i, label in zip(rows.ids, rows.labels, strict=True) if label is not None][
        :6
    ]
    for ids in (classified, tuple(classified), np.array(classified)):
        answer = [one.ids for one in store.evidence(ids, 4)]
        assert answer == [store.evidence(one, 4).ids for one in classified]
    own = store.get(classified)
    by_vector = store.evidence(own.vectors, 4, label=own.labels)
    assert [one.ids for one in by_vector] == [one.ids for one in store.evidence(classified, 4)]
    assert store.search(np.empty((0, 8), np.float32)) == []


@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda store: pickle.loads(pickle.dumps(store))]
)
def test_copies_share_nothing(index: str, copied: Any) -> None:
    store, rows = filled(400, index=index)
    store.delete(rows.ids[:50])
    twin, before = copied(store), store.search(rows.vectors[60], 9, {"lang": "de"}).ids
    found = (twin.ids, twin.get().metadata, twin.class_names)
    assert found == (store.ids, store.get().metadata, store.class_names)
    twin.delete(before)
    twin.upsert(rows.ids[60:62], rows.vectors[:2], ["ham", "ham"])
    twin.update_metadata(rows.ids[63:64], [{"lang": "xx"}])
    assert store.search(rows.vectors[60], 9, {"lang": "de"}).ids == before
    assert (len(store), len(twin), store.count({"lang": "xx"})) == (350, len(twin.ids), 0)
    assert twin.index.ntotal == len(twin)


def test_any_number_of_rows_may_be_asked_for() -> None:
    for index in (None, "EvidenceIVF2,Flat"):
        store, rows = filled(100, index=index)
        assert len(store.search(rows.vectors[0], 2**60)) == 100
        assert len(store.evidence(rows.vectors[0], 2**60, "ham", offset=2**60)) == 0
    assert len(cfe.EvidenceStore(2).search([1, 0], 2**60)) == 0


@pytest.mark.parametrize(
    "kind", ["EvidenceIVF4,Flat", "EvidenceIVF4,SQ8", "EvidenceIVF2,PQ2,RFlat"]
)
@pytest.mark.parametrize("metric", ["cosine", "ip", "l2"])
def test_pages_of_lists_hold_each_row_once_in_order(kind: str, metric: Any) -> None:
    X = np.repeat(np.eye(4, dtype=np.float32), 75, axis=0)[
        np.random.default_rng(0).permutation(300)
    ]
    store = cfe.EvidenceStore(4, kind, metric=metric)
    store.add([f"{i:03}" for i in range(300)], X, ["a"] * 300)
    store.index.nprobe = 2 if kind.endswith("RFlat") else 1
    for query in (X[0], np.zeros(4)):
        pages = [store.search(query, 7, offset=offset) for offset in range(0, 300, 7)]
        ids = [id_ for page in pages for id_ in page.ids]
        expected = store.search(query, 300, lambda _: True)  # exact
        assert ids == expected.ids
        assert [len(page) for page in pages] == [7] * 42 + [6]


def test_equal_similarity_comes_in_the_order_of_rows() -> None:
    store = cfe.EvidenceStore(2)
    store.add(
        [f"{i}" for i in range(50)], np.tile([[1.0, 1.0]], (50, 1)), [i % 2 for i in range(50)]
    )
    store.upsert(["3"], [[1, 1]], [1])
    assert store.search([1, 1], 4).ids == ["0", "1", "2", "4"]
    assert store.evidence("0", 30).ids == [*(f"{i}" for i in range(1, 50, 2) if i != 3), "3"]


@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize(
    "where", [{"lang": "de"}, {"year": 1995}, {"year": {"$gte": 1991}}, {"lang": "none"}]
)
def test_a_filtered_search_is_exact(index: str, where: Any) -> None:
    store, rows = filled(400, index=index)
    chosen = np.isin(store.ids, store.get(where=where).ids)
    classes = np.array([str(label) for label in rows.labels])
    scores = store.get().vectors
    for q in range(0, 40, 4):
        x, label = rows.vectors[q], rows.labels[q]
        found = store.search(x, 7, where)
        assert found.ids == nearest(store, x, 7, chosen)
        places = [rows.ids.index(one) for one in found.ids]
        assert found.similarity.tolist() == cosine(unit(x[None])[0], scores[places]).tolist()
        if label is not None:
            others = chosen & (classes != label) & (classes != "None")
            answer = store.evidence(rows.ids[q], 7, where=where).ids
            assert answer == nearest(store, scores[q], 7, others)
    many = store.evidence(rows.vectors[:30], 5, label="ham", where=where)
    answer = [one.ids for one in many]
    assert answer == [store.evidence(x, 5, "ham", where).ids for x in rows.vectors[:30]]
    many = store.search(rows.vectors[:30], 5, where)
    assert [one.ids for one in many] == [store.search(x, 5, where).ids for x in rows.vectors[:30]]


@pytest.mark.parametrize("index", INDEXES)
def test_without_a_filter_the_index_decides(index: str) -> None:
    store, rows = filled(400, index=index)
    if "IVF" in index:
        store.index.nprobe = 12
    everything = np.ones(400, bool)
    for x in rows.vectors[:9]:
        found = store.search(x, 6)
        if "PQ" not in index and "SQ" not in index:
            assert found.ids == nearest(store, x, 6, everything)
        scores = store.get(found.ids).vectors @ unit(x[None])[0]
        np.testing.assert_allclose(found.similarity, scores, atol=2e-3)
        assert (np.diff(found.similarity) <= 0).all()
    classes = np.array([str(label) for label in rows.labels])
    for q in np.flatnonzero(classes != "None")[:9]:
        others = (classes != classes[q]) & (classes != "None")
        wanted = nearest(store, store.get([rows.ids[q]]).vectors[0], 6, others)
        assert store.evidence(rows.ids[q], 6).ids == wanted


@pytest.mark.parametrize("index", INDEXES)
def test_changes(index: str) -> None:
    store, rows = filled(300, index=index)
    other = made(60, seed=5)
    other.put(store)  # 60 of 300 rows get other contents
    assert store.ids == [*rows.ids[60:], *rows.ids[:60]]
    assert store.index.ntotal == len(store) == 300
    np.testing.assert_allclose(store.get(rows.ids[:60]).vectors, unit(other.vectors), atol=0.03)
    assert store.get(rows.ids[:60]).metadata == other.metadata
    assert store.get(rows.ids[:60]).labels == other.labels
    assert store.delete([*rows.ids[50:70], "nobody", rows.ids[50]]) == 20
    assert store.delete(["nobody"]) == 0
    with pytest.raises(UnknownIdError, match="doc-55"):
        store.get(["doc-1", "doc-55"])
    assert store.get(["doc-55", "doc-1"], skip_missing=True).ids == ["doc-1"]
    left = store.count({"lang": "fr"})
    assert store.delete(where={"lang": "fr"}) == left > 0
    assert store.count({"lang": "fr"}) == 0
    assert set(store.get().metadata[0]) >= {"lang", "year"}
    assert store.delete(where={}) == len(rows.ids) - 20 - left
    assert (len(store), store.index.ntotal, store.search(rows.vectors[0]).ids) == (0, 0, [])
    rows.put(store)
    assert store.get(rows.ids).documents == rows.documents


@pytest.mark.parametrize("index", INDEXES)
def test_new_classes(index: str) -> None:
    store, rows = filled(300, index=index)
    assert store.count({"$label": "new"}) == 0
    store.relabel({"doc-3": "new", "doc-4": None})
    assert store.get(["doc-3", "doc-4"]).labels == ["new", None]
    assert store.class_names[-1] == "new"
    expected = (1, ["doc-3"])
    assert (store.count({"$label": "new"}), store.get(where={"$label": "new"}).ids) == expected
    store.relabel(None, ["x", "y"] * 150)
    assert store.get().labels == ["x", "y"] * 150
    assert set(store.evidence("doc-0", 300).ids) == set(rows.ids[1::2])
    store.relabel(["doc-1"], pd.Series(["x"]))
    assert "doc-1" not in store.evidence("doc-0", 300).ids
    assert "doc-1" in store.evidence("doc-3", 300).ids
    store.relabel([], [])


def test_unclassified_rows_alone() -> None:
    store = cfe.EvidenceStore(2)
    store.add(["a", "b"], [[1, 0], [1, 1]])
    assert store.search([0, 1], 5).ids == ["b", "a"]
    assert store.search([0, 1], 5, ["a"]).ids == ["a"]
    assert store.class_names == ()
    with pytest.raises(ValueError, match="label must be given for an id that is not classified"):
        store.evidence("a")
    with pytest.raises(ValueError, match="there is none yet"):
        store.evidence("a", label="spam")
    store.relabel(["b"], ["x"])
    assert store.evidence([1, 0], label="x").ids == []


def test_an_empty_store() -> None:
    for index in INDEXES:
        store = cfe.EvidenceStore(4, index, class_names=["x"])
        assert store.search([1, 2, 3, 4]).ids == []
        assert store.search(np.ones((2, 4)), where={"a": 1})[1].ids == []
        assert store.evidence([1, 2, 3, 4], label="x").ids == []
        assert store.evidence([1, 2, 3, 4], label="x", where=[]).ids == []
        assert store.get().vectors.shape == (0, 4)
        store.add([], [])
        store.upsert([], np.empty((0, 4)))
        assert (store.delete([]), store.delete(where={"a": 1}), store.count()) == (0, 0, 0)


def test_an_index_with_lists_is_trained_when_asked_or_at_a_large_first_add() -> None:
    rows = made(300)
    store = cfe.EvidenceStore(8, "EvidenceIVF6,Flat")
    with pytest.raises(ValueError, match=r"must be at least 234, got 10: call train\(vectors\)"):
        rows.put(store, slice(10))
    assert len(store) == 0
    assert "doc-0" not in store
    rows.put(store)
    assert store.index.is_trained
    with pytest.raises(ValueError, match="before vectors are added"):
        store.train(rows.vectors)
    ready = cfe.IndexEvidenceIVF(8, "auto")
    ready.train(rows.vectors)
    store = cfe.EvidenceStore(8, ready)
    rows.put(store, slice(10))
    assert store.index is ready
    assert store.search(rows.vectors[3], 1).ids == ["doc-3"]


BAD: list[tuple[str, dict[str, Any], type[Exception], str]] = [
    ("add", {"ids": ["a"]}, ValueError, "ids must not be in the store yet, got 'a'"),
    ("upsert", {"ids": ["x", "y", "x"]}, ValueError, "ids .*got 'x' more than once"),
    ("upsert", {"ids": "abc"}, TypeError, "ids must be a sequence, got str: 'abc'"),
    ("upsert", {"ids": ["x", 7]}, TypeError, "id 7 must be a text, got int"),
    ("upsert", {"ids": [None]}, TypeError, "id None must be a text, got NoneType"),
    ("upsert", {"ids": ["\ud800"]}, ValueError, "id '.ud800' must be valid Unicode"),
    ("upsert", {"ids": 5}, TypeError, "ids must be a sequence"),
    ("upsert", {"vectors": [[1.0, 2.0]]}, ValueError, r"vectors .*got \(1, 2\)"),
    ("upsert", {"vectors": np.ones((2, 3))}, ValueError, r"vectors .*got \(2, 3\)"),
    ("upsert", {"vectors": [[1, np.nan], [1, 1]]}, ValueError, "vectors must be finite"),
    ("upsert", {"vectors": ["a", "b"]}, TypeError, "vectors must be an array of real numbers"),
    ("upsert", {"labels": ["x"]}, ValueError, "labels .*got 1"),
    ("upsert", {"labels": [0.5, 1.5]}, TypeError, "labels .*got 0.5 at position 0"),
    ("upsert", {"labels": ["x", 1]}, TypeError, "labels must be texts, .* got 1 at position 1"),
    ("upsert", {"labels": "spam"}, TypeError, "labels must be a sequence"),
    ("upsert", {"metadata": [{}]}, ValueError, "metadata .*got 1"),
    ("upsert", {"metadata": {"a": 1}}, TypeError, "metadata must be a sequence, got dict"),
    ("upsert", {"metadata": [{}, 3]}, TypeError, "metadata of 'y' must be a mapping, got int"),
    ("upsert", {"documents": ["x"]}, ValueError, "documents .*got 1"),
    ("upsert", {"documents": ["x", 3]}, TypeError, "the document of 'y' must be a text, got int"),
    ("upsert", {"documents": ["x", "\ud800"]}, ValueError, "the document of 'y' must be valid"),
]


@pytest.mark.parametrize(("method", "changed", "error", "message"), BAD)
def test_bad_rows(
    method: str, changed: dict[str, Any], error: type[Exception], message: str
) -> None:
    store = small()
    n = len(changed["ids"]) if isinstance(changed.get("ids"), list) else 2
    arguments = {"ids": ["x", "y"], "vectors": np.ones((n, 2))} | changed
    with pytest.raises(error, match=message):
        getattr(store, method)(**arguments)
    assert store.ids == ["a", "b", "c", "d"]
    assert store.class_names == ("spam", "ham")


def test_other_bad_arguments() -> None:
    store = small()
    bad: list[tuple[Any, type[Exception], str]] = [
        (lambda: cfe.EvidenceStore(0), ValueError, "d must be at least 1"),
        (lambda: cfe.EvidenceStore(2, "Flat"), ValueError, "description must begin"),
        (lambda: cfe.EvidenceStore(2, 7), TypeError, "index must be an evidence index"),  # type: ignore[arg-type]
        (lambda: cfe.EvidenceStore(2, cfe.IndexEvidenceIDMap2(3)), ValueError, "of 2 dimensions"),
        (lambda: cfe.EvidenceStore(2, store.index), ValueError, "empty evidence index of 2"),
        (lambda: store.delete(), TypeError, "either ids or where"),
        (lambda: store.delete(["a"], where={"lang": "de"}), TypeError, "either ids or where"),
        (lambda: store.get(["a"], where={"lang": "de"}), TypeError, "either ids or where"),
        (lambda: store.relabel(["a", "z"], ["x", "y"]), UnknownIdError, "ids .*got 'z'"),
        (lambda: store.relabel(["a", "a"], ["x", "y"]), ValueError, "ids .*got 'a'"),
        (lambda: store.relabel(["a"], ["x", "y"]), ValueError, "labels must hold 1 predicted"),
        (lambda: store.relabel({"a": "x"}, ["x"]), TypeError, "labels must be left out"),
        (lambda: store.search([1, 2, 3]), ValueError, r"xq must have shape \(n, 2\), got \(1, 3\)"),
        (lambda: store.search("a"), TypeError, "xq must be"),
        (lambda: store.search([1, 2], 0), ValueError, "k must be at least 1"),
        (lambda: store.evidence("z"), UnknownIdError, "ids must be in the store, got 'z'"),
        (lambda: store.evidence([1, 2]), ValueError, "label must be given for a vector"),
        (lambda: store.evidence("d"), ValueError, "label must be given for an id"),
        (lambda: store.evidence("a", label="eggs"), ValueError, "known .*got 'eggs'"),
        (lambda: store.evidence("a", label=["ham"]), TypeError, "label must be one class"),
        (lambda: store.evidence(["a", "b"], label=["ham"]), ValueError, "label must hold 2"),
        (lambda: store.evidence(["a", 3]), TypeError, "id 3 must be a text"),
        (lambda: store.evidence([[1, np.inf]], label="ham"), ValueError, "id_or_vector must"),
        (lambda: store.evidence("a", threshold=2), ValueError, r"threshold must lie in \[-1, 1\]"),
    ]
    for call, error, message in bad:
        with pytest.raises(error, match=message):
            call()
    assert store.get().labels == ["spam", "ham", "spam", None]


def test_an_index_that_was_changed_from_outside_is_noticed() -> None:
    store, rows = filled(50)
    store.index.remove_ids([3])
    with pytest.raises(RuntimeError, match="changed by other means"):
        store.get(["doc-3"])
    with pytest.raises(RuntimeError, match="changed by other means"):
        store.evidence("doc-3", label="ham")
    assert "doc-3" not in store.search(rows.vectors[3], 50).ids
    store.index.reset()
    with pytest.raises((RuntimeError, IndexError)):
        store.get(["doc-4"])


@pytest.mark.parametrize("index", INDEXES)
def test_pages_and_thresholds(index: str) -> None:
    store, rows = filled(300, index=index)
    if "IVF" in index:
        store.index.nprobe = 12
    for where in (None, {"lang": "de"}):
        everything = store.search(rows.vectors[3], 300, where)
        pages = [
            store.search(rows.vectors[3], 30, where, offset=offset) for offset in range(0, 310, 30)
        ]
        assert [one for page in pages for one in page.ids] == everything.ids
        least = float(everything.similarity[20])
        above = store.search(rows.vectors[3], 300, where, threshold=least)
        assert above.ids == [
            one for one, s in zip(everything.ids, everything.similarity, strict=True) if s >= least
        ]
        expected = above.ids[19:24]
        assert store.search(rows.vectors[3], 5, where, threshold=least, offset=19).ids == expected
        for label in (None, store.class_names[0]):
            every = store.evidence(rows.ids[3], 300, label, where)
            page = store.evidence(rows.ids[3], 5, label, where, offset=7)
            assert page.ids == every.ids[7:12]
    found = store.search(rows.vectors[:3], 4, offset=2, with_vectors=True)
    assert [one.ids for one in found] == [store.search(x, 6).ids[2:] for x in rows.vectors[:3]]
    assert_array_equal(found[0].vectors, store.get(found[0].ids).vectors)
    assert store.search(rows.vectors[0], 4, offset=300).ids == []
    with pytest.raises(ValueError, match=r"threshold must lie in \[-1, 1\], got 1.5"):
        store.search(rows.vectors[0], threshold=1.5)
    with pytest.raises(ValueError, match="offset must be at least 0"):
        store.search(rows.vectors[0], offset=-1)


@pytest.mark.parametrize("index", ["EvidenceFlat", "EvidenceIVF6,Flat"])
def test_pairs_are_all_pairs_above_a_threshold(index: str) -> None:
    store, _ = filled(120, index=index)
    store.delete(["doc-5", "doc-6"])
    rows = store.get()
    S = cosines(rows.vectors, rows.vectors)
    threshold = float(np.quantile(S, 0.9))
    expected = {
        frozenset((rows.ids[i], rows.ids[j]))
        for i, j in np.argwhere(threshold <= S)
        if None not in (rows.labels[i], rows.labels[j]) and rows.labels[i] != rows.labels[j]
    }
    blocks = list(store.pairs(threshold, block=50))
    assert max(map(len, blocks)) <= 50
    found = [
        frozenset(pair) for block in blocks for pair in zip(block.source, block.target, strict=True)
    ]
    assert len(found) == len(set(found))
    assert set(found) == expected
    for block in blocks:
        places = [
            (rows.ids.index(a), rows.ids.index(b))
            for a, b in zip(block.source, block.target, strict=True)
        ]
        np.testing.assert_allclose(block.similarity, [S[place] for place in places], atol=1e-6)
    pairs = store.pairs(threshold, block=50)
    next(pairs)
    store.relabel({"doc-0": "new"})
    with pytest.raises(RuntimeError, match="has changed"):
        list(pairs)
    with pytest.raises(ValueError, match="threshold must lie in"):
        store.pairs(2)


def test_a_promised_recall() -> None:
    store, rows = filled(400, index="EvidenceIVF12,Flat")
    exact, _ = filled(400)
    store.index.nprobe = 1
    classified = [
        one for one, label in zip(rows.ids, rows.labels, strict=True) if label is not None
    ]
    found = store.evidence(classified, 5, recall=1.0)
    assert [one.ids for one in found] == [one.ids for one in exact.evidence(classified, 5)]
    assert exact.evidence("doc-1", 5, recall=0.5).ids == exact.evidence("doc-1", 5).ids
    filtered = store.evidence("doc-1", 5, where={"lang": "de"}, recall=0.5)
    assert filtered.ids == exact.evidence("doc-1", 5, where={"lang": "de"}).ids
    with pytest.raises(ValueError, match="recall must be above 0"):
        store.evidence("doc-1", 5, recall=1.5)
    with pytest.raises(ValueError, match="recall must be above 0"):
        exact.evidence("doc-1", 5, recall=1.5)


def test_metadata_alone_can_change() -> None:
    store = small()
    assert store.count({"lang": "de"}) == 2
    before = store.get()
    store.update_metadata(["d", "a"], [{"lang": "fr", "n": {"m": [1]}}, {"tags": ["y"], "x": None}])
    rows = store.get()
    assert rows.metadata == [
        {"lang": "de", "tags": ["y"], "x": None},
        {"lang": "en"},
        {"lang": "de"},
        {"lang": "fr", "n": {"m": [1]}},
    ]
    assert (rows.ids, rows.labels, rows.documents) == (before.ids, before.labels, before.documents)
    assert_array_equal(rows.vectors, before.vectors)
    found = (store.get(where={"lang": "fr"}).ids, store.get(where={"n.m": {"$contains": 1}}).ids)
    assert found == (["d"], ["d"])
    assert store.get(where={"tags": {"$contains": "x"}}).ids == []
    store.update_metadata(None, [{"lang": "it"}] * 4)
    assert store.count({"lang": "it"}) == 4
    store.update_metadata([], [])
    for ids, metadata, error, message in (
        (["z"], [{}], UnknownIdError, "ids must be in the store, got 'z'"),
        (["a", "a"], [{}, {}], ValueError, "ids must be distinct"),
        (["a"], [], ValueError, "metadata must hold 1 mappings"),
        (["a", "b"], [{"lang": "de"}, {"k": {1}}], TypeError, "'b': 'k' must be a text"),
    ):
        with pytest.raises(error, match=message):
            store.update_metadata(ids, metadata)
    assert store.count({"lang": "it"}) == 4


def test_evidence_keeps_rules() -> None:
    store = small()
    assert store.evidence("a", neighbors="own").ids == ["c"]
    assert store.evidence("a", neighbors="any").ids == ["b", "c", "d"]
    assert store.evidence("d", neighbors="any", k=2).ids == ["c", "b"]
    assert store.evidence([1, 0], neighbors="any", exclude=["a", "unknown"], k=2).ids == ["b", "c"]
    found = store.evidence(["a", "c"], neighbors="any", exclude=[["b"], []], within=(0.1, 0.9))
    assert [one.ids for one in found] == [["c"], ["d", "a"]]
    assert store.evidence("a", where={"lang": "de"}, neighbors="own", within=(0, 0.5)).ids == []
    assert store.evidence("a", label="ham", k=3).ids == ["c"]
    with pytest.raises(ValueError, match=r"exclude .*got 1"):
        store.evidence(["a", "c"], exclude=[["b"]])
    with pytest.raises(TypeError, match="id 1 must be a text, got int"):
        store.evidence("a", exclude=[1])
    with pytest.raises(ValueError, match="label must be left out with neighbors='any'"):
        store.evidence("a", label="ham", neighbors="any")


@pytest.mark.parametrize("index", [None, "EvidenceIVF2,Flat"])
def test_a_store_follows_the_metric_of_its_index(index: str | None, tmp_path: Path) -> None:
    X = np.array([[0, 0], [1, 0], [3, 4], [0, 2], [6, 8]], np.float32)
    store = cfe.EvidenceStore(2, index, metric="l2")
    if index is not None:
        store.train(X)
    store.add(list("abcde"), X, ["spam", "ham", "ham", "spam", "ham"])
    assert store.metric == "l2"
    hits = store.search([0, 0], k=3)
    assert (hits.ids, hits.similarity.tolist()) == (["a", "b", "d"], [0, 1, 4])
    expected = [[0, 0], [1, 0], [0, 2]]
    assert store.search([0, 0], k=5, threshold=4, with_vectors=True).vectors.tolist() == expected
    found = store.evidence("a", k=5, exact=True, within=(1, 30), offset=1)
    assert (found.ids, found.similarity.tolist()) == (["c"], [25])
    (pairs,) = store.pairs(threshold=5)
    answer = sorted(zip(pairs.source, pairs.target, pairs.similarity.tolist(), strict=True))
    assert answer == [("a", "b", 1), ("b", "d", 5)]
    store.save(tmp_path / "store")
    again = cfe.EvidenceStore.load(tmp_path / "store")
    assert again.metric == "l2"
    assert again.search([0, 0], k=3).ids == ["a", "b", "d"]
    with pytest.raises(ValueError, match="metric must be left out with an index"):
        cfe.EvidenceStore(2, cfe.IndexEvidenceIDMap2(2), metric="l2")
