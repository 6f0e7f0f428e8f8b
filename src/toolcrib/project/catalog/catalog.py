"""Every tool of one project, wherever it comes from, behind one list of names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import orjson

from toolcrib.builtin.definition import BUILTIN_BUNDLE
from toolcrib.core.bound import Bound
from toolcrib.core.context import Context
from toolcrib.core.toolset import Toolset
from toolcrib.errors import ToolcribError, ToolUnavailable
from toolcrib.manifest import Diagnostic, KeptEntry
from toolcrib.project.catalog.bundles import Bundles, Parts
from toolcrib.project.catalog.external import ExternalTools
from toolcrib.project.catalog.registry import CatalogChange, ToolRegistry, tool_id
from toolcrib.project.config.mcp import FILE
from toolcrib.project.config.settings import Config
from toolcrib.project.control.steps import ProjectSteps
from toolcrib.project.integrity.programs import programs_of
from toolcrib.project.setup import Setup
from toolcrib.project.tools.binding import Binder
from toolcrib.project.tools.builtins import Builtins
from toolcrib.spec import Call, Caller, Result, Tool
from toolcrib.spec.calls.caller import OWN_CALLERS
from toolcrib.spec.naming import DRAFTS
from toolcrib.state import cache_folder
from toolcrib.state.shared import shared_property

if TYPE_CHECKING:
    from toolcrib.bundles import ListedTool
    from toolcrib.core.pipeline import Pipeline
    from toolcrib.executors.trace.observation import Observation
    from toolcrib.project.catalog.reload import HotReload
    from toolcrib.project.catalog.sources import Sources
    from toolcrib.project.tools.mounted import Mounted
    from toolcrib.project.tools.servers import Servers


_MOST_COUNTED = 500
"""Tools that are looked at to count those that wait for trust."""


class ProjectCatalog:
    """The tools of manifests, other files, bundles, MCP servers and the program, and the built-in ones.

    All are in one toolset. A manifest is checked in full when its tool is first listed or called.
    """

    def __init__(
        self,
        setup: Setup,
        toolset: Toolset,
        steps: ProjectSteps,
        binder: Binder,
    ) -> None:
        self._setup, self.toolset, self._steps, self.binder = setup, toolset, steps, binder
        self.files = setup.files
        """Reads the files of the project."""
        self.registry = ToolRegistry(setup.place, self.files, toolset, binder.bind)
        binder.facts = lambda: self.registry.facts
        steps.fingerprints.written = lambda: self.registry.facts.every("write")
        self._external = ExternalTools(setup.config.sources, self.registry)
        # The user's records are not of a file.
        self._data = setup.vault.data if setup.place.file is None else setup.place.home
        unused = lambda: self.settled(self.registry.unchecked)  # noqa: E731 - asked for later
        self.bundles = Bundles(self._data, self._parts, self._checked, unused, lambda: self.toolset.count)
        """The catalogue: the tools of the project, of servers, the built-in ones, and the user's records."""
        steps.count = self._count
        self._ids: dict[str, tuple[Tool, str]] = {}
        self._followed = 0
        self.servers: Servers | None = None
        """The MCP servers that the project names; None if it names none."""
        self._hot_reload: HotReload | None = None

    @shared_property
    def builtins(self) -> Builtins:
        """The built-in tools."""
        return Builtins(self._setup.config, self.toolset, self.binder.host, self._steps)

    @shared_property
    def sources(self) -> Sources:
        """The bundles of the project beside those of the user."""
        from toolcrib.project.catalog.sources import Sources

        return Sources(
            self._setup, self.registry, self.toolset, self.builtins, lambda: self.servers,
            self._steps.store.switches,
        )  # fmt: skip

    def _parts(self) -> Parts:
        from toolcrib.project.catalog.entries import Entries
        from toolcrib.project.catalog.search import Search
        from toolcrib.project.catalog.stored import StoredTools

        stored = StoredTools(
            self._data,
            self.registry,
            self._know_stored,
            self.toolset.announce,
            sources=lambda: self.sources.all,
            pinned=self._setup.config.pinned,
            was_missing=self.bundles.was_missing,
            registered=self._is_function,
        )
        entries = Entries(stored, self.sources, self._steps, lambda: self.servers, self._runs_function)
        search = Search(
            stored,
            lambda: self.bundles.records_index if stored.store.exists else None,
            entries,
            self.sources,
            self.registry,
            cache_folder(self._setup.place.path),
        )
        return Parts(stored, entries, search)

    def _is_function(self, name: str) -> bool:
        return any(one in self.binder.functions for one in (name, name.rpartition(".")[2]))

    def _runs_function(self, name: str) -> bool:
        """Return True if a manifest may name this function: one of the program's tools too."""
        return self._is_function(name) or any(one in self.toolset for one in (name, name.rpartition(".")[2]))

    def _checked(self, tools: Sequence[ListedTool]) -> bool:
        found = self.registry.found
        for tool in tools:
            if tool.full and tool.full in self.registry.unchecked:
                self.registry.check(tool.full)
        return found == self.registry.found

    def _count(self, ctx: Context, result: Result) -> None:
        """Count a call of a tool that ran: what was refused is not one of the tool."""
        if not ctx.started or ctx.tool in self._steps.store.switches.exempt:
            return
        tool = ctx.bound.tool
        if tool.bundle == DRAFTS:
            return
        known = self._ids.get(ctx.tool)
        if known is None or known[0] is not tool:
            record = self.bundles.stored.id_of(ctx.tool) if tool.is_stored else None
            own = tool_id(self._setup.vault, self._setup.place, tool) if record is None else record
            self._ids[ctx.tool] = known = tool, own
        self.bundles.usage.count(
            known[1], failed=not result.ok, ms=result.duration_ms or 0.0, answered=_size(result.value)
        )

    def load(self) -> None:
        """Read all sources, and learn which secrets their tools declare."""
        steps, named = self._steps, self._setup.named_servers
        loaded = self.registry.load()
        # All names of secrets before any call: one tool may print the secret that another declares.
        steps.secrets.know_names(loaded.facts.every("secrets"))
        steps.secrets.know(self._external.load(loaded.rest))
        self.builtins.switch_on(name for name, _ in self._setup.config.builtins)
        self.builtins.switch_on_reader()
        steps.outputs.began = self.builtins.switch_on_reader
        if named.specs or named.wrong or named.notes:
            self._use_servers()

    def _use_servers(self) -> Servers:
        from toolcrib.project.tools.servers import Servers

        steps = self._steps
        servers = Servers(self._setup, self.toolset, self.binder, steps.secrets, steps.trust)
        self.servers, self.binder.servers = servers, servers.specs
        steps.pins.remote, steps.pins.hosts = servers.definitions, servers.hosts
        return servers

    def add_server(self, name: str, config: Config) -> Mounted:
        """Take a server that was added to `.mcp.json` meanwhile; the settings with it are trusted."""
        servers = self.servers or self._use_servers()
        self._setup.starts.use(config)
        servers.add([spec for spec in config.servers.specs if spec.name == name])
        self.sources.add_server(name, self._setup.place.root / FILE)
        self.bundles.stored.sources_changed()
        self._programs_changed()
        self.toolset.announce()
        return servers.get(name)

    async def remove_server(self, name: str, config: Config | None) -> None:
        """End a server that was removed from `.mcp.json`; no `config` for settings that wait for trust."""
        if config is not None:
            self._setup.starts.use(config)
        if self.servers is not None:
            await self.servers.remove(name)
        self.sources.remove_server(name)
        self.bundles.stored.sources_changed()
        self._programs_changed()
        self.toolset.announce()

    def get(self, name: str) -> Tool:
        """Return one tool. Raises ToolNotFound, or ManifestError if its manifest does not load."""
        try:
            return self.bound(name).tool
        except ToolUnavailable as error:  # Without its function it can be shown and trusted, not called.
            return self.bundles.stored.definition(name, error)

    def bound(self, name: str) -> Bound:
        """Return one tool ready to be called, as `Project.bound`."""
        if name not in self.toolset or "/" in name:
            self._follow()
            name = self.bundles.stored.ready(name) or name
        return self.registry.bound(name)

    def why_missing(self, name: str) -> ToolcribError | None:
        """Return the error of a manifest or of an MCP server because of which there is no such tool."""
        error = None if self.servers is None else self.servers.why_missing(name)
        error = error or self.registry.error_of(name) or self.builtins.why_missing(name)
        return self.bundles.stored.why_missing(name) if error is None else error

    def every(self, *, stored: bool = True) -> list[Tool]:
        """Return every usable tool in the order of `Project.tools`; with `stored` those of bundles too."""
        if stored and self.bundles.exist:
            self.bundles.stored.ready_all()
        self.registry.check_all()
        tools = [self.toolset.get(name) for name in self._names()]
        return [tool for tool in tools if stored or not tool.is_stored]

    def with_secrets(self) -> list[Tool]:
        """Return every usable tool that declares a secret; a manifest known to declare none is not read."""
        if self.bundles.exist:
            self.bundles.stored.ready_all()
        facts, found = self.registry.facts, []
        for name in self._names():
            if name not in facts or facts[name].secrets:
                with suppress(ToolcribError):
                    found.append(self.get(name))
        return found

    def _names(self) -> list[str]:
        if self.servers is not None:
            self.servers.reread()
        self._follow()
        names = self.toolset.names
        switches, bundle_of = self._steps.store.switches, self.sources.bundle_of
        if switches.look():
            # A full name with a slash is that of a record.
            names = [one for one in names if "/" in one or switches.is_on(bundle_of(one), one)]
        if self._hot_reload is not None:  # A tool that came later has the position of a new start.
            self._external.sort(names)
        return names

    def _follow(self) -> None:
        """Switch on the built-in tools that a person has switched on since."""
        switches = self._steps.store.switches
        rows = switches.look()
        if switches.revision != self._followed:
            self._followed = switches.revision
            on = (tool for (bundle, tool), enabled in rows.items() if bundle == BUILTIN_BUNDLE and enabled)
            self.builtins.switch_on(on)

    def tools(
        self, caller: str = "local", identity: Caller | None = None, among: Collection[str] | None = None
    ) -> list[Tool]:
        """Return the usable tools that a caller may see, as `Project.tools`."""
        access = self._steps.access
        access.require_valid(identity)
        every = self.every() if among is None else self._named(among)
        seen = [tool for tool in every if access.visible(tool, caller, identity)]
        if caller in OWN_CALLERS and identity is None:
            return seen
        return [one for one in map(self._steps.trust.offered, seen) if one is not None]

    def listed(
        self, caller: str = "local", identity: Caller | None = None
    ) -> Mapping[str, Tool | memoryview]:
        """Return the tools that a model may read by name, or their entries in MCP's list where these are
        kept."""
        self._steps.access.require_valid(identity)
        if self._steps.access.hides(identity):
            return {tool.name: tool for tool in self.tools(caller, identity)}
        if self.bundles.exist:
            self.bundles.stored.ready_all()
        trust, kept = self._steps.trust, self.registry.kept_lists(self.settled(self.registry.unchecked))
        self.registry.check_all(but=kept)
        found: dict[str, Tool | memoryview] = {}
        for name in self._names():
            if name in kept:
                found[name] = kept[name]
            elif (tool := trust.offered(self.toolset.get(name))) is not None:
                found[name] = tool
        return found

    def settled(self, names: Iterable[str]) -> dict[str, KeptEntry]:
        """Return those of these tools that run here, and that a model may read, as their manifests say.

        Nothing has used them yet, and nothing is read to know that.
        """
        return self._steps.trust.settled(self.registry.kept_entries(names))

    def untrusted(self) -> int:
        """Return how many tools nobody has trusted yet, so that no model's list has them.

        Of a large catalog only as many as are looked at quickly, and some may prove unusable when they are
        checked.
        """
        trust = self._steps.trust
        waiting, unsure = trust.unknown(self.toolset.names, self.registry.facts)
        found, kept = len(waiting), self.settled(unsure)
        for name in [name for name in unsure if name not in kept][:_MOST_COUNTED]:
            with suppress(ToolcribError):
                found += trust.offered(self.registry.unused(name) or self.get(name)) is None
        return found

    def _named(self, names: Collection[str]) -> list[Tool]:
        found = {}
        for name in names:
            with suppress(ToolcribError):
                tool = self.get(name)
                found[tool.name] = tool
        # By place in the list, not as they were asked for.
        return [found[name] for name in self.toolset.names if name in found]

    def invoke(self, call: Call) -> Coroutine[Any, Any, Result]:
        """Make a call, by the one path that every call takes."""
        # A name of the project wins over one of a bundle; only a full name has a slash.
        if "/" in call.tool or call.tool not in self.toolset:
            self._follow()
            return self.bundles.invoke(call, self._invoke)
        return self._invoke(call)

    def _invoke(self, call: Call) -> Coroutine[Any, Any, Result]:
        if call.tool in self.registry.unchecked:
            self.registry.check(call.tool)
        if self.servers is not None and (owner := self.servers.before(call.tool)) is not None:
            # It is waited for as long as the call may take.
            limit_s = (call.timeout_ms or self._setup.config.timeout_ms) / 1000
            return self.servers.invoke_when_listed(owner, call, limit_s)
        return self.toolset.invoke(call)

    async def watch(self, report: Callable[[CatalogChange], None] | None = None) -> None:
        """Put changes of tools, sources and bundles into effect, as `Project.watch`."""
        if self._setup.place.file is not None:
            return
        self.bundles.start()
        if self._hot_reload is None:
            from toolcrib.project.catalog.reload import HotReload

            know = self._steps.secrets.know
            self._hot_reload = HotReload(
                self.registry, self._external, know, self._programs_changed, self._decided,
                self._trust_changed, report,
            )  # fmt: skip
            await self._hot_reload.start()

    def _decided(self) -> object:
        """Return a value that changes with what is trusted or switched, by any process."""
        switches = self._steps.store.switches
        switches.look()
        return self._setup.ledger.version, switches.revision

    def _trust_changed(self) -> None:
        """Have clients read the list again."""
        for one in () if self.servers is None else self.servers.mounted.values():
            one.reread()
        self.toolset.announce()

    def _know_stored(self, tools: Sequence[Tool]) -> None:
        self._steps.secrets.know(tools)
        if programs_of(tools, self._setup.place.root):
            self._programs_changed()

    def adopt(self, tool: Tool, warnings: Sequence[Diagnostic] = ()) -> None:
        """Add a tool that an agent has just made to this open project."""
        self._steps.secrets.know([tool])
        self.registry.adopt(tool, warnings)
        self._programs_changed()

    def path_of_draft(self, tool: Tool, seen: Observation | None = None) -> Pipeline:
        """Return the path of calls to a tool that is in no list, with all steps of the project's own path.

        `seen` records what the calls use.
        """
        self._steps.secrets.know([tool])
        bound = self.binder.bind(tool, lambda _: None, seen)
        return self.toolset.pipeline.over({tool.name: bound})

    def observe(self, tool: Tool, seen: Observation) -> None:
        """From now on run the tool of this name as `tool` says, and record in `seen` all it uses."""
        self.registry.put(self.registry.bind(tool, seen))

    def _programs_changed(self) -> None:
        """Close the programs of tools to all other tools: those get executors that know of them."""
        self.binder.reset()
        self.registry.renew()
        self.builtins.renew()

    async def aclose(self) -> None:
        """Stop what runs: watching, servers, tools with resources, connections."""
        # First what brings new tools in, last the connections that running tools still use.
        await self.bundles.stop()
        if self._hot_reload is not None:
            await self._hot_reload.stop()
        if self.servers is not None:
            await self.servers.aclose()
        await self.toolset.aclose()
        await self.binder.aclose()

    def close(self) -> None:
        """Close the indexes, and keep the results of checks."""
        self.bundles.close()
        self.registry.close()


def _size(value: Any) -> int:
    """Return the bytes of a result as JSON; those of a text without escapes."""
    if value.__class__ is str:
        return len(value)
    try:
        return 0 if value is None else len(orjson.dumps(value))
    except TypeError:  # No JSON, or an integer beyond 64 bits.
        return len(str(value))
