"""The parser of the command line, made from ``commands.txt``."""

import argparse
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from inspect import signature
from pathlib import Path
from typing import Any, NoReturn

from cfe_faiss import __version__
from cfe_faiss.base.checks import did_you_mean
from cfe_faiss.data.dialect import Reading
from cfe_faiss.data.roles import Source
from cfe_faiss.datasets import NAMES

MODELS = ("gcn", "gat", "gin", "mpnn", "sage")
"""``cfe_faiss.models.NAMES``, copied because importing the models loads PyTorch."""

_WIDEST = 110
_TYPES: dict[str, Any] = {
    **dict.fromkeys(("N", "K", "L"), int),
    **dict.fromkeys(("A", "C", "R", "RATE"), float),
    **dict.fromkeys(("DIR", "DIRECTORY", "FILE", "INDEX", "INDPTR", "OUT"), Path),
}
"""Type of an option's value by the word for it; other words stand for texts."""
_SOURCES = ("FILE[:COLUMN]", "FILE[:A,B]", "[NAME=]FILE[:COLUMN]")
"""Words for a file and columns of it, which may also follow as values of their own."""
_CHOICES: dict[str, dict[str, Any]] = {
    "DATASET": {"choices": NAMES, "metavar": "NAME"},
    "MODEL": {"choices": MODELS, "metavar": None},
}
_OPTION = re.compile(r"([!|] )?((?:-[\w-]+|\[?[A-Z]+)\S*(?: \S+)*) {2,}(.+)")
_TAG = re.compile(r" \[(default|output|repeat|with|without)(?:: ([^]]*))?\]$")


@cache
def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line, which is made once."""
    top = _Parser(
        prog="cfe-faiss",
        description="Find counterfactual evidence: similar nodes that a model puts in different classes.",
        epilog="Results go to standard output, progress and notes to standard error.",
    )
    top.add_argument("--version", action="version", version=f"cfe-faiss {__version__}")
    # Values of options that some commands lack
    absent = "encoding separator header decimal thousands na keep_text categorical features predictions threshold "
    absent += "truth model sensitive without nodes json csv"
    top.set_defaults(**dict.fromkeys(absent.split()), overwrite=False, seed=0)
    _add_commands(top, Path(__file__).with_name("commands.txt").read_text(encoding="utf-8"))
    return top


def _add_commands(top: argparse.ArgumentParser, text: str) -> None:
    """Add commands to a parser.

    Parameters
    ----------
    top
        The parser.
    text
        For each command, a line "name  module.function  summary" (the function of ``cfe_faiss.cli`` that runs it), and
        below it, indented by two blanks, a description and lines of

        - options: "--pairs N  help" (one value), "--csr INDPTR INDICES  help" (two), "--nodes NODE...  help" (one or
          more), "--as-is  help" (none), "--missing error|keep  help" (a choice), "INDEX  help" (positional). The word
          for the value determines its type. The help may end in tags: [default: 10], [repeat], [output] for files and
          folders that the command writes, and [with: --id] or [without: --id], see :func:`check_effects`;
        - options that exclude each other: the same after "| ", or "! " if one of them is required;
        - groups of the options that follow: "title: text";
        - blocks: "@name [tag]" stands for the lines below "@name", each with the tag.

        Lines indented further continue the line before. A name of two words is a command of a command.
    """
    parsers: dict[str, Any] = {"": top.add_subparsers(dest="command", metavar="COMMAND", required=True)}
    shared: dict[str, list[str]] = {}
    for block in re.split(r"\n+(?=[\w@])", text.strip()):
        head, *lines = re.sub(r"\n {3,}", " ", block).split("\n")
        lines = [line for text in lines for line in _insert(text.strip(), shared)]
        if not head[0].isalpha():
            shared[head] = lines
            continue
        name, run, summary = re.split(r" {2,}", head)
        above, _, last = name.rpartition(" ")
        parser = parsers[above].add_parser(last, help=summary, description=lines[0])
        if run == "-":
            parsers[name] = parser.add_subparsers(dest="step", metavar="COMMAND", required=True)
            continue
        actions = dict(_add_options(parser, lines[1:]))
        outputs = tuple(name for name, tags in actions.items() if "output" in tags)
        parser.set_defaults(run=run, outputs=outputs, tags=actions)
        if outputs:
            parser.add_argument("--overwrite", action="store_true", help="replace files that cfe-faiss has not written")


def _insert(line: str, shared: dict[str, list[str]]) -> list[str]:
    """Return a line, or the lines of the block that it names, each with the tags behind that name."""
    name, _, tags = line.partition(" ")
    return [f"{text} {tags}".rstrip() if _OPTION.fullmatch(text) else text for text in shared.get(name, [])] or [line]


def _add_options(parser: argparse.ArgumentParser, lines: list[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Add options to a parser, and yield their names and tags."""
    group: Any = parser
    either: Any = None
    for line in lines:
        found = _OPTION.fullmatch(line)
        if found is None:
            title, _, text = line.partition(":")
            group, either = parser.add_argument_group(title, text.strip() or None), None
            continue
        mark, form, text = found.groups()
        either = (either or group.add_mutually_exclusive_group(required=mark == "! ")) if mark else None
        tags = {}
        while tag := _TAG.search(text):
            tags[tag[1]], text = tag[2], text[: tag.start()]
        name, settings = _option(form, text.replace("DATASETS", ", ".join(NAMES)), tags)
        yield (either or group).add_argument(name, **settings).dest, tags


def _option(form: str, text: str, tags: dict[str, str]) -> tuple[str, dict[str, Any]]:
    """Return the name of an option and its arguments of ``add_argument``."""
    name, *values = form.split(" ") if form.startswith("-") else (form.strip("[].").lower(), form)
    if not values:
        return name, {"help": text, "action": "store_true"}
    if values[0] in _SOURCES:
        default: list[Source] | None = [] if "repeat" in tags else None
        source = {"metavar": (values[0], "COLUMN"), "nargs": "+", "action": SourceAction, "default": default}
        return name, {"help": text, **source}
    several = "..." in values[0]
    words = [value.strip("[]").removesuffix("...") if several else value for value in values]
    convert = _TYPES.get(words[0], str)
    settings: dict[str, Any] = {"help": text, "metavar": tuple(words) if len(words) > 1 else words[0], "type": convert}
    settings |= {"choices": words[0].split("|"), "metavar": None} if "|" in words[0] else _CHOICES.get(words[0], {})
    if several or len(words) > 1:
        settings["nargs"] = len(words) if len(words) > 1 else "*" if values[0].startswith("[") else "+"
    if "repeat" in tags:
        settings |= {"action": "extend" if several else "append", "default": []}
    if "default" in tags:
        settings["default"] = [*map(convert, tags["default"].split())] if several else convert(tags["default"])
        settings["help"] = f"{text}; default: {tags['default']}"
    return name, settings


def check_effects(arguments: argparse.Namespace) -> None:
    """Raise ValueError for an option that lacks all options of its tag "with", or has one of its tag "without"."""
    options = vars(arguments).items()
    given = {flag(name) for name, value in options if value is not None and value is not False and value != []}
    for name, tags in arguments.tags.items():
        needed, refused = (tags.get(kind, "").split() for kind in ("with", "without"))
        if flag(name) in given and needed and not given & {*needed}:
            raise ValueError(f"{flag(name)} has no effect without {' or '.join(needed)}")
        if flag(name) in given and given & {*refused}:
            raise ValueError(f"{flag(name)} has no effect with {refused[0]}")


def call(function: Callable[..., Any], arguments: argparse.Namespace, **others: Any) -> Any:
    """Call a function with the options that were given and have the names of its parameters, and with ``others``."""
    known = signature(function).parameters
    given = {name: value for name, value in vars(arguments).items() if name in known and value is not None}
    return function(**given | others)


def flag(name: str) -> str:
    """Return an option in its written form."""
    return "--" + name.replace("_", "-")


def set_reading(arguments: argparse.Namespace) -> None:
    """Set how tables are read, by the options, also in every source."""
    arguments.reading = reading = call(Reading, arguments, are_options=True)
    for name, value in vars(arguments).items():
        if isinstance(value, Source):
            setattr(arguments, name, replace(value, reading=reading))
    arguments.compare = [replace(source, reading=reading) for source in getattr(arguments, "compare", ())]


class SourceAction(argparse.Action):
    """Store a file and names of its columns; those of several options of one name in a list."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: Any = None) -> None:
        """Store the values of an option."""
        source = Source.of(values, named=self.metavar[0].startswith("[NAME") if self.metavar else False)
        earlier = getattr(namespace, self.dest)
        setattr(namespace, self.dest, [*earlier, source] if isinstance(earlier, list) else source)


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
