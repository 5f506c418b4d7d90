"""The exact index: rows by position as in a ``faiss.IndexFlatIP``, and searches in many chunks."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from reference import Stored, assert_same_arrays, clustered, evidence, similarities, unit, with_rows

import cfe_faiss as cfe
from cfe_faiss.search import exact as exact_search
from cfe_faiss.search import tiles

N, D, CLASSES = 300, 8, 3
RAW, LABELS = clustered(N, D, CLASSES)
X = unit(RAW)
IP = faiss.METRIC_INNER_PRODUCT


def exact() -> cfe.IndexEvidenceFlat:
    return with_rows(cfe.IndexEvidenceFlat(D), X, LABELS)


def stock(n: int = N) -> faiss.IndexFlatIP:
    index = faiss.IndexFlatIP(D)
    index.add(X[:n])
    return index


def quantized() -> faiss.IndexPQ:
    index = faiss.IndexPQ(D, 4, 4, IP)
    index.train(X)
    index.add(X)
    return index


def graph_over(index: Any) -> faiss.IndexHNSW:
    graph = faiss.IndexHNSW(index, 8)
    graph.hnsw.efConstruction = 40
    return graph


WRAPPERS: dict[str, Callable[[Any], Any]] = {
    "refinement": lambda index: faiss.IndexRefine(quantized(), index),
    "refined": lambda index: faiss.IndexRefineFlat(index, faiss.swig_ptr(X)),
    "coarse quantizer": lambda index: faiss.IndexIVFFlat(index, D, N, IP),
    "coarse quantizer of codes": lambda index: faiss.IndexIVFScalarQuantizer(
        index, D, N, faiss.ScalarQuantizer.QT_8bit, IP
    ),
    "graph": graph_over,
}


@pytest.mark.parametrize("name", WRAPPERS)
def test_wrappers_find_what_they_find_over_a_stock_index(name: str) -> None:
    results = []
    for index in (stock(), exact()):
        wrapper = WRAPPERS[name](index)
        if "quantizer" in name:
            wrapper.train(X)
            wrapper.add(X)
            wrapper.nprobe = 5
        results.append(wrapper.search(X[:20], 4))
    assert_same_arrays(*results)


def test_faiss_trains_a_coarse_quantizer() -> None:
    coarse, expected = cfe.IndexEvidenceFlat(D), faiss.IndexFlatIP(D)
    for quantizer in (coarse, expected):
        ivf = faiss.IndexIVFFlat(quantizer, D, 7, IP)
        ivf.train(X)
        ivf.add(X)
        ivf.nprobe = 3
    assert_same_arrays(coarse.search(X[:9], 7), expected.search(X[:9], 7))
    assert coarse.ntotal == 7
    with pytest.raises(RuntimeError, match="7 vectors and 0 labels"):
        coarse.search_stored(k=1)
    coarse.reset()
    coarse.add_with_labels(X, LABELS)
    assert_same_arrays(coarse.search_stored(k=3), exact().search_stored(k=3))


def test_wrappers_fill_an_exact_index() -> None:
    for make in (lambda index: faiss.IndexPreTransform(index), graph_over):
        one, two = make(cfe.IndexEvidenceFlat(D)), make(faiss.IndexFlatIP(D))
        for wrapper in (one, two):
            wrapper.add(X)
        assert_same_arrays(one.search(X[:9], 5), two.search(X[:9], 5))


def test_it_is_an_index_flat_for_other_functions_of_faiss() -> None:
    index = exact()
    assert isinstance(index, faiss.IndexFlat)
    assert type(faiss.downcast_index(index)) is faiss.IndexFlat
    assert_array_equal(index.reconstruct_n(0, N), X)
    assert_array_equal(faiss.rev_swig_ptr(index.get_xb(), N * D).reshape(N, D), X)
    computer = index.get_distance_computer()
    computer.set_query(faiss.swig_ptr(X[:1]))
    assert computer(5) == pytest.approx(float(X[0] @ X[5]), abs=1e-6)
    index.permute_entries(np.arange(N)[::-1].copy())
    assert_array_equal(index.reconstruct_n(0, N), X[::-1])
    expected = with_rows(cfe.IndexEvidenceFlat(D), X[::-1], LABELS[::-1])
    assert_same_arrays(index.search_stored(k=4), expected.search_stored(k=4))
    with pytest.raises(ValueError, match="perm must be a permutation"):
        index.permute_entries(np.zeros(N, int))


def test_removed_and_added_rows_of_plain_and_mapped_indexes(tmp_path: Path) -> None:
    index = exact()
    index.remove_ids(np.arange(N - 4, N))
    index.add_with_labels(X[-4:], LABELS[-4:], np.arange(N - 4, N))
    assert_same_arrays(index.search_stored(k=3), exact().search_stored(k=3))
    index.remove_ids([3, 4])
    rest = np.delete(np.arange(N), [3, 4])
    expected = with_rows(cfe.IndexEvidenceFlat(D), X[rest], LABELS[rest])
    faiss.write_index(index, str(tmp_path / "stock"))
    cfe.write_index(index, tmp_path / "own")
    for one in (
        index,
        cfe.read_index(tmp_path / "own"),
        cfe.read_index(tmp_path / "own", faiss.IO_FLAG_MMAP),
    ):
        assert_same_arrays(one.search_stored(k=3), expected.search_stored(k=3))
        assert_same_arrays(one.search(X[:9], 3), expected.search(X[:9], 3))
    found = faiss.read_index(str(tmp_path / "stock")).search(X[:9], 3)
    assert_same_arrays(found, expected.search(X[:9], 3))


def test_a_file_with_ids_in_another_order_keeps_them(tmp_path: Path) -> None:
    order = np.random.default_rng(0).permutation(N)
    index = with_rows(cfe.IndexEvidenceIDMap2(D), X[order], LABELS[order], order)
    cfe.write_index(index, tmp_path / "index")
    again = cfe.read_index(tmp_path / "index")
    cases = (again, cfe.read_index(tmp_path / "index", faiss.IO_FLAG_MMAP), cfe.clone_index(index))
    for one in cases:
        assert type(one) is cfe.IndexEvidenceIDMap2
        assert_same_arrays(one.search_stored(k=3), exact().search_stored(k=3))
        assert_array_equal(one.reconstruct_n(0, N), X)
    again.add_with_labels(X[:1], [0])
    assert again.reconstruct(N).tolist() == X[0].tolist()


def test_labels_move_along_with_positions() -> None:
    index = with_rows(cfe.IndexEvidenceFlat(5), np.eye(5), ["a", "b", "c", "d", "e"])
    assert index.remove_ids([1, 3]) == 2
    assert index.members().labels.tolist() == ["a", "c", "e"]
    assert index.search(np.eye(5, dtype=np.float32)[4:], 1)[1].tolist() == [[2]]
    assert index.search_evidence(np.eye(5)[2:3], ["c"], 2)[1].tolist() == [[0, 2]]
    index.update_vectors([1], np.eye(5)[3:4], ["d"])
    index.relabel(["x"], [0])
    assert index.members().labels.tolist() == ["x", "d", "e"]
    index.add_with_labels(np.eye(5)[:1], ["y"], ids=[3])
    assert index.members().ids.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "call",
    [
        lambda index: index.add_with_labels(np.eye(5)[:2], [0, 1], ids=[7, 8]),
        lambda index: index.add_with_labels(np.eye(5)[:2], [0, 1], ids=[6, 5]),
        lambda index: index.add_with_labels(np.eye(5)[:1], [0], ids=[0]),
        lambda index: index.add_sa_codes(
            index.sa_encode(np.eye(5, dtype=np.float32)), [9, 10, 11, 12, 13]
        ),
        lambda index: index.merge_from(
            with_rows(cfe.IndexEvidenceIDMap2(5), np.eye(5), [0] * 5, ids=[9, 3, 4, 5, 6])
        ),
        lambda index: index.merge_from(cfe.clone_index(index), 5),
    ],
)
def test_other_ids_than_the_next_positions_name_the_class_that_takes_them(call: Any) -> None:
    index = with_rows(cfe.IndexEvidenceFlat(5), np.eye(5), [0, 1, 0, 1, 0])
    with pytest.raises(ValueError, match="IndexEvidenceIDMap2"):
        call(index)
    assert index.members().ids.tolist() == [0, 1, 2, 3, 4]


def test_many_chunks_threads_and_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "CHUNK", 64)
    monkeypatch.setattr(tiles, "TILE", 64 * 64)
    monkeypatch.setattr(exact_search, "_BUFFER", 100)
    X, labels = clustered(1000, 24, 5)
    stored = Stored(X, labels, np.arange(1000), X, labels, 7)
    index = with_rows(cfe.IndexEvidenceIDMap2(24), X, labels)
    expected_D, expected_I = evidence(stored)
    for D, I in (index.search_stored(k=7), index.search_evidence(X, labels, 7)):
        assert_array_equal(I, expected_I)
        assert_array_equal(D, expected_D)
    lims, _, ids = index.range_search_evidence(X, labels, 0.5)
    S = similarities(X, X)
    found = np.diff(lims)
    assert_array_equal(found, ((np.float32(0.5) <= S) & (labels[:, None] != labels)).sum(axis=1))
    assert len(ids) > 1000
