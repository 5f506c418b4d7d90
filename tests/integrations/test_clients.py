"""Evidence indexes in programs that take indexes of FAISS, imported before and after this package."""

import importlib.util
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

COMMON = """
import numpy as np
X = np.random.default_rng(0).normal(size=(60, 8)).astype("f4")
X /= np.linalg.norm(X, axis=1, keepdims=True)
y = np.arange(60) % 3
"""

DATASETS = """
import os
os.environ["HF_HUB_OFFLINE"] = "1"
CLIENT_OR_CFE: import datasets
table = datasets.Dataset.from_dict({"v": X.tolist(), "y": y.tolist()})
for make in (lambda: cfe.IndexEvidenceFlat(8, "ip"), lambda: ivf()):
    index = make()
    table.add_faiss_index("v", custom_index=index)
    index.relabel(y, np.arange(60))
    params = cfe.EvidenceParameters(labels=int(y[5]), **({"exact": True} if index.has_lists else {}))
    scores, found = table.get_nearest_examples("v", X[5], k=4, params=params)
    assert set(found["y"]) <= {0, 1}, found["y"]
    effort = {"exact": True} if index.has_lists else {}
    assert np.allclose(scores, index.search_evidence(X[5:6], y[5:6], 4, **effort)[0])
    path = os.path.join(folder, "index")
    table.save_faiss_index("v", path)
    table.drop_index("v")
    table.load_faiss_index("v", path)
    assert table.get_nearest_examples("v", X[5], k=1)[1]["y"] == [y[5]]
    table.drop_index("v")
    cfe.register()
    again = make()
    table.add_faiss_index("v", custom_index=again)
    again.relabel(y, np.arange(60))
    table.save_faiss_index("v", path)
    table.drop_index("v")
    table.load_faiss_index("v", path)
    assert set(table.get_nearest_examples("v", X[5], k=4, params=params)[1]["y"]) <= {0, 1}
    table.drop_index("v")
    cfe.unregister()
"""

PYG = """
CLIENT_OR_CFE: from torch_geometric.nn.pool import KNNIndex
import faiss, torch
class Evidence(KNNIndex):
    def _create_index(self, channels):
        return cfe.IndexEvidenceFlat(channels, "l2")
x = torch.from_numpy(X)
index, stock = Evidence(), KNNIndex("Flat")
for one in (index, stock):
    one.add(x)
for links in (None, torch.tensor([[0, 1], [0, 1]])):
    found, expected = (one.search(x[:5], 3, exclude_links=links) for one in (index, stock))
    assert torch.equal(found.index, expected.index)
    assert torch.allclose(found.score, expected.score)
index.index.relabel(y)
assert index.index.search_evidence(X[:2], y[:2], 2)[1].shape == (2, 2)
cfe.register()
named = KNNIndex("EvidenceFlat", x)
assert isinstance(named.index, cfe.IndexEvidenceFlat)
assert torch.equal(named.search(x[:5], 3).index, stock.search(x[:5], 3).index)
cfe.unregister()
"""

METRIC_LEARNING = """
CLIENT_OR_CFE: from pytorch_metric_learning.utils.inference import FaissKNN
import torch
x = torch.from_numpy(X)
ours, theirs = FaissKNN(index_init_fn=lambda d: cfe.IndexEvidenceFlat(d, "l2")), FaissKNN()
for same in (False, True):
    found, expected = (knn(x[:9], 3, x, same) for knn in (ours, theirs))
    assert torch.equal(found[1], expected[1])
    assert torch.allclose(found[0], expected[0])
"""

LANGCHAIN = """
CLIENT_OR_CFE: from langchain_community.vectorstores import FAISS
from langchain_community.docstore.in_memory import InMemoryDocstore
from langchain_core.embeddings import Embeddings
import faiss
class Rows(Embeddings):
    def embed_documents(self, texts):
        return [X[int(text)].tolist() for text in texts]
    def embed_query(self, text):
        return X[int(text)].tolist()
store = FAISS(Rows(), cfe.IndexEvidenceFlat(8, "l2"), InMemoryDocstore(), {})
store.add_texts([str(row) for row in range(40)], ids=[str(row) for row in range(40)])
assert store.delete(["1", "7", "30"])
store.add_texts(["45", "46"], ids=["45", "46"])
left = [row for row in range(40) if row not in (1, 7, 30)] + [45, 46]
for row in range(0, 40, 3):
    expected = sorted(left, key=lambda other: np.square(X[other] - X[row]).sum())[:5]
    assert [int(d.page_content) for d in store.similarity_search(str(row), k=5)] == expected
store.save_local(folder)
again = FAISS.load_local(folder, Rows(), allow_dangerous_deserialization=True)
assert [d.page_content for d in again.similarity_search("46", k=1)] == ["46"]
"""

TXTAI = """
cfe.register()
import txtai
from txtai.ann import ANNFactory
for components, cls in (("IDMap2,EvidenceFlat", cfe.IndexEvidenceIDMap2), ("EvidenceIVF4,Flat", cfe.IndexEvidenceIVF)):
    config = {"backend": "faiss", "dimensions": 8, "faiss": {"components": components, "nprobe": 4}}
    ann = ANNFactory.create(config)
    ann.index(X[:50])
    ann.append(X[50:])
    ann.delete([3, 4])
    assert type(ann.backend) is cls, ann.backend
    assert ann.count() == 58
    assert ann.search(X[7:8], 1)[0][0][0] == 7
    ann.backend.relabel(y[np.delete(np.arange(60), [3, 4])])
    path = os.path.join(folder, "ann")
    ann.save(path)
    again = ANNFactory.create(config)
    again.load(path)
    assert type(again.backend) is cls
    found = again.backend.search_evidence(X[7:8], y[7:8], 3)[1]
    assert (y[found] != y[7]).all()
"""

HAYSTACK = """
os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"
CLIENT_OR_CFE: from haystack_integrations.document_stores.faiss import FAISSDocumentStore
from haystack import Document
cfe.register()
stores = []
for description in ("EvidenceFlat", "Flat"):
    store = FAISSDocumentStore(index_string=description, embedding_dim=8)
    store.write_documents([Document(id=str(row), content=str(row), embedding=X[row].tolist()) for row in range(40)])
    store.delete_documents(["3", "9"])
    stores.append(store)
for row in (5, 9, 39):
    found, expected = ([one.id for one in store.search(X[row].tolist(), top_k=4)] for store in stores)
    assert found == expected, (found, expected)
stores[0].save(os.path.join(folder, "store"))
again = FAISSDocumentStore(index_path=os.path.join(folder, "store"), index_string="EvidenceFlat", embedding_dim=8)
found, expected = ([one.id for one in store.search(X[5].tolist(), top_k=4)] for store in (again, stores[0]))
assert found == expected
"""

CLIENTS = {
    "datasets": ("datasets", DATASETS),
    "torch_geometric": ("torch_geometric", PYG),
    "pytorch_metric_learning": ("pytorch_metric_learning", METRIC_LEARNING),
    "langchain_community": ("langchain_community", LANGCHAIN),
    "haystack": ("haystack_integrations.document_stores.faiss", HAYSTACK),
}


def run(code: str, folder: Path) -> None:
    head = f"import os, warnings\nfolder = {str(folder)!r}\n"
    command = [sys.executable, "-c", head + textwrap.dedent(code) + "\nprint('done')"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=folder)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "done" in done.stdout


def need(module: str) -> None:
    try:
        found = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        found = None
    if found is None:
        pytest.skip(f"{module} is not installed")


@pytest.mark.parametrize("first", ["cfe_faiss", pytest.param("client", marks=pytest.mark.slow)])
@pytest.mark.parametrize("client", CLIENTS)
def test_clients_in_both_orders_of_imports(client: str, first: str, tmp_path: Path) -> None:
    module, code = CLIENTS[client]
    need(module)
    ours, marker = "import cfe_faiss as cfe", "CLIENT_OR_CFE: "
    line = next(line for line in code.splitlines() if line.startswith(marker))
    theirs = line.removeprefix(marker)
    lines = f"{theirs}\n{ours}" if first == "client" else f"{ours}\n{theirs}"
    helpers = """
def ivf():
    index = cfe.index_factory(8, "EvidenceIVF4,Flat", "ip")
    index.train(X)
    return index
"""
    run(COMMON + helpers + code.replace(line, lines), tmp_path)


def test_txtai_after_registration(tmp_path: Path) -> None:
    need("txtai")
    run("import cfe_faiss as cfe\n" + COMMON + TXTAI, tmp_path)
