"""What a call of a tool sends, runs and gives back, told apart from how a file writes it.

Who may call the tool, how long and how often, is not part of that.
"""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from typing import Any

from toolcrib.errors import ManifestError
from toolcrib.manifest.http.requests import signed
from toolcrib.spec import CommandExec, FileExec, HttpExec, Tool
from toolcrib.template import (
    Namespaces,
    literal_text,
    parse,
    parse_conditional,
    parse_query,
    parse_url,
    untied,
)

__all__ = ["differences", "is_about_calls"]

_CALLS = ("exec", "auth", "outputs.format")
"""Where a manifest says what a call does."""
_LIMITS = ("timeout_ms", "max_response_bytes", "max_bytes")
"""What only limits a call, in a configuration and in a manifest."""
_DOTTED = re.compile(r"\$\.([A-Za-z_]\w*(?:\.[A-Za-z_]\w*|\[\d+\])*)")
_Effect = dict[tuple[str, ...], Any]
"""What is said at these places of a manifest together, in a form that is equal where the same is done."""


def differences(one: Tool, other: Tool) -> tuple[str, ...]:
    """The places of a manifest (`exec.http.url`) where calls of two tools differ."""
    here, there = _effect(one), _effect(other)
    if here.keys() != there.keys():
        return _CALLS
    return tuple(place for places in here if here[places] != there[places] for place in places)


def is_about_calls(path: str, places: tuple[str, ...] = _CALLS) -> bool:
    """Whether a place of a manifest lies in these, and is no limit."""
    inside = any(path == place or path.startswith((f"{place}.", f"{place}[")) for place in places)
    return inside and not path.endswith(tuple(f".{name}" for name in _LIMITS))


def _effect(tool: Tool) -> _Effect:
    names = Namespaces.of(tool)
    # An environment name and a secret of that name have the same value.
    names = replace(names, secrets=names.secrets | names.env, env=frozenset())
    config = tool.config
    try:
        if isinstance(config, HttpExec):
            return _untied(_request(tool, config, names))
        if isinstance(config, CommandExec):
            return _untied({_CALLS: _command(tool, config, names)})
    except ManifestError:
        pass  # a bad template: its texts are compared
    block = {key: value for key, value in asdict(config).items() if key not in _LIMITS}
    form: str | None = tool.output.format
    if isinstance(config, FileExec):
        form = None  # it decides nothing
        if config.action == "read":
            block |= {"content": None, "mode": None, "mkdir": None}
    return _untied({_CALLS: (tool.kind, block, form)})


def _untied(effect: _Effect) -> _Effect:
    return {places: untied(value) for places, value in effect.items()}


def _request(tool: Tool, config: HttpExec, names: Namespaces) -> _Effect:
    url = parse_url(config.url, names, host_placeholders=True)
    headers = {name.lower(): value for name, value in config.headers.items() if value is not None}
    sides = {"header": headers, "query": dict(config.query), "cookie": dict(config.cookies)}
    basic: list[Any] = []
    for auth in tool.auth:
        place, name, value = signed(auth) or ("", "", "")
        if place:
            sides[place][name.lower() if place == "header" else name] = value
        else:
            basic.append(asdict(auth))
    path, jsonpath = config.json_path, config.jsonpath
    if jsonpath is not None and (dotted := _DOTTED.fullmatch(jsonpath)) is not None:
        path, jsonpath = dotted[1], None
    block, at = asdict(config), "exec.http"
    plain = ("method", "success_codes", "error_mode", "styles", "parts")
    return {
        (f"{at}.url", f"{at}.query", "auth"): (
            *(url.scheme, url.host, url.port, url.segments),
            (*url.query, *parse_query(sides["query"], names)),
        ),
        (f"{at}.headers", "auth"): _texts(headers, names),
        (f"{at}.cookies", "auth"): _texts(sides["cookie"], names),
        ("auth",): basic,
        (f"{at}.body",): None if config.body is None else parse(config.body, names),
        (f"{at}.body_format",): _body_format(config, names),
        (f"{at}.response.json_path", f"{at}.response.jsonpath"): (path, jsonpath),
        **{(f"{at}.response.{key}",): block[key] for key in ("regex", "fields")},
        **{(f"{at}.{key}",): block[key] for key in plain},
        ("outputs.format",): tool.output.format,
    }


def _body_format(config: HttpExec, names: Namespaces) -> str | None:
    """The format of the body, where it is sure without one being said: a value, or one that a call gives."""
    if config.body_format is not None or config.body is None:
        return config.body_format
    said = next((str(value) for name, value in config.headers.items() if name.lower() == "content-type"), "")
    if said and "json" not in said.lower():
        form = said.startswith("application/x-www-form-urlencoded") and isinstance(config.body, dict)
        return "form" if form else "text" if isinstance(config.body, str) else None
    if isinstance(config.body, str) and parse_conditional(config.body, names).lone is None:
        return None
    return "json"


def _command(tool: Tool, config: CommandExec, names: Namespaces) -> Any:
    return (
        config.entrypoint,
        parse(list(config.args), names),
        parse(config.shell, names),
        config.allow_dash,
        _texts(config.env, names),
        config.cwd,
        parse(config.stdin, names),
        config.stdout_format or tool.output.format,
        config.exit_codes_ok,
    )


def _texts(entries: dict[str, Any], names: Namespaces) -> dict[str, Any]:
    """Headers, cookies, variables: a number is its text."""
    return {
        name: parse(literal_text(value) if isinstance(value, bool | int | float) else value, names)
        for name, value in entries.items()
    }
