"""The claims of docs/project.md, permissions.md and cli.md in prose, tested from outside."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.commands import run, text
from tests.conftest import need
from toolcrib import Project, Result
from toolcrib.sandbox import level


def manifest(name: str, kind: str, block: str, *more: str) -> str:
    """A manifest without inputs: its `exec` block and further lines."""
    head = [f"name: {name}", "description: For a test", f"kind: {kind}", "version: 1"]
    return "\n".join([*head, f"exec: {{{kind}: {block}}}", *more]) + "\n"


def shell(script: str) -> str:
    """An `exec.command` block for a line of shell."""
    return json.dumps({"entrypoint": "sh", "args": ["-c", script.replace("${", "$${")]})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / ".toolcrib" / "tools").mkdir(parents=True)
    return tmp_path


@pytest.fixture
def put(root: Path) -> Callable[..., None]:
    def write(name: str, kind: str, block: str, *more: str) -> None:
        folder = root / ".toolcrib" / "tools" / name
        folder.mkdir()
        (folder / "tool.yml").write_text(manifest(name, kind, block, "outputs: {format: text}", *more))

    return write


def call(root: Path, name: str, arguments: dict[str, Any] | None = None, **options: Any) -> Result:
    async def run() -> Result:
        async with Project.open(root, accept="all") as project:
            return await project.call(name, arguments, **options)

    return asyncio.run(run())


def code(result: Result) -> str:
    return "ok" if result.error is None else result.error.code


def toolcrib(root: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    bare = {name: text for name, text in os.environ.items() if name != "TOOLCRIB_ROOT"}
    return text(run(words, root, {**bare, **environment}))


def settings(root: Path, text: str) -> None:
    (root / ".toolcrib" / "config.yml").write_text(text)


confined = pytest.mark.usefixtures("_kernel")


@pytest.fixture
def _kernel() -> None:
    need("a kernel that confines tools", level()["level"] != "none")


class Server(BaseHTTPRequestHandler):
    """Fails with 503 and counts."""

    asked: list[str]

    def answer(self) -> None:
        self.asked.append(self.command)
        self.send_response(503)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_POST = answer  # noqa: N815 - the base class's names

    def log_message(self, format: str, *args: Any) -> None: ...  # noqa: A002 - the base class's name


@pytest.fixture
def server() -> Iterator[tuple[int, list[str]]]:
    asked: list[str] = []
    here = ThreadingHTTPServer(("127.0.0.1", 0), type("Counting", (Server,), {"asked": asked}))
    threading.Thread(target=here.serve_forever, daemon=True).start()
    yield here.server_port, asked
    here.shutdown()
    here.server_close()


# --- docs/project.md


def test_a_named_root_beats_the_variable_and_both_beat_the_search(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        folder = tmp_path / name / ".toolcrib" / "tools" / f"tool_of_{name}"
        folder.mkdir(parents=True)
        (folder / "tool.yml").write_text(manifest(folder.name, "command", shell("true")))

    def listed(*words: str, **environment: str) -> list[str]:
        done = toolcrib(tmp_path / "c", "list", "--json", *words, **environment)
        return [tool["name"] for tool in json.loads(done.stdout)["tools"]]

    assert listed() == ["tool_of_c"]
    assert listed(TOOLCRIB_ROOT=str(tmp_path / "b")) == ["tool_of_b"]
    assert listed("--root", str(tmp_path / "a"), TOOLCRIB_ROOT=str(tmp_path / "b")) == ["tool_of_a"]


def test_the_projects_limit_binds_where_it_is_the_smallest(root: Path, put: Callable[..., None]) -> None:
    settings(root, "limits: {timeout_ms: 400}\n")
    put("nap", "command", shell("sleep 9"), "limits: {timeout_ms: 5000}")
    error = call(root, "nap").error
    assert error is not None
    assert error.code == "timed_out"
    assert error.details["limit"] == "the project's limit"
    assert error.details["limitMs"] == 400
    error = call(root, "nap", timeout_ms=200).error
    assert error is not None
    assert error.details["limit"] == "the call's own limit"


def test_what_is_tried_again_by_the_projects_rule(
    root: Path, put: Callable[..., None], server: tuple[int, list[str]]
) -> None:
    port, asked = server
    allow = f'permissions: {{network: {{allow: ["127.0.0.1:{port}"]}}}}'
    settings(root, "retry: {max_attempts: 3}\n")
    for name, method, more in (
        ("read", "GET", ()),
        ("send", "POST", ()),
        ("send_again", "POST", ("annotations: {idempotent: true}",)),
        ("read_once", "GET", ("retry: {max_attempts: 1}",)),
    ):
        block = json.dumps({"method": method, "url": f"http://127.0.0.1:{port}/"})
        put(name, "http", block, allow, *more)
    attempts = {name: call(root, name).attempts for name in ("read", "send", "send_again", "read_once")}
    assert attempts == {"read": 3, "send": 1, "send_again": 3, "read_once": 1}
    assert asked == ["GET"] * 3 + ["POST"] * 4 + ["GET"]


@confined
def test_a_command_is_tried_once(root: Path, put: Callable[..., None]) -> None:
    put("fail", "command", shell("exit 3"))
    result = call(root, "fail")
    assert (code(result), result.attempts) == ("command_failed", 1)


def test_the_projects_hosts_bind_besides_the_tools_own(
    root: Path, put: Callable[..., None], server: tuple[int, list[str]]
) -> None:
    port, asked = server
    settings(root, "security: {allowed_hosts: [api.example.com]}\n")
    put(
        "read",
        "http",
        json.dumps({"url": f"http://127.0.0.1:{port}/"}),
        f'permissions: {{network: {{allow: ["127.0.0.1:{port}"]}}}}',
    )
    assert code(call(root, "read")) in ("host_not_allowed", "invalid_manifest")
    assert asked == []


# --- docs/permissions.md


@confined
def test_a_process_gets_these_variables_and_no_other(
    root: Path, put: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PASSED", "THE_SECRET", "NOT_DECLARED"):
        monkeypatch.setenv(name, f"value of {name}")
    block = json.dumps({"entrypoint": "env", "args": ["-0"], "env": {"SET": "here"}})
    permissions = (
        "permissions: {env: [PASSED, NOT_SET], secrets: {THE_SECRET: {}, OPTIONAL: {required: false}}}"
    )
    put("tell", "command", block, permissions)
    told = dict(line.split("=", 1) for line in call(root, "tell").unwrap().split("\0") if line)
    assert set(told) == {"PATH", "HOME", "LANG", "TMPDIR", "SET", "PASSED", "THE_SECRET"}
    assert told["PASSED"] == "value of PASSED"
    assert told["THE_SECRET"] == "***THE_SECRET***"
    assert "value of THE_SECRET" not in (root / ".toolcrib/audit/tools.log").read_text()


@confined
def test_what_is_missing_stops_the_call_before_anything_runs(root: Path, put: Callable[..., None]) -> None:
    (root / "out").mkdir()
    grants = "fs: {write: [out%s]}"
    block = json.dumps({"entrypoint": "touch", "args": ["ran"], "cwd": "out"})
    put("no_secret", "command", block, f"permissions: {{{grants % ''}, secrets: {{NOT_THERE: {{}}}}}}")
    put("no_grant", "command", block, f"permissions: {{{grants % ', nowhere'}}}")
    put("host", "command", block, f"permissions: {{{grants % ''}, network: host}}")
    put("fine", "command", block, f"permissions: {{{grants % ''}}}")
    assert code(call(root, "no_secret")) == "secret_missing"
    assert code(call(root, "no_grant")) == "tool_unavailable"
    assert code(call(root, "host")) == "approval_required"
    assert list((root / "out").iterdir()) == []
    assert code(call(root, "fine")) == "ok"
    assert [path.name for path in (root / "out").iterdir()] == ["ran"]


def test_secrets_are_read_at_the_call_and_may_stand_in_a_files_content(
    root: Path, put: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "out").mkdir()
    block = json.dumps({"action": "write", "path": "out/key", "content": "key=${THE_KEY}"})
    put("write", "file", block, "permissions: {fs: {write: [out]}, secrets: {THE_KEY: {}}}")

    async def run() -> None:
        async with Project.open(root, accept="all") as project:
            assert code(await project.call("write")) == "secret_missing"
            monkeypatch.setenv("THE_KEY", "4711-4712")
            assert code(await project.call("write")) == "ok"

    asyncio.run(run())
    assert (root / "out" / "key").read_text() == "key=4711-4712"
