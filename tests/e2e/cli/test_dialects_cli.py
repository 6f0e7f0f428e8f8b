"""Tools of other formats on the command line: listed, checked, shown, run, planned, from their own files."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.crib import Crib
from tests.e2e.cli.test_cli import Done, cli
from tests.integration.egress.servers import serving

KEY = {"WEATHER_API_KEY": "k3y/+value", "API_TOKEN": "t0ken-value"}
RECORD = {
    "slug": "weather",
    "version": "v2",
    "description": "Weather of a city",
    "type": "http",
    "argSchema": {
        "type": "object",
        "required": ["city"],
        "properties": {"city": {"type": "string", "description": "The city"}},
    },
}
VEGA = """\
name: greet
description: Greet
params: [{name: loud, type: boolean, description: Loud}]
implementation:
  type: http
  url: https://api.example.com/
  body:
    {{if loud}}
    text: HELLO
    {{end}}
"""
PACK = """\
kind: SkillPack
spec:
  sidecar:
    tools:
      - name: greet
        description: Greet
        parameters: {type: object, properties: {who: {type: string, description: Whom}}}
        command: [printf, "hello %s", "{{who}}"]
      - name: wave
        description: Wave
        command: [echo, wave]
"""


async def echo(request: web.Request) -> web.StreamResponse:
    if request.path.startswith("/missing"):
        return web.json_response({"error": "no such city"}, status=404)
    return web.json_response(
        {
            "method": request.method,
            "path": request.raw_path,
            "authorization": request.headers.get("Authorization"),
            "body": (await request.read()).decode(),
        }
    )


def with_server(work: Any) -> Any:
    """Do `work(url, run)` beside a server; `run` starts the program."""

    async def both() -> Any:
        async with serving(echo) as port:
            return await asyncio.to_thread(work, f"http://127.0.0.1:{port}")

    return asyncio.run(both())


def weather(crib: Crib, template: str) -> None:
    impl = {"method": "GET", "urlTemplate": template, "headers": {"User-Agent": "MyApp/${version}"}}
    crib.write(".toolcrib/tools/weather/tool.json", json.dumps({**RECORD, "impl": impl}))


def run(crib: Crib, *words: str) -> Done:
    return cli(crib, "run", *words, env=KEY)


def test_a_flexigpt_tool_is_run(crib: Crib) -> None:
    def work(url: str) -> None:
        weather(crib, url + "/v1/${city}?key=${WEATHER_API_KEY}")
        assert "weather  http" in cli(crib, "list").out
        done = run(crib, "weather", "city=a b/c", "--json")
        assert done.document["value"]["path"] == "/v1/a%20b%2Fc?key=***WEATHER_API_KEY***"
        assert (done.code, done.document["meta"]["details"]["status"]) == (0, 200)
        refused = run(crib, "weather", "--json")
        assert (refused.code, refused.document["error"]["violations"][0]["path"]) == (4, "$.city")
        assert cli(crib, "run", "weather", "city=x").code != 0, "without the key"
        weather(crib, url + "/missing/${city}")
        gone = run(crib, "weather", "city=x")
        assert gone.code == 1
        assert "404 Not Found" in gone.err

    with_server(work)


@pytest.mark.usefixtures("kernel")
def test_a_file_with_several_tools_is_a_source(crib: Crib) -> None:
    crib.write("pack.yaml", PACK)
    crib.write(".toolcrib/config.yml", "sources: [{file: pack.yaml}]\n")
    assert [tool["name"] for tool in cli(crib, "list", "--json").document["tools"]] == ["greet", "wave"]
    assert run(crib, "greet", "who=a/b", "--json").document["value"] == "hello a/b"
    assert run(crib, "greet", "who:=5").code == 4


def test_what_is_wrong_with_a_source_is_told_where_it_stands(crib: Crib) -> None:
    crib.write("pack.yaml", PACK.replace("[echo, wave]", "echo wave | cat"))
    crib.write(".toolcrib/config.yml", "sources: [{file: pack.yaml}, {file: gone.yaml}]\n")
    done = cli(crib, "lint", "--json")
    assert done.code == 4
    told = {(Path(one["path"]).name, one["line"]): one for one in done.document["diagnostics"]}
    assert "needs a shell" in told["pack.yaml", 11]["message"]
    assert told["gone.yaml", 1]["rule"] == "unreadable"
    refused = run(crib, "wave", "--json")
    assert refused.document["error"]["code"] == "invalid_manifest"
    assert "pack.yaml:11:" in refused.document["error"]["message"]
    assert [tool["name"] for tool in cli(crib, "list", "--json").document["tools"]] == ["greet"]


@pytest.mark.parametrize(
    ("name", "text", "told", "hint"),
    [
        ("servers.json", '{"mcpServers": {"a": {"command": "x"}}}', "MCP servers", "`mcp_servers`"),
        ("api.yaml", "openapi: 3.1.0\ninfo: {title: t}\npaths: {}\n", "OpenAPI", "import openapi"),
        ("team.yaml", "members: [{name: Gary, skills: [a]}]\n", "a team", "--team"),
        ("tool.yml", "name: t\nkind: file\nexec: {}\n", "Toolcrib's own format", "tools/NAME/tool.yml"),
        ("x.yaml", "a: 1\n", "no known format", "name its format"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_source_is_refused_with_what_to_do(
    crib: Crib, name: str, text: str, told: str, hint: str
) -> None:
    crib.write(name, text)
    crib.write(".toolcrib/config.yml", f"sources: [{{file: {name}}}]\n")
    (found,) = cli(crib, "lint", "--json").document["diagnostics"]
    assert told in found["message"]
    assert hint in found["hint"]
    assert cli(crib, "list", "--json").document["tools"] == []


def test_a_file_among_the_folders_of_tools_is_listed_as_an_error(crib: Crib) -> None:
    crib.write(".toolcrib/tools/hello.yml", "name: hello\nkind: command\nexec: {}\n")
    done = cli(crib, "list")
    assert "1 tool does not load" in done.err
    assert "hello.yml:1:1: error[file-place]" in done.err


def test_a_vega_file_is_checked_by_its_path_and_its_conditions_are_not_converted(crib: Crib) -> None:
    path = crib.write("greet.yaml", VEGA)
    assert cli(crib, "lint", str(path)).code == 0
    for target in ("native", "flexigpt"):
        done = cli(crib, "import", "convert", str(path), "--to", target)
        assert (done.code, done.out) == (4, "")
        assert "cannot be written" in done.err
    crib.write("greet.yaml", VEGA.replace("{{end}}", ""))
    found = cli(crib, "lint", str(path), "--json").document["diagnostics"]
    assert (found[0]["line"], found[0]["rule"]) == (8, "condition")


@pytest.mark.parametrize("dialect", ["flexigpt", "vega"])
def test_what_would_be_sent_is_shown_for_every_format(crib: Crib, dialect: str) -> None:
    url = "https://api.example.com"
    if dialect == "flexigpt":
        weather(crib, url + "/v1?q=${city}&days=${days}&key=${WEATHER_API_KEY}")
        record = json.loads((crib.home / "tools/weather/tool.json").read_text())
        record["argSchema"]["properties"]["days"] = {"type": "integer", "description": "Days"}
        crib.write(".toolcrib/tools/weather/tool.json", json.dumps(record))
    else:
        crib.write(
            "defs/weather.yaml",
            f"name: weather\ndescription: W\nparams:\n  - {{name: city, type: string, required: true}}\n"
            f"implementation:\n  type: http\n  url: {url}/v1?q={{{{city}}}}&key=${{WEATHER_API_KEY}}\n",
        )
        crib.write(".toolcrib/config.yml", "sources: [{dir: defs}]\n")
    done = run(crib, "weather", "city=a b", "--dry-run", "--json")
    assert done.code == 0, done.err
    would = done.document["would"]
    assert would["url"].startswith(f"{url}/v1?q=a%20b")
    assert "k3y" not in done.out
    assert "<secret WEATHER_API_KEY>" in done.out
    assert "days" not in would["url"], "an absent value is left out, as in the request"
