import csv
import io
import json

import numpy as np
import pytest

from cfe_faiss.cli.output import write

HOSTILE = np.array(['a,"b"', "c\nd", "\x1b[2J", "é"], object)


def test_csv_and_json_hold_every_text(capsys):
    columns = {"a,b": HOSTILE, "n": np.array([1, 2, 3, 4])}
    write(columns, "csv")
    header, *rows = csv.reader(io.StringIO(capsys.readouterr().out, newline=""))
    assert header == ["a,b", "n"]
    # control characters are blanks
    assert [row[0] for row in rows] == ['a,"b"', "c d", " [2J", "é"]
    write(columns, "json")
    assert [row["a,b"] for row in json.loads(capsys.readouterr().out)] == HOSTILE.tolist()


@pytest.mark.parametrize(
    "text",
    [
        "=1+1",
        "@a",
        "+a",
        "-a",
        "-2+3+cmd|' /C calc'!A0",
        "\t=1+1",
        "\uff1d1+1",
        "-5 to 3+cmd|' /C calc'!A0",
    ],
)
def test_csv_holds_no_formula(capsys, text):
    write({text: np.array([text, "-2.5", "-5 to 3"], object)}, "csv")
    header, first, *numbers = csv.reader(io.StringIO(capsys.readouterr().out, newline=""))
    assert header[0].startswith("'")
    assert header == first
    assert numbers == [["-2.5"], ["-5 to 3"]]


def test_tables_have_one_line_for_each_row(capsys):
    write({"text": HOSTILE, "x": np.array([0.5, np.nan, 1, 2])}, None)
    lines = capsys.readouterr().out.splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[2].split() == ["c\\nd", "nan"]
    assert lines[3].split() == ["\\x1b[2J", "1.0000"]


def test_missing_values_and_booleans(capsys):
    columns = {
        "known": np.array([1, None], object),
        "text": np.array(["x", None], object),
        "flag": np.array([True, False]),
        "share": np.array([0.25, np.nan]),
    }
    write(columns, "json")
    assert json.loads(capsys.readouterr().out) == [
        {"known": 1, "text": "x", "flag": True, "share": 0.25},
        {"known": None, "text": None, "flag": False, "share": None},
    ]
    write(columns, "csv")
    assert capsys.readouterr().out == "known,text,flag,share\n1,x,True,0.25\n,,False,nan\n"


def test_similarities_read_1_for_equal_vectors_only(capsys):
    write({"similarity": np.array([1.0, 1 - 1e-9, 0.5])}, None)
    assert capsys.readouterr().out.split() == ["similarity", "1", "0.9999999990", "0.500000"]
    write({"similarity": np.array([1.0, 0.5], np.float32)}, None)
    assert capsys.readouterr().out.splitlines()[1].strip() == "> 0.999999"
