"""Which columns of the features hold an attribute, and which others give it away."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc

from cfe_faiss.attributes.table import Attribute, Attributes, as_attributes
from cfe_faiss.base.checks import as_dense, as_matrix, as_names

DUPLICATE = 0.99
"""From this strength on, a column is taken for the attribute itself."""
PROXY = 0.5
"""From this strength on, a column is named as a proxy of the attribute."""

_CHANCE = 1e-3
_SHOWN = 5
_SEPARATOR = re.compile(r"[=:_.\-/ \[(|]+")


@dataclass(frozen=True, slots=True)
class Proxy:
    """A column, or the columns of one attribute, from which another attribute can be told.

    Attributes
    ----------
    column
        Name of the column, or of the attribute that has one column for each of its values.
    attribute
        Name of the attribute that it tells.
    strength
        How well, in [0, 1], see :func:`proxies`.
    """

    column: str
    attribute: str
    strength: float

    def __str__(self) -> str:
        return f"{self.column} ({self.strength:.2f})"


@dataclass(frozen=True, slots=True, repr=False)
class Removed:
    """What the KS vectors were made without.

    Attributes
    ----------
    attributes
        The names asked for.
    columns
        Names of the columns of the features that were left out, duplicates included.
    duplicates
        What was left out because it is one of the attributes again: strength 0.99 and more.
    proxies
        What was kept, though it partly tells one of the attributes: strength 0.5 and more, strongest first.
    """

    attributes: tuple[str, ...]
    columns: tuple[str, ...]
    duplicates: tuple[Proxy, ...]
    proxies: tuple[Proxy, ...]

    def __repr__(self) -> str:
        count = len(self.columns)
        parts = [f"{', '.join(self.attributes)}: {count} {'column' if count == 1 else 'columns'}"]
        for title, found in (("duplicates", self.duplicates), ("proxies kept", self.proxies)):
            if found:
                more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
                parts.append(f"{title}: {', '.join(map(self._text, found[:_SHOWN]))}{more}")
        return f"Removed({'; '.join(parts)})"

    def _text(self, proxy: Proxy) -> str:
        whose = f" for {proxy.attribute}" if len(self.attributes) > 1 else ""
        return f"{proxy.column}{whose} ({proxy.strength:.2f})"


def proxies(data: Any, attribute: str, features: Any = None) -> list[Proxy]:
    """Return the columns of ``data.x`` that tell an attribute, strongest first.

    Parameters
    ----------
    data
        PyG ``Data`` or any object with ``x``, (n, d). Where it has ``feature_names``, d of them, columns such as
        "Purpose=car" and "Purpose=tv" (or with any of ``= : _ . - / [ ( |`` or a space between) are taken together as
        one attribute "Purpose", if all that begin so have two values and no two are high in one row (one-hot), or each
        is high only where the one before is ("Balance_geq_0" and "Balance_geq_200"). Where it has
        ``feature_attributes``, d names, these say which columns belong together.
    attribute
        Its name: one of ``features``, a column, or what several columns have been taken together as.
    features
        Attributes of all n nodes, see :func:`cfe_faiss.attributes.table.as_attributes`; by default those of ``data``.

    Returns
    -------
    list of Proxy
        Those of a strength of 0.5 and more, without the attribute's own columns (of its name).

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Notes
    -----
    The strength is the square root of the share of the variance of one of the two that the other explains: with R**2 =
    1 - (variance within the groups of equal values) / (variance), adjusted for the number of groups k to
    1 - (1 - R**2) (n - 1) / (n - k). The variance of numbers is the usual one, and the share Pearson's correlation
    ratio (1905); that of texts is Gini's impurity, and the share Goodman and Kruskal's tau (1954). Numbers of more than
    n / 4 values are put into groups of equal size. Of both directions, and between numbers also of the correlation and
    the rank correlation (squared), the largest counts. So it is 1 for any column scaled, shifted, or renamed one to
    one, and for one that determines the attribute or that the attribute determines; between two columns of two values
    it is the absolute correlation phi. What could come by chance (an F test's p of 0.001 and more) is 0.

    Each column is judged by itself: what several tell together only, and what the edges tell, is not found. A strong
    column may stand for something of its own; whether it does is not a question of statistics.

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
    known = (
        None if features is None and columns.names is None else as_attributes(data if features is None else features)
    )
    own, values = columns.of(attribute, known, "attribute")
    found = columns.that_tell(attribute, values, own)
    return [proxy for proxy, _ in found]


def leave_out(data: Any, attributes: Attributes | None, without: Iterable[str]) -> tuple[NDArray[Any], Removed]:
    """Return the features without the columns of some attributes, and what was left out.

    Parameters
    ----------
    data
        As in :func:`proxies`.
    attributes
        Of all nodes, row i those of node i, or None.
    without
        Names of attributes or of columns of ``data.x``.

    Raises
    ------
    TypeError
        If ``without`` is no sequence, or a text.
    ValueError
        If a name is unknown, no column holds it, or no column would be left.
    """
    asked = as_names("without", without)
    columns = _Columns(data)
    owned, told = np.zeros(columns.d, bool), []
    for name in asked:
        own, values = columns.of(name, attributes, "without")
        found = columns.that_tell(name, values, own)
        if not own.any() and not any(proxy.strength >= DUPLICATE for proxy, _ in found):
            nearest = f"the nearest is {found[0][0]}" if found else "none comes near it"
            raise ValueError(f"without must name what data.x holds, got {name!r}, which no column equals: {nearest}")
        owned |= own
        told += found
    gone = owned.copy()
    for proxy, its_own in told:
        if proxy.strength >= DUPLICATE:
            gone |= its_own
    if gone.all():
        raise ValueError(f"without must leave some of the {columns.d} columns of data.x, got {', '.join(asked)}")
    order = sorted(told, key=lambda one: -one[0].strength)
    duplicates = [proxy for proxy, its_own in order if proxy.strength >= DUPLICATE and not owned[its_own].all()]
    kept = [proxy for proxy, its_own in order if proxy.strength < DUPLICATE and not gone[its_own].all()]
    names = tuple(columns.name(column) for column in np.flatnonzero(gone).tolist())
    return columns.x[:, ~gone], Removed(asked, names, tuple(duplicates), tuple(kept))


class _Columns:
    """The columns of ``data.x``, those of one attribute taken together.

    Parameters
    ----------
    data
        As in :func:`proxies`.
    """

    def __init__(self, data: Any) -> None:
        self.x = as_dense("data.x", data.x)
        values = as_matrix("data.x", self.x)
        self.d = values.shape[1]
        self.names = _names(data, "feature_names", self.d)
        if self.names is not None and len(set(self.names)) < self.d:
            twice = next(name for name in self.names if self.names.count(name) > 1)
            raise ValueError(f"data.feature_names must be distinct, got {twice!r} more than once")
        self._single = as_attributes({self.name(column): values[:, column] for column in range(self.d)})
        owners = _names(data, "feature_attributes", self.d)
        if owners is None:
            owners = _owners(self.names, values) if self.names is not None else list(self._single)
        self._groups = {owner: np.array([own == owner for own in owners]) for owner in dict.fromkeys(owners)}

    def name(self, column: int) -> str:
        """Return the name of a column."""
        return f"feature {column}" if self.names is None else self.names[column]

    def of(self, name: str, attributes: Attributes | None, argument: str) -> tuple[NDArray[np.bool_], list[Attribute]]:
        """Return which columns have the name of an attribute, (d,), and the attribute's values."""
        own = self._groups.get(name, np.zeros(self.d, bool)) | np.array([text == name for text in self._single])
        if attributes is not None and name in attributes:
            values = [attributes[name]]
            if len(values[0].codes) != len(self.x):
                raise ValueError(
                    f"{name} must have a value for each of {len(self.x)} nodes, got {len(values[0].codes)}"
                )
        elif own.any():
            values = self._values(name, own)
        else:
            known = dict.fromkeys([*self._groups, *self._single, *(attributes or ())])
            some = ", ".join(list(known)[:20])
            raise ValueError(f"{argument} must name attributes or columns of data.x ({some}), got {name!r}")
        return own, values

    def that_tell(
        self, attribute: str, values: list[Attribute], own: NDArray[np.bool_]
    ) -> list[tuple[Proxy, NDArray[np.bool_]]]:
        """Return what tells an attribute, strongest first, and the columns of each, (d,), without its ``own``."""
        found = []
        for name, members in self._groups.items():
            others = members & ~own
            if others.any():
                told_by = self._values(name, others)
                strength = max(association(one, other) for one in values for other in told_by)
                if strength >= PROXY:
                    alone = others.sum() == 1 < members.sum()
                    called = self.name(int(np.argmax(others))) if alone else name
                    found.append((Proxy(called, attribute, strength), others))
        return sorted(found, key=lambda one: -one[0].strength)

    def _values(self, name: str, members: NDArray[np.bool_]) -> list[Attribute]:
        """Return the values of some columns of one attribute: one for each, or where they say which value, together."""
        singles = [self._single[self.name(column)] for column in np.flatnonzero(members).tolist()]
        if len(singles) == 1 or any(len(single.values) > 2 for single in singles):
            return singles
        codes = np.zeros(len(self.x), np.int64)
        for single in singles:
            codes = np.unique(2 * codes + single.codes, return_inverse=True)[1]
        return [Attribute(name, codes.astype(np.int32), tuple(range(codes.max() + 1)), None)]


def _names(data: Any, field: str, d: int) -> list[str] | None:
    names = getattr(data, field, None)
    if names is None:
        return None
    if len(names) != d:
        raise ValueError(f"data.{field} must hold {d} names, one per column of x, got {len(names)}")
    return [str(name) for name in names]


def _owners(names: Sequence[str], values: NDArray[np.float32]) -> list[str]:
    """Return the attribute of each column: what the names of a one-hot group begin with, or the column's own name."""
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
        if len(group) > 1 and free and two_valued[group].all() and _are_one(~low[:, group]):
            for column in group:
                owners[column] = start
    return owners


def _are_one(high: NDArray[np.bool_]) -> bool:
    """Return whether columns are those of one attribute: at most one is high in each row, or they are nested."""
    ordered = high[:, np.argsort(-high.sum(axis=0), kind="stable")]
    return bool((high.sum(axis=1) <= 1).all() or (ordered[:, 1:] <= ordered[:, :-1]).all())


def association(one: Attribute, other: Attribute) -> float:
    """Return how well one of two attributes can be told from the other, in [0, 1]; see :func:`proxies`."""
    both = ~(one.missing | other.missing)
    a, b = _Values.of(one, both), _Values.of(other, both)
    shares = [_explained(a, b), _explained(b, a)]
    if a.numbers is not None and b.numbers is not None:
        shares += [_correlation(a.numbers, b.numbers), _correlation(_ranks(a.codes), _ranks(b.codes))]
    return float(np.sqrt(max(shares)))


@dataclass(frozen=True, slots=True)
class _Values:
    """The known values of an attribute: numbers or None, distinct values as codes 0..k-1."""

    numbers: NDArray[np.float64] | None
    codes: NDArray[np.int64]

    @classmethod
    def of(cls, attribute: Attribute, rows: NDArray[np.bool_]) -> "_Values":
        numbers = None if attribute.numbers is None else attribute.numbers[rows].astype(np.float64)
        codes = attribute.codes[rows].astype(np.int64)
        # values that occur, numbered without gaps
        return cls(numbers, (np.cumsum(np.bincount(codes) > 0) - 1)[codes])

    def groups(self) -> NDArray[np.int64]:
        """Return the group of each row: equal values, or a range of numbers where there are too many values."""
        n = len(self.codes)
        if self.numbers is None or self.codes.max(initial=0) < max(2, n // 4):
            return self.codes
        parts = min(max(2, n // 8), 256)
        # rows of equal value stay together
        return np.unique((_ranks(self.codes) * parts / n).astype(np.int64), return_inverse=True)[1]


def _ranks(codes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the mean rank of each value, from 0, where codes ascend with the values."""
    counts = np.bincount(codes)
    ranks: NDArray[np.float64] = (np.cumsum(counts) - (counts + 1) / 2)[codes]
    return ranks


def _explained(a: _Values, b: _Values) -> float:
    """Return the adjusted share of a's variance that the groups of b explain."""
    groups = b.groups()
    n, k = len(groups), int(groups.max(initial=-1)) + 1
    if n <= k or k < 2:
        return 0.0
    sizes = np.bincount(groups)
    if a.numbers is not None:
        centred = a.numbers - a.numbers.mean()
        total = float(centred @ centred)
        between = float((np.bincount(groups, centred) ** 2 / sizes).sum())
    else:
        cells, counts = np.unique(groups * (a.codes.max() + 1) + a.codes, return_counts=True)
        rest = float((np.bincount(a.codes).astype(float) ** 2).sum()) / n
        total = n - rest
        between = float((counts.astype(float) ** 2 / sizes[cells // (a.codes.max() + 1)]).sum()) - rest
    if total <= 0:
        return 0.0
    share = min(between / total, 1.0)
    return _beyond_chance(share, 1 - (1 - share) * (n - 1) / (n - k), n, k)


def _correlation(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Return the squared correlation."""
    if len(a) < 3:
        return 0.0
    a, b = a - a.mean(), b - b.mean()
    total = float(a @ a) * float(b @ b)
    share = min(float(a @ b) ** 2 / total, 1.0) if total > 0 else 0.0
    return _beyond_chance(share, share, len(a), 2)


def _beyond_chance(share: float, adjusted: float, n: int, k: int) -> float:
    """Return the adjusted share, or 0 if k groups of n rows could explain the share by chance: F, written as a beta."""
    p = 1.0 - float(betainc((k - 1) / 2, (n - k) / 2, share))
    return max(0.0, adjusted) if p < _CHANCE else 0.0
