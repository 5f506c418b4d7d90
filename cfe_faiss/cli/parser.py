"""The parser of the command line, made from the declarations of the commands."""

import argparse
import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any, NoReturn

from cfe_faiss import __version__
from cfe_faiss.base.checks import did_you_mean
from cfe_faiss.cli import build, report, scale, search  # noqa: F401 - they declare the commands
from cfe_faiss.cli.options import COMMANDS, Argument, Either, Member, call, flag
from cfe_faiss.data.dialect import Reading
from cfe_faiss.data.roles import Source

_WIDEST = 110
_ABSENT = (
    *("encoding", "separator", "header", "decimal", "thousands", "na", "keep_text", "categorical", "format"),
    *("features", "predictions", "threshold", "truth", "model", "sensitive", "without", "nodes"),
)
"""Options that some commands lack, and others read."""
_SCALE = "evidence of graphs that are larger than memory"
_SCALE_DESCRIPTION = (
    "From features, edges and predicted classes on disk to the evidence of all nodes, in a folder, stage by stage."
)


@cache
def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line, which is made once."""
    top = _Parser(
        prog="cfe-faiss",
        description="Find counterfactual evidence: similar nodes that a model puts in different classes.",
        epilog="Results go to standard output, progress and notes to standard error.",
    )
    top.add_argument("--version", action="version", version=f"cfe-faiss {__version__}")
    top.set_defaults(**dict.fromkeys(_ABSENT), overwrite=False, seed=0)
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    jobs: Any = None
    for name, declared in COMMANDS.items():
        group, _, last = name.rpartition(" ")
        if group and jobs is None:
            above = commands.add_parser(group, help=_SCALE, description=_SCALE_DESCRIPTION)
            jobs = above.add_subparsers(dest="step", metavar="COMMAND", required=True)
        place = jobs if group else commands
        below = place.add_parser(last, help=declared.summary, description=declared.description)
        arguments = dict(_add(below, declared.members))
        outputs = {dest: one.output for dest, one in arguments.items() if one.output}
        below.set_defaults(run=declared.run, outputs=outputs, declared=arguments)
        if outputs:
            below.add_argument("--overwrite", action="store_true", help="replace files that cfe-faiss has not written")
    return top


def _add(parser: Any, members: Iterable[Member]) -> Iterator[tuple[str, Argument]]:
    """Add members to a parser or a group, and yield the arguments among them by the name of their value."""
    for member in members:
        if isinstance(member, Argument):
            yield parser.add_argument(member.name, **member.settings).dest, member
        elif isinstance(member, Either):
            yield from _add(parser.add_mutually_exclusive_group(required=member.required), member.members)
        else:
            yield from _add(parser.add_argument_group(member.title, member.text), member.members)


def check_effects(arguments: argparse.Namespace) -> None:
    """Raise ValueError for an option that lacks all options that it needs, or has one that it refuses."""
    options = vars(arguments).items()
    given = {flag(name) for name, value in options if value is not None and value is not False and value != []}
    for name, declared in arguments.declared.items():
        if flag(name) in given and declared.needs and not given & {*declared.needs}:
            raise ValueError(f"{flag(name)} has no effect without {' or '.join(declared.needs)}")
        if flag(name) in given and given & {*declared.refuses}:
            raise ValueError(f"{flag(name)} has no effect with {declared.refuses[0]}")


def set_reading(arguments: argparse.Namespace) -> None:
    """Set how tables are read, by the options, also in every source."""
    arguments.reading = reading = call(Reading, arguments, are_options=True)
    for name, value in vars(arguments).items():
        if isinstance(value, Source):
            setattr(arguments, name, replace(value, reading=reading))
    arguments.compare = [replace(source, reading=reading) for source in getattr(arguments, "compare", ())]


class _Parser(argparse.ArgumentParser):
    """An argument parser that raises ValueError, and whose help has two columns."""

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=_Help, **options)

    def error(self, message: str) -> NoReturn:
        """Raise ValueError, with the nearest name for a mistyped command, choice or option."""
        choice = re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message)
        option = re.search(r"unrecognized arguments: (--[^\s=]+)", message)
        hint = ""
        if choice:
            hint = did_you_mean(choice[1], [name.strip(" '") for name in choice[2].split(",")])
        elif option:
            known = self._options()
            hint = "; other commands have this option" if option[1] in known else did_you_mean(option[1], known)
        raise ValueError(f"{message}{hint} (see {self.prog} --help)")

    def _options(self) -> list[str]:
        """Return the options of this parser and of its commands."""
        known = list(self._option_string_actions)
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                known += [name for command in action.choices.values() for name in command._option_string_actions]
        return known


class _Help(argparse.HelpFormatter):
    def __init__(self, prog: str) -> None:
        width = min(shutil.get_terminal_size().columns - 2, _WIDEST)
        super().__init__(prog, max_help_position=min(30, max(width // 3, 10)), width=width)
