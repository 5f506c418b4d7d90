"""A job over a folder: from features, edges and predicted classes to the evidence of every node, stage by stage."""

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from cfe_faiss.base.checks import as_count, as_labels, as_number
from cfe_faiss.base.extras import extra
from cfe_faiss.files.outputs import path_within
from cfe_faiss.index.ivf_base import automatic_nlist
from cfe_faiss.pairs import Pairs
from cfe_faiss.scale import graph_stages, index_stages, pair_stages, shard_files, vector_stages
from cfe_faiss.scale.inputs import Input, Source, paths_of, stored
from cfe_faiss.scale.local import LocalExecutor
from cfe_faiss.scale.manifest import Finished, Manifest
from cfe_faiss.scale.sharded import ShardedEvidenceIndex
from cfe_faiss.scale.tasks import Executor, run_stage, share_of
from cfe_faiss.scale.work import Settings, Stage, perform

if TYPE_CHECKING:
    import pyarrow.dataset

SHARD_ROWS, MOST_SHARDS = 1 << 17, 1 << 8
"""Vectors in a shard, and shards, where the user does not say how many."""
_BLOCK_BYTES = 1 << 27
_BLOCK_EDGES = 1 << 27
_BLOCKS = 8  # at least, for several workers, where each has...
_BLOCK_ROWS = 1 << 14  # ... so many rows
_KEPT = {"vectors", "shard", "join", "evidence", "top", "above"}
"""Stages whose files are results."""
_READ_LATER = {"train", "assign", "place"}
"""Stages whose files are read by those that are known only when the shards are."""
_UNITS = {"KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}


@dataclass(frozen=True, slots=True)
class StageStatus:
    """How far a stage is.

    Attributes
    ----------
    name, blocks, finished
        The stage, how many tasks it has (None: not known before an earlier stage is finished), and how many are done.
    bytes
        Of what it has written, and keeps.
    seconds, cpu_seconds
        What its tasks have taken together, by the clock and of processors.
    peak_bytes
        The most memory that one of them had, with pages of mapped files while they are read.
    seconds_left
        What those that are left will take together, at the rate of the others; None where none is done yet.
    """

    name: str
    blocks: int | None
    finished: int
    bytes: int
    seconds: float
    cpu_seconds: float
    peak_bytes: int
    seconds_left: float | None


class Job:
    """A job over a folder, whose tasks read files and write files, so that it can be stopped and resumed at any time.

    The stages are: edges sorted in parts and merged by blocks of nodes (unless they come as CSR), KS vectors, step by
    step, centroids of the lists, the list of each vector, shards of lists, the evidence of each shard's nodes, and the
    most similar pairs. Results are those of :func:`cfe_faiss.ks_vectors` and of one
    :class:`cfe_faiss.IndexEvidenceIVF` of as many lists, to the last bit.

    Parameters
    ----------
    directory
        Folder of the job, on a file system that all workers see. If it holds a job already, this one is opened; inputs
        and parameters that are given must then be its own.
    features
        Features of the nodes, (n, d): a ``.npy`` or ``.parquet`` file; or an array or a tensor, which is written into
        the folder a block at a time, so that one which is mapped may be larger than memory. Tensors of PyG's feature
        stores come from :func:`cfe_faiss.integrations.pyg.stored_features`, edges of its graph stores from
        :func:`cfe_faiss.integrations.pyg.stored_edges`.
    edges
        An edge_index, (2, E), in the same forms; or a pair of them: ``indptr`` and ``indices`` of a graph in CSR, whose
        neighbours ascend, each once and in both directions (as :class:`cfe_faiss.graph.Graph` holds them).
    labels
        Predicted classes, (n,); -1 for "unknown".
    num_layers, alpha
        As in :func:`cfe_faiss.ks_vectors`.
    k
        Evidence wanted for each node.
    recall, exact
        The recall@k wanted, in (0, 1], 0.95 by default; or, in its place, exact results.
    directed
        Whether an edge counts in its own direction only.
    edge_weight
        Weights of the edges, (E,), in the same forms, as those of :func:`cfe_faiss.graph.as_graph`: beside the edges of
        an edge_index, or beside ``indices``. None: edges have no weights.
    nlist
        Lists; None for 4 * sqrt(n).
    pairs
        How many of the most similar pairs are wanted, exactly; 0 for none.
    threshold
        Similarity from which on all pairs are wanted; None for none.
    block_rows, shards
        Nodes in a block, by default an eighth of all, but at most 128 MB of vectors and 134 million edges on average:
        more blocks suit more workers, fewer take less time. And shards of the index, by default one for 131,072 nodes,
        at most 256: who opens them holds some 300 bytes for each list of each shard.

    overwrite
        Whether a new job may replace files and folders that this package has not written and that have the names of its
        own. Other files in the folder are left alone in any case.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, the folder holds another job or, without ``overwrite``, files of these
        names; or if a new job would replace one of its inputs.
    FileNotFoundError
        If an input is missing, or no inputs are given and there is no job in the folder.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from cfe_faiss.scale import Job
    >>> rng = np.random.default_rng(0)
    >>> x, edges, labels = rng.normal(size=(200, 8)), rng.integers(0, 200, (2, 600)), rng.integers(0, 2, 200)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     job = Job(folder, features=x, edges=edges, labels=labels, k=5, recall=0.9)
    ...     job.run(workers=1)
    ...     table = job.evidence().to_table()
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
        given = (features, edges, labels)
        if all(one is None for one in (*given, edge_weight)):
            specification = Manifest.specification(self.directory)
        elif any(one is None for one in given):
            missing = [name for name, one in zip(("features", "edges", "labels"), given, strict=True) if one is None]
            raise ValueError(f"a new job needs features, edges and labels, got no {missing[0]}")
        else:
            if recall is not None and exact:
                raise ValueError(f"only one of recall and exact may be given, got recall={recall}, exact=True")
            parts = edges if isinstance(edges, tuple) else (edges,)
            read = paths_of((features, labels, edge_weight, *parts))
            Manifest.check_target(self.directory, read, overwrite=overwrite)
            with _new_inputs(self.directory, features, edges, labels, edge_weight) as inputs:
                n, d = _checked_shapes(inputs)
                wanted = None if exact else as_number("recall", 0.95 if recall is None else recall, 0.0, 1.0)
                settings = Settings(
                    n,
                    d,
                    as_count("num_layers", num_layers, 0),
                    as_number("alpha", alpha, 0.0, 1.0),
                    bool(directed),
                    as_count("k", k),
                    None if wanted == 1 else wanted,
                    automatic_nlist(n) if nlist is None else as_count("nlist", nlist),
                    as_count("shards", min(-(-n // SHARD_ROWS), MOST_SHARDS) if shards is None else shards),
                    as_count("block_rows", _automatic_rows(inputs, n, d) if block_rows is None else block_rows),
                    as_count("pairs", pairs, 0),
                    None if threshold is None else as_number("threshold", threshold, -1.0, 1.0),
                )
                sizes = {"nlist": nlist, "shards": shards, "block_rows": block_rows}
                automatic = {name for name, size in sizes.items() if size is None}
                specification = _same_or_new(self.directory, settings, inputs, automatic)
        self._settings = Settings(**specification["settings"])
        self._inputs = {name: Input(**fields) for name, fields in specification["inputs"].items()}

    # --- running it ---------------------------------------------------------------------------------------------------

    def run(
        self,
        executor: Literal["local", "ray"] = "local",
        *,
        workers: int | None = None,
        memory: int | str = "8GB",
        address: str | None = None,
        progress: bool = False,
    ) -> None:
        """Do what is left to do; return when every stage is finished.

        Parameters
        ----------
        executor
            ``"local"``: processes of this machine. ``"ray"``: a Ray cluster (extra ``ray``).
        workers
            Tasks at once; by default one for each core of this machine, or of the cluster. Where there are fewer, each
            task uses several threads; results do not depend on it.
        memory
            What all tasks of a machine may take together, beside mapped files: bytes, or a text such as ``"8GB"``.
        address
            Of a Ray cluster, on a machine of which this process runs: ``"host:port"``, or ``"auto"`` for the one that
            was started here or is named by ``RAY_ADDRESS``. None for the one that this process is connected to, or else
            a new one on this machine.
        progress
            Show a bar for each stage on standard error, if that is a terminal.

        Raises
        ------
        JobError
            If a task failed for good; the job can be resumed by another ``run``.
        ValueError
            If an input has changed since the job was made, or an argument is not as described.
        RuntimeError
            If another process runs the job; if its index was changed after the job had written it; or if a node of the
            Ray cluster has another version of this package or of FAISS, or does not see the folder and the inputs.
            Nothing has been done then.
        ConnectionError
            If there is no Ray cluster at ``address``, or it refuses the connection.
        ImportError
            If Ray is missing.
        """
        if executor not in ("local", "ray"):
            raise ValueError(f"executor must be 'local' or 'ray', got {executor!r}")
        if executor == "local" and address is not None:
            raise ValueError(f"address is that of a Ray cluster, got {address!r} for executor='local'")
        number = None if workers is None else as_count("workers", workers)
        size = as_bytes("memory", memory)
        for name, source in self._inputs.items():
            change = source.change()
            if change:
                raise ValueError(f"{name} must be what the job was made with: {change}")
        with Manifest.driven(self.directory) as manifest:
            self._refuse_changed_index(manifest)
            self._take_back_damaged(manifest)
            if self._next_stage(manifest) is None:
                return
            with closing(self._executor(executor, number, address)) as running:
                while (stage := self._next_stage(manifest)) is not None:
                    self._run_stage(stage, manifest, running, size, progress)
                    self._remove_what_is_not_read(manifest)

    def _run_stage(self, stage: Stage, manifest: Manifest, executor: Executor, memory: int, progress: bool) -> None:
        left = [block for block in range(stage.blocks) if (stage.name, block) not in manifest.finished]
        share = share_of(executor, len(left))
        own_memory = memory // share.neighbors
        call = partial(perform, str(self.directory), stage.name, stage.run, own_memory, share.threads)
        hidden = None if progress else True
        with tqdm(total=stage.blocks, initial=stage.blocks - len(left), desc=stage.name, disable=hidden) as bar:

            def enter(finished: Finished) -> None:
                manifest.enter(finished)
                bar.update()

            run_stage(stage.name, call, left, executor, enter, share.threads)

    def _executor(self, name: str, workers: int | None, address: str | None) -> Executor:
        if name == "local":
            return LocalExecutor(workers or os.cpu_count() or 1)
        from cfe_faiss.scale.ray_executor import RayExecutor

        executor = RayExecutor(workers, address)
        try:
            executor.check(self.directory, {source.path: source.size for source in self._inputs.values()})
        except BaseException:
            executor.close()
            raise
        return executor

    # --- stages -------------------------------------------------------------------------------------------------------

    def _stages(self, manifest: Manifest) -> list[Stage]:
        """Return the stages in order, as far as they are known: how many shards there are is found on the way."""
        settings, blocks = self._settings, self._settings.blocks
        found: list[Stage] = []
        if "edges" in self._inputs:
            parts = graph_stages.edge_blocks(self._inputs["edges"].array(), "edge_weight" in self._inputs)
            found.append(Stage("sort", parts, graph_stages.sort_edges, ()))
            found.append(Stage("graph", blocks, partial(graph_stages.merge_edges, parts=parts), ("sort",)))
        found += vector_stages.stages(settings, "edges" in self._inputs)
        found += [
            Stage("train", 1, index_stages.train, ("vectors",)),
            Stage("assign", blocks, index_stages.assign, ("vectors", "train")),
            Stage("place", 1, index_stages.place, ("train", "assign")),
        ]
        placed = manifest.results("place")
        if placed:
            shards = placed[0]["shards"]
            found.append(Stage("shard", shards, index_stages.shard, ("vectors", "train", "assign", "place")))
            found.append(Stage("join", 1, index_stages.join, ("shard", "place")))
            joined = manifest.results("join")
            if joined:
                evidence = partial(index_stages.evidence, nprobe=joined[0]["nprobe"])
                found.append(Stage("evidence", shards, evidence, ("shard", "join")))
                found += pair_stages.stages(settings, shards)
        return found

    def _next_stage(self, manifest: Manifest) -> Stage | None:
        return next((stage for stage in self._stages(manifest) if not _is_finished(stage, manifest)), None)

    def _remove_what_is_not_read(self, manifest: Manifest) -> None:
        """Remove files of stages that nothing reads any more."""
        stages = self._stages(manifest)
        needed = _needed(stages, manifest) | _KEPT | _READ_LATER
        for stage in stages:
            if stage.name not in needed and _is_finished(stage, manifest):
                for path in manifest.files(stage.name):
                    path.unlink(missing_ok=True)

    def _refuse_changed_index(self, manifest: Manifest) -> None:
        """Raise an error if the index is not damaged but another one, whose changes would be lost."""
        joined = [key for key in manifest.finished if key[0] == "join"]
        if manifest.damaged(joined) and index_stages.is_index(self.directory):
            folder = self.directory / shard_files.INDEX
            raise RuntimeError(
                f"the index in {folder} was changed after the job had written it, and a run would undo that: move it "
                "to another folder, and the job makes its own again"
            )

    def _take_back_damaged(self, manifest: Manifest) -> None:
        """Forget finished tasks whose files are needed and are not as they were written, and what they need again."""
        stages = self._stages(manifest)
        by_name = {stage.name: stage for stage in stages}
        wanted = _needed(stages, manifest) | _KEPT
        checked: set[str] = set()
        while names := [name for name in wanted if name in by_name and name not in checked]:
            for name in names:
                checked.add(name)
                wrong = manifest.damaged([key for key in manifest.finished if key[0] == name])
                if wrong:
                    manifest.forget(wrong)
                    wanted |= set(by_name[name].reads)

    def status(self) -> list[StageStatus]:
        """Return how far each stage is, in order."""
        manifest = Manifest(self.directory)
        return [_status(stage, manifest) for stage in self._stages(manifest)]

    # --- results ------------------------------------------------------------------------------------------------------

    def evidence(self) -> "pyarrow.dataset.Dataset":
        """Return the evidence of all nodes: node, evidence, rank (from 1), similarity; a row for each result.

        Raises
        ------
        RuntimeError
            If the job is not finished.
        """
        with extra("store"):
            import pyarrow.dataset
        return pyarrow.dataset.dataset([str(path) for path in self._files("evidence")], format="parquet")

    def top_pairs(self, k: int | None = None) -> Pairs:
        """Return the k most similar pairs with different classes, of those that the job has found; by default all.

        Raises
        ------
        RuntimeError
            If the job is not finished.
        ValueError
            If the job has found fewer.
        """
        most = self._settings.pairs
        k = most if k is None else as_count("k", k)
        if k > most:
            raise ValueError(f"k must be at most {most}, the pairs that the job was asked for, got {k}")
        with extra("store"):
            import pyarrow.parquet as pq
        table = pq.read_table(self._files("top")[0]).slice(0, k)
        source, target, similarity = (column.to_numpy() for column in table.columns)
        return Pairs(source, target, similarity)

    def pairs_above(self) -> "pyarrow.dataset.Dataset":
        """Return all pairs above the job's threshold: source, target, similarity.

        Raises
        ------
        RuntimeError
            If the job is not finished, or has no threshold.
        """
        with extra("store"):
            import pyarrow.dataset
        return pyarrow.dataset.dataset([str(path) for path in self._files("above")], format="parquet")

    def index(self) -> ShardedEvidenceIndex:
        """Return the index of all vectors, mapped from its shards.

        Raises
        ------
        RuntimeError
            If the job has not come so far.
        """
        self._files("join")
        return ShardedEvidenceIndex.open(self.directory / shard_files.INDEX)

    def vectors(self) -> Iterable[NDArray[np.float32]]:
        """Yield the KS vectors of all nodes, a block of rows at a time, mapped from their files.

        Raises
        ------
        RuntimeError
            If the job has not come so far.
        """
        for path in self._files("vectors"):
            yield np.load(path, mmap_mode="r")

    def _files(self, name: str) -> list[Path]:
        manifest = Manifest(self.directory)
        stage = next((stage for stage in self._stages(manifest) if stage.name == name), None)
        if stage is None or not _is_finished(stage, manifest):
            raise RuntimeError(
                f"the job in {self.directory} has not finished the stage {name!r}: run() goes on with it"
            )
        return manifest.files(name)

    def __repr__(self) -> str:
        settings = self._settings
        return f"Job({str(self.directory)!r}, n={settings.n:,}, d={settings.d}, k={settings.k})"


def as_bytes(name: str, value: int | str) -> int:
    """Return a number of bytes, given as one or as a text such as "8GB" (1 GB is 2**30 bytes)."""
    if isinstance(value, str):
        text = value.strip().upper()
        unit = next((unit for unit in _UNITS if text.endswith(unit)), None)
        try:
            number = float(text.removesuffix(unit or ""))
        except ValueError:
            number = math.nan
        if not (math.isfinite(number) and number > 0):
            raise ValueError(f"{name} must be a number of bytes, or a text such as '8GB', got {value!r}")
        return int(number * _UNITS.get(unit or "", 1))
    return as_count(name, value)


@contextmanager
def _new_inputs(
    folder: Path, features: Source, edges: Any, labels: Source, edge_weight: Source | None
) -> Iterator[dict[str, Input]]:
    """Yield the files of the inputs; where the block raises an error, those that were not there before are removed."""
    place = path_within(folder, "inputs", f"the job in {folder}")
    place.mkdir(parents=True, exist_ok=True)
    before = set(place.iterdir())
    try:
        yield _inputs(place, features, edges, labels, edge_weight)
    except BaseException:
        for path in set(place.iterdir()) - before:
            path.unlink()
        raise


def _inputs(place: Path, features: Source, edges: Any, labels: Source, edge_weight: Source | None) -> dict[str, Input]:
    """Return the files of the inputs."""
    inputs = {"features": stored("features", features, place), "labels": stored("labels", labels, place)}
    if edge_weight is not None:
        inputs["edge_weight"] = stored("edge_weight", edge_weight, place)
    if isinstance(edges, tuple):
        if len(edges) != 2:
            raise ValueError(f"edges must be an edge_index or a pair (indptr, indices), got {len(edges)} parts")
        return inputs | {
            name: stored(name, part, place) for name, part in zip(("indptr", "indices"), edges, strict=True)
        }
    return inputs | {"edges": stored("edges", edges, place)}


def _checked_shapes(inputs: Mapping[str, Input]) -> tuple[int, int]:
    features, labels = inputs["features"].array(), inputs["labels"].array()
    if features.ndim != 2 or 0 in features.shape or features.dtype.kind not in "biuf":
        raise ValueError(f"features must be numbers of shape (n, d), got {features.dtype} of shape {features.shape}")
    n, d = features.shape
    as_labels("labels", labels, n, unknown=True)
    if "edges" in inputs:
        edges = inputs["edges"].array()
        if edges.ndim != 2 or edges.shape[0] != 2 or edges.dtype.kind not in "iu":
            raise ValueError(f"edges must be integers of shape (2, E), got {edges.dtype} of shape {edges.shape}")
        _check_weights(inputs, edges.shape[1])
        return n, d
    indptr, indices = inputs["indptr"].array(), inputs["indices"].array()
    if indptr.shape != (n + 1,) or indptr.dtype.kind not in "iu" or indices.ndim != 1 or indices.dtype.kind not in "iu":
        raise ValueError(
            f"edges must be indptr, ({n + 1},), and indices, (E,), both integers, got {indptr.dtype} of shape "
            f"{indptr.shape} and {indices.dtype} of shape {indices.shape}"
        )
    _check_weights(inputs, len(indices))
    return n, d


def _check_weights(inputs: Mapping[str, Input], edges: int) -> None:
    weights = inputs["edge_weight"].array() if "edge_weight" in inputs else None
    if weights is not None and (weights.shape != (edges,) or weights.dtype.kind not in "biuf"):
        raise ValueError(
            f"edge_weight must be numbers of shape ({edges},), one for each edge, got {weights.dtype} of shape "
            f"{weights.shape}"
        )


def _automatic_rows(inputs: Mapping[str, Input], n: int, d: int) -> int:
    """Return how many rows a block has, so that neither its vectors nor its edges take too much."""
    edges = inputs["edges"].array().size if "edges" in inputs else inputs["indices"].array().size
    few = max(-(-n // _BLOCKS), _BLOCK_ROWS)
    return max(1, min(few, _BLOCK_BYTES // (4 * d), _BLOCK_EDGES * n // max(1, edges)))


def _same_or_new(folder: Path, settings: Settings, inputs: Mapping[str, Input], automatic: set[str]) -> dict[str, Any]:
    """Return what the job of a folder is about, after it was made, or compared with the one that is there.

    Settings that are automatic are not compared: those of the job hold, also where another version chose them.
    """
    asked = {"settings": asdict(settings), "inputs": {name: source.as_dict() for name, source in inputs.items()}}
    if not Manifest.exists(folder):
        Manifest.create(folder, asked)
        return asked
    known = Manifest.specification(folder)
    for name, value in known["settings"].items():
        if name not in automatic and asked["settings"][name] != value:
            raise ValueError(f"{folder} holds a job with {name}={value!r}, got {asked['settings'][name]!r}")
    if known["inputs"].keys() != inputs.keys():
        raise ValueError(f"{folder} holds a job with the inputs {sorted(known['inputs'])}, got {sorted(inputs)}")
    for name, fields in known["inputs"].items():
        if fields["digest"] != inputs[name].digest:
            raise ValueError(f"{folder} holds a job whose {name} have another content")
    return known


def _is_finished(stage: Stage, manifest: Manifest) -> bool:
    return all((stage.name, block) in manifest.finished for block in range(stage.blocks))


def _needed(stages: list[Stage], manifest: Manifest) -> set[str]:
    """Return the stages whose files are read by stages that are not finished."""
    return {name for stage in stages if not _is_finished(stage, manifest) for name in stage.reads}


def _status(stage: Stage, manifest: Manifest) -> StageStatus:
    own = [finished for key, finished in manifest.finished.items() if key[0] == stage.name]
    seconds = sum(finished.seconds for finished in own)
    left = None if not own else seconds / len(own) * (stage.blocks - len(own))
    size = sum(path.stat().st_size for path in manifest.files(stage.name) if path.exists())
    peak = max((finished.peak_bytes for finished in own), default=0)
    cpu_seconds = sum(finished.cpu_seconds for finished in own)
    return StageStatus(stage.name, stage.blocks, len(own), size, seconds, cpu_seconds, peak, left)
