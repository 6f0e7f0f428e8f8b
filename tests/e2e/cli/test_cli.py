"""The command line as processes of their own, with pipes and with a terminal."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.commands import PROGRAM, Forked, accept_before, decide_before, run
from tests.conftest import need
from tests.crib import SH, Crib, accept
from tests.e2e.terminal import Terminal, terminal
from tests.integration.sandbox.ground import eventually, processes_with
from toolcrib import __version__

ENVIRONMENT = {
    key: value
    for key, value in os.environ.items()
    if not key.startswith(("LC_", "PYTHON", "TOOLCRIB", "NO_COLOR", "COLUMNS"))
} | {"LANG": "C.UTF-8", "TERM": "xterm", "TOOLCRIB_CONFIG": os.environ["TOOLCRIB_CONFIG"]}
ASKS = {"approval": {"required": True, "reason": "it is dear"}}


class Done:
    """How a run ended."""

    def __init__(self, process: subprocess.CompletedProcess[bytes]) -> None:
        self.code = process.returncode
        self.out = process.stdout.decode(errors="replace")
        self.err = process.stderr.decode(errors="replace")

    @property
    def document(self) -> Any:
        """The one JSON document on standard output."""
        return json.loads(self.out)


def cli(
    crib: Crib | None,
    *words: str | bytes,
    stdin: bytes = b"",
    prefix: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    accepted: bool = True,
) -> Done:
    """Run a command: started anew where the start itself matters, else forked."""
    cwd, environment = crib.root if crib is not None else Path("/"), ENVIRONMENT | dict(env or {})
    if not prefix and not any(name.startswith(("PYTHON", "LC_")) for name in env or {}):
        return Done(run(words, cwd, environment, stdin, accepted=accepted))
    command = [*prefix, PROGRAM, *words]
    accept_before(words, cwd, environment)
    decide_before(words, cwd, environment)
    return Done(
        subprocess.run(command, cwd=cwd, env=environment, input=stdin, capture_output=True, check=False)
    )


def on_terminal(crib: Crib, *words: str, columns: int = 80, env: Mapping[str, str] | None = None) -> Any:
    return terminal([PROGRAM, *words], crib.root, ENVIRONMENT | dict(env or {}), columns)


@pytest.fixture
def files(crib: Crib) -> Crib:
    """A project whose tools need no sandbox: `show` reads a file, `dear` asks before it writes one."""
    crib.write("f", "content")
    crib.tool(
        "read",
        "file",
        {"action": "read", "path": "${p}"},
        {"p": {"type": "string", "default": "f"}, "n": {"type": "integer"}},
        permissions={"fs": {"read": ["f"]}},
    )
    crib.tool(
        "dear",
        "file",
        {"action": "write", "path": "mark", "content": "${c}"},
        {"c": {"type": "string", "default": "ran"}},
        permissions={"fs": {"write": ["."]}},
        **ASKS,
    )
    return crib


# --- results and exit codes


def test_help_and_version() -> None:
    done = cli(None, "--help")
    assert done.code == 0
    assert "The first hour:" in done.out
    assert cli(None, "--version").out == f"toolcrib {__version__}\n"
    for name in ("audit", "doctor", "import", "init", "lint", "list", "run", "secrets", "serve", "show"):
        assert name in done.out
        done_one = cli(None, name, "-h")
        assert done_one.code == 0
        assert "Usage:" in done_one.out
    assert "Next: toolcrib " in cli(None).out


def test_a_run_prints_the_value_alone(files: Crib) -> None:
    done = cli(files, "run", "read")
    assert (done.code, done.out, done.err) == (0, "content\n", "")
    done = cli(files, "run", "project/read@1", "p=f", "--json")
    assert done.document["value"] == "content"
    assert done.document["status"] == "ok"
    assert done.err == ""
    assert cli(files, "run", "read", "-", stdin=b'{"p": "f"}').out == "content\n"
    assert files.last().fields["caller"] == "cli"


@pytest.mark.parametrize(
    ("words", "code", "error", "told"),
    [
        (["run", "reed"], 3, "tool_not_found", "Did you mean read?"),
        (["run", "read@2"], 3, "tool_not_found", "there is version 1"),
        (["run", "other/read"], 3, "tool_not_found", "no bundle 'other'"),
        (["run", "read", "q=1"], 4, "invalid_input", "$.q is not known"),
        (["run", "read", "n=x"], 4, "invalid_input", "$.n"),
        (["run", "read", "p=/etc/shadow"], 5, "permission_denied", "path escapes sandbox"),
        (["run", "dear"], 5, "approval_required", "it is dear"),
        (["run", "broken"], 4, "invalid_manifest", "tools/broken/tool.yml:1:1: error[not-a-mapping]"),
        (["show", "broken"], 4, "invalid_manifest", "tools/broken/tool.yml:1:1: error[not-a-mapping]"),
        (["show", "reed"], 3, "tool_not_found", "Did you mean read?"),
        (["run", "a/b/c"], 2, "usage", "BUNDLE"),
        (["run", "read", "oops"], 2, "usage", "Write p=oops"),
        (["run", "read", "--aprove"], 2, "usage", "Did you mean --approve?"),
        (["run", "read", "@/no/such/file"], 2, "usage", "cannot read"),
        (["run", "read", "--nope"], 2, "usage", "--nope"),
        (["run", "read", "--timeout-ms", "0"], 2, "usage", "timeout-ms"),
        (["run"], 2, "usage", "TOOL"),
        (["list", "--json=1"], 2, "usage", "See toolcrib list --help"),
        (["lint", "--schema", "tool"], 2, "usage", "'manifest', 'agent'"),
        (["shwo"], 2, "usage", "Did you mean show?"),
        (["list", "--root", "/nowhere"], 3, "project_not_found", "toolcrib init"),
        (["list", "--root", "loop"], 3, "project_not_found", "toolcrib init"),
        (["list", "--root", "x" * 300], 2, "usage", "File name too long"),
        (["test", "--record", ""], 2, "usage", "Is a directory"),
        (["test", "--replay", "f"], 4, "invalid_input", "f is not a cassette"),
        (["init", "a:b", "--examples"], 2, "usage", "Name another folder"),
        (["serve"], 2, "usage", "--stdio"),
    ],
)
def test_every_error_has_its_code_at_both_faces(
    files: Crib, words: list[str], code: int, error: str, told: str
) -> None:
    files.write(".toolcrib/tools/broken/tool.yml", "- a\n")
    (files.root / "loop").symlink_to("loop")
    plain = cli(files, *words)
    assert plain.code == code
    assert plain.out == ""
    assert told in plain.err
    assert "Traceback" not in plain.err
    if words[0] == "serve":
        return
    as_json = cli(files, *words, "--json")
    assert as_json.code == code
    assert as_json.document["error"]["code"] == error
    assert set(as_json.document["error"]) == {"code", "message", "retryable", "hint", "violations", "details"}
    assert as_json.err == ""
    refusals = [entry for entry in files.audit() if entry.event == "TOOL_REFUSED"]
    assert len(refusals) == (2 if words[0] == "run" and code != 2 else 0)


def test_settings_that_are_wrong_are_told_with_their_place(files: Crib) -> None:
    files.write(".toolcrib/config.yml", "limits:\n  timeout: 5\n")
    for words in (["list"], ["run", "read"], ["show", "read"], ["serve", "--stdio"]):
        done = cli(files, *words)
        assert done.code == 4
        assert ".toolcrib/config.yml:2:3: error[unknown-key]: `limits.timeout` is not a setting" in done.err
        assert "    timeout: 5\n    ^\n" in done.err
        assert "timeout_ms" in done.err
    assert cli(files, "list", "--json").document["error"]["code"] == "invalid_config"
    linted = cli(files, "lint", "--json")
    assert linted.code == 4
    assert linted.document["errors"] == 1


def test_a_bad_manifest_does_not_hide_the_others(files: Crib) -> None:
    files.write(".toolcrib/tools/half/tool.yml", "name: half\ndescription: 'never clo")
    done = cli(files, "list")
    assert done.code == 0
    assert [line.split()[0] for line in done.out.splitlines()] == ["NAME", "dear", "read"]
    assert "tools/half/tool.yml:2:14: error[yaml-syntax]" in done.err
    listed = cli(files, "list", "--json").document
    assert [tool["name"] for tool in listed["tools"]] == ["dear", "read"]
    assert listed["diagnostics"][0]["rule"] == "yaml-syntax"
    assert cli(files, "lint").code == 4
    assert cli(files, "run", "read").code == 0


def without_root_rights() -> list[str]:
    """Return the beginning of a command line whose program obeys the modes of files."""
    if os.geteuid() != 0:
        return []
    need("setpriv", shutil.which("setpriv") is not None)
    return ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]


def test_a_manifest_that_cannot_be_read(files: Crib) -> None:
    file = files.write(".toolcrib/tools/closed/tool.yml", "name: closed", 0o000)
    prefix = without_root_rights()
    done = cli(files, "run", "closed", prefix=prefix)
    assert done.code == 4
    assert "error[unreadable]" in done.err
    assert "make it readable" in done.err
    assert cli(files, "run", "read", prefix=prefix).out == "content\n"
    file.chmod(0o644)


def test_json_is_one_document_for_everything_that_reads(files: Crib) -> None:
    assert cli(files, "init", "--json").document["root"] == str(files.root)
    assert {tool["name"] for tool in cli(files, "list", "--json").document["tools"]} == {"dear", "read"}
    assert cli(files, "show", "read", "--json").document["permissions"]["fs"]["read"] == ["f"]
    assert cli(files, "lint", "--json").document["errors"] == 0
    assert "mechanisms" in cli(files, "doctor", "--json").document
    for shape, key in (("mcp", "inputSchema"), ("anthropic", "input_schema")):
        assert all(key in tool for tool in cli(files, "list", "--for", shape).document)


def test_other_encodings_lose_nothing_and_break_nothing(files: Crib) -> None:
    files.write("f", "Grüße 💥")
    for env in ({"PYTHONIOENCODING": "ascii"}, {"PYTHONIOENCODING": "latin-1"}, {"LC_ALL": "C"}):
        done = cli(files, "run", "read", "--json", env=env)
        assert done.code == 0, done.err
        assert done.document["value"] == "Grüße 💥"
        assert cli(files, "run", "gröd", env=env).code == 3
    assert cli(files, "run", "read", b"p=\xff").code == 2


def test_a_reader_that_goes_away_is_no_crash(files: Crib) -> None:
    files.write("f", "x" * 90_000)
    for words in ("run read", "list", "list --json", "--help"):
        done = subprocess.run(
            ["/bin/sh", "-c", f"{PROGRAM} {words} | true"],
            cwd=files.root, env=ENVIRONMENT, capture_output=True, check=False,
        )  # fmt: skip
        assert b"Traceback" not in done.stderr
        assert b"Exception" not in done.stderr


def test_two_processes_at_once_share_one_log(files: Crib) -> None:
    running = [
        Forked([PROGRAM, "run", "read"], cwd=files.root, env=ENVIRONMENT, stdout=subprocess.PIPE)
        for _ in range(6)
    ]
    for process in running:
        out, _ = process.communicate()
        assert (process.returncode, out) == (0, b"content\n")
    assert [entry.seq for entry in files.audit_lines()] == list(range(1, 13))


HELP = """
import sys
sys.argv = ["toolcrib", "--help"]
try:
    from toolcrib.cli import main
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""


def test_help_loads_no_command_and_nothing_heavy() -> None:
    done = subprocess.run([sys.executable, "-c", HELP], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stderr.split()}
    assert not loaded & {"rich", "asyncio", "orjson", "jsonschema_rs", "ryaml", "aiohttp", "logging"}
    assert not any(name.endswith("_command") for name in done.stderr.split())


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_are_told_how_to_complete(files: Crib, shell: str) -> None:
    done = cli(files, env={"_TOOLCRIB_COMPLETE": f"{shell}_source"})
    if done.code != 0:  # click asks the shell itself for its version
        need(shell, shutil.which(shell) is not None)
    assert "toolcrib" in done.out
    asked = {"_TOOLCRIB_COMPLETE": "bash_complete", "COMP_WORDS": "toolcrib run r", "COMP_CWORD": "2"}
    done = cli(files, env=asked)
    assert done.out.strip() == "plain,read"


# --- tools in the sandbox


@pytest.mark.usefixtures("kernel")
def test_failures_of_tools_have_their_codes(crib: Crib) -> None:
    crib.shell()
    crib.shell("slow", config={"timeout_ms": 300})
    done = cli(crib, "run", "sh", "c=echo out; echo why >&2; exit 9")
    assert (done.code, done.out) == (1, "")
    assert "error[command_failed]: sh ended with exit code 9: why" in done.err
    done = cli(crib, "run", "slow", "c=sleep 9")
    assert done.code == 6
    assert "300 ms (the tool's limit)" in done.err
    done = cli(crib, "run", "sh", "c=sleep 9", "--timeout-ms", "200")
    assert "200 ms (the call's own limit)" in done.err
    done = cli(crib, "run", "sh", "c=echo out; echo aside >&2", "-v")
    assert (done.code, done.out) == (0, "out\n")
    assert "aside" in done.err
    assert "aside" not in cli(crib, "run", "sh", "c=echo out; echo aside >&2").err


@pytest.mark.usefixtures("kernel")
def test_a_long_call_says_so_on_a_terminal(crib: Crib) -> None:
    crib.shell()
    crib.trust_tools("sh")
    done = cli(crib, "run", "sh", "c=sleep 0.6; echo done")
    assert (done.out, done.err) == ("done\n", "")
    with on_terminal(crib, "run", "sh", "c=echo first; sleep 2; echo done") as screen:
        screen.read_until("sh runs for")
        assert screen.end() == 0
        assert "\x1b[Kdone\r\n" in screen.raw
        assert (screen.text.count("first\n"), screen.text.count("done\n")) == (1, 1)
    with on_terminal(crib, "run", "sh", "c=echo first; sleep 600") as screen:
        screen.read_until("first\n")  # A line is there before the command ends.
        screen.type("\x03")
        screen.end()
    with on_terminal(crib, "run", "sh", "c=echo first; sleep 0.6; echo done", env={"TERM": "dumb"}) as screen:
        assert screen.end() == 0
        assert " ".join(screen.raw.split()) == "sh is running … first done"
    plan = cli(crib, "run", "sh", "c=ls", "--dry-run").out.splitlines()
    assert plan[3:] == [
        "cwd: .",
        'permissions: {"network":false,"fs":{"read":[],"write":[]},"secrets":[]}',
        "policy: allow",
    ]


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGKILL])
def test_a_run_that_is_stopped_leaves_nothing(crib: Crib, how: signal.Signals) -> None:
    crib.shell()
    marker = f"8{os.getpid()}{int(how)}"
    script = f"trap '' TERM INT; (setsid sleep {marker} &) ; sleep {marker}"
    accept_before(["run"], crib.root, ENVIRONMENT)
    with subprocess.Popen(
        [PROGRAM, "run", "sh", f"c={script}"], cwd=crib.root, env=ENVIRONMENT, stderr=subprocess.PIPE
    ) as process:
        assert eventually(lambda: len(sleeping(marker)) == 2, 15)
        process.send_signal(how)
        assert process.wait() == (-9 if how == signal.SIGKILL else 130)
    assert eventually(lambda: not sleeping(marker))
    if how != signal.SIGKILL:
        assert (crib.last().event, crib.last().fields["code"]) == ("TOOL_EXECUTED", "cancelled")


def sleeping(marker: str) -> list[int]:
    """The processes that are `sleep MARKER`."""
    return [pid for pid, line in processes_with(marker).items() if line.startswith("sleep\0")]


@pytest.mark.usefixtures("kernel")
def test_a_server_that_is_killed_leaves_no_tool(crib: Crib) -> None:
    crib.shell()
    crib.trust_tools("sh")
    marker = f"7{os.getpid()}"
    with Forked(
        [PROGRAM, "serve", "--stdio"],
        cwd=crib.root,
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        begin = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "0"},
        }
        for message in (
            {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": begin},
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            {"jsonrpc": "2.0", "id": 2, "method": "tools/call",
             "params": {"name": "sh", "arguments": {"c": f"(setsid sleep {marker} &); sleep {marker}"}}},
        ):  # fmt: skip
            process.stdin.write(json.dumps(message).encode() + b"\n")
        process.stdin.flush()
        assert eventually(lambda: len(sleeping(marker)) == 2, 15)
        process.kill()
        process.wait()
    assert eventually(lambda: not sleeping(marker))


# --- a person at a terminal


def answered(files: Crib, keys: str, *words: str) -> tuple[int, Terminal]:
    with on_terminal(files, "run", "dear", *words) as screen:
        screen.read_until("Run it once? [y/N]")
        screen.type(keys)
        return screen.end(), screen


@pytest.mark.parametrize("keys", ["y\n", "YES\n"])
def test_a_person_who_agrees(files: Crib, keys: str) -> None:
    code, screen = answered(files, keys)
    assert code == 0
    assert "dear needs your approval: it is dear" in screen.text
    assert '"c": "ran"' in screen.text, "the default that will be used is shown too"
    assert "may touch: write ." in screen.text
    assert (files.root / "mark").read_text() == "ran"
    assert [entry.event for entry in files.audit()] == ["TOOL_APPROVED", "TOOL_EXECUTED"]
    assert files.audit()[0].fields["approver"]


@pytest.mark.parametrize("keys", ["n\n", "\n", "yess\n", "\x04"])
def test_a_person_who_does_not(files: Crib, keys: str) -> None:
    code, screen = answered(files, keys)
    assert code == 5
    assert screen.text.endswith("error[approval_required]: dear was not approved, so it was not run\n")
    assert not (files.root / "mark").exists()
    assert [entry.event for entry in files.audit()] == ["TOOL_REFUSED"]


def test_a_person_who_leaves(files: Crib) -> None:
    code, _ = answered(files, "\x03")
    assert code == 130
    assert not (files.root / "mark").exists()
    assert "TOOL_EXECUTED" not in [entry.event for entry in files.audit()]


def test_nobody_is_asked_about_arguments_that_do_not_fit(files: Crib) -> None:
    with on_terminal(files, "run", "dear", "c:=5") as screen:
        assert screen.end() == 4
        assert "Run it once" not in screen.text


def test_nothing_shown_steers_the_terminal(files: Crib) -> None:
    files.tool("sly", "file", {"action": "write", "path": "mark", "content": "${c}"}, SH,
               permissions={"fs": {"write": ["."]}},
               approval={"required": True, "reason": "harmless\x1b[2K\r\u202e"})  # fmt: skip
    with on_terminal(files, "run", "sly", "c=x\u202ey\x1b[8m") as screen:
        screen.read_until("[y/N]")
        assert "\x1b[" not in screen.raw
        assert "\u202e" not in screen.raw
        screen.type("n\n")
        screen.end()
    files.write("f", "\x1b]0;title\x07text\x1b[2J")
    with on_terminal(files, "run", "read", env={"TERM": "dumb"}) as screen:
        assert screen.end() == 0
        assert "\x1b" not in screen.raw
    assert "\x1b]0;" in cli(files, "run", "read").out, "a pipe gets what there is"


def test_approve_is_for_one_call(files: Crib) -> None:
    assert cli(files, "run", "dear", "--approve").code == 0
    assert [entry.event for entry in files.audit()] == ["TOOL_APPROVED", "TOOL_EXECUTED"]
    assert cli(files, "run", "dear", stdin=b"y\n").code == 5
    assert cli(files, "run", "dear", "--json", "--approve").document["status"] == "ok"
    assert cli(files, "run", "read", "--approve").code == 0
    assert [entry.event for entry in files.audit()][-2:] == ["TOOL_EXECUTED", "TOOL_EXECUTED"]


@pytest.mark.usefixtures("kernel")
def test_ctrl_c_ends_the_tool(crib: Crib) -> None:
    crib.shell()
    marker = f"6{os.getpid()}"
    with on_terminal(
        crib, "run", "sh", f"c=trap '' INT TERM; (setsid sleep {marker} &); sleep {marker}"
    ) as screen:
        screen.read_until("sh runs for")
        screen.type("\x03")
        assert screen.end() == 130
        assert "interrupted: the tool was stopped" in screen.text
    assert eventually(lambda: not sleeping(marker))
    assert (crib.last().event, crib.last().fields["code"]) == ("TOOL_EXECUTED", "cancelled")


def test_colour_is_for_terminals_that_want_it(files: Crib) -> None:
    assert "\x1b" not in cli(files, "run", "gone").err
    with on_terminal(files, "run", "gone") as screen:
        assert screen.end() == 3
        assert "\x1b[31m" in screen.raw
    for env in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        with on_terminal(files, "run", "gone", env=env) as screen:
            screen.end()
            assert "\x1b" not in screen.raw


@pytest.mark.parametrize("columns", [20, 40, 60, 200])
def test_a_list_fits_the_terminal_and_is_whole(files: Crib, columns: int) -> None:
    text = "Reads one file below the folders that it was granted and nothing else at all."
    folder = files.tool("a-rather-long-name-for-a-tool", "file", {"action": "read", "path": "f"})
    manifest = json.loads((folder / "tool.yml").read_text())
    (folder / "tool.yml").write_text(json.dumps(manifest | {"description": text}))
    accept(files.root)
    with on_terminal(files, "list", columns=columns) as screen:
        assert screen.end() == 0
        lines = screen.text.splitlines()
    assert max(map(len, lines)) <= columns
    assert "".join(text.split()) in "".join("".join(lines).split())
    piped = cli(files, "list").out.splitlines()
    assert len(piped) == 4
    assert text in piped[1]


def test_nothing_of_the_working_folder_is_imported(crib: Crib) -> None:
    for name in ("sqlite3", "yaml", "click", "csv", "difflib", "resource", "tarfile"):
        crib.write(f"{name}.py", "raise SystemExit('imported from the project')")
    crib.shell()
    accept(crib.root)
    command = [sys.executable, "-m", "toolcrib", "list"]
    done = subprocess.run(command, cwd=crib.root, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "sh " in done.stdout
