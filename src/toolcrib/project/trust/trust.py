"""Trust in one project: what nobody has accepted does not run, at any interface.

A project that this user neither made nor accepted runs no tool at all. In an accepted one a tool that can
change or reach something waits until a person has trusted it as it is.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import islice
from operator import attrgetter
from pathlib import Path
from threading import Lock
from typing import Literal, Protocol

from toolcrib.core.context import Context
from toolcrib.errors import ApprovalRequired, NotTrusted, ToolcribError
from toolcrib.guard import POLICY, SETTINGS, Ledger, ToolDigest, Trusted, TrustedTexts
from toolcrib.manifest import KeptEntry, KnownFacts
from toolcrib.manifest.kinds import is_function, is_served
from toolcrib.manifest.touches import Touch, may_touch
from toolcrib.project.config.settings import Config
from toolcrib.project.integrity.fingerprints import FileUse, Fingerprints
from toolcrib.project.integrity.lock import Pins
from toolcrib.project.setup import Setup
from toolcrib.project.trust.reasons import Reasons, subject_of
from toolcrib.project.trust.sheets import Status, TrustSheet
from toolcrib.sandbox.files.paths import Paths
from toolcrib.spec import Tool
from toolcrib.spec.calls.caller import OWN_CALLERS
from toolcrib.state import user_name

TRUST = "trust"
"""The name of the rule that asks for trust. To approve the rule itself is to trust the tool."""
_GRANTS = "grants/"
"""The parts of a digest with this beginning are the real paths of grants."""
_ASKING = frozenset[Touch]({"network", "write", "secrets", "environment"})
"""Things that always need trust. The others depend on paths, and on the tools that are called."""
_name = attrgetter("name")
_ShownGrants = frozenset[tuple[str, str]]


class ServerTools(Protocol):
    """The tools of the MCP servers of a project, and what of them is trusted."""

    def why_waits(self, tool: Tool) -> str | None:
        """Return why a tool of a server waits for trust; None if it does not."""

    def is_new(self, name: str) -> bool:
        """Return True for a tool of a server, by its name here, that nobody has trusted."""

    def sheet(self, tool: Tool) -> TrustSheet:
        """Return a tool of a server as it is shown to the person who trusts it."""

    def reread(self) -> None:
        """Take up what was trusted since, also by another process."""

    def rows(self, tools: Iterable[str], *, trusted: bool = True) -> list[Trusted]:
        """Return the rows that trust these tools of servers beside what is trusted of them, or no longer."""


class ProjectTrust:
    """The trust that was given in one project. Agents and workflows are trusted as tools are (`as_trusted`).

    `find` returns the tool of a name, `mask` masks secrets in a text that is shown. Where the project is
    accepted as a `whole`, a tool that an agent made needs approval all the same.
    """

    def __init__(
        self,
        setup: Setup,
        fingerprints: Fingerprints,
        find: Callable[[str], Tool],
        pins: Pins,
        mask: Callable[[str], str],
    ) -> None:
        self.ledger: Ledger = setup.ledger
        self.whole = setup.whole
        """As in `Setup`."""
        self._texts = TrustedTexts(setup.vault, setup.ledger, setup.files)
        self._reasons = Reasons(setup.place.root, setup.ledger, find)
        self.reasons = self._reasons.of
        """Returns why a tool needs trust, in words; nothing for one that only reads inside the project."""
        self._fingerprint, self._parts = fingerprints.of, fingerprints.parts
        self._fingerprints, self._sweeping = fingerprints.of_many, Lock()
        self._pins, self._mask = pins, mask
        self._audit, self._config, self._root = setup.audit, setup.config, setup.place.root
        self._home = setup.place.home
        self._accepted: int | None = None
        """The revision of the ledger at which a call found the project accepted."""
        self.servers: ServerTools | None = None
        """The MCP servers that the project names."""
        self.found: Callable[[bool], Iterable[Tool]] = lambda _: ()
        """Returns every tool, agent and workflow of the project, and if asked, the tools of bundles."""
        self._edited: Callable[[TrustSheet], None] | None = None
        self._waited: dict[str, str] = {}
        """By subject, what was trusted last of each tool that waited when `follow_edits` was called."""
        self.settle: Callable[[Sequence[Trusted], str, str, Sequence[str]], None] = lambda *_: None
        """Answers the calls that wait for trust in these; ends what trust gave in revoked subjects."""

    # -- the project ---------------------------------------------------------------------------------

    @property
    def given(self) -> bool:
        """True if this user has made or accepted the project."""
        return self.whole or self.ledger.last(SETTINGS) is not None

    def require_project(self, ctx: Context) -> None:
        """Refuse a call of a tool of the project, before anything else is looked at: `NotTrusted`.

        What any process recorded a moment ago counts.
        """
        tool = ctx.bound.tool
        # Functions of the program itself are not of the project.
        if self.whole or is_function(tool):
            return
        revision = self.ledger.revision
        if self._accepted == revision:
            return
        if not self.given:
            raise self.refusal(own=ctx.identity is None and ctx.caller in OWN_CALLERS)
        self._accepted = revision

    def refusal(self, *, own: bool) -> NotTrusted:
        """Return the error for a project that is not accepted; `own` for its user, not for an agent."""
        if not own:
            return NotTrusted(
                "nobody has accepted this project, so none of its tools runs",
                hint="The person whose machine this is has to accept it first.",
            )
        return NotTrusted(
            "you have not accepted this project, so none of its tools runs",
            hint="To see its contents and accept it: toolcrib trust. In CI: toolcrib trust --locked SHA256",
        )

    # -- a call --------------------------------------------------------------------------------------

    def digest_of(self, tool: Tool) -> str:
        """Return a tool's digest as it is now."""
        return self._fingerprint(tool).digest

    def questions(
        self, ctx: Context, digest: Callable[[Context], ToolDigest]
    ) -> tuple[str | None, str | None]:
        """Return why the tool, with this digest, needs trust, and why each call needs approval.

        Each call of a tool that an agent made needs approval. Both reasons end once a person trusts the tool
        as it is now.
        """
        tool = ctx.bound.tool
        if tool.source is None:
            return None if self.servers is None else self.servers.why_waits(tool), None
        maker, reasons = self.maker(tool), self.reasons(tool) if self._asks_for(tool) else ()
        if (maker is None and not reasons) or self._holds(tool, digest(ctx).digest):
            return None, None
        if self.follow(tool) and self._holds(tool, digest(ctx).digest):
            return None, None
        made = None if maker is None else f"the agent {maker} made this tool, and nobody has trusted it"
        if not self._asks_for(tool) or (ctx.is_own and not reasons):
            return None, made
        return self._why("this tool", "its calls may", tool, reasons), made

    def why_not_here(self, tool: Tool) -> str | None:
        """Return why the durable calls of a tool are left to other machines; None if they may run here.

        What needs a digest of the tool's code is found at its first call.
        """
        if tool.source is None:
            waits = self.servers is not None and self.servers.why_waits(tool)
            return f"{waits}: toolcrib trust {tool.name}" if waits else None
        if not self.given:
            return "nobody has accepted this project here: toolcrib trust"
        # Each call of what an agent has made may be approved by itself.
        if not self._asks_for(tool) or self.maker(tool) is not None:
            return None
        source = self.ledger.known().get((subject_of(tool), tool.bundle))
        if source in ("", tool.source.sha256):
            return None
        reasons = self.reasons(tool)
        if not reasons or (source is not None and self.holds(tool)):
            return None
        return f"{self._why('this tool', 'its calls may', tool, reasons)}: toolcrib trust {tool.name}"

    def _asks_for(self, tool: Tool) -> bool:
        """Return True if trust is asked for. To accept a project as a whole does not cover bundles."""
        return not self.whole or tool.is_stored

    def _needs(self, tool: Tool, maker: str | None) -> bool:
        """Return True for a tool, agent or workflow that does not run before a person trusts it."""
        return maker is not None or (self._asks_for(tool) and bool(self.reasons(tool)))

    def holds(self, tool: Tool) -> bool:
        """Return True if a person has trusted the tool as it is now."""
        return self._holds(tool, self.digest_of(tool))

    def _holds(self, tool: Tool, digest: str) -> bool:
        return self.ledger.holds(subject_of(tool), digest, tool.bundle)

    def last(self, tool: Tool) -> Trusted | None:
        """Return the version of a tool that was trusted last."""
        return self.ledger.last(subject_of(tool), tool.bundle)

    def maker(self, tool: Tool) -> str | None:
        """Return the agent that made a tool; None if a person made it."""
        return None if tool.source is None else self.ledger.makers().get(tool.name)

    def waits(self, tool: Tool, paths: Paths | None = None) -> Literal["new", "changed"] | None:
        """Return `new` or `changed` for a tool that waits until a person trusts it; None for another.

        `paths` keeps looks at paths for many of them.
        """
        if tool.source is None and not is_served(tool):
            return None
        holds = lambda: self._holds(tool, self._fingerprint(tool, paths).digest)  # noqa: E731 - asked for later
        return self._waits(tool, self.maker(tool), holds) if self.given else "new"

    def _waits(
        self, tool: Tool, maker: str | None, holds: Callable[[], bool]
    ) -> Literal["new", "changed"] | None:
        if tool.source is None:
            if self.servers is None or self.servers.why_waits(tool) is None:
                return None
            return "new" if self.servers.is_new(tool.name) else "changed"
        try:
            if not self._needs(tool, maker) or holds():
                return None
        except ToolcribError:  # It refers to something that is missing, as its call reports.
            return None
        return "new" if self.last(tool) is None else "changed"

    def trusted_grants(self, tool: Tool) -> _ShownGrants | None:
        """Return the grants that a person was shown with this manifest, each with its real path.

        None if nobody has trusted it.
        """
        # Of every version with this manifest, because a link may lead back to where it once led.
        if tool.source is None:
            return None
        rows = self.ledger.all(subject_of(tool), tool.bundle)
        parts = [row.shown["parts"] for row in rows if row.source == tool.source.sha256]
        if not parts:
            return None
        grants = [item for one in parts for item in one.items() if item[0].startswith(_GRANTS)]
        return frozenset((name.removeprefix(_GRANTS), str(self._root / path)) for name, path in grants)

    def require(self, file: Tool) -> None:
        """Refuse to run an agent or a workflow that waits for trust, or is not what the lock pins.

        Raises `NotTrusted`, `LockDrift`, `ApprovalRequired`.
        """
        if not self.given:
            raise NotTrusted(
                f"nobody has accepted this project, so none of its {file.kind}s runs",
                hint="The person whose machine this is has to accept it first.",
            )
        self._pins.require(file)
        sheet = self.sheet(file)
        if sheet.waits:
            why = self._why(f"the {file.name.replace(':', ' ')}", "it may", file, sheet.reasons)
            raise ApprovalRequired(why, hint=f"A person has to trust it first: toolcrib trust {file.name}")

    def _why(self, name: str, may: str, tool: Tool, reasons: Sequence[str]) -> str:
        """Return why something needs trust before it runs."""
        last, maker = self.last(tool), self.maker(tool)
        why = f"nobody has trusted {name}" if last is None else f"{name} is not what {last.by} trusted"
        why += "" if maker is None else f", which the agent {maker} made"
        return why + (f"; {may}: {'; '.join(reasons)}" if reasons else "")

    # -- what a model reads --------------------------------------------------------------------------

    def offered(self, tool: Tool) -> Tool | None:
        """Return a tool as a model may read it: as it was trusted last; None for one that nobody has trusted.

        A tool that needs no trust is itself.
        """
        if not self.offers()(tool):
            return None
        source = self.ledger.known().get((subject_of(tool), tool.bundle))
        if tool.source is None or source in (None, "", tool.source.sha256) or not self._asks_for(tool):
            return tool
        last = self.last(tool)
        listed = {} if last is None else last.shown.get("listed", {})
        if not listed or not (self.reasons(tool) or self.maker(tool) is not None) or self.holds(tool):
            return tool
        return replace(
            tool,
            description=listed["description"],
            input_schema=listed["input_schema"],
            output=replace(tool.output, schema=listed["output_schema"]),
        )

    def offers(self) -> Callable[[Tool], bool]:
        """Return the check if a model may read a tool at all; it is for many tools at one time."""
        given, known, makers = self.given, self.ledger.known(), self.ledger.makers()

        def offers(tool: Tool) -> bool:
            if tool.source is None:
                return not (is_served(tool) and self.servers is not None and self.servers.is_new(tool.name))
            if not given or (subject_of(tool), tool.bundle) in known:
                return given
            return tool.name not in makers and not (self._asks_for(tool) and self.reasons(tool))

        return offers

    def settled(self, kept: Mapping[str, KeptEntry]) -> dict[str, KeptEntry]:
        """Return those of these tools of the project, by name, that run and are offered as they are."""
        if not self.given:
            return {}
        known, makers = self.ledger.known(), self.ledger.makers()
        # Most tools read the same paths, and a look at one costs more than all else here.
        is_quiet = cache(lambda reads: not self._reasons.of_paths(reads))

        def is_settled(name: str, entry: KeptEntry) -> bool:
            trusted = known.get((f"tool:{name}", "project"))
            if trusted is not None:
                return self.whole or trusted == entry.manifest
            reads = entry.reads
            return name not in makers and (self.whole or (reads is not None and is_quiet(tuple(reads))))

        return {name: entry for name, entry in kept.items() if is_settled(name, entry)}

    # -- what waits ----------------------------------------------------------------------------------

    def unknown(self, names: Iterable[str], facts: KnownFacts) -> tuple[list[str], list[str]]:
        """Return the tools of which no version is trusted: those that certainly wait for it, and the rest."""
        known = self.ledger.known()
        waiting: list[str] = []
        unsure: list[str] = []
        for name in names:
            if (f"tool:{name}", "project") not in known:
                touches = () if self.whole or name not in facts else facts.touches(name)
                (unsure if _ASKING.isdisjoint(touches) else waiting).append(name)
        return waiting, unsure

    def sheet(self, tool: Tool, paths: Paths | None = None) -> TrustSheet:
        """Return a tool, agent or workflow as it is shown; `paths` keeps looks at paths for many of them."""
        if is_served(tool) and self.servers is not None:
            return self.servers.sheet(tool)
        is_file = isinstance(tool.config, FileUse)
        digest, last = self._fingerprint(tool, paths), self.last(tool)
        maker, reasons = self.maker(tool), self.reasons(tool)
        status: Status = "new" if last is None else "changed"
        if self._holds(tool, digest.digest):
            status = "trusted"
        touches = list(reasons) if is_file else [*may_touch(tool), *self._reasons.links(tool)]
        before = {} if last is None else last.shown.get("parts", {})

        # Called only for a sheet that is printed: all else about it needs no text of a file.
        def manifest() -> list[str]:
            return self._texts.manifest(tool, None if last is None else last.source)

        def code() -> list[str]:
            lines = list(self._texts.lines(tool, digest, before, self._mask))
            for part in () if is_file else self._parts(tool):
                name = f"step/{part.name}"
                if part.source is not None and before.get(name) != digest.parts[name]:
                    lines += self._step(part)
            return lines

        waits = status != "trusted" and self._needs(tool, maker)
        subject = subject_of(tool)
        return TrustSheet(tool, subject, digest, status, last, touches, reasons, maker, waits, manifest, code)

    def _step(self, part: Tool) -> Iterator[str]:
        """Yield the manifest and the code of a tool that another calls, unless they are trusted."""
        sheet = self.sheet(part)
        by = f" by {sheet.last.by}" if sheet.last is not None and sheet.status == "trusted" else ""
        yield f"step {part.name}: {sheet.status}{by}"
        if sheet.status != "trusted":
            before = None if sheet.last is None else sheet.last.shown.get("parts")
            yield from sheet.manifest()
            yield from self._texts.lines(part, sheet.digest, before, self._mask)

    def sheets(
        self, among: Iterable[Tool] | None = None, *, whole: bool = True
    ) -> tuple[list[TrustSheet], list[ToolcribError]]:
        """Return these or all `tools` as they are shown, and the errors of those that cannot be.

        Without `whole` those that need no trust are left out.
        """
        sheets, errors, paths = [], [], Paths()
        for tool in self.tools() if among is None else among:
            try:
                if whole or self._needs(tool, self.maker(tool)):
                    sheets.append(self.sheet(tool, paths))
            except ToolcribError as error:
                errors.append(error)
        return sheets, errors

    def tools(self, *, everything: bool = False, after: str = "") -> list[Tool]:
        """Return by name each tool, agent and workflow of the project whose name comes after this one.

        With `everything` the tools of bundles and of MCP servers too.
        """
        found = (tool for tool in self.found(everything) if tool.name > after)
        return sorted((tool for tool in found if everything or tool.source is not None), key=_name)

    def waiting(self, *, everything: bool = False, after: str = "", most: int | None = None) -> list[Tool]:
        """Return the first of these `tools` that do not run before a person trusts them, or all."""
        with self._sweeping:  # Of threads that ask at the same time, one looks at all files.
            makers, known, held = self.ledger.makers(), self.ledger.known(), self.ledger.every()
            digests, paths = cache(self._fingerprints), Paths()

            def holds(tool: Tool) -> bool:
                key = subject_of(tool), tool.bundle
                # For tools that nobody has trusted the files of all others are not looked at.
                digest = digests()(tool) if key in known else self._fingerprint(tool, paths)
                return (*key, digest.digest) in held

            def waits(tool: Tool) -> bool:
                return self._waits(tool, makers.get(tool.name), partial(holds, tool)) is not None

            return list(islice(filter(waits, self.tools(everything=everything, after=after)), most))

    # -- decisions -----------------------------------------------------------------------------------

    def accept(
        self,
        by: str,
        sheets: Sequence[TrustSheet] = (),
        *,
        settings: bool = False,
        channel: str = "program",
        more: Sequence[Trusted] = (),
    ) -> None:
        """Record that a person trusts these, as they were shown; with `settings` the project's settings too.

        `more` are further rows. Raises AuditUnavailable or StateUnavailable; then nothing is trusted.
        """
        own = [one for one in sheets if not is_served(one.tool)]
        accepted = settings_rows(self._config, self._home) if settings else ()
        rows = [*accepted, *(one.row for one in own), *more]
        if self.servers is not None:
            rows += self.servers.rows(one.tool.name for one in sheets if is_served(one.tool))
        if not rows:
            return
        subjects = [row.subject for row in rows]
        # The log comes first: if it cannot be written, this raises and nothing is trusted.
        digests = {"digest": rows[0].digest} if len(rows) == 1 else {}
        self._audit.record("TRUSTED", approver=by, channel=channel, subjects=subjects, **digests)
        texts = [text for one in own for text in self._texts.of(one.tool, one.digest)]
        stored = self.ledger.accept(rows, by, channel, texts)
        if self.servers is not None:
            self.servers.reread()
        self.settle(stored, by, channel, ())

    def trust(self, tool: Tool, by: str, digest: str | None = None, *, channel: str = "program") -> None:
        """Record that a person trusts a tool as it is now; with `digest`, only if it still has this one."""
        sheet = self.sheet(tool)
        if digest in (None, sheet.digest.digest):
            self.accept(by, [sheet], channel=channel)

    def follow_edits(self, report: Callable[[TrustSheet], None]) -> None:
        """From now on trust each edit of a trusted tool that widens nothing, and `report` it.

        Tools that wait already still do, until a person trusts them.
        """
        self._edited = report
        waiting = [self.sheet(tool) for tool in self.waiting()]
        self._waited = {sheet.subject: sheet.last.digest for sheet in waiting if sheet.last is not None}

    def follow(self, tool: Tool) -> bool:
        """Trust an edit of a tool, if `follow_edits` allows that. Raises as `accept` does."""
        if self._edited is None:
            return False
        sheet = self.sheet(tool)
        last, maker = sheet.last, sheet.maker
        if last is None or not sheet.waits or maker or self._waited.get(sheet.subject) == last.digest:
            return False
        from toolcrib.project.trust.reasons import widens_nothing

        manifest = self.ledger.text(last.source)
        if manifest is None or not widens_nothing(tool, last, manifest, self._root):
            return False
        self.accept(user_name(), [sheet], channel="dev")
        self._edited(sheet)
        return True

    def revoke(
        self, by: str, names: Iterable[Tool] = (), servers: Sequence[str] = (), *, channel: str = "program"
    ) -> int:
        """Take back the trust in these tools and servers, or in everything. Return how many rows end."""
        chosen = list(names)
        subjects = [*map(subject_of, chosen), *(f"server:{name}" for name in servers)]
        self._audit.record("TRUST_REVOKED", approver=by, channel=channel, subjects=subjects or ["all"])
        if not subjects:
            self._accepted = None
            ended = self.ledger.revoke()
        else:
            ended = sum(
                self.forget(tool.name, tool.bundle, by, subject=subject_of(tool), channel=channel)
                for tool in chosen
            )
            ended += sum(self.ledger.revoke(f"server:{name}") for name in servers)
        self.settle((), by, channel, subjects or ["all"])
        return ended

    def forget(
        self,
        name: str,
        bundle: str,
        by: str,
        digest: str | None = None,
        subject: str | None = None,
        channel: str = "program",
    ) -> int:
        """Take back the trust in a tool, or in one version of it. Return how many rows end."""
        rows = [] if self.servers is None else self.servers.rows([name], trusted=False)
        if rows:
            self.ledger.accept(rows, by, channel)
        return len(rows) + self.ledger.revoke(subject or f"tool:{name}", bundle, digest)


def settings_rows(config: Config, home: Path | None = None) -> list[Trusted]:
    """Return the rows that accept a project's settings and its policy as they are, in this home folder."""
    policy = config.policy_document
    digest = hashlib.sha256(json.dumps(policy, sort_keys=True).encode()).hexdigest()
    return [
        Trusted(SETTINGS, config.digest, shown={"started": dict(config.started), "home": str(home)}),
        Trusted(POLICY, digest, shown={"policy": policy}),
    ]
