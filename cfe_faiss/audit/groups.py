"""Rows, groups and tables that the audits share.

A group for each value, bin of numbers, or combination of both.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cfe_faiss.attributes.table import Attribute, Attributes, as_attributes
from cfe_faiss.base.checks import (
    UNKNOWN,
    Array,
    Doubles,
    as_array,
    as_count,
    as_names,
    check_distinct,
)
from cfe_faiss.base.extras import pd
from cfe_faiss.base.text import summary, value_name
from cfe_faiss.data.classes import check_in_common, in_words_of_decision
from cfe_faiss.finder import EvidenceFinder
from cfe_faiss.finder.results import table_html

Floats: TypeAlias = Doubles
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
Frame: TypeAlias = "pd.DataFrame"
Bins: TypeAlias = int | Mapping[str, int | Sequence[float]]

DEFAULT_BINS = 4
VALUES_AS_THEY_ARE = 10
UNKNOWN_GROUP = "unknown"
"""Name of the group of the nodes whose value is missing."""


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class TableResult:
    """Result of an audit: a table, and the limits of its numbers in sentences."""

    table: Frame
    limits: tuple[str, ...] = ()

    __repr__ = summary
    _repr_html_ = table_html

    def __len__(self) -> int:
        return len(self.table)

    def to_frame(self) -> Frame:
        """Return a copy of the table."""
        return self.table.copy()


def stack(blocks: Iterable[Any], columns: Iterable[str] = ()) -> Frame:
    """Return one DataFrame of blocks of columns, or of DataFrames, in order.

    Without blocks an empty one.
    """
    frames = [pd.DataFrame(block) for block in blocks] or [pd.DataFrame(columns=[*columns])]
    return pd.concat(frames, ignore_index=True)


def share(part: ArrayLike, whole: ArrayLike) -> Floats:
    """Return ``part / whole``; NaN where ``whole`` is 0. Both have the same shape, or broadcast."""
    a, b = np.broadcast_arrays(part, whole)
    shares: Floats = np.divide(a, b, out=np.full(b.shape, np.nan), where=b > 0)
    return shares


def check_finder(finder: Any) -> None:
    """Raise TypeError for another object than a finder, such as an index.

    ValueError for one with weights of rows.
    """
    if not isinstance(finder, EvidenceFinder):
        hint = (
            "; make one by EvidenceFinder.from_index(index, ...)"
            if hasattr(finder, "search_evidence")
            else ""
        )
        raise TypeError(f"finder must be an EvidenceFinder, got {type(finder).__name__}{hint}")
    if finder.weights is not None:
        raise ValueError(
            "finder must have no weights of rows, as every row counts once in an audit: make it "
            "without weights= (ignore= leaves the column out)"
        )


def canonical_order(vectors: NDArray[np.float32], *keys: Array) -> Ints:
    """Return an order of rows, (n,), that depends on their set, not on their order.

    Rows are sorted by the bytes of vectors, then by the keys, (n,).
    """
    as_bytes = np.ascontiguousarray(vectors).view(f"V{vectors.shape[1] * vectors.itemsize}").ravel()
    distinct, place = np.unique(as_bytes, return_inverse=True)
    return (
        np.lexsort((*reversed(keys), place)) if len(distinct) < len(vectors) else np.argsort(place)
    )


def known_rows(finder: EvidenceFinder, nodes: Any) -> Ints:
    """Return the searched rows with a predicted class, ascending.

    Restricted to ``nodes``, if given.
    """
    rows = (
        finder.index.members().ids if nodes is None else np.unique(finder.searched("nodes", nodes))
    )
    labelled: Ints = rows[finder.labels[rows] != UNKNOWN]
    return labelled


def with_truth(
    finder: EvidenceFinder, favourable: Sequence[int], truth_favourable: Any
) -> EvidenceFinder:
    """Return a finder whose true classes are in the words of the decision.

    Raises
    ------
    ValueError
        If the true classes have different names, and ``truth_favourable`` does not say which of
        them agree with ``favourable``.
    """
    labels = finder.labels
    truth = finder.truth
    if truth_favourable is not None and (truth is None or not len(favourable)):
        lacking = "truth" if truth is None else "favourable"
        raise ValueError(
            f"truth_favourable must come with {lacking}, got {truth_favourable!r} without"
        )
    if truth is None:
        return finder
    if truth_favourable is None:
        check_in_common("truth", labels, truth, finder.class_names)
        return finder
    favourable_truth = finder.class_numbers("truth_favourable", truth_favourable)
    chosen = np.array(favourable, np.int32)
    return replace(
        finder,
        truth=in_words_of_decision(labels, truth, chosen, favourable_truth, finder.class_count),
    )


def persons_of(finder: EvidenceFinder, person: Any) -> Ints:
    """Return the number of the person of every row, (n,): equal for rows of one person.

    ``person`` is the name of an attribute, or one value per row; None: every row is a person, and
    so is a row without a value.

    Raises
    ------
    ValueError
        If there is no such attribute, or another number of values than rows.
    """
    rows = np.arange(len(finder.labels))
    if isinstance(person, str):
        attributes = attributes_of_finder(finder)
        name = attributes.known("person", person)
        person = attributes.frame[name].reindex(rows).array
    return person_numbers(finder.in_order("person", person), len(rows))


def person_numbers(person: Any, n: int) -> Ints:
    """Return a number for each distinct value of ``person``, (n,).

    Rows without a value, or all for None, differ.
    """
    rows = np.arange(n)
    if person is None:
        return rows
    codes = as_attributes({"person": person}, "person")["person"].codes
    if len(codes) != n:
        raise ValueError(f"person must hold one value for each of {n:,} rows, got {len(codes):,}")
    return np.where(codes == UNKNOWN, n + rows, codes)


def attributes_of_finder(finder: EvidenceFinder) -> Attributes:
    """Return the attributes of all rows. ValueError if the finder has none."""
    if finder.attributes is None:
        raise ValueError("finder must know attributes, got none: make it with features=")
    return finder.attributes


def sensitive_of(finder: EvidenceFinder, sensitive: Any) -> tuple[str, ...]:
    """Return the names in ``sensitive``, each once; None means ``finder.sensitive``.

    TypeError for other input.
    """
    return finder.sensitive if sensitive is None else as_names("sensitive", sensitive)


@dataclass(frozen=True, slots=True)
class Grouping:
    """An attribute that puts every node in one group.

    Attributes
    ----------
    name
        Of the attribute.
    values
        Name of each group; some may have no node.
    codes
        Group of each node, (n,), a position in ``values``; -1 for none.
    parts
        The value of each attribute, for each group: one value, and several of an intersection.
    """

    name: str
    values: list[str]
    codes: Ints
    parts: Sequence[tuple[str, ...]] = ()

    __repr__ = summary

    @classmethod
    def of_all(cls, n: int, value: str = "") -> Self:
        """Return all nodes as one group."""
        return cls("all", [value], np.zeros(n, np.int64), [()])


def groupings(
    features: Any,
    ids: Ints,
    columns: Sequence[str] | None = None,
    bins: Bins = DEFAULT_BINS,
    intersections: Sequence[Sequence[str]] = (),
    *,
    with_missing: bool = True,
) -> list[Grouping]:
    """Return the groups of nodes by features: one grouping per column and intersection.

    Parameters
    ----------
    features
        Attributes of nodes, as :func:`cfe_faiss.attributes.table.as_attributes` takes them: a
        DataFrame of pandas or polars, PyG ``Data``, a mapping from names to arrays, a matrix.
    ids
        The nodes to be grouped, (n,).
    columns
        Columns to group by; by default all. An empty list gives the intersections only.
    bins
        How numbers are cut. Up to 10 distinct values give one group each; more are cut at quantiles
        into this many bins, and a bin is named by the smallest and largest value in it. A mapping
        from columns to a number of bins or to ascending edges overrides this for these columns,
        others get 4 bins. Edges e0 < e1 < ... give the groups "< e0", "e0-e1" (both included),
        "e1-e2" (e2 included), ..., "> e_last"; a single edge gives "<= e" and "> e". Cuts depend on
        all rows of ``features``, not on the grouped nodes.
    intersections
        Tuples of columns: a node's value of such an attribute is the combination of its values
        there.
    with_missing
        Whether missing values form the group "unknown"; otherwise their code is -1, also in
        intersections.

    Returns
    -------
    list of Grouping
        One for each column, then one for each intersection.

    Raises
    ------
    TypeError
        If ``features`` or bins are of the wrong kind.
    ValueError
        If an attribute does not exist, its name is not unique or is "all", an id has no row or two,
        or edges do not ascend.

    Examples
    --------
    >>> import pandas as pd
    >>> people = pd.DataFrame({"sex": ["f", "m", "f"], "age": [20, 35, 50]})
    >>> sex, age, both = groupings(
    ...     people, np.array([0, 2]), bins={"age": [18, 35]}, intersections=[("sex", "age")]
    ... )
    >>> sex.values, sex.codes
    (['f', 'm'], array([0, 0]))
    >>> age.values, age.codes
    (['< 18', '18-35', '> 35'], array([1, 2]))
    >>> both.name, [both.values[code] for code in both.codes]
    ('sex & age', ['f & 18-35', 'f & > 35'])
    """
    attributes = as_attributes(features)
    rows = attributes.rows(ids)
    wanted = (
        list(attributes)
        if columns is None
        else [attributes.known("columns", name) for name in columns]
    )
    crossed = [
        [attributes.known("intersections", name) for name in names] for names in intersections
    ]
    if any(len(names) < 2 for names in crossed):
        raise ValueError(
            f"intersections must name two attributes or more each, got {list(intersections)}"
        )
    explicit = bins if isinstance(bins, Mapping) else {}
    for name in explicit:
        attributes.known("bins", name)
    default = DEFAULT_BINS if isinstance(bins, Mapping) else as_count("bins", bins)
    needed = dict.fromkeys([*wanted, *(name for names in crossed for name in names)])
    whole = {
        name: _grouping(attributes[name], explicit.get(name), default, with_missing)
        for name in needed
    }
    names = [*wanted, *(" & ".join(names) for names in crossed)]
    check_distinct("attributes and intersections must have distinct names", names)
    if "all" in names:
        raise ValueError(
            "attributes that make groups must not be called 'all', the name of everyone: rename it"
        )
    chosen = [whole[name] for name in wanted] + [
        _intersection([whole[name] for name in names]) for names in crossed
    ]
    return [replace(group, codes=group.codes[rows]) for group in chosen]


def group_means(values: Array, codes: Ints, groups: int) -> Floats:
    """Return the mean over the nodes of each group, (groups,); NaN where a group has none."""
    return share(np.bincount(codes, values, groups), np.bincount(codes, minlength=groups))


def _grouping(
    attribute: Attribute, cut: int | Sequence[float] | None, default: int, with_missing: bool
) -> Grouping:
    has_value = ~attribute.missing
    codes: Array = attribute.codes[has_value]
    if attribute.numbers is None:
        if cut is not None:
            raise TypeError(f"bins must be of columns of numbers, got {attribute.name!r} of texts")
        values = list(attribute.values)
    elif cut is None and len(attribute.values) <= VALUES_AS_THEY_ARE:
        values = [value_name(value) for value in attribute.values]
    else:
        values, codes = _cut_numbers(attribute.name, attribute.numbers[has_value], cut, default)
    of_all = np.full(len(has_value), UNKNOWN)
    if with_missing and not has_value.all():
        if UNKNOWN_GROUP not in values:  # a text may read so, too
            values = [*values, UNKNOWN_GROUP]
        of_all[:] = values.index(UNKNOWN_GROUP)
    of_all[has_value] = codes
    return Grouping(attribute.name, values, of_all, [(value,) for value in values])


def _cut_numbers(
    name: str, numbers: Array, cut: int | Sequence[float] | None, default: int
) -> tuple[list[str], Ints]:
    """Return the names of the groups of finite or infinite numbers, and the group of each."""
    if cut is None or isinstance(cut, int | np.integer):
        return _quantile_bins(numbers, default if cut is None else as_count(f"bins[{name!r}]", cut))
    edges = as_array(f"bins[{name!r}]", cut).astype(np.float64)
    if (
        edges.ndim != 1
        or not len(edges)
        or not np.isfinite(edges).all()
        or (np.diff(edges) <= 0).any()
    ):
        raise ValueError(
            f"bins[{name!r}] must be a number of bins or finite ascending edges, got {cut!r}"
        )
    between = np.searchsorted(edges, numbers)
    texts = [value_name(edge) for edge in edges]
    if len(edges) == 1:
        return [f"<= {texts[0]}", f"> {texts[0]}"], between
    between[numbers == edges[0]] = 1
    inner = [_name_range(*ends) for ends in pairwise(texts)]
    return [f"< {texts[0]}", *inner, f"> {texts[-1]}"], between


def _quantile_bins(numbers: Array, count: int) -> tuple[list[str], Ints]:
    if not len(numbers):
        return [], np.empty(0, np.int64)
    # An inverted CDF returns values that occur, so that every bin holds its upper edge at least.
    uppers = np.unique(np.quantile(numbers, np.arange(1, count + 1) / count, method="inverted_cdf"))
    codes = np.searchsorted(uppers, numbers)
    lowers = [numbers[codes == code].min() for code in range(len(uppers))]
    names = [
        _name_range(_format_short(low), _format_short(high))
        for low, high in zip(lowers, uppers, strict=True)
    ]
    if len(set(names)) < len(names):
        names = [
            _name_range(value_name(low), value_name(high))
            for low, high in zip(lowers, uppers, strict=True)
        ]
    return names, codes


def _name_range(low: str, high: str) -> str:
    if low == high:
        return low
    return f"{low} to {high}" if "-" in low + high else f"{low}-{high}"


def _format_short(value: Any) -> str:
    if 1e3 <= abs(value) < 1e15:
        return f"{value:.0f}"
    return (
        f"{value:.4g}"
        if 1e-4 <= abs(value) < 1e3 and value != round(float(value))
        else value_name(value)
    )


def _intersection(groups: list[Grouping]) -> Grouping:
    codes = pd.DataFrame({place: group.codes for place, group in enumerate(groups)})
    complete_codes = codes[(codes != UNKNOWN).all(axis=1)]
    # only combinations that occur: all possible ones may not fit into memory
    combinations = complete_codes.groupby([*complete_codes])
    of_all = np.full(len(codes), UNKNOWN)
    of_all[complete_codes.index] = combinations.ngroup()
    names = [group.values for group in groups]
    parts = [
        tuple(values[code] for values, code in zip(names, key, strict=True))
        for key in combinations.size().index
    ]
    values = [" & ".join(part) for part in parts]
    if len(set(values)) < len(values):  # values that hold " & "
        values = [" & ".join(map(repr, part)) for part in parts]
    return Grouping(" & ".join(group.name for group in groups), values, of_all, parts)
