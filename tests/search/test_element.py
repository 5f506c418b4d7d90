import numpy as np
import pytest
from reference import clustered

import cfe_faiss as cfe
from cfe_faiss import _native
from cfe_faiss.search import blocks as batch
from cfe_faiss.search import element
from cfe_faiss.search.derived import Derived


def built(X: np.ndarray, labels: np.ndarray, nlist: int) -> cfe.IndexEvidenceIVF:
    index = cfe.IndexEvidenceIVF(X.shape[1], nlist)
    index.train(X)
    index.add_with_ids(X, np.arange(len(X)))
    index.relabel(labels)
    return index


def test_what_blocks_may_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_native, "has_bytes", lambda: True)
    assert element.usable(100, 100) == ("float", "byte")
    assert element.usable(101, 100) == ("byte",)
    monkeypatch.setattr(_native, "has_bytes", lambda: False)
    assert element.usable(101, 100) == ("float",)


def test_bytes_are_taken_where_they_are_as_fast() -> None:
    assert element.faster(0.95, 1.0) == "float"
    assert element.faster(1.0, 1.0) == element.faster(2.0, 1.0) == "byte"


def test_blocks_for_single_queries_have_to_be_worth_their_memory() -> None:
    assert element.worth_blocks((1.0, 3.0), (0.85, 1.0)) == "byte"
    assert element.worth_blocks((1.0, 3.0), (0.95, 2.9)) == "float"
    assert element.worth_blocks((1.0, 3.0), (0.85, 2.9)) == "float"


def test_single_queries_have_blocks_in_many_lists_where_these_are_faster_only_there() -> None:
    assert element.worth_blocks((1.0, 3.0), (1.2, 1.0)) == "mixed"


@pytest.mark.parametrize("nlist", [1, 3, 40])
def test_a_sample_is_of_stored_rows_and_their_lists(nlist: int) -> None:
    X, labels = clustered(800, 9, 3)
    labels[::9] = -1
    index = built(X, labels, nlist)
    lists, storage = Derived.of(index.storage()), index.storage()
    assert lists.centroids is not None
    sample = element.Sample(storage, lists.centroids)
    assert sample.starts[0] == 0
    assert sample.starts[-1] == len(sample.X) == len(sample.labels) > 0
    assert len(sample.lists) == len(sample.starts) - 1
    for first, last in zip(sample.starts[:-1], sample.starts[1:], strict=True):
        assert 0 < last - first <= 16
        assert len(set(sample.labels[first:last].tolist())) == 1
    assert (sample.labels >= 0).all()
    wanted = sample.wanted(nlist)
    assert set(np.flatnonzero(wanted)) == set(sample.lists[sample.lists >= 0].tolist())
    blocks = batch.blocks_of(storage, "float", wanted=wanted)
    assert sample.seconds(blocks) > 0
    assert min(sample.seconds_alone(None)) > 0
    if _native.has_bytes():
        assert min(sample.seconds_alone(batch.blocks_of(storage, "byte", wanted=wanted))) > 0


@pytest.mark.parametrize("labels", [np.full(60, -1), np.zeros(60, int)])
def test_an_index_without_queries_or_evidence_has_an_element(labels: np.ndarray) -> None:
    X = np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32)
    index = built(X, labels, 4)
    assert Derived.of(index.storage()).element in ("float", "byte")
    assert Derived.of(index.storage()).row_source in ("float", "byte", "mixed")
    assert (index.search_stored(k=3, exact=True)[1] == -1).all()


@pytest.mark.skipif(not _native.has_bytes(), reason="blocks hold floats here")
def test_what_is_faster_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    X, labels = clustered(800, 9, 3)
    for seconds, expected in (({"float": 1.0, "byte": 2.0}, "float"), ({"float": 1.0, "byte": 0.5}, "byte")):
        monkeypatch.setattr(element.Sample, "seconds", lambda self, blocks, times=seconds: times[blocks.element])
        index = built(X, labels, 20)
        lists: Derived = Derived.of(index.storage())
        assert lists.element == expected
        assert lists.blocks is not None
        assert lists.blocks.element == expected


@pytest.mark.skipif(not _native.has_bytes(), reason="blocks hold floats here")
@pytest.mark.parametrize("element_of_many", ["float", "byte"])
@pytest.mark.parametrize("seconds_with", [0.5, 2.0])
def test_single_queries_have_blocks_of_bytes_where_these_are_faster(
    element_of_many: str, seconds_with: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = {None: (1.0, 1.0), "byte": (2.0 * seconds_with, seconds_with)}
    monkeypatch.setattr(element.Sample, "seconds_alone", lambda _, blocks: seconds[blocks and blocks.element])
    monkeypatch.setattr(Derived, "element", element_of_many)
    X, labels = clustered(800, 9, 3)
    index = built(X, labels, 20)
    index.search_evidence(X[:1], labels[:1], 3)
    lists = Derived.of(index.storage())
    assert list(lists.kept) == (["byte"] if seconds_with < 1 else [])
    index.search_stored(k=3, nprobe=4)
    assert lists.blocks is not None
    assert lists.blocks.element == element_of_many
    assert set(lists.kept) == {element_of_many, *(["byte"] if seconds_with < 1 else [])}


@pytest.mark.skipif(not _native.has_bytes(), reason="blocks hold floats here")
@pytest.mark.parametrize("codec", ["SQ8", "SQfp16"])
def test_codes_have_no_blocks_for_single_queries(codec: str) -> None:
    X, labels = clustered(800, 9, 3)
    index = cfe.index_factory(9, f"EvidenceIVF20,{codec}")
    index.train(X)
    index.add_with_labels(X, labels)
    index.search_evidence(X[:1], labels[:1], 3)
    assert Derived.of(index.storage()).row_source == "float"
    assert Derived.of(index.storage()).kept == {}
