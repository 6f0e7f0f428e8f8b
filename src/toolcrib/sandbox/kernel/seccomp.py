"""The system call filter: which calls a confined process may not make, as data, and as a BPF program.

Our own, because the bindings of libseccomp need that C library installed, and because the filter is put on
between fork and exec, where only the standard library may be loaded. `program` builds it in the server, once
for each kind; `install` puts it on in the child, just before exec. Only `program` loads the tables.

Refused is what no tool needs and what would reach past the sandbox: other ways to mount, to make namespaces,
to open files, to see other processes; kernel interfaces with a history of holes; setuid bits and devices,
which would outlive the call on a granted folder. Calls that libc or programs try before a plainer one answer
ENOSYS, so they take the plainer one; so does each call newer than the tables.

The program first checks the architecture (a 32-bit call has other numbers), then finds the call's range by
binary search. The kernel works out at installation which calls are allowed whatever their arguments, and
never runs the program for those (Linux 5.11). It can follow only the plain instructions used here.
"""

from __future__ import annotations

import ctypes
import errno
import os

from toolcrib.sandbox.kernel import bpf
from toolcrib.sandbox.kernel.libc import check_os, libc, syscall

TYPE_CHECKING = False  # importing it from `typing` takes as long as starting the interpreter
if TYPE_CHECKING:
    from collections.abc import Iterable

    from toolcrib.sandbox.kernel.bpf import Instruction

    Condition = tuple[str, int, int, tuple[int, ...]]
    """A condition on an argument: kind, index of the argument, mask, values after masking."""
    ArgumentRule = tuple[int, tuple[Condition, ...]]
    """A call fails with this errno if all of these are met."""

# sys/socket.h, linux/in.h, linux/netlink.h: the same on both architectures.
AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16
SOCK_STREAM, SOCK_DGRAM, SOCK_RAW, SOCK_SEQPACKET, SOCK_TYPE_MASK = 1, 2, 3, 5, 0xF
IPPROTO_IP, IPPROTO_ICMP, IPPROTO_TCP, IPPROTO_UDP, IPPROTO_ICMPV6 = 0, 1, 6, 17, 58
NETLINK_ROUTE = 0
# linux/sched.h: new cgroup, ipc, mount, net, pid, time, user and uts namespaces.
CLONE_NAMESPACES = 0x7E020080
# linux/stat.h, asm-generic/fcntl.h
S_IFMT, S_IFCHR, S_IFBLK, SET_ID_BITS = 0o170000, 0o020000, 0o060000, 0o6000
O_CREAT, O_TMPFILE_BIT = 0o100, 0o20000000
# linux/fcntl.h: a lease makes others wait who open the file; the second reports the changes of a folder.
F_SETLEASE, F_NOTIFY = 1024, 1026
# asm-generic/ioctls.h: type into a terminal, take its console, load a line discipline.
TERMINAL_REQUESTS = (0x5412, 0x541C, 0x541D, 0x5423)
# linux/btrfs.h: a snapshot of a granted folder would show what mounts hide there; others remove a folder that
# mounts protect, or make a whole project read-only. linux/fscrypt.h: add and remove the keys of a whole file
# system, also by a file that can only be read.
STORAGE_REQUESTS = (
    *(0x50009401, 0x50009417, 0x5000940F, 0x5000943F, 0x4008941A),
    *(0xC0506617, 0xC0406618, 0xC0406619),
)
# asm-generic/hugetlb_encode.h, linux/memfd.h, linux/shm.h: no limit of memory counts these pages, which the
# whole machine shares.
MAP_HUGETLB, MFD_HUGETLB, SHM_HUGETLB = 0x40000, 4, 0o4000
# linux/personality.h: 64 and 32 bit, an old version number, a fixed layout, and a question for the present
# one.
PERSONALITIES = (0, 0x0008, 0x0020000, 0x0020008, 0x0040000, 0xFFFFFFFF)
# linux/prctl.h, linux/seccomp.h
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
SET_MODE_FILTER, FLAG_NEW_LISTENER, FLAG_WAIT_KILLABLE = 1, 8, 32
SYS_SECCOMP = {"x86_64": 317, "aarch64": 277}
WORD = 0xFFFFFFFF

ALWAYS: tuple[tuple[int, str], ...] = (
    # Programs fall back to an older call, whose arguments a filter can check.
    (errno.ENOSYS, "clone3 openat2 fchmodat2"),
    # io_setup takes from a limit that the whole machine shares (fs.aio-max-nr).
    (errno.ENOSYS, "io_uring_setup io_uring_enter io_uring_register io_setup"),
    (errno.ENOSYS, "setxattrat removexattrat file_setattr open_tree_attr"),
    (errno.ENOSYS, "memfd_secret modify_ldt lookup_dcookie uselib"),
    # Attributes: mv and cp -a ignore this errno, and complain about EPERM.
    (errno.ENOTSUP, "setxattr lsetxattr fsetxattr removexattr lremovexattr fremovexattr"),
    (errno.EPERM, "mount umount2 pivot_root chroot setns"),
    (errno.EPERM, "fsopen fsconfig fsmount fspick move_mount open_tree mount_setattr"),
    (errno.EPERM, "name_to_handle_at open_by_handle_at fanotify_init fanotify_mark"),
    (errno.EPERM, "ptrace process_vm_readv process_vm_writev process_madvise process_mrelease"),
    (errno.EPERM, "kcmp pidfd_getfd move_pages migrate_pages"),
    (errno.EPERM, "add_key request_key keyctl bpf perf_event_open userfaultfd"),
    (errno.EPERM, "init_module finit_module delete_module kexec_load kexec_file_load"),
    (errno.EPERM, "reboot swapon swapoff quotactl quotactl_fd acct syslog vhangup iopl ioperm"),
    (errno.EPERM, "settimeofday clock_settime clock_adjtime adjtimex sethostname setdomainname"),
)
"""Always refused."""

SHARED: tuple[tuple[int, str], ...] = (
    (errno.EPERM, "shmget shmat shmctl semget semop semtimedop semctl"),
    (errno.EPERM, "msgget msgsnd msgrcv msgctl mq_open mq_unlink"),
    # Landlock does not check these.
    (errno.ENOTSUP, "getxattr lgetxattr getxattrat listxattr llistxattr listxattrat"),
)
"""Calls that are also refused where the process shares the machine's IPC objects and files with others."""
MODES = "chmod fchmod fchmodat chown fchown lchown fchownat"
"""Calls that are also refused where a process has no mount tree of its own: Landlock does not check them, and
whoever owns a file may make them."""


INIT_ALLOWED = {
    "brk": (12, 214),
    "close": (3, 57),
    "exit": (60, 93),
    "exit_group": (231, 94),
    "futex": (202, 98),
    "getpid": (39, 172),
    "getsockname": (51, 204),
    "getsockopt": (55, 209),
    "kill": (62, 129),
    "madvise": (28, 233),
    "munmap": (11, 215),
    "restart_syscall": (219, 128),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "sendmsg": (46, 211),
    "wait4": (61, 260),
}
"""The calls of pid 1 once its command runs: name to number on x86_64 and on aarch64 (asm/unistd.h)."""
MMAP = (9, 222)
PROT_EXEC = 4


# Conditions. The kernel reads these arguments as 32 bits or fewer, so the upper half has no meaning.


def bits(argument: int, mask: int) -> Condition:
    """Return the condition that any of these bits is set."""
    return "bits", argument, mask, ()


def among(argument: int, *values: int, mask: int = WORD) -> Condition:
    """Return the condition that the argument, masked, is one of the values."""
    return "among", argument, mask, values


def other_than(argument: int, *values: int, mask: int = WORD) -> Condition:
    """Return the condition that the argument, masked, is none of the values."""
    return "other", argument, mask, values


def refuse(number: int, *conditions: Condition) -> ArgumentRule:
    """Return the rule that a call fails with this errno if all conditions are met."""
    return number, conditions


def checked() -> dict[str, tuple[ArgumentRule, ...]]:
    """Return the calls refused for some arguments only, in every sandbox."""
    set_id = [refuse(errno.EPERM, bits(argument, SET_ID_BITS)) for argument in range(4)]
    namespaces = (refuse(errno.EPERM, bits(0, CLONE_NAMESPACES)),)
    creates = O_CREAT | O_TMPFILE_BIT
    return {
        "clone": namespaces,
        "unshare": namespaces,
        # A set-id bit comes with chmod, with making a file, and with mknod of a plain file.
        "chmod": (set_id[1],),
        "fchmod": (set_id[1],),
        "fchmodat": (set_id[2],),
        "creat": (set_id[1],),
        "open": (refuse(errno.EPERM, bits(1, creates), bits(2, SET_ID_BITS)),),
        "openat": (refuse(errno.EPERM, bits(2, creates), bits(3, SET_ID_BITS)),),
        "mknod": (set_id[1], refuse(errno.EPERM, among(1, S_IFCHR, S_IFBLK, mask=S_IFMT))),
        "mknodat": (set_id[2], refuse(errno.EPERM, among(2, S_IFCHR, S_IFBLK, mask=S_IFMT))),
        "fcntl": (refuse(errno.EACCES, among(1, F_SETLEASE, F_NOTIFY)),),
        "ioctl": (refuse(errno.EPERM, among(1, *TERMINAL_REQUESTS, *STORAGE_REQUESTS)),),
        # As on a machine that has no such pages, so programs take others.
        "mmap": (refuse(errno.ENOMEM, bits(3, MAP_HUGETLB)),),
        "memfd_create": (refuse(errno.ENOMEM, bits(1, MFD_HUGETLB)),),
        "shmget": (refuse(errno.ENOMEM, bits(2, SHM_HUGETLB)),),
        "personality": (refuse(errno.EPERM, other_than(0, *PERSONALITIES)),),
        "socketpair": (refuse(errno.EAFNOSUPPORT, other_than(0, AF_UNIX)),),
    }


def shared() -> dict[str, tuple[ArgumentRule, ...]]:
    """Return the calls that could act on processes outside where no namespace hides those: for oneself
    only."""
    others = (refuse(errno.EPERM, other_than(0, 0)),)
    # The first argument says what the second names; a process is 0 for setpriority and 1 for ioprio_set.
    return {
        "prlimit64": others,
        "sched_setaffinity": others,
        "sched_setattr": others,
        "sched_setparam": others,
        "sched_setscheduler": others,
        "setpriority": (refuse(errno.EPERM, other_than(0, 0)), refuse(errno.EPERM, other_than(1, 0))),
        "ioprio_set": (refuse(errno.EPERM, other_than(0, 1)), refuse(errno.EPERM, other_than(1, 0))),
    }


def sockets(*, inet: bool, host: bool, private: bool, watched_sockets: bool) -> tuple[ArgumentRule, ...]:
    """Return the rules of socket(2): raw, packet, vsock and alg sockets and rare protocols are always
    refused.

    Without a network every socket is. Unix sockets are allowed only on the host's network: the filter cannot
    see where one is connected to, and one with a path name may belong to a service outside. MPTCP is refused
    even then, because Landlock's rules for TCP ports do not cover it.
    """
    families = [AF_UNIX] if private and host else []
    found = []
    if inet or host:
        families += [AF_INET, AF_INET6]
        protocols = [IPPROTO_IP, IPPROTO_TCP, IPPROTO_UDP]
        internet = among(0, AF_INET, AF_INET6)
        if host:
            families.append(AF_NETLINK)  # getifaddrs and getaddrinfo ask for the interfaces
            protocols += [IPPROTO_ICMP, IPPROTO_ICMPV6]
            found += [refuse(errno.EPROTONOSUPPORT, among(0, AF_NETLINK), other_than(2, NETLINK_ROUTE))]
        found += [
            refuse(errno.EPERM, internet, other_than(1, SOCK_STREAM, SOCK_DGRAM, mask=SOCK_TYPE_MASK)),
            refuse(errno.EPROTONOSUPPORT, internet, other_than(2, *protocols)),
        ]
    elif watched_sockets:
        families += [AF_INET, AF_INET6]
    else:
        found += [refuse(errno.EACCES, among(0, AF_INET, AF_INET6))]
    if AF_UNIX in families:
        found += [refuse(errno.EPERM, among(0, AF_UNIX), among(1, SOCK_RAW, mask=SOCK_TYPE_MASK))]
    else:
        found += [refuse(errno.EACCES, among(0, AF_UNIX))]
    return (*found, refuse(errno.EAFNOSUPPORT, other_than(0, *families)))


# From rules to instructions.


def program(
    arch: str, *, inet: bool, host: bool = False, private: bool = True, watched_sockets: bool = False
) -> bytes:
    """Build the filter for a machine (`os.uname().machine`).

    Arguments:
        inet: allow TCP and UDP sockets, in a network namespace of the sandbox's own.
        host: allow what programs use on the machine's own network, including unix sockets; never raw ones.
        private: the process has its own ipc, pid and network namespaces and its own mount tree. Where it has
            not, it gets no named sockets (pairs remain), no System V or POSIX message objects, and no
            influence on the priorities and limits of other processes.
        watched_sockets: leave internet sockets to the watcher's filter, which refuses them when nobody
            answers. A refusal here would come first, and the watcher would not see the attempt.

    Raises:
        ValueError: there is no table for this architecture.
    """
    from toolcrib.sandbox.kernel import syscalls

    numbers = syscalls.numbers(arch)
    fixed, rules = tables(inet=inet, host=host, private=private, watched_sockets=watched_sockets)
    code = {numbers[name]: [bpf.refuse(number)] for name, number in fixed.items() if name in numbers}
    code |= {numbers[name]: compile_rules(found) for name, found in rules.items() if name in numbers}
    # The numbers of x32 calls are far greater than LAST, so they end there as well.
    ranges = bpf.ranges_of(code, syscalls.LAST, bpf.refuse(errno.ENOSYS))
    return bpf.encode([
        bpf.load(bpf.DATA_ARCH),
        (bpf.EQUAL, 1, 0, syscalls.AUDIT_ARCH[arch]),
        bpf.answer(bpf.RET_KILL_PROCESS),
        bpf.load(bpf.DATA_NUMBER),
        *bpf.binary_search(ranges),
    ])  # fmt: skip


def init_program(arch: str) -> bytes:
    """Build the filter of pid 1 once its command runs: it waits, kills, reports, and ends.

    It shares the command's user and its pid namespace, so whoever took it over would outlive every limit.

    Raises:
        ValueError: there is no table for this architecture.
    """
    from toolcrib.sandbox.kernel import syscalls

    column = syscalls.column(arch)
    refuse = bpf.refuse(errno.EPERM)
    return bpf.encode([
        bpf.load(bpf.DATA_ARCH),
        (bpf.EQUAL, 1, 0, syscalls.AUDIT_ARCH[arch]),
        refuse,
        bpf.load(bpf.DATA_NUMBER),
        *bpf.match((numbers[column] for numbers in INIT_ALLOWED.values()), bpf.ALLOW),
        (bpf.EQUAL, 1, 0, MMAP[column]),
        refuse,
        bpf.load_argument(2),
        (bpf.ANY_BIT, 0, 1, PROT_EXEC),
        refuse,
        bpf.ALLOW,
    ])  # fmt: skip


def tables(
    *, inet: bool, host: bool, private: bool, watched_sockets: bool
) -> tuple[dict[str, int], dict[str, tuple[ArgumentRule, ...]]]:
    """Return the errno of each call that is always refused, and the rules of those whose arguments decide."""
    rules = dict(checked())
    rules["socket"] = sockets(inet=inet, host=host, private=private, watched_sockets=watched_sockets)
    if not host:  # A datagram socket of a pair can still send to a path name; a raw one is the same inside.
        connected = other_than(1, SOCK_STREAM, SOCK_SEQPACKET, mask=SOCK_TYPE_MASK)
        rules["socketpair"] += (refuse(errno.EACCES, connected),)
    always = list(ALWAYS)
    if not private:
        rules.update(shared())
        always += [*SHARED, (errno.EPERM, MODES)]
    fixed = {name: number for number, names in always for name in names.split()}
    return fixed, {name: found for name, found in rules.items() if name not in fixed}


def compile_rules(rules: Iterable[ArgumentRule]) -> list[Instruction]:
    """Return the code for a call whose arguments decide."""
    code: list[Instruction] = []
    for number, conditions in rules:
        block = [bpf.refuse(number)]
        for condition in reversed(conditions):
            block = [*compile_condition(condition, len(block)), *block]
        code += block
    return [*code, bpf.ALLOW]


def compile_condition(condition: Condition, skip: int) -> list[Instruction]:
    """Return code that continues if the condition is met, and else jumps over `skip` instructions."""
    kind, argument, mask, values = condition
    code = [bpf.load_argument(argument)]
    if kind == "bits":
        return [*code, (bpf.ANY_BIT, 0, skip, mask)]
    if mask != WORD:
        code.append((bpf.AND, 0, 0, mask))
    # The value that is met jumps over the other comparisons: past the block (`other`), or to it (`among`).
    left = range(len(values) - 1, -1, -1)
    if kind == "other":
        return code + [(bpf.EQUAL, skip + n, 0, value) for n, value in zip(left, values, strict=True)]
    return code + [(bpf.EQUAL, n, 0 if n else skip, value) for n, value in zip(left, values, strict=True)]


# In the child.


class FilterProgram(ctypes.Structure):
    """`struct sock_fprog`."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def install(code: bytes) -> None:
    """Put the filter on this thread and all that comes from it; it cannot be taken off.

    Filters stack: each further one can only refuse more.

    Raises:
        OSError: the kernel refuses it; EACCES where no_new_privs is not set.
    """
    whole = FilterProgram(len(code) // 8, code)
    mode, unused = ctypes.c_ulong(SECCOMP_MODE_FILTER), ctypes.c_ulong(0)
    check_os(libc.prctl(PR_SET_SECCOMP, mode, ctypes.byref(whole), unused, unused), "seccomp")


def listen(code: bytes) -> int:
    """Put on a filter that asks; return the descriptor by which a watcher answers (seccomp_unotify(2)).

    Raises:
        OSError: the kernel refuses it; EBUSY where another filter asks already.
    """
    whole = FilterProgram(len(code) // 8, code)
    number = SYS_SECCOMP[os.uname().machine]
    # Without the second flag (Linux 5.19) a signal starts a watched call anew: a program that signals itself
    # all the time would never get on.
    flags = FLAG_NEW_LISTENER | FLAG_WAIT_KILLABLE
    fd = syscall(number, SET_MODE_FILTER, flags, ctypes.byref(whole))
    if fd < 0 and ctypes.get_errno() == errno.EINVAL:
        fd = syscall(number, SET_MODE_FILTER, FLAG_NEW_LISTENER, ctypes.byref(whole))
    return check_os(fd, "seccomp")
