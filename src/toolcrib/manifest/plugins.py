"""Records that are found by name: built-in ones through a table, third-party ones through entry points.

Both are `module:attribute` strings, imported when the name is first asked for. That is how a lower layer
reaches records in a higher one without knowing it, and why starting costs nothing for what is not used.
Installed packages are searched only for names that are not built in, once per process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache, cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from toolcrib.errors import ConfigError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

R = TypeVar("R")


def on_use(target: str) -> Callable[[], Any]:
    """Return a function that returns `module:attribute`, and imports it when it is first called."""

    @cache
    def found() -> Any:
        module, _, attribute = target.partition(":")
        return getattr(import_module(module), attribute)

    return found


def on_call(target: str) -> Callable[..., Any]:
    """Return a function that calls `module:attribute`, and imports it when it is first called."""
    found = on_use(target)

    def call(*args: Any, **kwargs: Any) -> Any:
        return found()(*args, **kwargs)

    return call


class Registry(Generic[R]):
    """The records of one entry point group, by name. `table` holds the built-in ones."""

    def __init__(self, group: str, record: type[R], table: Mapping[str, str]) -> None:
        self._group = group
        self._record = record
        self._table = table
        self._loaded: dict[str, R] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._table or name in self._installed

    def __getitem__(self, name: str) -> R:
        record = self._loaded.get(name) or self.get(name)
        if record is None:
            raise KeyError(name)
        return record

    def get(self, name: str) -> R | None:
        """Return the record of that name, or None. Raises ConfigError for a broken plug-in."""
        record = self._loaded.get(name)
        if record is None and name in self._table:
            record = self._loaded[name] = on_use(self._table[name])()
        if record is None and name in self._installed:
            record = self._loaded[name] = self._load(self._installed[name])
        return record

    def is_builtin(self, name: str) -> bool:
        """Return True if Toolcrib itself brings the record."""
        return name in self._table

    @property
    def builtin(self) -> Iterator[R]:
        """The built-in records, in the order of the table."""
        return (self[name] for name in self._table)

    @property
    def used(self) -> Iterator[R]:
        """The built-in records, and the installed ones that have been asked for."""
        yield from self.builtin
        yield from [record for name, record in self._loaded.items() if name not in self._table]

    @property
    def installed(self) -> Iterator[R]:
        """The records of installed packages. Raises ConfigError for a broken plug-in."""
        return (self[name] for name in self._installed)

    def names(self) -> tuple[str, ...]:
        """Return the names of all records, the built-in ones first."""
        return (*self._table, *self._installed)

    @cached_property
    def _installed(self) -> dict[str, EntryPoint]:
        from importlib.metadata import entry_points

        found: dict[str, EntryPoint] = {}
        # Listed without importing any: a broken package only matters to who asks for it.
        for point in entry_points(group=self._group):
            if point.name in self._table:
                raise self._clash(point, "Toolcrib itself")
            if point.name in found and found[point.name].value != point.value:
                raise self._clash(point, _package(found[point.name]))
            found[point.name] = point
        return found

    def _clash(self, point: EntryPoint, other: str) -> ConfigError:
        return ConfigError(
            f"{_package(point)} and {other} both define {point.name!r} in {self._group}",
            hint="Uninstall one of the two, or rename the entry point.",
        )

    def _load(self, point: EntryPoint) -> R:
        where = f"the plug-in {point.name!r} of {_package(point)} ({self._group})"
        try:
            record = point.load()
        except Exception as error:
            raise ConfigError(
                f"{where} cannot be loaded: {point.value}: {type(error).__name__}: {error}",
                hint="Repair or uninstall the package.",
            ) from error
        if not isinstance(record, self._record) or getattr(record, "name", None) != point.name:
            raise ConfigError(
                f"{where} is not a {self._record.__name__} named {point.name!r}",
                hint=f"The entry point must name a {self._record.__name__} whose `name` is {point.name!r}.",
            )
        return record


def _package(point: EntryPoint) -> str:
    return f"the package {point.dist.name}" if point.dist is not None else "an installed package"
