"""`read_file`."""

from __future__ import annotations

from toolcrib.builtin.definition import Builtin
from toolcrib.builtin.site import Site
from toolcrib.executors.output import uncut
from toolcrib.spec import Annotations, CallContext, Example, Limits, Outcome, Permissions

__all__ = ["BUILTIN"]

MAX_BYTES = 100_000


async def read_file(
    site: Site, ctx: CallContext, path: str, offset: int = 0, limit: int = MAX_BYTES
) -> Outcome:
    """Return a part of a text file, and say how to continue if there is more."""
    content = await site.in_files(path, "read", lambda roots, place: roots.read(place, offset, limit))
    data, end = content.data, offset + len(content.data)
    more = end < content.total
    if more:  # Never half a character, and never half a secret.
        data = _whole(uncut(ctx, data))
        end = offset + len(_whole(content.data))
    text = data.decode(errors="replace")
    warnings = () if b"\xef\xbf\xbd" in data or "\ufffd" not in text else (f"{path} is not UTF-8 text",)
    if more:
        text += (
            f"\n[cut: bytes {offset:,} to {end:,} of {content.total:,}."
            f" To read on, call again with offset={end}.]"
        )
    return Outcome(text, warnings, {"bytes": content.total})


def _whole(data: bytes) -> bytes:
    """Return the data without a character that is cut off at its end."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 != 0x80:
            width = 1 if byte < 0x80 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return data[:-back] if width > back and len(data) > back else data
    return data


BUILTIN = Builtin(
    name="read_file",
    description=(
        "Read the contents of a text file. At most 100 KB are returned at a time;"
        " the text then ends with the offset to continue at."
    ),
    properties={
        "path": {"type": "string", "description": "The file, relative to the workspace."},
        "offset": {
            "type": "integer",
            "minimum": 0,
            "default": 0,
            "description": "First byte, from 0 (default 0).",
        },
        "limit": {
            "type": "integer",
            "minimum": 1,
            "maximum": MAX_BYTES,
            "default": MAX_BYTES,
            "description": "Bytes to return at most (default and maximum 100000).",
        },
    },
    required=["path"],
    run=read_file,
    permissions=lambda settings: Permissions(read=settings.read),
    annotations=Annotations(read_only=True, idempotent=True, open_world=False),
    limits=Limits(output_bytes=MAX_BYTES + 1_000),
    examples=[Example("Read a file", {"path": "notes/todo.md"})],
)
