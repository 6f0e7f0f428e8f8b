"""Everything that waits for trust, in groups with counts, so that a hundred tools are a few lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from toolcrib.manifest import kind_of
from toolcrib.manifest.touches import hosts
from toolcrib.project.integrity.fingerprints import FileUse
from toolcrib.project.trust.sheets import TrustSheet
from toolcrib.spec import Tool
from toolcrib.spec.naming import printable

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
