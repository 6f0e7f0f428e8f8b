"""Strict reading of settings: every error has its position in the file."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

from toolcrib.builtin.names import NAMES
from toolcrib.builtin.settings import RootFolder
from toolcrib.builtin.table import builtin
from toolcrib.manifest import Diagnostic, Document
from toolcrib.spec import Network, Permissions, SecretSpec
from toolcrib.spec.model_provider import MODEL_APIS, ModelApi, ModelProvider
from toolcrib.spec.naming import did_you_mean, nearest
from toolcrib.state import is_database

KeyPath = tuple[str | int, ...]
"""Keys and list positions from the top of the document down to a value."""
_ROOT_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9_-]{0,63}")
_PROVIDER_KEYS = ("api", "base_url", "key")
_PROVIDER_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_SECRET = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
# Unicode categories: with such characters a text looks like another one, or like several lines.
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


class SettingError(Exception):
    """A value that is not as it must be."""

    def __init__(self, finding: Diagnostic) -> None:
        super().__init__(finding.message)
        self.finding = finding


class Reader:
    """Reads values of one document. Each method returns one, or raises SettingError with its position."""

    def __init__(self, document: Document) -> None:
        self._document = document

    def misfit(
        self, at: KeyPath, message: str, hint: str | None = None, rule: str = "wrong-value"
    ) -> SettingError:
        """Return the error for the value at this place."""
        steps = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in at)
        name = f"`{steps.removeprefix('.')}`" if at else "the file"
        on_key = rule in ("unknown-key", "wrong-type")
        return SettingError(self._document.diagnostic(rule, f"{name} {message}", at, key=on_key, hint=hint))

    def unknown(self, at: KeyPath, known: tuple[str, ...]) -> SettingError:
        """Return the error for a key that does not exist."""
        hint = did_you_mean(str(at[-1]), known, f"known here: {', '.join(known)}")
        return self.misfit(at, "is not a setting", hint, "unknown-key")

    def mapping(self, value: Any, at: KeyPath, known: tuple[str, ...]) -> dict[str, Any]:
        """A mapping with no other keys than these; none at all is an empty one."""
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self.misfit(at, "must be a mapping", f"known here: {', '.join(known)}", "wrong-type")
        for key in value:
            if key not in known:
                raise self.unknown((*at, key), known)
        return value

    def items(self, value: Any, at: KeyPath, most: int) -> list[Any]:
        """A list of at most `most` items."""
        if not isinstance(value, list):
            raise self.misfit(at, "must be a list", "write each item after `- `", "wrong-type")
        if len(value) > most:
            raise self.misfit(at, f"has more than {most:,} items")
        return value

    def line(self, value: Any, at: KeyPath, most: int) -> str:
        """A text that people read: one line, without invisible characters."""
        if not isinstance(value, str) or not value.strip() or len(value) > most:
            raise self.misfit(at, f"must be a text of 1 to {most} characters")
        text = value.strip()
        if any(unicodedata.category(char) in _INVISIBLE for char in text):
            raise self.misfit(at, "contains a line break or an invisible character", "write one line")
        # Names are compared in NFC, so that one that looks the same is the same.
        return unicodedata.normalize("NFC", text)


Read = Callable[[Reader, Any, KeyPath], Any]
"""Returns a value of the document as the program uses it. Raises SettingError."""


def number(low: float, high: float, *, whole: bool = True) -> Read:
    """Return a reader of numbers from `low` to `high`."""

    def read(reader: Reader, value: Any, at: KeyPath) -> int | float:
        # `True` is an int in Python, so it is refused on its own below.
        right = isinstance(value, int) or (not whole and isinstance(value, float))
        if not right or isinstance(value, bool) or not low <= value <= high:
            kind = "a whole number" if whole else "a number"
            raise reader.misfit(at, f"must be {kind} from {low:,g} to {high:,.0f}")
        return int(value) if whole else float(value)

    return read


def choice(options: tuple[str, ...], hint: str | None = None) -> Read:
    """Return a reader of one of these texts; `hint` replaces the nearest one."""

    def read(reader: Reader, value: Any, at: KeyPath) -> str:
        if not isinstance(value, str) or value not in options:
            close = nearest(value, options) if isinstance(value, str) else None
            nearest_one = f"did you mean `{close}`?" if close else None
            raise reader.misfit(at, f"must be one of: {', '.join(options)}", hint or nearest_one)
        return value

    return read


def items(of: Read, most: int) -> Read:
    """Return a reader of lists of at most `most` items; it returns a tuple."""

    def read(reader: Reader, value: Any, at: KeyPath) -> tuple[Any, ...]:
        return tuple(of(reader, item, (*at, n)) for n, item in enumerate(reader.items(value, at, most)))

    return read


def truth(reader: Reader, value: Any, at: KeyPath) -> bool:
    """Read true or false."""
    if not isinstance(value, bool):
        raise reader.misfit(at, "must be true or false")
    return value


def texts(reader: Reader, value: Any, at: KeyPath) -> tuple[str, ...]:
    """Read a list of texts."""
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise reader.misfit(at, "must be a list of texts", "write it as a list: `[…]`")
    return tuple(value)


def hosts(reader: Reader, value: Any, at: KeyPath) -> tuple[str, ...]:
    """Read a list of hosts."""
    from toolcrib.egress import HostRule

    found = texts(reader, value, at)
    for n, host in enumerate(found):
        try:
            HostRule.parse(host)
        except ValueError:
            hint = "write api.example.com, *.example.org or name:port; no https://, no path"
            raise reader.misfit((*at, n), "must be a host", hint) from None
    return found


def database(reader: Reader, value: Any, at: KeyPath) -> str:
    """Read `sqlite` or the address of a Postgres server. Its password is no matter of a project."""
    if not is_database(value):
        raise reader.misfit(at, "must be `sqlite` or postgresql://USER@HOST:PORT/DATABASE")
    try:
        # The two places where an address of Postgres can hold one: before the `@`, and as a parameter.
        secret = urlsplit(value).password is not None or "password" in parse_qs(urlsplit(value).query)
    except ValueError:
        raise reader.misfit(at, "is a malformed address") from None
    if secret:
        raise reader.misfit(at, "contains a password", "put it into PGPASSWORD or ~/.pgpass")
    return str(value)


def permissions(known: tuple[str, ...], read_default: tuple[str, ...] = ()) -> Read:
    """Return a reader of a block of permissions as manifests have it, with these keys of it."""

    def read(reader: Reader, value: Any, at: KeyPath) -> Permissions:
        block = reader.mapping(value, at, known)
        files = reader.mapping(block.get("fs"), (*at, "fs"), ("read", "write"))
        try:
            network = Network.parse(block.get("network", False))
        except ValueError as error:
            raise reader.misfit((*at, "network"), str(error).removeprefix("network ")) from None
        secrets = texts(reader, block.get("secrets", []), (*at, "secrets"))
        return Permissions(
            network=network,
            read=texts(reader, files.get("read", list(read_default)), (*at, "fs", "read")),
            write=texts(reader, files.get("write", []), (*at, "fs", "write")),
            secrets=tuple(map(SecretSpec, secrets)),
            env=texts(reader, block.get("env", []), (*at, "env")),
        )

    return read


def read_builtins(reader: Reader, value: Any, at: KeyPath) -> tuple[tuple[str, Mapping[str, Any]], ...]:
    """Read a list of names, or a mapping of names to options."""
    if not isinstance(value, list | dict):
        raise reader.misfit(at, "must be a list of names, or a mapping of names to options")
    options = value if isinstance(value, dict) else {}
    found = []
    for number, name in enumerate(value):
        here = (*at, name if isinstance(value, dict) else number)
        if name not in NAMES:
            hint = did_you_mean(str(name), NAMES, f"known here: {', '.join(NAMES)}")
            raise reader.misfit(here, "is not a built-in tool", hint)
        given: Any = {} if options.get(name) is None else options[name]
        if name in options and (faults := builtin(name).option_faults(given)):
            path, message = faults[0]
            raise reader.misfit(here, f"{path.removeprefix('$.')} {message}")
        found.append((name, given))
    return tuple(found)


def read_roots(reader: Reader, value: Any, at: KeyPath) -> tuple[RootFolder, ...]:
    """Read names of folders, each with a path that is only read, or with `path` and `write`."""
    if not isinstance(value, dict) or not value:
        raise reader.misfit(at, "must name at least one folder: `workspace: {path: ., write: true}`")
    found = []
    for name, entry in value.items():
        if not _ROOT_NAME.fullmatch(name):
            raise reader.misfit((*at, name), "is not a name for a folder", "use letters, digits, `_` and `-`")
        block = {"path": entry} if isinstance(entry, str) else entry
        block = reader.mapping(block, (*at, name), ("path", "write"))
        path = reader.line(block.get("path"), (*at, name, "path"), 4096)
        found.append(RootFolder(name, path, truth(reader, block.get("write", False), (*at, name, "write"))))
    return tuple(found)


def read_providers(reader: Reader, value: Any, at: KeyPath) -> tuple[ModelProvider, ...]:
    """Read a mapping of names to `api`, `base_url` and `key`."""
    if not isinstance(value, dict):
        raise reader.misfit(at, "must be a mapping: name, then `api` and `base_url`", None, "wrong-type")
    return tuple(_provider(reader, name, entry, (*at, str(name))) for name, entry in value.items())


def _provider(reader: Reader, name: str, entry: Any, at: KeyPath) -> ModelProvider:
    from toolcrib.egress import Destination

    # `scripted` is a model without a provider, which answers by the agent's own script.
    if not _PROVIDER_NAME.fullmatch(name) or name == "scripted":
        raise reader.misfit(at, "is not a name for a provider", "use letters, digits, `_` and `-`")
    block = reader.mapping(entry, at, _PROVIDER_KEYS)
    for key in _PROVIDER_KEYS[:2]:
        if key not in block:
            raise reader.misfit(at, f"needs `{key}`", "`api: openai` is that of most local servers")
    api = cast("ModelApi", choice(MODEL_APIS)(reader, block["api"], (*at, "api")))
    base_url, secret = block["base_url"], block.get("key")
    try:
        Destination.parse(base_url)
    except (ValueError, TypeError, AttributeError) as error:
        raise reader.misfit((*at, "base_url"), f"is not an address: {error}") from None
    if secret is not None and (not isinstance(secret, str) or not _SECRET.fullmatch(secret)):
        raise reader.misfit((*at, "key"), "must be the name of a secret", "such as MY_PROVIDER_KEY")
    return ModelProvider(name, api, base_url, secret)
