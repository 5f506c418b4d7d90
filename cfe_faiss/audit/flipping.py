"""Predictions that change when an attribute of the nodes is given another value."""

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse
from scipy.sparse.csgraph import connected_components, dijkstra
from tqdm import tqdm

from cfe_faiss.attributes.table import as_attributes, feature_names
from cfe_faiss.audit.groups import (
    DEFAULT_BINS,
    Bins,
    Bools,
    Frame,
    Grouping,
    Ints,
    attributes_of_finder,
    check_finder,
    groupings,
    share,
)
from cfe_faiss.audit.intervals import normal_quantile, wilson
from cfe_faiss.base.checks import (
    UNKNOWN,
    Array,
    as_array,
    as_count,
    as_names,
    check_known,
    did_you_mean,
)
from cfe_faiss.base.extras import pd
from cfe_faiss.data.predict import column_names, is_estimator, predictions_of
from cfe_faiss.finder import EvidenceFinder
from cfe_faiss.finder.results import as_html
from cfe_faiss.graph import as_graph

_LIMITS = (
    "Only the attribute's own features change. Others that depend on it stay as they are: this is "
    "the model's direct use of the attribute, not what would have happened to another person.",
    "A flipped node need not exist, and the model may never have seen one like it.",
    "No change does not show that the attribute has no effect: other features may stand for it.",
)
"""Questions that the numbers cannot answer."""
_GRAPH_LIMITS = (
    "The edges stay as they are.",
    "Intervals treat nodes as independent draws, which neighbours in a graph are not, and are "
    "rather too narrow.",
)
_WAYS = {
    True: "All nodes were changed at once: a node's prediction may have changed for its "
    "neighbours' sake.",
    False: "Each node was changed alone: what a change of its neighbours would do is not counted.",
}

_Entries: TypeAlias = tuple[Ints, Ints, Ints]
"""Node, position of the given value, and predicted class, (m,) each."""

_MOST_VALUES = 10
_CHECKED_BATCHES = 4
_CHECKED_NODES = 4
"""Batches, and nodes of each, that are also flipped alone to check the batches."""
_PROBES = 8
_BLOCK = 1024
"""Nodes whose surroundings are held at a time."""
_ENTRY = ("node", "value", "flipped", "before", "after")


@dataclass(frozen=True, slots=True, repr=False)
class FlipTest:
    """Predictions before and after an attribute is changed; made by :func:`flip`.

    There is one entry for each node and each other value that it was given, m in all.

    Attributes
    ----------
    attribute, at_once, confidence
        As given.
    hops
        Assumed reach of a node's features, in edges: nodes further apart were changed in one pass.
        None if each node had a separate pass, or all were changed at once.
    unknown
        Requested nodes that were left out because they have no value of the attribute.
    node
        The user's ids, or row numbers, (m,).
    value, flipped
        The attribute's value, and the new one, (m,), in the attribute's units or as text.
    before, after
        Predicted classes, (m,) int64.
    rates
        One line per group and direction: ``feature`` ("all", or an attribute of ``by``), ``group``,
        ``value``, ``flipped`` (both "all" for all directions together), ``nodes``, ``changed``
        (nodes with a change), ``share``, ``low``, ``high`` (Wilson's interval).
    transitions
        Number of entries (``nodes``) for each ``value``, ``flipped``, ``before`` and ``after``.
    limits
        Limits of the numbers, in sentences.
    """

    attribute: str
    at_once: bool
    confidence: float
    hops: int | None
    unknown: int
    node: Array
    value: Array
    flipped: Array
    before: Ints
    after: Ints
    rates: Frame
    transitions: Frame
    limits: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.node)

    def __repr__(self) -> str:
        how = "all at once" if self.at_once else "one at a time"
        total = len(np.unique(self.node))
        changed = len(self.changed_nodes)
        return f"FlipTest({self.attribute}, {how}: {changed:,} of {total:,} nodes change)"

    def _repr_html_(self) -> str:
        return as_html(repr(self), self.rates)

    @property
    def changed(self) -> Bools:
        """Which entries changed the prediction, (m,)."""
        changed: Bools = self.before != self.after
        return changed

    @property
    def changed_nodes(self) -> Array:
        """The nodes whose prediction changes with any of the values, ascending."""
        return np.unique(self.node[self.changed])

    def to_frame(self) -> Frame:
        """Return one line per entry: node, value, flipped, before, after, changed."""
        return pd.DataFrame({name: getattr(self, name) for name in (*_ENTRY, "changed")})


def flip(  # noqa: PLR0913
    finder: EvidenceFinder,
    name: str,
    *,
    values: Sequence[Any] | None = None,
    columns: Mapping[Any, str] | None = None,
    nodes: Any = None,
    at_once: bool = False,
    by: Sequence[str] = (),
    bins: Bins = DEFAULT_BINS,
    hops: int | None = None,
    confidence: float = 0.95,
    progress: bool = False,
) -> FlipTest:
    """Change an attribute of the nodes, and return which predictions change with it.

    The counterfactual fairness of NIFTY (UAI 2021), where all nodes are changed at once, and of
    case study 2 of the paper, where one node is. :doc:`/user_guide/audit` says how nodes share
    passes.

    Parameters
    ----------
    finder
        Has a model, which is called again, and its data: a table; a matrix; PyG ``Data`` or similar
        with ``x``, (n, d). Values are in the units of ``x_raw``, if present.
    name
        A column, a feature of ``data.feature_names``, or an attribute of several columns.
    values
        Values to give to the nodes, which must occur; default: all others, if at most 10 occur.
    columns
        Of an attribute with a column of 0 and 1 for each value: the feature of each value. By
        default ``data.feature_attributes``.
    nodes
        The nodes to judge, as ids or as a mask of shape (n,); by default all rows.
    at_once
        Whether all nodes change together: two values are exchanged, of more all nodes take the
        same. By default only the node's own features change.
    by, bins
        Attributes whose groups get rates; cuts, see :func:`cfe_faiss.audit.groups.groupings`.
    hops
        Edges over which a node's features reach, not with ``at_once``. By default measured.
    confidence
        Of the intervals, in (0, 1).
    progress
        Whether to show a progress bar on standard error.

    Returns
    -------
    FlipTest
        With an entry per node and value, and rates.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, or ``hops`` is less than the reach of the model.

    Examples
    --------
    >>> import torch
    >>> from torch_geometric.data import Data
    >>> x = torch.tensor([[0.0, 2.0], [1.0, 0.5], [1.0, 3.0]])
    >>> data = Data(x=x, edge_index=torch.tensor([[0, 1], [1, 0]]), feature_names=["sex", "income"])
    >>> def model(x, edge_index):
    ...     return (x[:, 0] + x[:, 1] > 2).long()
    >>> finder = EvidenceFinder.from_data(data, model)
    >>> test = flip(finder, "sex")
    >>> test.to_frame()
       node  value  flipped  before  after  changed
    0     0    0.0      1.0       0      1     True
    1     1    1.0      0.0       0      0    False
    2     2    1.0      0.0       1      1    False
    """
    check_finder(finder)
    normal_quantile(confidence)  # checks it
    data = finder.data
    if finder.model is None:
        raise ValueError(
            "finder must have a model, which can be called again: it was made with ready "
            "predictions"
        )
    has_graph = getattr(data, "x", None) is not None and not is_estimator(finder.model)
    if not has_graph and hops is not None:
        raise ValueError("hops must not be given for a model that sees a node's own features only")
    if at_once and hops is not None:
        raise ValueError("hops must not be given with at_once, where all nodes change together")
    if hasattr(data, "iloc") and columns is not None:
        raise ValueError(f"columns must not be given for a table, got {columns!r}")
    run = _table_run(finder, name) if hasattr(data, "iloc") else _matrix_run(finder, name, columns)
    rows = (
        np.arange(len(finder.labels)) if nodes is None else np.unique(finder.rows("nodes", nodes))
    )
    everyone = np.flatnonzero(run.codes != UNKNOWN)
    known_rows = rows[run.codes[rows] != UNKNOWN]
    targets = _targets(run, values)
    groups = [Grouping.of_all(len(finder.labels), "all")]
    if columns_of_groups := as_names("by", by):
        groups += groupings(
            attributes_of_finder(finder), np.arange(len(finder.labels)), columns_of_groups, bins
        )
    before = run.predict(known_rows[:0], known_rows[:0])
    if not at_once:
        probe = run.unknown_at if has_graph else None
        batches, hops = (
            ([known_rows], 0)
            if probe is None
            else _batches(run, probe, data, known_rows, targets, hops)
        )
        passes = [
            (batch, _other(run, batch, targets, turn))
            for batch in batches
            for turn in range(len(targets))
        ]
    elif values is None and len(targets) == 2:
        passes = [(everyone, _other(run, everyone, targets, 0))]
    else:
        passes = [(everyone, np.full(len(everyone), target)) for target in targets]
    node, target, after = _results(run, passes, known_rows, progress)
    names = np.empty(len(run.values), dtype=object)
    names[:] = run.values
    entries = {
        "node": finder.names(node),
        "value": _plain(names[run.codes[node]]),
        "flipped": _plain(names[target]),
        "before": before[node],
        "after": after,
    }
    moves = (
        pd.DataFrame(entries).groupby([*_ENTRY[1:]], sort=True).size().rename("nodes").reset_index()
    )
    return FlipTest(
        attribute=str(name),
        at_once=at_once,
        confidence=confidence,
        hops=hops,
        unknown=len(rows) - len(known_rows),
        **entries,
        rates=_rates(run, groups, node, target, before[node] != after, confidence),
        transitions=moves,
        limits=(*_LIMITS, *_GRAPH_LIMITS, _WAYS[bool(at_once)]) if has_graph else _LIMITS,
    )


@dataclass(frozen=True, slots=True)
class _Run:
    """A model with input in which one attribute can be changed.

    Attributes
    ----------
    values, codes
        Values of the attribute, (v,), and that of each node as a position, (n,); -1 without a
        value.
    predict
        Returns all predicted classes if nodes, (m,), take other values, given as positions, (m,).
    unknown_at
        Returns the nodes whose output is NaN if the attribute of one node is NaN; for models of a
        graph.
    """

    values: list[Any]
    codes: Ints
    predict: Callable[[Ints, Ints], Ints]
    unknown_at: Callable[[int], Bools] | None = None


def _table_run(finder: EvidenceFinder, name: str) -> _Run:
    """Return the run of a model of a table, in which one column is changed."""
    frame = finder.data
    check_known("name must name a column of frame", name, frame.columns)
    attribute = as_attributes(frame[[name]])[name]
    labels = attribute.values if attribute.numbers is None else [*map(float, attribute.values)]
    values, codes, first = _present(name, attribute.codes, labels)

    def predict(nodes: Ints, targets: Ints) -> Ints:
        column = frame[name].copy()
        column.iloc[nodes] = column.iloc[first[targets]].array
        changed = frame.assign(**{name: column})
        return predictions_of(finder.model, changed, class_names=finder.class_names).labels.astype(
            np.int64
        )

    return _Run(values, codes, predict)


def _matrix_run(finder: EvidenceFinder, name: str, columns: Mapping[Any, str] | None) -> _Run:
    """Return the run of a model of a matrix or a graph, in which columns of ``x`` are changed."""
    data = finder.data
    is_matrix = isinstance(finder.data, np.ndarray)
    if is_matrix:
        data = SimpleNamespace(x=data, feature_names=column_names(finder.model))
    values, codes, places, rows = _columns(data, name, columns)

    def with_rows(nodes: Ints, written: Array) -> Any:
        """Return the data with other content in the columns of some nodes."""
        x = data.x.clone() if hasattr(data.x, "clone") else np.array(data.x)
        x[nodes[:, None], places] = written if isinstance(x, np.ndarray) else x.new_tensor(written)
        if dataclasses.is_dataclass(data) and not isinstance(data, type):
            return dataclasses.replace(data, x=x)
        changed = copy.copy(data)
        changed.x = x
        return changed

    def predict(nodes: Ints, targets: Ints) -> Ints:
        changed = with_rows(nodes, rows[targets])
        inputs = changed.x if is_matrix else changed
        return predictions_of(finder.model, inputs, class_names=finder.class_names).labels.astype(
            np.int64
        )

    def unknown_at(node: int) -> Bools:
        from cfe_faiss.data.call import outputs

        found = outputs(
            finder.model, with_rows(np.array([node]), np.full((1, len(places)), np.nan))
        )
        return np.asarray(
            np.isnan(found.astype(np.float64).reshape(len(found), -1)).any(axis=1), bool
        )

    return _Run(values, codes, predict, unknown_at)


def _columns(
    data: Any, name: str, columns: Mapping[Any, str] | None
) -> tuple[list[Any], Ints, Ints, Array]:
    """Return the values of an attribute, of each node, and the columns of ``x`` for them."""
    if getattr(data, "x", None) is None:
        raise ValueError(f"data must have x, got {type(data).__name__}")
    x = as_array("data.x", data.x)
    raw = x if getattr(data, "x_raw", None) is None else as_array("data.x_raw", data.x_raw)
    if raw.shape != x.shape:
        raise ValueError(f"data.x_raw must have the shape of data.x, {x.shape}, got {raw.shape}")
    places, labels = _places(data, feature_names(data, x.shape[1]), str(name), columns)
    raw_values = raw[:, places]
    if labels is None:
        codes = np.full(len(raw_values), UNKNOWN, np.int64)
        is_known = ~np.isnan(raw_values[:, 0])
        distinct, codes[is_known] = np.unique(raw_values[is_known, 0], return_inverse=True)
        labels = distinct.tolist()
    else:
        # Nodes with none of the values, or with several, have no value.
        high = raw_values == raw_values.max(axis=0, initial=0)
        high &= raw_values > raw_values.min(axis=0, initial=np.inf)
        codes = np.where(high.sum(axis=1) == 1, high.argmax(axis=1), UNKNOWN)
    values, codes, first = _present(name, codes, labels)
    rows = x[first][:, places]
    has_value = codes >= 0
    if not np.allclose(x[has_value][:, places], rows[codes[has_value]], rtol=1e-4, atol=1e-6):
        raise ValueError(
            f"data.x must hold one value for each of data.x_raw, got several for {name!r}"
        )
    return values, codes, np.array(places), rows


def _present(name: str, codes: Array, labels: Sequence[Any]) -> tuple[list[Any], Ints, Ints]:
    """Return the values that occur, the value of each node, and a node with each value."""
    present = np.unique(codes[codes >= 0])
    if len(present) < 2:
        raise ValueError(
            f"name must be that of an attribute of two values at least, got {name!r} of "
            f"{len(present)}"
        )
    codes = np.where(codes >= 0, np.searchsorted(present, codes), UNKNOWN)
    found, first = np.unique(codes, return_index=True)
    return [labels[code] for code in present], codes, first[found >= 0]


def _places(
    data: Any, names: list[str], attribute: str, columns: Mapping[Any, str] | None
) -> tuple[list[int], list[Any] | None]:
    """Return the columns of an attribute, and their values if each stands for one."""
    if columns is not None:
        for name in columns.values():
            check_known("columns must name features", name, names)
        return [names.index(name) for name in columns.values()], list(columns)
    owners = getattr(data, "feature_attributes", None)
    if attribute in names:
        return [names.index(attribute)], None
    if owners is not None and attribute in list(owners):
        places = [place for place, owner in enumerate(owners) if owner == attribute]
        return places, [names[place].partition("=")[2] or names[place] for place in places]
    first_names = ", ".join(names[:20])
    hint = did_you_mean(attribute, names)
    raise ValueError(
        f"name must be a feature ({first_names}), or columns must say which are its own, got "
        f"{attribute!r}{hint}"
    )


def _targets(run: _Run, values: Sequence[Any] | None) -> Ints:
    """Return the values to give, as positions."""
    if values is None:
        if len(run.values) > _MOST_VALUES:
            raise ValueError(
                f"values must be given for an attribute of more than 10 values, got "
                f"{len(run.values)}"
            )
        return np.arange(len(run.values))
    values = [values] if isinstance(values, str) else values
    # texts may be of other values
    values = [value if value in run.values else str(value) for value in values]
    for value in values:
        check_known("values must be among those that occur", value, run.values)
    if not len(values):
        raise ValueError("values must hold one value at least, got none")
    return np.unique([run.values.index(value) for value in values])


def _batches(
    run: _Run,
    unknown_at: Callable[[int], Bools],
    data: Any,
    nodes: Ints,
    targets: Ints,
    given: int | None,
) -> tuple[list[Ints], int | None]:
    """Return nodes that may change in one pass, and the number of hops that this relies on."""
    joined = adjacency(data, len(run.codes))
    hops = measure_hops(unknown_at, joined) if given is None else as_count("hops", given, 0)
    batches = independent_batches(nodes, joined, hops)
    if hops is None or all(len(batch) == 1 for batch in batches):
        return batches, hops
    # Check that some nodes of the largest batches, flipped alone, get the same prediction.
    for batch in sorted(batches, key=len, reverse=True)[:_CHECKED_BATCHES]:
        target = _other(run, batch, targets, 0)
        together = run.predict(batch, target)
        for place in np.unique(np.linspace(0, len(batch) - 1, _CHECKED_NODES).astype(np.int64)):
            alone = run.predict(batch[place : place + 1], target[place : place + 1])
            if alone[batch[place]] != together[batch[place]]:
                if given is not None:
                    raise ValueError(f"hops must be as far as the model reaches, got {given}")
                return independent_batches(nodes, joined, None), None
    return batches, hops


def _results(run: _Run, passes: list[tuple[Ints, Ints]], judged: Ints, progress: bool) -> _Entries:
    """Return the entries of the judged nodes, by node and value, from passes of nodes."""
    parts: list[_Entries] = [(np.empty(0, np.int64),) * 3]
    for nodes, targets in tqdm(
        passes, desc="Flipping", disable=None if progress else True, leave=False
    ):
        changes = targets != run.codes[nodes]
        if changes.any():
            after = run.predict(nodes[changes], targets[changes])
            listed_changes = changes & np.isin(nodes, judged)
            parts.append(
                (nodes[listed_changes], targets[listed_changes], after[nodes[listed_changes]])
            )
    node, target, after = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.lexsort((target, node))
    return node[order], target[order], after[order]


def _other(run: _Run, nodes: Ints, targets: Ints, turn: int) -> Ints:
    """Return the value that each node takes in a turn, counted from its current value."""
    current = np.searchsorted(targets, run.codes[nodes])
    among = targets[np.minimum(current, len(targets) - 1)] == run.codes[nodes]
    # Nodes with one of the values take the next ones, and their current one last; other nodes take
    # all in turn.
    drawn: Ints = targets[(np.where(among, current + 1, 0) + turn) % len(targets)]
    return drawn


def _rates(
    run: _Run, groups: list[Grouping], node: Ints, target: Ints, changed: Bools, confidence: float
) -> Frame:
    source = run.codes[node]
    directions = np.unique(np.stack([source, target], axis=1), axis=0).tolist()
    turns: list[tuple[Any, Any, Bools]] = [("all", "all", np.ones(len(node), bool))]
    if len(directions) > 1:
        turns += [
            (run.values[a], run.values[b], (source == a) & (target == b)) for a, b in directions
        ]
    lines: list[dict[str, Any]] = []
    for group in groups:
        for code, value in enumerate(group.values):
            is_member = group.codes[node] == code
            for before, after, turn in turns:
                nodes, hits = (
                    len(np.unique(node[is_member & turn & which])) for which in (True, changed)
                )
                lines.append(
                    {
                        "feature": group.name,
                        "group": value,
                        "value": before,
                        "flipped": after,
                        "nodes": nodes,
                        "changed": hits,
                    }
                )
    frame = pd.DataFrame(lines)
    low, high = wilson(frame["changed"], frame["nodes"], confidence)
    return frame.assign(share=share(frame["changed"], frame["nodes"]), low=low, high=high)


def _plain(values: Array) -> Array:
    """Return numbers as a numeric array, and texts unchanged."""
    return (
        values
        if not len(values) or any(isinstance(v, str) for v in values)
        else np.array(values.tolist())
    )


Csr: TypeAlias = scipy.sparse.csr_array


def adjacency(data: Any, n: int) -> Csr:
    """Return which nodes are joined by an edge in a direction or equal: (n, n), ones.

    Messages flow along edges in one direction only where these are directed; then the reach is
    rather too large.
    """
    graph = as_graph(data, n)
    ones = np.ones(graph.num_edges, np.float32)
    joined = scipy.sparse.csr_array((ones, graph.indices, graph.indptr), shape=(n, n))
    return scipy.sparse.csr_array(
        joined + scipy.sparse.eye_array(n, dtype=np.float32, format="csr")
    )


def measure_hops(unknown_at: Callable[[int], Bools], joined: Csr) -> int | None:
    """Return over how many edges a node's features reach the model's outputs.

    None if edges do not limit the reach.

    Parameters
    ----------
    unknown_at
        Returns the nodes whose output is NaN when the features of one node are NaN, (n,): the nodes
        that it influences.
    joined
        See :func:`adjacency`.

    Returns
    -------
    int or None
        n, the whole connected component, if every probed node reaches all of its component. None if
        outputs of other components are reached, or a node's own output is not.
    """
    hops = 0
    seen_end = False
    for node in _probes(joined):
        reached = unknown_at(node)
        distance = dijkstra(joined, indices=np.array([node]), unweighted=True)[0]
        if not reached[node] or np.isinf(distance[reached]).any():
            return None
        hops = max(hops, int(distance[reached].max()))
        seen_end |= bool((~reached & np.isfinite(distance)).any())
    return hops if seen_end else joined.shape[0]


def independent_batches(nodes: Ints, joined: Csr, hops: int | None) -> list[Ints]:
    """Return the nodes in batches of nodes more than ``hops`` edges apart (None: one each).

    Greedy colouring, in blocks of nodes: memory for the surroundings of 1,024 of them.
    """
    if hops is None:
        return [nodes[place : place + 1] for place in range(len(nodes))]
    if hops == 0:
        return [nodes] if len(nodes) else []
    if hops >= joined.shape[0]:  # all of a connected component
        component = pd.DataFrame({"component": connected_components(joined)[1][nodes]})
        colour = component.groupby("component").cumcount().to_numpy()
    else:
        colour = _colours(nodes, joined, hops)
    order = np.argsort(colour, kind="stable")
    return np.split(nodes[order], np.flatnonzero(np.diff(colour[order])) + 1) if len(nodes) else []


def _probes(joined: Csr) -> list[int]:
    """Return up to 9 nodes with few and many neighbours, most of the largest component."""
    degree = np.diff(joined.indptr)
    component = connected_components(joined)[1]
    largest = np.flatnonzero(component == np.argmax(np.bincount(component)))
    by_degree = largest[np.argsort(degree[largest], kind="stable")]
    places = np.linspace(0, len(by_degree) - 1, _PROBES).astype(np.int64)
    return list(dict.fromkeys([*by_degree[places].tolist(), int(np.argmin(degree))]))


def _colours(nodes: Ints, joined: Csr, hops: int) -> Ints:
    place = np.full(joined.shape[0], -1)
    place[nodes] = np.arange(len(nodes))
    colour = np.full(len(nodes), -1)
    for begin in range(0, len(nodes), _BLOCK):
        around = joined[nodes[begin : begin + _BLOCK]]
        for _ in range(hops - 1):
            size = around.nnz
            around = scipy.sparse.csr_array(around @ joined)
            around.data[:] = 1  # counts of paths would grow without bound
            if around.nnz == size:
                break
        for row in range(around.shape[0]):
            others = place[around.indices[around.indptr[row] : around.indptr[row + 1]]]
            taken = np.unique(colour[others[others >= 0]])
            taken = taken[taken >= 0]
            gaps = np.flatnonzero(taken != np.arange(len(taken)))
            colour[begin + row] = gaps[0] if len(gaps) else len(taken)
    return colour
