"""The tools of a project's manifests: which are in force, which are still to be checked, what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from toolcrib.core.bound import BoundTool
from toolcrib.core.toolset import Toolset
from toolcrib.errors import ManifestError
from toolcrib.manifest import (
    CheckResult,
    Diagnostic,
    Document,
    LazyTools,
    ManifestCache,
    Mark,
    check_tool,
    diagnostics_of,
    new_mark_of,
    uncollected,
)
from toolcrib.project.root import Place
from toolcrib.spec import Approval, Tool
from toolcrib.state import cache_folder

__all__ = ["Change", "Reading", "Shelf"]


@dataclass(slots=True)
class Change:
    """What one burst of changes on disk came to, by names of tools."""

    added: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    mended: list[str] = field(default_factory=list)
    """Manifests that had errors and are again what is in force."""
    broken: list[Diagnostic] = field(default_factory=list)
    """Errors of manifests that cannot be used; a tool that was there before goes on as it was."""
    warnings: list[str] = field(default_factory=list)
    """What else a person should know."""

    def __bool__(self) -> bool:
        return any((self.added, self.changed, self.removed, self.mended, self.broken, self.warnings))


@dataclass(frozen=True, slots=True)
class Reading:
    """What there is on disk under one name: a tool, or a manifest with errors, or neither."""

    name: str
    tool: Tool | None
    found: tuple[Diagnostic, ...] = ()
    checked: bool = False
    """Whether `found` holds all findings about the tool, not those about its form alone."""

    @property
    def errors(self) -> list[Diagnostic]:
        """The findings that keep the tool from being used."""
        return [finding for finding in self.found if finding.is_error]


class _LateBoundTool(BoundTool):
    """One that is made when anything but its name is first asked for; `make` may raise a ToolcribError."""

    def __init__(self, name: str, make: Callable[[], BoundTool]) -> None:
        self.name = name
        self._make = make

    def __getattr__(self, attribute: str) -> Any:
        make = self.__dict__.get("_make")
        if make is None:
            raise AttributeError(attribute)
        self.__dict__.update(make().__dict__)
        self.__dict__.pop("_make", None)
        return getattr(self, attribute)


class Shelf:
    """Puts manifests into a toolset. `bind` makes a tool ready to be called."""

    def __init__(self, place: Place, toolset: Toolset, bind: Callable[[Tool], BoundTool]) -> None:
        kept = cache_folder(place.root)
        self._cache = ManifestCache(place.tools, None if kept is None else kept / "manifests")
        self.place = place
        self._toolset = toolset
        self._bind = bind
        self._tools: dict[str, BoundTool] = {}
        self._unchecked: dict[str, BoundTool] = {}
        self._found: dict[str, list[Diagnostic]] = {}
        self._documents: dict[str, Document] = {}
        """Of tools that were made and are still to be checked."""
        self._warned: dict[str, BoundTool] = {}
        """Tools with warnings that are not in `_found` yet."""
        self._guests: dict[str, BoundTool] = {}
        self._noted: dict[str, tuple[list[Diagnostic], Mapping[str, Sequence[Diagnostic]]]] = {}
        self.marks: dict[str, Mark] = {}
        """By name: what is another one whenever the manifest was touched."""

    def lay(self, bound: BoundTool) -> None:
        """Put in a tool that has no folder here, to be checked when it is first listed or called."""
        name = bound.name
        if name in self._toolset:
            self._toolset.replace(bound)
        else:
            self._toolset.add(bound)
        self._forget(name)
        self._unchecked[name] = bound
        self._guests[name] = bound
        self.marks[name] = []  # what it may touch can change without its file

    def unlay(self, name: str) -> bool:
        """Take out such a tool; whether it was in the list."""
        there = self.is_guest(name)
        if there:
            self._toolset.remove(name)
        self._forget(name)
        for held in (self._unchecked, self._guests, self.marks):
            held.pop(name, None)
        return there

    def _forget(self, name: str) -> None:
        """What is known of a tool that was here."""
        for held in (self._found, self._documents, self._warned):
            held.pop(name, None)

    def is_guest(self, name: str) -> bool:
        """Whether the tool of this name is in the list, and has no folder here."""
        bound = self._guests.get(name)
        return bound is not None and name in self._toolset and self._toolset.bound(name) is bound

    def is_taken(self, name: str) -> bool:
        """Whether there is a tool of this name."""
        return name in self._toolset

    def note(
        self, place: str, found: Iterable[Diagnostic], broken: Mapping[str, Sequence[Diagnostic]]
    ) -> None:
        """What was found in a place that holds such tools, and which of it in which tool."""
        self._noted[place] = (list(found), broken)

    def load(self) -> LazyTools:
        """Read the folder of tools and put in what it holds. Comes first."""
        late = self._cache.load()
        for finding in late.found:
            self._found.setdefault(self._name_of(finding), []).append(finding)
        with uncollected():
            bound = [_LateBoundTool(tool.name, partial(self._late, tool.make)) for tool in late.tools]
            self._toolset.add_all(bound)
            self._tools = {one.name: one for one in bound}
            self._unchecked |= self._tools
            self.marks = {tool.name: tool.mark for tool in late.tools}
        return late

    def _late(self, make: Callable[[], tuple[Tool, Document]]) -> BoundTool:
        tool, document = make()
        if tool.name in self._unchecked:
            self._documents[tool.name] = document
        return self._bind(tool)

    def put(self, bound: BoundTool) -> None:
        """Put in one tool, to be checked when it is first listed or called."""
        if bound.name in self._tools:
            self._toolset.replace(bound)
        else:
            self._toolset.add(bound)
        self._tools[bound.name] = bound
        self._unchecked[bound.name] = bound
        self._documents.pop(bound.name, None)

    @property
    def diagnostics(self) -> list[Diagnostic]:
        """What is wrong with manifests, errors and warnings, as far as it is known yet."""
        for name, bound in self._warned.items():
            self._found.setdefault(name, []).extend(check_tool(bound.tool))
        self._warned.clear()
        return list(self._all())

    @property
    def all_errors(self) -> list[Diagnostic]:
        """The errors among the `diagnostics`; where the warnings stand is not looked for."""
        return [finding for finding in self._all() if finding.is_error]

    def _all(self) -> Iterator[Diagnostic]:
        for found in (*self._found.values(), *(found for found, _ in self._noted.values())):
            yield from found

    @property
    def names(self) -> set[str]:
        """Every name that there is, or was, a manifest of."""
        return {*self._tools, *self._found} - self._guests.keys()

    def in_force(self, name: str) -> Tool | None:
        """The tool of this name that is in force."""
        bound = self._tools.get(name)
        return None if bound is None else bound.tool

    def errors(self, name: str) -> list[Diagnostic]:
        """The errors of the manifest of this name, as far as they are known."""
        noted = (one for _, broken in self._noted.values() for one in broken.get(name, ()))
        return [finding for finding in (*self._found.get(name, ()), *noted) if finding.is_error]

    def check_all(self) -> None:
        """Check what is still to be checked."""
        with uncollected():
            for name in list(self._unchecked):
                self.check(name)
        self._cache.save(self._tools.keys())

    def check(self, name: str) -> None:
        """Check a manifest in full, once; one with errors is taken out of the list."""
        bound = self._unchecked.get(name)
        if bound is None:
            return
        try:
            tool = bound.tool
        except ManifestError as error:
            self._refuse(name, diagnostics_of(error))
            return
        del self._unchecked[name]
        mark = self.marks.get(name, [])
        result = self._cache.check_result(name, mark)
        if result is None:
            found = check_tool(tool, self._documents.pop(name, None))
            if any(finding.is_error for finding in found):
                self._refuse(name, check_tool(tool))
                return
            result = CheckResult(bool(found), _wide(found))
            self._cache.add_check(name, mark, result)
        if result.warned:
            self._warned[name] = bound
        _widen(bound, result.wide)

    def _refuse(self, name: str, found: Iterable[Diagnostic]) -> None:
        """Take out a tool whose manifest has errors."""
        self._found.setdefault(name, []).extend(found)
        self._unchecked.pop(name, None)
        self._tools.pop(name, None)
        self._toolset.remove(name)

    def renew(self) -> None:
        """Have the executors made anew; calls that run keep theirs."""
        for bound in (*self._tools.values(), *self._guests.values()):
            bound.renew()

    def explain(self, name: str) -> ManifestError | None:
        """The error of a tool that is missing because its manifest is wrong."""
        errors = self.errors(name)
        if not errors or name in self._toolset:
            return None
        return ManifestError(
            f"the tool {name!r} is not usable: {errors[0].render()}",
            hint="Run `toolcrib lint` to see all that is wrong.",
            details={"diagnostics": [error.as_dict() for error in errors]},
        )

    def adopt(self, bound: BoundTool, found: Sequence[Diagnostic]) -> None:
        """Put in force a tool whose manifest has just been written here, and was checked before."""
        tool = bound.tool
        self.put(bound)
        self._unchecked.pop(tool.name, None)
        self._found[tool.name] = list(found)
        self._warned.pop(tool.name, None)
        self.marks[tool.name] = [] if tool.source is None else new_mark_of(tool.source.path)

    def take(self, readings: Iterable[Reading], change: Change) -> None:
        """Put in force what is on disk now. A manifest with errors leaves the tool of its name as it was."""
        for reading in readings:
            self._take(reading, change)

    def _take(self, reading: Reading, change: Change) -> None:
        name, tool, old = reading.name, reading.tool, self.in_force(reading.name)
        before = self._found.pop(name, [])
        self._warned.pop(name, None)
        if reading.found:
            self._found[name] = list(reading.found)
        if reading.errors:
            if reading.errors != [finding for finding in before if finding.is_error]:
                change.broken += reading.errors
        elif tool is None:
            if old is not None:
                del self._tools[name]
                self._unchecked.pop(name, None)
                self._toolset.remove(name)
                change.removed.append(name)
        elif old is None and name in self._toolset:
            told = "a registered function, or a tool of another file, has this name"
            change.warnings.append(f"{name}: {told}; its manifest is not used")
        elif old is not None and old.source == tool.source:
            change.mended.append(name)
        else:
            bound = self._bind(tool)
            self.put(bound)
            self.marks[name] = [] if tool.source is None else new_mark_of(tool.source.path)
            if reading.checked:
                del self._unchecked[name]
                _widen(bound, _wide(reading.found))
            (change.added if old is None else change.changed).append(name)

    def _name_of(self, finding: Diagnostic) -> str:
        folder = Path(finding.path).parent
        return folder.name if folder.parent == self.place.tools else ""


def _wide(found: Iterable[Diagnostic]) -> list[str]:
    """What the permissions of a tool cover too much of."""
    return [finding.message.partition(";")[0] for finding in found if finding.rule == "grant"]


def _widen(bound: BoundTool, wide: Sequence[str]) -> None:
    """A tool whose permissions cover too much needs approval."""
    if wide and not bound.tool.approval.required:
        bound.approval_reason = ", and ".join(wide)
        bound.tool = replace(bound.tool, approval=Approval(True, bound.approval_reason))
