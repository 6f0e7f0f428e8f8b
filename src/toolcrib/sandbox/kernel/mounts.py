"""Build the private root of a sandbox: a new one in memory, with what the job grants bound into it.

Runs in pid 1 of the sandbox, with rights over its new mount namespace. Each thing bound is identified by its
device and inode, so that the server can check that a path still names what was bound.

Our own code rather than bubblewrap's: it would have to be installed, cannot bind by descriptor, and starts a
process more for each call. The calls are those of the mount API since Linux 5.12: open_tree(2),
move_mount(2), mount_setattr(2); with them a tree gets its attributes before anybody can see it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat

from toolcrib.sandbox.kernel.libc import SetupFailure, check, libc, typed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# linux/mount.h
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
MNT_DETACH = 2
ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV = 1, 2, 4
OPEN_TREE_CLONE, MOVE_MOUNT_FROM_FD, MOVE_MOUNT_TO_FD = 1, 0x4, 0x40
# linux/fcntl.h, linux/openat2.h
AT_FDCWD, AT_EMPTY_PATH, AT_RECURSIVE = -100, 0x1000, 0x8000
RESOLVE_NO_SYMLINKS, RESOLVE_BENEATH = 0x04, 0x08
# Numbers every architecture shares (asm-generic/unistd.h).
SYS_OPEN_TREE, SYS_MOVE_MOUNT, SYS_OPENAT2, SYS_MOUNT_SETATTR = 428, 429, 437, 442
open_tree = typed(ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
move_mount = typed(ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
openat2 = typed(ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)
mount_setattr = typed(ctypes.c_int, ctypes.c_char_p, ctypes.c_uint, ctypes.c_void_p, ctypes.c_size_t)
HOW = (ctypes.c_uint64 * 3)(os.O_PATH | os.O_CLOEXEC, 0, RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH)
"""`struct open_how`: O_PATH only, through no symbolic link."""
HOW_LINK = (ctypes.c_uint64 * 3)(HOW[0] | os.O_NOFOLLOW, *HOW[1:])
"""The same; if the path is a symbolic link, open the link itself."""

OLD = "/.toolcrib-old"
OWN = "/.toolcrib-own"
MASKS = "/.toolcrib-masks"
MASK_FILE, MASK_FOLDER = f"{MASKS}/file", f"{MASKS}/folder"
STAGE = "/proc"
"""The first mount point of the new root; any folder would do, because pivot_root moves it away at once."""
DEVICES = ("null", "zero", "full", "random", "urandom")
PROC_MASKS = (
    "acpi", "bus", "cmdline", "driver", "kallsyms", "kcore", "key-users", "keys", "kmsg", "kpagecgroup",
    "kpagecount", "kpageflags", "latency_stats", "sched_debug", "scsi", "slabinfo", "sysrq-trigger",
    "timer_list", "vmallocinfo",
)  # fmt: skip
KERNEL_FILESYSTEMS = frozenset((
    b"autofs", b"bpf", b"cgroup", b"cgroup2", b"configfs", b"debugfs", b"devpts", b"devtmpfs", b"efivarfs",
    b"fusectl", b"mqueue", b"nsfs", b"proc", b"pstore", b"securityfs", b"selinuxfs", b"sysfs", b"tracefs",
))  # fmt: skip


def build_root(job: dict[str, Any]) -> list[tuple[int, int] | None]:
    """Make a new root in memory, bind what the job grants, and leave the old root.

    Returns device and inode of what each of the job's mounts bound or hid; None where there was nothing.
    """
    # Shared mounts would carry every mount made here out to the machine.
    mount("", "/", "", MS_REC | MS_PRIVATE, "")
    mount("tmpfs", STAGE, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=4m,nr_inodes=65536")
    os.mkdir(STAGE + OLD)
    check("pivot_root", libc.pivot_root(STAGE.encode(), (STAGE + OLD).encode()))
    os.chdir("/")
    old = os.open(OLD, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    new = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    os.mkdir(MASKS)
    os.mkdir(MASK_FOLDER, 0o555)  # can be listed, so that a walk through a project does not fail
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
        make_folder(target.rpartition("/")[0])
        os.symlink(text, target)
    for target, text in job["files"]:
        write_new(target, text)
    found = bind_all(old, new, job)
    check("umount", libc.umount2(OLD.encode(), MNT_DETACH))
    # Only now: the list shows what is really there, with all that came along inside the grants.
    refuse_kernel_mounts()
    os.rmdir(MASK_FOLDER)
    os.unlink(MASK_FILE)
    os.rmdir(MASKS)
    os.rmdir(OLD)
    check("mount_setattr", set_attributes(AT_FDCWD, b"/", 0, ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV))
    os.close(old)
    os.close(new)
    return found


def mount(source: str, target: str, kind: str, flags: int, data: str) -> None:
    """Call mount(2), or raise `SetupFailure`."""
    args = (source.encode(), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), data.encode())
    check(kind or "mount", libc.mount(*args), target)


def build_proc(new: int) -> None:
    """Mount a /proc that shows the sandbox's own processes; read-only, because uid 0 owns /proc/sys."""
    os.mkdir("/proc")
    mount("proc", "/proc", "proc", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, "")
    # A read-only mount of the masks, so that each copy of it is read-only too; it goes with the old root.
    place = OLD + STAGE
    origin = resolve(new, MASKS)
    tree = copy(origin, ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV, AT_RECURSIVE, MASKS)
    check("move_mount", move_mount(SYS_MOVE_MOUNT, tree, b"", AT_FDCWD, place.encode(), MOVE_MOUNT_FROM_FD))
    for fd in (tree, origin):
        os.close(fd)
    masks = [(place + name.removeprefix(MASKS)).encode() for name in (MASK_FILE, MASK_FOLDER)]
    for name in PROC_MASKS:
        mask(masks, f"/proc/{name}")


def mask(masks: list[bytes], target: str) -> None:
    """Cover a file or a folder of the kernel with an empty one, if it exists."""
    for source in masks:
        if libc.mount(source, target.encode(), None, ctypes.c_ulong(MS_BIND), None) == 0:
            return
        if ctypes.get_errno() != errno.ENOTDIR:  # a file cannot be mounted on a folder
            break
    if ctypes.get_errno() != errno.ENOENT:
        raise SetupFailure("mask", ctypes.get_errno(), target)


def build_dev(old: int, new: int) -> None:
    """Bind the harmless devices. Their mounts are read-only; devices can be written to all the same."""
    os.mkdir("/dev")
    for name in DEVICES:
        bind(old, new, f"/dev/{name}", f"/dev/{name}", "device", True)
    for name, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        os.symlink(f"/proc/self/fd{target}", f"/dev/{name}")


def bind_all(old: int, new: int, job: dict[str, Any]) -> list[tuple[int, int] | None]:
    """Do the job's mounts. A folder of the sandbox's own is filled at a place of ours, and attached last."""
    own = job["own"]
    if own:
        os.mkdir(OWN)
        mount("tmpfs", OWN, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=4m,nr_inodes=65536")
    found: list[tuple[int, int] | None] = []
    attach: dict[int, str] = {}
    for number, (source, target, mode, make) in enumerate(job["mounts"]):
        place = staged(target, own)
        seen = None
        if mode == "own":
            make_folder(place)
            if make:
                make_folder(target)  # Now: the folder above may become read-only.
            attach[number] = place
        elif mode == "symlink":
            make_folder(place.rpartition("/")[0])
            os.symlink(source, place)
        else:
            seen = bind(old, new, source, target, mode, make, place)
        found.append(seen)
    # Last: once attached it is read-only, so no place for a mount can be made in it.
    for number, place in attach.items():
        _, target, _, make = job["mounts"][number]
        try:
            origin, to = resolve(new, place), resolve(new, target)
        except OSError as error:
            raise SetupFailure("grant", error.errno or 0, target) from None
        covered = os.fstat(to)
        found[number] = None if make else (covered.st_dev, covered.st_ino)
        put(origin, to, ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV, 0, target)
    if own:
        check("umount", libc.umount2(OWN.encode(), MNT_DETACH))
        os.rmdir(OWN)
    return found


def staged(target: str, own: tuple[str, ...]) -> str:
    """Return the place at which a target inside a folder of the sandbox's own is made."""
    for number, top in enumerate(own):
        if target == top or target.startswith(f"{top}/"):
            return f"{OWN}/{number}{target[len(top) :]}"
    return target


def bind(
    old: int, new: int, source: str, target: str, mode: str, make: bool, place: str = ""
) -> tuple[int, int] | None:
    """Attach one file or folder of the old root to the new one; return device and inode of what was bound or
    hidden.

    `mode` is ro, rw, link, hide, empty or device; with a question mark: only if it exists. Symbolic links are
    not followed on either side. A link is bound as a link, and leads where it did. `place` is where the
    target is made, if not there.
    """
    try:
        hidden = resolve(old, target) if make and mode == "hide" else -1
        if hidden >= 0:
            make_target(place or target, stat.S_ISDIR(os.fstat(hidden).st_mode))
        origin, to = open_ends(old, new, source, place or target, mode.rstrip("?"), make)
    except OSError as error:
        if mode.endswith(("?", "hide")) and error.errno in (errno.ENOENT, errno.ENOTDIR):
            return None
        raise SetupFailure("grant", error.errno or 0, target) from None
    mode = mode.rstrip("?")
    seen = os.fstat(hidden if hidden >= 0 else to if mode == "hide" else origin)
    if hidden >= 0:
        os.close(hidden)
    attributes = ATTR_NOSUID | (0 if mode == "rw" else ATTR_RDONLY) | (0 if mode == "device" else ATTR_NODEV)
    # An empty folder may contain grants that were mounted before; those keep their attributes.
    put(origin, to, attributes, 0 if mode == "empty" else AT_RECURSIVE, target, mode)
    return None if mode == "empty" else (seen.st_dev, seen.st_ino)


def put(origin: int, to: int, attributes: int, depth: int, target: str, mode: str = "") -> None:
    """Attach a copy of a mounted tree; `depth` says how far the attributes apply."""
    tree = copy(origin, attributes, depth, target)
    done = move_mount(SYS_MOVE_MOUNT, tree, b"", to, b"", MOVE_MOUNT_FROM_FD | MOVE_MOUNT_TO_FD)
    check("link" if mode == "link" else "move_mount", done, target)
    for fd in (tree, origin, to):
        os.close(fd)


def copy(origin: int, attributes: int, depth: int, target: str) -> int:
    """Copy a mounted tree, not attached anywhere yet; `depth` says how far the attributes apply."""
    flags = OPEN_TREE_CLONE | os.O_CLOEXEC | AT_EMPTY_PATH | AT_RECURSIVE
    tree = check("open_tree", open_tree(SYS_OPEN_TREE, origin, b"", flags), target)
    check("mount_setattr", set_attributes(tree, b"", AT_EMPTY_PATH | depth, attributes), target)
    return tree


def open_ends(old: int, new: int, source: str, target: str, mode: str, make: bool) -> tuple[int, int]:
    """Open the thing to attach, and the place to attach it at."""
    if mode == "hide":
        to = resolve(new, target)
        folder = stat.S_ISDIR(os.fstat(to).st_mode)
        return resolve(new, MASK_FOLDER if folder else MASK_FILE), to
    if mode == "empty":
        make_folder(target)
        return resolve(new, target), resolve(new, target)
    if mode == "link":
        return resolve(old, source, HOW_LINK), resolve(new, target, HOW_LINK)
    origin = resolve(old, source)
    if make:
        make_target(target, stat.S_ISDIR(os.fstat(origin).st_mode))
    return origin, resolve(new, target)


def resolve(root: int, path: str, how: ctypes.Array[ctypes.c_uint64] = HOW) -> int:
    """Open a path below a root with O_PATH, through no symbolic link."""
    fd = openat2(SYS_OPENAT2, root, os.fsencode(path.lstrip("/") or "."), how, ctypes.sizeof(how))
    if fd < 0:
        number = ctypes.get_errno()
        if number == errno.ENOSYS:
            raise SetupFailure("openat2", number)
        raise OSError(number, os.strerror(number), path)
    return fd


def make_target(target: str, folder: bool) -> None:
    """Make an empty place to mount on, in the sandbox's own memory."""
    if folder:
        make_folder(target)
        return
    flags = os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        os.close(os.open(target, flags, 0o600))
    except FileExistsError:
        pass
    except FileNotFoundError:
        make_folder(target.rpartition("/")[0])
        os.close(os.open(target, flags, 0o600))


def write_new(target: str, text: str) -> None:
    """Write a file in the sandbox's own memory."""
    make_folder(target.rpartition("/")[0])
    file = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    os.write(file, text.encode())
    os.close(file)


def make_folder(path: str) -> None:
    """Make a folder and its parents; most often they exist."""
    try:
        os.mkdir(path or "/")
    except FileExistsError:
        pass
    except FileNotFoundError:
        make_folder(path.rpartition("/")[0])
        os.mkdir(path)


def set_attributes(fd: int, path: bytes, flags: int, attributes: int) -> int:
    """Call mount_setattr(2), which can change a whole tree at once."""
    record = (ctypes.c_uint64 * 4)(attributes, 0, MS_PRIVATE, 0)
    return mount_setattr(SYS_MOUNT_SETATTR, fd, path, flags, record, ctypes.sizeof(record))


def refuse_kernel_mounts() -> None:
    """Refuse a grant that has a file system of the kernel mounted inside: it would show other processes."""
    with open("/proc/self/mountinfo", "rb", buffering=0) as file:
        for line in file.readall().splitlines():
            kind = line.partition(b" - ")[2].partition(b" ")[0]
            if kind in KERNEL_FILESYSTEMS:
                place = os.fsdecode(line.split(b" ", 5)[4])
                if not f"{place}/".startswith(("/proc/", "/dev/")):
                    raise SetupFailure("kernel mount", errno.EPERM, place, kind.decode())
