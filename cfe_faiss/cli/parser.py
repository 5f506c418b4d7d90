"""The arguments of every command."""

import argparse
from pathlib import Path
from typing import Any, NoReturn

from cfe_faiss import __version__
from cfe_faiss.cli import audit, build, search
from cfe_faiss.datasets import NAMES

MODELS = ("gcn", "gat", "gin", "mpnn", "sage")
"""Those of ``cfe_faiss.models``, which a command line that needs no model should not wait for."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message} (see {self.prog} --help)")


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line; each command is a function of the arguments, their ``run``."""
    top = _Parser(
        prog="cfe-faiss",
        description="Find counterfactual evidence: nodes that are alike, yet that a model puts in different classes.",
        epilog="Results go to standard output, progress and notes to standard error.",
    )
    top.add_argument("--version", action="version", version=f"cfe-faiss {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    _add_demo(commands)
    _add_build(commands)
    _add_local(commands)
    _add_global(commands)
    _add_info(commands)
    _add_discrimination(commands)
    _add_consistency(commands)
    _add_errors(commands)
    _add_fine_tune(commands)
    return top


def _add_demo(commands: Any) -> None:
    text = "Train a model on a data set, and show the most similar pairs that it puts in different classes."
    demo = commands.add_parser("demo", help="from a data set to evidence, in one go", description=text)
    demo.add_argument("--dataset", choices=NAMES, default="patients", help="default: patients, which needs no files")
    _add_data_root(demo)
    demo.add_argument("--nodes", choices=("test", "all"), default="test", help="nodes searched among; default: test")
    demo.add_argument("--pairs", type=int, default=5, metavar="N", help="pairs shown; default: 5")
    demo.add_argument(
        "--out",
        type=Path,
        default=Path("demo-output"),
        metavar="DIR",
        help="folder of the picture; default: demo-output",
    )
    _add_seed(demo, "the split, the model and its training")
    demo.set_defaults(run=build.run_demo)


def _add_build(commands: Any) -> None:
    text = (
        "Build an index from a data set, from a graph with predicted classes, or from vectors with predicted classes."
    )
    parser = commands.add_parser("build", help="build an index file", description=text)
    parser.add_argument("out", type=Path, metavar="OUT", help="the index file to write")
    sources = parser.add_mutually_exclusive_group(required=True)
    sources.add_argument(
        "--dataset", choices=NAMES, help="a known data set; a model is trained unless --predictions is given"
    )
    sources.add_argument(
        "--features", type=Path, metavar="FILE", help="node features: .npy, .csv or .txt; with --edges"
    )
    sources.add_argument("--vectors", type=Path, metavar="FILE", help="ready vectors: .npy, .csv or .txt")
    parser.add_argument(
        "--edges",
        type=Path,
        metavar="FILE",
        help="edge_index (2, E) in .npy, one edge per line in .csv or .txt, or a SciPy sparse matrix in .npz",
    )
    parser.add_argument(
        "--predictions",
        type=Path,
        metavar="FILE",
        help="predicted class of every node: .npy, or one per line in .csv or .txt",
    )
    _add_data_root(parser)
    parser.add_argument("--nodes", choices=("test", "all"), help="nodes of the data set to store; default: test")
    parser.add_argument("--model", choices=MODELS, help="the model to train for a data set; default: gcn")
    parser.add_argument(
        "--index",
        metavar="DESCRIPTION",
        help="EvidenceFlat (exact), EvidenceIVF<nlist>[x<partitions>] with ,Flat ,SQfp16 ,SQ8 or ,PQ<M>,RFlat, or "
        "paper for the paper's LocalCE-I; default: exact up to 100,000 nodes, an inverted file beyond",
    )
    parser.add_argument("--layers", type=int, metavar="L", help="steps of the KS vectors; default: 3")
    parser.add_argument(
        "--alpha", type=float, metavar="A", help="share of a node's own vector in each step; default: 0.5"
    )
    parser.add_argument("--directed", action="store_true", default=None, help="edges count in the given direction only")
    _add_seed(parser, "the split, the model, its training and the clustering")
    parser.set_defaults(run=build.run_build)


def _add_local(commands: Any) -> None:
    text = "For each node, the most similar nodes that the model puts in another class."
    local = commands.add_parser("local", help="evidence of some nodes", description=text)
    _add_index(local)
    local.add_argument("--nodes", type=int, nargs="+", metavar="NODE", help="default: all nodes of the index")
    local.add_argument("-k", type=int, default=10, help="evidence for each node; default: 10")
    _add_nprobe(local)
    local.add_argument(
        "--recall", type=float, metavar="R", help="in place of --nprobe: the share of the evidence to find, in (0, 1]"
    )
    _add_format(local, csv=True)
    local.set_defaults(run=search.run_local)


def _add_global(commands: Any) -> None:
    text = "The most similar pairs of nodes that the model puts in different classes."
    pairs = commands.add_parser("global", help="evidence in the whole graph", description=text)
    _add_index(pairs)
    pairs.add_argument("-k", type=int, default=100, help="pairs; default: 100")
    _add_pair_search(pairs)
    pairs.add_argument("--approximate", action="store_true", help="search the index instead of comparing all pairs")
    _add_nprobe(pairs)
    _add_format(pairs, csv=True)
    pairs.set_defaults(run=search.run_global)


def _add_info(commands: Any) -> None:
    info = commands.add_parser("info", help="what an index file holds", description="What an index file holds.")
    _add_index(info)
    _add_format(info, csv=False)
    info.set_defaults(run=search.run_info)


def _add_discrimination(commands: Any) -> None:
    text = (
        "For each value of each attribute: the mean share of evidence that lacks the value, over the nodes that have "
        "it (the paper's discrimination score), with its interval and what chance would give."
    )
    scores = commands.add_parser("discrimination", help="attributes that the classes depend on", description=text)
    _add_index(scores)
    _add_attributes(scores, required=True)
    scores.add_argument("-k", type=int, default=10, help="evidence for each node; default: 10")
    _add_nprobe(scores)
    _add_confidence(scores)
    _add_format(scores, csv=True)
    scores.set_defaults(run=audit.run_discrimination)


def _add_consistency(commands: Any) -> None:
    text = "The share of nodes that are closer to a node of another class than to any of their own, for each group."
    shares = commands.add_parser("consistency", help="individual fairness in one number", description=text)
    _add_index(shares)
    _add_attributes(shares, required=False)
    _add_nprobe(shares)
    _add_confidence(shares)
    _add_format(shares, csv=True)
    shares.set_defaults(run=audit.run_consistency)


def _add_errors(commands: Any) -> None:
    text = "The accuracy of the predictions among the nodes of the most similar pairs, against that of all nodes."
    errors = commands.add_parser("errors", help="accuracy within the evidence", description=text)
    _add_index(errors)
    sources = errors.add_mutually_exclusive_group(required=True)
    sources.add_argument("--dataset", choices=NAMES, help="the data set that the index was built from")
    sources.add_argument(
        "--truth", type=Path, metavar="FILE", help="true class of every node, -1 where unknown: .npy, .csv or .txt"
    )
    _add_data_root(errors)
    counts = (10, 20, 50, 100, 200, 500, 1000)
    errors.add_argument("-k", type=int, nargs="+", default=counts, help="numbers of pairs; default: 10 to 1000")
    _add_pair_search(errors)
    errors.add_argument("--approximate", action="store_true", help="search the index instead of comparing all pairs")
    _add_nprobe(errors)
    _add_confidence(errors)
    _add_format(errors, csv=True)
    errors.set_defaults(run=audit.run_errors)


def _add_fine_tune(commands: Any) -> None:
    text = (
        "Train the model of a data set again, as build did, go on training it with the nodes of the most similar pairs "
        "and their true classes, and compare it on the test nodes that remain. For a model of your own there is the "
        "function cfe_faiss.audit.fine_tune."
    )
    tuned = commands.add_parser("fine-tune", help="train on with the evidence", description=text)
    _add_index(tuned)
    tuned.add_argument("--dataset", choices=NAMES, required=True, help="the data set that the index was built from")
    _add_data_root(tuned)
    tuned.add_argument("--model", choices=MODELS, default="gcn", help="the model of the index; default: gcn")
    _add_seed(tuned, "the split, the model and its training, as in build")
    tuned.add_argument("-k", type=int, default=100, help="pairs; default: 100")
    _add_pair_search(tuned)
    tuned.add_argument("--runs", type=int, default=5, metavar="N", help="runs, with seeds 0, 1, ...; default: 5")
    tuned.add_argument("--epochs", type=int, default=200, metavar="N", help="at most, for each run; default: 200")
    tuned.add_argument("--lr", type=float, default=0.01, metavar="RATE", help="learning rate; default: 0.01")
    tuned.add_argument("--summary", action="store_true", help="means over the runs instead of the runs")
    _add_confidence(tuned)
    _add_format(tuned, csv=True)
    tuned.set_defaults(run=audit.run_fine_tune)


def _add_attributes(parser: argparse.ArgumentParser, *, required: bool) -> None:
    sources = parser.add_mutually_exclusive_group(required=required)
    sources.add_argument("--dataset", choices=NAMES, help="the data set that the index was built from")
    sources.add_argument(
        "--features",
        type=Path,
        metavar="FILE",
        help="attributes, one row per node: numbers or texts in .csv with a header, numbers in .npy or .txt",
    )
    _add_data_root(parser)
    parser.add_argument("--nodes", type=int, nargs="+", metavar="NODE", help="default: all nodes of the index")
    parser.add_argument("--columns", nargs="+", metavar="NAME", help="attributes; default: all")
    parser.add_argument(
        "--cross", nargs="+", action="append", default=[], metavar="NAME", help="attributes to combine; may be repeated"
    )
    parser.add_argument(
        "--bins",
        nargs="+",
        metavar="BINS",
        help="quantile bins of numbers with more than 10 values (default: 4), or bins of some columns: AGE=5, or by "
        "their edges TIME=0,30",
    )


def _add_pair_search(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--per-node", action="store_true", help="each node contributes its best evidence only (the paper's Algorithm 3)"
    )


def _add_confidence(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--confidence", type=float, default=0.95, metavar="C", help="of the intervals, in (0, 1); default: 0.95"
    )


def _add_index(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("index", type=Path, metavar="INDEX", help="an index file that build wrote")


def _add_data_root(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data-root", type=Path, metavar="DIR", help="folder of the data sets' files; default: $CFE_DATA, else data"
    )


def _add_nprobe(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nprobe", type=int, metavar="N", help="lists of an inverted file to look into for each node")


def _add_seed(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("--seed", type=int, default=0, help=f"of {what}; default: 0")


def _add_format(parser: argparse.ArgumentParser, *, csv: bool) -> None:
    formats = parser.add_mutually_exclusive_group()
    formats.add_argument("--json", dest="format", action="store_const", const="json", help="one JSON document")
    if csv:
        formats.add_argument("--csv", dest="format", action="store_const", const="csv", help="CSV with a header")
