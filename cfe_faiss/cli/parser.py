"""The parser of the command line, the declaration of commands, and options of several commands."""

import argparse
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

from cfe_faiss import __version__
from cfe_faiss.base.checks import did_you_mean
from cfe_faiss.data.columns import Reading, ReadingOptions
from cfe_faiss.data.read import SUFFIXES
from cfe_faiss.data.roles import Source
from cfe_faiss.datasets import NAMES

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
    *("dataset", "features", "predictions", "threshold", "truth", "model"),
    *("sensitive", "without", "nodes"),
)
"""Options that some commands lack, and others read."""
_ARGUMENT = re.compile(r"(where\.)?(?P<name>[a-z_]+)(\['(?P<key>[^']*)'\])?(?= must )")
"""Beginning of an error of Python."""


class _Parser(argparse.ArgumentParser):
    """An argument parser that raises ValueError, and whose help has two columns."""

    def __init__(self, **options: Any) -> None:
        # A later option would change what an abbreviation means.
        super().__init__(formatter_class=_Help, allow_abbrev=False, **options)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse arguments; a word that no option takes is an error before a missing option is."""
        parts: list[Any] = [*self._actions, *self._mutually_exclusive_groups]
        required = [part for part in parts if part.required]
        for part in required:
            part.required = False
        try:
            known, others = super().parse_known_args(args, namespace)
        finally:
            for part in required:
                part.required = True
        places = (getattr(known, action.dest) for action in self._positionals._group_actions)
        tables = [
            word
            for word in (*others, *map(str, places))
            if word.lower().endswith((*SUFFIXES, ".npy"))
        ]
        is_asked = tables and getattr(known, "features", "") is None
        if others:
            hint = f"; did you mean --features {tables[0]}?" if is_asked else ""
            self.error(f"unrecognized arguments: {' '.join(others)}{hint}")
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Raise ValueError, with the nearest name for a mistyped command, choice or option."""
        choice = re.search(r"argument (\S+): invalid choice: '(.*?)' \(choose from (.*)\)", message)
        option = re.search(r"unrecognized arguments: (--[^\s=]+)", message)
        hint = ""
        if choice:
            hint = did_you_mean(choice[2], [name.strip(" '") for name in choice[3].split(",")])
            expects = self._option_string_actions.get(choice[1])
            if expects is not None and not hint:
                hint = f"; {choice[1]}: {(expects.help or '').partition(';')[0]}"
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
    description="Find counterfactual evidence: similar nodes that a model puts in different "
    "classes.",
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

    @property
    def dest(self) -> str:
        """Name of its value among the parsed arguments."""
        name: str = self.settings.get("dest", self.name.lstrip("-").replace("-", "_"))
        return name

    def is_given(self, arguments: argparse.Namespace) -> bool:
        """Return whether the parsed arguments have another value than its default."""
        default = False if self.settings.get("action") == "store_true" else None
        return getattr(arguments, self.dest, None) != self.settings.get("default", default)


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
        "file", "page" (of HTML), "picture" or "folder" if the command writes there.
    **settings
        Arguments of ``argparse.ArgumentParser.add_argument``.
    """
    return Argument(name, settings, needs, refuses, output)


def with_default(name: str, metavar: str, default: float, text: str) -> Argument:
    """Return an option for a number of the type of its default."""
    return value(name, metavar, type(default), f"{text}; default: %(default)s", default=default)


def value(
    name: str, metavar: str, kind: Callable[[str], Any], text: str, **settings: Any
) -> Argument:
    """Return an argument of one value of a type; further settings as of :func:`argument`."""
    return argument(name, metavar=metavar, type=kind, help=text, **settings)


def several(name: str, metavar: str, text: str, **settings: Any) -> Argument:
    """Return an argument of one value or several, which a repeated option joins.

    Further settings as of :func:`argument`.
    """
    return argument(name, metavar=metavar, nargs="+", action="extend", help=text, **settings)


def output(
    name: str, kind: str, text: str, default: str | None = None, metavar: str = "FILE"
) -> Argument:
    """Return an option for a path that the command writes, a ``kind`` of :func:`argument`."""
    settings: dict[str, Any] = {"metavar": metavar, "type": Path, "output": kind}
    if default is not None:
        settings["default"] = Path(default)
        text = f"{text}; default: %(default)s"
    return argument(name, help=text, **settings)


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
        value = Source.of(values, option_string, named=str(self.metavar).startswith("('[NAME"))
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
        declared = list(_add(parser, members))
        outputs = {each.dest: each.output for each in declared if each.output}
        parser.set_defaults(run=run, outputs=outputs, declared=declared)
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


def _add(parser: Any, members: Iterable[Member]) -> Iterator[Argument]:
    """Add members to a parser or a group; yield each argument."""
    for member in members:
        if isinstance(member, Argument):
            parser.add_argument(member.name, **member.settings)
            yield member
        elif isinstance(member, Either):
            yield from _add(
                parser.add_mutually_exclusive_group(required=member.required), member.members
            )
        else:
            yield from _add(parser.add_argument_group(member.title, member.text), member.members)


# --- parsed arguments -----------------------------------------------------------------------------


def check_effects(arguments: argparse.Namespace) -> None:
    """Raise ValueError for an option without one that it needs, or with one that it refuses."""
    given = {each.name: each for each in arguments.declared if each.is_given(arguments)}
    for name, argument in given.items():
        if argument.needs and given.keys().isdisjoint(argument.needs):
            raise ValueError(f"{name} has no effect without {' or '.join(argument.needs)}")
        if not given.keys().isdisjoint(argument.refuses):
            raise ValueError(f"{name} has no effect with {argument.refuses[0]}")


def set_reading(arguments: argparse.Namespace) -> None:
    """Set how tables are read, by the options, also in every source."""
    arguments.reading = reading = Reading(
        are_options=True, **given(arguments, *ReadingOptions.__annotations__)
    )
    for name, value in vars(arguments).items():
        if isinstance(value, Source):
            setattr(arguments, name, replace(value, reading=reading))
    arguments.compare = [
        replace(source, reading=reading) for source in getattr(arguments, "compare", ())
    ]


def in_words_of_options(text: str, arguments: argparse.Namespace | None) -> str:
    """Return an error that begins with the name of an argument in Python with its option."""
    match = _ARGUMENT.match(text)
    if match is None or arguments is None:
        return text
    options = {each.dest: each.name for each in arguments.declared if each.is_given(arguments)}
    name = match["name"]
    if name == "bins" and "cut" in options:
        name = "cut"
    if name not in options:
        return text
    key = f" {match['key']}" if match["key"] else ""
    return f"{options[name]}{key}{text[match.end() :]}"


def given(arguments: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Return the values of the given options among some, by name.

    A command may lack some of them.
    """
    values = {name: getattr(arguments, name, None) for name in names}
    return {name: value for name, value in values.items() if value is not None}


def flag(name: str) -> str:
    """Return an option in its written form."""
    return "--" + name.replace("_", "-")


MODELS = ("gcn", "gat", "gin", "mpnn", "sage")
"""``cfe_faiss.models.NAMES``, copied because importing the models loads PyTorch."""
DATASETS = ", ".join(NAMES)

TEXT_FORMAT = needing(
    (
        argument(
            "--encoding",
            metavar="NAME",
            help="encoding of text files, such as latin-1; default: UTF-8",
        ),
        argument(
            "--separator",
            metavar="CHARACTER",
            help="between two fields of text files; default: found from the lines",
        ),
        argument(
            "--header",
            choices=("first", "none"),
            help="whether the first line of text files has the names of the columns; with none "
            "they are called 1, 2, "
            "...; default: first, unless it holds numbers only",
        ),
        argument(
            "--decimal", choices=(".", ","), help='decimal mark of numbers in tables; default: "."'
        ),
        argument(
            "--thousands",
            metavar="MARK",
            help="mark of thousands of numbers in tables; default: none",
        ),
        several("--na", "TEXT", 'texts for missing values, beside those of pandas, such as "?"'),
        several(
            "--keep-text",
            "COLUMN",
            "columns that are read as they stand: NA, for example, is a text",
        ),
    ),
    "--features",
)
"""Form of the text files."""

DATASET = argument("--dataset", choices=NAMES, metavar="NAME", help=f"a known data set: {DATASETS}")
DATA_ROOT = value(
    "--data-root",
    "DIR",
    Path,
    "folder of the data sets' files; default: $CFE_DATA, else data",
    needs=("--dataset",),
)
FEATURES = value(
    "--features",
    "FILE",
    Path,
    "a table, one row per node: .csv, .tsv or .txt (also .gz, .bz2, .xz and .zip), .parquet "
    "or .xlsx with a "
    "header; or a matrix without one, .npy, .csv or .txt",
)
ID = argument(
    "--id",
    metavar="COLUMN",
    needs=("--features",),
    help="column of the nodes' ids, in every file; default: row numbers",
)
PREDICTIONS = source(
    "--predictions",
    help="predicted class of every node, a number or a text; or a column of probabilities for each "
    "class",
)
UNKNOWN = several(
    "--unknown",
    "VALUE",
    "classes that stand for an unknown one, beside empty ones; default: -1, unless 1 is the "
    "only other class",
    needs=("--features",),
)
THRESHOLD = argument(
    "--threshold",
    metavar="CONDITION",
    needs=("--features",),
    refuses=("--predictions",),
    help='in place of --predictions: a decision by a number of the table, such as "score>=5", '
    "which is favourable "
    "if it holds",
)
IGNORE = several(
    "--ignore", "COLUMN", "columns that are neither compared nor reported", needs=("--features",)
)
MODEL = (
    PREDICTIONS,
    replace(THRESHOLD, refuses=("--predictions", "--model")),
    argument(
        "--model",
        choices=MODELS,
        refuses=("--predictions",),
        help="the model to train, with --truth for own files (--predictions names a column of "
        "classes); default: gcn for a data set, none for own files",
    ),
)
SEARCHED = argument(
    "--nodes",
    metavar="WHICH",
    help="test, all, or a file of ids or with a mask (0, 1); default: test if there is a split, "
    "else all",
)
WITHOUT = several(
    "--without",
    "NAME",
    "attributes by which nodes are not compared; columns that go one to one with them leave, too",
)
DATA: tuple[Member, ...] = (
    Either((DATASET, FEATURES), required=True),
    *TEXT_FORMAT,
    DATA_ROOT,
    *MODEL,
    SEARCHED,
)
"""The data, the predictions for it, and the nodes to search."""
OWN_FILES = Group(
    "own files",
    (
        ID,
        source(
            "--edges",
            "FILE[:A,B]",
            needs=("--features",),
            help="two columns of ids; without ids also a pair of row numbers per line in .csv or "
            ".txt, edge_index "
            "(2, E) in .npy, a SciPy sparse matrix in .npz",
        ),
        value(
            "--neighbours", "K", int, "in place of --edges: join each node to its K nearest nodes"
        ),
        source(
            "--truth",
            needs=("--features",),
            help="true class of every node, in the words of the predictions or in others",
        ),
        UNKNOWN,
        source(
            "--split",
            needs=("--features",),
            help="train, val or test for each node; default: at random, half, a quarter, a quarter "
            "of every class",
        ),
        several(
            "--categorical",
            "COLUMN",
            "numbers that are codes, such as postal codes",
            needs=("--features",),
        ),
        argument(
            "--missing",
            choices=("keep", "error"),
            needs=("--features",),
            help="missing values of features: one standard deviation from known ones (default), or "
            "an error",
        ),
        IGNORE,
        argument(
            "--as-is",
            action="store_true",
            help="keep numbers unscaled; default: every number counts in standard deviations",
        ),
        several(
            "--scale",
            "NAME=WEIGHT",
            "count a difference in this column so many times",
            needs=("--features",),
        ),
    ),
    "Tables have a header. FILE:COLUMN, or FILE COLUMN, names a column; a column named in the "
    "table of features is no feature.",
)
CONSTRAINTS = (
    several("--exact", "NAME", "both nodes have the same value"),
    several("--antiexact", "NAME", "both nodes have different values"),
    several(
        "--caliper", "NAME=WIDTH", "largest difference of a number; negative: smallest difference"
    ),
    several("--std-caliper", "NAME=WIDTH", "the same in standard deviations"),
    several(
        "--permitted",
        "NAME=RANGE",
        "values of the evidence: LOW:HIGH (one may be left out), or A,B,C",
    ),
    several("--target", "CLASS", "class of the evidence"),
    value("--max-changed", "N", int, "at most N attributes differ"),
    value("--min-hops", "N", int, "at least N hops apart in the graph"),
    argument(
        "--no-common-neighbours",
        dest="common_neighbors",
        action="store_const",
        const=False,
        help="no node is a neighbour of both",
    ),
    value("--ratio", "N", int, "each node is in at most N pairs"),
)
"""One option for each field of ``Constraints``, whose name it has or is stored under."""
INDEX = value("index", "INDEX", Path, "an index file that build wrote")
JSON = argument(
    "--json", dest="format", action="store_const", const="json", help="one JSON document"
)
FORMAT = Either(
    (
        JSON,
        argument(
            "--csv", dest="format", action="store_const", const="csv", help="CSV with a header"
        ),
    )
)
OF_INDEX = (
    Group(
        "names of nodes and classes",
        (
            value("--features", "FILE", Path, "the table of the nodes"),
            *TEXT_FORMAT,
            ID,
            *needing((PREDICTIONS,), "--features"),
            THRESHOLD,
            UNKNOWN,
            IGNORE,
        ),
        "The files that the index was built from; default: numbers.",
    ),
    Group("conditions on pairs", needing(CONSTRAINTS, "--features")),
)
"""What the nodes of an index are called, and conditions on their attributes."""
