"""Conversion between rows of a store and tables of Arrow, which pandas, polars, DuckDB and others read and write."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.extras import extra
from cfe_faiss.store.contents import Kind, kind_of
from cfe_faiss.store.values import Metadata, Rows, speaks_arrow, to_json

with extra("store"):
    import pyarrow as pa
    import pyarrow.compute as pc

_PANDAS_INDEX = re.compile(r"__index_level_\d+__")


_NAMES = {"id": "id", "vector": "vector", "label": "label", "document": "document"}
"""Default name of the column of each field."""


def matrix(name: str, values: Any, d: int) -> NDArray[Any]:
    """Return the vectors of an Arrow column of lists, (n, d)."""
    column = pa.chunked_array(values)
    if not len(column):  # which may have any type
        return np.empty((0, d), np.float32)
    length = length_of(name, column)
    if column.null_count:
        raise ValueError(f"{name} must hold a vector in every row, got none in {column.null_count} of {len(column)}")
    if length != d:
        raise ValueError(f"{name} must hold vectors of {d} dimensions, got {length}")
    flat = pc.list_flatten(column)
    if flat.null_count:
        raise ValueError(f"{name} must hold numbers, got null among them")
    array: NDArray[Any] = flat.to_numpy().reshape(len(column), d)
    return array


def length_of(name: str, column: Any) -> int:
    """Return the common length of the vectors of an Arrow column of lists."""
    kind = column.type
    if pa.types.is_fixed_size_list(kind):
        return int(kind.list_size)
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        raise TypeError(f"{name} must be a column of lists of numbers, got {kind}")
    lengths = sorted(pc.unique(pc.list_value_length(column).drop_null()).to_pylist())
    if len(lengths) != 1:
        raise ValueError(f"{name} must hold vectors of one length, got {', '.join(map(str, lengths[:8])) or 'no list'}")
    return int(lengths[0])


def rows_of(table: Any, **columns: str) -> tuple[Any, Any, Any, list[Metadata], Any]:
    """Return ids, vectors, labels, metadata and documents of a table."""
    unknown = columns.keys() - _NAMES.keys()
    if unknown:
        raise TypeError(f"columns must be named by id=, vector=, label= and document=, got {min(unknown)}=")
    if not speaks_arrow(table):
        raise TypeError(
            "table must be one of pyarrow, pandas, polars or any other that has __arrow_c_stream__, "
            f"got {type(table).__name__}"
        )
    arrow, named = pa.table(table), {**_NAMES, **columns}
    names = arrow.column_names
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"table must have columns of different names, got {twice!r} twice")
    for field, name in named.items():
        if name not in names and (field in ("id", "vector") or field in columns):
            raise ValueError(f"table must have a column {name!r}, got {', '.join(names)}")
    labels, documents = (arrow[named[field]] if named[field] in names else None for field in ("label", "document"))
    if labels is not None and pa.types.is_floating(labels.type):  # pandas stores integers as floats if one is missing
        with suppress(pa.ArrowInvalid):
            labels = labels.cast(pa.int64())
    keys = [name for name in names if name not in named.values() and not _PANDAS_INDEX.fullmatch(name)]
    try:
        rows = arrow.select(keys).to_pylist()
    except OverflowError as error:
        raise ValueError(f"table must hold dates that Python has, of the years 1 to 9999: {error}") from error
    metadata = [{key: value for key, value in row.items() if value is not None} for row in rows]
    return arrow[named["id"]], arrow[named["vector"]], labels, metadata, documents


def to_arrow(rows: Rows, class_names: Sequence[Any]) -> Any:
    """Return rows as a ``pyarrow.Table``; ``class_names`` are all classes: they decide the type of their column."""
    if not _are_of_one_kind(rows.labels):
        remedy = "give all rows labels of one kind by relabel"
        raise TypeError(f"labels must be of one kind in a table, got {class_names!r:.80}; {remedy}")
    names = class_names if _are_of_one_kind(class_names) else ()
    labels = _array([*names, *rows.labels])[len(names) :]
    columns = {
        "id": pa.array(rows.ids, pa.string()),
        "vector": pa.FixedSizeListArray.from_arrays(pa.array(rows.vectors.reshape(-1)), rows.vectors.shape[1]),
        "label": labels if class_names else labels.cast(pa.int64()),
        "document": pa.array(rows.documents, pa.large_string()),
    }
    for key in dict.fromkeys(chain.from_iterable(rows.metadata)):
        columns[_free(key, columns)] = _array([one.get(key) for one in rows.metadata])
    return pa.table(columns)


def _array(values: list[Any]) -> Any:
    """Return values as one Arrow array, or as JSON texts if no Arrow type holds them all."""
    if _are_of_one_kind(values):
        with suppress(TypeError, ValueError, OverflowError):  # of Arrow, or of Python for NaN among decimals
            return pa.array(values)
    return pa.array(
        [None if value is None else json.dumps(value, ensure_ascii=False, default=to_json) for value in values]
    )


def _are_of_one_kind(values: Iterable[Any]) -> bool:
    """Return whether values, and those at each place in them, are of one kind; Arrow may cut others without an error.

    It takes a datetime for a date, a text for bytes, and drops time zones. No type of Arrow holds the zone of a time.
    """
    held = [value for value in values if value is not None]
    kinds = set(map(kind_of, held))
    if kinds == {Kind.LIST}:
        return _are_of_one_kind(chain.from_iterable(held))
    if kinds == {Kind.MAPPING}:
        keys = set(chain.from_iterable(held))
        return all(_are_of_one_kind(one.get(key) for one in held) for key in keys)
    return len(kinds) < 2 and (kinds != {Kind.TIME} or all(value.tzinfo is None for value in held))


def _free(key: str, taken: Mapping[str, Any]) -> str:
    while key in taken:
        key = f"{key} (metadata)"
    return key
