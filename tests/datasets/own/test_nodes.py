import numpy as np
import pandas as pd
import pytest

from cfe_faiss.data.columns import Table
from cfe_faiss.data.roles import Ids, Source
from cfe_faiss.datasets.own import read_nodes, read_split

IDS = Ids.of_column(Table("f.csv", pd.DataFrame({"id": ["a", "b", "c", "d"]}), is_text=True), "id")
ROWS = Ids.of_rows(4)


def source(folder, text, *columns, name="n.csv"):
    (folder / name).write_text(text)
    return Source(folder / name, columns)


@pytest.mark.parametrize(
    ("text", "columns", "name", "ids", "expected"),
    [
        ("id,test\nd,1\na,0\nb,1\nc,0\n", (), "n.csv", IDS, [1, 3]),
        ("id,x,test\nd,5,TRUE\na,5,false\nb,5,yes\nc,5,No\n", ("test",), "n.csv", IDS, [1, 3]),
        ("id\nd\nb\n", (), "n.csv", IDS, [3, 1]),
        ("test\n0\n1\n1\n0\n", (), "n.csv", ROWS, [1, 2]),
        ("0\n1\n1\n0\n", (), "n.txt", ROWS, [1, 2]),
        ("3\n1\n", (), "n.txt", ROWS, [3, 1]),
        ("c\nb\n", (), "n.txt", IDS, [2, 1]),
    ],
)
def test_masks_and_lists(tmp_path, text, columns, name, ids, expected):
    assert read_nodes(source(tmp_path, text, *columns, name=name), ids).tolist() == expected


def test_arrays(tmp_path):
    np.save(tmp_path / "m.npy", [False, True, False, True])
    np.save(tmp_path / "l.npy", [3, 2])
    for ids in (IDS, ROWS):
        assert read_nodes(Source(tmp_path / "m.npy"), ids).tolist() == [1, 3]
    assert read_nodes(Source(tmp_path / "l.npy"), ROWS).tolist() == [3, 2]


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
def test_errors(tmp_path, text, columns, expected):
    with pytest.raises(ValueError, match=expected):
        read_nodes(source(tmp_path, text, *columns), IDS)


def test_splits(tmp_path):
    train, val, test = read_split(source(tmp_path, "id,part\nd,test\nb,Validation\na,train\n"), IDS)
    wanted = ([True, False, False, False], [False, True, False, False], [False, False, False, True])
    assert (train.tolist(), val.tolist(), test.tolist()) == wanted
    for text, expected in (
        (
            "id,part\na,train\nb,val\nc,hold\n",
            "line 4: part must be train, val or test, got 'hold'",
        ),
        ("id,part\na,train\nb,val\n", "got none for test"),
        ("id,part,x\na,train,1\n", "must hold one column of train, val and test, got part, x"),
        ("id\na\n", "must hold one column of train, val and test, got none"),
    ):
        with pytest.raises(ValueError, match=expected):
            read_split(source(tmp_path, text), IDS)
