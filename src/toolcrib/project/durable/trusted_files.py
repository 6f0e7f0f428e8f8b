"""Agents or workflows: those in files, which people trust before they run, and those of a program."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from toolcrib.errors import ConflictError, NotFoundError
from toolcrib.manifest import Diagnostic, Document, SourceFiles, failure
from toolcrib.project.trust.trust import ProjectTrust
from toolcrib.runs.agents import read_files
from toolcrib.spec import Tool
from toolcrib.spec.naming import suggestion


class Named(Protocol):
    """An agent or a workflow."""

    @property
    def name(self) -> str:
        """The name by which it is run."""


T = TypeVar("T", bound=Named)


class TrustedFiles(ABC, Generic[T]):
    """The agents or workflows of a folder, read again for each use, and those that a program adds."""

    kind: str
    """`agent` or `workflow`."""

    def __init__(
        self,
        folder: Path,
        files: SourceFiles,
        trust: ProjectTrust,
        read: Callable[[str, bytes], tuple[T, Document]],
    ) -> None:
        self._folder, self._files, self._trust = folder, files, trust
        self._read = read
        """Returns the content of a file. Raises `ManifestError`."""
        self._added: dict[str, T] = {}

    @abstractmethod
    def _as_tool(self, one: T, document: Document) -> Tool:
        """Return it as a person is shown it."""

    def add(self, one: T) -> None:
        """Add one of the program. Raises `ConflictError` if there is one of this name."""
        if one.name in self.all():
            raise ConflictError(f"there is already the {self.kind} {one.name!r}")
        self._added[one.name] = one

    def all(self) -> dict[str, T]:
        """Return every one by name; those in files first."""
        return {**{name: one for name, (one, _) in self._in_files()[0].items()}, **self._added}

    def get(self, name: str) -> T:
        """Return one to run it.

        Raises `NotFoundError`, `ManifestError`, and for a file what `ProjectTrust.require` does.
        """
        one, document = self._find(name)
        # Without a document the program itself has added it: that is its own code and needs no trust.
        if document is not None:
            self._trust.require(self._as_tool(one, document))
        return one

    def find(self, name: str) -> T:
        """Return one to show it. Raises `NotFoundError`, and `ManifestError` if its file does not load."""
        return self._find(name)[0]

    def _find(self, name: str) -> tuple[T, Document | None]:
        if name in self._added:
            return self._added[name], None
        found, findings = self._in_files()
        if name in found:
            return found[name]
        own = f"$.{self.kind}s.{name}"
        broken = [one for one in findings if one.path.endswith(f"/{name}.yml") or one.where.startswith(own)]
        if broken:
            raise failure(broken)
        hint = suggestion(name, self.all(), f"`toolcrib {self.kind}s list` shows those that there are.")
        raise NotFoundError(f"there is no {self.kind} named {name[:100]!r}", hint=hint)

    def as_tools(self) -> list[Tool]:
        """Return those in files as a person is shown them."""
        return [self._as_tool(*one) for one in self._in_files()[0].values()]

    def _in_files(self) -> tuple[dict[str, tuple[T, Document]], list[Diagnostic]]:
        return read_files(self._folder, self._files, self._read)
