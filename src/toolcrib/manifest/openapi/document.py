"""One OpenAPI document: its version, and where its references lead, in itself and in files beside it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag

from toolcrib.errors import ManifestError
from toolcrib.manifest.openapi.syntax import MAX_DOCUMENT_BYTES, parse_document

__all__ = ["Document", "Node", "RefProblem", "Resource", "read_document"]

_MAX_CHAIN = 50
_MAX_FILES = 1_000


class RefProblem(Exception):
    """A reference that leads nowhere; the message says why."""


@dataclass(slots=True, eq=False)
class Resource:
    """One file of a document."""

    uri: str
    """A real path, or the URL it came from."""
    data: Any
    anchors: dict[str, tuple[str, Any]] | None = None
    """`$anchor`, `$dynamicAnchor` and `$id` anywhere in it: pointer and value; found when first needed."""


@dataclass(frozen=True, slots=True)
class Node:
    """A value in a document, and where it stands."""

    value: Any
    resource: Resource
    pointer: str = ""

    def at(self, *steps: str | int) -> Node:
        """What stands below; a value that is not there is None."""
        value, pointer = self.value, self.pointer
        for step in steps:
            if isinstance(value, dict):
                value = value.get(step)
            elif isinstance(value, list) and isinstance(step, int) and step < len(value):
                value = value[step]
            else:
                value = None
            pointer += "/" + str(step).replace("~", "~0").replace("/", "~1")
        return Node(value, self.resource, pointer)

    @property
    def object(self) -> dict[str, Any]:
        """The value if it is an object, else an empty one."""
        return self.value if isinstance(self.value, dict) else {}

    def entries(self) -> Iterator[tuple[str, Node]]:
        """The keys and values of an object; nothing else has any."""
        for key in self.object:
            yield key, self.at(key)

    def items(self) -> Iterator[Node]:
        """The items of a list; nothing else has any."""
        for at in range(len(self.value) if isinstance(self.value, list) else 0):
            yield self.at(at)


@dataclass(slots=True)
class Document:
    """A document that has been read; references to other files are followed beneath `folder` only."""

    root: Node
    version: str
    """`2.0`, `3.0`, `3.1` or `3.2`."""
    folder: str | None = None
    resources: dict[str, Resource] = field(default_factory=dict)

    @property
    def legacy(self) -> bool:
        """Schemas are the dialect of 2.0 and 3.0, not JSON Schema 2020-12."""
        return self.version in ("2.0", "3.0")

    def follow(self, node: Node) -> Node:
        """The node itself, or what its `$ref` leads to in the end. Raises RefProblem."""
        for _ in range(_MAX_CHAIN):
            ref = node.value.get("$ref") if isinstance(node.value, dict) else None
            if not isinstance(ref, str):
                return node
            node = self.resolve(ref, node.resource)
        raise RefProblem("the reference leads in a circle")

    def resolve(self, ref: str, base: Resource) -> Node:
        """What a reference names, one step only. Raises RefProblem."""
        address, fragment = urldefrag(ref)
        resource = self._resource(address, base) if address else base
        if not fragment or fragment.startswith("/"):
            return self._pointer(unquote(fragment), resource, ref)
        found = _anchors(resource).get(fragment)
        if found is None:
            raise RefProblem(f"{ref!r} leads to nothing")
        return Node(found[1], resource, found[0])

    def _pointer(self, pointer: str, resource: Resource, ref: str) -> Node:
        value = resource.data
        for step in pointer.split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            if isinstance(value, dict) and key in value:
                value = value[key]
            elif isinstance(value, list) and key.isdecimal() and int(key) < len(value):
                value = value[int(key)]
            else:
                raise RefProblem(f"{ref!r} leads to nothing")
        return Node(value, resource, pointer)

    def _resource(self, address: str, base: Resource) -> Resource:
        own = _anchors(base).get(address)
        if own is not None:
            return Resource(f"{base.uri}#{own[0]}", own[1])
        if "://" in address or self.folder is None:
            raise RefProblem(f"{address!r} is another document, which is not fetched")
        path = os.path.realpath(Path(base.uri).parent / unquote(address))
        if path in self.resources:
            return self.resources[path]
        if not path.startswith(self.folder + os.sep):
            raise RefProblem(f"{address!r} lies outside the folder of the document")
        if len(self.resources) >= _MAX_FILES:
            raise RefProblem(f"the document refers to more than {_MAX_FILES} files")
        try:
            if not Path(path).is_file():
                raise RefProblem(f"{address!r} is not there, or not a file")
            data = parse_document(_read(Path(path)), address)
        except (OSError, ManifestError) as error:
            raise RefProblem(f"{address!r} cannot be read: {error}") from None
        self.resources[path] = Resource(path, data)
        return self.resources[path]


def read_document(raw: bytes, where: str, *, folder: str | None = None) -> Document:
    """A document from its bytes; `where` is its real path or URL, `folder` where its files may lie.

    Raises ManifestError for what is no OpenAPI document of version 2.0 or 3.x.
    """
    data = parse_document(raw, where)
    told = data.get("openapi", data.get("swagger"))
    version = ".".join(str(told).split(".")[:2])
    if isinstance(told, int | float):
        version = f"{float(told):.1f}"
    if version not in ("2.0", "3.0", "3.1", "3.2"):
        if not (version.startswith("3.") and version[2:].isdecimal()):
            said = "no `openapi` or `swagger` version" if told is None else f"version {told!r}"
            raise ManifestError(f"{where} has {said}", hint="OpenAPI 2.0, 3.0, 3.1 and 3.2 can be imported")
        version = "3.2"
    root = Resource(where, data)
    return Document(Node(data, root), version, folder, {where: root})


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MAX_DOCUMENT_BYTES + 1)


def _anchors(resource: Resource) -> dict[str, tuple[str, Any]]:
    if resource.anchors is None:
        found: dict[str, tuple[str, Any]] = {}
        waiting: list[tuple[str, Any]] = [("", resource.data)]
        while waiting:
            pointer, value = waiting.pop()
            if isinstance(value, dict):
                for key in ("$anchor", "$dynamicAnchor", "$id"):
                    if isinstance(value.get(key), str):
                        found.setdefault(value[key].rstrip("#"), (pointer, value))
                waiting += [(f"{pointer}/{_step(key)}", item) for key, item in value.items()]
            elif isinstance(value, list):
                waiting += [(f"{pointer}/{at}", item) for at, item in enumerate(value)]
        resource.anchors = found
    return resource.anchors


def _step(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
