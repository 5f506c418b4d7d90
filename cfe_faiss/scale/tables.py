"""Results of jobs as Parquet files."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.extras import extra
from cfe_faiss.files.new_file import new_file
from cfe_faiss.search.exact import Found, Threshold

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS = 1 << 17  # nodes, or pairs, in a batch


def evidence_schema() -> "pa.Schema":
    """Return the columns of evidence: node, evidence, rank (from 1), similarity."""
    with extra("store"):
        import pyarrow as pa
    return pa.schema(
        [("node", pa.int64()), ("evidence", pa.int64()), ("rank", pa.int32()), ("similarity", pa.float32())]
    )


def pairs_schema() -> "pa.Schema":
    """Return the columns of pairs: source, target, similarity."""
    with extra("store"):
        import pyarrow as pa
    return pa.schema([("source", pa.int64()), ("target", pa.int64()), ("similarity", pa.float32())])


def evidence_batches(
    ids: NDArray[np.int64], D: NDArray[np.float32], I: NDArray[np.int64]
) -> Iterator["pa.RecordBatch"]:
    """Yield the results of nodes, (n,), D and I, (n, k), without padding, in ascending order of the nodes."""
    import pyarrow as pa

    order = np.argsort(ids, kind="stable")
    for first in range(0, len(order), _ROWS):
        chosen = order[first : first + _ROWS]
        row, rank = np.nonzero(I[chosen] >= 0)
        columns: list[NDArray[Any]] = [
            ids[chosen][row],
            I[chosen][row, rank],
            (rank + 1).astype(np.int32),
            D[chosen][row, rank],
        ]
        yield pa.RecordBatch.from_arrays([pa.array(column) for column in columns], schema=evidence_schema())


def pairs_batch(pairs: Found) -> "pa.RecordBatch":
    """Return pairs, (n,) each of source, target and similarity, as they are."""
    import pyarrow as pa

    return pa.RecordBatch.from_arrays([pa.array(column) for column in pairs], schema=pairs_schema())


def pairs_in(path: Path, columns: tuple[str, str, str], threshold: Threshold) -> Iterator[Found]:
    """Yield the pairs of a file at or above a threshold: two columns of ids, and one of similarities."""
    with extra("store"):
        import pyarrow.parquet as pq
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(_ROWS, columns=list(columns)):
            source, target, similarity = (batch.column(name).to_numpy() for name in columns)
            chosen = np.flatnonzero(similarity >= threshold())
            yield source[chosen], target[chosen], similarity[chosen]


def write(path: Path, schema: "pa.Schema", batches: Iterable["pa.RecordBatch"]) -> int:
    """Write batches into a Parquet file, whole or not at all; return how many rows it has."""
    with extra("store"):
        import pyarrow.parquet as pq
    rows = 0
    with new_file(path, overwrite=True) as file, pq.ParquetWriter(file, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows
