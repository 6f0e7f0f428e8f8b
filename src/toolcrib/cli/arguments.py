"""Arguments on the command line: `key=text`, `key:=json`, `@file` and `-` (JSON on standard input)."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from toolcrib.errors import UsageError

__all__ = ["complete_tool", "parse_arguments", "parse_target"]

_PAIR = re.compile(r"([^=:]+(?::(?!=)[^=:]*)*)(:?=)(.*)", re.DOTALL)
_TARGET = re.compile(r"(?:(?P<bundle>[^/@]+)/)?(?P<name>[^/@]+)(?:@(?P<version>.+))?")


def parse_target(text: str) -> tuple[str | None, str, str | None]:
    """`[BUNDLE/]NAME[@VERSION]` in its three parts."""
    match = _TARGET.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is not [BUNDLE/]NAME[@VERSION]")
    return match["bundle"], match["name"], match["version"]


def parse_arguments(words: Sequence[str]) -> dict[str, Any]:
    """The arguments object; later words win over files, but a key given twice by hand is an error."""
    from toolcrib.schema import decode_object

    arguments: dict[str, Any] = {}
    by_hand: set[str] = set()
    if words.count("-") > 1:
        raise UsageError("standard input (-) can be read once only")
    for word in words:
        if word == "-":
            arguments.update(decode_object(sys.stdin.buffer.read()))
        elif word.startswith("@"):
            arguments.update(decode_object(_read(word[1:])))
        else:
            key, value = _pair(word)
            if key in by_hand:
                raise UsageError(f"{key} is given twice")
            by_hand.add(key)
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
            f"{word!r} is not UTF-8", hint="Give such a value as JSON in a file: @file.json"
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

    try:
        return key, orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise UsageError(
            f"{key}:= is not followed by JSON: {error}", hint=f"For plain text write {key}={text}"
        ) from None


def complete_tool(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:  # noqa: ARG001
    """The names of tools that begin so, for the shell: folders only, no manifest is read."""
    from toolcrib.errors import ToolcribError
    from toolcrib.project.root import find

    try:
        folder = find(ctx.params.get("root")).tools
        return sorted(
            entry.name for entry in folder.iterdir() if entry.is_dir() and entry.name.startswith(incomplete)
        )
    except (OSError, ToolcribError):
        return []
