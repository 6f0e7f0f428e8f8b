"""A property that is made once, whichever thread of a program asks first."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from threading import RLock
from typing import Any, TypeVar

T = TypeVar("T")


class shared_property(cached_property[T]):  # noqa: N801 - a decorator, as `cached_property` is
    """A cached property that has a lock, as `functools.cached_property` has only up to Python 3.11.

    Without it two threads could make two, each with databases and a queue of its own.
    """

    def __init__(self, make: Callable[[Any], T]) -> None:
        super().__init__(make)
        self._making = RLock()

    def __get__(self, instance: object, owner: type[Any] | None = None) -> T:  # type: ignore[override]
        """Return the value, which is made first if there is none."""
        with self._making:
            return super().__get__(instance, owner)
