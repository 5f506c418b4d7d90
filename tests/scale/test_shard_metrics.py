"""Shards of an index with metric "ip" or "l2" give the results of the index, before and after new labels."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference import assert_same_arrays

import cfe_faiss as cfe
from cfe_faiss.scale import ShardedEvidenceIndex, write_shards


@pytest.mark.parametrize("metric", ["ip", "l2"])
def test_shards_equal_one_index(metric: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X, labels = (5 * rng.normal(size=(600, 7)) + 2).astype(np.float32), rng.integers(0, 3, 600)
    index: Any = cfe.IndexEvidenceIVF(7, 12, metric=metric)
    index.train(X)
    index.add_with_labels(X[:500], labels[:500])
    write_shards(index, tmp_path, 3)
    sharded = ShardedEvidenceIndex.open(tmp_path)
    assert sharded.metric == metric
    for new_labels in (labels[:500], labels[100:]):
        for one in (index, sharded):
            one.relabel(new_labels)
        for effort in ({"nprobe": 2}, {"exact": True}, {"recall": 0.9}):
            found = sharded.search_stored(k=6, **effort)
            assert_same_arrays(found, index.search_stored(k=6, **effort))
            found = sharded.search_evidence(X[:1], [1], 4, **effort)
            assert_same_arrays(found, index.search_evidence(X[:1], [1], 4, **effort))
        found = sharded.search_certified(k=3, nprobe=2)
        assert_same_arrays(found, index.search_certified(k=3, nprobe=2))
        found = sharded.range_search_evidence(X[:5], labels[:5], 20)
        assert_same_arrays(found, index.range_search_evidence(X[:5], labels[:5], 20))
        assert_same_arrays(sharded.search(X[:9], 5), index.search(X[:9], 5))
        pairs, wanted = cfe.global_evidence(sharded, 9), cfe.global_evidence(index, 9)
        expected = (wanted.source, wanted.target, wanted.similarity)
        assert_same_arrays((pairs.source, pairs.target, pairs.similarity), expected)
    again = ShardedEvidenceIndex.open(tmp_path)
    assert_same_arrays(again.search_stored(k=6, exact=True), index.search_stored(k=6, exact=True))
