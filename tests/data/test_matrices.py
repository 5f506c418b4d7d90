import re

import numpy as np
import pytest
import scipy.sparse

from cfe_faiss.data.read import read_graph, read_matrix

MATRIX = np.array([[1.5, -2.0], [3e-5, 4.0], [0.0, 1e10]])
PAIRS = np.array([[0, 1], [1, 2], [2, 0], [2, 3]])


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.csv", "1.5,-2\n3e-5,4\n0,1e10\n"),
        ("x.csv", "height,weight\n1.5, -2\n3e-5, 4\n0, 1e10"),
        ("x.csv", "\ufeff1.5,-2\r\n3e-5,4\r\n0,1e10\r\n"),
        ("x.txt", "1.5 -2\n3e-5\t4\n0  1e10\n"),
    ],
)
def test_matrix_from_text(tmp_path, name, text):
    np.testing.assert_array_equal(read_matrix(write(tmp_path / name, text)), MATRIX)


def test_matrix_from_npy_is_mapped_not_read(tmp_path):
    np.save(tmp_path / "x.npy", MATRIX)
    read = read_matrix(tmp_path / "x.npy")
    assert isinstance(read, np.memmap)
    np.testing.assert_array_equal(read, MATRIX)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("e.txt", "0 1\n1 2\n2 0\n2 3\n"),
        ("e.txt", "0.0 1.0\n1.000000000000000000e+00 2\n2 0\n2 3\n"),
        ("e.csv", "source,target\n0,1\n1,2\n2,0\n2,3\n"),
    ],
)
def test_graph_from_text_has_an_edge_per_line(tmp_path, name, text):
    edges = read_graph(write(tmp_path / name, text))
    assert edges.dtype == np.int64
    np.testing.assert_array_equal(edges, PAIRS.T)


def test_graph_from_npy_is_an_edge_index(tmp_path):
    np.save(tmp_path / "e.npy", PAIRS.T)
    np.testing.assert_array_equal(read_graph(tmp_path / "e.npy"), PAIRS.T)


def test_graph_from_npz_is_a_sparse_matrix(tmp_path):
    matrix = scipy.sparse.coo_matrix((np.ones(4), PAIRS.T), shape=(4, 4)).tocsr()
    scipy.sparse.save_npz(tmp_path / "e.npz", matrix)
    assert (read_graph(tmp_path / "e.npz") != matrix).nnz == 0


@pytest.mark.parametrize(
    ("read", "name", "text", "expected"),
    [
        (read_matrix, "x.xlsx", "", r"must be a file of the kind \.npy, \.csv or \.txt"),
        (read_matrix, "x.csv", "", "must hold a table, got an empty file"),
        (read_matrix, "x.csv", "a,b\n", "must hold a row below its header"),
        (read_matrix, "x.csv", "1,2\n3\n4,5\n", "lines have 2 fields, but line 2 has 1"),
        (read_matrix, "x.csv", "a,b\n1,2\nx,4\n", "must hold numbers, below one header line"),
        (read_matrix, "x.npy", "1,2\n", "must be a NumPy array of numbers"),
        (read_matrix, "x.npy", "", "must be a NumPy array of numbers"),
        (read_graph, "e.npz", "0 1\n", "must be a matrix that scipy.sparse.save_npz wrote"),
        (read_graph, "e.txt", "0 1 7\n", "must hold two node numbers per line, got 3 columns"),
        (read_graph, "e.txt", "0 1.5\n", "must hold whole numbers, got 1.5"),
        (read_graph, "e.txt", "0 nan\n", "must hold whole numbers, got nan"),
    ],
)
@pytest.mark.filterwarnings("ignore::cfe_faiss.InputWarning")
def test_faults_name_the_file(tmp_path, read, name, text, expected):
    path = write(tmp_path / name, text)
    with pytest.raises(ValueError, match=f"{re.escape(str(path))}.* {expected}"):
        read(path)


def test_pickles_are_not_opened(tmp_path):
    np.save(tmp_path / "x.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="must be a NumPy array of numbers"):
        read_matrix(tmp_path / "x.npy")


def test_missing_file(tmp_path):
    for read, name in ((read_matrix, "x.npy"), (read_matrix, "x.csv"), (read_graph, "e.npz")):
        with pytest.raises(FileNotFoundError):
            read(tmp_path / name)
