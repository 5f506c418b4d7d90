import json
import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from numpy.testing import assert_array_equal
from reference import unit
from stores import filled

import cfe_faiss as cfe
from cfe_faiss.store.values import from_json

X = np.array([[3, 4], [1, 0], [0, 2]], np.float32)


@pytest.mark.parametrize(
    "vectors",
    [
        pa.FixedSizeListArray.from_arrays(pa.array(X.reshape(-1)), 2),
        pa.array(X.tolist(), pa.list_(pa.float64())),
        pa.array(X.tolist(), pa.large_list(pa.int32())),
        pa.chunked_array([pa.array(X[:1].tolist()), pa.array(X[1:].tolist())]),
        pa.FixedSizeListArray.from_arrays(pa.array(np.concatenate([X[::-1], X]).reshape(-1)), 2)[
            3:
        ],
        pl.Series(X.tolist()),
        pl.Series(X.tolist(), dtype=pl.Array(pl.Float32, 2)),
        pd.Series(list(X)),
        pd.Series(X.tolist()),
        pd.DataFrame(X),
        pl.DataFrame(X),
        np.array([*map(tuple, X)], dtype=np.float16),
        list(X),
    ],
    ids=lambda vectors: f"{type(vectors).__module__}.{type(vectors).__name__}",
)
def test_vectors_of_many_kinds(vectors: Any) -> None:
    store = cfe.EvidenceStore(2)
    store.add(["a", "b", "c"], vectors)
    assert_array_equal(store.get().vectors, unit(X))


@pytest.mark.parametrize(
    ("vectors", "error", "message"),
    [
        (pa.array([[1.0, 2], None]), ValueError, "vectors .*got none in 1 of 2"),
        (pa.array([[1.0, 2], [1.0]]), ValueError, "vectors .*got 1, 2"),
        (pa.array([[1.0, None], [1, 1]]), ValueError, "vectors must hold numbers, got null"),
        (pa.array([[1.0, 2, 3]] * 2), ValueError, r"vectors .*got \(2, 3\)"),
        (pa.array([1.0, 2.0]), TypeError, "vectors .*got double"),
        (pa.array([["a", "b"]] * 2), TypeError, "vectors must be an array of real numbers"),
    ],
)
def test_bad_vectors(vectors: Any, error: type[Exception], message: str) -> None:
    store = cfe.EvidenceStore(2)
    with pytest.raises(error, match=message):
        store.add(["a", "b"], vectors)


@pytest.mark.parametrize("kind", ["to_arrow", "to_polars", "to_pandas"])
def test_round_trip(kind: str) -> None:
    store, rows = filled(60)
    table = getattr(store, kind)()
    again = cfe.EvidenceStore.from_arrow(table)
    found = again.get()
    assert (found.ids, found.labels, found.documents) == (rows.ids, rows.labels, rows.documents)
    assert_array_equal(found.vectors, store.get().vectors)
    for one, other in zip(found.metadata, rows.metadata, strict=True):
        assert one == {key: value for key, value in other.items() if value is not None}


def test_the_columns_of_a_table() -> None:
    store = cfe.EvidenceStore(2)
    metadata: list[dict[str, Any]] = [
        {"label": "mine", "n": 1},
        {"n": 2.5, "m": 1},
        {"m": "x", "big": 2**70},
    ]
    store.add(["a", "b", "c"], X, [3, None, 4], metadata, ["t", None, "u"])
    table = store.to_arrow()
    assert table.schema.field("vector").type == pa.list_(pa.float32(), 2)
    found = (table.schema.field("id").type, table.schema.field("label").type)
    assert found == (pa.string(), pa.int64())
    expected = ["id", "vector", "label", "document", "label (metadata)", "n", "m", "big"]
    assert table.column_names == expected
    assert table["label"].to_pylist() == [3, None, 4]
    assert table["n"].to_pylist() == [1, 2.5, None]
    assert table["m"].to_pylist() == [None, "1", '"x"']
    assert table["big"].to_pylist() == [None, None, str(2**70)]
    assert cfe.EvidenceStore(2).to_arrow().num_rows == 0
    assert store.to_pandas().shape == store.to_polars().shape == (3, 8)


@pytest.mark.parametrize("kind", ["to_arrow", "to_polars", "to_pandas"])
def test_labels_of_several_kinds_are_refused(kind: str) -> None:
    store = cfe.EvidenceStore(2)
    store.add(["a", "b", "c"], X, [True, 1, "1"])
    with pytest.raises(TypeError, match=r"labels must be of one kind .*True.* relabel"):
        getattr(store, kind)()
    store.relabel(["a", "b"], ["2", None])
    assert cfe.EvidenceStore.from_arrow(getattr(store, kind)()).get().labels == ["2", None, "1"]


@pytest.mark.parametrize(
    "values",
    [
        [date(2020, 1, 2), datetime(2020, 1, 2, 3)],
        [datetime(2020, 1, 2, 3), datetime(2020, 1, 2, 3, tzinfo=UTC)],
        [time(3, tzinfo=UTC), None],
        ["a", b"a"],
        [[date(2020, 1, 2)], [datetime(2020, 1, 2, 3)]],
        [{"x": "a"}, {"x": b"a"}],
        [Decimal("2.5"), 2.5, math.nan],
        [math.nan, 1, Decimal("2.5")],
    ],
)
def test_values_that_arrow_would_cut_are_json(values: list[Any]) -> None:
    store = cfe.EvidenceStore(2)
    store.add(
        ["a", "b", "c"][: len(values)],
        X[: len(values)],
        metadata=[{"x": value} for value in values],
    )
    written = store.to_arrow()["x"].to_pylist()
    assert all(
        value is None or isinstance(text, str) for text, value in zip(written, values, strict=True)
    )
    back = [None if text is None else json.loads(text, object_hook=from_json) for text in written]
    assert repr(back) == repr(values)


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"id": ["a"], "vector": [[1.0, 0.0]], "label": ["x"], "age": [3]}).slice(0, 0),
        pd.DataFrame({"id": [], "vector": [], "age": []}),
        pl.DataFrame({"id": ["a"], "vector": [[1.0, 0.0]]}).clear(),
    ],
)
def test_a_table_without_rows_changes_nothing(table: Any) -> None:
    store, _ = filled(9)
    before = store.ids
    store.upsert_table(table)
    assert store.ids == before


def test_durations_are_rounded_down_and_dates_are_those_of_python() -> None:
    table = pa.table(
        {"id": ["a", "b"], "vector": [[1.0, 0.0]] * 2, "x": pa.array([1999, -1], pa.duration("ns"))}
    )
    found = cfe.EvidenceStore.from_arrow(table).get().metadata
    assert found == [{"x": timedelta(microseconds=1)}, {"x": timedelta(microseconds=-1)}]
    late = table.set_column(2, "x", pa.array([10**7, 0], pa.date32()))
    with pytest.raises(ValueError, match="table must hold dates that Python has, of the years 1"):
        cfe.EvidenceStore.from_arrow(late)


def test_tables_of_users() -> None:
    frame = pd.DataFrame(
        {
            "text": ["x", "y"],
            "emb": [[3.0, 4.0], [1.0, 0.0]],
            "label": [1, None],
            "score": [0.5, np.nan],
        },
        index=pd.Index(["p", "q"], name="key"),
    )
    store = cfe.EvidenceStore.from_arrow(frame, id="key", vector="emb", document="text")
    rows = store.get()
    assert (rows.ids, rows.labels, rows.documents) == (["p", "q"], [1, None], ["x", "y"])
    assert rows.metadata == [{"score": 0.5}, {}]
    frame = pd.DataFrame(
        {"id": ["q", "r"], "vector": [[1, 1], [2, 1]], "category": pd.Categorical(["u", "v"])}
    )
    store.upsert_table(frame[::-1])
    assert store.get().ids == ["p", "r", "q"]
    assert store.get(["q"]).metadata == [{"category": "u"}]
    other = pl.DataFrame(
        {"id": ["s"], "vector": [[1, 0]], "at": [{"a": 1, "b": None}], "tags": [["x", "y"]]}
    )
    store.upsert_table(other)
    assert store.get(["s"]).metadata == [{"at": {"a": 1, "b": None}, "tags": ["x", "y"]}]
    table = pa.table({"id": ["a"], "vector": [[1.0, 2.0]]})
    assert cfe.EvidenceStore.from_arrow(table, index="EvidenceFlat").ids == ["a"]


@pytest.mark.parametrize(
    ("table", "error", "message"),
    [
        ({"id": ["a"]}, TypeError, "table must be one of pyarrow, pandas, polars or any other"),
        (pa.table({"id": ["a"]}), ValueError, "table must have a column 'vector', got id"),
        (pa.table({"id": [1], "vector": [[1.0, 2.0]]}), TypeError, "id 1 must be a text, got int"),
        (pa.table({"id": ["a", "a"], "vector": [[1.0, 2.0]] * 2}), ValueError, "ids must"),
        (pa.table({"id": ["a"], "vector": [[1.0, 2.0]], "label": [0.5]}), TypeError, "labels must"),
        (
            pa.Table.from_arrays(
                [pa.array(["a"])] * 2 + [pa.array([[1.0, 2]])], ["id", "id", "vector"]
            ),
            ValueError,
            "columns of different names, got 'id' twice",
        ),
    ],
)
def test_bad_tables(table: Any, error: type[Exception], message: str) -> None:
    store = cfe.EvidenceStore(2)
    with pytest.raises(error, match=message):
        store.upsert_table(table)
    with pytest.raises(error, match=message):
        cfe.EvidenceStore.from_arrow(table)
    with pytest.raises(ValueError, match="must have a column 'klass'"):
        store.upsert_table(pa.table({"id": ["a"], "vector": [[1.0, 2.0]]}), label="klass")
    assert len(store) == 0
