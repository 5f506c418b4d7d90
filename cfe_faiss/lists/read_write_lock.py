"""Letting many searches, or one change, into an index."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self


class Gate:
    """Any number of readers at once, or one writer; a waiting writer goes before new readers.

    Not reentrant: a thread that is inside must not enter again. With a ``refusal``, every change is refused by a
    RuntimeError that says so.
    """

    def __init__(self, refusal: str = "") -> None:
        self._refusal = refusal
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._readers = 0
        self._writing = False
        self._waiting = 0

    def reading(self) -> Self:
        """Wait until no change is under way or waiting, and keep changes out meanwhile.

        What ``with`` enters is the gate itself, by its bare lock: whatever else there was would count for one query.
        """
        return self

    def __enter__(self) -> None:
        with self._lock:
            while self._writing or self._waiting:
                self._changed.wait()
            self._readers += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._readers -= 1
            if self._waiting:
                self._changed.notify_all()

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
