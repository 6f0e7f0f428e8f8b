"""Arguments on the command line: `key=text`, `key:=json`, `@file` and `-` (JSON on standard input)."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from toolcrib.errors import ToolcribError, UsageError
from toolcrib.spec.naming import parts_of

__all__ = ["complete_tool", "parse_arguments", "parse_duration", "parse_target"]

_PAIR = re.compile(r"([^=:]+(?::(?!=)[^=:]*)*)(:?=)(.*)", re.DOTALL)
_DURATION = re.compile(r"([1-9][0-9]{0,8})([smhdw])")
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


def parse_arguments(words: Sequence[str]) -> dict[str, Any]:
    """Return the arguments of a call. Later words replace earlier files; a key given twice is an error."""
    from toolcrib.schema import decode_object

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
            key, value = _pair(word)
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


def _pair(word: str) -> tuple[str, Any]:
    match = _PAIR.fullmatch(word)
    try:
        word.encode()
    except UnicodeEncodeError:
        raise UsageError(
            f"{word!r} is not UTF-8", hint="Write this value as JSON into a file and give @file.json."
        ) from None
    if match is None:
        raise UsageError(
            f"{word!r} is not an argument",
            hint="Write key=text, key:=json, @file.json, or - for a JSON object on standard input.",
        )
    key, sign, text = match.groups()
    if sign == "=":
        return key, text
    import orjson

    from toolcrib.schema import decode_value

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
