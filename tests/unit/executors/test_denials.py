"""Permission errors for the paths that a tool's exception names: real files, made-up answers."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from toolcrib.errors import PermissionDenied, ToolUnavailable
from toolcrib.executors.trace.denials import of_exception, of_interpreter, of_text
from toolcrib.executors.workspace.workspace import Workspace
from toolcrib.sandbox import Completed, Confinement
from toolcrib.spec import Permissions, PythonExec, Source, Tool

MANIFEST = b"""\
name: t
description: T.
kind: python
version: 1
exec:
  python: {module: m, function: f}
permissions:
  fs:
    read:
      - data
    write: []
"""


class Ground:
    """A project with a tool that may read `data`."""

    def __init__(self, root: Path, manifest: bytes = MANIFEST) -> None:
        self.root = Path(os.path.realpath(root))
        for folder in (".toolcrib/tools/t", "data", "conf", ".git"):
            (self.root / folder).mkdir(parents=True)
        for name in ("data/in", "conf/x", "file", ".env"):
            (self.root / name).write_text(name)
        source = Source("native", str(self.root / ".toolcrib/tools/t/tool.yml"), manifest, "")
        permissions = Permissions(read=("data",))
        self.tool = Tool(
            "t", "T.", "python", {}, PythonExec("m", "f"), permissions=permissions, source=source
        )
        self.workspace = Workspace(str(self.root), str(self.root / ".toolcrib"))
        grants = self.workspace.files().grants(self.tool)
        self.job = Confinement(
            ("sh",), str(self.root), {},
            grants.read, grants.write, grants.protect, grants.scratch, grants.hide,
        )  # fmt: skip

    def raised(self, number: Any, filename: Any) -> PermissionDenied | None:
        answer = {"error": "OSError", "message": "why", "cause": {"errno": number, "filename": filename}}
        done = Completed(0, None, b"", b"traceback", 0, 9, False, 1.0, {"level": "full"})
        return of_exception(self.workspace, self.tool, self.job, done, answer)


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


@pytest.mark.parametrize(
    ("number", "filename", "access", "grant"),
    [
        (errno.ENOENT, "file", "read", "file"),
        (errno.EACCES, "conf/x", "read", "conf/x"),
        (errno.ENOENT, "conf/../file", "read", "file"),
        (errno.EROFS, "data/in", "write", "data/in"),
        (errno.EROFS, "data/new", "write", "data"),
        (errno.EROFS, "new", "write", "."),
        (errno.EACCES, "new", "write", "."),  # Landlock alone refuses so.
        (errno.EACCES, "data/new", "write", "data"),
        (errno.EROFS, ".git/index.lock", "write", ".git"),
        (errno.EROFS, ".toolcrib/scratch/x", "write", ".toolcrib/scratch"),
        (errno.EROFS, "/srv/new", "write", "/srv/new"),
    ],
)
def test_a_refused_path_names_the_permission_and_its_line(
    ground: Ground, number: int, filename: str, access: str, grant: str
) -> None:
    error = ground.raised(number, filename)
    assert error is not None
    details = error.details
    assert (details["access"], details["grant"]["value"]) == (access, grant)
    assert details["line"] == (9 if access == "read" else 11)
    assert details["enforcement"] == {"level": "full"}
    assert f".toolcrib/tools/t/tool.yml:{details['line']}" in (error.hint or "")
    assert "OSError: why" in error.message, "the tool's own error stays"


def test_other_failures_are_not_explained_by_permissions(ground: Ground) -> None:
    causes = [
        (errno.ENOENT, "gone"), (errno.ENOENT, "conf/new"), (errno.ENOENT, "data/gone"),
        (errno.EACCES, "data/in"), (errno.EACCES, "gone/new"), (errno.EISDIR, "file"),
        (errno.EROFS, "/usr/lib/x"),
        (errno.ENOENT, "/usr/gone"), (errno.ENOENT, "/tmp/gone"), (errno.EACCES, "/proc/1/environ"),
    ]  # fmt: skip
    hostile = [("2", "file"), (2, ["file"]), (2, "a\0b"), (2, "\ud800"), (30, "n" * 5_000), (None, None)]
    for number, filename in (*causes, *hostile):
        assert ground.raised(number, filename) is None, (number, filename)


@pytest.mark.parametrize(
    ("said", "access"),
    [
        ("sh: 1: cannot create new: Permission denied", "write"),
        ("touch: cannot touch 'new': Permission denied", "write"),
        ("mkdir: cannot create directory \u2018new\u2019: Permission denied", "write"),
        ("cat: new: No such file or directory", None),
        ("tool: bad new: Permission denied", None),  # It does not say that it was a file, or to be made.
        ("cat: file: Permission denied", "read"),
    ],
)
def test_the_words_of_a_command_prove_what_it_was_refused(
    ground: Ground, said: str, access: str | None
) -> None:
    error = of_text(ground.workspace, ground.tool, ground.job, said, said, {})
    assert (error and error.details["access"]) == access


def test_a_grant_is_named_by_the_links_that_lead_to_it(ground: Ground) -> None:
    (ground.root / "current").symlink_to("conf")
    error = ground.raised(errno.ENOENT, "current/x")
    assert error is not None
    assert error.details["grant"]["value"] == "current/x"


def test_outside_of_the_project_the_error_does_not_depend_on_what_exists(ground: Ground) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        outside = Path(folder)
        (outside / "real").mkdir()
        (outside / "real/f").write_text("x")
        (outside / "link").symlink_to("real")
        for name in ("link/f", "link/gone", "gone/f", "real/f"):
            error = ground.raised(errno.ENOENT, f"{outside}/{name}")
            assert error is not None
            assert error.details["grant"]["value"] == f"{outside}/{name}"
        with (outside / "real/f").open() as file:
            assert ground.raised(errno.ENOENT, f"/proc/{os.getpid()}/fd/{file.fileno()}") is None
    errors = [ground.raised(errno.ENOENT, path) for path in ("/etc/shadow", "/etc/absent")]
    messages = {error.message.replace("shadow", "absent") for error in errors if error is not None}
    assert len(messages) == 1


def test_a_path_that_no_permission_opens_is_reported_as_closed(ground: Ground) -> None:
    for number, path in (
        (errno.EACCES, ".env"), (errno.EROFS, ".toolcrib/config.yml"), (errno.EROFS, ".git/config")
    ):  # fmt: skip
        (ground.root / path).touch()
        error = ground.raised(number, path)
        assert error is not None
        assert error.details["grant"] is None
        assert "No permission opens" in (error.hint or "")


@pytest.mark.parametrize(
    ("manifest", "line"),
    [
        (b"name: t\nkind: command\n", 1),
        (b"name: t\npermissions:\n  network: false\n", 2),
        (b"name: t\n\npermissions:\n\n  fs:\n    write: []\n", 5),
        (b"\xff", None),
    ],
)
def test_the_line_is_the_nearest_one_that_the_manifest_has(
    tmp_path: Path, manifest: bytes, line: int | None
) -> None:
    error = Ground(tmp_path, manifest).raised(errno.ENOENT, "file")
    assert error is not None
    assert error.details["line"] == line
    assert ".toolcrib/tools/t/tool.yml" in (error.hint or "")


def test_a_pipe_in_place_of_a_script_blocks_nothing(ground: Ground) -> None:
    os.mkfifo(ground.root / "data/script")
    details = {"errno": "ENOENT", "path": str(ground.root / "data/script")}
    error = ToolUnavailable("not found", details=details)
    assert of_interpreter(ground.workspace, ground.tool, ground.job, error) is None
