"""Turn a launcher's failure into the error for the caller."""

from __future__ import annotations

import errno
import os

from toolcrib.errors import (
    InvalidInput,
    PermissionDenied,
    SandboxUnavailable,
    ToolcribError,
    ToolUnavailable,
    UnavailableError,
)
from toolcrib.sandbox.files.paths import real_path

HINTS = {
    "user namespace": (
        "Allow unprivileged user namespaces: sysctl user.max_user_namespaces above 0, "
        "kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0; in a container "
        "also a seccomp profile that permits unshare."
    ),
    "id maps": "Give the container CAP_SETFCAP, or run as an ordinary user.",
    "loopback": "The kernel must let a new network namespace bring its loopback up (CAP_NET_ADMIN in it).",
    "proc": "A container that masks parts of /proc forbids a new one: unmask it (procMount: Unmasked).",
    "cgroup": "Run as root, or in a control group that systemd delegates to you: "
    "`systemd-run --user --scope toolcrib …`.",
    "landlock": "Linux 5.13 or newer is needed, with landlock among its security modules (lsm=landlock,…).",
    "seccomp": "Linux 5.11 or newer is needed, on x86_64 or aarch64.",
    **{name: f"A container's seccomp profile must permit {name}." for name in ("prlimit64", "memfd_create")},
    **dict.fromkeys(
        ("openat2", "open_tree", "mount_setattr", "descriptors"), "Linux 5.12 or newer is needed."
    ),
    "control socket": "A tool may have tried to take its sandbox over: review it and its packages.",
    "watch": "User notification of seccomp is needed, and the right to read /proc/PID/mem of the command.",
}
ANY_NAMESPACE = (
    "Run `toolcrib doctor`; in a container permit unshare and mount (seccomp, AppArmor), or run as an "
    "ordinary user where user namespaces are allowed."
)
SCARCE = "There are too many processes or open files, or too little memory."
_SHORTAGES = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)


def not_started(what: str, reason: str | None) -> UnavailableError:
    """Return the error for a shortage on this machine at the moment; nothing was run."""
    return UnavailableError(f"{what}: {reason}", hint=SCARCE, retryable=True)


def explain(message: str) -> ToolcribError:
    """Return the error for a launcher's `fail` message (without that word)."""
    stage, number, path, text = message.split("\0", 3)
    code = int(number)
    if stage == "grant":
        return grant_error(code, path)
    if stage == "cwd":
        kind = ToolUnavailable if code in (errno.ENOENT, errno.ENOTDIR) else PermissionDenied
        reason = f"the working folder cannot be entered: {path}: {os.strerror(code)}"
        return kind(reason, details={"path": path})
    if stage == "exec":
        return exec_error(code, path, text)
    if stage == "kernel mount":
        return PermissionDenied(
            f"a grant contains the kernel's file system {text}: {path}",
            hint="Grant the folders beside it instead.",
            details={"path": path},
        )
    if stage == "link":
        return PermissionDenied(
            f"this kernel cannot protect a symbolic link inside a writable folder: {path}",
            hint="Replace it by a real file or folder, or do not grant write there.",
            details={"path": path, "errno": errno.errorcode.get(code, str(code))},
        )
    if code in _SHORTAGES:
        return not_started("the command could not be started", os.strerror(code))
    reason = why(stage, code) if code else text
    return unavailable(stage, f"{reason}: {path}" if path else reason)


def why(mechanism: str, code: int) -> str:
    """Return an errno in words; for namespaces "no space left on device" means something else."""
    if code == errno.ENOSPC and mechanism.endswith("namespace"):
        return "the number of namespaces is limited: sysctl user.max_*_namespaces"
    return os.strerror(code)


def unavailable(mechanism: str, reason: str) -> SandboxUnavailable:
    """Return the error for a mechanism that the kernel does not provide."""
    return SandboxUnavailable(
        f"the sandbox could not be set up, so nothing was run: {mechanism}: {reason}",
        hint=HINTS.get(mechanism, ANY_NAMESPACE),
        details={"mechanism": mechanism, "reason": reason},
    )


def grant_error(code: int, path: str) -> ToolcribError:
    """Return the error for a granted path that cannot be used."""
    details = {"path": path}
    if code in (errno.ENOENT, errno.ENOTDIR):
        return ToolUnavailable(
            f"a granted path does not exist: {path}", hint="Create it, or fix the grant.", details=details
        )
    if code in (errno.ELOOP, errno.EXDEV):
        return PermissionDenied(
            f"a granted path leads through a symbolic link: {path}",
            hint=f"Grant its real path: {real_path(path)}",
            details=details,
        )
    return PermissionDenied(f"a granted path cannot be opened: {path}: {os.strerror(code)}", details=details)


def exec_error(code: int, path: str, text: str) -> ToolcribError:
    """Return the error for a program that cannot be started."""
    details = {"path": path, "errno": errno.errorcode.get(code, str(code))}
    if code == errno.E2BIG:
        return InvalidInput("the arguments and variables are too long for a process", details=details)
    if text == "interpreter":
        reason, hint = (
            "the interpreter it names does not exist",
            "Check that line, which must end without the CR of Windows, and its libraries.",
        )
    elif code == errno.ENOENT:
        reason, hint = "not found", "Install it, or grant its folder for reading."
        if " " in path:
            hint = "It is taken for the name of one program: its arguments belong in `args`."
    elif code == errno.EACCES:
        reason, hint = "not executable", "Set its executable bit (chmod +x)."
    elif code == errno.ENOEXEC:
        reason, hint = "neither a program nor a script with a #! line", "Add a first line such as #!/bin/sh."
    else:
        reason, hint = os.strerror(code), None
    return ToolUnavailable(f"the command cannot be run: {path}: {reason}", hint=hint, details=details)
