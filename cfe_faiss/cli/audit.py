"""The applications: from an index file and what is known of its nodes to what the evidence says of the model."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cfe_faiss import audit
from cfe_faiss.cli.output import announce, note, write_frame
from cfe_faiss.cli.search import check_nprobe
from cfe_faiss.datasets import load
from cfe_faiss.extras import extra
from cfe_faiss.files.format import read_index
from cfe_faiss.index.kinds import EvidenceIndex
from cfe_faiss.pairs import global_evidence
from cfe_faiss.tables import read_classes, read_matrix

if TYPE_CHECKING:
    import pandas as pd

    from cfe_faiss.audit.groups import Bins


def run_discrimination(arguments: argparse.Namespace) -> None:
    """Write the discrimination score of every value."""
    index = read_index(arguments.index)
    check_nprobe(index, arguments.nprobe)
    features = _features(arguments)
    scores = audit.discrimination_scores(
        index,
        arguments.nodes,
        features,
        arguments.k,
        **_groups(arguments),
        nprobe=arguments.nprobe,
        confidence=arguments.confidence,
        progress=True,
    )
    write_frame(scores, arguments.format)


def run_consistency(arguments: argparse.Namespace) -> None:
    """Write the share of nodes that are closer to another class than to their own."""
    index = read_index(arguments.index)
    check_nprobe(index, arguments.nprobe)
    features = _features(arguments)
    shares = audit.consistency(
        index,
        arguments.nodes,
        features,
        **_groups(arguments),
        nprobe=arguments.nprobe,
        confidence=arguments.confidence,
        progress=True,
    )
    write_frame(shares, arguments.format)


def run_errors(arguments: argparse.Namespace) -> None:
    """Write the accuracy within the global evidence."""
    index = read_index(arguments.index)
    if arguments.nprobe is not None and not arguments.approximate:
        raise ValueError("--nprobe has no effect without --approximate")
    check_nprobe(index, arguments.nprobe)
    _refuse(arguments, "truth", "data_root")
    y = _dataset(arguments) if arguments.truth is None else read_classes(arguments.truth)
    curve = audit.error_rate_by_evidence(
        index,
        y,
        arguments.k,
        exact=not arguments.approximate,
        per_node=arguments.per_node,
        nprobe=arguments.nprobe,
        confidence=arguments.confidence,
        progress=True,
    )
    write_frame(curve, arguments.format)


def run_fine_tune(arguments: argparse.Namespace) -> None:
    """Train the model of a data set, go on with the evidence of its index, and write what that changed."""
    index = read_index(arguments.index)
    if arguments.runs < 1:
        raise ValueError(f"--runs must be at least 1, got {arguments.runs}")
    data = _dataset(arguments)
    from cfe_faiss.models import build, predict, train

    pairs = global_evidence(index, arguments.k, per_node=arguments.per_node, progress="Comparing")
    model = build(arguments.model, data, seed=arguments.seed)
    train(model, data, seed=arguments.seed, progress=True)
    _compare(index, predict(model, data))
    tuned = audit.fine_tune(
        model,
        data,
        pairs,
        seeds=range(arguments.runs),
        epochs=arguments.epochs,
        lr=arguments.lr,
        confidence=arguments.confidence,
        progress=True,
    )
    write_frame(tuned.summary if arguments.summary else tuned.runs, arguments.format)


def _compare(index: EvidenceIndex, predicted: Any) -> None:
    """Say so where the index was made for another model than the one that was trained here."""
    known = index.members()
    if len(known.ids) and known.ids[-1] >= len(predicted):
        raise ValueError(f"INDEX must be of the data set's {len(predicted):,} nodes, got node {known.ids[-1]}")
    other = int((predicted[known.ids] != known.labels).sum())
    if other:
        note(
            f"the model predicts another class than the index says for {other:,} of {len(known.ids):,} nodes: "
            "was the index built with another --model or --seed?"
        )


def _dataset(arguments: argparse.Namespace) -> Any:
    announce(arguments.dataset)
    return load(arguments.dataset, arguments.data_root, getattr(arguments, "seed", 0))


def _features(arguments: argparse.Namespace) -> Any:
    if arguments.dataset is not None:
        return _dataset(arguments)
    _refuse(arguments, "features", "data_root")
    if arguments.features is not None:
        return read_features(arguments.features)
    for name in ("columns", "cross", "bins", "data_root"):
        if getattr(arguments, name):
            raise ValueError(f"--{name.replace('_', '-')} has no effect without --dataset or --features")
    return None


def _refuse(arguments: argparse.Namespace, source: str, option: str) -> None:
    if getattr(arguments, source) is not None and getattr(arguments, option) is not None:
        raise ValueError(f"--{option.replace('_', '-')} has no effect with --{source}")


def read_features(path: Path) -> "pd.DataFrame":
    """Read attributes, one row per node: of any kind from .csv with a header, numbers from .csv, .npy or .txt.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it is of another kind, or does not hold a table.
    """
    with extra("gnn"):
        import pandas as pd

    if path.suffix == ".csv":
        frame = pd.read_csv(path)
        if not all(_is_number(name) for name in frame.columns):
            return frame
        frame = pd.read_csv(path, header=None)
    else:
        matrix = np.asarray(read_matrix(path))
        if matrix.ndim not in (1, 2):
            raise ValueError(f"{path} must hold one row per node, got an array of shape {matrix.shape}")
        frame = pd.DataFrame(matrix)
    return frame.rename(columns="feature {}".format)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _groups(arguments: argparse.Namespace) -> dict[str, Any]:
    chosen: dict[str, Any] = {"columns": arguments.columns, "intersections": arguments.cross}
    return chosen if arguments.bins is None else chosen | {"bins": _bins(arguments.bins)}


def _bins(texts: list[str]) -> "Bins":
    """Return what "4", "TIME=0,30" (edges) and "AGE=5" (a number of bins) mean."""
    try:
        if len(texts) == 1 and "=" not in texts[0]:
            return int(texts[0])
        named = [text.rsplit("=", 1) for text in texts]
        return {name: _edges(text) if "," in text else int(text) for name, text in named}
    except ValueError as error:
        raise ValueError(f"--bins must be a number, or like TIME=0,30 or AGE=5, got {' '.join(texts)}") from error


def _edges(text: str) -> list[float]:
    return [float(edge) for edge in text.split(",") if edge]
