import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse

from cfe_faiss.data.columns import Table
from cfe_faiss.data.roles import Ids, Source
from cfe_faiss.datasets.own import read_edges, read_nodes, read_split
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
    nobody = pa.array([], pa.string())
    pq.write_table(pa.table({"from": nobody, "to": nobody}), tmp_path / "e.parquet")
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


# --- nodes and splits -----------------------------------------------------------------------------------------------


FOUR = Ids.of_column(Table("f.csv", pd.DataFrame({"id": ["a", "b", "c", "d"]}), is_text=True), "id")
FOUR_ROWS = Ids.of_rows(4)


@pytest.mark.parametrize(
    ("text", "columns", "name", "ids", "expected"),
    [
        ("id,test\nd,1\na,0\nb,1\nc,0\n", (), "e.csv", FOUR, [1, 3]),
        ("id,x,test\nd,5,TRUE\na,5,false\nb,5,yes\nc,5,No\n", ("test",), "e.csv", FOUR, [1, 3]),
        ("id\nd\nb\n", (), "e.csv", FOUR, [3, 1]),
        ("test\n0\n1\n1\n0\n", (), "e.csv", FOUR_ROWS, [1, 2]),
        ("0\n1\n1\n0\n", (), "e.txt", FOUR_ROWS, [1, 2]),
        ("3\n1\n", (), "e.txt", FOUR_ROWS, [3, 1]),
        ("c\nb\n", (), "e.txt", FOUR, [2, 1]),
    ],
)
def test_masks_and_lists(tmp_path, text, columns, name, ids, expected):
    assert read_nodes(source(tmp_path, text, *columns, name=name), ids).tolist() == expected


def test_arrays_of_nodes(tmp_path):
    np.save(tmp_path / "m.npy", [False, True, False, True])
    np.save(tmp_path / "l.npy", [3, 2])
    for ids in (FOUR, FOUR_ROWS):
        assert read_nodes(Source(tmp_path / "m.npy"), ids).tolist() == [1, 3]
    assert read_nodes(Source(tmp_path / "l.npy"), FOUR_ROWS).tolist() == [3, 2]


@pytest.mark.parametrize(
    ("text", "columns", "expected"),
    [
        ("id,test\na,0\nb,0\nc,0\nd,0\n", (), "must hold at least one node, got none"),
        ("id,test\na,0\nb,2\nc,0\nd,0\n", (), "line 3: test must be 0 or 1, got '2'"),
        ("id,test\na,0\nb,1\n", (), "must hold every node, got no row for 2 of 4, such as id 'c'"),
        ("id,x,test\na,0,0\n", (), r"has several columns \(x, test\): name one"),
        ("id\na\nx\n", (), "line 3: id must be the id of a node, got 'x'"),
    ],
)
def test_errors_of_nodes(tmp_path, text, columns, expected):
    with pytest.raises(ValueError, match=expected):
        read_nodes(source(tmp_path, text, *columns), FOUR)


def test_splits(tmp_path):
    train, val, test = read_split(
        source(tmp_path, "id,part\nd,test\nb,Validation\na,train\n"), FOUR
    )
    wanted = ([True, False, False, False], [False, True, False, False], [False, False, False, True])
    assert (train.tolist(), val.tolist(), test.tolist()) == wanted
    for text, expected in (
        ("id,part\na,train\nb,val\nc,hold\n", "line 4: part .*got 'hold'"),
        ("id,part\na,train\nb,val\n", "got none for test"),
        ("id,part,x\na,train,1\n", "must hold one column of train, val and test, got part, x"),
        ("id\na\n", "must hold one column of train, val and test, got none"),
    ):
        with pytest.raises(ValueError, match=expected):
            read_split(source(tmp_path, text), FOUR)
