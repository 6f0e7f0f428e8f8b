"""`write_file`."""

from __future__ import annotations

from toolcrib.builtin.definition import Builtin, string
from toolcrib.builtin.site import Site
from toolcrib.sandbox import Roots
from toolcrib.spec import Annotations, CallContext, Example, Permissions


async def write_file(site: Site, ctx: CallContext, path: str, content: str) -> str:
    """Write a file whole; missing folders are made."""
    data = content.encode()

    def write(roots: Roots, place: str) -> int:
        with roots.alone(place, mkdir=True):  # An edit that has read the file would undo this.
            return roots.write(place, data)

    count = await site.in_files(ctx, path, "write", write)
    return f"Successfully wrote {count} bytes to {path}"


BUILTIN = Builtin(
    name="write_file",
    description=(
        "Write content to a file. The file is created, or replaced as a whole if it exists;"
        " missing parent folders are created."
    ),
    properties={
        "path": string("The file, relative to the workspace."),
        "content": string("The whole new content."),
    },
    run=write_file,
    permissions=lambda settings: Permissions(read=settings.read, write=settings.write),
    annotations=Annotations(read_only=False, destructive=True, idempotent=True, open_world=False),
    examples=[Example("Write a file", {"path": "out/report.md", "content": "# Report\n"})],
)
