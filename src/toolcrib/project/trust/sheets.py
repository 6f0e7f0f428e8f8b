"""Tools, agents and workflows as they are shown to the person who trusts them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field
from typing import Any, Literal

from toolcrib.guard import ToolDigest, Trusted, shown
from toolcrib.spec import Tool
from toolcrib.spec.record import record

Status = Literal["trusted", "changed", "new"]
STATUS: dict[Status, str] = {
    "new": "not trusted yet",
    "changed": "changed since it was trusted",
    "trusted": "trusted",
}
SHORT = 12
"""Digits of a digest that are shown to a person."""


@record
class TrustSheet:
    """One tool, agent or workflow as it is shown to the person who trusts it."""

    tool: Tool
    subject: str
    digest: ToolDigest
    status: Status
    last: Trusted | None
    """Its version that was trusted last."""
    touches: list[str]
    """Everything that it may touch, in words."""
    reasons: tuple[str, ...]
    """Things that it may change or reach, in words; empty for a tool that only reads inside the project."""
    maker: str | None
    """The agent that made it."""
    waits: bool
    """True if it does not run before a person trusts it."""
    manifest: Callable[[], list[str]] = field(default=list, compare=False, repr=False)
    """Returns its manifest line by line, as a difference where an earlier one was trusted."""
    code: Callable[[], list[str]] = field(default=list, compare=False, repr=False)
    """Returns its scripts and modules that are new or have changed, line by line, with secrets masked.

    Of a tool that calls others also theirs, with their manifests.
    """

    @property
    def parts(self) -> dict[str, str]:
        """The parts that trust covers: those of the digest, and if each call needs approval."""
        return {**self.digest.parts, **({"approval": "required"} if self.tool.approval.required else {})}

    @property
    def changed(self) -> list[str]:
        """Names of the parts that have changed since it was trusted: `manifest`, `files/run.sh`, …"""
        if self.last is None:
            return []
        return ToolDigest(self.digest.digest, self.parts).changed_since(self.last.shown.get("parts", {}))

    @property
    def row(self) -> Trusted:
        """The row of the ledger that trusts exactly this."""
        tool = self.tool
        listed = {
            "description": tool.description,
            "input_schema": tool.input_schema,
            "output_schema": tool.output.schema,
        }
        source = "" if tool.source is None else tool.source.sha256
        facts = {"parts": self.parts, "listed": listed}
        return Trusted(self.subject, self.digest.digest, source, facts, tool.bundle)

    def lines(self) -> Iterator[str]:
        """Yield the lines for the person who trusts it, without control characters."""
        tool, last = self.tool, self.last
        yield f"{shown(tool.name)}: {STATUS[self.status]}"
        if self.maker is not None:
            yield f"  made by the agent {shown(self.maker)}"
        yield f"  digest: {self.digest.digest[:SHORT]}"
        for line in self.touches:
            yield f"  may touch: {_flat(line)}"
        if last is not None and self.status == "changed":
            yield f"  last trusted by {shown(last.by)}: {last.digest[:SHORT]}"
            yield f"  changed since then: {_flat(', '.join(self.changed))}"
        if self.status != "trusted":
            yield from self.files()

    def files(self) -> Iterator[str]:
        """Yield the manifest and the code, whole or as differences."""
        yield from (f"  {_flat(line)}" for line in (*self.manifest(), *self.code()))

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        last = self.last
        return {
            "name": self.tool.name,
            "status": self.status,
            "digest": self.digest.digest,
            "permissions": self.tool.permissions.as_json(),
            "touches": self.touches,
            "reasons": list(self.reasons),
            "maker": self.maker,
            "trustedBy": None if last is None else last.by,
            "lastDigest": None if last is None else last.digest,
            "changed": self.changed,
            "diff": "" if self.status == "trusted" else "\n".join((*self.manifest(), *self.code())),
        }


def _flat(text: str) -> str:
    return shown(text).replace("\n", "\\n")
