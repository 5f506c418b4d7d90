"""Options that several commands share."""

import argparse
import re
import shutil
from pathlib import Path
from typing import Any, NoReturn

from cfe_faiss.base.checks import did_you_mean
from cfe_faiss.datasets import NAMES
from cfe_faiss.datasets.own import Source

MODELS = ("gcn", "gat", "gin", "mpnn", "sage")
"""Those of ``cfe_faiss.models``, which a command line that needs no model should not wait for."""

_WIDEST = 110


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are ValueErrors, and whose help stands in two columns."""

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=_Help, **options)

    def error(self, message: str) -> NoReturn:
        """Raise the error, with the nearest name where a command, a choice or an option is mistyped."""
        choice = re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message)
        option = re.search(r"unrecognized arguments: (--[^\s=]+)", message)
        hint = ""
        if choice:
            hint = did_you_mean(choice[1], [name.strip(" '") for name in choice[2].split(",")])
        elif option:
            hint = did_you_mean(option[1], self._options())
        raise ValueError(f"{message}{hint} (see {self.prog} --help)")

    def _options(self) -> list[str]:
        """Return the options of this parser and of its commands."""
        own = list(self._option_string_actions)
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                own += [name for command in action.choices.values() for name in command._option_string_actions]
        return own


class _Help(argparse.HelpFormatter):
    def __init__(self, prog: str) -> None:
        width = min(shutil.get_terminal_size().columns - 2, _WIDEST)
        super().__init__(prog, max_help_position=min(30, max(width // 3, 10)), width=width)


def add_sources(parser: argparse.ArgumentParser, *, required: bool = True, what: str = "a known data set") -> Any:
    """Add --dataset and --features, of which one may be given; returns their group."""
    sources = parser.add_mutually_exclusive_group(required=required)
    sources.add_argument("--dataset", choices=NAMES, metavar="NAME", help=f"{what}: {', '.join(NAMES)}")
    sources.add_argument(
        "--features",
        type=Path,
        metavar="FILE",
        help="a table, one row per node: .csv (also .csv.gz), .tsv, .parquet or .xlsx with a header; "
        "or a matrix without one, .npy, .csv or .txt",
    )
    add_text_format(parser)
    return sources


def add_text_format(parser: Any) -> None:
    """Add --encoding and --decimal."""
    parser.add_argument("--encoding", metavar="NAME", help="of text files, latin-1 for example; default: UTF-8")
    parser.add_argument("--decimal", choices=(".", ","), help='decimal mark of numbers in text files; default: "."')


def add_overwrite(parser: Any, *outputs: str) -> None:
    """Add --overwrite, and note which arguments name files or folders that the command writes."""
    parser.add_argument("--overwrite", action="store_true", help="replace files that cfe-faiss has not written")
    parser.set_defaults(outputs=outputs)


def add_data_root(parser: argparse.ArgumentParser) -> None:
    """Add --data-root."""
    parser.add_argument(
        "--data-root", type=Path, metavar="DIR", help="folder of the data sets' files; default: $CFE_DATA, else data"
    )


def add_id(parser: Any) -> None:
    """Add --id."""
    parser.add_argument(
        "--id", metavar="COLUMN", help="the column of the nodes' ids, in every file; default: row numbers"
    )


def add_predictions(parser: Any) -> None:
    """Add --predictions."""
    parser.add_argument(
        "--predictions",
        type=Source.parse,
        metavar="FILE[:COLUMN]",
        help="predicted class of every node, a number or a text; or a column of probabilities for each class",
    )


def add_truth(parser: Any, *, required: bool = False) -> None:
    """Add --truth."""
    parser.add_argument(
        "--truth",
        type=Source.parse,
        metavar="FILE[:COLUMN]",
        required=required,
        help="true class of every node, empty (in a file without a header: -1) where unknown",
    )


def add_categorical(parser: Any) -> None:
    """Add --categorical."""
    parser.add_argument(
        "--categorical", nargs="+", metavar="COLUMN", help="numbers that are codes, such as postal codes"
    )


def add_table(parser: argparse.ArgumentParser) -> Any:
    """Add what a graph from own files needs beside --features; returns the group."""
    group = parser.add_argument_group(
        "own files",
        "Tables have a header. FILE:COLUMN names a column; one that is named in the table of features is no feature.",
    )
    add_id(group)
    group.add_argument(
        "--edges",
        type=Source.parse,
        metavar="FILE[:A,B]",
        help="two columns of ids; without ids also a pair of row numbers per line in .csv or .txt, edge_index (2, E) "
        "in .npy, a SciPy sparse matrix in .npz",
    )
    group.add_argument(
        "--neighbours",
        type=int,
        metavar="K",
        help="in place of --edges: join each node to its K nearest",
    )
    add_truth(group)
    group.add_argument(
        "--split",
        type=Source.parse,
        metavar="FILE[:COLUMN]",
        help="train, val or test for each node; default: at random, half, a quarter, a quarter of every class",
    )
    add_categorical(group)
    group.add_argument(
        "--missing",
        choices=("error", "keep"),
        help="missing values of features: an error (default), or a value of their own",
    )
    group.add_argument(
        "--as-is",
        action="store_true",
        default=None,
        help="leave numbers as they are; default: every attribute is scaled to variance 1",
    )
    return group


def add_without(parser: Any) -> None:
    """Add --without."""
    parser.add_argument(
        "--without", nargs="+", metavar="NAME", help="attributes that similarity leaves out, with every copy of them"
    )


def add_model(parser: argparse.ArgumentParser) -> None:
    """Add --model and --predictions."""
    add_predictions(parser)
    parser.add_argument(
        "--model",
        choices=MODELS,
        help="the model to train; default: gcn for a data set; for own files, which need --truth, none",
    )


def add_pair_search(parser: argparse.ArgumentParser) -> None:
    """Add --per-node."""
    parser.add_argument(
        "--per-node", action="store_true", help="each node contributes its best evidence only (the paper's Algorithm 3)"
    )


def add_confidence(parser: argparse.ArgumentParser) -> None:
    """Add --confidence."""
    parser.add_argument(
        "--confidence", type=float, default=0.95, metavar="C", help="of the intervals, in (0, 1); default: 0.95"
    )


def add_index(parser: argparse.ArgumentParser) -> None:
    """Add INDEX."""
    parser.add_argument("index", type=Path, metavar="INDEX", help="an index file that build wrote")


def add_nodes(parser: argparse.ArgumentParser) -> None:
    """Add --nodes, which names some of an index."""
    parser.add_argument(
        "--nodes",
        nargs="+",
        metavar="NODE",
        help="ids or numbers of nodes, or a file of them or with a mask; default: all nodes of the index",
    )


def add_searched(parser: argparse.ArgumentParser, default: str) -> None:
    """Add --nodes, which says what is searched among."""
    parser.add_argument(
        "--nodes", metavar="WHICH", help=f"test, all, or a file of ids or with a mask (0, 1); default: {default}"
    )


def add_nprobe(parser: argparse.ArgumentParser) -> None:
    """Add --nprobe."""
    parser.add_argument("--nprobe", type=int, metavar="N", help="lists of an inverted file to probe for each node")


def add_seed(parser: argparse.ArgumentParser, what: str) -> None:
    """Add --seed."""
    parser.add_argument("--seed", type=int, default=0, help=f"of {what}; default: 0")


def add_format(parser: argparse.ArgumentParser, *, csv: bool) -> None:
    """Add --json and --csv."""
    formats = parser.add_mutually_exclusive_group()
    formats.add_argument("--json", dest="format", action="store_const", const="json", help="one JSON document")
    if csv:
        formats.add_argument("--csv", dest="format", action="store_const", const="csv", help="CSV with a header")
