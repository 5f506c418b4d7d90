"""Files of users: a table of features, and files of edges, classes and splits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cfe_faiss.attributes.table import Attributes, as_attributes
from cfe_faiss.base.checks import UNKNOWN, Array, Bools, Doubles, Floats, Int32s, Ints, check_known
from cfe_faiss.base.extras import extra, pd
from cfe_faiss.data.classes import as_predictions, note_classes, split_threshold, true_classes
from cfe_faiss.data.columns import DEFAULT, Reading, Table
from cfe_faiss.data.encode import Encoding, can_be_encoded, encode
from cfe_faiss.data.read import read_graph, read_table
from cfe_faiss.data.roles import Ids, Roles, Source
from cfe_faiss.graph.csr import nearest_neighbours

if TYPE_CHECKING:
    from torch_geometric.data import Data

__all__ = ["OwnFiles", "OwnGraph", "read_own"]

_MASK = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
_PARTS = {"train": 0, "training": 0, "val": 1, "valid": 1, "validation": 1, "test": 2}
_ROUNDING = 0.01


@dataclass(frozen=True)
class OwnFiles:
    """Files of a graph, and how to read them.

    Attributes
    ----------
    features
        One row per node: ``.csv``, ``.csv.gz`` or ``.parquet`` with a header, the attributes of the
        nodes in their own units; or a matrix without a header, ``.csv``, ``.txt`` or ``.npy``,
        which stays unscaled.
    id
        Column of the nodes' ids, in every file with a header. None: nodes go by their number,
        0..n-1, and row i of every file is node i.
    edges
        Two columns of ids; where ``id`` is None, everything that
        :func:`cfe_faiss.data.read.read_graph` reads.
    neighbours
        In place of edges: number of nearest nodes by ``x`` that each node is joined to.
    threshold
        In place of predictions, a decision by a column of the features, such as "score>=5"; the
        column is no feature.
    unknown
        Values that stand for an unknown class; default: -1, unless 1 is the only other class.
    predictions, truth, split
        Predicted classes or probabilities; true classes; and "train", "val" or "test" for each
        node. A column named in the file of the features is no feature.
    missing
        "keep": mark missing values, see :func:`cfe_faiss.data.encode.encode`. "error": refuse them.
    as_is
        Whether to keep numbers in ``x`` unscaled.
    scale
        Weights of attributes in ``x``, see :func:`cfe_faiss.data.encode.encode`.
    without
        Attributes that the choice of neighbours ignores. A column of more than 100 texts is left
        out of ``x``, too; :meth:`cfe_faiss.EvidenceFinder.from_data` leaves the others out of the
        vectors.
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
    missing: str = "keep"
    as_is: bool = False
    scale: Mapping[str, float] | None = None
    without: Sequence[str] = ()
    ignore: Sequence[str] = ()
    compare: Sequence[Source] = ()
    threshold: str | None = None
    unknown: Sequence[str] | None = None
    reading: Reading = DEFAULT


@dataclass(frozen=True)
class OwnTable:
    """The columns of users' files, row v of node v; made by :func:`read_columns`.

    Attributes
    ----------
    table
        The features. It holds the problems of all files, except problems of its cells.
    ids
        The users' names of the nodes.
    ignored
        Columns of the table that are no attributes.
    predicted
        Predicted classes, a Series, or probabilities, a frame with a column for each class; or
        None.
    class_names
        Names of the classes if the predictions say them: columns of probabilities, or a threshold;
        or None.
    truth
        True classes; or None.
    masks
        Of train, val and test, (3, n) bool; None without a split.
    """

    table: Table
    ids: Ids
    ignored: tuple[str, ...]
    predicted: "pd.Series[Any] | pd.DataFrame | None" = None
    class_names: tuple[str, ...] | None = None
    truth: "pd.Series[Any] | None" = None
    masks: Bools | None = None

    @property
    def test_mask(self) -> Bools | None:
        """The test nodes, (n,) bool; None without a split."""
        return None if self.masks is None else self.masks[2]


@dataclass(frozen=True, repr=False)
class OwnGraph:
    """A graph from files, usable like PyG ``Data``; made by :func:`read_own`.

    Attributes
    ----------
    name
        Name of the features' file, without its suffix.
    x_raw, x
        Features of n nodes, (n, d) float32, in their own units and scaled, see
        :class:`cfe_faiss.data.encode.Encoding`. Scaled columns of an attribute table have mean 0:
        KS vectors compare by cosine.
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
    labels
        Predicted classes, (n,) int32; of equal probabilities the first class; or None.
    y
        True classes, (n,) int64, -1 if unknown; or None.
    has_header
        Whether the columns of the file have names, unlike the columns of a matrix.
    train_mask, val_mask, test_mask
        (n,) bool; None without a split.
    """

    name: str
    x: Floats
    x_raw: Floats
    feature_names: list[str]
    feature_attributes: list[str]
    attributes: Attributes
    ids: Ids
    edge_index: Any = None
    class_names: list[str] = field(default_factory=list)
    predicted: Int32s | Doubles | None = None
    labels: Int32s | None = None
    y: Ints | None = None
    has_header: bool = True
    train_mask: Bools | None = None
    val_mask: Bools | None = None
    test_mask: Bools | None = None

    def __repr__(self) -> str:
        n, d = self.x.shape
        count = len(self.attributes)
        return f"OwnGraph({self.name!r}, {n:,} nodes, {count} attributes in {d} columns)"

    @property
    def node_ids(self) -> Array | None:
        """The users' names of the nodes, (n,); None if they go by their number."""
        return None if self.ids.column is None else self.ids.names

    def to_pyg(self, seed: int = 0) -> "Data":
        """Return the graph for training a model.

        Parameters
        ----------
        seed
            Seed of :func:`cfe_faiss.datasets.graphs.split_masks`, if the files hold no split.

        Raises
        ------
        ValueError
            If there are no edges or true classes, or a node of train, val or test has no true
            class. Without a split, nodes without a true class are in no mask.
        ImportError
            If torch or PyG is missing.
        """
        with extra("gnn"):
            import torch
            from torch_geometric.data import Data

        from cfe_faiss.datasets.graphs import split_masks
        from cfe_faiss.graph import as_graph

        if self.y is None or self.edge_index is None:
            lacking = "true classes" if self.y is None else "edges"
            raise ValueError(f"{self.name}: {lacking} are needed to train a model")
        has_truth = self.y >= 0
        masks = np.zeros((3, len(has_truth)), bool)
        if self.train_mask is None:
            masks[:, has_truth] = [mask.numpy() for mask in split_masks(self.y[has_truth], seed)]
        else:
            masks[:] = self.train_mask, self.val_mask, self.test_mask
        for part, mask in zip(("train", "val", "test"), masks, strict=True):
            unknown = np.flatnonzero(mask & ~has_truth)
            if len(unknown):
                name = str(self.ids.names[unknown[0]])
                raise ValueError(
                    f"{self.name}: {len(unknown):,} nodes of {part} have no true class, such as "
                    f"{name!r}"
                )
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


# --- tables and graphs ----------------------------------------------------------------------------


def read_columns(files: OwnFiles) -> OwnTable:
    """Read the columns of users' files; the table of the features collects problems of content.

    Raises
    ------
    OSError
        If a file cannot be read.
    ValueError
        If the features are no table, or have no header and ``files.id`` is given.
    ImportError
        If PyArrow is missing, for Parquet; or openpyxl, for Excel.
    """
    path = files.features
    table = read_table(path, files.reading)
    if not table.has_header:
        if files.id is not None:
            raise ValueError(
                f"{path} must have a header that names the column {files.id!r} of the ids"
            )
        cells = table.cells.set_axis([f"feature {j}" for j in range(table.cells.shape[1])], axis=1)
        table = replace(table, cells=cells)
    given = (files.predictions, files.truth, files.split, *files.compare)
    sources = [source for source in given if source is not None]
    ignored = list(files.ignore)
    for source in sources:
        is_here = source.path.resolve() == path.resolve()
        for name in source.names(table) if is_here else ():
            with table.problems.collect():
                ignored.append(table.known(source.option, name))
    ids = Ids.of_rows(len(table))
    found: dict[str, Any] = {}
    with table.problems.collect():
        ids = Ids.of_column(table, files.id)
    if files.threshold is not None:
        with table.problems.collect():
            table, decisions, names = split_threshold(table, files.threshold)
            found = {"predicted": decisions, "class_names": names}
    if table.problems.texts:  # other files may name columns of this one, and its ids
        return OwnTable(table, ids, tuple(ignored))
    with table.problems.collect():
        if files.predictions is not None:
            predicted = read_classes(files.predictions, ids, complete=True)
            columns = tuple(predicted.columns) if predicted.ndim == 2 else None
            found = {"predicted": predicted, "class_names": columns}
        if files.truth is not None:
            found["truth"] = read_classes(files.truth, ids)
        if files.split is not None:
            found["masks"] = read_split(files.split, ids)
    return OwnTable(table, ids, tuple(ignored), **found)


def read_own(files: OwnFiles) -> OwnGraph:
    r"""Read a graph from users' own files.

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
        If a file has another content. The error names the file, and the column and line if there
        are any.
    ImportError
        If PyArrow is missing, for Parquet; or openpyxl, for Excel.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "people.csv")
    ...     size = path.write_text("age,loan\n20,no\n40,yes\n")
    ...     graph = read_own(OwnFiles(path, predictions=Source(path, ("loan",))))
    >>> graph.class_names, graph.labels
    (['no', 'yes'], array([0, 1], dtype=int32))
    """
    check_known("missing must be one of", files.missing, ("keep", "error"))
    own_table = read_columns(files)
    n = len(own_table.ids)
    has_header = own_table.table.has_header
    attributes = attributes_of_files(own_table, files)
    encoded = [name for name, attribute in attributes.items() if can_be_encoded(attribute)]
    if not encoded:
        raise ValueError(
            f"{own_table.table.name} must hold features that vectors are made from, got none"
        )
    as_is = files.as_is or not has_header
    encoding = encode(attributes.select(encoded), scale=files.scale, as_is=as_is)
    names: tuple[str, ...] = ()
    labels = predicted = truth = None
    options: dict[str, Any] = {"are_names": True, "unknown": files.unknown}
    if own_table.predicted is not None:
        title = "threshold" if files.predictions is None else str(files.predictions.path)
        predictions = as_predictions(
            own_table.predicted, n, own_table.class_names, title, complete=False, **options
        )
        labels = predictions.labels
        predicted = labels if predictions.scores is None else predictions.scores
        names = predictions.class_names or ()
    if files.truth is not None:
        known = np.full(n, UNKNOWN, np.int32) if labels is None else labels
        options["is_named"] = own_table.class_names is not None
        truth, given_names = true_classes(
            str(files.truth.path), own_table.truth, known, names, **options
        )
        names = given_names or ()
    if labels is not None:
        note_classes(labels, truth, names)
    train, val, test = (None, None, None) if own_table.masks is None else own_table.masks
    return OwnGraph(
        name=files.features.name.partition(".")[0],
        x=encoding.x if as_is else encoding.x - encoding.x.mean(axis=0),
        x_raw=encoding.x_raw,
        feature_names=list(encoding.names),
        feature_attributes=list(encoding.attributes),
        attributes=attributes,
        ids=own_table.ids,
        edge_index=_edges(files, own_table.ids, encoding),
        class_names=list(names),
        predicted=predicted,
        labels=labels,
        y=None if truth is None else truth.astype(np.int64),
        has_header=has_header,
        train_mask=train,
        val_mask=val,
        test_mask=test,
    )


def attributes_of_files(
    own_table: OwnTable, files: OwnFiles, *, any_texts: bool = False
) -> Attributes:
    """Return the attributes of all nodes; ValueError with all problems of the files.

    With ``any_texts``, columns of texts need not be categories.
    """
    table = own_table.table
    roles = Roles(files.id, without=tuple(files.without), ignore=own_table.ignored)
    _, columns = roles.read(table, any_texts=any_texts)
    if columns.empty and not table.problems.texts:
        raise ValueError(f"{table.name} must hold features, got {', '.join(table.columns)} only")
    attributes = as_attributes(columns)
    texts = [
        attribute
        for attribute in attributes.values()
        if attribute.numbers is None and attribute.values
    ]
    if texts and not table.has_header:
        name_list = ", ".join(attribute.name for attribute in texts)
        values = ", ".join(repr(attribute.values[-1]) for attribute in texts[:5])
        remedy = table.reading.remedy("header", "none")
        table.problems.texts.append(
            f"{table.name}: {name_list} must hold numbers, as there is no header ({remedy} reads a "
            f"table without one), got {values}"
        )
    for name, attribute in attributes.items():
        numbers = attribute.numbers
        if numbers is not None and np.isinf(numbers).any():
            place = table.place(int(np.isinf(numbers).argmax()))
            table.problems.texts.append(f"{table.name}, {place}: {name} must be finite")
    counts = columns.isna().sum()
    counts = counts[counts > 0]
    if files.missing == "error" and len(counts):
        name, *others = counts.index
        text = (
            f"column {name!r} lacks a value here and in {counts[name] - 1:,} other of "
            f"{len(columns):,} rows"
            + "".join(f", column {other!r} in {counts[other]:,}" for other in others)
        )
        remedy = table.reading.remedy("missing", "keep")
        with table.problems.collect():
            table.check(columns[name].isna(), lambda _: f"{text}; {remedy} keeps them")
    table.problems.check()
    return attributes


def _edges(files: OwnFiles, ids: Ids, encoding: Encoding) -> Any:
    if files.edges is not None and files.neighbours is not None:
        raise ValueError("edges and neighbours exclude each other, got both")
    if files.edges is not None:
        return read_edges(files.edges, ids)
    if files.neighbours is None:
        return None
    compared = [
        column for column, name in enumerate(encoding.attributes) if name not in files.without
    ]
    if not compared:
        raise ValueError(
            "neighbours need features to be chosen by, got none beside those of without"
        )
    return nearest_neighbours(encoding.x[:, compared], files.neighbours)


# --- other files ----------------------------------------------------------------------------------


def read_classes(
    source: Source, ids: Ids, *, complete: bool = False
) -> "pd.Series[Any] | pd.DataFrame":
    """Read the class of each node, or its probabilities.

    A file holds one class for each node, or a column of probabilities for each class, named by it.
    The source names the column if there are several. Nodes are found by the column of the ids; in a
    file without a header, row i is node i.

    Parameters
    ----------
    source
        The file.
    ids
        The users' names of the nodes.
    complete
        Whether every node must have a row.

    Returns
    -------
    pandas.Series or pandas.DataFrame
        Classes, (n,), None where unknown; or probabilities, (n, C), whose columns are classes.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it has another content, or names an unknown node.
    """
    table, names = source.read(ids.column)
    if not names:
        raise ValueError(f"{source.path} must hold a column of classes, got {ids.column} only")
    values = _classes(table, names[0]) if len(names) == 1 else _probabilities(table, names)
    rows = ids.all_rows(table) if complete else ids.rows(table)
    return values.set_axis(rows).reindex(range(len(ids)))


def _classes(table: Table, name: str) -> "pd.Series[Any]":
    classes = table.classes(name).astype(object)
    for row, text in enumerate(table.texts(name)):
        if isinstance(classes[row], float) and text.removeprefix("-").isdecimal():
            classes[row] = int(text)  # exact: a float holds 53 bits
    fractions = [
        isinstance(value, float) and not value.is_integer() and value == value for value in classes
    ]
    table.check(
        fractions,
        lambda row: (
            f"{name} must be a class, an integer or a text, got {classes[row]:g} "
            "(probabilities need a column for each class)"
        ),
    )
    return classes


def _probabilities(table: Table, names: Sequence[str]) -> "pd.DataFrame":
    columns = pd.DataFrame({name: table.values(name, strict=False) for name in names})
    texts = [name for name in names if columns[name].dtype.kind not in "iuf"]
    if texts:
        raise ValueError(
            f"{table.name} has several columns ({', '.join(names[:20])}): name that of the "
            f"classes, as in {table.name}:{texts[0]}, or those of the probabilities"
        )
    are_shares = columns.ge(0).all(axis=1) & (
        (columns.sum(axis=1, skipna=False) - 1).abs() <= _ROUNDING
    )
    table.check(
        ~are_shares,
        lambda row: (
            "probabilities must lie in [0, 1] and sum to 1, got "
            + ", ".join(f"{name} {value:g}" for name, value in columns.iloc[row, :8].items())
            + f" (for classes in one column: {table.name}:COLUMN)"
        ),
    )
    return columns.astype(float)


def read_split(source: Source, ids: Ids) -> Bools:
    """Read the part of every node: train, val or test; an empty field: none of them.

    Returns
    -------
    ndarray
        The masks of train, val and test, (3, n) bool.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If a part has another name, or no node.
    """
    table, names = source.read(ids.column)
    if len(names) != 1:
        raise ValueError(
            f"{table.name} must hold one column of train, val and test, got "
            f"{', '.join(names) or 'none'}"
        )
    texts = table.texts(names[0])
    wrong = [bool(text) and text.lower() not in _PARTS for text in texts]
    table.check(wrong, lambda row: f"{names[0]} must be train, val or test, got {texts[row]!r}")
    part = np.full(len(ids), -1)
    part[ids.rows(table)] = [_PARTS.get(text.lower(), -1) for text in texts]
    masks: Bools = part == np.arange(3)[:, None]
    for name, mask in zip(("train", "val", "test"), masks, strict=True):
        if not mask.any():
            raise ValueError(
                f"{table.name} must hold nodes for train, val and test, got none for {name}"
            )
    return masks


def read_edges(source: Source, ids: Ids) -> Any:
    """Read a graph.

    With ids: two columns of ids, of ``.csv`` or ``.parquet`` with a header or ``.txt`` without one;
    the source names them if there are more. If nodes go by their number, also everything that
    :func:`cfe_faiss.data.read.read_graph` reads.

    Returns
    -------
    ndarray or scipy.sparse matrix
        The edges, (2, E) int64, or the adjacency matrix of an .npz file. E is 0 if a file holds a
        header only.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it has another content, or names an unknown node.
    """
    path = source.path
    is_plain = ids.column is None and not source.columns
    if path.suffix in (".npy", ".npz") and not is_plain:
        raise ValueError(
            f"{path} must be .csv, .parquet or .txt where nodes have ids or columns are named"
        )
    if path.suffix in (".npy", ".npz") or (path.suffix == ".txt" and is_plain):
        return read_graph(path, source.reading)
    table, names = source.read(empty=True)
    if len(names) != 2:
        raise ValueError(
            f"{path} must hold two columns of nodes, got {len(names)} ({', '.join(names[:20])}); "
            f"to name two: {path}:COLUMN,COLUMN"
        )
    for name in names if table.has_header else ():
        if ids.find([name])[0] >= 0:
            raise ValueError(
                f"{path} must begin with a header, the names of its columns, got node {name!r} "
                f"there"
            )
    return np.stack([ids.nodes_of(table, name) for name in names])


def read_nodes(source: Source, ids: Ids | None, count: int = 0) -> Ints:
    """Read a mask of all nodes, or a list of some.

    A mask is a column of 0 and 1 (or false and true, no and yes) with a row for every node; a list
    is a column of ids without any other column. Where nodes go by their number, a list may have a
    header.

    Parameters
    ----------
    source
        The file.
    ids
        The users' names of the nodes; None: they go by their number, and there are at least
        ``count``.
    count
        Smallest number of nodes without ``ids``.

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
    table, names = source.read(None if ids is None else ids.column)
    if len(names) > 1:
        raise ValueError(
            f"{table.name} has several columns ({', '.join(names[:20])}): name one, "
            f"{table.name}:COLUMN"
        )
    ids = Ids.of_rows(max(count, len(table))) if ids is None else ids
    column = names[0] if names else str(ids.column)
    texts = [text.lower() for text in table.texts(column)]
    has_ids = bool(names) and table.has_header and ids.column is not None
    if has_ids or (bool(names) and len(table) == len(ids) and _MASK.keys() >= {*texts}):
        wrong = [text not in _MASK for text in texts]
        table.check(wrong, lambda row: f"{column} must be 0 or 1, got {texts[row]!r}")
        nodes = np.sort(ids.all_rows(table)[[_MASK[text] for text in texts]])
    else:
        nodes = ids.nodes_of(table, column)
    if not len(nodes):
        raise ValueError(f"{table.name} must hold at least one node, got none")
    return nodes
