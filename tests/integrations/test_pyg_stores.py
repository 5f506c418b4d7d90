"""PyG's stores and mapped tensors as inputs of jobs: the same arrays, and never as a whole in memory."""

import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal
from torch_geometric.data import Data, HeteroData
from torch_geometric.testing import MyFeatureStore, MyGraphStore

import cfe_faiss as cfe
from cfe_faiss.integrations.pyg import stored_edges, stored_features
from cfe_faiss.scale import Job, job_files
from cfe_faiss.scale.job_files import store_input

N, D, E = 40, 5, 160
CITES = ("paper", "cites", "paper")


@pytest.fixture
def data() -> Data:
    rng = torch.Generator().manual_seed(0)
    x, edge_index = torch.randn(N, D, generator=rng), torch.randint(0, N, (2, E), generator=rng)
    return Data(x=x, edge_index=edge_index, y=torch.randint(0, 2, (N,), generator=rng))


@pytest.fixture(params=[None, 64], ids=["whole", "blocks"])
def block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param:
        monkeypatch.setattr(job_files, "_BLOCK", request.param)


@pytest.mark.usefixtures("block")
def test_features_of_stores(data: Data, tmp_path: Path) -> None:
    hetero, own = HeteroData(), MyFeatureStore()
    hetero["paper"].x = data.x
    own.put_tensor(data.x, group_name="paper", attr_name="x", index=None)
    for features in (
        stored_features(data, attr_name="x"),
        stored_features(hetero, "paper", "x"),
        stored_features(own, group_name="paper", attr_name="x"),
    ):
        assert features.shape == (N, D)
        assert_array_equal(store_input("features", features, tmp_path, []).array(), data.x)
    found = store_input("labels", stored_features(data, "y"), tmp_path, []).array()
    assert_array_equal(found, data.y)


@pytest.mark.usefixtures("block")
@pytest.mark.parametrize("layout", ["coo", "csr", "csc"])
def test_edges_of_stores_in_every_layout(data: Data, layout: str, tmp_path: Path) -> None:
    source, target = data.edge_index
    own = {"coo": None, "csr": source, "csc": target}[layout]
    order = torch.arange(E) if own is None else own.argsort(stable=True)
    expected = data.edge_index[:, order]
    ends = list(expected)
    if own is not None:
        pointers = torch.zeros(N + 1, dtype=torch.long)
        pointers[1:] = torch.bincount(own, minlength=N).cumsum(0)
        ends[["csr", "csc"].index(layout)] = pointers
    store = MyGraphStore()
    store.put_edge_index(tuple(ends), edge_type=CITES, layout=layout, size=(N, N))
    cases = (stored_edges(store), stored_edges(store, edge_type=CITES, layout=layout, size=(N, N)))
    for edges in cases:
        assert edges.shape == (2, E)
        assert_array_equal(store_input("edges", edges, tmp_path, []).array(), expected)


@pytest.mark.usefixtures("shared_workers")
def test_a_job_from_stores_is_that_of_their_tensors(data: Data, tmp_path: Path) -> None:
    job = Job(
        tmp_path,
        features=stored_features(data, attr_name="x"),
        edges=stored_edges(data),
        labels=stored_features(data, attr_name="y"),
        k=2,
        nlist=2,
        pairs=0,
    )
    job.run(workers=1)
    assert_array_equal(np.concatenate([*job.vectors()]), cfe.ks_vectors(data.x, data.edge_index))


def test_missing_and_mismatched_tensors(data: Data) -> None:
    hetero, store = HeteroData(), MyGraphStore()
    with pytest.raises(KeyError, match="no tensor"):
        stored_features(hetero, "paper", "x")
    with pytest.raises(ValueError, match="one of 0 kinds of edges"):
        stored_edges(store)
    with pytest.raises(KeyError, match="not found"):
        stored_edges(data, layout="csc")
    hetero["paper", "by", "author"].edge_index = data.edge_index
    with pytest.raises(ValueError, match="edges must join nodes of one type, got"):
        stored_edges(hetero)
    store.put_edge_index(
        (torch.tensor([0, 1]), torch.tensor([0, 1])), edge_type=CITES, layout="csr", size=(1, 1)
    )
    with pytest.raises(ValueError, match=r"pointers must end with the number of indices"):
        stored_edges(store)
    store = MyGraphStore()
    store.put_edge_index(
        (torch.tensor([0, 1]), torch.tensor([0])), edge_type=CITES, layout="coo", size=(2, 2)
    )
    with pytest.raises(ValueError, match=r"two .*got shapes \(2,\) and \(1,\)"):
        stored_edges(store)


@pytest.mark.usefixtures("block")
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_tensors_in_other_layouts_and_types(data: Data, tmp_path: Path) -> None:
    x = data.x
    for tensor in (x.t(), x[:, 1], x.half(), x[::3], x.clone().requires_grad_(), torch.zeros(0, 3)):
        assert_array_equal(store_input("features", tensor, tmp_path, []).array(), tensor.detach())
    with pytest.raises(TypeError, match=r"features .*got a tensor of layout torch\.sparse_csr"):
        store_input("features", x.to_sparse_csr(), tmp_path, [])
    found = store_input("features", x.bfloat16(), tmp_path, []).array()
    assert_array_equal(found, x.bfloat16().float())
    with pytest.raises(TypeError, match=r"features .*got Tensor: .*Float8"):
        store_input("features", x.to(torch.float8_e4m3fn), tmp_path, [])
    with pytest.raises(TypeError, match=r"features .*got dtype complex64"):
        store_input("features", x.to(torch.complex64), tmp_path, [])
    with pytest.raises((TypeError, ValueError), match="features must be"):
        store_input("features", data, tmp_path, [])
    assert {path.suffix for path in tmp_path.iterdir()} == {".npy"}


def own_memory() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon"))


@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="memory is measured where /proc is"
)
@pytest.mark.parametrize("kind", ["from_file", "load"])
def test_a_mapped_tensor_is_never_in_memory_as_a_whole(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 40 MB, which the C library always maps, so freed memory is not used again.
    x = torch.arange(10 << 20, dtype=torch.float32).view(-1, 64)
    if kind == "from_file":
        x.numpy().tofile(tmp_path / "x.bin")
        source = torch.from_file(str(tmp_path / "x.bin"), shared=True, size=x.numel()).view(-1, 64)
    else:
        torch.save(Data(x=x), tmp_path / "x.pt")
        source = torch.load(tmp_path / "x.pt", mmap=True, weights_only=False)["x"]
    monkeypatch.setattr(job_files, "_BLOCK", 1 << 20)
    before, peak, done = own_memory(), 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.001):
            peak = max(peak, own_memory())

    thread = threading.Thread(target=watch)
    thread.start()
    kept = store_input("features", source, tmp_path, [])
    done.set()
    thread.join()
    assert 0 < peak < before + (20 << 20)
    assert_array_equal(kept.array(), x)
