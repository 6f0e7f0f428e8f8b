"""Tools, agents and workflows as they are shown to the person who trusts them: alone, and in groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from typing import Any, Literal

from toolcrib.guard import ToolDigest, Trusted, shown
from toolcrib.manifest import kind_of
from toolcrib.manifest.touches import hosts
from toolcrib.project.integrity.fingerprints import FileUse
from toolcrib.spec import Tool
from toolcrib.spec.naming import printable
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


SHOWN = 5
"""Names or details that a line shows; it counts the others."""
_GROUPS = 8
"""Groups that are shown by what exactly they may touch; more are shown by the kind of it."""
_LONGEST = 180
"""Characters of a line: about two lines of a terminal."""
_KINDS = {
    "network: ": "reach hosts",
    "write ": "write files",
    "secret ": "take secrets",
    "environment variable ": "read variables",
    "code:": "run values of a call as code",
    "run ": "run programs or other tools",
}
"""Beginnings of reasons to the words for all of their kind."""
_VERBS = {
    "network: ": "reach ",
    "secret ": "take the secret ",
    "environment variable ": "read the variable ",
    "code: values of a call may be run as code": "run values of a call as code",
}
"""Beginnings of reasons that are no verbs to what stands for them after `may`."""


def lines_of(sheets: Sequence[TrustSheet]) -> Iterator[str]:
    """Yield a line for each group of tools, agents and workflows, those that act first."""
    yield from _http([one for one in sheets if one.reasons and _sends(one.tool)])
    yield from _acting([one for one in sheets if one.reasons and not _sends(one.tool)])
    quiet = [one for one in sheets if not one.reasons]
    if quiet:
        reads = "only reads" if len(quiet) == 1 else "only read"
        yield cut(f"{_counted(quiet)} {reads} in the project{_which(quiet)}")


def folded(parts: Iterable[str], most: int = SHOWN) -> str:
    """Return the first parts, and how many more there are."""
    every = list(dict.fromkeys(parts))
    more = len(every) - most
    # One more is as short as its name.
    return ", ".join(every if more <= 1 else [*every[:most], f"and {more} more"])


def cut(line: str) -> str:
    """Return a line that fits on two lines of a terminal, without control characters."""
    line = printable(line).replace("\n", "\\n")
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"


def _http(sheets: Sequence[TrustSheet]) -> Iterator[str]:
    """Yield a line for each host that HTTP tools reach, with how many read and how many write."""
    by_host: dict[str, list[TrustSheet]] = {}
    for one in sheets:
        by_host.setdefault(", ".join(hosts(one.tool)), []).append(one)
    for host, group in by_host.items():
        reads = sum(_only_reads(one.tool) for one in group)
        writes = len(group) - reads
        tools = "HTTP tool" if len(group) == 1 else "HTTP tools"
        does = [f"{number} {word}" for number, word in ((reads, "read"), (writes, "write")) if number]
        text = f"{len(group)} {tools} of {host}: {', '.join(does)}"
        more = [line for one in group for line in one.reasons if not line.startswith("network")]
        text += f"; {folded(more)}" if more else ""
        yield cut(text + _which(group))


def _acting(sheets: Sequence[TrustSheet]) -> Iterator[str]:
    groups: dict[tuple[str, ...], list[TrustSheet]] = {}
    for one in sheets:
        groups.setdefault((_noun(one), *one.reasons), []).append(one)
    if len(groups) > _GROUPS:
        groups = {}
        for one in sheets:
            groups.setdefault((_noun(one), *_kinds(one.reasons)), []).append(one)
        for (_, *kinds), group in groups.items():
            exact = folded(line for one in group for line in one.reasons)
            yield cut(f"{_counted(group)} may {', '.join(kinds)} ({exact}){_which(group)}")
        return
    for (_, *reasons), group in groups.items():
        yield cut(f"{_counted(group)} may {'; '.join(map(_does, reasons))}{_which(group)}")


def _does(reason: str) -> str:
    """Return a reason as it reads after `may`."""
    start = next((one for one in _VERBS if reason.startswith(one)), "")
    return _VERBS.get(start, "") + reason.removeprefix(start)


def _kinds(reasons: Sequence[str]) -> list[str]:
    """Return the kinds of what reasons allow, each once and in a fixed order."""
    found = [words for start, words in _KINDS.items() if any(one.startswith(start) for one in reasons)]
    other = any(not one.startswith(tuple(_KINDS)) for one in reasons)
    return [*found, *(["more"] if other else [])]


def _which(group: Sequence[TrustSheet]) -> str:
    """Return the names of a group, and what has changed in them."""
    made = [one.tool.name for one in group if one.maker is not None]
    changed = [one for one in group if one.status == "changed"]
    text = f": {folded(_names(group))}"
    if changed:
        parts = folded((part for one in changed for part in one.changed), 3)
        which = "changed" if len(changed) == len(group) else f"{len(changed)} changed"
        text += f" ({which}: {parts})"
    return text + (f" (made by an agent: {folded(made)})" if made else "")


def _names(sheets: Iterable[TrustSheet]) -> list[str]:
    return [one.tool.name for one in sheets]


def _noun(sheet: TrustSheet) -> str:
    return sheet.tool.kind if isinstance(sheet.tool.config, FileUse) else f"{sheet.tool.kind} tool"


def _counted(sheets: Sequence[TrustSheet]) -> str:
    """Return how many there are of each kind: `3 tools`, `1 command tool`, `1 agent`."""
    nouns = {_noun(one) for one in sheets}
    noun = nouns.pop() if len(nouns) == 1 else "tool"
    return f"{len(sheets)} {noun}" + ("" if len(sheets) == 1 else "s")


def _sends(tool: Tool) -> bool:
    return not isinstance(tool.config, FileUse) and bool(kind_of(tool).url(tool.config))


def _only_reads(tool: Tool) -> bool:
    if tool.annotations.read_only is not None:
        return tool.annotations.read_only
    return bool(kind_of(tool).annotations(tool.config).read_only)
