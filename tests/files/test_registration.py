"""``cfe_faiss.register``: FAISS's factory and file functions keep evidence indexes, until unregistered."""

import copy
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from reference import assert_same_arrays, clustered, output_of, with_rows

import cfe_faiss as cfe

NAMES = ("index_factory", "write_index", "read_index", "clone_index")
STOCK = {name: getattr(faiss, name) for name in NAMES}
X, LABELS = clustered(300, 8, 3)
KINDS = {
    "EvidenceFlat": cfe.IndexEvidenceFlat,
    "IDMap2,EvidenceFlat": cfe.IndexEvidenceIDMap2,
    "EvidenceIVF4,Flat": cfe.IndexEvidenceIVF,
    "EvidenceIVF4,SQ8": cfe.IndexEvidenceIVFScalarQuantizer,
    "EvidenceIVF4,PQ4,RFlat": cfe.IndexEvidenceIVFPQ,
    "EvidenceIVF4_HNSW4,Flat": cfe.IndexEvidenceIVF,
}


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    cfe.register()
    yield
    cfe.unregister()
    assert {name: getattr(faiss, name) for name in NAMES} == STOCK


def filled(kind: str) -> Any:
    index = faiss.index_factory(8, kind, faiss.METRIC_INNER_PRODUCT)
    if not index.is_trained:
        index.train(X)
    index.add_with_labels(X, LABELS)
    return index


@pytest.mark.parametrize("kind", KINDS)
def test_functions_of_faiss_keep_classes(kind: str, tmp_path: Path) -> None:
    index = filled(kind)
    assert type(index) is KINDS[kind]
    assert index.metric == "ip"
    path = str(tmp_path / "index")
    Path(path).write_bytes(b"something else")  # FAISS replaces any file
    faiss.write_index(index, path)
    writer = faiss.VectorIOWriter()
    faiss.write_index(index, writer)
    reader = faiss.VectorIOReader()
    faiss.copy_array_to_vector(faiss.vector_to_array(writer.data), reader.data)
    expected = index.search_stored(k=3)
    for twin in (
        faiss.read_index(path),
        faiss.read_index(path, faiss.IO_FLAG_MMAP),
        faiss.read_index(reader),
        faiss.clone_index(index),
        faiss.deserialize_index(faiss.serialize_index(index)),
        copy.deepcopy(index),
        pickle.loads(pickle.dumps(index)),
        cfe.clone_index(index),
    ):
        assert type(twin) is type(index)
        assert_same_arrays(twin.search_stored(k=3), expected)
    assert type(index.to_stock()) in (type(STOCK["clone_index"](index)), faiss.IndexFlatIP)
    with pytest.raises(ValueError, match="io_flags must be 0"):
        faiss.write_index(index, path, faiss.IO_FLAG_SKIP_IVF_DATA)


def test_other_indexes_are_treated_as_before(tmp_path: Path) -> None:
    path = str(tmp_path / "index")
    for description in ("Flat", "IVF4,Flat", "IDMap2,Flat", "PCA4,IVF4,PQ2"):
        index = faiss.index_factory(8, description)
        index.train(X)
        faiss.write_index(index, path)
        for twin in (
            faiss.read_index(path),
            faiss.clone_index(index),
            faiss.read_index(path, faiss.IO_FLAG_MMAP),
        ):
            assert type(twin).__module__ == faiss.IndexFlat.__module__
            assert twin.d == 8
    assert faiss.index_factory(8, "Flat").metric_type == faiss.METRIC_L2
    assert faiss.index_factory(8, "EvidenceFlat").metric == "l2"
    with pytest.raises(RuntimeError, match="No such file"):
        faiss.read_index(str(tmp_path / "missing"))
    with pytest.raises(ValueError, match="description must begin with"):
        faiss.index_factory(8, "EvidenceFlt")


def test_transforms_are_copied_and_not_lost_without_a_word(tmp_path: Path) -> None:
    index = filled("PCA4,EvidenceIVF4,Flat")
    assert type(index) is cfe.IndexEvidencePreTransform
    twin = faiss.clone_index(index)
    found = twin.search_evidence(X[:5], LABELS[:5], 2)[1]
    assert_array_equal(found, index.search_evidence(X[:5], LABELS[:5], 2)[1])
    with pytest.raises(TypeError, match="write_VectorTransform"):
        faiss.write_index(index, str(tmp_path / "index"))


def test_wrappers_of_faiss_do_not_lose_classes_without_a_word(tmp_path: Path) -> None:
    faiss.write_index(faiss.IndexIDMap2(cfe.IndexEvidenceFlat(8)), str(tmp_path / "no classes"))
    flat = with_rows(cfe.IndexEvidenceFlat(8), np.eye(8, dtype=np.float32), np.arange(8) % 2)
    vectors = faiss.IndexFlatIP(8)
    vectors.add(np.eye(8, dtype=np.float32))
    for wrapper in (faiss.IndexPreTransform(flat), faiss.IndexRefine(flat, vectors)):
        with pytest.raises(TypeError, match="index must"):
            faiss.write_index(wrapper, str(tmp_path / "index"))
    assert not (tmp_path / "index").exists()
    faiss.write_index(faiss.IndexIVFFlat(cfe.IndexEvidenceFlat(8), 8, 4), str(tmp_path / "index"))


def test_registration_is_idempotent_and_reversible() -> None:
    first = faiss.write_index
    copied = faiss.index_factory
    cfe.register()
    assert faiss.write_index is first
    cfe.unregister()
    cfe.unregister()
    assert faiss.write_index is STOCK["write_index"]
    with pytest.raises(RuntimeError):
        copied(8, "EvidenceFlat")  # FAISS's own again
    cfe.register()
    assert copied(8, "EvidenceFlat").d == 8
    theirs = lambda *args: STOCK["write_index"](*args)  # noqa: E731
    faiss.write_index = theirs
    cfe.unregister()
    assert faiss.write_index is theirs
    faiss.write_index = STOCK["write_index"]


def test_files_keep_their_classes_across_processes(tmp_path: Path) -> None:
    faiss.write_index(filled("EvidenceIVF4,Flat"), str(tmp_path / "index"))
    code = (
        "import sys, faiss, cfe_faiss as cfe; cfe.register(); "
        "index = faiss.read_index(sys.argv[1]); print(type(index).__name__, index.search_stored([0], 1)[1].shape)"
    )
    assert output_of(code, tmp_path / "index") == "IndexEvidenceIVF (1, 1)\n"
    assert np.array_equal(cfe.read_index(tmp_path / "index").members().labels, LABELS)
