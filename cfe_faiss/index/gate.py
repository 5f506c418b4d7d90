"""Letting many searches, or one change, into an index."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Gate:
    """Any number of readers at once, or one writer; a waiting writer goes before new readers.

    Not reentrant: a thread that is inside must not enter again. With a ``refusal``, every change is refused by a
    RuntimeError that says so.
    """

    def __init__(self, refusal: str = "") -> None:
        self._refusal = refusal
        self._changed = threading.Condition()
        self._readers = 0
        self._writing = False
        self._waiting = 0

    def reading(self) -> "_Reading":
        """Wait until no change is under way or waiting, and keep changes out meanwhile."""
        return _Reading(self)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Wait until nobody is inside, and keep everybody out meanwhile."""
        if self._refusal:
            raise RuntimeError(self._refusal)
        with self._changed:
            self._waiting += 1
            try:
                self._changed.wait_for(lambda: not self._writing and not self._readers)
            finally:
                self._waiting -= 1
            self._writing = True
        try:
            yield
        finally:
            with self._changed:
                self._writing = False
                self._changed.notify_all()


class _Reading:
    """What ``with gate.reading()`` enters; a generator would take twice as long, which counts for a single query."""

    __slots__ = ("_gate",)

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def __enter__(self) -> None:
        gate = self._gate
        with gate._changed:
            while gate._writing or gate._waiting:
                gate._changed.wait()
            gate._readers += 1

    def __exit__(self, *_: object) -> None:
        gate = self._gate
        with gate._changed:
            gate._readers -= 1
            if gate._waiting:
                gate._changed.notify_all()
