"""Which predictions change when an attribute of the nodes is given another value."""

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from cfe_faiss.attributes.table import as_attributes
from cfe_faiss.audit.evidence import attributes_of
from cfe_faiss.audit.features import feature_names
from cfe_faiss.audit.groups import DEFAULT_BINS, Bins, Grouping, groupings
from cfe_faiss.audit.intervals import normal_quantile, wilson
from cfe_faiss.audit.reach import adjacency, independent_batches, measured_hops
from cfe_faiss.base.checks import UNKNOWN, as_array, as_count, as_names, did_you_mean
from cfe_faiss.base.extras import extra
from cfe_faiss.finder import EvidenceFinder
from cfe_faiss.finder.frames import as_html
from cfe_faiss.finder.table import call_on_table, codes_of, known_column
from cfe_faiss.models.estimators import is_estimator
from cfe_faiss.models.predictions import predictions_of, predictions_of_rows

if TYPE_CHECKING:
    import pandas as pd

_MOST_VALUES = 10
_CHECKED = 16
"""Nodes that are also flipped alone, to check the batches."""

_LIMITS = (
    "Only the attribute's own features change. Others that depend on it, and the edges, stay as they are: this is the "
    "model's direct use of the attribute, not what would have happened to another person.",
    "A flipped node need not exist, and the model may never have seen one like it.",
    "No change does not show that the attribute has no effect: other features may stand for it.",
    "Intervals treat nodes as independent draws, which neighbours in a graph are not, and are rather too narrow.",
)
_AT_ONCE = "All nodes were changed at once: a node's prediction may have changed for its neighbours' sake."
_ALONE = "Each node was changed alone: what a change of its neighbours would do is not counted."


@dataclass(frozen=True, slots=True, repr=False)
class FlipTest:
    """Predictions before and after an attribute is changed; made by :func:`flip`.

    There is one entry for each node and each other value that it was given, m in all.

    Attributes
    ----------
    attribute, at_once, confidence
        As given.
    hops
        Over how many edges a node's features were taken to reach: nodes further apart were changed in one pass. None
        where each had a pass of its own, or all were changed at once.
    unknown
        Nodes asked for that were left out, as they have no value of the attribute.
    node
        The user's ids, or row numbers, (m,).
    value, flipped
        The attribute's value, and the one given instead, (m,), in its own units or as text.
    before, after
        Predicted classes, (m,) int64.
    rates
        One line per group and direction: ``feature`` ("all", or an attribute of ``by``), ``group``, ``value``,
        ``flipped`` (both "all" for all directions together), ``nodes``, ``changed`` (nodes with a change), ``share``,
        ``low``, ``high`` (Wilson's interval).
    transitions
        How many entries went from which class to which: ``value``, ``flipped``, ``before``, ``after``, ``nodes``.
    limits
        What the numbers cannot say.
    """

    attribute: str
    at_once: bool
    confidence: float
    hops: int | None
    unknown: int
    node: NDArray[Any]
    value: NDArray[Any]
    flipped: NDArray[Any]
    before: NDArray[np.int64]
    after: NDArray[np.int64]
    rates: "pd.DataFrame"
    transitions: "pd.DataFrame"
    limits: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.node)

    def __repr__(self) -> str:
        how = "all at once" if self.at_once else "one at a time"
        total, changed = len(np.unique(self.node)), len(self.changed_nodes)
        return f"FlipTest({self.attribute}, {how}: {changed:,} of {total:,} nodes change)"

    def _repr_html_(self) -> str:
        return as_html(repr(self), self.rates)

    @property
    def changed(self) -> NDArray[np.bool_]:
        """Which entries changed the prediction, (m,)."""
        changed: NDArray[np.bool_] = self.before != self.after
        return changed

    @property
    def changed_nodes(self) -> NDArray[Any]:
        """The nodes whose prediction changes with any of the values, ascending."""
        return np.unique(self.node[self.changed])

    def to_frame(self) -> "pd.DataFrame":
        """Return one line per entry: node, value, flipped, before, after, changed."""
        with extra("audit"):
            import pandas as pd

        names = ("node", "value", "flipped", "before", "after", "changed")
        return pd.DataFrame({name: getattr(self, name) for name in names})


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

    The counterfactual fairness of NIFTY (UAI 2021), where all nodes are changed at once, and of case study 2 of the
    paper, where one node is. :doc:`/user_guide/audit` says how nodes share passes.

    Parameters
    ----------
    finder
        Has a model, which is called again, and its data: a table; a matrix; PyG ``Data`` or alike with ``x``, (n, d).
        Values are in the units of ``x_raw`` where there is one.
    name
        A column of the table, a feature of ``data.feature_names``, or an attribute of several columns.
    values
        Values to give to the nodes, among those that occur; by default each other one, of 10 at most.
    columns
        Of an attribute with a column of 0 and 1 for each value: the feature of each value. By default
        ``data.feature_attributes``.
    nodes
        The nodes to judge, as ids or as a mask of shape (n,); by default all rows.
    at_once
        Whether all nodes change together: two values are exchanged, of more all nodes take the same. By default only
        the node's own features change.
    by, bins
        Attributes whose groups get rates, and cuts as in :func:`cfe_faiss.audit.discrimination_scores`.
    hops
        Edges over which a node's features reach: the layers of a network. By default measured. Not with ``at_once``.
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
        If an argument is not as described, or nodes of one pass disturb each other in spite of ``hops``.

    Examples
    --------
    >>> import torch
    >>> from torch_geometric.data import Data
    >>> x = torch.tensor([[0.0, 2.0], [1.0, 0.5], [1.0, 3.0]])
    >>> data = Data(x=x, edge_index=torch.tensor([[0, 1], [1, 0]]), feature_names=["sex", "income"])
    >>> finder = EvidenceFinder.from_data(data, lambda x, edge_index: (x[:, 0] + x[:, 1] > 2).long())
    >>> test = flip(finder, "sex")
    >>> test.to_frame()
       node  value  flipped  before  after  changed
    0     0    0.0      1.0       0      1     True
    1     1    1.0      0.0       0      0    False
    2     2    1.0      0.0       1      1    False
    """
    normal_quantile(confidence)  # checks it
    model, data = finder.model, finder.data
    if model is None:
        raise ValueError("finder must have a model, which can be called again: it was made with ready predictions")
    has_graph = getattr(data, "x", None) is not None and not is_estimator(model)
    if not has_graph and hops is not None:
        raise ValueError("hops must not be given for a model that sees a node's own features only")
    if at_once and hops is not None:
        raise ValueError("hops must not be given with at_once, where all nodes change together")
    is_frame = hasattr(data, "iloc")
    if is_frame and columns is not None:
        raise ValueError(f"columns must not be given for a table, got {columns!r}")
    if isinstance(data, np.ndarray):
        data = SimpleNamespace(x=data, feature_names=getattr(model, "feature_names_in_", None))
    states = _frame_states(data, name) if is_frame else _states(data, name, columns)
    rows = np.arange(len(finder.labels)) if nodes is None else np.unique(finder.rows("nodes", nodes))
    known = rows[states.codes[rows] != UNKNOWN]
    targets = _targets(states, values)
    groups = _groups(finder, by, bins)
    run = _FrameRun(finder, states) if is_frame else _Run(finder, data, states)
    before = run.predictions()
    if at_once:
        node, target, after = _all_at_once(run, known, targets, values is None)
    else:
        if has_graph and isinstance(run, _Run):
            batches, hops = _batches(run, known, targets, hops)
        else:
            batches, hops = ([known] if len(known) else []), 0
        node, target, after = _one_at_a_time(run, known, targets, batches, progress)
    names = np.empty(len(states.values), dtype=object)
    names[:] = states.values
    rates = _rates(states, groups, node, target, before[node] != after, confidence)
    limits = (*_LIMITS, _AT_ONCE if at_once else _ALONE)
    value, flipped = _plain(names[states.codes[node]]), _plain(names[target])
    moves = _transitions(value, flipped, before[node], after)
    unknown = len(rows) - len(known)
    return FlipTest(
        str(name),
        at_once,
        confidence,
        hops,
        unknown,
        finder.names(node),
        value,
        flipped,
        before[node],
        after,
        rates,
        moves,
        limits,
    )


@dataclass(frozen=True, slots=True)
class _States:
    """The values of an attribute, and what its columns of ``x`` hold for each."""

    columns: NDArray[np.int64]
    values: list[Any]
    codes: NDArray[np.int64]
    """Value of each node, -1 where it has none."""
    rows: NDArray[Any]
    """(v, c): the columns of a node with each value."""


class _Run:
    """A model and its data, with features that can be changed and put back."""

    def __init__(self, finder: EvidenceFinder, data: Any, states: _States) -> None:
        self.model, self.class_names, self.states = finder.model, finder.class_names, states
        self.is_matrix = isinstance(finder.data, np.ndarray)
        self.x = data.x.clone() if hasattr(data.x, "clone") else np.array(data.x)
        if dataclasses.is_dataclass(data) and not isinstance(data, type):
            self.data: Any = dataclasses.replace(data, x=self.x)
        else:
            self.data = copy.copy(data)
            self.data.x = self.x

    def predictions(self) -> NDArray[np.int64]:
        if self.is_matrix:
            return predictions_of_rows(self.model, self.x, self.class_names).labels.astype(np.int64)
        return predictions_of(self.model, self.data).labels.astype(np.int64)

    def changed(self, nodes: NDArray[np.int64], targets: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the predictions with another value for these nodes."""
        kept = self._get(nodes)
        self._set(nodes, self.states.rows[targets])
        try:
            return self.predictions()
        finally:
            self._set(nodes, kept)

    def unknown_at(self, node: int) -> NDArray[np.bool_]:
        """Return where the model's outputs are NaN when the attribute of one node is."""
        from cfe_faiss.models.prediction import outputs

        nodes = np.array([node])
        kept = self._get(nodes)
        self._set(nodes, np.full((1, len(self.states.columns)), np.nan))
        try:
            values = outputs(self.model, self.data)
            # Before the features are put back: outputs may be a view of them.
            reached = np.isnan(values.astype(np.float64).reshape(len(values), -1)).any(axis=1)
        finally:
            self._set(nodes, kept)
        return np.asarray(reached, bool)

    def _get(self, nodes: NDArray[np.int64]) -> NDArray[Any]:
        return as_array("data.x", self.x[nodes[:, None], self.states.columns]).copy()

    def _set(self, nodes: NDArray[np.int64], rows: NDArray[Any]) -> None:
        values = rows if isinstance(self.x, np.ndarray) else self.x.new_tensor(rows)
        self.x[nodes[:, None], self.states.columns] = values


class _FrameRun:
    """A model and its table, of which one column can be changed and put back."""

    def __init__(self, finder: EvidenceFinder, states: _States) -> None:
        self.model, self.frame, self.states = finder.model, finder.data, states
        self.class_names = finder.class_names or ()

    def predictions(self) -> NDArray[np.int64]:
        return self._of(self.frame)

    def changed(self, nodes: NDArray[np.int64], targets: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the predictions with another value for these nodes."""
        place = int(self.states.columns[0])
        column = self.frame.iloc[:, place].copy()
        column.iloc[nodes] = column.iloc[self.states.rows[targets, 0]].array
        return self._of(self.frame.assign(**{str(self.frame.columns[place]): column}))

    def _of(self, frame: Any) -> NDArray[np.int64]:
        texts, _, _ = call_on_table(self.model, frame)
        return codes_of("the model's output", texts, self.class_names).astype(np.int64)


def _frame_states(frame: Any, name: str) -> _States:
    """Return the values of a column; ``rows`` hold a row with each of them."""
    known_column("name", name, frame)
    attribute = as_attributes(frame[[name]])[name]
    codes = attribute.codes.astype(np.int64)
    some, first = np.unique(codes[codes >= 0], return_index=True)
    if len(some) < 2:
        raise ValueError(f"name must be that of an attribute of two values at least, got {name!r} of {len(some)}")
    places = np.flatnonzero(codes >= 0)[first]
    values = (
        np.array(attribute.values, object)[some].tolist()
        if attribute.numbers is None
        else [float(attribute.values[code]) for code in some]
    )
    codes = np.where(codes >= 0, np.searchsorted(some, codes), UNKNOWN)
    return _States(np.array([list(frame.columns).index(name)]), values, codes, places[:, None])


def _states(data: Any, attribute: str, columns: Mapping[Any, str] | None) -> _States:
    if getattr(data, "x", None) is None:
        raise ValueError(f"data must have x, got {type(data).__name__}")
    x = as_array("data.x", data.x)
    if x.ndim != 2:
        raise ValueError(f"data.x must have shape (n, d), got {x.shape}")
    raw = x if getattr(data, "x_raw", None) is None else as_array("data.x_raw", data.x_raw)
    if raw.shape != x.shape:
        raise ValueError(f"data.x_raw must have the shape of data.x, {x.shape}, got {raw.shape}")
    names = feature_names(data, x.shape[1])
    places, labels = _columns_of(data, names, str(attribute), columns)
    own = raw[:, places]
    if labels is None:
        codes = np.full(len(own), UNKNOWN, np.int64)
        there = ~np.isnan(own[:, 0])
        distinct, codes[there] = np.unique(own[there, 0], return_inverse=True)
        values: list[Any] = distinct.tolist()
    else:
        # Nodes with none of the values, or with several, have no value.
        high = own == own.max(axis=0, initial=0)
        high &= own > own.min(axis=0, initial=np.inf)
        codes = np.where(high.sum(axis=1) == 1, high.argmax(axis=1), UNKNOWN)
        present = np.unique(codes[codes >= 0])
        codes = np.where(codes >= 0, np.searchsorted(present, codes), UNKNOWN)
        values = [labels[place] for place in present]
    if len(values) < 2:
        raise ValueError(
            f"name must be that of an attribute of two values at least, got {attribute!r} of {len(values)}"
        )
    some, first = np.unique(codes, return_index=True)
    rows, known = x[first[some >= 0]][:, places], codes >= 0
    if not np.allclose(x[known][:, places], rows[codes[known]], rtol=1e-4, atol=1e-6):
        raise ValueError(f"data.x must hold one value for each of data.x_raw, got several for {attribute!r}")
    return _States(np.array(places), values, codes, rows)


def _columns_of(
    data: Any, names: list[str], attribute: str, columns: Mapping[Any, str] | None
) -> tuple[list[int], list[Any] | None]:
    """Return the places of an attribute's columns, and their values where each column stands for one."""
    if columns is not None:
        for name in columns.values():
            if name not in names:
                raise ValueError(f"columns must name features, got {name!r}")
        return [names.index(name) for name in columns.values()], list(columns)
    owners = getattr(data, "feature_attributes", None)
    if attribute in names:
        return [names.index(attribute)], None
    if owners is not None and attribute in list(owners):
        places = [place for place, owner in enumerate(owners) if owner == attribute]
        return places, [names[place].partition("=")[2] or names[place] for place in places]
    some, hint = ", ".join(names[:20]), did_you_mean(attribute, names)
    raise ValueError(
        f"name must be that of a feature ({some}), or columns must say which are its own, got {attribute!r}{hint}"
    )


def _targets(states: _States, values: Sequence[Any] | None) -> NDArray[np.int64]:
    """Return the values to give, as positions."""
    if values is None:
        if len(states.values) > _MOST_VALUES:
            raise ValueError(f"values must be given for an attribute of more than 10 values, got {len(states.values)}")
        return np.arange(len(states.values))
    for value in values:
        if value not in states.values:
            some = ", ".join(map(str, states.values[:20]))
            raise ValueError(f"values must be among those that occur ({some}), got {value!r}")
    if not len(values):
        raise ValueError("values must hold one value at least, got none")
    return np.unique([states.values.index(value) for value in values])


def _all_at_once(
    run: _Run | _FrameRun, nodes: NDArray[np.int64], targets: NDArray[np.int64], exchange: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    codes = run.states.codes
    everyone = np.flatnonzero(codes != UNKNOWN)
    if exchange and len(targets) == 2:
        after = run.changed(everyone, 1 - codes[everyone])
        return nodes, 1 - codes[nodes], after[nodes]
    parts = []
    for target in targets:
        after = run.changed(everyone, np.full(len(everyone), target))
        own = nodes[codes[nodes] != target]
        parts.append((own, np.full(len(own), target), after[own]))
    return _sorted(parts)


def _batches(
    run: _Run, nodes: NDArray[np.int64], targets: NDArray[np.int64], hops: int | None
) -> tuple[list[NDArray[np.int64]], int | None]:
    """Return nodes that may change in one pass, and the hops that this rests on."""
    joined = adjacency(run.data, len(run.x))
    wanted = hops
    hops = measured_hops(run.unknown_at, joined) if wanted is None else as_count("hops", wanted, 0)
    batches = independent_batches(nodes, joined, hops)
    if hops is None or all(len(batch) == 1 for batch in batches):
        return batches, hops
    # The check: some nodes of the largest batches alone, with a value of another node's.
    for batch in sorted(batches, key=len, reverse=True)[: max(_CHECKED // 4, 1)]:
        target = _other(run.states, batch, targets, 0)
        together = run.changed(batch, target)
        for place in np.unique(np.linspace(0, len(batch) - 1, 4).astype(np.int64)):
            alone = run.changed(batch[place : place + 1], target[place : place + 1])
            if alone[batch[place]] != together[batch[place]]:
                if wanted is not None:
                    raise ValueError(f"hops must be as far as the model reaches, got {wanted}")
                return independent_batches(nodes, joined, None), None
    return batches, hops


def _one_at_a_time(
    run: _Run | _FrameRun,
    nodes: NDArray[np.int64],
    targets: NDArray[np.int64],
    batches: list[NDArray[np.int64]],
    progress: bool,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    parts = []
    disable = None if progress else True
    passes = [(batch, turn) for batch in batches for turn in range(len(targets))]
    for batch, turn in tqdm(passes, desc="Flipping", disable=disable, leave=False):
        target = _other(run.states, batch, targets, turn)
        own = batch[target != run.states.codes[batch]]
        target = target[target != run.states.codes[batch]]
        if len(own):
            parts.append((own, target, run.changed(own, target)[own]))
    return _sorted(parts)


def _other(states: _States, nodes: NDArray[np.int64], targets: NDArray[np.int64], turn: int) -> NDArray[np.int64]:
    """Return the value that each node takes in a turn, counted from its own: two values take one turn."""
    own = np.searchsorted(targets, states.codes[nodes])
    among = targets[np.minimum(own, len(targets) - 1)] == states.codes[nodes]
    # Nodes with one of the values take the next ones, and their own last; others take all of them in turn.
    places = (np.where(among, own + 1, 0) + turn) % len(targets)
    taken: NDArray[np.int64] = targets[places]
    return taken


def _sorted(
    parts: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    if not parts:
        return (np.empty(0, np.int64),) * 3
    node, target, after = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.lexsort((target, node))
    return node[order], target[order], after[order]


def _groups(finder: EvidenceFinder, by: Sequence[str], bins: Bins) -> list[Grouping]:
    n, names = len(finder.labels), as_names("by", by)
    everyone = Grouping("all", ["all"], np.zeros(n, np.int64))
    return [everyone, *groupings(attributes_of(finder), np.arange(n), names, bins)] if names else [everyone]


def _rates(
    states: _States,
    groups: list[Grouping],
    node: NDArray[np.int64],
    target: NDArray[np.int64],
    changed: NDArray[np.bool_],
    confidence: float,
) -> "pd.DataFrame":
    with extra("audit"):
        import pandas as pd

    source = states.codes[node]
    directions = np.unique(np.stack([source, target], axis=1), axis=0).tolist()
    lines: list[dict[str, Any]] = []
    for group in groups:
        codes = group.codes[node]
        for value in range(len(group.values)):
            own = codes == value
            turns: list[tuple[Any, Any, NDArray[np.bool_]]] = [("all", "all", own)]
            if len(directions) > 1:
                turns += [
                    (states.values[a], states.values[b], own & (source == a) & (target == b)) for a, b in directions
                ]
            for before, after, which in turns:
                nodes, hits = len(np.unique(node[which])), len(np.unique(node[which & changed]))
                low, high = wilson([hits], [nodes], confidence)
                lines.append(
                    {
                        "feature": group.name,
                        "group": group.values[value],
                        "value": before,
                        "flipped": after,
                        "nodes": nodes,
                        "changed": hits,
                        "share": hits / nodes if nodes else np.nan,
                        "low": low[0],
                        "high": high[0],
                    }
                )
    return pd.DataFrame(lines)


def _transitions(
    value: NDArray[Any], flipped: NDArray[Any], before: NDArray[np.int64], after: NDArray[np.int64]
) -> "pd.DataFrame":
    with extra("audit"):
        import pandas as pd

    names = ["value", "flipped", "before", "after"]
    entries = pd.DataFrame(dict(zip(names, (value, flipped, before, after), strict=True)))
    return entries.groupby(names, sort=True).size().rename("nodes").reset_index()


def _plain(values: NDArray[Any]) -> NDArray[Any]:
    """Return numbers as numbers, and texts as they are."""
    return values if not len(values) or any(isinstance(v, str) for v in values) else np.array(values.tolist())
