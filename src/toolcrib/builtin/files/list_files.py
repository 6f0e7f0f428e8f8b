"""`list_files`."""

from __future__ import annotations

from toolcrib.builtin.definition import Builtin, string
from toolcrib.builtin.site import Site
from toolcrib.spec import Annotations, CallContext, Example, Output, Permissions


async def list_files(site: Site, ctx: CallContext, path: str = ".") -> list[str]:
    """Return the names in a folder; those of folders end with a slash."""
    entries = await site.in_files(ctx, path, "read", lambda roots, place: roots.entries(place))
    return [f"{one.name}/" if one.kind == "dir" else one.name for one in entries]


BUILTIN = Builtin(
    name="list_files",
    description="List the contents of a folder as a JSON array of names. Names of folders end with `/`.",
    properties={
        "path": string(
            "The folder, relative to the workspace (default: the workspace itself, `.`).", default="."
        )
    },
    run=list_files,
    permissions=lambda settings: Permissions(read=settings.read),
    output=Output("json", {"type": "array", "items": {"type": "string"}}),
    annotations=Annotations(read_only=True, idempotent=True, open_world=False),
    examples=[Example("List the workspace", {})],
)
