import math
from types import SimpleNamespace

import numpy as np
import pytest
from audit_report_helpers import inputs_of, section_of

import cfe_faiss as cfe
from cfe_faiss.audit.reporting.sections.pairs import Pairs, find_pairs
from cfe_faiss.finder import PairEvidence


def section(attributes, labels, source, target):
    """Return the rows of the balance table for given pairs."""
    n = len(labels)
    x = np.random.default_rng(0).normal(size=(n, 3)).astype(np.float32)
    data = SimpleNamespace(x=x, edge_index=np.stack([np.arange(n - 1), np.arange(1, n)]))
    finder = cfe.EvidenceFinder.from_data(data, labels, features=attributes)
    inputs = inputs_of(finder, [], pairs=10)
    sides, near = np.array([source, target]), np.ones(len(source))
    found = PairEvidence(*sides, near.astype(np.float32), finder.labels)
    inputs.results[find_pairs] = Pairs(found, (), ())
    return section_of(inputs, "balance")


def rows(*arguments):
    found = section(*arguments).tables[0].rows
    return {(row["attribute"], row["value"]): row for row in found}


def test_a_number_by_hand():
    # Class 1 (side A) has 3, 5, 7 and class 0 has 0, 2, 4: means 5 and 2, both sample variances 4.
    (row,) = rows({"age": [3.0, 5, 7, 0, 2, 4]}, [1, 1, 1, 0, 0, 0], [0, 1], [5, 4]).values()
    assert (row["mean_a_all"], row["mean_b_all"], row["smd_all"]) == (5, 2, 1.5)
    # The pairs are (3, 4) and (5, 2): means 4 and 3, over the same spread of 2.
    assert (row["mean_a_pairs"], row["mean_b_pairs"], row["smd_pairs"]) == (4, 3, 0.5)
    assert (row["differing"], row["pairs"]) == (1.0, 2)


def test_a_pair_is_turned_so_that_its_first_side_is_of_the_class():
    one = rows({"age": [3.0, 5, 7, 0, 2, 4]}, [1, 1, 1, 0, 0, 0], [0, 1], [5, 4])
    assert rows({"age": [3.0, 5, 7, 0, 2, 4]}, [1, 1, 1, 0, 0, 0], [5, 4], [0, 1]) == one


def test_a_share_by_hand():
    found = rows({"sex": ["f", "f", "m", "m", "f", "m"]}, [1, 1, 1, 0, 0, 0], [0], [3])
    # Shares of f: 2/3 and 1/3, both with p (1 - p) = 2/9.
    assert found["sex", "f"]["smd_all"] == pytest.approx((1 / 3) / math.sqrt(2 / 9))
    assert found["sex", "m"]["smd_all"] == pytest.approx(-(1 / 3) / math.sqrt(2 / 9))
    assert (found["sex", "f"]["mean_a_pairs"], found["sex", "f"]["mean_b_pairs"]) == (1, 0)


def test_missing_values_are_a_line_of_their_own():
    found = rows({"age": [1.0, np.nan, 3, 1, 2, np.nan]}, [1, 1, 1, 0, 0, 0], [0, 1], [3, 4])
    assert found["age", ""]["pairs"] == 1
    assert found["age", ""]["mean_a_all"] == 2
    assert found["age", "unknown"]["mean_a_all"] == pytest.approx(1 / 3)
    assert found["age", "unknown"]["pairs"] == 2


def test_no_spread_is_not_defined_unless_equal():
    assert rows({"age": [1.0, 1, 2, 2]}, [1, 1, 0, 0], [0], [2])["age", ""]["smd_all"] is None
    assert rows({"age": [1.0, 1, 1, 1]}, [1, 1, 0, 0], [0], [2])["age", ""]["smd_all"] == 0


def test_different_means_without_a_spread_are_out_of_balance():
    attributes = {"sex": ["f", "f", "f", "m", "m", "m"], "age": [1.0, 2, 3, 1, 2, 3]}
    found = section(attributes, [1, 1, 1, 0, 0, 0], [0], [3])
    first = found.tables[0].rows[0]
    assert (first["attribute"], first["smd_pairs"], first["distance"]) == ("sex", None, None)
    expected = "2 of 3 differences within the pairs exceed 0.1 standard deviations"
    assert found.headline.startswith(expected)
