from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from audit_report_helpers import model
from torch_geometric.data import Data

import cfe_faiss as cfe
from cfe_faiss import audit

HOSTILE = "</script><img src=x onerror=alert(1)>"
LONG = "x" * 10_000
CONDITIONS = (
    "impact_ratio[member]>=1.5",
    audit.Condition("overall_accuracy", at_least=0.0),
    audit.Condition("only_in", at_most=1.0),
)


@dataclass(frozen=True)
class Audit:
    """Everything that a report is made from, and the report of it."""

    data: Any
    people: pd.DataFrame
    finder: cfe.EvidenceFinder
    folder: Path
    report: audit.Report

    @property
    def page(self):
        return self.report.files[0].read_text(encoding="utf-8")


def make_data(n=150):
    rng = np.random.default_rng(0)
    x = np.column_stack(
        [rng.integers(0, 2, n), rng.normal(size=n), rng.integers(18, 80, n) / 40]
    ).astype(np.float32)
    edges = rng.integers(0, n, (2, 3 * n))
    edges = edges[:, edges[0] != edges[1]]
    races = np.array(["Asian", "White", HOSTILE, LONG], dtype=object)[
        rng.choice(4, n, p=[0.48, 0.5, 0.01, 0.01])
    ]
    races[:2] = HOSTILE, LONG
    people = pd.DataFrame(
        {
            "member": x[:, 0],
            "sex": np.array(["f", "m", None], dtype=object)[rng.choice(3, n, p=[0.45, 0.5, 0.05])],
            "race": races,
            "income": x[:, 1],
            f"age {HOSTILE}": x[:, 2],
        }
    )
    data = Data(
        x=torch.from_numpy(x),
        edge_index=torch.from_numpy(np.concatenate([edges, edges[::-1]], axis=1)),
        y=torch.from_numpy(rng.integers(0, 2, n)),
    )
    data.feature_names = ["member", "income", "age"]
    data.class_names = [f"refused {HOSTILE}", "granted"]
    data.name = f"people {HOSTILE}"
    data.node_ids = np.array([f"{HOSTILE}{i}" for i in range(n)], dtype=object)
    return data, people


@pytest.fixture(scope="session")
def audited(tmp_path_factory):
    data, people = make_data()
    finder = cfe.EvidenceFinder.from_data(data, model, features=people)
    folder = tmp_path_factory.mktemp("report")
    written = audit.report(
        finder,
        folder / "report.html",
        sensitive=["member", "sex", "race"],
        favourable="granted",
        require=CONDITIONS,
        subject=audit.Subject(
            command="cfe-faiss audit --out report.html", seed=3, files={"people.csv": "0" * 64}
        ),
        pairs=60,
        figures=folder / "figures",
    )
    return Audit(data, people, finder, folder, written)
