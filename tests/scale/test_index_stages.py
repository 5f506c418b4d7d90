"""Stages of a job over its index, as a worker does them."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_array_equal

from cfe_faiss.scale import Job, ShardedEvidenceIndex
from cfe_faiss.scale import stages as index_stages
from cfe_faiss.scale.job_files import Task

pytestmark = pytest.mark.usefixtures("shared_workers")

N, D, K, SHARDS = 400, 6, 3, 3


def evidence_of(folder: Path, number: int) -> Any:
    """Run the task of a shard, and return the ids that it finds."""
    task = Task.of(folder, 1 << 28, "evidence", number)
    index_stages.evidence(task)
    return pq.read_table(task.written[0])["evidence"].to_numpy()


def test_a_worker_opens_the_shards_once_until_they_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=(N, D)).astype(np.float32), rng.integers(0, 3, N)
    edges = rng.integers(0, N, (2, 900))
    Job(tmp_path, features=features, edges=edges, labels=labels, k=K, shards=SHARDS).run(workers=1)
    opened, open_it = [], ShardedEvidenceIndex.open

    def counted(path: Path) -> ShardedEvidenceIndex:
        opened.append(path)
        return open_it(path)

    monkeypatch.setattr(ShardedEvidenceIndex, "open", counted)
    first = [evidence_of(tmp_path, number) for number in range(SHARDS)]
    assert opened == [tmp_path / "index"]
    index = open_it(tmp_path / "index")
    index.relabel(np.roll(index.members().labels, 1))
    second = [evidence_of(tmp_path, number) for number in range(SHARDS)]
    assert len(opened) == 2
    nprobe = int(np.load(tmp_path / "tune" / "000000.nprobe.npy")[0])
    for number in range(SHARDS):
        assert not np.array_equal(first[number], second[number])
        ids, _, I = index.search_shard(number, K, nprobe)
        assert_array_equal(second[number], I[np.argsort(ids)].reshape(-1))
