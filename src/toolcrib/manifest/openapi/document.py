"""Read an OpenAPI document, from a file or a URL, and follow its references."""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from itertools import chain, count
from math import inf
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag

from toolcrib.errors import HttpFailed, ManifestError, NotFoundError
from toolcrib.spec import Network
from toolcrib.spec.naming import INKLESS

_MAX_CHAIN = 50
_SUFFIXES = (".json", ".yaml", ".yml")
MAX_NAME = 64
# Control, zero-width and bidirectional characters: they hide text from the person who reviews a tool, but not
# from the model that reads its description.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufffe\uffff"
    "\U000e0000-\U000e007f]"
)


class RefProblem(Exception):
    """A reference that leads to nothing; the message says why."""


@dataclass(slots=True, eq=False)
class Resource:
    """One file of a document."""

    uri: str
    """A real path, or the URL it came from."""
    data: Any
    anchors: dict[str, tuple[str, Any]] | None = None
    """Pointer and value by `$anchor`, `$dynamicAnchor` or `$id`; collected when first needed."""
    resolved: dict[str, Node] = field(default_factory=dict)
    """The target of each reference from here that was resolved before."""


class Node:
    """A value in a document, and its position. Made for every value that is read, so it is kept small."""

    __slots__ = ("_above", "_step", "resource", "value")

    def __init__(self, value: Any, resource: Resource, above: Node | str = "", step: str | int = "") -> None:
        self.value = value
        self.resource = resource
        self._above = above
        """The node above, or the pointer of this one."""
        self._step = step

    @property
    def pointer(self) -> str:
        """The position in its resource, as a JSON pointer (RFC 6901)."""
        above = self._above
        return above if isinstance(above, str) else f"{above.pointer}/{_escaped(str(self._step))}"

    def at(self, *steps: str | int) -> Node:
        """Return the node below; its value is None if there is none."""
        node = self
        for step in steps:
            value = node.value
            if isinstance(value, dict):
                value = value.get(step)
            elif isinstance(value, list) and isinstance(step, int) and step < len(value):
                value = value[step]
            else:
                value = None
            node = Node(value, self.resource, node, step)
        return node

    @property
    def object(self) -> dict[str, Any]:
        """The value if it is an object, else an empty object."""
        return self.value if isinstance(self.value, dict) else {}

    def entries(self) -> Iterator[tuple[str, Node]]:
        """Yield the keys and values of an object; nothing for any other value."""
        for key, value in self.object.items():
            yield key, Node(value, self.resource, self, key)

    def items(self) -> Iterator[Node]:
        """Yield the items of a list; nothing for any other value."""
        for at, value in enumerate(self.value if isinstance(self.value, list) else ()):
            yield Node(value, self.resource, self, at)


@dataclass(slots=True)
class OpenApiDocument:
    """A document that was read. References to other files are only followed below `folder`."""

    root: Node
    version: str
    """`2.0`, `3.0`, `3.1` or `3.2`."""
    folder: str | None = None
    resources: dict[str, Resource] = field(default_factory=dict)

    @property
    def legacy(self) -> bool:
        """True if schemas are in the dialect of 2.0 and 3.0, not JSON Schema 2020-12."""
        return self.version in ("2.0", "3.0")

    def follow(self, node: Node) -> Node:
        """Return the node itself, or the final target of its `$ref`. Raises RefProblem."""
        for _ in range(_MAX_CHAIN):
            ref = node.value.get("$ref") if isinstance(node.value, dict) else None
            if not isinstance(ref, str):
                return node
            node = self.resolve(ref, node.resource)
        raise RefProblem("the references form a circle")

    def resolve(self, ref: str, base: Resource) -> Node:
        """Return the target of one reference, without following it further. Raises RefProblem."""
        found = base.resolved.get(ref)
        if found is None:
            found = base.resolved[ref] = self._resolve(ref, base)
        return found

    def _resolve(self, ref: str, base: Resource) -> Node:
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
            elif isinstance(value, list) and key.isdecimal() and len(key) < 10 and int(key) < len(value):
                value = value[int(key)]
            else:
                raise RefProblem(f"{ref!r} leads to nothing")
        return Node(value, resource, pointer)

    def _resource(self, address: str, base: Resource) -> Resource:
        own = _anchors(base).get(address)
        if own is not None:
            return Resource(f"{base.uri}#{own[0]}", own[1])
        # Never fetched: a document could otherwise make this machine send requests to any address.
        if "://" in address or self.folder is None or "\0" in (name := unquote(address)):
            raise RefProblem(f"{address!r} is another document, which is not fetched")
        # Resolved before it is compared: neither `..` nor a link leads out of the folder.
        path = os.path.realpath(Path(base.uri).parent / name)
        if path in self.resources:
            return self.resources[path]
        if not path.startswith(self.folder + os.sep):
            raise RefProblem(f"{address!r} is outside the folder of the document")
        below = path.removeprefix(self.folder + os.sep)
        # A document that somebody else wrote must not bring `.env` or a key into a description.
        if not below.lower().endswith(_SUFFIXES) or any(one.startswith(".") for one in below.split(os.sep)):
            raise RefProblem(f"{address!r} is hidden, or no YAML or JSON file")
        try:
            # To read a pipe or a device could wait for ever, or never end.
            if not Path(path).is_file():
                raise RefProblem(f"{address!r} is not there, or not a file")
            data = parse_document(_read(Path(path)), address)
        except (OSError, ManifestError) as error:
            raise RefProblem(f"{address!r} cannot be read: {error}") from None
        self.resources[path] = Resource(path, data)
        return self.resources[path]


def read_document(raw: bytes, where: str, *, folder: str | None = None) -> OpenApiDocument:
    """Read a document. `where` is its real path or URL; other files of it may lie below `folder`.

    Raises ManifestError if it is not an OpenAPI document of version 2.0 or 3.x.
    """
    data = parse_document(raw, where)
    given = data.get("openapi", data.get("swagger"))
    version = ".".join(str(given).split(".")[:2])
    # Without quotes YAML reads `2.0` and `3.1` as numbers.
    if isinstance(given, int | float):
        version = f"{float(given):.1f}"
    if version not in ("2.0", "3.0", "3.1", "3.2"):
        if not (version.startswith("3.") and version[2:].isdecimal()):
            wrong = "no `openapi` or `swagger` version" if given is None else f"version {given!r}"
            raise ManifestError(f"{where} has {wrong}", hint="Supported are OpenAPI 2.0, 3.0, 3.1 and 3.2.")
        version = "3.2"
    root = Resource(where, data)
    return OpenApiDocument(Node(data, root), version, folder, {where: root})


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        # One byte more than allowed, so that `parse_document` sees that the file is too large.
        return file.read(_MAX_DOCUMENT_BYTES + 1)


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
                waiting += [(f"{pointer}/{_escaped(key)}", item) for key, item in value.items()]
            elif isinstance(value, list):
                waiting += [(f"{pointer}/{at}", item) for at, item in enumerate(value)]
        resource.anchors = found
    return resource.anchors


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


_MAX_DOCUMENT_BYTES = 128 * 1024 * 1024
_MAX_SLOW = 4 * 1024 * 1024
_MAX_DEPTH = 200
_MAX_VALUES = 5_000_000
_MERGE = "<<"
_LONG_NUMBER = re.compile(r"(?<=[:,\[\s-])-?[0-9]{19,}(?=\s*(?:[,\]}#\r\n]|$))")


def parse_document(raw: bytes, where: str) -> dict[str, Any]:
    """Return the data of a JSON or YAML document, an object. Raises ManifestError that names `where`.

    Many published documents are not good YAML: status codes are numbers, keys are duplicated, merge keys are
    used. A document is only refused if it cannot be read at all.
    """
    import orjson

    if len(raw) > _MAX_DOCUMENT_BYTES:
        raise ManifestError(f"{where} is larger than {_MAX_DOCUMENT_BYTES // 2**20} MiB")
    encoding = "utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError as error:
        raise ManifestError(f"{where} is not {encoding.upper()} text: {error.reason}") from None
    data: Any
    if text.lstrip()[:1] in ("{", "["):
        try:
            data = orjson.loads(text)
        except ValueError as error:
            data = _yaml(text, where, fault=f"not JSON: {error}")
    else:
        data = _yaml(text, where)
    if not isinstance(data, dict):
        raise ManifestError(f"{where} is not an OpenAPI document: it is not an object")
    return data


def _yaml(text: str, where: str, fault: str = "") -> Any:
    try:
        data = _fast_yaml(text)
    except ValueError as error:
        # Such a text is made to use up memory or the stack, so the slower parser must not try it again.
        if "repetition limit" in str(error) or "recursion limit" in str(error):
            raise ManifestError(f"{where} cannot be read: {error}") from None
        data = _slow_yaml(text, where, fault or f"not YAML: {error}")
    return _plain_data(data, where)


def _fast_yaml(text: str) -> Any:
    from ryaml import loads

    try:
        return loads(text)
    except ValueError as error:
        if "invalid type: integer" not in str(error):
            raise
    return loads(_LONG_NUMBER.sub(_fraction, text))


def _fraction(number: re.Match[str]) -> str:
    """Return an integer beyond 64 bits as a decimal fraction, any other as it is."""
    text = number[0]
    return text if len(text) <= 20 and -(2**63) <= int(text) < 2**64 else f"{text}.0"


def _slow_yaml(text: str, where: str, fault: str) -> Any:
    """Parse YAML slowly but tolerantly: duplicate keys, numbers beyond 64 bits, tags."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    if len(text) > _MAX_SLOW:
        raise ManifestError(f"{where} cannot be read: {fault[:300]}")
    parser = YAML(typ="safe", pure=True)
    parser.allow_duplicate_keys = True
    parser.version = "1.2"
    try:
        return parser.load(text)
    except (YAMLError, ValueError, TypeError, RecursionError) as error:
        first = re.sub(r"\s+", " ", str(error))[:300]
        raise ManifestError(f"{where} cannot be read: {fault[:300] or first}") from None


def _plain_data(data: Any, where: str) -> Any:
    """Return YAML values as JSON values: text keys, merged merge keys, null for what JSON does not have.

    Raises ManifestError if aliases make them too large.
    """
    left = _MAX_VALUES

    def plain(value: Any, depth: int) -> Any:
        nonlocal left
        # Each use of an alias is written out below, so aliases of aliases could fill the memory.
        left -= 1
        if left < 0:
            raise ManifestError(f"{where} has more than {_MAX_VALUES:,} values once its aliases are expanded")
        if depth > _MAX_DEPTH:
            return None
        if isinstance(value, dict):
            # Merged keys come first, so that the mapping's own keys replace them.
            merged = value.get(_MERGE)
            made: dict[str, Any] = {}
            for source in merged if isinstance(merged, list) else [merged]:
                made |= plain(source, depth + 1) if isinstance(source, dict) else {}
            return made | {_key(key): plain(item, depth + 1) for key, item in value.items() if key != _MERGE}
        if isinstance(value, set):  # `!!set`: sorted, so that each import gives the same.
            value = sorted(value, key=repr)
        if isinstance(value, list | tuple):
            return [plain(item, depth + 1) for item in value]
        if isinstance(value, int) and not -(2**63) <= value < 2**64:
            # JSON and the faster parser read such a number like this too.
            value = float(value) if value.bit_length() < 1024 else inf
        if isinstance(value, float):
            # Infinities and `.nan` become null, as JSON has neither.
            return value if value - value == 0 else None
        if value is None or isinstance(value, str | bool | int):
            return value
        return value.isoformat() if hasattr(value, "isoformat") else str(value)

    return plain(data, 0)


def _key(key: Any) -> str:
    """Return a key as it is written: YAML reads `200`, `true` and `null` as other values than text."""
    return str(key).lower() if isinstance(key, bool) else "null" if key is None else str(key)


_MAX_FETCHED_BYTES = 32 * 1024 * 1024
_TIMEOUT_S = 60.0
_ACCEPT = "application/json, application/yaml;q=0.9, */*;q=0.5"


def is_url(source: str) -> bool:
    """Return True if a source is a URL, not a file."""
    return source.lower().startswith(("http://", "https://"))


def open_document(path: str | os.PathLike[str]) -> OpenApiDocument:
    """Read a document from a regular file. Its references may lead to files below its folder.

    Raises NotFoundError if there is no such file, ManifestError if it is not an OpenAPI document.
    """
    real = Path(path).resolve()
    try:
        if not real.is_file():
            if real.exists():
                raise ManifestError(f"{path} is not a file")
            raise NotFoundError(f"there is no file {path}")
        raw = _read(real)
    except OSError as error:
        raise ManifestError(f"{path} cannot be read: {error.strerror}") from None
    return read_document(raw, str(real), folder=str(real.parent))


async def fetch_document(url: str) -> OpenApiDocument:
    """Fetch a document from a URL. Redirects to other hosts are refused.

    Raises HttpFailed, HostNotAllowed, TimedOut and ManifestError.
    """
    from toolcrib.egress import Destination, Egress, EgressRequest, HostPolicy

    plain = url.partition("#")[0]
    try:
        own = Destination.parse(plain)
    except ValueError as error:
        raise ManifestError(f"{url} cannot be fetched: {error}") from None
    policy = HostPolicy.of(Network("hosts", (own.authority,)), own.host, own.port)
    request = EgressRequest(
        "GET",
        plain,
        (("Accept", _ACCEPT),),
        timeout_s=_TIMEOUT_S,
        max_response_bytes=_MAX_FETCHED_BYTES,
    )
    async with Egress() as egress:
        response = await egress.request(request, policy)
    if response.status != 200:
        raise HttpFailed(f"{url} answered {response.status}", details={"status": response.status})
    if response.truncated:
        raise ManifestError(f"{url} is larger than {_MAX_FETCHED_BYTES // 2**20} MiB")
    return read_document(response.body, response.url)


def clean(value: Any) -> str:
    """Return a text without hidden characters and surrounding blanks, with `\\n` as line end."""
    if not isinstance(value, str):
        return ""
    text: str = value
    if text.isascii() and text.isprintable():
        return text.strip()
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    text = INKLESS.sub("", _UNSEEN.sub("", text))
    # Lone surrogates (`\ud800`) have no UTF-8 and cannot be written to a file.
    return text.encode(errors="ignore").decode().strip()


def unique(name: str, taken: Container[str]) -> str:
    """Return the name, with the first number appended that makes it unique if it is taken."""
    others = (f"{name[: MAX_NAME - len(str(number)) - 1]}_{number}" for number in count(2))
    return next(other for other in chain((name,), others) if other not in taken)
