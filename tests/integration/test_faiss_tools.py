"""FAISS's own tools on evidence indexes: its C++ code sees the stock index that ours is, never our Python methods."""

from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
from faiss.contrib import factory_tools, inspect_tools, ivf_tools
from numpy.testing import assert_array_equal
from numpy.typing import NDArray
from reference import assert_same_arrays, clustered, output_of, unit

import cfe_faiss as cfe

Index = cfe.IndexEvidenceIDMap2 | cfe.IndexEvidenceIVF
KINDS = ["flat", "ivf"]
N, D, NLIST, CLASSES = 600, 16, 12, 3
RAW, LABELS = clustered(N, D, CLASSES)
X = unit(RAW)
IDS = np.random.default_rng(5).permutation(10**6)[:N].astype(np.int64)
needs_repaired_tools = pytest.mark.skipif(
    tuple(map(int, faiss.__version__.split(".")[:2])) < (1, 15),
    reason="reverse_index_factory and Criterion.set_groundtruth of FAISS fail with stock indexes before 1.15",
)
CHANGED = r"the index holds \d+ vectors and \d+ labels"


def empty(kind: str, d: int = D, partitions: int = 1) -> Index:
    return (
        cfe.IndexEvidenceIDMap2(d) if kind == "flat" else cfe.IndexEvidenceIVF(d, NLIST, partitions)
    )


def filled(kind: str, ids: NDArray[np.int64] = IDS, rows: slice = slice(None)) -> Index:
    index = empty(kind, partitions=2)
    if kind == "ivf":
        index.train(X)
    index.add_with_labels(X[rows], LABELS[rows], ids[rows])
    return index


def assert_refuses_to_answer(index: Index) -> None:
    """Assert that an index that was changed behind its back says so wherever labels matter."""
    for use in (
        lambda: index.search_stored(k=2),
        lambda: index.search_evidence(X[:1], [0], 2),
        lambda: index.excluding(0).search(X[:1], 2),
        lambda: index.range_search_evidence(X[:1], [0], 0.5),
        lambda: index.reconstruct(0),
        lambda: index.relabel(np.zeros(index.ntotal, int)),
        lambda: index.add(X[:1]),
        lambda: index.remove_ids(np.array([0])),
        lambda: index.class_index(0),
        lambda: index.members(),
        index.__getstate__,
        lambda: cfe.write_index(index, "never-written"),
    ):
        with pytest.raises(RuntimeError, match=CHANGED):
            use()
    assert not Path("never-written").exists()


# --- conversions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_casts_clones_and_files_of_faiss_give_the_stock_index(kind: str, tmp_path: Path) -> None:
    index = filled(kind)
    faiss.write_index(index, str(tmp_path / "stock.faiss"))
    for other in (
        faiss.downcast_index(index),
        faiss.clone_index(index),
        faiss.deserialize_index(faiss.serialize_index(index)),
        faiss.read_index(str(tmp_path / "stock.faiss")),
        *([faiss.downcast_index(faiss.extract_index_ivf(index))] if kind == "ivf" else []),
    ):
        assert type(other) is type(faiss.downcast_index(index))
        assert_same_arrays(other.search(X[:20], 3), index.search(X[:20], 3))
    assert (faiss.try_extract_index_ivf(index) is None) == (kind == "flat")


@needs_repaired_tools
def test_factory_strings_match_the_stock_index() -> None:
    assert factory_tools.reverse_index_factory(filled("ivf")) == "IVF12,Flat"
    assert factory_tools.reverse_index_factory(filled("flat")) == "IDMap2,Flat"


# --- tuning and evaluation --------------------------------------------------------------------------------------------


@needs_repaired_tools
def test_parameter_space_tunes_nprobe() -> None:
    index, space = filled("ivf"), faiss.ParameterSpace()
    space.verbose = 0
    space.initialize(index)
    ranges = [space.parameter_ranges.at(i) for i in range(space.parameter_ranges.size())]
    assert [parameter.name for parameter in ranges] == ["nprobe"]
    space.set_index_parameter(index, "nprobe", 5)
    assert index.nprobe == 5
    space.set_index_parameters(index, "nprobe=12")
    assert index.nprobe == 12

    xq = unit(X[:50] + 0.2 * X[50:100])
    criterion = faiss.OneRecallAtRCriterion(len(xq), 1)
    D_exact, I_exact = faiss.knn(xq, X, 1, metric=faiss.METRIC_INNER_PRODUCT)
    criterion.set_groundtruth(D_exact, IDS[I_exact])
    points = space.explore(index, xq, criterion)
    best = points.optimal_pts.at(points.optimal_pts.size() - 1)
    assert isinstance(points, faiss.OperatingPoints)
    assert best.perf == 1.0
    space.set_index_parameters(index, best.key)
    assert f"nprobe={index.nprobe}" == best.key
    assert_array_equal(index.search(xq, 1)[1], IDS[I_exact])


# --- inverted lists ---------------------------------------------------------------------------------------------------


def test_inspect_tools_read_the_lists() -> None:
    index = filled("ivf")
    sizes = inspect_tools.get_invlist_sizes(index.invlists)
    assert sizes.sum() == N
    by_id = {int(i): row for i, row in zip(IDS, X, strict=True)}
    for number, size in enumerate(sizes):
        ids, codes = inspect_tools.get_invlist(index.invlists, number)
        assert len(ids) == size
        assert_array_equal(codes.view(np.float32), [by_id[int(i)] for i in ids])
    centroids = inspect_tools.get_flat_data(faiss.downcast_index(index.quantizer))
    assert_array_equal(centroids, index.centroids()[0])


def test_ivf_tools_search_given_lists() -> None:
    index = filled("ivf")
    index.nprobe = 4
    D_lists, lists = index.quantizer.search(X[:30], 4)
    found = ivf_tools.search_preassigned(index, X[:30], 3, lists, D_lists)
    assert_same_arrays(found, index.search(X[:30], 3))
    lims, _, I = ivf_tools.range_search_preassigned(index, X[:30], 0.8, lists)
    expected = index.range_search(X[:30], 0.8)
    assert_array_equal(lims, expected[0])
    assert_array_equal(np.sort(I), np.sort(expected[2]))


def test_ivf_tools_with_another_quantizer_of_the_same_centroids(tmp_path: Path) -> None:
    index, expected = filled("ivf"), filled("ivf").search_stored(k=3, nprobe=2 * NLIST)[1]
    ivf_tools.replace_ivf_quantizer(index, faiss.IndexHNSWFlat(D, 16, faiss.METRIC_INNER_PRODUCT))
    assert_array_equal(index.search_stored(k=3, nprobe=2 * NLIST)[1], expected)
    index.add_with_labels(-X[:5], LABELS[:5], np.arange(5) + 10**7)
    assert_array_equal(index.search(-X[:5], 1)[1][:, 0], np.arange(5) + 10**7)
    cfe.write_index(index, tmp_path / "index.cfe")
    read: Any = cfe.read_index(tmp_path / "index.cfe")
    assert isinstance(faiss.downcast_index(read.quantizer), faiss.IndexHNSWFlat)
    assert_array_equal(read.search_stored(k=3)[1], index.search_stored(k=3)[1])


# --- indexes that hold others -----------------------------------------------------------------------------------------


# IndexReplicas has no add_with_ids, and an id map no add.
@pytest.mark.parametrize(
    ("kind", "wrap"), [("flat", "transform"), ("ivf", "transform"), ("ivf", "replicas")]
)
def test_a_change_through_a_wrapper_is_noticed(
    kind: str, wrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    index = filled(kind)
    if wrap == "transform":
        faiss.IndexPreTransform(index).add_with_ids(X[:4], np.arange(4) + 10**7)
    else:
        replicas = faiss.IndexReplicas(D)
        replicas.addIndex(index)
        replicas.add(X[:4])
    assert index.ntotal == N + 4
    assert_refuses_to_answer(index)
    # what stock FAISS answers is still right
    assert index.search(X[:1], 2)[0][0, 0] == pytest.approx(1.0)
    if (kind, wrap) == ("ivf", "transform"):  # the vectors can be had back, if one knows the labels
        again = cfe.IndexEvidenceIVF.from_stock(
            index.to_stock(), np.append(LABELS[np.argsort(IDS)], [0, 1, 2, 0])
        )
        assert again.search_stored([10**7 + 3], 3)[1].min() >= 0
    index.reset()
    index.add_with_labels(X, LABELS, IDS)
    assert_array_equal(index.search_stored(k=3)[1], filled(kind).search_stored(k=3)[1])


def test_training_through_a_wrapper() -> None:
    index = empty("ivf")
    wrapped = faiss.IndexPreTransform(faiss.PCAMatrix(D, D), index)
    wrapped.train(RAW)
    index.add_with_labels(X, LABELS)
    exact = empty("flat")
    exact.add_with_labels(X, LABELS)
    assert_array_equal(index.search_stored(k=3, nprobe=NLIST)[1], exact.search_stored(k=3)[1])


def test_vectors_go_to_a_stock_index_and_labels_stay_right() -> None:
    index, target = filled("ivf"), filled("ivf").to_stock()
    target.reset()
    faiss.merge_into(target, index, False)
    assert (target.ntotal, index.ntotal) == (N, 0)
    with pytest.raises(RuntimeError, match=CHANGED):
        index.search_stored(k=2)


TENSORS = """
import numpy as np, torch, faiss
import faiss.contrib.torch_utils
import cfe_faiss as cfe

X = np.random.default_rng(0).normal(size=(300, 8)).astype(np.float32)
X /= np.linalg.norm(X, axis=1, keepdims=True)
labels = np.arange(300) % 3
for index in (cfe.IndexEvidenceIDMap2(8), cfe.IndexEvidenceIVF(8, 5), cfe.index_factory(8, "EvidenceIVF5,SQ8")):
    if isinstance(index, faiss.IndexIVF):
        index.train(torch.from_numpy(X))
        index.nprobe = 5
    index.add_with_labels(torch.from_numpy(X), torch.from_numpy(labels))
    D, I = index.search(X[:7], 4)
    assert isinstance(D, np.ndarray) and (I[:, 0] == np.arange(7)).all()
    D_t, I_t = index.search(torch.from_numpy(X[:7]), 4)
    assert isinstance(D_t, torch.Tensor) and (I_t.numpy() == I).all()
    sel = faiss.IDSelectorRange(100, 200)
    params = faiss.SearchParametersIVF(sel=sel, nprobe=5) if index.__class__ is not cfe.IndexEvidenceIDMap2 else None
    if params is not None:
        assert (index.search(X[:7], 4, params=params)[1] >= 100).all()
    lims, D, I = index.range_search(X[:7], 0.5)
    lims_t, D_t, I_t = index.range_search(torch.from_numpy(X[:7]), 0.5)
    assert isinstance(D_t, torch.Tensor) and (np.sort(I_t.numpy()) == np.sort(I)).all()
    evidence = cfe.EvidenceParameters(labels=labels[:7])
    found = index.search(X[:7], 4, params=evidence)[1]
    assert (labels[found] != labels[:7, None]).all()
    assert (np.asarray(index.search(torch.from_numpy(X[:7]), 4, params=evidence)[1]) == found).all()
    assert (index.search_evidence(torch.from_numpy(X[:7]), torch.from_numpy(labels[:7]), 4)[1] == found).all()
    assert index.remove_ids(torch.arange(10)) == 10
    assert np.allclose(index.reconstruct(50), X[50], atol=0.02)
    index.add_with_labels(X[:10], labels[:10], np.arange(10))

x = torch.from_numpy(X)
for kind in ("IDMap2,EvidenceFlat", "EvidenceIVF5,Flat", "EvidenceIVF5,SQ8", "EvidenceIVF5,PQ4,RFlat"):
    index = cfe.index_factory(8, kind)
    if not index.is_trained:
        index.train(x)
    index.add_with_ids(x.half(), torch.arange(300), numeric_type=faiss.Float16)
    index.relabel(torch.from_numpy(labels))
    params = cfe.EvidenceParameters(torch.from_numpy(labels[:7]), sel=torch.arange(300) < 200)
    expected = index.search(X[:7], 4, params=params)
    for found in (index.search(x[:7], 4, params=params), index.search_and_reconstruct(x[:7], 4, params=params)[:2]):
        assert all(type(one) is torch.Tensor for one in found)
        assert all((one.numpy() == other).all() for one, other in zip(found, expected))
    D, I = torch.empty(7, 4), torch.empty(7, 4, dtype=torch.int64)
    index.search(x[:7], 4, params=params, D=D, I=I)
    assert (I.numpy() == expected[1]).all()
    assert type(index.range_search(x[:7], 0.5, params=params)[1]) is torch.Tensor
    assert type(index.assign(x[:7], 2)) is torch.Tensor and type(index.assign(X[:7], 2)) is np.ndarray
    assert type(index.search_and_reconstruct(x[:7], 2)[2]) is torch.Tensor
    assert type(index.reconstruct_batch(torch.arange(3))) is np.ndarray
    assert index.remove_ids(torch.arange(300) < 5) == 5
print("all right")
"""


def test_arrays_and_tensors_after_torch_utils() -> None:
    """Tensors come back for tensors. This changes FAISS, hence a process of its own."""
    pytest.importorskip("torch")
    assert output_of(TENSORS) == "all right\n"
