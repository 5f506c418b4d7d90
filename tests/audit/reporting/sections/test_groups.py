from types import SimpleNamespace

import numpy as np
import pytest
from audit_report_helpers import inputs_of, section_of

import cfe_faiss as cfe
from cfe_faiss.audit import Condition
from cfe_faiss.audit.reporting.conditions import check_all

pytestmark = pytest.mark.filterwarnings("ignore:no true class:cfe_faiss.InputWarning")


def made(section, people, labels, sensitive, favourable=1, y=None):
    n = len(labels)
    x = np.random.default_rng(0).normal(size=(n, 3)).astype(np.float32)
    data = SimpleNamespace(x=x, edge_index=np.stack([np.arange(n - 1), np.arange(1, n)]), y=y)
    finder = cfe.EvidenceFinder.from_data(data, labels, features=people)
    return section_of(inputs_of(finder, sensitive, favourable), section)


def test_a_group_that_is_not_ranked_is_not_judged():
    found = made(
        "groups", {"city": ["A"] * 100 + ["B"] * 90 + ["C"] * 29}, [0, 1] * 95 + [0] * 29, ["city"]
    )

    def reasons(metric):
        condition = Condition(metric, "city", at_least=0, min_cases=1)
        return {
            check.group: check.reason
            for check in check_all([condition], {"groups": found.measured}, ["city"])
        }

    assert reasons("impact_ratio") == {"A": "", "B": "", "C": "the group is not ranked"}
    assert reasons("selection_rate") == {"A": "", "B": "", "C": ""}
    assert "Too small to be ranked: city = C (29)." in found.undetermined


def test_a_page_of_many_classes_stays_short():
    people = {name: ["a", "b"] * 20 for name in ("sex", "race")}
    labels = np.arange(40) % 14
    found = made("groups", people, labels, ["sex", "race"], favourable=None, y=labels)
    rates, _ = found.tables
    assert len(rates.rows) > rates.limit
