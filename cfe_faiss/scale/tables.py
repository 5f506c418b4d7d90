"""Parquet tables of the results of jobs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.extras import extra
from cfe_faiss.search.exact import Found, Threshold

_ROWS = 1 << 17  # nodes, or pairs, in a batch


def evidence_schema() -> Any:
    """Return the Arrow schema of evidence: node, evidence, rank (from 1), similarity."""
    return _schema(node="int64", evidence="int64", rank="int32", similarity="float32")


def pairs_schema() -> Any:
    """Return the Arrow schema of pairs: source, target, similarity."""
    return _schema(source="int64", target="int64", similarity="float32")


def _schema(**columns: str) -> Any:
    with extra("store"):
        import pyarrow as pa
    return pa.schema([(name, getattr(pa, kind)()) for name, kind in columns.items()])


def evidence_batches(ids: NDArray[np.int64], D: NDArray[np.float32], I: NDArray[np.int64]) -> Iterator[Any]:
    """Yield batches of the results of nodes, (n,), D and I, (n, k), without padding, by ascending node."""
    order, schema = np.argsort(ids, kind="stable"), evidence_schema()
    for first in range(0, len(order), _ROWS):
        nodes = order[first : first + _ROWS]
        row, rank = np.nonzero(I[nodes] >= 0)
        yield _batch(schema, ids[nodes][row], I[nodes][row, rank], (rank + 1).astype(np.int32), D[nodes][row, rank])


def pairs_batch(pairs: Found) -> Any:
    """Return a batch of pairs, (n,) each of source, target and similarity, in their order."""
    return _batch(pairs_schema(), *pairs)


def _batch(schema: Any, *columns: NDArray[Any]) -> Any:
    import pyarrow as pa

    return pa.RecordBatch.from_arrays([pa.array(column) for column in columns], schema=schema)


def pairs_in(path: Path, columns: tuple[str, str, str], threshold: Threshold) -> Iterator[Found]:
    """Yield the pairs of a file at or above a threshold, from two columns of ids and one of similarities."""
    with extra("store"):
        import pyarrow.parquet as pq
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(_ROWS, columns=list(columns)):
            source, target, similarity = (batch.column(name).to_numpy() for name in columns)
            chosen = np.flatnonzero(similarity >= threshold())
            yield source[chosen], target[chosen], similarity[chosen]
