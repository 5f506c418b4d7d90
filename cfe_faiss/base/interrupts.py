"""Ctrl-C on the command line: one line on standard error and exit status 130, at any moment.

The package imports this module first, and this module nothing that takes time.
"""

from __future__ import annotations

import os
import sys

STATUS = 130
"""Exit status after an interrupt."""
LINE = "cfe-faiss: interrupted\n"
"""Message after an interrupt."""


class Interrupts:
    """State of the command line between its start and its end.

    Attributes
    ----------
    raises
        Whether an interrupt raises KeyboardInterrupt, so that code in progress cleans up. Otherwise
        it ends the process at once, as during imports, which turn that error into others.
    raised
        Whether it has done so. The second interrupt ends the process.
    """

    raises = False
    raised = False


def is_command_line() -> bool:
    """Return whether this process is the command ``cfe-faiss``."""
    command = sys.argv[0] if sys.argv else ""
    # pathlib takes time to import.
    name, _ = os.path.splitext(os.path.basename(command))  # noqa: PTH119, PTH122
    # While Python looks for the module of -m, which imports this package, the command is "-m"
    # itself.
    return name == "cfe-faiss" or (command == "-m" and "cfe_faiss" in sys.orig_argv)


def _end() -> None:
    """End the process. Files that are being written have no names yet."""
    try:
        os.write(2, LINE.encode())
    finally:
        os._exit(STATUS)


try:
    import signal  # 5 ms
except KeyboardInterrupt:
    if is_command_line():
        _end()
    raise


def ignore_interrupts() -> None:
    """Ignore interrupts while the interpreter of the command ends."""
    if signal.getsignal(signal.SIGINT) is _interrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        # Python ends by the signal after KeyboardInterrupt has left an evaluated text, until
        # another one is evaluated.
        eval("0")


def _interrupt(*_: object) -> None:
    if not Interrupts.raises or Interrupts.raised:
        _end()
    Interrupts.raised = True
    raise KeyboardInterrupt


def _report(unraisable: sys.UnraisableHookArgs) -> None:
    """End the process if an interrupt was raised where nothing can catch it.

    A destructor is such a place.
    """
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        _end()
    sys.__unraisablehook__(unraisable)


if is_command_line() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, _interrupt)
    sys.unraisablehook = _report
