"""The most similar pairs of a sharded index in tasks: those of one index in memory, to the last bit."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from numpy.typing import NDArray

import cfe_faiss as cfe
from cfe_faiss.pairs import Pairs
from cfe_faiss.scale import pair_stages, tables, write_shards
from cfe_faiss.scale.index_stages import INDEX
from cfe_faiss.scale.inputs import Input
from cfe_faiss.scale.work import Settings, Work
from cfe_faiss.search import exact, join

pq = pytest.importorskip("pyarrow.parquet")

K = 3  # evidence of a node that the files hold


def index_of(X: NDArray[np.float32], labels: NDArray[np.int64], nlist: int = 6) -> cfe.IndexEvidenceIVF:
    index = cfe.IndexEvidenceIVF(X.shape[1], min(nlist, len(X)))
    index.train(X)
    ids = np.random.default_rng(0).permutation(3 * len(X))[: len(X)]
    index.add_with_ids(X, ids)
    index.relabel(labels, ids)
    return index


def work_in(folder: Path, index: cfe.IndexEvidenceIVF, shards: int, **changed: Any) -> Work:
    """Return a folder with what the stages of pairs read: the shards and the evidence of all nodes."""
    write_shards(index, folder / INDEX, shards)
    given = Settings(index.ntotal, index.d, 0, 0.5, False, K, None, index.nlist, shards, index.ntotal, 1000, None)
    work = Work(folder, replace(given, **changed), dict[str, Input](), 1)
    ids = np.sort(index.ids())
    D, I = index.search_members(ids, k=work.settings.k, nprobe=1)
    for number, rows in enumerate(np.array_split(np.arange(len(ids)), shards)):
        path = work.new(work.path("evidence", number, "parquet"))
        tables.write(path, tables.evidence_schema(), tables.evidence_batches(ids[rows], D[rows], I[rows]))
    return work


def run(work: Work, shards: int) -> dict[str, int]:
    """Do all tasks, and return how many each stage has."""
    stages = pair_stages.stages(work.settings, shards)
    for stage in stages:
        for block in reversed(range(stage.blocks)):
            stage.run(work, block)
    return {stage.name: stage.blocks for stage in stages}


def found_in(paths: list[Path]) -> Pairs:
    parts = [[column.to_numpy() for column in pq.read_table(path).columns] for path in paths]
    return Pairs(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def assert_equal(found: Pairs, expected: Pairs) -> None:
    assert_array_equal(found.source, expected.source)
    assert_array_equal(found.target, expected.target)
    assert_array_equal(found.similarity.view(np.int32), expected.similarity.view(np.int32))


def in_order(pairs: Pairs) -> Pairs:
    order = np.lexsort((pairs.target, pairs.source, -pairs.similarity))
    return Pairs(pairs.source[order], pairs.target[order], pairs.similarity[order])
