"""The effort of a search is said in the same words in every function that searches."""

import dataclasses
import inspect
from collections.abc import Callable
from contextlib import nullcontext
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from reference import assert_same_arrays, clustered, with_rows

import cfe_faiss as cfe
from cfe_faiss import audit
from cfe_faiss.base import threads
from cfe_faiss.index.searching import EvidenceSearcher
from cfe_faiss.search import lists

pytest.importorskip("pandas")  # of the audits

X, LABELS = clustered(400, 8, 3)
KINDS = [
    "EvidenceFlat",
    "EvidenceIVF8,Flat",
    "EvidenceIVF8x2,Flat",
    "EvidenceIVF8,SQ8",
    "EvidenceIVF8,PQ2,RFlat",
]


@lru_cache
def filled(kind: str) -> Any:
    return with_rows(cfe.index_factory(8, kind), X, LABELS)


def finder_on(index: Any) -> cfe.EvidenceFinder:
    return cfe.EvidenceFinder.from_index(index, features={"a": np.arange(len(X)) % 3})


def with_truth(index: Any) -> cfe.EvidenceFinder:
    return dataclasses.replace(finder_on(index), truth=LABELS % 2)


def by_parameters(index: Any, **effort: Any) -> Any:
    return index.search(X[:9], 4, params=cfe.EvidenceParameters(LABELS[:9], **effort))[0]


def by_neighbors(index: Any, **effort: Any) -> Any:
    kind = "EvidenceIVF8,Flat" if index.has_lists else "EvidenceFlat"
    return cfe.EvidenceNeighbors(4, index=kind, **effort).fit(X, LABELS).kneighbors()[0]


def by_store(index: Any, **effort: Any) -> Any:
    store = cfe.EvidenceStore(8, "EvidenceIVF8,Flat" if index.has_lists else None)
    store.add([str(i) for i in range(len(X))], X, LABELS)
    return store.evidence("3", 4, **effort).similarity


SEARCHES: list[Callable[..., Any]] = [
    by_parameters,
    by_neighbors,
    by_store,
    lambda index, **effort: cfe.global_evidence(index, 7, **effort).similarity,
    lambda index, **effort: cfe.global_evidence(index, 7, per_node=True, **effort).similarity,
    lambda index, **effort: finder_on(index).local(k=4, **effort).similarity,
    lambda index, **effort: finder_on(index).top_pairs(7, **effort).similarity,
    lambda index, **effort: audit.consistency(finder_on(index), **effort)["share"],
    lambda index, **effort: audit.discrimination_scores(finder_on(index), k=4, **effort)["score"],
    lambda index, **effort: audit.error_rate_by_evidence(with_truth(index), ks=[9], **effort)[
        "accuracy"
    ],
]


@pytest.mark.parametrize("kind", KINDS[:2])
@pytest.mark.parametrize("search", SEARCHES)
def test_every_search_takes_each_effort(search: Callable[..., Any], kind: str) -> None:
    index = filled(kind)
    exact = np.asarray(search(index, exact=True))
    assert_array_equal(search(index, recall=1.0), exact)
    assert np.asarray(search(index, recall=0.9)).shape == exact.shape
    assert_array_equal(search(index, exact=True, memory=1 << 16), exact)
    with pytest.raises(ValueError, match="memory must be at least 1, got 0"):
        search(index, memory=0)
    if index.has_lists:
        assert_array_equal(search(index, nprobe=8), exact)
        with pytest.raises(ValueError, match="only one of nprobe, recall and exact"):
            search(index, nprobe=8, recall=0.9)
    else:
        with pytest.raises(ValueError, match="nprobe is for an index with lists, got nprobe=8"):
            search(index, nprobe=8)


@pytest.mark.parametrize("kind", KINDS[:2])
@pytest.mark.parametrize(
    ("search", "title"),
    [
        (lambda index, **bar: index.search_evidence(X[:9], LABELS[:9], 3, **bar), "Searching"),
        (lambda index, **bar: index.search_stored(k=3, **bar), "Searching"),
        (lambda index, **bar: index.search_certified(k=3, **bar), "Searching"),
        (lambda index, **bar: cfe.global_evidence(index, 7, **bar), "Comparing"),
        (lambda index, **bar: cfe.global_evidence(index, 7, exact=False, **bar), "Searching"),
        (lambda index, **bar: finder_on(index).local(k=4, **bar), "Searching"),
        (lambda index, **bar: finder_on(index).top_pairs(7, **bar), "Comparing"),
        (lambda index, **bar: audit.consistency(finder_on(index), **bar), "Searching"),
    ],
)
def test_progress_shows_a_bar_with_a_title(
    search: Callable[..., Any], title: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    titles: set[str | None] = set()

    def no_bar(title: str | None, *_: Any) -> Any:
        titles.add(title)
        return nullcontext()

    monkeypatch.setattr(threads, "native_progress", no_bar)
    monkeypatch.setattr(lists, "native_progress", no_bar)
    index = filled(kind)
    search(index)
    assert titles <= {None}
    search(index, progress=True)
    assert title in titles


@pytest.mark.parametrize("kind", KINDS)
def test_every_index_keeps_the_protocol(kind: str) -> None:
    index = filled(kind)
    assert isinstance(index, cfe.EvidenceIndex)
    assert (index.has_lists, index.keeps_vectors) == (kind != "EvidenceFlat", "SQ8" not in kind)
    assert index.stores_codes == ("SQ8" in kind or "PQ2" in kind)
    assert not isinstance(X, cfe.EvidenceIndex)


@pytest.mark.parametrize(
    "name", ["search_evidence", "search_stored", "search_certified", "range_search_evidence"]
)
def test_every_kind_searches_by_the_same_signature(name: str) -> None:
    pytest.importorskip("pyarrow")  # of shards
    from cfe_faiss.scale import ServedEvidenceIndex, ShardedEvidenceIndex

    kinds = *(type(filled(kind)) for kind in KINDS), ServedEvidenceIndex, ShardedEvidenceIndex
    assert (
        len({str(inspect.signature(getattr(kind, name))) for kind in (*kinds, EvidenceSearcher)})
        == 1
    )


def test_an_exact_index_certifies_every_row_at_any_effort() -> None:
    flat, lists = filled(KINDS[0]), filled(KINDS[1])
    expected = flat.search_stored(k=3)
    for effort in ({}, {"exact": True}, {"recall": 0.9}):
        *found, certified = flat.search_certified(k=3, **effort)
        assert_same_arrays(found, expected)
        assert certified.all()
    D, I, certified = lists.search_certified(k=3, recall=0.5)
    assert_same_arrays((D, I), lists.search_stored(k=3, recall=0.5))
    assert_array_equal(I[certified], expected[1][certified])
    with pytest.raises(ValueError, match="only one of nprobe, recall and exact"):
        lists.search_certified(k=3, nprobe=2, exact=True)
    with pytest.raises(ValueError, match="nprobe is for an index with lists"):
        flat.search_certified(k=3, nprobe=2)


@pytest.mark.parametrize("kind", KINDS)
def test_no_queries_have_no_results(kind: str) -> None:
    index = cfe.clone_index(filled(kind))
    efforts: list[dict[str, Any]] = [{}, {"exact": True}, {"recall": 0.5}, {"recall": 0.9}]
    efforts += [{"nprobe": 2}] if index.has_lists else []
    for effort in efforts:
        for rules in (
            {},
            {"sel": [3, 5, 7]},
            {"exclude": []},
            {"neighbors": "own"},
            {"within": (0.1, 0.9)},
        ):
            assert index.search_evidence(X[:0], LABELS[:0], 3, **effort, **rules)[1].shape == (0, 3)
            assert index.search_stored([], 3, **effort, **rules)[1].shape == (0, 3)
            assert index.search_certified([], 3, **effort, **rules)[2].shape == (0,)
        assert index.search_per_label(X[:0], LABELS[:0], 3, **effort)[1].shape == (0, 3, 3)
        assert by_parameters_of_none(index, **effort).shape == (0, 4)
    assert index.range_search_evidence(X[:0], LABELS[:0], 0.5)[0].tolist() == [0]


def by_parameters_of_none(index: Any, **effort: Any) -> Any:
    return index.search(X[:0], 4, params=cfe.EvidenceParameters(LABELS[:0], **effort))[1]
