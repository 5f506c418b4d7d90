"""Files written by commit cbdacc00 are read, with the answers that it gave."""

import json
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import cfe_faiss as cfe

CLASSES = {
    "flat.index": cfe.IndexEvidenceFlat,
    "flat-removed.index": cfe.IndexEvidenceFlat,
    "flat-texts-l2.index": cfe.IndexEvidenceFlat,
    "flat-shuffled.index": cfe.IndexEvidenceIDMap2,
    "flat-own-ids.index": cfe.IndexEvidenceIDMap2,
    "sq8.index": cfe.IndexEvidenceIVFScalarQuantizer,
    "fp16.index": cfe.IndexEvidenceIVFScalarQuantizer,
    "pq.index": cfe.IndexEvidenceIVFPQ,
}
X = np.random.default_rng(0).normal(size=(300, 16)).astype(np.float32)


@pytest.fixture(scope="module")
def fixtures() -> Path:
    folder = Path(__file__).parents[3] / "shared" / "fixtures"
    if not (folder / "answers.json").is_file():
        pytest.skip(f"the files of commit cbdacc00 are not at {folder}")
    return folder


@pytest.fixture(scope="module")
def answers(fixtures: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((fixtures / "answers.json").read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("flags", [0, faiss.IO_FLAG_MMAP], ids=["read", "mapped"])
def test_indexes(fixtures: Path, answers: dict[str, Any], flags: int, tmp_path: Path) -> None:
    names = [name for name in answers if name.endswith(".index")]
    assert len(names) == 13
    for name in names:
        expected = answers[name]
        index: Any = cfe.read_index(fixtures / name, flags)
        assert type(index) is CLASSES.get(name, cfe.IndexEvidenceIVF)
        assert index.ntotal == expected["ntotal"]
        cfe.write_index(index, tmp_path / name)
        for one in (index, cfe.read_index(tmp_path / name), cfe.clone_index(index)):
            assert type(one) is type(index)
            D, I = one.search_evidence(
                X[:8], expected["labels"], 5, **({"exact": True} if one.has_lists else {})
            )
            assert_array_equal(I, expected["I"])
            assert_allclose(D, expected["D"], atol=1e-4)


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("name", ["store", "store-booleans"])
def test_stores(
    fixtures: Path, answers: dict[str, Any], name: str, mmap: bool, tmp_path: Path
) -> None:
    store = cfe.EvidenceStore.load(fixtures / name, mmap=mmap)
    assert len(store) == answers[name]["len"]
    assert list(store.evidence("doc-0", k=5).ids) == answers[name]["evidence"]
    store.save(tmp_path / "again")
    expected = answers[name]["evidence"]
    assert list(cfe.EvidenceStore.load(tmp_path / "again").evidence("doc-0", k=5).ids) == expected
    if not mmap:
        store.delete(["doc-7"])
        store.add(["doc-new"], -X[:1])
        assert list(store.search(-X[0], k=1).ids) == ["doc-new"]
        assert list(store.search(X[8], k=1).ids) == ["doc-8"]
