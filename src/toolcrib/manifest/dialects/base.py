"""Translate tools of other formats to native manifests, and keep the positions of their files.

So all formats are checked, listed and run in the same way, and each finding names the position in the file
that a person wrote.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from toolcrib.errors import ManifestError
from toolcrib.manifest.kinds import kind_of
from toolcrib.manifest.native.reader import parse_tool
from toolcrib.manifest.yaml.diagnostics import Diagnostic, diagnostics_of
from toolcrib.manifest.yaml.positions import KeyPath
from toolcrib.manifest.yaml.source import Document
from toolcrib.spec import Choice, Source, Spelling, Tool
from toolcrib.spec.naming import nearest, steps_of
from toolcrib.spec.record import record
from toolcrib.template import CONTEXT_NAMES, Namespaces, names_in

if TYPE_CHECKING:
    from toolcrib.schema import SchemaCheck

_HOST = re.compile(
    r"^[a-zA-Z][a-zA-Z0-9+.-]*://([^/?#${}@\s:\[\]]+|\[[0-9a-fA-F:.]+\])(?::(\d+))?(?=[/?#]|$)"
)
_BARE = re.compile(r'"(?:[^"\\]|\\.)*"|(\$\{[^{}"]*\})')
_NAME = re.compile(r"[A-Za-z_]\w*")


class Translated(Document):
    """A native manifest made of a part of another file; it knows the position of each value there."""

    __slots__ = ("_origin", "_places")

    def __init__(self, origin: Document, data: dict[str, Any], places: dict[KeyPath, KeyPath]) -> None:
        super().__init__(origin.path, origin.raw, origin.text, data)
        self._origin = origin
        self._places = places

    def source_path(self, path: KeyPath) -> KeyPath:
        # The nearest place above that is known; the rest of the path is the same in both.
        for length in range(len(path), -1, -1):
            place = self._places.get(path[:length])
            if place is not None:
                return (*place, *path[length:])
        return ()

    def locate(self, path: KeyPath, key: bool = False) -> tuple[int, int]:
        return self._origin.locate(self.source_path(path), key)

    def locate_text(self, path: KeyPath, literal: str, number: int = 0) -> tuple[int, int]:
        return self._origin.locate_text(self.source_path(path), literal, number)


@dataclass(slots=True)
class Draft:
    """One tool of a file while it is translated."""

    document: Document
    dialect: str
    place: KeyPath = ()
    """The path of the tool in the file."""
    manifest: dict[str, Any] = field(default_factory=dict)
    places: dict[KeyPath, KeyPath] = field(default_factory=dict)
    kept: dict[str, Any] = field(default_factory=dict)
    """The keys that the native format does not have."""
    found: list[Diagnostic] = field(default_factory=list)
    enabled: bool = True

    def put(self, path: KeyPath, value: Any, origin: KeyPath | None = None) -> None:
        """Set a value of the manifest; `origin` is its position in the file, below the tool."""
        here = self.manifest
        for step in path[:-1]:
            here = here.setdefault(str(step), {})
        here[str(path[-1])] = value
        if origin is not None:
            self.places[path] = (*self.place, *origin)

    def fault(
        self,
        message: str,
        origin: KeyPath = (),
        *,
        hint: str | None = None,
        rule: str = "dialect",
        key: bool = False,
    ) -> None:
        """Report something wrong, or not translated, at a position below the tool."""
        path = (*self.place, *origin)
        self.found.append(self.document.diagnostic(rule, message, path, key=key, hint=hint))

    def unmapped(self, origin: KeyPath) -> None:
        """Report a key that has no meaning in a manifest."""
        message = f"`{origin[-1]}` has no meaning here; it is kept as it is"
        self.fault(message, origin, rule="unmapped", key=True)

    def grant_hosts(self, urls: Iterable[Any], origin: KeyPath) -> None:
        """Grant the network to the literal hosts of URL templates, if the first one has such a host."""
        hosts = [host_of(url) if isinstance(url, str) else None for url in urls]
        if hosts[0] is not None:
            allow = list(dict.fromkeys(host for host in hosts if host is not None))
            self.put(("permissions", "network"), {"allow": allow}, origin)

    def grant_secrets(
        self,
        value: Any,
        declared: Collection[str],
        origin: KeyPath | None = None,
        *,
        also: Iterable[Any] = (),
    ) -> None:
        """Grant each `${NAME}` in a value that is not declared as a secret, and those that `also` names.

        A name that is not in capitals and is like that of an argument is reported: it is a typing error.
        """
        secrets = secrets_in(value, declared)
        for name in secrets:
            close = None if name.isupper() else nearest(name, declared)
            if close is not None:
                message = f"`${{{name}}}` is not an argument"
                place = (*self.place, *(origin or ()))
                at = self.document.locate_text(place, f"${{{name}}}")
                hint = f"did you mean `${{{close}}}`? A secret has a name in capitals, as in `${{API_KEY}}`"
                self.found.append(self.document.diagnostic("placeholder", message, place, hint=hint, at=at))
        secrets |= dict.fromkeys((name for name in also if isinstance(name, str)), True)
        if secrets:
            block = {name: {"type": "string", "required": needed} for name, needed in secrets.items()}
            self.put(("permissions", "secrets"), block, origin)

    def fits(self, block: Any, form: SchemaCheck) -> bool:
        """Return True if a block fits a JSON Schema; report each misfit."""
        if form.is_valid(block):
            return True
        for violation in form.violations(block):
            self.fault(violation.message, steps_of(violation.path))
        return False

    def keep(self, block: dict[str, Any], known: Iterable[str], silent: Iterable[str] = ()) -> None:
        """Keep the unknown keys of a block under `extensions`; report those that are not in `silent`."""
        known, silent = set(known), set(silent)
        for key, value in block.items():
            if key in known:
                continue
            self.kept[key] = value
            if key not in silent:
                self.unmapped((key,))


@record
class Entry:
    """One tool of a file; `tool` is None if it cannot be used, and `found` has the reasons."""

    tool: Tool | None
    document: Document
    found: tuple[Diagnostic, ...] = ()
    enabled: bool = True


def finish(draft: Draft, *, shared: bool) -> Entry:
    """Return the tool of a draft; `shared` is True if the file may contain other tools too."""
    document = draft.document
    if draft.kept:
        draft.put(("extensions", draft.dialect), draft.kept)
    translated = Translated(document, draft.manifest, {(): draft.place, **draft.places})
    found = tuple(draft.found)
    if any(finding.is_error for finding in found):
        return Entry(None, translated, found, draft.enabled)
    try:
        tool = parse_tool(translated)
    except ManifestError as error:
        return Entry(None, translated, (*found, *diagnostics_of(error)), draft.enabled)
    digest = hashlib.sha256(document.raw).hexdigest()
    source = Source(draft.dialect, document.path, document.raw, digest, shared)
    return Entry(replace(tool, source=source), translated, found, draft.enabled)


def finished(
    drafts: Callable[[Document], Iterable[Draft]], *, shared: bool
) -> Callable[[Document], list[Entry]]:
    """Return the `entries` of a format whose reader makes drafts."""
    return lambda document: [finish(draft, shared=shared) for draft in drafts(document)]


def host_of(url: str) -> str | None:
    """Return the literal host of a URL template as a network permission writes it, or None."""
    found = _HOST.match(url)
    if found is None:
        return None
    host, port = found.group(1).lower(), found.group(2)
    return f"{host}:{port}" if port not in (None, "80", "443") else host


def arguments_of(schema: Any) -> list[str]:
    """Return the argument names of an input schema; none if it is not in the right form."""
    named = schema.get("properties") if isinstance(schema, dict) else None
    return list(named) if isinstance(named, dict) else []


def json_template(text: str) -> Any:
    """Return JSON text with placeholders as a template; one without quotes becomes a whole value.

    Raises ValueError if it is not JSON.
    """
    return json.loads(_BARE.sub(lambda found: f'"{found[1]}"' if found[1] else found[0], text))


def secrets_in(
    value: Any, declared: Iterable[str], spelling: Spelling = Spelling.DOLLAR_BRACE
) -> dict[str, bool]:
    """Return each `${NAME}` in a value that is not declared, with True if it is required.

    A secret that always has a default is not required.
    """
    known = {*declared, *CONTEXT_NAMES}
    found: dict[str, bool] = {}
    for text in _texts(value):
        for reference in names_in(text, spelling):
            name, kind = reference.name, reference.namespace
            if kind == "argument" or (kind is None and name in known) or not _NAME.fullmatch(name):
                continue
            found[name] = found.get(name, False) or reference.default is None
    return found


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
        return
    if isinstance(value, Choice):
        value = [item for _, item in value.branches]
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _texts(item)


def respelled(tool: Tool) -> Tool:
    """Return the tool with every template in the spelling `${name}`; a secret is `${NAME}`.

    Raises ManifestError for what cannot be said in it.
    """
    from toolcrib.template.respelling import respell

    config: Any = tool.config
    names = Namespaces.of(tool)
    changed = {key: respell(getattr(config, key), names) for key in kind_of(tool).templated}
    return replace(tool, config=replace(config, **changed))


_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|us|µs|ns|h|m|s)")
_UNITS = {"h": 3_600_000.0, "m": 60_000.0, "s": 1000.0, "ms": 1.0, "us": 1e-3, "µs": 1e-3, "ns": 1e-6}


def milliseconds(value: Any) -> int | None:
    """Return a duration (`1m30s`, `500ms`, or a number of seconds) in whole milliseconds.

    A positive text is rounded up to 1. None for what is not a duration, or too long for a number.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        total = value * 1000
    elif isinstance(value, str) and re.fullmatch(f"(?:{_PART.pattern})+", value):
        total = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(value))
        total = max(1, round(total, 0)) if total > 0 else 0
    else:
        return None
    return int(total) if math.isfinite(total) else None
