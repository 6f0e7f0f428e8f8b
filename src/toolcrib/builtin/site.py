"""The surroundings of a built-in tool."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from toolcrib.builtin.settings import BuiltinSettings
from toolcrib.errors import PermissionDenied
from toolcrib.executors.function.threads import run_in_thread
from toolcrib.executors.host import Host
from toolcrib.spec import CallContext, Caller, Tool

if TYPE_CHECKING:
    from toolcrib.sandbox import Roots
    from toolcrib.state import Database
    from toolcrib.state.artifacts import Artifacts

T = TypeVar("T")


class Outputs(Protocol):
    """Outputs of earlier calls that were too long to be returned."""

    @property
    def store(self) -> Artifacts:
        """All of them."""

    def readable(self, caller: str, identity: Caller | None) -> str | None:
        """Return the owner whose artifacts a caller may read; None for all."""


@dataclass(slots=True, eq=False)
class Site:
    """The surroundings of one built-in tool."""

    tool: Tool
    host: Host
    settings: BuiltinSettings
    database: Callable[[], Database] | None = None
    """Returns the project's database; None outside of a project."""
    outputs: Outputs | None = None
    """The artifacts of the project; None outside of one."""
    kept: dict[str, Any] = field(default_factory=dict)
    """The data that the tool keeps between its calls."""

    def option(self, name: str, default: Any = None) -> Any:
        """Return one option of the tool."""
        return self.settings.of(self.tool.name).get(name, default)

    def absolute(self, path: str) -> str:
        """Return an argument as an absolute path: relative ones begin in the first root, or in a named one.

        A root whose name is a path is found by that path too. The path is only put together here. It is
        opened, and checked, beneath the roots.
        """
        roots = self.settings.roots
        for root in roots:
            if root.name[:1] == "/" and f"{path}/".startswith(f"{root.name}/"):
                return root.path + path[len(root.name) :]
        name, colon, rest = path.partition(":")
        named = {root.name: root.path for root in roots}
        base = named[name] if colon and name in named else roots[0].path
        if colon and name in named:
            path = rest
        return str(Path(self.host.workspace().root, base, path))

    async def in_files(
        self, ctx: CallContext, path: str, access: Literal["read", "write"], work: Callable[[Roots, str], T]
    ) -> T:
        """Call `work` in a thread, with the open roots and the path in them.

        Raises PermissionDenied for a path outside (`path escapes sandbox`) or in a read-only folder.
        """
        from toolcrib.executors.file.granted import GrantedFiles

        if access == "write" and not self.tool.permissions.write:
            raise PermissionDenied(
                f"{self.tool.name} may write nowhere, because no folder in `roots` is writable",
                hint="To allow it, write `roots: {workspace: {path: ., write: true}}` in config.yml.",
            )
        # Roots are resolved once; each call opens them anew and stays beneath them.
        files: GrantedFiles | None = self.kept.get("files")
        if files is None:
            files = self.kept["files"] = GrantedFiles(self.tool, self.host.workspace())
        used = await run_in_thread(partial(files.use, self.absolute(path), access, work, shown=path))
        ctx.created += used.created
        value: T = used.value
        return value
