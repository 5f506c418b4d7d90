"""Classes of a store are texts, integers or booleans, from every library, and stay so; filters have limits."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cfe_faiss as cfe

X = np.eye(6, 4, dtype=np.float32) + 0.5
IDS = list("abcdef")
labels_of_a_kind = st.one_of(
    *(
        st.lists(kind | st.none(), min_size=6, max_size=6)
        for kind in (
            st.booleans(),
            st.integers(0, 2**40),
            st.text(max_size=3),
            st.booleans() | st.integers(0, 1) | st.just("1"),
        )
    )
)


def store_of(labels: Any) -> Any:
    store = cfe.EvidenceStore(4)
    store.add(IDS, X, labels)
    return store


def typed(labels: list[Any]) -> list[tuple[type, Any]]:
    return [(type(one), one) for one in labels]


@given(labels_of_a_kind)
def test_classes_come_back_as_they_were(tmp_path_factory: Any, labels: list[Any]) -> None:
    store = store_of(labels)
    path = tmp_path_factory.mktemp("store")
    store.save(path)
    for one in (store, cfe.EvidenceStore.load(path), cfe.EvidenceStore.load(path, mmap=True)):
        assert typed(one.get().labels) == typed(labels)
        answer = typed(list(one.class_names))
        assert answer == list(dict.fromkeys(key for key in typed(labels) if key[1] is not None))
        for name in one.class_names:
            own = [
                i
                for i, label in zip(IDS, labels, strict=True)
                if type(label) is type(name) and label == name
            ]
            assert one.get(where={"$label": name}).ids == own
            assert one.count({"$label": {"$in": [name]}}) == len(own)
            assert one.count({"$label": {"$ne": name}}) == 6 - len(own)
            found = one.evidence(X[0], 6, label=name)
            assert not set(found.ids) & set(own)
            assert typed(found.labels) == [typed(labels)[IDS.index(i)] for i in found.ids]
    if len({type(label) for label in labels} - {type(None)}) < 2:
        assert typed(store.to_arrow()["label"].to_pylist()) == typed(labels)
        assert typed(cfe.EvidenceStore.from_arrow(store.to_arrow()).get().labels) == typed(labels)
    else:
        with pytest.raises(TypeError, match="labels must be of one kind in a table"):
            store.to_arrow()


def test_a_kind_that_the_store_does_not_have_is_refused() -> None:
    store = store_of([True, False] * 3)
    for wrong in (1, "True"):
        with pytest.raises(TypeError, match=f"labels must be booleans.* got {wrong!r}"):
            store.relabel({"a": wrong})
        with pytest.raises(ValueError, match=f"label must be a known class .* got {wrong!r}"):
            store.evidence("a", label=wrong)
    assert store.class_names == (True, False)


def test_earlier_versions_refuse_stores_with_booleans(tmp_path: Path) -> None:
    for name, labels in (("booleans", [True] * 6), ("mixed", [1, "1"] * 3)):
        store_of(labels).save(tmp_path / name)
        assert json.loads((tmp_path / name / "manifest.json").read_text())["version"] == 3


def test_an_empty_store_is_true() -> None:
    store = cfe.EvidenceStore(4)
    assert store
    assert len(store) == 0


@pytest.mark.parametrize(
    "form",
    [
        tuple,
        set,
        np.array,
        pd.Series,
        pd.Index,
        pl.Series,
        pa.array,
        lambda x: dict.fromkeys(x).keys(),
    ],
)
def test_ids_of_every_library(form: Any) -> None:
    store = store_of(["x", "y"] * 3)
    ids = form(["b", "d"])
    assert sorted(store.get(ids).ids) == ["b", "d"]
    found = [hits.ids for hits in store.evidence(ids, 1)]
    assert found == [store.evidence(i, 1).ids for i in store.get(ids).ids]
    assert sorted(store.search(X[0], 6, ids).ids) == ["b", "d"]
    assert store.count({"$id": ids}) == store.count({"$id": {"$in": ids}}) == 2
    assert set(store.evidence("a", 6, exclude=ids).ids) == {"f"}
    assert store.delete(ids) == 2


# --- filters ----------------------------------------------------------------------------------------------------------


def nested(depth: int, operator: str) -> dict[str, Any]:
    where: dict[str, Any] = {"lang": "de"}
    for _ in range(depth):
        where = {operator: where if operator == "$not" else [where]}
    return where


@pytest.mark.parametrize("operator", ["$not", "$and", "$or"])
def test_nested_filters_have_a_limit(operator: str) -> None:
    store = store_of(["x"] * 6)
    assert store.count(nested(20, operator)) == 0
    for depth in (100, 5_000, 100_000):
        for call in (
            store.count,
            store.delete,
            store.get,
            lambda where: store.search(X[0], where=where),
        ):
            with pytest.raises(ValueError, match="where must be nested 64 deep at most"):
                call(where=nested(depth, operator))  # type: ignore[operator]
    values: Any = []
    for _ in range(100_000):
        values = [values]
    with pytest.raises(ValueError, match="deep at most"):
        store.count({"lang": {"$eq": values}})
