"""Try an installed package: search, files, the command, and the extras.

python -I .ci/smoke.py [EXTRA...], from an empty folder; EXTRA is what was installed and must work. Any other
works, too, where its packages came along with those, or says how it is installed.
"""

import importlib
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np

import cfe_faiss as cfe


def core() -> None:
    rng = np.random.default_rng(0)
    X = cfe.ks_vectors(rng.normal(size=(500, 8)), rng.integers(500, size=(2, 1500)))
    labels = rng.integers(3, size=500)
    exact = cfe.IndexEvidenceFlat(8)
    exact.add_with_labels(X, labels)
    ivf = cfe.index_factory(8, "EvidenceIVF10,Flat")
    ivf.train(X)
    ivf.add_with_labels(X, labels)
    I = exact.search_stored(k=5)[1]
    assert (labels[I] != labels[:, None]).all()
    cfe.write_index(ivf, "evidence.index")
    for found in (ivf, cfe.read_index("evidence.index")):
        assert (found.search_stored(k=5, exact=True)[1] == I).all()
    assert (cfe.EvidenceNeighbors(5).fit(X, labels).kneighbors(return_distance=False) == I).all()
    command = [Path(sys.executable).with_name("cfe-faiss"), "info", "evidence.index"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def people() -> tuple[SimpleNamespace, cfe.EvidenceFinder]:
    rng = np.random.default_rng(0)
    data = SimpleNamespace(x=rng.normal(size=(60, 4)), edge_index=rng.integers(60, size=(2, 200)))
    sex = {"sex": np.arange(60) % 2}
    return data, cfe.EvidenceFinder.from_data(data, rng.integers(2, size=60), features=sex)


def gnn() -> None:
    from cfe_faiss import datasets, models

    data = datasets.load("patients")
    model = models.build("gcn", data)
    assert len(cfe.EvidenceFinder.from_data(data, model).local(k=3).to_frame()) > 0


def plot() -> None:
    from cfe_faiss.plot import evidence_figure

    data, finder = people()
    pair = finder.top_pairs(k=1)
    figure = evidence_figure(data, int(pair.source[0]), int(pair.target[0]), labels=finder.labels)
    figure.savefig("pair.png")


def audit() -> None:
    from cfe_faiss import audit

    _, finder = people()
    audit.report(finder, "report.html", sensitive=["sex"])
    assert Path("report.html").stat().st_size > 10_000


def store() -> None:
    documents = cfe.EvidenceStore(2)
    documents.add(["a", "b"], np.eye(2), ["spam", "ham"], [{"lang": "de"}, {"lang": "en"}])
    documents.save("documents")
    assert cfe.EvidenceStore.load("documents").evidence("a", 1, where={"lang": "en"}).ids == ["b"]


def langchain() -> None:
    importlib.import_module("cfe_faiss.integrations.langchain")


def llama_index() -> None:
    importlib.import_module("cfe_faiss.integrations.llama_index")


def haystack() -> None:
    importlib.import_module("cfe_faiss.integrations.haystack")


def ray() -> None:
    from cfe_faiss.scale import Job

    data, finder = people()
    job = Job(
        "job",
        features=data.x,
        edges=data.edge_index,
        labels=finder.labels,
        k=3,
        exact=True,
        pairs=0,
        nlist=4,
    )
    job.run("ray", workers=1)
    assert (
        job.evidence().to_table()["evidence"].to_pylist()
        == finder.local(k=3, exact=True).evidence.ravel().tolist()
    )


EXTRAS: dict[str, Callable[[], None]] = {
    "gnn": gnn,
    "plot": plot,
    "audit": audit,
    "store": store,
    "langchain": langchain,
    "llama-index": llama_index,
    "haystack": haystack,
    "ray": ray,
}


def main(installed: list[str]) -> None:
    core()
    for name, use in EXTRAS.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # those of the others' packages
                use()
        except ImportError as error:
            if name in installed or not re.search(
                r'pip install "cfe-faiss\[[a-z-]+\]"', str(error)
            ):
                raise


if __name__ == "__main__":
    main(sys.argv[1:])
