import faiss
import numpy as np
import pytest
from commands import D, N, assert_same

import cfe_faiss as cfe
from cfe_faiss.datasets import load
from cfe_faiss.models import gcn, predict, train


def graph_index(folder, *, index=None, **options):
    X = cfe.ks_vectors(np.load(folder / "x.npy"), np.load(folder / "e.npy"), **options)
    index = cfe.IndexEvidenceIDMap2(D) if index is None else index
    if not index.is_trained:
        index.train(X)
    index.add_with_labels(X, np.load(folder / "y.npy"))
    return index


def graph_files(folder, features="x.npy", edges="e.npy", classes="y.npy"):
    files = {"features": features, "edges": edges, "predictions": classes}
    return [part for name, file in files.items() for part in (f"--{name}", folder / file)]


@pytest.mark.parametrize("edges", ["e.npy", "e.txt", "e.npz"])
@pytest.mark.parametrize(("features", "classes"), [("x.npy", "y.npy"), ("x.csv", "y.txt")])
def test_build_from_a_graph(folder, tmp_path, output, features, edges, classes):
    out = tmp_path / "graph.cfe"
    files = graph_files(folder, features, edges, classes)
    # A header makes a table, whose numbers are scaled by default.
    files += ["--as-is"] if features == "x.csv" else []
    expected = f"{out}: IndexEvidenceIDMap2(d={D}, ntotal={N}), 4 classes\n"
    assert output("build", out, *files) == expected
    assert_same(out, graph_index(folder))


def test_build_passes_the_options_on(folder, tmp_path, output):
    files = graph_files(folder)
    output("build", tmp_path / "a", *files, "--layers", 1, "--alpha", 0.2, "--directed")
    assert_same(tmp_path / "a", graph_index(folder, num_layers=1, alpha=0.2, directed=True))
    output("build", tmp_path / "b", *files, "--index", "EvidenceIVF7x3,Flat", "--seed", 5)
    index = cfe.index_factory(D, "EvidenceIVF7x3,Flat")
    index.cp.seed = 5
    assert_same(tmp_path / "b", graph_index(folder, index=index))
    output("build", tmp_path / "c", *files, "--index", "paper")
    index = cfe.IndexEvidenceIVF.paper(D)
    index.cp.seed = 0
    assert_same(tmp_path / "c", graph_index(folder, index=index))


def test_build_from_vectors(folder, tmp_path, output):
    index = cfe.IndexEvidenceIDMap2(D)
    index.add_with_labels(np.load(folder / "x.npy"), np.load(folder / "y.npy"))
    for vectors in ("x.npy", "x.csv"):
        files = ("--vectors", folder / vectors, "--predictions", folder / "y.npy")
        output("build", tmp_path / "out", *files)
        assert_same(tmp_path / "out", index)
    assert faiss.read_index(str(tmp_path / "out")).ntotal == N


def test_build_from_a_data_set(tmp_path, output):
    data = load("patients", seed=3)
    model = gcn(data, seed=3)
    train(model, data, seed=3)
    for nodes, searched in (("test", data.test_mask), ("all", None)):
        output("build", tmp_path / "out", "--dataset", "patients", "--nodes", nodes, "--seed", 3)
        expected = cfe.EvidenceFinder.from_data(data, model, nodes=searched).index
        assert_same(tmp_path / "out", expected)

    labels = predict(model, data)
    labels[::7] = 2
    np.save(tmp_path / "y.npy", labels)
    options = ("--dataset", "patients", "--predictions", tmp_path / "y.npy", "--seed", 3)
    output("build", tmp_path / "out", *options)
    expected = cfe.EvidenceFinder.from_data(data, labels, nodes=data.test_mask).index
    assert_same(tmp_path / "out", expected)


def test_build_german(tmp_path, data_root, output):
    np.save(tmp_path / "y.npy", np.arange(1000) % 2)
    options = ("--data-root", data_root, "--predictions", tmp_path / "y.npy", "--index", "paper")
    text = output("build", tmp_path / "out", "--dataset", "german", *options)
    assert text.endswith(
        "IndexEvidenceIVF(d=27, nlist=10, partitions=50, nprobe=1, ntotal=250), 2 classes\n"
    )
