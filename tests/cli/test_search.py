import json
import re

import numpy as np
import pytest
from commands import D, N, assert_similarities, column, records
from numpy.testing import assert_array_equal
from reference import with_rows

import cfe_faiss as cfe

LOCAL = ["node", "evidence", "rank", "similarity", "node_label", "evidence_label"]
GLOBAL = ["source", "target", "similarity", "source_label", "target_label"]


@pytest.mark.parametrize("style", ["json", "csv", "table"])
@pytest.mark.parametrize(
    ("name", "options"),
    [("flat", {}), ("ivf", {}), ("ivf", {"nprobe": 2}), ("ivf", {"recall": 0.9})],
)
def test_local_writes_the_results_of_the_api(folder, output, name, options, style):
    nodes, k = [70, 250, 70, 0], 4
    flags = [part for option, value in options.items() for part in (f"--{option}", value)]
    flags += [] if style == "table" else [f"--{style}"]
    text = output("local", folder / f"{name}.cfe", "--nodes", *nodes, "-k", k, *flags)
    rows = records(text, style)
    index = cfe.read_index(folder / f"{name}.cfe")
    _, I = index.search_stored(nodes, k, **options)
    known = dict(zip(index.members().ids.tolist(), index.members().labels.tolist(), strict=True))
    assert list(rows[0]) == LOCAL
    assert_array_equal(column(rows, "node", int), np.repeat(nodes, k))
    assert_array_equal(column(rows, "evidence", int), I.ravel())
    assert_array_equal(column(rows, "rank", int), np.tile(np.arange(1, k + 1), len(nodes)))
    assert_similarities(rows, style, index, np.repeat(nodes, k), I.ravel())
    expected = [known[node] for node in np.repeat(nodes, k)]
    assert_array_equal(column(rows, "node_label", int), expected)
    found = column(rows, "evidence_label", int)
    assert_array_equal(found, [known[node] for node in I.ravel().tolist()])


@pytest.mark.parametrize("name", ["flat", "ivf"])
def test_local_limits_the_results_of_a_class(folder, output, name):
    flags = ["--nodes", 70, 250, "-k", 5, "--per-group", 1, "--csv"]
    notes = "cfe-faiss: note: fewer than 5 found for 2 of 2 nodes\n"
    rows = records(output("local", folder / f"{name}.cfe", *flags, notes=notes), "csv")
    index = cfe.read_index(folder / f"{name}.cfe")
    _, I = index.search_stored([70, 250], 5, per_group=1)
    assert_array_equal(column(rows, "evidence", int), I[I >= 0])
    pairs = [(row["node"], row["evidence_label"]) for row in rows]
    assert len(set(pairs)) == len(pairs)


def test_local_without_nodes_searches_all(folder, output):
    rows = records(output("local", folder / "flat.cfe", "-k", 2, "--csv"), "csv")
    index = cfe.read_index(folder / "flat.cfe")
    _, I = index.search_stored(None, 2)
    assert_array_equal(column(rows, "node", int), np.repeat(np.arange(N) * 10, 2))
    assert_array_equal(column(rows, "evidence", int), I.ravel())
    assert_similarities(rows, "csv", index, np.repeat(np.arange(N) * 10, 2), I.ravel())


def test_local_notes_missing_evidence(folder, output):
    eligible = int((np.load(folder / "y.npy") != np.load(folder / "y.npy")[3]).sum())
    note = f"cfe-faiss: note: fewer than {N} found for 1 of 1 nodes\n"
    text = output("local", folder / "ivf.cfe", "--nodes", 3, "-k", N, "--json", notes=note)
    assert len(json.loads(text)) == eligible


@pytest.mark.parametrize(
    ("metric", "expected"), [("cosine", [1, 0]), ("ip", [2, 0]), ("l2", [1, 10**0.5])]
)
def test_similarities_are_those_of_the_metric(tmp_path, output, metric, expected):
    index = cfe.IndexEvidenceIDMap2(2, metric=metric)
    index.add_with_labels([[1, 0], [2, 0], [0, 3]], [0, 1, 1])
    cfe.write_index(index, tmp_path / "one")
    rows = records(output("local", tmp_path / "one", "--nodes", 0, "-k", 2, "--csv"), "csv")
    name = "distance" if metric == "l2" else "similarity"
    assert column(rows, name, float).tolist() == expected


def test_nothing_found_is_an_empty_result(tmp_path, output):
    index = with_rows(cfe.IndexEvidenceIDMap2(2), np.eye(2), [1, 1])
    cfe.write_index(index, tmp_path / "one")
    local = "cfe-faiss: note: fewer than 10 found for 2 of 2 nodes\n"
    assert output("local", tmp_path / "one", "--csv", notes=local) == ",".join(LOCAL) + "\n"
    assert json.loads(output("local", tmp_path / "one", "--json", notes=local)) == []
    assert output("local", tmp_path / "one", notes=local).split() == LOCAL
    pairs = "cfe-faiss: note: fewer than 100 found: 0\n"
    assert output("global", tmp_path / "one", notes=pairs).split() == GLOBAL


@pytest.mark.parametrize("style", ["json", "csv", "table"])
@pytest.mark.parametrize(
    ("flags", "options"),
    [
        ([], {}),
        (["--per-node"], {"per_node": True}),
        (["--approximate"], {"exact": False}),
        (
            ["--approximate", "--per-node", "--nprobe", "1"],
            {"exact": False, "per_node": True, "nprobe": 1},
        ),
    ],
)
def test_global_writes_the_results_of_the_api(folder, output, flags, options, style):
    flags = flags + ([] if style == "table" else [f"--{style}"])
    rows = records(output("global", folder / "ivf.cfe", "-k", 20, *flags), style)
    index = cfe.read_index(folder / "ivf.cfe")
    pairs = cfe.global_evidence(index, 20, **options)
    labels = np.load(folder / "y.npy")
    assert list(rows[0]) == GLOBAL
    assert_array_equal(column(rows, "source", int), pairs.source)
    assert_array_equal(column(rows, "target", int), pairs.target)
    assert_similarities(rows, style, index, pairs.source, pairs.target)
    assert_array_equal(column(rows, "source_label", int), labels[pairs.source])
    assert_array_equal(column(rows, "target_label", int), labels[pairs.target])


def test_long_results_are_whole(folder, output, monkeypatch):
    in_one_go = {
        style: output("local", folder / "flat.cfe", f"--{style}") for style in ("csv", "json")
    }
    monkeypatch.setattr("cfe_faiss.cli.output._ROWS_AT_ONCE", 7)
    for style, text in in_one_go.items():
        assert output("local", folder / "flat.cfe", f"--{style}") == text


def test_info(folder, output):
    counts = np.bincount(np.load(folder / "y.npy")).tolist()
    facts = json.loads(output("info", folder / "ivf.cfe", "--json"))
    assert facts == {
        "file": str(folder / "ivf.cfe"),
        "bytes": (folder / "ivf.cfe").stat().st_size,
        "version": 6,
        "kind": "EvidenceIVF",
        "ntotal": N,
        "d": D,
        "metric": "cosine",
        "nlist": 12,
        "partitions": 2,
        "nprobe": 12,
        "complete": True,
        "routing": "evidence",
        "weighted": True,
        "theta": np.pi / 3,
        "classes": {str(label): count for label, count in enumerate(counts)},
    }
    lines = dict(
        re.split(r" {2,}", line) for line in output("info", folder / "flat.cfe").splitlines()
    )
    assert lines["kind"] == "EvidenceIDMap2"
    assert [lines[f"class {label}"] for label in range(4)] == [str(count) for count in counts]
    assert "nlist" not in lines


def test_info_counts_unknown_classes(tmp_path, output):
    index = cfe.IndexEvidenceIDMap2(3, metric="l2")
    index.add(np.eye(3))
    index.relabel([4], ids=[1])
    cfe.write_index(index, tmp_path / "out")
    facts = json.loads(output("info", tmp_path / "out", "--json"))
    assert (facts["metric"], facts["classes"]) == ("l2", {"unknown": 2, "4": 1})
    text = output("info", tmp_path / "out")
    assert re.search("^metric +l2$", text, re.MULTILINE)
    assert "class unknown" in text
