"""Metadata of types that JSON lacks: dates, times, durations, decimals and bytes."""

from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import cfe_faiss as cfe
from cfe_faiss.store.arrow import _decode, _encode
from cfe_faiss.store.values import PREFIX, check_metadata

TOKYO = timezone(timedelta(hours=9))
VALUES: list[Any] = [
    datetime(2020, 1, 2, 3, 4, 5, 6),
    datetime(2020, 1, 2, 3, tzinfo=TOKYO),
    date(2020, 1, 2),
    time(3, 4, 5, 6),
    timedelta(days=-3, microseconds=7),
    Decimal("0.10"),
    b"\x00\xff",
    {"deep": [date(2021, 1, 1), {"text": "$arrow:date"}]},
]
TYPED = st.one_of(
    st.datetimes(timezones=st.none() | st.just(UTC) | st.just(TOKYO)),
    st.dates(),
    st.times(),
    st.timedeltas(),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.binary(),
)
# With keys and texts like the mark of typed values.
TEXTS = st.text() | st.sampled_from([PREFIX, f"{PREFIX}date"])
METADATA = st.dictionaries(
    TEXTS, TYPED | st.integers() | TEXTS | st.lists(TYPED | st.dictionaries(TEXTS, TYPED | TEXTS))
)


def stored(values: list[Any]) -> cfe.EvidenceStore:
    store = cfe.EvidenceStore(2)
    ids = [f"r{i}" for i in range(len(values))]
    store.add(ids, np.ones((len(values), 2)), metadata=[{"k": value} for value in values])
    return store


def test_files_keep_values_and_types(tmp_path: Path) -> None:
    store = stored(VALUES)
    store.save(tmp_path / "store")
    for found in (store, cfe.EvidenceStore.load(tmp_path / "store")):
        values = [one["k"] for one in found.get().metadata]
        assert values == VALUES
        assert list(map(type, values)) == list(map(type, VALUES))
    store.delete(where={"k": {"$exists": True}})
    store.add(["plain"], [[1, 0]], metadata=[{"text": "$arrow:date"}])
    store.save(tmp_path / "store")
    assert cfe.EvidenceStore.load(tmp_path / "store").get().metadata == [{"text": "$arrow:date"}]


def reserved_keys(value: Any) -> list[str]:
    """Return the keys in metadata, also nested ones, that begin like the mark of typed values."""
    if isinstance(value, list):
        return [key for item in value for key in reserved_keys(item)]
    if not isinstance(value, dict):
        return []
    nested = [key for item in value.values() for key in reserved_keys(item)]
    return [key for key in value if key.startswith(PREFIX)] + nested


@given(st.lists(METADATA, min_size=1, max_size=4))
@example([{PREFIX: 1, "text": PREFIX}])
@example([{"k": [{f"{PREFIX}date": "2020-01-02"}]}])
@example([{"k": {"$arrow": f'{{"{PREFIX}date": "2020-01-02"}}'}, f" {PREFIX}": 1}])
def test_json_keeps_every_value_or_names_a_reserved_key(metadata: list[dict[str, Any]]) -> None:
    ids = [str(i) for i in range(len(metadata))]
    if reserved := reserved_keys(metadata):
        with pytest.raises(ValueError, match=r"no key that begins with '\$arrow:', got") as caught:
            check_metadata(metadata, ids)
        assert any(str(caught.value).endswith(repr(key)) for key in reserved)
        return
    plain = check_metadata(metadata, ids)
    assert plain == metadata
    decoded = _decode(_encode(plain), ids)
    assert decoded == metadata
    assert list(map(repr, decoded)) == list(map(repr, _decode(_encode(decoded), ids)))


def test_filters_compare_them() -> None:
    days = [date(2020, 1, day) for day in (1, 2, 3)]
    moments = [datetime(2020, 1, day) for day in (1, 2, 3)]
    zoned = [moment.replace(tzinfo=UTC) for moment in moments]
    lengths = [timedelta(hours=hours) for hours in (1, 2, 3)]
    times = [time(hour) for hour in (1, 2, 3)]
    prices = [Decimal("0.1"), 0.5, 2]
    for values in (days, moments, zoned, lengths, times, prices, [b"a", b"b", b"c"]):
        store = stored(values)
        assert store.get(where={"k": values[1]}).ids == ["r1"]
        assert store.get(where={"k": {"$gt": values[0]}}).ids == ["r1", "r2"]
        assert store.get(where={"k": {"$lte": values[1]}}).ids == ["r0", "r1"]
        assert store.get(where={"k": {"$nin": [values[0], values[2]]}}).ids == ["r1"]
    store = stored([*moments, *zoned])
    assert store.count({"k": {"$gt": zoned[0]}}) == 2
    with pytest.raises(TypeError, match="compares with dates, but the key holds datetimes"):
        store.count({"k": days[0]})
    assert stored([Decimal("0.1")]).count({"k": 0.1}) == 0  # no float is one tenth
    assert stored([Decimal("0.5")]).count({"k": 0.5}) == 1
    assert stored([Decimal("0.1"), 0.3]).count({"k": {"$lt": 10**30}}) == 2


def test_tables_hold_any_values_of_arrow() -> None:
    columns = {
        "day": pa.array([date(2020, 1, 2)]),
        "moment": pa.array([datetime(2020, 1, 2, 3)], pa.timestamp("ms")),
        "nanoseconds": pa.array([1577934245000000007], pa.timestamp("ns")),
        "zoned": pa.array([datetime(2020, 1, 2, tzinfo=UTC)], pa.timestamp("us", "Asia/Tokyo")),
        "clock": pa.array([time(3)]),
        "length": pa.array([timedelta(seconds=3)], pa.duration("ns")),
        "price": pa.array([Decimal("1.50")], pa.decimal128(9, 2)),
        "raw": pa.array([b"x"], pa.binary()),
        "pair": pa.array([{"a": date(2020, 1, 2)}]),
        "map": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
        "interval": pa.array([pa.MonthDayNano((1, 2, 3))]),
        "none": pa.array([None], pa.timestamp("us")),
    }
    table = pa.table({"id": ["a"], "vector": [[1.0, 0.0]]} | columns)
    store = cfe.EvidenceStore.from_arrow(table)
    (found,) = store.get().metadata
    assert found["nanoseconds"] == datetime(2020, 1, 2, 3, 4, 5)
    assert found["zoned"] == datetime(2020, 1, 2, tzinfo=UTC)
    assert (found["price"], found["raw"], found["map"]) == (Decimal("1.50"), b"x", [["a", 1]])
    assert (found["clock"], found["length"], found["interval"]) == (
        time(3),
        timedelta(seconds=3),
        [1, 2, 3],
    )
    back = store.to_arrow()
    assert (str(back["day"].type), str(back["price"].type), str(back["raw"].type)) == (
        "date32[day]",
        "decimal128(3, 2)",
        "binary",
    )
    assert (
        back.select(["day", "moment", "price", "raw"]).to_pylist()
        == table.select(["day", "moment", "price", "raw"]).to_pylist()
    )
    again = cfe.EvidenceStore.from_arrow(back.drop_columns(["label", "document"]))
    assert again.get().metadata[0]["moment"] == found["moment"]


def test_values_of_other_libraries() -> None:
    frame = pd.DataFrame(
        {
            "id": ["a", "b"],
            "vector": [[1.0, 0.0]] * 2,
            "day": [pd.Timestamp("2020-01-02 03:00"), pd.NaT],
        }
    )
    assert cfe.EvidenceStore.from_arrow(frame).get().metadata == [
        {"day": datetime(2020, 1, 2, 3)},
        {},
    ]
    polars = pl.DataFrame(
        {"id": ["a"], "vector": [[1.0, 0.0]], "day": [date(2020, 1, 2)], "x": [timedelta(1)]}
    )
    assert cfe.EvidenceStore.from_arrow(polars).get().metadata == [
        {"day": date(2020, 1, 2), "x": timedelta(1)}
    ]
    given = {
        "a": pd.Timestamp("2020-01-02"),
        "b": pd.Timedelta("1s"),
        "c": pd.NaT,
        "d": np.datetime64("2020-01-02T03", "ns"),
        "e": np.timedelta64(5, "ms"),
        "f": np.datetime64("NaT"),
        "g": UUID(int=1),
        "h": bytearray(b"x"),
    }
    (found,) = check_metadata([given], ["a"])
    assert found == {
        "a": datetime(2020, 1, 2),
        "b": timedelta(seconds=1),
        "c": None,
        "d": datetime(2020, 1, 2, 3),
        "e": timedelta(milliseconds=5),
        "f": None,
        "g": "00000000-0000-0000-0000-000000000001",
        "h": b"x",
    }
    assert {type(one) for one in found.values()} == {datetime, timedelta, str, bytes, type(None)}


def test_values_without_a_common_type_are_written_as_json() -> None:
    table = stored([date(2020, 1, 2), "x"]).to_arrow()
    assert table["k"].to_pylist() == ['{"$arrow:date": "2020-01-02"}', '"x"']


def test_nan_and_infinity_are_kept_and_found(tmp_path: Path) -> None:
    nan, inf = float("nan"), float("inf")
    values = [
        1.0,
        nan,
        inf,
        -inf,
        np.float32("nan"),
        [nan, {"a": -inf}],
        None,
        "NaN",
        Decimal("2.5"),
    ]
    store = cfe.EvidenceStore(2)
    store.add(
        [f"r{i}" for i in range(9)], np.ones((9, 2)), [0] * 9, [{"k": value} for value in values]
    )
    store.save(tmp_path / "store")
    for one in (store, cfe.EvidenceStore.load(tmp_path / "store")):
        assert repr(one.get().metadata) == repr(store.get().metadata)
        assert [repr(found["k"]) for found in one.get().metadata[1:6]] == [
            "nan",
            "inf",
            "-inf",
            "nan",
            "[nan, {'a': -inf}]",
        ]
        assert one.get(where={"k": nan}).ids == ["r1", "r4"]
        assert one.get(where={"k": {"$nin": [nan, inf, None]}}).ids == [
            "r0",
            "r3",
            "r5",
            "r7",
            "r8",
        ]
        assert one.get(where={"k": {"$gt": 1}}).ids == ["r2", "r8"]
        assert one.get(where={"k": {"$lte": Decimal("2.5")}}).ids == ["r0", "r3", "r8"]
        assert one.get(where={"k": {"$lte": nan}}).ids == []
        assert one.get(where={"k": {"$contains": nan}}).ids == ["r5"]
    store.delete(["r1", "r2", "r3", "r4", "r5", "r8"])
    store.save(tmp_path / "store")  # the text "NaN" is plain


def test_tables_keep_nan_apart_from_null() -> None:
    store = cfe.EvidenceStore.from_arrow(
        pa.table(
            {
                "id": ["a", "b", "c"],
                "vector": [[1.0, 0.0]] * 3,
                "x": [1.0, float("nan"), None],
                "list": [[float("inf"), None], [], None],
            }
        )
    )
    assert (
        repr(store.get().metadata)
        == "[{'x': 1.0, 'list': [inf, None]}, {'x': nan, 'list': []}, {}]"
    )
    assert repr(store.to_arrow()["x"].to_pylist()) == "[1.0, nan, None]"


def test_arrays_and_scalars_of_numpy_arrow_and_pandas_are_values() -> None:
    given = [
        np.arange(2),
        pa.scalar(3),
        pa.array([1, None]),
        pd.NA,
        memoryview(b"x"),
        np.array(["2020-01-02"], "M8[D]"),
    ]
    found = stored([*given, pa.scalar(datetime(2020, 1, 2), pa.timestamp("ns"))]).get().metadata
    expected = [[0, 1], 3, [1, None], None, b"x", [datetime(2020, 1, 2)], datetime(2020, 1, 2)]
    assert [one["k"] for one in found] == expected
