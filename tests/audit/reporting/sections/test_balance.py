import math
from types import SimpleNamespace

import numpy as np
import pytest
from audit_report_helpers import section_of

import cfe_faiss as cfe
from cfe_faiss.audit.reporting.inputs import Settings, check_inputs
from cfe_faiss.audit.reporting.sections.pairs import Pairs, find_pairs
from cfe_faiss.finder import PairEvidence

SETTINGS = Settings(k=1, pairs=10, cases=1, bins=4, confidence=0.95)


def section(attributes, labels, source, target, favourable=None):
    """Return the rows of the balance table for given pairs."""
    n = len(labels)
    x = np.random.default_rng(0).normal(size=(n, 3)).astype(np.float32)
    data = SimpleNamespace(x=x, edge_index=np.stack([np.arange(n - 1), np.arange(1, n)]))
    finder = cfe.EvidenceFinder.from_data(data, labels, features=attributes)
    inputs = check_inputs(finder, [], favourable, SETTINGS)
    sides, near = np.array([source, target]), np.ones(len(source))
    found = PairEvidence(*sides, near.astype(np.float32), finder.labels)
    inputs.results[find_pairs] = Pairs(found, (), ())
    return section_of(inputs, "balance")


def rows(*arguments, **options):
    return {
        (row["attribute"], row["value"]): row
        for row in section(*arguments, **options).tables[0].rows
    }


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


def test_rare_values_are_put_together():
    values = [f"value {i}" for i in range(20)]
    found = rows({"name": values}, [0, 1] * 10, [0], [1])
    assert ("name", "8 other values") in found
    assert (
        found["name", "8 other values"]["mean_a_all"]
        + found["name", "8 other values"]["mean_b_all"]
        == 0.8
    )


def test_three_classes_need_a_favourable_one():
    options = ({"age": [1.0, 2, 3, 4]}, [0, 1, 2, 2], [0, 1], [1, 2])
    assert "more than two classes" in section(*options).missing
    found = section(*options, favourable=0)
    assert found.tables[0].rows[0]["pairs"] == 1
    assert "1 pair without a side decided" in found.limits[-1]


def test_different_means_without_a_spread_are_out_of_balance():
    found = section(
        {"sex": ["f", "f", "f", "m", "m", "m"], "age": [1.0, 2, 3, 1, 2, 3]},
        [1, 1, 1, 0, 0, 0],
        [0],
        [3],
    )
    first = found.tables[0].rows[0]
    assert (first["attribute"], first["smd_pairs"], first["distance"]) == ("sex", None, None)
    assert found.headline.startswith(
        "2 of 3 differences within the pairs exceed 0.1 standard deviations"
    )
