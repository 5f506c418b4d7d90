"""The subject of a command: nodes, their predicted classes and attributes, from a data set or from own files."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.attributes.table import as_attributes
from cfe_faiss.base.checks import as_count, as_labels, check_known
from cfe_faiss.cli import own
from cfe_faiss.cli.output import announce, note
from cfe_faiss.datasets import load
from cfe_faiss.datasets.own import Ids
from cfe_faiss.datasets.own.classes import labels_of, read_labels
from cfe_faiss.datasets.own.graph import read_nodes
from cfe_faiss.datasets.own.table import is_table
from cfe_faiss.finder import EvidenceFinder, table_encoder
from cfe_faiss.index.protocol import EvidenceIndex


@dataclass(frozen=True)
class Case:
    """Nodes, their predicted classes and attributes.

    Attributes
    ----------
    data
        PyG ``Data``, or an :class:`~cfe_faiss.datasets.own.OwnGraph` where no model is trained.
    predicted
        Predicted classes, (n,) integers, or probabilities, (n, C); None without predictions.
    model, model_name
        The model that was trained here, and its name; None and "" if predictions were given.
    attributes
        Attributes of the nodes, for ``as_attributes``.
    ids
        The users' names of the nodes.
    """

    data: Any
    predicted: Any
    attributes: Any
    ids: Ids
    model: Any = None
    model_name: str = ""

    @property
    def labels(self) -> NDArray[np.int32]:
        """The predicted classes, (n,)."""
        return as_labels("predictions", labels_of(self.predicted), len(self.ids))

    def nodes(self, text: str | None) -> NDArray[np.int64]:
        """Return the nodes of --nodes: "test", "all", or a file; None: test if there are test nodes, else all."""
        mask = getattr(self.data, "test_mask", None)
        if text == "all" or (text is None and mask is None):
            return np.arange(len(self.ids))
        if text is None or text == "test":
            if mask is None:
                raise ValueError("--nodes test needs --split, which says what the test nodes are")
            return np.flatnonzero(np.asarray(mask))
        source = own.as_file([text])
        if source is None:
            raise ValueError(f"--nodes must be test, all or a file (.csv, .txt, .npy, .parquet), got {text}")
        return np.unique(read_nodes(source, self.ids))


def find_left_out(case: Case, names: Sequence[str]) -> list[str]:
    """Return the attributes to leave out of the vectors. A column of many texts is not part of them.

    Raises
    ------
    ValueError
        If an attribute is not known.
    """
    attributes = as_attributes(case.attributes)
    encoded = getattr(case.data, "feature_attributes", None)
    known = [attributes.known("--without", name) for name in names]
    return known if encoded is None else [name for name in known if name in encoded]


def class_number(names: Sequence[str], option: str, text: str) -> int:
    """Return the number of a class that an option gives by its name or number.

    Raises
    ------
    ValueError
        If there is no such class.
    """
    if text not in names and text.isdecimal() and int(text) < len(names):
        return int(text)
    check_known(f"{option} must be a class", text, names)
    return list(names).index(text)


def read_case(arguments: argparse.Namespace, *needed: str, predict: bool = True, encode: bool = True) -> Case:
    """Read a data set or own files, and train the model of the options if there are no predictions.

    Parameters
    ----------
    arguments
        With ``dataset`` or ``features``, and the options of both.
    needed
        Options that own files need, see :func:`cfe_faiss.cli.own.read`.
    predict
        Whether predicted classes are needed.
    encode
        Whether own files need features to compare by if no model is trained.
    """
    as_count("seed", arguments.seed, 0)
    if arguments.dataset is not None:
        case = _of_dataset(arguments, predict)
    else:
        case = _of_files(arguments, needed, predict=predict, encode=encode)
    name = arguments.model or ("gcn" if arguments.dataset is not None else "")
    if not predict or not name or case.predicted is not None:
        return case
    graph: Any = case.data if arguments.dataset is not None else case.data.to_pyg(arguments.seed)
    model, predicted = train_model(name, graph, arguments.seed)
    return replace(case, data=graph, predicted=predicted, model=model, model_name=name)


def _of_dataset(arguments: argparse.Namespace, predict: bool) -> Case:
    announce(arguments.dataset)
    data: Any = load(arguments.dataset, arguments.data_root, arguments.seed)
    labels = None
    if predict and arguments.predictions is not None:
        labels, _ = read_labels(arguments.predictions, len(data.x), data.class_names)
    return Case(data, labels, data, Ids.of_rows(len(data.x)))


def _of_files(arguments: argparse.Namespace, needed: tuple[str, ...], *, predict: bool, encode: bool) -> Case:
    name = arguments.model
    if predict and not name and arguments.predictions is None:
        raise ValueError("--features needs --predictions, or --model with --truth to train one")
    if not encode and not name:
        own.refuse(arguments, ("edges", "neighbours", "missing", "as_is"), "without --model")
    data = own.read(arguments, *needed, *(("edges", "truth") if name else ()), encode=encode or bool(name))
    return Case(data, data.predicted if predict else None, data.attributes, data.ids)


def table_finder(arguments: argparse.Namespace, case: Case, nodes: NDArray[np.int64]) -> EvidenceFinder:
    """Return the finder of a table without a graph, see :meth:`cfe_faiss.EvidenceFinder.from_table`."""
    data, known = case.data, np.array([*case.data.class_names, None], object)
    scale = not arguments.as_is and is_table(arguments.features)
    return EvidenceFinder.from_table(
        as_attributes(case.attributes),
        case.predicted if case.predicted.ndim == 2 else known[case.predicted],
        truth=None if data.y is None else known[data.y],
        id=data.node_ids,
        sensitive=arguments.sensitive or (),
        without=arguments.without or (),
        encoder=None if scale else lambda frame: table_encoder(frame, scale=False).fit_transform(frame),
        class_names=data.class_names,
        nodes=np.isin(np.arange(len(case.ids)), nodes),
    )


def train_model(name: str, data: Any, seed: int) -> tuple[Any, NDArray[np.int64]]:
    """Train a model on a graph; return it and its predictions."""
    from cfe_faiss import models

    model = models.build(name, data, seed=seed)
    models.train(model, data, seed=seed, progress=True)
    return model, models.predict(model, data)


def compare(index: EvidenceIndex, predicted: NDArray[Any]) -> None:
    """Write a note if an index was built from other predictions.

    Raises
    ------
    ValueError
        If the index holds other nodes.
    """
    known = index.members()
    if len(known.ids) and known.ids[-1] >= len(predicted):
        raise ValueError(f"INDEX must be of the graph's {len(predicted):,} nodes, got node {known.ids[-1]}")
    other = int((predicted[known.ids] != known.labels).sum())
    if other:
        note(
            f"the model predicts another class than the index says for {other:,} of {len(known.ids):,} nodes: "
            "was the index built with another --model or --seed?"
        )
