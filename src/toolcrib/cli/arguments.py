"""Arguments on the command line: `key=text`, `key:=json`, `--key value`, `@file`, `-` (standard input)."""

from __future__ import annotations

import re
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
import orjson

from toolcrib.cli.options import FileCommand
from toolcrib.errors import ToolcribError, UsageError
from toolcrib.schema import decode_object, decode_value
from toolcrib.schema.lenient import kind_of, kinds_of
from toolcrib.spec.naming import nearest, parts_of, pointed

# A key may hold colons, `:=` ends it: `a:b=c` is a text, `a:b:=1` is JSON.
_PAIR = re.compile(r"([^=:]+(?::(?!=)[^=:]*)*)(:?=)(.*)", re.DOTALL)
_DURATION = re.compile(r"([1-9][0-9]{0,8})([smhdw])")
_DEPTH = 16
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def parse_target(text: str) -> tuple[str | None, str, str | None]:
    """Return the three parts of `[BUNDLE/]NAME[@VERSION]`."""
    parts = parts_of(text)
    if parts is None:
        raise UsageError(f"{text!r} is not [BUNDLE/]NAME[@VERSION]")
    return parts


def parse_duration(text: str) -> timedelta | None:
    """Return the time of `30m`, `12h`, `30d` or `8w`; None for any other text, and for more than fits."""
    match = _DURATION.fullmatch(text)
    try:
        return timedelta(**{_UNITS[match[2]]: int(match[1])}) if match else None
    except OverflowError:
        return None


def moment(value: str) -> datetime:
    """Return the moment of an ISO 8601 text, in UTC unless it names a zone, or of `2h` ago."""
    ago = parse_duration(value)
    try:
        found = datetime.now(UTC) - ago if ago is not None else datetime.fromisoformat(value)
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{value!r} is not a time: write 2026-01-31, 2026-01-31T15:00:00, or 10m, 2h, 3d (ago)"
        ) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def call_command(
    name: str, cls: type[click.Command] = FileCommand
) -> Callable[[Callable[..., Any]], click.Command]:
    """Make a command that takes a tool; options that are not its own are arguments of the tool."""
    return click.command(name, cls=cls, context_settings={"ignore_unknown_options": True})


def parse_arguments(words: Sequence[str], schema: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the arguments of a call. Later words replace earlier files; a key given twice is an error.

    With the schema of the tool's input, `key=7` is the number 7 where no text is allowed, and `--key 7` means
    the same.
    """
    words = list(_without_options(words, schema or {}))
    arguments: dict[str, Any] = {}
    given: set[str] = set()
    if words.count("-") > 1:
        raise UsageError("standard input (-) can only be read once")
    for word in words:
        if word == "-":
            arguments.update(decode_object(sys.stdin.buffer.read()))
        elif word.startswith("@"):
            arguments.update(decode_object(_read(word[1:])))
        else:
            key, value = _pair(word, schema or {})
            if key in given:
                raise UsageError(f"{key} is given twice")
            given.add(key)
            arguments[key] = value
    return arguments


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None


def _without_options(words: Sequence[str], schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield the words with each option as a pair: `--key value`, `--key=value`, and `--key` for true."""
    rest = deque(words)
    while rest:
        word = rest.popleft()
        if not word.startswith("--"):
            yield word
            continue
        option, sign, text = word.removeprefix("--").partition("=")
        key, no = _key_of(option.removesuffix(":"), schema)
        # Only the schema says if the next word is the value of this option.
        is_switch = kinds_of(property_of(schema, key), schema) == {"boolean"}
        if sign:
            yield f"{key}:={text}" if option.endswith(":") else f"{key}={text}"
        elif no or (is_switch and (not rest or rest[0] not in ("true", "false"))):
            yield f"{key}:={'false' if no else 'true'}"
        elif rest:
            yield f"{key}={rest.popleft()}"
        else:
            raise UsageError(f"--{option} needs a value", hint=f"Write --{option} VALUE or {key}=VALUE")


def _key_of(option: str, schema: Mapping[str, Any]) -> tuple[str, bool]:
    """Return the argument that an option means, and True for `--no-…`. Raises UsageError."""
    members = schema.get("properties")
    known = list(members) if isinstance(members, dict) else []
    named = {name.replace("_", "-"): name for name in known} | {name: name for name in known}
    if option in named:
        return named[option], False
    if option.removeprefix("no-") in named:
        return named[option.removeprefix("no-")], True
    context = click.get_current_context(silent=True)
    own = [] if context is None else [name for one in context.command.params for name in one.opts]
    close = nearest(f"--{option}", [*own, *(f"--{name}" for name in known)])
    raise UsageError(
        f"there is no option --{option}, and the tool has no argument of this name."
        + (f" Did you mean {close}?" if close else "")
    )


def _pair(word: str, schema: Mapping[str, Any]) -> tuple[str, Any]:
    match = _PAIR.fullmatch(word)
    # Bytes that are not UTF-8 come as surrogates (PEP 383), and JSON has no way to write those.
    try:
        word.encode()
    except UnicodeEncodeError:
        raise UsageError(
            f"{word!r} is not UTF-8", hint="Write this value as JSON into a file and give @file.json."
        ) from None
    if match is None:
        members = schema.get("properties")
        meant = "key=value"
        if isinstance(members, dict) and members and not word.startswith(("{", "=")):
            meant = f"{word}=value without blanks" if word in members else f"{next(iter(members))}={word}"
        raise UsageError(
            f"{word!r} is not an argument",
            hint=f"Write {meant}, key:=json, @file.json, or - for a JSON object on standard input.",
        )
    key, sign, text = match.groups()
    if sign == "=":
        return key, as_typed(text, property_of(schema, key), schema)
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise UsageError(
            f"the value of {key}:= is not JSON: {error}", hint=f"For plain text write {key}={text}"
        ) from None
    return key, decode_value(text, (key,))


def complete_tool(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:  # noqa: ARG001
    """Return the names of tools that begin like this. Only folders are listed: no manifest is read."""
    from toolcrib.project.root import find

    try:
        folder = find(ctx.params.get("root")).tools
        return sorted(
            entry.name for entry in folder.iterdir() if entry.is_dir() and entry.name.startswith(incomplete)
        )
    except (OSError, ToolcribError):
        return []


def property_of(schema: Mapping[str, Any], name: str) -> Any:
    """Return the schema of one member of an object; True where it says nothing about it."""
    members = schema.get("properties")
    if isinstance(members, dict) and name in members:
        return members[name]
    return schema.get("additionalProperties", True)


def as_typed(text: str, member: Any, schema: Mapping[str, Any]) -> Any:
    """Return the value that a text means: JSON where the schema allows no string, else the text itself.

    A text that is not JSON of an allowed type stays as it is, for the check of the arguments to explain.
    """
    kinds = kinds_of(member, schema)
    # Where a text is allowed it stays one: `version=1.0` must not become a number.
    if not kinds or "string" in kinds:
        return text
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
    value = decode_value(text)
    kind = kind_of(value)
    return value if kind in kinds or (kind == "integer" and "number" in kinds) else text


def resolved(member: Any, root: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a member with what its `$ref` leads to; its own words count first."""
    found = dict(member) if isinstance(member, dict) else {}
    for _ in range(_DEPTH):
        if not isinstance(ref := found.pop("$ref", None), str):
            break
        there = pointed(root, ref)
        found = {**(there if isinstance(there, dict) else {}), **found}
    return found
