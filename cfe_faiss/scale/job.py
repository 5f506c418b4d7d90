"""A job over a folder: from features, edges and classes to the evidence of every node."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from tqdm import tqdm

from cfe_faiss.base.checks import Array, Floats, as_count, as_labels, as_number
from cfe_faiss.base.disk import alone_in
from cfe_faiss.base.extras import extra
from cfe_faiss.base.values import as_classes
from cfe_faiss.files.outputs import new_folder, path_within
from cfe_faiss.index.ivf_base import automatic_nlist
from cfe_faiss.pairs import Pairs
from cfe_faiss.scale.job_files import (
    Finished,
    Input,
    Manifest,
    Settings,
    Source,
    paths_of,
    read_specification,
    store_input,
    write_job,
)
from cfe_faiss.scale.ray import RayExecutor
from cfe_faiss.scale.sharded import INDEX, ShardedEvidenceIndex
from cfe_faiss.scale.stages import graph_stages, index_stages, pair_stages
from cfe_faiss.scale.tasks import Executor, LocalExecutor, Stage, StageRun, perform, share_of

if TYPE_CHECKING:
    import pyarrow.dataset

SHARD_ROWS = 1 << 17
"""Default number of vectors in a shard."""
MOST_SHARDS = 1 << 8
"""Largest default number of shards."""
_BLOCK_BYTES = 1 << 27
_BLOCK_EDGES = 1 << 27
_BLOCKS = 8  # smallest default number of blocks, for several workers, if each holds...
_BLOCK_ROWS = 1 << 14  # ... this many rows
_KEPT = {"vectors", "shard", "join", "tune", "evidence", "top", "above"}
"""Stages whose files are results."""
_UNITS = {"KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}


@dataclass(frozen=True, slots=True)
class StageStatus:
    """Progress of a stage.

    Attributes
    ----------
    name, blocks, finished
        Name of the stage, number of its tasks, and number of finished tasks.
    bytes
        Size of the files that the stage wrote and keeps.
    seconds, cpu_seconds
        Elapsed time and processor time of its finished tasks.
    peak_bytes
        Largest peak memory of a task, including mapped pages in use.
    seconds_left
        Estimated time of the remaining tasks, at the average rate so far; None if no task is
        finished.
    """

    name: str
    blocks: int
    finished: int
    bytes: int
    seconds: float
    cpu_seconds: float
    peak_bytes: int
    seconds_left: float | None


class Job:
    """A job over a folder, whose tasks read and write files: it can be stopped and resumed.

    Stages: sort edges in parts and merge them by blocks of nodes (unless they come as CSR), compute
    KS vectors step by step, train the centroids of the lists, assign each vector to a list, write
    shards of lists, search the evidence of each shard's nodes, and find the most similar pairs.
    Vectors equal :func:`cfe_faiss.ks_vectors`, bit for bit, and evidence equals one
    :class:`cfe_faiss.IndexEvidenceIVF` with the same number of lists.

    Parameters
    ----------
    directory
        Folder of the job, on a file system that all workers see. If it already holds a job, that
        job is opened, and inputs and parameters must be the same where they are given.
    features
        Features of the nodes, (n, d): a ``.npy`` or ``.parquet`` file, an array or a tensor. Arrays
        and tensors are written into the folder block by block, so memory maps may exceed memory.
        For PyG's stores, use :func:`cfe_faiss.integrations.pyg.stored_features` and
        :func:`cfe_faiss.integrations.pyg.stored_edges`.
    edges
        An edge_index, (2, E), in the same forms; or a pair ``(indptr, indices)`` of a graph in CSR,
        in which neighbours ascend, each once and in both directions (as in
        :class:`cfe_faiss.graph.Graph`).
    labels
        Predicted classes, (n,); -1 for "unknown".
    num_layers, alpha
        As in :func:`cfe_faiss.ks_vectors`.
    k
        Number of evidence nodes for each node.
    recall, exact
        Target for recall@k in (0, 1], 0.95 by default; or exact results instead.
    directed
        Whether an edge counts in its own direction only.
    edge_weight
        Weights of the edges, (E,), in the same forms, as in :func:`cfe_faiss.graph.as_graph`:
        aligned with the edges of an edge_index, or with ``indices``. None: unweighted.
    nlist
        Number of lists; None for 4 * sqrt(n).
    pairs
        Number of most similar pairs, found exactly; 0 for none.
    threshold
        Smallest similarity of the pairs to list completely; None for no such list.
    block_rows, shards
        Nodes in a block: by default n / 8, but at most 128 MB of vectors and 134 million edges on
        average. More blocks suit more workers, fewer blocks take less time. Shards of the index: by
        default one for 131,072 nodes, at most
        256. An open index takes some 300 bytes for each list of each shard.
    overwrite
        Whether a new job may replace foreign files and folders whose names the job needs. Other
        files in the folder are left alone in any case.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described; if the folder holds another job or, without
        ``overwrite``, foreign files with these names; or if a new job would replace one of its
        inputs.
    FileNotFoundError
        If an input is missing, or no inputs are given and the folder holds no job.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from cfe_faiss.scale import Job
    >>> rng = np.random.default_rng(0)
    >>> x, edges = rng.normal(size=(200, 8)), rng.integers(0, 200, (2, 600))
    >>> labels = rng.integers(0, 2, 200)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     job = Job(folder, features=x, edges=edges, labels=labels, k=5, recall=0.9)
    ...     job.run(workers=1)  # raises JobError if a task fails for good
    ...     stage = job.status()[0]
    ...     table = job.evidence().to_table()
    >>> stage.name, stage.finished, stage.blocks
    ('sort', 1, 1)
    >>> table.column_names, table.num_rows
    (['node', 'evidence', 'rank', 'similarity'], 1000)
    """

    def __init__(  # noqa: PLR0913
        self,
        directory: str | os.PathLike[str],
        features: Source | None = None,
        edges: Source | tuple[Source, Source] | None = None,
        labels: Source | None = None,
        *,
        num_layers: int = 3,
        alpha: float = 0.5,
        k: int = 10,
        recall: float | None = None,
        exact: bool = False,
        directed: bool = False,
        edge_weight: Source | None = None,
        nlist: int | None = None,
        pairs: int = 1000,
        threshold: float | None = None,
        block_rows: int | None = None,
        shards: int | None = None,
        overwrite: bool = False,
    ) -> None:
        self.directory = Path(directory).resolve()
        given = {"features": features, "edges": edges, "labels": labels}
        missing = [name for name, source in given.items() if source is None]
        if len(missing) == len(given) and edge_weight is None:
            self._settings, self._inputs = read_specification(self.directory)
            return
        if missing:
            raise ValueError(f"a new job needs features, edges and labels, got no {missing[0]}")
        if recall is not None and exact:
            raise ValueError(
                f"only one of recall and exact may be given, got recall={recall}, exact=True"
            )
        named = {
            "features": features,
            "labels": labels,
            **_edge_sources(edges),
            "edge_weight": edge_weight,
        }
        sources = {name: source for name, source in named.items() if source is not None}
        if isinstance(labels, list | tuple):  # NumPy would make one class of True and 1
            sources["labels"] = as_classes("labels", labels)
        self.directory.mkdir(parents=True, exist_ok=True)
        # One construction at a time: the others wait, and then find this job.
        with alone_in(self.directory), _new_inputs(self.directory, sources, overwrite) as inputs:
            n, d = _check_shapes(inputs)
            wanted = 0.95 if recall is None else recall
            target = None if exact else as_number("recall", wanted, 0.0, 1.0)
            settings = Settings(
                n,
                d,
                as_count("num_layers", num_layers, 0),
                as_number("alpha", alpha, 0.0, 1.0),
                bool(directed),
                as_count("k", k),
                None if target == 1 else target,
                automatic_nlist(n) if nlist is None else as_count("nlist", nlist),
                as_count(
                    "shards", min(-(-n // SHARD_ROWS), MOST_SHARDS) if shards is None else shards
                ),
                as_count(
                    "block_rows",
                    _automatic_rows(inputs, n, d) if block_rows is None else block_rows,
                ),
                as_count("pairs", pairs, 0),
                None if threshold is None else as_number("threshold", threshold, -1.0, 1.0),
            )
            sizes = {"nlist": nlist, "shards": shards, "block_rows": block_rows}
            automatic = {name for name, size in sizes.items() if size is None}
            self._settings, self._inputs = _open_or_create(
                self.directory, settings, inputs, automatic
            )

    # --- running it -------------------------------------------------------------------------------

    def run(
        self,
        executor: Literal["local", "ray"] = "local",
        *,
        workers: int | None = None,
        memory: int | str = "8GB",
        address: str | None = None,
        progress: bool = False,
    ) -> None:
        """Run the remaining tasks; return when every stage is finished.

        Works from a script without a ``__main__`` guard, from a notebook and from standard input.

        Parameters
        ----------
        executor
            ``"local"``: processes of this machine. ``"ray"``: a Ray cluster (extra ``ray``).
        workers
            Number of tasks at once; by default one for each core of this machine, or of the
            cluster. With fewer workers than cores, each task uses several threads. Results do not
            depend on it.
        memory
            Memory limit of all tasks of a machine together, mapped files not included: bytes, or a
            text such as ``"8GB"``.
        address
            Address of a Ray cluster that this machine belongs to: ``"host:port"``, or ``"auto"``
            for the cluster that was started here or is named by ``RAY_ADDRESS``. None: the cluster
            that this process is connected to, or else a new one on this machine.
        progress
            Show a bar for each stage on standard error, if that is a terminal.

        Raises
        ------
        JobError
            If a task failed for good. Another ``run`` resumes the job.
        ValueError
            If an input has changed since the job was made, or an argument is not as described.
        RuntimeError
            If another process runs the job; if its index was changed after the job wrote it; or if
            a node of the Ray cluster has another version of this package or of FAISS, or does not
            see the folder and the inputs. No task has run then.
        ConnectionError
            If there is no Ray cluster at ``address``, or if it refuses the connection.
        ImportError
            If Ray is missing.
        """
        if executor not in ("local", "ray"):
            raise ValueError(f"executor must be 'local' or 'ray', got {executor!r}")
        if executor == "local" and address is not None:
            raise ValueError(
                f"address is that of a Ray cluster, got {address!r} for executor='local'"
            )
        number = None if workers is None else as_count("workers", workers)
        size = as_bytes("memory", memory)
        for name, source in self._inputs.items():
            if change := source.change():
                raise ValueError(f"{name} must be what the job was made with: {change}")
        if _check_shapes(self._inputs) != (self._settings.n, self._settings.d):
            raise ValueError(f"n and d of {self!r} must be those of its features")
        with Manifest.drive(self.directory) as manifest:
            if read_specification(self.directory) != (self._settings, self._inputs):
                raise RuntimeError(f"{self.directory} holds another job now: open it again")
            self._refuse_changed_index(manifest)
            self._forget_damaged(manifest)
            unfinished = [stage for stage in self._stages() if not _is_finished(stage, manifest)]
            if not unfinished:
                return
            running: Executor
            if executor == "local":
                running = LocalExecutor(number or os.cpu_count() or 1)
            else:
                files = {source.path: source.size for source in self._inputs.values()}
                running = RayExecutor(number, address, self.directory, files)
            with closing(running):
                for stage in unfinished:
                    self._run_stage(stage, manifest, running, size, progress)
                    self._remove_intermediate_files(manifest)

    def _run_stage(
        self, stage: Stage, manifest: Manifest, executor: Executor, memory: int, progress: bool
    ) -> None:
        blocks_left = [
            block for block in range(stage.blocks) if (stage.name, block) not in manifest.finished
        ]
        threads, neighbours = share_of(executor, len(blocks_left))
        call = partial(
            perform, str(self.directory), stage.name, stage.run, memory // neighbours, threads
        )
        with tqdm(
            total=stage.blocks,
            initial=stage.blocks - len(blocks_left),
            desc=stage.name,
            disable=None if progress else True,  # None: unless standard error is a terminal
        ) as bar:

            def enter(finished: Finished) -> None:
                manifest.enter(finished)
                bar.update()

            StageRun(stage.name, call, blocks_left, executor, enter, threads).run()

    # --- stages -----------------------------------------------------------------------------------

    def _stages(self) -> list[Stage]:
        settings = self._settings
        of_index = index_stages(settings) + pair_stages(settings)
        return graph_stages(settings, self._inputs) + of_index

    def _remove_intermediate_files(self, manifest: Manifest) -> None:
        """Remove files that no unfinished stage reads, except results."""
        stages = self._stages()
        needed = _find_needed(stages, manifest)
        for stage in stages:
            if stage.name not in needed and _is_finished(stage, manifest):
                for path in manifest.files(stage.name):
                    path.unlink(missing_ok=True)

    def _refuse_changed_index(self, manifest: Manifest) -> None:
        """Raise RuntimeError if the user has changed the index, as a run would undo the changes."""
        folder = self.directory / INDEX
        if manifest.find_damaged("join"):
            # the index is damaged, and a run repairs it
            with suppress(FileNotFoundError, ValueError):
                ShardedEvidenceIndex.open(folder)
                raise RuntimeError(
                    f"the index in {folder} was changed after the job had written it, and a run "
                    "would undo that: move it to another folder, and the job makes its own again"
                )

    def _forget_damaged(self, manifest: Manifest) -> None:
        """Forget finished tasks with damaged files that are needed, and their damaged inputs."""
        stages = self._stages()
        needed = _find_needed(stages, manifest)
        for stage in reversed(stages):  # a stage reads from earlier ones only
            wrong = manifest.find_damaged(stage.name) if stage.name in needed else []
            if wrong:
                manifest.forget(wrong)
                needed |= set(stage.reads)

    def status(self) -> list[StageStatus]:
        """Return the progress of each stage, in order."""
        manifest = Manifest(self.directory)
        return [_status(stage, manifest) for stage in self._stages()]

    # --- results ----------------------------------------------------------------------------------

    def evidence(self) -> "pyarrow.dataset.Dataset":
        """Return the evidence of all nodes: node, evidence, rank (from 1), similarity.

        One row per evidence node.

        Raises
        ------
        RuntimeError
            If the job is not finished.
        """
        return self._dataset("evidence")

    def top_pairs(self, k: int | None = None) -> Pairs:
        """Return the k most similar pairs with different classes.

        By default as many as the job was asked for.

        Raises
        ------
        RuntimeError
            If the job is not finished.
        ValueError
            If the job was asked for fewer pairs.
        """
        most = self._settings.pairs
        k = most if k is None else as_count("k", k)
        if k > most:
            raise ValueError(
                f"k must be at most {most}, the pairs that the job was asked for, got {k}"
            )
        columns = self._dataset("top").to_table().slice(0, k).columns
        return Pairs(*(column.to_numpy() for column in columns))

    def pairs_above(self) -> "pyarrow.dataset.Dataset":
        """Return all pairs at or above the job's threshold: source, target, similarity.

        Raises
        ------
        RuntimeError
            If the job is not finished, or has no threshold.
        """
        return self._dataset("above")

    def index(self) -> ShardedEvidenceIndex:
        """Return the index of all vectors, mapped from its shards.

        Raises
        ------
        RuntimeError
            If the job has not yet written the index.
        """
        self._files("join")
        return ShardedEvidenceIndex.open(self.directory / INDEX)

    def vectors(self) -> Iterable[Floats]:
        """Yield the KS vectors of all nodes block by block, mapped from their files.

        Raises
        ------
        RuntimeError
            If the job has not yet computed the vectors.
        """
        for path in self._files("vectors"):
            yield np.load(path, mmap_mode="r")

    def _dataset(self, stage: str) -> "pyarrow.dataset.Dataset":
        with extra("store"):
            import pyarrow.dataset
        return pyarrow.dataset.dataset([str(path) for path in self._files(stage)], format="parquet")

    def _files(self, name: str) -> list[Path]:
        manifest = Manifest(self.directory)
        stage = next((stage for stage in self._stages() if stage.name == name), None)
        if stage is None or not _is_finished(stage, manifest):
            raise RuntimeError(
                f"the job in {self.directory} has not finished the stage {name!r}: run() continues "
                f"it"
            )
        return manifest.files(name)

    def __repr__(self) -> str:
        settings = self._settings
        return f"Job({str(self.directory)!r}, n={settings.n:,}, d={settings.d}, k={settings.k})"


def as_bytes(name: str, value: int | str) -> int:
    """Return a number of bytes from a number or a text such as "8GB" (1 GB is 2**30)."""
    if not isinstance(value, str):
        return as_count(name, value)
    match = re.fullmatch(r"\s*((?:\d+\.?\d*|\.\d+)(?:E\d+)?)\s*([KMGT]B)?\s*", value.upper())
    size = int(float(match[1]) * _UNITS.get(match[2], 1)) if match else 0
    if size < 1:
        raise ValueError(
            f"{name} must be a number of bytes, or a text such as '8GB', got {value!r}"
        )
    return size


def _edge_sources(edges: Any) -> dict[str, Source]:
    if not isinstance(edges, tuple):
        return {"edges": edges}
    if len(edges) != 2:
        raise ValueError(
            f"edges must be an edge_index or a pair (indptr, indices), got {len(edges)} parts"
        )
    return dict(zip(("indptr", "indices"), edges, strict=True))


@contextmanager
def _new_inputs(
    folder: Path, sources: Mapping[str, Source], overwrite: bool
) -> Iterator[dict[str, Input]]:
    """Yield the files of the inputs.

    If the block raises an error, remove those written here that no job uses.
    """
    Manifest.check_target(folder, paths_of(sources.values()), overwrite=overwrite)
    place = path_within(folder, "inputs", f"the job in {folder}")
    new_files: list[Path] = []
    with new_folder(place):
        try:
            yield {
                name: store_input(name, source, place, new_files)
                for name, source in sources.items()
            }
        except BaseException:
            used: set[str] = set()
            with suppress(OSError, ValueError):
                used = {source.path for source in read_specification(folder)[1].values()}
            for path in new_files:
                if str(path) not in used:
                    path.unlink(missing_ok=True)
            raise


def _check_shapes(inputs: Mapping[str, Input]) -> tuple[int, int]:
    """Return the shape of the features; raise ValueError if the inputs do not match each other."""

    def check_arrays(fits: bool, expectation: str, *values: Array) -> None:
        if not fits:
            arrays = " and ".join(f"{array.dtype} of shape {array.shape}" for array in values)
            raise ValueError(f"{expectation}, got {arrays}")

    arrays = {name: source.array() for name, source in inputs.items()}
    x = arrays["features"]
    fits = x.ndim == 2 and x.size > 0 and x.dtype.kind in "biuf"
    check_arrays(fits, "features must be numbers of shape (n, d)", x)
    n, d = x.shape
    as_labels("labels", arrays["labels"], n, unknown=True)
    if "edges" in arrays:
        edges = arrays["edges"]
        fits = edges.ndim == 2 and edges.shape[0] == 2 and edges.dtype.kind in "iu"
        check_arrays(fits, "edges must be integers of shape (2, E)", edges)
        count = edges.shape[1]
    else:
        indptr = arrays["indptr"]
        indices = arrays["indices"]
        fits = (
            indptr.shape == (n + 1,)
            and indices.ndim == 1
            and {indptr.dtype.kind, indices.dtype.kind} <= {*"iu"}
        )
        check_arrays(
            fits,
            f"edges must be indptr, ({n + 1},), and indices, (E,), both integers",
            indptr,
            indices,
        )
        count = len(indices)
    if "edge_weight" in arrays:
        weights = arrays["edge_weight"]
        fits = weights.shape == (count,) and weights.dtype.kind in "biuf"
        check_arrays(
            fits, f"edge_weight must be numbers of shape ({count},), one for each edge", weights
        )
    return n, d


def _automatic_rows(inputs: Mapping[str, Input], n: int, d: int) -> int:
    """Return the default number of rows in a block, which bounds both its vectors and its edges."""
    edges = inputs["edges" if "edges" in inputs else "indices"].array().size
    block_rows = max(-(-n // _BLOCKS), _BLOCK_ROWS)
    return max(1, min(block_rows, _BLOCK_BYTES // (4 * d), _BLOCK_EDGES * n // max(1, edges)))


def _open_or_create(
    folder: Path, settings: Settings, inputs: Mapping[str, Input], automatic: set[str]
) -> tuple[Settings, dict[str, Input]]:
    """Return the specification of a folder's job, created or compared with the arguments.

    Automatic settings are not compared: another version may have chosen them otherwise.
    """
    if not Manifest.exists(folder):
        write_job(folder, settings, inputs)
    job_settings, job_inputs = read_specification(folder)
    for name, value in asdict(job_settings).items():
        if name not in automatic and getattr(settings, name) != value:
            raise ValueError(
                f"{folder} holds a job with {name}={value!r}, got {getattr(settings, name)!r}"
            )
    if job_inputs.keys() != inputs.keys():
        raise ValueError(
            f"{folder} holds a job with the inputs {sorted(job_inputs)}, got {sorted(inputs)}"
        )
    for name, source in job_inputs.items():
        if source.digest != inputs[name].digest:
            raise ValueError(f"{folder} holds a job whose {name} have another content")
    return job_settings, job_inputs


def _is_finished(stage: Stage, manifest: Manifest) -> bool:
    return all((stage.name, block) in manifest.finished for block in range(stage.blocks))


def _find_needed(stages: list[Stage], manifest: Manifest) -> set[str]:
    """Return the stages that produce results or input of unfinished stages."""
    return {
        name for stage in stages if not _is_finished(stage, manifest) for name in stage.reads
    } | _KEPT


def _status(stage: Stage, manifest: Manifest) -> StageStatus:
    tasks = manifest.of_stage(stage.name)
    seconds = sum(task.seconds for task in tasks)
    return StageStatus(
        name=stage.name,
        blocks=stage.blocks,
        finished=len(tasks),
        bytes=sum(path.stat().st_size for path in manifest.files(stage.name) if path.exists()),
        seconds=seconds,
        cpu_seconds=sum(task.cpu_seconds for task in tasks),
        peak_bytes=max((task.peak_bytes for task in tasks), default=0),
        seconds_left=seconds / len(tasks) * (stage.blocks - len(tasks)) if tasks else None,
    )
