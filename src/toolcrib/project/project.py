"""An open project: settings, manifests, executors, secrets and audit behind one call path."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from toolcrib.core.bound import Bound
from toolcrib.core.events import stream_events
from toolcrib.core.toolset import Toolset
from toolcrib.errors import ToolcribError, ToolUnavailable
from toolcrib.guard import EnvironmentSecrets, Reviews, ToolDigest, Trust
from toolcrib.manifest import Diagnostic
from toolcrib.project.catalog.bundles import Bundles
from toolcrib.project.catalog.external import ExternalTools
from toolcrib.project.catalog.registry import CatalogChange, ToolRegistry
from toolcrib.project.config.settings import Config, load_config, source_files
from toolcrib.project.control.acceptance import (
    Acceptance,
    ProjectDigest,
    digest_of_project,
    require_own_folder,
)
from toolcrib.project.control.approvals.elicitation import Elicitation
from toolcrib.project.control.approvals.service import ApprovalService
from toolcrib.project.control.composites import Composites
from toolcrib.project.control.first_use import FirstUse, ReviewSheet
from toolcrib.project.control.outputs import KeptOutputs
from toolcrib.project.control.steps import ProjectSteps
from toolcrib.project.control.store import DecisionStore
from toolcrib.project.integrity.fingerprints import Fingerprints
from toolcrib.project.integrity.lock import Pins
from toolcrib.project.integrity.programs import programs_of
from toolcrib.project.preview import Preview
from toolcrib.project.root import Place, find
from toolcrib.project.setup import Setup
from toolcrib.project.tools.binding import Binder
from toolcrib.project.tools.builtins import Builtins
from toolcrib.project.tools.middleware import named_middleware
from toolcrib.project.tools.workspaces import Workspaces
from toolcrib.spec import Call, Caller, CallEvent, CallEvents, Result, SecretSource, Tool
from toolcrib.state import Vault, cache_folder, load_user_settings, require_database

if TYPE_CHECKING:
    from toolcrib.bundles import BuiltIn
    from toolcrib.executors.trace.observation import Observation
    from toolcrib.project.catalog.reload import HotReload
    from toolcrib.project.catalog.search import Search
    from toolcrib.project.catalog.stored import StoredTools
    from toolcrib.project.catalog.stored_search import StoredSearch
    from toolcrib.project.durable.agents import ProjectAgents
    from toolcrib.project.durable.calls import ProjectCalls
    from toolcrib.project.durable.tasks import ProjectTasks
    from toolcrib.project.durable.workflows import ProjectWorkflows
    from toolcrib.project.tools.servers import Servers
    from toolcrib.runs.agents import AgentRuns, AgentTools, Models

Accept = Literal["reviewed", "all"]


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
        accept: Accept | ProjectDigest = "reviewed",
        built_in: Sequence[BuiltIn] = (),
        database: str | None = None,
    ) -> None:
        self._setup = setup = Setup.of(place, config, secrets, trusted, vault, whole=accept == "all")
        self.place, self.root = place, place.root
        self.sandbox_level, self.waiting = setup.sandbox_level, setup.waiting
        self.config = config = setup.config
        self.vault, self.audit, self.secrets = setup.vault, setup.audit, setup.secrets
        self._store = DecisionStore(place, self.vault, config, database)
        fingerprints = Fingerprints(place.root, self.parts_of)
        self.fingerprint = fingerprints.of
        versions = accept.tools if isinstance(accept, ProjectDigest) else {}
        self.acceptance = Acceptance(Trust(self.vault), self.digest, accept == "all", versions)
        """The acceptance of the project as a whole."""
        self.pins = Pins(place.root, self.fingerprint, config.started)
        """Compares tools, agents and workflows with `toolcrib.lock`, if there is one."""
        reviews, asks = Reviews(self.vault), config.review == "ask"
        known = (self.parts_of, self.get, place, self.acceptance, self.pins)
        self.first_use = FirstUse(reviews, self.fingerprint, *known, asks=asks)
        """The reviews of tools, and which tools agents have made."""
        self._steps = ProjectSteps(setup, self._store, self.first_use, self.pins, self.fingerprint)
        self.redact, self.hides = self._steps.secrets.mask, self._steps.access.hides
        """Masks every known secret in a JSON value; returns True if a caller may not see every tool."""
        self.toolset = Toolset(
            safe_retry=config.retry,
            timeout_ms=config.timeout_ms,
            controls=self._steps.controls,
            missing=self._why_missing,
            lenient=config.lenient,
        )
        """Every tool. Functions registered here get the project's guard and audit too."""
        self.on_change = self.toolset.on_change
        """Calls a listener after each change of the list, and returns a function that ends this."""
        self.functions = Toolset()
        """The functions that manifests of kind `function` name; they are no tools themselves."""
        self._composites = Composites(self.bound, self._steps.access)
        reviewed, functions = self.first_use.reviewed_grants, self.functions
        self._workspaces = spaces = Workspaces(setup, self.toolset, reviewed, self._steps.secrets)
        self._binder = Binder(setup, self.toolset, functions, spaces, self._composites, self.invoke)
        self._files = files = source_files(place.root, place.home, setup.hidden)
        self._registry = ToolRegistry(place, files, self.toolset, self._binder.bind)
        self._external = ExternalTools(config.sources, self._registry)
        self.bundles = Bundles(self.vault.data, built_in, partial(self._stored_tools, built_in))
        """The user's bundles. Their tools are tools of the project too."""
        preview = Preview(self._registry, self._steps, self._composites)
        self.plan, self.asks, self.permissions_of = preview.plan, preview.asks, preview.permissions_of
        self.questions = preview.questions
        self._hot_reload: HotReload | None = None
        self.servers: Servers | None = None
        """The MCP servers that the project names; None if it names none."""
        self._load()

    @cached_property
    def builtins(self) -> Builtins:
        """The built-in tools."""
        state, know = lambda: self._store.state, self._steps.secrets.know
        outputs, only_for = self.outputs, self._steps.access.only_for
        return Builtins(self.config, self.toolset, self._binder.host, state, outputs, know, only_for)

    @property
    def outputs(self) -> KeptOutputs:
        """The long outputs of calls, kept as artifacts."""
        return self._steps.outputs

    def _stored_tools(self, built_in: Sequence[BuiltIn], was_missing: bool) -> StoredTools:
        from toolcrib.project.catalog.stored import StoredTools

        return StoredTools(
            self.vault.data,
            self._registry,
            self._know_stored,
            self.toolset.announce,
            reserved=("project", *(spec.name for spec in self._setup.named_servers.specs)),
            pinned=self.config.pinned,
            built_in=built_in,
            was_missing=was_missing,
            registered=lambda name: name in self.functions or name.rpartition(".")[2] in self.functions,
            shipped=self.builtins.stored,
        )

    def _load(self) -> None:
        self.first_use.mask, self._steps.plan = self.redact, self.plan
        for middleware in named_middleware(self._setup):
            self.toolset.use(middleware)
        loaded = self._registry.load()
        self._steps.secrets.know_names({name for tool in loaded.tools for name in tool.secrets})
        self._steps.secrets.know(self._external.load(loaded.rest))
        self.builtins.switch_on(name for name, _ in self.config.builtins)
        self.builtins.switch_on_reader()
        self.outputs.began = self.builtins.switch_on_reader
        named = self._setup.named_servers
        if named.specs or named.wrong:
            from toolcrib.project.tools.servers import Servers

            self.servers = Servers(self._setup, self.toolset, self._workspaces, self._steps.secrets)
            self.pins.remote = self.servers.definitions
            self._workspaces.server_programs = self.servers.programs

    @classmethod
    def open(
        cls,
        root: str | os.PathLike[str] | None = None,
        *,
        secrets: SecretSource | None = None,
        accept: Accept = "reviewed",
        data: Path | None = None,
        built_in: Sequence[BuiltIn] = (),
        database: str | None = None,
    ) -> Project:
        """Open the project at `root`, or the nearest one upward from the working folder.

        `accept` says what may run: `reviewed`, what this user has made, accepted and reviewed; `all`,
        whatever the project holds, with its settings: the program answers for it. `data` is the user's data
        folder, which holds the bundles; by default the one of the platform. `built_in` are bundles that come
        with the program. `database` is `sqlite`, the project's own file, or the address of a Postgres server;
        without it `--database`, `$DATABASE_URL` and the settings count.

        Raises ProjectNotFound, ConfigError, UsageError for another address, and NotTrusted for a folder of
        another user.
        """
        if database is not None:
            require_database(database)
        place = find(root)
        vault = Vault(place.root, data)
        config = load_config(place.config, place.root).since(trust := Trust(vault))
        make = partial(cls, place, config, secrets=secrets, vault=vault, built_in=built_in, database=database)
        if accept == "all":
            return make(trusted=True, accept="all")
        if trust.current() is None:
            named = load_user_settings().accepted_projects
            found = _inspected(cls, place, config, vault).digest() if named else None
            if found is not None and found.digest in named:
                return make(trusted=True, accept=found)
            require_own_folder(place)
        return make(trusted=not config.weakening() or trust.is_trusted(config.digest))

    @classmethod
    def inspect(cls, root: str | os.PathLike[str] | None = None) -> Project:
        """Open a project to show it as it would be once accepted.

        Nothing of it is started and no secret is read. Raises ProjectNotFound and ConfigError.
        """
        place = find(root)
        vault = Vault(place.root)
        return _inspected(cls, place, load_config(place.config, place.root).since(Trust(vault)), vault)

    def digest(self) -> ProjectDigest:
        """Return the digest of the whole project: its settings, agents, workflows and all of its tools."""
        if not self._setup.trusted and self._setup.waiting:  # Tools of some sources are missing here.
            return Project.inspect(self.root).digest()
        files = source_files(self.root, self.place.home, self._setup.hidden)
        tools = self._every_tool(stored=False)
        return digest_of_project(self.config.digest, self.place, files, tools, self.fingerprint)

    def lowered(self) -> str:
        """Return a line about what is weaker than usual here, or "". The first time may take 0.5 s."""
        return self._workspaces.lowered

    @property
    def diagnostics(self) -> list[Diagnostic]:
        """Errors and warnings of manifests, as far as they are known yet."""
        return self._registry.diagnostics

    @property
    def errors(self) -> list[Diagnostic]:
        """The errors among the `diagnostics`, which are found much faster than warnings."""
        return self._registry.all_errors

    @property
    def revision(self) -> int:
        """Changes whenever the list of tools changes."""
        return self.toolset.revision

    def tools(
        self,
        caller: str = "local",
        identity: Caller | None = None,
        *,
        among: Collection[str] | None = None,
    ) -> Sequence[Tool]:
        """Return every usable tool that this caller may see: by names of manifests, then as registered.

        Tools of bundles come last. `among` are names: then only these.

        Raises InvalidToken, as `search` and `subscribe` do, if the caller's token is no longer valid.
        """
        self._steps.access.require_valid(identity)
        every = self._every_tool() if among is None else self._named(among)
        return [tool for tool in every if self._steps.access.visible(tool, caller, identity)]

    def _named(self, names: Collection[str]) -> list[Tool]:
        found = []
        for name in names:
            with suppress(ToolcribError):
                found.append(self.get(name))
        order = {name: number for number, name in enumerate(self.toolset.names)}
        return sorted(found, key=lambda tool: order.get(tool.name, 0))

    def _every_tool(self, *, stored: bool = True) -> list[Tool]:
        if stored and self.bundles.exist:
            self.bundles.stored.ready_all()
        self._registry.check_all()
        tools = [tool for tool in self.toolset.tools() if stored or not tool.is_stored]
        if self._hot_reload is not None:  # A tool that came later has the position of a new start.
            self._external.sort(tools)
        return tools

    def _stored_search(self) -> StoredSearch | None:
        return self.bundles.index if self.bundles.exist else None

    @cached_property
    def _search(self) -> Search:
        from toolcrib.project.catalog.search import Search

        return Search(self._registry, self.toolset, cache_folder(self.place.root), self._stored_search)

    def search(
        self,
        query: str,
        *,
        tags: Sequence[str] = (),
        kinds: Sequence[str] = (),
        limit: int = 25,
        page: str | None = None,
        facets: bool = False,
        caller: str = "local",
        identity: Caller | None = None,
    ) -> dict[str, Any]:
        """Return the tools that match some words, the best first: `hits`, `total`, `next`.

        Only tools that this caller may see. `limit` is at most 256; `page` is the `next` of the page before;
        `facets` adds how many hits have each tag and kind. Raises UsageError for a query without a word, and
        for a page of another search.
        """
        return self._search.find(query, tags, kinds, limit, page, self._seen_by(caller, identity), facets)

    def suggest(
        self, question: str, *, limit: int = 5, caller: str = "local", identity: Caller | None = None
    ) -> list[str]:
        """Return the names of the tools that fit a question best, of those that this caller may see.

        Unlike `search` it counts words of the same meaning too, and it needs no word to match exactly.
        """
        return self._search.suggest(question, limit, self._seen_by(caller, identity))

    def _seen_by(self, caller: str, identity: Caller | None) -> Callable[[Tool], bool] | None:
        """Return a function that says if this caller may see a tool; None for one who sees all."""
        access = self._steps.access
        access.require_valid(identity)
        return (lambda tool: access.visible(tool, caller, identity)) if access.hides(identity) else None

    def get(self, name: str) -> Tool:
        """Return one tool. Raises ToolNotFound, or ManifestError if its manifest does not load."""
        try:
            return self.bound(name).tool
        except ToolUnavailable as error:  # Without its function it can be shown and reviewed, not called.
            return self.bundles.stored.definition(name, error)

    def bound(self, name: str) -> Bound:
        """Return one tool ready to be called. Raises as `get` does.

        A tool of a bundle is found by `[BUNDLE/]NAME[@VERSION]`; its full name is in the tool.
        """
        if (name not in self.toolset or "/" in name) and self.bundles.exist:
            name = self.bundles.stored.ready(name) or name
        return self._registry.bound(name)

    def _why_missing(self, name: str) -> ToolcribError | None:
        """Return the error of a manifest or of an MCP server because of which there is no such tool."""
        error = None if self.servers is None else self.servers.why_missing(name)
        error = error or self._registry.error_of(name) or self.builtins.why_missing(name)
        return self.bundles.stored.why_missing(name) if error is None and self.bundles.exist else error

    def invoke(self, call: Call) -> Coroutine[Any, Any, Result]:
        """Make a call, by the one path that every call takes."""
        if ("/" in call.tool or call.tool not in self.toolset) and self.bundles.exist:
            return self.bundles.invoke(call, self._invoke)
        return self._invoke(call)

    def _invoke(self, call: Call) -> Coroutine[Any, Any, Result]:
        self._registry.check(call.tool)
        if self.servers is not None and self.servers.may_bring(call.tool):
            limit_s = (call.timeout_ms or self.config.timeout_ms) / 1000
            return self.servers.invoke_when_ready(call, limit_s)
        return self.toolset.invoke(call)

    def subscribe(
        self, caller: str = "local", identity: Caller | None = None, *, size: int = 1_000
    ) -> CallEvents:
        """Return the events of running calls, of tools that this caller may see. Close it in the end.

        Nothing more comes once the caller's token is no longer valid.
        """
        access = self._steps.access
        access.require_valid(identity)
        return self.toolset.subscribe_where(
            lambda name: access.valid(identity) and access.visible(self.toolset.get(name), caller, identity),
            size,
        )

    def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | bytes | str | None = None,
        *,
        wait: Literal["raise", "block", "pending"] = "raise",
        idempotency_key: str | None = None,
        **options: Any,
    ) -> Coroutine[Any, Any, Result]:
        """Call a tool and return its `Result`; further options as of `Toolset.call`.

        `wait` is what to do if a call needs approval: fail, wait for it, or return a `pending` result. Of
        calls with the same `idempotency_key` one runs, and the others get its result.
        """
        if wait == "raise" and idempotency_key is None and name in self.toolset and "/" not in name:
            self._registry.check(name)
            return self.toolset.call(name, arguments, **options)  # faster than by a `Call`
        options |= {"wait": wait, "idempotency_key": idempotency_key}
        return self.invoke(Call(name, {} if arguments is None else arguments, **options))

    def stream(
        self, name: str, arguments: Mapping[str, Any] | bytes | str | None = None, **options: Any
    ) -> AsyncGenerator[CallEvent | Result]:
        """Call a tool, yield each `CallEvent` and, at last, its `Result`; as `Toolset.stream` does."""
        return stream_events(lambda listener: self.call(name, arguments, on_event=listener, **options))

    @cached_property
    def calls(self) -> ProjectCalls:
        """Durable calls: stored before they run, and recorded once."""
        from toolcrib.project.durable.calls import Concurrency, ProjectCalls

        concurrency = Concurrency(self.toolset, self.config.concurrency)
        calls = ProjectCalls(
            lambda: self._store.runs.calls, self.toolset.pipeline, self.bound, self.invoke, concurrency
        )
        calls.on_serve.append(self._serve_runs)
        return calls

    @cached_property
    def agents(self) -> ProjectAgents:
        """The agents of the project: those in files, and those that the program adds."""
        from toolcrib.project.durable.agents import ProjectAgents

        return ProjectAgents(self.place, self._files, self.first_use)

    @cached_property
    def tasks(self) -> ProjectTasks:
        """Tasks for agents of the project and for command-line agents."""
        from toolcrib.project.durable.tasks import ProjectTasks

        return ProjectTasks(self.place, self._files, self.tools, self.agents, lambda: self.runs, self.invoke)

    @cached_property
    def workflows(self) -> ProjectWorkflows:
        """The workflows of the project. Their runs are in `runs`."""
        from toolcrib.project.durable.workflows import ProjectWorkflows

        return ProjectWorkflows(self.place, self._files, self.first_use, self.toolset, lambda: self.runs)

    @cached_property
    def runs(self) -> AgentRuns:
        """Sessions and runs of agents."""
        from toolcrib.runs.agents import AgentRuns

        models, tools = self._agent_parts
        return AgentRuns(self._store.runs, self.agents.get, models, tools, self.calls)

    @cached_property
    def _agent_parts(self) -> tuple[Models, AgentTools]:
        from toolcrib.project.durable.agents import agent_tools
        from toolcrib.runs.agents import Models

        models = Models(self.config.providers, self.secrets, self._workspaces.egress)
        self._steps.secrets.know_names(models.keys)
        return models, agent_tools(self.calls, self.get, self.builtins)

    def _serve_runs(self) -> None:
        from toolcrib.project.durable.agents import serve_runs

        self.calls.on_beat.append(switch_on := partial(self.agents.switch_on, self.builtins))
        switch_on()
        serve_runs(self.calls, self._store.runs, *self._agent_parts)

    def submit(
        self,
        name: str,
        arguments: Mapping[str, Any] | bytes | str | None = None,
        *,
        connection: object = None,
        **options: Any,
    ) -> str:
        """Store a durable call and return its id; options as of `ProjectCalls.submit`.

        With `connection`, a `psycopg.Connection` to the project's database, the call exists only if the
        transaction that is open on it is committed. `calls.submit_in_async` takes an `AsyncConnection`.
        """
        if connection is not None:
            return self.calls.submit_in(connection, name, arguments, **options)
        return self.calls.submit(name, arguments, **options)

    @cached_property
    def approval_service(self) -> ApprovalService:
        """The calls that wait for approval, for a person to decide on."""
        mask, audit = self._steps.secrets.mask, self.audit
        return ApprovalService(
            self._store.approvals, self.get, self.first_use, audit.record, mask, self.config, audit.path
        )

    @property
    def elicitation(self) -> Elicitation | None:
        """Asks the users of calling clients for approval; None unless the settings allow that."""
        return Elicitation(self.approval_service) if "elicitation" in self.config.approval_channels else None

    def parts_of(self, tool: Tool) -> list[Tool]:
        """Return every tool that a call of this one may lead to."""
        return self._composites.tools_of(tool)

    def sheets(self) -> tuple[list[ReviewSheet], list[ToolcribError]]:
        """Return every tool, agent and workflow as it is shown for review, and the errors of all others.

        Tools of bundles are not of the project; `first_use.sheet` shows one of them.
        """
        sheets, errors = [], []
        tools = self._every_tool(stored=False)
        for tool in (*tools, *self.agents.reviewed(), *self.workflows.reviewed()):
            try:
                if tool.source is not None:
                    sheets.append(self.first_use.sheet(tool))
            except ToolcribError as error:
                errors.append(error)
        return sheets, errors

    def accept(self, by: str, sheets: Sequence[ReviewSheet] = (), *, channel: str = "program") -> None:
        """Record that a person accepts the project with its settings and these tools, as they were shown."""
        digest, names = self.config.digest, [one.tool.name for one in sheets]
        self.audit.record("PROJECT_ACCEPTED", approver=by, channel=channel, digest=digest, tools=names)
        self.first_use.reviews.accept_all([(one.tool, one.digest) for one in sheets], by)
        Trust(self.vault).accept(digest, by, self.config.started, self.config.policy_document)

    def review(
        self, tool: Tool, by: str, digest: ToolDigest | None = None, *, channel: str = "program"
    ) -> None:
        """Record that a person has reviewed a tool, with this digest or as it is now."""
        digest = digest or self.fingerprint(tool)
        self.audit.record(
            "TOOL_APPROVED",
            name=tool.name,
            approver=by,
            channel=channel,
            scope="review",
            digest=digest.digest,
        )
        self.first_use.reviews.accept(tool, digest, by)

    async def watch(self, report: Callable[[CatalogChange], None] | None = None) -> None:
        """Put changes of tools, sources and bundles into effect until the project is closed.

        Returns when it has begun. Running calls end on the tool they began with. A manifest with errors
        leaves the tool as it was. `report` is called with each change, on this event loop.
        """
        self.bundles.start()
        if self._hot_reload is None:
            from toolcrib.project.catalog.reload import HotReload

            know = self._steps.secrets.know
            self._hot_reload = HotReload(self._registry, self._external, know, self._programs_changed, report)
            await self._hot_reload.start()

    def _know_stored(self, tools: Sequence[Tool]) -> None:
        self._steps.secrets.know(tools)
        if programs_of(tools, self.root):
            self._programs_changed()

    def adopt(self, tool: Tool, warnings: Sequence[Diagnostic] = ()) -> None:
        """Add a tool that an agent has just made to this open project."""
        self._steps.secrets.know([tool])
        self._registry.adopt(tool, warnings)
        self._programs_changed()

    def observe(self, tool: Tool, seen: Observation) -> None:
        """From now on run the tool of this name as `tool` says, and record in `seen` all it uses."""
        self._registry.put(self._registry.bind(tool, seen))

    def _programs_changed(self) -> None:
        """Close the programs of tools to all other tools: those get executors that know of them."""
        self._workspaces.reset()
        self._registry.renew()
        self.builtins.renew()

    async def __aenter__(self) -> Project:
        await self.toolset.__aenter__()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close connections, tools with resources, and the audit log."""
        try:
            if "calls" in self.__dict__:
                await self.calls.stop()
            await self.bundles.stop()
            if self._hot_reload is not None:
                await self._hot_reload.stop()
            if self.servers is not None:
                await self.servers.aclose()
            await self.toolset.aclose()
            await self._workspaces.aclose()
        finally:
            if "_search" in self.__dict__:
                self._search.close()
            self.bundles.close()
            self._store.close()
            self.first_use.reviews.close()
            self._steps.secrets.close()
            self.audit.close()


def _inspected(make: type[Project], place: Place, config: Config, vault: Vault) -> Project:
    return make(place, config, secrets=EnvironmentSecrets({}), trusted=True, vault=vault)
