"""Values derived from an object at first use, once, also if several threads ask."""

from collections.abc import Callable
from functools import cached_property
from typing import Any, Self, TypeVar, overload

from cfe_faiss._native import ReadWriteLock

T = TypeVar("T")


def once(values: dict[Any, Any], key: Any, make: Callable[[], T]) -> T:
    """Return ``values[key]``.

    The first caller makes it while others wait; after an error the next caller tries again.

    Each value has a separate lock, so one value may be made from another. A circle is a
    RuntimeError.
    """
    if key not in values:
        name = f"lock of {key!r}"
        with values.setdefault(name, ReadWriteLock()).writing():
            if key not in values:
                values[key] = make()
        values.pop(name, None)
    value: T = values[key]
    return value


class derived(cached_property[T]):  # noqa: N801 - a decorator
    """``functools.cached_property`` with a lock, which that of Python 3.12 and later lacks."""

    @overload
    def __get__(self, instance: None, owner: type[Any] | None = None) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type[Any] | None = None) -> T: ...
    def __get__(self, instance: object, owner: type[Any] | None = None) -> Self | T:
        if instance is None:
            return self
        return once(vars(instance), str(self.attrname), lambda: self.func(instance))
