"""`artifact_read`."""

from __future__ import annotations

from typing import Any

from toolcrib.builtin.definition import Builtin, integer, string
from toolcrib.builtin.files.text import AROUND, text_part
from toolcrib.builtin.site import Site
from toolcrib.errors import ToolUnavailable
from toolcrib.executors.function.threads import run_in_thread
from toolcrib.spec import Annotations, CallContext, Example, Limits, Outcome
from toolcrib.spec.calls.content import Content, content_of, is_binary

MAX_BYTES = 50_000
MAX_BINARY = 1024 * 1024
"""Bytes of binary data that are returned; a larger artifact is a link."""


async def artifact_read(
    site: Site,
    ctx: CallContext,
    id: str,  # noqa: A002 - the name of the argument
    offset: int = 0,
    limit: int = MAX_BYTES,
) -> Outcome:
    """Return a part of a text artifact, or the whole of any other as a content block."""
    outputs = site.outputs
    if outputs is None:
        raise ToolUnavailable("artifact_read needs a project, which keeps the artifacts")
    owner = outputs.readable(ctx.caller, getattr(ctx, "identity", None))

    def read() -> Outcome:
        found = outputs.store.get(id, owner)
        details: dict[str, Any] = {"bytes": found.size, "mediaType": found.media_type}
        data = outputs.store.read(id, owner, offset, limit)
        if is_binary(data, found.media_type) and found.size > MAX_BINARY:
            return Outcome(Content.link(found.uri, found.id, found.media_type), (), details)
        if is_binary(data, found.media_type):
            whole = outputs.store.read(id, owner)
            return Outcome(content_of(whole, found.media_type, found.uri), (), details)
        end = offset + len(data)
        more = end < found.size
        before = outputs.store.read(id, owner, max(0, offset - AROUND), min(offset, AROUND))
        part = text_part(data, offset, head=b"", before=before, more=more)
        text, end = part.text, part.end
        if more:
            text += (
                f"\n[cut: bytes {part.begin:,} to {end:,} of {found.size:,}."
                f" To read on, call artifact_read with id={id} and offset={end}.]"
            )
        return Outcome(text, part.warnings, details)

    outcome: Outcome = await run_in_thread(read)
    return outcome


BUILTIN = Builtin(
    name="artifact_read",
    description=(
        "Read the whole output of an earlier call that was too long to be returned, part by part."
        " The cut output names the artifact's id."
    ),
    properties={
        "id": string("The id of the artifact."),
        "offset": integer("First byte (default 0).", minimum=0, default=0),
        "limit": integer(
            "Bytes to return at most (default and maximum 50000).",
            minimum=1,
            maximum=MAX_BYTES,
            default=MAX_BYTES,
        ),
    },
    run=artifact_read,
    annotations=Annotations(read_only=True, idempotent=True, open_world=False),
    limits=Limits(output_bytes=MAX_BYTES + 1_000),
    resource="toolcrib://artifacts/{id}",
    examples=[Example("Read on", {"id": "0197a2b4-0000-7000-8000-000000000000", "offset": 50_000})],
)
