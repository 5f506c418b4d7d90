"""The audits of two models as reports: a GCN that decides on loans (German), and one that decides on bail (Bail).

The vectors that evidence is found by are made without the sensitive attributes, so that evidence that differs in one of
them says something about the model. Each report is an HTML file, with the numbers as JSON and CSV and the conditions as
JUnit beside it. It needs the extras "gnn" and "audit", and the two graphs in the folder CFE_DATA.

    CFE_DATA=... python examples/audit_german_bail.py [FOLDER]
"""

import os
import sys
from pathlib import Path

import cfe_faiss as cfe
from cfe_faiss import audit, models
from cfe_faiss.datasets import load

SEED = 0
AUDITS = {
    # name: sensitive attributes, the class that people want, learning rate and epochs
    "german": (["Gender", "Age"], "good customer", 0.01, 200),
    "bail": (["WHITE", "MALE"], "no recidivism", 0.05, 80),
}


def write_report(name: str, folder: Path) -> None:
    sensitive, favourable, lr, epochs = AUDITS[name]
    data = load(name, os.environ["CFE_DATA"], seed=SEED)
    model = models.gcn(data, seed=SEED)
    models.train(model, data, lr=lr, epochs=epochs, seed=SEED)
    finder = cfe.EvidenceFinder.from_data(data, model, without=sensitive, nodes=data.test_mask)
    report = audit.report(
        finder,
        folder / f"{name}.html",
        sensitive=sensitive,
        favourable=favourable,
        subject=audit.Subject(
            title=f"Audit of a GCN on {name.capitalize()}",
            data=name.capitalize(),
            model=f"GCN, two layers, trained here: learning rate {lr:g}, {epochs} epochs at most; its test nodes",
            command=f"python examples/audit_german_bail.py {folder}",
            seed=SEED,
        ),
        require=["impact_ratio>=0.8"],
    )
    print(*report.files, sep="\n")


if __name__ == "__main__":
    into = Path(sys.argv[1] if len(sys.argv) > 1 else "reports")
    into.mkdir(parents=True, exist_ok=True)
    for graph in AUDITS:
        write_report(graph, into)
