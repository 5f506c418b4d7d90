"""A change that is interrupted, or runs out of memory, leaves the store as before or as after, and usable."""

import threading
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from interrupts import raise_at_every_line
from numpy.testing import assert_array_equal
from stores import Made, made

import cfe_faiss as cfe
from cfe_faiss.store import Watch
from cfe_faiss.store.contents import append

N, D = 14, 4
ROWS = made(N, D)
OTHER = made(6, D, seed=3)
NEW = Made(
    ["x", "y", "z"], OTHER.vectors[:3], ["other"] * 3, OTHER.metadata[:3], OTHER.documents[:3]
)
MIXED = Made(
    [*ROWS.ids[:2], "x"],
    OTHER.vectors[3:],
    ["ham", "new", None],
    OTHER.metadata[3:],
    OTHER.documents[3:],
)


def filled(kind: str) -> cfe.EvidenceStore:
    index: Any = cfe.index_factory(D, kind)
    if not index.is_trained:
        index.cp.niter = 2
        index.train(ROWS.vectors)
        index.nprobe = 6
    store = cfe.EvidenceStore(D, index)
    ROWS.put(store)
    store.count({"lang": "de", "$label": "ham"})  # columns are kept up to date
    return store


CHANGES: dict[str, Callable[[cfe.EvidenceStore], Any]] = {
    "add": lambda store: store.add(NEW.ids, NEW.vectors, NEW.labels, NEW.metadata, NEW.documents),
    "upsert": lambda store: MIXED.put(store),
    "delete": lambda store: store.delete(ROWS.ids[5:8]),
    "delete where": lambda store: store.delete(where={"lang": "fr"}),
    "relabel": lambda store: store.relabel({"doc-3": "new", "doc-5": None, "doc-6": "ham"}),
    "update metadata": lambda store: store.update_metadata(
        ["doc-3", "doc-4"], [{"lang": "de"}, {"year": 2030}]
    ),
    "upsert with watch": lambda store: store.upsert(
        MIXED.ids, MIXED.vectors, MIXED.labels, MIXED.metadata, watch=Watch(0.1, group="lang")
    ),
}


def contents(store: cfe.EvidenceStore) -> list[Any]:
    """Return all there is to see of a store."""
    rows = store.get()
    seen: list[Any] = [
        store.index.ntotal,
        rows.ids,
        rows.labels,
        rows.metadata,
        rows.documents,
        rows.vectors,
        len(store),
        store.class_names,
    ]
    seen += [
        store.get(where=where).ids
        for where in ({"lang": "de"}, {"$label": "ham"}, {"year": {"$gt": 2000}})
    ]
    for where in (None, {"lang": "de"}):
        for found in (
            store.search(ROWS.vectors[0], 60, where),
            store.evidence(ROWS.vectors[1], 60, "ham", where),
        ):
            seen += [found.ids, found.similarity, found.labels, found.metadata]
    seen += [[one for one in [*ROWS.ids, *NEW.ids] if one in store]]
    return seen


def same(one: list[Any], two: list[Any]) -> bool:
    """Compare contents; similarities of FAISS's own search may differ from those of ours in the last bits."""
    return len(one) == len(two) and all(
        a.shape == b.shape and np.allclose(a, b, rtol=0, atol=1e-6)
        if isinstance(a, np.ndarray)
        else a == b
        for a, b in zip(one, two, strict=True)
    )


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize(
    ("kind", "error", "step"),
    [
        ("IDMap2,EvidenceFlat", KeyboardInterrupt, 40),
        pytest.param("IDMap2,EvidenceFlat", KeyboardInterrupt, 1, marks=pytest.mark.slow),
        pytest.param("IDMap2,EvidenceFlat", MemoryError, 1, marks=pytest.mark.slow),
        pytest.param("EvidenceIVF3x2,Flat", KeyboardInterrupt, 1, marks=pytest.mark.slow),
    ],
)
def test_an_error_at_any_line_of_any_change(
    kind: str, name: str, error: type[BaseException], step: int
) -> None:
    """By default at every 40th line, where changes begin at different lines; `make slow` tries every line."""
    (store,) = raise_at_every_line(
        lambda: [filled(kind)],
        CHANGES[name],
        contents,
        same,
        lambda store: [store._lock, store.index._lock],
        [error],
        first=1 + list(CHANGES).index(name) % step,
        step=step,
    )
    assert store.index.ntotal == len(store)


def test_a_change_that_fails_in_the_index_leaves_the_store_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = filled("IDMap2,EvidenceFlat")
    before = contents(store)

    def fail(*_: Any, **__: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(type(store.index), "_commit", fail)
    for name, change in CHANGES.items():
        if name != "update metadata":  # which changes nothing in the index
            with pytest.raises(MemoryError):
                change(store)
        assert same(contents(store), before)
    monkeypatch.undo()
    MIXED.put(store)
    assert store.ids == [*ROWS.ids[2:], *MIXED.ids]
    assert store.get(MIXED.ids).labels == MIXED.labels


def test_no_key_is_used_twice() -> None:
    store = filled("IDMap2,EvidenceFlat")
    for _ in range(3):
        store.delete(ROWS.ids[-5:])
        before = store.index.members().ids.max()
        ROWS.put(store, slice(N - 5, N))
        assert store.index.members().ids.max() > before + 4


def test_readers_never_see_halves() -> None:
    """Each row says in its vector, class, metadata and text which version it is of: no result mixes two."""
    rng = np.random.default_rng(0)
    store = cfe.EvidenceStore(8)
    names = [f"{i}" for i in range(30)]

    def put(version: int) -> None:
        vectors = rng.normal(size=(30, 8))
        store.upsert(
            names,
            vectors,
            [version % 2] * 15 + [2] * 15,
            [{"v": version}] * 30,
            [f"v{version}"] * 30,
        )

    put(0)
    over, errors, searches = threading.Event(), [], [0]

    def read() -> None:
        try:
            while not over.is_set():
                found = store.search(np.ones(8), 40)
                versions = {one.metadata["v"] for one in found}
                assert versions == {version := next(iter(versions))}
                assert set(found.documents) == {f"v{version}"}
                assert set(found.labels) == {version % 2, 2}
                assert sorted(found.ids) == sorted(names)
                found = store.evidence("3", 40, where={"v": {"$gte": 0}})
                assert sorted(found.ids) == sorted(names[15:])
                assert len({one["v"] for one in found.metadata}) == 1
                rows = store.get(where={"$label": 2})
                assert (len(rows), len({one["v"] for one in rows.metadata})) == (15, 1)
                searches[0] += 1
        except BaseException as error:
            errors.append(error)
            over.set()

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    version = 0
    while (searches[0] < 150 or version < 50) and not over.is_set():
        version += 1
        put(version)
    over.set()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    assert store.index.ntotal == 30


def test_changes_of_some_rows_copy_no_table() -> None:
    n = 20_000
    store = cfe.EvidenceStore(D)
    many = made(n, D)
    many.put(store)
    store.count({"lang": "de", "$label": "ham"})
    MIXED.put(store)  # makes spare room for new rows
    for name in ("upsert", "relabel", "update metadata", "delete"):
        tracemalloc.start()
        CHANGES[name](store)
        taken = tracemalloc.take_snapshot().filter_traces(
            [tracemalloc.Filter(True, "*/cfe_faiss/store/*")]
        )
        tracemalloc.stop()
        assert sum(one.size for one in taken.statistics("filename")) < n, name


def test_views_of_other_arrays_are_not_written_over() -> None:
    whole = np.arange(10)
    for part in (whole[2:5], whole[::-1][:3], whole[::2][:3]):
        kept = part.copy()
        assert_array_equal(append(part, np.array([7])), [*kept, 7])
    assert_array_equal(whole, np.arange(10))
