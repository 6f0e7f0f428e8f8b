"""Every definition of a tool that the documents of five systems print: it loads as printed, and runs.

The texts under `tests/data/printed` and `tests/data/glee` are the printed ones, byte for byte. A part of a
definition gets round it what the document leaves out. What is exchanged for a call is the address of the
service, for a server on this machine, and in Glee's manifests `network: true`, which means public addresses.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.conftest import need
from tests.crib import Crib
from tests.integration.egress.servers import serving
from toolcrib import Project
from toolcrib.manifest import check_tool, read_dialect
from toolcrib.manifest.team import read_team

pytestmark = pytest.mark.usefixtures("kernel")
DATA = Path(__file__).parents[3] / "data"
SECRETS = {
    name: f"value-of-{name.lower()}"
    for name in ("SLACK_BOT_TOKEN", "API_KEY", "WEATHER_API_KEY", "BRAVE_API_KEY")
}
STATS = """\
from pathlib import Path

def run(path):
    files = [one for one in Path(path).rglob("*.txt") if one.is_file()]
    return {"files": len(files), "loc": sum(len(one.read_text().splitlines()) for one in files)}
"""
TODOS = '#!/bin/sh\necho "Scan complete."\necho "Matches found: $(grep -rc TODO "$1/notes.txt")"\n'
NEWS = {"web": {"results": [{"title": "A", "url": "https://a", "description": "x", "age": 1}]}}
SUNNY = {"current": {"condition": {"text": "Sunny"}}}


@dataclass(frozen=True)
class Case:
    """One definition, a call of it, and what must come of that."""

    text: str
    """As it is printed; parts of it with what belongs round them."""
    arguments: Mapping[str, Any]
    path: str = "tools/definitions/t.yaml"
    name: str = "t"
    answer: Any = field(default_factory=lambda: {"ok": True})
    """What the service answers."""
    request: Mapping[str, Any] | None = None
    """What the service must have got, as far as it is named here: method, path, headers, body."""
    value: Any = field(default_factory=lambda: {"ok": True})
    file: tuple[str, str] | None = None
    """A file that the call must have written, and what is in it."""


def printed(name: str) -> str:
    return (DATA / "printed" / name).read_text()


def vega(part: str, *, before: str = "", depth: int = 0, **params: str) -> str:
    """A definition round a printed part of one; `params` are the parameters' types."""
    head = "name: t\ndescription: A tool\nparams:\n"
    head += "".join(f"  - {{name: {name}, type: {kind}, description: It}}\n" for name, kind in params.items())
    return head + before + textwrap.indent(printed(f"vega/{part}"), " " * depth)


def http(more: str = "") -> str:
    return f"implementation:\n  type: http\n  method: POST\n  url: https://api.example.com/x\n{more}"


def flexigpt(impl: str, kind: str = "http") -> str:
    """The printed record with the printed implementation and two schemas in the places of `{ ... }`."""
    arguments = {"type": "object", "properties": {"city": {"type": "string", "description": "City"}}}
    text = printed("flexigpt/tool.jsonc").replace('"type"         : "http"', f'"type"         : "{kind}"')
    for part in (json.dumps(arguments), '{"type": "string"}', printed(impl).strip()):
        assert "{ ... }" in text
        text = text.replace("{ ... }", part, 1)
    return text


def glee(name: str) -> str:
    return (DATA / "glee" / name / "tool.yml").read_text()


def in_glee(name: str, arguments: Mapping[str, Any], **more: Any) -> Case:
    return Case(glee(name), arguments, f".toolcrib/tools/{name}/tool.yml", name, **more)


CASES: dict[str, Case] = {
    "vega: send_slack": Case(
        printed("vega/send_slack.yaml"), {"channel": "general", "message": 'a", "b'}, name="send_slack",
        request={"method": "POST", "path": "/api/chat.postMessage",
                 "headers": {"authorization": "Bearer value-of-slack_bot_token"},
                 "body": {"channel": "general", "text": 'a", "b'}},
    ),
    "vega: structure, with the http implementation": Case(
        printed("vega/structure.yaml").partition("implementation:")[0] + printed("vega/http.yaml"),
        {"param1": "x"}, name="tool_name",
        request={"method": "POST", "path": "/endpoint?format=json",
                 "headers": {"authorization": "Bearer value-of-api_key"},
                 "body": {"field1": "x", "field2": 10}},
    ),
    "vega: exec": Case(
        vega("exec.yaml", url="string", filter="string"),
        {"url": "https://api.example.com/q?a=';>pwned;'", "filter": ".current.condition.text"},
        answer=SUNNY, request={"method": "GET", "path": "/q?a=';>pwned;'"}, value='"Sunny"\n',
    ),
    "vega: file_read": Case(vega("file_read.yaml", path="string"), {"path": "notes.txt"}, value="TODO\nb\n"),
    "vega: file_write": Case(
        vega("file_write.yaml", path="string", content="string"), {"path": "out/a/b.txt", "content": "new"},
        file=("out/a/b.txt", "new"),
    ),
    "vega: builtin": Case(vega("builtin.yaml", number="integer"), {"number": 21}, value=42),
    "vega: a variable in the url": Case(
        vega("variable.yaml", before="implementation:\n  type: http\n", depth=2, user_id="integer"),
        {"user_id": 7}, request={"method": "GET", "path": "/users/7"},
    ),
    "vega: a default": Case(
        vega("default.yaml", before=http("  body:\n"), depth=4, count="integer"), {},
        request={"path": "/x", "body": {"count": 10}},
    ),
    "vega: a condition that holds": Case(
        vega("conditional.yaml", before=http(), depth=2, query="string", advanced_mode="boolean"),
        {"query": "q", "advanced_mode": True},
        request={"path": "/x", "body": {"query": "q", "options": {"detailed": True}}},
    ),
    "vega: a condition that does not": Case(
        vega("conditional.yaml", before=http(), depth=2, query="string", advanced_mode="boolean"),
        {"query": "q"}, request={"path": "/x", "body": {"query": "q"}},
    ),
    "vega: an environment variable": Case(
        vega("environment.yaml", before=http(), depth=2, q="string"), {},
        request={"path": "/x", "headers": {"authorization": "Bearer value-of-api_key"}},
    ),
    "flexigpt: http": Case(
        flexigpt("flexigpt/http.jsonc"), {"city": "Bern"}, ".toolcrib/tools/weather/tool.json", "weather",
        answer=SUNNY, value="Sunny",
        request={"method": "GET", "path": "/v1/current.json?q=Bern&key=value-of-weather_api_key",
                 "headers": {"user-agent": "MyApp/v2"}},
    ),
    "flexigpt: go": Case(
        flexigpt("flexigpt/go.jsonc", "go"), {"city": "Bern"}, ".toolcrib/tools/weather/tool.json", "weather",
        value="sunny in Bern",
    ),
    "glee: web_search": in_glee(
        "web_search", {"query": "best python web frameworks 2025", "count": 5}, answer=NEWS,
        value=[{"title": "A", "url": "https://a", "description": "x"}],
        request={"method": "GET",
                 "path": "/res/v1/web/search?q=best%20python%20web%20frameworks%202025&count=5",
                 "headers": {"x-subscription-token": "value-of-brave_api_key"}},
    ),
    "glee: slack_notify": in_glee(
        "slack_notify", {"channel": "general", "message": "Deployment complete! v2.0.0 is now live."},
        request={"method": "POST", "path": "/api/chat.postMessage",
                 "headers": {"authorization": "Bearer value-of-slack_bot_token"},
                 "body": {"channel": "general", "text": "Deployment complete! v2.0.0 is now live."}},
    ),
    "glee: repo_scan": in_glee("repo_scan", {"path": "."}, value="Scan complete.\nMatches found: 1\n"),
    "glee: repo_stats": in_glee("repo_stats", {"path": "."}, value={"files": 1, "loc": 2}),
    "glee: weather, which an agent makes": in_glee(
        "weather", {"location": "NYC"}, answer={"celsius": 21}, value={"celsius": 21},
        request={"method": "GET", "path": "/v1/current?q=NYC",
                 "headers": {"authorization": "Bearer value-of-weather_api_key"}},
    ),
}  # fmt: skip
"""Manifests and other files. What is printed as code is in `tests/integration/test_printed_code.py`."""


def weather(city: str) -> str:
    """Weather of a city."""
    return f"sunny in {city}"


def doubled(number: int) -> int:
    """Twice."""
    return 2 * number


@pytest.fixture
def project(crib: Crib) -> Crib:
    """What the definitions need round them: their scripts and modules, and folders that may be written."""
    crib.secrets = SECRETS
    crib.write("notes.txt", "TODO\nb\n")
    crib.write("out/.gitkeep", "")
    crib.write("scripts/scan_todos.sh", TODOS, 0o755)
    crib.write("tools/repo_stats.py", STATS)
    return crib


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_a_printed_definition_loads_as_it_stands(case: Case, project: Crib) -> None:
    file = project.write(case.path, case.text)
    loaded = read_dialect(str(file))
    assert [finding.render() for finding in loaded.diagnostics if finding.is_error] == []
    (tool,) = loaded.tools
    assert tool.name == case.name
    assert [finding.render() for finding in check_tool(tool) if finding.is_error] == []
    assert tool.source is not None
    assert tool.source.raw == case.text.encode()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_a_printed_definition_runs(case: Case, project: Crib) -> None:
    got: list[dict[str, Any]] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        body = (await request.read()).decode()
        got.append({
            "method": request.method,
            "path": request.raw_path,
            "headers": {name.lower(): value for name, value in request.headers.items()},
            "body": json.loads(body) if body else None,
        })  # fmt: skip
        return web.json_response(case.answer)

    async with serving(answer) as port:
        prepare(project, case, f"127.0.0.1:{port}")
        async with project.open() as opened:
            result = await call(opened, case, f"http://127.0.0.1:{port}")
    assert (result["bytes"] if case.file else result) == (len(case.file[1]) if case.file else case.value)
    assert len(got) == (0 if case.request is None else 1)
    for key, wanted in (case.request or {}).items():
        found = got[0][key]
        assert ({name: found[name] for name in wanted} if key == "headers" else found) == wanted
    if case.file is not None:
        assert (project.root / case.file[0]).read_text() == case.file[1]
    assert not (project.root / "pwned").exists()


async def call(opened: Project, case: Case, url: str) -> Any:
    opened.functions.register("Weather", weather)
    opened.toolset.register("myCustomFunction", doubled)
    arguments = {
        name: value.replace("https://api.example.com", url) if isinstance(value, str) else value
        for name, value in case.arguments.items()
    }
    return (await opened.call(case.name, arguments, approved_by="ann")).unwrap()


def prepare(project: Crib, case: Case, host: str) -> None:
    """Put the definition where its system has it, its service on this machine."""
    if "curl" in case.text:
        need("curl and jq", shutil.which("curl") is not None and shutil.which("jq") is not None)
    if "venv: .venv" in case.text:
        words = [sys.executable, "-m", "venv", "--without-pip", str(project.root / ".venv")]
        subprocess.run(words, check=True)
    text = case.text
    for service in ("slack.com", "api.example.com", "api.weatherapi.com", "api.search.brave.com",
                    "api.weather.com"):  # fmt: skip
        text = text.replace(f"https://{service}", f"http://{host}")
    project.write(case.path, text.replace("network: true", f'network: {{allow: ["{host}"]}}'))
    sources = [{"dir": "tools/definitions", "permissions": {
        "network": {"allow": [host]}, "fs": {"read": ["."], "write": ["out"]}}}]  # fmt: skip
    settings = {"sources": sources} if case.path.startswith("tools/definitions") else {}
    project.write(".toolcrib/config.yml", json.dumps(settings))


def test_the_printed_examples_are_those_of_the_manifests() -> None:
    (tool,) = read_dialect(str(DATA / "glee/web_search/tool.yml")).tools
    assert tool.examples[0].params == CASES["glee: web_search"].arguments


def test_the_printed_lists_of_members_and_agents_load_as_they_stand() -> None:
    team = read_team("team.yaml", printed("vega/team.yaml").encode())
    assert [(one.name, one.skills) for one in team.members] == [("Gary", ("read_file", "write_file", "exec"))]
    agents = read_team("agents.yaml", printed("vega/agents.yaml").encode())
    assert [(one.name, one.skills) for one in agents.members] == [("reporter", ("send_email",))]
