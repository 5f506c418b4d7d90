"""Imports of optional dependencies, with an error that names the extra to install.

``pd`` is pandas, which is loaded at its first use.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

__all__ = ["extra", "pd"]


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
            warnings.filterwarnings(
                "ignore", message="`torch.jit.script` is deprecated", category=DeprecationWarning
            )
            yield
    except ModuleNotFoundError as error:
        module = (error.name or "a module").partition(".")[0]
        raise ImportError(
            f'{module} is missing: pip install "cfe-faiss[{name}]"', name=module
        ) from error


class _LoadedAtFirstUse(ModuleType):
    """Module of the extra "audit", which has the attributes of the module with its name."""

    def __getattr__(self, name: str) -> Any:
        with extra("audit"):
            module = import_module(self.__name__)
        vars(self)[name] = getattr(module, name)
        return vars(self)[name]


if TYPE_CHECKING:
    import pandas as pd
else:
    pd = _LoadedAtFirstUse("pandas")
