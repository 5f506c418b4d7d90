"""Declarations of commands: each is the option or group that it should be."""

import argparse
from collections.abc import Iterator

from cfe_faiss.cli.parser import PARSER

GROUPS = {
    *(
        "positional arguments",
        "options",
        "own files",
        "analysis",
        "conditions on pairs",
        "output files",
    ),
    *("names of nodes and classes", "inputs, .npy or .parquet", "settings", "workers"),
}


def commands(top: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    below = [action for action in top._actions if isinstance(action, argparse._SubParsersAction)]
    if not below:
        yield top
    for action in below:
        for command in action.choices.values():
            yield from commands(command)


def test_every_command_has_a_function_and_known_groups() -> None:
    found = list(commands(PARSER))
    assert len(found) == 11
    for command in found:
        assert {group.title for group in command._action_groups} <= GROUPS
        assert callable(command.get_default("run"))


def test_forms_of_options() -> None:
    line = "audit --features a.csv --predictions b.csv:c --sensitive x y --require a>=1 --require b>=1 --as-is"
    arguments = PARSER.parse_args(line.split())
    assert arguments.features.name == "a.csv"
    assert arguments.predictions.columns == ("c",)
    assert (arguments.sensitive, arguments.require) == (["x", "y"], ["a>=1", "b>=1"])
    assert (arguments.as_is, arguments.strict, arguments.k, arguments.confidence) == (
        True,
        False,
        10,
        0.95,
    )
    assert (list(arguments.outputs), arguments.out.name, arguments.figures) == (
        ["out", "figures"],
        "report.html",
        None,
    )
    assert PARSER.parse_args(["plot", "i", "a", "b", "--dataset", "german"]).node == ["a", "b"]
