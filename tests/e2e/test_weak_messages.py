"""The mistakes of a first day: each is named, and the message says what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.crib import Crib
from tests.e2e.cli.test_cli import cli, without_root_rights

pytestmark = pytest.mark.usefixtures("kernel")

TEXT = {"type": "string", "description": "A path"}
SCHEME = "Key of the shop of the town that nobody has shortened in all these many years of its use"
OPENAPI: dict[str, Any] = {
    "openapi": "3.0.0",
    "info": {"title": "Stock", "version": "1"},
    "servers": [{"url": "https://api.example.com"}],
    "components": {"securitySchemes": {SCHEME: {"type": "apiKey", "in": "header", "name": "Key"}}},
    "paths": {
        "/p": {
            "get": {"operationId": "p", "security": [{SCHEME: []}], "responses": {"200": {"description": ""}}}
        }
    },
}
MISTAKES: list[tuple[dict[str, Any], dict[str, Any], str, str]] = [
    # (exec, properties, what lint says, what a run says; "" where it says nothing)
    ({"command": {"entrypoint": "ls -la"}}, {}, "write `entrypoint: ls`, and the rest", "belong in `args`"),
    ({"command": {"entrypoint": "nosuch"}}, {}, "the program `nosuch` is not here", "nosuch: not found"),
    ({"command": {"entrypoint": "~/x.sh"}}, {}, "`~` is not expanded", "does not exist"),
    ({"command": {"entrypoint": "ls"}}, {"a": TEXT}, "the argument `a` is used nowhere", ""),
    ({"command": {"entrypoint": "echo", "args": ["{{a}}"]}}, {"a": TEXT}, "write `${a}`", ""),
    ({"command": {"entrypoint": "echo", "args": ["${a}"]}}, {"a": {"type": "str"}}, "`type: string`", ""),
    (
        {"python": {"module": "nosuch", "function": "run"}},
        {},
        "the module `nosuch` is not here",
        "Write .toolcrib/tools/x6/nosuch.py, or fix exec.python.module",
    ),
    (
        {"python": {"module": "away", "function": "run"}},
        {},
        "`away.py` is in the project's root",
        "away.py exists, but the tool may not read it: add it to permissions.fs.read",
    ),
    (
        {"python": {"module": "mod", "function": "run"}},
        {},
        "",
        "python3 -m venv .venv && .venv/bin/pip install nosuch_package, then write `venv: .venv`",
    ),
    (
        {"python": {"module": "there", "function": "runn"}},
        {},
        "",
        "there has no function 'runn': write it, or fix exec.python.function",
    ),
]  # fmt: skip


def test_manifests_that_were_written_wrongly(crib: Crib) -> None:
    crib.write("away.py", "def run(): return 1\n")
    for number, (block, properties, _, _) in enumerate(MISTAKES):
        (kind,) = block
        crib.tool(f"x{number}", kind, block[kind], properties)
        crib.write(f".toolcrib/tools/x{number}/there.py", "def run(): return 1\n")
        crib.write(f".toolcrib/tools/x{number}/mod.py", "import nosuch_package\ndef run(): return 1\n")
    linted = cli(crib, "lint", "--json").document["diagnostics"]
    for number, (block, _, expected, ran) in enumerate(MISTAKES):
        found = [f"{one['message']} {one['hint']}" for one in linted if f"/x{number}/" in one["path"]]
        assert any(expected in text for text in found) if expected else found == [], (block, found)
        if ran:
            error = crib.call(f"x{number}").error
            assert error is not None
            assert ran in f"{error.message} {error.hint}", block


def test_many_findings_of_one_cause_are_shown_together_on_standard_output(crib: Crib) -> None:
    for number in range(12):
        crib.tool(f"x{number:02}", "command", {"entrypoint": "nosuch"})
    done = cli(crib, "lint")
    assert done.out.count("the program `nosuch` is not here") == 10
    assert done.out.endswith("\n2 more of program in 2 files; --json lists all\n")
    assert done.err == f"0 errors, 12 warnings in {crib.home}\n"


def test_words_and_files_that_were_not_meant(crib: Crib, tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text(
        "from toolcrib import Toolset\ntools = Toolset()\n\n@tools.tool(timout_ms=5)\ndef f(): ...\n"
    )
    for words, code, hint in (
        (("create", "x"), 2, "init or new"),
        (("lsit",), 2, "Did you mean list?"),
        (("serve",), 2, "For an MCP client: toolcrib serve --stdio"),
        (("version",), 2, "--version"),
        (("test",), 0, "nothing to test"),
        (
            ("list", str(app)),
            4,
            "app.py does not load: line 4: TypeError: 'timout_ms' is not an option of a tool; did you",
        ),
    ):
        done = cli(crib, *words)
        assert (done.code, hint in done.err) == (code, True), done.err
        assert "Traceback" not in done.err
        assert "bug" not in done.err
    crib.write(".toolcrib/tools/x/tool.yml", "name: [")
    assert "1 tool does not load" in cli(crib, "list").err
    crib.tool("home", "file", {"action": "read", "path": "a"}, permissions={"fs": {"read": ["~/docs"]}})
    assert "`~` is not expanded" in cli(crib, "lint").out


def test_words_that_would_be_ignored_or_were_meant_otherwise(crib: Crib, tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text("from toolcrib import Toolset\ntools = Toolset()\n@tools.tool\ndef add(a: int): ...\n")
    mistakes: list[tuple[tuple[str, ...], str]] = [
        (("lint", str(app)), f"toolcrib list {app}"),
        (("run", str(app), "add", "a", "=", "2"), "Write a=value without blanks"),
        (("run", str(app), "add", '{"a": 2}'), "Write key=value"),
        (("serve", str(app), "--port", "80"), "--port has an effect only with --http"),
        (("serve", "--stdio", "--host", "::"), "--host has an effect only with --http"),
        (("serve", str(app), "--root", "."), "name two projects"),
        (("import", "shop.yaml"), "toolcrib import openapi shop.yaml"),
    ]
    done = cli(crib, "list", str(app.with_suffix("")))
    assert (done.code, f"toolcrib list {app}" in done.err) == (3, True)
    for words, hint in mistakes:
        done = cli(crib, *words)
        assert (done.code, hint in done.err) == (2, True), done.err
    inner = cli(crib, "init", str(crib.root / "inner"))
    assert f"{crib.root} is a project too" in inner.err


def test_what_was_imported_or_is_referred_to_is_shown_in_whole(crib: Crib, tmp_path: Path) -> None:
    (tmp_path / "api.json").write_text(json.dumps(OPENAPI))
    assert cli(crib, "import", "openapi", str(tmp_path / "api.json")).code == 0
    (secret,) = cli(crib, "show", "p", "--json").document["permissions"]["secrets"]
    assert set(secret.split("_")) <= {"STOCK", *SCHEME.upper().split()}
    place = {
        "type": "object",
        "properties": {"x": {"type": "integer"}, "y": {"type": "string"}},
        "required": ["x"],
    }
    schema = {"type": "object", "properties": {"at": {"$ref": "#/$defs/Place"}}, "$defs": {"Place": place}}
    crib.tool("go", "command", {"entrypoint": "echo", "args": ["${at.x}"]}, schema=schema)
    assert "  at  object (x: integer, y?: string), optional\n" in cli(crib, "show", "go").out


MANIFEST = "name: {}\ndescription: d\nkind: command\nversion: 1\nexec: {{command: {{entrypoint: echo}}}}\n"


@pytest.mark.parametrize(
    ("name", "path", "text", "hint"),
    [
        ("foo", "foo.yml", "name: [", "move it to {}/foo/tool.yml"),
        ("foo", "foo/Tool.yml", MANIFEST.format("foo"), "rename it to {}/foo/tool.yml"),
        ("foo", "foo/manifest.yaml", MANIFEST.format("foo"), "rename it to {}/foo/tool.yml"),
        ("mine", "mine/foo/tool.yml", MANIFEST.format("foo"), "move its folder to {}/foo"),
    ],
)
def test_a_manifest_in_the_wrong_place_is_reported(
    crib: Crib, name: str, path: str, text: str, hint: str
) -> None:
    crib.write(f".toolcrib/tools/{path}", text)
    for words in (("lint",), ("list",), ("run", name)):
        done = cli(crib, *words)
        assert "error[file-place]" in done.out + done.err
        assert hint.format(crib.home / "tools") in done.out + done.err


def test_other_files_among_the_tools_are_no_manifests(crib: Crib) -> None:
    crib.write(".toolcrib/tools/shared/data.yml", "- 1")
    crib.write(".toolcrib/tools/shared/data.json", "{")
    assert cli(crib, "lint").out == ""


def test_findings_about_servers_have_their_place(crib: Crib) -> None:
    for text, hint in (
        ('{"mcpServers": {\n  "a": {"comand": "x"}}}', ".mcp.json:2:3: error[wrong-value]: a: `comand`"),
        ('{"mcpServers": {\n  "a": {"command": "x"},}}', ".mcp.json:2:24: error[json-syntax]"),
        ('{"servers": {"a": {"comand": "x"}}}', ".mcp.json:1:14: error[wrong-value]: a: `comand`"),
        (
            '{"mcpServers": {\n  "a": {"command": "x", "timeout": 5}}}',
            ".mcp.json:2:3: warning[server]: a: `timeout`: of other hosts, without effect here",
        ),
    ):
        crib.write(".mcp.json", text)
        assert hint in cli(crib, "lint").out


def test_a_folder_that_cannot_be_used_is_no_bug_of_the_program(crib: Crib, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o000)
    for variable, code in (("TOOLCRIB_DATA", 1), ("TOOLCRIB_CACHE", 0)):
        for number in range(200 if code == 0 else 0):
            crib.write(f".toolcrib/tools/t{number}/tool.yml", MANIFEST.format(f"t{number}"))
        done = cli(crib, "list", env={variable: str(closed / "x")}, prefix=without_root_rights())
        assert (done.code, "Traceback" in done.err) == (code, False), done.err
        assert ("error[state_unavailable]" in done.err) == bool(code)


def test_a_file_elsewhere_that_cannot_be_used_is_not_called_state(crib: Crib, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    crib.shell("look")
    done = cli(crib, "test", "--record", str(closed / "answers"), prefix=without_root_rights())
    assert (done.code, "Traceback" in done.err) == (1, False), done.err
    assert f"error[unavailable]: {closed}/answers cannot be used: Permission denied" in done.err


def test_workflows_are_linted_and_settings_of_another_name_are_refused(crib: Crib) -> None:
    crib.write(".toolcrib/workflows/w.yml", "name: w\nstps: []\n")
    assert "workflows/w.yml:2:1: error[unknown-key]: unknown key `stps`" in cli(crib, "lint").out
    crib.write(".toolcrib/tool/x/tool.yml", "name: x\n")
    crib.write(".toolcrib/agent_sessions/x", "")
    assert "agent_sessions" not in cli(crib, "lint").out
    assert f"rename it to {crib.home}/tools" in cli(crib, "lint").out
    crib.write(".toolcrib/config.yaml", "policy: {default: deny}\n")
    for words in (("lint",), ("list",)):
        done = cli(crib, *words)
        assert (done.code, f"rename it to {crib.home}/config.yml" in done.out + done.err) == (4, True)
