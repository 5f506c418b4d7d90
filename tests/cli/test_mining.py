"""``cfe-faiss labels`` and ``leaks``: their tables equal the functions, and their exit codes are gates."""

from io import StringIO
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


def table_of(capsys, *line):
    """Return exit status, table and notes of a command."""
    status = main([*line, "--csv"])
    captured = capsys.readouterr()
    return status, pd.read_csv(StringIO(captured.out), keep_default_na=False), captured.err


def test_labels_are_those_of_the_function(people, capsys):
    status, table, notes = table_of(capsys, *LABELS, "--picture", "labels.png")
    assert status == 1
    assert notes == (
        "cfe-faiss: note: 1 of 120 rows are left out, without a value of --labels\n"
        f"cfe-faiss: note: failed: labels with a score below 0.25: {WRONG} of 119; 0 allowed\n"
    )
    assert Path("labels.png").read_bytes().startswith(b"\x89PNG")
    labels = people["job"].astype(object).where(people["job"].notna(), None)
    expected = mining.label_errors(vectors(people), labels).to_frame(below=0.25)
    assert list(table) == list(expected)
    for column in ("row", "evidence", "support"):
        assert [int(name[3:]) for name in table[column]] == expected[column].tolist()  # "'=p5"
    assert table["given"].tolist() == expected["given"].tolist()
    np.testing.assert_allclose(table["score"], expected["score"], atol=1e-6)
    assert sorted(expected["row"]) == list(range(WRONG))
    assert set(table["suggested"]) == {"cook"}


def test_groups_do_not_judge_themselves(people, capsys):
    options = ["--groups", "people.csv:family", "--picture", "a.svg", "--below", "1"]
    _, table, _ = table_of(capsys, *LABELS, *options)
    assert len(table) > WRONG
    families = {f"'{person}": family for person, family in people[["person", "family"]].to_numpy()}
    for side in ("evidence", "support"):
        assert not (table["row"].map(families) == table[side].map(families)).any()
    assert Path("a.svg").read_text().startswith("<?xml")


def test_exit_codes_are_gates(people, capsys):
    assert main([*LABELS, "--allow", str(WRONG)]) == 0
    assert "passed: " in capsys.readouterr().err
    assert main([*LABELS, "--allow", str(WRONG - 1)]) == 1
    assert main([*LABELS, "--below", "0"]) == 0
    assert main([*LEAKS]) == 1
    assert main([*LEAKS, "--allow", "2"]) == 0
    shuffled = ["--features", "people.csv", "--id", "person", "--groups", "people.csv:job"]
    assert main(["leaks", *shuffled, "--ignore", "split", "family"]) == 0  # equal rows, equal jobs
    done = command(*LABELS, capture_output=True)
    assert (done.returncode, done.stderr.count("\n")) == (1, 2)
    done = command(*LABELS, "--allow", "-1", capture_output=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--allow must be" in done.stderr


def test_leaks_are_those_of_the_function(people, capsys):
    status, table, notes = table_of(capsys, *LEAKS, "--picture", "leaks.svg")
    assert status == 1
    assert "failed: pairs at distance 0 or nearer: 2, of 120 rows; 0 allowed" in notes
    assert table["source"].tolist() == ["'=p8", "'=p12"]
    assert table["target"].tolist() == ["'=p9", "'=p13"]
    assert table[["source_group", "target_group"]].to_numpy().tolist() == [["test", "train"]] * 2
    status, table, _ = table_of(capsys, *LEAKS, "--threshold", "0.4")
    assert status == 1
    pairs = mining.near_duplicates(vectors(people), people["split"], 0.4, metric="l2")
    assert len(table) == len(pairs) > 2
    np.testing.assert_allclose(table["distance"], np.sqrt(pairs.similarity), atol=1e-6)


def test_neighbourhoods_are_compared_by_similarity(people, capsys):
    near = ["--neighbours", "5"]
    status, table, _ = table_of(capsys, *LABELS, *near)
    assert status == 1
    assert "evidence_similarity" in table
    status, table, _ = table_of(capsys, *LEAKS, *near, "--threshold", "0.99")
    assert status == 1
    assert table["similarity"].min() >= 0.99
    assert main([*LEAKS, *near, "--threshold", "1.5"]) == 2
    assert "--threshold" in capsys.readouterr().err


def test_vectors_without_names(people, capsys):
    np.save("x.npy", vectors(people))
    people["job"].fillna("cook").to_csv("y.csv", index=False)
    line = ("labels", "--features", "x.npy", "--labels", "y.csv", "--allow", "9")
    status, table, _ = table_of(capsys, *line)
    assert status == 0
    assert sorted(table["row"][:WRONG]) == list(range(WRONG))


@pytest.mark.parametrize("graph", [(), ("--neighbours", "5")])
def test_columns_that_determine_the_label_get_a_remedy_of_this_command(people, capsys, graph):
    people["wage"] = people["job"].map({"cook": 10, "smith": 20, "clerk": 30})
    people.to_csv("people.csv", index=False)
    main([*LABELS, *graph])
    notes = capsys.readouterr().err
    assert "column 'wage' determines --labels" in notes
    assert "--truth" not in notes
    assert "--predictions" not in notes
    main([*LABELS, "wage", *graph])
    assert "wage" not in capsys.readouterr().err


def test_rows_without_a_group(people, capsys):
    people.loc[[8, 20], "split"] = None
    people.to_csv("people.csv", index=False)
    assert main([*LEAKS, "--allow", "1"]) == 0
    captured = capsys.readouterr()
    assert captured.err == (
        "cfe-faiss: note: 2 of 120 rows are left out, without a value of --groups\n"
        "cfe-faiss: note: passed: pairs at distance 0 or nearer: 1, of 118 rows; 1 allowed\n"
    )
    people.loc[3, "family"] = None
    people.to_csv("people.csv", index=False)
    assert main([*LABELS, "--groups", "people.csv:family"]) == 2
    assert "--groups must hold a group for each row, got none for =p3" in (capsys.readouterr().err)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ((*LABELS, "--picture", "people.csv"), "people.csv is an input of this call"),
        ((*LABELS, "--picture", "mine.csv"), "mine.csv is a file that cfe_faiss has not written"),
        ((*LABELS, "--picture", "a.foo"), "--picture must end in one of"),
        ((*LABELS, "--picture", "none/a.png"), "there is no such folder"),
        ((*LABELS, "--truth", "people.csv:job"), "--truth"),
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
        ((*LEAKS[:5], "--groups", "one.csv:group"), "--groups must hold two values at least"),
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
