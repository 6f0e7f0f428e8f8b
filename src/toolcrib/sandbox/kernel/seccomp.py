"""The system call filter: which calls a confined process may not make, as data, and as a BPF program.

`program` builds it in the server, once for each kind; `install` puts it on in the child, just before
exec. Imports nothing but what every launcher has loaded anyway, so that a bare interpreter can load this
file by its path; only `program` brings the tables.

What is refused is what no tool needs and what would reach past the sandbox: other ways to mount, to make
namespaces, to open files, to see other processes; kernel interfaces with a history of holes; setuid bits
and devices, which would outlive the call on a granted folder. Calls that libc or programs try before a
plainer one answer ENOSYS, so they take the plainer one; and so does each call newer than the tables.

The program first checks the architecture (a 32-bit call has other numbers), then finds the call's range
by binary search. The kernel works out at installation which calls are allowed whatever their arguments
and never runs the program for those (Linux 5.11), which the plain instructions used here permit.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

TYPE_CHECKING = False  # as `typing` has it, whose import takes as long as the interpreter's start
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    # What must hold of an argument: kind, number of the argument, mask, values after masking.
    Condition = tuple[str, int, int, tuple[int, ...]]
    # A call is refused with this errno when all of these hold.
    Refusal = tuple[int, tuple[Condition, ...]]
    # An instruction, a jump with the labels for true and false (None: the next), or a label.
    Item = tuple[str, int, str | None, str | None]

__all__ = ["install", "listen", "program"]

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
# linux/fcntl.h: a lease, by which whoever opens the file has to wait, and to be told of a folder's changes.
F_SETLEASE, F_NOTIFY = 1024, 1026
# asm-generic/ioctls.h: to type into a terminal, take its console, or load a line discipline.
TERMINAL_REQUESTS = (0x5412, 0x541C, 0x541D, 0x5423)
# linux/personality.h: 64 and 32 bit, an old version number, a fixed layout, and asking for the present one.
PERSONALITIES = (0, 0x0008, 0x0020000, 0x0020008, 0x0040000, 0xFFFFFFFF)
# linux/prctl.h, linux/seccomp.h
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
SET_MODE_FILTER, FLAG_NEW_LISTENER, FLAG_WAIT_KILLABLE = 1, 8, 32
SYS_SECCOMP = {"x86_64": 317, "aarch64": 277}
RET_ALLOW, RET_ERRNO, RET_KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
# seccomp_data, little-endian: the number, the architecture, low half of the first argument.
DATA_NUMBER, DATA_ARCH, DATA_ARGUMENT = 0, 4, 16
# linux/bpf_common.h
OPCODES = {"load": 0x20, "and": 0x54, "ja": 0x05, "jeq": 0x15, "jge": 0x35, "jset": 0x45, "return": 0x06}
LONGEST_JUMP = 255
WORD = 0xFFFFFFFF

ALWAYS: tuple[tuple[int, str], ...] = (
    # Programs fall back to an older call, which can be looked into.
    (errno.ENOSYS, "clone3 openat2 fchmodat2"),
    # io_setup takes from a number that the whole machine shares.
    (errno.ENOSYS, "io_uring_setup io_uring_enter io_uring_register io_setup"),
    (errno.ENOSYS, "setxattrat removexattrat file_setattr open_tree_attr"),
    (errno.ENOSYS, "memfd_secret modify_ldt lookup_dcookie uselib"),
    # Attributes: mv and cp -a go on without a word at this errno, and complain at EPERM.
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
"""Refused whatever the arguments."""

SHARED: tuple[tuple[int, str], ...] = (
    (errno.EPERM, "shmget shmat shmctl semget semop semtimedop semctl"),
    (errno.EPERM, "msgget msgsnd msgrcv msgctl mq_open mq_unlink"),
)
"""Also refused where the process shares the machine's IPC objects with others."""
MODES = "chmod fchmod fchmodat chown fchown lchown fchownat"
"""Also refused where no mount tree of its own keeps a process from files it was not granted: Landlock says
nothing about these calls, and whoever owns a file may make them."""


# Conditions. The kernel takes these arguments as 32 bits or fewer, so the upper half says nothing.


def bits(argument: int, mask: int) -> Condition:
    """Any of these bits is set."""
    return "bits", argument, mask, ()


def among(argument: int, *values: int, mask: int = WORD) -> Condition:
    """The argument, masked, is one of the values."""
    return "among", argument, mask, values


def other_than(argument: int, *values: int, mask: int = WORD) -> Condition:
    """The argument, masked, is none of the values."""
    return "other", argument, mask, values


def refuse(number: int, *conditions: Condition) -> Refusal:
    """Answer with this errno when all conditions hold."""
    return number, conditions


def checked() -> dict[str, tuple[Refusal, ...]]:
    """Calls refused for some arguments only, in every sandbox."""
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
        "ioctl": (refuse(errno.EPERM, among(1, *TERMINAL_REQUESTS)),),
        "personality": (refuse(errno.EPERM, other_than(0, *PERSONALITIES)),),
        "socketpair": (refuse(errno.EAFNOSUPPORT, other_than(0, AF_UNIX)),),
    }


def shared() -> dict[str, tuple[Refusal, ...]]:
    """Calls that would act on processes outside where no namespace hides them: for oneself only."""
    others = (refuse(errno.EPERM, other_than(0, 0)),)
    # The first argument says what the second names: a process is 0 for one call and 1 for the other.
    return {
        "prlimit64": others,
        "sched_setaffinity": others,
        "sched_setattr": others,
        "sched_setparam": others,
        "sched_setscheduler": others,
        "setpriority": (refuse(errno.EPERM, other_than(0, 0)), refuse(errno.EPERM, other_than(1, 0))),
        "ioprio_set": (refuse(errno.EPERM, other_than(0, 1)), refuse(errno.EPERM, other_than(1, 0))),
    }


def sockets(*, inet: bool, host: bool, private: bool, asked: bool = False) -> tuple[Refusal, ...]:
    """What socket(2) is refused; never raw, packet, vsock, alg or any protocol but the common ones.

    Without a network there is none at all. Unix sockets come only with the host's: the filter cannot see whom
    one is connected to, and one with a path name may be a server's outside. MPTCP stays out even then:
    Landlock's rules for TCP ports do not see it.
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
    elif asked:
        families += [AF_INET, AF_INET6]
    else:
        found += [refuse(errno.EACCES, among(0, AF_INET, AF_INET6))]
    if AF_UNIX in families:
        found += [refuse(errno.EPERM, among(0, AF_UNIX), among(1, SOCK_RAW, mask=SOCK_TYPE_MASK))]
    else:
        found += [refuse(errno.EACCES, among(0, AF_UNIX))]
    return (*found, refuse(errno.EAFNOSUPPORT, other_than(0, *families)))


# From rules to instructions.


def program(arch: str, *, inet: bool, host: bool = False, private: bool = True, asked: bool = False) -> bytes:
    """Build the filter for a machine (`os.uname().machine`).

    Arguments:
        inet: allow TCP and UDP sockets, in a network namespace of the sandbox's own.
        host: allow what programs use on the machine's own network, unix sockets among it; never raw ones.
        private: the process has ipc, pid and network namespaces and a mount tree of its own. Where it
            has not, it gets no sockets with names (pairs stay), no System V or POSIX message objects,
            and no say over the priorities and limits of other processes.
        asked: internet sockets are left to the watcher's filter, which has them refused when nobody
            answers: a refusal here would come first, and the watcher would not see that one was wanted.

    Raises:
        ValueError: there is no table for this architecture.
    """
    from toolcrib.sandbox.kernel import syscalls

    numbers = syscalls.numbers(arch)
    rules = dict(checked())
    rules["socket"] = sockets(inet=inet, host=host, private=private, asked=asked)
    if not host:  # A datagram socket of a pair can still send to a path name; a raw one is one of those.
        connected = other_than(1, SOCK_STREAM, SOCK_SEQPACKET, mask=SOCK_TYPE_MASK)
        rules["socketpair"] += (refuse(errno.EACCES, connected),)
    always = list(ALWAYS)
    if not private:
        rules.update(shared())
        always += [*SHARED, (errno.EPERM, MODES)]
        for name in MODES.split():
            rules.pop(name, None)
    fixed = {name: number for number, names in always for name in names.split()}
    labels = {numbers[name]: f"errno {number}" for name, number in fixed.items() if name in numbers}
    labels.update({numbers[name]: name for name in rules if name in numbers})
    # x32 calls have far greater numbers than LAST, so they end there too.
    body = search(ranges(labels, syscalls.LAST))
    for name, refusals in rules.items():
        if name in numbers:
            body += check(name, refusals)
    return assemble([
        ("load", DATA_ARCH, None, None),
        ("jeq", syscalls.AUDIT_ARCH[arch], None, "kill"),
        ("load", DATA_NUMBER, None, None),
        *body,
        *verdicts(body),
        ("label", 0, "kill", None),
        ("return", RET_KILL_PROCESS, None, None),
    ])  # fmt: skip


def ranges(labels: Mapping[int, str], last: int) -> list[tuple[int, str]]:
    """Divide all numbers into ranges with one answer each: the first number of each, and its label."""
    found: list[tuple[int, str]] = []
    for number in (*range(last + 1), last + 1):
        label = labels.get(number, "allow") if number <= last else f"errno {errno.ENOSYS}"
        if not found or found[-1][1] != label:
            found.append((number, label))
    return found


def search(points: list[tuple[int, str]]) -> list[Item]:
    """Find the range that the loaded number is in, and jump to its label."""
    if len(points) == 1:
        return [("ja", 0, points[0][1], None)]
    middle = len(points) // 2
    first = points[middle][0]
    below, above = points[:middle], points[middle:]
    right = above[0][1] if len(above) == 1 else f"from {first}"
    left = below[0][1] if len(below) == 1 else None
    items: list[Item] = [("jge", first, right, left)]
    if len(below) > 1:
        items += search(below)
    if len(above) > 1:
        items += [("label", 0, right, None), *search(above)]
    return items


def check(name: str, refusals: Iterable[Refusal]) -> list[Item]:
    """The instructions for a call whose arguments decide."""
    items: list[Item] = [("label", 0, name, None)]
    for place, (number, conditions) in enumerate(refusals):
        following = f"{name} {place + 1}"
        for index, (kind, argument, mask, values) in enumerate(conditions):
            items.append(("load", DATA_ARGUMENT + 8 * argument, None, None))
            if kind == "bits":
                items.append(("jset", mask, None, following))
                continue
            if mask != WORD:
                items.append(("and", mask, None, None))
            if kind == "other":
                items += [("jeq", value, following, None) for value in values]
                continue
            holds = f"{name} {place}.{index}"
            items += [("jeq", value, holds, None) for value in values[:-1]]
            items += [("jeq", values[-1], None, following), ("label", 0, holds, None)]
        items += [("ja", 0, f"errno {number}", None), ("label", 0, following, None)]
    return [*items, ("ja", 0, "allow", None)]


def verdicts(items: Iterable[Item]) -> list[Item]:
    """The ends that the instructions jump to."""
    wanted = {label for kind, _, *targets in items if kind != "label" for label in targets if label}
    found: list[Item] = [("label", 0, "allow", None), ("return", RET_ALLOW, None, None)]
    for label in sorted(label for label in wanted if label.startswith("errno ")):
        found += [("label", 0, label, None), ("return", RET_ERRNO | int(label.split()[1]), None, None)]
    return found


def assemble(items: list[Item]) -> bytes:
    """Encode as `struct sock_filter`s; BPF jumps forward only, and conditionally at most 255 far.

    A conditional jump that goes further is written as one over two long jumps.

    Raises:
        ValueError: a label is missing, is there twice, or lies behind.
    """
    far: set[int] = set()
    while True:
        places, starts = layout(items, far)
        code = bytearray()
        before = len(far)
        for index, (kind, value, *labels) in enumerate(items):
            if kind == "label":
                continue
            jumps = [distance(label, places, starts[index]) for label in labels]
            if index not in far and kind.startswith("j") and kind != "ja" and max(jumps) > LONGEST_JUMP:
                far.add(index)
            code += encode(kind, value, jumps, long=index in far)
        if len(far) == before:
            return bytes(code)


def layout(items: list[Item], far: set[int]) -> tuple[dict[str, int], list[int]]:
    """Where each label and each item comes to stand."""
    places: dict[str, int] = {}
    starts = []
    position = 0
    for index, (kind, _, label, _) in enumerate(items):
        starts.append(position)
        if kind == "label":
            if label is None or label in places:
                raise ValueError(f"label stands twice: {label}")
            places[label] = position
        else:
            position += 3 if index in far else 1
    return places, starts


def distance(label: str | None, places: Mapping[str, int], start: int) -> int:
    """How many instructions after the one at `start` a label stands, not counting the next."""
    if label is None:
        return 0
    if label not in places:
        raise ValueError(f"no such label: {label}")
    if places[label] <= start:
        raise ValueError(f"label lies behind: {label}")
    return places[label] - start - 1


def encode(kind: str, value: int, jumps: list[int], *, long: bool) -> bytes:
    """One instruction, or a conditional jump written as three."""
    one = struct.Struct("=HBBI")
    opcode = OPCODES[kind]
    if kind == "ja":
        return one.pack(opcode, 0, 0, jumps[0])
    if not kind.startswith("j"):
        return one.pack(opcode, 0, 0, value)
    if not long:
        return one.pack(opcode, min(jumps[0], LONGEST_JUMP), min(jumps[1], LONGEST_JUMP), value)
    # A jump of 0 meant the next item, which now stands two further on.
    ahead = [max(jump, 2) for jump in jumps]
    return b"".join((
        one.pack(opcode, 0, 1, value),
        one.pack(OPCODES["ja"], 0, 0, ahead[0] - 1),
        one.pack(OPCODES["ja"], 0, 0, ahead[1] - 2),
    ))  # fmt: skip


# In the child.

libc = ctypes.CDLL(None, use_errno=True)


class Program(ctypes.Structure):
    """`struct sock_fprog`."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def install(code: bytes) -> None:
    """Put the filter on this thread and all that comes from it; it cannot be taken off.

    Filters stack: each further one can only refuse more.

    Raises:
        OSError: the kernel refuses it; EACCES where no_new_privs is not set.
    """
    whole = Program(len(code) // 8, code)
    mode, unused = ctypes.c_ulong(SECCOMP_MODE_FILTER), ctypes.c_ulong(0)
    if libc.prctl(PR_SET_SECCOMP, mode, ctypes.byref(whole), unused, unused) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "seccomp")


def listen(code: bytes) -> int:
    """The same for a filter that asks: the descriptor by which it does, for whoever answers.

    Raises:
        OSError: the kernel refuses it; EBUSY where another filter asks already.
    """
    whole = Program(len(code) // 8, code)
    number = SYS_SECCOMP.get(os.uname().machine)
    if number is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), "seccomp")
    # A call that was told is not begun anew at each signal (Linux 5.19): a program that signals itself all
    # the time would never get on.
    for flags in (FLAG_NEW_LISTENER | FLAG_WAIT_KILLABLE, FLAG_NEW_LISTENER):
        words = (ctypes.c_long(number), ctypes.c_ulong(SET_MODE_FILTER), ctypes.c_ulong(flags))
        fd = int(libc.syscall(*words, ctypes.byref(whole)))
        if fd >= 0:
            return fd
        if ctypes.get_errno() != errno.EINVAL:
            break
    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "seccomp")
