"""The full-scale job at a small size, from memory-mapped arrays and by blocks, gives what it gives in memory."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import cfe_faiss as cfe
from cfe_faiss.graph import Graph

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
NODES = 2000
STEPS = ["generate", "ks", "train", "add", "search", "pairs"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Run all steps in this process, which has loaded the packages once."""
    folder = tmp_path_factory.mktemp("full_scale")
    before = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        script = importlib.import_module("full_scale")
        for step in (*(["--step", name] for name in STEPS), []):  # the last call finds them done
            patch.setattr(sys, "argv", ["full_scale.py", *options(folder), *step])
            script.main()
    for name in set(sys.modules) - before:
        if str(BENCHMARKS) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
    return folder


def options(folder):
    given = [
        "--on-disk",
        "--nodes",
        NODES,
        "--memory",
        1_000_000,
        "--folder",
        folder,
        "--result",
        folder / "r.json",
    ]
    return [str(option) for option in given]


def run(folder):
    """Run the script in a process of its own, which starts one for each step that is missing."""
    subprocess.run(
        [sys.executable, BENCHMARKS / "full_scale.py", *options(folder)],
        check=True,
        capture_output=True,
    )


def read(folder, *names):
    return [np.load(folder / f"{name}.npy") for name in names]


def test_ks_vectors_match_those_in_memory(folder):
    x, indptr, indices, X = read(folder, "x", "indptr", "indices", "X")
    np.testing.assert_array_equal(X, cfe.ks_vectors(x, Graph(indptr, indices), 3))


def test_every_vector_is_added_in_its_block(folder):
    X, labels = read(folder, "X", "labels")
    index = cfe.read_index(folder / "filled.faiss")
    assert index.ntotal == NODES
    flat = cfe.IndexEvidenceIDMap2(X.shape[1])
    flat.add_with_labels(X, labels)
    D, _ = index.search_stored(k=10, nprobe=index.nlist)
    np.testing.assert_allclose(D, flat.search_stored(k=10)[0], atol=1e-6)


def test_pairs_are_the_best(folder):
    X, labels, similarity = read(folder, "X", "labels", "similarity")
    scores = (
        np.triu(X @ X.T, 1)[labels[:, None] < labels],
        np.triu(X @ X.T, 1)[labels[:, None] > labels],
    )
    np.testing.assert_allclose(similarity, np.sort(np.concatenate(scores))[::-1][:1000], atol=1e-6)


def test_every_step_reports_and_is_not_run_again(folder):
    steps = json.loads((folder / "r.json").read_text())["steps"]
    assert list(steps) == STEPS
    assert all(step["seconds"] > 0 and step["peak_memory_bytes"] > 50e6 for step in steps.values())
    assert steps["search"]["recall"] > 0.9
    (folder / "pairs.json").unlink()
    run(folder)
    again = json.loads((folder / "r.json").read_text())["steps"]
    assert again["pairs"] != steps["pairs"]
    assert all(again[name] == steps[name] for name in steps if name != "pairs")
