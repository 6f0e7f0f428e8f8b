"""Build the sandbox round one command: run as a script by the interpreter, never imported by the server.

    server ──spawn──> launcher ──fork──> pid 1 of the sandbox ──fork──> pid 2: the command
                      (new user and      (new mount, net, ipc, uts and
                       pid namespace)     cgroup namespaces; reaps)

One stdlib-only file, so that any interpreter can run it. It is started with an empty environment and
gets its job by a private descriptor, so that no secret stands in `/proc/PID/environ` or on a command
line. What goes wrong is told on the control socket, never on the command's own streams, and nothing is
ever run less confined than the job says. It imports neither `json` nor `signal`: they cost as much time
as all the rest.

Argument: the number of the job's descriptor. Standard input is the control socket (SOCK_SEQPACKET):

    to the server    `exec` the command starts · `exit STATUS` (as of waitpid) the command has ended ·
                     `fail STAGE NUL ERRNO NUL PATH NUL TEXT` nothing was run · `lost` pid 1 was killed
    to the launcher  `term` SIGTERM for the command · `kill` the end of everything, as is a closed socket
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` without `enum`, which is most of its import time
import ctypes
import errno
import fcntl
import marshal
import os
import resource
import select
import stat
import sys

TYPE_CHECKING = False  # as `typing` has it, whose import takes as long as the interpreter's start
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

# linux/sched.h
NEWNS, NEWCGROUP, NEWUTS, NEWIPC = 0x20000, 0x2000000, 0x4000000, 0x8000000
NEWUSER, NEWPID, NEWNET = 0x10000000, 0x20000000, 0x40000000
# linux/prctl.h
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_SECUREBITS = 1, 4, 24, 28
PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 38, 47, 4
# noroot, no_setuid_fixup, no_cap_ambient_raise, each of them and keep_caps locked (linux/securebits.h)
SECUREBITS = 0xEF
CAPABILITY_VERSION_3 = 0x20080522
# linux/mount.h
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REC, MS_PRIVATE = 1, 2, 4, 8, 0x4000, 0x40000
MNT_DETACH = 2
ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV, ATTR_NOEXEC = 1, 2, 4, 8
OPEN_TREE_CLONE, MOVE_MOUNT_FROM_FD, MOVE_MOUNT_TO_FD = 1, 0x4, 0x40
# linux/fcntl.h, linux/openat2.h, linux/close_range.h
AT_FDCWD, AT_EMPTY_PATH, AT_RECURSIVE = -100, 0x1000, 0x8000
RESOLVE_NO_SYMLINKS, RESOLVE_BENEATH = 0x04, 0x08
CLOSE_RANGE_CLOEXEC = 4
# Numbers every architecture shares (asm-generic/unistd.h).
SYS_OPEN_TREE, SYS_MOVE_MOUNT, SYS_CLOSE_RANGE, SYS_OPENAT2, SYS_MOUNT_SETATTR = 428, 429, 436, 437, 442

SYS_KEYCTL = {"x86_64": 250, "aarch64": 219}
SYS_RT_SIGACTION = {"x86_64": 13, "aarch64": 134}
KEYCTL_JOIN_SESSION_KEYRING = 1

SIGKILL, SIGTERM = 9, 15
OLD = "/.toolcrib-old"
MASK_FILE, MASK_FOLDER = "/.toolcrib-file", "/.toolcrib-folder"
DEVICES = ("null", "zero", "full", "random", "urandom")
PROC_MASKS = (
    "acpi", "bus", "cmdline", "driver", "kallsyms", "kcore", "key-users", "keys", "kmsg", "kpagecgroup",
    "kpagecount", "kpageflags", "latency_stats", "sched_debug", "scsi", "slabinfo", "sysrq-trigger",
    "timer_list", "vmallocinfo",
)  # fmt: skip
KERNEL_FILESYSTEMS = frozenset((
    "autofs", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "devtmpfs", "efivarfs", "fusectl",
    "mqueue", "nsfs", "proc", "pstore", "securityfs", "selinuxfs", "sysfs", "tracefs",
))  # fmt: skip

libc = ctypes.CDLL(None, use_errno=True)


class Failure(Exception):
    """A step that did not work: nothing was run."""

    def __init__(self, stage: str, number: int, path: str = "", text: str = "") -> None:
        super().__init__(stage, number, path, text)
        self.stage = stage
        self.message = "\0".join((f"fail {stage}", str(number), path, text))


def check(stage: str, result: int, path: str = "") -> int:
    """Pass on a system call's result, or raise what its `errno` says."""
    if result < 0:
        raise Failure(stage, ctypes.get_errno(), path)
    return result


def syscall(number: int, *args: int | bytes | ctypes.Array[Any]) -> int:
    """Make a system call that libc may not know; integers are passed at full width."""
    wide = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    return int(libc.syscall(ctypes.c_long(number), *wide))


def prctl(stage: str, option: int, value: int, third: int = 0) -> None:
    """Call prctl(2) or fail."""
    check(stage, libc.prctl(option, *(ctypes.c_ulong(v) for v in (value, third, 0, 0))))


def write_file(folder: int, path: str, text: str) -> None:
    """Write to a file of the kernel in one go."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def write_if_allowed(folder: int, path: str, text: str) -> None:
    """The same for what is no promise: a container may have /proc read-only."""
    try:
        write_file(folder, path, text)
    except OSError:
        pass


# The launcher: namespaces that only a new process enters, then a watch over pid 1.


def main(job_fd: int) -> None:
    """Read the job, start pid 1, obey the server, end when pid 1 has ended."""
    control = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 10)
    guarded(control, lambda: launch(control, job_fd))


def launch(control: int, job_fd: int) -> None:
    """Prepare, fork pid 1 and watch it."""
    prctl("parent death signal", PR_SET_PDEATHSIG, SIGKILL)
    if hung_up(control):  # The server died before the line above.
        return
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
    # When memory runs out, this and all below it goes before the server does.
    proc = os.open("/proc", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    write_if_allowed(proc, "self/oom_score_adj", "1000")
    privileged = enter_namespaces(proc)
    # Dumpable until here, else the id maps could not be written; from here on no process of the same
    # user reads what is in memory.
    prctl("dumpable", PR_SET_DUMPABLE, 0)
    job = read_job(job_fd)
    life_read, life_write = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        os.close(life_write)
        guarded(control, lambda: run_init(job, control, life_read, proc if privileged else -1))
    close_all((0, 1, 2, life_read, proc, *job["fds"].values()))
    watch(control, pid)


def hung_up(fd: int) -> bool:
    """Whether the other end of a pipe or socket is closed."""
    poll = select.poll()
    poll.register(fd, 0)
    return bool(poll.poll(0))


def report(control: int, message: str) -> None:
    """Tell the server; when it is gone there is nobody to tell."""
    try:
        os.write(control, message.encode("utf-8", "surrogateescape"))
    except OSError:
        pass


def guarded(control: int, body: Callable[[], None]) -> None:
    """Run the rest of a forked process; whatever comes out is told, and the process ends."""
    try:
        body()
    except Failure as failure:
        report(control, failure.message)
    except BaseException as error:
        number = error.errno or 0 if isinstance(error, OSError) else 0
        report(control, Failure("set-up", number, text=repr(error)).message)
    finally:
        os._exit(126)


def enter_namespaces(proc: int) -> bool:
    """Have the next child start a new pid namespace; whether that took no user namespace."""
    if os.geteuid() == 0 and libc.unshare(NEWPID) == 0:
        os.setgroups([])
        return True
    enter_user_namespace(proc)
    check("pid namespace", libc.unshare(NEWPID))
    return False


def enter_user_namespace(proc: int) -> None:
    """Keep the user, gain rights over what is made from here on, and forbid further user namespaces.

    The last is what an ordinary command could get fresh capabilities from.
    """
    uid, gid = os.geteuid(), os.getegid()
    check("user namespace", libc.unshare(NEWUSER))
    try:
        write_file(proc, "self/setgroups", "deny")
        write_file(proc, "self/uid_map", f"{uid} {uid} 1")
        write_file(proc, "self/gid_map", f"{gid} {gid} 1")
    except OSError as error:
        raise Failure("id maps", error.errno or 0) from None
    write_if_allowed(proc, "sys/user/max_user_namespaces", "0")


def close_all(fds: Iterable[int]) -> None:
    """Close what this process does not need; -1 stands for none."""
    for fd in fds:
        if fd >= 0:
            os.close(fd)


def read_job(fd: int) -> dict[str, Any]:
    """Read the job to its end and move its descriptors out of the way of 0 to 3."""
    chunks = []
    while chunk := os.read(fd, 1 << 20):
        chunks.append(chunk)
    os.close(fd)
    job: dict[str, Any] = marshal.loads(b"".join(chunks))  # noqa: S302 - written by the server that started us
    for name, old in job["fds"].items():
        if old >= 0:
            job["fds"][name] = fcntl.fcntl(old, fcntl.F_DUPFD_CLOEXEC, 10)
            os.close(old)
    return job


def watch(control: int, pid: int) -> None:
    """Pass on the server's orders until pid 1 has ended; when the server is gone, end it."""
    pidfd = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(control, select.POLLIN)
    poll.register(pidfd, select.POLLIN)
    while True:
        ready = {fd for fd, _ in poll.poll()}
        if pidfd in ready:
            break
        try:
            order = os.read(control, 64)
        except OSError:  # The server is gone and left something unread.
            order = b""
        if order == b"term":
            os.kill(pid, SIGTERM)
        else:
            os.kill(pid, SIGKILL)
            poll.unregister(control)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        report(control, "lost")
    os._exit(0)


# Pid 1 of the sandbox: everything else, then nothing but reaping.


def run_init(job: dict[str, Any], control: int, life: int, proc: int) -> None:
    """Enter the other namespaces, build the root, give up every privilege, start and reap the command.

    `proc` is the old /proc where no user namespace has been entered yet, else -1.
    """
    prctl("parent death signal", PR_SET_PDEATHSIG, SIGKILL)
    if hung_up(life):  # The launcher died before the line above.
        return
    for name, flag in (
        ("mount namespace", NEWNS),
        ("network namespace", NEWNET),
        ("ipc namespace", NEWIPC),
        ("uts namespace", NEWUTS),
        ("cgroup namespace", NEWCGROUP),
    ):
        check(name, libc.unshare(flag))
    check("uts namespace", libc.sethostname(b"sandbox", ctypes.c_size_t(7)))
    os.umask(0o022)
    leave_keyring()
    build_root(job)
    if proc >= 0:
        # Mounts were made with all the rights of root; the command shall have none over the machine.
        try:
            enter_user_namespace(proc)
        except Failure as failure:
            if failure.stage != "user namespace":  # Where there are none, the command can make none.
                raise
    drop_privileges()
    pid = os.fork()
    if pid == 0:
        guarded(control, lambda: run_command(job, control))
    _signal.signal(SIGTERM, lambda *_: os.kill(pid, SIGTERM))
    close_all((0, 1, 2, life, proc, *job["fds"].values()))
    while True:
        ended, status = os.wait()
        if ended == pid:
            report(control, f"exit {status}")
            os._exit(0)


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
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    check(stage, libc.capset(header, (ctypes.c_uint32 * 6)()))
    prctl("no_new_privs", PR_SET_NO_NEW_PRIVS, 1)


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


def run_command(job: dict[str, Any], control: int) -> None:
    """Become the command."""
    # A group of its own, else `kill 0` would mean pid 1 as well. The session is the launcher's, which
    # has no terminal; another setsid here costs 4 ms on a busy machine (a new scheduling group).
    os.setpgid(0, 0)
    reset_signals()
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
    try:
        os.chdir(job["cwd"])
    except OSError as error:
        raise Failure("cwd", error.errno or 0, job["cwd"]) from None
    for which, value in job["limits"]:
        _, hard = resource.getrlimit(which)
        limit = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(which, (limit, limit))
    # Landlock comes here: it forbids mounting, so not earlier.
    fds = job["fds"]
    stdin = fds["stdin"] if fds["stdin"] >= 0 else os.open("/dev/null", os.O_RDONLY)
    for target, source in enumerate((stdin, fds["stdout"], fds["stderr"], fds["result"])):
        if source >= 0:
            os.dup2(source, target)
    # Closed by exec itself, so that a failing exec can still be told.
    first = 4 if fds["result"] >= 0 else 3
    check("descriptors", syscall(SYS_CLOSE_RANGE, first, 0xFFFFFFFF, CLOSE_RANGE_CLOEXEC))
    report(control, "exec")
    # seccomp comes here, last: it forbids most of the above.
    execute(job["argv"], job["env"])


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


# The private root.


def build_root(job: dict[str, Any]) -> None:
    """Make a new root of memory, put into it what the job grants, leave the old one."""
    mount("", "/", "", MS_REC | MS_PRIVATE, "")
    stage = "/proc"  # Any folder would do to hang the new root on: it moves away at once.
    mount("tmpfs", stage, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=4m,nr_inodes=65536")
    os.mkdir(stage + OLD)
    check("pivot_root", libc.pivot_root(stage.encode(), (stage + OLD).encode()))
    os.chdir("/")
    old = os.open(OLD, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    new = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    os.mkdir(MASK_FOLDER, 0)
    os.close(os.open(MASK_FILE, os.O_CREAT | os.O_CLOEXEC, 0))
    build_proc(new)
    build_dev(old, new)
    for folder, size in (("/tmp", job["tmp_size"]), ("/dev/shm", job["tmp_size"])):  # noqa: S108 - its own
        os.mkdir(folder)
        mount(
            "tmpfs",
            folder,
            "tmpfs",
            MS_NOSUID | MS_NODEV,
            f"mode=1777,size={size},nr_inodes={max(1024, size >> 12)}",
        )
    for target, text in job["links"]:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.symlink(text, target)
    for source, target, mode, make in job["mounts"]:
        bind(old, new, source, target, mode, make)
    refuse_kernel_mounts()
    os.rmdir(MASK_FOLDER)
    os.unlink(MASK_FILE)
    check("umount", libc.umount2(OLD.encode(), MNT_DETACH))
    os.rmdir(OLD)
    check("mount_setattr", set_attributes(AT_FDCWD, b"/", 0, ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV))
    os.close(old)
    os.close(new)


def mount(source: str, target: str, kind: str, flags: int, data: str) -> None:
    """Call mount(2) or fail."""
    args = (source.encode(), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), data.encode())
    check(kind or "mount", libc.mount(*args), target)


def build_proc(new: int) -> None:
    """Show the sandbox's own processes; all of it read-only, since uid 0 owns /proc/sys."""
    os.mkdir("/proc")
    mount("proc", "/proc", "proc", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, "")
    for name in PROC_MASKS:
        bind(-1, new, "", f"/proc/{name}", "hide", False)


def build_dev(old: int, new: int) -> None:
    """Offer the harmless devices; read-only, which does not keep a device from being written to."""
    os.mkdir("/dev")
    for name in DEVICES:
        bind(old, new, f"/dev/{name}", f"/dev/{name}", "device", True)
    for name, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        os.symlink(f"/proc/self/fd{target}", f"/dev/{name}")


def bind(old: int, new: int, source: str, target: str, mode: str, make: bool) -> None:
    """Attach one file or folder of the old root to the new one.

    `mode` is ro, rw, hide, empty or device; a question mark behind it: only where it exists. Symbolic
    links are not followed on either side and the attributes are set before the tree can be seen.
    """
    try:
        origin, to = open_ends(old, new, source, target, mode.rstrip("?"), make)
    except OSError as error:
        if mode.endswith(("?", "hide")) and error.errno in (errno.ENOENT, errno.ENOTDIR):
            return
        raise Failure("grant", error.errno or 0, target) from None
    mode = mode.rstrip("?")
    flags = OPEN_TREE_CLONE | os.O_CLOEXEC | AT_EMPTY_PATH | AT_RECURSIVE
    tree = check("open_tree", syscall(SYS_OPEN_TREE, origin, b"", flags), target)
    attributes = ATTR_NOSUID | (0 if mode == "rw" else ATTR_RDONLY) | (0 if mode == "device" else ATTR_NODEV)
    # An empty folder may hold grants that were mounted before it and keep what they are.
    depth = AT_EMPTY_PATH | (0 if mode == "empty" else AT_RECURSIVE)
    check("mount_setattr", set_attributes(tree, b"", depth, attributes), target)
    done = syscall(SYS_MOVE_MOUNT, tree, b"", to, b"", MOVE_MOUNT_FROM_FD | MOVE_MOUNT_TO_FD)
    check("move_mount", done, target)
    for fd in (tree, origin, to):
        os.close(fd)


def open_ends(old: int, new: int, source: str, target: str, mode: str, make: bool) -> tuple[int, int]:
    """Open what is to be attached, and the place it is to be attached at."""
    if mode == "hide":
        to = resolve(new, target)
        folder = stat.S_ISDIR(os.fstat(to).st_mode)
        return resolve(new, MASK_FOLDER if folder else MASK_FILE), to
    if mode == "empty":
        os.makedirs(target, exist_ok=True)
        return resolve(new, target), resolve(new, target)
    origin = resolve(old, source)
    if make:
        make_target(target, stat.S_ISDIR(os.fstat(origin).st_mode))
    return origin, resolve(new, target)


def resolve(root: int, path: str) -> int:
    """Open a path below a root for reference only, through no symbolic link."""
    how = (ctypes.c_uint64 * 3)(os.O_PATH | os.O_CLOEXEC, 0, RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH)
    fd = syscall(SYS_OPENAT2, root, os.fsencode(path.lstrip("/") or "."), how, ctypes.sizeof(how))
    if fd < 0:
        number = ctypes.get_errno()
        if number == errno.ENOSYS:
            raise Failure("openat2", number)
        raise OSError(number, os.strerror(number), path)
    return fd


def make_target(target: str, folder: bool) -> None:
    """Make an empty place to mount on, in memory of our own."""
    if folder:
        os.makedirs(target, exist_ok=True)
    elif not os.path.lexists(target):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def set_attributes(fd: int, path: bytes, flags: int, attributes: int) -> int:
    """Call mount_setattr(2), which changes a whole tree at once."""
    record = (ctypes.c_uint64 * 4)(attributes, 0, MS_PRIVATE, 0)
    return syscall(SYS_MOUNT_SETATTR, fd, path, flags, record, ctypes.sizeof(record))


def refuse_kernel_mounts() -> None:
    """Refuse a grant with a file system of the kernel mounted inside: it shows other processes."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            fields = line.split(" ")
            place, kind = fields[4], fields[fields.index("-", 6) + 1]
            own = place == OLD or place.startswith((f"{OLD}/", "/proc", "/dev/"))
            if kind in KERNEL_FILESYSTEMS and not own:
                raise Failure("kernel mount", errno.EPERM, place, kind)


if __name__ == "__main__":
    main(int(sys.argv[1]))
