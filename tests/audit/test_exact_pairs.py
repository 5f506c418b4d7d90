from itertools import combinations

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import with_rows

import cfe_faiss as cfe
from cfe_faiss import audit
from cfe_faiss.audit.intervals import wilson

VALUES = st.sampled_from(["a", "b", "c", None])


def only_in(features, names, predicted):
    """Return the pairs of rows whose vectors are all equal."""
    X = np.ones((len(predicted), 1))
    return audit.only_in(cfe.EvidenceFinder.from_vectors(X, predicted, features=features), names)


def brute(table, names, predicted):
    """Return the different pairs, and how many pairs, equal pairs and equal pairs in different classes there are."""
    n = len(predicted)
    whole = [i for i in range(n) if all(column[i] is not None for column in table.values())]
    different, pairs, equal, equal_different = set(), 0, 0, 0
    for i, j in combinations(whole, 2):
        differs = {name for name, column in table.items() if column[i] != column[j]}
        if not differs:
            equal += 1
            equal_different += predicted[i] != predicted[j]
        elif differs <= set(names):
            pairs += 1
            if predicted[i] != predicted[j]:
                different.add((i, j))
    return different, pairs, equal, equal_different


@given(data=st.data(), n=st.integers(1, 40), d=st.integers(1, 4))
def test_counts_and_pairs_equal_brute_force(data, n, d):
    table = {f"a{j}": data.draw(st.lists(VALUES, min_size=n, max_size=n)) for j in range(d)}
    predicted = data.draw(st.lists(st.integers(0, 2), min_size=n, max_size=n))
    names = data.draw(st.lists(st.sampled_from(sorted(table)), min_size=1, max_size=d, unique=True))
    different, pairs, equal, equal_different = brute(table, names, predicted)
    frame = pl.DataFrame(table, schema=dict.fromkeys(table, pl.String))
    found = only_in(frame, names, predicted)
    assert (found.pairs, found.different) == (pairs, len(different))
    assert found.table[["pairs", "different"]].values.tolist()[1] == [equal, equal_different]
    assert found.nodes + found.unknown == n
    listed = [
        pair for source, target in found.blocks() for pair in zip(source, target, strict=True)
    ]
    assert len(listed) == len(different)
    assert set(listed) == different
    first = found.most_similar(5)
    assert list(zip(first.source, first.target, strict=True)) == sorted(different)[:5]
    assert first.total == len(different)


def test_most_similar_pairs_of_a_finder_in_float64():
    rng = np.random.default_rng(1)
    n = 80
    vectors = rng.standard_normal((n, 6)).astype(np.float32)
    labels = rng.integers(0, 2, n).astype(np.int32)
    index = cfe.IndexEvidenceIDMap2(6)
    nodes = np.arange(0, n, 2)
    index.add_with_labels(vectors[nodes], labels[nodes], ids=nodes)
    frame = pd.DataFrame({"sex": rng.choice(["f", "m"], n), "job": rng.integers(0, 3, n)})
    finder = cfe.EvidenceFinder(
        vectors, labels, index, attributes=cfe.attributes.table.as_attributes(frame)
    )
    found = audit.only_in(finder, ["sex"])
    assert found.nodes == len(nodes)
    every = np.concatenate([np.stack(block, axis=1) for block in found.blocks()])
    units = vectors.astype(np.float64)
    units /= np.linalg.norm(units, axis=1, keepdims=True)
    ks = (units[every[:, 0]] * units[every[:, 1]]).sum(axis=1)
    best = found.most_similar(7)
    np.testing.assert_allclose(best.table["similarity"], np.sort(ks)[::-1][:7], atol=1e-12)
    assert (every % 2 == 0).all()
    table = best.to_frame()
    assert (table["source sex"] != table["target sex"]).all()
    assert (table["source_label"] != table["target_label"]).all()
    assert repr(best) == f"OnlyInPairs(7 of {found.different:,} pairs)"
    assert len(found.most_similar(10**6)) == found.different


def test_the_most_similar_do_not_depend_on_the_block(monkeypatch):
    rng = np.random.default_rng(4)
    n = 60
    vectors = rng.integers(-1, 2, (n, 3)).astype(np.float32)  # many equal similarities
    labels = rng.integers(0, 3, n).astype(np.int32)
    index = with_rows(cfe.IndexEvidenceIDMap2(3), vectors, labels)
    known = cfe.attributes.table.as_attributes(
        {"sex": rng.integers(0, 2, n), "job": rng.integers(0, 2, n)}
    )
    found = audit.only_in(cfe.EvidenceFinder(vectors, labels, index, attributes=known), ["sex"])
    every = found.most_similar(10**6)
    order = np.lexsort((every.target, every.source, -every.table["similarity"]))
    assert (order == np.arange(len(every))).all()
    monkeypatch.setattr("cfe_faiss.audit.attribute_pairs._BLOCK", 24)
    few = found.most_similar(17)
    for one, other in ((few.source, every.source), (few.target, every.target)):
        np.testing.assert_array_equal(one, other[:17])
    pd.testing.assert_frame_equal(few.table, every.table[:17])


def test_a_set_of_nodes_is_one_case_for_the_interval():
    job = np.repeat(np.arange(6), 4)
    sex = np.tile([0, 0, 1, 1], 6)
    found = only_in({"sex": sex, "job": job}, ["sex"], np.where(job < 3, 0, sex))
    assert (found.pairs, found.different, found.share) == (24, 12, 0.5)
    naive_low, naive_high = wilson([12], [24])
    assert found.low < naive_low[0] < naive_high[0] < found.high
    assert found.table["share"].tolist() == [0.5, 0]
    assert found.table["groups"].tolist() == [6, 12]
    assert found.table["nodes"].tolist() == [24, 24]


def test_attributes_of_many_values_are_compared_exactly():
    rng = np.random.default_rng(2)
    columns = rng.integers(0, 10**6, (12, 200))
    columns[:, 100:] = columns[:, :100]
    table = dict(zip("abcdefghijkl", columns, strict=True)) | {"sex": np.arange(200) // 100}
    found = only_in(table, ["sex"], np.arange(200) % 3)
    equal = found.table.iloc[1]
    expected = (100, 100, 100, 0)
    assert (found.pairs, found.different, found.table["groups"][0], equal["pairs"]) == expected
    source, target = next(found.blocks())
    assert sorted(zip(source, target, strict=True)) == [(i, i + 100) for i in range(100)]


def test_what_is_refused():
    table = {"sex": [0, 1], "job": [0, 0]}
    with pytest.raises(ValueError, match="names must name attributes"):
        only_in(table, ["age"], [0, 1])
    with pytest.raises(TypeError, match="names must be a sequence of names, got 'sex'"):
        only_in(table, "sex", [0, 1])
    with pytest.raises(ValueError, match="one attribute at least"):
        only_in(table, [], [0, 1])
    with pytest.raises(ValueError, match="limit must be at least 1"):
        only_in(table, ["sex"], [0, 1]).most_similar(0)
    index = with_rows(cfe.IndexEvidenceIDMap2(2), np.eye(2, dtype=np.float32), [0, 1])
    finder = cfe.EvidenceFinder(np.eye(2, dtype=np.float32), np.array([0, 1], np.int32), index)
    with pytest.raises(ValueError, match="finder must know attributes"):
        audit.only_in(finder, ["sex"])


def test_without_pairs_there_is_no_share():
    found = only_in({"sex": ["f", None], "job": ["a", "a"]}, ["sex"], [0, 1])
    assert (found.pairs, found.nodes, found.unknown) == (0, 1, 1)
    assert np.isnan([found.share, found.low, found.high]).all()
    assert len(found.most_similar()) == 0
    assert list(found.blocks()) == []


def test_rows_without_a_predicted_class_form_no_pairs():
    index = with_rows(cfe.IndexEvidenceIDMap2(1), np.ones((3, 1)), [0, 1, 1], ids=[1, 2, 3])
    index.add_with_ids(np.ones((1, 1), np.float32), np.array([0]))
    finder = cfe.EvidenceFinder.from_index(index, features={"sex": ["f", "f", "m", "f"]})
    found = audit.only_in(finder, ["sex"])
    assert (found.nodes, found.pairs, found.different) == (3, 2, 1)
    assert found.table["different"].tolist() == [1, 1]
    assert "2 predicted classes" in repr(finder)
    with pytest.raises(ValueError, match=r"id .*got 0 without"):
        finder.case(0)
