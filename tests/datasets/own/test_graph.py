import numpy as np
import pytest

import cfe_faiss as cfe
from cfe_faiss.data.columns import Reading
from cfe_faiss.data.roles import Source
from cfe_faiss.datasets.own import OwnFiles, read_own

pytestmark = pytest.mark.filterwarnings("ignore:missing values")

PEOPLE = "id,sex,age,outcome\np1,f,20,yes\np2,m,30,no\np3,m,40,\np4,f,50,yes\n"


def written(folder, text, name):
    (folder / name).write_text(text)
    return folder / name


@pytest.mark.filterwarnings("ignore:no true class:cfe_faiss.InputWarning")
def test_all_files_together(tmp_path):
    features = written(tmp_path, PEOPLE, "people.csv")
    edges = written(tmp_path, "a,b\np4,p1\np2,p3\n", "e.csv")
    predictions = written(tmp_path, "id,no,yes\np2,1,0\np1,.2,.8\np4,.5,.5\np3,.1,.9\n", "p.csv")
    split = written(tmp_path, "id,part\np1,train\np2,val\np4,test\n", "s.csv")
    data = read_own(
        OwnFiles(
            features,
            id="id",
            edges=Source(edges),
            predictions=Source(predictions),
            truth=Source(features, ("outcome",)),
            split=Source(split),
        )
    )
    assert repr(data) == "OwnGraph('people', 4 nodes, 2 attributes in 3 columns)"
    expected = (["sex=f", "sex=m", "age"], ["sex", "sex", "age"])
    assert (data.feature_names, data.feature_attributes) == expected
    assert [data.attributes[name].of(2) for name in data.attributes] == ["m", 40]
    assert data.edge_index.tolist() == [[3, 1], [0, 2]]
    found = (data.class_names, data.y.tolist(), data.labels.tolist())
    assert found == (["no", "yes"], [1, 0, -1, 1], [1, 0, 1, 0])
    assert data.node_ids.tolist() == ["p1", "p2", "p3", "p4"]
    finder = cfe.EvidenceFinder.from_data(data, data.labels, nodes=data.test_mask | data.train_mask)
    found = finder.top_pairs(1).to_frame()[["source", "target"]].to_numpy().tolist()
    assert found == [["p1", "p4"]]

    graph = data.to_pyg()
    assert graph.edge_index.tolist() == [[0, 1, 2, 3], [3, 2, 1, 0]]
    masks = (graph.train_mask, graph.val_mask, graph.test_mask)
    assert [mask.tolist().index(True) for mask in masks] == [0, 1, 3]


def test_matrices_stay_unchanged(tmp_path):
    x = np.array([[1, 20], [3, 40.5]], np.float32)
    np.save(tmp_path / "x.npy", x)
    np.savetxt(tmp_path / "x.csv", x, delimiter=",")
    np.savetxt(tmp_path / "x.txt", x)
    for name in ("x.npy", "x.csv", "x.txt"):
        data = read_own(OwnFiles(tmp_path / name))
        np.testing.assert_array_equal(data.x, x)
        assert data.feature_names == ["feature 0", "feature 1"]
        assert data.node_ids is None
        assert not data.has_header


def test_codes_and_scale(tmp_path):
    features = written(tmp_path, "zip,age\n10,1\n20,3\n10,1\n", "f.csv")
    data = read_own(OwnFiles(features, as_is=True, reading=Reading(categorical=["zip"])))
    assert data.feature_names == ["zip=10", "zip=20", "age"]
    assert data.x_raw.tolist() == [[1, 0, 1], [0, 1, 3], [1, 0, 1]]


def test_without_leaves_neighbours_alone(tmp_path):
    rows = "".join(f"{i},n{i},{i % 7},{i}\n" for i in range(120))
    features = written(tmp_path, f"id,name,age,town\n{rows}", "f.csv")
    data = read_own(OwnFiles(features, id="id", neighbours=3, without=["name", "town"]))
    assert data.feature_names == ["age", "town"]
    assert set(data.attributes) == {"name", "age", "town"}
    ages = np.arange(120) % 7
    assert (ages[data.edge_index[0]] == ages[data.edge_index[1]]).all()


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        (PEOPLE, {"id": "name"}, r"must name a column of .* \(id, sex, age, outcome\), got 'name'"),
        (PEOPLE, {"id": "id", "missing": "error"}, r"line 4: column 'outcome' lacks"),
        (PEOPLE, {"id": "id", "missing": "drop"}, r"missing .*got 'drop'"),
        (PEOPLE, {"reading": Reading(categorical=["race"])}, r"categorical .*got 'race'"),
        (PEOPLE, {"without": ["race"]}, "without must name a column"),
        ("id\na\n", {"id": "id"}, "must hold features, got id only"),
        ("1,2\n3,4\n", {"id": "id"}, "must have a header that names the column 'id' of the ids"),
        ("1,2\n3,x\n", {}, "feature 1 must hold numbers, as there is no header .*'x'"),
        ("1,2\n3,\n", {"missing": "error"}, "line 2: column 'feature 1' lacks a value"),
        ("a,b\n1,inf\n", {}, "line 2: b must be finite"),
        (
            "a;b\n" + "".join(f"x;{i},5\n" for i in range(101)),
            {},
            r"'b' .*'0,5' \(line 2\).*decimal=','",
        ),
        ("a,b\n" + "".join(f"x,{i}\n" for i in [*range(101), "?"]), {}, r"'\?' \(line 103\)"),
        ("a,b\n" + "".join(f"x,n{i}\n" for i in range(101)), {}, r"ignore=\['b'\]"),
        *(
            (
                "name,b\n" + "".join(f"n{i},{i}\n" for i in range(101)),
                {argument: value},
                rf"^{argument} must name a column of .*; did you mean 'name'\?$",
            )
            for argument, value in (("id", "nam"), ("ignore", ["Name"]), ("without", ["names"]))
        ),
        ("a,b\nx,1\ny,2\n", {"without": ["a", "b"], "neighbours": 1}, "neighbours need"),
    ],
)
def test_errors(tmp_path, text, options, expected):
    with pytest.raises(ValueError, match=expected):
        read_own(OwnFiles(written(tmp_path, text, "f.csv"), **options))


@pytest.mark.filterwarnings("ignore:no true class:cfe_faiss.InputWarning")
def test_what_training_needs(tmp_path):
    features = written(tmp_path, PEOPLE, "f.csv")
    truth = Source(features, ("outcome",))
    with pytest.raises(ValueError, match="true classes are needed"):
        read_own(OwnFiles(features, id="id", neighbours=1, missing="keep")).to_pyg()
    with pytest.raises(ValueError, match="edges are needed"):
        read_own(OwnFiles(features, id="id", truth=truth)).to_pyg()
    split = Source(written(tmp_path, "id,part\np1,train\np2,val\np3,test\n", "s.csv"))
    with pytest.raises(ValueError, match="1 nodes of test have no true class, such as 'p3'"):
        read_own(OwnFiles(features, id="id", neighbours=1, truth=truth, split=split)).to_pyg()
    graph = read_own(OwnFiles(features, id="id", neighbours=1, truth=truth)).to_pyg()
    found = (graph.train_mask | graph.val_mask | graph.test_mask).tolist()
    assert found == [True, True, False, True]
    with pytest.raises(ValueError, match="edges and neighbours exclude each other"):
        read_own(OwnFiles(features, id="id", neighbours=1, truth=truth, edges=truth))
