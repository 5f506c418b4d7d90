"""Indexes that outgrow one file: shards of lists, opened as one index."""

from cfe_faiss.scale.sharded import ShardedEvidenceIndex, write_shards

__all__ = ["ShardedEvidenceIndex", "write_shards"]
