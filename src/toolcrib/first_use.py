"""Names of a package that are imported when they are first used, because most programs need few of them."""

from collections.abc import Callable, Mapping
from importlib import import_module
from sys import modules
from typing import Any


def imported_on_use(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package: `homes` are its modules, with the names that each has.

    The same imports stand below `if TYPE_CHECKING` there, for type checkers and for the check of the layers.
    """
    by_name = {name: home for home, names in homes.items() for name in names.split()}

    def load(name: str) -> Any:
        if name not in by_name:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{by_name[name]}"), name)
        setattr(modules[package], name, value)
        return value

    return load
