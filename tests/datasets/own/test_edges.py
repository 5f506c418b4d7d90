import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse

from cfe_faiss.data.columns import Table
from cfe_faiss.data.roles import Ids, Source
from cfe_faiss.datasets.own import read_edges
from cfe_faiss.graph.csr import nearest_neighbours

TEXTS = Ids.of_column(Table("f.csv", pd.DataFrame({"id": ["a", "b", "c"]}), is_text=True), "id")
NUMBERS = Ids.of_column(
    Table("f.csv", pd.DataFrame({"id": ["10", "20", "30"]}), is_text=True), "id"
)
ROWS = Ids.of_rows(3)


def source(folder, text, *columns, name="e.csv"):
    (folder / name).write_text(text)
    return Source(folder / name, columns)


@pytest.mark.parametrize(
    ("text", "columns", "name", "ids"),
    [
        ("from,to\na,b\nc,a\n", (), "e.csv", TEXTS),
        ("w,to,from\n1,b,a\n1,a,c\n", ("from", "to"), "e.csv", TEXTS),
        ("a b\nc a\n", (), "e.txt", TEXTS),
        ("10,20\n30,10\n", (), "e.csv", NUMBERS),
        ("from,to\n10,20\n30,10\n", (), "e.csv", NUMBERS),
        ("0,1\n2,0\n", (), "e.csv", ROWS),
        ("0.0,1.0\n2.0,0.0\n", (), "e.csv", ROWS),
        ("# from to\n0 1.0\n2 0\n", (), "e.txt", ROWS),
        ("# from to\na b\nc a\n", (), "e.txt", TEXTS),
        ("from;to\n0;1\n2;0\n", (), "e.csv", ROWS),
    ],
)
def test_edge_lists(tmp_path, text, columns, name, ids):
    assert read_edges(source(tmp_path, text, *columns, name=name), ids).tolist() == [[0, 2], [1, 0]]


@pytest.mark.parametrize("ids", [TEXTS, ROWS])
def test_no_edges(tmp_path, ids):
    assert read_edges(source(tmp_path, "from,to\n"), ids).shape == (2, 0)
    pq.write_table(
        pa.table({"from": pa.array([], pa.string()), "to": pa.array([], pa.string())}),
        tmp_path / "e.parquet",
    )
    assert read_edges(Source(tmp_path / "e.parquet"), ids).shape == (2, 0)
    with pytest.raises(ValueError, match=r"e\.csv must hold a table, got an empty file"):
        read_edges(source(tmp_path, ""), ids)


def test_arrays(tmp_path):
    np.save(tmp_path / "e.npy", [[0, 2], [1, 0]])
    assert read_edges(Source(tmp_path / "e.npy"), ROWS).tolist() == [[0, 2], [1, 0]]
    scipy.sparse.save_npz(tmp_path / "e.npz", scipy.sparse.eye_array(3, format="csr"))
    assert read_edges(Source(tmp_path / "e.npz"), ROWS).shape == (3, 3)
    with pytest.raises(ValueError, match=r"must be \.csv, \.parquet or \.txt where nodes have ids"):
        read_edges(Source(tmp_path / "e.npy"), TEXTS)


@pytest.mark.parametrize(
    ("text", "columns", "expected"),
    [
        ("from,to\na,b\nc,x\n", (), r"e\.csv, line 3: to must be the id of a node, got 'x'"),
        ("from,to\na,b\nc,\n", (), "line 3: to must be the id of a node, got none"),
        ("a,b\nb,c\n", (), "must begin with a header, the names of its columns, got node 'a'"),
        ("from,to,w\na,b,1\n", (), r"must hold two columns of nodes, got 3 \(from, to, w\)"),
        ("from,to,w\na,b,1\n", ("from",), "must hold two columns of nodes, got 1"),
        ("from,to\na,b\n", ("from", "for"), "must name a column of .*got 'for'"),
    ],
)
def test_errors(tmp_path, text, columns, expected):
    with pytest.raises(ValueError, match=expected):
        read_edges(source(tmp_path, text, *columns), TEXTS)


def test_nearest_neighbours():
    x = np.array([[0], [1], [3], [7]], np.float32)
    assert nearest_neighbours(x, 1).tolist() == [[0, 1, 2, 3], [1, 0, 1, 2]]
    for k in (0, 4):
        with pytest.raises(ValueError, match="neighbours must be"):
            nearest_neighbours(x, k)
