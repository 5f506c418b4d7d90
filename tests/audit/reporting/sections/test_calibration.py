import numpy as np
import pytest
from audit_report_helpers import inputs_of, section_of

import cfe_faiss as cfe


def section(probabilities, truth=None, favourable=1):
    n = len(probabilities)
    finder = cfe.EvidenceFinder.from_vectors(
        np.random.default_rng(0).normal(size=(n, 3)),
        probabilities,
        features={"sex": ["f", "m"] * (n // 2)},
        truth=truth,
    )
    return section_of(inputs_of(finder, ["sex"], favourable), "calibration")


def test_shares_on_record_and_at_thresholds_by_hand():
    share = np.array([0.1, 0.9] * 10 + [0.7, 0.3] * 10)
    truth = np.array([0, 1] * 10 + [1, 1] * 10)
    calibration, thresholds = section(np.column_stack([1 - share, share]), truth).tables
    f = {row["probability"]: row for row in calibration.rows if row["group"] == "sex = f"}
    assert {name: (row["predicted"], row["observed"], row["count"]) for name, row in f.items()} == {
        "0 to 0.2": (pytest.approx(0.1), 0, 10),
        "0.6 to 0.8": (pytest.approx(0.7), 1, 10),
    }
    everyone, women, men = thresholds.rows
    assert (women["rate_0.5"], men["rate_0.5"], everyone["rate_0.5"]) == (0.5, 0.5, 0.5)
    assert (women["rate_0.2"], men["rate_0.2"]) == (0.5, 1)


def test_the_gap_is_the_headline():
    share = np.array([0.2, 0.8] * 20)
    found = section(np.column_stack([1 - share, share]))
    expected = "At a threshold of 0.5 the shares of two groups differ by up to 100.0 points."
    assert found.headline == expected
    assert [table.id for table in found.tables] == ["thresholds"]  # no class is on record


def test_a_section_without_probabilities_or_a_favourable_class_is_missing():
    assert section([0, 1] * 10).missing == "No probabilities are known."
    share = np.array([0.2, 0.8] * 10)
    found = section(np.column_stack([1 - share, share]), favourable=None)
    assert found.missing == "No favourable class was named."
