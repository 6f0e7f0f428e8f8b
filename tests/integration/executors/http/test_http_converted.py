"""A tool in another format sends the request that it sent before, byte for byte."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.executors.http.http_doubles import Server
from tests.integration.executors.http.test_http_styles import sent
from toolcrib.manifest import entries
from toolcrib.manifest.convert import convert
from toolcrib.spec import Auth, HttpExec, Network, Permissions, SecretSpec, Tool

SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["a"],
    "properties": {"a": {"type": "string"}, "b": {"type": "integer"}, "c": {"type": "object"}},
}
TEXTS: dict[str, dict[str, Any]] = {
    "path": {"path": "/x/${a}/y-${a}.z"},
    "query": {"path": "/?z=${a}&n=${b}",
              "query": {"a b&": "x&y=${a}", "b": "${b}", "many": ["1", "${a}", 2]}},
    "default": {"path": "/", "query": {"b": "${b | default:7}", "t": "${b | default:'7'}"}},
    "headers": {"path": "/", "headers": {"X-A": "<${a}>", "X-B": "${b}", "X-N": 1, "X-K": "Bearer ${KEY}"}},
    "json": {"path": "/", "method": "POST",
             "body": {"a": "${a}", "b": "${b}", "t": "b=${a}", "c": ["${c}", None, 1.5]}},
    "lone": {"path": "/", "method": "PUT", "body": "${c}"},
    "escapes": {"path": "/", "method": "POST", "body": {"t": "$${a} $5 $$${a} {${a}} ${secret:KEY}"}},
    "reaching": {"path": "/", "method": "POST", "body": {"x": "${c.x[0]}", "n": "${name} ${version}"}},
    "bearer": {"path": "/", "auth": Auth("bearer", "KEY")},
    "key": {"path": "/?q=1", "auth": Auth("api_key", "KEY", location="query", name="api key")},
}  # fmt: skip
VALUES: list[dict[str, Any]] = [
    {"a": "plain"},
    {"a": "é /?#&=+%25 {{a}} ${KEY} \"'\\", "b": 0, "c": {"x": [True], "y": None}},
    {"a": "{{if a}}x{{end}}", "b": -12, "c": {}},
]


@pytest.mark.parametrize("values", VALUES, ids=["plain", "hostile", "control"])
@pytest.mark.parametrize("case", TEXTS)
@pytest.mark.parametrize("to", ["native", "flexigpt"])
async def test_the_request_is_the_same(
    http_server: Server, to: str, case: str, values: dict[str, Any]
) -> None:
    config = dict(TEXTS[case])
    path, auth = config.pop("path"), config.pop("auth", None)
    host = f"127.0.0.1:{http_server.port}"
    made = Tool(
        "t",
        "A tool",
        "http",
        SCHEMA,
        HttpExec(**{"method": "GET", "url": f"http://{host}{path}", **config}),
        permissions=Permissions(Network("hosts", (host,)), secrets=(SecretSpec("KEY"),)),
        auth=() if auth is None else (auth,),
    )
    written = convert(made, to)
    other = entries(f"t/{to}", written.text, to)[0].tool
    assert other is not None
    for tool in (made, other):
        await sent(http_server, tool, None, **values)
    first, second = http_server.got[-2:]
    assert (first.method, first.raw_path) == (second.method, second.raw_path)
    assert first.raw_headers == second.raw_headers
    assert http_server.bodies[-2] == http_server.bodies[-1]
