"""Jobs and replicas on a real Ray cluster on this machine."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import cfe_faiss as cfe
from cfe_faiss.scale import Job, ShardedEvidenceIndex, write_shards
from cfe_faiss.scale.serving import ServedEvidenceIndex

ray = pytest.importorskip("ray", reason='ray is missing: pip install "cfe-faiss[ray]"')

pytestmark = [
    # Ray's own: processes and sockets that it leaves to the system when it ends.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning:ray"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray"),
]

N, D, K = 800, 8, 4
RNG = np.random.default_rng(3)
FEATURES = RNG.normal(size=(N, D)).astype(np.float32)
EDGES = RNG.integers(0, N, (2, 2500))
LABELS = RNG.integers(0, 2, N)


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def index() -> cfe.IndexEvidenceIVF:
    X = cfe.ks_vectors(FEATURES, EDGES)
    made = cfe.IndexEvidenceIVF(D, 50)
    made.train(X)
    made.add_with_labels(X, LABELS)
    return made


def test_a_job_on_a_cluster_has_the_files_of_a_local_one(cluster: None, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"k": K, "recall": 0.9, "nlist": 50, "block_rows": 300, "shards": 2, "pairs": 20}
    results = []
    for executor in ("local", "ray"):
        job = Job(tmp_path / executor, features=FEATURES, edges=EDGES, labels=LABELS, **settings)
        job.run(executor, workers=2)
        results.append(job.evidence().to_table().sort_by([("node", "ascending"), ("rank", "ascending")]))
    assert results[0].equals(results[1])
    expected = index().search_members(k=K, recall=0.9)
    assert_array_equal(results[1]["evidence"].to_numpy().reshape(N, K), expected[1])
    assert_array_equal(results[1]["similarity"].to_numpy().reshape(N, K), expected[0])


def test_replicas_answer_as_the_index_does_and_outlive_being_killed(cluster: None, tmp_path: Path) -> None:
    made = index()
    write_shards(made, tmp_path, 3)
    with ServedEvidenceIndex(tmp_path, replicas=2) as served:
        for _ in range(3):
            for found, expected in zip(
                served.search_evidence(FEATURES[:1], LABELS[:1], K, nprobe=5),
                made.search_evidence(FEATURES[:1], LABELS[:1], K, nprobe=5),
                strict=True,
            ):
                assert_array_equal(found, expected)
        for pid in served.processes():
            os.kill(pid, signal.SIGKILL)
        assert_array_equal(
            served.search_members([5, 7], K, exact=True)[1], made.search_members([5, 7], K, exact=True)[1]
        )
        with pytest.raises(ValueError, match="k must be at least 1"):
            served.search_members([5], 0)
    with pytest.raises(RuntimeError, match="was closed"):
        served.search_members([5])
    with pytest.raises(FileNotFoundError):
        ServedEvidenceIndex(tmp_path / "nothing")
    assert isinstance(ShardedEvidenceIndex.open(tmp_path), ShardedEvidenceIndex)
