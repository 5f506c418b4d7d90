"""Members on the page of a class: our documented ones, without members of FAISS's and other base classes."""

import importlib
from collections.abc import Callable, Iterator
from typing import Any


def public_methods(module: str, qualified: str) -> list[str]:
    """Return the names of the methods that cfe_faiss defines for the class and that have a docstring."""
    return [
        name for name, member in _documented(module, qualified) if not isinstance(member, property)
    ]


def public_properties(module: str, qualified: str) -> list[str]:
    """Return the names of the properties that cfe_faiss defines and that the class's own docstring does not name."""
    text = _named(module, qualified).__doc__ or ""
    attributes = text.partition("Attributes\n")[2].split()
    return [
        name
        for name, member in _documented(module, qualified)
        if isinstance(member, property) and name not in {word.rstrip(",") for word in attributes}
    ]


def _named(module: str, qualified: str) -> Any:
    found: Any = importlib.import_module(module)
    for part in qualified.split("."):
        found = getattr(found, part)
    return found


def _documented(module: str, qualified: str) -> Iterator[tuple[str, Any]]:
    cls = _named(module, qualified)
    for name in dir(cls):
        if name.startswith("_"):
            continue
        owner = next(base for base in cls.__mro__ if name in vars(base))
        member = vars(owner)[name]
        if owner.__module__.startswith("cfe_faiss") and _has_text(member):
            yield name, member


def _has_text(member: Any) -> bool:
    if isinstance(member, property):
        return bool(member.fget and member.fget.__doc__)
    function: Callable[..., Any] | None = getattr(member, "__func__", member)
    return callable(function) and bool(function.__doc__)
