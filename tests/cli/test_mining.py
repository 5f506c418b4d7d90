"""``cfe-faiss labels`` and ``leaks``: their tables equal the functions, and their exit codes are gates."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from commands import command

from cfe_faiss import mining
from cfe_faiss.attributes.table import as_attributes
from cfe_faiss.cli import main
from cfe_faiss.data.encode import encode

LABELS = (
    *("labels", "--features", "people.csv", "--id", "person", "--labels", "people.csv:job"),
    *("--ignore", "split", "family"),
)
LEAKS = (
    *("leaks", "--features", "people.csv", "--id", "person", "--groups", "people.csv:split"),
    *("--ignore", "job", "family"),
)
WRONG = 6


@pytest.fixture
def people(tmp_path, monkeypatch):
    """A table with six wrong labels, one missing label, and two rows that are in both splits."""
    rng = np.random.default_rng(0)
    n = 120
    job = np.repeat(["cook", "smith", "clerk"], n // 3)
    frame = pd.DataFrame({"person": [f"=p{i}" for i in range(n)], "job": job})
    for column in ("height", "weight", "strength"):
        centres = dict(zip(("cook", "smith", "clerk"), rng.permutation([0, 6, 12]), strict=True))
        frame[column] = (frame["job"].map(centres) + rng.normal(size=n)).round(3)
    frame.loc[: WRONG - 1, "job"] = "smith"
    frame.loc[7, "job"] = None
    frame["split"] = np.where(np.arange(n) % 4 == 0, "test", "train")
    values = ["height", "weight", "strength"]
    frame.loc[[8, 12], values] = frame.loc[[9, 13], values].to_numpy()
    frame["family"] = [f"f{i // 3}" for i in range(n)]
    monkeypatch.chdir(tmp_path)
    frame.to_csv("people.csv", index=False)
    return frame


def vectors(people):
    return encode(as_attributes(people[["height", "weight", "strength"]])).x


def test_labels_are_those_of_the_function(people, capsys):
    assert main([*LABELS]) == 1
    captured = capsys.readouterr()
    assert captured.out.splitlines()[-3:] == [
        "labels.csv",
        "labels.png",
        f"failed: {WRONG} of 119 labels have a score below 0.25; 0 allowed",
    ]
    assert (
        captured.err
        == "cfe-faiss: note: not judged: 1 of 120 rows, which have no label, or no other group has one\n"
    )
    assert Path("labels.png").read_bytes().startswith(b"\x89PNG")
    table = pd.read_csv("labels.csv", keep_default_na=False)
    labels = people["job"].astype(object).where(people["job"].notna(), None)
    expected = mining.label_errors(vectors(people), labels).to_frame()
    assert list(table) == list(expected)
    assert [int(name[3:]) for name in table["row"]] == expected["row"].tolist()  # "'=p5" is a text
    assert [int(name[3:]) for name in table["evidence"][:119]] == expected["evidence"].tolist()[
        :119
    ]
    assert table["given"].tolist()[:119] == expected["given"].tolist()[:119]
    assert table.iloc[-1][["given", "suggested", "evidence", "score"]].tolist() == [
        "",
        "",
        "",
        "nan",
    ]
    assert sorted(expected["row"][:WRONG]) == list(range(WRONG))
    assert set(table["suggested"][:WRONG]) == {"cook"}


def test_groups_do_not_judge_themselves(people):
    options = ["--groups", "people.csv:family", "--out", "a.csv", "--picture", "a.svg"]
    assert main([*LABELS, *options]) == 1
    table = pd.read_csv("a.csv", keep_default_na=False).iloc[:119]
    families = {f"'{person}": family for person, family in people[["person", "family"]].to_numpy()}
    for side in ("evidence", "support"):
        assert not (table["row"].map(families) == table[side].map(families)).any()
    assert Path("a.svg").read_text().startswith("<?xml")


def test_exit_codes_are_gates(people, capsys):
    assert main([*LABELS, "--allow", str(WRONG)]) == 0
    assert "passed: " in capsys.readouterr().out
    assert main([*LABELS, "--allow", str(WRONG - 1)]) == 1
    assert main([*LABELS, "--below", "0"]) == 0
    assert main([*LEAKS]) == 1
    assert main([*LEAKS, "--allow", "2"]) == 0
    shuffled = ["--features", "people.csv", "--id", "person", "--groups", "people.csv:job"]
    assert main(["leaks", *shuffled, "--ignore", "split", "family"]) == 0  # equal rows, equal jobs
    done = command(*LABELS, capture_output=True)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    done = command(*LABELS, "--allow", "-1", capture_output=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--allow must be" in done.stderr


def test_leaks_are_those_of_the_function(people, capsys):
    assert main([*LEAKS, "--picture", "leaks.svg"]) == 1
    out = capsys.readouterr().out
    assert "failed: 2 pairs of 4 rows in different groups, distance at most 0; 0 allowed" in out
    table = pd.read_csv("leaks.csv")
    assert table["source"].tolist() == ["'=p8", "'=p12"]
    assert table["target"].tolist() == ["'=p9", "'=p13"]
    assert table[["source_group", "target_group"]].to_numpy().tolist() == [["test", "train"]] * 2
    assert main([*LEAKS, "--threshold", "0.4"]) == 1
    pairs = mining.near_duplicates(vectors(people), people["split"], 0.4, metric="l2")
    table = pd.read_csv("leaks.csv")
    assert len(table) == len(pairs) > 2
    np.testing.assert_allclose(table["distance"], np.sqrt(pairs.similarity), atol=1e-6)


def test_neighbourhoods_are_compared_by_similarity(people, capsys):
    near = ["--neighbours", "5", "--out", "near.csv", "--picture", "near.png"]
    assert main([*LABELS, *near]) == 1
    assert "evidence_similarity" in pd.read_csv("near.csv")
    assert main([*LEAKS, *near, "--threshold", "0.99", "--overwrite"]) == 1
    assert pd.read_csv("near.csv")["similarity"].min() >= 0.99
    capsys.readouterr()
    assert main([*LEAKS, *near, "--threshold", "1.5", "--overwrite"]) == 2
    assert "--threshold" in capsys.readouterr().err


def test_vectors_without_names(people, capsys):
    np.save("x.npy", vectors(people))
    people["job"].fillna("cook").to_csv("y.csv", index=False)
    assert main(["labels", "--features", "x.npy", "--labels", "y.csv", "--allow", "9"]) == 0
    assert sorted(pd.read_csv("labels.csv")["row"][:WRONG]) == list(range(WRONG))


def test_rows_without_a_group(people, capsys):
    people.loc[[8, 20], "split"] = None
    people.to_csv("people.csv", index=False)
    assert main([*LEAKS, "--allow", "1"]) == 0
    captured = capsys.readouterr()
    assert "1 pair of 2 rows" in captured.out
    assert captured.err == "cfe-faiss: note: left out: 2 rows without a group\n"
    people.loc[3, "family"] = None
    people.to_csv("people.csv", index=False)
    assert main([*LABELS, "--groups", "people.csv:family"]) == 2
    assert "--groups must hold a group for each row, got none for =p3" in (capsys.readouterr().err)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ((*LABELS, "--picture", "labels.csv"), "the outputs of a call must be different files"),
        ((*LABELS, "--out", "people.csv"), "people.csv is an input of this call"),
        ((*LABELS, "--out", "mine.csv"), "mine.csv is a file that cfe_faiss has not written"),
        ((*LABELS, "--picture", "a.foo"), "--picture must end in one of"),
        ((*LABELS, "--out", "a.parquet"), "--out must end in .csv"),
        ((*LABELS, "--out", "none/a.csv"), "there is no such folder"),
        ((*LABELS, "--below", "1.5"), "--below must"),
        ((*LEAKS, "--threshold", "-1"), "--threshold must"),
        ((*LEAKS, "--threshold", "nan"), "--threshold must"),
        (("labels", "--features", "people.csv"), "--labels"),
        (("leaks", "--features", "people.csv"), "--groups"),
        (("labels", "--labels", "people.csv:job"), "--features"),
        ((*LABELS[:5], "--labels", "people.csv:jobs"), "did you mean 'job'?"),
        ((*LABELS[:5], "--labels", "people.csv:height"), "height"),
        ((*LABELS, "--groups", "people.csv:famly"), "did you mean 'family'?"),
        ((*LABELS, "--groups", "one.csv:group"), "in two groups at least"),
        ((*LEAKS[:5], "--groups", "one.csv:group"), "--groups must be at least two"),
        (
            (*LABELS[:5], "--labels", "empty.csv:job", "--ignore", "split", "family", "job"),
            "--labels must",
        ),
    ],
)
def test_wrong_input_is_exit_code_2_and_writes_nothing(people, capsys, line, message):
    Path("mine.csv").write_text("mine")
    people.assign(job=None)[["person", "job"]].to_csv("empty.csv", index=False)
    people.assign(group="a")[["person", "group"]].to_csv("one.csv", index=False)
    before = {path.name for path in Path().iterdir()}
    assert main([*line]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err.splitlines()[-1]
    assert {path.name for path in Path().iterdir()} == before
    assert Path("mine.csv").read_text() == "mine"


def test_own_files_are_replaced(people):
    for line in (LABELS, LEAKS):
        for _ in range(2):
            assert main([*line]) == 1
