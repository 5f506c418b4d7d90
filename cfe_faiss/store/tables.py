"""Vectors and rows in Arrow's terms: what pyarrow, pandas, polars, DuckDB and others hand over and take."""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.checks import as_unit_rows
from cfe_faiss.base.extras import extra
from cfe_faiss.store.results import Metadata, Rows


def as_vectors(name: str, values: Any, d: int) -> NDArray[np.float32]:
    """Return unit rows, (n, d), a copy, of what holds n vectors: a matrix, or a column of Arrow, polars or pandas."""
    if len(getattr(values, "shape", (0,))) == 1 and not isinstance(values, np.ndarray) and _speaks_arrow(values):
        values = _matrix(name, values, d)
    elif isinstance(values, np.ndarray) and values.dtype == object and values.ndim == 1:
        values = list(values)
    if isinstance(values, list | tuple) and not values:
        values = np.empty((0, d), np.float32)
    return as_unit_rows(name, values, d)


def _speaks_arrow(values: Any) -> bool:
    return hasattr(values, "__arrow_c_array__") or hasattr(values, "__arrow_c_stream__")


def _matrix(name: str, values: Any, d: int) -> NDArray[Any]:
    """Return the vectors of an Arrow column of lists, (n, d)."""
    with extra("store"):
        import pyarrow as pa
    import pyarrow.compute as pc

    column = pa.chunked_array(values)
    length = length_of(name, column)
    if column.null_count:
        raise ValueError(f"{name} must hold a vector in every row, got none in {column.null_count} of {len(column)}")
    if len(column) and length != d:
        raise ValueError(f"{name} must hold vectors of {d} dimensions, got {length}")
    flat = pc.list_flatten(column)
    if flat.null_count:
        raise ValueError(f"{name} must hold numbers, got null among them")
    array: NDArray[Any] = flat.to_numpy().reshape(len(column), d)
    return array


def length_of(name: str, column: Any) -> int:
    """Return how long the vectors of an Arrow column of lists are."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_fixed_size_list(kind):
        return int(kind.list_size)
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        raise TypeError(f"{name} must be a column of lists of numbers, got {kind}")
    lengths = [length for length in pc.unique(pc.list_value_length(column)).to_pylist() if length is not None]
    if len(lengths) != 1:
        some = ", ".join(map(str, sorted(lengths)[:8])) or "no list"
        raise ValueError(f"{name} must hold vectors of one length, got {some}")
    return int(lengths[0])


@dataclass(frozen=True)
class Columns:
    """How the columns of a table are called."""

    id: str = "id"
    vector: str = "vector"
    label: str = "label"
    document: str = "document"


def rows_of(table: Any, columns: Columns) -> tuple[Any, Any, Any, list[Metadata], Any]:
    """Return ids, vectors, labels, metadata and documents of a table of Arrow, pandas, polars, DuckDB, ..."""
    with extra("store"):
        import pyarrow as pa
    if not _speaks_arrow(table):
        raise TypeError(
            "table must be one of pyarrow, pandas, polars or any other that has __arrow_c_stream__, "
            f"got {type(table).__name__}"
        )
    arrow = pa.table(table)
    names = arrow.column_names
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"table must have columns of different names, got {twice!r} twice")
    optional = {Columns.label, Columns.document}
    for name in (columns.id, columns.vector, columns.label, columns.document):
        if name not in names and name not in optional:
            raise ValueError(f"table must have a column {name!r}, got {', '.join(names)}")
    labels = arrow[columns.label] if columns.label in names else None
    if labels is not None and pa.types.is_floating(labels.type):  # integers of pandas, where one is missing
        with suppress(pa.ArrowInvalid):
            labels = labels.cast(pa.int64())
    used = {columns.id, columns.vector, columns.label, columns.document}
    keys = [name for name in names if name not in used and not _PANDAS_INDEX.fullmatch(name)]
    documents = arrow[columns.document] if columns.document in names else None
    return arrow[columns.id], arrow[columns.vector], labels, _metadata(arrow, keys), documents


_PANDAS_INDEX = re.compile(r"__index_level_\d+__")


def _metadata(arrow: Any, keys: list[str]) -> list[Metadata]:
    """Return the values of some columns as metadata: null is left out."""
    values = [arrow[key].to_pylist() for key in keys]
    if not keys:
        return [{} for _ in range(len(arrow))]
    return [
        {key: value for key, value in zip(keys, row, strict=True) if value is not None}
        for row in zip(*values, strict=True)
    ]


def to_arrow(rows: Rows, class_kind: type) -> Any:
    """Return rows as a ``pyarrow.Table``; ``class_kind`` says whether classes are texts or integers."""
    with extra("store"):
        import pyarrow as pa
    names, d = Columns(), rows.vectors.shape[1]
    columns = {
        names.id: pa.array(rows.ids, pa.string()),
        names.vector: pa.FixedSizeListArray.from_arrays(pa.array(rows.vectors.reshape(-1)), d),
        names.label: pa.array(rows.labels, pa.string() if class_kind is str else pa.int64()),
        names.document: pa.array(rows.documents, pa.large_string()),
    }
    for key in dict.fromkeys(chain.from_iterable(rows.metadata)):
        values = [one.get(key) for one in rows.metadata]
        columns[_free(key, columns)] = _array(values)
    return pa.table(columns)


def _array(values: list[Any]) -> Any:
    """Return values as one Arrow array, or as their JSON where no Arrow type holds them all."""
    import pyarrow as pa

    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return pa.array([None if value is None else json.dumps(value, ensure_ascii=False) for value in values])


def _free(key: str, taken: Mapping[str, Any]) -> str:
    while key in taken:
        key = f"{key} (metadata)"
    return key
