"""First use: a tool that can change or reach something needs a review by a person before it runs.

Every review, and the acceptance of a project as a whole, is written down.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from toolcrib.core.context import Context
from toolcrib.errors import ApprovalRequired, NotTrusted, ToolcribError
from toolcrib.guard import Review, Reviews, ReviewStatus, ToolDigest, opened, reviewed_parts, shown
from toolcrib.project.control.checks import Acceptance, Pins
from toolcrib.project.integrity.fingerprints import FileUse, Fingerprints
from toolcrib.project.setup import Setup
from toolcrib.spec import Tool
from toolcrib.spec.record import record
from toolcrib.spec.tools.tool import may_touch

FIRST_USE = "first-use"
"""The name of the rule that asks for the review. To approve the rule itself is a review."""
STATUS = {"new": "not reviewed yet", "changed": "changed since its last review", "reviewed": "reviewed"}
_GRANTS = "grants/"
"""The parts of a digest with this beginning are the real paths of grants."""
# Beginnings of the lines of `may_touch` about more than reading files inside the project.
_EFFECTS = ("network", "write ", "secret ", "environment variable ", "code:")
_DEFAULTS = {"memory_bytes": 4 << 30, "processes": 1_024, "open_files": 512}
"""The limits of a confined tool that states none."""
# The default of `retry.max_attempts`: to have a tool run more often is a change to review.
_ATTEMPTS = 2


@record
class ReviewSheet:
    """One tool as it is shown to the person who reviews it."""

    tool: Tool
    digest: ToolDigest
    review: ReviewStatus
    touches: list[str]
    """Everything that it may touch, in words."""
    reasons: tuple[str, ...]
    """Things that it may change or reach, in words; empty for a tool that only reads inside the project."""
    creator: str | None
    """The agent that made it."""
    waits: bool
    """True if it does not run before a review."""
    code: Callable[[], list[str]] = field(default=list, compare=False, repr=False)
    """Returns its scripts and modules that are new or have changed, line by line, with secrets masked.

    Of a tool that calls others also theirs, with their manifests.
    """

    @property
    def changed(self) -> list[str]:
        """Names of the parts that have changed since the last review: `manifest`, `files/run.sh`, …"""
        now = ToolDigest(self.digest.digest, reviewed_parts(self.tool, self.digest))
        return [] if self.review.last is None else now.changed_since(self.review.last.parts)

    def lines(self) -> Iterator[str]:
        """Yield the lines for the person who reviews it, without control characters."""
        tool, review = self.tool, self.review
        yield f"{shown(tool.name)}: {STATUS[review.status]}"
        if self.creator is not None:
            yield f"  created by the agent {shown(self.creator)}"
        yield f"  digest: {self.digest.digest}"
        for line in self.touches:
            yield f"  may touch: {_flat(line)}"
        if review.last is not None and review.status == "changed":
            yield f"  last reviewed by {shown(review.last.by)}: {review.last.digest}"
            yield f"  changed since then: {_flat(', '.join(self.changed))}"
        if review.status != "reviewed":
            yield from (f"  {line}" for line in review.diff(tool).split("\n") if line)
            yield from (f"  {_flat(line)}" for line in self.code())

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        last = self.review.last
        return {
            "name": self.tool.name,
            "status": self.review.status,
            "digest": self.digest.digest,
            "permissions": self.tool.permissions.as_json(),
            "touches": self.touches,
            "reasons": list(self.reasons),
            "creator": self.creator,
            "reviewed_by": None if last is None else last.by,
            "last_digest": None if last is None else last.digest,
            "changed": self.changed,
            "diff": self.review.diff(self.tool) if self.review.status != "reviewed" else "",
        }


def _why(name: str, may: str, last: Review | None, creator: str | None, reasons: Sequence[str]) -> str:
    """Return why something runs only after a review."""
    why = f"nobody has reviewed {name}" if last is None else f"{name} is not what {last.by} reviewed"
    why += "" if creator is None else f", which the agent {creator} made"
    return why + (f"; {may}: {'; '.join(reasons)}" if reasons else "")


def _flat(text: str) -> str:
    return shown(text).replace("\n", "\\n")


class FirstUse:
    """The tools of one project that a person has to review before they run.

    `find` returns the tool of a name, `mask` masks secrets in a text that is shown. With `review: off` tools
    need no review; a tool that an agent made needs approval all the same. Agents and workflows are reviewed
    as tools are (`as_reviewed`).
    """

    def __init__(
        self,
        setup: Setup,
        fingerprints: Fingerprints,
        find: Callable[[str], Tool],
        acceptance: Acceptance,
        pins: Pins,
        mask: Callable[[str], str],
    ) -> None:
        self.reviews, self.acceptance = Reviews(setup.vault, setup.files), acceptance
        self._fingerprint, self._parts = fingerprints.of, fingerprints.parts
        self._find, self._pins, self._mask = find, pins, mask
        self._audit, self._config, self._root = setup.audit, setup.config, str(setup.place.root)
        self._asks = setup.config.review == "ask"
        self._known: dict[str, tuple[Tool, tuple[str, ...]]] = {}
        self.found: Callable[[], Iterable[Tool]] = tuple
        """Returns every tool of the project, with its agents and workflows."""

    def digest_of(self, tool: Tool) -> str:
        """Return a tool's digest as it is now."""
        return self._fingerprint(tool).digest

    def questions(
        self, ctx: Context, digest: Callable[[Context], ToolDigest]
    ) -> tuple[str | None, str | None]:
        """Return why the tool, with this digest, runs only after a review, and why each call needs approval.

        Each call of a tool that an agent made needs approval. Both reasons end with the first review of the
        tool as it is now.
        """
        tool = ctx.bound.tool
        if tool.source is None:
            return None, None
        creator, reasons = self.creator(tool), self.reasons(tool) if self._asks_for(tool) else ()
        if (creator is None and not reasons) or self._is_reviewed(tool, digest(ctx).digest):
            return None, None
        made = None if creator is None else f"the agent {creator} made this tool, and nobody has reviewed it"
        if not self._asks_for(tool) or (ctx.is_own and not reasons):
            return None, made
        return _why("this tool", "its calls may", self.reviews.last(tool), creator, reasons), made

    def _asks_for(self, tool: Tool) -> bool:
        """Return True if a review is asked for. To accept a project as a whole does not cover bundles."""
        return self._asks and (not self.acceptance.whole or tool.is_stored)

    def is_reviewed(self, tool: Tool) -> bool:
        """Return True if a person has reviewed or accepted the tool as it is now."""
        return self._is_reviewed(tool, self.digest_of(tool))

    def _is_reviewed(self, tool: Tool, digest: str) -> bool:
        return self.acceptance.versions.get(tool.name) == digest or self.reviews.is_reviewed(tool, digest)

    def accept(self, tool: Tool, digest: str, by: str) -> None:
        """Note that a person has reviewed a tool, if it still has this digest."""
        fingerprint = self._fingerprint(tool)
        if fingerprint.digest == digest:
            self.reviews.accept(tool, fingerprint, by)

    def reviewed_grants(self, tool: Tool) -> frozenset[tuple[str, str]] | None:
        """Return the grants that a person was shown at reviews of this manifest, each with its real path.

        Those of a tool whose digest the user's settings accept count as well. None if nobody has reviewed it.
        """
        # Of every review of this manifest, because a link may lead back to where it once led.
        reviews = list(self.reviews.parts(tool))
        if tool.name in self.acceptance.versions:
            fingerprint = self._fingerprint(tool)
            if fingerprint.digest == self.acceptance.versions[tool.name]:
                reviews.append(fingerprint.parts)
        if not reviews:
            return None
        grants = [item for parts in reviews for item in parts.items() if item[0].startswith(_GRANTS)]
        return frozenset((name.removeprefix(_GRANTS), real) for name, real in grants)

    def creator(self, tool: Tool) -> str | None:
        """Return the agent that made a tool; None if a person made it."""
        return None if tool.source is None else self.reviews.creators().get(tool.name)

    def reasons(self, tool: Tool) -> tuple[str, ...]:
        """Return why a tool needs a review, in words: what it may change or reach, or no longer asks.

        A tool that only reads inside the project needs none.
        """
        known = self._known.get(tool.name)
        # By identity: a tool that was loaded again may have other permissions.
        if known is None or known[0] is not tool:
            self._known[tool.name] = known = (tool, tuple(self._reasons(tool)))
        return known[1]

    def _reasons(self, tool: Tool) -> Iterator[str]:
        if isinstance(tool.config, FileUse):
            yield from tool.config.reasons(self._find, self.reasons)
            return
        yield from (line for line in may_touch(tool) if line.startswith(_EFFECTS))
        paths = [("read", path) for path in tool.permissions.read]
        paths += [("run", path) for _, path in opened(tool, Path(self._root))]
        yield from (f"{access} {path}" for access, path in paths if not self._inside(path))
        yield from self.links(tool)
        if tool.retry is not None and tool.retry.max_attempts > _ATTEMPTS:
            yield f"run {tool.retry.max_attempts} times (retry.max_attempts)"
        for name, most in _DEFAULTS.items():
            if (getattr(tool.limits, name) or 0) > most:
                yield f"use more than other tools (limits.{name})"
        # To drop the approval of each call weakens a tool as much as a new permission.
        last = None if tool.approval.required else self.reviews.last(tool)
        if last is not None and "approval" in last.parts:
            yield "run without the approval of each call that it needed before"

    def links(self, tool: Tool) -> list[str]:
        """Return the grants that pass through a symbolic link, in words. A review pins where each leads."""
        root, permissions = self._root, tool.permissions
        found = []
        for path in dict.fromkeys((*permissions.read, *permissions.write)):
            written = os.path.normpath(os.path.join(root, path))
            real = os.path.realpath(written)
            if real != written:
                shown_real = os.path.relpath(real, root) if self._inside(path) else real
                found.append(f"{path} is a link to {shown_real}")
        return found

    def _inside(self, path: str) -> bool:
        try:
            return Path(os.path.realpath(os.path.join(self._root, path))).is_relative_to(self._root)
        except (OSError, ValueError):
            return False  # A path that cannot be resolved counts as outside, so a person looks at it.

    def sheet(self, tool: Tool) -> ReviewSheet:
        """Return a tool as it is shown for review."""
        is_file = isinstance(tool.config, FileUse)
        digest = self._fingerprint(tool)
        review, creator, reasons = self.reviews.status(tool, digest), self.creator(tool), self.reasons(tool)
        if self.acceptance.versions.get(tool.name) == digest.digest:
            review = ReviewStatus("reviewed", review.last)
        asks = creator is not None or (self._asks_for(tool) and bool(reasons))
        waits = review.status != "reviewed" and asks
        touches = list(reasons) if is_file else [*may_touch(tool), *self.links(tool)]
        last = None if review.last is None else review.last.parts

        # Called only for a sheet that is printed: all else about it needs no text of a file.
        def code() -> list[str]:
            lines = list(self.reviews.texts.lines(tool, digest, last, self._mask))
            for part in () if is_file else self._parts(tool):
                name = f"step/{part.name}"
                if part.source is not None and (last is None or last.get(name) != digest.parts[name]):
                    lines += self._step(part)
            return lines

        return ReviewSheet(tool, digest, review, touches, reasons, creator, waits, code)

    def sheets(self) -> tuple[list[ReviewSheet], list[ToolcribError]]:
        """Return every tool, agent and workflow as it is shown for review, and the errors of all others.

        Tools of bundles are not of the project; `sheet` shows one of them.
        """
        sheets, errors = [], []
        for tool in self.found():
            try:
                if tool.source is not None:
                    sheets.append(self.sheet(tool))
            except ToolcribError as error:
                errors.append(error)
        return sheets, errors

    def accept_project(
        self, by: str, sheets: Sequence[ReviewSheet] = (), *, channel: str = "program"
    ) -> None:
        """Record that a person accepts the project with its settings and these tools, as they were shown."""
        config, names = self._config, [one.tool.name for one in sheets]
        # The log comes first: if it cannot be written, this raises and nothing is accepted.
        self._audit.record(
            "PROJECT_ACCEPTED", approver=by, channel=channel, digest=config.digest, tools=names
        )
        self.reviews.accept_all([(one.tool, one.digest) for one in sheets], by)
        self.acceptance.trust.accept(config.digest, by, config.started, config.policy_document)

    def review(
        self, tool: Tool, by: str, digest: ToolDigest | None = None, *, channel: str = "program"
    ) -> None:
        """Record that a person has reviewed a tool, with this digest or as it is now."""
        digest = digest or self._fingerprint(tool)
        fields = {"name": tool.name, "approver": by, "channel": channel, "scope": "review"}
        self._audit.record("TOOL_APPROVED", **fields, digest=digest.digest)
        self.reviews.accept(tool, digest, by)

    def require(self, file: Tool) -> None:
        """Refuse to run an agent or a workflow that waits for a person, or is not what the lock pins.

        Raises `NotTrusted`, `LockDrift`, `ApprovalRequired`.
        """
        if not self.acceptance.given:
            raise NotTrusted(
                f"nobody has accepted this project, so none of its {file.kind}s runs",
                hint="The person whose machine this is has to accept it first.",
            )
        self._pins.require(file)
        sheet = self.sheet(file)
        if sheet.waits:
            name = f"the {file.name.replace(':', ' ')}"
            why = _why(name, "it may", sheet.review.last, sheet.creator, sheet.reasons)
            raise ApprovalRequired(why, hint="A person has to review it first.")

    def _step(self, part: Tool) -> Iterator[str]:
        """Yield the manifest and the code of a tool that another calls, unless they are reviewed."""
        digest = self._fingerprint(part)
        review = self.reviews.status(part, digest)
        by = "" if review.last is None else f" by {review.last.by}"
        yield f"step {part.name}: {review.status}{by if review.status == 'reviewed' else ''}"
        if review.status != "reviewed":
            yield from review.diff(part).split("\n")
            before = None if review.last is None else review.last.parts
            yield from self.reviews.texts.lines(part, digest, before, self._mask)
