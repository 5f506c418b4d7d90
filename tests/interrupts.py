"""Errors at any line of the package, as an interrupt or too little memory brings them about."""

import itertools
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import cfe_faiss as cfe

PACKAGE = str(Path(cfe.__file__).parent)


def raises_at(
    line: int,
    error: type[BaseException],
    change: Callable[[], Any],
    where: str = "",
    libraries: tuple[str, ...] = (),
) -> bool:
    """Raise an error at the n-th line that a change runs in (a part of) the package; return whether it ran so many.

    ``where`` is how the paths of the part begin, in the package. ``libraries``: further files whose lines count.
    """
    count = 0

    def in_package(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if event == "line":
            count += 1
            if count == line:
                raise error
        return in_package

    def anywhere(frame: FrameType, *_: Any) -> Any:
        return in_package if frame.f_code.co_filename.startswith(parts) else None

    parts, before = (str(Path(PACKAGE, where)), *libraries), sys.gettrace()
    sys.settrace(anywhere)
    try:
        change()
    except error:
        return True
    finally:
        sys.settrace(before)
    return False


def can_be_entered(locks: Sequence[Any]) -> bool:
    """Return whether another thread can take the locks for writing."""
    entered = []

    def enter() -> None:
        with ExitStack() as stack:
            for lock in locks:
                stack.enter_context(lock.writing())
            entered.append(True)

    thread = threading.Thread(target=enter, daemon=True)
    thread.start()
    thread.join(20)
    return bool(entered)


def raise_at_every_line(
    make: Callable[[], list[Any]],
    change: Callable[..., Any],
    contents: Callable[[Any], Any],
    same: Callable[[Any, Any], bool],
    locks: Callable[[Any], Sequence[Any]],
    errors: Sequence[type[BaseException]],
    first: int,
    step: int,
) -> list[Any]:
    """Raise errors in turn at lines of a change, and check that objects are as before or as after it.

    ``make`` returns the objects that a change takes, ``contents`` what is compared of one, and
    ``locks`` its locks, which must be open. Return the objects after the whole change.
    """
    objects, changed = make(), make()
    before = [contents(one) for one in objects]
    change(*changed)
    after = [contents(one) for one in changed]
    assert not all(map(same, before, after))
    for line in itertools.count(first, step):
        raised = raises_at(line, errors[line % len(errors)], partial(change, *objects))
        assert can_be_entered([lock for one in objects for lock in locks(one)]), f"line {line}"
        seen = [contents(one) for one in objects]
        if not raised:
            assert line > 1
            assert all(map(same, seen, after))
            return objects
        if all(map(same, seen, after)):
            objects = make()
        else:
            assert all(map(same, seen, before)), f"line {line}: neither as before nor as after"
    raise AssertionError
