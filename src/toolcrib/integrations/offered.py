"""A list of tools in the form of one provider, and calls by the names in it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from toolcrib.builtin.names import READER
from toolcrib.errors import DefinitionError
from toolcrib.schema.provider_shapes import Shape, shape_tools
from toolcrib.spec import Call, Result
from toolcrib.spec.views import text_view

if TYPE_CHECKING:
    from toolcrib.core.toolset import Toolset
    from toolcrib.project import Project


ToolProvider: TypeAlias = "Toolset | Project"


@contextmanager
def imported_from(package: str) -> Iterator[None]:
    """Name the command that installs a package, if what is imported inside is missing."""
    try:
        yield
    except ImportError as error:
        # `ModuleNotFoundError` or `ImportError`, as Python has raised it.
        raise type(error)(
            f"this needs the package {package} ({error}); install it: "
            f"{sys.executable} -m pip install --upgrade {package}",
            name=error.name,
        ) from None


class Offered:
    """The tools of a source as they are now, in one of `provider_shapes.SHAPES`.

    `caller` is the name that rules and the audit log know. Raises `DefinitionError` if a tool cannot be
    described in this form, so that none is missing unnoticed.
    """

    def __init__(self, source: ToolProvider, shape: Shape, caller: str) -> None:
        self._source = source
        self._caller = caller
        shaped = shape_tools(source.tools(caller), shape)
        for name, reason in shaped.refused.items():
            raise DefinitionError(f"{name}: {reason}", hint="Leave it out: `tools.filter(…)`.")
        self.entries, self._names = shaped.entries, shaped.names

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Result:
        """Call a tool by its name in the list."""
        return await self._source.invoke(self._call(name, arguments))

    def call_sync(self, name: str, arguments: Mapping[str, Any]) -> Result:
        """Do the same, for code without `await`."""
        return self._source.invoke_sync(self._call(name, arguments))

    def _call(self, name: str, arguments: Mapping[str, Any]) -> Call:
        return Call(self._names[name], arguments, self._caller)

    def shown(self, result: Result) -> str:
        """Return the text for the model, of an error too."""
        return text_view(result, reader=READER in self._names)

    async def text(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Call a tool and return the text for the model, of an error too."""
        return self.shown(await self.call(name, arguments))
