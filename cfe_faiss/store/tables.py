"""Vectors and rows in Arrow's terms: what pyarrow, pandas, polars, DuckDB and others hand over and take."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.checks import as_unit_rows
from cfe_faiss.extras import extra


def as_vectors(name: str, values: Any, d: int) -> NDArray[np.float32]:
    """Return unit rows, (n, d), a copy, of what holds n vectors: a matrix, or a column of Arrow, polars or pandas."""
    if getattr(values, "ndim", 1) == 1 and not isinstance(values, np.ndarray) and _speaks_arrow(values):
        values = _matrix(name, values, d)
    elif isinstance(values, np.ndarray) and values.dtype == object and values.ndim == 1:
        values = list(values)
    if isinstance(values, list | tuple) and not values:
        values = np.empty((0, d), np.float32)
    return as_unit_rows(name, values, d)


def _speaks_arrow(values: Any) -> bool:
    return hasattr(values, "__arrow_c_array__") or hasattr(values, "__arrow_c_stream__")


def _matrix(name: str, values: Any, d: int) -> NDArray[Any]:
    with extra("store"):
        import pyarrow as pa
    return matrix_of(name, pa.chunked_array(values), d)


def matrix_of(name: str, column: Any, d: int | None) -> NDArray[Any]:
    """Return the vectors of an Arrow column of lists, (n, d) float32; ``d`` None: of what length they are."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
        raise TypeError(f"{name} must be a column of lists of numbers, got {kind}")
    if column.null_count:
        raise ValueError(f"{name} must hold a vector in every row, got none in {column.null_count} of them")
    lengths = pc.unique(pc.list_value_length(column)).to_pylist()
    if len(lengths) > 1 or (d is not None and lengths not in ([], [d])):
        raise ValueError(f"{name} must hold vectors of {d or 'one'} dimensions, got lists of {sorted(lengths)[:8]}")
    flat = pc.list_flatten(column)
    if flat.null_count:
        raise ValueError(f"{name} must hold numbers, got null among them")
    length = lengths[0] if lengths else d or 1
    array: NDArray[Any] = flat.to_numpy().reshape(len(column), length)
    return array
