"""Long outputs and binary data of calls, kept as artifacts: what is returned says where the whole is."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from toolcrib.builtin.names import READER
from toolcrib.core.context import Context
from toolcrib.spec import Caller, Result
from toolcrib.spec.calls.binary import data_of
from toolcrib.spec.calls.caller import OWN_CALLERS
from toolcrib.spec.calls.content import Content
from toolcrib.spec.views import TEXT_LIMIT, value_text
from toolcrib.state import Artifact, Artifacts, Vault

_FOLDER = "artifacts"
_INLINE_BYTES = 1024 * 1024
"""Bytes of an image or a sound that are returned in the result itself."""


def owner_of(caller: str, identity: Caller | None) -> str:
    """Return the name under which a caller's artifacts are kept."""
    # A client chooses its own name, so another one could take it; nobody can forge the token's.
    if identity is not None:
        return f"token:{identity.name}"
    return "local" if caller in OWN_CALLERS else caller


class KeptOutputs:
    """Keeps what a result cannot hold. `began` is called whenever an output was kept."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault
        self.began: Callable[[], None] = lambda: None

    @property
    def exist(self) -> bool:
        """True once any process has kept an output."""
        return (self._vault.path / _FOLDER).is_dir()

    @cached_property
    def store(self) -> Artifacts:
        """The artifacts of the project."""
        return Artifacts(self._vault.folder / _FOLDER)

    def readable(self, caller: str, identity: Caller | None) -> str | None:
        """Return the owner whose artifacts a caller may read; None for this machine's own user: all."""
        return None if identity is None and caller in OWN_CALLERS else owner_of(caller, identity)

    def keep(self, ctx: Context, result: Result) -> None:
        """Keep the output of a call if it is longer than its text view, and binary data in any case."""
        if ctx.tool == READER and ctx.bound.tool.is_builtin:
            return  # It is kept already.
        if result.blocks:
            self._keep_blocks(ctx, result)
            return
        value = result.value
        limit = result.text_limit or TEXT_LIMIT
        if value is None or value.__class__ in (bool, int, float):
            return
        # A character has at most four bytes in UTF-8.
        if value.__class__ is str and len(value) * 4 <= limit:
            return
        # The path has masked the value before this step, so no secret gets into the file.
        data = value_text(value).encode("utf-8", "replace")
        if len(data) > limit:
            media_type = "text/plain" if isinstance(value, str) else "application/json"
            artifact = self._put(ctx, result, data, media_type)
            result.details = {**(result.details or {}), "artifact": artifact.as_json()}

    def _keep_blocks(self, ctx: Context, result: Result) -> None:
        """Keep the data of all blocks; what is too large to be returned becomes a link to it."""
        blocks, kept = list(result.blocks), []
        is_value = result.value == {"content": blocks}
        for number, block in enumerate(blocks):
            found = data_of(block)
            if found is None:
                continue
            data, media_type = found
            artifact = self._put(ctx, result, data, media_type or "application/octet-stream")
            kept.append(artifact.as_json())
            if len(data) > (TEXT_LIMIT if block["type"] == "resource" else _INLINE_BYTES):
                link = Content.link(artifact.uri, artifact.id, artifact.media_type)
                blocks[number] = {**link.block, "size": len(data)}
            elif block["type"] == "resource":
                blocks[number] = {**block, "resource": {**block["resource"], "uri": artifact.uri}}
        if kept:
            result.blocks = tuple(blocks)
            if is_value:
                result.value = {"content": blocks}
            result.details = {**(result.details or {}), "artifacts": kept}

    def _put(self, ctx: Context, result: Result, data: bytes, media_type: str) -> Artifact:
        owner = owner_of(ctx.caller, ctx.identity)
        artifact = self.store.put(
            data, media_type, tool=ctx.tool, call_id=result.call_id or ctx.call_id, caller=owner
        )
        self.began()
        return artifact
