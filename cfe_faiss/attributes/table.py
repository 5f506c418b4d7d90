"""The attributes of nodes, as users keep them: a DataFrame of pandas or polars, PyG ``Data``, or a matrix."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.checks import UNKNOWN, as_array, as_ids, did_you_mean
from cfe_faiss.base.extras import extra
from cfe_faiss.base.text import summary

if TYPE_CHECKING:
    import pandas as pd

_Texts: TypeAlias = tuple[NDArray[np.int32], tuple[str, ...]]
_Column: TypeAlias = NDArray[Any] | _Texts


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute of n nodes.

    Attributes
    ----------
    name
        Of the attribute.
    codes
        Value of each node, a position in ``values``, (n,) int32; -1 where it is missing.
    values
        The distinct values, ascending: numbers (as NumPy scalars) or texts. Some may belong to no node.
    numbers
        The values of a numeric attribute, (n,) float32 or float64, NaN where missing; None for any other attribute.
    """

    name: str
    codes: NDArray[np.int32]
    values: tuple[Any, ...]
    numbers: NDArray[Any] | None

    __repr__ = summary

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Which nodes have no value, (n,)."""
        missing: NDArray[np.bool_] = self.codes == UNKNOWN
        return missing

    def of(self, row: int) -> Any:
        """Return the value of one node; None where it is missing."""
        code = int(self.codes[row])
        return None if code == UNKNOWN else self.values[code]


class Attributes(Mapping[str, Attribute]):
    """Attributes of nodes by name; made by :func:`as_attributes`.

    Parameters
    ----------
    columns
        By name: numbers, (n,) float, NaN where missing; or codes, (n,) int32, -1 where missing, and their texts.
    ids
        Node of each row, (n,) int64, distinct.
    """

    def __init__(self, columns: Mapping[str, _Column], ids: NDArray[np.int64]) -> None:
        self._columns = dict(columns)
        self._made: dict[str, Attribute] = {}
        self.ids = ids

    def __repr__(self) -> str:
        some = ", ".join([*list(self)[:6], *(["..."] if len(self) > 6 else [])])
        return f"Attributes({len(self.ids):,} nodes, {len(self)} attributes: {some})"

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __getitem__(self, name: str) -> Attribute:
        if name not in self._made:
            self._made[name] = _attribute(name, self._columns[name])
        return self._made[name]

    def known(self, argument: str, name: Any) -> str:
        """Return a name that ``argument`` gives, as text.

        Raises
        ------
        ValueError
            If there is no such attribute.
        """
        if str(name) not in self._columns:
            some = ", ".join(list(self)[:20])
            raise ValueError(f"{argument} must name attributes ({some}), got {name!r}{did_you_mean(str(name), self)}")
        return str(name)

    def select(self, names: Iterable[str]) -> Self:
        """Return these attributes only."""
        return type(self)({name: self._columns[name] for name in names}, self.ids)

    def rows(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the row of each id, (nq,).

        Raises
        ------
        ValueError
            If an id has no row.
        """
        n = len(self.ids)
        if n and self.ids[0] == 0 and self.ids[-1] == n - 1 and (np.diff(self.ids) == 1).all():
            rows, absent = ids, (ids < 0) | (ids >= n)
        else:
            order = np.argsort(self.ids)
            places = np.minimum(np.searchsorted(self.ids, ids, sorter=order), max(n - 1, 0))
            rows = order[places] if n else np.zeros(len(ids), np.int64)
            absent = self.ids[rows] != ids if n else np.ones(len(ids), bool)
        if absent.any():
            raise ValueError(f"the attributes must describe every node, got no row for {ids[absent][0]}")
        return rows

    def take(self, ids: NDArray[np.int64]) -> Self:
        """Return the attributes of some nodes, row i that of ``ids[i]``; ValueError if an id has no row."""
        rows = self.rows(ids)
        columns = {
            name: column[rows] if isinstance(column, np.ndarray) else (column[0][rows], column[1])
            for name, column in self._columns.items()
        }
        return type(self)(columns, ids)

    def followed_by(self, other: "Attributes", argument: str) -> Self:
        """Return these rows, then those of another table, which ``argument`` gave, with the attributes of this one.

        Rows are numbered anew, from 0.

        Raises
        ------
        TypeError, ValueError
            If the other table lacks an attribute, or one is of numbers in only one of both.
        """
        columns: dict[str, _Column] = {}
        for name, mine in self._columns.items():
            if name not in other:
                raise ValueError(f"{argument} must have the attribute {name!r}, got {', '.join(list(other)[:20])}")
            theirs = other._columns[name]
            if isinstance(mine, np.ndarray) and isinstance(theirs, np.ndarray):
                columns[name] = np.concatenate([mine, theirs])
            elif isinstance(mine, tuple) and isinstance(theirs, tuple):
                codes = np.where(theirs[0] == UNKNOWN, UNKNOWN, theirs[0] + len(mine[1]))
                columns[name] = _texts(np.concatenate([mine[0], codes]), [*mine[1], *theirs[1]])
            else:
                kinds = [("texts", "numbers")[isinstance(column, np.ndarray)] for column in (mine, theirs)]
                raise TypeError(f"{argument} must hold {kinds[0]} for {name!r}, got {kinds[1]}")
        return type(self)(columns, np.arange(len(self.ids) + len(other.ids)))

    def to_frame(self) -> "pd.DataFrame":
        """Return a DataFrame, one line for each node, indexed by node: numbers, and texts with None where missing."""
        with extra("audit"):
            import pandas as pd

        columns = {}
        for name, column in self._columns.items():
            if isinstance(column, np.ndarray):
                columns[name] = column
            else:
                columns[name] = np.array([*column[1], None], dtype=object)[column[0]]
        return pd.DataFrame(columns, index=pd.Index(self.ids, name="node"))


def as_attributes(features: Any, name: str = "features") -> Attributes:
    """Return the attributes of nodes from what users keep them in.

    Parameters
    ----------
    features
        One of

        - a pandas ``DataFrame`` whose index holds node ids, of numbers, texts, categories or booleans;
        - a polars ``DataFrame``, whose row i describes node i;
        - PyG ``Data`` (or alike), whose row i describes node i: ``x_raw``, or else ``x``, with ``feature_names``, and
          ``sensitive`` with ``sensitive_name`` where it is not among the features already; or its ``attributes``, where
          it has some that this function made;
        - a mapping from names to arrays (n,), or a matrix (n, d), whose columns are called "feature 0" and so on;
        - ``Attributes``, which come back as they are.
    name
        What errors call it.

    Raises
    ------
    TypeError
        If it is something else.
    ValueError
        If names or ids are not distinct, or shapes do not fit.

    Examples
    --------
    >>> people = as_attributes({"sex": ["f", "m", None], "age": [20, 35, 50]})
    >>> people["sex"].values, people["sex"].codes, people["age"].numbers
    (('f', 'm'), array([ 0,  1, -1], dtype=int32), array([20., 35., 50.]))
    """
    if isinstance(features, Attributes):
        return features
    if isinstance(getattr(features, "attributes", None), Attributes):
        own: Attributes = features.attributes
        return own
    kind = type(features).__module__.partition(".")[0]
    if kind == "pandas" and hasattr(features, "columns"):
        return _of_pandas(features, name)
    if kind == "polars" and hasattr(features, "get_columns"):
        return _of_columns({column.name: _of_polars(column) for column in features.get_columns()}, name)
    if isinstance(features, Mapping):
        return _of_columns({str(key): _of_values(values) for key, values in features.items()}, name)
    if getattr(features, "x", None) is not None or getattr(features, "x_raw", None) is not None:
        return _of_data(features, name)
    if hasattr(features, "shape") and len(features.shape) == 2:
        matrix = as_array(name, features)
        return _of_columns({f"feature {j}": _as_float(matrix[:, j]) for j in range(matrix.shape[1])}, name)
    raise TypeError(
        f"{name} must be a DataFrame, a mapping from names to arrays, a matrix, or have x, as PyG Data has, "
        f"got {type(features).__name__}"
    )


def attributes_of(features: Any, n: int, name: str = "features") -> Attributes:
    """Return the attributes of nodes 0..n-1, row i those of node i; ValueError if they are of other nodes."""
    attributes = as_attributes(features, name)
    if len(attributes.ids) > n:
        raise ValueError(f"{name} must describe the nodes 0..{n - 1}, got {len(attributes.ids)} rows")
    return attributes.take(np.arange(n))


def _attribute(name: str, column: _Column) -> Attribute:
    if not isinstance(column, np.ndarray):
        return Attribute(name, column[0], column[1], None)
    missing = np.isnan(column)
    values, places = np.unique(column[~missing], return_inverse=True)
    codes = np.full(len(column), UNKNOWN, np.int32)
    codes[~missing] = places
    return Attribute(name, codes, tuple(values), column)


def _of_pandas(frame: "pd.DataFrame", name: str) -> Attributes:
    names = [str(column) for column in frame.columns]
    _check_distinct(names, name)
    if not frame.index.is_unique:
        raise ValueError(f"{name} must describe a node once, got {frame.index[frame.index.duplicated()][0]} again")
    ids = as_ids(f"the index of {name}", frame.index.to_numpy())
    columns = {text: _of_series(frame.iloc[:, place]) for place, text in enumerate(names)}
    return Attributes(columns, ids)


def _of_series(series: "pd.Series[Any]") -> _Column:
    with extra("audit"):
        import pandas as pd
        from pandas.api.types import is_bool_dtype, is_numeric_dtype

    if is_numeric_dtype(series) and not is_bool_dtype(series):
        # float32 stays, as its values have shorter names
        kind = series.dtype if series.dtype == np.float32 else np.float64
        numbers: NDArray[Any] = series.to_numpy(dtype=kind, na_value=np.nan)
        return numbers
    codes, found = pd.factorize(series)
    return _texts(codes, [str(value) for value in found])


def _of_polars(series: Any) -> _Column:
    if series.dtype.is_numeric():
        return _as_float(series.cast(float).to_numpy() if series.null_count() else series.to_numpy())
    return _of_values(series.to_list())


def _of_values(values: Any) -> _Column:
    array = values if hasattr(values, "detach") else np.asarray(values)
    if hasattr(values, "detach") or array.dtype.kind in "iuf":
        return _as_float(as_array("an attribute", values))
    listed = array.tolist()
    if array.ndim != 1:
        raise ValueError(f"an attribute must have shape (n,), got {array.shape}")
    given = [None if value is None or value != value else str(value) for value in listed]
    distinct = {text: code for code, text in enumerate(dict.fromkeys(text for text in given if text is not None))}
    codes = np.array([UNKNOWN if text is None else distinct[text] for text in given], np.int32)
    return _texts(codes, list(distinct))


def _as_float(values: NDArray[Any]) -> NDArray[Any]:
    if values.ndim != 1:
        raise ValueError(f"an attribute must have shape (n,), got {values.shape}")
    return values if values.dtype == np.float32 else values.astype(np.float64)


def _texts(codes: NDArray[Any], texts: list[str]) -> _Texts:
    """Return codes for the distinct texts in ascending order; equal texts of different values become one."""
    values, places = np.unique(np.array(texts, dtype=str), return_inverse=True)
    return np.append(places, UNKNOWN)[codes].astype(np.int32), tuple(values.tolist())


def _of_data(data: Any, name: str) -> Attributes:
    given = "x" if getattr(data, "x_raw", None) is None else "x_raw"
    matrix = as_array(f"{name}.{given}", getattr(data, given))
    if matrix.ndim != 2:
        raise ValueError(f"{name}.{given} must have shape (n, d), got {matrix.shape}")
    n, d = matrix.shape
    names = getattr(data, "feature_names", None)
    if names is None:
        names = [f"feature {column}" for column in range(d)]
    if len(names) != d:
        raise ValueError(f"{name}.feature_names must hold {d} names, one per feature, got {len(names)}")
    _check_distinct([str(column) for column in names], name)
    columns: dict[str, _Column] = {str(column): _as_float(matrix[:, j]) for j, column in enumerate(names)}
    sensitive, called = getattr(data, "sensitive", None), str(getattr(data, "sensitive_name", "sensitive"))
    if sensitive is not None and called not in columns:
        values = as_array(f"{name}.sensitive", sensitive)
        if values.shape != (n,):
            raise ValueError(f"{name}.sensitive must have shape ({n},), got {values.shape}")
        columns[called] = _as_float(values)
    return Attributes(columns, np.arange(n))


def _of_columns(columns: dict[str, _Column], name: str) -> Attributes:
    lengths = {text: len(c) if isinstance(c, np.ndarray) else len(c[0]) for text, c in columns.items()}
    n = next(iter(lengths.values()), 0)
    for text, length in lengths.items():
        if length != n:
            raise ValueError(f"{name} must have columns of one length, got {n} and {length} in {text!r}")
    return Attributes(columns, np.arange(n))


def _check_distinct(names: list[str], name: str) -> None:
    if len(set(names)) < len(names):
        twice = next(text for text in names if names.count(text) > 1)
        raise ValueError(f"{name} must have distinct column names, got {twice!r} more than once")
