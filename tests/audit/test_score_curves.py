import numpy as np
import pytest
from sklearn.calibration import calibration_curve
from sklearn.metrics import roc_curve

from cfe_faiss.audit import calibration_curves, threshold_curves


@pytest.fixture
def people():
    rng = np.random.default_rng(0)
    prob = rng.beta(1, 2, 500).round(2)
    sex = rng.choice(np.array(["f", "m", None], dtype=object), 500, p=[0.5, 0.4, 0.1])
    return {"y_true": rng.random(500) < prob, "y_prob": prob, "sensitive_features": {"sex": sex}}


def test_calibration_equals_scikit_learn(people):
    curves = calibration_curves(**people, n_bins=8)
    sex = people["sensitive_features"]["sex"]
    cases = (("all", "", np.ones(500, bool)), ("sex", "f", sex == "f"), ("sex", "m", sex == "m"))
    for feature, value, own in cases:
        lines = curves[(curves["feature"] == feature) & (curves["value"] == value)]
        observed, predicted = calibration_curve(
            people["y_true"][own], people["y_prob"][own], n_bins=8
        )
        np.testing.assert_allclose(lines["observed"], observed)
        np.testing.assert_allclose(lines["predicted"], predicted)
        assert lines["count"].sum() == own.sum()
        assert (lines["observed_low"] <= lines["observed"]).all()
        assert (lines["observed"] <= lines["observed_high"]).all()
    assert set(curves["value"]) == {"", "f", "m"}


def test_unknown_outcomes_are_not_counted(people):
    known = np.arange(500) % 3 > 0
    truth = np.where(known, people["y_true"], -1)
    curves = calibration_curves(**people | {"y_true": truth})
    assert curves.loc[curves["feature"] == "all", "count"].sum() == known.sum()
    some = threshold_curves(
        **people | {"y_true": np.where(known, people["y_true"], np.nan)}, thresholds=[0.3]
    )
    chosen = people["y_prob"] >= 0.3
    assert some["rate"][0] == pytest.approx(chosen.mean())
    assert some["tpr"][0] == pytest.approx(chosen[known & people["y_true"]].mean())


def test_thresholds_equal_the_roc_curve(people):
    own = people["sensitive_features"]["sex"] == "f"
    fpr, tpr, thresholds = roc_curve(
        people["y_true"][own], people["y_prob"][own], drop_intermediate=False
    )
    curves = threshold_curves(**people, thresholds=thresholds[1:])
    lines = curves[curves["value"] == "f"]
    np.testing.assert_allclose(lines["fpr"], fpr[1:])
    np.testing.assert_allclose(lines["tpr"], tpr[1:])
    assert lines["rate"].iloc[-1] == 1


def test_without_truth_there_are_no_error_rates(people):
    del people["y_true"]
    curves = threshold_curves(**people)
    assert curves[["tpr", "fpr"]].isna().all(axis=None)
    assert (curves.groupby(["feature", "value"])["rate"].diff().dropna() <= 0).all()
    assert curves["threshold"].nunique() == 21


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"y_prob": [0.1, 1.2]}, r"y_prob must have shape \(2,\) and lie in 0..1"),
        ({"y_prob": [0.1, np.nan]}, "y_prob must have shape"),
        ({"y_prob": [0.1]}, r"y_prob must have shape \(2,\)"),
        ({"y_true": [0, 2]}, "y_true must have shape .* and hold 0, 1, or -1"),
        ({"y_true": [0, 1, 1]}, r"y_true must have shape \(2,\)"),
        ({"n_bins": 0}, "n_bins must be at least 1"),
        ({"confidence": 2}, "confidence must lie"),
    ],
)
def test_what_is_refused(options, words):
    given = {"y_true": [0, 1], "y_prob": [0.2, 0.4], "sensitive_features": ["a", "b"]} | options
    with pytest.raises(ValueError, match=words):
        calibration_curves(**given)


def test_a_probability_at_a_default_threshold_is_selected():
    prob = np.array([0.15, 0.3, 0.35, 0.6, 0.7, 0.85, 0.95])
    curves = threshold_curves(y_prob=prob, sensitive_features={"g": ["a"] * 7})
    of_all = curves[curves["feature"] == "all"]
    for rank, one in enumerate(prob):
        expected = pytest.approx((7 - rank) / 7)
        assert of_all.loc[np.isclose(of_all["threshold"], one), "rate"].item() == expected
