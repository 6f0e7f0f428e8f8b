"""The effect of an HTTP tool: its request and the reading of the answer, in any spelling of the manifest."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Any

from toolcrib.manifest.kinds import Effect
from toolcrib.manifest.requests import is_form, signed
from toolcrib.spec import HttpExec, Tool
from toolcrib.template import Namespaces, literal_text, parse, parse_conditional
from toolcrib.template.url import parse_query, parse_url

_DOTTED = re.compile(r"\$\.([A-Za-z_]\w*(?:\.[A-Za-z_]\w*|\[\d+\])*)")


def effect(tool: Tool, names: Namespaces) -> Effect:
    """Return the parts of the request. Raises ManifestError for a bad template."""
    config = tool.config
    assert isinstance(config, HttpExec)
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
    """Return the format of the body; None where the value of a call decides it."""
    if config.body_format is not None or config.body is None:
        return config.body_format
    headers = {name.lower(): str(value) for name, value in config.headers.items()}
    content = headers.get("content-type", "")
    if content and "json" not in content.lower():
        form = is_form(config) and isinstance(config.body, dict)
        return "form" if form else "text" if isinstance(config.body, str) else None
    if isinstance(config.body, str) and parse_conditional(config.body, names).lone is None:
        return None
    return "json"


def _texts(entries: dict[str, Any], names: Namespaces) -> dict[str, Any]:
    """Return the templates of headers or cookies, in which a number is its text."""
    return {
        name: parse(literal_text(value) if isinstance(value, bool | int | float) else value, names)
        for name, value in entries.items()
    }
