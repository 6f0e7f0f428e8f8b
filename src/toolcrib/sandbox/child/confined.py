"""The two processes of every sandbox: pid 1, which builds it and then only reaps, and the command.

Forked by the launcher. Everything is made ready before the server says go: only then come the arguments,
the environment and the pipes, straight from the server, so that the launcher never sees a secret. The
command is confined before it waits, and exec or the call of a function is all that is left to do.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` without `enum`, which is most of its import time
import _socket
import ctypes
import errno
import marshal
import os
import resource

from toolcrib.sandbox.child import waiting
from toolcrib.sandbox.kernel import landlock, network, seccomp
from toolcrib.sandbox.kernel.calls import (
    PR_SET_DUMPABLE,
    PR_SET_PDEATHSIG,
    SYS_CLOSE_RANGE,
    Failure,
    as_forked,
    check,
    close_other,
    fork,
    guarded,
    libc,
    prctl,
    readable,
    receive,
    report,
    send,
    syscall,
    whole,
    write_file,
    write_if_allowed,
)
from toolcrib.sandbox.kernel.mounts import DEVICES, build_root

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = [
    "NEWCGROUP",
    "NEWUSER",
    "drop_privileges",
    "hold_none",
    "leave_keyring",
    "limit",
    "offer",
    "run_init",
    "settle",
]

# linux/sched.h
NEWUSER, NEWCGROUP = 0x10000000, 0x2000000
# linux/prctl.h
PR_CAPBSET_DROP, PR_SET_SECUREBITS = 24, 28
PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 38, 47, 4
# noroot, no_setuid_fixup, no_cap_ambient_raise, each of them and keep_caps locked (linux/securebits.h)
SECUREBITS = 0xEF
CAPABILITY_VERSION_3 = 0x20080522
CLOSE_RANGE_CLOEXEC = 4  # linux/close_range.h
SYS_RT_SIGACTION = {"x86_64": 13, "aarch64": 134}
SYS_KEYCTL = {"x86_64": 250, "aarch64": 219}
KEYCTL_JOIN_SESSION_KEYRING = 1
SIGKILL, SIGTERM = 9, 15
STREAMS = ("stdin", "stdout", "stderr", "result")


def run_init(job: dict[str, Any], control: int, launcher: int, groups: list[int], mapped: bool) -> None:
    """Build the root, give up every privilege, start the command and reap.

    Arguments:
        launcher: a pidfd of the launcher.
        groups: files to join the sandbox's cgroup by.
        mapped: whether this process was started in a new user namespace, whose id maps it is to write.
    """
    follow(launcher)
    proc = os.open("/proc", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    close_other((control, launcher, proc, *groups))
    join(groups)
    # When memory runs out, this and all below it goes before the server does.
    write_if_allowed(proc, "self/oom_score_adj", "1000")
    if mapped:
        write_maps(proc, *job["ids"])
    os.umask(0o022)
    leave_keyring()
    network.open_listener(job, control)
    check("uts namespace", libc.sethostname(b"sandbox", ctypes.c_size_t(7)))
    found = build_root(job)
    check("cgroup namespace", libc.unshare(NEWCGROUP))
    if not mapped:
        # Mounts were made with all the rights of root; the command shall have none over the machine.
        try:
            enter_user_namespace(proc, job["ids"])
        except Failure as failure:
            if failure.stage != "user namespace":  # Where there are none, the command can make none.
                raise
    drop_privileges()
    # Told again: gaining or giving up rights may have cleared it.
    follow(launcher)
    inner, outer = (end.detach() for end in _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET))
    # All that can be done before the fork is: what either process writes to after it is copied.
    theirs, mine = rules_of(job)
    settle(job)
    pid = fork()
    if pid == 0:
        guarded(control, lambda: run_command(job, control, inner, theirs, found))
    _signal.signal(SIGTERM, lambda *_: os.kill(pid, SIGTERM))
    close_other((control, outer, mine.fd))
    hold(mine, job["waiting"])
    report(outer, "held")
    os.close(outer)
    reap(pid, control)


def join(groups: list[int]) -> None:
    """Be counted and bounded in a cgroup, with all that comes from this process."""
    try:
        for fd in groups:
            os.write(fd, b"0")
    except OSError as error:
        raise Failure("cgroup", error.errno or 0) from None


def follow(launcher: int) -> None:
    """Die with the launcher, also when it is dead already."""
    prctl("parent death signal", PR_SET_PDEATHSIG, SIGKILL)
    if readable(launcher):
        os._exit(0)


def reap(pid: int, control: int) -> None:
    """Wait for the command's end, then end all that it left behind, and only then tell."""
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


def enter_user_namespace(proc: int, ids: tuple[int, int]) -> None:
    """Keep the user, but no right over anything made before."""
    check("user namespace", libc.unshare(NEWUSER))
    write_maps(proc, *ids)


def write_maps(proc: int, uid: int, gid: int) -> None:
    """Say that the user is the same inside, and forbid further user namespaces.

    Those are what an ordinary command could get fresh capabilities from. The files belong to root while
    a process is not dumpable; nothing secret is in this one yet.
    """
    prctl("dumpable", PR_SET_DUMPABLE, 1)
    try:
        # Again, where the first time this process belonged to root.
        write_if_allowed(proc, "self/oom_score_adj", "1000")
        write_file(proc, "self/setgroups", "deny")
        write_file(proc, "self/uid_map", f"{uid} {uid} 1")
        write_file(proc, "self/gid_map", f"{gid} {gid} 1")
    except OSError as error:
        raise Failure("id maps", error.errno or 0) from None
    finally:
        prctl("dumpable", PR_SET_DUMPABLE, 0)
    write_if_allowed(proc, "sys/user/max_user_namespaces", "0")
    # Else it uses up all its user's: these are parts of the least that a kernel gives a user.
    write_if_allowed(proc, "sys/user/max_inotify_instances", "16")
    write_if_allowed(proc, "sys/user/max_inotify_watches", "4096")


def leave_keyring() -> None:
    """Take a fresh session keyring: the inherited one gives access to its keys."""
    number = SYS_KEYCTL.get(os.uname().machine)
    if number is None:
        raise Failure("architecture", errno.ENOSYS)
    # Where the call is not to be had, the command does not have it either.
    if syscall(number, KEYCTL_JOIN_SESSION_KEYRING, 0) < 0 and ctypes.get_errno() not in (
        errno.ENOSYS,
        errno.EPERM,
        errno.EACCES,
    ):
        raise Failure("session keyring", ctypes.get_errno())


def drop_privileges() -> None:
    """No capability is held, can be gained by exec, or can be raised again."""
    stage = "capabilities"
    prctl(stage, PR_SET_SECUREBITS, SECUREBITS)
    prctl(stage, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    for capability in range(64):
        if libc.prctl(PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0) < 0:
            if ctypes.get_errno() == errno.EINVAL:  # One above the last there is.
                break
            raise Failure(stage, ctypes.get_errno())
    hold_none()


def hold_none() -> None:
    """Hold no capability, and gain none by exec."""
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    check("capabilities", libc.capset(header, (ctypes.c_uint32 * 6)()))
    prctl("no_new_privs", PR_SET_NO_NEW_PRIVS, 1)


def run_command(
    job: dict[str, Any], control: int, init: int, rules: landlock.Rules, found: list[tuple[int, int] | None]
) -> None:
    """Confine this process, wait for the word, become the command.

    Arguments:
        init: on it pid 1 tells that it is held; the command must not start before.
        found: device and inode of what was bound.
    """
    # A group of its own, else `kill 0` would mean pid 1 as well. The session is the launcher's, which
    # has no terminal; another setsid here costs 4 ms on a busy machine (a new scheduling group).
    os.setpgid(0, 0)
    close_other((control, init, rules.fd))
    limit(job)
    hold(rules, job["filter"])
    if job["watch"]:
        let_be_watched(job["watch"], control)
    if receive(init)[0] != b"held":
        os._exit(126)
    os.close(init)
    offer(job, control, found)


def settle(job: dict[str, Any]) -> None:
    """Signals, streams and working folder as every command has them."""
    reset_signals()
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
    for target, mode in ((0, os.O_RDONLY), (1, os.O_WRONLY), (2, os.O_WRONLY)):
        null = os.open("/dev/null", mode)
        os.dup2(null, target)
        os.close(null)
    try:
        os.chdir(job["cwd"])
    except OSError as error:
        raise Failure("cwd", error.errno or 0, job["cwd"]) from None


def limit(job: dict[str, Any]) -> None:
    """Bound this process and all that comes from it: the command's own, never the one that waits for it.

    Pid 1 takes processor time for each process that the command leaves behind, and must not end of that.
    """
    for which, value in job["limits"]:
        _, hard = resource.getrlimit(which)
        most = value if hard == resource.RLIM_INFINITY else min(value, hard)
        # A process told of its last second ends by SIGXCPU, and one that does not care by SIGKILL after it.
        last = (
            most + 1
            if which == resource.RLIMIT_CPU and (hard == resource.RLIM_INFINITY or most < hard)
            else most
        )
        resource.setrlimit(which, (most, last))


def offer(
    job: dict[str, Any],
    control: int,
    found: list[tuple[int, int] | None],
    change: Callable[[dict[str, str]], dict[str, str]] = dict,
) -> None:
    """Say that all is ready, wait for the word, become the command; `change` is done to its environment."""
    send(control, b"ready " + marshal.dumps(found, 2))
    warm = job["warm"]
    if warm is None:
        go(control, CLOSE_RANGE_CLOEXEC, lambda argv, env: execute(argv, change(env)))
    else:
        from toolcrib.sandbox.child import warm as zygote

        call_main = zygote.call_main
        as_forked()
        script = zygote.prepare(warm)
        if not readable(control):  # Not wanted yet.
            zygote.rehearse(script)
        go(control, 0, lambda _, env: call_main(warm, change(env)))


def let_be_watched(code: bytes, control: int) -> None:
    """Have the server told of each watched call from now on, and let it read which paths they name."""
    prctl("dumpable", PR_SET_DUMPABLE, 1)  # Nothing secret has come here yet.
    try:
        listener = seccomp.listen(code)
    except OSError as error:
        raise Failure("watch", error.errno or 0) from None
    send(control, b"watch", (listener,))
    os.close(listener)


def reset_signals() -> None:
    """Every signal does what it does by default; whoever started the server may have ignored some (nohup).

    The C library keeps two numbers to itself and refuses to set them, so those are set by the system call.
    """
    number = SYS_RT_SIGACTION.get(os.uname().machine)
    default = bytes(32)
    for signal in range(1, 65):
        try:
            _signal.signal(signal, _signal.SIG_DFL)
        except (OSError, ValueError):
            if number is not None:
                syscall(number, signal, default, 0, 8)


def rules_of(job: dict[str, Any]) -> tuple[landlock.Rules, landlock.Rules]:
    """The same grants a second time, for Landlock; and those of pid 1.

    It cannot take away below what it gave; what is read-only or hidden inside a writable folder is held
    by the mounts alone.
    """
    connect_ports, bind_ports = network.ports(job)
    writable = ["/tmp", "/dev/shm"]  # noqa: S108 - its own
    readable_only: list[str] = []
    for _, target, mode, _ in job["mounts"]:
        if mode in ("ro", "rw", "ro?", "rw?") and os.path.lexists(target):
            (writable if mode.startswith("rw") else readable_only).append(target)
    try:
        theirs = landlock.Rules(
            read=["/proc"],
            execute=[*readable_only, *writable],
            write=writable,
            devices=[f"/dev/{name}" for name in DEVICES],
            listing=["/"],
            connect_ports=connect_ports,
            bind_ports=bind_ports,
        )
        return theirs, waiting.rules()
    except OSError as error:
        raise Failure("landlock", error.errno or 0, text=str(error.filename or "")) from None


def hold(rules: landlock.Rules, code: bytes) -> None:
    """Hold this process by Landlock, which forbids mounting, and by a filter, which forbids most else."""
    try:
        rules.enforce()
    except OSError as error:
        raise Failure("landlock", error.errno or 0) from None
    try:
        seccomp.install(code)
    except OSError as error:
        raise Failure("seccomp", error.errno or 0) from None


def go(control: int, close: int, start: Callable[[list[str], dict[str, str]], None]) -> None:
    """Wait for what depends on the call, put the streams in place and start.

    The rest of the descriptors is closed; for a command by exec itself, so that a failing exec can still
    be told.
    """
    words, fds = receive(control)
    if not words:  # Not wanted any more.
        os._exit(0)
    given = dict(zip(words.decode().split(), fds, strict=True))
    call: dict[str, Any] = marshal.loads(whole(given["call"]))  # noqa: S302 - the server wrote it
    report(control, "exec")
    count = 4 if "result" in given else 3
    for target, name in enumerate(STREAMS):
        if given.get(name) == target:
            os.set_inheritable(target, True)
        elif name in given:
            os.dup2(given[name], target)
    check("descriptors", syscall(SYS_CLOSE_RANGE, count, 0xFFFFFFFF, close))
    start(call["argv"], call["env"])


def execute(argv: list[str], env: dict[str, str]) -> None:
    """Replace this process; look on the command's own PATH for a name without a slash."""
    name = argv[0]
    if "/" in name:
        candidates = [name]
    else:
        folders = env.get("PATH", "/usr/local/bin:/usr/bin:/bin").split(":")
        candidates = [f"{folder or '.'}/{name}" for folder in folders]
    failure = Failure("exec", errno.ENOENT, name)
    for candidate in candidates:
        try:
            os.execve(candidate, argv, env)  # noqa: S606 - the shell is what the job may name, or not
        except OSError as error:
            missing = error.errno in (errno.ENOENT, errno.ENOTDIR)
            # A file that is there and yet "not found" names an interpreter that is not.
            interpreter = missing and os.path.exists(candidate)
            if missing and not interpreter:
                continue
            failure = Failure("exec", error.errno or 0, candidate, "interpreter" if interpreter else "")
            if error.errno != errno.EACCES:
                break
    raise failure
