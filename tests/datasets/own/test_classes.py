import numpy as np
import pytest

from cfe_faiss.data.roles import Source
from cfe_faiss.datasets.own import OwnFiles, read_own

pytestmark = pytest.mark.filterwarnings("ignore::cfe_faiss.InputWarning")
IDS = "id"


def read_classes(predictions, truth, ids):
    """Three nodes, a, b and c, with these classes."""
    folder = (predictions or truth).path.parent
    (folder / "features.csv").write_text("id,age\na,20\nb,31\nc,45\n")
    return read_own(OwnFiles(folder / "features.csv", id=ids, predictions=predictions, truth=truth))


def source(folder, text, *columns, name="p.csv"):
    (folder / name).write_text(text)
    return Source(folder / name, columns)


def test_texts_by_id(tmp_path):
    predictions = source(tmp_path, 'id,class\nc,"good, sure"\na,bad\nb,bad\n')
    truth = source(tmp_path, "id,outcome,note\na,bad,x\nb,worse,y\nc,,z\n", "outcome", name="t.csv")
    classes = read_classes(predictions, truth, IDS)
    assert tuple(classes.class_names) == ("bad", "good, sure", "worse")
    assert classes.predicted.dtype == np.int32
    assert classes.predicted.tolist() == [0, 0, 1]
    assert classes.y.tolist() == [0, 2, -1]


def test_integers_are_ordered_as_numbers(tmp_path):
    predictions = source(tmp_path, "id,class\na,10\nb,-1\nc,2.0\n")
    classes = read_classes(predictions, None, IDS)
    expected = (("2", "10"), [1, -1, 0], None)
    assert (tuple(classes.class_names), classes.predicted.tolist(), classes.y) == expected


def test_probabilities(tmp_path):
    predictions = source(tmp_path, 'id,no,"yes, sure"\nc,0.2,0.8\na,0.5,0.5\nb,1,0\n')
    truth = source(tmp_path, 'id,y\na,"yes, sure"\nb,no\n', name="t.csv")
    classes = read_classes(predictions, truth, IDS)
    assert tuple(classes.class_names) == ("no", "yes, sure")
    np.testing.assert_array_equal(classes.predicted, [[0.5, 0.5], [1, 0], [0.2, 0.8]])
    assert classes.y.tolist() == [1, 0, -1]


def test_files_without_header(tmp_path):
    np.save(tmp_path / "p.npy", [0, 1, 1])
    np.save(tmp_path / "q.npy", [[0.25, 0.75], [1, 0], [0.5, 0.5]])
    np.save(tmp_path / "u.npy", ["x", "y", "x"])
    truth = source(tmp_path, "1\n-1\n0\n", name="t.txt")
    for ids in (IDS, None):
        classes = read_classes(Source(tmp_path / "p.npy"), truth, ids)
        assert (classes.predicted.tolist(), classes.y.tolist()) == ([0, 1, 1], [1, -1, 0])
        assert read_classes(Source(tmp_path / "q.npy"), None, ids).class_names == ["0", "1"]
        assert read_classes(Source(tmp_path / "u.npy"), None, ids).predicted.tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("text", "columns", "expected"),
    [
        ("id,class\na,x\nb,y\n", (), "must hold every node, got no row for 1 of 3, such as id 'c'"),
        ("id,class\na,x\nb,y\nd,y\n", (), "line 4: id must be the id of a node, got 'd'"),
        ("id,class\na,x\nb,y\nb,y\nc,y", (), "line 4: id 'b' again, as in line 3"),
        ("name,class\na,x\nb,y\nc,y\n", ("class",), "must name a column of .*got 'id'"),
        ("id,class\na,x\nb,y\nc,y\n", ("klass",), r"column of .* \(id, class\), got .klass.; did"),
        ("id\na\nb\nc\n", (), "must hold a column of classes, got id only"),
        ("id,class\na,1\nb,0.3\nc,0\n", (), "line 3: .*got 0.3"),
        ("id,class\na,1\nb,inf\nc,0\n", (), "line 3: .*got inf"),
        ("id,u,v\na,x,1\nb,x,2\nc,x,3\n", (), r"\(u, v\): name that of the classes, as in .*:u"),
        ("id,u,v\na,.5,.5\nb,.5,.6\nc,0,1\n", (), "line 3: .*got u 0.5, v 0.6"),
        ("id,u,v\na,.5,.5\nb,-.5,1.5\nc,0,1\n", (), "line 3: probabilities must lie in"),
        ("id,u,v\na,.5,.5\nb,,1\nc,0,1\n", (), "line 3: probabilities must lie in"),
        ("id,u,v\na,.5,.5\nc,0,1\n", (), "must hold every node, got no row for 1 of 3, such as id"),
    ],
)
def test_errors(tmp_path, text, columns, expected):
    with pytest.raises(ValueError, match=expected):
        read_classes(source(tmp_path, text, *columns), None, IDS)


def test_errors_of_truth(tmp_path):
    shares = source(tmp_path, "id,u,v\na,1,0\nb,1,0\nc,0,1\n")
    with pytest.raises(ValueError, match="must hold one class for each node, got columns u, v"):
        read_classes(None, shares, IDS)
    with pytest.raises(ValueError, match=r"t\.csv must be among the class names \(u, v\), got 'w'"):
        read_classes(shares, source(tmp_path, "id,y\na,w\nb,u\n", name="t.csv"), IDS)


def test_errors_of_arrays(tmp_path):
    for array, expected in (
        (np.zeros((2, 2, 2)), r"must have shape \(n,\) or \(n, C\), got \(2, 2, 2\)"),
        (np.array([1j, 2, 3]), "must be a NumPy array of numbers or texts, got dtype complex128"),
        (np.array([0, 1]), "must hold a row for each of 3 nodes, got 2"),
    ):
        np.save(tmp_path / "p.npy", array)
        with pytest.raises(ValueError, match=expected):
            read_classes(Source(tmp_path / "p.npy"), None, IDS)
    with pytest.raises(ValueError, match="has no columns with names, got a"):
        read_classes(Source(tmp_path / "p.npy", ("a",)), None, IDS)
    (tmp_path / "p.npy").write_text("no")
    with pytest.raises(ValueError, match="must be a NumPy array of numbers or texts"):
        read_classes(Source(tmp_path / "p.npy"), None, IDS)
