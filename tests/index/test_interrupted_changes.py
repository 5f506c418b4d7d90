"""A change that is interrupted or runs out of memory leaves a usable index, either unchanged or fully changed."""

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import faiss
import numpy as np
import pytest
from interrupts import raise_at_every_line
from numpy.testing import assert_array_equal
from reference import clustered, lists_of_rows, output_of, unit

import cfe_faiss as cfe
from cfe_faiss.index.searching import EvidenceIndex

N, D, MORE = 40, 4, 12
X, LABELS = clustered(N + MORE, D, 3)
TRAINING = clustered(300, D, 3)[0]
UPDATED = np.arange(39, 39 - MORE, -1)
CODECS = {"ivf": "Flat", "fp16": "SQfp16", "sq8": "SQ8", "pq": "PQ2,RFlat"}
MAPS = {"array": faiss.DirectMap.Array, "hash": faiss.DirectMap.Hashtable}


def empty(kind: str) -> Any:
    """Return an index; kinds such as "ivf array" have a direct map."""
    kind, _, kind_of_map = kind.partition(" ")
    if kind == "flat":
        return cfe.IndexEvidenceIDMap2(D)
    index = cfe.index_factory(D, f"EvidenceIVF3x2,{CODECS[kind]}")
    index.cp.niter = 2
    index.train(TRAINING)
    index.nprobe = 6
    if kind_of_map:
        index.set_direct_map_type(MAPS[kind_of_map])
    return index


def filled(kind: str) -> Any:
    index = empty(kind)
    index.add_with_labels(X[:N], LABELS[:N])
    return index


def merge(index: Any, other: Any) -> None:
    index.merge_from(other)


def replace(index: Any) -> None:
    """Replace rows 30 to 39 by vectors of which two have new ids. Direct maps of type Array hold the first ids only."""
    with index.changing() as transaction:
        ids = np.arange(30, 42)
        transaction.replace(ids[:10], unit(X[N:]), LABELS[N:].astype(np.int32), ids)


class Case(NamedTuple):
    """Change and the indexes that it runs on; it changes the first one."""

    change: Callable[..., Any]
    make: Callable[[str], list[Any]] = lambda kind: [filled(kind)]


def untrained(kind: str) -> Any:
    codec = CODECS[kind.split()[0]]
    index: Any = cfe.index_factory(D, f"EvidenceIVF3x2,{codec}")
    if codec == "Flat":
        index = cfe.IndexEvidenceIVF(D, "auto", 2)
    index.cp.niter = 2
    return index


def other(kind: str) -> Any:
    index = empty(kind.split()[0])
    index.add_with_labels(X[N:], LABELS[N:], np.arange(N, N + MORE))
    return index


CASES = {
    "add": Case(lambda index: index.add_with_labels(X[N:], LABELS[N:])),
    "add one": Case(lambda index: index.add_with_labels(X[N : N + 1], LABELS[N : N + 1])),
    "remove": Case(lambda index: index.remove_ids(np.arange(N - 9, N))),
    "relabel": Case(lambda index: index.relabel(np.arange(N) % 4)),
    "update": Case(lambda index: index.update_vectors(UPDATED, X[N:], LABELS[N:])),
    "replace": Case(lambda index: replace(index)),
    "reset": Case(lambda index: index.reset()),
    "merge": Case(merge, lambda kind: [filled(kind), other(kind)]),
    "merge stock": Case(merge, lambda kind: [filled(kind), other(kind).to_stock()]),
    "train": Case(lambda index: index.train(TRAINING[:280]), lambda kind: [untrained(kind)]),
    "map": Case(
        lambda index: index.set_direct_map_type(sum(MAPS.values()) - index.direct_map.type)
    ),
    "map ids": Case(lambda index: index.make_direct_map()),
}
CHANGES = [name for name in CASES if name not in ("train", "map", "map ids")]


def applies(kind: str, name: str) -> bool:
    if name == "merge stock":
        return not kind.startswith("pq")  # codes cannot be decoded exactly
    return name in CHANGES or (
        kind != "flat" and (name == "train") == (" " not in kind) and name != "map ids"
    )


def contents(index: Any) -> list[Any]:
    """Return all observable data of an index."""
    if not hasattr(index, "members"):
        return [index.ntotal, index.is_trained]
    known, stock = index.members(), type(index)._stock
    seen: list[Any] = [
        index.ntotal,
        index.is_trained,
        known.ids,
        known.labels,
        index.reconstruct_batch(known.ids),
    ]
    kind_of_map = getattr(getattr(index, "direct_map", None), "type", None)
    if isinstance(index, faiss.IndexIVF):
        seen += [
            index.nlist,
            kind_of_map,
            [index.invlists.list_size(j) for j in range(index.nlist)],
        ]
        seen += [index.direct_map.array.size()]
        if index.is_trained:
            seen += [index.centroids(), lists_of_rows(index)[:, known.rows]]
            seen += [index.sa_encode(TRAINING[:5])]
    if kind_of_map is None or kind_of_map != faiss.DirectMap.NoMap:
        seen += [np.array([stock.reconstruct(index, i) for i in known.ids.tolist()])]
    if index.is_trained:
        seen += [*index.search_evidence(X[:6], LABELS[:6], 4), *index.search(X[:6], 4)]
        seen += index.search_stored(known.ids[:5], 3)
    return seen


def same(one: list[Any], two: list[Any]) -> bool:
    return len(one) == len(two) and all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))


KINDS = ["flat", *CODECS, *(f"ivf {kind_of_map}" for kind_of_map in MAPS)]
ALL = [
    *((kind, name) for kind in KINDS for name in CASES if applies(kind, name)),
    ("ivf", "map ids"),
]


@pytest.mark.parametrize(
    ("errors", "step"),
    [
        pytest.param((KeyboardInterrupt, MemoryError), 25, id="in turn"),
        pytest.param((KeyboardInterrupt,), 1, id="interrupts", marks=pytest.mark.slow),
        pytest.param((MemoryError,), 1, id="no memory", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(("kind", "name"), ALL)
def test_an_error_at_any_line_of_any_change(
    kind: str, name: str, errors: tuple[type[BaseException], ...], step: int
) -> None:
    """By default at every 25th line, where cases begin at different lines; `make slow` tries every line."""
    case = CASES[name]
    index, *_ = raise_at_every_line(
        partial(case.make, kind),
        case.change,
        contents,
        same,
        lambda one: [one._lock] if hasattr(one, "members") else [],  # a stock index has none
        errors,
        first=1 + ALL.index((kind, name)) % step,
        step=step,
    )
    if name != "train":
        new = np.arange(index.ntotal, index.ntotal + 2)
        index.add_with_labels(X[:2], LABELS[:2], new)
        assert index.members().labels[-2:].tolist() == LABELS[:2].tolist()


# --- in a separate process --------------------------------------------------------------------------------------------

SETTING = """
import resource, signal, sys, time
import faiss, numpy as np
import cfe_faiss as cfe
kind = sys.argv[1]
rng = np.random.default_rng(0)
X = rng.standard_normal(({n}, 64), np.float32)
X /= np.linalg.norm(X, axis=1, keepdims=True)
labels = rng.integers(0, 4, len(X))
index = cfe.index_factory(64, kind)
if kind != "IDMap2,EvidenceFlat":
    index.cp.niter = 2
    index.train(X[:5000])
index.add_with_labels(X[:5000], labels[:5000])
ids = np.arange(5000)
kept = index.reconstruct_batch(ids)
expected = index.search_evidence(X[:20], labels[:20], 5)
more, more_labels = X[5000:], labels[5000:]
new = np.arange(10**6, 10**6 + len(more))

def check():
    assert index.ntotal == len(index.members().ids), index.ntotal
    assert np.array_equal(index.reconstruct_batch(ids), kept)
    assert np.array_equal(index.members().labels[:5000], labels[:5000])
    if index.ntotal == 5000:
        for a, b in zip(index.search_evidence(X[:20], labels[:20], 5), expected):
            assert np.array_equal(a, b)
    if "PQ" not in kind:
        assert (index.search(X[:50], 1)[1][:, 0] == ids[:50]).all()
"""

NO_MEMORY = """
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
errors = 0
for room in range(8, 100, 12):
    resource.setrlimit(resource.RLIMIT_AS, (size + (room << 20), resource.RLIM_INFINITY))
    try:
        index.add_with_labels(more, more_labels, new)
    except MemoryError:
        errors += 1
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert index.ntotal in (5000, 5000 + len(new))
    check()
    index.remove_ids(new)
assert errors > 1, errors
index.add_with_labels(more, more_labels, new)
check()
print("survived")
"""

SIGNALS = """
signal.signal(signal.SIGALRM, signal.default_int_handler)
errors, took = 0, np.inf
for _ in range(3):
    start = time.perf_counter()
    index.add_with_labels(more, more_labels, new)
    index.relabel(np.roll(more_labels, 1), new)
    index.remove_ids(new)
    took = min(took, time.perf_counter() - start)
for share in rng.uniform(0, 1, 24):
    try:
        start = time.perf_counter()
        signal.setitimer(signal.ITIMER_REAL, max(1e-4, share * took))
        index.add_with_labels(more, more_labels, new)
        index.relabel(np.roll(more_labels, 1), new)
        index.remove_ids(new)
        signal.setitimer(signal.ITIMER_REAL, 0)
        took = min(took, time.perf_counter() - start)  # a busy machine may have been slow at first
    except KeyboardInterrupt:
        errors += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert index.ntotal in (5000, 5000 + len(new)), index.ntotal
    check()
    index.remove_ids(new)
assert errors > 9, errors
print("survived")
"""


SEARCHES = """
edges = rng.integers(5000, size=(2, 20000))
more_like = cfe.IndexEvidenceIDMap2(64)
more_like.add_with_labels(X[:1000], labels[:1000])
searches = (
    lambda: [index.search_evidence(X[i : i + 1], labels[i : i + 1], 5) for i in range(30)],
    lambda: index.search_evidence(X[:1000], labels[:1000], 5),
    lambda: index.search_stored(ids[:2000], 5),
    lambda: index.search_evidence(X[:3], labels[:3], 5, recall=0.9),
    lambda: index.range_search_evidence(X[:50], labels[:50], 0.5),
    lambda: index.search_stored(k=5, exact=True),
    lambda: cfe.global_evidence(more_like, 9),
    lambda: cfe.ks_vectors(X[:5000], edges, num_layers=2),
)
signal.signal(signal.SIGALRM, signal.default_int_handler)
errors = 0
for search in searches:
    search()
    start = time.perf_counter()
    search()
    took = time.perf_counter() - start
    for delay in rng.uniform(1e-4, max(took, 2e-3), 5):
        try:
            signal.setitimer(signal.ITIMER_REAL, delay)
            search()
            signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            errors += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
    check()
assert errors > 9, errors
print("survived")
"""


# No PQ: FAISS encodes it by OpenBLAS, which ends the process when memory runs out.
@pytest.mark.exhausts_memory
@pytest.mark.parametrize(
    "kind",
    [
        "IDMap2,EvidenceFlat",
        "EvidenceIVF20,Flat",
        pytest.param("EvidenceIVF20,SQ8", marks=pytest.mark.slow),
    ],
)
def test_a_real_limit_of_memory(kind: str) -> None:
    assert_survives_alone(NO_MEMORY, 150_000, kind)


@pytest.mark.parametrize(
    "kind",
    [
        "IDMap2,EvidenceFlat",
        "EvidenceIVF20,Flat",
        pytest.param("EvidenceIVF20,PQ8,RFlat", marks=pytest.mark.slow),
    ],
)
def test_real_signals(kind: str) -> None:
    assert_survives_alone(SIGNALS, 12_000, kind)


@pytest.mark.parametrize("kind", ["IDMap2,EvidenceFlat", "EvidenceIVF20,Flat"])
def test_real_signals_while_searching(kind: str) -> None:
    """A search raises KeyboardInterrupt only, and later searches return the same results."""
    searches = (
        SEARCHES
        if kind != "IDMap2,EvidenceFlat"
        else SEARCHES.replace(", recall=0.9", "").replace(", exact=True", "")
    )
    assert_survives_alone(searches, 6000, kind)


def assert_survives_alone(script: str, n: int, kind: str) -> None:
    assert "survived" in output_of(SETTING.format(n=n) + script, kind)


# --- readers during changes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [12, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["flat", "ivf", "sq8", "pq"])
def test_every_reader_during_changes(kind: str, changes: int) -> None:
    """Every result is correct for a state of the index between two changes."""
    index: EvidenceIndex = filled(kind)
    stop, errors = threading.Event(), []
    few = set(range(N))
    with_more = cfe.clone_index(index)
    with_more.add_with_labels(X[N:], [7] * MORE, np.arange(N, N + MORE))
    queries = X[:9], LABELS[:9], 5
    possible = [one.search_evidence(*queries)[1] for one in (index, with_more)]
    query = X[:1].astype(np.float32), LABELS[:1], 5
    conditions: list[dict[str, Any]] = [
        {},
        {"exclude": [[0, N - 1]]},
        {"exclude_labels": [[int(LABELS[0])]], "within": (-1, 0.99)},
        {"sel": np.arange(0, N, 2)},
        {"neighbors": "any", "sel": np.arange(N)},
    ]
    possible_of_one = [
        [one.search_evidence(*query, **how)[1] for one in (index, with_more)] for how in conditions
    ]

    def one_query() -> None:
        for how, results in zip(conditions, possible_of_one, strict=True):
            found = index.search_evidence(*query, **how)[1]
            assert any(np.array_equal(found, one) for one in results)
        if index.has_lists:
            for _ in range(2):
                I = index.search_evidence(*query, recall=0.9, exclude=[[0, N - 1]])[1]
                assert not {0, N - 1} & set(I.ravel().tolist())

    def evidence() -> None:
        found = index.search_evidence(*queries)[1]
        assert any(np.array_equal(found, answer) for answer in possible)
        labels = np.append(LABELS[:N], [7] * MORE)
        I = index.search_stored(np.arange(9), 4)[1]
        assert (labels[I] != LABELS[:9, None]).all()

    def members() -> None:
        known = index.members()
        assert len(known.ids) in (N, N + MORE)
        assert_array_equal(known.labels[:N], LABELS[:N])
        index.storage()

    def pairs() -> None:
        cases = ({"exact": False}, {"per_node": True}, {"per_node": True, "exact": False}, {})
        for options in cases:
            found = cfe.global_evidence(index, 5, **options)  # type: ignore[arg-type]
            assert (found.source < found.target).all()
        with suppress(RuntimeError):  # the index changed during the iteration over its pairs
            for part in cfe.evidence_pairs(index, 0.9):
                assert (part.similarity >= 0.9).all()

    def others() -> None:
        assert index.reconstruct_batch(np.arange(N)).shape == (N, D)
        assert few <= set(index.search(X[:5], N)[1].ravel().tolist()) | few
        index.range_search_evidence(X[:3], LABELS[:3], 0.5)
        assert index.class_index(7).ntotal in (0, MORE)
        assert index.to_stock().ntotal in (N, N + MORE)
        index.__getstate__()
        if not isinstance(index, cfe.IndexEvidenceIDMap2):
            assert index.centroids().shape == (2, 3, D)
            assert index.routes().nlist == 3
            index.search_certified(np.arange(5), 2)
            index.search_evidence(X[:2], LABELS[:2], 2, recall=0.9)

    def again_and_again(read: Callable[[], None]) -> None:
        while not stop.is_set():
            try:
                read()
            except BaseException as error:
                errors.append(error)
                return

    threads = [
        threading.Thread(target=again_and_again, args=(read,))
        for read in (evidence, members, pairs, others, one_query)
    ]
    for thread in threads:
        thread.start()
    try:
        for _ in range(changes):
            index.add_with_labels(X[N:], [7] * MORE, np.arange(N, N + MORE))
            index.remove_ids(np.arange(N, N + MORE))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert errors == []
