import re

import numpy as np
import pytest
from audit_report_helpers import rows_of, text_of
from simulated_people import finder_of, simulated

from cfe_faiss import audit
from cfe_faiss.audit.reporting.sections.model_tests import change_key

N = 600


@pytest.fixture(scope="module")
def clean():
    return finder_of(simulated(3, N), town=np.random.default_rng(0).choice(["a", "b", "c"], N))


@pytest.fixture(scope="module")
def compared(clean, tmp_path_factory):
    harmed, rest = simulated(3, N, harm=0.6)["labels"], simulated(8, N)["labels"]
    return audit.report(
        clean,
        tmp_path_factory.mktemp("models") / "report.html",
        sensitive=["sex", "town"],
        favourable=1,
        compare={"v2": harmed, "other": rest},
        require=["evidence_pairs<=v1", "changed_share<=0.2"],
        pairs=200,
        progress=False,
    )


def test_the_models_stand_side_by_side_on_the_first_page(clean, compared):
    page = compared.files[0].read_text()
    first = text_of(page[: page.index('<h2 id="undetermined"')])
    assert "The models side by side" in first
    assert page.count("The models side by side</strong>") == 1
    threshold = float(clean.top_pairs(200).similarity[-1])
    models = audit.compare_models(
        clean, {"v2": simulated(3, N, harm=0.6)["labels"]}, threshold=threshold, unfavourable=0
    ).models
    rows = rows_of(compared, "models", "models")
    assert [row["model"] for row in rows] == ["v1", "v2", "other"]
    for name in ("evidence", "changed_share"):
        assert [row[name] for row in rows[:2]] == models[name].tolist()
    assert rows[1]["selected"] == pytest.approx(1 - models["unfavourable"][1])
    assert rows[1]["selected_low"] < rows[1]["selected"] < rows[1]["selected_high"]
    assert re.search(r"v2 puts \d+ people in another class than v1", first)


def test_all_tests_are_one_family(clean, compared):
    rows = rows_of(compared, "tests", "all_tests")
    changes = [row for row in rows if "change" in row["test"]]
    assert {row["group"].split(": ")[0] for row in changes} == {"v2", "other"}
    p = [row["p"] for row in rows if row["p"] is not None]
    assert len(p) < len(rows)
    ratios = audit.group_metrics(
        y_pred=clean.labels, sensitive_features=clean.attributes, favourable=1
    ).summary.set_index("feature")["p"]
    both = [("sex", "town")]
    options = {"sensitive": ["sex", "town"], "unfavourable": 0, "intersections": both}
    own = {"v2": simulated(3, N, harm=0.6)["labels"], "other": simulated(8, N)["labels"]}
    further = audit.compare_models(clean, own, **options).table
    others = {**ratios, **{change_key(row): row["p"] for row in further.to_dict("records")}}
    family = audit.direct_effects(clean, others=others, **options)
    found = {(row["group"], row["test"]): row["q"] for row in changes}
    expected = family.others[
        change_key({"model": "v2", "test": "rates", "attribute": "sex", "value": "f"})
    ]
    assert found["v2: sex = f", "change of the rate"] == pytest.approx(expected)
    assert any("sex = f: v2 decides" in line for line in compared.numbers["named"])
    direct = {
        (row["group"], row["test"]): row["verdict"]
        for row in changes
        if row["test"] != "change of the rate"
    }
    assert direct["v2: sex = f", "change: nearest neighbours"] == "disadvantaged"
    assert ("v2: sex = m", "change: nearest neighbours") not in direct, "the mirror image of f"


def test_conditions_on_models(compared):
    checks = {(str(check.condition), check.group): check for check in compared.checks}
    assert set(checks) == {
        *(("evidence_pairs <= v1", name) for name in ("v2", "other")),
        *(("changed_share <= 0.2", name) for name in ("v1", "v2", "other")),
    }
    rows = {row["model"]: row for row in rows_of(compared, "models", "models")}
    for name in ("v2", "other"):
        fails = rows[name]["evidence"] > rows["v1"]["evidence"]
        assert checks["evidence_pairs <= v1", name].outcome == ("fail" if fails else "pass")
    assert checks["changed_share <= 0.2", "v1"].outcome == "pass"
    assert checks["changed_share <= 0.2", "other"].outcome == "fail"


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"compare": {"v1": [0] * N}}, ValueError, "compare must name each model once, got 'v1'"),
        ({"compare": {"v2": [0] * 10}}, ValueError, r"compare\['v2'\] must be"),
        ({"compare": {}}, ValueError, "compare must hold another model"),
        (
            {"compare": {"v2": [0, 1] * (N // 2)}, "require": ["evidence_pairs<=v3"]},
            ValueError,
            "require .*got 'v3'",
        ),
    ],
)
def test_bad_arguments(clean, tmp_path, options, error, words):
    with pytest.raises(error, match=words):
        audit.report(clean, tmp_path / "report.html", progress=False, **options)
    assert list(tmp_path.iterdir()) == []
