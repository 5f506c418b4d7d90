"""Attributes of nodes: a pandas frame whose columns are numbers, or categories of texts."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np

from cfe_faiss.base.checks import (
    UNKNOWN,
    Array,
    Bools,
    Doubles,
    Int32s,
    Ints,
    as_array,
    check_distinct,
    check_known,
    check_shape,
    is_missing,
    require,
)
from cfe_faiss.base.extras import pd
from cfe_faiss.base.text import value_name
from cfe_faiss.base.threads import derived
from cfe_faiss.base.values import as_ids

_LARGEST_INTEGER = 1 << 53
"""Up to it, float64 holds every integer."""


@dataclass(frozen=True, eq=False, repr=False)
class Attribute:
    """One attribute of n nodes.

    Attributes
    ----------
    name
        Name of the attribute.
    array
        Its values: numbers, (n,) float32 or float64, NaN if missing; or a pandas ``Categorical`` of
        texts.
    """

    name: str
    array: Any

    def __repr__(self) -> str:
        return f"Attribute({self.name!r}, {len(self):,} nodes, {len(self.values):,} values)"

    def __len__(self) -> int:
        return len(self.array)

    @property
    def numbers(self) -> Array | None:
        """Values of a numeric attribute, (n,); None for any other attribute."""
        return self.array if self.array.dtype.kind == "f" else None

    @derived
    def _coded(self) -> tuple[Int32s, tuple[Any, ...]]:
        if self.numbers is None:
            return self.array.codes.astype(np.int32), tuple(self.array.categories)
        codes, values = pd.factorize(self.array, sort=True)
        return codes.astype(np.int32), tuple(values)

    @property
    def codes(self) -> Int32s:
        """Value of each node as a position in ``values``, (n,); -1 if missing."""
        return self._coded[0]

    @property
    def values(self) -> tuple[Any, ...]:
        """The distinct values, ascending: numbers (as NumPy scalars) or texts.

        Some may occur at no node.
        """
        return self._coded[1]

    @property
    def missing(self) -> Bools:
        """Whether the value of a node is missing, (n,)."""
        missing: Bools = self.codes == UNKNOWN
        return missing

    @derived
    def spread(self) -> float:
        """Standard deviation of the known numbers; NaN if they are equal."""
        numbers = np.asarray(self.numbers, np.float64)
        return float(np.nanstd(numbers)) or np.nan

    def deviations(self, a: Any, b: Any) -> Doubles:
        """Return the differences of numbers, b minus a, in standard deviations of all nodes.

        NaN for texts, and where a number is missing.
        """
        if self.numbers is None:
            return np.full(np.shape(b), np.nan)
        numbers = self.numbers.astype(np.float64)
        deviations: Doubles = (numbers[b] - numbers[a]) / self.spread
        return deviations

    def of(self, row: int) -> Any:
        """Return the value of one node; None if it is missing."""
        code = int(self.codes[row])
        return None if code == UNKNOWN else self.values[code]


class Attributes(Mapping[str, Attribute]):
    """Attributes of nodes by name; made by :func:`as_attributes`.

    Parameters
    ----------
    columns
        By name: an attribute, its array, or codes, (n,), -1 if missing, and texts; or a frame of
        such arrays.
    ids
        Node of each row, (n,) int64, distinct; the index of a frame.

    Attributes
    ----------
    frame
        The attributes as a pandas frame with one row per node, indexed by node. Not to be changed.
    """

    def __init__(
        self, columns: "Mapping[str, Any] | pd.DataFrame", ids: Ints | None = None
    ) -> None:
        if not isinstance(columns, pd.DataFrame):
            arrays: dict[str, Any] = {}
            for name, column in columns.items():
                array = column.array if isinstance(column, Attribute) else column
                arrays[name] = (
                    pd.Categorical.from_codes(*array) if isinstance(array, tuple) else array
                )
            columns = pd.DataFrame(arrays, index=ids)
        self.frame = columns
        self._attributes = {
            str(name): Attribute(str(name), columns[name].values) for name in columns
        }

    def __repr__(self) -> str:
        names = ", ".join([*list(self)[:6], *(["..."] if len(self) > 6 else [])])
        return f"Attributes({len(self.ids):,} nodes, {len(self)} attributes: {names})"

    def __iter__(self) -> Iterator[str]:
        return iter(self._attributes)

    def __len__(self) -> int:
        return len(self._attributes)

    def __getitem__(self, name: str) -> Attribute:
        return self._attributes[name]

    @property
    def ids(self) -> Ints:
        """Node of each row, (n,)."""
        return self.frame.index.to_numpy()

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
        return type(self)(self.frame[list(names)])

    def rows(self, ids: Ints) -> Ints:
        """Return the row of each id, (nq,).

        Raises
        ------
        ValueError
            If an id has no row.
        """
        rows: Ints = self.frame.index.get_indexer(ids)  # type: ignore[arg-type]
        if (rows < 0).any():
            raise ValueError(
                "the attributes must describe every node, got no row for "
                f"{ids[int(np.argmin(rows))]}"
            )
        return rows

    def take(self, ids: Ints) -> Self:
        """Return the attributes of some nodes, row i that of ``ids[i]``.

        ValueError if an id has no row.
        """
        return type(self)(self.frame.iloc[self.rows(ids)])

    def differences(self, source: Ints, target: Ints) -> list[dict[str, float]]:
        """Return the attributes in which the nodes of each pair differ, largest difference first.

        Each has its difference as in :meth:`Attribute.deviations`. One without a number counts as
        one standard deviation. Two missing values do not differ.
        """
        a = self.rows(source)
        b = self.rows(target)
        shape = len(self), len(a)
        deviations = np.reshape([one.deviations(a, b) for one in self.values()], shape)
        ends = type(self)(self.frame.iloc[np.append(a, b)])  # the codes of all take long
        codes = np.reshape([one.codes for one in ends.values()], (len(self), 2 * len(a)))
        differ = codes[:, : len(a)] != codes[:, len(a) :]
        order = np.argsort(-size_of(deviations), axis=0, kind="stable")
        names = list(self)
        return [
            {names[i]: float(deviations[i, pair]) for i in order[:, pair] if differ[i, pair]}
            for pair in range(len(a))
        ]

    def followed_by(self, other: "Attributes", argument: str) -> Self:
        """Return the rows of this table and of another one, with the attributes of this table.

        Ids are 0..n-1. Errors call the other table ``argument``.

        Raises
        ------
        TypeError, ValueError
            If the other table lacks an attribute, or an attribute is numeric in one table only.
        """
        columns = {}
        for name, attribute in self.items():
            if name not in other:
                raise ValueError(
                    f"{argument} must have the attribute {name!r}, got "
                    f"{', '.join(list(other)[:20])}"
                )
            pair = attribute, other[name]
            kinds = ["texts" if each.numbers is None else "numbers" for each in pair]
            if kinds[0] != kinds[1]:
                raise TypeError(f"{argument} must hold {kinds[0]} for {name!r}, got {kinds[1]}")
            join = (
                np.concatenate
                if kinds[0] == "numbers"
                else partial(pd.api.types.union_categoricals, sort_categories=True)
            )
            columns[name] = join([each.array for each in pair])
        return type(self)(columns, np.arange(len(self.ids) + len(other.ids)))

    def to_frame(self) -> "pd.DataFrame":
        """Return the frame with texts in place of categories, None if missing."""
        texts = self.frame.select_dtypes("category").astype(object)
        return self.frame.assign(**texts.where(texts.notna(), None)).rename_axis("node")


def size_of(difference: Any) -> Any:
    """Return the size of a difference in standard deviations; 1 for one without a number, NaN."""
    return np.where(np.isnan(difference), 1.0, np.abs(difference))


def with_counts(counts: Mapping[str, Doubles], given: Attributes | None) -> Attributes:
    """Return counts of graphs, (n,) each, and the attributes of a user.

    Raises
    ------
    ValueError
        If an attribute has the name of a count.
    """
    columns = {} if given is None else dict(given)
    reserved_names = [name for name in counts if name in columns]
    problem = "must leave this name to the count of the graph, got such a column: rename it"
    require(
        not reserved_names,
        f"features (or data.feature_names) {problem}: {', '.join(reserved_names)}",
    )
    return Attributes({**counts, **columns}, np.arange(len(next(iter(counts.values())))))


def as_attributes(features: Any, name: str = "features") -> Attributes:
    """Return the attributes of nodes from a table of any supported form.

    Parameters
    ----------
    features
        One of

        - a pandas ``DataFrame`` whose index holds node ids, of numbers, texts, categories or
          booleans;
        - a polars ``DataFrame`` or PyArrow table, whose row i describes node i;
        - PyG ``Data`` or a similar object, whose row i describes node i: its ``attributes``, if
          this function made them; otherwise ``x_raw`` (or ``x``) with ``feature_names``, and
          ``sensitive`` with ``sensitive_name`` unless that is one of the features;
        - a mapping from names to arrays (n,), or a matrix (n, d), whose columns are called "feature
          0" and so on;
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
    for given in (features, getattr(features, "attributes", None)):
        if isinstance(given, Attributes):
            return given
    columns = features
    ids = None
    if isinstance(features, pd.DataFrame):
        names = [str(column) for column in features.columns]
        check_distinct(f"{name} must have distinct column names", names)
        if not features.index.is_unique:
            again = features.index[features.index.duplicated()][0]
            raise ValueError(f"{name} must describe a node once, got {again} again")
        ids = as_ids(f"the index of {name}", features.index.to_numpy())
        columns = {text: features.iloc[:, place] for place, text in enumerate(names)}
    elif hasattr(features, "get_columns"):  # polars
        columns = {column.name: column for column in features.get_columns()}
    elif hasattr(features, "column_names"):  # Arrow
        columns = exact_integers(features.to_pandas(), features)
    elif not isinstance(features, Mapping):
        columns = _columns_of(features, name)
    arrays = {str(text): _as_array(f"{name}[{text!r}]", values) for text, values in columns.items()}
    n = len(next(iter(arrays.values()), ()))
    for text, array in arrays.items():
        if len(array) != n:
            raise ValueError(
                f"{name} must have columns of one length, got {n} and {len(array)} in {text!r}"
            )
    return Attributes(arrays, np.arange(n) if ids is None else ids)


def attributes_of(features: Any, n: int, name: str = "features") -> Attributes:
    """Return the attributes of nodes 0..n-1, row i for node i.

    ValueError if they describe other nodes.
    """
    attributes = as_attributes(features, name)
    if len(attributes.ids) > n:
        raise ValueError(
            f"{name} must describe the nodes 0..{n - 1}, got {len(attributes.ids)} rows"
        )
    return attributes.take(np.arange(n))


def feature_names(data: Any, d: int, name: str = "data") -> list[str]:
    """Return the d names of ``data.feature_names``; "feature 0", "feature 1", ... without it.

    Raises
    ------
    ValueError
        If there are names, but not d of them; the error calls the data ``name``.
    """
    names = getattr(data, "feature_names", None)
    if names is None:
        return [f"feature {column}" for column in range(d)]
    if len(names) != d:
        raise ValueError(
            f"{name}.feature_names must hold {d} names, one per feature, got {len(names)}"
        )
    return [str(column) for column in names]


def _columns_of(data: Any, name: str) -> dict[str, Any]:
    """Return the columns of a matrix or of PyG ``Data``, with its sensitive attribute."""
    field = next(
        (field for field in ("x_raw", "x") if getattr(data, field, None) is not None), None
    )
    if field is None and len(getattr(data, "shape", ())) != 2:
        raise TypeError(
            f"{name} must be a DataFrame, a mapping from names to arrays, a matrix, or have x, as "
            f"PyG Data has, got {type(data).__name__}"
        )
    matrix = (
        as_array(name, data) if field is None else as_array(f"{name}.{field}", getattr(data, field))
    )
    check_shape(f"{name}.{field}", matrix, ("n", "d"))
    names = feature_names(data, matrix.shape[1], name)
    check_distinct(f"{name} must have distinct column names", names)
    columns = dict(zip(names, matrix.T, strict=True))
    sensitive = getattr(data, "sensitive", None)
    sensitive_name = str(getattr(data, "sensitive_name", "sensitive"))
    if sensitive is not None and sensitive_name not in columns:
        columns[sensitive_name] = as_array(f"{name}.sensitive", sensitive)
        check_shape(f"{name}.sensitive", columns[sensitive_name], (len(matrix),))
    return columns


def _as_array(name: str, values: Any) -> Any:
    """Return a column as floats, NaN if missing, or as a pandas ``Categorical`` of texts.

    Integers that float64 does not tell apart are texts: they number things.
    """
    if hasattr(values, "detach"):  # a tensor, whose booleans are numbers
        values = as_array(name, values)
        values = values.astype(np.float64) if values.dtype.kind == "b" else values
    elif hasattr(values, "null_count"):  # of polars
        has_gaps = values.dtype.is_integer() and values.null_count() > 0
        values = (
            pd.Series(values.to_list(), dtype=str(values.dtype)) if has_gaps else values.to_numpy()
        )
    if isinstance(values, np.ma.MaskedArray):
        values = pd.Series(values)
    if not isinstance(values, pd.Series | pd.api.extensions.ExtensionArray):
        values = np.asarray(values)
    check_shape(name, values, ("n",))
    if values.dtype.kind == "c":
        raise TypeError(f"{name} must hold numbers, texts, booleans or dates, got {values.dtype}")
    is_number = pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values)
    if is_number and not has_long_integers(values):
        # float32 values print shorter, so they are not converted
        return pd.Series(values).to_numpy(
            np.float32 if values.dtype == np.float32 else np.float64, na_value=np.nan
        )
    texts = np.empty(len(values), object)
    first_of: dict[str, Any] = {}
    for row, value in enumerate(values.tolist()):
        if is_missing(value):
            continue
        texts[row] = str(value)
        first = first_of.setdefault(texts[row], value)
        if isinstance(first, str) != isinstance(value, str):
            raise ValueError(
                f"{name} must hold numbers or texts, got {first!r} and {value!r}: make them one"
            )
    codes, distinct = pd.factorize(texts, sort=True)
    return pd.Categorical.from_codes(codes, pd.Index(distinct, dtype=object))


def exact_integers(frame: "pd.DataFrame", table: Any) -> "pd.DataFrame":
    """Return a frame with the integers that it lost as floats beside missing values.

    ``table``: PyArrow table that the frame was made from.
    """
    kinds = {"int64": "Int64", "uint64": "UInt64"}
    for place, column in enumerate(table.columns):
        kind = kinds.get(str(getattr(column, "type", "")))
        if kind is None or not column.null_count:
            continue
        if (frame.iloc[:, place].abs() >= _LARGEST_INTEGER).any():  # else nothing is lost
            integers = pd.Series(column.to_pylist(), dtype=kind)
            frame = frame.assign(**{str(frame.columns[place]): integers.array})
    return frame


def has_long_integers(values: Any) -> bool:
    """Return whether a column holds integers that float64 does not tell apart."""
    if not pd.api.types.is_integer_dtype(values):
        return False
    known = pd.Series(values).dropna()
    return bool((known > _LARGEST_INTEGER).any() or (known < -_LARGEST_INTEGER).any())


# --- values with a better end ---------------------------------------------------------------------


def grades_of(attributes: Attributes, better: Mapping[str, Any]) -> Doubles:
    """Return the rank of each row by column of ``better``, (c, n), NaN where missing.

    Larger ranks are better values.
    """
    if not isinstance(better, Mapping) or not better:
        raise ValueError(
            f"better must map columns to 'high', 'low' or values from worst to best, got {better!r}"
        )
    return np.stack([_grades(attributes, name, end) for name, end in better.items()])


def _grades(attributes: Attributes, name: Any, end: Any) -> Doubles:
    attribute = attributes[attributes.known("better", name)]
    values = [value_name(value) for value in attribute.values]  # in ascending order
    listed = values
    if not isinstance(end, str):
        listed = [value_name(value) for value in end]
    elif end not in ("high", "low"):
        raise ValueError(
            f"better[{name!r}] must be 'high', 'low' or values from worst to best, got {end!r}"
        )
    elif attribute.numbers is None:
        value_list = ", ".join(values[:20])
        raise ValueError(
            f"better[{name!r}] must list the values from worst to best ({value_list}), got {end!r}"
        )
    elif end == "low":
        listed = values[::-1]
    grade = {value: float(rank) for rank, value in enumerate(listed)}
    for value in values:
        if value not in grade:
            raise ValueError(
                f"better[{name!r}] must list all values from worst to best, got none for {value!r}"
            )
    return np.array([*(grade[value] for value in values), np.nan])[attribute.codes]


def are_dominated(grades: Doubles, refused: Bools, source: Ints, target: Ints) -> Bools:
    """Return whether the refused side of each pair is at least as good in every column.

    Parameters
    ----------
    grades
        (columns, n), see :func:`grades_of`.
    refused
        Whether each row was refused, (n,).
    source, target
        Rows of each pair. A pair of two refused or two granted rows is not one.
    """
    worse = np.where(refused[source], source, target)
    other = np.where(refused[source], target, source)
    is_mixed = refused[worse] & ~refused[other]
    result: Bools = is_mixed & (grades[:, worse] >= grades[:, other]).all(axis=0)
    return result
