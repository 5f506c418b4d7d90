"""Values that are derived from an object when they are first asked for, once, whichever threads ask."""

from collections.abc import Callable
from functools import cached_property
from typing import Any, Self, TypeVar, overload

from cfe_faiss._native import ReadWriteLock

T = TypeVar("T")


def once(values: dict[Any, Any], key: Any, make: Callable[[], T]) -> T:
    """Return ``values[key]``, which the first caller makes while others wait. After an error the next one tries.

    Each value has its own lock, so one value may be made from another. A circle is a RuntimeError.
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
    """A ``functools.cached_property`` that several threads compute once, as Python 3.12 and later do not."""

    @overload
    def __get__(self, instance: None, owner: type[Any] | None = None) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type[Any] | None = None) -> T: ...
    def __get__(self, instance: object, owner: type[Any] | None = None) -> Self | T:
        if instance is None:
            return self
        return once(vars(instance), str(self.attrname), lambda: self.func(instance))
