"""`read_file`."""

from __future__ import annotations

from mimetypes import guess_type

from toolcrib.builtin.definition import Builtin, integer, string
from toolcrib.builtin.files.text import AROUND, is_odd_text, text_part
from toolcrib.builtin.site import Site
from toolcrib.executors.output import redactor_of
from toolcrib.sandbox import FilePart, Roots
from toolcrib.spec import Annotations, CallContext, Example, Limits, Outcome, Permissions
from toolcrib.spec.calls.content import content_of, is_binary

MAX_BYTES = 100_000


async def read_file(
    site: Site, ctx: CallContext, path: str, offset: int = 0, limit: int = MAX_BYTES
) -> Outcome:
    """Return a part of a text file, and say how to continue if there is more."""
    start = max(0, offset - AROUND)

    def read(roots: Roots, place: str) -> tuple[bytes, FilePart]:
        content = roots.read(place, start, max(offset - start + limit, AROUND))
        return content.data if start == 0 else roots.read(place, 0, AROUND).data, content

    head, content = await site.in_files(ctx, path, "read", read)
    before, data = content.data[: offset - start], content.data[offset - start :][:limit]
    end, media_type = offset + len(data), guess_type(path)[0] or ""
    if is_binary(data, media_type) and not is_odd_text(head, data, media_type):
        block = content_of(data, media_type)
        warnings = () if end == content.total and not offset else ("only a part of the file is returned",)
        return Outcome(block, warnings, {"bytes": content.total})
    more = end < content.total
    part = text_part(data, offset, head=head, before=before, more=more, redactor=redactor_of(ctx))
    # Nothing whole fits into the limit: the caller would be sent back to the same offset forever.
    if more and part.end <= offset:
        return await read_file(site, ctx, path, offset, 2 * limit)
    text = part.text
    if more:
        text += (
            f"\n[cut: bytes {part.begin:,} to {part.end:,} of {content.total:,}."
            f" To read on, call again with offset={part.end}.]"
        )
    return Outcome(text, part.warnings, {"bytes": content.total})


BUILTIN = Builtin(
    name="read_file",
    description=(
        "Read the contents of a text file. At most 100 KB are returned at a time;"
        " the text then ends with the offset to continue at."
    ),
    properties={
        "path": string("The file, relative to the workspace."),
        "offset": integer("First byte, from 0 (default 0).", minimum=0, default=0),
        "limit": integer(
            "Bytes to return at most (default and maximum 100000).",
            minimum=1,
            maximum=MAX_BYTES,
            default=MAX_BYTES,
        ),
    },
    run=read_file,
    permissions=lambda settings: Permissions(read=settings.read),
    annotations=Annotations(read_only=True, idempotent=True, open_world=False),
    limits=Limits(output_bytes=MAX_BYTES + 1_000),
    examples=[Example("Read a file", {"path": "notes/todo.md"})],
)
