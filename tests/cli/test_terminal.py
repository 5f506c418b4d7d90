import re
from pathlib import Path

import numpy as np
import pytest
from commands import run_on_terminal

from cfe_faiss.cli import output as written
from cfe_faiss.cli.output import print_table

STYLE = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.parametrize("width", [60, 80, 120])
def test_tables_fit_a_real_terminal(folder: Path, people, width: int) -> None:
    for command in ("local", "global"):
        shown, status = run_on_terminal(width, command, folder / "flat.cfe", "-k", 3)
        assert status == 0
        lines = [STYLE.sub("", line) for line in shown.splitlines() if "note:" not in line]
        assert max(map(len, lines)) <= width
        assert "similarity" in shown
        assert "…" not in shown


def test_no_colour(folder: Path) -> None:
    shown, _ = run_on_terminal(80, "global", folder / "flat.cfe", "-k", 2, NO_COLOR="1")
    assert not re.search(r"\x1b\[(3|9)\d", shown)


def test_dumb_terminals_get_plain_text(folder: Path) -> None:
    shown, _ = run_on_terminal(80, "global", folder / "flat.cfe", "-k", 2, TERM="dumb")
    assert "\x1b" not in shown


def test_numbers_are_never_cut(capsys: pytest.CaptureFixture[str]) -> None:
    columns = {"name": ["a b c d e f g h i", "x"], "long_number": ["123456789012", "7"], "rate": ["0.5000", "0.2500"]}
    for width in (30, 40, 100):
        print_table(columns, numeric={"long_number", "rate"}, width=width)
        shown = capsys.readouterr().out
        assert max(map(len, shown.splitlines())) <= width
        assert all(number in shown for number in ("123456789012", "0.5000", "0.2500"))


def test_rows_become_blocks_where_nothing_else_fits(capsys: pytest.CaptureFixture[str]) -> None:
    columns = {"one": ["123456", "1"], "two": ["123456", "2"], "name": ["abcdefghijklmnop", "b"]}
    print_table(columns, numeric={"one", "two"}, width=16)
    assert capsys.readouterr().out.splitlines() == [
        "─ 1 ────────────",
        "one   123456",
        "two   123456",
        "name  abcdefghij",
        "      klmnop",
        "─ 2 ────────────",
        "one   1",
        "two   2",
        "name  b",
    ]


def test_markup_and_long_texts(capsys: pytest.CaptureFixture[str]) -> None:
    print_table({"value": ["[red]x[/red] :smile:", "y" * 10_000]}, numeric=set(), width=100)
    shown = capsys.readouterr().out
    assert "[red]x[/red] :smile:" in shown
    assert f"{'y' * 59}…" in shown
    print_table({"value": [], "n": []}, numeric={"n"}, width=100)
    assert capsys.readouterr().out.split("\n")[0].split() == ["value", "n"]


def test_many_rows_end_with_a_note(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    written.write({"n": np.arange(1500)}, None)
    captured = capsys.readouterr()
    assert "999" in captured.out
    assert "1000" not in captured.out
    assert captured.err == "cfe-faiss: note: the first 1,000 of 1,500 rows; --csv or --json writes all of them\n"
