"""Imports of optional dependencies, with an error that names the extra to install."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Wrap the imports that need the extra ``name`` ("gnn", "plot", ...).

    Raises
    ------
    ImportError
        If a module is missing; the message has the ``pip install`` command.
    """
    try:
        with warnings.catch_warnings():
            # PyG applies torch.jit.script to its classes at import, which newer torch deprecates.
            warnings.filterwarnings("ignore", message="`torch.jit.script` is deprecated", category=DeprecationWarning)
            yield
    except ModuleNotFoundError as error:
        module = (error.name or "a module").partition(".")[0]
        raise ImportError(f'{module} is missing: pip install "cfe-faiss[{name}]"', name=module) from error
