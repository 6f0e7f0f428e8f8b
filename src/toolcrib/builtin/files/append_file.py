"""`append_file`."""

from __future__ import annotations

from toolcrib.builtin.definition import Builtin, string
from toolcrib.builtin.site import Site
from toolcrib.sandbox import Roots
from toolcrib.spec import Annotations, CallContext, Example, Permissions


async def append_file(site: Site, ctx: CallContext, path: str, content: str) -> str:
    """Append to a file that exists."""
    data = content.encode()

    def append(roots: Roots, place: str) -> int:
        with roots.alone(place):  # An edit at the same time would write the file without this.
            return roots.write(place, data, append=True)

    count = await site.in_files(ctx, path, "write", append)
    return f"Successfully appended {count} bytes to {path}"


BUILTIN = Builtin(
    name="append_file",
    description="Append content to the end of an existing file. Use write_file to create one.",
    properties={
        "path": string("The file, relative to the workspace; it must exist."),
        "content": string("The text to append, with its own line breaks."),
    },
    run=append_file,
    permissions=lambda settings: Permissions(read=settings.read, write=settings.write),
    annotations=Annotations(read_only=False, destructive=False, idempotent=False, open_world=False),
    examples=[Example("Append a line", {"path": "notes/log.md", "content": "- done\n"})],
)
