"""The arguments of every command."""

import argparse
from pathlib import Path
from typing import Any

from cfe_faiss import __version__
from cfe_faiss.cli import audit, build, evaluate, picture, scale, search
from cfe_faiss.cli import options as shared
from cfe_faiss.datasets import NAMES


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line; each command is a function of the arguments, their ``run``."""
    top = shared.Parser(
        prog="cfe-faiss",
        description="Find counterfactual evidence: nodes that are alike, yet that a model puts in different classes.",
        epilog="Results go to standard output, progress and notes to standard error.",
    )
    top.add_argument("--version", action="version", version=f"cfe-faiss {__version__}")
    top.set_defaults(outputs=(), overwrite=False)
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    _add_demo(commands)
    _add_audit(commands)
    _add_build(commands)
    _add_local(commands)
    _add_global(commands)
    _add_info(commands)
    _add_plot(commands)
    _add_evaluate(commands)
    _add_discrimination(commands)
    _add_consistency(commands)
    _add_errors(commands)
    _add_fine_tune(commands)
    scale.add(commands)
    return top


def _add_demo(commands: Any) -> None:
    text = "Train a model on a data set, and show the most similar pairs that it puts in different classes."
    demo = commands.add_parser("demo", help="from a data set to evidence, in one go", description=text)
    demo.add_argument("--dataset", choices=NAMES, default="patients", help="default: patients, which needs no files")
    shared.add_data_root(demo)
    demo.add_argument("--nodes", choices=("test", "all"), default="test", help="nodes searched among; default: test")
    demo.add_argument("--pairs", type=int, default=5, metavar="N", help="pairs shown; default: 5")
    demo.add_argument(
        "--out",
        type=Path,
        default=Path("demo-output"),
        metavar="DIR",
        help="folder of the picture; default: demo-output",
    )
    shared.add_overwrite(demo, "out")
    shared.add_seed(demo, "the split, the model and its training")
    demo.set_defaults(run=build.run_demo)


def _add_audit(commands: Any) -> None:
    text = (
        "Audit a model, and write what was found as one HTML page, with the numbers beside it as .json, .csv and .xml "
        "(JUnit). Exit status 0: written, and no --require fails; 1: written, and one fails (with --strict: or the "
        "data cannot tell); 2: an error."
    )
    audited = commands.add_parser("audit", help="a report on a model", description=text)
    shared.add_sources(audited)
    shared.add_data_root(audited)
    shared.add_model(audited)
    shared.add_searched(audited, "test, where there is a split; else all")
    shared.add_table(audited)
    _add_questions(audited)
    _add_constraints(audited)
    written = audited.add_argument_group("what is written")
    written.add_argument("--out", type=Path, metavar="FILE", default=Path("report.html"), help="default: report.html")
    written.add_argument("--figures", type=Path, metavar="DIR", help="folder for the figures as files")
    shared.add_overwrite(written, "out", "figures")
    written.add_argument("--title", default="", metavar="TEXT", help="of the page")
    written.add_argument("--mask-ids", action="store_true", help="row numbers in place of --id")
    written.add_argument(
        "--people", default="", metavar="NOUN", help='plural noun for the rows on the page, "applicants" say'
    )
    shared.add_confidence(audited)
    shared.add_seed(audited, "the split, the model, its training and the intervals")
    audited.set_defaults(run=_run_audit)


def _run_audit(arguments: argparse.Namespace) -> int:
    from cfe_faiss.cli.report import run_audit

    return run_audit(arguments)


def _add_questions(audited: argparse.ArgumentParser) -> None:
    group = audited.add_argument_group("what is asked")
    group.add_argument("--sensitive", nargs="+", metavar="NAME", help="attributes that groups are made by")
    shared.add_without(group)
    group.add_argument("--favourable", metavar="CLASS", help="the class that counts as selected; default: each in turn")
    group.add_argument("-k", type=int, default=10, help="evidence for each node; default: 10")
    group.add_argument("--pairs", type=int, default=1000, metavar="N", help="most similar pairs; default: 1000")
    group.add_argument("--cases", type=int, default=10, metavar="N", help="pairs shown as case files; default: 10")
    group.add_argument("--bins", type=int, metavar="N", help="quantile bins of numbers; default: 4")
    group.add_argument("--cut", nargs="+", metavar="NAME=AT,AT", help="cut points of a number, such as age=25,65")
    group.add_argument(
        "--require",
        action="append",
        default=[],
        metavar="CONDITION",
        help='such as "impact_ratio>=0.8" or "impact_ratio[sex]>=0.8"; may be repeated',
    )
    group.add_argument(
        "--min-cases", type=int, metavar="N", help="--require judges no group of fewer cases; default: 30"
    )
    group.add_argument("--strict", action="store_true", help="--require fails where the data cannot tell, too")


def _add_constraints(audited: argparse.ArgumentParser) -> None:
    group = audited.add_argument_group("conditions on pairs")
    group.add_argument("--exact", nargs="+", metavar="NAME", help="both nodes have the same value")
    group.add_argument("--antiexact", nargs="+", metavar="NAME", help="both nodes have different values")
    group.add_argument("--caliper", nargs="+", metavar="NAME=WIDTH", help="at most so far apart; negative: at least")
    group.add_argument("--std-caliper", nargs="+", metavar="NAME=WIDTH", help="the same in standard deviations")
    group.add_argument(
        "--permitted", nargs="+", metavar="NAME=RANGE", help="of the evidence: LOW:HIGH (one may be left out), or A,B,C"
    )
    group.add_argument("--target", nargs="+", metavar="CLASS", help="class of the evidence")
    group.add_argument("--max-changed", type=int, metavar="N", help="at most so many attributes differ")
    group.add_argument("--min-hops", type=int, metavar="N", help="at least so far apart in the graph")
    group.add_argument("--no-common-neighbours", action="store_true", help="no node is a neighbour of both")
    group.add_argument("--ratio", type=int, metavar="N", help="each node is in at most so many pairs")


def _add_build(commands: Any) -> None:
    text = (
        "Build an index from a data set, from a graph with predicted classes, or from vectors with predicted classes."
    )
    built = commands.add_parser("build", help="build an index file", description=text)
    built.add_argument("out", type=Path, metavar="OUT", help="the index file to write")
    shared.add_overwrite(built, "out")
    sources = shared.add_sources(built, what="a known data set; a model is trained unless --predictions is given")
    sources.add_argument("--vectors", type=Path, metavar="FILE", help="ready vectors: .npy, .csv or .txt")
    shared.add_data_root(built)
    shared.add_model(built)
    shared.add_searched(built, "test, where there is a split; else all")
    shared.add_table(built)
    shared.add_without(built)
    built.add_argument(
        "--index",
        metavar="DESCRIPTION",
        help="EvidenceFlat (exact), EvidenceIVF<nlist>[x<partitions>] with ,Flat ,SQfp16 ,SQ8 or ,PQ<M>,RFlat, or "
        "paper for the paper's LocalCE-I; default: exact up to 100,000 nodes, an inverted file beyond",
    )
    built.add_argument("--layers", type=int, metavar="L", help="steps of the KS vectors; default: 3")
    built.add_argument(
        "--alpha", type=float, metavar="A", help="share of a node's own vector in each step; default: 0.5"
    )
    built.add_argument("--directed", action="store_true", default=None, help="edges count in the given direction only")
    shared.add_seed(built, "the split, the model, its training and the clustering")
    built.set_defaults(run=build.run_build)


def _add_local(commands: Any) -> None:
    text = "For each node, the most similar nodes that the model puts in another class."
    local = commands.add_parser("local", help="evidence of some nodes", description=text)
    shared.add_index(local)
    shared.add_nodes(local)
    local.add_argument("-k", type=int, default=10, help="evidence for each node; default: 10")
    shared.add_nprobe(local)
    local.add_argument(
        "--recall", type=float, metavar="R", help="in place of --nprobe: the share of the evidence to find, in (0, 1]"
    )
    _add_names(local)
    _add_constraints(local)
    shared.add_format(local, csv=True)
    local.set_defaults(run=search.run_local)


def _add_global(commands: Any) -> None:
    text = "The most similar pairs of nodes that the model puts in different classes."
    pairs = commands.add_parser("global", help="evidence in the whole graph", description=text)
    shared.add_index(pairs)
    pairs.add_argument("-k", type=int, default=100, help="pairs; default: 100")
    shared.add_pair_search(pairs)
    pairs.add_argument("--approximate", action="store_true", help="search the index instead of comparing all pairs")
    shared.add_nprobe(pairs)
    _add_names(pairs)
    _add_constraints(pairs)
    shared.add_format(pairs, csv=True)
    pairs.set_defaults(run=search.run_global)


def _add_names(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "names of nodes and classes", "The files that the index was built from; default: numbers."
    )
    group.add_argument("--features", type=Path, metavar="FILE", help="the table of the nodes")
    shared.add_text_format(group)
    shared.add_id(group)
    shared.add_predictions(group)


def _add_info(commands: Any) -> None:
    info = commands.add_parser("info", help="what an index file holds", description="What an index file holds.")
    shared.add_index(info)
    shared.add_format(info, csv=False)
    info.set_defaults(run=search.run_info)


def _add_plot(commands: Any) -> None:
    text = (
        "Draw two similar nodes that the model puts in different classes, with their neighbourhoods and the features "
        "in which they differ. By default the most similar pair of the index."
    )
    plot = commands.add_parser("plot", help="a picture of one pair", description=text)
    shared.add_index(plot)
    plot.add_argument("pair", nargs="*", metavar="NODE", help="two nodes, by id or number")
    plot.add_argument("--out", type=Path, default=Path("evidence.png"), metavar="FILE", help="default: evidence.png")
    shared.add_overwrite(plot, "out")
    shared.add_sources(plot, what="the data set that the index was built from")
    shared.add_data_root(plot)
    shared.add_model(plot)
    shared.add_table(plot)
    plot.add_argument("--max-neighbours", type=int, default=12, metavar="N", help="drawn of each node; default: 12")
    plot.add_argument("--rows", type=int, default=8, metavar="N", help="features shown at most; default: 8")
    shared.add_seed(plot, "the split, the model and its training, as in build")
    plot.set_defaults(run=picture.run_plot)


def _add_evaluate(commands: Any) -> None:
    text = "How good the predictions are: accuracy, F1 and area under the ROC curve; or, by group, rates of each class."
    judged = commands.add_parser("evaluate", help="compare predictions with true classes", description=text)
    shared.add_sources(judged)
    shared.add_data_root(judged)
    shared.add_model(judged)
    shared.add_searched(judged, "test, where there is a split; else all")
    shared.add_table(judged)
    judged.add_argument("--sensitive", nargs="+", metavar="NAME", help="attributes that groups are made by")
    judged.add_argument(
        "--favourable", metavar="CLASS", help="the class that counts as selected; default: each in turn"
    )
    shared.add_confidence(judged)
    shared.add_seed(judged, "the split, the model and its training")
    shared.add_format(judged, csv=True)
    judged.set_defaults(run=evaluate.run_evaluate)


def _add_discrimination(commands: Any) -> None:
    text = (
        "For each value of each attribute: the mean share of evidence that lacks the value, over the nodes that have "
        "it (the paper's discrimination score), with its interval and what chance would give."
    )
    scores = commands.add_parser("discrimination", help="attributes that the classes depend on", description=text)
    shared.add_index(scores)
    _add_attributes(scores, required=True)
    scores.add_argument("--sensitive", nargs="+", metavar="NAME", help="attributes whose values are listed first")
    scores.add_argument("-k", type=int, default=10, help="evidence for each node; default: 10")
    shared.add_nprobe(scores)
    shared.add_format(scores, csv=True)
    scores.set_defaults(run=audit.run_discrimination)


def _add_consistency(commands: Any) -> None:
    text = "The share of nodes that are closer to a node of another class than to any of their own, for each group."
    shares = commands.add_parser("consistency", help="individual fairness in one number", description=text)
    shared.add_index(shares)
    _add_attributes(shares, required=False)
    shared.add_nprobe(shares)
    shared.add_confidence(shares)
    shared.add_format(shares, csv=True)
    shares.set_defaults(run=audit.run_consistency)


def _add_errors(commands: Any) -> None:
    text = "The accuracy of the predictions among the nodes of the most similar pairs, against that of all nodes."
    errors = commands.add_parser("errors", help="accuracy within the evidence", description=text)
    shared.add_index(errors)
    sources = errors.add_mutually_exclusive_group(required=True)
    sources.add_argument("--dataset", choices=NAMES, help="the data set that the index was built from")
    shared.add_truth(sources)
    shared.add_data_root(errors)
    counts = (10, 20, 50, 100, 200, 500, 1000)
    errors.add_argument("-k", type=int, nargs="+", default=counts, help="numbers of pairs; default: 10 to 1000")
    shared.add_pair_search(errors)
    errors.add_argument("--approximate", action="store_true", help="search the index instead of comparing all pairs")
    shared.add_nprobe(errors)
    _add_names(errors)
    shared.add_confidence(errors)
    shared.add_format(errors, csv=True)
    errors.set_defaults(run=audit.run_errors)


def _add_fine_tune(commands: Any) -> None:
    text = (
        "Train a model again, as build did, go on training it with the nodes of the most similar pairs and their true "
        "classes, and compare it on the test nodes that remain. For a model of your own there is the function "
        "cfe_faiss.audit.fine_tune."
    )
    tuned = commands.add_parser("fine-tune", help="train on with the evidence", description=text)
    shared.add_index(tuned)
    shared.add_sources(tuned, what="the data set that the index was built from")
    shared.add_data_root(tuned)
    shared.add_table(tuned)
    tuned.add_argument("--model", choices=shared.MODELS, default="gcn", help="the model of the index; default: gcn")
    shared.add_seed(tuned, "the split, the model and its training, as in build")
    tuned.add_argument("-k", type=int, default=100, help="pairs; default: 100")
    shared.add_pair_search(tuned)
    tuned.add_argument("--runs", type=int, default=5, metavar="N", help="runs, with seeds 0, 1, ...; default: 5")
    tuned.add_argument("--epochs", type=int, default=200, metavar="N", help="at most, for each run; default: 200")
    tuned.add_argument("--lr", type=float, default=0.01, metavar="RATE", help="learning rate; default: 0.01")
    tuned.add_argument("--summary", action="store_true", help="means over the runs instead of the runs")
    shared.add_confidence(tuned)
    shared.add_format(tuned, csv=True)
    tuned.set_defaults(run=audit.run_fine_tune, predictions=None)


def _add_attributes(parser: argparse.ArgumentParser, *, required: bool) -> None:
    shared.add_sources(parser, required=required, what="the data set that the index was built from")
    shared.add_data_root(parser)
    shared.add_id(parser)
    shared.add_categorical(parser)
    shared.add_nodes(parser)
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
