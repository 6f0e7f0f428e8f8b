"""Level `full`: pid 1 of a sandbox, which builds it and then only waits, and the confinement of its command.

The launcher forks pid 1, which forks pid 2, the command. Everything is ready before the server starts the
command: only then come the arguments, the environment and the pipes, directly from the server, so the
launcher never sees a secret. The command is confined before it waits for them; only exec, or the call of a
function, is left to do.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # see `privileges`
import _socket
import ctypes
import os

from toolcrib.sandbox.child.command import offer
from toolcrib.sandbox.child.privileges import (
    die_with,
    drop_privileges,
    enforce,
    join_cgroup,
    leave_keyring,
    reset_process,
    set_limits,
)
from toolcrib.sandbox.kernel import landlock, network, seccomp
from toolcrib.sandbox.kernel.libc import (
    PR_SET_DUMPABLE,
    SIGKILL,
    SIGTERM,
    SetupFailure,
    check,
    close_other,
    libc,
    prctl,
    write_file,
    write_if_allowed,
)
from toolcrib.sandbox.kernel.messages import receive, report, run_child, send
from toolcrib.sandbox.kernel.mounts import DEVICES, build_root
from toolcrib.sandbox.kernel.namespaces import NEWCGROUP, NEWUSER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Stamps = list[tuple[int, int] | None]


def run_init(
    job: dict[str, Any], control: int, launcher: int, groups: list[int], in_user_namespace: bool
) -> None:
    """Build the root, give up every privilege, start the command and wait for it.

    Arguments:
        launcher: a pidfd of the launcher.
        groups: files to join the sandbox's cgroup by.
        in_user_namespace: this process was started in a new user namespace, whose id maps it must write.
    """
    die_with(launcher)
    proc = os.open("/proc", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    close_other((control, launcher, proc, *groups))
    join_cgroup(groups)
    # When memory runs out, the kernel kills this process and all below it before it kills the server.
    write_if_allowed(proc, "self/oom_score_adj", "1000")
    missing: list[str] = []
    if in_user_namespace:
        missing += write_id_maps(proc, *job["ids"])
    os.umask(0o022)
    leave_keyring()
    network.open_listener(job, control)
    check("uts namespace", libc.sethostname(b"sandbox", ctypes.c_size_t(7)))
    found = build_root(job)
    check("cgroup namespace", libc.unshare(NEWCGROUP))
    if not in_user_namespace:
        missing += enter_user_namespace(proc, *job["ids"])
    drop_privileges()
    die_with(launcher)  # Again: the kernel forgets it when the rights of a process change.
    inner, outer = (end.detach() for end in _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET))
    # Everything that can be done before the fork: what either process writes to after it is copied.
    theirs, ours = rulesets(job)
    reset_process(job["cwd"])
    # The command is pid 2: a pid 1 gets no signal that it does not handle, so plain programs could not be
    # ended.
    pid = os.fork()
    if pid == 0:
        run_child(control, lambda: run_command(job, control, inner, theirs, found, missing))
    _signal.signal(SIGTERM, lambda *_: os.kill(pid, SIGTERM))
    close_other((control, outer, ours.fd))
    enforce(ours, job["init_filter"])
    report(outer, "confined")
    os.close(outer)
    wait_for_end(pid, control)


def wait_for_end(pid: int, control: int) -> None:
    """Wait for the command's end, kill everything it left behind, and only then report the end."""
    while True:
        ended, status = os.wait()
        if ended == pid:
            break
    while True:
        try:
            os.kill(-1, SIGKILL)
        except ProcessLookupError:
            pass
        try:
            os.wait()
        except ChildProcessError:
            break
    report(control, f"exit {status}")
    os._exit(0)


def enter_user_namespace(proc: int, uid: int, gid: int) -> list[str]:
    """Take root's rights from a process that made its mounts with them: the user stays, the rights do not.

    Returns what is missing. Where the machine has no user namespaces, the command can make none either.
    """
    return ["user namespace"] if libc.unshare(NEWUSER) != 0 else write_id_maps(proc, uid, gid)


def write_id_maps(proc: int, uid: int, gid: int) -> list[str]:
    """Map the user to itself, and forbid further user namespaces: a command could gain capabilities in them.

    Returns what is missing.

    The files belong to root while a process is not dumpable; this one has no secret yet.
    """
    prctl("dumpable", PR_SET_DUMPABLE, 1)
    try:
        # Again: the first time the file may have belonged to root.
        write_if_allowed(proc, "self/oom_score_adj", "1000")
        write_file(proc, "self/setgroups", "deny")
        write_file(proc, "self/uid_map", f"{uid} {uid} 1")
        write_file(proc, "self/gid_map", f"{gid} {gid} 1")
    except OSError as error:
        raise SetupFailure("id maps", error.errno or 0) from None
    finally:
        prctl("dumpable", PR_SET_DUMPABLE, 0)
    missing = [] if write_if_allowed(proc, "sys/user/max_user_namespaces", "0") else ["max_user_namespaces"]
    # Without these a command could use up all inotify instances of its user; they are parts of the least that
    # a kernel gives each user.
    for name, most in ("max_inotify_instances", "16"), ("max_inotify_watches", "4096"):
        if not write_if_allowed(proc, f"sys/user/{name}", most):
            missing.append(name)
    return missing


def rulesets(job: dict[str, Any]) -> tuple[landlock.Ruleset, landlock.Ruleset]:
    """Return the Landlock rules of the command, the same grants again, and those of pid 1.

    Landlock cannot take away below what it gave: only the mounts enforce what is read-only or hidden inside a
    writable folder.
    """
    connect_ports, bind_ports = network.ports(job)
    writable = ["/tmp", "/dev/shm"]  # noqa: S108 - private to the sandbox
    read_only: list[str] = []
    for _, target, mode, _ in job["mounts"]:
        if mode in ("ro", "rw", "ro?", "rw?") and os.path.lexists(target):
            (writable if mode.startswith("rw") else read_only).append(target)
    try:
        # Not a single grant. Signals stay allowed: its children, which it must kill, are outside.
        ours = landlock.Ruleset(scope=False, connect_ports=(), bind_ports=())
        theirs = landlock.Ruleset(
            read=["/proc", *(path for path, _ in job["files"])],
            execute=[*read_only, *writable],
            write=writable,
            devices=[f"/dev/{name}" for name in DEVICES],
            listing=["/"],
            connect_ports=connect_ports,
            bind_ports=bind_ports,
        )
        return theirs, ours
    except OSError as error:
        raise SetupFailure("landlock", error.errno or 0, text=str(error.filename or "")) from None


def run_command(
    job: dict[str, Any],
    control: int,
    init: int,
    ruleset: landlock.Ruleset,
    found: Stamps,
    missing: list[str],
) -> None:
    """Confine this process, wait for the call, become the command.

    Arguments:
        init: pid 1 reports on it that it is confined; the command must not start before.
        found: device and inode of what was bound.
        missing: mechanisms that this machine did not allow.
    """
    # A process group of its own, or `kill 0` would mean pid 1 as well. The session stays the launcher's,
    # which has no terminal: another setsid costs 4 ms on a busy machine (a new scheduling group, sched(7)).
    os.setpgid(0, 0)
    close_other((control, init, ruleset.fd))
    if job["watch"]:
        # Before the limits: how many descriptors a user may have under way depends on the sender's limit, and
        # other sandboxes could have used up a low one.
        be_watched(job["watch"], control)
    set_limits(job["limits"])
    enforce(ruleset, job["filter"])
    # Before that, pid 1, which runs as the same user, is not confined yet.
    if receive(init)[0] != b"confined":
        os._exit(126)
    os.close(init)
    offer(job, control, found, missing=missing)


def be_watched(code: bytes, control: int) -> None:
    """Have the kernel report each watched call to the server, which may read the paths from this process."""
    prctl("dumpable", PR_SET_DUMPABLE, 1)  # It has no secret yet.
    try:
        listener = seccomp.listen(code)
    except OSError as error:
        raise SetupFailure("watch", error.errno or 0) from None
    send(control, b"watch", (listener,))
    os.close(listener)
