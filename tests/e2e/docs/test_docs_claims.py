"""The claims of docs/project.md, permissions.md and cli.md in prose, tested from outside."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.commands import accept_before, run, text
from tests.conftest import need
from tests.e2e.terminal import TAKE
from toolcrib import Project, Result
from toolcrib.sandbox import level

TOOLCRIB = Path(sys.executable).with_name("toolcrib")


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


def test_init_adds_to_a_glee_project_and_both_homes_are_refused(tmp_path: Path) -> None:
    (tmp_path / ".glee" / "tools").mkdir(parents=True)
    assert toolcrib(tmp_path, "init").returncode == 0
    assert (tmp_path / ".glee" / "config.yml").exists()
    assert not (tmp_path / ".toolcrib").exists()
    (tmp_path / ".toolcrib").mkdir()
    assert toolcrib(tmp_path, "list").returncode == 7


def test_init_never_touches_a_file_that_is_there(root: Path) -> None:
    settings(root, "limits: {timeout_ms: 7}\n")
    assert toolcrib(root, "init").returncode == 0
    assert (root / ".toolcrib" / "config.yml").read_text() == "limits: {timeout_ms: 7}\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("limit: {timeout_ms: 1}\n", "did you mean `limits`?"),
        ("retry: {max_attempt: 3}\n", "did you mean `max_attempts`?"),
        ("retry:\n  jitter: 2\n", ".toolcrib/config.yml:2:11: error[wrong-value]: `retry.jitter` must be"),
        ("sandbox: {minimum: some}\n", "must be one of: full, landlock, none"),
        ("- a list\n", "must be a mapping"),
    ],
)
def test_a_bad_setting_is_told_with_its_place(root: Path, text: str, told: str) -> None:
    settings(root, text)
    done = toolcrib(root, "list")
    assert done.returncode == 4
    assert told in done.stderr
    assert json.loads(toolcrib(root, "list", "--json").stdout)["error"]["code"] == "invalid_config"


def test_the_projects_limit_binds_where_it_is_the_smallest(root: Path, put: Callable[..., None]) -> None:
    settings(root, "limits: {timeout_ms: 400}\n")
    put("nap", "command", shell("sleep 9"), "limits: {timeout_ms: 5000}")
    error = call(root, "nap").error
    assert error is not None
    assert error.code == "timed_out"
    assert error.details["limit"] == "the project's limit"
    assert error.details["limit_ms"] == 400
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


def test_a_bad_manifest_hides_no_other_and_says_where_when_called(
    root: Path, put: Callable[..., None]
) -> None:
    put("good", "command", shell("echo good"))
    put("bad", "command", "{entrypoint: sh, argz: []}")
    project = Project.open(root, accept="all")
    assert [tool.name for tool in project.tools()] == ["good"]
    assert [finding.rule for finding in project.diagnostics] == ["unknown-key"]
    error = call(root, "bad").error
    assert error is not None
    assert error.code == "invalid_manifest"
    assert "tool.yml:5:" in error.message


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


@confined
@pytest.mark.parametrize("path", ["/", "/proc", "/dev/shm", "/sys"])
def test_these_cannot_be_granted(root: Path, put: Callable[..., None], path: str) -> None:
    put("all", "command", shell("true"), f'permissions: {{fs: {{read: ["{path}"]}}}}')
    assert code(call(root, "all", approved_by="ada")) == "permission_denied"


def test_a_wide_grant_needs_approval_by_itself(root: Path, put: Callable[..., None]) -> None:
    for name, path in (("all", "/"), ("above", "..")):
        put(name, "command", shell("true"), f'permissions: {{fs: {{read: ["{path}"]}}}}')
        assert code(call(root, name)) == "approval_required"


def test_a_link_out_of_the_project_is_no_grant(root: Path, put: Callable[..., None]) -> None:
    (root / "out").symlink_to("/usr")
    put("link", "command", shell("true"), "permissions: {fs: {read: [out]}}")
    assert code(call(root, "link")) == "permission_denied"


@confined
def test_these_are_never_writable(root: Path, put: Callable[..., None]) -> None:
    (root / ".git" / "hooks").mkdir(parents=True)
    (root / ".git" / "config").write_text("")
    (root / ".toolcrib" / "state.db").write_text("state")
    script = (
        "for path in .git/config .git/hooks/x .toolcrib/tools/x .toolcrib/audit/x; do"
        " (echo x >> $path) 2> /dev/null && echo wrote $path; done; cat .toolcrib/state.db 2> /dev/null;"
        " echo x > .git/free && echo wrote .git/free"
    )
    put("try", "command", shell(script + "; true"), 'permissions: {fs: {write: ["."]}}')
    put("named", "command", shell(script), 'permissions: {fs: {write: [".", ".git"]}}')
    (root / ".toolcrib" / "audit").mkdir()
    assert call(root, "try").unwrap() == ""
    assert call(root, "named").unwrap() == "wrote .git/free\n"


def test_a_file_tool_stays_beneath_its_grants(root: Path, put: Callable[..., None]) -> None:
    (root / "notes").mkdir()
    (root / "notes" / "a.txt").write_text("a")
    (root / "outside.txt").write_text("outside")
    (root / "notes" / "link.txt").symlink_to(root / "outside.txt")
    grants = "permissions: {fs: {read: [notes]}}"
    for name, path in (("good", "notes/a.txt"), ("up", "notes/../outside.txt"), ("link", "notes/link.txt")):
        put(name, "file", json.dumps({"action": "read", "path": path}), grants)
    put("none", "file", json.dumps({"action": "read", "path": "notes/a.txt"}))
    assert call(root, "good").unwrap() == "a"
    assert [code(call(root, name)) for name in ("up", "link", "none")] == ["permission_denied"] * 3


def test_without_a_record_nothing_runs(root: Path, put: Callable[..., None]) -> None:
    (root / "out").mkdir()
    put("write", "file", json.dumps({"action": "write", "path": "out/x", "content": "x"}),
        "permissions: {fs: {write: [out]}}")  # fmt: skip
    (root / ".toolcrib" / "audit").write_text("a file in the place of the folder")
    assert code(call(root, "write")) == "audit_unavailable"
    assert list((root / "out").iterdir()) == []


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


@confined
def test_an_approval_is_recorded_before_its_call(root: Path, put: Callable[..., None]) -> None:
    put("ask", "command", shell("true"), "approval: {required: true, reason: For a test}")
    assert code(call(root, "ask")) == "approval_required"
    assert code(call(root, "ask", approved_by="ada")) == "ok"
    assert code(call(root, "ask")) == "approval_required"
    lines = (root / ".toolcrib/audit/tools.log").read_text().splitlines()
    assert [line.split()[1] for line in lines] == [
        "TOOL_REFUSED",
        "TOOL_APPROVED",
        "TOOL_STARTED",
        "TOOL_EXECUTED",
        "TOOL_REFUSED",
    ]
    assert "approver=ada" in lines[1]


# --- docs/cli.md

ECHO = (
    "name: echo\ndescription: Give back the arguments\nkind: command\nversion: 1\n"
    "inputs: {schema: {type: object, properties: {a: {}, b: {}}}}\n"
    'exec: {command: {entrypoint: cat, stdin: {a: "${a}", b: "${b}"}}}\n'
)


@pytest.fixture
def echo(root: Path) -> Path:
    (root / ".toolcrib" / "tools" / "echo").mkdir()
    (root / ".toolcrib" / "tools" / "echo" / "tool.yml").write_text(ECHO)
    (root / "one.json").write_text('{"a": 1, "b": 1}')
    (root / "two.json").write_text('{"a": 2}')
    return root


@confined
@pytest.mark.parametrize(
    ("words", "given"),
    [
        (["a=1", "b:=1"], {"a": "1", "b": 1}),
        (["@one.json", "@two.json"], {"a": 2, "b": 1}),
        (["@one.json", "a=mine"], {"a": "mine", "b": 1}),
        (["a=x=y", 'b:=[true, {"c": null}]'], {"a": "x=y", "b": [True, {"c": None}]}),
    ],
)
def test_arguments_are_read_as_told(echo: Path, words: list[str], given: dict[str, Any]) -> None:
    done = toolcrib(echo, "run", "echo", *words, "--json")
    assert json.loads(done.stdout)["value"] == given


@pytest.mark.parametrize("words", [["a=1", "a=2"], ["a"], ["a:=one"], ["@nowhere.json"]])
def test_arguments_put_wrongly_are_wrong_usage(echo: Path, words: list[str]) -> None:
    assert toolcrib(echo, "run", "echo", *words).returncode == 2


def test_a_key_twice_in_json_is_refused(echo: Path) -> None:
    (echo / "twice.json").write_text('{"a": 1, "a": 2}')
    done = toolcrib(echo, "run", "echo", "@twice.json")
    assert done.returncode == 4
    assert "given twice" in done.stderr


@pytest.mark.parametrize(
    ("words", "exit_code"),
    [
        (["show", "nothing"], 3),
        (["show", "other/echo"], 3),
        (["run", "echo@9"], 3),
        (["list", "--root", "nowhere"], 3),
    ],
)
def test_json_holds_for_errors_too(echo: Path, words: list[str], exit_code: int) -> None:
    done = toolcrib(echo, *words, "--json")
    assert done.returncode == exit_code
    assert set(json.loads(done.stdout)) >= {"error"}


@confined
def test_a_call_that_takes_long_says_so_and_ends_with_ctrl_c(root: Path, put: Callable[..., None]) -> None:
    put("nap", "command", shell("sleep 30"))
    command = [str(TOOLCRIB), "run", "nap", "--root", str(root)]
    accept_before(["run"], root, os.environ)
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "nap is running" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert "stopped" in process.stderr.read()


def at_a_terminal(root: Path, *words: str, answer: str = "", **environment: str) -> tuple[int, str]:
    """Run with a terminal for all three streams; the exit code and what came. `answer` is what is typed."""
    master, slave = os.openpty()
    command = [sys.executable, "-c", TAKE, str(TOOLCRIB), *words]
    bare = {name: text for name, text in os.environ.items() if name not in ("NO_COLOR", "TOOLCRIB_ROOT")}
    accept_before(words, root, bare)
    with subprocess.Popen(
        command,
        cwd=root,
        env={**bare, "TERM": "xterm", **environment},
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    ) as process:
        os.close(slave)
        came = b""
        while True:
            try:
                came += os.read(master, 65536)
            except OSError:  # how a terminal says that nobody writes any more
                break
            if answer and came.endswith(b"[y/N] "):
                os.write(master, f"{answer}\n".encode())
                answer = ""
        os.close(master)
        return process.wait(10), came.decode()


@confined
def test_a_person_at_the_terminal_is_asked(root: Path, put: Callable[..., None]) -> None:
    (root / "notes").mkdir()
    put("tidy", "command", shell("echo tidied"), "permissions: {fs: {write: [notes]}}",
        "approval: {required: true, reason: Removes files}")  # fmt: skip
    exit_code, came = at_a_terminal(root, "run", "tidy", answer="n")
    assert exit_code == 5
    for part in ("tidy needs your approval: Removes files", "arguments: {}", "may touch: write notes"):
        assert part in came
    exit_code, came = at_a_terminal(root, "run", "tidy", answer="y")
    assert exit_code == 0
    assert "tidied" in came
    exit_code, came = at_a_terminal(root, "run", "tidy", "--json")
    assert exit_code == 5
    assert "[y/N]" not in came


@confined
def test_colour_is_for_terminals_and_output_does_not_steer_them(root: Path, put: Callable[..., None]) -> None:
    put("steer", "command", shell("printf 'a\\033[2Jb'"))
    assert "\x1b[2J" not in at_a_terminal(root, "run", "steer")[1]
    assert "\x1b[" not in toolcrib(root, "run", "steerr").stderr
    assert "\x1b[" in at_a_terminal(root, "run", "steerr")[1]
    assert "\x1b[" not in at_a_terminal(root, "run", "steerr", NO_COLOR="1")[1]
