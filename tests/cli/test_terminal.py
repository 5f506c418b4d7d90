import re

import numpy as np
import pytest
from commands import run_on_terminal

from cfe_faiss.cli import output as written

STYLE = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.parametrize("width", [60, 80, 120])
def test_tables_fit_a_real_terminal(folder, people, width):
    for command in ("local", "global"):
        shown, status = run_on_terminal(width, command, folder / "flat.cfe", "-k", 3)
        assert status == 0
        lines = [STYLE.sub("", line) for line in shown.splitlines() if "note:" not in line]
        assert max(map(len, lines)) <= width
        assert "similarity" in shown
        assert "…" not in shown


def test_no_colour(folder):
    shown, _ = run_on_terminal(80, "global", folder / "flat.cfe", "-k", 2, NO_COLOR="1")
    assert not re.search(r"\x1b\[(3|9)\d", shown)


def test_dumb_terminals_get_plain_text(folder):
    shown, _ = run_on_terminal(80, "global", folder / "flat.cfe", "-k", 2, TERM="dumb")
    assert "\x1b" not in shown


@pytest.fixture
def shown(monkeypatch, capsys):
    """Write columns on a terminal of a width, and return its lines."""

    def show(columns, width):
        monkeypatch.setattr("sys.stdout.isatty", lambda: True)
        monkeypatch.setenv("COLUMNS", str(width))
        written.write({name: np.array(values, object) for name, values in columns.items()}, None)
        return capsys.readouterr().out.splitlines()

    return show


def test_numbers_are_never_cut(shown):
    columns = {
        "name": ["a b c d e f g h i", "x"],
        "long_number": [123456789012, 7],
        "rate": [0.5, 0.25],
    }
    for width in (30, 40, 100):
        lines = shown(columns, width)
        assert max(map(len, lines)) <= width
        assert all(number in "".join(lines) for number in ("123456789012", "0.5000", "0.2500"))


def test_markup_and_long_texts(shown):
    text = "\n".join(shown({"value": ["[red]x[/red] :smile:", "y" * 10_000]}, 100))
    assert "[red]x[/red] :smile:" in text
    assert f"{'y' * 59}…" in text
    assert "y" * 60 not in text
    assert shown({"value": [], "n": []}, 100)[0].split() == ["value", "n"]


def test_many_rows_end_with_a_note(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    written.write({"n": np.arange(1500)}, None)
    captured = capsys.readouterr()
    assert "999" in captured.out
    assert "1000" not in captured.out
    note = "cfe-faiss: note: the first 1,000 of 1,500 rows; --csv or --json writes all of them\n"
    assert captured.err == note
