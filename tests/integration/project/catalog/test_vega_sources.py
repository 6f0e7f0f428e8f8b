"""Vega's definitions run: as sources of a project, and in a toolset that stands alone."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.crib import Crib, failed
from tests.integration.egress.servers import serving
from toolcrib import Project, Result, Toolset
from toolcrib.errors import ConflictError, ManifestError
from toolcrib.project import find, load_config
from toolcrib.project.authoring.lint import lint_sources

pytestmark = pytest.mark.usefixtures("kernel")

SAY = """\
name: say
description: Say it
params:
  - {name: text, type: string, required: true, description: What}
  - {name: loud, type: boolean, description: Twice}
implementation:
  type: exec
  command: "printf '%s|' '{{text}}' {{if loud}}\\"{{text}}!\\"{{else}}quiet{{end}} \\"$KEEP\\""
  timeout: 60s
  env:
    KEEP: "kept {{text}}"
"""
WRITE = """\
name: keep
description: Keep it
params:
  - {name: path, type: string, required: true, description: Where}
  - {name: content, type: string, required: true, description: What}
implementation:
  type: file_write
  path: "{{path}}"
  content: "{{content}}"
  mode: 0640
  mkdir: true
"""
READ = """\
name: look
description: Look at it
params:
  - {name: path, type: string, required: true, description: Where}
implementation:
  type: file_read
  path: "{{path}}"
"""
SLACK = """\
name: send_slack
description: Send a message
params:
  - {name: channel, type: string, required: true, description: Where}
  - {name: message, type: string, required: true, description: What}
  - {name: thread, type: string, description: Which thread}
implementation:
  type: http
  method: POST
  url: http://127.0.0.1:PORT/api/chat.postMessage
  headers:
    Authorization: Bearer ${SLACK_BOT_TOKEN}
    Content-Type: application/json
  body:
    channel: "{{channel}}"
    text: "{{message}}"
    {{if thread}}
    thread_ts: "{{thread}}"
    {{end}}
"""
BUILTIN = """\
name: double
description: Twice
params:
  - {name: number, type: integer, required: true, description: Which}
implementation:
  type: builtin
  function: myCustomFunction
"""
CONFIG = """\
sources:
  - dir: tools/definitions
    permissions: {fs: {read: [.], write: [out]}}
"""


def doubled(number: int) -> int:
    return number * 2


@pytest.fixture
def project(crib: Crib) -> Crib:
    for name, text in {"say": SAY, "keep": WRITE, "look": READ, "double": BUILTIN}.items():
        crib.write(f"tools/definitions/{name}.yaml", text)
    crib.write(".toolcrib/config.yml", CONFIG)
    crib.write("out/.gitkeep", "")
    return crib


def run(crib: Crib, name: str, **arguments: Any) -> Result:
    async def once() -> Result:
        async with Project.open(crib.root, accept="all") as opened:
            opened.toolset.register("myCustomFunction", doubled)
            return await opened.call(name, arguments)

    return asyncio.run(once())


@pytest.mark.parametrize(
    "text", ["plain", "a b", "$(id)", "`id`", "'; id; '", '"; id; "', "\nid\n", "*", "\\", "é"]
)
def test_a_value_in_a_shell_line_is_text(project: Crib, text: str) -> None:
    assert run(project, "say", text=text).unwrap() == f"{text}|quiet|kept {text}|"
    assert run(project, "say", text=text, loud=True).unwrap() == f"{text}|{text}!|kept {text}|"


def test_a_value_that_would_be_an_option_or_has_nul_is_refused(project: Crib) -> None:
    assert "begins with `-`" in failed(run(project, "say", text="-n"), "invalid_input")
    assert "NUL" in failed(run(project, "say", text="a\0b"), "invalid_input")


def test_files_are_written_and_read_in_what_the_source_was_granted(project: Crib) -> None:
    assert run(project, "keep", path="out/a/b.txt", content="hello").ok
    assert (project.root / "out/a/b.txt").stat().st_mode & 0o777 == 0o640
    assert run(project, "look", path="out/a/b.txt").unwrap() == "hello"
    for path in ("/etc/passwd", "../x", "out/../../x", "tools/definitions/say.yaml"):
        assert not run(project, "keep", path=path, content="x").ok, path
    assert not run(project, "look", path="/etc/passwd").ok
    assert (project.root / "tools/definitions/say.yaml").read_text() == SAY


def test_a_builtin_is_a_registered_function(project: Crib) -> None:
    assert run(project, "double", number=21).unwrap() == 42
    project.write(
        "tools/definitions/gone.yaml", BUILTIN.replace("double", "gone").replace("myCustom", "other")
    )
    assert "'otherFunction' is not registered" in failed(run(project, "gone", number=1), "tool_unavailable")
    project.write(
        "tools/definitions/via.yaml", BUILTIN.replace("double", "via").replace("myCustomFunction", "double")
    )
    assert "no function" in failed(run(project, "via", number=1), "tool_unavailable")


def test_a_builtin_does_not_go_round_the_approval_of_its_function(project: Crib) -> None:
    async def once() -> Result:
        async with Project.open(project.root, accept="all") as opened:
            opened.toolset.register("myCustomFunction", doubled, approval="it is dear")
            assert not (await opened.call("double", {"number": 1})).ok
            waiting = asyncio.ensure_future(opened.call("double", {"number": 21}, wait="block"))
            service = opened.approval_service
            while not waiting.done():
                for asked in service.approvals.list("pending"):
                    service.approve(asked.id, "ann")
                await asyncio.sleep(0.01)
            return await waiting

    assert asyncio.run(once()).unwrap() == 42


def test_the_request_of_an_http_tool(project: Crib, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLACK_BOT_TOKEN", "xoxb-secret")
    got: list[tuple[str, Any]] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        got.append((request.headers["Authorization"], json.loads(await request.read())))
        return web.json_response({"ok": True, "echo": request.headers["Authorization"]})

    async def once(**arguments: Any) -> Result:
        async with serving(handler) as port:
            project.write("tools/definitions/slack.yaml", SLACK.replace("PORT", str(port)))
            async with Project.open(project.root, accept="all") as opened:
                return await opened.call("send_slack", arguments)

    hostile = '", "channel": "#other'
    result = asyncio.run(once(channel="#a", message=hostile))
    assert result.unwrap()["ok"] is True
    assert "xoxb-secret" not in str(result.as_dict())
    asyncio.run(once(channel="#a", message="b", thread="1"))
    assert got == [
        ("Bearer xoxb-secret", {"channel": "#a", "text": hostile}),
        ("Bearer xoxb-secret", {"channel": "#a", "text": "b", "thread_ts": "1"}),
    ]


NESTED = """\
name: find
description: Find it
params:
  - {name: words, type: string, required: true, description: What}
  - {name: deep, type: boolean, description: Further}
  - {name: kind, type: string, description: Of which kind}
implementation:
  type: http
  method: GET
  url: http://127.0.0.1:PORT/find
  query:
    q: "{{words}}"
    {{if deep}}
    depth: 3
    {{if kind}}
    kind: "deep {{kind}}"
    tags: [a, "{{kind}}"]
    {{else}}
    kind: true
    {{end}}
    {{else if kind}}
    kind: "{{kind}}"
    {{end}}
  headers:
    {{if deep}}
    {{if kind}}
    X-Kind: "deep {{kind}}"
    X-Empty:
    {{end}}
    X-Deep: 1
    {{end}}
"""
NESTED_ENV = """\
name: env
description: Show it
params:
  - {name: deep, type: boolean, description: Further}
  - {name: kind, type: string, description: Of which kind}
implementation:
  type: exec
  command: env
  env:
    {{if deep}}
    DEPTH: 3
    {{if kind}}
    KIND: "deep {{kind}}"
    {{else}}
    KIND: plain
    {{end}}
    {{end}}
"""


@pytest.mark.parametrize(
    ("arguments", "query", "headers", "variables"),
    [
        ({}, "q=x%20y", {}, {}),
        ({"kind": "k&z"}, "q=x%20y&kind=k%26z", {}, {}),
        ({"deep": True}, "q=x%20y&depth=3&kind=true", {"X-Deep": "1"}, {"DEPTH": "3", "KIND": "plain"}),
        (
            {"deep": True, "kind": "k&z"},
            "q=x%20y&depth=3&kind=deep%20k%26z&tags=a&tags=k%26z",
            {"X-Deep": "1", "X-Kind": "deep k&z"},
            {"DEPTH": "3", "KIND": "deep k&z"},
        ),
    ],
)
def test_conditions_inside_conditions_decide_on_entries(
    project: Crib, arguments: dict[str, Any], query: str, headers: dict[str, str], variables: dict[str, str]
) -> None:
    got: list[tuple[str, dict[str, str]]] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        sent = {name: text for name, text in request.headers.items() if name.startswith("X-")}
        got.append((request.rel_url.raw_query_string, sent))
        return web.json_response({})

    async def once() -> tuple[Result, Result]:
        async with serving(handler) as port:
            project.write("tools/definitions/find.yaml", NESTED.replace("PORT", str(port)))
            project.write("tools/definitions/env.yaml", NESTED_ENV)
            async with Project.open(project.root, accept="all") as opened:
                shown = await opened.call("env", arguments)
                return await opened.call("find", {"words": "x y", **arguments}), shown

    found, shown = asyncio.run(once())
    assert found.ok, found.error
    assert got == [(query, headers)]
    lines = dict(line.split("=", 1) for line in shown.unwrap().splitlines())
    assert {name: lines[name] for name in ("DEPTH", "KIND") if name in lines} == variables


def test_one_bad_file_hides_no_other_and_lint_tells_it(project: Crib) -> None:
    project.write(
        "tools/definitions/bad.yaml",
        SAY.replace("name: say", "name: bad").replace("'{{text}}'", "`{{text}}`"),
    )
    project.write("tools/definitions/worse.yml", "name: [")
    project.write("tools/definitions/twice.yaml", SAY)
    assert run(project, "say", text="x").ok
    assert "backticks" in failed(run(project, "bad", text="x"), "invalid_manifest")
    place = find(project.root)
    found = [f for f in lint_sources(load_config(place.config), place) if f.is_error]
    assert [(Path(f.path).name, f.rule) for f in found] == [
        ("bad.yaml", "shell"), ("twice.yaml", "name"), ("worse.yml", "yaml-syntax"),
    ]  # fmt: skip


def test_a_source_outside_of_the_project_waits_for_trust(project: Crib, tmp_path_factory: Any) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "evil.yaml").write_text(SAY.replace("name: say", "name: evil"))
    project.write(".toolcrib/config.yml", f"sources:\n  - dir: {outside}\n  - dir: tools/definitions\n")
    with_outside = Project.open(project.root)
    assert [w.name for w in with_outside.waiting] == ["sources"]
    assert sorted(tool.name for tool in with_outside.tools()) == ["double", "keep", "look", "say"]
    (project.root / "tools/link").symlink_to(outside)
    project.write(".toolcrib/config.yml", "sources:\n  - dir: tools/link\n")
    linked = Project.open(project.root)
    assert linked.tools() == []
    assert "symbolic link" in linked.diagnostics[0].message


def test_a_toolset_alone_loads_a_directory(project: Crib, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN_X", "very-secret-value")
    project.write(
        "tools/definitions/leak.yaml",
        "name: leak\ndescription: Leak\nparams: []\nimplementation:\n"
        "  type: exec\n  command: 'echo ${TOKEN_X}; exit 3'\n",
    )
    tools = Toolset()
    tools.register("myCustomFunction", doubled)
    names = tools.load_directory(project.root / "tools/definitions", root=project.root, write=["out"])
    assert names == ["double", "keep", "leak", "look", "say"]
    assert tools.call_sync("say", {"text": "$(id)"}).unwrap() == "$(id)|quiet|kept $(id)|"
    assert tools.call_sync("double", {"number": 4}).unwrap() == 8
    assert tools.call_sync("keep", {"path": "out/x", "content": "y"}).ok
    assert "very-secret-value" not in str(tools.call_sync("leak", {}).as_dict())
    with pytest.raises(ConflictError):
        tools.load_directory(project.root / "tools/definitions", root=project.root)
    project.write("tools/definitions/bad.yaml", "name: bad\n")
    with pytest.raises(ManifestError, match=r"bad\.yaml"):
        Toolset().load_directory(project.root / "tools/definitions", root=project.root)


def test_a_toolset_alone_sends_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLACK_BOT_TOKEN", "xoxb-secret")

    async def handler(request: web.Request) -> web.StreamResponse:
        return web.json_response(
            {"auth": request.headers["Authorization"], **json.loads(await request.read())}
        )

    async def once() -> list[Result]:
        async with serving(handler) as port:
            (tmp_path / "slack.yaml").write_text(SLACK.replace("PORT", str(port)))
            tools = Toolset()
            tools.load_directory(tmp_path)
            return [await tools.call("send_slack", {"channel": "#a", "message": text}) for text in ("b", "c")]

    first, second = asyncio.run(once())
    assert first.unwrap() == {"auth": "Bearer ***SLACK_BOT_TOKEN***", "channel": "#a", "text": "b"}
    assert second.unwrap()["text"] == "c"
