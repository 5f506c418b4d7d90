"""A sharded index in warm processes of a Ray cluster that answer queries."""

import os
import time
from pathlib import Path
from typing import Any, Self

import faiss
from numpy.typing import NDArray

from cfe_faiss.base.checks import as_count, as_number
from cfe_faiss.index.protocol import EvidenceSearcher
from cfe_faiss.rows.metric import Metric
from cfe_faiss.scale.ray import connect
from cfe_faiss.scale.sharded import ShardedEvidenceIndex
from cfe_faiss.search.query import Certified, Effort, Query, Ranges, Results

_RESTARTS = 0.2  # seconds until the next call of a replica that died


class ServedEvidenceIndex(EvidenceSearcher):
    """A sharded index in several warm processes (*replicas*) of a Ray cluster.

    Calls go to the replicas in turn. If a replica dies or exceeds the deadline, the call goes to the next one, and a
    dead replica is restarted. Each replica maps the whole index, so results equal a search of the index.

    Parameters
    ----------
    path
        Folder of the shards, which the replicas must see.
    replicas
        Number of processes.
    deadline
        Seconds per attempt. After the death of a replica, the next one has the remaining time.
    attempts
        Number of attempts before the call fails.
    address
        Address of the cluster; None for the one that this process is connected to, or else a new one on this machine.

    Notes
    -----
    Anybody who reaches a port of a Ray cluster can run code on its machines. A new cluster listens on the loopback
    interface only. A cluster that was started otherwise listens on every interface by default.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        replicas: int = 1,
        deadline: float = 60.0,
        attempts: int = 3,
        address: str | None = None,
    ) -> None:
        number = as_count("replicas", replicas)
        self._deadline = as_number("deadline", deadline, 1e-3, 1e6)
        self._attempts = as_count("attempts", attempts)
        index = ShardedEvidenceIndex.open(path)  # raises the errors of the files here
        self.d, self._metric = index.d, index.metric
        self._ray, self._is_own = connect(address)
        actor: Any = self._ray.remote(num_cpus=0, max_restarts=-1)(_Replica)
        self._replicas: list[Any] = [actor.remote(str(Path(path).resolve())) for _ in range(number)]
        self._next = 0

    @property
    def metric(self) -> Metric:
        """How vectors are compared, as of the sharded index."""
        return self._metric

    def answer(self, query: Query, effort: Effort, progress: bool = False) -> Results:
        """Return the results of ``ShardedEvidenceIndex.answer``; TimeoutError if no process answers in time."""
        _refuse(query, progress)
        found: Results = self._ask("answer", query, effort)
        return found

    def answer_range(self, query: Query) -> Ranges:
        """Return the results of ``ShardedEvidenceIndex.answer_range``."""
        _refuse(query)
        found: Ranges = self._ask("answer_range", query)
        return found

    def answer_certified(self, query: Query, effort: Effort, progress: bool = False) -> Certified:
        """Return the results of ``ShardedEvidenceIndex.answer_certified``."""
        _refuse(query, progress)
        found: Certified = self._ask("answer_certified", query, effort)
        return found

    def recall_by_class(self, recall: float, k: int = 10, *, queries: int | None = None) -> dict[Any, float]:
        """Return the results of ``ShardedEvidenceIndex.recall_by_class``."""
        found: dict[Any, float] = self._ask("recall_by_class", recall, k, queries=queries)
        return found

    @property
    def label_names(self) -> NDArray[Any]:
        """Known labels of the stored vectors, as of the sharded index."""
        found: NDArray[Any] = self._ask("label_names")
        return found

    def processes(self) -> list[int]:
        """Return the process id of each replica on its machine."""
        return [self._ray.get(replica.process.remote(), timeout=self._deadline) for replica in self._replicas]

    def close(self) -> None:
        """End the replicas, and the cluster if this object started it."""
        for replica in self._replicas:
            self._ray.kill(replica)
        self._replicas = []
        if self._is_own:
            self._ray.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, method: str, *arguments: Any, **how: Any) -> Any:
        if not self._replicas:
            raise RuntimeError("the index was closed")
        errors = self._ray.exceptions
        last: Exception | None = None
        for _ in range(self._attempts):
            until = time.monotonic() + self._deadline
            while (left := until - time.monotonic()) > 0:
                replica = self._replicas[self._next % len(self._replicas)]
                self._next += 1
                reference = replica.ask.remote(method, arguments, how)
                try:
                    found = self._ray.get(reference, timeout=left)
                except errors.RayTaskError as error:
                    raise getattr(error, "cause", None) or error from None
                except errors.GetTimeoutError as error:
                    self._ray.cancel(reference)
                    last = error
                except errors.RayError as error:  # the replica died, and Ray restarts it
                    last = error
                    time.sleep(min(left, _RESTARTS))
                else:
                    return found
        raise TimeoutError(f"no replica answered {method} in {self._attempts} times {self._deadline:g} s") from last


def _refuse(query: Query, progress: bool = False) -> None:
    if progress:
        raise ValueError("progress must be False: the replicas of a served index report none, got True")
    if isinstance(query.sel, faiss.IDSelector):
        raise TypeError(f"sel must be ids or a mask: FAISS's selectors stay in their process, got {query.sel!r}")


class _Replica:
    """Process of a replica."""

    def __init__(self, path: str) -> None:
        self._index = ShardedEvidenceIndex.open(path)

    def process(self) -> int:
        return os.getpid()

    def ask(self, method: str, arguments: tuple[Any, ...], how: dict[str, Any]) -> Any:
        found = getattr(self._index, method)
        return found(*arguments, **how) if callable(found) else found
