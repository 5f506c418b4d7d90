"""All files of one graph together."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.attributes.table import Attributes
from cfe_faiss.base.extras import extra
from cfe_faiss.datasets.own.classes import read_array, read_classes
from cfe_faiss.datasets.own.edges import nearest_neighbours, read_edges
from cfe_faiss.datasets.own.encoding import MOST_VALUES, Encoding
from cfe_faiss.datasets.own.encoding import encode as encode_attributes
from cfe_faiss.datasets.own.ids import Ids
from cfe_faiss.datasets.own.nodes import read_split
from cfe_faiss.datasets.own.table import Column, Source, Table, as_numbers, as_texts, read_table

if TYPE_CHECKING:
    from torch_geometric.data import Data


@dataclass(frozen=True)
class OwnFiles:
    """Which files hold a graph, and how to read them.

    Attributes
    ----------
    features
        One row per node: ``.csv``, ``.csv.gz`` or ``.parquet`` with a header, the attributes of the nodes in their own
        units; or a matrix without a header, ``.csv``, ``.txt`` or ``.npy``, which is taken as it is.
    id
        The column of the nodes' ids, in every file that has a header. None: nodes go by their number, 0..n-1, and row i
        of every file is node i.
    edges
        Two columns of ids; where ``id`` is None, everything that :func:`cfe_faiss.base.tables.read_graph` reads.
    neighbours
        In place of edges: join each node to so many nearest ones by ``x``.
    predictions, truth, split
        Predicted classes or probabilities; true classes; and "train", "val" or "test" for each node. A column that is
        named in the file of the features is none of the features.
    categorical
        Columns of numbers that are codes of categories, as a postal code is.
    missing
        "error": a missing value is one. "keep": it is a value of its own, see
        :func:`cfe_faiss.datasets.own.encoding.encode`.
    as_is
        Whether to leave numbers in ``x`` as they are, not scaled.
    without
        Attributes that neighbours are not chosen by, and that may hold more texts than categories do: they are not in
        ``x`` then. The others of them are; leaving them out of the vectors is up to
        :meth:`cfe_faiss.EvidenceFinder.from_data`.
    """

    features: Path
    id: str | None = None
    edges: Source | None = None
    neighbours: int | None = None
    predictions: Source | None = None
    truth: Source | None = None
    split: Source | None = None
    categorical: Sequence[str] = ()
    missing: str = "error"
    as_is: bool = False
    without: Sequence[str] = ()


@dataclass(frozen=True, repr=False)
class OwnGraph:
    """A graph from files, for what takes PyG ``Data``; made by :func:`read_own`.

    Attributes
    ----------
    name
        Of the features' file, without its suffix.
    x, x_raw
        Features of n nodes, (n, d) float32, scaled and in their own units, see
        :class:`cfe_faiss.datasets.own.encoding.Encoding`.
    feature_names
        d names, "Income" or "sex=f".
    feature_attributes
        The attribute that each column of ``x`` comes from, d names.
    attributes
        What the file says of each node, row i of node i.
    ids
        The users' names of the nodes.
    edge_index
        (2, E) int64; or a SciPy sparse matrix, from .npz; None where no graph was asked for.
    class_names
        Classes, as the files write them; empty where there are none.
    predicted
        Predicted classes, (n,) int32, or probabilities, (n, C) float64; None where there are none.
    y
        True classes, (n,) int64, -1 where not known; None where there are none.
    train_mask, val_mask, test_mask
        (n,) bool; None where there is no split.
    """

    name: str
    x: NDArray[np.float32]
    x_raw: NDArray[np.float32]
    feature_names: list[str]
    feature_attributes: list[str]
    attributes: Attributes
    ids: Ids
    edge_index: Any = None
    class_names: list[str] = field(default_factory=list)
    predicted: NDArray[np.int32] | NDArray[np.float64] | None = None
    y: NDArray[np.int64] | None = None
    train_mask: NDArray[np.bool_] | None = None
    val_mask: NDArray[np.bool_] | None = None
    test_mask: NDArray[np.bool_] | None = None

    def __repr__(self) -> str:
        n, d = self.x.shape
        return f"OwnGraph({self.name!r}, {n:,} nodes, {len(self.attributes)} attributes in {d} columns)"

    @property
    def node_ids(self) -> NDArray[Any] | None:
        """The users' names of the nodes, (n,); None where they go by their number."""
        return None if self.ids.column is None else self.ids.names

    @property
    def labels(self) -> NDArray[np.int32] | None:
        """Predicted classes, (n,); of equal probabilities the first class."""
        if self.predicted is None:
            return None
        classes = self.predicted if self.predicted.ndim == 1 else self.predicted.argmax(axis=1)
        return classes.astype(np.int32)

    def to_pyg(self, seed: int = 0) -> "Data":
        """Return the graph for training a model.

        Parameters
        ----------
        seed
            Of :func:`cfe_faiss.datasets.split.split_masks`, where the files hold no split.

        Raises
        ------
        ValueError
            If there are no edges or true classes, or a node of train, val or test has no true class. Without a split,
            nodes without a true class are in no mask.
        ImportError
            If torch or PyG is missing.
        """
        with extra("gnn"):
            import torch
            from torch_geometric.data import Data

        from cfe_faiss.datasets.split import split_masks
        from cfe_faiss.graph import as_graph

        if self.y is None:
            raise ValueError(f"{self.name}: true classes are needed to train a model")
        if self.edge_index is None:
            raise ValueError(f"{self.name}: edges are needed to train a model")
        known = self.y >= 0
        masks = np.zeros((3, len(known)), bool)
        if self.train_mask is None:
            masks[:, known] = [mask.numpy() for mask in split_masks(self.y[known], seed)]
        else:
            masks[:] = self.train_mask, self.val_mask, self.test_mask
        for part, mask in zip(("train", "val", "test"), masks, strict=True):
            unknown = np.flatnonzero(mask & ~known)
            if len(unknown):
                name = str(self.ids.names[unknown[0]])
                raise ValueError(f"{self.name}: {len(unknown):,} nodes of {part} have no true class, such as {name!r}")
        graph = as_graph(self.edge_index, len(self.x))
        sources = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
        edges = np.stack([sources, graph.indices.astype(np.int64)])
        train, val, test = torch.from_numpy(masks)
        return Data(
            x=torch.from_numpy(self.x),
            x_raw=torch.from_numpy(self.x_raw),
            edge_index=torch.from_numpy(edges),
            y=torch.from_numpy(self.y),
            train_mask=train,
            val_mask=val,
            test_mask=test,
            name=self.name,
            feature_names=self.feature_names,
            feature_attributes=self.feature_attributes,
            class_names=self.class_names,
            node_ids=self.node_ids,
        )


def read_own(files: OwnFiles, *, encode: bool = True) -> OwnGraph:
    """Read a graph from users' own files.

    Parameters
    ----------
    files
        Which ones, and how.
    encode
        False where no similarity is asked for: ``x`` and ``x_raw`` have no columns then, and neither missing values nor
        many different texts are an error.

    Returns
    -------
    OwnGraph
        O(n d + E) time and memory, and that of :func:`cfe_faiss.datasets.own.edges.nearest_neighbours` where it makes
        the graph.

    Raises
    ------
    OSError
        If a file cannot be read.
    ValueError
        If a file does not hold what it should. The error names the file, and the column and line where there are any.
    ImportError
        If PyArrow is missing, for Parquet.
    """
    if files.missing not in ("error", "keep"):
        raise ValueError(f"missing must be error or keep, got {files.missing!r}")
    table = _features(files)
    ids = Ids.of_rows(len(table)) if files.id is None else Ids.of_column(table, files.id)
    if encode:
        attributes = _attributes(files, table)
        encoding = _encoding(files, table, attributes)
    else:
        attributes = _attributes(replace(files, missing="keep"), table, most_texts=None)
        encoding = encode_attributes(attributes.select(()))
    classes = read_classes(files.predictions, files.truth, ids)
    train, val, test = (None, None, None) if files.split is None else read_split(files.split, ids)
    return OwnGraph(
        name=files.features.name.partition(".")[0],
        x=encoding.x,
        x_raw=encoding.x_raw,
        feature_names=list(encoding.names),
        feature_attributes=list(encoding.attributes),
        attributes=attributes,
        ids=ids,
        edge_index=_edges(files, ids, encoding),
        class_names=list(classes.names),
        predicted=classes.predicted,
        y=classes.y,
        train_mask=train,
        val_mask=val,
        test_mask=test,
    )


def read_ids(features: Path, column: str | None) -> Ids:
    """Read the ids of the nodes only.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it has no such column, or an id is missing or occurs twice.
    """
    table = read_array(Source(features)) or read_table(features)
    return Ids.of_rows(len(table)) if column is None else Ids.of_column(table, column)


def read_attributes(features: Path, column: str | None, categorical: Sequence[str] = ()) -> tuple[Attributes, Ids]:
    """Read attributes and ids only: of any number of texts, and with missing values.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it does not hold a table, or a matrix holds something else than numbers.
    """
    files = OwnFiles(features, id=column, categorical=categorical, missing="keep")
    table = _features(files)
    ids = Ids.of_rows(len(table)) if column is None else Ids.of_column(table, column)
    return _attributes(files, table, most_texts=None), ids


def _features(files: OwnFiles) -> Table:
    """Return the table of the features, without the columns of classes and split."""
    path = files.features
    table = read_array(Source(path)) or read_table(path)
    if not table.has_header:
        if files.id is not None:
            raise ValueError(f"{path} must have a header that names the column {files.id!r} of the ids")
        named = {f"feature {place}": column for place, column in enumerate(table.columns.values())}
        return Table(path, named, False, table.lines)
    others = (source for source in (files.predictions, files.truth, files.split) if source is not None)
    taken = {name for source in others if _same(source.path, path) for name in source.columns}
    return Table(path, {n: c for n, c in table.columns.items() if n not in taken}, True, table.lines)


def _same(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve()


def _attributes(files: OwnFiles, table: Table, most_texts: int | None = MOST_VALUES) -> Attributes:
    names = [name for name in table.columns if not table.has_header or name != files.id]
    if not names:
        raise ValueError(f"{table.path} must hold features, got {', '.join(table.columns)} only")
    for argument, given in (("categorical", files.categorical), ("without", files.without)):
        for name in given:
            if name not in names:
                raise ValueError(
                    f"{argument} must name columns of {table.path} ({', '.join(names[:20])}), got {name!r}"
                )
    columns: dict[str, Any] = {}
    for name in names:
        numbers = None if name in files.categorical else as_numbers(table.columns[name])
        if numbers is None:
            columns[name] = _texts(files, table, name, None if name in files.without else most_texts)
        else:
            _check_numbers(files, table, name, numbers)
            columns[name] = numbers
    return Attributes(columns, np.arange(len(table)))


def _check_numbers(files: OwnFiles, table: Table, name: str, numbers: NDArray[np.float64]) -> None:
    infinite = np.isinf(numbers)
    if infinite.any():
        raise ValueError(f"{table.path}, {table.place(int(np.argmax(infinite)))}: {name} must be finite")
    _check_missing(files, table, name, np.isnan(numbers))


def _texts(files: OwnFiles, table: Table, name: str, most: int | None) -> tuple[NDArray[np.int32], tuple[str, ...]]:
    """Return the codes of a column of texts, -1 where missing, and the texts."""
    column: Column = table.columns[name]
    if not table.has_header:
        row = next(row for row, text in enumerate(column) if as_numbers([text]) is None)
        raise ValueError(f"{table.path}, {table.place(row)}: {name} must be a number, as there is no header")
    texts = as_texts(column)
    values = sorted(set(texts) - {""})
    codes = {value: code for code, value in enumerate(values)} | {"": -1}
    coded = np.array([codes[text] for text in texts], np.int32)
    _check_missing(files, table, name, coded < 0)
    if most is not None and len(values) > most:
        raise ValueError(
            f"{table.path}: column {name!r} has {len(values):,} different texts, more than {most}, which is no "
            f"category{_number_hint(values)}; without={name} keeps it out of the vectors"
            + (f", id={name} takes it for the ids" if len(values) == len(texts) else "")
        )
    return coded, tuple(values)


def _number_hint(values: list[str]) -> str:
    """Say what may be wrong with a column of numbers that are read as texts."""
    if as_numbers([value.replace(",", ".") for value in values]) is not None:
        return " (numbers need a decimal point, not a comma)"
    wrong = [value for value in values if as_numbers([value]) is None]
    return f" (not a number: {wrong[0][:40]!r})" if len(wrong) < len(values) / 2 else ""


def _check_missing(files: OwnFiles, table: Table, name: str, missing: NDArray[np.bool_]) -> None:
    if missing.any() and files.missing == "error":
        row = int(np.argmax(missing))
        raise ValueError(
            f"{table.path}, {table.place(row)}: column {name!r} lacks a value here and in {missing.sum() - 1:,} other "
            f"of {len(missing):,} rows; missing=keep makes it a value of its own"
        )


def _encoding(files: OwnFiles, table: Table, attributes: Attributes) -> Encoding:
    encoded = [
        name
        for name, attribute in attributes.items()
        if name not in files.without or attribute.numbers is not None or len(attribute.values) <= MOST_VALUES
    ]
    if not encoded:
        raise ValueError(f"{table.path} must hold features that vectors are made from, got none")
    return encode_attributes(attributes.select(encoded), as_is=files.as_is or not table.has_header)


def _edges(files: OwnFiles, ids: Ids, encoding: Encoding) -> Any:
    if files.edges is not None and files.neighbours is not None:
        raise ValueError("edges and neighbours exclude each other, got both")
    if files.edges is not None:
        return read_edges(files.edges, ids)
    if files.neighbours is None:
        return None
    kept = [column for column, name in enumerate(encoding.attributes) if name not in files.without]
    if not kept:
        raise ValueError("neighbours need features to be chosen by, got none beside those of without")
    return nearest_neighbours(encoding.x[:, kept], files.neighbours)
