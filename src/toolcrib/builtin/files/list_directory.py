"""`list_directory`."""

from __future__ import annotations

from toolcrib.builtin.definition import Builtin, string
from toolcrib.builtin.site import Site
from toolcrib.spec import Annotations, CallContext, Example, Permissions


async def list_directory(site: Site, ctx: CallContext, path: str) -> str:
    """Return one line for each entry of a folder: type, size and name."""
    entries = await site.in_files(ctx, path, "read", lambda roots, place: roots.entries(place))
    return "".join(f"{one.kind:<6} {one.size:>8}  {one.name}\n" for one in entries)


BUILTIN = Builtin(
    name="list_directory",
    description="List the contents of a folder: one line an entry with its type, size in bytes and name.",
    properties={"path": string("The folder, relative to the workspace.")},
    run=list_directory,
    permissions=lambda settings: Permissions(read=settings.read),
    annotations=Annotations(read_only=True, idempotent=True, open_world=False),
    examples=[Example("List the workspace", {"path": "."})],
)
