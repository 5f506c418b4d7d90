"""What writes each kind of file, for tests of files that are replaced, interrupted or refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference import with_rows
from stores import filled

import cfe_faiss as cfe
from cfe_faiss import audit, scale
from cfe_faiss.files.outputs import write_picture

Figure = pytest.importorskip("matplotlib.figure").Figure
pytest.importorskip("jinja2")

N, D = 60, 6
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, D)).astype(np.float32)
EDGES = RNG.integers(N, size=(2, 200))
LABELS = RNG.integers(2, size=N)
JOB: dict[str, Any] = {"k": 2, "nlist": 4, "shards": 1, "block_rows": N, "pairs": 3}


def inverted_file() -> cfe.IndexEvidenceIVF:
    return with_rows(cfe.IndexEvidenceIVF(D, 6), X, LABELS)


def write_report(folder: Path, *, figures: bool = True, overwrite: bool = False) -> audit.Report:
    finder = cfe.EvidenceFinder.from_vectors(X, LABELS)
    options: dict[str, Any] = {"pairs": 5, "cases": 1, "k": 2, "progress": False}
    drawn = folder / "drawn" if figures else None
    return audit.report(finder, folder / "r.html", figures=drawn, overwrite=overwrite, **options)


def write_pictures(
    folder: Path, names: tuple[str, ...] = ("a.png", "b.svg"), *, overwrite: bool = False
) -> None:
    picture = Figure()
    picture.subplots().plot([1, 2])
    for name in names:
        write_picture(picture, folder / name, overwrite=overwrite)


def write_job(folder: Path, *, overwrite: bool = False) -> None:
    scale.Job(folder, X, EDGES, LABELS, **JOB, overwrite=overwrite).run(workers=1)


WRITERS: dict[str, Callable[..., object]] = {
    "index": lambda folder, **how: cfe.write_index(inverted_file(), folder / "a.index", **how),
    "store": lambda folder, **how: filled(20)[0].save(folder, **how),
    "shards": lambda folder, **how: scale.write_shards(inverted_file(), folder, 2, **how),
    "job": write_job,
    "report": write_report,
    "pictures": write_pictures,
}
