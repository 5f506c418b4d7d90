"""A graph from files: features, edges, classes and splits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.attributes.table import Attribute, Attributes, as_attributes
from cfe_faiss.base.checks import as_count
from cfe_faiss.base.extras import extra
from cfe_faiss.data.classes import Predictions, Threshold, as_predictions
from cfe_faiss.data.columns import Table
from cfe_faiss.data.dialect import DEFAULT, Reading
from cfe_faiss.data.encode import Encoding, can_be_encoded, encode
from cfe_faiss.data.read import read_graph, read_table
from cfe_faiss.data.roles import Ids, Roles, Source, check_categories
from cfe_faiss.datasets.own.classes import labels_of, read_classes

if TYPE_CHECKING:
    import pandas as pd
    from torch_geometric.data import Data

_YES, _NO = frozenset(("1", "true", "yes")), frozenset(("0", "false", "no"))
_PARTS = {"train": 0, "training": 0, "val": 1, "valid": 1, "validation": 1, "test": 2}


@dataclass(frozen=True)
class OwnFiles:
    """Files of a graph, and how to read them.

    Attributes
    ----------
    features
        One row per node: ``.csv``, ``.csv.gz`` or ``.parquet`` with a header, the attributes of the nodes in their own
        units; or a matrix without a header, ``.csv``, ``.txt`` or ``.npy``, which stays unscaled.
    id
        Column of the nodes' ids, in every file with a header. None: nodes go by their number, 0..n-1, and row i of
        every file is node i.
    edges
        Two columns of ids; where ``id`` is None, everything that :func:`cfe_faiss.data.read.read_graph` reads.
    neighbours
        In place of edges: number of nearest nodes by ``x`` that each node is joined to.
    threshold
        In place of predictions, a decision by a column of the features, such as "score>=5"; the column is no feature.
    unknown
        Values that stand for an unknown class; default: -1, unless 1 is the only other class.
    predictions, truth, split
        Predicted classes or probabilities; true classes; and "train", "val" or "test" for each node. A column named in
        the file of the features is no feature.
    categorical
        Columns of numbers that are codes of categories, such as postal codes.
    missing
        "keep": mark missing values, see :func:`cfe_faiss.data.encode.encode`. "error": refuse them.
    as_is
        Whether to keep numbers in ``x`` unscaled.
    scale
        Weights of attributes in ``x``, see :func:`cfe_faiss.data.encode.encode`.
    without
        Attributes that the choice of neighbours ignores. A column of more than 100 texts is left out of ``x``, too;
        :meth:`cfe_faiss.EvidenceFinder.from_data` leaves the others out of the vectors.
    ignore
        Columns that are neither features nor attributes.
    compare
        Predictions of other models, which are not read here: their columns are no features, either.
    reading
        How to read the features; each other file says it itself.
    """

    features: Path
    id: str | None = None
    edges: Source | None = None
    neighbours: int | None = None
    predictions: Source | None = None
    truth: Source | None = None
    split: Source | None = None
    categorical: Sequence[str] = ()
    missing: str = "keep"
    as_is: bool = False
    scale: Mapping[str, float] | None = None
    without: Sequence[str] = ()
    ignore: Sequence[str] = ()
    compare: Sequence[Source] = ()
    threshold: str | None = None
    unknown: Sequence[str] | None = None
    reading: Reading = DEFAULT


@dataclass(frozen=True, repr=False)
class OwnGraph:
    """A graph from files, usable like PyG ``Data``; made by :func:`read_own`.

    Attributes
    ----------
    name
        Name of the features' file, without its suffix.
    x_raw, x
        Features of n nodes, (n, d) float32, in their own units and scaled, see :class:`cfe_faiss.data.encode.Encoding`.
        Scaled columns of an attribute table have mean 0: KS vectors compare by cosine.
    feature_names
        d names, "Income" or "sex=f".
    feature_attributes
        The attribute that each column of ``x`` comes from, d names.
    attributes
        Columns of the file, row i of node i.
    ids
        The users' names of the nodes.
    edge_index
        (2, E) int64; or a SciPy sparse matrix, from .npz; None without a graph.
    class_names
        Classes as the files write them; empty without classes.
    predicted
        Predicted classes, (n,) int32, or probabilities, (n, C) float64; or None.
    y
        True classes, (n,) int64, -1 if unknown; or None.
    has_header
        Whether the columns of the file have names, which those of a matrix have not.
    train_mask, val_mask, test_mask
        (n,) bool; None without a split.
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
    has_header: bool = True
    train_mask: NDArray[np.bool_] | None = None
    val_mask: NDArray[np.bool_] | None = None
    test_mask: NDArray[np.bool_] | None = None

    def __repr__(self) -> str:
        n, d = self.x.shape
        return f"OwnGraph({self.name!r}, {n:,} nodes, {len(self.attributes)} attributes in {d} columns)"

    @property
    def node_ids(self) -> NDArray[Any] | None:
        """The users' names of the nodes, (n,); None if they go by their number."""
        return None if self.ids.column is None else self.ids.names

    @property
    def labels(self) -> NDArray[np.int32] | None:
        """Predicted classes, (n,); of equal probabilities the first class."""
        return None if self.predicted is None else labels_of(self.predicted)

    def to_pyg(self, seed: int = 0) -> "Data":
        """Return the graph for training a model.

        Parameters
        ----------
        seed
            Seed of :func:`cfe_faiss.datasets.split.split_masks`, if the files hold no split.

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

        if self.y is None or self.edge_index is None:
            lacking = "true classes" if self.y is None else "edges"
            raise ValueError(f"{self.name}: {lacking} are needed to train a model")
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
        arrays = {"x": self.x, "x_raw": self.x_raw, "edge_index": edges, "y": self.y}
        texts = ("name", "feature_names", "feature_attributes", "class_names", "node_ids")
        return Data(
            **{name: torch.from_numpy(array) for name, array in arrays.items()},
            **{name: getattr(self, name) for name in texts},
            train_mask=train,
            val_mask=val,
            test_mask=test,
        )


def read_own(files: OwnFiles) -> OwnGraph:
    """Read a graph from users' own files.

    Parameters
    ----------
    files
        The files, and how to read them.

    Returns
    -------
    OwnGraph
        O(n d + E) time and memory, plus that of :func:`nearest_neighbours` if it makes the graph.

    Raises
    ------
    OSError
        If a file cannot be read.
    ValueError
        If a file has another content. The error names the file, and the column and line if there are any.
    ImportError
        If PyArrow is missing, for Parquet; or openpyxl, for Excel.
    """
    if files.missing not in ("keep", "error"):
        raise ValueError(f"missing must be keep or error, got {files.missing!r}")
    table, roles = _features(files)
    ids = Ids.of_rows(len(table))
    with table.problems.collect():
        ids = Ids.of_column(table, files.id)
    columns = table.frame(roles.attributes(table))
    check_categories(table, columns, [str(name) for name in columns], files.without)
    decisions = None
    if files.threshold is not None:
        with table.problems.collect():
            decisions = _decisions(table, Threshold.parse(files.threshold, table.reading))
    attributes = _attributes(files, table, columns)
    encoded = [name for name, attribute in attributes.items() if can_be_encoded(attribute)]
    if not encoded:
        raise ValueError(f"{table.name} must hold features that vectors are made from, got none")
    as_is = files.as_is or not table.has_header
    encoding = encode(attributes.select(encoded), scale=files.scale, as_is=as_is)
    classes = read_classes(files.predictions, files.truth, ids, files.unknown, decisions)
    masks = (None, None, None) if files.split is None else read_split(files.split, ids)
    return OwnGraph(
        files.features.name.partition(".")[0],
        encoding.x if as_is else encoding.x - encoding.x.mean(axis=0),
        encoding.x_raw,
        list(encoding.names),
        list(encoding.attributes),
        attributes,
        ids,
        _edges(files, ids, encoding),
        list(classes.names),
        classes.predicted,
        classes.y,
        table.has_header,
        *masks,
    )


def read_attributes(files: OwnFiles) -> Attributes:
    """Read attributes only: any number of texts, and missing values.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it holds no table, or a matrix holds texts.
    """
    table, roles = _features(files)
    return _attributes(files, table, table.frame(roles.attributes(table)))


def _decisions(table: Table, threshold: Threshold) -> Predictions:
    """Return the decisions by a threshold of a column."""
    return as_predictions(threshold.classes(table), len(table), threshold.names, "threshold", complete=False)


def _features(files: OwnFiles) -> tuple[Table, Roles]:
    """Return the table of the features, and the roles of its columns: those of classes and split are ignored."""
    path = files.features
    reading = replace(files.reading, categorical=(*files.reading.categorical, *files.categorical))
    table = read_table(path, reading)
    if not table.has_header:
        if files.id is not None:
            raise ValueError(f"{path} must have a header that names the column {files.id!r} of the ids")
        cells = table.cells.set_axis([f"feature {j}" for j in range(table.cells.shape[1])], axis=1)
        table = replace(table, cells=cells)
    given = files.predictions, files.truth, files.split, *files.compare
    others = [source for source in given if source is not None and source.path.resolve() == path.resolve()]
    taken = []
    for name in (name for source in others for name in source.names(table)):
        with table.problems.collect():
            taken.append(table.known("FILE:COLUMN", name))
    if files.threshold is not None:
        with table.problems.collect():
            taken.append(table.known("threshold", Threshold.parse(files.threshold, reading).column))
    return table, Roles(files.id, without=tuple(files.without), ignore=(*files.ignore, *taken))


def _attributes(files: OwnFiles, table: Table, columns: "pd.DataFrame") -> Attributes:
    """Return the attributes in columns; ValueError with all problems of the table."""
    if columns.empty and not table.problems.texts:
        raise ValueError(f"{table.name} must hold features, got {', '.join(table.columns)} only")
    attributes = as_attributes(columns)
    texts = [attribute for attribute in attributes.values() if attribute.numbers is None and attribute.values]
    if texts and not table.has_header:
        names = ", ".join(attribute.name for attribute in texts)
        values = ", ".join(repr(attribute.values[-1]) for attribute in texts[:5])
        remedy = table.reading.remedy("header", "none")
        table.problems.texts.append(
            f"{table.name}: {names} must hold numbers, as there is no header ({remedy} reads a table without one), got "
            f"{values}"
        )
    for attribute in attributes.values():
        with table.problems.collect():
            _check_finite(table, attribute)
    if files.missing == "error":
        with table.problems.collect():
            _check_missing(table, attributes)
    table.problems.check()
    return attributes


def _check_finite(table: Table, attribute: Attribute) -> None:
    if attribute.numbers is not None:
        table.check(np.isinf(attribute.numbers), lambda _: f"{attribute.name} must be finite")


def _check_missing(table: Table, attributes: Attributes) -> None:
    missing = {attribute.name: attribute.missing for attribute in attributes.values() if attribute.missing.any()}
    if not missing:
        return
    name, *others = missing
    rows = missing[name]
    text = f"column {name!r} lacks a value here and in {rows.sum() - 1:,} other of {len(rows):,} rows"
    text += "".join(f", column {other!r} in {missing[other].sum():,}" for other in others)
    remedy = table.reading.remedy("missing", "keep")
    table.check(rows, lambda _: f"{text}; {remedy} keeps them")


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


def read_edges(source: Source, ids: Ids) -> Any:
    """Read a graph.

    With ids: two columns of ids, of ``.csv`` or ``.parquet`` with a header or ``.txt`` without one; the source names
    them if there are more. If nodes go by their number, also everything that
    :func:`cfe_faiss.data.read.read_graph` reads.

    Returns
    -------
    ndarray or scipy.sparse matrix
        The edges, (2, E) int64, or the adjacency matrix of an .npz file. E is 0 if a file holds a header only.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it has another content, or names an unknown node.
    """
    path, plain = source.path, ids.column is None and not source.columns
    if path.suffix in (".npy", ".npz") and not plain:
        raise ValueError(f"{path} must be .csv, .parquet or .txt where nodes have ids or columns are named")
    if path.suffix in (".npy", ".npz") or (path.suffix == ".txt" and plain):
        return read_graph(path, source.reading)
    table, names = source.read(empty=True)
    if len(names) != 2:
        raise ValueError(
            f"{path} must hold two columns of nodes, got {len(names)} ({', '.join(names[:20])}); "
            f"to name two: {path}:COLUMN,COLUMN"
        )
    for name in names if table.has_header else ():
        if ids.find([name])[0] >= 0:
            raise ValueError(f"{path} must begin with a header, the names of its columns, got node {name!r} there")
    return np.stack([ids.nodes_of(table, name) for name in names])


def nearest_neighbours(x: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    """Join each row to its k nearest other rows by Euclidean distance. The graph is the union of these pairs.

    Returns
    -------
    ndarray
        (2, n k) int64. O(n^2 d) time at worst, for many columns.

    Raises
    ------
    TypeError, ValueError
        If k is not in 1..n-1.
    """
    k = as_count("neighbours", k)
    if k >= len(x):
        raise ValueError(f"neighbours must be less than the number of nodes, {len(x):,}, got {k}")
    from sklearn.neighbors import kneighbors_graph  # takes a second to import

    graph = kneighbors_graph(x, k).tocoo()
    return np.stack([graph.row, graph.col]).astype(np.int64)


def read_nodes(source: Source, ids: Ids) -> NDArray[np.int64]:
    """Read a mask of all nodes, or a list of some.

    A mask is a column of 0 and 1 (or false and true, no and yes) with a row for every node; a list is a column of ids
    without any other column. A file without a header is a mask if it has n rows of 0 and 1, else a list.

    Returns
    -------
    ndarray
        The nodes, (m,) int64, in the order of the list, or ascending.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it is neither, or holds no node.
    """
    table, names = _one_column(source, ids.column)
    if not names or (not table.has_header and not _is_mask(table, names[0], len(ids))):
        nodes = ids.nodes_of(table, names[0] if names else str(ids.column))
    else:
        texts = [text.lower() for text in table.texts(names[0])]
        wrong = [text not in _YES | _NO for text in texts]
        table.check(wrong, lambda row: f"{names[0]} must be 0 or 1, got {texts[row]!r}")
        nodes = np.sort(ids.all_rows(table)[[text in _YES for text in texts]])
    if not len(nodes):
        raise ValueError(f"{table.name} must hold at least one node, got none")
    return nodes


def read_numbers(source: Source, n: int) -> NDArray[np.int64]:
    """Read a mask or a list as :func:`read_nodes` does, if nodes go by their number and there are at least n.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it is neither, or holds no node.
    """
    table, names = _one_column(source, None)
    if len(table) >= n and _is_mask(table, names[0], len(table)):
        return read_nodes(source, Ids.of_rows(len(table)))
    texts = table.texts(names[0])
    wrong = [not (text.isdecimal() and len(text) < 19) for text in texts]
    table.check(wrong, lambda row: f"{names[0]} must be a node number, got {texts[row]!r}")
    return np.array([int(text) for text in texts], np.int64)


def read_split(source: Source, ids: Ids) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
    """Read the part of every node: train, val or test; an empty field: none of them.

    Returns
    -------
    tuple of ndarray
        The masks of train, val and test, each (n,) bool.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If a part has another name, or no node.
    """
    table, names = source.read(ids.column)
    if len(names) != 1:
        raise ValueError(f"{table.name} must hold one column of train, val and test, got {', '.join(names) or 'none'}")
    texts = table.texts(names[0])
    wrong = [bool(text) and text.lower() not in _PARTS for text in texts]
    table.check(wrong, lambda row: f"{names[0]} must be train, val or test, got {texts[row]!r}")
    part = np.array([_PARTS.get(text.lower(), -1) for text in ids.align(table, texts)])
    for number, name in enumerate(("train", "val", "test")):
        if not (part == number).any():
            raise ValueError(f"{table.name} must hold nodes for train, val and test, got none for {name}")
    return part == 0, part == 1, part == 2


def _one_column(source: Source, id_column: str | None) -> tuple[Table, tuple[str, ...]]:
    table, names = source.read(id_column)
    if len(names) > 1:
        raise ValueError(f"{table.name} has several columns ({', '.join(names[:20])}): name one, {table.name}:COLUMN")
    return table, names


def _is_mask(table: Table, column: str, n: int) -> bool:
    return len(table) == n and {text.lower() for text in table.texts(column)} <= _YES | _NO
