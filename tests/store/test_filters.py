import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stores import filled

import cfe_faiss as cfe

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 3),
    st.sampled_from([0.5, 1.0, -0.0]),
    st.sampled_from("ab"),
)
VALUES = st.one_of(
    SCALARS,
    st.lists(SCALARS, max_size=2),
    st.dictionaries(st.sampled_from("xy"), SCALARS, max_size=2),
)
METADATA = st.lists(
    st.dictionaries(st.sampled_from(["k", "m", "n.o"]), VALUES, max_size=3), min_size=1, max_size=8
)
KEYS = st.sampled_from(["k", "m", "k.x", "n.o"])
MISSING = object()


def store_of(metadata: list[dict[str, Any]]) -> cfe.EvidenceStore:
    store = cfe.EvidenceStore(2)
    store.add(
        [str(i) for i in range(len(metadata))], np.ones((len(metadata), 2)), metadata=metadata
    )
    return store


def value_at(one: Any, key: str) -> Any:
    if key in one:
        return one[key]
    first, _, rest = key.partition(".")
    return one[first].get(rest, MISSING) if rest and isinstance(one.get(first), dict) else MISSING


def equal(one: Any, two: Any) -> bool:
    """Compare as JSON does: True is not 1, whatever is inside of what."""
    if isinstance(one, bool) != isinstance(two, bool):
        return False
    if isinstance(one, list) and isinstance(two, list):
        return len(one) == len(two) and all(map(equal, one, two))
    if isinstance(one, dict) and isinstance(two, dict):
        return one.keys() == two.keys() and all(equal(one[key], two[key]) for key in one)
    return bool(one == two)


def is_equal(held: Any, value: Any) -> bool:
    return value is None if held is MISSING else equal(held, value)


@settings(deadline=None)
@given(METADATA, KEYS, st.lists(VALUES, min_size=1, max_size=3))
def test_equality_and_membership(
    metadata: list[dict[str, Any]], key: str, values: list[Any]
) -> None:
    store = store_of(metadata)
    held = [value_at(one, key) for one in metadata]

    def found(condition: dict[str, Any]) -> list[str] | None:
        try:
            return store.get(where={key: condition}).ids
        except TypeError:  # the values of the key are of other kinds
            return None

    def expected(*wanted: Any) -> list[str]:
        return [
            str(i) for i, one in enumerate(held) if any(is_equal(one, value) for value in wanted)
        ]

    everything = set(store.ids)
    equals, differs = found({"$eq": values[0]}), found({"$ne": values[0]})
    among, outside = found({"$in": values}), found({"$nin": values})
    if equals is None or differs is None:
        assert expected(values[0]) == []
    else:
        assert equals == expected(values[0])
        assert set(differs) == everything - set(equals)
    if among is None or outside is None:
        assert expected(*(value for value in values if value is not None)) == []
    else:
        assert among == expected(*values)
        assert set(outside) == everything - set(among)
    exists = found({"$exists": True})
    assert exists == [str(i) for i, one in enumerate(held) if one is not MISSING]
    assert set(found({"$exists": False}) or []) == everything - set(exists)


NUMBERS = st.one_of(
    st.integers(-3, 3),
    st.floats(-3, 3),
    st.integers(2**53 - 2, 2**53 + 2),
    st.just(1e300),
    st.integers(10**30, 10**30 + 2),
)
ORDERINGS: dict[str, Any] = {
    "$gt": lambda held, bound: held > bound,
    "$gte": lambda held, bound: held >= bound,
    "$lt": lambda held, bound: held < bound,
    "$lte": lambda held, bound: held <= bound,
}


@settings(deadline=None)
@given(
    st.lists(st.one_of(NUMBERS, st.text("aäb", max_size=2), st.none()), min_size=1),
    NUMBERS,
    st.sampled_from(sorted(ORDERINGS)),
)
def test_orderings_are_exact(values: list[Any], bound: float, operator: str) -> None:
    store = store_of([{"k": value} for value in values])
    numbers = [i for i, value in enumerate(values) if isinstance(value, int | float)]
    if not numbers and any(isinstance(value, str) for value in values):
        with pytest.raises(TypeError, match="compares with numbers, but the key holds texts"):
            store.count({"k": {operator: bound}})
    else:
        found = store.get(where={"k": {operator: bound}}).ids
        assert found == [str(i) for i in numbers if ORDERINGS[operator](values[i], bound)]
    texts = [i for i, value in enumerate(values) if isinstance(value, str)]
    if texts:
        answer = store.get(where={"k": {operator: "ab"}}).ids
        assert answer == [str(i) for i in texts if ORDERINGS[operator](values[i], "ab")]


def test_conditions_are_combined() -> None:
    store, rows = filled(200)

    def found(where: Any) -> list[str]:
        return store.get(where=where).ids

    def expected(holds: Any) -> list[str]:
        return [
            one for one, metadata in zip(rows.ids, rows.metadata, strict=True) if holds(metadata)
        ]

    answer = found({"lang": "de", "year": {"$gte": 2000, "$lt": 2010}})
    assert answer == expected(lambda m: m["lang"] == "de" and 2000 <= m["year"] < 2010)
    answer = found({"$or": [{"lang": "de"}, {"$not": {"year": {"$gt": 1995}}}]})
    assert answer == expected(lambda m: m["lang"] == "de" or not m["year"] > 1995)
    assert found(
        {"$and": [{"lang": ["de", "fr"]}, {"draft": True}], "year": {"$ne": 2001}}
    ) == expected(
        lambda m: m["lang"] in ("de", "fr") and m.get("draft") is True and m["year"] != 2001
    )
    assert found({"tags": {"$contains": "t1"}}) == expected(lambda m: "t1" in m.get("tags", []))
    assert found({"lang": {"$contains": "e"}}) == expected(lambda m: "e" in m["lang"])
    answer = found({"author.name": "A1"})
    assert answer == expected(lambda m: m.get("author", {}).get("name") == "A1")
    answer = found({"author": {"$eq": {"name": "A1"}}})
    assert answer == expected(lambda m: m.get("author") == {"name": "A1"})
    assert found({"note": None}) == rows.ids
    assert found({"note": {"$exists": True}}) == expected(lambda m: "note" in m)
    assert found({"$id": {"$in": ["doc-7", "doc-3", "nobody"]}}) == ["doc-3", "doc-7"]
    wanted = [f"doc-{i}" for i in (19, *range(190, 200)) if i % 4]
    assert found({"$document": {"$contains": "text 19"}}) == wanted
    assert found({"$document": None}) == rows.ids[::4]
    assert found({"$label": ["ham", None]}) == [
        one for one, label in zip(rows.ids, rows.labels, strict=True) if label in ("ham", None)
    ]
    assert found({"$and": [{}, {"lang": "de"}]}) == found({"lang": "de"})
    assert found({}) == found(None) == rows.ids
    assert found({"nothing": "x"}) == []
    assert store.count({"lang": "de"}) == len(found({"lang": "de"}))


def test_masks_ids_and_functions() -> None:
    store, rows = filled(60)
    mask = np.arange(60) % 7 == 2
    chosen = [one for one, wanted in zip(rows.ids, mask, strict=True) if wanted]
    for where in (mask, mask.tolist(), pd.Series(mask), pl.Series(mask), pa.array(mask)):
        assert store.get(where=where).ids == chosen
    for ids in (
        chosen[::-1],
        tuple(chosen),
        set(chosen),
        np.array(chosen),
        pd.Series(chosen),
        pa.array(chosen),
    ):
        assert store.get(where=ids).ids == chosen
    assert store.get(where=["nobody", "doc-5"]).ids == ["doc-5"]
    assert store.get(where=[]).ids == []
    found = store.get(where=lambda metadata: metadata.pop("lang") == "de").ids
    assert found == store.get(where={"lang": "de"}).ids
    answer = store.search(rows.vectors[0], 60, mask).ids
    assert answer == [one for one in store.search(rows.vectors[0], 60).ids if one in chosen]


def test_columns_follow_changes() -> None:
    store, _ = filled(200)
    wheres: list[Any] = [
        {"lang": "de"},
        {"year": {"$gte": 2005}},
        {"tags": {"$contains": "news"}},
        {"$label": "ham"},
    ]
    wheres += [
        {"author.name": {"$exists": True}},
        {"$id": "doc-3"},
        {"$document": {"$contains": "7"}},
        {"new": "x"},
    ]

    def compare() -> None:
        other = cfe.EvidenceStore(8)
        rows = store.get()
        other.add(rows.ids, rows.vectors, rows.labels, rows.metadata, rows.documents)
        for where in wheres:
            assert store.get(where=where).ids == other.get(where=where).ids

    compare()
    store.upsert(
        ["doc-3", "x"],
        np.ones((2, 8)),
        ["ham", "other"],
        [{"new": "x", "lang": "de"}, {"year": 2030}],
    )
    compare()
    store.delete(where={"lang": "fr"})
    compare()
    store.relabel({"x": "ham"})
    compare()
    store.update_metadata(["doc-3", "x"], [{"lang": "fr"}, {"author": {"name": "A"}, "year": None}])
    compare()
    store.delete(store.ids[20:])  # more rows than are left
    compare()
    for i in range(30):
        store.upsert(
            [f"n{i}"], np.ones((1, 8)), None, [{"lang": f"l{i}", "year": i, "new": i % 2 == 0}]
        )
    store.delete([f"n{i}" for i in range(0, 30, 2)])
    wheres[-1] = {"new": False}
    compare()


def test_values_that_are_gone_do_not_count() -> None:
    store = store_of([{"k": 1}, {"k": "a"}])
    assert store.count({"k": "a"}) == 1
    store.delete(["1"])
    with pytest.raises(TypeError, match="compares with texts, but the key holds numbers"):
        store.count({"k": "a"})
    for i in range(1500):
        store.upsert(["0"], np.ones((1, 2)), None, [{"k": i}])
    assert store.count({"k": 1499}) == 1
    assert len(store._contents.table.columns["k"].dictionary.values) < 1000


BAD: list[tuple[Any, type[Exception], str]] = [
    ({"lang": {"$like": "d"}}, ValueError, r"unknown operator '\$like' of 'lang'; known are \$eq"),
    ({"lang": {"name": "d"}}, ValueError, "unknown operator 'name' of 'lang'"),
    ({"lang": {3: "d"}}, ValueError, "unknown operator 3 of 'lang'"),
    ({"lang": {}}, ValueError, "'lang' must have an operator"),
    ({"$nor": []}, ValueError, r"unknown operator '\$nor'.*\$and, \$or, \$not, \$id, \$label"),
    ({"$and": {}}, TypeError, r"\$and must have a list of conditions"),
    ({"$or": []}, ValueError, r"\$or must have one condition at least"),
    ({"$or": [3]}, TypeError, r"\$or must have conditions as mappings, got 3"),
    ({"$not": [{"lang": "de"}]}, TypeError, r"\$not must have conditions as mappings"),
    ({3: "de"}, TypeError, "where must have texts as keys, got 3"),
    ({"year": "2001"}, TypeError, r"'year' \$eq compares with texts, but the key holds numbers"),
    ({"year": ["2001", "2002"]}, TypeError, r"'year' \$in compares with texts, but the key holds"),
    ({"year": {"$gte": "2001"}}, TypeError, r"'year' \$gte compares with texts, but the key holds"),
    ({"lang": {"$lt": 3}}, TypeError, r"'lang' \$lt compares with numbers, but the key holds"),
    ({"lang": {"$lt": None}}, TypeError, r"'lang' \$lt must compare with a number, text, .* got"),
    ({"lang": {"$lt": True}}, TypeError, r"\$lt must compare with a number, text, .* got True"),
    ({"draft": 1}, TypeError, "compares with numbers, but the key holds True and False"),
    ({"tags": "news"}, TypeError, r"compares with texts, but the key holds lists; use \$contains"),
    ({"year": {"$contains": "1"}}, TypeError, "compares with texts or lists, but the key holds"),
    ({"lang": {"$in": "de"}}, TypeError, r"'lang' \$in must have a list of values, got 'de'"),
    ({"lang": {"$exists": 1}}, TypeError, r"'lang' \$exists must be True or False, got 1"),
    ({"year": pd.Timestamp("2001-01-01")}, TypeError, "compares with datetimes, but the key holds"),
    ({"$label": 3}, TypeError, r"'\$label' \$eq compares with numbers, but the key holds texts"),
    (np.ones(59, bool), ValueError, r"where .*got \(59,\)"),
    ([1, 2], TypeError, "where must hold ids .texts. or, as a mask, booleans, got 1"),
    (np.ones((60, 1), bool), ValueError, "as a mask"),
    ([True] * 61, ValueError, r"where .*got \(61,\)"),
    (np.ones(60, np.uint8), TypeError, "where must"),
    (pa.array([True, None] * 30), TypeError, "where must"),
    (pd.array([True, pd.NA] * 30, dtype="boolean"), TypeError, "where must"),
    (pl.Series([True, None] * 30), TypeError, "where must"),
    ([["doc-1"]], TypeError, "where must hold ids"),
    ("doc-1", TypeError, "where .*got 'doc-1'"),
    (3, TypeError, "where must be a mapping of conditions"),
]


@pytest.mark.parametrize(("where", "error", "message"), BAD)
def test_bad_filters(where: Any, error: type[Exception], message: str) -> None:
    store, rows = filled(60)
    for call in (
        lambda: store.search(rows.vectors[0], 3, where),
        lambda: store.evidence(rows.vectors[0], 3, "ham", where),
        lambda: store.get(where=where),
        lambda: store.delete(where=where),
    ):
        with pytest.raises(error, match=message):
            call()
    assert len(store) == 60


def test_the_memory_of_a_store_does_not_grow_with_the_keys_that_filters_name() -> None:
    n = 5000
    store = store_of([{"year": row % 5} for row in range(n)])
    vector = np.ones((1, 2))
    store.count({"year": 3})
    store.upsert(["0"], vector)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for key in range(300):
        assert store.count({f"unknown {key}": None}) == n
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 40 * n * 4  # forty columns of four bytes a row, of three hundred
    store.upsert(["1"], vector)
    assert store.count({"year": 3}) == n // 5  # as before, though it is not kept any more
    assert len(store._contents.table.columns) <= 16  # each takes its time in every change


def test_filters_that_threads_use_side_by_side_are_right() -> None:
    store = store_of([{str(key): row % (key + 2) for key in range(40)} for row in range(400)])

    def count(key: int) -> bool:
        return all(
            store.count({str(other % 40): 0}) == -(-400 // (other % 40 + 2))
            for other in range(key, key + 40)
        )

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(count, range(40)))


SEVERAL_KINDS = ["a", 1, None, ..., ["x"], {"k": 1}, "a", 1.0, True]


def test_a_predicate_is_asked_once_for_each_value_in_use() -> None:
    store = cfe.EvidenceStore(2)
    ids = [str(i) for i in range(len(SEVERAL_KINDS))]
    store.add(
        ids,
        np.ones((len(SEVERAL_KINDS), 2)),
        metadata=[{} if one is ... else {"m": one} for one in SEVERAL_KINDS],
    )
    asked: list[Any] = []

    def predicate(value: Any) -> bool:
        asked.append(value)
        return value in ("a", None)

    assert store.get(where={"m": predicate}).ids == ["0", "2", "3", "6"]
    assert sorted(map(repr, asked)) == ["'a'", "1", "None", "None", "True", "['x']", "{'k': 1}"]

    asked.clear()
    store.delete(["0", "6"])
    assert store.get(where={"m": predicate}).ids == ["2", "3"]
    assert "a" not in asked  # no row has it any more


def test_functions_of_a_value_as_conditions_of_a_store() -> None:
    store = cfe.EvidenceStore(2)
    metadata = [{"year": 2020, "from": {"name": "A"}}, {"year": 2021}, {"from": {"name": "B"}}]
    store.add(["a", "b", "c"], np.eye(3, 2) + 1, ["x", "y", None], metadata, ["text", None, "more"])
    found = {
        "b": {"year": lambda year: year == 2021},
        "bc": {"$not": {"year": lambda year: year == 2020}},
        "c": {"from.name": lambda name: name == "B", "year": lambda year: year is None},
        "ab": {"$label": lambda label: label is not None},
        "ac": {
            "$or": [{"$document": lambda text: text == "text"}, {"$id": lambda id_: id_ == "c"}]
        },
    }
    for ids, where in found.items():
        assert store.get(where=where).ids == list(ids)

    before = store.get().metadata
    assert store.get(where={"from": lambda value: (value or {}).pop("name", None) == "A"}).ids == [
        "a"
    ]
    assert store.get().metadata == before

    def fails(year: Any) -> bool:
        raise KeyError(year)

    for ask in (
        store.count,
        lambda where: store.delete(where=where),
        lambda where: store.search([1, 1], 3, where),
    ):
        with pytest.raises(KeyError):
            ask({"year": fails})
    assert len(store) == 3
