"""The subject of a command: nodes, their predicted classes and attributes, from a data set or from users' own files."""

import argparse
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cfe_faiss.attributes.table import Attributes, as_attributes
from cfe_faiss.base.checks import InputNote, as_count, as_labels
from cfe_faiss.cli.output import announce, note
from cfe_faiss.cli.parser import call, flag
from cfe_faiss.data.classes import class_numbers
from cfe_faiss.data.dialect import DEFAULT, Reading
from cfe_faiss.data.encode import encode
from cfe_faiss.data.read import SUFFIXES
from cfe_faiss.data.roles import Ids, Source
from cfe_faiss.datasets import files_of, load
from cfe_faiss.datasets.own import OwnFiles, read_own
from cfe_faiss.datasets.own.classes import labels_of, read_classes, read_labels
from cfe_faiss.datasets.own.graph import read_nodes, read_numbers
from cfe_faiss.files.outputs import check_outputs
from cfe_faiss.finder import EvidenceFinder
from cfe_faiss.finder.suspicious import check_table
from cfe_faiss.index.protocol import EvidenceIndex


def refuse(arguments: argparse.Namespace, names: Sequence[str], where: str) -> None:
    """Raise ValueError if one of these options is given, which would have no effect."""
    for name in names:
        if getattr(arguments, name, None):
            raise ValueError(f"{flag(name)} has no effect {where}")


@dataclass(frozen=True)
class Names:
    """The users' names of nodes and classes."""

    ids: Ids | None
    classes: tuple[str, ...] = ()

    @classmethod
    def read(cls, arguments: argparse.Namespace, index: EvidenceIndex) -> "Names":
        """Read the names of an index from the files that it was built from.

        Raises
        ------
        ValueError
            If the index holds another number of nodes or other classes than the files.
        """
        if arguments.features is None:
            return cls(None)
        if arguments.id is None and arguments.predictions is None:
            raise ValueError("--features needs --id or --predictions: it names nodes or classes")
        ids = Ids.of_column(Source(arguments.features, reading=arguments.reading).read()[0], arguments.id)
        members = index.members()
        if len(members.ids) and members.ids[-1] >= len(ids):
            raise ValueError(
                f"{arguments.features} must be what the index was built from, got {len(ids):,} rows and node "
                f"{members.ids[-1]} in the index"
            )
        if arguments.predictions is None:
            return cls(ids)
        found = read_classes(arguments.predictions, None, ids, arguments.unknown)
        other = int((found.labels[members.ids] != members.labels).sum())
        if other:
            raise ValueError(
                f"--predictions must be what the index was built from, got another class for {other:,} of "
                f"{len(members.ids):,} nodes"
            )
        return cls(ids, found.names)

    def nodes(self, numbers: NDArray[np.int64]) -> NDArray[Any]:
        """Return the names of nodes, or their numbers."""
        return numbers if self.ids is None else self.ids.names[numbers]

    def labels(self, labels: NDArray[np.int32]) -> NDArray[Any]:
        """Return the names of classes, or their numbers."""
        return np.array(self.classes, object)[labels] if self.classes else labels

    def find(self, texts: Sequence[str] | None, index: EvidenceIndex, reading: Reading) -> NDArray[np.int64] | None:
        """Return the numbers of the nodes of --nodes, given one by one or in a file; None for all of the index."""
        if texts is None:
            return None
        source = as_file(texts, reading)
        if source is not None and self.ids is None:
            return read_numbers(source, int(index.members().ids.max(initial=-1)) + 1)
        if self.ids is not None:
            found = self.ids.known("--nodes", texts) if source is None else read_nodes(source, self.ids)
            absent = ~np.isin(found, index.members().ids)
            if absent.any():
                name = str(self.ids.names[found[absent][0]])
                raise ValueError(
                    f"--nodes must be in the index, which holds {index.ntotal:,} of {len(self.ids):,} nodes; "
                    f"got {name!r}, which is not"
                )
            return found
        try:
            return np.array([int(text) for text in texts], np.int64)
        except (ValueError, OverflowError) as error:
            raise ValueError(f"--nodes must be node numbers or a file, got {' '.join(texts)}") from error


def as_file(texts: Sequence[str], reading: Reading = DEFAULT) -> Source | None:
    """Return the file that --nodes names, or None."""
    if len(texts) != 1:
        return None
    source = replace(Source.parse(texts[0]), reading=reading)
    return source if source.path.name.lower().endswith((*SUFFIXES, ".npy")) else None


def check_files(arguments: argparse.Namespace) -> None:
    """Raise an error before the work if an output of a command cannot be written.

    That is an input, a file of another program, a folder in place of a file, or a file in a folder that is missing.
    """
    outputs = [path for name in arguments.outputs if (path := getattr(arguments, name)) is not None]
    folders = [getattr(arguments, name) for name in arguments.outputs if arguments.tags[name]["output"] == "folder"]
    for path in outputs:
        if path not in folders and not path.parent.is_dir():
            raise FileNotFoundError(f"{path.parent}: there is no such folder to write {path.name} in")
    check_outputs(outputs, inputs_of(arguments), overwrite=arguments.overwrite, folders=folders)


def inputs_of(arguments: argparse.Namespace) -> list[Path]:
    """Return the files and folders that a command reads, its data set included."""
    options = vars(arguments)
    values = [value for name, value in options.items() if name not in arguments.outputs]
    nodes = options.get("nodes") or ()
    values += (
        as_file([nodes] if isinstance(nodes, str) else nodes),
        files_of(options.get("dataset"), options.get("data_root")),
    )
    parts = [part for value in values for part in (value if isinstance(value, list | tuple) else [value])]
    return [path for part in parts if isinstance(path := getattr(part, "path", part), Path)]


@dataclass(frozen=True)
class Case:
    """Nodes, their predicted classes and attributes.

    Attributes
    ----------
    data
        PyG ``Data``, or an :class:`~cfe_faiss.datasets.own.OwnGraph` where no model is trained.
    predicted
        Predicted classes, (n,) integers, or probabilities, (n, C); None without predictions.
    model
        The model that was trained here; None if predictions were given.
    attributes
        Attributes of the nodes, row i of node i.
    ids
        The users' names of the nodes.
    """

    data: Any
    predicted: Any
    attributes: Attributes
    ids: Ids
    model: Any = None

    @property
    def labels(self) -> NDArray[np.int32]:
        """The predicted classes, (n,)."""
        return as_labels("predictions", labels_of(self.predicted), len(self.ids), unknown=True)

    def nodes(self, text: str | None, reading: Reading) -> NDArray[np.int64]:
        """Return the nodes of --nodes: "test", "all", or a file; None: test if there are test nodes, else all."""
        mask = getattr(self.data, "test_mask", None)
        if text == "all" or (text is None and mask is None):
            return np.arange(len(self.ids))
        if text is None or text == "test":
            if mask is None:
                raise ValueError("--nodes test needs --split, which says what the test nodes are")
            return np.flatnonzero(np.asarray(mask))
        source = as_file([text], reading)
        if source is None:
            raise ValueError(f"--nodes must be test, all or a file (.csv, .txt, .npy, .parquet), got {text}")
        return np.unique(read_nodes(source, self.ids))


def class_names(names: Sequence[str], option: str, texts: Sequence[str] | None) -> list[str] | None:
    """Return the names of classes that an option gives by name or number, as in a finder; None without the option.

    Raises
    ------
    ValueError
        If there is no such class.
    """
    if not texts:
        return None
    given = [int(text) if text.isdecimal() and text not in names else text for text in texts]
    return [names[code] for code in class_numbers(option, given, names, len(names))]


def read_case(arguments: argparse.Namespace, *, predict: bool = True) -> Case:
    """Read a data set or own files, and train the model of the options if there are no predictions.

    Parameters
    ----------
    arguments
        With ``dataset`` or ``features``, and the options of both.
    predict
        Whether predicted classes are needed.
    """
    as_count("seed", arguments.seed, 0)
    read = _of_files if arguments.dataset is None else _of_dataset
    case = read(arguments, predict)
    name = arguments.model or ("gcn" if arguments.dataset is not None else "")
    if not predict or not name or case.predicted is not None:
        return case
    graph: Any = case.data if arguments.dataset is not None else case.data.to_pyg(arguments.seed)
    model, predicted = train_model(name, graph, arguments.seed)
    return replace(case, data=graph, predicted=predicted, model=model)


def _of_dataset(arguments: argparse.Namespace, predict: bool) -> Case:
    announce(arguments.dataset)
    data: Any = load(arguments.dataset, arguments.data_root, arguments.seed)
    labels = None
    if predict and arguments.predictions is not None:
        labels, _ = read_labels(arguments.predictions, len(data.x), data.class_names)
    return Case(data, labels, as_attributes(data), Ids.of_rows(len(data.x)))


def _of_files(arguments: argparse.Namespace, predict: bool) -> Case:
    name = arguments.model
    if predict and not name and arguments.predictions is None and arguments.threshold is None:
        raise ValueError("--features needs --predictions, or --model with --truth to train one, or --threshold")
    if name and arguments.edges is None and arguments.neighbours is None:
        raise ValueError("--features needs --edges or --neighbours")
    if name and arguments.truth is None:
        raise ValueError("--features needs --truth")
    arguments.scale = _weights(arguments)
    files: OwnFiles = call(OwnFiles, arguments)
    data = read_own(files)
    is_checked_by_finder = data.edge_index is None
    if data.has_header and not is_checked_by_finder:
        truth = None if data.y is None else data.y.astype(np.int32)
        sensitive = [data.attributes.known("--sensitive", name) for name in arguments.sensitive or ()]
        check_table(data.attributes, data.labels, truth, data.class_names, sensitive=sensitive, left_out=files.without)
    return Case(data, data.predicted if predict else None, data.attributes, data.ids)


def make_finder(arguments: argparse.Namespace, case: Case, nodes: ArrayLike, **options: Any) -> EvidenceFinder:
    """Return the finder of a case over some nodes; ``options`` go to its constructor, of a graph or a table."""
    if case.data.edge_index is None:
        return _make_table_finder(arguments, case, nodes, **options)
    encoded = getattr(case.data, "feature_attributes", None)
    left_out = [case.attributes.known("--without", name) for name in arguments.without or ()]
    return EvidenceFinder.from_data(
        case.data,
        case.predicted if case.model is None else case.model,
        features=case.attributes,
        # A column of many texts is not part of the vectors.
        without=[name for name in left_out if encoded is None or name in encoded],
        nodes=nodes,
        **options,
    )


def _make_table_finder(arguments: argparse.Namespace, case: Case, nodes: ArrayLike, **options: Any) -> EvidenceFinder:
    data, known = case.data, np.array([*case.data.class_names, None], object)
    scale = arguments.scale
    vectors: dict[str, Any] = {"scale": scale}
    if arguments.as_is or not data.has_header:
        vectors = {"encoder": lambda frame: encode(as_attributes(frame), scale=scale, as_is=True).x}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "missing values", InputNote)  # the reader of the files has noted them
        return EvidenceFinder.from_table(
            case.attributes,
            case.predicted if case.predicted.ndim == 2 else known[case.predicted],
            truth=None if data.y is None else known[data.y],
            id=data.node_ids,
            sensitive=arguments.sensitive or (),
            without=arguments.without or (),
            class_names=data.class_names,
            nodes=np.isin(np.arange(len(case.ids)), nodes),
            **vectors,
            **options,
        )


def _weights(arguments: argparse.Namespace) -> dict[str, float] | None:
    """Return the weights of --scale by column; None without any."""
    texts = getattr(arguments, "scale", None)
    if texts is None:
        return None
    parts = [text.rpartition("=") for text in texts]
    return {name: number("--scale", name or "NAME=WEIGHT", weight) for name, _, weight in parts}


def number(option: str, name: str, text: str) -> float:
    """Return the number of an option for an attribute; ValueError for another text."""
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{option} must be a number for {name}, got {text!r}") from None


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
