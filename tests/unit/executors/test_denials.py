"""What is made of a tool's own failure: real files, made-up output."""

from __future__ import annotations

import errno
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from toolcrib.errors import PermissionDenied, ToolUnavailable
from toolcrib.executors.trace.denials import of_command, of_exec, of_python
from toolcrib.executors.workspace.workspace import Workspace
from toolcrib.sandbox import Completed, Confinement
from toolcrib.spec import CommandExec, Network, Permissions, Source, Tool

MANIFEST = b"""\
name: t
description: T.
kind: command
version: 1
exec:
  command: {entrypoint: sh}
permissions:
  fs:
    read:
      - data
    write: []
"""


class Ground:
    """A project with a tool that may read `data`."""

    def __init__(self, root: Path, manifest: bytes = MANIFEST, **permissions: Any) -> None:
        self.root = Path(os.path.realpath(root))
        for folder in (".toolcrib/tools/t", "data", "conf"):
            (self.root / folder).mkdir(parents=True)
        for name in ("data/in", "conf/x", "file", ".env", "helper.py"):
            (self.root / name).write_text(name)
        source = Source("native", str(self.root / ".toolcrib/tools/t/tool.yml"), manifest, "")
        given = Permissions(**{"read": ("data",), **permissions})
        self.tool = Tool("t", "T.", "command", {}, CommandExec("sh"), permissions=given, source=source)
        self.workspace = Workspace(str(self.root), str(self.root / ".toolcrib"))
        grants = self.workspace.grants(self.tool)
        self.job = Confinement(
            ("sh",),
            str(self.root),
            {},
            grants.read,
            grants.write,
            grants.protect,
            grants.scratch,
            grants.hide,
        )

    def command(self, stderr: str, exit_code: int = 1) -> PermissionDenied | None:
        return of_command(self.workspace, self.tool, self.job, completed(stderr, exit_code))

    def python(self, **cause: Any) -> PermissionDenied | None:
        answer = {"error": "OSError", "message": "why", "cause": cause}
        return of_python(self.workspace, self.tool, self.job, completed("", 0), answer)


def completed(stderr: str, exit_code: int) -> Completed:
    text = stderr.encode()
    return Completed(exit_code, None, b"", text, 0, len(text), False, 1.0, {"level": "full"})


def told(error: PermissionDenied | None) -> tuple[Any, Any, Any]:
    """Access, what a grant would name, and the line of the manifest."""
    assert error is not None
    details = error.details
    return details["access"], (details["grant"] or {}).get("value"), details.get("line")


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


@pytest.mark.parametrize(
    ("stderr", "expected"),
    [
        ("cat: file: No such file or directory", ("read", "file", 9)),
        ("cat: conf/x: No such file or directory", ("read", "conf/x", 9)),
        ("sh: 1: cannot open file: No such file", ("read", "file", 9)),
        ("sh: 1: cannot create data/new: Read-only file system", ("write", "data", 11)),
        ("sh: 1: cannot create data/in: Read-only file system", ("write", "data/in", 11)),
        ("sh: 1: cannot create conf/new: Directory nonexistent", ("write", "conf", 11)),
        ("rm: cannot remove 'data/in': Read-only file system", ("write", "data", 11)),
        ("touch: cannot touch 'new': Read-only file system", ("write", ".", 11)),
        (
            "mkdir: cannot create directory \u2018conf/new\u2019: No such file or directory",
            ("write", "conf", 11),
        ),
        ("ls: cannot access 'conf': No such file or directory", ("read", "conf", 9)),
        ("grep: file: No such file or directory\nand then some", ("read", "file", 9)),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'file'", ("read", "file", 9)),
        ("Error: ENOENT: no such file or directory, open 'file'", ("read", "file", 9)),
        ("open conf/x: no such file or directory", ("read", "conf/x", 9)),
        ("sh: 1: conf/x: not found", ("read", "conf/x", 9)),
        ("sh: 1: file: not found", None),
        ("GET /api/users: 404 Not Found", None),
        ("cat: gone: No such file or directory", None),
        ("cat: data/gone: No such file or directory", None),
        ("cat: data/in: Permission denied", None),
        ("sh: 1: cannot create gone/new: Directory nonexistent", None),
        ("cat: /usr/gone: No such file or directory", None),
        ("cat: /tmp/gone: No such file or directory", None),
        ("cat: /proc/1/environ: Permission denied", None),
        ("file: something else", None),
        ("backup: Read-only file system", None),
        ("error writing output: Permission denied", None),
        ("OSError: [Errno 30] Read-only file system", None),
        ("cannot open: Read-only file system at -e line 1.", None),
        ("OSError: [Errno 30] Read-only file system: '/usr/lib/x'", None),
        ("Error: EROFS: read-only file system, open '/usr/lib/x'", None),
        ("tee: new: Read-only file system", ("write", ".", 11)),
        ("tar: conf/x: Cannot stat: No such file or directory", ("read", "conf/x", 9)),
        ("tar: conf/new: Cannot mkdir: Read-only file system", ("write", "conf", 11)),
        ("python3: can't open file 'file': [Errno 2] No such file or directory", ("read", "file", 9)),
        ('Can\'t open perl script "file": No such file or directory', ("read", "file", 9)),
        ("Error: Cannot find module './helper.py'", ("read", "helper.py", 9)),
        ("file: No such file or directory", None),
        ("rmdir: failed to remove 'data': Read-only file system", ("write", ".", 11)),
        ("Error: EROFS: read-only file system, unlink 'data/in'", ("write", "data", 11)),
        ("Error: EROFS: read-only file system, rename 'data/in' -> 'data/b'", ("write", "data", 11)),
        (
            "    os.unlink('data/in')\nOSError: [Errno 30] Read-only file system: 'data/in'",
            ("write", "data", 11),
        ),
        ("OSError: [Errno 30] Read-only file system: 'data'", ("write", ".", 11)),
        ("chmod: changing permissions of 'data': Read-only file system", ("write", "data", 11)),
        ("fatal: Unable to create '.git/index.lock': Read-only file system", ("write", ".git", 11)),
        (
            "mkdir: cannot create directory '.toolcrib/scratch': Read-only file system",
            ("write", ".toolcrib/scratch", 11),
        ),
        (
            "touch: cannot touch '.toolcrib/scratch/x': No such file or directory",
            ("write", ".toolcrib/scratch", 11),
        ),
        ("mkdir: cannot create directory '/foo': Read-only file system", None),
        ("mktemp: cannot create '/srv/tmp.X': Read-only file system", ("write", "/srv", 11)),
        ("No such file or directory", None),
        ("", None),
    ],
)
def test_what_a_command_wrote(ground: Ground, stderr: str, expected: Any) -> None:
    (ground.root / ".git").mkdir()
    error = ground.command(stderr)
    if expected is None:
        assert error is None, error
        return
    assert told(error) == expected
    assert error is not None
    assert stderr.strip() in error.message, "the tool's own error is kept"
    assert error.hint is not None
    assert f".toolcrib/tools/t/tool.yml:{expected[2]}" in error.hint
    assert error.details["enforcement"] == {"level": "full"}


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (("sh", "-c", "cd conf && cat file"), False),
        (("tar", "-C", "conf", "-x"), False),
        (("sh", "moves.sh"), False),
        (("sh", "stays.sh"), True),
        (("grep", "-C", "3", "x", "file"), True),
    ],
)
def test_a_relative_name_after_a_change_of_folder_is_not_guessed(
    ground: Ground, argv: tuple[str, ...], told: bool
) -> None:
    (ground.root / "moves.sh").write_text("set -e\ncd conf\ncat file\n")
    (ground.root / "stays.sh").write_text("set -e\necho abcd\ncat file\n")
    ground.job = replace(ground.job, argv=argv)
    assert (ground.command("cat: file: No such file or directory") is not None) is told
    assert ground.command(f"cat: {ground.root}/file: No such file or directory") is not None


def test_a_grant_is_named_by_the_links_that_lead_to_it(ground: Ground) -> None:
    (ground.root / "current").symlink_to("conf")
    assert told(ground.command("cat: current/x: No such file or directory")) == ("read", "current/x", 9)
    assert told(ground.command("sh: 1: cannot create current/new: Directory nonexistent"))[1] == "current"


def test_where_a_link_outside_leads_is_not_told(ground: Ground) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        outside = Path(folder)
        (outside / "real").mkdir()
        (outside / "real/f").write_text("x")
        (outside / "link").symlink_to("real")
        for name in ("link/f", "link/gone", "gone/f", "real/f"):
            error = ground.command(f"cat: {outside}/{name}: No such file or directory")
            assert told(error)[1] == f"{outside}/{name}"
        with (outside / "real/f").open() as file:
            opened = f"/proc/{os.getpid()}/fd/{file.fileno()}"
            assert ground.command(f"cat: {opened}: No such file or directory") is None
    assert ground.command("cat: /proc/self/cwd/file: No such file or directory") is None


def test_a_pipe_that_nobody_writes_to_holds_up_nothing(ground: Ground) -> None:
    os.mkfifo(ground.root / "script")
    error = ToolUnavailable("not found", details={"errno": errno.ENOENT, "path": str(ground.root / "script")})
    ground.tool = replace(ground.tool, permissions=Permissions(read=("script",)))
    assert of_exec(ground.workspace, ground.tool, ground.job, error) is None
    ground.job = replace(ground.job, argv=("sh", "script"))
    assert ground.command("cat: file: No such file or directory") is not None


def test_outside_of_the_project_nothing_is_said_of_what_exists(ground: Ground) -> None:
    there, gone = "/etc/shadow", "/etc/absent"
    errors = [ground.command(f"cat: {path}: No such file or directory") for path in (there, gone)]
    said = [error.message.replace(there, gone) for error in errors if error is not None]
    assert len(said) == 2
    assert said[0] == said[1]
    for folder in ("/opt/absent", "/var"):
        error = ground.python(errno=errno.ENOENT, filename=f"{folder}/new", access="write")
        assert told(error)[1] == f"{folder}/new"
        error = ground.python(errno=errno.ENOENT, filename=f"{folder}/new", access="entry")
        assert told(error)[1] == folder


def test_what_no_grant_opens_is_told_so(ground: Ground) -> None:
    (ground.root / ".git").mkdir()
    for error in (
        ground.command("cat: .env: Permission denied"),
        ground.python(errno=errno.EROFS, filename=".toolcrib/config.yml", access="write"),
        ground.python(errno=errno.EROFS, filename=".git/config", access="write"),
    ):
        assert error is not None
        assert error.details["grant"] is None
        assert error.hint is not None
        assert error.hint.startswith("No grant opens it")


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        ({"errno": errno.ENOENT, "filename": "file", "access": "read"}, ("read", "file", 9)),
        ({"errno": errno.ENOENT, "filename": "conf/new", "access": "write"}, ("write", "conf", 11)),
        ({"errno": errno.EROFS, "filename": "data/in", "access": "read"}, ("write", "data/in", 11)),
        ({"errno": errno.EROFS, "filename": "data/in", "access": "entry"}, ("write", "data", 11)),
        (
            {"errno": errno.EROFS, "filename": "/tmp/x", "filename2": "data/b", "access": "entry"},
            ("write", "data", 11),
        ),
        ({"module": "helper"}, ("read", "helper.py", 9)),
        ({"module": "conf.x"}, None),
        ({"module": "numpy"}, None),
        ({"errno": errno.ENOENT, "filename": "gone", "access": "read"}, None),
        ({"errno": errno.ENOENT, "filename": ".toolcrib/state.db", "access": "read"}, None),
        ({"errno": errno.EISDIR, "filename": "file", "access": "read"}, None),
        ({"errno": errno.EACCES, "filename": "data/in", "access": "read"}, None),
        ({"errno": "2", "filename": "file"}, None),
        ({"errno": 2, "filename": ["file"]}, None),
        ({"errno": 2, "filename": "a\0b", "access": {}}, None),
        ({"errno": 2, "filename": "\ud800", "access": "write"}, None),
        ({"errno": 2, "filename": "n" * 5_000, "access": "write"}, ("write", ".", 11)),
        ({"module": "m" * 5_000}, None),
        ({"module": "a\0b"}, None),
        ({}, None),
    ],
)  # fmt: skip
def test_what_a_python_tool_raised(ground: Ground, cause: Any, expected: Any) -> None:
    error = ground.python(**cause)
    assert (None if error is None else told(error)) == expected


def test_the_network_is_named_with_its_host(ground: Ground) -> None:
    error = ground.python(errno=-3, network=True, host="api.example.com")
    assert error is not None
    assert error.details["host"] == "api.example.com"
    assert error.details["grant"]["value"] == {"allow": ["api.example.com"]}
    assert error.hint is not None
    assert "network: {allow: [api.example.com]}" in error.hint
    assert "tool.yml:7" in error.hint
    curl = ground.command("curl: (6) Could not resolve host: example.com", 6)
    assert curl is not None
    assert curl.details["host"] == "example.com"
    elsewhere = ground.python(errno=-3, network=True, host="::1", port=81)
    assert elsewhere is not None
    assert elsewhere.details["grant"]["value"] == {"allow": ["[::1]:81"]}
    usual = ground.python(errno=-3, network=True, host="example.com", port=443)
    assert usual is not None
    assert usual.details["grant"]["value"] == {"allow": ["example.com"]}
    unknown = ground.python(errno=13, network=True, host=None)
    assert unknown is not None
    assert "the network" in unknown.message


@pytest.mark.parametrize(
    ("stderr", "host", "grant"),
    [
        ("Error: getaddrinfo EAI_AGAIN example.org", "example.org", "example.org"),
        ("connect EACCES 192.0.2.1:81 - Local", "192.0.2.1", "192.0.2.1:81"),
        (
            "curl: (7) Failed to connect to 192.0.2.1 port 81 after 0 ms: Couldn't connect",
            "192.0.2.1",
            "192.0.2.1:81",
        ),
        ("ssh: connect to host 192.0.2.1 port 22: Permission denied", "192.0.2.1", "192.0.2.1:22"),
        ("gaierror: [Errno -2] Name or service not known\n\nDuring handling of the above", None, None),
    ],
)
def test_the_host_is_where_programs_put_it(
    ground: Ground, stderr: str, host: str | None, grant: str | None
) -> None:
    error = ground.command(stderr)
    if host is None:
        assert error is None
        return
    assert error is not None
    assert error.details["host"] == host
    assert error.details["grant"]["value"] == {"allow": [grant]}


def test_what_no_proxy_carries_needs_the_network_of_the_machine(ground: Ground) -> None:
    error = ground.python(errno=13, network=True, host=None, direct=True)
    assert error is not None
    assert error.details["grant"]["value"] == "host"


def test_a_network_that_is_granted_is_not_what_was_lacking(tmp_path: Path) -> None:
    ground = Ground(tmp_path, network=Network("hosts", ("example.com",)))
    assert ground.command("curl: (6) Could not resolve host: example.com", 6) is None
    assert ground.python(errno=-3, network=True, host="example.com") is None


@pytest.mark.parametrize(
    ("manifest", "line"),
    [
        (b"name: t\nkind: command\n", None),
        (b"name: t\npermissions:\n  network: false\n", 2),
        (b"name: t\npermissions: {fs: {}}\n", 2),
        (b"name: t\n\npermissions:\n\n  fs:\n    write: []\n", 5),
        (b"\xff", None),
    ],
)
def test_the_nearest_line_of_the_manifest(tmp_path: Path, manifest: bytes, line: int | None) -> None:
    error = Ground(tmp_path, manifest).command("cat: file: No such file or directory")
    assert told(error)[2] == line
    assert error is not None
    assert ".toolcrib/tools/t/tool.yml" in (error.hint or "")


@pytest.mark.parametrize(
    "stderr",
    ["(" * 20_000, "a: " * 9_000 + "No such file or directory", "'" * 30_000, "\x00\xff: Permission denied"],
)
def test_output_of_any_kind_is_looked_through_quickly(ground: Ground, stderr: str) -> None:
    assert ground.command(stderr) is None


@pytest.mark.parametrize(
    ("entrypoint", "argv", "grant", "hint"),
    [
        ("curl", ("curl", "http://example.org:81/x"), {"allow": ["example.org:81"]}, "[example.org:81]"),
        ("curl", ("curl", "http://example.org:443/"), {"allow": ["example.org"]}, "[example.org]"),
        ("curl", ("curl", "http://a.example.org:81/"), {"allow": ["example.org"]}, "[example.org]"),
        ("/usr/bin/ssh", ("ssh", "git@example.org"), "host", "network: host` under"),
    ],
)
def test_the_network_that_a_command_needs_is_named(
    ground: Ground, entrypoint: str, argv: tuple[str, ...], grant: Any, hint: str
) -> None:
    ground.tool = replace(ground.tool, config=CommandExec(entrypoint))
    ground.job = replace(ground.job, argv=argv)
    error = ground.command("Could not resolve hostname example.org: Name or service not known", 255)
    assert error is not None
    assert error.details["grant"]["value"] == grant
    assert error.hint is not None
    assert hint in error.hint
