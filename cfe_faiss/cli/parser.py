"""The parser of the command line, and the declaration of commands and their options."""

import argparse
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any, NoReturn, TypeAlias

from cfe_faiss import __version__
from cfe_faiss.base.checks import did_you_mean
from cfe_faiss.data.dialect import Reading
from cfe_faiss.data.roles import Source

_WIDEST = 110
_ABSENT = (
    *(
        "encoding",
        "separator",
        "header",
        "decimal",
        "thousands",
        "na",
        "keep_text",
        "categorical",
        "format",
    ),
    *("features", "predictions", "threshold", "truth", "model", "sensitive", "without", "nodes"),
)
"""Options that some commands lack, and others read."""


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
            known = [
                name
                for parser in (self, *_COMMANDS.choices.values())
                for name in parser._option_string_actions
            ]
            hint = (
                "; other commands have this option"
                if option[1] in known
                else did_you_mean(option[1], known)
            )
        raise ValueError(f"{message}{hint} (see {self.prog} --help)")


class _Help(argparse.HelpFormatter):
    def __init__(self, prog: str) -> None:
        width = min(shutil.get_terminal_size().columns - 2, _WIDEST)
        super().__init__(prog, max_help_position=min(30, max(width // 3, 10)), width=width)


PARSER = _Parser(
    prog="cfe-faiss",
    description="Find counterfactual evidence: similar nodes that a model puts in different classes.",
    epilog="Results go to standard output, progress and notes to standard error.",
)
"""The parser of the command line. The modules of the commands add these to it."""
PARSER.add_argument("--version", action="version", version=f"cfe-faiss {__version__}")
PARSER.set_defaults(**dict.fromkeys(_ABSENT), overwrite=False, seed=0)
_COMMANDS = PARSER.add_subparsers(dest="command", metavar="COMMAND", required=True)


# --- declarations ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Argument:
    """An option or a positional argument of a command, see :func:`argument`."""

    name: str
    settings: dict[str, Any]
    needs: tuple[str, ...] = ()
    refuses: tuple[str, ...] = ()
    output: str | None = None


@dataclass(frozen=True)
class Group:
    """Members that stand below a title in the help; a text may follow the title."""

    title: str
    members: "Iterable[Member]"
    text: str | None = None


@dataclass(frozen=True)
class Either:
    """Arguments that exclude each other; one of them may be required."""

    members: Iterable[Argument]
    required: bool = False


Member: TypeAlias = Argument | Group | Either
Run: TypeAlias = Callable[[argparse.Namespace], Any]


def argument(
    name: str,
    *,
    needs: tuple[str, ...] = (),
    refuses: tuple[str, ...] = (),
    output: str | None = None,
    **settings: Any,
) -> Argument:
    """Return an argument.

    Parameters
    ----------
    name
        An option, such as "--seed", or the name of a positional argument.
    needs, refuses
        Options without any of which, or with one of which, this one has no effect; giving it is an
        error then.
    output
        "file" or "folder" if the command writes there.
    **settings
        Arguments of ``argparse.ArgumentParser.add_argument``.
    """
    return Argument(name, settings, needs, refuses, output)


def source(name: str, form: str = "FILE[:COLUMN]", **settings: Any) -> Argument:
    """Return an option for a file and its columns, whose names may follow as further values."""
    return argument(name, metavar=(form, "COLUMN"), nargs="+", action=SourceAction, **settings)


def needing(members: Iterable[Argument], *options: str) -> tuple[Argument, ...]:
    """Return arguments that have no effect without one of some options."""
    return tuple(replace(member, needs=options) for member in members)


class SourceAction(argparse.Action):
    """Store a file and names of its columns; a repeated option gives a list of them."""

    def __call__(
        self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: Any = None
    ) -> None:
        """Store the values of an option."""
        value = Source.of(values, named=str(self.metavar).startswith("('[NAME"))
        earlier = getattr(namespace, self.dest)
        setattr(namespace, self.dest, [*earlier, value] if isinstance(earlier, list) else value)


def command(
    name: str, summary: str, description: str, *members: Member, commands: Any = _COMMANDS
) -> Callable[[Run], Run]:
    """Declare the decorated function, which gets the parsed arguments, as a command.

    Parameters
    ----------
    name, summary, description
        Its name, and the texts of its help.
    *members
        Its arguments.
    commands
        Where it is added; default: among the commands of ``cfe-faiss``.
    """

    def declare(run: Run) -> Run:
        parser = commands.add_parser(name, help=summary, description=description)
        arguments = dict(_add(parser, members))
        outputs = {dest: declared.output for dest, declared in arguments.items() if declared.output}
        parser.set_defaults(run=run, outputs=outputs, declared=arguments)
        if outputs:
            parser.add_argument(
                "--overwrite",
                action="store_true",
                help="replace files that cfe-faiss has not written",
            )
        return run

    return declare


def commands_of(name: str, summary: str, description: str) -> Any:
    """Add a command that consists of commands, and return what these are added to."""
    parser = _COMMANDS.add_parser(name, help=summary, description=description)
    return parser.add_subparsers(dest="step", metavar="COMMAND", required=True)


def _add(parser: Any, members: Iterable[Member]) -> Iterator[tuple[str, Argument]]:
    """Add members to a parser or a group; yield each argument and the name of its value."""
    for member in members:
        if isinstance(member, Argument):
            yield parser.add_argument(member.name, **member.settings).dest, member
        elif isinstance(member, Either):
            yield from _add(
                parser.add_mutually_exclusive_group(required=member.required), member.members
            )
        else:
            yield from _add(parser.add_argument_group(member.title, member.text), member.members)


# --- parsed arguments -----------------------------------------------------------------------------


def check_effects(arguments: argparse.Namespace) -> None:
    """Raise ValueError for an option without one that it needs, or with one that it refuses."""
    options = vars(arguments).items()
    given = {
        flag(name)
        for name, value in options
        if value is not None and value is not False and value != []
    }
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
    arguments.compare = [
        replace(source, reading=reading) for source in getattr(arguments, "compare", ())
    ]


def call(function: Callable[..., Any], arguments: argparse.Namespace, **others: Any) -> Any:
    """Call a function with the given options that are its parameters, and with ``others``."""
    known = signature(function).parameters
    given = {
        name: value
        for name, value in vars(arguments).items()
        if name in known and value is not None
    }
    return function(**given | others)


def flag(name: str) -> str:
    """Return an option in its written form."""
    return "--" + name.replace("_", "-")
