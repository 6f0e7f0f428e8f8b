"""Bundles whose tools come from elsewhere: a project, an MCP server, the program itself.

Nobody changes such a tool here: only its switch, and that of its bundle. Each source keeps them itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from toolcrib.bundles.answers import Source
from toolcrib.bundles.records import BundleRecord, ToolRecord
from toolcrib.errors import BuiltInReadOnly, BundleReadOnly, DeniedError

Order = tuple[str, str, str, str]
"""`createdAt` and id: what was made last comes last. Bundle and file too: copies by hand have the same id."""


# No `gc`: it holds no cycles, and a collection need not walk 100,000 of them.
class ListedTool(Struct, frozen=True, gc=False, array_like=True):
    """The part of a tool that lists, filters and search need, of whatever source."""

    bundle: str
    file: str
    id: str
    slug: str
    version: str
    name: str
    description: str
    """Empty where `full` is given, as `arguments` are: what is searched of it is read by the search."""
    type: str
    kind: str
    """The kind of the tool: `http`, `function`, or that of the manifest."""
    enabled: bool
    created: str
    modified: str
    tags: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    translated: tuple[tuple[str, str], ...] = ()
    """Its name and description in each other language of a record."""
    function: str = ""
    """The function of the program that a record calls; empty for other kinds."""
    mark: int = 0
    """`Store.mark` of its file when it was read."""
    fault: str = ""
    """The reason why it cannot be read; empty for a whole one."""
    full: str = ""
    """The name to call it by; empty for a record of the store, which is named by its bundle."""

    @property
    def order(self) -> Order:
        """Its place in lists."""
        return self.created, self.id, self.bundle, self.file

    @property
    def key(self) -> str:
        """Its bundle and file as one text."""
        return f"{self.bundle}/{self.file}"


class SourceBundle(Protocol):
    """One source as a bundle."""

    id: str
    slug: str
    name: str
    """The name of the source, as the policy knows the bundle of its tools."""
    source: Source

    @property
    def revision(self) -> object:
        """A value that differs once `bundle` or `listed` may do so."""

    def bundle(self) -> BundleRecord:
        """Return its record."""

    def listed(self) -> Sequence[ListedTool]:
        """Return its tools."""

    def find(self, slug: str, version: str) -> ListedTool | None:
        """Return the tool at an address; None if there is none."""

    def record(self, tool: ListedTool) -> ToolRecord:
        """Return one of them whole. Raises ManifestError for one that cannot be read."""

    def switch(self, tool: ListedTool | None, *, enabled: bool, by: str) -> None:
        """Turn a tool on or off; None: the bundle."""


def read_only(bundle: BundleRecord) -> DeniedError:
    """Return the error of a change of a source."""
    if bundle.is_built_in:
        text, kind = f"the bundle {bundle.slug} is built in", BuiltInReadOnly
        return kind(text, hint="Only `isEnabled` of a built-in bundle can be changed.")
    return BundleReadOnly(
        f"the tools of {bundle.slug} are defined by their source, not by a record",
        hint="Change them there, or put a record into a bundle of your own; `isEnabled` can be changed here.",
    )
