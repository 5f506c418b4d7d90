"""Groups of nodes: one for each value of an attribute, for each bin of a number, for each combination of attributes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.attributes.table import Attribute, as_attributes
from cfe_faiss.audit.common import Floats, Ints, share
from cfe_faiss.base.checks import UNKNOWN, as_array, as_count, check_distinct
from cfe_faiss.base.text import summary

Bins: TypeAlias = int | Mapping[str, int | Sequence[float]]

DEFAULT_BINS = 4
VALUES_AS_THEY_ARE = 10
_MISSING = "missing"


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
    """Return the groups that features put nodes in, one grouping for each column and each intersection.

    Parameters
    ----------
    features
        Attributes of nodes, as :func:`cfe_faiss.attributes.table.as_attributes` takes them: a DataFrame of pandas or
        polars, PyG ``Data``, a mapping from names to arrays, a matrix.
    ids
        The nodes to be grouped, (n,).
    columns
        Columns to group by; by default all. An empty list gives the intersections only.
    bins
        How numbers are cut. Up to 10 distinct values give one group each; more are cut at quantiles into this many
        bins, and a bin is named by the smallest and largest value in it. A mapping from columns to a number of bins or
        to ascending edges overrides this for these columns, others get 4 bins. Edges e0 < e1 < ... give the groups
        "< e0", "e0-e1" (both included), "e1-e2" (e2 included), ..., "> e_last"; a single edge gives "<= e" and "> e".
        Cuts depend on all rows of ``features``, not on the grouped nodes.
    intersections
        Tuples of columns: a node's value of such an attribute is the combination of its values there.
    with_missing
        Whether missing values form the group "missing"; otherwise their code is -1, also in intersections.

    Returns
    -------
    list of Grouping
        One for each column, then one for each intersection.

    Raises
    ------
    TypeError
        If ``features`` or bins are of the wrong kind.
    ValueError
        If an attribute does not exist, its name is not unique or is "all", an id has no row or two, or edges do not
        ascend.

    Examples
    --------
    >>> import pandas as pd
    >>> people = pd.DataFrame({"sex": ["f", "m", "f"], "age": [20, 35, 50]})
    >>> sex, age, both = groupings(people, np.array([0, 2]), bins={"age": [18, 35]}, intersections=[("sex", "age")])
    >>> sex.values, sex.codes
    (['f', 'm'], array([0, 0]))
    >>> age.values, age.codes
    (['< 18', '18-35', '> 35'], array([1, 2]))
    >>> both.name, [both.values[code] for code in both.codes]
    ('sex & age', ['f & 18-35', 'f & > 35'])
    """
    attributes = as_attributes(features)
    rows = attributes.rows(ids)
    wanted = list(attributes) if columns is None else [attributes.known("columns", name) for name in columns]
    crossed = [[attributes.known("intersections", name) for name in names] for names in intersections]
    if any(len(names) < 2 for names in crossed):
        raise ValueError(f"intersections must name two attributes or more each, got {list(intersections)}")
    explicit = bins if isinstance(bins, Mapping) else {}
    for name in explicit:
        attributes.known("bins", name)
    default = DEFAULT_BINS if isinstance(bins, Mapping) else as_count("bins", bins)
    needed = dict.fromkeys([*wanted, *(name for names in crossed for name in names)])
    whole = {name: _grouping(attributes[name], explicit.get(name), default, with_missing) for name in needed}
    names = [*wanted, *(" & ".join(names) for names in crossed)]
    check_distinct("attributes and intersections must have distinct names", names)
    if "all" in names:
        raise ValueError("attributes that make groups must not be called 'all', the name of everyone: rename it")
    chosen = [whole[name] for name in wanted] + [_intersection([whole[name] for name in names]) for names in crossed]
    return [replace(group, codes=group.codes[rows]) for group in chosen]


def group_means(values: NDArray[Any], codes: Ints, groups: int) -> Floats:
    """Return the mean over the nodes of each group, (groups,); NaN where a group has none."""
    return share(np.bincount(codes, values, groups), np.bincount(codes, minlength=groups))


def _grouping(attribute: Attribute, cut: int | Sequence[float] | None, default: int, with_missing: bool) -> Grouping:
    known = ~attribute.missing
    codes: NDArray[Any] = attribute.codes[known]
    if attribute.numbers is None:
        if cut is not None:
            raise TypeError(f"bins must be of columns of numbers, got {attribute.name!r} of texts")
        values = list(attribute.values)
    elif cut is None and len(attribute.values) <= VALUES_AS_THEY_ARE:
        values = [_format_exact(value) for value in attribute.values]
    else:
        values, codes = _cut_numbers(attribute.name, attribute.numbers[known], cut, default)
    of_all = np.full(len(known), UNKNOWN)
    if with_missing and not known.all():
        values = values if _MISSING in values else [*values, _MISSING]  # a text may read so, too
        of_all[:] = values.index(_MISSING)
    of_all[known] = codes
    return Grouping(attribute.name, values, of_all, [(value,) for value in values])


def _cut_numbers(
    name: str, numbers: NDArray[Any], cut: int | Sequence[float] | None, default: int
) -> tuple[list[str], Ints]:
    """Return the names of the groups of finite or infinite numbers, and the group of each."""
    if cut is None or isinstance(cut, int | np.integer):
        return _quantile_bins(numbers, default if cut is None else as_count(f"bins[{name!r}]", cut))
    edges = as_array(f"bins[{name!r}]", cut).astype(np.float64)
    if edges.ndim != 1 or not len(edges) or not np.isfinite(edges).all() or (np.diff(edges) <= 0).any():
        raise ValueError(f"bins[{name!r}] must be a number of bins or finite ascending edges, got {cut!r}")
    between = np.searchsorted(edges, numbers)
    texts = [_format_exact(edge) for edge in edges]
    if len(edges) == 1:
        return [f"<= {texts[0]}", f"> {texts[0]}"], between
    between[numbers == edges[0]] = 1
    inner = [_name_range(*ends) for ends in pairwise(texts)]
    return [f"< {texts[0]}", *inner, f"> {texts[-1]}"], between


def _quantile_bins(numbers: NDArray[Any], count: int) -> tuple[list[str], Ints]:
    if not len(numbers):
        return [], np.empty(0, np.int64)
    # An inverted CDF returns values that occur, so that every bin holds its upper edge at least.
    uppers = np.unique(np.quantile(numbers, np.arange(1, count + 1) / count, method="inverted_cdf"))
    codes = np.searchsorted(uppers, numbers)
    order = np.argsort(numbers, kind="stable")
    lowers = numbers[order[np.searchsorted(codes[order], np.arange(len(uppers)))]]
    names = [_name_range(_format_short(low), _format_short(high)) for low, high in zip(lowers, uppers, strict=True)]
    if len(set(names)) < len(names):
        names = [_name_range(_format_exact(low), _format_exact(high)) for low, high in zip(lowers, uppers, strict=True)]
    return names, codes


def _name_range(low: str, high: str) -> str:
    if low == high:
        return low
    return f"{low} to {high}" if "-" in low + high else f"{low}-{high}"


def _format_exact(value: Any) -> str:
    """Return the fewest digits that tell a number from its neighbours."""
    return f"{value:.0f}" if abs(value) < 1e15 and value == round(float(value)) else str(value)


def _format_short(value: Any) -> str:
    return f"{value:.4g}" if 1e-4 <= abs(value) < 1e3 and value != round(float(value)) else _format_exact(value)


def _intersection(groups: list[Grouping]) -> Grouping:
    parts: list[tuple[str, ...]] = [()]
    of_all, known = np.full(len(groups[0].codes), UNKNOWN), np.all([group.codes != UNKNOWN for group in groups], axis=0)
    codes = np.zeros(int(known.sum()), np.int64)
    for group in groups:
        # Keep only the combinations that occur: all possible ones may not fit into memory.
        size = len(group.values)
        present, codes = np.unique(codes * size + group.codes[known], return_inverse=True)
        parts = [(*parts[pair // size], group.values[pair % size]) for pair in present.tolist()]
    of_all[known] = codes
    values = [" & ".join(part) for part in parts]
    if len(set(values)) < len(values):  # values that hold " & "
        values = [" & ".join(map(repr, part)) for part in parts]
    return Grouping(" & ".join(group.name for group in groups), values, of_all, parts)
