"""The tools of a project's manifests: those in use, those not checked yet, and the errors of the others."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any

from toolcrib.core.bound import Bound, BoundTool
from toolcrib.core.toolset import Toolset
from toolcrib.errors import ManifestError
from toolcrib.manifest import (
    FILE_NAME,
    CheckResult,
    Diagnostic,
    Document,
    KeptEntry,
    KnownFacts,
    LazyTools,
    ManifestCache,
    Mark,
    SourceFiles,
    check_tool,
    diagnostics_of,
    make,
    new_mark_of,
    settled_mark_of,
    uncollected,
)
from toolcrib.manifest.native.kept import Kept
from toolcrib.project.integrity.programs import code_places
from toolcrib.project.root import Place
from toolcrib.project.trust.reasons import only_reads
from toolcrib.sandbox.files.paths import Paths
from toolcrib.spec import ApprovalRule, McpExec, Tool
from toolcrib.spec.identifier import derived_id
from toolcrib.spec.naming import wire_name
from toolcrib.spec.record import record
from toolcrib.state import Vault, cache_folder

if TYPE_CHECKING:
    from toolcrib.executors.trace.observation import Observation

_Read = Callable[[str], tuple[Tool, Document]]
Bind = Callable[[Tool, Callable[[str], None], "Observation | None"], BoundTool]
"""Makes a tool ready to be called. The second argument raises for a tool that cannot be used."""
PROJECT_BUNDLE = "project"
"""The bundle of a project's own tools, and of those of a file."""


def source_id(vault: Vault, source: str, name: str) -> str:
    """Return the id of the bundle of a source."""
    return derived_id(str(vault.path), source, name)


def tool_id(vault: Vault, place: Place, tool: Tool) -> str:
    """Return the id of a tool that is no record of the store."""
    own = "project" if place.file is None else "file"
    source = "server" if isinstance(tool.config, McpExec) else "builtin" if tool.is_builtin else own
    return derived_id(source_id(vault, source, tool.bundle), tool.name, str(tool.version))


@dataclass(slots=True)
class CatalogChange:
    """The result of one burst of changes on disk, by names of tools."""

    added: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    fixed: list[str] = field(default_factory=list)
    """Manifests that had errors and are again the ones in use."""
    broken: list[Diagnostic] = field(default_factory=list)
    """Errors of manifests that cannot be used; a tool that was there before stays as it was."""
    warnings: list[str] = field(default_factory=list)
    """Other messages for a person."""

    def __bool__(self) -> bool:
        return any((self.added, self.changed, self.removed, self.fixed, self.broken, self.warnings))


@record
class Reading:
    """The content of a tool's folder on disk: a tool, or a manifest with errors, or neither."""

    name: str
    tool: Tool | None
    found: tuple[Diagnostic, ...] = ()
    checked: bool = False
    """True if `found` holds all findings, not only those about the form."""

    @property
    def errors(self) -> list[Diagnostic]:
        """The findings that make the tool unusable."""
        return [finding for finding in self.found if finding.is_error]


class _LazyBoundTool(BoundTool):
    """A tool that is read, which may raise a ToolcribError, and bound once more than its name is used."""

    def __init__(self, name: str, read: _Read, bind: Callable[[tuple[Tool, Document]], BoundTool]) -> None:
        self.name = name
        self._unused = read, bind

    def __getattr__(self, attribute: str) -> Any:
        # Asked only for what is missing: once made, perhaps in another thread, it is an ordinary object.
        unused = self.__dict__.get("_unused")
        if unused is not None:
            read, bind = unused
            self.__dict__.update(bind(read(self.name)).__dict__)
            self.__dict__.pop("_unused", None)
        return object.__getattribute__(self, attribute)

    def read(self) -> Tool | None:
        """Return the tool without keeping it; None once it is in use."""
        unused = self.__dict__.get("_unused")
        return None if unused is None else unused[0](self.name)[0]


class ToolRegistry:
    """Puts the tools of manifests into a toolset. `bind` makes a tool ready to be called."""

    def __init__(self, place: Place, files: SourceFiles, toolset: Toolset, bind: Bind) -> None:
        folder = cache_folder(place.path)
        cache, root = None if folder is None else folder / "manifests", place.root
        paths = Paths()  # The same for all that are read at once: most of them lie in the same folders.
        places = partial(code_places, root=root, paths=paths)
        self._cache = ManifestCache(place.tools, cache, files, places)
        self.facts = KnownFacts(Kept(None, b""), (), {})
        """The facts that are known of tools which may not have been built yet."""
        self.place, self.files = place, files
        """The files that manifests may be read from."""
        self._toolset, self._bind = toolset, bind
        self.same_name = toolset.same_name
        self._tools: dict[str, BoundTool] = {}
        self.unchecked: dict[str, BoundTool] = {}
        """Tools that `check` must see before they are used. Most calls find that theirs is not among them."""
        self._checking = RLock()
        self._found: dict[str, list[Diagnostic]] = {}
        self._documents: dict[str, Document] = {}
        """Documents of tools that are not checked yet."""
        self._warned: dict[str, BoundTool] = {}
        """Tools whose warnings are not in `_found` yet."""
        self._external: dict[str, BoundTool] = {}
        self._external_findings: dict[str, tuple[list[Diagnostic], Mapping[str, Sequence[Diagnostic]]]] = {}
        self._marks: dict[str, Mark] = {}
        self._kept_mark: Callable[[str], Mark] = lambda _: []
        self.found = 0
        """Changes whenever `faults` may do so."""

    def bind(self, tool: Tool, seen: Observation | None = None) -> BoundTool:
        """Make a tool ready to be called; `seen` records what it uses."""
        return self._bind(tool, self._require, seen)

    def bound(self, name: str) -> Bound:
        """Return one tool ready to be called. Raises ToolNotFound, or ManifestError if it does not load."""
        self.check(name)
        return self._toolset.bound(name)

    def _require(self, name: str) -> None:
        """Raise the error of a manifest that cannot be used. The toolset itself does not check manifests."""
        self.check(name)
        if (error := self.error_of(name)) is not None:
            raise error

    # -- tools without a manifest of their own ---------------------------------------------------

    def add_external(self, tool: Tool) -> None:
        """Put in a tool of another source, to be checked when it is first listed or called."""
        bound = self.bind(tool)
        self._toolset.replace(bound)
        self._know(bound)

    def put_stored(self, bound: BoundTool, document: Document) -> None:
        """Put in a tool of the store, which the list has already. Raises ConflictError for a name in use."""
        self._toolset.put_quietly(bound)
        self._know(bound)
        self._documents[bound.name] = document

    def _know(self, bound: BoundTool) -> None:
        self._forget(bound.name)
        self.unchecked[bound.name] = self._external[bound.name] = bound
        self._marks[bound.name] = []  # what it may touch can change without its file

    def remove_external(self, name: str, *, quietly: bool = False) -> bool:
        """Take out such a tool; `quietly`, without calling listeners. Return True if it was in the list."""
        was_listed = self.is_external(name)
        if was_listed:
            (self._toolset.drop_quietly if quietly else self._toolset.remove)(name)
        self._forget(name)
        for known in (self.unchecked, self._external, self._marks):
            known.pop(name, None)
        return was_listed

    def is_external(self, name: str) -> bool:
        """Return True if the tool of this name in the list is one of another source."""
        bound = self._external.get(name)
        return bound is not None and name in self._toolset and self._toolset.bound(name) is bound

    def set_external_findings(
        self, place: str, found: Iterable[Diagnostic], broken: Mapping[str, Sequence[Diagnostic]]
    ) -> None:
        """Set the findings in a place with such tools, and by name those of tools that do not load."""
        self._external_findings[place] = (list(found), broken)
        self.found += 1

    def _forget(self, name: str) -> None:
        self._found.pop(name, None)
        self._documents.pop(name, None)
        self._warned.pop(name, None)

    # -- tools with a manifest -------------------------------------------------------------------

    def load(self) -> LazyTools:
        """Read the folder of tools and put in its tools. Comes first."""
        loaded = self._cache.load()
        for finding in loaded.found:
            self._found.setdefault(self._name_of(finding), []).append(finding)
        refused = self._refuse_conflicts(loaded.names)
        self._marks, self._kept_mark, self.facts = loaded.marks, loaded.mark, loaded.facts
        for name in refused:
            self.facts.forget(name)
        with uncollected():
            make, read = self._make, loaded.make
            bound = {name: _LazyBoundTool(name, read, make) for name in loaded.names if name not in refused}
            self._toolset.add_all(list(bound.values()))
            self._tools = {**bound}
            self.unchecked |= bound
        return loaded

    def mark(self, name: str) -> Mark:
        """Return a value that differs whenever the manifest was touched; empty if there is none."""
        known = self._marks.get(name)
        return self._kept_mark(name) if known is None else known

    def untouched(self, states: Iterable[tuple[str, bytes]]) -> set[str]:
        """Return the tools in use whose manifests have these states and had them when they were kept."""
        kept, read = self._cache.states, self._marks.keys() | self._found.keys()
        found = {name for name, state in states if kept.get(name) == state and name not in read}
        return (found & self._tools.keys()).difference(*(one for _, one in self._external_findings.values()))

    def _refuse_conflicts(self, names: list[str]) -> set[str]:
        """Return the names that are the same for clients: nobody knows whose that name was until now."""
        first = {name: name for name in names}
        refused: set[str] = set()
        wires = ((name, wire_name(name)) for name in names)
        # Names of folders differ, so nearly all are their own wire name.
        for name, wire in [(name, wire) for name, wire in wires if wire != name]:
            other = first.setdefault(wire, name)
            if other != name:
                refused |= {name, other}
                self._found.setdefault(name, []).append(self._conflict(name, other))
                self._found.setdefault(other, []).append(self._conflict(other, name))
        return refused

    def _conflict(self, name: str, other: str) -> Diagnostic:
        return name_conflict(str(self.place.tools / name / FILE_NAME), name, other)

    def _make(self, made: tuple[Tool, Document]) -> BoundTool:
        tool, document = made
        # Positions are needed by the check alone.
        if tool.name in self.unchecked:
            self._documents[tool.name] = document
        return self._bind(tool, self._require, None)

    def put(self, bound: BoundTool) -> None:
        """Put in one tool, to be checked when it is first listed or called; `ConflictError` for the name of a
        function or a server's tool, which may have come since the name was chosen."""
        known = bound.name in self._tools or bound.name in self._external
        (self._toolset.replace if known else self._toolset.add)(bound)
        self._tools[bound.name] = self.unchecked[bound.name] = bound
        self.facts.forget(bound.name)
        self._documents.pop(bound.name, None)

    @property
    def diagnostics(self) -> list[Diagnostic]:
        """Errors and warnings of manifests, as far as they are known yet."""
        for name, bound in self._warned.items():
            self._found.setdefault(name, []).extend(check_tool(bound.tool))
        self._warned.clear()
        return self._all()

    @property
    def all_errors(self) -> list[Diagnostic]:
        """The errors among the `diagnostics`, without the work of finding the positions of warnings."""
        return [finding for finding in self._all() if finding.is_error]

    def _all(self) -> list[Diagnostic]:
        external = (found for found, _ in self._external_findings.values())
        return [finding for found in (*self._found.values(), *external) for finding in found]

    @property
    def names(self) -> set[str]:
        """Every name that has, or had, a manifest."""
        return {*self._tools, *self._found} - self._external.keys()

    def unused(self, name: str) -> Tool | None:
        """Return the tool of a manifest that nothing has used yet, without keeping it; None for any other.

        Raises ManifestError if it can no longer be read.
        """
        bound = self.unchecked.get(name)
        return bound.read() if isinstance(bound, _LazyBoundTool) else None

    def current(self, name: str) -> Tool | None:
        """Return the tool of the manifest of this name."""
        bound = self._tools.get(name)
        return None if bound is None else bound.tool

    def errors(self, name: str) -> list[Diagnostic]:
        """Return the errors of the manifest of this name, as far as they are known."""
        external = (one for _, broken in self._external_findings.values() for one in broken.get(name, ()))
        return [finding for finding in (*self._found.get(name, ()), *external) if finding.is_error]

    def kept_entries(self, names: Iterable[str]) -> dict[str, KeptEntry]:
        """Return by name what is kept of those tools that nobody has used yet."""
        lazy = (name for name in names if isinstance(self.unchecked.get(name), _LazyBoundTool))
        return self._cache.checked(lazy, self._marks)

    def kept_lists(self, names: Iterable[str]) -> dict[str, memoryview]:
        """Return by name the entries in MCP's list of tools that `kept_entries` has returned."""
        return self._cache.listed(names)

    def check_all(self, but: Container[str] = ()) -> None:
        """Check all tools that are not checked yet."""
        with uncollected():
            for name in [name for name in list(self.unchecked) if name not in but]:
                self.check(name)
        self._cache.save(self._tools.keys())

    def close(self) -> None:
        """Keep the results of checks for the next process."""
        with self._checking:
            self._cache.close(self._tools.keys())

    def check(self, name: str) -> None:
        """Check a manifest in full, once; one with errors is taken out of the list. Safe for threads."""
        if name in self.unchecked:
            with self._checking:
                self._check(name)

    def _check(self, name: str) -> None:
        bound = self.unchecked.get(name)
        if bound is None:
            return
        try:
            tool = bound.tool
        # Its form was right when it was listed; the file may have changed since.
        except ManifestError as error:
            self._refuse(name, diagnostics_of(error))
            return
        document, mark = self._documents.pop(name, None), self.mark(name)
        result = known = self._cache.check_result(name, mark)
        if result is None:
            # To find positions takes longer than to check, and a tool without findings needs none.
            found = check_tool(tool, document, placed=False)
            if any(finding.is_error for finding in found):
                self._refuse(name, check_tool(tool) or found)
                return
            result = CheckResult(bool(found), only_reads(tool, self.place.root), _wide(found))
        if result.warned:
            self._warned[name] = bound
        _widen(bound, result.wide)
        if known is None:
            from toolcrib.schema.providers import entry_to_keep

            self._cache.add_check(name, mark, result, entry_to_keep(bound.tool))
        del self.unchecked[name]  # Last: until then another thread waits.

    def _refuse(self, name: str, found: Iterable[Diagnostic]) -> None:
        """Take out a tool whose manifest has errors."""
        self._found.setdefault(name, []).extend(found)
        self.found += 1
        self.unchecked.pop(name, None)
        self._tools.pop(name, None)
        self._toolset.remove(name)

    def faults(self) -> dict[str, str]:
        """Return by name why tools do not load, without the paths of their files."""
        external = (one.items() for _, one in list(self._external_findings.values()))
        every = chain(list(self._found.items()), *external)
        errors = {name: next((one for one in found if one.is_error), None) for name, found in every}
        return {
            name: f"{error.message} (line {error.line})"
            for name, error in errors.items()
            if error is not None and name and "/" not in name
        }

    def renew(self) -> None:
        """Have new executors made for the next calls; running calls keep theirs."""
        for bound in (*self._tools.values(), *self._external.values()):
            bound.renew()

    def error_of(self, name: str) -> ManifestError | None:
        """Return the error of a tool that is missing because its manifest is wrong."""
        errors = self.errors(name)
        if not errors or name in self._toolset:
            return None
        return ManifestError(
            f"the tool {name!r} is not usable: {errors[0].without_line().render()}",
            hint="Run `toolcrib lint` to see every error.",
            details={"diagnostics": [error.as_dict() for error in errors]},
        )

    def adopt(self, tool: Tool, found: Sequence[Diagnostic]) -> None:
        """Put in a tool whose manifest was just written here, and checked before."""
        self.put(self.bind(tool))
        self.unchecked.pop(tool.name, None)
        self._found[tool.name] = list(found)
        self._warned.pop(tool.name, None)
        self._mark(tool)

    def _mark(self, tool: Tool) -> None:
        self._marks[tool.name] = [] if tool.source is None else new_mark_of(tool.source.path)

    def settle_marks(self) -> None:
        """Give manifests that were too new for it the mark that they have in other processes.

        Otherwise two processes write their common index of tools in turn, at each search.
        """
        # A mark of two parts is one of this process alone.
        for name in [name for name, mark in self._marks.items() if len(mark) == 2]:
            with suppress(ManifestError):
                tool = self.current(name)
                if tool is not None and tool.source is not None:
                    settled = settled_mark_of(tool.source.path, tool.source.raw, self.files)
                    self._marks[name] = settled or self._marks[name]

    def apply(self, reading: Reading, change: CatalogChange) -> None:
        """Put in what is on disk now. A manifest with errors leaves the tool of its name as it was."""
        name, tool, old = reading.name, reading.tool, self.current(reading.name)
        before = self._found.pop(name, [])
        self.found += 1
        self._warned.pop(name, None)
        if reading.found:
            self._found[name] = list(reading.found)
        if reading.errors:
            if reading.errors != [finding for finding in before if finding.is_error]:
                change.broken += reading.errors
        elif tool is None:
            if old is not None:
                del self._tools[name]
                self.facts.forget(name)
                self.unchecked.pop(name, None)
                self._toolset.remove(name)
                change.removed.append(name)
        elif old is None and (other := self.same_name(name)) is not None:
            whose = "a function or another file's tool" if other == name else other
            named = "this name" if other == name else "the same name for clients"
            change.warnings.append(f"{name}: {whose} has {named} already; its manifest is not used")
        # An error was taken back: what runs is what is on disk again.
        elif old is not None and old.source == tool.source:
            change.fixed += [name] if any(finding.is_error for finding in before) else []
        else:
            bound = self.bind(tool)
            self.put(bound)
            self._mark(tool)
            if reading.checked:
                del self.unchecked[name]
                _widen(bound, _wide(reading.found))
            (change.added if old is None else change.changed).append(name)

    def _name_of(self, finding: Diagnostic) -> str:
        folder = Path(finding.path).parent
        return folder.name if folder.parent == self.place.tools else ""


def name_conflict(path: str, name: str, other: str) -> Diagnostic:
    """Return the error of a tool in this file whose name another one has, or has for clients."""
    message = f"there is a tool named `{name}` already"
    if other != name:
        message = f"`{name}` and `{other}` have the same name for clients, `{wire_name(name)}`"
    return make(path, (1, 1), "name", message, hint="give one of the two another name")


def _wide(found: Iterable[Diagnostic]) -> list[str]:
    """Return the permissions of a tool that cover too much, in words."""
    return [finding.message.partition(";")[0] for finding in found if finding.rule == "grant"]


def _widen(bound: BoundTool, wide: Sequence[str]) -> None:
    """Require approval for a tool whose permissions cover too much."""
    if wide and not bound.tool.approval.required:
        bound.approval_reason = ", and ".join(wide)
        bound.tool = replace(bound.tool, approval=ApprovalRule(True, bound.approval_reason))
