import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from commands import N, assert_wrote, frame_of

import cfe_faiss as cfe
from cfe_faiss import audit, models
from cfe_faiss.cli import main
from cfe_faiss.cli.parser import MODELS
from cfe_faiss.datasets import load


def of(index: Any, features: Any = None) -> cfe.EvidenceFinder:
    return cfe.EvidenceFinder.from_index(index, features=features)


@pytest.mark.parametrize("style", ["json", "csv"])
def test_discrimination_writes_the_results_of_the_api(folder: Path, people, output, style: str) -> None:
    index = cfe.read_index(folder / "ivf.cfe")
    options = ("--features", folder / "people.csv")
    text = output("discrimination", folder / "ivf.cfe", *options, f"--{style}")
    assert_wrote(text, style, audit.discrimination_scores(of(index, people)))
    options += ("--columns", "sex", "age", "--bins", "age=0,30,99", "--cross", "sex", "zero", "--nodes", 3, 5, 8)
    options += ("-k", 4, "--nprobe", 2, "--sensitive", "sex")
    expected = audit.discrimination_scores(
        of(index, people),
        nodes=[3, 5, 8],
        k=4,
        columns=["sex", "age"],
        bins={"age": [0, 30, 99]},
        intersections=[("sex", "zero")],
        sensitive=["sex"],
        nprobe=2,
    )
    assert expected["score"].isna().any()
    assert_wrote(output("discrimination", folder / "ivf.cfe", *options, f"--{style}"), style, expected)


@pytest.mark.parametrize(
    ("bins", "expected"), [(["3"], 3), (["age=5"], {"age": 5}), (["age=30,"], {"age": [30]}), (["age=-1,2.5"], None)]
)
def test_bins(folder: Path, people, output, bins: list[str], expected) -> None:
    expected = {"age": [-1, 2.5]} if expected is None else expected
    text = output("consistency", folder / "flat.cfe", "--features", folder / "people.csv", "--csv", "--bins", *bins)
    assert_wrote(text, "csv", audit.consistency(of(cfe.read_index(folder / "flat.cfe"), people), bins=expected))


def test_attributes_from_arrays_and_from_text_without_a_header(folder: Path, people, output, tmp_path: Path) -> None:
    values = people[["age", "zero"]].to_numpy()
    expected = audit.consistency(
        of(cfe.read_index(folder / "flat.cfe"), pd.DataFrame(values, columns=["feature 0", "feature 1"]))
    )
    np.save(tmp_path / "a.npy", values)
    np.savetxt(tmp_path / "a.txt", values)
    np.savetxt(tmp_path / "a.csv", values, delimiter=",", fmt="%d")
    for name in ("a.npy", "a.txt", "a.csv"):
        assert_wrote(
            output("consistency", folder / "flat.cfe", "--features", tmp_path / name, "--json"), "json", expected
        )
    np.save(tmp_path / "b.npy", values[:, 0])
    text = output("consistency", folder / "flat.cfe", "--features", tmp_path / "b.npy", "--csv")
    assert set(frame_of(text, "csv")["feature"]) == {"all", "feature 0"}


def test_consistency_of_all_nodes_as_a_table(folder: Path, output) -> None:
    header, line = output("consistency", folder / "ivf.cfe", "--nprobe", 3).splitlines()
    expected = audit.consistency(of(cfe.read_index(folder / "ivf.cfe")), nprobe=3)
    assert header.split() == list(expected.columns)
    assert line.split() == [
        text for text in (f"{v:.4f}" if isinstance(v, float) else str(v) for v in expected.loc[0]) if text
    ]


def test_tables_stand_in_columns(folder: Path, people, output) -> None:
    text = output("discrimination", folder / "flat.cfe", "--features", folder / "people.csv", "--bins", "age=-9,-1")
    lines = text.splitlines()
    assert len({len(line) for line in lines}) == 1
    assert sum(line.count("nan") > 1 for line in lines) == 2
    assert sum('m, "or" so' in line for line in lines) == 1


@pytest.mark.parametrize("style", ["json", "csv"])
def test_errors_writes_the_results_of_the_api(folder: Path, output, style: str) -> None:
    y = np.arange(N) % 4
    y[::9] = -1
    np.savetxt(folder / "truth.txt", y, fmt="%d")
    finder = cfe.EvidenceFinder.from_index(cfe.read_index(folder / "ivf.cfe"), truth=y)
    text = output("errors", folder / "ivf.cfe", "--truth", folder / "truth.txt", f"--{style}")
    assert_wrote(text, style, audit.error_rate_by_evidence(finder))
    flags = ("-k", 5, 50, "--per-node", "--approximate", "--nprobe", 1, "--confidence", 0.5)
    expected = audit.error_rate_by_evidence(finder, ks=[5, 50], per_node=True, exact=False, nprobe=1, confidence=0.5)
    text = output("errors", folder / "ivf.cfe", "--truth", folder / "truth.txt", *flags, f"--{style}")
    assert_wrote(text, style, expected)


def test_applications_on_a_data_set(patients: Path, output) -> None:
    data, index = load("patients", seed=2), cfe.read_index(patients)
    text = output("errors", patients, "--dataset", "patients", "-k", 10, 20, "--csv")
    finder = cfe.EvidenceFinder.from_index(index, truth=data.y)
    assert_wrote(text, "csv", audit.error_rate_by_evidence(finder, ks=[10, 20]))
    text = output("discrimination", patients, "--dataset", "patients", "--csv")
    assert_wrote(text, "csv", audit.discrimination_scores(of(index, data)))


def test_fine_tune_trains_the_model_of_build(patients: Path, output) -> None:
    flags = ("--dataset", "patients", "--seed", 2, "-k", 20, "--runs", 2, "--epochs", 4, "--lr", 0.02)
    data = load("patients", seed=2)
    model = models.build("sage", data, seed=2)
    models.train(model, data, seed=2)
    finder = cfe.EvidenceFinder.from_data(data, model)
    pairs = cfe.global_evidence(cfe.read_index(patients), 20)
    tuned = audit.fine_tune(finder, pairs=pairs, seeds=[0, 1], epochs=4, lr=0.02)
    text = output("fine-tune", patients, *flags, "--model", "sage", "--csv", "--summary")
    assert_wrote(text, "csv", tuned.summary)


def test_fine_tune_notes_another_model(patients: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--dataset", "patients", "--runs", "1", "--epochs", "2"]
    assert main(["fine-tune", str(patients), *flags]) == 0
    assert re.search(
        r"note: the model predicts another class than the index says for \d+ of 142", capsys.readouterr().err
    )


def test_models_match_the_package() -> None:
    assert tuple(models.NAMES) == MODELS
