"""Data sets: real files where they are, small generated ones of the same formats, and nothing written into the root."""

import functools
import http.server
import json
import pickle
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer

from cfe_faiss.datasets import NAMES, SOURCES, graphs, load
from cfe_faiss.datasets.graphs import split_masks

UNREACHABLE = "http://127.0.0.1:9"


def listing(root):
    return sorted(
        (str(path.relative_to(root)), path.lstat().st_mtime_ns) for path in root.rglob("*")
    )


def undirected_pairs(data):
    source, target = data.edge_index.tolist()
    return {(a, b) for a, b in zip(source, target, strict=True) if a < b}


def check_complete(data):
    n, d = data.x.shape
    for x in (data.x, data.x_raw):
        assert (x.shape, str(x.dtype)) == ((n, d), "torch.float32")
        assert bool(x.isfinite().all())
    assert len(data.feature_names) == d
    assert len(set(data.feature_names)) == d
    assert (data.y.shape, str(data.y.dtype)) == ((n,), "torch.int64")
    assert int(data.y.min()) >= 0
    assert int(data.y.max()) < len(data.class_names)
    assert str(data.edge_index.dtype) == "torch.int64"
    assert data.is_undirected()
    assert int((data.train_mask.int() + data.val_mask.int() + data.test_mask.int()).min()) == 1
    assert data.validate()


def check_simple_graph(data):
    assert not data.has_self_loops()
    assert data.is_coalesced()


# ---------------------------------------------------------------- real files


@pytest.mark.parametrize(
    ("name", "n", "d", "edges", "classes"),
    [
        ("german", 1000, 27, 2 * 21_742, 2),
        ("bail", 18_876, 18, 2 * 311_870, 2),
        ("cora", 2708, 1433, 10_556, 7),
        ("facebook", 22_470, 128, 342_004, 4),
    ],
)
def test_real_graphs_have_the_papers_counts_and_leave_the_root_alone(
    data_root, monkeypatch, name, n, d, edges, classes
):
    before = listing(data_root)
    monkeypatch.setenv("CFE_DATA", str(data_root))
    data = load(name)
    assert listing(data_root) == before
    assert data.name == name
    assert tuple(data.x.shape) == (n, d)
    assert data.edge_index.shape[1] == edges
    assert len(data.class_names) == classes == int(data.y.max()) + 1
    check_complete(data)


def test_german_columns(data_root):
    data = load("german", data_root)
    assert "GoodCustomer" not in data.feature_names
    assert not {"PurposeOfLoan", "OtherLoansAtStore"} & set(data.feature_names)
    assert data.y.bincount().tolist() == [300, 700]
    assert data.class_names[1] == "good customer"
    assert data.sensitive_name == "Gender"
    # The first client of the file: a man of 67 who borrows 1169 for 6 months and pays back; the second a woman of 22.
    first = dict(zip(data.feature_names, data.x_raw[0].tolist(), strict=True))
    expected = (0, 67, 1169, 6)
    assert (first["Gender"], first["Age"], first["LoanAmount"], first["LoanDuration"]) == expected
    assert data.y[:2].tolist() == [1, 0]
    assert data.sensitive[:2].tolist() == [0, 1]
    assert data.sensitive.tolist() == data.x_raw[:, data.feature_names.index("Gender")].tolist()
    assert data.x.min(dim=0).values.tolist() == [0.0] * 27
    assert data.x.max(dim=0).values.tolist() == [1.0] * 27


def test_bail_columns(data_root):
    data = load("bail", data_root)
    assert "RECID" not in data.feature_names
    assert data.sensitive_name == "WHITE"
    assert set(data.sensitive.tolist()) == {0, 1}
    first = dict(zip(data.feature_names, data.x_raw[0].tolist(), strict=True))
    assert (first["WHITE"], first["SCHOOL"], first["RULE"], first["AGE"]) == (1, 8, 0, 671)


# ---------------------------------------------------------------- patients


def test_patients():
    data = load("patients", root="nowhere")
    table = load_breast_cancer()
    check_complete(data)
    check_simple_graph(data)
    np.testing.assert_array_equal(data.x_raw.numpy(), table.data.astype(np.float32))
    np.testing.assert_array_equal(data.y.numpy(), table.target)
    assert data.feature_names == list(table.feature_names)
    np.testing.assert_allclose(data.x.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(data.x.std(0, unbiased=False), 1, atol=1e-5)


def test_patients_are_joined_to_their_nearest():
    data = load("patients")
    table = load_breast_cancer().data
    z = (table - table.mean(0)) / table.std(0)
    distances = ((z[:, None] - z[None]) ** 2).sum(2)
    np.fill_diagonal(distances, np.inf)
    nearest = np.argsort(distances, axis=1)[:, :5]
    expected = {(min(v, u), max(v, u)) for v, row in enumerate(nearest.tolist()) for u in row}
    assert undirected_pairs(data) == expected


# ---------------------------------------------------------------- NIFTY's formats

GERMAN_CSV = """\
GoodCustomer,Gender,Age,PurposeOfLoan,LoanAmount,OtherLoansAtStore,Constant
1,Male,20,Electronics,1000,0,7
-1,Female,30,Car,3000,0,7
1,Female,40,Car,2000,0,7
1,Male,60,Business,5000,0,7
"""
PAIRS = [(0, 1), (1, 0), (0, 1), (2, 2), (3, 1)]


@pytest.fixture
def german_root(tmp_path):
    folder = tmp_path / "nifty" / "german"
    folder.mkdir(parents=True)
    (folder / "german.csv").write_text(GERMAN_CSV)
    np.savetxt(folder / "german_edges.txt", PAIRS, fmt="%d")
    return tmp_path


@pytest.mark.parametrize("fmt", ["%d", "%.1f", "%.18e"])
def test_nifty_files_with_integers_and_floats(german_root, fmt):
    np.savetxt(german_root / "nifty/german/german_edges.txt", PAIRS, fmt=fmt)
    before = listing(german_root)
    data = load("german", german_root)
    assert listing(german_root) == before
    check_complete(data)
    check_simple_graph(data)
    assert data.feature_names == ["Gender", "Age", "LoanAmount", "Constant"]
    expected = [[0, 20, 1000, 7], [1, 30, 3000, 7], [1, 40, 2000, 7], [0, 60, 5000, 7]]
    assert data.x_raw.tolist() == expected
    assert data.x.tolist() == [[0, 0, 0, 0], [1, 0.25, 0.5, 0], [1, 0.5, 0.25, 0], [0, 1, 1, 0]]
    assert data.y.tolist() == [1, 0, 1, 1]
    assert data.sensitive.tolist() == [0, 1, 1, 0]
    assert data.edge_index.tolist() == [[0, 1, 1, 3], [1, 0, 3, 1]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0 1\n0 4\n", r"0\.\.3 on every line, got \[0\.0, 4\.0\] in line 2"),
        ("0 -1\n", r"got \[0\.0, -1\.0\] in line 1"),
        ("0 1\n1 1.5\n", r"got \[1\.0, 1\.5\] in line 2"),
        ("0 1 2\n", "got 3 columns"),
        ("0 1\n2\n", "in line 2"),
        ("0 one\n", "german_edges.txt must hold two node numbers"),
        ("", "german_edges.txt must hold two node numbers"),
    ],
)
def test_wrong_edges(german_root, text, message):
    (german_root / "nifty/german/german_edges.txt").write_text(text)
    with pytest.raises(ValueError, match=message):
        load("german", german_root)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("GoodCustomer", "Customer", "german.csv must have the columns \\['GoodCustomer'\\]"),
        ("Gender", "Sex", "german.csv must have the columns \\['Gender'\\]"),
        ("Female,30", "Unknown,30", "german.csv must be finite.*row 1"),
        ("3000", "", "german.csv must be finite.*row 1"),
    ],
)
def test_wrong_table(german_root, old, new, message):
    (german_root / "nifty/german/german.csv").write_text(GERMAN_CSV.replace(old, new))
    with pytest.raises(ValueError, match=message):
        load("german", german_root)


def test_missing_nifty_files(german_root):
    (german_root / "nifty/german/german_edges.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"not there: german_edges\.txt") as error:
        load("german", german_root)
    cases = ("german.csv, german_edges.txt", str(german_root / "nifty/german"), "NIFTY", "CFE_DATA")
    for part in cases:
        assert part in str(error.value)


# ---------------------------------------------------------------- PyG's formats and downloads


N = 510  # PyG's reader takes it that 500 nodes follow the labelled ones.


def write_planetoid(raw, prefix):
    """Write a path of N nodes as Planetoid publishes it: the last two are test nodes, stored in swapped order."""
    raw.mkdir(parents=True)
    x = sp.csr_matrix(np.arange(3 * N, dtype=np.float32).reshape(N, 3))
    y = np.eye(3)[np.arange(N) % 3]
    graph = {v: [u for u in (v - 1, v + 1) if 0 <= u < N] for v in range(N)}
    graph[0] += [0, 1]
    parts = {"x": x[:2], "y": y[:2], "allx": x[:-2], "ally": y[:-2]}
    parts |= {"tx": x[-2:], "ty": y[-2:], "graph": graph}
    for part, value in parts.items():
        (raw / f"ind.{prefix}.{part}").write_bytes(pickle.dumps(value))
    (raw / f"ind.{prefix}.test.index").write_text(f"{N - 1}\n{N - 2}\n")


def write_amazon(raw):
    raw.mkdir(parents=True)
    adjacency = sp.csr_matrix(np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]], dtype=bool))
    parts = {name: getattr(adjacency, name) for name in ("data", "indices", "indptr", "shape")}
    np.savez(raw / "adj_full.npz", **parts)
    np.save(raw / "feats.npy", np.eye(3, 2))
    (raw / "class_map.json").write_text(
        json.dumps({"0": [0, 1, 1, 0], "1": [1, 0, 0, 1], "2": [0, 0, 0, 1]})
    )
    (raw / "role.json").write_text(json.dumps({"tr": [0], "va": [1], "te": [2]}))


def test_pubmed_files(tmp_path):
    write_planetoid(tmp_path / "planetoid/PubMed/raw", "pubmed")
    before = listing(tmp_path)
    data = load("pubmed", tmp_path)
    assert listing(tmp_path) == before
    check_complete(data)
    order = [*range(N - 2), N - 1, N - 2]
    assert data.x[:, 0].tolist() == [3 * v for v in order]
    assert data.y.tolist() == [v % 3 for v in order]
    assert undirected_pairs(data) == {(v, v + 1) for v in range(N - 1)}
    assert data.edge_index.shape[1] == 2 * (N - 1)
    assert data.class_names == ["class 0", "class 1", "class 2"]


def test_amazon_takes_the_first_of_several_labels(tmp_path):
    write_amazon(tmp_path / "AmazonProducts/raw")
    before = listing(tmp_path)
    data = load("amazon", tmp_path)
    assert listing(tmp_path) == before
    check_complete(data)
    assert data.y.tolist() == [1, 0, 3]
    assert len(data.class_names) == 4
    assert data.feature_names == ["feature_0", "feature_1"]


@pytest.mark.parametrize("name", ["cora", "pubmed", "facebook", "amazon"])
def test_missing_files_without_a_network(tmp_path, monkeypatch, name):
    monkeypatch.setattr(graphs.Planetoid, "url", UNREACHABLE)
    monkeypatch.setattr(graphs.FacebookPagePage, "url", f"{UNREACHABLE}/facebook.npz")
    # The address of PyG's Google downloads is fixed, so this one meets a proxy that is not there.
    monkeypatch.setenv("https_proxy", UNREACHABLE)
    root = tmp_path / "root"
    with pytest.raises(FileNotFoundError, match="The download failed") as error:
        load(name, root)
    source = SOURCES[name]
    for part in (*source["files"], str(root / source["folder"]), source["origin"]):
        assert part in str(error.value)
    assert not root.exists()


@pytest.fixture
def website(tmp_path):
    """A folder, and the address of a server that publishes it."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format, *args):  # noqa: A002
            pass

    folder = tmp_path / "website"
    folder.mkdir()
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder))
    )
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_download_keeps_the_raw_files_only(tmp_path, monkeypatch, website):
    folder, address = website
    write_planetoid(folder / "data", "cora")
    monkeypatch.setattr(graphs.Planetoid, "url", f"{address}/data")
    root = tmp_path / "root"
    kept = root / "planetoid/Cora/raw/ind.cora.graph"
    kept.parent.mkdir(parents=True)
    shutil.copy(folder / "data/ind.cora.graph", kept)
    before = kept.stat()
    assert load("cora", root).num_nodes == N
    expected = sorted(SOURCES["cora"]["files"])
    assert sorted(path.name for path in root.rglob("*") if path.is_file()) == expected
    assert sorted(path.name for path in kept.parent.parent.iterdir()) == ["raw"]
    assert (kept.stat().st_ino, kept.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    shutil.rmtree(folder / "data")
    assert load("cora", root).num_nodes == N


def test_a_download_that_is_not_the_data_leaves_nothing(tmp_path, monkeypatch, website):
    folder, address = website
    (folder / "facebook.npz").write_text("<html>Please log in</html>")
    monkeypatch.setattr(graphs.FacebookPagePage, "url", f"{address}/facebook.npz")
    root = tmp_path / "root"
    with pytest.raises(FileNotFoundError, match="The download failed"):
        load("facebook", root)
    assert not root.exists()


def test_damaged_files(tmp_path):
    write_planetoid(tmp_path / "planetoid/Cora/raw", "cora")
    (tmp_path / "planetoid/Cora/raw/ind.cora.tx").write_bytes(b"")
    with pytest.raises(ValueError, match=r"PyG cannot read .*ind\.cora\.tx.* in .*raw: EOFError"):
        load("cora", tmp_path)


# ---------------------------------------------------------------- masks


@given(classes=st.lists(st.integers(0, 4), min_size=1, max_size=60), seed=st.integers(0, 2**32))
def test_masks_split_every_class_in_half_and_quarters(classes, seed):
    y = np.array(classes)
    train, val, test = (mask.numpy() for mask in split_masks(y, seed))
    assert (train.astype(int) + val + test == 1).all()
    for c in np.unique(y):
        size = (y == c).sum()
        parts = [int((mask & (y == c)).sum()) for mask in (train, val, test)]
        assert abs(parts[0] - size / 2) <= 0.5
        assert abs(parts[1] - size / 4) < 1
        assert abs(parts[2] - size / 4) < 1
        assert parts[0] > 0
        assert size < 3 or min(parts) > 0


def test_masks_follow_the_seed_alone():
    import torch

    y = np.arange(1000) % 3
    torch.manual_seed(3)
    np.random.seed(3)  # noqa: NPY002 - the global state is what must not matter
    before, before_numpy = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    first = split_masks(y, 1)
    assert bool((torch.get_rng_state() == before).all())
    assert (np.random.get_state()[1] == before_numpy).all()  # noqa: NPY002
    torch.manual_seed(4)
    again, other = split_masks(y, 1), split_masks(y, 2)
    assert all(bool((a == b).all()) for a, b in zip(first, again, strict=True))
    assert all(bool((a != b).any()) for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize(
    ("y", "seed", "error"), [([0.5], 0, TypeError), ([-1], 0, ValueError), ([0], -1, ValueError)]
)
def test_wrong_labels_and_seeds(y, seed, error):
    with pytest.raises(error):
        split_masks(y, seed)


# ---------------------------------------------------------------- names and imports


def test_an_unknown_name_gets_the_known_ones():
    with pytest.raises(ValueError, match="citeseer") as error:
        load("citeseer")
    assert all(name in str(error.value) for name in NAMES)


def test_a_wrong_seed_is_refused_before_anything_is_read():
    with pytest.raises(ValueError, match="seed must be at least 0, got -1"):
        load("cora", root="nowhere", seed=-1)


def test_importing_the_names_loads_no_torch():
    code = "import sys; from cfe_faiss.datasets import NAMES; print({'torch', 'pandas'} & {*sys.modules})"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (result.stdout, result.stderr) == ("set()\n", "")


def test_the_default_root_is_data_in_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.delenv("CFE_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=str(Path("data/nifty/bail"))):
        load("bail")
