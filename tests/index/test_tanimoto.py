"""Tanimoto similarity of rows of 0 and 1, by sets and by RDKit; random changes: :mod:`test_random_operations`."""

from itertools import combinations
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from reference import assert_same_arrays, tanimoto, with_rows
from scipy.spatial.distance import cdist
from sklearn.neighbors import NearestNeighbors

import cfe_faiss as cfe
from cfe_faiss import EvidenceFinder, mining

Bits = NDArray[np.float32]


@st.composite
def bits(draw: st.DrawFn, least: int = 1) -> tuple[Bits, NDArray[np.int64]]:
    """Draw rows of 0 and 1 with classes: dense or sparse, with copies, ties and rows of zeros."""
    n, d = draw(st.integers(least, 60)), draw(st.integers(1, 70))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    X = rng.random((n, d)) < draw(st.sampled_from([0.0, 1 / d, 0.1, 0.5, 0.97, 1.0]))
    X[rng.integers(0, n, n // 4)] = X[rng.integers(0, n, n // 4)]
    return X.astype(np.float32), rng.integers(0, draw(st.integers(1, 4)), n)


@given(bits(least=2))
def test_constraints_pairs_and_finders_equal_sets(case: tuple[Bits, NDArray[np.int64]]) -> None:
    X, y = case
    S = tanimoto(X[:, None], X[None])
    age = np.arange(len(X)) % 5
    where = cfe.Constraints(caliper={"age": 1})
    fits = (y[:, None] != y) & (np.abs(age[:, None] - age) <= 1)
    ranked = sorted(
        (-float(S[v, u]), v, u) for v, u in combinations(range(len(X)), 2) if fits[v, u]
    )[:20]
    finder = EvidenceFinder.from_vectors(X, y, features={"age": age}, metric="tanimoto")
    pairs = finder.top_pairs(20, where=where)
    assert list(zip(pairs.source.tolist(), pairs.target.tolist(), strict=True)) == [
        (v, u) for _, v, u in ranked
    ]
    frame = pairs.to_frame()
    exact = finder.measure64(frame["source"].to_numpy(), frame["target"].to_numpy())
    assert_array_equal(frame["similarity"].to_numpy().astype(np.float32), exact.astype(np.float32))
    threshold = float(S[0, -1])
    blocks = list(cfe.evidence_pairs(finder.index, threshold))
    assert sum(map(len, blocks)) == np.triu((y[:, None] != y) & (threshold <= S)).sum()


@given(bits(least=2))
def test_mining_and_scikit_learn_equal_sets(case: tuple[Bits, NDArray[np.int64]]) -> None:
    X, y = case
    away = np.where(y[:, None] != y, 1 - tanimoto(X[:, None], X[None]), np.inf)
    D, I = mining.nearest_enemies(X, y, metric="tanimoto")
    assert_array_equal(D.astype(np.float32), away.min(axis=1).astype(np.float32))
    assert_array_equal(I, np.where(np.isfinite(D), away.argmin(axis=1), -1))
    k = min(3, len(X) - 1)
    fitted = cfe.EvidenceNeighbors(k, metric="tanimoto").fit(X, y)
    distances, rows = fitted.kneighbors()
    assert_array_equal(distances, np.sort(away, axis=1)[:, :k])
    assert_array_equal(rows[:, 0], I)
    near = fitted.radius_neighbors(radius=0.5)[1]
    assert [len(row) for row in near] == (away <= 0.5).sum(axis=1).tolist()
    plain = cfe.EvidenceNeighbors(k, metric="tanimoto", neighbors="any").fit(X)
    expected = NearestNeighbors(n_neighbors=k, metric="jaccard").fit(X > 0).kneighbors()[0]
    assert_allclose(plain.kneighbors()[0], expected, atol=1e-7)


def test_rows_of_zeros_are_equal_as_in_scipy() -> None:
    X = np.float32([[0, 0, 0], [0, 0, 0], [1, 0, 1]])
    for n in (1, 9):
        index = with_rows(cfe.IndexEvidenceFlat(3, "tanimoto"), X, [0, 1, 1])
        D, I = index.search_evidence(np.tile(X[:1], (n, 1)), [0] * n, 2)
        assert_array_equal(I, np.tile([1, 2], (n, 1)))
        assert_array_equal(D, 1 - np.tile(cdist(X[:1] > 0, X[1:] > 0, "jaccard"), (n, 1)))


def test_files_keep_the_metric_and_faiss_reads_them(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X, y = (rng.random((200, 40)) < 0.3).astype(np.float32), rng.integers(0, 3, 200)
    for kind in ("EvidenceFlat", "IDMap2,EvidenceFlat"):
        index = with_rows(cfe.index_factory(40, kind, faiss.METRIC_Jaccard), X, y)
        assert index.metric == "tanimoto"
        path = tmp_path / type(index).__name__
        cfe.write_index(index, path)
        for flags in (0, faiss.IO_FLAG_MMAP):
            again = cfe.read_index(path, flags)
            assert repr(again) == repr(index)
            assert_same_arrays(again.search_stored(k=9), index.search_stored(k=9))
        stock = faiss.read_index(str(path))
        assert stock.metric_type == faiss.METRIC_Jaccard
        expected = -np.sort(-tanimoto(X[:, None], X[None]), axis=1)[:, :5]
        assert_array_equal(stock.search(X, 5)[0], expected)
        twin = type(index).from_stock(index.to_stock(), y)
        assert_same_arrays(twin.search_stored(k=9), index.search_stored(k=9))


def test_other_numbers_and_lists_are_refused() -> None:
    index = with_rows(cfe.IndexEvidenceIDMap2(3, "tanimoto"), np.eye(3), [0, 1, 2])
    for wrong in (2, 0.5, -1):
        bad = np.float32([[1, 0, 1], [0, wrong, 1]])
        message = rf"must hold only 0 and 1 for metric 'tanimoto', got {wrong:g} in row 1"
        with pytest.raises(ValueError, match=f"x {message}"):
            index.add_with_labels(bad, [0, 1])
        with pytest.raises(ValueError, match=f"x {message}"):
            index.update_vectors([0, 1], bad)
        with pytest.raises(ValueError, match=f"xq {message}"):
            index.search_evidence(bad, [0, 1], 2)
    flat = faiss.IndexFlat(3, faiss.METRIC_Jaccard)
    flat.add(2 * np.eye(3, dtype=np.float32))
    with pytest.raises(ValueError, match="only 0 and 1"):
        cfe.IndexEvidenceFlat.from_stock(flat, [0, 1, 2])
    for description in ("EvidenceIVF4,Flat", "EvidenceIVF4,SQ8", "EvidenceIVF4,PQ1,RFlat"):
        with pytest.raises(ValueError, match="IndexEvidenceIDMap2"):
            cfe.index_factory(4, description, "tanimoto")
    with pytest.raises(ValueError, match=r"threshold must lie in \[0, 1\]"):
        list(cfe.evidence_pairs(index, 1.5))
    assert index.ntotal == 3


SMILES = [
    "CCO", "CCN", "CCCO", "CCCN", "CC(C)O", "CC(=O)O", "CC(=O)N", "c1ccccc1", "c1ccccc1O",
    "c1ccccc1N", "c1ccccc1C", "Cc1ccccc1O", "Cc1ccccc1N", "CC(=O)Oc1ccccc1C(=O)O",
    "CC(=O)Nc1ccc(O)cc1", "CC(C)Cc1ccc(cc1)C(C)C(=O)O", "CN1C=NC2=C1C(=O)N(C(=O)N2C)C",
    "Cn1cnc2c1c(=O)[nH]c(=O)n2C", "OC(=O)c1ccccc1O", "COc1ccccc1O", "COc1ccc(C=O)cc1O",
    "COc1cc(C=O)ccc1O", "C1CCCCC1", "C1CCCCC1O", "OCC1OC(O)C(O)C(O)C1O", "NCC(=O)O",
    "CC(N)C(=O)O", "CC(C)C(N)C(=O)O", "c1ccc2ccccc2c1", "c1ccc2[nH]ccc2c1", "Oc1ccc2ccccc2c1",
]  # fmt: skip


def test_activity_cliffs_are_those_of_rdkit() -> None:
    chem: Any = pytest.importorskip("rdkit.Chem", reason="rdkit is not installed")
    from rdkit.Chem import rdFingerprintGenerator
    from rdkit.DataStructs import BulkTanimotoSimilarity

    generator = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=1024)
    molecules = [chem.MolFromSmiles(smiles) for smiles in SMILES]
    prints = [generator.GetFingerprint(molecule) for molecule in molecules]
    S = np.array([BulkTanimotoSimilarity(one, prints) for one in prints])
    X = np.array([generator.GetFingerprintAsNumPy(molecule) for molecule in molecules])
    active = np.array([molecule.GetNumHeavyAtoms() % 2 for molecule in molecules])
    index = with_rows(cfe.IndexEvidenceFlat(1024, "tanimoto"), X, active)
    cliffs = [(v, u) for v, u in combinations(range(len(X)), 2) if active[v] != active[u]]
    cliffs = sorted(cliffs, key=lambda pair: (-np.float32(S[pair]), pair))
    found = cfe.global_evidence(index, 50)
    assert list(zip(found.source.tolist(), found.target.tolist(), strict=True)) == cliffs[:50]
    assert_array_equal(found.similarity, np.float32([S[pair] for pair in cliffs[:50]]))
