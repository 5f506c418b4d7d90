"""Attributes of nodes from a DataFrame of pandas or polars, PyG ``Data``, a mapping or a matrix."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.checks import UNKNOWN, as_array, check_distinct, check_known, is_missing
from cfe_faiss.base.derived import derived
from cfe_faiss.base.extras import extra
from cfe_faiss.base.values import as_ids

if TYPE_CHECKING:
    import pandas as pd

_Texts: TypeAlias = tuple[NDArray[np.int32], tuple[str, ...]]


@dataclass(frozen=True, eq=False, repr=False)
class Attribute:
    """One attribute of n nodes.

    Attributes
    ----------
    name
        Name of the attribute.
    numbers
        Values of a numeric attribute, (n,) float32 or float64, NaN if missing; None for any other attribute.
    codes
        Value of each node as a position in ``values``, (n,) int32; -1 if missing.
    values
        The distinct values, ascending: numbers (as NumPy scalars) or texts. Some may occur at no node.
    """

    name: str
    numbers: NDArray[Any] | None
    coded: tuple[NDArray[np.int32], tuple[Any, ...]] | None = None
    """Codes and values of an attribute that is not numeric."""

    def __repr__(self) -> str:
        return f"Attribute({self.name!r}, {len(self):,} nodes, {len(self.values):,} values)"

    def __len__(self) -> int:
        return len(self.coded[0] if self.numbers is None else self.numbers)  # type: ignore[index]

    @derived
    def _factorised(self) -> tuple[NDArray[np.int32], tuple[Any, ...]]:
        if self.coded is not None:
            return self.coded
        numbers: Any = self.numbers
        known = ~np.isnan(numbers)
        values, positions = np.unique(numbers[known], return_inverse=True)
        codes = np.full(len(numbers), UNKNOWN, np.int32)
        codes[known] = positions
        return codes, tuple(values)

    @property
    def codes(self) -> NDArray[np.int32]:
        """Value of each node as a position in ``values``, (n,) int32; -1 if missing."""
        return self._factorised[0]

    @property
    def values(self) -> tuple[Any, ...]:
        """The distinct values, ascending."""
        return self._factorised[1]

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Whether the value of a node is missing, (n,)."""
        missing: NDArray[np.bool_] = self.codes == UNKNOWN
        return missing

    def of(self, row: int) -> Any:
        """Return the value of one node; None if it is missing."""
        code = int(self.codes[row])
        return None if code == UNKNOWN else self.values[code]

    def take(self, rows: NDArray[np.int64]) -> "Attribute":
        """Return the attribute of the nodes in some rows."""
        if self.numbers is not None:
            return Attribute(self.name, self.numbers[rows])
        return Attribute(self.name, None, (self.codes[rows], self.values))

    def followed_by(self, other: "Attribute", argument: str) -> "Attribute":
        """Return the values of this attribute, then the values of another one, named ``argument`` in errors."""
        kinds = [("texts", "numbers")[each.numbers is not None] for each in (self, other)]
        if kinds[0] != kinds[1]:
            raise TypeError(f"{argument} must hold {kinds[0]} for {self.name!r}, got {kinds[1]}")
        if self.numbers is not None:
            return Attribute(self.name, np.concatenate([self.numbers, other.numbers]))
        codes = np.where(other.missing, UNKNOWN, other.codes + len(self.values))
        texts = [*self.values, *other.values]
        return Attribute(self.name, None, _texts(np.concatenate([self.codes, codes]), texts))


class Attributes(Mapping[str, Attribute]):
    """Attributes of nodes by name; made by :func:`as_attributes`.

    Parameters
    ----------
    columns
        By name: an attribute; numbers, (n,) float, NaN if missing; or codes, (n,) int32, -1 if missing, and texts.
    ids
        Node of each row, (n,) int64, distinct.
    """

    def __init__(self, columns: Mapping[str, Attribute | NDArray[Any] | _Texts], ids: NDArray[np.int64]) -> None:
        self._attributes = {name: _attribute(name, column) for name, column in columns.items()}
        self.ids = ids

    def __repr__(self) -> str:
        some = ", ".join([*list(self)[:6], *(["..."] if len(self) > 6 else [])])
        return f"Attributes({len(self.ids):,} nodes, {len(self)} attributes: {some})"

    def __iter__(self) -> Iterator[str]:
        return iter(self._attributes)

    def __len__(self) -> int:
        return len(self._attributes)

    def __getitem__(self, name: str) -> Attribute:
        return self._attributes[name]

    def known(self, argument: str, name: Any) -> str:
        """Return the name of an attribute as text; ``argument`` is its origin in errors.

        Raises
        ------
        ValueError
            If there is no such attribute.
        """
        check_known(f"{argument} must name attributes", str(name), self)
        return str(name)

    def select(self, names: Iterable[str]) -> Self:
        """Return a table of some attributes."""
        return type(self)({name: self[name] for name in names}, self.ids)

    def rows(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the row of each id, (nq,).

        Raises
        ------
        ValueError
            If an id has no row.
        """
        order = np.argsort(self.ids, kind="stable")  # linear time for ascending ids
        rows: NDArray[np.int64] = np.append(order, -1)[np.searchsorted(self.ids, ids, sorter=order)]
        absent = np.append(self.ids, -1)[rows] != ids
        if absent.any():
            raise ValueError(f"the attributes must describe every node, got no row for {ids[absent][0]}")
        return rows

    def take(self, ids: NDArray[np.int64]) -> Self:
        """Return the attributes of some nodes, row i that of ``ids[i]``; ValueError if an id has no row."""
        rows = self.rows(ids)
        return type(self)({name: attribute.take(rows) for name, attribute in self.items()}, ids)

    def followed_by(self, other: "Attributes", argument: str) -> Self:
        """Return the rows of this table, then the rows of another one, with the attributes of this table.

        Ids are 0..n-1. Errors call the other table ``argument``.

        Raises
        ------
        TypeError, ValueError
            If the other table lacks an attribute, or an attribute is numeric in one table only.
        """
        for name in self:
            if name not in other:
                raise ValueError(f"{argument} must have the attribute {name!r}, got {', '.join(list(other)[:20])}")
        columns = {name: attribute.followed_by(other[name], argument) for name, attribute in self.items()}
        return type(self)(columns, np.arange(len(self.ids) + len(other.ids)))

    def to_frame(self) -> "pd.DataFrame":
        """Return a DataFrame with one row per node, indexed by node: numbers, and texts with None if missing."""
        with extra("audit"):
            import pandas as pd

        columns = {
            name: np.array([*one.values, None], dtype=object)[one.codes] if one.numbers is None else one.numbers
            for name, one in self.items()
        }
        return pd.DataFrame(columns, index=pd.Index(self.ids, name="node"))


def as_attributes(features: Any, name: str = "features") -> Attributes:
    """Return the attributes of nodes from a table of any supported form.

    Parameters
    ----------
    features
        One of

        - a pandas ``DataFrame`` whose index holds node ids, of numbers, texts, categories or booleans;
        - a polars ``DataFrame``, whose row i describes node i;
        - PyG ``Data`` or a similar object, whose row i describes node i: its ``attributes``, if this function made
          them; otherwise ``x_raw`` (or ``x``) with ``feature_names``, and ``sensitive`` with ``sensitive_name`` unless
          that is one of the features;
        - a mapping from names to arrays (n,), or a matrix (n, d), whose columns are called "feature 0" and so on;
        - ``Attributes``, which are returned unchanged.
    name
        Name of the argument in errors.

    Raises
    ------
    TypeError
        If ``features`` has another type.
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
    own = getattr(features, "attributes", None)
    if isinstance(own, Attributes):
        return own
    kind = type(features).__module__.partition(".")[0]
    if kind == "pandas" and hasattr(features, "columns"):
        return _of_pandas(features, name)
    if kind == "polars" and hasattr(features, "get_columns"):
        return _of_columns({column.name: _of_values(column) for column in features.get_columns()}, name)
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
    """Return the attributes of nodes 0..n-1, row i for node i; ValueError if they describe other nodes."""
    attributes = as_attributes(features, name)
    if len(attributes.ids) > n:
        raise ValueError(f"{name} must describe the nodes 0..{n - 1}, got {len(attributes.ids)} rows")
    return attributes.take(np.arange(n))


def feature_names(data: Any, d: int, name: str = "data") -> list[str]:
    """Return the d names of ``data.feature_names``, or "feature 0", "feature 1", ... where it has none.

    Raises
    ------
    ValueError
        If there are names, but not d of them; the error calls the data ``name``.
    """
    names = getattr(data, "feature_names", None)
    if names is None:
        return [f"feature {column}" for column in range(d)]
    if len(names) != d:
        raise ValueError(f"{name}.feature_names must hold {d} names, one per feature, got {len(names)}")
    return [str(column) for column in names]


def _attribute(name: str, column: Attribute | NDArray[Any] | _Texts) -> Attribute:
    if isinstance(column, Attribute):
        return column
    return Attribute(name, column) if isinstance(column, np.ndarray) else Attribute(name, None, column)


def _of_pandas(frame: "pd.DataFrame", name: str) -> Attributes:
    names = [str(column) for column in frame.columns]
    check_distinct(f"{name} must have distinct column names", names)
    if not frame.index.is_unique:
        raise ValueError(f"{name} must describe a node once, got {frame.index[frame.index.duplicated()][0]} again")
    ids = as_ids(f"the index of {name}", frame.index.to_numpy())
    return Attributes({text: _of_series(frame.iloc[:, j]) for j, text in enumerate(names)}, ids)


def _of_series(series: "pd.Series[Any]") -> NDArray[Any] | _Texts:
    with extra("audit"):
        import pandas as pd
        from pandas.api.types import is_bool_dtype, is_numeric_dtype

    if is_numeric_dtype(series) and not is_bool_dtype(series):
        # float32 values print shorter, so they are not converted
        kind = series.dtype if series.dtype == np.float32 else np.float64
        numbers: NDArray[Any] = series.to_numpy(dtype=kind, na_value=np.nan)
        return numbers
    codes, found = pd.factorize(series)
    return _texts(codes, [str(value) for value in found])


def _of_values(values: Any) -> NDArray[Any] | _Texts:
    """Return the values of an array, a tensor, a list or a polars Series as numbers, or as codes and texts."""
    if hasattr(values, "null_count") and hasattr(values, "to_list"):
        is_numeric = values.dtype.is_numeric()
        values = (values.cast(float) if values.null_count() else values).to_numpy() if is_numeric else values.to_list()
    array = as_array("an attribute", values) if hasattr(values, "detach") else np.asarray(values)
    if array.dtype.kind in "iuf" or hasattr(values, "detach"):
        return _as_float(array)
    listed = array.tolist()
    if array.ndim != 1:
        raise ValueError(f"an attribute must have shape (n,), got {array.shape}")
    texts = [None if is_missing(value) else str(value) for value in listed]
    distinct = {text: code for code, text in enumerate(dict.fromkeys(text for text in texts if text is not None))}
    codes = np.array([UNKNOWN if text is None else distinct[text] for text in texts], np.int32)
    return _texts(codes, list(distinct))


def _as_float(values: NDArray[Any]) -> NDArray[Any]:
    if values.ndim != 1:
        raise ValueError(f"an attribute must have shape (n,), got {values.shape}")
    return values if values.dtype == np.float32 else values.astype(np.float64)


def _texts(codes: NDArray[Any], texts: list[str]) -> _Texts:
    """Return codes for the distinct texts in ascending order; different values with equal texts become one."""
    values, positions = np.unique(np.array(texts, dtype=str), return_inverse=True)
    return np.append(positions, UNKNOWN)[codes].astype(np.int32), tuple(values.tolist())


def _of_data(data: Any, name: str) -> Attributes:
    field = "x" if getattr(data, "x_raw", None) is None else "x_raw"
    matrix = as_array(f"{name}.{field}", getattr(data, field))
    if matrix.ndim != 2:
        raise ValueError(f"{name}.{field} must have shape (n, d), got {matrix.shape}")
    n, d = matrix.shape
    names = feature_names(data, d, name)
    check_distinct(f"{name} must have distinct column names", names)
    columns = {column: _as_float(matrix[:, j]) for j, column in enumerate(names)}
    sensitive, sensitive_name = getattr(data, "sensitive", None), str(getattr(data, "sensitive_name", "sensitive"))
    if sensitive is not None and sensitive_name not in columns:
        values = as_array(f"{name}.sensitive", sensitive)
        if values.shape != (n,):
            raise ValueError(f"{name}.sensitive must have shape ({n},), got {values.shape}")
        columns[sensitive_name] = _as_float(values)
    return Attributes(columns, np.arange(n))


def _of_columns(columns: Mapping[str, NDArray[Any] | _Texts], name: str) -> Attributes:
    attributes = [_attribute(text, column) for text, column in columns.items()]
    n = len(attributes[0]) if attributes else 0
    for one in attributes:
        if len(one) != n:
            raise ValueError(f"{name} must have columns of one length, got {n} and {len(one)} in {one.name!r}")
    return Attributes({one.name: one for one in attributes}, np.arange(n))
