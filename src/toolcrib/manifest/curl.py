"""Make the manifest of an HTTP tool of a command of curl, as documentation of an API shows it."""

from __future__ import annotations

import json
import math
import re
import shlex
from argparse import ArgumentError, ArgumentParser, Namespace
from collections import Counter
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit, urlunsplit

from toolcrib.errors import ManifestError

_VALUES = {
    "--request": ("-X",), "--header": ("-H",), "--data": ("-d", "--data-raw", "--data-ascii"),
    "--data-binary": (), "--data-urlencode": (), "--json": (), "--user": ("-u",), "--user-agent": ("-A",),
    "--cookie": ("-b",), "--form": ("-F",), "--url": (), "--referer": ("-e",), "--max-time": ("-m",),
    "--output": ("-o",), "--connect-timeout": (), "--retry": (), "--write-out": ("-w",),
}  # fmt: skip
_FLAGS = {
    "--get": ("-G",), "--head": ("-I",), "--location": ("-L",), "--silent": ("-s",), "--show-error": ("-S",),
    "--fail": ("-f",), "--compressed": (), "--include": ("-i",), "--verbose": ("-v",), "--insecure": ("-k",),
    "--globoff": ("-g",), "--http1.1": (), "--http2": (), "--no-buffer": ("-N",),
}  # fmt: skip
_WITHOUT_MEANING = ("insecure", "output", "form")
_SECRET = re.compile(r"(?i)authorization|cookie|.*(api[-_]?key|token|secret).*")
_NOT_WORD = re.compile(r"\W+", re.ASCII)
_SET_BY_CLIENT = ("host", "content-length", "connection", "accept-encoding")


def read_curl(text: str) -> tuple[dict[str, Any], list[str]]:
    """Return the manifest of a tool that sends the same request, and notes about what was changed.

    Values of the query and of a JSON body become arguments. A value that is secret is left out: the manifest
    names a secret in its place. Raises ManifestError for a text that is not one command of curl.
    """
    given = _parsed(text)
    notes = [f"--{name} was left out" for name in _WITHOUT_MEANING if getattr(given, name)]
    try:
        url = urlsplit(given.url)
    except ValueError as error:
        raise ManifestError(f"{given.url!r} is not an address: {error}") from None
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ManifestError(f"{given.url!r} is not an http or https address", hint="Write the whole address.")
    if url.username is not None:
        given.user = ""
    made, host = _Made(notes, url.hostname), url.netloc.rpartition("@")[2]
    query = parse_qsl(url.query, keep_blank_values=True)
    data = [*given.data, *given.data_binary, *given.json, *(unquote(one) for one in given.data_urlencode)]
    if given.get:
        query += parse_qsl("&".join(data), keep_blank_values=True)
        data = []
    headers = made.headers(given)
    method = given.request or ("HEAD" if given.head else "POST" if data else "GET")
    block: dict[str, Any] = {
        "method": method.upper(),
        "url": urlunsplit((url.scheme, host, url.path, "", "")).replace("${", "$${"),
    }
    if query:
        block["query"] = made.entries(query)
    if headers:
        block["headers"] = headers
    if data:
        made.body(block, "&".join(data), is_json=bool(given.json))
    word = next((one for one in reversed(url.path.split("/")) if _NOT_WORD.sub("", one)), url.hostname)
    name = _name(f"{method.lower()}_{word}")
    permissions: dict[str, Any] = {"network": {"allow": [host]}}
    if made.secrets:
        permissions["secrets"] = {one: {"type": "string", "required": True} for one in made.secrets}
    manifest: dict[str, Any] = {
        "name": name,
        "description": f"Sends {method.upper()} {host}{url.path}.",
        "kind": "http",
        "version": 1,
        "inputs": {
            "schema": {"type": "object", "additionalProperties": False, "properties": made.properties}
        },
        "exec": {"http": block},
        "permissions": permissions,
    }
    if made.example:
        manifest["examples"] = [{"description": "As in the command.", "params": made.example}]
    return manifest, notes


class _Made:
    """The arguments and secrets of one tool."""

    def __init__(self, notes: list[str], host: str) -> None:
        self.notes = notes
        self._host = host
        self.properties: dict[str, Any] = {}
        self.example: dict[str, Any] = {}
        self.secrets: list[str] = []

    def argument(self, name: str, value: Any) -> str:
        """Return the placeholder of a new argument, which has this value in the example."""
        if _SECRET.fullmatch(name) and isinstance(value, str):
            return self.secret(name)
        own = _name(name)
        while own in self.properties:
            own += "_"
        kinds = {
            bool: "boolean",
            int: "integer",
            float: "number",
            str: "string",
            list: "array",
            dict: "object",
        }
        kind = kinds.get(type(value))
        self.properties[own] = {"description": name} if kind is None else {"type": kind, "description": name}
        self.example[own] = value
        return f"${{{own}}}"

    def entries(self, pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
        """Return names and the placeholders of their values, of each name the last one."""
        given = dict(pairs)
        if len(given) < len(pairs):
            twice = ", ".join(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
            self.notes.append(f"only the last value was kept of what is given more than once: {twice}")
        return {name: self.argument(name, value) for name, value in given.items()}

    def secret(self, name: str) -> str:
        """Return the placeholder of a secret of this host, as others have headers of the same name."""
        own = _name(f"{name}_{self._host}").upper()
        if own not in self.secrets:
            self.secrets.append(own)
            self.notes.append(f"the value of {name} was left out: set the secret {own}")
        return f"${{{own}}}"

    def headers(self, given: Namespace) -> dict[str, str]:
        found = {}
        for line in given.header:
            name, _, value = line.partition(":")
            name, value = name.strip(), value.strip()
            if name.lower() in _SET_BY_CLIENT:
                continue
            if _SECRET.fullmatch(name):
                scheme = re.match(r"(?i)(Bearer|Basic|Token) ", value)
                found[name] = (scheme[0] if scheme else "") + self.secret(name)
            else:
                found[name] = value.replace("${", "$${")
        for name, value in (("User-Agent", given.user_agent), ("Referer", given.referer)):
            if value is not None:
                found[name] = value.replace("${", "$${")
        if given.user is not None:
            found["Authorization"] = f"Basic {self.secret('authorization')}"
            self.notes.append(f"the secret {self.secrets[-1]} is USER:PASSWORD in Base64")
        if given.cookie is not None:
            found["Cookie"] = self.secret("cookie")
        return found

    def body(self, block: dict[str, Any], text: str, *, is_json: bool) -> None:
        try:
            value = json.loads(text, parse_int=self.number, parse_float=self.number)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict):
            block["body"] = {name: self.argument(name, one) for name, one in value.items()}
        elif is_json or value is not None:
            block["body"] = self.argument("body", value if value is not None else text)
        elif text.startswith("@"):
            self.notes.append(f"the body is the file {text[1:]}: it is the argument `body` now")
            block |= {"body": self.argument("body", ""), "body_format": "text"}
        else:
            pairs = parse_qsl(text, keep_blank_values=True)
            block["body_format"] = "form" if pairs else "text"
            block["body"] = self.entries(pairs) if pairs else self.argument("body", text)

    def number(self, text: str) -> int | float:
        """Return a number of the body. Raises ManifestError for one that no manifest can have."""
        try:
            number: int | float = int(text)
            fits = -(2**63) <= number < 2**64
        except ValueError:
            number = float(text)
            fits = math.isfinite(number)
        if not fits:
            raise ManifestError(
                f"the number {text} of the body does not fit in 64 bits",
                hint="Write a smaller one in the command: it is only the example.",
            )
        if str(number) != text:
            self.notes.append(f"the number {text} of the body is {number} in the example")
        return number


def _parsed(text: str) -> Namespace:
    try:
        words = shlex.split(text.replace("\\\r\n", " ").replace("\\\n", " ").strip().removeprefix("$ "))
    except ValueError as error:
        raise ManifestError(f"the command cannot be read: {error}", hint="Paste all of it.") from None
    if not words or words[0].rsplit("/", 1)[-1] != "curl":
        raise ManifestError("this is not a command of curl", hint="It begins with `curl`.")
    parser = ArgumentParser(add_help=False, exit_on_error=False, allow_abbrev=False)
    many = {"--header", "--data", "--data-binary", "--data-urlencode", "--json", "--form"}
    for name, others in _VALUES.items():
        how: dict[str, Any] = {"action": "append", "default": []} if name in many else {}
        parser.add_argument(name, *others, dest=name[2:].replace("-", "_"), **how)
    for name, others in _FLAGS.items():
        parser.add_argument(name, *others, dest=name[2:], action="store_true")
    parser.add_argument("address", nargs="?")
    try:
        given, unknown = parser.parse_known_args(words[1:])
    except ArgumentError as error:
        raise ManifestError(f"the command cannot be read: {error}") from None
    if unknown:
        raise ManifestError(f"{unknown[0]} of curl is not supported", hint="Leave it out.")
    given.url = given.url or given.address or ""
    return given


def _name(text: str) -> str:
    """Return a text as the name of a tool or an argument."""
    found = _NOT_WORD.sub("_", text).strip("_")[:64] or "value"
    return found if not found[0].isdigit() else f"_{found}"
