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
from reference import Stored, stored_vectors

import cfe_faiss as cfe
from cfe_faiss.pairs import Pairs
from cfe_faiss.scale import pair_stages, tables, write_shards
from cfe_faiss.scale.index_stages import INDEX
from cfe_faiss.scale.inputs import Input
from cfe_faiss.scale.work import Settings, Work
from cfe_faiss.search import exact, join

pq = pytest.importorskip("pyarrow.parquet")

K = 3  # evidence of a node that the files hold
COLUMNS = (("source", np.int64), ("target", np.int64), ("similarity", np.float32))


def index_of(stored: Stored) -> cfe.IndexEvidenceIVF:
    index = cfe.IndexEvidenceIVF(stored.X.shape[1], min(6, len(stored.X)))
    index.train(stored.X)
    index.add_with_ids(stored.X, stored.ids)
    index.relabel(stored.labels, stored.ids)
    return index


def work_in(folder: Path, index: cfe.IndexEvidenceIVF, shards: int, **changed: Any) -> Work:
    """Return a folder with what the stages of pairs read: the shards and the evidence of all nodes."""
    write_shards(index, folder / INDEX, shards)
    given = Settings(index.ntotal, index.d, 0, 0.5, False, K, None, index.nlist, shards, index.ntotal, 1000, None)
    work = Work(folder, replace(given, **changed), dict[str, Input](), 1)
    ids = np.sort(index.storage().row_ids)
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


@st.composite
def small_groups(draw: st.DrawFn) -> dict[str, int]:
    """Draw how small groups and blocks are, what a scored pair costs, and how many pairs a call finds."""
    return {
        "group": draw(st.integers(3, 70)),
        "block": draw(st.integers(2, 8)),
        "price": draw(st.sampled_from([0, 4000, 10**9])),
        "chunk": draw(st.sampled_from([5, 768])),
    }


def take_over(patch: pytest.MonkeyPatch, sizes: dict[str, int]) -> None:
    patch.setattr(pair_stages, "GROUP_ROWS", sizes["group"])
    patch.setattr(join, "_BLOCK", sizes["block"])
    for price in ("_ROW_TEST", "_COARSE_PAIR", "_FINE_PAIR", "_SCORED_PAIR"):
        patch.setattr(join, price, sizes["price"])
    patch.setattr(exact, "CHUNK", sizes["chunk"])
    patch.setattr(exact, "TILE", sizes["chunk"] ** 2)


@given(
    stored_vectors(least=4, lowest_label=-1),
    small_groups(),
    st.sampled_from([1, 2, 5, 30, 5000]),
    st.floats(-1, 1, width=32),
    st.integers(1, 4),
)
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_pairs_are_those_of_one_index(
    tmp_path_factory: pytest.TempPathFactory,
    stored: Stored,
    sizes: dict[str, int],
    k: int,
    threshold: float,
    shards: int,
) -> None:
    index = index_of(stored)
    shards = min(shards, int(np.count_nonzero(np.diff(index.storage().starts))))
    with pytest.MonkeyPatch.context() as patch:
        take_over(patch, sizes)
        folder = tmp_path_factory.mktemp("pairs")
        work = work_in(folder, index, shards, pairs=k, threshold=threshold)
        tasks = run(work, shards)
        groups = -(-index.ntotal // sizes["group"])
        assert tasks == {"groups": 1, "sketch": groups, "pairs": groups, "top": 1, "above": groups}
    assert_equal(found_in([folder / "top" / "000000.parquet"]), cfe.global_evidence(index, k))
    above = [*cfe.evidence_pairs(index, threshold)]
    expected = Pairs(
        *(np.concatenate([np.empty(0, t), *(getattr(part, name) for part in above)]) for name, t in COLUMNS)
    )
    assert_equal(in_order(found_in(sorted((folder / "above").iterdir()))), in_order(expected))
