"""No command writes to a file that it reads, nor to one that this package has not written."""

import argparse
import os
import re
from pathlib import Path

import pytest

from cfe_faiss.cli import main
from cfe_faiss.cli.parser import PARSER, SourceAction

# Options that name files or folders to read. A new one is either put here or declared with `output=`.
READ = {
    *(
        "compare",
        "csr",
        "data_root",
        "edge_weight",
        "edges",
        "features",
        "index",
        "labels",
        "predictions",
        "split",
        "truth",
    ),
    "vectors",
}
JOB_THAT_EXISTS = {("scale", "resume"), ("scale", "status")}


def commands(top, words=()):
    below = [action for action in top._actions if isinstance(action, argparse._SubParsersAction)]
    if not below:
        yield words, top
    for name, command in below[0].choices.items() if below else ():
        yield from commands(command, (*words, name))


COMMANDS = dict(commands(PARSER))


def named(command):
    """The arguments that name files or folders, and --nodes, which may."""
    return [
        action
        for action in command._actions
        if action.type is Path
        or isinstance(action, SourceAction)
        or (action.dest == "nodes" and not action.choices)
    ]


def outputs(command):
    return command.get_default("outputs") or ()


PATHS = [
    (words, output, action.dest)
    for words, command in COMMANDS.items()
    for output in outputs(command)
    for action in named(command)
    if action.dest not in outputs(command)
]
OTHER_WAYS = "relative", "link", "hard link", "overwrite"
# By default, each as it is and in one of the other ways.
CASES = [
    pytest.param(
        *paths,
        how,
        marks=[] if how in ("same", OTHER_WAYS[i % len(OTHER_WAYS)]) else [pytest.mark.slow],
    )
    for i, paths in enumerate(PATHS)
    for how in ("same", *OTHER_WAYS)
]


def given(action, value):
    several = [value] * (action.nargs if isinstance(action.nargs, int) else 1)
    return [*action.option_strings[-1:], *several]


def line(words, paths):
    """A command line with these paths, and whatever else the parser demands; --features excludes --dataset."""
    command = COMMANDS[words]
    excluded = set()
    wanted = dict(paths)
    for group in command._mutually_exclusive_groups:
        members = [action.dest for action in group._group_actions]
        chosen = [dest for dest in members if dest in wanted]
        if group.required and not chosen:
            wanted[members[-1]] = "other"
    for action in command._actions:
        if action.required and action.dest not in wanted and action.dest != "help":
            wanted[action.dest] = "other"
    parts = [
        given(action, wanted[action.dest]) for action in command._actions if action.dest in wanted
    ]
    assert not excluded
    return [*words, *(part for some in parts for part in some)]


def test_every_path_is_known_as_an_input_or_an_output():
    for words, command in COMMANDS.items():
        paths = {action.dest for action in named(command)} - {"nodes"}
        unknown = paths - READ - set(outputs(command))
        assert unknown == ({"directory"} if words in JOB_THAT_EXISTS else set()), words
    assert len(PATHS) > 20


@pytest.mark.parametrize(
    ("words", "output", "read", "how"),
    CASES,
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_no_output_is_an_input(words, output, read, how, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    source = tmp_path / "mine.csv"
    if read == "data_root":
        source.mkdir()
        if how == "hard link":
            pytest.skip("folders have none")
    else:
        source.write_text("id,sex\n1,f\n")
    target = (
        Path("mine.csv")
        if how == "relative"
        else tmp_path / "other name"
        if "link" in how
        else source
    )
    if how == "link":
        target.symlink_to(source)
    elif how == "hard link":
        os.link(source, target)
    arguments = line(words, {read: str(source), output: str(target)})
    assert main([*arguments, *(["--overwrite"] if how == "overwrite" else [])]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert re.fullmatch(
        rf"cfe-faiss: error: {re.escape(str(target))} is an input of this call .*\n", captured.err
    )
    assert source.is_dir() or source.read_text() == "id,sex\n1,f\n"
    assert {path.name for path in tmp_path.iterdir()} == {
        source.name,
        *([target.name] if "link" in how else []),
    }


def test_the_report_of_a_table_does_not_replace_it(own_folder, monkeypatch, capsys):
    monkeypatch.chdir(own_folder.path)
    before = (own_folder.path / "people.csv").read_bytes()
    arguments = ["audit", *own_folder.options("features", "edges", "predictions")]
    for more in ([], ["--overwrite"]):
        assert main([*arguments, "--out", "people.html", *more]) == 2
        assert "people.csv is an input of this call (people.csv)" in capsys.readouterr().err
    assert main([*arguments, "--out", "list.html"]) == 2  # another table of the user
    assert "list.csv is a file that cfe_faiss has not written" in capsys.readouterr().err
    assert (own_folder.path / "people.csv").read_bytes() == before
    assert not [
        path.name for path in own_folder.path.iterdir() if path.suffix in (".html", ".json", ".xml")
    ]


def test_files_of_a_data_set_are_inputs(tmp_path, capsys):
    folder = tmp_path / "nifty" / "bail"
    folder.mkdir(parents=True)
    (folder / "bail.csv").write_text("mine")
    options = ["--dataset", "bail", "--data-root", str(tmp_path), "--overwrite"]
    for arguments in (
        ["audit", "--out", str(folder / "bail.html"), *options],
        ["build", str(folder / "bail.csv"), *options],
        ["plot", "other", "--out", str(folder / "bail.csv"), *options],
    ):
        assert main(arguments) == 2
        assert "bail.csv is an input of this call" in capsys.readouterr().err
    assert (folder / "bail.csv").read_text() == "mine"


def test_a_foreign_picture_is_kept(tmp_path, capsys):
    (tmp_path / "evidence.png").write_bytes(b"mine")
    assert main(["demo", "--out", str(tmp_path)]) == 2
    assert "evidence.png is a file that cfe_faiss has not written" in capsys.readouterr().err
    assert (tmp_path / "evidence.png").read_bytes() == b"mine"
