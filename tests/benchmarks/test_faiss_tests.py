"""The script that runs FAISS's own tests, on some tests of ours in the place of FAISS's."""

import importlib
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "benchmarks" / "faiss_tests"
TESTS = """
import os
import unittest

import faiss
import numpy as np
from faiss.contrib.datasets import SyntheticDataset

IP = faiss.METRIC_INNER_PRODUCT


def get_dataset(n):
    return (np.random.default_rng(0).normal(size=(n, 8)).astype("float32"),)


class TestSome(unittest.TestCase):
    def test_passes(self):
        index = faiss.index_factory(8, "IVF4,Flat", IP)
        index.train(get_dataset(100)[0])
        index.add(get_dataset(100)[0])
        self.assertIsInstance(index, faiss.IndexIVFFlat)
        self.assertEqual(index.ntotal, 100)

    def test_of_distances(self):
        x = SyntheticDataset(8, 10, 50, 5).get_database()
        index = faiss.IndexIVFFlat(faiss.IndexFlatL2(8), 8, 2)
        index.train(x)
        index.add(x)
        np.testing.assert_array_equal(index.search(x, 1)[0][:, 0], 0)

    def test_stock_fails_too(self):
        self.assertEqual(faiss.IndexFlatIP(8).d, 9)

    def test_refused(self):
        one, other = (faiss.index_factory(8, "IVF4,Flat", IP) for _ in range(2))
        for index in (one, other):
            index.train(get_dataset(100)[0])
            index.add(get_dataset(100)[0])
        one.merge_from(other, 0)
        self.assertEqual(one.ntotal, 200)

    def test_without_a_reason(self):
        self.assertNotIn("Evidence", type(faiss.IndexFlatIP(8)).__name__)

    def test_ends_the_process(self):
        if "Evidence" in type(faiss.IndexFlatIP(8)).__name__:
            os._exit(3)

    def test_of_another_metric(self):
        faiss.IndexFlat(8, faiss.METRIC_L1)
"""


@pytest.fixture
def script():
    """Make the scripts importable by name, as they import each other, and forget them afterwards."""
    before = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SCRIPTS))
        yield importlib.import_module
    for name in set(sys.modules) - before:
        if str(SCRIPTS) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def test_each_test_gets_its_verdict(script, tmp_path):
    run, reasons = script("run"), script("reasons")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_some.py").write_text(TESTS)
    rows = run.judge(tmp_path, "test_some", 60)
    assert {row.test.removeprefix("test_some.TestSome.test_"): row.verdict for row in rows} == {
        "passes": reasons.PASSES,
        "of_distances": reasons.PASSES,
        "stock_fails_too": reasons.BOTH,
        "refused": reasons.REFUSED,
        "without_a_reason": reasons.UNEXPLAINED,
        "ends_the_process": reasons.CRASH,
    }
    page = run.page(rows, "1.2.3", ["test_some"])
    assert "| all | 6 |" in page
    assert "| `test_some.TestSome.test_ends_the_process` | IndexFlat |" in page
    assert "| `test_some.TestSome.test_refused` | an id is stored once" in page
    assert "- `test_some.TestSome.test_passes`" in page
