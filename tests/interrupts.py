"""Errors at any line of the package, as an interrupt or too little memory brings them about."""

import sys
from collections.abc import Callable
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
