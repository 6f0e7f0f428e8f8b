"""Finds values of secrets in a bundle, so that none leaves with it. A name, `${NAME}`, is not a value."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import msgspec

from toolcrib.bundles.archive.contents import Contents
from toolcrib.errors import DeniedError, ManifestError, Violation
from toolcrib.manifest import load
from toolcrib.spec import SecretSource
from toolcrib.spec.naming import json_path

if TYPE_CHECKING:
    from toolcrib.guard import Redactor

_NAME = re.compile(r"\$\{\s*([A-Za-z_][A-Za-z0-9_]*)")
_VARIABLE = re.compile(
    r"(?:^|_)(?:TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|(?:API|ACCESS|PRIVATE)_?KEY)$|_KEY$"
)
"""Names of environment variables whose values are taken for secrets, even if no tool names them."""
# A shorter value may occur in other texts by chance.
_SHORTEST = 8
"""Characters of such a value."""
_TOKEN = re.compile(
    r"\b(?:gh[pousr]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9_]{50}|sk-[A-Za-z0-9_-]{32}|xox[abeoprs]-[A-Za-z0-9-]{20}"
    r"|AKIA[0-9A-Z]{16}|AIza[0-9A-Za-z_-]{35}|eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.)"
    r"|-----BEGIN (?:[A-Z]+ )?PRIVATE KEY-----"
)
"""Tokens of well-known services, JSON web tokens, private keys."""
_KEYS = frozenset(
    ("authorization", "proxy-authorization", "cookie", "x-api-key", "api-key", "apikey", "api_key",
     "x-auth-token", "access_token", "auth_token", "token", "key", "secret", "password", "passwd")
)  # fmt: skip
"""Names of headers, cookies and entries of a query whose values are credentials."""
_PLACES = frozenset({"headers", "query", "cookies"})
_Path = tuple[str | int, ...]


def require_no_secrets(contents: Contents, secrets: SecretSource | None) -> None:
    """Raise DeniedError, with each place, if a record contains a value of a secret.

    Values are those of the names in the tools and of variables that are named like a secret, as `secrets` has
    them (default: the environment), plain or encoded. Literal credentials are found by their form.
    """
    from toolcrib.guard import EnvironmentSecrets, Redactor

    source = EnvironmentSecrets() if secrets is None else secrets
    records = {f"{tool.slug}@{tool.version}": msgspec.to_builtins(tool) for tool in contents.tools}
    records["bundle"] = msgspec.to_builtins(contents.bundle)
    named = {
        name for record in records.values() for _, text in _texts(record) for name in _NAME.findall(text)
    }
    values = {name: value for name in sorted(named) if (value := source.get(name))}
    # Not only names that a tool uses: a value may have been pasted in place of its name.
    for name in os.environ:
        value = source.get(name) if _VARIABLE.search(name) else None
        if value is not None and len(value) >= _SHORTEST:
            values[name] = value
    redactor = Redactor(values)
    found = [
        Violation(f"{label} {json_path(path)}", problem)
        for label, record in records.items()
        for path, problem in _problems(record, redactor)
    ]
    if found:
        places = ", ".join(dict.fromkeys(violation.path for violation in found))
        raise DeniedError(
            f"the bundle was not exported, because it contains secrets: {places}",
            hint="Write ${NAME} in place of the value and put the tool as a new version.",
            violations=found,
        )


def _problems(record: dict[str, Any], redactor: Redactor) -> Iterator[tuple[_Path, str]]:
    for path, text in _texts(record):
        # The redactor returns the very same text where it finds nothing.
        if redactor.redact_text(text) is not text:
            yield path, "contains the value of a secret"
    # A native manifest is one text in its record: its headers and queries are found only in its data.
    for path, text in (*_texts(record), *_texts(_manifest(record))):
        if _is_credential(path, text):
            yield path, "contains a credential"


def _is_credential(path: _Path, text: str) -> bool:
    if _TOKEN.search(text):
        return True
    if len(path) > 1 and path[-2] in _PLACES and _is_literal(str(path[-1]), text):
        return True
    if not text.startswith(("http://", "https://")):
        return False
    # Not by `urlsplit`, which raises for an address that is valid only once its placeholders are filled in.
    address, _, query = text.partition("#")[0].partition("?")
    user = address.split("/")[2].rpartition("@")[0]
    return _is_literal("password", user) or any(_is_literal(*entry) for entry in parse_qsl(query))


def _is_literal(name: str, text: str) -> bool:
    return name.lower() in _KEYS and bool(text) and "${" not in text and "{{" not in text


def _texts(value: Any, path: _Path = ()) -> Iterator[tuple[_Path, str]]:
    """Yield every text of a JSON value with its place; keys too."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield path, str(key)
            yield from _texts(item, (*path, key))
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from _texts(item, (*path, number))


def _manifest(record: dict[str, Any]) -> Any:
    """Return the data of a native tool's manifest; None if there is none."""
    if record.get("type") != "native":
        return None
    try:
        return load(str(record["impl"].get("manifest", "")).encode(), "tool.yml").data
    except ManifestError:
        return None
