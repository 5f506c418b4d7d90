"""A sharded index in warm processes of a Ray cluster, which answer queries."""

import os
import time
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cfe_faiss.base.checks import as_count, as_number
from cfe_faiss.scale.ray import connect
from cfe_faiss.scale.sharded import ShardedEvidenceIndex

_RESTARTS = 0.2  # seconds until a replica that has died is asked again

Results = tuple[NDArray[np.float32], NDArray[np.int64]]


class ServedEvidenceIndex:
    """A sharded index in several warm processes of a Ray cluster; over the shards in a folder.

    A call goes to one of the processes (*replicas*), in turns; where it dies or is not back in time, to another one. A
    process that has died is started again. Results are those of the index itself, since each process has it mapped.

    Parameters
    ----------
    path
        Folder of the shards, which the processes see.
    replicas
        How many processes.
    deadline
        Seconds that one process has for a call; one that dies leaves what is left of them to the next.
    attempts
        How many processes are waited for so long, before the call fails.
    address
        Of the cluster; None for one that this process is connected to, or else a new one on this machine.

    Notes
    -----
    Whoever reaches a port of a Ray cluster can run code on its machines. A new cluster listens on the loopback
    interface only. One that was started otherwise listens where it was told to, by default on every interface.
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
        ShardedEvidenceIndex.open(path)  # what is wrong with it is said here
        self._ray, self._is_own = connect(address)
        actor: Any = self._ray.remote(num_cpus=0, max_restarts=-1)(_Replica)
        self._replicas: list[Any] = [actor.remote(str(Path(path).resolve())) for _ in range(number)]
        self._next = 0

    def search_evidence(
        self, xq: ArrayLike, labels_q: ArrayLike, k: int, nprobe: int | None = None, **how: Any
    ) -> Results:
        """Return what ``ShardedEvidenceIndex.search_evidence`` does.

        Raises
        ------
        TimeoutError
            If no process answered in time.
        """
        return self._asked("search_evidence", np.asarray(xq), np.asarray(labels_q), k, nprobe, **how)

    def search_members(
        self, ids: ArrayLike | None = None, k: int = 10, nprobe: int | None = None, **how: Any
    ) -> Results:
        """Return what ``ShardedEvidenceIndex.search_members`` does; errors as of :meth:`search_evidence`."""
        return self._asked("search_members", None if ids is None else np.asarray(ids), k, nprobe, **how)

    def processes(self) -> list[int]:
        """Return the number of each process, as the system of its machine has it."""
        return [self._ray.get(replica.process.remote(), timeout=self._deadline) for replica in self._replicas]

    def close(self) -> None:
        """End the processes, and the cluster, if it was started here."""
        for replica in self._replicas:
            self._ray.kill(replica)
        self._replicas = []
        if self._is_own:
            self._ray.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _asked(self, method: str, *arguments: Any, **how: Any) -> Results:
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
                    found: Results = self._ray.get(reference, timeout=left)
                except errors.RayTaskError as error:
                    raise getattr(error, "cause", None) or error from None
                except errors.GetTimeoutError as error:
                    self._ray.cancel(reference)
                    last = error
                except errors.RayError as error:  # it has died, and is started again
                    last = error
                    time.sleep(min(left, _RESTARTS))
                else:
                    return found
        raise TimeoutError(
            f"no replica answered {method} in {self._attempts} attempts of {self._deadline:g} s"
        ) from last


class _Replica:
    """The process of a replica."""

    def __init__(self, path: str) -> None:
        self._index = ShardedEvidenceIndex.open(path)

    def process(self) -> int:
        return os.getpid()

    def ask(self, method: str, arguments: tuple[Any, ...], how: dict[str, Any]) -> Results:
        found: Results = getattr(self._index, method)(*arguments, **how)
        return found
