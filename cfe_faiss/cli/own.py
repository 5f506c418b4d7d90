"""Users' own files: read by the commands, and checked against their outputs."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.checks import did_you_mean
from cfe_faiss.cli.output import note
from cfe_faiss.cli.parser import flag
from cfe_faiss.datasets import files_of
from cfe_faiss.datasets.own import Ids, OwnFiles, OwnGraph, Source, read_own
from cfe_faiss.datasets.own.classes import read_classes
from cfe_faiss.datasets.own.graph import read_ids, read_nodes, read_numbers
from cfe_faiss.datasets.own.table import SUFFIXES, is_table
from cfe_faiss.files.outputs import check_outputs
from cfe_faiss.finder.suspicious import check_table
from cfe_faiss.index.protocol import EvidenceIndex

# Options of own files, which have no effect without --features.
OPTIONS = ("id", "edges", "neighbours", "predictions", "truth", "split", "categorical", "missing", "as_is")


def refuse(arguments: argparse.Namespace, names: Sequence[str], where: str) -> None:
    """Raise ValueError if one of these options is given, which would have no effect."""
    for name in names:
        if getattr(arguments, name, None):
            raise ValueError(f"{flag(name)} has no effect {where}")


def read(arguments: argparse.Namespace, *needed: str, encode: bool = True) -> OwnGraph:
    """Read the files that the options name; ``encode`` as in :func:`cfe_faiss.datasets.own.read_own`.

    Raises
    ------
    ValueError
        If one of the ``needed`` options is missing ("edges" or "neighbours" for "edges"), or a file is invalid.
    """
    for name in needed:
        if getattr(arguments, name) is None and not (name == "edges" and arguments.neighbours is not None):
            also = " or --neighbours" if name == "edges" else ""
            raise ValueError(f"--features needs {flag(name)}{also}")
    given = {name: getattr(arguments, name, None) for name in (*OPTIONS, "without", "compare")}
    files = OwnFiles(arguments.features, **{name: value for name, value in given.items() if value is not None})
    data = read_own(files, encode=encode)
    if data.edge_index is not None and is_table(arguments.features):  # the finder checks a table without a graph
        truth = None if data.y is None else data.y.astype(np.int32)
        sensitive = [data.attributes.known("--sensitive", name) for name in arguments.sensitive or ()]
        check_table(data.attributes, data.labels, truth, data.class_names, sensitive=sensitive, left_out=files.without)
    if data.y is not None and (data.y < 0).any():
        note(f"no true class for {int((data.y < 0).sum()):,} of {len(data.y):,} nodes")
    return data


@dataclass(frozen=True)
class Names:
    """The users' names of nodes and classes, if they are known."""

    ids: Ids | None
    classes: tuple[str, ...] = ()

    @classmethod
    def read(cls, arguments: argparse.Namespace, index: EvidenceIndex) -> "Names":
        """Read the names of nodes and classes of an index from the files that it was built from.

        Raises
        ------
        ValueError
            If the index holds another number of nodes or other classes than the files.
        """
        if arguments.features is None:
            return cls(None)
        if arguments.id is None and arguments.predictions is None:
            raise ValueError("--features needs --id or --predictions: it names nodes or classes")
        ids = read_ids(arguments.features, arguments.id)
        members = index.members()
        if len(members.ids) and members.ids[-1] >= len(ids):
            raise ValueError(
                f"{arguments.features} must be what the index was built from, got {len(ids):,} rows and node "
                f"{members.ids[-1]} in the index"
            )
        if arguments.predictions is None:
            return cls(ids)
        found = read_classes(arguments.predictions, None, ids)
        check_labels(index, found.labels)
        return cls(ids, found.names)

    def nodes(self, numbers: NDArray[np.int64]) -> NDArray[Any]:
        """Return the names of nodes, or their numbers."""
        return numbers if self.ids is None else self.ids.names[numbers]

    def labels(self, labels: NDArray[np.int32]) -> NDArray[Any]:
        """Return the names of classes, or their numbers."""
        return np.array(self.classes, object)[labels] if self.classes else labels

    def find(self, texts: Sequence[str] | None, index: EvidenceIndex) -> NDArray[np.int64] | None:
        """Return the numbers of the nodes of --nodes, given one by one or in a file; None for all of the index."""
        if texts is None:
            return None
        source = as_file(texts)
        if source is not None and self.ids is None:
            return read_numbers(source, int(index.members().ids.max(initial=-1)) + 1)
        if self.ids is not None:
            found = self.ids.find(texts) if source is None else read_nodes(source, self.ids)
            if (found < 0).any():
                wrong = texts[int(np.argmax(found < 0))]
                hint = did_you_mean(wrong, map(str, self.ids.names.tolist()))
                raise ValueError(f"--nodes must name nodes of the features, got {wrong!r}{hint}")
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


def as_file(texts: Sequence[str]) -> Source | None:
    """Return the file that --nodes names, or None."""
    if len(texts) != 1:
        return None
    source = Source.parse(texts[0])
    return source if source.path.name.lower().endswith((*SUFFIXES, ".npy")) else None


def check_labels(index: EvidenceIndex, predicted: NDArray[Any]) -> None:
    """Raise ValueError if an index holds other classes than these predictions of all nodes."""
    members = index.members()
    other = int((predicted[members.ids] != members.labels).sum())
    if other:
        raise ValueError(
            f"--predictions must be what the index was built from, got another class for {other:,} of "
            f"{len(members.ids):,} nodes"
        )


def check_files(arguments: argparse.Namespace) -> None:
    """Raise ValueError if an output of a command is one of its inputs, or a file of another program."""
    outputs = [path for name in arguments.outputs if (path := getattr(arguments, name)) is not None]
    check_outputs(outputs, inputs(arguments), overwrite=arguments.overwrite)


def inputs(arguments: argparse.Namespace) -> list[Path]:
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
