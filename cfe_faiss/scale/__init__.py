"""Beyond one file and one process: jobs over a folder, and indexes in shards."""

from cfe_faiss.scale.job import Job, StageStatus
from cfe_faiss.scale.ray import ServedEvidenceIndex
from cfe_faiss.scale.sharded import ShardedEvidenceIndex, write_shards
from cfe_faiss.scale.tasks import JobError

__all__ = [
    "Job",
    "JobError",
    "ServedEvidenceIndex",
    "ShardedEvidenceIndex",
    "StageStatus",
    "write_shards",
]
