"""Samples of the site, made by every build from a made-up table: a report and an explorer of pairs."""

from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.ensemble import GradientBoostingClassifier
from sphinx.application import Sphinx

import cfe_faiss as cfe
from cfe_faiss import audit


def applicants(n: int = 1500) -> pd.DataFrame:
    """Return made-up applicants for a loan: more is asked of women than of men with the same figures."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "applicant": [f"A{number:04}" for number in range(n)],
            "income": rng.normal(40, 12, n).round(1),
            "debt": rng.gamma(2, 6, n).round(1),
            "years employed": rng.integers(0, 30, n),
            "housing": rng.choice(["rent", "own", "family"], n, p=[0.5, 0.3, 0.2]),
            "sex": rng.choice(["female", "male"], n),
            "origin": rng.choice(["domestic", "foreign"], n, p=[0.85, 0.15]),
        }
    )
    score = (
        table["income"]
        - table["debt"]
        + table["years employed"] / 2
        - 8 * (table["sex"] == "female")
    )
    table["repaid"] = np.where(score + rng.normal(0, 6, n) > 30, "yes", "no")
    return table


def write(path: Path) -> None:
    """Write the report of a model that learnt from such applicants and knows their sex."""
    table = applicants()
    features = pd.get_dummies(table.drop(columns=["applicant", "repaid"]), dtype=float)
    model = GradientBoostingClassifier(random_state=0).fit(features, table["repaid"])
    finder = cfe.EvidenceFinder.from_table(
        table,
        model.predict(features),
        probabilities=model.predict_proba(features),
        truth="repaid",
        id="applicant",
        sensitive=["sex", "origin"],
    )
    audit.report(
        finder,
        path,
        explorer=path.with_name("sample_pairs.html"),
        favourable="yes",
        better={"income": "high", "debt": "low", "years employed": "high"},
        require=["impact_ratio>=0.8"],
        overwrite=True,
        progress=False,
        subject=audit.Subject(
            title="Sample: audit of a loan model",
            data="1,500 made-up applicants",
            model="gradient boosting, which knows the sex",
            people="applicants",
        ),
    )


def _written(app: Sphinx, error: Exception | None) -> None:
    if error is None and app.builder.format == "html":
        write(Path(app.outdir) / "sample_report.html")


def setup(app: Sphinx) -> dict[str, bool]:
    """Write the report after each HTML build."""
    app.connect("build-finished", _written)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
