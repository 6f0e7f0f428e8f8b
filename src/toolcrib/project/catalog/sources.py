"""The sources of a project as bundles: its manifests and functions, each MCP server, the built-in tools."""

from __future__ import annotations

import hashlib
import os
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from toolcrib.builtin.definition import BUILTIN_BUNDLE, BUILTIN_VERSION
from toolcrib.builtin.names import FOLDER_OF, NAMES
from toolcrib.bundles import BundleRecord, ListedTool, ToolRecord, label_of, slug_of
from toolcrib.bundles.answers import Source
from toolcrib.bundles.records import ToolType
from toolcrib.errors import ManifestError, ToolcribError
from toolcrib.manifest import uncollected
from toolcrib.manifest.native.kept import cache_key, read_cache, write_cache
from toolcrib.manifest.native.writer import write_manifest
from toolcrib.manifest.touches import Touch, touched
from toolcrib.project.catalog.registry import PROJECT_BUNDLE, source_id
from toolcrib.project.config.mcp import FILE
from toolcrib.spec import McpExec, Tool
from toolcrib.spec.identifier import derived_id
from toolcrib.spec.moment import written_ns
from toolcrib.spec.naming import stored_name
from toolcrib.spec.tools.kinds import FunctionExec
from toolcrib.state import cache_folder

if TYPE_CHECKING:
    from toolcrib.core.toolset import Toolset
    from toolcrib.project.catalog.registry import ToolRegistry
    from toolcrib.project.control.store import Switches
    from toolcrib.project.setup import Setup
    from toolcrib.project.tools.builtins import Builtins
    from toolcrib.project.tools.servers import Servers

_PACKAGE = Path(sys.modules["toolcrib.builtin"].__path__[0])
_LONGEST = 64
_FORM = "toolcrib list 1"
_FEW = 200
"""So many manifests are listed as quickly without the file."""
_DIGITS = 8
"""Digits of the hash in an address that the slug alone does not make unique."""


class ProjectSource:
    """One source as a bundle (`SourceBundle`)."""

    def __init__(self, sources: Sources, source: Source, name: str, file: Path, display: str = "") -> None:
        self._sources, self.source, self.name, self.file = sources, source, name, file
        self._display = display or name
        self._addresses: tuple[object, Mapping[tuple[str, str], ListedTool]] = (None, {})
        self.id = source_id(sources.setup.vault, source, name)
        self.slug = _fitting(slug_of(name), name)

    @property
    def revision(self) -> object:
        """A value that differs once its tools may do so."""
        return self._sources.revision

    def bundle(self) -> BundleRecord:
        """Return its record."""
        changed = written_ns(_changed(self.file))
        return BundleRecord(
            id=self.id,
            slug=self.slug,
            display_name=self._display,
            is_enabled=self._sources.switches.get(self.name) is not False,
            is_built_in=self.source == "builtin",
            created_at=changed,
            modified_at=changed,
        )

    def listed(self) -> Sequence[ListedTool]:
        """Return its tools."""
        return self._sources.tools()[self.name]

    def find(self, slug: str, version: str) -> ListedTool | None:
        """Return the tool at an address; None if there is none."""
        tools = self.listed()
        if self._addresses[0] is not tools:
            self._addresses = tools, {(one.slug, one.version): one for one in tools}
        return self._addresses[1].get((slug, version))

    def record(self, tool: ListedTool) -> ToolRecord:
        """Return one of them whole. Raises ManifestError for one that cannot be read."""
        made = self._sources.definition(tool)
        schema = made.output.schema
        return ToolRecord(
            id=tool.id,
            bundle_id=self.id,
            slug=tool.slug,
            version=tool.version,
            display_name=tool.name,
            description=made.description,
            tags=tool.tags,
            type=tool.type,  # type: ignore[arg-type]  # made here
            is_enabled=tool.enabled,
            is_built_in=self.source == "builtin",
            arg_schema=dict(made.input_schema),
            output_schema=dict(schema) if isinstance(schema, dict) else None,
            impl=_impl(made),
            created_at=tool.created,
            modified_at=tool.modified,
        )

    def switch(self, tool: ListedTool | None, *, enabled: bool, by: str) -> None:
        """Turn a tool on or off; None: the bundle. Raises AuditUnavailable and StateUnavailable."""
        if tool is None:
            event, named = "BUNDLE_ENABLED" if enabled else "BUNDLE_DISABLED", {}
        else:
            event = "TOOL_ENABLED" if enabled else "TOOL_DISABLED"
            named = {"name": tool.name, "version": tool.version}
        # The log comes first: if it cannot be written, nothing is switched.
        self._sources.setup.audit.record(event, **named, bundle=self.name, caller=by)
        self._sources.switches.set(self.name, "" if tool is None else tool.name, enabled=enabled, by=by)


class Sources:
    """All sources of one project.

    Of a manifest that was not built yet only what the cache keeps of it is looked at.
    """

    def __init__(
        self,
        setup: Setup,
        registry: ToolRegistry,
        toolset: Toolset,
        builtins: Builtins,
        servers: Callable[[], Servers | None],
        switches: Switches,
    ) -> None:
        self.setup, self.switches = setup, switches
        self._registry, self._toolset, self._builtins, self._servers = registry, toolset, builtins, servers
        place, in_file = setup.place, setup.named_servers.shared or ()
        self.builtin = ProjectSource(self, "builtin", BUILTIN_BUNDLE, _PACKAGE / "names.py")
        if place.file is None:
            settings = place.config if place.config.exists() else place.home
            self.own = ProjectSource(self, "project", PROJECT_BUNDLE, settings, place.root.name)
            self.all = [self.own, self.builtin]
        else:
            self.own = ProjectSource(self, "file", PROJECT_BUNDLE, place.file, place.file.name)
            self.all = [self.own]
        for spec in setup.named_servers.specs:
            file = place.root / FILE if spec.name in in_file else place.config
            self.add_server(spec.name, file)
        self._tools: tuple[object, Mapping[str, Sequence[ListedTool]]] = (None, {})
        self._known: dict[tuple[str, str], tuple[object, object, ListedTool]] = {}
        """By bundle and name, what a tool was listed for, and how."""
        folder = cache_folder(place.path)
        self._file = None if folder is None else folder / "list"
        """The file with the tools of manifests as they are listed, made anew with that of the manifests."""

    def add_server(self, name: str, file: Path) -> None:
        """Take an MCP server that a file names as one more source."""
        self.all.append(ProjectSource(self, "server", name, file))

    def remove_server(self, name: str) -> None:
        """Forget the source of an MCP server."""
        self.all = [one for one in self.all if (one.source, one.name) != ("server", name)]

    @property
    def revision(self) -> object:
        """A value that differs once any tool may do so."""
        self.switches.look()
        return self._toolset.revision, self.switches.revision, self._registry.found

    def bundle_of(self, name: str) -> str:
        """Return the name of the source of a tool in the toolset that is no record."""
        if self._builtins.owns(name):
            return BUILTIN_BUNDLE
        servers = self._servers()
        owner = None if servers is None else servers.owners.get(name)
        return self.own.name if owner is None else owner.spec.name

    def definition(self, tool: ListedTool) -> Tool:
        """Return a tool, on or off. Raises ManifestError for one that cannot be read."""
        if tool.fault:
            raise ManifestError(f"{tool.name} cannot be used: {tool.fault}", hint="toolcrib lint")
        if tool.bundle == self.builtin.id and not self._builtins.owns(tool.name):
            return self._builtins.definition(tool.name)
        return self._toolset.get(tool.name)

    def touched(self, tool: ListedTool) -> Collection[Touch]:
        """Return what a tool may touch, from what is known of its manifest. Raises as `definition`."""
        facts = self._registry.facts
        known = tool.full in facts and not tool.fault and facts.touches(tool.full)
        return known or touched(self.definition(tool))

    def tools(self) -> Mapping[str, Sequence[ListedTool]]:
        """Return the tools of each source, by its name."""
        revision = self.revision
        if self._tools[0] != revision:
            with uncollected():
                self._tools = revision, self._all_tools()
        return self._tools[1]

    @cached_property
    def _listed_before(self) -> dict[str, ListedTool]:
        """Tools of manifests by name, as an earlier process has listed them."""
        read = None if self._file is None else read_cache(self._file, self._key)
        tools = [] if read is None else msgspec.msgpack.decode(read[2], type=list[ListedTool])
        return {tool.full: tool for tool in tools}

    @property
    def _key(self) -> bytes:
        return cache_key(_FORM, [self._registry.facts.digest, self.own.id])

    def _keep_list(self, tools: Iterable[ListedTool]) -> None:
        is_kept = self._registry.facts.is_kept
        kept = [tool for tool in tools if is_kept(tool.full)]
        if self._file is not None and len(kept) > _FEW and len(kept) > len(self._listed_before):
            write_cache(self._file, self._key, msgspec.msgpack.encode(kept), ())
            self._listed_before = {tool.full: tool for tool in kept}

    def _all_tools(self) -> dict[str, Sequence[ListedTool]]:
        names: dict[str, list[str]] = {one.name: [] for one in self.all}
        facts = self._registry.facts
        for name in self._toolset.names:
            # A full name with a slash is that of a record.
            if name not in self.switches.exempt and "/" not in name:
                bundle = self.own.name if name in facts else self.bundle_of(name)
                names.setdefault(bundle, []).append(name)
        names[BUILTIN_BUNDLE] = list(NAMES)
        faults = {name: why for name, why in self._registry.faults().items() if name not in self._toolset}
        found = {source.name: list(self._of(source, names[source.name])) for source in self.all}
        self._keep_list(found[self.own.name])
        found[self.own.name] += self._faulty(faults, {tool.slug for tool in found[self.own.name]})
        kept = {bundle: {tool.name for tool in tools} for bundle, tools in found.items()}
        self._known = {key: one for key, one in self._known.items() if key[1] in kept.get(key[0], ())}
        return dict(found.items())

    def _of(self, source: ProjectSource, names: Sequence[str]) -> Iterator[ListedTool]:
        slugs = {name: slug_of(name) for name in names}
        shared = {slug for slug, count in Counter(slugs.values()).items() if count > 1}
        rows = self.switches.look()
        make = self._builtin if source is self.builtin else partial(self._listed, source)
        for name, slug in slugs.items():
            # Of two names with one slug, the one that is the slug keeps it.
            own = _fitting(slug, name, hashed=slug in shared and slug != name)
            try:
                yield make(name, own, rows.get((source.name, name)))
            except ToolcribError:
                continue

    def _listed(self, source: ProjectSource, name: str, slug: str, switched: bool | None) -> ListedTool:
        facts_of, before = self._registry.facts, self._listed_before.get(name)
        state = slug, switched is not False
        if before is not None and (before.slug, before.enabled) == state and facts_of.is_kept(name):
            return before
        mark = self._registry.mark(name) if name in facts_of else []
        of = mark or self._toolset.get(name)
        known = self._known.get((source.name, name))
        if known is not None and (known[0] is of or known[0] == mark) and known[1] == (slug, switched):
            return known[2]
        type_: ToolType = "native"
        if mark:
            facts = facts_of[name]
            kind, version, tags, changed = facts.kind, facts.version, tuple(facts.tags), mark[0]
        else:
            tool = self._toolset.get(name)
            kind, version, tags = tool.kind, tool.version, tuple(tool.tags)
            is_remote = isinstance(tool.config, McpExec)
            changed = _changed(source.file if is_remote else _file_of(tool))
            if tool.source is None:
                type_ = "mcp" if is_remote else "go"
        made = _entry(source, name, slug, version, type_, kind, tags, changed, enabled=switched is not False)
        self._known[source.name, name] = of, (slug, switched), made
        return made

    def _builtin(self, name: str, slug: str, switched: bool | None) -> ListedTool:
        owned, there = self._builtins.owns(name), name in self._toolset
        enabled = self._builtins.is_on(name) if switched is None else switched
        known, facts = self._known.get((BUILTIN_BUNDLE, name)), (enabled, owned, there, slug)
        if known is not None and known[1] == facts:
            return known[2]
        changed = _changed(_PACKAGE / FOLDER_OF[name] / f"{name}.py")
        kind = "command" if FOLDER_OF[name] == "shell" else "function"
        made = _entry(
            self.builtin, name, slug, BUILTIN_VERSION, "go", kind, (BUILTIN_BUNDLE,), changed, enabled=enabled
        )
        if there and not owned:
            full = stored_name(BUILTIN_BUNDLE, slug, BUILTIN_VERSION)
            made = msgspec.structs.replace(made, fault="the project has a tool of this name", full=full)
        self._known[BUILTIN_BUNDLE, name] = None, facts, made
        return made

    def _faulty(self, faults: Mapping[str, str], taken: Iterable[str]) -> Iterator[ListedTool]:
        for name, why in faults.items():
            slug = slug_of(name)
            slug = _fitting(slug, name, hashed=slug in taken)
            changed = _changed(self._registry.place.tools / name)
            made = _entry(self.own, name, slug, 1, "native", "", (), changed, enabled=True)
            yield msgspec.structs.replace(made, fault=why)


def _entry(
    source: ProjectSource, name: str, slug: str, version: int | str, type: ToolType, kind: str,  # noqa: A002
    tags: tuple[str, ...], changed_ns: int, *, enabled: bool,
) -> ListedTool:  # fmt: skip
    label = label_of(str(version)) or "1"
    at, id_ = written_ns(changed_ns), derived_id(source.id, name, str(version))
    # By position, in its order: names take twice as long.
    return ListedTool(
        source.id, id_, id_, slug, label, name, "", type, kind, enabled, at, at, tags, (), (), "", 0, "", name
    )


def _fitting(slug: str, name: str, *, hashed: bool = False) -> str:
    """Return a slug that has room for a hash of the name, with it if that is asked for, or needed."""
    if not hashed and 0 < len(slug) <= _LONGEST:
        return slug
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:_DIGITS]
    return "-".join(filter(None, (slug[: _LONGEST - _DIGITS - 1].rstrip("-"), digest)))


def _impl(tool: Tool) -> dict[str, str]:
    if isinstance(tool.config, McpExec):
        return {"server": tool.config.server, "tool": tool.config.tool}
    if tool.is_builtin:
        return {"goFunc": f"toolcrib.{tool.name}"}
    if tool.source is None:
        return {"goFunc": tool.config.reference if isinstance(tool.config, FunctionExec) else tool.name}
    native = tool.source.dialect == "native"
    return {"manifest": (tool.source.raw if native else write_manifest(tool)).decode(errors="replace")}


def _file_of(tool: Tool) -> Path | None:
    """Return the file that defines a tool; None if there is none."""
    if tool.source is not None:
        return Path(tool.source.path)
    if not isinstance(tool.config, FunctionExec):
        return None
    path = getattr(sys.modules.get(tool.config.reference.partition(":")[0]), "__file__", None)
    return None if path is None else Path(path)


def _changed(file: Path | None) -> int:
    """Return when a file was written, in ns since the epoch; the beginning of that for none."""
    try:
        return 0 if file is None else os.stat(file).st_mtime_ns
    except OSError:
        return 0
