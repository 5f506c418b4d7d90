"""Columns of the features that hold an attribute, and proxies from which it can be predicted."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cfe_faiss.attributes.table import Attribute, Attributes, as_attributes, feature_names
from cfe_faiss.base.checks import (
    Array,
    Bools,
    Doubles,
    Floats,
    Ints,
    as_dense,
    as_matrix,
    as_names,
    check_distinct,
    check_known,
)
from cfe_faiss.base.extras import pd

PROXY = 0.5
"""Least strength of a column that is reported as a proxy."""

_CHANCE = 1e-3
_ROUNDING = 1e-6
"""Difference of a squared rank correlation from 1 that may come from the rounding of numbers."""
_OFF_GRID = 1e-3
"""Largest distance of a number from an even grid, in its steps."""
_SHOWN = 5
_SEPARATOR = re.compile(r"[=:_.\-/ \[(|]+")


@dataclass(frozen=True, slots=True)
class Proxy:
    """A column, or the columns of one attribute, from which another attribute can be predicted.

    Attributes
    ----------
    column
        Name of the column, or of an attribute with one column per value.
    attribute
        Name of the predicted attribute.
    strength
        Strength of the association, in [0, 1], see :func:`proxies`.
    """

    column: str
    attribute: str
    strength: float

    def __str__(self) -> str:
        return f"{self.column} ({self.strength:.2f})"


@dataclass(frozen=True, slots=True, repr=False)
class Removed:
    """Attributes that were left out of the vectors, and their columns.

    Attributes
    ----------
    attributes
        The requested names.
    columns
        Names of the removed columns, copies included.
    copies
        Removed columns that go one to one with one of the attributes, see :func:`are_copies`.
    proxies
        Columns that remain and predict one of the attributes, or are predicted by it: strength 0.5
        or more, strongest first.
    """

    attributes: tuple[str, ...]
    columns: tuple[str, ...]
    copies: tuple[Proxy, ...]
    proxies: tuple[Proxy, ...]

    def __repr__(self) -> str:
        count = len(self.columns)
        parts = [f"{', '.join(self.attributes)}: {count} {'column' if count == 1 else 'columns'}"]
        for title, found in (("copies", self.copies), ("proxies kept", self.proxies)):
            if found:
                more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
                parts.append(f"{title}: {', '.join(map(self.describe, found[:_SHOWN]))}{more}")
        return f"Removed({'; '.join(parts)})"

    def describe(self, proxy: Proxy) -> str:
        """Return the column of a proxy, the attribute that it stands for, and its strength."""
        whose = f" for {proxy.attribute}" if len(self.attributes) > 1 else ""
        return f"{proxy.column}{whose} ({proxy.strength:.2f})"


def proxies(data: Any, attribute: str, features: Any = None) -> list[Proxy]:
    """Return the columns of ``data.x`` that predict an attribute, strongest first.

    Parameters
    ----------
    data
        PyG ``Data`` or any object with ``x``, (n, d). ``feature_names``, d names, combine columns
        such as "Purpose=car" and "Purpose=tv" (separated by any of ``= : _ . - / [ ( |`` or a
        space) to one attribute "Purpose". All columns with this prefix must have two values, and be
        one-hot (at most one is high in each row) or nested (each is high only if the previous one
        is: "Balance_geq_0" and "Balance_geq_200"). ``feature_attributes``, d names, give the
        attribute of each column explicitly.
    attribute
        Name of one of ``features``, of a column, or of combined columns.
    features
        Attributes of all n nodes, see :func:`cfe_faiss.attributes.table.as_attributes`; by default
        from ``data``.

    Returns
    -------
    list of Proxy
        Columns of strength 0.5 or more, without the columns that have the attribute's name.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Notes
    -----
    The strength is the square root of the share of variance that one variable explains of the
    other. With R**2 = 1 - (variance within groups of equal values) / (variance), the share is 1 -
    (1 - R**2) (n - 1) / (n - k) for k groups. For numbers it is Pearson's correlation ratio (1905).
    For texts the variance is Gini's impurity, and the share is Goodman and Kruskal's tau (1954).
    Numbers with more than n / 4 values form groups of equal size. The strength is the largest of
    both directions, and for two numeric variables also of the squared correlation and rank
    correlation. It is 1 for a copy (:func:`are_copies`), and for a column that determines the
    attribute or is determined by it. For two columns of two values it is the absolute correlation
    phi. Strengths that may occur by chance (p >= 0.001 in an F test) are set to 0.

    Each column is tested separately. Combinations of columns, and edges, may reveal an attribute
    unnoticed. A strong column may have a meaning independent of the attribute; statistics cannot
    decide that.

    Takes O(n log n) time for each column.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> rng = np.random.default_rng(0)
    >>> female = rng.integers(0, 2, 200)
    >>> height = 180 - 13 * female + 6 * rng.normal(size=200)
    >>> x = np.stack([female, height, rng.normal(size=200)], axis=1)
    >>> data = SimpleNamespace(x=x, feature_names=["female", "height", "noise"])
    >>> [proxy.column for proxy in proxies(data, "female")]
    ['height']
    """
    columns = _Columns(data)
    table = data if features is None else features
    node_attributes = None if features is None and not columns.is_named else as_attributes(table)
    members, values = columns.of(attribute, node_attributes, "attribute")
    return [proxy for proxy, *_ in columns.predictors(attribute, values, members)]


def leave_out(
    data: Any, attributes: Attributes | None, without: Iterable[str]
) -> tuple[Array, Bools, Removed]:
    """Return the features without the columns of some attributes and their copies.

    Further values are a mask of the columns that stay, (d,), and a description of the others.

    Parameters
    ----------
    data
        As in :func:`proxies`.
    attributes
        Attributes of all nodes, row i for node i, or None.
    without
        Names of attributes or of columns of ``data.x``.

    Raises
    ------
    TypeError
        If ``without`` is not a sequence, or a single text.
    ValueError
        If a name is unknown, no column holds it, or no column would remain.
    """
    names = as_names("without", without)
    columns = _Columns(data)
    named = np.zeros(columns.d, bool)
    predictors = []
    for name in names:
        members, values = columns.of(name, attributes, "without")
        determining = columns.predictors(name, values, members)
        if not members.any() and not any(is_copy for *_, is_copy in determining):
            nearest = f"the nearest is {determining[0][0]}" if determining else "none comes near it"
            raise ValueError(
                f"without must name what data.x holds, got {name!r}, which no column equals: "
                f"{nearest}"
            )
        named |= members
        predictors += determining
    predictors.sort(key=lambda one: -one[0].strength)
    copies = [(proxy, members) for proxy, members, is_copy in predictors if is_copy]
    removed = np.any([named, *(members for _, members in copies)], axis=0)
    if removed.all():
        raise ValueError(
            f"without must leave some of the {columns.d} columns of data.x, got {', '.join(names)}"
        )
    result = Removed(
        names,
        tuple(columns.names[column] for column in np.flatnonzero(removed).tolist()),
        tuple(proxy for proxy, members in copies if not named[members].all()),
        tuple(proxy for proxy, members, _ in predictors if not removed[members].all()),
    )
    return columns.x[:, ~removed], ~removed, result


class _Columns:
    """Columns of ``data.x``, combined by attribute.

    Parameters
    ----------
    data
        As in :func:`proxies`.
    """

    def __init__(self, data: Any) -> None:
        self.x = as_dense("data.x", data.x)
        values = as_matrix("data.x", self.x)
        self.d = values.shape[1]
        self.is_named = getattr(data, "feature_names", None) is not None
        self.names = feature_names(data, self.d)
        check_distinct("data.feature_names must be distinct", self.names)
        self._single = as_attributes(
            {name: values[:, column] for column, name in enumerate(self.names)}
        )
        owners: Sequence[Any] | None = getattr(data, "feature_attributes", None)
        if owners is None:
            owners = _owners(self.names, values) if self.is_named else self.names
        elif len(owners) != self.d:
            raise ValueError(
                f"data.feature_attributes must hold {self.d} names, one per feature, got "
                f"{len(owners)}"
            )
        self._groups = {
            str(owner): np.array([own == owner for own in owners])
            for owner in dict.fromkeys(owners)
        }

    def of(
        self, name: str, attributes: Attributes | None, argument: str
    ) -> tuple[Bools, list[Attribute]]:
        """Return a mask of the columns of an attribute, (d,), and the values of the attribute."""
        names = dict.fromkeys([*self._groups, *self._single, *(attributes or ())])
        check_known(f"{argument} must name attributes or columns of data.x", name, names)
        members = self._groups.get(name, np.zeros(self.d, bool)) | np.array(
            [text == name for text in self._single]
        )
        if attributes is not None and name in attributes:
            values = [attributes[name]]
            if len(values[0]) != len(self.x):
                raise ValueError(
                    f"{name} must have a value for each of {len(self.x)} nodes, got "
                    f"{len(values[0])}"
                )
        else:
            values = self._values(name, members)
        return members, values

    def predictors(
        self, attribute: str, values: list[Attribute], members: Bools
    ) -> list[tuple[Proxy, Bools, bool]]:
        """Return the proxies of an attribute, strongest first: columns, and whether it is a copy.

        Columns in the mask ``members``, which belong to the attribute itself, are skipped.
        """
        found = []
        for name, group in self._groups.items():
            others = group & ~members
            if not others.any():
                continue
            pairs = [(one, other) for one in values for other in self._values(name, others)]
            is_copy = any(are_copies(*pair) for pair in pairs)
            strength = 1.0 if is_copy else max(association(*pair) for pair in pairs)
            if strength >= PROXY:
                is_single = others.sum() == 1 < group.sum()
                column = self.names[int(np.argmax(others))] if is_single else name
                found.append((Proxy(column, attribute, strength), others, is_copy))
        return sorted(found, key=lambda one: -one[0].strength)

    def _values(self, name: str, members: Bools) -> list[Attribute]:
        """Return the values of columns of one attribute, combined if all have two values."""
        singles = [self._single[self.names[column]] for column in np.flatnonzero(members).tolist()]
        if len(singles) == 1 or any(len(single.values) > 2 for single in singles):
            return singles
        codes = np.zeros(len(self.x), np.int64)
        for single in singles:
            codes = np.unique(2 * codes + single.codes, return_inverse=True)[1]
        return [Attribute(name, pd.Categorical.from_codes(codes, pd.RangeIndex(codes.max() + 1)))]


def _owners(names: Sequence[str], values: Floats) -> list[str]:
    """Return the attribute of each column: the prefix of a one-hot group, or its name."""
    low = values == values.min(axis=0)
    two_valued = (low | (values == values.max(axis=0))).all(axis=0)
    starts: dict[str, list[int]] = {}
    for column, name in enumerate(names):
        for match in _SEPARATOR.finditer(name):
            if match.start():
                starts.setdefault(name[: match.start()], []).append(column)
    owners = list(names)
    for start in sorted(starts, key=len):
        group = starts[start]
        free = all(owners[column] == names[column] for column in group)
        if len(group) == 1 or not free or not two_valued[group].all():
            continue
        high = ~low[:, group]
        is_one_hot = (high.sum(axis=1) <= 1).all()
        ordered = high[:, np.argsort(-high.sum(axis=0), kind="stable")]
        is_nested = (ordered[:, 1:] <= ordered[:, :-1]).all()
        if is_one_hot or is_nested:
            for column in group:
                owners[column] = start
    return owners


def are_copies(one: Attribute, other: Attribute) -> bool:
    """Return whether each value of either attribute stands with one value of the other.

    Missing counts as a value. That two measured numbers never repeat says nothing, so numbers are
    copies only if the ranks of both agree, or are opposite. Numbers on an even grid of few values
    are codes, which may be copies of texts.
    """
    if (
        one.numbers is not None
        and other.numbers is not None
        and (one.missing == other.missing).all()
    ):
        ranks = [_ranks(_Values.of(attribute, ~one.missing).codes) for attribute in (one, other)]
        if _correlation(*ranks) >= 1 - _ROUNDING:
            return True
    if not (_are_codes(one) and _are_codes(other)):
        return False
    pairs = one.codes.astype(np.int64) * (len(other.values) + 1) + other.codes
    counts = {len(np.unique(codes)) for codes in (one.codes, other.codes, pairs)}
    return len(counts) == 1 and 1 < counts.pop() < len(one)


def _are_codes(attribute: Attribute) -> bool:
    """Return whether values are texts, or numbers on an even grid with five rows or more each."""
    if attribute.numbers is None:
        return True
    numbers = np.array(attribute.values, np.float64)
    if len(numbers) <= 2 or 5 * len(numbers) > len(attribute):
        return len(numbers) <= 2
    with np.errstate(invalid="ignore"):  # infinite numbers are on no grid
        steps = (numbers - numbers[0]) / np.diff(numbers).min()
        on_grid = np.abs(steps - np.round(steps)) < _OFF_GRID
    return bool(on_grid.all() and steps[-1] < 2 * len(numbers))


def association(one: Attribute, other: Attribute) -> float:
    """Return the strength of the association of two attributes, in [0, 1]; see :func:`proxies`."""
    both = ~(one.missing | other.missing)
    a, b = (_Values.of(attribute, both) for attribute in (one, other))
    shares = [_explained_share(a, b), _explained_share(b, a)]
    if a.numbers is not None and b.numbers is not None:
        shares += [
            _correlation(a.numbers, b.numbers),
            _correlation(_ranks(a.codes), _ranks(b.codes)),
        ]
    return float(np.sqrt(max(shares)))


@dataclass(frozen=True, slots=True)
class _Values:
    """Known values of an attribute: numbers or None, and distinct values as codes 0..k-1."""

    numbers: Doubles | None
    codes: Ints

    @classmethod
    def of(cls, attribute: Attribute, rows: Bools) -> "_Values":
        numbers = None if attribute.numbers is None else attribute.numbers[rows].astype(np.float64)
        codes = attribute.codes[rows].astype(np.int64)
        # values that occur, numbered without gaps
        codes = (np.cumsum(np.bincount(codes) > 0) - 1)[codes]
        if numbers is not None and not np.isfinite(numbers).all():
            numbers = codes.astype(np.float64)  # infinite ones have no mean
        return cls(numbers, codes)

    def groups(self) -> Ints:
        """Return the group of each row: a value, or a range of numbers if there are many values."""
        n = len(self.codes)
        if self.numbers is None or self.codes.max(initial=0) < max(2, n // 4):
            return self.codes
        parts = min(max(2, n // 8), 256)
        # rows of equal value stay together
        return np.unique((_ranks(self.codes) * parts / n).astype(np.int64), return_inverse=True)[1]


def _ranks(codes: Ints) -> Doubles:
    """Return the mean rank of each value, from 0, where codes ascend with the values."""
    counts = np.bincount(codes)
    return (np.cumsum(counts) - (counts + 1) / 2)[codes]


def _explained_share(a: _Values, b: _Values) -> float:
    """Return the adjusted share of a's variance that the groups of b explain."""
    groups = b.groups()
    n = len(groups)
    k = int(groups.max(initial=-1)) + 1
    if n <= k or k < 2:
        return 0.0
    sizes = np.bincount(groups)
    if a.numbers is not None:
        centred = a.numbers - a.numbers.mean()
        total = float(centred @ centred)
        between = float((np.bincount(groups, centred) ** 2 / sizes).sum())
    else:
        cells, counts = np.unique(groups * (a.codes.max() + 1) + a.codes, return_counts=True)
        expected = float((np.bincount(a.codes).astype(float) ** 2).sum()) / n
        total = n - expected
        between = (
            float((counts.astype(float) ** 2 / sizes[cells // (a.codes.max() + 1)]).sum())
            - expected
        )
    if total <= 0:
        return 0.0
    share = min(between / total, 1.0)
    return _beyond_chance(share, 1 - (1 - share) * (n - 1) / (n - k), n, k)


def _correlation(a: Doubles, b: Doubles) -> float:
    """Return the squared correlation."""
    if len(a) < 3:
        return 0.0
    a = a - a.mean()
    b = b - b.mean()
    total = float(a @ a) * float(b @ b)
    share = min(float(a @ b) ** 2 / total, 1.0) if total > 0 else 0.0
    return _beyond_chance(share, share, len(a), 2)


def _beyond_chance(share: float, adjusted: float, n: int, k: int) -> float:
    """Return the adjusted share, or 0 if the F test finds that chance may explain it."""
    from scipy.special import betainc

    p = 1.0 - float(betainc((k - 1) / 2, (n - k) / 2, share))
    return max(0.0, adjusted) if p < _CHANCE else 0.0
