"""The command ``cfe-faiss``: from data to an index file, and from an index file to evidence."""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cfe_faiss import __version__
from cfe_faiss.checks import UNKNOWN, as_count, as_labels
from cfe_faiss.datasets import NAMES, load
from cfe_faiss.files import read_classes, read_graph, read_matrix
from cfe_faiss.finder import empty_index
from cfe_faiss.index.flat import IndexEvidenceFlat
from cfe_faiss.index.io import read_header, read_index, write_index
from cfe_faiss.index.ivf import IndexEvidenceIVF
from cfe_faiss.kernel import ks_vectors
from cfe_faiss.pairs import global_evidence

_Index: TypeAlias = IndexEvidenceFlat | IndexEvidenceIVF
_Columns: TypeAlias = dict[str, NDArray[Any]]

# What may follow each source of "build"; the other options would have no effect there.
_GRAPH_OPTIONS = {"layers": 3, "alpha": 0.5, "directed": False}
_SOURCES: dict[str, dict[str, Any]] = {
    "dataset": {"data_root": None, "nodes": "test", **_GRAPH_OPTIONS},
    "features": {"edges": None, **_GRAPH_OPTIONS},
    "vectors": {},
}
_ROWS_AT_ONCE = 1 << 16


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv
        The arguments; by default those of the process.

    Returns
    -------
    int
        The exit status: 0, or 2 after an error, 130 after Ctrl-C, 141 when the reader of the output has gone.
    """
    try:
        arguments = _parser().parse_args(argv)
        arguments.run(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _discard_output()
        return 141
    except (ValueError, TypeError, OSError, ImportError, MemoryError) as error:
        _discard_output()
        sys.stderr.write(f"cfe-faiss: error: {_one_line(error)}\n")
        return 2
    return 0


def _discard_output() -> None:
    """Drop output that nobody can take any more, or the interpreter would complain about it when it ends."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _one_line(error: BaseException) -> str:
    text = str(error)
    if isinstance(error, OSError) and error.strerror and error.filename:
        text = f"{error.filename}: {error.strerror}"
    return " ".join(text.split()) or type(error).__name__


# --- the arguments ----------------------------------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message} (see {self.prog} --help)")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="cfe-faiss",
        description="Find counterfactual evidence: nodes that are alike, yet that a model puts in different classes.",
        epilog="Results go to standard output, progress and notes to standard error.",
    )
    parser.add_argument("--version", action="version", version=f"cfe-faiss {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    _add_demo(commands)
    _add_build(commands)
    _add_local(commands)
    _add_global(commands)
    _add_info(commands)
    return parser


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
    demo.set_defaults(run=_demo)


def _add_build(commands: Any) -> None:
    text = (
        "Build an index from a data set, from a graph with predicted classes, or from vectors with predicted classes."
    )
    build = commands.add_parser("build", help="build an index file", description=text)
    build.add_argument("out", type=Path, metavar="OUT", help="the index file to write")
    sources = build.add_mutually_exclusive_group(required=True)
    sources.add_argument(
        "--dataset", choices=NAMES, help="a known data set; a GCN is trained unless --predictions is given"
    )
    sources.add_argument(
        "--features", type=Path, metavar="FILE", help="node features: .npy, .csv or .txt; with --edges"
    )
    sources.add_argument("--vectors", type=Path, metavar="FILE", help="ready vectors: .npy, .csv or .txt")
    build.add_argument(
        "--edges",
        type=Path,
        metavar="FILE",
        help="edge_index (2, E) in .npy, one edge per line in .csv or .txt, or a SciPy sparse matrix in .npz",
    )
    build.add_argument(
        "--predictions",
        type=Path,
        metavar="FILE",
        help="predicted class of every node: .npy, or one per line in .csv or .txt",
    )
    _add_data_root(build)
    build.add_argument("--nodes", choices=("test", "all"), help="nodes of the data set to store; default: test")
    build.add_argument(
        "--index",
        metavar="DESCRIPTION",
        help="EvidenceFlat (exact), EvidenceIVF<nlist>,Flat or EvidenceIVF<nlist>x<partitions>,Flat, or paper for the "
        "paper's LocalCE-I; default: exact up to 100,000 nodes, an inverted file beyond",
    )
    build.add_argument("--layers", type=int, metavar="L", help="steps of the KS vectors; default: 3")
    build.add_argument(
        "--alpha", type=float, metavar="A", help="share of a node's own vector in each step; default: 0.5"
    )
    build.add_argument("--directed", action="store_true", default=None, help="edges count in the given direction only")
    _add_seed(build, "the split, the model, its training and the clustering")
    build.set_defaults(run=_build)


def _add_local(commands: Any) -> None:
    text = "For each node, the most similar nodes that the model puts in another class."
    local = commands.add_parser("local", help="evidence of some nodes", description=text)
    _add_index(local)
    local.add_argument("--nodes", type=int, nargs="+", metavar="NODE", help="default: all nodes of the index")
    local.add_argument("-k", type=int, default=10, help="evidence for each node; default: 10")
    _add_nprobe(local)
    _add_format(local, csv=True)
    local.set_defaults(run=_local)


def _add_global(commands: Any) -> None:
    text = "The most similar pairs of nodes that the model puts in different classes."
    pairs = commands.add_parser("global", help="evidence in the whole graph", description=text)
    _add_index(pairs)
    pairs.add_argument("-k", type=int, default=100, help="pairs; default: 100")
    pairs.add_argument(
        "--per-node", action="store_true", help="each node contributes its best evidence only (the paper's Algorithm 3)"
    )
    pairs.add_argument("--approximate", action="store_true", help="search the index instead of comparing all pairs")
    _add_nprobe(pairs)
    _add_format(pairs, csv=True)
    pairs.set_defaults(run=_global)


def _add_info(commands: Any) -> None:
    info = commands.add_parser("info", help="what an index file holds", description="What an index file holds.")
    _add_index(info)
    _add_format(info, csv=False)
    info.set_defaults(run=_info)


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


# --- the commands -----------------------------------------------------------------------------------------------------


def _demo(arguments: argparse.Namespace) -> None:
    from cfe_faiss import demo

    _announce(arguments.dataset)
    demo.run(
        arguments.dataset,
        arguments.data_root,
        pairs=arguments.pairs,
        nodes=arguments.nodes,
        folder=arguments.out,
        seed=arguments.seed,
        output=sys.stdout,
    )


def _build(arguments: argparse.Namespace) -> None:
    _settle_source(arguments)
    _check_target(arguments.out)
    as_count("seed", arguments.seed, 0)
    if arguments.dataset:
        index = _from_dataset(arguments)
    elif arguments.features:
        index = _from_graph(arguments)
    else:
        index = _from_vectors(arguments)
    write_index(index, arguments.out)
    classes = len(np.unique(index.members().labels))
    sys.stdout.write(f"{arguments.out}: {index!r}, {classes:,} classes\n")


def _settle_source(arguments: argparse.Namespace) -> None:
    """Fill in the defaults of the source that was chosen, and refuse what has no effect there."""
    source = next(name for name in _SOURCES if getattr(arguments, name) is not None)
    known = _SOURCES[source]
    for name in {name: None for options in _SOURCES.values() for name in options}:
        given = getattr(arguments, name)
        if given is not None and name not in known:
            raise ValueError(f"--{name.replace('_', '-')} has no effect with --{source}")
        setattr(arguments, name, known.get(name) if given is None else given)
    for name in ("edges", "predictions"):
        if getattr(arguments, name) is None and (name in known or (name == "predictions" and source != "dataset")):
            raise ValueError(f"--{source} needs --{name}")


def _check_target(path: Path) -> None:
    """Raise before the work, not after it, where the index file could not be written."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: OUT must be a file")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path.parent}: there is no such folder to write OUT in")


def _from_dataset(arguments: argparse.Namespace) -> _Index:
    _announce(arguments.dataset)
    data: Any = load(arguments.dataset, arguments.data_root, arguments.seed)
    n, d = data.x.shape
    nodes = np.flatnonzero(data.test_mask) if arguments.nodes == "test" else np.arange(n)
    index = _new_index(arguments, len(nodes), d)
    if arguments.predictions:
        labels = _predictions(arguments.predictions, n)
    else:
        from cfe_faiss.models import gcn, predict, train

        model = gcn(data, seed=arguments.seed)
        train(model, data, seed=arguments.seed, progress=True)
        labels = as_labels("predictions", predict(model, data), n)
    vectors = _ks_vectors(arguments, data.x, data.edge_index)
    return _filled(index, vectors[nodes], labels[nodes], nodes)


def _from_graph(arguments: argparse.Namespace) -> _Index:
    x, edges = read_matrix(arguments.features), read_graph(arguments.edges)
    labels = _predictions(arguments.predictions, len(x))
    vectors = _ks_vectors(arguments, x, edges)
    return _filled(_new_index(arguments, *vectors.shape), vectors, labels)


def _from_vectors(arguments: argparse.Namespace) -> _Index:
    vectors = read_matrix(arguments.vectors)
    if vectors.ndim != 2:
        raise ValueError(f"{arguments.vectors} must hold a matrix of shape (n, d), got {vectors.shape}")
    labels = _predictions(arguments.predictions, len(vectors))
    return _filled(_new_index(arguments, *vectors.shape), vectors, labels)


def _predictions(path: Path, n: int) -> NDArray[np.int32]:
    return as_labels("predictions", read_classes(path), n)


def _ks_vectors(arguments: argparse.Namespace, x: Any, graph: Any) -> NDArray[np.float32]:
    return ks_vectors(x, graph, arguments.layers, arguments.alpha, directed=arguments.directed, progress=True)


def _new_index(arguments: argparse.Namespace, n: int, d: int) -> _Index:
    index = IndexEvidenceIVF.paper(d) if arguments.index == "paper" else empty_index(arguments.index, n, d)
    if isinstance(index, IndexEvidenceIVF):
        index.cp.seed = arguments.seed
    return index


def _filled(
    index: _Index, vectors: NDArray[np.float32], labels: NDArray[Any], ids: NDArray[np.int64] | None = None
) -> _Index:
    if isinstance(index, IndexEvidenceIVF):
        index.train(vectors)
    index.add_with_labels(vectors, labels, ids)
    return index


def _local(arguments: argparse.Namespace) -> None:
    index = read_index(arguments.index)
    known = index.members()
    nodes = known.ids if arguments.nodes is None else np.array(arguments.nodes, np.int64)
    known.find(nodes, name="nodes")
    # None, where all are meant, multiplies every pair once only.
    asked = None if arguments.nodes is None else nodes
    D, I = index.search_members(asked, arguments.k, progress="Searching", **_probes(index, arguments.nprobe))
    row, place = np.nonzero(I >= 0)
    short = int((I[:, -1] < 0).sum())
    if short:
        _note(f"fewer than {arguments.k} found for {short:,} of {len(nodes):,} nodes")
    columns: _Columns = {
        "node": nodes[row],
        "evidence": I[row, place],
        "rank": place + 1,
        "similarity": D[row, place],
        "node_label": _labels(index, nodes[row]),
        "evidence_label": _labels(index, I[row, place]),
    }
    _write(columns, arguments.format)


def _global(arguments: argparse.Namespace) -> None:
    index = read_index(arguments.index)
    if arguments.nprobe is not None and not arguments.approximate:
        raise ValueError("--nprobe has no effect without --approximate")
    pairs = global_evidence(
        index,
        arguments.k,
        exact=not arguments.approximate,
        per_node=arguments.per_node,
        progress="Comparing",
        **_probes(index, arguments.nprobe),
    )
    if len(pairs) < arguments.k:
        _note(f"fewer than {arguments.k} found: {len(pairs)}")
    columns: _Columns = {
        "source": pairs.source,
        "target": pairs.target,
        "similarity": pairs.similarity,
        "source_label": _labels(index, pairs.source),
        "target_label": _labels(index, pairs.target),
    }
    _write(columns, arguments.format)


def _probes(index: _Index, nprobe: int | None) -> dict[str, int]:
    if nprobe is None:
        return {}
    if not isinstance(index, IndexEvidenceIVF):
        raise ValueError("--nprobe has no effect with an exact index, which has no lists")
    return {"nprobe": nprobe}


def _labels(index: _Index, ids: NDArray[np.int64]) -> NDArray[np.int32]:
    known = index.members()
    return known.labels[np.searchsorted(known.ids, ids)]


def _info(arguments: argparse.Namespace) -> None:
    index = read_index(arguments.index)
    header = read_header(arguments.index)
    classes, counts = np.unique(index.members().labels, return_counts=True)
    facts: dict[str, Any] = {
        "file": str(arguments.index),
        "bytes": arguments.index.stat().st_size,
        "version": header["version"],
        "kind": header["kind"],
        "ntotal": index.ntotal,
        "d": index.d,
    }
    if isinstance(index, IndexEvidenceIVF):
        names = ("nlist", "partitions", "nprobe", "complete", "routing", "weighted", "theta")
        facts |= {name: getattr(index, name) for name in names}
    facts["classes"] = {
        "unknown" if label == UNKNOWN else str(label): count
        for label, count in zip(classes.tolist(), counts.tolist(), strict=True)
    }
    sys.stdout.write(json.dumps(facts, indent=2) + "\n" if arguments.format == "json" else _described(facts))


# --- the output -------------------------------------------------------------------------------------------------------


def _note(text: str) -> None:
    sys.stderr.write(f"cfe-faiss: note: {text}\n")


def _announce(dataset: str) -> None:
    # PyTorch alone takes seconds to load; where nobody watches, nothing is said.
    if sys.stderr.isatty():
        sys.stderr.write(f"Loading {dataset} ...\n")


def _described(facts: dict[str, Any]) -> str:
    classes = {f"class {label}": count for label, count in facts["classes"].items()}
    lines = {name: value for name, value in facts.items() if name != "classes"} | classes
    width = max(len(name) for name in lines)
    return "".join(f"{name:<{width}}  {value}\n" for name, value in lines.items())


def _write(columns: _Columns, style: str | None) -> None:
    """Write columns of numbers as a table, or as "csv" or "json", a block of rows at a time."""
    if style == "csv":
        sys.stdout.write(",".join(columns) + "\n")
        sys.stdout.writelines(",".join(row) + "\n" for row in _rows(columns))
    elif style == "json":
        _write_json(columns)
    else:
        widths = [_width(name, values) for name, values in columns.items()]
        sys.stdout.write(_aligned(tuple(columns), widths))
        sys.stdout.writelines(_aligned(row, widths) for row in _rows(columns, decimals=4))


def _write_json(columns: _Columns) -> None:
    # Numbers as CSV has them are JSON, too, and keep a float32 as short as it is.
    separator = "[\n"
    for row in _rows(columns):
        fields = ", ".join(f"{json.dumps(name)}: {value}" for name, value in zip(columns, row, strict=True))
        sys.stdout.write(f"{separator}  {{{fields}}}")
        separator = ",\n"
    sys.stdout.write("[]\n" if separator == "[\n" else "\n]\n")


def _rows(columns: _Columns, decimals: int | None = None) -> Iterator[tuple[str, ...]]:
    n = len(next(iter(columns.values())))
    for start in range(0, n, _ROWS_AT_ONCE):
        blocks = (_texts(values[start : start + _ROWS_AT_ONCE], decimals) for values in columns.values())
        yield from zip(*blocks, strict=True)


def _texts(values: NDArray[Any], decimals: int | None) -> list[str]:
    if values.dtype.kind == "f" and decimals is not None:
        return [f"{value:.{decimals}f}" for value in values.tolist()]
    # Of a float32 the fewest digits that tell it from its neighbours.
    return [str(text) for text in values.astype(str).tolist()]


def _width(name: str, values: NDArray[Any]) -> int:
    extremes = np.array([values.min(), values.max()]) if len(values) else values
    return max(len(text) for text in (name, *_texts(extremes, 4)))


def _aligned(row: tuple[str, ...], widths: list[int]) -> str:
    return "  ".join(f"{field:>{width}}" for field, width in zip(row, widths, strict=True)) + "\n"
