"""Nodes, predicted classes and attributes of a command, from a data set or users' own files."""

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cfe_faiss.attributes.constraints import Constraints
from cfe_faiss.attributes.table import Attributes, as_attributes
from cfe_faiss.base.checks import Ints, as_count, check_distinct, did_you_mean
from cfe_faiss.cli.output import announce
from cfe_faiss.cli.parser import CONSTRAINTS, flag, given
from cfe_faiss.data.classes import class_numbers
from cfe_faiss.data.columns import DEFAULT, Reading
from cfe_faiss.data.encode import encode
from cfe_faiss.data.read import SUFFIXES
from cfe_faiss.data.roles import Ids, Source, check_table
from cfe_faiss.datasets import files_of, load
from cfe_faiss.datasets.own import (
    OwnFiles,
    OwnTable,
    attributes_of_files,
    read_classes,
    read_columns,
    read_nodes,
    read_own,
)
from cfe_faiss.files.outputs import as_page, check_outputs, check_picture
from cfe_faiss.finder import EvidenceFinder

# --- files of a call ------------------------------------------------------------------------------


def check_files(arguments: argparse.Namespace) -> None:
    """Raise an error before the work if an output of a command cannot be written.

    That is an input, a file of another program, a folder in place of a file, or a file in a folder
    that is missing.
    """
    options = vars(arguments)
    outputs = {name: options[name] for name in arguments.outputs if options[name] is not None}
    kinds = arguments.outputs
    folders = [path for name, path in outputs.items() if kinds[name] == "folder"]
    for path in outputs.values():
        if path not in folders and not path.parent.is_dir():
            raise FileNotFoundError(
                f"{path.parent}: there is no such folder to write {path.name} in"
            )
    check_outputs(
        outputs.values(), inputs_of(arguments), overwrite=arguments.overwrite, folders=folders
    )
    for name, path in outputs.items():
        if kinds[name] == "page":
            as_page(flag(name), path)
        if kinds[name] == "picture":
            check_picture(flag(name), path)


def inputs_of(arguments: argparse.Namespace) -> list[Path]:
    """Return the files and folders that a command reads, its data set included."""
    options = vars(arguments)
    values = [value for name, value in options.items() if name not in arguments.outputs]
    nodes = options.get("nodes") or ()
    values.append(as_file([nodes] if isinstance(nodes, str) else nodes))
    values.append(files_of(options.get("dataset"), options.get("data_root")))
    parts = [
        part for value in values for part in (value if isinstance(value, list | tuple) else [value])
    ]
    paths = [getattr(part, "path", part) for part in parts]
    return [path for path in paths if isinstance(path, Path)]


def as_file(texts: Sequence[str], reading: Reading = DEFAULT) -> Source | None:
    """Return the file that --nodes names, or None."""
    if len(texts) != 1:
        return None
    source = replace(Source.parse(texts[0]), reading=reading)
    return source if source.path.name.lower().endswith((*SUFFIXES, ".npy")) else None


# --- nodes and their classes ----------------------------------------------------------------------


@dataclass(frozen=True)
class Inputs:
    """Nodes, their predicted classes and attributes.

    Attributes
    ----------
    data
        PyG ``Data``; of own files an :class:`~cfe_faiss.datasets.own.OwnGraph` where no model is
        trained, or an :class:`~cfe_faiss.datasets.own.OwnTable` without a graph.
    ids
        The users' names of the nodes.
    attributes
        Attributes of the nodes, row i of node i; None of a table, whose finder reads them.
    predicted
        Predicted classes, (n,), or probabilities, (n, C); None without predictions.
    model
        The model that was trained here; None if predictions were given.
    """

    data: Any
    ids: Ids
    attributes: Attributes | None
    predicted: Any
    model: Any = None

    def nodes(self, text: str | None, reading: Reading) -> Ints:
        """Return the nodes of "test", "all" or a file; None: test if there is a split, else all."""
        mask = getattr(self.data, "test_mask", None)
        if text == "all" or (text is None and mask is None):
            return np.arange(len(self.ids))
        if text is None or text == "test":
            if mask is None:
                raise ValueError("--nodes test needs --split, which says what the test nodes are")
            return np.flatnonzero(np.asarray(mask))
        source = as_file([text], reading)
        if source is None:
            raise ValueError(
                f"--nodes must be test, all or a file (.csv, .txt, .npy, .parquet), got {text}"
            )
        return np.unique(read_nodes(source, self.ids))


def read_inputs(
    arguments: argparse.Namespace, *, predict: bool = True, graph: bool = False
) -> Inputs:
    """Read a data set or own files, and train the model of the options if there are no predictions.

    Parameters
    ----------
    arguments
        With ``dataset`` or ``features``, and the options of both.
    predict
        Whether predicted classes are needed.
    graph
        Whether a graph is needed, even one without edges.
    """
    as_count("seed", arguments.seed, 0)
    if arguments.dataset is None:
        inputs = _read_files(arguments, graph)
    else:
        announce(arguments.dataset)
        data: Any = load(arguments.dataset, arguments.data_root, arguments.seed)
        ids = Ids.of_rows(len(data.x))
        is_given = predict and arguments.predictions is not None
        predicted: Any = read_classes(arguments.predictions, ids) if is_given else None
        inputs = Inputs(data, ids, as_attributes(data), predicted)
    name = arguments.model or ("gcn" if arguments.dataset is not None else "")
    if not predict or not name or inputs.predicted is not None:
        return inputs
    data = inputs.data if arguments.dataset is not None else inputs.data.to_pyg(arguments.seed)
    model, predicted = train_model(name, data, arguments.seed)
    return replace(inputs, data=data, predicted=predicted, model=model)


def _read_files(arguments: argparse.Namespace, graph: bool) -> Inputs:
    name = arguments.model
    has_edges = arguments.edges is not None or arguments.neighbours is not None
    if not name and arguments.predictions is None and arguments.threshold is None:
        raise ValueError(
            "--features needs --predictions, or --model with --truth to train one, or --threshold"
        )
    if name and not has_edges:
        raise ValueError("--features needs --edges or --neighbours")
    if name and arguments.truth is None:
        raise ValueError("--features needs --truth")
    files = own_files(arguments)
    if not has_edges and not graph:
        columns = read_columns(files)
        if files.missing == "error" or not columns.table.has_header:
            attributes_of_files(columns, files)
        return Inputs(columns, columns.ids, None, columns.predicted)
    data = read_own(files)
    if has_edges and data.has_header:
        truth = None if data.y is None else data.y.astype(np.int32)
        sensitive = [
            data.attributes.known("--sensitive", name) for name in arguments.sensitive or ()
        ]
        check_table(
            data.attributes,
            data.labels,
            truth,
            data.class_names,
            sensitive=sensitive,
            left_out=files.without,
            identified=files.id is not None,
        )
    return Inputs(data, data.ids, data.attributes, data.predicted)


def own_files(arguments: argparse.Namespace) -> OwnFiles:
    """Return the own files that the options name."""
    sources = given(arguments, "edges", "predictions", "truth", "split", "compare")
    columns = given(arguments, "id", "threshold", "unknown", "without", "ignore")
    settings = given(arguments, "neighbours", "missing", "as_is", "reading")
    scale = weights(given(arguments, "scale").get("scale"))
    return OwnFiles(arguments.features, scale=scale, **sources, **columns, **settings)


def make_finder(
    arguments: argparse.Namespace, inputs: Inputs, nodes: ArrayLike, **options: Any
) -> EvidenceFinder:
    """Return the finder of a command over some nodes; ``options`` go to its constructor."""
    data = inputs.data
    without = arguments.without or ()
    if inputs.attributes is not None:
        encoded = getattr(data, "feature_attributes", None)
        left_out = [inputs.attributes.known("--without", name) for name in without]
        return EvidenceFinder.from_data(
            data,
            inputs.predicted if inputs.model is None else inputs.model,
            features=inputs.attributes,
            # A column of many texts is not part of the vectors.
            without=[name for name in left_out if encoded is None or name in encoded],
            nodes=nodes,
            **options,
        )
    own_table: OwnTable = data
    scale = weights(arguments.scale)
    vectors: dict[str, Any] = {"scale": scale}
    if arguments.as_is or not own_table.table.has_header:
        vectors = {"encoder": lambda frame: encode(as_attributes(frame), scale=scale, as_is=True).x}
    n = len(own_table.ids)
    return EvidenceFinder.from_table(
        own_table.table,
        # Without predictions the table has problems, which the finder reports together with those
        # of the cells.
        np.zeros(n, np.int64) if own_table.predicted is None else own_table.predicted,
        truth=own_table.truth,
        id=arguments.id,
        sensitive=arguments.sensitive or (),
        without=without,
        ignore=own_table.ignored,
        class_names=own_table.class_names,
        unknown=arguments.unknown,
        nodes=np.isin(np.arange(n), nodes),
        **vectors,
        **options,
    )


def train_model(name: str, data: Any, seed: int) -> tuple[Any, Ints]:
    """Train a model on a graph; return it and its predictions."""
    from cfe_faiss import models

    model = models.build(name, data, seed=seed)
    models.train(model, data, seed=seed, progress=True)
    return model, models.predict(model, data)


# --- values of options ----------------------------------------------------------------------------


def number(option: str, name: str, text: str) -> float:
    """Return the number of an option for an attribute; ValueError for another text."""
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{option} must be a number for {name}, got {text!r}") from None


def weights(texts: Sequence[str] | None) -> dict[str, float] | None:
    """Return the weights of --scale by column; None without any."""
    if texts is None:
        return None
    parts = [text.rpartition("=") for text in texts]
    check_distinct("--scale must name each column once", [name for name, *_ in parts])
    return {name: number("--scale", name or "NAME=WEIGHT", weight) for name, _, weight in parts}


def class_names(names: Sequence[str], option: str, texts: Sequence[str] | None) -> list[str] | None:
    """Return the names of classes that an option gives by name or number; None without the option.

    Raises
    ------
    ValueError
        If there is no such class.
    """
    if not texts:
        return None
    class_values = [int(text) if text.isdecimal() and text not in names else text for text in texts]
    return [names[code] for code in class_numbers(option, class_values, names, len(names))]


def by_name(option: str, texts: Iterable[str] | None, attributes: Attributes) -> dict[str, str]:
    """Return the values of texts "NAME=VALUE" by name; the longest known name counts."""
    values = {}
    for text in texts or ():
        matching_names = [name for name in attributes if text.startswith(f"{name}=")]
        if not matching_names:
            names = ", ".join(list(attributes)[:20])
            hint = did_you_mean(text.partition("=")[0], attributes)
            raise ValueError(
                f"{option} must be like NAME=VALUE, with a name of {names}; got {text!r}{hint}"
            )
        name = max(matching_names, key=len)
        if name in values:
            raise ValueError(f"{option} must name {name!r} once, got it again")
        values[name] = text[len(name) + 1 :]
    return values


def constraints(
    arguments: argparse.Namespace, attributes: Attributes, classes: Sequence[str]
) -> Constraints | None:
    """Return the constraints of the options; None without any."""
    given_options = [option.dest for option in CONSTRAINTS if option.is_given(arguments)]
    values: dict[str, Any] = {dest: getattr(arguments, dest) for dest in given_options}
    if "target" in values:
        values["target"] = class_names(classes, "--target", values["target"])
    for name in ("caliper", "std_caliper"):
        if name in values:
            widths = by_name(flag(name), values[name], attributes)
            values[name] = {
                attribute: number(flag(name), attribute, text) for attribute, text in widths.items()
            }
    if "permitted" in values:
        permitted = by_name("--permitted", values["permitted"], attributes)
        values["permitted"] = {
            attribute: _permitted(attribute, text, attributes)
            for attribute, text in permitted.items()
        }
    return Constraints(**values) if values else None


def _permitted(name: str, text: str, attributes: Attributes) -> Any:
    """Return the range of "LOW:HIGH", of which one may be left out, or the values of "A,B,C"."""
    is_number = attributes[name].numbers is not None
    if is_number and ":" in text:
        low, _, high = text.partition(":")
        return number("--permitted", name, low or "-inf"), number(
            "--permitted", name, high or "inf"
        )
    values = [value.strip() for value in text.split(",")]
    return [number("--permitted", name, value) for value in values] if is_number else values
