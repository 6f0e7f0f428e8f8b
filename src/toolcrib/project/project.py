"""One project put together: settings, manifests, executors, secrets, audit, one call path."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from toolcrib.core.bound import Bound, BoundTool
from toolcrib.core.context import Context
from toolcrib.core.toolset import Toolset
from toolcrib.errors import ToolcribError, ToolUnavailable
from toolcrib.executors import Host
from toolcrib.guard import ANCHOR, AuditLog, Digests, Reviews, ToolDigest, Trust
from toolcrib.manifest import Diagnostic, Loaded, kind_of
from toolcrib.project.catalog.external import Guests
from toolcrib.project.catalog.registry import Change, Reading, Shelf
from toolcrib.project.config.secrets import hidden_paths, open_sources
from toolcrib.project.config.settings import Config, load_config
from toolcrib.project.control.approval_service import ApprovalService
from toolcrib.project.control.composites import Composites
from toolcrib.project.control.elicitation import Elicitation
from toolcrib.project.control.first_use import FirstUse
from toolcrib.project.control.steps import ProjectSteps
from toolcrib.project.control.store import Store
from toolcrib.project.lock import Pins
from toolcrib.project.programs import closed_folders, programs_of, running_from, settled
from toolcrib.project.root import Place, find
from toolcrib.project.sandbox_level import minimum_of
from toolcrib.spec import (
    Call,
    Caller,
    Executor,
    Permissions,
    Result,
    Retry,
    SecretSource,
    Tool,
)
from toolcrib.state import Vault, cache_folder, cache_home

if TYPE_CHECKING:
    from toolcrib.egress import Egress
    from toolcrib.executors import Workspace
    from toolcrib.executors.trace.observation import Observation
    from toolcrib.project.catalog.reload import HotReload
    from toolcrib.project.config.mcp import NamedServers
    from toolcrib.project.search.search import Search
    from toolcrib.project.servers import Servers

__all__ = ["Project"]


class Project:
    """A project's tools behind one call path. Use it as an async context manager, or `aclose` it.

    Manifests that do not load are in `diagnostics`, and never hide the others. A manifest is checked in full
    when its tool is first listed or called.
    """

    def __init__(
        self,
        place: Place,
        config: Config,
        *,
        secrets: SecretSource | None = None,
        trusted: bool = False,
        vault: Vault | None = None,
    ) -> None:
        self.place = place
        self.minimum = minimum_of(config, trusted)
        """The weakest level of the sandbox that counts here."""
        self.waiting = [] if trusted else config.weakening()
        """The settings that count only once a person has trusted the project."""
        self._hidden = hidden_paths(config.secret_sources, place.root)
        named = config.servers
        self.config = config = config if trusted else config.narrowed()
        self.vault = vault = vault or Vault(place.root)
        """What the user keeps about this project, outside of it."""
        self._lowered: str | None = None
        self._digests: Digests | None = None
        self.audit = AuditLog(place.audit, lambda: vault.folder / ANCHOR, max_bytes=config.audit_max_bytes)
        self.secrets = secrets or open_sources(config.secret_sources, place.root)
        self._store = Store(place, vault, ttl_s=config.approval_ttl_hours * 3600)
        self.first_use = FirstUse(Reviews(vault), self.fingerprint, place, asks=config.review == "ask")
        """What people have reviewed, and which tools agents have made."""
        self.pins = Pins(place.root, self.fingerprint)
        """Holds calls to `toolcrib.lock`, where there is one."""
        self._steps = ProjectSteps(config, self.audit, self.secrets, self._store, self.first_use, self.pins)
        self.toolset = Toolset(
            retry=config.retry,
            timeout_ms=config.timeout_ms,
            controls=self._steps.controls,
            missing=self._missing,
            lenient=config.lenient,
        )
        """Holds every tool; functions registered here get the project's guard and audit too."""
        self.functions = Toolset()
        """What manifests of kind `function` refer to, by reference or its last part; not tools themselves."""
        self._egress: Egress | None = None
        self._workspace: Workspace | None = None
        self._live: HotReload | None = None
        self._search: Search | None = None
        self._shelf = Shelf(place, self.toolset, self._bind)
        self._composites = Composites(self.bound, self._steps.access)
        late = self._shelf.load()
        self._steps.secrets.know_names({name for tool in late.tools for name in tool.secrets})
        self._guests = Guests(place, config.sources, self._shelf, self._bind)
        self._steps.secrets.know(self._guests.fill(late.rest))
        self.servers = self._servers(named, trusted) if named.specs or named.wrong else None
        """The MCP servers that the project names; None where it names none."""

    @classmethod
    def open(
        cls, root: str | os.PathLike[str] | None = None, *, secrets: SecretSource | None = None
    ) -> Project:
        """The project at `root` or found upward from here; `ProjectNotFound`, `ConfigError`."""
        place = find(root)
        config, vault = load_config(place.config, place.root), Vault(place.root)
        trusted = not config.weakening() or Trust(vault).is_trusted(config.digest)
        return cls(place, config, secrets=secrets, trusted=trusted, vault=vault)

    @property
    def root(self) -> Path:
        """The project's root folder."""
        return self.place.root

    # -- the catalog that doors serve ------------------------------------------------------------

    @property
    def diagnostics(self) -> list[Diagnostic]:
        """What is wrong with manifests, errors and warnings, as far as it is known yet."""
        return self._shelf.diagnostics

    @property
    def errors(self) -> list[Diagnostic]:
        """The errors among the `diagnostics`: finding out where ten thousand warnings stand takes long."""
        return self._shelf.all_errors

    @property
    def revision(self) -> int:
        """Changes whenever the list of tools changes."""
        return self.toolset.revision

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Have `listener` called after each change of the list; gives what ends it."""
        return self.toolset.on_change(listener)

    def tools(self, caller: str = "local", identity: Caller | None = None) -> Sequence[Tool]:
        """Every usable tool that this caller may see: by names of manifests, then as registered."""
        self._shelf.check_all()
        tools = self.toolset.tools()
        if self._live is not None:  # A tool that came later stands where it would after a new start.
            own = {tool.name for tool in tools} & self._shelf.names
            ranks = self._guests.ranks() | {name: (0, name, 0) for name in own}
            tools.sort(key=lambda tool: ranks.get(tool.name, (3, "", 0)))
        return [tool for tool in tools if self._steps.access.visible(tool, caller, identity)]

    def search(
        self,
        query: str,
        *,
        tags: Sequence[str] = (),
        kinds: Sequence[str] = (),
        limit: int = 25,
        page: str | None = None,
        caller: str = "local",
        identity: Caller | None = None,
    ) -> dict[str, Any]:
        """Tools that fit some words, the best first: `hits`, `total`, `facets`, `next`.

        Only tools that this caller may see. `limit` is at most 256; `page` is the `next` of the page before.
        Raises UsageError for a query without a word, and for a page of another search.
        """
        if self._search is None:
            from toolcrib.project.search.search import Search

            self._search = Search(self._shelf, self.toolset, cache_folder(self.place.root))

        def sees(name: str) -> bool:
            return self._steps.access.visible(self.toolset.get(name), caller, identity)

        hidden = sees if self._steps.access.hides(identity) else None
        return self._search.find(query, tags, kinds, limit, page, hidden)

    def get(self, name: str) -> Tool:
        """One tool; `ToolNotFound` names the nearest, `ManifestError` says why it does not load."""
        self._shelf.check(name)
        return self.toolset.get(name)

    def bound(self, name: str) -> Bound:
        """One tool made ready to be called; errors as of `get`."""
        self._shelf.check(name)
        return self.toolset.bound(name)

    def invoke(self, call: Call) -> Coroutine[Any, Any, Result]:
        """The one call path."""
        self._shelf.check(call.tool)
        if self.servers is not None and self._is_unknown(call.tool):
            return self._invoke_unknown(call)
        return self.toolset.invoke(call)

    def _is_unknown(self, name: str) -> bool:
        """Whether it would be a tool of an MCP server that has never told its tools."""
        mounted = None if self.servers is None else self.servers.owner(name)
        return mounted is not None and not mounted.known and name not in self.toolset.names

    async def _invoke_unknown(self, call: Call) -> Result:
        assert self.servers is not None
        mounted = self.servers.owner(call.tool)
        assert mounted is not None
        limit_s = (call.timeout_ms or self.config.timeout_ms) / 1000
        await self.servers.ready(limit_s, [mounted.spec.name])
        return await self.toolset.invoke(call)

    def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | bytes | str | None = None,
        *,
        wait: Literal["raise", "block", "pending"] = "raise",
        idempotency_key: str | None = None,
        **options: Any,
    ) -> Coroutine[Any, Any, Result]:
        """Call a tool and get its `Result`; further options as of `Toolset.call`.

        `wait` says what to do when a person must agree first: fail, wait until one has, or come back with a
        `pending` result. Calls with the same `idempotency_key` run once; the others get its result.
        """
        self._shelf.check(name)
        if wait == "raise" and idempotency_key is None and not self._is_unknown(name):
            return self.toolset.call(name, arguments, **options)
        return self.invoke(
            Call(
                name,
                {} if arguments is None else arguments,
                wait=wait,
                idempotency_key=idempotency_key,
                **options,
            )
        )

    def _missing(self, name: str) -> ToolcribError | None:
        """Why a tool is missing: its manifest is wrong, or its server not there."""
        error = None if self.servers is None else self.servers.unknown(name)
        return error or self._shelf.explain(name)

    async def watch(self, tell: Callable[[Change], None] | None = None) -> None:
        """From now on, until the project is closed, take up what changes in its tools and sources.

        Comes back when it has begun. Calls that run end on the tool they began with; a manifest with errors
        leaves the tool as it was. `tell` is called with each change, on this event loop.
        """
        if self._live is None:
            from toolcrib.project.catalog.reload import HotReload

            self._live = HotReload(self._shelf, self._guests, self._take, tell)
            await self._live.start()

    def _take(self, readings: Sequence[Reading], places: Mapping[str, Loaded]) -> Change:
        """Put in force what is on disk now."""
        new = [reading.tool for reading in readings if reading.tool is not None]
        before = [self._shelf.in_force(reading.name) for reading in readings]
        change = Change()
        self._steps.secrets.know(new)
        self._guests.leave(places, change)
        self._shelf.take(readings, change)
        guests = self._guests.take(places, change)
        self._steps.secrets.know(guests)
        programs = programs_of([*new, *guests], self.place.root)
        if programs != programs_of((tool for tool in before if tool is not None), self.place.root):
            # What no tool may write to: it is found anew, and executors are made that know of it.
            self._workspace = None
            self._shelf.renew()
        return change

    @cached_property
    def approval_service(self) -> ApprovalService:
        """The calls that wait for approval, for a person to decide on."""
        return ApprovalService(
            self._store.approvals,
            self.get,
            self.first_use,
            self.audit.record,
            self._steps.secrets.mask,
            self.config,
        )

    @property
    def elicitation(self) -> Elicitation | None:
        """Asks the users of calling clients for approval; None unless the settings allow that."""
        return Elicitation(self.approval_service) if "elicitation" in self.config.approval_channels else None

    def fingerprint(self, tool: Tool) -> ToolDigest:
        """What a tool is now, part by part: its manifest, the files beside it, what it runs."""
        if self._digests is None:
            self._digests = Digests(self.place.root)
        own = self._digests.of(tool)
        steps = {
            f"step/{part.name}": self._digests.of(part).digest for part in self._composites.tools_of(tool)
        }
        if not steps:
            return own
        whole = " ".join((own.digest, *steps.values()))
        return ToolDigest(hashlib.sha256(whole.encode()).hexdigest(), {**own.parts, **steps})

    def digest_of(self, tool: Tool) -> str:
        """`fingerprint` as one digest."""
        return self.fingerprint(tool).digest

    def review(self, tool: Tool, by: str, digest: ToolDigest | None = None) -> None:
        """Write down that a person has reviewed a tool: as of this digest, or as it is now."""
        digest = digest or self.fingerprint(tool)
        self.audit.record("TOOL_APPROVED", name=tool.name, approver=by, scope="review", digest=digest.digest)
        self.first_use.reviews.accept(tool, digest, by)

    def permissions_of(self, tool: Tool) -> Permissions:
        """What a tool may touch; of a composite one, all that the tools of its steps may."""
        return tool.permissions.union(*(part.permissions for part in self._composites.tools_of(tool)))

    def plan(self, call: Call) -> dict[str, Any]:
        """What a call would do, as JSON: nothing is run, and no secret is in it. Raises as the call would."""
        from toolcrib.project.control.plan import plan_of

        bound = self.bound(call.tool)
        self._steps.access.admit(bound.tool, call.caller, call.identity)
        call.arguments = bound.arguments.check(call.arguments)
        plan = plan_of(bound.tool, call.arguments)
        self._composites.admit(bound.tool, call)
        plan["permissions"] = self.permissions_of(bound.tool).as_json()
        plan["approval"] = self.asks(call)
        planned: dict[str, Any] = self._steps.secrets.mask(plan)
        return planned

    def asks(self, call: Call) -> str | None:
        """Why a person must agree to this call before it runs; None when nobody must.

        `call.arguments` are checked, and become what would run. Raises as the call itself would.
        """
        context = Context.of(call)
        context.bound = bound = self.toolset.bound(self.get(call.tool).name)
        self._steps.access.authorise(context)
        call.arguments = context.arguments = bound.arguments.check(context.arguments)
        questions = self._steps.questions.of(context)
        return questions[-1].reason if questions else self._composites.asks(bound.tool, call)

    # -- binding ---------------------------------------------------------------------------------

    def _servers(self, named: NamedServers, trusted: bool) -> Servers:
        from toolcrib.project.servers import Servers

        servers = Servers(
            named,
            self.toolset,
            vault=self.vault,
            root=self.place.root,
            trusted=trusted,
            unreviewed=self.config.review == "off",
            timeout_ms=self.config.timeout_ms,
            workspace=self.workspace,
            egress=self.egress,
            secrets=self.secrets,
            allowed_hosts=self.config.allowed_hosts,
            record=self.audit.record,
            know=self._steps.secrets.know,
            redact=self._steps.secrets.mask,
        )
        self.pins.remote = servers.definitions
        return servers

    def observe(self, tool: Tool, seen: Observation) -> None:
        """From now on run the tool of this name as `tool` says, and tell `seen` all it uses."""
        self._shelf.put(self._bind(tool, seen))

    def _bind(self, tool: Tool, seen: Observation | None = None) -> BoundTool:
        return BoundTool(
            tool,
            lambda: self._executor(tool, seen),
            timeout_ms=self.config.timeout_ms,
            retry=self.retry(tool),
        )

    def adopt(self, tool: Tool, warnings: Sequence[Diagnostic] = ()) -> None:
        """Add a tool that an agent has just made to this open project."""
        self._steps.secrets.know([tool])
        self._shelf.adopt(self._bind(tool), warnings)
        # What it runs is closed to the other tools from now on: they get executors that know it.
        self._workspace = None
        self._shelf.renew()

    def retry(self, tool: Tool) -> Retry:
        """One attempt for tools from manifests, unless repeating them does no harm."""
        repeatable = tool.annotations.idempotent or kind_of(tool).repeatable(tool.config)
        return self.config.retry if repeatable else Retry()

    def _executor(self, tool: Tool, seen: Observation | None) -> Executor:
        self._shelf.check(tool.name)  # In case the call came by the toolset itself.
        if (error := self._shelf.explain(tool.name)) is not None:
            raise error
        make = kind_of(tool).executor
        if make is None:
            raise ToolUnavailable(f"{tool.name}: no executor for kind {tool.kind!r}")
        host = Host(
            catalog=self.toolset,
            invoke=self.invoke,
            workspace=partial(self.workspace, seen),
            egress=self.egress,
            function=self._function,
            admit=self._composites.admit,
            allowed_hosts=self.config.allowed_hosts,
            retry=self.retry(tool),
            observe_host=None if seen is None else seen.record_host,
        )
        return make(tool, host)

    def _function(self, tool: Tool, reference: str) -> Executor:
        """Return the executor of a registered function, by its reference or the last part of it."""
        for name in (reference, reference.rpartition(".")[2]):
            if name in self.functions.names:
                return self.functions.bound(name).executor
            if name != tool.name and name in self.toolset.names:
                return self.toolset.bound(name).executor
        raise ToolUnavailable(
            f"{tool.name} calls the function {reference!r}, which is not registered in this process",
            hint="Register it where the project is opened: `project.functions.register(name, function)`.",
            details={"reference": reference},
        )

    def workspace(self, seen: Observation | None = None) -> Workspace:
        """The project as its tools see it; `seen` is told what they use."""
        if self._workspace is None:
            from toolcrib.executors import Workspace

            self.lowered()
            root = self.place.root
            servers = () if self.servers is None else self.servers.programs()
            programs = [*programs_of(self.toolset.tools(), root), *servers]
            self._workspace = Workspace(
                str(root),
                str(self.place.home),
                tuple(dict.fromkeys((*programs, *settled(self.config, self.place)))),
                closed=closed_folders(self.config, root),
                allowed_hosts=self.config.allowed_hosts,
                minimum=self.minimum.level,
                advice=self.minimum.advice,
                secret=self._hidden,
                private=self._private,
                own=running_from(str(root)),
            )
        return self._workspace if seen is None else replace(self._workspace, watch=seen)

    def redact(self, value: Any) -> Any:
        """The value with every known secret masked."""
        return self._steps.secrets.mask(value)

    def lowered(self) -> str:
        """What is weaker than usual here, in a line; empty where nothing is. It is recorded the first time.

        Where the settings allow a weaker level, this may take half a second.
        """
        if self._lowered is None:
            found = self.minimum.lowered()
            self._lowered = "" if found is None else self.minimum.banner(found)
            if found is not None:
                self.audit.record("SANDBOX_LOWERED", minimum=self.minimum.level, level=found)
        return self._lowered

    @property
    def _private(self) -> tuple[str, ...]:
        """The user's own folders: as they are named, as links on the way to them count, and as real paths."""
        folders = [os.path.abspath(one) for one in (self.vault.data, cache_home()) if one is not None]  # noqa: PTH100
        return tuple(dict.fromkeys((*map(os.path.realpath, folders), *folders)))

    def egress(self) -> Egress:
        """The way out for HTTP tools."""
        if self._egress is None:
            from toolcrib.egress import Egress

            self._egress = Egress()
        return self._egress

    # -- lifespan --------------------------------------------------------------------------------

    async def __aenter__(self) -> Project:
        await self.toolset.__aenter__()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close connections, tools with resources, and the audit log."""
        try:
            if self._live is not None:
                await self._live.stop()
            if self.servers is not None:
                await self.servers.aclose()
            await self.toolset.aclose()
            if self._egress is not None:
                await self._egress.aclose()
        finally:
            if self._search is not None:
                self._search.close()
            self._store.close()
            self.first_use.reviews.close()
            self._steps.secrets.close()
            self.audit.close()
