"""Users' own files through every command that takes them."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from commands import column, records
from numpy.testing import assert_allclose, assert_array_equal

import cfe_faiss as cfe
from cfe_faiss.cli import main
from cfe_faiss.data.roles import Source
from cfe_faiss.datasets.own import OwnFiles, read_own


@pytest.fixture(scope="module")
def index(own_folder, tmp_path_factory):
    """An index of all patients, built by the command."""
    out = tmp_path_factory.mktemp("index") / "all.cfe"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(own_folder.path)
        names = ("features", "edges", "predictions", "truth")
        assert main(["build", str(out), *own_folder.options(*names)]) == 0
    return out


def own(folder, **options):
    files = {
        "edges": Source(folder.path / "edges.csv"),
        "predictions": Source(folder.path / "pred.csv"),
        "truth": Source(folder.path / "people.csv", ("diagnosis",)),
    }
    return read_own(OwnFiles(folder.path / "people.csv", id="patient", **(files | options)))


CLASSES = "cfe-faiss: note: classes: 0 is malignant, sure, 1 is benign\n"


def test_build_gives_the_index_of_the_api(inside, index):
    built = cfe.read_index(index)
    labels = inside.probabilities.argmax(axis=1)
    assert_array_equal(built.members().labels, labels)
    X = cfe.ks_vectors(own(inside).x, inside.data.edge_index)
    assert_allclose(built.reconstruct_n(), X, atol=1e-6)


@pytest.mark.parametrize("nodes", ["mask.csv", "list.csv", "mask.csv:asked", "test"])
def test_build_among_some_nodes(inside, tmp_path, output, nodes):
    split = inside.options("split") if nodes == "test" else []
    options = inside.options("features", "edges", "predictions", "truth")
    output("build", tmp_path / "out", *options, "--nodes", nodes, *split, notes=CLASSES)
    expected = np.flatnonzero(inside.data.test_mask)
    assert_array_equal(cfe.read_index(tmp_path / "out").members().ids, expected)


def test_build_without_an_attribute(inside, tmp_path, output, capsys):
    options = inside.options("features", "edges", "predictions", "truth")
    arguments = ["build", str(tmp_path / "out"), *options, "--without", "sex", "mean area"]
    assert main(arguments) == 0
    captured = capsys.readouterr()
    assert "note: left out: " in captured.err
    assert re.search(
        r"kept, though they partly tell what was left out: .*radius error", captured.err
    )
    data = own(inside)
    finder = cfe.EvidenceFinder.from_data(
        data, data.labels, features=data.attributes, without=["sex", "mean area"]
    )
    found = cfe.read_index(tmp_path / "out").reconstruct_n()
    assert_array_equal(found, finder.index.reconstruct_n())


def test_results_have_the_users_names(inside, index, output):
    names = inside.options("features", "predictions")
    plain = records(output("local", index, "--nodes", 5, 0, "-k", 3, "--json"), "json")
    asked = inside.ids[[5, 0]]
    named = json.loads(output("local", index, "--nodes", *asked, "-k", 3, *names, "--json"))
    classes = ["malignant, sure", "benign"]
    for one, other in zip(plain, named, strict=True):
        assert other["node"] == inside.ids[int(one["node"])]
        assert other["evidence"] == inside.ids[int(one["evidence"])]
        assert other["node_label"] == classes[int(one["node_label"])]
        assert other["evidence_label"] == classes[int(one["evidence_label"])]
        assert other["similarity"] == float(one["similarity"])
    rows = records(output("global", index, "-k", 4, *names, "--csv"), "csv")
    expected = set(classes)
    assert {row["source_label"] for row in rows} | {row["target_label"] for row in rows} == expected
    assert set(column(rows, "source", str)) <= set(inside.ids)
    rows = records(output("global", index, "-k", 4, *inside.options("features"), "--csv"), "csv")
    assert {row["source_label"] for row in rows} <= {"0", "1"}


@pytest.mark.parametrize("nodes", ["mask.csv", "list.csv"])
def test_nodes_from_a_file(inside, index, output, nodes):
    asked = ("--nodes", nodes, "-k", 1, *inside.options("features"), "--csv")
    rows = records(output("local", index, *asked), "csv")
    assert [row["node"] for row in rows] == inside.ids[inside.data.test_mask.numpy()].tolist()
    np.savetxt("numbers.txt", [4, 2], fmt="%d")
    np.savetxt("zeros.txt", inside.data.test_mask.numpy(), fmt="%d")
    rows = records(output("local", index, "--nodes", "numbers.txt", "-k", 1, "--csv"), "csv")
    assert [row["node"] for row in rows] == ["4", "2"]
    rows = records(output("local", index, "--nodes", "zeros.txt", "-k", 1, "--csv"), "csv")
    assert column(rows, "node", int).tolist() == np.flatnonzero(inside.data.test_mask).tolist()


def test_a_model_is_trained(inside, tmp_path, output):
    options = inside.options("features", "edges", "truth", "split")
    notes = "cfe-faiss: note: classes: 0 is benign, 1 is malignant, sure\n"
    output("build", tmp_path / "out", *options, "--model", "gcn", "--seed", 4, notes=notes)
    from cfe_faiss.models import gcn, predict, train

    graph = own(inside, predictions=None, split=Source(Path("split.csv"))).to_pyg(4)
    model = gcn(graph, seed=4)
    train(model, graph, seed=4)
    members = cfe.read_index(tmp_path / "out").members()
    assert_array_equal(members.labels, predict(model, graph)[members.ids])


HOSTILE = {
    "semicolons.csv": "patient;age;y\na;1,5;x\nb;2,5;y\nc;3,5;x\n",
    "bom.csv": "\ufeffpatient,age,y\r\na,1,x\r\nb,2,y\r\nc,3,x\r\n",
    "gap.csv": "patient,age,y\na,1,x\nb,,y\nc,3,x\n",
    "edges.csv": "from,to\na,b\nb,c\n",
    "pred.csv": "patient,class\nc,x\na,x\nb,y\n",
    "other.csv": "patient,class\nc,x\na,y\nb,x\n",
    "latin.csv": b"patient,age\na,1\nb,\xe9\n",
}


@pytest.fixture
def hostile(tmp_path, monkeypatch):
    for name, text in HOSTILE.items():
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    monkeypatch.chdir(tmp_path)
    return tmp_path


GOOD = "--features bom.csv --id patient --edges edges.csv --predictions pred.csv"


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ("--features gap.csv --missing error", "line 3: column 'age' lacks a value .*--missing"),
        ("--features latin.csv", "latin.csv .*got byte 0xe9 in line 3.*--encoding latin-1"),
        ("--features semicolons.csv --truth semicolons.csv:z", "2 problems: .*got 'z'.*'1,5'"),
        ("--predictions bom.csv", "several columns .*: name that of the classes, as in bom.csv:y"),
        ("--id name", r"a column of bom.csv \(patient, age, y\), got 'name'"),
        ("--nodes test", "--nodes test needs --split"),
        ("--nodes a", "--nodes must be test, all or a file"),
        ("--data-root .", "--data-root has no effect without --dataset"),
        ("--neighbours 3", "edges and neighbours exclude each other"),
        ("--without z", "--without must name a column of bom.csv"),
    ],
)
def test_one_wrong_option_of_build(hostile, error, wrong, expected):
    # The last of two equal options counts.
    assert re.search(expected, error("build", "out", *GOOD.split(), *wrong.split()))
    assert not (hostile / "out").exists()


NAMES = "--features bom.csv --id patient"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (f"build out {NAMES} --edges edges.csv", "needs --predictions, or --model with --truth"),
        (f"build out {NAMES} --edges edges.csv --model gcn", "--features needs --truth"),
        ("build out --features x.csv --predictions x.csv:c", r"x\.csv: No such file"),
        ("build out --dataset patients --id patient", "--id has no effect without --features"),
        ("local good --features bom.csv", "--features needs --id, --predictions or --threshold"),
        ("local good --id patient", "--id has no effect without --features"),
        (f"local good {NAMES} --nodes zz", "--nodes .*got 'zz'"),
        (f"local good {NAMES} --predictions other.csv", "got another class for 2 of 3 nodes"),
        (f"local some {NAMES} --nodes b", "which holds 2 of 3 nodes; got 'b', which is not"),
        (f"plot good {GOOD} --out picture.xyz", "--out must end in one of"),
        (f"plot good a {GOOD}", "NODE must be given twice"),
        (f"plot good a zz {GOOD}", "NODE must be an id of 'patient', got 'zz'"),
        (f"plot good {NAMES} --edges edges.csv", "needs --predictions, or --model with --truth"),
    ],
)
def test_errors_are_one_line(hostile, error, capsys, line, expected):
    if "good" in line or "some" in line:
        (hostile / "some.txt").write_text("a\nc\n")
        assert main(["build", "good", *GOOD.split(), "--truth", "bom.csv:y"]) == 0
        names = [*GOOD.split(), "--truth", "bom.csv:y"]
        assert main(["build", "some", *names, "--nodes", "some.txt"]) == 0
        capsys.readouterr()
    assert re.search(expected, error(*line.split()))
    assert not (hostile / "out").exists()
    assert not list(hostile.glob("*.png"))
    assert not list(hostile.glob("picture*"))
