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

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Wait until no change is under way or waiting, and keep changes out meanwhile."""
        with self._changed:
            self._changed.wait_for(lambda: not self._writing and not self._waiting)
            self._readers += 1
        try:
            yield
        finally:
            with self._changed:
                self._readers -= 1
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
