"""What a launcher's failure becomes."""

from __future__ import annotations

import errno

import pytest

from toolcrib.errors import (
    InvalidInput,
    PermissionDenied,
    SandboxUnavailable,
    ToolcribError,
    ToolUnavailable,
    UnavailableError,
)
from toolcrib.sandbox.confine import explained
from toolcrib.sandbox.host.failures import ANY_NAMESPACE, HINTS, SCARCE, explain, why
from toolcrib.sandbox.job import Confinement


@pytest.mark.parametrize(
    ("message", "kind", "words"),
    [
        (f"grant\0{errno.ENOENT}\0/p\0", ToolUnavailable, "does not exist: /p"),
        (f"grant\0{errno.ELOOP}\0/p\0", PermissionDenied, "symbolic link: /p"),
        (f"grant\0{errno.EACCES}\0/p\0", PermissionDenied, "/p: Permission denied"),
        (f"cwd\0{errno.ENOENT}\0/p\0", ToolUnavailable, "cannot be entered: /p: No such file"),
        (f"cwd\0{errno.ENOTDIR}\0/p\0", ToolUnavailable, "cannot be entered: /p: Not a directory"),
        (f"cwd\0{errno.EACCES}\0/p\0", PermissionDenied, "cannot be entered: /p"),
        (f"exec\0{errno.ENOENT}\0x\0", ToolUnavailable, "x: not found"),
        (f"exec\0{errno.ENOENT}\0/x\0interpreter", ToolUnavailable, "/x: the interpreter"),
        (f"exec\0{errno.EACCES}\0/x\0", ToolUnavailable, "/x: not executable"),
        (f"exec\0{errno.ENOEXEC}\0/x\0", ToolUnavailable, "/x: neither a program nor"),
        (f"exec\0{errno.E2BIG}\0/x\0", InvalidInput, "too long"),
        (f"exec\0{errno.ENOMEM}\0/x\0", ToolUnavailable, "Cannot allocate memory"),
        (f"kernel mount\0{errno.EPERM}\0/p/proc\0proc", PermissionDenied, "file system proc: /p/proc"),
        (f"link\0{errno.EINVAL}\0/p\0", PermissionDenied, "inside a writable folder: /p"),
        (f"user namespace\0{errno.EPERM}\0\0", SandboxUnavailable, "user namespace: Operation not permitted"),
        (f"set-up\0{errno.EAGAIN}\0\0", UnavailableError, "could not be started: Resource temporarily"),
        ("set-up\0" + "0\0\0KeyError('x')", SandboxUnavailable, "KeyError"),
    ],
)
def test_each_failure_names_its_cause(message: str, kind: type[ToolcribError], words: str) -> None:
    error = explain(message)
    assert type(error) is kind
    assert words in error.message


@pytest.mark.parametrize("stage", ["user namespace", "proc", "mount_setattr", "capabilities"])
def test_a_missing_mechanism_says_what_to_do(stage: str) -> None:
    error = explain(f"{stage}\0{errno.EPERM}\0\0")
    assert isinstance(error, SandboxUnavailable)
    assert error.hint
    assert error.details["mechanism"] == stage


def test_no_space_is_said_in_other_words_for_namespaces() -> None:
    assert "max_" in why("user namespace", errno.ENOSPC)
    assert "space" in why("tmpfs", errno.ENOSPC)


def test_hints_are_sentences() -> None:
    for hint in (*HINTS.values(), ANY_NAMESPACE, SCARCE):
        assert hint[0].isupper(), hint
        assert hint.endswith("."), hint
    job = Confinement(argv=("true",), cwd="/", advice="Ask.")
    assert explained(job, SandboxUnavailable("no", hint="Try.")).hint == "Try. Ask."
